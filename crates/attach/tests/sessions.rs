//! Tests the agent on real nodes of each release: sampling, sharing, killing, unloading, and leaving no trace.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "test code")]

mod common;

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use beamtune_attach::AttachError;
use beamtune_attach::agent::{self, SessionOptions};
use beamtune_attach::connection::Connection;
use beamtune_attach::etf::{Term, Value};
use beamtune_attach::session::Session;
use beamtune_attach::source::{Access, NodeSource};
use beamtune_model::{
    Clock, FileExchange, FileReply, FileRequest, Group, Metric, ProcessRow, Sample, TroubleKind, facts,
    metrics,
};
use common::recorder::{Recorder, access};
use common::{
    COOKIE, Otp, PATIENCE, TestNode, evaluate, eventually, free_port, on_each_release, on_release, soon,
    unique_name,
};

/// An Erlang expression that returns whether microstate accounting is on. The VM does not report this (statistics/1 returns the
/// old counters when accounting is off), and setting the flag would change it. But the counters grow only when accounting is on.
const ACCOUNTING_IS_ON: &str = "begin \
    Sum = fun() -> lists:sum([N || #{counters := Counters} <- erlang:statistics(microstate_accounting), \
                                   N <- maps:values(Counters)]) end, \
    Before = Sum(), receive after 2 -> ok end, Sum() > Before \
end";

/// Returns what is left of the agent on the node, as an Erlang term; `clean` if nothing is left.
fn traces(connection: &mut Connection) -> String {
    let expression = format!(
        "case {{{ACCOUNTING_IS_ON}, erlang:statistics(scheduler_wall_time), \
               erlang:module_loaded('{module}'), erlang:check_old_code('{module}'), whereis('{module}'), \
               [P || P <- processes(), {{_, {{M, _, _}}}} <- [process_info(P, initial_call)], \
                     M =:= '{module}']}} of \
            {{false, undefined, false, false, undefined, []}} -> clean; \
            Other -> Other \
         end",
        module = agent::module()
    );
    evaluate(connection, &expression).root().to_string()
}

fn assert_clean(connection: &mut Connection) {
    let mut last = String::new();
    let deadline = Instant::now() + PATIENCE;
    while last != "clean" && Instant::now() < deadline {
        last = traces(connection);
    }
    assert_eq!(last, "clean");
}

#[test]
fn fetching_files_does_not_block_the_first_sample() {
    on_each_release(|otp| {
        let node = otp.start();
        let mut recorder = Recorder::attach(&node.name);
        let board = FileExchange::default();
        let ask = FileRequest::Read { path: "/proc/self/stat".to_owned(), max_bytes: 4_096 };
        board.set_requests(vec![ask.clone()], vec![ask.clone()]);
        recorder.source.read_files(board.clone());
        // Make the node take longer than `patience`.
        node.signal("STOP");
        let source = &mut recorder.source;
        let fetched = std::thread::scope(|scope| {
            let (answered, answer) = mpsc::channel();
            scope.spawn(move || answered.send(source.fetch_files(Duration::ZERO)));
            let early = answer.recv_timeout(Duration::from_millis(200));
            node.signal("CONT");
            early.or_else(|_| answer.recv_timeout(PATIENCE))
        });
        fetched.unwrap().unwrap();
        let results = board.take_replies().unwrap().replies.unwrap();
        assert!(matches!(&results[..], [(found, FileReply::Content(_))] if *found == ask), "{results:?}");
        recorder.sample(false, PATIENCE).unwrap();
    });
}

/// This matters because loading a module takes seconds on an overloaded node, where the code server waits in long run queues.
#[test]
fn agent_needs_no_other_modules() {
    on_each_release(|otp| {
        let node = otp.start();
        let mut connection = node.connect();
        let mut modules = || -> BTreeSet<String> {
            let all = connection.call("code", "all_loaded", Vec::new(), soon()).unwrap();
            let name = |entry: Term<'_>| entry.tuple_of::<2>().unwrap()[0].as_atom().unwrap().to_owned();
            all.root().list().unwrap().map(name).collect()
        };
        // The start of the node and this request load some modules, too.
        let mut before = modules();
        eventually("all modules that the node itself loads", || {
            let last = std::mem::replace(&mut before, modules());
            last == before
        });
        let mut recorder = Recorder::attach(&node.name);
        recorder.sample(true, PATIENCE).unwrap();
        recorder.sample(false, PATIENCE).unwrap();
        let after = modules();
        let loaded: Vec<_> = after.difference(&before).collect();
        assert!(loaded.is_empty(), "{loaded:?}");
    });
}

/// Returns the arguments that init reports for the flags in `reported`.
fn init_arguments(connection: &mut Connection, reported: &[String]) -> Vec<String> {
    let known = evaluate(
        connection,
        "[lists:flatten(lists:join($ , [[$- | atom_to_list(F)] | Vs])) || {F, Vs} <- init:get_arguments()]",
    );
    let flag = |argument: &str| argument.split(' ').next().map(str::to_owned);
    let is_reported = |argument: &String| reported.iter().any(|other| flag(other) == flag(argument));
    known.root().list().unwrap().map(|text| text.to_text().unwrap()).filter(is_reported).collect()
}

/// Returns the first two samples of a recorder. On a busy machine, a time slice may be long in wall clock time, which is an
/// event. In that case, retries with a new recorder.
fn two_samples(node: &TestNode) -> (Recorder, Sample, Sample) {
    let mut found = None;
    eventually("two samples without a long slice", || {
        let mut recorder = Recorder::attach(&node.name);
        let first = recorder.sample(true, PATIENCE).unwrap();
        let second = recorder.sample(false, PATIENCE).unwrap();
        if first.events.iter().chain(&second.events).any(|event| event.kind == "long_schedule") {
            recorder.source.leave(PATIENCE).unwrap();
            return false;
        }
        found = Some((recorder, first, second));
        true
    });
    found.unwrap()
}

#[test]
fn samples_contain_all_items_of_the_release() {
    on_each_release(|otp| {
        let node = otp.start();
        let (recorder, first, second) = two_samples(&node);
        assert_eq!(recorder.source.node(), node.name);
        for sample in [&first, &second] {
            assert!(sample.gaps.is_empty(), "{:?}", sample.gaps);
            assert!(sample.events.is_empty(), "{:?}", sample.events);
        }
        let found = first.incarnation.as_ref().unwrap();
        assert_eq!(
            (found.id, found.node.as_str(), found.os_pid),
            (0, node.name.as_str(), Some(node.os_pid()))
        );
        assert!(second.incarnation.is_none() && second.facts.is_empty(), "{:?}", second.facts);
        let fact =
            |key: &str| first.facts.iter().find(|(found, _)| found == key).map(|(_, text)| text.as_str());
        assert_eq!(fact(facts::OTP_RELEASE), Some(otp.release.to_string().as_str()));
        assert_eq!(fact(facts::NODE_NAME), Some(node.name.as_str()));
        assert_eq!(fact(facts::OS_PID), Some(node.os_pid().to_string().as_str()));
        assert_eq!(fact(facts::NATIVE_TIME_HZ), Some("1000000000"));
        for key in [facts::EMU_ARGS, facts::INIT_ARGS, facts::ALLOCATORS, facts::SCHEDULER_BINDINGS] {
            let list: Vec<String> = serde_json::from_str(fact(key).unwrap()).unwrap();
            assert!(!list.is_empty(), "{key}");
            assert!(list.iter().all(|item| !item.contains(COOKIE)), "{key}: {list:?}");
        }
        let reported: Vec<String> = serde_json::from_str(fact(facts::INIT_ARGS).unwrap()).unwrap();
        assert_eq!(reported, init_arguments(&mut node.connect(), &reported), "as init reports them");
        let applications: std::collections::BTreeMap<String, String> =
            serde_json::from_str(fact(facts::APPLICATIONS).unwrap()).unwrap();
        assert!(applications.contains_key("kernel"), "{applications:?}");
        let schedulers: i64 = fact(facts::SCHEDULERS).unwrap().parse().unwrap();
        // Each scheduler has all counters, and they do not decrease.
        for entity in (1..=schedulers).map(|number| format!("scheduler/{number}")) {
            let grows = |group, name| {
                let before = recorder.value(&first, group, &entity, name).unwrap();
                let after = recorder.value(&second, group, &entity, name).unwrap();
                assert!(after >= before, "{entity} {name}");
            };
            grows(Group::Msacc, "emulator");
            grows(Group::Msacc, "sleep");
            grows(Group::SchedulerTime, "active");
            grows(Group::SchedulerTime, "total");
            assert!(recorder.value(&second, Group::RunQueue, &entity, "length").is_some());
        }
        let value =
            |sample, group, name| recorder.value(sample, group, "", name).unwrap_or_else(|| panic!("{name}"));
        let processes = value(&second, Group::Vm, "process_count");
        assert!((20..1_000).contains(&processes), "{processes}");
        assert_eq!(value(&second, Group::Processes, "coverage"), 1_000);
        assert!(value(&second, Group::Processes, "reductions") > 0);
        assert!(value(&first, Group::Vm, "schedulers_online") > 0);
        assert!(value(&second, Group::Memory, "total") > 1_000_000);
        assert!(value(&second, Group::Agent, "reductions") > value(&first, Group::Agent, "reductions"));
        assert!(value(&second, Group::Agent, "cost") > value(&first, Group::Agent, "cost"));
        assert!(recorder.value(&second, Group::CheckIo, "0", "fds").is_some());
        let scheduled_long = recorder.value(&second, Group::Events, "long_schedule", "count");
        assert!(scheduled_long.is_some(), "{:?}", second.gaps);
        let carriers =
            recorder.value(&first, Group::Allocator, "eheap_alloc/1", "mbcs_carriers_size").unwrap();
        assert!(carriers > 10_000, "{carriers}");
        assert!(recorder.value(&first, Group::Mseg, "0", "cached_segments").is_some());
        assert!(recorder.value(&first, Group::Mmap, "literal", "super_carrier_size").is_some());
        assert!(!first.processes.is_empty() && !first.tables.is_empty() && !first.ports.is_empty());
        let named = first.tables.iter().find(|table| table.name == "ac_tab").unwrap();
        assert_eq!(
            (named.id.as_str(), named.owner_name.as_deref()),
            ("ac_tab", Some("application_controller"))
        );
        assert!(first.processes.iter().any(|process| process.name.as_deref() == Some("code_server")));
        assert!(first.processes.iter().all(|process| process.memory_bytes > 0 && process.t > 0));
        // The total includes the process structure in addition to the heap.
        let is_whole = |process: &ProcessRow| {
            process.total_bytes.is_some_and(|total| total > process.memory_bytes)
                && process
                    .fragment_bytes
                    .is_some_and(|fragments| (0..process.memory_bytes).contains(&fragments))
        };
        assert!(first.processes.iter().all(is_whole), "{:?}", first.processes);
        // No series occurs twice in a sample.
        let mut ids: Vec<_> = first.readings.iter().map(|(id, _)| *id).collect();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), first.readings.len());
        println!(
            "OTP {}: {} readings in detail, {} else",
            otp.release,
            first.readings.len(),
            second.readings.len()
        );
    });
}

#[test]
fn leaving_leaves_no_trace_on_the_node() {
    on_each_release(|otp| {
        let node = otp.start();
        let mut watcher = node.connect();
        let mut recorder = Recorder::attach(&node.name);
        recorder.sample(true, PATIENCE).unwrap();
        assert!(has_agent(&mut watcher));
        recorder.source.leave(PATIENCE).unwrap();
        // The node must be clean as soon as `leave` returns.
        assert_eq!(traces(&mut watcher), "clean");
    });
}

/// Returns whether the agent is on the node, without changing anything there.
fn has_agent(connection: &mut Connection) -> bool {
    let loaded = format!("erlang:module_loaded('{}')", agent::module());
    evaluate(connection, &loaded).root().as_bool().unwrap()
}

#[test]
fn microstate_accounting_that_was_on_stays_on() {
    on_each_release(|otp| {
        let node = otp.start();
        let mut watcher = node.connect();
        evaluate(&mut watcher, "erlang:system_flag(microstate_accounting, true)");
        let mut recorder = Recorder::attach(&node.name);
        assert!(recorder.source.session().unwrap().joined().msacc_was_on);
        recorder.sample(false, PATIENCE).unwrap();
        recorder.source.leave(PATIENCE).unwrap();
        assert!(!has_agent(&mut watcher));
        assert!(evaluate(&mut watcher, ACCOUNTING_IS_ON).root().is_atom("true"));
    });
}

#[test]
fn two_clients_share_one_agent() {
    on_each_release(|otp| {
        let node = otp.start();
        let mut watcher = node.connect();
        let mut one = Recorder::attach(&node.name);
        let mut other = Recorder::attach(&node.name);
        assert!(!one.source.session().unwrap().joined().shared);
        assert!(other.source.session().unwrap().joined().shared);
        let agents =
            [&mut one, &mut other].map(|recorder| recorder.source.session().unwrap().joined().agent.clone());
        assert_eq!(agents[0], agents[1]);
        one.sample(true, PATIENCE).unwrap();
        other.sample(true, PATIENCE).unwrap();
        one.source.leave(PATIENCE).unwrap();
        other.sample(false, PATIENCE).unwrap();
        drop(other);
        assert_clean(&mut watcher);
    });
}

/// The node to which the client process attaches.
const NODE_OF_THE_CLIENT: &str = "BEAMTUNE_TEST_NODE";

/// Runs in a separate process, which the test below starts and kills.
#[test]
#[ignore = "the client that another test kills"]
fn client_samples_until_it_is_killed() {
    let Ok(node) = std::env::var(NODE_OF_THE_CLIENT) else { return };
    let mut recorder = Recorder::attach(&node);
    loop {
        recorder.sample(true, PATIENCE).unwrap();
    }
}

#[test]
fn node_is_clean_after_the_client_is_killed() {
    on_each_release(|otp| {
        let node = otp.start();
        let mut watcher = node.connect();
        let mut longest = Duration::ZERO;
        let mut with_agent = 0;
        // Kills clients at various times, from before they connect until they have sampled for some time. How soon the agent is
        // injected depends on the machine, so the last clients are killed after the injection.
        for step in 0..50 {
            let mut client = Command::new(std::env::current_exe().unwrap())
                .args(["--ignored", "--exact", "client_samples_until_it_is_killed"])
                .env(NODE_OF_THE_CLIENT, &node.name)
                .stdout(Stdio::null())
                .spawn()
                .unwrap();
            let wait = match step {
                0..40 => 2 * step,
                _ => {
                    eventually("the agent", || has_agent(&mut watcher));
                    2 * (step - 40)
                }
            };
            std::thread::sleep(Duration::from_millis(wait));
            client.kill().unwrap();
            let killed = Instant::now();
            client.wait().unwrap();
            with_agent += usize::from(has_agent(&mut watcher));
            assert_clean(&mut watcher);
            longest = longest.max(killed.elapsed());
        }
        println!(
            "OTP {}: {with_agent} of 50 clients killed with an agent, clean again after at most {longest:?}",
            otp.release
        );
        assert!(with_agent > 0, "no client had injected its agent");
    });
}

/// Deletes the client's table before its collector is ordered to end, as happens when a client is killed.
#[test]
fn collector_without_a_table_leaves_no_process_behind() {
    on_each_release(|otp| {
        let node = otp.start();
        let mut watcher = node.connect();
        let mut recorder = Recorder::attach(&node.name);
        recorder.sample(false, PATIENCE).unwrap();
        let agent = recorder.source.session().unwrap().joined().agent.clone();
        let delete = format!(
            "[ets:delete(T) || T <- ets:all(), ets:info(T, owner) =:= list_to_pid(\"<0.{}.{}>\")]",
            agent.id, agent.serial
        );
        assert_eq!(evaluate(&mut watcher, &delete).root().to_string(), "[true]");
        let gone = recorder.sample(false, PATIENCE).unwrap_err();
        assert_eq!(gone.kind, TroubleKind::Gone, "{gone}");
        assert_clean(&mut watcher);
    });
}

#[test]
fn killed_agent_is_injected_again() {
    on_each_release(|otp| {
        let node = otp.start();
        let mut watcher = node.connect();
        for victim in ["agent", "keeper"] {
            let mut recorder = Recorder::attach(&node.name);
            recorder.sample(false, PATIENCE).unwrap();
            let agent = recorder.source.session().unwrap().joined().agent.clone();
            let pid = match victim {
                "agent" => format!("list_to_pid(\"<0.{}.{}>\")", agent.id, agent.serial),
                _ => format!("whereis('{}')", agent::module()),
            };
            evaluate(&mut watcher, &format!("exit({pid}, kill)"));
            let mut gone = None;
            eventually("the error", || {
                gone = recorder.sample(false, PATIENCE).err();
                gone.is_some()
            });
            let gone = gone.unwrap();
            assert_eq!(gone.kind, TroubleKind::Gone, "{victim}: {gone}");
            let sample = recorder.next_sample();
            // The VM has not restarted.
            assert!(sample.incarnation.is_none());
            recorder.source.leave(PATIENCE).unwrap();
            assert_clean(&mut watcher);
        }
    });
}

#[test]
fn restarted_node_is_a_new_incarnation() {
    on_each_release(|otp| {
        let name = format!("{}@127.0.0.1", unique_name());
        let start = |otp: &Otp| TestNode::start(otp, &name, &["-name", &name, "-setcookie", COOKIE], &[]);
        let mut node = start(otp);
        let by_name = Recorder::attach(&name);
        // The port changes with the restart.
        let by_address = Recorder::attach(&format!("127.0.0.1:{}", node.port()));
        let mut recorders = [by_name, by_address];
        for recorder in &mut recorders {
            assert_eq!(recorder.sample(false, PATIENCE).unwrap().incarnation.unwrap().id, 0);
        }
        node.stop();
        for recorder in &mut recorders {
            let trouble = recorder.sample(false, PATIENCE).unwrap_err();
            assert_eq!(trouble.kind, TroubleKind::Gone, "{trouble}");
        }
        node = start(otp);
        for recorder in &mut recorders {
            let sample = recorder.next_sample();
            let found = sample.incarnation.unwrap();
            assert_eq!((found.id, sample.tick.incarnation, found.os_pid), (1, 1, Some(node.os_pid())));
            assert!(sample.facts.iter().any(|(key, _)| key == facts::OTP_RELEASE));
        }
    });
}

#[test]
fn another_node_at_the_same_port_is_not_sampled() {
    on_release(25, |otp| {
        let port = free_port().to_string();
        let listen = ["-kernel", "inet_dist_listen_min", &port, "inet_dist_listen_max", &port];
        let name = format!("{}@127.0.0.1", unique_name());
        let named = ["-name", &name, "-setcookie", COOKIE];
        let mut node = TestNode::start(otp, &name, &[&named[..], &listen[..]].concat(), &[]);
        let mut recorder = Recorder::attach(&format!("127.0.0.1:{port}"));
        recorder.sample(false, PATIENCE).unwrap();
        node.stop();
        let mut other = otp.start_with(&listen);
        let mut reasons = Vec::new();
        eventually("the search for the lost node", || {
            let trouble = recorder.sample(false, PATIENCE).unwrap_err();
            reasons.push(trouble.reason);
            reasons.iter().any(|reason| reason.contains("has no node"))
        });
        other.stop();
        let _node = TestNode::start(otp, &name, &named, &[]);
        assert_eq!(recorder.next_sample().incarnation.unwrap().node, name);
    });
}

#[test]
fn stopped_node_causes_only_a_gap() {
    on_each_release(|otp| {
        let node = otp.start();
        let mut recorder = Recorder::attach(&node.name);
        recorder.sample(false, PATIENCE).unwrap();
        node.signal("STOP");
        for _ in 0..3 {
            let trouble = recorder.sample(false, Duration::from_millis(100)).unwrap_err();
            assert_eq!(trouble.kind, TroubleKind::TimedOut, "{trouble}");
        }
        node.signal("CONT");
        let sample = recorder.next_sample();
        assert!(sample.incarnation.is_none());
        assert!(recorder.value(&sample, Group::Vm, "", metrics::REDUCTIONS.name).is_some());
    });
}

#[test]
fn connection_is_restored_after_silence_for_longer_than_the_lease() {
    on_each_release(|otp| {
        let node = otp.start();
        let mut recorder = Recorder::attach(&node.name);
        recorder.source.leave(PATIENCE).unwrap();
        let terms = SessionOptions { lease: Duration::from_secs(1), ..SessionOptions::default() };
        recorder.source =
            NodeSource::attach(Access { session_options: terms, ..access(&node.name) }).unwrap();
        recorder.sample(false, PATIENCE).unwrap();
        node.signal("STOP");
        eventually("the end of the session", || {
            let trouble = recorder.sample(false, Duration::from_millis(200)).unwrap_err();
            assert!(
                trouble.kind == TroubleKind::TimedOut || recorder.source.session().is_none(),
                "{trouble}"
            );
            recorder.source.session().is_none()
        });
        node.signal("CONT");
        assert!(recorder.next_sample().incarnation.is_none());
    });
}

#[test]
fn secrets_do_not_leave_the_node() {
    on_each_release(|otp| {
        let node = otp.start_with(&[
            "-kernel",
            "secret_thing",
            "\"hush1\"",
            "-password",
            "hush2",
            "-extra",
            "hush3",
        ]);
        let mut recorder = Recorder::attach(&node.name);
        let sample = recorder.sample(true, PATIENCE).unwrap();
        let text = format!("{sample:?}");
        assert!(!text.contains("hush") && !text.contains(COOKIE), "{text}");
    });
}

#[test]
fn clock_offsets_are_within_their_error() {
    on_each_release(|otp| {
        let node = otp.start();
        let mut recorder = Recorder::attach(&node.name);
        let mut connection = node.connect();
        for _ in 0..20 {
            let before = recorder.clock.now();
            let nanosecond = vec![Value::atom("nanosecond")];
            let vm = connection.call("erlang", "monotonic_time", nanosecond, soon()).unwrap();
            let (vm, after) = (vm.root().as_i64().unwrap(), recorder.clock.now());
            let sample = recorder.sample(false, PATIENCE).unwrap();
            let value = |metric: &Metric| recorder.value(&sample, Group::Agent, "", metric.name).unwrap();
            // The VM's clock was read between two readings of our clock. The offset's error is at most the transit time: the
            // round trip without the time that the VM spent on the request.
            let span = recorder.last_span.unwrap();
            let error = value(&metrics::ROUND_TRIP) - (span.end - span.begin);
            let (offset, min, max) = (value(&metrics::CLOCK_OFFSET), before - vm, after - vm);
            assert!(min - error <= offset && offset <= max + error, "{min} {offset} {max} {error}");
            // Both hosts have the same wall clock, which the node reports in microseconds.
            let (ahead, error) = (value(&metrics::WALL_AHEAD), value(&metrics::WALL_AHEAD_ERROR));
            assert!(ahead.abs() <= error + 1_000, "{ahead} {error}");
        }
    });
}

#[test]
fn refused_injection_is_an_error_with_the_reason() {
    on_each_release(|otp| {
        let node = otp.start();
        let mut connection = node.connect();
        // Another process is registered under the agent's name and does not answer.
        let squat = format!("register('{}', spawn(fun() -> receive stop -> ok end end))", agent::module());
        evaluate(&mut connection, &squat);
        let terms = SessionOptions::default();
        let refused = std::thread::spawn({
            let access = access(&node.name);
            move || Session::start(access.connect().unwrap(), terms).map(|_| ())
        });
        eventually("the request to the squatter", || {
            let waits = format!(
                "process_info(whereis('{}'), message_queue_len) =:= {{message_queue_len, 1}}",
                agent::module()
            );
            evaluate(&mut connection, &waits).root().is_atom("true")
        });
        // The session's exit reason is reported.
        let text = "refused, self(), <<\"no\\e[2J\">>";
        let answer = format!(
            "{{messages, [{{join, S, _, _}}]}} = process_info(whereis('{}'), messages), S ! {{{text}}}",
            agent::module()
        );
        evaluate(&mut connection, &answer);
        let error = refused.join().unwrap().unwrap_err();
        let AttachError::AgentRefused { reason, .. } = &error else { panic!("{error:?}") };
        assert_eq!(reason, "failed: no\\u{1b}[2J");
    });
}
