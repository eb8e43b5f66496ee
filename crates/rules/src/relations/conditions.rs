//! Conditions under which one finding causes another.

use beamtune_model::{Account, Cost, CpuUse, Finding, Level, MemoryKind, Signal, Subject};

use super::EXPLAINS;
use crate::signals::acceptors::RANCH_STARTS;
use crate::signals::kinds;
use crate::signals::programs::BUSY_CORES;

pub(super) fn always(_: &Finding, _: &Finding) -> bool {
    true
}

/// Whether the cause makes copies about as often as the effect maps segments for heaps.
pub(super) fn maps_heaps(copies: &Finding, segments: &Finding) -> bool {
    copies.has(&Signal::Allocates) && segments.is_about(&Subject::allocator("eheap_alloc"))
}

/// Whether both have the same subject, or are about processes of one kind that wait in the same place.
pub(super) fn same_subject(cause: &Finding, effect: &Finding) -> bool {
    let (one, other) = (stands_at(cause), stands_at(effect));
    let is_apart = one.is_some() && other.is_some() && one != other;
    let is_same = || cause.subject.iter().chain(members(cause)).any(|subject| concerns(effect, subject));
    one.is_some() && one == other || !is_apart && is_same()
}

/// Whether memory of this kind grows, and the cause is what grows.
pub(super) fn both_grow(cause: &Finding, effect: &Finding, kind: MemoryKind) -> bool {
    [cause, effect].into_iter().all(|finding| finding.has(&Signal::Grows(kind)))
}

/// Whether this is the subject of the finding, or one of the processes that it names.
fn concerns(finding: &Finding, subject: &Subject) -> bool {
    finding.is_about(subject) || members(finding).any(|member| member.is_same(subject))
}

/// The processes that a finding about a kind names.
fn members(finding: &Finding) -> impl Iterator<Item = &Subject> {
    finding.signals.iter().filter_map(|signal| match signal {
        Signal::Member(subject) => Some(subject),
        _ => None,
    })
}

/// The kind of the finding's processes, and where they wait.
fn stands_at(finding: &Finding) -> Option<&Signal> {
    finding.signals.iter().find(|signal| matches!(signal, Signal::WaitsIn { .. }))
}

/// Whether both are about processes that wait in a send.
pub(super) fn stands_in_send(cause: &Finding, effect: &Finding) -> bool {
    let sends = |finding: &Finding| matches!(stands_at(finding), Some(Signal::WaitsIn { place, .. }) if kinds::is_send(place));
    sends(cause) && sends(effect)
}

/// Whether the finding is neither about one process nor about several of a kind, each of which produces its own garbage.
pub(super) fn is_no_single_process(finding: &Finding) -> bool {
    finding.subject.as_ref().is_none_or(|subject| subject.pid().is_none())
        && members(finding).next().is_none()
}

/// Whether the host may have caused the long time. The rules of these effects check that, and report a notice if so.
pub(super) fn may_be_the_hosts(_: &Finding, effect: &Finding) -> bool {
    effect.level == Level::Notice && takes_long(effect)
}

/// Whether the finding is about a duration. The size of a heap does not depend on the host.
pub(super) fn takes_long(effect: &Finding) -> bool {
    !effect.has(&Signal::HeapSize)
}

/// Whether this is the reason for most of the unused CPU.
pub(super) fn is_unused(effect: &Finding, why: CpuUse) -> bool {
    effect.has(&Signal::Unused(why))
}

/// Whether work waits for replies from the cause's process.
pub(super) fn waits_there(cause: &Finding, effect: &Finding) -> bool {
    is_unused(effect, CpuUse::WaitingForReplies) && same_subject(cause, effect)
}

/// Whether callers have given up and their exits fill the log. The cause must not be a pool that itself waits for the log.
pub(super) fn ends_are_logged(cause: &Finding, effect: &Finding) -> bool {
    effect.subject.as_ref().is_some_and(|log| !cause.is_about(log) && !waits_for(cause, log))
        && cause.has(&Signal::GaveUp)
        && effect.has(&Signal::LogsEnds)
}

pub(super) fn is_about_flag(finding: &Finding, flag: &str) -> bool {
    matches!(&finding.subject, Some(Subject::Flag { name }) if name == flag)
}

/// Whether the finding's subject waits for `what`.
pub(super) fn waits_for(finding: &Finding, what: &Subject) -> bool {
    finding.signals.iter().any(|signal| matches!(signal, Signal::WaitsFor(on) if on.is_same(what)))
}

/// Whether the effect is about one of several processes that the cause's waiters wait for, or about a kind with such processes.
pub(super) fn is_one_of_waited_for(waits: &Finding, effect: &Finding) -> bool {
    members(waits).any(|member| concerns(effect, member))
}

/// Whether the finding is about a single process.
pub(super) fn is_single_process(finding: &Finding) -> bool {
    finding.subject.as_ref().is_some_and(|subject| subject.pid().is_some())
}

/// Whether the effect is about the connection at whose other end the cause waits.
pub(super) fn is_other_end(sender: &Finding, unread: &Finding) -> bool {
    sender.signals.iter().any(|signal| match signal {
        Signal::WaitsFor(address @ Subject::Socket { .. }) => concerns(unread, address),
        _ => false,
    })
}

/// Whether work takes turns, possibly because of this process.
pub(super) fn takes_turns(idle: &Finding, of: &Finding) -> bool {
    idle.signals.iter().any(|signal| matches!(signal, Signal::TurnsFor(who) if concerns(of, who)))
}

/// Whether processes exit because of a missing reply from the process, or one of the processes, that others wait for.
pub(super) fn gives_up_on(waited_for: &Finding, crashes: &Finding) -> bool {
    let names: Vec<&str> =
        waited_for.subject.iter().chain(members(waited_for)).flat_map(Subject::names).collect();
    crashes.signals.iter().any(|signal| {
        matches!(signal, Signal::WaitsFor(Subject::ProcessKind { name, .. }) if names.contains(&name.as_str()))
    })
}

/// Whether the new processes replace those that have crashed.
pub(super) fn starts_them_anew(crashes: &Finding, starts: &Finding) -> bool {
    let starter = |subject: &Subject| match subject {
        Subject::ProcessKind { starter, .. } => starter.clone(),
        _ => None,
    };
    let of = crashes.subject.as_ref().and_then(starter);
    crashes.level > Level::Notice && of.is_some() && starts.subject.as_ref().and_then(starter) == of
}

/// Processes that search for, load or purge modules.
const LOADERS: [&str; 3] = ["code_server", "erl_prim_loader", "erts_code_purger"];

pub(super) fn of_loading(_: &Finding, effect: &Finding) -> bool {
    effect.subject.as_ref().is_some_and(is_loader)
}

pub(super) fn is_loader(subject: &Subject) -> bool {
    matches!(subject, Subject::Process { name: Some(name), .. } if LOADERS.contains(&name.as_str()))
}

/// Whether its rule names what occupies the node's CPU.
pub(super) fn has_the_cpu(cause: &Finding) -> bool {
    crate::rule(cause.code.0).is_some_and(|rule| rule.explains_run_queue)
}

/// Whether it takes at least half of the CPU that the node may use. Runnable processes then wait because of it, except for busy wait, which
/// ends when there is work.
pub(super) fn takes_half(cause: &Finding) -> bool {
    let is_of_work = crate::rule(cause.code.0).is_some_and(|rule| rule.account == Account::CpuUsed);
    is_of_work
        && cause.claim.is_some_and(|claim| {
            matches!(claim.cost, Cost::CpuCores(_))
                && claim.part != Some(CpuUse::BusyWaiting)
                && claim.share.is_some_and(|share| share >= EXPLAINS)
        })
}

/// Whether the cause keeps the effect's process busy.
pub(super) fn drives(cause: &Finding, effect: &Finding) -> bool {
    cause.signals.iter().any(|signal| matches!(signal, Signal::Drives(process) if concerns(effect, process)))
}

/// Whether the effect is part of the work of the cause's process, and does not keep that process busy.
pub(super) fn is_its_work(cause: &Finding, effect: &Finding) -> bool {
    let is_of = |signal: &Signal| matches!(signal, Signal::WorkOf(process) if cause.is_about(process));
    effect.signals.iter().any(is_of) && !drives(effect, cause)
}

/// Whether the effect is about processes that the cause keeps busy, or about no single process while those do most of the node's work.
pub(super) fn drives_most(cause: &Finding, effect: &Finding) -> bool {
    drives(cause, effect) || is_no_single_process(effect) && cause.has(&Signal::DrivesMost)
}

/// Whether neither other OS processes nor a quota take the CPU.
pub(super) fn is_its_own(starved: &Finding) -> bool {
    starved.subject.is_none()
}

/// Whether the effect is about processes that run the code, or about no processes at all.
pub(super) fn runs(code: &Finding, effect: &Finding) -> bool {
    let is_processes =
        |subject: &Subject| matches!(subject, Subject::Process { .. } | Subject::ProcessKind { .. });
    match &effect.subject {
        Some(subject) if is_processes(subject) => runners(code).any(|kind| is_of_kind(effect, kind)),
        _ => true,
    }
}

/// Kinds of processes that run the code, most frequent first.
fn runners(code: &Finding) -> impl Iterator<Item = &Subject> {
    code.signals.iter().filter_map(|signal| match signal {
        Signal::RunBy(kind) => Some(kind),
        _ => None,
    })
}

/// Whether a finding is about processes of this kind.
fn is_of_kind(finding: &Finding, kind: &Subject) -> bool {
    let names = finding.subject.as_ref().map(Subject::names).unwrap_or_default();
    kind.names().iter().any(|name| names.contains(name))
}

/// Whether the effect is about the processes that run the code most often.
pub(super) fn is_of_main_runner(code: &Finding, effect: &Finding) -> bool {
    runners(code).next().is_some_and(|kind| is_of_kind(effect, kind))
}

/// Whether only the other finding's process runs the code.
pub(super) fn runs_all(code: &Finding, of: &Finding) -> bool {
    let mut runners = runners(code);
    matches!((runners.next(), runners.next()), (Some(kind), None) if is_of_kind(of, kind))
}

/// Whether the programs use as much CPU as a program that works nearly all the time.
pub(super) fn runs_programs_all_the_time(programs: &Finding) -> bool {
    matches!(programs.claim.map(|claim| claim.cost), Some(Cost::CpuCores(cores)) if cores >= BUSY_CORES)
}

/// Whether it takes at least a quarter of the CPU that the node may use.
pub(super) fn takes_quarter(cause: &Finding) -> bool {
    cause.claim.is_some_and(|claim| {
        matches!(claim.cost, Cost::CpuCores(_)) && claim.share.is_some_and(|share| share >= EXPLAINS / 2.0)
    })
}

/// Whether all processes that run the effect's code also run the cause's code.
pub(super) fn runs_part(cause: &Finding, effect: &Finding) -> bool {
    let run_by = |signal: &&Signal| matches!(signal, Signal::RunBy(_));
    effect.signals.iter().any(|signal| run_by(&signal))
        && effect.signals.iter().filter(run_by).all(|signal| cause.has(signal))
}

/// Whether some processes that run the effect's code also run the cause's code.
pub(super) fn runs_some(cause: &Finding, effect: &Finding) -> bool {
    effect.signals.iter().any(|signal| matches!(signal, Signal::RunBy(_)) && cause.has(signal))
}

/// Whether the cause takes at least half of the CPU time that the effect claims.
pub(super) fn takes_most_of(cause: &Finding, effect: &Finding) -> bool {
    let cores = |finding: &Finding| match finding.claim.map(|claim| claim.cost) {
        Some(Cost::CpuCores(cores)) => Some(cores),
        _ => None,
    };
    cores(cause).zip(cores(effect)).is_some_and(|(cause, effect)| cause >= EXPLAINS * effect)
}

/// Whether this is a supervisor of Ranch that starts connections.
pub(super) fn starts_connections(subject: &Subject) -> bool {
    subject.names().iter().any(|name| name.starts_with(RANCH_STARTS))
}
