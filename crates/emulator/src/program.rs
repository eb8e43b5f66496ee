//! Reads version, flavor and type from an emulator's file, without running it.
//!
//! The ELF headers name the architecture and, through the interpreter, the C library. Every emulator since R9 contains the format
//! string of `erlang:system_info(system_version)` as one piece, with placeholders for only a few values (`erts_system_version` in
//! erts/emulator/beam/erl_bif_info.c): `Erlang/OTP 25%s [erts-13.1.5] [source] [64-bit] … [jit:ns%s] [lock-counting]`.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::error::Error;
use crate::kind::{Flavor, Libc, is_version};

/// Maximum number of bytes read. An emulator with full debug information has about 60 MB.
const MAX_FILE_BYTES: u64 = 512 << 20;
/// Start of the version text.
const BANNER: &[u8] = b"Erlang/OTP ";
/// Maximum length of the version text, which has about 200 bytes.
const MAX_BANNER_BYTES: usize = 1000;
/// Prefix of glibc's symbol versions.
const GLIBC: &[u8] = b"GLIBC_2.";

/// Architecture and C library of a program, from its ELF headers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Elf {
    /// The CPU architecture, as `uname -m` names it.
    pub architecture: String,
    /// The C library.
    pub libc: Libc,
}

/// An emulator's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// Architecture and C library.
    pub elf: Elf,
    /// Major OTP release: 25.
    pub release: u32,
    /// Version of ERTS: `13.1.5`.
    pub erts: String,
    /// Its flavor.
    pub flavor: Flavor,
    /// Whether it counts locks.
    pub counts_locks: bool,
    /// The newest glibc version whose symbols it uses, the `N` of `2.N`. It does not start with an older one.
    pub glibc: Option<u32>,
}

impl Elf {
    /// Reads the headers of a program.
    ///
    /// # Errors
    /// If the file cannot be read, or is not an ELF file.
    pub fn read(path: &Path) -> Result<Elf, Error> {
        Elf::parse(&content(path)?).ok_or_else(|| Error::NotAProgram { path: path.to_owned() })
    }

    fn parse(bytes: &[u8]) -> Option<Elf> {
        let fields = Fields::of(bytes)?;
        let architecture = architecture(fields.number(18, 2)?, fields.is_wide, fields.is_little);
        // Offset of the program header table, size of an entry, number of entries (elf(5)).
        let (table, row, rows) = match fields.is_wide {
            true => (fields.number(32, 8)?, fields.number(54, 2)?, fields.number(56, 2)?),
            false => (fields.number(28, 4)?, fields.number(42, 2)?, fields.number(44, 2)?),
        };
        let mut libc = Libc::Other;
        for index in 0..rows {
            let at = usize::try_from(table.checked_add(row.checked_mul(index)?)?).ok()?;
            const PT_INTERP: u64 = 3;
            if fields.number(at, 4)? != PT_INTERP {
                continue;
            }
            let (offset, length) = match fields.is_wide {
                true => (fields.number(at.checked_add(8)?, 8)?, fields.number(at.checked_add(32)?, 8)?),
                false => (fields.number(at.checked_add(4)?, 4)?, fields.number(at.checked_add(16)?, 4)?),
            };
            let begin = usize::try_from(offset).ok()?;
            let end = begin.checked_add(usize::try_from(length).ok()?)?;
            libc = libc_of(bytes.get(begin..end)?);
        }
        Some(Elf { architecture, libc })
    }
}

impl Program {
    /// Reads an emulator's file.
    ///
    /// # Errors
    /// If the file cannot be read, is not an ELF file, or is not an emulator.
    pub fn read(path: &Path) -> Result<Program, Error> {
        let bytes = content(path)?;
        let elf = Elf::parse(&bytes).ok_or_else(|| Error::NotAProgram { path: path.to_owned() })?;
        Program::parse(&bytes, elf).ok_or_else(|| Error::NotAnEmulator { path: path.to_owned() })
    }

    fn parse(bytes: &[u8], elf: Elf) -> Option<Program> {
        let banner = places(bytes, BANNER).find_map(|at| banner(bytes.get(at..)?))?;
        let (release, rest) = banner.strip_prefix("Erlang/OTP ")?.split_once("%s [erts-")?;
        let (erts, rest) = rest.split_once(']')?;
        if !is_version(erts) {
            return None;
        }
        let minor = |at: usize| {
            let digits =
                bytes.get(at + GLIBC.len()..)?.iter().take(4).take_while(|byte| byte.is_ascii_digit());
            let digits: String = digits.map(|byte| char::from(*byte)).collect();
            digits.parse::<u32>().ok()
        };
        Some(Program {
            release: release.parse().ok()?,
            erts: erts.to_owned(),
            flavor: if rest.contains("[jit") { Flavor::Jit } else { Flavor::Emu },
            counts_locks: rest.contains("[lock-counting]"),
            glibc: places(bytes, GLIBC).filter_map(minor).max().filter(|_| elf.libc == Libc::Glibc),
            elf,
        })
    }
}

fn content(path: &Path) -> Result<Vec<u8>, Error> {
    let read = || {
        let mut bytes = Vec::new();
        File::open(path)?.take(MAX_FILE_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    read().map_err(|source| Error::io(path, source))
}

/// Returns the version text at the start of `bytes`, if there is one.
fn banner(bytes: &[u8]) -> Option<&str> {
    let end = bytes.iter().take(MAX_BANNER_BYTES).position(|byte| *byte == 0)?;
    let text = str::from_utf8(bytes.get(..end)?).ok()?;
    text.contains("%s [erts-").then_some(text)
}

/// Returns all offsets at which a text occurs.
fn places<'b>(bytes: &'b [u8], text: &'b [u8]) -> impl Iterator<Item = usize> + 'b {
    let first = text.first().copied().unwrap_or_default();
    let begins = bytes.iter().enumerate().filter(move |(_, byte)| **byte == first);
    begins.map(|(at, _)| at).filter(move |at| bytes.get(*at..).is_some_and(|rest| rest.starts_with(text)))
}

/// Reads the numbers in an ELF file.
struct Fields<'b> {
    bytes: &'b [u8],
    is_wide: bool,
    is_little: bool,
}

impl<'b> Fields<'b> {
    fn of(bytes: &'b [u8]) -> Option<Fields<'b>> {
        let begin = bytes.get(..6)?;
        let is_wide = matches!(begin.get(4)?, 2);
        let is_little = matches!(begin.get(5)?, 1);
        begin.starts_with(b"\x7fELF").then_some(Fields { bytes, is_wide, is_little })
    }

    /// Reads a number of up to eight bytes.
    fn number(&self, at: usize, length: usize) -> Option<u64> {
        let bytes = self.bytes.get(at..at.checked_add(length)?)?;
        let append = |number: u64, byte: &u8| (number << 8) | u64::from(*byte);
        Some(match self.is_little {
            true => bytes.iter().rev().fold(0, append),
            false => bytes.iter().fold(0, append),
        })
    }
}

/// Returns the name of an architecture, given its number in elf.h. Architectures on which Erlang does not run have no names here.
fn architecture(machine: u64, is_wide: bool, is_little: bool) -> String {
    match (machine, is_wide, is_little) {
        (62, true, _) => "x86_64",
        (62, false, _) => "x32",
        (3, ..) => "i686",
        (183, ..) => "aarch64",
        (40, ..) => "armv7l",
        (243, true, _) => "riscv64",
        (21, _, true) => "ppc64le",
        (21, _, false) => "ppc64",
        (22, ..) => "s390x",
        (258, ..) => "loongarch64",
        _ => return format!("machine{machine}"),
    }
    .to_owned()
}

/// Returns the C library, given the path of the interpreter: `/lib64/ld-linux-x86-64.so.2`, `/lib/ld-musl-x86_64.so.1`.
fn libc_of(interpreter: &[u8]) -> Libc {
    let path = String::from_utf8_lossy(interpreter);
    let name = path.trim_end_matches('\0').rsplit('/').next().unwrap_or_default();
    match name {
        name if name.starts_with("ld-musl-") => Libc::Musl,
        name if name.starts_with("ld-linux") || name.starts_with("ld64.so") || name == "ld.so.1" => {
            Libc::Glibc
        }
        _ => Libc::Other,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Creates a minimal ELF file: headers, an interpreter, and some text.
    pub(crate) fn elf(machine: u16, interpreter: &str, text: &str) -> Vec<u8> {
        let mut bytes = vec![0; 64 + 56];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[18..20].copy_from_slice(&machine.to_le_bytes());
        bytes[32..40].copy_from_slice(&64_u64.to_le_bytes());
        bytes[54..56].copy_from_slice(&56_u16.to_le_bytes());
        bytes[56..58].copy_from_slice(&1_u16.to_le_bytes());
        bytes[64..68].copy_from_slice(&3_u32.to_le_bytes());
        bytes[72..80].copy_from_slice(&120_u64.to_le_bytes());
        bytes[96..104].copy_from_slice(&(interpreter.len() as u64 + 1).to_le_bytes());
        bytes.extend(format!("{interpreter}\0{text}\0").as_bytes());
        bytes
    }

    /// Creates an x86_64 emulator with this version text.
    pub(crate) fn emulator(text: &str) -> Vec<u8> {
        elf(62, "/lib64/ld-linux-x86-64.so.2", text)
    }

    fn read(bytes: &[u8]) -> Option<Program> {
        Program::parse(bytes, Elf::parse(bytes)?)
    }

    const OTP25: &str = "Erlang/OTP 25%s [erts-13.1.5] [source] [64-bit] [smp:%beu:%beu] [ds:%beu:%beu:%beu] \
                         [async-threads:%d] [jit:ns%s]";
    const OTP23: &str = "Erlang/OTP 23%s [erts-11.1.8] [source] [64-bit] [smp:%beu:%beu] [ds:%beu:%beu:%beu] [async-threads:%d]";

    #[test]
    fn version_flavor_and_type_are_read() {
        let check = |text: &str, release, erts: &str, flavor, counts_locks| {
            let program = read(&emulator(text)).unwrap_or_else(|| panic!("{text}"));
            let found = (program.release, program.erts.as_str(), program.flavor, program.counts_locks);
            assert_eq!(found, (release, erts, flavor, counts_locks));
        };
        check(OTP25, 25, "13.1.5", Flavor::Jit, false);
        check(&format!("{OTP25} [lock-counting]"), 25, "13.1.5", Flavor::Jit, true);
        check(OTP23, 23, "11.1.8", Flavor::Emu, false);
        // Other texts have the same prefix.
        check(&format!("Erlang/OTP \0Erlang/OTP is\0{OTP23}"), 23, "11.1.8", Flavor::Emu, false);
        assert_eq!(read(&emulator("Erlang/OTP 25")), None);
        assert_eq!(read(&emulator("Erlang/OTP 25%s [erts-../../x]")), None);
    }

    #[test]
    fn architecture_and_c_library_are_read_from_headers() {
        let check = |machine, interpreter, architecture: &str, libc| {
            let expect = Some(Elf { architecture: architecture.to_owned(), libc });
            assert_eq!(Elf::parse(&elf(machine, interpreter, "")), expect);
        };
        check(62, "/lib64/ld-linux-x86-64.so.2", "x86_64", Libc::Glibc);
        check(62, "/nix/store/x-glibc-2.40/lib/ld-linux-x86-64.so.2", "x86_64", Libc::Glibc);
        check(62, "/lib/ld-musl-x86_64.so.1", "x86_64", Libc::Musl);
        check(183, "/lib/ld-linux-aarch64.so.1", "aarch64", Libc::Glibc);
        check(183, "/lib/ld-musl-aarch64.so.1", "aarch64", Libc::Musl);
        check(22, "/lib/ld64.so.1", "s390x", Libc::Glibc);
        check(9999, "/system/bin/linker64", "machine9999", Libc::Other);
    }

    #[test]
    fn newest_required_glibc_is_found() {
        let text = format!("GLIBC_2.2.5\0GLIBC_2.34\0GLIBC_2.4\0GLIBC_2.\0{OTP25}");
        assert_eq!(read(&emulator(&text)).and_then(|program| program.glibc), Some(34));
        let bytes = elf(62, "/lib/ld-musl-x86_64.so.1", &text);
        assert_eq!(read(&bytes).and_then(|program| program.glibc), None);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), wide in 0_u8..4) {
            let mut file = b"\x7fELF".to_vec();
            file.extend([wide, wide % 2]);
            file.extend(bytes);
            let _ = read(&file);
        }

        #[test]
        fn erts_version_is_the_text_in_brackets(erts in "[0-9]{1,2}(\\.[0-9]{1,3}){1,4}", before in prop::collection::vec(any::<u8>(), 0..50)) {
            let mut bytes = emulator("");
            bytes.extend(before);
            bytes.push(0);
            bytes.extend(format!("Erlang/OTP 25%s [erts-{erts}] [64-bit]\0").as_bytes());
            let found = read(&bytes).map(|program| program.erts);
            prop_assert_eq!(found, Some(erts));
        }
    }

    #[test]
    fn a_truncated_or_garbled_file_is_refused() {
        let whole = emulator(OTP25);
        for length in 0..whole.len() {
            assert!(read(&whole[..length]).is_none(), "{length}");
        }
        for at in 0..120 {
            for byte in [0, 1, 0x7f, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] = byte;
                // Any result is fine, but no panic.
                let _ = read(&bytes);
            }
        }
        assert_eq!(Elf::parse(b"#!/bin/sh\n"), None);
    }
}
