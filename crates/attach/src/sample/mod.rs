//! Decodes the agent's answers into samples.
//!
//! The agent's counters and gauges go into the sample unchanged. This module computes running totals if the agent reports
//! differences (scans) or individual costs (items). It also computes sums over a round if the agent reads all processes in
//! several parts. Facts go into the sample only if they are new or have changed.

mod allocators;
mod broker;
mod call_stacks;
mod carriers;
mod code;
mod counters;
mod events;
mod facts;
pub(crate) mod files;
mod holders;
mod items;
pub(crate) mod locks;
mod messages;
mod processes;
mod tables;

use std::collections::{BTreeMap, HashMap, HashSet};

use beamtune_model::rows::CHILD_OF;
use beamtune_model::units::Nanos;
use beamtune_model::{Event, Gap, SampleBuilder, Span, TroubleKind, metrics};

use crate::agent::{Answer, Reading, Status};
use crate::error::printable;
use crate::etf::{Kind, Term, TermError};
pub use items::Item;
pub(crate) use items::{ITEMS, When};

/// Maximum number of entities read from one list of an answer. A VM with 128 schedulers has some 1,500 allocator instances, so a
/// longer list does not come from an honest node.
const MAX_ENTITIES: usize = 16_384;

/// Maximum number of rows about processes, tables, ports, nodes or events read from one list. The agent sends at most 200.
const MAX_ROWS: usize = 1_000;

/// Maximum number of characters read from a text. The agent truncates its texts to fewer.
const MAX_CHARACTERS: usize = 512;

const NS_PER_US: i64 = 1_000;

/// Decodes answers. Keeps the state between the answers of one incarnation of the node.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    facts: BTreeMap<String, String>,
    vm: Option<VmFacts>,
    scans: processes::Scans,
    events: events::Events,
    cost_ns: HashMap<String, i64>,
    /// RabbitMQ queues and clients that have series.
    names: broker::Names,
    /// Items that have already been reported as unsupported.
    unsupported: HashSet<String>,
}

/// Facts that are required to decode other items.
#[derive(Debug, Clone, Copy)]
struct VmFacts {
    schedulers: i64,
    dirty_cpu_schedulers: i64,
    word_bytes: i64,
    perf_counter_hz: i64,
}

/// The value of an item.
#[derive(Debug, Clone, Copy)]
struct Read<'a> {
    value: Term<'a>,
    /// When it was read, on the recorder's clock.
    span: Span,
    clock: Translation,
}

impl Read<'_> {
    /// Returns the instant assigned to the value: the middle of its span.
    fn t(&self) -> Nanos {
        self.span.middle()
    }
}

/// Identifies one incarnation of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Changes with each start of the VM.
    pub boot: String,
    pub os_pid: Option<u32>,
}

/// The recorder's clock minus VM monotonic time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Offset(pub Nanos);

impl Offset {
    /// Corrects the offset with the times of an answer. Reading the items began after the request was sent and ended before the
    /// answer arrived, which limits the offset on both sides. So the offset follows a VM whose clock is slewed, and stays
    /// unchanged as long as it is consistent.
    pub fn corrected(self, sent: Nanos, answer: &Answer, arrived: Nanos) -> Offset {
        let min = sent.saturating_sub(answer.begin_ns);
        let max = arrived.saturating_sub(answer.end_ns);
        Offset(if min <= max { self.0.clamp(min, max) } else { min / 2 + max / 2 })
    }

    /// Returns the translation of an answer's timestamps to the recorder's clock. The results lie between request and arrival,
    /// even if the node's timestamps are wrong.
    pub fn between(self, sent: Nanos, arrived: Nanos) -> Translation {
        Translation { offset: self, sent, arrived: arrived.max(sent) }
    }
}

/// Converts VM monotonic time to the recorder's clock, for one answer.
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

    /// As [`Translation::to_recorder`], for an instant that may be before the request. The result is never negative, since
    /// nothing can precede the start of the recording.
    pub fn to_recorder_earlier(self, vm_ns: i64) -> Nanos {
        vm_ns.saturating_add(self.offset.0).min(self.arrived).max(0)
    }
}

/// Returns the node's identity, if the answer contains the facts.
pub(crate) fn identity(answer: &Answer) -> Option<Identity> {
    answer.readings().ok()?.find_map(|reading| match reading.ok()? {
        Reading { item: "facts", status: Status::Done(value), .. } => facts::identity(value).ok(),
        _ => None,
    })
}

impl Decoder {
    /// Adds all items of an answer. A missing or malformed item becomes a gap.
    pub fn add(
        &mut self,
        answer: &Answer,
        clock: Translation,
        out: &mut SampleBuilder<'_>,
    ) -> Result<(), TermError> {
        let added = self.items(answer, clock, out);
        // An honest node sends each series only once. Readings from before an error are kept.
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
        let mut sum_ns = 0i64;
        for reading in answer.readings()?.take(ITEMS.len()) {
            let reading = reading?;
            // We inject the agent ourselves, so an honest node sends no other items.
            let Some(item) = Item::named(reading.item) else { continue };
            let begin = clock.to_recorder(reading.begin_ns);
            let read_ns = reading.cost_us.max(0).saturating_mul(NS_PER_US);
            let end = clock.to_recorder(reading.begin_ns.saturating_add(read_ns));
            let step_ns = match (reading.item, &reading.status) {
                ("procs", Status::Done(value)) => processes::step_ns(*value),
                _ => 0,
            };
            let cost_ns = read_ns.saturating_add(step_ns);
            sum_ns = sum_ns.saturating_add(cost_ns);
            let total = self.cost_ns.entry(reading.item.to_owned()).or_default();
            *total = total.saturating_add(cost_ns);
            out.metric(&metrics::AGENT_COST, reading.item, *total);
            let trouble = match reading.status {
                Status::Done(value) => {
                    let added = (item.decode)(self, Read { value, span: Span { begin, end }, clock }, out);
                    added.err().map(|error| (TroubleKind::Garbled, error.to_string()))
                }
                // Reported only once, since it cannot change.
                Status::Unsupported if !self.unsupported.insert(reading.item.to_owned()) => None,
                Status::Unsupported => Some((
                    TroubleKind::Unsupported,
                    "not supported by this OTP release or build of the VM".to_owned(),
                )),
                Status::Failed(reason) => Some((TroubleKind::Garbled, printable(reason))),
                Status::TimedOut(stuck_on) => Some((
                    TroubleKind::TimedOut,
                    match stuck_on {
                        Some(process) => format!("reading {} hung", printable(process)),
                        None => "reading took too long".to_owned(),
                    },
                )),
                Status::Skipped => {
                    Some((TroubleKind::TimedOut, "not read, because earlier items hung".to_owned()))
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
        self.cost(answer.cost()?, sum_ns, out)
    }

    fn vm(&self, item: Term<'_>) -> Result<VmFacts, TermError> {
        self.vm
            .ok_or(TermError::MissingKey { key: "schedulers (the facts are missing)", offset: item.offset() })
    }

    /// Adds facts that are new or have changed.
    fn facts(&mut self, value: Term<'_>, out: &mut SampleBuilder<'_>) -> Result<(), TermError> {
        self.vm = Some(VmFacts {
            schedulers: required(value, "schedulers")?,
            dirty_cpu_schedulers: required(value, "dirty_cpu_schedulers")?,
            word_bytes: required(value, "word_bytes")?,
            perf_counter_hz: required(value, "perf_counter_per_s")?,
        });
        out.metric(&metrics::SCHEDULERS_ONLINE, "", required(value, "schedulers_online")?);
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

    /// Adds the agent's own cost: running totals, as the VM accounts for them.
    fn cost(&mut self, cost: Term<'_>, sum_ns: i64, out: &mut SampleBuilder<'_>) -> Result<(), TermError> {
        let total = self.cost_ns.entry(String::new()).or_default();
        *total = total.saturating_add(sum_ns);
        out.metric(&metrics::AGENT_COST, "", *total);
        // A collector that replaces another starts from zero: a counter reset like any other.
        let reductions =
            required(cost, "agent_reductions")?.saturating_add(required(cost, "collector_reductions")?);
        out.metric(&metrics::AGENT_REDUCTIONS, "", reductions);
        if let Some(memory) = number(cost, "memory_bytes")? {
            out.metric(&metrics::AGENT_MEMORY, "", memory);
        }
        Ok(())
    }
}

/// Creates an event.
fn event(t: Nanos, kind: &str, subject: &str, detail: String) -> Event {
    Event { t, kind: kind.to_owned(), subject: subject.to_owned(), detail }
}

/// Returns the number under a key; `None` if the key is absent or its value is an atom such as `undefined`.
fn number(map: Term<'_>, key: &str) -> Result<Option<i64>, TermError> {
    match map.get(key)? {
        Some(value) if value.kind() == Kind::Atom => Ok(None),
        Some(value) => value.as_i64().map(Some),
        None => Ok(None),
    }
}

/// Returns the number under a mandatory key.
fn required(map: Term<'_>, key: &'static str) -> Result<i64, TermError> {
    map.field(key)?.as_i64()
}

/// Returns a number that must not be negative.
fn amount(term: Term<'_>) -> Result<i64, TermError> {
    match term.as_i64()? {
        amount @ 0.. => Ok(amount),
        _ => Err(TermError::OutOfRange { expected: "a non-negative number", offset: term.offset() }),
    }
}

/// Returns the text under a key, an atom or a binary; `None` if it is absent, empty or `undefined`.
fn text(map: Term<'_>, key: &str) -> Result<Option<String>, TermError> {
    match map.get(key)? {
        Some(value) => bounded_text(value),
        None => Ok(None),
    }
}

/// Returns the text of an atom or a binary, truncated to [`MAX_CHARACTERS`].
fn bounded_text(value: Term<'_>) -> Result<Option<String>, TermError> {
    let text = match value.kind() {
        Kind::Atom => match value.as_atom()? {
            "undefined" => return Ok(None),
            name => name,
        },
        _ => value.as_str()?,
    };
    let text: String = text.chars().take(MAX_CHARACTERS).collect();
    Ok(Some(text).filter(|text| !text.is_empty()))
}

/// Formats `{Module, Function, Arity}` as `module:function/arity`, and `{child_of, Maker}` as `child of maker`. Returns `None`
/// for `undefined`.
fn function(value: Term<'_>) -> Result<Option<String>, TermError> {
    if value.kind() == Kind::Atom {
        return Ok(None);
    }
    let part = |term| bounded_text(term).map(Option::unwrap_or_default);
    if let Ok([tag, maker]) = value.tuple_of()
        && tag.as_atom().is_ok_and(|tag| tag == "child_of")
    {
        return Ok(Some(format!("{CHILD_OF}{}", part(maker)?)));
    }
    let [module, function, arity] = value.tuple_of()?;
    Ok(Some(format!("{}:{}/{}", part(module)?, part(function)?, arity.as_i64()?)))
}

/// Returns the list under a key, truncated to [`MAX_ENTITIES`].
fn list<'a>(map: Term<'a>, key: &'static str) -> Result<impl Iterator<Item = Term<'a>>, TermError> {
    Ok(map.field(key)?.list()?.take(MAX_ENTITIES))
}

/// As [`list`], for rows with names and texts, which are truncated to [`MAX_ROWS`].
fn rows<'a>(map: Term<'a>, key: &'static str) -> Result<impl Iterator<Item = Term<'a>>, TermError> {
    Ok(list(map, key)?.take(MAX_ROWS))
}

#[cfg(test)]
mod tests;
