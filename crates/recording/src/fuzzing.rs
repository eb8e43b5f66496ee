//! Internals for the fuzz targets; not part of the public interface.

#![allow(clippy::expect_used, clippy::panic, reason = "a fuzz target ends in a panic")]

use std::collections::HashMap;

use crate::codec::chunk::{self, Chunk};
use crate::codec::column::{Column, Encoder};
use crate::codec::packed::Packed;
use crate::codec::{busiest, hot};

/// Decodes bytes as the content of a blob; the first byte selects the kind of blob. If the bytes can be decoded, the result is encoded
/// and decoded again, which must give the same result.
///
/// # Panics
/// If the second result differs from the first.
pub fn blob(bytes: &[u8]) {
    let Some((&kind, bytes)) = bytes.split_first() else { return };
    match kind % 4 {
        0 => chunk_round_trips(bytes),
        1 => rows_round_trip(bytes),
        2 => processes_round_trip(bytes),
        _ => {
            let packed = Packed::compressed(bytes);
            assert_eq!(packed.unpack().as_deref(), Ok(bytes));
            // Treats the input as a packed blob, too.
            let codec = crate::codec::packed::ZLIB;
            let crc = Packed::plain(bytes).crc;
            let _ = Packed { codec, crc, bytes: bytes.into() }.unpack();
        }
    }
}

fn chunk_round_trips(bytes: &[u8]) {
    type Columns = Vec<(u32, Vec<u16>, Vec<i64>)>;
    fn decode(chunk: &Chunk<'_>) -> Option<Columns> {
        let mut column = Column::default();
        let mut read = |&(id, bytes): &(u32, &[u8])| {
            column.decode(bytes, chunk.times.len()).ok()?;
            let (rows, values) = column.pairs().map(|(row, value)| (row as u16, value)).unzip();
            Some((id, rows, values))
        };
        chunk.columns.iter().map(&mut read).collect()
    }
    let Ok(chunk) = Chunk::parse(bytes) else { return };
    let Some(columns) = decode(&chunk) else { return };
    let written = chunk::encode(
        &mut Encoder::default(),
        &chunk.times,
        columns.iter().map(|(id, rows, values)| (*id, &rows[..], &values[..])),
    );
    let again = Chunk::parse(&written).expect("an encoded chunk can be read");
    assert_eq!(again.times, chunk.times);
    assert_eq!(decode(&again), Some(columns));
}

/// Rows of a group, each preceded by its length in one byte.
fn rows_round_trip(mut bytes: &[u8]) {
    let (mut reader, mut again) = (hot::Decoder::default(), hot::Decoder::default());
    let mut before = HashMap::new();
    while let Some((&length, rest)) = bytes.split_first() {
        let (row, rest) = rest.split_at(usize::from(length).min(rest.len()));
        bytes = rest;
        let Ok(readings) = reader.decode(row) else { return };
        let changes = readings.iter().map(|&(id, value)| (id, value, before.insert(id, value).unwrap_or(0)));
        let written = hot::encode(changes);
        assert_eq!(again.decode(&written), Ok(readings));
    }
}

fn processes_round_trip(bytes: &[u8]) {
    let Ok(ticks) = busiest::decode(bytes) else { return };
    // Ticks without processes are never written.
    if ticks.is_empty() || ticks.iter().any(|(_, list)| list.is_empty()) {
        return;
    }
    let borrowed: Vec<busiest::Tick<'_>> = ticks.iter().map(|(t, list)| (*t, &list[..])).collect();
    let written = busiest::encode(&mut Encoder::default(), &borrowed);
    assert_eq!(busiest::decode(&written), Ok(ticks));
}
