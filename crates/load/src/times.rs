//! Times as histograms, and as texts that other tools read too: HdrHistogram's V2 encoding, compressed, in base64.
//!
//! A text may come from a file, so it is looked at before the library reads it: that takes as much memory as the header asks
//! for, and adds counts up without a look at their size.

use std::fmt;
use std::io::Read;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use flate2::read::ZlibDecoder;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use serde::{Deserialize, Serialize};

/// Digits that a histogram keeps: a value is off by 0.1 % at most.
const DIGITS: u8 = 3;
/// The finest difference that it keeps, in nanoseconds.
const FINEST_NS: u64 = 128;
/// The longest time that it tells, in nanoseconds: an hour. What is longer counts as that.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// Times in nanoseconds.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Times(Histogram<u64>);

impl Default for Times {
    fn default() -> Self {
        let histogram = match Histogram::new_with_bounds(FINEST_NS, LONGEST_NS, DIGITS) {
            Ok(histogram) => histogram,
            Err(_) => unreachable!("the bounds are constants, and a test makes one"),
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
    /// Counts a time.
    pub fn record(&mut self, nanoseconds: u64) {
        self.0.saturating_record(nanoseconds);
    }

    /// Counts as many of a time.
    pub fn record_many(&mut self, nanoseconds: u64, count: u64) {
        self.0.saturating_record_n(nanoseconds, count);
    }

    /// Counts all times of another one.
    pub fn add(&mut self, other: &Self) {
        if !other.0.is_empty() {
            // Fails for values out of bounds only, and all have the same bounds.
            let _ = self.0.add(&other.0);
        }
    }

    /// All of it as a compressed HdrHistogram (V2), in base64.
    pub fn to_base64(&self) -> String {
        let mut bytes = Vec::new();
        // To a vector it fails for a histogram beyond all memory only.
        match V2DeflateSerializer::new().serialize(&self.0, &mut bytes) {
            Ok(_) => BASE64.encode(&bytes),
            Err(_) => String::new(),
        }
    }

    /// The inverse of [`Self::to_base64`]; values beyond its bounds are brought into them.
    ///
    /// # Errors
    /// In words, if it is none, or larger than any of ours.
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

    /// The histogram.
    pub fn histogram(&self) -> &Histogram<u64> {
        &self.0
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The time below which so many of a hundred lie; 0 without any.
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

/// First bytes of an encoded histogram, and of one that is compressed (HdrHistogram's EncodableHistogram, V2).
const COOKIE: u32 = 0x1c84_9313;
const COMPRESSED_COOKIE: u32 = 0x1c84_9314;
/// Bytes before the counts.
const HEADER_BYTES: usize = 40;
/// Encoded, one of three digits up to [`MOST_NS`] has at most 47,000 counts of 9 bytes.
const LARGEST_BYTES: u64 = 512 * 1024;
/// A hundred days: no time is longer.
const MOST_NS: u64 = 1 << 53;
/// No run counts more; so sums stay within 64 bits.
const MOST_VALUES: i64 = 1_000_000_000_000_000;

/// What a compressed histogram holds.
fn inflated(bytes: &[u8]) -> Result<Vec<u8>, String> {
    // The cookie and the length; what comes behind them is a zlib stream with an end of its own.
    let stream = match bytes.split_first_chunk::<8>() {
        Some((head, stream)) if word(head, 0) == Some(COMPRESSED_COOKIE) => stream,
        _ => return Err("no compressed histogram of HdrHistogram V2".to_owned()),
    };
    let mut encoded = Vec::new();
    let read = ZlibDecoder::new(stream).take(LARGEST_BYTES + 1).read_to_end(&mut encoded);
    read.map_err(|error| error.to_string())?;
    if encoded.len() as u64 > LARGEST_BYTES {
        return Err(format!("a histogram of more than {LARGEST_BYTES} bytes"));
    }
    Ok(encoded)
}

/// That the library can read an encoded histogram without harm.
fn check(encoded: &[u8]) -> Result<(), String> {
    let long = |at| Some(u64::from(word(encoded, at)?) << 32 | u64::from(word(encoded, at + 4)?));
    let (Some(digits), Some(high_ns)) = (word(encoded, 12), long(24)) else {
        return Err("a histogram that is cut off".to_owned());
    };
    if word(encoded, 0) != Some(COOKIE) {
        return Err("no histogram of HdrHistogram V2".to_owned());
    }
    if digits > u32::from(DIGITS) || high_ns > MOST_NS {
        return Err(format!(
            "a histogram of {digits} digits up to {high_ns} ns, which no result of ours has"
        ));
    }
    let counts = encoded.get(HEADER_BYTES..).unwrap_or_default();
    if word(encoded, 4).is_none_or(|length| length as usize > counts.len()) {
        return Err("a histogram that is cut off".to_owned());
    }
    let (mut at, mut sum) = (0, 0_i64);
    while at < counts.len() {
        let (number, used) = variable(&counts[at..]);
        at += used;
        // Below zero: so many places without a value.
        if !(-(LARGEST_BYTES as i64)..=MOST_VALUES).contains(&number) {
            return Err("a histogram with a count that cannot be".to_owned());
        }
        sum = sum.saturating_add(number.max(0));
    }
    if sum > MOST_VALUES { Err("a histogram of more values than can be".to_owned()) } else { Ok(()) }
}

/// Four bytes as a number.
fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk::<4>()?;
    Some(u32::from_be_bytes(*bytes))
}

/// A number of HdrHistogram's: seven bits in a byte, the lowest first, eight in a ninth one; the sign is the lowest bit.
/// With the bytes that it takes.
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
    fn times_are_kept_to_a_thousandth_from_microseconds_to_an_hour() {
        for nanoseconds in [2_000_u64, 45_678, 1_234_567, 987_654_321, 3_599_000_000_000] {
            let mut times = Times::default();
            times.record(nanoseconds);
            let told = times.percentile_ns(50.0);
            assert!(
                told.abs_diff(nanoseconds) <= (nanoseconds / 1000).max(FINEST_NS),
                "{nanoseconds}: {told}"
            );
        }
        let mut times = Times::default();
        times.record(u64::MAX);
        assert_eq!(times.count(), 1);
    }

    /// An encoded histogram, compressed and as text.
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
    fn a_text_is_read_as_the_times_that_it_was_made_of() {
        for times in [Times::default(), some_times()] {
            assert_eq!(Times::from_base64(&times.to_base64()), Ok(times));
        }
        assert_eq!(Times::from_base64(""), Ok(Times::default()));
    }

    #[test]
    fn a_text_that_asks_for_too_much_is_refused_before_it_is_read() {
        let refused = |at: usize, bytes: &[u8], words: &str| {
            let mut changed = encoded(&some_times());
            changed[at..at + bytes.len()].copy_from_slice(bytes);
            let said = Times::from_base64(&text_of(&changed)).unwrap_err();
            assert!(said.contains(words), "{said}");
        };
        refused(0, &[0], "no histogram");
        // The bytes of the counts: four billion.
        refused(4, &[0xff; 4], "cut off");
        refused(15, &[5], "5 digits");
        refused(24, &[0xff; 8], "which no result of ours has");
        // Zeros as many as there are numbers, and a count beyond all runs.
        refused(HEADER_BYTES, &[0xff; 9], "cannot be");
        refused(HEADER_BYTES, &[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f], "cannot be");
        let large = text_of(&vec![0; LARGEST_BYTES as usize + 1]);
        assert!(Times::from_base64(&large).unwrap_err().contains("more than"));
        assert!(Times::from_base64("SElTVA==").is_err());
        assert!(Times::from_base64("!").is_err());
    }

    proptest! {
        #[test]
        fn no_encoded_bytes_end_in_a_panic(
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
