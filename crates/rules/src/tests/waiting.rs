//! Tests of rules on processes that wait for others.

use beamtune_model::{Cost, CpuUse, Level, WaitSampleRow, metrics};

use super::node::{SyntheticNode, SyntheticProcess, node, stack_row};
use super::{Read, assert_healthy, diagnose, entries, finding, held, outcome, row, value};
use crate::signals::known_processes;

const POOL: &str = "<0.77.0>";

/// A node on which thirty of a hundred sampled processes wait for a pool, which itself waits with an empty queue.
fn pool(stack: &[&str]) -> SyntheticNode {
    node().with(|n| {
        n.processes = (400, 0);
        n.busiest = vec![SyntheticProcess {
            reductions: 1_000,
            row: row(|r| {
                r.name = Some("shop_pool".to_owned());
                r.initial_call = Some("shop_pool:init/1".to_owned());
            }),
            ..SyntheticProcess::default()
        }];
        n.stacks = vec![
            stack_row(60, &["gen_server:loop/7"], &[]),
            stack_row(30, stack, &[(POOL, 30), ("<0.9.0>", 1)]),
            held(POOL, "waiting", &["gen_server:loop/7"]),
        ];
    })
}

#[test]
fn an_exhausted_pool_is_named() {
    let found = finding(&pool(&["gen:do_call/4", "poolboy:checkout/3", "shop:buy/2"]), "BT053");
    assert_eq!(
        (found.level, found.subject_text().as_deref()),
        (Level::Warning, Some("shop_pool (<0.77.0>)"))
    );
    assert_eq!(found.title, "120 callers wait for shop_pool, an exhausted pool");
    assert!(found.detail.starts_with("<0.77.0>; callers wait in shop:buy/2; "), "{}", found.detail);
    assert_eq!(entries(&found), ["code.shorter_hold", "code.more_in_flight", "code.back_pressure"]);
    assert!(found.cost().is_some() && found.cost() == value(&found, "processes waiting").map(Cost::Waiting));
    let texts: Vec<_> = found.evidence.iter().filter_map(|evidence| evidence.text.as_deref()).collect();
    assert!(texts.contains(&"shop:buy/2") && texts.contains(&"poolboy:checkout/3"), "{texts:?}");
}

#[test]
fn processes_that_may_wait_for_work_are_a_notice() {
    let node = pool(&["gen:do_call/4", "gen_server:call/3", "shop:next_job/1"]);
    assert_eq!(finding(&node, "BT053").level, Level::Notice);
    // Messages in their own queues show that the waiters have other work.
    let wanted = node.with(|n| n.stacks[1].queued = 20);
    assert_eq!(finding(&wanted, "BT053").level, Level::Warning);
}

#[test]
fn a_process_that_waits_itself_is_reported_with_its_target() {
    let node = pool(&["gen:do_call/4", "shop:buy/2"]).with(|n| {
        n.stacks[2] = WaitSampleRow {
            targets: vec![("other@host".to_owned(), 1)],
            ..held(POOL, "waiting", &["gen:do_call/4", "shop_pool:ask/1"])
        };
    });
    let found = finding(&node, "BT053");
    assert_eq!(found.level, Level::Warning);
    assert_eq!(found.title, "120 callers wait for shop_pool, blocked by other@host");
    assert!(
        found.detail.ends_with("it waits for other@host in gen:do_call/4, called by shop_pool:ask/1"),
        "{}",
        found.detail
    );
}

#[test]
fn processes_of_one_kind_are_one_finding() {
    let node = pool(&["gen:do_call/4", "shop:buy/2"]).with(|n| {
        n.busiest.push(SyntheticProcess { pid: "<0.78.0>", ..n.busiest[0].clone() });
        n.stacks[1].targets = vec![(POOL.to_owned(), 15), ("<0.78.0>".to_owned(), 15)];
        n.stacks[2] = held(POOL, "waiting", &["prim_inet:recv0/3"]);
        n.stacks.push(held("<0.78.0>", "waiting", &["prim_inet:recv0/3"]));
    });
    let found = finding(&node, "BT053");
    // With a name, the title would be too long.
    assert_eq!(found.title, "120 callers wait for 2 processes, themselves waiting");
    assert!(found.detail.starts_with("shop_pool (<0.77.0>) and shop_pool (<0.78.0>); "), "{}", found.detail);
    assert!(found.detail.ends_with("they wait in prim_inet:recv0/3"), "{}", found.detail);
    // Connections to different replicas of a service do not make them different.
    let connected = node.with(|n| {
        n.stacks[2].targets = vec![("10.0.0.7:5432".to_owned(), 1)];
        n.stacks[3].targets = vec![("10.0.0.8:5432".to_owned(), 1)];
    });
    let found = finding(&connected, "BT053");
    assert!(
        found.detail.ends_with("they wait for 10.0.0.7:5432 and 1 more in prim_inet:recv0/3"),
        "{}",
        found.detail
    );
}

#[test]
fn the_peer_of_the_blocking_process_is_named() {
    // The process is a database client in its receive loop: it has sent its request, and its callers wait.
    let client = pool(&["gen:do_call/4", "poolboy:checkout/3"])
        .with(|n| n.stacks[2].targets = vec![("[::1]:5432".to_owned(), 1)]);
    let found = finding(&client, "BT053");
    let evidence = found.evidence.iter().find(|evidence| evidence.what == "connected to");
    assert_eq!(evidence.and_then(|evidence| evidence.text.as_deref()), Some("[::1]:5432"));
    let idle = finding(&client, "BT015");
    assert!(idle.title.ends_with("cores idle: processes wait for shop_pool"), "{}", idle.title);
    assert!(idle.detail.contains("connected to [::1]:5432"), "{}", idle.detail);
    // A process that waits for another one does not wait for its peer.
    let asks = client.with(|n| {
        n.stacks[2] = WaitSampleRow {
            targets: vec![("10.0.0.7:5432".to_owned(), 1), ("other@::1".to_owned(), 1)],
            ..held(POOL, "waiting", &["gen:do_call/4", "shop_pool:ask/1"])
        };
    });
    let found = finding(&asks, "BT053");
    assert!(
        found.detail.ends_with("it waits for other@::1 in gen:do_call/4, called by shop_pool:ask/1"),
        "{}",
        found.detail
    );
}

#[test]
fn pairs_of_caller_and_callee_are_not_a_pool() {
    let node = pool(&["gen:do_call/4", "shop:buy/2"]).with(|n| {
        let pids = ["<0.81.0>", "<0.82.0>", "<0.83.0>", "<0.84.0>"];
        n.busiest = pids.map(|pid| SyntheticProcess { pid, ..n.busiest[0].clone() }).to_vec();
        n.stacks[1].targets = pids.map(|pid| (pid.to_owned(), 1)).to_vec();
        n.stacks.extend(pids.map(|pid| held(pid, "waiting", &["gen_server:loop/7"])));
    });
    assert_healthy(&node, "BT053");
    // Acceptors do not wait for the supervisor that they monitor.
    assert_healthy(&pool(&["prim_inet:accept0/3", "inet6_tcp:accept/2", "ranch_acceptor:loop/5"]), "BT053");
    // A process that waits for any message does not wait for a pool either.
    assert_healthy(&pool(&["shop_socket:ws_loop/5", "shop_socket:init/1"]), "BT053");
}

#[test]
fn a_busy_server_is_reported_by_other_rules() {
    let stack = ["gen:do_call/4", "shop:buy/2"];
    assert_healthy(&pool(&stack).with(|n| n.stacks[2].status = "running".to_owned()), "BT053");
    assert_healthy(&pool(&stack).with(|n| n.stacks[2].queued = 7), "BT053");
    assert_healthy(&pool(&stack).with(|n| n.busiest[0].runnable_of_10 = 9), "BT053");
    assert_healthy(&pool(&stack).with(|n| n.busiest[0].runnable_of_10 = 3), "BT053");
    finding(&pool(&stack).with(|n| n.busiest[0].runnable_of_10 = 1), "BT053");
}

#[test]
fn erpc_calls_are_reported_without_monitors() {
    let node = pool(&["erpc:call/5", "shop:sync/1"]).with(|n| n.stacks[1].targets = Vec::new());
    let found = finding(&node, "BT053");
    assert_eq!((found.level, found.title.as_str()), (Level::Notice, "120 callers wait for an erpc reply"));
    assert!(found.remedies[0].change.starts_with("check that node"), "{:?}", found.remedies);
    // If the caller has a monitor, the node is known.
    let told = node.with(|n| n.stacks[1].targets = vec![("other@host".to_owned(), 30)]);
    assert!(finding(&told, "BT053").title.ends_with("wait for node other@host"));
}

#[test]
fn a_process_that_was_never_inspected_is_named_by_its_table() {
    let node = pool(&["gen:do_call/4", "shop:buy/2"]).with(|n| {
        n.busiest[0].row.name = None;
        n.busiest[0].row.initial_call = None;
        n.large_tables = vec![("carts", 1 << 20, 0)];
    });
    let mut period = node.period();
    let process = period.processes.iter_mut().find(|process| process.pid == POOL).expect("the process");
    (process.row, process.owner_name) = (None, Some("Elixir.Shop.PIDPartition0".to_owned()));
    assert_eq!(period.title_of(POOL), "Elixir.Shop.PIDPartition0 (<0.77.0>)");
    assert!(known_processes::knows(period.process(POOL).expect("the process")));
}

#[test]
fn requests_of_callers_that_gave_up_are_counted() {
    let with = |queued: i64, at: &str| {
        pool(&["gen:do_call/4", "shop:buy/2"]).with(|n| {
            n.stacks[2] = WaitSampleRow { queued, ..held(POOL, "waiting", &[at, "shop_pool:ask/1"]) };
        })
    };
    let first = |queued, at: &str| {
        let found = finding(&with(queued, at), "BT053");
        let first = entries(&found)[0].to_owned();
        (value(&found, "requests without a waiting caller"), first)
    };
    // 120 processes wait: queued requests beyond these were given up.
    assert_eq!(first(300, "gen:do_call/4"), (Some(180.0), "code.back_pressure".to_owned()));
    assert_eq!(first(130, "gen:do_call/4"), (None, "code.more_in_flight".to_owned()));
    // If it waits for a peer, the peer comes first.
    assert_eq!(first(300, "prim_inet:recv0/3"), (Some(180.0), "code.more_in_flight".to_owned()));
}

#[test]
fn few_waiting_processes_are_healthy() {
    let taking = ["gen:do_call/4", "poolboy:checkout/3"];
    assert_healthy(&pool(&taking).with(|n| n.stacks[1].targets = vec![(POOL.to_owned(), 1)]), "BT053");
    assert_healthy(&pool(&taking).with(|n| n.processes = (10, 0)), "BT053");
    let nothing = node().with(|n| n.stacks = Vec::new());
    assert!(matches!(outcome(&nothing.period(), "BT053"), beamtune_model::Outcome::NotJudged { .. }));
}

#[test]
fn waiters_for_a_pool_explain_unused_cpu() {
    let node = pool(&["gen:do_call/4", "poolboy:checkout/3", "shop:buy/2"]);
    let period = node.period();
    let found = finding(&node, "BT015");
    assert_eq!(super::cpu::unused(&found), Some(CpuUse::WaitingForReplies));
    assert!(found.title.ends_with("cores idle: processes wait for shop_pool"), "{}", found.title);
    assert!(found.detail.contains("120 processes wait for shop_pool"), "{}", found.detail);
    let diagnosis = diagnose(&period);
    let idle = diagnosis.findings().into_iter().find(|finding| finding.code.0 == "BT015").expect("found");
    assert_eq!(idle.follows.as_ref().map(|follows| follows.code.0), Some("BT053"));
    assert!(period.stat(&metrics::PROCESS_COUNT, "").is_ok());
}

#[test]
fn a_process_that_may_serialize_its_callers_is_named() {
    let node = pool(&["gen:do_call/4", "gen_server:call/3", "shop:sell/1"])
        .with(|n| (n.utilization, n.cpu, n.active_tasks) = (0.5, 0.5, 2));
    let idle = finding(&node, "BT015");
    assert_eq!(super::cpu::unused(&idle), Some(CpuUse::TakingTurns));
    assert!(idle.title.ends_with("cores idle: likely serialized by shop_pool"), "{}", idle.title);
    assert!(idle.detail.contains("120 processes wait for shop_pool (<0.77.0>)"), "{}", idle.detail);
    assert!(idle.remedies[0].change.starts_with("split shop_pool by key"), "{:?}", idle.remedies);
    let turns = idle.evidence.iter().find(|evidence| evidence.what == "possibly serialized by");
    assert_eq!(turns.and_then(|evidence| evidence.text.as_deref()), Some("shop_pool (<0.77.0>)"));
    let shares = diagnose(&node.period()).cpu.expect("an account").shares;
    let turns = shares.into_iter().find(|share| share.what == CpuUse::TakingTurns).expect("a share");
    assert!(turns.how.ends_with("and about 120 processes wait for shop_pool (<0.77.0>)"), "{}", turns.how);
    // The finding about its callers is only a notice, and is listed below what it may explain.
    let waits = finding(&node, "BT053");
    assert_eq!(
        (waits.level, waits.follows.as_ref().map(|cause| cause.code.0)),
        (Level::Notice, Some("BT015"))
    );
    // A process that works is not meant here.
    let works = node.with(|n| n.stacks[2].queued = 7);
    let idle = finding(&works, "BT015");
    assert!(!idle.evidence.iter().any(|evidence| evidence.what == "possibly serialized by"), "{idle:#?}");
}

#[test]
fn processes_that_run_in_turn_are_named_with_the_busiest_first() {
    let worker = |pid, name: &str, reductions| SyntheticProcess {
        pid,
        reductions,
        row: row(|row| row.name = Some(name.to_owned())),
        ..SyntheticProcess::default()
    };
    let node = node().with(|n| {
        (n.utilization, n.cpu, n.active_tasks, n.total_reductions) = (0.5, 0.5, 2, 1_000_000);
        n.busiest = vec![
            worker("<0.81.0>", "bill_a", 200_000),
            worker("<0.82.0>", "bill_b", 280_000),
            worker("<0.83.0>", "clock", 1_000),
            worker("<0.84.0>", "bill_c", 210_000),
            worker("<0.85.0>", "bill_d", 190_000),
        ];
    });
    let idle = finding(&node, "BT015");
    assert!(idle.title.ends_with("cores idle: processes run one at a time"), "{}", idle.title);
    assert_eq!(idle.detail, "take turns: bill_b, bill_c, bill_a and 1 more");
}

#[test]
fn a_low_load_is_distinguished_from_waiting_work() {
    let idle = node().with(|n| {
        (n.utilization, n.cpu) = (0.1, 0.1);
        n.stacks = vec![
            stack_row(80, &["gen_server:loop/7"], &[]),
            stack_row(20, &["prim_inet:accept0/3", "inet_tcp:accept/1", "ranch_acceptor:run/5"], &[]),
        ];
    });
    let told = |node: &SyntheticNode| {
        let shares = diagnose(&node.period()).cpu.expect("an account").shares;
        let share = shares.into_iter().find(|share| share.what == CpuUse::NoRunnable).expect("a share");
        let found = finding(node, "BT015");
        assert!(found.title.ends_with(": no runnable process"), "{}", found.title);
        (found.detail, share.how)
    };
    let (detail, how) = told(&idle);
    let expect = "of 200 sampled processes, none waited for a reply, a socket or a timer";
    assert_eq!(detail, expect);
    assert!(how.ends_with("none waited for a reply, a socket or a timer"), "{how}");
    // Some processes ran, were in a send, or waited where hardly any other process does: their functions are unknown.
    let more = idle.clone().with(|n| n.stacks[0].count = 77);
    assert_ne!(told(&more).0, expect);
    // One process waits for a socket, which may be the reason.
    let waits = idle.with(|n| n.stacks.push(stack_row(1, &["prim_inet:recv0/3", "shop:buy/2"], &[])));
    let (detail, how) = told(&waits);
    assert_ne!(detail, expect);
    assert!(how == "no process was runnable", "{how}");
}

#[test]
fn holders_of_what_others_wait_for_are_reported() {
    // The pool is the program's own, and its name does not show that. 30 processes wait in it, and 5 are past it.
    let waits = ["gen:do_call/4", "shop_things:with/1", "shop:order/1", "shop:client/0"];
    let has = [
        "prim_inet:recv0/3",
        "shop_post:label/1",
        "shop:-order/1-fun-0-/1",
        "shop_things:with/1",
        "shop:order/1",
    ];
    let node = pool(&waits).with(|n| n.stacks.push(stack_row(5, &has, &[])));
    let found = finding(&node, "BT053");
    assert_eq!(found.level, Level::Warning);
    assert!(
        found.detail.ends_with(
            "it has no free member left; holders are in prim_inet:recv0/3, called by shop_post:label/1"
        ),
        "{}",
        found.detail
    );
    assert_eq!(entries(&found), ["code.shorter_hold", "code.more_in_flight", "code.back_pressure"]);
    // A single holder is too few.
    let one = pool(&waits).with(|n| n.stacks.push(stack_row(1, &has, &[])));
    assert_eq!(finding(&one, "BT053").level, Level::Notice);
    // Workers that ask for work in their outermost function hold nothing.
    let idle = ["gen:do_call/4", "shop:worker/0", "proc_lib:init_p_do_apply/3"];
    let at_work = ["prim_inet:recv0/3", "shop:job/1", "shop:worker/0", "proc_lib:init_p_do_apply/3"];
    let workers = pool(&idle).with(|n| n.stacks.push(stack_row(5, &at_work, &[])));
    assert_eq!(finding(&workers, "BT053").level, Level::Notice);
}

#[test]
fn a_receive_within_a_callback_counts_as_waiting() {
    let callback = ["shop_auth:handle_call/3", "gen_server:try_handle_call/4", "gen_server:handle_msg/6"];
    let node =
        pool(&["gen:do_call/4", "shop:login/2"]).with(|n| n.stacks[2] = held(POOL, "waiting", &callback));
    let found = finding(&node, "BT053");
    assert_eq!(found.level, Level::Warning);
    assert!(found.detail.ends_with("it waits in shop_auth:handle_call/3"), "{}", found.detail);
}

/// A node on which thirty of a hundred sampled processes have this stack.
fn thirty(stack: &[&str]) -> SyntheticNode {
    node().with(|n| {
        n.processes = (400, 0);
        n.stacks = vec![stack_row(70, &["gen_server:loop/7"], &[]), stack_row(30, stack, &[])];
    })
}

#[test]
fn waiters_for_global_or_mnesia_locks_are_reported_with_the_holder() {
    let global =
        ["global:random_sleep/1", "global:set_lock/4", "global:trans/4", "seats:reserve/2", "seats:client/0"];
    let found = finding(&thirty(&global), "BT066");
    assert_eq!((found.level, found.subject_text().as_deref()), (Level::Warning, Some("global:trans")));
    assert_eq!(found.title, "120 processes wait for a global:trans lock");
    assert_eq!(found.detail, "requested by seats:reserve/2");
    assert_eq!(entries(&found), ["code.shorter_hold"]);

    let restarts = ["timer:sleep/1", "mnesia_tm:restart/9", "bills:pay/1", "bills:client/0"];
    let report =
        ["prim_inet:recv0/3", "report:push/2", "mnesia:foldl/6", "report:run/0", "mnesia_tm:apply_fun/3"];
    let holder = thirty(&restarts).with(|n| {
        n.busiest = vec![SyntheticProcess {
            pid: "<0.99.0>",
            reductions: 5_000,
            row: row(|r| r.name = Some("report".to_owned())),
            waiting_stack: report.map(str::to_owned).to_vec(),
            ..SyntheticProcess::default()
        }];
    });
    let found = finding(&holder, "BT066");
    assert_eq!(found.subject_text().as_deref(), Some("report (<0.99.0>)"));
    assert_eq!(found.title, "report locks a whole Mnesia table: 120 processes wait");
    assert_eq!(found.detail, "<0.99.0>; by mnesia:foldl/6; requested by bills:pay/1");
    // Two processes hold locks in turn, so neither alone is the cause.
    let two =
        holder.clone().with(|n| n.busiest.push(SyntheticProcess { pid: "<0.98.0>", ..n.busiest[0].clone() }));
    assert_eq!(finding(&two, "BT066").subject_text().as_deref(), Some("Mnesia transactions"));
    // If mnesia_locker is busy, it is the bottleneck itself.
    let behind = thirty(&restarts).with(|n| {
        n.busiest = vec![SyntheticProcess {
            pid: "<0.97.0>",
            reductions: 500_000,
            runnable_of_10: 10,
            row: row(|r| r.name = Some("mnesia_locker".to_owned())),
            ..SyntheticProcess::default()
        }];
    });
    assert_healthy(&behind, "BT066");
    // Other sleeps and calls are not locks.
    assert_healthy(&thirty(&["timer:sleep/1", "seats:client/0"]), "BT066");
    assert_healthy(&thirty(&["gen:do_call/4", "seats:ask/1", "seats:client/0"]), "BT066");
}

#[test]
fn a_deadlock_is_critical() {
    let (stock, prices) = (POOL, "<0.78.0>");
    let calls = ["gen:do_call/4", "shop_stock:handle_call/3", "gen_server:try_handle_call/4"];
    let waits = |pid: &str, on: &str| WaitSampleRow {
        targets: vec![(on.to_owned(), 1)],
        ..held(pid, "waiting", &calls)
    };
    let circle = pool(&["gen:do_call/4", "shop:buy/2"]).with(|n| {
        n.busiest.push(SyntheticProcess {
            pid: prices,
            row: row(|r| r.name = Some("prices".to_owned())),
            ..SyntheticProcess::default()
        });
        n.stacks[2] = waits(stock, prices);
        n.stacks.push(waits(prices, stock));
    });
    let found = finding(&circle, "BT053");
    assert_eq!(found.level, Level::Critical);
    assert_eq!(found.title, "Deadlock: shop_pool and prices wait for each other");
    assert!(found.detail.contains("shop_pool (<0.77.0>), prices (<0.78.0>)"), "{}", found.detail);
    assert_eq!(entries(&found), ["code.no_circular_calls"]);
    // In this order: a chain that ends at a process that works; a process that monitors several. Neither is a deadlock.
    let chain = circle.clone().with(|n| n.stacks[3] = held(prices, "running", &[]));
    assert_eq!(finding(&chain, "BT053").level, Level::Warning);
    let several = circle.with(|n| n.stacks[3].targets.push(("<0.9.0>".to_owned(), 1)));
    assert_eq!(finding(&several, "BT053").level, Level::Warning);
}
