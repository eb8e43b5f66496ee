//! The memory watermark of RabbitMQ, from which it blocks all publishers, and the alarm that says that it does.

use beamtune_model::{Evidence, Period, Remedy, Unit, facts, metrics};

use crate::memory::megabytes;
use crate::remedy;
use crate::rule::Draft;

/// The score of publishers that are blocked: critical.
const BLOCKS: f64 = 80.0;

/// The watermark that RabbitMQ has told.
pub fn told(period: &Period) -> Option<f64> {
    period.facts.number(facts::MEMORY_WATERMARK_BYTES).map(|bytes| bytes as f64).filter(|bytes| *bytes > 0.0)
}

/// RabbitMQ that says itself that it blocks its publishers.
pub fn alarm(period: &Period, who: Option<Evidence>) -> Option<Draft> {
    let nodes = period.facts.number(facts::MEMORY_ALARMS).filter(|nodes| *nodes > 0)?;
    let on = if nodes == 1 { "a node".to_owned() } else { format!("{nodes} nodes") };
    let draft = Draft::new(
        BLOCKS,
        format!("RabbitMQ blocks all publishers: the memory alarm is in effect on {on} of its cluster"),
    )
    .about("memory watermark")
    .because(Evidence::number("nodes with a memory alarm", nodes as f64, Unit::Count));
    let size = |name, bytes| Evidence::number(name, bytes, Unit::Bytes);
    let resident = period.stat(&metrics::RSS, "").ok().map(|stat| stat.max as f64);
    Some(
        draft
            .because_some(resident.map(|bytes| size("resident at most", bytes)))
            .because_some(told(period).map(|bytes| size("watermark", bytes)))
            .because_some(who)
            .fix(raise(period)),
    )
}

/// What is resident, and where the watermark is.
pub fn sizes(resident: f64, watermark: f64) -> String {
    format!("{} are resident, and its memory watermark is at {}", megabytes(resident), megabytes(watermark))
}

/// RabbitMQ that is near the watermark that it has told.
pub fn near(period: &Period, resident: f64, watermark: f64, who: Option<Evidence>) -> Option<Draft> {
    let (score, said) = taken(resident / watermark)?;
    let draft = Draft::new(score, format!("{said}: {}", sizes(resident, watermark)))
        .about("memory watermark")
        .because(
            Evidence::number("resident at most", resident, Unit::Bytes)
                .against(watermark, "told by RabbitMQ"),
        )
        .because_some(who)
        .fix(raise(period));
    Some(draft)
}

/// How near RabbitMQ is to blocking its publishers, by the share of the watermark that is taken: a score, and words for it.
pub fn taken(used: f64) -> Option<(f64, &'static str)> {
    match used {
        used if used >= 1.0 => Some((BLOCKS, "RabbitMQ blocks all publishers")),
        used if used >= 0.85 => Some((30.0, "RabbitMQ is about to block all publishers")),
        _ => None,
    }
}

/// What to do.
pub fn raise(period: &Period) -> Option<Remedy> {
    remedy::of(
        period,
        "rabbitmq.memory_watermark",
        "consumers that keep up, shorter queues (length limits), or quorum queues and streams, which keep messages on disk; then the watermark itself",
        "publishers wait until memory is below the watermark again",
        "rabbitmq-diagnostics alarms must be empty under the same load",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alarm_counts_whatever_memory_is_resident() {
        let mut period = Period::default();
        assert!(alarm(&period, None).is_none());
        period.facts.set(facts::MEMORY_ALARMS, "0");
        assert!(alarm(&period, None).is_none());
        period.facts.set(facts::MEMORY_ALARMS, "1");
        assert!(alarm(&period, None).is_some());
    }
}
