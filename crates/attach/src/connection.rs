//! A connection to a node: runs the sans-I/O protocols over a blocking socket. Each step has a deadline.

use std::collections::VecDeque;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::cookie::FoundCookie;
use crate::deadline::{Deadline, is_timeout};
use crate::error::{AttachError, Step, printable};
use crate::etf::{Limits, Pid, Reference};
use crate::frame::{Frame, Splitter, TICK};
use crate::handshake::{Established, Handshake, Lengths, OwnName, Parameters};
use crate::locate::Located;
use crate::message::Message;
use crate::stream::{Stream, Unsent};
use crate::tls::{Session, Tls};

/// Limits of a connection.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Time limit for the TCP connection and the handshake together. The node aborts the handshake after 7 s (`net_setuptime`);
    /// beamtune then retries.
    pub setup_timeout: Duration,
    /// Time limit for attaching, including loading the agent.
    pub attach_timeout: Duration,
    /// Limits on the data that the node sends.
    pub limits: Limits,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { setup_timeout: SETUP_TIMEOUT, attach_timeout: ATTACH_TIMEOUT, limits: Limits::default() }
    }
}

/// Long enough for two attempts. A node aborts the handshake if its own processes wait too long for a scheduler. On a node where
/// 26 processes contend for one lock, it took 9 s.
const SETUP_TIMEOUT: Duration = Duration::from_secs(20);

/// [`SETUP_TIMEOUT`] plus a minute for loading the agent.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(80);

/// Longest time that a node takes to refuse a connection. If it closes the connection later, it did not refuse us, but timed out.
const SLOW: Duration = Duration::from_secs(2);

/// Time after which a TCP connection attempt is restarted. TCP retransmits a lost SYN after 1 s and 3 s.
const CONNECT_RETRY_AFTER: Duration = Duration::from_secs(4);

/// Maximum number of received messages that are kept until they are read. Their memory is limited, too, to twice
/// [`Limits::bytes`]. Beyond either limit, the oldest messages are dropped.
const MAX_KEPT_MESSAGES: usize = 1_000;

/// Number of node names that beamtune uses: `beamtune_1@HOST` and so on. It limits simultaneous connections to as many as the
/// agent accepts. It also limits the atoms that beamtune creates on a node, however often it attaches. Dynamic node names are not
/// used: each would create another atom, and for the first one the node loads crypto.
const OWN_NAMES: u32 = 8;

/// Time to wait for a free name if all are in use, since some of their users may be disconnecting.
const NAME_WAIT: Duration = Duration::from_secs(2);

/// Minimum pause between attempts to get a name. The pause is random, up to three times this, so that waiting clients do not
/// retry simultaneously.
const NAME_PAUSE: Duration = Duration::from_millis(100);

/// Size of one read.
const READ_BYTES: usize = 64 * 1024;

/// A connection to a node, which is closed on drop.
///
/// The node drops a connection on which it has received nothing for `net_ticktime` (60 s by default). It sends a tick every
/// quarter of that time. Ticks are answered while [`Connection::receive`] or [`Connection::pump`] runs, so call one of them about
/// every 15 s.
#[derive(Debug)]
pub struct Connection {
    stream: Stream,
    established: Established,
    splitter: Splitter,
    limits: Limits,
    /// Messages received but not yet read, each with its size in memory in bytes.
    arrived: VecDeque<(Message, usize)>,
    arrived_bytes: usize,
    /// When the socket was last read.
    last_read: Option<Instant>,
    /// Why the connection can no longer be used: it was lost, a message was only partly written, or the peer violated the
    /// protocol.
    unusable: Option<String>,
    /// Distinguishes our pids and references from those of an earlier connection with the same name and creation, after which the
    /// node may still be cleaning up.
    salt: u32,
    next_process: u32,
    next_reference: u64,
    last_heard: Instant,
}

impl Connection {
    /// Connects and performs the handshake under one of beamtune's node names, over TLS if `tls` is given. If all names are in
    /// use on the node, waits briefly for a free one.
    pub fn open(
        located: &Located,
        cookie: &FoundCookie,
        tls: Option<&Tls>,
        settings: Settings,
    ) -> Result<Connection, AttachError> {
        let attempt =
            Attempt { located, cookie, tls, settings, deadline: Deadline::after(settings.setup_timeout) };
        let begin = Instant::now();
        let mut closed = None;
        let mut are_taken = false;
        let taken = || AttachError::NamesTaken { peer: located.label.clone(), names: OWN_NAMES };
        loop {
            match attempt.open_as_any() {
                Ok(Some(connection)) => return Ok(connection),
                Ok(None) if begin.elapsed() > NAME_WAIT || attempt.deadline.passed() => return Err(taken()),
                Ok(None) => are_taken = true,
                // That all names were taken says more than the timeout of a later attempt.
                Err(AttachError::TimedOut { .. }) if are_taken => return Err(taken()),
                // With many clients, each name may have been in use at the moment it was tried: retry once.
                Err(error @ AttachError::ClosedDuringHandshake { .. })
                    if tls.is_none() && closed.is_none() && !attempt.deadline.passed() =>
                {
                    closed = Some(error);
                }
                // The earlier error says more than "unreachable".
                Err(error @ AttachError::Unreachable { .. }) => return Err(closed.unwrap_or(error)),
                Err(error) => return Err(error),
            }
            thread::sleep(NAME_PAUSE + NAME_PAUSE * 2 * (random() % 100) / 100);
        }
    }

    /// The node's full name.
    pub fn node(&self) -> &Arc<str> {
        &self.established.node
    }

    /// The result of the handshake.
    pub fn established(&self) -> &Established {
        &self.established
    }

    /// Returns when data last arrived from the node. Ticks arrive every quarter of its `net_ticktime`, whatever its processes do.
    pub fn heard(&self) -> Instant {
        self.last_heard
    }

    /// Returns a new pid of the node that beamtune acts as.
    pub fn new_pid(&mut self) -> Pid {
        let id = self.next_process;
        // 15 bits fit every release.
        self.next_process = if id >= 0x7FFF { 1 } else { id + 1 };
        Pid {
            node: self.established.own_name.clone(),
            id,
            // 13 bits fit every release.
            serial: self.salt >> 19,
            creation: self.established.own_creation,
        }
    }

    /// Returns a new reference of the node that beamtune acts as.
    pub fn new_reference(&mut self) -> Reference {
        self.next_reference += 1;
        let number = self.next_reference;
        // The first word has 18 bits, the others 32.
        let words = vec![(number & 0x3_FFFF) as u32, (number >> 18) as u32, self.salt];
        Reference { node: self.established.own_name.clone(), creation: self.established.own_creation, words }
    }

    /// Writes a frame made by [`crate::message`].
    pub fn send(&mut self, frame: &[u8], deadline: Instant) -> Result<(), AttachError> {
        self.write(frame, Deadline::at(deadline))
    }

    /// Returns the next message in order of arrival.
    pub fn receive(&mut self, deadline: Instant) -> Result<Message, AttachError> {
        self.receive_matching(deadline, |_| true)
    }

    /// Returns the next message for which `wanted` returns `true`. Other messages are kept for later calls.
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

    /// Reads from the socket and answers ticks until the time `until`. Messages are kept for [`Connection::receive`].
    pub fn pump(&mut self, until: Instant) -> Result<(), AttachError> {
        let deadline = Deadline::at(until);
        while self.read(deadline)? {}
        Ok(())
    }

    /// Reads once; returns `false` if the deadline has passed.
    ///
    /// After the deadline, one more read fetches data that arrived in time. Further calls with the same deadline read nothing.
    /// Otherwise a flood of messages could hold up a caller that waits for one message, long after its deadline.
    fn read(&mut self, deadline: Deadline) -> Result<bool, AttachError> {
        self.check_usable()?;
        if self.last_read.is_some_and(|last| deadline.is_before(last)) {
            return Ok(false);
        }
        self.last_read = Some(Instant::now());
        let mut piece = [0; READ_BYTES];
        match self.stream.read(&mut piece, deadline) {
            Ok(0) => Err(self.lost("it closed the connection".to_owned())),
            Ok(length) => {
                self.last_heard = Instant::now();
                self.accept(piece.get(..length).unwrap_or_default(), deadline)?;
                // A peer that sends without pause must not hold us up beyond the deadline.
                Ok(!deadline.passed())
            }
            Err(error) if is_timeout(&error) => Ok(false),
            Err(error) => Err(self.lost(error.to_string())),
        }
    }

    /// Splits bytes into messages and keeps them. Answers ticks and unlinks.
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
                Frame::Message(content) => match Message::decode(content, self.limits) {
                    Ok(Message::Unlink { acknowledgement }) => self.write(&acknowledgement, deadline)?,
                    Ok(message) => self.keep(message),
                    Err(error) => return Err(self.broken(error.to_string())),
                },
            }
        }
    }

    fn keep(&mut self, message: Message) {
        // The size in memory, not on the wire: a list of empty lists takes sixteen times as much memory.
        let bytes = message.memory_bytes();
        self.arrived.push_back((message, bytes));
        self.arrived_bytes += bytes;
        while self.arrived.len() > MAX_KEPT_MESSAGES || self.arrived_bytes > 2 * self.limits.bytes {
            let Some((_, bytes)) = self.arrived.pop_front() else { return };
            self.arrived_bytes -= bytes;
        }
    }

    fn write(&mut self, bytes: &[u8], deadline: Deadline) -> Result<(), AttachError> {
        self.check_usable()?;
        match self.stream.write(bytes, deadline) {
            Ok(()) => Ok(()),
            Err(Unsent { error, in_part }) if is_timeout(&error) => {
                if in_part {
                    self.unusable = Some("a message to it could be written only in part".to_owned());
                }
                Err(AttachError::TimedOut {
                    step: Step::Send,
                    peer: self.node().to_string(),
                    after: deadline.given,
                })
            }
            Err(Unsent { error, .. }) => Err(self.lost(error.to_string())),
        }
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

/// Parameters of connection attempts.
struct Attempt<'a> {
    located: &'a Located,
    cookie: &'a FoundCookie,
    tls: Option<&'a Tls>,
    settings: Settings,
    deadline: Deadline,
}

impl Attempt<'_> {
    /// Connects under any free name of beamtune's; returns `None` if all are in use.
    fn open_as_any(&self) -> Result<Option<Connection>, AttachError> {
        // Starts with a random name, because the node may not yet have noticed that the last user of a name has gone.
        let first = random() % OWN_NAMES;
        let (mut taken, mut closed) = (false, None);
        for turn in 0..OWN_NAMES {
            let name = format!("beamtune_{}", 1 + (first + turn) % OWN_NAMES);
            // Creations 0 to 3 had special meanings (net_kernel avoids them).
            let own = OwnName::Ours { name, creation: random().max(4) };
            let begin = Instant::now();
            match self.open_as(own) {
                Err(AttachError::NameTaken { .. } | AttachError::Busy { .. }) => taken = true,
                Err(error @ AttachError::ClosedDuringHandshake { .. }) if !self.deadline.passed() => {
                    let slow = begin.elapsed() > SLOW;
                    // OTP 23 closes the connection without a TLS alert.
                    if closed.is_none() && !slow && self.tls.is_none() && self.speaks_tls() {
                        return Err(AttachError::TlsNeeded { peer: self.located.label.clone() });
                    }
                    // If a node already has a connection with this name, it asks a second one whether it replaces the first.
                    // Meanwhile it closes a third one, such as ours, without an answer (dist_util, already_pending). With TLS,
                    // the reason may also be our certificate. There is no retry then, because each attempt adds a line to the
                    // node's log.
                    if self.tls.is_some() && !taken && !slow {
                        return Err(error);
                    }
                    closed = Some(error);
                }
                Err(AttachError::Unreachable { .. }) if closed.is_some() => break,
                opened => return opened.map(Some),
            }
        }
        match closed {
            Some(error) if !taken => Err(error),
            _ => Ok(None),
        }
    }

    fn open_as(&self, own: OwnName) -> Result<Connection, AttachError> {
        let socket = connect(self.located, self.deadline)?;
        let mut stream = match self.tls {
            None => Stream::Plain(socket),
            Some(tls) => Stream::Tls(Box::new(self.secure(tls, socket)?)),
        };
        let lengths = if self.tls.is_some() { Lengths::Four } else { Lengths::Two };
        let mut handshake = self.handshake(own, lengths);
        let mut piece = [0; 4096];
        let (established, rest) = loop {
            let length = match exchange(&mut stream, &handshake.take_output(), &mut piece, self.deadline) {
                Ok(length @ 1..) => length,
                Err(error) if is_timeout(&error) || self.deadline.passed() => {
                    return Err(AttachError::TimedOut {
                        step: Step::Handshake,
                        peer: self.located.label.clone(),
                        after: self.settings.setup_timeout,
                    });
                }
                // A peer that closes while our bytes are in transit resets the connection, which is an error here.
                end => return Err(closed(&stream, &handshake, end.err().as_ref())),
            };
            if let Some(done) = handshake.receive(piece.get(..length).unwrap_or_default())? {
                break done;
            }
        };
        let salt = random();
        let mut connection = Connection {
            stream,
            established,
            splitter: Splitter::new(self.settings.limits.bytes),
            limits: self.settings.limits,
            arrived: VecDeque::new(),
            arrived_bytes: 0,
            last_read: None,
            unusable: None,
            salt,
            next_process: 1 + salt % 0x7FFF,
            next_reference: 0,
            last_heard: Instant::now(),
        };
        connection.accept(&rest, self.deadline)?;
        Ok(connection)
    }

    /// Performs the TLS handshake.
    fn secure(&self, tls: &Tls, socket: TcpStream) -> Result<Session, AttachError> {
        let mut session = tls.greet(socket, self.located, self.deadline)?;
        // A node without TLS takes our bytes for the start of a long packet, waits for the rest, and closes the connection after
        // 7 s.
        if !session.is_answered(self.deadline.at_most(SLOW)) && self.speaks_plain() {
            return Err(AttachError::TlsUnexpected { peer: self.located.label.clone() });
        }
        session.complete_handshake(self.deadline)?;
        Ok(session)
    }

    fn handshake(&self, own: OwnName, lengths: Lengths) -> Handshake {
        Handshake::new(Parameters {
            peer: self.located.label.clone(),
            expected: self.located.expected.clone(),
            own,
            host: self.located.host.clone(),
            lengths,
            cookie: self.cookie.cookie.clone(),
            cookie_origin: self.cookie.origin.clone(),
            challenge: random(),
        })
    }

    /// Returns whether the peer answers a handshake without TLS. The packet that is sent contains no secret.
    fn speaks_plain(&self) -> bool {
        let output = self.handshake(OwnName::OfNode, Lengths::Two).take_output();
        let mut answer = [0; 3];
        let answered = connect(self.located, self.deadline).map(Stream::Plain).map(|mut stream| {
            exchange(&mut stream, &output, &mut answer, self.deadline.at_most(SLOW)).unwrap_or_default()
        });
        answered.is_ok_and(|length| length > 2) && answer[2] == b's'
    }

    /// Returns whether the peer answers a TLS handshake.
    fn speaks_tls(&self) -> bool {
        let deadline = self.deadline.at_most(SLOW);
        let greeted = connect(self.located, deadline)
            .and_then(|socket| Tls::probe().greet(socket, self.located, deadline));
        greeted.is_ok_and(|mut session| session.is_answered(deadline))
    }
}

/// Returns the error for a connection that failed, or that the peer closed, during the handshake.
fn closed(stream: &Stream, handshake: &Handshake, error: Option<&std::io::Error>) -> AttachError {
    match (handshake.closed(), stream) {
        // A node may refuse our certificate after the end of the TLS handshake.
        (early @ AttachError::ClosedDuringHandshake { .. }, Stream::Tls(session)) => {
            session.refusal(error).unwrap_or(early)
        }
        (closed, _) => closed,
    }
}

/// Connects to the first address that answers. Restarts every [`CONNECT_RETRY_AFTER`]: TCP doubles its retransmission timeout, so
/// a single attempt would notice the end of a network outage late.
fn connect(located: &Located, deadline: Deadline) -> Result<TcpStream, AttachError> {
    loop {
        match connect_once(located, deadline.at_most(CONNECT_RETRY_AFTER)) {
            Err(AttachError::TimedOut { .. }) if !deadline.passed() => {}
            Err(AttachError::TimedOut { step, peer, .. }) => {
                return Err(AttachError::TimedOut { step, peer, after: deadline.given });
            }
            other => return other,
        }
    }
}

fn connect_once(located: &Located, deadline: Deadline) -> Result<TcpStream, AttachError> {
    let mut reasons = Vec::new();
    let mut all_silent = true;
    for (index, address) in located.addresses.iter().enumerate() {
        let deadline = deadline.before_others(located.addresses.len() - index - 1);
        let connected = located.network.connect(address, deadline.left())?.and_then(|stream| {
            stream.set_nodelay(true)?;
            Ok(stream)
        });
        match connected {
            Ok(stream) => return Ok(stream),
            Err(error) => {
                all_silent &= is_timeout(&error);
                reasons.push((address, error));
            }
        }
    }
    let peer = located.label.clone();
    if all_silent && !reasons.is_empty() {
        return Err(AttachError::TimedOut { step: Step::Connect, peer, after: deadline.given });
    }
    let reason = match &reasons[..] {
        [] => "no address".to_owned(),
        [(_, only)] => only.to_string(),
        several => {
            let each = several.iter().map(|(address, error)| format!("{address}: {error}"));
            each.collect::<Vec<_>>().join("; ")
        }
    };
    Err(AttachError::Unreachable { peer, reason })
}

/// Writes the output, then reads input.
fn exchange(
    stream: &mut Stream,
    output: &[u8],
    input: &mut [u8],
    deadline: Deadline,
) -> std::io::Result<usize> {
    stream.write(output, deadline).map_err(|unsent| unsent.error)?;
    if deadline.passed() {
        return Err(ErrorKind::TimedOut.into());
    }
    stream.read(input, deadline)
}

/// A number that the peer cannot guess.
fn random() -> u32 {
    let mut bytes = [0; 4];
    match File::open("/dev/urandom").and_then(|mut source| source.read_exact(&mut bytes)) {
        Ok(()) => u32::from_be_bytes(bytes),
        // Without the device: the standard library seeds its hash tables with random numbers from the kernel.
        Err(_) => RandomState::new().hash_one(bytes) as u32,
    }
}
