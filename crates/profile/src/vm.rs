//! From a sample of a thread to its whole call stack: the kernel, C code of the VM, and the Erlang functions of the process that runs.
//!
//! Generated code runs on the stack of the process, so a sample of it contains the stack. C code runs on the stack of the scheduler: it is unwound to
//! the generated code that called it, which tells where the stack of the process is ([`crate::erlang::process`]). That stack is then read from the
//! VM's memory, some 20 µs after the sample. If the thread has returned to generated code by then, the Erlang frames are dropped and counted.
//!
//! x86-64 only: on ARM64, stacks end at the C code.

use std::collections::HashMap;
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
use crate::memory::{Memory, ProcessMemory, WORD_BYTES, words_of};
use crate::native::{self, NativeUnwinder, RegisterSet};
use crate::record::Sample;
use crate::stack::StackEnd;
use crate::state::{self, Names};

/// Limit of an Erlang stack: 8,000 words. Of a deeper one the innermost part and the root are read.
const MAX_STACK_BYTES: u64 = 64 * 1024;
/// The root of a deeper stack.
const ROOT_BYTES: u64 = 1024;
/// Generated code that is searched for the convention of calls. Every fragment and function contains it.
const MAX_SEARCHED_CODE_BYTES: u64 = 4 << 20;
/// The code is read again after this many times as long as reading takes, so that reading takes 1 % of a core.
const PAUSE_PER_REFRESH: u32 = 100;

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
    generated: Vec<Range<u64>>,
    erlang: Option<Erlang>,
    /// Frames by address.
    frames: HashMap<u64, Frame>,
    /// Names of processes by number.
    processes: HashMap<u64, String>,
    /// What is missing, in sentences.
    pub remarks: Vec<String>,
}

/// The Erlang side of a VM.
#[derive(Debug)]
struct Erlang {
    atoms: Atoms,
    code: Code,
    fragments: Fragments,
    convention: Option<Convention>,
    heap: HeapOffset,
    names: ProcessNames,
    /// By the address of the code behind a call of C.
    saved_in: HashMap<u64, Option<SavedIn>>,
    /// When the code may be read again.
    next_refresh: Instant,
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

impl VmStacks {
    /// Opens the memory of a VM, and finds its code. Takes 50 to 300 ms.
    ///
    /// # Errors
    /// If the process or its memory cannot be read. A VM whose Erlang code is not found is no error: its stacks end at C code.
    pub fn open(pid: u32) -> Result<VmStacks, ProfileError> {
        let tree = LocalTree::default();
        let image = Image::read(&tree, pid)?;
        let mappings = image::mappings(&tree, pid)?;
        let memory = ProcessMemory::open(pid).map_err(|_| ProfileError::Closed { path: format!("/proc/{pid}/mem") })?;
        let mut unwinder = NativeUnwinder::new(&image);
        add_vdso(&mut unwinder, &memory, &mappings);
        let generated = generated_code(&mappings);
        let program = tree.read_link(&format!("/proc/{pid}/exe")).map_err(|error| image::of_process(error, pid))?;
        let erlang = Erlang::find(&memory, &mappings, &program, &generated);
        let mut remarks = Vec::new();
        if erlang.is_none() {
            remarks.push("no Erlang functions: the tables of loaded code were not found in this VM".to_owned());
        }
        let kernel = KernelNames::read(&tree);
        let (frames, processes) = (HashMap::new(), HashMap::new());
        Ok(VmStacks { memory, image, kernel, unwinder, generated, erlang, frames, processes, remarks })
    }

    /// The whole stack of a sample.
    pub fn stack(&mut self, sample: &Sample<'_>, is_scheduler: bool) -> VmStack {
        let kernel: Vec<u64> = kernel::addresses(sample.kernel).collect();
        let (native, erlang, is_spinning) = match &sample.registers {
            Some(registers) => self.user_part(registers, sample.stack),
            None => (None, ErlangPart::default(), false),
        };
        let fragment = erlang.leaf.and_then(|leaf| self.erlang.as_ref()?.fragment_at(leaf)).map(str::to_owned);
        let mut frames = Vec::new();
        for address in erlang.stack.frames.iter().rev().chain(&erlang.leaf) {
            frames.extend(self.erlang_frame(*address));
        }
        let (native, native_end) = native.unwrap_or_default();
        let first_native = frames.len();
        frames.extend(native.iter().rev().map(|address| self.native_frame(*address)));
        let first_kernel = frames.len();
        frames.extend(kernel.iter().rev().map(|address| self.kernel_frame(*address)));
        if let Some(process) = &erlang.process {
            self.name_process(process, &erlang.stack);
        }
        let has_process = erlang.process.is_some() || !erlang.stack.frames.is_empty();
        let names = |frames: &[Frame]| frames.iter().map(|frame| frame.name.clone()).collect::<Vec<_>>();
        let (native_names, kernel_names) = (names(&frames[first_native..first_kernel]), names(&frames[first_kernel..]));
        let native_names: Vec<&str> = native_names.iter().map(String::as_str).collect();
        let kernel_names: Vec<&str> = kernel_names.iter().map(String::as_str).collect();
        let state = state::of(&Names {
            kernel: &kernel_names,
            native: &native_names,
            fragment: fragment.as_deref(),
            is_spinning,
            has_process,
            is_scheduler,
        });
        VmStack {
            frames,
            is_complete: if has_process { erlang.stack.is_complete } else { native_end == StackEnd::Bottom },
            process: erlang.process.map(|process| process.number),
            lacks_frames: erlang.is_expected && erlang.stack.frames.is_empty() && !erlang.stack.is_complete,
            state,
        }
    }

    /// The C frames, innermost first, the Erlang part, and whether the thread spins.
    #[allow(clippy::type_complexity, reason = "used once")]
    fn user_part(&mut self, registers: &RegisterSet, stack: &[u8]) -> (Option<(Vec<u64>, StackEnd)>, ErlangPart, bool) {
        let sp = registers.values[native::SP].unwrap_or_default();
        if is_in(&self.generated, registers.ip) {
            let part = self.erlang.as_mut().map(|erlang| erlang.running(&self.memory, registers, sp, stack));
            return (None, part.unwrap_or_default(), false);
        }
        let copied = |address: u64| word_at(stack, address.checked_sub(sp)?);
        let native = self.unwinder.unwind(*registers, copied);
        let is_spinning = native.frames.first().is_some_and(|address| self.image.is_spinning(*address));
        let caller = &native.registers;
        let part = match &mut self.erlang {
            Some(erlang) if native.end == StackEnd::Generated && is_in(&self.generated, caller.ip) => {
                erlang.calling(&self.memory, caller)
            }
            _ => ErlangPart::default(),
        };
        (Some((native.frames, native.end)), part, is_spinning)
    }

    /// Reads the loaded code again if some of it was not known, but not too often.
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

    /// Whether an address is in generated code without a known function.
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

    /// Remembers the name of a process: the registered one, or else the outermost function that is its own.
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
        let initial = name.initial.filter(|initial| !GENERIC_MODULES.iter().any(|generic| is_in_module(initial, generic)));
        if let Some(name) = name.registered.or(initial).or_else(own) {
            self.processes.insert(process.number, name);
        }
    }

    /// Takes the names of processes, by number.
    pub fn take_process_names(&mut self) -> HashMap<u64, String> {
        std::mem::take(&mut self.processes)
    }

    fn native_frame(&mut self, address: u64) -> Frame {
        if let Some(frame) = self.frames.get(&address) {
            return frame.clone();
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

    /// Modules and functions of the loaded code.
    pub fn code_size(&self) -> (usize, usize) {
        self.erlang.as_ref().map_or((0, 0), |erlang| (erlang.code.modules(), erlang.code.functions()))
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
        let next_refresh = Instant::now() + Duration::from_secs(1);
        let (heap, names, saved_in) = (HeapOffset::default(), ProcessNames::default(), HashMap::new());
        Some(Erlang { atoms, code, fragments, convention, heap, names, saved_in, next_refresh })
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

    /// A thread that runs generated code, with the copied part of its stack from `sp` on.
    #[cfg(target_arch = "x86_64")]
    fn running(&mut self, memory: &ProcessMemory, registers: &RegisterSet, sp: u64, stack: &[u8]) -> ErlangPart {
        let ip = registers.ip;
        let is_loop = self.fragment_at(ip).is_some_and(state::is_scheduler_loop);
        let mut part = ErlangPart { leaf: Some(ip), is_expected: !is_loop, ..ErlangPart::default() };
        if is_loop {
            return part;
        }
        let is_in_fragment = self.code.function_at(ip).is_none();
        let process = self.process(memory, registers);
        let words = match process {
            Some(process) if (process.heap..process.hend).contains(&sp) => {
                let length = process.hend - sp;
                let mut bytes = stack.to_vec();
                bytes.truncate(usize::try_from(length).unwrap_or(usize::MAX));
                let rest = sp + bytes.len() as u64;
                [words_of(&bytes), self.stack_words(memory, rest, process.hend)].concat()
            }
            Some(process) => match self.saved_in(memory, ip) {
                Some(SavedIn::Rbp) => self.stack_from(memory, registers.values[native::RBP], &process),
                Some(SavedIn::Process) => self.stack_from(memory, Some(process.stop), &process),
                None => Vec::new(),
            },
            // The place of the heap is not known yet.
            None => words_of(stack),
        };
        part.process = process;
        part.stack = stack::frames(&words, &self.code, &self.fragments, is_in_fragment);
        part
    }

    /// A thread that runs C, called by generated code with these registers.
    #[cfg(target_arch = "x86_64")]
    fn calling(&mut self, memory: &ProcessMemory, caller: &RegisterSet) -> ErlangPart {
        let call = caller.ip.wrapping_sub(1);
        let is_loop = self.fragment_at(call).is_some_and(state::is_scheduler_loop);
        let mut part = ErlangPart { leaf: Some(call), is_expected: !is_loop, ..ErlangPart::default() };
        if is_loop {
            return part;
        }
        let Some(process) = self.process(memory, caller) else { return part };
        let sp = match self.saved_in(memory, caller.ip) {
            Some(SavedIn::Rbp) => caller.values[native::RBP],
            Some(SavedIn::Process) => Some(process.stop),
            None => None,
        };
        let words = self.stack_from(memory, sp, &process);
        // The return address of the call is below the stack pointer of the caller, as long as the call lasts.
        let slot = caller.values[native::SP].and_then(|sp| memory.word(sp.checked_sub(WORD_BYTES as u64)?));
        if slot == Some(caller.ip) {
            let is_in_fragment = self.code.function_at(call).is_none();
            part.process = Some(process);
            part.stack = stack::frames(&words, &self.code, &self.fragments, is_in_fragment);
        }
        part
    }

    #[cfg(target_arch = "x86_64")]
    fn process(&mut self, memory: &ProcessMemory, registers: &RegisterSet) -> Option<ProcessStack> {
        self.heap.read(memory, self.convention.as_ref()?, registers.values[native::R13]?)
    }

    fn saved_in(&mut self, memory: &ProcessMemory, address: u64) -> Option<SavedIn> {
        let convention = self.convention?;
        *self.saved_in.entry(address).or_insert_with(|| {
            let code = memory.bytes(address, RETURN_CODE_BYTES)?;
            convention.saved_in(&code)
        })
    }

    /// The words of a process's stack from an address on; none if it is not within its heap.
    fn stack_from(&self, memory: &ProcessMemory, sp: Option<u64>, process: &ProcessStack) -> Vec<u64> {
        match sp {
            Some(sp) if (process.heap..process.hend).contains(&sp) => self.stack_words(memory, sp, process.hend),
            _ => Vec::new(),
        }
    }

    /// The words between two addresses, of many only the first ones and the last ones.
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
    fn calling(&mut self, _: &ProcessMemory, caller: &RegisterSet) -> ErlangPart {
        ErlangPart { leaf: Some(caller.ip.wrapping_sub(1)), is_expected: true, ..ErlangPart::default() }
    }
}

fn is_in_module(function: &str, module: &str) -> bool {
    function.strip_prefix(module).is_some_and(|rest| rest.starts_with(':'))
}

fn is_in(ranges: &[Range<u64>], address: u64) -> bool {
    ranges.iter().any(|range| range.contains(&address))
}

fn word_at(stack: &[u8], offset: u64) -> Option<u64> {
    let offset = usize::try_from(offset).ok()?;
    let bytes = stack.get(offset..offset.checked_add(WORD_BYTES)?)?;
    bytes.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes))
}

/// The vDSO is a library without a file: it is read from memory.
fn add_vdso(unwinder: &mut NativeUnwinder, memory: &ProcessMemory, mappings: &[Mapping]) {
    let Some(mapping) = mappings.iter().find(|mapping| mapping.path == "[vdso]") else { return };
    let content = usize::try_from(mapping.range.end - mapping.range.start)
        .ok()
        .and_then(|length| memory.bytes(mapping.range.start, length));
    let elf = content.and_then(|content| Elf::parse("[vdso]", &content).ok());
    if let Some(elf) = elf {
        let length = mapping.range.end - mapping.range.start;
        let bias = elf.bias(mapping.range.start, 0..length).unwrap_or(mapping.range.start);
        unwinder.add(&Arc::new(elf), mapping.range.clone(), bias);
    }
}
