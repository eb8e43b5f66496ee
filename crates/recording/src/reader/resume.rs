//! Reads the state that a recorder needs to continue an earlier recording.

use std::path::Path;

use beamtune_model::units::SECOND_NS;
use beamtune_model::{Gap, Incarnation, Nanos, Sample, SeriesTable, TroubleKind};

use super::parts::Decoder;
use super::samples::SampleFiller;
use super::{Reader, SeriesMap, lost, scan};
use crate::error::Error;
use crate::schema::meta;

/// Maximum plausible pause between two runs of a recorder. If the wall clock shows a longer one, it was set meanwhile, for example from
/// 1970 to the present.
const MAX_PAUSE_NS: Nanos = 366 * 86_400 * SECOND_NS;

/// State of an earlier recording, from which a recorder continues.
#[derive(Debug, Clone, Default)]
pub struct ResumePoint {
    /// The recorded series with their ids.
    pub table: SeriesTable,
    /// The last incarnation.
    pub incarnation: Option<Incarnation>,
    /// The last tick with the number of its incarnation; `None` if there are no ticks.
    pub last: Option<(Nanos, u32)>,
    /// Wall-clock time at the last tick, in nanoseconds since 1970.
    pub wall: i64,
}

impl ResumePoint {
    /// Returns the instant at which the recording continues if the wall clock shows `wall`, and the gap before this instant.
    ///
    /// The length of the pause is taken from the wall clock. If the clock was set back, or far forward, the pause is assumed to be one
    /// second, because instants must increase.
    pub(crate) fn resume(&self, wall: i64) -> (Nanos, Option<Gap>) {
        let Some((last, _)) = self.last else { return (0, None) };
        let passed = wall.saturating_sub(self.wall);
        let (pause, doubt) = match passed {
            1..MAX_PAUSE_NS => (passed, ""),
            ..1 => (SECOND_NS, "; the length of the pause is unknown, because the clock was set back"),
            _ => (SECOND_NS, "; the length of the pause is unknown, because the clock was set"),
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

/// Data of an earlier recording that its writer could not finish.
pub(crate) struct Leftover {
    pub past: ResumePoint,
    /// Samples whose readings are not in chunks yet.
    pub unsealed: Vec<Sample>,
    /// Gaps for readings of these samples that are unreadable.
    pub lost: Vec<Gap>,
}

impl Reader {
    /// Reads the leftover of a node's ring. No other process may write to the file.
    pub(crate) fn read_leftover(&self, node: &str) -> Result<Leftover, Error> {
        let refused = |why: String| Error::CannotContinue { path: self.path.clone(), why };
        let Some(holds) = self.meta(meta::RING_NODE) else {
            return Err(refused("it is a plain recording, not made with --keep".to_owned()));
        };
        if holds != node {
            return Err(refused(format!("it is a recording of {holds}, not of {node}")));
        }
        if let Some(bytes) = self.missing_bytes {
            return Err(refused(format!("{bytes} bytes are missing")));
        }
        let mut series = SeriesMap::default();
        let damaged = series.extend(self)?;
        if damaged || (0..).zip(&series.ids).any(|(at, id)| id.map(|id| id.0) != Some(at)) {
            return Err(refused("it is damaged, or written by a newer beamtune".to_owned()));
        }
        let last = self.last_tick()?;
        let (unsealed, lost) = self.unsealed(&series)?;
        let mut life = None;
        self.incarnations(&mut 0, Nanos::MAX, |_, found| life = Some(found))?;
        let wall = last.map_or(0, |(t, _)| self.wall_at(t).unwrap_or(i64::MAX));
        Ok(Leftover {
            past: ResumePoint { table: series.table, incarnation: life, last, wall },
            unsealed,
            lost,
        })
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
        self.ticks(first.begin.saturating_sub(1).max(scan::BEFORE_ALL_KEYS), last.end, |tick| {
            samples.push(Sample::new(tick));
            true
        })?;
        let mut decoder = Decoder::default();
        for segment in segments {
            for part in segment.parts {
                let mut filler = SampleFiller { samples: &mut samples, series, sample_indexes: Vec::new() };
                if let Err(why) = self.take(part, segment.begin, &mut decoder, &mut filler)? {
                    gaps.push(lost(segment.begin, segment.end, part.content.source(), &why));
                }
            }
        }
        Ok((samples, gaps))
    }
}

/// Opens a file that is to be continued as a ring, and reads its leftover.
pub(crate) fn read_leftover(path: &Path, node: &str) -> Result<Leftover, Error> {
    Reader::open(path)?.read_leftover(node)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_increase_even_if_the_wall_clock_was_set() {
        let noon = 1_700_000_000 * SECOND_NS;
        let past = ResumePoint { last: Some((500 * SECOND_NS, 0)), wall: noon, ..ResumePoint::default() };
        let check = |wall: i64, expect: Nanos, doubt: bool| {
            let (begin, gap) = past.resume(wall);
            assert_eq!(begin, expect * SECOND_NS, "at {wall}");
            let gap = gap.expect("marked");
            assert_eq!((gap.begin, gap.end), (500 * SECOND_NS, begin));
            assert_eq!(gap.reason.contains("unknown"), doubt, "{}", gap.reason);
        };
        check(noon + 3_600 * SECOND_NS, 4_100, false);
        check(noon, 501, true);
        check(noon - 3_600 * SECOND_NS, 501, true);
        check(0, 501, true);
        check(i64::MAX, 501, true);
        check(i64::MIN, 501, true);
        assert_eq!(ResumePoint::default().resume(noon), (0, None));
    }
}
