//! Computes the measures of a trial from the recording of its window and from the answers that the load generator received.

use std::collections::BTreeMap;

use beamtune_model::study::{self, Measures};
use beamtune_model::units::SECOND_NS;
use beamtune_model::{Group, Metric, Period, cpu, metrics};

/// The answers that the load generator received in the window.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Answers {
    /// Length of the window in seconds.
    pub seconds: f64,
    /// Number of correct answers.
    pub done: u64,
    /// Number of errors, that is, wrong or missing answers.
    pub errors: u64,
    /// Percentiles of the response times, by name (`p99`).
    pub percentiles_ns: BTreeMap<String, u64>,
    /// The run, if the window is the whole run of a job that ends on its own.
    pub run: Option<Run>,
}

/// The run of a job that ends on its own.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Run {
    /// Duration in nanoseconds.
    pub took_ns: f64,
    /// CPU time of the target, in nanoseconds.
    pub cpu_ns: f64,
}

impl Answers {
    /// Returns the number of correct answers per second.
    fn per_second(&self) -> f64 {
        self.done as f64 / self.seconds
    }
}

/// Computes the measures of a window. Quantities are absent if their series were not recorded or if there were no answers.
pub fn measure(period: &Period, answers: &Answers) -> Measures {
    let mut found = Measures::default();
    let mut set = |quantity: study::Quantity, value: f64| found.set(quantity.name, value);
    // This divides by zero if there are no answers; `Measures::set` drops values that are not finite.
    let per_request = |per_second: f64| per_second / answers.per_second();
    if answers.run.is_none() {
        set(study::THROUGHPUT, answers.per_second());
    }
    set(study::ERRORS, answers.errors as f64 / (answers.done + answers.errors) as f64);
    for quantity in [study::P50, study::P90, study::P99, study::P999] {
        if let Some(value) = answers.percentiles_ns.get(quantity.name) {
            set(quantity, *value as f64);
        }
    }
    if let Some(Run { took_ns, cpu_ns }) = answers.run {
        set(study::DURATION, took_ns);
        set(study::CPU_TIME, cpu_ns);
    }
    if let Some(cores) = vm_cores(period) {
        set(study::CPU, cores);
        set(study::CPU_PER_REQUEST, per_request(cores * SECOND_NS as f64));
    }
    if let Ok(rss) = period.stat(&metrics::RSS, "") {
        set(study::RSS, rss.mean());
        set(study::RSS_PEAK, rss.max as f64);
    }
    let switches = sum(period, &metrics::VOLUNTARY_SWITCHES).zip(sum(period, &metrics::INVOLUNTARY_SWITCHES));
    if let Some((voluntary, involuntary)) = switches {
        set(study::SWITCHES, per_request(voluntary + involuntary));
    }
    let rate = |metric| period.rate(metric, "");
    if let (Ok(minor), Ok(major)) = (rate(&metrics::MINOR_FAULTS), rate(&metrics::MAJOR_FAULTS)) {
        set(study::FAULTS, per_request(minor + major));
    }
    if let Ok(reductions) = rate(&metrics::REDUCTIONS) {
        set(study::REDUCTIONS, per_request(reductions));
    }
    if let Ok(collections) = rate(&metrics::GARBAGE_COLLECTIONS) {
        set(study::COLLECTIONS, per_request(collections));
    }
    for (kind, cores) in by_kind(period) {
        found.set(format!("{}/{kind}", study::CPU_PER_REQUEST.name), per_request(cores * SECOND_NS as f64));
    }
    found
}

/// Maximum difference between the CPU time of all threads and of the process, as a share. A larger difference means that threads ended or
/// were not read; the CPU time of the process is then used.
const MAX_THREAD_CPU_DIFFERENCE: f64 = 0.1;

/// Returns the CPU use of the VM, in cores. Linux reports the CPU time of threads in nanoseconds, but that of the process in clock ticks
/// of 10 ms, which are several percent of a short window.
fn vm_cores(period: &Period) -> Option<f64> {
    let process = cpu::process_cores(period).ok()?;
    let threads = sum(period, &metrics::THREAD_CPU).map(|rate| rate / SECOND_NS as f64);
    Some(
        threads
            .filter(|threads| (threads - process).abs() <= MAX_THREAD_CPU_DIFFERENCE * process)
            .unwrap_or(process),
    )
}

/// Returns the sum of a counter over all threads, per second.
pub(crate) fn sum(period: &Period, metric: &Metric) -> Option<f64> {
    let rates: Vec<f64> =
        period.entities(metric.group).iter().filter_map(|entity| period.rate(metric, entity).ok()).collect();
    (!rates.is_empty()).then(|| rates.iter().sum())
}

/// Returns the CPU use by kind of thread, in cores.
fn by_kind(period: &Period) -> BTreeMap<&str, f64> {
    let mut kinds = BTreeMap::new();
    for entity in period.entities(Group::HostThread) {
        let kind = entity.split('/').next().unwrap_or(entity);
        if let Ok(cores) = period.cores(&metrics::THREAD_CPU, entity) {
            *kinds.entry(kind).or_insert(0.0) += cores;
        }
    }
    kinds
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::period;

    #[test]
    fn measures_of_a_window_are_per_answer() {
        let period = period(&[
            (&metrics::PROCESS_USER, "", &[0, 300_000_000, 600_000_000]),
            (&metrics::PROCESS_SYSTEM, "", &[0, 100_000_000, 200_000_000]),
            (&metrics::RSS, "", &[50, 70, 60]),
            (&metrics::REDUCTIONS, "", &[0, 4_000, 8_000]),
            (&metrics::THREAD_CPU, "scheduler/1", &[0, 150_000_000, 300_000_000]),
            (&metrics::THREAD_CPU, "scheduler/2", &[0, 150_000_000, 300_000_000]),
            (&metrics::THREAD_CPU, "aux", &[0, 10_000_000, 20_000_000]),
            (&metrics::VOLUNTARY_SWITCHES, "scheduler/1", &[0, 500, 1_000]),
            (&metrics::INVOLUNTARY_SWITCHES, "scheduler/1", &[0, 100, 200]),
        ]);
        let percentiles_ns = BTreeMap::from([("p99".to_owned(), 2_000_000)]);
        let found = measure(
            &period,
            &Answers { seconds: 2.0, done: 4_000, errors: 1_000, percentiles_ns, run: None },
        );
        let check = |name: &str, expect: Option<f64>| {
            let value = found.get(name);
            let is_near = match (value, expect) {
                (Some(value), Some(expect)) => (value - expect).abs() < 1e-6 * expect.abs(),
                _ => value == expect,
            };
            assert!(is_near, "{name}: {value:?}, not {expect:?}");
        };
        check("throughput", Some(2_000.0));
        check("errors", Some(0.2));
        check("cpu", Some(0.4));
        check("cpu-per-request", Some(200_000.0));
        check("cpu-per-request/scheduler", Some(150_000.0));
        check("cpu-per-request/aux", Some(5_000.0));
        check("p99", Some(2e6));
        check("p50", None);
        check("rss", Some(60.0));
        check("rss-peak", Some(70.0));
        check("reductions-per-request", Some(2.0));
        check("switches-per-request", Some(0.3));
        check("faults-per-request", None);
    }

    #[test]
    fn cpu_time_of_threads_is_used_if_it_agrees_with_the_process() {
        let cores = |of_thread: i64| {
            let period = period(&[
                (&metrics::PROCESS_USER, "", &[0, 300_000_000]),
                (&metrics::PROCESS_SYSTEM, "", &[0, 0]),
                (&metrics::THREAD_CPU, "scheduler/1", &[0, of_thread]),
            ]);
            measure(&period, &Answers { seconds: 1.0, done: 1, ..Answers::default() }).get("cpu")
        };
        assert_eq!(cores(307_654_321), Some(0.307_654_321));
        assert_eq!(cores(150_000_000), Some(0.3), "half of the threads were not read");
    }

    #[test]
    fn run_has_duration_and_cpu_time_but_no_throughput() {
        let run = Some(Run { took_ns: 5e9, cpu_ns: 7e9 });
        let found = measure(&period(&[]), &Answers { seconds: 5.0, run, ..Answers::default() });
        assert_eq!(found.iter().collect::<Vec<_>>(), [("cpu-time", 7e9), ("duration", 5e9)]);
    }

    #[test]
    fn measures_per_answer_are_absent_without_answers() {
        let period =
            period(&[(&metrics::PROCESS_USER, "", &[0, 1_000]), (&metrics::PROCESS_SYSTEM, "", &[0, 0])]);
        let found = measure(&period, &Answers { seconds: 1.0, ..Answers::default() });
        assert_eq!(found.get("cpu-per-request"), None);
        assert_eq!(found.get("errors"), None);
        assert!(found.get("cpu").is_some());
    }
}
