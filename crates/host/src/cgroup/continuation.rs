//! Keeps counters continuous when they are read from a different group than before, because a quota changed or the process was moved. Each
//! group has its own counters, so the difference between the counters of two groups is meaningless.

use super::CpuGroup;

/// Converts the counters of successive groups to continuous counters.
#[derive(Debug, Default)]
pub(crate) struct Continuation {
    path: Option<String>,
    counters: [Counter; 4],
}

#[derive(Debug, Default, Clone, Copy)]
struct Counter {
    last: i64,
    shift: i64,
}

impl Continuation {
    /// Adds an offset to the counters of a group, so that they continue at the last values of the previous group. The counters of the
    /// first group remain unchanged.
    pub(crate) fn shift(&mut self, group: &mut CpuGroup) {
        let changed = self.path.as_ref().is_some_and(|path| *path != group.path);
        self.path = Some(group.path.clone());
        let values =
            [&mut group.periods, &mut group.throttled_periods, &mut group.throttled_ns, &mut group.usage_ns];
        for (counter, value) in self.counters.iter_mut().zip(values) {
            let Some(value) = value else { continue };
            if changed {
                counter.shift = counter.last.saturating_sub(*value);
            }
            *value = value.saturating_add(counter.shift);
            counter.last = *value;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_continue_in_another_group() {
        let mut continuation = Continuation::default();
        let mut check = |path: &str, raw: i64, expect: i64| {
            let mut group =
                CpuGroup { path: path.to_owned(), throttled_periods: Some(raw), ..CpuGroup::default() };
            continuation.shift(&mut group);
            assert_eq!((group.throttled_periods, group.periods), (Some(expect), None), "{path} {raw}");
        };
        check("/a", 1_000, 1_000);
        check("/a", 1_010, 1_010);
        check("/b", 7, 1_010);
        check("/b", 9, 1_012);
        check("/a", 1_500, 1_012);
        check("/a", 1_501, 1_013);
    }
}
