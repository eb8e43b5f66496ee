//! How schedulers spent their CPU time: work, busy wait, or going to sleep and waking up.

use beamtune_model::{Missing, Period, metrics};

use crate::view::{self, kind};

/// CPU time to go to sleep and wake up, which the VM does not count as utilization. Measured on OTP 25 without busy wait: 20 to 25 µs for
/// each switch.
const SWITCH_SECONDS: f64 = 25e-6;

/// The busy-wait flags, with the kind of thread that each applies to.
pub(crate) const FLAGS: [(&str, &str); 3] =
    [("+sbwt", kind::SCHEDULER), ("+sbwtdcpu", kind::DIRTY_CPU), ("+sbwtdio", kind::DIRTY_IO)];

/// How the threads of one kind spent their CPU time, in cores.
#[derive(Debug, Clone)]
pub(crate) struct Spinning {
    /// CPU time, as the operating system measures it.
    pub cpu: f64,
    /// Time in which the VM counts the threads as active, at most `cpu`. A dirty I/O thread that waits for a disk is active without using
    /// CPU.
    pub worked: f64,
    /// Busy wait: the rest of `cpu`, minus the cost of going to sleep and waking up; 0 if busy wait is off.
    pub spun: f64,
    /// The value of the flag in effect.
    pub setting: view::Flag,
}

impl Spinning {
    /// Computes this for the threads of `kind`, which `flag` applies to.
    pub(crate) fn of(period: &Period, flag: &str, kind: &str) -> Result<Spinning, Missing> {
        let cpu = view::thread_cores(period, &metrics::THREAD_CPU, &[kind])?;
        let active = view::activity(period, kind)?.cores();
        let switches = view::thread_rate(period, &metrics::VOLUNTARY_SWITCHES, &[kind]).unwrap_or(0.0);
        let setting = view::emulator_flag(&period.facts, flag);
        let spun = match setting.value() {
            Some("none") => 0.0,
            _ => (cpu - active - switches * SWITCH_SECONDS).max(0.0),
        };
        Ok(Spinning { cpu, worked: active.min(cpu), spun, setting })
    }
}
