//! What schedulers did with their CPU time: work, busy waiting, or going to sleep and waking up.

use beamtune_model::{Missing, Period, metrics};

use crate::view::{self, kind};

/// Going to sleep and waking up take time that the VM does not count as activity: measured on OTP 25 with busy
/// waiting off, 20–25 µs for each switch.
const SWITCH_SECONDS: f64 = 25e-6;

/// The flags, with the kind of thread that each is for.
pub(crate) const FLAGS: [(&str, &str); 3] =
    [("+sbwt", kind::SCHEDULER), ("+sbwtdcpu", kind::DIRTY_CPU), ("+sbwtdio", kind::DIRTY_IO)];

/// What threads of a kind did with their CPU time, in cores.
#[derive(Debug, Clone)]
pub(crate) struct Spinning {
    /// By the operating system.
    pub cpu: f64,
    /// The part that the VM counts as active. A dirty I/O thread that waits for a disk is active without using CPU.
    pub worked: f64,
    /// The rest, without the cost of going to sleep and waking up; none if busy wait is off.
    pub spun: f64,
    /// The flag in effect.
    pub setting: view::Flag,
}

impl Spinning {
    /// Of the threads that a flag is for.
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
