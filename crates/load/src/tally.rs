//! Counters and histograms of a running load, kept per second and thread and added up afterwards. No list of requests is kept.

use serde::{Deserialize, Serialize};

use crate::times::Times;

/// Why a step failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ErrorKind {
    /// Connection refused: nothing listens there.
    Refused,
    /// No route to the host, or none of the addresses can be used.
    Unreachable,
    /// Connecting timed out.
    ConnectTimeout,
    /// No local port or descriptor was left.
    Exhausted,
    /// The TLS handshake failed.
    Tls,
    /// The answer did not come in time.
    Timeout,
    /// The peer reset the connection.
    Reset,
    /// The peer closed the connection before it answered.
    Closed,
    /// The peer violated the protocol.
    Protocol,
    /// The peer answered with an error status or an error reason code.
    Status,
    /// The answer failed a check of the step.
    Check,
    /// No device was free for an arrival, and too many arrivals were waiting.
    Dropped,
    /// A message cannot be sent: the peer does not accept it, or the protocol cannot express it.
    Unsendable,
}

impl ErrorKind {
    /// All kinds, in the order of their discriminants.
    pub const ALL: [Self; 13] = [
        Self::Refused,
        Self::Unreachable,
        Self::ConnectTimeout,
        Self::Exhausted,
        Self::Tls,
        Self::Timeout,
        Self::Reset,
        Self::Closed,
        Self::Protocol,
        Self::Status,
        Self::Check,
        Self::Dropped,
        Self::Unsendable,
    ];

    /// Returns the name used in results. It never changes once released.
    pub fn text(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
            Self::ConnectTimeout => "connect_timeout",
            Self::Exhausted => "exhausted",
            Self::Tls => "tls",
            Self::Timeout => "timeout",
            Self::Reset => "reset",
            Self::Closed => "closed",
            Self::Protocol => "protocol",
            Self::Status => "status",
            Self::Check => "check",
            Self::Dropped => "dropped",
            Self::Unsendable => "unsendable",
        }
    }
}

/// Errors of a step: the number of each kind, and the text of the first error of that kind.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Errors {
    counts: [u64; ErrorKind::ALL.len()],
    first: [Option<Box<str>>; ErrorKind::ALL.len()],
}

impl Errors {
    /// Counts an error; `text` is called for the first of its kind only.
    pub fn record(&mut self, kind: ErrorKind, text: impl FnOnce() -> String) {
        let index = kind as usize;
        self.counts[index] += 1;
        self.first[index].get_or_insert_with(|| text().into());
    }

    /// Adds the errors of another tally.
    pub fn add(&mut self, other: &Self) {
        for index in 0..self.counts.len() {
            self.counts[index] += other.counts[index];
            if self.first[index].is_none() {
                self.first[index].clone_from(&other.first[index]);
            }
        }
    }

    /// Returns the total number of errors.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the kinds that occurred, each with its count and the text of its first error.
    pub fn iter(&self) -> impl Iterator<Item = (ErrorKind, u64, &str)> {
        ErrorKind::ALL.into_iter().filter_map(|kind| {
            let count = self.counts[kind as usize];
            (count > 0).then(|| (kind, count, self.first[kind as usize].as_deref().unwrap_or_default()))
        })
    }
}

/// The tally of one step.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StepTally {
    /// From the due time of the schedule until the message was sent.
    pub lag: Times,
    /// From sending until the end of the answer: the time that the target took.
    pub service: Times,
    /// From the due time until the end of the answer: the time that a user waits.
    pub response: Times,
    /// From sending until the first byte of the answer.
    pub first_byte: Times,
    /// Errors.
    pub errors: Errors,
    /// Bytes received in bodies or payloads.
    pub received_bytes: u64,
}

impl StepTally {
    /// Adds the tally of another thread or second.
    pub fn add(&mut self, other: &Self) {
        self.lag.add(&other.lag);
        self.service.add(&other.service);
        self.response.add(&other.response);
        self.first_byte.add(&other.first_byte);
        self.errors.add(&other.errors);
        self.received_bytes += other.received_bytes;
    }

    /// Returns the number of correct answers.
    pub fn done(&self) -> u64 {
        self.service.count()
    }
}

/// The counts of one thread in an interval, usually a second.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    /// Indexed by step; steps without events may be missing.
    pub steps: Vec<Option<Box<StepTally>>>,
    /// How late the generator served timers and arrivals that were due. This lag is caused by the generator, never by the target.
    pub own_lag: Times,
    /// Arrivals that were due by the schedule.
    pub asked: u64,
    /// Maximum number of devices connected at the same time.
    pub connected: u64,
    /// Arrivals waiting for a free device at the end of the interval.
    pub waiting: u64,
    /// Received messages that were not answers.
    pub messages: u64,
    /// Reconnects within a turn, after the peer had closed the connection.
    pub reconnects: u64,
    /// Devices and arrivals that were still waiting when the run ended.
    pub unfinished: u64,
    /// CPU time of the thread, in nanoseconds.
    pub cpu_ns: u64,
    /// The longest time for which the thread did not run although it had work, in nanoseconds.
    pub stall_ns: u64,
    /// Bytes read from sockets.
    pub read_bytes: u64,
    /// Bytes written to sockets.
    pub written_bytes: u64,
}

impl Tally {
    /// Creates an empty tally for this number of steps.
    pub fn new(steps: usize) -> Self {
        Self { steps: vec![None; steps], ..Self::default() }
    }

    /// Returns the tally of a step, which is created on first use.
    pub fn step(&mut self, step: usize) -> &mut StepTally {
        if step >= self.steps.len() {
            self.steps.resize(step + 1, None);
        }
        self.steps[step].get_or_insert_default()
    }

    /// Adds the tally of another thread or interval. Gauges are summed, which is correct for threads but not for intervals of one thread.
    pub fn add(&mut self, other: &Self) {
        for (index, step) in other.steps.iter().enumerate() {
            if let Some(step) = step {
                self.step(index).add(step);
            }
        }
        self.own_lag.add(&other.own_lag);
        self.asked += other.asked;
        self.connected += other.connected;
        self.waiting += other.waiting;
        self.messages += other.messages;
        self.reconnects += other.reconnects;
        self.unfinished += other.unfinished;
        self.cpu_ns += other.cpu_ns;
        self.stall_ns = self.stall_ns.max(other.stall_ns);
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
    }

    /// Returns the number of correct answers.
    pub fn done(&self) -> u64 {
        self.steps.iter().flatten().map(|step| step.done()).sum()
    }

    /// Returns the number of errors.
    pub fn errors(&self) -> u64 {
        self.steps.iter().flatten().map(|step| step.errors.total()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tallies_of_threads_add_up() {
        let mut one = Tally::new(2);
        one.step(0).service.record(1_000_000);
        one.step(0).errors.record(ErrorKind::Reset, || "first".to_owned());
        let mut other = Tally::new(2);
        other.step(0).service.record(3_000_000);
        other.step(0).errors.record(ErrorKind::Reset, || "second".to_owned());
        other.step(1).errors.record(ErrorKind::Check, || "body".to_owned());
        one.add(&other);
        assert_eq!((one.done(), one.errors()), (2, 3));
        let errors: Vec<_> = one.step(0).errors.iter().collect();
        assert_eq!(errors, [(ErrorKind::Reset, 2, "first")]);
    }

    #[test]
    fn a_tally_survives_serialization() {
        let mut tally = Tally::new(3);
        for nanoseconds in [0, 300, 1_000_000, 3_000_000_000] {
            tally.step(1).service.record(nanoseconds);
            tally.own_lag.record(nanoseconds / 3);
        }
        tally.step(1).errors.record(ErrorKind::Timeout, || "no answer in time".to_owned());
        tally.asked = 7;
        let text = serde_json::to_string(&tally).unwrap();
        let read: Tally = serde_json::from_str(&text).unwrap();
        assert_eq!(read, tally);
        assert!(serde_json::from_str::<Tally>(&text.replace("HIST", "!!ST")).is_err());
    }

    #[test]
    fn all_contains_every_kind_in_the_order_of_discriminants() {
        for (index, kind) in ErrorKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, index);
        }
    }
}
