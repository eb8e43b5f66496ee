//! BT087: a supervisor is busy although it hardly starts children.
//!
//! `which_children`, `count_children` and `terminate_child` go through all children, and `which_children` copies a list of them to the
//! caller. If each request calls a supervisor, the starts of children are delayed as well.

use beamtune_model::{
    Account, Code, Confidence, Cost, Evidence, Missing, Period, ProcessActivity, ProcessRow, Scale, Subject,
    Threshold, Unit, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::signals::counts::{largest_first, listed};
use crate::signals::{stack, supervisors};
use crate::text;
use crate::view::{self, kind};

pub const RULE: Rule = Rule {
    code: Code("BT087"),
    name: "busy-supervisor",
    question: "Is a supervisor busy with work other than starting children?",
    confirm: "find the code that calls which_children or count_children of this supervisor: it runs on each request",
    needs: &[&metrics::SCAN_REDUCTIONS, &metrics::SCHEDULER_ACTIVE, &metrics::SPAWNED],
    account: Account::CpuUsed,
    confidence: Confidence::Inferred,
    explains_as_notice: true,
    judge,
    thresholds: &[SHARE],
    ..Rule::COMMON
};

const SHARE: Threshold = Threshold::new(
    "busy-supervisor.reductions_share",
    "share of all reductions that a supervisor uses for work other than starting children",
    Scale {
        notice: 0.05,
        warning: 0.15,
        critical: f64::INFINITY,
        source: "judgement: a supervisor that only starts and restarts children does next to nothing",
    },
);

/// Minimum work of a node that is evaluated, in cores of all processes (judgement).
const MIN_CORES: f64 = 0.1;

/// Maximum number of callers that are named.
const MAX_CALLERS: usize = 3;

/// Reductions that the start and exit of a child may cost a supervisor (judgement; a child without arguments costs some hundreds).
const REDUCTIONS_PER_CHILD: f64 = 2_000.0;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let total = view::all_reductions(period)?.max(1.0);
    let active = view::activity(period, kind::SCHEDULER)?.cores();
    let started = view::spawn_rate(period)? * period.seconds();
    let mut max_share = 0.0_f64;
    let mut drafts = Vec::new();
    for process in &period.processes {
        let Some(row) = process.row.as_ref().filter(|row| supervisors::is_supervisor(row)) else { continue };
        // A start may copy large arguments, so a supervisor that starts children must have been sampled while it listed them.
        if supervisors::starts(period, row) > 0 && !supervisors::lists_children(process) {
            continue;
        }
        // All new processes may be its children, and each crash of a child causes one more start.
        let children = started + supervisors::crashes(period, row) as f64;
        let other_work = process.reductions as f64 - REDUCTIONS_PER_CHILD * children;
        let share = (other_work / total).clamp(0.0, 1.0);
        max_share = max_share.max(share);
        let severity = SHARE.of(period).severity(share).filter(|_| active >= MIN_CORES);
        drafts.extend(severity.map(|severity| describe(period, process, row, share, active, severity)));
    }
    Ok(Judgement::found_or_healthy(
        drafts,
        format!("supervisors: at most {:.0} % of the work, child starts excluded", 100.0 * max_share),
    ))
}

fn describe(
    period: &Period,
    process: &ProcessActivity,
    row: &ProcessRow,
    share: f64,
    active: f64,
    severity: f64,
) -> Draft {
    let callers = callers(period, &process.pid);
    let subject = Subject::process(&process.title());
    let spawn_rate = view::spawn_rate(period).unwrap_or(0.0);
    let title = format!(
        "Supervisor {} does {:.0} % of the work, likely which_children calls",
        text::name(&subject),
        100.0 * share
    );
    Draft::new(severity, title)
        .detail(text::pid(&subject))
        .detail(format!("{} cores", text::cores(share * active)))
        .detail(callers.first().map(|(caller, _)| format!("called by {caller}")).unwrap_or_default())
        .detail(format!("the node starts {} processes/s", text::rate(spawn_rate)))
        .about(subject)
        .costs(Cost::CpuCores(share * active))
        .evidence(
            Evidence::number("share of reductions without child starts", share, Unit::Ratio)
                .against_scale(SHARE.of(period)),
        )
        .evidence(Evidence::number("spawn rate of the node", spawn_rate, Unit::PerSecond))
        .because_some(stack::evidence(process))
        .because_some(
            (!callers.is_empty()).then(|| Evidence::text("callers that wait for it", listed(&callers, MAX_CALLERS))),
        )
        .but_if(
            supervisors::starts(period, row) > 0,
            format!(
                "it does start children: {REDUCTIONS_PER_CHILD:.0} reductions were subtracted for each new process of the node"
            ),
        )
        .remedy(remedy::of(
            period,
            "code.index_of_children",
            "keep an index from key to pid (a via name, Registry, or an ETS table that the child writes in its init), and a counter instead of count_children",
            "a lookup by key takes a microsecond for any number of children; which_children copies a list of all, and no child starts meanwhile",
            "reductions per second of the supervisor, and CPU per request, under the same load",
        ))
}

/// Functions of the application in which sampled processes wait for the supervisor, with their counts, most frequent first.
fn callers<'p>(period: &'p Period, pid: &str) -> Vec<(&'p str, i64)> {
    largest_first(period.wait_samples.stacks.iter().filter_map(|place| {
        let waiting = place.targets.iter().find(|on| on.name == pid)?;
        Some((stack::of_program(&place.stack)?, waiting.count))
    }))
}
