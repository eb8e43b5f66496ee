//! What messages weigh, as processes were seen to get them.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use crate::units::Nanos;

/// Messages that came for processes of a sample while these did nothing, so that what their heaps had more than before was the messages.
/// One row for each size of a look (or one of no messages), and one for each of the receivers that got the most.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageRow {
    /// When, from the recording's start.
    pub t: Nanos,
    /// The receiver; `None` of all of them.
    pub pid: Option<String>,
    /// How many messages of about this size.
    pub messages: i64,
    /// What they weigh together, without binaries off the heap.
    pub bytes: i64,
    /// Other messages, which are not weighed since they lie off the heap. In the first row of a look only.
    pub off_heap: i64,
    /// For how long processes were looked at, in microseconds, once in each second; 0 with a `pid`, as are the next ones.
    pub us: i64,
    /// About how many processes of the node had done something in the second before, summed up over these looks.
    pub active: i64,
    /// How many of these were looked at, summed up as well.
    pub sampled: i64,
}

/// Messages of about one size.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Weighed {
    /// How many.
    pub messages: i64,
    /// What they weigh together.
    pub bytes: i64,
}

impl Weighed {
    /// Bytes of one.
    pub fn each(self) -> f64 {
        self.bytes as f64 / self.messages.max(1) as f64
    }

    fn add(&mut self, messages: i64, bytes: i64) {
        self.messages = self.messages.saturating_add(messages);
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// The messages that were weighed in a period.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Messages {
    /// For how long processes were looked at, in microseconds.
    pub us: i64,
    /// Those seen by size, the smallest first.
    pub sizes: Vec<Weighed>,
    /// Bytes that were sent in a second, at least: messages that were taken at once are not among them.
    pub bytes_per_s: i64,
    /// Receivers of the heaviest ones, those that got the most bytes first. Who gets messages of several sizes has several entries.
    pub to: Vec<(String, Weighed)>,
}

impl Messages {
    /// All of at least so many bytes each.
    pub fn of_at_least(&self, bytes: f64) -> Weighed {
        let mut sum = Weighed::default();
        let large = self.sizes.iter().filter(|size| size.each() >= bytes);
        large.for_each(|size| sum.add(size.messages, size.bytes));
        sum
    }
}

/// Adds looks up.
#[derive(Debug, Default)]
pub(crate) struct MessagesBuilder {
    messages: Messages,
    last: Option<Nanos>,
    /// By binary digits of the bytes of one.
    sizes: BTreeMap<u32, Weighed>,
    to: HashMap<(String, u32), Weighed>,
    /// Scaled up to all processes that did something.
    all_bytes: f64,
}

impl MessagesBuilder {
    /// Adds a row; no more than `most` receivers are kept.
    pub(crate) fn add(&mut self, row: MessageRow, most: usize) {
        let size = i64::BITS - (row.bytes / row.messages.max(1)).max(0).leading_zeros();
        if let Some(pid) = row.pid {
            if self.to.len() < most || self.to.contains_key(&(pid.clone(), size)) {
                self.to.entry((pid, size)).or_default().add(row.messages, row.bytes);
            }
            return;
        }
        if self.last != Some(row.t) {
            self.last = Some(row.t);
            self.messages.us = self.messages.us.saturating_add(row.us);
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
        let mut to: Vec<((String, u32), Weighed)> = self.to.into_iter().collect();
        to.sort_by(|a, b| b.1.bytes.cmp(&a.1.bytes).then_with(|| a.0.cmp(&b.0)));
        let to = to.into_iter().map(|((pid, _), weighed)| (pid, weighed)).collect();
        Messages {
            sizes: self.sizes.into_values().collect(),
            bytes_per_s: (self.all_bytes / (self.messages.us.max(1) as f64 / 1e6)) as i64,
            to,
            ..self.messages
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_added_up_by_size_and_receiver() {
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
            // The same size, about.
            row(2, None, 1, 60_000),
            row(2, Some("<0.7.0>"), 1, 60_000),
            row(2, Some("<0.8.0>"), 1, 900),
            // Nothing came.
            row(3, None, 0, 0),
        ];
        rows.into_iter().for_each(|row| builder.add(row, 10));
        let messages = builder.finish();
        assert_eq!(messages.us, 30_000, "once for each look");
        let (small, large) =
            (Weighed { messages: 10, bytes: 1_000 }, Weighed { messages: 3, bytes: 160_000 });
        assert_eq!(messages.sizes, [small, large]);
        assert_eq!(messages.of_at_least(32_768.0), large);
        let told =
            [("<0.7.0>".to_owned(), large), ("<0.8.0>".to_owned(), Weighed { messages: 1, bytes: 900 })];
        assert_eq!(messages.to, told);
        // 161 kB for half of the processes that do something, in 30 ms.
        assert_eq!(messages.bytes_per_s, 161_000 * 2 * 100 / 3);
    }

    #[test]
    fn no_more_receivers_are_kept_than_there_is_room_for() {
        let mut builder = MessagesBuilder::default();
        for pid in 0..20 {
            let pid = Some(format!("<0.{pid}.0>"));
            builder.add(MessageRow { pid, messages: 1, bytes: 100, ..MessageRow::default() }, 5);
        }
        assert_eq!(builder.finish().to.len(), 5);
    }
}
