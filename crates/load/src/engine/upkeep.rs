//! What a connection needs beside its device's steps: pings, acknowledgements, a good-bye.

use rustix::io::Errno;

use super::Engine;
use super::device::{NEVER_NS, State};
use crate::clock::now_ns;
use crate::tally::ErrorKind;

impl Engine<'_> {
    /// Pings on a connection on which nothing has been sent for long, and gives it up when that is not answered. A
    /// connection that needs this always has its device's timer set; what is sent meanwhile does not touch that, but is
    /// taken into account when it rings.
    pub(super) fn look_after(&mut self, index: u32, now: u64) {
        let device = &mut self.devices[index as usize];
        if device.pong_ns != NEVER_NS && !device.session.awaits_pong() {
            device.pong_ns = NEVER_NS;
        }
        let Some(due_ns) = device.keep_alive_ns() else { return };
        if device.pong_ns <= now {
            return self.fail(index, ErrorKind::Timeout, || "no answer to a ping in time".to_owned());
        }
        if device.pong_ns == NEVER_NS && due_ns <= now {
            self.output.clear();
            device.session.keep_alive(&mut self.output);
            device.pong_ns = now + self.plan.kinds[device.kind as usize].timeout_ns;
            if let Err(errno) = self.send_output(index, now) {
                return self.fail_by(index, errno);
            }
        }
        let due_ns = self.devices[index as usize].next_ns();
        if self.wheel.due_ns(index) != Some(due_ns) {
            self.wheel.set(index, due_ns);
        }
    }

    /// Sends what was written to the output, if anything.
    pub(super) fn send_output(&mut self, index: u32, now: u64) -> Result<(), Errno> {
        if !self.output.is_empty() {
            self.tally.written_bytes += self.devices[index as usize].send(&self.output, now)?;
        }
        Ok(())
    }

    /// The socket takes more: sends what it did not take before; whether the connection goes on.
    pub(super) fn on_writable(&mut self, index: u32) -> bool {
        let now = now_ns();
        if !self.flush(index, now) {
            return false;
        }
        let device = &self.devices[index as usize];
        if device.state == State::Sending && device.unsent.is_empty() {
            self.on_done(index, device.step as usize, 0, now);
            self.go_on(index);
        }
        true
    }

    /// Sends what the socket did not take before, and what the session has written while it read; whether the connection
    /// goes on.
    pub(super) fn flush(&mut self, index: u32, now: u64) -> bool {
        let device = &mut self.devices[index as usize];
        if device.unsent.is_empty() {
            return true;
        }
        device.written_ns = now;
        match device.flush() {
            Ok(bytes) => self.tally.written_bytes += bytes,
            Err(errno) => {
                self.fail_by(index, errno);
                return false;
            }
        }
        true
    }

    /// Closes a connection by our own will, which some peers want to be told.
    pub(super) fn close(&mut self, index: u32) {
        let device = &mut self.devices[index as usize];
        if device.is_counted {
            self.output.clear();
            device.session.close(&mut self.output);
            // If it does not go out, the connection is gone, or the peer takes nothing; it ends either way.
            let _ = self.send_output(index, now_ns());
        }
        self.disconnect(index);
    }
}
