//! External programs: their number, their names, and the processes that start them.

use std::collections::HashMap;

use beamtune_model::{Group, Period, ProcessActivity, SeriesStat, Subject, metrics};

use crate::signals::stack;

/// A program with this CPU use is busy nearly all the time, in cores (judgement).
pub(crate) const BUSY_CORES: f64 = 0.7;

/// Number of last readings over which a value must persist: programs are short-lived.
const LAST: usize = 3;

/// A process that starts external programs, recognized by its stacks and its ports.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Starter {
    /// The process; `None` if only the function was sampled.
    pub process: Option<Subject>,
    /// The Erlang program's own function that starts them.
    pub function: Option<String>,
    /// Number of samples in which it started a program, plus its ports of programs.
    pub seen: i64,
}

impl Starter {
    /// Formats process and function: `reports (<0.99.0>), in report:render/1`.
    pub(crate) fn text(&self) -> String {
        match (&self.process, &self.function) {
            (Some(process), Some(function)) => format!("{process}, in {function}"),
            (Some(process), None) => process.to_string(),
            (None, Some(function)) => function.clone(),
            (None, None) => String::new(),
        }
    }
}

/// Returns the processes that were sampled while they started programs or waited for them, most frequent first.
pub(crate) fn starters(period: &Period) -> Vec<Starter> {
    let mut seen: HashMap<(Option<&str>, Option<&str>), i64> = HashMap::new();
    for process in &period.processes {
        for (places, looks) in process.run_stacks.iter().chain(&process.wait_stacks) {
            if let Some(function) = stack::of_start(places) {
                let sum = seen.entry((Some(process.pid.as_str()), function)).or_default();
                *sum = sum.saturating_add(*looks);
            }
        }
    }
    for place in &period.wait_samples.stacks {
        if let Some(function) = stack::of_start(&place.stack) {
            let sum = seen.entry((place.pid.as_deref(), function)).or_default();
            *sum = sum.saturating_add(place.count);
        }
    }
    // Each port counts once, with its last row, even if it was closed before the end.
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
    starters.sort_by_key(|starter| (-starter.seen, starter.text()));
    starters
}

/// Returns the openers of new ports of programs with a known name.
fn openers(period: &Period) -> impl Iterator<Item = Starter> {
    let programs = named(period);
    let rows = period.spawns.iter().filter(move |row| row.what == "port" && is_of(&programs, &row.kind));
    rows.filter_map(move |row| {
        let maker = row.creator.as_deref()?;
        let process =
            period.process_named(maker).map_or_else(|| Subject::kind(maker), ProcessActivity::subject);
        Some(Starter { process: Some(process), function: None, seen: row.count })
    })
}

/// Whether a port's command starts one of these programs: `/usr/bin/cksum -a` starts `cksum`.
fn is_of(programs: &[Named<'_>], command: &str) -> bool {
    let path = command.split(' ').next().unwrap_or_default();
    let name = path.rsplit('/').next().unwrap_or_default();
    programs.iter().any(|program| program.name == name)
}

/// External programs with the same name.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Named<'a> {
    pub name: &'a str,
    /// Number of processes at the end of the period.
    pub alive: i64,
    /// Number of orphans among them.
    pub orphans: i64,
    /// CPU use of those that lived long enough to be sampled, in cores.
    pub cores: f64,
    /// Age of the oldest one, in seconds.
    pub oldest_seconds: Option<f64>,
}

/// Name of the process that starts the programs, and of each program until it calls exec.
const SETUP: &str = "erl_child_setup";

/// Returns all sampled programs, by name.
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

/// Returns the minimum of the last readings, which has persisted.
pub(crate) fn recent_min(stat: &SeriesStat) -> i64 {
    let points = stat.trace.points();
    let last = points.iter().rev().take(LAST).map(|(_, value)| *value);
    last.chain([stat.last.value]).min().unwrap_or(0)
}

/// Returns the maximum of the last readings.
pub(crate) fn recent_max(stat: &SeriesStat) -> i64 {
    let points = stat.trace.points();
    let last = points.iter().rev().take(LAST).map(|(_, value)| *value);
    last.chain([stat.last.value]).max().unwrap_or(0)
}
