//! BT026: processes with small heaps keep large binaries alive.
//!
//! A part of a binary keeps all of it; and a process that is seldom collected keeps binaries that it has long dropped. Which of the
//! two it is, or whether the binaries are wanted, is not seen from outside: so what would tell is said.
//!
//! What no process refers to is kept by something else: a table, most often, with parts of what was matched; or it waits in sockets to be sent.

use beamtune_model::{
    Account, Code, Confidence, Cost, Evidence, Group, HolderRow, Missing, Period, ProcessRow, ProcessUse,
    Scale, Subject, TableRow, Threshold, Unit, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule, Topic};
use crate::signals::collected::{self, Measured};
use crate::signals::lock_suspects;
use crate::signals::memory::{self, megabytes};
use crate::signals::port_queues;
use crate::signals::stack;

pub const RULE: Rule = Rule {
    code: Code("BT026"),
    name: "binaries-retained",
    question: "Do processes keep binaries alive that they do not need?",
    confirm: "collect one of these processes (beamtune memory --collect PID): what comes back was retained, what stays is used",
    needs: &[&metrics::RSS, &metrics::SCAN_PROCESSES],
    account: Account::Memory,
    topics: &[Topic::Memory],
    explains_as_notice: true,
    judge,
    thresholds: &[SHARE],
    ..Rule::COMMON
};

/// Binaries that one process refers to, as a share of what is resident.
const SHARE: Threshold = Threshold::new(
    "binaries-retained.binaries_share",
    "binaries that one process refers to, share of resident memory",
    Scale { notice: 0.10, warning: 0.25, critical: 0.75, source: "judgement" },
);

/// Below this it is not worth a look.
const WORTH_BYTES: f64 = 32e6;

/// A heap that is this many times smaller than the binaries it refers to holds little but references.
const TIMES_SMALLER: f64 = 8.0;

/// So many minor collections after the last full one show that full ones, more of them, would help: who is not collected has none.
const MANY_MINOR: i64 = 20;

/// Others than processes keep so much of all (judgement).
const MOSTLY: f64 = 0.5;

/// So many messages that wait may hold binaries (judgement).
const MANY_MESSAGES: f64 = 1_000.0;

/// Processes that are named.
const MOST: usize = 3;

/// A process that is counted to refer to so many times all binaries of the node refers to some of them many times: its count and their
/// size are read at different instants, so what is a little more says nothing (judgement).
const COUNTED_AGAIN: f64 = 1.1;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let resident = memory::resident(period)?;
    period.stat(&metrics::SCAN_PROCESSES, "")?;
    let stat = period.find(Group::Memory, "", "binary");
    let stat = stat.ok_or_else(|| period.missing_group(Group::Memory, "memory of binaries"))?;
    let (all, most) = (stat.last.value as f64, stat.max as f64);
    let mut holders: Vec<(&ProcessUse, &ProcessRow, f64)> = period
        .processes
        .iter()
        .filter_map(|process| {
            let row = process.row.as_ref()?;
            let bytes = match asked(period, process) {
                Some(holder) => holder.bytes,
                // A binary counts for each reference to it: as a whole; before OTP 27 what came in a message as the part only (copy.c).
                None => row.binary_bytes?,
            };
            Some((process, row, (bytes as f64).min(all)))
        })
        .filter(|(_, row, bytes)| *bytes >= WORTH_BYTES && *bytes >= TIMES_SMALLER * row.memory_bytes as f64)
        .collect();
    holders.sort_by(|a, b| b.2.total_cmp(&a.2));
    let drafts: Vec<Draft> = holders
        .into_iter()
        .filter_map(|holder| Some((SHARE.of(period).severity(holder.2 / resident.max(1.0))?, holder)))
        .take(MOST)
        .map(|(severity, (process, row, bytes))| {
            let draft = draft(period, severity, process, row, bytes, all);
            let counted = row.binary_bytes.filter(|_| asked(period, process).is_none());
            match counted.is_some_and(|counted| counted as f64 > COUNTED_AGAIN * most) {
                true => draft.confidence(Confidence::Guess).but(
                    "one binary that this process refers to many times counts each time: it is counted to refer to more than there is",
                ),
                false => draft,
            }
        })
        .collect();
    let drafts = drafts.into_iter().chain(elsewhere(period, resident)).collect();
    let largest = period.processes.iter().filter_map(|process| process.row.as_ref()?.binary_bytes).max();
    Ok(Judgement::found_or_healthy(
        drafts,
        format!(
            "binaries take {}; no process with a small heap keeps much of that (the most: {})",
            megabytes(all),
            // References to one binary count each, and freed ones until the next collection.
            megabytes((largest.unwrap_or(0) as f64).min(all))
        ),
    ))
}

/// Binaries that are kept stay: where as much of them has gone meanwhile, others are made and dropped all the time (judgement).
const VARIES: f64 = 0.25;

/// What is left of all binaries for others than processes, where that is most.
fn elsewhere(period: &Period, resident: f64) -> Option<Draft> {
    let referred = period.stat(&metrics::SCAN_BINARIES, "").ok()?.max as f64;
    let binaries = period.find(Group::Memory, "", "binary")?;
    let grows = memory::binaries_of_table(period);
    // What is there at all times; where it only becomes more, what is there in the end.
    let least = if grows.is_some() { binaries.last.value } else { binaries.min } as f64;
    let rest = least - referred;
    // What comes and goes was of processes that had dropped it when they were read.
    let falls: i64 = binaries.trace.points().windows(2).map(|pair| (pair[0].1 - pair[1].1).max(0)).sum();
    let comes_and_goes = grows.is_none() && falls as f64 >= VARIES * binaries.max as f64;
    if rest < WORTH_BYTES || rest < MOSTLY * least || comes_and_goes {
        return None;
    }
    let waiting = port_queues::waiting_bytes_at_least(period);
    if let Some(waiting) = waiting.filter(|waiting| *waiting >= MOSTLY * rest) {
        return in_ports(period, resident, waiting, least, referred);
    }
    let rest = rest - waiting.unwrap_or(0.0);
    if rest < WORTH_BYTES || rest < MOSTLY * least {
        return None;
    }
    let severity = SHARE.of(period).severity(rest / resident.max(1.0))?;
    let queued = period.stat(&metrics::SCAN_QUEUED, "").map_or(0.0, |stat| stat.mean());
    let told = candidates(period);
    let named = grows.or_else(|| outnumbers(period));
    let summary = match grows {
        Some(table) => format!(
            "{} of binaries are held by no process and grow with ETS table {}: probably sub-binaries in its objects",
            megabytes(rest),
            table.name
        ),
        None => {
            let by = match waiting.is_none() && port_queues::has_sockets(period) {
                true => "by tables, or by sockets that wait to send them",
                false => "by tables, most likely",
            };
            format!("{} of binaries are kept by no process: {by}", megabytes(rest))
        }
    };
    // A cache that is meant to hold large binaries looks the same, but does not grow for long.
    let draft = Draft::new(severity, summary)
    .confidence(if grows.is_some() { Confidence::Inferred } else { Confidence::Guess })
    .about(named.map_or(Subject::table(""), TableRow::subject))
    // What a table is meant to hold costs nothing that could be saved.
    .costs(grows.map(|_| Cost::MemoryBytes(rest)))
    .because(Evidence::number("all binaries of the node, at least", least, Unit::Bytes))
    .because(
        Evidence::number("what all processes refer to, at most", referred, Unit::Bytes)
            .with_text("added up; what several refer to counts for each of them"),
    )
    .because_some(waiting.map(|waiting| {
        Evidence::number("what waits in the driver queues of ports, at least", waiting, Unit::Bytes)
    }))
    .because_some((!told.is_empty()).then(|| Evidence::text("the program's tables with most objects", told)))
    .but("a table that is meant to hold large binaries whole, such as a cache, looks the same")
    .but(match waiting {
        Some(_) => "what drivers and NIFs hold is no process's either",
        None => "what drivers and NIFs hold, and what waits in sockets, is no process's either",
    })
    .but_if(queued >= MANY_MESSAGES, "messages that wait may hold them")
    .but_if(
        period.facts.otp_release().is_some_and(|release| release < 27),
        "before OTP 27 a part of a binary that came in a message counts as that part only: a process may keep more than it is counted to",
    );
    let draft = draft.confirmed_by(
        "binary:referenced_byte_size/1 of a binary in the table: far above its byte_size means a sub-binary",
    );
    Some(draft.fix(remedy::of(
        period,
        "code.binary_copy",
        "binary:copy/1 what is kept of a larger binary (a field, a key, a line), before it goes into a table",
        "a part of a binary keeps the whole of it, also in a table",
        "beamtune memory --holders: what processes refer to; then binary memory under the same load",
    )))
}

/// Most of what no process refers to waits in ports: their peers do not read.
fn in_ports(period: &Period, resident: f64, waiting: f64, all: f64, referred: f64) -> Option<Draft> {
    let severity =
        SHARE.of(period).severity(waiting / resident.max(1.0)).filter(|_| waiting >= WORTH_BYTES)?;
    let prove = "binary memory and erlang:port_info(Port, queue_size), under the same load";
    Some(
        Draft::new(
            severity,
            format!("{} of binaries wait in sockets to be sent: their peers do not read", megabytes(waiting)),
        )
        .confidence(Confidence::Guess)
        .about(port_queues::subject(period))
        .costs(Some(Cost::MemoryBytes(waiting)))
        .because(Evidence::number("what waits in the driver queues of ports, at least", waiting, Unit::Bytes))
        .because(Evidence::number("all binaries of the node, at least", all, Unit::Bytes))
        .because(Evidence::number("what all processes refer to, at most", referred, Unit::Bytes))
        .but("a server that sends large data to slow clients on purpose looks the same")
        .confirmed_by(
            "lists:sum([Q || P <- erlang:ports(), {_, Q} <- [erlang:port_info(P, queue_size)]]), twice",
        )
        .fix(port_queues::slow_peers(period, prove)),
    )
}

/// One table with so many times the objects of the next one is the likely one (judgement).
const TIMES_MORE: i64 = 10;

/// The program's table that has by far the most objects.
fn outnumbers(period: &Period) -> Option<&TableRow> {
    let mut tables: Vec<&TableRow> = lock_suspects::of_program(period).collect();
    tables.sort_by_key(|table| std::cmp::Reverse(table.objects));
    let (most, next) = (tables.first()?, tables.get(1).map_or(0, |table| table.objects));
    (most.objects >= next.max(1).saturating_mul(TIMES_MORE)).then_some(most)
}

/// The program's tables, those with most objects first.
fn candidates(period: &Period) -> String {
    let mut tables: Vec<&TableRow> = lock_suspects::of_program(period).collect();
    tables.sort_by(|a, b| b.objects.cmp(&a.objects).then_with(|| a.id.cmp(&b.id)));
    let told = tables
        .iter()
        .take(MOST)
        .map(|table| format!("{} of {} ({})", table.name, table.owner_title(), table.objects));
    told.collect::<Vec<_>>().join(", ")
}

/// What the process itself refers to, if somebody has asked for that.
fn asked<'p>(period: &'p Period, process: &ProcessUse) -> Option<&'p HolderRow> {
    period.holders.iter().find(|holder| holder.pid == process.pid && holder.skipped.is_none())
}

fn draft(
    period: &Period,
    severity: f64,
    process: &ProcessUse,
    row: &ProcessRow,
    bytes: f64,
    all: f64,
) -> Draft {
    let who = process.title();
    let idle = memory::is_idle(period, process);
    let sweeps = row.fullsweep_after.unwrap_or(65_535);
    let swept = row.minor_gcs == Some(0) || memory::hibernates(row);
    let often = row.minor_gcs.is_some_and(|n| n > MANY_MINOR);
    let state = match (idle, swept) {
        (true, true) => "it does nothing, and has been collected as a whole",
        (true, false) => "it does nothing, so nothing makes it collect",
        (false, true) => "it works, and has just been collected as a whole",
        (false, false) => "it works; its last collections were minor ones",
    };
    let holder = asked(period, process);
    let collected = collected::of_process(period, process);
    // A collection lets go of what is dropped: if nothing comes back, the process refers to all of it.
    let kept = collected.is_some_and(Measured::is_little);
    let first = match holder {
        Some(_) => "",
        None => "beamtune memory --holders: how much nobody else refers to; ",
    };
    let prove = format!(
        "{first}beamtune memory --collect '{}': what a collection of it gives back; then binary memory under the same load",
        row.pid
    );
    // What others refer to as well stays, whatever this one does.
    let saving = holder.map_or(bytes, |holder| (holder.alone_bytes as f64).min(bytes));
    Draft::new(
        // Whether it needs them is not known.
        severity,
        format!(
            "{who} keeps {} of binaries alive with a heap of {}",
            megabytes(bytes),
            megabytes(row.memory_bytes as f64)
        ),
    )
    .confidence(Confidence::Inferred)
    .guess_if(kept)
    .about(process.subject())
    .costs((!kept).then_some(Cost::MemoryBytes(saving)))
    .because(Evidence::number("binaries that it refers to", bytes, Unit::Bytes))
    .because_some(holder.map(|holder| {
        Evidence::number("thereof held by nobody else", holder.alone_bytes as f64, Unit::Bytes)
            .with_text(format!("{} of {} binaries", holder.alone, holder.binaries))
    }))
    .because_some(collected.map(|collected| {
        Evidence::number(
            "what a collection of it has given back",
            collected.freed,
            Unit::Bytes,
        )
        .with_text("measured")
    }))
    .because(Evidence::number("its heap", row.memory_bytes as f64, Unit::Bytes).with_text(state))
    .because(Evidence::number("all binaries of the node", all, Unit::Bytes))
    .because_some(
        row.minor_gcs
            .map(|n| Evidence::number("minor collections since the last full one", n as f64, Unit::Count)),
    )
    .because_some(row.fullsweep_after.map(|n| Evidence::number("its fullsweep_after", n as f64, Unit::Count)))
    .because_some(stack::told(row).map(|at| Evidence::text("where it is", at)))
    .but("a process that is meant to hold large binaries whole, such as a cache, looks the same")
    .fix(
        remedy::of(
            period,
            "code.binary_copy",
            "binary:copy/1 what is kept of a larger binary (a field, a key, a line)",
            "a part of a binary keeps the whole of it: a match or binary:part/3 does not copy",
            &prove,
        )
        .map(|remedy| if kept { remedy } else { remedy.saving(saving) }),
    )
    .but_if(kept, "a collection of it gave next to nothing back: it refers to all of them, and only if these are parts of larger ones a copy helps")
    .fix_if(!kept && !swept && (idle || !often), || {
        remedy::of(
            period,
            "code.hibernate",
            "let it hibernate when it is idle (hibernate_after), or collect itself after large work",
            "it gives back what it has dropped only when it is collected",
            &prove,
        )
    })
    .fix_if(!kept && !swept && !idle && often && sweeps > MANY_MINOR, || {
        remedy::of(
            period,
            "process.fullsweep_after",
            "spawn_opt {fullsweep_after, 10} for this process",
            "binaries that its old heap refers to are let go by full collections only",
            &prove,
        )
    })
}
