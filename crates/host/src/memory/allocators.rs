//! Finds the VM's allocators, and the carriers in their lists.
//!
//! An allocator instance is an `Allctr_t` (erts/emulator/beam/erl_alloc_util.h). It is in static data or allocated with malloc at start,
//! and never moves. Static tables point to all instances: `erts_allctrs` to single ones, and `erts_allctr_thr_spec` to arrays with one
//! instance per scheduler. No symbols are needed, because instances are recognized by their content. At some offset, they contain a pointer
//! to a constant string of the emulator, such as `eheap_` or `binary_`.
//!
//! | offset in `Allctr_t` | OTP 23 | 25 | 27 |
//! |---|---|---|---|
//! | `name_prefix` | +120 | +120 | +120 |
//! | `mbc_list` (first, last), then `sbc_list`, `pooled_tree`, `dc_list`, `sentinel` | +344 | +336 | +336 |
//!
//! Neither offset is hard-coded. The first is the offset at which most candidates have a name. The second is the offset at which most
//! instances have pointers to both ends of a list of carriers, which point back to the instance. The order of the fields after it is the
//! same in all releases.
//!
//! Carriers begin with `Carrier_t`: size and kind, next and previous carrier in the list, and their allocator. The lists of multiblock and
//! singleblock carriers contain those in use. Abandoned carriers are in a ring through `cpool`, with a sentinel in static data. OTP 22 and
//! 23 have one ring for all allocators, later releases have one for each allocator type. `dc_list` contains those that are about to be
//! deallocated.
//!
//! So all carriers are found through the VM's own lists. The cost grows with the number of carriers, not with their size, and former
//! carriers are not mistaken for carriers.

use std::collections::{HashMap, HashSet};

use super::emulator::Emulator;
use super::image::{Image, word_at};

/// Name prefixes of all allocators with carriers, up to OTP 29.
const PREFIXES: [&str; 12] = [
    "temp_", "sl_", "std_", "ll_", "eheap_", "ets_", "fix_", "literal_", "binary_", "driver_", "exec_",
    "test_",
];
/// Size of the first part of an `Allctr_t`, which is searched for the name.
const NAME_SEARCH_BYTES: usize = 256;
/// Size of the first part of an `Allctr_t`, which is searched for the lists.
const LISTS_SEARCH_BYTES: usize = 1024;
/// Maximum number of instances: 10 allocators for each of 1,024 normal and as many dirty schedulers, and some more.
const MAX_ALLOCATORS: usize = 30_000;
/// Number of instances that are searched for the offset of the lists.
const SAMPLED_ALLOCATORS: usize = 200;
/// Maximum number of carriers: a terabyte in carriers of one megabyte.
const MAX_CARRIERS: usize = 1_000_000;

/// Maximum number of attempts to follow a list that changes: if hundreds of carriers per second are created and freed, some walks fail.
const MAX_ATTEMPTS: usize = 5;

/// Bits of `chdr`; the third one is always 0.
const MSEG: u64 = 1;
const SBC: u64 = 2;
/// Low bits of sizes and of pointers to allocators.
const FLAGS: u64 = 7;
/// Low bits of pointers in the ring of abandoned carriers.
const MARKS: u64 = 3;
/// Offset of the data of abandoned carriers in `Carrier_t`, and offset of the next pointer in these data. The previous pointer and the
/// allocator that created the carrier follow it.
const CPOOL: u64 = 32;
const NEXT: u64 = 16;

/// An allocator instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Allocator {
    address: u64,
    /// `eheap_alloc`.
    pub name: String,
}

/// The list that contains a carrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Set {
    Mbcs,
    Sbcs,
    Pool,
    /// Empty, about to be deallocated.
    Deallocating,
}

/// A carrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Carrier {
    pub address: u64,
    pub size: u64,
    /// Whether mseg_alloc mapped it; otherwise it comes from malloc.
    pub is_mseg: bool,
    pub set: Set,
    /// Index of its allocator.
    pub allocator: usize,
}

/// The beginning of a carrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Header {
    chdr: u64,
    next: u64,
    prev: u64,
    allocator: u64,
}

impl Header {
    fn read(image: &Image<'_>, address: u64) -> Option<Header> {
        if !address.is_multiple_of(8) || address == 0 {
            return None;
        }
        let [chdr, next, prev, allocator] = image.words_now(address)?;
        Some(Header { chdr, next, prev, allocator })
    }

    fn is_of(&self, allocator: u64) -> bool {
        self.allocator & !FLAGS == allocator
    }

    fn size(&self) -> u64 {
        self.chdr & !FLAGS
    }
}

/// The allocators of a VM. They never move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Allocators {
    all: Vec<Allocator>,
    by_address: HashMap<u64, usize>,
    lists_at: u64,
}

/// All carriers found.
#[derive(Debug, Default)]
pub(super) struct Carriers {
    pub all: Vec<Carrier>,
    /// Number of lists that could not be followed to their end, because links were swapped out or were changing.
    pub cut: usize,
}

impl Allocators {
    /// Finds the allocators, starting from static data; `None` if absent with a known layout.
    pub fn find(image: &Image<'_>, emulator: &Emulator<'_>, pointers: &[u64]) -> Option<Allocators> {
        let mut search = Search { image, emulator, known: HashMap::new() };
        let mut found: HashSet<u64> = HashSet::new();
        for pointer in pointers {
            if search.has_name(*pointer) {
                found.insert(*pointer);
            }
            // Arrays are searched even if a name was found: it may belong to an allocator that follows a short array.
            found.extend(search.array_members(*pointer));
            if found.len() > MAX_ALLOCATORS {
                return None;
            }
        }
        let mut votes: HashMap<usize, usize> = HashMap::new();
        for (offset, _) in found.iter().filter_map(|address| search.known.get(address)?.as_ref()) {
            *votes.entry(*offset).or_default() += 1;
        }
        let (named_at, _) = votes.into_iter().max_by_key(|(offset, votes)| (*votes, usize::MAX - offset))?;
        let named = found.into_iter().filter_map(|address| {
            let (offset, name) = search.known.get(&address)?.as_ref()?;
            (*offset == named_at).then(|| Allocator { address, name: name.clone() })
        });
        let mut all: Vec<Allocator> = named.collect();
        all.sort_unstable_by_key(|allocator| allocator.address);
        let lists_at = lists_at(image, named_at, &all)?;
        let by_address = all.iter().enumerate().map(|(at, allocator)| (allocator.address, at)).collect();
        Some(Allocators { all, by_address, lists_at })
    }

    /// Returns the name of a carrier's allocator.
    pub fn name(&self, carrier: &Carrier) -> &str {
        self.all.get(carrier.allocator).map_or("", |allocator| &allocator.name)
    }

    /// Finds all carriers by following all lists.
    pub fn carriers(&self, image: &Image<'_>, emulator: &Emulator<'_>) -> Carriers {
        let mut found = Carriers::default();
        let mut sentinels: HashSet<u64> = HashSet::new();
        for (at, allocator) in self.all.iter().enumerate() {
            // mbc_list, sbc_list, pooled_tree, dc_list, sentinel.
            let lists = || image.words_now(allocator.address.saturating_add(self.lists_at));
            let Some([mbcs, mbcs_end, sbcs, sbcs_end, _, dealloc, dealloc_end, sentinel]) = lists() else {
                found.cut += 1;
                continue;
            };
            let ends = [
                (Set::Mbcs, 0, [mbcs, mbcs_end]),
                (Set::Sbcs, 2, [sbcs, sbcs_end]),
                (Set::Deallocating, 5, [dealloc, dealloc_end]),
            ];
            for (set, place, ends) in ends {
                let again = || lists()?.get(place..place + 2)?.first_chunk().copied();
                found.follow(ends, &again, 0, &|address| self.in_list(image, at, set, address));
            }
            if emulator.is_data(sentinel) {
                sentinels.insert(sentinel);
            }
        }
        for sentinel in sentinels {
            let ends = || Some(image.words_now(sentinel.saturating_add(NEXT))?.map(|link| link & !MARKS));
            found.follow(ends().unwrap_or_default(), &ends, sentinel, &|node| self.in_ring(image, node));
        }
        found
    }

    /// Reads the link of a carrier in an allocator's list.
    fn in_list(&self, image: &Image<'_>, at: usize, set: Set, address: u64) -> Option<Link> {
        let owner = self.all.get(at)?.address;
        let header = Header::read(image, address).filter(|header| header.is_of(owner))?;
        let carrier = carrier(address, &header, set, at)?;
        Some(Link { next: header.next, prev: header.prev, carrier: Some(carrier) })
    }

    /// Reads the link of a node in a ring of abandoned carriers. `instrument` adds nodes that are not carriers.
    fn in_ring(&self, image: &Image<'_>, node: u64) -> Option<Link> {
        let [next, prev, origin] = image.words_now(node.checked_add(NEXT)?)?;
        let address = node.checked_sub(CPOOL)?;
        let owner = self.by_address.get(&(origin & !FLAGS));
        let of_owner = |at: &usize| carrier(address, &Header::read(image, address)?, Set::Pool, *at);
        Some(Link { next: next & !MARKS, prev: prev & !MARKS, carrier: owner.and_then(of_owner) })
    }
}

/// An element of a doubly linked list.
struct Link {
    next: u64,
    prev: u64,
    carrier: Option<Carrier>,
}

impl Link {
    /// Swaps both directions, for walking backwards.
    fn reversed(self) -> Self {
        Link { next: self.prev, prev: self.next, carrier: self.carrier }
    }
}

impl Carriers {
    /// Walks a list forwards and, if that does not reach the end, backwards. If the two walks do not meet either, both are repeated from
    /// the current ends of the list, which `again` returns. Carriers that were in the list during any of these walks are found. `end` is
    /// the value of the pointers at both ends: 0, or the sentinel.
    fn follow(
        &mut self,
        ends: [u64; 2],
        again: &dyn Fn() -> Option<[u64; 2]>,
        end: u64,
        read: &dyn Fn(u64) -> Option<Link>,
    ) {
        let max = MAX_CARRIERS.saturating_sub(self.all.len());
        let mut known: HashSet<u64> = HashSet::new();
        for attempt in 0..MAX_ATTEMPTS {
            let now = if attempt == 0 { Some(ends) } else { again() };
            let Some([first, last]) = now else { break };
            let (forward, reaches_end) = walk(first, end, max, read);
            if reaches_end && known.is_empty() {
                self.all.extend(forward);
                return;
            }
            let (backward, reaches_begin) = match reaches_end {
                true => (Vec::new(), true),
                false => walk(last, end, max, &|address| read(address).map(Link::reversed)),
            };
            // If both walks meet, no carrier is missing.
            let seen: HashSet<u64> = forward.iter().map(|carrier| carrier.address).collect();
            let meets = backward.iter().any(|carrier| seen.contains(&carrier.address));
            let found = forward.into_iter().chain(backward);
            self.all.extend(found.filter(|carrier| known.insert(carrier.address)));
            if reaches_begin || meets {
                return;
            }
        }
        self.cut += 1;
    }
}

/// Walks a list as long as each link points back to the previous one. Returns the carriers passed, and whether the end was reached.
fn walk(first: u64, end: u64, max: usize, read: &dyn Fn(u64) -> Option<Link>) -> (Vec<Carrier>, bool) {
    let mut passed = Vec::new();
    let (mut address, mut before) = (first, end);
    // The limit also ends a cycle.
    for _ in 0..max {
        if address == end {
            return (passed, true);
        }
        let Some(link) = read(address).filter(|link| link.prev == before) else { break };
        passed.extend(link.carrier);
        (before, address) = (address, link.next);
    }
    (passed, false)
}

fn carrier(address: u64, header: &Header, set: Set, allocator: usize) -> Option<Carrier> {
    let size = header.size();
    address.checked_add(size)?;
    let is_in_right_list = (header.chdr & SBC != 0) == (set == Set::Sbcs);
    let is_carrier = is_in_right_list && size > CPOOL && header.chdr & 4 == 0;
    is_carrier.then_some(Carrier { address, size, is_mseg: header.chdr & MSEG != 0, set, allocator })
}

/// Searches for allocators, and remembers all results.
struct Search<'a> {
    image: &'a Image<'a>,
    emulator: &'a Emulator<'a>,
    /// Offset and name found at an address.
    known: HashMap<u64, Option<(usize, String)>>,
}

impl Search<'_> {
    /// Whether the structure at an address has the name of an allocator.
    fn has_name(&mut self, address: u64) -> bool {
        if let Some(known) = self.known.get(&address) {
            return known.is_some();
        }
        let mut bytes = [0; NAME_SEARCH_BYTES];
        let read = self.image.read_some(address, &mut bytes);
        // The structure begins with the queue of delayed deallocations, which is larger than a cache line.
        let named = (64..read.saturating_sub(7)).step_by(8).find_map(|offset| {
            let string = self.emulator.string(word_at(&bytes, offset)?)?;
            PREFIXES.contains(&string.as_str()).then(|| (offset, format!("{string}alloc")))
        });
        let is_named = named.is_some();
        self.known.insert(address, named);
        is_named
    }

    /// Returns the addresses of the allocators in an array of pointers.
    fn array_members(&mut self, address: u64) -> Vec<u64> {
        let mut found = Vec::new();
        for index in 0..MAX_ALLOCATORS as u64 {
            let element = address.saturating_add(index.saturating_mul(8));
            let pointer = self.image.word(element);
            let is_memory = |pointer: &u64| {
                pointer.is_multiple_of(8)
                    && (self.image.anonymous.find(*pointer).is_some() || self.emulator.is_data(*pointer))
            };
            match pointer.filter(is_memory) {
                Some(pointer) if self.has_name(pointer) => found.push(pointer),
                _ => break,
            }
        }
        found
    }
}

/// Finds the offset at which most instances have pointers to both ends of a list of multiblock carriers.
fn lists_at(image: &Image<'_>, named_at: usize, all: &[Allocator]) -> Option<u64> {
    let mut votes: HashMap<usize, usize> = HashMap::new();
    for allocator in all.iter().take(SAMPLED_ALLOCATORS) {
        let mut bytes = [0; LISTS_SEARCH_BYTES];
        let read = image.read_some(allocator.address, &mut bytes);
        for offset in (named_at + 8..read.saturating_sub(15)).step_by(8) {
            let ends = word_at(&bytes, offset).zip(word_at(&bytes, offset + 8));
            let Some((first, last)) = ends.filter(|(first, last)| *first != 0 && *last != 0) else {
                continue;
            };
            if image.anonymous.find(first).is_none() || image.anonymous.find(last).is_none() {
                continue;
            }
            let header = |address| {
                let header = Header::read(image, address);
                header.filter(|header| header.is_of(allocator.address) && header.chdr & SBC == 0)
            };
            if header(first).is_some_and(|header| header.prev == 0)
                && header(last).is_some_and(|header| header.next == 0)
            {
                *votes.entry(offset).or_default() += 1;
            }
        }
    }
    let (offset, _) = votes.into_iter().max_by_key(|(offset, votes)| (*votes, usize::MAX - offset))?;
    Some(offset as u64)
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use proptest::prelude::*;

    use super::*;

    /// A list of carriers that changes while it is read: the first carrier is removed, and a new one is appended.
    struct ChangingList {
        list: RefCell<Vec<u64>>,
        reads: Cell<usize>,
        /// Numbers of the reads at which the list changes.
        at: Vec<usize>,
    }

    impl ChangingList {
        fn link(&self, address: u64) -> Option<Link> {
            let read = self.reads.get();
            self.reads.set(read + 1);
            let mut list = self.list.borrow_mut();
            if self.at.contains(&read) {
                let newest = list.last().copied().unwrap_or(0);
                list.remove(0);
                list.push(newest + 8);
            }
            let place = list.iter().position(|known| *known == address)?;
            let neighbour =
                |place: Option<usize>| place.and_then(|place| list.get(place)).copied().unwrap_or(0);
            let carrier = Carrier { address, size: 64, is_mseg: true, set: Set::Sbcs, allocator: 0 };
            Some(Link {
                next: neighbour(Some(place + 1)),
                prev: neighbour(place.checked_sub(1)),
                carrier: Some(carrier),
            })
        }

        fn ends(&self) -> Option<[u64; 2]> {
            let list = self.list.borrow();
            Some([*list.first()?, *list.last()?])
        }
    }

    fn followed(length: u64, at: Vec<usize>) -> (Vec<u64>, Vec<u64>, usize) {
        let list = (1..=length).map(|number| number * 8).collect();
        let changing = ChangingList { list: RefCell::new(list), reads: Cell::new(0), at };
        let mut found = Carriers::default();
        let ends = changing.ends().unwrap_or_default();
        found.follow(ends, &|| changing.ends(), 0, &|address| changing.link(address));
        let addresses = found.all.iter().map(|carrier| carrier.address).collect();
        (addresses, changing.list.into_inner(), found.cut)
    }

    #[test]
    fn a_list_that_changes_during_the_walk_is_walked_again() {
        // The first carrier is removed before it is read. The backward walk fails, too, because a new carrier was appended.
        let (mut found, list, cut) = followed(4, vec![0, 1]);
        found.sort_unstable();
        assert_eq!((&found, cut), (&list, 0));
        // A list that changes all the time is truncated.
        let (found, _, cut) = followed(4, (0..1_000).collect());
        assert_eq!((found.len(), cut), (0, 1));
    }

    proptest! {
        #[test]
        fn carriers_that_stay_are_found_once_or_the_list_is_truncated(
            length in 1..40_u64,
            at in proptest::collection::vec(0..200_usize, 0..20),
        ) {
            let (mut found, list, cut) = followed(length, at);
            let stayed: Vec<u64> = list.iter().copied().filter(|address| *address <= length * 8).collect();
            prop_assert!(cut > 0 || stayed.iter().all(|address| found.contains(address)), "{found:?} {list:?}");
            let all = found.len();
            found.sort_unstable();
            found.dedup();
            prop_assert_eq!(found.len(), all);
        }
    }
}
