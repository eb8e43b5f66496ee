//! What one tool has printed once: a part of the text, and what it tells.

use beamtune_model::{AllocationRow, CarrierRow, Family, Metric};

/// A tool whose printing is known, as the fact `imported_from` names it.
pub type Tool = &'static str;

/// A value of a series.
#[derive(Debug, Clone, PartialEq)]
pub struct Value {
    pub series: Named,
    /// As in recordings; empty where there is one only.
    pub entity: String,
    /// Of a counter: by how much it has grown.
    pub value: i64,
}

/// A series of the catalogue.
#[derive(Debug, Clone, PartialEq)]
pub enum Named {
    Metric(&'static Metric),
    /// With the name that the VM gave.
    Family(&'static Family, String),
}

impl Value {
    pub fn of(metric: &'static Metric, entity: impl Into<String>, value: i64) -> Value {
        Value { series: Named::Metric(metric), entity: entity.into(), value }
    }

    pub fn named(family: &'static Family, entity: impl Into<String>, name: &str, value: i64) -> Value {
        Value { series: Named::Family(family, name.to_owned()), entity: entity.into(), value }
    }
}

/// The mean size of the blocks of an allocator, in bytes; 0 where it has none.
#[derive(Debug, Clone, PartialEq)]
pub struct Mean {
    pub allocator: String,
    /// In multiblock carriers.
    pub mbcs: f64,
    /// In single-block carriers.
    pub sbcs: f64,
}

/// What a sum over all allocators is of, in bytes but for the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whole {
    /// Carriers.
    Allocated,
    /// The same, added up from what the allocators have each.
    AllocatedByType,
    /// The same, added up from what the instances have each.
    AllocatedByInstance,
    /// Blocks.
    Used,
    /// Carriers without their blocks.
    Unused,
    /// Blocks as a share of the carriers.
    Usage,
}

/// The item of all carriers; rules about them look for it.
pub const CARRIERS: &str = "vm.carriers";

/// The item of all allocations.
pub const ALLOCATIONS: &str = "vm.allocations";

/// That a part tells some of it only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Partial {
    /// The item that a recording has a gap in.
    pub item: &'static str,
    pub why: &'static str,
}

/// What a part tells.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Told {
    pub facts: Vec<(&'static str, String)>,
    pub values: Vec<Value>,
    /// For how long the counters have counted, in microseconds, where that was printed.
    pub length_us: Option<i64>,
    pub carriers: Vec<CarrierRow>,
    pub allocations: Vec<AllocationRow>,
    /// Mean sizes of blocks.
    pub means: Vec<Mean>,
    /// A sum over all allocators.
    pub whole: Option<(Whole, f64)>,
    /// Why this is not all that there is, and of what.
    pub partial: Option<Partial>,
    /// What is not exact, for a person.
    pub remark: Option<&'static str>,
}

/// A part of the text that was understood.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    pub tool: Tool,
    /// Where it begins and ends in the text, in bytes.
    pub begin: usize,
    pub end: usize,
    /// What it tells, or why nothing is taken of it.
    pub told: Result<Told, &'static str>,
}

/// Why nothing is taken of a term that ends in `...`.
pub const CUT_OFF: &str =
    "the shell has cut it off: print all of it (rp(…) in Erlang, IO.inspect(…, limit: :infinity) in Elixir)";
