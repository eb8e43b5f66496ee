//! BT079: received bytes stay in the receive queues of the kernel, because the VM does not read these connections.
//!
//! The waiting time follows from Little's law: bytes in the queue divided by bytes read per second. A connection with much traffic has a
//! full queue, too, but its bytes are read within milliseconds.

use beamtune_model::{
    Account, Code, Confidence, Cost, Evidence, Group, Missing, Period, Scale, Signal, Subject, Threshold,
    Unit, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::signals::unread::{MIN_SAMPLES, Unread};
use crate::signals::{limits, products, unread};
use crate::text;
use crate::view::{self, kind};

pub const RULE: Rule = Rule {
    code: Code("BT079"),
    name: "unread-sockets",
    question: "Does the VM read its connections in time?",
    confirm: "run ss -tn: Recv-Q of these connections stays above 0 while schedulers are idle",
    needs: &[&metrics::TCP_SAMPLED],
    account: Account::Delay,
    confidence: Confidence::Inferred,
    judge,
    thresholds: &[WAIT],
    ..Rule::COMMON
};

const WAIT: Threshold = Threshold::new(
    "unread-sockets.wait_seconds",
    "seconds until received bytes are read",
    Scale {
        notice: 1.0,
        warning: 4.0,
        critical: 600.0,
        source: "judgement: an idle process reads within milliseconds, and peers give up after some seconds",
    },
);

/// Fewer waiting bytes, on average, are ignored (judgement: a message or two).
const MIN_WAITING_BYTES: f64 = 1_000.0;

/// At a lower rate, the waiting bytes may belong to connections other than those that are read (judgement).
const MIN_READ_BYTES_PER_S: f64 = 500.0;

/// Schedulers above this utilization have no time left to read (judgement).
const BUSY_UTILIZATION: f64 = 0.85;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let sampled = period.stat(&metrics::TCP_SAMPLED, "")?;
    if sampled.samples < MIN_SAMPLES {
        return Ok(Judgement::NotJudged {
            reason: format!("only {} samples of connections", sampled.samples),
            next: "record for longer: --for 10s".to_owned(),
        });
    }
    let entities = period.entities(Group::HostTcp);
    let unread: Vec<Unread<'_>> = unread::all(period);
    let mut groups: Vec<&str> = unread.iter().map(|connection| connection.group).collect();
    groups.sort_unstable();
    groups.dedup();
    let of = |group| unread.iter().filter(|connection| connection.group == group).collect();
    let slow = entities.iter().filter(|entity| !groups.contains(entity));
    let slow: Vec<Draft> = slow.filter_map(|group| describe_slow(period, group)).collect();
    let unread = groups.into_iter().filter_map(|group| describe(period, group, of(group)));
    let drafts: Vec<Draft> = unread.chain(slow).collect();
    let connections = text::counted(sampled.mean().round(), "connection", "connections");
    Ok(Judgement::found_or_healthy(drafts, format!("{connections} sampled, none unread for long")))
}

/// Formats where connections are, for titles: `at 0.0.0.0:5222`, or `to 10.0.0.9:5432` for those that the VM opened.
fn place(group: &str) -> String {
    if group.starts_with("to ") { group.to_owned() } else { format!("at {group}") }
}

fn describe(period: &Period, group: &str, mut connections: Vec<&Unread<'_>>) -> Option<Draft> {
    connections.sort_by(|a, b| a.min_wait_seconds().total_cmp(&b.min_wait_seconds()));
    let median = connections.get(connections.len() / 2)?;
    let wait = median.min_wait_seconds();
    let severity = WAIT.of(period).severity(wait)?;
    let unread = period.stat(&metrics::TCP_UNREAD, group).ok().map(|stat| stat.last.value);
    let count = unread.unwrap_or(0).max(connections.len() as i64);
    let all = period.stat(&metrics::TCP_CONNECTIONS, group).ok().map(|stat| stat.last.value.max(count));
    let counted = match all {
        Some(all) => format!("{count} of {}", text::counted(all as f64, "connection", "connections")),
        None => text::counted(count as f64, "connection", "connections"),
    };
    let how_long = match median.wait_seconds {
        Some(_) => format!(", bytes wait {}", view::duration_text(wait)),
        None => format!(" for {}", view::duration_text(wait)),
    };
    let reader = median.reader(period);
    let draft = Draft::new(severity, format!("{counted} {} unread{how_long}", place(group)))
        .detail(format!(
            "{} from {} in the receive queue of {}",
            text::bytes(median.mean_bytes),
            median.remote(),
            median.local()
        ))
        .detail(match median.is_within_node(period) {
            true => {
                format!("this node listens at {}, so the sender is part of the node, too", median.remote())
            }
            false => String::new(),
        })
        .detail(match reader {
            Some(reader) => format!("to be read by {}", reader.title()),
            None => "which process should read it is not recorded: inet:i() lists owners".to_owned(),
        })
        .signals(reader.map(|reader| Signal::Member(reader.subject())))
        .signals(
            connections.iter().map(|one| Signal::Member(Subject::Socket { address: one.local().to_owned() })),
        )
        .costs(Cost::DelaySeconds(wait))
        .evidence(
            Evidence::number("time until bytes are read", wait, Unit::Seconds)
                .against_scale(WAIT.of(period))
                .with_text(format!(
                    "median of {}; {}",
                    text::counted(connections.len() as f64, "followed connection", "followed connections"),
                    if median.wait_seconds.is_some() {
                        "mean queue / bytes read per second"
                    } else {
                        "at least"
                    }
                )),
        )
        .evidence(
            Evidence::number("mean receive queue of a connection", median.mean_bytes, Unit::Bytes)
                .with_text(format!("local {}, remote {}", median.local(), median.remote())),
        );
    Some(common(period, group, draft))
}

/// Drafts the finding about connections that are read late but not left unread. It is based on Little's law over all waiting and all read
/// bytes.
fn describe_slow(period: &Period, group: &str) -> Option<Draft> {
    let waiting = period.stat(&metrics::TCP_WAITING, group).ok()?;
    let read = period.rate(&metrics::IO_INPUT, "").ok()?;
    if waiting.samples < MIN_SAMPLES || waiting.mean() < MIN_WAITING_BYTES || read < MIN_READ_BYTES_PER_S {
        return None;
    }
    let wait = waiting.mean() / read;
    let severity = WAIT.of(period).severity(wait)?;
    let title = format!("Received bytes {} wait {} to be read", place(group), view::duration_text(wait));
    let draft = Draft::new(severity, title)
        .detail(format!(
            "{} in receive queues; the VM reads {}/s",
            text::bytes(waiting.mean()),
            text::bytes(read)
        ))
        .costs(Cost::DelaySeconds(wait))
        .evidence(
            Evidence::number("time until bytes are read, at least", wait, Unit::Seconds)
                .against_scale(WAIT.of(period))
                .with_text("bytes in receive queues / bytes read per second, all ports"),
        )
        .evidence(Evidence::number("bytes in receive queues", waiting.mean(), Unit::Bytes))
        .evidence(Evidence::number("bytes read per second, all ports", read, Unit::Bytes));
    Some(common(period, group, draft))
}

/// Adds subject, evidence and advice of both kinds of findings.
fn common(period: &Period, group: &str, draft: Draft) -> Draft {
    let utilization = view::activity(period, kind::SCHEDULER).ok().map(|activity| activity.mean());
    let is_busy = utilization.is_some_and(|utilization| utilization >= BUSY_UTILIZATION);
    let owner = limits::frequent_kind(period, "port").filter(|maker| maker.kind == "tcp_inet");
    let product = products::name(period);
    let draft = draft
        .signals(is_busy.then_some(Signal::ShortOfCpu))
        .about(Subject::Socket { address: group.to_owned() })
        .because_some(
            utilization
                .map(|utilization| Evidence::number("scheduler utilization", utilization, Unit::Ratio)),
        )
        .because_some(owner.map(|owner| owner.evidence))
        .counter_evidence("a program may delay a peer on purpose: a rate limit, or flow control for a slow backend")
        .but_if(
            product == Some("RabbitMQ"),
            "RabbitMQ does not read from publishers in flow control or blocked: rabbitmqctl list_connections name state",
        )
        .but_if(is_busy, "the schedulers have no time left, which delays reading");
    let prove = "ss -tn: Recv-Q of these connections is 0 in most samples, under the same load";
    draft
        .fix_if(product == Some("ejabberd"), || {
            remedy::of(
                period,
                "ejabberd.shaper",
                "in ejabberd.yml, raise the rate in shaper above what these clients send, or use another shaper in shaper_rules (c2s_shaper, \
                 s2s_shaper)",
                "above its rate ejabberd pauses reading from the connection; check this first",
                prove,
            )
        })
        .fix_if(!is_busy && product != Some("ejabberd") && !products::is_of_others(period), || {
            remedy::of(
                period,
                "code.read_sockets",
                "call inet:setopts(Socket, [{active, once}]) after each message (or {active, N} on tcp_passive), or loop on gen_tcp:recv/2, \
                 in a process that does nothing slow between reads",
                "its owner sleeps, waits for another process, or has not asked for more",
                prove,
            )
        })
}
