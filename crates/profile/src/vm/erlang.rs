//! The Erlang side of a VM: its tables, and the part of a stack that is Erlang code.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::time::{Duration, Instant};

use beamtune_model::{Frame, FrameKind};

use crate::erlang::atoms::Atoms;
use crate::erlang::bifs::Bifs;
use crate::erlang::code::Code;
use crate::erlang::fragments::Fragments;
use crate::erlang::process::{Convention, HeapOffset, ProcessStack, RETURN_CODE_BYTES, SavedIn};
use crate::erlang::process_name::ProcessNames;
use crate::erlang::stack::{self, ErlangStack};
use crate::erlang::static_data;
use crate::image::Mapping;
use crate::memory::{Memory, WORD_BYTES, is_pointer, words_of};
use crate::native::{self, RegisterSet};
use crate::state;

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
/// Words of the interpreter's stack frame in which the process is searched; the frame has 30 to 60 (OTP 23, x86-64).
const INTERPRETER_FRAME_WORDS: u64 = 64;
/// Pause between two reads of the code tables, in multiples of the time that a read takes: at most 1 % of a core.
const PAUSE_PER_REFRESH: u32 = 100;
/// Pause after the first read of the code tables.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// The Erlang side of a VM.
#[derive(Debug)]
pub(super) struct Erlang {
    pub atoms: Atoms,
    pub code: Code,
    pub fragments: Fragments,
    pub bifs: Bifs,
    pub has_jit: bool,
    convention: Convention,
    heap: HeapOffset,
    pub names: ProcessNames,
    /// Without a JIT: the words at the bottom of stacks, and how often each was there.
    exits: HashMap<u64, u32>,
    /// Without a JIT: the registers that may be the stack pointer, and how often each was.
    stack_registers: HashMap<usize, u32>,
    /// By the address of the code behind a call of C.
    saved_in: HashMap<u64, Option<SavedIn>>,
    /// When the code may be read again.
    pub next_refresh: Instant,
}

/// The Erlang part of a stack.
#[derive(Debug, Default)]
pub(super) struct ErlangPart {
    /// The function that runs, or that called C.
    pub leaf: Option<u64>,
    pub stack: ErlangStack,
    pub process: Option<ProcessStack>,
    pub is_expected: bool,
}

impl Erlang {
    /// Finds the tables of a VM: by its mappings, the path of its program, and its generated code.
    pub fn find(
        memory: &impl Memory,
        mappings: &[Mapping],
        program: &str,
        generated: &[Range<u64>],
    ) -> Option<Erlang> {
        let data = static_data(memory, mappings, program);
        let atoms = Atoms::find(memory, &data)?;
        let code = Code::find(memory, &data, &atoms)?;
        let fragments = Fragments::find(memory, &data).unwrap_or_default();
        let code_of_program = mappings.iter().filter(|mapping| mapping.is_code && mapping.path == program);
        let code_of_program: Vec<&Range<u64>> = code_of_program.map(|mapping| &mapping.range).collect();
        let is_code = |address: u64| code_of_program.iter().any(|range| range.contains(&address));
        let bifs = Bifs::find(memory, &data, &atoms, is_code).unwrap_or_default();
        let bytes = generated.iter().find_map(|range| {
            let length = (range.end - range.start).min(MAX_SEARCHED_CODE_BYTES);
            memory.bytes(range.start, usize::try_from(length).ok()?)
        });
        let convention = bytes.and_then(|bytes| Convention::find(&bytes));
        let (has_jit, convention) = (convention.is_some(), convention.unwrap_or(Convention::INTERPRETER));
        let next_refresh = Instant::now() + FIRST_PAUSE;
        let (heap, names) = (HeapOffset::default(), ProcessNames::default());
        let (exits, stack_registers, saved_in) = (HashMap::new(), HashMap::new(), HashMap::new());
        Some(Erlang {
            atoms,
            code,
            fragments,
            bifs,
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

    /// Reads the code tables again, unless that was done a short time ago. Returns whether they were read.
    pub fn refresh(&mut self, memory: &impl Memory) -> bool {
        let begin = Instant::now();
        if begin < self.next_refresh {
            return false;
        }
        self.code.refresh(memory, &self.atoms);
        self.next_refresh = Instant::now() + PAUSE_PER_REFRESH * begin.elapsed();
        // Other code may now be at the same address.
        self.saved_in.clear();
        true
    }

    /// The name of the shared code at an address.
    pub fn fragment_at(&self, address: u64) -> Option<&str> {
        self.fragments.name_at(address)
    }

    /// The frame of an address in generated code.
    pub fn frame_at(&self, memory: &impl Memory, address: u64) -> Option<Frame> {
        if let Some(function) = self.code.function_at(address) {
            let name = self.code.name(function.id)?.to_string();
            return Some(Frame { kind: FrameKind::Erlang, name, line: self.code.line_at(memory, address) });
        }
        let name = self.fragments.name_at(address)?.to_owned();
        Some(Frame { kind: FrameKind::Fragment, name, line: None })
    }

    /// Reads the stack of a thread that runs generated code. `stack` is the copied part of its stack.
    #[cfg(target_arch = "x86_64")]
    pub fn running(&mut self, memory: &impl Memory, registers: &RegisterSet, stack: &[u8]) -> ErlangPart {
        let ip = registers.ip;
        let sp = registers.values[native::SP].unwrap_or_default();
        let rbx = registers.values[native::RBX].unwrap_or_default();
        if sp == rbx.wrapping_add_signed(self.convention.scheduler_stack) {
            return self.on_scheduler_stack(memory, registers, ip, ip);
        }
        let is_in_fragment = self.code.function_at(ip).is_none();
        let process = self.process(memory, registers);
        let mut words = words_of(stack);
        let end = sp.saturating_add(stack.len() as u64);
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
    pub fn calling(&mut self, memory: &impl Memory, caller: &RegisterSet) -> ErlangPart {
        self.on_scheduler_stack(memory, caller, caller.ip.wrapping_sub(1), caller.ip)
    }

    /// Reads the Erlang stack of a thread whose generated code at `leaf` has switched to the scheduler's stack. The code at `back` switches
    /// back to the stack of the process.
    #[cfg(target_arch = "x86_64")]
    fn on_scheduler_stack(
        &mut self,
        memory: &impl Memory,
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
    fn process(&mut self, memory: &impl Memory, registers: &RegisterSet) -> Option<ProcessStack> {
        self.heap.read(memory, &self.convention, registers.values[native::R13]?)
    }

    /// Reads the Erlang stack of a thread in the interpreter. `is_leaf`: the interpreter has not called another C function.
    #[cfg(target_arch = "x86_64")]
    pub fn interpreting(
        &mut self,
        memory: &impl Memory,
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
    pub fn dirty(&mut self, memory: &impl Memory, callers: &[RegisterSet]) -> ErlangPart {
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

    fn saved_in(&mut self, memory: &impl Memory, address: u64) -> Option<SavedIn> {
        let convention = self.convention;
        *self.saved_in.entry(address).or_insert_with(|| {
            let code = memory.bytes(address, RETURN_CODE_BYTES)?;
            convention.saved_in(&code)
        })
    }

    /// Returns the words of a process's stack from an address on.
    fn stack_words_of(&self, memory: &impl Memory, sp: u64, process: &ProcessStack) -> Vec<u64> {
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
    fn root(&self, memory: &impl Memory, process: &ProcessStack) -> Vec<u64> {
        self.stack_words(memory, process.hend.saturating_sub(ROOT_BYTES).max(process.stop), process.hend)
    }

    /// Returns the words between two addresses; if there are too many, only the first and the last ones.
    fn stack_words(&self, memory: &impl Memory, from: u64, to: u64) -> Vec<u64> {
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
    pub fn running(&mut self, _: &impl Memory, registers: &RegisterSet, _: &[u8]) -> ErlangPart {
        ErlangPart { leaf: Some(registers.ip), is_expected: true, ..ErlangPart::default() }
    }

    #[cfg(not(target_arch = "x86_64"))]
    pub fn dirty(&mut self, _: &impl Memory, _: &[RegisterSet]) -> ErlangPart {
        ErlangPart::default()
    }

    #[cfg(not(target_arch = "x86_64"))]
    pub fn interpreting(
        &mut self,
        _: &impl Memory,
        _: &RegisterSet,
        _: bool,
        _: impl Fn(u64) -> Option<u64>,
    ) -> ErlangPart {
        ErlangPart { is_expected: true, ..ErlangPart::default() }
    }

    #[cfg(not(target_arch = "x86_64"))]
    pub fn calling(&mut self, _: &impl Memory, caller: &RegisterSet) -> ErlangPart {
        ErlangPart { leaf: Some(caller.ip.wrapping_sub(1)), is_expected: true, ..ErlangPart::default() }
    }
}
