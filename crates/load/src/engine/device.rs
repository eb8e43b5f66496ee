//! One device: where it is in its steps, and its connection. There may be a hundred thousand of them, so it is small.

use std::os::fd::OwnedFd;

use rand_core::SeedableRng;
use rand_xoshiro::Xoroshiro128PlusPlus;
use rustix::io::Errno;
use rustix::net::SendFlags;

use crate::program::{DEEPEST_REPEAT, Kind};
use crate::protocol::Session;
use crate::template::Values;

/// No instant.
pub const NEVER_NS: u64 = u64::MAX;
/// Of a device's own buffers, so much room is kept when they are empty.
pub const KEPT_BYTES: usize = 64;

/// What a device waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Its beginning.
    Fresh,
    /// Nothing: it goes on.
    Ready,
    /// A connection.
    Connecting,
    /// What opens the session.
    Opening,
    /// The socket, to take what has no answer.
    Sending,
    /// An answer, or a message.
    Waiting,
    /// Its timer, within its steps.
    Sleeping,
    /// Its timer, after an error.
    Pausing,
    /// An arrival.
    Free,
    /// Nothing: it has done all.
    Over,
}

/// A device.
pub struct Device {
    pub number: u64,
    pub kind: u32,
    pub state: State,
    /// Whether it goes through a turn; if not, it is connected in advance at most.
    pub is_in_turn: bool,
    /// Whether its connection is counted among those that stand.
    pub is_counted: bool,
    /// The operation that it is at.
    pub op: u32,
    /// The step that is under way.
    pub step: u32,
    /// Differs for each connection, so that an event of an older one is known.
    pub generation: u32,
    pub loops: [u32; DEEPEST_REPEAT],
    pub turn: u64,
    pub count: u64,
    /// When the step was due.
    pub scheduled_ns: u64,
    pub sent_ns: u64,
    /// 0: nothing has come yet.
    pub first_byte_ns: u64,
    pub deadline_ns: u64,
    /// When it goes on by itself: its beginning, the end of a sleep or of a pause; otherwise [`NEVER_NS`]. Its timer may be
    /// set for something earlier.
    pub wake_ns: u64,
    /// When it last sent anything.
    pub written_ns: u64,
    /// When the answer to a ping that is no step of it must have come, and is looked for; otherwise [`NEVER_NS`].
    pub pong_ns: u64,
    pub random: Xoroshiro128PlusPlus,
    pub fd: Option<OwnedFd>,
    pub session: Session,
    /// Whether it waits for a message.
    pub is_expecting: bool,
    /// The bytes of a message that it will wait for next, which came before what it waits for now.
    pub early: Option<u64>,
    /// What came and could not be read without what comes behind it.
    pub unread: Vec<u8>,
    /// What the socket did not take yet.
    pub unsent: Vec<u8>,
}

impl Device {
    /// The device of that number among its kind.
    pub fn new(seed: u64, kind: usize, what: &Kind, number: u64) -> Self {
        // Each has its own stream of chance, whichever thread has it; the constant is that of SplitMix64 (Steele et al. 2014).
        let own = (number << 16 | kind as u64).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self {
            number,
            kind: kind as u32,
            state: State::Fresh,
            is_in_turn: false,
            is_counted: false,
            op: 0,
            step: 0,
            generation: 0,
            loops: [0; DEEPEST_REPEAT],
            turn: 0,
            count: 0,
            scheduled_ns: 0,
            sent_ns: 0,
            first_byte_ns: 0,
            deadline_ns: 0,
            wake_ns: NEVER_NS,
            written_ns: 0,
            pong_ns: NEVER_NS,
            random: Xoroshiro128PlusPlus::seed_from_u64(seed ^ own),
            fd: None,
            session: Session::new(&what.protocol),
            is_expecting: false,
            early: None,
            unread: Vec::new(),
            unsent: Vec::new(),
        }
    }

    /// When its connection wants to be looked after, if it does.
    pub fn keep_alive_ns(&self) -> Option<u64> {
        if !self.is_counted {
            return None;
        }
        let due_ns = self.session.keep_alive_due(self.written_ns)?;
        Some(if self.pong_ns == NEVER_NS { due_ns } else { self.pong_ns })
    }

    /// When its timer has to ring; [`NEVER_NS`] if it need not.
    pub fn next_ns(&self) -> u64 {
        self.wake_ns.min(self.keep_alive_ns().unwrap_or(NEVER_NS))
    }

    /// The session, and what values of texts are taken from.
    pub fn session_and_values(&mut self, now_ns: u64) -> (&mut Session, Values<'_>) {
        let values = Values {
            device: self.number,
            turn: self.turn,
            count: &mut self.count,
            random: &mut self.random,
            now_ns,
        };
        (&mut self.session, values)
    }

    /// Sends what can be sent and keeps the rest; how many bytes were sent.
    pub fn send(&mut self, bytes: &[u8], now_ns: u64) -> Result<u64, Errno> {
        let Some(fd) = &self.fd else { return Ok(0) };
        self.written_ns = now_ns;
        if !self.unsent.is_empty() {
            self.unsent.extend_from_slice(bytes);
            return self.flush();
        }
        let sent = match rustix::net::send(fd, bytes, SendFlags::NOSIGNAL) {
            Ok(sent) => sent,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(errno) => return Err(errno),
        };
        self.unsent.extend_from_slice(&bytes[sent..]);
        Ok(sent as u64)
    }

    /// Sends of what is unsent as much as the socket takes; how many bytes.
    pub fn flush(&mut self) -> Result<u64, Errno> {
        let Some(fd) = &self.fd else { return Ok(0) };
        match rustix::net::send(fd, &self.unsent, SendFlags::NOSIGNAL) {
            Ok(sent) if sent == self.unsent.len() => {
                // Room for some acknowledgements is kept, so that they take no memory each time.
                self.unsent.clear();
                self.unsent.shrink_to(KEPT_BYTES);
                Ok(sent as u64)
            }
            Ok(sent) => {
                self.unsent.drain(..sent);
                Ok(sent as u64)
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(0),
            Err(errno) => Err(errno),
        }
    }
}
