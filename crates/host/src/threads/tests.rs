use beamtune_model::series::{Group, SeriesTable};
use beamtune_model::{Metric, Tick};
use proptest::prelude::*;

use super::*;
use crate::fake::FakeHost;

#[test]
fn names_of_every_release_are_recognized() {
    let check =
        |name: &str, expect: &str| assert_eq!(vm_thread(name.as_bytes()).as_deref(), Some(expect), "{name}");
    // OTP 23 and 25.
    check("1_scheduler", "scheduler/1");
    check("1024_scheduler", "scheduler/1024");
    check("1_dirty_cpu_sch", "dirty_cpu_scheduler/1");
    check("1024_dirty_cpu_", "dirty_cpu_scheduler/1024");
    check("1_dirty_io_sche", "dirty_io_scheduler/1");
    check("10_dirty_io_sch", "dirty_io_scheduler/10");
    check("1024_dirty_io_s", "dirty_io_scheduler/1024");
    check("aux", "aux/1");
    check("1_aux", "aux/1");
    check("17_aux", "aux/17");
    check("0_poller", "poll/0");
    check("async_1", "async/0");
    check("async_1024", "async/1023");
    // OTP 27 and 29.
    check("erts_sched_64", "scheduler/64");
    check("erts_dcpus_1", "dirty_cpu_scheduler/1");
    check("erts_dios_10", "dirty_io_scheduler/10");
    check("erts_aux_1", "aux/1");
    check("erts_poll_0", "poll/0");
    check("erts_async_1", "async/0");
}

#[test]
fn similar_names_are_not_recognized() {
    let check = |name: &str| assert_eq!(vm_thread(name.as_bytes()), None, "{name}");
    for name in ["beam.smp", "sys_sig_dispatc", "sys_msg_dispatc", "erts_ssig_disp", "erts_smsg_disp"] {
        check(name);
    }
    for name in ["runq_supervisor", "erts_runq_sup", "erts_sched_", "erts_sched_x", "erts_sched_1x", "erts_"]
    {
        check(name);
    }
    for name in
        ["0_scheduler", "erts_sched_0", "01_scheduler", "_scheduler", "1_sched", "x_scheduler", "+1_aux"]
    {
        check(name);
    }
    // These names are shorter than the kernel's limit, so they are not truncated.
    for name in ["1_dirty_cpu", "1_dirty_cpu_sc", "1_dirty_xx_sche", "async_0", "async_", "aux1", ""] {
        check(name);
    }
    assert_eq!(vm_thread(b"1_schedul\xff"), None);
}

#[test]
fn schedstat_has_three_numbers() {
    let check = |content: &str, expect| assert_eq!(schedstat(content.as_bytes()), expect, "{content:?}");
    check("126029 3252 2\n", Some((126_029, 3_252, 2)));
    check("0 0 0\n", Some((0, 0, 0)));
    check("126029 3252\n", None);
    check("126029 3252 2 9\n", None);
    check("126029 -1 2\n", None);
    check("", None);
}

/// Reads the threads of a fake process once. Returns (entity, name, value) of each reading.
fn pass(reader: &mut ThreadReader, host: &FakeHost) -> (Vec<(String, String, i64)>, ThreadTrouble) {
    let mut table = SeriesTable::default();
    let tick = Tick { t: 0, incarnation: 0, vm: None, host: None, late: 0 };
    let mut out = SampleBuilder::new(&mut table, tick);
    let trouble = reader.read(&host.tree(), 7, 10_000_000, &mut out).unwrap();
    let readings = out.sample.readings;
    let named = readings.into_iter().map(|(id, value)| {
        let series = table.get(id).unwrap();
        assert_eq!(series.group, Group::HostThread);
        (series.entity.to_string(), series.name.to_string(), value)
    });
    (named.collect(), trouble)
}

fn value(readings: &[(String, String, i64)], entity: &str, metric: &Metric) -> Option<i64> {
    let mut found =
        readings.iter().filter(|(e, n, _)| e == entity && n == metric.name).map(|(.., value)| *value);
    let first = found.next();
    assert_eq!(found.next(), None, "{entity} has {} twice", metric.name);
    first
}

#[test]
fn each_thread_has_six_values() {
    let host = FakeHost::new();
    host.thread(7, 7, "beam.smp", 1, 2, "5000 600 7");
    host.thread(7, 8, "erts_sched_1", 150, 50, "2000000000 30000000 700");
    let (readings, trouble) = pass(&mut ThreadReader::default(), &host);
    assert!(trouble.schedstat.is_none() && trouble.other.is_none());
    assert_eq!(readings.len(), 12);
    let scheduler = |metric| value(&readings, "scheduler/1", metric);
    assert_eq!(scheduler(&metrics::THREAD_CPU), Some(2_000_000_000));
    assert_eq!(scheduler(&metrics::THREAD_WAIT), Some(30_000_000));
    assert_eq!(scheduler(&metrics::THREAD_USER), Some(1_500_000_000));
    assert_eq!(scheduler(&metrics::THREAD_SYSTEM), Some(500_000_000));
    assert_eq!(scheduler(&metrics::VOLUNTARY_SWITCHES), Some(1_274));
    assert_eq!(scheduler(&metrics::INVOLUNTARY_SWITCHES), Some(18));
    assert_eq!(value(&readings, "other/beam.smp/7", &metrics::THREAD_CPU), Some(5_000));
}

#[test]
fn a_kernel_without_scheduler_statistics_is_reported_and_not_recorded_as_zeros() {
    let host = FakeHost::new();
    host.thread(7, 7, "beam.smp", 1, 2, "0 0 0");
    host.thread(7, 8, "1_scheduler", 150, 50, "0 0 0");
    let (readings, trouble) = pass(&mut ThreadReader::default(), &host);
    assert_eq!(value(&readings, "scheduler/1", &metrics::THREAD_CPU), None);
    assert_eq!(value(&readings, "scheduler/1", &metrics::THREAD_WAIT), None);
    assert_eq!(value(&readings, "scheduler/1", &metrics::THREAD_USER), Some(1_500_000_000));
    let reason = trouble.schedstat.unwrap().to_string();
    assert_eq!(reason, "this kernel does not provide /proc/7/task/TID/schedstat");

    host.remove("/proc/7/task/7/schedstat");
    host.remove("/proc/7/task/8/schedstat");
    let (readings, trouble) = pass(&mut ThreadReader::default(), &host);
    assert!(trouble.schedstat.is_some());
    assert_eq!(value(&readings, "scheduler/1", &metrics::THREAD_USER), Some(1_500_000_000));
}

#[test]
fn a_thread_that_has_not_run_yet_does_not_imply_missing_statistics() {
    let host = FakeHost::new();
    host.thread(7, 7, "beam.smp", 1, 2, "5000 600 7");
    host.thread(7, 8, "1_scheduler", 0, 0, "0 0 0");
    let (readings, trouble) = pass(&mut ThreadReader::default(), &host);
    assert!(trouble.schedstat.is_none());
    assert_eq!(value(&readings, "scheduler/1", &metrics::THREAD_CPU), Some(0));
}

#[test]
fn a_thread_that_ends_between_two_reads_is_omitted() {
    let host = FakeHost::new();
    host.thread(7, 7, "beam.smp", 1, 2, "5000 600 7");
    host.thread(7, 8, "1_scheduler", 1, 2, "5000 600 7");
    host.remove("/proc/7/task/8/status");
    let (readings, trouble) = pass(&mut ThreadReader::default(), &host);
    assert!(trouble.other.is_none());
    assert!(readings.iter().all(|(entity, ..)| entity == "other/beam.smp/7"), "{readings:?}");
}

#[test]
fn an_unparsable_thread_is_reported_and_others_are_recorded() {
    let host = FakeHost::new();
    host.thread(7, 8, "1_scheduler", 1, 2, "5000 600 7");
    host.file("/proc/7/task/9/stat", "9 (x");
    let (readings, trouble) = pass(&mut ThreadReader::default(), &host);
    assert_eq!(readings.len(), 6);
    assert!(trouble.other.unwrap().to_string().contains("cannot parse /proc/7/task/9/stat"));
}

#[test]
fn two_threads_never_share_an_entity() {
    let host = FakeHost::new();
    host.thread(7, 8, "1_scheduler", 1, 2, "5000 600 7");
    // A thread of a NIF with a scheduler's name.
    host.thread(7, 9, "1_scheduler", 1, 2, "5000 600 7");
    let mut reader = ThreadReader::default();
    let (readings, _) = pass(&mut reader, &host);
    assert!(value(&readings, "scheduler/1", &metrics::THREAD_CPU).is_some());
    assert!(value(&readings, "other/1_scheduler/9", &metrics::THREAD_CPU).is_some());

    // After a thread has ended, another one can have its entity.
    host.remove("/proc/7/task/8");
    pass(&mut reader, &host);
    host.remove("/proc/7/task/9");
    host.thread(7, 10, "1_scheduler", 1, 2, "5000 600 7");
    let (readings, _) = pass(&mut reader, &host);
    assert!(value(&readings, "scheduler/1", &metrics::THREAD_CPU).is_some());
}

#[test]
fn a_renamed_thread_gets_a_new_entity() {
    let host = FakeHost::new();
    // A new thread has the name of the thread that created it until it sets its own.
    host.thread(7, 8, "beam.smp", 1, 2, "5000 600 7");
    let mut reader = ThreadReader::default();
    pass(&mut reader, &host);
    host.thread(7, 8, "erts_dios_3", 1, 2, "5000 600 7");
    let (readings, _) = pass(&mut reader, &host);
    assert!(readings.iter().all(|(entity, ..)| entity == "dirty_io_scheduler/3"), "{readings:?}");
}

#[test]
fn names_of_other_threads_are_sanitized() {
    let check = |comm: &[u8], expect: &str| assert_eq!(other_thread(comm, 9), expect);
    check(b"rocksdb:low0", "other/rocksdb:low0/9");
    check(b"a b/c\x1b[2J\xff", "other/a_b_c__2J_/9");
    check(b"", "other//9");
}

proptest! {
    #[test]
    fn arbitrary_bytes_do_not_panic(content in proptest::collection::vec(any::<u8>(), 0..100)) {
        let _ = vm_thread(&content);
        let _ = schedstat(&content);
        prop_assert!(other_thread(&content, 1).is_ascii());
    }

    #[test]
    fn numbers_in_truncated_names_are_parsed(id in 1_u32..=1024) {
        let cut = |name: String| vm_thread(&name.as_bytes()[..name.len().min(15)]);
        prop_assert_eq!(cut(format!("{id}_dirty_cpu_scheduler")), Some(format!("dirty_cpu_scheduler/{id}")));
        prop_assert_eq!(cut(format!("{id}_dirty_io_scheduler")), Some(format!("dirty_io_scheduler/{id}")));
        prop_assert_eq!(cut(format!("erts_dcpus_{id}")), Some(format!("dirty_cpu_scheduler/{id}")));
    }
}
