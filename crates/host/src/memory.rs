//! What stands in every page of a VM's process, found out from outside: the VM is not asked, and not stopped.
//!
//! ```text
//! smaps ──> mappings, by kind
//!    └──> pagemap ──> pages ──> image ──> allocators ──> carriers ─┐
//!                                   ├───> cached segments, areas   ├──> claims ──> contents
//!                                   ├───> stacks                   │
//!                                   └───> malloc ──────────────────┘
//! ```
//!
//! The kernel tells what is mapped ([`smaps`]) and which pages are in memory ([`pages`]). What they are for stands in them:
//! the VM's allocators have lists of their carriers, malloc has headers, threads have descriptions of their stacks. All
//! of it is read from `/proc/PID/mem`, page by page and only where a page is in memory already, so that looking
//! changes nothing. Each address has one owner at most, and each page is counted once; what has no owner is `unknown`, and
//! nothing else is a remainder.
//!
//! The memory belongs to the VM, and so to whatever runs in it: all that is read there is a claim that must hold within the
//! process's own mappings, links are followed as far as both ends agree, and the number of steps is bounded. A VM that runs
//! changes it meanwhile; what was seen is what stood there at some instant of the reading.
//!
//! # Cost
//!
//! 2 to 3 ms for a VM that has just started, some more the first two times, and 20 ms for each gigabyte in pages of 4 KiB: the kernel
//! walks the page tables once for smaps and once for pagemap, which takes nine tenths of the time. The rest grows with the number
//! of mappings, carriers and large chunks. Following all of malloc's chunks takes 0.4 s for each gigabyte, and is done only
//! where it takes a small part of the time that there is.

mod allocators;
mod claims;
mod contents;
mod elf;
mod emulator;
#[cfg(test)]
pub(crate) mod fake;
mod image;
mod libraries;
mod malloc;
mod meter;
pub mod pages;
mod segments;
pub mod smaps;
mod stacks;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use beamtune_model::memory::content;
use beamtune_model::{Clock, Nanos};

use crate::error::HostError;
use crate::process;
use crate::tree::FileTree;

pub(crate) use contents::MUCH_PERCENT;

use contents::Landmarks;
use libraries::Libraries;
use meter::Meter;
use pages::Pages;
use smaps::Mapping;

/// Sums over the mappings of a kind; bytes but for the count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MappingSum {
    /// Mappings.
    pub count: u64,
    /// Address space.
    pub size: u64,
    /// In memory.
    pub resident: u64,
    /// In memory, shared pages divided by the number of those who share them.
    pub pss: u64,
    /// Swapped out.
    pub swapped: u64,
    /// Given back, and not yet taken.
    pub lazy_free: u64,
    /// In transparent huge pages.
    pub huge: u64,
}

impl MappingSum {
    fn add(&mut self, mapping: &Mapping) {
        let add = |sum: &mut u64, more| *sum = sum.saturating_add(more);
        add(&mut self.count, 1);
        add(&mut self.size, mapping.size());
        add(&mut self.resident, mapping.resident);
        add(&mut self.pss, mapping.pss);
        add(&mut self.swapped, mapping.swapped);
        add(&mut self.lazy_free, mapping.lazy_free);
        add(&mut self.huge, mapping.huge);
    }
}

/// Sums over what is of one content; bytes but for the count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ContentSum {
    /// Carriers, segments, stacks, chunks.
    pub count: u64,
    /// Address space.
    pub size: u64,
    /// In memory.
    pub resident: u64,
    /// Swapped out.
    pub swapped: u64,
    /// Of malloc: handed out; `None` where that cannot be told, and of everything else.
    pub in_use: Option<u64>,
}

/// What a process has mapped, and what stands there.
#[derive(Debug)]
pub struct MemoryMap {
    /// By kind, see [`beamtune_model::memory::mapping`].
    pub mappings: BTreeMap<&'static str, MappingSum>,
    /// By entity, see [`beamtune_model::memory::content`]; or why that could not be found out. `None` if it was not asked for.
    pub contents: Option<Result<BTreeMap<String, ContentSum>, HostError>>,
    /// What gives memory to libraries and to the VM itself: `glibc`, `jemalloc` …, where a library tells.
    pub malloc: Option<&'static str>,
    /// Libraries that are not the system's, by their paths as the process sees them.
    pub native_libraries: Vec<String>,
    /// Lists of carriers that could not be followed to their end.
    pub cut_lists: usize,
    /// Page faults of the process meanwhile: pages that may have been looked for before they came. `None` where that is not known.
    pub faults: Option<i64>,
    /// Resident memory that it has given back meanwhile: pages that the kernel may have counted before they went, in bytes. `None` where that
    /// is not known.
    pub gone_bytes: Option<i64>,
    /// How long it took.
    pub cost_ns: Nanos,
}

impl MemoryMap {
    /// How far what was recognised is from what is resident, in bytes, if that is more than a little: pages of no known kind, and
    /// what has come or gone between two readings.
    pub(crate) fn much_unexplained(&self) -> Option<u64> {
        let contents = self.contents.as_ref()?.as_ref().ok()?;
        let resident = self.mappings.values().map(|sum| sum.resident).fold(0, u64::saturating_add);
        let known = contents.iter().filter(|(entity, _)| *entity != content::UNKNOWN);
        let known = known.map(|(_, sum)| sum.resident).fold(0, u64::saturating_add);
        let off = resident.abs_diff(known);
        (off > resident / 100 * MUCH_PERCENT).then_some(off)
    }
}

/// What is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// What is mapped.
    Mappings,
    /// What stands there, too.
    Contents,
    /// The same of a VM whose carriers come and go: its lists are followed before the pages are read, too, so that what is unmapped
    /// in between has its owner.
    Moving,
}

/// Reads the memory of one process again and again, and remembers where its landmarks are.
#[derive(Debug, Default)]
pub struct MemoryReader {
    landmarks: Option<Landmarks>,
    libraries: Libraries,
}

impl MemoryReader {
    /// Reads what is mapped and what stands there, in no more than so much time. `threads` are the process's, with their
    /// kinds: `scheduler`, `poll` … An error is one of the mappings; where only those could be read, the map says why.
    pub fn read<'a>(
        &mut self,
        tree: &impl FileTree,
        pid: u32,
        threads: impl Iterator<Item = (u32, &'a str)>,
        depth: Depth,
        clock: &dyn Clock,
        budget_ns: Nanos,
    ) -> Result<MemoryMap, HostError> {
        let meter = Meter::start(clock, budget_ns);
        let before = Standing::of(tree, pid);
        let path = format!("/proc/{pid}/smaps");
        let mappings = smaps::read(&*tree.open(&path)?, &path, &meter)?;
        if mappings.is_empty() {
            // The kernel's own threads have none, nor has a process that is ending.
            return Err(HostError::Ended { pid });
        }
        let emulator = tree.read_link(&format!("/proc/{pid}/exe")).unwrap_or_default();
        let root = tree.read_link(&format!("/proc/{pid}/root")).unwrap_or_default();
        let extents = self.libraries.extents(tree, pid, &root, &emulator, &mappings);
        let page_bytes = Pages::new(rustix::param::page_size() as u64).page_bytes();
        let kinds = smaps::kinds_of(&mappings, &emulator, |mapping, file| {
            let end = extents.get(file.path.as_str());
            end.is_some_and(|end| mapping.end <= end.next_multiple_of(page_bytes))
        });
        let mut sums: BTreeMap<&'static str, MappingSum> = BTreeMap::new();
        for (mapping, kind) in mappings.iter().zip(&kinds) {
            sums.entry(kind).or_default().add(mapping);
        }
        let malloc = libraries::malloc(&mappings);
        let native_libraries = libraries::native(mappings.iter().zip(kinds.iter().copied()), &root);
        let process = contents::Process {
            pid,
            emulator: &emulator,
            mappings: &mappings,
            kinds: &kinds,
            extents: &extents,
        };
        let found = (depth != Depth::Mappings).then(|| {
            let threads = stacks::own_numbers(tree, pid, threads);
            let moves = depth == Depth::Moving;
            contents::read(&process, tree, &threads, malloc, moves, &mut self.landmarks, &meter)
        });
        let cut_lists = found.iter().flatten().map(|found| found.cut_lists).sum();
        let contents = found.map(|found| found.map(|found| found.sums));
        let moved = before.zip(Standing::of(tree, pid));
        Ok(MemoryMap {
            mappings: sums,
            contents,
            malloc,
            native_libraries,
            cut_lists,
            faults: moved.map(|(before, after)| after.faults.saturating_sub(before.faults)),
            gone_bytes: moved.and_then(|(before, after)| {
                Some(before.gone_until(&after)?.saturating_mul(i64::try_from(page_bytes).ok()?))
            }),
            cost_ns: meter.spent_ns(),
        })
    }
}

/// What the kernel counts of a process's pages.
#[derive(Debug, Clone, Copy)]
struct Standing {
    /// Minor page faults so far.
    faults: i64,
    /// Pages that are resident.
    resident: Option<i64>,
}

impl Standing {
    fn of(tree: &impl FileTree, pid: u32) -> Option<Standing> {
        let mut content = Vec::new();
        let stat = process::read_stat(tree, pid, &mut content).ok()?;
        Some(Standing { faults: stat.minor_faults, resident: stat.rss_pages })
    }

    /// Pages that went until then: those that were there and those that came, but for those that are there.
    fn gone_until(&self, after: &Standing) -> Option<i64> {
        let came = after.faults.saturating_sub(self.faults).max(0);
        Some(self.resident?.saturating_add(came).saturating_sub(after.resident?).max(0))
    }
}
