//! BT031: idle or nearly idle processes keep large heaps that earlier work needed. Without work there is no GC.

use beamtune_model::{
    Account, Code, Cost, Evidence, Group, Missing, Period, ProcessActivity, ProcessRow, Rank, Remedy, Scale,
    Threshold, Unit, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, MINOR, Rule, Topic};
use crate::signals::collected::{self, Measured};
use crate::signals::memory;
use crate::signals::stack;
use crate::text;

pub const RULE: Rule = Rule {
    code: Code("BT031"),
    name: "idle-heaps",
    question: "Do idle processes keep large heaps?",
    confirm: "run beamtune memory --what-if collect: it estimates what a GC of these heaps would return",
    needs: &[&metrics::RSS, &metrics::SCAN_PROCESSES],
    account: Account::Memory,
    topics: &[Topic::Memory],
    judge,
    thresholds: &[SHARE],
    ..Rule::COMMON
};

const SHARE: Threshold = Threshold::new(
    "idle-heaps.heap_share",
    "heaps of idle processes, share of resident memory",
    Scale { notice: 0.10, warning: 0.25, critical: 0.75, source: "judgement" },
);

/// Minimum size of a heap that is worth a change.
const MIN_HEAP_BYTES: i64 = 4_000_000;

/// Minimum number of nearly idle processes of one kind with large heaps. A single one most likely keeps data that others ask it for
/// (judgement).
const MIN_ALIKE: usize = 3;

/// Minimum size of all these heaps together that is worth a change.
const MIN_TOTAL_BYTES: f64 = 48e6;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let resident = memory::resident(period)?;
    let scanned = period.stat(&metrics::SCAN_PROCESSES, "")?.last.value;
    let mut idle: Vec<(&ProcessActivity, &ProcessRow)> = period
        .processes
        .iter()
        .filter_map(|process| Some((process, process.row.as_ref()?)))
        .filter(|(process, row)| {
            let waits = row.status.as_deref().is_none_or(|status| status == "waiting");
            // Queued messages are the subject of BT006, and may be what the heap contains.
            let works =
                !memory::is_idle(period, process) && !memory::hardly_works(period, process, row.memory_bytes);
            let quiet = !works && row.queue == 0 && waits;
            let is_large = row.ranks.contains(&Rank::Memory) && row.memory_bytes >= MIN_HEAP_BYTES;
            // A hibernated process has no garbage.
            quiet && is_large && !memory::hibernates(row)
        })
        .collect();
    let all = idle.clone();
    idle.retain(|(process, row)| {
        memory::is_idle(period, process)
            || all.iter().filter(|(other, _)| is_alike(other, row)).count() >= MIN_ALIKE
    });
    idle.sort_by_key(|(_, row)| std::cmp::Reverse(row.memory_bytes));
    // A requested GC has measured the garbage; that replaces the estimate.
    let measured: Vec<(Measured, &ProcessActivity)> = idle
        .iter()
        .filter_map(|(process, _)| Some((collected::of_process(period, process)?, *process)))
        .collect();
    idle.retain(|(process, _)| {
        measured.iter().all(|(measured, of)| of.pid != process.pid || !measured.is_little())
    });
    let sampled = collected::of_sampled_heaps(period);
    if sampled.is_some_and(Measured::is_little) {
        idle.clear();
    }
    let returned = |process: &ProcessActivity| {
        measured.iter().find(|(_, of)| of.pid == process.pid).map(|(measured, _)| measured.freed)
    };
    let share = sampled.map_or(1.0, |sampled| sampled.freed / sampled.before);
    let sampled_bytes = idle
        .iter()
        .fold(0.0, |sum, (process, row)| sum + returned(process).unwrap_or(share * row.memory_bytes as f64));
    let is_measured =
        sampled.is_some() || !idle.is_empty() && idle.iter().all(|(process, _)| returned(process).is_some());
    let swept = if is_measured {
        0.0
    } else {
        bytes_of(
            idle.iter()
                .filter(|(process, _)| returned(process).is_none())
                .map(|(_, row)| *row)
                .filter(|row| row.minor_gcs == Some(0)),
        )
    };
    // The largest processes have rows. Of the others, only the sum is known, and they may differ.
    let large = period.processes.iter().filter_map(|process| process.row.as_ref());
    let all_large = bytes_of(large.filter(|row| row.ranks.contains(&Rank::Memory)));
    let all = period.find(Group::Memory, "", "processes").map_or(0.0, |stat| stat.last.value as f64);
    let with_others = all * sampled_bytes / all_large.max(1.0);
    // A process that is called now and then may keep the data of its replies.
    let asked = idle.iter().filter(|(process, _)| !memory::is_idle(period, process));
    let asked = if is_measured { 0.0 } else { bytes_of(asked.map(|(_, row)| *row)) };
    let severity_of = |bytes: f64| SHARE.of(period).severity(bytes / resident.max(1.0));
    let minor = |bytes: f64| severity_of(bytes).map(|severity| severity.min(MINOR));
    let severity = [severity_of(sampled_bytes - asked), minor(sampled_bytes), minor(with_others)];
    let severity =
        severity.into_iter().flatten().reduce(f64::max).filter(|_| sampled_bytes >= MIN_TOTAL_BYTES);
    let (Some(severity), Some((first, row))) = (severity, idle.first()) else {
        let gcs = measured.iter().map(|(measured, _)| *measured).chain(sampled);
        let gcs = gcs.filter(|measured| measured.is_little());
        return Ok(Judgement::Healthy(match gcs.reduce(|a, b| if a.before >= b.before { a } else { b }) {
            Some(Measured { before, freed }) => format!(
                "a GC returned {} of {}: heaps of idle processes are live data",
                text::bytes(freed),
                text::bytes(before)
            ),
            None => {
                format!(
                    "large heaps of idle processes: {} in {scanned} processes",
                    text::bytes(sampled_bytes)
                )
            }
        }));
    };
    let subject = first.subject();
    let name = text::name(&subject);
    let idle_text = if asked > 0.0 { "nearly idle" } else { "idle" };
    let held = text::bytes(sampled_bytes);
    let title = match idle.len() {
        1 => format!("{name} is {idle_text} and holds {held} of heap"),
        count => format!("{count} {idle_text} processes hold {held} of heap, largest {name}"),
    };
    let kind = row.initial_call.as_deref().unwrap_or("unknown");
    let same = idle.iter().filter(|(_, other)| other.initial_call == row.initial_call).count();
    let saving =
        |remedy: Remedy| if sampled_bytes > swept { remedy.saving(sampled_bytes - swept) } else { remedy };
    Ok(Judgement::found(
        Draft::new(severity, title)
            .detail(text::pid(&subject))
            .detail(format!("{:.0} % of resident memory", 100.0 * sampled_bytes / resident.max(1.0)))
            .detail(match idle.len() {
                1 => String::new(),
                count => format!(
                    "largest heap {}; {same} of {count} started with {kind}",
                    text::bytes(row.memory_bytes as f64)
                ),
            })
            .about(subject)
            // It is not visible from outside how much of it is garbage.
            .inferred_if(!is_measured)
            // A process of the same kind kept its heap in a GC.
            .guess_if(measured.iter().any(|(measured, of)| measured.is_little() && is_alike(of, row)))
            .costs(Cost::MemoryBytes(sampled_bytes))
            .evidence(
                Evidence::number("sampled heaps of idle processes", sampled_bytes, Unit::Bytes)
                    .with_text(format!(
                        "{} in all of the largest processes, idle or not",
                        text::bytes(all_large)
                    ))
                    .against(SHARE.of(period).warning * resident, SHARE.of(period).source),
            )
            .because_some((with_others > sampled_bytes).then(|| {
                Evidence::number("heaps of all idle processes, estimated", with_others, Unit::Bytes)
                    .with_text("if the other processes are similar")
            }))
            .because_some((swept > 0.0).then(|| {
                Evidence::number("heaps whose last GC was a fullsweep", swept, Unit::Bytes)
                    .with_text("garbage since then is unknown")
            }))
            .because_some((asked > 0.0).then(|| {
                Evidence::number("heaps of nearly idle processes", asked, Unit::Bytes)
                    .with_text("their work does not fill such a heap within ten minutes")
            }))
            .evidence(Evidence::text("initial call", format!("{kind} ({same} of {})", idle.len())))
            .because_some(
                row.fullsweep_after
                    .map(|n| Evidence::number("fullsweep_after of the largest", n as f64, Unit::Count)),
            )
            .because_some(
                stack::current_function(row).map(|at| Evidence::text("current function of the largest", at)),
            )
            .because_some(is_measured.then(|| {
                Evidence::number("returned by GC", sampled_bytes, Unit::Bytes).with_text("measured")
            }))
            .but_if(
                !is_measured,
                "a cache on a heap looks the same; beamtune memory --what-if collect measures the garbage",
            )
            .but_if(
                measured.iter().any(|(measured, of)| measured.is_little() && is_alike(of, row)),
                "a GC of one process of this kind returned next to nothing",
            )
            .but_if(
                period.seconds() < 60.0,
                format!("they were sampled for {:.0} s only, and may work every minute", period.seconds()),
            )
            .remedy(
                remedy::of(
                    period,
                    "code.hibernate",
                    "hibernate after work: {hibernate_after, 15000} in the start options",
                    "a heap stays large until the next GC, and an idle process has none",
                    "beamtune memory --what-if collect before; resident memory after the same load",
                )
                .map(saving),
            )
            .remedy(
                remedy::of(
                    period,
                    "code.worker_per_job",
                    "do large work in a process that exits afterwards",
                    "its heap is freed as a whole, without a GC",
                    "resident memory after the same load",
                )
                .map(saving),
            ),
    ))
}

/// Whether a process is of the same kind as another one, by its initial call.
fn is_alike(process: &ProcessActivity, row: &ProcessRow) -> bool {
    process
        .row
        .as_ref()
        .is_some_and(|other| other.initial_call.is_some() && other.initial_call == row.initial_call)
}

/// Sum of the memory of processes, in bytes.
fn bytes_of<'r>(rows: impl Iterator<Item = &'r ProcessRow>) -> f64 {
    rows.fold(0.0, |sum, row| sum + row.memory_bytes as f64)
}
