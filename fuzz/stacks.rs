//! What the profiler reads of a VM: its mappings, the tables and stacks in its memory, and the unwind tables of its files.

use std::cell::Cell;
use std::sync::Arc;

use beamtune_model::{CallStack, ProfileBuilder, ProfiledThread, StackSample};
use beamtune_profile::Image;
use beamtune_profile::elf::{Elf, Section};
use beamtune_profile::erlang::{generated_code, static_data};
use beamtune_profile::image;
use beamtune_profile::memory::{Memory as ReadMemory, word_at};
use beamtune_profile::native::{self, NativeUnwinder, RegisterSet};
use beamtune_profile::record::Record;
use beamtune_profile::vm::{ThreadKind, VmStacks};
use beamtune_report::Style;
use beamtune_report::profile::{self, Page};

use super::assert_harmless;
use super::memory::Memory;
use super::sample::SyntheticHost;

/// The type of a sample in perf records (perf_event.h).
const RECORD_SAMPLE: u32 = 9;
/// Limits of frames: of a process, and of C code.
const MAX_ERLANG_FRAMES: usize = 1_024;
const MAX_NATIVE_FRAMES: usize = 128;
/// CPU time that a sample represents.
const PERIOD_NS: i64 = 1_000_000;

/// Process 7 and samples of its threads: its files and memory as in [`super::memory`], and `=== sample NUMBER KIND` followed by the body of
/// a perf record with kernel stack. All that is found is printed in every format.
pub fn vm_stacks(bytes: &[u8]) {
    let tree = SyntheticHost::read(bytes);
    let Ok(image) = Image::read(&tree, 7) else { return };
    let Ok(mut stacks) = VmStacks::of(&tree, image, Memory::of(&tree), 1) else { return };
    let mut builder = ProfileBuilder::default();
    let thread = ProfiledThread { tid: 7, kind: "scheduler".to_owned(), name: String::new() };
    let thread = builder.thread(thread);
    for (path, body) in tree.iter() {
        let Some(name) = path.strip_prefix("sample ") else { continue };
        let body = body.strip_suffix(b"\n").unwrap_or(body);
        let Some(Record::Sample(sample)) = Record::parse(RECORD_SAMPLE, 0, body, true) else { continue };
        let kind = match name.split(' ').nth(1) {
            Some("dirty") => ThreadKind::DirtyScheduler,
            Some("other") => ThreadKind::Other,
            _ => ThreadKind::Scheduler,
        };
        // The second time, its frames are known.
        for _ in 0..2 {
            let found = stacks.stack(&sample, kind, &mut builder);
            let max_frames = MAX_ERLANG_FRAMES + 1 + MAX_NATIVE_FRAMES + sample.kernel.len() / 8;
            assert!(found.frames.len() <= max_frames, "{} frames", found.frames.len());
            let stack = builder.stack(CallStack { frames: found.frames, is_complete: found.is_complete });
            let (process, state) = (found.process, found.state);
            builder.add(StackSample { t: 0, thread, process, state, stack, count: 1, weight: PERIOD_NS });
        }
        stacks.follow_code();
    }
    builder.profile().processes = stacks.take_process_names();
    let found = builder.finish();
    let page = Page { node: "shop@web1", profile: &found };
    assert_harmless(&profile::render(&page, Style::PLAIN));
    assert_harmless(&profile::collapsed(&found));
    assert_harmless(&profile::speedscope(&found, "shop@web1"));
    assert_harmless(&profile::json(&page));
    assert_eq!(profile::html(&page).matches("</script>").count(), 2, "no name ends its element");
    profile::pprof(&found);
}

/// Addresses of code, of its unwind tables, and of a stack.
const CODE: u64 = 0x5555_5000_0000;
const TABLE: u64 = 0x10_0000;
const STACK: u64 = 0x7fff_0000_0000;
/// Reads of one frame: the CFA and each register may have an expression, whose steps may read a word each.
const MAX_READS: usize = (1 + native::COUNT) * 65;

/// Unwind tables: the instruction pointer (two bytes), the size of the stack (words, one byte), the stack, and an `.eh_frame` without index.
pub fn eh_frame(bytes: &[u8]) {
    let [low, high, words, rest @ ..] = bytes else { return };
    let (stack, table) = rest.split_at(rest.len().min(usize::from(*words) * 8));
    let mut elf = Elf::default();
    elf.eh_frame = Some(Section { range: TABLE..TABLE + table.len() as u64, data: Arc::from(table) });
    let mut unwinder = NativeUnwinder::default();
    unwinder.add(&elf, CODE..CODE + 0x1_0000, CODE);
    let ip = CODE + u64::from(u16::from_le_bytes([*low, *high]));
    let mut registers = RegisterSet { ip, values: [Some(STACK + 16); native::COUNT] };
    registers.values[native::SP] = Some(STACK);
    let reads = Cell::new(0);
    let mut unwind = || {
        reads.set(0);
        let found = unwinder.unwind(registers, None, |address| {
            reads.set(reads.get() + 1);
            word_at(stack, address.checked_sub(STACK)?)
        });
        assert!(found.frames.len() <= MAX_NATIVE_FRAMES && found.callers.len() == found.frames.len());
        assert!(reads.get() <= MAX_READS * found.frames.len(), "{} reads", reads.get());
        found
    };
    let first = unwind();
    assert_eq!(unwind(), first, "the kept rules differ");
}

/// Limit of static data, in bytes.
const MAX_STATIC_BYTES: u64 = 32 << 20;

/// `/proc/7/maps`.
pub fn maps(bytes: &[u8]) {
    let tree = SyntheticHost::read(&[b"=== /proc/7/maps\n", bytes].concat());
    let Ok(mappings) = image::mappings(&tree, 7) else { return };
    assert!(mappings.len() <= bytes.len());
    assert!(mappings.iter().all(|mapping| mapping.range.start < mapping.range.end));
    let program = mappings.first().map_or("", |mapping| mapping.path.as_str());
    let memory = SmallReads(Cell::new(0));
    for data in static_data(&memory, &mappings, program) {
        assert!(mappings.iter().any(|mapping| mapping.is_writable && mapping.range.start == data.address));
    }
    assert!(memory.0.get() <= MAX_STATIC_BYTES, "{} bytes", memory.0.get());
    assert!(generated_code(&mappings).len() <= mappings.len());
}

/// Memory that counts the bytes that are asked for, and has only small parts.
struct SmallReads(Cell<u64>);

impl ReadMemory for SmallReads {
    fn read(&self, _: u64, out: &mut [u8]) -> bool {
        self.0.set(self.0.get() + out.len() as u64);
        out.len() <= 0x1_0000
    }
}
