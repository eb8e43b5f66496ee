//! Source lines of code addresses.
//!
//! `BeamCodeLineTab` (beam_code.h): a pointer to the file names, the size of a location in bytes (2 or 4), a pointer to the locations, and for each
//! function a pointer to the addresses at which a new line begins. The code header points to it; the place is found by form.

use std::ops::Range;

use crate::memory::{Memory, WORD_BYTES, is_pointer};

/// Words of a table before the pointers of its functions.
const HEAD_WORDS: usize = 3;
/// Lines of a location; the bits above are the number of the file (`LOC_LINE`, beam_load.h).
const LINE_MASK: u32 = 0xff_ffff;
/// Limit of the addresses of one function.
const MAX_LINES: u64 = 1 << 20;

/// The lines of a module.
#[derive(Debug)]
pub struct LineTable {
    location_bytes: u64,
    locations: u64,
    /// For each function the first of its addresses; the last word is the end.
    functions: Vec<u64>,
}

impl LineTable {
    /// Finds the table of a module: `header` is the beginning of its code header, `code` its range.
    pub fn find(
        memory: &impl Memory,
        header: &[u64],
        functions: usize,
        code: Range<u64>,
    ) -> Option<LineTable> {
        header.iter().skip(1).filter(|word| is_pointer(**word)).find_map(|address| {
            let [_, location_bytes, locations] = *memory.words(*address, HEAD_WORDS)?.first_chunk()?;
            let location_bytes = Some(location_bytes & 0xffff_ffff).filter(|bytes| [2, 4].contains(bytes))?;
            let functions =
                memory.words(address + (HEAD_WORDS * WORD_BYTES) as u64, functions.checked_add(1)?)?;
            let is_ascending = functions.windows(2).all(|pair| pair[0] <= pair[1]);
            let first = functions.first().filter(|first| is_pointer(**first))?;
            let is_code =
                memory.word(*first).is_some_and(|address| code.contains(&address) || address == code.end);
            (is_ascending && is_code).then_some(LineTable { location_bytes, locations, functions })
        })
    }

    /// The line of an address in the function with this index.
    pub fn line_at(&self, memory: &impl Memory, function: usize, address: u64) -> Option<u32> {
        let (from, to) = (self.functions.get(function)?, self.functions.get(function + 1)?);
        let count = (to - from) / 8;
        let count = usize::try_from(count).ok().filter(|_| (1..=MAX_LINES).contains(&count))?;
        let begins = memory.words(*from, count + 1)?;
        let index = begins.windows(2).position(|pair| (pair[0]..pair[1]).contains(&address))?;
        let index = (from - self.functions.first()?) / 8 + index as u64;
        let mut location = [0; 4];
        let bytes = location.get_mut(..usize::try_from(self.location_bytes).ok()?)?;
        let at = self.locations.checked_add(index.checked_mul(self.location_bytes)?)?;
        memory.read(at, bytes).then(|| u32::from_le_bytes(location) & LINE_MASK).filter(|line| *line > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Pieces;

    #[test]
    fn an_address_has_the_line_that_begins_before_it() {
        let mut memory = Pieces::default();
        // Two functions: lines at 0x7000_0010 and 0x7000_0020, and at 0x7000_0040.
        let begins = 0x50_0000;
        memory.put(begins, &[0x7000_0010, 0x7000_0020, 0x7000_0040, 0x7000_0060]);
        memory.put(0x51_0000, &[0x99, 4, 0x52_0000, begins, begins + 16, begins + 24]);
        let locations: Vec<u8> =
            [12_u32, 1 << 24 | 15, 40].iter().flat_map(|line| line.to_le_bytes()).collect();
        memory.0.insert(0x52_0000, locations);
        let header = [2, 0, 0x4_0000, 0x51_0000];
        let table = LineTable::find(&memory, &header, 2, 0x7000_0000..0x7000_0060).unwrap();
        let check = |function: usize, address: u64, line: Option<u32>| {
            assert_eq!(table.line_at(&memory, function, address), line, "{address:x}");
        };
        check(0, 0x7000_0010, Some(12));
        check(0, 0x7000_001f, Some(12));
        check(0, 0x7000_0020, Some(15));
        check(1, 0x7000_0050, Some(40));
        check(1, 0x7000_0010, None);
        check(2, 0x7000_0010, None);
        assert!(LineTable::find(&memory, &[2, 0, 0x52_0000], 2, 0x7000_0000..0x7000_0060).is_none());
    }
}
