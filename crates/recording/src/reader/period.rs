//! From a recording to a [`Period`], in memory that does not grow with the recording.

use beamtune_model::window::Point;
use beamtune_model::{Group, Nanos, Period, PeriodBuilder, ProcessTick, Tick};

use super::parts::{Decoder, Taker};
use super::{Cursors, Life, RECORDING, Reader, SeriesMap, lost};
use crate::error::Error;
use crate::rows::Record;

/// Which part of a recording a period is about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Selection {
    /// The life of the VM; without, the one with the most ticks.
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
        let Some(life) = choose(lives, selection.incarnation)? else { return Ok(Period::default()) };
        let begin = selection.from.unwrap_or(Nanos::MIN).max(life.begin);
        let end = selection.to.unwrap_or(Nanos::MAX).min(life.end);
        let facts = self.facts_until(life.id, end)?;
        let mut building = Building {
            reader: self,
            builder: PeriodBuilder::new(life.incarnation, facts, count),
            series: SeriesMap::default(),
            begin,
            end,
            ticks: Vec::new(),
            places: Vec::new(),
            cursors: Cursors::default(),
        };
        building.all()?;
        Ok(building.builder.finish())
    }
}

fn choose(lives: Vec<Life>, asked: Option<u32>) -> Result<Option<Life>, Error> {
    match asked {
        // Of equals, the last: what runs now matters more than what ran before.
        None => Ok(lives.into_iter().max_by_key(|life| life.ticks)),
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
    /// The first instant selected.
    begin: Nanos,
    /// The last one.
    end: Nanos,
    /// The selected ticks of the segment at hand.
    ticks: Vec<Tick>,
    /// The instant and the life of each tick of the chunk at hand; `None` for one that is not selected.
    places: Vec<Option<(Nanos, u32)>>,
    cursors: Cursors,
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
        let mut decoder = Decoder::default();
        for segment in chunks.iter().chain(&hot) {
            // What is hot builds on what was before.
            let wanted = segment.end >= begin && segment.begin <= end;
            if !wanted && segment.is_chunk() {
                continue;
            }
            let mut ticks = std::mem::take(&mut self.ticks);
            ticks.clear();
            let (first, last) = (segment.begin.max(begin), segment.end.min(end));
            reader.ticks(first.saturating_sub(1), last, |tick| {
                ticks.push(tick);
                true
            })?;
            self.ticks = ticks;
            for &part in &segment.parts {
                if let Err(why) = reader.take(part, segment.begin, &mut decoder, self)?
                    && wanted
                {
                    self.builder.gap(lost(segment.begin, segment.end, part.content.source(), &why));
                }
            }
            // In the order of time, so that the builder can drop what has stood out least so far.
            self.rows(segment.end.min(end))?;
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

    /// Adds the rows of the typed tables up to a tick.
    fn rows(&mut self, until: Nanos) -> Result<(), Error> {
        let mut cursors = std::mem::take(&mut self.cursors);
        self.records(&mut cursors.process, until, PeriodBuilder::process)?;
        self.records(&mut cursors.table, until, PeriodBuilder::table)?;
        self.records(&mut cursors.port, until, PeriodBuilder::port)?;
        self.records(&mut cursors.spawn, until, PeriodBuilder::spawn)?;
        self.records(&mut cursors.event, until, PeriodBuilder::event)?;
        self.records(&mut cursors.gap, until, PeriodBuilder::gap)?;
        self.cursors = cursors;
        Ok(())
    }

    fn records<R: Record>(
        &mut self,
        cursor: &mut i64,
        until: Nanos,
        add: fn(&mut PeriodBuilder, R),
    ) -> Result<(), Error> {
        let (begin, builder) = (self.begin, &mut self.builder);
        let damaged = self.reader.records(cursor, until, |tick, row| {
            if tick >= begin {
                add(builder, row);
            }
        })?;
        self.note(damaged, RECORDING, &format!("rows of the table {} cannot be read", R::TABLE));
        Ok(())
    }
}

impl Taker for Building<'_> {
    fn readings(&mut self, group: Group, times: &[Nanos]) {
        let place = |t| {
            let tick = &self.ticks[self.ticks.binary_search_by_key(t, |tick| tick.t).ok()?];
            Some((tick.instant(group.is_host())?, tick.incarnation))
        };
        self.places = times.iter().map(place).collect();
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
