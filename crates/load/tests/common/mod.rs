//! Servers whose behaviour is defined by a test, and plans for them.

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

/// A server with a thread per connection; it stops when dropped.
pub struct Server {
    pub address: SocketAddr,
    listener: TcpListener,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Calls `serve` for each connection.
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

    /// Sends `answer` for each request. Requests must end with an empty line.
    pub fn answering(answer: &'static [u8]) -> Self {
        Self::start(move |mut stream| while read_head(&mut stream) && stream.write_all(answer).is_ok() {})
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // This wakes the accepting thread with an error. A connection would also wake it, but might not get a free port.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Reads up to an empty line; `false` at the end of the stream.
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

/// Waits until the peer closes the connection.
pub fn wait_for_end(stream: &mut TcpStream) {
    let mut bytes = [0; 1024];
    while stream.read(&mut bytes).is_ok_and(|bytes| bytes > 0) {}
}

pub fn get(path: &str) -> Message {
    let fields = [("Host".to_owned(), Template::literal("localhost"))];
    Message::Http(Box::new(HttpRequest::new("GET", &Template::parse(path, None).unwrap(), &fields, None)))
}

/// Time limit for everything that a test expects to happen, long enough for a busy host.
const MAX_WAIT_NS: u64 = 20 * SECOND_NS;

/// Devices that connect and execute `turns` turns of `ops`.
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
        connect_timeout_ns: MAX_WAIT_NS,
        timeout_ns: MAX_WAIT_NS,
        pause_ns: SECOND_NS / 100,
    };
    Plan {
        kinds: vec![kind],
        steps: vec!["connect".to_owned(), "get".to_owned(), "other".to_owned()],
        model: Model::Closed { ramp_ns: 0, sustain_ns: MAX_WAIT_NS, turns: Some(turns) },
        seed: 1,
        start_ns: now_ns(),
        connect_ns: 0,
        rundown_ns: MAX_WAIT_NS,
    }
}

/// Devices with a request for `/` as their only step.
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

/// Errors of a step: kind, count and text of the first one.
pub fn errors_of(result: &LoadResult, step: usize) -> Vec<(String, u64, String)> {
    let errors = result.steps[step].errors.iter();
    errors.map(|(kind, errors)| (kind.clone(), errors.count, errors.first.clone())).collect()
}
