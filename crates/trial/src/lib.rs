//! Studies: what is tried in which order, what of it counts, and what follows.

pub mod search;
pub mod space;
