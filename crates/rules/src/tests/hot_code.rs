//! The function that the CPU time goes into, and waits outside of the node.

use beamtune_model::{Confidence, Finding, Level, Outcome, Period, Signal, SpawnRow, WorkSample};

use super::node::{Busy, Node, node, stand};
use super::{Read, assert_healthy, entries, finding, outcome, row};

fn sample(kind: &str, looks: i64, collects: bool, stack: &str) -> WorkSample {
    WorkSample {
        kind: Some(kind.to_owned()),
        stack: stack.split_whitespace().map(str::to_owned).collect(),
        looks,
        collects,
        is_ready: false,
    }
}

/// A node that uses a core and a half.
fn busy() -> Node {
    node().with(|n| (n.active, n.cpu) = (1.5, 1.5))
}

fn with(node: &Node, samples: &[WorkSample]) -> Period {
    let mut period = node.period();
    period.work_samples = samples.to_vec();
    period
}

fn found(period: &Period, code: &str) -> Option<Finding> {
    match outcome(period, code) {
        Outcome::Found(findings) => findings.into_iter().next(),
        _ => None,
    }
}

const ENCODE: &str = "codec:encode/1 Elixir.Enum:map/2 codec:encode/1 audit:handle/3 shop:request/1";

#[test]
fn the_innermost_function_that_most_samples_are_within_is_named() {
    let samples = [
        sample("shop:request/1", 6, false, ENCODE),
        sample(
            "shop:request/1",
            4,
            false,
            "erlang:++/2 codec:-encode/1-fun-0-/2 audit:handle/3 shop:request/1",
        ),
        sample("shop:request/1", 2, false, "shop:total/1 shop:request/1"),
        sample("shop_stock", 1, false, "gen_server:loop/7"),
    ];
    let code = found(&with(&busy(), &samples), "BT073").expect("a finding");
    assert_eq!((code.level, code.subject_text().as_deref()), (Level::Notice, Some("codec:encode/1")));
    assert!(code.summary.starts_with("77 % of the CPU time"), "{}", code.summary);
    let callers =
        code.evidence.iter().find(|evidence| evidence.what == "called by").and_then(|e| e.text.clone());
    assert_eq!(callers.as_deref(), Some("audit:handle/3, by shop:request/1"));
    // Who is woken up has not run.
    let woken = WorkSample { is_ready: true, ..sample("web", 30, false, "timer:sleep/1 web:loop/0") };
    let with_woken: Vec<_> = samples.iter().cloned().chain([woken]).collect();
    assert_eq!(
        found(&with(&busy(), &with_woken), "BT073").map(|code| code.summary),
        Some(code.summary.clone())
    );
    // Nothing has most; too few samples; a node that does next to nothing.
    let spread = [sample("a", 5, false, "a:b/0"), sample("c", 5, false, "c:d/0")];
    assert!(found(&with(&busy(), &spread), "BT073").is_none());
    assert!(found(&with(&busy(), &samples[2..]), "BT073").is_none());
    let idle = node().with(|n| (n.active, n.cpu) = (0.1, 0.1));
    assert!(found(&with(&idle, &samples), "BT073").is_none());
}

#[test]
fn code_that_never_waits_is_told_with_the_processes_that_run_it() {
    let spins = |pid, stack: &str, runnable_of_10| Busy {
        pid,
        reductions: 4_000_000,
        runnable_of_10,
        row: row(|row| {
            row.initial_call = Some("feed:poll/1".to_owned());
            row.stack = stack.split_whitespace().map(str::to_owned).collect();
        }),
        ..Busy::default()
    };
    let samples = [sample("feed:poll/1", 12, false, "lists:keyfind/3 feed:next/2 feed:poll/1")];
    let found_of = |busiest: Vec<Busy>| {
        let node = busy().with(|n| (n.busiest, n.total_reductions) = (busiest, 9_000_000));
        found(&with(&node, &samples), "BT073").expect("a finding")
    };
    let never = "feed:next/2 feed:poll/1";
    let two = found_of(vec![spins("<0.77.0>", never, 10), spins("<0.78.0>", never, 10)]);
    assert!(
        two.summary.ends_with(
            "goes into searching lists by key, called by feed:next/2: 2 processes run it and never wait"
        ),
        "{}",
        two.summary
    );
    assert!(two.has(&Signal::NeverWaits) && two.level == Level::Notice);
    assert_eq!(entries(&two), ["code.end_of_loop", "code.cheaper_function"]);
    let waits = |busiest: Vec<Busy>| !found_of(busiest).has(&Signal::NeverWaits);
    // One waited in a look, waits in the midst of it, has messages, or does not do most of the work.
    assert!(waits(vec![spins("<0.77.0>", never, 9), spins("<0.78.0>", never, 9)]));
    assert!(waits(vec![Busy { stood: vec!["timer:sleep/1".to_owned()], ..spins("<0.77.0>", never, 10) }]));
    assert!(waits(vec![Busy { queue: (1, 0), ..spins("<0.77.0>", never, 10) }]));
    assert!(waits(vec![
        spins("<0.77.0>", "gen:do_call/4 feed:next/2", 10),
        spins("<0.78.0>", "gen_server:loop/7", 10)
    ]));
    assert!(waits(vec![spins("<0.77.0>", never, 10)]));
}

#[test]
fn what_a_library_does_is_counted_to_its_caller() {
    let json = "Elixir.Jason.Encode:escape/1 Elixir.Jason.Encode:map/2 shop:page/1 shop:request/1";
    let of_other = "jsonic:walk/1 shop:page/1 shop:request/1";
    let samples = [sample("shop:request/1", 7, false, json), sample("shop:request/1", 3, false, of_other)];
    let code = found(&with(&busy(), &samples), "BT073").expect("a finding");
    assert_eq!(code.subject_text().as_deref(), Some("shop:page/1"));
    let share = code.evidence.iter().find(|evidence| evidence.what == "of all samples within JSON");
    assert!(share.is_some_and(|share| share.value == Some(0.7)), "{:?}", code.evidence);
    assert!(code.remedies[0].change.starts_with("encode or decode less"), "{:?}", code.remedies);
    // Tasks of a moment, each with another function: the library is what they have in common.
    let samples: Vec<_> = ["a", "b", "c", "d"]
        .map(|name| sample(name, 3, false, &format!("re:run/3 {name}:check/1 {name}:task/0")))
        .to_vec();
    let code = found(&with(&busy(), &samples), "BT073").expect("a finding");
    assert!(code.summary.ends_with("regular expressions (re, Regex)"), "{}", code.summary);
    assert!(code.remedies[0].change.contains("backtracking"), "{:?}", code.remedies);
}

#[test]
fn what_it_is_that_costs_is_told_where_that_is_known() {
    let reading = "io:execute_request/3 import:lines/2 import:loop/0";
    let server = |at| sample("file_io_server:server_loop/1", 3, false, at);
    let told = |samples: &[WorkSample]| {
        let code = found(&with(&busy(), samples), "BT073").expect("a finding");
        (code.summary, code.remedies[0].change.clone(), code.remedies[0].why.clone())
    };
    let lines = server("prim_file:read_nif/2 file_io_server:get_line/4 file_io_server:server_loop/1");
    let (summary, advice, why) = told(&[sample("import", 9, false, reading), lines.clone()]);
    assert_eq!(
        summary,
        "75 % of the CPU time of processes goes into reading lines through a file's I/O server, called by import:lines/2"
    );
    assert!(advice.contains("raw") && why.contains("https://www.erlang.org/"), "{advice} {why}");
    // Most of the time may be the server's; what Elixir calls through is not the program's.
    let by_stream =
        "io:execute_request/3 Elixir.IO:each_stream/2 Elixir.Stream:do_resource/5 Elixir.Import:load/1";
    let (summary, ..) = told(&[sample("import", 9, false, by_stream), lines.clone()]);
    assert!(summary.ends_with("a file's I/O server, called by Elixir.Import:load/1"), "{summary}");
    let (summary, ..) =
        told(&[WorkSample { looks: 20, ..lines.clone() }, sample("import", 9, false, reading)]);
    assert!(
        summary.contains(
            "69 % of the CPU time of processes goes into reading lines through a file's I/O server, by"
        ),
        "{summary}"
    );
    // Of a device that is no file.
    let (summary, advice, _) = told(&[sample("import", 9, false, reading)]);
    assert!(summary.contains("requests to an I/O server"), "{summary}");
    assert!(!advice.contains("read_ahead"), "{advice}");
    // Of processes that run nothing of their program's.
    let children = "maps:fold_1/4 Elixir.DynamicSupervisor:handle_call/3 gen_server:try_handle_call/4";
    let (summary, ..) = told(&[sample("Elixir.Shop.Carts", 9, false, children)]);
    assert!(
        summary.ends_with("goes into listing the children of a supervisor, by Elixir.Shop.Carts"),
        "{summary}"
    );
    // A part of what it does; and what a library does is that library's.
    let rest = sample("import", 4, false, "import:parse/1 import:lines/2");
    let (summary, ..) = told(&[sample("import", 6, false, reading), rest]);
    assert!(
        summary.ends_with("import:lines/2, most of it into requests to an I/O server (io, IO)"),
        "{summary}"
    );
    let json = "erlang:++/2 Elixir.Jason.Encode:list/2 shop:page/1";
    let (summary, advice, _) = told(&[sample("web", 9, false, json)]);
    assert!(
        summary.ends_with("goes into shop:page/1") && advice.starts_with("encode or decode less"),
        "{summary}"
    );
}

#[test]
fn traps_of_the_vm_are_no_places() {
    let of = |stack| {
        let code = found(&with(&busy(), &[sample("web", 9, false, stack)]), "BT073").expect("a finding");
        let at = code.evidence.iter().find(|evidence| evidence.what == "most of them at");
        (code.subject_text(), at.and_then(|at| at.text.clone()))
    };
    let own = || Some("shop:find/1".to_owned());
    assert_eq!(of("erlang:re_run_trap/3 shop:find/1"), (own(), Some("re:run/3, 9 of 9".to_owned())));
    assert_eq!(of("erlang:bif_return_trap/2 shop:find/1"), (own(), None));
    assert_eq!(
        of("erlang:bif_handle_signals_return/2 erlang:port_command/3 shop:find/1").1.as_deref(),
        Some("erlang:port_command/3, 9 of 9")
    );
}

#[test]
fn each_known_function_has_a_source() {
    for known in crate::signals::hot_code::known_functions() {
        assert!(known.source.starts_with("https://"), "{known:?}");
        assert!(!known.what.is_empty() && known.what.len() < 60, "{known:?}");
    }
}

#[test]
fn those_that_ended_before_they_answered_did_what_their_like_do() {
    let ended = WorkSample { kind: None, stack: Vec::new(), looks: 20, ..WorkSample::default() };
    let samples =
        [sample("shop:request/1", 5, false, ENCODE), sample("web:loop/0", 15, false, "web:loop/0"), ended];
    let mut period = with(&busy(), &samples);
    period.spawns = vec![SpawnRow {
        what: "process".to_owned(),
        kind: "shop:request/1".to_owned(),
        count: 9,
        of: 9,
        ..SpawnRow::default()
    }];
    let code = found(&period, "BT073").expect("a finding");
    assert_eq!(code.subject_text().as_deref(), Some("codec:encode/1"));
    assert!(code.summary.starts_with("62 %"), "{}", code.summary);
}

#[test]
fn short_callbacks_are_told_by_their_processes() {
    let samples =
        [sample("chat:init/1", 9, false, "gen_server:loop/7"), sample("web", 3, false, "gen_server:loop/7")];
    let code = found(&with(&busy(), &samples), "BT073").expect("a finding");
    assert_eq!(code.subject_text().as_deref(), Some("chat:init/1"));
}

#[test]
fn garbage_that_is_made_there_follows_and_is_of_those_that_run_it() {
    let sick = busy().with(|n| n.gc = 0.5);
    let samples = [sample("shop:request/1", 6, false, ENCODE), sample("shop:request/1", 6, true, ENCODE)];
    let period = with(&sick, &samples);
    let gc = found(&period, "BT011").expect("gc");
    assert_eq!(gc.subject_text().as_deref(), Some("shop:request/1"));
    assert_eq!(gc.follows.map(|of| of.code.0), Some("BT073"));
    assert!(found(&period, "BT073").expect("code").has(&Signal::Allocates));
    // Others make it.
    let other = [sample("shop:request/1", 12, false, ENCODE), sample("report", 6, true, "report:run/1")];
    let gc = found(&with(&sick, &other), "BT011").expect("gc");
    assert_eq!((gc.subject_text().as_deref(), gc.follows.is_none()), (Some("report"), true));
}

#[test]
fn many_that_wait_for_a_name_server_are_found() {
    let resolving = |count| {
        let stack = [
            "prim_inet:recvfrom0/3",
            "inet_res:do_udp_recv/7",
            "inet:gethostbyname_tm/4",
            "gen_tcp:connect/4",
            "fetch:page/1",
        ];
        node().with(|n| (n.processes, n.stands) = ((100, 100), vec![stand(count, &stack, &[])]))
    };
    let sick = finding(&resolving(40), "BT074");
    assert_eq!((sick.level, sick.subject_text().as_deref()), (Level::Warning, Some("fetch:page/1")));
    assert!(sick.summary.contains("name resolution"), "{}", sick.summary);
    assert_healthy(&resolving(1), "BT074");
    // Who receives is in no such step.
    let receiving = node().with(|n| n.stands = vec![stand(80, &["prim_inet:recv0/3", "web:serve/1"], &[])]);
    assert_healthy(&receiving, "BT074");
    let connecting = node().with(|n| {
        n.stands = vec![stand(80, &["prim_inet:connect0/6", "gen_tcp:connect/4", "web:ask/1"], &[])];
    });
    assert_eq!(finding(&connecting, "BT074").level, Level::Notice);
}

#[test]
fn those_who_wait_and_pile_up_are_what_leaks() {
    let shakes = ["gen:do_call/4", "ssl_gen_statem:call/2", "ssl_gen_statem:handshake/2", "gate:welcome/1"];
    let silent = |processes, count| {
        node().with(|n| {
            let stands = vec![stand(count, &shakes, &[]), stand(100 - count, &["gen_server:loop/7"], &[])];
            (n.processes, n.ports, n.stands) = (processes, (100, 5), stands);
            n.facts.push((beamtune_model::facts::NOFILE_SOFT, "1024".to_owned()));
        })
    };
    let leak = silent((400, 20), 80).period();
    let shaking = found(&leak, "BT074").expect("handshakes");
    assert_eq!((shaking.level, shaking.subject_text().as_deref()), (Level::Warning, Some("gate:welcome/1")));
    assert!(shaking.summary.contains("they pile up"), "{}", shaking.summary);
    assert!(shaking.remedies[0].change.contains("time-out"), "{}", shaking.remedies[0].change);
    for effect in ["BT007", "BT008"] {
        let follows = found(&leak, effect).expect(effect).follows.map(|of| of.code.0);
        assert_eq!(follows, Some("BT074"), "{effect}");
    }
    // They are few of all, or their number stays.
    let few = silent((400, 20), 8).period();
    assert_eq!(found(&few, "BT074").expect("handshakes").level, Level::Notice);
    assert!(found(&few, "BT008").expect("ports").follows.is_none());
    assert_eq!(finding(&silent((400, 0), 80), "BT074").level, Level::Notice);
}

#[test]
fn a_process_of_otp_that_is_often_held_up_by_a_name_server_is_named() {
    let resolves = |name: &str, stack: &str| {
        node().with(|n| {
            n.busiest = vec![Busy {
                reductions: 1_000,
                stood: stack.split_whitespace().map(str::to_owned).collect(),
                row: row(|row| {
                    row.name = Some(name.to_owned());
                    row.stack.clear();
                }),
                ..Busy::default()
            }];
            n.stands = vec![stand(80, &["gen_server:loop/7"], &[])];
        })
    };
    let dns = "prim_inet:recvfrom0/3 inet_res:do_udp_recv/7 inet:getaddr_tm/3 inet_tcp_dist:select/1 net_kernel:handle_info/2";
    let sick = finding(&resolves("net_kernel", dns), "BT074");
    assert_eq!((sick.level, sick.subject_text().as_deref()), (Level::Warning, Some("net_kernel (<0.77.0>)")));
    assert!(sick.summary.contains("whoever connects to a node waits"), "{}", sick.summary);
    // Whose name nobody knows may resolve all day; and net_kernel may wait for something else.
    assert_healthy(&resolves("crawler", dns), "BT074");
    assert_healthy(&resolves("net_kernel", "gen:do_call/4 net_kernel:handle_info/2"), "BT074");
}

#[test]
fn a_process_that_waits_outside_while_messages_queue_is_named() {
    let courier = |stack: &str, queue: (i64, i64)| {
        let stack: Vec<String> = stack.split_whitespace().map(str::to_owned).collect();
        node().with(|n| {
            n.busiest = vec![Busy {
                reductions: 1_000,
                queue,
                runnable_of_10: 1,
                stood: stack,
                row: row(|row| {
                    row.name = Some("courier".to_owned());
                    row.stack.clear();
                    row.status = Some("waiting".to_owned());
                }),
                ..Busy::default()
            }];
            n.stands = vec![stand(80, &["gen_server:loop/7"], &[])];
        })
    };
    let dns = "prim_inet:recvfrom0/3 inet_res:do_udp_recv/7 gen_tcp:connect/4 mail:send/1 gen_server:try_dispatch/4";
    let sick = finding(&courier(dns, (5, 20)), "BT074");
    assert_eq!((sick.level, sick.subject_text().as_deref()), (Level::Warning, Some("courier (<0.77.0>)")));
    assert!(
        sick.summary.starts_with("courier (<0.77.0>) waits for name resolution (DNS) while its queue holds"),
        "{}",
        sick.summary
    );
    assert_eq!(entries(&sick), ["code.more_in_flight", "code.more_in_flight"]);
    // A peer that answers slowly: a notice, unless the queue grows.
    let recv = "prim_inet:recv0/3 shop_db:ask/1 gen_server:try_dispatch/4";
    assert_eq!(finding(&courier(recv, (40, 0)), "BT074").level, Level::Notice);
    assert_eq!(finding(&courier(recv, (40, 9)), "BT074").level, Level::Warning);
    // It keeps up; it is elsewhere; it runs; it takes whatever comes.
    assert_healthy(&courier(dns, (3, 0)), "BT074");
    assert_healthy(&courier("gen:do_call/4 mail:send/1", (5, 20)), "BT074");
    assert_healthy(&courier(dns, (5, 20)).with(|n| n.busiest[0].runnable_of_10 = 9), "BT074");
    // Where it was not among the busiest, one closer look tells.
    let looked = courier("", (5, 20)).with(|n| {
        n.busiest[0].row.stack = dns.split_whitespace().map(str::to_owned).collect();
    });
    let mut period = looked.period();
    for process in &mut period.processes {
        process.ran.clear();
    }
    let guess = found(&period, "BT074").expect("a guess");
    assert_eq!((guess.level, guess.confidence), (Level::Notice, Confidence::Guess));
}

#[test]
fn processes_that_hibernate_for_each_message_are_told_and_what_follows() {
    let sick = busy().with(|n| n.gc = 0.5);
    let samples = [
        sample("chat:init/1", 12, false, "gen_server:wake_hib/6 proc_lib:wake_up/3"),
        sample("chat:init/1", 6, false, "erlang:hibernate/3"),
        sample("chat:init/1", 4, false, "chat:handle_cast/2 gen_server:try_dispatch/4"),
    ];
    let period = with(&sick, &samples);
    let hibernation = found(&period, "BT078").expect("hibernation");
    assert_eq!(
        (hibernation.level, hibernation.subject_text().as_deref()),
        (Level::Warning, Some("chat:init/1"))
    );
    let gc = found(&period, "BT011").expect("gc");
    assert_eq!(gc.follows.map(|of| of.code.0), Some("BT078"));
    // Most of the samples are work; or there is little garbage collection, or few samples.
    let works = [
        samples[1].clone(),
        sample("chat:init/1", 30, false, "chat:handle_cast/2 gen_server:try_dispatch/4"),
    ];
    let healthy = |period: &Period| matches!(outcome(period, "BT078"), Outcome::Healthy(_));
    assert!(
        healthy(&with(&sick, &works))
            && healthy(&with(&busy(), &samples))
            && healthy(&with(&sick, &samples[1..2]))
    );
    // Once in hibernation, and since then at work.
    let worked = [sample("chat:init/1", 30, false, "lists:member/2 chat:loop/1 proc_lib:wake_up/3")];
    assert!(healthy(&with(&sick, &worked)));
    // Those that hibernate make next to none of the garbage.
    let others = [samples[0].clone(), sample("report", 90, true, "report:run/1")];
    assert!(healthy(&with(&sick, &others)));
}
