//! One device: where it is in its steps, and its connection. There may be a hundred thousand of them, so it is small.

use std::os::fd::OwnedFd;

use rand_core::SeedableRng;
use rand_xoshiro::Xoroshiro128PlusPlus;
use rustix::io::Errno;
use rustix::net::SendFlags;

use super::tls;
use crate::program::{DEEPEST_REPEAT, Kind};
use crate::protocol::Session;
use crate::template::Values;

/// No instant.
pub const NEVER_NS: u64 = u64::MAX;
/// Of a device's own buffers, so much room is kept when they are empty, so that what is usual takes no memory each time.
pub const KEPT_BYTES: usize = 1024;
/// What a device owes its peer by itself (pongs, acknowledgements) and the peer does not take: more is a fault of the peer.
pub const MOST_OWED_BYTES: usize = 16 * 1024 * 1024;

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
    /// That the socket takes the rest of a message that has no answer.
    Sending,
    /// An answer, or a message.
    Waiting,
    /// Its timer, within its steps.
    Sleeping,
    /// Its timer, so that others have their turn.
    Yielding,
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
    /// Where its turn goes on once it is connected again, and when that step was due.
    pub resume: Option<(u32, u64)>,
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
    pub tls: Option<Box<tls::Stream>>,
    pub session: Session,
    /// Whether it waits for a message.
    pub is_expecting: bool,
    /// The bytes of a message that it will wait for next, which came before what it waits for now.
    pub early: Option<u64>,
    /// What came and could not be read without what comes behind it.
    pub unread: Vec<u8>,
    /// What the socket did not take yet; encrypted where there is TLS.
    pub unsent: Vec<u8>,
    /// Of that, at most so many bytes are what the session says by itself.
    pub owed_bytes: usize,
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
            resume: None,
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
            tls: None,
            session: Session::new(&what.protocol),
            is_expecting: false,
            early: None,
            unread: Vec::new(),
            unsent: Vec::new(),
            owed_bytes: 0,
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

    /// Sends what can be sent and keeps the rest; how many of the socket's bytes were sent. Nothing at all (`bytes` is empty)
    /// sends what TLS has to say.
    pub fn send(&mut self, bytes: &[u8], now_ns: u64) -> Result<u64, Errno> {
        if self.fd.is_none() {
            return Ok(0);
        }
        if self.tls.is_some() || !self.unsent.is_empty() {
            self.keep(bytes);
            return self.flush(now_ns);
        }
        let sent = self.put(bytes, now_ns)?;
        self.unsent.extend_from_slice(&bytes[sent..]);
        Ok(sent as u64)
    }

    /// Keeps what the session says by itself until the device sends, or [`Self::flush`]: one call for many messages.
    pub fn owe(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.keep(bytes);
            self.owed_bytes += bytes.len();
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        match &mut self.tls {
            None => self.unsent.extend_from_slice(bytes),
            Some(tls) => tls.write(bytes, &mut self.unsent),
        }
    }

    /// Sends of what is unsent as much as the socket takes; how many bytes.
    pub fn flush(&mut self, now_ns: u64) -> Result<u64, Errno> {
        let unsent = std::mem::take(&mut self.unsent);
        let sent = self.put(&unsent, now_ns);
        self.unsent = unsent;
        let sent = sent?;
        self.unsent.drain(..sent);
        if self.unsent.is_empty() {
            self.unsent.shrink_to(KEPT_BYTES);
        }
        self.owed_bytes = self.owed_bytes.min(self.unsent.len());
        Ok(sent as u64)
    }

    /// What of it the socket takes.
    fn put(&mut self, bytes: &[u8], now_ns: u64) -> Result<usize, Errno> {
        let Some(fd) = self.fd.as_ref().filter(|_| !bytes.is_empty()) else { return Ok(0) };
        self.written_ns = now_ns;
        match rustix::io::retry_on_intr(|| rustix::net::send(fd, bytes, SendFlags::NOSIGNAL)) {
            Err(Errno::AGAIN) => Ok(0),
            sent => sent,
        }
    }

    /// Reads what has come for the session, decrypted; counts the socket's bytes.
    pub fn read(&mut self, input: &mut [u8], read_bytes: &mut u64) -> Result<Read, ReadTrouble> {
        let Some(fd) = &self.fd else { return Ok(Read::Nothing) };
        loop {
            let Some(tls) = &mut self.tls else {
                return match rustix::io::read(fd, &mut *input) {
                    Ok(0) => Ok(Read::End),
                    Ok(bytes) => {
                        *read_bytes += bytes as u64;
                        Ok(Read::Bytes(bytes))
                    }
                    Err(Errno::AGAIN) => Ok(Read::Nothing),
                    Err(Errno::INTR) => continue,
                    Err(errno) => Err(ReadTrouble::Errno(errno)),
                };
            };
            match tls.read(input) {
                tls::Plain::Bytes(bytes) => return Ok(Read::Bytes(bytes)),
                tls::Plain::End => return Ok(Read::End),
                tls::Plain::More => {}
            }
            // Encrypted bytes go through the same buffer: what they hold is read from the connection afterwards.
            let room = input.len().min(tls::READ_BYTES);
            let bytes = match rustix::io::read(fd, &mut input[..room]) {
                // Ended without the alert that TLS ends with: as most servers do.
                Ok(0) => return Ok(Read::End),
                Ok(bytes) => bytes,
                Err(Errno::AGAIN) => return Ok(Read::Nothing),
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(ReadTrouble::Errno(errno)),
            };
            *read_bytes += bytes as u64;
            match tls.take(&input[..bytes]).map_err(ReadTrouble::Tls)? {
                tls::Took::Nothing => {}
                tls::Took::Secured => return Ok(Read::Secured),
                tls::Took::Said => return Ok(Read::Said),
            }
        }
    }
}

/// What was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// So many bytes for the session.
    Bytes(usize),
    /// There is nothing more for now.
    Nothing,
    /// TLS has been agreed upon just now; it may have something to say.
    Secured,
    /// TLS has something to say.
    Said,
    /// The peer has closed.
    End,
}

/// Why nothing can be read any more.
#[derive(Debug)]
pub enum ReadTrouble {
    /// The system says so.
    Errno(Errno),
    /// TLS does: in these words.
    Tls(String),
}
