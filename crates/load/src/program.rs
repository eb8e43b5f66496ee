//! The compiled scenario: all texts parsed, all jumps resolved.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::clock::SECOND_NS;
use crate::protocol::{Checks, Message, Protocol};
use crate::schedule::{Profile, Spacing};

/// Maximum nesting of loops.
pub const MAX_NESTED_REPEATS: usize = 4;

/// The plan of a whole run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The kinds of devices.
    pub kinds: Vec<Kind>,
    /// The names of the steps of all kinds, as in results.
    pub steps: Vec<String>,
    /// What starts a turn.
    pub model: Model,
    /// Seed of all random choices.
    pub seed: u64,
    /// Start of the schedule, CLOCK_MONOTONIC. The devices of an open model connect before it.
    pub start_ns: u64,
    /// Time for connecting before the start.
    pub connect_ns: u64,
    /// Time for finishing pending turns after the end of the schedule.
    pub rundown_ns: u64,
}

/// What starts a turn: one pass of a device through its steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Model {
    /// Each device repeats its steps at its own pace.
    Closed {
        /// The devices start one after the other within this time.
        ramp_ns: u64,
        /// Time after the ramp in which devices start turns.
        sustain_ns: u64,
        /// Turns per device; `None`: until the time is over.
        turns: Option<u64>,
    },
    /// Each arrival makes a free device run its steps once.
    Open {
        /// The rate of arrivals.
        profile: Profile,
        /// The time between arrivals.
        spacing: Spacing,
    },
}

impl Model {
    /// Returns the time, from the start, during which turns may start.
    pub fn length_ns(&self) -> u64 {
        match self {
            Self::Closed { ramp_ns, sustain_ns, .. } => ramp_ns + sustain_ns,
            Self::Open { profile, .. } => profile.ramp_ns + profile.sustain_ns,
        }
    }
}

/// A group of devices with the same steps and settings.
#[derive(Debug, Clone)]
pub struct Kind {
    /// Name of the group.
    pub name: String,
    /// Number of devices.
    pub devices: u64,
    /// Where the devices connect to.
    pub endpoint: Endpoint,
    /// The protocol that the devices speak.
    pub protocol: Protocol,
    /// The operations of the devices in order; the last one is [`Op::Next`].
    pub ops: Vec<Op>,
    /// Index of the first operation of a turn. The operations before it run once per connection.
    pub body: usize,
    /// Timeout for connecting.
    pub connect_timeout_ns: u64,
    /// Timeout for an answer.
    pub timeout_ns: u64,
    /// Pause after an error, before the device starts over.
    pub pause_ns: u64,
}

/// Where devices connect to.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// Address of the target.
    pub address: SocketAddr,
    /// Source addresses, used in turn; empty: the system's choice.
    pub sources: Arc<[Source]>,
    /// TLS settings; `None`: no TLS.
    pub tls: Option<Tls>,
}

/// An address of this host to connect from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The address.
    pub address: IpAddr,
    /// Ports that are assigned to devices by number. With `None`, the system chooses. Once half of the ports are in use, that takes a
    /// millisecond per connection, because the kernel first tries only every second port.
    pub ports: Option<RangeInclusive<u16>>,
}

/// TLS settings of an endpoint.
#[derive(Debug, Clone)]
pub struct Tls {
    /// Trusted certificates, and the client's own certificate.
    pub config: Arc<rustls::ClientConfig>,
    /// The name for which the peer's certificate must be valid.
    pub name: rustls::pki_types::ServerName<'static>,
}

/// One operation of a device.
#[derive(Debug, Clone)]
pub enum Op {
    /// Connects, if the device is not connected.
    Connect {
        /// Index of the step.
        step: usize,
    },
    /// Sends a message, and waits for the answer if the message has one.
    Send {
        /// Index of the step.
        step: usize,
        /// The message.
        message: Message,
        /// Conditions for the answer.
        checks: Box<Checks>,
    },
    /// Waits for a message from the peer. A message that arrived during the directly preceding [`Op::Send`] is accepted.
    Expect {
        /// Index of the step.
        step: usize,
        /// What the message must contain; other messages are ignored.
        checks: Box<Checks>,
    },
    /// Sleeps.
    Sleep(Delay),
    /// Begins a loop.
    Begin {
        /// Index of the device's loop counter.
        counter: usize,
    },
    /// Ends a loop: jumps back until the loop has run the given number of times.
    Repeat {
        /// Index of the device's loop counter.
        counter: usize,
        /// Number of iterations, at least 1.
        times: u32,
        /// Index of the operation after its [`Op::Begin`].
        back_to: usize,
    },
    /// Closes the connection.
    Close,
    /// Ends the turn.
    Next,
}

/// How long a device waits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Delay {
    /// Uniformly distributed around a mean.
    Uniform {
        /// The mean.
        nanoseconds: u64,
        /// Maximum deviation as a share of the mean: 0.1 is ten percent.
        jitter: f64,
    },
    /// Exponentially distributed, as between arrivals of a Poisson process.
    Exponential {
        /// The mean.
        nanoseconds: u64,
    },
}

impl Delay {
    /// Draws a delay, in nanoseconds.
    pub fn draw(self, random: &mut impl rand_core::Rng) -> u64 {
        match self {
            Self::Uniform { nanoseconds, jitter: 0.0 } => nanoseconds,
            Self::Uniform { nanoseconds, jitter } => {
                let factor = 1.0 + jitter * (2.0 * crate::schedule::unit(random) - 1.0);
                (nanoseconds as f64 * factor.max(0.0)) as u64
            }
            Self::Exponential { nanoseconds } => {
                (nanoseconds as f64 * crate::schedule::exponential(random)) as u64
            }
        }
    }
}

/// Converts seconds to nanoseconds.
pub fn seconds_ns(seconds: f64) -> u64 {
    (seconds * SECOND_NS as f64) as u64
}
