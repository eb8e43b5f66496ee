//! BT070: clients of RabbitMQ continually open and close connections, channels or queues, leak channels, or fail to log in.

use beamtune_model::{
    Account, Code, Confidence, Cost, Evidence, Metric, Missing, Period, Scale, Signal, Threshold, Unit,
    metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::signals::broker;
use crate::text;
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT070"),
    name: "client-churn",
    question: "Do RabbitMQ's clients open connections, channels or queues all the time, or leak channels?",
    confirm: "run rabbitmqctl list_connections name user connected_at twice: most are new; or see the churn graphs of the management plugin",
    needs: &[&metrics::PROCESS_COUNT],
    account: Account::CpuUsed,
    judge,
    thresholds: &[CONNECTIONS.opened_per_s, CHANNELS.opened_per_s, QUEUES.opened_per_s, METADATA, FAILED],
    ..Rule::COMMON
};

/// Something short-lived that clients open and close.
struct Churn {
    noun: &'static str,
    /// Verbs for its start and its end.
    verbs: (&'static str, &'static str),
    opened: &'static Metric,
    closed: &'static Metric,
    /// Number of sampled new processes, by the client that opened them.
    opener: Option<&'static Metric>,
    opened_per_s: Threshold,
    /// CPU time of the broker for each, in seconds. Measured with RabbitMQ 3.10 on OTP 25, each with a message: 3.9 ms for a connection
    /// with a channel, 1.3 ms for a channel, 4.7 ms for a queue. The message is subtracted here.
    cpu_seconds: f64,
    change: &'static str,
    why: &'static str,
}

const CONNECTIONS: Churn = Churn {
    noun: "connections",
    verbs: ("open", "close"),
    opened: &metrics::BROKER_CONNECTIONS_OPENED,
    closed: &metrics::BROKER_CONNECTIONS_CLOSED,
    opener: Some(&metrics::OPENER_CONNECTIONS),
    opened_per_s: Threshold::new(
        "client-churn.connections_per_s",
        "connections opened per second",
        Scale {
            notice: 20.0,
            warning: 100.0,
            critical: 1_000_000.0,
            source: "judgement: some hundred sockets per second use up CPU and ports in TIME_WAIT (rabbitmq.com, \"High Connection Churn\")",
        },
    ),
    cpu_seconds: 0.003_5,
    change: "keep one connection per client process for all messages; for PHP and scripts use a proxy that keeps them (AMQProxy)",
    why: "a connection costs a TCP and AMQP handshake, a login and some ten processes; an open one costs nothing more",
};

const CHANNELS: Churn = Churn {
    noun: "channels",
    verbs: ("open", "close"),
    opened: &metrics::BROKER_CHANNELS_OPENED,
    closed: &metrics::BROKER_CHANNELS_CLOSED,
    opener: Some(&metrics::OPENER_CHANNELS),
    opened_per_s: Threshold::new(
        "client-churn.channels_per_s",
        "channels opened per second",
        Scale {
            notice: 100.0,
            warning: 500.0,
            critical: 1_000_000.0,
            source: "judgement: channels are meant to live as long as their connection (rabbitmq.com, \"High Channel Churn\")",
        },
    ),
    cpu_seconds: 0.001,
    change: "keep one channel per client thread (Spring: a larger channelCacheSize), not one per message",
    why: "a channel costs several processes and two round trips",
};

const QUEUES: Churn = Churn {
    noun: "queues",
    verbs: ("create", "delete"),
    opened: &metrics::BROKER_QUEUES_CREATED,
    closed: &metrics::BROKER_QUEUES_DELETED,
    opener: None,
    opened_per_s: Threshold::new(
        "client-churn.queues_per_s",
        "queues created per second",
        Scale {
            notice: 20.0,
            warning: 100.0,
            critical: 1_000_000.0,
            source: "judgement: each is a transaction of the whole cluster",
        },
    ),
    cpu_seconds: 0.004,
    change: "use one reply queue per client, or direct reply-to (amq.rabbitmq.reply-to), instead of a queue per request",
    why: "declaring and deleting a queue are transactions of the metadata store, including bindings, on all nodes",
};

/// RabbitMQ runs one transaction of the metadata store for each queue, exchange and binding that is declared or deleted.
const METADATA: Threshold = Threshold::new(
    "client-churn.metadata_changes_per_s",
    "queues, exchanges and bindings declared or deleted per second",
    Scale {
        notice: 50.0,
        warning: 200.0,
        critical: 1_000_000.0,
        source: "judgement: topology is meant to be declared once; each change is a transaction of the whole cluster",
    },
);

/// CPU time of a transaction, in seconds (RabbitMQ 3.10 on OTP 25: 0.6 cores for 750 bindings a second, created and deleted with their
/// queues).
const METADATA_CPU_SECONDS: f64 = 0.000_8;

/// If churn takes at least this share of the schedulers' work, it drives most of that work (judgement).
const MIN_SHARE_OF_WORK: f64 = 0.5;

/// At least this share of what is opened must be closed in the period. Otherwise clients connected and stayed (judgement).
const MIN_CLOSED_SHARE: f64 = 0.5;

/// A connection with at least this many channels leaks them if their number grows (judgement: the default of channel_max is 2047, and
/// clients have one channel per thread).
const MIN_LEAKED_CHANNELS: f64 = 200.0;
const MIN_CHANNEL_GROWTH: f64 = 10.0;

const FAILED: Threshold = Threshold::new(
    "client-churn.failed_logins_per_s",
    "failed logins per second",
    Scale {
        notice: 1.0,
        warning: 10.0,
        critical: 1_000_000.0,
        source: "judgement: a client with a wrong password tries again without a pause",
    },
);

fn judge(period: &Period) -> Result<Judgement, Missing> {
    if !broker::recorded(period)? {
        return Ok(Judgement::Healthy(broker::NO_BROKER.to_owned()));
    }
    let opened = period.rate(&metrics::BROKER_CONNECTIONS_OPENED, "")?;
    // Each connection opens one or two channels.
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
        "opened per second: {} connections, {} channels, {} queues",
        text::rate(opened),
        text::rate(rate(&metrics::BROKER_CHANNELS_OPENED)),
        text::rate(rate(&metrics::BROKER_QUEUES_CREATED))
    );
    Ok(Judgement::found_or_healthy(found.collect(), healthy))
}

impl Churn {
    fn rates(&self, period: &Period) -> Option<(f64, f64)> {
        Some((broker::total(period, self.opened)?, broker::total(period, self.closed)?))
    }
}

/// Drafts a finding about churn of connections, channels or queues.
fn churn(period: &Period, churn: &Churn, (opened, closed): (f64, f64)) -> Option<Draft> {
    let scale = churn.opened_per_s.of(period);
    let severity = scale.severity(opened).filter(|_| closed >= MIN_CLOSED_SHARE * opened)?;
    let opener = churn.opener.and_then(|metric| broker::foremost_opener(period, metric));
    let by = opener.as_ref().map_or_else(String::new, |(client, ..)| format!(", most by {}", client.name));
    let (cores, is_most) = cost(period, opened * churn.cpu_seconds);
    let (open, close) = churn.verbs;
    let noun = churn.noun;
    let sampled = opener
        .as_ref()
        .map(|(client, count, of)| format!("{count:.0} of {of:.0} sampled by {}", client.title()));
    let title = format!("RabbitMQ clients {open} {} {noun}/s{by}", text::rate(opened));
    let draft = Draft::new(severity, title)
        .detail(format!("they {close} {}/s", text::rate(closed)))
        .detail(sampled.as_deref().unwrap_or_default())
        .about(opener.as_ref().map(|(client, ..)| client.subject()))
        .costs(cores.map(Cost::CpuCores))
        .signals(is_most.then_some(Signal::DrivesMost))
        .evidence(
            Evidence::number(format!("{noun} that clients {open}"), opened, Unit::PerSecond)
                .against_scale(scale),
        )
        .evidence(Evidence::number(format!("{noun} that clients {close}"), closed, Unit::PerSecond))
        .because_some(sampled.map(|sampled| Evidence::text("opened by", sampled)))
        .counter_evidence("clients that come back after an outage do this for a while");
    Some(draft.remedy(remedy::of(
        period,
        "rabbitmq.long_lived",
        churn.change,
        churn.why,
        "opened per second, and CPU per message",
    )))
}

/// CPU cost in cores, limited to the work of the schedulers, and whether it is most of that work.
fn cost(period: &Period, cores: f64) -> (Option<f64>, bool) {
    let active = view::activity(period, view::kind::SCHEDULER).ok().map(|activity| activity.cores());
    let cores = active.map(|active| cores.min(active));
    (cores, cores.zip(active).is_some_and(|(cores, active)| cores >= MIN_SHARE_OF_WORK * active))
}

/// Drafts a finding about churn of bindings and exchanges: Mnesia transactions except those of queues, which are counted separately.
fn metadata(period: &Period) -> Option<Draft> {
    let changes = period.rate(&metrics::MNESIA_COMMITS, "").ok()?;
    let (created, deleted) = QUEUES.rates(period)?;
    // Queue churn is a finding of its own.
    let others = changes - created - deleted;
    let severity = METADATA.of(period).severity(others)?;
    let (cores, is_most) = cost(period, changes * METADATA_CPU_SECONDS);
    let opener = broker::foremost_opener(period, &metrics::OPENER_CONNECTIONS);
    let sampled = opener.map(|(client, count, of)| {
        format!("{count:.0} of {of:.0} sampled new connections by {}", client.title())
    });
    let title = format!("Binding churn: {} changes of bindings or exchanges/s", text::rate(others));
    let draft = Draft::new(severity, title)
        .detail(sampled.as_deref().unwrap_or_default())
        .confidence(Confidence::Inferred)
        .costs(cores.map(Cost::CpuCores))
        .signals(is_most.then_some(Signal::DrivesMost))
        .evidence(
            Evidence::number("transactions of the metadata store (Mnesia)", changes, Unit::PerSecond)
                .against_scale(METADATA.of(period)),
        )
        .evidence(Evidence::number("queues created", created, Unit::PerSecond))
        .evidence(Evidence::number("queues deleted", deleted, Unit::PerSecond))
        .because_some(sampled.map(|sampled| Evidence::text("new connections", sampled)))
        .counter_evidence("a client that declares everything when it starts does this briefly")
        .confirmed_by(
            "run rabbitmqctl list_bindings source_name destination_name routing_key twice: bindings have changed",
        );
    Some(draft.remedy(remedy::of(
        period,
        "rabbitmq.long_lived",
        "use one binding with a pattern (topic exchange: region3.#) instead of one per key; keep the queue with its bindings between uses",
        "each binding is a transaction of the metadata store on all nodes, when declared and when deleted, and they run one at a time",
        "transactions per second, CPU per message",
    )))
}

/// Drafts a finding about channels that are opened and never closed.
fn leak(period: &Period) -> Option<Draft> {
    let grown = |client: &broker::Client<'_>| {
        let (first, last) = client.gauge(period, &metrics::CONNECTION_CHANNELS)?;
        Some((last - first, last))
            .filter(|(growth, last)| *growth >= MIN_CHANNEL_GROWTH && *last >= MIN_LEAKED_CHANNELS)
    };
    let leaking =
        broker::connections(period).into_iter().filter_map(|client| Some((client, grown(&client)?)));
    let (client, (growth, channels)) = leaking.max_by(|a, b| a.1.1.total_cmp(&b.1.1))?;
    let all = period.stat(&metrics::BROKER_CHANNELS, "").ok().map(|stat| stat.last.value as f64);
    let title =
        format!("Channel leak: {} has {} channels on one connection", client.name, text::number(channels));
    let draft = Draft::new(crate::rule::WARNING, title)
        .detail(format!("{}; {} more than at the start", client.title(), text::number(growth)))
        .about(client.subject())
        .evidence(
            Evidence::number("channels of the connection", channels, Unit::Count)
                .against(MIN_LEAKED_CHANNELS, "judgement: clients have a channel per thread"),
        )
        .because_some(all.map(|all| Evidence::number("channels of the node", all, Unit::Count)))
        .confirmed_by(
            "run rabbitmqctl list_connections name user channels twice: the number of this connection rises",
        );
    Some(draft.remedy(remedy::of(
        period,
        "rabbitmq.channel_max",
        "close channels, also after exceptions, or use a pool that does so; until then set channel_max in rabbitmq.conf, so that the \
         client gets the error",
        "a channel is several processes with their own buffers, and stays until its connection ends",
        "rabbitmqctl list_connections name channels: the number stays",
    )))
}

/// Drafts a finding about failed logins.
fn failed(period: &Period) -> Option<Draft> {
    let failed = broker::total(period, &metrics::BROKER_LOGINS_FAILED)?;
    let severity = FAILED.of(period).severity(failed)?;
    let draft = Draft::new(severity, format!("{} RabbitMQ logins/s fail", text::rate(failed))).evidence(
        Evidence::number("failed logins", failed, Unit::PerSecond).against_scale(FAILED.of(period)),
    );
    Some(draft.remedy(remedy::of(
        period,
        "rabbitmq.long_lived",
        "find the client in RabbitMQ's log (\"PLAIN login refused\", with address and user); correct its password, or add a pause between attempts",
        "each attempt opens a useless connection",
        "failed logins per second: 0",
    )))
}
