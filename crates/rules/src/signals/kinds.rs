//! Kinds of processes: what they are, and where they wait. Processes of one kind have the same fault and the same remedy.

use beamtune_model::rows::CHILD_OF;
use beamtune_model::{ProcessActivity, Signal};

use crate::signals::stack;

/// If a process ran or was runnable in this share of its samples, the place where it waits is meaningless (judgement).
const AT_WORK: f64 = 0.5;

/// Common name of all functions in which a process waits for a port to accept its data.
const SEND: &str = "a send";

/// The kind of a process, and where it waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kind {
    /// Its initial call, or its registered name with the numbers replaced: `shop_worker_*`.
    pub name: String,
    /// `prim_inet:recv0/3, called by shop:ask/1`; `None` if it mostly runs.
    pub place: Option<String>,
}

impl Kind {
    /// Returns the kind of a process; `None` if only its pid is known.
    pub(crate) fn of(process: &ProcessActivity) -> Option<Kind> {
        let row = process.row.as_ref()?;
        let name = match (&row.name, &row.initial_call, &row.label) {
            (Some(name), ..) => family(name),
            (None, Some(call), _) => call.clone(),
            (None, None, Some(label)) => family(label),
            (None, None, None) => return None,
        };
        Some(Kind { name, place: place(process) })
    }

    /// Returns the signal for this kind; `None` for processes that mostly run.
    pub(crate) fn signal(&self) -> Option<Signal> {
        let place = self.place.clone()?;
        Some(Signal::WaitsIn { kind: self.name.clone(), place })
    }
}

fn place(process: &ProcessActivity) -> Option<String> {
    if stack::runnable_share(process).is_some_and(|share| share >= AT_WORK) {
        return None;
    }
    let (at, stack) = stack::waiting_function(process)?;
    Some(stack::with_caller(if stack::is_send(at) { SEND } else { at }, stack))
}

/// Whether a process at this place waits for a port to accept its data.
pub(crate) fn is_send(place: &str) -> bool {
    place.starts_with(SEND)
}

/// Formats processes of a kind, given by initial call or name.
pub(crate) fn in_words(kind: &str) -> String {
    match kind.strip_prefix(CHILD_OF) {
        Some(maker) => format!("the children of {maker}"),
        None if kind.contains(':') && kind.contains('/') => format!("the processes started with {kind}"),
        None => kind.to_owned(),
    }
}

/// True for a kind known only by its supervisor.
pub(crate) fn says_nothing(kind: &str) -> bool {
    kind.strip_prefix(CHILD_OF).is_some_and(stack::is_supervisor)
}

/// Replaces the numbers in a name: `shop_worker_*` for `shop_worker_12`.
fn family(name: &str) -> String {
    let mut family = String::with_capacity(name.len());
    for character in name.chars() {
        match character {
            '0'..='9' if family.ends_with('*') => {}
            '0'..='9' => family.push('*'),
            other => family.push(other),
        }
    }
    family
}

#[cfg(test)]
mod tests {
    use beamtune_model::{PeriodBuilder, ProcessRow, RunSampleRow};

    use super::*;

    fn list(stack: &str) -> Vec<String> {
        stack.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn a_kind_is_a_name_without_numbers_or_an_initial_call_with_the_place_of_waiting() {
        let check =
            |(name, call, label): (&str, &str, &str), stack: &str, stood: &str, expect: (&str, &str)| {
                let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
                let pid = || "<0.9.0>".to_owned();
                let mut builder = PeriodBuilder::default();
                builder.process(ProcessRow {
                    pid: pid(),
                    name: text(name),
                    initial_call: text(call),
                    label: text(label),
                    current_function: list(stack).first().cloned(),
                    stack: list(stack),
                    ..ProcessRow::default()
                });
                if !stood.is_empty() {
                    builder.run_sample(RunSampleRow {
                        pid: pid(),
                        stack: list(stood),
                        samples: 4,
                        is_waiting: true,
                        ..RunSampleRow::default()
                    });
                }
                let period = builder.finish();
                let kind = period.process("<0.9.0>").and_then(Kind::of);
                let kind = kind.map(|kind| (kind.name, kind.place.unwrap_or_default()));
                let kind = kind.as_ref().map_or(("", ""), |(name, place)| (name, place));
                assert_eq!(kind, expect);
            };
        let recv = "prim_inet:recv0/3 shop:ask/1";
        let by_name = ("shop_worker_12", "shop:init/1", "");
        check(by_name, recv, "", ("shop_worker_*", "prim_inet:recv0/3, called by shop:ask/1"));
        // All sends count as one place, whichever OTP function the process is in. Several samples outweigh the last inspection.
        let by_call = ("", "shop:init/1", "conn 7");
        check(by_call, "prim_inet:send/4 shop:tell/1", "", ("shop:init/1", "a send, called by shop:tell/1"));
        check(
            by_call,
            recv,
            "erts_internal:port_command/3 shop:tell/1",
            ("shop:init/1", "a send, called by shop:tell/1"),
        );
        check(("", "", "conn 7"), "", "", ("conn *", ""));
        check(("", "", ""), recv, "", ("", ""));
    }
}
