//! BT068: lookups copy large objects out of ETS tables.

use beamtune_model::{
    Account, Code, Cost, CpuUse, Evidence, Missing, Period, ProcessActivity, Scale, Signal, TableRow,
    Threshold, Unit, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule, Topic};
use crate::signals::counts::largest_first;
use crate::signals::lock_suspects::{self, LARGE_OBJECT_BYTES};
use crate::signals::memory::{self, WORD_BYTES};
use crate::signals::{hot_code, products, stack};
use crate::text;
use crate::view::{self, kind};

pub const RULE: Rule = Rule {
    code: Code("BT068"),
    name: "large-objects",
    question: "Are large objects copied out of ETS tables?",
    confirm: "call erts_debug:size/1 with a lookup's result; with the term in persistent_term, garbage falls under the same load",
    needs: &[&metrics::GC_WORDS_RECLAIMED, &metrics::PROCESS_USER],
    account: Account::CpuUsed,
    topics: &[Topic::MemoryCpu],
    judge,
    thresholds: &[COST],
    ..Rule::COMMON
};

/// Less garbage per second is not worth a finding (judgement: it costs about 5 % of a core).
const MIN_BYTES_PER_S: f64 = 100e6;

/// Bytes that one core copies out of a table per second. Measured: 1.6 to 6.6 GB on OTP 25 and 27 (lists, tuples and maps of 0.6 to 1.1
/// MB). The fast end is used, so that the cost is a lower bound.
const COPIED_BYTES_PER_CORE_S: f64 = 6e9;

const COST: Threshold = Threshold::new(
    "large-objects.cpu_share",
    "copying and GC, share of the VM's CPU",
    Scale {
        notice: 0.05,
        warning: 0.15,
        critical: 0.60,
        source: "judgement: objects that are not copied cause no GC either",
    },
);

/// Minimum share of the sampled work done by processes with such heaps (judgement: more than half).
const MIN_WORK_SHARE: f64 = 0.5;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let garbage = period.rate(&metrics::GC_WORDS_RECLAIMED, "")? * WORD_BYTES;
    let used = view::process_cores(period)?;
    // Operators of a product cannot change its tables.
    let is_own = !products::is_of_others(period);
    let mut suspects: Vec<(&TableRow, f64)> = lock_suspects::of_large_objects(period);
    suspects.retain(|(table, _)| is_own && table.protection != "private");
    let healthy = |why: String| {
        Ok(Judgement::Healthy(format!(
            "tables with a mean object size of {} or more: {}{why}",
            text::bytes(LARGE_OBJECT_BYTES),
            suspects.len()
        )))
    };
    let Some(&(table, each)) = suspects.first() else {
        return healthy(String::new());
    };
    let holding = share_with_such_heaps(period, each);
    if garbage < MIN_BYTES_PER_S || holding < MIN_WORK_SHARE {
        return healthy(format!(
            "; {}/s of garbage, {:.0} % of sampled work in processes with such heaps",
            text::bytes(garbage),
            holding * 100.0
        ));
    }
    let collecting = view::gc(period, &[kind::SCHEDULER, kind::DIRTY_CPU])?.gc;
    let cost = collecting + garbage / COPIED_BYTES_PER_CORE_S;
    let share = cost / used.max(cost).max(f64::MIN_POSITIVE);
    let Some(severity) = COST.of(period).severity(share) else {
        return healthy(format!("; copies and their GC take {:.0} % of the VM's CPU", share * 100.0));
    };
    let draft = Draft::new(
        severity,
        format!("Lookups likely copy objects of {} out of ETS table `{}`", text::bytes(each), table.name),
    )
    .detail(format!("copies and GC take {} cores, {:.0} % of the VM's CPU", text::cores(cost), share * 100.0))
    .detail(format!(
        "up to {} lookups/s by {}/s of garbage",
        text::number((garbage / each).round()),
        text::bytes(garbage)
    ))
    .detail(format!("owner {}", owner(period, table)))
    .detail(readers(period, table, each))
    .about(table.subject())
    .signals(copiers(period, table).map(|process| Signal::WorkOf(process.subject())))
    .signals(memory::is_segment_rate(period, garbage / each).then_some(Signal::Allocates))
    .inferred_if(true)
    // With more candidate tables, it may be any of them.
    .guess_if(suspects.len() > MAX_SUSPECTS)
    .costs(Cost::CpuCores(cost))
    .part(CpuUse::GarbageCollection)
    .evidence(
        Evidence::number("mean object size", each, Unit::Bytes)
            .against(LARGE_OBJECT_BYTES, "as of messages (BT055)"),
    )
    .evidence(
        Evidence::number("objects", table.objects as f64, Unit::Count)
            .with_text(format!("owner {}", owner(period, table))),
    )
    .evidence(Evidence::number("garbage per second", garbage, Unit::Bytes))
    .evidence(Evidence::number("lookups that would explain it, upper bound", garbage / each, Unit::PerSecond))
    .evidence(Evidence::number("GC time", collecting, Unit::Cores))
    .evidence(Evidence::number("GC share of the VM's CPU", share, Unit::Ratio).against_scale(COST.of(period)))
    .evidence(Evidence::number(
        "sampled work of processes whose heap has room for such an object",
        holding,
        Unit::Ratio,
    ))
    .counter_evidence(
        "processes that build equally large terms look the same: check their current functions",
    );
    let draft = suspects.iter().filter(|(other, _)| other.id != table.id).take(MAX_SUSPECTS).fold(
        draft,
        |draft, (other, each)| {
            draft.evidence(Evidence::number(
                format!("mean object size of {}", other.name),
                *each,
                Unit::Bytes,
            ))
        },
    );
    Ok(Judgement::found(draft.remedy(remedy::of(
        period,
        "code.shared_term",
        "use persistent_term for a term that rarely changes; otherwise store one object per part that is looked up, or a binary",
        "ets:lookup/2 copies the whole object to the caller's heap; persistent terms and large binaries are shared",
        "garbage per second and CPU per request under the same load",
    ))))
}

/// Returns the registered name of the owner; otherwise its title.
fn owner(period: &Period, table: &TableRow) -> String {
    table.owner_name.clone().unwrap_or_else(|| period.title_of(&table.owner))
}

/// Functions that copy objects to the caller's heap.
const LOOKUPS: [&str; 3] = ["ets:lookup", "ets:take/", "ets:tab2list/"];

/// Maximum number of functions or processes that are named.
const MAX_READERS: usize = 2;

/// Formats what looks up these objects: functions sampled in lookups; otherwise busy processes whose heaps have room for a copy.
fn readers(period: &Period, table: &TableRow, each: f64) -> String {
    let lookups = hot_code::samples(period).into_iter().filter_map(|sample| {
        let is_lookup = stack::innermost(sample.stack).is_some_and(|at| stack::begins(at, &LOOKUPS));
        Some((stack::without_fun(stack::of_program(sample.stack).filter(|_| is_lookup)?), sample.looks))
    });
    let callers: Vec<String> = largest_first(lookups).into_iter().map(|(caller, _)| caller).collect();
    if !callers.is_empty() {
        return format!("read in {}", text::names(&callers, MAX_READERS));
    }
    let is_reader = |process: &&ProcessActivity| {
        process.reductions > 0
            && process.pid != table.owner
            && heap_bytes(process).is_some_and(|heap| heap >= each)
    };
    let mut readers: Vec<&ProcessActivity> = period.processes.iter().filter(is_reader).collect();
    readers.sort_by(|a, b| b.reductions.cmp(&a.reductions).then_with(|| a.pid.cmp(&b.pid)));
    let names: Vec<String> = readers.iter().map(|process| text::name(&process.subject())).collect();
    match names.is_empty() {
        true => "the readers are not recorded".to_owned(),
        false => format!("likely read by {}, by the size of their heaps", text::names(&names, MAX_READERS)),
    }
}

/// Returns the processes that mostly copy objects of this table, by their samples.
fn copiers<'p>(period: &'p Period, table: &'p TableRow) -> impl Iterator<Item = &'p ProcessActivity> {
    period.processes.iter().filter(move |process| {
        lock_suspects::copied_by(period, process).is_some_and(|(copied, _, _)| copied.name == table.name)
    })
}

/// With more candidate tables, the finding is a guess (judgement).
const MAX_SUSPECTS: usize = 3;

/// Returns the share of the sampled reductions that is done by processes whose heap has room for such an object.
fn share_with_such_heaps(period: &Period, bytes: f64) -> f64 {
    let known = || period.processes.iter().filter_map(|process| Some((process, heap_bytes(process)?)));
    let work = |large: bool| -> f64 {
        known()
            .filter(|(_, heap)| !large || *heap >= bytes)
            .map(|(process, _)| process.reductions as f64)
            .sum()
    };
    let all = work(false);
    if all > 0.0 { work(true) / all } else { 0.0 }
}

fn heap_bytes(process: &ProcessActivity) -> Option<f64> {
    Some(process.row.as_ref()?.total_heap_words? as f64 * WORD_BYTES)
}
