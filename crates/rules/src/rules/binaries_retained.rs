//! BT026: processes with small heaps, or ETS tables, keep large binaries alive.
//!
//! A sub-binary keeps the whole binary alive, and a process that is rarely garbage-collected keeps binaries that it dropped long ago. It
//! does not show from outside which of the two applies, or whether the binaries are needed, so the finding says how to find out.
//!
//! Binaries that no process refers to are in ETS tables (whole or through sub-binaries), in sockets that have not sent them yet, or in
//! receive buffers. Samples show which; otherwise the holder is reported as unknown.

use beamtune_model::{
    Account, BinaryHolderRow, Code, Confidence, Cost, Evidence, Group, Missing, Period, ProcessActivity,
    ProcessRow, Scale, Subject, TableRow, Threshold, Unit, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule, Topic};
use crate::signals::collected::{self, Measured};
use crate::signals::lock_suspects;
use crate::signals::memory::{self, format_bytes};
use crate::signals::port_queues::{self, ReceiveBuffers};
use crate::signals::products;
use crate::signals::stack;
use crate::signals::table_binaries::TableBinaries;
use crate::text;

pub const RULE: Rule = Rule {
    code: Code("BT026"),
    name: "binaries-retained",
    question: "Do processes or tables keep binaries alive that they do not need?",
    confirm: "garbage-collect the process (beamtune memory --collect PID): memory that it frees was retained, the rest is in use",
    needs: &[&metrics::RSS, &metrics::SCAN_PROCESSES],
    account: Account::Memory,
    topics: &[Topic::Memory],
    explains_as_notice: true,
    judge,
    thresholds: &[SHARE],
    ..Rule::COMMON
};

const SHARE: Threshold = Threshold::new(
    "binaries-retained.binaries_share",
    "binaries that one process refers to, share of resident memory",
    Scale { notice: 0.10, warning: 0.25, critical: 0.75, source: "judgement" },
);

/// Minimum bytes of binaries that are reported.
const MIN_BYTES: f64 = 32e6;

/// A process whose binaries are this many times larger than its heap contains little but references.
const MIN_BINARIES_TO_HEAP: f64 = 8.0;

/// After more minor GCs since the last fullsweep, a lower `fullsweep_after` helps. A process that is rarely garbage-collected has fewer.
const MIN_MINOR_GCS: i64 = 20;

/// Binaries are attributed to a holder that has at least this share of them (judgement).
const HALF: f64 = 0.5;

/// At least this many queued messages may hold the binaries (judgement).
const MIN_QUEUED_MESSAGES: f64 = 1_000.0;

/// Maximum number of processes, and of tables, that are named.
const MAX_NAMED: usize = 3;

/// A process whose count exceeds all binaries of the node by this factor refers to some of them many times. A smaller excess is
/// meaningless, because the count and the total are read at different times (judgement).
const MAX_COUNT_TO_TOTAL: f64 = 1.1;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let resident = memory::resident(period)?;
    period.stat(&metrics::SCAN_PROCESSES, "")?;
    let stat = period.find(Group::Memory, "", "binary");
    let stat = stat.ok_or_else(|| period.missing_group(Group::Memory, "memory of binaries"))?;
    let (all, max) = (stat.last.value as f64, stat.max as f64);
    let mut holders: Vec<(&ProcessActivity, &ProcessRow, f64)> = period
        .processes
        .iter()
        .filter_map(|process| {
            let row = process.row.as_ref()?;
            let bytes = match holder_row(period, process) {
                Some(holder) => holder.bytes,
                // Each reference counts with the size of the whole binary; before OTP 27, a sub-binary from a message with its own size
                // (copy.c).
                None => row.binary_bytes?,
            };
            Some((process, row, (bytes as f64).min(all)))
        })
        .filter(|(_, row, bytes)| {
            *bytes >= MIN_BYTES && *bytes >= MIN_BINARIES_TO_HEAP * row.memory_bytes as f64
        })
        .collect();
    holders.sort_by(|a, b| b.2.total_cmp(&a.2));
    let drafts: Vec<Draft> = holders
        .into_iter()
        .filter_map(|holder| Some((SHARE.of(period).severity(holder.2 / resident.max(1.0))?, holder)))
        .take(MAX_NAMED)
        .map(|(severity, (process, row, bytes))| {
            let draft = draft(period, severity, process, row, bytes, all);
            let counted = row.binary_bytes.filter(|_| holder_row(period, process).is_none());
            match counted.is_some_and(|counted| counted as f64 > MAX_COUNT_TO_TOTAL * max) {
                true => draft.confidence(Confidence::Guess).counter_evidence(
                    "a binary counts each time the process refers to it: the count exceeds all binaries of the node",
                ),
                false => draft,
            }
        })
        .collect();
    let (found, explanation) = match unreferenced(period, resident) {
        OtherHolder::Found(draft) => (Some(*draft), String::new()),
        OtherHolder::Healthy(explanation) => (None, format!("; {explanation}")),
        OtherHolder::Negligible => (None, String::new()),
    };
    let drafts = drafts.into_iter().chain(found).collect();
    let largest = period.processes.iter().filter_map(|process| process.row.as_ref()?.binary_bytes).max();
    Ok(Judgement::found_or_healthy(
        drafts,
        format!(
            "binaries: {}, at most {} referenced by one process{explanation}",
            format_bytes(all),
            // Each reference counts, including those to binaries that were dropped since the last GC.
            format_bytes((largest.unwrap_or(0) as f64).min(all))
        ),
    ))
}

/// The holder of binaries that no process refers to.
enum OtherHolder {
    /// There are few such binaries.
    Negligible,
    /// The holder needs the binaries; the text names it.
    Healthy(String),
    Found(Box<Draft>),
}

/// If the falls of binary memory add up to this share of its maximum, binaries are created and dropped all the time, not kept (judgement).
const MIN_FALLS_SHARE: f64 = 0.25;

/// Binaries that no process refers to, if they are most of all binaries.
struct Unreferenced<'p> {
    period: &'p Period,
    resident: f64,
    /// Minimum of all binaries, in bytes.
    all: f64,
    /// Maximum of the binaries that processes refer to, in bytes.
    referred: f64,
    /// Bytes in driver queues; `None` if not recorded.
    waiting: Option<f64>,
    /// Bytes that neither processes nor driver queues hold.
    bytes: f64,
    /// The table that grows with these binaries.
    growing_table: Option<&'p TableRow>,
}

/// Finds out what holds the binaries that no process refers to.
fn unreferenced(period: &Period, resident: f64) -> OtherHolder {
    let found = |draft: Option<Draft>| {
        draft.map_or(OtherHolder::Negligible, |draft| OtherHolder::Found(Box::new(draft)))
    };
    let Some(rest) = Unreferenced::of(period, resident) else { return OtherHolder::Negligible };
    let Unreferenced { all, referred, .. } = rest;
    if let Some(waiting) = rest.waiting.filter(|waiting| *waiting >= HALF * (rest.bytes + waiting)) {
        return found(in_ports(period, resident, waiting, all, referred));
    }
    if rest.bytes < MIN_BYTES || rest.bytes < HALF * all {
        return OtherHolder::Negligible;
    }
    let tables = TableBinaries::all(period);
    let mut with_parts = tables.iter().filter(|table| table.has_parts());
    if let Some(draft) = with_parts.find_map(|table| through_sub_binaries(&rest, table)) {
        return found(Some(draft));
    }
    let in_tables: f64 = tables.iter().map(TableBinaries::held_bytes).sum();
    if let Some(first) = tables.first().filter(|_| in_tables >= HALF * rest.bytes) {
        return OtherHolder::Healthy(in_table(&rest, first, in_tables));
    }
    if let Some(buffers) = port_queues::receive_buffers(period) {
        let left = rest.bytes - in_tables;
        if buffers.bytes >= MIN_BYTES && buffers.bytes >= HALF * left {
            return in_buffers(&rest, &buffers, left.min(buffers.bytes));
        }
    }
    found(holder_unknown(&rest, &tables))
}

impl<'p> Unreferenced<'p> {
    fn of(period: &'p Period, resident: f64) -> Option<Self> {
        let referred = period.stat(&metrics::SCAN_BINARIES, "").ok()?.max as f64;
        let binaries = period.find(Group::Memory, "", "binary")?;
        let growing_table = memory::binaries_of_table(period);
        // The minimum is present at all times. Binaries that only grow are counted at the end.
        let all = if growing_table.is_some() { binaries.last.value } else { binaries.min } as f64;
        let bytes = all - referred;
        // Binaries that rise and fall belong to processes that had already dropped them when they were sampled.
        let falls: i64 = binaries.trace.points().windows(2).map(|pair| (pair[0].1 - pair[1].1).max(0)).sum();
        let comes_and_goes = growing_table.is_none() && falls as f64 >= MIN_FALLS_SHARE * binaries.max as f64;
        if bytes < MIN_BYTES || bytes < HALF * all || comes_and_goes {
            return None;
        }
        let waiting = port_queues::waiting_bytes_at_least(period);
        let bytes = bytes - waiting.unwrap_or(0.0);
        Some(Unreferenced { period, resident, all, referred, waiting, bytes, growing_table })
    }

    fn severity(&self, bytes: f64) -> Option<f64> {
        SHARE.of(self.period).severity(bytes / self.resident.max(1.0))
    }

    /// Adds the numbers from which the unreferenced bytes are computed.
    fn because(&self, draft: Draft) -> Draft {
        draft
            .evidence(Evidence::number("binaries of the node, minimum", self.all, Unit::Bytes))
            .evidence(
                Evidence::number("referenced by processes, maximum", self.referred, Unit::Bytes)
                    .with_text("sum; a shared binary counts for each process"),
            )
            .because_some(
                self.waiting.map(|waiting| {
                    Evidence::number("in driver queues of ports, minimum", waiting, Unit::Bytes)
                }),
            )
    }
}

/// Formats the size of a single binary: `100 bytes`, `20 kB`.
fn kilobytes(bytes: f64) -> String {
    if bytes < 9_950.0 {
        format!("{bytes:.0} bytes")
    } else if bytes < 1e6 {
        format!("{:.0} kB", bytes / 1e3)
    } else {
        format_bytes(bytes)
    }
}

/// An estimate that exceeds the unreferenced bytes by this factor counts binaries twice (judgement: the sampling error is smaller).
const SHARED_FACTOR: f64 = 1.05;

/// Rounds an estimate to two digits.
fn significant(value: f64) -> f64 {
    let unit = 10_f64.powf((value.max(1.0).log10().floor() - 1.0).max(0.0));
    (value / unit).round() * unit
}

/// Describes the table that holds the most binaries, if nothing has to change.
fn in_table(rest: &Unreferenced<'_>, first: &TableBinaries<'_>, in_tables: f64) -> String {
    let held = format_bytes(first.held_bytes().min(rest.bytes));
    let how = match first.has_parts() {
        true => "through sub-binaries, which hold too little to matter".to_owned(),
        false => {
            let (rows, each) = (text::number(first.rows), kilobytes(first.mean_bytes()));
            format!("as whole binaries ({rows} objects, {each} each)")
        }
    };
    let others = match first.held_bytes() >= HALF * rest.bytes {
        true => String::new(),
        false => format!("; all measured tables hold {}", format_bytes(in_tables.min(rest.bytes))),
    };
    format!("ETS table {} holds {held} {how}{others}", first.title())
}

/// Drafts a finding about a table whose objects hold sub-binaries of much larger binaries.
fn through_sub_binaries(rest: &Unreferenced<'_>, table: &TableBinaries<'_>) -> Option<Draft> {
    let period = rest.period;
    let held = table.held_bytes().min(rest.bytes);
    let severity = rest.severity(held).filter(|_| held >= MIN_BYTES)?;
    let is_others = products::is_of_others(period);
    let (each, factor) = (kilobytes(table.mean_bytes()), text::number(table.factor().round()));
    let (sampled, rows) = (text::number(table.sampled), text::number(table.rows));
    // The sum over all objects may exceed the unreferenced bytes, because several objects refer to the same binary.
    let is_shared = table.held_bytes() > SHARED_FACTOR * rest.bytes;
    let draft = Draft::new(
        severity,
        format!("ETS table `{}`: sub-binaries keep {} alive", table.name(), format_bytes(held)),
    )
    .detail(format!(
        "each sub-binary of {each} keeps {} alive, {} in {rows} objects",
        kilobytes(table.mean_held_bytes()),
        text::number(significant(table.all_count()))
    ))
    .detail(match table.sampled >= table.rows {
        true => String::new(),
        false => format!("estimated from {sampled} of {rows} objects"),
    })
    .detail(if is_shared { "some of them share a binary" } else { "" })
    // Few objects are sampled, so the estimate must also fit the total.
    .confidence(Confidence::Measured)
    .inferred_if(!table.is_fair() || table.held_bytes() > rest.bytes / HALF)
    .guess_if(is_others)
    .at_most_warning_if(true)
    .about(table.subject())
    .costs(Cost::MemoryBytes((held - table.own_bytes()).max(0.0)))
    .evidence(
        Evidence::number("binaries kept by its objects, estimated", held, Unit::Bytes)
            .with_text(format!("by {sampled} of {rows} objects")),
    )
    .evidence(
        Evidence::number("size of its sub-binaries, estimated", table.own_bytes(), Unit::Bytes)
            .with_text(format!("{each} each; the objects keep {factor} times that")),
    );
    Some(
        rest.because(draft)
            .but_if(!table.is_fair(), "only objects at one end of an ordered set were sampled: others may differ")
            .but_if(is_others, "the table belongs to the product that the node runs, not to your application")
            .confirmed_by(
                "compare binary:referenced_byte_size/1 of a binary in the table with its byte_size: far larger means a sub-binary",
            )
            .fix_if(!is_others, || {
                remedy::of(
                    period,
                    "code.binary_copy",
                    "call binary:copy/1 on each field, key or line of a larger binary before it goes into the table",
                    "a sub-binary in a table keeps the whole binary",
                    "binary memory under the same load, once the objects were replaced",
                )
            }),
    )
}

/// Reports that most binaries are receive buffers. Pages of a buffer are hardly resident before data arrive.
fn in_buffers(rest: &Unreferenced<'_>, buffers: &ReceiveBuffers, bytes: f64) -> OtherHolder {
    let period = rest.period;
    let each = kilobytes(buffers.bytes / buffers.connections.max(1.0));
    let connections = text::number(buffers.connections.round());
    let total = period.find(Group::Memory, "", "total").map_or(0.0, |stat| stat.last.value as f64);
    let absent = total - rest.resident;
    if absent >= HALF * bytes {
        return OtherHolder::Healthy(format!(
            "about {} are receive buffers of {connections} passive TCP connections ({each} each), mostly not resident",
            format_bytes(bytes),
        ));
    }
    let Some(severity) = rest.severity(bytes) else { return OtherHolder::Negligible };
    let draft = Draft::new(
        severity,
        format!("{} of binaries, possibly receive buffers of {connections} connections", format_bytes(bytes)),
    )
    .detail(format!("{each} per passive TCP connection"))
    .confidence(Confidence::Guess)
    .about(port_queues::subject(period))
    .evidence(
        Evidence::number("receive buffers of passive sockets, maximum", buffers.bytes, Unit::Bytes)
            .with_text(format!("{each} each, by a sample; allocated while a process waits in gen_tcp:recv")),
    )
    .evidence(Evidence::number("allocated and not resident, minimum", absent.max(0.0), Unit::Bytes));
    OtherHolder::Found(Box::new(
        rest.because(draft)
            .counter_evidence("buffer pages that have received no data take no memory")
            .confirmed_by(
                "check inet:getopts(Socket, [buffer, active]) of some connections, and how many processes wait in prim_inet:recv0/3",
            )
            .remedy(remedy::of(
                period,
                "socket.buffer",
                "set {buffer, Bytes} to the size of a request; recbuf and sndbuf raise it",
                "each connection that waits in gen_tcp:recv has a buffer of this size",
                "binary memory and resident memory under the same load",
            )),
    ))
}

/// Drafts a finding if the samples do not show what holds the binaries.
fn holder_unknown(rest: &Unreferenced<'_>, tables: &[TableBinaries<'_>]) -> Option<Draft> {
    let Unreferenced { period, bytes, growing_table, waiting, .. } = *rest;
    let severity = rest.severity(bytes)?;
    let queued = period.stat(&metrics::SCAN_QUEUED, "").map_or(0.0, |stat| stat.mean());
    let has_none = |table: &TableRow| tables.iter().any(|seen| seen.id == table.id && seen.has_none());
    let largest = candidates(period, has_none);
    let table = growing_table.or_else(|| outnumbers(period).filter(|table| !has_none(table)));
    let (title, detail) = match growing_table {
        Some(table) => (
            format!("{} of binaries, likely in ETS table {}", format_bytes(bytes), table.name),
            "no process refers to them; they grow with the table",
        ),
        None => (
            format!("{} of binaries held by no process, holder unknown", format_bytes(bytes)),
            "ETS tables, NIFs, drivers or sockets may hold them",
        ),
    };
    let in_tables: f64 = tables.iter().map(TableBinaries::held_bytes).sum();
    let seen = tables.iter().filter(|table| table.is_seen()).count();
    let draft = Draft::new(severity, title)
        .detail(detail)
        .confidence(if growing_table.is_some() { Confidence::Inferred } else { Confidence::Guess })
        .about(table.map_or(Subject::table(""), TableRow::subject));
    let draft = rest
        .because(draft)
        .because_some((!tables.is_empty()).then(|| {
            Evidence::number("binaries found in ETS tables", in_tables, Unit::Bytes)
                .with_text(format!("{} tables sampled, {seen} of them completely visible", tables.len()))
        }))
        .because_some(
            (!largest.is_empty()).then(|| Evidence::text("application tables with the most objects", largest)),
        )
        .but_if(tables.is_empty(), "what tables hold was not recorded")
        .but_if(
            !tables.is_empty(),
            "binaries in maps, lists and structs, and in private or compressed tables and bags, are not visible",
        )
        .counter_evidence("a table that intentionally holds large binaries, such as a cache, looks the same")
        .counter_evidence(match waiting {
            Some(_) => "drivers and NIFs may hold them",
            None => "drivers, NIFs and sockets with unsent data may hold them",
        })
        .but_if(
            port_queues::receive_buffers(period).is_none() && port_queues::has_sockets(period),
            "receive buffers were not recorded: each connection that waits in gen_tcp:recv has one (option buffer)",
        )
        .but_if(queued >= MIN_QUEUED_MESSAGES, "queued messages may hold them")
        .but_if(
            period.facts.otp_release().is_some_and(|release| release < 27),
            "before OTP 27 a sub-binary from a message counts with its own size: a process may keep more than counted",
        );
    let draft = draft.confirmed_by(
        "compare binary:referenced_byte_size/1 of a binary in a table with its byte_size: far larger means a sub-binary",
    );
    Some(draft.fix_if(growing_table.is_some(), || {
        remedy::of(
            period,
            "code.bounded_table",
            "delete old objects: with a timestamp and ets:select_delete/2, or by using a new table for each time interval",
            "a table keeps its objects until they are deleted",
            "binary memory under the same load",
        )
    }))
}

/// Drafts a finding if most unreferenced binaries wait in ports whose peers do not read.
fn in_ports(period: &Period, resident: f64, waiting: f64, all: f64, referred: f64) -> Option<Draft> {
    let severity = SHARE.of(period).severity(waiting / resident.max(1.0)).filter(|_| waiting >= MIN_BYTES)?;
    let prove = "binary memory and erlang:port_info(Port, queue_size) under the same load";
    Some(
        Draft::new(
            severity,
            format!("{} of binaries wait in sockets, possibly for slow peers", format_bytes(waiting)),
        )
        .detail(format!("of {} of binaries; in the driver queues of ports", format_bytes(all)))
        .confidence(Confidence::Guess)
        .about(port_queues::subject(period))
        .costs(Some(Cost::MemoryBytes(waiting)))
        .evidence(Evidence::number("in driver queues of ports, minimum", waiting, Unit::Bytes))
        .evidence(Evidence::number("binaries of the node, minimum", all, Unit::Bytes))
        .evidence(Evidence::number("referenced by processes, maximum", referred, Unit::Bytes))
        .counter_evidence("a server that intentionally sends large data to slow clients looks the same")
        .confirmed_by(
            "run lists:sum([Q || P <- erlang:ports(), {_, Q} <- [erlang:port_info(P, queue_size)]]) twice: it stays high",
        )
        .remedy(port_queues::slow_peers(period, prove)),
    )
}

/// A table with this many times as many objects as the next one is the likely holder (judgement).
const MIN_OBJECTS_TO_NEXT: i64 = 10;

/// The application's table that has by far the most objects; `None` if no table stands out.
fn outnumbers(period: &Period) -> Option<&TableRow> {
    let mut tables: Vec<&TableRow> = lock_suspects::of_program(period).collect();
    tables.sort_by_key(|table| std::cmp::Reverse(table.objects));
    let (most, next) = (tables.first()?, tables.get(1).map_or(0, |table| table.objects));
    (most.objects >= next.max(1).saturating_mul(MIN_OBJECTS_TO_NEXT)).then_some(most)
}

/// The application's tables that may hold binaries, those with the most objects first.
fn candidates(period: &Period, has_none: impl Fn(&TableRow) -> bool) -> String {
    let mut tables: Vec<&TableRow> =
        lock_suspects::of_program(period).filter(|table| !has_none(table)).collect();
    tables.sort_by(|a, b| b.objects.cmp(&a.objects).then_with(|| a.id.cmp(&b.id)));
    let titles = tables
        .iter()
        .take(MAX_NAMED)
        .map(|table| format!("{} of {} ({})", table.name, table.owner_title(), table.objects));
    titles.collect::<Vec<_>>().join(", ")
}

/// The process's row of `beamtune memory --holders`, if that was run.
fn holder_row<'p>(period: &'p Period, process: &ProcessActivity) -> Option<&'p BinaryHolderRow> {
    period.holders.iter().find(|holder| holder.pid == process.pid && holder.skipped.is_none())
}

/// Drafts a finding about a process that keeps binaries alive.
fn draft(
    period: &Period,
    severity: f64,
    process: &ProcessActivity,
    row: &ProcessRow,
    bytes: f64,
    all: f64,
) -> Draft {
    let subject = process.subject();
    let name = text::name(&subject);
    let is_idle = memory::is_idle(period, process);
    let fullsweep_after = row.fullsweep_after.unwrap_or(65_535);
    let is_swept = row.minor_gcs == Some(0) || memory::hibernates(row);
    let has_many_minor_gcs = row.minor_gcs.is_some_and(|n| n > MIN_MINOR_GCS);
    let state = match (is_idle, is_swept) {
        (true, true) => "idle, after a fullsweep",
        (true, false) => "idle, so no GC runs",
        (false, true) => "active, just after a fullsweep",
        (false, false) => "active, recent GCs were minor",
    };
    let holder = holder_row(period, process);
    let collected = collected::of_process(period, process);
    // A GC frees dropped binaries. If it freed nothing, the process still refers to all of them.
    let is_in_use = collected.is_some_and(Measured::is_little);
    let first = match holder {
        Some(_) => "",
        None => "beamtune memory --holders shows what it alone refers to; ",
    };
    let prove = format!(
        "{first}beamtune memory --collect '{}' shows what a GC frees; binary memory under the same load",
        row.pid
    );
    // Binaries that other processes also refer to are not freed.
    let saving = holder.map_or(bytes, |holder| (holder.alone_bytes as f64).min(bytes));
    Draft::new(
        severity,
        format!(
            "{name} keeps {} of binaries alive, heap {}",
            format_bytes(bytes),
            format_bytes(row.memory_bytes as f64)
        ),
    )
    .detail(text::pid(&subject))
    .detail(state)
    .detail(holder.map_or_else(String::new, |holder| {
        format!("{} referenced by it alone", format_bytes(holder.alone_bytes as f64))
    }))
    .detail(
        collected
            .map_or_else(String::new, |collected| format!("a GC freed {}", format_bytes(collected.freed))),
    )
    // It is unknown whether the process needs the binaries.
    .confidence(Confidence::Inferred)
    .guess_if(is_in_use)
    .about(subject)
    .costs((!is_in_use).then_some(Cost::MemoryBytes(saving)))
    .evidence(Evidence::number("binaries referenced", bytes, Unit::Bytes))
    .because_some(holder.map(|holder| {
        Evidence::number("referenced by it alone", holder.alone_bytes as f64, Unit::Bytes)
            .with_text(format!("{} of {} binaries", holder.exclusive, holder.binaries))
    }))
    .because_some(collected.map(|collected| {
        Evidence::number("freed by a GC of the process", collected.freed, Unit::Bytes).with_text("measured")
    }))
    .evidence(Evidence::number("heap", row.memory_bytes as f64, Unit::Bytes).with_text(state))
    .evidence(Evidence::number("binaries of the node", all, Unit::Bytes))
    .because_some(
        row.minor_gcs.map(|n| Evidence::number("minor GCs since the last fullsweep", n as f64, Unit::Count)),
    )
    .because_some(row.fullsweep_after.map(|n| Evidence::number("fullsweep_after", n as f64, Unit::Count)))
    .because_some(stack::current_function(row).map(|at| Evidence::text("current function", at)))
    .counter_evidence("a process that intentionally holds large binaries, such as a cache, looks the same")
    .remedy(
        remedy::of(
            period,
            "code.binary_copy",
            "call binary:copy/1 on the parts of larger binaries that it keeps (a field, a key, a line)",
            "a sub-binary keeps the whole binary: a match or binary:part/3 does not copy",
            &prove,
        )
        .map(|remedy| if is_in_use { remedy } else { remedy.saving(saving) }),
    )
    .but_if(
        is_in_use,
        "a GC freed almost nothing, so the process uses all of them; copying helps only if they are sub-binaries",
    )
    .fix_if(!is_in_use && !is_swept && (is_idle || !has_many_minor_gcs), || {
        remedy::of(
            period,
            "code.hibernate",
            "let it hibernate when idle (hibernate_after), or call erlang:garbage_collect/0 after large work",
            "dropped binaries are freed only by a GC of the process",
            &prove,
        )
    })
    .fix_if(
        !is_in_use && !is_swept && !is_idle && has_many_minor_gcs && fullsweep_after > MIN_MINOR_GCS,
        || {
            remedy::of(
                period,
                "process.fullsweep_after",
                "spawn_opt {fullsweep_after, 10} for this process",
                "only a fullsweep frees binaries that the old heap refers to",
                &prove,
            )
        },
    )
}
