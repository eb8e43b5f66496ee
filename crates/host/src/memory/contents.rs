//! Determines the owner of each page.

use std::collections::{BTreeMap, HashMap, HashSet};

use beamtune_model::memory::{content, mapping as kinds};

use crate::error::HostError;
use crate::tree::{FileTree, ReadAt};

use super::ContentSum;
use super::allocators::{Allocators, Carrier, Set};
use super::claims::{Claims, Kind};
use super::emulator::Emulator;
use super::image::{Image, Range, Ranges};
use super::libraries::GLIBC;
use super::malloc;
use super::meter::Meter;
use super::pages::{self, Amount, Pages};
use super::segments::{self, Caches};
use super::smaps::Mapping;
use super::stacks::{self, Thread};

/// Speed of following malloc chunks, which reads nearly all pages: 2.6 GB/s were measured.
const CHUNK_BYTES_PER_NS: u64 = 2;
/// Chunks are not followed if this would take more than this share of the budget.
const CHUNKS_PERCENT: i64 = 25;

/// Properties of a process that are known before its memory is read.
#[derive(Debug)]
pub(super) struct Process<'a> {
    pub pid: u32,
    /// Path of its executable.
    pub emulator: &'a str,
    pub mappings: &'a [Mapping],
    /// The kind of each mapping.
    pub kinds: &'a [&'static str],
    /// End address of the static data of each mapped file, by path.
    pub extents: &'a HashMap<&'a str, u64>,
}

impl Process<'_> {
    fn with_kinds(&self) -> impl Iterator<Item = (&Mapping, &'static str)> {
        self.mappings.iter().zip(self.kinds.iter().copied())
    }

    /// Whether the memory of a mapping is examined page by page. This applies to memory that does not come from a file.
    fn is_examined(mapping: &Mapping, kind: &str) -> bool {
        let is_static = mapping.path.is_empty() && matches!(kind, kinds::EMULATOR | kinds::LIBRARIES);
        (is_static || matches!(kind, kinds::ANONYMOUS | kinds::HEAP)) && mapping.is_anonymous()
    }

    /// Returns static data that is not part of a file (`.bss`), with the path of the file. It is in the mapping after that of the file, up
    /// to the end of the file's static data.
    fn static_data(&self) -> impl Iterator<Item = (&str, Range)> {
        self.mappings.array_windows().filter_map(|[file, next]| {
            let end = *self.extents.get(file.path.as_str())?;
            let is_behind = file.end == next.start && next.is_anonymous() && next.start < end;
            is_behind.then_some((file.path.as_str(), Range { start: next.start, end: next.end.min(end) }))
        })
    }
}

/// Unexplained memory is significant if its share is larger.
pub(crate) const SIGNIFICANT_PERCENT: u64 = 3;
/// Number of searches for landmarks: during the first one, the VM may still be starting.
const SEARCHES: u32 = 2;

/// Structures of the VM that never move.
#[derive(Debug)]
pub(super) struct Landmarks {
    /// Start address of the emulator's first mapping.
    program: u64,
    searches: u32,
    allocators: Allocators,
    caches: Option<Caches>,
    areas: Vec<Range>,
}

impl Landmarks {
    /// Searches for the landmarks, unless that was done often enough.
    fn update(known: &mut Option<Landmarks>, image: &Image<'_>, emulator: &Emulator<'_>, program: u64) {
        let searches =
            known.as_ref().filter(|known| known.program == program).map_or(0, |known| known.searches);
        if searches < SEARCHES {
            *known = Landmarks::find(image, emulator, program);
            known.iter_mut().for_each(|known| known.searches = searches + 1);
        }
    }

    fn find(image: &Image<'_>, emulator: &Emulator<'_>, program: u64) -> Option<Landmarks> {
        let pieces = emulator.pieces(image);
        let pointers = emulator.pointers(image, &pieces);
        Some(Landmarks {
            program,
            searches: 0,
            allocators: Allocators::find(image, emulator, &pointers)?,
            caches: Caches::find(image, &pointers),
            areas: segments::areas(emulator, &pieces, image.pages.page_bytes()),
        })
    }
}

/// The content of a process's memory.
#[derive(Debug)]
pub(super) struct Found {
    pub sums: BTreeMap<String, ContentSum>,
    pub cut_lists: usize,
}

/// Reads the content of a process's memory. `moves` means that the VM creates and frees carriers, see [`super::Depth::Moving`].
pub(super) fn read(
    process: &Process<'_>,
    tree: &impl FileTree,
    threads: &[Thread<'_>],
    malloc: Option<&str>,
    moves: bool,
    landmarks: &mut Option<Landmarks>,
    meter: &Meter<'_>,
) -> Result<Found, HostError> {
    let pid = process.pid;
    // Opened first, because without access to it, nothing else is needed.
    let memory_path = format!("/proc/{pid}/mem");
    let memory = tree.open(&memory_path)?;
    let program = tree.open(&format!("/proc/{pid}/exe"))?;
    let pagemap_path = format!("/proc/{pid}/pagemap");
    let pagemap = tree.open(&pagemap_path)?;
    let examined = process.with_kinds().filter(|(mapping, kind)| Process::is_examined(mapping, kind));
    let anonymous = Ranges::of(examined.map(|(mapping, _)| mapping));
    let of_program = || process.mappings.iter().filter(|mapping| mapping.path == process.emulator);
    let bss = process.static_data().filter(|(path, _)| *path == process.emulator).map(|(_, range)| range);
    let emulator = Emulator::new(&*program, of_program().collect(), bss);
    let begin = of_program().map(|mapping| mapping.start).next().unwrap_or(0);
    let files = [&*memory, &*pagemap];
    let earlier = landmarks.as_ref().filter(|known| moves && known.program == begin).map(|known| {
        let none = Pages::new(rustix::param::page_size() as u64);
        known.allocators.carriers(&Image::new(files, &none, &anonymous, meter), &emulator)
    });
    let pages = read_pages(process, &*pagemap, &pagemap_path, meter)?;
    let image = Image::new(files, &pages, &anonymous, meter);
    Landmarks::update(landmarks, &image, &emulator, begin);
    if meter.is_over() {
        // Some landmarks may be missing.
        *landmarks = None;
        return Err(meter.error(&memory_path));
    }
    let Some(landmarks) = landmarks else { return Err(HostError::NoAllocators { pid }) };
    let mut map = Map::new(&image, process);
    let cut_lists = map.carriers(landmarks, &emulator);
    if moves {
        // Segments that were taken out of a cache in the meantime, and memory that was unmapped after the pages were read.
        let later = landmarks.allocators.carriers(&image, &emulator);
        map.claim_transient(&landmarks.allocators, &later.all);
        map.claim_transient(&landmarks.allocators, &earlier.unwrap_or_default().all);
    }
    map.stacks(stacks::find(&image, tree, pid, threads, process.mappings));
    map.static_data();
    if malloc == Some(GLIBC) {
        map.malloc();
    }
    map.areas(&landmarks.areas);
    if malloc == Some(GLIBC) {
        let kind = map.kind(content::MALLOC_MAPPED);
        let (count, size) = malloc::mapped(&image, &mut map.claims, kind);
        map.add(kind, count, size);
        // malloc unmaps chunks of this kind as soon as they are freed.
        map.set_in_use(kind, Some(size));
    }
    if meter.is_over() {
        return Err(meter.error(&memory_path));
    }
    let sums = map.finish();
    let all = sums.values().map(|sum| sum.resident).fold(0, u64::saturating_add);
    let unknown = sums.get(content::UNKNOWN).map_or(0, |sum| sum.resident);
    if unknown > all / 100 * SIGNIFICANT_PERCENT {
        // Landmarks may have been swapped out during the search.
        landmarks.searches = 0;
    }
    Ok(Found { sums, cut_lists })
}

/// Returns the entity of a carrier.
fn entity(allocators: &Allocators, carrier: &Carrier) -> String {
    let name = allocators.name(carrier);
    match carrier.set {
        Set::Mbcs => content::carriers(name, content::MBCS),
        Set::Sbcs => content::carriers(name, content::SBCS),
        Set::Pool => content::carriers(name, content::POOL),
        Set::Deallocating => content::MSEG_CACHE.to_owned(),
    }
}

/// Reads the pages of all examined memory, and of the emulator's static data.
fn read_pages(
    process: &Process<'_>,
    file: &dyn ReadAt,
    path: &str,
    meter: &Meter<'_>,
) -> Result<Pages, HostError> {
    let mut pages = Pages::new(rustix::param::page_size() as u64);
    let mut buffer = Vec::new();
    for (mapping, kind) in process.with_kinds() {
        let is_data = mapping.path == process.emulator && mapping.write;
        let has_pages = mapping.resident > 0 || mapping.swapped > 0;
        if has_pages && (is_data || Process::is_examined(mapping, kind)) {
            pages::read(file, path, mapping, meter, &mut buffer, &mut pages)?;
        }
    }
    Ok(pages)
}

/// The memory map while it is built.
struct Map<'a> {
    image: &'a Image<'a>,
    process: &'a Process<'a>,
    claims: Claims,
    names: Vec<String>,
    by_name: HashMap<String, Kind>,
    sums: Vec<ContentSum>,
    literal_areas: HashSet<u64>,
    /// Addresses of carriers that were allocated with malloc.
    from_malloc: HashSet<u64>,
}

impl<'a> Map<'a> {
    fn new(image: &'a Image<'a>, process: &'a Process<'a>) -> Self {
        Map {
            image,
            process,
            claims: Claims::default(),
            names: Vec::new(),
            by_name: HashMap::new(),
            sums: Vec::new(),
            literal_areas: HashSet::new(),
            from_malloc: HashSet::new(),
        }
    }

    fn kind(&mut self, name: &str) -> Kind {
        if let Some(kind) = self.by_name.get(name) {
            return *kind;
        }
        let kind = self.names.len();
        self.names.push(name.to_owned());
        self.by_name.insert(name.to_owned(), kind);
        self.sums.push(ContentSum::default());
        kind
    }

    fn add(&mut self, kind: Kind, count: u64, size: u64) {
        if let Some(sum) = self.sums.get_mut(kind) {
            sum.count = sum.count.saturating_add(count);
            sum.size = sum.size.saturating_add(size);
        }
    }

    /// Claims carriers and cached segments. Returns the number of lists that could not be followed to their end.
    fn carriers(&mut self, landmarks: &Landmarks, emulator: &Emulator<'_>) -> usize {
        let allocators = &landmarks.allocators;
        let found = allocators.carriers(self.image, emulator);
        for carrier in &found.all {
            let Some(end) = carrier.address.checked_add(carrier.size) else { continue };
            let own = Range { start: carrier.address, end };
            if !self.image.anonymous.cover(own.start, own.end) {
                continue;
            }
            let around =
                (!carrier.is_mseg).then(|| malloc::chunk_around(self.image, carrier.address)).flatten();
            let range = around.filter(|chunk| chunk.start < own.start && own.end <= chunk.end).unwrap_or(own);
            let kind = self.kind(&entity(allocators, carrier));
            if self.claims.claim_whole(range, kind) {
                self.add(kind, 1, carrier.size);
                if !carrier.is_mseg {
                    self.from_malloc.insert(carrier.address);
                }
                if allocators.name(carrier) == "literal_alloc" {
                    let area = landmarks.areas.iter().find(|area| area.contains(carrier.address));
                    self.literal_areas.extend(area.map(|area| area.start));
                }
            }
        }
        let segments = landmarks.caches.and_then(|caches| caches.segments(self.image)).unwrap_or_default();
        for segment in segments {
            let kind = self.kind(content::MSEG_CACHE);
            if self.image.anonymous.cover(segment.start, segment.end)
                && self.claims.claim_whole(segment, kind)
            {
                self.add(kind, 1, segment.size());
            }
        }
        found.cut
    }

    /// Claims the unclaimed parts of carriers that existed only during a part of the read.
    fn claim_transient(&mut self, allocators: &Allocators, carriers: &[Carrier]) {
        for carrier in carriers {
            let Some(end) = carrier.address.checked_add(carrier.size) else { continue };
            let range = Range { start: carrier.address, end };
            if self.image.anonymous.cover(range.start, range.end) && !self.claims.free_parts(range).is_empty()
            {
                let kind = self.kind(&entity(allocators, carrier));
                self.claims.claim_rest(range, kind);
            }
        }
    }

    fn stacks(&mut self, stacks: Vec<(Range, &str)>) {
        for (range, of) in stacks {
            let kind = self.kind(&format!("{}/{of}", content::STACKS));
            let size = self.claims.claim_rest(range, kind);
            self.add(kind, 1, size);
        }
    }

    fn static_data(&mut self) {
        for (path, range) in self.process.static_data() {
            let is_emulator = path == self.process.emulator;
            let kind = self.kind(if is_emulator { content::EMULATOR } else { content::LIBRARIES });
            let size = self.claims.claim_rest(range, kind);
            self.add(kind, 1, size);
        }
    }

    /// Claims the memory of malloc, except for mapped chunks.
    fn malloc(&mut self) {
        let of_heap = self.process.mappings.iter().filter(|mapping| mapping.path == "[heap]");
        let first: Vec<Range> = Ranges::of(of_heap).iter().collect();
        let arenas = malloc::heaps(self.image);
        let heaps = first.iter().chain(&arenas);
        let resident = heaps.map(|heap| self.image.pages.amount(heap.start, heap.end).resident);
        let needs_ns = i64::try_from(resident.sum::<u64>() / CHUNK_BYTES_PER_NS).unwrap_or(i64::MAX);
        let is_followed = self.image.meter.has_left(needs_ns, CHUNKS_PERCENT);
        for (name, heaps) in [(content::MALLOC_HEAP, first), (content::MALLOC_ARENAS, arenas)] {
            let kind = self.kind(name);
            let mut in_use = is_followed.then_some(0_u64);
            for heap in heaps {
                let size = self.claims.claim_rest(heap, kind);
                self.add(kind, 1, size);
                let is_carrier = |address: u64| self.from_malloc.contains(&address);
                let used = in_use.and_then(|_| match name {
                    content::MALLOC_HEAP => malloc::heap_in_use(self.image, heap, &is_carrier),
                    _ => malloc::arena_in_use(self.image, heap, &is_carrier),
                });
                in_use = in_use.zip(used).map(|(sum, more)| sum.saturating_add(more));
            }
            self.set_in_use(kind, in_use);
        }
    }

    fn set_in_use(&mut self, kind: Kind, in_use: Option<u64>) {
        if let Some(sum) = self.sums.get_mut(kind) {
            // Parts of the chunks have other owners, so at most the claimed size is in use.
            sum.in_use = in_use.filter(|_| sum.count > 0).map(|in_use| in_use.min(sum.size));
        }
    }

    /// Claims the parts of reserved areas that are not in any carrier.
    fn areas(&mut self, areas: &[Range]) {
        for area in areas {
            let is_for_literals = self.literal_areas.contains(&area.start);
            let kind =
                self.kind(if is_for_literals { content::LITERAL_AREA } else { content::SUPER_CARRIER });
            let size = self.claims.claim_rest(*area, kind);
            self.add(kind, 1, size);
        }
    }

    /// Sums the pages of each claim. For mappings that are not examined page by page, adds the kernel's numbers.
    fn finish(mut self) -> BTreeMap<String, ContentSum> {
        let add = |sum: &mut ContentSum, amount: Amount| {
            sum.resident = sum.resident.saturating_add(amount.resident);
            sum.swapped = sum.swapped.saturating_add(amount.swapped);
        };
        for (range, kind) in self.claims.iter() {
            if let Some(sum) = self.sums.get_mut(kind) {
                add(sum, self.image.pages.amount(range.start, range.end));
            }
        }
        let unknown = self.kind(content::UNKNOWN);
        for range in self.image.anonymous.iter() {
            for free in self.claims.free_parts(range) {
                // A page in which a claim ends belongs to that claim.
                let amount = self.image.pages.amount(free.start, free.end);
                if amount != Amount::default() {
                    self.add(unknown, 1, free.size());
                    add(&mut self.sums[unknown], amount);
                }
            }
        }
        let process = self.process;
        for (mapping, kind) in
            process.with_kinds().filter(|(mapping, kind)| !Process::is_examined(mapping, kind))
        {
            let name = match kind {
                kinds::EMULATOR => content::EMULATOR,
                kinds::LIBRARIES => content::LIBRARIES,
                kinds::FILES => content::FILES,
                kinds::JIT => content::JIT,
                kinds::SHARED => content::SHARED,
                kinds::KERNEL => content::KERNEL,
                kinds::STACK => "stacks/other",
                _ if mapping.resident == 0 && mapping.swapped == 0 => continue,
                _ => content::UNKNOWN,
            };
            let kind = self.kind(name);
            self.add(kind, 1, mapping.size());
            add(&mut self.sums[kind], Amount { resident: mapping.resident, swapped: mapping.swapped });
        }
        let sums = self.names.into_iter().zip(self.sums);
        sums.filter(|(name, sum)| sum.count > 0 || name == content::UNKNOWN).collect()
    }
}
