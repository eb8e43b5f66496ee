//! Supervisors and their children.

use beamtune_model::{ExitRow, Period, ProcessActivity, ProcessRow};

use super::new_processes;

/// Prefixes of the initial calls of OTP's supervisors, and of Elixir's dynamic ones, which keep no specifications of children that have
/// ended.
const SUPERVISOR: &str = "supervisor:";
const DYNAMIC: [&str; 2] = ["Elixir.DynamicSupervisor:", "supervisor:Elixir.Task.Supervisor/"];

pub(crate) fn is_supervisor(row: &ProcessRow) -> bool {
    row.initial_call.as_deref().is_some_and(|call| call.starts_with(SUPERVISOR)) || is_dynamic(row)
}

/// Whether a supervisor keeps no specifications of children that have ended.
pub(crate) fn is_dynamic(row: &ProcessRow) -> bool {
    row.initial_call.as_deref().is_some_and(|call| DYNAMIC.iter().any(|known| call.starts_with(known)))
}

/// Functions that handle `which_children` and `count_children` (supervisor.erl of OTP 23 to 29, dynamic_supervisor.ex of Elixir 1.14).
const LISTING: [&str; 7] = [
    "maps:fold",
    "maps:map",
    "lists:map",
    "supervisor:children_",
    "supervisor:dyn_fold",
    "supervisor:dyn_map",
    "supervisor:count_child",
];

/// Whether a supervisor was sampled while it listed or counted its children.
pub(crate) fn lists_children(process: &ProcessActivity) -> bool {
    let is_listing = |stack: &[String]| {
        let answers = stack.iter().any(|function| function.contains("upervisor:handle_call/"));
        answers && stack.iter().any(|function| super::stack::begins(function, &LISTING))
    };
    process.run_stacks.iter().any(|(stack, _)| is_listing(stack))
}

/// Returns the number of its children that were recorded to end normally.
pub(crate) fn ends(period: &Period, row: &ProcessRow) -> i64 {
    // Named children that end normally are restarted together with a sibling, so they are left out.
    ended(period, row, |exit| exit.reason.is_none() && exit.name.is_none())
}

/// Returns the number of its children that were recorded to crash.
pub(crate) fn crashes(period: &Period, row: &ProcessRow) -> i64 {
    ended(period, row, |exit| exit.reason.is_some())
}

fn ended(period: &Period, row: &ProcessRow, is_meant: impl Fn(&ExitRow) -> bool) -> i64 {
    let is_its = |exit: &ExitRow| {
        exit.parent.as_deref() == Some(row.pid.as_str())
            || exit.parent_name.is_some() && exit.parent_name == row.name
    };
    let rows = period.exits.iter().filter(|exit| is_meant(exit) && is_its(exit));
    rows.fold(0, |sum: i64, exit| sum.saturating_add(exit.count))
}

/// Returns the number of sampled new processes that it started.
pub(crate) fn starts(period: &Period, row: &ProcessRow) -> i64 {
    let makers = [row.name.as_deref(), row.initial_call.as_deref()];
    new_processes::rows(period)
        .filter(|spawn| spawn.creator.is_some() && makers.contains(&spawn.creator.as_deref()))
        .fold(0, |sum: i64, spawn| sum.saturating_add(spawn.count))
}
