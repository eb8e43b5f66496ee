//! What people write to say which load they want: one TOML file, read into a [`Scenario`] and compiled into a
//! [`Plan`](crate::program::Plan).
//!
//! Reading says everything that is wrong at once, each with its line and column ([`Faults`]). It touches no file and asks no
//! name server: files that a scenario names are given by a closure, and addresses when it is compiled. The reference is
//! `docs/load-scenarios.md`, the schema for editors `docs/load-scenario.schema.json`; both are held against [`keys`].

mod compile;
mod devices;
mod fault;
pub mod keys;
mod quick;
mod reader;
mod steps;
mod table;
mod target;
mod units;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use toml::de::DeTable;

pub use compile::SystemTrust;
pub use fault::{Fault, Faults};
pub use quick::Quick;
pub use reader::Files;
pub use target::{SCHEMES, Scheme, Target};

use crate::clock::SECOND_NS;
use crate::program::{Delay, Model};
use crate::protocol::Checks;
use crate::protocol::mqtt::{MqttConnect, MqttMessage};
use crate::schedule::{Profile, Spacing};
use crate::template::Template;
use reader::{Book, Keys, Value};
use units::LONGEST_NS;

/// Most arrivals in a second that may be asked for: beyond any machine's.
const MOST_PER_SECOND: f64 = 1e7;
/// How long what is under way may still take, unless a scenario says so.
const RUNDOWN_NS: u64 = 10 * SECOND_NS;
/// Connections in a second while an open load's devices are connected, unless a scenario says in which time: what servers
/// with a usual queue of 1,024 connections to be accepted bear.
const CONNECTIONS_PER_SECOND: u64 = 2000;

/// A load, as it was written down.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// When what is begun.
    pub load: Load,
    /// The kinds of devices, in the order of the file; at least one.
    pub kinds: Vec<Devices>,
}

/// When what is begun.
#[derive(Debug, Clone, PartialEq)]
pub struct Load {
    /// Open or closed, how fast and how long.
    pub model: Model,
    /// The time in which an open load's devices are connected before it begins.
    pub connect_ns: u64,
    /// How long what is under way may still take when the schedule has ended.
    pub rundown_ns: u64,
    /// The seed of every choice.
    pub seed: u64,
}

/// A kind of devices, that all do the same.
#[derive(Debug, Clone)]
pub struct Devices {
    /// Its name.
    pub name: String,
    /// How many there are.
    pub count: u64,
    /// To where they connect.
    pub target: Target,
    /// What they speak there.
    pub speech: Speech,
    /// What lies below, if the target's scheme is one over TLS.
    pub tls: Option<Tls>,
    /// Addresses of this host to connect from, in turn; none: whichever the system takes.
    pub sources: Vec<IpAddr>,
    /// How long a connection may take.
    pub connect_timeout_ns: u64,
    /// How long an answer may take.
    pub timeout_ns: u64,
    /// How long a device waits after an error before it begins its steps anew.
    pub pause_ns: u64,
    /// What is done after each connecting.
    pub on_connect: Vec<Step>,
    /// What is done in each turn.
    pub steps: Vec<Step>,
}

/// A protocol with its options.
#[derive(Debug, Clone)]
pub enum Speech {
    /// HTTP/1.1.
    Http {
        /// Fields of the head of each request.
        fields: Vec<(String, Template)>,
    },
    /// WebSocket.
    WebSocket {
        /// The path with its query, beginning with `/`.
        path: Template,
        /// Fields of the head of the request that opens it.
        fields: Vec<(String, Template)>,
        /// Subprotocols that are offered, the best first.
        subprotocols: Vec<String>,
    },
    /// MQTT.
    Mqtt(Box<MqttConnect>),
    /// Bytes.
    Raw(Framing),
}

/// How messages are told apart in a stream of bytes, in both directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// Not at all: what one read gives is a message.
    None,
    /// Each ends with LF, which is put behind what is sent.
    Line,
    /// Each begins with its length, without that of the prefix. It is put in front of what is sent.
    Prefix {
        /// 1, 2 or 4.
        bytes: u8,
        /// The byte order.
        is_little_endian: bool,
    },
    /// Each that comes has so many bytes. What is sent is sent as it is.
    Fixed {
        /// At least 1.
        bytes: u32,
    },
}

/// What to trust, and to be trusted by.
#[derive(Debug, Clone)]
pub struct Tls {
    /// Whether the target's certificate is looked at.
    pub verify: bool,
    /// Certificates of those who may vouch for the target, PEM; none: those that the system trusts.
    pub ca: Option<Pem>,
    /// The devices' own certificate with those that vouch for it, and its key.
    pub identity: Option<(Pem, Pem)>,
    /// The name that is asked for and checked; the target's host, unless given.
    pub server_name: String,
}

/// A file with certificates or a key.
#[derive(Clone, PartialEq, Eq)]
pub struct Pem {
    /// Its name, as the scenario has it.
    pub file: String,
    /// Its content.
    pub bytes: Vec<u8>,
}

// It may hold a private key.
impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pem({:?}, {} bytes)", self.file, self.bytes.len())
    }
}

/// One step.
#[derive(Debug, Clone)]
pub struct Step {
    /// Its name in results; those of the same name are counted together.
    pub name: String,
    /// What is done.
    pub action: Action,
}

/// What a step does.
#[derive(Debug, Clone)]
pub enum Action {
    /// Connects.
    Connect,
    /// Sends a request of HTTP, and waits for its reply.
    Request(Box<Request>),
    /// Sends a message over WebSocket, or bytes.
    Send {
        /// What is sent.
        payload: Template,
        /// WebSocket: whether it is sent as text or as binary.
        is_text: bool,
    },
    /// Waits for a message.
    Expect {
        /// What it must contain.
        checks: Checks,
    },
    /// Publishes over MQTT, subscribes or ends subscriptions; waits until it is confirmed, if it is.
    Mqtt(Box<MqttMessage>),
    /// Sends a ping of WebSocket or MQTT, and waits for its answer.
    Ping,
    /// Waits.
    Sleep(Delay),
    /// Does steps several times.
    Repeat {
        /// How often, at least once.
        times: u32,
        /// What.
        steps: Vec<Step>,
    },
    /// Closes the connection.
    Close,
}

/// A request of HTTP.
#[derive(Debug, Clone)]
pub struct Request {
    /// GET, POST, ….
    pub method: String,
    /// The path with its query, beginning with `/`.
    pub path: Template,
    /// Fields of its head, besides those of its kind of devices.
    pub fields: Vec<(String, Template)>,
    /// Its body.
    pub body: Option<Template>,
    /// What the reply must be.
    pub checks: Checks,
}

impl Scenario {
    /// Reads a scenario. `file` is the name that faults are told with; `files` gives what the scenario names: tables of
    /// values and certificates.
    pub fn parse(file: &str, text: &str, files: Files<'_>) -> Result<Self, Faults> {
        let book = Book::new(text, files);
        let (document, errors) = DeTable::parse_recoverable(text);
        for error in &errors {
            book.fault(error.span().unwrap_or(text.len()..text.len()), error.message());
        }
        // What could be made of a file with errors of syntax would only be blamed for what is missing.
        let scenario =
            if errors.is_empty() { scenario(&book, document.get_ref(), document.span()) } else { None };
        match (book.faults(file), scenario) {
            (None, Some(scenario)) => Ok(scenario),
            (Some(faults), _) => Err(faults),
            // Nothing is left out without a fault; if it were, that is said rather than hidden.
            (None, None) => {
                Err(Faults::new(file, text, vec![(0..0, "the scenario cannot be read".to_owned())]))
            }
        }
    }

    /// Where its devices connect to, each once: what has to be resolved before it is compiled.
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

fn scenario(book: &Book<'_>, table: &DeTable<'_>, at: std::ops::Range<usize>) -> Option<Scenario> {
    let file = Keys::new(book, table, at, &keys::FILE);
    let load = file.need("load", "`[load]`, with `for = \"30s\"` below it");
    let load = load.and_then(|value| value.keys(&keys::LOAD)).and_then(|keys| read_load(&keys));
    let kinds = file.need("devices", "`[devices.NAME]`, with `target` and `steps` below it");
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
            connect_within_ns.unwrap_or((SECOND_NS / 2).max(count * SECOND_NS / CONNECTIONS_PER_SECOND));
    }
    Some(Scenario { load, kinds })
}

/// The load, and the time in which its devices are to be connected, if it says so.
fn read_load(keys: &Keys<'_>) -> Option<(Load, Option<u64>)> {
    let ramp_ns = keys.get("ramp").map_or(Some(0), |value| value.duration_ns());
    let length = keys.get("for");
    let length_ns = length.as_ref().map(Value::some_time_ns);
    let turns = keys.get("turns");
    let connect_within_ns =
        keys.get("connect_within").map_or(Some(None), |value| value.duration_ns().map(Some));
    let rundown_ns = keys.get("rundown").map_or(Some(RUNDOWN_NS), |value| value.duration_ns());
    // TOML's whole numbers end there.
    let seed = keys.get("seed").map_or(Some(1), |value| value.whole(0..=i64::MAX as u64));
    let spacings = [("poisson", Spacing::Poisson), ("fixed", Spacing::Fixed)];
    let spacing = keys.get("spacing").map_or(Some(Spacing::default()), |value| value.choice(&spacings));
    let model = if let Some(rate) = keys.get("rate") {
        keys.refuse("turns", "is for loads without a rate: each arrival is one turn");
        let per_second = rate.positive(MOST_PER_SECOND);
        keys.need("for", "how long it goes on after the ramp, as in `for = \"30s\"`");
        let profile = Profile { per_second: per_second?, ramp_ns: ramp_ns?, sustain_ns: length_ns?? };
        Model::Open { profile, spacing: spacing? }
    } else {
        for key in ["spacing", "connect_within"] {
            keys.refuse(key, "is for loads with a `rate`");
        }
        if length.is_none() && turns.is_none() {
            keys.need("for", "how long it goes on after the ramp (`for = \"30s\"`); or `turns`, how often each device goes through its steps; or both");
            return None;
        }
        let turns = turns.map_or(Some(None), |value| value.whole(1..=i64::MAX as u64).map(Some))?;
        let sustain_ns = length_ns.unwrap_or(Some(LONGEST_NS))?;
        Model::Closed { ramp_ns: ramp_ns?, sustain_ns, turns }
    };
    Some((Load { model, connect_ns: 0, rundown_ns: rundown_ns?, seed: seed? }, connect_within_ns?))
}

fn read_kinds(value: &Value<'_>, turns: Option<Option<u64>>, is_open: bool) -> Option<Vec<Devices>> {
    let entries = value.entries()?;
    if entries.is_empty() {
        value.fault("there are no devices: write `[devices.NAME]`");
    }
    // Arrivals take whichever device is free, so the share of each kind would be left to chance.
    if let [_, (at, second), ..] = entries.as_slice()
        && is_open
    {
        let words = "a load with a `rate` has one kind of devices";
        value.book().fault(at.clone(), format!("`{}` is a second kind: {words}", second.key));
    }
    let kinds: Vec<_> = entries.iter().map(|(at, kind)| devices::read(at, kind, turns)).collect();
    kinds.into_iter().collect()
}

/// A kind's table of values, if it has one: every text with a cell of it shares it.
type SharedTable = Option<Arc<crate::template::Table>>;
