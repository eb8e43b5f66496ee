//! Replay of the recorded samples, in order.

use std::collections::VecDeque;

use beamtune_model::{Gap, Group, Nanos, ProcessTick, Sample, SeriesTable, Snapshot};

use super::parts::{Decoder, Segment, Sink};
use super::{Cursors, RECORDING, Reader, SeriesMap, lost, scan};
use crate::error::Error;
use crate::rows::{FactRow, Record, SampleRow, for_each_row_type};

/// Maximum number of ticks in a batch of ticks without readings.
const BATCH_TICKS: usize = 4_096;

/// Iterator over the samples of a recording, in order. They equal the written samples, except that readings are sorted by series id.
///
/// Damage becomes a gap in the next readable sample. After `None`, further calls return samples that were added to the recording since.
/// Nothing is locked between two calls, so a slow reader does not make the writer's log grow.
#[derive(Debug)]
pub struct Samples<'a> {
    reader: &'a Reader,
    series: SeriesMap,
    ready: VecDeque<Sample>,
    /// The first tick; a ring may have dropped earlier ones.
    first: Option<Nanos>,
    /// The last tick returned.
    last: Nanos,
    chunks: VecDeque<Segment>,
    decoder: Decoder,
    cursors: Cursors,
    /// Damage to report with the next sample.
    gaps: Vec<Gap>,
}

impl Reader {
    /// Replays the recording from its start.
    pub fn samples(&self) -> Samples<'_> {
        Samples {
            reader: self,
            series: SeriesMap::default(),
            ready: VecDeque::new(),
            first: None,
            last: scan::BEFORE_ALL_KEYS,
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
    /// Series of the samples returned so far.
    pub fn table(&self) -> &SeriesTable {
        &self.series.table
    }

    fn refill(&mut self) -> Result<(), Error> {
        let reader = self.reader;
        // In a transaction, all statements see the same state; otherwise a writer might move readings from `hot` to `chunk` meanwhile.
        let _snapshot =
            reader.connection.unchecked_transaction().map_err(|error| Error::sqlite(&reader.path, error))?;
        loop {
            if self.chunks.is_empty() {
                let before = self.cursors.chunk;
                let (chunks, damaged) = reader.chunks(&mut self.cursors.chunk)?;
                self.note(damaged, "readings cannot be read");
                if self.cursors.chunk != before {
                    // The old rows of `hot` have become these chunks, and the ids in `hot` have restarted.
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
                // Takes all rows at once, since they may have been moved to `chunk` before the next refill.
                self.cursors.hot = hot_cursor;
                hot
            } else {
                self.chunks.pop_front().into_iter().collect()
            };
            // The ticks of a segment may be unreadable; then its readings are lost, and the next segment is tried.
            if !samples.is_empty() || segments.is_empty() || is_hot {
                return self.fill(samples, segments);
            }
        }
    }

    /// Creates empty samples for the ticks of the next segment, or for earlier ticks, if there are any.
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
                let mut filler =
                    SampleFiller { samples: &mut samples, series: &self.series, sample_indexes: Vec::new() };
                if let Err(why) = self.reader.take(part, segment.begin, &mut self.decoder, &mut filler)? {
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
        self.records(&mut cursors, &mut samples, |sample, fact: FactRow| {
            sample.facts.push((fact.key, fact.value));
        })?;
        self.records(&mut cursors, &mut samples, |sample, snapshot: Snapshot| {
            sample.snapshots.push(snapshot);
        })?;
        for_each_row_type!(R => self.records(&mut cursors, &mut samples, R::add_to_sample)?);
        self.cursors = cursors;
        if let Some(sample) = samples.first_mut() {
            sample.gaps.append(&mut self.gaps);
        }
        self.ready = samples.into();
        Ok(())
    }

    /// Adds the rows of a table to their samples.
    fn records<R: Record>(
        &mut self,
        cursors: &mut Cursors,
        samples: &mut [Sample],
        add: fn(&mut Sample, R),
    ) -> Result<(), Error> {
        let first = self.first.unwrap_or(0);
        let damaged = self.reader.records(cursors.of::<R>(), self.last, |tick, row: R| {
            let still_applies = row.holds_at(first);
            if let Some(sample) = self.place(samples, tick, still_applies) {
                add(sample, row);
            }
        })?;
        self.note(damaged, &format!("rows of the table {} cannot be read", R::TABLE));
        Ok(())
    }

    /// Finds the sample that a row belongs to. If a ring has dropped the sample and the row still applies, this is the first sample.
    fn place<'s>(
        &self,
        samples: &'s mut [Sample],
        tick: Nanos,
        still_applies: bool,
    ) -> Option<&'s mut Sample> {
        match self.first {
            Some(first) if still_applies && tick < first => find(samples, first),
            _ => find(samples, tick),
        }
    }

    fn note(&mut self, damaged: bool, why: &str) {
        if damaged {
            self.gaps.push(lost(self.last, self.last, RECORDING, why));
        }
    }
}

/// Adds decoded readings to samples.
pub(super) struct SampleFiller<'a> {
    pub(super) samples: &'a mut [Sample],
    pub(super) series: &'a SeriesMap,
    /// For each tick of the current part: index of its sample.
    pub(super) sample_indexes: Vec<Option<usize>>,
}

impl Sink for SampleFiller<'_> {
    fn readings(&mut self, _group: Group, times: &[Nanos]) {
        let place = |t| self.samples.binary_search_by_key(t, |sample| sample.tick.t).ok();
        self.sample_indexes = times.iter().map(place).collect();
    }

    fn column(&mut self, series: u32, values: impl Iterator<Item = (usize, i64)>) {
        let Some(id) = self.series.id(series) else { return };
        for (row, value) in values {
            if let Some(place) = self.sample_indexes[row] {
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
