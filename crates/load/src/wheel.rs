//! Timers of devices: one for each at most, exact to the nanosecond, in constant time whatever their number.
//!
//! A hierarchical timing wheel (Varghese & Lauck, SOSP 1987) brings a timer into the right millisecond; a heap of those
//! that are due in the present one gives them in their order. The lists are woven through one vector, so setting and
//! cancelling take no memory.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A tick: 2^20 ns, nearly a millisecond.
const TICK_BITS: u32 = 20;
/// Slots of a level.
const SLOT_BITS: u32 = 8;
const SLOTS: usize = 1 << SLOT_BITS;
/// Levels: 0.27 s, 69 s, 4.9 hours, 52 days.
const LEVELS: usize = 4;
/// Nodes before those of the devices: the lists' heads.
const HEADS: usize = LEVELS * SLOTS;

/// The farthest tick that can be held; what is later is looked at again then.
const FARTHEST_TICKS: u64 = (1 << (SLOT_BITS * LEVELS as u32)) - 1;

#[derive(Clone, Copy)]
struct Node {
    next: u32,
    previous: u32,
    due_ns: u64,
}

/// No timer is set.
const UNSET: u64 = u64::MAX;

/// Timers of `devices` devices, numbered from 0.
pub struct Wheel {
    nodes: Vec<Node>,
    /// Whether a slot may hold something; a bit that stands for an emptied slot is cleared when it is come upon.
    occupied: [[u64; SLOTS / 64]; LEVELS],
    /// The tick up to which all has been moved to `near`.
    tick: u64,
    near: BinaryHeap<Reverse<(u64, u32)>>,
}

impl Wheel {
    /// Without timers. Instants before `now_ns` are due at once.
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

    /// Sets the timer of a device; one that was set before is forgotten.
    pub fn set(&mut self, device: u32, due_ns: u64) {
        self.cancel(device);
        self.nodes[HEADS + device as usize].due_ns = due_ns;
        self.place(device, due_ns);
    }

    /// Forgets the timer of a device.
    pub fn cancel(&mut self, device: u32) {
        let index = HEADS + device as usize;
        self.unlink(index);
        // An entry in the heap is known as old by this.
        self.nodes[index].due_ns = UNSET;
    }

    /// When the timer of a device is due.
    pub fn due_ns(&self, device: u32) -> Option<u64> {
        let due_ns = self.nodes[HEADS + device as usize].due_ns;
        (due_ns != UNSET).then_some(due_ns)
    }

    /// A device whose timer was due at `now_ns` or before, the earliest first, and when it was due. Its timer is unset then.
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

    /// When to ask again: not after the earliest timer, perhaps before it. `None` without timers.
    pub fn next_ns(&mut self) -> Option<u64> {
        while let Some(&Reverse((due_ns, device))) = self.near.peek() {
            if self.nodes[HEADS + device as usize].due_ns == due_ns {
                return Some(due_ns);
            }
            self.near.pop();
        }
        self.next_tick().map(|tick| tick << TICK_BITS)
    }

    /// The first tick after the present one at which a slot has to be looked at.
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

    /// How far behind a slot the next one lies that may hold something, 1 to [`SLOTS`], word by word: this is asked for in
    /// every turn of the engine's loop.
    fn distance(&self, level: usize, slot: usize) -> Option<usize> {
        let words = &self.occupied[level];
        let first = (slot + 1) % SLOTS;
        let (word, bit) = (first / 64, first % 64);
        // The word that the search begins in is looked at twice: from that bit on, and at last up to it.
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
            // Nothing lies in the ticks that are skipped.
            self.tick = self.next_tick().map_or(to, |next| next.min(to));
            for level in (0..LEVELS).rev() {
                let shift = SLOT_BITS * level as u32;
                if self.tick & ((1 << shift) - 1) == 0 {
                    self.empty(level, (self.tick >> shift) as usize % SLOTS);
                }
            }
        }
    }

    /// Moves the timers of a slot to where they belong now.
    fn empty(&mut self, level: usize, slot: usize) {
        if !self.is_occupied(level, slot) {
            return;
        }
        self.occupied[level][slot / 64] &= !(1 << (slot % 64));
        let head = level * SLOTS + slot;
        // Taken off as a whole: a timer of the highest level may come back to the same slot.
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
        let tick = tick.min(self.tick + FARTHEST_TICKS);
        // The highest group of bits in which the two differ: slots of that level are apart by less than a turn.
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

    /// What is asked of a wheel.
    #[derive(Debug, Clone)]
    enum Act {
        Set(u32, u64),
        Cancel(u32),
        Wait(u64),
    }

    fn act() -> impl Strategy<Value = Act> {
        // Of every size: within a tick, and beyond the highest level.
        let span = (0_u32..54, any::<u64>()).prop_map(|(bits, any)| any & ((1 << bits) - 1));
        prop_oneof![
            4 => (0_u32..20, span.clone()).prop_map(|(device, span)| Act::Set(device, span)),
            1 => (0_u32..20).prop_map(Act::Cancel),
            2 => span.prop_map(Act::Wait),
        ]
    }

    proptest! {
        #[test]
        fn the_next_occupied_slot_is_found_from_everywhere(occupied in proptest::collection::vec(0..SLOTS, 0..6)) {
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
        fn timers_come_when_they_are_due_in_their_order(acts in proptest::collection::vec(act(), 1..200)) {
            let mut now = 5_000_000_000_u64;
            let mut wheel = Wheel::new(20, now);
            let mut model = BTreeMap::new();
            for act in acts {
                match act {
                    Act::Set(device, span) => {
                        wheel.set(device, now + span);
                        model.insert(device, now + span);
                    }
                    Act::Cancel(device) => {
                        wheel.cancel(device);
                        model.remove(&device);
                    }
                    Act::Wait(span) => {
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
