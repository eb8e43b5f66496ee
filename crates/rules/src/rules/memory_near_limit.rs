//! BT037: the VM uses nearly all the memory that it may use. The kernel is about to kill it, or RabbitMQ is about to block its publishers.

use beamtune_model::{
    Account, Code, Confidence, Evidence, HostPart, Missing, Period, Rank, Scale, Subject, Threshold, Unit,
    facts, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Role, Rule, Topic};
use crate::signals::limits::time_left;
use crate::signals::memory::format_bytes;
use crate::signals::watermark::{self, AssumedWatermark};

pub const RULE: Rule = Rule {
    code: Code("BT037"),
    name: "memory-near-limit",
    question: "Is memory close to its limit?",
    confirm: "read oom_kill in memory.events (or dmesg) after the node vanished without a crash dump: it has grown; on RabbitMQ, run rabbitmq-diagnostics alarms",
    needs: &[&metrics::RSS],
    account: Account::Memory,
    role: Role::Symptom,
    topics: &[Topic::Memory],
    judge,
    thresholds: &[USED],
    ..Rule::COMMON
};

const USED: Threshold = Threshold::new(
    "memory-near-limit.used_share",
    "resident memory, share of the limit",
    Scale {
        notice: 0.70,
        warning: 0.80,
        critical: 0.95,
        source: "judgement: a fullsweep of a large heap needs room for a second one",
    },
);

/// Host memory is judged only if the VM uses at least this share of it (judgement).
const MIN_HOST_SHARE: f64 = 0.25;

/// A host with this much available memory, and with room for a second copy of the largest heap, is not about to kill a process (judgement)
/// …
const AMPLE_BYTES: f64 = 4e9;
/// … so its used share counts as at most this value, which is a notice.
const MAX_USED_WHERE_AMPLE: f64 = 0.79;

const WATERMARK_SOURCE: &str = "rabbitmq.com, \"Memory Alarm Threshold\", of 3.13 and of 4.2";

struct Limit {
    bytes: f64,
    left_bytes: f64,
    /// Used share of the limit.
    used: f64,
    /// Whether it is the limit of the control group; otherwise it is the memory of the host.
    is_group: bool,
}

impl Limit {
    fn title(&self) -> String {
        let (size, used) = (format_bytes(self.bytes), 100.0 * self.used);
        match self.is_group {
            true => format!("Memory at {used:.0} % of the control group's limit ({size})"),
            false => format!("Host memory {used:.0} % used ({size})"),
        }
    }

    fn sentence(&self, resident: f64) -> String {
        let (size, used) = (format_bytes(self.bytes), 100.0 * self.used);
        match self.is_group {
            true => {
                format!(
                    "{} resident, {used:.0} % of the control group's limit ({size})",
                    format_bytes(resident)
                )
            }
            false => format!("{} resident, host memory {used:.0} % used ({size})", format_bytes(resident)),
        }
    }
}

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let alarm = watermark::alarm(period, largest_kind(period));
    let resident = match (period.stat(&metrics::RSS, ""), &alarm) {
        (Ok(stat), _) => stat.max as f64,
        (Err(_), Some(_)) => return Ok(Judgement::found_or_healthy(alarm.into_iter().collect(), "")),
        (Err(missing), None) => return Err(missing),
    };
    let limits = limits(period, resident);
    let reported = watermark::reported(period);
    let rabbitmq = alarm.or_else(|| match reported {
        Some(bytes) => watermark::near(period, resident, bytes, largest_kind(period)),
        None => rabbitmq(period, resident),
    });
    let ample = AMPLE_BYTES.max(largest_heap(period));
    let judged_share = |limit: &Limit| match !limit.is_group && limit.left_bytes > ample {
        true => limit.used.min(MAX_USED_WHERE_AMPLE),
        false => limit.used,
    };
    let tightest = limits.iter().max_by(|a, b| judged_share(a).total_cmp(&judged_share(b)));
    let sentence = match (tightest, reported) {
        (Some(tightest), _) => tightest.sentence(resident),
        (None, Some(bytes)) => format!("{}; host memory unknown", watermark::sizes(resident, bytes)),
        // An alarm is reported even if the watermark is unknown.
        (None, None) if rabbitmq.is_some() => format!("{} resident", format_bytes(resident)),
        (None, None) => {
            return Err(Missing {
                what: "memory limit".to_owned(),
                why: "neither host memory nor a control group's limit was recorded".to_owned(),
                next_step: "record on the node's host".to_owned(),
            });
        }
    };
    let near = tightest.and_then(|tightest| {
        USED.of(period)
            .severity(judged_share(tightest))
            .map(|severity| near(period, tightest, resident, severity))
    });
    Ok(Judgement::found_or_healthy(near.into_iter().chain(rabbitmq).collect(), sentence))
}

/// Drafts the finding that the VM is near a limit at which the kernel kills a process.
fn near(period: &Period, tightest: &Limit, resident: f64, severity: f64) -> Draft {
    // Unless it is configured otherwise, RabbitMQ assumes that it may use all memory of the host. Then the kernel kills it below its
    // watermark.
    let unreachable = AssumedWatermark::of(period)
        .filter(|mark| mark.bytes > tightest.bytes && watermark::reported(period).is_none());
    let victim = if tightest.is_group { "the VM" } else { "the largest process" };
    // A control group cannot use more than the host has.
    let host = period.facts.number(facts::HOST_MEMORY).map(|bytes| bytes as f64).filter(|bytes| *bytes > 0.0);
    let wanted = host.map_or(1.5 * resident, |host| host.min(1.5 * resident));
    let rss = period.stat(&metrics::RSS, "").ok();
    let subject = match tightest.is_group {
        true => Subject::limit(beamtune_model::Limit::ControlGroupMemory),
        false => Subject::host(HostPart::Memory),
    };
    Draft::new(severity, tightest.title())
        .detail(format!("{} resident", format_bytes(resident)))
        .detail(format!("at the limit the kernel kills {victim}, without a crash dump"))
        .about(subject)
        .costs(rss.and_then(|stat| time_left(period, stat, tightest.left_bytes.max(0.0))))
        .evidence(
            Evidence::number("share of the limit", tightest.used, Unit::Ratio).against_scale(USED.of(period)),
        )
        .evidence(Evidence::number("maximum resident memory", resident, Unit::Bytes))
        .evidence(Evidence::number("limit", tightest.bytes, Unit::Bytes))
        .because_some(largest_kind(period))
        .but_if(!tightest.is_group, "includes memory of other processes on the host")
        .fix_if(tightest.is_group && wanted > tightest.bytes, || {
            remedy::of(
                period,
                "host.memory_limit",
                &format!("raise the limit to {} or more (MemoryMax=, docker --memory)", format_bytes(wanted)),
                "a fullsweep of a large heap needs room for a second one",
                "resident memory at the daily peak stays below the limit",
            )
        })
        .remedy(unreachable.and_then(|mark| {
            remedy::of(
                period,
                "rabbitmq.memory_watermark",
                &format!(
                    "total_memory_available_override_value = {:.0}MB in rabbitmq.conf",
                    tightest.bytes / 1e6
                ),
                &format!(
                    "RabbitMQ does not know the limit of its control group: its watermark of {} is above it",
                    format_bytes(mark.bytes)
                ),
                "rabbitmq-diagnostics status reports a watermark below the limit",
            )
        }))
        .remedy(remedy::of(
            period,
            "code.bounded_table",
            "run beamtune memory TARGET: it shows what holds memory, and how to free it",
            "less memory in use leaves more room",
            "resident memory under the same load",
        ))
}

/// Returns the limits at which the kernel kills processes.
fn limits(period: &Period, resident: f64) -> Vec<Limit> {
    let last = |metric, entity| period.stat(metric, entity).ok().map(|stat| stat.last.value as f64);
    let group = last(&metrics::CGROUP_MEMORY_LIMIT, "memory").filter(|limit| *limit > 0.0).map(|limit| {
        Limit { bytes: limit, left_bytes: limit - resident, used: resident / limit, is_group: true }
    });
    let host = period.facts.number(facts::HOST_MEMORY).map(|bytes| bytes as f64).filter(|bytes| *bytes > 0.0);
    let host = host.map(|bytes| {
        let available = period.stat(&metrics::MEMORY_AVAILABLE, "").ok().map(|stat| stat.min as f64);
        let used = available.map_or(0.0, |available| 1.0 - available / bytes);
        let own = resident / bytes;
        Limit {
            bytes,
            left_bytes: available.unwrap_or(bytes - resident),
            used: if own >= MIN_HOST_SHARE { used.max(own) } else { own },
            is_group: false,
        }
    });
    [group, host].into_iter().flatten().collect()
}

/// Returns the largest heap of an inspected process, in bytes.
fn largest_heap(period: &Period) -> f64 {
    let rows = period.processes.iter().filter_map(|process| process.row.as_ref());
    let large = rows.filter(|row| row.ranks.contains(&Rank::Memory));
    large.fold(0.0, |max, row| max.max(row.memory_bytes as f64))
}

/// Returns the largest kind of memory in `erlang:memory/0`, as a hint.
fn largest_kind(period: &Period) -> Option<Evidence> {
    let kinds = ["processes", "binary", "ets", "code"];
    let of = |kind| {
        period.find(beamtune_model::Group::Memory, "", kind).map(|stat| (kind, stat.last.value as f64))
    };
    let (kind, bytes) = kinds.into_iter().filter_map(of).max_by(|a, b| a.1.total_cmp(&b.1))?;
    Some(Evidence::number(format!("largest in erlang:memory/0: {kind}"), bytes, Unit::Bytes))
}

/// Drafts the finding that RabbitMQ is at or near its assumed watermark.
fn rabbitmq(period: &Period, resident: f64) -> Option<Draft> {
    let assumed = AssumedWatermark::of(period)?;
    let AssumedWatermark { bytes, seen, is_set, share } = assumed;
    let (severity, title) = watermark::title(resident / bytes, "likely ")?;
    let source = if is_set { "vm_memory_high_watermark as set at start" } else { WATERMARK_SOURCE };
    let default = if is_set { "" } else { "; the default" };
    let share = share.map(|share| format!(" = {:.0} % of {}", share * 100.0, format_bytes(seen)));
    let sizes = watermark::sizes(resident, bytes);
    Some(
        Draft::new(severity, title)
            .detail(format!("{sizes}{}{default}", share.unwrap_or_default()))
            .confidence(Confidence::Inferred)
            .about(Subject::limit(beamtune_model::Limit::MemoryWatermark))
            .evidence(
                Evidence::number("maximum resident memory", resident, Unit::Bytes).against(bytes, source),
            )
            .evidence(Evidence::number("memory visible to RabbitMQ", seen, Unit::Bytes))
            .because_some(largest_kind(period))
            .counter_evidence(assumed.but())
            .remedy(watermark::raise(period)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether RabbitMQ is reported to be near its watermark, on a host with 1 GB.
    fn is_near(facts: &[(&str, &str)], resident: f64) -> bool {
        let mut period = Period::default();
        period.facts.set(facts::HOST_MEMORY, "1000000000");
        for (fact, value) in facts {
            period.facts.set(fact, *value);
        }
        rabbitmq(&period, resident).is_some()
    }

    #[test]
    fn the_default_watermark_depends_on_the_major_version() {
        let drafts = |product: &str, resident: f64| is_near(&[(facts::PRODUCT, product)], resident);
        assert!(drafts("RabbitMQ 3.10.8", 0.41e9));
        assert!(drafts("RabbitMQ 3.10.8", 0.35e9));
        assert!(!drafts("RabbitMQ 3.10.8", 0.3e9));
        assert!(!drafts("RabbitMQ 4.1.0", 0.45e9));
        assert!(drafts("RabbitMQ 4.1.0", 0.6e9));
        assert!(!drafts("ejabberd 23.01", 0.9e9));
    }

    #[test]
    fn a_watermark_that_was_set_replaces_the_default() {
        let product = (facts::PRODUCT, "RabbitMQ 3.10.8");
        let set =
            |set: &str, resident: f64| is_near(&[product, (facts::MEMORY_WATERMARK_SET, set)], resident);
        assert!(!set("0.800000", 0.6e9));
        assert!(set("0.800000", 0.81e9));
        assert!(set("200000000", 0.21e9));
        assert!(!set("2GB", 0.8e9));
        // Publishing is blocked from the start.
        assert!(set("0.000000", 0.1e9));
        // RabbitMQ cannot parse this either: every version falls back to 0.4.
        assert!(set("2 parsecs", 0.41e9) && !set("2 parsecs", 0.3e9));
        let newer = [(facts::PRODUCT, "RabbitMQ 4.1.0"), (facts::MEMORY_WATERMARK_SET, "2 parsecs")];
        assert!(is_near(&newer, 0.41e9) && !is_near(&newer, 0.3e9));
        // In a container, the memory that RabbitMQ sees is configured.
        let of_500 = |resident: f64| is_near(&[product, (facts::MEMORY_TOTAL_SET, "500MB")], resident);
        assert!(of_500(0.2e9) && !of_500(0.1e9));
    }
}
