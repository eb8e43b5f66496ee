//! BT018: processes stand still because the channel to another node is full.

use beamtune_model::{
    Account, Code, Cost, Evidence, Group, Missing, Nanos, Period, ProcessUse, Scale, Signal, Subject,
    Threshold, Unit, facts, metrics, units::SECOND_NS,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::signals::events::{Culprit, Told, told};
use crate::signals::stack;

pub const RULE: Rule = Rule {
    code: Code("BT018"),
    name: "busy-distribution-port",
    question: "Do processes wait because the channel to another node is full?",
    confirm: "erlang:system_monitor(Pid, [busy_dist_port]) names who waits; ss -tni on the connection tells a slow network from a slow peer",
    needs: &[&metrics::EVENT_COUNT],
    account: Account::Delay,
    judge,
    thresholds: &[RATE],
    ..Rule::COMMON
};

/// Processes that were suspended, a second.
const RATE: Threshold = Threshold::new(
    "busy-distribution-port.suspended_per_s",
    "processes suspended in sends to other nodes, a second",
    Scale {
        notice: 0.2,
        warning: 5.0,
        critical: 100.0,
        source: "judgement: each one stands still until the other node has taken what waits",
    },
);

/// A larger buffer is not advised, in kB: what waits in it is memory, and delay …
const LARGE_KB: i64 = 131_072;
/// … nor one that is not so many times larger than what it is: RabbitMQ has 128,000 kB by default.
const WORTH_TIMES: i64 = 2;

/// Channels are looked at every ten seconds: one that was not seen for longer is gone.
const LOOK: Nanos = 15 * SECOND_NS;

/// What moves again sooner was a long collection of the other node, or a lost packet (judgement).
const LONG: Nanos = 5 * SECOND_NS;

/// A channel on which nothing moves holds up everybody who uses it.
const STANDS: f64 = 80.0;
/// One whose queue was the same in a few looks, and nobody knows what has been handed to it meanwhile: equal messages may leave
/// equal rests.
const SEEMS_TO_STAND: f64 = 40.0;
/// In so many looks they do not.
const LOOKS: u32 = 4;
/// One that is suspended nearly all the time while messages wait for it holds up all who want something of it, however seldom it is told.
const STANDS_IN_SENDS: f64 = 50.0;
/// Who is suspended most of the time runs in no more than this share of the looks (judgement).
const HARDLY_RUNS: f64 = 0.1;
/// One process sends what fills the channel if so much of the suspensions are its own (judgement).
const MOST_OF_IT: f64 = 0.8;
/// Before anything waits in the queue of a socket, the kernel has taken as much and more of it (tcp(7): tcp_wmem).
const SOCKET_BYTES: i64 = 4096;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let drafts: Vec<Draft> = standing(period).collect();
    if !drafts.is_empty() {
        return Ok(Judgement::Found(drafts));
    }
    let told = told(period, "busy_dist_port")?;
    let stands = told.culprit.as_ref().and_then(|culprit| stands_in_sends(period, culprit.subject));
    let by_sender = stands.map(|_| STANDS_IN_SENDS);
    if let Some(severity) =
        [RATE.of(period).severity(told.rate), by_sender].into_iter().flatten().reduce(f64::max)
    {
        return Ok(Judgement::found(bursts(period, &told, severity, stands)));
    }
    // Without back-pressure nobody is suspended, and the VM tells nobody how much waits.
    if period.facts.flag(facts::ASYNC_DIST) == Some(true) {
        return Ok(Judgement::NotJudged {
            reason: "senders are never suspended here (+pad true), and what waits for a node is not told by the VM".to_owned(),
            next: "watch memory.system, and leave +pad out to have it bounded by +zdbbl".to_owned(),
        });
    }
    Ok(Judgement::Healthy("no process had to wait for a channel to another node".to_owned()))
}

/// Channels whose socket has held the same in the last looks: the other node takes nothing. Its senders are suspended once, maybe
/// before the recording began, so no events need tell of it; nor does somebody else's system_monitor hide it.
fn standing(period: &Period) -> impl Iterator<Item = Draft> {
    let rate = told(period, "busy_dist_port").ok().map(|told| told.rate);
    period.entities(Group::Dist).into_iter().filter_map(move |node| {
        let standstill = Standstill::of(period, node, rate)?;
        Some(stands(period, node, &standstill, rate))
    })
}

/// A channel that has not moved.
struct Standstill {
    /// What waits in its socket's queue.
    bytes: i64,
    length: Nanos,
    /// In how many looks it was so.
    looks: u32,
    /// It is known that nothing was handed to the socket meanwhile.
    is_sure: bool,
}

impl Standstill {
    /// `suspended` is how many processes were, per second.
    fn of(period: &Period, node: &str, suspended: Option<f64>) -> Option<Standstill> {
        let queue = period.stat(&metrics::DIST_QUEUE, node).ok()?;
        let bytes = queue.last.value;
        let there = queue.last.t >= period.end.saturating_sub(LOOK);
        // Older recordings hold what the VM counts as the port's output, which leaves the distribution's out; less than what
        // waits is known to be of this kind.
        let least = bytes.saturating_add(SOCKET_BYTES);
        let output =
            period.stat(&metrics::DIST_OUTPUT, node).ok().filter(|output| output.last.value >= least);
        let since = output.map_or(queue.held_since, |output| queue.held_since.max(output.held_since));
        let looks = output.map_or(queue.held, |output| queue.held.min(output.held));
        let length = queue.last.t.saturating_sub(since);
        // Where many are suspended all the time, some channel moves; if it cannot be told which, none is blamed.
        let may_move = output.is_none() && suspended.is_some_and(|rate| rate >= RATE.of(period).warning);
        (there && bytes > 0 && length >= LONG && !may_move).then_some(Standstill {
            bytes,
            length,
            looks,
            is_sure: output.is_some(),
        })
    }
}

fn stands(period: &Period, node: &str, standstill: &Standstill, rate: Option<f64>) -> Draft {
    let Standstill { bytes, looks, .. } = *standstill;
    let seconds = standstill.length as f64 / SECOND_NS as f64;
    let is_certain = standstill.is_sure || looks >= LOOKS;
    let suspended = period
        .processes
        .iter()
        .filter(|process| process.row.as_ref().is_some_and(|row| row.status.as_deref() == Some("suspended")))
        .max_by_key(|process| process.queue_max);
    let (severity, verb) = if is_certain { (STANDS, "stands") } else { (SEEMS_TO_STAND, "seems to stand") };
    Draft::new(
        severity,
        format!("the channel to {node} {verb} still: for {seconds:.0} s that node has taken nothing"),
    )
    .about(Subject::Node { name: node.to_owned() })
    .costs(Cost::DelaySeconds(seconds))
    .because(
        Evidence::number("bytes in its socket's queue, all that time", bytes as f64, Unit::Bytes)
            .with_text("up to +zdbbl more wait before it, which the VM tells nobody"),
    )
    .because(Evidence::number("looks in which they were the same", f64::from(looks), Unit::Count))
    .because_some(limit(period))
    .because_some(rate.map(|rate| Evidence::number("processes suspended", rate, Unit::PerSecond)))
    .because_some(suspended.map(|process| {
        Evidence::number("messages wait for a process that is suspended", process.queue_max as f64, Unit::Count)
            .with_text(process.title())
    }))
    .but_if(
        !is_certain,
        "equal messages may leave equal rests in a channel that moves: record for longer (--for 40s) to be sure",
    )
    .but(
        "the other node may be stopped for a moment (a snapshot of its machine, a debugger); it is given up \
         when it is silent for net_ticktime",
    )
    .fix(remedy::of(
        period,
        "kernel.net_ticktime",
        "look at the other node (frozen? out of CPU or memory?) and at the network; erlang:disconnect_node/1 \
         gives it up at once, a shorter net_ticktime sooner the next time",
        "senders stand still until the connection is given up, by default after 45 to 75 s; a larger buffer \
         only delays that",
        "the bytes in the queue must change, and fall to 0",
    ))
}

/// A process that was suspended, if it hardly ever runs although messages wait for it.
fn stands_in_sends<'a>(period: &'a Period, subject: &str) -> Option<&'a ProcessUse> {
    let process = period.process(Subject::process(subject).pid()?)?;
    let is_suspended = process.row.as_ref().is_some_and(|row| row.status.as_deref() == Some("suspended"));
    let hardly_runs = stack::wanted_to_run(process).is_some_and(|share| share <= HARDLY_RUNS);
    (is_suspended && hardly_runs && process.queue_max > 0).then_some(process)
}

/// Processes that are suspended again and again.
fn bursts(period: &Period, told: &Told<'_>, severity: f64, stands: Option<&ProcessUse>) -> Draft {
    let fullest = period
        .entities(Group::Dist)
        .into_iter()
        .filter_map(|node| Some((period.stat(&metrics::DIST_QUEUE, node).ok()?.max, node)))
        .max();
    let larger = period
        .fact_number(facts::DIST_BUF_BUSY_LIMIT)
        .ok()
        .map(|bytes| bytes / 1024)
        .map(|kilobytes| (kilobytes, kilobytes.max(1_024).saturating_mul(8).min(LARGE_KB)))
        .filter(|(now, larger)| *larger >= now.saturating_mul(WORTH_TIMES))
        .map(|(_, larger)| larger);
    // One that sends most of it sends more at a time than the channel takes.
    let sender =
        told.culprit.as_ref().filter(|culprit| culprit.count as f64 >= MOST_OF_IT * culprit.of as f64);
    let sent = fullest.and_then(|(_, node)| period.rate(&metrics::DIST_OUTPUT, node).ok());
    let received = fullest.and_then(|(_, node)| period.rate(&metrics::DIST_INPUT, node).ok());
    let draft = Draft::new(
        severity,
        match (stands, &sender, &fullest) {
            (Some(process), _, Some((_, node))) => format!(
                "{} is suspended in sends to {node} nearly all the time (busy distribution port)",
                process.title()
            ),
            (None, Some(Culprit { subject, .. }), Some((_, node))) => format!(
                "{subject} sends more to {node} at a time than the channel takes: suspended {:.1} times a second (busy distribution port)",
                told.rate
            ),
            _ => format!(
                "{:.1} times a second a process had to wait because the channel to another node was full",
                told.rate
            ),
        },
    )
    .costs(stands.map(|process| Cost::Waiting(process.queue_max as f64)))
    .signals(fullest.map(|(_, node)| Signal::WaitsFor(Subject::Node { name: node.to_owned() })))
    .because(Evidence::number("processes suspended", told.rate, Unit::PerSecond).against_scale(RATE.of(period)))
    .because_some(fullest.map(|(bytes, node)| {
        Evidence::number("most that was seen in a socket's queue", bytes as f64, Unit::Bytes)
            .with_text(format!("for {node}; up to +zdbbl more wait before it"))
    }))
    .because_some(limit(period))
    .because_some(sent.map(|rate| Evidence::number("bytes sent to that node in a second", rate, Unit::Bytes)))
    .because_some(received.map(|rate| Evidence::number("bytes received from it in a second", rate, Unit::Bytes)));
    let (change, why) = match &sender {
        Some(_) => (
            "send what has changed, not the whole state, or in parts with a pause, or only what the other node asks for",
            "it fills the channel faster than the other node reads, and all others that send to that node wait with it",
        ),
        None => (
            "send less at a time to other nodes: smaller messages, parts, or only what is asked for; where a process must not stand still, \
             erlang:send/3 with nosuspend, which returns at once when the channel is full, and drop or keep the message",
            "one channel carries everything between two nodes, and large messages hold up the small ones",
        ),
    };
    let prove = "busy_dist_port events, and p99 of calls between the nodes";
    told.blame(draft).fix(remedy::of(period, "code.back_pressure", change, why, prove)).fix_if(
        larger.is_some() && stands.is_none(),
        || {
            let kilobytes = larger.unwrap_or_default();
            remedy::of(
                period,
                "+zdbbl",
                &format!("+zdbbl {kilobytes} ({} MB for each channel), if it comes in bursts that have to be", kilobytes / 1024),
                "so much may wait before senders are suspended; where more is sent all the time than the other node reads, it fills up as well",
                "busy_dist_port events and memory under the same load, on both nodes",
            )
        },
    )
}

fn limit(period: &Period) -> Option<Evidence> {
    let bytes = period.fact_number(facts::DIST_BUF_BUSY_LIMIT).ok()?;
    Some(Evidence::number("limit (+zdbbl)", bytes as f64, Unit::Bytes))
}
