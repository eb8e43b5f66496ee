//! The CPU account: how the CPU time available to a VM was used, and why the rest was not.

use serde::{Deserialize, Serialize};

use crate::units::text_names;

/// What a share of the available CPU time was used for, or why it was not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CpuUse {
    /// Schedulers executed Erlang code and the BIFs that it calls, unless these are accounted separately.
    Code,
    /// Garbage collection on normal and dirty schedulers.
    #[serde(rename = "collections")]
    GarbageCollection,
    /// Ports: drivers for sockets, files and external programs.
    Ports,
    /// Polling the operating system for ready sockets (`check_io`).
    Polling,
    /// Internal work of the VM: timers, deferred deallocation, messages between its threads.
    Housekeeping,
    /// CPU time of calls on dirty CPU schedulers.
    DirtyCpu,
    /// CPU time of calls on dirty I/O schedulers.
    DirtyIo,
    /// Threads other than schedulers.
    OtherThreads,
    /// Schedulers went to sleep and woke up.
    Switching,
    /// Busy waiting.
    BusyWaiting,
    /// The CPU quota throttled the VM.
    Quota,
    /// External programs used the CPU.
    #[serde(rename = "programs")]
    ExternalPrograms,
    /// Other processes of the host used the CPU.
    #[serde(rename = "others")]
    Neighbours,
    /// Steal: the hypervisor gave the CPU to another guest.
    #[serde(rename = "stolen")]
    Steal,
    /// Threads waited for locks inside the VM.
    Locks,
    /// One process was always runnable, and the other processes did not need all remaining cores.
    SerialProcess,
    /// Processes took turns: only one was runnable at any time.
    #[serde(rename = "turns")]
    TakingTurns,
    /// Processes with messages waited for replies.
    #[serde(rename = "outside")]
    WaitingForReplies,
    /// The VM has fewer schedulers than CPUs.
    NoScheduler,
    /// No process was runnable.
    #[serde(rename = "nothing")]
    NoRunnable,
}

text_names!(CpuUse {
    Code => "code",
    GarbageCollection => "collections",
    Ports => "ports",
    Polling => "polling",
    Housekeeping => "housekeeping",
    DirtyCpu => "dirty_cpu",
    DirtyIo => "dirty_io",
    OtherThreads => "other_threads",
    Switching => "switching",
    BusyWaiting => "busy_waiting",
    Quota => "quota",
    ExternalPrograms => "programs",
    Neighbours => "others",
    Steal => "stolen",
    Locks => "locks",
    SerialProcess => "serial_process",
    TakingTurns => "turns",
    WaitingForReplies => "outside",
    NoScheduler => "no_scheduler",
    NoRunnable => "nothing",
});

impl CpuUse {
    /// Whether the VM used the CPU.
    pub fn is_used(self) -> bool {
        self <= CpuUse::BusyWaiting
    }

    /// Whether the CPU was idle for lack of work, so that more work could use it.
    pub fn is_idle(self) -> bool {
        matches!(self, CpuUse::WaitingForReplies | CpuUse::NoRunnable)
    }
}

/// A share of the available CPU time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CpuShare {
    /// What it was used for, or why it was not used.
    pub what: CpuUse,
    /// Size in cores.
    pub cores: f64,
    /// Evidence, or what used the CPU: a phrase without a full stop; empty if there is nothing to add.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub how: String,
}

/// How the CPU time available to a VM was used.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CpuAccount {
    /// CPUs available to the VM: its allowed CPUs, limited by its quota.
    pub cores: f64,
    /// Length of the period in seconds.
    pub seconds: f64,
    /// In the order of [`Use`], without duplicates; the sizes add up to `cores`.
    pub shares: Vec<CpuShare>,
}

impl CpuAccount {
    /// Idle CPU that more work could use, in cores.
    pub fn idle_cores(&self) -> f64 {
        self.shares.iter().filter(|share| share.what.is_idle()).map(|share| share.cores).sum()
    }
}
