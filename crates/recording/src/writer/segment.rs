//! The current segment: readings of the last minutes, kept in memory until they become chunks.

use beamtune_model::units::SECOND_NS;
use beamtune_model::{Group, Nanos, ProcessTick, Sample, Tick};

use super::Sealed;
use crate::codec::column::Encoder;
use crate::codec::packed::Packed;
use crate::codec::{busiest, chunk, hot};

/// Length of a segment. With one minute, the fixed parts of a column (first value, slope) make the recording a fifth larger and
/// reading two thirds slower. With ten minutes, encoding takes one and a half times the memory. The measurements are in
/// `docs/recording-format.md`.
const LENGTH_NS: Nanos = 300 * SECOND_NS;
/// Maximum number of readings in a segment, of 10 bytes each: enough for five minutes with 64 + 64 schedulers.
const MAX_READINGS: usize = 1_000_000;
/// Maximum number of processes in a segment.
const MAX_PROCESSES: usize = 100_000;

/// Encoded readings of one group, or encoded busiest processes.
#[derive(Debug)]
pub(super) struct Blob {
    /// `None` for processes.
    pub group: Option<Group>,
    pub packed: Packed<'static>,
}

/// Encodes a sample for `hot`. Must be called before the sample is pushed to the segment.
pub(super) fn of_sample(
    sample: &Sample,
    groups: &[Group],
    segment: &Segment,
    encoder: &mut Encoder,
) -> Vec<Blob> {
    let mut readings: Vec<(Group, u32, i64)> =
        sample.readings.iter().map(|&(id, value)| (groups[id.index()], id.0, value)).collect();
    // Sorting is cheap, since the readings are nearly sorted already. If a source returned a series twice, one value is kept.
    readings.sort_by_key(|&(group, id, _)| (group, id));
    readings.dedup_by_key(|&mut (_, id, _)| id);
    let mut blobs = Vec::new();
    for part in readings.chunk_by(|a, b| a.0 == b.0) {
        let bytes = hot::encode(part.iter().map(|&(_, id, value)| (id, value, segment.last(id))));
        blobs.push(Blob { group: Some(part[0].0), packed: Packed::plain(bytes) });
    }
    if !sample.busiest.is_empty() {
        let bytes = busiest::encode(encoder, &[(sample.tick.t, &sample.busiest)]);
        blobs.push(Blob { group: None, packed: Packed::plain(bytes) });
    }
    blobs
}

/// Readings since the last chunks, by series.
#[derive(Debug, Default)]
pub(super) struct Segment {
    times: Vec<Nanos>,
    /// By series id.
    columns: Vec<Column>,
    /// Number of series with readings.
    series: usize,
    readings: usize,
    busiest: Vec<(Nanos, Vec<ProcessTick>)>,
    processes: usize,
}

#[derive(Debug, Default, Clone)]
struct Column {
    /// Indices into the segment's times.
    rows: Vec<u16>,
    values: Vec<i64>,
}

impl Segment {
    /// Whether the segment must be sealed before the sample of this tick is added.
    pub(super) fn is_due(&self, tick: &Tick) -> bool {
        let Some(&begin) = self.times.first() else { return false };
        tick.t.saturating_sub(begin) >= LENGTH_NS
            || self.times.len() >= chunk::MAX_TICKS
            || self.readings >= MAX_READINGS
            || self.series * self.times.len() >= chunk::MAX_CELLS
            || self.processes >= MAX_PROCESSES
    }

    /// The first tick.
    pub(super) fn begin(&self) -> Option<Nanos> {
        self.times.first().copied()
    }

    /// Last value of a series; 0 if it has none.
    fn last(&self, id: u32) -> i64 {
        self.columns.get(id as usize).and_then(|column| column.values.last()).copied().unwrap_or(0)
    }

    /// Adds a sample.
    pub(super) fn push(&mut self, sample: &Sample) {
        let row = self.times.len() as u16;
        self.times.push(sample.tick.t);
        for &(id, value) in &sample.readings {
            if self.columns.len() <= id.index() {
                self.columns.resize(id.index() + 1, Column::default());
            }
            let column = &mut self.columns[id.index()];
            self.series += usize::from(column.rows.is_empty());
            if column.rows.last() != Some(&row) {
                column.rows.push(row);
                column.values.push(value);
            }
        }
        self.readings += sample.readings.len();
        if !sample.busiest.is_empty() {
            self.busiest.push((sample.tick.t, sample.busiest.clone()));
            self.processes += sample.busiest.len();
        }
    }

    /// Encodes the segment as chunks and clears it.
    pub(super) fn seal(&mut self, groups: &[Group], encoder: &mut Encoder, out: &mut Vec<Sealed>) {
        let (Some(&begin), Some(&end)) = (self.times.first(), self.times.last()) else { return };
        for &group in Group::ALL {
            let mut members: Vec<(u32, &mut Column)> = (0..)
                .zip(&mut self.columns)
                .zip(groups)
                .filter(|((_, column), of)| **of == group && !column.rows.is_empty())
                .map(|(member, _)| member)
                .collect();
            if members.is_empty() {
                continue;
            }
            let times = keep_used(&self.times, &mut members);
            let columns = members.iter().map(|(id, column)| (*id, &column.rows[..], &column.values[..]));
            let packed = Packed::compressed(chunk::encode(encoder, &times, columns));
            out.push(Sealed { begin, end, blob: Blob { group: Some(group), packed } });
        }
        if !self.busiest.is_empty() {
            let ticks: Vec<_> = self.busiest.iter().map(|(t, list)| (*t, &list[..])).collect();
            let packed = Packed::compressed(busiest::encode(encoder, &ticks));
            out.push(Sealed { begin, end, blob: Blob { group: None, packed } });
        }

        self.times.clear();
        for column in &mut self.columns {
            column.rows.clear();
            column.values.clear();
        }
        (self.series, self.readings) = (0, 0);
        self.busiest.clear();
        self.processes = 0;
    }
}

/// Returns the ticks at which at least one series of the group was read, and adjusts the rows to them. Otherwise each of the thousands
/// of columns of allocators, which are read every ten seconds, would need a bitmap.
fn keep_used(times: &[Nanos], members: &mut [(u32, &mut Column)]) -> Vec<Nanos> {
    let mut used = vec![false; times.len()];
    for (_, column) in members.iter() {
        column.rows.iter().for_each(|&row| used[usize::from(row)] = true);
    }
    let mut kept = Vec::with_capacity(times.len());
    let mut new_rows = vec![0_u16; times.len()];
    for (row, &t) in times.iter().enumerate() {
        new_rows[row] = kept.len() as u16;
        if used[row] {
            kept.push(t);
        }
    }
    for (_, column) in members {
        column.rows.iter_mut().for_each(|row| *row = new_rows[usize::from(*row)]);
    }
    kept
}
