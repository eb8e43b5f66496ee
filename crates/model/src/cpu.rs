//! CPU use in a period: by the VM's process, by its threads of each kind, and by other processes on the host.

use crate::metrics;
use crate::period::{Missing, Period};
use crate::series::{Group, Metric};

/// CPU use of the VM's process, in cores.
pub fn process_cores(period: &Period) -> Result<f64, Missing> {
    Ok(period.cores(&metrics::PROCESS_USER, "")? + period.cores(&metrics::PROCESS_SYSTEM, "")?)
}

/// CPU use of external programs, in cores.
pub fn programs_cores(period: &Period) -> Result<f64, Missing> {
    period.cores(&metrics::PROGRAMS_CPU, "")
}

/// CPU use of other processes on the host, in cores; never negative. External programs are excluded if their use is known.
pub fn neighbour_cores(period: &Period) -> Result<f64, Missing> {
    let own = process_cores(period)? + programs_cores(period).unwrap_or(0.0);
    Ok((period.cores(&metrics::CPU_BUSY, "")? - own).max(0.0))
}

/// Kinds of threads, as in entities of series.
pub mod kind {
    /// Normal schedulers.
    pub const SCHEDULER: &str = "scheduler";
    /// Dirty CPU schedulers.
    pub const DIRTY_CPU: &str = "dirty_cpu_scheduler";
    /// Dirty I/O schedulers.
    pub const DIRTY_IO: &str = "dirty_io_scheduler";
    /// Async threads.
    pub const ASYNC: &str = "async";
    /// Poll threads.
    pub const POLL: &str = "poll";
    /// All kinds of schedulers, which are the threads that busy wait.
    pub const SCHEDULERS: &[&str] = &[SCHEDULER, DIRTY_CPU, DIRTY_IO];
}

/// Whether the thread of an entity (`scheduler/1`) has one of the kinds.
fn is_of(entity: &str, kinds: &[&str]) -> bool {
    kinds.contains(&entity.split('/').next().unwrap_or(entity))
}

/// Entities of a group (`scheduler/1`) whose threads have one of the kinds.
pub fn entities_of<'a>(period: &'a Period, group: Group, kinds: &[&str]) -> Vec<&'a str> {
    period.entities(group).into_iter().filter(|entity| is_of(entity, kinds)).collect()
}

/// Sum of a time counter over all threads of the given kinds, in cores; missing if no such thread has this counter.
pub fn thread_cores(period: &Period, metric: &Metric, kinds: &[&str]) -> Result<f64, Missing> {
    let entities = entities_of(period, metric.group, kinds);
    let Some(first) = entities.first() else { return period.cores(metric, kinds.first().unwrap_or(&"")) };
    // All threads of a VM are read together: a counter that the first thread lacks is missing for all.
    period.cores(metric, first)?;
    Ok(entities.iter().filter_map(|entity| period.cores(metric, entity).ok()).sum())
}

/// Sum of a counter over all threads of the given kinds, per second.
pub fn thread_rate(period: &Period, metric: &Metric, kinds: &[&str]) -> Result<f64, Missing> {
    let entities = entities_of(period, metric.group, kinds);
    let Some(first) = entities.first() else { return period.rate(metric, kinds.first().unwrap_or(&"")) };
    period.rate(metric, first)?;
    Ok(entities.iter().filter_map(|entity| period.rate(metric, entity).ok()).sum())
}

/// If the mean coverage of the scan is lower, the reductions of some processes are missing in the period.
const COMPLETE_PERMILLE: f64 = 999.0;

/// Reductions of all processes except the agent's. Each sample contains the reductions of the busiest processes. If a scan of all
/// processes takes several samples, the reductions of many others are recorded late or not at all; then the VM's own count is used,
/// if it is larger.
pub fn all_reductions(period: &Period) -> Result<f64, Missing> {
    let read = period.stat(&metrics::SCAN_REDUCTIONS, "")?.delta as f64;
    if period.stat(&metrics::SCAN_COVERAGE, "").is_ok_and(|stat| stat.mean() >= COMPLETE_PERMILLE) {
        return Ok(read);
    }
    let counted = |metric| period.stat(metric, "").map_or(0.0, |stat| stat.delta as f64);
    Ok(read.max(counted(&metrics::REDUCTIONS) - counted(&metrics::AGENT_REDUCTIONS)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::period::PeriodBuilder;
    use crate::sample::{SampleBuilder, Span, Tick};
    use crate::series::SeriesTable;
    use crate::units::SECOND_NS;

    #[test]
    fn reductions_are_taken_from_the_vm_if_the_scan_is_incomplete() {
        let check = |coverage: i64, read: i64, counted: i64, expect: f64| {
            let mut table = SeriesTable::default();
            let mut builder = PeriodBuilder::default();
            for second in 0..=10 {
                let t = second * SECOND_NS;
                let span = Some(Span { begin: t, end: t });
                let tick = Tick { t, incarnation: 0, vm: span, host: span, late: 0 };
                let mut out = SampleBuilder::new(&mut table, tick);
                out.metric(&metrics::SCAN_COVERAGE, "", coverage);
                out.metric(&metrics::SCAN_REDUCTIONS, "", read * second);
                out.metric(&metrics::REDUCTIONS, "", counted * second);
                out.metric(&metrics::AGENT_REDUCTIONS, "", 100 * second);
                let sample = out.sample;
                builder.sample(&sample, &table);
            }
            assert_eq!(all_reductions(&builder.finish()), Ok(expect), "{coverage} {read} {counted}");
        };
        // The VM also counts exited processes; the scan, if complete, never includes them.
        check(1_000, 900, 5_000, 9_000.0);
        check(200, 900, 5_100, 50_000.0);
        check(200, 900, 500, 9_000.0);
    }

    #[test]
    fn the_kind_of_a_thread_is_part_of_its_entity() {
        assert!(is_of("scheduler/12", &[kind::SCHEDULER]));
        assert!(!is_of("dirty_io_scheduler/1", &[kind::SCHEDULER]));
        assert!(!is_of("other/timer/99", kind::SCHEDULERS));
    }
}
