//! Memory that the VM mapped for carriers but that is in no carrier: cached segments, the super carrier, and the literal area.
//!
//! The segment allocators (`ErtsMsegAllctr_t`, erts/emulator/sys/common/erl_mseg.c) are an array that the VM allocates with malloc at
//! start. A static pointer refers to this array. Each instance begins with its number. Cache nodes follow: {size, segment, next, prev},
//! linked in rings within the structure. Each cached segment is in a node. Some begin in the middle of a former carrier, because parts of a
//! cached segment can be reused.
//!
//! Static data describes a reserved area (`ErtsMemMapper`, erl_mmap.c): two functions, two flags, then the bounds of two parts that grow
//! towards each other. All of this is the same in OTP 23 to 29.

use super::emulator::Emulator;
use super::image::{Image, Range, word_at, words_of};

/// Number of bytes that are read of a segment allocator, which has about 2 KB.
const INSTANCE_BYTES: usize = 4096;
/// Maximum offset of its cache nodes, which follow a mutex.
const MAX_NODES_OFFSET: usize = 512;
/// Limits of the number of cache nodes. A cache has at most 30 segments, and a node per ring: 16 rings in OTP 23, 20 in later releases.
const MIN_NODES: usize = 4;
const MAX_NODES: usize = 64;
const NODE_BYTES: usize = 32;
/// Maximum number of instances: one per normal or dirty scheduler, and one more.
const MAX_INSTANCES: u64 = 2_049;
/// Instances are aligned to cache lines.
const LINE_BYTES: u64 = 64;
/// Maximum number of words between the bounds of an area and its size.
const MAX_SIZE_DISTANCE: usize = 64;
/// Maximum size of the descriptors of free parts, with which an area begins.
const MAX_DESCRIPTORS_BYTES: u64 = 256 << 20;

/// The segment allocators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Caches {
    first: u64,
    /// Distance between instances.
    stride: u64,
    count: u64,
    /// Offset of the nodes in each instance.
    nodes_at: usize,
}

impl Caches {
    /// Searches for the instances among the targets of static pointers.
    pub fn find(image: &Image<'_>, pointers: &[u64]) -> Option<Caches> {
        let candidates = pointers.iter().copied().filter(|pointer| pointer.is_multiple_of(LINE_BYTES));
        let (first, nodes_at) =
            candidates.filter_map(|pointer| Some((pointer, Self::nodes_at(image, pointer, 0)?))).next()?;
        let is_instance = |address: u64, number| Self::nodes_at(image, address, number) == Some(nodes_at);
        let stride = (LINE_BYTES..INSTANCE_BYTES as u64)
            .step_by(LINE_BYTES as usize)
            .find(|stride| is_instance(first.saturating_add(*stride), 1));
        let Some(stride) = stride else { return Some(Caches { first, stride: 0, count: 1, nodes_at }) };
        let count = (2..MAX_INSTANCES)
            .find(|number| !is_instance(first.saturating_add(number.saturating_mul(stride)), *number));
        Some(Caches { first, stride, count: count.unwrap_or(MAX_INSTANCES), nodes_at })
    }

    /// Finds the offset of the nodes in the instance with this number; `None` if there is no such instance at this address.
    fn nodes_at(image: &Image<'_>, address: u64, number: u64) -> Option<usize> {
        // The number, and whether the instance is initialized. In a running VM, all are, except those of unused schedulers.
        let head = image.word(address)?;
        if head & 0xffff_ffff != number || head >> 32 > 1 {
            return None;
        }
        let bytes = Self::bytes(image, address);
        let is_node = |offset| Node::at(&bytes, address, offset).is_some();
        (16..MAX_NODES_OFFSET)
            .step_by(8)
            .find(|offset| (0..MIN_NODES).all(|node| is_node(offset + node * NODE_BYTES)))
    }

    fn bytes(image: &Image<'_>, address: u64) -> Vec<u8> {
        let mut bytes = vec![0; INSTANCE_BYTES];
        let read = image.read_some(address, &mut bytes);
        bytes.truncate(read);
        bytes
    }

    /// Reads all cached segments; `None` if a cache is not readable.
    pub fn segments(&self, image: &Image<'_>) -> Option<Vec<Range>> {
        let mut segments = Vec::new();
        for instance in 0..self.count {
            let address = self.first.saturating_add(instance.saturating_mul(self.stride));
            let bytes = Self::bytes(image, address);
            if bytes.len() < self.nodes_at + MIN_NODES * NODE_BYTES {
                return None;
            }
            let offsets = (0..MAX_NODES).map(|node| self.nodes_at + node * NODE_BYTES);
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
    /// Reads a node, if its links lead to other nodes of the same allocator. A node that has never been used contains only zeros, and is
    /// not recognized.
    fn at(bytes: &[u8], address: u64, offset: usize) -> Option<Node> {
        let word = |index: usize| word_at(bytes, offset + index * 8);
        let (size, segment, next, prev) = (word(0)?, word(1)?, word(2)?, word(3)?);
        let is_near = |link: u64| {
            let distance = link.wrapping_sub(address);
            link.is_multiple_of(8) && distance < INSTANCE_BYTES as u64 && distance % 32 == offset as u64 % 32
        };
        if !is_near(next) || !is_near(prev) || (size == 0) != (segment == 0) {
            return None;
        }
        let segment = (size != 0).then_some(Range { start: segment, end: segment.checked_add(size)? });
        Some(Node { segment })
    }
}

/// Finds the VM's reserved address space: super carrier and literal area, in the order of the static data. Their bounds never change.
pub(super) fn areas(emulator: &Emulator<'_>, pieces: &[(u64, Vec<u8>)], page_bytes: u64) -> Vec<Range> {
    let all = pieces.iter().flat_map(|(_, bytes)| {
        words_of(bytes).filter_map(|(offset, word)| {
            emulator.is_code(word).then(|| area(emulator, bytes.get(offset..)?, page_bytes)).flatten()
        })
    });
    all.take(4).collect()
}

/// Reads a reserved area. Its words are reserve_physical, unreserve_physical, supercarrier and no_os_mmap, sua.top, sua.bot, and after many
/// others the total size.
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
    // The lower part has its own top and bottom, after a map of the upper part's free parts.
    let lower = (5..MAX_SIZE_DISTANCE).find_map(|index| {
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
    let size = (at + 2..at + MAX_SIZE_DISTANCE).filter_map(word).find(|size| {
        size.is_multiple_of(page_bytes)
            && (usable..usable.saturating_add(MAX_DESCRIPTORS_BYTES)).contains(size)
    });
    let start = size.and_then(|size| top.checked_sub(size)).unwrap_or(lowest);
    Some(Range { start, end: top })
}
