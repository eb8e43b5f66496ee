//! Readings by series. If a dump contains several readings of a series, the last one is used.

use std::collections::BTreeMap;

use beamtune_model::{Group, Metric, SampleBuilder};

/// Maximum number of readings. A VM with 64 + 64 schedulers has some 15,000; a dump with more than the maximum is invalid.
const MAX_READINGS: usize = 100_000;

#[derive(Default)]
pub(super) struct Readings(BTreeMap<(Group, &'static str, String), (&'static Metric, i64)>);

impl Readings {
    pub(super) fn add(&mut self, metric: &'static Metric, entity: &str, value: Option<i64>) {
        if let Some(value) = value.filter(|_| self.0.len() < MAX_READINGS) {
            self.0.insert((metric.group, metric.name, entity.to_owned()), (metric, value));
        }
    }

    pub(super) fn write(self, out: &mut SampleBuilder<'_>) {
        for ((_, _, entity), (metric, value)) in self.0 {
            out.metric(metric, &entity, value);
        }
    }
}
