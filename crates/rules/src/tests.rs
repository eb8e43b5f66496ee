//! Every rule on a sick and on a cured node, on one that lacks its data, and every branch of advice.
//! (Real nodes are judged in the binary's own tests.)

mod node;

use beamtune_model::{Code, Finding, Level, Outcome, Period, ProcessRow, SpawnRow, facts, metrics};

use crate::{RULES, diagnose};
use node::{Busy, Happens, Node, node};

fn outcome(period: &Period, code: &str) -> Outcome {
    let diagnosis = diagnose(period);
    diagnosis
        .verdicts
        .into_iter()
        .find(|verdict| verdict.code.0 == code)
        .expect("a rule of that code")
        .outcome
}

fn finding(node: &Node, code: &str) -> Finding {
    match outcome(&node.period(), code) {
        Outcome::Found(findings) => findings.into_iter().next().expect("a finding"),
        other => panic!("{code}: {other:?}"),
    }
}

fn assert_healthy(node: &Node, code: &str) {
    let outcome = outcome(&node.period(), code);
    assert!(matches!(outcome, Outcome::Healthy(_)), "{code}: {outcome:?}");
}

fn entries(finding: &Finding) -> Vec<&str> {
    finding.remedies.iter().map(|remedy| remedy.entry.as_str()).collect()
}

fn row(change: impl FnOnce(&mut ProcessRow)) -> ProcessRow {
    let mut row = ProcessRow::default();
    change(&mut row);
    row
}

fn spawn(what: &str, kind: &str, maker: &str) -> SpawnRow {
    SpawnRow {
        what: what.to_owned(),
        kind: kind.to_owned(),
        maker: Some(maker.to_owned()),
        count: 150,
        of: 200,
        t: 0,
    }
}

#[test]
fn codes_are_unique_and_in_order() {
    let codes: Vec<_> = RULES.iter().map(|rule| rule.code).collect();
    let expect: Vec<_> = (1..=codes.len()).map(|n| format!("BT{n:03}")).collect();
    assert_eq!(codes.iter().map(|code| code.0).collect::<Vec<_>>(), expect);
}

/// A page that nobody wrote, and a page that nobody can reach, are both found here.
#[test]
fn every_rule_has_its_file_and_its_page() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let stems = |folder: &str, ending: &str| -> Vec<String> {
        let mut stems: Vec<String> = std::fs::read_dir(root.join(folder))
            .expect("a folder")
            .filter_map(|entry| {
                entry.ok()?.file_name().into_string().ok()?.strip_suffix(ending).map(str::to_owned)
            })
            .filter(|stem| stem != "README" && stem != "limits")
            .collect();
        stems.sort();
        stems
    };
    let mut names: Vec<_> = RULES.iter().map(|rule| rule.name.to_owned()).collect();
    names.sort();
    assert_eq!(stems("../../docs/rules", ".md"), names);
    let files: Vec<_> = stems("src/rules", ".rs").iter().map(|stem| stem.replace('_', "-")).collect();
    assert_eq!(files, names);
    for rule in RULES {
        let page = std::fs::read_to_string(root.join("../../docs/rules").join(format!("{}.md", rule.name)));
        let page = page.expect("its page");
        let heading = format!("# {} {}", rule.code, rule.name);
        assert!(page.starts_with(&heading), "{} does not begin with {heading:?}", rule.name);
    }
}

#[test]
fn a_healthy_node_has_no_finding() {
    let diagnosis = diagnose(&node().period());
    let above: Vec<_> = diagnosis.findings().into_iter().filter(|f| f.level > Level::Notice).collect();
    assert!(above.is_empty(), "{above:#?}");
    let unjudged: Vec<_> =
        diagnosis.verdicts.iter().filter(|v| matches!(v.outcome, Outcome::NotJudged { .. })).collect();
    assert!(unjudged.is_empty(), "{unjudged:#?}");
}

#[test]
fn nothing_is_called_healthy_without_data() {
    for verdict in diagnose(&Period::default()).verdicts {
        assert!(
            matches!(verdict.outcome, Outcome::NotJudged { .. }),
            "{}: {:?}",
            verdict.code,
            verdict.outcome
        );
    }
}

#[test]
fn a_rule_that_lacks_what_it_needs_does_not_judge() {
    for rule in RULES {
        for needed in rule.needs {
            let period = node()
                .with(|n| {
                    n.without.push(needed);
                    n.quota = Some(1_000);
                })
                .period();
            let outcome = outcome(&period, rule.code.0);
            assert!(
                matches!(outcome, Outcome::NotJudged { .. }),
                "{} without {}: {outcome:?}",
                rule.code,
                needed.name
            );
        }
    }
}

#[test]
fn every_remedy_named_in_the_rules_has_an_entry() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/rules");
    let mut ids = Vec::new();
    for entry in std::fs::read_dir(root).expect("the rules") {
        let text = std::fs::read_to_string(entry.expect("a file").path()).expect("its text");
        for (index, _) in text.match_indices("remedy::of(") {
            let call = &text[index..];
            let id = call.split('"').nth(1).expect("a literal id");
            ids.push(id.to_owned());
        }
    }
    assert!(ids.len() > 20, "{ids:?}");
    for id in ids {
        let entry = beamtune_flags::entry(&id).unwrap_or_else(|| panic!("no entry {id}"));
        assert!(!entry.risk.to_string().is_empty(), "{id} says nothing of its risk");
        assert!(!entry.releases(Some(25)).is_empty(), "{id} does not say for which releases");
    }
}

fn spinning() -> Node {
    node().with(|n| {
        n.active = 0.02;
        n.cpu = 0.20;
    })
}

#[test]
fn cpu_without_activity_is_busy_waiting() {
    let finding = finding(&spinning(), "BT001");
    assert_eq!(finding.level, Level::Warning);
    assert_eq!(entries(&finding), ["+sbwt"]);
    // Work is not.
    assert_healthy(&node(), "BT001");
    // Nor is it worth a word where hardly any CPU is used.
    assert_healthy(&spinning().with(|n| n.cpu = 0.04), "BT001");
}

#[test]
fn busy_waiting_that_is_switched_off_is_not_blamed() {
    let off = r#"["-sbwt","none","-sbwtdcpu","none","-sbwtdio","none"]"#;
    assert_healthy(&spinning().with(|n| n.facts.push((facts::EMU_ARGS, off.to_owned()))), "BT001");
    // Off for normal schedulers only, and those are the ones that would spin.
    let half = r#"["-sbwt","none"]"#;
    assert_healthy(&spinning().with(|n| n.facts.push((facts::EMU_ARGS, half.to_owned()))), "BT001");
}

#[test]
fn dirty_io_that_waits_for_a_disk_does_not_hide_busy_waiting() {
    assert_eq!(finding(&spinning().with(|n| n.dirty_io_active = 0.9), "BT001").level, Level::Warning);
}

#[test]
fn going_to_sleep_and_waking_up_is_not_busy_waiting() {
    assert_healthy(&spinning().with(|n| n.voluntary_switches = 7_000), "BT001");
}

#[test]
fn busy_waiting_that_a_quota_punishes_is_critical() {
    let node = spinning().with(|n| {
        n.quota = Some(500);
        n.throttled_periods_of_10 = 5;
        n.throttled = 0.8;
    });
    assert_eq!(finding(&node, "BT001").level, Level::Critical);
    // Neighbours that wait may be the cause of the wait themselves.
    assert_eq!(finding(&spinning().with(|n| n.wait = 0.9), "BT001").level, Level::Warning);
}

#[test]
fn a_used_up_quota_is_throttling() {
    let sick = node().with(|n| {
        n.quota = Some(500);
        n.throttled_periods_of_10 = 4;
        n.throttled = 0.4;
    });
    assert_eq!(finding(&sick.clone().with(|n| n.throttled = 0.005), "BT002").level, Level::Notice);
    let found = finding(&sick, "BT002");
    assert_eq!(found.level, Level::Critical);
    assert_eq!(entries(&found), ["host.cpu_quota", "+S", "+sbwt"]);
    assert_healthy(&sick.clone().with(|n| n.throttled_periods_of_10 = 0), "BT002");
    assert_healthy(&node(), "BT002");
    // With as many schedulers as the quota gives there is no +S to recommend.
    let fits = sick.with(|n| n.quota = Some(2_000));
    assert_eq!(entries(&finding(&fits, "BT002")), ["host.cpu_quota", "+sbwt"]);
}

#[test]
fn schedulers_are_held_against_quota_and_cpus() {
    let check = |schedulers: usize, cpus: i64, quota: Option<i64>, expect: Option<Level>| {
        let node = node().with(|n| {
            n.schedulers = schedulers;
            n.cpus = cpus;
            n.quota = quota;
            n.wait = 0.2;
        });
        match expect {
            Some(level) => {
                assert_eq!(finding(&node, "BT003").level, level, "{schedulers} on {cpus}, {quota:?}");
            }
            None => assert_healthy(&node, "BT003"),
        }
    };
    check(2, 2, None, None);
    check(4, 4, Some(1_000), Some(Level::Warning));
    check(2, 2, Some(1_500), Some(Level::Notice));
    check(2, 8, Some(2_000), None);
    check(8, 2, None, Some(Level::Warning));
    // A quota below one core cannot be met by fewer than one scheduler.
    check(1, 2, Some(500), None);
    // As long as nothing is lost it is only worth knowing.
    assert_eq!(finding(&node().with(|n| n.schedulers = 8), "BT003").level, Level::Notice);
}

#[test]
fn waiting_for_a_cpu_is_blamed_on_who_has_it() {
    let starved = node().with(|n| {
        n.wait = 0.5;
        n.foreign = 1.3;
    });
    let found = finding(&starved, "BT004");
    assert!(found.summary.contains("other processes"), "{}", found.summary);
    assert_eq!(entries(&found), ["host.cpu_isolation", "+sbwt"]);
    // Many short waits are what waking up takes.
    let wakes = starved.clone().with(|n| n.voluntary_switches = 20_000);
    assert_eq!(finding(&wakes, "BT004").level, Level::Notice);
    // Where a quota stops the VM, waiting says nothing of neighbours.
    let throttled = starved.clone().with(|n| {
        n.quota = Some(500);
        n.throttled_periods_of_10 = 8;
        n.throttled = 0.3;
    });
    let found = finding(&throttled, "BT004");
    assert_eq!((found.level, entries(&found)), (Level::Notice, vec![]));
    // More schedulers than CPUs displace each other.
    let itself = starved.clone().with(|n| {
        n.schedulers = 8;
        n.foreign = 0.05;
    });
    let found = finding(&itself, "BT004");
    assert!(found.summary.contains("the VM's own threads"), "{}", found.summary);
    assert_eq!(entries(&found), ["+S", "+sbwt"]);
    // As many schedulers as CPUs, but dirty ones beside them.
    let found = finding(&starved.with(|n| n.foreign = 0.05), "BT004");
    assert_eq!(entries(&found), ["host.cpu_isolation", "+sbwt"]);
}

#[test]
fn stolen_time_is_named() {
    let found = finding(&node().with(|n| n.steal = 0.4), "BT004");
    assert_eq!(found.subject.as_deref(), Some("steal"));
    // On an idle guest a share says nothing.
    assert_healthy(&node().with(|n| (n.steal, n.foreign, n.cpu) = (0.04, 0.0, 0.01)), "BT004");
}

fn serial() -> Node {
    node().with(|n| {
        n.active = 0.5;
        n.cpu = 0.5;
        n.busiest = vec![Busy {
            pid: "<0.99.0>",
            reductions: 800_000,
            queue: (30, 0),
            runnable_of_10: 10,
            row: row(|r| {
                r.name = Some("router".to_owned());
                r.current_function = Some("router:handle/2".to_owned());
            }),
        }];
    })
}

#[test]
fn one_busy_process_with_a_queue_is_the_bottleneck() {
    let found = finding(&serial(), "BT005");
    assert_eq!(found.level, Level::Critical);
    assert_eq!(found.subject.as_deref(), Some("router (<0.99.0>)"));
    assert_eq!(entries(&found), ["code.split_process", "code.cheaper_callback"]);
    // Nobody waits: one long job, worth a notice.
    assert_eq!(finding(&serial().with(|n| n.busiest[0].queue = (0, 0)), "BT005").level, Level::Notice);
    // No idle scheduler: short of CPU, not of parallelism.
    assert_eq!(finding(&serial().with(|n| n.active = 0.98), "BT005").level, Level::Notice);
    // "Running" on a dirty scheduler, while the normal ones do nothing.
    assert_eq!(finding(&serial().with(|n| n.active = 0.01), "BT005").level, Level::Notice);
    // Several that are always busy are not one.
    assert_healthy(
        &serial().with(|n| {
            let pids = ["<0.1.0>", "<0.2.0>", "<0.3.0>"];
            n.busiest = pids.map(|pid| Busy { pid, reductions: 300_000, ..n.busiest[0].clone() }).to_vec();
        }),
        "BT005",
    );
    // Often idle itself.
    assert_healthy(&serial().with(|n| n.busiest[0].runnable_of_10 = 5), "BT005");
    // A small part of the work.
    assert_healthy(&serial().with(|n| n.busiest[0].reductions = 50_000), "BT005");
    assert_healthy(&serial().with(|n| n.schedulers = 1), "BT005");
}

fn queue(first: i64, growth: i64) -> Node {
    node().with(|n| {
        n.busiest = vec![Busy {
            queue: (first, growth),
            row: row(|r| {
                r.name = Some("sink".to_owned());
                r.message_queue_data = Some("on_heap".to_owned());
            }),
            ..Busy::default()
        }];
    })
}

#[test]
fn a_queue_that_grows_is_found_and_its_process_named() {
    let found = finding(&queue(2_000, 1_000), "BT006");
    assert_eq!(found.level, Level::Warning);
    assert_eq!(found.subject.as_deref(), Some("sink (<0.77.0>)"));
    assert_eq!(entries(&found), ["code.back_pressure", "code.split_process", "process.message_queue_data"]);
    assert_eq!(finding(&queue(2_000_000, 100_000), "BT006").level, Level::Critical);
    // Long but steady: worth knowing, no more.
    let steady = finding(&queue(50_000, 0), "BT006");
    assert_eq!((steady.level, entries(&steady)), (Level::Notice, vec!["code.back_pressure"]));
    assert_eq!(finding(&queue(500_000, 0), "BT006").level, Level::Warning);
    // Of a very long queue a growth that matters is a small part.
    assert!(finding(&queue(2_000_000, 5_000), "BT006").summary.contains("grows by 5000"));
    // Short queues grow and shrink all the time.
    assert_healthy(&queue(10, 20), "BT006");
    let off_heap =
        queue(2_000, 1_000).with(|n| n.busiest[0].row.message_queue_data = Some("off_heap".to_owned()));
    assert_eq!(entries(&finding(&off_heap, "BT006")), ["code.back_pressure", "code.split_process"]);
}

fn happens(kind: &'static str, milliseconds: i64, subject: &'static str) -> Node {
    node().with(|n| n.events = vec![Happens { kind, milliseconds, subject, from: 1 }])
}

#[test]
fn slices_and_collections_that_take_long_are_found_with_their_process() {
    let slow = finding(&happens("long_schedule", 300, "nif (<0.9.0>)"), "BT016");
    assert_eq!((slow.level, slow.subject.as_deref()), (Level::Warning, Some("nif (<0.9.0>)")));
    assert_eq!(entries(&slow), ["code.yielding_work"]);
    assert!(
        slow.summary.starts_with("10 time slices of 50 ms and more, the longest 300 ms"),
        "{}",
        slow.summary
    );
    assert_eq!(finding(&happens("long_schedule", 2_000, "nif"), "BT016").level, Level::Critical);
    // A single one may be the operating system's.
    let once = happens("long_schedule", 2_000, "nif").with(|n| n.events[0].from = 10);
    let once = finding(&once, "BT016");
    assert_eq!((once.level, once.against.len()), (Level::Notice, 1));

    let large = finding(&happens("long_gc", 700, "state (<0.77.0>)"), "BT017");
    assert_eq!((large.level, large.subject.as_deref()), (Level::Warning, Some("state (<0.77.0>)")));
    assert_eq!(entries(&large), ["code.less_garbage"]);
    let queued = happens("long_gc", 700, "state (<0.77.0>)")
        .with(|n| n.busiest = vec![Busy { queue: (50_000, 0), ..Busy::default() }]);
    assert_eq!(entries(&finding(&queued, "BT017")), ["code.less_garbage", "process.message_queue_data"]);

    // What the operating system took away is in the VM's clock too.
    for (kind, code) in [("long_schedule", "BT016"), ("long_gc", "BT017")] {
        let starved = happens(kind, 900, "any").with(|n| n.wait = 0.6);
        let starved = finding(&starved, code);
        assert_eq!((starved.level, starved.against.len()), (Level::Notice, 1), "{code}");
    }

    for code in ["BT016", "BT017", "BT018"] {
        assert_healthy(&node(), code);
    }
}

#[test]
fn processes_that_wait_for_another_node_are_found() {
    let many = happens("busy_dist_port", 0, "sender (<0.9.0>)").with(|n| {
        n.events = std::iter::repeat_n(n.events[0].clone(), 10).collect();
        n.facts.push((facts::DIST_BUF_BUSY_LIMIT, "1048576".to_owned()));
    });
    let found = finding(&many, "BT018");
    assert_eq!((found.level, entries(&found)), (Level::Warning, vec!["+zdbbl", "code.back_pressure"]));
    assert!(found.remedies[0].change.starts_with("+zdbbl 8192 (8 MB"), "{}", found.remedies[0].change);
    // A buffer that is large already is not what is missing.
    let large = many.with(|n| n.facts.push((facts::DIST_BUF_BUSY_LIMIT, "134217728".to_owned())));
    assert_eq!(entries(&finding(&large, "BT018")), ["code.back_pressure"]);
}

#[test]
fn tables_that_fill_up_are_found_and_their_makers_named() {
    let leak = node().with(|n| {
        n.processes = (20_000, 1_000);
        n.spawns = vec![spawn("process", "worker:init/1", "pool")];
    });
    let found = finding(&leak, "BT007");
    assert_eq!(found.level, Level::Critical);
    assert_eq!(found.subject.as_deref(), Some("worker:init/1 made by pool"));
    assert_eq!(entries(&found), ["code.bounded_processes", "+P"]);
    let full = finding(&node().with(|n| n.processes = (230_000, 0)), "BT007");
    assert_eq!((full.level, entries(&full)), (Level::Warning, vec!["+P"]));
    assert_healthy(&node().with(|n| n.processes = (100_000, 0)), "BT007");
}

#[test]
fn ports_and_descriptors_are_each_held_against_their_limit() {
    let files = node().with(|n| {
        n.open_files = 900;
        n.facts.push((facts::NOFILE_SOFT, "1024".to_owned()));
    });
    let found = finding(&files, "BT008");
    assert_eq!((found.level, entries(&found)), (Level::Warning, vec!["host.nofile"]));
    // Files are counted seldom; that ports grow tells where they are going.
    let few = node().with(|n| {
        n.ports = (300, 20);
        n.open_files = 500;
        n.facts.push((facts::NOFILE_SOFT, "1024".to_owned()));
    });
    assert_eq!(entries(&finding(&few, "BT008")), ["code.close_ports", "host.nofile"]);
    let leak = node().with(|n| {
        n.ports = (20_000, 500);
        n.spawns = vec![spawn("port", "tcp_inet", "acceptor")];
    });
    let found = finding(&leak, "BT008");
    assert_eq!(found.subject.as_deref(), Some("tcp_inet made by acceptor"));
    assert_eq!(entries(&found), ["code.close_ports", "+Q"]);
    assert_healthy(&node(), "BT008");
}

#[test]
fn atoms_that_grow_are_found() {
    let found = finding(&node().with(|n| n.atoms = (100_000, 5_000)), "BT009");
    assert_eq!((found.level, entries(&found)), (Level::Critical, vec!["code.no_atoms_from_input", "+t"]));
    let full = finding(&node().with(|n| n.atoms = (900_000, 0)), "BT009");
    assert_eq!(entries(&full), ["+t"]);
    assert_healthy(&node(), "BT009");
}

#[test]
fn ets_tables_that_only_grow_are_a_leak() {
    let leak = node().with(|n| {
        n.tables = (1_000, 50);
        n.spawns = vec![spawn("ets", "session_cache", "session_sup")];
    });
    let found = finding(&leak, "BT010");
    assert_eq!(found.level, Level::Warning);
    assert_eq!(found.subject.as_deref(), Some("session_cache made by session_sup"));
    assert_healthy(&node().with(|n| n.tables = (5_000, 0)), "BT010");
    assert_healthy(&node().with(|n| n.tables = (20, 2)), "BT010");
}

#[test]
fn garbage_collection_is_blamed_on_the_process_with_the_heap() {
    let sick = node().with(|n| {
        n.active = 0.8;
        n.cpu = 0.8;
        n.gc = 0.5;
    });
    let spread = finding(&sick, "BT011");
    assert_eq!((spread.level, entries(&spread)), (Level::Critical, vec!["code.less_garbage", "+hms"]));
    let one = sick.with(|n| {
        n.dirty_io_active = 0.9;
        n.busiest = vec![Busy {
            reductions: 500_000,
            row: row(|r| {
                r.name = Some("hoarder".to_owned());
                r.total_heap_words = Some(10_000_000);
            }),
            ..Busy::default()
        }];
    });
    let found = finding(&one, "BT011");
    assert_eq!(found.subject.as_deref(), Some("hoarder (<0.77.0>)"));
    assert_eq!(entries(&found), ["code.less_garbage", "process.min_heap_size"]);
    assert!(found.remedies[1].change.contains("15000000"), "{}", found.remedies[1].change);
    let swept = one.with(|n| n.busiest[0].row.fullsweep_after = Some(0));
    assert_eq!(entries(&finding(&swept, "BT011"))[0], "process.fullsweep_after");
    assert_healthy(&node(), "BT011");
}

#[test]
fn dirty_schedulers_are_saturated_when_work_waits_for_them() {
    let io = node().with(|n| {
        n.dirty_io_active = 0.99;
        n.dirty_io_queue = 7;
    });
    let found = finding(&io, "BT012");
    assert_eq!((found.level, entries(&found)), (Level::Critical, vec!["+SDio"]));
    assert!(found.remedies[0].change.contains("+SDio 20"));
    // In full use, but nothing waits.
    assert_eq!(finding(&io.with(|n| n.dirty_io_queue = 0), "BT012").level, Level::Notice);
    let cpu = node().with(|n| {
        n.dirty_cpu_active = 0.97;
        n.dirty_cpu_queue = 3;
    });
    assert_eq!(entries(&finding(&cpu, "BT012")), ["code.shorter_dirty_work"]);
    // Fewer threads than CPUs; and some that are not online.
    let few = cpu.clone().with(|n| n.cpus = 8);
    assert_eq!(entries(&finding(&few, "BT012")), ["+SDcpu", "code.shorter_dirty_work"]);
    let offline = cpu.with(|n| {
        n.schedulers = 4;
        n.facts.push((facts::DIRTY_CPU_SCHEDULERS_ONLINE, "1".to_owned()));
    });
    let found = finding(&offline, "BT012");
    assert!(entries(&found).contains(&"system_flag.dirty_cpu_schedulers_online"), "{found:#?}");
    assert_healthy(&node(), "BT012");
}

#[test]
fn poll_is_judged_by_how_many_it_has_to_look_through() {
    let check = |descriptors, expect| {
        let node = node().with(|n| {
            n.epoll = false;
            n.descriptors = descriptors;
        });
        let found = finding(&node, "BT013");
        assert_eq!((found.level, entries(&found)), (expect, vec!["build.kernel_poll"]), "{descriptors}");
    };
    check(5, Level::Notice);
    check(500, Level::Warning);
    check(9_000, Level::Critical);
    // One fallback set without kernel poll is normal: the made-up node has one.
    assert_healthy(&node(), "BT013");
}

#[test]
fn a_port_table_sized_by_ulimit_is_told_from_one_that_was_asked_for() {
    let limit = |n: i64| node().with(move |node| node.facts.push((facts::PORT_LIMIT, n.to_string())));
    let found = finding(&limit(134_217_727), "BT014");
    assert_eq!((found.level, entries(&found)), (Level::Critical, vec!["+Q", "host.nofile"]));
    assert!(found.summary.contains("limit of open files"), "{}", found.summary);
    let by_flag =
        limit(16_777_216).with(|n| n.facts.push((facts::EMU_ARGS, r#"["-Q","16777216"]"#.to_owned())));
    let found = finding(&by_flag, "BT014");
    assert_eq!((found.level, entries(&found)), (Level::Warning, vec!["+Q"]));
    let by_environment = limit(16_777_216)
        .with(|n| n.facts.push((facts::ENVIRONMENT, r#"{"ERL_MAX_PORTS":"16777216"}"#.to_owned())));
    assert!(finding(&by_environment, "BT014").summary.contains("ERL_MAX_PORTS"));
    // A table that is used is not oversized.
    assert_healthy(&limit(16_777_216).with(|n| n.ports = (5_000_000, 0)), "BT014");
    assert_healthy(&node(), "BT014");
}

#[test]
fn unused_cpu_is_explained_by_its_largest_cause() {
    let check = |node: &Node, subject: &str, level: Level| {
        let found = finding(node, "BT015");
        assert_eq!((found.subject.as_deref(), found.level), (Some(subject), level), "{}", found.summary);
        assert!(!found.remedies.is_empty());
    };
    check(&node(), "no runnable work", Level::Notice);
    check(&serial(), "one serial process", Level::Notice);
    check(
        &node().with(|n| (n.active, n.cpu, n.active_tasks) = (0.5, 0.5, 2)),
        "one at a time",
        Level::Notice,
    );
    check(
        &node().with(|n| {
            n.quota = Some(2_000);
            n.throttled_periods_of_10 = 9;
            n.throttled = 1.3;
            n.wait = 0.65;
        }),
        "quota",
        Level::Notice,
    );
    let starved = |cpu| {
        node().with(|n| {
            n.cpu = cpu;
            n.active = cpu;
            n.wait = 0.9;
            n.foreign = 1.9;
        })
    };
    check(&starved(0.3), "neighbours", Level::Notice);
    // Hardly any CPU used is not idle where the threads wait for one.
    check(&starved(0.02), "neighbours", Level::Notice);
    // Awake by the VM's clock, neither running nor runnable by the kernel's.
    check(&node().with(|n| (n.active, n.cpu) = (0.95, 0.4)), "locks", Level::Warning);
    // Never asleep, and yet giving up the CPU all the time.
    let busy = node().with(|n| (n.active, n.cpu) = (0.98, 0.97));
    check(&busy.clone().with(|n| n.involuntary_switches = 10_000), "locks", Level::Warning);
    check(&busy.clone().with(|n| n.voluntary_switches = 40_000), "locks", Level::Warning);
    // Message ping-pong switches a lot too.
    assert_healthy(&busy.clone().with(|n| n.voluntary_switches = 5_600), "BT015");
    assert_healthy(&busy, "BT015");
    // What the hypervisor took is not blocked.
    assert!(!matches!(
        finding(&node().with(|n| (n.active, n.cpu, n.steal) = (0.95, 0.5, 0.8)), "BT015").subject.as_deref(),
        Some("locks")
    ));
    assert_healthy(&node().with(|n| (n.active, n.cpu) = (0.01, 0.01)), "BT015");
}

#[test]
fn work_that_waits_for_answers_is_told_from_an_idle_node() {
    let worker = |queue: i64, runnable_of_10: i64, status: &str| Busy {
        reductions: 500,
        queue: (queue, 0),
        runnable_of_10,
        row: ProcessRow {
            name: Some("shop_db".to_owned()),
            status: Some(status.to_owned()),
            current_function: Some("prim_inet:recv0/3".to_owned()),
            ..ProcessRow::default()
        },
        ..Busy::default()
    };
    let with = |worker: Busy| {
        node().with(|n| {
            (n.active, n.cpu) = (0.01, 0.01);
            n.busiest = vec![worker];
        })
    };
    let waits = with(worker(7, 1, "waiting"));
    let found = finding(&waits, "BT015");
    assert_eq!((found.subject.as_deref(), found.level), (Some("waiting outside"), Level::Notice));
    let expect =
        "because work waits for answers: shop_db (<0.77.0>) stands in prim_inet:recv0/3 while messages";
    assert!(found.summary.contains(expect), "{}", found.summary);
    // No messages, or runnable, or suspended: nobody waits for an answer.
    assert_healthy(&with(worker(0, 1, "waiting")), "BT015");
    assert_healthy(&with(worker(7, 9, "waiting")), "BT015");
    assert_healthy(&with(worker(7, 1, "suspended")), "BT015");
}

#[test]
fn a_remedy_that_the_release_does_not_know_is_not_offered() {
    let period =
        |release: &str| node().with(|n| n.facts.push((facts::OTP_RELEASE, release.to_owned()))).period();
    let offered = |release| crate::remedy::of(&period(release), "+Mdai", "+Mdai max", "", "").is_some();
    assert!(!offered("23"), "an unknown flag stops the boot");
    assert!(offered("25"));
}

#[test]
fn a_rule_is_found_by_its_code() {
    assert_eq!(RULES[0].code, Code("BT001"));
    assert!(metrics::METRICS.len() > 50);
}
