//! Values that several rules about memory derive from a period.

pub use beamtune_model::memory::PAGE_BYTES;
use beamtune_model::memory::{Allocator, Carriers, MemoryBreakdown, content};
use beamtune_model::{
    Group, Metric, Missing, Period, ProcessActivity, ProcessRow, Remedy, SeriesStat, TableRow, facts, metrics,
};

use crate::remedy;
use crate::signals::limits;
use crate::signals::lock_suspects;
use crate::signals::products;
use crate::signals::table_binaries::TableBinaries;
use crate::signals::watermark::{self, AssumedWatermark};
use crate::view;

/// Formats bytes in MB or GB.
pub fn format_bytes(bytes: f64) -> String {
    match bytes / 1e6 {
        mb if mb.abs() >= 9_950.0 => format!("{:.1} GB", mb / 1e3),
        mb if mb.abs() >= 9.95 => format!("{mb:.0} MB"),
        mb => format!("{mb:.1} MB"),
    }
}

/// Returns the flags that let blocks of up to this size in kB share carriers, for the allocator with this letter. They set the threshold,
/// and carriers large enough for ten of the largest blocks: one without the other makes it worse (erlang/otp#9521).
pub fn sharing_carriers(letter: char, sbct_kb: f64) -> String {
    format!("+M{letter}sbct {sbct_kb:.0} +M{letter}lmbcs {:.0}", 10.0 * sbct_kb)
}

/// Maximum number of segments that a cache can keep (`+MMmcs`); the VM reduces larger values to it.
const MOST_CACHED_SEGMENTS: u32 = 30;

/// Returns the remedy to set a segment cache of maximum size; `None` if it has that already.
pub fn larger_segment_cache(period: &Period, why: &str, prove: &str) -> Option<Remedy> {
    let given =
        view::emulator_flag(&period.facts, "+MMmcs").value().and_then(|most| most.parse::<u32>().ok());
    let change = format!("+MMmcs {MOST_CACHED_SEGMENTS}");
    let is_larger = given.is_none_or(|most| most < MOST_CACHED_SEGMENTS);
    is_larger.then(|| remedy::of(period, "+MMmcs", &change, why, prove)).flatten()
}

/// `min_heap_size` of processes in words, unless `+hms` sets it.
pub const DEFAULT_FIRST_HEAP_WORDS: i64 = 233;

/// Up to this `fullsweep_after`, fullsweeps are frequent (judgement); the default is 65,535.
pub const FEW_SWEEPS: i64 = 20;

/// Bytes of a word: heaps and garbage are counted in words. 32-bit emulators are rare.
pub const WORD_BYTES: f64 = 8.0;

/// Minimum growth of binaries within a period that is not noise, in bytes (judgement, as for growing memory in short recordings).
const GROWN_BYTES: f64 = 16e6;

/// Minimum share that a cause must explain (judgement: more than half).
const MOST: f64 = 0.5;

/// Returns the program's table that most likely keeps the growing binaries: no process refers to them, and this table grows.
pub fn binaries_of_table(period: &Period) -> Option<&TableRow> {
    let binaries = period.find(Group::Memory, "", "binary")?;
    let referred = period.stat(&metrics::SCAN_BINARIES, "").ok()?;
    // Operators cannot change the tables of a product.
    if products::is_of_others(period) {
        return None;
    }
    // On a busy node, binaries rise and fall by this much within seconds: only steady growth matters.
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

/// Returns the growth of a table since it was first recorded, in bytes.
pub fn table_growth_bytes(period: &Period, table: &TableRow) -> i64 {
    let first = period.tables_first.get(&table.id).map_or(table.memory_bytes, |&(_, bytes)| bytes);
    table.memory_bytes.saturating_sub(first)
}

/// Returns the resident memory at the end of the period, in bytes.
pub fn resident(period: &Period) -> Result<f64, Missing> {
    Ok(period.stat(&metrics::RSS, "")?.last.value as f64)
}

/// Returns the memory that shares refer to, with its name: resident memory. VM tools do not print that, so for imported text it is the size
/// of all carriers.
pub fn resident_or_carriers(period: &Period, all: &[Allocator]) -> Result<(f64, &'static str), Missing> {
    match resident(period) {
        Ok(resident) => Ok((resident, OF_RESIDENT)),
        Err(_) if period.is_imported() => {
            Ok((all.iter().map(|of| of.all().size as f64).sum(), "of all carriers"))
        }
        Err(missing) => Err(missing),
    }
}

/// Name of what a share refers to, if the kernel's data are known.
pub const OF_RESIDENT: &str = "of resident memory";

/// Returns an error if carriers are missing, as they may be in imported text.
pub fn all_carriers(period: &Period) -> Result<(), Missing> {
    let left_out = period.gaps.iter().find(|gap| gap.source == "vm.carriers");
    match left_out.filter(|_| period.is_imported()) {
        None => Ok(()),
        Some(gap) => Err(Missing {
            what: "all carriers".to_owned(),
            why: gap.reason.clone(),
            next_step: "copy all of it (docs/import.md)".to_owned(),
        }),
    }
}

/// Reductions per second that sampling costs a process: it answers the request itself (1 or 2 reductions each time). Handling a message
/// takes more than ten.
const OF_BEING_SEEN: f64 = 2.0;

/// True for a process that only answered the agent in the period. A process that collects a huge heap whenever it is sampled cannot answer,
/// but the VM reports its GCs.
pub fn is_idle(period: &Period, process: &ProcessActivity) -> bool {
    process.reductions as f64 <= OF_BEING_SEEN * period.seconds()
        && !period.events.iter().any(|event| event.subject.contains(&process.pid))
}

/// Maximum heap that a process needs for a reduction (judgement: a call that builds a list cell or two).
const BYTES_PER_REDUCTION: f64 = 80.0;

/// A heap with room for this long is practically never collected (judgement).
const NEVER_SECONDS: f64 = 600.0;

/// True for a process that does so little that a heap of this size, half of which is free, will not fill for minutes. It keeps its garbage
/// like an idle process.
pub fn hardly_works(period: &Period, process: &ProcessActivity, heap_bytes: i64) -> bool {
    let per_second = process.reductions as f64 / period.seconds().max(1.0);
    per_second * BYTES_PER_REDUCTION * NEVER_SECONDS <= heap_bytes as f64 / 2.0
        && !period.events.iter().any(|event| event.subject.contains(&process.pid))
}

/// Heaps of this size in words, or more, are collected by a dirty scheduler (ERTS_POTENTIALLY_LONG_GC_HSIZE).
pub const LARGE_HEAP_WORDS: i64 = 131_072;

/// True for a hibernated process: hibernation ran a fullsweep and shrank its heap to the minimum. Its count of GCs since the last fullsweep
/// does not show it (OTP's erl_gc.c, garbage_collect_hibernate). Since OTP 28 behaviours do so within their loop.
pub fn hibernates(row: &ProcessRow) -> bool {
    let is_there = |at: &str| at.starts_with("erlang:hibernate/") || at.contains(":loop_hibernate/");
    row.current_function.as_deref().is_some_and(is_there)
}

/// Room in which resident memory can grow.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Room {
    /// Size of the room, in bytes.
    pub bytes: f64,
    /// The limit at which it ends.
    pub end: End,
}

/// The limit that ends the growth of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    ControlGroup,
    Host,
    /// RabbitMQ's memory watermark, above which it blocks publishers. `unsure` says why its value is uncertain; `None` if RabbitMQ reported
    /// it.
    Watermark {
        unsure: Option<&'static str>,
    },
}

impl End {
    /// Formats what happens when the limit is reached.
    pub fn sentence(self) -> &'static str {
        match self {
            End::ControlGroup => "the memory limit of its control group is used up",
            End::Host => "the host's memory is used up",
            End::Watermark { .. } => "RabbitMQ blocks its publishers",
        }
    }
}

/// Returns the smallest known room. The usage of a control group contains caches, which the kernel gives up when memory is short. So
/// resident memory is compared with the group's limit, as in BT037; the use by other processes of the group is not known separately. BT037
/// reports a watermark that is already reached.
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
    let mark =
        told.or_else(|| AssumedWatermark::of(period).map(|assumed| (assumed.bytes, Some(assumed.but()))));
    let mark = mark
        .zip(resident)
        .filter(|((mark, _), resident)| mark > resident)
        .map(|((mark, unsure), resident)| Room { bytes: mark - resident, end: End::Watermark { unsure } });
    [group, host, mark].into_iter().flatten().min_by(|a, b| a.bytes.total_cmp(&b.bytes))
}

/// Returns the memory that the node may use, in bytes: resident memory and the remaining room.
pub fn available(period: &Period) -> Option<f64> {
    let resident = resident(period).ok()?;
    Some(resident + room(period).map_or(0.0, |room| room.bytes))
}

/// Requests for mseg segments, per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Segments {
    /// Segments requested.
    pub requested: f64,
    /// Segments mapped and unmapped again.
    pub mapped: f64,
    /// Share of requests that the segment cache could serve, 0 to 1.
    pub hits: f64,
}

impl Segments {
    /// At or above this share, the cache works (recon's threshold).
    pub const GOOD_HITS: f64 = 0.8;

    /// Sums over all instances.
    pub fn of(period: &Period) -> Result<Segments, Missing> {
        let instances = period.entities(Group::Mseg);
        let Some(first) = instances.first() else {
            return Err(period.missing_group(Group::Mseg, "segment requests"));
        };
        let sum = |metric: &'static Metric| -> Result<f64, Missing> {
            // All instances are read together: if the first lacks a value, all lack it.
            period.rate(metric, first)?;
            Ok(instances.iter().filter_map(|instance| period.rate(metric, instance).ok()).sum())
        };
        let (created, asked) = (sum(&metrics::MSEG_CREATES)?, sum(&metrics::MSEG_ALLOCATIONS)?);
        // While memory grows, segments are mapped and stay. Requests that a full super carrier refused count as mapped, but never as
        // unmapped.
        let mapped = created.min(sum(&metrics::MSEG_DESTROYS)?);
        let hits = if asked > 0.0 { (1.0 - created / asked).clamp(0.0, 1.0) } else { 1.0 };
        Ok(Segments { requested: asked, mapped, hits })
    }
}

/// Two rates within this factor of each other are considered the same events (judgement).
const SAME_RATE_FACTOR: f64 = 2.0;

/// Whether segments are mapped and unmapped about as often as copies are made: then each copy maps a segment.
pub fn is_segment_rate(period: &Period, per_second: f64) -> bool {
    Segments::of(period).is_ok_and(|segments| {
        let ratio = per_second / segments.mapped.max(f64::MIN_POSITIVE);
        (1.0 / SAME_RATE_FACTOR..=SAME_RATE_FACTOR).contains(&ratio)
    })
}

/// Default of `+M<S>sbct`, in kB: larger blocks get a carrier of their own.
pub const DEFAULT_SBCT_KB: f64 = 512.0;

/// CPU time that the kernel needs to map, clear, touch and unmap a page, in seconds. Measured: 50,000 faults per second took 0.10 to 0.13
/// cores (lab mseg-cache-thrash, OTP 23 to 29).
pub const PAGE_SECONDS: f64 = 2.2e-6;

/// Maximum size of a super carrier as a share of the host's memory; the rest is left for everything else. With `+MMscrpm true`, the
/// default, a super carrier counts as committed from the start. One larger than memory and swap is refused, and the VM does not start
/// ("Failed to create super carrier", run on OTP 25).
const MOST_OF_HOST: f64 = 0.9;

/// Ratio of the size of a super carrier to the peak size of all carriers.
const SUPER_CARRIER_ROOM: f64 = 1.25;

/// Sizes of super carriers are multiples of this, in MB.
const STEP_MB: f64 = 64.0;

const MB: f64 = (1 << 20) as f64;

/// Returns the largest super carrier (`+MMscs`) that the memory of the node has room for, in MB of 1,048,576 bytes; infinite if unknown.
pub fn largest_super_carrier_mb(period: &Period) -> f64 {
    let host = period.facts.number(facts::HOST_MEMORY).filter(|bytes| *bytes > 0);
    let host = host.map(|bytes| MOST_OF_HOST * bytes as f64);
    let group = period.stat(&metrics::CGROUP_MEMORY_LIMIT, "memory").ok().map(|stat| stat.last.value);
    let group = group.filter(|bytes| *bytes > 0).map(|bytes| bytes as f64);
    (host.unwrap_or(f64::INFINITY).min(group.unwrap_or(f64::INFINITY)) / MB).floor()
}

/// Returns the size of a super carrier for the peak size of all carriers, limited by the memory. It is in MB of 1,048,576 bytes; `None` if
/// the peak is unknown.
pub fn fitting_super_carrier_mb(period: &Period, all: &[Allocator]) -> Option<f64> {
    let peak = peak(all);
    let wanted = (peak * SUPER_CARRIER_ROOM / MB / STEP_MB).ceil() * STEP_MB;
    (peak > 0.0).then(|| wanted.min(largest_super_carrier_mb(period)))
}

/// Returns the peak size of all carriers, in bytes; 0 if it was not read.
pub fn peak(all: &[Allocator]) -> f64 {
    all.iter().fold(0_i64, |sum, allocator| sum.saturating_add(allocator.max_size)) as f64
}

/// Memory in carriers that no block uses, in bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Unused {
    /// The resident part; an upper bound if the pages were not read.
    pub bytes: f64,
    /// Whether the pages were read.
    pub is_measured: bool,
}

/// Returns the memory in some carriers of an allocator that is resident and used by no block. If the pages were not read, it is at most the
/// resident memory beyond all `blocks` of the VM, in bytes. (A carrier for a huge table may be twice as large as the table, with pages that
/// were never touched.)
pub fn unused(
    bridge: &MemoryBreakdown,
    allocator: &Allocator,
    sets: &[&str],
    carriers: Carriers,
    blocks: i64,
) -> Unused {
    let nominal = carriers.free() as f64;
    if bridge.explained().is_none() {
        let beyond = bridge.resident.map_or(nominal, |resident| resident.saturating_sub(blocks) as f64);
        return Unused { bytes: beyond.clamp(0.0, nominal), is_measured: false };
    }
    let entities: Vec<String> = sets.iter().map(|set| content::carriers(&allocator.name, set)).collect();
    let resident: f64 = bridge
        .parts
        .iter()
        .filter(|part| entities.contains(&part.entity))
        .map(|part| part.resident as f64)
        .sum();
    // Blocks whose pages were never touched make this too small, never too large.
    Unused { bytes: (resident - carriers.blocks_size as f64).clamp(0.0, nominal), is_measured: true }
}
