//! The readings of one group at one tick, as they wait in `hot` for their chunk.
//!
//! Each row holds what has changed since the group's row before, as one number per series. That is half
//! of what the values themselves would take, and all of it is written twice, to the log and to the file.

use std::collections::HashMap;

use super::Garbled;
use super::bits::{Bytes, put_svarint, put_uvarint};

/// A row of series ids, ascending, each with its value and the one that it had in the last row that it was in (else 0).
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

/// Reads the rows of one group, in their order.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    values: HashMap<u32, i64>,
    /// The values that follow on a row that could not be read are not known.
    broken: bool,
}

impl Decoder {
    /// Series ids and values of the next row. After a row that cannot be read, or that [`skip`](Decoder::skip) passed
    /// over, no other can.
    pub(crate) fn decode(&mut self, bytes: &[u8]) -> Result<Vec<(u32, i64)>, Garbled> {
        if self.broken {
            return Err(Garbled("it follows on something that cannot be read"));
        }
        let readings = self.row(bytes);
        self.broken = readings.is_err();
        readings
    }

    /// Passes over a row that is not there.
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
        if bytes.0.is_empty() { Ok(readings) } else { Err(Garbled("something follows where it should end")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn rows_read_back_in_their_order(
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
    fn what_follows_on_a_garbled_row_is_not_guessed() {
        let good = encode([(3, 10, 0)].into_iter());
        let mut decoder = Decoder::default();
        assert_eq!(decoder.decode(&good), Ok(vec![(3, 10)]));
        assert!(decoder.decode(&[9]).is_err());
        assert_eq!(decoder.decode(&good), Err(Garbled("it follows on something that cannot be read")));
    }
}
