//! Instants until which something must have happened, and sockets that keep to them.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// An address gets no longer than this while there is another one to try. A lost packet is sent again after 1 s and 3 s.
const OTHER_ADDRESS_AFTER: Duration = Duration::from_secs(4);

/// An instant until which something must have happened, and how much time was given for it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    at: Instant,
    /// For messages.
    pub given: Duration,
}

impl Deadline {
    pub fn after(given: Duration) -> Deadline {
        Deadline::at(Instant::now() + given)
    }

    pub fn at(at: Instant) -> Deadline {
        Deadline { at, given: at.saturating_duration_since(Instant::now()) }
    }

    /// The time left; never zero, which sockets take for "no limit".
    pub fn left(self) -> Duration {
        self.at.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
    }

    pub fn is_before(self, instant: Instant) -> bool {
        self.at < instant
    }

    pub fn passed(self) -> bool {
        Instant::now() >= self.at
    }

    /// This deadline, or an earlier one for a part of the work.
    pub fn at_most(self, time: Duration) -> Deadline {
        Deadline { at: self.at.min(Instant::now() + time), given: self.given.min(time) }
    }

    /// The deadline for an address while so many others are still to be tried: each gets its share of the time.
    pub fn before_others(self, others: usize) -> Deadline {
        match u32::try_from(others) {
            Ok(others @ 1..) => self.at_most((self.left() / (others + 1)).min(OTHER_ADDRESS_AFTER)),
            _ => self,
        }
    }
}

/// A socket, each read and write of which ends with the deadline.
#[derive(Debug)]
pub(crate) struct Timed<'s> {
    pub socket: &'s TcpStream,
    pub deadline: Deadline,
}

impl Timed<'_> {
    /// Does something again if a signal came between: a socket with a time limit does not do that by itself.
    fn again<T>(&mut self, mut act: impl FnMut(&mut Self) -> io::Result<T>) -> io::Result<T> {
        loop {
            match act(self) {
                Err(error) if error.kind() == ErrorKind::Interrupted && !self.deadline.passed() => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {
                    return Err(ErrorKind::TimedOut.into());
                }
                other => return other,
            }
        }
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.again(|timed| {
            timed.socket.set_read_timeout(Some(timed.deadline.left()))?;
            timed.socket.read(into)
        })
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.again(|timed| {
            timed.socket.set_write_timeout(Some(timed.deadline.left()))?;
            timed.socket.write(bytes)
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Whether nothing has gone wrong but the time.
pub(crate) fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_gets_its_share_of_the_time() {
        let check = |given: u64, others: usize, share: u64| {
            let share = Duration::from_secs(share);
            let before = Instant::now();
            let deadline = Deadline::after(Duration::from_secs(given)).before_others(others);
            let (least, most) = (before + share, Instant::now() + share);
            assert!(least <= deadline.at && deadline.at <= most, "{given} s before {others} others");
        };
        check(20, 0, 20);
        check(20, 1, 4);
        check(6, 1, 3);
        check(6, 2, 2);
    }
}
