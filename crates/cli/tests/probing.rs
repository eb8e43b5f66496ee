//! Samples the threads of real VMs: lock waits are found with their operation, and other waits are not mistaken for lock waits.
#![allow(clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "these are tests")]

mod common;

use std::time::Duration;

use beamtune_host::LocalTree;
use beamtune_model::{Clock, LockWaitRow};
use beamtune_profile::watch::{SleepDetection, Watch, WatchResult};
use beamtune_profile::{ProfileError, threads};
use beamtune_recording::{Stop, SystemClock};
use common::{Otp, all_otps, loops, wait_up_to};

/// Samples per second.
const RATE: u32 = 1_000;
/// Flags for two schedulers.
const TWO: &[&str] = &["+S", "2:2"];

/// Samples a VM's threads. If that is not possible, returns `None` and prints why.
fn sample(otp: &Otp, pid: u32, length: Duration) -> Option<WatchResult> {
    let (tree, clock) = (LocalTree::default(), SystemClock::new(Stop::default()));
    let read_threads = || threads::snapshot(&tree, pid, &clock).expect("the threads of a VM of ours");
    let before = read_threads();
    std::thread::sleep(Duration::from_millis(300));
    let change = threads::changes(&before, &read_threads());
    let mut watch = match Watch::open(&tree, pid, &change, RATE) {
        Ok(watch) => watch,
        Err(error @ (ProfileError::Denied { .. } | ProfileError::NoSymbols { .. })) => {
            eprintln!("skipped for OTP {}, because {error}", otp.release);
            return None;
        }
        Err(error) => panic!("OTP {}: {error}", otp.release),
    };
    let begin = clock.now();
    while Duration::from_nanos((clock.now() - begin).unsigned_abs()) < length {
        std::thread::sleep(Duration::from_millis(10));
        watch.drain();
    }
    eprintln!("OTP {}: {:?}", otp.release, watch.remarks);
    Some(watch.finish(clock.now() - begin, None))
}

/// Returns the waits of schedulers in an operation.
fn waits_in<'a>(seen: &'a WatchResult, operation: &str) -> Vec<&'a LockWaitRow> {
    let matches = |row: &&LockWaitRow| {
        row.thread == "scheduler" && row.stack.first().is_some_and(|name| name == operation)
    };
    seen.summary.rows.iter().filter(matches).collect()
}

#[test]
fn operation_that_waits_for_the_lock_of_a_table_is_named() {
    for otp in all_otps() {
        let node = loops::node(&otp, "erl", TWO, &loops::contended("hot"));
        let mut last = None;
        // On a busy host, the VM may hardly run for a while.
        wait_up_to(3 * common::TIMEOUT, "a wait for the table's lock", || {
            let Some(seen) = sample(&otp, node.pid(), Duration::from_secs(2)) else { return true };
            let is_found =
                waits_in(&seen, "ets_update_counter_3").iter().any(|row| row.samples > 0 && row.waited > 0);
            eprintln!("OTP {}: {seen:#?}", otp.release);
            last = Some(seen);
            is_found
        });
        let Some(seen) = last else { continue };
        let first = seen.summary.rows.first().expect("a row");
        assert_eq!(first.stack.first().map(String::as_str), Some("ets_update_counter_3"), "{seen:#?}");
        if common::is_root() && seen.sleeps == SleepDetection::Uprobes {
            assert!(seen.cost.traps > 0, "{:?}", seen.cost);
        }
    }
}

#[test]
fn schedulers_without_contention_wait_for_no_lock() {
    for otp in all_otps() {
        for eval in [loops::COMPUTE, loops::ASK] {
            let node = loops::node(&otp, "erl", TWO, eval);
            let length = Duration::from_secs(2);
            let Some(seen) = sample(&otp, node.pid(), length) else { continue };
            let waited: i64 = seen.summary.rows.iter().map(|row| row.waited).sum();
            // Locks are acquired all the time, and may occasionally be held: for up to 1 % of the time of two schedulers.
            let bound = i64::try_from(2 * length.as_nanos() / 100).expect("some seconds");
            assert!(waited <= bound, "OTP {}, {eval}: {seen:#?}", otp.release);
        }
    }
}
