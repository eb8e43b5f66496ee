//! What the threads of a VM are doing, seen from outside and without its help: where they are on a CPU, and what they wait for.
//!
//! ```text
//! threads (/proc): how they spend their time                            free of probes
//!        │
//!        └──> watch ──> stream (perf events) ──> record ──> unwind ──> stack ──> waits ──> WaitRow
//!                 image, elf (names, unwind tables) ─────────┘
//! ```
//!
//! A stock VM does not count its locks. But the kernel knows how long each thread ran and wanted to, and the VM how long it had work;
//! the rest is waiting (what follows from that is for `rules` to say). Where it waits is seen in stacks ([`watch`]): of threads that yield or spin by sampling the
//! CPU's clock, of threads that go to sleep by uprobes on the functions that do so. Nothing has to be restarted, and the node need not be
//! attached to. Stacks name the operation that wants a lock (`ets_update_counter_3`), and not which table that is.
//!
//! What belongs to the VM is hostile: its files may hold any bytes, its stack too. All that is read is bounded.

pub mod elf;
pub mod error;
pub mod image;
pub mod names;
pub mod probe;
pub mod record;
pub mod sample;
pub mod stack;
pub mod stream;
pub mod tail;
pub mod threads;
pub mod timeline;
pub mod unwind;
pub mod waits;
pub mod watch;

pub use error::ProfileError;
pub use image::Image;
pub use stack::{Registers, Stack, StackEnd};
pub use watch::{Cost, Seen, Sleeps, Watch};
