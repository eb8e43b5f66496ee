//! What `instrument:allocations` and `instrument:carriers` answer, as the rows that a walk of beamtune's own makes of the same.
//!
//! Both tell sizes by histograms, and where the places of these begin depends on the release (erts/emulator/beam/erl_alloc_util.c): of
//! blocks, a place ends at a power of two times the start, less the start until OTP 26; of free blocks, at twice that until OTP 25. So the
//! release has to be known.

use std::collections::{BTreeMap, HashMap};

use beamtune_model::{AllocationRow, BlockSum, CarrierRow, Metric, SizeCount, metrics};

use crate::part::{ALLOCATIONS, CARRIERS, CUT_OFF, Partial, Told, Tool, Value};
use crate::term::Term;
use crate::terms::Call;

/// The tool's name.
pub const TOOL: Tool = "instrument";

/// Places of a histogram: the VM makes 64 at most.
const MOST_PLACES: usize = 64;

const RELEASE: &str = "which sizes its histograms count depends on the OTP release: copy the VM's banner too (Erlang/OTP 27 [erts-15.0] …)";
const ODD: &str = "it is not what this function of instrument answers: a count is no number, or its histograms are not alike";
const BY_PROCESS: &str = "it is told by process or function: print instrument:allocations()";
const SOME_BLOCKS: &str = "instrument was asked for some of the blocks, or the call was not copied";
const SOME: &str = "instrument was asked for some of the carriers, or the call was not copied";

/// What the answer of one of the two functions tells; `None` if it is something else.
pub fn understand(
    term: &Term,
    call: Option<&Call>,
    release: Option<u32>,
) -> Option<(Tool, Result<Told, &'static str>)> {
    let [ok, Term::Tuple(answer)] = term.tuple()? else { return None };
    if ok.atom() != Some("ok") {
        return None;
    }
    let whole =
        |told: &dyn Fn(i64, u32) -> Option<Told>| match (answer.first().and_then(Term::integer), release) {
            _ if term.is_cut() => Err(CUT_OFF),
            (_, None) => Err(RELEASE),
            (Some(start), Some(release)) if start > 0 && start <= 1 << 30 => told(start, release).ok_or(ODD),
            _ => Err(ODD),
        };
    let is_all_of = |name: &str| call.is_some_and(|call| call.function == name && call.arguments.is_empty());
    let told = match answer.as_slice() {
        // With `flags` pids or functions stand in the place of names.
        [Term::Integer(_), Term::Integer(_), Term::Map(origins)]
            if origins.iter().any(|(origin, _)| matches!(origin, Term::Other | Term::Tuple(_))) =>
        {
            Err(BY_PROCESS)
        }
        [Term::Integer(_), Term::Integer(unscanned), Term::Map(origins)] => {
            let is_whole = is_all_of("allocations");
            whole(&|start, release| allocations(start, release, *unscanned, origins, is_whole))
        }
        [Term::Integer(_), Term::List(all)]
            if all.iter().all(|carrier| carrier.tuple().is_some_and(|parts| parts.len() == 6)) =>
        {
            let is_whole = is_all_of("carriers");
            whole(&|start, release| carriers(start, release, all, is_whole))
        }
        _ => return None,
    };
    Some((TOOL, told))
}

fn amount(term: &Term) -> Option<i64> {
    term.integer().filter(|amount| *amount >= 0)
}

fn counts(histogram: &Term) -> Option<Vec<i64>> {
    let places = histogram.tuple()?;
    (2..=MOST_PLACES).contains(&places.len()).then(|| places.iter().map(amount).collect())?
}

/// A histogram without its empty places. Of places with the same bound the VM uses one only.
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

/// A power of two times a size, as large as it can be told.
fn doubled(size: i64, times: usize) -> i64 {
    size.saturating_mul(1_i64.checked_shl(u32::try_from(times.min(62)).unwrap_or(62)).unwrap_or(i64::MAX))
}

fn block_bounds(start: i64, release: u32, places: usize) -> Vec<i64> {
    let bound = |place: usize| match (place, release >= 27) {
        (0, _) => 0,
        (place, true) => doubled(start, place - 1),
        (place, false) => doubled(start, place).saturating_sub(start),
    };
    (0..places).map(bound).collect()
}

fn free_bounds(start: i64, is_since_26: bool, places: usize) -> Vec<i64> {
    let unit = start.saturating_mul(2);
    let bound = |place: usize| match (place, is_since_26) {
        (0, _) | (1, true) => 0,
        (place, true) => doubled(unit, place - 2),
        (place, false) => doubled(unit, place).saturating_sub(unit),
    };
    (0..places).map(bound).collect()
}

fn allocations(
    start: i64,
    release: u32,
    unscanned: i64,
    origins: &[(Term, Term)],
    is_whole: bool,
) -> Option<Told> {
    let partial = (!is_whole).then_some(Partial { item: ALLOCATIONS, why: SOME_BLOCKS });
    let mut told = Told { partial, ..Told::default() };
    for (origin, kinds) in origins {
        for (kind, histogram) in kinds.map()? {
            let counts = counts(histogram)?;
            let bounds = block_bounds(start, release, counts.len());
            // As if all were as large as the middle of their place.
            let about = counts.iter().enumerate().fold(0_i64, |sum, (place, count)| {
                let middle = match bounds.get(place + 1) {
                    Some(next) => bounds[place].saturating_add(*next) / 2,
                    None => bounds[place].saturating_mul(3) / 2,
                };
                sum.saturating_add(count.saturating_mul(middle))
            });
            told.allocations.push(AllocationRow {
                origin: origin.atom()?.to_owned(),
                kind: kind.atom()?.to_owned(),
                blocks: counts.iter().fold(0, |sum: i64, count| sum.saturating_add(*count)),
                bytes: about,
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
        told.allocations.push(AllocationRow { skipped, bytes: unscanned, ..AllocationRow::default() });
    }
    told.allocations.sort_by_key(|row| std::cmp::Reverse(row.bytes));
    Some(told)
}

/// A carrier as it is told.
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

    /// A carrier of one block has nothing beside it, not even its own head, by the VM's account.
    fn is_single(&self) -> bool {
        self.unscanned == 0
            && self.free.iter().all(|count| *count == 0)
            && matches!(self.blocks.as_slice(), [one] if one.count == 1 && one.bytes == self.bytes)
    }
}

fn carriers(start: i64, release: u32, all: &[Term], is_whole: bool) -> Option<Told> {
    let carriers: Vec<Carrier<'_>> = all.iter().map(Carrier::read).collect::<Option<_>>()?;
    let places = carriers.first()?.free.len();
    if carriers.iter().any(|carrier| carrier.free.len() != places) {
        return None;
    }
    // 26 has had both; where it is as later, the first place stays empty.
    let is_since_26 = release >= 27 || release == 26 && carriers.iter().all(|carrier| carrier.free[0] == 0);
    let bounds = free_bounds(start, is_since_26, places);
    // With each row the places of its allocators among its blocks.
    let mut rows: BTreeMap<_, (CarrierRow, Vec<i64>, HashMap<&str, usize>)> = BTreeMap::new();
    for carrier in &carriers {
        let size_log2 = i64::from(carrier.bytes.ilog2());
        let used_tenths = carrier.used().saturating_mul(10) / carrier.bytes;
        let key = (carrier.allocator, carrier.in_pool, carrier.is_single(), size_log2, used_tenths);
        let (row, free, places_of) = rows.entry(key).or_insert_with(|| {
            let row = CarrierRow {
                allocator: carrier.allocator.to_owned(),
                in_pool: carrier.in_pool,
                single: carrier.is_single(),
                size_log2: Some(size_log2),
                used_tenths: Some(used_tenths),
                ..CarrierRow::default()
            };
            (row, vec![0; places], HashMap::new())
        });
        row.carriers += 1;
        row.bytes = row.bytes.saturating_add(carrier.bytes);
        row.unscanned_bytes = row.unscanned_bytes.saturating_add(carrier.unscanned);
        for block in &carrier.blocks {
            let known = places_of.get(block.allocator.as_str()).and_then(|place| row.blocks.get_mut(*place));
            match known {
                Some(sum) => {
                    sum.count = sum.count.saturating_add(block.count);
                    sum.bytes = sum.bytes.saturating_add(block.bytes);
                }
                None => {
                    places_of.insert(&block.allocator, row.blocks.len());
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
    Some(Told {
        values,
        carriers: rows,
        partial: (!is_whole).then_some(Partial { item: CARRIERS, why: SOME }),
        ..Told::default()
    })
}

/// What each allocator has in all of its instances, which are not told apart.
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

/// Carriers, their size, blocks, their size: of multiblock carriers, of those of a single block, of abandoned ones.
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
