//! Who owns which addresses: each is given once, to whoever comes first.

use std::collections::BTreeMap;

use super::image::Range;

/// What stands in memory, as the index of its kind.
pub(super) type Kind = usize;

/// Ranges that have an owner, by their first address.
#[derive(Debug, Default)]
pub(super) struct Claims(BTreeMap<u64, (u64, Kind)>);

impl Claims {
    /// True if a part of it has an owner.
    pub fn overlaps(&self, range: Range) -> bool {
        let before = self.0.range(..range.end).next_back();
        before.is_some_and(|(_, (end, _))| *end > range.start)
    }

    /// Claims all of it, if nothing of it has an owner.
    pub fn whole(&mut self, range: Range, kind: Kind) -> bool {
        let is_free = range.start < range.end && !self.overlaps(range);
        if is_free {
            self.0.insert(range.start, (range.end, kind));
        }
        is_free
    }

    /// Claims what of it has no owner; how much that is.
    pub fn rest(&mut self, range: Range, kind: Kind) -> u64 {
        let free = self.free(range);
        free.iter().for_each(|part| {
            self.0.insert(part.start, (part.end, kind));
        });
        free.iter().map(|part| part.size()).fold(0, u64::saturating_add)
    }

    /// The parts of a range that have no owner.
    pub fn free(&self, range: Range) -> Vec<Range> {
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

    /// All, by address.
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
    fn whoever_comes_first_owns_it() {
        let mut claims = Claims::default();
        assert!(claims.whole(range(10, 20), 0));
        assert!(
            !claims.whole(range(19, 30), 1)
                && !claims.whole(range(0, 11), 1)
                && !claims.whole(range(12, 13), 1)
        );
        assert!(!claims.whole(range(5, 40), 1) && !claims.whole(range(30, 30), 1));
        assert!(claims.whole(range(20, 25), 1));
        assert_eq!(claims.rest(range(0, 30), 2), 15);
        assert_eq!(claims.free(range(0, 40)), [range(30, 40)]);
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
                    true if claims.whole(asked, kind) => size,
                    true => 0,
                    false => claims.rest(asked, kind),
                };
                let is_all = !is_whole || (free == size && size > 0);
                prop_assert_eq!(claimed, if is_all { free } else { 0 });
                if is_all {
                    part.fill(true);
                }
            }
            let free: u64 = claims.free(range(0, 300)).into_iter().map(Range::size).sum();
            prop_assert_eq!(free, owned.iter().filter(|owned| !**owned).count() as u64);
        }
    }
}
