//! What a thread does with the CPU, by the names on its stack.
//!
//! Names of the emulator's static functions are missing in stripped builds, and of nearly all functions in OTP 29 (see [`crate::elf`]). The shared
//! code of the JIT always has names, and so has the kernel where allowed. So a state is known by either.
//!
//! Sources: erl_process.c, erl_gc.c, erl_check_io.c, erl_poll.c, erl_port_task.c, and jit/x86/beam_asm_global.hpp.pl of OTP 25 to 29.

use beamtune_model::CpuState;

use crate::names::without_underscores;

/// Shared code in which no process runs: the loop of a scheduler.
const SCHEDULER_LOOP: &[&str] =
    &["process_main", "context_switch", "context_switch_simplified", "do_schedule"];
/// Shared code that calls the garbage collector.
const COLLECTING_FRAGMENT: &str = "garbage_collect";

/// Functions of the emulator, by the beginning of their names.
const COLLECTING: &[&str] =
    &["erts_garbage_collect", "erts_gc_", "garbage_collect", "minor_collection", "major_collection"];
const POLLING: &[&str] = &["erts_check_io", "erts_poll_wait", "check_fd_events", "poll_thread"];
const PORTS: &[&str] = &["erts_port_task_execute", "erts_port_output", "erts_port_control"];
const SLEEPING: &[&str] =
    &["ethr_event_wait", "ethr_event_swait", "ethr_event_twait", "ethr_event_stwait", "ethr_event_set"];
/// Functions of the kernel, by a part of their names.
const KERNEL_POLLING: &[&str] = &["epoll_wait", "ep_poll", "do_poll", "do_select"];
const KERNEL_SLEEPING: &[&str] = &["futex"];

/// The names on a stack.
#[derive(Debug, Clone, Copy, Default)]
pub struct Names<'a> {
    /// Functions of the kernel.
    pub kernel: &'a [&'a str],
    /// C functions; nameless ones are left out.
    pub native: &'a [&'a str],
    /// The shared code of the JIT that called C, or that runs.
    pub fragment: Option<&'a str>,
    /// Whether the thread is in a spin loop.
    pub is_spinning: bool,
    /// Whether it runs a process.
    pub has_process: bool,
    /// Whether it is a scheduler of any kind.
    pub is_scheduler: bool,
}

/// Whether the loop of a scheduler is in this shared code.
pub fn is_scheduler_loop(fragment: &str) -> bool {
    SCHEDULER_LOOP.contains(&fragment)
}

/// The state of a thread.
pub fn of(names: &Names<'_>) -> CpuState {
    let native = |prefixes: &[&str]| {
        let mut names = names.native.iter().map(|name| without_underscores(name));
        names.any(|name| prefixes.iter().any(|prefix| name.starts_with(prefix)))
    };
    let kernel =
        |parts: &[&str]| names.kernel.iter().any(|name| parts.iter().any(|part| name.contains(part)));
    if names.fragment == Some(COLLECTING_FRAGMENT) || native(COLLECTING) {
        return CpuState::GarbageCollection;
    }
    if native(PORTS) {
        return CpuState::Port;
    }
    if names.has_process {
        return CpuState::Process;
    }
    if native(POLLING) || kernel(KERNEL_POLLING) {
        return CpuState::Polling;
    }
    if kernel(KERNEL_SLEEPING) {
        return CpuState::SleepAndWake;
    }
    if names.is_spinning || names.kernel.iter().any(|name| name.contains("sched_yield")) {
        return CpuState::BusyWait;
    }
    match native(SLEEPING) {
        true => CpuState::SleepAndWake,
        false if names.is_scheduler => CpuState::Scheduling,
        false => CpuState::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_known_by_names_of_any_kind() {
        let check = |names: Names<'_>, expect: CpuState| assert_eq!(of(&names), expect, "{names:?}");
        let scheduler = Names { is_scheduler: true, fragment: Some("process_main"), ..Names::default() };
        let process = Names { is_scheduler: true, has_process: true, ..Names::default() };
        check(scheduler, CpuState::Scheduling);
        check(Names { is_spinning: true, ..scheduler }, CpuState::BusyWait);
        check(Names { kernel: &["do_syscall_64", "__x64_sys_epoll_wait"], ..scheduler }, CpuState::Polling);
        check(Names { kernel: &["__x64_sys_futex"], ..scheduler }, CpuState::SleepAndWake);
        check(Names { native: &["sched_poll", "erts_check_io_interrupt"], ..scheduler }, CpuState::Polling);
        check(process, CpuState::Process);
        // A lock that is spun for is work of the process.
        check(Names { is_spinning: true, ..process }, CpuState::Process);
        check(Names { fragment: Some("garbage_collect"), ..process }, CpuState::GarbageCollection);
        check(
            Names { native: &["memcpy", "erts_garbage_collect_nobump"], ..process },
            CpuState::GarbageCollection,
        );
        check(Names { native: &["__erts_port_task_execute"], ..scheduler }, CpuState::Port);
        check(Names::default(), CpuState::Other);
    }
}
