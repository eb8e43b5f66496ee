//! A chunk: the readings of one group over some ticks. It consists of the times of the ticks that have readings, a directory, and the
//! columns.
//!
//! The directory contains the size of each column, so that a reader of one series can skip all others.

use beamtune_model::Nanos;

use super::Garbled;
use super::bits::{Bytes, put_svarint, put_uvarint};
use super::column::Encoder;

/// Maximum number of ticks in a chunk.
pub(crate) const MAX_TICKS: usize = 3_600;
/// Maximum of columns times ticks when writing; the last sample of a chunk may exceed it.
pub(crate) const MAX_CELLS: usize = 5_000_000;
/// Maximum of columns times ticks when reading, so that a hostile file with many constant columns cannot exhaust the memory.
const MAX_READ_CELLS: usize = 4 * MAX_CELLS;

/// One series to encode: its id, the indices of ticks that have a value, and the values.
pub(crate) type Series<'a> = (u32, &'a [u16], &'a [i64]);

/// Encodes a chunk of the readings at `times`; columns must be ordered by id.
pub(crate) fn encode<'a>(
    encoder: &mut Encoder,
    times: &[Nanos],
    columns: impl IntoIterator<Item = Series<'a>>,
) -> Vec<u8> {
    let (mut directory, mut content) = (Vec::new(), Vec::new());
    let (mut count, mut expected) = (0, 0);
    for (id, rows, values) in columns {
        let start = content.len();
        encoder.encode(times.len(), rows, values, &mut content);
        put_uvarint(&mut directory, u64::from(id - expected));
        put_uvarint(&mut directory, (content.len() - start) as u64);
        (count, expected) = (count + 1, id + 1);
    }
    let mut out = Vec::with_capacity(directory.len() + content.len() + times.len() + 20);
    put_times(&mut out, times);
    put_uvarint(&mut out, count);
    out.append(&mut directory);
    out.append(&mut content);
    out
}

/// Appends instants: their count, the first instant, then the changes of the distance between consecutive instants.
pub(crate) fn put_times(out: &mut Vec<u8>, times: &[Nanos]) {
    put_uvarint(out, times.len() as u64);
    let Some(&first) = times.first() else { return };
    put_svarint(out, first);
    let mut distance: Nanos = 0;
    for pair in times.windows(2) {
        let next = pair[1].wrapping_sub(pair[0]);
        put_svarint(out, next.wrapping_sub(distance));
        distance = next;
    }
}

/// Reads the output of [`put_times`].
pub(crate) fn times(bytes: &mut Bytes<'_>) -> Result<Vec<Nanos>, Garbled> {
    let count = bytes.count()?;
    if count > MAX_TICKS {
        return Err(Garbled("too many ticks"));
    }
    let mut times = Vec::with_capacity(count);
    if count > 0 {
        times.push(bytes.svarint()?);
    }
    let mut distance: Nanos = 0;
    while times.len() < count {
        distance = distance.wrapping_add(bytes.svarint()?);
        times.push(times[times.len() - 1].wrapping_add(distance));
    }
    Ok(times)
}

/// A stored chunk with encoded columns.
#[derive(Debug)]
pub(crate) struct Chunk<'a> {
    /// Ticks at which at least one series of the group was read.
    pub times: Vec<Nanos>,
    /// Series ids, ascending, with their encoded columns.
    pub columns: Vec<(u32, &'a [u8])>,
}

impl<'a> Chunk<'a> {
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, Garbled> {
        let mut bytes = Bytes(bytes);
        let times = times(&mut bytes)?;
        let count = bytes.count()?;
        if count.saturating_mul(times.len()) > MAX_READ_CELLS {
            return Err(Garbled("too many values"));
        }
        let mut sizes = Vec::with_capacity(count);
        let mut expected = 0_u32;
        for _ in 0..count {
            let id = super::next_id(&mut expected, &mut bytes)?;
            sizes.push((id, bytes.uvarint()?));
        }
        let mut columns = Vec::with_capacity(count);
        for (id, size) in sizes {
            let size = usize::try_from(size).unwrap_or(usize::MAX);
            columns.push((id, bytes.take(size)?));
        }
        if !bytes.0.is_empty() {
            return Err(Garbled("trailing bytes"));
        }
        Ok(Chunk { times, columns })
    }
}

#[cfg(test)]
mod tests {
    use super::super::column::Column;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn times_round_trip(times_in in prop::collection::vec(prop_oneof![Just(0_i64), any::<i64>(), 0..100_i64], 0..70)) {
            let mut bytes = Vec::new();
            put_times(&mut bytes, &times_in);
            prop_assert_eq!(times(&mut Bytes(&bytes)), Ok(times_in));
        }

        #[test]
        fn chunks_round_trip(
            start in 0..1_000_000_000_i64,
            ids in prop::collection::btree_set(0..5_000_u32, 0..20),
            seed in prop::collection::vec(any::<i64>(), 60),
            ticks in 1..60_usize,
        ) {
            let times: Vec<Nanos> = (0..ticks as i64).map(|i| start + i * 1_000_000_000).collect();
            let rows: Vec<u16> = (0..ticks as u16).collect();
            // Each series has a different subset of the ticks.
            let columns: Vec<(u32, &[u16], &[i64])> = ids.iter().map(|&id| {
                let from = id as usize % ticks;
                (id, &rows[from..], &seed[from..ticks])
            }).collect();
            let bytes = encode(&mut Encoder::default(), &times, columns.iter().copied());
            let chunk = Chunk::parse(&bytes).expect("just written");
            prop_assert_eq!(&chunk.times, &times);
            prop_assert_eq!(chunk.columns.len(), columns.len());
            let mut column = Column::default();
            for ((id, bytes), expect) in chunk.columns.iter().zip(&columns) {
                prop_assert_eq!(*id, expect.0);
                column.decode(bytes, ticks).expect("just written");
                let pairs: Vec<_> = column.pairs().collect();
                let expect: Vec<_> = expect.1.iter().map(|&row| usize::from(row)).zip(expect.2.iter().copied()).collect();
                prop_assert_eq!(pairs, expect);
            }
        }

        #[test]
        fn garbled_chunks_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200), small in any::<bool>()) {
            // Makes the counts at the front small; otherwise nearly all inputs are rejected at once.
            if small && bytes.len() > 4 {
                bytes[0] %= 4;
                bytes[3] %= 4;
            }
            if let Ok(chunk) = Chunk::parse(&bytes) {
                let mut column = Column::default();
                for (_, bytes) in chunk.columns {
                    let _ = column.decode(bytes, chunk.times.len());
                }
            }
        }
    }

    #[test]
    fn a_chunk_with_too_many_values_is_rejected_before_allocation() {
        let mut bytes = Vec::new();
        put_uvarint(&mut bytes, 1 << 40);
        assert!(Chunk::parse(&bytes).is_err());
        let mut bytes = Vec::new();
        put_times(&mut bytes, &vec![0; MAX_TICKS]);
        put_uvarint(&mut bytes, 100_000);
        bytes.resize(300_000, 0);
        assert_eq!(Chunk::parse(&bytes).map(|_| ()), Err(Garbled("too many values")));
    }
}
