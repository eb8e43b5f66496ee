//! Faults that are detected before the load starts are reported; errors during the load are counted by kind.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::Duration;

use beamtune_model::load::LoadSecond;

use crate::common::network::Network;
use crate::common::{Process, beamtune, folder, free_port, run, text, wait_until};
use crate::servers::{Server, http, nginx};
use crate::{arrivals, load, result_of, step, wait_for_result};

#[test]
fn unreachable_target_is_reported_before_the_start() {
    let url = format!("http://127.0.0.1:{}/", free_port());
    run(beamtune().args(["load", &url]))
        .assert_refused(&["connection refused by 127.0.0.1:", "start the target"]);
    let name = "http://no-such-host.invalid/";
    run(beamtune().args(["load", name])).assert_refused(&["cannot resolve no-such-host.invalid"]);
    run(beamtune().args(["load", "gopher://h/"])).assert_refused(&["gopher"]);
    run(beamtune().args(["load", "no/such.toml"])).assert_refused(&["cannot read the scenario no/such.toml"]);
}

#[test]
fn all_faults_of_a_scenario_are_reported_with_their_positions() {
    let folder = folder();
    let file = folder.path().join("wrong.toml");
    let words = "[load]\nrate = -1\nfor = \"3 parsecs\"\n\n[devices.d]\ntarget = \"http://127.0.0.1\"\nsteps = [{ reqest = \"/\" }]\n";
    std::fs::write(&file, words).expect("written");
    let output = run(beamtune().args(["load", &text(&file)]));
    output.assert_refused(&["wrong.toml:2:8", "wrong.toml:3:7", "wrong.toml:7:", "`request`"]);
}

#[test]
fn too_few_local_ports_are_reported_before_the_start() {
    let server = http(|| {});
    // The loopback network has many source addresses, but only the one that is named with --source is used.
    let url = format!("http://{}/", server.address);
    let output = run(beamtune().args(["load", &url, "--connections", "200000", "--source", "127.0.0.1"]));
    output.assert_refused(&["local ports", "--source"]);
}

#[test]
fn errors_are_counted_by_kind_and_the_exit_status_is_1() {
    let server = Server::start(|mut stream, _| {
        let _ = stream.write_all(b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n");
    });
    let url = format!("http://{}/", server.address);
    let output = run(&mut load(&[&url, "--rate", "50", "--connections", "2", "--for", "1s"]));
    assert_eq!(output.status, Some(1), "{}", output.stderr);
    let result = result_of(&output);
    let step = step(&result, "GET /");
    assert!(result.errors() > 0 && step.done == 0, "{step:?}");
    let output = run(beamtune().args(["load", &url, "--rate", "50", "--connections", "2", "--for", "1s"]));
    assert!(output.stdout.contains("first message"), "{}", output.stdout);
}

#[test]
fn too_few_file_descriptors_are_reported_before_the_start() {
    let server = http(|| {});
    let mut command = Command::new("prlimit");
    command.arg("--nofile=70:70").arg(beamtune().get_program());
    command.args(["load", &format!("http://{}/", server.address), "--connections", "10000"]);
    run(&mut command).assert_refused(&["10000 connections", "the limit is 70: raise it (`ulimit -n 143`"]);
    assert_eq!(server.received.load(Ordering::Relaxed), 0);
}

#[test]
fn options_without_effect_are_refused() {
    let url = format!("http://127.0.0.1:{}/", free_port());
    run(beamtune().args(["load", &url, "--idle"])).assert_refused(&["--idle needs an mqtt"]);
    let folder = folder();
    let file = folder.path().join("load.toml");
    std::fs::write(&file, "[load]\n").expect("written");
    run(beamtune().args(["load", &text(&file), "--rate", "5"]))
        .assert_refused(&["--rate applies only to a URL"]);
    run(beamtune().args(["load", &url, "--rate", "0"])).assert_refused(&["rate 0: must be above 0"]);
}

#[test]
fn target_that_accepts_no_connections_is_reported_before_the_start() {
    // When the backlog of a listener that does not accept is full, connections get no answer (listen(2)).
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    let waiting: Vec<TcpStream> = (0..10_000)
        .map_while(|_| TcpStream::connect_timeout(&address, Duration::from_millis(300)).ok())
        .collect();
    assert!(waiting.len() < 10_000);
    let output = run(beamtune().args(["load", &format!("http://{address}/")]));
    output.assert_refused(&[&format!("cannot connect to {address}")]);
}

/// Sends twenty requests in one second to this server, with this timeout. Asserts that all fail in the same way and that the run ends in
/// time. Returns the error.
#[track_caller]
fn only_error(timeout_ms: u64, serve: impl Fn(TcpStream, &AtomicU64) + Send + Sync + 'static) -> String {
    let (server, folder) = (Server::start(serve), folder());
    let file = folder.path().join("load.toml");
    let words = format!(
        "[load]\nrate = 20\nspacing = \"fixed\"\nfor = \"1s\"\nrundown = \"{}ms\"\n[devices.d]\ncount = 20\n\
         target = \"http://{}\"\ntimeout = \"{timeout_ms}ms\"\npause = \"50ms\"\nsteps = [{{ request = \"/\" }}]\n",
        timeout_ms + 1000,
        server.address
    );
    std::fs::write(&file, words).expect("written");
    let output = run(&mut load(&[&text(&file)]));
    assert_eq!(output.status, Some(1), "{}", output.stderr);
    let result = result_of(&output);
    // The run takes the second of the load, and the time for unfinished requests.
    let last = 1 + (timeout_ms + 1000).div_ceil(1000) as i64;
    assert!(result.seconds.iter().all(|second| second.second <= last), "{:?}", result.seconds);
    let step = step(&result, "GET /");
    assert_eq!((step.done, step.errors.len()), (0, 1), "{step:?}");
    // Every arrival is accounted for.
    let (kind, errors) = step.errors.first_key_value().expect("errors");
    assert_eq!(errors.count + result.unfinished, arrivals(&result), "{step:?}");
    format!("{kind}: {}", errors.first)
}

/// Reads at most `bytes` bytes of a request. If the request is longer, closing the stream resets the connection.
fn read(stream: &mut TcpStream, bytes: usize) {
    let _ = stream.read(&mut vec![0; bytes]);
}

#[test]
fn misbehaving_targets_cause_different_errors_and_do_not_prolong_the_load() {
    const ALL: usize = 4096;
    // Long enough that a server without a CPU is not mistaken for one that does not answer.
    const LONG_TIMEOUT_MS: u64 = 10_000;
    const MEDIUM_TIMEOUT_MS: u64 = 2_000;
    let closes = |mut stream: TcpStream, _: &AtomicU64| read(&mut stream, ALL);
    assert_eq!(only_error(LONG_TIMEOUT_MS, closes), "closed: closed before the answer");
    let resets = |mut stream: TcpStream, _: &AtomicU64| {
        read(&mut stream, 1);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhel");
    };
    assert!(only_error(LONG_TIMEOUT_MS, resets).starts_with("reset: "));
    let answers_nothing = |mut stream: TcpStream, _: &AtomicU64| {
        let _ = stream.read_to_end(&mut Vec::new());
    };
    assert_eq!(only_error(300, answers_nothing), "timeout: no answer in time");
    let drips = |mut stream: TcpStream, _: &AtomicU64| {
        read(&mut stream, ALL);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n");
        while stream.write_all(b"X").is_ok() {
            sleep(Duration::from_millis(20));
        }
    };
    assert_eq!(only_error(MEDIUM_TIMEOUT_MS, drips), "timeout: the answer was not complete in time");
    let never_ends = |mut stream: TcpStream, _: &AtomicU64| {
        read(&mut stream, ALL);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        while stream.write_all(b"8\r\nfor ever\r\n").is_ok() {
            sleep(Duration::from_micros(100));
        }
    };
    assert_eq!(only_error(MEDIUM_TIMEOUT_MS, never_ends), "timeout: the answer was not complete in time");
    let speaks_otherwise = |mut stream: TcpStream, _: &AtomicU64| {
        read(&mut stream, ALL);
        let _ = stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\n");
        read(&mut stream, ALL);
    };
    assert_eq!(only_error(LONG_TIMEOUT_MS, speaks_otherwise), "protocol: not an HTTP/1 reply");
}

#[test]
fn target_that_goes_away_is_reported_and_the_load_continues_to_its_end() {
    let Some(mut nginx) = nginx(1) else { return };
    let url = format!("http://127.0.0.1:{}/", nginx.port);
    let process = Process::start(&mut load(&[&url, "--rate", "100", "--connections", "10", "--for", "3s"]));
    let is_served =
        || std::fs::metadata(nginx.folder.path().join("served")).is_ok_and(|file| file.len() > 50);
    wait_until("requests are served", is_served);
    nginx.process.signal("KILL");
    nginx.process.wait();
    let result = wait_for_result(process);
    let kinds: Vec<&str> =
        result.steps.iter().flat_map(|step| step.errors.keys().map(String::as_str)).collect();
    assert!(step(&result, "GET /").done > 0 && kinds.contains(&"refused"), "{kinds:?}");
    assert!(!result.is_interrupted && result.seconds.iter().any(|second| second.second == 2));
}

/// A server that prints its port, answers requests at every address, and prints a line after fifty requests.
const ANSWERS: &str = r#"{ok, L} = gen_tcp:listen(0, [binary, {active, false}, {packet, http_bin}, {backlog, 100}]),
    {ok, Port} = inet:port(L),
    io:format("port ~b~n", [Port]),
    Served = counters:new(1, []),
    Count = fun() -> counters:add(Served, 1, 1), counters:get(Served, 1) =:= 50 andalso io:format("served~n") end,
    Serve = fun Serve(S) -> case gen_tcp:recv(S, 0) of
                {ok, http_eoh} -> gen_tcp:send(S, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"), Count(), Serve(S);
                {ok, _} -> Serve(S);
                _ -> gone
            end end,
    Accept = fun Accept() ->
                 {ok, S} = gen_tcp:accept(L),
                 Pid = spawn(fun() -> receive go -> Serve(S) end end),
                 gen_tcp:controlling_process(S, Pid),
                 Pid ! go,
                 Accept()
             end,
    Accept()."#;

/// The connections are then half open: nothing closes them.
#[test]
fn target_that_vanishes_from_the_network_is_reported_and_does_not_prolong_the_load() {
    let Some((network, veth)) = Network::connected() else { return };
    let [ip, prefix @ ..] = network.prefix();
    let mut server =
        Process::start(Command::new(ip).args(prefix).args(["erl", "-noshell", "-eval", ANSWERS]));
    let port = server.expect_line("port ");
    let folder = folder();
    let file = folder.path().join("load.toml");
    let words = format!(
        "[load]\nrate = 100\nspacing = \"fixed\"\nfor = \"4s\"\nrundown = \"1s\"\n[devices.d]\ncount = 50\n\
         target = \"http://{}:{port}\"\ntimeout = \"300ms\"\nconnect_timeout = \"300ms\"\nsteps = [{{ request = \"/\" }}]\n",
        veth.address
    );
    std::fs::write(&file, words).expect("written");
    let process = Process::start(&mut load(&[&text(&file)]));
    server.expect_line("served");
    veth.set_link("down").expect("down");
    let result = wait_for_result(process);
    // The run takes four seconds, and the time for unfinished requests.
    assert!(result.seconds.iter().all(|second| second.second <= 5), "{:?}", result.seconds);
    let step = step(&result, "GET /");
    let kinds: Vec<&str> =
        result.steps.iter().flat_map(|step| step.errors.keys().map(String::as_str)).collect();
    assert!(step.done >= 50 && kinds.contains(&"timeout"), "{step:?}");
    let only_fails = |second: &LoadSecond| second.second == 3 && second.done == 0 && second.errors > 0;
    assert!(result.seconds.iter().any(only_fails), "{:?}", result.seconds);
    // Every arrival is accounted for.
    let failed: u64 = step.errors.values().map(|errors| errors.count).sum();
    let waiting = result.seconds.last().and_then(|second| second.waiting).expect("a second");
    assert_eq!(step.done + failed + waiting, arrivals(&result), "{result:?}");
    assert!(!result.is_interrupted);
}
