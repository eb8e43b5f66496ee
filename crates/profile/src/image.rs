//! What code a process has mapped: its program and libraries, where each is, and the names of their functions.
//!
//! Files are read as the process sees them, and not by the paths that they had: a container has another root, and an upgrade has put
//! another file in the place of the one that runs. So the program is `/proc/PID/exe`, and libraries are `/proc/PID/map_files`, which
//! needs root, or else what stands below `/proc/PID/root`.
//!
//! Reading takes some 20 ms for a VM with OpenSSL; the process is not stopped for it.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use beamtune_host::HostError;
use beamtune_host::tree::FileTree;

use crate::elf::Elf;
use crate::error::ProfileError;
use crate::tail;

/// A VM has some hundred mappings, one with many carriers some ten thousand, of 100 bytes each.
const MAPS_BYTES: usize = 64 << 20;
/// The largest program that is read: a VM with its debug information has 30 MB.
const PROGRAM_BYTES: usize = 512 << 20;
/// The largest library that is read; that of RocksDB has 20 MB.
const LIBRARY_BYTES: usize = 128 << 20;
/// All libraries together.
const LIBRARIES_BYTES: usize = 512 << 20;
/// Programs and libraries of which the names are known, at most.
const MOST_MODULES: usize = 256;

/// A line of `/proc/PID/maps`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mapping {
    range: Range<u64>,
    is_code: bool,
    offset: u64,
    path: String,
}

impl Mapping {
    /// `55d0-7ffd r-xp 00066000 fe:00 4711    /usr/lib/x.so (deleted)`.
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
            offset: number(offset)?,
            path: path.to_owned(),
        })
    }

    /// The part of the file that it shows.
    fn offsets(&self) -> Range<u64> {
        self.offset..self.offset.saturating_add(self.range.end - self.range.start)
    }

    /// Whether it is of a program's or library's file. The JIT maps memory without one, or one that has only a name.
    fn is_of_a_file(&self) -> bool {
        self.path.starts_with('/') && !self.path.starts_with("/memfd:") && !self.path.starts_with("/dev/")
    }
}

/// A program or library that is mapped.
#[derive(Debug, Clone)]
pub struct Module {
    /// Its file, as the kernel names it.
    pub path: String,
    /// From the first to behind the last of its mappings.
    pub range: Range<u64>,
    /// By how much its addresses here lie above those in its file.
    pub bias: u64,
    /// What stands in the file.
    pub elf: Arc<Elf>,
}

impl Module {
    /// The last part of the path.
    pub fn name(&self) -> &str {
        self.path.strip_suffix(" (deleted)").unwrap_or(&self.path).rsplit('/').next().unwrap_or_default()
    }
}

/// What an address is within.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The function; `None` where its file does not name it.
    pub function: Option<String>,
    /// The file's name; `None` outside of all files: code that the VM has made.
    pub module: Option<String>,
    /// Whether that is the program itself.
    pub is_program: bool,
}

/// The code of a process.
#[derive(Debug, Clone)]
pub struct Image {
    pid: u32,
    /// By address; the program is one of them.
    modules: Vec<Module>,
    program: usize,
    /// Libraries that could not be read, with the reasons.
    pub unread: Vec<(String, String)>,
}

impl Image {
    /// Reads it.
    pub fn read(tree: &impl FileTree, pid: u32) -> Result<Image, ProfileError> {
        let own = |error| of_process(error, pid);
        let maps = tree.read(&format!("/proc/{pid}/maps"), MAPS_BYTES).map_err(own)?;
        let maps = String::from_utf8_lossy(&maps);
        let mappings: Vec<Mapping> =
            maps.lines().filter_map(Mapping::parse).filter(Mapping::is_of_a_file).collect();
        let program = tree.read_link(&format!("/proc/{pid}/exe")).map_err(own)?;
        let mut image = Image { pid, modules: Vec::new(), program: 0, unread: Vec::new() };
        let mut left = LIBRARIES_BYTES;
        let mut seen = HashSet::new();
        for code in mappings.iter().filter(|mapping| mapping.is_code) {
            if !seen.insert(code.path.as_str()) {
                continue;
            }
            if image.modules.len() >= MOST_MODULES {
                image.unread.push((code.path.clone(), format!("it is beyond the first {MOST_MODULES}")));
                break;
            }
            let is_program = code.path == program;
            let content = match is_program {
                true => tree.read(&format!("/proc/{pid}/exe"), PROGRAM_BYTES).map_err(own)?,
                false => match library(tree, pid, code, left.min(LIBRARY_BYTES)) {
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
            self.unread.push((code.path.clone(), "where it is loaded cannot be told".to_owned()));
            return;
        };
        let own = || mappings.iter().filter(|mapping| mapping.path == code.path);
        let start = own().map(|mapping| mapping.range.start).min().unwrap_or(code.range.start);
        let end = own().map(|mapping| mapping.range.end).max().unwrap_or(code.range.end);
        self.modules.push(Module { path: code.path.clone(), range: start..end, bias, elf: Arc::new(elf) });
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Its program and libraries, by address.
    pub fn modules(&self) -> &[Module] {
        &self.modules
    }

    /// Its program.
    pub fn program(&self) -> Option<&Module> {
        self.modules.get(self.program)
    }

    /// Where in the program's file each of some functions begins; an error names those that it does not tell of.
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

    /// Where in the program's file the function begins that an address is within, also one without a name; `None` where that is not told.
    pub fn function_at(&self, address: u64) -> Option<u64> {
        let program = self.program().filter(|program| program.range.contains(&address))?;
        tail::start_of(program.elf.eh_frame_hdr.as_ref()?, address.wrapping_sub(program.bias))
    }

    /// The name of those of the program's functions that jump to the one that begins there ([`Self::function_at`]). It takes some
    /// milliseconds: all of the code is looked through.
    pub fn jumping_to(&self, function: u64) -> Option<String> {
        tail::jumping_to(&self.program()?.elf, function)
    }

    /// Whether an address is within a loop of the program that spins ([`Elf::is_spinning`]).
    pub fn is_spinning(&self, address: u64) -> bool {
        let program = self.program().filter(|program| program.range.contains(&address));
        program.is_some_and(|program| program.elf.is_spinning(address.wrapping_sub(program.bias)))
    }

    /// What an address is within.
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

/// Why a file of the process itself was not read: without it there is no process any more, and that its user could read it is no way out,
/// since he may not watch all of its threads.
fn of_process(error: HostError, pid: u32) -> ProfileError {
    match error {
        HostError::Missing { .. } => ProfileError::Host(HostError::Ended { pid }),
        HostError::Denied { path, .. } => ProfileError::Closed { path },
        error => ProfileError::Host(error),
    }
}

/// The file of a library, whatever stands at its path now.
fn library(tree: &impl FileTree, pid: u32, code: &Mapping, most: usize) -> Result<Vec<u8>, ProfileError> {
    let mapped = format!("/proc/{pid}/map_files/{:x}-{:x}", code.range.start, code.range.end);
    if let Ok(content) = tree.read(&mapped, most) {
        return Ok(content);
    }
    let mut content = Vec::new();
    tree.read_start_below(&format!("/proc/{pid}/root"), &code.path, most, &mut content)?;
    Ok(content)
}

/// The debug file of a program, where its distribution's packages put it: in the VM's container, or on this host.
fn debug_file(tree: &impl FileTree, pid: u32, elf: &Elf) -> Option<Elf> {
    let (folder, rest) = elf.build_id.as_ref()?.split_at_checked(2)?;
    let path = format!("/usr/lib/debug/.build-id/{folder}/{rest}.debug");
    [format!("/proc/{pid}/root"), "/".to_owned()].iter().find_map(|root| {
        let mut content = Vec::new();
        tree.read_start_below(root, &path, PROGRAM_BYTES, &mut content).ok()?;
        Elf::parse(&path, &content).ok()
    })
}

#[cfg(test)]
mod tests {
    use beamtune_host::tree::LocalTree;

    use super::*;

    #[test]
    fn a_mapping_is_read_whatever_its_path() {
        let mapping = |range, is_code, offset, path: &str| {
            Some(Mapping { range, is_code, offset, path: path.to_owned() })
        };
        let check = |line: &str, expect: Option<Mapping>| assert_eq!(Mapping::parse(line), expect, "{line}");
        check(
            "55d0a000-55d0c000 r-xp 00066000 fe:00 4711                       /usr/lib/a b.so (deleted)",
            mapping(0x55d0_a000..0x55d0_c000, true, 0x66000, "/usr/lib/a b.so (deleted)"),
        );
        check("1000-2000 rw-p 00000000 00:00 0 ", mapping(0x1000..0x2000, false, 0, ""));
        check(
            "1000-2000 rwxs 00000000 00:01 2  /memfd:vmem (deleted)",
            mapping(0x1000..0x2000, true, 0, "/memfd:vmem (deleted)"),
        );
        check("2000-1000 rw-p 00000000 00:00 0", None);
        check("1000 rw-p", None);
        check("", None);
    }

    #[test]
    fn memory_of_the_jit_is_no_file() {
        let is = |path: &str| {
            Mapping { range: 1..2, is_code: true, offset: 0, path: path.to_owned() }.is_of_a_file()
        };
        assert!(is("/usr/lib/erlang/erts-13.1.5/bin/beam.smp"));
        assert!(!is("/memfd:vmem (deleted)") && !is("[vdso]") && !is("") && !is("/dev/zero (deleted)"));
    }

    #[test]
    fn the_functions_of_this_process_are_found_where_they_are() {
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
    fn a_program_without_the_functions_says_which_are_missing() {
        let image = Image::read(&LocalTree::default(), std::process::id()).unwrap();
        let error = image.offsets_of(&["main", "ethr_event_wait"]).unwrap_err().to_string();
        assert!(error.contains("without the symbols ethr_event_wait,"), "{error}");
    }

    #[test]
    fn a_process_of_somebody_else_says_which_rights_are_needed() {
        let path = "/proc/7/maps".to_owned();
        let error = of_process(HostError::Denied { path, owner: None }, 7);
        assert!(error.is_denied());
        let expect = "not allowed to read /proc/7/maps: run beamtune as root, or give it CAP_SYS_PTRACE and CAP_PERFMON";
        assert_eq!(error.to_string(), expect);
    }

    #[test]
    fn a_process_that_is_not_there_is_an_error() {
        let error = Image::read(&LocalTree::default(), u32::MAX).unwrap_err();
        assert_eq!(error.to_string(), "process 4294967295 has ended");
    }
}
