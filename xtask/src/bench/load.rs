//! The load generator beside its peers: what a request costs it, and whether what it tells is true.
//!
//! Servers and generators are started on cores of their own where there are two, and take turns in random order. What a peer
//! prints is read by the same code as in `beamtune load import`.

pub mod http;
mod nginx;
mod place;
mod tool;
mod trial;
pub mod truth;

/// How it was measured, for the page.
pub fn method() -> String {
    format!("{}\n\n{}", http::method(), truth::method())
}
