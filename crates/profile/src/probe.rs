//! Uprobes on the functions that sleep, and the cost of watching.
//!
//! A thread calls `ethr_event_wait` or `ethr_event_swait` if it did not get a lock while spinning, or if it has no work. Uprobes there had
//! no measurable effect on a loop with a contended lock. **Functions that take a lock are never probed**: a uprobe on `ethr_rwmutex_rlock`
//! slowed a loop over an uncontended ETS table from 10–13 million operations per second to 2 million.
//!
//! The kernel inserts a breakpoint into the watched process only, and only while the events are open. Other processes with the same file
//! are not affected. If beamtune is killed, the kernel removes the breakpoint.
//!
//! On a virtual machine with two cores, a trap took 10 µs. Removing one uprobe from one thread took 90 ms, and removals are sequential: the
//! kernel waits until no CPU can still be executing the uprobe (Linux 6.18). So only a few threads are probed, and only as long as they hit
//! uprobes rarely.

use std::ffi::CString;

use beamtune_host::tree::{FileTree, LocalTree};
use beamtune_model::Nanos;

use crate::error::ProfileError;
use crate::image::Image;
use crate::stream::{Count, Event, Options, ProbePoint, Refusal, Stream};

/// The probed functions.
pub const FUNCTIONS: &[&str] = &["ethr_event_wait", "ethr_event_swait"];

/// The file that contains the type number of uprobe events.
const SOURCE: &str = "/sys/bus/event_source/devices/uprobe/type";
/// Number of calls that measure the cost of a trap; 2,000 take some milliseconds.
const CALLS: u32 = 2_000;

/// CPU time between two samples while their cost is measured. The kernel takes at most one sample per 10 µs.
const SAMPLE_PERIOD_NS: u64 = 100_000;
/// Iterations of the loop that measures the cost of a sample; they take about 2 ms.
const ROUNDS: u64 = 2_000_000;
/// Minimum repetitions with and without samples, alternating. The shortest time is used, since other processes disturb the caches.
const MIN_REPETITIONS: usize = 5;
/// Repetitions after which the measurement is abandoned if samples still seem to cost nothing.
const MAX_REPETITIONS: usize = 4 * MIN_REPETITIONS;

/// Returns the points to probe in a process.
pub fn points(tree: &impl FileTree, image: &Image) -> Result<Vec<ProbePoint>, ProfileError> {
    let offsets = image.offsets_of(FUNCTIONS)?;
    let source = source(tree)?;
    // This path leads to the running program in any root, even if another file has replaced it.
    let path = CString::new(format!("/proc/{}/exe", image.pid())).unwrap_or_default();
    Ok(offsets.into_iter().map(|offset| ProbePoint { source, path: path.clone(), offset }).collect())
}

fn source(tree: &impl FileTree) -> Result<u32, ProfileError> {
    let none = || ProfileError::NoUprobes { path: SOURCE.to_owned() };
    let content = tree.read(SOURCE, 64).map_err(|_| none())?;
    std::str::from_utf8(&content).ok().and_then(|text| text.trim().parse().ok()).ok_or_else(none)
}

/// Returns the sampling period that yields at most `max_per_second` samples. It is odd: if a thread alternates between two kinds of wait
/// (for a lock, then for work), an even period would always sample the same kind.
pub fn period(per_second: f64, max_per_second: u32) -> u64 {
    (per_second / f64::from(max_per_second.max(1))).ceil().max(1.0) as u64 | 1
}

/// Measures the CPU time that a uprobe hit costs a thread, on a function of this program. Takes about 100 ms.
pub fn trap_cost() -> Result<Nanos, ProfileError> {
    let tree = LocalTree::default();
    let own = Image::read(&tree, std::process::id())?;
    let address = probed as *const () as usize as u64;
    let module = own.modules().iter().find(|module| module.range.contains(&address));
    let offset = module.and_then(|module| module.elf.offset_at(address.wrapping_sub(module.bias)));
    let offset = offset.ok_or(ProfileError::NoProgram { pid: own.pid() })?;
    let path = CString::new("/proc/self/exe").unwrap_or_default();
    let point = ProbePoint { source: source(&tree)?, path, offset };
    let refused = |refusal: Refusal| refusal.into_error(own.pid(), "uprobes", None);
    let mut clock = Count::open(Event::Clock, 0).map_err(refused)?;
    let plain = time_of_calls(&mut clock);
    let count = Count::open(Event::Entry(&point), 0).map_err(refused)?;
    let trapped = time_of_calls(&mut clock);
    drop(count);
    Ok(trapped.saturating_sub(plain).max(0) / i64::from(CALLS))
}

/// Measures the CPU time that a sample costs a thread: an interrupt, and the copy of the stack. `None` if it is not measurable.
pub fn sample_cost() -> Option<Nanos> {
    let options = Options { period: SAMPLE_PERIOD_NS, ..Options::default() };
    let mut clock = Count::open(Event::Clock, 0).ok()?;
    let mut work = || time_of(&mut clock, rounds);
    let (mut plain, mut sampled) = (Nanos::MAX, Nanos::MAX);
    for repetition in 1..=MAX_REPETITIONS {
        plain = plain.min(work());
        let mut stream = Stream::open(Event::Clock, 0, &options).ok()?;
        stream.start();
        sampled = sampled.min(work());
        drop(stream);
        // On a busy host it takes more repetitions until both have run undisturbed.
        if repetition >= MIN_REPETITIONS && sampled > plain {
            let samples = (sampled / i64::try_from(SAMPLE_PERIOD_NS).ok()?).max(1);
            return Some(sampled.saturating_sub(plain) / samples);
        }
    }
    None
}

/// The work that is measured with and without samples. Never inlined: two copies may differ by more than the cost of samples.
#[inline(never)]
fn rounds() {
    std::hint::black_box((0..ROUNDS).fold(0, |sum, n| std::hint::black_box(sum ^ n)));
}

fn time_of_calls(clock: &mut Count) -> Nanos {
    time_of(clock, || {
        std::hint::black_box((0..CALLS).fold(0, |sum, _| probed(sum)));
    })
}

/// Measures the CPU time that this thread spends on `work`.
fn time_of(clock: &mut Count, work: impl FnOnce()) -> Nanos {
    let before = clock.read();
    work();
    Nanos::try_from(clock.read().saturating_sub(before)).unwrap_or(Nanos::MAX)
}

/// The function that is probed to measure the cost.
#[inline(never)]
extern "C" fn probed(before: u64) -> u64 {
    std::hint::black_box(before).wrapping_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sampling_period_limits_the_rate_and_is_odd() {
        let check = |entries, max, expect| assert_eq!(period(entries, max), expect, "{entries} for {max}");
        check(0.0, 500, 1);
        check(500.0, 500, 1);
        check(501.0, 500, 3);
        check(200_000.0, 500, 401);
        check(10.0, 0, 11);
        check(f64::INFINITY, 500, u64::MAX);
        check(f64::NAN, 500, 1);
    }

    #[test]
    fn a_kernel_without_uprobes_is_reported() {
        let root = tempfile::tempdir().unwrap();
        let error = source(&LocalTree::at(root.path())).unwrap_err().to_string();
        assert!(error.contains("this kernel has no uprobes"), "{error}");
    }

    #[test]
    fn costs_of_traps_and_samples_are_plausible() {
        match trap_cost() {
            // On a busy host, too, any plausible number will do.
            Ok(cost) => assert!((1..10_000_000).contains(&cost), "{cost}"),
            Err(error @ (ProfileError::Denied { .. } | ProfileError::NoUprobes { .. })) => {
                eprintln!("skipped, because {error}");
            }
            Err(error) => panic!("{error}"),
        }
        match sample_cost() {
            Some(cost) => assert!((0..10_000_000).contains(&cost), "{cost}"),
            None => eprintln!("skipped, because the kernel does not allow perf events of our own process"),
        }
    }
}
