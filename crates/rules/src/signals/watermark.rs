//! RabbitMQ's memory watermark, above which it blocks all publishers, and the alarm that reports it.

use beamtune_model::{Evidence, Limit, Period, Remedy, Subject, Unit, facts, metrics};

use crate::remedy;
use crate::rule::Draft;
use crate::signals::memory::format_bytes;
use crate::signals::products;
use crate::text;

/// Severity of blocked publishers: critical.
const BLOCKS: f64 = 80.0;

/// The default watermark as a share of the memory that RabbitMQ sees: until 3.13, and since 4.0 (rabbitmq.com, "Memory Alarm Threshold", of
/// 3.13 and of 4.2).
const DEFAULTS: (f64, f64) = (0.4, 0.6);

/// The configured watermark.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Watermark {
    /// Relative: a share of the memory that RabbitMQ sees.
    Share(f64),
    /// Absolute.
    Bytes(f64),
}

/// Units of sizes in RabbitMQ's configuration, in bytes (its rabbit_resource_monitor_misc.erl).
const UNITS: &[(&[&str], f64)] = &[
    (&[""], 1.0),
    (&["k", "kib"], 1024.0),
    (&["m", "mib"], 1024.0 * 1024.0),
    (&["g", "gib"], 1024.0 * 1024.0 * 1024.0),
    (&["kb"], 1e3),
    (&["mb"], 1e6),
    (&["gb"], 1e9),
];

/// Parses a size as RabbitMQ does, in bytes.
pub fn size(text: &str) -> Option<f64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let (number, unit) = text.split_at(end + text.len() - digits.len());
    let unit = unit.to_ascii_lowercase();
    let (_, bytes) = UNITS.iter().find(|(names, _)| names.contains(&unit.as_str()))?;
    Some(number.parse::<f64>().ok()? * bytes)
}

impl Watermark {
    /// Parses [`facts::MEMORY_WATERMARK_SET`]: a relative watermark has a decimal point, an absolute one has none.
    pub fn parse(text: &str) -> Option<Watermark> {
        if text.contains('.') {
            text.parse().ok().map(Watermark::Share)
        } else {
            size(text).map(Watermark::Bytes)
        }
    }

    /// Returns the watermark in bytes, with this much memory. Some operators set 0 or less to block all publishers from the start.
    pub fn bytes(self, seen: f64) -> f64 {
        let bytes = match self {
            Watermark::Share(share) => share * seen,
            Watermark::Bytes(bytes) => bytes,
        };
        bytes.clamp(0.0, seen)
    }
}

/// Returns the watermark that RabbitMQ reports, in bytes.
pub fn reported(period: &Period) -> Option<f64> {
    let fact = period.facts.number(facts::MEMORY_WATERMARK_BYTES);
    let counted = || period.stat(&metrics::BROKER_MEMORY_LIMIT, "").ok().map(|stat| stat.last.value);
    fact.or_else(counted).map(|bytes| bytes as f64).filter(|bytes| *bytes > 0.0)
}

/// RabbitMQ's watermark, as assumed from its settings and the memory of the host. All sizes are in bytes.
pub struct AssumedWatermark {
    /// The watermark.
    pub bytes: f64,
    /// The memory that RabbitMQ sees.
    pub seen: f64,
    /// Whether it was set at start.
    pub is_set: bool,
    /// The watermark as a share of that memory, if it is relative.
    pub share: Option<f64>,
}

impl AssumedWatermark {
    /// Returns `None` if the node is not RabbitMQ, or the memory that it sees is unknown. RabbitMQ ignores control groups: in containers,
    /// that memory has to be configured (rabbitmq-server#10974).
    pub fn of(period: &Period) -> Option<AssumedWatermark> {
        let major: u32 = version(period)?.split('.').next()?.parse().ok()?;
        let configured = period.facts.get(facts::MEMORY_TOTAL_SET).and_then(size);
        let host = period.facts.number(facts::HOST_MEMORY).map(|bytes| bytes as f64);
        let seen = configured.or(host).filter(|bytes| *bytes > 0.0)?;
        let text = period.facts.get(facts::MEMORY_WATERMARK_SET);
        let set = text.and_then(Watermark::parse);
        // Every version replaces a value that it cannot parse with the old default (rabbit_memory.hrl).
        let default = Watermark::Share(if major >= 4 && text.is_none() { DEFAULTS.1 } else { DEFAULTS.0 });
        let mark = set.unwrap_or(default);
        let bytes = mark.bytes(seen);
        let share = matches!(mark, Watermark::Share(_)).then_some(bytes / seen);
        Some(AssumedWatermark { bytes, seen, is_set: set.is_some(), share })
    }

    /// Returns why the actual watermark may differ from the assumed one.
    pub fn but(&self) -> &'static str {
        match self.is_set {
            true => {
                "rabbitmqctl set_vm_memory_high_watermark may have changed it since, and vm_memory_calculation_strategy may count memory \
                 other than RSS: run rabbitmq-diagnostics status"
            }
            false => {
                "vm_memory_high_watermark may be set differently, and vm_memory_calculation_strategy may count memory other than RSS: \
                 run rabbitmq-diagnostics status"
            }
        }
    }
}

/// Returns RabbitMQ's version; `None` on other nodes.
pub fn version(period: &Period) -> Option<&str> {
    products::version(period, "RabbitMQ")
}

/// Drafts a finding if RabbitMQ reports a memory alarm; adds `evidence` to it.
pub fn alarm(period: &Period, evidence: Option<Evidence>) -> Option<Draft> {
    let counted = || period.stat(&metrics::BROKER_MEMORY_ALARM, "").ok().map(|stat| stat.last.value);
    let nodes = period.facts.number(facts::MEMORY_ALARMS).or_else(counted).filter(|nodes| *nodes > 0)?;
    let on = text::counted(nodes as f64, "node", "nodes");
    let draft = Draft::new(BLOCKS, format!("RabbitMQ blocks all publishers: memory alarm on {on}"))
        .about(Subject::limit(Limit::MemoryWatermark))
        .evidence(Evidence::number("nodes with a memory alarm", nodes as f64, Unit::Count));
    let size = |name, bytes| Evidence::number(name, bytes, Unit::Bytes);
    let resident = period.stat(&metrics::RSS, "").ok().map(|stat| stat.max as f64);
    let blocked = period.stat(&metrics::BROKER_BLOCKED, "").ok().map(|stat| stat.last.value as f64);
    Some(
        draft
            .because_some(resident.map(|bytes| size("maximum resident memory", bytes)))
            .because_some(reported(period).map(|bytes| size("watermark", bytes)))
            .because_some(blocked.map(|count| Evidence::number("blocked connections", count, Unit::Count)))
            .because_some(evidence)
            .remedy(raise(period)),
    )
}

/// Formats both sizes: `210 MB resident, watermark 200 MB`.
pub fn sizes(resident: f64, watermark: f64) -> String {
    format!("{} resident, watermark {}", format_bytes(resident), format_bytes(watermark))
}

/// Drafts a finding if RabbitMQ is at or near the watermark that it reports; adds `evidence` to it.
pub fn near(period: &Period, resident: f64, watermark: f64, evidence: Option<Evidence>) -> Option<Draft> {
    let (severity, title) = title(resident / watermark, "")?;
    let draft = Draft::new(severity, title)
        .detail(sizes(resident, watermark))
        .about(Subject::limit(Limit::MemoryWatermark))
        .evidence(
            Evidence::number("maximum resident memory", resident, Unit::Bytes)
                .against(watermark, "reported by RabbitMQ"),
        )
        .because_some(evidence)
        .remedy(raise(period));
    Some(draft)
}

/// Returns the severity and the title by the used share of the watermark; `None` below 85 %. `certainty` is empty or `"likely "`.
pub fn title(used: f64, certainty: &str) -> Option<(f64, String)> {
    match used {
        used if used >= 1.0 => {
            Some((BLOCKS, format!("RabbitMQ {certainty}blocks all publishers: memory above the watermark")))
        }
        used if used >= 0.85 => {
            Some((30.0, format!("RabbitMQ {certainty}at {:.0} % of its memory watermark", 100.0 * used)))
        }
        _ => None,
    }
}

/// Returns the remedy: reduce queued memory, then raise the watermark.
pub fn raise(period: &Period) -> Option<Remedy> {
    remedy::of(
        period,
        "rabbitmq.memory_watermark",
        "add consumers, limit queue lengths, or use quorum queues or streams, which keep messages on disk; then raise the watermark",
        "publishers wait until memory is below the watermark",
        "rabbitmq-diagnostics alarms reports no alarms under the same load",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_and_absolute_watermarks_are_distinguished() {
        let of_4_gb = |text| Watermark::parse(text).map(|set| set.bytes(4e9));
        assert_eq!(of_4_gb("0.400000"), Some(1.6e9));
        assert_eq!(of_4_gb("2147483648"), Some(2_147_483_648.0));
        assert_eq!(of_4_gb("2GB"), Some(2e9));
        assert_eq!(of_4_gb("512MiB"), Some(536_870_912.0));
        assert_eq!(of_4_gb("1G"), Some(1_073_741_824.0));
        // Limited to the range from 0 to all memory.
        for text in ["40.000000", "9GB", "9000000000"] {
            assert_eq!(of_4_gb(text), Some(4e9), "{text}");
        }
        for text in ["0", "0.000000", "-0.400000", "-1"] {
            assert_eq!(of_4_gb(text), Some(0.0), "{text}");
        }
        for text in ["", "?", "GB", "2 GB", "2 parsecs", "1TB", "-", "--1"] {
            assert_eq!(of_4_gb(text), None, "{text}");
        }
    }

    #[test]
    fn an_assumed_watermark_names_the_settings_that_may_change_it() {
        let mut period = Period::default();
        period.facts.set(facts::PRODUCT, "RabbitMQ 4.1.0");
        period.facts.set(facts::HOST_MEMORY, "1000000000");
        let but = |period: &Period| AssumedWatermark::of(period).map_or("", |assumed| assumed.but());
        assert!(but(&period).contains("vm_memory_calculation_strategy"), "{}", but(&period));
        period.facts.set(facts::MEMORY_WATERMARK_SET, "0.500000");
        assert!(but(&period).contains("vm_memory_calculation_strategy"), "{}", but(&period));
    }

    #[test]
    fn an_alarm_is_reported_without_resident_memory() {
        let mut period = Period::default();
        assert!(alarm(&period, None).is_none());
        period.facts.set(facts::MEMORY_ALARMS, "0");
        assert!(alarm(&period, None).is_none());
        period.facts.set(facts::MEMORY_ALARMS, "1");
        assert!(alarm(&period, None).is_some());
    }
}
