//! The page as JSON. `docs/schema/memory.schema.json` defines the format. New fields may be added within a version.

mod asked;

use beamtune_model::memory::{
    Allocator, Carriers, ContentPart, Mapping, MemoryBreakdown, Movement, Reclaimable, allocators,
};
use beamtune_model::{Diagnosis, Group, Period, metrics};
use serde::Serialize;

use self::asked::{CollectedDocument, CollectionDocument, HolderDocument, ReturnsDocument};
use super::owners::{self, Kind};
use crate::json::{self, Judged, Node, Span};

/// Version of the format; increased when a field changes its meaning or is removed.
pub const VERSION: u32 = 3;

#[derive(Serialize)]
struct Document<'a> {
    version: u32,
    node: Node<'a>,
    period: Span,
    resident_bytes: Option<i64>,
    explained_bytes: Option<i64>,
    unexplained_bytes: Option<i64>,
    /// Duration of the scan of pages.
    looking_seconds: Option<f64>,
    mappings: Vec<MappingDocument<'a>>,
    contents: Vec<PartDocument<'a>>,
    allocators: Vec<AllocatorDocument<'a>>,
    kinds: Vec<KindDocument<'a>>,
    holders: Vec<HolderDocument<'a>>,
    /// Total size of the binaries that the holders refer to, each binary counted once.
    held_bytes: Option<i64>,
    collections: Vec<CollectionDocument<'a>>,
    collected: Vec<CollectedDocument<'a>>,
    /// Estimate of the memory that a garbage collection of all processes would free.
    returns: Option<ReturnsDocument>,
    movements: Vec<MovementDocument<'a>>,
    #[serde(flatten)]
    judged: Judged<'a>,
}

#[derive(Serialize)]
struct MappingDocument<'a> {
    kind: &'a str,
    mappings: i64,
    mapped_bytes: i64,
    resident_bytes: i64,
    proportional_bytes: i64,
    swapped_bytes: i64,
    lazy_free_bytes: i64,
    huge_page_bytes: i64,
}

impl<'a> From<&'a Mapping> for MappingDocument<'a> {
    fn from(mapping: &'a Mapping) -> Self {
        MappingDocument {
            kind: &mapping.kind,
            mappings: mapping.count,
            mapped_bytes: mapping.size,
            resident_bytes: mapping.resident,
            proportional_bytes: mapping.pss,
            swapped_bytes: mapping.swap,
            lazy_free_bytes: mapping.lazy_free,
            huge_page_bytes: mapping.huge_pages,
        }
    }
}

#[derive(Serialize)]
struct PartDocument<'a> {
    entity: &'a str,
    count: i64,
    mapped_bytes: i64,
    resident_bytes: i64,
    swapped_bytes: i64,
    in_use_bytes: Option<i64>,
}

impl<'a> From<&'a ContentPart> for PartDocument<'a> {
    fn from(part: &'a ContentPart) -> Self {
        PartDocument {
            entity: &part.entity,
            count: part.count,
            mapped_bytes: part.size,
            resident_bytes: part.resident,
            swapped_bytes: part.swapped,
            in_use_bytes: part.in_use,
        }
    }
}

#[derive(Serialize)]
struct AllocatorDocument<'a> {
    name: &'a str,
    instances: usize,
    multiblock: CarriersDocument,
    pool: CarriersDocument,
    single_block: CarriersDocument,
    foreign_blocks_bytes: i64,
    largest_ever_bytes: i64,
    allocations_per_s: Option<f64>,
}

#[derive(Serialize)]
struct CarriersDocument {
    carriers: i64,
    carriers_bytes: i64,
    blocks: i64,
    blocks_bytes: i64,
}

impl From<Carriers> for CarriersDocument {
    fn from(carriers: Carriers) -> Self {
        CarriersDocument {
            carriers: carriers.count,
            carriers_bytes: carriers.size,
            blocks: carriers.blocks,
            blocks_bytes: carriers.blocks_size,
        }
    }
}

impl<'a> From<&'a Allocator> for AllocatorDocument<'a> {
    fn from(allocator: &'a Allocator) -> Self {
        AllocatorDocument {
            name: &allocator.name,
            instances: allocator.instances,
            multiblock: allocator.mbcs.into(),
            pool: allocator.pool.into(),
            single_block: allocator.sbcs.into(),
            foreign_blocks_bytes: allocator.foreign,
            largest_ever_bytes: allocator.max_size,
            allocations_per_s: allocator.allocations_per_s,
        }
    }
}

#[derive(Serialize)]
struct KindDocument<'a> {
    kind: &'a str,
    bytes: i64,
    owners: Vec<OwnerDocument<'a>>,
}

#[derive(Serialize)]
struct OwnerDocument<'a> {
    name: &'a str,
    pid: &'a str,
    bytes: i64,
}

impl<'a> From<&'a Kind> for KindDocument<'a> {
    fn from(kind: &'a Kind) -> Self {
        let owner = |owner: &'a owners::Owner| OwnerDocument {
            name: &owner.name,
            pid: &owner.pid,
            bytes: owner.bytes,
        };
        KindDocument { kind: &kind.name, bytes: kind.bytes, owners: kind.owners.iter().map(owner).collect() }
    }
}

#[derive(Serialize)]
struct MovementDocument<'a> {
    what: &'a str,
    first_bytes: f64,
    last_bytes: f64,
    least_bytes: f64,
    most_bytes: f64,
    per_hour: Option<Slope>,
    step: Option<StepDocument<'a>>,
    daily: Option<DailyDocument>,
}

#[derive(Serialize)]
struct Slope {
    bytes: f64,
    low_bytes: f64,
    high_bytes: f64,
    is_sure: bool,
}

#[derive(Serialize)]
struct StepDocument<'a> {
    at_seconds: f64,
    before_bytes: f64,
    after_bytes: f64,
    with: Option<&'a str>,
}

#[derive(Serialize)]
struct DailyDocument {
    swing_bytes: f64,
    peak_hour_utc: u32,
    explained_share: f64,
}

impl<'a> From<&'a Movement> for MovementDocument<'a> {
    fn from(movement: &'a Movement) -> Self {
        MovementDocument {
            what: &movement.what,
            first_bytes: movement.first,
            last_bytes: movement.last,
            least_bytes: movement.range.0,
            most_bytes: movement.range.1,
            per_hour: movement.per_hour.map(|(bytes, low_bytes, high_bytes)| Slope {
                bytes,
                low_bytes,
                high_bytes,
                is_sure: movement.is_significant,
            }),
            step: movement.step.as_ref().map(|step| StepDocument {
                at_seconds: step.at as f64 / 1e9,
                before_bytes: step.before,
                after_bytes: step.after,
                with: step.with.as_deref(),
            }),
            daily: movement.daily.map(|daily| DailyDocument {
                swing_bytes: daily.swing,
                peak_hour_utc: daily.peak_hour,
                explained_share: daily.share,
            }),
        }
    }
}

/// Renders the page as a JSON document, indented, with a final newline.
pub fn render(
    period: &Period,
    movements: &[Movement],
    returns: Option<Reclaimable>,
    verdicts: &Diagnosis,
) -> String {
    let bridge = MemoryBreakdown::of(period);
    let (allocators, kinds) = (allocators(period), owners::kinds(period));
    let document = Document {
        version: VERSION,
        node: Node::of(period),
        period: Span::of(period),
        resident_bytes: bridge.resident,
        explained_bytes: bridge.explained(),
        unexplained_bytes: bridge.unexplained(),
        looking_seconds: period
            .find(Group::HostContent, "", metrics::CONTENT_COST.name)
            .map(|stat| stat.last.value as f64 / 1e9),
        mappings: bridge.mappings.iter().map(Into::into).collect(),
        contents: bridge.parts.iter().chain(&bridge.unknown).map(Into::into).collect(),
        allocators: allocators.iter().map(Into::into).collect(),
        kinds: kinds.iter().map(Into::into).collect(),
        holders: period.holders.iter().map(Into::into).collect(),
        held_bytes: period.stat(&metrics::HELD_BINARIES_SIZE, "").ok().map(|stat| stat.last.value),
        collections: period.collections.iter().map(Into::into).collect(),
        collected: period.collected.iter().map(Into::into).collect(),
        returns: returns.map(Into::into),
        movements: movements.iter().map(Into::into).collect(),
        judged: Judged::of(period, verdicts),
    };
    json::pretty(&document)
}
