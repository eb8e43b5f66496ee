//! Shared code of the JIT that belongs to no module: fragments that call BIFs, collect garbage, or raise errors.
//!
//! BeamAsm describes all of its code to debuggers through gdb's JIT interface (`__jit_debug_descriptor`), always, from OTP 25 on
//! (beam_asm_metadata.cpp, beam_jit_metadata.cpp). The descriptor is found by its form. One entry has the address where every process ends
//! (`normal_exit`); it is the last return address of a complete stack.

use super::StaticData;
use crate::fields::Fields;
use crate::memory::{Memory, WORD_BYTES, is_pointer};

/// Limit of entries: one for each module that was ever loaded.
const MAX_ENTRIES: usize = 200_000;
/// Limit of one entry: a module has 100 bytes for each function, and some for each line.
const MAX_ENTRY_BYTES: u64 = 16 << 20;
/// Limit of all entries together.
const MAX_BYTES: u64 = 256 << 20;
/// Limit of fragments; OTP 29 has about 200.
const MAX_FRAGMENTS: usize = 10_000;
/// Longest name; those of OTP 25 to 29 have up to 60 bytes.
const MAX_NAME_BYTES: usize = 1_024;
/// Names of the entries that hold fragments: OTP 25 and 27 to 29.
const FRAGMENT_ENTRIES: [&[u8]; 2] = [b"global", b"erts_beamasm"];

/// Words of the descriptor, and which of them is the first entry.
const DESCRIPTOR_WORDS: usize = 3;
const FIRST_ENTRY: usize = 2;

/// The kinds of entries.
const KIND_INFO: u32 = 0;
const KIND_CODE: u32 = 1;

/// A fragment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fragment {
    start: u64,
    end: u64,
    name: String,
}

/// Fragments, and where processes end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fragments {
    /// Sorted by address.
    all: Vec<Fragment>,
    /// The return address at the bottom of each stack.
    pub normal_exit: Option<u64>,
}

impl Fragments {
    /// Finds the fragments; `None` without a JIT.
    pub fn find(memory: &impl Memory, data: &[StaticData]) -> Option<Fragments> {
        data.iter().find_map(|data| {
            let windows = data.words.windows(DESCRIPTOR_WORDS).enumerate();
            windows.filter(|(_, words)| may_be_descriptor(words)).find_map(|(index, _)| {
                // The VM may have loaded code since it was read, which is at the front of the list now.
                let first = data.address + ((index + FIRST_ENTRY) * WORD_BYTES) as u64;
                read(memory, memory.word(first)?)
            })
        })
    }

    /// The name of the fragment at an address.
    pub fn name_at(&self, address: u64) -> Option<&str> {
        let after = self.all.partition_point(|fragment| fragment.start <= address);
        let fragment = self.all.get(after.checked_sub(1)?)?;
        (address < fragment.end).then_some(fragment.name.as_str())
    }
}

/// Whether the words have the form of the descriptor: version and action, an entry that is just added or removed, and the first entry.
fn may_be_descriptor(words: &[u64]) -> bool {
    let [version_and_action, relevant, first] = words else { return false };
    *version_and_action as u32 == 1
        && version_and_action >> 32 <= 2
        && (*relevant == 0 || is_pointer(*relevant))
        && is_pointer(*first)
}

/// Reads the list of entries; `None` for anything else, which lacks the entry with the end of processes.
fn read(memory: &impl Memory, first: u64) -> Option<Fragments> {
    let (mut found, mut next, mut before) = (Fragments::default(), first, None);
    let mut room = MAX_BYTES;
    for _ in 0..MAX_ENTRIES {
        if next == 0 {
            break;
        }
        let entry = memory.words(next, 4).filter(|_| is_pointer(next));
        let entry = entry.and_then(|words| <[u64; 4]>::try_from(words).ok());
        let Some([after, previous, content, length]) = entry else { break };
        // The VM does not initialise this field of the first entry (measured, OTP 25).
        let is_linked = before.is_none_or(|before| previous == before);
        if !is_linked || length > MAX_ENTRY_BYTES.min(room) {
            break;
        }
        room -= length;
        let mut start = [0; 64];
        let length = usize::try_from(length).ok()?;
        let start = start.get_mut(..length.min(64))?;
        if memory.read(content, start) {
            let mut fields = Fields(start);
            match fields.u32() {
                Some(KIND_INFO) => {
                    fields.skip(4);
                    fields.skip(8);
                    found.normal_exit = fields.u64().filter(|address| is_pointer(*address));
                }
                Some(KIND_CODE) => {
                    // Modules are named by their own tables, which are also valid while code is loaded.
                    if entry_name(start).is_some_and(|name| FRAGMENT_ENTRIES.contains(&name)) {
                        let bytes = memory.bytes(content, length).unwrap_or_default();
                        fragments(&bytes, &mut found.all);
                    }
                }
                _ => break,
            }
        }
        (before, next) = (Some(next), after);
    }
    found.all.sort_by_key(|fragment| fragment.start);
    found.normal_exit.is_some().then_some(found)
}

/// The name of an entry of code, without the zero at its end.
fn entry_name(content: &[u8]) -> Option<&[u8]> {
    let mut fields = Fields(content);
    fields.skip(8 + 8 + 4 + 4);
    let length = fields.u16()?;
    fields.bytes(usize::from(length).checked_sub(1)?)
}

/// Appends the functions of an entry of code.
fn fragments(content: &[u8], out: &mut Vec<Fragment>) {
    let mut fields = Fields(content);
    fields.skip(8);
    let (Some(base), Some(count), Some(_code_size), Some(name_length)) =
        (fields.u64(), fields.u32(), fields.u32(), fields.u16())
    else {
        return;
    };
    fields.skip(usize::from(name_length) + 6);
    for _ in 0..count {
        if out.len() >= MAX_FRAGMENTS {
            break;
        }
        let (Some(start), Some(end), Some(lines), Some(length)) =
            (fields.u32(), fields.u32(), fields.u32(), fields.u16())
        else {
            break;
        };
        let Some(name) = fields.bytes(usize::from(length)).filter(|name| name.len() <= MAX_NAME_BYTES) else {
            break;
        };
        let name = name.strip_suffix(&[0]).unwrap_or(name);
        let name = name.strip_prefix(b"global::").unwrap_or(name);
        let (Some(start), Some(end)) = (base.checked_add(start.into()), base.checked_add(end.into())) else {
            break;
        };
        out.push(Fragment { start, end, name: String::from_utf8_lossy(name).into_owned() });
        fields.skip(2);
        for _ in 0..lines {
            fields.skip(8);
            let Some(length) = fields.u16() else { break };
            fields.skip(2 + usize::from(length));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Pieces;

    /// An entry of code with one line for each function.
    fn code_entry(name: &str, base: u64, functions: &[(u32, u32, &str)]) -> Vec<u8> {
        let mut out = [KIND_CODE.to_ne_bytes(), [0; 4]].concat();
        out.extend(base.to_ne_bytes());
        out.extend((functions.len() as u32).to_ne_bytes());
        out.extend(4_096_u32.to_ne_bytes());
        out.extend((name.len() as u16 + 1).to_ne_bytes());
        out.extend([name.as_bytes(), &[0; 7]].concat());
        for (start, end, name) in functions {
            out.extend([start.to_ne_bytes(), end.to_ne_bytes(), 1_u32.to_ne_bytes()].concat());
            out.extend((name.len() as u16 + 1).to_ne_bytes());
            out.extend([name.as_bytes(), &[0; 3]].concat());
            out.extend([start.to_ne_bytes(), 7_u32.to_ne_bytes()].concat());
            out.extend(4_u16.to_ne_bytes());
            out.extend([0; 6]);
        }
        out
    }

    #[test]
    fn fragments_and_the_end_of_processes_are_found() {
        let mut memory = Pieces::default();
        let info = [[0, 0, 0, 0], [0; 4], [1, 0, 0, 0], [0; 4]].concat();
        memory.0.insert(0x3_0000, [info, 0x7000_0100_u64.to_ne_bytes().to_vec(), vec![0; 8]].concat());
        let global =
            code_entry("global", 0x7000_0000, &[(0x40, 0x80, "global::call_bif_shared"), (0x10, 0x20, "gc")]);
        let module = code_entry("lists", 0x7100_0000, &[(0, 0x80, "lists:map/2")]);
        memory.put(0x1_0000, &[0x1_1000, 0, 0x3_0000, 32]);
        memory.put(0x1_1000, &[0x1_2000, 0x1_0000, 0x4_0000, global.len() as u64]);
        memory.put(0x1_2000, &[0, 0x1_1000, 0x5_0000, module.len() as u64]);
        memory.0.insert(0x4_0000, global);
        memory.0.insert(0x5_0000, module);
        let data = StaticData { address: 0x9000, words: vec![1, 0, 0x8_0000, 1, 0, 0x1_0000, 0] };
        memory.put(data.address, &data.words);
        let found = Fragments::find(&memory, std::slice::from_ref(&data)).unwrap();
        assert_eq!(found.normal_exit, Some(0x7000_0100));
        let check =
            |address: u64, name: Option<&str>| assert_eq!(found.name_at(address), name, "{address:x}");
        check(0x7000_0040, Some("call_bif_shared"));
        check(0x7000_007f, Some("call_bif_shared"));
        check(0x7000_0010, Some("gc"));
        check(0x7000_0030, None);
        check(0x7100_0010, None);
        // The VM has loaded code since the static data were read.
        memory.put(0x1_3000, &[0x1_0000, 0x77, 0x5_0000, 16]);
        memory.put(0x1_0000, &[0x1_1000, 0x1_3000, 0x3_0000, 32]);
        memory.put(data.address, &[1, 0, 0x8_0000, 1, 0x1_3000, 0x1_3000, 0]);
        assert_eq!(Fragments::find(&memory, &[data]), Some(found));
    }

    #[test]
    fn a_list_that_leads_back_ends() {
        let mut memory = Pieces::default();
        memory.put(0x1_0000, &[0x1_0000, 0, 0x3_0000, 32]);
        memory.put(0x3_0000, &[0, 0, 0x7000_0100, 0]);
        let expect = Fragments { all: Vec::new(), normal_exit: Some(0x7000_0100) };
        assert_eq!(read(&memory, 0x1_0000), Some(expect));
        // Another list may begin alike.
        memory.put(0x3_0000, &[0, 0, 0, 0]);
        assert_eq!(read(&memory, 0x1_0000), None);
        assert_eq!(read(&memory, 0x7_0000), None);
    }
}
