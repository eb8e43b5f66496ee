//! BT023: the VM restarts again and again.
//!
//! A period covers one run of the VM, but it contains the times of the first and the last sample of every run in the recording. Every run
//! except the first and the last was recorded completely.

use beamtune_model::{
    Account, Code, Evidence, Group, Missing, Period, Scale, Threshold, Unit, facts, units::SECOND_NS,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::text;
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT023"),
    name: "restart-loop",
    question: "Does the VM restart again and again?",
    confirm: "read the service manager's log, and the slogan of erl_crash.dump: beamtune import erl_crash.dump",
    needs: &[],
    account: Account::Delay,
    judge,
    thresholds: &[BETWEEN_STARTS],
    ..Rule::COMMON
};

/// Median time between starts, over the last runs that were recorded completely.
const BETWEEN_STARTS: Threshold = Threshold::new(
    "restart-loop.life_seconds",
    "seconds from one start to the next; shorter is worse",
    Scale {
        notice: 3_600.0,
        warning: 600.0,
        critical: 60.0,
        source: "judgement: nobody restarts a node twice in ten minutes on purpose; systemd gives up after 5 starts in 10 s",
    },
);

/// Fewer restarts are no loop: they may be an upgrade and its correction. The median is taken over this many last runs, so that a start
/// that failed weeks ago has no effect.
const MIN_RESTARTS: usize = 3;

/// If the current run is this many times longer than the ones before, the loop is over (judgement).
const OVER_FACTOR: f64 = 10.0;

/// Maximum number of runs that the evidence lists.
const MAX_LISTED: usize = 8;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    if period.is_imported() {
        return Err(period.missing_group(Group::Vm, "other starts of the VM"));
    }
    let starts: Vec<f64> =
        period.incarnation_spans.iter().map(|seen| seen.begin as f64 / SECOND_NS as f64).collect();
    let (Some(first), Some(last)) = (starts.first(), period.incarnation_spans.last()) else {
        return Ok(Judgement::NotJudged {
            reason: "no samples".to_owned(),
            next: "record while the node runs".to_owned(),
        });
    };
    let seconds = last.end as f64 / SECOND_NS as f64 - first;
    let recorded = view::duration_text(seconds);
    let restarts = starts.len() - 1;
    let whole: Vec<f64> = starts.windows(2).skip(1).map(|pair| pair[1] - pair[0]).collect();
    let recent = whole.get(whole.len().saturating_sub(MIN_RESTARTS)..).unwrap_or_default();
    let median = beamtune_stats::median(recent).unwrap_or(f64::INFINITY);
    let current = last.end.saturating_sub(last.begin) as f64 / SECOND_NS as f64;
    let is_over = current >= OVER_FACTOR * median;
    let restarted = text::counted(restarts as f64, "restart", "restarts");
    let severity = match BETWEEN_STARTS.of(period).severity(median) {
        Some(severity) => severity,
        // A single restart does not show how long runs last.
        None if restarts == 1 => 0.0,
        None => {
            return Ok(Judgement::Healthy(match restarts {
                0 => format!("no restart in {recorded}"),
                _ => {
                    format!("{restarted} in {recorded}, the last ones {} apart", view::duration_text(median))
                }
            }));
        }
    };
    let times = text::counted(restarts as f64, "time", "times");
    let is_by_heart = [facts::INIT_ARGS, facts::COMMAND_LINE]
        .iter()
        .filter_map(|key| period.facts.list(key))
        .flatten()
        .any(|argument| argument.split(' ').next() == Some("-heart"));
    let memory = view::group_memory_used(period);
    let is_full = memory.is_some_and(|share| share >= view::NEARLY_FULL);
    let gone = period.events.iter().rev().find(|event| event.kind == "gone");
    let apart = match whole.is_empty() {
        true => String::new(),
        false => format!("median time between the last starts: {}", view::duration_text(median)),
    };
    Ok(Judgement::found(
        Draft::new(severity, format!("VM restarted {times} in {recorded}"))
            .detail(apart)
            .minor_if(is_over)
            .inferred_if(restarts < MIN_RESTARTS)
            .evidence(Evidence::number("restarts", restarts as f64, Unit::Count))
            .because_some((!whole.is_empty()).then(|| {
                Evidence::number("time between starts, recent median", median, Unit::Seconds)
                    .against_scale(BETWEEN_STARTS.of(period))
            }))
            .because_some(intervals(&whole))
            .because_some(is_by_heart.then(|| Evidence::text("restarted by", "heart, or whatever supervises it")))
            .because_some(memory.map(|share| {
                Evidence::number("maximum use of the cgroup memory limit", share, Unit::Ratio)
                    .with_text("page cache included")
            }))
            .because_some(gone.map(|event| Evidence::text("reason for the last loss", event.detail.clone())))
            .but_if(
                is_over,
                format!("it may be over: the VM has now been up for {}", view::duration_text(current)),
            )
            .but_if(restarts < MIN_RESTARTS, "a deployment or manual restarts look the same: check whether it continues")
            .fix_if(is_full, || {
                remedy::of(
                    period,
                    "host.memory_limit",
                    "if oom_kill in memory.events of the control group has grown, raise the memory limit, or limit what grows",
                    "the kernel kills a VM that exceeds it, without a crash dump",
                    "oom_kill stays the same",
                )
            })
            .remedy(remedy::of(
                period,
                "ERL_CRASH_DUMP",
                "read the slogan at the head of erl_crash.dump (in the VM's working directory, or where ERL_CRASH_DUMP says)",
                "it says why the VM ended; keep the file, since the next crash overwrites it",
                "no file after the next end means a clean stop, or a kill from outside (exit status 137 is SIGKILL)",
            ))
            .remedy(remedy::of(
                period,
                "host.restart",
                "wait longer between starts, and stop after a few attempts (systemd: RestartSec=, StartLimitBurst=)",
                "each start rebuilds caches and connections, also on other nodes",
                "time between starts; the cause remains to be found",
            )),
    ))
}

/// Returns the times between starts, latest last; `None` for fewer than two.
fn intervals(whole: &[f64]) -> Option<Evidence> {
    let shown: Vec<_> =
        whole.iter().rev().take(MAX_LISTED).rev().map(|seconds| view::duration_text(*seconds)).collect();
    let list = shown.join(", ");
    (whole.len() > 1).then(|| {
        let list = if whole.len() > MAX_LISTED { format!("the last ones: {list}") } else { list };
        Evidence::text("times between starts", list)
    })
}
