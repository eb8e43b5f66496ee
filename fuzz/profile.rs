//! Input of the profiler: the executable and the stacks of the VM, which are untrusted, and the kernel's records.

use std::ops::Range;

use beamtune_host::HostError;
use beamtune_host::tree::FileTree;
use beamtune_profile::Image;
use beamtune_profile::memory::word_at;
use beamtune_profile::native::{self, NativeUnwinder, RegisterSet};
use beamtune_profile::record::{REGISTERS, Record};

/// Load address of the program.
const START: u64 = 0x5555_5000_0000;
/// Maximum number of frames per stack.
const MAX_FRAMES: usize = 128;

/// An executable: parses it, loads it into a synthetic process, and unwinds and symbolizes stacks with the same bytes.
pub fn program(bytes: &[u8]) {
    let Ok(image) = Image::read(&Loaded(bytes), 7) else { return };
    let Some(program) = image.program() else { return };
    // Two symbol tables with 24 bytes per symbol, which may overlap.
    assert!(program.elf.named() <= bytes.len() / 12, "{} names", program.elf.named());
    let _ = image.offsets_of(&["main", "ethr_event_wait"]);
    let bias = program.bias;
    let text = program.elf.text.as_ref().map_or(0, |text| text.range.start);
    let mut unwinder = NativeUnwinder::new(&image);
    for step in [0, 1, 16, 100, 4_000] {
        for address in [START.wrapping_add(step), text.wrapping_add(bias).wrapping_add(step)] {
            let frame = image.frame(address);
            assert!(frame.function.is_none_or(|name| !name.is_empty() && name.len() <= bytes.len()));
            let _ = (image.is_spinning(address), program.elf.offset_at(address.wrapping_sub(bias)));
            if let Some(function) = image.function_at(address) {
                let _ = image.tail_callers(function);
            }
            let sp = 0x7fff_0000_0000;
            let mut registers = RegisterSet { ip: address, values: [Some(address); native::COUNT] };
            registers.values[native::SP] = Some(sp);
            registers.values[native::FP] = Some(sp.wrapping_add(step));
            let stack = unwinder.unwind(registers, None, |address| word_at(bytes, address.checked_sub(sp)?));
            assert!(stack.frames.len() <= MAX_FRAMES);
            stack.frames.iter().for_each(|address| {
                image.frame(*address);
            });
        }
    }
}

/// A process with its executable mapped completely.
#[derive(Debug)]
struct Loaded<'a>(&'a [u8]);

impl Loaded<'_> {
    fn missing<T>(&self, path: &str) -> Result<T, HostError> {
        Err(HostError::Missing { path: path.to_owned() })
    }

    fn mapped(&self) -> Range<u64> {
        START..START + (self.0.len() as u64).next_multiple_of(4096).max(4096)
    }
}

impl FileTree for Loaded<'_> {
    fn read_start(&self, path: &str, max_bytes: usize, into: &mut Vec<u8>) -> Result<(), HostError> {
        let maps;
        let content = match path {
            "/proc/7/maps" => {
                let Range { start, end } = self.mapped();
                maps = format!("{start:x}-{end:x} r-xp 00000000 fe:00 7 /vm\n");
                maps.as_bytes()
            }
            "/proc/7/exe" => self.0,
            _ => return self.missing(path),
        };
        into.clear();
        into.extend_from_slice(&content[..content.len().min(max_bytes)]);
        Ok(())
    }

    /// A debug file, possibly of another build.
    fn read_start_below(&self, _: &str, path: &str, max: usize, into: &mut Vec<u8>) -> Result<(), HostError> {
        let is_debug = path.starts_with("/usr/lib/debug/.build-id/");
        if is_debug { self.read_start("/proc/7/exe", max, into) } else { self.missing(path) }
    }

    fn list(&self, path: &str, _: usize) -> Result<Vec<String>, HostError> {
        self.missing(path)
    }

    fn count(&self, path: &str, _: usize) -> Result<u64, HostError> {
        self.missing(path)
    }

    fn read_link(&self, _: &str) -> Result<String, HostError> {
        Ok("/vm".to_owned())
    }
}

/// A perf record: its type, two bytes of its header, and its body. A sample's stack fits into the body next to time, thread and
/// registers.
pub fn perf_record(bytes: &[u8]) {
    let [kind, low, high, body @ ..] = bytes else { return };
    if let Some(Record::Sample(sample)) =
        Record::parse(u32::from(*kind), u16::from_le_bytes([*low, *high]), body, low % 2 == 0)
    {
        let words = if sample.registers.is_some() { REGISTERS.count_ones() as usize } else { 0 };
        assert!(sample.stack.len() + (words + 4) * 8 <= body.len());
    }
}
