//! Sizes of messages, estimated from the heap growth of idle receivers.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use crate::units::Nanos;

/// Messages that arrived at sampled processes while these were idle, so that heap growth equals message size.
/// A sample has one row per size class (or one row without messages), and one row for each of the receivers with the most bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageRow {
    /// Time since the start of the recording.
    pub t: Nanos,
    /// Receiver; `None` in rows that cover all receivers.
    pub pid: Option<String>,
    /// Number of messages of this size class.
    pub messages: i64,
    /// Their total size in bytes, without reference-counted binaries.
    pub bytes: i64,
    /// Number of off-heap messages, whose size is unknown. Set in the first row of a sample only.
    pub off_heap: i64,
    /// Observation time of the processes in microseconds, within one second; 0 if `pid` is set, like `active` and `sampled`.
    pub us: i64,
    /// Estimated number of processes that were active in the second before, summed over the observations.
    pub active: i64,
    /// Number of these active processes that were observed, summed over the observations.
    pub sampled: i64,
}

/// Messages of one size class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MessageSum {
    /// Number of messages.
    pub messages: i64,
    /// Their total size in bytes.
    pub bytes: i64,
}

impl MessageSum {
    /// Mean size of a message, in bytes.
    pub fn mean_bytes(self) -> f64 {
        self.bytes as f64 / self.messages.max(1) as f64
    }

    fn add(&mut self, messages: i64, bytes: i64) {
        self.messages = self.messages.saturating_add(messages);
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// Messages whose size was estimated in a period.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Messages {
    /// Observation time in microseconds.
    pub observed_us: i64,
    /// Messages by size class, the smallest first.
    pub sizes: Vec<MessageSum>,
    /// Lower bound of bytes sent per second: messages that were received at once are not counted.
    pub bytes_per_s: i64,
    /// Receivers with the most bytes, in descending order. A receiver has one entry per size class.
    pub receivers: Vec<(String, MessageSum)>,
}

impl Messages {
    /// Sum of all messages of at least `bytes` each.
    pub fn sum_from(&self, bytes: f64) -> MessageSum {
        let mut sum = MessageSum::default();
        let large = self.sizes.iter().filter(|size| size.mean_bytes() >= bytes);
        large.for_each(|size| sum.add(size.messages, size.bytes));
        sum
    }
}

/// Accumulates [`MessageRow`]s.
#[derive(Debug, Default)]
pub(crate) struct MessagesBuilder {
    messages: Messages,
    last: Option<Nanos>,
    /// By number of significant bits of the mean size.
    sizes: BTreeMap<u32, MessageSum>,
    to: HashMap<(String, u32), MessageSum>,
    /// Bytes of all messages, extrapolated to all active processes.
    all_bytes: f64,
}

impl MessagesBuilder {
    /// Adds a row; keeps at most `max` receivers.
    pub(crate) fn add(&mut self, row: MessageRow, max: usize) {
        let size = i64::BITS - (row.bytes / row.messages.max(1)).max(0).leading_zeros();
        if let Some(pid) = row.pid {
            if self.to.len() < max || self.to.contains_key(&(pid.clone(), size)) {
                self.to.entry((pid, size)).or_default().add(row.messages, row.bytes);
            }
            return;
        }
        if self.last != Some(row.t) {
            self.last = Some(row.t);
            self.messages.observed_us = self.messages.observed_us.saturating_add(row.us);
        }
        if row.messages > 0 {
            self.sizes.entry(size).or_default().add(row.messages, row.bytes);
        }
        if row.us > 0 && row.sampled > 0 {
            let part = row.sampled as f64 / row.active.max(row.sampled) as f64;
            self.all_bytes += row.bytes as f64 / part;
        }
    }

    pub(crate) fn finish(self) -> Messages {
        let mut to: Vec<((String, u32), MessageSum)> = self.to.into_iter().collect();
        to.sort_by(|a, b| b.1.bytes.cmp(&a.1.bytes).then_with(|| a.0.cmp(&b.0)));
        let to = to.into_iter().map(|((pid, _), weighed)| (pid, weighed)).collect();
        Messages {
            sizes: self.sizes.into_values().collect(),
            bytes_per_s: (self.all_bytes / (self.messages.observed_us.max(1) as f64 / 1e6)) as i64,
            receivers: to,
            ..self.messages
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_added_up_by_size_and_receiver() {
        let row = |t, pid: Option<&str>, messages, bytes| MessageRow {
            t,
            pid: pid.map(str::to_owned),
            messages,
            bytes,
            us: if pid.is_none() { 10_000 } else { 0 },
            active: 400,
            sampled: 200,
            ..MessageRow::default()
        };
        let mut builder = MessagesBuilder::default();
        let rows = [
            row(1, None, 10, 1_000),
            row(1, None, 2, 100_000),
            row(1, Some("<0.7.0>"), 2, 100_000),
            // The same size class.
            row(2, None, 1, 60_000),
            row(2, Some("<0.7.0>"), 1, 60_000),
            row(2, Some("<0.8.0>"), 1, 900),
            // No messages.
            row(3, None, 0, 0),
        ];
        rows.into_iter().for_each(|row| builder.add(row, 10));
        let messages = builder.finish();
        assert_eq!(messages.observed_us, 30_000, "once per sample");
        let (small, large) =
            (MessageSum { messages: 10, bytes: 1_000 }, MessageSum { messages: 3, bytes: 160_000 });
        assert_eq!(messages.sizes, [small, large]);
        assert_eq!(messages.sum_from(32_768.0), large);
        let expect =
            [("<0.7.0>".to_owned(), large), ("<0.8.0>".to_owned(), MessageSum { messages: 1, bytes: 900 })];
        assert_eq!(messages.receivers, expect);
        // 161 kB for half of the active processes, in 30 ms.
        assert_eq!(messages.bytes_per_s, 161_000 * 2 * 100 / 3);
    }

    #[test]
    fn number_of_receivers_is_limited() {
        let mut builder = MessagesBuilder::default();
        for pid in 0..20 {
            let pid = Some(format!("<0.{pid}.0>"));
            builder.add(MessageRow { pid, messages: 1, bytes: 100, ..MessageRow::default() }, 5);
        }
        assert_eq!(builder.finish().receivers.len(), 5);
    }
}
