//! Names of atoms.
//!
//! `erts_atom_table` (atom.c, index.c) is an array of segments with 1,024 pointers to atoms each. An atom has its own index at +16 (`IndexSlot`),
//! its length, and a pointer to its name; since OTP 29 the pointer is a tagged one to a binary on the literal heap. The places of length and name
//! are found with the first three atoms, whose names are the same in all releases (atom.names).

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::StaticData;
use crate::memory::{Memory, is_pointer};

/// Atoms of a segment (`INDEX_PAGE_SIZE`, index.h).
const SEGMENT_ATOMS: u64 = 1_024;
/// Atoms that must have the right index before a segment is believed.
const CHECKED_ATOMS: usize = 24;
/// Names of the first atoms.
const FIRST_NAMES: [&[u8]; 3] = [b"false", b"true", b"_"];
/// Offset of the index in an atom.
const INDEX_OFFSET: u64 = 16;
/// Bytes of an atom in which length and name are searched.
const ATOM_BYTES: u64 = 64;
/// Longest name: 255 characters of 4 bytes (MAX_ATOM_SZ_LIMIT, atom.h).
const MAX_NAME_BYTES: usize = 1_020;
/// Limit of the names that are kept; those of 100,000 atoms take 2 MB. Further ones are read each time.
const MAX_KNOWN_BYTES: usize = 64 << 20;
/// Low bits of an atom term, and their value (`_TAG_IMMED2_ATOM`, erl_term.h).
const TAG_MASK: u64 = 0x3f;
const TAG: u64 = 0x0b;
/// Number of bits of the tag.
const TAG_BITS: u32 = 6;

/// Whether a term is an atom.
pub fn is_atom(term: u64) -> bool {
    term & TAG_MASK == TAG && term >> TAG_BITS <= u64::from(u32::MAX)
}

/// Where the parts of an atom are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Layout {
    /// Offset of the 16-bit length.
    length: u64,
    /// Offset of the pointer to the name.
    name: u64,
    /// Tag bits of this pointer.
    tag_mask: u64,
    /// Bytes before the name, where the pointer leads.
    header: u64,
}

/// The atom table of a VM.
#[derive(Debug)]
pub struct Atoms {
    segments: u64,
    layout: Layout,
    /// Names of atoms that were read. Atoms never change.
    known: RefCell<HashMap<u64, Arc<str>>>,
    /// How many bytes of names may still be kept.
    room: Cell<usize>,
}

impl Atoms {
    /// Finds the atom table.
    pub fn find(memory: &impl Memory, data: &[StaticData]) -> Option<Atoms> {
        let mut seen = HashSet::new();
        let pointers = data.iter().flat_map(|data| &data.words).filter(|word| is_pointer(**word));
        pointers.filter(|word| seen.insert(**word)).find_map(|segments| {
            let first = memory.word(*segments).filter(|first| is_pointer(*first))?;
            let atoms = memory.words(first, CHECKED_ATOMS)?;
            let has_index = |(index, atom): (usize, &u64)| {
                is_pointer(*atom)
                    && memory.word(atom + INDEX_OFFSET).is_some_and(|word| word as u32 as usize == index)
            };
            if !atoms.iter().enumerate().all(has_index) {
                return None;
            }
            let layout = Layout::find(memory, &atoms)?;
            Some(Atoms {
                segments: *segments,
                layout,
                known: RefCell::default(),
                room: Cell::new(MAX_KNOWN_BYTES),
            })
        })
    }

    /// The name of an atom; `None` if the term is no atom, or cannot be read now.
    pub fn name(&self, memory: &impl Memory, term: u64) -> Option<Arc<str>> {
        let index = Some(term >> TAG_BITS).filter(|_| is_atom(term))?;
        if let Some(name) = self.known.borrow().get(&index) {
            return Some(Arc::clone(name));
        }
        let segment =
            memory.word(self.segments + 8 * (index / SEGMENT_ATOMS)).filter(|found| is_pointer(*found))?;
        let atom = memory.word(segment + 8 * (index % SEGMENT_ATOMS)).filter(|found| is_pointer(*found))?;
        let found = memory.word(atom + INDEX_OFFSET)? as u32;
        let bytes = self.layout.name(memory, atom).filter(|_| u64::from(found) == index)?;
        let name: Arc<str> = match std::str::from_utf8(&bytes) {
            Ok(name) => name.into(),
            // Before OTP 26 some names may be Latin-1.
            Err(_) => bytes.iter().map(|byte| char::from(*byte)).collect::<String>().into(),
        };
        // Each entry takes some memory beside its text.
        let entry_bytes = name.len() + size_of::<(u64, Arc<str>)>();
        if let Some(room) = self.room.get().checked_sub(entry_bytes) {
            self.room.set(room);
            self.known.borrow_mut().insert(index, Arc::clone(&name));
        }
        Some(name)
    }
}

impl Layout {
    /// Finds the places with the atoms whose names are known.
    fn find(memory: &impl Memory, atoms: &[u64]) -> Option<Layout> {
        // A plain pointer, and tagged pointers to a binary behind its header.
        let forms = [(0, 0), (7, 16), (3, 16), (7, 8), (7, 24)];
        let names = (24..ATOM_BYTES).step_by(8);
        let layouts = names.flat_map(|name| {
            forms.into_iter().flat_map(move |(tag_mask, header)| {
                let lengths = (INDEX_OFFSET + 4..40).step_by(2);
                lengths.map(move |length| Layout { length, name, tag_mask, header })
            })
        });
        let is_right = |layout: &Layout| {
            atoms
                .iter()
                .zip(FIRST_NAMES)
                .all(|(atom, name)| layout.name(memory, *atom).as_deref() == Some(name))
        };
        layouts.into_iter().find(is_right)
    }

    /// The name of the atom at an address.
    fn name(self, memory: &impl Memory, atom: u64) -> Option<Vec<u8>> {
        let mut length = [0; 2];
        let is_read = memory.read(atom + self.length, &mut length);
        let length = Some(usize::from(u16::from_ne_bytes(length))).filter(|_| is_read)?;
        let pointer = memory.word(atom + self.name)? & !self.tag_mask;
        let name = pointer.checked_add(self.header).filter(|_| pointer != 0 && length <= MAX_NAME_BYTES)?;
        memory.bytes(name, length)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::memory::Pieces;

    /// Address of the table's segments.
    const SEGMENTS: u64 = 0x10_0000;

    /// The term of the atom with this index.
    pub(crate) fn term(index: u64) -> u64 {
        index << TAG_BITS | TAG
    }

    /// Writes an atom table with these names, after the first three; returns the static data that points to it. `boxed`: as in OTP 29.
    pub(crate) fn put_atoms(memory: &mut Pieces, names: &[&[u8]], boxed: bool) -> StaticData {
        let mut names: Vec<&[u8]> = FIRST_NAMES.into_iter().chain(names.iter().copied()).collect();
        while names.len() < CHECKED_ATOMS {
            names.push(b"filler");
        }
        let atom = |index: usize| 0x20_0000 + 0x1000 * index as u64;
        memory.put(SEGMENTS, &[SEGMENTS + 0x1000]);
        memory.put(SEGMENTS + 0x1000, &(0..names.len()).map(atom).collect::<Vec<_>>());
        for (index, name) in names.iter().enumerate() {
            let at = atom(index);
            let pointer = if boxed { at + 0x100 + 2 } else { at + 0x100 };
            memory.put(at, &[0, 77, index as u64, name.len() as u64, pointer, 0, 0, 0]);
            let header = if boxed { 16 } else { 0 };
            memory.0.insert(at + 0x100, [vec![0xee; header], name.to_vec()].concat());
        }
        StaticData { address: 0x9000, words: vec![0, 5, 0x1003, SEGMENTS + 0x1000, SEGMENTS] }
    }

    #[test]
    fn names_are_found_in_both_forms() {
        for boxed in [false, true] {
            let mut memory = Pieces::default();
            let data = put_atoms(&mut memory, &[b"lists", "grün".as_bytes(), b"gr\xfcn"], boxed);
            let atoms = Atoms::find(&memory, &[data]).unwrap();
            let check = |term: u64, name: Option<&str>| {
                assert_eq!(atoms.name(&memory, term).as_deref(), name, "{term:x} {boxed}");
                // Also from the cache.
                assert_eq!(atoms.name(&memory, term).as_deref(), name, "{term:x} {boxed}");
            };
            check(term(0), Some("false"));
            check(term(3), Some("lists"));
            check(term(4), Some("grün"));
            check(term(5), Some("grün"));
            check(term(99), None);
            check(term(1 << 40), None);
            check(3 << TAG_BITS | 0x0f, None);
        }
    }

    #[test]
    fn other_memory_is_no_atom_table() {
        let mut memory = Pieces::default();
        let data = put_atoms(&mut memory, &[], false);
        // The third atom has another index.
        memory.put(0x20_2000, &[0, 77, 3, 1, 0x20_2100, 0, 0, 0]);
        assert!(Atoms::find(&memory, &[data]).is_none());
        assert!(Atoms::find(&memory, &[]).is_none());
    }
}
