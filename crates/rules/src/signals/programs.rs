//! External programs: how many, by name, and which process starts them.

use std::collections::HashMap;

use beamtune_model::{Group, Period, ProcessUse, SeriesStat, Subject, metrics};

use crate::signals::stack;

/// A program that is at work nearly all the time, in cores (judgement).
pub(crate) const BUSY_CORES: f64 = 0.7;

/// Readings at the end over which a number must have held: programs are short-lived.
const LAST: usize = 3;

/// The starter of programs, by its stacks and its ports.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Starter {
    /// The process; `None` if only the function was seen.
    pub process: Option<Subject>,
    /// The program's own function that starts them.
    pub function: Option<String>,
    /// Samples in which it started one, and ports of programs that it has.
    pub seen: i64,
}

impl Starter {
    /// In words: `reports (<0.99.0>), in report:render/1`.
    pub(crate) fn said(&self) -> String {
        match (&self.process, &self.function) {
            (Some(process), Some(function)) => format!("{process}, in {function}"),
            (Some(process), None) => process.to_string(),
            (None, Some(function)) => function.clone(),
            (None, None) => String::new(),
        }
    }
}

/// The processes that were sampled starting programs or waiting for them, most frequent first.
pub(crate) fn starters(period: &Period) -> Vec<Starter> {
    let mut seen: HashMap<(Option<&str>, Option<&str>), i64> = HashMap::new();
    for process in &period.processes {
        for (places, looks) in process.ran.iter().chain(&process.stood) {
            if let Some(function) = stack::of_start(places) {
                let sum = seen.entry((Some(process.pid.as_str()), function)).or_default();
                *sum = sum.saturating_add(*looks);
            }
        }
    }
    for place in &period.stands.places {
        if let Some(function) = stack::of_start(&place.stack) {
            let sum = seen.entry((place.pid.as_deref(), function)).or_default();
            *sum = sum.saturating_add(place.count);
        }
    }
    // A port that was closed before the end is not counted: its row is the last that there was.
    for port in period.ports.iter().filter(|port| port.os_pid.is_some()) {
        let Some(owner) = port.connected.as_deref() else { continue };
        let known = seen.keys().find(|(pid, _)| *pid == Some(owner)).copied();
        *seen.entry(known.unwrap_or((Some(owner), None))).or_default() += 1;
    }
    let mut starters: Vec<Starter> = (seen.into_iter())
        .map(|((pid, function), seen)| Starter {
            process: pid.map(|pid| {
                let known = period.process(pid).map(|process| process.subject());
                known.unwrap_or(Subject::Process { pid: pid.to_owned(), name: None })
            }),
            function: function.map(str::to_owned),
            seen,
        })
        .filter(|starter| starter.process.is_some() || starter.function.is_some())
        .collect();
    for opener in openers(period) {
        if starters.iter().all(|starter| starter.process != opener.process) {
            starters.push(opener);
        }
    }
    starters.sort_by_key(|starter| (-starter.seen, starter.said()));
    starters
}

/// The openers of new ports of programs with a known name.
fn openers(period: &Period) -> impl Iterator<Item = Starter> {
    let programs = named(period);
    let rows = period.spawns.iter().filter(move |row| row.what == "port" && is_of(&programs, &row.kind));
    rows.filter_map(move |row| {
        let maker = row.maker.as_deref()?;
        let process = period.process_named(maker).map_or_else(|| Subject::kind(maker), ProcessUse::subject);
        Some(Starter { process: Some(process), function: None, seen: row.count })
    })
}

/// Whether a port's command starts one of these programs: `/usr/bin/cksum -a` starts `cksum`.
fn is_of(programs: &[Named<'_>], command: &str) -> bool {
    let path = command.split(' ').next().unwrap_or_default();
    let name = path.rsplit('/').next().unwrap_or_default();
    programs.iter().any(|program| program.name == name)
}

/// Programs of one name.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Named<'a> {
    pub name: &'a str,
    /// Processes at the end.
    pub alive: i64,
    /// Of them, orphans.
    pub orphans: i64,
    /// CPU of those that lived long enough to be sampled, in cores.
    pub cores: f64,
    /// The age of the oldest, in seconds.
    pub oldest_seconds: Option<f64>,
}

/// The name of the process that starts the programs, and of each program for the moment before it executes.
const SETUP: &str = "erl_child_setup";

/// All that were sampled, by name.
pub(crate) fn named(period: &Period) -> Vec<Named<'_>> {
    let is_name = |name: &&str| !name.is_empty() && *name != SETUP;
    let names = period.entities(Group::HostPrograms).into_iter().filter(is_name);
    let last = |metric, name| period.stat(metric, name).map_or(0, |stat| stat.last.value);
    names
        .map(|name| Named {
            name,
            alive: last(&metrics::PROGRAMS_ALIVE, name),
            orphans: last(&metrics::PROGRAMS_ORPHANS, name),
            cores: period.cores(&metrics::PROGRAMS_CPU, name).unwrap_or(0.0),
            oldest_seconds: (period.stat(&metrics::PROGRAMS_OLDEST, name).ok())
                .map(|stat| beamtune_model::units::seconds(stat.last.value)),
        })
        .collect()
}

/// The minimum of the last readings: it has held for a while.
pub(crate) fn held(stat: &SeriesStat) -> i64 {
    let points = stat.trace.points();
    let last = points.iter().rev().take(LAST).map(|(_, value)| *value);
    last.chain([stat.last.value]).min().unwrap_or(0)
}

/// The maximum of the last readings.
pub(crate) fn most_held(stat: &SeriesStat) -> i64 {
    let points = stat.trace.points();
    let last = points.iter().rev().take(LAST).map(|(_, value)| *value);
    last.chain([stat.last.value]).max().unwrap_or(0)
}
