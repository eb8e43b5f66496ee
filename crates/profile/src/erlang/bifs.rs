//! BIFs: Erlang functions that are C functions of the emulator.
//!
//! `bif_table` (erl_bif_table.c) is an array with an entry for each BIF: module, function and arity, then the address of the C function, then
//! fields that differ between releases. It is found as the longest run of such entries.

use std::collections::HashMap;
use std::ops::Range;

use super::StaticData;
use super::atoms::{Atoms, is_atom};
use crate::memory::Memory;

/// Entries that a table must have before it is believed; OTP 23 to 29 have 400 to 600.
const MIN_ENTRIES: usize = 200;
/// Limit of entries.
const MAX_ENTRIES: usize = 10_000;
/// Sizes of an entry in words: five up to OTP 22, and some for fields that other releases may have.
const ENTRY_WORDS: Range<usize> = 4..9;
/// Largest arity of a BIF (`MAX_BIF_ARITY`, bif.h).
const MAX_ARITY: u64 = 10;

/// The BIFs of a VM, by the address of their C function.
#[derive(Debug, Default)]
pub struct Bifs(HashMap<u64, String>);

impl Bifs {
    /// Finds the table; `is_code` tells whether an address is in the code of the program.
    pub fn find(
        memory: &impl Memory,
        data: &[StaticData],
        atoms: &Atoms,
        is_code: impl Fn(u64) -> bool,
    ) -> Option<Bifs> {
        let is_entry = |words: &[u64]| {
            let [module, function, arity, code, ..] = words else { return false };
            is_atom(*module) && is_atom(*function) && u64::from(*arity as u32) <= MAX_ARITY && is_code(*code)
        };
        let tables = data.iter().flat_map(|data| {
            ENTRY_WORDS.filter_map(|size| longest_run(&data.words, size, &is_entry)).collect::<Vec<_>>()
        });
        let (words, size) = tables.max_by_key(|(words, size)| words.len() / size)?;
        let entries = words.chunks_exact(size).take(MAX_ENTRIES);
        let names = entries.filter_map(|entry| {
            let [module, function, arity, code, ..] = entry else { return None };
            let (module, function) = (atoms.name(memory, *module)?, atoms.name(memory, *function)?);
            Some((*code, format!("{module}:{function}/{}", *arity as u32)))
        });
        let names: HashMap<u64, String> = names.collect();
        (names.len() >= MIN_ENTRIES).then_some(Bifs(names))
    }

    /// The name of the BIF whose C function begins at an address.
    pub fn name_at(&self, function: u64) -> Option<&str> {
        self.0.get(&function).map(String::as_str)
    }
}

/// The longest run of entries of this size, with the size; `None` if there are less than [`MIN_ENTRIES`].
fn longest_run<'a>(
    words: &'a [u64],
    size: usize,
    is_entry: &impl Fn(&[u64]) -> bool,
) -> Option<(&'a [u64], usize)> {
    let (mut longest, mut index) = (0..0, 0);
    while index + size <= words.len() {
        let mut end = index;
        while words.get(end..end + size).is_some_and(is_entry) {
            end += size;
        }
        if end - index > longest.len() {
            longest = index..end;
        }
        index = end.max(index + 1);
    }
    let run = words.get(longest)?;
    (run.len() >= MIN_ENTRIES * size).then_some((run, size))
}

#[cfg(test)]
mod tests {
    use super::super::atoms::tests::{put_atoms, term};
    use super::*;
    use crate::memory::Pieces;

    #[test]
    fn the_table_is_found_in_entries_of_any_size() {
        let mut memory = Pieces::default();
        let atom_data = put_atoms(&mut memory, &[b"erlang", b"abs", b"ets", b"lookup"], false);
        let atoms = Atoms::find(&memory, &[atom_data]).unwrap();
        let code = 0x5000..0x9000;
        for size in ENTRY_WORDS {
            let entry = |number: u64| {
                let (module, function, arity) = if number == 1 { (5, 6, 2) } else { (3, 4, 1) };
                let mut words = vec![term(module), term(function), arity, code.start + 16 * number];
                words.resize(size, 0x7777);
                words
            };
            // Words that begin like an entry, before the table.
            let mut words = vec![7, term(3), term(4), 1, 0x10];
            words.extend((0..300).flat_map(entry));
            words.extend([term(3), 99]);
            let data = [StaticData { address: 0, words }];
            let bifs = Bifs::find(&memory, &data, &atoms, |address| code.contains(&address)).unwrap();
            assert_eq!(bifs.name_at(code.start), Some("erlang:abs/1"));
            assert_eq!(bifs.name_at(code.start + 16), Some("ets:lookup/2"));
            assert_eq!(bifs.name_at(code.start + 8), None);
            assert!(Bifs::find(&memory, &data, &atoms, |_| false).is_none());
        }
    }
}
