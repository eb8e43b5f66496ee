//! What the system counts of a trial while it runs: looked at every second, and asked for any moment in between afterwards.

use std::time::{Duration, Instant};

use beamtune_host::family::{self, Family};
use beamtune_host::tree::LocalTree;
use beamtune_load::clock::{SECOND_NS, now_ns};

/// Looks at a VM, and at what else belongs to the trial.
pub struct Looks {
    vm: u32,
    looks: Vec<Look>,
    next: Option<Instant>,
}

/// One look. Times are on CLOCK_MONOTONIC.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Look {
    pub at_ns: f64,
    /// CPU time of the VM.
    pub vm_ns: f64,
    /// CPU time of us and all that we have started, without the VM's.
    pub own_ns: f64,
    pub rss_bytes: f64,
}

impl Look {
    /// `None` if the VM has ended.
    pub fn now(vm: u32) -> Option<Look> {
        let tree = LocalTree::default();
        let (vm_ns, rss_bytes) = family::usage(&tree, vm).ok()?;
        // What cannot be read counts as nothing; then it is taken for interference, which is on the safe side.
        let all = Family::of(&tree, std::process::id()).map_or(0, |family| family.cpu_ns);
        Some(Look {
            at_ns: now_ns() as f64,
            vm_ns: vm_ns as f64,
            own_ns: (all - vm_ns).max(0) as f64,
            rss_bytes: rss_bytes as f64,
        })
    }

    /// Between this one and a later one, at a moment.
    fn between(&self, later: &Look, at_ns: f64) -> Look {
        let length_ns = later.at_ns - self.at_ns;
        let share = if length_ns > 0.0 { ((at_ns - self.at_ns) / length_ns).clamp(0.0, 1.0) } else { 0.0 };
        let mix = |from: f64, to: f64| from + (to - from) * share;
        Look {
            at_ns,
            vm_ns: mix(self.vm_ns, later.vm_ns),
            own_ns: mix(self.own_ns, later.own_ns),
            rss_bytes: mix(self.rss_bytes, later.rss_bytes),
        }
    }
}

impl Looks {
    pub fn new(vm: u32) -> Looks {
        Looks { vm, looks: Vec::new(), next: None }
    }

    /// Looks if a second has passed since the last time; whether the VM is still there.
    pub fn look(&mut self) -> bool {
        if self.next.is_some_and(|next| Instant::now() < next) {
            return true;
        }
        self.look_now()
    }

    /// Looks, whenever that was done last; whether the VM is still there.
    pub fn look_now(&mut self) -> bool {
        self.next = Some(Instant::now() + Duration::from_nanos(SECOND_NS));
        let look = Look::now(self.vm);
        self.looks.extend(look);
        look.is_some()
    }

    /// What was counted until a moment; before the first look and after the last one it is theirs. `None` if there is none.
    pub fn at(&self, at_ns: f64) -> Option<Look> {
        let after = self.looks.iter().position(|look| look.at_ns >= at_ns);
        match after {
            Some(0) => self.looks.first().copied(),
            Some(after) => Some(self.looks.get(after - 1)?.between(self.looks.get(after)?, at_ns)),
            None => self.looks.last().copied(),
        }
    }

    /// CPU that was used beside the VM by what belongs to the trial, in cores.
    pub fn own_cores(&self, from_ns: f64, to_ns: f64) -> f64 {
        let (Some(from), Some(to)) = (self.at(from_ns), self.at(to_ns)) else { return 0.0 };
        // The moments that were looked at: of a job, the last one is before its end.
        let seen = |at_ns: f64| {
            let (Some(first), Some(last)) = (self.looks.first(), self.looks.last()) else { return at_ns };
            at_ns.clamp(first.at_ns, last.at_ns)
        };
        let length_ns = seen(to_ns) - seen(from_ns);
        if length_ns > 0.0 { (to.own_ns - from.own_ns) / length_ns } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn between_two_looks_all_grows_evenly() {
        let look = |second: f64, own: f64| Look {
            at_ns: second * 1e9,
            vm_ns: second * 5e8,
            own_ns: own,
            rss_bytes: 100.0,
        };
        let looks = Looks { vm: 0, looks: vec![look(1.0, 0.0), look(2.0, 4e8), look(4.0, 5e8)], next: None };
        let own = |second: f64| looks.at(second * 1e9).map(|look| look.own_ns);
        assert_eq!(own(0.5), Some(0.0));
        assert_eq!(own(1.5), Some(2e8));
        assert_eq!(own(2.0), Some(4e8));
        assert_eq!(own(9.0), Some(5e8));
        assert!((looks.own_cores(1e9, 2e9) - 0.4).abs() < 1e-9);
        assert!((looks.own_cores(2e9, 9e9) - 0.05).abs() < 1e-9, "what was not looked at does not count");
        assert_eq!(Looks::new(0).own_cores(0.0, 1e9), 0.0);
    }
}
