//! The largest of many, in bounded memory.

/// The largest by a number, the largest first.
pub(super) struct Top<T> {
    most: usize,
    held: Vec<(i64, T)>,
}

impl<T> Top<T> {
    pub(super) fn new(most: usize) -> Self {
        Top { most, held: Vec::new() }
    }

    /// Takes it if it is among the largest; one of nothing never is.
    pub(super) fn offer(&mut self, size: i64, make: impl FnOnce() -> T) {
        if size <= 0
            || (self.held.len() >= self.most && self.held.last().is_none_or(|(least, _)| *least >= size))
        {
            return;
        }
        let place = self.held.partition_point(|(other, _)| *other >= size);
        self.held.insert(place, (size, make()));
        self.held.truncate(self.most);
    }

    pub(super) fn into_items(self) -> impl Iterator<Item = T> {
        self.held.into_iter().map(|(_, item)| item)
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
