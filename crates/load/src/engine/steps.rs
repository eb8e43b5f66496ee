//! Executes the operations of a device, turn after turn, and records their outcomes.

use rustix::io::Errno;

use super::device::{NEVER_NS, State};
use super::traffic::Event;
use super::{Engine, socket};
use crate::clock::now_ns;
use crate::program::{Kind, Model, Op};
use crate::protocol::{self, Fault, SendOutcome};
use crate::tally::ErrorKind;

/// Maximum number of operations of a device before other devices run.
const MAX_OPS_AT_ONCE: usize = 64;

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

    /// Executes operations until the device has to wait.
    pub(super) fn advance(&mut self, index: u32) {
        let plan = self.plan;
        let at = index as usize;
        let kind = &plan.kinds[self.devices[at].kind as usize];
        for _ in 0..MAX_OPS_AT_ONCE {
            let device = &mut self.devices[at];
            device.state = State::Ready;
            if device.op as usize == kind.body
                && let Some((op, scheduled_ns)) = device.resume.take()
            {
                device.op = op;
                device.scheduled_ns = scheduled_ns;
                self.tally.reconnects += 1;
            }
            // A device of an open model connects in advance, then waits for an arrival.
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
                        self.fail(index, ErrorKind::Closed, || {
                            "closed before the message arrived".to_owned()
                        });
                    }
                    return;
                }
                Op::Send { step, message, checks } => {
                    device.step = *step as u32;
                    if device.fd.is_none() && kind.body > 1 && device.op as usize >= kind.body {
                        // Reconnects and repeats the operations of a new connection, then continues the turn here.
                        device.resume = Some((device.op, device.scheduled_ns));
                        device.op = 0;
                        continue;
                    }
                    if device.fd.is_none() {
                        // The peer has closed the connection after the last answer.
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
                                Err(fault) => return self.fail_with_fault(index, &fault),
                            }
                        }
                    };
                    match sent {
                        Ok(bytes) => self.tally.written_bytes += bytes,
                        Err(errno) => return self.fail_with_errno(index, errno),
                    }
                    if awaited == SendOutcome::Awaited {
                        return;
                    }
                    if !device.unsent.is_empty() {
                        // The step is done when the socket has accepted the whole message, so that a device does not send faster than its
                        // peer reads.
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
                    self.close(index);
                }
                Op::Next => {
                    if !self.next_turn(index, kind) {
                        return;
                    }
                }
            }
        }
        // Let other devices run first.
        self.devices[at].state = State::Yielding;
        self.wake_at(index, now_ns());
    }

    /// Ends a turn. Returns whether the device continues at once.
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

    /// Gives an idle device of an open model the arrival that has waited longest, or marks the device free. Returns whether there was
    /// an arrival.
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

    /// Handles what the session has read.
    pub(super) fn on_received(&mut self, index: u32, event: Event, now: u64) {
        let device = &mut self.devices[index as usize];
        match event {
            Event::Nothing => {}
            Event::Ready => self.on_ready(index, now),
            Event::Answer(answer) => {
                let step = device.step as usize;
                match answer.wrong {
                    Some((kind, text)) => {
                        let tally = self.tally.step(step);
                        tally.errors.record(kind, || text.into_owned());
                        tally.received_bytes += answer.bytes;
                        device.scheduled_ns = now;
                        device.op += 1;
                    }
                    None => self.on_done(index, step, answer.bytes, now),
                }
                if !answer.keeps_alive {
                    self.disconnect(index);
                }
                self.advance(index);
            }
            Event::Message { bytes, is_wanted } => {
                self.tally.messages += 1;
                if is_wanted && !device.is_expecting {
                    device.early.get_or_insert(bytes);
                } else if is_wanted {
                    device.is_expecting = false;
                    let step = device.step as usize;
                    self.on_done(index, step, bytes, now);
                    self.advance(index);
                }
            }
        }
    }

    /// Records a successful step.
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

    /// Records a step that sends a message without an answer. If the next operation waits for a message, its due time is that of this step,
    /// because the user has been waiting since then.
    pub(super) fn on_sent(&mut self, index: u32, step: usize, now: u64) {
        let due_ns = self.devices[index as usize].scheduled_ns;
        self.on_done(index, step, 0, now);
        let device = &mut self.devices[index as usize];
        let next = self.plan.kinds[device.kind as usize].ops.get(device.op as usize);
        if let Some(Op::Expect { .. }) = next {
            device.scheduled_ns = due_ns;
        }
    }

    pub(super) fn fail_with_errno(&mut self, index: u32, errno: Errno) {
        self.fail(index, socket::error_kind(errno), || socket::describe(errno));
    }

    pub(super) fn fail_with_fault(&mut self, index: u32, fault: &Fault) {
        self.fail(index, fault.kind(), || fault.to_string());
    }

    /// Fails the current step: closes the connection, and restarts the device after a pause. Between steps, the end of an idle connection
    /// is not a failure, unless a long-lived session ends with it.
    pub(super) fn fail(&mut self, index: u32, kind: ErrorKind, text: impl FnOnce() -> String) {
        self.disconnect(index);
        let device = &mut self.devices[index as usize];
        let is_failure = match device.state {
            State::Ready | State::Connecting | State::Opening | State::Sending | State::Waiting => true,
            State::Sleeping | State::Yielding | State::Free => device.session.is_long_lived(),
            State::Fresh | State::Pausing | State::Over => false,
        };
        if !is_failure {
            return;
        }
        self.tally.step(device.step as usize).errors.record(kind, text);
        device.resume = None;
        if device.state == State::Free {
            // The device reconnects for its next arrival.
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
