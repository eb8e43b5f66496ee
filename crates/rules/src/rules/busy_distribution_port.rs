//! BT018: processes are suspended because a distribution connection is full.

use beamtune_model::{
    Account, Code, Cost, Evidence, Group, Missing, Nanos, Period, ProcessActivity, Scale, Signal, Subject,
    Threshold, Unit, facts, metrics, units::SECOND_NS,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::signals::events::{Culprit, Events, of_kind};
use crate::signals::stack;
use crate::text;

pub const RULE: Rule = Rule {
    code: Code("BT018"),
    name: "busy-distribution-port",
    question: "Are processes suspended because a distribution connection is full?",
    confirm: "run erlang:system_monitor(Pid, [busy_dist_port]) to see the suspended processes, and ss -tni: it tells a slow network from a slow peer",
    needs: &[&metrics::EVENT_COUNT],
    account: Account::Delay,
    judge,
    thresholds: &[RATE],
    ..Rule::COMMON
};

const RATE: Threshold = Threshold::new(
    "busy-distribution-port.suspended_per_s",
    "processes suspended in sends to other nodes, per second",
    Scale {
        notice: 0.2,
        warning: 5.0,
        critical: 100.0,
        source: "judgement: each is suspended until the other node has read what is buffered",
    },
);

/// Maximum buffer that is suggested, in kB. A larger one takes memory and adds delay.
const MAX_BUFFER_KB: i64 = 131_072;
/// A suggested buffer is at least this many times larger than the current one. RabbitMQ's default is 128,000 kB.
const MIN_BUFFER_FACTOR: i64 = 2;

/// Connections are sampled every ten seconds. A connection without a sample for longer than this is closed.
const SAMPLE_AGE: Nanos = 15 * SECOND_NS;

/// Minimum length of a stall. A shorter one may be a long GC of the other node, or a lost packet (judgement).
const MIN_STALL: Nanos = 5 * SECOND_NS;

/// Severity of a stalled connection: it blocks every process that sends over it.
const STALLED: f64 = 80.0;
/// Severity if a few samples have the same queue length. Data may have been sent meanwhile: equal messages may leave equal remainders.
const POSSIBLY_STALLED: f64 = 40.0;
/// In this many samples, equal queue lengths are no coincidence.
const MIN_SAMPLES: u32 = 4;
/// Severity of a process that is nearly always suspended although messages wait for it. It blocks its callers, however few events it
/// causes.
const ALWAYS_SUSPENDED: f64 = 50.0;
/// A process that is suspended most of the time runs in at most this share of the samples (judgement).
const MAX_RUNNING_SHARE: f64 = 0.1;
/// A process with at least this share of the suspensions is the one that fills the connection (judgement).
const MIN_SENDER_SHARE: f64 = 0.8;
/// Before data wait in the queue of a socket, the kernel has taken at least this many bytes (tcp(7): tcp_wmem).
const SOCKET_BYTES: i64 = 4096;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let drafts: Vec<Draft> = stalled_connections(period).collect();
    if !drafts.is_empty() {
        return Ok(Judgement::Found(drafts));
    }
    let events = of_kind(period, "busy_dist_port")?;
    let sender = events.culprit.as_ref().and_then(|culprit| always_suspended(period, culprit.subject));
    let by_sender = sender.map(|_| ALWAYS_SUSPENDED);
    if let Some(severity) =
        [RATE.of(period).severity(events.rate), by_sender].into_iter().flatten().reduce(f64::max)
    {
        return Ok(Judgement::found(suspensions(period, &events, severity, sender)));
    }
    // Without back-pressure no process is suspended, and the VM does not expose the length of the buffer.
    if period.facts.flag(facts::ASYNC_DIST) == Some(true) {
        return Ok(Judgement::NotJudged {
            reason:
                "senders are never suspended (+pad true), and the VM does not expose the distribution buffer"
                    .to_owned(),
            next: "watch erlang:memory(system); remove +pad, so that +zdbbl limits the buffer".to_owned(),
        });
    }
    Ok(Judgement::Healthy("no busy distribution port".to_owned()))
}

/// Finds connections whose socket queue did not change in the last samples: the other node reads nothing. Their senders are suspended once,
/// maybe before the recording began, so there may be no event. Another system monitor does not hide such a connection.
fn stalled_connections(period: &Period) -> impl Iterator<Item = Draft> {
    let rate = of_kind(period, "busy_dist_port").ok().map(|events| events.rate);
    period.entities(Group::Dist).into_iter().filter_map(move |node| {
        let stall = Stall::of(period, node, rate)?;
        Some(stalled(period, node, &stall, rate))
    })
}

/// A period in which a connection sent nothing.
struct Stall {
    /// Bytes in the socket queue.
    bytes: i64,
    length: Nanos,
    /// Samples with this queue length.
    samples: u32,
    /// Whether it is known that the socket took no bytes meanwhile.
    is_measured: bool,
}

impl Stall {
    /// `suspended_per_s` is the rate of the whole node.
    fn of(period: &Period, node: &str, suspended_per_s: Option<f64>) -> Option<Stall> {
        let queue = period.stat(&metrics::DIST_QUEUE, node).ok()?;
        let bytes = queue.last.value;
        let is_recent = queue.last.t >= period.end.saturating_sub(SAMPLE_AGE);
        // Older recordings contain the VM's output counter of the port, which does not include distribution data and is therefore below the
        // queue length.
        let min_output = bytes.saturating_add(SOCKET_BYTES);
        let output =
            period.stat(&metrics::DIST_OUTPUT, node).ok().filter(|output| output.last.value >= min_output);
        let since =
            output.map_or(queue.final_run_since, |output| queue.final_run_since.max(output.final_run_since));
        let samples = output.map_or(queue.final_run, |output| queue.final_run.min(output.final_run));
        let length = queue.last.t.saturating_sub(since);
        // If many processes are suspended all the time, some connection makes progress. Without an output counter, it may be this one.
        let may_move =
            output.is_none() && suspended_per_s.is_some_and(|rate| rate >= RATE.of(period).warning);
        (is_recent && bytes > 0 && length >= MIN_STALL && !may_move).then_some(Stall {
            bytes,
            length,
            samples,
            is_measured: output.is_some(),
        })
    }
}

/// Drafts a finding about a connection that stalled.
fn stalled(period: &Period, node: &str, stall: &Stall, rate: Option<f64>) -> Draft {
    let Stall { bytes, samples, .. } = *stall;
    let seconds = stall.length as f64 / SECOND_NS as f64;
    let is_certain = stall.is_measured || samples >= MIN_SAMPLES;
    let suspended = period
        .processes
        .iter()
        .filter(|process| process.row.as_ref().is_some_and(|row| row.status.as_deref() == Some("suspended")))
        .max_by_key(|process| process.queue_max);
    let (severity, title) = match is_certain {
        true => (STALLED, format!("Distribution connection to {node} stalled for {seconds:.0} s")),
        false => (POSSIBLY_STALLED, format!("Connection to {node} possibly stalled for {seconds:.0} s")),
    };
    Draft::new(severity, title)
        .detail(format!(
            "{} bytes in its socket queue, unchanged in {samples} samples",
            text::number(bytes as f64)
        ))
        .about(Subject::Node { name: node.to_owned() })
        .costs(Cost::DelaySeconds(seconds))
        .evidence(
            Evidence::number("socket queue", bytes as f64, Unit::Bytes)
                .with_text("up to +zdbbl more in the distribution buffer, which the VM does not expose"),
        )
        .evidence(Evidence::number("samples with this queue length", f64::from(samples), Unit::Count))
        .because_some(limit(period))
        .because_some(rate.map(|rate| Evidence::number("processes suspended", rate, Unit::PerSecond)))
        .because_some(suspended.map(|process| {
            Evidence::number("queue length of a suspended process", process.queue_max as f64, Unit::Count)
                .with_text(process.title())
        }))
        .but_if(
            !is_certain,
            "a connection that makes progress may leave equal remainders: record for longer (--for 40s)",
        )
        .counter_evidence("the other node may be paused (VM snapshot, debugger); the connection closes after net_ticktime")
        .remedy(remedy::of(
            period,
            "kernel.net_ticktime",
            "check the other node (frozen? out of CPU or memory?) and the network; erlang:disconnect_node/1 \
             releases the senders immediately; a shorter net_ticktime releases them earlier next time",
            "senders wait until the connection is given up, by default after 45 to 75 s; a larger buffer only delays that",
            "the bytes in the queue change, and fall to 0",
        ))
}

/// Returns the process if it was suspended when sampled, and hardly ever runs although messages wait for it.
fn always_suspended<'a>(period: &'a Period, subject: &str) -> Option<&'a ProcessActivity> {
    let process = period.process(Subject::process(subject).pid()?)?;
    let is_suspended = process.row.as_ref().is_some_and(|row| row.status.as_deref() == Some("suspended"));
    let hardly_runs = stack::runnable_share(process).is_some_and(|share| share <= MAX_RUNNING_SHARE);
    (is_suspended && hardly_runs && process.queue_max > 0).then_some(process)
}

/// Drafts a finding about processes that are suspended repeatedly.
fn suspensions(
    period: &Period,
    events: &Events<'_>,
    severity: f64,
    always_suspended: Option<&ProcessActivity>,
) -> Draft {
    let fullest = period
        .entities(Group::Dist)
        .into_iter()
        .filter_map(|node| Some((period.stat(&metrics::DIST_QUEUE, node).ok()?.max, node)))
        .max();
    let larger_kb = period
        .fact_number(facts::DIST_BUF_BUSY_LIMIT)
        .ok()
        .map(|bytes| bytes / 1024)
        .map(|kilobytes| (kilobytes, kilobytes.max(1_024).saturating_mul(8).min(MAX_BUFFER_KB)))
        .filter(|(now, larger)| *larger >= now.saturating_mul(MIN_BUFFER_FACTOR))
        .map(|(_, larger)| larger);
    // A process with most of the suspensions sends more at once than the connection takes.
    let sender = events
        .culprit
        .as_ref()
        .filter(|culprit| culprit.count as f64 >= MIN_SENDER_SHARE * culprit.of as f64);
    let sent = fullest.and_then(|(_, node)| period.rate(&metrics::DIST_OUTPUT, node).ok());
    let received = fullest.and_then(|(_, node)| period.rate(&metrics::DIST_INPUT, node).ok());
    let rate = text::rate(events.rate);
    let (title, pid) = match (always_suspended, &sender) {
        (Some(process), _) => {
            let subject = process.subject();
            let title = format!("{} nearly always suspended: busy distribution port", text::name(&subject));
            (title, text::pid(&subject).to_owned())
        }
        (None, Some(Culprit { subject, .. })) => {
            let subject = Subject::process(subject);
            let title = format!("{} suspended {rate}/s: busy distribution port", text::name(&subject));
            (title, text::pid(&subject).to_owned())
        }
        (None, None) => (format!("Processes suspended {rate}/s: busy distribution port"), String::new()),
    };
    let draft = Draft::new(severity, title)
        .detail(pid)
        .detail(fullest.map_or_else(String::new, |(_, node)| format!("sends to {node}")))
        .detail(
            sent.map_or_else(String::new, |sent| format!("{} kB/s sent", text::number((sent / 1e3).round()))),
        )
        .costs(always_suspended.map(|process| Cost::Waiting(process.queue_max as f64)))
        .signals(fullest.map(|(_, node)| Signal::WaitsFor(Subject::Node { name: node.to_owned() })))
        .evidence(
            Evidence::number("processes suspended", events.rate, Unit::PerSecond)
                .against_scale(RATE.of(period)),
        )
        .because_some(fullest.map(|(bytes, node)| {
            Evidence::number("longest socket queue", bytes as f64, Unit::Bytes)
                .with_text(format!("to {node}; up to +zdbbl more in the distribution buffer"))
        }))
        .because_some(limit(period))
        .because_some(
            sent.map(|rate| Evidence::number("bytes sent to that node per second", rate, Unit::Bytes)),
        )
        .because_some(
            received.map(|rate| Evidence::number("bytes received from it per second", rate, Unit::Bytes)),
        );
    let (change, why) = match &sender {
        Some(_) => (
            "send only changes instead of the whole state, or send parts with pauses, or only what the other node requests",
            "it fills the connection faster than the other node reads, and every sender to that node waits with it",
        ),
        None => (
            "send less at once to other nodes: smaller messages, or only what is asked for; where a process must not \
             be suspended, erlang:send/3 with nosuspend, and drop or keep the message",
            "one connection carries everything between two nodes, and large messages delay small ones",
        ),
    };
    let prove = "busy_dist_port events, and p99 of calls between the nodes";
    events.name_culprit(draft).remedy(remedy::of(period, "code.back_pressure", change, why, prove)).fix_if(
        larger_kb.is_some() && always_suspended.is_none(),
        || {
            let kilobytes = larger_kb.unwrap_or_default();
            remedy::of(
                period,
                "+zdbbl",
                &format!("+zdbbl {kilobytes} ({} MB per connection), for bursts", kilobytes / 1024),
                "senders are suspended later; the buffer also fills up if the other node always reads less than is sent",
                "busy_dist_port events and memory under the same load, on both nodes",
            )
        },
    )
}

/// The limit of the distribution buffer.
fn limit(period: &Period) -> Option<Evidence> {
    let bytes = period.fact_number(facts::DIST_BUF_BUSY_LIMIT).ok()?;
    Some(Evidence::number("limit (+zdbbl)", bytes as f64, Unit::Bytes))
}
