//! The Erlang side of a VM's memory, read from outside: names of functions by address, and the call stacks of Erlang processes.
//!
//! Distributions strip the emulator, and the layout of its structures differs between releases. So nothing here depends on symbols or on offsets
//! per release: each structure is found by its form, in the writable static data of the program and in what that points to.
//!
//! ```text
//! static data ──> code (ranges of modules ──> functions) ──┐
//!            ├──> atoms (names) ───────────────────────────┼──> stack: frames of a process
//!            └──> fragments (shared code of the JIT) ──────┘
//! ```
//!
//! Verified on OTP 25, 27 and 29 with the JIT, and on 23 with the interpreter, x86-64.

pub mod atoms;
pub mod bifs;
pub mod code;
pub mod fragments;
#[cfg(test)]
pub(crate) mod hostile;
pub mod lines;
pub mod process;
pub mod process_name;
pub mod stack;

use std::ops::Range;

use crate::image::Mapping;
use crate::memory::{Memory, words_of};

/// Limit of all static data; OTP 29 has 1 MB.
const MAX_STATIC_BYTES: u64 = 32 << 20;

/// Part of the program's writable static data (`.data` and `.bss`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StaticData {
    /// Address of the first word.
    pub address: u64,
    /// The words.
    pub words: Vec<u64>,
}

/// The writable static data of a program: its writable mappings, and the anonymous one directly behind (`.bss`).
pub fn static_data(memory: &impl Memory, mappings: &[Mapping], program: &str) -> Vec<StaticData> {
    let mut data = Vec::new();
    let mut end = None;
    let mut room = MAX_STATIC_BYTES;
    for mapping in mappings.iter().filter(|mapping| mapping.is_writable) {
        let is_own = mapping.path == program;
        let is_bss = mapping.path.is_empty() && end == Some(mapping.range.start);
        if !(is_own || is_bss) {
            continue;
        }
        end = is_own.then_some(mapping.range.end);
        let length = (mapping.range.end - mapping.range.start).min(room);
        room -= length;
        let bytes = usize::try_from(length).ok().and_then(|length| memory.bytes(mapping.range.start, length));
        data.extend(bytes.map(|bytes| StaticData { address: mapping.range.start, words: words_of(&bytes) }));
    }
    data
}

/// Where generated code is: executable memory of no file.
pub fn generated_code(mappings: &[Mapping]) -> Vec<Range<u64>> {
    let is_generated =
        |mapping: &&Mapping| mapping.is_code && !mapping.is_of_a_file() && !mapping.path.starts_with('[');
    mappings.iter().filter(is_generated).map(|mapping| mapping.range.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Pieces;

    #[test]
    fn static_data_and_generated_code_are_chosen_from_the_mappings() {
        let mapping = |start: u64, rights: &str, path: &str| Mapping {
            range: start..start + 0x1000,
            is_code: rights.contains('x'),
            is_writable: rights.contains('w'),
            offset: 0,
            path: path.to_owned(),
        };
        let mappings = [
            mapping(0x1000, "x", "/bin/beam.smp"),
            mapping(0x2000, "w", "/bin/beam.smp"),
            mapping(0x3000, "w", ""),
            mapping(0x4000, "w", ""),
            mapping(0x6000, "w", "/lib/libc.so"),
            mapping(0x7000, "w", ""),
            mapping(0x8000, "wx", ""),
            mapping(0x9000, "x", "/memfd:vmem (deleted)"),
            mapping(0xa000, "x", "[vdso]"),
        ];
        let mut memory = Pieces::default();
        memory.put(0x2000, &[7; 512]);
        memory.put(0x3000, &[8; 512]);
        memory.put(0x4000, &[9; 512]);
        memory.put(0x7000, &[9; 512]);
        let found: Vec<_> = static_data(&memory, &mappings, "/bin/beam.smp")
            .iter()
            .map(|data| (data.address, data.words.len(), data.words[0]))
            .collect();
        assert_eq!(found, [(0x2000, 512, 7), (0x3000, 512, 8)]);
        assert_eq!(generated_code(&mappings), [0x8000..0x9000, 0x9000..0xa000]);
    }
}
