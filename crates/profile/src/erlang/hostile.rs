//! Tests of all readers with memory that a hostile VM might show: a small VM with damaged words, and memory that is readable everywhere.
//!
//! Whatever is there, no reader panics, and each ends within the reads and bytes that it may read. The memory that it allocates is bounded
//! by them.

mod allocations;

use std::cell::Cell;

use proptest::prelude::*;
use proptest::sample::Index;

use super::StaticData;
use super::atoms::Atoms;
use super::atoms::tests::{put_atoms, term};
use super::code::Code;
use super::code::tests::put_module;
use super::fragments::Fragments;
use super::process::{Convention, HeapOffset, PROCESS_WORDS};
use super::process_name::ProcessNames;
use super::stack;
use crate::memory::{LimitedMemory, Memory, Pieces, ReadLimit, WORD_BYTES, words_of};

/// Small limits, so that hostile memory reaches them in a test.
const LIMIT: ReadLimit = ReadLimit { reads: 5_000, bytes: 1 << 20 };
/// Limit of what readers allocate, in bytes. A word of a table becomes a function and its name, and collections double.
const MAX_ALLOCATED_BYTES: i64 = 16 * LIMIT.bytes as i64;
/// The static data.
pub(crate) const DATA: u64 = 0xa000;
/// Two modules, with a function of 64 bytes each, and the line table of the first.
pub(crate) const MODULES: [u64; 2] = [0x7000_0000, 0x7100_0000];
const LINES: u64 = 0x51_0000;
/// A process, the structure with its registered name, and its heap.
const PROCESS: u64 = 0x80_0000;
const REGISTRATION: u64 = 0x81_0000;
const HEAP: u64 = 0x90_0000;
/// The entries of the JIT's description.
const ENTRIES: [u64; 2] = [0x1_0000, 0x1_1000];
/// Where processes end.
const NORMAL_EXIT: u64 = 0x7200_0100;

/// A VM with two modules, a fragment, and a process that is in the first module.
pub(crate) fn vm() -> Pieces {
    let mut memory = Pieces::default();
    let names: [&[u8]; 4] = [b"shop", b"cart", b"loop", b"\x1b[31m\n"];
    let segments = put_atoms(&mut memory, &names, false).words[4];
    let first = put_module(&mut memory, MODULES[0], 3, &[(4, 1)]);
    let second = put_module(&mut memory, MODULES[1], 5, &[(6, 0)]);
    memory.put(0x60_0000, &[first.0, first.1, second.0, second.1]);
    let ranges = [0x60_0000, 2, 512, 0x60_0010, 0, 0, 0, 0, 0, 0, 0, 0];
    memory.put(DATA, &[&[segments, 0][..], &ranges, &[1, 0, ENTRIES[0], 0]].concat());
    // Line 12 in the function of the first module.
    set(&mut memory, MODULES[0], 3, LINES);
    let begins = LINES + 0x1000;
    memory.put(LINES, &[0x99, 4, LINES + 0x2000, begins, begins + 8]);
    memory.put(begins, &[first.1 - 64, first.1]);
    memory.put(LINES + 0x2000, &[12]);
    let info = [0, 0, NORMAL_EXIT, 0];
    memory.put(ENTRIES[0], &[ENTRIES[1], 0, ENTRIES[0] + 0x100, 32]);
    memory.put(ENTRIES[0] + 0x100, &info);
    // One fragment "gc" in the entry "global".
    let mut global = [&[1, 0, 0, 0, 0, 0, 0, 0][..], &0x7200_0000_u64.to_ne_bytes()].concat();
    global.extend([1, 0, 0, 0, 0, 16, 0, 0, 7, 0]);
    global.extend(b"global\0\0\0\0\0\0\0");
    global.extend([0, 0, 0, 0, 0x80, 0, 0, 0, 0, 0, 0, 0, 3, 0]);
    global.extend(b"gc\0\0\0");
    memory.put(ENTRIES[1], &[0, ENTRIES[0], ENTRIES[1] + 0x100, global.len() as u64]);
    memory.0.insert(ENTRIES[1] + 0x100, global);
    put_process(&mut memory, first.1 - 16);
    memory
}

/// A process that was called from code before this address.
fn put_process(memory: &mut Pieces, back: u64) {
    let mut process = vec![0; 128];
    process[0] = 0x85 << 4 | 3;
    (process[10], process[11], process[16], process[17]) = (HEAP + 80, HEAP + 800, HEAP, HEAP + 824);
    (process[7], process[50], process[51], process[52]) = (REGISTRATION, term(3), term(6), 0);
    memory.put(PROCESS, &process);
    memory.put(REGISTRATION, &[0, 0, PROCESS, 0, term(6)]);
    let mut heap = vec![0x15; 103];
    (heap[100], heap[102]) = (back, NORMAL_EXIT);
    memory.put(HEAP, &heap);
}

/// Writes a word of a piece.
pub(crate) fn set(memory: &mut Pieces, piece: u64, index: usize, value: u64) {
    let bytes = memory.0.get_mut(&piece).unwrap();
    if let Some(place) = bytes.get_mut(index * WORD_BYTES..(index + 1) * WORD_BYTES) {
        place.copy_from_slice(&value.to_ne_bytes());
    }
}

/// What the readers found.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    functions: usize,
    lines: Vec<u32>,
    fragment: Option<String>,
    number: Option<u64>,
    name: Option<String>,
    frames: usize,
    is_complete: bool,
}

/// Runs all readers over some memory.
fn read_all(memory: &impl Memory, data: &[StaticData]) -> Found {
    let mut found = Found::default();
    let fragments = Fragments::find(memory, data).unwrap_or_default();
    found.fragment = fragments.name_at(0x7200_0010).map(str::to_owned);
    let mut heap = HeapOffset::default();
    let process = heap.read(memory, &Convention::INTERPRETER, PROCESS);
    found.number = process.map(|process| process.number);
    let Some(atoms) = Atoms::find(memory, data) else { return found };
    found.name = ProcessNames::default().read(memory, &atoms, PROCESS).registered;
    let Some(mut code) = Code::find(memory, data, &atoms) else { return found };
    code.refresh(memory, &atoms);
    found.functions = code.functions();
    let addresses = MODULES.into_iter().flat_map(|start| (start..start + 0x200).step_by(8));
    found.lines = addresses.filter_map(|address| code.line_at(memory, address)).collect();
    found.lines.dedup();
    if let Some(process) = process {
        let count = usize::try_from(process.hend - process.stop).unwrap() / WORD_BYTES;
        let words = memory.words(process.stop, count).unwrap_or_default();
        let stack = stack::frames(&words, &code, &fragments, false);
        (found.frames, found.is_complete) = (stack.frames.len(), stack.is_complete);
    }
    found
}

/// The static data of a VM, as it is now.
fn static_data_of(memory: &Pieces) -> Vec<StaticData> {
    vec![StaticData { address: DATA, words: words_of(&memory.0[&DATA]) }]
}

/// Counts reads and their bytes.
struct Counting<'a, M> {
    memory: M,
    read: &'a Cell<ReadLimit>,
}

impl<M: Memory> Memory for Counting<'_, M> {
    fn read(&self, address: u64, out: &mut [u8]) -> bool {
        let ReadLimit { reads, bytes } = self.read.get();
        self.read.set(ReadLimit { reads: reads + 1, bytes: bytes + out.len() as u64 });
        self.memory.read(address, out)
    }
}

/// Runs all readers, and checks that they read and allocate no more than they may.
fn check(memory: impl Memory, data: &[StaticData]) -> Found {
    let read = Cell::default();
    let limited = LimitedMemory::new(Counting { memory, read: &read });
    limited.allow(LIMIT);
    let (found, peak) = allocations::peak_of(|| read_all(&limited, data));
    assert!(peak <= MAX_ALLOCATED_BYTES, "{peak} bytes");
    let ReadLimit { reads, bytes } = read.get();
    assert!(reads <= LIMIT.reads && bytes <= LIMIT.bytes, "{reads} reads, {bytes} bytes");
    // Each function that is kept was read from a word at least.
    assert!((found.functions * WORD_BYTES) as u64 <= bytes, "{found:?}");
    found
}

/// Memory that repeats some words at all addresses.
struct Everywhere(Vec<u64>);

impl Memory for Everywhere {
    fn read(&self, address: u64, out: &mut [u8]) -> bool {
        for (index, byte) in out.iter_mut().enumerate() {
            let at = address.wrapping_add(index as u64);
            let word = self.0[(at / 8) as usize % self.0.len()];
            *byte = word.to_ne_bytes()[(at % 8) as usize];
        }
        true
    }
}

/// A damaged word.
#[derive(Debug, Clone)]
enum Damage {
    Word(u64),
    /// The address of any piece.
    Pointer(Index),
}

fn damages() -> impl Strategy<Value = Vec<(Index, Index, Damage)>> {
    let words = prop_oneof![
        Just(0),
        Just(u64::MAX),
        Just(u64::MAX - 7),
        Just(1 << 47),
        Just((1 << 48) - 8),
        Just(u64::from(u32::MAX)),
        0_u64..2_000,
        any::<u64>(),
    ];
    let damage = prop_oneof![words.prop_map(Damage::Word), any::<Index>().prop_map(Damage::Pointer)];
    proptest::collection::vec((any::<Index>(), any::<Index>(), damage), 1..6)
}

#[test]
fn the_undamaged_vm_is_read_completely() {
    let memory = vm();
    let data = static_data_of(&memory);
    let expect = Found {
        functions: 2,
        lines: vec![12],
        fragment: Some("gc".to_owned()),
        number: Some(0x85),
        name: Some("\u{1b}[31m\n".to_owned()),
        frames: 1,
        is_complete: true,
    };
    assert_eq!(check(memory, &data), expect);
}

#[test]
fn a_module_at_the_end_of_the_address_space_is_left_out() {
    let mut memory = vm();
    let last = u64::MAX - 7;
    set(&mut memory, 0x60_0000, 3, u64::MAX);
    for index in 17..19 {
        set(&mut memory, MODULES[1], index, last);
    }
    let data = static_data_of(&memory);
    assert_eq!(check(memory, &data).functions, 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_damaged_vm_is_read_within_the_limits(damages in damages()) {
        let mut memory = vm();
        let pieces: Vec<u64> = memory.0.keys().copied().collect();
        for (piece, index, damage) in damages {
            let piece = *piece.get(&pieces);
            let words = memory.0[&piece].len() / WORD_BYTES;
            let value = match damage {
                Damage::Word(word) => word,
                Damage::Pointer(other) => *other.get(&pieces),
            };
            set(&mut memory, piece, index.index(words.max(1)), value);
        }
        let data = static_data_of(&memory);
        check(memory, &data);
    }

    #[test]
    fn memory_that_is_readable_everywhere_is_read_within_the_limits(
        words in proptest::collection::vec(prop_oneof![0_u64..64, 0x1000_u64..0x2000, any::<u64>()], 1..40),
        aligned: bool,
    ) {
        let words: Vec<u64> = words.into_iter().map(|word| if aligned { word & !7 } else { word }).collect();
        let data = vec![StaticData { address: DATA, words: words.repeat(3) }];
        check(Everywhere(words), &data);
    }

    #[test]
    fn arbitrary_stacks_and_code_do_not_panic(
        words in proptest::collection::vec(any::<u64>(), 0..PROCESS_WORDS),
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let memory = vm();
        let data = static_data_of(&memory);
        let atoms = Atoms::find(&memory, &data).unwrap();
        let code = Code::find(&memory, &data, &atoms).unwrap();
        let stack = stack::frames(&words, &code, &Fragments::default(), true);
        prop_assert!(stack.frames.len() <= words.len());
        if let Some(convention) = Convention::find(&bytes) {
            convention.saved_in(&bytes);
            HeapOffset::default().read(&Everywhere(vec![1]), &convention, 0x1000);
        }
    }
}
