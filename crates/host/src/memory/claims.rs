//! The owner of each address. An address can be claimed only once: the first claim wins.

use std::collections::BTreeMap;

use super::image::Range;

/// The purpose of memory, as an index.
pub(super) type Kind = usize;

/// Claimed ranges, by their start address.
#[derive(Debug, Default)]
pub(super) struct Claims(BTreeMap<u64, (u64, Kind)>);

impl Claims {
    /// Whether any part of the range is claimed.
    pub fn overlaps(&self, range: Range) -> bool {
        let before = self.0.range(..range.end).next_back();
        before.is_some_and(|(_, (end, _))| *end > range.start)
    }

    /// Claims the whole range, unless a part of it is claimed. Returns whether it did.
    pub fn claim_whole(&mut self, range: Range, kind: Kind) -> bool {
        let is_free = range.start < range.end && !self.overlaps(range);
        if is_free {
            self.0.insert(range.start, (range.end, kind));
        }
        is_free
    }

    /// Claims the unclaimed parts of the range. Returns their total size.
    pub fn claim_rest(&mut self, range: Range, kind: Kind) -> u64 {
        let free = self.free_parts(range);
        free.iter().for_each(|part| {
            self.0.insert(part.start, (part.end, kind));
        });
        free.iter().map(|part| part.size()).fold(0, u64::saturating_add)
    }

    /// Returns the unclaimed parts of a range.
    pub fn free_parts(&self, range: Range) -> Vec<Range> {
        let mut free = Vec::new();
        let before = self.0.range(..range.start).next_back().map_or(0, |(_, (end, _))| *end);
        let mut start = range.start.max(before);
        for (next, (end, _)) in self.0.range(range.start..range.end) {
            if start < *next {
                free.push(Range { start, end: *next });
            }
            start = start.max(*end);
        }
        if start < range.end {
            free.push(Range { start, end: range.end });
        }
        free
    }

    /// Iterates over all claims, ordered by address.
    pub fn iter(&self) -> impl Iterator<Item = (Range, Kind)> {
        self.0.iter().map(|(start, (end, kind))| (Range { start: *start, end: *end }, *kind))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn range(start: u64, end: u64) -> Range {
        Range { start, end }
    }

    #[test]
    fn the_first_claim_wins() {
        let mut claims = Claims::default();
        assert!(claims.claim_whole(range(10, 20), 0));
        assert!(
            !claims.claim_whole(range(19, 30), 1)
                && !claims.claim_whole(range(0, 11), 1)
                && !claims.claim_whole(range(12, 13), 1)
        );
        assert!(!claims.claim_whole(range(5, 40), 1) && !claims.claim_whole(range(30, 30), 1));
        assert!(claims.claim_whole(range(20, 25), 1));
        assert_eq!(claims.claim_rest(range(0, 30), 2), 15);
        assert_eq!(claims.free_parts(range(0, 40)), [range(30, 40)]);
        let all: Vec<_> = claims.iter().collect();
        assert_eq!(all, [(range(0, 10), 2), (range(10, 20), 0), (range(20, 25), 1), (range(25, 30), 2)]);
    }

    proptest! {
        #[test]
        fn no_address_has_two_owners(asked in proptest::collection::vec((0..200_u64, 0..60_u64, any::<bool>()), 0..40)) {
            let (mut claims, mut owned) = (Claims::default(), vec![false; 300]);
            for (kind, (start, size, is_whole)) in asked.into_iter().enumerate() {
                let asked = range(start, start + size);
                let part = &mut owned[start as usize..(start + size) as usize];
                let free = part.iter().filter(|owned| !**owned).count() as u64;
                let claimed = match is_whole {
                    true if claims.claim_whole(asked, kind) => size,
                    true => 0,
                    false => claims.claim_rest(asked, kind),
                };
                let is_all = !is_whole || (free == size && size > 0);
                prop_assert_eq!(claimed, if is_all { free } else { 0 });
                if is_all {
                    part.fill(true);
                }
            }
            let free: u64 = claims.free_parts(range(0, 300)).into_iter().map(Range::size).sum();
            prop_assert_eq!(free, owned.iter().filter(|owned| !**owned).count() as u64);
        }
    }
}
