//! The output of one tool: a range of the text, and its data.

use beamtune_model::{AllocationRow, CarrierRow, Family, Metric};

/// The name of a supported tool, as in the fact `imported_from`.
pub type Tool = &'static str;

/// A value of a series.
#[derive(Debug, Clone, PartialEq)]
pub struct Value {
    pub series: SeriesRef,
    /// The entity, as in recordings; empty if the series has only one.
    pub entity: String,
    /// The value; for a counter, its increase.
    pub value: i64,
}

/// A series that recordings can contain.
#[derive(Debug, Clone, PartialEq)]
pub enum SeriesRef {
    Metric(&'static Metric),
    /// A series of a family, with the name that the VM gave it.
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

/// The mean block size of an allocator, in bytes; 0 if it has no blocks.
#[derive(Debug, Clone, PartialEq)]
pub struct MeanBlockSize {
    pub allocator: String,
    /// In multiblock carriers.
    pub mbcs: f64,
    /// In singleblock carriers.
    pub sbcs: f64,
}

/// The meaning of a sum over all allocators; in bytes, except for the usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TotalKind {
    /// Size of carriers.
    Allocated,
    /// Size of carriers, summed over allocators.
    AllocatedByType,
    /// Size of carriers, summed over instances.
    AllocatedByInstance,
    /// Size of blocks.
    Used,
    /// Size of carriers minus size of blocks.
    Unused,
    /// Size of blocks divided by size of carriers.
    Usage,
}

/// The source of gaps in data about carriers, which rules about carriers check.
pub const CARRIERS: &str = "vm.carriers";

/// The source of gaps in data about allocations.
pub const ALLOCATIONS: &str = "vm.allocations";

/// Data that are missing in a part.
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
    /// Duration of the measurement, in microseconds, if it was printed.
    pub length_us: Option<i64>,
    pub carriers: Vec<CarrierRow>,
    pub allocations: Vec<AllocationRow>,
    /// Mean block sizes.
    pub means: Vec<MeanBlockSize>,
    /// A sum over all allocators.
    pub total: Option<(TotalKind, f64)>,
    /// What is missing, if the data are incomplete.
    pub omission: Option<Omission>,
    /// A remark for the user about data that are not exact.
    pub remark: Option<&'static str>,
}

/// A part of the text that contains the output of a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    pub tool: Tool,
    /// Byte range in the text.
    pub begin: usize,
    pub end: usize,
    /// The data, or the reason for refusing them.
    pub data: Result<PartData, &'static str>,
}

/// The reason for refusing a term that the shell ended with `...`.
pub const TRUNCATED: &str = "the shell has truncated it: print all of it (rp(…) in Erlang, IO.inspect(…, limit: :infinity) in Elixir)";
