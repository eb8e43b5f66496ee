//! Finds the functions that make a tail call to a given function.
//!
//! `ets_update_counter_3` looks up the table and then jumps to a static function that does the work, as does `ets_update_counter_4`: the
//! compiler turns a call at the end of a function into a jump. The BIF is then no longer on the stack, and in a stripped VM the static
//! function has no name. But the code that contains the jump has a name. So a nameless function gets the names of the functions that jump
//! to it.
//!
//! The code is searched for jump instructions with exactly this target. Bytes that only look like such a jump do not matter: the odds are
//! one in 4 billion for each of three million positions.

use std::ops::Range;

use crate::elf::{Elf, Section};

/// Maximum number of names; a function with more tail callers stays nameless.
const MAX_NAMES: usize = 3;

/// Returns the number of functions in an index of unwind tables. `None` if the index does not have the format that all linkers write, or is
/// too short for its count. With other formats, a multiplication may overflow.
pub fn entries(index: &Section) -> Option<usize> {
    // Version 1, and the encodings of the pointer to the tables, the count and the entries.
    const FORM: [u8; 4] = [1, 0x1b, 0x03, 0x3b];
    let count = index.data.get(8..12)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))?;
    let count = usize::try_from(count).ok()?;
    let has_room = count <= (index.data.len() - 12) / 8;
    (index.data.starts_with(&FORM) && has_room).then_some(count)
}

/// Returns the start of the function at an address, from the index of the unwind tables, which includes static functions.
pub fn start_of(index: &Section, address: u64) -> Option<u64> {
    let data = &index.data;
    let half =
        |at: usize| data.get(at..at.checked_add(4)?)?.first_chunk().map(|bytes| i32::from_le_bytes(*bytes));
    let count = entries(index)?;
    let start = |entry: usize| Some(index.range.start.wrapping_add_signed(i64::from(half(12 + entry * 8)?)));
    // The first entry after the address.
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        match start(middle)? <= address {
            true => low = middle + 1,
            false => high = middle,
        }
    }
    start(low.checked_sub(1)?)
}

/// Returns the names of the functions that jump to `start`, joined by `|`: `ets_update_counter_3`. Of names that differ only in their
/// arity, the first is kept. `None` if there are no names, or more than [`MAX_NAMES`].
pub fn caller_names(elf: &Elf, start: u64) -> Option<String> {
    let text = elf.text.as_ref()?;
    let mut names: Vec<String> =
        jumps(&text.data, &text.range, start).filter_map(|from| elf.name_at(from)).collect();
    names.sort();
    names.dedup_by(|later, first| without_arity(later) == without_arity(first));
    (1..=MAX_NAMES).contains(&names.len()).then(|| names.join("|"))
}

/// Returns `ets_insert_2` without `_2`.
fn without_arity(name: &str) -> &str {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    stem.strip_suffix('_').filter(|_| stem.len() < name.len()).unwrap_or(name)
}

/// Returns the addresses of jump instructions to `target`.
#[cfg(target_arch = "x86_64")]
fn jumps<'a>(code: &'a [u8], range: &'a Range<u64>, target: u64) -> impl Iterator<Item = u64> + 'a {
    // jmp rel32 is E9, jcc rel32 is 0F 80 to 0F 8F; relative to the next instruction.
    memchr::memchr2_iter(0xe9, 0x0f, code).filter_map(move |at| {
        let (length, distance) = match code.get(at..)? {
            [0xe9, a, b, c, d, ..] => (5, [*a, *b, *c, *d]),
            [0x0f, 0x80..=0x8f, a, b, c, d, ..] => (6, [*a, *b, *c, *d]),
            _ => return None,
        };
        let from = range.start.wrapping_add(at as u64);
        let to = from.wrapping_add(length).wrapping_add_signed(i64::from(i32::from_le_bytes(distance)));
        (to == target).then_some(from)
    })
}

/// Returns the addresses of jump instructions to `target`.
#[cfg(target_arch = "aarch64")]
fn jumps<'a>(code: &'a [u8], range: &'a Range<u64>, target: u64) -> impl Iterator<Item = u64> + 'a {
    // B is 000101 and 26 bits of signed distance in words, relative to the instruction itself.
    code.chunks_exact(4).enumerate().filter_map(move |(at, bytes)| {
        let word = u32::from_le_bytes(*bytes.first_chunk()?);
        let distance = i64::from((word << 6).cast_signed() >> 6) * 4;
        let from = range.start.wrapping_add(at as u64 * 4);
        (word >> 26 == 0b00_0101 && from.wrapping_add_signed(distance) == target).then_some(from)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;

    /// An index at 0x1000 of functions with these starts.
    fn index(starts: &[i32]) -> Section {
        let mut data = vec![1, 0x1b, 0x03, 0x3b, 0, 0, 0, 0];
        data.extend((starts.len() as i32).to_le_bytes());
        for start in starts {
            data.extend((start - 0x1000).to_le_bytes());
            data.extend([0; 4]);
        }
        Section { range: 0x1000..0x1000 + data.len() as u64, data: Arc::from(data) }
    }

    #[test]
    fn start_of_a_function_is_the_last_one_before_the_address() {
        let index = index(&[0x100, 0x180, 0x2000]);
        let check = |address, expect| assert_eq!(start_of(&index, address), expect, "{address:x}");
        check(0xff, None);
        check(0x100, Some(0x100));
        check(0x17f, Some(0x100));
        check(0x180, Some(0x180));
        check(0x5000, Some(0x2000));
        assert_eq!(start_of(&self::index(&[]), 0x100), None);
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn jumps_are_found_by_their_target() {
        let mut code = vec![0x90; 32];
        // A jump at 0x204 to 0x300, a conditional one at 0x210 to 0x1f0, and at 0x218 a call to 0x300.
        code[4] = 0xe9;
        code[5..9].copy_from_slice(&(0x300_i32 - 0x209).to_le_bytes());
        code[16..18].copy_from_slice(&[0x0f, 0x84]);
        code[18..22].copy_from_slice(&(0x1f0_i32 - 0x216).to_le_bytes());
        code[24] = 0xe8;
        code[25..29].copy_from_slice(&(0x300_i32 - 0x21d).to_le_bytes());
        let of = |target| jumps(&code, &(0x200..0x220), target).collect::<Vec<u64>>();
        assert_eq!(of(0x300), [0x204]);
        assert_eq!(of(0x1f0), [0x210]);
        assert_eq!(of(0x301), Vec::<u64>::new());
    }

    #[test]
    fn arity_is_the_number_at_the_end() {
        let check = |name, expect| assert_eq!(without_arity(name), expect, "{name}");
        check("ets_update_counter_3", "ets_update_counter");
        check("ets_select_12", "ets_select");
        check("db_hash", "db_hash");
        check("x86", "x86");
        check("_3", "");
        check("", "");
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(
            data in proptest::collection::vec(any::<u8>(), 0..100), is_index: bool, address: u64, start: u64,
        ) {
            let mut data = data;
            if is_index && data.len() >= 4 {
                data[..4].copy_from_slice(&[1, 0x1b, 0x03, 0x3b]);
            }
            let range = start..start.saturating_add(100);
            let section = Section { range: range.clone(), data: Arc::from(data.as_slice()) };
            start_of(&section, address);
            jumps(&data, &range, address).count();
        }
    }
}
