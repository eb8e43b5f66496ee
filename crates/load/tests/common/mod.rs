//! Targets that behave as a test wants, and plans against them.

#![allow(dead_code)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use beamtune_load::clock::{SECOND_NS, now_ns};
use beamtune_load::collect::Run;
use beamtune_load::program::{Endpoint, Kind, Model, Op, Plan};
use beamtune_load::protocol::http::HttpRequest;
use beamtune_load::protocol::{Checks, Message, Protocol};
use beamtune_load::run;
use beamtune_load::template::Template;
use beamtune_model::load::LoadResult;

/// A server with a thread for each connection; ended when dropped.
pub struct Server {
    pub address: SocketAddr,
    listener: TcpListener,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves each connection by `serve`, until that returns.
    pub fn start(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let serve = Arc::new(serve);
        let accepting = listener.try_clone().unwrap();
        let thread = thread::spawn(move || {
            for stream in accepting.incoming() {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                let serve = Arc::clone(&serve);
                if let Ok(stream) = stream {
                    thread::spawn(move || serve(stream));
                }
            }
        });
        Self { address, listener, stop, thread: Some(thread) }
    }

    /// Answers each request, which must end with an empty line, by the same bytes.
    pub fn answering(answer: &'static [u8]) -> Self {
        Self::start(move |mut stream| while read_head(&mut stream) && stream.write_all(answer).is_ok() {})
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Who accepts is woken with an error; a connection of ours could want a port that is not there.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Reads up to an empty line; false at the end.
pub fn read_head(stream: &mut TcpStream) -> bool {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return false,
        }
    }
    true
}

/// Waits until the peer closes.
pub fn wait_for_end(stream: &mut TcpStream) {
    let mut bytes = [0; 1024];
    while stream.read(&mut bytes).is_ok_and(|bytes| bytes > 0) {}
}

pub fn get(path: &str) -> Message {
    let fields = [("Host".to_owned(), Template::literal("localhost"))];
    Message::Http(Box::new(HttpRequest::new("GET", &Template::parse(path, None).unwrap(), &fields, None)))
}

/// How long anything may take that is to happen, on a busy machine.
const LONGEST_NS: u64 = 20 * SECOND_NS;

/// One device that connects, and goes through `ops` so often.
pub fn plan(address: SocketAddr, ops: Vec<Op>, devices: u64, turns: u64) -> Plan {
    let mut all = vec![Op::Connect { step: 0 }];
    all.extend(ops);
    all.push(Op::Next);
    let kind = Kind {
        name: "device".to_owned(),
        devices,
        endpoint: Endpoint { address, sources: Arc::new([]), tls: None },
        protocol: Protocol::Http,
        ops: all,
        body: 1,
        connect_timeout_ns: LONGEST_NS,
        timeout_ns: LONGEST_NS,
        pause_ns: SECOND_NS / 100,
    };
    Plan {
        kinds: vec![kind],
        steps: vec!["connect".to_owned(), "get".to_owned(), "other".to_owned()],
        model: Model::Closed { ramp_ns: 0, sustain_ns: LONGEST_NS, turns: Some(turns) },
        seed: 1,
        start_ns: now_ns(),
        connect_ns: 0,
        rundown_ns: LONGEST_NS,
    }
}

/// A request for `/` as the only step.
pub fn get_plan(address: SocketAddr, devices: u64, turns: u64) -> Plan {
    let get = Op::Send { step: 1, message: get("/"), checks: Box::default() };
    plan(address, vec![get], devices, turns)
}

pub fn checked(address: SocketAddr, checks: Checks) -> Plan {
    plan(address, vec![Op::Send { step: 1, message: get("/"), checks: Box::new(checks) }], 1, 1)
}

pub fn run_plan(plan: &Plan) -> LoadResult {
    run::run(plan, 2, &AtomicBool::new(false), Run::default(), &mut |_, _| {}).unwrap()
}

/// Errors of a step as (kind, count, words).
pub fn errors_of(result: &LoadResult, step: usize) -> Vec<(String, u64, String)> {
    let errors = result.steps[step].errors.iter();
    errors.map(|(kind, errors)| (kind.clone(), errors.count, errors.first.clone())).collect()
}
