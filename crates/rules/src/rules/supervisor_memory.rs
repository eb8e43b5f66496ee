//! BT080: a supervisor holds more memory than its children account for.
//!
//! A supervisor that is not `simple_one_for_one` keeps the specification of a permanent or transient child that has ended normally. It
//! keeps it, with the start arguments, until `supervisor:delete_child/2` (supervisor.erl: `del_child`).

use beamtune_model::{
    Account, Code, Cost, Evidence, Missing, Period, ProcessActivity, ProcessRow, Scale, Threshold, Unit,
    metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule, Topic};
use crate::signals::memory;
use crate::signals::supervisors;
use crate::text;

pub const RULE: Rule = Rule {
    code: Code("BT080"),
    name: "supervisor-memory",
    question: "Does a supervisor hold specifications of children that have ended?",
    confirm: "call supervisor:count_children(Sup): specs far above active, and growing; if they are equal, it holds large start arguments",
    needs: &[&metrics::RSS, &metrics::PROCESS_COUNT],
    account: Account::Memory,
    confidence: beamtune_model::Confidence::Inferred,
    topics: &[Topic::Memory],
    explains_as_notice: true,
    judge,
    thresholds: &[SHARE],
    ..Rule::COMMON
};

const SHARE: Threshold = Threshold::new(
    "supervisor-memory.heap_share",
    "heap of a supervisor, share of resident memory",
    Scale {
        notice: 0.02,
        warning: 0.1,
        critical: 1_000.0,
        source: "judgement: supervisors need almost no memory",
    },
);

/// A smaller heap is not worth a change (judgement).
const MIN_HEAP_BYTES: i64 = 4_000_000;

/// Minimum heap of a supervisor per process of the node. The number of processes is an upper bound of its children. A specification takes
/// some 30 words plus its arguments, and twice that with garbage (supervisor.erl; measured on OTP 29: 0.2 kB for a child without
/// arguments). A supervisor with less may just have many children (judgement).
const MIN_BYTES_PER_PROCESS: f64 = 10_000.0;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let resident = memory::resident(period)?;
    let processes = period.stat(&metrics::PROCESS_COUNT, "")?.max.max(1) as f64;
    let supervisors: Vec<(&ProcessActivity, &ProcessRow)> = period
        .processes
        .iter()
        .filter_map(|process| Some((process, process.row.as_ref()?)))
        .filter(|(_, row)| supervisors::is_supervisor(row))
        .collect();
    let max_bytes = supervisors.iter().map(|(_, row)| row.memory_bytes).max().unwrap_or(0);
    let drafts = supervisors.into_iter().filter_map(|(process, row)| {
        let is_large = row.memory_bytes >= MIN_HEAP_BYTES
            && row.memory_bytes as f64 / processes >= MIN_BYTES_PER_PROCESS
            && row.queue == 0;
        let severity = SHARE.of(period).severity(row.memory_bytes as f64 / resident.max(1.0));
        severity.filter(|_| is_large).map(|severity| describe(period, process, row, processes, severity))
    });
    let healthy = match max_bytes {
        0 => "no supervisor among the processes with the largest heaps".to_owned(),
        _ => format!("largest heap of a supervisor: {}", text::bytes(max_bytes as f64)),
    };
    Ok(Judgement::found_or_healthy(drafts.collect(), healthy))
}

fn describe(
    period: &Period,
    process: &ProcessActivity,
    row: &ProcessRow,
    processes: f64,
    severity: f64,
) -> Draft {
    let is_dynamic = supervisors::is_dynamic(row);
    let (ended, started) = (supervisors::ends(period, row), supervisors::starts(period, row));
    let has_churn = ended > 0 || started > 0;
    let bytes = row.memory_bytes as f64;
    let subject = process.subject();
    let holds = match is_dynamic {
        true => "it likely holds large start arguments of its children",
        false => "it likely keeps specifications of children that have ended",
    };
    Draft::new(severity, format!("Supervisor {} holds {} of heap", text::name(&subject), text::bytes(bytes)))
        .detail(text::pid(&subject))
        .detail(holds)
        .detail(match ended {
            0 => String::new(),
            _ => format!("{} seen to end", text::counted(ended as f64, "child", "children")),
        })
        .about(subject)
        .minor_if(!has_churn)
        .costs(Cost::MemoryBytes(bytes))
        .evidence(Evidence::number("heap of the supervisor", bytes, Unit::Bytes))
        .evidence(
            Evidence::number("heap per process of the node", bytes / processes, Unit::Bytes)
                .with_text(format!("{processes:.0} processes"))
                .against(MIN_BYTES_PER_PROCESS, "judgement: a specification takes less than 1 kB"),
        )
        .because_some(
            (ended > 0).then(|| Evidence::number("children that ended normally", ended as f64, Unit::Count)),
        )
        .because_some((started > 0).then(|| Evidence::number("new children", started as f64, Unit::Count)))
        .but_if(!is_dynamic, "large start arguments look the same: each specification keeps those of its child")
        .but_if(!has_churn, "no child was recorded to start or end")
        .fix_if(!is_dynamic, || {
            remedy::of(
                period,
                "code.temporary_children",
                "restart => temporary for children that end normally, simple_one_for_one for many of a kind, or \
                 supervisor:delete_child(Sup, Id) after each end",
                "the specification of a permanent or transient child stays when it ends normally, with its start arguments",
                "supervisor:count_children(Sup): specs stay near active",
            )
        })
        .remedy(remedy::of(
            period,
            "code.small_start_arguments",
            "start children with an id or key, and let them read the rest in init",
            "the supervisor keeps the start arguments of each child",
            "heap of the supervisor under the same load",
        ))
}
