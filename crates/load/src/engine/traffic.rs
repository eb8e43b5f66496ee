//! What passes between a device and its socket: connecting, reading, writing, closing.

use std::os::fd::AsFd;

use rustix::event::epoll::{self, EventFlags};

use super::device::{Device, Read, ReadTrouble, State};
use super::{Engine, socket, tls};
use crate::clock::now_ns;
use crate::program::{Kind, Op, Plan};
use crate::protocol::{Answer, Checks, Heard, Session, missing_part};
use crate::tally::ErrorKind;

impl Engine<'_> {
    /// Begins to connect.
    pub(super) fn connect(&mut self, index: u32, kind: &Kind) {
        let device = &mut self.devices[index as usize];
        device.generation = device.generation.wrapping_add(1);
        let now = now_ns();
        device.sent_ns = now;
        device.deadline_ns = now + kind.connect_timeout_ns;
        device.session = Session::new(&kind.protocol);
        match socket::connect(&kind.endpoint, device.number) {
            Ok(fd) => {
                let data = u64::from(index) | u64::from(device.generation) << 32;
                let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
                let added = epoll::add(&self.poll, fd.as_fd(), epoll::EventData::new_u64(data), flags);
                device.fd = Some(fd);
                device.state = State::Connecting;
                if let Err(errno) = added {
                    self.fail_by(index, errno);
                }
            }
            Err(errno) => self.fail_by(index, errno),
        }
    }

    /// Something has happened to a socket.
    pub(super) fn on_event(&mut self, index: u32, generation: u32, flags: EventFlags) {
        let Some(device) = self.devices.get_mut(index as usize) else { return };
        if device.generation != generation || device.fd.is_none() {
            return;
        }
        if device.state == State::Connecting {
            if flags.intersects(EventFlags::OUT | EventFlags::ERR | EventFlags::HUP) {
                self.on_connected(index);
            }
            return;
        }
        if flags.contains(EventFlags::OUT) && !device.unsent.is_empty() {
            match device.flush() {
                Ok(bytes) => self.tally.written_bytes += bytes,
                Err(errno) => return self.fail_by(index, errno),
            }
            if device.unsent.is_empty() && device.state == State::Sending {
                let step = device.step as usize;
                self.on_done(index, step, 0, now_ns());
                self.go_on(index);
            }
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
            Ok(Err(errno)) | Err(errno) => return self.fail_by(index, errno),
        }
        self.connected += 1;
        device.is_counted = true;
        device.state = State::Opening;
        match &self.plan.kinds[device.kind as usize].endpoint.tls {
            None => self.open(index),
            Some(tls) => match tls::Stream::new(tls) {
                Ok(stream) => {
                    device.tls = Some(Box::new(stream));
                    self.write(index, &[]);
                }
                Err(error) => self.fail(index, ErrorKind::Tls, || error.to_string()),
            },
        }
    }

    /// The transport is there: opens the session.
    fn open(&mut self, index: u32) {
        let now = now_ns();
        let device = &mut self.devices[index as usize];
        let protocol = &self.plan.kinds[device.kind as usize].protocol;
        let mut output = std::mem::take(&mut self.output);
        output.clear();
        let (session, mut values) = device.session_and_values(now);
        let is_ready = session.open(protocol, &mut values, &mut output);
        let is_written = self.write(index, &output);
        self.output = output;
        if is_ready && is_written {
            self.on_ready(index, now);
        }
    }

    /// Writes to a device's socket; whether the connection still stands.
    fn write(&mut self, index: u32, bytes: &[u8]) -> bool {
        let device = &mut self.devices[index as usize];
        if bytes.is_empty() && device.tls.is_none() {
            return true;
        }
        match device.send(bytes) {
            Ok(sent) => self.tally.written_bytes += sent,
            Err(errno) => {
                self.fail_by(index, errno);
                return false;
            }
        }
        true
    }

    /// The connection stands, and so does the session on it.
    pub(super) fn on_ready(&mut self, index: u32, now: u64) {
        let device = &mut self.devices[index as usize];
        match self.plan.kinds[device.kind as usize].ops.get(device.op as usize) {
            Some(Op::Connect { step }) => {
                let tally = self.tally.step(*step);
                tally.service.record(now - device.sent_ns);
                // In advance of an open model's arrivals nobody waits for it.
                if device.is_in_turn {
                    tally.lag.record(device.sent_ns.saturating_sub(device.scheduled_ns));
                    tally.response.record(now.saturating_sub(device.scheduled_ns));
                    device.scheduled_ns = now;
                }
                device.op += 1;
            }
            // For a step behind it, since the peer had closed: part of that step's response.
            _ => self.tally.reconnects += 1,
        }
        self.go_on(index);
    }

    /// Reads until nothing more is there. Once less comes than was asked for, there is no more (epoll(7), question 9),
    /// unless the peer has closed.
    fn on_readable(&mut self, index: u32, generation: u32, is_closed: bool) {
        loop {
            let device = &mut self.devices[index as usize];
            if device.generation != generation || device.fd.is_none() {
                return;
            }
            let held = device.unread.len();
            if held >= self.input.len() / 2 {
                // Protocols bound what they hold; this follows them.
                self.input = vec![0; self.input.len() * 2].into_boxed_slice();
            }
            self.input[..held].copy_from_slice(&device.unread);
            let room = self.input.len() - held;
            let is_tls = device.tls.is_some();
            let read = match device.read(&mut self.input[held..], &mut self.tally.read_bytes) {
                Ok(read) => read,
                Err(ReadTrouble::Errno(errno)) => return self.fail_by(index, errno),
                Err(ReadTrouble::Tls(words)) => return self.fail(index, ErrorKind::Tls, || words),
            };
            let now = now_ns();
            let bytes = match read {
                Read::Bytes(bytes) => bytes,
                Read::Nothing => return,
                Read::Secured => {
                    // What TLS had to say goes out before what the session says.
                    if self.write(index, &[]) {
                        self.open(index);
                    }
                    continue;
                }
                Read::Said => {
                    self.write(index, &[]);
                    continue;
                }
                Read::End => {
                    device.unread.clear();
                    return self.on_end(index, held, now);
                }
            };
            device.unread.clear();
            if device.first_byte_ns == 0 {
                device.first_byte_ns = now;
            }
            if !self.on_bytes(index, generation, held + bytes, now) {
                return;
            }
            if bytes < room && !is_closed && !is_tls {
                return;
            }
        }
    }

    /// Reads the first `length` bytes of the input; whether the connection goes on.
    fn on_bytes(&mut self, index: u32, generation: u32, length: usize, now: u64) -> bool {
        let mut from = 0;
        while from < length {
            let device = &mut self.devices[index as usize];
            if device.generation != generation || device.fd.is_none() {
                return false;
            }
            self.output.clear();
            let checks = checks_of(self.plan, device);
            match device.session.read(&self.input[from..length], checks, &mut self.output) {
                Ok((used, heard)) => {
                    from += used;
                    let heard = match heard {
                        Heard::Nothing => Spoken::Nothing,
                        Heard::Ready => Spoken::Ready,
                        Heard::Answer(answer) => Spoken::Answer(answer),
                        Heard::Message(payload) => {
                            let message = Spoken::message(payload, checks);
                            device.session.forget();
                            message
                        }
                    };
                    if !self.output.is_empty() {
                        match device.send(&self.output) {
                            Ok(bytes) => self.tally.written_bytes += bytes,
                            Err(errno) => {
                                self.fail_by(index, errno);
                                return false;
                            }
                        }
                    }
                    let device = &mut self.devices[index as usize];
                    if heard == Spoken::Nothing {
                        device.unread.extend_from_slice(&self.input[from..length]);
                        return true;
                    }
                    self.on_heard(index, heard, now);
                }
                Err(fault) => {
                    // The last word need not arrive.
                    self.tally.written_bytes += device.send(&self.output).unwrap_or(0);
                    self.fail(index, fault.kind(), || fault.to_string());
                    return false;
                }
            }
        }
        true
    }

    /// The peer has closed.
    fn on_end(&mut self, index: u32, held: usize, now: u64) {
        let device = &mut self.devices[index as usize];
        let checks = checks_of(self.plan, device);
        match device.session.end(&self.input[..held], checks) {
            Ok(Heard::Answer(answer)) => self.on_heard(index, Spoken::Answer(answer), now),
            Ok(_) if device.state == State::Sending => {
                self.fail(index, ErrorKind::Closed, || "closed before it took the message".to_owned());
            }
            // Nothing was under way: what comes next connects anew.
            Ok(_) if !device.is_expecting => self.disconnect(index),
            Ok(_) => self.fail(index, ErrorKind::Closed, || "closed before the message came".to_owned()),
            Err(fault) => self.fail(index, ErrorKind::Closed, || fault.to_string()),
        }
    }

    /// Gives up the connection, if there is one.
    pub(super) fn disconnect(&mut self, index: u32) {
        let device = &mut self.devices[index as usize];
        if device.fd.take().is_some() {
            device.generation = device.generation.wrapping_add(1);
            device.unread = Vec::new();
            device.tls = None;
            device.unsent = Vec::new();
            if std::mem::take(&mut device.is_counted) {
                self.connected -= 1;
            }
        }
    }
}

/// What was heard, without what it was read from.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Spoken {
    Nothing,
    Ready,
    Answer(Answer),
    Message { bytes: u64, is_wanted: bool },
}

impl Spoken {
    fn message(payload: &[u8], checks: &Checks) -> Self {
        let is_wanted = missing_part(checks, payload).is_none();
        Self::Message { bytes: payload.len() as u64, is_wanted }
    }
}

/// The checks of the operation that a device is at.
fn checks_of<'p>(plan: &'p Plan, device: &Device) -> &'p Checks {
    static NONE: Checks = Checks { statuses: Vec::new(), fields: Vec::new(), body: Vec::new() };
    match plan.kinds[device.kind as usize].ops.get(device.op as usize) {
        Some(Op::Send { checks, .. } | Op::Expect { checks, .. }) => checks,
        _ => &NONE,
    }
}
