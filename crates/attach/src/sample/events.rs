//! Decodes system monitor events: long time slices and garbage collections, large heaps, and processes that waited for a busy
//! port or distribution port.

use std::fmt::Write;

use beamtune_model::{Gap, SampleBuilder, Span, TroubleKind, metrics};

use super::{Translation, event, function, required, rows, text};
use crate::etf::{Term, TermError};

/// The monitored kinds of events, and the units of their values.
const KINDS: &[(&str, Value)] = &[
    ("long_schedule", Value::Milliseconds),
    ("long_gc", Value::Milliseconds),
    ("large_heap", Value::Bytes),
    ("busy_port", Value::Nothing),
    ("busy_dist_port", Value::Nothing),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Value {
    Milliseconds,
    Bytes,
    Nothing,
}

const NS_PER_MS: i64 = 1_000_000;

/// State kept from sample to sample.
#[derive(Debug, Default)]
pub(super) struct Events {
    floods: i64,
}

impl Events {
    /// Adds the item, which was read during `span` on the recorder's clock.
    pub fn add(
        &mut self,
        value: Term<'_>,
        span: Span,
        clock: Translation,
        out: &mut SampleBuilder<'_>,
    ) -> Result<(), TermError> {
        if value.field("how")?.as_atom()? == "taken" {
            let owner = text(value, "owner")?.unwrap_or_default();
            let name = text(value, "owner_name")?.or(called(value, "owner_call")?);
            out.sample.gaps.push(Gap {
                begin: span.begin,
                end: span.end,
                source: "vm.events".to_owned(),
                kind: TroubleKind::Denied,
                reason: match name {
                    Some(name) => {
                        format!("{name} {owner} already uses the VM's only system_monitor")
                    }
                    None => format!("{owner} already uses the VM's only system_monitor"),
                },
            });
            return Ok(());
        }
        let mut longest = [0; KINDS.len()];
        for row in rows(value, "rows")? {
            let kind = row.field("kind")?.as_atom()?;
            let Some(at) = KINDS.iter().position(|(known, _)| *known == kind) else { continue };
            let amount = required(row, "value")?.max(0);
            longest[at] = longest[at].max(amount);
            let t = clock.to_recorder_earlier(required(row, "at_ns")?);
            out.sample.events.push(event(t, kind, &subject(row)?, detail(row, KINDS[at].1, amount)?));
        }
        // Kinds that have not occurred so far are absent.
        let mut counted = [(0, 0); KINDS.len()];
        for row in rows(value, "counts")? {
            let [kind, count, sum] = row.tuple_of()?;
            let kind = kind.as_atom()?;
            if let Some(at) = KINDS.iter().position(|(known, _)| *known == kind) {
                counted[at] = (count.as_i64()?, sum.as_i64()?);
            }
        }
        for ((&(kind, unit), longest), (count, sum)) in KINDS.iter().zip(longest).zip(counted) {
            out.metric(&metrics::EVENT_COUNT, kind, count);
            if unit == Value::Milliseconds {
                out.metric(&metrics::EVENT_TIME, kind, sum.saturating_mul(NS_PER_MS));
                out.metric(&metrics::EVENT_LONGEST, kind, longest.saturating_mul(NS_PER_MS));
            }
        }
        let floods = required(value, "floods")?;
        if floods > self.floods {
            let why = "too many events; monitoring paused for a second or longer each time".to_owned();
            out.sample.events.push(event(span.begin, "event_flood", "", why));
        }
        self.floods = floods;
        Ok(())
    }
}

/// Formats the process: its name, label or initial call, with its pid.
fn subject(row: Term<'_>) -> Result<String, TermError> {
    let pid = text(row, "subject")?.unwrap_or_default();
    let name = text(row, "name")?.or(text(row, "label")?).or(called(row, "call")?);
    Ok(match name {
        Some(name) => format!("{name} ({pid})"),
        None => pid,
    })
}

fn detail(row: Term<'_>, unit: Value, amount: i64) -> Result<String, TermError> {
    let mut detail = match unit {
        Value::Milliseconds => format!("{amount} ms"),
        Value::Bytes => format!("{} MB of heap", amount / 1_000_000),
        Value::Nothing => String::new(),
    };
    // Writing to a String never fails.
    if let Some(heap_bytes) = super::number(row, "heap_bytes")? {
        let _ = write!(detail, ", {} MB of heap", heap_bytes / 1_000_000);
    }
    if let Some(within) = called(row, "in")? {
        let _ = write!(detail, " from {within}");
    }
    if let Some(out) = called(row, "out")? {
        let _ = write!(detail, " to {out}");
    }
    if let Some(port) = text(row, "port")? {
        let what = text(row, "node")?.or(text(row, "port_kind")?);
        let _ = match what {
            Some(what) => write!(detail, "waited for {what} {port}"),
            None => write!(detail, "waited for {port}"),
        };
    }
    Ok(detail)
}

fn called(row: Term<'_>, key: &str) -> Result<Option<String>, TermError> {
    row.get(key)?.map(function).transpose().map(Option::flatten)
}
