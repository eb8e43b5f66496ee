//! Writes the histograms of a run, second by second, as a log for HdrHistogram's tools.

use std::io::{self, Write};
use std::time::Duration;

use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, IntervalLogWriterError, Tag};

use crate::tally::{StepTally, Tally};
use crate::times::Times;

/// The tag of the generator's own lag. It cannot collide with the tags of steps, which contain a dot.
const OWN_LAG: &str = "own_lag";

/// A time that a step measures, with its name in tags.
type Kind = (&'static str, fn(&StepTally) -> &Times);
const KINDS: [Kind; 4] = [
    ("lag", |step| &step.lag),
    ("service", |step| &step.service),
    ("response", |step| &step.response),
    ("first_byte", |step| &step.first_byte),
];

/// A log in the format of HdrHistogram's `HistogramLogWriter`: a line per second, step and kind of time, tagged with step and kind,
/// such as `GET%20/.response`.
pub struct HistogramLog<W> {
    output: W,
    serializer: V2DeflateSerializer,
    began: Duration,
    /// Tags by step and kind.
    tags: Vec<[String; KINDS.len()]>,
}

impl<W: Write> HistogramLog<W> {
    /// Writes the header of a log; `steps` are the names of the steps, `began` is the start of the schedule since 1970.
    ///
    /// # Errors
    /// If the log cannot be written.
    pub fn begin(mut output: W, began: Duration, steps: &[String]) -> io::Result<Self> {
        let mut serializer = V2DeflateSerializer::new();
        IntervalLogWriterBuilder::new()
            .add_comment("[Histogram log format version 1.3]")
            .add_comment("All values in nanoseconds, maxima too. Tags: STEP.KIND, and own_lag for the generator's own lag.")
            .with_start_time(std::time::UNIX_EPOCH + began)
            .begin_log_with(&mut output, &mut serializer)?;
        let tags = steps.iter().map(|step| KINDS.map(|(kind, _)| format!("{}.{kind}", escaped(step))));
        Ok(Self { tags: tags.collect(), output, serializer, began })
    }

    /// Adds the histograms of a second. If the generator was the bottleneck in this second, `bound` is the reason, which is written as
    /// a comment.
    ///
    /// # Errors
    /// If the log cannot be written.
    pub fn add(&mut self, second: i64, bound: Option<&str>, tally: &Tally) -> io::Result<()> {
        let since = Duration::from_secs(second.unsigned_abs());
        let begin = if second < 0 { self.began.saturating_sub(since) } else { self.began + since };
        // An empty builder does not write the header again.
        let mut log =
            IntervalLogWriterBuilder::new().begin_log_with(&mut self.output, &mut self.serializer)?;
        if let Some(bound) = bound {
            log.write_comment(&format!("second {second} is generator-bound: {bound}"))?;
        }
        let steps =
            self.tags.iter().zip(&tally.steps).filter_map(|(tags, step)| Some((tags, step.as_deref()?)));
        let of_steps = steps.flat_map(|(tags, step)| {
            tags.iter().zip(KINDS).map(move |(tag, (_, times))| (tag.as_str(), times(step)))
        });
        for (tag, times) in of_steps.chain([(OWN_LAG, &tally.own_lag)]) {
            if times.count() > 0 {
                log.write_histogram(times.histogram(), begin, Duration::from_secs(1), Tag::new(tag))
                    .map_err(|error| match error {
                        IntervalLogWriterError::IoError(error) => error,
                        IntervalLogWriterError::SerializeError(error) => io::Error::other(error),
                    })?;
            }
        }
        self.output.flush()
    }
}

/// Percent-encodes the characters of a name that tags cannot contain.
fn escaped(name: &str) -> String {
    name.chars().fold(String::new(), |mut out, char| {
        if matches!(char, ',' | '%' | ' ') || char.is_control() {
            let mut bytes = [0; 4];
            out.extend(char.encode_utf8(&mut bytes).bytes().map(|byte| format!("%{byte:02X}")));
        } else {
            out.push(char);
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    use super::*;

    #[test]
    fn a_log_can_be_read_by_the_library() {
        let steps = ["GET /a, then\nb".to_owned(), "never".to_owned(), "connect".to_owned()];
        let mut written = Vec::new();
        let mut log =
            HistogramLog::begin(&mut written, Duration::from_millis(1_700_000_000_500), &steps).unwrap();
        let mut tally = Tally::new(3);
        tally.step(0).service.record(2_000_000);
        tally.step(0).response.record_many(5_000_000, 3);
        tally.step(2).service.record(1_000_000);
        tally.own_lag.record(40_000);
        log.add(-1, None, &Tally::new(3)).unwrap();
        log.add(2, Some("it was late"), &tally).unwrap();
        let text = String::from_utf8(written.clone()).unwrap();
        assert!(text.starts_with("#[Histogram log format version 1.3]\n"), "{text}");
        assert!(text.contains("#second 2 is generator-bound: it was late\n"), "{text}");

        let mut seen = Vec::new();
        for entry in IntervalLogIterator::new(&written) {
            match entry.unwrap() {
                LogEntry::Interval(interval) => {
                    let times = Times::from_base64(interval.encoded_histogram()).unwrap();
                    assert_eq!(interval.start_timestamp(), Duration::from_millis(1_700_000_002_500));
                    assert_eq!(interval.duration(), Duration::from_secs(1));
                    let tag = interval.tag().map(|tag| tag.as_str().to_owned()).unwrap();
                    seen.push((tag, times.count(), (interval.max() / 1e3).round() as u64));
                }
                LogEntry::StartTime(began) => assert_eq!(began, Duration::from_millis(1_700_000_000_500)),
                LogEntry::BaseTime(_) => panic!("time stamps must be absolute"),
            }
        }
        let expected = [
            ("GET%20/a%2C%20then%0Ab.service", 1, 2_001),
            ("GET%20/a%2C%20then%0Ab.response", 3, 5_001),
            ("connect.service", 1, 1_000),
            ("own_lag", 1, 40),
        ];
        // A histogram keeps values to a thousandth.
        let seen: Vec<_> = seen.iter().map(|(tag, count, max_us)| (tag.as_str(), *count, *max_us)).collect();
        assert_eq!(seen, expected);
    }
}
