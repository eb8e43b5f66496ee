//! Tests of rules on memory that processes and tables keep.

use beamtune_model::{
    CollectedProcessRow, Cost, ExitRow, Level, Outcome, Period, Rank, RequestedGcRow, facts,
};

use super::node::{SyntheticProcess, SystemMonitorEvent, node, stack_row};
use super::{Read, assert_healthy, entries, finding, outcome, row, value};

pub(super) const MB: i64 = 1_000_000;

#[test]
fn a_supervisor_that_keeps_child_specifications_is_named() {
    let supervisor = |bytes: i64, call: &str, exits: i64| {
        let busy = SyntheticProcess {
            pid: "<0.88.0>",
            row: row(|row| {
                row.name = Some("calls_sup".to_owned());
                row.initial_call = Some(call.to_owned());
                row.ranks = vec![Rank::Memory];
                row.memory_bytes = bytes;
            }),
            ..SyntheticProcess::default()
        };
        let ended = ExitRow { parent_name: Some("calls_sup".to_owned()), count: exits, ..ExitRow::default() };
        node().with(|n| {
            n.resident = 200 * MB;
            n.processes = (300, 0);
            n.busiest = vec![busy];
            n.exits = Some(vec![ended]);
        })
    };
    let found = finding(&supervisor(30 * MB, "supervisor:calls_sup/1", 9), "BT080");
    assert_eq!(
        (found.level, found.subject_text().as_deref()),
        (Level::Warning, Some("calls_sup (<0.88.0>)"))
    );
    assert_eq!(found.cost(), Some(Cost::MemoryBytes((30 * MB) as f64)));
    assert_eq!(entries(&found), ["code.temporary_children", "code.small_start_arguments"]);
    // Nothing shows that children are short-lived.
    assert_eq!(finding(&supervisor(30 * MB, "supervisor:calls_sup/1", 0), "BT080").level, Level::Notice);
    // Elixir's DynamicSupervisor keeps no specifications of children that have ended.
    let dynamic = finding(&supervisor(30 * MB, "Elixir.DynamicSupervisor:init/1", 9), "BT080");
    assert_eq!(entries(&dynamic), ["code.small_start_arguments"]);
    // In this order: the process is no supervisor; its heap is small; it may have as many children as its heap suggests.
    assert_healthy(&supervisor(30 * MB, "calls:init/1", 9), "BT080");
    assert_healthy(&supervisor(3 * MB, "supervisor:calls_sup/1", 9), "BT080");
    let many = supervisor(30 * MB, "supervisor:calls_sup/1", 9).with(|n| n.processes = (20_000, 0));
    assert_healthy(&many, "BT080");
}

#[test]
fn a_supervisor_that_works_without_starting_children_is_named() {
    let supervisor = |reductions: i64, call: &str| {
        node().with(|n| {
            n.utilization = 0.5;
            n.processes = (300, 0);
            n.spawned = 5;
            n.busiest = vec![SyntheticProcess {
                pid: "<0.88.0>",
                reductions,
                row: row(|row| {
                    row.name = Some("calls_sup".to_owned());
                    row.initial_call = Some(call.to_owned());
                }),
                ..SyntheticProcess::default()
            }];
            n.stacks = vec![stack_row(6, &["gen:do_call/4", "calls:find/1"], &[("<0.88.0>", 6)])];
        })
    };
    let asked = supervisor(200_000, "supervisor:calls_sup/1");
    let found = finding(&asked, "BT087");
    assert_eq!(
        (found.level, found.subject_text().as_deref()),
        (Level::Warning, Some("calls_sup (<0.88.0>)"))
    );
    assert!(found.title.starts_with("Supervisor calls_sup does "), "{}", found.title);
    assert!(found.title.ends_with(" % of the work, likely which_children calls"), "{}", found.title);
    assert!(found.detail.contains("called by calls:find/1"), "{}", found.detail);
    assert_eq!(entries(&found), ["code.index_of_children"]);
    finding(&supervisor(200_000, "Elixir.DynamicSupervisor:init/1"), "BT087");
    // In this order: the process is no supervisor; it does little of the work; the node does little work; children are short-lived.
    assert_healthy(&supervisor(200_000, "calls:init/1"), "BT087");
    assert_healthy(&supervisor(20_000, "supervisor:calls_sup/1"), "BT087");
    assert_healthy(&asked.clone().with(|n| n.utilization = 0.01), "BT087");
    assert_healthy(&asked.with(|n| n.spawned = 200), "BT087");
}

#[test]
fn heaps_of_idle_processes_are_added_up() {
    let idle = |reductions: i64| {
        node().with(|n| {
            n.resident = 500 * MB;
            n.busiest = ["<0.81.0>", "<0.82.0>", "<0.83.0>"]
                .map(|pid| SyntheticProcess {
                    pid,
                    reductions,
                    row: row(|row| {
                        row.ranks = vec![Rank::Memory];
                        row.memory_bytes = 60 * MB;
                        row.initial_call = Some("worker:init/1".to_owned());
                    }),
                    ..SyntheticProcess::default()
                })
                .to_vec();
        })
    };
    let found = finding(&idle(0), "BT031");
    assert_eq!(found.level, Level::Warning);
    assert!(found.title.starts_with("3 idle processes hold 180 MB of heap"), "{}", found.title);
    assert_eq!(entries(&found), ["code.hibernate", "code.worker_per_job"]);
    assert_eq!(found.remedies[0].saves_bytes, Some((180 * MB) as f64));
    // Processes that are not among the largest may or may not be similar.
    let many = |resident: i64| {
        let node = idle(0).with(|n| (n.resident, n.kinds) = (resident, vec![("processes", 400 * MB, 0)]));
        finding(&node, "BT031")
    };
    let of_many = many(500 * MB);
    assert_eq!(
        (of_many.severity, of_many.cost()),
        (found.severity, found.cost()),
        "what was sampled is used"
    );
    let all = value(&of_many, "heaps of all idle processes, estimated");
    assert_eq!(all, Some((400 * MB) as f64));
    // The sampled heaps are 9 % of resident memory, and all of them may be 20 %; then 8 % and 18 %.
    assert_eq!([many(2_000 * MB).level, many(2_200 * MB).level], [Level::Notice; 2]);
    assert_eq!(many(1_500 * MB).level, Level::Notice, "sampled 12 %, all of them perhaps 27 %");
    let with = |change: fn(&mut SyntheticProcess)| idle(0).with(|n| n.busiest.iter_mut().for_each(change));
    // A hibernated process was collected when it hibernated, whatever its GC count is.
    for at in ["erlang:hibernate/3", "gen_server:loop_hibernate/4"] {
        let mut hibernating = with(|busy| busy.row.minor_gcs = Some(7));
        hibernating.busiest.iter_mut().for_each(|busy| busy.row.current_function = Some(at.to_owned()));
        assert_healthy(&hibernating, "BT031");
    }
    // A fullsweep may have run during its last work: garbage made since then is unknown.
    let swept = finding(&with(|busy| busy.row.minor_gcs = Some(0)).with(|n| n.resident = 200 * MB), "BT031");
    assert_eq!((swept.level, swept.remedies[0].saves_bytes), (Level::Warning, None));
    // Sampling a process takes one or two reductions.
    assert_eq!(finding(&idle(1), "BT031").level, Level::Warning);
    assert_healthy(&idle(1_000), "BT031");
    // A heap of 60 MB will not fill within ten minutes, so its live part is unknown.
    let asked = finding(&idle(300), "BT031");
    assert_eq!(asked.level, Level::Notice);
    assert!(asked.title.starts_with("3 nearly idle processes hold 180 MB of heap"), "{}", asked.title);
    // A process that is in GC whenever it is sampled is not idle.
    let collects = idle(0).with(|n| {
        n.busiest.truncate(1);
        n.busiest[0].row.memory_bytes = 180 * MB;
    });
    assert_eq!(finding(&collects, "BT031").level, Level::Warning);
    let event = SystemMonitorEvent {
        kind: "long_gc",
        milliseconds: 900,
        subject: "sessions (<0.81.0>)",
        first_second: 1,
    };
    assert_healthy(&collects.with(|n| n.events = vec![event]), "BT031");
    assert_healthy(&node(), "BT031");
}

#[test]
fn a_job_that_collects_all_processes_is_distinguished_from_a_load_in_waves() {
    let job = |every_ms: i64, size: i64| {
        node().with(|n| {
            n.seconds = 130;
            n.processes = (2_000, 0);
            n.gcs = (50, Some((every_ms, size)));
        })
    };
    let found = finding(&job(30_000, 2_100), "BT032");
    assert!(found.title.contains("every 30 s"), "{}", found.title);
    // In a recording of twenty minutes, about every tenth second is kept.
    let long = finding(&job(96_000, 2_100).with(|n| (n.seconds, n.gcs.0) = (1_300, 20)), "BT032");
    let step = long.evidence[1].text.as_deref().and_then(|text| text.strip_prefix("within "));
    let step = step.and_then(|rest| rest.strip_suffix(" s"));
    let step: f64 = step.and_then(|step| step.parse().ok()).unwrap_or_else(|| panic!("{long:#?}"));
    assert!(step > 5.0 && long.detail.contains(&format!("within {step:.1} s")), "{}", long.detail);
    assert_eq!(entries(&found), ["code.no_forced_collections"]);
    assert_healthy(&job(30_000, 500), "BT032");
    // A log that is written in pulses causes many GCs in few processes.
    assert_healthy(&job(30_000, 9_000), "BT032");
    assert_healthy(&job(100_000, 2_100), "BT032");
    let busy = job(30_000, 2_100).with(|n| n.gcs.0 = 1_500);
    assert_healthy(&busy, "BT032");
    // With one sample per second, rounds seem to be two or three seconds apart, or three or four.
    for every_ms in [2_500, 3_500] {
        let found = finding(&job(every_ms, 2_100).with(|n| n.seconds = 20), "BT032");
        assert_eq!(found.level, Level::Warning, "{}", found.title);
        assert!(found.detail.contains("GCs within 1 s"), "{}", found.detail);
    }
    // There is a round in every third second, and many rounds extend over two seconds.
    for every_ms in [2_700, 3_100] {
        let slow = job(every_ms, 2_100).with(|n| (n.seconds, n.gc_wave_ms) = (13, 600));
        let found = finding(&slow, "BT032");
        assert!(found.title.contains("every 3"), "{every_ms}: {}", found.title);
    }
}

#[test]
fn heaps_that_fill_at_the_same_time_are_not_forced_collections() {
    let broadcast = |minor: i64| {
        node().with(|n| {
            (n.seconds, n.processes, n.gcs) = (130, (2_000, 0), (50, Some((30_000, 2_100))));
            let row = row(|r| r.minor_gcs = Some(minor));
            n.busiest = vec![SyntheticProcess { reductions: 900, row, ..SyntheticProcess::default() }];
        })
    };
    assert_healthy(&broadcast(3), "BT032");
    assert_eq!(finding(&broadcast(0), "BT032").level, Level::Notice);
}

#[test]
fn a_job_that_collects_without_a_pause_is_recognized_by_its_samples() {
    let guard = |at: &str, rate: i64| {
        node().with(|n| {
            (n.seconds, n.processes, n.gcs) = (10, (2_000, 0), (rate, None));
            n.busiest = vec![SyntheticProcess {
                reductions: 900,
                row: row(|r| {
                    r.name = Some("shop_guard".to_owned());
                    r.current_function = Some(at.to_owned());
                    r.stack = vec![at.to_owned(), "shop_guard:check/1".to_owned()];
                }),
                ..SyntheticProcess::default()
            }];
        })
    };
    let collects =
        guard("erlang:garbage_collect/2", 9_000).with(|n| (n.utilization, n.cpu, n.gc) = (0.4, 0.4, 0.2));
    let found = finding(&collects, "BT032");
    assert_eq!(
        (found.level, found.subject_text().as_deref()),
        (Level::Warning, Some("shop_guard (<0.77.0>)"))
    );
    let all = 0.2 * collects.schedulers as f64;
    assert!(
        matches!(found.cost(), Some(Cost::CpuCores(cores)) if (cores - all).abs() < 0.01),
        "{:?}",
        found.cost()
    );
    assert_eq!(found.title, "shop_guard likely forces 9,000 GCs/s of other processes");
    assert!(found.detail.contains("each of 2,000 processes is collected 4.5 times/s"), "{}", found.detail);
    assert_eq!(entries(&found), ["code.no_forced_collections"]);
    // The process is also sampled while it waits for a process that it collects.
    let waits = guard("shop_guard:check/1", 9_000);
    assert_healthy(&waits, "BT032");
    let stood = ["erlang:garbage_collect/1", "shop_guard:check/1"].map(str::to_owned).to_vec();
    let seen = finding(&waits.clone().with(|n| n.busiest[0].waiting_stack = stood.clone()), "BT032");
    let told = seen.evidence.iter().find(|evidence| evidence.what == "garbage_collect call");
    assert_eq!(
        told.and_then(|evidence| evidence.text.as_deref()),
        Some("erlang:garbage_collect/1, called by shop_guard:check/1, in 11 of 22 samples")
    );
    // If it works in rounds, it is named, too, although it was elsewhere at the last inspection.
    let rounds = waits.with(|n| {
        n.busiest[0].waiting_stack = stood;
        (n.seconds, n.gcs) = (130, (50, Some((30_000, 2_100))));
    });
    assert_eq!(finding(&rounds, "BT032").subject_text().as_deref(), Some("shop_guard (<0.77.0>)"));
    // In this order: this number of GCs is caused by the load; a process that collects itself, or does something else, forces no GC of
    // others.
    assert_healthy(&guard("erlang:garbage_collect/2", 1_500), "BT032");
    assert_healthy(&guard("erlang:garbage_collect/0", 9_000), "BT032");
    assert_healthy(&guard("shop_guard:count/1", 9_000), "BT032");
    // The GC of the collected processes is a consequence.
    let share = guard("erlang:garbage_collect/2", 9_000).with(|n| n.gc = 0.6);
    let share = finding(&share, "BT011");
    assert_eq!(share.follows.as_ref().map(|cause| cause.code.0), Some("BT032"));
    // And no heap is the cause.
    assert!(share.title.ends_with(", likely forced by shop_guard"), "{}", share.title);
    assert_eq!(entries(&share), ["code.no_forced_collections"]);
    assert_eq!(share.remedies[0].change, "remove the calls of erlang:garbage_collect in shop_guard:check/1");
}

/// An idle process with a heap of 1.5 GB, and another one with the same initial call.
fn large_idle(pids: &[&'static str]) -> Period {
    let busy = |pid: &&'static str| SyntheticProcess {
        pid,
        row: row(|row| {
            row.ranks = vec![Rank::Memory];
            row.memory_bytes = 1_500 * MB;
            row.initial_call = Some("cache:init/1".to_owned());
        }),
        ..SyntheticProcess::default()
    };
    node().with(|n| (n.resident, n.busiest) = (4_000 * MB, pids.iter().map(busy).collect())).period()
}

/// Adds a GC of named processes that freed this many bytes.
fn collected(mut period: Period, who: &str, freed: i64) -> Period {
    period.facts.set(facts::COLLECTED, format!("[{who:?}]"));
    let before = 1_500 * MB;
    period.collections.push(RequestedGcRow {
        selection: "named".to_owned(),
        processes: 1,
        chosen: 1,
        collected: 1,
        heap_before: before,
        heap_after: before - freed,
        ..RequestedGcRow::default()
    });
    if freed > 0 {
        let pid = who.to_owned();
        let row = CollectedProcessRow {
            pid,
            heap_before: before,
            heap_after: before - freed,
            ..CollectedProcessRow::default()
        };
        period.collected.push(row);
    }
    period
}

#[test]
fn a_measured_collection_replaces_the_estimate() {
    let one = ["<0.81.0>"];
    let Outcome::Found(before) = outcome(&large_idle(&one), "BT031") else { panic!("nothing found") };
    assert_eq!(before[0].remedies[0].saves_bytes, Some((1_500 * MB) as f64));
    // Almost nothing was garbage, so there is nothing to gain.
    for freed in [0, MB] {
        let outcome = outcome(&collected(large_idle(&one), "<0.81.0>", freed), "BT031");
        let Outcome::Healthy(why) = outcome else { panic!("{outcome:?}") };
        assert!(why.contains("live data"), "{why}");
    }
    // A part was garbage: this part is the saving.
    let Outcome::Found(found) = outcome(&collected(large_idle(&one), "<0.81.0>", 400 * MB), "BT031") else {
        panic!("nothing found")
    };
    assert_eq!(found[0].remedies[0].saves_bytes, Some((400 * MB) as f64));
    assert_eq!(found[0].cost(), Some(Cost::MemoryBytes((400 * MB) as f64)));
    // The result applies to other processes with the same initial call, too.
    let two = ["<0.81.0>", "<0.82.0>"];
    let Outcome::Found(found) = outcome(&collected(large_idle(&two), "<0.81.0>", 0), "BT031") else {
        panic!("nothing found")
    };
    assert_eq!(
        (found[0].level, found[0].remedies[0].saves_bytes),
        (Level::Notice, Some((1_500 * MB) as f64))
    );
    // A random sample represents all processes.
    let sampled = |after: i64| {
        let mut period = large_idle(&two);
        period.collections.push(RequestedGcRow {
            selection: "sample".to_owned(),
            processes: 100,
            collected: 100,
            heap_before: 3_000 * MB,
            heap_after: after * MB,
            ..RequestedGcRow::default()
        });
        outcome(&period, "BT031")
    };
    assert!(matches!(sampled(2_990), Outcome::Healthy(_)));
    let Outcome::Found(found) = sampled(1_500) else { panic!("nothing found") };
    assert_eq!(found[0].remedies[0].saves_bytes, Some((1_500 * MB) as f64));
}

#[test]
fn binaries_that_remain_after_a_collection_are_in_use() {
    let holder = || {
        let busy = SyntheticProcess {
            pid: "<0.88.0>",
            row: row(|row| {
                row.memory_bytes = MB;
                row.binary_bytes = Some(300 * MB);
                row.minor_gcs = Some(3);
            }),
            ..SyntheticProcess::default()
        };
        let node = node().with(|n| {
            (n.resident, n.busiest) = (500 * MB, vec![busy.clone()]);
            n.kinds = vec![("binary", 310 * MB, 0)];
        });
        node.period()
    };
    let first = |period: &Period| match outcome(period, "BT026") {
        Outcome::Found(found) => found.into_iter().next().expect("a finding"),
        other => panic!("{other:?}"),
    };
    let before = first(&holder());
    assert_eq!(entries(&before), ["code.binary_copy", "code.hibernate"]);
    let found = first(&collected(holder(), "<0.88.0>", 0));
    assert_eq!((found.level, found.cost()), (Level::Notice, None));
    assert_eq!(entries(&found), ["code.binary_copy"]);
    assert_eq!(found.remedies[0].saves_bytes, None);
}

#[test]
fn a_large_first_heap_of_one_kind_of_processes_is_named() {
    const PIDS: [&str; 12] = [
        "<0.101.0>",
        "<0.102.0>",
        "<0.103.0>",
        "<0.104.0>",
        "<0.105.0>",
        "<0.106.0>",
        "<0.107.0>",
        "<0.108.0>",
        "<0.109.0>",
        "<0.110.0>",
        "<0.111.0>",
        "<0.112.0>",
    ];
    let started = |min_words: i64, total_words: i64, kind: &str| {
        node().with(|n| {
            n.facts.push((facts::FULLSWEEP_AFTER, "65535".to_owned()));
            (n.processes, n.used) = ((1_500, 0), 1_200_000_000);
            n.kinds = vec![("processes", 1_000_000_000, 0)];
            n.busiest = PIDS
                .iter()
                .map(|pid| SyntheticProcess {
                    pid,
                    row: row(|r| {
                        r.ranks = vec![Rank::Memory];
                        r.initial_call = Some(kind.to_owned());
                        r.min_heap_words = Some(min_words);
                        r.total_heap_words = Some(total_words);
                    }),
                    ..SyntheticProcess::default()
                })
                .collect();
        })
    };
    let found = finding(&started(46_422, 46_500, "lift_probe:init/1"), "BT067");
    assert_eq!((found.level, found.subject_text().as_deref()), (Level::Warning, Some("lift_probe:init/1")));
    assert!(found.remedies[0].change.contains("{min_heap_size, 46422}"), "{:?}", found.remedies);
    // In this order: the default of the VM; a heap that is too small to matter; a heap that has grown beyond it anyway.
    for (min, total) in [(233, 46_500), (6_000, 6_500), (46_422, 900_000)] {
        assert_healthy(&started(min, total, "lift_probe:init/1"), "BT067");
    }
}
