//! CPU time and memory of a trial's processes: sampled once a second, and interpolated between samples.

use std::time::{Duration, Instant};

use beamtune_host::family::{self, Family};
use beamtune_host::tree::LocalTree;
use beamtune_load::clock::{SECOND_NS, now_ns};

/// Samples the resource usage of a VM, and of the other processes of its trial.
pub struct UsageSampler {
    vm: u32,
    samples: Vec<UsageSample>,
    next: Option<Instant>,
}

/// One sample. Times are on CLOCK_MONOTONIC.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UsageSample {
    pub at_ns: f64,
    /// CPU time of the VM.
    pub vm_ns: f64,
    /// CPU time of beamtune and all processes that it has started, except the VM.
    pub own_ns: f64,
    pub rss_bytes: f64,
}

impl UsageSample {
    /// Takes a sample; `None` if the VM has ended.
    pub fn now(vm: u32) -> Option<UsageSample> {
        let tree = LocalTree::default();
        let (vm_ns, rss_bytes) = family::usage(&tree, vm).ok()?;
        // CPU time that cannot be read is attributed to other processes, which is the conservative choice.
        let all = Family::of(&tree, std::process::id()).map_or(0, |family| family.cpu_ns);
        Some(UsageSample {
            at_ns: now_ns() as f64,
            vm_ns: vm_ns as f64,
            own_ns: (all - vm_ns).max(0) as f64,
            rss_bytes: rss_bytes as f64,
        })
    }

    /// Interpolates between this sample and a later one.
    fn between(&self, later: &UsageSample, at_ns: f64) -> UsageSample {
        let length_ns = later.at_ns - self.at_ns;
        let share = if length_ns > 0.0 { ((at_ns - self.at_ns) / length_ns).clamp(0.0, 1.0) } else { 0.0 };
        let mix = |from: f64, to: f64| from + (to - from) * share;
        UsageSample {
            at_ns,
            vm_ns: mix(self.vm_ns, later.vm_ns),
            own_ns: mix(self.own_ns, later.own_ns),
            rss_bytes: mix(self.rss_bytes, later.rss_bytes),
        }
    }
}

impl UsageSampler {
    pub fn new(vm: u32) -> UsageSampler {
        UsageSampler { vm, samples: Vec::new(), next: None }
    }

    /// Samples if the last sample is a second old; false if the VM has ended.
    pub fn sample_if_due(&mut self) -> bool {
        if self.next.is_some_and(|next| Instant::now() < next) {
            return true;
        }
        self.sample()
    }

    /// Samples now; false if the VM has ended.
    pub fn sample(&mut self) -> bool {
        self.next = Some(Instant::now() + Duration::from_nanos(SECOND_NS));
        let sample = UsageSample::now(self.vm);
        self.samples.extend(sample);
        sample.is_some()
    }

    /// Returns the usage up to a given time, interpolated. Before the first sample or after the last, that sample is returned; `None`
    /// if there are no samples.
    pub fn at(&self, at_ns: f64) -> Option<UsageSample> {
        let after = self.samples.iter().position(|sample| sample.at_ns >= at_ns);
        match after {
            Some(0) => self.samples.first().copied(),
            Some(after) => Some(self.samples.get(after - 1)?.between(self.samples.get(after)?, at_ns)),
            None => self.samples.last().copied(),
        }
    }

    /// Returns the CPU use of the trial's processes, without the VM, in cores.
    pub fn own_cores(&self, from_ns: f64, to_ns: f64) -> f64 {
        let (Some(from), Some(to)) = (self.at(from_ns), self.at(to_ns)) else { return 0.0 };
        // Use only the sampled part of the time: the last sample of a job precedes its end.
        let sampled = |at_ns: f64| {
            let (Some(first), Some(last)) = (self.samples.first(), self.samples.last()) else { return at_ns };
            at_ns.clamp(first.at_ns, last.at_ns)
        };
        let length_ns = sampled(to_ns) - sampled(from_ns);
        if length_ns > 0.0 { (to.own_ns - from.own_ns) / length_ns } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_interpolated_between_samples() {
        let sample = |second: f64, own: f64| UsageSample {
            at_ns: second * 1e9,
            vm_ns: second * 5e8,
            own_ns: own,
            rss_bytes: 100.0,
        };
        let samples = vec![sample(1.0, 0.0), sample(2.0, 4e8), sample(4.0, 5e8)];
        let usage = UsageSampler { vm: 0, samples, next: None };
        let own = |second: f64| usage.at(second * 1e9).map(|sample| sample.own_ns);
        assert_eq!(own(0.5), Some(0.0));
        assert_eq!(own(1.5), Some(2e8));
        assert_eq!(own(2.0), Some(4e8));
        assert_eq!(own(9.0), Some(5e8));
        assert!((usage.own_cores(1e9, 2e9) - 0.4).abs() < 1e-9);
        assert!((usage.own_cores(2e9, 9e9) - 0.05).abs() < 1e-9, "time without samples is ignored");
        assert_eq!(UsageSampler::new(0).own_cores(0.0, 1e9), 0.0);
    }
}
