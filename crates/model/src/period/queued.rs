//! Size of message queues in bytes, estimated from the memory of the receiver.

use crate::rows::{CHILD_OF, ProcessRow};
use crate::units::Nanos;

/// Message queue of a process at a detailed reading. Messages are never read; the memory that stores them bounds their size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuedMessages {
    /// Time since the start of the recording.
    pub t: Nanos,
    /// Queue length.
    pub messages: i64,
    /// Whether queued messages are part of the heap (`message_queue_data`).
    pub is_on_heap: bool,
    /// On-heap messages: size of the heap fragments. These contain messages that no garbage collection has moved into the heap yet,
    /// including messages that the process has already received. Off-heap messages: memory outside the heap, which contains messages,
    /// links and monitors.
    pub outside_bytes: i64,
    /// Heap without fragments: the minimum of this reading, the previous one and the next one.
    pub heap_bytes: i64,
}

impl QueuedMessages {
    /// Estimates the queue of a row; `None` if it is empty, or if the row does not bound the size of messages.
    fn of(row: &ProcessRow) -> Option<Self> {
        let is_on_heap = row.message_queue_data.as_deref()? == "on_heap";
        let outside_heap = || Some(row.total_bytes?.saturating_sub(row.memory_bytes));
        let loose_bytes = if is_on_heap { row.fragment_bytes? } else { outside_heap()? };
        let is_queued = row.queue > 0;
        let heap_bytes = heap_bytes(row)?;
        is_queued.then_some(QueuedMessages {
            t: row.t,
            messages: row.queue,
            is_on_heap,
            outside_bytes: loose_bytes,
            heap_bytes,
        })
    }

    /// Lower bound of the size of the queued messages; off-heap, links and monitors are included. Received messages stay in fragments
    /// until they no longer fit into the heap, so at most the size of the heap is due to them.
    pub fn min_bytes(&self) -> i64 {
        match self.is_on_heap {
            true => self.outside_bytes.saturating_sub(self.heap_bytes).max(0),
            false => self.outside_bytes,
        }
    }
}

fn heap_bytes(row: &ProcessRow) -> Option<i64> {
    Some(row.memory_bytes.saturating_sub(row.fragment_bytes?))
}

/// Detailed readings of a process: the last one, and the one with the most bytes in its queue.
#[derive(Debug)]
pub(super) struct ProcessReadings {
    pub last: ProcessRow,
    pub mail: Option<QueuedMessages>,
}

impl ProcessReadings {
    pub fn new(row: ProcessRow) -> Self {
        ProcessReadings { mail: QueuedMessages::of(&row), last: row }
    }

    /// Adds the next reading.
    pub fn add(&mut self, mut row: ProcessRow) {
        if let (Some(mail), Some(after)) = (&mut self.mail, heap_bytes(&row))
            && mail.t == self.last.t
        {
            mail.heap_bytes = mail.heap_bytes.min(after);
        }
        let mail = QueuedMessages::of(&row).map(|mail| {
            let before = heap_bytes(&self.last).unwrap_or(mail.heap_bytes);
            QueuedMessages { heap_bytes: mail.heap_bytes.min(before), ..mail }
        });
        let bytes = |mail: &Option<QueuedMessages>| mail.as_ref().map(QueuedMessages::min_bytes);
        if bytes(&mail) > bytes(&self.mail) {
            self.mail = mail;
        }
        // The initial call never changes, but is no longer read once the heap is large.
        if !is_initial_call(&row) && is_initial_call(&self.last) {
            row.initial_call = self.last.initial_call.take();
        }
        self.last = row;
    }
}

fn is_initial_call(row: &ProcessRow) -> bool {
    row.initial_call.as_deref().is_some_and(|call| !call.starts_with(CHILD_OF))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Arguments: second, queue length, heap without fragments, fragments.
    fn reading((t, queue, heap, fragments): (Nanos, i64, i64, i64)) -> ProcessRow {
        ProcessRow {
            t,
            queue,
            memory_bytes: heap + fragments,
            total_bytes: Some(heap + fragments + 776),
            fragment_bytes: Some(fragments),
            message_queue_data: Some("on_heap".to_owned()),
            ..ProcessRow::default()
        }
    }

    /// Lower bound and queue length of the largest queue.
    fn largest_queue(readings: &[(Nanos, i64, i64, i64)]) -> Option<(i64, i64)> {
        let mut readings = readings.iter().copied().map(reading);
        let mut all = ProcessReadings::new(readings.next().expect("a reading"));
        readings.for_each(|row| all.add(row));
        all.mail.map(|mail| (mail.min_bytes(), mail.messages))
    }

    #[test]
    fn fragments_that_exceed_the_heap_are_queued_messages() {
        assert_eq!(largest_queue(&[(1, 0, 1_000, 50_000)]), None, "empty queue");
        assert_eq!(largest_queue(&[(1, 2, 1_000, 50_000)]), Some((49_000, 2)));
        assert_eq!(
            largest_queue(&[(1, 2, 80_000, 50_000)]),
            Some((0, 2)),
            "all messages in fragments may have been received"
        );
        // The heap may contain queued messages, too; then it is smaller in an earlier or later reading with an empty queue.
        assert_eq!(largest_queue(&[(1, 0, 1_000, 0), (2, 2, 80_000, 50_000)]), Some((49_000, 2)));
        assert_eq!(largest_queue(&[(1, 2, 80_000, 50_000), (2, 0, 1_000, 0)]), Some((49_000, 2)));
        assert_eq!(
            largest_queue(&[
                (1, 0, 1_000, 0),
                (2, 0, 80_000, 0),
                (3, 2, 80_000, 50_000),
                (4, 0, 90_000, 0),
                (5, 0, 1_000, 0)
            ]),
            Some((0, 2)),
            "readings before the previous one are ignored"
        );
        assert_eq!(
            largest_queue(&[(1, 9, 1_000, 70_000), (2, 1, 1_000, 50_000)]),
            Some((69_000, 9)),
            "the largest queue is kept"
        );
    }

    #[test]
    fn an_initial_call_that_was_read_is_kept() {
        let with = |call: Option<&str>| ProcessRow {
            initial_call: call.map(str::to_owned),
            ..reading((1, 0, 9, 0))
        };
        let mut all = ProcessReadings::new(with(Some("child of shop_sup")));
        for (next, expect) in [
            (None, None),
            (Some("shop_cart:init/1"), Some("shop_cart:init/1")),
            (Some("child of shop_sup"), Some("shop_cart:init/1")),
            (None, Some("shop_cart:init/1")),
        ] {
            all.add(with(next));
            assert_eq!(all.last.initial_call.as_deref(), expect, "{next:?}");
        }
    }

    #[test]
    fn off_heap_messages_are_the_memory_outside_the_heap() {
        let row =
            ProcessRow { message_queue_data: Some("off_heap".to_owned()), ..reading((1, 3, 9_000, 100)) };
        assert_eq!(QueuedMessages::of(&row).map(|mail| mail.min_bytes()), Some(776));
        assert_eq!(QueuedMessages::of(&ProcessRow { total_bytes: None, ..row }), None, "total_bytes unknown");
    }
}
