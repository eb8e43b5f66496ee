use super::super::tests::{Fixture, host, reasons};
use super::*;
use crate::fake::FakeHost;
use crate::source::AnnouncedBy;

/// A clock tick: 10 ms in tests.
const TICK_NS: i64 = 10_000_000;

/// Returns the totals of a sample: children, alive, orphans, zombies.
fn counts(fixture: &mut Fixture, detail: bool) -> [Option<i64>; 4] {
    let (sample, _) = fixture.sample(detail).unwrap();
    assert_eq!(reasons(&sample), Vec::<String>::new());
    [
        &metrics::PROGRAMS_CHILDREN,
        &metrics::PROGRAMS_ALIVE,
        &metrics::PROGRAMS_ORPHANS,
        &metrics::PROGRAMS_ZOMBIES,
    ]
    .map(|metric| fixture.value(&sample, metric, ""))
}

fn some(values: [i64; 4]) -> [Option<i64>; 4] {
    values.map(Some)
}

/// Removes a process, which has ended and been waited for.
fn end(host: &FakeHost, pid: u32) {
    host.remove(&format!("/proc/{pid}"));
}

#[test]
fn programs_are_counted_with_their_descendants() {
    let host = host();
    host.file("/proc/uptime", "100.50 90.00\n");
    host.program(9, 7, "erl_child_setup", 2, 501, "20 21");
    host.program(20, 9, "sh", 1, 600, "22");
    host.program(22, 20, "convert", 40, 610, "");
    host.program(21, 9, "convert", 5, 9_050, "");
    let mut fixture = Fixture::new(&host, AnnouncedBy::OtherSource);
    let (sample, _) = fixture.sample(true).unwrap();
    let value = |metric, entity| fixture.value(&sample, metric, entity);
    assert_eq!(value(&metrics::PROGRAMS_CHILDREN, ""), Some(2));
    assert_eq!(value(&metrics::PROGRAMS_ALIVE, ""), Some(3));
    assert_eq!(value(&metrics::PROGRAMS_ALIVE, "convert"), Some(2));
    assert_eq!(value(&metrics::PROGRAMS_ENDED, ""), Some(10));
    assert_eq!(value(&metrics::PROGRAMS_CPU, ""), Some((2 + 1 + 40 + 5) * TICK_NS));
    assert_eq!(value(&metrics::PROGRAMS_OLDEST, "convert"), Some(100_500_000_000 - 6_100_000_000));
    assert_eq!(value(&metrics::PROGRAMS_RESIDENT, "sh"), Some(256 * 4096));
}

#[test]
fn cpu_time_of_programs_never_decreases_and_includes_unsampled_ones() {
    let host = host();
    let mut fixture = Fixture::new(&host, AnnouncedBy::OtherSource);
    let cpu = |fixture: &mut Fixture, entity: &str| {
        let (sample, _) = fixture.sample(false).unwrap();
        fixture.value(&sample, &metrics::PROGRAMS_CPU, entity).map(|ns| ns / TICK_NS)
    };
    let first = cpu(&mut fixture, "").unwrap();
    // The CPU time of a program that started and ended in between is included in that of erl_child_setup.
    host.program(9, 7, "erl_child_setup", 2 + 30, 501, "20");
    host.program(20, 9, "sh", 7, 600, "");
    assert_eq!(cpu(&mut fixture, "").unwrap() - first, 30 + 7);
    assert_eq!(cpu(&mut fixture, "sh"), Some(7));
    // The program ends, and its CPU time is added to that of erl_child_setup only after this sample.
    host.program(9, 7, "erl_child_setup", 2 + 30, 501, "");
    end(&host, 20);
    assert_eq!(cpu(&mut fixture, "").unwrap() - first, 37);
    host.program(9, 7, "erl_child_setup", 2 + 30 + 7 + 3, 501, "");
    assert_eq!(cpu(&mut fixture, "").unwrap() - first, 40);
    assert_eq!(cpu(&mut fixture, "sh"), Some(7), "names remain");
}

#[test]
fn a_child_that_outlives_its_program_is_an_orphan() {
    let host = host();
    host.program(9, 7, "erl_child_setup", 2, 501, "20");
    host.program(20, 9, "sh", 1, 600, "22");
    host.program(22, 20, "tail", 1, 610, "");
    let mut fixture = Fixture::new(&host, AnnouncedBy::OtherSource);
    assert_eq!(counts(&mut fixture, true), some([1, 2, 0, 0]));
    // The shell is killed, and init adopts its child.
    host.program(9, 7, "erl_child_setup", 2, 501, "");
    end(&host, 20);
    host.program(22, 1, "tail", 1, 610, "");
    assert_eq!(counts(&mut fixture, false), some([0, 1, 1, 0]));
    assert_eq!(counts(&mut fixture, true), some([0, 1, 1, 0]));
    // The process id is reused.
    host.program(22, 1, "sshd", 1, 900, "");
    assert_eq!(counts(&mut fixture, false), some([0, 0, 0, 0]));
}

#[test]
fn orphans_that_were_not_sampled_before_are_recognized_by_session_or_variable() {
    let host = host();
    let orphan = |pid: u32, session: u32, comm: &str, start: i64| {
        host.program(pid, 1, comm, 1, start, "");
        let path = format!("/proc/{pid}/stat");
        let stat = std::fs::read_to_string(host.path(&path)).unwrap();
        host.file(
            &path,
            stat.replacen(&format!("S 1 {pid} {pid} "), &format!("S 1 {session} {session} "), 1),
        );
        host.file(&format!("/proc/{pid}/cgroup"), "0::/app\n");
        host.file(&format!("/proc/{pid}/environ"), "HOME=/root\0BINDIR=/otp/bin\0");
    };
    host.file("/proc/7/environ", "BINDIR=/otp/bin\0SECRET=x\0");
    orphan(30, 29, "tail", 700);
    // Not orphans of this VM: in another control group, of another VM, older than the VM, with a living session leader, epmd, a session
    // leader.
    orphan(31, 29, "tail", 700);
    host.file("/proc/31/cgroup", "0::/other\n");
    orphan(32, 29, "tail", 700);
    host.file("/proc/32/environ", "BINDIR=/other/bin\0");
    orphan(33, 29, "tail", 400);
    orphan(34, 7, "tail", 700);
    orphan(35, 29, "epmd", 700);
    orphan(36, 36, "daemon", 700);
    let mut fixture = Fixture::new(&host, AnnouncedBy::OtherSource);
    assert_eq!(counts(&mut fixture, true), some([0, 1, 1, 0]));
    // CPU time from before the orphan was found is not included.
    let (sample, _) = fixture.sample(false).unwrap();
    assert_eq!(fixture.value(&sample, &metrics::PROGRAMS_CPU, ""), Some(2 * TICK_NS));
    // A process whose parent is in the same session is not an orphan itself, but a child of an orphan.
    orphan(42, 29, "sh", 710);
    host.file("/proc/42/task/42/children", "43");
    host.program(43, 42, "sleep", 1, 711, "");
    assert_eq!(counts(&mut fixture, true), some([0, 3, 3, 0]));
    end(&host, 42);
    end(&host, 43);
    // If the session leader is a known program, the variable is not needed.
    host.program(9, 7, "erl_child_setup", 2, 501, "40");
    host.program(40, 9, "sh", 1, 800, "");
    orphan(41, 40, "sleep", 801);
    host.remove("/proc/41/environ");
    assert_eq!(counts(&mut fixture, true), some([1, 3, 2, 0]));
    // A child that such a program started after it was read is not an orphan.
    host.program(44, 40, "sleep", 1, 802, "");
    let stat = std::fs::read_to_string(host.path("/proc/44/stat")).unwrap();
    host.file("/proc/44/stat", stat.replacen("S 40 44 44 ", "S 40 40 40 ", 1));
    assert_eq!(counts(&mut fixture, true), some([1, 3, 2, 0]));
}

#[test]
fn a_vm_as_process_1_of_a_container_has_its_own_orphans_and_zombies() {
    let host = host();
    host.file("/proc/7/task/7/children", "9 50 51");
    host.program(50, 7, "sleep", 1, 700, "");
    host.program(51, 7, "curl", 1, 700, "");
    let stat = FakeHost::stat(51, "curl", 1, 0, 700);
    host.file("/proc/51/stat", stat.replace(") S", ") Z"));
    let mut fixture = Fixture::new(&host, AnnouncedBy::OtherSource);
    assert_eq!(counts(&mut fixture, true), some([0, 1, 1, 1]));
}

#[test]
fn a_kernel_without_lists_of_children_is_a_gap() {
    let host = host();
    host.remove("/proc/7/task/7/children");
    let mut fixture = Fixture::new(&host, AnnouncedBy::OtherSource);
    let (sample, _) = fixture.sample(true).unwrap();
    assert_eq!(reasons(&sample), ["host.programs: /proc/7/task/7/children does not exist"]);
    assert_eq!(fixture.value(&sample, &metrics::PROGRAMS_ALIVE, ""), None);
}

#[test]
fn uptime_is_parsed_with_a_resolution_of_10_ms() {
    assert_eq!(uptime_ns(b"1234.56 2.00\n"), Some(1_234_560_000_000));
    assert_eq!(uptime_ns(b"1234 2.00\n"), Some(1_234_000_000_000));
    assert_eq!(uptime_ns(b"99999999999999999999.1"), None);
    assert_eq!(uptime_ns(b"9223372036854775807.1"), None);
    assert_eq!(uptime_ns(b""), None);
}
