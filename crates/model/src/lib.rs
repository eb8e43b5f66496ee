//! The data model shared by all crates: the content of a recording, and the diagnosis made from it.
//!
//! Raw and derived data are separate types. A [`Sample`] contains counters as they were read; a [`Period`] contains data
//! derived from many samples: rates, peaks, traces. Only [`window`] subtracts counters, so counter resets, restarts of the
//! node and missing samples are handled in one place.
//!
//! ```text
//! Source --Sample--> recording file --> Period --rules--> Diagnosis --report--> text, JSON
//! ```
//!
//! This crate does no I/O, reads no clock and depends on no other crate of beamtune.

pub mod account;
pub mod cpu;
pub mod diagnosis;
pub mod facts;
pub mod files;
pub mod finding;
pub mod load;
pub mod locks;
pub mod memory;
pub mod messages;
pub mod metrics;
pub mod period;
pub mod profile;
pub mod rows;
pub mod sample;
pub mod series;
pub mod source;
pub mod study;
pub mod text;
pub mod thresholds;
pub mod units;
pub mod wait_samples;
pub mod window;

pub use account::{CpuAccount, CpuShare, CpuUse};
pub use diagnosis::{
    Against, Chain, Code, Diagnosis, Evidence, Finding, Follows, Level, Outcome, Remedy, Scale, Verdict,
};
pub use facts::Facts;
pub use files::{FileError, FileExchange, FileReplies, FileReply, FileRequest, ThreadFiles};
pub use finding::{
    Account, Claim, Confidence, Cost, HostPart, KernelWork, Limit, MemoryKind, Signal, Subject,
};
pub use locks::{LockRow, LockSession, LockWaitRow};
pub use messages::{MessageRow, MessageSum, Messages};
pub use period::{
    IncarnationSpan, Missing, Period, PeriodBuilder, ProcessActivity, QueuedMessages, Readings, SeriesStat,
    WorkSample,
};
pub use profile::{
    CallStack, CpuState, Frame, FrameKind, Profile, ProfileBuilder, ProfileKind, ProfileRow, ProfiledThread,
    StackSample,
};
pub use rows::{
    AllocationRow, BinaryHolderRow, BlockSum, CarrierRow, CodeRow, CollectedProcessRow, ExitRow, PortRow,
    ProcessRow, ProcessTick, Rank, RequestedGcRow, RunSampleRow, SizeCount, SpawnRow, TableRow,
};
pub use sample::{Event, Gap, Incarnation, Sample, SampleBuilder, Snapshot, Span, Tick};
pub use series::{Family, Group, Metric, Series, SeriesId, SeriesTable};
pub use source::{Clock, SampleRequest, Source, SourceTrouble, TroubleKind};
pub use thresholds::{Threshold, Thresholds};
pub use units::{Kind, Nanos, Unit};
pub use wait_samples::{NewProcesses, WaitSample, WaitSampleRow, WaitSamples, WaitTarget};
