//! Tests of rules on processes that wait for something outside the node.

use beamtune_model::{Confidence, Level};

use super::hot_code::found;
use super::node::{SyntheticProcess, node, stack_row};
use super::{Read, assert_healthy, entries, finding, row};

#[test]
fn many_processes_that_wait_for_a_name_server_are_found() {
    let resolving = |count| {
        let stack = [
            "prim_inet:recvfrom0/3",
            "inet_res:do_udp_recv/7",
            "inet:gethostbyname_tm/4",
            "gen_tcp:connect/4",
            "fetch:page/1",
        ];
        node().with(|n| (n.processes, n.stacks) = ((100, 100), vec![stack_row(count, &stack, &[])]))
    };
    let sick = finding(&resolving(40), "BT074");
    assert_eq!((sick.level, sick.subject_text().as_deref()), (Level::Warning, Some("fetch:page/1")));
    assert!(sick.title.contains("name resolution"), "{}", sick.title);
    assert_healthy(&resolving(1), "BT074");
    // A process that receives from a socket is in no such step.
    let receiving =
        node().with(|n| n.stacks = vec![stack_row(80, &["prim_inet:recv0/3", "web:serve/1"], &[])]);
    assert_healthy(&receiving, "BT074");
    let connecting = node().with(|n| {
        n.stacks = vec![stack_row(80, &["prim_inet:connect0/6", "gen_tcp:connect/4", "web:ask/1"], &[])];
    });
    assert_eq!(finding(&connecting, "BT074").level, Level::Notice);
}

#[test]
fn a_growing_number_of_waiting_processes_is_the_leak() {
    let shakes = ["gen:do_call/4", "ssl_gen_statem:call/2", "ssl_gen_statem:handshake/2", "gate:welcome/1"];
    let silent = |processes, count| {
        node().with(|n| {
            let stands =
                vec![stack_row(count, &shakes, &[]), stack_row(100 - count, &["gen_server:loop/7"], &[])];
            (n.processes, n.ports, n.stacks) = (processes, (100, 5), stands);
            n.facts.push((beamtune_model::facts::NOFILE_SOFT, "1024".to_owned()));
        })
    };
    let leak = silent((400, 20), 80).period();
    let shaking = found(&leak, "BT074").expect("handshakes");
    assert_eq!((shaking.level, shaking.subject_text().as_deref()), (Level::Warning, Some("gate:welcome/1")));
    assert!(shaking.detail.contains("they pile up"), "{}", shaking.detail);
    assert!(shaking.remedies[0].change.contains("timeout"), "{}", shaking.remedies[0].change);
    for effect in ["BT007", "BT008"] {
        let follows = found(&leak, effect).expect(effect).follows.map(|of| of.code.0);
        assert_eq!(follows, Some("BT074"), "{effect}");
    }
    // In this order: they are a small share of all processes; their number is constant.
    let few = silent((400, 20), 8).period();
    assert_eq!(found(&few, "BT074").expect("handshakes").level, Level::Notice);
    assert!(found(&few, "BT008").expect("ports").follows.is_none());
    assert_eq!(finding(&silent((400, 0), 80), "BT074").level, Level::Notice);
}

#[test]
fn an_otp_process_that_is_often_delayed_by_a_name_server_is_named() {
    let resolves = |name: &str, stack: &str| {
        node().with(|n| {
            n.busiest = vec![SyntheticProcess {
                reductions: 1_000,
                waiting_stack: stack.split_whitespace().map(str::to_owned).collect(),
                row: row(|row| {
                    row.name = Some(name.to_owned());
                    row.stack.clear();
                }),
                ..SyntheticProcess::default()
            }];
            n.stacks = vec![stack_row(80, &["gen_server:loop/7"], &[])];
        })
    };
    let dns = "prim_inet:recvfrom0/3 inet_res:do_udp_recv/7 inet:getaddr_tm/3 inet_tcp_dist:select/1 net_kernel:handle_info/2";
    let sick = finding(&resolves("net_kernel", dns), "BT074");
    assert_eq!((sick.level, sick.subject_text().as_deref()), (Level::Warning, Some("net_kernel (<0.77.0>)")));
    assert!(sick.detail.contains("connections to other nodes wait"), "{}", sick.detail);
    // An ordinary process may resolve names all day, and net_kernel may wait for something else.
    assert_healthy(&resolves("crawler", dns), "BT074");
    assert_healthy(&resolves("net_kernel", "gen:do_call/4 net_kernel:handle_info/2"), "BT074");
    // The idle function of the process that asks the operating system.
    assert_healthy(&resolves("inet_gethost_native", "inet_gethost_native:main_loop/1"), "BT074");
}

#[test]
fn a_process_that_waits_for_an_http_reply_does_not_wait_for_the_processes_it_monitors() {
    let waits = |by: &str| {
        let stack: Vec<&str> =
            std::iter::once("httpc:handle_answer/3").chain(by.split_whitespace()).collect();
        node().with(|n| {
            n.processes = (100, 0);
            n.stacks = vec![stack_row(40, &stack, &[("<0.99.0>", 40)])];
        })
    };
    let asks = waits("rabbit_auth_backend_http:http_req/2 rabbit_access_control:check_access/5");
    let found = finding(&asks, "BT074");
    assert_eq!(found.level, Level::Warning);
    assert!(found.remedies[0].change.contains("rabbitmq_auth_backend_cache"), "{:?}", found.remedies);
    assert_healthy(&asks, "BT053");
    let found = finding(&waits("shop:rates/1 shop:handle_call/3"), "BT074");
    assert_eq!((found.level, found.subject_text().as_deref()), (Level::Notice, Some("shop:rates/1")));
}

#[test]
fn a_process_in_an_external_wait_with_queued_messages_is_named() {
    let courier = |stack: &str, queue: (i64, i64)| {
        let stack: Vec<String> = stack.split_whitespace().map(str::to_owned).collect();
        node().with(|n| {
            n.busiest = vec![SyntheticProcess {
                reductions: 1_000,
                queue,
                runnable_of_10: 1,
                waiting_stack: stack,
                row: row(|row| {
                    row.name = Some("courier".to_owned());
                    row.stack.clear();
                    row.status = Some("waiting".to_owned());
                }),
                ..SyntheticProcess::default()
            }];
            n.stacks = vec![stack_row(80, &["gen_server:loop/7"], &[])];
        })
    };
    let dns = "prim_inet:recvfrom0/3 inet_res:do_udp_recv/7 gen_tcp:connect/4 mail:send/1 gen_server:try_dispatch/4";
    let sick = finding(&courier(dns, (5, 20)), "BT074");
    assert_eq!((sick.level, sick.subject_text().as_deref()), (Level::Warning, Some("courier (<0.77.0>)")));
    assert!(
        sick.title.starts_with("courier waits for name resolution (DNS), ")
            && sick.title.ends_with(" queued"),
        "{}",
        sick.title
    );
    assert_eq!(entries(&sick), ["code.more_in_flight", "code.more_in_flight"]);
    // A slow peer is a notice, unless the queue grows.
    let recv = "prim_inet:recv0/3 shop_db:ask/1 gen_server:try_dispatch/4";
    assert_eq!(finding(&courier(recv, (40, 0)), "BT074").level, Level::Notice);
    assert_eq!(finding(&courier(recv, (40, 9)), "BT074").level, Level::Warning);
    // In this order: the process keeps up; it waits for something else; it is runnable; it waits for any message.
    assert_healthy(&courier(dns, (3, 0)), "BT074");
    assert_healthy(&courier("gen:do_call/4 mail:send/1", (5, 20)), "BT074");
    assert_healthy(&courier(dns, (5, 20)).with(|n| n.busiest[0].runnable_of_10 = 9), "BT074");
    // If the process was not among the busiest, a single inspection shows it.
    let looked = courier("", (5, 20)).with(|n| {
        n.busiest[0].row.stack = dns.split_whitespace().map(str::to_owned).collect();
    });
    let mut period = looked.period();
    for process in &mut period.processes {
        process.run_stacks.clear();
    }
    let guess = found(&period, "BT074").expect("a guess");
    assert_eq!((guess.level, guess.confidence), (Level::Notice, Confidence::Guess));
}

#[test]
fn waiting_for_the_next_request_is_distinguished_from_waiting_for_a_reply() {
    // A process that reads with this stack, has this initial call, and has this many messages, with so many more in each second. And this
    // many other processes with the other stack.
    let reader = |stack: &str, started: &str, queue: (i64, i64), others: (i64, &str)| {
        let list = |stack: &str| stack.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        node().with(|n| {
            n.processes = (400, 0);
            n.busiest = vec![SyntheticProcess {
                reductions: 1_000,
                queue,
                waiting_stack: list(stack),
                row: row(|row| {
                    row.initial_call = Some(started.to_owned());
                    row.stack.clear();
                    row.status = Some("waiting".to_owned());
                }),
                ..SyntheticProcess::default()
            }];
            let other = others.1.split_whitespace().collect::<Vec<_>>();
            n.stacks = vec![
                stack_row(100 - others.0, &["gen_server:loop/7"], &[]),
                stack_row(others.0, &other, &[]),
            ];
        })
    };
    let serve = "prim_inet:recv0/3 race:serve/1 proc_lib:init_p_do_apply/3";
    let call = "prim_inet:recv0/3 race:ask/1 race:handle_call/3 gen_server:try_handle_call/4 gen_server:handle_msg/6";
    let own = "race:init/1";
    let healthy = |stack: &str, started: &str, queue, others| {
        let node = reader(stack, started, queue, others);
        assert_healthy(&node, "BT074");
        let idle = finding(&node, "BT015").title;
        assert!(!idle.contains("messages queued"), "{stack}: {idle}");
    };
    // In this order: one of many connections, without and with a growing queue; a process of a known server; one that accepts itself.
    healthy(serve, own, (18, 0), (50, serve));
    healthy(serve, own, (400, 9), (50, serve));
    healthy(serve, "ranch_echo:init/1", (400, 9), (0, serve));
    let accepts = "prim_inet:accept0/3 inet_tcp:accept/1 race:acceptor/1";
    healthy("prim_inet:recv0/3 race:serve/1 race:acceptor/1", own, (400, 9), (8, accepts));
    let continues = "prim_inet:recv0/3 race:serve/1 race:handle_continue/2 gen_server:try_handle_continue/3 gen_server:loop/5";
    healthy(continues, own, (18, 0), (50, continues));
    let level = |stack: &str, queue, others| finding(&reader(stack, own, queue, others), "BT074").level;
    // The process reads inside a callback, or within a client library: such processes are as many as workers.
    assert_eq!(level(call, (18, 0), (50, call)), Level::Notice);
    assert_eq!(level(call, (18, 9), (50, call)), Level::Warning);
    let client = "prim_inet:recv0/3 epgsql_sock:recv/1 race:serve/1";
    assert_eq!(level(client, (18, 9), (50, client)), Level::Warning);
    // A single process that reads in its own loop may wait for either.
    assert_healthy(&reader(serve, own, (18, 0), (2, serve)), "BT074");
    let either = finding(&reader(serve, own, (18, 9), (2, serve)), "BT074");
    assert_eq!((either.level, either.confidence), (Level::Notice, Confidence::Guess));
    assert!(either.against.iter().any(|against| against.starts_with("a server that waits")), "{either:#?}");
}

#[test]
fn processes_that_all_wait_for_a_reply_on_silent_connections_are_named() {
    let reads = "prim_inet:recv0/3 smtp:expect/2 sender:handle_info/2 gen_server:try_handle_info/3";
    let waits = |stack: &str, silent: i64| {
        let stack: Vec<&str> = stack.split_whitespace().collect();
        node().with(|n| {
            (n.processes, n.stacks) = ((20, 0), vec![stack_row(40, &stack, &[])]);
            n.series.push((&beamtune_model::metrics::TCP_SILENT, "to 192.0.2.7:25", silent, 0));
        })
    };
    let found = finding(&waits(reads, 8), "BT074");
    assert_eq!((found.level, found.subject_text().as_deref()), (Level::Notice, Some("smtp:expect/2")));
    assert!(found.detail.contains("8 connections to 192.0.2.7:25"), "{}", found.detail);
    assert_eq!(entries(&found), ["code.read_timeout"]);
    // In this order: other peers answer; the connections of a server wait for the next request in their own loop.
    assert_healthy(&waits(reads, 2), "BT074");
    assert_healthy(&waits("prim_inet:recv0/3 web:serve/1 proc_lib:init_p/3", 8), "BT074");
}
