//! CPU time of the VM in the kernel: for what, and for which processes, by a CPU profile.

use std::sync::LazyLock;

use beamtune_model::{Frame, FrameKind, KernelWork, Nanos, Period, Profile, StackSample};
use serde::Deserialize;

use crate::signals::counts::largest_first;
use crate::signals::data;
use crate::signals::stack;

/// Fewer samples in the kernel do not show what it does (judgement).
const MIN_SAMPLES: u32 = 50;

/// Content of `data/kernel.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Kinds {
    kind: Vec<KernelKind>,
}

/// A kind of work of the kernel.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KernelKind {
    pub work: KernelWork,
    /// Words for a title.
    pub name: String,
    calls: Vec<String>,
    exceptions: Vec<String>,
    /// What to do if it takes most of the CPU time.
    pub instead: String,
    /// The reason.
    pub why: String,
}

static KINDS: LazyLock<Kinds> = LazyLock::new(|| data("kernel", include_str!("../../data/kernel.toml")));

/// Prefixes of the functions of system calls, on x86-64 and ARM64 (SYSCALL_DEFINE in the kernel's sources).
const SYSTEM_CALLS: [&str; 2] = ["__x64_sys_", "__arm64_sys_"];

/// The system call that a function of the kernel begins.
fn system_call(function: &str) -> Option<&str> {
    SYSTEM_CALLS.iter().find_map(|begin| function.strip_prefix(begin))
}

impl KernelKind {
    /// The kind that a function at the root of the kernel's stack belongs to.
    fn of(function: &str) -> Option<&'static KernelKind> {
        let call = system_call(function);
        KINDS.kind.iter().find(|kind| match call {
            Some(call) => kind.calls.iter().any(|known| known == call),
            None => kind.exceptions.iter().any(|known| known == function),
        })
    }
}

/// CPU time in the kernel.
#[derive(Debug)]
pub(crate) struct KernelTime<'a> {
    /// In cores.
    pub cores: f64,
    /// Share of the CPU time of the VM, 0–1.
    pub share: f64,
    /// Kinds of work with their share of the CPU time of the VM, largest first.
    pub kinds: Vec<(&'static KernelKind, f64)>,
    /// System calls and exceptions with their share of the CPU time of the VM, largest first.
    pub entries: Vec<(&'a str, f64)>,
    /// Functions of the program, or else threads, for which the kernel does most of the first kind of work, with their share of it,
    /// largest first.
    pub callers: Vec<(String, f64)>,
}

impl<'a> KernelTime<'a> {
    /// The CPU time in the kernel; `None` if the profile lacks the kernel's part, or has too few samples.
    pub(crate) fn of(period: &'a Period) -> Option<KernelTime<'a>> {
        let profile = period.profile.as_ref()?;
        let all = profile.total();
        let in_kernel: Vec<Entered<'a>> =
            profile.samples.iter().filter_map(|sample| Entered::of(profile, sample)).collect();
        let samples = in_kernel.iter().fold(0, |sum: u32, one| sum.saturating_add(one.sample.count));
        if samples < MIN_SAMPLES || all <= 0 {
            return None;
        }
        let cpu = |of: &dyn Fn(&Entered<'_>) -> bool| {
            in_kernel
                .iter()
                .filter(|one| of(one))
                .fold(0, |sum: Nanos, one| sum.saturating_add(one.sample.weight))
        };
        let shares = |cpu: Nanos, of: Nanos| cpu as f64 / of.max(1) as f64;
        let works =
            largest_first(in_kernel.iter().filter_map(|one| Some((one.kind?.work, one.sample.weight))));
        let kinds = works.iter().filter_map(|(work, cpu)| {
            Some((KINDS.kind.iter().find(|kind| kind.work == *work)?, shares(*cpu, all)))
        });
        let entries = largest_first(in_kernel.iter().map(|one| (one.entry, one.sample.weight)));
        let first = works.first().map(|(work, cpu)| (*work, *cpu));
        let is_first = |one: &Entered<'_>| one.kind.map(|kind| kind.work) == first.map(|(work, _)| work);
        let callers =
            in_kernel.iter().filter(|one| is_first(one)).map(|one| (one.caller(profile), one.sample.weight));
        let of_first = first.map_or(0, |(_, cpu)| cpu);
        Some(KernelTime {
            cores: profile.cores(cpu(&|_| true)),
            share: shares(cpu(&|_| true), all),
            kinds: kinds.collect(),
            entries: entries.into_iter().map(|(entry, cpu)| (entry, shares(cpu, all))).collect(),
            callers: largest_first(callers)
                .into_iter()
                .map(|(caller, cpu)| (caller, shares(cpu, of_first)))
                .collect(),
        })
    }
}

/// A sample in the kernel.
struct Entered<'a> {
    sample: &'a StackSample,
    /// The function in which the kernel was entered, without the prefix of a system call.
    entry: &'a str,
    kind: Option<&'static KernelKind>,
}

impl<'a> Entered<'a> {
    fn of(profile: &'a Profile, sample: &'a StackSample) -> Option<Entered<'a>> {
        let kernel: Vec<&Frame> =
            profile.frames_of(sample.stack).filter(|frame| frame.kind == FrameKind::Kernel).collect();
        let names = || kernel.iter().map(|frame| frame.name.as_str());
        let outermost = names().next()?;
        let known = names().find_map(|name| Some((name, KernelKind::of(name)?)));
        let entry = match known {
            Some((name, _)) => name,
            None => names().find(|name| system_call(name).is_some()).unwrap_or(outermost),
        };
        Some(Entered {
            sample,
            entry: system_call(entry).unwrap_or(entry),
            kind: known.map(|(_, kind)| kind),
        })
    }

    /// The innermost function of the program, else the process, else the kind of thread.
    fn caller(&self, profile: &Profile) -> String {
        let functions = profile.frames_of(self.sample.stack).filter(|frame| frame.kind == FrameKind::Erlang);
        let own = functions.filter(|frame| stack::is_of_program(&frame.name)).last();
        let process = || profile.processes.get(&self.sample.process?);
        match (own, process()) {
            (Some(own), _) => stack::without_fun(&own.name),
            (None, Some(process)) => process.clone(),
            (None, None) => match profile.thread(self.sample) {
                Some(thread) => format!("{} threads", thread.kind.replace('_', " ")),
                None => "unknown threads".to_owned(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_work_of_the_kernel_has_one_kind_and_each_call_occurs_once() {
        let works: Vec<KernelWork> = KINDS.kind.iter().map(|kind| kind.work).collect();
        assert_eq!(works, KernelWork::ALL);
        let calls = KINDS.kind.iter().flat_map(|kind| kind.calls.iter().chain(&kind.exceptions));
        let calls: Vec<&String> = calls.collect();
        let unique: std::collections::HashSet<_> = calls.iter().collect();
        assert_eq!(unique.len(), calls.len());
    }

    #[test]
    fn system_calls_are_known_on_both_architectures() {
        let check = |function: &str, expect: Option<KernelWork>| {
            assert_eq!(KernelKind::of(function).map(|kind| kind.work), expect, "{function}");
        };
        check("__x64_sys_writev", Some(KernelWork::Output));
        check("__arm64_sys_epoll_wait", Some(KernelWork::Polling));
        check("asm_exc_page_fault", Some(KernelWork::Memory));
        check("__x64_sys_write_more", None);
        check("writev", None);
    }
}
