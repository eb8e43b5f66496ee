//! From the agent's answers to samples: what each field becomes.
//!
//! The agent's counters and gauges go into the sample as they stand. Made here are running totals where the
//! agent tells differences (of the scans) or single costs (of items), the sums over a round where it reads
//! all processes in several parts, and of the facts only those are passed on that are new or have changed.

mod allocators;
mod broker;
mod carriers;
mod code;
mod counters;
mod events;
mod facts;
pub(crate) mod files;
mod holders;
pub(crate) mod locks;
mod messages;
mod processes;
mod stands;
mod tables;

use std::collections::{BTreeMap, HashMap, HashSet};

use beamtune_model::rows::CHILD_OF;
use beamtune_model::units::Nanos;
use beamtune_model::{Event, Gap, SampleBuilder, Span, TroubleKind, metrics};

use crate::agent::{Answer, Reading, Status};
use crate::error::printable;
use crate::etf::{Kind, Term, TermError};

/// All that is understood.
const ITEMS: &[&str] = &[
    "facts",
    "msacc",
    "scheduler_wall_time",
    "run_queues",
    "statistics",
    "memory",
    "counts",
    "check_io",
    "procs",
    "events",
    "host",
    "processes",
    "spawns",
    "atoms",
    "stands",
    "ran",
    "crashes",
    "weigh",
    "messages",
    "broker",
    "broker_clients",
    "ets",
    "table_growth",
    "ports",
    "dist",
    "traces",
    "allocators",
    "carriers",
    "allocations",
    "code_memory",
    "holders",
    "collect",
    "locks",
];

/// Entities taken from one list of an answer. 128 schedulers have some 1,500 allocator instances; a longer
/// list is not an honest node's.
const MOST_ENTITIES: usize = 16_384;

/// Rows about single processes, tables, ports, nodes and events that are taken from one list. The agent tells 200 at most.
const MOST_ROWS: usize = 1_000;

/// Characters of a text that is taken over; the agent cuts its own to fewer.
const MOST_CHARACTERS: usize = 512;

const NS_PER_US: i64 = 1_000;

/// What has been learnt of one life of a VM.
#[derive(Debug, Default)]
pub(crate) struct Life {
    facts: BTreeMap<String, String>,
    known: Option<Known>,
    scans: processes::Scans,
    events: events::Events,
    cost_ns: HashMap<String, i64>,
    /// Queues and clients of RabbitMQ.
    names: broker::Names,
    /// Items that were told to be missing.
    missing: HashSet<String>,
}

/// Facts that the reading of other items needs.
#[derive(Debug, Clone, Copy)]
struct Known {
    schedulers: i64,
    dirty_cpu_schedulers: i64,
    word_bytes: i64,
    perf_counter_hz: i64,
}

/// What tells one life of a VM from the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Changes with each start.
    pub boot: String,
    pub os_pid: Option<u32>,
}

/// How the VM's clock lies to the recorder's: add it to VM monotonic time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Offset(pub Nanos);

impl Offset {
    /// Corrects an offset by an answer: what began after it was asked for, and ended before it arrived,
    /// bounds it from both sides. So it follows a VM whose clock is slewed, and an offset that was well
    /// measured stays as it is.
    pub fn corrected(self, sent: Nanos, answer: &Answer, arrived: Nanos) -> Offset {
        let least = sent.saturating_sub(answer.begin_ns);
        let most = arrived.saturating_sub(answer.end_ns);
        Offset(if least <= most { self.0.clamp(least, most) } else { least / 2 + most / 2 })
    }

    /// The translation of an answer's instants: they lie between the request and the arrival, whatever the node
    /// says.
    pub fn between(self, sent: Nanos, arrived: Nanos) -> Translation {
        Translation { offset: self, sent, arrived: arrived.max(sent) }
    }
}

/// From VM monotonic time to the recorder's clock, for one answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Translation {
    offset: Offset,
    sent: Nanos,
    arrived: Nanos,
}

impl Translation {
    pub fn to_recorder(self, vm_ns: i64) -> Nanos {
        vm_ns.saturating_add(self.offset.0).clamp(self.sent, self.arrived)
    }

    /// Of what had happened before the answer was asked for; nothing is before the recording's zero.
    pub fn to_recorder_earlier(self, vm_ns: i64) -> Nanos {
        vm_ns.saturating_add(self.offset.0).min(self.arrived).max(0)
    }
}

/// Reads the identity out of an answer, if the facts are in it.
pub(crate) fn identity(answer: &Answer) -> Option<Identity> {
    answer.readings().ok()?.find_map(|reading| match reading.ok()? {
        Reading { item: "facts", status: Status::Done(value), .. } => facts::identity(value).ok(),
        _ => None,
    })
}

impl Life {
    /// Adds all items of an answer. An item that is missing, or makes no sense, becomes a gap.
    pub fn add(
        &mut self,
        answer: &Answer,
        clock: Translation,
        out: &mut SampleBuilder<'_>,
    ) -> Result<(), TermError> {
        let added = self.items(answer, clock, out);
        // An honest node tells nothing twice. What has come before an error is recorded, too.
        let mut seen = HashSet::new();
        out.sample.readings.retain(|(series, _)| seen.insert(*series));
        added
    }

    fn items(
        &mut self,
        answer: &Answer,
        clock: Translation,
        out: &mut SampleBuilder<'_>,
    ) -> Result<(), TermError> {
        let mut all_ns = 0i64;
        for reading in answer.readings()?.take(ITEMS.len()) {
            let reading = reading?;
            // Of a newer agent; there is none, since the agent is the one that we have brought.
            if !ITEMS.contains(&reading.item) {
                continue;
            }
            let begin = clock.to_recorder(reading.begin_ns);
            let read_ns = reading.cost_us.max(0).saturating_mul(NS_PER_US);
            let end = clock.to_recorder(reading.begin_ns.saturating_add(read_ns));
            let between_ns = match (reading.item, &reading.status) {
                ("procs", Status::Done(value)) => processes::between_ns(*value),
                _ => 0,
            };
            let cost_ns = read_ns.saturating_add(between_ns);
            all_ns = all_ns.saturating_add(cost_ns);
            let total = self.cost_ns.entry(reading.item.to_owned()).or_default();
            *total = total.saturating_add(cost_ns);
            out.metric(&metrics::AGENT_COST, reading.item, *total);
            let trouble = match reading.status {
                Status::Done(value) => {
                    let told = self.item(reading.item, value, Span { begin, end }, clock, out);
                    told.err().map(|error| (TroubleKind::Garbled, error.to_string()))
                }
                // Told once: it will not change.
                Status::Unsupported if !self.missing.insert(reading.item.to_owned()) => None,
                Status::Unsupported => Some((
                    TroubleKind::Unsupported,
                    "this release or build of the VM does not have it".to_owned(),
                )),
                Status::Failed(reason) => Some((TroubleKind::Garbled, printable(reason))),
                Status::TimedOut(stuck_on) => Some((
                    TroubleKind::TimedOut,
                    match stuck_on {
                        Some(process) => format!("reading hung on {}", printable(process)),
                        None => "reading took too long".to_owned(),
                    },
                )),
                Status::Skipped => {
                    Some((TroubleKind::TimedOut, "not tried, because reading hung before it".to_owned()))
                }
            };
            if let Some((kind, reason)) = trouble {
                out.sample.gaps.push(Gap {
                    begin,
                    end,
                    source: format!("vm.{}", reading.item),
                    kind,
                    reason,
                });
            }
        }
        self.cost(answer.cost()?, all_ns, out)
    }

    /// Adds one item; `span` is when it was read, on the recorder's clock.
    fn item(
        &mut self,
        item: &str,
        value: Term<'_>,
        span: Span,
        clock: Translation,
        out: &mut SampleBuilder<'_>,
    ) -> Result<(), TermError> {
        let t = span.middle();
        match item {
            "facts" => self.facts(value, out),
            "msacc" => counters::msacc(value, self.known(value)?, out),
            "scheduler_wall_time" => counters::scheduler_wall_time(value, self.known(value)?, out),
            "run_queues" => counters::run_queues(value, out),
            "statistics" => counters::statistics(value, out),
            "memory" => counters::memory(value, out),
            "counts" => counters::counts(value, out),
            "check_io" => counters::check_io(value, out),
            "procs" => self.scans.procs(value, t, out),
            "events" => self.events.add(value, span, clock, out),
            "processes" => processes::looks(value, t, self.known(value)?, out),
            "spawns" => processes::spawns(value, t, out),
            "atoms" => tables::atoms(value, t, out),
            "stands" => stands::stands(value, t, out),
            "crashes" => processes::exits(value, t, out),
            "messages" => messages::messages(value, t, out),
            "broker" => broker::totals(value, out),
            "broker_clients" => broker::clients(value, &mut self.names, out),
            "ets" => tables::ets(value, t, out),
            "table_growth" => tables::growth(value, t, out),
            "ports" => tables::ports(value, t, out),
            "dist" => tables::dist(value, t, out),
            "traces" => counters::traces(value, out),
            "allocators" => allocators::allocators(value, out),
            "carriers" => carriers::carriers(value, t, out),
            "allocations" => carriers::allocations(value, t, out),
            "code_memory" => code::code(value, t, out),
            "holders" => holders::holders(value, t, out),
            "collect" => holders::collection(value, t, out),
            "locks" => locks::locks(value, span, clock, out),
            // What these find is told with `processes` and with `messages`.
            "ran" | "weigh" => Ok(()),
            // These are for the source of the host.
            "host" => Ok(()),
            _ => Ok(()),
        }
    }

    fn known(&self, item: Term<'_>) -> Result<Known, TermError> {
        self.known
            .ok_or(TermError::MissingKey { key: "schedulers (the facts are missing)", offset: item.offset() })
    }

    /// Facts that are new or have changed.
    fn facts(&mut self, value: Term<'_>, out: &mut SampleBuilder<'_>) -> Result<(), TermError> {
        self.known = Some(Known {
            schedulers: needed(value, "schedulers")?,
            dirty_cpu_schedulers: needed(value, "dirty_cpu_schedulers")?,
            word_bytes: needed(value, "word_bytes")?,
            perf_counter_hz: needed(value, "perf_counter_per_s")?,
        });
        out.metric(&metrics::SCHEDULERS_ONLINE, "", needed(value, "schedulers_online")?);
        if let Some(offset) = number(value, "time_offset_ns")? {
            out.metric(&metrics::TIME_OFFSET, "", offset);
        }
        let found = facts::read(value)?;
        let gone: Vec<String> = self.facts.keys().filter(|key| !found.contains_key(*key)).cloned().collect();
        for key in gone {
            out.fact(&key, "");
        }
        for (key, text) in &found {
            if self.facts.get(key) != Some(text) {
                out.fact(key, text.as_str());
            }
        }
        self.facts = found;
        Ok(())
    }

    /// What the agent has cost: totals, as the VM itself accounts for it.
    fn cost(&mut self, cost: Term<'_>, all_ns: i64, out: &mut SampleBuilder<'_>) -> Result<(), TermError> {
        let total = self.cost_ns.entry(String::new()).or_default();
        *total = total.saturating_add(all_ns);
        out.metric(&metrics::AGENT_COST, "", *total);
        // The collector's begin anew when it had to be replaced: that is a counter set back, as anywhere.
        let reductions =
            needed(cost, "agent_reductions")?.saturating_add(needed(cost, "collector_reductions")?);
        out.metric(&metrics::AGENT_REDUCTIONS, "", reductions);
        if let Some(memory) = number(cost, "memory_bytes")? {
            out.metric(&metrics::AGENT_MEMORY, "", memory);
        }
        Ok(())
    }
}

/// An event at an instant.
fn event(t: Nanos, kind: &str, subject: &str, detail: String) -> Event {
    Event { t, kind: kind.to_owned(), subject: subject.to_owned(), detail }
}

/// The number under a key; `None` where the key is absent or holds an atom such as `undefined`.
fn number(map: Term<'_>, key: &str) -> Result<Option<i64>, TermError> {
    match map.get(key)? {
        Some(value) if value.kind() == Kind::Atom => Ok(None),
        Some(value) => value.as_i64().map(Some),
        None => Ok(None),
    }
}

/// The number under a key that must be there.
fn needed(map: Term<'_>, key: &'static str) -> Result<i64, TermError> {
    map.field(key)?.as_i64()
}

/// A number that cannot be negative.
fn amount(term: Term<'_>) -> Result<i64, TermError> {
    match term.as_i64()? {
        amount @ 0.. => Ok(amount),
        _ => Err(TermError::OutOfRange { expected: "no negative number", offset: term.offset() }),
    }
}

/// The text under a key, atom or binary; `None` where it is absent, empty or `undefined`.
fn text(map: Term<'_>, key: &str) -> Result<Option<String>, TermError> {
    match map.get(key)? {
        Some(value) => words(value),
        None => Ok(None),
    }
}

/// A text of bounded length out of an atom or a binary.
fn words(value: Term<'_>) -> Result<Option<String>, TermError> {
    let text = match value.kind() {
        Kind::Atom => match value.as_atom()? {
            "undefined" => return Ok(None),
            name => name,
        },
        _ => value.as_str()?,
    };
    let text: String = text.chars().take(MOST_CHARACTERS).collect();
    Ok(Some(text).filter(|text| !text.is_empty()))
}

/// `{Module, Function, Arity}` as `module:function/arity`, `{child_of, Maker}` as `child of maker`; `None` for `undefined`.
fn function(value: Term<'_>) -> Result<Option<String>, TermError> {
    if value.kind() == Kind::Atom {
        return Ok(None);
    }
    let part = |term| words(term).map(Option::unwrap_or_default);
    if let Ok([tag, maker]) = value.tuple_of()
        && tag.as_atom().is_ok_and(|tag| tag == "child_of")
    {
        return Ok(Some(format!("{CHILD_OF}{}", part(maker)?)));
    }
    let [module, function, arity] = value.tuple_of()?;
    Ok(Some(format!("{}:{}/{}", part(module)?, part(function)?, arity.as_i64()?)))
}

/// The list under a key, no longer than is believable.
fn list<'a>(map: Term<'a>, key: &'static str) -> Result<impl Iterator<Item = Term<'a>>, TermError> {
    Ok(map.field(key)?.list()?.take(MOST_ENTITIES))
}

/// The same for rows of names and texts, of which the agent tells only some.
fn rows<'a>(map: Term<'a>, key: &'static str) -> Result<impl Iterator<Item = Term<'a>>, TermError> {
    Ok(list(map, key)?.take(MOST_ROWS))
}

#[cfg(test)]
mod tests;
