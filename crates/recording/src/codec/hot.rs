//! The readings of one group at one tick, as stored in the table `hot` until they become part of a chunk.
//!
//! Each row contains the changes since the previous row of the group, one number per series. Changes take half as much space as values,
//! which matters because each row is written twice: to the log and to the file.

use std::collections::HashMap;

use super::Garbled;
use super::bits::{Bytes, put_svarint, put_uvarint};

/// Encodes a row: ascending series ids, each with its value and its previous value (0 if no earlier row contains the series).
pub(crate) fn encode(readings: impl ExactSizeIterator<Item = (u32, i64, i64)>) -> Vec<u8> {
    let mut out = Vec::with_capacity(readings.len() * 6 + 5);
    put_uvarint(&mut out, readings.len() as u64);
    let mut expected = 0;
    for (id, value, before) in readings {
        put_uvarint(&mut out, u64::from(id - expected));
        put_svarint(&mut out, value.wrapping_sub(before));
        expected = id + 1;
    }
    out
}

/// Decodes the rows of one group, in order.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    values: HashMap<u32, i64>,
    /// Whether an earlier row could not be decoded, so that later values are unknown.
    broken: bool,
}

impl Decoder {
    /// Decodes series ids and values of the next row. After a row that could not be decoded or was [skipped](Decoder::skip), this fails
    /// for all further rows.
    pub(crate) fn decode(&mut self, bytes: &[u8]) -> Result<Vec<(u32, i64)>, Garbled> {
        if self.broken {
            return Err(Garbled("an earlier row is unreadable"));
        }
        let readings = self.row(bytes);
        self.broken = readings.is_err();
        readings
    }

    /// Marks the next row as unreadable.
    pub(crate) fn skip(&mut self) {
        self.broken = true;
    }

    fn row(&mut self, bytes: &[u8]) -> Result<Vec<(u32, i64)>, Garbled> {
        let mut bytes = Bytes(bytes);
        let count = bytes.count()?;
        let mut readings = Vec::with_capacity(count);
        let mut expected = 0_u32;
        for _ in 0..count {
            let id = super::next_id(&mut expected, &mut bytes)?;
            let value = self.values.entry(id).or_default();
            *value = value.wrapping_add(bytes.svarint()?);
            readings.push((id, *value));
        }
        if bytes.0.is_empty() { Ok(readings) } else { Err(Garbled("trailing bytes")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn rows_round_trip_in_order(
            rows in prop::collection::vec(prop::collection::btree_map(0..50_u32, any::<i64>(), 0..20), 0..10),
        ) {
            let mut before = BTreeMap::new();
            let mut decoder = Decoder::default();
            for row in &rows {
                let readings: Vec<_> =
                    row.iter().map(|(id, value)| (*id, *value, before.get(id).copied().unwrap_or(0))).collect();
                let bytes = encode(readings.into_iter());
                before.extend(row.clone());
                let expect: Vec<_> = row.clone().into_iter().collect();
                prop_assert_eq!(decoder.decode(&bytes), Ok(expect));
            }
        }

        #[test]
        fn garbled_rows_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = Decoder::default().decode(&bytes);
        }
    }

    #[test]
    fn rows_after_a_garbled_row_are_rejected() {
        let good = encode([(3, 10, 0)].into_iter());
        let mut decoder = Decoder::default();
        assert_eq!(decoder.decode(&good), Ok(vec![(3, 10)]));
        assert!(decoder.decode(&[9]).is_err());
        assert_eq!(decoder.decode(&good), Err(Garbled("an earlier row is unreadable")));
    }
}
