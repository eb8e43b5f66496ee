//! Where a process has its heap and its stack, and how generated code calls C.
//!
//! The structure of a process (`Process`, erl_process.h) begins with its identifier. Its stack grows down from the end of its heap (`hend`). While
//! generated code runs on x86-64, the stack pointer is that of the process (rsp); before it calls C it saves this pointer in the process (`stop`)
//! or in rbp, and continues on the stack of the scheduler, at a fixed distance from rbx. The code of the JIT contains both offsets.

use memchr::memmem;

use crate::memory::{Memory, WORD_BYTES};

/// Words of a process that are read. `hend` is word 17 in OTP 25 and word 25 in OTP 27 and 29 (measured).
pub const PROCESS_WORDS: usize = 32;
/// Offset of the identifier's number in a process, in bits, and its length (`_PID_DATA_SIZE`, erl_term.h).
const PID_SHIFT: u32 = 4;
const PID_MASK: u64 = 0xfff_ffff;
/// Low bits of an identifier (`_TAG_IMMED1_PID`, erl_term.h).
const PID_TAG: u64 = 0x3;
const TAG_MASK: u64 = 0xf;
/// Longest heap: 64 GB (judgement: the largest processes in public reports have some GB).
const MAX_HEAP_BYTES: u64 = 64 << 30;

/// Bytes of code behind a call of C in which the stack of the process is restored.
pub const RETURN_CODE_BYTES: usize = 96;

/// `mov rsp, [r13 + d]`: the stack pointer is taken from the process.
const STACK_FROM_PROCESS: [u8; 3] = [0x49, 0x8b, 0x65];
/// `mov rsp, rbp`.
const STACK_FROM_RBP: [u8; 3] = [0x48, 0x89, 0xec];
/// `lea rsp, [rbx - d]`: to the stack of the scheduler.
const TO_SCHEDULER_STACK: [u8; 3] = [0x48, 0x8d, 0x63];

/// How the JIT of a VM keeps stacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Convention {
    /// Offset of `stop` in a process.
    pub stop: u64,
    /// Distance of the scheduler's stack pointer from rbx, when C is called.
    pub scheduler_stack: i64,
}

/// Where the stack of a process is while it is on the scheduler's stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SavedIn {
    /// In `stop`.
    Process,
    /// In rbp.
    Rbp,
}

impl Convention {
    /// Of a VM without JIT, whose code does not tell. `stop` is at the same place in OTP 23 to 29 (measured, x86-64).
    pub const INTERPRETER: Convention = Convention { stop: 0x58, scheduler_stack: 0 };

    /// Finds it in generated code.
    pub fn find(code: &[u8]) -> Option<Convention> {
        let stop = most_common(code, STACK_FROM_PROCESS)?;
        let distance = most_common(code, TO_SCHEDULER_STACK)?;
        Some(Convention { stop: stop.into(), scheduler_stack: i64::from(distance as i8) })
    }

    /// What the code behind a call of C restores the stack of the process from.
    pub fn saved_in(&self, code: &[u8]) -> Option<SavedIn> {
        let [a, b, c] = STACK_FROM_PROCESS;
        let from_process = memmem::find(code, &[a, b, c, self.stop as u8]);
        match (from_process, memmem::find(code, &STACK_FROM_RBP)) {
            (Some(process), Some(rbp)) if rbp < process => Some(SavedIn::Rbp),
            (Some(_), _) => Some(SavedIn::Process),
            (None, Some(_)) => Some(SavedIn::Rbp),
            (None, None) => None,
        }
    }
}

/// The byte that follows a pattern most often.
fn most_common(code: &[u8], pattern: [u8; 3]) -> Option<u8> {
    let mut counts = [0_u32; 256];
    for at in memmem::find_iter(code, &pattern) {
        if let Some(byte) = code.get(at + pattern.len()) {
            counts[usize::from(*byte)] += 1;
        }
    }
    let counted = (0..=u8::MAX).zip(counts).filter(|(_, count)| *count > 0);
    counted.max_by_key(|(_, count)| *count).map(|(byte, _)| byte)
}

/// Heap and stack of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessStack {
    /// Address of the process.
    pub address: u64,
    /// Number of the process: the middle part of its identifier, as in `<0.NUMBER.SERIAL>` with both joined.
    pub number: u64,
    /// Start of the heap.
    pub heap: u64,
    /// The stack pointer, as it was saved last.
    pub stop: u64,
    /// End of heap and stack.
    pub hend: u64,
}

/// Finds `heap` and `hend` in processes: the only neighbouring words around `htop` and `stop` in all of them.
#[derive(Debug, Clone, Default)]
pub struct HeapOffset {
    /// Words that are still possible, after some processes.
    candidates: Option<Vec<usize>>,
}

impl HeapOffset {
    /// Reads the process at an address; `None` for anything else, and while the place of its heap is not certain.
    pub fn read(
        &mut self,
        memory: &impl Memory,
        convention: &Convention,
        process: u64,
    ) -> Option<ProcessStack> {
        let words = memory.words(process, PROCESS_WORDS)?;
        let id = *words.first()?;
        let at = usize::try_from(convention.stop).ok()? / WORD_BYTES;
        let (htop, stop) = (*words.get(at.checked_sub(1)?)?, *words.get(at)?);
        let is_heap = |index: &usize| {
            let (heap, hend) = (words[*index], words[*index + 1]);
            let is_around = heap != 0 && heap <= htop && htop <= stop && stop <= hend;
            is_around && (heap | hend) % WORD_BYTES as u64 == 0 && hend - heap <= MAX_HEAP_BYTES
        };
        if id & TAG_MASK != PID_TAG {
            return None;
        }
        let known = self.candidates.clone().unwrap_or_else(|| (at + 1..PROCESS_WORDS - 1).collect());
        let left: Vec<usize> = known.into_iter().filter(is_heap).collect();
        // A process whose heap is just being moved fits nowhere.
        let index = *left.first()?;
        let is_certain = left.len() == 1;
        self.candidates = Some(left);
        is_certain.then(|| ProcessStack {
            address: process,
            number: id >> PID_SHIFT & PID_MASK,
            heap: words[index],
            stop,
            hend: words[index + 1],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Pieces;

    const CONVENTION: Convention = Convention { stop: 0x58, scheduler_stack: -0x80 };

    #[test]
    fn the_convention_is_read_from_generated_code() {
        let code = [
            &[0x90, 0x48, 0x8d, 0x63, 0x80, 0xff, 0xd0][..],
            &[0x49, 0x8b, 0x65, 0x58, 0x49, 0x8b, 0x65, 0x10, 0x49, 0x8b, 0x65, 0x58],
            &[0x48, 0x8d, 0x63, 0x80],
        ];
        assert_eq!(Convention::find(&code.concat()), Some(CONVENTION));
        assert_eq!(Convention::find(&[0x90; 10]), None);
    }

    #[test]
    fn the_code_behind_a_call_tells_where_the_stack_is() {
        let check = |code: &[u8], expect| assert_eq!(CONVENTION.saved_in(code), expect, "{code:x?}");
        check(&[0x90, 0x49, 0x8b, 0x65, 0x58, 0x48, 0x89, 0xec], Some(SavedIn::Process));
        check(&[0x48, 0x89, 0xec, 0x49, 0x8b, 0x65, 0x58], Some(SavedIn::Rbp));
        check(&[0x49, 0x8b, 0x65, 0x10], None);
        check(&[0x48, 0x89, 0xec], Some(SavedIn::Rbp));
        check(&[], None);
    }

    /// A process with heap and hend at word 16, as in OTP 25, and with another pair around its pointers at word 20.
    fn process(heap: u64, stop: u64, decoy: (u64, u64)) -> Vec<u64> {
        let mut words = vec![0; PROCESS_WORDS];
        words[0] = 0x85 << PID_SHIFT | PID_TAG;
        (words[10], words[11]) = (heap + 80, stop);
        (words[16], words[17]) = (heap, stop + 400);
        (words[20], words[21]) = decoy;
        words
    }

    #[test]
    fn the_heap_is_certain_once_only_one_place_fits() {
        let mut memory = Pieces::default();
        memory.put(0x1_0000, &process(0x5_0000, 0x5_1000, (0x4_0000, 0x6_0000)));
        memory.put(0x2_0000, &process(0x9_0000, 0x9_1000, (0x4_0000, 0x6_0000)));
        let mut offset = HeapOffset::default();
        let mut read = |address| offset.read(&memory, &CONVENTION, address);
        assert_eq!(read(0x1_0000), None, "two places fit");
        let second =
            ProcessStack { address: 0x2_0000, number: 0x85, heap: 0x9_0000, stop: 0x9_1000, hend: 0x9_1190 };
        assert_eq!(read(0x2_0000), Some(second));
        assert_eq!(read(0x1_0000).map(|process| process.heap), Some(0x5_0000));
        assert_eq!(read(0x7_0000), None);
    }

    #[test]
    fn a_process_whose_heap_is_being_moved_is_left_out() {
        let mut memory = Pieces::default();
        memory.put(0x1_0000, &process(0x5_0000, 0x5_1000, (0, 0)));
        memory.put(0x2_0000, &process(0x5_0000, 0x1000, (0, 0)));
        let mut offset = HeapOffset::default();
        assert!(offset.read(&memory, &CONVENTION, 0x1_0000).is_some());
        assert_eq!(offset.read(&memory, &CONVENTION, 0x2_0000), None);
        assert!(offset.read(&memory, &CONVENTION, 0x1_0000).is_some(), "it is still known");
    }
}
