//! What the rules about memory derive from a period in the same way.

pub use beamtune_model::memory::PAGE_BYTES;
use beamtune_model::memory::{Allocator, Bridge, Carriers, content};
use beamtune_model::{
    Group, Metric, Missing, Period, ProcessRow, ProcessUse, Remedy, SeriesStat, TableRow, facts, metrics,
};

use crate::remedy;
use crate::signals::limits;
use crate::signals::lock_suspects;
use crate::signals::products;
use crate::signals::table_binaries::TableBinaries;
use crate::signals::watermark::{self, Assumed};
use crate::view;

/// Bytes as a person writes them.
pub fn megabytes(bytes: f64) -> String {
    match bytes / 1e6 {
        mb if mb.abs() >= 9_950.0 => format!("{:.1} GB", mb / 1e3),
        mb if mb.abs() >= 9.95 => format!("{mb:.0} MB"),
        mb => format!("{mb:.1} MB"),
    }
}

/// The flags with which blocks of up to this size in kB share carriers, of an allocator by its letter: the threshold, and carriers for ten
/// of the largest blocks (one without the other makes it worse, erlang/otp#9521).
pub fn sharing_carriers(letter: char, sbct_kb: f64) -> String {
    format!("+M{letter}sbct {sbct_kb:.0} +M{letter}lmbcs {:.0}", 10.0 * sbct_kb)
}

/// The maximum of segments that a cache can keep (`+MMmcs`; larger values are taken as this).
const MOST_CACHED_SEGMENTS: u32 = 30;

/// A segment cache of maximum size; `None` if it has that already.
pub fn larger_segment_cache(period: &Period, why: &str, prove: &str) -> Option<Remedy> {
    let given =
        view::emulator_flag(&period.facts, "+MMmcs").value().and_then(|most| most.parse::<u32>().ok());
    let change = format!("+MMmcs {MOST_CACHED_SEGMENTS}");
    let is_larger = given.is_none_or(|most| most < MOST_CACHED_SEGMENTS);
    is_larger.then(|| remedy::of(period, "+MMmcs", &change, why, prove)).flatten()
}

/// `min_heap_size` of processes in words, unless `+hms` sets it.
pub const DEFAULT_FIRST_HEAP_WORDS: i64 = 233;

/// Up to this fullsweep_after nearly every GC is a fullsweep (judgement); the default is 65,535.
pub const FEW_SWEEPS: i64 = 20;

/// Bytes of a word: heaps and garbage are counted in words. 32-bit emulators are rare.
pub const WORD_BYTES: f64 = 8.0;

/// Growth of binaries within a period that is not noise, in bytes (judgement, as for growing memory in short recordings).
const GROWN_BYTES: f64 = 16e6;

/// What a cause must explain at least (judgement: more than half).
const MOST: f64 = 0.5;

/// The program's table that most likely keeps the growing binaries: no process refers to them, and this table grows.
pub fn binaries_of_table(period: &Period) -> Option<&TableRow> {
    let binaries = period.find(Group::Memory, "", "binary")?;
    let referred = period.stat(&metrics::SCAN_BINARIES, "").ok()?;
    // The tables of a product are not its operators' to change.
    if products::is_of_others(period) {
        return None;
    }
    // A busy node goes up and down by this much within seconds: only steady growth counts.
    limits::growth(&view::trend_points(&binaries.trace), f64::INFINITY)?;
    let grown = |stat: &SeriesStat| stat.last.value.saturating_sub(stat.first.value) as f64;
    let (grown, by_processes) = (grown(binaries), grown(referred));
    if grown < GROWN_BYTES || by_processes > (1.0 - MOST) * grown {
        return None;
    }
    let grown = |table: &TableRow| table_growth_bytes(period, table);
    let all: i64 = lock_suspects::of_program(period).map(|table| grown(table).max(0)).sum();
    let table = lock_suspects::of_program(period).max_by_key(|table| grown(table))?;
    let has_none = || TableBinaries::all(period).iter().any(|seen| seen.id == table.id && seen.has_none());
    (all > 0 && grown(table) as f64 >= MOST * all as f64 && !has_none()).then_some(table)
}

/// Growth of a table since it was first seen, in bytes.
pub fn table_growth_bytes(period: &Period, table: &TableRow) -> i64 {
    let first = period.tables_first.get(&table.id).map_or(table.memory_bytes, |&(_, bytes)| bytes);
    table.memory_bytes.saturating_sub(first)
}

/// Resident memory at the end of the period, in bytes.
pub fn resident(period: &Period) -> Result<f64, Missing> {
    Ok(period.stat(&metrics::RSS, "")?.last.value as f64)
}

/// What shares of memory refer to, and its name: resident memory. Tools of the VM do not print that, so for imported text all of its
/// carriers.
pub fn resident_or_carriers(period: &Period, all: &[Allocator]) -> Result<(f64, &'static str), Missing> {
    match resident(period) {
        Ok(resident) => Ok((resident, OF_RESIDENT)),
        Err(_) if period.is_imported() => {
            Ok((all.iter().map(|of| of.all().size as f64).sum(), "of all carriers"))
        }
        Err(missing) => Err(missing),
    }
}

/// What a share refers to, if the kernel's data are known.
pub const OF_RESIDENT: &str = "of what is resident";

/// That all carriers are known: some may be missing in an imported text.
pub fn all_carriers(period: &Period) -> Result<(), Missing> {
    let left_out = period.gaps.iter().find(|gap| gap.source == "vm.carriers");
    match left_out.filter(|_| period.is_imported()) {
        None => Ok(()),
        Some(gap) => Err(Missing {
            what: "the other carriers".to_owned(),
            why: gap.reason.clone(),
            next: "copy all of it (docs/import.md)".to_owned(),
        }),
    }
}

/// Reductions a second that a process spends on being sampled: it answers itself (1 or 2 each time). Handling a message takes more than
/// ten.
const OF_BEING_SEEN: f64 = 2.0;

/// True for a process that did nothing in the period except answer the agent. A process that collects a huge heap whenever it is sampled
/// cannot be asked, but the VM reports its GCs.
pub fn is_idle(period: &Period, process: &ProcessUse) -> bool {
    process.reductions as f64 <= OF_BEING_SEEN * period.seconds()
        && !period.events.iter().any(|event| event.subject.contains(&process.pid))
}

/// Heap that a process needs for a reduction, at most (judgement: a call that builds a list cell or two).
const BYTES_PER_REDUCTION: f64 = 80.0;

/// A heap with room for as long as this is practically never collected (judgement).
const NEVER_SECONDS: f64 = 600.0;

/// True for a process that does so little that a heap of this size, half of which is free, will not fill for minutes: it keeps its garbage
/// like an idle process.
pub fn hardly_works(period: &Period, process: &ProcessUse, heap_bytes: i64) -> bool {
    let per_second = process.reductions as f64 / period.seconds().max(1.0);
    per_second * BYTES_PER_REDUCTION * NEVER_SECONDS <= heap_bytes as f64 / 2.0
        && !period.events.iter().any(|event| event.subject.contains(&process.pid))
}

/// From this size in words on, a dirty scheduler collects the heap (ERTS_POTENTIALLY_LONG_GC_HSIZE).
pub const LARGE_HEAP_WORDS: i64 = 131_072;

/// True for a hibernated process: hibernation ran a fullsweep and shrank its heap to the minimum. Its count of GCs since the last fullsweep
/// does not show it (OTP's erl_gc.c, garbage_collect_hibernate). Since OTP 28 behaviours do so within their loop.
pub fn hibernates(row: &ProcessRow) -> bool {
    let is_there = |at: &str| at.starts_with("erlang:hibernate/") || at.contains(":loop_hibernate/");
    row.current_function.as_deref().is_some_and(is_there)
}

/// Room for growth of resident memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Room {
    /// In bytes.
    pub bytes: f64,
    /// Its limit.
    pub end: End,
}

/// The limit of a node's growth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    ControlGroup,
    Host,
    /// RabbitMQ's own watermark, from which it blocks its publishers; with its uncertainty, unless RabbitMQ reported it.
    Watermark {
        unsure: Option<&'static str>,
    },
}

impl End {
    /// What happens then.
    pub fn sentence(self) -> &'static str {
        match self {
            End::ControlGroup => "the memory limit of its control group is used up",
            End::Host => "the host's memory is used up",
            End::Watermark { .. } => "RabbitMQ blocks its publishers",
        }
    }
}

/// The smallest known room. The kernel's caches for a group count in its usage and give way: resident memory is compared with the group's
/// limit, as BT037 does; what others of the group use is not known separately. A watermark that is reached is BT037's.
pub fn room(period: &Period) -> Option<Room> {
    let last = |metric, entity| period.stat(metric, entity).ok().map(|stat| stat.last.value as f64);
    let resident = resident(period).ok();
    let group = last(&metrics::CGROUP_MEMORY_LIMIT, "memory")
        .filter(|limit| *limit > 0.0)
        .zip(resident)
        .map(|(limit, resident)| Room { bytes: (limit - resident).max(0.0), end: End::ControlGroup });
    let host =
        last(&metrics::MEMORY_AVAILABLE, "").map(|bytes| Room { bytes: bytes.max(0.0), end: End::Host });
    let told = watermark::reported(period).map(|mark| (mark, None));
    let mark = told.or_else(|| Assumed::of(period).map(|assumed| (assumed.bytes, Some(assumed.but()))));
    let mark = mark
        .zip(resident)
        .filter(|((mark, _), resident)| mark > resident)
        .map(|((mark, unsure), resident)| Room { bytes: mark - resident, end: End::Watermark { unsure } });
    [group, host, mark].into_iter().flatten().min_by(|a, b| a.bytes.total_cmp(&b.bytes))
}

/// Memory that the node may use, in bytes: resident memory and the remaining room.
pub fn available(period: &Period) -> Option<f64> {
    let resident = resident(period).ok()?;
    Some(resident + room(period).map_or(0.0, |room| room.bytes))
}

/// Calls for segments, per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Segments {
    /// Asked for.
    pub asked: f64,
    /// Mapped and unmapped again.
    pub mapped: f64,
    /// Share of requests that the cache could serve, 0–1.
    pub hits: f64,
}

impl Segments {
    /// From here on the cache works (recon's threshold).
    pub const GOOD_HITS: f64 = 0.8;

    /// Sum over all instances.
    pub fn of(period: &Period) -> Result<Segments, Missing> {
        let instances = period.entities(Group::Mseg);
        let Some(first) = instances.first() else {
            return Err(period.missing_group(Group::Mseg, "calls for segments"));
        };
        let sum = |metric: &'static Metric| -> Result<f64, Missing> {
            // All instances are read together: if the first lacks a value, all lack it.
            period.rate(metric, first)?;
            Ok(instances.iter().filter_map(|instance| period.rate(metric, instance).ok()).sum())
        };
        let (created, asked) = (sum(&metrics::MSEG_CREATES)?, sum(&metrics::MSEG_ALLOCATIONS)?);
        // While memory grows, segments are mapped and stay. And requests that a full super carrier refused are counted as mapped, but never
        // as unmapped.
        let mapped = created.min(sum(&metrics::MSEG_DESTROYS)?);
        let hits = if asked > 0.0 { (1.0 - created / asked).clamp(0.0, 1.0) } else { 1.0 };
        Ok(Segments { asked, mapped, hits })
    }
}

/// Two rates within this factor of each other are taken for the same events (judgement).
const SAME_RATE_FACTOR: f64 = 2.0;

/// Whether segments are mapped and unmapped about as often as this: each copy of that kind maps one.
pub fn is_segment_rate(period: &Period, per_second: f64) -> bool {
    Segments::of(period).is_ok_and(|segments| {
        let ratio = per_second / segments.mapped.max(f64::MIN_POSITIVE);
        (1.0 / SAME_RATE_FACTOR..=SAME_RATE_FACTOR).contains(&ratio)
    })
}

/// Larger blocks get a carrier of their own, unless `+M<S>sbct` says otherwise, in kB.
pub const DEFAULT_SBCT_KB: f64 = 512.0;

/// CPU time of the kernel to map, clear, touch and unmap a page, in seconds: 50,000 faults a second took 0.10 to 0.13 cores of the kernel
/// (lab mseg-cache-thrash, OTP 23 to 29).
pub const PAGE_SECONDS: f64 = 2.2e-6;

/// With `+MMscrpm true`, the default, a super carrier counts as committed from the start: one larger than memory and swap is refused, and
/// the VM does not start ("Failed to create super carrier", run on OTP 25). The rest of the host's memory is left for all else.
const MOST_OF_HOST: f64 = 0.9;

/// Factor between a super carrier and the largest size that carriers have had.
const SUPER_CARRIER_ROOM: f64 = 1.25;

/// Sizes of super carriers are multiples of this, in MB.
const STEP_MB: f64 = 64.0;

const MB: f64 = (1 << 20) as f64;

/// The largest super carrier that the node's memory has room for (`+MMscs`), in MB of 1,048,576 bytes; infinite if unknown.
pub fn largest_super_carrier_mb(period: &Period) -> f64 {
    let host = period.facts.number(facts::HOST_MEMORY).filter(|bytes| *bytes > 0);
    let host = host.map(|bytes| MOST_OF_HOST * bytes as f64);
    let group = period.stat(&metrics::CGROUP_MEMORY_LIMIT, "memory").ok().map(|stat| stat.last.value);
    let group = group.filter(|bytes| *bytes > 0).map(|bytes| bytes as f64);
    (host.unwrap_or(f64::INFINITY).min(group.unwrap_or(f64::INFINITY)) / MB).floor()
}

/// A super carrier for the largest size that carriers have had, limited by the memory, in MB of 1,048,576 bytes; `None` if that size is
/// unknown.
pub fn fitting_super_carrier_mb(period: &Period, all: &[Allocator]) -> Option<f64> {
    let peak = peak(all);
    let wanted = (peak * SUPER_CARRIER_ROOM / MB / STEP_MB).ceil() * STEP_MB;
    (peak > 0.0).then(|| wanted.min(largest_super_carrier_mb(period)))
}

/// The largest size that all carriers have had, in bytes; 0 if it was not read.
pub fn peak(all: &[Allocator]) -> f64 {
    all.iter().fold(0_i64, |sum, allocator| sum.saturating_add(allocator.largest)) as f64
}

/// Memory in carriers that no block uses, in bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Unused {
    /// The resident part; if the pages were not read, the maximum.
    pub bytes: f64,
    /// Whether the pages were read.
    pub looked: bool,
}

/// The resident part of some of an allocator's carriers that no block uses. If the pages were not read, at most what is resident beyond all
/// `blocks` of the VM, in bytes: a carrier for a huge table may be twice as large as the table, and never touched.
pub fn unused(
    bridge: &Bridge,
    allocator: &Allocator,
    sets: &[&str],
    carriers: Carriers,
    blocks: i64,
) -> Unused {
    let nominal = carriers.free() as f64;
    if bridge.explained().is_none() {
        let beyond = bridge.resident.map_or(nominal, |resident| resident.saturating_sub(blocks) as f64);
        return Unused { bytes: beyond.clamp(0.0, nominal), looked: false };
    }
    let entities: Vec<String> = sets.iter().map(|set| content::carriers(&allocator.name, set)).collect();
    let resident: f64 = bridge
        .parts
        .iter()
        .filter(|part| entities.contains(&part.entity))
        .map(|part| part.resident as f64)
        .sum();
    // Blocks whose pages were never touched make this too small, never too large.
    Unused { bytes: (resident - carriers.blocks_size as f64).clamp(0.0, nominal), looked: true }
}
