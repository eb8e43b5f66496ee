//! Where the VM's allocators are, and which carriers each of them knows.
//!
//! An allocator instance is an `Allctr_t` (erts/emulator/beam/erl_alloc_util.h), of the VM's static data or allocated by
//! malloc when it starts, and never moves. Static tables lead to all of them: `erts_allctrs` to those that there is one of,
//! and `erts_allctr_thr_spec` to arrays with one for each scheduler. No symbol is needed, because the form tells: at
//! some offset there is a pointer to a constant string of the emulator, `eheap_`, `binary_` …
//!
//! | in `Allctr_t` | OTP 23 | 25 | 27 |
//! |---|---|---|---|
//! | `name_prefix` | +120 | +120 | +120 |
//! | `mbc_list` (first, last), then `sbc_list`, `pooled_tree`, `dc_list`, `sentinel` | +344 | +336 | +336 |
//!
//! Neither offset is taken from this table: the first is the one at which the most have a name, the second the one at which
//! the most have the two ends of a list of carriers that know them. The order behind it is the same in all of them.
//!
//! Carriers begin with `Carrier_t`: size and kind, the next and the one before in the list, and their allocator. In the lists
//! of multiblock and single-block carriers are those in use. Abandoned ones are in a ring through `cpool`, with a
//! sentinel in the static data: one for all allocators in OTP 22 and 23, one for each kind of them else. `dc_list` has those
//! that wait for being given back. So all is found by the VM's own lists, at a cost that grows with the number of
//! carriers and not with their size, and what was a carrier once is not taken for one.

use std::collections::{HashMap, HashSet};

use super::emulator::Emulator;
use super::image::{Image, word_at};

/// Names of all allocators that use carriers. In OTP 29 and before there are no others.
const PREFIXES: [&str; 12] = [
    "temp_", "sl_", "std_", "ll_", "eheap_", "ets_", "fix_", "literal_", "binary_", "driver_", "exec_",
    "test_",
];
/// What of an `Allctr_t` is looked at for its name.
const NAME_WITHIN: usize = 256;
/// And for its lists.
const LISTS_WITHIN: usize = 1024;
/// Allocators at most: 10 of them, for each of 1,024 schedulers and as many dirty ones, and one more.
const MOST_ALLOCATORS: usize = 30_000;
/// Of so many it is found out where the lists are.
const SAMPLE: usize = 200;
/// Carriers at most: a terabyte in those of a megabyte.
const MOST_CARRIERS: usize = 1_000_000;

/// How often a list is followed that is being changed: where carriers come and go by the hundred in a second, one walk in some is torn.
const TRIES: usize = 5;

/// Bits of `chdr`; the next one is always 0.
const MSEG: u64 = 1;
const SBC: u64 = 2;
/// What sizes and pointers to allocators have beside flags.
const FLAGS: u64 = 7;
/// Marks in pointers of the ring of abandoned carriers.
const MARKS: u64 = 3;
/// Where in `Carrier_t` the data of abandoned carriers are, and where in those the link to the next one. Behind it are the one to
/// the one before, and the allocator that has made the carrier.
const CPOOL: u64 = 32;
const NEXT: u64 = 16;

/// One allocator instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Allocator {
    address: u64,
    /// `eheap_alloc`.
    pub name: String,
}

/// In which of an allocator's sets a carrier is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Set {
    Mbcs,
    Sbcs,
    Pool,
    /// Empty, and about to be given back.
    Leaving,
}

/// One carrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Carrier {
    pub address: u64,
    pub size: u64,
    /// Mapped by the VM itself; else it has come from malloc.
    pub is_mseg: bool,
    pub set: Set,
    /// Index of its allocator.
    pub allocator: usize,
}

/// What stands at the beginning of a carrier.
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

/// The allocators of a VM. They stay where they are for all of its life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Allocators {
    all: Vec<Allocator>,
    by_address: HashMap<u64, usize>,
    lists_at: u64,
}

/// All carriers that were found.
#[derive(Debug, Default)]
pub(super) struct Carriers {
    pub all: Vec<Carrier>,
    /// Lists whose end could not be reached: their links are swapped out, or were just being changed.
    pub cut: usize,
}

impl Allocators {
    /// Searches them from the emulator's static data on; `None` where there are none, or of an unknown form.
    pub fn find(image: &Image<'_>, emulator: &Emulator<'_>, pointers: &[u64]) -> Option<Allocators> {
        let mut search = Search { image, emulator, known: HashMap::new() };
        let mut found: HashSet<u64> = HashSet::new();
        for pointer in pointers {
            if search.names(*pointer) {
                found.insert(*pointer);
            }
            // Also of what seems to have a name: behind a short array there are allocators.
            found.extend(search.array(*pointer));
            if found.len() > MOST_ALLOCATORS {
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

    /// The name of a carrier's allocator.
    pub fn name(&self, carrier: &Carrier) -> &str {
        self.all.get(carrier.allocator).map_or("", |allocator| &allocator.name)
    }

    /// Follows all of their lists.
    pub fn carriers(&self, image: &Image<'_>, emulator: &Emulator<'_>) -> Carriers {
        let mut found = Carriers::default();
        let mut sentinels: HashSet<u64> = HashSet::new();
        for (at, allocator) in self.all.iter().enumerate() {
            // mbc_list, sbc_list, pooled_tree, dc_list, sentinel.
            let lists = || image.words_now(allocator.address.saturating_add(self.lists_at));
            let Some([mbcs, mbcs_end, sbcs, sbcs_end, _, leaving, leaving_end, sentinel]) = lists() else {
                found.cut += 1;
                continue;
            };
            let ends = [
                (Set::Mbcs, 0, [mbcs, mbcs_end]),
                (Set::Sbcs, 2, [sbcs, sbcs_end]),
                (Set::Leaving, 5, [leaving, leaving_end]),
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

    /// A carrier in a list of one of them.
    fn in_list(&self, image: &Image<'_>, at: usize, set: Set, address: u64) -> Option<Link> {
        let owner = self.all.get(at)?.address;
        let header = Header::read(image, address).filter(|header| header.is_of(owner))?;
        let carrier = carrier(address, &header, set, at)?;
        Some(Link { next: header.next, prev: header.prev, carrier: Some(carrier) })
    }

    /// A node in a ring of abandoned carriers. The VM puts some that are no carriers there when instrument is used.
    fn in_ring(&self, image: &Image<'_>, node: u64) -> Option<Link> {
        let [next, prev, origin] = image.words_now(node.checked_add(NEXT)?)?;
        let address = node.checked_sub(CPOOL)?;
        let owner = self.by_address.get(&(origin & !FLAGS));
        let of_owner = |at: &usize| carrier(address, &Header::read(image, address)?, Set::Pool, *at);
        Some(Link { next: next & !MARKS, prev: prev & !MARKS, carrier: owner.and_then(of_owner) })
    }
}

/// What stands at one place of a chain.
struct Link {
    next: u64,
    prev: u64,
    carrier: Option<Carrier>,
}

impl Link {
    /// The same for who comes from behind.
    fn turned(self) -> Self {
        Link { next: self.prev, prev: self.next, carrier: self.carrier }
    }
}

impl Carriers {
    /// Follows a chain from its first link on and, where that does not reach the end, from its last one back; and again where neither
    /// did, or the two did not meet, from the ends that it has by then. What was in it at any of these times has been found. Behind both
    /// ends stands 0, or the sentinel.
    fn follow(
        &mut self,
        ends: [u64; 2],
        again: &dyn Fn() -> Option<[u64; 2]>,
        end: u64,
        read: &dyn Fn(u64) -> Option<Link>,
    ) {
        let most = MOST_CARRIERS.saturating_sub(self.all.len());
        let mut known: HashSet<u64> = HashSet::new();
        for attempt in 0..TRIES {
            let now = if attempt == 0 { Some(ends) } else { again() };
            let Some([first, last]) = now else { break };
            let (forward, reaches_end) = walk(first, end, most, read);
            if reaches_end && known.is_empty() {
                self.all.extend(forward);
                return;
            }
            let (backward, reaches_begin) = match reaches_end {
                true => (Vec::new(), true),
                false => walk(last, end, most, &|address| read(address).map(Link::turned)),
            };
            // Where both meet, nothing is missing.
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

/// Goes on as long as each link agrees with the one before: what was passed, and whether the end was reached.
fn walk(first: u64, end: u64, most: usize, read: &dyn Fn(u64) -> Option<Link>) -> (Vec<Carrier>, bool) {
    let mut passed = Vec::new();
    let (mut address, mut before) = (first, end);
    // Links that go round would never end.
    for _ in 0..most {
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
    let is_of_its_set = (header.chdr & SBC != 0) == (set == Set::Sbcs);
    let is_one = is_of_its_set && size > CPOOL && header.chdr & 4 == 0;
    is_one.then_some(Carrier { address, size, is_mseg: header.chdr & MSEG != 0, set, allocator })
}

/// Looks for allocators, and remembers what was none.
struct Search<'a> {
    image: &'a Image<'a>,
    emulator: &'a Emulator<'a>,
    /// At which offset there is which name.
    known: HashMap<u64, Option<(usize, String)>>,
}

impl Search<'_> {
    /// True of what has an allocator's name.
    fn names(&mut self, address: u64) -> bool {
        if let Some(known) = self.known.get(&address) {
            return known.is_some();
        }
        let mut bytes = [0; NAME_WITHIN];
        let read = self.image.read_some(address, &mut bytes);
        // The queue of blocks to be freed stands first, and takes more than a line of the cache.
        let named = (64..read.saturating_sub(7)).step_by(8).find_map(|offset| {
            let string = self.emulator.string(word_at(&bytes, offset)?)?;
            PREFIXES.contains(&string.as_str()).then(|| (offset, format!("{string}alloc")))
        });
        let is_named = named.is_some();
        self.known.insert(address, named);
        is_named
    }

    /// The allocators of an array of pointers to such.
    fn array(&mut self, address: u64) -> Vec<u64> {
        let mut found = Vec::new();
        for index in 0..MOST_ALLOCATORS as u64 {
            let element = address.saturating_add(index.saturating_mul(8));
            let pointer = self.image.word(element);
            let is_memory = |pointer: &u64| {
                pointer.is_multiple_of(8)
                    && (self.image.anonymous.find(*pointer).is_some() || self.emulator.is_data(*pointer))
            };
            match pointer.filter(is_memory) {
                Some(pointer) if self.names(pointer) => found.push(pointer),
                _ => break,
            }
        }
        found
    }
}

/// At which offset the most have both ends of a list of multiblock carriers.
fn lists_at(image: &Image<'_>, named_at: usize, all: &[Allocator]) -> Option<u64> {
    let mut votes: HashMap<usize, usize> = HashMap::new();
    for allocator in all.iter().take(SAMPLE) {
        let mut bytes = [0; LISTS_WITHIN];
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

    /// A list of carriers, by their addresses, that others change while it is read: the oldest one leaves, a new one comes last.
    struct Changing {
        list: RefCell<Vec<u64>>,
        reads: Cell<usize>,
        /// At which reads that happens.
        at: Vec<usize>,
    }

    impl Changing {
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
        let changing = Changing { list: RefCell::new(list), reads: Cell::new(0), at };
        let mut found = Carriers::default();
        let ends = changing.ends().unwrap_or_default();
        found.follow(ends, &|| changing.ends(), 0, &|address| changing.link(address));
        let addresses = found.all.iter().map(|carrier| carrier.address).collect();
        (addresses, changing.list.into_inner(), found.cut)
    }

    #[test]
    fn a_list_that_changes_as_it_is_read_is_followed_again() {
        // The first one is gone when it is read, and so is the way back, since there is another one before the last by then.
        let (mut found, list, cut) = followed(4, vec![0, 1]);
        found.sort_unstable();
        assert_eq!((&found, cut), (&list, 0));
        // One that never stands still is cut; what was seen of it is kept.
        let (found, _, cut) = followed(4, (0..1_000).collect());
        assert_eq!((found.len(), cut), (0, 1));
    }

    proptest! {
        #[test]
        fn what_stays_in_a_list_is_found_once_or_the_list_is_told_as_cut(
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
