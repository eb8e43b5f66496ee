//! BT085: one process does ever more work under a load that stays.

use beamtune_model::{
    Account, Code, Cost, Evidence, Missing, Period, ProcessUse, Scale, Threshold, Unit, metrics,
    units::SECOND_NS,
};
use beamtune_stats::Trend;

use crate::remedy;
use crate::rule::{Draft, Judgement, MINOR, Rule};
use crate::signals::limits::{SHORT_SECONDS, goes_on, growth};
use crate::signals::{known_processes, stack};
use crate::view::{self, kind};

pub const RULE: Rule = Rule {
    code: Code("BT085"),
    name: "growing-work",
    question: "Does one process do ever more work under the same load?",
    confirm: "process_info(Pid, [reductions, memory]) each minute, and what comes in meanwhile: reductions a second rise while the load stays",
    needs: &[&metrics::SCAN_REDUCTIONS, &metrics::SCHEDULER_ACTIVE],
    account: Account::CpuUsed,
    explains_as_notice: true,
    needs_minutes: true,
    judge,
    thresholds: &[RISE],
    ..Rule::COMMON
};

/// How much its work has grown while it was seen.
const RISE: Threshold = Threshold::new(
    "growing-work.rise_share",
    "growth of a process's reductions a second within the recording, as a share of the median",
    Scale {
        notice: 0.15,
        warning: f64::INFINITY,
        critical: f64::INFINITY,
        source: "judgement; of the busiest processes of 90 nodes, seen for 10 s, only the one that was sick in this way rose by so much",
    },
);

/// Share of all reductions from which on it is the process that carries the node (judgement: a quarter).
const CARRIES: f64 = 0.25;

/// Less work than this is nobody's trouble yet, in cores (judgement).
const WORTH_CORES: f64 = 0.1;

/// The lower end of the slope's interval must be this share of the slope: wider ones are noise (judgement).
const CLEAR: f64 = 0.5;

/// Where what comes in grows at this share of the pace, the load grows (judgement: half).
const WITH_LOAD: f64 = 0.5;

/// A process whose work grows.
struct Growing<'p> {
    process: &'p ProcessUse,
    /// Of its reductions a second.
    trend: Trend,
    /// Growth over the time seen, as a share of the median.
    rise: f64,
    share: f64,
    cores: f64,
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
        .find(|growing| load.is_none_or(|load| load < WITH_LOAD * growing.rise));
    let Some(found) = found else {
        return Ok(Judgement::Healthy(
            "no process that carries the node does more work from second to second".to_owned(),
        ));
    };
    Ok(RISE.of(period).severity(found.rise).map_or_else(
        || Judgement::Healthy(format!("the work of {} grows by little", found.process.title())),
        |_| Judgement::found(describe(period, &found, load)),
    ))
}

impl<'p> Growing<'p> {
    fn of(process: &'p ProcessUse, total: f64, active: f64) -> Option<Self> {
        let share = process.reductions as f64 / total.max(1.0);
        let cores = share.min(1.0) * active;
        if share < CARRIES || cores < WORTH_CORES {
            return None;
        }
        // Of the first sample nobody knows how much it is about.
        let points = view::trend_points(&process.work);
        let points = points.get(points.iter().position(|(_, work)| *work > 0.0)?..)?;
        let trend = growth(points, f64::INFINITY)?;
        let ((begin, _), (end, _)) = (points.first()?, points.last()?);
        if trend.low < CLEAR * trend.slope || !goes_on(points, begin.midpoint(*end)) {
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

/// How much more comes in through ports at the end than at the beginning, as a share of the mean; `None` where nothing does.
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
    // Until it takes all of one scheduler.
    let left = (1.0 - cores).max(0.0) / (cores * trend.slope / last.max(1.0));
    let place = stack::most_of_program(process).unwrap_or("what it does for each message");
    Draft::new(
        MINOR,
        format!(
            "{} does {:.0} % of the node's work, and {:.0} % more than {} before under the same load",
            process.title(),
            100.0 * share.min(1.0),
            100.0 * rise,
            view::duration_text(period.seconds()),
        ),
    )
    .about(process.subject())
    .costs(Cost::CpuCores(*cores))
    .because(Evidence::number("growth of its work while it was seen", *rise, Unit::Ratio))
    .because(
        Evidence::number("its reductions in a second, at the end", *last, Unit::Reductions)
            .with_text(format!("{first:.0} at the beginning")),
    )
    .because(
        Evidence::number("more of them in each second", trend.slope, Unit::Reductions)
            .with_text(format!("95 % interval {:.0} to {:.0}", trend.low, trend.high)),
    )
    .because(Evidence::number("time until it needs all of one scheduler", left, Unit::Seconds))
    .because_some(load.map(|load| Evidence::number("growth of what comes in through ports meanwhile", load, Unit::Ratio)))
    .because_some(stack::evidence(process))
    .but_if(load.is_none(), "nothing comes in through ports: a load that grows inside of the node looks the same")
    .but_if(
        period.seconds() < SHORT_SECONDS,
        "it was seen for a short time only: a cache or a batch that grows to its size looks the same (beamtune doctor --for 5m)",
    )
    .fix(remedy::of(
        period,
        "code.bounded_state",
        &format!(
            "see what {place} goes through (subscribers, sessions, a list or map in its state), and remove what has ended: \
             monitor each process that is kept, and drop it at 'DOWN'; or delete what is old"
        ),
        "each message costs as much as there is to go through, and what nobody removes is gone through for ever",
        "reductions of this process a second must stay under the same load",
    ))
}
