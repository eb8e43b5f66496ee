//! Results of requested garbage collections: measured values, which replace the estimates of rules.

use beamtune_model::{Period, ProcessActivity, RequestedGcRow, facts};

/// If a smaller share of the memory was freed, there was almost no garbage (judgement).
const LITTLE: f64 = 0.1;

/// Memory before a requested garbage collection and the part that it freed, in bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// Heaps and binaries before the collection.
    pub before: f64,
    /// The part of `before` that was freed.
    pub freed: f64,
}

impl Measured {
    /// Whether there was almost no garbage. This is measured, so a collection is not advised again.
    pub fn is_little(self) -> bool {
        self.freed < LITTLE * self.before
    }
}

/// Returns the result of a requested collection of this process; `None` if it was not collected.
pub fn of_process(period: &Period, process: &ProcessActivity) -> Option<Measured> {
    if let Some(row) = period.collected.iter().rev().find(|row| row.pid == process.pid) {
        let before = row.heap_before.saturating_add(row.binary_before) as f64;
        return Some(Measured { before, freed: row.freed().max(0) as f64 });
    }
    // Only processes that shrank have a row of their own.
    let named = period.collections.iter().rev().find(|row| row.selection == "named")?;
    let names = period.facts.list(facts::COLLECTED)?;
    let row = process.row.as_ref();
    let name = row.and_then(|row| row.name.as_deref());
    let is_named = names.iter().any(|who| *who == process.pid || Some(who.as_str()) == name);
    if !is_named || named.collected != named.chosen || named.collected == 0 {
        return None;
    }
    let all = before(named);
    let own = row.map(|row| row.memory_bytes.saturating_add(row.binary_bytes.unwrap_or(0)) as f64);
    Some(Measured { before: own.filter(|_| named.chosen > 1).unwrap_or(all), freed: 0.0 })
}

/// Returns the result for the heaps of a sample of all processes, which includes the largest ones. `None` if no sample was collected, or if
/// large heaps were skipped.
pub fn of_sampled_heaps(period: &Period) -> Option<Measured> {
    let row = period
        .last_sampled_collection()
        .filter(|row| row.collected > 0 && row.heap_before > 0 && row.large == 0)?;
    let freed = row.heap_before.saturating_sub(row.heap_after).max(0) as f64;
    Some(Measured { before: row.heap_before as f64, freed })
}

/// Whether at least nine of ten processes were just collected (judgement). The memory that remains is then what a collection cannot free.
pub fn of_most(period: &Period) -> bool {
    period.last_sampled_collection().is_some_and(|row| {
        row.collected > 0 && row.collected.saturating_mul(10) >= row.processes.saturating_mul(9)
    })
}

fn before(row: &RequestedGcRow) -> f64 {
    row.heap_before.saturating_add(row.binary_before) as f64
}

#[cfg(test)]
mod tests {
    use beamtune_model::{CollectedProcessRow, PeriodBuilder};

    use super::*;

    fn process(pid: &str) -> ProcessActivity {
        let mut builder = PeriodBuilder::default();
        builder.process(beamtune_model::ProcessRow { pid: pid.to_owned(), ..Default::default() });
        builder.finish().processes.into_iter().next().expect("a process")
    }

    #[test]
    fn a_collected_process_without_its_own_row_freed_nothing() {
        let mut period = Period::default();
        let one = process("<0.9.0>");
        assert_eq!(of_process(&period, &one), None);
        let named = RequestedGcRow {
            selection: "named".to_owned(),
            chosen: 1,
            collected: 1,
            heap_before: 1_000,
            heap_after: 1_000,
            ..RequestedGcRow::default()
        };
        period.collections = vec![named.clone()];
        assert_eq!(of_process(&period, &one), None, "the named processes are not recorded");
        period.facts.set(facts::COLLECTED, r#"["<0.9.0>"]"#);
        assert_eq!(of_process(&period, &one), Some(Measured { before: 1_000.0, freed: 0.0 }));
        assert!(of_process(&period, &one).is_some_and(Measured::is_little));
        assert_eq!(of_process(&period, &process("<0.8.0>")), None);
        period.collections = vec![RequestedGcRow { collected: 0, ..named }];
        assert_eq!(of_process(&period, &one), None, "the process has ended, or did not answer");
        let pid = "<0.9.0>".to_owned();
        period.collected = vec![CollectedProcessRow {
            pid,
            heap_before: 900,
            heap_after: 100,
            ..CollectedProcessRow::default()
        }];
        let measured = of_process(&period, &one).expect("measured");
        assert!(measured.freed == 800.0 && !measured.is_little());
    }

    #[test]
    fn a_sample_shows_the_share_of_garbage_in_heaps() {
        let mut period = Period::default();
        let row = RequestedGcRow {
            selection: "sample".to_owned(),
            collected: 100,
            heap_before: 1_000,
            heap_after: 990,
            ..RequestedGcRow::default()
        };
        assert_eq!(of_sampled_heaps(&period), None);
        period.collections = vec![RequestedGcRow { large: 1, ..row.clone() }];
        assert_eq!(of_sampled_heaps(&period), None);
        period.collections = vec![row];
        let measured = of_sampled_heaps(&period).expect("measured");
        assert_eq!(measured, Measured { before: 1_000.0, freed: 10.0 });
        assert!(measured.is_little());
    }
}
