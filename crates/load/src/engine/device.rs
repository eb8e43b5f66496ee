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
    pub loops: [u32; DEEPEST_REPEAT],
    pub turn: u64,
    pub count: u64,
    /// When the step was due.
    pub scheduled_ns: u64,
    pub sent_ns: u64,
    /// 0: nothing has come yet.
    pub first_byte_ns: u64,
    pub deadline_ns: u64,
    pub random: Xoroshiro128PlusPlus,
    pub fd: Option<OwnedFd>,
    pub tls: Option<Box<tls::Stream>>,
    pub session: Session,
    /// Whether it waits for a message.
    pub is_expecting: bool,
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
            random: Xoroshiro128PlusPlus::seed_from_u64(seed ^ own),
            fd: None,
            tls: None,
            session: Session::new(&what.protocol),
            is_expecting: false,
            unread: Vec::new(),
            unsent: Vec::new(),
        }
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
    pub fn send(&mut self, bytes: &[u8]) -> Result<u64, Errno> {
        if self.fd.is_none() {
            return Ok(0);
        }
        match &mut self.tls {
            None if self.unsent.is_empty() => self.put(bytes),
            None => {
                self.unsent.extend_from_slice(bytes);
                Ok(0)
            }
            Some(tls) => {
                let kept = self.unsent.len();
                tls.write(bytes, &mut self.unsent);
                if kept > 0 { Ok(0) } else { self.flush() }
            }
        }
    }

    /// Sends of what is unsent as much as the socket takes; how many bytes.
    pub fn flush(&mut self) -> Result<u64, Errno> {
        let unsent = std::mem::take(&mut self.unsent);
        self.put(&unsent)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<u64, Errno> {
        let Some(fd) = &self.fd else { return Ok(0) };
        if bytes.is_empty() {
            return Ok(0);
        }
        let sent = match rustix::net::send(fd, bytes, SendFlags::NOSIGNAL) {
            Ok(sent) => sent,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(errno) => return Err(errno),
        };
        self.unsent.extend_from_slice(&bytes[sent..]);
        Ok(sent as u64)
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
