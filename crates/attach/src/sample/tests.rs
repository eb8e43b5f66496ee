mod broker;
mod call_stacks;
mod events;
mod explicit;
mod locks;
mod messages;

use beamtune_model::{FileRequest, Sample, SeriesTable, Tick};
use proptest::prelude::*;

use super::*;
use crate::agent::AgentMessage;
use crate::agent::tests::{answer, map};
use crate::etf::{Document, Limits, Value};

/// Decodes answers one after the other, as in a recording.
#[derive(Default)]
struct Recording {
    decoder: Decoder,
    table: SeriesTable,
}

impl Recording {
    fn add(&mut self, items: Vec<Value<'static>>) -> Result<Sample, TermError> {
        self.add_raw(answer(items, cost(10, 5)))
    }

    fn add_raw(&mut self, value: Value<'static>) -> Result<Sample, TermError> {
        self.add_bytes(value.to_bytes().unwrap(), Offset(1_000_000).between(0, 2_000_000))
    }

    fn add_bytes(&mut self, bytes: Vec<u8>, translation: Translation) -> Result<Sample, TermError> {
        let document = Document::decode(bytes, 0, Limits::default()).unwrap();
        let AgentMessage::Sample(answer) = AgentMessage::parse(document)? else { panic!("no sample") };
        let tick = Tick { t: 0, incarnation: 0, vm: None, host: None, late: 0 };
        let mut out = SampleBuilder::new(&mut self.table, tick);
        self.decoder.add(&answer, translation, &mut out)?;
        Ok(out.sample)
    }

    /// Adds a real agent's answer from `agent/fixtures`. Its times stay on the VM's clock.
    fn add_fixture(&mut self, name: &str) -> Sample {
        let path = format!("{}/../../agent/fixtures/{name}.etf", env!("CARGO_MANIFEST_DIR"));
        self.add_bytes(std::fs::read(path).unwrap(), Offset(0).between(i64::MIN, i64::MAX)).unwrap()
    }

    /// Returns `group/entity/name=value` of each reading, in the order of addition, without the agent's own cost.
    fn readings(&self, sample: &Sample) -> Vec<String> {
        let text = |&(id, value): &(_, i64)| {
            let series = self.table.get(id).unwrap();
            format!("{}/{}/{}={value}", series.group, series.entity, series.name)
        };
        sample.readings.iter().map(text).filter(|text| !text.starts_with("agent/")).collect()
    }
}

fn cost(agent: i64, collector: i64) -> Value<'static> {
    map(&[
        ("agent_reductions", Value::from(agent)),
        ("collector_reductions", Value::from(collector)),
        ("memory_bytes", Value::from(1i64)),
    ])
}

fn item(name: &'static str, status: &'static str, value: Value<'static>) -> Value<'static> {
    Value::tuple([Value::atom(name), Value::atom(status), Value::from(2_000i64), Value::from(4i64), value])
}

fn done(name: &'static str, pairs: &[(&'static str, Value<'static>)]) -> Value<'static> {
    item(name, "ok", map(pairs))
}

fn numbers(numbers: &[i64]) -> Value<'static> {
    Value::List(numbers.iter().map(|&number| Value::from(number)).collect())
}

fn tuple(numbers: &[i64]) -> Value<'static> {
    Value::Tuple(numbers.iter().map(|&number| Value::from(number)).collect())
}

fn binary(text: &'static str) -> Value<'static> {
    Value::binary(text.as_bytes())
}

fn call(module: &'static str, name: &'static str, arity: i64) -> Value<'static> {
    Value::tuple([binary(module), binary(name), Value::from(arity)])
}

#[test]
fn counters_become_series() {
    let check = |item: Value<'static>, expect: &[&str]| {
        let mut recording = Recording::default();
        recording.decoder.vm = Some(VmFacts {
            schedulers: 2,
            dirty_cpu_schedulers: 1,
            word_bytes: 8,
            perf_counter_hz: 3_000_000,
        });
        let sample = recording.add(vec![item]).unwrap();
        assert!(sample.gaps.is_empty(), "{:?}", sample.gaps);
        assert_eq!(recording.readings(&sample), expect);
    };
    let thread = |kind: &'static str, id: i64, counters: &[i64]| {
        Value::tuple([Value::atom(kind), Value::from(id), numbers(counters)])
    };
    // The performance counter has 3 units per microsecond.
    check(
        done(
            "msacc",
            &[
                ("states", Value::list([Value::atom("gc"), Value::atom("unheard_of")])),
                ("threads", Value::list([thread("aux", 1, &[6, 8]), thread("scheduler", 2, &[300, 400])])),
            ],
        ),
        &[
            "msacc/aux/1/gc=6",
            "msacc/aux/1/unheard_of=6",
            "msacc/scheduler/2/gc=300",
            "msacc/scheduler/2/unheard_of=399",
        ],
    );
    let rows = [[1, 5, 9], [2, 6, 9], [3, 7, 9], [4, 8, 9]];
    check(
        done("scheduler_wall_time", &[("rows", Value::List(rows.iter().map(|row| tuple(row)).collect()))]),
        &[
            "scheduler_time/scheduler/1/active=5",
            "scheduler_time/scheduler/1/total=9",
            "scheduler_time/scheduler/2/active=6",
            "scheduler_time/scheduler/2/total=9",
            "scheduler_time/dirty_cpu_scheduler/1/active=7",
            "scheduler_time/dirty_cpu_scheduler/1/total=9",
            "scheduler_time/dirty_io_scheduler/1/active=8",
            "scheduler_time/dirty_io_scheduler/1/total=9",
        ],
    );
    check(
        done("run_queues", &[("lengths", numbers(&[1, 2, 3, 4])), ("active", numbers(&[2, 3, 5, 7]))]),
        &[
            "run_queue/scheduler/1/length=1",
            "run_queue/scheduler/2/length=2",
            "run_queue/dirty_cpu/length=3",
            "run_queue/dirty_io/length=4",
            "vm//active_tasks=5",
        ],
    );
    let pollset = |kind: &'static str, fds: i64| {
        let no = Value::from(false);
        let [threads, active, pending, memory] = [1i64, 2, 3, 4].map(Value::from);
        Value::tuple([binary(kind), no, threads, Value::from(fds), active, pending, memory])
    };
    check(
        done(
            "check_io",
            &[
                ("max_fds", Value::from(9i64)),
                ("pollsets", Value::list([pollset("epoll", 5), pollset("poll", 6)])),
            ],
        ),
        &["check_io/0/kernel_poll=1", "check_io/0/fds=5", "check_io/1/kernel_poll=0", "check_io/1/fds=6"],
    );
    check(done("memory", &[("total", Value::from(3u64 << 40))]), &["memory//total=3298534883328"]);
}

#[test]
fn allocators_become_series_by_instance() {
    let mut recording = Recording::default();
    let set = |from: i64| tuple(&(from..from + 9).collect::<Vec<_>>());
    let [one, two, three] = [1i64, 10, 20].map(set);
    let instance = Value::tuple([
        binary("eheap_alloc"),
        Value::from(1i64),
        one,
        two,
        three,
        tuple(&[1_000, 900, 50, 60, 40, 3, 0, 0, 0]),
    ]);
    let foreign = |bytes: i64| Value::tuple([binary("eheap_alloc"), binary("ll_alloc"), Value::from(bytes)]);
    let area = map(&[("kind", binary("literal_mmap")), ("total_bytes", Value::from(77i64))]);
    let sample = recording
        .add(vec![done(
            "allocators",
            &[
                ("disabled", Value::list([])),
                ("instances", Value::list([instance])),
                ("foreign", Value::list([foreign(4), foreign(5)])),
                ("fixed", Value::list([Value::tuple([binary("monitor"), Value::from(128i64)])])),
                ("mseg", Value::list([tuple(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11])])),
                ("mmap", Value::list([area])),
            ],
        )])
        .unwrap();
    assert!(sample.gaps.is_empty(), "{:?}", sample.gaps);
    let expect = [
        "mbcs_blocks=1",
        "mbcs_blocks_size=2",
        "mbcs_carriers=3",
        "mbcs_carriers_size=4",
        "mbcs_blocks_size_max=5",
        "mbcs_carriers_size_max=7",
        "pool_blocks=10",
        "pool_blocks_size=11",
        "pool_carriers=12",
        "pool_carriers_size=13",
        "sbcs_blocks=20",
        "sbcs_blocks_size=21",
        "sbcs_carriers=22",
        "sbcs_carriers_size=23",
        "carriers_size_max=49",
        "mseg_carriers_size=55",
        "allocations=1000",
        "frees=900",
        "reallocations=50",
        "segments_asked=63",
    ]
    .map(|reading| format!("allocator/eheap_alloc/1/{reading}"));
    let mut expect = expect.to_vec();
    expect.push("allocator/eheap_alloc/foreign_blocks_size=9".to_owned());
    expect.push("fix_alloc/monitor/size=128".to_owned());
    for reading in
        ["cached_segments=1", "cache_hits=2", "segments_size=5", "allocations=7", "creates=10", "destroys=11"]
    {
        expect.push(format!("mseg/0/{reading}"));
    }
    expect.push("mmap/literal/super_carrier_size=77".to_owned());
    assert_eq!(recording.readings(&sample), expect);
}

/// One part of a scan.
fn procs(part: (i64, bool), scanned: i64, delta: Option<i64>, queues: [i64; 3]) -> Value<'static> {
    let row = |numbers: [i64; 2]| {
        let [first, second] = numbers.map(Value::from);
        Value::tuple([binary("<0.9.0>"), first, second, Value::atom("runnable")])
    };
    let [sum, max, nonempty] = queues.map(Value::from);
    let mut pairs = vec![
        ("total", Value::from(100i64)),
        ("scanned", Value::from(scanned)),
        ("part", Value::from(part.0)),
        ("last", Value::from(part.1)),
        ("new", Value::from(3i64)),
        ("gone", Value::from(2i64)),
        ("queue_sum", sum),
        ("queue_max", max),
        ("queue_nonempty", nonempty),
        ("top_reductions", Value::list([row([50, 4])])),
        ("top_queues", Value::list([row([4, 50])])),
        ("skipped", Value::list([Value::tuple([binary("<0.7.0>"), Value::from(1i64)])])),
    ];
    if let Some(delta) = delta {
        pairs.push(("delta_reductions", Value::from(delta)));
    }
    done("procs", &pairs)
}

#[test]
fn scans_are_summed_over_rounds_and_spreading_a_scan_is_an_event() {
    let mut recording = Recording::default();
    let mut add = |part, scanned, delta, queues| {
        let sample = recording.add(vec![procs(part, scanned, delta, queues)]).unwrap();
        assert!(sample.gaps.is_empty(), "{:?}", sample.gaps);
        let find = |name: &str| {
            let start = format!("processes//{name}=");
            recording.readings(&sample).iter().find_map(|text| text.strip_prefix(&start).map(str::to_owned))
        };
        let found =
            ["coverage", "reductions", "spawned", "queued_messages", "longest_queue", "nonempty_queues"]
                .map(find);
        let found = found.map(|value| value.unwrap_or("-".to_owned())).join(" ");
        let events: Vec<String> = sample.events.iter().map(|event| event.kind.clone()).collect();
        (found, events, sample.busiest)
    };
    // The first round has no earlier values to compare with.
    let (found, events, busiest) = add((1, true), 100, None, [9, 5, 2]);
    assert_eq!(found, "1000 0 0 9 5 2");
    assert_eq!(events, ["process_skipped"]);
    assert_eq!(busiest.len(), 1);
    assert_eq!(
        (&*busiest[0].pid, busiest[0].reductions, busiest[0].queue, busiest[0].runnable),
        ("<0.9.0>", 50, 4, Some(true))
    );
    // A round in two parts: the last one completes the sums.
    let (found, events, _) = add((1, false), 60, Some(500), [4, 4, 1]);
    assert_eq!((found.as_str(), events), ("600 500 3 - - -", vec!["agent_thinned".to_owned()]));
    let (found, events, _) = add((2, true), 40, Some(100), [7, 6, 2]);
    assert_eq!((found.as_str(), events.len()), ("400 600 6 11 6 3", 0));
    // Complete again.
    let (found, events, _) = add((1, true), 100, Some(1), [0, 0, 0]);
    assert_eq!((found.as_str(), events), ("1000 601 9 0 0 0", vec!["agent_thinned".to_owned()]));
    // A collector that replaces another starts from zero, and so do the totals.
    let (found, _, _) = add((1, true), 100, None, [0, 0, 0]);
    assert_eq!(found, "1000 0 0 0 0 0");
}

#[test]
fn unreadable_item_is_a_gap_with_its_reason() {
    let mut recording = Recording::default();
    let stuck = map(&[("stuck_on", binary("<0.1.0>"))]);
    let items = || {
        vec![
            item("memory", "unsupported", map(&[])),
            item("ets", "error", binary("bad\u{1b}[2J")),
            item("ports", "timeout", map(&[])),
            item("processes", "timeout", stuck.clone()),
            item("dist", "skipped", map(&[])),
            done("counts", &[("processes", Value::atom("many"))]),
            done("scheduler_wall_time", &[("rows", Value::list([]))]),
        ]
    };
    let sample = recording.add(items()).unwrap();
    let without_offset = |reason: &str| match reason.split_once(" at byte ") {
        Some((before, after)) => {
            format!("{before}{}", after.trim_start_matches(|c: char| c.is_ascii_digit()))
        }
        None => reason.to_owned(),
    };
    let text = |gap: &Gap| format!("{} {} {}", gap.source, gap.kind, without_offset(&gap.reason));
    let gaps: Vec<_> = sample.gaps.iter().map(text).collect();
    assert_eq!(
        gaps,
        [
            "vm.memory unsupported not supported by this OTP release or build of the VM",
            "vm.ets garbled bad\\u{1b}[2J",
            "vm.ports timed_out reading took too long",
            "vm.processes timed_out reading <0.1.0> hung",
            "vm.dist timed_out not read, because earlier items hung",
            "vm.counts garbled expected an integer, found an atom",
            "vm.scheduler_wall_time garbled the map has no key schedulers (the facts are missing)",
        ]
    );
    // On the recorder's clock.
    assert_eq!((sample.gaps[0].begin, sample.gaps[0].end), (1_002_000, 1_006_000));
    // An unsupported item is reported only once.
    let again = recording.add(items()).unwrap();
    assert!(!again.gaps.iter().any(|gap| gap.source == "vm.memory") && again.gaps.len() == 6);
}

#[test]
fn agent_cost_is_summed_by_item() {
    let mut recording = Recording::default();
    let items = || vec![done("memory", &[("total", Value::from(1i64))]), item("dist", "skipped", map(&[]))];
    recording.add(items()).unwrap();
    let sample = recording.add_raw(answer(items(), cost(100, 20))).unwrap();
    let costs: Vec<_> = sample
        .readings
        .iter()
        .map(|(id, value)| (recording.table.get(*id).unwrap(), value))
        .filter(|(series, _)| series.group == beamtune_model::Group::Agent)
        .map(|(series, value)| format!("{} {}={value}", series.entity, series.name))
        .collect();
    assert_eq!(costs, ["memory cost=8000", "dist cost=8000", " cost=16000", " reductions=120", " memory=1"]);
}

#[test]
fn offset_stays_within_the_limits_given_by_an_answer() {
    let value = answer(Vec::new(), cost(0, 0));
    let document = Document::decode(value.to_bytes().unwrap(), 0, Limits::default()).unwrap();
    let Ok(AgentMessage::Sample(answer)) = AgentMessage::parse(document) else { panic!() };
    // The VM read the items from -1,000 to 5,000 on its own clock.
    let check = |offset: i64, sent: i64, arrived: i64, expect: i64| {
        assert_eq!(Offset(offset).corrected(sent, &answer, arrived).0, expect, "{offset} {sent} {arrived}");
    };
    // Sent at 9,000, so reading began at 9,000 at the earliest, and the offset is at least 10,000.
    check(10_500, 9_000, 16_000, 10_500);
    check(9_000, 9_000, 16_000, 10_000);
    check(12_000, 9_000, 16_000, 11_000);
    // The limits contradict each other because a clock was set, so the middle is used.
    check(0, 10_000, 15_000, 10_500);
    check(i64::MAX, i64::MAX, i64::MIN, -1);
}

#[test]
fn timestamps_are_limited_to_the_time_of_the_request() {
    let clock = Offset(100).between(50, 150);
    for (vm_ns, expect) in [(0, 100), (i64::MIN, 50), (i64::MAX, 150), (-60, 50), (60, 150)] {
        assert_eq!(clock.to_recorder(vm_ns), expect);
    }
}

#[test]
fn long_texts_are_truncated() {
    let mut recording = Recording::default();
    let row = map(&[
        ("id", Value::binary(vec![b'x'; 100_000])),
        ("kind", binary("tcp_inet")),
        ("in_bytes", Value::from(1i64)),
        ("out_bytes", Value::from(2i64)),
        ("queue_bytes", Value::from(3i64)),
    ]);
    let ports = done(
        "ports",
        &[
            ("rows", Value::list([row])),
            ("scanned", Value::from(1i64)),
            ("owners", Value::list([])),
            ("kinds", Value::list([])),
        ],
    );
    let sample = recording.add(vec![ports]).unwrap();
    assert_eq!(sample.ports[0].id.len(), MAX_CHARACTERS);
}

#[test]
fn exits_become_rows_with_parent_and_reason() {
    let call = |module, function| Value::tuple([binary(module), binary(function), Value::from(1i64)]);
    let frame = Value::tuple([call("shop", "buy"), Value::from(33i64)]);
    let common = |reason: &[(&'static str, Value<'static>)]| {
        let mut pairs = vec![
            ("parent", binary("<0.9.0>")),
            ("parent_name", binary("shop_sup")),
            ("parent_call", call("supervisor", "shop_sup")),
            ("count", Value::from(3i64)),
            ("heap_limit_words", Value::from(0i64)),
        ];
        pairs.extend(reason.iter().cloned());
        map(&pairs)
    };
    let crash = [
        ("name", binary("order_server")),
        ("call", call("order_server", "init")),
        ("reason", binary("badmatch")),
        ("stack", Value::list([frame])),
        ("to", binary("")),
    ];
    let rows = Value::list([common(&crash), common(&[])]);
    let pairs = [("monitored", Value::from(5i64)), ("supervisors", Value::from(9i64)), ("rows", rows)];
    let mut recording = Recording::default();
    let sample = recording.add(vec![done("crashes", &pairs)]).unwrap();
    assert!(sample.gaps.is_empty(), "{:?}", sample.gaps);
    let [crash, normal] = &sample.exits[..] else { panic!("{:?}", sample.exits) };
    assert_eq!(crash.parent_call.as_deref(), Some("supervisor:shop_sup/1"));
    assert_eq!((crash.name.as_deref(), crash.reason.as_deref()), (Some("order_server"), Some("badmatch")));
    assert_eq!((&crash.stack[..], crash.callee.as_deref()), (&[("shop:buy/1".to_owned(), 33)][..], None));
    assert_eq!((normal.count, &normal.reason, &normal.call), (3, &None, &None));
    let readings = recording.readings(&sample);
    assert!(readings.contains(&"processes//monitored=5".to_owned()), "{readings:?}");
}

#[test]
fn common_prefixes_of_new_atoms_become_rows() {
    let beginnings = Value::list([Value::tuple([binary("cart-"), Value::from(45i64)])]);
    let pairs = [("new", Value::from(400i64)), ("sampled", Value::from(50i64)), ("beginnings", beginnings)];
    let sample = Recording::default().add(vec![done("atoms", &pairs)]).unwrap();
    assert!(sample.gaps.is_empty(), "{:?}", sample.gaps);
    let [row] = &sample.spawns[..] else { panic!("{:?}", sample.spawns) };
    assert_eq!((row.what.as_str(), row.kind.as_str()), ("atom", "cart-"));
    assert_eq!((row.count, row.sample_size, &row.creator), (45, 50, &None));
    for release in [23, 25, 27, 29] {
        let mut recording = Recording::default();
        recording.add_fixture(&format!("r{release}-sample-facts"));
        let sample = recording.add_fixture(&format!("r{release}-sample-slow"));
        let row = sample.spawns.iter().find(|row| row.what == "atom" && row.kind == "größe-");
        assert!(
            row.is_some_and(|row| row.count == 20 && row.sample_size >= 20),
            "OTP {release}: {:?}",
            sample.spawns
        );
    }
}

#[test]
fn objects_of_exited_processes_in_growing_tables_become_series() {
    let row = Value::tuple([binary("carts"), Value::from(500i64), Value::from(64_000i64)]);
    let ended = |id, place| {
        let numbers = [100i64, 90].map(Value::from);
        let [sampled, with_pid] = numbers;
        Value::tuple([binary(id), sampled, Value::atom(place), with_pid, Value::from(80i64)])
    };
    let found = Value::list([ended("carts", "in_key"), ended("", "key"), ended("log", "none")]);
    let pairs = [("followed", Value::from(20i64)), ("rows", Value::list([row])), ("ended", found)];
    let mut recording = Recording::default();
    let sample = recording.add(vec![done("table_growth", &pairs)]).unwrap();
    assert!(sample.gaps.is_empty(), "{:?}", sample.gaps);
    let readings = recording.readings(&sample);
    for reading in [
        "table//followed=20",
        "table/carts/rows=500",
        "table/carts/memory=64000",
        "table/carts/sampled_rows=100",
        "table/carts/pid_place=2",
        "table/carts/rows_with_pid=90",
        "table/carts/rows_of_ended=80",
        "table/log/pid_place=0",
    ] {
        assert!(readings.contains(&reading.to_owned()), "{reading}: {readings:?}");
    }
    for release in [23, 25, 27, 29] {
        let mut recording = Recording::default();
        recording.add_fixture(&format!("r{release}-sample-facts"));
        let sample = recording.add_fixture(&format!("r{release}-sample-hot"));
        let readings = recording.readings(&sample);
        assert!(readings.iter().any(|reading| reading.starts_with("table//followed=")), "{readings:?}");
    }
}

#[test]
fn binaries_in_tables_become_series() {
    let numbers = [500i64, 100, 3, 90, 9_000, 900_000, 800_000].map(Value::from);
    let found = |id| Value::tuple([vec![binary(id)], numbers.to_vec()].concat());
    let holder = map(&[
        ("name", binary("carts")),
        ("owner", binary("<0.55.0>")),
        ("size", Value::from(500i64)),
        ("memory_bytes", Value::from(64_000i64)),
    ]);
    let pairs = [
        ("followed", Value::from(20i64)),
        ("rows", Value::list([])),
        ("ended", Value::list([])),
        ("binaries", Value::list([found("carts"), found("")])),
        ("holders", Value::list([holder])),
    ];
    let mut recording = Recording::default();
    let sample = recording.add(vec![done("table_growth", &pairs)]).unwrap();
    assert!(sample.gaps.is_empty(), "{:?}", sample.gaps);
    let [row] = &sample.tables[..] else { panic!("{:?}", sample.tables) };
    assert_eq!((row.id.as_str(), row.owner.as_str(), row.objects), ("carts", "<0.55.0>", 500));
    let readings = recording.readings(&sample);
    for reading in [
        "table/carts/binary_rows=500",
        "table/carts/binary_sampled_rows=100",
        "table/carts/binary_hidden_rows=3",
        "table/carts/binaries=90",
        "table/carts/binary_bytes=9000",
        "table/carts/binary_referenced=900000",
        "table/carts/binary_held=800000",
    ] {
        assert!(readings.contains(&reading.to_owned()), "{reading}: {readings:?}");
    }
    for release in [23, 25, 27, 29] {
        let mut recording = Recording::default();
        recording.add_fixture(&format!("r{release}-sample-facts"));
        let sample = recording.add_fixture(&format!("r{release}-sample-binaries"));
        let readings = recording.readings(&sample);
        assert!(
            readings.contains(&"table/of_shared/binary_rows=1000".to_owned()),
            "OTP {release}: {readings:?}"
        );
        assert!(readings.contains(&"vm//sockets_passive=0".to_owned()), "OTP {release}: {readings:?}");
        assert!(sample.tables.iter().any(|row| row.id == "of_shared"), "OTP {release}: {:?}", sample.tables);
    }
}

/// On a node with very many tables or ports, a separate process builds their list. Until the list is complete, the agent reports
/// only their number.
#[test]
fn tables_and_ports_without_a_list_add_nothing() {
    let mut recording = Recording::default();
    let not_yet = |name, more: &[&'static str]| {
        let numbers = [("total", 40_000i64), ("scanned", 0), ("round", 0), ("part", 0)];
        let mut pairs: Vec<_> = numbers.map(|(key, number)| (key, Value::from(number))).to_vec();
        pairs.push(("last", Value::atom("false")));
        pairs.extend(more.iter().map(|&key| (key, Value::list([]))));
        done(name, &pairs)
    };
    let items = vec![not_yet("ets", &["rows", "owners"]), not_yet("ports", &["rows", "owners", "kinds"])];
    let sample = recording.add(items).unwrap();
    assert!(sample.tables.is_empty() && sample.ports.is_empty() && sample.spawns.is_empty());
    assert!(sample.gaps.is_empty() && sample.events.is_empty());
    assert_eq!(recording.readings(&sample), Vec::<String>::new());
}

/// Generates terms similar to an agent's, with arbitrary values.
fn anything() -> impl Strategy<Value = Value<'static>> {
    let keys = prop::sample::select(vec![
        "states",
        "threads",
        "rows",
        "lengths",
        "active",
        "total",
        "scanned",
        "part",
        "last",
        "new",
        "gone",
        "queue_sum",
        "queue_max",
        "queue_nonempty",
        "top_reductions",
        "top_queues",
        "skipped",
        "by",
        "pid",
        "name",
        "heap_bytes",
        "reductions",
        "message_queue_len",
        "owners",
        "kinds",
        "instances",
        "foreign",
        "fixed",
        "mseg",
        "mmap",
        "schedulers",
        "dirty_cpu_schedulers",
        "word_bytes",
        "creation",
        "start_ns",
        "native_per_s",
        "emu_args",
        "calls",
        "sampled",
        "schedulers_online",
        "applications",
        "env",
        "init_args",
        "free_bounds",
        "skipped",
        "left_out",
        "bounds",
        "unscanned_bytes",
        "complete",
        "binaries",
        "told",
        "memory_before",
        "memory_after",
        "by_chance",
        "rest_bytes",
        "classes",
        "categories",
        "end_ns",
        "duration_us",
        "locks",
        "singles",
        "disturbed",
        "left_out",
        "unplaced",
        "cost_bytes",
    ]);
    let leaf = prop_oneof![
        any::<i128>().prop_filter("127 bits", |value| *value != i128::MIN).prop_map(Value::Integer),
        any::<i64>().prop_map(Value::from),
        prop::sample::select(vec!["true", "false", "undefined", "running", "gc"]).prop_map(Value::atom),
        proptest::collection::vec(any::<u8>(), 0..20).prop_map(Value::binary),
    ];
    leaf.prop_recursive(5, 120, 12, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..13).prop_map(Value::Tuple),
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::List),
            proptest::collection::vec((keys.clone().prop_map(Value::atom), inner), 0..16)
                .prop_map(Value::Map),
        ]
    })
}

proptest! {
    #[test]
    fn arbitrary_answers_never_panic(
        values in proptest::collection::vec(anything(), 1..ITEMS.len() + 1),
        cost in anything(),
    ) {
        let items: Vec<_> =
            ITEMS.iter().zip(values.iter()).map(|(it, value)| item(it.name, "ok", value.clone())).collect();
        let mut recording = Recording::default();
        let _ = recording.add_raw(answer(items.clone(), cost.clone()));
        let _ = recording.add_raw(answer(items, cost));
    }

    #[test]
    fn arbitrary_host_files_never_panic(
        results in proptest::collection::vec((prop::sample::select(vec!["ok", "cut", "link", "count", "threads", "error"]), anything(), anything()), 0..6),
        is_pair in proptest::collection::vec(any::<bool>(), 6),
    ) {
        let results = results.into_iter().zip(is_pair).map(|((tag, one, other), is_pair)| {
            let tag = Value::atom(tag);
            if is_pair { Value::tuple([tag, one]) } else { Value::tuple([tag, one, other]) }
        });
        let host = done("host", &[("told", Value::List(results.collect()))]);
        let document = Document::decode(answer(vec![host], cost(1, 1)).to_bytes().unwrap(), 0, Limits::default()).unwrap();
        let Ok(AgentMessage::Sample(answer)) = AgentMessage::parse(document) else { panic!("no sample") };
        let path = || "/proc/stat".to_owned();
        let asks = vec![
            FileRequest::Read { path: path(), max_bytes: 9 },
            FileRequest::Link(path()),
            FileRequest::Count(path()),
            FileRequest::Threads { all: true },
        ];
        for rotate in 0..asks.len() {
            let mut asks = asks.clone();
            asks.rotate_left(rotate);
            let found = files::read(&answer, asks).unwrap().results;
            prop_assert!(found.is_err() || found.is_ok_and(|found| found.len() == 4));
        }
    }
}

#[test]
fn readings_before_a_malformed_item_are_kept_once() {
    let mut recording = Recording::default();
    let memory = || done("memory", &[("total", Value::from(3i64))]);
    let value = answer(vec![memory(), memory(), Value::list([])], cost(10, 5));
    let document = Document::decode(value.to_bytes().unwrap(), 0, Limits::default()).unwrap();
    let Ok(AgentMessage::Sample(answer)) = AgentMessage::parse(document) else { panic!("no sample") };
    let tick = Tick { t: 0, incarnation: 0, vm: None, host: None, late: 0 };
    let mut out = SampleBuilder::new(&mut recording.table, tick);
    recording.decoder.add(&answer, Offset(0).between(0, 1), &mut out).unwrap_err();
    let sample = out.sample;
    assert_eq!(recording.readings(&sample), ["memory//total=3"]);
}
