//! From a sample of a thread to its whole call stack: the kernel, C code of the VM, and the Erlang functions of the process that runs.
//!
//! Generated code runs on the stack of the process, so a sample of it contains the stack. C code runs on the stack of the scheduler: it is unwound to
//! the generated code that called it, which tells where the stack of the process is ([`crate::erlang::process`]). That stack is then read from the
//! VM's memory, some 20 µs after the sample. If the thread has returned to generated code by then, the Erlang frames are dropped and counted.
//!
//! The interpreter is a C function, `process_main`, which has process, stack and instruction in registers; which ones differs between builds and
//! within the function. So they are recognized by what they point to.
//!
//! x86-64 only: on ARM64, stacks end at the C code.

mod erlang;
mod frames;

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use beamtune_host::tree::{FileTree, LocalTree};
use beamtune_model::{CpuState, Frame, FrameKind, Profile, ProfileBuilder};

use crate::elf::Elf;
use crate::erlang::generated_code;
use crate::erlang::process::ProcessStack;
use crate::erlang::stack::ErlangStack;
use crate::error::ProfileError;
use crate::image::{self, Image, Mapping};
use crate::kernel::{self, KernelNames};
use crate::memory::{LimitedMemory, Memory, ProcessMemory, ReadLimit};
use crate::native::{NativeUnwinder, RegisterSet};
use crate::record::Sample;
use crate::stack::StackEnd;
use crate::state::{self, Names};
use erlang::{Erlang, ErlangPart};
use frames::{CodeKind, Frames};

/// Maximum number of searches for the code tables. While the VM loads code, a search may fail (measured: 1 of 12 at 40 loads per second).
const MAX_FIND_ATTEMPTS: u32 = 10;
/// Pause between two searches.
const FIND_PAUSE: Duration = Duration::from_millis(50);
/// Limit of a search for the tables, and of reading the code tables again: 40 times the reads of a VM with 29,000 functions (measured, OTP 25:
/// 128,000 reads of 20 MB together).
const SEARCH_LIMIT: ReadLimit = ReadLimit { reads: 5_000_000, bytes: 2 << 30 };
/// Limit of a sample: the lines of a thousand frames that were not seen before (judgement).
const SAMPLE_LIMIT: ReadLimit = ReadLimit { reads: 50_000, bytes: 256 << 20 };

/// The path of the vDSO in `/proc/PID/maps`.
const VDSO: &str = "[vdso]";
/// The function of the interpreter (beam_emu.c).
const INTERPRETER: &str = "process_main";
/// Functions that choose the next process (erl_process.c).
const SCHEDULE: [&str; 2] = ["erts_schedule", "schedule"];
/// The start of the thread, the function of the scheduler, and `erts_dirty_process_main` (ethread.c, erl_process.c, beam_common.c).
const DIRTY_ROOT_FRAMES: usize = 3;
/// Limit of named processes; names of 100,000 take 10 MB.
const MAX_PROCESSES: usize = 100_000;
/// Modules of stdlib and Elixir in which the processes of many modules begin: they say nothing of the process.
const GENERIC_MODULES: &[&str] = &[
    "proc_lib",
    "gen",
    "gen_server",
    "gen_statem",
    "gen_event",
    "gen_fsm",
    "supervisor",
    "erlang",
    "lists",
    "maps",
    "timer",
    "Elixir.Task.Supervised",
    "Elixir.Enum",
    "Elixir.GenServer",
];

/// Reads the call stacks of a VM.
#[derive(Debug)]
pub struct VmStacks<M = ProcessMemory> {
    memory: LimitedMemory<M>,
    image: Image,
    kernel: KernelNames,
    unwinder: NativeUnwinder,
    /// The vDSO: its addresses, the difference to those of its file, and the file.
    vdso: Option<(Range<u64>, u64, Arc<Elf>)>,
    generated: Vec<Range<u64>>,
    /// The interpreter, in a VM without JIT.
    interpreter: Option<Range<u64>>,
    erlang: Option<Erlang>,
    frames: Frames,
    /// Names of processes by number.
    processes: HashMap<u64, String>,
    /// Functions that choose the next process, by their start in the program's file: those that the loop of a scheduler calls.
    schedule: HashSet<u64>,
    /// What is missing, in sentences.
    pub remarks: Vec<String>,
}

/// The kind of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThreadKind {
    /// A scheduler: generated code or the interpreter calls C.
    Scheduler,
    /// A dirty scheduler: runs long NIFs and BIFs, and collects large heaps, from C.
    DirtyScheduler,
    /// Any other thread.
    Other,
}

/// A whole call stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VmStack {
    /// Indices in the profile, outermost first.
    pub frames: Vec<u32>,
    /// Whether the outermost function was reached.
    pub is_complete: bool,
    /// Number of the process that runs.
    pub process: Option<u64>,
    /// Whether a process runs whose frames are not known.
    pub lacks_frames: bool,
    /// What the thread does.
    pub state: CpuState,
}

/// The part of a stack that is in user mode.
#[derive(Debug, Default)]
struct UserPart {
    /// C frames, innermost first.
    native: Vec<u64>,
    native_end: StackEnd,
    erlang: ErlangPart,
    is_spinning: bool,
}

impl VmStacks {
    /// Opens the memory of a VM, and finds its code. Takes 50 to 300 ms.
    ///
    /// # Errors
    /// If the process or its memory cannot be read. A VM whose Erlang code is not found is no error: its stacks end at C code.
    pub fn open(pid: u32) -> Result<VmStacks, ProfileError> {
        let tree = LocalTree::default();
        let image = Image::read(&tree, pid)?;
        let memory = ProcessMemory::open(pid)
            .map_err(|_| ProfileError::Closed { path: format!("/proc/{pid}/mem") })?;
        VmStacks::of(&tree, image, memory, MAX_FIND_ATTEMPTS)
    }
}

impl<M: Memory> VmStacks<M> {
    /// Finds the code of a process in its memory, in at most this many attempts.
    ///
    /// # Errors
    /// If the process has ended.
    pub fn of(
        tree: &impl FileTree,
        image: Image,
        memory: M,
        max_attempts: u32,
    ) -> Result<VmStacks<M>, ProfileError> {
        let pid = image.pid();
        let mappings = image::mappings(tree, pid)?;
        let memory = LimitedMemory::new(memory);
        memory.allow(SEARCH_LIMIT);
        let mut unwinder = NativeUnwinder::new(&image);
        let vdso = vdso(&memory, &mappings);
        if let Some((range, bias, elf)) = &vdso {
            unwinder.add(elf, range.clone(), *bias);
        }
        let generated = generated_code(&mappings);
        let program =
            tree.read_link(&format!("/proc/{pid}/exe")).map_err(|error| image::of_process(error, pid))?;
        let find = |attempt: u32| {
            if attempt > 0 {
                std::thread::sleep(FIND_PAUSE);
            }
            memory.allow(SEARCH_LIMIT);
            Erlang::find(&memory, &mappings, &program, &generated)
        };
        let erlang = (0..max_attempts).find_map(find);
        let mut remarks = Vec::new();
        if erlang.is_none() {
            remarks
                .push("no Erlang functions: the tables of loaded code were not found in this VM".to_owned());
        }
        let has_jit = erlang.as_ref().is_some_and(|erlang| erlang.has_jit);
        let named = SCHEDULE.iter().filter_map(|name| image.function_at(image.range_of(name)?.start));
        Ok(VmStacks {
            kernel: KernelNames::read(tree),
            interpreter: image.range_of(INTERPRETER).filter(|_| !has_jit),
            schedule: named.collect(),
            memory,
            image,
            unwinder,
            vdso,
            generated,
            erlang,
            frames: Frames::default(),
            processes: HashMap::new(),
            remarks,
        })
    }

    /// Returns the whole stack of a sample, and adds its frames to the profile. All samples of a VM belong to the same profile.
    pub fn stack(&mut self, sample: &Sample<'_>, kind: ThreadKind, builder: &mut ProfileBuilder) -> VmStack {
        self.memory.allow(SAMPLE_LIMIT);
        let registers = sample.registers.as_ref();
        let user = registers.map(|registers| self.user_part(sample, registers, kind)).unwrap_or_default();
        let UserPart { mut native, native_end, erlang, is_spinning } = user;
        let mut frames = Vec::new();
        for address in erlang.stack.frames.iter().rev().chain(&erlang.leaf) {
            frames.extend(self.erlang_frame(*address, builder));
        }
        if self.interpreter.is_some() && erlang.leaf.is_some() {
            // The interpreter itself says nothing.
            native.pop();
        }
        if kind == ThreadKind::DirtyScheduler && erlang.process.is_some() {
            native.truncate(native.len().saturating_sub(self.root_frames(&native)));
        }
        if self.fragment_at(erlang.leaf).is_some_and(state::is_scheduler_loop) {
            self.schedule.extend(native.last().and_then(|address| self.image.function_at(*address)));
        }
        let first_native = frames.len();
        frames.extend(native.iter().rev().map(|address| self.native_frame(*address, builder)));
        let first_kernel = frames.len();
        let kernel: Vec<u64> = kernel::addresses(sample.kernel).collect();
        frames.extend(kernel.iter().rev().map(|address| self.kernel_frame(*address, builder)));
        if let Some(process) = &erlang.process {
            self.name_process(process, &erlang.stack);
        }
        let has_process = erlang.process.is_some() || !erlang.stack.frames.is_empty();
        let profile = builder.profile();
        let state = state::of(&Names {
            kernel: &names(profile, &frames[first_kernel..]),
            native: &names(profile, &frames[first_native..first_kernel]),
            fragment: self.fragment_at(erlang.leaf),
            is_spinning,
            has_process,
            is_scheduler: kind != ThreadKind::Other,
        });
        VmStack {
            is_complete: if has_process { erlang.stack.is_complete } else { native_end == StackEnd::Bottom },
            process: erlang.process.map(|process| process.number),
            lacks_frames: erlang.is_expected && erlang.stack.frames.is_empty() && !erlang.stack.is_complete,
            state,
            frames,
        }
    }

    /// Returns the name of the shared code of the JIT that runs, or that called C.
    fn fragment_at(&self, leaf: Option<u64>) -> Option<&str> {
        self.erlang.as_ref()?.fragment_at(leaf?)
    }

    /// Reads the part of a stack that is in user mode.
    fn user_part(&mut self, sample: &Sample<'_>, registers: &RegisterSet, kind: ThreadKind) -> UserPart {
        if is_in(&self.generated, registers.ip) {
            let erlang = self.erlang.as_mut();
            let erlang = erlang.map(|erlang| erlang.running(&self.memory, registers, sample.stack));
            return UserPart { erlang: erlang.unwrap_or_default(), ..UserPart::default() };
        }
        let copied = |address: u64| sample.word(address);
        let native = self.unwinder.unwind(*registers, self.interpreter.as_ref(), copied);
        let is_spinning = native.frames.first().is_some_and(|address| self.image.is_spinning(*address));
        let caller = &native.registers;
        let is_schedule = |address: &u64| {
            self.image.function_at(*address).is_some_and(|start| self.schedule.contains(&start))
        };
        let part = match &mut self.erlang {
            Some(erlang) if native.end == StackEnd::Generated && is_in(&self.generated, caller.ip) => {
                erlang.calling(&self.memory, caller)
            }
            // The loop of a scheduler runs no process.
            _ if native.frames.iter().any(is_schedule) => ErlangPart::default(),
            Some(erlang) if native.end == StackEnd::Generated && self.interpreter.is_some() => {
                erlang.interpreting(&self.memory, caller, native.frames.len() == 1, copied)
            }
            // A dirty scheduler runs a process from C.
            Some(erlang) if native.end == StackEnd::Bottom && kind == ThreadKind::DirtyScheduler => {
                erlang.dirty(&self.memory, &native.callers)
            }
            _ => ErlangPart::default(),
        };
        UserPart { native: native.frames, native_end: native.end, erlang: part, is_spinning }
    }

    /// Reads the code tables again, unless that was done a short time ago.
    fn refresh(&mut self) {
        let left = self.memory.left();
        self.memory.allow(SEARCH_LIMIT);
        if self.erlang.as_mut().is_some_and(|erlang| erlang.refresh(&self.memory)) {
            self.frames.forget_generated();
        }
        self.memory.allow(left);
    }

    /// Reads the code tables again if the VM has loaded or purged code since: other code may now be at the same address.
    pub fn follow_code(&mut self) {
        self.memory.allow(SAMPLE_LIMIT);
        if self.erlang.as_ref().is_some_and(|erlang| !erlang.code.is_current(&self.memory)) {
            self.refresh();
        }
    }

    /// Returns the frame of an address in generated code. If the code is unknown, it may have been loaded since, so the tables are read again.
    fn erlang_frame(&mut self, address: u64, builder: &mut ProfileBuilder) -> Option<u32> {
        if let Some(frame) = self.frames.get(CodeKind::Generated, address) {
            return Some(frame);
        }
        let frame = self.erlang.as_ref()?.frame_at(&self.memory, address);
        if frame.is_none() {
            self.refresh();
        }
        let frame = frame.or_else(|| self.erlang.as_ref()?.frame_at(&self.memory, address))?;
        Some(self.frames.add(builder, CodeKind::Generated, address, frame))
    }

    /// Returns the number of outermost frames of a dirty scheduler that are the same for every process: those of libc, and [`DIRTY_ROOT_FRAMES`] of the emulator.
    fn root_frames(&self, native: &[u64]) -> usize {
        let outer = native.iter().rev();
        outer.take_while(|address| !self.image.frame(**address).is_program).count() + DIRTY_ROOT_FRAMES
    }

    /// Stores the name of a process: its registered name, or else its outermost function that is not a generic one of OTP.
    fn name_process(&mut self, process: &ProcessStack, stack: &ErlangStack) {
        if self.processes.contains_key(&process.number) || self.processes.len() >= MAX_PROCESSES {
            return;
        }
        let Some(erlang) = &mut self.erlang else { return };
        let name = erlang.names.read(&self.memory, &erlang.atoms, process.address);
        let own = || {
            let functions = stack.frames.iter().rev().filter_map(|address| erlang.code.function_at(*address));
            let mut names = functions.filter_map(|function| erlang.code.name(function.id));
            names.find(|name| !GENERIC_MODULES.contains(&&*name.module)).map(ToString::to_string)
        };
        let initial = name
            .initial
            .filter(|initial| !GENERIC_MODULES.iter().any(|generic| is_in_module(initial, generic)));
        if let Some(name) = name.registered.or(initial).or_else(own) {
            self.processes.insert(process.number, name);
        }
    }

    /// Removes and returns the names of processes, by process number.
    pub fn take_process_names(&mut self) -> HashMap<u64, String> {
        std::mem::take(&mut self.processes)
    }

    fn native_frame(&mut self, address: u64, builder: &mut ProfileBuilder) -> u32 {
        if let Some(frame) = self.frames.get(CodeKind::Native, address) {
            return frame;
        }
        let frame = self.named_native(address);
        self.frames.add(builder, CodeKind::Native, address, frame)
    }

    fn named_native(&self, address: u64) -> Frame {
        if let Some((range, bias, elf)) = &self.vdso
            && range.contains(&address)
        {
            let name = elf.name_at(address.wrapping_sub(*bias)).unwrap_or_else(|| VDSO.to_owned());
            return Frame { kind: FrameKind::Library, name, line: None };
        }
        if let Some(name) = self.bif_at(address) {
            return Frame { kind: FrameKind::Bif, name: name.to_owned(), line: None };
        }
        let code = self.image.frame(address);
        let file = code.module.unwrap_or_else(|| "[unknown]".to_owned());
        let name = code.function.unwrap_or_else(|| match self.image.function_at(address) {
            Some(start) => format!("{file}+{start:#x}"),
            None => file,
        });
        let kind = if code.is_program { FrameKind::Emulator } else { FrameKind::Library };
        Frame { kind, name, line: None }
    }

    /// The name of the BIF whose C function contains an address.
    fn bif_at(&self, address: u64) -> Option<&str> {
        let start = self.image.function_at(address)?;
        self.erlang.as_ref()?.bifs.name_at(start.wrapping_add(self.image.program()?.bias))
    }

    fn kernel_frame(&mut self, address: u64, builder: &mut ProfileBuilder) -> u32 {
        if let Some(frame) = self.frames.get(CodeKind::Kernel, address) {
            return frame;
        }
        let name = self.kernel.name_at(address).unwrap_or("[kernel]").to_owned();
        let frame = Frame { kind: FrameKind::Kernel, name, line: None };
        self.frames.add(builder, CodeKind::Kernel, address, frame)
    }

    /// Whether the process still runs the program that was opened.
    pub fn is_alive(&self) -> bool {
        self.memory.allow(SAMPLE_LIMIT);
        self.image.program().is_some_and(|program| self.memory.word(program.range.start).is_some())
    }
}

fn is_in_module(function: &str, module: &str) -> bool {
    function.strip_prefix(module).is_some_and(|rest| rest.starts_with(':'))
}

fn names<'a>(profile: &'a Profile, frames: &[u32]) -> Vec<&'a str> {
    frames.iter().filter_map(|index| profile.frames.get(*index as usize)).map(|frame| &*frame.name).collect()
}

fn is_in(ranges: &[Range<u64>], address: u64) -> bool {
    ranges.iter().any(|range| range.contains(&address))
}

/// Reads the vDSO from memory: it is a library without a file.
fn vdso(memory: &impl Memory, mappings: &[Mapping]) -> Option<(Range<u64>, u64, Arc<Elf>)> {
    let range = &mappings.iter().find(|mapping| mapping.path == VDSO)?.range;
    let length = range.end - range.start;
    let content = memory.bytes(range.start, usize::try_from(length).ok()?)?;
    let elf = Elf::parse(VDSO, &content).ok()?;
    let bias = elf.bias(range.start, 0..length).unwrap_or(range.start);
    Some((range.clone(), bias, Arc::new(elf)))
}

#[cfg(test)]
#[cfg(target_arch = "x86_64")]
mod tests;
