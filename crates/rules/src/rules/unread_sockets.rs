//! BT079: bytes that have come stay in the kernel's receive queues, since the VM does not read these connections.
//!
//! By Little's law the bytes that wait, divided by the bytes that are read in a second, are the time that each of them waits. A connection
//! that transfers much has a full queue, too, and is read in milliseconds.

use beamtune_model::units::SECOND_NS;
use beamtune_model::{
    Account, Code, Confidence, Cost, Evidence, Group, Missing, Period, Scale, Signal, Subject, Threshold,
    Unit, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::signals::{limits, products};
use crate::view::{self, kind};

pub const RULE: Rule = Rule {
    code: Code("BT079"),
    name: "unread-sockets",
    question: "Does the VM leave connections unread?",
    confirm: "ss -tn: Recv-Q of these connections stays above 0 while the schedulers idle",
    needs: &[&metrics::TCP_LOOKED_AT],
    account: Account::Delay,
    confidence: Confidence::Inferred,
    judge,
    thresholds: &[WAIT],
    ..Rule::COMMON
};

/// How long bytes wait until they are read, in seconds.
const WAIT: Threshold = Threshold::new(
    "unread-sockets.wait_seconds",
    "seconds until what has come is read",
    Scale {
        notice: 1.0,
        warning: 4.0,
        critical: 600.0,
        source: "judgement: a process that is free reads within milliseconds, and peers give up after some seconds",
    },
);

/// Looks at a connection that say something.
const MIN_LOOKS: u32 = 5;

/// Fewer bytes that wait, on average, are nothing to speak of (judgement: a message or two).
const MIN_WAITING_BYTES: f64 = 1_000.0;

/// Where less is read, what waits may be of other connections than what is read (judgement).
const MIN_READ_BYTES_PER_S: f64 = 500.0;

/// From this share of time in which they work, schedulers have no time left to read (judgement).
const BUSY: f64 = 0.85;

/// A connection that had unread bytes in each look, to the end.
struct Stuck<'p> {
    /// The listening socket or the peer.
    group: &'p str,
    /// The other end.
    end: &'p str,
    mean_bytes: f64,
    /// Since it was first seen so.
    seconds: f64,
    /// `None` where nothing was read.
    wait_seconds: Option<f64>,
}

impl<'p> Stuck<'p> {
    fn of(period: &'p Period, entity: &'p str, last_look: i64) -> Option<Self> {
        let (group, end) = entity.split_once(',')?;
        let bytes = period.stat(&metrics::TCP_UNREAD_BYTES, entity).ok()?;
        if bytes.samples < MIN_LOOKS || bytes.last.t < last_look {
            return None;
        }
        let seconds = bytes.last.t.saturating_sub(bytes.first.t) as f64 / SECOND_NS as f64;
        let read_bytes = match period.stat(&metrics::TCP_RECEIVED, entity) {
            Ok(received) => received.delta.saturating_sub(bytes.last.value.saturating_sub(bytes.first.value)),
            // Where it is not known what has come, a queue that stays the same is read by nobody.
            Err(_) if bytes.min == bytes.max => 0,
            Err(_) => return None,
        };
        let wait_seconds = (read_bytes > 0).then(|| bytes.mean() * seconds / read_bytes as f64);
        Some(Stuck { group, end, mean_bytes: bytes.mean(), seconds, wait_seconds })
    }

    /// At least so long bytes wait.
    fn least_seconds(&self) -> f64 {
        self.wait_seconds.unwrap_or(self.seconds)
    }
}

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let looked_at = period.stat(&metrics::TCP_LOOKED_AT, "")?;
    if looked_at.samples < MIN_LOOKS {
        return Ok(Judgement::NotJudged {
            reason: format!("connections were looked at {} times only", looked_at.samples),
            next: "record for longer: --for 10s".to_owned(),
        });
    }
    let entities = period.entities(Group::HostTcp);
    let stuck: Vec<Stuck<'_>> =
        entities.iter().filter_map(|entity| Stuck::of(period, entity, looked_at.last.t)).collect();
    let mut groups: Vec<&str> = stuck.iter().map(|connection| connection.group).collect();
    groups.sort_unstable();
    groups.dedup();
    let of = |group| stuck.iter().filter(|connection| connection.group == group).collect();
    let slow = entities.iter().filter(|entity| !groups.contains(entity));
    let slow: Vec<Draft> = slow.filter_map(|group| describe_slow(period, group)).collect();
    let stuck = groups.into_iter().filter_map(|group| describe(period, group, of(group)));
    let drafts: Vec<Draft> = stuck.chain(slow).collect();
    Ok(Judgement::found_or_healthy(
        drafts,
        format!("of {:.0} connections that were looked at, none waits long to be read", looked_at.mean()),
    ))
}

fn describe(period: &Period, group: &str, mut stuck: Vec<&Stuck<'_>>) -> Option<Draft> {
    stuck.sort_by(|a, b| a.least_seconds().total_cmp(&b.least_seconds()));
    let middle = stuck.get(stuck.len() / 2)?;
    let wait = middle.least_seconds();
    let severity = WAIT.of(period).severity(wait)?;
    let unread = period.stat(&metrics::TCP_UNREAD, group).ok().map(|stat| stat.last.value);
    let count = unread.unwrap_or(0).max(stuck.len() as i64);
    let all = period.stat(&metrics::TCP_CONNECTIONS, group).ok().map(|stat| stat.last.value.max(count));
    let of = all.map_or(String::new(), |all| format!(" of {all}"));
    let connections = if count == 1 && all.is_none() { "connection" } else { "connections" };
    let how_long = match middle.wait_seconds {
        Some(_) => format!("received bytes wait {} to be read", view::duration_text(wait)),
        None => format!("nothing read for {}", view::duration_text(wait)),
    };
    let draft = Draft::new(severity, format!("{group}: {count}{of} {connections} unread, {how_long}"))
        .costs(Cost::DelaySeconds(wait))
        .because(
            Evidence::number("time until bytes are read", wait, Unit::Seconds)
                .against_scale(WAIT.of(period))
                .with_text(format!(
                    "median of {} connections that were followed; {}",
                    stuck.len(),
                    if middle.wait_seconds.is_some() {
                        "mean queue / bytes read per second"
                    } else {
                        "at least"
                    }
                )),
        )
        .because(
            Evidence::number("bytes in the receive queue of one", middle.mean_bytes, Unit::Bytes)
                .with_text(format!("on average, of the connection with {}", middle.end)),
        );
    Some(common(period, group, draft))
}

/// Connections whose bytes are read late, and yet all are read before long: by Little's law, from all bytes that wait and all that are read.
fn describe_slow(period: &Period, group: &str) -> Option<Draft> {
    let waiting = period.stat(&metrics::TCP_WAITING, group).ok()?;
    let read = period.rate(&metrics::IO_INPUT, "").ok()?;
    if waiting.samples < MIN_LOOKS || waiting.mean() < MIN_WAITING_BYTES || read < MIN_READ_BYTES_PER_S {
        return None;
    }
    let wait = waiting.mean() / read;
    let severity = WAIT.of(period).severity(wait)?;
    let draft = Draft::new(
        severity,
        format!("{group}: received bytes wait {} to be read", view::duration_text(wait)),
    )
    .costs(Cost::DelaySeconds(wait))
    .because(
        Evidence::number("time until bytes are read, at least", wait, Unit::Seconds)
            .against_scale(WAIT.of(period))
            .with_text("bytes in receive queues / bytes read per second, of all ports"),
    )
    .because(Evidence::number("bytes in receive queues", waiting.mean(), Unit::Bytes))
    .because(Evidence::number("bytes read per second, through all ports", read, Unit::Bytes));
    Some(common(period, group, draft))
}

/// What is said of either kind.
fn common(period: &Period, group: &str, draft: Draft) -> Draft {
    let active = view::activity(period, kind::SCHEDULER).ok().map(|activity| activity.mean());
    let is_busy = active.is_some_and(|active| active >= BUSY);
    let owner = limits::maker(period, "port").filter(|maker| maker.kind == "tcp_inet");
    let product = products::name(period);
    let draft = draft
        .signals(is_busy.then_some(Signal::ShortOfCpu))
        .about(Subject::Socket { address: group.to_owned() })
        .because_some(active.map(|active| Evidence::number("schedulers active", active, Unit::Ratio)))
        .because_some(owner.map(|owner| owner.evidence))
        .but("a program may hold a peer back on purpose: a rate limit, or flow control for what comes behind it")
        .but_if(
            product == Some("RabbitMQ"),
            "RabbitMQ does not read from publishers that are in flow control or blocked: rabbitmqctl list_connections name state",
        )
        .but_if(is_busy, "the schedulers have no time left: reading waits for a CPU like all else");
    let prove = "ss -tn: Recv-Q of these connections is 0 nearly always, under the same load";
    draft
        .fix_if(product == Some("ejabberd"), || {
                remedy::of(
                    period,
                    "ejabberd.shaper",
                    "in ejabberd.yml a rate in shaper: above what these clients send, or another shaper in shaper_rules: (c2s_shaper, s2s_shaper)",
                    "above its rate ejabberd pauses reading from the connection; check this first",
                    prove,
                )
            })
            .fix_if(!is_busy && product != Some("ejabberd") && !products::is_of_others(period), || {
                remedy::of(
                    period,
                    "code.read_sockets",
                    "inet:setopts(Socket, [{active, once}]) after each message (or {active, N} on tcp_passive), or a loop around gen_tcp:recv/2, in a \
                     process that does nothing slow between two reads",
                    "the owner sleeps, waits for another process, or has not asked for more",
                    prove,
                )
            })
}
