//! What the VM has mapped for carriers and is in none: cached segments, the super carrier, and the area for literals.
//!
//! The segment allocators (`ErtsMsegAllctr_t`, erts/emulator/sys/common/erl_mseg.c) are an array that malloc has given
//! when the VM started; a static pointer leads there. Each begins with its number and has, not far behind, cache nodes:
//! {size, segment, next, prev}, linked in rings within the structure. A node that has a segment is a cached one. So also those
//! are found that begin in the middle of what was a carrier, since a cached segment can be given out in part.
//!
//! An area that is kept (`ErtsMemMapper`, erl_mmap.c) is static: two functions, two flags, and then the bounds of two parts that
//! grow towards each other. All of this is the same in OTP 23 to 29.

use super::emulator::Emulator;
use super::image::{Image, Range, word_at, words_of};

/// What of a segment allocator is looked at; it has some 2 KB.
const MOST_BYTES: usize = 4096;
/// Its cache nodes begin within so many bytes, behind a mutex.
const NODES_WITHIN: usize = 512;
/// A cache holds 30 segments at most; the rings have a node each: 14 in OTP 23, 18 later, and two more.
const LEAST_NODES: usize = 4;
const MOST_NODES: usize = 64;
const NODE_BYTES: usize = 32;
/// One for each scheduler and one more; and those for dirty ones.
const MOST_INSTANCES: u64 = 2_049;
/// The VM aligns them to lines of the cache.
const LINE_BYTES: u64 = 64;
/// Behind the bounds of an area is its size, within so many words.
const SIZE_WITHIN: usize = 64;
/// An area begins with descriptors of its free parts.
const MOST_DESCRIPTORS: u64 = 256 << 20;

/// The segment allocators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Caches {
    first: u64,
    /// From one to the next.
    stride: u64,
    count: u64,
    /// Where the nodes of each begin.
    nodes_at: usize,
}

impl Caches {
    /// Searches them among what static pointers lead to.
    pub fn find(image: &Image<'_>, pointers: &[u64]) -> Option<Caches> {
        let candidates = pointers.iter().copied().filter(|pointer| pointer.is_multiple_of(LINE_BYTES));
        let (first, nodes_at) =
            candidates.filter_map(|pointer| Some((pointer, Self::nodes_at(image, pointer, 0)?))).next()?;
        let is_instance = |address: u64, number| Self::nodes_at(image, address, number) == Some(nodes_at);
        let stride = (LINE_BYTES..MOST_BYTES as u64)
            .step_by(LINE_BYTES as usize)
            .find(|stride| is_instance(first.saturating_add(*stride), 1));
        let Some(stride) = stride else { return Some(Caches { first, stride: 0, count: 1, nodes_at }) };
        let count = (2..MOST_INSTANCES)
            .find(|number| !is_instance(first.saturating_add(number.saturating_mul(stride)), *number));
        Some(Caches { first, stride, count: count.unwrap_or(MOST_INSTANCES), nodes_at })
    }

    /// Where an instance of this number has its nodes, if it is one.
    fn nodes_at(image: &Image<'_>, address: u64, number: u64) -> Option<usize> {
        // Its number, and whether it has been initialised, which all are once the VM runs but those of other schedulers.
        let head = image.word(address)?;
        if head & 0xffff_ffff != number || head >> 32 > 1 {
            return None;
        }
        let bytes = Self::bytes(image, address);
        let is_node = |offset| Node::at(&bytes, address, offset).is_some();
        (16..NODES_WITHIN)
            .step_by(8)
            .find(|offset| (0..LEAST_NODES).all(|node| is_node(offset + node * NODE_BYTES)))
    }

    fn bytes(image: &Image<'_>, address: u64) -> Vec<u8> {
        let mut bytes = vec![0; MOST_BYTES];
        let read = image.read_some(address, &mut bytes);
        bytes.truncate(read);
        bytes
    }

    /// All cached segments; `None` if a cache cannot be read.
    pub fn segments(&self, image: &Image<'_>) -> Option<Vec<Range>> {
        let mut segments = Vec::new();
        for instance in 0..self.count {
            let address = self.first.saturating_add(instance.saturating_mul(self.stride));
            let bytes = Self::bytes(image, address);
            if bytes.len() < self.nodes_at + LEAST_NODES * NODE_BYTES {
                return None;
            }
            let offsets = (0..MOST_NODES).map(|node| self.nodes_at + node * NODE_BYTES);
            let nodes = offsets.filter_map(|offset| Node::at(&bytes, address, offset));
            segments.extend(nodes.filter_map(|node| node.segment));
        }
        Some(segments)
    }
}

/// A node of a cache.
struct Node {
    segment: Option<Range>,
}

impl Node {
    /// Reads one, if its links lead to other nodes of the same allocator. Those that the cache does not use never were
    /// written, and are zero.
    fn at(bytes: &[u8], address: u64, offset: usize) -> Option<Node> {
        let word = |index: usize| word_at(bytes, offset + index * 8);
        let (size, segment, next, prev) = (word(0)?, word(1)?, word(2)?, word(3)?);
        let is_near = |link: u64| {
            let distance = link.wrapping_sub(address);
            link.is_multiple_of(8) && distance < MOST_BYTES as u64 && distance % 32 == offset as u64 % 32
        };
        if !is_near(next) || !is_near(prev) || (size == 0) != (segment == 0) {
            return None;
        }
        let segment = (size != 0).then_some(Range { start: segment, end: segment.checked_add(size)? });
        Some(Node { segment })
    }
}

/// The areas of address space that the VM keeps: the super carrier and that for literals, in the order of the static data.
/// Their bounds stay the same for all of its life.
pub(super) fn areas(emulator: &Emulator<'_>, pieces: &[(u64, Vec<u8>)], page_bytes: u64) -> Vec<Range> {
    let all = pieces.iter().flat_map(|(_, bytes)| {
        words_of(bytes).filter_map(|(offset, word)| {
            emulator.is_code(word).then(|| area(emulator, bytes.get(offset..)?, page_bytes)).flatten()
        })
    });
    all.take(4).collect()
}

/// reserve_physical, unreserve_physical, supercarrier and no_os_mmap, sua.top, sua.bot, and much later the size of all.
fn area(emulator: &Emulator<'_>, bytes: &[u8], page_bytes: u64) -> Option<Range> {
    let word = |index: usize| word_at(bytes, index * 8);
    let (flags, top, bottom) = (word(2)?, word(3)?, word(4)?);
    let is_area = flags & 0xffff_ffff == 1
        && flags >> 32 <= 1
        && emulator.is_code(word(1)?)
        && top.is_multiple_of(page_bytes)
        && bottom.is_multiple_of(page_bytes)
        && 0 < bottom
        && bottom <= top;
    if !is_area {
        return None;
    }
    // The lower part: its own top and bottom, behind a map of the upper one's free parts.
    let lower = (5..SIZE_WITHIN).find_map(|index| {
        let (top, bottom_of_all) = (word(index)?, word(index + 1)?);
        let is_lower = 0 < bottom_of_all
            && bottom_of_all <= top
            && top <= bottom
            && top.is_multiple_of(page_bytes)
            && bottom_of_all.is_multiple_of(page_bytes);
        is_lower.then_some((index, bottom_of_all))
    });
    let (at, lowest) = lower?;
    let usable = top - lowest;
    let size = (at + 2..at + SIZE_WITHIN).filter_map(word).find(|size| {
        size.is_multiple_of(page_bytes) && (usable..usable.saturating_add(MOST_DESCRIPTORS)).contains(size)
    });
    let start = size.and_then(|size| top.checked_sub(size)).unwrap_or(lowest);
    Some(Range { start, end: top })
}
