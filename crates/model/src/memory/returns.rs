//! Memory that a fullsweep of all processes would free.

/// An estimate with its 95 % confidence interval, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Estimate {
    /// Most likely value.
    pub bytes: f64,
    /// Lower bound.
    pub low: f64,
    /// Upper bound.
    pub high: f64,
}

/// Estimate of the memory that a garbage collection of all processes would free, from the results of a sample. Includes the memory that
/// the collection of the sample freed.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Reclaimable {
    /// Heap memory.
    pub heaps: Estimate,
    /// Reference-counted binaries. Several processes can refer to the same binary, and only the last of these collections frees it.
    /// So this estimate is less reliable than that for heaps.
    pub binaries: Estimate,
}
