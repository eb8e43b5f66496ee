//! Wall-clock time: which of it an instant of the recording is, and the other way round.

use beamtune_model::Nanos;

use super::Reader;

impl Reader {
    /// Wall-clock time at an instant, nanoseconds since 1970; `None` if the recording does not say.
    pub fn wall_at(&self, t: Nanos) -> Option<i64> {
        let anchors = self.anchors();
        let (from, wall) = anchors.iter().rev().find(|(from, _)| *from <= t).or(anchors.first())?;
        Some(wall.saturating_add(t.saturating_sub(*from)))
    }

    /// The instant at which the wall clock showed a time; the later one, if it has shown it twice because it was set back.
    /// A time that was never shown, because the clock was set ahead, is the instant at which that was found.
    pub fn instant_of(&self, wall: i64) -> Option<Nanos> {
        let anchors = self.anchors();
        let place = anchors.iter().rposition(|(_, shown)| *shown <= wall).unwrap_or(0);
        let (from, shown) = *anchors.get(place)?;
        let t = from.saturating_add(wall.saturating_sub(shown));
        Some(anchors.get(place + 1).map_or(t, |(next, _)| t.min(*next)))
    }

    /// Instants with what the wall clock showed; each holds until the next one.
    fn anchors(&self) -> Vec<(Nanos, i64)> {
        let rows = || -> rusqlite::Result<Vec<(Nanos, i64)>> {
            let mut all = self.connection.prepare_cached("SELECT t, wall FROM clock ORDER BY t")?;
            all.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
        };
        // Only a ring has the table.
        match rows() {
            Ok(rows) if !rows.is_empty() => rows,
            _ => self.wall_at_zero().map(|wall| (0, wall)).into_iter().collect(),
        }
    }
}
