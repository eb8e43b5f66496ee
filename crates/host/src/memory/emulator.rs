//! The emulator of a VM: constants are read from its file, static data from the memory of the process.

use std::cell::RefCell;
use std::collections::HashMap;

use crate::tree::ReadAt;

use super::image::{Image, Range};
use super::smaps::Mapping;

/// Maximum size of static data that is searched; emulators have half a megabyte.
const MAX_DATA_BYTES: usize = 16 << 20;
/// Maximum number of pointers in static data that are followed.
const MAX_POINTERS: usize = 100_000;
/// Maximum length of a string, including its NUL.
const STRING_BYTES: usize = 16;

/// The emulator of a VM, mapped in a process.
#[derive(Debug)]
pub(super) struct Emulator<'a> {
    file: &'a dyn ReadAt,
    /// Mappings of its file.
    mappings: Vec<&'a Mapping>,
    /// Ranges of static data, sorted: `.data` and `.bss`.
    data: Vec<Range>,
    strings: RefCell<HashMap<u64, Option<String>>>,
}

impl<'a> Emulator<'a> {
    /// Creates an emulator; `bss` is static data that is not part of the file.
    pub fn new(file: &'a dyn ReadAt, mappings: Vec<&'a Mapping>, bss: impl Iterator<Item = Range>) -> Self {
        let of_file = mappings.iter().filter(|mapping| mapping.write);
        let of_file = of_file.map(|mapping| Range { start: mapping.start, end: mapping.end });
        let mut data: Vec<Range> = of_file.chain(bss).collect();
        data.sort_unstable();
        Emulator { file, mappings, data, strings: RefCell::default() }
    }

    /// Whether an address is in its code.
    pub fn is_code(&self, address: u64) -> bool {
        let has = |mapping: &&&Mapping| mapping.execute && (mapping.start..mapping.end).contains(&address);
        self.mappings.iter().find(has).is_some()
    }

    /// Whether an address is in its static data.
    pub fn is_data(&self, address: u64) -> bool {
        self.data.iter().any(|range| range.contains(address))
    }

    /// Returns the constant string at an address; `None` if absent of up to 15 bytes. It is read from the file, because its page may
    /// not be resident.
    pub fn string(&self, address: u64) -> Option<String> {
        let has = |mapping: &&&Mapping| !mapping.write && (mapping.start..mapping.end).contains(&address);
        let mapping = self.mappings.iter().find(has)?;
        if let Some(known) = self.strings.borrow().get(&address) {
            return known.clone();
        }
        let mut bytes = [0; STRING_BYTES];
        let offset = mapping.offset.checked_add(address - mapping.start)?;
        let read = self.file.read_at(offset, &mut bytes).unwrap_or(0);
        let bytes = bytes.get(..read).unwrap_or_default();
        let end = bytes.iter().position(|byte| *byte == 0);
        let string = end.and_then(|end| String::from_utf8(bytes.get(..end)?.to_vec()).ok());
        self.strings.borrow_mut().insert(address, string.clone());
        string
    }

    /// Reads the resident parts of the static data, ordered by address.
    pub fn pieces(&self, image: &Image<'_>) -> Vec<(u64, Vec<u8>)> {
        let (mut pieces, mut left) = (Vec::new(), MAX_DATA_BYTES);
        for range in &self.data {
            let mut address = range.start;
            while let Some(start) = image.pages.next_present(address, range.end) {
                let end = image.pages.present_until(start).min(range.end);
                let mut bytes = vec![0; usize::try_from(end - start).unwrap_or(usize::MAX).min(left)];
                if bytes.is_empty() {
                    return pieces;
                }
                left -= bytes.len();
                if image.read(start, &mut bytes) {
                    pieces.push((start, bytes));
                }
                address = end;
            }
        }
        pieces
    }

    /// Returns the targets of pointers in static data that refer to writable memory, sorted and without duplicates.
    pub fn pointers(&self, image: &Image<'_>, pieces: &[(u64, Vec<u8>)]) -> Vec<u64> {
        let words = pieces.iter().flat_map(|(_, bytes)| bytes.as_chunks::<8>().0);
        let is_memory = |address: u64| {
            address.is_multiple_of(8)
                && address != 0
                && (image.anonymous.find(address).is_some() || self.is_data(address))
        };
        let mut pointers: Vec<u64> =
            words.map(|word| u64::from_le_bytes(*word)).filter(|word| is_memory(*word)).collect();
        pointers.sort_unstable();
        pointers.dedup();
        pointers.truncate(MAX_POINTERS);
        pointers
    }
}
