use std::cell::Cell;
use std::rc::Rc;

use beamtune_model::units::SECOND_NS;
use beamtune_model::{Metric, Sample, SampleRequest, SeriesTable, Source, Tick};

use super::*;
use crate::AnnouncedBy;
use crate::fake::FakeHost;
use crate::memory::fake::{AREA, EHEAP_0, FakeVm, MBCS, MSEG};
use crate::source::tests::host;
use crate::tree::{LocalTree, ReadAt};

/// A clock that is set by a test.
#[derive(Debug, Default)]
struct SetClock(Cell<Nanos>);

impl SetClock {
    fn pass(&self, time_ns: Nanos) {
        self.0.set(self.0.get() + time_ns);
    }
}

impl Clock for SetClock {
    fn now(&self) -> Nanos {
        self.0.get()
    }

    fn wall(&self) -> i64 {
        0
    }

    fn sleep_until(&self, until: Nanos) {
        self.0.set(until);
    }
}

/// Called when a file is opened. If it returns false, access is denied.
type Hook = Rc<dyn Fn(&str) -> bool>;

/// The files of a host, with a hook.
#[derive(Clone)]
struct Hooked {
    tree: LocalTree,
    hook: Hook,
}

impl FileTree for Hooked {
    fn read_start(&self, path: &str, max_bytes: usize, into: &mut Vec<u8>) -> Result<(), HostError> {
        self.tree.read_start(path, max_bytes, into)
    }

    fn read_start_below(
        &self,
        dir: &str,
        path: &str,
        max_bytes: usize,
        into: &mut Vec<u8>,
    ) -> Result<(), HostError> {
        self.tree.read_start_below(dir, path, max_bytes, into)
    }

    fn list(&self, path: &str, max: usize) -> Result<Vec<String>, HostError> {
        self.tree.list(path, max)
    }

    fn count(&self, path: &str, max: usize) -> Result<u64, HostError> {
        self.tree.count(path, max)
    }

    fn read_link(&self, path: &str) -> Result<String, HostError> {
        self.tree.read_link(path)
    }

    fn open(&self, path: &str) -> Result<Box<dyn ReadAt>, HostError> {
        match (self.hook)(path) {
            true => self.tree.open(path),
            false => Err(HostError::Denied { path: path.to_owned(), owner: None }),
        }
    }
}

struct Fixture {
    source: HostSource<Hooked>,
    clock: Rc<SetClock>,
    table: SeriesTable,
}

impl Fixture {
    fn new(host: &FakeHost, hook: impl Fn(&SetClock, &str) -> bool + 'static) -> Fixture {
        let clock = Rc::new(SetClock::default());
        let hook = {
            let clock = clock.clone();
            Rc::new(move |path: &str| hook(&clock, path))
        };
        let source =
            HostSource::new(Hooked { tree: host.tree(), hook }, 7, AnnouncedBy::OtherSource).unwrap();
        Fixture { source, clock, table: SeriesTable::default() }
    }

    /// Takes a detailed sample this many seconds after the start.
    fn sample(&mut self, second: i64) -> Sample {
        let t = second * SECOND_NS;
        self.clock.sleep_until(t);
        let tick = Tick { t, incarnation: 0, vm: None, host: None, late: 0 };
        let mut out = SampleBuilder::new(&mut self.table, tick);
        self.source.request(SampleRequest { seq: 0, t, detail: true }, &*self.clock).unwrap();
        self.source.collect(t + SECOND_NS, &*self.clock, &mut out).unwrap();
        out.sample
    }

    fn value(&self, sample: &Sample, metric: &Metric, entity: &str) -> Option<i64> {
        let id = self.table.find(metric.group, entity, metric.name)?;
        sample.readings.iter().find(|(found, _)| *found == id).map(|(_, value)| *value)
    }

    /// Returns whether mappings, contents and the total PSS are known, and the gaps.
    fn seen(&self, sample: &Sample) -> (bool, bool, bool, Vec<String>) {
        let gaps = sample.gaps.iter().map(|gap| format!("{}: {}", gap.source, gap.reason)).collect();
        let has = |metric, entity| self.value(sample, metric, entity).is_some();
        (
            has(&metrics::MAPPING_PSS, "heap"),
            has(&metrics::CONTENT_RESIDENT, "carriers/eheap_alloc/mbcs"),
            has(&metrics::PSS, ""),
            gaps,
        )
    }
}

#[test]
fn memory_content_is_read_with_detail() {
    let host = host();
    let mut fixture = Fixture::new(&host, |clock, path| {
        clock.pass(if path == "/proc/7/mem" { 3_000_000 } else { 0 });
        true
    });
    let sample = fixture.sample(0);
    assert_eq!(fixture.seen(&sample), (true, true, true, vec![]));
    assert_eq!(fixture.value(&sample, &metrics::CONTENT_COST, ""), Some(3_000_000));
    // The fake process does not change.
    assert_eq!(fixture.value(&sample, &metrics::CONTENT_FAULTS, ""), Some(0));
    assert_eq!(fixture.value(&sample, &metrics::CONTENT_GONE, ""), Some(0));
    let of = |metric, entity| fixture.value(&sample, metric, entity);
    assert_eq!(of(&metrics::CONTENT_SIZE, "carriers/literal_alloc/mbcs"), Some(0x4_0000));
    assert_eq!(of(&metrics::CONTENT_COUNT, "carriers/eheap_alloc/mbcs"), Some(1));
    assert_eq!(of(&metrics::CONTENT_SWAPPED, "carriers/eheap_alloc/mbcs"), Some(0));
    assert_eq!(of(&metrics::CONTENT_IN_USE, "carriers/eheap_alloc/mbcs"), None);
    assert_eq!(of(&metrics::MAPPING_COUNT, "emulator"), Some(4));
    assert_eq!(of(&metrics::MAPPING_SIZE, "heap"), Some(0x10_0000));
    let sum = |metric: &Metric| {
        let of_metric = |id| {
            let series = fixture.table.get(id)?;
            (series.group == metric.group && &*series.name == metric.name).then_some(())
        };
        let all = sample.readings.iter().filter(|(id, _)| of_metric(*id).is_some());
        all.map(|(_, value)| value).sum::<i64>()
    };
    let resident = FakeVm::new().resident() as i64;
    assert_eq!((sum(&metrics::MAPPING_RESIDENT), sum(&metrics::CONTENT_RESIDENT)), (resident, resident));
}

#[test]
fn an_expensive_read_is_followed_by_a_pause() {
    let host = host();
    let mut fixture = Fixture::new(&host, |clock, path| {
        clock.pass(if path == "/proc/7/mem" { 80_000_000 } else { 0 });
        true
    });
    let first = fixture.sample(0);
    assert_eq!(fixture.seen(&first), (true, true, true, vec![]));
    // The default interval is longer, so this is not a gap.
    let sample = fixture.sample(5);
    assert_eq!(fixture.seen(&sample), (false, false, true, vec![]));
    let sample = fixture.sample(15);
    let why = "host.smaps: the content of the VM's memory was not read: it took 80 ms, and is limited to 0.5 % of the time";
    assert_eq!(fixture.seen(&sample), (false, false, true, vec![why.to_owned()]));
    let sample = fixture.sample(17);
    assert_eq!(fixture.seen(&sample), (true, true, true, vec![]));
}

#[test]
fn only_mappings_of_a_large_memory_are_read_until_it_shrinks() {
    let host = host();
    let status = |kilobytes: u32| {
        host.file("/proc/7/status", format!("Uid:\t0\t0\t0\t0\nVmRSS:\t{kilobytes} kB\nThreads:\t2\n"));
    };
    status(1_000_000);
    let slow = Rc::new(Cell::new(true));
    let is_slow = slow.clone();
    let mut fixture = Fixture::new(&host, move |clock, path| {
        clock.pass(if path == "/proc/7/mem" && is_slow.get() { 150_000_000 } else { 0 });
        true
    });
    let (mappings, contents, pss, why) = {
        let sample = fixture.sample(0);
        fixture.seen(&sample)
    };
    assert_eq!((mappings, contents, pss), (true, false, true));
    assert_eq!(
        why,
        ["host.memory_map: reading /proc/7/mem was stopped after 150 ms: it takes longer than allowed"]
    );
    let only_mappings = || {
        let why =
            "host.memory_map: the content of the VM's memory was not read: it would take more than 100 ms";
        (true, false, true, vec![why.to_owned()])
    };
    let sample = fixture.sample(40);
    assert_eq!(fixture.seen(&sample), only_mappings());
    status(810_000);
    let sample = fixture.sample(50);
    assert_eq!(fixture.seen(&sample), only_mappings());
    slow.set(false);
    let sample = fixture.sample(52);
    assert_eq!(fixture.seen(&sample), only_mappings());
    // The memory has shrunk, so reading is retried.
    status(790_000);
    let sample = fixture.sample(55);
    assert_eq!(fixture.seen(&sample), (true, true, true, vec![]));
    // The memory is so large that reading is not tried at all.
    status(30_000_000);
    let why = "host.smaps: the content of the VM's memory was not read: it would take more than 100 ms";
    let sample = fixture.sample(400);
    assert_eq!(fixture.seen(&sample).3[0], why);
    fixture.source.set_memory_budget(MemoryBudget { read_ns: SECOND_NS, rest_factor: 0 });
    let sample = fixture.sample(401);
    assert_eq!(fixture.seen(&sample), (true, true, true, vec![]));
}

#[test]
fn after_each_read_that_took_too_long_the_pause_is_doubled() {
    let host = host();
    host.file("/proc/7/status", "Uid:\t0\t0\t0\t0\nVmRSS:\t1000000 kB\nThreads:\t2\n");
    let slow = Rc::new(Cell::new(true));
    let is_slow = slow.clone();
    let mut fixture = Fixture::new(&host, move |clock, path| {
        clock.pass(if path == "/proc/7/mem" && is_slow.get() { 150_000_000 } else { 0 });
        true
    });
    let mut tried = |second: i64| {
        let sample = fixture.sample(second);
        let (_, contents, _, why) = fixture.seen(&sample);
        (contents, why.iter().any(|why| why.contains("was stopped after")))
    };
    assert_eq!(tried(0), (false, true));
    assert_eq!(tried(59), (false, false));
    assert_eq!(tried(65), (false, true));
    assert_eq!(tried(180), (false, false));
    // Another process used the CPU, which is idle now.
    slow.set(false);
    assert_eq!(tried(190), (true, false));
    // The pause after the next failure is that after a first failure.
    slow.set(true);
    assert_eq!(tried(200), (false, true));
    slow.set(false);
    assert_eq!(tried(265), (true, false));
}

#[test]
fn denied_access_to_memory_is_reported_with_a_remedy() {
    let host = host();
    let mut fixture = Fixture::new(&host, |_, path| path != "/proc/7/mem");
    let sample = fixture.sample(0);
    let why = "host.memory_map: not allowed to read the content of the VM's memory (/proc/7/mem): run beamtune as root";
    assert_eq!(fixture.seen(&sample), (true, false, true, vec![why.to_owned()]));
    assert_eq!(sample.gaps[0].kind, TroubleKind::Denied);
    let mut fixture = Fixture::new(&host, |_, path| path != "/proc/7/smaps");
    let sample = fixture.sample(0);
    // The total PSS is still known.
    let why = "host.smaps: not allowed to read /proc/7/smaps: run beamtune as root or as user rabbitmq";
    assert_eq!(fixture.seen(&sample), (false, false, true, vec![why.to_owned()]));
}

#[test]
fn memory_that_changed_during_a_read_is_read_again() {
    let host = Rc::new(host());
    FakeVm::new().install(&host, 7);
    let right = std::fs::read_to_string(host.path("/proc/7/smaps")).unwrap();
    // A mapping that was removed after smaps was read, but before the pages were counted.
    let gone =
        format!("{right}7fff00000000-7fff40000000 rw-p 00000000 00:00 0 \nRss: 900000 kB\nPss: 900000 kB\n");
    let (reads, settles) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(2)));
    let (count, after) = (reads.clone(), settles.clone());
    let files = host.clone();
    let mut fixture = Fixture::new(&host, move |_, path| {
        if path == "/proc/7/smaps" {
            count.set(count.get() + 1);
            files.file("/proc/7/smaps", if count.get() < after.get() { &gone } else { &right });
        }
        true
    });
    let mut read = |second: i64| {
        reads.set(0);
        let sample = fixture.sample(second);
        let resident = fixture.value(&sample, &metrics::MAPPING_RESIDENT, "anonymous");
        (reads.get(), resident.is_some_and(|bytes| bytes > 500_000_000))
    };
    assert_eq!(read(0), (2, false));
    settles.set(3);
    assert_eq!(read(10), (3, false));
    // The mapping is in smaps in all reads, so the memory is of an unknown kind, and is not read again in the next sample.
    settles.set(1_000);
    assert_eq!(read(20), (3, true));
    assert_eq!(read(30), (1, true));
    settles.set(0);
    assert_eq!(read(40), (1, false));
    settles.set(2);
    assert_eq!(read(50), (2, false));
}

#[test]
fn changes_during_a_read_are_reported() {
    let host = Rc::new(host());
    let before = std::fs::read_to_string(host.path("/proc/7/stat")).unwrap();
    // Page faults and resident pages after the read, instead of 100 and 256.
    let moved = |faults: i64, resident: i64| {
        let after = before
            .replace(" 100 0 5 0 ", &format!(" {faults} 0 5 0 "))
            .replace(" 256 18446744073709551615 ", &format!(" {resident} 18446744073709551615 "));
        host.file("/proc/7/stat", &before);
        let files = host.clone();
        let mut fixture = Fixture::new(&host, move |_, path| {
            if path == "/proc/7/mem" {
                files.file("/proc/7/stat", &after);
            }
            true
        });
        let sample = fixture.sample(0);
        let of = |metric| fixture.value(&sample, metric, "").unwrap();
        (of(&metrics::CONTENT_FAULTS), of(&metrics::CONTENT_GONE) / rustix::param::page_size() as i64)
    };
    assert_eq!(moved(140, 296), (40, 0));
    assert_eq!(moved(140, 276), (40, 20));
    assert_eq!(moved(100, 56), (0, 200));
    // A huge page needs one fault.
    assert_eq!(moved(101, 768), (1, 0));
}

#[test]
fn swapped_out_carriers_are_reported() {
    let host = host();
    let mut vm = FakeVm::new();
    let carriers =
        [(AREA, 0x4_0000, MSEG), (AREA + 0x4_0000, 0x4_0000, MSEG), (AREA + 0x8_0000, 0x4_0000, MSEG)];
    vm.carriers(EHEAP_0, MBCS, &carriers);
    vm.swap_out(AREA + 0x4_0000);
    vm.install(&host, 7);
    let mut fixture = Fixture::new(&host, |_, _| true);
    let sample = fixture.sample(0);
    let (.., why) = fixture.seen(&sample);
    assert!(why[0].starts_with("host.memory_map: some of the VM's lists of carriers"), "{why:?}");
    assert_eq!(fixture.value(&sample, &metrics::CONTENT_COUNT, "carriers/eheap_alloc/mbcs"), Some(2));
    assert_eq!(fixture.value(&sample, &metrics::CONTENT_SWAPPED, "unknown"), Some(4096));
}

#[test]
fn nothing_is_recorded_for_a_process_replaced_during_the_read() {
    let (host, other) = (Rc::new(host()), FakeHost::stat(7, "beam.smp", 1, 1, 9_999));
    let mut fixture = Fixture::new(&host.clone(), move |_, path| {
        if path == "/proc/7/mem" {
            host.file("/proc/7/stat", &other);
        }
        true
    });
    let sample = fixture.sample(0);
    let (mappings, contents, ..) = fixture.seen(&sample);
    assert!(!mappings && !contents, "{:?}", sample.readings);
    assert_eq!(fixture.value(&sample, &metrics::CONTENT_COST, ""), None);
}
