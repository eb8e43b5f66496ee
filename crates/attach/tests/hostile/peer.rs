//! Scripted peers: a generic server, a node that performs the handshake, and a node with an agent whose answers the test
//! provides.
//!
//! The tests of the binary also compile this file, so it must not use any other test file.

#![allow(dead_code, reason = "each of the two test programs uses a part")]

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use beamtune_attach::etf::{Document, Limits, Pid, Reference, Value};
use md5::{Digest, Md5};

/// The cookie of scripted nodes.
pub const COOKIE: &str = "beamtune_test_cookie";

/// Default name of scripted nodes.
pub const NAME: &str = "n@h.i";

/// Lifetime of a peer whose connection is not closed. It is longer than any client waits.
const MAX_TIME: Duration = Duration::from_secs(150);

/// Capability flags of OTP 25.
const FLAGS: u64 = 0x0F_0749_4FBC;

/// A server that accepts connections, one after the other, until it is dropped.
pub struct Server {
    pub port: u16,
    over: Arc<AtomicBool>,
    serving: Option<JoinHandle<()>>,
}

impl Server {
    pub fn start(mut serve: impl FnMut(TcpStream) + Send + 'static) -> Server {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("a port").port();
        let over = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&over);
        let serving = thread::spawn(move || {
            for stream in listener.incoming() {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                serve(stream.expect("a connection"));
            }
        });
        Server { port, over, serving: Some(serving) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
        let end = self.serving.take().expect("a thread").join();
        if !thread::panicking() {
            end.expect("the script was played");
        }
    }
}

/// A stream that counts the bytes written, and is closed once `left` bytes have been written.
pub struct Cut {
    pub stream: TcpStream,
    pub left: usize,
    pub written: Arc<AtomicUsize>,
}

impl Cut {
    /// Creates a stream without a limit.
    pub fn never(stream: TcpStream) -> Cut {
        Cut { stream, left: usize::MAX, written: Arc::default() }
    }
}

impl Write for Cut {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.left == 0 {
            self.stream.shutdown(std::net::Shutdown::Write)?;
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let length = self.stream.write(&bytes[..bytes.len().min(self.left)])?;
        self.left -= length;
        self.written.fetch_add(length, Ordering::Relaxed);
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Cut {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.read(into)
    }
}

/// Reads a handshake packet.
pub fn read_packet(stream: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut packet = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut packet)?;
    Ok(packet)
}

pub fn packet(content: &[u8]) -> Vec<u8> {
    [&(content.len() as u16).to_be_bytes(), content].concat()
}

/// Builds a frame, as used after the handshake.
pub fn frame(content: &[u8]) -> Vec<u8> {
    [&(content.len() as u32).to_be_bytes(), content].concat()
}

pub fn read_frame(stream: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut header = [0; 4];
    stream.read_exact(&mut header)?;
    let mut content = vec![0; u32::from_be_bytes(header) as usize];
    stream.read_exact(&mut content)?;
    Ok(content)
}

/// Builds the challenge of a node with this name, in handshake version 6.
pub fn challenge(name: &[u8]) -> Vec<u8> {
    let length = (name.len() as u16).to_be_bytes();
    [b"N", &FLAGS.to_be_bytes()[..], &7u32.to_be_bytes(), &9u32.to_be_bytes(), &length, name].concat()
}

/// Performs the handshake of an OTP 25 node.
pub fn shake_hands(stream: &mut (impl Read + Write), name: &[u8]) -> io::Result<()> {
    let ours = read_packet(stream)?;
    if ours.first() != Some(&b'N') {
        return Err(io::ErrorKind::InvalidData.into());
    }
    stream.write_all(&packet(b"sok"))?;
    stream.write_all(&packet(&challenge(name)))?;
    let reply = read_packet(stream)?;
    let theirs = reply.get(1..).and_then(|rest| rest.first_chunk()).copied();
    let theirs = u32::from_be_bytes(theirs.ok_or(io::ErrorKind::InvalidData)?);
    let digest = |challenge: u32| Md5::digest(format!("{COOKIE}{challenge}"));
    assert_eq!(reply[5..], digest(7)[..], "the client knows the cookie");
    stream.write_all(&packet(&[b"a", &digest(theirs)[..]].concat()))
}

/// Waits until the other side closes the connection, up to a time limit, so that a hanging client fails the test.
pub fn wait_for_end(mut stream: TcpStream) {
    stream.set_read_timeout(Some(MAX_TIME)).expect("a limit");
    let _ = io::copy(&mut stream, &mut io::sink());
}

/// Writes `bytes` repeatedly until the other side closes the connection, or until the time limit of [`wait_for_end`]. Calls
/// `written` after each write.
pub fn repeat(stream: &mut TcpStream, bytes: &[u8], mut written: impl FnMut()) {
    let until = Instant::now() + MAX_TIME;
    stream.set_write_timeout(Some(MAX_TIME)).expect("a limit");
    while Instant::now() < until && stream.write_all(bytes).is_ok() {
        written();
    }
}

/// Returns the pid of a process on the scripted node.
pub fn pid(id: u32) -> Pid {
    Pid { node: NAME.into(), id, serial: 0, creation: 9 }
}

/// Builds a message from a control tuple and an encoded payload.
pub fn message(control: &Value<'_>, payload: Option<&[u8]>) -> Vec<u8> {
    frame(&[&[112][..], &control.to_bytes().expect("a term"), payload.unwrap_or_default()].concat())
}

/// Builds a message that sends an encoded term to a process of the client.
pub fn send(to: &Pid, payload: &[u8]) -> Vec<u8> {
    message(&Value::tuple([Value::from(22i64), Value::from(&pid(1)), Value::from(to)]), Some(payload))
}

/// Builds the exit signal of a process on the node, with an encoded reason.
pub fn ended(to: &Pid, reason: &[u8]) -> Vec<u8> {
    let control = [Value::from(24i64), Value::from(&pid(1)), Value::from(to)];
    message(&Value::tuple(control), Some(reason))
}

/// A client's request.
pub enum Request {
    /// Calls a function; the reference identifies the result.
    Call { from: Pid, result: Reference, function: String },
    /// Injects the agent.
    Inject { from: Pid },
    /// Requests a sample of these items from the agent.
    Sample { from: Pid, seq: u64, items: Vec<String> },
    /// Ends the session with the agent.
    Leave,
    /// Any other message.
    Other,
}

impl Request {
    /// Reads the next request and skips ticks.
    pub fn read(stream: &mut impl Read) -> io::Result<Request> {
        loop {
            let content = read_frame(stream)?;
            if !content.is_empty() {
                return Ok(Request::parse(content).expect("the client speaks the protocol"));
            }
        }
    }

    fn parse(content: Vec<u8>) -> Result<Request, beamtune_attach::etf::TermError> {
        let (control, end) = Document::decode_prefix(content.clone(), 1, Limits::default())?;
        let control: Vec<_> =
            control.root().tuple()?.map(|term| term.to_value()).collect::<Result<_, _>>()?;
        if end == content.len() {
            return Ok(Request::Other);
        }
        let payload = Document::decode(content, end, Limits::default())?.root().to_value()?;
        Ok(match (control.as_slice(), payload) {
            (
                [Value::Integer(29), _, Value::Pid(from), _, Value::Tuple(called), _],
                Value::List(arguments),
            ) => match (&called[0], arguments.as_slice()) {
                (
                    Value::Atom(module),
                    [Value::Reference(result), Value::Atom(of), Value::Atom(function), Value::List(_)],
                ) if module == "erpc" => Request::Call {
                    from: from.clone(),
                    result: result.clone(),
                    function: format!("{of}:{function}"),
                },
                _ => Request::Inject { from: from.clone() },
            },
            (_, Value::Tuple(words)) => match words.as_slice() {
                [Value::Atom(word), Value::Pid(from), Value::Integer(seq), Value::List(items), _]
                    if word == "sample" =>
                {
                    let name = |item: &Value<'_>| match item {
                        Value::Atom(name) => name.to_string(),
                        Value::Tuple(parts) => match &parts[0] {
                            Value::Atom(name) => name.to_string(),
                            other => panic!("{other:?}"),
                        },
                        other => panic!("{other:?}"),
                    };
                    let items = items.iter().map(name).collect();
                    Request::Sample { from: from.clone(), seq: *seq as u64, items }
                }
                [Value::Atom(word), ..] if word == "leave" => Request::Leave,
                _ => Request::Other,
            },
            _ => Request::Other,
        })
    }
}

/// Builds the result of a call.
pub fn returned(from: &Pid, result: &Reference, value: Value<'_>) -> Vec<u8> {
    let outcome = Value::tuple([Value::from(result), Value::atom("return"), value]);
    ended(from, &outcome.to_bytes().expect("a term"))
}

/// Returns what an OTP 25 node returns for the two functions that a session calls first.
pub fn usual(function: &str) -> Value<'static> {
    match function {
        "erlang:system_info" => {
            Value::list("25".bytes().map(|c| Value::from(i64::from(c))).collect::<Vec<_>>())
        }
        "erlang:monotonic_time" => Value::from(-5_000_000_000i64),
        _ => Value::atom("undefined"),
    }
}

/// Builds the agent's first message.
pub fn joined() -> Vec<u8> {
    let welcome = Value::Map(vec![
        (Value::atom("protocol"), Value::from(1i64)),
        (Value::atom("agent"), Value::from(&pid(77))),
        (Value::atom("shared"), Value::from(false)),
        (Value::atom("msacc_was_on"), Value::from(false)),
    ]);
    Value::tuple([Value::atom("beamtune"), Value::atom("joined"), welcome]).to_bytes().expect("a term")
}

/// Acts as a node with an agent until the client disconnects. `sample` returns the frames that answer a sample request.
pub fn serve_agent(
    stream: &mut (impl Read + Write),
    mut sample: impl FnMut(&Pid, u64, &[String]) -> Vec<u8>,
) -> io::Result<()> {
    let mut session = None;
    loop {
        match Request::read(stream)? {
            Request::Call { from, result, function } => {
                stream.write_all(&returned(&from, &result, usual(&function)))?;
            }
            Request::Inject { from } => {
                stream.write_all(&send(&from, &joined()))?;
                session = Some(from);
            }
            Request::Sample { from, seq, items } => stream.write_all(&sample(&from, seq, &items))?,
            Request::Leave => {
                let from = session.take().expect("it has joined");
                let reason = Value::atom("normal").to_bytes().expect("a term");
                stream.write_all(&ended(&from, &reason))?;
            }
            Request::Other => {}
        }
    }
}
