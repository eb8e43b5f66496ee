//! Tests of rules on processes: those that others wait for, and what delays them.

use beamtune_model::{Cost, Level, Outcome, TableRow, facts};

use super::node::{SyntheticNode, SyntheticProcess, SystemMonitorEvent, node, stack_row};
use super::{Read, assert_healthy, diagnose, entries, finding, held, outcome, row, serial, value};

#[test]
fn one_busy_process_with_a_queue_is_the_bottleneck() {
    let found = finding(&serial(), "BT005");
    assert_eq!(found.level, Level::Critical);
    assert_eq!(found.subject_text().as_deref(), Some("router (<0.99.0>)"));
    assert_eq!(entries(&found), ["code.split_process", "code.cheaper_callback"]);
    // Nothing waits: a single long job is worth a notice.
    assert_eq!(finding(&serial().with(|n| n.busiest[0].queue = (0, 0)), "BT005").level, Level::Notice);
    // No scheduler is idle: the node is short of CPU, not of parallelism.
    assert_eq!(finding(&serial().with(|n| n.utilization = 0.98), "BT005").level, Level::Notice);
    // The process "runs" on a dirty scheduler, while the normal ones are idle.
    assert_eq!(finding(&serial().with(|n| n.utilization = 0.01), "BT005").level, Level::Notice);
    // Several processes that are always busy are not a single bottleneck.
    assert_healthy(
        &serial().with(|n| {
            let pids = ["<0.1.0>", "<0.2.0>", "<0.3.0>"];
            n.busiest = pids
                .map(|pid| SyntheticProcess { pid, reductions: 300_000, ..n.busiest[0].clone() })
                .to_vec();
        }),
        "BT005",
    );
    // Callers wait for its reply, whatever its queue length.
    let called = serial().with(|n| {
        n.busiest[0].queue = (0, 0);
        n.processes = (400, 0);
        n.stacks = vec![
            stack_row(90, &["gen_server:loop/7"], &[]),
            stack_row(10, &["gen:do_call/4", "shop:buy/2"], &[("<0.99.0>", 10)]),
            held("<0.99.0>", "running", &[]),
        ];
    });
    let found = finding(&called, "BT005");
    assert_eq!(found.level, Level::Critical);
    assert!(found.title.ends_with(", 40 callers waiting"), "{}", found.title);
    // It is also critical if the process waits for a disk on a dirty scheduler.
    assert_eq!(finding(&called.clone().with(|n| n.utilization = 0.01), "BT005").level, Level::Critical);
    // The process hands each job to another one. Its callers show that it is never idle.
    let hands_on = called.with(|n| (n.busiest[0].runnable_of_10, n.busiest[0].reductions) = (3, 50_000));
    assert_eq!(finding(&hands_on, "BT005").level, Level::Notice);
    assert_eq!(super::cpu::unused(&finding(&hands_on, "BT015")), Some(beamtune_model::CpuUse::SerialProcess));
    let waits = hands_on.clone().with(|n| n.stacks[2] = held("<0.99.0>", "waiting", &["prim_inet:recv0/3"]));
    assert_healthy(&waits, "BT005");
    finding(&waits, "BT053");
    assert_healthy(&hands_on.with(|n| n.processes = (40, 0)), "BT005");
    // The process is often idle.
    assert_healthy(&serial().with(|n| n.busiest[0].runnable_of_10 = 5), "BT005");
    // The process does a small part of the work.
    assert_healthy(&serial().with(|n| n.busiest[0].reductions = 50_000), "BT005");
    assert_healthy(&serial().with(|n| n.schedulers = 1), "BT005");
}

#[test]
fn callers_that_ask_a_busy_process_for_its_memory_are_counted() {
    let asked = |messages: i64, count: i64| {
        serial().with(|n| {
            n.busiest[0].queue = (messages, 0);
            n.processes = (400, 0);
            n.stacks = vec![
                stack_row(100 - count, &["gen_server:loop/7"], &[]),
                stack_row(count, &["erts_internal:await_result/1", "shop_source:has_room/2"], &[]),
            ];
        })
    };
    let found = finding(&asked(300_000, 10), "BT005");
    assert_eq!(value(&found, "processes waiting in process_info/2"), Some(40.0));
    assert_eq!(entries(&found), ["code.ask_from_outside", "code.split_process", "code.cheaper_callback"]);
    // In this order: few callers; few messages to count.
    for node in [asked(300_000, 1), asked(3_000, 10)] {
        assert_eq!(entries(&finding(&node, "BT005"))[0], "code.split_process");
    }
}

fn queue(first: i64, growth: i64) -> SyntheticNode {
    node().with(|n| {
        n.busiest = vec![SyntheticProcess {
            queue: (first, growth),
            row: row(|r| {
                r.name = Some("sink".to_owned());
                r.message_queue_data = Some("on_heap".to_owned());
            }),
            ..SyntheticProcess::default()
        }];
    })
}

#[test]
fn a_queue_that_grows_is_found_and_its_process_named() {
    let found = finding(&queue(2_000, 1_000), "BT006");
    assert_eq!(found.level, Level::Warning);
    assert_eq!(found.subject_text().as_deref(), Some("sink (<0.77.0>)"));
    assert_eq!(entries(&found), ["code.back_pressure", "code.split_process", "process.message_queue_data"]);
    assert_eq!(finding(&queue(2_000_000, 100_000), "BT006").level, Level::Critical);
    // A long queue of constant length is a notice, and no more.
    let steady = finding(&queue(50_000, 0), "BT006");
    assert_eq!((steady.level, entries(&steady)), (Level::Notice, vec!["code.back_pressure"]));
    assert_eq!(finding(&queue(500_000, 0), "BT006").level, Level::Warning);
    // In a very long queue, significant growth is a small share.
    assert!(finding(&queue(2_000_000, 5_000), "BT006").title.contains("grows by 5,000"));
    // Short queues grow and shrink all the time.
    assert_healthy(&queue(10, 20), "BT006");
    let off_heap =
        queue(2_000, 1_000).with(|n| n.busiest[0].row.message_queue_data = Some("off_heap".to_owned()));
    assert_eq!(entries(&finding(&off_heap, "BT006")), ["code.back_pressure", "code.split_process"]);
}

#[test]
fn a_queue_that_no_longer_exists_is_not_reported() {
    // A process that has died, or has emptied its queue, is in no later scan.
    let gone = |until| {
        queue(2_000, 1_000).with(|n| {
            n.seconds = 60;
            n.busiest[0].last_second = Some(until);
        })
    };
    assert_healthy(&gone(30), "BT006");
    assert_healthy(&gone(30).with(|n| n.busiest[0].queue = (200_000, 0)), "BT006");
    // A slow scan may miss a process for some seconds.
    assert_eq!(finding(&gone(50), "BT006").level, Level::Warning);
    // The node no longer answers, which does not empty the queue.
    let mut period = gone(60).period();
    period.end += 60 * beamtune_model::units::SECOND_NS;
    assert!(matches!(outcome(&period, "BT006"), Outcome::Found(_)));
    // The queue was emptied, and has messages again.
    let refilled = period.processes.first_mut().expect("the process");
    refilled.last_queue.1 = 1_500;
    let Outcome::Found(found) = outcome(&period, "BT006") else { panic!("nothing found") };
    assert_eq!(found[0].title, "Message queue of sink holds 1,500 messages");
    assert!(found[0].detail.contains("does not grow"), "{}", found[0].detail);
}

#[test]
fn a_serial_process_with_a_bag_is_reported_with_it() {
    let with = |kind: &str, objects: i64, owner: &str| {
        serial().with(|n| {
            n.ets = vec![TableRow {
                id: "tags".to_owned(),
                name: "tags".to_owned(),
                owner: owner.to_owned(),
                kind: kind.to_owned(),
                protection: "protected".to_owned(),
                objects,
                ..TableRow::default()
            }];
        })
    };
    let own = with("bag", 24_000, "<0.99.0>");
    let found = finding(&own, "BT005");
    assert!(found.detail.ends_with("its ETS table tags, a bag with 24,000 objects"), "{}", found.detail);
    assert_eq!(entries(&found).first(), Some(&"code.keyed_objects"));
    assert!(!entries(&found).contains(&"code.split_process"), "{:?}", entries(&found));
    for other in
        [with("set", 24_000, "<0.99.0>"), with("bag", 500, "<0.99.0>"), with("bag", 24_000, "<0.5.0>")]
    {
        assert!(!entries(&finding(&other, "BT005")).contains(&"code.keyed_objects"));
    }
}

pub(super) fn happens(kind: &'static str, milliseconds: i64, subject: &'static str) -> SyntheticNode {
    node().with(|n| n.events = vec![SystemMonitorEvent { kind, milliseconds, subject, first_second: 1 }])
}

#[test]
fn long_time_slices_and_gcs_are_found_with_their_process() {
    let slow = finding(&happens("long_schedule", 300, "nif (<0.9.0>)"), "BT016");
    assert_eq!((slow.level, slow.subject_text().as_deref()), (Level::Warning, Some("nif (<0.9.0>)")));
    assert_eq!(entries(&slow), ["code.yielding_work"]);
    assert_eq!(slow.title, "Schedulers blocked for up to 300 ms, mostly by nif");
    assert!(slow.detail.contains("10 time slices of 50 ms or more"), "{}", slow.detail);
    assert_eq!(finding(&happens("long_schedule", 2_000, "nif"), "BT016").level, Level::Critical);
    // A single long slice may be caused by the operating system.
    let once = happens("long_schedule", 2_000, "nif").with(|n| n.events[0].first_second = 10);
    let once = finding(&once, "BT016");
    assert_eq!((once.level, once.against.len()), (Level::Notice, 1));

    // A GC of 700 ms in each second stops the process most of the time, one of 130 ms an eighth of it. A single one hardly stops it.
    let long = finding(&happens("long_gc", 700, "state (<0.77.0>)"), "BT017");
    assert_eq!((long.level, long.cost()), (Level::Critical, Some(Cost::DelaySeconds(0.7))));
    let once = happens("long_gc", 130, "state (<0.77.0>)").with(|n| n.events[0].first_second = 10);
    assert_eq!(finding(&once, "BT017").level, Level::Notice);
    let large = finding(&happens("long_gc", 130, "state (<0.77.0>)"), "BT017");
    assert_eq!((large.level, large.subject_text().as_deref()), (Level::Warning, Some("state (<0.77.0>)")));
    assert_eq!(entries(&large), ["code.less_garbage"]);
    let queued = happens("long_gc", 700, "state (<0.77.0>)")
        .with(|n| n.busiest = vec![SyntheticProcess { queue: (50_000, 0), ..SyntheticProcess::default() }]);
    let of = |data: &str| {
        let set = queued.clone().with(|n| n.busiest[0].row.message_queue_data = Some(data.to_owned()));
        finding(&set, "BT017")
    };
    assert_eq!(entries(&of("on_heap")), ["code.less_garbage", "process.message_queue_data"]);
    assert_eq!(entries(&of("off_heap")), ["code.less_garbage"]);

    // The VM measures wall time, so it includes time that the operating system took away.
    for (kind, code) in [("long_schedule", "BT016"), ("long_gc", "BT017")] {
        let starved = happens(kind, 900, "any").with(|n| n.run_queue_delay = 0.6);
        let starved = finding(&starved, code);
        assert_eq!((starved.level, starved.against.len()), (Level::Notice, 1), "{code}");
    }

    for code in ["BT016", "BT017", "BT018"] {
        assert_healthy(&node(), code);
    }
}

#[test]
fn a_process_without_reductions_in_long_slices_runs_native_code() {
    let of = |reductions: i64, nifs: &'static str| {
        happens("long_schedule", 300, "photo (<0.77.0>)")
            .with(|n| n.busiest = vec![SyntheticProcess { reductions, ..SyntheticProcess::default() }])
            .with(|n| n.facts.push((facts::NIFS, nifs.to_owned())))
    };
    let with = |reductions| of(reductions, r#"["photo:hash_nif/4"]"#);
    let native = finding(&with(500), "BT016");
    assert!(native.detail.contains("in native code (NIF, driver or BIF)"), "{}", native.detail);
    assert!(native.evidence.iter().any(|of| of.text.as_deref() == Some("photo:hash_nif/4")), "{native:#?}");
    // Without a NIF, the process copies terms, or is in another BIF.
    let copies = finding(&of(500, "[]"), "BT016");
    assert!(copies.detail.contains("in BIFs or copying large terms"), "{}", copies.detail);
    assert_eq!(entries(&copies), ["code.smaller_messages", "code.yielding_work"]);
    // The process ran Erlang code, which yields, so something else stopped it.
    let erlang = finding(&with(900_000), "BT016");
    assert!(erlang.title.ends_with("mostly by photo") && !erlang.detail.contains("BIF"), "{}", erlang.detail);
}

#[test]
fn time_slices_of_blocking_native_code_are_not_lock_waits() {
    // Schedulers are awake without a CPU for half of the time.
    let blocked = node().with(|n| (n.utilization, n.cpu) = (0.6, 0.2));
    let found = finding(&blocked, "BT015");
    assert_eq!(super::cpu::unused(&found), Some(beamtune_model::CpuUse::Locks), "{found:#?}");
    let native = blocked.with(|n| n.events = happens("long_schedule", 900, "disk (<0.77.0>)").events);
    assert_ne!(super::cpu::unused(&finding(&native, "BT015")), Some(beamtune_model::CpuUse::Locks));
}

#[test]
fn a_process_suspended_in_sends_to_another_node_explains_its_queue() {
    let rarely = happens("busy_dist_port", 0, "copy (<0.77.0>)").with(|n| {
        n.busiest = vec![SyntheticProcess {
            queue: (20_000, 100),
            reductions: 900,
            row: row(|r| {
                r.name = Some("copy".to_owned());
                r.status = Some("suspended".to_owned());
            }),
            ..SyntheticProcess::default()
        }];
    });
    let diagnosis = diagnose(&rarely.period());
    let found = |code: &str| diagnosis.findings().into_iter().find(|found| found.code.0 == code).cloned();
    let sends = found("BT018").expect("a finding");
    assert_eq!((sends.level, sends.subject_text().as_deref()), (Level::Warning, Some("copy (<0.77.0>)")));
    assert_eq!(found("BT006").and_then(|queue| queue.follows).map(|of| of.code.0), Some("BT018"));
    // A process that runs in between is judged by its rate of suspensions.
    let runs = rarely.with(|n| n.busiest[0].runnable_of_10 = 8);
    assert_eq!(finding(&runs, "BT018").level, Level::Notice);
}

#[test]
fn a_large_heap_is_a_notice_before_it_delays_a_process() {
    let state = |megabytes: i64, reductions: i64| {
        node().with(|n| {
            let row = row(|row| row.total_heap_words = Some(megabytes * 1_000_000 / 8));
            n.busiest =
                vec![SyntheticProcess { pid: "<0.77.0>", reductions, row, ..SyntheticProcess::default() }];
        })
    };
    let found = finding(&state(600, 50_000), "BT017");
    assert_eq!((found.level, found.subject_text().as_deref()), (Level::Notice, Some("<0.77.0>")));
    assert!(found.title.starts_with("<0.77.0> has a heap of 600 MB"), "{}", found.title);
    assert_eq!(entries(&found), ["code.less_garbage"]);
    assert_healthy(&state(400, 50_000), "BT017");
    // BT031 reports idle processes.
    assert_healthy(&state(600, 0), "BT017");
    // The VM reports smaller heaps by events anyway.
    let told = finding(&happens("large_heap", 0, "cache (<0.9.0>)"), "BT017");
    assert_eq!((told.level, told.subject_text().as_deref()), (Level::Notice, Some("cache (<0.9.0>)")));
    // A process whose long GC is reported is not reported again; another process is.
    let found = |pid: &'static str| {
        let both = state(600, 50_000).with(|n| {
            n.events = happens("long_gc", 700, "state (<0.77.0>)").events;
            n.busiest[0].pid = pid;
        });
        let Outcome::Found(found) = outcome(&both.period(), "BT017") else { panic!("nothing found") };
        found.into_iter().map(|found| found.level).collect::<Vec<_>>()
    };
    assert_eq!(found("<0.77.0>"), [Level::Critical]);
    assert_eq!(found("<0.78.0>"), [Level::Critical, Level::Notice]);
    // The large heap is not a consequence of a host without CPU.
    let starved =
        diagnose(&state(600, 50_000).with(|n| (n.run_queue_delay, n.other_cpu) = (0.6, 1.5)).period());
    let findings = starved.findings();
    let large = findings.iter().find(|found| found.code.0 == "BT017").expect("the finding");
    assert!(
        findings.iter().any(|found| found.code.0 == "BT004" && found.level > Level::Notice),
        "{findings:#?}"
    );
    assert!(large.follows.is_none(), "{large:#?}");
}

#[test]
fn garbage_collection_is_attributed_to_the_process_with_the_heap() {
    let sick = node().with(|n| {
        n.utilization = 0.8;
        n.cpu = 0.8;
        n.gc = 0.5;
    });
    let spread = finding(&sick, "BT011");
    assert_eq!((spread.level, entries(&spread)), (Level::Critical, vec!["code.less_garbage", "+hms"]));
    let large = sick.clone().with(|n| n.facts.push((facts::MIN_HEAP_WORDS, "8192".to_owned())));
    assert_eq!(entries(&finding(&large, "BT011")), ["code.less_garbage"]);
    let one = sick.with(|n| {
        n.dirty_io_active = 0.9;
        n.busiest = vec![SyntheticProcess {
            reductions: 500_000,
            row: row(|r| {
                r.name = Some("hoarder".to_owned());
                r.total_heap_words = Some(4_000_000);
            }),
            ..SyntheticProcess::default()
        }];
    });
    let found = finding(&one, "BT011");
    assert_eq!(found.subject_text().as_deref(), Some("hoarder (<0.77.0>)"));
    assert_eq!(entries(&found), ["code.less_garbage", "process.min_heap_size"]);
    // At priority low, the process uses only the time that others leave.
    let low = one.clone().with(|n| n.busiest[0].row.priority = Some("low".to_owned()));
    assert_eq!(finding(&low, "BT011").level, Level::Notice);
    let change = &found.remedies[1].change;
    assert_eq!(change, "set spawn_opt {min_heap_size, 6000000} for hoarder; 48.0 MB");
    // A heap of this size from the start would exist in addition to the current one.
    let larger = one.clone().with(|n| n.busiest[0].row.total_heap_words = Some(6_000_000));
    assert_eq!(entries(&finding(&larger, "BT011")), ["code.less_garbage"]);
    // Dirty schedulers that run GC at the same time compete for their allocator.
    let dirty = |schedulers: usize, share: f64| {
        one.clone().with(|n| (n.schedulers, n.cpus, n.dirty_gc) = (schedulers, 8, share))
    };
    let meet = finding(&dirty(8, 0.2), "BT011");
    assert_eq!(entries(&meet), ["code.less_garbage", "+Mdai", "process.min_heap_size"]);
    assert!(meet.against.iter().any(|but| but.contains("beamtune locks")), "{meet:#?}");
    for unlikely in [dirty(8, 0.1), dirty(2, 0.3)] {
        assert!(!entries(&finding(&unlikely, "BT011")).contains(&"+Mdai"));
    }
    let own = dirty(8, 0.2).with(|n| n.facts.push((facts::EMU_ARGS, r#"["-Mdai","max"]"#.to_owned())));
    assert!(!entries(&finding(&own, "BT011")).contains(&"+Mdai"));
    // Messages in the heap are copied with it, and a larger heap from the start would not help.
    let queued = one.clone().with(|n| {
        n.busiest[0].queue = (150_000, 0);
        n.busiest[0].row.message_queue_data = Some("on_heap".to_owned());
    });
    assert_eq!(entries(&finding(&queued, "BT011")), ["process.message_queue_data", "code.less_garbage"]);
    let swept = one.with(|n| n.busiest[0].row.fullsweep_after = Some(0));
    assert_eq!(entries(&finding(&swept, "BT011"))[0], "process.fullsweep_after");
    assert_healthy(&node(), "BT011");
}

#[test]
fn garbage_collection_is_attributed_to_similar_processes() {
    let of = |call: &'static str| {
        node().with(|n| {
            (n.utilization, n.cpu, n.gc) = (0.8, 0.8, 0.5);
            let pids = ["<0.91.0>", "<0.92.0>", "<0.93.0>", "<0.94.0>"];
            n.busiest = pids
                .into_iter()
                .zip([40_000, 50_000, 60_000, 70_000])
                .map(|(pid, words)| SyntheticProcess {
                    pid,
                    reductions: 200_000,
                    row: row(|r| {
                        r.initial_call =
                            Some(if words == 40_000 { "shop_cart:init/1" } else { call }.to_owned());
                        r.total_heap_words = Some(words);
                    }),
                    ..SyntheticProcess::default()
                })
                .collect();
        })
    };
    let sessions = of("shop_session:init/1");
    let found = finding(&sessions, "BT011");
    assert_eq!(found.subject_text().as_deref(), Some("shop_session:init/1"));
    assert!(found.title.ends_with(", likely shop_session processes"));
    assert_eq!(entries(&found), ["code.less_garbage", "process.min_heap_size"]);
    let change = &found.remedies[1].change;
    assert_eq!(
        change,
        "set spawn_opt {min_heap_size, 90000} where shop_session processes are started; 720 MB per 1,000 processes"
    );
    // With large heaps, it would be too much for the processes that stay small.
    let large = sessions
        .clone()
        .with(|n| n.busiest.iter_mut().for_each(|busy| busy.row.total_heap_words = Some(200_000)));
    assert_eq!(entries(&finding(&large, "BT011")), ["code.less_garbage"]);
    let swept = finding(&sessions.with(|n| n.busiest[3].row.fullsweep_after = Some(2)), "BT011");
    assert_eq!(
        swept.remedies[0].change,
        "set spawn_opt {fullsweep_after, 65535} (the default) where shop_session processes are started"
    );
    let queued = of("shop_session:init/1").with(|n| {
        n.busiest[2].queue = (20_000, 0);
        n.busiest[2].row.message_queue_data = Some("on_heap".to_owned());
    });
    assert_eq!(entries(&finding(&queued, "BT011")), ["process.message_queue_data", "code.less_garbage"]);
    // The initial call of a fun shows nothing about the kind of process.
    assert_eq!(entries(&finding(&of("erlang:apply/2"), "BT011")), ["code.less_garbage", "+hms"]);
}

#[test]
fn a_process_of_otp_has_its_own_advice() {
    let named = |name: &str| serial().with(|n| n.busiest[0].row.name = Some(name.to_owned()));
    let found = finding(&named("file_server_2"), "BT005");
    assert_eq!(entries(&found)[0], "code.around_the_server");
    assert!(found.remedies[0].change.contains("raw"), "{:?}", found.remedies[0]);
    assert!(found.evidence.iter().any(|evidence| evidence.what == "what it is"));
    assert_eq!(entries(&finding(&named("router"), "BT005"))[0], "code.split_process");
    // Operators can change neither its code nor where it keeps its messages.
    assert_eq!(entries(&found), ["code.around_the_server"]);
    let grows = queue(2_000, 1_000).with(|n| n.busiest[0].row.name = Some("rex".to_owned()));
    assert_eq!(entries(&finding(&grows, "BT006")), ["code.around_the_server", "code.back_pressure"]);
}

#[test]
fn the_function_to_profile_is_the_programs_own() {
    let check = |stack: &[&str], current: &str, expect: &str| {
        let node = serial().with(|n| {
            n.busiest[0].row.stack = stack.iter().map(|&function| function.to_owned()).collect();
            n.busiest[0].row.current_function = Some(current.to_owned());
        });
        let change = finding(&node, "BT005").remedies[1].change.clone();
        assert_eq!(change, format!("make each message cheaper: profile {expect}"));
    };
    check(&["lists:foldl/3", "router:route/2", "gen_server:loop/7"], "lists:foldl/3", "router:route/2");
    check(&["gen_server:loop/7", "proc_lib:init_p_do_apply/3"], "gen_server:loop/7", "its callbacks");
    check(&[], "lists:foldl/3", "lists:foldl/3");
}

/// A process that does most of the work, and this much more in each further second.
fn works_more(more: i64) -> SyntheticNode {
    node().with(|n| {
        (n.total_reductions, n.input) = (4_000_000, Some((100_000, 0)));
        let ran = vec!["hub:publish/2".to_owned(), "hub:loop/1".to_owned()];
        let row = row(|r| {
            r.name = Some("hub".to_owned());
            r.stack = ran;
        });
        n.busiest = vec![SyntheticProcess {
            reductions: 3_000_000,
            reductions_growth: more,
            row,
            ..SyntheticProcess::default()
        }];
    })
}

#[test]
fn a_process_that_does_more_and_more_work_is_named() {
    let found = finding(&works_more(80_000), "BT085");
    assert_eq!((found.level, found.subject_text().as_deref()), (Level::Notice, Some("hub (<0.77.0>)")));
    assert!(found.title.contains("hub grew 24 % in 10 s"), "{}", found.title);
    assert!(
        found.remedies[0].change.contains("check what hub:publish/2 iterates over"),
        "{:?}",
        found.remedies
    );
    assert_eq!(entries(&found), ["code.bounded_state"]);
    // In this order: a little more work, constant work, less work.
    for more in [20_000, 0, -80_000] {
        assert_healthy(&works_more(more), "BT085");
    }
    // In this order: the number of messages grows equally; the process does little of the work; the node does little work.
    assert_healthy(&works_more(80_000).with(|n| n.input = Some((100_000, 3_000))), "BT085");
    assert_healthy(&works_more(80_000).with(|n| n.total_reductions = 40_000_000), "BT085");
    assert_healthy(&works_more(80_000).with(|n| n.utilization = 0.05), "BT085");
    // A process of OTP.
    let of_otp = works_more(80_000).with(|n| n.busiest[0].row.name = Some("code_server".to_owned()));
    assert_healthy(&of_otp, "BT085");
    // A list that is searched for each message makes the process a bottleneck later.
    let full = works_more(80_000)
        .with(|n| (n.busiest[0].queue, n.busiest[0].runnable_of_10, n.utilization) = ((5, 0), 10, 0.6));
    let diagnosis = diagnose(&full.period());
    let serial = diagnosis.findings().into_iter().find(|found| found.code.0 == "BT005").cloned();
    assert_eq!(serial.expect("busy").follows.map(|of| of.code.0), Some("BT085"));
}
