//! The connection: the sans-IO parts joined to a blocking socket, each step with a deadline.

use std::collections::VecDeque;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::cookie::Found;
use crate::deadline::{Deadline, is_timeout};
use crate::error::{AttachError, Step, printable};
use crate::etf::{Limits, Pid, Reference};
use crate::frame::{Frame, Splitter, TICK};
use crate::handshake::{Established, Handshake, Lengths, OwnName, Parameters};
use crate::locate::Located;
use crate::message::Message;
use crate::stream::{Stream, Unsent};
use crate::tls::{Session, Tls};

/// What a connection may take.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// For the TCP connection and the handshake together. The node gives up after 7 s (net_setuptime), and is then
    /// tried again.
    pub setup_timeout: Duration,
    /// For all of attaching, the agent's loading included.
    pub attach_timeout: Duration,
    /// Bounds of what the node sends.
    pub limits: Limits,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { setup_timeout: SETUP_TIMEOUT, attach_timeout: ATTACH_TIMEOUT, limits: Limits::default() }
    }
}

/// Two attempts on a node that gives up because its own processes wait too long for a scheduler: 9 s were seen where 26
/// processes fight for one lock.
const SETUP_TIMEOUT: Duration = Duration::from_secs(20);

/// That, and a minute for the agent to load.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(80);

/// A node that closes the connection after this time has not refused us, but was too slow for itself.
const SLOW: Duration = Duration::from_secs(2);

/// A TCP connection that has not come about in this time is tried anew: a lost packet is sent again after 1 s and 3 s.
const ANEW_AFTER: Duration = Duration::from_secs(4);

/// Messages that nobody has asked for yet are kept up to this number, and up to the memory of twice as many bytes as the
/// largest one that is accepted has; beyond, the oldest are dropped.
const MOST_WAITING: usize = 1_000;

/// So many names of ours there are, `beamtune_1@HOST` and so on: so many can be connected at once, as many as the agent
/// takes, and so many atoms a node gets from any number of attaches. It is never asked to make a name up: each would be
/// another atom, and for the first one it loads crypto.
const OWN_NAMES: u32 = 8;

/// So long a name is waited for when others have them all, because some may just be leaving.
const FOR_A_NAME: Duration = Duration::from_secs(2);

/// The shortest pause meanwhile; up to three times that, so that those who wait do not all come at once again.
const NAME_PAUSE: Duration = Duration::from_millis(100);

/// Bytes read at once.
const PIECE: usize = 64 * 1024;

/// A connection to a node; dropping it closes it.
///
/// The node drops a connection on which it has heard nothing for `net_ticktime` (60 s by default, asked four
/// times). Its ticks are answered while [`Connection::receive`] or [`Connection::pump`] runs, so one of them
/// must be called every 15 s or so.
#[derive(Debug)]
pub struct Connection {
    stream: Stream,
    established: Established,
    splitter: Splitter,
    limits: Limits,
    /// With the bytes of memory of each.
    arrived: VecDeque<(Message, usize)>,
    arrived_bytes: usize,
    /// When the socket was last asked for more.
    last_read: Option<Instant>,
    /// Set when part of a frame was written, or the peer has broken the protocol: nothing can follow.
    unusable: Option<String>,
    /// Tells our processes and references from those of the connection before: the node may give the same name and
    /// creation again, while it is still busy forgetting us.
    salt: u32,
    next_process: u32,
    next_reference: u64,
    heard: Instant,
}

impl Connection {
    /// Connects and shakes hands, under one of our own names. If all of them are in use there, one is waited for, but not
    /// for long. With `tls`, over TLS.
    pub fn open(
        located: &Located,
        cookie: &Found,
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
                Ok(None) if begin.elapsed() > FOR_A_NAME || attempt.deadline.passed() => return Err(taken()),
                Ok(None) => are_taken = true,
                // The time was over in the middle of another attempt.
                Err(AttachError::TimedOut { .. }) if are_taken => return Err(taken()),
                // In a crowd somebody may have been met under each name: once more.
                Err(error @ AttachError::ClosedEarly { .. })
                    if tls.is_none() && closed.is_none() && !attempt.deadline.passed() =>
                {
                    closed = Some(error);
                }
                // What was met before says more than that it is gone now.
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

    /// What the handshake agreed on.
    pub fn established(&self) -> &Established {
        &self.established
    }

    /// When something of the node has last arrived, if only a tick: one comes each quarter of its `net_ticktime`, whatever
    /// its processes do.
    pub fn heard(&self) -> Instant {
        self.heard
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
    ///
    /// Behind a deadline it is done once, for what has come in time and is still to be fetched: callers that wait for one
    /// message among many come again with the same deadline, and whoever floods us must not keep them beyond it.
    fn read(&mut self, deadline: Deadline) -> Result<bool, AttachError> {
        self.check_usable()?;
        if self.last_read.is_some_and(|last| deadline.is_before(last)) {
            return Ok(false);
        }
        self.last_read = Some(Instant::now());
        let mut piece = [0; PIECE];
        match self.stream.read(&mut piece, deadline) {
            Ok(0) => Err(self.lost("it closed the connection".to_owned())),
            Ok(length) => {
                self.heard = Instant::now();
                self.accept(piece.get(..length).unwrap_or_default(), deadline)?;
                // Whoever sends without pause must not keep us beyond the deadline.
                Ok(!deadline.passed())
            }
            Err(error) if is_timeout(&error) => Ok(false),
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
                Frame::Message(content) => match Message::decode(content, self.limits) {
                    Ok(Message::Unlink { acknowledgement }) => self.write(&acknowledgement, deadline)?,
                    Ok(message) => self.keep(message),
                    Err(error) => return Err(self.broken(error.to_string())),
                },
            }
        }
    }

    fn keep(&mut self, message: Message) {
        // Not those on the wire: a list of empty lists takes sixteen times as many here.
        let bytes = message.memory_bytes();
        self.arrived.push_back((message, bytes));
        self.arrived_bytes += bytes;
        while self.arrived.len() > MOST_WAITING || self.arrived_bytes > 2 * self.limits.bytes {
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

/// How a connection is tried to be opened.
struct Attempt<'a> {
    located: &'a Located,
    cookie: &'a Found,
    tls: Option<&'a Tls>,
    settings: Settings,
    deadline: Deadline,
}

impl Attempt<'_> {
    /// Under the first of our names that is free; `None` if none is.
    fn open_as_any(&self) -> Result<Option<Connection>, AttachError> {
        // Not always the same first, because the node may not yet have noticed that whoever had it has gone.
        let first = random() % OWN_NAMES;
        let (mut taken, mut closed) = (false, None);
        for turn in 0..OWN_NAMES {
            let name = format!("beamtune_{}", 1 + (first + turn) % OWN_NAMES);
            // Small ones had a meaning of their own (net_kernel avoids 0 to 3).
            let own = OwnName::Ours { name, creation: random().max(4) };
            let begin = Instant::now();
            match self.open_as(own) {
                Err(AttachError::NameTaken { .. } | AttachError::Busy { .. }) => taken = true,
                Err(error @ AttachError::ClosedEarly { .. }) if !self.deadline.passed() => {
                    let slow = begin.elapsed() > SLOW;
                    // OTP 23 does not say so by itself.
                    if closed.is_none() && !slow && self.tls.is_none() && self.speaks_tls() {
                        return Err(AttachError::TlsNeeded { peer: self.located.label.clone() });
                    }
                    // A node that has the name already, and is just asking another newcomer whether he is the same, sends
                    // us away without a word (dist_util, already_pending). With TLS it may as well be our certificate, and
                    // each attempt a line in the node's log.
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
                // A peer that closes while our bytes are still under way resets the connection.
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
            heard: Instant::now(),
        };
        connection.accept(&rest, self.deadline)?;
        Ok(connection)
    }

    /// Shakes hands for TLS.
    fn secure(&self, tls: &Tls, socket: TcpStream) -> Result<Session, AttachError> {
        let mut session = tls.greet(socket, self.located, self.deadline)?;
        // A node without TLS waits for the rest of what it takes for a long packet, and closes after 7 s.
        if !session.is_answered(self.deadline.at_most(SLOW)) && self.speaks_plain() {
            return Err(AttachError::TlsUnexpected { peer: self.located.label.clone() });
        }
        session.shake_hands(self.deadline)?;
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

    /// Whether the peer answers a plain handshake. Nothing secret is in the packet that asks.
    fn speaks_plain(&self) -> bool {
        let output = self.handshake(OwnName::OfNode, Lengths::Two).take_output();
        let mut answer = [0; 3];
        let asked = connect(self.located, self.deadline).map(Stream::Plain).map(|mut stream| {
            exchange(&mut stream, &output, &mut answer, self.deadline.at_most(SLOW)).unwrap_or_default()
        });
        asked.is_ok_and(|length| length > 2) && answer[2] == b's'
    }

    /// Whether the peer answers in TLS.
    fn speaks_tls(&self) -> bool {
        let deadline = self.deadline.at_most(SLOW);
        let asked = connect(self.located, deadline)
            .and_then(|socket| Tls::of_a_stranger().greet(socket, self.located, deadline));
        asked.is_ok_and(|mut session| session.is_answered(deadline))
    }
}

/// What it means that the peer has closed the connection now, or that it has failed.
fn closed(stream: &Stream, handshake: &Handshake, error: Option<&std::io::Error>) -> AttachError {
    match (handshake.closed(), stream) {
        // A node that refuses our certificate can say so behind the end of the TLS handshake.
        (early @ AttachError::ClosedEarly { .. }, Stream::Tls(session)) => {
            session.refusal(error).unwrap_or(early)
        }
        (closed, _) => closed,
    }
}

/// Connects to the first address that answers. Begins anew from time to time: TCP by itself doubles its pauses, and would not
/// notice for long that a cut of the network is over.
fn connect(located: &Located, deadline: Deadline) -> Result<TcpStream, AttachError> {
    loop {
        match connect_once(located, deadline.at_most(ANEW_AFTER)) {
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
        // Without the device, the keys that the standard library's hash tables take from the kernel.
        Err(_) => RandomState::new().hash_one(bytes) as u32,
    }
}
