//! Conversion between instants of the recording and wall-clock time.

use beamtune_model::Nanos;

use super::Reader;

impl Reader {
    /// Returns the wall-clock time at an instant, in nanoseconds since 1970; `None` if unknown.
    pub fn wall_at(&self, t: Nanos) -> Option<i64> {
        let anchors = self.anchors();
        let (from, wall) = anchors.iter().rev().find(|(from, _)| *from <= t).or(anchors.first())?;
        Some(wall.saturating_add(t.saturating_sub(*from)))
    }

    /// Returns the instant of a wall-clock time. If the clock was set back and showed this time twice, the later instant is returned. If it
    /// was set forward and never showed this time, the instant at which the change was detected is returned.
    pub fn instant_of(&self, wall: i64) -> Option<Nanos> {
        let anchors = self.anchors();
        let place = anchors.iter().rposition(|(_, shown)| *shown <= wall).unwrap_or(0);
        let (from, shown) = *anchors.get(place)?;
        let t = from.saturating_add(wall.saturating_sub(shown));
        Some(anchors.get(place + 1).map_or(t, |(next, _)| t.min(*next)))
    }

    /// Returns instants with their wall-clock times; each pair applies until the instant of the next one.
    fn anchors(&self) -> Vec<(Nanos, i64)> {
        let rows = || -> rusqlite::Result<Vec<(Nanos, i64)>> {
            let mut all = self.connection.prepare_cached("SELECT t, wall FROM clock ORDER BY t")?;
            all.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
        };
        // Only rings have this table.
        match rows() {
            Ok(rows) if !rows.is_empty() => rows,
            _ => self.wall_at_zero().map(|wall| (0, wall)).into_iter().collect(),
        }
    }
}
