//! What a load did: the result of one run of a generator, ours or another one's.
//!
//! Times are of three kinds, which no other generator tells apart: *lag* (from when something was due by the schedule until it
//! was sent), *service* (from the sending to the end of the answer) and *response* (from when it was due to the end of
//! the answer, which is what a user waits). What a tool cannot know is missing, not zero.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The present version of [`LoadResult`]'s JSON.
pub const LOAD_RESULT_VERSION: u32 = 1;

/// The result of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoadResult {
    /// [`LOAD_RESULT_VERSION`] of what wrote it.
    pub version: u32,
    /// The generator and its version: `beamtune 0.1.0`, `k6 1.8.1`.
    pub tool: String,
    /// Where the load went, as it was given; empty where the tool does not tell.
    pub targets: Vec<String>,
    /// When the schedule began: seconds since 1970.
    pub began_unix_s: Option<f64>,
    /// The same on the generating host's CLOCK_MONOTONIC.
    pub began_monotonic_ns: Option<u64>,
    /// How long it ran by its schedule.
    pub length_s: f64,
    /// What was asked for.
    pub asked: Asked,
    /// The seed of the schedule and of every choice.
    pub seed: Option<u64>,
    /// Whether it was ended before its time.
    pub is_interrupted: bool,
    /// What is known of the generator itself.
    pub generator: Generator,
    /// What was under way at the end and was not waited for; it could have become anything.
    pub unfinished: u64,
    /// What passed over its connections; `None` where the tool does not tell all of it.
    pub traffic: Option<Traffic>,
    /// Steps in the order of the scenario.
    pub steps: Vec<LoadStep>,
    /// Second by second.
    pub seconds: Vec<LoadSecond>,
    /// What has to be known to read the numbers: what the tool cannot know, what was left out.
    pub remarks: Vec<String>,
}

/// What was asked of the generator.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "model", rename_all = "snake_case")]
pub enum Asked {
    /// Arrivals at a rate, whatever the target does.
    Open {
        /// In a second, when it is level.
        per_second: f64,
        /// Devices, or connections, that serve them.
        devices: u64,
    },
    /// Devices that wait for an answer before they go on.
    Closed {
        /// How many.
        devices: u64,
    },
    /// The tool does not say.
    Unknown,
}

/// What is known of the generator itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Generator {
    /// Its processes; 0: the tool does not tell.
    pub processes: u32,
    /// Its threads, of all processes; 0: the tool does not tell.
    pub threads: u32,
    /// CPU time that it used, in seconds.
    pub cpu_s: Option<f64>,
    /// How late it looked at what had become due; `None` where the tool does not tell it from the target's slowness.
    pub own_lag: Option<Latency>,
    /// In how many seconds it was itself the limit.
    pub bound_seconds: u32,
    /// The seconds that were judged.
    pub judged_seconds: u32,
}

/// What passed over the connections of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Bytes written to sockets, those of TLS and of what opens a session among them.
    pub sent_bytes: u64,
    /// Bytes read from sockets.
    pub received_bytes: u64,
    /// Messages that came without being the answer to something.
    pub messages: u64,
    /// Connections made anew in the middle of a turn, because the peer had closed.
    pub reconnects: u64,
}

/// One step of a scenario.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoadStep {
    /// Its name.
    pub name: String,
    /// Whether it only connects; it counts among no rates then.
    pub is_connect: bool,
    /// Whether it only sends, and other steps are what comes of it; it counts among no rates then.
    #[serde(default)]
    pub is_send: bool,
    /// Right answers.
    pub done: u64,
    /// What went wrong: by kind, how often and what the first one said.
    pub errors: BTreeMap<String, LoadErrors>,
    /// Bytes of bodies or payloads that came.
    pub received_bytes: Option<u64>,
    /// From when it was due until it was sent.
    pub lag: Option<Latency>,
    /// From the sending until the answer's end.
    pub service: Option<Latency>,
    /// From when it was due until the answer's end.
    pub response: Option<Latency>,
    /// From the sending until the first byte of the answer.
    pub first_byte: Option<Latency>,
}

/// Errors of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadErrors {
    /// How many.
    pub count: u64,
    /// What the first one said.
    pub first: String,
}

/// How long something took.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// How many were measured.
    pub count: u64,
    /// The shortest.
    pub min_ns: Option<u64>,
    /// The mean.
    pub mean_ns: Option<f64>,
    /// Percentiles by their name, `p50`, `p99`, `p99.9`; those that the tool gives, and of which there are enough values.
    pub percentiles_ns: BTreeMap<String, u64>,
    /// The longest.
    pub max_ns: Option<u64>,
    /// All of it as a compressed HdrHistogram (V2) of nanoseconds, in base64.
    pub histogram: Option<String>,
}

impl LoadResult {
    /// A result of this generator of which nothing is known yet.
    pub fn blank(tool: &str) -> Self {
        LoadResult {
            version: LOAD_RESULT_VERSION,
            tool: tool.to_owned(),
            targets: Vec::new(),
            began_unix_s: None,
            began_monotonic_ns: None,
            length_s: 0.0,
            asked: Asked::Unknown,
            seed: None,
            is_interrupted: false,
            generator: Generator::default(),
            unfinished: 0,
            traffic: None,
            steps: Vec::new(),
            seconds: Vec::new(),
            remarks: Vec::new(),
        }
    }

    /// Right answers of all steps that count.
    pub fn done(&self) -> u64 {
        self.steps.iter().filter(|step| step.counts()).map(|step| step.done).sum()
    }

    /// All that went wrong.
    pub fn errors(&self) -> u64 {
        self.steps.iter().flat_map(|step| step.errors.values()).map(|errors| errors.count).sum()
    }
}

impl LoadStep {
    /// Whether it counts in rates, and its times in those of a second: it neither connects nor only sends.
    pub fn counts(&self) -> bool {
        !self.is_connect && !self.is_send
    }
}

impl Latency {
    /// The percentile of that name, in nanoseconds.
    pub fn percentile_ns(&self, name: &str) -> Option<u64> {
        self.percentiles_ns.get(name).copied()
    }
}

/// One second of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoadSecond {
    /// Its number, from the beginning of the schedule; negative while connections were made before it.
    pub second: i64,
    /// Arrivals that were due; `None` where there is no schedule that is known.
    pub asked: Option<u64>,
    /// Right answers of the steps that count.
    pub done: u64,
    /// What went wrong.
    pub errors: u64,
    /// Connections that stood at the same time, at most, where the tool tells.
    pub connected: Option<u64>,
    /// Arrivals that waited for a free device at its end, where the tool tells.
    pub waiting: Option<u64>,
    /// Of the responses of all steps but connecting, in nanoseconds.
    pub p50_ns: Option<u64>,
    /// As above.
    pub p99_ns: Option<u64>,
    /// CPU that the generator used, in cores, where the tool tells.
    pub cores: Option<f64>,
    /// Why the generator itself was the limit; `None`: it was not.
    pub bound: Option<String>,
}

impl LoadSecond {
    /// A second of which nothing is known but how much was done and went wrong in it.
    pub fn counted(second: i64, done: u64, errors: u64) -> Self {
        LoadSecond {
            second,
            asked: None,
            done,
            errors,
            connected: None,
            waiting: None,
            p50_ns: None,
            p99_ns: None,
            cores: None,
            bound: None,
        }
    }
}
