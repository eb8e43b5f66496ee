//! Reads from a program or library file what is needed to name functions and to unwind: symbols, load addresses, unwind tables
//! (`.eh_frame`).
//!
//! Distributions strip the VM, but link it with `-rdynamic` for NIFs and drivers. OTP 25 therefore has about 4,400 names of functions and
//! data in its dynamic symbols: all except the static ones. An address beyond the end of every symbol has no name, so a static function is
//! never named after the function before it. OTP 29 is built with `-fvisibility=hidden` and exports only the 330 documented names of the
//! NIF and driver API. There, names need an unstripped VM, or the distribution's debug file, which is found by its build id.
//!
//! The files belong to the VM's user and are untrusted. The crate `object` parses any bytes without a panic, and everything that is kept is
//! bounded.

use std::ops::Range;
use std::sync::Arc;

use memchr::memmem;
use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSection, ObjectSegment, ObjectSymbol, SymbolKind};

use crate::error::ProfileError;
use crate::names;
use crate::tail_calls;

/// Maximum number of named functions in a file; a browser engine has that many. The names together are no longer than the file.
const MAX_SYMBOLS: usize = 1_000_000;
/// Longer names come from templates and are ignored.
const MAX_NAME_BYTES: usize = 500;

/// The instruction `pause`.
#[cfg(target_arch = "x86_64")]
const SPIN_HINT: &[u8] = &[0xf3, 0x90];
/// The instruction `yield`.
#[cfg(target_arch = "aarch64")]
const SPIN_HINT: &[u8] = &[0x3f, 0x20, 0x03, 0xd5];
/// The spin hint may start up to this many bytes before an address …
const SPIN_BEFORE: usize = 34;
/// … and end up to this many bytes after it.
const SPIN_AFTER: usize = 16;

/// A section of a file.
#[derive(Debug, Clone)]
pub struct Section {
    /// Addresses as in the file, before relocation.
    pub range: Range<u64>,
    /// Content of the section.
    pub data: Arc<[u8]>,
}

/// A function.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Function {
    start: u64,
    end: u64,
    name: Box<str>,
}

/// A segment that is loaded into memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Load {
    offset: u64,
    file_size: u64,
    address: u64,
}

/// A parsed program or library. All addresses are as in the file.
#[derive(Debug, Clone, Default)]
pub struct Elf {
    /// Sorted by start, without duplicates.
    functions: Vec<Function>,
    loads: Vec<Load>,
    /// `.text`.
    pub text: Option<Section>,
    /// Addresses of `.got`.
    pub got: Option<Range<u64>>,
    /// `.eh_frame`: the unwind tables.
    pub eh_frame: Option<Section>,
    /// `.eh_frame_hdr`: their index, if it has the usual format ([`tail_calls::entries`]).
    pub eh_frame_hdr: Option<Section>,
    /// The build id in hexadecimal digits; it is part of the path of the debug file.
    pub build_id: Option<String>,
}

impl Elf {
    /// Parses a file's content; `path` is used in error messages.
    pub fn parse(path: &str, content: &[u8]) -> Result<Elf, ProfileError> {
        let file = ElfFile64::<Endianness>::parse(content)
            .map_err(|error| ProfileError::NotElf { path: path.to_owned(), why: error.to_string() })?;
        let loads = file
            .segments()
            .map(|segment| {
                let (offset, file_size) = segment.file_range();
                Load { offset, file_size, address: segment.address() }
            })
            .collect();
        let range = |name: &str| {
            let section = file.section_by_name(name)?;
            Some(section.address()..section.address().checked_add(section.size())?)
        };
        let section = |name: &str| {
            let data = file.section_by_name(name)?.data().ok()?;
            Some(Section { range: range(name)?, data: Arc::from(data) })
        };
        // A forged file may give all symbols the same long name.
        let mut room = content.len();
        let mut functions: Vec<Function> = file
            .dynamic_symbols()
            .chain(file.symbols())
            .filter(|symbol| symbol.kind() == SymbolKind::Text && !symbol.is_undefined() && symbol.size() > 0)
            .take(MAX_SYMBOLS)
            .filter_map(|symbol| {
                let name = symbol.name().ok().filter(|name| (1..MAX_NAME_BYTES).contains(&name.len()))?;
                room = room.checked_sub(name.len())?;
                let start = symbol.address();
                Some(Function { start, end: start.checked_add(symbol.size())?, name: name.into() })
            })
            .collect();
        // A function may have several names: `sched_yield` is also `__sched_yield`.
        let underscores = |name: &str| name.len() - name.trim_start_matches('_').len();
        functions.sort_by(|a, b| {
            let key =
                |function: &Function| (function.start, underscores(&function.name), function.name.len());
            key(a).cmp(&key(b)).then_with(|| a.name.cmp(&b.name))
        });
        functions.dedup_by_key(|function| function.start);
        Ok(Elf {
            functions,
            loads,
            text: section(".text"),
            got: range(".got"),
            eh_frame: section(".eh_frame"),
            eh_frame_hdr: section(".eh_frame_hdr").filter(|index| tail_calls::entries(index).is_some()),
            build_id: file.build_id().ok().flatten().filter(|id| id.len() >= 2).map(hexadecimal),
        })
    }

    /// Replaces the function names with those of a debug file if the build ids match and it has more names.
    pub fn take_names(&mut self, debug: Elf) {
        if debug.build_id == self.build_id && debug.functions.len() > self.functions.len() {
            self.functions = debug.functions;
        }
    }

    /// Returns the number of named functions.
    pub fn named(&self) -> usize {
        self.functions.len()
    }

    /// Returns the name of the function at an address, simplified by [`names::plain`].
    pub fn name_at(&self, address: u64) -> Option<String> {
        let after = self.functions.partition_point(|function| function.start <= address);
        let function = self.functions.get(after.checked_sub(1)?)?;
        let name = (address < function.end).then(|| names::plain(&function.name))?;
        Some(name).filter(|name| !name.is_empty())
    }

    /// Returns the addresses of a function.
    pub fn range_of(&self, name: &str) -> Option<Range<u64>> {
        let function = self.functions.iter().find(|function| *function.name == *name)?;
        Some(function.start..function.end)
    }

    /// Returns the file offset of a function's code.
    pub fn offset_of(&self, name: &str) -> Option<u64> {
        self.offset_at(self.functions.iter().find(|function| *function.name == *name)?.start)
    }

    /// Returns the file offset of an address.
    pub fn offset_at(&self, address: u64) -> Option<u64> {
        self.loads.iter().find_map(|load| {
            let within = address.checked_sub(load.address)?;
            (within < load.file_size).then(|| load.offset.checked_add(within))?
        })
    }

    /// Whether an address is in a spin loop: near a spin hint (`pause` on x86-64, `yield` on ARM64), which occurs nowhere else. Such loops
    /// are about 40 bytes long. Most samples hit the instruction after the hint, since the hint takes as long as a hundred other
    /// instructions.
    pub fn is_spinning(&self, address: u64) -> bool {
        let around = || {
            let text = self.text.as_ref()?;
            let at = usize::try_from(address.checked_sub(text.range.start)?).ok()?;
            text.data.get(at.saturating_sub(SPIN_BEFORE)..at.checked_add(SPIN_AFTER)?.min(text.data.len()))
        };
        around().is_some_and(|code| memmem::find(code, SPIN_HINT).is_some())
    }

    /// Returns the difference between addresses in a process and addresses in the file. `start` is the start address of one mapping,
    /// `offsets` the part of the file that it maps. `None` if the mapping contains no loaded segment.
    pub fn bias(&self, start: u64, offsets: Range<u64>) -> Option<u64> {
        // Mappings consist of whole pages, so the last page of one segment may contain the start of the next.
        let overlap = |load: &&Load| {
            let end = load.offset.saturating_add(load.file_size).min(offsets.end);
            end.saturating_sub(load.offset.max(offsets.start))
        };
        let load = self.loads.iter().filter(|load| overlap(load) > 0).max_by_key(overlap)?;
        let address = load.address.wrapping_sub(load.offset).wrapping_add(offsets.start);
        Some(start.wrapping_sub(address))
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().take(64).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use proptest::prelude::*;

    use super::*;

    /// Content and parsed form of this program, which is not stripped.
    fn own() -> (Vec<u8>, Elf) {
        let content = std::fs::read("/proc/self/exe").unwrap();
        let elf = Elf::parse("/proc/self/exe", &content).unwrap();
        (content, elf)
    }

    #[test]
    fn functions_have_names_and_file_offsets() {
        let (content, elf) = own();
        assert!(elf.named() > 100, "{} functions", elf.named());
        let main = elf.offset_of("main").unwrap();
        assert!(main > 0 && main < content.len() as u64);
        // Converted to an address, the offset leads back to the name.
        let load = elf
            .loads
            .iter()
            .find(|load| (load.offset..load.offset + load.file_size).contains(&main))
            .unwrap();
        let address = main - load.offset + load.address;
        assert_eq!(elf.name_at(address).as_deref(), Some("main"));
        assert_eq!(elf.name_at(address + 1).as_deref(), Some("main"));
        assert_eq!(elf.name_at(u64::MAX), None);
        assert_eq!(elf.offset_of("there_is_no_such_function"), None);
        assert!(elf.eh_frame.is_some() && elf.text.is_some());
    }

    #[test]
    fn an_address_between_two_functions_has_no_name() {
        let function = |start, end, name: &str| Function { start, end, name: name.into() };
        let functions = vec![function(16, 32, "first"), function(48, 64, "second.cold")];
        let elf = Elf { functions, ..Elf::default() };
        let check =
            |address, expect: Option<&str>| assert_eq!(elf.name_at(address).as_deref(), expect, "{address}");
        check(15, None);
        check(16, Some("first"));
        check(31, Some("first"));
        check(32, None);
        check(48, Some("second"));
        check(64, None);
        let nothing_but_a_version = Elf { functions: vec![function(0, 8, "@V1")], ..Elf::default() };
        assert_eq!(nothing_but_a_version.name_at(4), None);
    }

    #[test]
    fn bias_is_calculated_from_the_largest_segment_in_a_mapping() {
        let load = |offset, file_size, address| Load { offset, file_size, address };
        let check = |loads: Vec<Load>, start, offsets: Range<u64>, expect: Option<u64>| {
            let elf = Elf { loads, ..Elf::default() };
            assert_eq!(elf.bias(start, offsets.clone()), expect, "{start:x} {offsets:x?}");
        };
        let apart =
            || vec![load(0, 0x65a40, 0), load(0x66000, 0x28a4c9, 0x66000), load(0x3e0a90, 0x1b2e0, 0x3e1a90)];
        check(apart(), 0x5555_5000_0000, 0..0x66000, Some(0x5555_5000_0000));
        check(apart(), 0x5555_5006_6000, 0x66000..0x2f1000, Some(0x5555_5000_0000));
        check(apart(), 0x5555_503e_1000, 0x3e0000..0x3fc000, Some(0x5555_5000_0000));
        check(apart(), 0x5555_5000_0000, 0x50_0000..0x50_1000, None);
        // Code and data share a page.
        let together = || vec![load(0, 0x1200, 0x40_0000), load(0x1200, 0x800, 0x60_1200)];
        check(together(), 0x40_0000, 0..0x2000, Some(0));
        check(together(), 0x60_1000, 0x1000..0x2000, Some(0));
        check(Vec::new(), 0x1000, 0..0x1000, None);
    }

    #[test]
    fn a_spin_loop_is_recognized_by_its_hint() {
        let mut code = vec![0x00; 200];
        code[100..100 + SPIN_HINT.len()].copy_from_slice(SPIN_HINT);
        let elf =
            Elf { text: Some(Section { range: 1_000..1_200, data: Arc::from(code) }), ..Elf::default() };
        let check = |address, expect| assert_eq!(elf.is_spinning(address), expect, "{address}");
        check(1_100, true);
        check(1_102, true);
        check(1_130, true);
        check(1_090, true);
        check(1_140, false);
        check(1_080, false);
        check(1_199, false);
        check(1_000, false);
        check(900, false);
        check(u64::MAX, false);
        assert!(!Elf::default().is_spinning(1_100));
    }

    #[test]
    fn only_a_debug_file_of_the_same_build_gives_names() {
        let function = |name: &str| Function { start: 16, end: 32, name: name.into() };
        let of = |id: &str, names: &[&str]| Elf {
            functions: names.iter().map(|name| function(name)).collect(),
            build_id: Some(id.to_owned()),
            ..Elf::default()
        };
        let mut stripped = of("ab", &[]);
        stripped.take_names(of("cd", &["other"]));
        assert_eq!(stripped.name_at(16), None);
        stripped.take_names(of("ab", &["own"]));
        assert_eq!(stripped.name_at(16).as_deref(), Some("own"));
        assert_eq!(hexadecimal(&[0x0a, 0xff]), "0aff");
    }

    #[test]
    fn other_files_are_refused_with_their_path() {
        let error = Elf::parse("/tmp/x.so", b"#!/bin/sh\n").unwrap_err().to_string();
        assert!(error.contains("/tmp/x.so") && error.contains("64-bit ELF"), "{error}");
    }

    proptest! {
        #[test]
        fn damaged_files_do_not_panic(at in 0_usize..4096, byte: u8, cut in 0_usize..10_000) {
            let mut content = vec![0; cut.max(64)];
            let read = std::fs::File::open("/proc/self/exe").unwrap().read(&mut content).unwrap();
            content.truncate(read);
            if let Some(place) = content.get_mut(at) {
                *place = byte;
            }
            if let Ok(elf) = Elf::parse("x", &content) {
                elf.name_at(0x1000);
                elf.offset_of("main");
                elf.bias(0x1000, 0..0x1000);
            }
        }
    }
}
