use std::cell::Cell;

use beamtune_model::facts as keys;
use beamtune_model::units::SECOND_NS;
use beamtune_model::{Sample, SeriesTable, Tick};

use super::*;
use crate::fake::FakeHost;
use crate::memory::fake::FakeVm;
use crate::tree::LocalTree;

/// A clock that advances by a microsecond each time it is read, or by a step that a test sets.
struct StepClock {
    now: Cell<Nanos>,
    step: Cell<Nanos>,
}

impl StepClock {
    fn new() -> Self {
        StepClock { now: Cell::new(0), step: Cell::new(1_000) }
    }
}

impl Clock for StepClock {
    fn now(&self) -> Nanos {
        self.now.set(self.now.get() + self.step.get());
        self.now.get()
    }

    fn wall(&self) -> i64 {
        1_700_000_000_000_000_000
    }

    fn sleep_until(&self, until: Nanos) {
        self.now.set(until);
    }
}

/// A host with one VM, process 7.
pub(super) fn host() -> FakeHost {
    let host = FakeHost::new();
    host.file("/etc/passwd", "rabbitmq:x:112:120::/var/lib/rabbitmq:/sbin/nologin\n");
    host.file("/proc/sys/kernel/random/boot_id", "b0-0t\n").file("/proc/sys/kernel/hostname", "web-1\n");
    host.file(
        "/proc/stat",
        "cpu  100 20 30 4000 50 6 7 80 9 1\ncpu0 100 20 30 4000 50 6 7 80 9 1\nprocs_running 3\n",
    );
    host.file("/proc/meminfo", "MemTotal: 16000 kB\nMemAvailable: 8000 kB\n");
    host.file("/proc/vmstat", "nr_free_pages 5\npswpin 12\npswpout 34\n");
    for resource in ["cpu", "memory", "io"] {
        host.file(
            &format!("/proc/pressure/{resource}"),
            "some avg10=0.00 total=5\nfull avg10=0.00 total=3\n",
        );
    }
    host.file("/proc/self/mountinfo", "30 22 0:26 / /cg rw - cgroup2 cgroup2 rw\n");
    host.link("/proc/self/ns/cgroup", "cgroup:[4026531835]");
    host.file("/cg/cgroup.controllers", "cpu\n").file("/cg/app/cgroup.controllers", "cpu\n");
    host.file("/cg/app/cpu.max", "150000 100000\n").file("/cg/app/memory.max", "1000000\n");
    host.file("/cg/app/cpu.stat", "usage_usec 9\nnr_periods 10\nnr_throttled 4\nthrottled_usec 2\n");
    host.file("/cg/app/cpu.pressure", "some avg10=0.00 total=7\n");
    process(&host, "beam.smp", 500);
    host
}

/// Returns a table of two listening sockets. The first one belongs to the VM, and has this accept queue.
fn listening(waiting: u32) -> String {
    format!(
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
         0: 00000000:1538 00000000:0000 0A 00000000:{waiting:08X} 00:00000000 00000000   112        0 68140 1 0000 100\n   \
         1: 00000000:0050 00000000:0000 0A 00000000:00000005 00:00000000 00000000     0        0 68141 1 0000 100\n"
    )
}

fn process(host: &FakeHost, comm: &str, start: i64) {
    let stat = FakeHost::stat(7, comm, 300, 200, start);
    host.file("/proc/7/stat", stat).file("/proc/7/cgroup", "0::/app\n");
    host.file(
        "/proc/7/cmdline",
        "beam.smp\0--\0-root\0/otp\0-progname\0erl\0-setcookie\0SECRET\0-sname\0demo\0-noinput\0",
    );
    host.file("/proc/7/environ", "HOME=/root\0ERL_FLAGS=+S 2\0");
    host.file(
        "/proc/7/status",
        "Uid:\t112\t112\t112\t112\nNSpid:\t7\nVmRSS:\t 100 kB\nVmSwap:\t 1 kB\nThreads:\t2\nCpus_allowed_list:\t0-1\n",
    );
    host.file(
        "/proc/7/limits",
        "Max open files            1024                 4096                 files\n",
    );
    host.file("/proc/7/net/tcp", listening(0)).file("/proc/7/net/tcp6", "");
    host.file("/proc/7/net/udp", "").file("/proc/7/net/udp6", "");
    let overflows = "TcpExt: ListenOverflows ListenDrops\nTcpExt: 34 35\n";
    host.file("/proc/7/net/netstat", overflows).file("/proc/7/net/snmp", "Tcp: PassiveOpens\nTcp: 9\n");
    host.link("/proc/7/fd/3", "socket:[68140]").link("/proc/7/ns/net", "net:[1]");
    host.file("/proc/7/smaps_rollup", "Pss:  90 kB\nAnonHugePages:  0 kB\n");
    FakeVm::new().install(host, 7);
    host.link("/proc/7/fd/0", "/dev/null").link("/proc/7/fd/1", "/dev/null").link("/proc/7/root", "/");
    host.file("/proc/7/task/7/children", "9 ").file("/proc/9/task/9/io", "rchar: 80\nsyscr: 10\n");
    host.program(9, 7, "erl_child_setup", 2, 501, "");
    host.thread(7, 7, "beam.smp", 1, 2, "5000 600 7");
    host.thread(7, 8, "1_scheduler", 3, 4, "6000 700 8");
}

/// A source with a clock and a table of series.
pub(super) struct Fixture {
    source: HostSource<LocalTree>,
    clock: StepClock,
    table: SeriesTable,
    seq: u64,
}

impl Fixture {
    pub(super) fn new(host: &FakeHost, announce: AnnouncedBy) -> Self {
        let source = HostSource::new(host.tree(), 7, announce).unwrap();
        Fixture { source, clock: StepClock::new(), table: SeriesTable::default(), seq: 0 }
    }

    pub(super) fn sample(&mut self, detail: bool) -> Result<(Sample, Span), SourceTrouble> {
        self.seq += 1;
        let t = self.seq as i64 * SECOND_NS;
        self.clock.sleep_until(t);
        let tick = Tick { t, incarnation: 0, vm: None, host: None, late: 0 };
        let mut out = SampleBuilder::new(&mut self.table, tick);
        self.source.request(SampleRequest { seq: self.seq, t, detail }, &self.clock)?;
        let span = self.source.collect(t + SECOND_NS, &self.clock, &mut out)?;
        Ok((out.sample, span))
    }

    pub(super) fn value(&self, sample: &Sample, metric: &Metric, entity: &str) -> Option<i64> {
        let id = self.table.find(metric.group, entity, metric.name)?;
        let mut values = sample.readings.iter().filter(|(found, _)| *found == id).map(|(_, value)| *value);
        let value = values.next();
        assert_eq!(values.next(), None, "{} twice in one sample", metric.name);
        value
    }
}

/// Returns the gaps with their reasons.
pub(super) fn reasons(sample: &Sample) -> Vec<String> {
    sample.gaps.iter().map(|gap| format!("{}: {}", gap.source, gap.reason)).collect()
}

fn fact<'a>(sample: &'a Sample, key: &str) -> Option<&'a str> {
    sample.facts.iter().find(|(found, _)| found == key).map(|(_, value)| value.as_str())
}

#[test]
fn the_first_sample_contains_all_values_and_facts() {
    let host = host();
    let mut fixture = Fixture::new(&host, AnnouncedBy::HostSource);
    let (sample, span) = fixture.sample(false).unwrap();
    let check = |metric: &Metric, entity: &str, expect: i64| {
        assert_eq!(fixture.value(&sample, metric, entity), Some(expect), "{}", metric.name);
    };
    let tick = process::tick_ns();
    check(&metrics::PROCESS_USER, "", 300 * tick);
    check(&metrics::PROCESS_SYSTEM, "", 200 * tick);
    check(&metrics::MINOR_FAULTS, "", 100);
    check(&metrics::MAJOR_FAULTS, "", 5);
    check(&metrics::RSS, "", 100 * 1024);
    let all = FakeVm::new().resident() as i64;
    check(&metrics::PSS, "", all);
    check(&metrics::ANON_HUGE, "", 0);
    check(&metrics::SWAP, "", 1024);
    check(&metrics::THREADS, "", 2);
    check(&metrics::OPEN_FDS, "", 3);
    check(&metrics::THREAD_CPU, "scheduler/1", 6_000);
    check(&metrics::CGROUP_QUOTA, "cpu", 1_500);
    check(&metrics::CGROUP_QUOTA, "own_cpu", 1_500);
    check(&metrics::CGROUP_THROTTLED, "cpu", 4);
    check(&metrics::CGROUP_MEMORY_LIMIT, "memory", 1_000_000);
    check(&metrics::PRESSURE_CPU_SOME, "host", 5_000);
    check(&metrics::PRESSURE_CPU_SOME, "cgroup", 7_000);
    check(&metrics::PRESSURE_MEMORY_FULL, "host", 3_000);
    check(&metrics::CPU_BUSY, "", 163 * tick);
    check(&metrics::CPU_IDLE, "", 4_050 * tick);
    check(&metrics::CPU_STEAL, "", 80 * tick);
    check(&metrics::CPUS_ONLINE, "", 1);
    check(&metrics::CPUS_ALLOWED, "", 2);
    check(&metrics::RUNNABLE_TASKS, "", 3);
    check(&metrics::MEMORY_AVAILABLE, "", 8_000 * 1024);
    let page_bytes = rustix::param::page_size() as i64;
    check(&metrics::SWAP_IN, "", 12 * page_bytes);
    check(&metrics::SWAP_OUT, "", 34 * page_bytes);
    check(&metrics::WALL_CLOCK, "", 1_700_000_000_000_000_000 - span.end);
    assert_eq!(sample.gaps, []);

    let check = |key: &str, expect: &str| assert_eq!(fact(&sample, key), Some(expect), "{key}");
    check(keys::OS_PID, "7");
    check(keys::NODE_NAME, "demo@web-1");
    check(keys::PRODUCT, "erl");
    check(
        keys::COMMAND_LINE,
        r#"["beam.smp","--","-root","/otp","-progname","erl","-setcookie","*","-sname","demo","-noinput"]"#,
    );
    check(keys::ENVIRONMENT, r#"{"ERL_FLAGS":"+S 2"}"#);
    check(keys::NOFILE_SOFT, "1024");
    check(keys::LIBC, "glibc");
    check(keys::CPUS_ALLOWED, "0-1");
    check(keys::CGROUP_VERSION, "2");
    check(keys::CGROUP_PATH, "/app");
    check(keys::CGROUP_OWN_PATH, "/app");
    check(keys::CGROUP_REACHES_ROOT, "true");
    let known: Vec<&str> = keys::KEYS.iter().map(|(key, _)| *key).collect();
    assert!(sample.facts.iter().all(|(key, _)| known.contains(&key.as_str())));
    assert!(!format!("{sample:?}").contains("SECRET"));

    let incarnation = sample.incarnation.unwrap();
    assert_eq!((incarnation.node.as_str(), incarnation.os_pid), ("demo@web-1", Some(7)));
    assert_eq!(incarnation.boot, "500 ticks after boot b0-0t");
}

#[test]
fn expensive_items_are_read_only_with_detail_and_after_the_span() {
    let host = host();
    let mut fixture = Fixture::new(&host, AnnouncedBy::OtherSource);
    let (first, _) = fixture.sample(false).unwrap();
    assert_eq!(first.incarnation, None);
    let (plain, span) = fixture.sample(false).unwrap();
    assert_eq!(fixture.value(&plain, &metrics::PSS, ""), None);
    assert_eq!(fixture.value(&plain, &metrics::OPEN_FDS, ""), None);
    assert!(fixture.value(&plain, &metrics::THREAD_CPU, "scheduler/1").is_some());
    assert_eq!(plain.facts, []);
    let (detail, detail_span) = fixture.sample(true).unwrap();
    assert_eq!(fixture.value(&detail, &metrics::PSS, ""), Some(FakeVm::new().resident() as i64));
    assert_eq!(fixture.value(&detail, &metrics::CONTENT_COUNT, "carriers/eheap_alloc/mbcs"), Some(1));
    assert_eq!(detail.facts, []);
    assert_eq!(detail_span.end - detail_span.begin, span.end - span.begin);
}

#[test]
fn a_changed_fact_is_recorded_again() {
    let host = host();
    let mut fixture = Fixture::new(&host, AnnouncedBy::OtherSource);
    fixture.sample(true).unwrap();
    host.file("/cg/cpu.max", "50000 100000\n");
    let (sample, _) = fixture.sample(true).unwrap();
    assert_eq!(sample.facts, [(keys::CGROUP_PATH.to_owned(), "/".to_owned())]);
    assert_eq!(fixture.value(&sample, &metrics::CGROUP_QUOTA, "cpu"), Some(500));
    assert_eq!(fixture.value(&sample, &metrics::CGROUP_QUOTA, "own_cpu"), Some(1_500));
}

#[test]
fn counters_continue_when_another_quota_becomes_the_tightest() {
    let host = host();
    let mut fixture = Fixture::new(&host, AnnouncedBy::OtherSource);
    let (first, _) = fixture.sample(true).unwrap();
    assert_eq!(fixture.value(&first, &metrics::CGROUP_THROTTLED, "cpu"), Some(4));
    host.file("/cg/cpu.max", "50000 100000\n").file("/cg/cpu.stat", "nr_periods 900\nnr_throttled 800\n");
    let (second, _) = fixture.sample(false).unwrap();
    assert_eq!(fixture.value(&second, &metrics::CGROUP_QUOTA, "cpu"), Some(500));
    assert_eq!(fixture.value(&second, &metrics::CGROUP_THROTTLED, "cpu"), Some(4));
    assert_eq!(fixture.value(&second, &metrics::CGROUP_THROTTLED, "own_cpu"), Some(4));
    host.file("/cg/cpu.stat", "nr_periods 903\nnr_throttled 802\n");
    let (third, _) = fixture.sample(false).unwrap();
    assert_eq!(fixture.value(&third, &metrics::CGROUP_THROTTLED, "cpu"), Some(6));
}

#[test]
fn a_group_without_visible_files_is_a_gap_rather_than_no_quota() {
    let host = host();
    host.file("/proc/self/mountinfo", "");
    let mut fixture = Fixture::new(&host, AnnouncedBy::OtherSource);
    let (sample, _) = fixture.sample(true).unwrap();
    let [gap] = sample.gaps.as_slice() else { panic!("{:?}", sample.gaps) };
    assert_eq!(gap.source, "host.cgroup");
    assert!(
        gap.reason.starts_with("the files of control group /app are not visible from here"),
        "{}",
        gap.reason
    );
    assert_eq!(fact(&sample, keys::CGROUP_PATH), None);
}

#[test]
fn an_unreadable_item_is_a_gap_until_it_is_readable() {
    let host = host();
    host.remove("/proc/pressure");
    host.file("/proc/7/task/8/schedstat", "0 0 0\n").file("/proc/7/task/7/schedstat", "0 0 0\n");
    let mut fixture = Fixture::new(&host, AnnouncedBy::OtherSource);
    let gaps = |sample: &Sample| {
        sample.gaps.iter().map(|gap| (gap.source.clone(), gap.reason.clone())).collect::<Vec<_>>()
    };
    let (first, _) = fixture.sample(false).unwrap();
    let expect = [
        ("host.pressure".to_owned(), "/proc/pressure/cpu does not exist".to_owned()),
        ("host.schedstat".to_owned(), "this kernel does not provide /proc/7/task/TID/schedstat".to_owned()),
    ];
    assert_eq!(gaps(&first), expect);
    assert!(first.gaps.iter().all(|gap| gap.kind == TroubleKind::Unsupported));
    assert_eq!(fixture.value(&first, &metrics::THREAD_CPU, "scheduler/1"), None);
    // The gap is not reported every second, but with the next detailed sample, for the whole time since the last report.
    assert_eq!(gaps(&fixture.sample(false).unwrap().0), []);
    let (detail, span) = fixture.sample(true).unwrap();
    assert_eq!(gaps(&detail), expect);
    assert!(detail.gaps.iter().all(|gap| gap.begin == first.gaps[0].end && gap.end == span.end));

    host.file("/proc/7/task/8/schedstat", "6000 700 8\n");
    for resource in ["cpu", "memory", "io"] {
        host.file(&format!("/proc/pressure/{resource}"), "some total=5\n");
    }
    assert_eq!(gaps(&fixture.sample(true).unwrap().0), []);
}

#[test]
fn an_ended_or_replaced_process_ends_the_incarnation() {
    let host = host();
    let mut fixture = Fixture::new(&host, AnnouncedBy::HostSource);
    fixture.sample(false).unwrap();
    host.remove("/proc/7");
    let trouble = fixture.sample(false).unwrap_err();
    assert_eq!((trouble.kind, trouble.reason.as_str()), (TroubleKind::Gone, "process 7 has ended"));

    process(&host, "cat", 900);
    let trouble = fixture.sample(false).unwrap_err();
    assert_eq!(trouble.kind, TroubleKind::Gone);
    assert_eq!(trouble.reason, "process 7 has ended; its id was given to another process");

    // A new incarnation is a new process, even with the same id.
    process(&host, "beam.smp", 950);
    fixture.source.follow(7).unwrap();
    let (sample, _) = fixture.sample(false).unwrap();
    let incarnation = sample.incarnation.clone().unwrap();
    assert_eq!((incarnation.id, incarnation.boot.as_str()), (1, "950 ticks after boot b0-0t"));
    assert_eq!(fact(&sample, keys::OS_PID), Some("7"));
}

#[test]
fn a_process_that_ends_during_a_sample_is_gone_rather_than_garbled() {
    let host = host();
    let mut fixture = Fixture::new(&host, AnnouncedBy::HostSource);
    fixture.sample(false).unwrap();
    host.remove("/proc/7/status");
    assert_eq!(fixture.sample(false).unwrap_err().kind, TroubleKind::Unsupported);
    let zombie = FakeHost::stat(7, "beam.smp", 300, 200, 500).replace(") S", ") Z");
    host.file("/proc/7/stat", zombie);
    assert_eq!(fixture.sample(false).unwrap_err().kind, TroubleKind::Gone);
}

#[test]
fn preemption_between_reading_two_clocks_is_not_a_step_of_the_wall_clock() {
    let host = host();
    let mut fixture = Fixture::new(&host, AnnouncedBy::OtherSource);
    let mut wall_clock = |step_ns| {
        fixture.clock.step.set(step_ns);
        let (sample, _) = fixture.sample(false).unwrap();
        fixture.value(&sample, &metrics::WALL_CLOCK, "")
    };
    assert!(wall_clock(1_000).is_some());
    assert!(wall_clock(10_000_000).is_some());
    assert_eq!(wall_clock(10_000_001), None);
    assert!(wall_clock(1_000).is_some());
}

#[test]
fn a_rollup_that_would_take_too_long_is_not_read() {
    let host = host();
    host.file("/proc/7/status", "Uid:\t112\t112\t112\t112\nVmRSS:\t 104857600 kB\nThreads:\t2\n");
    let mut fixture = Fixture::new(&host, AnnouncedBy::OtherSource);
    let (sample, _) = fixture.sample(true).unwrap();
    assert_eq!(fixture.value(&sample, &metrics::PSS, ""), None);
    assert_eq!(
        reasons(&sample),
        [
            "host.smaps: the content of the VM's memory was not read: it would take more than 100 ms",
            "host.smaps_rollup: /proc/7/smaps_rollup was not read: it would take about 419 ms, blocking changes of the VM's memory \
             mappings"
        ]
    );
}

#[test]
fn a_rollup_that_took_too_long_is_not_read_again() {
    let host = host();
    host.remove("/proc/7/smaps");
    let mut fixture = Fixture::new(&host, AnnouncedBy::OtherSource);
    fixture.clock.step.set(150_000_000);
    let (sample, _) = fixture.sample(true).unwrap();
    assert_eq!(fixture.value(&sample, &metrics::PSS, ""), Some(90 * 1024));
    fixture.clock.step.set(1_000);
    let (sample, _) = fixture.sample(true).unwrap();
    assert_eq!(fixture.value(&sample, &metrics::PSS, ""), None);
    let reasons = reasons(&sample);
    assert!(
        reasons[1].contains("it took 150 ms") && reasons[0] == "host.smaps: /proc/7/smaps does not exist",
        "{reasons:?}"
    );
}

#[test]
fn open_files_are_counted_by_kind_and_sampled_if_many() {
    let host = host();
    for number in 4..8 {
        host.link(&format!("/proc/7/fd/{number}"), &format!("/srv/shop/uploads/{number}.jpg"));
    }
    let mut fixture = Fixture::new(&host, AnnouncedBy::HostSource);
    let (sample, _) = fixture.sample(true).unwrap();
    let of_kind = |fixture: &Fixture, sample: &Sample, entity: &str| {
        fixture.value(sample, &metrics::OPEN_FILES_OF_KIND, entity)
    };
    assert_eq!(fixture.value(&sample, &metrics::OPEN_FILES_SAMPLED, ""), Some(7));
    assert_eq!(of_kind(&fixture, &sample, "/srv/shop/uploads"), Some(4));
    assert_eq!(of_kind(&fixture, &sample, "/dev/null"), Some(2));
    assert_eq!(of_kind(&fixture, &sample, "socket"), Some(1));
    // Links are read only in a detailed sample.
    let (sample, _) = fixture.sample(false).unwrap();
    assert_eq!(fixture.value(&sample, &metrics::OPEN_FILES_SAMPLED, ""), None);
    for number in 8..3_000 {
        host.link(&format!("/proc/7/fd/{number}"), "/srv/shop/uploads/x.jpg");
    }
    let (sample, _) = fixture.sample(true).unwrap();
    // 1,024 links were read, evenly distributed over 3,000 descriptors and some unused ones above.
    assert_eq!(fixture.value(&sample, &metrics::OPEN_FILES_SAMPLED, ""), Some(894));
    assert_eq!(of_kind(&fixture, &sample, "/srv/shop/uploads"), Some(892));
    assert_eq!(of_kind(&fixture, &sample, "socket"), None, "too few to record");
}

#[test]
#[cfg(target_endian = "little")]
fn udp_drops_of_the_vms_own_sockets_are_recorded() {
    let host = host();
    let socket = |port: &str, inode: u32, drops: u32| {
        format!(
            "  1: 0100007F:{port} 00000000:0000 07 00000000:00000900 00:00000000 00000000 0 0 {inode} 2 0 {drops}\n"
        )
    };
    let table = |drops| format!("{}{}", socket("0035", 68_150, drops), socket("0045", 99, 7));
    host.file("/proc/7/net/udp", table(3)).link("/proc/7/fd/9", "socket:[68150]");
    host.file("/proc/7/net/snmp", "Tcp: PassiveOpens\nTcp: 9\nUdp: InDatagrams NoPorts\nUdp: 40 1\n");
    let mut fixture = Fixture::new(&host, AnnouncedBy::HostSource);
    fixture.sample(true).unwrap();
    host.file("/proc/7/net/udp", table(5));
    let (sample, _) = fixture.sample(false).unwrap();
    let check = |metric: &Metric, entity: &str, expect: Option<i64>| {
        assert_eq!(fixture.value(&sample, metric, entity), expect, "{} {entity}", metric.name);
    };
    check(&metrics::UDP_DROPS, "127.0.0.1:53", Some(5));
    check(&metrics::UDP_QUEUE, "127.0.0.1:53", Some(0x900));
    check(&metrics::UDP_DROPS, "127.0.0.1:69", None);
    check(&metrics::UDP_RECEIVED, "", Some(40));
    assert_eq!(reasons(&sample), [""; 0]);
}

#[test]
fn accept_queues_of_the_vms_own_sockets_are_recorded() {
    let host = host();
    let mut fixture = Fixture::new(&host, AnnouncedBy::HostSource);
    fixture.sample(true).unwrap();
    host.file("/proc/7/net/tcp", listening(17));
    let (sample, _) = fixture.sample(false).unwrap();
    let check = |metric: &Metric, entity: &str, expect: Option<i64>| {
        assert_eq!(fixture.value(&sample, metric, entity), expect, "{} {entity}", metric.name);
    };
    check(&metrics::ACCEPT_QUEUE, "0.0.0.0:5432", Some(17));
    check(&metrics::ACCEPT_QUEUE, "0.0.0.0:80", None);
    check(&metrics::LISTENING_SOCKETS, "", Some(2));
    check(&metrics::LISTEN_OVERFLOWS, "", Some(34));
    check(&metrics::LISTEN_DROPS, "", Some(35));
    check(&metrics::PASSIVE_OPENS, "", Some(9));
    assert_eq!(reasons(&sample), [""; 0]);
    // The VM opens another socket.
    let with_another = format!(
        "{}   2: 00000000:0051 00000000:0000 0A 00000000:00000002 00:00000000 00000000 0 0 68142 1 0\n",
        listening(0)
    );
    host.file("/proc/7/net/tcp", with_another).link("/proc/7/fd/4", "socket:[68142]");
    let (sample, _) = fixture.sample(false).unwrap();
    assert_eq!(fixture.value(&sample, &metrics::ACCEPT_QUEUE, "0.0.0.0:81"), Some(2));
}

#[test]
#[cfg(target_endian = "little")]
fn unread_connections_are_grouped_by_listening_socket_or_peer() {
    let host = host();
    let connection = |local: &str, peer: &str, unread: u32, inode: u32| {
        format!(
            "  2: 0100007F:{local} 0100007F:{peer} 01 00000000:{unread:08X} 00:00000000 00000000 0 0 {inode} 1 0\n"
        )
    };
    // Two connections that the VM accepted, one that it opened, and one of another program.
    let table = [
        listening(0),
        connection("1538", "9C40", 9_000, 68_150),
        connection("1538", "9C41", 0, 68_151),
        connection("9C50", "0CEA", 5_000, 68_152),
        connection("9C51", "0CEA", 5_000, 99),
    ];
    host.file("/proc/7/net/tcp", table.concat()).link("/proc/7/fd/9", "socket:[68152]");
    let mut fixture = Fixture::new(&host, AnnouncedBy::HostSource);
    fixture.sample(true).unwrap();
    let (sample, _) = fixture.sample(false).unwrap();
    let check = |metric: &Metric, entity: &str, expect: Option<i64>| {
        assert_eq!(fixture.value(&sample, metric, entity), expect, "{} {entity}", metric.name);
    };
    check(&metrics::TCP_SAMPLED, "", Some(4));
    check(&metrics::TCP_CONNECTIONS, "0.0.0.0:5432", Some(2));
    check(&metrics::TCP_UNREAD, "0.0.0.0:5432", Some(1));
    check(&metrics::TCP_UNREAD_BYTES, "0.0.0.0:5432,127.0.0.1:40000", Some(9_000));
    check(&metrics::TCP_UNREAD, "to 127.0.0.1:3306", Some(1));
    check(&metrics::TCP_UNREAD_BYTES, "to 127.0.0.1:3306,127.0.0.1:40016", Some(5_000));
    check(&metrics::TCP_UNREAD_BYTES, "to 127.0.0.1:3306,127.0.0.1:40017", None);
    assert_eq!(reasons(&sample), [""; 0]);
    // The data were read.
    host.file("/proc/7/net/tcp", listening(0));
    let (sample, _) = fixture.sample(false).unwrap();
    assert_eq!(fixture.value(&sample, &metrics::TCP_UNREAD, "0.0.0.0:5432"), Some(0));
}

#[test]
fn unreadable_or_skipped_queues_are_not_recorded_as_empty() {
    let host = host();
    host.remove("/proc/7/net/tcp");
    let mut fixture = Fixture::new(&host, AnnouncedBy::HostSource);
    let (sample, _) = fixture.sample(false).unwrap();
    assert_eq!(fixture.value(&sample, &metrics::LISTENING_SOCKETS, ""), None);
    let reason = |item: &str| format!("{item}: /proc/7/net/tcp does not exist");
    assert_eq!(reasons(&sample), [reason("host.listen"), reason("host.tcp")]);
    host.file("/proc/7/net/tcp", listening(1));
    // Sampling the queues takes 10 ms now, so the next sample follows after two seconds.
    fixture.clock.step.set(10_000_000);
    let lengths: Vec<Option<i64>> = (0..4)
        .map(|_| {
            let (sample, _) = fixture.sample(false).unwrap();
            fixture.value(&sample, &metrics::ACCEPT_QUEUE, "0.0.0.0:5432")
        })
        .collect();
    assert_eq!(lengths, [Some(1), None, None, Some(1)]);
}
