//! The output of one tool: a range of the text, and its data.

use beamtune_model::{AllocationRow, CarrierRow, Family, Metric};

/// A supported tool, as the fact `imported_from` names it.
pub type Tool = &'static str;

/// A value of a series.
#[derive(Debug, Clone, PartialEq)]
pub struct Value {
    pub series: SeriesRef,
    /// As in recordings; empty if the series has only one.
    pub entity: String,
    /// For a counter: its increase.
    pub value: i64,
}

/// A series of the catalogue.
#[derive(Debug, Clone, PartialEq)]
pub enum SeriesRef {
    Metric(&'static Metric),
    /// With the name that the VM gave.
    Family(&'static Family, String),
}

impl Value {
    pub fn of(metric: &'static Metric, entity: impl Into<String>, value: i64) -> Value {
        Value { series: SeriesRef::Metric(metric), entity: entity.into(), value }
    }

    pub fn named(family: &'static Family, entity: impl Into<String>, name: &str, value: i64) -> Value {
        Value { series: SeriesRef::Family(family, name.to_owned()), entity: entity.into(), value }
    }
}

/// The mean block size of an allocator, in bytes; 0 without blocks.
#[derive(Debug, Clone, PartialEq)]
pub struct MeanBlockSize {
    pub allocator: String,
    /// In multiblock carriers.
    pub mbcs: f64,
    /// In singleblock carriers.
    pub sbcs: f64,
}

/// The meaning of a sum over all allocators; in bytes, except the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TotalKind {
    /// Carriers.
    Allocated,
    /// Carriers, summed over allocators.
    AllocatedByType,
    /// Carriers, summed over instances.
    AllocatedByInstance,
    /// Blocks.
    Used,
    /// Carriers minus blocks.
    Unused,
    /// Blocks divided by carriers.
    Usage,
}

/// The gap source for carriers; rules about carriers check it.
pub const CARRIERS: &str = "vm.carriers";

/// The gap source for allocations.
pub const ALLOCATIONS: &str = "vm.allocations";

/// Data that is missing in a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Omission {
    /// The source of the gap in the recording.
    pub source: &'static str,
    pub why: &'static str,
}

/// The data of a part.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PartData {
    pub facts: Vec<(&'static str, String)>,
    pub values: Vec<Value>,
    /// How long the counters counted, in microseconds, if that was printed.
    pub length_us: Option<i64>,
    pub carriers: Vec<CarrierRow>,
    pub allocations: Vec<AllocationRow>,
    /// Mean block sizes.
    pub means: Vec<MeanBlockSize>,
    /// A sum over all allocators.
    pub total: Option<(TotalKind, f64)>,
    /// What is missing, if the data is incomplete.
    pub omission: Option<Omission>,
    /// What is not exact, for the user.
    pub remark: Option<&'static str>,
}

/// A part of the text with the output of a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    pub tool: Tool,
    /// Byte range in the text.
    pub begin: usize,
    pub end: usize,
    /// The data, or why it was refused.
    pub data: Result<PartData, &'static str>,
}

/// Why a term that ends in `...` is refused.
pub const TRUNCATED: &str = "the shell has truncated it: print all of it (rp(…) in Erlang, IO.inspect(…, limit: :infinity) in Elixir)";
