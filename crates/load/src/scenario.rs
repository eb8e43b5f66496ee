//! The description of a load: a TOML file, which is parsed into a [`Scenario`] and compiled into a [`Plan`](crate::program::Plan).
//!
//! Parsing reports all faults together, with line and column ([`Faults`]). It reads no files and resolves no host names: a closure supplies
//! the files that a scenario names, and the caller supplies the addresses for compiling. [`ScenarioText`] reads the files. `docs/load-scenarios.md` is the reference, and
//! `docs/load-scenario.schema.json` is the schema for editors; tests compare both with [`keys`].

mod compile;
mod devices;
mod fault;
pub mod keys;
mod quick;
mod reader;
mod steps;
mod table;
mod target;
mod text;
mod units;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use toml::de::DeTable;

pub use compile::SystemTrust;
pub use fault::{Fault, Faults};
pub use quick::QuickLoad;
pub use reader::Files;
pub use target::{SCHEMES, Scheme, Target};
pub use text::ScenarioText;

use crate::clock::SECOND_NS;
use crate::program::{Delay, Model};
use crate::protocol::Checks;
use crate::protocol::mqtt::{MqttConnect, MqttMessage};
use crate::schedule::{Profile, Spacing};
use crate::template::Template;
use reader::{Document, Keys, Value};
use units::MAX_DURATION_NS;

/// Maximum rate of arrivals: more than any host can serve.
const MAX_RATE_PER_S: f64 = 1e7;
/// Default time for finishing pending turns after the end of the schedule.
const RUNDOWN_NS: u64 = 10 * SECOND_NS;
/// Default rate at which the devices of an open load connect. A server with the usual accept queue of 1,024 connections can handle it.
const CONNECTIONS_PER_S: u64 = 2000;

/// A parsed scenario.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// The schedule.
    pub load: Load,
    /// The groups of devices, in the order of the file; at least one.
    pub kinds: Vec<Devices>,
}

/// The schedule of a load.
#[derive(Debug, Clone, PartialEq)]
pub struct Load {
    /// Open or closed, rate and duration.
    pub model: Model,
    /// Time in which the devices of an open load connect before the start.
    pub connect_ns: u64,
    /// Time for finishing pending turns after the end of the schedule.
    pub rundown_ns: u64,
    /// Seed of all random choices.
    pub seed: u64,
}

/// A group of devices with the same steps and settings.
#[derive(Debug, Clone)]
pub struct Devices {
    /// Name of the group.
    pub name: String,
    /// Number of devices.
    pub count: u64,
    /// Where the devices connect to.
    pub target: Target,
    /// The protocol of the devices.
    pub protocol: ProtocolOptions,
    /// TLS options; `None` if the target's scheme does not use TLS.
    pub tls: Option<Tls>,
    /// Addresses of this host to connect from, used in turn; empty: the system's choice.
    pub sources: Vec<IpAddr>,
    /// Timeout for connecting.
    pub connect_timeout_ns: u64,
    /// Timeout for an answer.
    pub timeout_ns: u64,
    /// Pause after an error, before the device restarts.
    pub pause_ns: u64,
    /// Steps after each connect.
    pub on_connect: Vec<Step>,
    /// Steps of a turn.
    pub steps: Vec<Step>,
}

/// A protocol with its options.
#[derive(Debug, Clone)]
pub enum ProtocolOptions {
    /// HTTP/1.1.
    Http {
        /// Header fields of each request.
        fields: Vec<(String, Template)>,
    },
    /// WebSocket.
    WebSocket {
        /// Path with query, beginning with `/`.
        path: Template,
        /// Header fields of the upgrade request.
        fields: Vec<(String, Template)>,
        /// Offered subprotocols in order of preference.
        subprotocols: Vec<String>,
    },
    /// MQTT.
    Mqtt(Box<MqttConnect>),
    /// Frames directly on TCP or TLS.
    Raw(Framing),
}

/// How a stream of bytes is divided into messages, in both directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// No framing: the bytes of one read are a message.
    None,
    /// Messages end with LF, which is appended to sent messages.
    Line,
    /// Messages begin with their length, not counting the prefix. The prefix is added to sent messages.
    Prefix {
        /// 1, 2 or 4.
        bytes: u8,
        /// The byte order.
        is_little_endian: bool,
    },
    /// Received messages have this size; sent messages are not framed.
    Fixed {
        /// At least 1.
        bytes: u32,
    },
}

/// TLS options.
#[derive(Debug, Clone)]
pub struct Tls {
    /// Whether to check the target's certificate.
    pub verify: bool,
    /// Trusted certificates; `None`: the system's.
    pub ca: Option<Pem>,
    /// The devices' own certificate chain, and its private key.
    pub identity: Option<(Pem, Pem)>,
    /// The host name that is sent (SNI) and verified; by default the target's host.
    pub server_name: String,
}

/// A file with certificates or a key.
#[derive(Clone, PartialEq, Eq)]
pub struct Pem {
    /// File name, as in the scenario.
    pub file: String,
    /// Content of the file.
    pub bytes: Vec<u8>,
}

// Hides the content, which may be a private key.
impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pem({:?}, {} bytes)", self.file, self.bytes.len())
    }
}

/// One step.
#[derive(Debug, Clone)]
pub struct Step {
    /// Name in results; steps of the same name are counted together.
    pub name: String,
    /// What the step does.
    pub action: Action,
}

/// What a step does.
#[derive(Debug, Clone)]
pub enum Action {
    /// Connects.
    Connect,
    /// Sends an HTTP request and waits for its reply.
    Request(Box<Request>),
    /// Sends a WebSocket message or a frame.
    Send {
        /// The payload.
        payload: Template,
        /// Whether a WebSocket message is text; otherwise it is binary.
        is_text: bool,
    },
    /// Waits for a message.
    Expect {
        /// What the message must contain.
        checks: Checks,
    },
    /// Publishes, subscribes or unsubscribes over MQTT, and waits for the acknowledgement if there is one.
    Mqtt(Box<MqttMessage>),
    /// Sends a WebSocket or MQTT ping and waits for its answer.
    Ping,
    /// Sleeps.
    Sleep(Delay),
    /// Repeats steps.
    Repeat {
        /// Number of iterations, at least 1.
        times: u32,
        /// The steps.
        steps: Vec<Step>,
    },
    /// Closes the connection.
    Close,
}

/// An HTTP request.
#[derive(Debug, Clone)]
pub struct Request {
    /// GET, POST, ….
    pub method: String,
    /// Path with query, beginning with `/`.
    pub path: Template,
    /// Header fields, in addition to the fields that all requests of the devices have.
    pub fields: Vec<(String, Template)>,
    /// Body.
    pub body: Option<Template>,
    /// Conditions for the reply.
    pub checks: Checks,
}

impl Scenario {
    /// Parses a scenario. `file` is the file name in faults; `files` returns the content of the tables and certificates that the scenario
    /// names.
    pub fn parse(file: &str, text: &str, files: Files<'_>) -> Result<Self, Faults> {
        let document = Document::new(text, files);
        let (root, errors) = DeTable::parse_recoverable(text);
        for error in &errors {
            document.fault(error.span().unwrap_or(text.len()..text.len()), error.message());
        }
        // After syntax errors, further faults would only be consequences.
        let scenario =
            if errors.is_empty() { scenario(&document, root.get_ref(), root.span()) } else { None };
        match (document.faults(file), scenario) {
            (None, Some(scenario)) => Ok(scenario),
            (Some(faults), _) => Err(faults),
            // Cannot happen, because each missing part adds a fault; but an error is better than a panic.
            (None, None) => {
                Err(Faults::new(file, text, vec![(0..0, "the scenario cannot be read".to_owned())]))
            }
        }
    }

    /// Returns the distinct targets of the devices, which must be resolved before compiling.
    pub fn targets(&self) -> Vec<&Target> {
        let mut targets: Vec<&Target> = Vec::new();
        for kind in &self.kinds {
            let is_known = |known: &&Target| known.host == kind.target.host && known.port == kind.target.port;
            if !targets.iter().any(is_known) {
                targets.push(&kind.target);
            }
        }
        targets
    }
}

fn scenario(document: &Document<'_>, table: &DeTable<'_>, at: std::ops::Range<usize>) -> Option<Scenario> {
    let file = Keys::new(document, table, at, &keys::FILE);
    let load = file.require("load", "`[load]`, with `for = \"30s\"` below it");
    let load = load.and_then(|value| value.keys(&keys::LOAD)).and_then(|keys| read_load(&keys));
    let kinds = file.require("devices", "`[devices.NAME]`, with `target` and `steps` below it");
    let is_open = load.as_ref().is_some_and(|(load, _)| matches!(load.model, Model::Open { .. }));
    let turns = load.as_ref().map(|(load, _)| match load.model {
        Model::Closed { turns, .. } => turns,
        Model::Open { .. } => Some(1),
    });
    let kinds = read_kinds(&kinds?, turns, is_open)?;
    let (mut load, connect_within_ns) = load?;
    let count: u64 = kinds.iter().map(|kind| kind.count).sum();
    if is_open {
        load.connect_ns =
            connect_within_ns.unwrap_or((SECOND_NS / 2).max(count * SECOND_NS / CONNECTIONS_PER_S));
    }
    Some(Scenario { load, kinds })
}

/// Parses the load; also returns its `connect_within`, if any.
fn read_load(keys: &Keys<'_>) -> Option<(Load, Option<u64>)> {
    let ramp_ns = keys.get("ramp").map_or(Some(0), |value| value.duration_ns());
    let length = keys.get("for");
    let length_ns = length.as_ref().map(Value::positive_duration_ns);
    let turns = keys.get("turns");
    let connect_within_ns =
        keys.get("connect_within").map_or(Some(None), |value| value.duration_ns().map(Some));
    let rundown_ns = keys.get("rundown").map_or(Some(RUNDOWN_NS), |value| value.duration_ns());
    // The maximum of TOML's integers.
    let seed = keys.get("seed").map_or(Some(1), |value| value.integer(0..=i64::MAX as u64));
    let spacings = [("poisson", Spacing::Poisson), ("fixed", Spacing::Fixed)];
    let spacing = keys.get("spacing").map_or(Some(Spacing::default()), |value| value.choice(&spacings));
    let model = if let Some(rate) = keys.get("rate") {
        keys.refuse("turns", "cannot be combined with `rate`: each arrival is one turn");
        let per_second = rate.positive(MAX_RATE_PER_S);
        keys.require("for", "the duration after the ramp, as in `for = \"30s\"`");
        let profile = Profile { per_second: per_second?, ramp_ns: ramp_ns?, sustain_ns: length_ns?? };
        Model::Open { profile, spacing: spacing? }
    } else {
        for key in ["spacing", "connect_within"] {
            keys.refuse(key, "requires `rate`");
        }
        if length.is_none() && turns.is_none() {
            keys.require(
                "for",
                "the duration after the ramp (`for = \"30s\"`), or `turns`, the number of turns of each device, or both",
            );
            return None;
        }
        let turns = turns.map_or(Some(None), |value| value.integer(1..=i64::MAX as u64).map(Some))?;
        let sustain_ns = length_ns.unwrap_or(Some(MAX_DURATION_NS))?;
        Model::Closed { ramp_ns: ramp_ns?, sustain_ns, turns }
    };
    Some((Load { model, connect_ns: 0, rundown_ns: rundown_ns?, seed: seed? }, connect_within_ns?))
}

fn read_kinds(value: &Value<'_>, turns: Option<Option<u64>>, is_open: bool) -> Option<Vec<Devices>> {
    let entries = value.entries()?;
    if entries.is_empty() {
        value.fault("there are no devices: add `[devices.NAME]`");
    }
    // An arrival takes any free device, so the proportion of several groups would be random.
    if let [_, (at, second), ..] = entries.as_slice()
        && is_open
    {
        let reason = "a load with a `rate` has one kind of devices";
        value.document().fault(at.clone(), format!("`{}` is a second kind: {reason}", second.key));
    }
    let kinds: Vec<_> = entries.iter().map(|(at, kind)| devices::read(at, kind, turns)).collect();
    kinds.into_iter().collect()
}

/// The table of a group of devices, if it has one; shared by all templates of the group.
type SharedTable = Option<Arc<crate::template::Table>>;
