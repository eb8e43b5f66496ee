//! BT031: processes that do nothing, or hardly anything, keep large heaps: they have grown for work that is over, and nothing collects them.

use beamtune_model::{
    Account, Code, Cost, Evidence, Group, Missing, Period, ProcessRow, ProcessUse, Rank, Remedy, Scale,
    Subject, Threshold, Unit, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, MINOR, Rule, Topic};
use crate::signals::collected::{self, Measured};
use crate::signals::memory::{self, megabytes};
use crate::signals::stack;

pub const RULE: Rule = Rule {
    code: Code("BT031"),
    name: "idle-heaps",
    question: "Do idle processes keep large heaps?",
    confirm: "beamtune memory --what-if collect estimates what a collection would return; collect one of them to see it",
    needs: &[&metrics::RSS, &metrics::SCAN_PROCESSES],
    account: Account::Memory,
    topics: &[Topic::Memory],
    judge,
    thresholds: &[SHARE],
    ..Rule::COMMON
};

/// Heaps of idle processes as a share of what is resident.
const SHARE: Threshold = Threshold::new(
    "idle-heaps.heap_share",
    "heaps of idle processes, share of resident memory",
    Scale { notice: 0.10, warning: 0.25, critical: 0.75, source: "judgement" },
);

/// A heap below this is not worth a change.
const LARGE_BYTES: i64 = 4_000_000;

/// As many processes of a kind that are hardly at work count: a single one with a large heap most likely keeps what it is asked for (judgement).
const ALIKE: usize = 3;

/// All of them together.
const WORTH_BYTES: f64 = 48e6;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let resident = memory::resident(period)?;
    let scanned = period.stat(&metrics::SCAN_PROCESSES, "")?.last.value;
    let mut idle: Vec<(&ProcessUse, &ProcessRow)> = period
        .processes
        .iter()
        .filter_map(|process| Some((process, process.row.as_ref()?)))
        .filter(|(process, row)| {
            let waits = row.status.as_deref().is_none_or(|status| status == "waiting");
            // Messages that wait are a matter of their own (BT006), and may be what the heap holds.
            let works =
                !memory::is_idle(period, process) && !memory::hardly_works(period, process, row.memory_bytes);
            let quiet = !works && row.queue == 0 && waits;
            let is_large = row.ranks.contains(&Rank::Memory) && row.memory_bytes >= LARGE_BYTES;
            // Who hibernates has nothing to give back.
            quiet && is_large && !memory::hibernates(row)
        })
        .collect();
    let all = idle.clone();
    idle.retain(|(process, row)| {
        memory::is_idle(period, process)
            || all.iter().filter(|(other, _)| is_alike(other, row)).count() >= ALIKE
    });
    idle.sort_by_key(|(_, row)| std::cmp::Reverse(row.memory_bytes));
    // A collection has measured what of a heap is garbage: that takes the place of what it holds.
    let measured: Vec<(Measured, &ProcessUse)> = idle
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
    let given_back = |process: &ProcessUse| {
        measured.iter().find(|(_, of)| of.pid == process.pid).map(|(measured, _)| measured.freed)
    };
    let share = sampled.map_or(1.0, |sampled| sampled.freed / sampled.before);
    let seen = idle.iter().fold(0.0, |sum, (process, row)| {
        sum + given_back(process).unwrap_or(share * row.memory_bytes as f64)
    });
    let is_measured = sampled.is_some()
        || !idle.is_empty() && idle.iter().all(|(process, _)| given_back(process).is_some());
    let swept = if is_measured {
        0.0
    } else {
        bytes_of(
            idle.iter()
                .filter(|(process, _)| given_back(process).is_none())
                .map(|(_, row)| *row)
                .filter(|row| row.minor_gcs == Some(0)),
        )
    };
    // The largest are looked at closely. What the others hold is known as a sum, and they need not be like these.
    let large = period.processes.iter().filter_map(|process| process.row.as_ref());
    let all_large = bytes_of(large.filter(|row| row.ranks.contains(&Rank::Memory)));
    let all = period.find(Group::Memory, "", "processes").map_or(0.0, |stat| stat.last.value as f64);
    let with_others = all * seen / all_large.max(1.0);
    // Who is asked now and then may keep what it answers with.
    let asked = idle.iter().filter(|(process, _)| !memory::is_idle(period, process));
    let asked = if is_measured { 0.0 } else { bytes_of(asked.map(|(_, row)| *row)) };
    let severity_of = |bytes: f64| SHARE.of(period).severity(bytes / resident.max(1.0));
    let minor = |bytes: f64| severity_of(bytes).map(|severity| severity.min(MINOR));
    let severity = [severity_of(seen - asked), minor(seen), minor(with_others)];
    let severity = severity.into_iter().flatten().reduce(f64::max).filter(|_| seen >= WORTH_BYTES);
    let (Some(severity), Some((first, row))) = (severity, idle.first()) else {
        let told = measured.iter().map(|(measured, _)| *measured).chain(sampled);
        let told = told
            .filter(|measured| measured.is_little())
            .reduce(|a, b| if a.before >= b.before { a } else { b });
        return Ok(Judgement::Healthy(match told {
            Some(Measured { before, freed }) => format!(
                "a collection gave back {} of {}: what idle processes hold is alive",
                megabytes(freed),
                megabytes(before)
            ),
            None => {
                format!(
                    "of {scanned} processes, the large ones that do nothing, or hardly anything, hold {}",
                    megabytes(seen)
                )
            }
        }));
    };
    let who = first.title();
    let count = idle.len();
    let kind = row.initial_call.as_deref().unwrap_or("unknown");
    let same = idle.iter().filter(|(_, other)| other.initial_call == row.initial_call).count();
    let saving = |remedy: Remedy| if seen > swept { remedy.saving(seen - swept) } else { remedy };
    Ok(Judgement::found(
        Draft::new(
            severity,
            format!(
                "{count} large processes that do {} hold {} of heap, {who} {} of it",
                if asked > 0.0 { "hardly anything" } else { "nothing" },
                megabytes(seen),
                megabytes(row.memory_bytes as f64)
            ),
        )
        .about(Subject::process(&who))
        // How much of it is garbage is not seen from outside.
        .inferred_if(!is_measured)
        // Others that were started alike kept theirs when they were collected.
        .guess_if(measured.iter().any(|(measured, of)| measured.is_little() && is_alike(of, row)))
        .costs(Cost::MemoryBytes(seen))
        .because(
            Evidence::number("heaps of idle processes that were looked at closely", seen, Unit::Bytes)
                .with_text(format!(
                    "{:.0} % of what is resident; {} in the largest processes, idle or not",
                    100.0 * seen / resident.max(1.0),
                    megabytes(all_large)
                ))
                .against(SHARE.of(period).warning * resident, SHARE.of(period).source),
        )
        .because_some((with_others > seen).then(|| {
            Evidence::number("heaps of all idle processes, if the others are like these", with_others, Unit::Bytes)
        }))
        .because_some((swept > 0.0).then(|| {
            Evidence::number("of processes whose last collection was a full one", swept, Unit::Bytes)
                .with_text("what they have made since is not known")
        }))
        .because_some((asked > 0.0).then(|| {
            Evidence::number("of processes that do a little now and then", asked, Unit::Bytes)
                .with_text("too little to fill a heap of that size within ten minutes")
        }))
        .because(Evidence::text("started as", format!("{kind} ({same} of them)")))
        .because_some(row.fullsweep_after.map(|n| Evidence::number("fullsweep_after of the largest", n as f64, Unit::Count)))
        .because_some(stack::told(row).map(|at| Evidence::text("where the largest is", at)))
        .because_some(is_measured.then(|| {
            Evidence::number("what collections have given back of it", seen, Unit::Bytes).with_text("measured")
        }))
        .but_if(!is_measured, "what of it is alive is not seen from outside: a cache on a heap looks the same (beamtune memory --what-if collect measures it)")
        .but_if(
            measured.iter().any(|(measured, of)| measured.is_little() && is_alike(of, row)),
            "one that was started alike was collected, and next to nothing of its heap was garbage",
        )
        .but_if(
            period.seconds() < 60.0,
            format!("they did as good as nothing for {:.0} s: they may work every minute", period.seconds()),
        )
        .fix(remedy::of(
            period,
            "code.hibernate",
            "let them hibernate after work (hibernate_after 15000 or so)",
            "a heap that has grown stays that large until the next collection, and an idle process has none",
            "beamtune memory --what-if collect before; resident memory after the same load",
        ).map(saving))
        .fix(remedy::of(
            period,
            "code.worker_per_job",
            "do large work in a process of its own that ends with it",
            "its heap goes back as a whole, without a collection",
            "resident memory after the same load",
        ).map(saving)),
    ))
}

fn is_alike(process: &ProcessUse, row: &ProcessRow) -> bool {
    process
        .row
        .as_ref()
        .is_some_and(|other| other.initial_call.is_some() && other.initial_call == row.initial_call)
}

fn bytes_of<'r>(rows: impl Iterator<Item = &'r ProcessRow>) -> f64 {
    rows.fold(0.0, |sum, row| sum + row.memory_bytes as f64)
}
