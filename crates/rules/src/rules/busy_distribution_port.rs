//! BT018: processes stand still because the channel to another node is full.

use beamtune_model::{Code, Evidence, Group, Missing, Period, Scale, Unit, facts, metrics};

use crate::events::told;
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

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let told = told(period, "busy_dist_port")?;
    let Some(score) = RATE.score(told.rate) else {
        return Ok(Judgement::Healthy("no process had to wait for a channel to another node".to_owned()));
    };
    let fullest = period
        .entities(Group::Dist)
        .into_iter()
        .filter_map(|node| Some((period.stat(&metrics::DIST_QUEUE, node).ok()?.max, node)))
        .max();
    let limit = period.fact_number(facts::DIST_BUF_BUSY_LIMIT).ok();
    let draft = Draft::new(
        score,
        format!("{:.1} times a second a process had to wait because the channel to another node was full", told.rate),
    )
    .because(Evidence::number("processes suspended", told.rate, Unit::PerSecond).against(RATE.warning, RATE.source))
    .because_some(fullest.map(|(bytes, node)| {
        Evidence::number("most that was seen waiting", bytes as f64, Unit::Bytes).with_text(format!("for {node}"))
    }))
    .because_some(limit.map(|bytes| Evidence::number("limit (+zdbbl)", bytes as f64, Unit::Bytes)))
    .but("a larger buffer helps against bursts only: where the network or the other node is slower for good, it fills up as well");
    let larger =
        limit.filter(|bytes| *bytes < LARGE_BYTES).map(|bytes| (bytes.max(1 << 20) / 1024 * 8).min(131_072));
    Ok(Judgement::found(
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
            )),
    ))
}
