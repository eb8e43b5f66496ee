use std::cell::Cell;

use beamtune_model::memory::content;
use proptest::prelude::*;

use super::fake::*;
use super::*;

/// A clock that advances each time it is read.
struct StepClock {
    now: Cell<Nanos>,
    step: Nanos,
}

impl Clock for StepClock {
    fn now(&self) -> Nanos {
        self.now.set(self.now.get() + self.step);
        self.now.get()
    }

    fn wall(&self) -> i64 {
        0
    }

    fn sleep_until(&self, _: Nanos) {}
}

const BUDGET_NS: Nanos = 1_000_000_000;
const MB: u64 = 1 << 20;

fn read_map(vm: FakeVm, threads: &[(u32, &str)], step: Nanos) -> Result<MemoryMap, HostError> {
    let clock = StepClock { now: Cell::new(0), step };
    let threads = threads.iter().copied();
    MemoryReader::default().read(&vm.tree(), 7, threads, Depth::Contents, &clock, BUDGET_NS)
}

/// Returns the contents of a VM's memory, and checks that each page is counted once.
fn contents_with(vm: FakeVm, threads: &[(u32, &str)]) -> BTreeMap<String, ContentSum> {
    let map = read_map(vm, threads, 1_000).unwrap();
    let contents = map.contents.unwrap().unwrap();
    let resident: u64 = map.mappings.values().map(|sum| sum.resident).sum();
    let swapped: u64 = map.mappings.values().map(|sum| sum.swapped).sum();
    assert_eq!(contents.values().map(|sum| sum.resident).sum::<u64>(), resident, "{contents:#?}");
    assert_eq!(contents.values().map(|sum| sum.swapped).sum::<u64>(), swapped, "{contents:#?}");
    contents
}

fn contents(vm: FakeVm) -> BTreeMap<String, ContentSum> {
    contents_with(vm, &[])
}

/// Returns count, size and resident memory of an entity.
fn of(contents: &BTreeMap<String, ContentSum>, entity: &str) -> (u64, u64, u64) {
    contents.get(entity).map_or((0, 0, 0), |sum| (sum.count, sum.size, sum.resident))
}

#[test]
fn carriers_are_found_in_the_lists_of_all_instances() {
    let mut vm = FakeVm::new();
    vm.carriers(EHEAP_0, MBCS, &[(AREA, 0x4_0000, MSEG), (AREA + MB / 2, 0x2_0000, MSEG)]);
    vm.carriers(EHEAP_1, MBCS, &[(AREA + 2 * MB, MB, MSEG)]);
    // Two pages are resident in each. A singleblock carrier may begin at any page.
    vm.carriers(EHEAP_1, SBCS, &[(AREA + 3 * MB + PAGE, 0x10_2000, MSEG | SBC)]);
    vm.touch(AREA + 4 * MB, AREA + 4 * MB + PAGE);
    vm.touch(AREA + 0x1000, AREA + 0x2000);
    vm.ring(POOL, &[(AREA + 6 * MB, MB, EHEAP_0), (AREA + 7 * MB, MB, EHEAP_1)]);
    vm.word(EHEAP_1 + LISTS_AT + SENTINEL, POOL);
    let found = contents(vm);
    assert_eq!(of(&found, "carriers/eheap_alloc/mbcs"), (3, 0x4_0000 + 0x2_0000 + MB, 4 * PAGE));
    assert_eq!(of(&found, "carriers/eheap_alloc/sbcs"), (1, 0x10_2000, 2 * PAGE));
    assert_eq!(of(&found, "carriers/eheap_alloc/pool"), (2, 2 * MB, 2 * PAGE));
    assert_eq!(of(&found, "carriers/literal_alloc/mbcs"), (1, 0x4_0000, PAGE));
    assert_eq!(of(&found, content::UNKNOWN), (0, 0, 0));
}

#[test]
fn offsets_of_names_and_lists_are_found() {
    for (name_at, lists_at) in [(120, 344), (64, 72), (240, 904), (128, 400)] {
        let mut vm = FakeVm { name_at, lists_at, ..FakeVm::bare() };
        vm.map(AREA, AREA + 0x1000_0000, "rw-p", 0, "");
        vm.word(DATA, EHEAP_0);
        vm.allocator(EHEAP_0, "eheap_");
        vm.carriers(EHEAP_0, MBCS, &[(AREA, 0x4_0000, MSEG), (AREA + MB, 0x4_0000, MSEG)]);
        assert_eq!(of(&contents(vm), "carriers/eheap_alloc/mbcs").0, 2, "{name_at} {lists_at}");
    }
}

#[test]
fn a_process_without_allocators_is_an_error() {
    let map = read_map(FakeVm::bare(), &[], 1_000).unwrap();
    assert!(map.mappings["heap"].size > 0);
    assert_eq!(
        map.contents.unwrap().unwrap_err().to_string(),
        "no allocators found in the memory of process 7: beamtune does not know this build of the VM"
    );
}

#[test]
fn only_carriers_in_lists_are_counted() {
    let mut vm = FakeVm::new();
    // The header of a former carrier remains in memory. Later, a carrier belongs to another allocator.
    vm.carriers(EHEAP_1, MBCS, &[(AREA + 2 * MB, MB, MSEG)]);
    vm.carriers(EHEAP_1, MBCS, &[(AREA + 4 * MB, MB, MSEG)]);
    let found = contents(vm.clone());
    assert_eq!(of(&found, "carriers/eheap_alloc/mbcs"), (2, 0x4_0000 + MB, 2 * PAGE));
    assert_eq!(of(&found, content::UNKNOWN).2, PAGE);
    vm.word(AREA + 4 * MB + 24, EHEAP_0);
    assert_eq!(of(&contents(vm), "carriers/eheap_alloc/mbcs").0, 1);
}

#[test]
fn a_list_is_followed_from_both_ends_if_its_middle_is_swapped_out() {
    let all: Vec<_> = (0..5).map(|index| (AREA + (2 + index) * MB, MB, MSEG)).collect();
    let mut vm = FakeVm::new();
    vm.carriers(EHEAP_1, MBCS, &all);
    vm.swap_out(AREA + 4 * MB);
    let map = read_map(vm.clone(), &[], 1_000).unwrap();
    assert_eq!(map.cut_lists, 1);
    let found = contents(vm);
    assert_eq!(of(&found, "carriers/eheap_alloc/mbcs").0, 1 + 4);
    assert_eq!(found[content::UNKNOWN].swapped, PAGE);
}

#[test]
fn a_walk_of_a_cyclic_list_ends() {
    let all: Vec<_> = (0..3).map(|index| (AREA + (2 + index) * MB, MB, MSEG)).collect();
    let mut vm = FakeVm::new();
    vm.carriers(EHEAP_1, MBCS, &all);
    // The last carrier points to the first one, which points back.
    vm.word(all[2].0 + 8, all[0].0);
    vm.word(all[0].0 + 16, all[2].0);
    // And a ring that does not return to its sentinel.
    vm.ring(POOL, &[(AREA + 6 * MB, MB, EHEAP_0), (AREA + 7 * MB, MB, EHEAP_1)]);
    vm.word(EHEAP_0 + LISTS_AT + SENTINEL, POOL);
    vm.word(AREA + 7 * MB + 32 + 16, AREA + 6 * MB + 32);
    let found = contents(vm);
    assert!(of(&found, "carriers/eheap_alloc/mbcs").0 <= 4, "{found:#?}");
}

#[test]
fn a_carrier_larger_than_its_mapping_is_refused() {
    for size in [0x1000_0000 - MB, !7, 0, 8] {
        let mut vm = FakeVm::new();
        vm.carriers(EHEAP_1, MBCS, &[(AREA + 2 * MB, size, MSEG)]);
        let found = contents(vm);
        assert_eq!(of(&found, "carriers/eheap_alloc/mbcs").0, 1, "{size:#x}");
        assert_eq!(of(&found, content::UNKNOWN).2, PAGE, "{size:#x}");
    }
    // A carrier that overlaps another one is refused, too.
    let mut vm = FakeVm::new();
    vm.carriers(EHEAP_1, MBCS, &[(AREA + 2 * MB, 2 * MB, MSEG), (AREA + 3 * MB, MB, MSEG)]);
    assert_eq!(of(&contents(vm), "carriers/eheap_alloc/mbcs").0, 2);
}

#[test]
fn a_carrier_that_is_about_to_be_deallocated_is_counted_as_cached() {
    let mut vm = FakeVm::new();
    vm.carriers(EHEAP_1, DEALLOCATING, &[(AREA + 2 * MB, MB, MSEG), (AREA + 4 * MB, MB, MSEG)]);
    assert_eq!(of(&contents(vm), content::MSEG_CACHE), (2, 2 * MB, 2 * PAGE));
}

/// Writes segment allocators at [`CACHES`], one for each list of segments (address, size).
fn with_caches(vm: &mut FakeVm, caches: &[&[(u64, u64)]]) {
    vm.word(DATA + 64, CACHES);
    for (number, segments) in caches.iter().enumerate() {
        let at = CACHES + number as u64 * 0x640;
        vm.word(at, number as u64 | 1 << 32);
        for node in 0..10 {
            let node_at = at + 0x60 + node * 32;
            let (segment, size) = segments.get(node as usize).copied().unwrap_or_default();
            vm.word(node_at, size);
            vm.word(node_at + 8, segment);
            vm.word(node_at + 16, at + 0x60 + (node + 1) % 10 * 32);
            vm.word(node_at + 24, at + 0x60 + (node + 9) % 10 * 32);
        }
    }
}

#[test]
fn cached_segments_are_found() {
    let mut vm = FakeVm::new();
    // The second segment begins in the middle of a former carrier.
    with_caches(
        &mut vm,
        &[&[(AREA + 8 * MB, MB)], &[(AREA + 10 * MB + PAGE, 3 * PAGE), (AREA + 12 * MB, MB)]],
    );
    vm.touch(AREA + 8 * MB, AREA + 9 * MB);
    vm.touch(AREA + 10 * MB, AREA + 11 * MB);
    // A segment that was unmapped during the read is not counted.
    with_caches(&mut vm.clone(), &[&[(0x6000_0000, MB)]]);
    let found = contents(vm);
    assert_eq!(of(&found, content::MSEG_CACHE), (3, 2 * MB + 3 * PAGE, MB + 3 * PAGE));
    assert_eq!(of(&found, content::UNKNOWN).2, MB - 3 * PAGE);
}

#[test]
fn reserved_areas_are_claimed_except_for_their_carriers() {
    let mut vm = FakeVm::new();
    let area = |vm: &mut FakeVm, at: u64, start: u64, lowest: u64, end: u64| {
        let words = [CODE, CODE + 64, 1, end, end - MB, 0, 0, 0, lowest + MB, lowest, 0, 0, 7, end - start];
        words.iter().enumerate().for_each(|(index, word)| vm.word(at + index as u64 * 8, *word));
    };
    // The literal area, and another one preceded by a page of descriptors.
    area(&mut vm, DATA + 0x200, AREA + MB, AREA + MB, AREA + 4 * MB);
    area(&mut vm, DATA + 0x400, AREA + 0x20 * MB - PAGE, AREA + 0x20 * MB, AREA + 0x40 * MB);
    vm.carriers(EHEAP_1, MBCS, &[(AREA + 0x22 * MB, MB, MSEG)]);
    vm.touch(AREA + 0x20 * MB - PAGE, AREA + 0x20 * MB + PAGE);
    vm.touch(AREA + 2 * MB, AREA + 2 * MB + 3 * PAGE);
    let found = contents(vm);
    assert_eq!(of(&found, content::LITERAL_AREA), (1, 3 * MB - 0x4_0000, 3 * PAGE));
    assert_eq!(of(&found, content::SUPER_CARRIER), (1, 0x20 * MB + PAGE - MB, 2 * PAGE));
    assert_eq!(of(&found, content::UNKNOWN).2, 0);
}

/// Maps a C library.
fn with_glibc(vm: &mut FakeVm) {
    vm.map(0x4800_0000, 0x4800_1000, "r-xp", 0, "/lib/libc.so.6");
}

/// Writes adjacent malloc chunks, given their sizes and whether they are in use. A last chunk extends to the end.
fn with_chunks(vm: &mut FakeVm, begin: u64, end: u64, chunks: &[(u64, bool)]) {
    let (mut at, mut before_in_use) = (begin, true);
    for (size, in_use) in chunks {
        vm.word(at + 8, size | u64::from(before_in_use));
        (at, before_in_use) = (at + size, *in_use);
    }
    vm.word(at + 8, (end - at) | u64::from(before_in_use));
}

#[test]
fn malloc_memory_in_use_is_counted() {
    let mut vm = FakeVm::new();
    with_glibc(&mut vm);
    // The chunks are in a separate heap, because the first one contains other words.
    let arena = 0x4000_0000;
    vm.map(arena, arena + 0x10_0000, "rw-p", 0, "");
    for (at, word) in [(0, arena + 0x30), (16, 0x10_0000), (24, 0x10_0000)] {
        vm.word(arena + at, word);
    }
    let chunks = [(0x290, true), (0x400, false), (0x800, true), (0x2_0000, true)];
    with_chunks(&mut vm, arena + 0x8c0, arena + 0x10_0000, &chunks);
    // The last chunk contains a carrier.
    let carrier = arena + 0x8c0 + 0x290 + 0x400 + 0x800 + 16;
    vm.carriers(EHEAP_1, MBCS, &[(carrier, 0x1_fff0, 0)]);
    let found = contents(vm.clone());
    assert_eq!(of(&found, "carriers/eheap_alloc/mbcs"), (2, 0x4_0000 + 0x1_fff0, 2 * PAGE));
    let arenas = &found[content::MALLOC_ARENAS];
    assert_eq!((arenas.count, arenas.size, arenas.resident), (1, 0x10_0000 - 0x1_fff0, 2 * PAGE));
    assert_eq!(arenas.in_use, Some(0x290 + 0x800));
    // After an invalid chunk, the result is unknown.
    vm.word(arena + 0x8c0 + 0x290 + 8, 24);
    assert_eq!(contents(vm)[content::MALLOC_ARENAS].in_use, None);
}

#[test]
fn mapped_chunks_are_recognized_and_may_contain_carriers() {
    let mut vm = FakeVm::new();
    with_glibc(&mut vm);
    let area = 0x4100_0000;
    vm.map(area, area + 16 * MB, "rw-p", 0, "");
    // Two adjacent chunks: the first as in older versions, the second as in glibc 2.43.
    vm.word(area + 8, MB | 2);
    vm.word(area + MB + 8, (MB - 16) | 2);
    // One chunk with a carrier at an aligned address, and one with an unaligned carrier.
    let lead = 0x3ff0;
    vm.word(area + 3 * MB + 8, (MB + 0x4000) | 2);
    vm.carriers(EHEAP_1, MBCS, &[(area + 3 * MB + 0x4000, MB - 16, 0)]);
    vm.word(area + 3 * MB + lead, lead);
    vm.word(area + 3 * MB + lead + 8, (MB + 0x4000 - lead) | 2);
    vm.carriers(EHEAP_1, SBCS, &[(area + 8 * MB + 16, MB - 16, SBC)]);
    vm.word(area + 8 * MB + 8, MB | 2);
    // A page without owner.
    vm.touch(area + 12 * MB, area + 12 * MB + PAGE);
    let found = contents(vm);
    let mapped = &found[content::MALLOC_MAPPED];
    assert_eq!((mapped.count, mapped.size, mapped.resident), (2, 2 * MB, 2 * PAGE));
    assert_eq!(mapped.in_use, Some(2 * MB));
    assert_eq!(of(&found, "carriers/eheap_alloc/mbcs"), (2, 0x4_0000 + MB - 16, 4 * PAGE));
    assert_eq!(of(&found, "carriers/eheap_alloc/sbcs"), (1, MB - 16, PAGE));
    assert_eq!(of(&found, content::UNKNOWN).2, PAGE);
}

#[test]
fn chunks_of_another_malloc_are_not_followed() {
    let mut vm = FakeVm::new();
    with_glibc(&mut vm);
    vm.map(0x4100_0000, 0x4200_0000, "rw-p", 0, "");
    vm.word(0x4100_0008, MB | 2);
    assert_eq!(of(&contents(vm.clone()), content::MALLOC_MAPPED).0, 1);
    vm.map(0x4900_0000, 0x4900_1000, "r-xp", 0, "/usr/lib/libjemalloc.so.2");
    let map = read_map(vm.clone(), &[], 1_000).unwrap();
    assert_eq!(map.malloc, Some("jemalloc"));
    let found = contents(vm);
    assert_eq!(of(&found, content::MALLOC_MAPPED), (0, 0, 0));
    assert_eq!(of(&found, content::UNKNOWN).2, PAGE);
}

/// Writes a thread's descriptor at the end of its stack, with links to its neighbours in the list.
fn with_stack(vm: &mut FakeVm, start: u64, size: u64, tid: u32, (next, prev): (u64, u64)) {
    let node = node_of(start, size);
    vm.word(node, next);
    vm.word(node + 8, prev);
    vm.word(node + 16, u64::from(tid));
    vm.word(node + 0x3d0, start);
    vm.word(node + 0x3d8, size);
}

fn node_of(start: u64, size: u64) -> u64 {
    start + size - 0x900 + 0x2c0
}

#[test]
fn one_sleeping_thread_leads_to_the_stacks_of_all_threads() {
    let mut vm = FakeVm::new();
    // All stacks are in one mapping, followed by other data, as if guards were not separate mappings.
    let (first, size) = (0x4200_0000, 0x8_0000);
    vm.map(first, first + MB * 4, "rw-p", 0, "");
    let at = |index: u64| first + index * size;
    let node = |index: u64| node_of(at(index), size);
    // The head of the list, at another address, is between the last and the first thread.
    with_stack(&mut vm, at(0), size, 8, (node(1), 0x7777_0000));
    with_stack(&mut vm, at(1), size, 9, (node(2), node(0)));
    with_stack(&mut vm, at(2), size, 10, (0x7777_0000, node(1)));
    vm.touch(at(2) - 3 * PAGE, at(2));
    vm.touch(at(3), at(3) + PAGE);
    let pointer = at(2) - 2 * PAGE;
    vm.files.insert("/proc/7/task/8/syscall".to_owned(), "running\n".to_owned());
    vm.files.insert(
        "/proc/7/task/9/syscall".to_owned(),
        format!("202 0x1 0x2 0x3 0x4 0x5 0x6 {pointer:#x} 0x7f12\n"),
    );
    let threads = [(7, "other"), (8, "scheduler"), (9, "poll"), (10, "scheduler")];
    let found = contents_with(vm, &threads);
    assert_eq!(of(&found, "stacks/scheduler"), (2, 2 * size, 2 * PAGE));
    assert_eq!(of(&found, "stacks/poll"), (1, size, 3 * PAGE));
    assert_eq!(of(&found, content::UNKNOWN).2, PAGE);
}

#[test]
fn without_a_descriptor_the_mapping_after_a_guard_is_the_stack() {
    let mut vm = FakeVm::new();
    vm.map(0x4200_0000, 0x4200_1000, "---p", 0, "");
    vm.map(0x4200_1000, 0x4204_1000, "rw-p", 0, "");
    vm.touch(0x4204_0000, 0x4204_1000);
    vm.files.insert("/proc/7/task/8/syscall".to_owned(), "-1 0x42040100 0x7f12\n".to_owned());
    let found = contents_with(vm, &[(8, "scheduler")]);
    assert_eq!(of(&found, "stacks/scheduler"), (1, 0x4_0000, PAGE));
}

#[test]
fn a_thread_in_a_container_is_found_by_its_id_in_the_container() {
    let mut vm = FakeVm::new();
    let (start, size) = (0x4200_0000, 0x8_0000);
    vm.map(start, start + size, "rw-p", 0, "");
    with_stack(&mut vm, start, size, 3, (node_of(start, size), node_of(start, size)));
    vm.files.insert("/proc/7/status".to_owned(), "NSpid:\t7\t1\n".to_owned());
    vm.files.insert("/proc/7/task/8/status".to_owned(), "NSpid:\t8\t3\n".to_owned());
    vm.files
        .insert("/proc/7/task/8/syscall".to_owned(), format!("0 0x0 {:#x} 0x7f12\n", start + size - 0x1000));
    assert_eq!(of(&contents_with(vm, &[(8, "aux")]), "stacks/aux"), (1, size, PAGE));
}

#[test]
fn the_end_of_static_data_is_read_from_the_file() {
    let mut vm = FakeVm::new();
    // The mapping extends beyond the emulator's static data.
    vm.mappings.iter_mut().filter(|mapping| mapping.start == BSS).for_each(|mapping| mapping.end += 0x4000);
    vm.touch(BSS, BSS + BSS_BYTES + 0x2000);
    let found = contents(vm);
    assert_eq!(found[content::EMULATOR].resident, BSS_BYTES + PAGE);
    assert_eq!(of(&found, content::UNKNOWN).2, 0x2000);
}

#[test]
fn a_read_ends_when_its_budget_is_used_up() {
    let error = read_map(FakeVm::new(), &[], 600_000_000).unwrap().contents.unwrap().unwrap_err();
    assert!(matches!(error, HostError::OverBudget { .. }), "{error}");
    let error = |step| match read_map(FakeVm::new(), &[], step) {
        Ok(map) => map.contents.unwrap().err().map(|error| error.to_string()),
        Err(error) => Some(error.to_string()),
    };
    assert_eq!(error(1_000), None);
    assert!(error(BUDGET_NS).unwrap().contains("was stopped after"));
}

#[test]
fn without_access_to_memory_only_mappings_are_read() {
    let mut vm = FakeVm::new();
    vm.denied.insert("/proc/7/mem");
    let map = read_map(vm, &[], 1_000).unwrap();
    assert!(map.mappings["emulator"].resident > 0);
    assert!(matches!(map.contents, Some(Err(HostError::Denied { .. }))), "{:?}", map.contents);
    let mut vm = FakeVm::new();
    vm.denied.insert("/proc/7/smaps");
    assert!(matches!(read_map(vm, &[], 1_000), Err(HostError::Denied { .. })));
}

/// Generates words: addresses of the VM, sizes with flags, and arbitrary values.
fn word() -> impl Strategy<Value = u64> {
    let near = |base: u64| (0..0x400_u64, Just(base)).prop_map(|(offset, base)| base + offset * 8);
    prop_oneof![
        prop_oneof![near(RODATA), near(CODE), near(DATA), near(BSS), near(EHEAP_1), near(POOL)],
        prop_oneof![near(HEAP), near(CACHES), near(AREA), near(AREA + MB), near(AREA + 2 * MB)],
        (0..64_u64, 0..8_u64).prop_map(|(bits, flags)| (1_u64 << bits) | flags),
        (0..0x200_u64, 0..8_u64).prop_map(|(pages, flags)| (pages * PAGE) | flags),
        any::<u64>(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_memory_is_counted_once(
        patches in proptest::collection::vec((word(), word()), 0..60),
        swapped in proptest::collection::vec(word(), 0..3),
        glibc in any::<bool>(),
    ) {
        let mut vm = FakeVm::new();
        if glibc {
            with_glibc(&mut vm);
        }
        with_caches(&mut vm, &[&[(AREA + 8 * MB, MB)], &[]]);
        vm.carriers(EHEAP_1, SBCS, &[(AREA + 3 * MB, MB, MSEG | SBC), (AREA + 5 * MB, MB, SBC)]);
        vm.ring(POOL, &[(AREA + 6 * MB, MB, EHEAP_0), (AREA + 7 * MB, MB, EHEAP_1)]);
        vm.word(EHEAP_0 + LISTS_AT + SENTINEL, POOL);
        let is_mapped = |vm: &FakeVm, at: u64| {
            vm.mappings.iter().any(|mapping| (mapping.start..mapping.end).contains(&at) && mapping.rights == "rw-p")
        };
        for (at, word) in patches {
            if is_mapped(&vm, at & !7) {
                vm.word(at & !7, word);
            }
        }
        for page in swapped {
            if is_mapped(&vm, page) {
                vm.swap_out(page);
            }
        }
        // Either the contents are complete, or there is an error.
        let map = read_map(vm.clone(), &[], 0).unwrap();
        if map.contents.is_some_and(|contents| contents.is_ok()) {
            contents(vm);
        }
    }
}
