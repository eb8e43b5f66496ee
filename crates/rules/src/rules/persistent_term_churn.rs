//! BT048: persistent terms are replaced often, and each time all processes are scanned for the old term.
//!
//! The VM's literal area collector sends a request to each process for each removed term, so its reductions show the number of scans.

use beamtune_model::{
    Account, Code, Cost, Evidence, Missing, Period, ProcessActivity, Scale, Subject, Threshold, Unit, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule, Topic};
use crate::signals::own_effect;
use crate::text;
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT048"),
    name: "persistent-term-churn",
    question: "Are persistent terms replaced often?",
    confirm: "stop writing these terms for a minute: the literal area collector becomes idle",
    needs: &[&metrics::SCAN_REDUCTIONS, &metrics::PROCESS_COUNT, &metrics::PROCESS_USER],
    account: Account::CpuUsed,
    topics: &[Topic::MemoryCpu],
    judge,
    thresholds: &[COST],
    ..Rule::COMMON
};

/// Initial call of the literal area collector.
const COLLECTOR: &str = "erts_literal_area_collector:start/0";

/// Reductions of the collector per scanned process, by the first release with that value (measured: lab persistent-term-churn).
const REDUCTIONS_PER_SCAN: [(u32, f64); 3] = [(21, 11.0), (25, 19.0), (27, 35.0)];

/// CPU time to scan a small process, including its scheduling: 40,000 scans per second took 0.20 cores (the same lab, all releases).
const SCAN_SECONDS: f64 = 5e-6;

const COST: Threshold = Threshold::new(
    "persistent-term-churn.cpu_share",
    "scanning heaps for old terms, share of the CPU that the VM uses",
    Scale {
        notice: 0.03,
        warning: 0.10,
        critical: 0.60,
        source: "judgement; 5 µs for a process of 2,000 words were measured, large heaps take longer",
    },
);

/// A lower cost is not worth a change.
const MIN_CORES: f64 = 0.01;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let all = period.rate(&metrics::SCAN_REDUCTIONS, "")?;
    let processes = period.stat(&metrics::PROCESS_COUNT, "")?.mean().max(1.0);
    let used = view::process_cores(period)?;
    let release = period.facts.otp_release().unwrap_or(0);
    let (_, per_scan) =
        *REDUCTIONS_PER_SCAN.iter().rfind(|(since, _)| release >= *since).unwrap_or(&REDUCTIONS_PER_SCAN[2]);
    let all_reductions: i64 = period
        .processes
        .iter()
        .filter(|process| is_collector(process))
        .map(|process| process.reductions)
        .sum();
    let own = own_effect::purge_reductions(processes, per_scan);
    let reductions = (all_reductions as f64 - own).max(0.0) / period.seconds().max(1.0);
    let scans = reductions / per_scan;
    let terms = scans / processes;
    let cores = (scans * SCAN_SECONDS).min(used);
    let share = if used > 0.0 { cores / used } else { 0.0 };
    let Some(severity) = COST.of(period).severity(share).filter(|_| cores >= MIN_CORES) else {
        return Ok(Judgement::Healthy(match reductions > 0.0 {
            true => format!("{} processes/s scanned for removed literals", text::number(scans.round())),
            false => "literal area collector not among the busiest processes".to_owned(),
        }));
    };
    let purged = period.process_named("erts_code_purger").is_some_and(|purger| purger.reductions > 0);
    let collections = period.rate(&metrics::GARBAGE_COLLECTIONS, "").ok();
    Ok(Judgement::found(
        Draft::new(
            severity,
            format!(
                "Persistent terms replaced {} times per second: {:.0} % of the VM's CPU",
                text::rate(terms),
                share * 100.0
            ),
        )
        .detail(format!("each time all {} processes are scanned", text::number(processes.round())))
        .detail(format!("{} cores", text::cores(cores)))
        .about(Subject::table("persistent_term"))
        .costs(Cost::CpuCores(cores))
        .evidence(
            Evidence::number("scanned processes", scans, Unit::PerSecond)
                .with_text(format!("reductions of the collector / {per_scan:.0}")),
        )
        .evidence(Evidence::number("CPU of these scans", cores, Unit::Cores))
        .evidence(Evidence::number("share of the VM's CPU", share, Unit::Ratio).against_scale(COST.of(period)))
        .evidence(Evidence::number(
            "collector's share of all reductions",
            (reductions / all.max(1.0)).min(1.0),
            Unit::Ratio,
        ))
        .evidence(Evidence::number("processes", processes, Unit::Count))
        .because_some(collections.map(|rate| Evidence::number("garbage collections", rate, Unit::PerSecond)))
        .but_if(purged, "modules were purged too (code-loading): their literals are removed the same way")
        .counter_evidence("a process that still refers to the old term does a fullsweep: large heaps cost more than estimated")
        .remedy(remedy::of(
            period,
            "code.stable_persistent_terms",
            "keep changing data in ETS (read_concurrency), counters or atomics; set persistent terms at start, or \
             rarely and many at once",
            "replacing a term scans all processes, unless it has one word (atom, small integer)",
            "the collector's share of reductions, and CPU per request, under the same load",
        )),
    ))
}

fn is_collector(process: &ProcessActivity) -> bool {
    process.row.as_ref().and_then(|row| row.initial_call.as_deref()) == Some(COLLECTOR)
}
