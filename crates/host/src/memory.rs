//! Determines the purpose of every page of a VM's process from outside, without connecting to the VM and without stopping it.
//!
//! ```text
//! smaps ──> mappings, by kind
//!    └──> pagemap ──> pages ──> image ──> allocators ──> carriers ─┐
//!                                   ├───> cached segments, areas   ├──> claims ──> contents
//!                                   ├───> stacks                   │
//!                                   └───> malloc ──────────────────┘
//! ```
//!
//! The kernel lists the mappings ([`smaps`]) and the resident pages ([`pages`]). The purpose of pages follows from the content of memory.
//! The VM's allocators have lists of their carriers, malloc has chunk headers, and threads have descriptors of their stacks. These are read
//! from `/proc/PID/mem`, but only if their page is already resident, so reading changes nothing. Each address has at most one owner, and
//! each page is counted once. Memory without an owner is `unknown`; no other value is calculated as a remainder.
//!
//! The memory is untrusted, because any code in the VM can write it. So addresses must be within the process's own mappings, links are
//! followed only if both ends agree, and the number of steps is bounded. A running VM changes its memory during the read; each value is
//! from some instant of the read.
//!
//! # Cost
//!
//! 2 to 3 ms for a VM that has just started, plus 20 ms per gigabyte in 4 KiB pages. The first two reads take slightly longer. 90 % of the
//! time is spent in the kernel, which walks the page tables once for smaps and once for pagemap. The rest grows with the number of
//! mappings, carriers and large chunks. Following all malloc chunks takes 0.4 s per gigabyte, and is done only if this is a small part of
//! the budget.

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

pub(crate) use contents::SIGNIFICANT_PERCENT;

use contents::Landmarks;
use libraries::Libraries;
use meter::Meter;
use pages::Pages;
use smaps::Mapping;

/// Sums over the mappings of a kind, in bytes except for the count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MappingSum {
    /// Number of mappings.
    pub count: u64,
    /// Address space.
    pub size: u64,
    /// Resident.
    pub resident: u64,
    /// Proportional set size: each shared page counts as its size divided by the number of processes that share it.
    pub pss: u64,
    /// Swapped out.
    pub swapped: u64,
    /// Freed with MADV_FREE, but not reclaimed yet.
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

/// Sums over memory with the same purpose, in bytes except for the count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ContentSum {
    /// Number of carriers, segments, stacks or chunks.
    pub count: u64,
    /// Address space.
    pub size: u64,
    /// Resident.
    pub resident: u64,
    /// Swapped out.
    pub swapped: u64,
    /// Only for malloc: bytes in allocated chunks; `None` if unknown.
    pub in_use: Option<u64>,
}

/// The mappings of a process, and their content.
#[derive(Debug)]
pub struct MemoryMap {
    /// Sums of mappings by kind, see [`beamtune_model::memory::mapping`].
    pub mappings: BTreeMap<&'static str, MappingSum>,
    /// Sums of their content by entity, see [`beamtune_model::memory::content`], or the error. `None` if the content was not requested.
    pub contents: Option<Result<BTreeMap<String, ContentSum>, HostError>>,
    /// The malloc implementation of the process (`glibc`, `jemalloc` …), if a mapped library identifies it.
    pub malloc: Option<&'static str>,
    /// Libraries outside the system's folders, as paths in the process's root.
    pub native_libraries: Vec<String>,
    /// Number of carrier lists that could not be followed to their end.
    pub cut_lists: usize,
    /// Page faults during the read, whose pages may have been missed. `None` if unknown.
    pub faults: Option<i64>,
    /// Resident memory freed during the read, in bytes; it may have been counted before. `None` if unknown.
    pub freed_bytes: Option<i64>,
    /// Duration of the read.
    pub cost_ns: Nanos,
}

impl MemoryMap {
    /// Returns the difference between explained and resident memory in bytes, if it is significant. It consists of pages of unknown
    /// purpose, and of pages that became resident or were freed during the read.
    pub(crate) fn significant_unexplained(&self) -> Option<u64> {
        let contents = self.contents.as_ref()?.as_ref().ok()?;
        let resident = self.mappings.values().map(|sum| sum.resident).fold(0, u64::saturating_add);
        let known = contents.iter().filter(|(entity, _)| *entity != content::UNKNOWN);
        let known = known.map(|(_, sum)| sum.resident).fold(0, u64::saturating_add);
        let off = resident.abs_diff(known);
        (off > resident / 100 * SIGNIFICANT_PERCENT).then_some(off)
    }
}

/// How much to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Only the mappings.
    Mappings,
    /// The mappings and their content.
    Contents,
    /// The mappings and their content, for a VM that creates and frees carriers. Its lists are also followed before the pages are read, so
    /// that memory that is unmapped in between has a known owner.
    Moving,
}

/// Reads the memory of one process repeatedly, and remembers the structures that do not move (landmarks).
#[derive(Debug, Default)]
pub struct MemoryReader {
    landmarks: Option<Landmarks>,
    libraries: Libraries,
}

impl MemoryReader {
    /// Reads mappings and content within a budget of CPU time. `threads` are the process's threads with their kinds: `scheduler`, `poll` …
    /// Fails if the mappings are not readable. If only their content is not readable, the map contains the error.
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
        let before = PageCounts::of(tree, pid);
        let path = format!("/proc/{pid}/smaps");
        let mappings = smaps::read(&*tree.open(&path)?, &path, &meter)?;
        if mappings.is_empty() {
            // Only kernel threads and ending processes have no mappings.
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
            let threads = stacks::with_own_tids(tree, pid, threads);
            let moves = depth == Depth::Moving;
            contents::read(&process, tree, &threads, malloc, moves, &mut self.landmarks, &meter)
        });
        let cut_lists = found.iter().flatten().map(|found| found.cut_lists).sum();
        let contents = found.map(|found| found.map(|found| found.sums));
        let moved = before.zip(PageCounts::of(tree, pid));
        Ok(MemoryMap {
            mappings: sums,
            contents,
            malloc,
            native_libraries,
            cut_lists,
            faults: moved.map(|(before, after)| after.faults.saturating_sub(before.faults)),
            freed_bytes: moved.and_then(|(before, after)| {
                Some(before.freed_until(&after)?.saturating_mul(i64::try_from(page_bytes).ok()?))
            }),
            cost_ns: meter.spent_ns(),
        })
    }
}

/// The kernel's counts of a process's pages.
#[derive(Debug, Clone, Copy)]
struct PageCounts {
    /// Minor page faults since the start of the process.
    faults: i64,
    /// Resident pages.
    resident: Option<i64>,
}

impl PageCounts {
    fn of(tree: &impl FileTree, pid: u32) -> Option<PageCounts> {
        let mut content = Vec::new();
        let stat = process::read_stat(tree, pid, &mut content).ok()?;
        Some(PageCounts { faults: stat.minor_faults, resident: stat.rss_pages })
    }

    /// Calculates the number of pages freed until `after`: resident pages at first, plus page faults, minus resident pages at the end.
    fn freed_until(&self, after: &PageCounts) -> Option<i64> {
        let came = after.faults.saturating_sub(self.faults).max(0);
        Some(self.resident?.saturating_add(came).saturating_sub(after.resident?).max(0))
    }
}
