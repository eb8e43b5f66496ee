//! The content of dumps is read correctly: of dumps written by VMs (fixtures/crash_dumps), truncated dumps, and generated ones.
#![allow(clippy::expect_used, clippy::panic, reason = "these are tests")]

mod made_dump;

use std::collections::BTreeMap;
use std::io::Read;

use beamtune_import::ImportError;
use beamtune_import::crash_dump::{DumpSummary, read};
use beamtune_model::{Group, ProcessRow, Sample, SampleBuilder, SeriesTable, Span, Tick, facts};
use made_dump::{PROCESSES, SyntheticDump};
use proptest::prelude::*;

/// A dump that was read.
struct Dump {
    summary: DumpSummary,
    sample: Sample,
    table: SeriesTable,
}

impl Dump {
    fn of(input: impl Read) -> Result<Dump, ImportError> {
        let mut table = SeriesTable::default();
        let tick = Tick { t: 0, incarnation: 0, vm: Some(Span { begin: 0, end: 0 }), host: None, late: 0 };
        let mut builder = SampleBuilder::new(&mut table, tick);
        let summary = read(input, &mut builder)?;
        let sample = builder.sample;
        Ok(Dump { summary, sample, table })
    }

    fn fixture(name: &str) -> Dump {
        Dump::of(fixture(name).as_slice()).expect("a dump")
    }

    fn fact(&self, key: &str) -> Option<&str> {
        self.sample.facts.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
    }

    fn reading(&self, group: Group, entity: &str, name: &str) -> Option<i64> {
        let id = self.table.find(group, entity, name)?;
        self.sample.readings.iter().find(|(known, _)| *known == id).map(|(_, value)| *value)
    }

    /// Returns all numbers by name, without ranks, which depend on other rows.
    fn numbers(&self) -> BTreeMap<String, i64> {
        let mut numbers = BTreeMap::new();
        for (id, value) in &self.sample.readings {
            let series = self.table.get(*id).expect("a series");
            numbers.insert(format!("{} {} {}", series.group, series.entity, series.name), *value);
        }
        for row in &self.sample.processes {
            numbers.insert(format!("{} memory", row.pid), row.memory_bytes);
            numbers.insert(format!("{} queue", row.pid), row.queue);
            numbers.insert(format!("{} reductions", row.pid), row.reductions);
            numbers.extend(row.binary_bytes.map(|bytes| (format!("{} binary", row.pid), bytes)));
            numbers.extend(row.total_heap_words.map(|words| (format!("{} heap", row.pid), words)));
        }
        for row in &self.sample.tables {
            numbers.insert(format!("{} {} objects", row.id, row.owner), row.objects);
            numbers.insert(format!("{} {} memory", row.id, row.owner), row.memory_bytes);
        }
        for row in &self.sample.ports {
            numbers.insert(format!("{} input", row.id), row.input_bytes);
            numbers.insert(format!("{} output", row.id), row.output_bytes);
        }
        for (key, value) in &self.sample.facts {
            numbers.extend(value.parse().ok().map(|number| (key.clone(), number)));
        }
        numbers
    }
}

fn fixture(name: &str) -> Vec<u8> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/crash_dumps");
    std::fs::read(format!("{folder}/otp{name}.dump")).expect("a fixture")
}

#[test]
fn dumps_of_all_releases_have_the_same_content() {
    for release in ["23", "25", "27", "29"] {
        let dump = Dump::fixture(&format!("{release}-halt"));
        assert_eq!(dump.summary.missing, None, "{release}");
        assert_eq!(dump.fact(facts::OTP_RELEASE), Some(release));
        assert_eq!(dump.fact(facts::CRASH_SLOGAN), Some("gone for good"), "{release}");
        assert!(dump.fact(facts::CRASH_TIME).is_some_and(|time| time.ends_with(" 2026")), "{release}");
        let schedulers = [facts::SCHEDULERS, facts::SCHEDULERS_ONLINE, facts::DIRTY_IO_SCHEDULERS];
        assert_eq!(schedulers.map(|key| dump.fact(key)), [Some("2"), Some("2"), Some("10")], "{release}");
        assert_eq!(dump.fact(facts::NODE_NAME), None, "nonode@nohost is not a name");
        // The default limit is 262,144 processes up to OTP 25, and 1,048,576 since OTP 26.
        let processes = if release < "26" { "262144" } else { "1048576" };
        let limits = [facts::PROCESS_LIMIT, facts::PORT_LIMIT, facts::ATOM_LIMIT];
        assert_eq!(limits.map(|key| dump.fact(key)), [Some(processes), Some("65536"), Some("1048576")]);
        let text = String::from_utf8_lossy(&fixture(&format!("{release}-halt"))).into_owned();
        let count = |tag: &str| text.lines().filter(|line| line.starts_with(tag)).count() as i64;
        let vm = |name| dump.reading(Group::Vm, "", name);
        assert_eq!(vm("process_count"), Some(count("=proc:")), "{release}");
        assert_eq!((vm("port_count"), vm("ets_count")), (Some(count("=port:")), Some(count("=ets:"))));
        let table =
            dump.sample.tables.iter().find(|row| row.id == "sessions").expect("the table of the program");
        assert_eq!((table.objects, table.protection.as_str(), table.kind.as_str()), (1_000, "public", "set"));
        assert_eq!(dump.fact(facts::CRASH_PROCESS), Some(table.owner.as_str()), "{release}: it called halt");
        let lager = dump.sample.processes.iter().find(|row| row.name.as_deref() == Some("lager"));
        let lager = lager.expect("the registered process");
        assert_eq!((lager.queue, lager.status.as_deref()), (300, Some("waiting")), "{release}");
        assert!(dump.sample.ports.iter().any(|row| row.name == "cat"), "{release}");
        let started =
            |call: &str| dump.sample.spawns.iter().any(|row| row.what == "process" && row.kind == call);
        assert!(started("logger_server:init/1"), "{release}: from the dictionary of a process of proc_lib");
        let timers =
            dump.sample.spawns.iter().filter(|row| row.what == "timer").map(|row| row.count).sum::<i64>();
        assert_eq!(timers, count("=timer:"), "{release}");
        let used = dump.reading(Group::Mmap, "literal", "super_carrier_used").expect("the literal area");
        assert!((1 << 20..1 << 24).contains(&used), "{release}: {used}");
    }
}

#[test]
fn an_out_of_memory_dump_names_the_process_in_gc() {
    for release in ["23", "25", "27", "29"] {
        let dump = Dump::fixture(&format!("{release}-oom"));
        let slogan = dump.fact(facts::CRASH_SLOGAN).expect("a slogan");
        assert!(slogan.starts_with("eheap_alloc: Cannot allocate "), "{release}: {slogan}");
        let pid = dump.fact(facts::CRASH_PROCESS).expect("a process on a dirty scheduler");
        let row = dump.sample.processes.iter().find(|row| row.pid == pid).expect("its row");
        assert_eq!(row.name.as_deref(), Some("report_builder"), "{release}");
        assert_eq!(row.status.as_deref(), Some("garbage_collecting"), "{release}");
        assert_eq!(row.binary_bytes, None, "{release}: the value is invalid during a garbage collection");
        let total = dump.reading(Group::Memory, "", "total").expect("memory");
        assert!(row.memory_bytes > total / 2 && row.memory_bytes < total, "{release}");
    }
}

#[test]
fn other_causes_of_a_crash_are_read() {
    let atoms = Dump::fixture("27-atoms");
    assert_eq!(atoms.fact(facts::CRASH_SLOGAN), Some("no more index entries in atom_tab (max=20000)"));
    assert_eq!(atoms.fact(facts::ATOM_LIMIT), Some("20000"));
    let kernel = Dump::fixture("25-kernel");
    assert!(
        kernel.fact(facts::CRASH_SLOGAN).is_some_and(|slogan| slogan.starts_with("Kernel pid terminated ("))
    );
    let boot = Dump::fixture("23-boot");
    assert!(
        boot.fact(facts::CRASH_SLOGAN)
            .is_some_and(|slogan| slogan.starts_with("init terminating in do_boot"))
    );
    let signal = Dump::fixture("29-usr1");
    assert_eq!(signal.fact(facts::CRASH_SLOGAN), Some("Received SIGUSR1"));
    assert_eq!(signal.sample.processes.iter().map(|row| row.queue).max(), Some(200_000));
}

#[test]
fn a_truncated_dump_has_no_counts_of_incomplete_parts() {
    let dump = Dump::fixture("27-limit");
    let missing = dump.summary.missing.as_deref().expect("a truncated dump");
    assert!(missing.contains("CRASH DUMP SIZE LIMIT REACHED") && missing.contains("processes"), "{missing}");
    assert_eq!(dump.fact(facts::CRASH_DUMP_MISSING), Some(missing));
    assert_eq!(dump.reading(Group::Vm, "", "process_count"), None);
    assert!(dump.reading(Group::Vm, "", "atom_count").is_some(), "that part is complete");
    let whole = fixture("25-halt");
    let port = whole.windows(6).position(|bytes| bytes == b"=port:").expect("ports");
    let cut = Dump::of(&whole[..port + 20]).expect("a dump");
    assert!(cut.reading(Group::Vm, "", "process_count").is_some(), "processes precede ports");
    assert_eq!(cut.reading(Group::Vm, "", "port_count"), None);
}

#[test]
fn windows_line_breaks_change_nothing() {
    let text = String::from_utf8_lossy(&fixture("29-halt")).replace('\n', "\r\n");
    let dump = Dump::of(text.as_bytes()).expect("a dump");
    assert_eq!(dump.numbers(), Dump::fixture("29-halt").numbers());
    assert_eq!(dump.fact(facts::CRASH_SLOGAN), Some("gone for good"));
    assert_eq!(dump.summary.missing, None);
}

#[test]
fn other_files_are_not_dumps() {
    let check = |bytes: &[u8], expect: &str| {
        let error = Dump::of(bytes).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains(expect), "{error}");
    };
    check(b"", "not a crash dump");
    check(b"lcnt:conflicts().\n", "not a crash dump");
    check(b" =erl_crash_dump:0.5\n", "not a crash dump");
    check(&[0x1f, 0x8b, 8, 0, b'\n'], "gunzip -c");
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("the disk is gone"))
        }
    }
    assert!(
        matches!(Dump::of(Broken), Err(ImportError::Unreadable(why)) if why.contains("the disk is gone"))
    );
}

#[test]
fn a_process_in_gc_is_named_only_if_it_is_the_only_candidate() {
    let garbing = |pid: u32| format!("=proc:<0.{pid}.0>\nState: Garbing\n");
    let dump = |head: &str, processes: &str| {
        let text = format!(
            "=erl_crash_dump:0.5\nSlogan: x\nSystem version: Erlang/OTP 27 [64-bit]\n{head}=scheduler:2\nCurrent Process: \n\
             {processes}=port:#Port<0.1>\n=end\n"
        );
        Dump::of(text.as_bytes()).expect("a dump").fact(facts::CRASH_PROCESS).map(str::to_owned)
    };
    let (one, two) = (garbing(7), garbing(7) + &garbing(8));
    assert_eq!(dump("Calling Thread: scheduler:2\n", &one), None, "that thread had no process");
    for head in ["", "Calling Thread: scheduler:0\n"] {
        assert_eq!(dump(head, &one).as_deref(), Some("<0.7.0>"), "{head}");
        assert_eq!(dump(head, &two), None, "{head}");
    }
}

#[test]
fn running_processes_are_found_among_many() {
    let running: String =
        (0..4_000).map(|n| format!("=scheduler:{n}\nCurrent Process: <0.{}.1>\n", 500_000 + n)).collect();
    // One process in 25 was running; these have smaller numbers than all others.
    let process = |pid: String, memory: i64, reductions: i64| {
        format!(
            "=proc:{pid}\nState: Waiting\nMemory: {memory}\nReductions: {reductions}\nMessage queue length: 0\n"
        )
    };
    let processes: String = (0..100_000)
        .map(|n| match (n % 25, n / 25) {
            (24, ran) => process(format!("<0.{}.1>", 500_000 + ran), 3, 4),
            _ => process(format!("<0.{n}.0>"), 5, 6),
        })
        .collect();
    let text = format!("=erl_crash_dump:0.5\nSlogan: x\n{running}{processes}=port:#Port<0.1>\n=end\n");
    let dump = Dump::of(text.as_bytes()).expect("a dump");
    assert_eq!(dump.reading(Group::Vm, "", "process_count"), Some(100_000));
    let (ran, others): (Vec<_>, Vec<_>) =
        dump.sample.processes.iter().partition(|row| row.pid.ends_with(".1>"));
    assert_eq!(ran.len(), 4_000);
    let is_expected =
        |row: &&ProcessRow| (row.memory_bytes, row.reductions) == (3, 4) && row.ranks.is_empty();
    assert!(ran.iter().all(is_expected), "{:?}", ran.iter().find(|row| !is_expected(row)));
    assert!(others.len() <= 200 && others.iter().all(|row| !row.ranks.is_empty()), "{}", others.len());
}

#[test]
fn a_byte_order_mark_is_ignored() {
    let whole = [b"\xef\xbb\xbf".as_slice(), &fixture("25-halt")].concat();
    let dump = Dump::of(whole.as_slice()).expect("a dump");
    assert_eq!(dump.fact(facts::CRASH_SLOGAN), Some("gone for good"));
}

#[test]
fn invalid_numbers_are_missing() {
    let dump = Dump::of(
        b"=erl_crash_dump:0.5\nSlogan: x\nSystem version: Erlang/OTP 27 [64-bit]\n=memory\ntotal: 18446744073709551616\n\
          processes: 5\n=proc:<0.1.0>\nState: Waiting\nMemory: 99999999999999999999\nReductions: 1\n\
          Message queue length: -1\n=ets:<0.1.0>\nTable: t\nName: t\nObjects: 1\nWords: 9223372036854775807\n=end\n"
            .as_slice(),
    );
    let dump = dump.expect("a dump");
    assert_eq!(dump.reading(Group::Memory, "", "total"), None);
    assert_eq!(dump.reading(Group::Memory, "", "processes"), Some(5));
    assert_eq!(
        dump.reading(Group::Vm, "", "process_count"),
        Some(1),
        "a process with invalid numbers counts too"
    );
    assert!(dump.sample.processes.is_empty() && dump.sample.tables.is_empty());
}

#[test]
fn a_large_dump_is_streamed() {
    let dump = Dump::of(SyntheticDump::new(50)).expect("a dump");
    assert_eq!(dump.summary.missing, None);
    assert!(dump.summary.bytes >= 50 << 20, "{}", dump.summary.bytes);
    assert_eq!(dump.reading(Group::Vm, "", "process_count"), Some(PROCESSES as i64));
    let largest = dump.sample.processes.iter().max_by_key(|row| row.memory_bytes).expect("rows");
    assert_eq!((largest.pid.as_str(), largest.memory_bytes), ("<0.100000.0>", 1_100_000));
    assert!(dump.sample.processes.len() <= 200, "{}", dump.sample.processes.len());
    let started: Vec<_> = dump.sample.spawns.iter().map(|row| row.count).collect();
    assert_eq!(started, [10_000; 10]);
}

/// Writes a dump of BEAMTUNE_DUMP_MEGABYTES to BEAMTUNE_DUMP, for manual measurements with `/usr/bin/time -v beamtune import`.
#[test]
#[ignore = "it writes gigabytes"]
fn a_dump_for_measuring_is_written() {
    let megabytes = std::env::var("BEAMTUNE_DUMP_MEGABYTES").expect("its size").parse().expect("a number");
    let path = std::env::var("BEAMTUNE_DUMP").expect("its path");
    let mut file = std::fs::File::create(path).expect("a file");
    std::io::copy(&mut SyntheticDump::new(megabytes), &mut file).expect("written");
}

#[test]
fn a_line_of_a_hundred_megabytes_is_skipped() {
    let begin = b"=erl_crash_dump:0.5\nSlogan: long\n=proc:<0.1.0>\nLink list: [".as_slice();
    let end = b"]\nMemory: 5\nReductions: 6\nMessage queue length: 7\n=end\n".as_slice();
    let input = begin.chain(std::io::repeat(b'x').take(100 << 20)).chain(end);
    let dump = Dump::of(input).expect("a dump");
    let rows: Vec<_> =
        dump.sample.processes.iter().map(|row| (row.memory_bytes, row.reductions, row.queue)).collect();
    assert_eq!(rows, [(5, 6, 7)]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn a_truncated_dump_has_no_wrong_number(which in 0..6_usize, at in 0.0..1.0_f64) {
        let name = ["23-halt", "25-oom", "27-atoms", "29-usr1", "23-boot", "29-halt"][which];
        let whole = fixture(name);
        let cut = &whole[..(whole.len() as f64 * at) as usize];
        match Dump::of(cut) {
            Err(error) => prop_assert!(matches!(error, ImportError::NotACrashDump) && cut.len() < 20, "{error}"),
            Ok(dump) => {
                let truth = Dump::fixture(name).numbers();
                for (what, number) in dump.numbers() {
                    prop_assert_eq!(truth.get(&what), Some(&number), "{} in {} cut at {}", what, name, cut.len());
                }
                prop_assert!(dump.summary.missing.is_some());
            }
        }
    }

    #[test]
    fn any_bytes_after_the_first_line_are_accepted(bytes in proptest::collection::vec(any::<u8>(), 0..2_000)) {
        let input = [b"=erl_crash_dump:0.5\n".as_slice(), &bytes].concat();
        prop_assert!(Dump::of(input.as_slice()).is_ok());
    }
}
