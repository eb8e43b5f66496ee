//! Converts results of `instrument:allocations` and `instrument:carriers` to the rows that beamtune's own carrier walk creates.
//!
//! Both contain histograms of sizes with bin boundaries that depend on the release (erts/emulator/beam/erl_alloc_util.c), so the release
//! must be known. A bin of blocks ends at the start times a power of two; until OTP 26, the start is subtracted. A bin of free blocks ends
//! at twice this value until OTP 25.

use std::collections::{BTreeMap, HashMap};

use beamtune_model::{AllocationRow, BlockSum, CarrierRow, Metric, SizeCount, metrics};

use crate::answers::Call;
use crate::part::{ALLOCATIONS, CARRIERS, Omission, PartData, TRUNCATED, Tool, Value};
use crate::term::Term;

pub const TOOL: Tool = "instrument";

/// Maximum number of bins in a histogram of the VM.
const MAX_BINS: usize = 64;

const RELEASE: &str = "the bins of its histograms depend on the OTP release: copy the VM's banner too (Erlang/OTP 27 [erts-15.0] …)";
const MALFORMED: &str =
    "it is not a result of this instrument function: a count is invalid, or the histograms differ in length";
const BY_PROCESS: &str = "it is listed by process or function: print instrument:allocations()";
const SOME_BLOCKS: &str = "the call may have selected only some of the blocks";
const SOME_CARRIERS: &str = "the call may have selected only some of the carriers";

/// Interprets the result of either function; `None` if the term is something else.
pub fn interpret(
    term: &Term,
    call: Option<&Call>,
    release: Option<u32>,
) -> Option<(Tool, Result<PartData, &'static str>)> {
    let [ok, Term::Tuple(result)] = term.tuple()? else { return None };
    if ok.atom() != Some("ok") {
        return None;
    }
    let checked = |build: &dyn Fn(i64, u32) -> Option<PartData>| match (
        result.first().and_then(Term::integer),
        release,
    ) {
        _ if term.is_truncated() => Err(TRUNCATED),
        (_, None) => Err(RELEASE),
        (Some(start), Some(release)) if start > 0 && start <= 1 << 30 => {
            build(start, release).ok_or(MALFORMED)
        }
        _ => Err(MALFORMED),
    };
    let is_all_of = |name: &str| call.is_some_and(|call| call.function == name && call.arguments.is_empty());
    let data = match result.as_slice() {
        // With the option `flags`, origins are pids or functions instead of names.
        [Term::Integer(_), Term::Integer(_), Term::Map(origins)]
            if origins.iter().any(|(origin, _)| matches!(origin, Term::Other | Term::Tuple(_))) =>
        {
            Err(BY_PROCESS)
        }
        [Term::Integer(_), Term::Integer(unscanned), Term::Map(origins)] => {
            let is_whole = is_all_of("allocations");
            checked(&|start, release| allocations(start, release, *unscanned, origins, is_whole))
        }
        [Term::Integer(_), Term::List(all)]
            if all.iter().all(|carrier| carrier.tuple().is_some_and(|parts| parts.len() == 6)) =>
        {
            let is_whole = is_all_of("carriers");
            checked(&|start, release| carriers(start, release, all, is_whole))
        }
        _ => return None,
    };
    Some((TOOL, data))
}

fn amount(term: &Term) -> Option<i64> {
    term.integer().filter(|amount| *amount >= 0)
}

fn counts(histogram: &Term) -> Option<Vec<i64>> {
    let bins = histogram.tuple()?;
    (2..=MAX_BINS).contains(&bins.len()).then(|| bins.iter().map(amount).collect())?
}

/// Returns a histogram without empty bins. Of several bins with the same boundary, the VM uses only one.
fn sizes(bounds: &[i64], counts: &[i64]) -> Vec<SizeCount> {
    let mut sizes: Vec<SizeCount> = Vec::new();
    for (from, count) in bounds.iter().zip(counts).filter(|(_, count)| **count > 0) {
        match sizes.last_mut() {
            Some(last) if last.from == *from => last.count = last.count.saturating_add(*count),
            _ => sizes.push(SizeCount { from: *from, count: *count }),
        }
    }
    sizes
}

/// Multiplies a size by a power of two, saturating.
fn doubled(size: i64, times: usize) -> i64 {
    size.saturating_mul(1_i64.checked_shl(u32::try_from(times.min(62)).unwrap_or(62)).unwrap_or(i64::MAX))
}

fn block_bounds(start: i64, release: u32, bins: usize) -> Vec<i64> {
    let bound = |bin: usize| match (bin, release >= 27) {
        (0, _) => 0,
        (bin, true) => doubled(start, bin - 1),
        (bin, false) => doubled(start, bin).saturating_sub(start),
    };
    (0..bins).map(bound).collect()
}

fn free_bounds(start: i64, is_since_26: bool, bins: usize) -> Vec<i64> {
    let unit = start.saturating_mul(2);
    let bound = |bin: usize| match (bin, is_since_26) {
        (0, _) | (1, true) => 0,
        (bin, true) => doubled(unit, bin - 2),
        (bin, false) => doubled(unit, bin).saturating_sub(unit),
    };
    (0..bins).map(bound).collect()
}

fn allocations(
    start: i64,
    release: u32,
    unscanned: i64,
    origins: &[(Term, Term)],
    is_whole: bool,
) -> Option<PartData> {
    let omission = (!is_whole).then_some(Omission { source: ALLOCATIONS, why: SOME_BLOCKS });
    let mut data = PartData { omission, ..PartData::default() };
    for (origin, kinds) in origins {
        for (kind, histogram) in kinds.map()? {
            let counts = counts(histogram)?;
            let bounds = block_bounds(start, release, counts.len());
            // The size is estimated as if all blocks of a bin had the size in its middle.
            let estimate = counts.iter().enumerate().fold(0_i64, |sum, (bin, count)| {
                let middle = match bounds.get(bin + 1) {
                    Some(next) => bounds[bin].saturating_add(*next) / 2,
                    None => bounds[bin].saturating_mul(3) / 2,
                };
                sum.saturating_add(count.saturating_mul(middle))
            });
            data.allocations.push(AllocationRow {
                origin: origin.atom()?.to_owned(),
                kind: kind.atom()?.to_owned(),
                blocks: counts.iter().fold(0, |sum: i64, count| sum.saturating_add(*count)),
                bytes: estimate,
                sizes: sizes(&bounds, &counts),
                ..AllocationRow::default()
            });
        }
    }
    if unscanned < 0 {
        return None;
    }
    if unscanned > 0 {
        let skipped = Some("unscanned".to_owned());
        data.allocations.push(AllocationRow { skipped, bytes: unscanned, ..AllocationRow::default() });
    }
    data.allocations.sort_by_key(|row| std::cmp::Reverse(row.bytes));
    Some(data)
}

/// A carrier in a result of `instrument:carriers`.
struct Carrier<'a> {
    allocator: &'a str,
    in_pool: bool,
    bytes: i64,
    unscanned: i64,
    blocks: Vec<BlockSum>,
    free: Vec<i64>,
}

impl<'a> Carrier<'a> {
    fn read(term: &'a Term) -> Option<Self> {
        let [allocator, in_pool, bytes, unscanned, blocks, free] = term.tuple()? else { return None };
        let in_pool = match in_pool.atom()? {
            "true" => true,
            "false" => false,
            _ => return None,
        };
        let blocks = blocks.list()?.iter().map(|block| match block.tuple()? {
            [of, count, bytes] => Some(BlockSum {
                allocator: of.atom()?.to_owned(),
                count: amount(count)?,
                bytes: amount(bytes)?,
            }),
            _ => None,
        });
        let carrier = Carrier {
            allocator: allocator.atom()?,
            in_pool,
            bytes: amount(bytes).filter(|bytes| *bytes > 0)?,
            unscanned: amount(unscanned)?,
            blocks: blocks.collect::<Option<Vec<_>>>()?,
            free: counts(free)?,
        };
        (carrier.used() <= carrier.bytes && carrier.unscanned <= carrier.bytes).then_some(carrier)
    }

    fn used(&self) -> i64 {
        self.blocks.iter().fold(0, |sum, block| sum.saturating_add(block.bytes))
    }

    fn count(&self) -> i64 {
        self.blocks.iter().fold(0, |sum, block| sum.saturating_add(block.count))
    }

    /// Whether it is a singleblock carrier. According to the VM, the block of such a carrier fills it completely, including its header.
    fn is_single(&self) -> bool {
        self.unscanned == 0
            && self.free.iter().all(|count| *count == 0)
            && matches!(self.blocks.as_slice(), [one] if one.count == 1 && one.bytes == self.bytes)
    }
}

fn carriers(start: i64, release: u32, all: &[Term], is_whole: bool) -> Option<PartData> {
    let carriers: Vec<Carrier<'_>> = all.iter().map(Carrier::read).collect::<Option<_>>()?;
    let bins = carriers.first()?.free.len();
    if carriers.iter().any(|carrier| carrier.free.len() != bins) {
        return None;
    }
    // OTP 26 used both layouts; in the later one, the first bin is always empty.
    let is_since_26 = release >= 27 || release == 26 && carriers.iter().all(|carrier| carrier.free[0] == 0);
    let bounds = free_bounds(start, is_since_26, bins);
    // For each row, the index of every allocator in its `blocks`.
    let mut rows: BTreeMap<_, (CarrierRow, Vec<i64>, HashMap<&str, usize>)> = BTreeMap::new();
    for carrier in &carriers {
        let size_log2 = i64::from(carrier.bytes.ilog2());
        let used_tenths = carrier.used().saturating_mul(10) / carrier.bytes;
        let key = (carrier.allocator, carrier.in_pool, carrier.is_single(), size_log2, used_tenths);
        let (row, free, block_indexes) = rows.entry(key).or_insert_with(|| {
            let row = CarrierRow {
                allocator: carrier.allocator.to_owned(),
                in_pool: carrier.in_pool,
                single: carrier.is_single(),
                size_log2: Some(size_log2),
                used_tenths: Some(used_tenths),
                ..CarrierRow::default()
            };
            (row, vec![0; bins], HashMap::new())
        });
        row.carriers += 1;
        row.bytes = row.bytes.saturating_add(carrier.bytes);
        row.unscanned_bytes = row.unscanned_bytes.saturating_add(carrier.unscanned);
        for block in &carrier.blocks {
            let known =
                block_indexes.get(block.allocator.as_str()).and_then(|index| row.blocks.get_mut(*index));
            match known {
                Some(sum) => {
                    sum.count = sum.count.saturating_add(block.count);
                    sum.bytes = sum.bytes.saturating_add(block.bytes);
                }
                None => {
                    block_indexes.insert(&block.allocator, row.blocks.len());
                    row.blocks.push(block.clone());
                }
            }
        }
        free.iter_mut().zip(&carrier.free).for_each(|(sum, count)| *sum = sum.saturating_add(*count));
    }
    let mut rows: Vec<CarrierRow> =
        rows.into_values().map(|(row, free, _)| CarrierRow { free: sizes(&bounds, &free), ..row }).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.bytes));
    let is_scanned = carriers.iter().all(|carrier| carrier.unscanned == 0);
    let values = if is_scanned { sums(&carriers) } else { Vec::new() };
    Some(PartData {
        values,
        carriers: rows,
        omission: (!is_whole).then_some(Omission { source: CARRIERS, why: SOME_CARRIERS }),
        ..PartData::default()
    })
}

/// Sums carriers and blocks per allocator; `instrument` does not distinguish instances.
fn sums(carriers: &[Carrier<'_>]) -> Vec<Value> {
    let mut sums: BTreeMap<(&str, usize), [i64; 4]> = BTreeMap::new();
    for carrier in carriers {
        let set = match (carrier.is_single(), carrier.in_pool) {
            (true, _) => 1,
            (false, true) => 2,
            (false, false) => 0,
        };
        let sum = sums.entry((carrier.allocator, set)).or_default();
        for (sum, more) in sum.iter_mut().zip([1, carrier.bytes, carrier.count(), carrier.used()]) {
            *sum = sum.saturating_add(more);
        }
    }
    let of = |((allocator, set), values): ((&str, usize), [i64; 4])| {
        let named = CARRIER_SETS[set].into_iter().zip(values);
        named.map(|(metric, value)| Value::of(metric, allocator, value)).collect::<Vec<_>>()
    };
    sums.into_iter().flat_map(of).collect()
}

/// The metrics for number and size of carriers, and number and size of blocks: for multiblock carriers, singleblock carriers, and the
/// carrier pool.
pub const CARRIER_SETS: [[&Metric; 4]; 3] = [
    [
        &metrics::MBCS_CARRIERS,
        &metrics::MBCS_CARRIERS_SIZE,
        &metrics::MBCS_BLOCKS,
        &metrics::MBCS_BLOCKS_SIZE,
    ],
    [
        &metrics::SBCS_CARRIERS,
        &metrics::SBCS_CARRIERS_SIZE,
        &metrics::SBCS_BLOCKS,
        &metrics::SBCS_BLOCKS_SIZE,
    ],
    [
        &metrics::POOL_CARRIERS,
        &metrics::POOL_CARRIERS_SIZE,
        &metrics::POOL_BLOCKS,
        &metrics::POOL_BLOCKS_SIZE,
    ],
];
