//! BT018: processes stand still because the channel to another node is full.

use beamtune_model::{
    Code, Evidence, Group, Missing, Nanos, Period, Scale, Unit, facts, metrics, units::SECOND_NS,
};

use crate::events::{Told, told};
use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};

pub const RULE: Rule = Rule {
    code: Code("BT018"),
    name: "busy-distribution-port",
    question: "Do processes wait because the channel to another node is full?",
    needs: &[&metrics::EVENT_COUNT],
    since: 21,
    judge,
};

/// Processes that were suspended, a second.
const RATE: Scale = Scale {
    notice: 0.2,
    warning: 5.0,
    critical: 100.0,
    source: "judgement: each one stands still until the other node has taken what waits",
};

/// What the buffer may be at most to be raised further: what waits in it is memory, and delay.
const LARGE_BYTES: i64 = 128 << 20;

/// Channels are looked at every ten seconds: one that was not seen for longer is gone.
const LOOK: Nanos = 15 * SECOND_NS;

/// A channel on which nothing moves holds up everybody who uses it.
const STANDS: f64 = 80.0;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let drafts: Vec<Draft> = standing(period).collect();
    if !drafts.is_empty() {
        return Ok(Judgement::Found(drafts));
    }
    let told = told(period, "busy_dist_port")?;
    if let Some(score) = RATE.score(told.rate) {
        return Ok(Judgement::found(bursts(period, &told, score)));
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
/// before the recording began, so no events need tell of it; nor does somebody else's system_monitor hide it. Where many are
/// suspended all the time the channel moves, and equal messages may leave equal rests.
fn standing(period: &Period) -> impl Iterator<Item = Draft> {
    let told = told(period, "busy_dist_port").ok();
    let moves = told.as_ref().is_some_and(|told| told.rate >= RATE.warning);
    let nodes = if moves { Vec::new() } else { period.entities(Group::Dist) };
    let rate = told.map(|told| told.rate);
    nodes.into_iter().filter_map(move |node| {
        let queue = period.stat(&metrics::DIST_QUEUE, node).ok()?;
        let (bytes, now) = (queue.last.value, queue.last.t);
        let since = queue.trace.points().iter().rev().take_while(|point| point.1 == bytes).last()?.0;
        let there = now >= period.end.saturating_sub(LOOK);
        (there && bytes > 0 && since < now)
            .then(|| stands(period, node, bytes, now.saturating_sub(since) as f64 / SECOND_NS as f64, rate))
    })
}

fn stands(period: &Period, node: &str, bytes: i64, seconds: f64, rate: Option<f64>) -> Draft {
    let suspended = period
        .processes
        .iter()
        .filter(|process| process.row.as_ref().is_some_and(|row| row.status.as_deref() == Some("suspended")))
        .max_by_key(|process| process.queue_max);
    let summary =
        format!("the channel to {node} stands still: for {seconds:.0} s that node has taken nothing");
    Draft::new(STANDS, summary)
        .about(node)
        .because(
            Evidence::number("bytes in its socket's queue, all that time", bytes as f64, Unit::Bytes)
                .with_text("up to +zdbbl more wait before it, which the VM tells nobody"),
        )
        .because_some(limit(period))
        .because_some(rate.map(|rate| Evidence::number("processes suspended", rate, Unit::PerSecond)))
        .because_some(suspended.map(|process| {
            Evidence::number(
                "messages wait for a process that is suspended",
                process.queue_max as f64,
                Unit::Count,
            )
            .with_text(process.title())
        }))
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

/// Processes that are suspended again and again.
fn bursts(period: &Period, told: &Told<'_>, score: f64) -> Draft {
    let fullest = period
        .entities(Group::Dist)
        .into_iter()
        .filter_map(|node| Some((period.stat(&metrics::DIST_QUEUE, node).ok()?.max, node)))
        .max();
    let larger = period
        .fact_number(facts::DIST_BUF_BUSY_LIMIT)
        .ok()
        .filter(|bytes| *bytes < LARGE_BYTES)
        .map(|bytes| (bytes.max(1 << 20) / 1024 * 8).min(131_072));
    let draft = Draft::new(
        score,
        format!("{:.1} times a second a process had to wait because the channel to another node was full", told.rate),
    )
    .because(Evidence::number("processes suspended", told.rate, Unit::PerSecond).against(RATE.warning, RATE.source))
    .because_some(fullest.map(|(bytes, node)| {
        Evidence::number("most that was seen in a socket's queue", bytes as f64, Unit::Bytes)
            .with_text(format!("for {node}; up to +zdbbl more wait before it"))
    }))
    .because_some(limit(period))
    .but("a larger buffer helps against bursts only: where the network or the other node is slower for good, it fills up as well");
    told.blame(draft)
        .fix_if(larger.is_some(), || {
            let kilobytes = larger.unwrap_or_default();
            remedy::of(
                period,
                "+zdbbl",
                &format!("+zdbbl {kilobytes} ({} MB for each channel)", kilobytes / 1024),
                "so much may wait before senders are suspended",
                "busy_dist_port events and memory under the same load, on both nodes",
            )
        })
        .fix(remedy::of(
            period,
            "code.back_pressure",
            "send less at a time to other nodes: smaller messages, chunks, or only what is asked for",
            "one channel carries everything between two nodes, and large messages hold up the small ones",
            "busy_dist_port events, and p99 of calls between the nodes",
        ))
}

fn limit(period: &Period) -> Option<Evidence> {
    let bytes = period.fact_number(facts::DIST_BUF_BUSY_LIMIT).ok()?;
    Some(Evidence::number("limit (+zdbbl)", bytes as f64, Unit::Bytes))
}
