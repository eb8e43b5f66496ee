//! Watches the threads of a VM for some seconds, to find the locks that they wait for.
//!
//! ```text
//! active threads ──> CPU clock         (on-CPU: yielding, spinning) ────────────────┐
//!               ├──> context switches  (when a thread slept and woke up) ───────────┼──> timelines, stacks ──> waits
//!               └──> start of sleeps:  uprobes, or context switches ────────────────┘
//! ```
//!
//! If there are few threads and they rarely wait, uprobes detect the start of a sleep: every entry is counted. Otherwise context switches
//! detect it. They need no breakpoint and fewer privileges, but every switch is seen, and only the stack distinguishes a wait from other
//! reasons. If even context switches are not permitted, only the CPU clock is left. It shows threads that spin, but not threads that sleep.
//!
//! # Cost
//!
//! Everything is bounded: threads, samples per second, memory of rings, stacks kept. Uprobes are removed if the watched threads hit them
//! more often than allowed. The total cost of traps and samples is calculated from the cost of one, measured on this host
//! ([`crate::probe`]).

mod choose;

use std::io;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use beamtune_host::tree::FileTree;
use beamtune_model::Nanos;
use beamtune_model::units::SECOND_NS;

use crate::error::{self, ProfileError};
use crate::image::Image;
use crate::native::NativeUnwinder;
use crate::probe;
use crate::record::{Record, Sample};
use crate::sample;
use crate::stack::{Stack, StackEnd};
use crate::stream::{self, Event, MIN_RING_BYTES, Options, Refusal, Stream};
use crate::threads::Change;
use crate::timeline::{EndedWait, ThreadEvent, Timeline};
use crate::waits::{StackCounter, WaitKind, WaitSummary};
use choose::{Chosen, MAX_THREADS, choose};

/// Memory of all rings together.
const RINGS_BYTES: usize = 64 << 20;
/// The largest ring: room for 120 samples, or for 50,000 switches.
const MAX_RING_BYTES: usize = 2 << 20;
/// Maximum number of threads with uprobes: removing a uprobe takes 90 ms for each thread and function, and it is active until then.
const MAX_PROBED_THREADS: usize = 4;
/// Maximum share of the threads' CPU time for traps: 5 % (judgement). Above it no uprobes are used.
const MAX_TRAP_SHARE: f64 = 0.05;
/// Interval at which the rate of traps and switches is checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// If threads switch more than this many times as often as before, fewer switches are sampled: contention varies, and every sample costs
/// time. Up to this limit, twice the requested number of samples is accepted.
const MAX_SWITCH_INCREASE: f64 = 2.0;
/// Minimum CPU use that is assumed for the share of traps: for threads that hardly run, a few traps would be a large share.
const MIN_CORES: f64 = 0.1;

/// How the start of sleeps is detected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SleepDetection {
    /// Uprobes on the functions that sleep.
    Uprobes,
    /// Context switches.
    Switches,
    /// Not at all.
    None,
}

/// The cost of watching for the VM.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cost {
    /// Number of uprobe hits.
    pub traps: u64,
    /// Number of samples.
    pub samples: u64,
    /// Records dropped because a ring was full.
    pub lost: u64,
    /// CPU time that traps and samples took from the threads, estimated from the cost of one on this host; `None` if that was not
    /// measurable.
    pub time: Option<Nanos>,
}

/// The result of watching.
#[derive(Debug, Clone, PartialEq)]
pub struct WatchResult {
    /// Waits, and counts of other samples.
    pub summary: WaitSummary,
    /// How the start of sleeps was detected.
    pub sleeps: SleepDetection,
    /// The cost of watching.
    pub cost: Cost,
}

/// A watched thread.
#[derive(Debug)]
struct WatchedThread {
    tid: u32,
    kind: String,
    clock: Stream,
    sleeps: Vec<Stream>,
    timeline: Timeline,
}

/// Threads being watched.
#[derive(Debug)]
pub struct Watch {
    image: Image,
    unwinder: NativeUnwinder,
    threads: Vec<WatchedThread>,
    /// Number of selected threads whose events were opened or could not be opened.
    tried: usize,
    sleeps: SleepDetection,
    waits: StackCounter,
    samples: u64,
    lost: u64,
    ended: Vec<EndedWait>,
    /// Maximum number of samples of sleeps per second.
    rate: u32,
    /// CPU use of the threads before they were watched, in cores.
    cores: f64,
    /// Context switches of the threads per second.
    switches: f64,
    ring_bytes: usize,
    includes_kernel: bool,
    paranoid: Option<i64>,
    trap_cost: Option<Nanos>,
    sample_cost: Option<Nanos>,
    /// Hits of uprobes that were removed or stopped.
    traps: u64,
    /// Time of the last check, and the number of uprobe hits or switches at that time.
    checked: (Instant, u64),
    /// Thread that removes uprobes, which is slow.
    removal: Option<JoinHandle<()>>,
    /// Limitations, in sentences for the user.
    pub remarks: Vec<String>,
}

impl Watch {
    /// Starts watching. `before` is the recent activity of the threads, by which they are selected; `rate` limits the samples per second of
    /// all threads together. Takes about 0.3 s.
    pub fn open(tree: &impl FileTree, pid: u32, before: &Change, rate: u32) -> Result<Watch, ProfileError> {
        let image = Image::read(tree, pid)?;
        // Stacks cannot be interpreted without these symbols.
        image.offsets_of(probe::FUNCTIONS)?;
        let paranoid = stream::paranoid(tree);
        let chosen = choose(before);
        let mut remarks = Vec::new();
        if chosen.left_out > 0 {
            remarks.push(format!(
                "only the {MAX_THREADS} most active of {} active threads were watched",
                chosen.threads.len() + chosen.left_out
            ));
        }
        let unwinder = NativeUnwinder::new(&image);
        let rings = chosen.threads.len().max(1) * 2;
        let ring_bytes = (RINGS_BYTES / rings).clamp(MIN_RING_BYTES, MAX_RING_BYTES);
        let mut watch = Watch {
            unwinder,
            image,
            threads: Vec::new(),
            tried: 0,
            sleeps: SleepDetection::None,
            waits: StackCounter::default(),
            samples: 0,
            lost: 0,
            ended: Vec::new(),
            rate: rate / 2,
            cores: chosen.cores,
            switches: chosen.switches,
            // Rounded down to a power of two.
            ring_bytes: 1 << ring_bytes.ilog2(),
            includes_kernel: true,
            paranoid,
            trap_cost: None,
            sample_cost: probe::sample_cost(),
            traps: 0,
            checked: (Instant::now(), 0),
            removal: None,
            remarks,
        };
        watch.open_all(tree, &chosen)?;
        watch.start();
        Ok(watch)
    }

    /// Enables all events together, after all are open. The reported duration starts here; earlier records would inflate shares, above all
    /// in short runs.
    fn start(&mut self) {
        for watched in &mut self.threads {
            watched.clock.start();
            watched.sleeps.iter_mut().for_each(Stream::start);
        }
        self.checked = (Instant::now(), 0);
    }

    /// Returns the number of uprobe hits so far.
    fn entries(&mut self) -> u64 {
        self.threads.iter_mut().flat_map(|watched| &mut watched.sleeps).map(Stream::count).sum()
    }

    /// Opens the CPU clock and the sleep detection of each thread. If there is not enough memory for both, the rings shrink first, then the
    /// number of threads: a thread without sleep detection is worth less than half.
    fn open_all(&mut self, tree: &impl FileTree, chosen: &Chosen<'_>) -> Result<(), ProfileError> {
        let mut max = chosen.threads.len();
        let mut no_room = self.open_clocks(chosen, max)?;
        // Uprobes are tried only once: either there was enough memory for them, or they are not permitted.
        if self.includes_kernel && !self.threads.is_empty() && !self.open_probes(tree) {
            loop {
                match self.open_switches() {
                    Err(Refusal::NoRoom(_)) if self.ring_bytes > MIN_RING_BYTES => self.ring_bytes /= 2,
                    Err(Refusal::NoRoom(error)) if self.threads.len() > 1 => {
                        max = self.threads.len() / 2;
                        no_room = Some(error);
                    }
                    opened => {
                        self.note_unseen_sleeps(opened);
                        break;
                    }
                }
                self.close();
                no_room = self.open_clocks(chosen, max)?.or(no_room);
            }
        }
        if self.threads.is_empty() && !chosen.threads.is_empty() {
            return Err(ProfileError::NoThreads { pid: self.image.pid() });
        }
        if let Some(error) = no_room {
            self.remarks.push(format!(
                "only {} threads were watched: out of locked memory or open files ({error}); {}",
                self.threads.len(),
                error::ROOM_ADVICE
            ));
        }
        if !self.includes_kernel {
            self.remarks.push(format!(
                "threads inside the kernel were not sampled, so sleeps and most yields are missing (kernel.perf_event_paranoid is {}): run \
                 beamtune as root, or give it CAP_PERFMON",
                self.paranoid.map_or_else(|| "unknown".to_owned(), |level| level.to_string())
            ));
        }
        Ok(())
    }

    /// Opens the CPU clock, with context switches, of the first `max` threads; returns the error that prevented opening more, if any.
    fn open_clocks(&mut self, chosen: &Chosen<'_>, max: usize) -> Result<Option<io::Error>, ProfileError> {
        let max = max.min(chosen.threads.len());
        while let Some(thread) = chosen.threads.get(..max).and_then(|threads| threads.get(self.tried)) {
            let opened = Stream::open(
                Event::Clock,
                thread.tid,
                &Options {
                    period: sample::period(self.rate, chosen.cores, thread.tid),
                    includes_kernel: self.includes_kernel,
                    records_switches: true,
                    ring_bytes: self.ring_bytes,
                    ..Options::default()
                },
            );
            match opened {
                Ok(clock) => self.threads.push(WatchedThread {
                    tid: thread.tid,
                    kind: thread.kind.clone(),
                    clock,
                    sleeps: Vec::new(),
                    timeline: Timeline::default(),
                }),
                Err(Refusal::Ended) => {}
                // Unprivileged users may sample user mode only.
                Err(Refusal::Denied) if self.includes_kernel => {
                    self.includes_kernel = false;
                    continue;
                }
                Err(Refusal::NoRoom(_)) if self.ring_bytes > MIN_RING_BYTES => {
                    self.ring_bytes = smaller_rings(self.ring_bytes, self.threads.len(), max);
                    self.close();
                    continue;
                }
                Err(Refusal::NoRoom(error)) if !self.threads.is_empty() => return Ok(Some(error)),
                Err(refusal) => return Err(self.refused(refusal, Event::Clock.what())),
            }
            self.tried += 1;
        }
        Ok(None)
    }

    /// Closes all events, so that they can be opened again.
    fn close(&mut self) {
        self.threads.clear();
        self.tried = 0;
    }

    fn refused(&self, refusal: Refusal, what: &'static str) -> ProfileError {
        refusal.into_error(self.image.pid(), what, self.paranoid)
    }

    /// Opens uprobes if there are few threads and they rarely switch. Returns whether uprobes are in use; failure is not an error.
    fn open_probes(&mut self, tree: &impl FileTree) -> bool {
        if self.threads.len() > MAX_PROBED_THREADS || !self.includes_kernel {
            return false;
        }
        let (Ok(points), Ok(cost)) = (probe::points(tree, &self.image), probe::trap_cost()) else {
            return false;
        };
        self.trap_cost = Some(cost);
        if self.trap_share(self.switches) > MAX_TRAP_SHARE {
            return false;
        }
        let events: Vec<Event<'_>> = points.iter().map(Event::Entry).collect();
        let is_probed = self.add_streams(&events, false).is_ok();
        self.sleeps = if is_probed { SleepDetection::Uprobes } else { self.sleeps };
        is_probed
    }

    /// Returns the share of the threads' CPU time that this many traps per second take.
    fn trap_share(&self, per_second: f64) -> f64 {
        let taken = per_second * self.trap_cost.unwrap_or(0) as f64 / SECOND_NS as f64;
        taken / self.cores.max(MIN_CORES)
    }

    /// Opens sleep detection by context switches.
    fn open_switches(&mut self) -> Result<(), Refusal> {
        self.add_streams(&[Event::Switches], true)?;
        self.sleeps = SleepDetection::Switches;
        Ok(())
    }

    fn note_unseen_sleeps(&mut self, opened: Result<(), Refusal>) {
        if let Err(refusal) = opened {
            let error = self.refused(refusal, Event::Switches.what());
            self.remarks.push(format!("sleeps were not watched: {error}"));
        }
    }

    /// Opens events for each thread; if one fails, all of them are closed.
    fn add_streams(&mut self, events: &[Event<'_>], includes_kernel: bool) -> Result<(), Refusal> {
        let period = probe::period(self.switches, self.rate);
        let ring_bytes = self.ring_bytes;
        let options = Options { period, includes_kernel, ring_bytes, ..Options::default() };
        let mut all = Vec::new();
        for watched in &self.threads {
            let mut streams = Vec::new();
            for event in events {
                match Stream::open(*event, watched.tid, &options) {
                    Ok(stream) => streams.push(stream),
                    Err(Refusal::Ended) => {}
                    Err(refusal) => return Err(refusal),
                }
            }
            all.push(streams);
        }
        for (watched, streams) in self.threads.iter_mut().zip(all) {
            watched.sleeps = streams;
        }
        Ok(())
    }

    /// Samples fewer switches if threads switch more often than before, and removes uprobes that are hit too often.
    fn check(&mut self) {
        let (since, before) = self.checked;
        if self.sleeps == SleepDetection::None || since.elapsed() < CHECK_INTERVAL {
            return;
        }
        let entries = self.entries();
        let per_second = entries.saturating_sub(before) as f64 / since.elapsed().as_secs_f64();
        self.checked = (Instant::now(), entries);
        let is_too_often = match self.sleeps {
            SleepDetection::Uprobes => self.trap_share(per_second) > MAX_TRAP_SHARE,
            _ => per_second > self.switches.max(f64::from(self.rate)) * MAX_SWITCH_INCREASE,
        };
        if !is_too_often {
            return;
        }
        self.switches = self.switches.max(per_second);
        if self.sleeps == SleepDetection::Uprobes {
            self.traps = entries;
            self.remove_probes();
        } else {
            // Closing context-switch events is fast, and their memory is needed.
            self.threads.iter_mut().for_each(|watched| watched.sleeps.clear());
            self.sleeps = SleepDetection::None;
        }
        let opened = self.open_switches();
        self.note_unseen_sleeps(opened);
        self.threads.iter_mut().flat_map(|watched| &mut watched.sleeps).for_each(Stream::start);
        self.checked = (Instant::now(), 0);
    }

    /// Removes uprobes in another thread, since the kernel takes long to do this.
    fn remove_probes(&mut self) {
        let streams: Vec<Stream> =
            self.threads.iter_mut().flat_map(|watched| std::mem::take(&mut watched.sleeps)).collect();
        self.sleeps = SleepDetection::None;
        self.removal = Some(std::thread::spawn(move || drop(streams)));
    }

    /// Returns the ids of the watched threads.
    pub fn tids(&self) -> Vec<u32> {
        self.threads.iter().map(|watched| watched.tid).collect()
    }

    /// Processes new records, and checks the rate of traps and switches. To be called about a hundred times per second.
    pub fn drain(&mut self) {
        self.empty_rings();
        self.check();
    }

    fn empty_rings(&mut self) {
        let Watch { unwinder, threads, sleeps, waits, samples, lost, ended, .. } = self;
        for WatchedThread { kind, clock, sleeps: streams, timeline, .. } in threads {
            let each = Nanos::try_from(clock.period).unwrap_or(Nanos::MAX);
            clock.drain(|record| match record {
                Record::Sample(sample) => {
                    *samples += 1;
                    if let Some(stack) = waits.index_of(kind, WaitKind::Yield, unwound(unwinder, &sample)) {
                        waits.add(stack, 1, Some(each));
                    }
                }
                Record::Out { t, is_voluntary } => timeline.push(t, ThreadEvent::Out { is_voluntary }),
                Record::In { t } => timeline.push(t, ThreadEvent::In),
                Record::Lost { count } => *lost += count,
            });
            for stream in streams {
                let weight = stream.period;
                stream.drain(|record| match record {
                    Record::Sample(sample) => {
                        *samples += 1;
                        if let Some(stack) = waits.index_of(kind, WaitKind::Sleep, unwound(unwinder, &sample))
                        {
                            let is_leaving = *sleeps == SleepDetection::Switches;
                            timeline.push(sample.t, ThreadEvent::Wait { stack, weight, is_leaving });
                        }
                    }
                    Record::Lost { count } => *lost += count,
                    Record::Out { .. } | Record::In { .. } => {}
                });
            }
            timeline.settle(ended);
            for wait in ended.drain(..) {
                // A wait that ended before the thread slept took no sleep time.
                waits.add(wait.stack, wait.weight, Some(wait.slept.unwrap_or(0)));
            }
        }
    }

    /// Stops watching. `length` is the duration; `queued` is the run-queue delay of all watched threads together in that time, measured by
    /// the kernel. The delay between wake-up and running is calculated from it and is not part of a wait for a lock. Without this
    /// correction, sleeps would seem longer on a busy host.
    pub fn finish(mut self, length: Nanos, queued: Option<Nanos>) -> WatchResult {
        for watched in &mut self.threads {
            watched.clock.stop();
            for stream in &mut watched.sleeps {
                stream.stop();
            }
        }
        if self.sleeps == SleepDetection::Uprobes {
            self.traps = self.entries();
        }
        let sleeps = self.sleeps;
        self.empty_rings();
        let end = self.threads.iter().map(|watched| watched.timeline.latest()).max().unwrap_or(0);
        let (mut woken, mut preempted) = (0_u64, 0_i64);
        for watched in std::mem::take(&mut self.threads) {
            let off = watched.timeline.finish(end, &mut self.ended);
            woken = woken.saturating_add(off.woken);
            preempted = preempted.saturating_add(off.preempted);
        }
        let late = wakeup_delay(queued, preempted, woken);
        for wait in self.ended.drain(..) {
            self.waits.add(wait.stack, wait.weight, Some(wait.slept.unwrap_or(0)));
        }
        let times = |cost: Option<Nanos>, count: u64| match count {
            0 => Some(0),
            _ => Some(cost?.saturating_mul(i64::try_from(count).unwrap_or(i64::MAX))),
        };
        let time = times(self.trap_cost, self.traps).zip(times(self.sample_cost, self.samples));
        let time = time.map(|(traps, samples)| traps.saturating_add(samples));
        if let Some(removal) = self.removal.take() {
            // An error does not matter: the thread only closes files.
            let _ = removal.join();
        }
        WatchResult {
            summary: self.waits.evaluate(&self.image, length, late),
            sleeps,
            cost: Cost { traps: self.traps, samples: self.samples, lost: self.lost, time },
        }
    }
}

/// Returns the ring size at which every thread can have two rings, given how many rings of the current size there was memory for. The size
/// is calculated instead of tried, since closing an event takes the kernel tens of milliseconds.
fn smaller_rings(ring_bytes: usize, had_room_for: usize, threads: usize) -> usize {
    let room = ring_bytes.saturating_mul(had_room_for);
    let each = (room / threads.max(1) / 2).clamp(MIN_RING_BYTES, (ring_bytes / 2).max(MIN_RING_BYTES));
    1 << each.ilog2()
}

/// Returns the average delay between wake-up and running: the run-queue delay, without the time after preemptions.
fn wakeup_delay(queued: Option<Nanos>, preempted: Nanos, woken: u64) -> Nanos {
    let after_waking = queued.unwrap_or(0).saturating_sub(preempted).max(0);
    after_waking / i64::try_from(woken).unwrap_or(i64::MAX).max(1)
}

fn unwound(unwinder: &mut NativeUnwinder, sample: &Sample<'_>) -> Stack {
    let Some(registers) = sample.registers else { return Stack { frames: Vec::new(), end: StackEnd::Lost } };
    let stack = unwinder.unwind(registers, None, |address| sample.word(address));
    Stack { frames: stack.frames, end: stack.end }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_shrink_to_the_available_memory() {
        const MB: usize = 1 << 20;
        // Memory for 8 MB, and 13 threads with two rings each.
        assert_eq!(smaller_rings(2 * MB, 4, 13), MB / 4);
        assert_eq!(smaller_rings(2 * MB, 0, 13), MIN_RING_BYTES);
        assert_eq!(smaller_rings(2 * MB, 12, 13), MB / 2);
        assert_eq!(smaller_rings(2 * MB, 4, 1), MB);
        assert_eq!(smaller_rings(MIN_RING_BYTES, 4, 1), MIN_RING_BYTES);
    }

    #[test]
    fn wakeup_delay_excludes_preemption() {
        assert_eq!(wakeup_delay(Some(1_000), 400, 3), 200);
        assert_eq!(wakeup_delay(Some(1_000), 4_000, 3), 0);
        assert_eq!((wakeup_delay(None, 0, 3), wakeup_delay(Some(1_000), 0, 0)), (0, 1_000));
    }
}
