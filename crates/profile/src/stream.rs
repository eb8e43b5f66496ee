//! Events of the kernel that happen to one thread, and what comes of them: a count, and samples in a ring of memory.
//!
//! Each event is opened for one thread (perf_event_open(2) with a thread's number). For a whole process there is no way: an event of one
//! thread passes to those that this one starts later (`inherit`), but not to those that are there, and all of a VM's are there; and with
//! `inherit` the kernel gives no ring that is not bound to one CPU. Threads that are started while we look are not seen.
//!
//! # Cost
//!
//! A sample copies the stack of the thread ([`STACK_BYTES`]), some microseconds of its time; a ring that is full drops samples
//! and says how many, and never holds up the thread.

use std::ffi::CString;
use std::io;

use perf_event::events::{Raw, Software};
use perf_event::{Builder, Counter, SampleFlag, Sampler};

use crate::error::ProfileError;
use crate::record::{REGISTERS, Record};

/// How much of the stack is copied. The C code below a BIF needs some hundred bytes to a few thousand.
pub const STACK_BYTES: u32 = 16 * 1024;
/// The smallest ring: room for three samples, or for 1,600 switches.
pub const LEAST_RING_BYTES: usize = 64 * 1024;
/// Records that are taken out at once, so that a thread that fills its ring as fast as it is emptied holds up nobody.
const MOST_RECORDS: usize = 20_000;

/// A place in a program's file at which threads are seen to come by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The kernel's number for events of this kind: `/sys/bus/event_source/devices/uprobe/type`.
    pub source: u32,
    /// The file, as we see it.
    pub path: CString,
    /// Where in it.
    pub offset: u64,
}

/// What is counted and sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// Time on a CPU, in nanoseconds.
    Clock,
    /// The thread leaves its CPU.
    Switches,
    /// It comes by a place (a uprobe).
    Entry(&'a Place),
}

impl Event<'_> {
    /// What it is, for messages.
    pub fn what(&self) -> &'static str {
        match self {
            Event::Clock => "the CPU's clock",
            Event::Switches => "their switches",
            Event::Entry(_) => "uprobes",
        }
    }

    fn builder(&self) -> Builder<'static> {
        match self {
            Event::Clock => Builder::new(Software::CPU_CLOCK),
            Event::Switches => Builder::new(Software::CONTEXT_SWITCHES),
            Event::Entry(place) => {
                // perf-event2 has a type for uprobes that it does not take as an event (0.7.4).
                let mut builder = Builder::new(Raw::new(0));
                let attributes = builder.attrs_mut();
                attributes.type_ = place.source;
                // Read by the kernel while the event is opened; `place` lives longer than the builder.
                attributes.config1 = place.path.as_ptr() as usize as u64;
                attributes.config2 = place.offset;
                builder
            }
        }
    }
}

/// How an event is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// A sample for so much of what is counted.
    pub period: u64,
    /// What happens in the kernel counts, too: without that a thread in `sched_yield` is not seen. It needs more rights.
    pub is_kernel_seen: bool,
    /// Each switch of the thread is told.
    pub are_switches_told: bool,
    /// How large its ring is: a power of two. The kernel locks that much memory.
    pub ring_bytes: usize,
}

/// Why an event was not opened.
#[derive(Debug)]
pub enum Refusal {
    /// The thread has ended.
    Ended,
    /// The kernel does not let us.
    Denied,
    /// We have too many files, or too much memory in rings.
    NoRoom(io::Error),
    /// The kernel cannot do that.
    Failed(io::Error),
}

impl Refusal {
    fn of(error: io::Error) -> Refusal {
        use rustix::io::Errno;
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::SRCH) => Refusal::Ended,
            Some(Errno::ACCESS | Errno::PERM) => Refusal::Denied,
            Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM) => Refusal::NoRoom(error),
            _ => Refusal::Failed(error),
        }
    }

    /// As an error of the whole; `paranoid` is the kernel's setting.
    pub fn into_error(self, pid: u32, what: &'static str, paranoid: Option<i64>) -> ProfileError {
        match self {
            Refusal::Ended => ProfileError::NoThreads { pid },
            Refusal::Denied => ProfileError::Denied { what, paranoid },
            Refusal::NoRoom(source) => ProfileError::NoRoom { what, source },
            Refusal::Failed(source) => ProfileError::Open { what, source },
        }
    }
}

/// An event that is counted, without samples.
#[derive(Debug)]
pub struct Count(Counter);

impl Count {
    /// Begins to count for a thread; 0 is the one that calls.
    pub fn open(event: Event<'_>, tid: u32) -> Result<Count, Refusal> {
        let mut builder = event.builder();
        observe(&mut builder, tid).enabled(true);
        builder.build().map(Count).map_err(Refusal::of)
    }

    /// How often it has happened.
    pub fn read(&mut self) -> u64 {
        // An event that was opened can be read.
        self.0.read().unwrap_or(0)
    }
}

/// An event that is sampled.
pub struct Stream {
    sampler: Sampler,
    /// How much of what is counted a sample stands for.
    pub period: u64,
}

impl Stream {
    /// An event of a thread, which waits for [`Self::start`]; 0 is the thread that calls.
    pub fn open(event: Event<'_>, tid: u32, options: &Options) -> Result<Stream, Refusal> {
        let mut builder = event.builder();
        // Not PERIOD: with that the kernel takes a sample of each event of its own (perf_swevent_event, kernel/events/core.c), whatever the
        // period. It never changes here anyway.
        let fields = SampleFlag::TID | SampleFlag::TIME | SampleFlag::REGS_USER | SampleFlag::STACK_USER;
        let period = options.period.max(1);
        observe(&mut builder, tid)
            .enabled(false)
            .sample_period(period)
            .exclude_kernel(!options.is_kernel_seen)
            .context_switch(options.are_switches_told)
            .sample(fields)
            .sample_id_all(true)
            .sample_regs_user(REGISTERS)
            .sample_stack_user(STACK_BYTES)
            // Nobody waits for the ring: it is looked at now and then.
            .wakeup_watermark(options.ring_bytes);
        let counter = builder.build().map_err(Refusal::of)?;
        // Here "not permitted" means that all memory that may be locked is.
        let sampler = counter.sampled(options.ring_bytes).map_err(Refusal::NoRoom)?;
        Ok(Stream { sampler, period })
    }

    /// How often it has happened, samples or not.
    pub fn count(&mut self) -> u64 {
        self.sampler.read().unwrap_or(0)
    }

    /// Hands over what has happened since the last time, in the order of the instants.
    pub fn drain(&mut self, mut take: impl FnMut(Record<'_>)) {
        for _ in 0..MOST_RECORDS {
            let Some(record) = self.sampler.next_record() else { return };
            let body = record.to_contiguous();
            if let Some(record) = Record::parse(record.ty(), record.misc(), &body) {
                take(record);
            }
        }
    }

    /// Begins to sample.
    pub fn start(&mut self) {
        // What was opened can be begun, or its thread has ended.
        let _ = self.sampler.enable();
    }

    /// Ends it; what was not yet handed over still is by [`Self::drain`].
    pub fn stop(&mut self) {
        // It ends with the file at the latest.
        let _ = self.sampler.disable();
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream").field("event", &self.sampler.id()).finish()
    }
}

fn observe<'b, 'a>(builder: &'b mut Builder<'a>, tid: u32) -> &'b mut Builder<'a> {
    match i32::try_from(tid) {
        Ok(tid) if tid > 0 => builder.observe_pid(tid),
        _ => builder.observe_self(),
    }
    .any_cpu()
}
