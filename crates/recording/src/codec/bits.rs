//! Varints and bit streams.

use super::Garbled;

/// Number of ones that escapes from a Rice code. After it, the length of the value in bits minus one follows in six bits, and then
/// the value. So a rare large value in a column of zeros costs few bits.
const ESCAPE: u32 = 16;
/// Maximum Rice parameter, so that the low bits of a code and its unary part together fit into 64 bits.
pub(crate) const MAX_RICE: u32 = 56;

/// Maps small signed numbers to small unsigned ones: 0, −1, 1, −2 … → 0, 1, 2, 3 …
pub(crate) fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// The inverse of [`zigzag`].
pub(crate) fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// Appends a number with seven bits per byte, the lowest first; the high bit is set in all bytes but the last (LEB128).
pub(crate) fn put_uvarint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a signed number.
pub(crate) fn put_svarint(out: &mut Vec<u8>, value: i64) {
    put_uvarint(out, zigzag(value));
}

/// A cursor over bytes: the part that has not been read yet.
#[derive(Debug, Clone)]
pub(crate) struct Bytes<'a>(pub &'a [u8]);

impl<'a> Bytes<'a> {
    pub(crate) fn byte(&mut self) -> Result<u8, Garbled> {
        let (&first, rest) = self.0.split_first().ok_or(Garbled("unexpected end"))?;
        self.0 = rest;
        Ok(first)
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], Garbled> {
        let (head, rest) = self.0.split_at_checked(count).ok_or(Garbled("unexpected end"))?;
        self.0 = rest;
        Ok(head)
    }

    pub(crate) fn uvarint(&mut self) -> Result<u64, Garbled> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Garbled("a number has too many bytes"))
    }

    pub(crate) fn svarint(&mut self) -> Result<i64, Garbled> {
        self.uvarint().map(unzigzag)
    }

    /// Reads a count of items that take at least one byte each, so that it cannot exceed the number of remaining bytes.
    pub(crate) fn count(&mut self) -> Result<usize, Garbled> {
        let count = self.uvarint()?;
        usize::try_from(count)
            .ok()
            .filter(|&count| count <= self.0.len())
            .ok_or(Garbled("a count exceeds the remaining bytes"))
    }
}

/// Length in bits of the Rice code of `value`.
pub(crate) fn rice_bits(value: u64, k: u32) -> u64 {
    let quotient = value >> k;
    if quotient < u64::from(ESCAPE) {
        quotient + 1 + u64::from(k)
    } else {
        u64::from(ESCAPE + 6 + length(value))
    }
}

/// Number of significant bits of a value, at least one.
fn length(value: u64) -> u32 {
    64 - (value | 1).leading_zeros()
}

/// Appends bits to bytes, starting at the lowest bit of each byte; the last byte is padded with zeros.
#[derive(Debug)]
pub(crate) struct BitWriter<'a> {
    out: &'a mut Vec<u8>,
    bits: u64,
    filled: u32,
}

impl<'a> BitWriter<'a> {
    pub(crate) fn new(out: &'a mut Vec<u8>) -> Self {
        BitWriter { out, bits: 0, filled: 0 }
    }

    /// Appends the `count` lowest bits of `value`, at most 56; all higher bits must be zero.
    fn push(&mut self, value: u64, count: u32) {
        self.bits |= value << self.filled;
        self.filled += count;
        while self.filled >= 8 {
            self.out.push(self.bits as u8);
            self.bits >>= 8;
            self.filled -= 8;
        }
    }

    /// Appends a Rice code: value / 2^k in unary, then the k low bits.
    pub(crate) fn rice(&mut self, value: u64, k: u32) {
        let quotient = value >> k;
        if quotient < u64::from(ESCAPE) {
            self.push((1 << quotient) - 1, quotient as u32 + 1);
            self.push(value & ((1 << k) - 1), k);
        } else {
            let length = length(value);
            self.push((1 << ESCAPE) - 1, ESCAPE);
            self.push(u64::from(length - 1), 6);
            let low = length.min(32);
            self.push(value & ((1 << low) - 1), low);
            self.push(value >> low, length - low);
        }
    }

    pub(crate) fn finish(mut self) {
        if self.filled > 0 {
            self.push(0, 8 - self.filled);
        }
    }
}

/// Reads the output of a [`BitWriter`].
#[derive(Debug)]
pub(crate) struct BitReader<'a> {
    rest: &'a [u8],
    bits: u64,
    filled: u32,
}

impl<'a> BitReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        BitReader { rest: bytes, bits: 0, filled: 0 }
    }

    /// Fills the buffer to at least 56 bits, unless the input ends.
    #[inline(always)]
    fn refill(&mut self) {
        if let Some((word, _)) = self.rest.split_first_chunk::<8>() {
            // Excess bits are not counted in `filled`; the next refill reads them again.
            self.bits |= u64::from_le_bytes(*word) << self.filled;
            let bytes = (63 - self.filled) / 8;
            self.rest = &self.rest[bytes as usize..];
            self.filled += bytes * 8;
        } else {
            while self.filled < 56
                && let Some((&byte, rest)) = self.rest.split_first()
            {
                self.bits |= u64::from(byte) << self.filled;
                self.filled += 8;
                self.rest = rest;
            }
        }
    }

    /// Takes `count` bits, at most 56.
    #[inline]
    fn take(&mut self, count: u32) -> Result<u64, Garbled> {
        if self.filled < count {
            self.refill();
            if self.filled < count {
                return Err(Garbled("unexpected end of a bit stream"));
            }
        }
        let value = self.bits & ((1 << count) - 1);
        self.bits >>= count;
        self.filled -= count;
        Ok(value)
    }

    /// Takes a Rice code.
    #[inline(always)]
    pub(crate) fn rice(&mut self, k: u32) -> Result<u64, Garbled> {
        self.refill();
        let ones = self.bits.trailing_ones();
        let length = ones + 1 + k;
        // Nearly always the whole code is buffered. Other cases are handled outside this path, which runs 200 million times for
        // a recording of a day.
        if ones >= ESCAPE || length > self.filled {
            return self.long_rice(k);
        }
        let low = self.bits >> (ones + 1) & ((1 << k) - 1);
        self.bits >>= length;
        self.filled -= length;
        Ok(u64::from(ones) << k | low)
    }

    #[cold]
    fn long_rice(&mut self, k: u32) -> Result<u64, Garbled> {
        let ones = self.bits.trailing_ones().min(ESCAPE);
        if ones == ESCAPE {
            self.take(ESCAPE)?;
            let length = self.take(6)? as u32 + 1;
            let low = length.min(32);
            return Ok(self.take(low)? | self.take(length - low)? << low);
        }
        self.take(ones + 1)?;
        Ok(u64::from(ones) << k | self.take(k)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_number_with_too_many_bytes_is_rejected() {
        assert_eq!(Bytes(&[0x80; 12]).uvarint(), Err(Garbled("a number has too many bytes")));
        assert_eq!(Bytes(&[0x80; 3]).uvarint(), Err(Garbled("unexpected end")));
        assert_eq!(Bytes(&[200, 1, 0]).count(), Err(Garbled("a count exceeds the remaining bytes")));
    }

    #[test]
    fn a_truncated_bit_stream_is_rejected() {
        assert_eq!(BitReader::new(&[0b0111]).rice(4), Ok(3 << 4));
        assert_eq!(BitReader::new(&[0b0111]).rice(5), Err(Garbled("unexpected end of a bit stream")));
        assert_eq!(BitReader::new(&[0xff; 9]).rice(5), Err(Garbled("unexpected end of a bit stream")));
        assert_eq!(BitReader::new(&[]).rice(0), Err(Garbled("unexpected end of a bit stream")));
    }

    proptest! {
        #[test]
        fn varints_round_trip(values in prop::collection::vec(any::<i64>(), 0..50)) {
            let mut bytes = Vec::new();
            values.iter().for_each(|&value| put_svarint(&mut bytes, value));
            let mut rest = Bytes(&bytes);
            for value in values {
                prop_assert_eq!(rest.svarint(), Ok(value));
            }
            prop_assert!(rest.0.is_empty());
        }

        #[test]
        fn rice_codes_round_trip_with_the_predicted_length(
            values in prop::collection::vec((any::<u64>(), 0..64_u32), 0..100), k in 0..=MAX_RICE,
        ) {
            let values: Vec<u64> = values.into_iter().map(|(value, shift)| value >> shift).collect();
            let mut bytes = Vec::new();
            let mut bits = BitWriter::new(&mut bytes);
            values.iter().for_each(|&value| bits.rice(value, k));
            bits.finish();
            let predicted: u64 = values.iter().map(|&value| rice_bits(value, k)).sum();
            prop_assert_eq!(bytes.len() as u64, predicted.div_ceil(8));
            let mut reader = BitReader::new(&bytes);
            for value in values {
                prop_assert_eq!(reader.rice(k), Ok(value));
            }
        }
    }
}
