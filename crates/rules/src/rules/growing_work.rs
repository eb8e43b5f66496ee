//! BT085: the work of one process keeps growing under a constant load.

use beamtune_model::{
    Account, Code, Cost, Evidence, Missing, Period, ProcessActivity, Scale, Threshold, Unit, metrics,
    units::SECOND_NS,
};
use beamtune_stats::Trend;

use crate::remedy;
use crate::rule::{Draft, Judgement, MINOR, Rule};
use crate::signals::limits::{MIN_LEAK_SECONDS, growth, is_continuing};
use crate::signals::{known_processes, stack};
use crate::text;
use crate::view::{self, kind};

pub const RULE: Rule = Rule {
    code: Code("BT085"),
    name: "growing-work",
    question: "Does the work of a process keep growing under a constant load?",
    confirm: "call process_info(Pid, [reductions, memory]) each minute under a constant load: reductions per second must rise",
    needs: &[&metrics::SCAN_REDUCTIONS, &metrics::SCHEDULER_ACTIVE],
    account: Account::CpuUsed,
    explains_as_notice: true,
    needs_minutes: true,
    judge,
    thresholds: &[RISE],
    ..Rule::COMMON
};

const RISE: Threshold = Threshold::new(
    "growing-work.rise_share",
    "growth of a process's reductions per second within the recording, as a share of their median",
    Scale {
        notice: 0.15,
        warning: f64::INFINITY,
        critical: f64::INFINITY,
        source: "judgement; of the busiest processes of 90 nodes, sampled for 10 s, only the one with this fault grew as much",
    },
);

/// A process with at least this share of all reductions dominates the node (judgement).
const MIN_SHARE: f64 = 0.25;

/// Minimum work of the process, in cores: less does no harm yet (judgement).
const MIN_CORES: f64 = 0.1;

/// Minimum of the slope's lower bound, as a share of the slope. A wider interval is noise (judgement).
const MIN_LOW: f64 = 0.5;

/// If port input grows by at least this share of the growth of the work, the load grows (judgement).
const LOAD_PACE: f64 = 0.5;

/// A process whose work grows.
struct Growing<'p> {
    process: &'p ProcessActivity,
    /// Trend of its reductions per second.
    trend: Trend,
    /// Growth over the samples, as a share of the median.
    rise: f64,
    /// Share of all reductions.
    share: f64,
    cores: f64,
    /// Reductions per second at the start and at the end, by the trend.
    first: f64,
    last: f64,
}

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let total = period.stat(&metrics::SCAN_REDUCTIONS, "")?.delta as f64;
    let active = view::activity(period, kind::SCHEDULER)?.cores();
    let load = load_rise(period);
    let found = period
        .processes
        .iter()
        .filter(|process| !known_processes::knows(process))
        .filter_map(|process| Growing::of(process, total, active))
        .find(|growing| load.is_none_or(|load| load < LOAD_PACE * growing.rise));
    let Some(found) = found else {
        return Ok(Judgement::Healthy("no dominant process with growing work".to_owned()));
    };
    Ok(RISE.of(period).severity(found.rise).map_or_else(
        || Judgement::Healthy(format!("work of {} grew {:.0} %", found.process.title(), 100.0 * found.rise)),
        |_| Judgement::found(describe(period, &found, load)),
    ))
}

impl<'p> Growing<'p> {
    fn of(process: &'p ProcessActivity, total: f64, active: f64) -> Option<Self> {
        let share = process.reductions as f64 / total.max(1.0);
        let cores = share.min(1.0) * active;
        if share < MIN_SHARE || cores < MIN_CORES {
            return None;
        }
        // The first sample has no rate.
        let points = view::trend_points(&process.work);
        let points = points.get(points.iter().position(|(_, work)| *work > 0.0)?..)?;
        let trend = growth(points, f64::INFINITY)?;
        let ((begin, _), (end, _)) = (points.first()?, points.last()?);
        if trend.low < MIN_LOW * trend.slope || !is_continuing(points, begin.midpoint(*end)) {
            return None;
        }
        let mut sorted: Vec<f64> = points.iter().map(|(_, work)| *work).collect();
        sorted.sort_by(f64::total_cmp);
        let median = *sorted.get(sorted.len() / 2)?;
        let rise = trend.slope * (end - begin) / median.max(1.0);
        let half = rise * median / 2.0;
        Some(Growing { process, trend, rise, share, cores, first: median - half, last: median + half })
    }
}

/// Growth of the port input over the period, as a share of its mean; `None` without input.
fn load_rise(period: &Period) -> Option<f64> {
    let input = period.stat(&metrics::IO_INPUT, "").ok().filter(|input| input.delta > 0)?;
    let points = input.trace.points();
    let steps: Vec<(f64, f64)> = points
        .iter()
        .zip(points.iter().skip(1))
        .filter(|(before, after)| after.0 > before.0 && after.1 >= before.1)
        .map(|(before, after)| {
            let seconds = (after.0 - before.0) as f64 / SECOND_NS as f64;
            (after.0 as f64 / SECOND_NS as f64, (after.1 - before.1) as f64 / seconds)
        })
        .collect();
    let ((begin, _), (end, _)) = (steps.first()?, steps.last()?);
    let mean = steps.iter().map(|(_, rate)| rate).sum::<f64>() / steps.len() as f64;
    Some(growth(&steps, f64::INFINITY).map_or(0.0, |trend| trend.slope * (end - begin) / mean.max(1.0)))
}

fn describe(period: &Period, growing: &Growing<'_>, load: Option<f64>) -> Draft {
    let Growing { process, trend, rise, share, cores, first, last } = growing;
    let seconds_to_full = (1.0 - cores).max(0.0) / (cores * trend.slope / last.max(1.0));
    let place = stack::most_of_program(process).unwrap_or("its callback");
    let subject = process.subject();
    Draft::new(
        MINOR,
        format!(
            "Work of {} grew {:.0} % in {} under the same load",
            text::name(&subject),
            100.0 * rise,
            view::duration_text(period.seconds()),
        ),
    )
    .detail(text::pid(&subject))
    .detail(format!("{:.0} % of all reductions, {} cores", 100.0 * share.min(1.0), text::cores(*cores)))
    .detail(format!("fills one scheduler in {}", view::duration_text(seconds_to_full)))
    .about(subject)
    .costs(Cost::CpuCores(*cores))
    .evidence(Evidence::number("growth of its work", *rise, Unit::Ratio))
    .evidence(
        Evidence::number("reductions per second at the end", *last, Unit::Reductions)
            .with_text(format!("{first:.0} at the start")),
    )
    .evidence(
        Evidence::number("growth per second", trend.slope, Unit::Reductions)
            .with_text(format!("[{:.0}, {:.0}]", trend.low, trend.high)),
    )
    .evidence(Evidence::number("time until it fills one scheduler", seconds_to_full, Unit::Seconds))
    .because_some(load.map(|load| Evidence::number("growth of port input", load, Unit::Ratio)))
    .because_some(stack::evidence(process))
    .but_if(load.is_none(), "there is no port input: a load that grows inside the node looks the same")
    .but_if(
        period.seconds() < MIN_LEAK_SECONDS,
        "in such a short time, a cache or batch that grows to its final size looks the same (beamtune doctor --for 5m)",
    )
    .remedy(remedy::of(
        period,
        "code.bounded_state",
        &format!(
            "check what {place} iterates over (subscribers, sessions, a list or map in its state), and remove entries that are no longer needed: \
             monitor each process that is kept and drop it at 'DOWN', or delete old entries"
        ),
        "each message costs time in proportion to the entries, and entries that nothing removes stay forever",
        "reductions of this process per second stay constant under the same load",
    ))
}
