//! Reading a [`Period`], in memory that does not grow with the recording.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::num::NonZero;
use std::sync::{Mutex, PoisonError};

use beamtune_model::window::Point;
use beamtune_model::{
    Group, IncarnationSpan, Nanos, Period, PeriodBuilder, ProcessTick, Readings, SeriesId, Tick,
};

use super::parts::{Content, Decoder, Segment, Sink};
use super::{Cursors, RECORDING, Reader, RecordedIncarnation, SeriesMap, lost, scan};
use crate::codec::Garbled;
use crate::codec::chunk::Chunk;
use crate::codec::column::Column;
use crate::codec::packed::Packed;
use crate::error::Error;
use crate::rows::{SampleRow, for_each_row_type};

/// Number of segments that are read together: forty minutes. The builder looks up each series by name once per batch; once per segment
/// would be too often, since a chunk has only thirty readings of an allocator counter.
const BATCH_CHUNKS: usize = 8;

/// Number of series that a thread decodes at a time, which takes some ten milliseconds (judgement).
const COLUMNS_PER_TASK: usize = 128;

/// Selects the part of a recording that a period covers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Selection {
    /// The incarnation; `None` for the one with the most ticks in this part.
    pub incarnation: Option<u32>,
    /// Excludes ticks before this instant.
    pub from: Option<Nanos>,
    /// Excludes ticks after this instant.
    pub to: Option<Nanos>,
}

impl Reader {
    /// Summarises the selected samples; the period is empty if no tick is selected.
    pub fn period(&self, selection: &Selection) -> Result<Period, Error> {
        // In a transaction, all statements see the same state, even while the recording is being written.
        let _snapshot =
            self.connection.unchecked_transaction().map_err(|error| Error::sqlite(&self.path, error))?;
        let incarnations = self.recorded_incarnations()?;
        let count = incarnations.len() as u32;
        let first = incarnations.first().map(|incarnation| incarnation.id);
        let within = self.ticks_by_incarnation(selection)?;
        let (from, to) = (selection.from.unwrap_or(Nanos::MIN), selection.to.unwrap_or(Nanos::MAX));
        let selected = incarnations.iter().filter(|incarnation| within.contains_key(&incarnation.id));
        let seen = selected
            .map(|incarnation| IncarnationSpan {
                begin: incarnation.begin.max(from),
                end: incarnation.end.min(to),
            })
            .collect();
        let Some(incarnation) = choose_incarnation(incarnations, selection.incarnation, &within)? else {
            return Ok(Period::default());
        };
        let begin = from.max(incarnation.begin);
        let end = to.min(incarnation.end);
        let facts = self.facts_until(incarnation.id, end)?;
        let mut reading = PeriodReader {
            reader: self,
            builder: PeriodBuilder::new(incarnation.incarnation, facts, count),
            series: SeriesMap::default(),
            since: if first == Some(incarnation.id) { Nanos::MIN } else { incarnation.begin },
            begin,
            end,
            ticks: Vec::new(),
            tick_refs: Vec::new(),
            cursors: Cursors::default(),
        };
        reading.all()?;
        reading.builder.set_incarnation_spans(seen);
        Ok(reading.builder.finish())
    }

    /// Counts the selected ticks.
    pub fn ticks_in(&self, selection: &Selection) -> Result<u32, Error> {
        let of_incarnations = self.ticks_by_incarnation(selection)?;
        Ok(match selection.incarnation {
            Some(incarnation) => of_incarnations.get(&incarnation).copied().unwrap_or(0),
            None => of_incarnations.values().sum(),
        })
    }

    /// Returns the selection from the last sample before an interval to the first sample after it, so that the windows between samples
    /// cover the interval. Ignores samples that are further away than `reach`; `None` if no sample is left.
    pub fn selection_around(&self, from: Nanos, to: Nanos, reach: Nanos) -> Result<Option<Selection>, Error> {
        let mut found: Option<(Nanos, Nanos)> = None;
        let after = from.saturating_sub(reach).saturating_sub(1);
        self.ticks(after, to.saturating_add(reach), |tick| {
            found = Some(match found {
                Some((first, _)) if tick.t > from => (first, tick.t),
                _ => (tick.t, tick.t),
            });
            tick.t < to
        })?;
        Ok(found.map(|(first, last)| Selection { from: Some(first), to: Some(last), ..Selection::default() }))
    }

    /// Counts the selected ticks of each incarnation.
    fn ticks_by_incarnation(&self, selection: &Selection) -> Result<HashMap<u32, u32>, Error> {
        let mut count = HashMap::new();
        let after = selection.from.map_or(scan::BEFORE_ALL_KEYS, |from| from.saturating_sub(1));
        self.ticks(after, selection.to.unwrap_or(Nanos::MAX), |tick| {
            *count.entry(tick.incarnation).or_default() += 1;
            true
        })?;
        Ok(count)
    }
}

fn choose_incarnation(
    incarnations: Vec<RecordedIncarnation>,
    requested: Option<u32>,
    within: &HashMap<u32, u32>,
) -> Result<Option<RecordedIncarnation>, Error> {
    match requested {
        // If several have the same number of ticks, the last one: the running incarnation matters most.
        None => Ok(incarnations
            .into_iter()
            .max_by_key(|incarnation| within.get(&incarnation.id).copied().unwrap_or(0))),
        Some(requested) => {
            let known = incarnations.iter().map(|incarnation| incarnation.id).collect();
            let incarnation = incarnations.into_iter().find(|incarnation| incarnation.id == requested);
            incarnation.map(Some).ok_or(Error::NoSuchIncarnation { requested, known })
        }
    }
}

struct PeriodReader<'a> {
    reader: &'a Reader,
    builder: PeriodBuilder,
    series: SeriesMap,
    /// First instant of the incarnation. For the first incarnation it is the minimum, since a ring may have dropped ticks of it.
    since: Nanos,
    /// First selected instant.
    begin: Nanos,
    /// Last selected instant.
    end: Nanos,
    /// Selected ticks of the current segments.
    ticks: Vec<Tick>,
    /// Ticks of the current row of `hot`.
    tick_refs: Vec<TickRef>,
    cursors: Cursors,
}

/// Instant and incarnation of a tick; `None` if it is not selected.
type TickRef = Option<(Nanos, u32)>;

/// A chunk whose directory is parsed, but whose columns are still encoded.
struct OpenChunk<'a> {
    segment: &'a Segment,
    group: Group,
    chunk: Chunk<'a>,
    tick_refs: Vec<TickRef>,
    /// The incarnation, if all ticks are selected and belong to the same incarnation.
    incarnation: Option<u32>,
    /// Instants of the selected ticks; ascending if `incarnation` is set.
    instants: Vec<Nanos>,
}

impl<'a> OpenChunk<'a> {
    fn new(segment: &'a Segment, group: Group, chunk: Chunk<'a>, tick_refs: Vec<TickRef>) -> Self {
        let instants: Vec<Nanos> = tick_refs.iter().flatten().map(|(t, _)| *t).collect();
        let of_one_incarnation = |incarnation: &u32| {
            tick_refs.iter().all(|tick_ref| tick_ref.is_some_and(|(_, other)| other == *incarnation))
        };
        let incarnation = tick_refs.first().copied().flatten().map(|(_, incarnation)| incarnation);
        let incarnation =
            incarnation.filter(of_one_incarnation).filter(|_| instants.is_sorted_by(|a, b| a < b));
        OpenChunk { segment, group, chunk, tick_refs, incarnation, instants }
    }
}

/// The encoded columns of one series, each with the index of its chunk, and the readings decoded so far.
struct Columns<'a> {
    readings: Readings,
    columns: Vec<(usize, &'a [u8])>,
    /// Indices of chunks whose column is garbled, with the reason.
    garbled: Vec<(usize, Garbled)>,
}

impl Columns<'_> {
    fn decode(&mut self, open: &[OpenChunk<'_>], column: &mut Column) {
        for &(index, bytes) in &self.columns {
            let OpenChunk { chunk, tick_refs, incarnation, instants, .. } = &open[index];
            if let Err(garbled) = column.decode(bytes, chunk.times.len()) {
                self.garbled.push((index, garbled));
                continue;
            }
            if let (Some(incarnation), true, Some(&value)) =
                (incarnation, column.is_constant, column.values.first())
            {
                self.readings.push_same(value, *incarnation, instants);
                continue;
            }
            self.readings.extend(column.pairs().filter_map(|(row, value)| {
                let (t, incarnation) = tick_refs[row]?;
                Some(Point { t, incarnation, value })
            }));
        }
    }
}

/// Processes items on all CPUs. Each thread takes `at_once` items at a time; the calling thread runs `beside` first.
fn on_all_cpus<T: Send, R>(
    items: &mut [T],
    at_once: usize,
    work: impl Fn(&mut [T]) + Sync,
    beside: impl FnOnce() -> R,
) -> R {
    let parts = items.len().div_ceil(at_once).max(1);
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get).min(parts);
    let queue = Mutex::new(items.chunks_mut(at_once));
    // The iterator stays valid if a thread panics.
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
    let take_all = || {
        while let Some(part) = next() {
            work(part);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(take_all);
        }
        let result = beside();
        take_all();
        result
    })
}

/// A part before and after it is unpacked.
struct PackedPart<'a> {
    segment: &'a Segment,
    group: Group,
    packed: Option<Packed<'static>>,
    content: Result<Cow<'static, [u8]>, Garbled>,
}

impl PeriodReader<'_> {
    fn all(&mut self) -> Result<(), Error> {
        let reader = self.reader;
        let before = self.begin.saturating_sub(1);
        let (begin, end) = (self.begin, self.end);
        let ticks_lost = reader.ticks(before, end, |tick| {
            self.builder.tick(&tick);
            true
        })?;
        self.note(ticks_lost, RECORDING, "ticks cannot be read");
        let series_lost = self.series.extend(reader)?;
        self.note(series_lost, RECORDING, "names of series cannot be read");

        let (chunks, chunks_lost) = reader.chunks(&mut 0)?;
        let (hot, hot_lost) = reader.hot(&mut 0)?;
        self.note(chunks_lost || hot_lost, RECORDING, "readings cannot be read");
        let wanted = |segment: &&Segment| segment.end >= begin && segment.begin <= end;
        let chunks: Vec<&Segment> = chunks.iter().filter(wanted).collect();
        let mut decoder = Decoder::default();
        for batch in chunks.chunks(BATCH_CHUNKS) {
            self.batch(batch, &mut decoder)?;
        }
        for segment in &hot {
            self.choose_ticks(&[segment])?;
            for &part in &segment.parts {
                let taken = reader.take(part, segment.begin, &mut decoder, self)?;
                // Rows before the selection are read, too, since later rows depend on them.
                if wanted(&segment) {
                    self.note_garbled(segment, part.content, taken);
                }
            }
        }
        self.rows(end)?;
        if let Some(bytes) = reader.missing_bytes {
            self.note(true, RECORDING, &format!("the file is truncated, {bytes} bytes are missing"));
        }
        Ok(())
    }

    fn note(&mut self, damaged: bool, source: &str, why: &str) {
        if damaged {
            self.builder.gap(lost(self.begin, self.end, source, why));
        }
    }

    fn note_garbled(&mut self, segment: &Segment, content: Content, taken: Result<(), String>) {
        if let Err(why) = taken {
            self.builder.gap(lost(segment.begin, segment.end, content.source(), &why));
        }
    }

    /// Loads the selected ticks of some segments into `ticks`.
    fn choose_ticks(&mut self, segments: &[&Segment]) -> Result<(), Error> {
        let first = segments.first().map_or(self.begin, |segment| segment.begin.max(self.begin));
        let last = segments.last().map_or(self.end, |segment| segment.end.min(self.end));
        let ticks = &mut self.ticks;
        ticks.clear();
        self.reader.ticks(first.saturating_sub(1), last, |tick| {
            ticks.push(tick);
            true
        })?;
        Ok(())
    }

    /// Looks up ticks by their times; `None` for a tick that is not selected.
    fn tick_refs(&self, group: Group, times: &[Nanos]) -> Vec<TickRef> {
        let tick_ref = |t| {
            let tick = &self.ticks[self.ticks.binary_search_by_key(t, |tick| tick.t).ok()?];
            Some((tick.instant(group.is_host())?, tick.incarnation))
        };
        times.iter().map(tick_ref).collect()
    }

    /// Adds the chunks of some segments, series by series.
    fn batch(&mut self, segments: &[&Segment], decoder: &mut Decoder) -> Result<(), Error> {
        self.choose_ticks(segments)?;
        let mut parts = Vec::new();
        for &segment in segments {
            for &part in &segment.parts {
                let Content::Readings(group) = part.content else { continue };
                match self.reader.packed(part)? {
                    Ok(packed) => parts.push(PackedPart {
                        segment,
                        group,
                        packed: Some(packed),
                        content: Ok(Cow::default()),
                    }),
                    Err(why) => self.note_garbled(segment, part.content, Err(why)),
                }
            }
        }
        let unpack = |parts: &mut [PackedPart<'_>]| {
            for part in parts {
                if let Some(packed) = part.packed.take() {
                    part.content = packed.unpack();
                }
            }
        };
        on_all_cpus(&mut parts, 1, unpack, || ());
        let mut open = Vec::new();
        for PackedPart { segment, group, content, .. } in &parts {
            match content.as_ref().map_err(|garbled| *garbled).and_then(|bytes| Chunk::parse(bytes)) {
                Ok(chunk) => {
                    let tick_refs = self.tick_refs(*group, &chunk.times);
                    open.push(OpenChunk::new(segment, *group, chunk, tick_refs));
                }
                Err(garbled) => {
                    self.note_garbled(segment, Content::Readings(*group), Err(garbled.to_string()));
                }
            }
        }
        let mut columns = self.columns(&open);
        let decode = |part: &mut [Columns<'_>]| {
            let mut column = Column::default();
            part.iter_mut().for_each(|columns| columns.decode(&open, &mut column));
        };
        on_all_cpus(&mut columns, COLUMNS_PER_TASK, decode, || self.other_data(segments, decoder))?;
        let mut garbled = BTreeMap::new();
        for of_series in columns {
            self.builder.put_readings(of_series.readings);
            garbled.extend(of_series.garbled);
        }
        for (index, why) in garbled {
            let OpenChunk { segment, group, .. } = &open[index];
            self.note_garbled(segment, Content::Readings(*group), Err(why.to_string()));
        }
        Ok(())
    }

    /// Groups the columns of chunks by series.
    fn columns<'a>(&mut self, open: &[OpenChunk<'a>]) -> Vec<Columns<'a>> {
        // Series, index of the chunk, column.
        let mut all: Vec<(SeriesId, usize, &'a [u8])> = Vec::new();
        for (index, OpenChunk { chunk, .. }) in open.iter().enumerate() {
            let known = |&(stored, bytes)| Some((self.series.id(stored)?, index, bytes));
            all.extend(chunk.columns.iter().filter_map(known));
        }
        all.sort_by_key(|(series, ..)| *series);
        let of_series = |columns: &[(SeriesId, usize, &'a [u8])]| {
            let series = self.series.table.get(columns.first()?.0)?;
            let readings = self.builder.take_readings(series);
            let columns = columns.iter().map(|&(_, index, bytes)| (index, bytes)).collect();
            Some(Columns { readings, columns, garbled: Vec::new() })
        };
        all.chunk_by(|one, other| one.0 == other.0).filter_map(of_series).collect()
    }

    /// Adds all data of the segments other than readings.
    fn other_data(&mut self, segments: &[&Segment], decoder: &mut Decoder) -> Result<(), Error> {
        for segment in segments {
            for part in segment.parts_of(Content::Busiest) {
                let taken = self.reader.take(part, segment.begin, decoder, self)?;
                self.note_garbled(segment, part.content, taken);
            }
        }
        // Batch by batch, in chronological order, so that the builder can drop processes that have done little work so far.
        self.rows(segments.last().map_or(self.begin, |segment| segment.end.min(self.end)))
    }

    /// Adds the rows of all typed tables up to a tick.
    fn rows(&mut self, until: Nanos) -> Result<(), Error> {
        for_each_row_type!(R => self.records::<R>(until)?);
        Ok(())
    }

    fn records<R: SampleRow>(&mut self, until: Nanos) -> Result<(), Error> {
        let (since, begin, builder) = (self.since, self.begin, &mut self.builder);
        let damaged = self.reader.records(self.cursors.of::<R>(), until, |tick, row: R| {
            // An earlier gap that extends into the period also explains missing data.
            if tick >= begin || tick >= since && row.holds_at(begin) {
                R::add_to_period(builder, row);
            }
        })?;
        self.note(damaged, RECORDING, &format!("rows of the table {} cannot be read", R::TABLE));
        Ok(())
    }
}

impl Sink for PeriodReader<'_> {
    fn readings(&mut self, group: Group, times: &[Nanos]) {
        self.tick_refs = self.tick_refs(group, times);
    }

    fn column(&mut self, series: u32, values: impl Iterator<Item = (usize, i64)>) {
        let Some(series) = self.series.id(series).and_then(|id| self.series.table.get(id)) else { return };
        let points = values.filter_map(|(row, value)| {
            let (t, incarnation) = self.tick_refs[row]?;
            Some(Point { t, incarnation, value })
        });
        self.builder.column(series, points);
    }

    fn busiest(&mut self, t: Nanos, list: Vec<ProcessTick>) {
        if self.ticks.binary_search_by_key(&t, |tick| tick.t).is_ok() {
            self.builder.busiest(t, &list);
        }
    }
}
