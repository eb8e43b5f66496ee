//! The agent: the small Erlang module that is put into the node, and the terms that are exchanged with it.
//!
//! `docs/agent-protocol.md` defines the terms, `agent/` holds the source. Two builds of it lie in this
//! library, made by `scripts/agent-build.sh`; which one a node can load depends on its release, and must be
//! known beforehand, because a refused one makes the node print a report into its log.

use std::time::Duration;

use beamtune_model::FileAsk;

use crate::etf::{Document, Pid, Term, TermError, Value};
use crate::explicit::Explicit;
use crate::message::Spawn;

/// The version of the protocol that this client speaks.
pub const PROTOCOL: i64 = 1;

/// The oldest release whose loader takes what OTP 25's compiler writes without options.
const FIRST_RELEASE_OF_NEW_BEAM: u32 = 25;

const BEAM_BEFORE_25: &[u8] = include_bytes!("../../../agent/prebuilt/agent-r23.beam");
const BEAM_SINCE_25: &[u8] = include_bytes!("../../../agent/prebuilt/agent-r25.beam");
const KEEPER: &[u8] = include_bytes!("../../../agent/prebuilt/keeper.etf");
const NAME: &str = include_str!("../../../agent/prebuilt/name");

/// The agent's module on the node; it bears a hash of its source.
pub fn module() -> &'static str {
    NAME.trim_ascii()
}

/// What a client asks of the agent for the time of its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// The agent leaves when it has heard nothing for so long: 1 s to 1 h.
    pub lease: Duration,
    /// Millionths of one core that scans may cost; those that would cost more are thinned. 100 to 1,000,000.
    pub budget_ppm: u32,
}

impl Default for Terms {
    fn default() -> Self {
        Terms { lease: Duration::from_secs(30), budget_ppm: 10_000 }
    }
}

/// What is to be spawned on a node of that release so that the agent comes to run there. `client` is told.
pub(crate) fn injection(otp_release: u32, client: &Pid, terms: Terms) -> Spawn<'static> {
    let beam = if otp_release < FIRST_RELEASE_OF_NEW_BEAM { BEAM_BEFORE_25 } else { BEAM_SINCE_25 };
    let options = Value::Map(vec![
        (Value::atom("lease_ms"), milliseconds(terms.lease)),
        (Value::atom("budget_ppm"), Value::from(u64::from(terms.budget_ppm))),
    ]);
    let binding = |name, value| Value::tuple([Value::atom(name), value]);
    // The keeper's variables; an orddict, so their order matters.
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

/// Something that the agent can read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Item {
    /// What is true for the life of the VM.
    Facts,
    /// Microstate accounting.
    Msacc,
    /// Scheduler wall time.
    SchedulerWallTime,
    /// Run queues.
    RunQueues,
    /// Counters of the whole VM.
    Statistics,
    /// `erlang:memory/0`.
    Memory,
    /// Processes, ports, atoms, tables.
    Counts,
    /// Poll sets.
    CheckIo,
    /// Reductions and queue lengths of all processes; so many of the first are named.
    Procs(u32),
    /// A closer look at the processes that stand out.
    Processes(u32),
    /// ETS tables.
    Ets(u32),
    /// Ports.
    Ports(u32),
    /// What the VM has told by itself.
    Events,
    /// Distribution channels.
    Dist,
    /// Traces that are on.
    Traces,
    /// Allocators.
    Allocators,
    /// Who starts processes.
    Spawns,
    /// How the newest atoms begin.
    Atoms,
    /// Where processes stand that wait; so many are chosen by chance.
    Stands(u32),
    /// Where those run that do the most, for the closer looks.
    Ran,
    /// Looks at some processes that do something, for the messages that they get.
    Weigh,
    /// Why processes ended, since it was told last.
    Crashes,
    /// What these weigh, since it was told last.
    Messages,
    /// Rows of the tables that grow.
    TableGrowth,
    /// RabbitMQ's own totals.
    Broker,
    /// Its queues and clients that stand out.
    BrokerClients,
}

impl Item {
    /// Its name in the protocol.
    pub fn name(self) -> &'static str {
        match self {
            Item::Facts => "facts",
            Item::Msacc => "msacc",
            Item::SchedulerWallTime => "scheduler_wall_time",
            Item::RunQueues => "run_queues",
            Item::Statistics => "statistics",
            Item::Memory => "memory",
            Item::Counts => "counts",
            Item::CheckIo => "check_io",
            Item::Procs(_) => "procs",
            Item::Events => "events",
            Item::Processes(_) => "processes",
            Item::Ets(_) => "ets",
            Item::Ports(_) => "ports",
            Item::Dist => "dist",
            Item::Traces => "traces",
            Item::Allocators => "allocators",
            Item::Spawns => "spawns",
            Item::Atoms => "atoms",
            Item::Stands(_) => "stands",
            Item::Ran => "ran",
            Item::Crashes => "crashes",
            Item::TableGrowth => "table_growth",
            Item::Weigh => "weigh",
            Item::Messages => "messages",
            Item::Broker => "broker",
            Item::BrokerClients => "broker_clients",
        }
    }

    fn to_value(self) -> Value<'static> {
        let name = Value::atom(self.name());
        let (key, count) = match self {
            Item::Procs(top) | Item::Processes(top) | Item::Ets(top) | Item::Ports(top) => ("top", top),
            Item::Stands(sample) => ("sample", sample),
            _ => return name,
        };
        let parameters = Value::Map(vec![(Value::atom(key), Value::from(u64::from(count)))]);
        Value::tuple([name, parameters])
    }
}

/// The files of the node's host that are wanted, as an item.
pub(crate) fn host_item(files: &[FileAsk]) -> Value<'static> {
    let text = |text: &String| Value::binary(text.clone().into_bytes());
    let ask = |ask: &FileAsk| match ask {
        FileAsk::Read { path, max_bytes } => {
            Value::tuple([Value::atom("read"), text(path), Value::from(*max_bytes as u64)])
        }
        FileAsk::Link(path) => Value::tuple([Value::atom("link"), text(path)]),
        FileAsk::Count(path) => Value::tuple([Value::atom("count"), text(path)]),
        FileAsk::Threads { all: false } => Value::atom("threads"),
        FileAsk::Threads { all: true } => Value::atom("all_threads"),
    };
    let asks = Value::List(files.iter().map(ask).collect());
    Value::tuple([Value::atom("host"), Value::Map(vec![(Value::atom("ask"), asks)])])
}

/// The request for a sample; `item_timeout` is what the agent gives each item that has no limit of its own. Files come behind
/// the other items, and those that are asked for by name last, because they take longest.
pub(crate) fn sample_request(
    client: &Pid,
    seq: u64,
    items: &[Item],
    files: &[FileAsk],
    explicit: &[Explicit],
    item_timeout: Duration,
) -> Value<'static> {
    let host = (!files.is_empty()).then(|| host_item(files));
    let explicit = explicit.iter().map(Explicit::to_value);
    Value::tuple([
        Value::atom("sample"),
        Value::from(client),
        Value::from(seq),
        Value::List(items.iter().map(|item| item.to_value()).chain(host).chain(explicit).collect()),
        Value::Map(vec![(Value::atom("timeout_ms"), milliseconds(item_timeout))]),
    ])
}

/// Keeps the lease while an answer is long in coming.
pub(crate) fn renew_request(client: &Pid) -> Value<'static> {
    Value::tuple([Value::atom("renew"), Value::from(client)])
}

/// The farewell.
pub(crate) fn leave_request(client: &Pid) -> Value<'static> {
    Value::tuple([Value::atom("leave"), Value::from(client)])
}

pub(crate) fn milliseconds(duration: Duration) -> Value<'static> {
    Value::Integer(duration.as_millis().min(u32::MAX.into()) as i128)
}

/// What the agent says.
#[derive(Debug)]
pub enum Word {
    /// It runs, or has taken us in.
    Joined(Joined),
    /// A sample.
    Sample(Answer),
    /// It is at the sample before, and has not begun this one.
    Busy {
        /// The request that is not done.
        seq: u64,
    },
    /// We have left; others may share it still.
    Left {
        /// Clients that it still serves.
        remaining: u64,
    },
    /// It could not read our request.
    BadRequest(String),
    /// A word of another version.
    Unknown,
}

/// The agent's welcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joined {
    /// The process that takes requests.
    pub agent: Pid,
    /// Another client was there already.
    pub shared: bool,
    /// Microstate accounting was on before the first client came: somebody else measures, too.
    pub msacc_was_on: bool,
}

/// A sample as it came.
#[derive(Debug)]
pub struct Answer {
    content: Document,
    /// The request.
    pub seq: u64,
    /// When the first item was begun, VM monotonic time in nanoseconds.
    pub begin_ns: i64,
    /// When the last one was done.
    pub end_ns: i64,
    /// The wall clock of the node's host then, microseconds since 1970.
    pub os_system_us: Option<i64>,
}

/// One item of an [`Answer`].
#[derive(Debug, Clone, Copy)]
pub struct Reading<'a> {
    /// Its name.
    pub item: &'a str,
    /// How it went.
    pub status: Status<'a>,
    /// When it was begun, VM monotonic time in nanoseconds.
    pub begin_ns: i64,
    /// Wall time that it took, in microseconds.
    pub cost_us: i64,
}

/// How the reading of an item went.
#[derive(Debug, Clone, Copy)]
pub enum Status<'a> {
    /// Its value, a map.
    Done(Term<'a>),
    /// The release or build does not have it.
    Unsupported,
    /// Why it failed.
    Failed(&'a str),
    /// It was given up after its time; the process that was being read is named where it is known.
    TimedOut(Option<&'a str>),
    /// It was not tried, because others before it had timed out.
    Skipped,
}

impl Word {
    /// Reads a message of the agent.
    pub(crate) fn parse(content: Document) -> Result<Word, TermError> {
        let mut elements = content.root().tuple()?;
        let mut next = || {
            elements
                .next()
                .ok_or(TermError::Malformed { what: "a word of the agent that is too short", offset: 0 })
        };
        if !next()?.is_atom("beamtune") {
            return Ok(Word::Unknown);
        }
        match next()?.as_atom()? {
            "joined" => {
                let map = next()?;
                let protocol = map.field("protocol")?;
                if protocol.as_i64()? != PROTOCOL {
                    return Err(TermError::OutOfRange {
                        expected: "the version of the protocol that this client speaks",
                        offset: protocol.offset(),
                    });
                }
                Ok(Word::Joined(Joined {
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
                        expected: "an end after the beginning",
                        offset: map.offset(),
                    });
                }
                let os_system_us = map.get("os_system_us")?.map(Term::as_i64).transpose()?;
                Ok(Word::Sample(Answer { content, seq, begin_ns, end_ns, os_system_us }))
            }
            "busy" => Ok(Word::Busy { seq: next()?.as_u64()? }),
            "left" => Ok(Word::Left { remaining: next()?.field("remaining")?.as_u64()? }),
            "bad_request" => Ok(Word::BadRequest(next()?.as_str()?.to_owned())),
            _ => Ok(Word::Unknown),
        }
    }
}

impl Answer {
    fn map(&self) -> Result<Term<'_>, TermError> {
        let [_, _, _, map] = self.content.root().tuple_of()?;
        Ok(map)
    }

    /// What the agent has cost so far.
    pub fn cost(&self) -> Result<Term<'_>, TermError> {
        self.map()?.field("agent")
    }

    /// The items in the order of the request; one that is malformed is an error in its place.
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

    fn word(value: Value<'_>) -> Result<Word, TermError> {
        Word::parse(Document::decode(value.to_bytes().unwrap(), 0, Limits::default()).unwrap())
    }

    pub(crate) fn map(pairs: &[(&'static str, Value<'static>)]) -> Value<'static> {
        Value::Map(pairs.iter().map(|(key, value)| (Value::atom(*key), value.clone())).collect())
    }

    /// The answer of an agent to request 1.
    pub(crate) fn answer(items: Vec<Value<'static>>, cost: Value<'static>) -> Value<'static> {
        let times = [("begin_ns", Value::from(-1_000i64)), ("end_ns", Value::from(5_000i64))];
        let content = map(&[&times[..], &[("agent", cost), ("items", Value::List(items))]].concat());
        Value::tuple([Value::atom("beamtune"), Value::atom("sample"), Value::from(1u64), content])
    }

    fn pid() -> Pid {
        Pid { node: "a@h".into(), id: 1, serial: 0, creation: 2 }
    }

    #[test]
    fn every_word_of_the_agent_is_understood() {
        let tagged = |tag: &'static str, rest: &[Value<'static>]| {
            word(Value::tuple([&[Value::atom("beamtune"), Value::atom(tag)], rest].concat()))
        };
        let welcome = |protocol: i64| {
            map(&[
                ("protocol", Value::from(protocol)),
                ("agent", Value::from(&pid())),
                ("shared", Value::from(true)),
                ("msacc_was_on", Value::from(false)),
            ])
        };
        let Ok(Word::Joined(joined)) = tagged("joined", &[welcome(PROTOCOL)]) else { panic!() };
        assert_eq!(joined, Joined { agent: pid(), shared: true, msacc_was_on: false });
        assert!(tagged("joined", &[welcome(PROTOCOL + 1)]).unwrap_err().to_string().contains("version"));
        assert!(matches!(tagged("busy", &[Value::from(7u64), Value::from(6u64)]), Ok(Word::Busy { seq: 7 })));
        let left = map(&[("remaining", Value::from(2u64))]);
        assert!(matches!(tagged("left", &[left]), Ok(Word::Left { remaining: 2 })));
        assert!(matches!(
            tagged("bad_request", &[Value::binary(&b"why"[..])]),
            Ok(Word::BadRequest(why)) if why == "why"
        ));
        assert!(matches!(tagged("news", &[]), Ok(Word::Unknown)));
        assert!(matches!(word(Value::tuple([Value::atom("other"), Value::atom("x")])), Ok(Word::Unknown)));
        for malformed in [
            tagged("sample", &[]),
            tagged("sample", &[Value::atom("x"), map(&[])]),
            tagged("joined", &[map(&[])]),
            tagged("left", &[Value::list([])]),
            word(Value::list([])),
            word(Value::tuple([])),
        ] {
            malformed.unwrap_err();
        }
    }

    #[test]
    fn an_answer_that_ends_before_it_begins_is_refused() {
        let times = map(&[("begin_ns", Value::from(2i64)), ("end_ns", Value::from(1i64))]);
        let tuple = [Value::atom("beamtune"), Value::atom("sample"), Value::from(1u64), times];
        assert!(matches!(word(Value::tuple(tuple)), Err(TermError::OutOfRange { .. })));
    }

    #[test]
    fn each_status_of_an_item_is_told_apart() {
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
        let Ok(Word::Sample(answer)) = word(answer(items, map(&[]))) else { panic!() };
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
    fn each_release_gets_the_beam_that_it_can_load() {
        let beam = |release| {
            let spawn = injection(release, &pid(), Terms::default());
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
