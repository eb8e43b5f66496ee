//! The connection: the sans-IO parts joined to a blocking socket, each step with a deadline.

use std::collections::VecDeque;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::cookie::Found;
use crate::error::{AttachError, Step, printable};
use crate::etf::{Limits, Pid, Reference};
use crate::frame::{Frame, Splitter, TICK};
use crate::handshake::{Established, Handshake, OwnName, Parameters};
use crate::locate::{Deadline, Located, read};
use crate::message::Message;

/// What a connection may take.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// For the TCP connection and the handshake together. The node gives up after 7 s (net_setuptime), and is then
    /// tried again.
    pub setup_timeout: Duration,
    /// Bounds of what the node sends.
    pub limits: Limits,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { setup_timeout: SETUP_TIMEOUT, limits: Limits::default() }
    }
}

/// Two attempts on a node that gives up because its own processes wait too long for a scheduler: 9 s were seen where 26
/// processes fight for one lock.
const SETUP_TIMEOUT: Duration = Duration::from_secs(20);

/// A node that closes the connection after this time has not refused us, but was too slow for itself.
const SLOW: Duration = Duration::from_secs(2);

/// Messages that nobody has asked for yet are kept up to this number, and up to the bytes of the largest one
/// that is accepted; beyond, the oldest are dropped.
const MOST_WAITING: usize = 1_000;

/// So many names of ours there are, `beamtune_1@HOST` and so on: so many can be connected at once before the node has to
/// make names up, and so many atoms a node gets from any number of attaches.
const OWN_NAMES: u32 = 8;

/// Bytes read at once.
const PIECE: usize = 64 * 1024;

/// A connection to a node; dropping it closes it.
///
/// The node drops a connection on which it has heard nothing for `net_ticktime` (60 s by default, asked four
/// times). Its ticks are answered while [`Connection::receive`] or [`Connection::pump`] runs, so one of them
/// must be called every 15 s or so.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    established: Established,
    splitter: Splitter,
    limits: Limits,
    /// With the bytes of each.
    arrived: VecDeque<(Message, usize)>,
    arrived_bytes: usize,
    /// Set when part of a frame was written, or the peer has broken the protocol: nothing can follow.
    unusable: Option<String>,
    /// Tells our processes and references from those of the connection before: the node may give the same name and
    /// creation again, while it is still busy forgetting us.
    salt: u32,
    next_process: u32,
    next_reference: u64,
}

impl Connection {
    /// Connects and shakes hands, under one of our own names; if all of them are in use there, under one that the node
    /// makes up.
    pub fn open(located: &Located, cookie: &Found, settings: Settings) -> Result<Connection, AttachError> {
        let deadline = Deadline::after(settings.setup_timeout);
        // Not always the same first, because the node may not yet have noticed that whoever had it has gone.
        let first = random() % OWN_NAMES;
        for turn in 0..OWN_NAMES {
            let name = format!("beamtune_{}", 1 + (first + turn) % OWN_NAMES);
            // Small ones had a meaning of their own (net_kernel avoids 0 to 3).
            let own = OwnName::Ours { name, creation: random().max(4) };
            let begin = Instant::now();
            match Connection::open_as(own, located, cookie, settings, deadline) {
                Err(AttachError::NameTaken { .. } | AttachError::Busy { .. }) => {}
                Err(AttachError::ClosedEarly { .. }) if begin.elapsed() > SLOW && !deadline.passed() => {}
                opened => return opened,
            }
        }
        Connection::open_as(OwnName::OfNode, located, cookie, settings, deadline)
    }

    fn open_as(
        own: OwnName,
        located: &Located,
        cookie: &Found,
        settings: Settings,
        deadline: Deadline,
    ) -> Result<Connection, AttachError> {
        let mut stream = connect(located, deadline)?;
        let mut handshake = Handshake::new(Parameters {
            peer: located.label.clone(),
            expected: located.expected.clone(),
            own,
            host: located.host.clone(),
            cookie: cookie.cookie.clone(),
            cookie_origin: cookie.origin.clone(),
            challenge: random(),
        });
        let mut piece = [0; 4096];
        let (established, rest) = loop {
            let output = handshake.take_output();
            let length = exchange(&mut stream, &output, &mut piece, deadline);
            let length = match length {
                Ok(0) => return Err(handshake.closed()),
                Ok(length) => length,
                Err(error) if is_timeout(error.kind()) || deadline.passed() => {
                    return Err(AttachError::TimedOut {
                        step: Step::Handshake,
                        peer: located.label.clone(),
                        after: settings.setup_timeout,
                    });
                }
                // A peer that closes while our bytes are still under way resets the connection.
                Err(_) => return Err(handshake.closed()),
            };
            if let Some(done) = handshake.receive(piece.get(..length).unwrap_or_default())? {
                break done;
            }
        };
        let salt = random();
        let mut connection = Connection {
            stream,
            established,
            splitter: Splitter::new(settings.limits.bytes),
            limits: settings.limits,
            arrived: VecDeque::new(),
            arrived_bytes: 0,
            unusable: None,
            salt,
            next_process: 1 + salt % 0x7FFF,
            next_reference: 0,
        };
        connection.accept(&rest, deadline)?;
        Ok(connection)
    }

    /// The node's full name.
    pub fn node(&self) -> &Arc<str> {
        &self.established.node
    }

    /// What the handshake agreed on.
    pub fn established(&self) -> &Established {
        &self.established
    }

    /// A pid of ours that was not used before.
    pub fn new_pid(&mut self) -> Pid {
        let id = self.next_process;
        // 15 bits suffice, and fit every release.
        self.next_process = if id >= 0x7FFF { 1 } else { id + 1 };
        Pid {
            node: self.established.own_name.clone(),
            id,
            // 13 bits, likewise.
            serial: self.salt >> 19,
            creation: self.established.own_creation,
        }
    }

    /// A reference of ours that was not used before.
    pub fn new_reference(&mut self) -> Reference {
        self.next_reference += 1;
        let number = self.next_reference;
        // The first word may use 18 bits, the others 32.
        let words = vec![(number & 0x3_FFFF) as u32, (number >> 18) as u32, self.salt];
        Reference { node: self.established.own_name.clone(), creation: self.established.own_creation, words }
    }

    /// Writes a frame that [`crate::message`] has made.
    pub fn send(&mut self, frame: &[u8], deadline: Instant) -> Result<(), AttachError> {
        self.write(frame, Deadline::at(deadline))
    }

    /// The next message, in the order of arrival.
    pub fn receive(&mut self, deadline: Instant) -> Result<Message, AttachError> {
        self.receive_matching(deadline, |_| true)
    }

    /// The next message that `wanted` picks. The others stay for later calls.
    pub fn receive_matching(
        &mut self,
        deadline: Instant,
        wanted: impl Fn(&Message) -> bool,
    ) -> Result<Message, AttachError> {
        let deadline = Deadline::at(deadline);
        let mut expired = false;
        loop {
            let found = self.arrived.iter().position(|(message, _)| wanted(message));
            if let Some((message, bytes)) = found.and_then(|place| self.arrived.remove(place)) {
                self.arrived_bytes -= bytes;
                return Ok(message);
            }
            if expired {
                return Err(AttachError::TimedOut {
                    step: Step::Receive,
                    peer: self.node().to_string(),
                    after: deadline.given,
                });
            }
            expired = !self.read(deadline)?;
        }
    }

    /// Takes in what has arrived and answers ticks, until `until`; messages stay for [`Connection::receive`].
    pub fn pump(&mut self, until: Instant) -> Result<(), AttachError> {
        let deadline = Deadline::at(until);
        while self.read(deadline)? {}
        Ok(())
    }

    /// Reads once. `false` if the deadline has passed.
    fn read(&mut self, deadline: Deadline) -> Result<bool, AttachError> {
        self.check_usable()?;
        let mut piece = [0; PIECE];
        let result =
            self.stream.set_read_timeout(Some(deadline.left())).and_then(|()| self.stream.read(&mut piece));
        match result {
            Ok(0) => Err(self.lost("it closed the connection".to_owned())),
            Ok(length) => {
                self.accept(piece.get(..length).unwrap_or_default(), deadline)?;
                // Whoever sends without pause must not keep us beyond the deadline.
                Ok(!deadline.passed())
            }
            Err(error) if is_timeout(error.kind()) => Ok(false),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(!deadline.passed()),
            Err(error) => Err(self.lost(error.to_string())),
        }
    }

    /// Splits bytes into messages.
    fn accept(&mut self, mut bytes: &[u8], deadline: Deadline) -> Result<(), AttachError> {
        loop {
            let frame = match self.splitter.next(&mut bytes) {
                Ok(Some(frame)) => frame,
                Ok(None) => return Ok(()),
                Err(too_long) => {
                    return Err(self.broken(format!("a message of {} bytes", too_long.bytes)));
                }
            };
            match frame {
                Frame::Tick => self.write(&TICK, deadline)?,
                Frame::Message(content) => {
                    let bytes = content.len();
                    match Message::decode(content, self.limits) {
                        Ok(Message::Unlink { acknowledgement }) => self.write(&acknowledgement, deadline)?,
                        Ok(message) => self.keep(message, bytes),
                        Err(error) => return Err(self.broken(error.to_string())),
                    }
                }
            }
        }
    }

    fn keep(&mut self, message: Message, bytes: usize) {
        self.arrived.push_back((message, bytes));
        self.arrived_bytes += bytes;
        while self.arrived.len() > MOST_WAITING || self.arrived_bytes > self.limits.bytes {
            let Some((_, bytes)) = self.arrived.pop_front() else { return };
            self.arrived_bytes -= bytes;
        }
    }

    fn write(&mut self, mut bytes: &[u8], deadline: Deadline) -> Result<(), AttachError> {
        self.check_usable()?;
        let whole = bytes.len();
        while !bytes.is_empty() {
            let result =
                self.stream.set_write_timeout(Some(deadline.left())).and_then(|()| self.stream.write(bytes));
            match result {
                Ok(written) if written > 0 => bytes = bytes.get(written..).unwrap_or_default(),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_timeout(error.kind()) => {
                    if bytes.len() < whole {
                        self.unusable = Some("a message to it could be written only in part".to_owned());
                    }
                    return Err(AttachError::TimedOut {
                        step: Step::Send,
                        peer: self.node().to_string(),
                        after: deadline.given,
                    });
                }
                Ok(_) => return Err(self.lost("nothing can be written".to_owned())),
                Err(error) => return Err(self.lost(error.to_string())),
            }
        }
        Ok(())
    }

    fn check_usable(&self) -> Result<(), AttachError> {
        match &self.unusable {
            None => Ok(()),
            Some(reason) => Err(AttachError::Lost { node: self.node().to_string(), reason: reason.clone() }),
        }
    }

    fn lost(&mut self, reason: String) -> AttachError {
        self.unusable = Some(reason.clone());
        AttachError::Lost { node: self.node().to_string(), reason }
    }

    fn broken(&mut self, what: String) -> AttachError {
        let what = printable(&what);
        self.unusable = Some(what.clone());
        AttachError::Protocol { peer: self.node().to_string(), what }
    }
}

/// Connects to the first address that answers.
fn connect(located: &Located, deadline: Deadline) -> Result<TcpStream, AttachError> {
    let mut reasons = Vec::new();
    let mut all_silent = true;
    for (index, address) in located.addresses.iter().enumerate() {
        let deadline = deadline.before_others(located.addresses.len() - index - 1);
        let connected = TcpStream::connect_timeout(address, deadline.left()).and_then(|stream| {
            stream.set_nodelay(true)?;
            Ok(stream)
        });
        match connected {
            Ok(stream) => return Ok(stream),
            Err(error) => {
                all_silent &= is_timeout(error.kind());
                reasons.push((address, error));
            }
        }
    }
    let peer = located.label.clone();
    if all_silent && !reasons.is_empty() {
        return Err(AttachError::TimedOut { step: Step::Connect, peer, after: deadline.given });
    }
    let reason = match &reasons[..] {
        [] => "it has no address".to_owned(),
        [(_, only)] => only.to_string(),
        several => {
            let each = several.iter().map(|(address, error)| format!("{address}: {error}"));
            each.collect::<Vec<_>>().join("; ")
        }
    };
    Err(AttachError::Unreachable { peer, reason })
}

/// Writes what there is to say, then reads what there is to hear.
fn exchange(
    stream: &mut TcpStream,
    output: &[u8],
    input: &mut [u8],
    deadline: Deadline,
) -> std::io::Result<usize> {
    stream.set_write_timeout(Some(deadline.left()))?;
    stream.write_all(output)?;
    if deadline.passed() {
        return Err(ErrorKind::TimedOut.into());
    }
    stream.set_read_timeout(Some(deadline.left()))?;
    read(stream, input)
}

fn is_timeout(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::TimedOut | ErrorKind::WouldBlock)
}

/// A number that the peer cannot guess.
fn random() -> u32 {
    let mut bytes = [0; 4];
    match File::open("/dev/urandom").and_then(|mut source| source.read_exact(&mut bytes)) {
        Ok(()) => u32::from_be_bytes(bytes),
        // Without the device, the keys that the standard library's hash tables take from the kernel.
        Err(_) => RandomState::new().hash_one(bytes) as u32,
    }
}
