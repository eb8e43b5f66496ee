//! `/proc/PID/smaps`: the mappings of a process, and their kinds.
//!
//! For this file, the kernel walks the page tables of each mapping, as for `smaps_rollup`. But it releases the process's mmap lock between
//! parts of the text. See proc_pid_smaps(5).

use beamtune_model::memory::mapping as kinds;

use crate::error::HostError;
use crate::text;
use crate::tree::ReadAt;

use super::meter::Meter;

/// Maximum number of mappings; the kernel's own default limit (vm.max_map_count) is 65,530.
pub const MAX_MAPPINGS: usize = 65_536;
/// Maximum size of the text; a mapping needs about 700 bytes plus its path.
const MAX_BYTES: u64 = 64 << 20;
/// Size of the buffer; the kernel returns some pages of text per read.
const STEP: usize = 64 * 1024;
/// Maximum length of a line, which contains a path of up to 4,096 bytes; some of them are escaped as four bytes.
const MAX_LINE_BYTES: usize = 32 * 1024;

/// A mapping. Sizes are in bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mapping {
    /// Start address.
    pub start: u64,
    /// End address, exclusive.
    pub end: u64,
    /// Readable.
    pub read: bool,
    /// Writable.
    pub write: bool,
    /// Executable.
    pub execute: bool,
    /// Shared: writes are visible to other processes.
    pub shared: bool,
    /// Offset in the file.
    pub offset: u64,
    /// The file, or the kernel's name such as `[heap]`; empty for anonymous memory.
    pub path: String,
    /// Resident memory: Rss.
    pub resident: u64,
    /// Proportional set size: Pss.
    pub pss: u64,
    /// Memory in pages that other processes have mapped, too: Shared_Clean and Shared_Dirty.
    pub shared_pages: u64,
    /// Swapped-out memory: Swap.
    pub swapped: u64,
    /// Freed with MADV_FREE, but not reclaimed yet: LazyFree.
    pub lazy_free: u64,
    /// Memory in transparent huge pages: AnonHugePages.
    pub huge: u64,
}

impl Mapping {
    /// The size of its address space.
    pub fn size(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Whether it is private memory that does not come from a file, including [heap] and [stack].
    pub fn is_anonymous(&self) -> bool {
        let is_named = |path: &str| path.starts_with("[anon:") || matches!(path, "" | "[heap]" | "[stack]");
        !self.shared && is_named(&self.path)
    }

    /// Whether it has no access rights: reserved address space, or a guard.
    pub fn is_reserved(&self) -> bool {
        !(self.read || self.write || self.execute)
    }

    /// Parses `55d0-7ffd rw-p 00000000 00:00 0    [heap]`.
    fn parse_header(line: &[u8]) -> Option<Mapping> {
        let mut rest = line;
        let mut field = || {
            let begin = rest.iter().position(|byte| *byte != b' ')?;
            let end = rest[begin..].iter().position(|byte| *byte == b' ').map_or(rest.len(), |at| begin + at);
            let field = &rest[begin..end];
            rest = &rest[end..];
            Some(field)
        };
        let (range, rights, offset) = (field()?, field()?, field()?);
        let (_device, _inode) = (field()?, field()?);
        let dash = range.iter().position(|byte| *byte == b'-')?;
        let (start, end) = (hexadecimal(&range[..dash])?, hexadecimal(&range[dash + 1..])?);
        let &[read, write, execute, shared] = rights else { return None };
        let path = String::from_utf8_lossy(rest.trim_ascii_start()).into_owned();
        (start < end).then_some(Mapping {
            start,
            end,
            read: read == b'r',
            write: write == b'w',
            execute: execute == b'x',
            shared: shared == b's',
            offset: hexadecimal(offset)?,
            path,
            ..Mapping::default()
        })
    }

    /// Adds the value of a line such as `Rss:   1234 kB`; other lines are ignored.
    fn add(&mut self, line: &[u8]) {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { return };
        let value = match &line[..colon] {
            b"Rss" => &mut self.resident,
            b"Pss" => &mut self.pss,
            b"Shared_Clean" | b"Shared_Dirty" => &mut self.shared_pages,
            b"Swap" => &mut self.swapped,
            b"LazyFree" => &mut self.lazy_free,
            b"AnonHugePages" => &mut self.huge,
            _ => return,
        };
        let number = text::fields(&line[colon + 1..]).next().and_then(text::number).unwrap_or(0);
        *value = value.saturating_add(number.saturating_mul(1024));
    }
}

/// Parses a hexadecimal number without prefix.
fn hexadecimal(field: &[u8]) -> Option<u64> {
    if field.is_empty() || field.len() > 16 {
        return None;
    }
    field.iter().try_fold(0_u64, |sum, byte| {
        let digit = char::from(*byte).to_digit(16)?;
        Some(sum << 4 | u64::from(digit))
    })
}

/// Parses the text in pieces, which may end anywhere.
#[derive(Debug, Default)]
pub struct Parser {
    mappings: Vec<Mapping>,
    /// The beginning of an incomplete line.
    partial: Vec<u8>,
}

/// Why a text cannot be parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// It contains more than [`MAX_MAPPINGS`].
    TooMany,
    /// It contains a line that is not part of the format, or mappings in the wrong order.
    Garbled,
}

impl Parser {
    /// Parses the next piece.
    pub fn feed(&mut self, mut piece: &[u8]) -> Result<(), Refused> {
        while let Some(end) = piece.iter().position(|byte| *byte == b'\n') {
            if self.partial.is_empty() {
                self.line(&piece[..end])?;
            } else {
                self.partial.extend_from_slice(&piece[..end]);
                let line = std::mem::take(&mut self.partial);
                self.line(&line)?;
            }
            piece = &piece[end + 1..];
        }
        self.partial.extend_from_slice(piece);
        if self.partial.len() > MAX_LINE_BYTES { Err(Refused::Garbled) } else { Ok(()) }
    }

    fn line(&mut self, line: &[u8]) -> Result<(), Refused> {
        // Names of values begin with a capital letter; addresses are lower-case.
        if line.first().is_none_or(u8::is_ascii_uppercase) {
            if let Some(mapping) = self.mappings.last_mut() {
                mapping.add(line);
            }
            return Ok(());
        }
        let mapping = Mapping::parse_header(line).ok_or(Refused::Garbled)?;
        if self.mappings.last().is_some_and(|last| last.end > mapping.start) {
            return Err(Refused::Garbled);
        }
        if self.mappings.len() == MAX_MAPPINGS {
            return Err(Refused::TooMany);
        }
        self.mappings.push(mapping);
        Ok(())
    }

    /// Returns the mappings, ordered by address.
    pub fn finish(self) -> Vec<Mapping> {
        self.mappings
    }
}

/// Reads an open smaps file, within the limits of the meter.
pub(super) fn read(file: &dyn ReadAt, path: &str, meter: &Meter<'_>) -> Result<Vec<Mapping>, HostError> {
    let (mut parser, mut offset, mut buffer) = (Parser::default(), 0_u64, vec![0; STEP]);
    loop {
        if !meter.take() {
            return Err(meter.error(path));
        }
        let read = file.read_at(offset, &mut buffer).map_err(|error| HostError::from_io(path, error))?;
        if read == 0 {
            return Ok(parser.finish());
        }
        offset = offset.saturating_add(read as u64);
        let piece = buffer.get(..read).unwrap_or_default();
        let too_large = |max| HostError::TooLarge { path: path.to_owned(), max };
        if offset > MAX_BYTES {
            return Err(too_large(MAX_BYTES as usize));
        }
        parser.feed(piece).map_err(|refused| match refused {
            Refused::TooMany => too_large(MAX_MAPPINGS),
            Refused::Garbled => HostError::garbled(path, text::Garble::new("mappings as in proc(5)", piece)),
        })?;
    }
}

/// Returns the kind of each mapping, in the same order. `emulator` is the path of the VM's executable. `is_static` decides whether a
/// mapping is static data of the file whose mapping precedes it.
pub(super) fn kinds_of(
    mappings: &[Mapping],
    emulator: &str,
    mut is_static: impl FnMut(&Mapping, &Mapping) -> bool,
) -> Vec<&'static str> {
    let executable: std::collections::HashSet<&str> =
        mappings.iter().filter(|mapping| mapping.execute).map(|mapping| mapping.path.as_str()).collect();
    let mut all: Vec<&'static str> = Vec::with_capacity(mappings.len());
    for (at, mapping) in mappings.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|before| Some((mappings.get(before)?, *all.get(before)?)));
        let kind = match before {
            Some((file, kind @ (kinds::EMULATOR | kinds::LIBRARIES)))
                if file.end == mapping.start
                    && mapping.path.is_empty()
                    && !mapping.shared
                    && !file.path.is_empty()
                    && is_static(mapping, file) =>
            {
                kind
            }
            _ => kind_of(mapping, emulator, executable.contains(mapping.path.as_str())),
        };
        all.push(kind);
    }
    all
}

fn kind_of(mapping: &Mapping, emulator: &str, has_code: bool) -> &'static str {
    let path = mapping.path.as_str();
    if path.starts_with("/memfd:vmem") {
        return kinds::JIT;
    }
    match path {
        "[heap]" => return kinds::HEAP,
        "[stack]" => return kinds::STACK,
        "" if mapping.shared => return kinds::SHARED,
        _ => {}
    }
    if mapping.is_anonymous() {
        return match (mapping.execute, mapping.is_reserved()) {
            (true, _) => kinds::JIT,
            (_, true) => kinds::RESERVED,
            _ => kinds::ANONYMOUS,
        };
    }
    if path.starts_with("[anon_shmem") {
        return kinds::SHARED;
    }
    if path.starts_with('[') {
        return kinds::KERNEL;
    }
    if path == emulator {
        return kinds::EMULATOR;
    }
    let without_file = ["/memfd:", "/SYSV", "/dev/zero", "/dev/shm/", "/anon_hugepage"];
    if mapping.shared && without_file.iter().any(|start| path.starts_with(start)) {
        return kinds::SHARED;
    }
    // `libc.so.6`, or a file that was replaced on disk: `crypto.so (deleted)`.
    let name = path.rsplit('/').next().unwrap_or(path).trim_end_matches(" (deleted)");
    let is_library = name.ends_with(".so") || name.contains(".so.");
    if has_code || is_library { kinds::LIBRARIES } else { kinds::FILES }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &str = "\
1000-3000 r--p 00000000 fe:00 761875                     /usr/lib/erlang/bin/beam.smp
Size:                  8 kB
Rss:                   4 kB
Pss:                   1 kB
Shared_Clean:          4 kB
Shared_Dirty:          0 kB
AnonHugePages:         0 kB
Swap:                  0 kB
VmFlags: rd mr mw me sd
7f0000001000-7f0000004000 rw-p 00001000 00:00 0
Rss:                  12 kB
Pss:                  12 kB
LazyFree:              8 kB
AnonHugePages:      2048 kB
Swap:                 16 kB
7f0000004000-7f0000005000 r--p 00000000 00:00 0                          /tmp/with blanks (deleted)
";

    fn parse(text: &[u8]) -> Result<Vec<Mapping>, Refused> {
        let mut parser = Parser::default();
        parser.feed(text).map(|()| parser.finish())
    }

    #[test]
    fn mappings_are_parsed_with_their_values() {
        let program = Mapping {
            start: 0x1000,
            end: 0x3000,
            read: true,
            path: "/usr/lib/erlang/bin/beam.smp".to_owned(),
            resident: 4096,
            pss: 1024,
            shared_pages: 4096,
            ..Mapping::default()
        };
        let anonymous = Mapping {
            start: 0x7f00_0000_1000,
            end: 0x7f00_0000_4000,
            read: true,
            write: true,
            offset: 0x1000,
            resident: 12_288,
            pss: 12_288,
            lazy_free: 8_192,
            huge: 2 << 20,
            swapped: 16_384,
            ..Mapping::default()
        };
        let file = Mapping {
            start: 0x7f00_0000_4000,
            end: 0x7f00_0000_5000,
            read: true,
            path: "/tmp/with blanks (deleted)".to_owned(),
            ..Mapping::default()
        };
        assert_eq!(parse(TEXT.as_bytes()).unwrap(), [program, anonymous, file]);
    }

    #[test]
    fn other_text_is_refused() {
        let check = |text: &str, expect| assert_eq!(parse(text.as_bytes()).err(), expect, "{text:?}");
        check("", None);
        check("Rss: 4 kB\n", None);
        check("1000-2000 rw-p 0 00:00 0\nRss: much\n", None);
        check("1000-2000 rw-p 0 00:00 0\n1fff-3000 rw-p 0 00:00 0\n", Some(Refused::Garbled));
        check("2000-1000 rw-p 0 00:00 0\n", Some(Refused::Garbled));
        check("1000-10000000000000000 rw-p 0 00:00 0\n", Some(Refused::Garbled));
        check("1000-2000 rw- 0 00:00 0\n", Some(Refused::Garbled));
        check("1000 rw-p 0 00:00 0\n", Some(Refused::Garbled));
        check("hello\n", Some(Refused::Garbled));
        check(&"a".repeat(100_000), Some(Refused::Garbled));
        let line = |index: usize| format!("{:x}-{:x} rw-p 0 00:00 0\n", index << 12, (index + 1) << 12);
        let many: String = (1..=MAX_MAPPINGS + 1).map(line).collect();
        check(&many, Some(Refused::TooMany));
    }

    #[test]
    fn each_mapping_has_one_kind() {
        let text = "\
00001000-00002000 r-xp 00000000 fe:00 1 /otp/beam.smp
00002000-00003000 rw-p 00001000 fe:00 1 /otp/beam.smp
00003000-00004000 rw-p 00000000 00:00 0
00004000-00005000 rw-p 00000000 00:00 0
00010000-00011000 rw-p 00000000 00:00 0 [heap]
00020000-00021000 ---p 00000000 00:00 0
00021000-00022000 rw-p 00000000 00:00 0 [anon: glibc: pthread stack: 7]
00030000-00031000 rw-s 00000000 00:01 2 /memfd:vmem (deleted)
00031000-00032000 r-xs 00000000 00:01 2 /memfd:vmem (deleted)
00040000-00041000 rwxp 00000000 00:00 0
00050000-00051000 r--p 00000000 fe:00 3 /lib/libc.so.6
00051000-00052000 r--p 00000000 fe:00 4 /lib/ld-linux-x86-64
00052000-00053000 r-xp 00000000 fe:00 4 /lib/ld-linux-x86-64
00060000-00061000 r--p 00000000 fe:00 5 /usr/lib/locale/C.utf8/LC_CTYPE
00061000-00062000 r--s 00000000 fe:00 6 /usr/lib/gconv/gconv-modules.cache
00062000-00063000 r--p 00000000 fe:00 6 /tmp/nif.so (deleted)
00070000-00071000 rw-s 00000000 00:01 7 /dev/shm/x
00071000-00072000 rw-s 00000000 00:01 7
00072000-00073000 rw-s 00000000 00:01 7 /SYSV00000000 (deleted)
00080000-00081000 rw-p 00000000 00:00 0 [stack]
00081000-00082000 r--p 00000000 00:00 0 [vvar]
";
        let mappings = parse(text.as_bytes()).unwrap();
        // The emulator's static data ends at 0x4000.
        let found = kinds_of(&mappings, "/otp/beam.smp", |mapping, _| mapping.end <= 0x4000);
        use kinds::*;
        assert_eq!(
            found,
            [
                EMULATOR, EMULATOR, EMULATOR, ANONYMOUS, HEAP, RESERVED, ANONYMOUS, JIT, JIT, JIT, LIBRARIES,
                LIBRARIES, LIBRARIES, FILES, FILES, LIBRARIES, SHARED, SHARED, SHARED, STACK, KERNEL
            ]
        );
    }

    proptest! {
        #[test]
        fn the_result_does_not_depend_on_how_the_text_is_split(cuts in proptest::collection::vec(0..TEXT.len(), 0..6)) {
            let mut cuts = cuts;
            cuts.sort_unstable();
            let mut parser = Parser::default();
            let mut begin = 0;
            for cut in cuts.into_iter().chain([TEXT.len()]) {
                parser.feed(&TEXT.as_bytes()[begin..cut]).unwrap();
                begin = cut;
            }
            prop_assert_eq!(parser.finish(), parse(TEXT.as_bytes()).unwrap());
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(text in proptest::collection::vec(any::<u8>(), 0..400)) {
            if let Ok(mappings) = parse(&text) {
                prop_assert!(mappings.windows(2).all(|pair| pair[0].end <= pair[1].start));
            }
        }
    }
}
