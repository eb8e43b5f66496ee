//! The agent: the Erlang module that is injected into the node, and the terms exchanged with it.
//!
//! `docs/agent-protocol.md` defines the terms, `agent/` holds the source. This crate embeds two builds of the agent, made by
//! `scripts/agent-build.sh`. Which of them a node can load depends on its OTP release. The client chooses in advance, because a
//! node logs an error report for a beam that it cannot load.

use std::time::Duration;

use beamtune_model::FileRequest;

use crate::etf::{Document, Pid, Term, TermError, Value};
use crate::explicit::ExplicitItem;
use crate::message::Spawn;
pub use crate::sample::Item;

/// The protocol version of this client.
pub const PROTOCOL: i64 = 1;

/// First OTP release that can load the default output of OTP 25's compiler.
const FIRST_RELEASE_OF_NEW_BEAM: u32 = 25;

const BEAM_BEFORE_25: &[u8] = include_bytes!("../../../agent/prebuilt/agent-r23.beam");
const BEAM_SINCE_25: &[u8] = include_bytes!("../../../agent/prebuilt/agent-r25.beam");
const KEEPER: &[u8] = include_bytes!("../../../agent/prebuilt/keeper.etf");
const NAME: &str = include_str!("../../../agent/prebuilt/name");

/// Returns the name of the agent's module on the node. The name contains a hash of the agent's source.
pub fn module() -> &'static str {
    NAME.trim_ascii()
}

/// Options of a client's session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionOptions {
    /// The agent ends the session if it receives nothing from the client for this long: 1 s to 1 h.
    pub lease: Duration,
    /// CPU budget of the scans, in millionths of one core: 100 to 1,000,000. Scans that would cost more are spread over several
    /// samples.
    pub budget_ppm: u32,
}

impl Default for SessionOptions {
    fn default() -> Self {
        SessionOptions { lease: Duration::from_secs(30), budget_ppm: 10_000 }
    }
}

/// Returns the spawn request that starts the agent on a node of this OTP release. The agent reports to `client`.
pub(crate) fn injection(otp_release: u32, client: &Pid, terms: SessionOptions) -> Spawn<'static> {
    let beam = if otp_release < FIRST_RELEASE_OF_NEW_BEAM { BEAM_BEFORE_25 } else { BEAM_SINCE_25 };
    let options = Value::Map(vec![
        (Value::atom("lease_ms"), milliseconds(terms.lease)),
        (Value::atom("budget_ppm"), Value::from(u64::from(terms.budget_ppm))),
    ]);
    let binding = |name, value| Value::tuple([Value::atom(name), value]);
    // Bindings of the keeper's variables. They are an orddict, so they must be sorted by name.
    let bindings = [
        binding("Beam", Value::binary(beam)),
        binding("Client", Value::from(client)),
        binding("Name", Value::atom(module())),
        binding("Options", options),
    ];
    Spawn {
        module: "erl_eval",
        function: "exprs",
        arguments: vec![Value::Encoded(KEEPER.into()), Value::list(bindings)],
    }
}

/// Builds the item that reads files of the node's host.
pub(crate) fn host_item(files: &[FileRequest]) -> Value<'static> {
    let text = |text: &String| Value::binary(text.clone().into_bytes());
    let ask = |ask: &FileRequest| match ask {
        FileRequest::Read { path, max_bytes } => {
            Value::tuple([Value::atom("read"), text(path), Value::from(*max_bytes as u64)])
        }
        FileRequest::Link(path) => Value::tuple([Value::atom("link"), text(path)]),
        FileRequest::Count(path) => Value::tuple([Value::atom("count"), text(path)]),
        FileRequest::Threads { all: false } => Value::atom("threads"),
        FileRequest::Threads { all: true } => Value::atom("all_threads"),
    };
    let asks = Value::List(files.iter().map(ask).collect());
    Value::tuple([Value::atom("host"), Value::Map(vec![(Value::atom("ask"), asks)])])
}

/// Builds the request for a sample. `item_timeout` applies to items without a time limit of their own. Host files come after the
/// regular items, and explicit items last, because they take longest.
pub(crate) fn sample_request(
    client: &Pid,
    seq: u64,
    items: &[&Item],
    files: &[FileRequest],
    explicit: &[ExplicitItem],
    item_timeout: Duration,
) -> Value<'static> {
    let host = (!files.is_empty()).then(|| host_item(files));
    let explicit = explicit.iter().map(ExplicitItem::to_value);
    Value::tuple([
        Value::atom("sample"),
        Value::from(client),
        Value::from(seq),
        Value::List(items.iter().map(|item| item.to_value()).chain(host).chain(explicit).collect()),
        Value::Map(vec![(Value::atom("timeout_ms"), milliseconds(item_timeout))]),
    ])
}

/// Builds the request that renews the lease while we wait for a slow answer.
pub(crate) fn renew_request(client: &Pid) -> Value<'static> {
    Value::tuple([Value::atom("renew"), Value::from(client)])
}

/// Builds the request that ends the session.
pub(crate) fn leave_request(client: &Pid) -> Value<'static> {
    Value::tuple([Value::atom("leave"), Value::from(client)])
}

pub(crate) fn milliseconds(duration: Duration) -> Value<'static> {
    Value::Integer(duration.as_millis().min(u32::MAX.into()) as i128)
}

/// A message from the agent.
#[derive(Debug)]
pub enum AgentMessage {
    /// The agent is running and has accepted us as a client.
    Joined(Joined),
    /// A sample.
    Sample(Answer),
    /// The request was refused because the agent is still working on an earlier one.
    Busy {
        /// The refused request.
        seq: u64,
    },
    /// The agent has ended our session.
    Left {
        /// Number of clients that the agent still serves.
        remaining: u64,
    },
    /// Our request was malformed.
    BadRequest(String),
    /// A message of another protocol version.
    Unknown,
}

/// The agent's answer to joining.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joined {
    /// The process that takes requests.
    pub agent: Pid,
    /// Whether other clients use the agent too.
    pub shared: bool,
    /// Whether microstate accounting was on before the first client joined. If so, another tool uses it, too.
    pub msacc_was_on: bool,
}

/// An undecoded sample.
#[derive(Debug)]
pub struct Answer {
    content: Document,
    /// Sequence number of the request.
    pub seq: u64,
    /// Start of the first item, in nanoseconds of VM monotonic time.
    pub begin_ns: i64,
    /// End of the last item, in nanoseconds of VM monotonic time.
    pub end_ns: i64,
    /// Wall clock time of the node's host at `end_ns`, in microseconds since 1970.
    pub os_system_us: Option<i64>,
}

/// One item of an [`Answer`].
#[derive(Debug, Clone, Copy)]
pub struct Reading<'a> {
    /// Name of the item.
    pub item: &'a str,
    /// Its value, or why it has none.
    pub status: Status<'a>,
    /// Start of the reading, in nanoseconds of VM monotonic time.
    pub begin_ns: i64,
    /// Wall time that the reading took, in microseconds.
    pub cost_us: i64,
}

/// Outcome of reading an item.
#[derive(Debug, Clone, Copy)]
pub enum Status<'a> {
    /// The value, a map.
    Done(Term<'a>),
    /// The OTP release or build does not have the item.
    Unsupported,
    /// Error text.
    Failed(&'a str),
    /// The time limit was exceeded. Contains the process that was being read, if known.
    TimedOut(Option<&'a str>),
    /// Not read, because earlier items had timed out.
    Skipped,
}

impl AgentMessage {
    /// Parses a message from the agent.
    pub(crate) fn parse(content: Document) -> Result<AgentMessage, TermError> {
        let mut elements = content.root().tuple()?;
        let mut next = || {
            elements.next().ok_or(TermError::Malformed {
                what: "a message of the agent with too few elements",
                offset: 0,
            })
        };
        if !next()?.is_atom("beamtune") {
            return Ok(AgentMessage::Unknown);
        }
        match next()?.as_atom()? {
            "joined" => {
                let map = next()?;
                let protocol = map.field("protocol")?;
                if protocol.as_i64()? != PROTOCOL {
                    return Err(TermError::OutOfRange {
                        expected: "this client's version of the protocol",
                        offset: protocol.offset(),
                    });
                }
                Ok(AgentMessage::Joined(Joined {
                    agent: map.field("agent")?.as_pid()?,
                    shared: map.field("shared")?.as_bool()?,
                    msacc_was_on: map.field("msacc_was_on")?.as_bool()?,
                }))
            }
            "sample" => {
                let seq = next()?.as_u64()?;
                let map = next()?;
                let (begin_ns, end_ns) = (map.field("begin_ns")?.as_i64()?, map.field("end_ns")?.as_i64()?);
                if end_ns < begin_ns {
                    return Err(TermError::OutOfRange {
                        expected: "an end that is not before the beginning",
                        offset: map.offset(),
                    });
                }
                let os_system_us = map.get("os_system_us")?.map(Term::as_i64).transpose()?;
                Ok(AgentMessage::Sample(Answer { content, seq, begin_ns, end_ns, os_system_us }))
            }
            "busy" => Ok(AgentMessage::Busy { seq: next()?.as_u64()? }),
            "left" => Ok(AgentMessage::Left { remaining: next()?.field("remaining")?.as_u64()? }),
            "bad_request" => Ok(AgentMessage::BadRequest(next()?.as_str()?.to_owned())),
            _ => Ok(AgentMessage::Unknown),
        }
    }
}

impl Answer {
    fn map(&self) -> Result<Term<'_>, TermError> {
        let [_, _, _, map] = self.content.root().tuple_of()?;
        Ok(map)
    }

    /// Returns what the agent has cost so far.
    pub fn cost(&self) -> Result<Term<'_>, TermError> {
        self.map()?.field("agent")
    }

    /// Returns the items in the order of the request. A malformed item yields an error in its place.
    pub fn readings(&self) -> Result<impl Iterator<Item = Result<Reading<'_>, TermError>>, TermError> {
        Ok(self.map()?.field("items")?.list()?.map(Reading::parse))
    }
}

impl<'a> Reading<'a> {
    fn parse(item: Term<'a>) -> Result<Reading<'a>, TermError> {
        let [name, status, begin_ns, cost_us, value] = item.tuple_of()?;
        Ok(Reading {
            item: name.as_atom()?,
            status: match status.as_atom()? {
                "ok" => Status::Done(value),
                "unsupported" => Status::Unsupported,
                "error" => Status::Failed(value.as_str()?),
                "timeout" => Status::TimedOut(value.get("stuck_on")?.map(Term::as_str).transpose()?),
                "skipped" => Status::Skipped,
                _ => return Err(TermError::OutOfRange { expected: "a status", offset: status.offset() }),
            },
            begin_ns: begin_ns.as_i64()?,
            cost_us: cost_us.as_i64()?,
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::etf::Limits;

    fn parse(value: Value<'_>) -> Result<AgentMessage, TermError> {
        AgentMessage::parse(Document::decode(value.to_bytes().unwrap(), 0, Limits::default()).unwrap())
    }

    pub(crate) fn map(pairs: &[(&'static str, Value<'static>)]) -> Value<'static> {
        Value::Map(pairs.iter().map(|(key, value)| (Value::atom(*key), value.clone())).collect())
    }

    /// An agent's answer to request 1.
    pub(crate) fn answer(items: Vec<Value<'static>>, cost: Value<'static>) -> Value<'static> {
        let times = [("begin_ns", Value::from(-1_000i64)), ("end_ns", Value::from(5_000i64))];
        let content = map(&[&times[..], &[("agent", cost), ("items", Value::List(items))]].concat());
        Value::tuple([Value::atom("beamtune"), Value::atom("sample"), Value::from(1u64), content])
    }

    fn pid() -> Pid {
        Pid { node: "a@h".into(), id: 1, serial: 0, creation: 2 }
    }

    #[test]
    fn each_message_of_the_agent_is_parsed() {
        let tagged = |tag: &'static str, rest: &[Value<'static>]| {
            parse(Value::tuple([&[Value::atom("beamtune"), Value::atom(tag)], rest].concat()))
        };
        let welcome = |protocol: i64| {
            map(&[
                ("protocol", Value::from(protocol)),
                ("agent", Value::from(&pid())),
                ("shared", Value::from(true)),
                ("msacc_was_on", Value::from(false)),
            ])
        };
        let Ok(AgentMessage::Joined(joined)) = tagged("joined", &[welcome(PROTOCOL)]) else { panic!() };
        assert_eq!(joined, Joined { agent: pid(), shared: true, msacc_was_on: false });
        assert!(tagged("joined", &[welcome(PROTOCOL + 1)]).unwrap_err().to_string().contains("version"));
        assert!(matches!(
            tagged("busy", &[Value::from(7u64), Value::from(6u64)]),
            Ok(AgentMessage::Busy { seq: 7 })
        ));
        let left = map(&[("remaining", Value::from(2u64))]);
        assert!(matches!(tagged("left", &[left]), Ok(AgentMessage::Left { remaining: 2 })));
        assert!(matches!(
            tagged("bad_request", &[Value::binary(&b"why"[..])]),
            Ok(AgentMessage::BadRequest(why)) if why == "why"
        ));
        assert!(matches!(tagged("news", &[]), Ok(AgentMessage::Unknown)));
        assert!(matches!(
            parse(Value::tuple([Value::atom("other"), Value::atom("x")])),
            Ok(AgentMessage::Unknown)
        ));
        for malformed in [
            tagged("sample", &[]),
            tagged("sample", &[Value::atom("x"), map(&[])]),
            tagged("joined", &[map(&[])]),
            tagged("left", &[Value::list([])]),
            parse(Value::list([])),
            parse(Value::tuple([])),
        ] {
            malformed.unwrap_err();
        }
    }

    #[test]
    fn answer_that_ends_before_it_begins_is_an_error() {
        let times = map(&[("begin_ns", Value::from(2i64)), ("end_ns", Value::from(1i64))]);
        let tuple = [Value::atom("beamtune"), Value::atom("sample"), Value::from(1u64), times];
        assert!(matches!(parse(Value::tuple(tuple)), Err(TermError::OutOfRange { .. })));
    }

    #[test]
    fn each_item_status_is_parsed() {
        let item = |status: &'static str, value| {
            let times = [Value::from(1i64), Value::from(2i64)];
            let [begin, cost] = times;
            Value::tuple([Value::atom("memory"), Value::atom(status), begin, cost, value])
        };
        let stuck = map(&[("stuck_on", Value::binary(&b"<0.1.0>"[..]))]);
        let items = vec![
            item("ok", map(&[])),
            item("unsupported", map(&[])),
            item("error", Value::binary(&b"why"[..])),
            item("timeout", map(&[])),
            item("timeout", stuck),
            item("skipped", map(&[])),
            item("else", map(&[])),
            Value::list([]),
        ];
        let Ok(AgentMessage::Sample(answer)) = parse(answer(items, map(&[]))) else { panic!() };
        let found: Vec<_> = answer.readings().unwrap().map(|reading| reading.map(|it| it.status)).collect();
        assert!(matches!(
            found.as_slice(),
            [
                Ok(Status::Done(_)),
                Ok(Status::Unsupported),
                Ok(Status::Failed("why")),
                Ok(Status::TimedOut(None)),
                Ok(Status::TimedOut(Some("<0.1.0>"))),
                Ok(Status::Skipped),
                Err(_),
                Err(_)
            ]
        ));
    }

    #[test]
    fn beam_is_chosen_by_otp_release() {
        let beam = |release| {
            let spawn = injection(release, &pid(), SessionOptions::default());
            let [_, Value::List(bindings)] = spawn.arguments.as_slice() else { panic!() };
            let name = |binding: &Value<'static>| match binding {
                Value::Tuple(pair) => pair[0].clone(),
                other => panic!("{other:?}"),
            };
            let names: Vec<_> = bindings.iter().map(name).collect();
            assert_eq!(names, ["Beam", "Client", "Name", "Options"].map(Value::atom));
            let Value::Tuple(pair) = &bindings[0] else { panic!() };
            let Value::Binary(beam) = &pair[1] else { panic!() };
            beam.to_vec()
        };
        assert_eq!(beam(23), BEAM_BEFORE_25);
        assert_eq!(beam(24), BEAM_BEFORE_25);
        assert_eq!(beam(25), BEAM_SINCE_25);
        assert_eq!(beam(29), BEAM_SINCE_25);
        assert_ne!(BEAM_BEFORE_25, BEAM_SINCE_25);
        assert!(module().starts_with("beamtune_agent_"));
    }
}
