//! Reads a process's memory without changing it. Only resident pages are read, because reading any other page would make it resident.

use std::fmt;

use crate::tree::ReadAt;

use super::meter::Meter;
use super::pages::{self, Pages};
use super::smaps::Mapping;

/// A range of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Range {
    pub start: u64,
    pub end: u64,
}

impl Range {
    pub fn contains(self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }

    pub fn size(self) -> u64 {
        self.end.saturating_sub(self.start)
    }
}

/// The address ranges of some mappings; adjacent ones are merged.
#[derive(Debug, Default)]
pub(super) struct Ranges(Vec<Range>);

impl Ranges {
    /// Creates the ranges of mappings, which must be sorted by address.
    pub fn of<'a>(mappings: impl Iterator<Item = &'a Mapping>) -> Self {
        let mut ranges: Vec<Range> = Vec::new();
        for mapping in mappings {
            match ranges.last_mut() {
                Some(last) if last.end == mapping.start => last.end = mapping.end,
                _ => ranges.push(Range { start: mapping.start, end: mapping.end }),
            }
        }
        Ranges(ranges)
    }

    /// Returns the range that contains an address.
    pub fn find(&self, address: u64) -> Option<Range> {
        let next = self.0.partition_point(|range| range.end <= address);
        self.0.get(next).copied().filter(|range| range.contains(address))
    }

    /// Whether a range is not empty, and is within one of these ranges.
    pub fn cover(&self, start: u64, end: u64) -> bool {
        start < end && self.find(start).is_some_and(|range| end <= range.end)
    }

    pub fn iter(&self) -> impl Iterator<Item = Range> {
        self.0.iter().copied()
    }
}

/// Access to the memory of a process.
pub(super) struct Image<'a> {
    file: &'a dyn ReadAt,
    pagemap: &'a dyn ReadAt,
    /// Pages that were resident when the pagemap was read.
    pub pages: &'a Pages,
    /// Accessible anonymous memory.
    pub anonymous: &'a Ranges,
    pub meter: &'a Meter<'a>,
}

impl fmt::Debug for Image<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Image").field("file", &self.file).finish_non_exhaustive()
    }
}

impl<'a> Image<'a> {
    /// Creates an image. `file` and `pagemap` provide the current state, `pages` an earlier one.
    pub fn new(
        [file, pagemap]: [&'a dyn ReadAt; 2],
        pages: &'a Pages,
        anonymous: &'a Ranges,
        meter: &'a Meter<'a>,
    ) -> Self {
        Image { file, pagemap, pages, anonymous, meter }
    }

    /// Fills the buffer with the memory at an address. False if a part of it is not resident, or the budget is used up.
    pub fn read(&self, address: u64, into: &mut [u8]) -> bool {
        let end = address.checked_add(into.len() as u64);
        end.is_some_and(|end| end <= self.pages.present_until(address)) && self.fill(address, into)
    }

    /// Like [`Image::read`], including memory that has become resident since the pagemap was read.
    fn read_now(&self, address: u64, into: &mut [u8]) -> bool {
        let Some(end) = address.checked_add(into.len() as u64) else { return false };
        if end <= self.pages.present_until(address) {
            return self.fill(address, into);
        }
        let mut page = self.pages.floor(address);
        while page < end {
            if !self.meter.take() || !pages::is_present_now(self.pagemap, self.pages.page_bytes(), page) {
                return false;
            }
            page = page.saturating_add(self.pages.page_bytes());
        }
        self.fill(address, into)
    }

    fn fill(&self, address: u64, into: &mut [u8]) -> bool {
        if !self.meter.take() {
            return false;
        }
        let mut filled = 0;
        while let Some(rest) = into.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.file.read_at(address.saturating_add(filled as u64), rest) {
                Ok(read) if read > 0 => filled += read,
                // The memory has been unmapped, or the process has ended.
                _ => return false,
            }
        }
        true
    }

    /// Fills the buffer with the resident part of the memory at an address. Returns the number of bytes.
    pub fn read_some(&self, address: u64, into: &mut [u8]) -> usize {
        let resident = self.pages.present_until(address).saturating_sub(address);
        let length = usize::try_from(resident).unwrap_or(usize::MAX).min(into.len());
        let is_read = into.get_mut(..length).is_some_and(|into| !into.is_empty() && self.read(address, into));
        if is_read { length } else { 0 }
    }

    /// Reads the words at an address.
    pub fn words<const N: usize>(&self, address: u64) -> Option<[u64; N]> {
        let mut bytes = [[0_u8; 8]; N];
        self.read(address, bytes.as_flattened_mut()).then(|| bytes.map(u64::from_le_bytes))
    }

    /// Like [`Image::words`], including memory that has become resident since the pagemap was read.
    pub fn words_now<const N: usize>(&self, address: u64) -> Option<[u64; N]> {
        let mut bytes = [[0_u8; 8]; N];
        self.read_now(address, bytes.as_flattened_mut()).then(|| bytes.map(u64::from_le_bytes))
    }

    /// Reads the word at an address.
    pub fn word(&self, address: u64) -> Option<u64> {
        self.words::<1>(address).map(|[word]| word)
    }
}

/// Returns the word at an offset.
pub(super) fn word_at(bytes: &[u8], offset: usize) -> Option<u64> {
    let bytes = bytes.get(offset..offset.checked_add(8)?)?;
    bytes.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

/// Iterates over all words, with their offsets.
pub(super) fn words_of(bytes: &[u8]) -> impl Iterator<Item = (usize, u64)> {
    let words = bytes.as_chunks::<8>().0.iter();
    words.enumerate().map(|(index, word)| (index * 8, u64::from_le_bytes(*word)))
}
