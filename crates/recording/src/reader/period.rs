//! From a recording to a [`Period`], in memory that does not grow with the recording.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::num::NonZero;
use std::sync::{Mutex, PoisonError};

use beamtune_model::window::Point;
use beamtune_model::{Gap, Group, Nanos, Period, PeriodBuilder, ProcessTick, Readings, Seen, SeriesId, Tick};

use super::parts::{Content, Decoder, Segment, Taker};
use super::{Cursors, Life, RECORDING, Reader, SeriesMap, lost, scan};
use crate::codec::Garbled;
use crate::codec::chunk::Chunk;
use crate::codec::column::Column;
use crate::codec::packed::Packed;
use crate::error::Error;
use crate::rows::Record;

/// Chunks that are read side by side: forty minutes. The builder looks a series up by its name each time, and a chunk has
/// but thirty readings of an allocator's counter.
const BATCH: usize = 8;

/// Series that a thread decodes before it asks for more: some ten milliseconds. Judgement.
const COLUMNS_AT_ONCE: usize = 128;

/// Which part of a recording a period is about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Selection {
    /// The life of the VM; without, the one with the most ticks in this part.
    pub incarnation: Option<u32>,
    /// No ticks before this instant.
    pub from: Option<Nanos>,
    /// No ticks after this instant.
    pub to: Option<Nanos>,
}

impl Reader {
    /// What the selected samples say together. Without any tick it is empty.
    pub fn period(&self, selection: &Selection) -> Result<Period, Error> {
        // All of one instant, also while the recording goes on.
        let _snapshot =
            self.connection.unchecked_transaction().map_err(|error| Error::sqlite(&self.path, error))?;
        let lives = self.lives()?;
        let count = lives.len() as u32;
        let first = lives.first().map(|life| life.id);
        let within = self.ticks_of_lives(selection)?;
        let (from, to) = (selection.from.unwrap_or(Nanos::MIN), selection.to.unwrap_or(Nanos::MAX));
        let selected = lives.iter().filter(|life| within.contains_key(&life.id));
        let seen = selected.map(|life| Seen { begin: life.begin.max(from), end: life.end.min(to) }).collect();
        let Some(life) = choose(lives, selection.incarnation, &within)? else { return Ok(Period::default()) };
        let begin = from.max(life.begin);
        let end = to.min(life.end);
        let facts = self.facts_until(life.id, end)?;
        let mut building = Building {
            reader: self,
            builder: PeriodBuilder::new(life.incarnation, facts, count),
            series: SeriesMap::default(),
            since: if first == Some(life.id) { Nanos::MIN } else { life.begin },
            begin,
            end,
            ticks: Vec::new(),
            places: Vec::new(),
            cursors: Cursors::default(),
        };
        building.all()?;
        building.builder.seen(seen);
        Ok(building.builder.finish())
    }

    /// How many ticks are selected.
    pub fn ticks_in(&self, selection: &Selection) -> Result<u32, Error> {
        let of_lives = self.ticks_of_lives(selection)?;
        Ok(match selection.incarnation {
            Some(life) => of_lives.get(&life).copied().unwrap_or(0),
            None => of_lives.values().sum(),
        })
    }

    /// The samples around an interval: from the last one before it to the first one after it, so that windows between samples
    /// cover all of it. Those further away than `reach` do not count; `None` without any.
    pub fn around(&self, from: Nanos, to: Nanos, reach: Nanos) -> Result<Option<Selection>, Error> {
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

    /// How many ticks of each life are selected.
    fn ticks_of_lives(&self, selection: &Selection) -> Result<HashMap<u32, u32>, Error> {
        let mut count = HashMap::new();
        let after = selection.from.map_or(scan::NO_KEY, |from| from.saturating_sub(1));
        self.ticks(after, selection.to.unwrap_or(Nanos::MAX), |tick| {
            *count.entry(tick.incarnation).or_default() += 1;
            true
        })?;
        Ok(count)
    }
}

fn choose(lives: Vec<Life>, asked: Option<u32>, within: &HashMap<u32, u32>) -> Result<Option<Life>, Error> {
    match asked {
        // Of equals, the last: what runs now matters more than what ran before.
        None => Ok(lives.into_iter().max_by_key(|life| within.get(&life.id).copied().unwrap_or(0))),
        Some(asked) => {
            let known = lives.iter().map(|life| life.id).collect();
            let life = lives.into_iter().find(|life| life.id == asked);
            life.map(Some).ok_or(Error::NoSuchIncarnation { asked, known })
        }
    }
}

struct Building<'a> {
    reader: &'a Reader,
    builder: PeriodBuilder,
    series: SeriesMap,
    /// The first instant of this life, as far as is known: a ring may have dropped its first ticks.
    since: Nanos,
    /// The first instant selected.
    begin: Nanos,
    /// The last one.
    end: Nanos,
    /// The selected ticks of the segments at hand.
    ticks: Vec<Tick>,
    /// Those of the row of `hot` at hand.
    places: Vec<Place>,
    cursors: Cursors,
}

/// The instant and the life of a tick; `None` for one that is not selected.
type Place = Option<(Nanos, u32)>;

/// A chunk of which the columns are read.
struct Open<'a> {
    segment: &'a Segment,
    group: Group,
    chunk: Chunk<'a>,
    places: Vec<Place>,
    /// The life of the VM, if all ticks are selected, and of one.
    life: Option<u32>,
    /// Their instants then, ascending.
    instants: Vec<Nanos>,
}

impl<'a> Open<'a> {
    fn new(segment: &'a Segment, group: Group, chunk: Chunk<'a>, places: Vec<Place>) -> Self {
        let instants: Vec<Nanos> = places.iter().flatten().map(|(t, _)| *t).collect();
        let of_one_life =
            |life: &u32| places.iter().all(|place| place.is_some_and(|(_, other)| other == *life));
        let life = places.first().copied().flatten().map(|(_, life)| life);
        let life = life.filter(of_one_life).filter(|_| instants.is_sorted_by(|a, b| a < b));
        Open { segment, group, chunk, places, life, instants }
    }
}

/// The columns of one series, each with the index of its chunk, and what they are added to.
struct Columns<'a> {
    readings: Readings,
    columns: Vec<(usize, &'a [u8])>,
    /// Chunks in which this column is garbled.
    garbled: Vec<(usize, Garbled)>,
}

impl Columns<'_> {
    fn decode(&mut self, open: &[Open<'_>], column: &mut Column) {
        for &(index, bytes) in &self.columns {
            let Open { chunk, places, life, instants, .. } = &open[index];
            if let Err(garbled) = column.decode(bytes, chunk.times.len()) {
                self.garbled.push((index, garbled));
                continue;
            }
            if let (Some(life), true, Some(&value)) = (life, column.is_constant, column.values.first()) {
                self.readings.push_same(value, *life, instants);
                continue;
            }
            self.readings.extend(column.pairs().filter_map(|(row, value)| {
                let (t, incarnation) = places[row]?;
                Some(Point { t, incarnation, value })
            }));
        }
    }
}

/// Works through items on all CPUs, some at once, while `beside` runs in this thread.
fn on_all_cpus<T: Send, R>(
    items: &mut [T],
    at_once: usize,
    work: impl Fn(&mut [T]) + Sync,
    beside: impl FnOnce() -> R,
) -> R {
    let parts = items.len().div_ceil(at_once).max(1);
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get).min(parts);
    let queue = Mutex::new(items.chunks_mut(at_once));
    // A thread that has panicked leaves the iterator whole.
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

/// A part whose content is unpacked.
struct Loading<'a> {
    segment: &'a Segment,
    group: Group,
    packed: Option<Packed<'static>>,
    content: Result<Cow<'static, [u8]>, Garbled>,
}

impl Building<'_> {
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
        for batch in chunks.chunks(BATCH) {
            self.batch(batch, &mut decoder)?;
        }
        for segment in &hot {
            self.choose_ticks(&[segment])?;
            for &part in &segment.parts {
                let taken = reader.take(part, segment.begin, &mut decoder, self)?;
                // One that is not wanted is read as well: the next one builds on it.
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

    /// Loads the selected ticks of some segments.
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

    /// The instant and the life of each of some ticks; `None` for one that is not selected.
    fn places(&self, group: Group, times: &[Nanos]) -> Vec<Place> {
        let place = |t| {
            let tick = &self.ticks[self.ticks.binary_search_by_key(t, |tick| tick.t).ok()?];
            Some((tick.instant(group.is_host())?, tick.incarnation))
        };
        times.iter().map(place).collect()
    }

    /// Adds chunks, series by series.
    fn batch(&mut self, segments: &[&Segment], decoder: &mut Decoder) -> Result<(), Error> {
        self.choose_ticks(segments)?;
        let mut loading = Vec::new();
        for &segment in segments {
            for &part in &segment.parts {
                let Content::Readings(group) = part.content else { continue };
                match self.reader.packed(part)? {
                    Ok(packed) => loading.push(Loading {
                        segment,
                        group,
                        packed: Some(packed),
                        content: Ok(Cow::default()),
                    }),
                    Err(why) => self.note_garbled(segment, part.content, Err(why)),
                }
            }
        }
        let unpack = |parts: &mut [Loading<'_>]| {
            for part in parts {
                if let Some(packed) = part.packed.take() {
                    part.content = packed.unpack();
                }
            }
        };
        on_all_cpus(&mut loading, 1, unpack, || ());
        let mut open = Vec::new();
        for Loading { segment, group, content, .. } in &loading {
            match content.as_ref().map_err(|garbled| *garbled).and_then(|bytes| Chunk::parse(bytes)) {
                Ok(chunk) => {
                    let places = self.places(*group, &chunk.times);
                    open.push(Open::new(segment, *group, chunk, places));
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
        on_all_cpus(&mut columns, COLUMNS_AT_ONCE, decode, || self.others(segments, decoder))?;
        let mut garbled = BTreeMap::new();
        for of_series in columns {
            self.builder.put_readings(of_series.readings);
            garbled.extend(of_series.garbled);
        }
        for (index, why) in garbled {
            let Open { segment, group, .. } = &open[index];
            self.note_garbled(segment, Content::Readings(*group), Err(why.to_string()));
        }
        Ok(())
    }

    /// The columns of chunks, by series.
    fn columns<'a>(&mut self, open: &[Open<'a>]) -> Vec<Columns<'a>> {
        // Series, index of the chunk, column.
        let mut all: Vec<(SeriesId, usize, &'a [u8])> = Vec::new();
        for (index, Open { chunk, .. }) in open.iter().enumerate() {
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

    /// Adds what came with chunks and is no reading.
    fn others(&mut self, segments: &[&Segment], decoder: &mut Decoder) -> Result<(), Error> {
        for segment in segments {
            for part in segment.parts_of(Content::Busiest) {
                let taken = self.reader.take(part, segment.begin, decoder, self)?;
                self.note_garbled(segment, part.content, taken);
            }
        }
        // In the order of time, so that the builder can drop what has stood out least so far.
        self.rows(segments.last().map_or(self.begin, |segment| segment.end.min(self.end)))
    }

    /// Adds the rows of the typed tables up to a tick.
    fn rows(&mut self, until: Nanos) -> Result<(), Error> {
        let mut cursors = std::mem::take(&mut self.cursors);
        let (since, begin) = (self.since, self.begin);
        self.records(&mut cursors.process, until, |tick, _| tick >= begin, PeriodBuilder::process)?;
        self.records(&mut cursors.table, until, |tick, _| tick >= begin, PeriodBuilder::table)?;
        self.records(&mut cursors.port, until, |tick, _| tick >= begin, PeriodBuilder::port)?;
        self.records(&mut cursors.spawn, until, |tick, _| tick >= begin, PeriodBuilder::spawn)?;
        self.records(&mut cursors.stand, until, |tick, _| tick >= begin, PeriodBuilder::stand)?;
        self.records(&mut cursors.message, until, |tick, _| tick >= begin, PeriodBuilder::message)?;
        self.records(&mut cursors.ran, until, |tick, _| tick >= begin, PeriodBuilder::ran)?;
        self.records(&mut cursors.exit, until, |tick, _| tick >= begin, PeriodBuilder::exit)?;
        self.records(&mut cursors.carrier, until, |tick, _| tick >= begin, PeriodBuilder::carriers)?;
        self.records(&mut cursors.allocation, until, |tick, _| tick >= begin, PeriodBuilder::allocations)?;
        self.records(&mut cursors.code, until, |tick, _| tick >= begin, PeriodBuilder::code)?;
        self.records(&mut cursors.holder, until, |tick, _| tick >= begin, PeriodBuilder::holder)?;
        self.records(&mut cursors.collection, until, |tick, _| tick >= begin, PeriodBuilder::collection)?;
        self.records(&mut cursors.collected, until, |tick, _| tick >= begin, PeriodBuilder::collected)?;
        self.records(&mut cursors.lock_session, until, |tick, _| tick >= begin, PeriodBuilder::lock_session)?;
        self.records(&mut cursors.lock, until, |tick, _| tick >= begin, PeriodBuilder::lock)?;
        self.records(&mut cursors.wait, until, |tick, _| tick >= begin, PeriodBuilder::wait)?;
        self.records(&mut cursors.event, until, |tick, _| tick >= begin, PeriodBuilder::event)?;
        // One that began before says as well why something is missing.
        let reaches_in = |tick, gap: &Gap| tick >= begin || tick >= since && gap.end >= begin;
        self.records(&mut cursors.gap, until, reaches_in, PeriodBuilder::gap)?;
        self.cursors = cursors;
        Ok(())
    }

    fn records<R: Record>(
        &mut self,
        cursor: &mut i64,
        until: Nanos,
        is_wanted: impl Fn(Nanos, &R) -> bool,
        add: fn(&mut PeriodBuilder, R),
    ) -> Result<(), Error> {
        let builder = &mut self.builder;
        let damaged = self.reader.records(cursor, until, |tick, row| {
            if is_wanted(tick, &row) {
                add(builder, row);
            }
        })?;
        self.note(damaged, RECORDING, &format!("rows of the table {} cannot be read", R::TABLE));
        Ok(())
    }
}

impl Taker for Building<'_> {
    fn readings(&mut self, group: Group, times: &[Nanos]) {
        self.places = self.places(group, times);
    }

    fn column(&mut self, series: u32, values: impl Iterator<Item = (usize, i64)>) {
        let Some(series) = self.series.id(series).and_then(|id| self.series.table.get(id)) else { return };
        let points = values.filter_map(|(row, value)| {
            let (t, incarnation) = self.places[row]?;
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
