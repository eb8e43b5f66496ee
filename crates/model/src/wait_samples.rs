//! Samples of waiting processes: where they wait, and for what.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::units::Nanos;

/// A call stack that processes of a random sample had in common, or the call stack of a blocking process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitSampleRow {
    /// Time since the start of the recording.
    pub t: Nanos,
    /// The blocking process; `None` in rows of a random sample.
    pub pid: Option<String>,
    /// `waiting`, `running` …; always `waiting` in rows of a random sample.
    pub status: String,
    /// `module:function/arity`, innermost first, at most eight; empty if the process was running.
    pub stack: Vec<String>,
    /// Number of sampled processes with this stack.
    pub count: i64,
    /// Number of these processes that had queued messages; if `pid` is set, the queue length of this process.
    pub queued: i64,
    /// Size of the sample; 0 if `pid` is set.
    #[serde(rename = "of")]
    pub sample_size: i64,
    /// Pids or node names that these processes monitor, each with the number of processes: a `gen` call monitors the called process.
    /// If `pid` is set, also the peers of its TCP connections: `10.0.0.7:5432`, `[::1]:5432`.
    #[serde(rename = "on")]
    pub targets: Vec<(String, i64)>,
    /// Initial call of new processes that were sampled a second time some seconds later. In these rows `of` is the number of such
    /// processes, and the row with status `ended` counts those that have exited. `None` in all other rows, and in older recordings.
    pub kind: Option<String>,
}

/// New processes of one kind, sampled a second time some seconds after their start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewProcesses {
    /// Initial call of these processes.
    pub kind: String,
    /// Number of processes, summed over all samples.
    pub sampled: i64,
    /// Number of these processes that had exited.
    pub ended: i64,
    /// Stacks of the living processes, the most frequent first.
    pub stacks: Vec<WaitSample>,
}

/// A call stack with its counts from all samples of a period.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WaitSample {
    /// See [`StandRow::pid`].
    pub pid: Option<String>,
    /// See [`StandRow::status`].
    pub status: String,
    /// See [`StandRow::stack`].
    pub stack: Vec<String>,
    /// Sum of [`StandRow::count`] over all samples.
    pub count: i64,
    /// Sum of [`StandRow::queued`] over all samples.
    pub queued: i64,
    /// Number of samples in which the stack occurred.
    pub samples: u32,
    /// What the processes monitor, the most frequent first.
    pub targets: Vec<WaitTarget>,
}

impl WaitSample {
    fn add_targets(&mut self, on: Vec<(String, i64)>, max: usize) {
        for (who, count) in on {
            if let Some(wanted) = self.targets.iter_mut().find(|wanted| wanted.name == who) {
                wanted.count = wanted.count.saturating_add(count);
                wanted.samples += 1;
            } else if self.targets.len() < max {
                self.targets.push(WaitTarget { name: who, count, samples: 1 });
            }
        }
    }
}

/// A process or node that waiting processes monitor, or the peer of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitTarget {
    /// A pid, a node name, or an address.
    pub name: String,
    /// Number of processes that monitor it, summed over all samples.
    pub count: i64,
    /// Number of samples in which processes monitored it.
    pub samples: u32,
}

impl WaitTarget {
    /// Whether it is the address of a peer.
    pub fn is_address(&self) -> bool {
        self.name.contains(':') && !self.name.contains('@')
    }
}

/// Call stacks of waiting processes in a period.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WaitSamples {
    /// Number of samples.
    pub samples: u32,
    /// Number of processes sampled, summed over all samples; a process may be counted several times.
    pub sampled: i64,
    /// Each stack once: blocking processes first, then in descending order of count.
    pub stacks: Vec<WaitSample>,
    /// New processes that were sampled a second time, the most numerous kind first.
    pub new_processes: Vec<NewProcesses>,
}

/// Accumulates [`StandRow`]s.
#[derive(Debug, Default)]
pub(crate) struct WaitSamplesBuilder {
    totals: WaitSamples,
    last: Option<Nanos>,
    /// By initial call, with the time of the last sample.
    newcomers: HashMap<String, (Nanos, NewProcesses)>,
    by_stack: HashMap<(Option<String>, String, Vec<String>), WaitSample>,
}

impl WaitSamplesBuilder {
    /// Adds a row; keeps at most `max` stacks.
    pub(crate) fn add(&mut self, row: WaitSampleRow, max: usize) {
        if let Some(kind) = row.kind.clone() {
            return self.add_newcomers(kind, row, max);
        }
        if self.last != Some(row.t) {
            self.last = Some(row.t);
            self.totals.samples += 1;
            self.totals.sampled = self.totals.sampled.saturating_add(row.sample_size);
        }
        let key = (row.pid, row.status, row.stack);
        if self.by_stack.len() >= max && !self.by_stack.contains_key(&key) {
            return;
        }
        let place = self.by_stack.entry(key).or_default();
        place.count = place.count.saturating_add(row.count);
        place.queued = place.queued.saturating_add(row.queued);
        place.samples += 1;
        place.add_targets(row.targets, max);
    }

    fn add_newcomers(&mut self, kind: String, row: WaitSampleRow, max: usize) {
        if self.newcomers.len() >= max && !self.newcomers.contains_key(&kind) {
            return;
        }
        let (last, new) = self
            .newcomers
            .entry(kind.clone())
            .or_insert_with(|| (Nanos::MIN, NewProcesses { kind, ..NewProcesses::default() }));
        if *last != row.t {
            *last = row.t;
            new.sampled = new.sampled.saturating_add(row.sample_size);
        }
        if row.status == "ended" {
            new.ended = new.ended.saturating_add(row.count);
            return;
        }
        let at = match new
            .stacks
            .iter()
            .position(|place| place.status == row.status && place.stack == row.stack)
        {
            Some(at) => at,
            None if new.stacks.len() >= max => return,
            None => {
                new.stacks.push(WaitSample { status: row.status, stack: row.stack, ..WaitSample::default() });
                new.stacks.len() - 1
            }
        };
        let Some(place) = new.stacks.get_mut(at) else { return };
        place.count = place.count.saturating_add(row.count);
        place.queued = place.queued.saturating_add(row.queued);
        place.samples += 1;
        place.add_targets(row.targets, max);
    }

    pub(crate) fn finish(self) -> WaitSamples {
        let place = |((pid, status, stack), place): ((Option<String>, String, Vec<String>), WaitSample)| {
            let mut on = place.targets;
            on.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.name.cmp(&b.name)));
            WaitSample { pid, status, stack, targets: on, ..place }
        };
        let mut places: Vec<WaitSample> = self.by_stack.into_iter().map(place).collect();
        let key = |place: &WaitSample| (place.pid.is_none(), std::cmp::Reverse(place.count));
        places.sort_by(|a, b| {
            key(a)
                .cmp(&key(b))
                .then_with(|| (&a.pid, &a.stack, &a.status).cmp(&(&b.pid, &b.stack, &b.status)))
        });
        let mut newcomers: Vec<NewProcesses> = self.newcomers.into_values().map(|(_, new)| new).collect();
        newcomers.iter_mut().for_each(|new| {
            new.stacks.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.stack.cmp(&b.stack)));
        });
        newcomers.sort_by(|a, b| b.sampled.cmp(&a.sampled).then_with(|| a.kind.cmp(&b.kind)));
        WaitSamples { stacks: places, new_processes: newcomers, ..self.totals }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_one_stack_are_added_up() {
        let row = |t, stack: &[&str], count, on: &[(&str, i64)]| WaitSampleRow {
            t,
            status: "waiting".to_owned(),
            stack: stack.iter().map(|&name| name.to_owned()).collect(),
            count,
            sample_size: 100,
            targets: on.iter().map(|&(who, count)| (who.to_owned(), count)).collect(),
            ..WaitSampleRow::default()
        };
        let mut builder = WaitSamplesBuilder::default();
        builder.add(row(1, &["gen:do_call/4", "shop:buy/1"], 40, &[("<0.9.0>", 40), ("<0.7.0>", 1)]), 10);
        builder.add(row(1, &["gen_server:loop/7"], 60, &[]), 10);
        builder.add(row(2, &["gen:do_call/4", "shop:buy/1"], 30, &[("<0.9.0>", 29)]), 10);
        let blocking = WaitSampleRow {
            pid: Some("<0.9.0>".to_owned()),
            sample_size: 0,
            ..row(2, &["prim_inet:recv0/3"], 1, &[])
        };
        builder.add(blocking, 10);
        let samples = builder.finish();
        assert_eq!((samples.samples, samples.sampled), (2, 200));
        let summary: Vec<_> = samples
            .stacks
            .iter()
            .map(|place| (place.pid.as_deref(), &*place.stack[0], place.count, place.samples))
            .collect();
        assert_eq!(
            summary,
            [
                (Some("<0.9.0>"), "prim_inet:recv0/3", 1, 1),
                (None, "gen:do_call/4", 70, 2),
                (None, "gen_server:loop/7", 60, 1),
            ]
        );
        let wanted: Vec<_> = samples.stacks[1]
            .targets
            .iter()
            .map(|wanted| (&*wanted.name, wanted.count, wanted.samples))
            .collect();
        assert_eq!(wanted, [("<0.9.0>", 69, 2), ("<0.7.0>", 1, 1)]);
    }

    #[test]
    fn second_samples_of_new_processes_are_not_part_of_the_random_sample() {
        let later = |t, status: &str, count| WaitSampleRow {
            t,
            kind: Some("shop:cart/1".to_owned()),
            status: status.to_owned(),
            stack: if status == "ended" { Vec::new() } else { vec!["gen_server:loop/7".to_owned()] },
            count,
            sample_size: 20,
            ..WaitSampleRow::default()
        };
        let mut builder = WaitSamplesBuilder::default();
        for row in
            [later(1, "waiting", 15), later(1, "ended", 5), later(2, "waiting", 18), later(2, "ended", 2)]
        {
            builder.add(row, 10);
        }
        let samples = builder.finish();
        assert_eq!((samples.samples, samples.sampled, samples.stacks.len()), (0, 0, 0));
        let [new] = &samples.new_processes[..] else { panic!("{:?}", samples.new_processes) };
        assert_eq!((new.kind.as_str(), new.sampled, new.ended), ("shop:cart/1", 40, 7));
        assert_eq!((new.stacks.len(), new.stacks[0].count, new.stacks[0].samples), (1, 33, 2));
    }

    #[test]
    fn number_of_stacks_is_limited() {
        let mut builder = WaitSamplesBuilder::default();
        for place in 0..20 {
            builder.add(
                WaitSampleRow {
                    stack: vec![format!("m:f/{place}")],
                    count: 1,
                    sample_size: 20,
                    ..WaitSampleRow::default()
                },
                5,
            );
        }
        assert_eq!(builder.finish().stacks.len(), 5);
    }
}
