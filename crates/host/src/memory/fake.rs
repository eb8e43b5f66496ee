//! A fake VM for tests: mappings, memory and executable. Reading a page that is not resident panics.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::rc::Rc;

use crate::error::HostError;
use crate::fake::FakeHost;
use crate::tree::{FileTree, ReadAt};

pub(crate) const PAGE: u64 = 4096;
/// The executable: constants, code, `.data`, and `.bss`.
pub(crate) const RODATA: u64 = 0x1000_0000;
pub(crate) const CODE: u64 = 0x1000_2000;
pub(crate) const DATA: u64 = 0x1000_4000;
pub(crate) const BSS: u64 = 0x1000_6000;
pub(crate) const BSS_BYTES: u64 = 0x8000;
/// Allocators: two for heaps, and one for literals; the sentinel of the pool, and the address of segment caches.
pub(crate) const EHEAP_0: u64 = BSS;
pub(crate) const LITERAL: u64 = BSS + 0x1000;
pub(crate) const POOL: u64 = BSS + 0x2000;
const INSTANCES: u64 = BSS + 0x2800;
pub(crate) const EHEAP_1: u64 = BSS + 0x3000;
pub(crate) const CACHES: u64 = BSS + 0x4000;
pub(crate) const HEAP: u64 = 0x2000_0000;
pub(crate) const AREA: u64 = 0x3000_0000;
pub(crate) const EXE: &str = "/otp/bin/beam.smp";
/// Offsets of allocator names in the executable's constants.
const NAMES: [(&str, u64); 3] = [("eheap_", 0x100), ("binary_", 0x110), ("literal_", 0x120)];

/// Offsets of the name and the lists in an allocator.
pub(crate) const NAME_AT: u64 = 120;
pub(crate) const LISTS_AT: u64 = 336;
/// Offsets of the lists, relative to the first.
pub(crate) const MBCS: u64 = 0;
pub(crate) const SBCS: u64 = 16;
pub(crate) const DEALLOCATING: u64 = 40;
pub(crate) const SENTINEL: u64 = 56;
/// Flags of carriers.
pub(crate) const MSEG: u64 = 1;
pub(crate) const SBC: u64 = 2;

#[derive(Debug, Clone)]
pub(crate) struct FakeMapping {
    pub start: u64,
    pub end: u64,
    pub rights: &'static str,
    pub offset: u64,
    pub path: &'static str,
}

/// A VM under construction, with 4 KiB pages.
#[derive(Debug, Clone, Default)]
pub(crate) struct FakeVm {
    pub mappings: Vec<FakeMapping>,
    pub pages: BTreeMap<u64, Vec<u8>>,
    pub swapped: BTreeSet<u64>,
    pub exe: Vec<u8>,
    /// Offsets of the name and the lists in its allocators.
    pub name_at: u64,
    pub lists_at: u64,
    /// Files that cannot be read.
    pub denied: BTreeSet<&'static str>,
    pub files: BTreeMap<String, String>,
}

impl FakeVm {
    /// Creates a VM with an executable and an empty heap; a gigabyte is unmapped from [`AREA`] on.
    pub fn bare() -> FakeVm {
        let mut vm = FakeVm { name_at: NAME_AT, lists_at: LISTS_AT, exe: exe(), ..FakeVm::default() };
        vm.map(RODATA, CODE, "r--p", 0, EXE);
        vm.map(CODE, DATA, "r-xp", 0x2000, EXE);
        vm.map(DATA, BSS, "rw-p", 0x4000, EXE);
        vm.map(BSS, BSS + BSS_BYTES, "rw-p", 0, "");
        vm.map(HEAP, HEAP + 0x10_0000, "rw-p", 0, "[heap]");
        vm.map(0x7000_0000, 0x7002_0000, "rw-p", 0, "[stack]");
        vm.files.insert("/proc/7/status".to_owned(), "NSpid:\t7\n".to_owned());
        vm
    }

    /// Creates a VM with an allocator for heaps, another instance of it for a scheduler, and an allocator for literals.
    pub fn new() -> FakeVm {
        let mut vm = FakeVm::bare();
        vm.map(AREA, AREA + 0x1000_0000, "rw-p", 0, "");
        vm.word(DATA, EHEAP_0);
        vm.allocator(EHEAP_0, "eheap_");
        // An array with that instance and the scheduler's.
        vm.word(DATA + 8, INSTANCES);
        vm.word(INSTANCES, EHEAP_0);
        vm.word(INSTANCES + 8, EHEAP_1);
        vm.allocator(EHEAP_1, "eheap_");
        vm.word(DATA + 16, LITERAL);
        vm.allocator(LITERAL, "literal_");
        vm.carriers(EHEAP_0, MBCS, &[(AREA, 0x4_0000, MSEG)]);
        vm.carriers(LITERAL, MBCS, &[(AREA + 0x10_0000, 0x4_0000, MSEG)]);
        vm
    }

    pub fn map(&mut self, start: u64, end: u64, rights: &'static str, offset: u64, path: &'static str) {
        self.mappings.push(FakeMapping { start, end, rights, offset, path });
        self.mappings.sort_by_key(|mapping| mapping.start);
    }

    /// Writes a word, which makes its page resident.
    pub fn word(&mut self, address: u64, value: u64) {
        assert!(address.is_multiple_of(8), "{address:#x}");
        let page = self.pages.entry(address / PAGE * PAGE).or_insert_with(|| vec![0; PAGE as usize]);
        let at = (address % PAGE) as usize;
        page[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }

    /// Makes pages resident.
    pub fn touch(&mut self, start: u64, end: u64) {
        for page in (start / PAGE * PAGE..end).step_by(PAGE as usize) {
            self.pages.entry(page).or_insert_with(|| vec![0; PAGE as usize]);
        }
    }

    pub fn swap_out(&mut self, address: u64) {
        self.pages.remove(&(address / PAGE * PAGE));
        self.swapped.insert(address / PAGE * PAGE);
    }

    pub fn allocator(&mut self, address: u64, name: &str) {
        let (_, at) = NAMES.iter().find(|(known, _)| *known == name).unwrap();
        self.word(address + self.name_at, RODATA + at);
        self.touch(address, address + 0x400);
    }

    /// Puts carriers (address, size, flags) into one of an allocator's lists.
    pub fn carriers(&mut self, allocator: u64, list: u64, carriers: &[(u64, u64, u64)]) {
        let at = |index: Option<usize>| {
            index.and_then(|index| carriers.get(index)).map_or(0, |(address, ..)| *address)
        };
        for (index, (address, size, kind)) in carriers.iter().enumerate() {
            self.word(*address, size | kind);
            self.word(address + 8, at(Some(index + 1)));
            self.word(address + 16, at(index.checked_sub(1)));
            self.word(address + 24, allocator);
        }
        self.word(allocator + self.lists_at + list, at(Some(0)));
        self.word(allocator + self.lists_at + list + 8, at(carriers.len().checked_sub(1)));
    }

    /// Puts carriers (address, size, allocator) into the ring of a sentinel.
    pub fn ring(&mut self, sentinel: u64, carriers: &[(u64, u64, u64)]) {
        let mut nodes = vec![sentinel];
        for (address, size, allocator) in carriers {
            self.word(*address, size | MSEG);
            // The flag for carriers in the pool.
            self.word(address + 24, allocator | 1);
            self.word(address + 64, *allocator);
            nodes.push(address + 32);
        }
        for (index, node) in nodes.iter().enumerate() {
            self.word(node + 16, nodes[(index + 1) % nodes.len()]);
            self.word(node + 24, nodes[(index + nodes.len() - 1) % nodes.len()]);
        }
    }

    fn of_mapping<'a>(&'a self, mapping: &FakeMapping) -> impl Iterator<Item = u64> + use<'a> {
        self.pages.range(mapping.start..mapping.end).map(|(page, _)| *page)
    }

    /// Returns the resident memory of all mappings.
    pub fn resident(&self) -> u64 {
        self.mappings.iter().map(|mapping| self.of_mapping(mapping).count() as u64 * PAGE).sum()
    }

    fn smaps(&self) -> String {
        let mut text = String::new();
        for mapping in &self.mappings {
            let resident = self.of_mapping(mapping).count() as u64 * PAGE / 1024;
            let swapped = self.swapped.range(mapping.start..mapping.end).count() as u64 * PAGE / 1024;
            let FakeMapping { start, end, rights, offset, path } = mapping;
            writeln!(text, "{start:x}-{end:x} {rights} {offset:08x} 00:00 0    {path}").unwrap();
            let size = (end - start) / 1024;
            writeln!(text, "Size: {size} kB\nRss: {resident} kB\nPss: {resident} kB").unwrap();
            writeln!(text, "AnonHugePages: 0 kB\nSwap: {swapped} kB\nVmFlags: rd wr").unwrap();
        }
        text
    }

    fn entry(&self, page: u64) -> u64 {
        match (self.pages.contains_key(&page), self.swapped.contains(&page)) {
            (true, _) => 1 << 63 | 1 << 56,
            (_, true) => 1 << 62,
            _ => 0,
        }
    }

    /// Creates the files of a process. Its addresses are low, so that they are valid file offsets.
    pub fn install(&self, host: &FakeHost, pid: u32) {
        let program = host.path(EXE).to_string_lossy().into_owned();
        host.file(EXE, &self.exe).link(&format!("/proc/{pid}/exe"), &program);
        host.file(&format!("/proc/{pid}/smaps"), self.smaps().replace(EXE, &program));
        let sparse = |name: &str| {
            let path = format!("/proc/{pid}/{name}");
            host.file(&path, "");
            File::options().write(true).open(host.path(&path)).unwrap()
        };
        let (memory, pagemap) = (sparse("mem"), sparse("pagemap"));
        for (page, content) in &self.pages {
            memory.write_all_at(content, *page).unwrap();
        }
        let ends = self.mappings.iter().map(|mapping| mapping.end / PAGE * 8);
        pagemap.set_len(ends.max().unwrap_or(0)).unwrap();
        for page in self.pages.keys().chain(&self.swapped) {
            pagemap.write_all_at(&self.entry(*page).to_ne_bytes(), page / PAGE * 8).unwrap();
        }
    }

    /// Returns the files of the VM as process 7.
    pub fn tree(self) -> FakeTree {
        FakeTree(Rc::new(self))
    }
}

/// Creates an executable with a file of 0x6000 bytes and `.bss`.
fn exe() -> Vec<u8> {
    let mut exe = vec![0; 0x6000];
    exe[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1]);
    // Offset, entry size and number of program headers.
    exe[32..40].copy_from_slice(&64_u64.to_le_bytes());
    exe[54..56].copy_from_slice(&56_u16.to_le_bytes());
    exe[56..58].copy_from_slice(&2_u16.to_le_bytes());
    let mut load = |at: usize, offset: u64, size: u64| {
        exe[at..at + 4].copy_from_slice(&1_u32.to_le_bytes());
        exe[at + 8..at + 16].copy_from_slice(&offset.to_le_bytes());
        exe[at + 16..at + 24].copy_from_slice(&offset.to_le_bytes());
        exe[at + 40..at + 48].copy_from_slice(&size.to_le_bytes());
    };
    load(64, 0, 0x4000);
    load(120, 0x4000, 0x2000 + BSS_BYTES);
    let loader = ("/lib64/ld-linux-x86-64.so.2", 0x200);
    for (text, at) in NAMES.into_iter().chain([loader]) {
        exe[at as usize..at as usize + text.len()].copy_from_slice(text.as_bytes());
    }
    exe
}

/// The files of a fake VM, process 7.
#[derive(Debug, Clone)]
pub(crate) struct FakeTree(Rc<FakeVm>);

#[derive(Debug)]
enum Opened {
    Text(Vec<u8>),
    Pagemap(FakeTree),
    Memory(FakeTree),
}

impl ReadAt for Opened {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Opened::Text(bytes) => {
                let rest = bytes.get(offset as usize..).unwrap_or_default();
                let read = rest.len().min(into.len()).min(1000);
                into[..read].copy_from_slice(&rest[..read]);
                Ok(read)
            }
            Opened::Pagemap(FakeTree(vm)) => {
                for (index, entry) in into.as_chunks_mut::<8>().0.iter_mut().enumerate() {
                    *entry = vm.entry((offset / 8 + index as u64) * PAGE).to_ne_bytes();
                }
                Ok(into.len())
            }
            Opened::Memory(FakeTree(vm)) => {
                let page = offset / PAGE * PAGE;
                let content = vm
                    .pages
                    .get(&page)
                    .unwrap_or_else(|| panic!("page {page:#x} was read, but is not resident"));
                let rest = &content[(offset - page) as usize..];
                let read = rest.len().min(into.len());
                into[..read].copy_from_slice(&rest[..read]);
                Ok(read)
            }
        }
    }
}

impl FileTree for FakeTree {
    fn read_start(&self, path: &str, max_bytes: usize, into: &mut Vec<u8>) -> Result<(), HostError> {
        let content = match path {
            "/proc/7/exe" => self.0.exe.as_slice(),
            path => self.0.files.get(path).ok_or(HostError::Missing { path: path.to_owned() })?.as_bytes(),
        };
        *into = content[..content.len().min(max_bytes)].to_vec();
        Ok(())
    }

    fn read_start_below(&self, _: &str, path: &str, max: usize, into: &mut Vec<u8>) -> Result<(), HostError> {
        self.read_start(path, max, into)
    }

    fn list(&self, path: &str, _: usize) -> Result<Vec<String>, HostError> {
        Err(HostError::Missing { path: path.to_owned() })
    }

    fn count(&self, path: &str, _: usize) -> Result<u64, HostError> {
        Err(HostError::Missing { path: path.to_owned() })
    }

    fn read_link(&self, path: &str) -> Result<String, HostError> {
        match path {
            "/proc/7/exe" => Ok(EXE.to_owned()),
            "/proc/7/root" => Ok("/".to_owned()),
            _ => Err(HostError::Missing { path: path.to_owned() }),
        }
    }

    fn open(&self, path: &str) -> Result<Box<dyn ReadAt>, HostError> {
        if self.0.denied.contains(path) {
            return Err(HostError::Denied { path: path.to_owned(), owner: None });
        }
        Ok(Box::new(match path {
            "/proc/7/smaps" => Opened::Text(self.0.smaps().into_bytes()),
            "/proc/7/exe" => Opened::Text(self.0.exe.clone()),
            "/proc/7/pagemap" => Opened::Pagemap(self.clone()),
            "/proc/7/mem" => Opened::Memory(self.clone()),
            _ => return Err(HostError::Missing { path: path.to_owned() }),
        }))
    }
}
