//! Load results: the outcome of one run of a load generator, beamtune's own or another one.
//!
//! Three kinds of times are distinguished, which no other generator does:
//!
//! - *lag*, from the scheduled time until the request is sent;
//! - *service*, from sending until the end of the response;
//! - *response*, from the scheduled time until the end of the response, which is how long a user waits.
//!
//! Values that a tool cannot know are missing, not zero.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Current version of the JSON format of [`LoadResult`].
pub const LOAD_RESULT_VERSION: u32 = 1;

/// The result of one run of a load generator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoadResult {
    /// [`LOAD_RESULT_VERSION`] of the writer.
    pub version: u32,
    /// The generator and its version: `beamtune 0.1.0`, `k6 1.8.1`.
    pub tool: String,
    /// Targets as given; empty if the tool does not report them.
    pub targets: Vec<String>,
    /// Start of the schedule, in seconds since 1970.
    pub began_unix_s: Option<f64>,
    /// Start of the schedule on CLOCK_MONOTONIC of the generating host.
    pub began_monotonic_ns: Option<u64>,
    /// Scheduled length.
    pub length_s: f64,
    /// The requested load.
    #[serde(rename = "asked")]
    pub model: LoadModel,
    /// Seed of the schedule and of all random choices.
    pub seed: Option<u64>,
    /// Whether the run was stopped early.
    pub is_interrupted: bool,
    /// Data of the generator itself.
    pub generator: Generator,
    /// Number of requests in flight at the end whose responses were not awaited; their outcome is unknown.
    pub unfinished: u64,
    /// Traffic over the connections of the run; `None` if the tool does not report all of it.
    pub traffic: Option<Traffic>,
    /// Steps in the order of the scenario.
    pub steps: Vec<LoadStep>,
    /// The run second by second.
    pub seconds: Vec<LoadSecond>,
    /// Caveats about the numbers: what the tool cannot know, and what was left out.
    pub remarks: Vec<String>,
}

/// The load requested from the generator.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "model", rename_all = "snake_case")]
pub enum LoadModel {
    /// Open: arrivals at a rate, independent of the target.
    Open {
        /// Arrivals per second once the rate is constant.
        per_second: f64,
        /// Number of devices or connections that serve the arrivals.
        devices: u64,
    },
    /// Closed: each device waits for a response before it sends the next request.
    Closed {
        /// Number of devices.
        devices: u64,
    },
    /// Not reported by the tool.
    Unknown,
}

/// Data of the generator itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Generator {
    /// Number of processes; 0 if the tool does not report it.
    pub processes: u32,
    /// Number of threads in all processes; 0 if the tool does not report it.
    pub threads: u32,
    /// CPU time used, in seconds.
    pub cpu_s: Option<f64>,
    /// The generator's own lag: its delay in handling due arrivals. `None` if the tool cannot separate it from slowness of the target.
    pub own_lag: Option<Latency>,
    /// Number of seconds in which the generator was the bottleneck.
    pub bound_seconds: u32,
    /// Number of seconds that were checked for this.
    pub judged_seconds: u32,
}

/// Traffic over the connections of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Bytes written to sockets, including TLS and session setup.
    pub sent_bytes: u64,
    /// Bytes read from sockets.
    pub received_bytes: u64,
    /// Received messages that were not responses.
    pub messages: u64,
    /// Reconnects within one pass of a scenario, because the peer had closed the connection.
    pub reconnects: u64,
}

/// One step of a scenario.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoadStep {
    /// Name.
    pub name: String,
    /// Whether the step only connects; rates exclude such steps.
    pub is_connect: bool,
    /// Whether the step only sends and other steps measure the effects; rates exclude such steps.
    #[serde(default)]
    pub is_send: bool,
    /// Number of correct responses.
    pub done: u64,
    /// Errors by kind.
    pub errors: BTreeMap<String, LoadErrors>,
    /// Bytes of received bodies or payloads.
    pub received_bytes: Option<u64>,
    /// From the scheduled time until the request was sent.
    pub lag: Option<Latency>,
    /// From sending until the end of the response.
    pub service: Option<Latency>,
    /// From the scheduled time until the end of the response.
    pub response: Option<Latency>,
    /// From sending until the first byte of the response.
    pub first_byte: Option<Latency>,
}

/// Errors of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadErrors {
    /// Number of errors.
    pub count: u64,
    /// Text of the first error.
    pub first: String,
}

/// Distribution of a duration.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Number of values.
    pub count: u64,
    /// Minimum.
    pub min_ns: Option<u64>,
    /// Mean.
    pub mean_ns: Option<f64>,
    /// Percentiles by name (`p50`, `p99`, `p99.9`) that the tool reports and for which there are enough values.
    pub percentiles_ns: BTreeMap<String, u64>,
    /// Maximum.
    pub max_ns: Option<u64>,
    /// All values as a compressed HdrHistogram (V2) of nanoseconds, in base64.
    pub histogram: Option<String>,
}

impl LoadResult {
    /// Creates an empty result for a generator.
    pub fn blank(tool: &str) -> Self {
        LoadResult {
            version: LOAD_RESULT_VERSION,
            tool: tool.to_owned(),
            targets: Vec::new(),
            began_unix_s: None,
            began_monotonic_ns: None,
            length_s: 0.0,
            model: LoadModel::Unknown,
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

    /// Number of correct responses in all steps that are included in rates.
    pub fn done(&self) -> u64 {
        self.steps.iter().filter(|step| step.is_counted()).map(|step| step.done).sum()
    }

    /// Number of errors in all steps.
    pub fn errors(&self) -> u64 {
        self.steps.iter().flat_map(|step| step.errors.values()).map(|errors| errors.count).sum()
    }
}

impl LoadStep {
    /// Whether the step is included in rates and in the times per second, because it does more than connect or send.
    pub fn is_counted(&self) -> bool {
        !self.is_connect && !self.is_send
    }
}

impl Latency {
    /// The percentile of this name, in nanoseconds.
    pub fn percentile_ns(&self, name: &str) -> Option<u64> {
        self.percentiles_ns.get(name).copied()
    }
}

/// One second of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoadSecond {
    /// Number of the second since the start of the schedule; negative while connecting before it.
    pub second: i64,
    /// Arrivals due; `None` if the schedule is unknown.
    #[serde(rename = "asked")]
    pub due: Option<u64>,
    /// Correct responses in the steps that are included in rates.
    pub done: u64,
    /// Errors.
    pub errors: u64,
    /// Maximum number of concurrent connections, if reported.
    pub connected: Option<u64>,
    /// Arrivals waiting for a free device at the end of the second, if reported.
    pub waiting: Option<u64>,
    /// Median response time of all steps except connecting, in nanoseconds.
    pub p50_ns: Option<u64>,
    /// 99th percentile of these response times.
    pub p99_ns: Option<u64>,
    /// CPU use of the generator in cores, if reported.
    pub cores: Option<f64>,
    /// Why the generator was the bottleneck; `None` if it was not.
    pub bound: Option<String>,
}

impl LoadSecond {
    /// Creates a second that has only counts.
    pub fn counted(second: i64, done: u64, errors: u64) -> Self {
        LoadSecond {
            second,
            due: None,
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
