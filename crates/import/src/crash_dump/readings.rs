//! Readings of series, each once: what a dump tells twice counts as it was told last.

use std::collections::BTreeMap;

use beamtune_model::{Group, Metric, SampleBuilder};

/// A VM of 64 + 64 schedulers has some 15,000; more are made up.
const MOST: usize = 100_000;

#[derive(Default)]
pub(super) struct Readings(BTreeMap<(Group, &'static str, String), (&'static Metric, i64)>);

impl Readings {
    pub(super) fn add(&mut self, metric: &'static Metric, entity: &str, value: Option<i64>) {
        if let Some(value) = value.filter(|_| self.0.len() < MOST) {
            self.0.insert((metric.group, metric.name, entity.to_owned()), (metric, value));
        }
    }

    pub(super) fn tell(self, out: &mut SampleBuilder<'_>) {
        for ((_, _, entity), (metric, value)) in self.0 {
            out.metric(metric, &entity, value);
        }
    }
}
