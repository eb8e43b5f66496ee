//! BT087: a supervisor works all the time, and hardly starts a child.
//!
//! `which_children`, `count_children` and `terminate_child` go through all children, and `which_children` copies a list of them to the caller.
//! A supervisor that is asked at each request holds up each start of a child as well.

use beamtune_model::{
    Account, Code, Confidence, Cost, Evidence, Missing, Period, ProcessRow, ProcessUse, Scale, Subject,
    Threshold, Unit, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::signals::counts::{largest_first, listed};
use crate::signals::{stack, supervisors};
use crate::view::{self, kind};

pub const RULE: Rule = Rule {
    code: Code("BT087"),
    name: "busy-supervisor",
    question: "Is a supervisor busy with other things than starting children?",
    confirm: "the code that calls which_children or count_children of this supervisor, or goes through its children to find one: how often it does so in a second",
    needs: &[&metrics::SCAN_REDUCTIONS, &metrics::SCHEDULER_ACTIVE, &metrics::SPAWNED],
    account: Account::CpuUsed,
    confidence: Confidence::Inferred,
    explains_as_notice: true,
    judge,
    thresholds: &[SHARE],
    ..Rule::COMMON
};

/// Its share of all reductions.
const SHARE: Threshold = Threshold::new(
    "busy-supervisor.reductions_share",
    "share of all reductions that a supervisor does beside starting children",
    Scale {
        notice: 0.05,
        warning: 0.15,
        critical: f64::INFINITY,
        source: "judgement: a supervisor that only starts and restarts children does next to nothing",
    },
);

/// Less work than this is nobody's trouble yet, in cores of all processes (judgement).
const WORTH_CORES: f64 = 0.1;

/// Callers that are named.
const MAX_CALLERS: usize = 3;

/// What starting a child, and noticing its end, may take a supervisor, in reductions (judgement; some hundreds for a child without
/// arguments).
const REDUCTIONS_PER_CHILD: f64 = 2_000.0;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let total = view::all_reductions(period)?.max(1.0);
    let active = view::activity(period, kind::SCHEDULER)?.cores();
    let started = view::spawn_rate(period)? * period.seconds();
    let mut most = 0.0_f64;
    let mut drafts = Vec::new();
    for process in &period.processes {
        let Some(row) = process.row.as_ref().filter(|row| supervisors::is_supervisor(row)) else { continue };
        // A start may copy much: of one that starts children it has to be seen.
        if supervisors::starts(period, row) > 0 && !supervisors::lists_children(process) {
            continue;
        }
        // All new processes may be its children, and each end of one with an error is a start more.
        let children = started + supervisors::crashes(period, row) as f64;
        let asked = process.reductions as f64 - REDUCTIONS_PER_CHILD * children;
        let share = (asked / total).clamp(0.0, 1.0);
        most = most.max(share);
        let severity = SHARE.of(period).severity(share).filter(|_| active >= WORTH_CORES);
        drafts.extend(severity.map(|severity| describe(period, process, row, share, active, severity)));
    }
    Ok(Judgement::found_or_healthy(
        drafts,
        format!("no supervisor does more than {:.0} % of the work beside starting children", 100.0 * most),
    ))
}

fn describe(
    period: &Period,
    process: &ProcessUse,
    row: &ProcessRow,
    share: f64,
    active: f64,
    severity: f64,
) -> Draft {
    let callers = callers(period, &process.pid);
    let by = callers.first().map(|(caller, _)| format!(", by {caller}")).unwrap_or_default();
    Draft::new(
        severity,
        format!(
            "supervisor {} does {:.0} % of the node's work, and not by starting children: most likely it is asked for them again and again{by}",
            process.title(),
            100.0 * share
        ),
    )
    .about(Subject::process(&process.title()))
    .costs(Cost::CpuCores(share * active))
    .because(
        Evidence::number("its share of all reductions, beside starting children", share, Unit::Ratio)
            .against_scale(SHARE.of(period)),
    )
    .because(Evidence::number("new processes of the node", view::spawn_rate(period).unwrap_or(0.0), Unit::PerSecond))
    .because_some(stack::evidence(process))
    .because_some((!callers.is_empty()).then(|| {
        Evidence::text("sampled processes that wait for its answer, by code", listed(&callers, MAX_CALLERS))
    }))
    .but_if(
        supervisors::starts(period, row) > 0,
        format!("it does start children: {REDUCTIONS_PER_CHILD:.0} reductions are left out for each new process of the node"),
    )
    .fix(remedy::of(
        period,
        "code.index_of_children",
        "keep an index from what is searched for to the pid (a via name, Registry, or an ETS table that the child writes in its init), and a counter in place of count_children",
        "a look-up by key takes a microsecond however many children there are; which_children copies a list of all to the caller, and no child is started meanwhile",
        "reductions a second of the supervisor, and CPU per request, under the same load",
    ))
}

/// The code of the program that waits for it in sampled processes, and how often, the most frequent first.
fn callers<'p>(period: &'p Period, pid: &str) -> Vec<(&'p str, i64)> {
    largest_first(period.stands.places.iter().filter_map(|place| {
        let waiting = place.on.iter().find(|on| on.who == pid)?;
        Some((stack::of_program(&place.stack)?, waiting.count))
    }))
}
