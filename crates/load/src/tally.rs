//! What is counted while the load runs: per second and thread, added up afterwards, never a list of requests.

use serde::{Deserialize, Serialize};

use crate::times::Times;

/// Why a step did not do what it should.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ErrorKind {
    /// Nothing listens there.
    Refused,
    /// There is no way there, or none of the addresses can be used.
    Unreachable,
    /// The connection was not made in time.
    ConnectTimeout,
    /// No local port or descriptor was left.
    Exhausted,
    /// TLS was not agreed upon.
    Tls,
    /// The answer did not come in time.
    Timeout,
    /// The peer ended the connection hard.
    Reset,
    /// The peer closed the connection before it had answered.
    Closed,
    /// The peer does not speak the protocol.
    Protocol,
    /// The peer refused, in the words of its protocol: a status, a reason code.
    Status,
    /// The answer is not what the step checks for.
    Check,
    /// No device was free for an arrival, and too many waited already.
    Dropped,
    /// What was to be sent cannot be: the peer does not take it, or no protocol has words for it.
    Unsendable,
}

impl ErrorKind {
    /// All of them.
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

    /// The name in results; never changed once released.
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

/// Errors of a step: how many of each kind, and what the first one of it said.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Errors {
    counts: [u64; ErrorKind::ALL.len()],
    first: [Option<Box<str>>; ErrorKind::ALL.len()],
}

impl Errors {
    /// Counts one; `say` is asked for the first of its kind only.
    pub fn record(&mut self, kind: ErrorKind, say: impl FnOnce() -> String) {
        let index = kind as usize;
        self.counts[index] += 1;
        self.first[index].get_or_insert_with(|| say().into());
    }

    /// Counts those of another one.
    pub fn add(&mut self, other: &Self) {
        for index in 0..self.counts.len() {
            self.counts[index] += other.counts[index];
            if self.first[index].is_none() {
                self.first[index].clone_from(&other.first[index]);
            }
        }
    }

    /// All together.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Those that there were: kind, count and the first one's words.
    pub fn iter(&self) -> impl Iterator<Item = (ErrorKind, u64, &str)> {
        ErrorKind::ALL.into_iter().filter_map(|kind| {
            let count = self.counts[kind as usize];
            (count > 0).then(|| (kind, count, self.first[kind as usize].as_deref().unwrap_or_default()))
        })
    }
}

/// What was counted of one step.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StepTally {
    /// From when it was to be sent by the schedule until it was sent.
    pub lag: Times,
    /// From when it was sent until all of the answer had come: what the target took.
    pub service: Times,
    /// From when it was to be sent until all of the answer had come: what its user waits.
    pub response: Times,
    /// From when it was sent until the first byte of the answer.
    pub first_byte: Times,
    /// What went wrong.
    pub errors: Errors,
    /// Bytes of bodies or payloads that came.
    pub received_bytes: u64,
}

impl StepTally {
    /// Counts those of another one.
    pub fn add(&mut self, other: &Self) {
        self.lag.add(&other.lag);
        self.service.add(&other.service);
        self.response.add(&other.response);
        self.first_byte.add(&other.first_byte);
        self.errors.add(&other.errors);
        self.received_bytes += other.received_bytes;
    }

    /// Answers that came and were right.
    pub fn done(&self) -> u64 {
        self.service.count()
    }
}

/// What one thread counted in a span, usually a second.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    /// By the step's index; steps that nothing happened to may be missing.
    pub steps: Vec<Option<Box<StepTally>>>,
    /// How late the generator itself was with what had become due: its own fault, whatever the target did.
    pub own_lag: Times,
    /// Arrivals that were due by the schedule.
    pub asked: u64,
    /// Devices connected at the same time, at most.
    pub connected: u64,
    /// Arrivals that wait for a free device at the end.
    pub waiting: u64,
    /// Messages that came without being the answer to something.
    pub messages: u64,
    /// Connections made anew in the middle of a turn, because the peer had closed.
    pub reconnects: u64,
    /// Devices that waited for something when the run ended.
    pub unfinished: u64,
    /// CPU time of the thread, in nanoseconds.
    pub cpu_ns: u64,
    /// The longest time that the thread did not come round to its devices, beyond what it meant to wait.
    pub stall_ns: u64,
    /// Bytes read from sockets.
    pub read_bytes: u64,
    /// Bytes written to sockets.
    pub written_bytes: u64,
}

impl Tally {
    /// For so many steps.
    pub fn new(steps: usize) -> Self {
        Self { steps: vec![None; steps], ..Self::default() }
    }

    /// The tally of a step, made if nothing happened to it before.
    pub fn step(&mut self, step: usize) -> &mut StepTally {
        if step >= self.steps.len() {
            self.steps.resize(step + 1, None);
        }
        self.steps[step].get_or_insert_default()
    }

    /// Counts those of another thread in the same span, or of another span. Gauges are added: for spans of one thread, take
    /// the last one's.
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

    /// Answers that came and were right.
    pub fn done(&self) -> u64 {
        self.steps.iter().flatten().map(|step| step.done()).sum()
    }

    /// What went wrong.
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
    fn a_tally_is_the_same_behind_a_pipe() {
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
    fn every_kind_of_error_stands_at_its_place() {
        for (index, kind) in ErrorKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, index);
        }
    }
}
