//! Reads the memory of a VM, which is neither stopped nor written to.
//!
//! Everything there is untrusted and may change between two reads: each read is bounded, and readers check what they find.

use std::cell::Cell;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// The memory of a process.
pub trait Memory {
    /// Fills `out` with the bytes from an address on; false if not all of them can be read.
    fn read(&self, address: u64, out: &mut [u8]) -> bool;

    /// Limit of a single read, in bytes. It is checked before memory is allocated.
    fn max_read_bytes(&self) -> usize {
        MAX_READ_BYTES
    }

    /// The bytes from an address on, at most [`Self::max_read_bytes`].
    fn bytes(&self, address: u64, length: usize) -> Option<Vec<u8>> {
        let mut out = vec![0; Some(length).filter(|length| *length <= self.max_read_bytes())?];
        self.read(address, &mut out).then_some(out)
    }

    /// The words from an address on, in the byte order of this host.
    fn words(&self, address: u64, count: usize) -> Option<Vec<u64>> {
        self.bytes(address, count.checked_mul(WORD_BYTES)?).map(|bytes| words_of(&bytes))
    }

    /// The word at an address.
    fn word(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; WORD_BYTES];
        self.read(address, &mut bytes).then(|| u64::from_ne_bytes(bytes))
    }
}

/// Limit of a single read. The largest thing that is read at once is the static data of the emulator, below 4 MB.
pub const MAX_READ_BYTES: usize = 64 << 20;

/// Size of a word of the VM.
pub const WORD_BYTES: usize = 8;

/// The lowest address that can be a pointer: the first page is never mapped.
const MIN_POINTER: u64 = 4096;
/// Bits of a user-mode address (x86-64 and ARM64 with 48-bit addresses, whose upper half is the kernel's).
const ADDRESS_BITS: u32 = 48;

/// Whether a word can be the address of a word of the process.
pub fn is_pointer(word: u64) -> bool {
    word >= MIN_POINTER && word.is_multiple_of(WORD_BYTES as u64) && word >> ADDRESS_BITS == 0
}

/// The word at an offset in some bytes; `None` if it is not complete.
pub fn word_at(bytes: &[u8], offset: u64) -> Option<u64> {
    let offset = usize::try_from(offset).ok()?;
    let word = bytes.get(offset..offset.checked_add(WORD_BYTES)?)?;
    word.first_chunk().map(|word| u64::from_ne_bytes(*word))
}

/// The words in some bytes; an incomplete one at the end is left out.
pub fn words_of(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks().0.iter().map(|bytes| u64::from_ne_bytes(*bytes)).collect()
}

/// `/proc/PID/mem`. It stays the memory of the same program: after an `exec` or the end of the process, reads fail.
#[derive(Debug)]
pub struct ProcessMemory(File);

impl ProcessMemory {
    /// Opens the memory of a process.
    ///
    /// # Errors
    /// Without the right to trace the process (ptrace(2): the same user or CAP_SYS_PTRACE, and what Yama allows).
    pub fn open(pid: u32) -> std::io::Result<ProcessMemory> {
        File::open(format!("/proc/{pid}/mem")).map(ProcessMemory)
    }
}

impl Memory for ProcessMemory {
    fn read(&self, address: u64, out: &mut [u8]) -> bool {
        // The kernel takes the offset as signed.
        i64::try_from(address).is_ok() && self.0.read_exact_at(out, address).is_ok()
    }
}

/// How much may be read for one task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReadLimit {
    /// Number of reads.
    pub reads: u64,
    /// Bytes of all reads together.
    pub bytes: u64,
}

/// Memory with a limit for each task, whose further reads fail. So a reader that follows forged pointers and counts ends, and what it keeps is
/// bounded, too.
#[derive(Debug)]
pub struct LimitedMemory<M> {
    memory: M,
    left: Cell<ReadLimit>,
}

impl<M> LimitedMemory<M> {
    /// Nothing can be read before [`Self::allow`].
    pub fn new(memory: M) -> LimitedMemory<M> {
        LimitedMemory { memory, left: Cell::default() }
    }

    /// Begins a task that may read this much.
    pub fn allow(&self, limit: ReadLimit) {
        self.left.set(limit);
    }

    /// How much the task may still read.
    pub fn left(&self) -> ReadLimit {
        self.left.get()
    }
}

impl<M: Memory> Memory for LimitedMemory<M> {
    fn read(&self, address: u64, out: &mut [u8]) -> bool {
        let left = self.left.get();
        let (Some(reads), Some(bytes)) =
            (left.reads.checked_sub(1), left.bytes.checked_sub(out.len() as u64))
        else {
            return false;
        };
        self.left.set(ReadLimit { reads, bytes });
        self.memory.read(address, out)
    }

    fn max_read_bytes(&self) -> usize {
        let ReadLimit { reads, bytes } = self.left.get();
        let left = if reads == 0 { 0 } else { usize::try_from(bytes).unwrap_or(usize::MAX) };
        self.memory.max_read_bytes().min(left)
    }
}

/// Memory in pieces, for tests.
#[cfg(test)]
#[derive(Debug, Clone, Default)]
pub struct Pieces(pub std::collections::BTreeMap<u64, Vec<u8>>);

#[cfg(test)]
impl Pieces {
    /// Writes words; pieces do not overlap.
    pub fn put(&mut self, address: u64, words: &[u64]) {
        self.0.insert(address, words.iter().flat_map(|word| word.to_ne_bytes()).collect());
    }
}

#[cfg(test)]
impl Memory for Pieces {
    fn read(&self, address: u64, out: &mut [u8]) -> bool {
        let piece = self.0.range(..=address).next_back();
        let found = piece.and_then(|(start, bytes)| {
            let from = usize::try_from(address - start).ok()?;
            bytes.get(from..from.checked_add(out.len())?)
        });
        found.is_some_and(|bytes| {
            out.copy_from_slice(bytes);
            true
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_this_process_is_read() {
        let memory = ProcessMemory::open(std::process::id()).unwrap();
        let value = Box::new(0x1234_5678_9abc_def0_u64);
        let address = std::ptr::from_ref(&*value) as u64;
        assert_eq!(memory.word(address), Some(*value));
        assert_eq!(memory.words(address, 1), Some(vec![*value]));
        assert_eq!(memory.word(8), None);
        assert_eq!(memory.word(u64::MAX), None);
        assert_eq!(memory.words(address, usize::MAX), None);
        assert_eq!(memory.bytes(address, MAX_READ_BYTES + 1), None);
    }

    #[test]
    fn a_task_reads_only_what_it_is_allowed_to() {
        let mut pieces = Pieces::default();
        pieces.put(0x1000, &[7; 8]);
        let memory = LimitedMemory::new(pieces);
        assert_eq!(memory.word(0x1000), None);
        memory.allow(ReadLimit { reads: 3, bytes: 32 });
        assert_eq!(memory.words(0x1000, 5), None, "more bytes than allowed");
        assert_eq!(memory.words(0x1000, 3), Some(vec![7; 3]));
        assert_eq!((memory.word(0x9000), memory.left()), (None, ReadLimit { reads: 1, bytes: 0 }));
        assert_eq!(memory.word(0x1000), None);
        memory.allow(ReadLimit { reads: 1, bytes: 32 });
        assert_eq!((memory.word(0x1000), memory.word(0x1000)), (Some(7), None));
    }

    #[test]
    fn pointers_are_aligned_addresses_of_user_mode() {
        let check = |word: u64, expect: bool| assert_eq!(is_pointer(word), expect, "{word:x}");
        check(0x7fff_0000_1000, true);
        check(0x1000, true);
        check(0x1004, false);
        check(0xff8, false);
        check(0, false);
        check(0xffff_8000_0000_0000, false);
    }

    #[test]
    fn an_incomplete_word_is_left_out() {
        assert_eq!(words_of(&[1, 0, 0, 0, 0, 0, 0, 0, 9]), [1_u64.to_le()]);
    }
}
