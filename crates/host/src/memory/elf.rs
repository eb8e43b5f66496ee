//! Calculates the memory size of a program or library, including static data that its file does not contain (`.bss`).

use super::image::word_at;

/// Number of bytes that are read at the beginning of a file.
pub(super) const HEAD_BYTES: usize = 4096;

/// Type of a loaded segment (PT_LOAD).
const LOAD: u32 = 1;

/// Calculates the size of a program's memory from its first mapped byte on. `None` unless it is a little-endian 64-bit ELF file whose
/// program headers are within the bytes read.
pub(super) fn extent(head: &[u8]) -> Option<u64> {
    let is_known = head.starts_with(&[0x7f, b'E', b'L', b'F', 2, 1]);
    let at = usize::try_from(word_at(head, 32)?).ok()?;
    let half =
        |offset: usize| head.get(offset..offset + 2)?.first_chunk().map(|bytes| u16::from_le_bytes(*bytes));
    let (entry, count) = (usize::from(half(54)?), usize::from(half(56)?));
    if !is_known || entry < 56 {
        return None;
    }
    let loads = (0..count).filter_map(|index| {
        let begin = at.checked_add(index.checked_mul(entry)?)?;
        let kind =
            head.get(begin..begin.checked_add(4)?)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))?;
        // p_offset, p_vaddr, p_memsz.
        let of = |offset: usize| word_at(head, begin.checked_add(offset)?);
        (kind == LOAD).then_some((of(8)?, of(16)?, of(40)?))
    });
    let mut first = None;
    let mut end = 0_u64;
    for (offset, address, size) in loads {
        if offset == 0 {
            first = Some(address);
        }
        end = end.max(address.checked_add(size)?);
    }
    end.checked_sub(first?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Creates a file with these segments: kind, offset, address, size in memory.
    fn file(segments: &[(u32, u64, u64, u64)]) -> Vec<u8> {
        let mut head = vec![0; 64 + 56 * segments.len()];
        head[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1]);
        head[32] = 64;
        head[54] = 56;
        head[56] = segments.len() as u8;
        for (index, (kind, offset, address, size)) in segments.iter().enumerate() {
            let begin = 64 + 56 * index;
            head[begin..begin + 4].copy_from_slice(&kind.to_le_bytes());
            for (at, value) in [(8, offset), (16, address), (40, size)] {
                head[begin + at..begin + at + 8].copy_from_slice(&value.to_le_bytes());
            }
        }
        head
    }

    #[test]
    fn extent_covers_all_loaded_segments() {
        let check = |segments: &[(u32, u64, u64, u64)], expect| assert_eq!(extent(&file(segments)), expect);
        check(&[(6, 64, 64, 9_999_999), (1, 0, 0, 0x1000), (1, 0x2000, 0x3000, 0x5678)], Some(0x8678));
        // The extent is relative to the first segment, not to address 0.
        check(&[(1, 0, 0x40_0000, 0x1000), (1, 0x2000, 0x60_0000, 0x10)], Some(0x20_0010));
        check(&[(1, 0x1000, 0x1000, 0x1000)], None);
        check(&[], None);
        check(&[(1, 0, u64::MAX, 2)], None);
        assert_eq!(extent(b"#!/bin/sh"), None);
        assert_eq!(extent(b""), None);
        // A 32-bit file.
        let mut head = file(&[(1, 0, 0, 0x1000)]);
        head[4] = 1;
        assert_eq!(extent(&head), None);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(mut head in proptest::collection::vec(any::<u8>(), 0..300), is_elf in any::<bool>()) {
            if let (true, Some(start)) = (is_elf, head.first_chunk_mut()) {
                *start = [0x7f, b'E', b'L', b'F', 2, 1];
            }
            let _ = extent(&head);
        }
    }
}
