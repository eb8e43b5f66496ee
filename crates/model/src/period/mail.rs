//! Messages that wait, weighed from outside.

use crate::rows::ProcessRow;
use crate::units::Nanos;

/// Messages that waited for a process when it was looked at closely. They are never read; where they lie tells what they weigh.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mail {
    /// When, from the recording's start.
    pub t: Nanos,
    /// How many.
    pub messages: i64,
    /// Whether messages that wait are a part of the heap (`message_queue_data`).
    pub is_on_heap: bool,
    /// On the heap: its fragments, which are messages that no collection has moved into it, taken ones too. Off the heap: what the
    /// process has beside its heap, which is messages, links and monitors.
    pub loose_bytes: i64,
    /// The heap without fragments, at this look, the one before or the one after, when it was smallest.
    pub heap_bytes: i64,
}

impl Mail {
    /// `None` where no message waits, or nothing tells what may be messages.
    fn of(row: &ProcessRow) -> Option<Self> {
        let is_on_heap = row.message_queue_data.as_deref()? == "on_heap";
        let beside = || Some(row.total_bytes?.saturating_sub(row.memory_bytes));
        let loose_bytes = if is_on_heap { row.fragment_bytes? } else { beside()? };
        let waits = row.queue > 0;
        let heap_bytes = heap_bytes(row)?;
        waits.then_some(Mail { t: row.t, messages: row.queue, is_on_heap, loose_bytes, heap_bytes })
    }

    /// What they weigh at least, but for links and monitors. Messages that were taken stay in fragments until there is no room for
    /// them in the heap, so there are no more of these than the heap has room for.
    pub fn least_bytes(&self) -> i64 {
        match self.is_on_heap {
            true => self.loose_bytes.saturating_sub(self.heap_bytes).max(0),
            false => self.loose_bytes,
        }
    }
}

fn heap_bytes(row: &ProcessRow) -> Option<i64> {
    Some(row.memory_bytes.saturating_sub(row.fragment_bytes?))
}

/// Closer looks at a process: the last one, and the one at which the messages that waited weighed the most.
#[derive(Debug)]
pub(super) struct Looks {
    pub last: ProcessRow,
    pub mail: Option<Mail>,
}

impl Looks {
    pub fn new(row: ProcessRow) -> Self {
        Looks { mail: Mail::of(&row), last: row }
    }

    /// Adds the next look.
    pub fn add(&mut self, row: ProcessRow) {
        if let (Some(mail), Some(after)) = (&mut self.mail, heap_bytes(&row))
            && mail.t == self.last.t
        {
            mail.heap_bytes = mail.heap_bytes.min(after);
        }
        let mail = Mail::of(&row).map(|mail| {
            let before = heap_bytes(&self.last).unwrap_or(mail.heap_bytes);
            Mail { heap_bytes: mail.heap_bytes.min(before), ..mail }
        });
        let weight = |mail: &Option<Mail>| mail.as_ref().map(Mail::least_bytes);
        if weight(&mail) > weight(&self.mail) {
            self.mail = mail;
        }
        self.last = row;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A look: seconds, messages that wait, heap without fragments, fragments.
    fn look((t, queue, heap, fragments): (Nanos, i64, i64, i64)) -> ProcessRow {
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

    /// What the heaviest messages weigh, and how many there are.
    fn weighed(looks: &[(Nanos, i64, i64, i64)]) -> Option<(i64, i64)> {
        let mut looks = looks.iter().copied().map(look);
        let mut all = Looks::new(looks.next().expect("a look"));
        looks.for_each(|row| all.add(row));
        all.mail.map(|mail| (mail.least_bytes(), mail.messages))
    }

    #[test]
    fn fragments_beyond_what_the_heap_has_room_for_are_messages_that_wait() {
        assert_eq!(weighed(&[(1, 0, 1_000, 50_000)]), None, "nothing waits");
        assert_eq!(weighed(&[(1, 2, 1_000, 50_000)]), Some((49_000, 2)));
        assert_eq!(weighed(&[(1, 2, 80_000, 50_000)]), Some((0, 2)), "these may all have been taken");
        // The heap holds messages, too; without them it is smaller, as a look before or after shows.
        assert_eq!(weighed(&[(1, 0, 1_000, 0), (2, 2, 80_000, 50_000)]), Some((49_000, 2)));
        assert_eq!(weighed(&[(1, 2, 80_000, 50_000), (2, 0, 1_000, 0)]), Some((49_000, 2)));
        assert_eq!(
            weighed(&[
                (1, 0, 1_000, 0),
                (2, 0, 80_000, 0),
                (3, 2, 80_000, 50_000),
                (4, 0, 90_000, 0),
                (5, 0, 1_000, 0)
            ]),
            Some((0, 2)),
            "what it was long ago says nothing"
        );
        assert_eq!(
            weighed(&[(1, 9, 1_000, 70_000), (2, 1, 1_000, 50_000)]),
            Some((69_000, 9)),
            "the most counts"
        );
    }

    #[test]
    fn off_the_heap_messages_are_what_is_beside_it() {
        let row = ProcessRow { message_queue_data: Some("off_heap".to_owned()), ..look((1, 3, 9_000, 100)) };
        assert_eq!(Mail::of(&row).map(|mail| mail.least_bytes()), Some(776));
        assert_eq!(Mail::of(&ProcessRow { total_bytes: None, ..row }), None, "it was not told");
    }
}
