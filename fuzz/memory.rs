//! The memory of a process, whose content is untrusted.

use std::io;

use beamtune_host::HostError;
use beamtune_host::memory::pages::{Amount, Pages};
use beamtune_host::memory::smaps::{Mapping, Parser};
use beamtune_host::memory::{Depth, MemoryMap, MemoryReader};
use beamtune_host::tree::ReadAt;

use super::sample::{Steady, SyntheticHost};

const PAGE: u64 = 4096;
/// Never used up, because the clock does not advance.
const BUDGET_NS: i64 = 1_000_000_000;

/// Process 7: its files, and its memory as `=== mem ADDRESS` (hexadecimal) followed by the bytes from there on. Pages with
/// such bytes are resident.
pub fn memory(bytes: &[u8]) {
    let tree = SyntheticHost::read(bytes);
    if let Ok(text) = tree.get("/proc/7/smaps") {
        smaps(text);
    }
    entries(bytes);
    let mut reader = MemoryReader::default();
    // The first read searches all addresses, later ones use them.
    for _ in 0..3 {
        let threads = [(7, "other"), (8, "scheduler"), (9, "poll")];
        if let Ok(map) = reader.read(&tree, 7, threads.into_iter(), Depth::Contents, &Steady, BUDGET_NS) {
            assert_counted_once(&map, Memory::of(&tree).pages.len() as u64 * PAGE);
        }
    }
}

/// No page that is read is counted twice; for all others the kernel's numbers are used.
fn assert_counted_once(map: &MemoryMap, in_memory: u64) {
    let Some(Ok(contents)) = &map.contents else { return };
    let all = contents.values().map(|sum| sum.resident).fold(0, u64::saturating_add);
    let mapped = map.mappings.values().map(|sum| sum.resident).fold(0, u64::saturating_add);
    assert!(all <= in_memory.saturating_add(mapped), "{all} of {in_memory} and {mapped}");
    for (entity, sum) in contents {
        assert!(sum.in_use.is_none_or(|in_use| in_use <= sum.size), "{entity}: {sum:?}");
    }
}

/// The result does not depend on how the text is split, and mappings do not overlap.
fn smaps(text: &[u8]) {
    let parse = |size: usize| {
        let mut parser = Parser::default();
        let fed = text.chunks(size).try_for_each(|piece| parser.feed(piece));
        fed.map(|()| parser.finish()).ok()
    };
    let whole = parse(text.len().max(1));
    assert_eq!(parse(7), whole);
    let mappings = whole.unwrap_or_default();
    assert!(mappings.windows(2).all(|pair| pair[0].end <= pair[1].start));
}

/// Arbitrary entries of a pagemap; each is counted once.
fn entries(bytes: &[u8]) {
    let mapping = Mapping { swapped: PAGE, ..Mapping::default() };
    let mut pages = Pages::new(PAGE);
    pages.add(&mapping, PAGE, bytes);
    let Amount { resident, swapped } = pages.amount(0, u64::MAX);
    assert!(resident + swapped <= bytes.len() as u64 / 8 * PAGE);
    let until = pages.present_until(PAGE);
    assert!(until >= PAGE && pages.next_present(until, u64::MAX).is_none_or(|next| next > until));
}

/// The resident pages, by address.
#[derive(Debug)]
pub(super) struct Memory {
    pages: std::collections::BTreeMap<u64, Vec<u8>>,
}

impl Memory {
    pub(super) fn of(tree: &SyntheticHost) -> Memory {
        let mut pages = std::collections::BTreeMap::new();
        for (path, content) in tree.iter() {
            let Some(address) = path.strip_prefix("mem ") else { continue };
            let Ok(address) = u64::from_str_radix(address, 16) else { continue };
            // The last byte is the line end before the next file.
            for (index, byte) in content.strip_suffix(b"\n").unwrap_or(content).iter().enumerate() {
                let Some(at) = address.checked_add(index as u64) else { break };
                let page = pages.entry(at / PAGE * PAGE).or_insert_with(|| vec![0; PAGE as usize]);
                page[(at % PAGE) as usize] = *byte;
            }
        }
        Memory { pages }
    }
}

/// The same memory for the profiler.
impl beamtune_profile::memory::Memory for Memory {
    fn read(&self, address: u64, mut out: &mut [u8]) -> bool {
        let mut at = Some(address);
        while !out.is_empty() {
            let page = at.and_then(|at| Some(&self.pages.get(&(at / PAGE * PAGE))?[(at % PAGE) as usize..]));
            let Some(page) = page else { return false };
            let length = page.len().min(out.len());
            let (now, later) = std::mem::take(&mut out).split_at_mut(length);
            now.copy_from_slice(&page[..now.len()]);
            at = at.and_then(|at| at.checked_add(now.len() as u64));
            out = later;
        }
        true
    }
}

#[derive(Debug)]
enum Opened {
    File(Vec<u8>),
    Memory(Memory),
    Pagemap(Memory),
}

/// Opens a file of a synthetic host, or the memory of process 7.
pub(super) fn open(tree: &SyntheticHost, path: &str) -> Result<Box<dyn ReadAt>, HostError> {
    Ok(Box::new(match path {
        "/proc/7/mem" => Opened::Memory(Memory::of(tree)),
        "/proc/7/pagemap" => Opened::Pagemap(Memory::of(tree)),
        path => Opened::File(tree.resolved(path)?.to_vec()),
    }))
}

impl ReadAt for Opened {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let from = |content: &[u8], offset: u64, into: &mut [u8]| {
            let begin = usize::try_from(offset).unwrap_or(usize::MAX);
            let rest = content.get(begin..).unwrap_or_default();
            let read = rest.len().min(into.len());
            into[..read].copy_from_slice(&rest[..read]);
            read
        };
        Ok(match self {
            Opened::File(content) => from(content, offset, into),
            Opened::Memory(memory) => match memory.pages.get(&(offset / PAGE * PAGE)) {
                Some(page) => from(page, offset % PAGE, into),
                None => panic!("reading page {:#x} would make it resident", offset / PAGE * PAGE),
            },
            Opened::Pagemap(memory) => {
                for (index, entry) in into.as_chunks_mut::<8>().0.iter_mut().enumerate() {
                    let page = (offset / 8).wrapping_add(index as u64).wrapping_mul(PAGE);
                    // Present, and exclusively mapped.
                    let value = if memory.pages.contains_key(&page) { 1_u64 << 63 | 1 << 56 } else { 0 };
                    *entry = value.to_ne_bytes();
                }
                into.len() / 8 * 8
            }
        })
    }
}
