//! What a full collection of all processes would return.

/// An amount that was estimated, and the ends of its interval at 95 % confidence; in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Estimate {
    /// The likeliest.
    pub bytes: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// What all processes would return if each were collected, by what some of them have returned. What these have is part of it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Returns {
    /// Of heaps.
    pub heaps: Estimate,
    /// Of binaries outside of heaps. Several processes can keep one alive, of which the last one that is collected frees it: so a sample
    /// tells less of these than of heaps.
    pub binaries: Estimate,
}
