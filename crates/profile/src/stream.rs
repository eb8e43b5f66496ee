//! Perf events of one thread: event counts, and samples in a ring buffer.
//!
//! Each event is opened for one thread (perf_event_open(2) with a thread id). It cannot be opened for a whole process: `inherit` passes an
//! event to threads that start later, but a VM's threads all exist already. Besides, with `inherit` the kernel allows only rings that are
//! bound to one CPU. So threads that start while others are watched are not seen.
//!
//! # Cost
//!
//! A sample copies the thread's stack ([`STACK_BYTES`]), which takes some microseconds of the thread's time. A full ring drops samples and
//! counts them; it never delays the thread.

use std::ffi::CString;
use std::io;
use std::os::fd::AsRawFd;

use beamtune_host::tree::FileTree;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use perf_event::events::{Raw, Software};
use perf_event::{Builder, Counter, SampleFlag, Sampler};

use crate::error::ProfileError;
use crate::record::{REGISTERS, Record};

/// Size of the stack copy for finding lock waits. The C code below a BIF needs a few hundred to a few thousand bytes.
pub const STACK_BYTES: u32 = 16 * 1024;
/// The smallest ring: room for three samples, or for 1,600 switches.
pub const MIN_RING_BYTES: usize = 64 * 1024;
/// Maximum number of records that one call reads. A thread that fills its ring as fast as it is read thus cannot occupy the reader
/// indefinitely.
const MAX_RECORDS: usize = 20_000;

/// The kernel's setting for unprivileged use of perf events.
const PARANOID: &str = "/proc/sys/kernel/perf_event_paranoid";

/// `kernel.perf_event_paranoid`; `None` if it cannot be read.
pub fn paranoid(tree: &impl FileTree) -> Option<i64> {
    let text = tree.read(PARANOID, 64).ok()?;
    String::from_utf8_lossy(&text).trim().parse().ok()
}

/// Position of a uprobe in a program's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbePoint {
    /// The type of uprobe events in this kernel, from `/sys/bus/event_source/devices/uprobe/type`.
    pub source: u32,
    /// Path of the file.
    pub path: CString,
    /// Offset in the file.
    pub offset: u64,
}

/// The kind of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// CPU time, in nanoseconds.
    Clock,
    /// Context switches that take the thread off its CPU.
    Switches,
    /// Hits of a uprobe.
    Entry(&'a ProbePoint),
}

impl Event<'_> {
    /// Returns the name for messages.
    pub fn what(&self) -> &'static str {
        match self {
            Event::Clock => "the CPU clock",
            Event::Switches => "context switches",
            Event::Entry(_) => "uprobes",
        }
    }

    fn builder(&self) -> Builder<'static> {
        match self {
            Event::Clock => Builder::new(Software::CPU_CLOCK),
            Event::Switches => Builder::new(Software::CONTEXT_SWITCHES),
            Event::Entry(point) => {
                // perf-event2 does not accept its own type for uprobes as an event (0.7.4).
                let mut builder = Builder::new(Raw::new(0));
                let attributes = builder.attrs_mut();
                attributes.type_ = point.source;
                // The kernel reads the string while the event is opened; `point` outlives the builder.
                attributes.config1 = point.path.as_ptr() as usize as u64;
                attributes.config2 = point.offset;
                builder
            }
        }
    }
}

/// Options of a sampled event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Count per sample: nanoseconds, switches or hits.
    pub period: u64,
    /// Whether to count in kernel mode, too, which needs more privileges. Without it, a thread in `sched_yield` is not sampled.
    pub includes_kernel: bool,
    /// Whether to record each context switch of the thread.
    pub records_switches: bool,
    /// Size of the ring, a power of two. The kernel locks that much memory.
    pub ring_bytes: usize,
    /// Size of the stack copy, in bytes.
    pub stack_bytes: u32,
    /// Whether to record the kernel's call stack.
    pub kernel_stack: bool,
    /// Whether each sample makes the event readable for poll(2).
    pub wakes: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            period: 1,
            includes_kernel: false,
            records_switches: false,
            ring_bytes: MIN_RING_BYTES,
            stack_bytes: STACK_BYTES,
            kernel_stack: false,
            wakes: false,
        }
    }
}

/// Why an event could not be opened.
#[derive(Debug)]
pub enum Refusal {
    /// The thread has ended.
    Ended,
    /// Permission denied.
    Denied,
    /// Too many open files, or too much locked memory.
    NoRoom(io::Error),
    /// Any other error, such as an unsupported event.
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

    /// Converts the refusal to an error; `paranoid` is the kernel's `perf_event_paranoid`.
    pub fn into_error(self, pid: u32, what: &'static str, paranoid: Option<i64>) -> ProfileError {
        match self {
            Refusal::Ended => ProfileError::NoThreads { pid },
            Refusal::Denied => ProfileError::Denied { what, paranoid },
            Refusal::NoRoom(source) => ProfileError::NoRoom { what, source },
            Refusal::Failed(source) => ProfileError::Open { what, source },
        }
    }
}

/// An event that is only counted.
#[derive(Debug)]
pub struct Count(Counter);

impl Count {
    /// Starts to count for a thread; 0 is the calling thread.
    pub fn open(event: Event<'_>, tid: u32) -> Result<Count, Refusal> {
        let mut builder = event.builder();
        observe(&mut builder, tid).enabled(true);
        builder.build().map(Count).map_err(Refusal::of)
    }

    /// Returns the count so far.
    pub fn read(&mut self) -> u64 {
        // Reading an open event does not fail.
        self.0.read().unwrap_or(0)
    }
}

/// A sampled event.
pub struct Stream {
    sampler: Sampler,
    /// Count per sample.
    pub period: u64,
    kernel_stack: bool,
}

impl Stream {
    /// Opens an event of a thread, disabled until [`Self::start`]; 0 is the calling thread.
    pub fn open(event: Event<'_>, tid: u32, options: &Options) -> Result<Stream, Refusal> {
        let mut builder = event.builder();
        // PERIOD is left out: with it, the kernel samples every software event, whatever the period (perf_swevent_event,
        // kernel/events/core.c). The period never changes here anyway.
        let mut fields = SampleFlag::TID | SampleFlag::TIME | SampleFlag::REGS_USER | SampleFlag::STACK_USER;
        if options.kernel_stack {
            fields |= SampleFlag::CALLCHAIN;
        }
        let period = options.period.max(1);
        observe(&mut builder, tid)
            .enabled(false)
            .sample_period(period)
            .exclude_kernel(!options.includes_kernel)
            .context_switch(options.records_switches)
            .sample(fields)
            .sample_id_all(true)
            .sample_regs_user(REGISTERS)
            .sample_stack_user(options.stack_bytes)
            .exclude_callchain_user(true);
        match options.wakes {
            true => builder.wakeup_events(1),
            // The ring is read from time to time.
            false => builder.wakeup_watermark(options.ring_bytes),
        };
        let counter = builder.build().map_err(Refusal::of)?;
        // Here the kernel returns EPERM if the limit on locked memory is reached.
        let sampler = counter.sampled(options.ring_bytes).map_err(Refusal::NoRoom)?;
        Ok(Stream { sampler, period, kernel_stack: options.kernel_stack })
    }

    /// Returns the number of events so far, sampled or not.
    pub fn count(&mut self) -> u64 {
        self.sampler.read().unwrap_or(0)
    }

    /// Passes new records to `take`, oldest first.
    pub fn drain(&mut self, mut take: impl FnMut(Record<'_>)) {
        for _ in 0..MAX_RECORDS {
            let Some(record) = self.sampler.next_record() else { return };
            let body = record.to_contiguous();
            if let Some(record) = Record::parse(record.ty(), record.misc(), &body, self.kernel_stack) {
                take(record);
            }
        }
    }

    /// Makes events of `poll` when there are samples ([`Options::wakes`]).
    ///
    /// # Errors
    /// Those of epoll_ctl(2).
    pub fn register(&self, poll: &Registry, token: Token) -> io::Result<()> {
        poll.register(&mut SourceFd(&self.sampler.as_raw_fd()), token, Interest::READABLE)
    }

    /// Enables the event.
    pub fn start(&mut self) {
        // This fails only if the thread has ended.
        let _ = self.sampler.enable();
    }

    /// Disables the event; [`Self::drain`] still passes what is in the ring.
    pub fn stop(&mut self) {
        // If this fails, closing the event stops it.
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
