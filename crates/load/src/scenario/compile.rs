//! Compiles a scenario into a plan. Each protocol has a module.

mod http;
mod mqtt;
mod raw;
mod tls;
mod websocket;

use std::net::SocketAddr;
use std::sync::Arc;

use super::{Action, Devices, ProtocolOptions, Scenario, Step, Target};
use crate::LoadError;
use crate::program::{Endpoint, Kind, Op, Plan, Source};
use crate::protocol::{Checks, Message, Protocol};
use crate::template::Template;

pub use tls::SystemTrust;

impl Scenario {
    /// Compiles the scenario. Devices may connect from the instant `begin_ns` on (CLOCK_MONOTONIC); `address_of` returns the resolved
    /// address of a target ([`Scenario::targets`]).
    ///
    /// # Errors
    /// If source address and target have different IP versions, a certificate cannot be used, or a protocol does not support a step.
    pub fn compile(
        &self,
        begin_ns: u64,
        address_of: &dyn Fn(&Target) -> SocketAddr,
        system_trust: SystemTrust<'_>,
    ) -> Result<Plan, LoadError> {
        let mut steps = StepNames { names: Vec::new(), has_prefix: self.kinds.len() > 1 };
        let kinds: Result<Vec<_>, _> = self
            .kinds
            .iter()
            .map(|kind| compile_kind(kind, address_of(&kind.target), system_trust, &mut steps))
            .collect();
        Ok(Plan {
            kinds: kinds?,
            steps: steps.names,
            model: self.load.model,
            seed: self.load.seed,
            start_ns: begin_ns + self.load.connect_ns,
            connect_ns: self.load.connect_ns,
            rundown_ns: self.load.rundown_ns,
        })
    }
}

/// The distinct names of steps.
struct StepNames {
    names: Vec<String>,
    /// Whether names begin with the name of the group of devices, because there are several groups.
    has_prefix: bool,
}

impl StepNames {
    fn index(&mut self, kind: &Devices, name: &str) -> usize {
        let name = if self.has_prefix { format!("{}: {name}", kind.name) } else { name.to_owned() };
        self.names.iter().position(|known| *known == name).unwrap_or_else(|| {
            self.names.push(name);
            self.names.len() - 1
        })
    }
}

fn compile_kind(
    kind: &Devices,
    address: SocketAddr,
    system_trust: SystemTrust<'_>,
    names: &mut StepNames,
) -> Result<Kind, LoadError> {
    if let Some(source) = kind.sources.iter().find(|source| source.is_ipv4() != address.is_ipv4()) {
        return Err(LoadError::SourceFamily { kind: kind.name.clone(), source_ip: *source, address });
    }
    let protocol = protocol(kind)?;
    let tls = kind.tls.as_ref().map(|tls| tls::tls(kind, tls, system_trust)).transpose()?;
    let mut program = Program { kind, names, ops: Vec::new() };
    let body = if ends_closed(&kind.steps) {
        // Each turn has its own connection.
        if !matches!(first(&kind.steps), Some((_, Action::Connect))) {
            program.connect("connect", 0)?;
        }
        program.all(&kind.steps, 0)?;
        0
    } else {
        let turn = match first(&kind.steps) {
            Some((at, Action::Connect)) => {
                program.all(&kind.steps[..=at], 0)?;
                &kind.steps[at + 1..]
            }
            _ => {
                program.connect("connect", 0)?;
                &kind.steps
            }
        };
        let body = program.ops.len();
        program.all(turn, 0)?;
        body
    };
    program.ops.push(Op::Next);
    let ops = program.ops;
    let sources = kind.sources.iter().map(|address| Source { address: *address, ports: None }).collect();
    Ok(Kind {
        name: kind.name.clone(),
        devices: kind.count,
        endpoint: Endpoint { address, sources, tls },
        protocol,
        ops,
        body,
        connect_timeout_ns: kind.connect_timeout_ns,
        timeout_ns: kind.timeout_ns,
        pause_ns: kind.pause_ns,
    })
}

/// Whether the connection is closed at the end of the steps.
fn ends_closed(steps: &[Step]) -> bool {
    let ends = steps.iter().rev().find(|step| needs_connection(step));
    ends.is_some_and(|step| match &step.action {
        Action::Repeat { steps, .. } => ends_closed(steps),
        action => matches!(action, Action::Close),
    })
}

/// Returns the first action that needs or changes the connection, and the index of the top-level step that contains it.
fn first(steps: &[Step]) -> Option<(usize, &Action)> {
    let at = steps.iter().position(needs_connection)?;
    match &steps[at].action {
        Action::Repeat { steps, .. } => first(steps).map(|(_, action)| (at, action)),
        action => Some((at, action)),
    }
}

fn needs_connection(step: &Step) -> bool {
    match &step.action {
        Action::Sleep(_) => false,
        Action::Repeat { steps, .. } => steps.iter().any(needs_connection),
        _ => true,
    }
}

struct Program<'k, 'n> {
    kind: &'k Devices,
    names: &'n mut StepNames,
    ops: Vec<Op>,
}

impl Program<'_, '_> {
    fn connect(&mut self, name: &str, depth: usize) -> Result<(), LoadError> {
        let step = self.names.index(self.kind, name);
        self.ops.push(Op::Connect { step });
        let kind = self.kind;
        self.all(&kind.on_connect, depth)
    }

    /// Compiles steps; `depth` is the number of enclosing loops.
    fn all(&mut self, steps: &[Step], depth: usize) -> Result<(), LoadError> {
        steps.iter().try_for_each(|step| self.one(step, depth))
    }

    fn one(&mut self, step: &Step, depth: usize) -> Result<(), LoadError> {
        let op = match &step.action {
            Action::Connect => return self.connect(&step.name, depth),
            Action::Close => Op::Close,
            Action::Sleep(delay) => Op::Sleep(*delay),
            Action::Repeat { times, steps } => {
                self.ops.push(Op::Begin { counter: depth });
                let back_to = self.ops.len();
                self.all(steps, depth + 1)?;
                Op::Repeat { counter: depth, times: *times, back_to }
            }
            Action::Expect { checks } => {
                Op::Expect { step: self.names.index(self.kind, &step.name), checks: Box::new(checks.clone()) }
            }
            action => {
                let message = message(self.kind, step)?;
                let checks = match action {
                    Action::Request(request) => request.checks.clone(),
                    _ => Checks::default(),
                };
                let step = self.names.index(self.kind, &step.name);
                Op::Send { step, message, checks: Box::new(checks) }
            }
        };
        self.ops.push(op);
        Ok(())
    }
}

/// Returns the protocol of a group of devices.
fn protocol(kind: &Devices) -> Result<Protocol, LoadError> {
    match &kind.protocol {
        ProtocolOptions::Http { .. } => Ok(Protocol::Http),
        ProtocolOptions::WebSocket { path, fields, subprotocols } => {
            Ok(websocket::protocol(kind, path, fields, subprotocols))
        }
        ProtocolOptions::Mqtt(connect) => Ok(Protocol::Mqtt(connect.clone())),
        ProtocolOptions::Raw(framing) => Ok(Protocol::Raw(Arc::new(raw::framing(kind, *framing)?))),
    }
}

/// Returns the message that a step sends.
fn message(kind: &Devices, step: &Step) -> Result<Message, LoadError> {
    match &kind.protocol {
        ProtocolOptions::Http { fields } => http::message(kind, fields, step),
        ProtocolOptions::WebSocket { .. } => websocket::message(kind, step),
        ProtocolOptions::Mqtt(_) => mqtt::message(kind, step),
        ProtocolOptions::Raw(framing) => raw::message(kind, *framing, step),
    }
}

fn misplaced(kind: &Devices, step: &Step) -> LoadError {
    let why = format!("this step is not possible over {}", kind.target.scheme.name());
    LoadError::Unfit { kind: kind.name.clone(), what: step.name.clone(), why }
}

/// Returns the header fields of a request: `Host`, the fields that all requests of the devices have, and the request's own. The request's
/// own fields override the others.
fn head(
    kind: &Devices,
    common: &[(String, Template)],
    own: &[(String, Template)],
) -> Vec<(String, Template)> {
    let has = |fields: &[(String, Template)], name: &str| {
        fields.iter().any(|(field, _)| field.eq_ignore_ascii_case(name))
    };
    let mut fields = Vec::new();
    if !has(common, "Host") && !has(own, "Host") {
        fields.push(("Host".to_owned(), Template::literal(kind.target.authority())));
    }
    fields.extend(common.iter().filter(|(name, _)| !has(own, name)).cloned());
    fields.extend_from_slice(own);
    fields
}
