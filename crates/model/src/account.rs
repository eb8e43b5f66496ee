//! Where the time of the CPUs went that a VM could use.

use serde::{Deserialize, Serialize};

use crate::units::text_names;

/// What became of a part of that time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Use {
    /// Schedulers ran Erlang code, with the functions in C that it calls, unless these are counted apart.
    Code,
    /// Schedulers, normal and dirty ones, collected garbage.
    Collections,
    /// Ports: drivers of sockets, files and programs.
    Ports,
    /// Asking the operating system which sockets are ready.
    Polling,
    /// What the VM does for itself: timers, memory to be freed, messages between its threads.
    Housekeeping,
    /// Long calls on dirty CPU schedulers.
    DirtyCpu,
    /// Long calls on dirty I/O schedulers, as far as they used a CPU.
    DirtyIo,
    /// Threads that are no schedulers.
    OtherThreads,
    /// Going to sleep, and waking up.
    Switching,
    /// Spinning while there was nothing to do.
    BusyWaiting,
    /// A CPU quota stopped the VM.
    Quota,
    /// Programs that the VM has started had the CPU.
    Programs,
    /// Other processes of the host had the CPU.
    Others,
    /// The hypervisor gave the CPU to another guest.
    Stolen,
    /// Threads waited for each other inside the VM.
    Locks,
    /// One process worked all the time, and not all cores were wanted beside it.
    SerialProcess,
    /// Processes worked one at a time.
    Turns,
    /// Processes that had messages waited for answers.
    Outside,
    /// There are more CPUs than schedulers.
    NoScheduler,
    /// There was nothing to run.
    Nothing,
}

text_names!(Use {
    Code => "code",
    Collections => "collections",
    Ports => "ports",
    Polling => "polling",
    Housekeeping => "housekeeping",
    DirtyCpu => "dirty_cpu",
    DirtyIo => "dirty_io",
    OtherThreads => "other_threads",
    Switching => "switching",
    BusyWaiting => "busy_waiting",
    Quota => "quota",
    Programs => "programs",
    Others => "others",
    Stolen => "stolen",
    Locks => "locks",
    SerialProcess => "serial_process",
    Turns => "turns",
    Outside => "outside",
    NoScheduler => "no_scheduler",
    Nothing => "nothing",
});

impl Use {
    /// Whether the VM's threads were on a CPU.
    pub fn is_used(self) -> bool {
        self <= Use::BusyWaiting
    }
}

/// A part of the time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Share {
    /// What became of it.
    pub what: Use,
    /// How much, in cores.
    pub cores: f64,
    /// What says so, or who it was: a phrase without a full stop; empty where there is nothing to add.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub how: String,
}

/// Where the time of the CPUs went that a VM could use.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CpuAccount {
    /// CPUs that it could use: those that it may run on, and no more than its quota.
    pub cores: f64,
    /// For how long, in seconds.
    pub seconds: f64,
    /// In the order of [`Use`], each once. They add up to `cores`.
    pub shares: Vec<Share>,
}
