//! Decides whether a trial is valid, based on the host, the load generator and the clock, but never on the setting.
//!
//! A busy neighbour can reverse the effect of a setting: without busy wait, a VM used 52 % less CPU per request on a quiet host, but
//! 12 % more on a busy host (measured on OTP 25, 2 CPUs; both effects were significant).

use beamtune_model::study::{Invalid, InvalidKind};
use beamtune_model::{Missing, Period, cpu, metrics};

use crate::measure::sum;
use crate::steady::{Second, change};

/// Maximum CPU use of other processes, as a share of all CPUs (0.2 cores of two CPUs; less than 0.1 in quiet runs).
const MAX_FOREIGN_SHARE: f64 = 0.10;
/// Minimum CPU use of other processes, as a share of all CPUs, that explains run-queue delay of VM threads.
const MIN_FOREIGN_SHARE_FOR_DELAY: f64 = 0.03;
/// Maximum run-queue delay of VM threads, in seconds per second of CPU time (quiet host: 0.2; busy host: 12).
const MAX_DELAY_PER_CPU_SECOND: f64 = 0.5;
/// Maximum steal, as a share of all CPUs (chosen by judgement).
const MAX_STEAL_SHARE: f64 = 0.02;
/// Maximum share of the time in which tasks wait for memory or I/O, by PSI (chosen by judgement).
const MAX_PRESSURE_SHARE: f64 = 0.10;
/// Maximum share of the seconds in which the load generator is the limit. Such seconds are excluded from the latencies, so others must
/// remain; CPU per request hardly depends on a request that is a millisecond late. (Chosen by judgement. A quiet virtual machine with two
/// CPUs has some such seconds in every run, and more if the target lets its CPUs sleep.)
const MAX_BOUND_SHARE: f64 = 0.8;
/// Maximum difference between the progress of the wall clock and of the monotonic clock. NTP slews by 0.5 ms per second, while a
/// suspension takes seconds.
const MAX_CLOCK_JUMP_S: f64 = 0.5;

/// The conditions under which a trial ran.
#[derive(Debug, Clone)]
pub struct TrialConditions<'a> {
    /// The recording of the window.
    pub period: &'a Period,
    /// CPU use of the trial outside the VM, in cores: of the load generator, beamtune and other processes of the target.
    pub own_cores: f64,
    /// The reasons why the load generator was the bottleneck, one for each such second of the window.
    pub bound_seconds: &'a [String],
    /// Number of seconds of the window in which the load generator did not run.
    pub stalled_seconds: u64,
    /// The seconds of the window; empty if the load generator reports no values per second.
    pub seconds: &'a [Second],
}

/// Returns the reasons why a trial is invalid; empty if the trial is valid.
pub fn gate(seen: &TrialConditions<'_>) -> Vec<Invalid> {
    let mut reasons = Vec::new();
    let mut invalid = |kind, why: String| reasons.push(Invalid { kind, why });
    match interference(seen) {
        Ok(Some(why)) => invalid(InvalidKind::Interference, why),
        Ok(None) => {}
        Err(missing) => invalid(InvalidKind::NotMeasured, missing.to_string()),
    }
    let judged = seen.seconds.len();
    if let Some(first) = seen.bound_seconds.first()
        && seen.bound_seconds.len() as f64 > MAX_BOUND_SHARE * judged as f64
    {
        let why = format!(
            "the load generator was the bottleneck in {} of {judged} s: {first}",
            seen.bound_seconds.len()
        );
        invalid(InvalidKind::GeneratorBound, why);
    }
    if seen.stalled_seconds > 0 {
        let seconds = seen.stalled_seconds;
        invalid(InvalidKind::GeneratorBound, format!("the load generator was stopped for {seconds} s"));
    }
    if !seen.seconds.is_empty()
        && let Some(why) = change(seen.seconds)
    {
        invalid(InvalidKind::NotSteady, why);
    }
    reasons
}

/// Returns a reason if the wall clock and the monotonic clock progressed differently. The monotonic clock stops while a host is suspended.
pub fn clock(moved_s: f64) -> Option<Invalid> {
    (moved_s.abs() > MAX_CLOCK_JUMP_S).then(|| Invalid {
        kind: InvalidKind::Clock,
        why: format!("the clock jumped by {moved_s:+.1} s: the host was suspended, or its clock was set"),
    })
}

/// Describes interference by other processes and other guests, if it is too strong.
fn interference(seen: &TrialConditions<'_>) -> Result<Option<String>, Missing> {
    let period = seen.period;
    let cpus = period.stat(&metrics::CPUS_ONLINE, "")?.mean();
    let foreign = (cpu::neighbour_cores(period)? - seen.own_cores).max(0.0);
    if foreign > MAX_FOREIGN_SHARE * cpus {
        return Ok(Some(format!("other processes used {foreign:.2} of {cpus} cores")));
    }
    let thread_times = sum(period, &metrics::THREAD_WAIT).zip(sum(period, &metrics::THREAD_CPU));
    if let Some((delay, cpu)) = thread_times
        && foreign > MIN_FOREIGN_SHARE_FOR_DELAY * cpus
        && delay > MAX_DELAY_PER_CPU_SECOND * cpu
    {
        let ratio = delay / cpu;
        return Ok(Some(format!(
            "run-queue delay of VM threads was {ratio:.1} s per second of CPU time, while other processes used {foreign:.2} cores"
        )));
    }
    // These counters are missing on a host without a hypervisor, or with a kernel without PSI.
    let share = |metric| period.cores(metric, "").ok();
    if let Some(steal) = share(&metrics::CPU_STEAL).filter(|steal| *steal > MAX_STEAL_SHARE * cpus) {
        return Ok(Some(format!("steal took {steal:.2} cores")));
    }
    for (metric, what) in [(&metrics::PRESSURE_MEMORY_SOME, "memory"), (&metrics::PRESSURE_IO_FULL, "I/O")] {
        if let Some(share) = share(metric).filter(|share| *share > MAX_PRESSURE_SHARE) {
            return Ok(Some(format!("tasks waited for {what} {:.0} % of the time", share * 100.0)));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::period;
    use beamtune_model::Metric;
    use beamtune_model::units::SECOND_NS;

    const S: i64 = SECOND_NS;

    /// Returns the reasons on a quiet host with two CPUs, where the VM uses 0.4 cores and the load generator 0.3, after changing some
    /// series.
    fn judged(changes: &[(&Metric, &str, &[i64])], bound_seconds: usize) -> Vec<(InvalidKind, String)> {
        judged_with_stop(changes, bound_seconds, 0)
    }

    fn judged_with_stop(
        changes: &[(&Metric, &str, &[i64])],
        bound_seconds: usize,
        stood_still: u64,
    ) -> Vec<(InvalidKind, String)> {
        let quiet: [(&Metric, &str, &[i64]); 6] = [
            (&metrics::PROCESS_USER, "", &[0, S * 4 / 10, S * 8 / 10]),
            (&metrics::PROCESS_SYSTEM, "", &[0, 0, 0]),
            (&metrics::CPU_BUSY, "", &[0, S * 75 / 100, S * 150 / 100]),
            (&metrics::CPUS_ONLINE, "", &[2, 2, 2]),
            (&metrics::THREAD_CPU, "scheduler/1", &[0, S * 4 / 10, S * 8 / 10]),
            (&metrics::THREAD_WAIT, "scheduler/1", &[0, S / 20, S / 10]),
        ];
        let mut series: Vec<_> = quiet
            .into_iter()
            .filter(|(metric, ..)| !changes.iter().any(|(changed, ..)| changed == metric))
            .collect();
        series.extend(changes.iter().filter(|(_, _, values)| !values.is_empty()));
        let bound = vec!["late by 3 ms".to_owned(); bound_seconds];
        let seconds = [Second { cpu_ns: 4e8, done: 1_000, rss_bytes: 1e8 }; 10];
        let seen = TrialConditions {
            period: &period(&series),
            own_cores: 0.3,
            bound_seconds: &bound,
            stalled_seconds: stood_still,
            seconds: &seconds,
        };
        gate(&seen).into_iter().map(|reason| (reason.kind, reason.why)).collect()
    }

    #[test]
    fn trial_on_a_quiet_host_is_valid() {
        assert_eq!(judged(&[], 0), []);
        assert_eq!(judged(&[], 8), []);
    }

    #[test]
    fn interference_makes_a_trial_invalid() {
        use InvalidKind::Interference;
        let check = |changes: &[(&Metric, &str, &[i64])], why: &str| {
            assert_eq!(judged(changes, 0), [(Interference, why.to_owned())]);
        };
        check(&[(&metrics::CPU_BUSY, "", &[0, S, 2 * S])], "other processes used 0.30 of 2 cores");
        check(
            &[
                (&metrics::CPU_BUSY, "", &[0, S * 8 / 10, S * 16 / 10]),
                (&metrics::THREAD_WAIT, "scheduler/1", &[0, S, 2 * S]),
            ],
            "run-queue delay of VM threads was 2.5 s per second of CPU time, while other processes used 0.10 cores",
        );
        check(&[(&metrics::CPU_STEAL, "", &[0, S / 10, S / 5])], "steal took 0.10 cores");
        check(
            &[(&metrics::PRESSURE_IO_FULL, "", &[0, S / 5, S * 2 / 5])],
            "tasks waited for I/O 20 % of the time",
        );
    }

    /// A setting with more threads than CPUs causes run-queue delay: that is its effect.
    #[test]
    fn run_queue_delay_without_other_processes_is_not_interference() {
        assert_eq!(judged(&[(&metrics::THREAD_WAIT, "scheduler/1", &[0, S, 2 * S])], 0), []);
    }

    #[test]
    fn overloaded_or_stopped_generator_makes_a_trial_invalid() {
        assert_eq!(
            judged(&[], 9),
            [(
                InvalidKind::GeneratorBound,
                "the load generator was the bottleneck in 9 of 10 s: late by 3 ms".to_owned()
            )]
        );
        let why = "the load generator was stopped for 3 s";
        assert_eq!(judged_with_stop(&[], 0, 3), [(InvalidKind::GeneratorBound, why.to_owned())]);
    }

    #[test]
    fn clock_jump_makes_a_trial_invalid() {
        assert_eq!(clock(0.1), None);
        let why = |moved_s| clock(moved_s).map(|reason| reason.why).unwrap_or_default();
        assert!(why(30.0).contains("by +30.0 s"), "{}", why(30.0));
        assert!(why(-2.0).contains("by -2.0 s"), "{}", why(-2.0));
    }

    #[test]
    fn trial_without_host_metrics_is_invalid() {
        let reasons = judged(&[(&metrics::CPU_BUSY, "", &[])], 0);
        assert_eq!(reasons.len(), 1, "{reasons:?}");
        assert_eq!(reasons[0].0, InvalidKind::NotMeasured);
    }
}
