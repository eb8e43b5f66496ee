//! Which trials say nothing of the setting: decided from the machine, the generator and the clock, and never from which setting it
//! was.
//!
//! A trial beside a busy neighbour can show the opposite of what is true, and significantly: without busy waiting a VM used
//! 52 % less CPU per request on a quiet machine and 12 % more on a crowded one (measured, OTP 25, 2 CPUs).

use beamtune_model::study::{Invalid, InvalidKind};
use beamtune_model::{Missing, Period, cpu, metrics};

use crate::measure::sum;
use crate::steady::{Second, change};

/// Others may use this share of all CPUs (of two: 0.2 cores; quiet runs saw less than 0.1).
const FOREIGN_SHARE: f64 = 0.10;
/// From this share of all CPUs on others explain why threads of the VM had to wait …
const FOREIGN_SEEN: f64 = 0.03;
/// … if they waited for so long per second on a CPU (quiet: 0.2; crowded: 12).
const WAIT_PER_CPU: f64 = 0.5;
/// The hypervisor may give away this share of all CPUs (judgement).
const STEAL_SHARE: f64 = 0.02;
/// Tasks may wait for memory or I/O for this share of the time (judgement).
const PRESSURE_SHARE: f64 = 0.10;
/// The generator may be the limit in this share of the seconds. They are left out of the times, so these need some others; and what a
/// request costs does not depend on whether it came a millisecond late (judgement; a quiet virtual machine of two CPUs has
/// some of them in every run, and more where the target lets its CPU sleep).
const BOUND_SHARE: f64 = 0.8;
/// The wall clock may move by this much against the monotonic one: NTP slews by 0.5 ms a second, a suspension is seconds.
const CLOCK_S: f64 = 0.5;

/// What is known of a trial beside what it measured.
#[derive(Debug, Clone)]
pub struct Seen<'a> {
    /// The window that counts.
    pub period: &'a Period,
    /// CPU that the trial used beside the VM, in cores: the generator, beamtune, other processes of the target.
    pub own_cores: f64,
    /// Why the generator was the limit, of each second of the window in which it was.
    pub bound: &'a [String],
    /// Seconds of the window in which the generator did not run at all.
    pub stood_still: u64,
    /// The window, second by second; empty where the load does not tell.
    pub seconds: &'a [Second],
}

/// Why a trial does not count; empty if it does.
pub fn gate(seen: &Seen<'_>) -> Vec<Invalid> {
    let mut reasons = Vec::new();
    let mut invalid = |kind, why: String| reasons.push(Invalid { kind, why });
    match interference(seen) {
        Ok(Some(why)) => invalid(InvalidKind::Interference, why),
        Ok(None) => {}
        Err(missing) => invalid(InvalidKind::NotMeasured, missing.to_string()),
    }
    let judged = seen.seconds.len();
    if let Some(first) = seen.bound.first()
        && seen.bound.len() as f64 > BOUND_SHARE * judged as f64
    {
        let why = format!("the load generator was the limit in {} of {judged} s: {first}", seen.bound.len());
        invalid(InvalidKind::GeneratorBound, why);
    }
    if seen.stood_still > 0 {
        let seconds = seen.stood_still;
        invalid(
            InvalidKind::GeneratorBound,
            format!("the load generator stood still for {seconds} s: it was stopped"),
        );
    }
    if !seen.seconds.is_empty()
        && let Some(why) = change(seen.seconds)
    {
        invalid(InvalidKind::NotSteady, why);
    }
    reasons
}

/// Whether the wall clock has moved by too many seconds against the monotonic one, which stands still while a machine is suspended.
pub fn clock(moved_s: f64) -> Option<Invalid> {
    (moved_s.abs() > CLOCK_S).then(|| Invalid {
        kind: InvalidKind::Clock,
        why: format!("the clock jumped by {moved_s:+.1} s: the machine was suspended, or its time was set"),
    })
}

/// What others did to the machine.
fn interference(seen: &Seen<'_>) -> Result<Option<String>, Missing> {
    let period = seen.period;
    let cpus = period.stat(&metrics::CPUS_ONLINE, "")?.mean();
    let foreign = (cpu::foreign_cores(period)? - seen.own_cores).max(0.0);
    if foreign > FOREIGN_SHARE * cpus {
        return Ok(Some(format!("others used {foreign:.2} of {cpus} cores")));
    }
    let waited = sum(period, &metrics::THREAD_WAIT).zip(sum(period, &metrics::THREAD_CPU));
    if let Some((waited, ran)) = waited
        && foreign > FOREIGN_SEEN * cpus
        && waited > WAIT_PER_CPU * ran
    {
        let each = waited / ran;
        return Ok(Some(format!(
            "threads of the VM waited {each:.1} s for each second on a CPU, while others used {foreign:.2} cores"
        )));
    }
    // Where there is no hypervisor, or no pressure is counted, there is nothing to say of it.
    let share = |metric| period.cores(metric, "").ok();
    if let Some(steal) = share(&metrics::CPU_STEAL).filter(|steal| *steal > STEAL_SHARE * cpus) {
        return Ok(Some(format!("the hypervisor gave {steal:.2} cores to others")));
    }
    for (metric, what) in [(&metrics::PRESSURE_MEMORY_SOME, "memory"), (&metrics::PRESSURE_IO_FULL, "I/O")] {
        if let Some(share) = share(metric).filter(|share| *share > PRESSURE_SHARE) {
            return Ok(Some(format!("tasks waited for {what} in {:.0} % of the time", share * 100.0)));
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

    /// A quiet machine of two CPUs whose VM uses 0.4 cores and whose generator 0.3; with changes.
    fn judged(changes: &[(&Metric, &str, &[i64])], bound_seconds: usize) -> Vec<(InvalidKind, String)> {
        judged_of(changes, bound_seconds, 0)
    }

    fn judged_of(
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
        let seen =
            Seen { period: &period(&series), own_cores: 0.3, bound: &bound, stood_still, seconds: &seconds };
        gate(&seen).into_iter().map(|reason| (reason.kind, reason.why)).collect()
    }

    #[test]
    fn a_quiet_trial_counts() {
        assert_eq!(judged(&[], 0), []);
        assert_eq!(judged(&[], 8), []);
    }

    #[test]
    fn others_who_use_the_machine_make_a_trial_invalid() {
        use InvalidKind::Interference;
        let check = |changes: &[(&Metric, &str, &[i64])], why: &str| {
            assert_eq!(judged(changes, 0), [(Interference, why.to_owned())]);
        };
        check(&[(&metrics::CPU_BUSY, "", &[0, S, 2 * S])], "others used 0.30 of 2 cores");
        check(
            &[
                (&metrics::CPU_BUSY, "", &[0, S * 8 / 10, S * 16 / 10]),
                (&metrics::THREAD_WAIT, "scheduler/1", &[0, S, 2 * S]),
            ],
            "threads of the VM waited 2.5 s for each second on a CPU, while others used 0.10 cores",
        );
        check(&[(&metrics::CPU_STEAL, "", &[0, S / 10, S / 5])], "the hypervisor gave 0.10 cores to others");
        check(
            &[(&metrics::PRESSURE_IO_FULL, "", &[0, S / 5, S * 2 / 5])],
            "tasks waited for I/O in 20 % of the time",
        );
    }

    /// A setting with more threads than CPUs makes them wait for each other: that is its effect.
    #[test]
    fn threads_that_wait_for_each_other_are_no_interference() {
        assert_eq!(judged(&[(&metrics::THREAD_WAIT, "scheduler/1", &[0, S, 2 * S])], 0), []);
    }

    #[test]
    fn a_generator_at_its_limit_or_stopped_makes_a_trial_invalid() {
        assert_eq!(
            judged(&[], 9),
            [(
                InvalidKind::GeneratorBound,
                "the load generator was the limit in 9 of 10 s: late by 3 ms".to_owned()
            )]
        );
        let why = "the load generator stood still for 3 s: it was stopped";
        assert_eq!(judged_of(&[], 0, 3), [(InvalidKind::GeneratorBound, why.to_owned())]);
    }

    #[test]
    fn a_trial_in_which_the_clock_jumped_does_not_count() {
        assert_eq!(clock(0.1), None);
        let told = |moved_s| clock(moved_s).map(|reason| reason.why).unwrap_or_default();
        assert!(told(30.0).contains("by +30.0 s"), "{}", told(30.0));
        assert!(told(-2.0).contains("by -2.0 s"), "{}", told(-2.0));
    }

    #[test]
    fn without_the_host_nothing_can_be_said() {
        let reasons = judged(&[(&metrics::CPU_BUSY, "", &[])], 0);
        assert_eq!(reasons.len(), 1, "{reasons:?}");
        assert_eq!(reasons[0].0, InvalidKind::NotMeasured);
    }
}
