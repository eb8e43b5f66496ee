//! Uprobes on the way into sleep, and what watching costs.
//!
//! `ethr_event_wait` and `ethr_event_swait` are called by a thread that did not get a lock while it was spinning, and by threads without
//! work. Nothing was measured of uprobes there in a loop that fights for a lock. **The entries of locks themselves are never probed**: a
//! uprobe on `ethr_rwmutex_rlock` cut a loop over an ETS table that nobody else used from 10–13 million operations a second to 2 million.
//!
//! The kernel puts a breakpoint into the one process that is watched, for as long as the events are open; other processes that run the
//! same file are not touched, and if beamtune is killed, the kernel takes it out.
//!
//! On a virtual machine of two cores a trap took 10 µs, and taking one uprobe of one thread out again 90 ms, one after the other (the kernel
//! waits until no CPU can be in it any more; Linux 6.18). So only a few threads are probed, and only while they come by rarely.

use std::ffi::CString;

use beamtune_host::tree::{FileTree, LocalTree};
use beamtune_model::Nanos;

use crate::error::ProfileError;
use crate::image::Image;
use crate::stream::{Count, Event, LEAST_RING_BYTES, Options, Place, Refusal, Stream};

/// The functions that are probed.
pub const FUNCTIONS: &[&str] = &["ethr_event_wait", "ethr_event_swait"];

/// The kernel's number of the source of uprobes.
const SOURCE: &str = "/sys/bus/event_source/devices/uprobe/type";
/// Calls from which the cost of a trap is taken; 2,000 take some milliseconds.
const CALLS: u32 = 2_000;

/// CPU time between two samples while the cost of one is measured: the kernel draws none more often than each 10 µs.
const SAMPLED_EVERY: u64 = 100_000;
/// Rounds of work in which that is measured; some 2 ms.
const ROUNDS: u64 = 2_000_000;
/// Measured so many times with samples and without, in turn; the least counts, since others warm and cool the caches, too.
const REPEATED: usize = 5;
/// The same, where the difference does not show yet.
const MOST_REPEATED: usize = 4 * REPEATED;

/// The places to be probed in a process.
pub fn places(tree: &impl FileTree, image: &Image) -> Result<Vec<Place>, ProfileError> {
    let offsets = image.offsets_of(FUNCTIONS)?;
    let source = source(tree)?;
    // The program that runs, whatever stands at its path now, and whatever root it has.
    let path = CString::new(format!("/proc/{}/exe", image.pid())).unwrap_or_default();
    Ok(offsets.into_iter().map(|offset| Place { source, path: path.clone(), offset }).collect())
}

fn source(tree: &impl FileTree) -> Result<u32, ProfileError> {
    let none = || ProfileError::NoUprobes { path: SOURCE.to_owned() };
    let content = tree.read(SOURCE, 64).map_err(|_| none())?;
    std::str::from_utf8(&content).ok().and_then(|text| text.trim().parse().ok()).ok_or_else(none)
}

/// Every how many-th is sampled, so that there are at most so many samples in a second. An odd number: of a thread that does two things
/// in turn (it waits for a lock, then for work) an even one would show always the same.
pub fn period(per_second: f64, most_per_second: u32) -> u64 {
    (per_second / f64::from(most_per_second.max(1))).ceil().max(1.0) as u64 | 1
}

/// What an entry costs the thread that comes by; measured on a function of beamtune's own, which takes some 100 ms.
pub fn trap_price() -> Result<Nanos, ProfileError> {
    let tree = LocalTree::default();
    let own = Image::read(&tree, std::process::id())?;
    let address = probed as *const () as usize as u64;
    let module = own.modules().iter().find(|module| module.range.contains(&address));
    let offset = module.and_then(|module| module.elf.offset_at(address.wrapping_sub(module.bias)));
    let offset = offset.ok_or(ProfileError::NoProgram { pid: own.pid() })?;
    let path = CString::new("/proc/self/exe").unwrap_or_default();
    let place = Place { source: source(&tree)?, path, offset };
    let refused = |refusal: Refusal| refusal.into_error(own.pid(), "uprobes", None);
    let mut clock = Count::open(Event::Clock, 0).map_err(refused)?;
    let plain = time_of_calls(&mut clock);
    let count = Count::open(Event::Entry(&place), 0).map_err(refused)?;
    let trapped = time_of_calls(&mut clock);
    drop(count);
    Ok(trapped.saturating_sub(plain).max(0) / i64::from(CALLS))
}

/// What a sample costs the thread of which it is drawn: an interrupt, and the copy of its stack. `None` where that cannot be measured.
pub fn sample_price() -> Option<Nanos> {
    let options = Options {
        period: SAMPLED_EVERY,
        is_kernel_seen: false,
        are_switches_told: false,
        ring_bytes: LEAST_RING_BYTES,
    };
    let mut clock = Count::open(Event::Clock, 0).ok()?;
    let mut work = || time_of(&mut clock, rounds);
    let (mut plain, mut sampled) = (Nanos::MAX, Nanos::MAX);
    for repeated in 1..=MOST_REPEATED {
        plain = plain.min(work());
        let mut stream = Stream::open(Event::Clock, 0, &options).ok()?;
        stream.start();
        sampled = sampled.min(work());
        drop(stream);
        // Where others use the machine it takes longer until both have had it to themselves for once.
        if repeated >= REPEATED && sampled > plain {
            let samples = (sampled / i64::try_from(SAMPLED_EVERY).ok()?).max(1);
            return Some(sampled.saturating_sub(plain) / samples);
        }
    }
    None
}

/// Some work. Never inlined: two copies of it may differ by more than samples cost.
#[inline(never)]
fn rounds() {
    std::hint::black_box((0..ROUNDS).fold(0, |sum, n| std::hint::black_box(sum ^ n)));
}

fn time_of_calls(clock: &mut Count) -> Nanos {
    time_of(clock, || {
        std::hint::black_box((0..CALLS).fold(0, |sum, _| probed(sum)));
    })
}

/// How much CPU time this thread needs for something, by a clock that counts only while it has a CPU.
fn time_of(clock: &mut Count, work: impl FnOnce()) -> Nanos {
    let before = clock.read();
    work();
    Nanos::try_from(clock.read().saturating_sub(before)).unwrap_or(Nanos::MAX)
}

/// What is probed to know the price.
#[inline(never)]
extern "C" fn probed(before: u64) -> u64 {
    std::hint::black_box(before).wrapping_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_thinned_to_what_was_asked_for() {
        let check = |entries, most, expect| assert_eq!(period(entries, most), expect, "{entries} for {most}");
        check(0.0, 500, 1);
        check(500.0, 500, 1);
        check(501.0, 500, 3);
        check(200_000.0, 500, 401);
        check(10.0, 0, 11);
        check(f64::INFINITY, 500, u64::MAX);
        check(f64::NAN, 500, 1);
    }

    #[test]
    fn a_kernel_without_uprobes_is_told() {
        let root = tempfile::tempdir().unwrap();
        let error = source(&LocalTree::at(root.path())).unwrap_err().to_string();
        assert!(error.contains("this kernel has no uprobes"), "{error}");
    }

    #[test]
    fn traps_and_samples_have_a_price() {
        match trap_price() {
            // A busy machine is no reason to fail: that it is a sensible number is enough.
            Ok(price) => assert!((1..10_000_000).contains(&price), "{price}"),
            Err(error @ (ProfileError::Denied { .. } | ProfileError::NoUprobes { .. })) => {
                eprintln!("skipped, because {error}");
            }
            Err(error) => panic!("{error}"),
        }
        match sample_price() {
            Some(price) => assert!((0..10_000_000).contains(&price), "{price}"),
            None => eprintln!("skipped, because the kernel does not allow to watch oneself"),
        }
    }
}
