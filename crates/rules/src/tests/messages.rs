//! Tests of rules on message queues: messages that stay, selective receives, and processes that wait for the logger or a peer.

use beamtune_model::{Cost, Finding, Level, Outcome, PortRow, ProcessRow, facts, metrics};

use super::node::{Listener, SyntheticNode, SyntheticProcess, SystemMonitorEvent, TcpGroup, node, stack_row};
use super::{Read, assert_healthy, entries, finding, held, outcome, row, value};

/// A process with this many messages, this many more in each second, and this last function and status.
fn queue(queue: (i64, i64), place: &str, status: &str) -> SyntheticNode {
    node().with(|n| {
        n.busiest = vec![SyntheticProcess {
            queue,
            reductions: 900,
            row: row(|r| {
                r.name = Some("shop".to_owned());
                r.current_function = Some(place.to_owned());
                r.status = Some(status.to_owned());
            }),
            ..SyntheticProcess::default()
        }];
    })
}

fn changed(node: SyntheticNode, change: impl FnOnce(&mut ProcessRow)) -> SyntheticNode {
    node.with(|n| change(&mut n.busiest[0].row))
}

#[test]
fn messages_that_no_receive_matches_are_found() {
    let stays = queue((5_000, 0), "shop:loop/2", "waiting");
    let found = finding(&stays, "BT040");
    assert!(matches!(found.cost(), Some(Cost::DelaySeconds(delay)) if delay > 0.0), "{:?}", found.cost());
    assert_eq!((found.level, found.subject_text().as_deref()), (Level::Warning, Some("shop (<0.77.0>)")));
    assert_eq!(entries(&found), ["code.receive_all", "code.call_with_alias"]);
    assert!(found.title.starts_with("5,000 messages stay unread"), "{}", found.title);
    // A few more messages arrive in each second.
    assert_eq!(finding(&queue((5_000, 20), "shop:loop/2", "waiting"), "BT040").level, Level::Warning);
    assert_eq!(finding(&queue((2_000_000, 0), "shop:loop/2", "waiting"), "BT040").level, Level::Critical);
    assert_eq!(finding(&queue((300, 0), "shop:loop/2", "waiting"), "BT040").level, Level::Notice);
    // The release has no aliases.
    let old = stays.with(|n| n.facts.push((facts::OTP_RELEASE, "23".to_owned())));
    assert_eq!(entries(&finding(&old, "BT040")), ["code.receive_all"]);
}

#[test]
fn messages_that_are_received_later_are_not_reported() {
    for healthy in [
        // The queue grows, which BT006 reports.
        queue((5_000, 1_000), "shop:loop/2", "waiting"),
        queue((5_000, -100), "shop:loop/2", "waiting"),
        // The process receives the messages after its reply has come.
        queue((5_000, 0), "gen:do_call/4", "waiting"),
        queue((5_000, 0), "prim_inet:recv0/3", "waiting"),
        queue((5_000, 0), "shop:loop/2", "running"),
        queue((20, 0), "shop:loop/2", "waiting"),
        queue((5_000, 0), "shop:loop/2", "waiting").with(|n| n.busiest[0].runnable_of_10 = 6),
        queue((5_000, 0), "shop:loop/2", "waiting").with(|n| n.busiest[0].row.current_function = None),
    ] {
        assert_healthy(&healthy, "BT040");
    }
}

#[test]
fn a_process_that_has_ended_keeps_no_messages() {
    for (node, code) in [(queue((5_000, 0), "shop:loop/2", "waiting"), "BT040"), (hub(4_000, 8_346), "BT044")]
    {
        let until =
            |last: i64| node.clone().with(|n| (n.seconds, n.busiest[0].last_second) = (60, Some(last)));
        assert_eq!(finding(&until(55), code).level, Level::Warning, "{code}");
        assert_healthy(&until(30), code);
    }
}

#[test]
fn a_behaviour_loop_that_sleeps_with_messages_missed_its_wake_up() {
    let sleeps = queue((5_000, 0), "gen_server:loop/7", "waiting");
    let off_heap = changed(sleeps, |row| row.message_queue_data = Some("off_heap".to_owned()));
    let found = finding(&off_heap, "BT040");
    assert_eq!(entries(&found), ["process.message_queue_data"]);
    let on_heap = changed(off_heap, |row| row.message_queue_data = Some("on_heap".to_owned()));
    assert!(entries(&finding(&on_heap, "BT040")).is_empty());
    assert!(found.against.iter().any(|against| against.contains("8119")), "{:?}", found.against);
}

#[test]
fn reductions_distinguish_a_search_from_other_work() {
    let searches = |place: &str| {
        queue((8_000, 0), place, "running").with(|n| {
            n.busiest[0].runnable_of_10 = 10;
            n.busiest[0].reductions = 220_000_000;
        })
    };
    let found = finding(&searches("shop:cancelled/1"), "BT041");
    assert_eq!((found.level, found.subject_text().as_deref()), (Level::Warning, Some("shop (<0.77.0>)")));
    assert_eq!(
        entries(&found),
        ["code.no_selective_receive", "code.receive_by_reference", "code.back_pressure"]
    );
    assert_eq!(found.against.len(), 1, "a tight loop looks the same");
    // A process in a call does nothing else than search.
    let call = finding(&searches("gen:do_call/4").with(|n| n.busiest[0].queue.0 = 20_000), "BT041");
    assert_eq!((call.level, call.against.len()), (Level::Critical, 0));
    for own in ["shop:cancelled/1", "erlang:binary_to_term/1"] {
        let own = finding(&searches(own).with(|n| n.busiest[0].queue.0 = 20_000), "BT041");
        assert_eq!(own.level, Level::Warning);
        assert!(own.title.contains(" likely searches "), "{}", own.title);
    }
    // A long queue does not fit into the CPU's caches, so the search is slower.
    let long = searches("shop:cancelled/1")
        .with(|n| (n.busiest[0].reductions, n.busiest[0].queue.0) = (72_000_000, 250_000));
    assert_eq!(finding(&long, "BT041").level, Level::Warning);
    // With less CPU time, the process has done less.
    let starved = searches("shop:cancelled/1").with(|n| {
        n.busiest[0].reductions = 40_000_000;
        n.cpu = 0.1;
    });
    assert_eq!(finding(&starved, "BT041").level, Level::Warning);
    for healthy in [
        // With so few reductions, they are function calls of other work.
        searches("shop:serve/1").with(|n| n.busiest[0].reductions = 30_000_000),
        // A tight loop does more reductions than a search.
        searches("shop:spin/1").with(|n| n.busiest[0].reductions = 480_000_000),
        // A behaviour's loop receives the first message, so it does not search.
        searches("gen_server:loop/7"),
        searches("shop:cancelled/1").with(|n| n.busiest[0].queue.0 = 30),
        searches("shop:cancelled/1").with(|n| n.busiest[0].runnable_of_10 = 7),
        searches("shop:cancelled/1").with(|n| n.busiest[0].row.current_function = None),
    ] {
        assert_healthy(&healthy, "BT041");
    }
}

#[test]
fn a_send_before_otp_26_searches_the_whole_queue() {
    let sends = |place: &str, release: &str| {
        let node = queue((200_000, 500), place, "running").with(|n| {
            n.facts.push((facts::OTP_RELEASE, release.to_owned()));
            (n.cpu, n.utilization) = (1.0, 1.0);
            n.busiest[0].runnable_of_10 = 10;
            // On a slow host, a search has no more reductions than other work.
            n.busiest[0].reductions = 38_000_000;
        });
        let mut period = node.period();
        for process in &mut period.processes {
            process.run_stacks = vec![(vec![place.to_owned(), "ships:forward/3".to_owned()], 10)];
        }
        period
    };
    let judged = |place: &str, release: &str| match outcome(&sends(place, release), "BT041") {
        Outcome::Found(found) => found.into_iter().next(),
        _ => None,
    };
    let found = judged("prim_inet:do_sendto/4", "25").expect("a search");
    assert_eq!(found.level, Level::Critical);
    assert_eq!(entries(&found), ["code.no_selective_receive", "build.otp_version", "code.back_pressure"]);
    // In this order: from OTP 26 on, the receive skips the existing queue; the function is no receive; the driver works, not the receive
    // after it.
    for (place, release) in
        [("prim_inet:do_sendto/4", "27"), ("shop:serve/1", "25"), ("erlang:port_command/3", "25")]
    {
        assert!(judged(place, release).is_none(), "{place} {release}");
    }
}

/// A log handler with this many messages.
fn handler(name: &str, length: i64) -> SyntheticNode {
    let node = queue((length, 0), "logger_std_h:file_ctrl_call/2", "waiting");
    changed(node, |row| row.name = Some(name.to_owned()))
}

#[test]
fn a_log_handler_that_processes_wait_for_is_found() {
    let waits = finding(&handler("logger_std_h_default", 60), "BT042");
    assert_eq!(
        (waits.level, waits.subject_text().as_deref()),
        (Level::Warning, Some("logger_std_h_default (<0.77.0>)"))
    );
    assert_eq!(entries(&waits), ["kernel.logger_level", "logger.drop_mode_qlen", "code.faster_log"]);
    assert!(!waits.title.contains("dropped"), "{}", waits.title);
    let drops = finding(&handler("logger_disk_log_h_audit", 300), "BT042");
    assert!(drops.level == Level::Critical && drops.title.contains("dropped"), "{}", drops.title);
    // Elixir's own logger has other names and other values of its settings.
    let elixir = finding(&handler("Elixir.Logger", 300), "BT042");
    assert_eq!(
        (elixir.level, entries(&elixir)),
        (Level::Warning, vec!["kernel.logger_level", "code.faster_log"])
    );
    // After a burst, the handler is not behind for long.
    let burst = handler("logger_std_h_default", 60).with(|n| n.busiest[0].queue = (60, -40));
    assert_eq!(finding(&burst, "BT042").level, Level::Notice);
    // RabbitMQ's handler is recognized by its initial call.
    let olp = |name: &str| {
        changed(handler(name, 60), |row| row.initial_call = Some("logger_olp:init/1".to_owned()))
    };
    assert_eq!(finding(&olp("rabbit_logger_std_h_file"), "BT042").level, Level::Warning);
    for healthy in [
        handler("logger_std_h_default", 3),
        handler("Elixir.Logger", 12),
        handler("shop", 300),
        olp("logger_proxy"),
        node(),
    ] {
        assert_healthy(&healthy, "BT042");
    }
}

#[test]
fn a_log_handler_is_judged_by_its_own_settings() {
    let set = |length: i64, settings: &str, release: &str| {
        let json = format!(r#"{{"logger_std_h_default":"{settings} default"}}"#);
        handler("logger_std_h_default", length).with(|n| {
            n.facts.retain(|(key, _)| *key != facts::OTP_RELEASE);
            n.facts.extend([(facts::LOG_HANDLERS, json), (facts::OTP_RELEASE, release.to_owned())]);
        })
    };
    let off = "100000 100001 200000 false 500";
    let found = finding(&set(20_000, off, "25"), "BT042");
    assert_eq!(
        (found.level, entries(&found)),
        (Level::Warning, vec!["logger.drop_mode_qlen", "kernel.logger_level"])
    );
    assert_eq!(found.title, "Log handler default: 20,000 events queued, overload protection off");
    assert_eq!(
        found.remedies[0].change,
        "logger:update_handler_config(default, config, #{sync_mode_qlen => 10, drop_mode_qlen => 200, flush_qlen => 1000, \
         burst_limit_enable => true}), and the same in the configuration"
    );
    let has = |found: &Finding, what: &str| found.evidence.iter().any(|one| one.what == what);
    assert!(has(&found, "handler settings") && has(&found, "cost per event") && found.against.is_empty());
    assert!(!has(&finding(&set(20_000, off, "27"), "BT042"), "cost per event"));
    // A short queue does no harm, whatever the settings; nor does a longer one if sync mode begins later.
    assert_healthy(&set(300, off, "25"), "BT042");
    assert_healthy(&set(60, "100 500 1000 true 500", "25"), "BT042");
    let default = finding(&set(60, "10 200 1000 true 500", "25"), "BT042");
    assert!(default.against.is_empty() && !has(&default, "handler settings"), "{default:#?}");
    // In this order: processes that log wait, although nothing is dropped; a handler makes them wait late.
    let waits = finding(&set(60, "10 100000 200000 true 500", "25"), "BT042");
    assert!(waits.title.ends_with("callers wait"), "{}", waits.title);
    let late = finding(&set(4_000, "5000 6000 7000 true 500", "27"), "BT042");
    assert_eq!(late.title, "Log handler default: 4,000 events queued, sync_mode_qlen is 5000");
    // Events are dropped before processes that log would wait.
    let drops = finding(&set(60, "10 10 1000 true 500", "25"), "BT042");
    assert!(drops.title.contains("dropped"), "{}", drops.title);
}

#[test]
fn a_log_full_of_exit_reports_is_reported_as_such() {
    let below = |last: &str| {
        ["gen:do_call/4", "logger_olp:call/2", "logger_backend:log_allowed/2", last].map(str::to_owned)
    };
    let with = |places: &[(i64, &str)]| {
        handler("logger_std_h_default", 60).with(|n| {
            n.processes = (400, 0);
            n.stacks = vec![held("<0.77.0>", "waiting", &["logger_std_h:file_ctrl_call/2"])];
            n.stacks.extend(places.iter().map(|(count, last)| {
                let stack = below(last);
                stack_row(*count, &stack.each_ref().map(String::as_str), &[("<0.77.0>", *count)])
            }));
        })
    };
    let crashes = finding(&with(&[(20, "gen_server:error_info/8"), (10, "shop:buy/2")]), "BT042");
    let share = value(&crashes, "callers that log the exit of a process").expect("the share");
    assert!((share - 2.0 / 3.0).abs() < 1e-9, "{share}");
    assert_eq!(entries(&crashes)[0], "code.fewer_ends");
    let requests = finding(&with(&[(10, "gen_server:error_info/8"), (20, "shop:buy/2")]), "BT042");
    assert_eq!(
        (value(&requests, "callers that log the exit of a process"), entries(&requests)[0]),
        (None, "kernel.logger_level")
    );
}

#[test]
fn the_unprotected_error_logger_is_judged_by_its_queue() {
    let behind = finding(&handler("error_logger", 20_000), "BT042");
    assert_eq!(
        (behind.level, behind.subject_text().as_deref()),
        (Level::Warning, Some("error_logger (<0.77.0>)"))
    );
    assert_eq!(entries(&behind), ["code.faster_log", "kernel.logger_level"]);
    assert_eq!(finding(&handler("error_logger", 200_000), "BT042").level, Level::Critical);
    assert_eq!(finding(&handler("error_logger", 2_000), "BT042").level, Level::Notice);
    // With a protected handler, this many messages would delay processes that log.
    assert_healthy(&handler("error_logger", 300), "BT042");
    // Its growing queue is not a separate cause.
    let grows = finding(&handler("error_logger", 20_000).with(|n| n.busiest[0].queue.1 = 1_000), "BT006");
    assert_eq!(grows.follows.as_ref().map(|cause| cause.code.0), Some("BT042"));
}

#[test]
fn a_few_samples_of_a_log_handler_are_not_judged() {
    let short = handler("logger_std_h_default", 60).with(|n| n.seconds = 3);
    assert!(matches!(outcome(&short.period(), "BT042"), Outcome::NotJudged { .. }));
}

/// A process that is blocked in a send while messages are queued, and that owns a socket.
fn hub(length: i64, queue_bytes: i64) -> SyntheticNode {
    queue((length, 0), "prim_inet:send_recv_reply/2", "waiting").with(|n| {
        n.sockets = vec![PortRow {
            id: "#Port<0.33>".to_owned(),
            name: "tcp_inet".to_owned(),
            connected: Some("<0.77.0>".to_owned()),
            queue_bytes,
            ..PortRow::default()
        }];
    })
}

#[test]
fn a_process_blocked_in_a_send_is_found_with_its_socket() {
    let found = finding(&hub(4_000, 8_346), "BT044");
    assert_eq!((found.level, found.subject_text().as_deref()), (Level::Warning, Some("shop (<0.77.0>)")));
    assert_eq!(found.title, "shop blocked by a slow peer: 4,000 messages queued");
    assert!(found.detail.ends_with("tcp_inet #Port<0.33> has 8.35 kB unsent"), "{}", found.detail);
    assert_eq!(entries(&found), ["socket.send_timeout", "code.sender_per_peer", "socket.high_watermark"]);
    assert_eq!(finding(&hub(50_000, 8_346), "BT044").level, Level::Critical);
    // The process sent with `!` to a port of an external program.
    let program = changed(hub(4_000, 70_000), |row| {
        row.status = Some("suspended".to_owned());
        row.current_function = Some("erlang:send/2".to_owned());
    })
    .with(|n| n.sockets[0].name = "/usr/bin/convert".to_owned());
    assert_eq!(entries(&finding(&program, "BT044")), ["code.sender_per_peer"]);
    // Without a port, it waits for another node, which BT018 reports.
    assert_healthy(&program.with(|n| n.sockets.clear()), "BT044");
    // The queue of the socket is empty at the sample.
    assert_eq!(finding(&hub(50_000, 0), "BT044").level, Level::Warning);
    // Without system monitor events.
    assert_eq!(
        finding(&hub(4_000, 8_346).with(|n| n.missing_metrics.push(&metrics::EVENT_COUNT)), "BT044").level,
        Level::Warning
    );
    for healthy in [
        hub(0, 8_346),
        changed(hub(4_000, 8_346), |row| row.current_function = Some("prim_inet:recv0/3".to_owned())),
        hub(4_000, 8_346).with(|n| n.busiest[0].runnable_of_10 = 8),
    ] {
        assert_healthy(&healthy, "BT044");
    }
}

#[test]
fn a_peer_in_the_same_node_is_recognized_by_unread_bytes_and_both_ends_are_one_finding() {
    let pair = |address: &'static str| {
        hub(4_000, 8_346).with(|n| {
            n.listeners = vec![Listener { address, waiting: &[0], limit: None }];
            n.tcp = vec![TcpGroup {
                group: "to 10.1.0.4:9000",
                connections: &[],
                unread: 1,
                sampled: &[("10.1.0.4:40010", 28_000, Some(0))],
            }];
        })
    };
    let inside = pair("0.0.0.0:9000");
    let found = finding(&inside, "BT044");
    assert_eq!(found.title, "shop blocked sending to 10.1.0.4:40010: 4,000 messages queued");
    assert!(found.detail.contains("a process of this node: 28.0 kB unread for 1"), "{}", found.detail);
    assert_eq!(entries(&found)[0], "code.read_sockets");
    let unread = finding(&inside, "BT079");
    assert_eq!(unread.follows.as_ref().map(|of| of.code.0), Some("BT044"));
    let says = "28.0 kB from 10.1.0.4:9000 in the receive queue of 10.1.0.4:40010; this node listens at 10.1.0.4:9000";
    assert!(unread.detail.starts_with(says), "{}", unread.detail);
    // In this order: the peer is not in the node; it may be one of two.
    let outside = pair("0.0.0.0:9001");
    let found = finding(&outside, "BT044");
    assert_eq!(found.title, "shop blocked by a slow peer: 4,000 messages queued");
    assert!(found.detail.contains("inet:peername(erlang:list_to_port(\"#Port<0.33>\"))"), "{}", found.detail);
    assert!(finding(&outside, "BT079").follows.is_none());
    let two = inside.with(|n| {
        let other = PortRow {
            id: "#Port<0.34>".to_owned(),
            connected: Some("<0.78.0>".to_owned()),
            ..n.sockets[0].clone()
        };
        n.sockets.push(other);
    });
    assert!(finding(&two, "BT079").follows.is_none());
}

#[test]
fn connections_of_one_kind_with_slow_peers_are_one_finding_and_their_queues_follow() {
    let viewers = node().with(|n| {
        let viewer = |pid: &'static str, status: &str, queue: (i64, i64)| SyntheticProcess {
            pid,
            queue,
            reductions: 900,
            waiting_stack: vec!["prim_inet:send/4".to_owned(), "chat:watch/1".to_owned()],
            row: row(|r| {
                r.initial_call = Some("chat:viewer/2".to_owned());
                r.current_function = Some("prim_inet:send/4".to_owned());
                r.stack = vec!["prim_inet:send/4".to_owned(), "chat:watch/1".to_owned()];
                r.status = Some(status.to_owned());
            }),
            ..SyntheticProcess::default()
        };
        n.busiest = vec![
            viewer("<0.81.0>", "waiting", (2_000, 100)),
            // This process was just woken.
            viewer("<0.82.0>", "running", (2_500, 90)),
            // The queue of this process begins to grow in this period.
            viewer("<0.83.0>", "suspended", (0, 200)),
        ];
    });
    let found = |code: &str| match outcome(&viewers.period(), code) {
        Outcome::Found(found) => found,
        other => panic!("{code}: {other:?}"),
    };
    let sends = found("BT044");
    assert_eq!(sends.len(), 1, "{sends:#?}");
    assert!(
        sends[0].detail.starts_with("in a send, called by chat:watch/1; worst: ")
            && sends[0].detail.contains("<0.82.0>"),
        "{}",
        sends[0].detail
    );
    assert_eq!(sends[0].subject_text().as_deref(), Some("chat:viewer/2"));
    assert_eq!(sends[0].cost(), Some(Cost::Waiting(8_400.0)));
    let worst = "worst: chat:viewer/2 likely blocked by a slow peer: ";
    assert!(sends[0].detail.contains(worst), "{}", sends[0].detail);
    assert!(sends[0].detail.contains("; <0.82.0>; sends in prim_inet:send/4"), "{}", sends[0].detail);
    // There is one process for each peer already, so that is not advised.
    assert_eq!(entries(&sends[0]), ["socket.send_timeout", "code.back_pressure", "socket.high_watermark"]);
    let queues = found("BT006");
    assert_eq!(queues.len(), 1, "{queues:#?}");
    assert_eq!(queues[0].follows.as_ref().map(|of| of.code.0), Some("BT044"));
    assert_eq!(found("BT015")[0].follows.as_ref().map(|of| of.code.0), Some("BT044"));
}

#[test]
fn advice_on_a_queue_fits_the_current_function() {
    let grows = |stack: &str| {
        let stack: Vec<String> = stack.split_whitespace().map(str::to_owned).collect();
        let node = queue((3_000, 500), &stack[0], "waiting");
        let found = finding(&changed(node, |row| row.stack = stack), "BT006");
        let first = found.remedies[0].change.clone();
        (entries(&found).iter().map(|&entry| entry.to_owned()).collect::<Vec<_>>(), first)
    };
    let check = |stack: &str, expect: &[&str], begin: &str| {
        let (entries, first) = grows(stack);
        assert_eq!(entries, expect, "{stack}");
        assert!(first.starts_with(begin), "{stack}: {first}");
    };
    let within = ["code.more_in_flight", "code.back_pressure"];
    check("shop:price/1 gen_server:handle_msg/6", &within, "see what it waits for in shop:price/1: ");
    check("prim_inet:send/4 shop:tell/1", &["code.back_pressure"], "drop or merge messages");
    check(
        "gen:do_call/4 shop:ask/1",
        &within,
        "see what it waits for in gen:do_call/4, called by shop:ask/1",
    );
    // A receive of the program matches none of the messages.
    check(
        "shop:wait/1 shop:run/0",
        &["code.receive_all"],
        "see what shop:wait/1, called by shop:run/0 waits for",
    );
    check("gen_server:loop/7", &["code.back_pressure", "code.split_process"], "make senders wait");
    let title = |stack: &str| {
        let stack: Vec<String> = stack.split_whitespace().map(str::to_owned).collect();
        let node = queue((3_000, 500), &stack[0], "waiting");
        let found = finding(&changed(node, |row| row.stack = stack), "BT006");
        (found.title, found.detail)
    };
    // GC is not what delays a process that waits.
    let on_heap = |place: &str| {
        let node = changed(queue((3_000, 500), place, "waiting"), |row| {
            row.stack = vec![place.to_owned()];
            row.message_queue_data = Some("on_heap".to_owned());
        });
        entries(&finding(&node, "BT006")).contains(&"process.message_queue_data")
    };
    assert!(!on_heap("gen:do_call/4") && on_heap("gen_server:loop/7"));
    let (waits, detail) = title("gen:do_call/4 shop:ask/1");
    assert_eq!(waits, "shop waits while its queue grows by 500 messages/s");
    assert!(detail.contains("waits in gen:do_call/4, called by shop:ask/1"), "{detail}");
    assert_eq!(title("gen_server:loop/7").0, "Message queue of shop grows by 500 messages/s");
    // The process is busy, whatever function it was sampled in.
    let busy = queue((3_000, 500), "gen:do_call/4", "running").with(|n| n.busiest[0].runnable_of_10 = 9);
    assert!(finding(&busy, "BT006").remedies[0].change.starts_with("make senders wait"));
}

#[test]
fn senders_suspended_by_busy_ports_are_judged_by_their_rate() {
    let happens = SystemMonitorEvent {
        kind: "busy_port",
        milliseconds: 0,
        subject: "sender (<0.9.0>)",
        first_second: 1,
    };
    let often = node().with(|n| n.events = vec![happens.clone(); 10]);
    // Each sender is suspended for a moment only: no port has queued bytes.
    assert_eq!(finding(&often, "BT044").level, Level::Notice);
    let held = |n: &mut SyntheticNode| {
        n.sockets = vec![PortRow { name: "tcp_inet".to_owned(), queue_bytes: 8_346, ..PortRow::default() }];
    };
    let found = finding(&often.clone().with(held), "BT044");
    assert_eq!((found.level, found.subject_text().as_deref()), (Level::Warning, Some("sender (<0.9.0>)")));
    assert!(found.title.ends_with("times/s, mostly sender"), "{}", found.title);
    assert!(entries(&found).contains(&"socket.send_timeout"));
    // A terminal or an external program has no such socket option.
    let terminal = often.clone().with(held).with(|n| n.sockets[0].name = "tty_sl -c -e".to_owned());
    assert_eq!(entries(&finding(&terminal, "BT044")), ["code.sender_per_peer"]);
    let storm = node().with(|n| n.events = vec![happens; 1_000]).with(held);
    assert_eq!(finding(&storm, "BT044").level, Level::Warning);
    let once = often.clone().with(|n| n.events.truncate(1));
    assert_eq!(finding(&once, "BT044").level, Level::Notice);
    assert_healthy(&node(), "BT044");
}
