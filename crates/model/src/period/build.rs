//! Building a period from samples, or from the columns of stored chunks.

use std::collections::HashMap;

use super::queued::ProcessReadings;
use super::{IncarnationSpan, Period, ProcessActivity, SeriesStat, WorkSample, requested};
use crate::facts::Facts;
use crate::messages::{MessageRow, MessagesBuilder};
use crate::profile::{ProfileBuilder, ProfileRow, process_number};
use crate::rows::{ExitRow, PortRow, ProcessRow, ProcessTick, RunSampleRow, SpawnRow, TableRow};
use crate::sample::{Event, Gap, Incarnation, Sample, Tick};
use crate::series::{Series, SeriesId, SeriesTable};
use crate::units::{Kind, Nanos, Unit};
use crate::wait_samples::{WaitSampleRow, WaitSamplesBuilder};
use crate::window::Point;

/// Number of processes to keep. When twice as many have accumulated, those with the fewest reductions and the shortest queues are dropped.
pub(super) const PROCESS_USES: usize = 1_000;

/// Maximum number of call stacks of a process.
const MAX_STACKS: usize = 16;

/// Maximum number of rows of each kind in a period: events, gaps, origins, tables and ports. A busy day has some hundreds.
pub(super) const MAX_ROWS: usize = 10_000;

/// Maximum number of samples of all profiles of a period. A minute of 64 busy schedulers at 99 Hz has 380,000; equal ones are summed up.
const MAX_PROFILE_SAMPLES: usize = 1_000_000;

/// Maximum number of kinds of exits. The agent reports at most 100 in one incarnation.
const MAX_EXIT_KINDS: usize = 200;

/// Call stacks of a process with the number of samples of each.
#[derive(Debug, Default)]
struct ProcessStacks {
    ran: Vec<(Vec<String>, i64)>,
    stood: Vec<(Vec<String>, i64)>,
}

/// Accumulates the readings of one series.
#[derive(Debug)]
pub struct Readings {
    id: SeriesId,
    unit: Unit,
    kind: Kind,
    stat: Option<SeriesStat>,
}

impl Readings {
    /// Adds readings in chronological order, all later than those added before.
    pub fn extend(&mut self, points: impl IntoIterator<Item = Point>) {
        let mut points = points.into_iter();
        let stat = match &mut self.stat {
            Some(stat) => stat,
            empty => {
                let Some(first) = points.next() else { return };
                empty.insert(SeriesStat::new(self.unit, self.kind, first))
            }
        };
        points.for_each(|point| stat.push(point));
    }

    /// Adds readings of one value at ascending times, within one incarnation.
    pub fn push_same(&mut self, value: i64, incarnation: u32, times: &[Nanos]) {
        let [first, rest @ ..] = times else { return };
        match &mut self.stat {
            Some(stat) => stat.push_same(value, incarnation, times),
            empty => {
                let first = Point { t: *first, incarnation, value };
                let stat = empty.insert(SeriesStat::new(self.unit, self.kind, first));
                stat.push_same(value, incarnation, rest);
            }
        }
    }
}

/// Builds a [`Period`] from samples, or from the columns of stored chunks.
#[derive(Debug, Default)]
pub struct PeriodBuilder {
    pub(super) period: Period,
    uses: HashMap<String, ProcessActivity>,
    rows: HashMap<String, ProcessReadings>,
    /// By pid.
    process_stacks: HashMap<String, ProcessStacks>,
    tables: HashMap<String, TableRow>,
    ports: HashMap<String, PortRow>,
    /// By `what`, `kind` and `maker`.
    spawns: HashMap<(String, String, Option<String>), SpawnRow>,
    exits: Vec<ExitRow>,
    wait_samples: WaitSamplesBuilder,
    messages: MessagesBuilder,
    profile: ProfileBuilder,
}

impl PeriodBuilder {
    /// Starts with the facts of one incarnation.
    pub fn new(incarnation: Option<Incarnation>, facts: Facts, lives: u32) -> Self {
        PeriodBuilder {
            period: Period { incarnation, facts, incarnation_count: lives, ..Period::default() },
            ..Self::default()
        }
    }

    /// Sets the spans of all incarnations, for a period that contains the ticks of only one of them.
    pub fn set_incarnation_spans(&mut self, lives: Vec<IncarnationSpan>) {
        self.period.incarnation_spans = lives;
    }

    /// Adds a tick, later than those added before.
    pub fn tick(&mut self, tick: &Tick) {
        let period = &mut self.period;
        if period.ticks == 0 {
            period.begin = tick.t;
        }
        period.end = period.end.max(tick.t);
        period.ticks += 1;
        period.vm_ticks += u32::from(tick.vm.is_some());
        period.host_ticks += u32::from(tick.host.is_some());
        period.max_late = period.max_late.max(tick.late);
    }

    /// Adds readings of one series in chronological order, all later than those added before.
    pub fn column(&mut self, series: &Series, points: impl IntoIterator<Item = Point>) {
        let mut readings = self.take_readings(series);
        readings.extend(points);
        self.put_readings(readings);
    }

    /// Removes and returns the summary of one series, so that another thread can extend it. Until the summary is put back, the series
    /// has no readings here.
    pub fn take_readings(&mut self, series: &Series) -> Readings {
        let id =
            self.period.series.intern(series.group, &series.entity, &series.name, series.unit, series.kind);
        if self.period.stats.len() <= id.index() {
            self.period.stats.resize(id.index() + 1, None);
        }
        let stat = self.period.stats[id.index()].take();
        Readings { id, unit: series.unit, kind: series.kind, stat }
    }

    /// Puts back a summary that [`PeriodBuilder::take_readings`] returned.
    pub fn put_readings(&mut self, readings: Readings) {
        self.period.stats[readings.id.index()] = readings.stat;
    }

    /// Adds the busiest processes of one tick.
    pub fn busiest(&mut self, t: Nanos, ticks: &[ProcessTick]) {
        for tick in ticks {
            // Avoids cloning the key of known processes.
            let entry = match self.uses.get_mut(&*tick.pid) {
                Some(entry) => entry,
                None => {
                    self.uses.entry(tick.pid.to_string()).or_insert_with(|| ProcessActivity::new(&tick.pid))
                }
            };
            entry.reductions = entry.reductions.saturating_add(tick.reductions);
            entry.ticks += 1;
            if let Some(runnable) = tick.runnable {
                entry.status_samples += 1;
                entry.runnable += u32::from(runnable);
            }
            entry.queue_max = entry.queue_max.max(tick.queue);
            entry.work.push(t, tick.reductions);
            entry.queue.push(t, tick.queue);
            entry.last_queue = (t, tick.queue);
        }
        if self.uses.len() > 2 * PROCESS_USES {
            self.drop_least();
        }
    }

    /// Keeps [`PROCESS_USES`] processes: one half for the most reductions, the other half for the longest queues.
    fn drop_least(&mut self) {
        let nth = |mut values: Vec<i64>| match PROCESS_USES / 2 < values.len() {
            true => *values.select_nth_unstable_by(PROCESS_USES / 2, |a, b| b.cmp(a)).1,
            false => 0,
        };
        let reductions = nth(self.uses.values().map(|entry| entry.reductions).collect());
        let queue = nth(self.uses.values().map(|entry| entry.queue_max).collect());
        self.uses.retain(|_, entry| entry.reductions > reductions || entry.queue_max > queue);
        let uses = &self.uses;
        self.rows.retain(|pid, _| uses.contains_key(pid));
        self.process_stacks.retain(|pid, _| uses.contains_key(pid));
    }

    /// Adds a detailed reading of a process; keeps the last one, and the one with the largest message queue.
    pub fn process(&mut self, row: ProcessRow) {
        if let Some(readings) = self.rows.get_mut(&row.pid) {
            readings.add(row);
        } else if self.rows.len() < MAX_ROWS {
            self.rows.insert(row.pid.clone(), ProcessReadings::new(row));
        }
    }

    /// Adds a sampled call stack of a process; counts of equal stacks are added up.
    pub fn run_sample(&mut self, row: RunSampleRow) {
        if row.pid.is_empty() {
            return self.work_sample(row);
        }
        if self.process_stacks.len() >= MAX_ROWS && !self.process_stacks.contains_key(&row.pid) {
            return;
        }
        let ProcessStacks { ran, stood } = self.process_stacks.entry(row.pid).or_default();
        let stacks = if row.is_waiting { stood } else { ran };
        if let Some((_, count)) = stacks.iter_mut().find(|(known, _)| *known == row.stack) {
            *count = count.saturating_add(row.samples);
        } else if stacks.len() < MAX_STACKS {
            stacks.push((row.stack, row.samples));
        }
    }

    fn work_sample(
        &mut self,
        RunSampleRow { stack, samples: looks, kind, is_collecting: collects, is_waiting: waits, .. }: RunSampleRow,
    ) {
        let known = &mut self.period.work_samples;
        let is_same = |one: &&mut WorkSample| {
            one.stack == stack
                && one.kind == kind
                && (one.is_collecting, one.is_runnable) == (collects, waits)
        };
        if let Some(one) = known.iter_mut().find(is_same) {
            one.samples = one.samples.saturating_add(looks);
        } else if known.len() < MAX_ROWS {
            known.push(WorkSample {
                kind,
                stack,
                samples: looks,
                is_collecting: collects,
                is_runnable: waits,
            });
        }
    }

    /// Adds a row of an ETS table; only the last row of each table is kept.
    pub fn table(&mut self, row: TableRow) {
        if self.tables.len() < MAX_ROWS || self.tables.contains_key(&row.id) {
            self.period.tables_first.entry(row.id.clone()).or_insert((row.t, row.memory_bytes));
            self.tables.insert(row.id.clone(), row);
        }
    }

    /// Adds a row of a port; only the last row of each port is kept.
    pub fn port(&mut self, row: PortRow) {
        if self.ports.len() < MAX_ROWS || self.ports.contains_key(&row.id) {
            self.ports.insert(row.id.clone(), row);
        }
    }

    /// Adds an origin of new processes, tables or ports; counts of equal origins are added up.
    pub fn spawn(&mut self, row: SpawnRow) {
        let key = (row.what.clone(), row.kind.clone(), row.creator.clone());
        if let Some(known) = self.spawns.get_mut(&key) {
            known.t = row.t;
            known.count = known.count.saturating_add(row.count);
            known.sample_size = known.sample_size.saturating_add(row.sample_size);
            if let Some(bytes) = row.bytes {
                known.bytes = Some(known.bytes.unwrap_or(0).saturating_add(bytes));
            }
        } else if self.spawns.len() < MAX_ROWS {
            self.spawns.insert(key, row);
        }
    }

    /// Adds exits of processes; counts of equal exits are added up.
    pub fn exit(&mut self, row: ExitRow) {
        let is_alike = |known: &&mut ExitRow| {
            (&known.parent_name, &known.parent_call, &known.name, &known.call)
                == (&row.parent_name, &row.parent_call, &row.name, &row.call)
                && (&known.reason, &known.stack, &known.callee) == (&row.reason, &row.stack, &row.callee)
        };
        if let Some(known) = self.exits.iter_mut().find(is_alike) {
            let count = known.count.saturating_add(row.count);
            *known = ExitRow { count, ..row };
        } else if self.exits.len() < MAX_EXIT_KINDS {
            self.exits.push(row);
        }
    }

    /// Adds a call stack of waiting processes.
    pub fn wait_sample(&mut self, row: WaitSampleRow) {
        self.wait_samples.add(row, MAX_ROWS);
    }

    /// Adds messages of estimated size.
    pub fn message(&mut self, row: MessageRow) {
        self.messages.add(row, MAX_ROWS);
    }

    /// Adds a CPU profile.
    pub fn profile(&mut self, row: ProfileRow) {
        if self.profile.sample_count() + row.profile.samples.len() <= MAX_PROFILE_SAMPLES {
            self.profile.append(&row.profile);
        }
    }

    /// Adds an event.
    pub fn event(&mut self, event: Event) {
        if self.period.events.len() < MAX_ROWS {
            self.period.events.push(event);
        }
    }

    /// Adds a gap.
    pub fn gap(&mut self, gap: Gap) {
        if self.period.gaps.len() < MAX_ROWS {
            self.period.gaps.push(gap);
        }
    }

    /// Adds a whole sample, whose series ids refer to `table`.
    pub fn sample(&mut self, sample: &Sample, table: &SeriesTable) {
        self.tick(&sample.tick);
        if let Some(incarnation) = &sample.incarnation {
            self.period.incarnation_count += 1;
            self.period.incarnation = Some(incarnation.clone());
        }
        let t = sample.tick.t;
        match self.period.incarnation_spans.last_mut() {
            Some(seen) if sample.incarnation.is_none() => seen.end = t,
            _ => self.period.incarnation_spans.push(IncarnationSpan { begin: t, end: t }),
        }
        for (key, value) in &sample.facts {
            self.period.facts.set(key, value.as_str());
        }
        for &(id, value) in &sample.readings {
            let Some(series) = table.get(id) else { continue };
            let Some(t) = sample.tick.instant(series.group.is_host()) else { continue };
            self.column(series, [Point { t, incarnation: sample.tick.incarnation, value }]);
        }
        self.busiest(sample.tick.t, &sample.busiest);
        sample.processes.iter().cloned().for_each(|row| self.process(row));
        sample.tables.iter().cloned().for_each(|row| self.table(row));
        sample.ports.iter().cloned().for_each(|row| self.port(row));
        sample.spawns.iter().cloned().for_each(|row| self.spawn(row));
        sample.exits.iter().cloned().for_each(|row| self.exit(row));
        sample.wait_samples.iter().cloned().for_each(|row| self.wait_sample(row));
        sample.messages.iter().cloned().for_each(|row| self.message(row));
        sample.run_samples.iter().cloned().for_each(|row| self.run_sample(row));
        sample.profiles.iter().cloned().for_each(|row| self.profile(row));
        self.requested_rows(sample);
        sample.events.iter().cloned().for_each(|event| self.event(event));
        sample.gaps.iter().cloned().for_each(|gap| self.gap(gap));
    }

    /// Returns the finished period.
    pub fn finish(mut self) -> Period {
        // Includes processes that have only a detailed reading, such as large idle ones.
        for (pid, readings) in self.rows {
            let entry = self.uses.entry(pid.clone()).or_insert_with(|| ProcessActivity::new(&pid));
            (entry.row, entry.queued_messages) = (Some(readings.last), readings.mail);
        }
        for (pid, ProcessStacks { ran, stood }) in self.process_stacks {
            let entry = self.uses.entry(pid.clone()).or_insert_with(|| ProcessActivity::new(&pid));
            (entry.run_stacks, entry.wait_stacks) = (ran, stood);
        }
        // A process may have been renamed between two readings of its tables; the last name is used.
        let mut tables: Vec<&TableRow> = self.tables.values().collect();
        tables.sort_by(|a, b| a.t.cmp(&b.t).then_with(|| a.id.cmp(&b.id)));
        for table in tables {
            if let (Some(owner), Some(name)) = (self.uses.get_mut(&table.owner), &table.owner_name) {
                owner.owner_name = Some(name.clone());
            }
        }
        let mut period = self.period;
        if self.profile.sample_count() > 0 {
            let profile = self.profile.finish();
            // The agent knows the initial call of processes that proc_lib started; the profile only knows their first own function.
            let named = self.uses.values().filter_map(|process| {
                let row = process.row.as_ref()?;
                let name = row.name.as_ref().or(row.initial_call.as_ref())?;
                Some((process_number(&process.pid)?, name))
            });
            let named: HashMap<u64, &String> = named.collect();
            let name = |number: u64| {
                let known = named.get(&number).copied().or_else(|| profile.processes.get(&number));
                known.cloned()
            };
            period.profiled_samples = profile.work_samples(name);
            period.profile = Some(profile);
        }
        period.processes = self.uses.into_values().collect();
        period.processes.sort_by(|a, b| b.reductions.cmp(&a.reductions).then_with(|| a.pid.cmp(&b.pid)));
        period.tables = self.tables.into_values().collect();
        period.tables.sort_by(|a, b| b.memory_bytes.cmp(&a.memory_bytes).then_with(|| a.id.cmp(&b.id)));
        period.ports = self.ports.into_values().collect();
        // Saturating, because a hostile node may send any number.
        let traffic = |row: &PortRow| row.input_bytes.saturating_add(row.output_bytes);
        period.ports.sort_by(|a, b| traffic(b).cmp(&traffic(a)).then_with(|| a.id.cmp(&b.id)));
        requested::sort(&mut period);
        period.exits = self.exits;
        period.exits.sort_by_key(|row| std::cmp::Reverse(row.count));
        period.wait_samples = self.wait_samples.finish();
        period.messages = self.messages.finish();
        period.spawns = self.spawns.into_values().collect();
        period.spawns.sort_by(|a, b| {
            b.count
                .cmp(&a.count)
                .then_with(|| (&a.what, &a.kind, &a.creator).cmp(&(&b.what, &b.kind, &b.creator)))
        });
        period
    }
}
