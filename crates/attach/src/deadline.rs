//! Deadlines, and socket reads and writes that end at a deadline.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Maximum time for one address if there are others to try. TCP retransmits a lost SYN after 1 s and 3 s.
const MAX_ADDRESS_TIME: Duration = Duration::from_secs(4);

/// A deadline and the duration that it was created with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    at: Instant,
    /// The original duration, for error messages.
    pub given: Duration,
}

impl Deadline {
    pub fn after(given: Duration) -> Deadline {
        Deadline::at(Instant::now() + given)
    }

    pub fn at(at: Instant) -> Deadline {
        Deadline { at, given: at.saturating_duration_since(Instant::now()) }
    }

    /// Returns the time left, but at least 1 ms: sockets interpret zero as "no limit".
    pub fn left(self) -> Duration {
        self.at.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
    }

    pub fn is_before(self, instant: Instant) -> bool {
        self.at < instant
    }

    pub fn passed(self) -> bool {
        Instant::now() >= self.at
    }

    /// Returns the earlier of this deadline and `time` from now.
    pub fn at_most(self, time: Duration) -> Deadline {
        Deadline { at: self.at.min(Instant::now() + time), given: self.given.min(time) }
    }

    /// Returns the deadline for one address if `others` more are still to be tried. Each gets an equal share of the time left, up
    /// to [`MAX_ADDRESS_TIME`].
    pub fn before_others(self, others: usize) -> Deadline {
        match u32::try_from(others) {
            Ok(others @ 1..) => self.at_most((self.left() / (others + 1)).min(MAX_ADDRESS_TIME)),
            _ => self,
        }
    }
}

/// A socket whose reads and writes end at the deadline.
#[derive(Debug)]
pub(crate) struct Timed<'s> {
    pub socket: &'s TcpStream,
    pub deadline: Deadline,
}

impl Timed<'_> {
    /// Retries an operation that was interrupted by a signal. The kernel does not restart it on a socket with a timeout.
    fn retry<T>(&mut self, mut operation: impl FnMut(&mut Self) -> io::Result<T>) -> io::Result<T> {
        loop {
            match operation(self) {
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
        self.retry(|timed| {
            timed.socket.set_read_timeout(Some(timed.deadline.left()))?;
            timed.socket.read(into)
        })
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.retry(|timed| {
            timed.socket.set_write_timeout(Some(timed.deadline.left()))?;
            timed.socket.write(bytes)
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns whether the error is a timeout.
pub(crate) fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_gets_an_equal_share_of_the_time() {
        let check = |given: u64, others: usize, share: u64| {
            let share = Duration::from_secs(share);
            let before = Instant::now();
            let deadline = Deadline::after(Duration::from_secs(given)).before_others(others);
            let (min, max) = (before + share, Instant::now() + share);
            assert!(min <= deadline.at && deadline.at <= max, "{given} s before {others} others");
        };
        check(20, 0, 20);
        check(20, 1, 4);
        check(6, 1, 3);
        check(6, 2, 2);
    }
}
