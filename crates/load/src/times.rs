//! Histograms of times, and their text form: HdrHistogram's V2 encoding, compressed, in base64, which other tools can read.
//!
//! A text may come from a file, so it is validated before the library decodes it: the library allocates as much memory as the header
//! asks for, and sums counts without checking for overflow.

use std::fmt;
use std::io::Read;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use flate2::read::ZlibDecoder;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use serde::{Deserialize, Serialize};

/// Significant digits of a histogram: the error of a value is at most 0.1 %.
const DIGITS: u8 = 3;
/// Resolution, in nanoseconds.
const RESOLUTION_NS: u64 = 128;
/// Longest time that is recorded, in nanoseconds: an hour. Longer times are recorded as an hour.
const MAX_RECORDED_NS: u64 = 3_600_000_000_000;

/// A histogram of times in nanoseconds.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Times(Histogram<u64>);

impl Default for Times {
    fn default() -> Self {
        let histogram = match Histogram::new_with_bounds(RESOLUTION_NS, MAX_RECORDED_NS, DIGITS) {
            Ok(histogram) => histogram,
            Err(_) => unreachable!("the bounds are constants and valid"),
        };
        Self(histogram)
    }
}

impl fmt::Debug for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Times({} values)", self.0.len())
    }
}

impl Times {
    /// Records a time.
    pub fn record(&mut self, nanoseconds: u64) {
        self.0.saturating_record(nanoseconds);
    }

    /// Records a time `count` times.
    pub fn record_many(&mut self, nanoseconds: u64, count: u64) {
        self.0.saturating_record_n(nanoseconds, count);
    }

    /// Adds the times of another histogram.
    pub fn add(&mut self, other: &Self) {
        if !other.0.is_empty() {
            // Fails only for values out of bounds, and all histograms have the same bounds.
            let _ = self.0.add(&other.0);
        }
    }

    /// Encodes the histogram as a compressed HdrHistogram (V2) in base64.
    pub fn to_base64(&self) -> String {
        let mut bytes = Vec::new();
        // Writing to a vector fails only if the histogram does not fit into memory.
        match V2DeflateSerializer::new().serialize(&self.0, &mut bytes) {
            Ok(_) => BASE64.encode(&bytes),
            Err(_) => String::new(),
        }
    }

    /// Decodes the text of [`Self::to_base64`] or of another tool; values out of bounds are clamped.
    ///
    /// # Errors
    /// If the text is not such a histogram, or exceeds the limits of this module.
    pub fn from_base64(text: &str) -> Result<Self, String> {
        let mut times = Self::default();
        if text.is_empty() {
            return Ok(times);
        }
        let bytes = BASE64.decode(text).map_err(|error| error.to_string())?;
        let encoded = inflated(&bytes)?;
        check(&encoded)?;
        let read: Histogram<u64> =
            Deserializer::new().deserialize(&mut encoded.as_slice()).map_err(|error| error.to_string())?;
        for value in read.iter_recorded() {
            times.0.saturating_record_n(value.value_iterated_to(), value.count_at_value());
        }
        Ok(times)
    }

    /// Returns the underlying histogram.
    pub fn histogram(&self) -> &Histogram<u64> {
        &self.0
    }

    /// Returns the number of recorded times.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// Returns the time at a percentile (0 to 100); 0 if nothing was recorded.
    pub fn percentile_ns(&self, percentile: f64) -> u64 {
        self.0.value_at_percentile(percentile)
    }
}

impl From<Times> for String {
    fn from(times: Times) -> Self {
        if times.count() == 0 { Self::new() } else { times.to_base64() }
    }
}

impl TryFrom<String> for Times {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::from_base64(&text)
    }
}

/// The first bytes of an encoded histogram (HdrHistogram's EncodableHistogram, V2).
const COOKIE: u32 = 0x1c84_9313;
/// The first bytes of a compressed histogram.
const COMPRESSED_COOKIE: u32 = 0x1c84_9314;
/// Number of bytes before the counts.
const HEADER_BYTES: usize = 40;
/// Maximum encoded size: with three digits up to [`MAX_ENCODED_NS`] there are at most 47,000 counts of 9 bytes.
const MAX_ENCODED_BYTES: u64 = 512 * 1024;
/// Longest time in an encoded histogram: a hundred days.
const MAX_ENCODED_NS: u64 = 1 << 53;
/// Maximum number of values. No run exceeds it, and sums stay within 64 bits.
const MAX_VALUES: i64 = 1_000_000_000_000_000;

/// Decompresses a histogram.
fn inflated(bytes: &[u8]) -> Result<Vec<u8>, String> {
    // The format is a cookie and a length, then a zlib stream, which marks its own end.
    let stream = match bytes.split_first_chunk::<8>() {
        Some((head, stream)) if word(head, 0) == Some(COMPRESSED_COOKIE) => stream,
        _ => return Err("not a compressed HdrHistogram V2".to_owned()),
    };
    let mut encoded = Vec::new();
    let read = ZlibDecoder::new(stream).take(MAX_ENCODED_BYTES + 1).read_to_end(&mut encoded);
    read.map_err(|error| error.to_string())?;
    if encoded.len() as u64 > MAX_ENCODED_BYTES {
        return Err(format!("a histogram of more than {MAX_ENCODED_BYTES} bytes"));
    }
    Ok(encoded)
}

/// Checks that the library can decode a histogram safely.
fn check(encoded: &[u8]) -> Result<(), String> {
    let long = |at| Some(u64::from(word(encoded, at)?) << 32 | u64::from(word(encoded, at + 4)?));
    let (Some(digits), Some(high_ns)) = (word(encoded, 12), long(24)) else {
        return Err("a truncated histogram".to_owned());
    };
    if word(encoded, 0) != Some(COOKIE) {
        return Err("not an HdrHistogram V2".to_owned());
    }
    if digits > u32::from(DIGITS) || high_ns > MAX_ENCODED_NS {
        return Err(format!(
            "a histogram of {digits} digits up to {high_ns} ns; at most {DIGITS} digits up to {MAX_ENCODED_NS} ns are supported"
        ));
    }
    let counts = encoded.get(HEADER_BYTES..).unwrap_or_default();
    if word(encoded, 4).is_none_or(|length| length as usize > counts.len()) {
        return Err("a truncated histogram".to_owned());
    }
    let (mut at, mut sum) = (0, 0_i64);
    while at < counts.len() {
        let (number, used) = variable(&counts[at..]);
        at += used;
        // A negative number is a run of empty counts.
        if !(-(MAX_ENCODED_BYTES as i64)..=MAX_VALUES).contains(&number) {
            return Err("a histogram with an impossible count".to_owned());
        }
        sum = sum.saturating_add(number.max(0));
    }
    if sum > MAX_VALUES { Err("a histogram with too many values".to_owned()) } else { Ok(()) }
}

/// Reads four bytes as a big-endian number.
fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk::<4>()?;
    Some(u32::from_be_bytes(*bytes))
}

/// Decodes HdrHistogram's variable-length integer (ZigZag LEB128: seven bits per byte, lowest first, eight in the ninth; the sign is the
/// lowest bit). Returns the number and its length in bytes.
fn variable(bytes: &[u8]) -> (i64, usize) {
    let (mut value, mut used) = (0_u64, 0);
    for (index, byte) in bytes.iter().take(9).enumerate() {
        used += 1;
        if index == 8 {
            value |= u64::from(*byte) << 56;
            break;
        }
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            break;
        }
    }
    ((value >> 1) as i64 ^ -((value & 1) as i64), used)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::ZlibEncoder;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn times_are_exact_to_a_thousandth_from_microseconds_to_an_hour() {
        for nanoseconds in [2_000_u64, 45_678, 1_234_567, 987_654_321, 3_599_000_000_000] {
            let mut times = Times::default();
            times.record(nanoseconds);
            let found = times.percentile_ns(50.0);
            assert!(
                found.abs_diff(nanoseconds) <= (nanoseconds / 1000).max(RESOLUTION_NS),
                "{nanoseconds}: {found}"
            );
        }
        let mut times = Times::default();
        times.record(u64::MAX);
        assert_eq!(times.count(), 1);
    }

    /// Compresses an encoded histogram and converts it to text.
    fn text_of(encoded: &[u8]) -> String {
        let mut compressed = ZlibEncoder::new(Vec::new(), Compression::fast());
        compressed.write_all(encoded).unwrap();
        let stream = compressed.finish().unwrap();
        let mut bytes = COMPRESSED_COOKIE.to_be_bytes().to_vec();
        bytes.extend((stream.len() as u32).to_be_bytes());
        BASE64.encode([bytes, stream].concat())
    }

    fn encoded(times: &Times) -> Vec<u8> {
        inflated(&BASE64.decode(times.to_base64()).unwrap()).unwrap()
    }

    fn some_times() -> Times {
        let mut times = Times::default();
        for (nanoseconds, count) in [(0, 3), (1_000_000, 100_000), (3_000_000_000, 7)] {
            times.record_many(nanoseconds, count);
        }
        times
    }

    #[test]
    fn decoding_reverses_encoding() {
        for times in [Times::default(), some_times()] {
            assert_eq!(Times::from_base64(&times.to_base64()), Ok(times));
        }
        assert_eq!(Times::from_base64(""), Ok(Times::default()));
    }

    #[test]
    fn oversized_and_malformed_texts_are_refused() {
        let refused = |at: usize, bytes: &[u8], words: &str| {
            let mut changed = encoded(&some_times());
            changed[at..at + bytes.len()].copy_from_slice(bytes);
            let error = Times::from_base64(&text_of(&changed)).unwrap_err();
            assert!(error.contains(words), "{error}");
        };
        refused(0, &[0], "not an HdrHistogram");
        // Length of the counts: four billion bytes.
        refused(4, &[0xff; 4], "truncated");
        refused(15, &[5], "5 digits");
        refused(24, &[0xff; 8], "are supported");
        // The longest possible run of empty counts, and an impossibly large count.
        refused(HEADER_BYTES, &[0xff; 9], "impossible count");
        refused(HEADER_BYTES, &[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f], "impossible count");
        let large = text_of(&vec![0; MAX_ENCODED_BYTES as usize + 1]);
        assert!(Times::from_base64(&large).unwrap_err().contains("more than"));
        assert!(Times::from_base64("SElTVA==").is_err());
        assert!(Times::from_base64("!").is_err());
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
            length in any::<prop::sample::Index>(),
        ) {
            let mut changed = encoded(&some_times());
            for (place, byte) in changes {
                let at = place.index(changed.len());
                changed[at] = byte;
            }
            let _ = Times::from_base64(&text_of(&changed));
            let _ = Times::from_base64(&text_of(&changed[..length.index(changed.len())]));
        }
    }
}
