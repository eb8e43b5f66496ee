//! Samples the threads of a VM from outside, without its cooperation: what they execute, and what they wait for.
//!
//! ```text
//! threads (/proc): how threads spend their time                         no probes
//!        │
//!        └──> watch ──> stream (perf events) ──> record ──> native ──> stack ──> waits ──> WaitRow
//!                 image, elf (names, unwind tables) ─────────┘
//! ```
//!
//! A stock VM does not count lock contention. But the kernel reports how long each thread ran and was runnable, and the VM reports how long
//! it had work. The rest of that time it waited; `rules` draws the conclusions. Call stacks show where a thread waits ([`watch`]). The CPU
//! clock samples threads that yield or spin; uprobes or context switches show threads that go to sleep. The node is neither restarted nor
//! attached to. Stacks name the operation that takes a lock (`ets_update_counter_3`), but not the table.
//!
//! Everything that belongs to the VM is untrusted: its files and its stacks may hold any bytes. All reads are bounded.

pub mod elf;
pub mod erlang;
pub mod error;
mod fields;
pub mod image;
pub mod kernel;
pub mod memory;
pub mod names;
pub mod native;
pub mod probe;
pub mod profiler;
pub mod record;
pub mod sample;
pub mod stack;
pub mod state;
pub mod stream;
pub mod tail_calls;
pub mod threads;
pub mod timeline;
pub mod vm;
pub mod waits;
pub mod watch;

pub use error::ProfileError;
pub use image::Image;
pub use profiler::Profiler;
pub use stack::{Stack, StackEnd};
pub use watch::{Cost, SleepDetection, Watch, WatchResult};
