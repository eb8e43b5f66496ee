//! Timers of devices: at most one per device, exact to the nanosecond, in constant time for any number of devices.
//!
//! A hierarchical timing wheel (Varghese & Lauck, SOSP 1987) sorts timers by millisecond; a heap orders the timers of the current
//! millisecond. The lists of all slots share one vector, so setting and cancelling a timer allocates nothing.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A tick is 2^20 ns, nearly a millisecond.
const TICK_BITS: u32 = 20;
/// Each level has 2^8 slots.
const SLOT_BITS: u32 = 8;
const SLOTS: usize = 1 << SLOT_BITS;
/// The levels span 0.27 s, 69 s, 4.9 hours and 52 days.
const LEVELS: usize = 4;
/// Number of list heads, one per slot; they come before the devices' nodes.
const HEADS: usize = LEVELS * SLOTS;

/// Maximum distance of a timer in ticks. A timer further away is placed at this distance, and placed again when that tick comes.
const MAX_TICKS: u64 = (1 << (SLOT_BITS * LEVELS as u32)) - 1;

#[derive(Clone, Copy)]
struct Node {
    next: u32,
    previous: u32,
    due_ns: u64,
}

/// Due time of a timer that is not set.
const UNSET: u64 = u64::MAX;

/// The timers of all devices, which are numbered from 0.
pub struct Wheel {
    nodes: Vec<Node>,
    /// One bit per slot that may hold timers. The bit of an emptied slot is cleared when the wheel reaches the slot.
    occupied: [[u64; SLOTS / 64]; LEVELS],
    /// All timers up to this tick are in `near`.
    tick: u64,
    near: BinaryHeap<Reverse<(u64, u32)>>,
}

impl Wheel {
    /// Creates a wheel without timers. Timers set before `now_ns` are due immediately.
    pub fn new(devices: usize, now_ns: u64) -> Self {
        let nodes = (0..HEADS + devices)
            .map(|index| Node { next: index as u32, previous: index as u32, due_ns: UNSET })
            .collect();
        Self {
            nodes,
            occupied: [[0; SLOTS / 64]; LEVELS],
            tick: now_ns >> TICK_BITS,
            near: BinaryHeap::new(),
        }
    }

    /// Sets the timer of a device, replacing an earlier one.
    pub fn set(&mut self, device: u32, due_ns: u64) {
        self.cancel(device);
        self.nodes[HEADS + device as usize].due_ns = due_ns;
        self.place(device, due_ns);
    }

    /// Cancels the timer of a device.
    pub fn cancel(&mut self, device: u32) {
        let index = HEADS + device as usize;
        self.unlink(index);
        // Marks an entry in the heap as stale.
        self.nodes[index].due_ns = UNSET;
    }

    /// Returns the due time of a device's timer; `None` if it is not set.
    pub fn due_ns(&self, device: u32) -> Option<u64> {
        let due_ns = self.nodes[HEADS + device as usize].due_ns;
        (due_ns != UNSET).then_some(due_ns)
    }

    /// Removes the earliest timer that is due at `now_ns`, and returns its device and due time.
    pub fn pop(&mut self, now_ns: u64) -> Option<(u32, u64)> {
        self.advance(now_ns >> TICK_BITS);
        while let Some(&Reverse((due_ns, device))) = self.near.peek() {
            let node = &mut self.nodes[HEADS + device as usize];
            if node.due_ns != due_ns {
                self.near.pop();
                continue;
            }
            if due_ns > now_ns {
                return None;
            }
            node.due_ns = UNSET;
            self.near.pop();
            return Some((device, due_ns));
        }
        None
    }

    /// Returns when to call [`Self::pop`] again: at or before the due time of the earliest timer. `None` without timers.
    pub fn next_ns(&mut self) -> Option<u64> {
        while let Some(&Reverse((due_ns, device))) = self.near.peek() {
            if self.nodes[HEADS + device as usize].due_ns == due_ns {
                return Some(due_ns);
            }
            self.near.pop();
        }
        self.next_tick().map(|tick| tick << TICK_BITS)
    }

    /// Returns the first tick after the current one at which a slot may have to be emptied.
    fn next_tick(&self) -> Option<u64> {
        (0..LEVELS)
            .filter_map(|level| {
                let shift = SLOT_BITS * level as u32;
                let here = self.tick >> shift;
                let distance = self.distance(level, here as usize % SLOTS)?;
                Some((here + distance as u64) << shift)
            })
            .min()
    }

    /// Returns the distance from a slot to the next occupied one, 1 to [`SLOTS`]. Scans word by word, because the engine calls it in each
    /// iteration of its loop.
    fn distance(&self, level: usize, slot: usize) -> Option<usize> {
        let words = &self.occupied[level];
        let first = (slot + 1) % SLOTS;
        let (word, bit) = (first / 64, first % 64);
        // The first word is scanned twice: at the beginning from the starting bit on, and at the end up to that bit.
        (0..=words.len()).find_map(|step| {
            let at = (word + step) % words.len();
            let mask = match step {
                0 => u64::MAX << bit,
                step if step == words.len() => !(u64::MAX << bit),
                _ => u64::MAX,
            };
            let found = words[at] & mask;
            let next = at * 64 + found.trailing_zeros() as usize;
            (found != 0).then(|| (next + SLOTS - first) % SLOTS + 1)
        })
    }

    fn advance(&mut self, to: u64) {
        while self.tick < to {
            // The skipped ticks have no timers.
            self.tick = self.next_tick().map_or(to, |next| next.min(to));
            for level in (0..LEVELS).rev() {
                let shift = SLOT_BITS * level as u32;
                if self.tick & ((1 << shift) - 1) == 0 {
                    self.empty(level, (self.tick >> shift) as usize % SLOTS);
                }
            }
        }
    }

    /// Moves the timers of a slot to their places relative to the current tick.
    fn empty(&mut self, level: usize, slot: usize) {
        if !self.is_occupied(level, slot) {
            return;
        }
        self.occupied[level][slot / 64] &= !(1 << (slot % 64));
        let head = level * SLOTS + slot;
        // The list is detached first, because a timer of the highest level may return to the same slot.
        let mut index = self.nodes[head].next as usize;
        self.nodes[head].next = head as u32;
        self.nodes[head].previous = head as u32;
        while index != head {
            let node = self.nodes[index];
            self.nodes[index].next = index as u32;
            self.nodes[index].previous = index as u32;
            self.place((index - HEADS) as u32, node.due_ns);
            index = node.next as usize;
        }
    }

    fn place(&mut self, device: u32, due_ns: u64) {
        let tick = due_ns >> TICK_BITS;
        if tick <= self.tick {
            self.near.push(Reverse((due_ns, device)));
            return;
        }
        let tick = tick.min(self.tick + MAX_TICKS);
        // The level of the highest bit in which the ticks differ: there, the slot is less than a full revolution ahead.
        let level = ((63 - (tick ^ self.tick).leading_zeros()) / SLOT_BITS).min(LEVELS as u32 - 1);
        let slot = (tick >> (SLOT_BITS * level)) as usize % SLOTS;
        let (level, index) = (level as usize, HEADS + device as usize);
        self.occupied[level][slot / 64] |= 1 << (slot % 64);
        let head = level * SLOTS + slot;
        let last = self.nodes[head].previous;
        self.nodes[index].previous = last;
        self.nodes[index].next = head as u32;
        self.nodes[last as usize].next = index as u32;
        self.nodes[head].previous = index as u32;
    }

    fn unlink(&mut self, index: usize) {
        let Node { next, previous, .. } = self.nodes[index];
        self.nodes[previous as usize].next = next;
        self.nodes[next as usize].previous = previous;
        self.nodes[index].next = index as u32;
        self.nodes[index].previous = index as u32;
    }

    fn is_occupied(&self, level: usize, slot: usize) -> bool {
        self.occupied[level][slot / 64] & (1 << (slot % 64)) != 0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// An operation on a wheel.
    #[derive(Debug, Clone)]
    enum Operation {
        Set(u32, u64),
        Cancel(u32),
        Wait(u64),
    }

    fn operation() -> impl Strategy<Value = Operation> {
        // Spans from less than a tick to beyond the highest level.
        let span = (0_u32..54, any::<u64>()).prop_map(|(bits, any)| any & ((1 << bits) - 1));
        prop_oneof![
            4 => (0_u32..20, span.clone()).prop_map(|(device, span)| Operation::Set(device, span)),
            1 => (0_u32..20).prop_map(Operation::Cancel),
            2 => span.prop_map(Operation::Wait),
        ]
    }

    proptest! {
        #[test]
        fn the_next_occupied_slot_is_found_from_every_slot(occupied in proptest::collection::vec(0..SLOTS, 0..6)) {
            let mut wheel = Wheel::new(0, 0);
            for slot in &occupied {
                wheel.occupied[0][slot / 64] |= 1 << (slot % 64);
            }
            for slot in 0..SLOTS {
                let next = (1..=SLOTS).find(|distance| occupied.contains(&((slot + distance) % SLOTS)));
                prop_assert_eq!(wheel.distance(0, slot), next);
            }
        }

        #[test]
        fn timers_fire_when_due_and_in_order(operations in proptest::collection::vec(operation(), 1..200)) {
            let mut now = 5_000_000_000_u64;
            let mut wheel = Wheel::new(20, now);
            let mut model = BTreeMap::new();
            for operation in operations {
                match operation {
                    Operation::Set(device, span) => {
                        wheel.set(device, now + span);
                        model.insert(device, now + span);
                    }
                    Operation::Cancel(device) => {
                        wheel.cancel(device);
                        model.remove(&device);
                    }
                    Operation::Wait(span) => {
                        now += span;
                        let mut expected: Vec<(u64, u32)> =
                            model.iter().filter(|(_, due)| **due <= now).map(|(device, due)| (*due, *device)).collect();
                        expected.sort_unstable();
                        model.retain(|_, due| *due > now);
                        let mut got = Vec::new();
                        while let Some((device, due)) = wheel.pop(now) {
                            got.push((due, device));
                        }
                        prop_assert_eq!(got, expected);
                    }
                }
                for device in 0..20 {
                    prop_assert_eq!(wheel.due_ns(device), model.get(&device).copied());
                }
                let earliest = model.values().min();
                prop_assert!(wheel.next_ns().is_none_or(|next| earliest.is_none_or(|due| next <= *due)));
                prop_assert!(earliest.is_none() || wheel.next_ns().is_some());
            }
        }
    }
}
