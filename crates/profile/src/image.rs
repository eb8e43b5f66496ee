//! Code that a process has mapped: its program and libraries, their addresses, and their function names.
//!
//! Files are read as the process sees them, not by their paths: a container has a different root, and an upgrade may have replaced a file
//! that is still running. So the program is read from `/proc/PID/exe`. Libraries are read from `/proc/PID/map_files`, which needs root, or
//! otherwise from their path below `/proc/PID/root`.
//!
//! Reading takes about 20 ms for a VM with OpenSSL; the process is not stopped.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use beamtune_host::HostError;
use beamtune_host::tree::FileTree;

use crate::elf::Elf;
use crate::error::ProfileError;
use crate::tail_calls;

/// Maximum size of `/proc/PID/maps`. A VM has a few hundred lines of 100 bytes each, or about ten thousand with many carriers.
const MAX_MAPS_BYTES: usize = 64 << 20;
/// Maximum size of a program; a VM with debug information is 30 MB in size.
const MAX_PROGRAM_BYTES: usize = 512 << 20;
/// Maximum size of a library; that of RocksDB is 20 MB in size.
const MAX_LIBRARY_BYTES: usize = 128 << 20;
/// Maximum size of all libraries together.
const MAX_LIBRARIES_BYTES: usize = 512 << 20;
/// Maximum number of programs and libraries.
const MAX_MODULES: usize = 256;

/// A line of `/proc/PID/maps`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// Addresses.
    pub range: Range<u64>,
    /// Whether it is executable.
    pub is_code: bool,
    /// Whether it is writable.
    pub is_writable: bool,
    /// Offset in the file.
    pub offset: u64,
    /// Path of the file; empty for anonymous memory.
    pub path: String,
}

impl Mapping {
    /// Parses `55d0-7ffd r-xp 00066000 fe:00 4711    /usr/lib/x.so (deleted)`.
    fn parse(line: &str) -> Option<Mapping> {
        let mut fields = line.splitn(6, ' ');
        let (range, rights, offset) = (fields.next()?, fields.next()?, fields.next()?);
        let path = fields.nth(2).unwrap_or_default().trim_start();
        let (start, end) = range.split_once('-')?;
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        let range = number(start)?..number(end)?;
        (range.start < range.end).then_some(Mapping {
            range,
            is_code: rights.as_bytes().get(2) == Some(&b'x'),
            is_writable: rights.as_bytes().get(1) == Some(&b'w'),
            offset: number(offset)?,
            path: path.to_owned(),
        })
    }

    /// Returns the mapped part of the file.
    fn offsets(&self) -> Range<u64> {
        self.offset..self.offset.saturating_add(self.range.end - self.range.start)
    }

    /// Whether the mapping belongs to the file of a program or library. The JIT maps anonymous memory, or a memfd.
    pub fn is_of_a_file(&self) -> bool {
        self.path.starts_with('/') && !self.path.starts_with("/memfd:") && !self.path.starts_with("/dev/")
    }
}

/// A mapped program or library.
#[derive(Debug, Clone)]
pub struct Module {
    /// Path, as the kernel reports it.
    pub path: String,
    /// Addresses from the first to the last mapping.
    pub range: Range<u64>,
    /// Difference between the addresses in memory and those in the file.
    pub bias: u64,
    /// The parsed file.
    pub elf: Arc<Elf>,
}

impl Module {
    /// Returns the file name.
    pub fn name(&self) -> &str {
        self.path.strip_suffix(" (deleted)").unwrap_or(&self.path).rsplit('/').next().unwrap_or_default()
    }
}

/// The code at an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The function; `None` if the file has no name for it.
    pub function: Option<String>,
    /// The file name of the module; `None` for generated code, which belongs to no module.
    pub module: Option<String>,
    /// Whether the module is the program itself.
    pub is_program: bool,
}

/// All mappings of a process, by address.
pub fn mappings(tree: &impl FileTree, pid: u32) -> Result<Vec<Mapping>, ProfileError> {
    let maps =
        tree.read(&format!("/proc/{pid}/maps"), MAX_MAPS_BYTES).map_err(|error| of_process(error, pid))?;
    Ok(String::from_utf8_lossy(&maps).lines().filter_map(Mapping::parse).collect())
}

/// The code of a process.
#[derive(Debug, Clone)]
pub struct Image {
    pid: u32,
    /// Sorted by address; includes the program.
    modules: Vec<Module>,
    program: usize,
    /// Libraries that could not be read, with reasons.
    pub unread: Vec<(String, String)>,
}

impl Image {
    /// Reads the code of a process. A library that cannot be read is not an error ([`Self::unread`]).
    pub fn read(tree: &impl FileTree, pid: u32) -> Result<Image, ProfileError> {
        let own = |error| of_process(error, pid);
        let mappings: Vec<Mapping> = mappings(tree, pid)?.into_iter().filter(Mapping::is_of_a_file).collect();
        let program = tree.read_link(&format!("/proc/{pid}/exe")).map_err(own)?;
        let mut image = Image { pid, modules: Vec::new(), program: 0, unread: Vec::new() };
        let mut left = MAX_LIBRARIES_BYTES;
        let mut seen = HashSet::new();
        for code in mappings.iter().filter(|mapping| mapping.is_code) {
            if !seen.insert(code.path.as_str()) {
                continue;
            }
            if image.modules.len() + image.unread.len() >= MAX_MODULES {
                image.unread.push((code.path.clone(), format!("more than {MAX_MODULES} libraries")));
                break;
            }
            let is_program = code.path == program;
            let content = match is_program {
                true => tree.read(&format!("/proc/{pid}/exe"), MAX_PROGRAM_BYTES).map_err(own)?,
                false => match library(tree, pid, code, left.min(MAX_LIBRARY_BYTES)) {
                    Ok(content) => content,
                    Err(error) => {
                        image.unread.push((code.path.clone(), error.to_string()));
                        continue;
                    }
                },
            };
            if !is_program {
                left = left.saturating_sub(content.len());
            }
            match Elf::parse(&code.path, &content) {
                Ok(mut elf) => {
                    if is_program && let Some(debug) = debug_file(tree, pid, &elf) {
                        elf.take_names(debug);
                    }
                    image.add(&mappings, code, elf);
                }
                Err(error) if is_program => return Err(error),
                Err(error) => image.unread.push((code.path.clone(), error.to_string())),
            }
        }
        image.modules.sort_by_key(|module| module.range.start);
        image.program = image
            .modules
            .iter()
            .position(|module| module.path == program)
            .ok_or(ProfileError::NoProgram { pid })?;
        Ok(image)
    }

    fn add(&mut self, mappings: &[Mapping], code: &Mapping, elf: Elf) {
        let Some(bias) = elf.bias(code.range.start, code.offsets()) else {
            self.unread.push((code.path.clone(), "its load address cannot be determined".to_owned()));
            return;
        };
        let own = || mappings.iter().filter(|mapping| mapping.path == code.path);
        let start = own().map(|mapping| mapping.range.start).min().unwrap_or(code.range.start);
        let end = own().map(|mapping| mapping.range.end).max().unwrap_or(code.range.end);
        self.modules.push(Module { path: code.path.clone(), range: start..end, bias, elf: Arc::new(elf) });
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns the program and the libraries, sorted by address.
    pub fn modules(&self) -> &[Module] {
        &self.modules
    }

    /// Returns the program.
    pub fn program(&self) -> Option<&Module> {
        self.modules.get(self.program)
    }

    /// Returns the addresses of one of the program's functions.
    pub fn range_of(&self, function: &str) -> Option<Range<u64>> {
        let program = self.program()?;
        let range = program.elf.range_of(function)?;
        Some(range.start.wrapping_add(program.bias)..range.end.wrapping_add(program.bias))
    }

    /// Returns the offsets of functions in the program's file. The error lists the functions that have no symbol.
    pub fn offsets_of(&self, functions: &[&str]) -> Result<Vec<u64>, ProfileError> {
        let program = self.program().ok_or(ProfileError::NoProgram { pid: self.pid })?;
        let found = |name: &&str| program.elf.offset_of(name);
        let missing: Vec<String> =
            functions.iter().filter(|name| found(name).is_none()).map(|name| (*name).to_owned()).collect();
        match missing.is_empty() {
            true => Ok(functions.iter().filter_map(found).collect()),
            false => Err(ProfileError::NoSymbols { path: program.path.clone(), missing }),
        }
    }

    /// Returns the start address, in the program's file, of the function that contains `address`, even if it has no name. `None` if
    /// unknown.
    pub fn function_at(&self, address: u64) -> Option<u64> {
        let program = self.program().filter(|program| program.range.contains(&address))?;
        tail_calls::start_of(program.elf.eh_frame_hdr.as_ref()?, address.wrapping_sub(program.bias))
    }

    /// Returns the names of the program's functions that make a tail call to the function that starts at this address
    /// ([`Self::function_at`]). Takes milliseconds, since all of the code is searched.
    pub fn tail_callers(&self, function: u64) -> Option<String> {
        tail_calls::caller_names(&self.program()?.elf, function)
    }

    /// Whether an address is in a spin loop of the program ([`Elf::is_spinning`]).
    pub fn is_spinning(&self, address: u64) -> bool {
        let program = self.program().filter(|program| program.range.contains(&address));
        program.is_some_and(|program| program.elf.is_spinning(address.wrapping_sub(program.bias)))
    }

    /// Returns the code at an address.
    pub fn frame(&self, address: u64) -> Frame {
        let after = self.modules.partition_point(|module| module.range.start <= address);
        let found = after.checked_sub(1).and_then(|index| Some((index, self.modules.get(index)?)));
        match found.filter(|(_, module)| module.range.contains(&address)) {
            None => Frame { function: None, module: None, is_program: false },
            Some((index, module)) => Frame {
                function: module.elf.name_at(address.wrapping_sub(module.bias)),
                module: Some(module.name().to_owned()),
                is_program: index == self.program,
            },
        }
    }
}

/// Converts an error that concerns a file of the process itself. A missing file means that the process has ended. If access is denied, the
/// usual advice (run as the process's user) does not help, since that user may not watch all threads.
pub(crate) fn of_process(error: HostError, pid: u32) -> ProfileError {
    match error {
        HostError::Missing { .. } => ProfileError::Host(HostError::Ended { pid }),
        HostError::Denied { path, .. } => ProfileError::Closed { path },
        error => ProfileError::Host(error),
    }
}

/// Reads a mapped library, even if its path now leads to another file.
fn library(
    tree: &impl FileTree,
    pid: u32,
    code: &Mapping,
    max_bytes: usize,
) -> Result<Vec<u8>, ProfileError> {
    let mapped = format!("/proc/{pid}/map_files/{:x}-{:x}", code.range.start, code.range.end);
    if let Ok(content) = tree.read(&mapped, max_bytes) {
        return Ok(content);
    }
    let mut content = Vec::new();
    tree.read_start_below(&format!("/proc/{pid}/root"), &code.path, max_bytes, &mut content)?;
    Ok(content)
}

/// Reads a program's debug file from the path that distributions use, in the VM's container or on this host.
fn debug_file(tree: &impl FileTree, pid: u32, elf: &Elf) -> Option<Elf> {
    let (folder, rest) = elf.build_id.as_ref()?.split_at_checked(2)?;
    let path = format!("/usr/lib/debug/.build-id/{folder}/{rest}.debug");
    [format!("/proc/{pid}/root"), "/".to_owned()].iter().find_map(|root| {
        let mut content = Vec::new();
        tree.read_start_below(root, &path, MAX_PROGRAM_BYTES, &mut content).ok()?;
        Elf::parse(&path, &content).ok()
    })
}

#[cfg(test)]
mod tests {
    use beamtune_host::tree::LocalTree;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_mapping_is_parsed_with_any_path() {
        let mapping = |range, rights: &str, offset, path: &str| {
            let (is_code, is_writable) = (rights.contains('x'), rights.contains('w'));
            Some(Mapping { range, is_code, is_writable, offset, path: path.to_owned() })
        };
        let check = |line: &str, expect: Option<Mapping>| assert_eq!(Mapping::parse(line), expect, "{line}");
        check(
            "55d0a000-55d0c000 r-xp 00066000 fe:00 4711                       /usr/lib/a b.so (deleted)",
            mapping(0x55d0_a000..0x55d0_c000, "x", 0x66000, "/usr/lib/a b.so (deleted)"),
        );
        check("1000-2000 rw-p 00000000 00:00 0 ", mapping(0x1000..0x2000, "w", 0, ""));
        check(
            "1000-2000 rwxs 00000000 00:01 2  /memfd:vmem (deleted)",
            mapping(0x1000..0x2000, "wx", 0, "/memfd:vmem (deleted)"),
        );
        check("2000-1000 rw-p 00000000 00:00 0", None);
        check("1000 rw-p", None);
        check("", None);
    }

    #[test]
    fn jit_memory_is_not_a_file() {
        let is = |path: &str| {
            let path = path.to_owned();
            Mapping { range: 1..2, is_code: true, is_writable: false, offset: 0, path }.is_of_a_file()
        };
        assert!(is("/usr/lib/erlang/erts-13.1.5/bin/beam.smp"));
        assert!(!is("/memfd:vmem (deleted)") && !is("[vdso]") && !is("") && !is("/dev/zero (deleted)"));
    }

    #[test]
    fn functions_of_this_process_are_found() {
        let image = Image::read(&LocalTree::default(), std::process::id()).unwrap();
        let address = this_function_has_a_name as *const () as u64;
        let frame = image.frame(address);
        let function = frame.function.unwrap();
        assert!(function.contains("this_function_has_a_name"), "{function}");
        assert!(frame.is_program);
        assert_eq!(image.frame(1), Frame { function: None, module: None, is_program: false });
        assert_eq!(image.offsets_of(&["main"]).unwrap().len(), 1);
    }

    #[inline(never)]
    fn this_function_has_a_name() -> u64 {
        std::hint::black_box(1)
    }

    #[test]
    fn missing_functions_are_listed_in_the_error() {
        let image = Image::read(&LocalTree::default(), std::process::id()).unwrap();
        let error = image.offsets_of(&["main", "ethr_event_wait"]).unwrap_err().to_string();
        assert!(error.contains("without the symbols ethr_event_wait,"), "{error}");
    }

    #[test]
    fn the_error_for_another_users_process_names_the_rights() {
        let path = "/proc/7/maps".to_owned();
        let error = of_process(HostError::Denied { path, owner: None }, 7);
        assert!(error.is_denied());
        let expect = "not allowed to read /proc/7/maps: run beamtune as root, or give it CAP_SYS_PTRACE and CAP_PERFMON";
        assert_eq!(error.to_string(), expect);
    }

    #[test]
    fn a_missing_process_is_an_error() {
        let error = Image::read(&LocalTree::default(), u32::MAX).unwrap_err();
        assert_eq!(error.to_string(), "process 4294967295 has ended");
    }

    proptest! {
        #[test]
        fn arbitrary_lines_do_not_panic(
            line in ".{0,80}",
            range in "[0-9a-f]{0,17}-[0-9a-f]{0,17}",
            rest in "[rwxps0-9a-f: /é-]{0,40}",
        ) {
            for line in [line, format!("{range} {rest}")] {
                if let Some(mapping) = Mapping::parse(&line) {
                    prop_assert!(mapping.range.start < mapping.range.end);
                    prop_assert!(mapping.offsets().start <= mapping.offsets().end);
                }
            }
        }
    }
}
