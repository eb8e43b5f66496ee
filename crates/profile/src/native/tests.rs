use std::cell::Cell;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;

/// Addresses of the code that has a table.
const CODE: Range<u64> = 0x1000..0x9000;
/// Addresses of the table, and of its index.
const EH_FRAME: u64 = 0x10_0000;
const INDEX: u64 = 0x20_0000;
/// Stack pointer of the samples.
const SAMPLED_SP: u64 = 0x7000_0000;

/// A table of functions of 256 bytes: their starts and rules. All begin with those of a call: CFA = rsp + 8, return address at CFA - 8.
fn table(functions: &[(u64, &[u8])]) -> Vec<u8> {
    // Version 1, no augmentation, alignments of code and data, the column of the return address, and the rules.
    let common: [u8; 16] = [0, 0, 0, 0, 1, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1, 0, 0];
    let mut out = [&16_u32.to_ne_bytes()[..], &common].concat();
    for (start, rules) in functions {
        let length = 4 + 8 + 8 + rules.len() as u32;
        out.extend(length.to_ne_bytes());
        out.extend((out.len() as u32).to_ne_bytes());
        out.extend([start.to_ne_bytes(), 0x100_u64.to_ne_bytes()].concat());
        out.extend(*rules);
    }
    out
}

fn section(address: u64, data: &[u8]) -> Section {
    Section { range: address..address + data.len() as u64, data: Arc::from(data) }
}

fn unwinder(table: &[u8]) -> NativeUnwinder {
    let mut elf = Elf::default();
    elf.eh_frame = Some(section(EH_FRAME, table));
    let mut unwinder = NativeUnwinder::default();
    unwinder.add(&elf, CODE, 0);
    unwinder
}

/// A thread at an address, with numbered registers.
fn registers(ip: u64) -> RegisterSet {
    let mut registers = RegisterSet { ip, ..RegisterSet::default() };
    for (number, value) in registers.values.iter_mut().enumerate() {
        *value = Some(number as u64);
    }
    registers.values[SP] = Some(SAMPLED_SP);
    registers
}

/// Reads some words at the stack pointer.
fn words(stack: &[u64]) -> impl Fn(u64) -> Option<u64> {
    |address| stack.get(usize::try_from(address.checked_sub(SAMPLED_SP)?).ok()? / 8).copied()
}

/// The end of a stack: the return address is undefined.
const FIRST: &[u8] = &[0x07, 16];

#[test]
#[cfg(target_arch = "x86_64")]
fn callers_and_their_registers_are_restored() {
    // The second function keeps rbx at CFA - 16 and needs 24 bytes more.
    let mut unwinder = unwinder(&table(&[(0x1000, &[]), (0x2000, &[0x83, 2, 0x0e, 32]), (0x3000, FIRST)]));
    let stack = [0x2010, 0, 0, 77, 0x3010];
    // The second time, the rules are known.
    for _ in 0..2 {
        let found = unwinder.unwind(registers(0x1080), None, words(&stack));
        assert_eq!((found.frames, found.end), (vec![0x1080, 0x200f, 0x300f], StackEnd::Bottom));
        let caller = found.callers[2];
        assert_eq!((caller.values[SP], caller.values[RBX]), (Some(SAMPLED_SP + 40), Some(77)));
        assert_eq!((caller.values[R13], caller.values[0]), (Some(13), None));
    }
    let until = unwinder.unwind(registers(0x1080), Some(&(0x2000..0x2100)), words(&stack));
    assert_eq!((until.frames, until.end), (vec![0x1080, 0x200f], StackEnd::Generated));
    let generated = unwinder.unwind(registers(0x1080), None, words(&[0xa000]));
    assert_eq!((generated.frames, generated.end), (vec![0x1080], StackEnd::Generated));
    assert_eq!((generated.registers.ip, generated.registers.values[R13]), (0xa000, Some(13)));
    let cut = unwinder.unwind(registers(0x1080), None, words(&[0x2010]));
    assert_eq!((cut.frames, cut.end), (vec![0x1080, 0x200f], StackEnd::Cut));
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_register_that_is_restored_already_is_not_below_the_stack() {
    let mut unwinder = unwinder(&table(&[(0x1000, &[0x83, 2]), (0x3000, FIRST)]));
    let found = unwinder.unwind(registers(0x1080), None, words(&[0x3010]));
    assert_eq!((found.end, found.registers.values[RBX]), (StackEnd::Bottom, Some(3)));
}

#[test]
#[cfg(target_arch = "x86_64")]
fn code_without_rules_is_a_leaf_or_has_a_frame_pointer() {
    let mut unwinder = unwinder(&table(&[(0x1000, &[]), (0x3000, FIRST)]));
    let mut registers = registers(0x5000);
    registers.values[FP] = Some(SAMPLED_SP + 16);
    let stack = [0x5010, 0, SAMPLED_SP + 64, 0x3010];
    let found = unwinder.unwind(registers, None, words(&stack));
    assert_eq!((found.frames, found.end), (vec![0x5000, 0x500f, 0x300f], StackEnd::Bottom));
    assert_eq!(found.registers.values[FP], Some(SAMPLED_SP + 64));
    // A frame pointer that leads back.
    registers.values[FP] = Some(SAMPLED_SP - 64);
    assert_eq!(unwinder.unwind(registers, None, words(&stack)).end, StackEnd::Lost);
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_stub_of_the_linker_has_one_word_more_behind_its_push() {
    // CFA = rsp + 8 + ((rip & 15) >= 11) * 8.
    let rules = [0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22];
    let mut unwinder = unwinder(&table(&[(0x1000, &rules), (0x3000, FIRST)]));
    let mut check = |ip: u64, stack: &[u64]| {
        let found = unwinder.unwind(registers(ip), None, words(stack));
        assert_eq!((found.frames, found.end), (vec![ip, 0x300f], StackEnd::Bottom));
    };
    check(0x1020, &[0x3010]);
    check(0x102b, &[7, 0x3010]);
}

#[test]
#[cfg(target_arch = "x86_64")]
fn an_index_leads_to_the_rules() {
    // The entries are behind the common part, which takes 20 bytes.
    let table = table(&[(0x1000, &[]), (0x3000, FIRST)]);
    let check = |entries: [i32; 2], expect: &[u64]| {
        let mut index = vec![1, 0x1b, 3, 0x3b, 0, 0, 0, 0, 2, 0, 0, 0];
        for (start, entry) in [0x1000, 0x3000].into_iter().zip(entries) {
            index.extend([start - INDEX as i32, entry - INDEX as i32].map(i32::to_le_bytes).concat());
        }
        let mut elf = Elf::default();
        elf.eh_frame = Some(section(EH_FRAME, &table));
        elf.eh_frame_hdr = Some(section(INDEX, &index));
        let mut unwinder = NativeUnwinder::default();
        unwinder.add(&elf, CODE, 0);
        let found = unwinder.unwind(registers(0x1080), None, words(&[0x3010]));
        assert_eq!(found.frames, expect, "{entries:x?}");
        // The index has a neighbour of this address only.
        assert_eq!(unwinder.unwind(registers(0x1180), None, words(&[])).end, StackEnd::Cut);
    };
    let at = EH_FRAME as i32 + 20;
    check([at, at + 24], &[0x1080, 0x300f]);
    // Entries before the table and behind it are none: the code is taken for a leaf.
    check([0x100, at + 24], &[0x1080, 0x300f]);
    check([i32::MAX, at + 24], &[0x1080, 0x300f]);
}

#[test]
fn an_endless_expression_ends() {
    // The CFA is an expression that jumps to itself.
    let mut unwinder = unwinder(&table(&[(0x1000, &[0x0f, 3, 0x2f, 0xfd, 0xff])]));
    let found = unwinder.unwind(registers(0x1080), None, words(&[]));
    assert_eq!((found.frames, found.end), (vec![0x1080], StackEnd::Lost));
}

/// Reads of one frame: the CFA and each register have an expression, and each of its steps may read a word.
const MAX_READS: usize = (1 + COUNT) * (MAX_EXPRESSION_STEPS as usize + 1);

proptest! {
    #[test]
    fn a_damaged_table_is_read_within_the_limits(
        damages in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        rules in proptest::collection::vec(any::<u8>(), 0..40),
        stack in proptest::collection::vec(prop_oneof![CODE, any::<u64>()], 0..40),
        ip in CODE,
    ) {
        let mut table = table(&[(0x1000, &[]), (0x1100, &[0x83, 2, 0x0e, 32]), (ip, &rules), (0x3000, FIRST)]);
        for (index, byte) in damages {
            *index.get_mut(&mut table) = byte;
        }
        let reads = Cell::new(0);
        let found = unwinder(&table).unwind(registers(ip), None, |address| {
            reads.set(reads.get() + 1);
            words(&stack)(address)
        });
        prop_assert!(found.frames.len() <= MAX_FRAMES && found.callers.len() == found.frames.len());
        prop_assert!(reads.get() <= MAX_READS * found.frames.len(), "{} reads", reads.get());
    }
}
