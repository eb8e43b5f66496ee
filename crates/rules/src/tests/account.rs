//! The account of CPU time.

use beamtune_model::{CpuAccount, CpuUse};
use proptest::prelude::*;

use super::node::{SyntheticNode, node};
use super::{diagnose, finding, serial, value};

fn account(node: &SyntheticNode) -> CpuAccount {
    diagnose(&node.period()).cpu.expect("an account")
}

fn cores(node: &SyntheticNode, what: CpuUse) -> f64 {
    account(node).shares.iter().find(|share| share.what == what).map_or(0.0, |share| share.cores)
}

/// Compares with a tolerance of a thousandth of a core, because of rounding.
fn assert_cores(node: &SyntheticNode, what: CpuUse, expect: f64) {
    let found = cores(node, what);
    assert!((found - expect).abs() < 1e-3, "{what}: {found} for {expect} in {:#?}", account(node));
}

#[test]
fn each_reason_has_its_share() {
    // Two schedulers, each on a CPU for 31 % of the time and active for 30 %.
    let healthy = node();
    assert_eq!(account(&healthy).cores, 2.0);
    let code_and_gc = cores(&healthy, CpuUse::Code) + cores(&healthy, CpuUse::GarbageCollection);
    assert!((code_and_gc - 0.6).abs() < 1e-3, "{:#?}", account(&healthy));
    // Each scheduler does a hundred switches per second, of 25 µs.
    assert_cores(&healthy, CpuUse::Switching, 0.005);
    assert_cores(&healthy, CpuUse::BusyWaiting, 0.015);
    // Each share names its parts.
    let how =
        |what| account(&healthy).shares.into_iter().find(|share| share.what == what).map(|share| share.how);
    assert_eq!(how(CpuUse::BusyWaiting).as_deref(), Some("schedulers"));
    assert!(account(&healthy).shares.iter().all(|share| !share.how.is_empty()), "{:#?}", account(&healthy));

    let spinning = node().with(|n| (n.utilization, n.cpu, n.voluntary_switches) = (0.1, 0.6, 0));
    assert_cores(&spinning, CpuUse::BusyWaiting, 1.0);
    let starved =
        node().with(|n| (n.utilization, n.cpu, n.run_queue_delay, n.other_cpu) = (0.8, 0.3, 0.5, 1.2));
    // Other processes used 1.0 cores while the threads of the VM were runnable, and 0.2 while it was idle.
    assert_cores(&starved, CpuUse::Neighbours, 1.2);
    assert_cores(&starved, CpuUse::Steal, 0.0);
    // Other processes took no more CPU than they used. The rest of the time, the threads waited for each other, or for the hypervisor.
    let alone = starved.with(|n| n.other_cpu = 0.2);
    assert_cores(&alone, CpuUse::Neighbours, 0.2);
    assert_cores(&alone.with(|n| n.steal = 0.7), CpuUse::Steal, 0.7);
    // The threads were blocked: neither a quota nor other processes had the CPUs.
    let locked = node().with(|n| (n.utilization, n.cpu) = (0.9, 0.3));
    assert_cores(&locked, CpuUse::Locks, 1.2 - 2.0 * node().run_queue_delay);
    let stolen = locked.with(|n| n.steal = 0.7);
    assert_cores(&stolen, CpuUse::Steal, 0.7);
    let quiet = serial().with(|n| n.other_cpu = 0.0);
    assert!(cores(&quiet, CpuUse::SerialProcess) > 0.9);
    assert_cores(&quiet, CpuUse::NoRunnable, 0.0);
}

/// With more threads than CPUs, GC takes wall time even while a runnable thread has no CPU.
#[test]
fn gc_is_cpu_time_and_equal_in_all_findings() {
    let crowded = node().with(|n| {
        (n.schedulers, n.cpus, n.utilization, n.cpu) = (8, 2, 0.1, 0.01);
        (n.dirty_cpu_active, n.dirty_gc) = (0.24, 0.96);
    });
    let found = finding(&crowded, "BT011");
    let gc = value(&found, "GC time").expect("a number");
    assert!(gc < 2.0, "{gc}");
    assert_cores(&crowded, CpuUse::GarbageCollection, gc);
    assert!(
        found.title.starts_with("GC takes ") && found.title.contains(" % of busy time (1.9 cores)"),
        "{}",
        found.title
    );
    // If the threads have CPUs, the time in a state equals its CPU time.
    let free = node().with(|n| (n.utilization, n.cpu, n.gc) = (0.8, 0.8, 0.5));
    let gc = value(&finding(&free, "BT011"), "GC time").expect("a number");
    assert!((gc - 1.0).abs() < 0.01, "{gc}");
    assert_cores(&free, CpuUse::GarbageCollection, gc);
}

#[test]
fn a_quota_limits_the_capacity() {
    let stopped = node().with(|n| {
        (n.quota, n.throttled_periods_of_10, n.throttled) = (Some(1_500), 5, 0.5);
        (n.utilization, n.cpu, n.run_queue_delay) = (0.9, 0.5, 0.4);
    });
    let account = account(&stopped);
    assert!((account.cores - 1.5).abs() < 1e-9, "{account:#?}");
    assert!(cores(&stopped, CpuUse::Quota) > 0.3);
}

#[test]
fn cpus_without_a_scheduler_are_reported() {
    let one = node().with(|n| (n.schedulers, n.cpus, n.utilization, n.cpu) = (1, 4, 1.0, 1.0));
    let one = one.with(|n| n.other_cpu = 0.0);
    assert!((cores(&one, CpuUse::NoScheduler) - 3.0).abs() < 0.1, "{:#?}", account(&one));
}

proptest! {
    #[test]
    fn the_shares_add_up_to_the_cpus(
        schedulers in 1_usize..9, cpus in 1_i64..9, active in 0.0..1.0, cpu in 0.0..1.0, wait in 0.0..1.0, gc in 0.0..1.0,
        steal in 0.0..2.0, quota in prop::option::of(100_i64..4_000), throttled in 0_i64..10, switches in 0_i64..50_000,
        dirty in 0.0..1.0,
    ) {
        let node = node().with(|n| {
            (n.schedulers, n.cpus, n.utilization, n.cpu, n.run_queue_delay, n.gc) = (schedulers, cpus, active, cpu, wait, gc);
            (n.steal, n.quota, n.throttled_periods_of_10, n.voluntary_switches) = (steal, quota, throttled, switches);
            n.dirty_cpu_active = dirty;
        });
        let account = account(&node);
        let sum: f64 = account.shares.iter().map(|share| share.cores).sum();
        prop_assert!((sum - account.cores).abs() < 1e-6, "{sum}: {account:#?}");
        prop_assert!(account.shares.iter().all(|share| share.cores > 0.0));
        let uses: Vec<CpuUse> = account.shares.iter().map(|share| share.what).collect();
        prop_assert!(uses.is_sorted() && uses.windows(2).all(|pair| pair[0] != pair[1]), "{uses:?}");
    }
}
