//! BT037: the VM has taken nearly all the memory that it may have: the kernel is about to end it, or RabbitMQ holds up its publishers.

use beamtune_model::{
    Account, Code, Confidence, Evidence, HostPart, Missing, Period, Rank, Scale, Subject, Threshold, Unit,
    facts, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Role, Rule, Topic};
use crate::signals::limits::time_left;
use crate::signals::memory::megabytes;
use crate::signals::watermark::{self, Assumed};

pub const RULE: Rule = Rule {
    code: Code("BT037"),
    name: "memory-near-limit",
    question: "Is there room left below the limit of memory?",
    confirm: "oom_kill in memory.events (or dmesg) has grown when the node was gone without a crash dump; of RabbitMQ, rabbitmq-diagnostics alarms",
    needs: &[&metrics::RSS],
    account: Account::Memory,
    role: Role::Symptom,
    topics: &[Topic::Memory],
    judge,
    thresholds: &[USED],
    ..Rule::COMMON
};

/// Resident memory as a share of the limit.
const USED: Threshold = Threshold::new(
    "memory-near-limit.used_share",
    "resident memory, share of the limit",
    Scale {
        notice: 0.70,
        warning: 0.80,
        critical: 0.95,
        source: "judgement: a full collection of a large heap needs room for a second one",
    },
);

/// A host's memory is this VM's concern where it has so much of it (judgement).
const MOST_OF_HOST: f64 = 0.25;

/// A host that has so much left, in bytes, and room for a second one of the largest heap, is not about to kill anybody (judgement) …
const AMPLE_BYTES: f64 = 4e9;
/// … so it counts as one of which no more than this is taken: a notice.
const MOST_WHERE_AMPLE: f64 = 0.79;

const WATERMARK_SOURCE: &str = "rabbitmq.com, \"Memory Alarm Threshold\", of 3.13 and of 4.2";

struct Limit {
    bytes: f64,
    /// What is left of it, in bytes.
    left: f64,
    /// Share of it that is taken.
    used: f64,
    what: &'static str,
    is_group: bool,
}

impl Limit {
    /// What was judged.
    fn said(&self, resident: f64) -> String {
        let (size, taken) = (megabytes(self.bytes), 100.0 * self.used);
        // Others have a part of it, too.
        if self.used * self.bytes > resident + 1.0 {
            return format!(
                "{taken:.0} % of {} ({size}) are taken, {} of it by the VM",
                self.what,
                megabytes(resident)
            );
        }
        format!("{} resident, {taken:.0} % of {} ({size})", megabytes(resident), self.what)
    }
}

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let alarm = watermark::alarm(period, who(period));
    let resident = match (period.stat(&metrics::RSS, ""), &alarm) {
        (Ok(stat), _) => stat.max as f64,
        (Err(_), Some(_)) => return Ok(Judgement::found_or_healthy(alarm.into_iter().collect(), "")),
        (Err(missing), None) => return Err(missing),
    };
    let limits = limits(period, resident);
    let told = watermark::told(period);
    let rabbitmq = alarm.or_else(|| match told {
        Some(bytes) => watermark::near(period, resident, bytes, who(period)),
        None => rabbitmq(period, resident),
    });
    let ample = AMPLE_BYTES.max(largest_heap(period));
    let concern = |limit: &Limit| match !limit.is_group && limit.left > ample {
        true => limit.used.min(MOST_WHERE_AMPLE),
        false => limit.used,
    };
    let tightest = limits.iter().max_by(|a, b| concern(a).total_cmp(&concern(b)));
    let sentence = match (tightest, told) {
        (Some(tightest), _) => tightest.said(resident),
        (None, Some(bytes)) => {
            format!("{}; how much memory its host has was not told", watermark::sizes(resident, bytes))
        }
        // That it stops publishers is known, also where its watermark is not.
        (None, None) if rabbitmq.is_some() => format!("{} resident", megabytes(resident)),
        (None, None) => {
            return Err(Missing {
                what: "the limit of memory".to_owned(),
                why: "neither the host's memory nor the limit of a control group was recorded".to_owned(),
                next: "record on the node's host".to_owned(),
            });
        }
    };
    let near = tightest.and_then(|tightest| {
        USED.of(period)
            .severity(concern(tightest))
            .map(|severity| near(period, tightest, resident, severity, &sentence))
    });
    Ok(Judgement::found_or_healthy(near.into_iter().chain(rabbitmq).collect(), sentence))
}

/// The end is near.
fn near(period: &Period, tightest: &Limit, resident: f64, severity: f64, sentence: &str) -> Draft {
    // RabbitMQ takes the host's memory for its own, unless it is told: then the kernel is there before its watermark.
    let beyond =
        Assumed::of(period).filter(|mark| mark.bytes > tightest.bytes && watermark::told(period).is_none());
    let end = if tightest.is_group {
        "beyond it the kernel kills the VM"
    } else {
        "beyond it the kernel kills the largest process"
    };
    // A host has what it has, and no group can be given more than that.
    let host = period.facts.number(facts::HOST_MEMORY).map(|bytes| bytes as f64).filter(|bytes| *bytes > 0.0);
    let wanted = host.map_or(1.5 * resident, |host| host.min(1.5 * resident));
    let rss = period.stat(&metrics::RSS, "").ok();
    Draft::new(severity, format!("{sentence}: {end}, without a crash dump"))
        .about(if tightest.is_group { Subject::limit(beamtune_model::Limit::ControlGroupMemory) } else { Subject::host(HostPart::Memory) })
        .costs(rss.and_then(|stat| time_left(period, stat, tightest.left.max(0.0))))
        .because(Evidence::number("taken", tightest.used, Unit::Ratio).against_scale(USED.of(period)))
        .because(Evidence::number("resident at most", resident, Unit::Bytes))
        .because(Evidence::number("limit", tightest.bytes, Unit::Bytes))
        .because_some(who(period))
        .but_if(!tightest.is_group, "what others of the host need counts as taken, too")
        .fix_if(tightest.is_group && wanted > tightest.bytes, || {
            remedy::of(
                period,
                "host.memory_limit",
                &format!("a limit of {} or more, if that is what the node needs", megabytes(wanted)),
                "a full collection of a large heap needs that heap a second time for a moment",
                "resident memory at the daily peak, against the limit",
            )
        })
        .fix(beyond.and_then(|mark| {
            remedy::of(
                period,
                "rabbitmq.memory_watermark",
                &format!("total_memory_available_override_value = {:.0}MB, the limit, in rabbitmq.conf", tightest.bytes / 1e6),
                &format!(
                    "RabbitMQ knows nothing of its control group: it slows publishers down from {} on, which it never reaches",
                    megabytes(mark.bytes)
                ),
                "rabbitmq-diagnostics status must tell a watermark below the limit",
            )
        }))
        .fix(remedy::of(
            period,
            "code.bounded_table",
            "beamtune memory says where the memory is, and what gives it back",
            "what is kept without need brings the end nearer",
            "resident memory under the same load",
        ))
}

/// What may end the VM for its memory, each with how much of it is taken.
fn limits(period: &Period, resident: f64) -> Vec<Limit> {
    let last = |metric, entity| period.stat(metric, entity).ok().map(|stat| stat.last.value as f64);
    let group =
        last(&metrics::CGROUP_MEMORY_LIMIT, "memory").filter(|limit| *limit > 0.0).map(|limit| Limit {
            bytes: limit,
            left: limit - resident,
            used: resident / limit,
            what: "the memory limit of its control group",
            is_group: true,
        });
    let host = period.facts.number(facts::HOST_MEMORY).map(|bytes| bytes as f64).filter(|bytes| *bytes > 0.0);
    let host = host.map(|bytes| {
        let available = period.stat(&metrics::MEMORY_AVAILABLE, "").ok().map(|stat| stat.min as f64);
        let taken = available.map_or(0.0, |available| 1.0 - available / bytes);
        let own = resident / bytes;
        Limit {
            bytes,
            left: available.unwrap_or(bytes - resident),
            used: if own >= MOST_OF_HOST { taken.max(own) } else { own },
            what: "the host's memory",
            is_group: false,
        }
    });
    [group, host].into_iter().flatten().collect()
}

/// The largest heap of a process that was looked at closely, in bytes.
fn largest_heap(period: &Period) -> f64 {
    let rows = period.processes.iter().filter_map(|process| process.row.as_ref());
    let large = rows.filter(|row| row.ranks.contains(&Rank::Memory));
    large.fold(0.0, |most, row| most.max(row.memory_bytes as f64))
}

/// Who has the most, as a hint.
fn who(period: &Period) -> Option<Evidence> {
    let kinds = ["processes", "binary", "ets", "code"];
    let of = |kind| {
        period.find(beamtune_model::Group::Memory, "", kind).map(|stat| (kind, stat.last.value as f64))
    };
    let (kind, bytes) = kinds.into_iter().filter_map(of).max_by(|a, b| a.1.total_cmp(&b.1))?;
    Some(Evidence::number(format!("most of it by the VM's account: {kind}"), bytes, Unit::Bytes))
}

/// RabbitMQ that has come to its own limit, or is near it.
fn rabbitmq(period: &Period, resident: f64) -> Option<Draft> {
    let assumed = Assumed::of(period)?;
    let Assumed { bytes, seen, is_set, share } = assumed;
    let (severity, said) = watermark::taken(resident / bytes)?;
    let (source, unless) = match is_set {
        true => ("vm_memory_high_watermark, as it was set at start", ""),
        false => (WATERMARK_SOURCE, ", unless it is set otherwise"),
    };
    let of = share.map_or(String::new(), |share| format!(" ({:.0} % of {})", share * 100.0, megabytes(seen)));
    Some(
        Draft::new(
            severity,
            format!(
                "{said}: {} are resident, and its memory watermark is at {}{of}{unless}",
                megabytes(resident),
                megabytes(bytes),
            ),
        )
        .confidence(Confidence::Inferred)
        .about(Subject::limit(beamtune_model::Limit::MemoryWatermark))
        .because(Evidence::number("resident at most", resident, Unit::Bytes).against(bytes, source))
        .because(Evidence::number("memory that it sees", seen, Unit::Bytes))
        .because_some(who(period))
        .but(assumed.but())
        .fix(watermark::raise(period)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether RabbitMQ is told to be near its watermark, on a host with 1 GB.
    fn is_near(told: &[(&str, &str)], resident: f64) -> bool {
        let mut period = Period::default();
        period.facts.set(facts::HOST_MEMORY, "1000000000");
        for (fact, value) in told {
            period.facts.set(fact, *value);
        }
        rabbitmq(&period, resident).is_some()
    }

    #[test]
    fn the_first_number_of_a_version_decides_on_the_watermark() {
        let drafts = |product: &str, resident: f64| is_near(&[(facts::PRODUCT, product)], resident);
        assert!(drafts("RabbitMQ 3.10.8", 0.41e9));
        assert!(drafts("RabbitMQ 3.10.8", 0.35e9));
        assert!(!drafts("RabbitMQ 3.10.8", 0.3e9));
        assert!(!drafts("RabbitMQ 4.1.0", 0.45e9));
        assert!(drafts("RabbitMQ 4.1.0", 0.6e9));
        assert!(!drafts("ejabberd 23.01", 0.9e9));
    }

    #[test]
    fn what_the_watermark_was_set_to_counts_in_place_of_the_default() {
        let product = (facts::PRODUCT, "RabbitMQ 3.10.8");
        let set =
            |set: &str, resident: f64| is_near(&[product, (facts::MEMORY_WATERMARK_SET, set)], resident);
        assert!(!set("0.800000", 0.6e9));
        assert!(set("0.800000", 0.81e9));
        assert!(set("200000000", 0.21e9));
        assert!(!set("2GB", 0.8e9));
        // Nobody may publish.
        assert!(set("0.000000", 0.1e9));
        // What cannot be read is not what counts for RabbitMQ either: it takes 0.4, also where that is not its default.
        assert!(set("2 parsecs", 0.41e9) && !set("2 parsecs", 0.3e9));
        let newer = [(facts::PRODUCT, "RabbitMQ 4.1.0"), (facts::MEMORY_WATERMARK_SET, "2 parsecs")];
        assert!(is_near(&newer, 0.41e9) && !is_near(&newer, 0.3e9));
        // In a container it has been told how much there is.
        let of_500 = |resident: f64| is_near(&[product, (facts::MEMORY_TOTAL_SET, "500MB")], resident);
        assert!(of_500(0.2e9) && !of_500(0.1e9));
    }
}
