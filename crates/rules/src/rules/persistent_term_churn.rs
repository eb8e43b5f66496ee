//! BT048: persistent terms are replaced over and over. Each time all processes are searched for the old one.
//!
//! The VM has a process for that, the collector of literal areas. It asks each process once for each term that goes, so its reductions
//! tell how many searches there were.

use beamtune_model::{
    Account, Code, Cost, Evidence, Missing, Period, ProcessUse, Scale, Subject, Threshold, Unit, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule, Topic};
use crate::signals::own_effect;
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT048"),
    name: "persistent-term-churn",
    question: "Are persistent terms replaced over and over?",
    confirm: "stop writing these terms for a minute: the literal area collector must have nothing to do",
    needs: &[&metrics::SCAN_REDUCTIONS, &metrics::PROCESS_COUNT, &metrics::PROCESS_USER],
    account: Account::CpuUsed,
    topics: &[Topic::MemoryCpu],
    judge,
    thresholds: &[COST],
    ..Rule::COMMON
};

/// What the collector was started with.
const COLLECTOR: &str = "erts_literal_area_collector:start/0";

/// Reductions of the collector for each process that is searched, from that release on (measured: lab persistent-term-churn).
const PER_SEARCH_REDUCTIONS: [(u32, f64); 3] = [(21, 11.0), (25, 19.0), (27, 35.0)];

/// What a search of a small process costs, with its turn on a scheduler, in seconds: 40,000 a second took 0.20 cores (the same lab, all
/// releases).
const SEARCH_SECONDS: f64 = 5e-6;

/// Of the CPU that the VM uses, what the searches take.
const COST: Threshold = Threshold::new(
    "persistent-term-churn.cpu_share",
    "searching heaps for old terms, share of the CPU that the VM uses",
    Scale {
        notice: 0.03,
        warning: 0.10,
        critical: 0.60,
        source: "judgement; 5 µs for a search of a process with 2,000 words were measured, large heaps take longer",
    },
);

/// Below this nobody would win anything by a change.
const WORTH_CORES: f64 = 0.01;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let all = period.rate(&metrics::SCAN_REDUCTIONS, "")?;
    let processes = period.stat(&metrics::PROCESS_COUNT, "")?.mean().max(1.0);
    let used = view::process_cores(period)?;
    let release = period.facts.otp_release().unwrap_or(0);
    let measured = PER_SEARCH_REDUCTIONS
        .iter()
        .rfind(|(since, _)| release >= *since)
        .unwrap_or(&PER_SEARCH_REDUCTIONS[2]);
    let all_reductions: i64 = period
        .processes
        .iter()
        .filter(|process| is_collector(process))
        .map(|process| process.reductions)
        .sum();
    let own = own_effect::purge_reductions(processes, measured.1);
    let reductions = (all_reductions as f64 - own).max(0.0) / period.seconds().max(1.0);
    let searches = reductions / measured.1;
    let terms = searches / processes;
    let cores = (searches * SEARCH_SECONDS).min(used);
    let share = if used > 0.0 { cores / used } else { 0.0 };
    let Some(severity) = COST.of(period).severity(share).filter(|_| cores >= WORTH_CORES) else {
        return Ok(Judgement::Healthy(match reductions > 0.0 {
            true => format!("about {searches:.0} processes a second are searched for literals that go"),
            false => "the collector of literals is not among the busy processes".to_owned(),
        }));
    };
    let purged = period.process_named("erts_code_purger").is_some_and(|purger| purger.reductions > 0);
    let forced = period.rate(&metrics::GARBAGE_COLLECTIONS, "").ok();
    Ok(Judgement::found(
        Draft::new(
            severity,
            format!(
                "about {terms:.1} times a second all {processes:.0} processes are searched for a persistent term that was replaced or erased, for about {:.0} % of the VM's CPU",
                share * 100.0
            ),
        )
        .about(Subject::table("persistent_term"))
        .costs(Cost::CpuCores(cores))
        .because(Evidence::number("searched processes", searches, Unit::PerSecond).with_text(format!("the collector's reductions, {:.0} for each", measured.1)))
        .because(Evidence::number("CPU that this takes", cores, Unit::Cores))
        .because(Evidence::number("of the CPU that the VM uses", share, Unit::Ratio).against_scale(COST.of(period)))
        .because(Evidence::number("the collector's share of all reductions", (reductions / all.max(1.0)).min(1.0), Unit::Ratio))
        .because(Evidence::number("processes", processes, Unit::Count))
        .because_some(forced.map(|rate| Evidence::number("collections", rate, Unit::PerSecond)))
        .but_if(purged, "modules were purged meanwhile (code-loading): their literals go the same way")
        .but("a process that still refers to the old term is collected as a whole: with large heaps it costs more than is reckoned here")
        .fix(remedy::of(
            period,
            "code.stable_persistent_terms",
            "what changes goes into ETS (read_concurrency), counters or atomics; persistent terms are set at start, or seldom and many at once; \
             a term of one word (an atom, a small integer) is replaced at no cost",
            "a term that stays is never searched for",
            "the collector's share of the reductions, and CPU per request, under the same load",
        )),
    ))
}

fn is_collector(process: &ProcessUse) -> bool {
    process.row.as_ref().and_then(|row| row.initial_call.as_deref()) == Some(COLLECTOR)
}
