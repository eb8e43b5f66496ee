//! The state of one device and its connection. Kept small, because there may be a hundred thousand devices.

use std::os::fd::OwnedFd;

use rand_core::SeedableRng;
use rand_xoshiro::Xoroshiro128PlusPlus;
use rustix::io::Errno;
use rustix::net::SendFlags;

use super::tls;
use crate::program::{Kind, MAX_NESTED_REPEATS};
use crate::protocol::Session;
use crate::template::Values;

/// An instant that never comes.
pub const NEVER_NS: u64 = u64::MAX;
/// Capacity that an empty buffer of a device keeps, so that messages of typical size need no allocation.
pub const KEPT_BYTES: usize = 1024;
/// Maximum size of unsent automatic replies (pongs, acknowledgements). A peer that requests more without reading them is at fault.
pub const MAX_REPLY_BYTES: usize = 16 * 1024 * 1024;

/// What a device is doing or waiting for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Has not started.
    Fresh,
    /// Executes its operations.
    Ready,
    /// Waits for the connection.
    Connecting,
    /// Waits for TLS and the session to open.
    Opening,
    /// Waits until the socket accepts the rest of a message without an answer.
    Sending,
    /// Waits for an answer or a message.
    Waiting,
    /// Sleeps between steps.
    Sleeping,
    /// Lets other devices run.
    Yielding,
    /// Pauses after an error.
    Pausing,
    /// Waits for an arrival.
    Free,
    /// Has ended.
    Over,
}

/// A device.
pub struct Device {
    pub number: u64,
    /// Index of the device's kind.
    pub kind: u32,
    pub state: State,
    /// Whether the device is in a turn. Otherwise it connects in advance, or waits.
    pub is_in_turn: bool,
    /// Whether the device's connection is counted as connected.
    pub is_counted: bool,
    /// Index of the current operation.
    pub op: u32,
    /// Index of the current step.
    pub step: u32,
    /// Changes with each connection, so that events of an earlier connection are recognized.
    pub generation: u32,
    /// After a reconnect within a turn: the operation to continue with, and when that step was due.
    pub resume: Option<(u32, u64)>,
    pub loops: [u32; MAX_NESTED_REPEATS],
    pub turn: u64,
    pub count: u64,
    /// When the current step was due.
    pub scheduled_ns: u64,
    pub sent_ns: u64,
    /// When the first byte of the answer arrived; 0: nothing has been received yet.
    pub first_byte_ns: u64,
    pub deadline_ns: u64,
    /// When the device continues: its start, or the end of a sleep or pause; otherwise [`NEVER_NS`]. The timer may be set for an earlier
    /// event.
    pub wake_ns: u64,
    /// When the device last wrote to the socket.
    pub written_ns: u64,
    /// Deadline for the answer to a keep-alive ping; [`NEVER_NS`] without a ping.
    pub pong_ns: u64,
    pub random: Xoroshiro128PlusPlus,
    pub fd: Option<OwnedFd>,
    pub tls: Option<Box<tls::Stream>>,
    pub session: Session,
    /// Whether the device waits for a message.
    pub is_expecting: bool,
    /// Size in bytes of a message for the next operation that arrived before the answer to the current operation.
    pub early: Option<u64>,
    /// Received bytes that the session can only parse together with more bytes.
    pub unread: Vec<u8>,
    /// Bytes that the socket has not accepted yet, encrypted if there is TLS.
    pub unsent: Vec<u8>,
    /// Upper bound of the automatic replies in `unsent`, in bytes.
    pub reply_bytes: usize,
}

impl Device {
    /// Creates the device with this number, of the kind with this index.
    pub fn new(seed: u64, kind_index: usize, kind: &Kind, number: u64) -> Self {
        // Each device has its own random stream, whichever thread runs it. The constant is that of SplitMix64 (Steele et al. 2014).
        let own = (number << 16 | kind_index as u64).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self {
            number,
            kind: kind_index as u32,
            state: State::Fresh,
            is_in_turn: false,
            is_counted: false,
            op: 0,
            step: 0,
            generation: 0,
            resume: None,
            loops: [0; MAX_NESTED_REPEATS],
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
            session: Session::new(&kind.protocol),
            is_expecting: false,
            early: None,
            unread: Vec::new(),
            unsent: Vec::new(),
            reply_bytes: 0,
        }
    }

    /// Returns when keep-alive is due for the connection: the time of the next ping, or the deadline for the answer to a ping.
    pub fn keep_alive_ns(&self) -> Option<u64> {
        if !self.is_counted {
            return None;
        }
        let due_ns = self.session.keep_alive_due(self.written_ns)?;
        Some(if self.pong_ns == NEVER_NS { due_ns } else { self.pong_ns })
    }

    /// Returns when the device's timer must fire; [`NEVER_NS`] if it need not fire.
    pub fn next_ns(&self) -> u64 {
        self.wake_ns.min(self.keep_alive_ns().unwrap_or(NEVER_NS))
    }

    /// Returns the session, and the values of placeholders.
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

    /// Sends as many bytes as the socket accepts and keeps the rest. Returns the number of bytes written to the socket. Empty `bytes` send
    /// pending TLS output.
    pub fn send(&mut self, bytes: &[u8], now_ns: u64) -> Result<u64, Errno> {
        if self.fd.is_none() {
            return Ok(0);
        }
        if self.tls.is_some() || !self.unsent.is_empty() {
            self.enqueue(bytes);
            return self.flush(now_ns);
        }
        let sent = self.write(bytes, now_ns)?;
        self.unsent.extend_from_slice(&bytes[sent..]);
        Ok(sent as u64)
    }

    /// Queues an automatic reply of the session until the next send or [`Self::flush`]: one system call for many replies.
    pub fn queue_reply(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.enqueue(bytes);
            self.reply_bytes += bytes.len();
        }
    }

    fn enqueue(&mut self, bytes: &[u8]) {
        match &mut self.tls {
            None => self.unsent.extend_from_slice(bytes),
            Some(tls) => tls.write(bytes, &mut self.unsent),
        }
    }

    /// Sends as many unsent bytes as the socket accepts. Returns their number.
    pub fn flush(&mut self, now_ns: u64) -> Result<u64, Errno> {
        let unsent = std::mem::take(&mut self.unsent);
        let sent = self.write(&unsent, now_ns);
        self.unsent = unsent;
        let sent = sent?;
        self.unsent.drain(..sent);
        if self.unsent.is_empty() {
            self.unsent.shrink_to(KEPT_BYTES);
        }
        self.reply_bytes = self.reply_bytes.min(self.unsent.len());
        Ok(sent as u64)
    }

    /// Writes to the socket. Returns the number of bytes that the socket accepted; 0 if it would block.
    fn write(&mut self, bytes: &[u8], now_ns: u64) -> Result<usize, Errno> {
        let Some(fd) = self.fd.as_ref().filter(|_| !bytes.is_empty()) else { return Ok(0) };
        self.written_ns = now_ns;
        match rustix::io::retry_on_intr(|| rustix::net::send(fd, bytes, SendFlags::NOSIGNAL)) {
            Err(Errno::AGAIN) => Ok(0),
            sent => sent,
        }
    }

    /// Reads decrypted bytes for the session into `input`; adds the bytes read from the socket to `read_bytes`.
    pub fn read(&mut self, input: &mut [u8], read_bytes: &mut u64) -> Result<Read, ReadError> {
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
                    Err(errno) => Err(ReadError::Errno(errno)),
                };
            };
            match tls.read(input) {
                tls::Plain::Bytes(bytes) => return Ok(Read::Bytes(bytes)),
                tls::Plain::End => return Ok(Read::End),
                tls::Plain::More => {}
            }
            // The same buffer first receives the encrypted bytes; the decrypted bytes are then read from the TLS state.
            let room = input.len().min(tls::READ_BYTES);
            let bytes = match rustix::io::read(fd, &mut input[..room]) {
                // Most servers close without TLS' close_notify alert.
                Ok(0) => return Ok(Read::End),
                Ok(bytes) => bytes,
                Err(Errno::AGAIN) => return Ok(Read::Nothing),
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(ReadError::Errno(errno)),
            };
            *read_bytes += bytes as u64;
            match tls.process(&input[..bytes]).map_err(ReadError::Tls)? {
                tls::Processed::Input => {}
                tls::Processed::HandshakeDone => return Ok(Read::HandshakeDone),
                tls::Processed::Output => return Ok(Read::TlsOutput),
            }
        }
    }
}

/// The result of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// This number of bytes for the session.
    Bytes(usize),
    /// Nothing more for now.
    Nothing,
    /// The TLS handshake is done; TLS may have output.
    HandshakeDone,
    /// TLS has output to send.
    TlsOutput,
    /// The peer has closed the connection.
    End,
}

/// An error of a read, after which the connection is unusable.
#[derive(Debug)]
pub enum ReadError {
    /// A system call failed.
    Errno(Errno),
    /// TLS failed, for this reason.
    Tls(String),
}
