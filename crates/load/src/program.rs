//! What devices do: a scenario made ready to run, with every text parsed and every jump known.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::clock::SECOND_NS;
use crate::protocol::{Checks, Message, Protocol};
use crate::schedule::{Profile, Spacing};

/// Deepest nesting of repetitions.
pub const DEEPEST_REPEAT: usize = 4;

/// A whole run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What kinds of devices there are.
    pub kinds: Vec<Kind>,
    /// The names of the steps of all kinds, as they stand in results.
    pub steps: Vec<String>,
    /// When what is begun.
    pub model: Model,
    /// The seed of every choice.
    pub seed: u64,
    /// The instant at which the schedule begins, CLOCK_MONOTONIC. Pools of devices are connected before it.
    pub start_ns: u64,
    /// How long before it.
    pub connect_ns: u64,
    /// How long what is under way may still take when the schedule has ended.
    pub rundown_ns: u64,
}

/// When what is begun.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Model {
    /// Devices that go through their steps again and again, each at its own pace.
    Closed {
        /// Within this time they begin, one after the other.
        ramp_ns: u64,
        /// How long no more begin, and turns are begun anew.
        sustain_ns: u64,
        /// How often each goes through its steps; `None`: until the time is over.
        turns: Option<u64>,
    },
    /// Arrivals, each of which takes a free device through its steps once.
    Open {
        /// Their rate.
        profile: Profile,
        /// How they follow each other.
        spacing: Spacing,
    },
}

impl Model {
    /// How long turns are begun, from the start.
    pub fn length_ns(&self) -> u64 {
        match self {
            Self::Closed { ramp_ns, sustain_ns, .. } => ramp_ns + sustain_ns,
            Self::Open { profile, .. } => profile.ramp_ns + profile.sustain_ns,
        }
    }
}

/// A kind of devices, that all do the same.
#[derive(Debug, Clone)]
pub struct Kind {
    /// Its name.
    pub name: String,
    /// How many there are of it.
    pub devices: u64,
    /// To where they connect.
    pub endpoint: Endpoint,
    /// What they speak there.
    pub protocol: Protocol,
    /// What they do, in their order; [`Op::Next`] at the end.
    pub ops: Vec<Op>,
    /// The first operation of a turn; those before it are done once for each connection.
    pub body: usize,
    /// How long a connection may take.
    pub connect_timeout_ns: u64,
    /// How long an answer may take.
    pub timeout_ns: u64,
    /// How long a device waits after an error before it begins its steps anew.
    pub pause_ns: u64,
}

/// Where devices connect to.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// Its address.
    pub address: SocketAddr,
    /// From where, in turn; none: from wherever the system takes.
    pub sources: Arc<[Source]>,
    /// How TLS is spoken there, if it is.
    pub tls: Option<Tls>,
}

/// An address of this host to connect from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// It.
    pub address: IpAddr,
    /// Ports that devices take there by their number; `None`: the system finds one each time. That takes it a millisecond once
    /// half of them are taken: it tries every other one first, all of them.
    pub ports: Option<RangeInclusive<u16>>,
}

/// How TLS is spoken with an endpoint.
#[derive(Debug, Clone)]
pub struct Tls {
    /// What is trusted and shown.
    pub config: Arc<rustls::ClientConfig>,
    /// The name that the peer's certificate must be for.
    pub name: rustls::pki_types::ServerName<'static>,
}

/// One operation of a device.
#[derive(Debug, Clone)]
pub enum Op {
    /// Connects, if the device is not.
    Connect {
        /// The step's index.
        step: usize,
    },
    /// Sends a message, and waits for its answer if its protocol has one.
    Send {
        /// The step's index.
        step: usize,
        /// What is sent.
        message: Message,
        /// What the answer must be.
        checks: Box<Checks>,
    },
    /// Waits for a message of the peer's. One that came while the [`Op::Send`] right before it was under way will do.
    Expect {
        /// The step's index.
        step: usize,
        /// What it must contain; others pass.
        checks: Box<Checks>,
    },
    /// Waits.
    Sleep(Delay),
    /// Begins a repetition.
    Begin {
        /// Which of the device's counters.
        counter: usize,
    },
    /// Ends a repetition: goes back until it has been done so often.
    Repeat {
        /// Which of the device's counters.
        counter: usize,
        /// How often, at least once.
        times: u32,
        /// The operation behind its [`Op::Begin`].
        back_to: usize,
    },
    /// Closes the connection.
    Close,
    /// The turn is over.
    Next,
}

/// How long a device waits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Delay {
    /// Always as long, give or take a share of it, evenly spread.
    Even {
        /// The middle.
        nanoseconds: u64,
        /// 0.1 is ten percent.
        give_or_take: f64,
    },
    /// As long as between arrivals of a Poisson process.
    Exponential {
        /// The mean.
        nanoseconds: u64,
    },
}

impl Delay {
    /// One such time, in nanoseconds.
    pub fn draw(self, random: &mut impl rand_core::Rng) -> u64 {
        match self {
            Self::Even { nanoseconds, give_or_take: 0.0 } => nanoseconds,
            Self::Even { nanoseconds, give_or_take } => {
                let share = 1.0 + give_or_take * (2.0 * crate::schedule::unit(random) - 1.0);
                (nanoseconds as f64 * share.max(0.0)) as u64
            }
            Self::Exponential { nanoseconds } => {
                (nanoseconds as f64 * crate::schedule::exponential(random)) as u64
            }
        }
    }
}

/// Seconds as nanoseconds.
pub fn seconds_ns(seconds: f64) -> u64 {
    (seconds * SECOND_NS as f64) as u64
}
