//! I/O between devices and their sockets: connecting, reading, writing, closing.

use std::os::fd::AsFd;

use rustix::event::epoll::{self, EventFlags};

use super::device::{Device, KEPT_BYTES, MAX_REPLY_BYTES, NEVER_NS, Read, ReadError, State};
use super::{Engine, socket, tls};
use crate::clock::now_ns;
use crate::program::{Kind, Op, Plan};
use crate::protocol::{Answer, Checks, Received, missing_part};
use crate::tally::ErrorKind;

/// Maximum number of reads of one socket before other devices run.
const MAX_READS_AT_ONCE: usize = 16;

impl Engine<'_> {
    /// Starts to connect.
    pub(super) fn connect(&mut self, index: u32, kind: &Kind) {
        let device = &mut self.devices[index as usize];
        device.generation = device.generation.wrapping_add(1);
        let now = now_ns();
        device.sent_ns = now;
        device.deadline_ns = now + kind.connect_timeout_ns;
        device.session.reset(&kind.protocol);
        device.early = None;
        match socket::connect(&kind.endpoint, device.number, device.generation) {
            Ok(fd) => {
                let data = u64::from(index) | u64::from(device.generation) << 32;
                let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
                let added = epoll::add(&self.poll, fd.as_fd(), epoll::EventData::new_u64(data), flags);
                device.fd = Some(fd);
                device.state = State::Connecting;
                if let Err(errno) = added {
                    self.fail_with_errno(index, errno);
                }
            }
            Err(errno) => self.fail_with_errno(index, errno),
        }
    }

    /// Handles an event of a socket.
    pub(super) fn on_event(&mut self, index: u32, generation: u32, flags: EventFlags) {
        let Some(device) = self.devices.get_mut(index as usize) else { return };
        if device.generation != generation || device.fd.is_none() {
            return;
        }
        if device.state == State::Connecting {
            if !flags.intersects(EventFlags::OUT | EventFlags::ERR | EventFlags::HUP) {
                return;
            }
            // The same edge-triggered event may also report readable data, so reading follows below.
            self.on_connected(index);
        } else if flags.contains(EventFlags::OUT) {
            self.flush(index, now_ns());
        }
        if flags.intersects(EventFlags::IN | EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR) {
            let is_closed = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
            self.on_readable(index, generation, is_closed);
        }
    }

    fn on_connected(&mut self, index: u32) {
        let device = &mut self.devices[index as usize];
        let Some(fd) = &device.fd else { return };
        match rustix::net::sockopt::socket_error(fd) {
            Ok(Ok(())) => {}
            Ok(Err(errno)) | Err(errno) => return self.fail_with_errno(index, errno),
        }
        self.connected += 1;
        self.tally.connected = self.tally.connected.max(self.connected);
        device.is_counted = true;
        device.state = State::Opening;
        match &self.plan.kinds[device.kind as usize].endpoint.tls {
            None => self.open(index),
            Some(tls) => match tls::Stream::new(tls) {
                Ok(stream) => {
                    device.tls = Some(Box::new(stream));
                    self.output.clear();
                    self.send_output(index, now_ns());
                }
                Err(error) => self.fail(index, ErrorKind::Tls, || crate::tls::describe(&error)),
            },
        }
    }

    /// Opens the session on a connected transport.
    fn open(&mut self, index: u32) {
        let now = now_ns();
        let device = &mut self.devices[index as usize];
        let protocol = &self.plan.kinds[device.kind as usize].protocol;
        self.output.clear();
        let (session, mut values) = device.session_and_values(now);
        match session.open(protocol, &mut values, &mut self.output) {
            Ok(is_ready) => {
                if self.send_output(index, now) && is_ready {
                    self.on_ready(index, now);
                }
            }
            Err(fault) => self.fail_with_fault(index, &fault),
        }
    }

    /// Sends the output buffer and pending TLS output. Returns whether the connection is still open.
    fn send_output(&mut self, index: u32, now: u64) -> bool {
        match self.devices[index as usize].send(&self.output, now) {
            Ok(sent) => {
                self.tally.written_bytes += sent;
                true
            }
            Err(errno) => {
                self.fail_with_errno(index, errno);
                false
            }
        }
    }

    /// Sends unsent bytes and automatic replies. Returns whether the connection is still open.
    fn flush(&mut self, index: u32, now: u64) -> bool {
        let device = &mut self.devices[index as usize];
        if !device.unsent.is_empty() {
            match device.flush(now) {
                Ok(bytes) => self.tally.written_bytes += bytes,
                Err(errno) => {
                    self.fail_with_errno(index, errno);
                    return false;
                }
            }
        }
        if device.reply_bytes > MAX_REPLY_BYTES {
            self.fail(index, ErrorKind::Unsendable, || {
                "the peer keeps sending requests (such as pings) and reads no replies".to_owned()
            });
            return false;
        }
        if device.state == State::Sending && device.unsent.is_empty() {
            let step = device.step as usize;
            self.on_sent(index, step, now);
            self.advance(index);
        }
        true
    }

    /// Continues a device whose session has opened.
    pub(super) fn on_ready(&mut self, index: u32, now: u64) {
        let device = &mut self.devices[index as usize];
        match self.plan.kinds[device.kind as usize].ops.get(device.op as usize) {
            Some(Op::Connect { step }) => {
                let tally = self.tally.step(*step);
                tally.service.record(now - device.sent_ns);
                // Connects before arrivals have no response time, because nobody waits for them.
                if device.is_in_turn {
                    tally.lag.record(device.sent_ns.saturating_sub(device.scheduled_ns));
                    tally.response.record(now.saturating_sub(device.scheduled_ns));
                    device.scheduled_ns = now;
                }
                device.op += 1;
            }
            // This reconnects for a later step, after the peer closed the connection. It is part of that step's response time.
            _ => self.tally.reconnects += 1,
        }
        self.advance(index);
        self.check_keep_alive(index, now);
    }

    /// Sends a keep-alive ping on a connection that has been idle for long enough, and fails the device if the ping is not answered. While
    /// a connection uses keep-alive, its device's timer is always set. Sending does not move the timer; the time of the last write is
    /// considered when the timer fires.
    pub(super) fn check_keep_alive(&mut self, index: u32, now: u64) {
        let device = &mut self.devices[index as usize];
        if device.pong_ns != NEVER_NS && !device.session.awaits_pong() {
            device.pong_ns = NEVER_NS;
        }
        if let Some(due_ns) = device.keep_alive_ns() {
            if device.pong_ns <= now {
                return self.fail(index, ErrorKind::Timeout, || "no answer to a ping in time".to_owned());
            }
            if device.pong_ns == NEVER_NS && due_ns <= now {
                self.output.clear();
                device.session.keep_alive(&mut self.output);
                device.pong_ns = now + self.plan.kinds[device.kind as usize].timeout_ns;
                if !self.send_output(index, now) {
                    return;
                }
            }
        }
        let due_ns = self.devices[index as usize].next_ns();
        if due_ns != NEVER_NS && self.wheel.due_ns(index) != Some(due_ns) {
            self.wheel.set(index, due_ns);
        }
    }

    /// Reads until the socket is empty or other devices must run. A short read means that the socket is empty (epoll(7), question 9),
    /// unless the peer has closed the connection.
    pub(super) fn on_readable(&mut self, index: u32, generation: u32, is_closed: bool) {
        for _ in 0..MAX_READS_AT_ONCE {
            let device = &mut self.devices[index as usize];
            if device.generation != generation || device.fd.is_none() {
                return;
            }
            let held = device.unread.len();
            if held >= self.input.len() / 2 {
                // The protocols limit the size of unread data, and so the size of this buffer.
                self.input = vec![0; self.input.len() * 2].into_boxed_slice();
            }
            self.input[..held].copy_from_slice(&device.unread);
            let room = self.input.len() - held;
            let is_tls = device.tls.is_some();
            let read = match device.read(&mut self.input[held..], &mut self.tally.read_bytes) {
                Ok(read) => read,
                Err(ReadError::Errno(errno)) => return self.fail_with_errno(index, errno),
                Err(ReadError::Tls(text)) => return self.fail(index, ErrorKind::Tls, || text),
            };
            let now = now_ns();
            let bytes = match read {
                Read::Bytes(bytes) => bytes,
                Read::Nothing => return,
                Read::HandshakeDone => {
                    self.open(index);
                    continue;
                }
                Read::TlsOutput => {
                    self.output.clear();
                    self.send_output(index, now);
                    continue;
                }
                Read::End => {
                    device.unread.clear();
                    return self.on_end(index, held, now);
                }
            };
            device.unread.clear();
            device.unread.shrink_to(KEPT_BYTES);
            if device.first_byte_ns == 0 {
                device.first_byte_ns = now;
            }
            if !self.on_bytes(index, generation, held + bytes, now) || !self.flush(index, now) {
                return;
            }
            if bytes < room && !is_closed && !is_tls {
                return;
            }
        }
        if !self.deferred.contains(&(index, generation)) {
            self.deferred.push((index, generation));
        }
    }

    /// Passes the first `length` bytes of the input to the session. Returns whether the connection is still open.
    fn on_bytes(&mut self, index: u32, generation: u32, length: usize, now: u64) -> bool {
        let mut from = 0;
        while from < length {
            let device = &mut self.devices[index as usize];
            if device.generation != generation || device.fd.is_none() {
                return false;
            }
            self.output.clear();
            let checks = checks_of(self.plan, device);
            let expected = expected_of(self.plan, device);
            match device.session.read(&self.input[from..length], checks, &mut self.output) {
                Ok((used, heard)) => {
                    from += used;
                    let event = match heard {
                        Received::Nothing => Event::Nothing,
                        Received::Ready => Event::Ready,
                        Received::Answer(answer) => Event::Answer(answer),
                        Received::Message(payload) => {
                            let message = Event::message(payload, expected);
                            device.session.release_buffer();
                            message
                        }
                    };
                    device.queue_reply(&self.output);
                    if event == Event::Nothing {
                        device.unread.extend_from_slice(&self.input[from..length]);
                        return true;
                    }
                    self.on_received(index, event, now);
                }
                Err(fault) => {
                    // The output contains the reason, for the peer; it need not arrive.
                    self.tally.written_bytes += device.send(&self.output, now).unwrap_or(0);
                    self.fail_with_fault(index, &fault);
                    return false;
                }
            }
        }
        true
    }

    /// Handles the closing of the connection by the peer.
    fn on_end(&mut self, index: u32, held: usize, now: u64) {
        let device = &mut self.devices[index as usize];
        if device.tls.as_ref().is_some_and(|tls| !tls.is_handshake_done()) {
            return self.fail(index, ErrorKind::Tls, || "closed during the TLS handshake".to_owned());
        }
        let checks = checks_of(self.plan, device);
        match device.session.end(&self.input[..held], checks) {
            Ok(Received::Answer(answer)) => self.on_received(index, Event::Answer(answer), now),
            Ok(_) if device.state == State::Sending => {
                self.fail(index, ErrorKind::Closed, || "closed while the message was being sent".to_owned());
            }
            Ok(_) if !device.is_expecting => {
                self.fail(index, ErrorKind::Closed, || "closed while the device was idle".to_owned());
            }
            Ok(_) => self.fail(index, ErrorKind::Closed, || "closed before the message arrived".to_owned()),
            Err(fault) => self.fail_with_fault(index, &fault),
        }
    }

    /// Closes the connection from our side, with the protocol's closing message.
    pub(super) fn close(&mut self, index: u32) {
        let device = &mut self.devices[index as usize];
        if device.is_counted {
            self.output.clear();
            device.session.close(&mut self.output);
            if !self.output.is_empty() {
                // A failure does not matter: the connection ends either way.
                self.tally.written_bytes += device.send(&self.output, now_ns()).unwrap_or(0);
            }
        }
        self.disconnect(index);
    }

    /// Drops the connection, if there is one.
    pub(super) fn disconnect(&mut self, index: u32) {
        let device = &mut self.devices[index as usize];
        if device.fd.take().is_some() {
            device.generation = device.generation.wrapping_add(1);
            device.tls = None;
            device.pong_ns = NEVER_NS;
            device.unread = Vec::new();
            device.unsent = Vec::new();
            device.reply_bytes = 0;
            if std::mem::take(&mut device.is_counted) {
                self.connected -= 1;
            }
        }
    }
}

/// What a session has read: [`Heard`] without borrowing the input.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event {
    Nothing,
    Ready,
    Answer(Answer),
    Message { bytes: u64, is_wanted: bool },
}

impl Event {
    fn message(payload: &[u8], expected: Option<&Checks>) -> Self {
        let is_wanted = expected.is_some_and(|checks| missing_part(checks, payload).is_none());
        Self::Message { bytes: payload.len() as u64, is_wanted }
    }
}

/// Returns the checks of a device's current operation.
fn checks_of<'p>(plan: &'p Plan, device: &Device) -> &'p Checks {
    static NONE: Checks = Checks { statuses: Vec::new(), fields: Vec::new(), body: Vec::new() };
    match plan.kinds[device.kind as usize].ops.get(device.op as usize) {
        Some(Op::Send { checks, .. } | Op::Expect { checks, .. }) => checks,
        _ => &NONE,
    }
}

/// Returns the checks of the message that a device waits for now, or will wait for after the current operation: a broker may deliver a
/// message to its publisher before it acknowledges the publish.
fn expected_of<'p>(plan: &'p Plan, device: &Device) -> Option<&'p Checks> {
    let offset = match device.state {
        State::Waiting if device.is_expecting => 0,
        State::Yielding => 0,
        State::Sending | State::Waiting => 1,
        _ => return None,
    };
    match plan.kinds[device.kind as usize].ops.get(device.op as usize + offset) {
        Some(Op::Expect { checks, .. }) => Some(checks),
        _ => None,
    }
}
