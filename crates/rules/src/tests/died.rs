//! Tests of the rule on why a node died, from its crash dump.

use beamtune_model::{
    Event, Finding, Level, Outcome, Period, PeriodBuilder, ProcessRow, SampleBuilder, SeriesTable, Span,
    TableRow, Tick, facts, metrics,
};

use super::node::node;
use super::{Read, assert_healthy, entries, outcome};

const MB: i64 = 1_000_000;

/// A crash dump.
struct Dump {
    slogan: &'static str,
    facts: Vec<(&'static str, &'static str)>,
    /// Memory by kind, in MB.
    memory: Vec<(&'static str, i64)>,
    processes: Vec<ProcessRow>,
    tables: Vec<TableRow>,
    /// Size of the literal area.
    literals_mib: Option<i64>,
}

impl Dump {
    fn period(self) -> Period {
        let mut table = SeriesTable::default();
        let tick = Tick { t: 0, incarnation: 0, vm: Some(Span { begin: 0, end: 0 }), host: None, late: 0 };
        let mut out = SampleBuilder::new(&mut table, tick);
        let of_all = [
            (facts::IMPORTED_FROM, facts::CRASH_DUMP),
            (facts::OTP_RELEASE, "27"),
            (facts::CRASH_SLOGAN, self.slogan),
        ];
        for (key, value) in of_all.into_iter().chain(self.facts) {
            out.fact(key, value);
        }
        for (kind, megabytes) in self.memory {
            out.family(&metrics::MEMORY, "", kind, megabytes * MB);
        }
        out.metric(&metrics::ATOM_COUNT, "", 9_000);
        out.metric(&metrics::ETS_COUNT, "", 20);
        if let Some(mib) = self.literals_mib {
            out.metric(&metrics::MMAP_TOTAL, "literal", mib << 20);
        }
        out.sample.processes = self.processes;
        out.sample.tables = self.tables;
        let sample = out.sample;
        let mut builder = PeriodBuilder::default();
        builder.sample(&sample, &table);
        builder.finish()
    }

    fn findings(self) -> Vec<Finding> {
        match outcome(&self.period(), "BT038") {
            Outcome::Found(findings) => findings,
            other => panic!("{other:?}"),
        }
    }

    fn finding(self) -> Finding {
        self.findings().into_iter().next().expect("a finding")
    }
}

fn dump(slogan: &'static str) -> Dump {
    Dump {
        slogan,
        facts: Vec::new(),
        memory: vec![("total", 1_000), ("processes", 800), ("binary", 100), ("ets", 50)],
        processes: vec![process("<0.5.0>", "cache", 500, 3), process("<0.7.0>", "report", 200, 0)],
        tables: Vec::new(),
        literals_mib: None,
    }
}

fn process(pid: &str, name: &str, megabytes: i64, queue: i64) -> ProcessRow {
    ProcessRow {
        pid: pid.to_owned(),
        name: Some(name.to_owned()),
        memory_bytes: megabytes * MB,
        queue,
        ..ProcessRow::default()
    }
}

const NO_HEAP: &str = "eheap_alloc: Cannot allocate 367904368 bytes of memory (of type \"heap\").";

#[test]
fn the_largest_holder_is_named_unless_the_running_process_held_nearly_as_much() {
    let running = |pid, megabytes| {
        let mut dump = dump(NO_HEAP);
        dump.facts.push((facts::CRASH_PROCESS, pid));
        dump.processes[1].memory_bytes = megabytes * MB;
        dump.finding()
    };
    let small = running("<0.7.0>", 200);
    assert_eq!((small.level, small.subject_text().as_deref()), (Level::Critical, Some("cache (<0.5.0>)")));
    assert_eq!(small.title, "Node died: out of memory; cache held 500 MB of 1000 MB");
    assert_eq!(small.detail, "eheap_alloc could not allocate 368 MB of type \"heap\"; <0.5.0>");
    assert_eq!(entries(&small), ["process.max_heap_size", "host.memory_limit"]);
    assert_eq!(running("<0.7.0>", 300).subject_text().as_deref(), Some("report (<0.7.0>)"));
    assert_eq!(
        running("<0.99.0>", 300).subject_text().as_deref(),
        Some("cache (<0.5.0>)"),
        "the running process is not among the rows"
    );
}

#[test]
fn memory_of_tables_and_binaries_is_reported_with_its_holder() {
    let mut tables = dump(NO_HEAP);
    tables.memory[3].1 = 900;
    tables.tables = vec![TableRow {
        id: "sessions".to_owned(),
        name: "sessions".to_owned(),
        owner: "<0.5.0>".to_owned(),
        objects: 7_000,
        memory_bytes: 850 * MB,
        ..TableRow::default()
    }];
    let found = tables.finding();
    assert_eq!(found.subject_text().as_deref(), Some("sessions of cache (<0.5.0>)"));
    let texts: Vec<_> = found.evidence.iter().filter_map(|evidence| evidence.text.as_deref()).collect();
    assert!(texts.contains(&"7,000 objects, owner cache (<0.5.0>)"), "{texts:?}");
    assert!(entries(&found).contains(&"code.bounded_table"));

    let mut binaries = dump("binary_alloc: Cannot allocate 1000 bytes of memory (of type \"binary\").");
    binaries.memory[2].1 = 900;
    binaries.processes[1].binary_bytes = Some(700 * MB);
    let found = binaries.finding();
    assert_eq!(found.subject_text().as_deref(), Some("report (<0.7.0>)"));
    assert_eq!(entries(&found), ["code.binary_copy", "host.memory_limit"]);
}

#[test]
fn operators_of_products_are_not_advised_to_change_code_or_delete_data() {
    let advised = |fact: &'static str, value: &'static str, most: usize| {
        let mut dump = dump(NO_HEAP);
        dump.facts.push((fact, value));
        dump.memory[most].1 = 900;
        let found = dump.finding();
        entries(&found).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    for most in [1, 2, 3] {
        for (fact, value) in [(facts::PRODUCT, "RabbitMQ 4.1.0"), (facts::NODE_NAME, "emqx@10.0.0.7")] {
            assert_eq!(advised(fact, value, most), ["host.memory_limit"], "{fact} {most}");
        }
        // Another program may have a release with a similar name.
        assert!(advised(facts::PRODUCT, "release rabbits", most).len() > 1, "{most}");
    }
}

#[test]
fn allocations_that_cannot_be_a_leak_are_recognized() {
    let wrong =
        dump("binary_alloc: Cannot allocate 1152921504606847000 bytes of memory (of type \"binary\").")
            .finding();
    assert!(wrong.against.iter().any(|against| against.contains("a wrong size")), "{:?}", wrong.against);
    assert!(entries(&wrong).is_empty(), "{:?}", entries(&wrong));
    let advised = |literals_mib| {
        let mut literal = dump("literal_alloc: Cannot allocate 70000 bytes of memory (of type \"literal\").");
        literal.literals_mib = literals_mib;
        let found = literal.finding();
        assert_eq!(entries(&found), ["+MIscs"]);
        found.remedies[0].change.clone()
    };
    assert_eq!(advised(None), "+MIscs 2048");
    assert_eq!(advised(Some(4_096)), "+MIscs 8192", "twice the size that it had");
    let mut queue = dump(NO_HEAP);
    queue.processes[0].queue = 2_000;
    queue.facts.push((facts::CRASH_PROCESS, "<0.5.0>"));
    assert_eq!(entries(&queue.finding())[0], "code.back_pressure");
}

#[test]
fn full_tables_failed_applications_and_failed_starts_are_reported() {
    let mut atoms = dump("no more index entries in atom_tab (max=20000)");
    atoms.facts.push((facts::CRASH_PROCESS, "<0.7.0>"));
    let atoms = atoms.finding();
    assert_eq!(atoms.subject_text().as_deref(), Some("report (<0.7.0>)"));
    assert_eq!(entries(&atoms), ["code.no_atoms_from_input", "+t"]);
    assert_eq!(atoms.remedies[1].change, "+t 80000");
    let modules = dump("no more index entries in module_code (max=65536)").finding();
    assert_eq!(
        (modules.subject_text().as_deref(), entries(&modules)),
        (None, vec!["code.no_code_at_run_time"])
    );
    let check = |slogan, subject, expect: &[&str]| {
        let found = dump(slogan).finding();
        assert_eq!(
            (found.level, found.subject_text().as_deref()),
            (Level::Critical, Some(subject)),
            "{slogan}"
        );
        assert_eq!(entries(&found), expect, "{slogan}");
    };
    check(
        "Kernel pid terminated (application_controller) ({application_terminated,shop,shutdown})",
        "shop",
        &["code.permanent_application", "host.restart"],
    );
    check(
        "Kernel pid terminated (application_controller) (\"{application_start_failure,'my shop',{bad_return,x}}\")",
        "my shop",
        &["code.permanent_application", "host.restart"],
    );
    check("Kernel pid terminated (logger) (killed)", "logger", &["host.restart"]);
    check("init terminating in do_boot ({undef,[]})", "start", &["host.restart"]);
    check("erl_child_setup closed", "erl_child_setup", &[]);
    check("gone for good", "erlang:halt/1", &[]);
}

#[test]
fn a_requested_dump_is_no_crash_and_its_longest_queues_are_reported() {
    let mut requested = dump("Received SIGUSR1");
    requested.processes[0].queue = 1_000_000;
    requested.processes[1].queue = 4_999;
    let found = requested.findings();
    let subjects: Vec<_> = found.iter().map(|found| (found.level, found.subject_text())).collect();
    assert_eq!(
        subjects,
        [
            (Level::Warning, Some("asked for".to_owned())),
            (Level::Warning, Some("cache (<0.5.0>)".to_owned()))
        ]
    );
    assert_eq!(found[1].title, "cache had 1,000,000 queued messages when the node died");
    assert_eq!(entries(&found[1]), ["code.back_pressure"]);
}

#[test]
fn an_incomplete_dump_gets_advice_for_a_complete_one() {
    let cut = |missing| {
        let mut dump = dump("Received SIGUSR1");
        dump.facts.push((facts::CRASH_DUMP_MISSING, missing));
        entries(&dump.finding()).first().map(|entry| (*entry).to_owned())
    };
    assert_eq!(cut("(CRASH DUMP SIZE LIMIT REACHED)").as_deref(), Some("ERL_CRASH_DUMP_BYTES"));
    assert_eq!(cut("it ends in the middle").as_deref(), Some("ERL_CRASH_DUMP_SECONDS"));
    assert!(matches!(outcome(&dump("").period(), "BT038"), Outcome::NotJudged { .. }), "no slogan");
}

#[test]
fn rules_on_change_over_time_do_not_judge_one_moment() {
    for code in ["BT006", "BT010", "BT023", "BT027"] {
        let outcome = outcome(&dump("Received SIGUSR1").period(), code);
        let Outcome::NotJudged { reason, .. } = outcome else { panic!("{code}: {outcome:?}") };
        assert!(reason.contains("one moment"), "{code}: {reason}");
    }
}

#[test]
fn a_node_that_answers_is_alive_and_one_that_is_gone_is_not() {
    assert_healthy(&node(), "BT038");
    let mut lost = node().period();
    let detail = "connection closed".to_owned();
    lost.events.push(Event { t: 0, kind: "gone".to_owned(), subject: String::new(), detail });
    assert!(matches!(outcome(&lost, "BT038"), Outcome::NotJudged { .. }));
}
