//! BT070: clients of RabbitMQ open and close connections, channels or queues all the time, leak channels, or fail to log in.

use beamtune_model::{
    Account, Code, Confidence, Cost, Evidence, Metric, Missing, Period, Scale, Signal, Threshold, Unit,
    metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::signals::broker;
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT070"),
    name: "client-churn",
    question: "Do RabbitMQ's clients open connections, channels or queues all the time, or leak channels?",
    confirm: "rabbitmqctl list_connections name user connected_at, twice: most are new; or the churn graphs of the management plugin",
    needs: &[&metrics::PROCESS_COUNT],
    account: Account::CpuUsed,
    judge,
    thresholds: &[CONNECTIONS.opened_per_s, CHANNELS.opened_per_s, QUEUES.opened_per_s, METADATA, FAILED],
    ..Rule::COMMON
};

/// Something that clients open, and close soon after.
struct Churn {
    what: &'static str,
    /// How it begins and ends.
    verbs: (&'static str, &'static str),
    opened: &'static Metric,
    closed: &'static Metric,
    /// Who was met opening them.
    opener: Option<&'static Metric>,
    opened_per_s: Threshold,
    /// CPU time of the broker for one, in seconds (measured with RabbitMQ 3.10 on OTP 25: 3.9 ms for a connection with a channel and a message,
    /// 1.3 ms for a channel and 4.7 ms for a queue, each with a message, which is left out here).
    cpu_seconds: f64,
    change: &'static str,
    why: &'static str,
}

const CONNECTIONS: Churn = Churn {
    what: "connections",
    verbs: ("open", "close"),
    opened: &metrics::BROKER_CONNECTIONS_OPENED,
    closed: &metrics::BROKER_CONNECTIONS_CLOSED,
    opener: Some(&metrics::OPENER_CONNECTIONS),
    opened_per_s: Threshold::new(
        "client-churn.connections_per_s",
        "connections opened a second",
        Scale {
            notice: 20.0,
            warning: 100.0,
            critical: 1_000_000.0,
            source: "judgement: some hundred sockets a second use up CPU and ports in TIME_WAIT (rabbitmq.com, \"High Connection Churn\")",
        },
    ),
    cpu_seconds: 0.003_5,
    change: "one long-lived connection per client process, reused for all messages; for PHP and scripts a proxy that keeps them (AMQProxy)",
    why: "a connection costs a TCP and AMQP handshake, a login and some ten processes; publishing over an open one costs none of that",
};

const CHANNELS: Churn = Churn {
    what: "channels",
    verbs: ("open", "close"),
    opened: &metrics::BROKER_CHANNELS_OPENED,
    closed: &metrics::BROKER_CHANNELS_CLOSED,
    opener: Some(&metrics::OPENER_CHANNELS),
    opened_per_s: Threshold::new(
        "client-churn.channels_per_s",
        "channels opened a second",
        Scale {
            notice: 100.0,
            warning: 500.0,
            critical: 1_000_000.0,
            source: "judgement: channels are meant to live as long as their connection (rabbitmq.com, \"High Channel Churn\")",
        },
    ),
    cpu_seconds: 0.001,
    change: "one long-lived channel per thread of the client (Spring: a larger channelCacheSize); no channel per message",
    why: "a channel costs several processes and two round trips",
};

const QUEUES: Churn = Churn {
    what: "queues",
    verbs: ("create", "delete"),
    opened: &metrics::BROKER_QUEUES_CREATED,
    closed: &metrics::BROKER_QUEUES_DELETED,
    opener: None,
    opened_per_s: Threshold::new(
        "client-churn.queues_per_s",
        "queues created a second",
        Scale {
            notice: 20.0,
            warning: 100.0,
            critical: 1_000_000.0,
            source: "judgement: each is a transaction of the whole cluster",
        },
    ),
    cpu_seconds: 0.004,
    change: "one reply queue per client for all its requests, or direct reply-to (amq.rabbitmq.reply-to), in place of a queue for each request",
    why: "declaring and deleting a queue are transactions of the metadata store, with bindings, on all nodes",
};

/// Transactions of the metadata store in a second: RabbitMQ makes one for each queue, exchange and binding that comes or goes.
const METADATA: Threshold = Threshold::new(
    "client-churn.metadata_changes_per_s",
    "queues, exchanges and bindings that are declared or deleted, a second",
    Scale {
        notice: 50.0,
        warning: 200.0,
        critical: 1_000_000.0,
        source: "judgement: topology is meant to be declared once; each change is a transaction of the whole cluster",
    },
);

/// CPU time of one, in seconds (RabbitMQ 3.10 on OTP 25: 0.6 cores for 750 bindings a second that come and go with their queues).
const METADATA_CPU_SECONDS: f64 = 0.000_8;

/// From this share of what the schedulers do on, it is most of that (judgement).
const MOST: f64 = 0.5;

/// Of what is opened, at least so much is closed meanwhile: otherwise clients have come and stayed (judgement).
const CLOSED: f64 = 0.5;

/// A connection with so many channels, more at the end than in the beginning, leaks them (judgement: the default of channel_max is 2047, and
/// clients have one for each thread).
const LEAKED_CHANNELS: f64 = 200.0;
/// More by so many.
const LEAK_GROWTH: f64 = 10.0;

/// Failed logins per second.
const FAILED: Threshold = Threshold::new(
    "client-churn.failed_logins_per_s",
    "logins that fail, a second",
    Scale {
        notice: 1.0,
        warning: 10.0,
        critical: 1_000_000.0,
        source: "judgement: a client with a wrong password that tries again without a pause",
    },
);

fn judge(period: &Period) -> Result<Judgement, Missing> {
    if !broker::recorded(period)? {
        return Ok(Judgement::Healthy(broker::NO_BROKER.to_owned()));
    }
    let opened = period.rate(&metrics::BROKER_CONNECTIONS_OPENED, "")?;
    // Each connection has a channel or two of its own.
    let channels = CHANNELS.rates(period).filter(|(channels, _)| *channels > 4.0 * opened.max(1.0));
    let found = CONNECTIONS
        .rates(period)
        .and_then(|rates| churn(period, &CONNECTIONS, rates))
        .into_iter()
        .chain(channels.and_then(|rates| churn(period, &CHANNELS, rates)))
        .chain(QUEUES.rates(period).and_then(|rates| churn(period, &QUEUES, rates)))
        .chain(metadata(period))
        .chain(leak(period))
        .chain(failed(period));
    let rate = |metric| broker::total(period, metric).unwrap_or(0.0);
    let healthy = format!(
        "{opened:.1} connections, {:.1} channels and {:.1} queues are opened per second",
        rate(&metrics::BROKER_CHANNELS_OPENED),
        rate(&metrics::BROKER_QUEUES_CREATED)
    );
    Ok(Judgement::found_or_healthy(found.collect(), healthy))
}

impl Churn {
    fn rates(&self, period: &Period) -> Option<(f64, f64)> {
        Some((broker::total(period, self.opened)?, broker::total(period, self.closed)?))
    }
}

fn churn(period: &Period, churn: &Churn, (opened, closed): (f64, f64)) -> Option<Draft> {
    let severity = churn.opened_per_s.of(period).severity(opened).filter(|_| closed >= CLOSED * opened)?;
    let opener = churn.opener.and_then(|metric| broker::foremost_opener(period, metric));
    let who = opener
        .as_ref()
        .map_or_else(String::new, |(client, ..)| format!(", most of them by {}", client.title()));
    let (cores, is_most) = cost(period, opened * churn.cpu_seconds);
    let (open, close) = churn.verbs;
    let draft = Draft::new(
        severity,
        format!("clients {open} {opened:.0} {} per second and {close} {closed:.0}{who}", churn.what),
    )
    .about(opener.as_ref().map(|(client, ..)| client.subject()))
    .costs(cores.map(Cost::CpuCores))
    .signals(is_most.then_some(Signal::DrivesMost))
    .because(
        Evidence::number(format!("{} that clients {open}", churn.what), opened, Unit::PerSecond)
            .against_scale(churn.opened_per_s.of(period)),
    )
    .because(Evidence::number(format!("{} that clients {close}", churn.what), closed, Unit::PerSecond))
    .because_some(opener.as_ref().map(|(client, count, of)| {
        Evidence::text("met among new processes", format!("{}, {count:.0} of {of:.0}", client.title()))
    }))
    .but("clients that come back after an outage do this for a while");
    Some(draft.fix(remedy::of(
        period,
        "rabbitmq.long_lived",
        churn.change,
        churn.why,
        "opened per second, and CPU per message",
    )))
}

/// What it takes, in cores, no more than the schedulers do; and whether it is most of that.
fn cost(period: &Period, cores: f64) -> (Option<f64>, bool) {
    let active = view::activity(period, view::kind::SCHEDULER).ok().map(|activity| activity.cores());
    let cores = active.map(|active| cores.min(active));
    (cores, cores.zip(active).is_some_and(|(cores, active)| cores >= MOST * active))
}

/// Bindings and exchanges that come and go: Mnesia counts transactions, and queues are counted beside.
fn metadata(period: &Period) -> Option<Draft> {
    let changes = period.rate(&metrics::MNESIA_COMMITS, "").ok()?;
    let (created, deleted) = QUEUES.rates(period)?;
    // Those of queues are told there.
    let severity = METADATA.of(period).severity(changes - created - deleted)?;
    let (cores, is_most) = cost(period, changes * METADATA_CPU_SECONDS);
    let opener = broker::foremost_opener(period, &metrics::OPENER_CONNECTIONS);
    let draft = Draft::new(
        severity,
        format!("binding churn: clients change bindings or exchanges {:.0} times per second", changes - created - deleted),
    )
    .confidence(Confidence::Inferred)
    .costs(cores.map(Cost::CpuCores))
    .signals(is_most.then_some(Signal::DrivesMost))
    .because(
        Evidence::number("transactions of the metadata store (Mnesia)", changes, Unit::PerSecond)
            .against_scale(METADATA.of(period)),
    )
    .because(Evidence::number("queues created", created, Unit::PerSecond))
    .because(Evidence::number("queues deleted", deleted, Unit::PerSecond))
    .because_some(opener.map(|(client, count, of)| {
        Evidence::text("new connections", format!("{}, {count:.0} of {of:.0} that were met", client.title()))
    }))
    .but("a client that declares all it needs at its start does this for a moment")
    .confirmed_by("rabbitmqctl list_bindings source_name destination_name routing_key, twice: bindings have come and gone");
    Some(draft.fix(remedy::of(
        period,
        "rabbitmq.long_lived",
        "one binding with a pattern (topic exchange: region3.#) in place of one for each key; keep the queue with its bindings between uses, and \
         change only those that differ",
        "each binding is a transaction of the metadata store on all nodes, when it comes and when it goes, and all of them wait for each other",
        "transactions per second, CPU per message",
    )))
}

/// Channels that are opened and never closed.
fn leak(period: &Period) -> Option<Draft> {
    let grown = |client: &broker::Client<'_>| {
        let (first, last) = client.gauge(period, &metrics::CONNECTION_CHANNELS)?;
        Some((last - first, last)).filter(|(more, last)| *more >= LEAK_GROWTH && *last >= LEAKED_CHANNELS)
    };
    let leaking =
        broker::connections(period).into_iter().filter_map(|client| Some((client, grown(&client)?)));
    let (client, (more, channels)) = leaking.max_by(|a, b| a.1.1.total_cmp(&b.1.1))?;
    let all = period.stat(&metrics::BROKER_CHANNELS, "").ok().map(|stat| stat.last.value as f64);
    let title = format!(
        "channel leak: {} has {channels:.0} channels on one connection, {more:.0} more than at the start",
        client.title()
    );
    let draft = Draft::new(crate::rule::WARNING, title)
        .about(client.subject())
        .because(
            Evidence::number("channels of the connection", channels, Unit::Count)
                .against(LEAKED_CHANNELS, "judgement: clients have a channel for each thread"),
        )
        .because_some(all.map(|all| Evidence::number("channels of the node", all, Unit::Count)))
        .confirmed_by(
            "rabbitmqctl list_connections name user channels, twice: the number of this connection rises",
        );
    Some(draft.fix(remedy::of(
        period,
        "rabbitmq.channel_max",
        "close channels, or take them from a pool that does (an exception on the way past the close is the usual cause); until then channel_max in \
         rabbitmq.conf, so that the client meets the error",
        "each channel is several processes with buffers of their own, and stays until its connection ends",
        "rabbitmqctl list_connections name channels: the number stays",
    )))
}

fn failed(period: &Period) -> Option<Draft> {
    let failed = broker::total(period, &metrics::BROKER_LOGINS_FAILED)?;
    let severity = FAILED.of(period).severity(failed)?;
    let draft = Draft::new(severity, format!("{failed:.1} logins per second fail"))
        .because(Evidence::number("failed logins", failed, Unit::PerSecond).against_scale(FAILED.of(period)));
    Some(draft.fix(remedy::of(
        period,
        "rabbitmq.long_lived",
        "find the client in RabbitMQ's log (\"PLAIN login refused\", with address and user), and give it its password, or a pause between attempts",
        "each attempt is a connection that is opened for nothing",
        "failed logins per second: 0",
    )))
}
