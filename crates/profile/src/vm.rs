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

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use beamtune_host::tree::{FileTree, LocalTree};
use beamtune_model::{CpuState, Frame, FrameKind};

use crate::elf::Elf;
use crate::erlang::atoms::Atoms;
use crate::erlang::code::Code;
use crate::erlang::fragments::Fragments;
use crate::erlang::process::{Convention, HeapOffset, ProcessStack, RETURN_CODE_BYTES, SavedIn};
use crate::erlang::process_name::ProcessNames;
use crate::erlang::stack::{self, ErlangStack};
use crate::erlang::{generated_code, static_data};
use crate::error::ProfileError;
use crate::image::{self, Image, Mapping};
use crate::kernel::{self, KernelNames};
use crate::memory::{Memory, ProcessMemory, WORD_BYTES, is_pointer, word_at, words_of};
use crate::native::{self, NativeUnwinder, RegisterSet};
use crate::record::Sample;
use crate::stack::StackEnd;
use crate::state::{self, Names};

/// Limit of an Erlang stack: 8,000 words. If a stack is deeper, its innermost part and its root are read.
const MAX_STACK_BYTES: u64 = 64 * 1024;
/// Size of the root of a deeper stack, in bytes.
const ROOT_BYTES: u64 = 1024;
/// Number of words that are read at the old address of a stack whose heap has moved.
const MOVED_STACK_WORDS: usize = 512;
/// Maximum number of reads of an incomplete stack. The process runs while it is read, so a second read may succeed.
const MAX_ATTEMPTS: usize = 3;
/// Size of the generated code that is searched for the calling convention, in bytes. Every module contains it.
const MAX_SEARCHED_CODE_BYTES: u64 = 4 << 20;
/// Maximum number of searches for the code tables. While the VM loads code, a search may fail (measured: 1 of 12 at 40 loads per second).
const MAX_FIND_ATTEMPTS: u32 = 10;
/// Pause between two searches.
const FIND_PAUSE: Duration = Duration::from_millis(50);
/// Pause between two reads of the code tables, in multiples of the time that a read takes: at most 1 % of a core.
const PAUSE_PER_REFRESH: u32 = 100;

/// The path of the vDSO in `/proc/PID/maps`.
const VDSO: &str = "[vdso]";
/// The function of the interpreter (beam_emu.c).
const INTERPRETER: &str = "process_main";
/// Functions that choose the next process (erl_process.c).
const SCHEDULE: [&str; 2] = ["erts_schedule", "schedule"];
/// The start of the thread, the function of the scheduler, and `erts_dirty_process_main` (ethread.c, erl_process.c, beam_common.c).
const DIRTY_ROOT_FRAMES: usize = 3;
/// Words of the interpreter's stack frame in which the process is searched; the frame has 30 to 60 (OTP 23, x86-64).
const INTERPRETER_FRAME_WORDS: u64 = 64;
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
pub struct VmStacks {
    memory: ProcessMemory,
    image: Image,
    kernel: KernelNames,
    unwinder: NativeUnwinder,
    /// The vDSO: its addresses, the difference to those of its file, and the file.
    vdso: Option<(Range<u64>, u64, Arc<Elf>)>,
    generated: Vec<Range<u64>>,
    /// The interpreter, in a VM without JIT.
    interpreter: Option<Range<u64>>,
    erlang: Option<Erlang>,
    /// Frames by address.
    frames: HashMap<u64, Frame>,
    /// Names of processes by number.
    processes: HashMap<u64, String>,
    /// Functions that choose the next process, by their start in the program's file: those that the loop of a scheduler calls.
    schedule: HashSet<u64>,
    /// What is missing, in sentences.
    pub remarks: Vec<String>,
}

/// The Erlang side of a VM.
#[derive(Debug)]
struct Erlang {
    atoms: Atoms,
    code: Code,
    fragments: Fragments,
    has_jit: bool,
    convention: Convention,
    heap: HeapOffset,
    names: ProcessNames,
    /// Without a JIT: the words at the bottom of stacks, and how often each was there.
    exits: HashMap<u64, u32>,
    /// Without a JIT: the registers that may be the stack pointer, and how often each was.
    stack_registers: HashMap<usize, u32>,
    /// By the address of the code behind a call of C.
    saved_in: HashMap<u64, Option<SavedIn>>,
    /// When the code may be read again.
    next_refresh: Instant,
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
    /// Outermost first.
    pub frames: Vec<Frame>,
    /// Whether the outermost function was reached.
    pub is_complete: bool,
    /// Number of the process that runs.
    pub process: Option<u64>,
    /// Whether a process runs whose frames are not known.
    pub lacks_frames: bool,
    /// What the thread does.
    pub state: CpuState,
}

/// The Erlang part of a stack.
#[derive(Debug, Default)]
struct ErlangPart {
    /// The function that runs, or that called C.
    leaf: Option<u64>,
    stack: ErlangStack,
    process: Option<ProcessStack>,
    is_expected: bool,
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
        let mappings = image::mappings(&tree, pid)?;
        let memory = ProcessMemory::open(pid)
            .map_err(|_| ProfileError::Closed { path: format!("/proc/{pid}/mem") })?;
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
            Erlang::find(&memory, &mappings, &program, &generated)
        };
        let erlang = (0..MAX_FIND_ATTEMPTS).find_map(find);
        let mut remarks = Vec::new();
        if erlang.is_none() {
            remarks
                .push("no Erlang functions: the tables of loaded code were not found in this VM".to_owned());
        }
        let kernel = KernelNames::read(&tree);
        let has_jit = erlang.as_ref().is_some_and(|erlang| erlang.has_jit);
        let interpreter = image.range_of(INTERPRETER).filter(|_| !has_jit);
        let (frames, processes) = (HashMap::new(), HashMap::new());
        let named = SCHEDULE.iter().filter_map(|name| image.function_at(image.range_of(name)?.start));
        let schedule = named.collect();
        Ok(VmStacks {
            memory,
            image,
            kernel,
            unwinder,
            vdso,
            generated,
            interpreter,
            erlang,
            frames,
            processes,
            schedule,
            remarks,
        })
    }

    /// Returns the whole stack of a sample.
    pub fn stack(&mut self, sample: &Sample<'_>, kind: ThreadKind) -> VmStack {
        let registers = sample.registers.as_ref();
        let user =
            registers.map(|registers| self.user_part(registers, sample.stack, kind)).unwrap_or_default();
        let UserPart { mut native, native_end, erlang, is_spinning } = user;
        let fragment =
            erlang.leaf.and_then(|leaf| self.erlang.as_ref()?.fragment_at(leaf)).map(str::to_owned);
        let mut frames = Vec::new();
        for address in erlang.stack.frames.iter().rev().chain(&erlang.leaf) {
            frames.extend(self.erlang_frame(*address));
        }
        if self.interpreter.is_some() && erlang.leaf.is_some() {
            // The interpreter itself says nothing.
            native.pop();
        }
        if kind == ThreadKind::DirtyScheduler && erlang.process.is_some() {
            native.truncate(native.len().saturating_sub(self.root_frames(&native)));
        }
        if fragment.as_deref().is_some_and(state::is_scheduler_loop) {
            self.schedule.extend(native.last().and_then(|address| self.image.function_at(*address)));
        }
        let first_native = frames.len();
        frames.extend(native.iter().rev().map(|address| self.native_frame(*address)));
        let first_kernel = frames.len();
        let kernel: Vec<u64> = kernel::addresses(sample.kernel).collect();
        frames.extend(kernel.iter().rev().map(|address| self.kernel_frame(*address)));
        if let Some(process) = &erlang.process {
            self.name_process(process, &erlang.stack);
        }
        let has_process = erlang.process.is_some() || !erlang.stack.frames.is_empty();
        let state = state::of(&Names {
            kernel: &names(&frames[first_kernel..]),
            native: &names(&frames[first_native..first_kernel]),
            fragment: fragment.as_deref(),
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

    /// Reads the part of a stack that is in user mode.
    fn user_part(&mut self, registers: &RegisterSet, stack: &[u8], kind: ThreadKind) -> UserPart {
        let sp = registers.values[native::SP].unwrap_or_default();
        if is_in(&self.generated, registers.ip) {
            let erlang =
                self.erlang.as_mut().map(|erlang| erlang.running(&self.memory, registers, sp, stack));
            return UserPart { erlang: erlang.unwrap_or_default(), ..UserPart::default() };
        }
        let copied = |address: u64| word_at(stack, address.checked_sub(sp)?);
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
    pub fn refresh(&mut self) {
        let Some(erlang) = &mut self.erlang else { return };
        let begin = Instant::now();
        if begin < erlang.next_refresh {
            return;
        }
        erlang.code.refresh(&self.memory, &erlang.atoms);
        erlang.next_refresh = Instant::now() + PAUSE_PER_REFRESH * begin.elapsed();
        // Other code may now be at the same address.
        self.frames.clear();
    }

    /// Returns the frame of an address in generated code. If the code is unknown, it may have been loaded since, so the tables are read again.
    fn erlang_frame(&mut self, address: u64) -> Option<Frame> {
        if let Some(frame) = self.frames.get(&address) {
            return Some(frame.clone());
        }
        let frame = self.erlang.as_ref()?.frame_at(&self.memory, address);
        if frame.is_none() {
            self.refresh();
        }
        let frame = frame.or_else(|| self.erlang.as_ref()?.frame_at(&self.memory, address))?;
        self.frames.insert(address, frame.clone());
        Some(frame)
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

    fn native_frame(&mut self, address: u64) -> Frame {
        if let Some(frame) = self.frames.get(&address) {
            return frame.clone();
        }
        if let Some((range, bias, elf)) = &self.vdso
            && range.contains(&address)
        {
            let name = elf.name_at(address.wrapping_sub(*bias)).unwrap_or_else(|| VDSO.to_owned());
            return Frame { kind: FrameKind::Library, name, line: None };
        }
        let code = self.image.frame(address);
        let file = code.module.unwrap_or_else(|| "[unknown]".to_owned());
        let name = code.function.unwrap_or_else(|| match self.image.function_at(address) {
            Some(start) => format!("{file}+{start:#x}"),
            None => file,
        });
        let kind = if code.is_program { FrameKind::Emulator } else { FrameKind::Library };
        let frame = Frame { kind, name, line: None };
        self.frames.insert(address, frame.clone());
        frame
    }

    fn kernel_frame(&self, address: u64) -> Frame {
        let name = self.kernel.name_at(address).unwrap_or("[kernel]").to_owned();
        Frame { kind: FrameKind::Kernel, name, line: None }
    }

    /// Whether the process still runs the program that was opened.
    pub fn is_alive(&self) -> bool {
        self.image.program().is_some_and(|program| self.memory.word(program.range.start).is_some())
    }
}

impl Erlang {
    fn find(
        memory: &ProcessMemory,
        mappings: &[Mapping],
        program: &str,
        generated: &[Range<u64>],
    ) -> Option<Erlang> {
        let data = static_data(memory, mappings, program);
        let atoms = Atoms::find(memory, &data)?;
        let code = Code::find(memory, &data, &atoms)?;
        let fragments = Fragments::find(memory, &data).unwrap_or_default();
        let bytes = generated.iter().find_map(|range| {
            let length = (range.end - range.start).min(MAX_SEARCHED_CODE_BYTES);
            memory.bytes(range.start, usize::try_from(length).ok()?)
        });
        let convention = bytes.and_then(|bytes| Convention::find(&bytes));
        let (has_jit, convention) = (convention.is_some(), convention.unwrap_or(Convention::INTERPRETER));
        let next_refresh = Instant::now() + Duration::from_secs(1);
        let (heap, names) = (HeapOffset::default(), ProcessNames::default());
        let (exits, stack_registers, saved_in) = (HashMap::new(), HashMap::new(), HashMap::new());
        Some(Erlang {
            atoms,
            code,
            fragments,
            has_jit,
            convention,
            heap,
            names,
            exits,
            stack_registers,
            saved_in,
            next_refresh,
        })
    }

    fn fragment_at(&self, address: u64) -> Option<&str> {
        self.fragments.name_at(address)
    }

    fn frame_at(&self, memory: &impl Memory, address: u64) -> Option<Frame> {
        if let Some(function) = self.code.function_at(address) {
            let name = self.code.name(function.id)?.to_string();
            return Some(Frame { kind: FrameKind::Erlang, name, line: self.code.line_at(memory, address) });
        }
        let name = self.fragments.name_at(address)?.to_owned();
        Some(Frame { kind: FrameKind::Fragment, name, line: None })
    }

    /// Reads the stack of a thread that runs generated code. `stack` is the copied part of its stack, from `sp` on.
    #[cfg(target_arch = "x86_64")]
    fn running(
        &mut self,
        memory: &ProcessMemory,
        registers: &RegisterSet,
        sp: u64,
        stack: &[u8],
    ) -> ErlangPart {
        let ip = registers.ip;
        let rbx = registers.values[native::RBX].unwrap_or_default();
        if sp == rbx.wrapping_add_signed(self.convention.scheduler_stack) {
            return self.on_scheduler_stack(memory, registers, ip, ip);
        }
        let is_in_fragment = self.code.function_at(ip).is_none();
        let process = self.process(memory, registers);
        let mut words = words_of(stack);
        let end = sp + stack.len() as u64;
        match process {
            // The copy may end behind the stack, or before its root.
            Some(process) if (process.heap..process.hend).contains(&sp) => {
                words.truncate(usize::try_from(process.hend - sp).unwrap_or(usize::MAX) / WORD_BYTES);
                words.extend(self.stack_words(memory, end, process.hend));
            }
            // Its heap has moved since. The root of the stack has not changed.
            Some(process) => words.extend(self.root(memory, &process)),
            None => {}
        }
        let stack = stack::frames(&words, &self.code, &self.fragments, is_in_fragment);
        ErlangPart { leaf: Some(ip), stack, process, is_expected: true }
    }

    /// Reads the Erlang stack of a thread that runs C code. `caller` holds the registers of the generated code that called it.
    #[cfg(target_arch = "x86_64")]
    fn calling(&mut self, memory: &ProcessMemory, caller: &RegisterSet) -> ErlangPart {
        self.on_scheduler_stack(memory, caller, caller.ip.wrapping_sub(1), caller.ip)
    }

    /// Reads the Erlang stack of a thread whose generated code at `leaf` has switched to the scheduler's stack. The code at `back` switches
    /// back to the stack of the process.
    #[cfg(target_arch = "x86_64")]
    fn on_scheduler_stack(
        &mut self,
        memory: &ProcessMemory,
        registers: &RegisterSet,
        leaf: u64,
        back: u64,
    ) -> ErlangPart {
        let is_loop = self.fragment_at(leaf).is_some_and(state::is_scheduler_loop);
        let mut part = ErlangPart { leaf: Some(leaf), is_expected: !is_loop, ..ErlangPart::default() };
        if is_loop {
            return part;
        }
        let is_in_fragment = self.code.function_at(leaf).is_none();
        let saved_in = self.saved_in(memory, back);
        for _ in 0..MAX_ATTEMPTS {
            let Some(process) = self.process(memory, registers) else { continue };
            let sp = match saved_in {
                Some(SavedIn::Rbp) => registers.values[native::RBP],
                Some(SavedIn::Process) => Some(process.stop),
                None => None,
            };
            let Some(sp) = sp else { break };
            let words = self.stack_words_of(memory, sp, &process);
            let stack = stack::frames(&words, &self.code, &self.fragments, is_in_fragment);
            let now = self.process(memory, registers);
            let is_same = now.is_some_and(|now| now.number == process.number && now.hend == process.hend);
            // A short call has returned by now, but its callers are still the same.
            if stack.is_complete || is_same {
                part.process = Some(process);
                part.stack = stack;
            }
            if part.stack.is_complete {
                break;
            }
        }
        part
    }

    #[cfg(target_arch = "x86_64")]
    fn process(&mut self, memory: &ProcessMemory, registers: &RegisterSet) -> Option<ProcessStack> {
        self.heap.read(memory, &self.convention, registers.values[native::R13]?)
    }

    /// Reads the Erlang stack of a thread in the interpreter. `is_leaf`: the interpreter has not called another C function.
    #[cfg(target_arch = "x86_64")]
    fn interpreting(
        &mut self,
        memory: &ProcessMemory,
        registers: &RegisterSet,
        is_leaf: bool,
        copied: impl Fn(u64) -> Option<u64>,
    ) -> ErlangPart {
        let values = || registers.values.iter().flatten().copied();
        let sp = registers.values[native::SP].unwrap_or_default();
        let local = (0..INTERPRETER_FRAME_WORDS)
            .filter_map(|index| copied(sp.wrapping_add(index * WORD_BYTES as u64)));
        let process = values()
            .chain(local)
            .filter(|value| is_pointer(*value))
            .find_map(|value| self.heap.read(memory, &self.convention, value));
        let mut addresses =
            native::INSTRUCTION_CANDIDATES.iter().filter_map(|number| registers.values[*number]);
        let leaf = addresses.find(|address| self.code.function_at(*address).is_some());
        let mut part = ErlangPart { leaf, is_expected: true, ..ErlangPart::default() };
        let Some(process) = process else { return part };
        // Of the registers that point into the heap, the stack pointer is the highest. It is always in the same register.
        let numbered =
            registers.values.iter().enumerate().filter_map(|(number, value)| Some((number, (*value)?)));
        let in_heap = numbered.filter(|(_, value)| (process.heap..process.hend).contains(value));
        if let Some((number, _)) = in_heap.max_by_key(|(_, value)| *value).filter(|_| is_leaf) {
            *self.stack_registers.entry(number).or_default() += 1;
        }
        let register =
            self.stack_registers.iter().max_by_key(|(_, count)| **count).map(|(number, _)| *number);
        let sp = register.and_then(|number| registers.values[number]).unwrap_or(process.stop);
        let words = self.stack_words_of(memory, sp, &process);
        // At the bottom of each stack is the address of the code that ends the process. A single reading may be of a heap that moves.
        if let Some(last) =
            words.last().filter(|word| is_pointer(**word) && self.code.function_at(**word).is_none())
        {
            *self.exits.entry(*last).or_default() += 1;
            self.fragments.normal_exit =
                self.exits.iter().max_by_key(|(_, count)| **count).map(|(exit, _)| *exit);
        }
        part.process = Some(process);
        part.stack = stack::frames(&words, &self.code, &self.fragments, false);
        part
    }

    /// Reads the Erlang stack of the process that a dirty scheduler runs. One of the registers of its frames points to the process.
    #[cfg(target_arch = "x86_64")]
    fn dirty(&mut self, memory: &ProcessMemory, callers: &[RegisterSet]) -> ErlangPart {
        let values = callers
            .iter()
            .flat_map(|registers| native::PRESERVED.iter().filter_map(|number| registers.values[*number]));
        let mut tried = HashSet::new();
        let mut candidates = values.filter(|value| is_pointer(*value) && tried.insert(*value));
        let process = candidates.find_map(|value| self.heap.read(memory, &self.convention, value));
        let Some(process) = process else { return ErlangPart::default() };
        let words = self.stack_words_of(memory, process.stop, &process);
        let stack = stack::frames(&words, &self.code, &self.fragments, false);
        ErlangPart { leaf: None, stack, process: Some(process), is_expected: true }
    }

    fn saved_in(&mut self, memory: &ProcessMemory, address: u64) -> Option<SavedIn> {
        let convention = self.convention;
        *self.saved_in.entry(address).or_insert_with(|| {
            let code = memory.bytes(address, RETURN_CODE_BYTES)?;
            convention.saved_in(&code)
        })
    }

    /// Returns the words of a process's stack from an address on.
    fn stack_words_of(&self, memory: &ProcessMemory, sp: u64, process: &ProcessStack) -> Vec<u64> {
        match (process.heap..process.hend).contains(&sp) {
            true => self.stack_words(memory, sp, process.hend),
            // The heap has moved since; its old place still holds the stack for a while.
            false => {
                let words = memory.words(sp, MOVED_STACK_WORDS).unwrap_or_default();
                [words, self.root(memory, process)].concat()
            }
        }
    }

    /// Returns the last words of a process's stack.
    fn root(&self, memory: &ProcessMemory, process: &ProcessStack) -> Vec<u64> {
        self.stack_words(memory, process.hend.saturating_sub(ROOT_BYTES).max(process.stop), process.hend)
    }

    /// Returns the words between two addresses; if there are too many, only the first and the last ones.
    fn stack_words(&self, memory: &ProcessMemory, from: u64, to: u64) -> Vec<u64> {
        let read = |from: u64, to: u64| {
            let count = usize::try_from(to.saturating_sub(from)).unwrap_or_default() / WORD_BYTES;
            memory.words(from, count).unwrap_or_default()
        };
        match to.saturating_sub(from) <= MAX_STACK_BYTES {
            true => read(from, to),
            false => [read(from, from + MAX_STACK_BYTES - ROOT_BYTES), read(to - ROOT_BYTES, to)].concat(),
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn running(&mut self, _: &ProcessMemory, registers: &RegisterSet, _: u64, _: &[u8]) -> ErlangPart {
        ErlangPart { leaf: Some(registers.ip), is_expected: true, ..ErlangPart::default() }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn dirty(&mut self, _: &ProcessMemory, _: &[RegisterSet]) -> ErlangPart {
        ErlangPart::default()
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn interpreting(
        &mut self,
        _: &ProcessMemory,
        _: &RegisterSet,
        _: bool,
        _: impl Fn(u64) -> Option<u64>,
    ) -> ErlangPart {
        ErlangPart { is_expected: true, ..ErlangPart::default() }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn calling(&mut self, _: &ProcessMemory, caller: &RegisterSet) -> ErlangPart {
        ErlangPart { leaf: Some(caller.ip.wrapping_sub(1)), is_expected: true, ..ErlangPart::default() }
    }
}

fn is_in_module(function: &str, module: &str) -> bool {
    function.strip_prefix(module).is_some_and(|rest| rest.starts_with(':'))
}

fn names(frames: &[Frame]) -> Vec<&str> {
    frames.iter().map(|frame| frame.name.as_str()).collect()
}

fn is_in(ranges: &[Range<u64>], address: u64) -> bool {
    ranges.iter().any(|range| range.contains(&address))
}

/// Reads the vDSO from memory: it is a library without a file.
fn vdso(memory: &ProcessMemory, mappings: &[Mapping]) -> Option<(Range<u64>, u64, Arc<Elf>)> {
    let range = &mappings.iter().find(|mapping| mapping.path == VDSO)?.range;
    let length = range.end - range.start;
    let content = memory.bytes(range.start, usize::try_from(length).ok()?)?;
    let elf = Elf::parse(VDSO, &content).ok()?;
    let bias = elf.bias(range.start, 0..length).unwrap_or(range.start);
    Some((range.clone(), bias, Arc::new(elf)))
}
