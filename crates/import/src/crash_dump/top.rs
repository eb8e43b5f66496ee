//! Selects the largest items in bounded memory.

/// The largest items, in descending order.
pub(super) struct Top<T> {
    capacity: usize,
    items: Vec<(i64, T)>,
}

impl<T> Top<T> {
    pub(super) fn new(capacity: usize) -> Self {
        Top { capacity, items: Vec::new() }
    }

    /// Adds an item if it is one of the largest. Items of size 0 are never added.
    pub(super) fn offer(&mut self, size: i64, make: impl FnOnce() -> T) {
        if size <= 0
            || (self.items.len() >= self.capacity
                && self.items.last().is_none_or(|(least, _)| *least >= size))
        {
            return;
        }
        let place = self.items.partition_point(|(other, _)| *other >= size);
        self.items.insert(place, (size, make()));
        self.items.truncate(self.capacity);
    }

    pub(super) fn into_items(self) -> impl Iterator<Item = T> {
        self.items.into_iter().map(|(_, item)| item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_are_kept() {
        let mut top = Top::new(3);
        for size in [5, 0, 9, 1, 7, 7, -1, 2] {
            top.offer(size, || size);
        }
        assert_eq!(top.into_items().collect::<Vec<_>>(), [9, 7, 7]);
    }
}
