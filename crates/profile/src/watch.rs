//! Watches the threads of a VM for some seconds, to see which locks they wait for.
//!
//! ```text
//! threads that are active ──> clock     (on a CPU: yielding, spinning) ──────────────┐
//!                        ├──> switches  (when each slept and came back) ─────────────┼──> timelines, stacks ──> waits
//!                        └──> the way into sleep: entries (uprobes), or the switches ┘
//! ```
//!
//! Of a few threads that seldom wait the way into sleep is seen by uprobes: each entry is counted. Else it is seen as a thread leaves its
//! CPU: that needs no breakpoint and fewer rights, but every reason to leave is seen, and those that are no waits are told apart by the
//! stack only. Where even that is not allowed, the clock alone sees threads that spin, and none that sleep.
//!
//! # Cost
//!
//! Everything is bounded: the threads, the samples in a second, the memory of the rings, the stacks that are kept. Threads that come by
//! uprobes more often than they may while it is watched have them taken out again. What traps and samples have cost the VM is
//! worked out from what one costs here ([`crate::probe`]).

mod choose;

use std::io;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use beamtune_host::tree::FileTree;
use beamtune_model::Nanos;
use beamtune_model::units::SECOND_NS;

use crate::error::{self, ProfileError};
use crate::image::Image;
use crate::probe;
use crate::record::{Record, Sample};
use crate::sample;
use crate::stack::{Stack, StackEnd};
use crate::stream::{Event, LEAST_RING_BYTES, Options, Refusal, Stream};
use crate::threads::Change;
use crate::timeline::{Moment, Timeline, Waited};
use crate::unwind::Unwinder;
use crate::waits::{Found, How, Waits};
use choose::{Chosen, MOST_THREADS, choose};

/// Memory of all rings together.
const RINGS_BYTES: usize = 64 << 20;
/// The largest ring: room for 120 samples, or for 50,000 switches.
const MOST_RING_BYTES: usize = 2 << 20;
/// More threads are not probed: taking a uprobe out takes 90 ms for each thread and function, and meanwhile it is still there.
const MOST_PROBED: usize = 4;
/// What traps may take of the CPU time that the threads use: a twentieth (judgement). Above that there are no uprobes.
const MOST_TRAPPED: f64 = 0.05;
/// How often that is looked at.
const CHECK: Duration = Duration::from_millis(250);
/// Threads that switch so many times as often as they did before are sampled more rarely: a fight for a lock comes and goes, and each sample
/// takes its time. Below that, twice as many samples as there may be are borne.
const MORE_SWITCHES: f64 = 2.0;
/// As if threads used so much of a core at least: of those that hardly run, a few traps would be a large share.
const LEAST_CORES: f64 = 0.1;
/// The kernel's setting.
const PARANOID: &str = "/proc/sys/kernel/perf_event_paranoid";

/// How the way into sleep is seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sleeps {
    /// By uprobes on the functions that sleep.
    Entries,
    /// By the threads' switches.
    Switches,
    /// Not at all.
    Unseen,
}

/// What it has cost the VM.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cost {
    /// Times that a thread came upon a uprobe.
    pub traps: u64,
    /// Samples that were drawn.
    pub samples: u64,
    /// Samples and switches that were lost, because a ring was full.
    pub lost: u64,
    /// CPU time that the threads have spent on it, from what a trap and a sample cost here; `None` where that could not be measured.
    pub time: Option<Nanos>,
}

/// What was seen.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// Waits, and what is known beside them.
    pub found: Found,
    /// How the way into sleep was seen.
    pub sleeps: Sleeps,
    /// What it has cost.
    pub cost: Cost,
}

/// One thread that is watched.
#[derive(Debug)]
struct Watched {
    tid: u32,
    kind: String,
    clock: Stream,
    sleeps: Vec<Stream>,
    timeline: Timeline,
}

/// The threads that are watched.
#[derive(Debug)]
pub struct Watch {
    image: Image,
    unwinder: Unwinder,
    threads: Vec<Watched>,
    /// How many of the chosen threads were looked at while all is opened.
    tried: usize,
    sleeps: Sleeps,
    waits: Waits,
    samples: u64,
    lost: u64,
    ended: Vec<Waited>,
    /// How many samples of sleeps there may be in a second.
    rate: u32,
    /// What the threads used of the CPUs before.
    cores: f64,
    /// How often they left their CPUs in a second.
    switches: f64,
    ring_bytes: usize,
    is_kernel_seen: bool,
    paranoid: Option<i64>,
    trap_price: Option<Nanos>,
    sample_price: Option<Nanos>,
    /// Entries by uprobes that are no more.
    traps: u64,
    /// When the number of entries was last looked at, and what it was.
    checked: (Instant, u64),
    /// Takes uprobes out, which lasts.
    leaving: Option<JoinHandle<()>>,
    /// What is not as it should be, for a person.
    pub remarks: Vec<String>,
}

impl Watch {
    /// Begins. `before` is what threads have done in the time before, from which those that are worth it are chosen; `rate` is how many
    /// samples are drawn in a second at most, all threads together. It takes some 0.3 s.
    pub fn open(tree: &impl FileTree, pid: u32, before: &Change, rate: u32) -> Result<Watch, ProfileError> {
        let image = Image::read(tree, pid)?;
        // Without these names no stack could be read either.
        image.offsets_of(probe::FUNCTIONS)?;
        let paranoid = tree.read(PARANOID, 64).ok();
        let paranoid = paranoid.and_then(|text| String::from_utf8_lossy(&text).trim().parse::<i64>().ok());
        let chosen = choose(before);
        let mut remarks = Vec::new();
        if chosen.left_out > 0 {
            remarks.push(format!(
                "of {} active threads the {MOST_THREADS} most active were watched",
                chosen.threads.len() + chosen.left_out
            ));
        }
        let unwinder = Unwinder::new(&image);
        let rings = chosen.threads.len().max(1) * 2;
        let ring_bytes = (RINGS_BYTES / rings).clamp(LEAST_RING_BYTES, MOST_RING_BYTES);
        let mut watch = Watch {
            unwinder,
            image,
            threads: Vec::new(),
            tried: 0,
            sleeps: Sleeps::Unseen,
            waits: Waits::default(),
            samples: 0,
            lost: 0,
            ended: Vec::new(),
            rate: rate / 2,
            cores: chosen.cores,
            switches: chosen.switches,
            // A power of two, and not more than that.
            ring_bytes: 1 << ring_bytes.ilog2(),
            is_kernel_seen: true,
            paranoid,
            trap_price: None,
            sample_price: probe::sample_price(),
            traps: 0,
            checked: (Instant::now(), 0),
            leaving: None,
            remarks,
        };
        watch.open_all(tree, &chosen)?;
        watch.start();
        Ok(watch)
    }

    /// Begins with all at once, and only when all is open: the time that is told with what is seen begins here, and what came before would
    /// make its shares too large, the more the shorter it is.
    fn start(&mut self) {
        for watched in &mut self.threads {
            watched.clock.start();
            watched.sleeps.iter_mut().for_each(Stream::start);
        }
        self.checked = (Instant::now(), 0);
    }

    /// How often threads have come upon uprobes so far.
    fn entries(&mut self) -> u64 {
        self.threads.iter_mut().flat_map(|watched| &mut watched.sleeps).map(Stream::count).sum()
    }

    /// The clock of each thread, and its way into sleep. Where there is no room for both, rings are smaller, and then threads are fewer:
    /// those whose sleeps are not seen tell less than half.
    fn open_all(&mut self, tree: &impl FileTree, chosen: &Chosen<'_>) -> Result<(), ProfileError> {
        let mut most = chosen.threads.len();
        let mut no_room = self.open_clocks(chosen, most)?;
        // Traps are never tried again: they had their room, or no right.
        if self.is_kernel_seen && !self.threads.is_empty() && !self.is_probed(tree) {
            loop {
                match self.open_switches() {
                    Err(Refusal::NoRoom(_)) if self.ring_bytes > LEAST_RING_BYTES => self.ring_bytes /= 2,
                    Err(Refusal::NoRoom(error)) if self.threads.len() > 1 => {
                        most = self.threads.len() / 2;
                        no_room = Some(error);
                    }
                    opened => {
                        self.note_unseen_sleeps(opened);
                        break;
                    }
                }
                self.close();
                no_room = self.open_clocks(chosen, most)?.or(no_room);
            }
        }
        if self.threads.is_empty() && !chosen.threads.is_empty() {
            return Err(ProfileError::NoThreads { pid: self.image.pid() });
        }
        if let Some(error) = no_room {
            self.remarks.push(format!(
                "only {} threads were watched, since there was no room for more ({error}): {}",
                self.threads.len(),
                error::ROOM
            ));
        }
        if !self.is_kernel_seen {
            self.remarks.push(format!(
                "threads in the kernel were not seen, and so neither sleeps nor most yields (kernel.perf_event_paranoid is {}): run beamtune \
                 as root, or give it CAP_PERFMON",
                self.paranoid.map_or_else(|| "unknown".to_owned(), |level| level.to_string())
            ));
        }
        Ok(())
    }

    /// The clock of each of the first so many threads, and its switches; what was in the way of more.
    fn open_clocks(&mut self, chosen: &Chosen<'_>, most: usize) -> Result<Option<io::Error>, ProfileError> {
        let most = most.min(chosen.threads.len());
        while let Some(thread) = chosen.threads.get(..most).and_then(|threads| threads.get(self.tried)) {
            let opened = Stream::open(
                Event::Clock,
                thread.tid,
                &Options {
                    period: sample::period(self.rate, chosen.cores, thread.tid),
                    is_kernel_seen: self.is_kernel_seen,
                    are_switches_told: true,
                    ring_bytes: self.ring_bytes,
                },
            );
            match opened {
                Ok(clock) => self.threads.push(Watched {
                    tid: thread.tid,
                    kind: thread.kind.clone(),
                    clock,
                    sleeps: Vec::new(),
                    timeline: Timeline::default(),
                }),
                Err(Refusal::Ended) => {}
                // Less is allowed to users than to root.
                Err(Refusal::Denied) if self.is_kernel_seen => {
                    self.is_kernel_seen = false;
                    continue;
                }
                Err(Refusal::NoRoom(_)) if self.ring_bytes > LEAST_RING_BYTES => {
                    self.ring_bytes = smaller(self.ring_bytes, self.threads.len(), most);
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

    /// Closes all, to begin again.
    fn close(&mut self) {
        self.threads.clear();
        self.tried = 0;
    }

    fn refused(&self, refusal: Refusal, what: &'static str) -> ProfileError {
        refusal.into_error(self.image.pid(), what, self.paranoid)
    }

    /// The way into sleep by uprobes, if there are few threads and they seldom leave their CPUs. It is no fault if not.
    fn is_probed(&mut self, tree: &impl FileTree) -> bool {
        if self.threads.len() > MOST_PROBED || !self.is_kernel_seen {
            return false;
        }
        let (Ok(places), Ok(price)) = (probe::places(tree, &self.image), probe::trap_price()) else {
            return false;
        };
        self.trap_price = Some(price);
        if self.trapped_share(self.switches) > MOST_TRAPPED {
            return false;
        }
        let events: Vec<Event<'_>> = places.iter().map(Event::Entry).collect();
        let is_probed = self.add_streams(&events, false).is_ok();
        self.sleeps = if is_probed { Sleeps::Entries } else { self.sleeps };
        is_probed
    }

    /// Which share of the threads' CPU time so many traps in a second take.
    fn trapped_share(&self, per_second: f64) -> f64 {
        let taken = per_second * self.trap_price.unwrap_or(0) as f64 / SECOND_NS as f64;
        taken / self.cores.max(LEAST_CORES)
    }

    /// The way into sleep by the threads' switches.
    fn open_switches(&mut self) -> Result<(), Refusal> {
        self.add_streams(&[Event::Switches], true)?;
        self.sleeps = Sleeps::Switches;
        Ok(())
    }

    fn note_unseen_sleeps(&mut self, opened: Result<(), Refusal>) {
        if let Err(refusal) = opened {
            let error = self.refused(refusal, Event::Switches.what());
            self.remarks.push(format!("sleeps were not watched: {error}"));
        }
    }

    /// Opens events for each thread; as soon as one cannot be had, those that were opened are closed again.
    fn add_streams(&mut self, events: &[Event<'_>], is_kernel_seen: bool) -> Result<(), Refusal> {
        let period = probe::period(self.switches, self.rate);
        let ring_bytes = self.ring_bytes;
        let options = Options { period, is_kernel_seen, are_switches_told: false, ring_bytes };
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

    /// Goes on with fewer samples of switches where threads switch more often than they did before, and without uprobes where threads come
    /// by them too often.
    fn check(&mut self) {
        let (since, before) = self.checked;
        if self.sleeps == Sleeps::Unseen || since.elapsed() < CHECK {
            return;
        }
        let entries = self.entries();
        let per_second = entries.saturating_sub(before) as f64 / since.elapsed().as_secs_f64();
        self.checked = (Instant::now(), entries);
        let is_too_often = match self.sleeps {
            Sleeps::Entries => self.trapped_share(per_second) > MOST_TRAPPED,
            _ => per_second > self.switches.max(f64::from(self.rate)) * MORE_SWITCHES,
        };
        if !is_too_often {
            return;
        }
        self.switches = self.switches.max(per_second);
        if self.sleeps == Sleeps::Entries {
            self.traps = entries;
            self.take_out();
        } else {
            // The kernel is quick with these, and their memory is needed.
            self.threads.iter_mut().for_each(|watched| watched.sleeps.clear());
            self.sleeps = Sleeps::Unseen;
        }
        let opened = self.open_switches();
        self.note_unseen_sleeps(opened);
        self.threads.iter_mut().flat_map(|watched| &mut watched.sleeps).for_each(Stream::start);
        self.checked = (Instant::now(), 0);
    }

    /// Closes what shows sleeps, beside, since the kernel takes its time for that.
    fn take_out(&mut self) {
        let streams: Vec<Stream> =
            self.threads.iter_mut().flat_map(|watched| std::mem::take(&mut watched.sleeps)).collect();
        self.sleeps = Sleeps::Unseen;
        self.leaving = Some(std::thread::spawn(move || drop(streams)));
    }

    /// The threads that are watched.
    pub fn tids(&self) -> Vec<u32> {
        self.threads.iter().map(|watched| watched.tid).collect()
    }

    /// Takes what has happened since the last time; to be called some hundred times a second.
    pub fn drain(&mut self) {
        self.empty_rings();
        self.check();
    }

    fn empty_rings(&mut self) {
        let Watch { unwinder, threads, sleeps, waits, samples, lost, ended, .. } = self;
        for Watched { kind, clock, sleeps: streams, timeline, .. } in threads {
            let each = Nanos::try_from(clock.period).unwrap_or(Nanos::MAX);
            clock.drain(|record| match record {
                Record::Sample(sample) => {
                    *samples += 1;
                    if let Some(place) = waits.place(kind, How::Yield, unwound(unwinder, &sample)) {
                        waits.add(place, 1, Some(each));
                    }
                }
                Record::Out { t, is_voluntary } => timeline.push(t, Moment::Out { is_voluntary }),
                Record::In { t } => timeline.push(t, Moment::In),
                Record::Lost { count } => *lost += count,
            });
            for stream in streams {
                let weight = stream.period;
                stream.drain(|record| match record {
                    Record::Sample(sample) => {
                        *samples += 1;
                        if let Some(stack) = waits.place(kind, How::Sleep, unwound(unwinder, &sample)) {
                            let is_leaving = *sleeps == Sleeps::Switches;
                            timeline.push(sample.t, Moment::Wait { stack, weight, is_leaving });
                        }
                    }
                    Record::Lost { count } => *lost += count,
                    Record::Out { .. } | Record::In { .. } => {}
                });
            }
            timeline.settle(ended);
            for wait in ended.drain(..) {
                // A wait that ended before the thread slept took no time asleep.
                waits.add(wait.stack, wait.weight, Some(wait.slept.unwrap_or(0)));
            }
        }
    }

    /// Ends. `length` is how long it was watched; `queued`, how long the threads that were watched had no CPU though they wanted one, of
    /// all of them together, by the kernel's account of the same time. From that follows how long a thread that is woken waits for a CPU, which
    /// is no wait for a lock: without it, sleeps seem longer on a busy host.
    pub fn finish(mut self, length: Nanos, queued: Option<Nanos>) -> Seen {
        for watched in &mut self.threads {
            watched.clock.stop();
            for stream in &mut watched.sleeps {
                stream.stop();
            }
        }
        if self.sleeps == Sleeps::Entries {
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
        let late = late(queued, preempted, woken);
        for wait in self.ended.drain(..) {
            self.waits.add(wait.stack, wait.weight, Some(wait.slept.unwrap_or(0)));
        }
        let times = |price: Option<Nanos>, count: u64| match count {
            0 => Some(0),
            _ => Some(price?.saturating_mul(i64::try_from(count).unwrap_or(i64::MAX))),
        };
        let time = times(self.trap_price, self.traps).zip(times(self.sample_price, self.samples));
        let time = time.map(|(traps, samples)| traps.saturating_add(samples));
        if let Some(leaving) = self.leaving.take() {
            // It does nothing but to close files.
            let _ = leaving.join();
        }
        Seen {
            found: self.waits.found(&self.image, length, late),
            sleeps,
            cost: Cost { traps: self.traps, samples: self.samples, lost: self.lost, time },
        }
    }
}

/// A size of rings of which there is room for two for each thread, where there was room for so many of a size. At once, since closing what
/// is open takes the kernel some hundredths of a second for each.
fn smaller(ring_bytes: usize, had_room_for: usize, threads: usize) -> usize {
    let room = ring_bytes.saturating_mul(had_room_for);
    let each = (room / threads.max(1) / 2).clamp(LEAST_RING_BYTES, (ring_bytes / 2).max(LEAST_RING_BYTES));
    1 << each.ilog2()
}

/// How long a thread that is woken waits for a CPU, on the average: what it waited in all, but for the times when another one had taken its
/// CPU.
fn late(queued: Option<Nanos>, preempted: Nanos, woken: u64) -> Nanos {
    let after_waking = queued.unwrap_or(0).saturating_sub(preempted).max(0);
    after_waking / i64::try_from(woken).unwrap_or(i64::MAX).max(1)
}

fn unwound(unwinder: &mut Unwinder, sample: &Sample<'_>) -> Stack {
    match &sample.registers {
        Some(registers) => unwinder.unwind(registers, sample.stack),
        None => Stack { frames: Vec::new(), end: StackEnd::Lost },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_there_is_no_room_for_rings_all_get_smaller_ones() {
        const MB: usize = 1 << 20;
        // Room for 8 MB, and 13 threads with two rings each.
        assert_eq!(smaller(2 * MB, 4, 13), MB / 4);
        assert_eq!(smaller(2 * MB, 0, 13), LEAST_RING_BYTES);
        assert_eq!(smaller(2 * MB, 12, 13), MB / 2);
        assert_eq!(smaller(2 * MB, 4, 1), MB);
        assert_eq!(smaller(LEAST_RING_BYTES, 4, 1), LEAST_RING_BYTES);
    }

    #[test]
    fn the_wait_for_a_cpu_after_waking_is_what_preemption_leaves() {
        assert_eq!(late(Some(1_000), 400, 3), 200);
        assert_eq!(late(Some(1_000), 4_000, 3), 0);
        assert_eq!((late(None, 0, 3), late(Some(1_000), 0, 0)), (0, 1_000));
    }
}
