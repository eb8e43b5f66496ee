//! What a recorder needs to know to go on in a recording that it, or another one, has left.

use std::path::Path;

use beamtune_model::units::SECOND_NS;
use beamtune_model::{Gap, Incarnation, Nanos, Sample, SeriesTable, TroubleKind};

use super::parts::Decoder;
use super::samples::Filling;
use super::{Reader, SeriesMap, lost, scan};
use crate::error::Error;
use crate::schema::meta;

/// Longer than this nobody leaves a ring alone; a clock that says so was set in between, from 1970 for example.
const LONGEST_PAUSE_NS: Nanos = 366 * 86_400 * SECOND_NS;

/// A recording as it was left.
#[derive(Debug, Clone, Default)]
pub struct Past {
    /// The series that it knows, with their ids.
    pub table: SeriesTable,
    /// The life of the VM that was met last.
    pub life: Option<Incarnation>,
    /// The last tick, and the life that it is of; `None` if there is none.
    pub last: Option<(Nanos, u32)>,
    /// Wall-clock time at the last tick, nanoseconds since 1970.
    pub wall: i64,
}

impl Past {
    /// The instant at which the recording goes on when the wall clock shows `wall`, and the gap until then.
    ///
    /// Time goes on as the wall clock does. Where that was set back, or far ahead, meanwhile, the pause counts as a
    /// second: that instants grow matters more.
    pub(crate) fn resume(&self, wall: i64) -> (Nanos, Option<Gap>) {
        let Some((last, _)) = self.last else { return (0, None) };
        let passed = wall.saturating_sub(self.wall);
        let (pause, doubt) = match passed {
            1..LONGEST_PAUSE_NS => (passed, ""),
            ..1 => (SECOND_NS, "; for how long is not known, because the clock was set back"),
            _ => (SECOND_NS, "; for how long is not known, because the clock was set"),
        };
        let begin = last + pause;
        let gap = Gap {
            begin: last,
            end: begin,
            source: "recorder".to_owned(),
            kind: TroubleKind::Recorder,
            reason: format!("beamtune did not run, or could not reach the node{doubt}"),
        };
        (begin, Some(gap))
    }
}

/// What is left of a recording.
pub(crate) struct Left {
    pub past: Past,
    /// The readings that are not in chunks yet.
    pub unsealed: Vec<Sample>,
    /// What of them cannot be read.
    pub lost: Vec<Gap>,
}

impl Reader {
    /// Reads what is left of the ring of a node. No other writes to it.
    pub(crate) fn left(&self, node: &str) -> Result<Left, Error> {
        let refused = |why: String| Error::CannotContinue { path: self.path.clone(), why };
        let Some(holds) = self.meta(meta::RING_NODE) else {
            return Err(refused("it is a recording with an end, not one made with --keep".to_owned()));
        };
        if holds != node {
            return Err(refused(format!("it holds {holds}, not {node}")));
        }
        if let Some(bytes) = self.missing_bytes {
            return Err(refused(format!("{bytes} bytes of it are missing")));
        }
        let mut series = SeriesMap::default();
        let damaged = series.extend(self)?;
        if damaged || (0..).zip(&series.ids).any(|(at, id)| id.map(|id| id.0) != Some(at)) {
            return Err(refused("it is damaged, or of a newer beamtune".to_owned()));
        }
        let last = self.last_tick()?;
        let (unsealed, lost) = self.unsealed(&series)?;
        let mut life = None;
        self.incarnations(&mut 0, Nanos::MAX, |_, found| life = Some(found))?;
        let wall = last.map_or(0, |(t, _)| self.wall_at(t).unwrap_or(i64::MAX));
        Ok(Left { past: Past { table: series.table, life, last, wall }, unsealed, lost })
    }

    fn last_tick(&self) -> Result<Option<(Nanos, u32)>, Error> {
        use rusqlite::OptionalExtension;
        self.connection
            .query_row("SELECT t, inc FROM tick ORDER BY t DESC LIMIT 1", [], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .optional()
            .map_err(|error| Error::sqlite(&self.path, error))
    }

    fn unsealed(&self, series: &SeriesMap) -> Result<(Vec<Sample>, Vec<Gap>), Error> {
        let (segments, _) = self.hot(&mut 0)?;
        let (mut samples, mut gaps) = (Vec::new(), Vec::new());
        let (Some(first), Some(last)) = (segments.first(), segments.last()) else {
            return Ok((samples, gaps));
        };
        self.ticks(first.begin.saturating_sub(1).max(scan::NO_KEY), last.end, |tick| {
            samples.push(Sample::new(tick));
            true
        })?;
        let mut decoder = Decoder::default();
        for segment in segments {
            for part in segment.parts {
                let mut filling = Filling { samples: &mut samples, series, places: Vec::new() };
                if let Err(why) = self.take(part, segment.begin, &mut decoder, &mut filling)? {
                    gaps.push(lost(segment.begin, segment.end, part.content.source(), &why));
                }
            }
        }
        Ok((samples, gaps))
    }
}

/// Reads what is left of a file that a ring is to go on in.
pub(crate) fn left(path: &Path, node: &str) -> Result<Left, Error> {
    Reader::open(path)?.left(node)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_grow_whatever_the_wall_clock_does() {
        let noon = 1_700_000_000 * SECOND_NS;
        let past = Past { last: Some((500 * SECOND_NS, 0)), wall: noon, ..Past::default() };
        let check = |wall: i64, expect: Nanos, doubt: bool| {
            let (begin, gap) = past.resume(wall);
            assert_eq!(begin, expect * SECOND_NS, "at {wall}");
            let gap = gap.expect("marked");
            assert_eq!((gap.begin, gap.end), (500 * SECOND_NS, begin));
            assert_eq!(gap.reason.contains("not known"), doubt, "{}", gap.reason);
        };
        check(noon + 3_600 * SECOND_NS, 4_100, false);
        check(noon, 501, true);
        check(noon - 3_600 * SECOND_NS, 501, true);
        check(0, 501, true);
        check(i64::MAX, 501, true);
        check(i64::MIN, 501, true);
        assert_eq!(Past::default().resume(noon), (0, None));
    }
}
