//! BT026: processes with small heaps keep large binaries alive.
//!
//! A part of a binary keeps all of it; and a process that is seldom collected keeps binaries that it has long dropped. Which of the
//! two it is, or whether the binaries are wanted, is not seen from outside: so what would tell is said.
//!
//! What no process refers to is kept by something else: by tables, whole or by parts of what was matched; it waits in sockets to be sent; or
//! it is the receive buffers of sockets. Which of them it is, is measured, by samples; else it is not said.

use beamtune_model::{
    Account, Code, Confidence, Cost, Evidence, Group, HolderRow, Missing, Period, ProcessRow, ProcessUse,
    Scale, Subject, TableRow, Threshold, Unit, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule, Topic};
use crate::signals::collected::{self, Measured};
use crate::signals::lock_suspects;
use crate::signals::memory::{self, megabytes};
use crate::signals::port_queues::{self, ReceiveBuffers};
use crate::signals::products;
use crate::signals::stack;
use crate::signals::table_binaries::TableBinaries;

pub const RULE: Rule = Rule {
    code: Code("BT026"),
    name: "binaries-retained",
    question: "Do processes or tables keep binaries alive that they do not need?",
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
    let (found, known) = match elsewhere(period, resident) {
        Elsewhere::Found(draft) => (Some(*draft), String::new()),
        Elsewhere::Known(by) => (None, format!("; {by}")),
        Elsewhere::Little => (None, String::new()),
    };
    let drafts = drafts.into_iter().chain(found).collect();
    let largest = period.processes.iter().filter_map(|process| process.row.as_ref()?.binary_bytes).max();
    Ok(Judgement::found_or_healthy(
        drafts,
        format!(
            "binaries take {}; no process with a small heap keeps much of that (the most: {}){known}",
            megabytes(all),
            // References to one binary count each, and freed ones until the next collection.
            megabytes((largest.unwrap_or(0) as f64).min(all))
        ),
    ))
}

/// Binaries that no process refers to.
enum Elsewhere {
    /// They are no matter.
    Little,
    /// What holds them needs them: by what.
    Known(String),
    Found(Box<Draft>),
}

/// Binaries that are kept stay: where as much of them has gone meanwhile, others are made and dropped all the time (judgement).
const VARIES: f64 = 0.25;

/// What is left of all binaries for others than processes, where that is most.
struct Rest<'p> {
    period: &'p Period,
    resident: f64,
    /// All binaries, at least.
    all: f64,
    /// What processes refer to, at most.
    referred: f64,
    /// What waits in driver queues; `None` where that is not known.
    waiting: Option<f64>,
    /// The rest, in bytes.
    bytes: f64,
    /// The table that grows as it does.
    grows: Option<&'p TableRow>,
}

fn elsewhere(period: &Period, resident: f64) -> Elsewhere {
    let found =
        |draft: Option<Draft>| draft.map_or(Elsewhere::Little, |draft| Elsewhere::Found(Box::new(draft)));
    let Some(rest) = Rest::of(period, resident) else { return Elsewhere::Little };
    let Rest { all, referred, .. } = rest;
    if let Some(waiting) = rest.waiting.filter(|waiting| *waiting >= MOSTLY * (rest.bytes + waiting)) {
        return found(in_ports(period, resident, waiting, all, referred));
    }
    if rest.bytes < WORTH_BYTES || rest.bytes < MOSTLY * all {
        return Elsewhere::Little;
    }
    let tables = TableBinaries::all(period);
    let mut parts = tables.iter().filter(|table| table.has_parts());
    if let Some(draft) = parts.find_map(|table| in_parts(&rest, table)) {
        return found(Some(draft));
    }
    let in_tables: f64 = tables.iter().map(TableBinaries::held_bytes).sum();
    if let Some(first) = tables.first().filter(|_| in_tables >= MOSTLY * rest.bytes) {
        return Elsewhere::Known(in_table(&rest, first, in_tables));
    }
    if let Some(buffers) = port_queues::receive_buffers(period) {
        let left = rest.bytes - in_tables;
        if buffers.bytes >= WORTH_BYTES && buffers.bytes >= MOSTLY * left {
            return in_buffers(&rest, &buffers, left.min(buffers.bytes));
        }
    }
    found(unknown(&rest, &tables))
}

impl<'p> Rest<'p> {
    fn of(period: &'p Period, resident: f64) -> Option<Self> {
        let referred = period.stat(&metrics::SCAN_BINARIES, "").ok()?.max as f64;
        let binaries = period.find(Group::Memory, "", "binary")?;
        let grows = memory::binaries_of_table(period);
        // What is there at all times; where it only becomes more, what is there in the end.
        let all = if grows.is_some() { binaries.last.value } else { binaries.min } as f64;
        let bytes = all - referred;
        // What comes and goes was of processes that had dropped it when they were read.
        let falls: i64 = binaries.trace.points().windows(2).map(|pair| (pair[0].1 - pair[1].1).max(0)).sum();
        let comes_and_goes = grows.is_none() && falls as f64 >= VARIES * binaries.max as f64;
        if bytes < WORTH_BYTES || bytes < MOSTLY * all || comes_and_goes {
            return None;
        }
        let waiting = port_queues::waiting_bytes_at_least(period);
        let bytes = bytes - waiting.unwrap_or(0.0);
        Some(Rest { period, resident, all, referred, waiting, bytes, grows })
    }

    fn severity(&self, bytes: f64) -> Option<f64> {
        SHARE.of(self.period).severity(bytes / self.resident.max(1.0))
    }

    /// What it is the rest of.
    fn because(&self, draft: Draft) -> Draft {
        draft
            .because(Evidence::number("all binaries of the node, at least", self.all, Unit::Bytes))
            .because(
                Evidence::number("what all processes refer to, at most", self.referred, Unit::Bytes)
                    .with_text("added up; what several refer to counts for each of them"),
            )
            .because_some(self.waiting.map(|waiting| {
                Evidence::number("what waits in the driver queues of ports, at least", waiting, Unit::Bytes)
            }))
    }
}

/// Bytes of a single binary as a person says them.
fn kilobytes(bytes: f64) -> String {
    if bytes < 9_950.0 {
        format!("{bytes:.0} bytes")
    } else if bytes < 1e6 {
        format!("{:.0} kB", bytes / 1e3)
    } else {
        megabytes(bytes)
    }
}

/// The table that holds the most, where it is nothing to change.
fn in_table(rest: &Rest<'_>, first: &TableBinaries<'_>, in_tables: f64) -> String {
    let held = megabytes(first.held_bytes().min(rest.bytes));
    let how = match first.has_parts() {
        true => "by parts of them, too little to matter".to_owned(),
        false => format!(
            "whole ({:.0} rows, {} a binary): nothing to copy",
            first.rows,
            kilobytes(first.mean_bytes())
        ),
    };
    let others = match first.held_bytes() >= MOSTLY * rest.bytes {
        true => String::new(),
        false => format!("; all tables that were measured hold {}", megabytes(in_tables.min(rest.bytes))),
    };
    format!("ETS table {} holds {held} {how}{others}", first.title())
}

/// A table whose rows are parts of larger binaries, if that is much.
fn in_parts(rest: &Rest<'_>, table: &TableBinaries<'_>) -> Option<Draft> {
    let period = rest.period;
    let held = table.held_bytes().min(rest.bytes);
    let severity = rest.severity(held).filter(|_| held >= WORTH_BYTES)?;
    let is_others = products::is_of_others(period);
    let draft = Draft::new(
        severity,
        format!("ETS table {} keeps {} of binaries alive by parts of them", table.name(), megabytes(held)),
    )
    // The sample is of few rows, and must fit to what is there.
    .confidence(Confidence::Measured)
    .inferred_if(!table.is_fair() || table.held_bytes() > rest.bytes / MOSTLY)
    .guess_if(is_others)
    .at_most_warning_if(true)
    .about(table.subject())
    .costs(Cost::MemoryBytes((held - table.own_bytes()).max(0.0)))
    .because(
        Evidence::number("binaries that its rows keep, about", held, Unit::Bytes)
            .with_text(format!("by {:.0} of its {:.0} rows", table.sampled, table.rows)),
    )
    .because(
        Evidence::number("size of its own parts of them, about", table.own_bytes(), Unit::Bytes).with_text(
            format!(
                "{} a part; the rows keep {:.0} times that",
                kilobytes(table.mean_bytes()),
                table.factor()
            ),
        ),
    );
    Some(
        rest.because(draft)
            .but_if(!table.is_fair(), "the rows that were read are those at one end of an ordered set: others may differ")
            .but_if(is_others, "the table belongs to the product that the node runs, not to your program")
            .confirmed_by(
                "binary:referenced_byte_size/1 of a binary in the table: far above its byte_size means a sub-binary",
            )
            .fix_if(!is_others, || {
                remedy::of(
                    period,
                    "code.binary_copy",
                    "binary:copy/1 what is kept of a larger binary (a field, a key, a line), before it goes into a table",
                    "a part of a binary keeps the whole of it, also in a table",
                    "binary memory under the same load, once the rows are new",
                )
            }),
    )
}

/// Most of it is receive buffers, of which little is resident before data have come.
fn in_buffers(rest: &Rest<'_>, buffers: &ReceiveBuffers, bytes: f64) -> Elsewhere {
    let period = rest.period;
    let each = kilobytes(buffers.bytes / buffers.connections.max(1.0));
    let connections = buffers.connections;
    let total = period.find(Group::Memory, "", "total").map_or(0.0, |stat| stat.last.value as f64);
    let absent = total - rest.resident;
    if absent >= MOSTLY * bytes {
        return Elsewhere::Known(format!(
            "about {} are receive buffers of about {connections:.0} TCP connections in passive mode ({each} each), of which little is resident",
            megabytes(bytes),
        ));
    }
    let Some(severity) = rest.severity(bytes) else { return Elsewhere::Little };
    let draft = Draft::new(
        severity,
        format!(
            "{} of binaries may be receive buffers of about {connections:.0} connections",
            megabytes(bytes)
        ),
    )
    .confidence(Confidence::Guess)
    .about(port_queues::subject(period))
    .because(
        Evidence::number(
            "receive buffers of connections in passive mode, at most",
            buffers.bytes,
            Unit::Bytes,
        )
        .with_text(format!("{each} each, by a sample; they have them while a process waits in gen_tcp:recv")),
    )
    .because(Evidence::number(
        "allocated by the VM and not resident, at least",
        absent.max(0.0),
        Unit::Bytes,
    ));
    Elsewhere::Found(Box::new(
        rest.because(draft)
            .but("pages of a buffer that no data have reached take no memory")
            .confirmed_by("inet:getopts(Socket, [buffer, active]) of some connections, and how many processes wait in prim_inet:recv0/3")
            .fix(remedy::of(
                period,
                "socket.buffer",
                "{buffer, Bytes} of what a request has, where memory is short; recbuf and sndbuf raise it",
                "each connection that waits in gen_tcp:recv has one of this size",
                "binary memory and resident memory, under the same load",
            )),
    ))
}

/// What holds them was not seen.
fn unknown(rest: &Rest<'_>, tables: &[TableBinaries<'_>]) -> Option<Draft> {
    let Rest { period, bytes, grows, waiting, .. } = *rest;
    let severity = rest.severity(bytes)?;
    let queued = period.stat(&metrics::SCAN_QUEUED, "").map_or(0.0, |stat| stat.mean());
    let has_none = |table: &TableRow| tables.iter().any(|seen| seen.id == table.id && seen.has_none());
    let largest = candidates(period, has_none);
    let named = grows.or_else(|| outnumbers(period).filter(|table| !has_none(table)));
    let summary = match grows {
        Some(table) => format!(
            "{} of binaries are held by no process and grow with ETS table {}",
            megabytes(bytes),
            table.name
        ),
        None => format!(
            "{} of binaries are kept by no process; the holder is not seen from outside",
            megabytes(bytes)
        ),
    };
    let in_tables: f64 = tables.iter().map(TableBinaries::held_bytes).sum();
    let seen = tables.iter().filter(|table| table.is_seen()).count();
    let draft = Draft::new(severity, summary)
        .confidence(if grows.is_some() { Confidence::Inferred } else { Confidence::Guess })
        .about(named.map_or(Subject::table(""), TableRow::subject));
    let draft = rest
        .because(draft)
        .because_some((!tables.is_empty()).then(|| {
            Evidence::number("thereof seen in ETS tables", in_tables, Unit::Bytes)
                .with_text(format!("of {} tables; in {seen} of them all elements were seen", tables.len()))
        }))
        .because_some((!largest.is_empty()).then(|| Evidence::text("the program's tables with most objects", largest)))
        .but_if(tables.is_empty(), "what tables hold was not recorded")
        .but_if(
            !tables.is_empty(),
            "binaries within maps, lists and structs of a table, and in tables that are private, compressed or bags, are not seen",
        )
        .but("a table that is meant to hold large binaries whole, such as a cache, looks the same")
        .but(match waiting {
            Some(_) => "what drivers and NIFs hold is no process's either",
            None => "what drivers and NIFs hold, and what waits in sockets, is no process's either",
        })
        .but_if(
            port_queues::receive_buffers(period).is_none() && port_queues::has_sockets(period),
            "receive buffers of sockets were not recorded: each connection that waits in gen_tcp:recv has one of its option buffer",
        )
        .but_if(queued >= MANY_MESSAGES, "messages that wait may hold them")
        .but_if(
            period.facts.otp_release().is_some_and(|release| release < 27),
            "before OTP 27 a part of a binary that came in a message counts as that part only: a process may keep more than it is counted to",
        );
    let draft = draft.confirmed_by(
        "binary:referenced_byte_size/1 of a binary in a table: far above its byte_size means a sub-binary",
    );
    Some(draft.fix_if(grows.is_some(), || {
        remedy::of(
            period,
            "code.bounded_table",
            "delete what is old: by a time stamp and ets:select_delete/2, or a new table for each period of time",
            "a table keeps what it is given until somebody deletes it",
            "binary memory under the same load",
        )
    }))
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

/// The program's tables that may hold binaries, those with most objects first.
fn candidates(period: &Period, has_none: impl Fn(&TableRow) -> bool) -> String {
    let mut tables: Vec<&TableRow> =
        lock_suspects::of_program(period).filter(|table| !has_none(table)).collect();
    tables.sort_by(|a, b| b.objects.cmp(&a.objects).then_with(|| a.id.cmp(&b.id)));
    let titles = tables
        .iter()
        .take(MOST)
        .map(|table| format!("{} of {} ({})", table.name, table.owner_title(), table.objects));
    titles.collect::<Vec<_>>().join(", ")
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
