//! What cannot be done is said before the start; what goes wrong on the way is counted and told.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::Duration;

use beamtune_model::load::LoadSecond;

use crate::common::network::Network;
use crate::common::{Running, beamtune, folder, free_port, run, text, wait_until};
use crate::servers::{Server, http, nginx};
use crate::{asked, ended, load, result_of, step};

#[test]
fn a_target_that_is_not_there_is_said_before_the_start() {
    let url = format!("http://127.0.0.1:{}/", free_port());
    run(beamtune().args(["load", &url]))
        .assert_refused(&["nothing listens at 127.0.0.1:", "start the target"]);
    let name = "http://no-such-host.invalid/";
    run(beamtune().args(["load", name]))
        .assert_refused(&["the name no-such-host.invalid cannot be resolved"]);
    run(beamtune().args(["load", "gopher://h/"])).assert_refused(&["gopher"]);
    run(beamtune().args(["load", "no/such.toml"])).assert_refused(&["cannot read the scenario no/such.toml"]);
}

#[test]
fn all_that_is_wrong_with_a_scenario_is_said_with_its_places() {
    let folder = folder();
    let file = folder.path().join("wrong.toml");
    let words = "[load]\nrate = -1\nfor = \"3 parsecs\"\n\n[devices.d]\ntarget = \"http://127.0.0.1\"\nsteps = [{ reqest = \"/\" }]\n";
    std::fs::write(&file, words).expect("written");
    let said = run(beamtune().args(["load", &text(&file)]));
    said.assert_refused(&["wrong.toml:2:8", "wrong.toml:3:7", "wrong.toml:7:", "`request`"]);
}

#[test]
fn too_few_ports_are_said_before_the_start() {
    let server = http(|| {});
    // Only loopback has addresses enough by itself; a source that is named is all there is.
    let url = format!("http://{}/", server.address);
    let said = run(beamtune().args(["load", &url, "--connections", "200000", "--source", "127.0.0.1"]));
    said.assert_refused(&["local ports", "--source"]);
}

#[test]
fn errors_are_counted_by_kind_and_the_status_says_so() {
    let server = Server::start(|mut stream, _| {
        let _ = stream.write_all(b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n");
    });
    let url = format!("http://{}/", server.address);
    let said = run(&mut load(&[&url, "--rate", "50", "--connections", "2", "--for", "1s"]));
    assert_eq!(said.status, Some(1), "{}", said.stderr);
    let result = result_of(&said);
    let step = step(&result, "GET /");
    assert!(result.errors() > 0 && step.done == 0, "{step:?}");
    let said = run(beamtune().args(["load", &url, "--rate", "50", "--connections", "2", "--for", "1s"]));
    assert!(said.stdout.contains("the first one said"), "{}", said.stdout);
}

#[test]
fn too_few_descriptors_are_said_before_the_start() {
    let server = http(|| {});
    let mut command = Command::new("prlimit");
    command.arg("--nofile=70:70").arg(beamtune().get_program());
    command.args(["load", &format!("http://{}/", server.address), "--connections", "10000"]);
    run(&mut command).assert_refused(&["10000 connections", "the limit is 70: raise it (`ulimit -n 143`"]);
    assert_eq!(server.heard.load(Ordering::Relaxed), 0);
}

#[test]
fn options_that_would_do_nothing_are_refused() {
    let url = format!("http://127.0.0.1:{}/", free_port());
    run(beamtune().args(["load", &url, "--idle"])).assert_refused(&["--idle goes with mqtt"]);
    let folder = folder();
    let file = folder.path().join("load.toml");
    std::fs::write(&file, "[load]\n").expect("written");
    run(beamtune().args(["load", &text(&file), "--rate", "5"])).assert_refused(&["--rate goes with a URL"]);
    run(beamtune().args(["load", &url, "--rate", "0"])).assert_refused(&["rate 0: must be above 0"]);
}

#[test]
fn a_target_that_takes_no_connections_is_said_before_the_start() {
    // The queue of a listener that accepts nothing is full some time, and then nothing is answered (listen(2)).
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    let waiting: Vec<TcpStream> = (0..10_000)
        .map_while(|_| TcpStream::connect_timeout(&address, Duration::from_millis(300)).ok())
        .collect();
    assert!(waiting.len() < 10_000);
    let said = run(beamtune().args(["load", &format!("http://{address}/")]));
    said.assert_refused(&[&format!("{address} does not answer")]);
}

/// What is told of a target that `serve`s so: twenty requests in a second, which may take so long each. All must go wrong in
/// the same way, and the run must end.
#[track_caller]
fn told_of(timeout_ms: u64, serve: impl Fn(TcpStream, &AtomicU64) + Send + Sync + 'static) -> String {
    let (server, folder) = (Server::start(serve), folder());
    let file = folder.path().join("load.toml");
    let words = format!(
        "[load]\nrate = 20\nspacing = \"fixed\"\nfor = \"1s\"\nrundown = \"{}ms\"\n[devices.d]\ncount = 20\n\
         target = \"http://{}\"\ntimeout = \"{timeout_ms}ms\"\npause = \"50ms\"\nsteps = [{{ request = \"/\" }}]\n",
        timeout_ms + 1000,
        server.address
    );
    std::fs::write(&file, words).expect("written");
    let said = run(&mut load(&[&text(&file)]));
    assert_eq!(said.status, Some(1), "{}", said.stderr);
    let result = result_of(&said);
    // Its second, and the time for what is still under way.
    let last = 1 + (timeout_ms + 1000).div_ceil(1000) as i64;
    assert!(result.seconds.iter().all(|second| second.second <= last), "{:?}", result.seconds);
    let step = step(&result, "GET /");
    assert_eq!((step.done, step.errors.len()), (0, 1), "{step:?}");
    // Every arrival is accounted for.
    let (kind, errors) = step.errors.first_key_value().expect("errors");
    assert_eq!(errors.count + result.unfinished, asked(&result), "{step:?}");
    format!("{kind}: {}", errors.first)
}

/// Reads a request; what it does not, for a request of more bytes, resets the connection when it is closed.
fn read(stream: &mut TcpStream, bytes: usize) {
    let _ = stream.read(&mut vec![0; bytes]);
}

#[test]
fn targets_that_misbehave_are_told_apart_and_end_no_load_late() {
    const ALL: usize = 4096;
    // A server that is not given the CPU in time is to be none that does not answer.
    const AMPLE_MS: u64 = 10_000;
    const ENOUGH_MS: u64 = 2_000;
    let closes = |mut stream: TcpStream, _: &AtomicU64| read(&mut stream, ALL);
    assert_eq!(told_of(AMPLE_MS, closes), "closed: closed before the answer");
    let resets = |mut stream: TcpStream, _: &AtomicU64| {
        read(&mut stream, 1);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhel");
    };
    assert!(told_of(AMPLE_MS, resets).starts_with("reset: "));
    let answers_nothing = |mut stream: TcpStream, _: &AtomicU64| {
        let _ = stream.read_to_end(&mut Vec::new());
    };
    assert_eq!(told_of(300, answers_nothing), "timeout: no answer in time");
    let drips = |mut stream: TcpStream, _: &AtomicU64| {
        read(&mut stream, ALL);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n");
        while stream.write_all(b"X").is_ok() {
            sleep(Duration::from_millis(20));
        }
    };
    assert_eq!(told_of(ENOUGH_MS, drips), "timeout: the answer was not complete in time");
    let never_ends = |mut stream: TcpStream, _: &AtomicU64| {
        read(&mut stream, ALL);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        while stream.write_all(b"8\r\nfor ever\r\n").is_ok() {
            sleep(Duration::from_micros(100));
        }
    };
    assert_eq!(told_of(ENOUGH_MS, never_ends), "timeout: the answer was not complete in time");
    let speaks_otherwise = |mut stream: TcpStream, _: &AtomicU64| {
        read(&mut stream, ALL);
        let _ = stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\n");
        read(&mut stream, ALL);
    };
    assert_eq!(told_of(AMPLE_MS, speaks_otherwise), "protocol: not an HTTP/1 reply");
}

#[test]
fn a_target_that_goes_away_is_told_and_the_load_goes_on_to_its_end() {
    let Some(mut nginx) = nginx(1) else { return };
    let url = format!("http://127.0.0.1:{}/", nginx.port);
    let running = Running::start(&mut load(&[&url, "--rate", "100", "--connections", "10", "--for", "3s"]));
    let is_served =
        || std::fs::metadata(nginx.folder.path().join("served")).is_ok_and(|file| file.len() > 50);
    wait_until("requests are served", is_served);
    nginx.running.signal("KILL");
    nginx.running.wait();
    let result = ended(running);
    let kinds: Vec<&str> =
        result.steps.iter().flat_map(|step| step.errors.keys().map(String::as_str)).collect();
    assert!(step(&result, "GET /").done > 0 && kinds.contains(&"refused"), "{kinds:?}");
    assert!(!result.is_interrupted && result.seconds.iter().any(|second| second.second == 2));
}

/// Prints its port, answers requests at every address, and says when it has answered fifty.
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

/// Nobody says that its connections are gone: they are half open.
#[test]
fn a_target_that_vanishes_from_the_network_is_told_and_ends_no_load_late() {
    let Some((network, cable)) = Network::joined() else { return };
    let [ip, by @ ..] = network.by();
    let mut server = Running::start(Command::new(ip).args(by).args(["erl", "-noshell", "-eval", ANSWERS]));
    let port = server.expect_line("port ");
    let folder = folder();
    let file = folder.path().join("load.toml");
    let words = format!(
        "[load]\nrate = 100\nspacing = \"fixed\"\nfor = \"4s\"\nrundown = \"1s\"\n[devices.d]\ncount = 50\n\
         target = \"http://{}:{port}\"\ntimeout = \"300ms\"\nconnect_timeout = \"300ms\"\nsteps = [{{ request = \"/\" }}]\n",
        cable.address
    );
    std::fs::write(&file, words).expect("written");
    let running = Running::start(&mut load(&[&text(&file)]));
    server.expect_line("served");
    cable.set_link("down").expect("cut");
    let result = ended(running);
    // Four seconds and the time for what is still under way.
    assert!(result.seconds.iter().all(|second| second.second <= 5), "{:?}", result.seconds);
    let step = step(&result, "GET /");
    let kinds: Vec<&str> =
        result.steps.iter().flat_map(|step| step.errors.keys().map(String::as_str)).collect();
    assert!(step.done >= 50 && kinds.contains(&"timeout"), "{step:?}");
    let is_told = |second: &LoadSecond| second.second == 3 && second.done == 0 && second.errors > 0;
    assert!(result.seconds.iter().any(is_told), "{:?}", result.seconds);
    // Every arrival is accounted for.
    let failed: u64 = step.errors.values().map(|errors| errors.count).sum();
    let waiting = result.seconds.last().and_then(|second| second.waiting).expect("a second");
    assert_eq!(step.done + failed + waiting, asked(&result), "{result:?}");
    assert!(!result.is_interrupted);
}
