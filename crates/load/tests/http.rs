//! HTTP devices against correct and misbehaving servers.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "these are tests")]

mod common;

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use beamtune_load::clock::{SECOND_NS, now_ns};
use beamtune_load::collect::{Collector, Run};
use beamtune_load::engine::{self, Share};
use beamtune_load::program::{Delay, Model, Op, Plan};
use beamtune_load::protocol::Checks;
use beamtune_load::run;
use beamtune_load::schedule::{Profile, Spacing};
use common::*;
use rustix::net::{AddressFamily, SocketType};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

#[test]
fn every_device_runs_all_its_steps() {
    let server = Server::answering(OK);
    let ops = vec![
        Op::Begin { counter: 0 },
        Op::Send { step: 1, message: get("/${device}/${count}"), checks: Box::default() },
        Op::Sleep(Delay::Uniform { nanoseconds: 1_000_000, jitter: 0.5 }),
        Op::Repeat { counter: 0, times: 3, back_to: 2 },
        Op::Send { step: 2, message: get("/end"), checks: Box::default() },
        Op::Close,
    ];
    let result = run_plan(&plan(server.address, ops, 20, 4));
    let done: Vec<_> = result.steps.iter().map(|step| step.done).collect();
    assert_eq!(done, [80, 240, 80]);
    assert_eq!((result.errors(), result.unfinished), (0, 0));
    assert_eq!(result.steps[1].received_bytes, Some(240 * 5));
    let traffic = result.traffic.unwrap();
    assert_eq!(traffic.received_bytes, 320 * OK.len() as u64);
    assert!(traffic.sent_bytes > 320 * b"GET / HTTP/1.1".len() as u64);
    assert_eq!((traffic.messages, traffic.reconnects), (0, 0));
    assert!(!result.is_interrupted);
}

#[test]
fn closed_connections_are_opened_again() {
    let server = Server::answering(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    let result = run_plan(&get_plan(server.address, 2, 5));
    assert_eq!((result.steps[1].done, result.errors()), (10, 0));
    assert_eq!(result.steps[0].done, 10);
}

#[test]
fn closing_an_idle_connection_is_not_an_error() {
    let server = Server::start(|mut stream| {
        read_head(&mut stream);
        let _ = stream.write_all(OK);
    });
    let ops = vec![
        Op::Send { step: 1, message: get("/"), checks: Box::default() },
        // The server closes the connection during the sleep.
        Op::Sleep(Delay::Uniform { nanoseconds: SECOND_NS / 5, jitter: 0.0 }),
    ];
    let result = run_plan(&plan(server.address, ops, 1, 3));
    assert_eq!((result.steps[1].done, result.errors()), (3, 0), "{:?}", errors_of(&result, 1));
}

#[test]
fn devices_connect_before_the_first_arrival() {
    let server = Server::answering(OK);
    let mut plan = get_plan(server.address, 10, 1);
    let profile = Profile { per_second: 500.0, ramp_ns: 0, sustain_ns: 2 * SECOND_NS };
    plan.model = Model::Open { profile, spacing: Spacing::Fixed };
    plan.connect_ns = SECOND_NS / 2;
    plan.start_ns = now_ns() + SECOND_NS / 2;
    let result = run_plan(&plan);
    assert_eq!((result.steps[1].done, result.errors(), result.steps[0].done), (1000, 0, 10));
    assert_eq!(result.seconds.iter().filter_map(|second| second.due).sum::<u64>(), 1000);
    let step = &result.steps[1];
    let count =
        |latency: &Option<beamtune_model::load::Latency>| latency.as_ref().map(|latency| latency.count);
    assert_eq!(count(&step.lag), count(&step.service));
    assert_eq!(count(&step.response), count(&step.service));
}

#[test]
fn a_slow_target_delays_arrivals_and_is_not_the_generators_own_lag() {
    // At 20 ms per request, one connection can handle 50 per second, but 100 are requested.
    let server = Server::start(|mut stream| {
        while read_head(&mut stream) {
            std::thread::sleep(Duration::from_millis(20));
            if stream.write_all(OK).is_err() {
                return;
            }
        }
    });
    let mut plan = get_plan(server.address, 1, 1);
    let profile = Profile { per_second: 100.0, ramp_ns: 0, sustain_ns: 2 * SECOND_NS };
    plan.model = Model::Open { profile, spacing: Spacing::Fixed };
    plan.start_ns = now_ns() + SECOND_NS / 10;
    let result = run_plan(&plan);
    let step = &result.steps[1];
    assert_eq!((step.done, result.errors()), (200, 0), "{:?}", errors_of(&result, 1));
    // On a busy host some seconds may be generator-bound, but not because of the slow target.
    let all = result.seconds.iter().filter(|second| second.p99_ns.is_some());
    assert!(all.clone().count() > 3);
    assert!(all.filter_map(|second| second.waiting).max().unwrap() >= 50);
    // Half of the arrivals waited far longer for the target than for the generator.
    let median = |times: &Option<beamtune_model::load::Latency>| times.as_ref()?.percentile_ns("p50");
    let (lag_ns, response_ns) = (median(&result.generator.own_lag).unwrap(), median(&step.response).unwrap());
    assert!(lag_ns < response_ns / 10, "{lag_ns} of {response_ns}");
    let max_p99_ns = result.seconds.iter().filter_map(|second| second.p99_ns).max().unwrap();
    assert!(max_p99_ns > SECOND_NS, "{max_p99_ns}");
}

#[test]
fn answers_are_checked() {
    let server =
        Server::answering(b"HTTP/1.1 201 Created\r\nX-Kind: small\r\nContent-Length: 5\r\n\r\nhello");
    let error = |checks: Checks| {
        let result = run_plan(&checked(server.address, checks));
        errors_of(&result, 1).pop().map(|(kind, count, first)| format!("{kind} {count}: {first}"))
    };
    let fields = |name: &str, part: &str| vec![(name.to_owned(), part.to_owned())];
    assert_eq!(error(Checks::default()), None);
    assert_eq!(
        error(Checks { statuses: vec![(200, 200)], ..Checks::default() }),
        Some("status 1: status 201".to_owned())
    );
    assert_eq!(
        error(Checks {
            fields: fields("x-kind", "small"),
            body: vec!["ell".to_owned()],
            ..Checks::default()
        }),
        None
    );
    let wrong = error(Checks { fields: fields("X-Kind", "large"), ..Checks::default() });
    assert_eq!(wrong.as_deref(), Some("check 1: X-Kind does not contain \"large\""));
    let wrong = error(Checks { fields: fields("X-None", ""), ..Checks::default() });
    assert_eq!(wrong.as_deref(), Some("check 1: X-None is not in the head"));
    let wrong = error(Checks { body: vec!["bye".to_owned()], ..Checks::default() });
    assert_eq!(wrong.as_deref(), Some("check 1: the body does not contain \"bye\""));
}

/// Runs one device for one turn. Returns its only error.
fn error_with(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> String {
    let server = Server::start(serve);
    only_error(&get_plan(server.address, 1, 1))
}

/// Like [`error_with`], with a short timeout.
fn timeout_error_with(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> String {
    let server = Server::start(serve);
    let mut plan = get_plan(server.address, 1, 1);
    plan.kinds[0].timeout_ns = SECOND_NS / 2;
    only_error(&plan)
}

fn only_error(plan: &Plan) -> String {
    let result = run_plan(plan);
    let errors = errors_of(&result, 1);
    assert_eq!(errors.len(), 1, "{errors:?}");
    format!("{}: {}", errors[0].0, errors[0].2)
}

#[test]
fn misbehaving_targets_have_distinct_errors() {
    let error = error_with(|mut stream| {
        read_head(&mut stream);
    });
    assert_eq!(error, "closed: closed before the answer");
    let error = error_with(|mut stream| {
        read_head(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhel");
    });
    assert_eq!(error, "closed: closed within the reply");
    let error = error_with(|stream| {
        // Closing a socket that has unread bytes resets the connection.
        let mut stream = stream;
        let mut byte = [0];
        let _ = std::io::Read::read(&mut stream, &mut byte);
    });
    assert!(error.starts_with("reset: "), "{error}");
    let error = error_with(|mut stream| {
        read_head(&mut stream);
        let _ = stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\n");
        wait_for_end(&mut stream);
    });
    assert_eq!(error, "protocol: not an HTTP/1 reply");
    let error = timeout_error_with(|mut stream| {
        read_head(&mut stream);
        wait_for_end(&mut stream);
    });
    assert_eq!(error, "timeout: no answer in time");
}

#[test]
fn an_endless_answer_times_out() {
    // An endless head, and an endless body.
    for endless in [&b"X: y\r\n"[..], &b"\r\n\r\n0123456789"[..]] {
        let error = timeout_error_with(move |mut stream| {
            read_head(&mut stream);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n");
            while stream.write_all(endless).is_ok() {
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        assert_eq!(error, "timeout: the answer was not complete in time");
    }
}

#[test]
fn a_refused_connection_is_retried_after_a_pause() {
    // The port is bound, so that no other process gets it, but it is not listening.
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = SocketAddr::try_from(rustix::net::getsockname(&socket).unwrap()).unwrap();
    let result = run_plan(&get_plan(address, 1, 3));
    let errors = errors_of(&result, 0);
    assert_eq!((errors[0].0.as_str(), errors[0].1), ("refused", 3));
    assert_eq!(result.done(), 0);
}

#[test]
fn a_target_that_accepts_no_connections_causes_a_timeout() {
    // A listener with a full queue does not answer (tcp(7), listen(2)).
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(200));
    let _full: Vec<_> = (0..3).map(|_| connect()).collect();
    let mut plan = get_plan(address, 1, 1);
    plan.kinds[0].connect_timeout_ns = SECOND_NS;
    let result = run_plan(&plan);
    let errors = errors_of(&result, 0);
    assert_eq!((errors[0].0.as_str(), errors[0].1), ("connect_timeout", 1));
}

#[test]
fn stopping_returns_the_result_so_far() {
    let server = Server::answering(OK);
    let plan = get_plan(server.address, 2, u64::MAX);
    let stop = AtomicBool::new(false);
    let seconds = Mutex::new(0);
    let result = run::run(&plan, 2, &stop, Run::default(), &mut |second, _| {
        *seconds.lock().unwrap() += 1;
        if second.done > 0 {
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        }
    })
    .unwrap();
    assert!(result.is_interrupted);
    assert!(result.done() > 0);
    assert!(result.seconds.len() < 20);
}

#[test]
fn a_stall_of_the_generator_makes_its_second_generator_bound() {
    const STALL_MS: u64 = 300;
    let server = Server::answering(OK);
    let mut plan = get_plan(server.address, 2, u64::MAX);
    plan.model = Model::Closed { ramp_ns: 0, sustain_ns: 3 * SECOND_NS, turns: None };
    let mut collector = Collector::new(&plan, 1);
    let stop = AtomicBool::new(false);
    engine::run(&plan, Share { index: 0, of: 1 }, &stop, &mut |second| {
        let is_first = second.second == 0;
        collector.add(0, second, &mut |_, _| {});
        if is_first {
            // The generator's thread calls this closure, so the thread stalls early in the next second.
            std::thread::sleep(Duration::from_millis(STALL_MS));
        }
    })
    .unwrap();
    let result = collector.finish(&plan, &Run::default());
    let bound = result.seconds[1].bound.as_deref().unwrap_or_default();
    let stalled_ms: u64 =
        bound.split_whitespace().rev().nth(1).unwrap_or_default().parse().unwrap_or_default();
    assert!(bound.starts_with("a thread of the generator did not run"), "{bound}");
    // A tenth of a second of the stall may have been an intended wait.
    assert!(stalled_ms >= STALL_MS - 100, "{bound}");
}
