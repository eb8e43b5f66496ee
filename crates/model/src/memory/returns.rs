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

/// Estimate of the memory that a garbage collection of all processes would free, from the results of a sample. Includes what the sample freed.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Returns {
    /// Heap memory.
    pub heaps: Estimate,
    /// Reference-counted binaries. Several processes can keep one alive, and only the last one collected frees it, so the sample
    /// says less about binaries than about heaps.
    pub binaries: Estimate,
}
