//! `/proc/PID/pagemap`: which pages of a process are resident, and which are swapped out.
//!
//! The file has eight bytes per page (Documentation/admin-guide/mm/pagemap.rst). The bits used here are visible to every user who is
//! allowed to trace the process, even without the right to see physical addresses.

use crate::error::HostError;
use crate::tree::ReadAt;

use super::meter::Meter;
use super::smaps::Mapping;

const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
/// The page belongs to a file, or to shared memory.
const OF_FILE: u64 = 1 << 61;
/// The page is a guard page, as at the end of thread stacks (reported since Linux 6.15).
const GUARD: u64 = 1 << 58;
/// No other process has mapped the page.
const EXCLUSIVE: u64 = 1 << 56;

/// Number of bytes of the file that are read at once: for 128 MiB of memory in 4 KiB pages.
const STEP: usize = 256 * 1024;
/// Mappings up to this size are read completely.
const SMALL: u64 = 1 << 30;
/// Maximum number of runs, which need 64 MB.
const MAX_RUNS: usize = 4_000_000;

/// State of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Present,
    Swapped,
    /// Neither resident nor swapped out: reading the page would make it resident.
    Absent,
}

/// Adjacent pages with the same state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    start: u64,
    pages: u32,
    is_present: bool,
}

/// Resident and swapped-out memory, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Amount {
    /// Resident.
    pub resident: u64,
    /// Swapped out.
    pub swapped: u64,
}

/// The present and swapped pages of a process, by address.
#[derive(Debug)]
pub struct Pages {
    page_bytes: u64,
    runs: Vec<Run>,
}

impl Pages {
    /// Creates an empty list of pages.
    pub fn new(page_bytes: u64) -> Self {
        Pages { page_bytes: page_bytes.next_power_of_two().max(4096), runs: Vec::new() }
    }

    /// Returns the page size.
    pub fn page_bytes(&self) -> u64 {
        self.page_bytes
    }

    /// Returns the start of the page that contains an address.
    pub fn floor(&self, address: u64) -> u64 {
        address & !(self.page_bytes - 1)
    }

    /// Returns the first page boundary at or after an address.
    pub fn ceil(&self, address: u64) -> u64 {
        self.floor(address.saturating_add(self.page_bytes - 1))
    }

    /// Adds entries of the file for the pages of a mapping from `start` on. Mappings must be added in the order of their addresses. Returns
    /// false if there are too many runs.
    ///
    /// The kernel maps its zero page for memory that was read but never written. That page is present, but must not be counted; it is not
    /// exclusive. Pages shared with a forked process are not exclusive either, but must be counted; smaps shows whether there are any.
    /// Markers, such as those of guard pages, have the flag of swapped pages, but smaps shows no swapped memory for them.
    pub fn add(&mut self, mapping: &Mapping, start: u64, entries: &[u8]) -> bool {
        let (has_shared, has_swapped) = (mapping.shared_pages > 0, mapping.swapped > 0);
        let mut page = start;
        for entry in entries.as_chunks::<8>().0 {
            let entry = u64::from_ne_bytes(*entry);
            let is_zero_page = entry & (OF_FILE | EXCLUSIVE) == 0 && !has_shared;
            let state = match (entry & PRESENT != 0, entry & SWAPPED != 0) {
                (true, _) if is_zero_page => State::Absent,
                (true, _) => State::Present,
                (_, true) if has_swapped && entry & GUARD == 0 => State::Swapped,
                _ => State::Absent,
            };
            if state != State::Absent && !self.push(page, state == State::Present) {
                return false;
            }
            page = page.saturating_add(self.page_bytes);
        }
        true
    }

    fn push(&mut self, page: u64, is_present: bool) -> bool {
        let page_bytes = self.page_bytes;
        if let Some(last) = self.runs.last_mut()
            && last.is_present == is_present
            && last.start.saturating_add(u64::from(last.pages).saturating_mul(page_bytes)) == page
            && let Some(pages) = last.pages.checked_add(1)
        {
            last.pages = pages;
            return true;
        }
        if self.runs.len() == MAX_RUNS {
            return false;
        }
        self.runs.push(Run { start: page, pages: 1, is_present });
        true
    }

    fn end(&self, run: &Run) -> u64 {
        run.start.saturating_add(u64::from(run.pages).saturating_mul(self.page_bytes))
    }

    /// Iterates over the runs, from the first one that ends after an address.
    fn from(&self, address: u64) -> impl Iterator<Item = (u64, u64, bool)> {
        let first = self.runs.partition_point(|run| self.end(run) <= address);
        self.runs[first..].iter().map(|run| (run.start, self.end(run), run.is_present))
    }

    /// Returns the end of the adjacent resident pages from an address on; the address itself if its page is not resident.
    pub fn present_until(&self, address: u64) -> u64 {
        let mut until = address;
        for (start, end, is_present) in self.from(address) {
            if start > until || !is_present {
                break;
            }
            until = end;
        }
        until
    }

    /// Returns the first resident page that begins at or after an address, but before `end`.
    pub fn next_present(&self, address: u64, end: u64) -> Option<u64> {
        let address = self.ceil(address);
        let (start, ..) = self.from(address).find(|(.., is_present)| *is_present)?;
        Some(start.max(address)).filter(|page| *page < end)
    }

    /// Returns resident and swapped-out memory of the pages that begin within a range.
    pub fn amount(&self, start: u64, end: u64) -> Amount {
        let (start, end) = (self.ceil(start), self.ceil(end));
        let mut amount = Amount::default();
        for (run_start, run_end, is_present) in self.from(start) {
            if run_start >= end {
                break;
            }
            let bytes = run_end.min(end).saturating_sub(run_start.max(start));
            let sum = if is_present { &mut amount.resident } else { &mut amount.swapped };
            *sum = sum.saturating_add(bytes);
        }
        amount
    }
}

/// Reads the pages of a mapping.
pub(super) fn read(
    file: &dyn ReadAt,
    path: &str,
    mapping: &Mapping,
    meter: &Meter<'_>,
    buffer: &mut Vec<u8>,
    pages: &mut Pages,
) -> Result<(), HostError> {
    buffer.resize(STEP, 0);
    let of_page = |address: u64| address / pages.page_bytes * 8;
    let (mut offset, end) = (of_page(mapping.start), of_page(mapping.end));
    let mut found = 0_u64;
    let all = mapping.resident.saturating_add(mapping.swapped);
    // Reserved address space can have terabytes, so the search ends when all pages that smaps counted were found.
    while offset < end && (found < all || mapping.size() <= SMALL) {
        if !meter.take() {
            return Err(meter.error(path));
        }
        let want = usize::try_from(end - offset).unwrap_or(STEP).min(STEP);
        let into = buffer.get_mut(..want).unwrap_or_default();
        let read = file.read_at(offset, into).map_err(|error| HostError::from_io(path, error))? / 8 * 8;
        if read == 0 {
            break;
        }
        let start = offset / 8 * pages.page_bytes;
        if !pages.add(mapping, start, into.get(..read).unwrap_or_default()) {
            return Err(HostError::TooLarge { path: path.to_owned(), max: MAX_RUNS });
        }
        offset = offset.saturating_add(read as u64);
        let Amount { resident, swapped } = pages.amount(start, offset / 8 * pages.page_bytes);
        found = found.saturating_add(resident).saturating_add(swapped);
    }
    Ok(())
}

/// Whether a page is resident now.
pub(super) fn is_present_now(file: &dyn ReadAt, page_bytes: u64, page: u64) -> bool {
    let mut entry = [0_u8; 8];
    let read = file.read_at(page / page_bytes * 8, &mut entry);
    read.is_ok_and(|read| read == entry.len()) && u64::from_ne_bytes(entry) & PRESENT != 0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BASE: u64 = 0x1000_0000;
    const ALONE: u64 = PRESENT | EXCLUSIVE;

    fn mapping(shared_pages: u64, swapped: u64) -> Mapping {
        Mapping { shared_pages, swapped, ..Mapping::default() }
    }

    fn pages(mapping: &Mapping, entries: &[u64]) -> Pages {
        let mut pages = Pages::new(4096);
        let bytes: Vec<u8> = entries.iter().flat_map(|entry| entry.to_ne_bytes()).collect();
        assert!(pages.add(mapping, BASE, &bytes));
        pages
    }

    #[test]
    fn pages_are_counted_if_smaps_counts_them() {
        let check = |mapping: Mapping, entry: u64, resident: u64, swapped: u64| {
            let amount = pages(&mapping, &[entry]).amount(BASE, BASE + 4096);
            assert_eq!(amount, Amount { resident, swapped }, "{entry:#x}");
        };
        check(mapping(0, 0), ALONE, 4096, 0);
        check(mapping(0, 0), PRESENT | OF_FILE, 4096, 0);
        // The zero page. If the mapping has shared pages, it may be a page that is shared with a child.
        check(mapping(0, 0), PRESENT, 0, 0);
        check(mapping(4096, 0), PRESENT, 4096, 0);
        check(mapping(0, 4096), SWAPPED, 0, 4096);
        // Guard pages in older and newer kernels.
        check(mapping(0, 0), SWAPPED, 0, 0);
        check(mapping(0, 4096), SWAPPED | GUARD, 0, 0);
        check(mapping(0, 0), 0, 0, 0);
    }

    #[test]
    fn runs_are_found_by_address() {
        let pages = pages(&mapping(0, 4096), &[0, ALONE, ALONE, SWAPPED, ALONE, 0, ALONE]);
        let page = |index: u64| BASE + index * 4096;
        assert_eq!(pages.present_until(page(0)), page(0));
        assert_eq!(pages.present_until(page(1) + 8), page(3));
        assert_eq!(pages.present_until(page(3)), page(3));
        assert_eq!(pages.present_until(page(9)), page(9));
        let absent: Vec<u64> = (0..8)
            .filter(|index| pages.amount(page(*index), page(*index) + 1) == Amount::default())
            .collect();
        assert_eq!(absent, [0, 5, 7]);
        assert_eq!(pages.next_present(BASE, page(7)), Some(page(1)));
        assert_eq!(pages.next_present(page(2) + 1, page(7)), Some(page(4)));
        assert_eq!(pages.next_present(page(5), page(6)), None);
        assert_eq!(pages.next_present(page(5), page(7)), Some(page(6)));
        // A page belongs to the range in which it begins.
        let amount = |start, end| pages.amount(start, end).resident;
        assert_eq!(amount(page(1), page(1) + 1), 4096);
        assert_eq!(amount(page(1) + 1, page(2)), 0);
        assert_eq!(amount(0, u64::MAX), 4 * 4096);
    }

    proptest! {
        #[test]
        fn amounts_of_parts_add_up(
            kinds in proptest::collection::vec(0..3_usize, 1..80),
            cuts in proptest::collection::vec(0..400_000_u64, 0..8),
        ) {
            let entries: Vec<u64> = kinds.iter().map(|kind| [0, ALONE, SWAPPED][*kind]).collect();
            let pages = pages(&mapping(0, 4096), &entries);
            let all = pages.amount(BASE, BASE + 400_000);
            prop_assert_eq!(all.resident, 4096 * kinds.iter().filter(|kind| **kind == 1).count() as u64);
            let mut cuts: Vec<u64> = cuts.into_iter().map(|cut| BASE + cut).chain([BASE, BASE + 400_000]).collect();
            cuts.sort_unstable();
            let parts = cuts.windows(2).map(|pair| pages.amount(pair[0], pair[1]));
            let sum = parts.fold(Amount::default(), |sum, part| Amount {
                resident: sum.resident + part.resident,
                swapped: sum.swapped + part.swapped,
            });
            prop_assert_eq!(sum, all);
        }
    }
}
