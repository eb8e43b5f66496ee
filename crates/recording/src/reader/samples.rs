//! Replaying: the samples as they were recorded, in their order.

use std::collections::VecDeque;

use beamtune_model::{
    AllocationRow, CarrierRow, CodeRow, CollectRow, CollectionRow, Event, ExitRow, Gap, Group, HolderRow,
    LockRow, LockSession, MessageRow, Nanos, PortRow, ProcessRow, ProcessTick, RanRow, Sample, SeriesTable,
    Snapshot, SpawnRow, StandRow, TableRow, WaitRow,
};

use super::parts::{Decoder, Segment, Taker};
use super::{Cursors, RECORDING, Reader, SeriesMap, lost, scan};
use crate::error::Error;
use crate::rows::{FactRow, Record};

/// Ticks without any readings that are taken in one go.
const BATCH_TICKS: usize = 4_096;

/// The samples of a recording, in their order, equal to those that were written but for their readings, which come in
/// the order of the series' ids.
///
/// What cannot be read of a damaged file is a gap in the next sample that can be. After `None`, asking again gives
/// what a live recording has got meanwhile. Nothing is locked between two samples, so a slow reader does not
/// make the writer's log grow.
#[derive(Debug)]
pub struct Samples<'a> {
    reader: &'a Reader,
    series: SeriesMap,
    ready: VecDeque<Sample>,
    /// The first tick; before it, a ring has dropped what there was.
    first: Option<Nanos>,
    /// The last tick taken.
    last: Nanos,
    chunks: VecDeque<Segment>,
    decoder: Decoder,
    /// The last id taken of each table.
    cursors: Cursors,
    /// Damage to be told with the next sample.
    gaps: Vec<Gap>,
}

impl Reader {
    /// Replays the recording from its beginning.
    pub fn samples(&self) -> Samples<'_> {
        Samples {
            reader: self,
            series: SeriesMap::default(),
            ready: VecDeque::new(),
            first: None,
            last: scan::NO_KEY,
            chunks: VecDeque::new(),
            decoder: Decoder::default(),
            cursors: Cursors::default(),
            gaps: Vec::new(),
        }
    }
}

impl Iterator for Samples<'_> {
    type Item = Result<Sample, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ready.is_empty()
            && let Err(error) = self.refill()
        {
            return Some(Err(error));
        }
        self.ready.pop_front().map(Ok)
    }
}

impl Samples<'_> {
    /// What the ids in the samples returned so far mean.
    pub fn table(&self) -> &SeriesTable {
        &self.series.table
    }

    fn refill(&mut self) -> Result<(), Error> {
        let reader = self.reader;
        // All of one instant: between two statements a writer might move readings from `hot` to `chunk`.
        let _snapshot =
            reader.connection.unchecked_transaction().map_err(|error| Error::sqlite(&reader.path, error))?;
        loop {
            if self.chunks.is_empty() {
                let before = self.cursors.chunk;
                let (chunks, damaged) = reader.chunks(&mut self.cursors.chunk)?;
                self.note(damaged, "readings cannot be read");
                if self.cursors.chunk != before {
                    // What was hot has become these, and what is hot now has begun anew.
                    self.cursors.hot = 0;
                    self.decoder = Decoder::default();
                }
                self.chunks = chunks.into_iter().filter(|segment| segment.end > self.last).collect();
            }
            let mut hot_cursor = self.cursors.hot;
            let mut hot = Vec::new();
            if self.chunks.is_empty() {
                let damaged;
                (hot, damaged) = reader.hot(&mut hot_cursor)?;
                self.note(damaged, "readings cannot be read");
            }
            let is_hot = !hot.is_empty();
            let next = if is_hot { hot.first() } else { self.chunks.front() };
            let begin = next.map_or(Nanos::MAX, |segment| segment.begin);
            let end = hot.last().or(next).map_or(Nanos::MAX, |segment| segment.end);

            let samples = self.ticks(begin, end)?;
            let segments = if samples.first().is_some_and(|sample| sample.tick.t < begin) {
                Vec::new()
            } else if is_hot {
                // All at once: at the next refill it may be elsewhere.
                self.cursors.hot = hot_cursor;
                hot
            } else {
                self.chunks.pop_front().into_iter().collect()
            };
            // Without a tick the readings of a segment are lost, and the next one is tried.
            if !samples.is_empty() || segments.is_empty() || is_hot {
                return self.fill(samples, segments);
            }
        }
    }

    /// Empty samples for the ticks of the next segment, or for those before it, if there are any.
    fn ticks(&mut self, begin: Nanos, end: Nanos) -> Result<Vec<Sample>, Error> {
        let mut samples: Vec<Sample> = Vec::new();
        let damaged = self.reader.ticks(self.last, end, |tick| {
            let before = tick.t < begin;
            if samples.first().is_some_and(|first| first.tick.t < begin && !before) {
                return false;
            }
            samples.push(Sample::new(tick));
            !before || samples.len() < BATCH_TICKS
        })?;
        self.note(damaged, "ticks cannot be read");
        if let Some(sample) = samples.last() {
            self.last = sample.tick.t;
        }
        self.first = self.first.or(samples.first().map(|sample| sample.tick.t));
        Ok(samples)
    }

    fn fill(&mut self, mut samples: Vec<Sample>, segments: Vec<Segment>) -> Result<(), Error> {
        if !segments.is_empty() {
            let damaged = self.series.extend(self.reader)?;
            self.note(damaged, "names of series cannot be read");
        }
        for segment in segments {
            for part in segment.parts {
                let mut filling = Filling { samples: &mut samples, series: &self.series, places: Vec::new() };
                if let Err(why) = self.reader.take(part, segment.begin, &mut self.decoder, &mut filling)? {
                    self.gaps.push(lost(segment.begin, segment.end, part.content.source(), &why));
                }
            }
        }
        samples.iter_mut().for_each(|sample| sample.readings.sort_unstable_by_key(|(id, _)| *id));
        let mut cursors = std::mem::take(&mut self.cursors);
        self.reader.incarnations(&mut cursors.incarnation, self.last, |tick, incarnation| {
            if let Some(sample) = self.place(&mut samples, tick, true) {
                sample.incarnation = Some(incarnation);
            }
        })?;
        self.records(&mut cursors.fact, &mut samples, |sample, fact: FactRow| {
            sample.facts.push((fact.key, fact.value));
        })?;
        self.records(&mut cursors.process, &mut samples, |sample, row: ProcessRow| {
            sample.processes.push(row);
        })?;
        self.records(&mut cursors.table, &mut samples, |sample, row: TableRow| sample.tables.push(row))?;
        self.records(&mut cursors.port, &mut samples, |sample, row: PortRow| sample.ports.push(row))?;
        self.records(&mut cursors.spawn, &mut samples, |sample, row: SpawnRow| sample.spawns.push(row))?;
        self.records(&mut cursors.stand, &mut samples, |sample, row: StandRow| sample.stands.push(row))?;
        self.records(&mut cursors.message, &mut samples, |sample, row: MessageRow| {
            sample.messages.push(row);
        })?;
        self.records(&mut cursors.ran, &mut samples, |sample, row: RanRow| sample.ran.push(row))?;
        self.records(&mut cursors.exit, &mut samples, |sample, row: ExitRow| sample.exits.push(row))?;
        self.records(&mut cursors.carrier, &mut samples, |sample, row: CarrierRow| {
            sample.carriers.push(row);
        })?;
        self.records(&mut cursors.allocation, &mut samples, |sample, row: AllocationRow| {
            sample.allocations.push(row);
        })?;
        self.records(&mut cursors.code, &mut samples, |sample, row: CodeRow| sample.code.push(row))?;
        self.records(&mut cursors.holder, &mut samples, |sample, row: HolderRow| sample.holders.push(row))?;
        self.records(&mut cursors.collection, &mut samples, |sample, row: CollectionRow| {
            sample.collections.push(row);
        })?;
        self.records(&mut cursors.collected, &mut samples, |sample, row: CollectRow| {
            sample.collected.push(row);
        })?;
        self.records(&mut cursors.lock_session, &mut samples, |sample, row: LockSession| {
            sample.lock_sessions.push(row);
        })?;
        self.records(&mut cursors.lock, &mut samples, |sample, row: LockRow| sample.locks.push(row))?;
        self.records(&mut cursors.wait, &mut samples, |sample, row: WaitRow| sample.waits.push(row))?;
        self.records(&mut cursors.snapshot, &mut samples, |sample, row: Snapshot| {
            sample.snapshots.push(row);
        })?;
        self.records(&mut cursors.event, &mut samples, |sample, row: Event| sample.events.push(row))?;
        self.records(&mut cursors.gap, &mut samples, |sample, row: Gap| sample.gaps.push(row))?;
        self.cursors = cursors;
        if let Some(sample) = samples.first_mut() {
            sample.gaps.append(&mut self.gaps);
        }
        self.ready = samples.into();
        Ok(())
    }

    /// Gives each sample its rows of a typed table.
    fn records<R: Record>(
        &mut self,
        cursor: &mut i64,
        samples: &mut [Sample],
        add: fn(&mut Sample, R),
    ) -> Result<(), Error> {
        let first = self.first.unwrap_or(0);
        let damaged = self.reader.records(cursor, self.last, |tick, row: R| {
            let lasts = row.holds_at(first);
            if let Some(sample) = self.place(samples, tick, lasts) {
                add(sample, row);
            }
        })?;
        self.note(damaged, &format!("rows of the table {} cannot be read", R::TABLE));
        Ok(())
    }

    /// The sample that something came with. What still holds although a ring has dropped its sample, comes with the first
    /// one that is there.
    fn place<'s>(&self, samples: &'s mut [Sample], tick: Nanos, lasts: bool) -> Option<&'s mut Sample> {
        match self.first {
            Some(first) if lasts && tick < first => find(samples, first),
            _ => find(samples, tick),
        }
    }

    fn note(&mut self, damaged: bool, why: &str) {
        if damaged {
            self.gaps.push(lost(self.last, self.last, RECORDING, why));
        }
    }
}

/// Samples on their way to be complete.
pub(super) struct Filling<'a> {
    pub(super) samples: &'a mut [Sample],
    pub(super) series: &'a SeriesMap,
    /// The sample of each tick of the chunk at hand.
    pub(super) places: Vec<Option<usize>>,
}

impl Taker for Filling<'_> {
    fn readings(&mut self, _group: Group, times: &[Nanos]) {
        let place = |t| self.samples.binary_search_by_key(t, |sample| sample.tick.t).ok();
        self.places = times.iter().map(place).collect();
    }

    fn column(&mut self, series: u32, values: impl Iterator<Item = (usize, i64)>) {
        let Some(id) = self.series.id(series) else { return };
        for (row, value) in values {
            if let Some(place) = self.places[row] {
                self.samples[place].readings.push((id, value));
            }
        }
    }

    fn busiest(&mut self, t: Nanos, list: Vec<ProcessTick>) {
        if let Some(sample) = find(self.samples, t) {
            sample.busiest = list;
        }
    }
}

fn find(samples: &mut [Sample], t: Nanos) -> Option<&mut Sample> {
    let index = samples.binary_search_by_key(&t, |sample| sample.tick.t).ok()?;
    Some(&mut samples[index])
}
