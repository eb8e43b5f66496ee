//! Memory of glibc's malloc: the main arena (`[heap]`), further arenas, and large chunks that are mapped individually.
//!
//! Sources: malloc/malloc.c and malloc/arena.c of glibc 2.31, 2.36 and 2.41, and running VMs with these versions and 2.43.
//!
//! - A chunk begins with 16 bytes: the size of the previous chunk, then its own size and three flags. The user's memory follows.
//!   Flag 1 means that the previous chunk is in use, flag 2 that the chunk is mapped.
//! - A mapped chunk begins at a page boundary. For a larger alignment, the header is before the aligned address, and contains the distance
//!   from the page boundary instead of the previous size. The chunk extends to the end of its last page, or 16 bytes less in glibc 2.43.
//! - An arena's heaps begin at multiples of 64 MiB: {arena, previous heap, size, accessible size, …}.
//!
//! Free small chunks in thread caches and fast bins have the flags of chunks in use, and are counted as such.

use super::claims::{Claims, Kind};
use super::image::{Image, Range, word_at};

/// Alignment and maximum size of heaps.
const HEAP_MAX: u64 = 64 << 20;
/// Size of a chunk's header.
const HEADER: u64 = 16;
/// Size of the smallest chunk.
const MIN_CHUNK: u64 = 32;
const FLAGS: u64 = 7;
const PREV_IN_USE: u64 = 1;
const MAPPED: u64 = 2;
/// Offsets of the first chunk in an arena's first heap, after the heap's header and the arena: 2,200 bytes, more in some versions.
const ARENA_BYTES: std::ops::Range<u64> = 0x800..0xa80;
/// Offsets of the first chunk in further heaps, after the heap's header.
const HEAP_INFO_BYTES: std::ops::Range<u64> = 0x20..0x60;
/// Number of bytes that are read at once to follow headers.
const WINDOW_BYTES: usize = 16 * 1024;
/// Maximum number of pages whose start is examined for a mapped chunk.
const MAX_PROBES: u32 = 20_000;

/// Finds the heaps of all arenas except the main arena.
pub(super) fn heaps(image: &Image<'_>) -> Vec<Range> {
    let mut heaps = Vec::new();
    for range in image.anonymous.iter() {
        let mut start = range.start.next_multiple_of(HEAP_MAX);
        while start < range.end {
            if let Some(size) = heap_size(image, start) {
                heaps.push(Range { start, end: start.saturating_add(size).min(range.end) });
            }
            let Some(next) = start.checked_add(HEAP_MAX) else { break };
            start = next;
        }
    }
    heaps
}

/// Reads the accessible size of a heap; `None` if there is no heap at this address.
fn heap_size(image: &Image<'_>, start: u64) -> Option<u64> {
    let [arena, before, size, accessible] = image.words(start)?;
    let page_bytes = image.pages.page_bytes();
    let is_heap_start =
        |address: u64| address.is_multiple_of(HEAP_MAX) && image.anonymous.find(address).is_some();
    let within_first_page =
        |heap: u64| (heap.saturating_add(0x20)..heap.saturating_add(page_bytes)).contains(&arena);
    let belongs = match before {
        0 => within_first_page(start),
        before => is_heap_start(before) && image.anonymous.find(arena).is_some(),
    };
    let is_one = belongs
        && size > 0
        && size <= accessible
        && accessible <= HEAP_MAX
        && size.is_multiple_of(page_bytes)
        && accessible.is_multiple_of(page_bytes);
    is_one.then_some(accessible)
}

/// Finds the mapped malloc chunk that contains a carrier.
pub(super) fn chunk_around(image: &Image<'_>, address: u64) -> Option<Range> {
    let [lead, field] = image.words(address.checked_sub(HEADER)?)?;
    let chunk = address.checked_sub(HEADER)?;
    let range = Range { start: chunk.checked_sub(lead & !FLAGS)?, end: mapped_end(image, chunk, field)? };
    let is_whole = range.start.is_multiple_of(image.pages.page_bytes());
    (is_whole && image.anonymous.cover(range.start, range.end)).then_some(range)
}

/// Calculates the end of a mapped chunk; `None` if it is not a mapped chunk.
fn mapped_end(image: &Image<'_>, chunk: u64, field: u64) -> Option<u64> {
    // The third flag, for chunks of other arenas, must not be set either.
    let end = chunk.checked_add(field & !FLAGS).filter(|_| field & FLAGS == MAPPED)?;
    let is_whole = |end: &u64| end.is_multiple_of(image.pages.page_bytes());
    [end, end.saturating_add(HEADER)].into_iter().find(is_whole)
}

/// Claims mapped chunks in unclaimed memory. Returns their number and total size.
pub(super) fn mapped(image: &Image<'_>, claims: &mut Claims, kind: Kind) -> (u64, u64) {
    let (mut count, mut bytes, mut probes) = (0, 0_u64, 0);
    for range in image.anonymous.iter() {
        for free in claims.free_parts(range) {
            let mut at = free.start;
            while let Some(page) = image.pages.next_present(at, free.end) {
                probes += 1;
                if probes > MAX_PROBES {
                    return (count, bytes);
                }
                match mapped_chunk(image, page, free.end) {
                    Some(chunk) if claims.claim_whole(chunk, kind) => {
                        count += 1;
                        bytes = bytes.saturating_add(chunk.size());
                        at = chunk.end;
                    }
                    _ => at = page.saturating_add(1),
                }
            }
        }
    }
    (count, bytes)
}

fn mapped_chunk(image: &Image<'_>, page: u64, end: u64) -> Option<Range> {
    let [before, field] = image.words(page)?;
    let range = Range { start: page, end: mapped_end(image, page, field)? };
    (before & !FLAGS == 0 && page < range.end && range.end <= end).then_some(range)
}

/// Returns the number of bytes in use in the main arena, without carriers; `None` if its chunks cannot be followed to the end.
pub(super) fn heap_in_use(image: &Image<'_>, heap: Range, is_carrier: &dyn Fn(u64) -> bool) -> Option<u64> {
    // Without address space layout randomization, the heap begins after the static data, in the middle of a page.
    let begins = (heap.start..heap.start.saturating_add(image.pages.page_bytes())).step_by(HEADER as usize);
    in_use_from(image, heap, begins, is_carrier)
}

/// Like [`heap_in_use`], for a heap of another arena.
pub(super) fn arena_in_use(image: &Image<'_>, heap: Range, is_carrier: &dyn Fn(u64) -> bool) -> Option<u64> {
    let [_, before, size] = image.words(heap.start)?;
    let offsets = if before == 0 { ARENA_BYTES } else { HEAP_INFO_BYTES };
    let begins = offsets.step_by(HEADER as usize).map(|offset| heap.start.saturating_add(offset));
    let used = Range { start: heap.start, end: heap.start.checked_add(size)?.min(heap.end) };
    in_use_from(image, used, begins, is_carrier)
}

/// Tries several addresses for the first chunk, and returns the number of bytes in use.
fn in_use_from(
    image: &Image<'_>,
    heap: Range,
    mut begins: impl Iterator<Item = u64>,
    is_carrier: &dyn Fn(u64) -> bool,
) -> Option<u64> {
    let mut window = Window { image, start: 0, bytes: Vec::new() };
    begins.find_map(|begin| {
        let first = window.word(begin.checked_add(8)?)?;
        (first & PREV_IN_USE != 0).then(|| in_use(&mut window, heap, begin, is_carrier)).flatten()
    })
}

/// Sums the chunks in use, up to the last chunk: the top chunk, or the fencepost of an older heap.
fn in_use(window: &mut Window<'_>, heap: Range, begin: u64, is_carrier: &dyn Fn(u64) -> bool) -> Option<u64> {
    let (mut at, mut sum) = (begin, 0_u64);
    let mut size = window.word(at.checked_add(8)?)? & !FLAGS;
    loop {
        let next = at.checked_add(size)?;
        let is_plausible = size >= MIN_CHUNK && size.is_multiple_of(HEADER) && next <= heap.end;
        if !is_plausible {
            return None;
        }
        if next == heap.end {
            return Some(sum);
        }
        let field = window.word(next.checked_add(8)?)?;
        if field & PREV_IN_USE != 0 && !is_carrier(at.saturating_add(HEADER)) {
            sum = sum.saturating_add(size);
        }
        let next_size = field & !FLAGS;
        // Two fencepost chunks end a heap that was replaced by a newer one.
        if next_size <= HEADER && next.saturating_add(MIN_CHUNK) >= heap.end {
            return Some(sum);
        }
        (at, size) = (next, next_size);
    }
}

/// A buffered part of memory, so that adjacent headers are read at once.
struct Window<'a> {
    image: &'a Image<'a>,
    start: u64,
    bytes: Vec<u8>,
}

impl Window<'_> {
    fn word(&mut self, address: u64) -> Option<u64> {
        let known =
            |window: &Self| word_at(&window.bytes, usize::try_from(address.checked_sub(window.start)?).ok()?);
        if let Some(word) = known(self) {
            return Some(word);
        }
        self.start = self.image.pages.floor(address);
        self.bytes.resize(WINDOW_BYTES, 0);
        let read = self.image.read_some(self.start, &mut self.bytes);
        self.bytes.truncate(read);
        known(self)
    }
}
