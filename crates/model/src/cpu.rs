//! Who used how much CPU, from a period: the VM's process, its kinds of threads, others on its host.

use crate::metrics;
use crate::period::{Missing, Period};
use crate::series::{Group, Metric};

/// CPU of the VM's process, in cores.
pub fn process_cores(period: &Period) -> Result<f64, Missing> {
    Ok(period.cores(&metrics::PROCESS_USER, "")? + period.cores(&metrics::PROCESS_SYSTEM, "")?)
}

/// CPU of the programs that the VM has started, in cores.
pub fn programs_cores(period: &Period) -> Result<f64, Missing> {
    period.cores(&metrics::PROGRAMS_CPU, "")
}

/// CPU that others on the host used, in cores; never negative. Programs that the VM has started are no others, where they are known.
pub fn foreign_cores(period: &Period) -> Result<f64, Missing> {
    let own = process_cores(period)? + programs_cores(period).unwrap_or(0.0);
    Ok((period.cores(&metrics::CPU_BUSY, "")? - own).max(0.0))
}

/// Kinds of threads, as the entities of series name them.
pub mod kind {
    /// Normal schedulers.
    pub const SCHEDULER: &str = "scheduler";
    /// Dirty CPU schedulers.
    pub const DIRTY_CPU: &str = "dirty_cpu_scheduler";
    /// Dirty I/O schedulers.
    pub const DIRTY_IO: &str = "dirty_io_scheduler";
    /// Threads of the async pool.
    pub const ASYNC: &str = "async";
    /// Poll threads, which wait for sockets.
    pub const POLL: &str = "poll";
    /// All kinds of schedulers: those that busy wait.
    pub const SCHEDULERS: &[&str] = &[SCHEDULER, DIRTY_CPU, DIRTY_IO];
}

/// True if an entity (`scheduler/1`) is of one of the kinds.
fn is_of(entity: &str, kinds: &[&str]) -> bool {
    kinds.contains(&entity.split('/').next().unwrap_or(entity))
}

/// Entities of a group (`scheduler/1`) that are of one of the kinds.
pub fn entities_of<'a>(period: &'a Period, group: Group, kinds: &[&str]) -> Vec<&'a str> {
    period.entities(group).into_iter().filter(|entity| is_of(entity, kinds)).collect()
}

/// A counter of time of all threads of some kinds, added up, in cores; missing if none of them has it.
pub fn thread_cores(period: &Period, metric: &Metric, kinds: &[&str]) -> Result<f64, Missing> {
    let entities = entities_of(period, metric.group, kinds);
    let Some(first) = entities.first() else { return period.cores(metric, kinds.first().unwrap_or(&"")) };
    // All threads of a VM are read together: what the first lacks, all lack.
    period.cores(metric, first)?;
    Ok(entities.iter().filter_map(|entity| period.cores(metric, entity).ok()).sum())
}

/// A counter of all threads of some kinds, added up, per second.
pub fn thread_rate(period: &Period, metric: &Metric, kinds: &[&str]) -> Result<f64, Missing> {
    let entities = entities_of(period, metric.group, kinds);
    let Some(first) = entities.first() else { return period.rate(metric, kinds.first().unwrap_or(&"")) };
    period.rate(metric, first)?;
    Ok(entities.iter().filter_map(|entity| period.rate(metric, entity).ok()).sum())
}

/// Where fewer of a thousand processes were read in a sample, their reductions were not all told in the period.
const WHOLE_PERMILLE: f64 = 999.0;

/// The reductions of all processes but the agent's. Where a look at all processes takes several samples, those of many are told later, or not
/// before the end, while those of the busiest ones are in each sample: then what the VM counts itself is all.
pub fn all_reductions(period: &Period) -> Result<f64, Missing> {
    let read = period.stat(&metrics::SCAN_REDUCTIONS, "")?.delta as f64;
    if period.stat(&metrics::SCAN_COVERAGE, "").is_ok_and(|stat| stat.mean() >= WHOLE_PERMILLE) {
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
    fn reductions_that_were_not_read_in_time_are_counted_by_the_vm() {
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
        // The VM also counts those that have ended; where all are read, these were never part of it.
        check(1_000, 900, 5_000, 9_000.0);
        check(200, 900, 5_100, 50_000.0);
        check(200, 900, 500, 9_000.0);
    }

    #[test]
    fn a_thread_is_known_by_the_kind_in_its_entity() {
        assert!(is_of("scheduler/12", &[kind::SCHEDULER]));
        assert!(!is_of("dirty_io_scheduler/1", &[kind::SCHEDULER]));
        assert!(!is_of("other/timer/99", kind::SCHEDULERS));
    }
}
