//! BT037: the VM has taken nearly all the memory that it may have: the kernel is about to end it, or RabbitMQ holds up its publishers.

use beamtune_model::{Code, Evidence, Missing, Period, Scale, Unit, facts, metrics};

use crate::memory::megabytes;
use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::watermark;

pub const RULE: Rule = Rule {
    code: Code("BT037"),
    name: "memory-near-limit",
    question: "Is there room left below the limit of memory?",
    confirm: "oom_kill in memory.events (or dmesg) has grown when the node was gone without a crash dump; of RabbitMQ, rabbitmq-diagnostics alarms",
    needs: &[&metrics::RSS],
    since: 21,
    judge,
};

/// Resident memory as a share of the limit.
const USED: Scale = Scale {
    notice: 0.70,
    warning: 0.80,
    critical: 0.95,
    source: "judgement: a full collection of a large heap needs room for a second one",
};

/// A host's memory is this VM's concern where it has so much of it (judgement).
const MOST_OF_HOST: f64 = 0.25;

/// RabbitMQ blocks publishers from this share of the memory on that it sees, unless it is told otherwise: until 3.13, and since 4.0.
const WATERMARKS: (f64, f64) = (0.4, 0.6);
/// No VM tells what the watermark was set to, so that no more than a warning is told of the default.
const ASSUMED: f64 = 60.0;
const WATERMARK_SOURCE: &str = "rabbitmq.com, \"Memory Alarm Threshold\", of 3.13 and of 4.2";

struct Limit {
    bytes: f64,
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
        None => rabbitmq(period, resident, &limits),
    });
    let tightest = limits.iter().max_by(|a, b| a.used.total_cmp(&b.used));
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
        USED.score(tightest.used).map(|score| near(period, tightest, resident, score, &sentence))
    });
    Ok(Judgement::found_or_healthy(near.into_iter().chain(rabbitmq).collect(), sentence))
}

/// The end is near.
fn near(period: &Period, tightest: &Limit, resident: f64, score: f64, sentence: &str) -> Draft {
    let end = if tightest.is_group {
        "beyond it the kernel kills the VM"
    } else {
        "beyond it the kernel kills the largest process"
    };
    Draft::new(score, format!("{sentence}: {end}, without a crash dump"))
        .about(if tightest.is_group { "control group" } else { "host" })
        .because(Evidence::number("taken", tightest.used, Unit::Ratio).against(USED.warning, USED.source))
        .because(Evidence::number("resident at most", resident, Unit::Bytes))
        .because(Evidence::number("limit", tightest.bytes, Unit::Bytes))
        .because_some(who(period))
        .but_if(!tightest.is_group, "what others of the host need counts as taken, too")
        .fix(remedy::of(
            period,
            "host.memory_limit",
            &format!("a limit of {} or more, if that is what the node needs", megabytes(resident * 1.5)),
            "a full collection of a large heap needs that heap a second time for a moment",
            "resident memory at the daily peak, against the limit",
        ))
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
            used: if own >= MOST_OF_HOST { taken.max(own) } else { own },
            what: "the host's memory",
            is_group: false,
        }
    });
    [group, host].into_iter().flatten().collect()
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
fn rabbitmq(period: &Period, resident: f64, limits: &[Limit]) -> Option<Draft> {
    let version = period.facts.get(facts::PRODUCT)?.strip_prefix("RabbitMQ ")?;
    let major: u32 = version.split('.').next()?.parse().ok()?;
    let share = if major >= 4 { WATERMARKS.1 } else { WATERMARKS.0 };
    // It takes the smaller one for its memory.
    let seen = limits.iter().map(|limit| limit.bytes).reduce(f64::min)?;
    let watermark = share * seen;
    let (score, said) = watermark::taken(resident / watermark)?;
    Some(
        Draft::new(
            score.min(ASSUMED),
            format!(
                "{said}: {} are resident, and its memory watermark is at {} ({:.0} % of {}), unless it is set otherwise",
                megabytes(resident),
                megabytes(watermark),
                share * 100.0,
                megabytes(seen)
            ),
        )
        .about("memory watermark")
        .because(Evidence::number("resident at most", resident, Unit::Bytes).against(watermark, WATERMARK_SOURCE))
        .because(Evidence::number("memory that it sees", seen, Unit::Bytes))
        .because_some(who(period))
        .but("vm_memory_high_watermark may be set to something else, which no VM tells: rabbitmq-diagnostics status does")
        .fix(watermark::raise(period)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_number_of_a_version_decides_on_the_watermark() {
        let drafts = |product: &str, resident: f64| {
            let mut period = Period::default();
            period.facts.set(facts::PRODUCT, product);
            let limit = Limit { bytes: 1e9, used: resident / 1e9, what: "", is_group: true };
            rabbitmq(&period, resident, &[limit]).is_some()
        };
        assert!(drafts("RabbitMQ 3.10.8", 0.41e9));
        assert!(drafts("RabbitMQ 3.10.8", 0.35e9));
        assert!(!drafts("RabbitMQ 3.10.8", 0.3e9));
        assert!(!drafts("RabbitMQ 4.1.0", 0.45e9));
        assert!(drafts("RabbitMQ 4.1.0", 0.6e9));
        assert!(!drafts("ejabberd 23.01", 0.9e9));
    }
}
