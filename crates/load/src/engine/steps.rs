//! What a device does: one operation after the other, turn after turn, and what comes of each.

use rustix::io::Errno;

use super::device::{NEVER_NS, State};
use super::traffic::Spoken;
use super::{Engine, socket};
use crate::clock::now_ns;
use crate::program::{Kind, Model, Op};
use crate::protocol::{self, Fault, Sent};
use crate::tally::ErrorKind;

/// Operations that a device does before others have their turn.
const OPS_AT_ONCE: usize = 64;

impl Engine<'_> {
    pub(super) fn begin_turn(&mut self, index: u32, due_ns: u64) {
        let kind = &self.plan.kinds[self.devices[index as usize].kind as usize];
        let device = &mut self.devices[index as usize];
        device.scheduled_ns = due_ns;
        device.op = if device.fd.is_some() { kind.body as u32 } else { 0 };
        if matches!(self.plan.model, Model::Open { .. }) {
            self.active += 1;
        }
        device.is_in_turn = true;
    }

    /// Does one operation after the other until the device has to wait.
    pub(super) fn go_on(&mut self, index: u32) {
        let plan = self.plan;
        let at = index as usize;
        let kind = &plan.kinds[self.devices[at].kind as usize];
        for _ in 0..OPS_AT_ONCE {
            let device = &mut self.devices[at];
            device.state = State::Ready;
            if device.op as usize == kind.body
                && let Some((op, scheduled_ns)) = device.resume.take()
            {
                device.op = op;
                device.scheduled_ns = scheduled_ns;
                self.tally.reconnects += 1;
            }
            // A device of an open model connects, and then waits for an arrival.
            if !device.is_in_turn && device.op as usize >= kind.body && !self.take_waiting(index) {
                return;
            }
            let device = &mut self.devices[at];
            let Some(op) = kind.ops.get(device.op as usize) else { return };
            match op {
                Op::Connect { step } => {
                    if device.fd.is_none() {
                        device.step = *step as u32;
                        self.connect(index, kind);
                        return;
                    }
                    device.op += 1;
                }
                Op::Expect { step, .. } => {
                    device.step = *step as u32;
                    let now = now_ns();
                    device.sent_ns = now;
                    device.first_byte_ns = 0;
                    device.deadline_ns = now + kind.timeout_ns;
                    if let Some(bytes) = device.early.take() {
                        self.on_done(index, *step, bytes, now);
                        continue;
                    }
                    device.is_expecting = true;
                    device.state = State::Waiting;
                    if device.fd.is_none() {
                        self.fail(index, ErrorKind::Closed, || "closed before the message came".to_owned());
                    }
                    return;
                }
                Op::Send { step, message, checks } => {
                    device.step = *step as u32;
                    if device.fd.is_none() && kind.body > 1 && device.op as usize >= kind.body {
                        // What was done once for the connection is done again, then the turn goes on.
                        device.resume = Some((device.op, device.scheduled_ns));
                        device.op = 0;
                        continue;
                    }
                    if device.fd.is_none() {
                        // The peer has closed it after the answer before.
                        self.connect(index, kind);
                        return;
                    }
                    let now = now_ns();
                    device.sent_ns = now;
                    device.first_byte_ns = 0;
                    device.deadline_ns = now + kind.timeout_ns;
                    device.state = State::Waiting;
                    device.early = None;
                    let (sent, awaited) = match protocol::fixed(&mut device.session, message, checks) {
                        Some((bytes, awaited)) => (device.send(bytes, now), awaited),
                        None => {
                            self.output.clear();
                            let (session, mut values) = device.session_and_values(now);
                            let awaited = session.send(
                                message,
                                checks,
                                &mut values,
                                &mut self.scratch,
                                &mut self.output,
                            );
                            match awaited {
                                Ok(awaited) => (device.send(&self.output, now), awaited),
                                Err(fault) => return self.fail_for(index, &fault),
                            }
                        }
                    };
                    match sent {
                        Ok(bytes) => self.tally.written_bytes += bytes,
                        Err(errno) => return self.fail_by(index, errno),
                    }
                    if awaited == Sent::Awaited {
                        return;
                    }
                    if !device.unsent.is_empty() {
                        // Not sent until the socket has taken it: a device is no faster than its peer.
                        device.state = State::Sending;
                        return;
                    }
                    self.on_sent(index, *step, now);
                }
                Op::Sleep(delay) => {
                    let due_ns = device.scheduled_ns + delay.draw(&mut device.random);
                    device.op += 1;
                    device.state = State::Sleeping;
                    self.wake_at(index, due_ns);
                    return;
                }
                Op::Begin { counter } => {
                    device.loops[*counter] = 0;
                    device.op += 1;
                }
                Op::Repeat { counter, times, back_to } => {
                    device.loops[*counter] += 1;
                    device.op = if device.loops[*counter] < *times { *back_to as u32 } else { device.op + 1 };
                }
                Op::Close => {
                    device.op += 1;
                    self.leave(index);
                }
                Op::Next => {
                    if !self.next_turn(index, kind) {
                        return;
                    }
                }
            }
        }
        // Others have their turn before it goes on.
        self.devices[at].state = State::Yielding;
        self.wake_at(index, now_ns());
    }

    /// The turn is over; whether the device goes on at once.
    fn next_turn(&mut self, index: u32, kind: &Kind) -> bool {
        let device = &mut self.devices[index as usize];
        device.turn += 1;
        match self.plan.model {
            Model::Closed { turns, .. } => {
                let is_last =
                    turns.is_some_and(|turns| device.turn >= turns) || device.scheduled_ns >= self.end_ns;
                if is_last {
                    device.is_in_turn = false;
                    device.state = State::Over;
                    self.active -= 1;
                    return false;
                }
                device.op = if device.fd.is_some() { kind.body as u32 } else { 0 };
                true
            }
            Model::Open { .. } => {
                device.is_in_turn = false;
                self.active -= 1;
                self.take_waiting(index)
            }
        }
    }

    /// A device of an open model has nothing to do: it takes the arrival that has waited longest, or is free.
    fn take_waiting(&mut self, index: u32) -> bool {
        match self.waiting.pop_front() {
            Some(due_ns) => {
                self.begin_turn(index, due_ns);
                true
            }
            None => {
                self.devices[index as usize].state = State::Free;
                self.free.push_back(index);
                false
            }
        }
    }

    pub(super) fn on_heard(&mut self, index: u32, heard: Spoken, now: u64) {
        let device = &mut self.devices[index as usize];
        match heard {
            Spoken::Nothing => {}
            Spoken::Ready => self.on_ready(index, now),
            Spoken::Answer(answer) => {
                let step = device.step as usize;
                match answer.wrong {
                    Some((kind, words)) => {
                        let tally = self.tally.step(step);
                        tally.errors.record(kind, || words.into_owned());
                        tally.received_bytes += answer.bytes;
                        device.scheduled_ns = now;
                        device.op += 1;
                    }
                    None => self.on_done(index, step, answer.bytes, now),
                }
                if !answer.keeps_alive {
                    self.disconnect(index);
                }
                self.go_on(index);
            }
            Spoken::Message { bytes, is_wanted } => {
                self.tally.messages += 1;
                if is_wanted && !device.is_expecting {
                    device.early.get_or_insert(bytes);
                } else if is_wanted {
                    device.is_expecting = false;
                    let step = device.step as usize;
                    self.on_done(index, step, bytes, now);
                    self.go_on(index);
                }
            }
        }
    }

    /// A step has done what it should.
    pub(super) fn on_done(&mut self, index: u32, step: usize, bytes: u64, now: u64) {
        let device = &mut self.devices[index as usize];
        let tally = self.tally.step(step);
        tally.lag.record(device.sent_ns.saturating_sub(device.scheduled_ns));
        tally.service.record(now.saturating_sub(device.sent_ns));
        tally.response.record(now.saturating_sub(device.scheduled_ns));
        if device.first_byte_ns != 0 {
            tally.first_byte.record(device.first_byte_ns.saturating_sub(device.sent_ns));
        }
        tally.received_bytes += bytes;
        device.scheduled_ns = now;
        device.op += 1;
    }

    /// A step has sent what nothing answers. What waits for something right behind it was due with it: its user waits
    /// from then on.
    pub(super) fn on_sent(&mut self, index: u32, step: usize, now: u64) {
        let due_ns = self.devices[index as usize].scheduled_ns;
        self.on_done(index, step, 0, now);
        let device = &mut self.devices[index as usize];
        let next = self.plan.kinds[device.kind as usize].ops.get(device.op as usize);
        if let Some(Op::Expect { .. }) = next {
            device.scheduled_ns = due_ns;
        }
    }

    pub(super) fn fail_by(&mut self, index: u32, errno: Errno) {
        self.fail(index, socket::kind_of(errno), || socket::words_of(errno));
    }

    pub(super) fn fail_for(&mut self, index: u32, fault: &Fault) {
        self.fail(index, fault.kind(), || fault.to_string());
    }

    /// The step that is under way has failed: the connection is given up, and the device begins anew after a pause. With
    /// nothing under way it is no failure that a peer ends an idle connection, unless a session has gone with it.
    pub(super) fn fail(&mut self, index: u32, kind: ErrorKind, say: impl FnOnce() -> String) {
        self.disconnect(index);
        let device = &mut self.devices[index as usize];
        let is_failure = match device.state {
            State::Ready | State::Connecting | State::Opening | State::Sending | State::Waiting => true,
            State::Sleeping | State::Yielding | State::Free => device.session.is_lasting(),
            State::Fresh | State::Pausing | State::Over => false,
        };
        if !is_failure {
            return;
        }
        self.tally.step(device.step as usize).errors.record(kind, say);
        device.resume = None;
        if device.state == State::Free {
            // It connects anew with the arrival that it is taken for.
            return;
        }
        device.is_expecting = false;
        let pause_ns = self.plan.kinds[device.kind as usize].pause_ns;
        device.op = 0;
        let was_in_turn =
            std::mem::replace(&mut device.is_in_turn, matches!(self.plan.model, Model::Closed { .. }));
        let now = now_ns();
        if was_in_turn && matches!(self.plan.model, Model::Open { .. }) {
            self.active -= 1;
        }
        if device.is_in_turn {
            device.turn += 1;
            let is_last =
                matches!(self.plan.model, Model::Closed { turns: Some(turns), .. } if device.turn >= turns);
            if is_last || now + pause_ns >= self.end_ns {
                device.is_in_turn = false;
                device.state = State::Over;
                device.wake_ns = NEVER_NS;
                self.active -= 1;
                return;
            }
        }
        device.state = State::Pausing;
        self.wake_at(index, now + pause_ns);
    }
}
