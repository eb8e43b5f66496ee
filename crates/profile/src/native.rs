//! Unwinds C code with the unwind tables of the program and its libraries (`.eh_frame`), and restores all registers that a function preserves for
//! its caller.
//!
//! Those registers tell where generated code keeps its process and its stack when it calls C. The unwinder of [`crate::unwind`] restores the
//! registers that it needs for itself only.

use std::ops::Range;
use std::sync::Arc;

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, EndianSlice, EvaluationResult, NativeEndian, Register,
    RegisterRule, UnwindContext, UnwindExpression, UnwindSection, Value,
};

use crate::elf::{Elf, Section};
use crate::image::Image;
use crate::stack::StackEnd;

/// Limit of frames; the VM's own C code has about ten, a NIF may recurse.
const MAX_FRAMES: usize = 128;
/// Steps of one DWARF expression; those of compilers have about ten.
const MAX_EXPRESSION_STEPS: usize = 64;

/// Numbers of registers (System V ABI for x86-64, figure 3.36).
#[cfg(target_arch = "x86_64")]
mod dwarf {
    /// Number of registers.
    pub const COUNT: usize = 17;
    /// The stack pointer, rsp.
    pub const SP: usize = 7;
    /// The return address.
    pub const RETURN_ADDRESS: usize = 16;
    /// Registers that a function preserves for its caller: rbx, rbp, r12 to r15.
    pub const PRESERVED: &[usize] = &[3, 6, 12, 13, 14, 15];
    /// The frame pointer, rbp.
    pub const FP: usize = 6;
    /// There is no link register.
    pub const LR: Option<usize> = None;
    /// In generated code: the registers of the scheduler.
    pub const RBX: usize = 3;
    /// In generated code that calls C: sometimes the stack of the process.
    pub const RBP: usize = 6;
    /// In generated code: the process.
    pub const R13: usize = 13;
    /// Registers in which the interpreter has its instruction: r8, rbx or rbp, depending on the place (measured, OTP 23).
    pub const INSTRUCTION_CANDIDATES: [usize; 3] = [8, 3, 6];
}

/// Numbers of registers (DWARF for the Arm 64-bit architecture).
#[cfg(target_arch = "aarch64")]
mod dwarf {
    /// Number of registers.
    pub const COUNT: usize = 32;
    /// The stack pointer.
    pub const SP: usize = 31;
    /// The frame pointer.
    pub const FP: usize = 29;
    /// The link register.
    pub const LR: Option<usize> = Some(30);
    /// The return address.
    pub const RETURN_ADDRESS: usize = 30;
    /// Registers that a function preserves for its caller: x19 to x29.
    pub const PRESERVED: &[usize] = &[19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29];
}

pub use dwarf::*;

/// Values of registers by their DWARF numbers; `None`: not known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RegisterSet {
    /// The address of the next instruction.
    pub ip: u64,
    /// The registers.
    pub values: [Option<u64>; COUNT],
}

/// C frames, and the registers behind them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NativeStack {
    /// An address within each function, innermost first. For return addresses: the address of the call.
    pub frames: Vec<u64>,
    /// The registers of each frame, as far as they are known.
    pub callers: Vec<RegisterSet>,
    /// Why there are no more frames.
    pub end: StackEnd,
    /// The registers of the function in which the stack ends: with [`StackEnd::Generated`] those of generated code or of the interpreter.
    pub registers: RegisterSet,
}

/// The unwind tables of a file.
struct Tables {
    range: Range<u64>,
    bias: u64,
    eh_frame: Section,
    eh_frame_hdr: Option<Section>,
    bases: BaseAddresses,
}

/// Unwinds C code of one process.
pub struct NativeUnwinder {
    /// Sorted by address.
    tables: Vec<Tables>,
    context: Box<UnwindContext<usize>>,
}

impl std::fmt::Debug for NativeUnwinder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NativeUnwinder").field("files", &self.tables.len()).finish_non_exhaustive()
    }
}

impl NativeUnwinder {
    /// With the unwind tables of a process's program and libraries.
    pub fn new(image: &Image) -> NativeUnwinder {
        let modules = image.modules().iter();
        let tables =
            modules.filter_map(|module| Tables::of(&module.elf, module.range.clone(), module.bias)).collect();
        NativeUnwinder { tables, context: Box::default() }
    }

    /// Adds a file, such as the vDSO, which is no file of the process.
    pub fn add(&mut self, elf: &Arc<Elf>, range: Range<u64>, bias: u64) {
        self.tables.extend(Tables::of(elf, range, bias));
        self.tables.sort_by_key(|tables| tables.range.start);
    }

    /// The C frames of a thread, up to the first one in `until`. `read` returns a word of its stack.
    pub fn unwind(
        &mut self,
        registers: RegisterSet,
        until: Option<&Range<u64>>,
        read: impl Fn(u64) -> Option<u64>,
    ) -> NativeStack {
        let mut stack =
            NativeStack { frames: Vec::new(), callers: Vec::new(), end: StackEnd::Lost, registers };
        let mut is_call = false;
        loop {
            let ip = stack.registers.ip;
            let lookup = if is_call { ip.wrapping_sub(1) } else { ip };
            let after = self.tables.partition_point(|tables| tables.range.start <= lookup);
            let tables = after.checked_sub(1).and_then(|index| self.tables.get(index));
            let Some(tables) = tables.filter(|tables| tables.range.contains(&lookup)) else {
                stack.end = StackEnd::Generated;
                return stack;
            };
            if stack.frames.len() >= MAX_FRAMES {
                stack.end = StackEnd::Cut;
                return stack;
            }
            stack.frames.push(lookup);
            stack.callers.push(stack.registers);
            if until.is_some_and(|until| until.contains(&lookup)) {
                stack.end = StackEnd::Generated;
                return stack;
            }
            match tables.step(&mut self.context, &stack.registers, lookup, &read) {
                Step::Caller(caller, is_signal) => {
                    // A stack that does not get shorter would never end.
                    if caller.values[SP] <= stack.registers.values[SP] {
                        return stack;
                    }
                    stack.registers = caller;
                    is_call = !is_signal;
                }
                Step::Bottom => {
                    stack.end = StackEnd::Bottom;
                    return stack;
                }
                Step::Unread => {
                    stack.end = StackEnd::Cut;
                    return stack;
                }
                Step::Lost => return stack,
            }
        }
    }
}

/// The result of unwinding one frame.
#[allow(clippy::large_enum_variant, reason = "it lives for one step, on the stack")]
enum Step {
    /// The registers of the caller, and whether it was interrupted by a signal.
    Caller(RegisterSet, bool),
    /// There is no caller.
    Bottom,
    /// The stack was not copied so far.
    Unread,
    /// There are no rules for this address, or they cannot be applied.
    Lost,
}

impl Tables {
    fn of(elf: &Elf, range: Range<u64>, bias: u64) -> Option<Tables> {
        let eh_frame = elf.eh_frame.clone()?;
        let mut bases = BaseAddresses::default().set_eh_frame(eh_frame.range.start);
        if let Some(header) = &elf.eh_frame_hdr {
            bases = bases.set_eh_frame_hdr(header.range.start);
        }
        if let Some(text) = &elf.text {
            bases = bases.set_text(text.range.start);
        }
        if let Some(got) = &elf.got {
            bases = bases.set_got(got.start);
        }
        Some(Tables { range, bias, eh_frame, eh_frame_hdr: elf.eh_frame_hdr.clone(), bases })
    }

    fn step(
        &self,
        context: &mut UnwindContext<usize>,
        registers: &RegisterSet,
        address: u64,
        read: &impl Fn(u64) -> Option<u64>,
    ) -> Step {
        let address = address.wrapping_sub(self.bias);
        let eh_frame = EhFrame::new(&self.eh_frame.data, NativeEndian);
        let from_header = self.eh_frame_hdr.as_ref().and_then(|header| {
            let header = EhFrameHdr::new(&header.data, NativeEndian).parse(&self.bases, 8).ok()?;
            header.table()?.fde_for_address(&eh_frame, &self.bases, address, EhFrame::cie_from_offset).ok()
        });
        let found = from_header
            .map_or_else(|| eh_frame.fde_for_address(&self.bases, address, EhFrame::cie_from_offset), Ok);
        let Ok(entry) = found else { return Step::Lost };
        let Ok(row) = entry.unwind_info_for_address(&eh_frame, &self.bases, context, address) else {
            return Step::Lost;
        };
        let frame = Frame { eh_frame: &eh_frame, encoding: entry.cie().encoding(), registers, read };
        let cfa = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => {
                frame.register(*register).map(|value| value.wrapping_add_signed(*offset))
            }
            CfaRule::Expression(expression) => frame.evaluate(expression, None),
        };
        let Some(cfa) = cfa else { return Step::Lost };
        let mut caller = RegisterSet::default();
        for register in PRESERVED {
            caller.values[*register] = registers.values[*register];
        }
        let mut is_unread = false;
        for (register, rule) in row.registers() {
            let value = match rule {
                RegisterRule::Undefined => None,
                RegisterRule::SameValue => frame.register(*register),
                RegisterRule::Offset(offset) => {
                    let value = read(cfa.wrapping_add_signed(*offset));
                    is_unread |= value.is_none();
                    value
                }
                RegisterRule::ValOffset(offset) => Some(cfa.wrapping_add_signed(*offset)),
                RegisterRule::Register(other) => frame.register(*other),
                RegisterRule::Expression(expression) => frame.evaluate(expression, Some(cfa)).and_then(read),
                RegisterRule::ValExpression(expression) => frame.evaluate(expression, Some(cfa)),
                RegisterRule::Constant(value) => Some(*value),
                _ => None,
            };
            if let Some(place) = caller.values.get_mut(usize::from(register.0)) {
                *place = value;
            }
        }
        caller.values[SP] = Some(cfa);
        match caller.values[RETURN_ADDRESS] {
            Some(0) => Step::Bottom,
            Some(ip) => Step::Caller(RegisterSet { ip, ..caller }, entry.is_signal_trampoline()),
            None if is_unread => Step::Unread,
            // The first function of a thread has no return address.
            None => Step::Bottom,
        }
    }
}

/// What the rules of a frame refer to.
struct Frame<'a, R> {
    eh_frame: &'a EhFrame<EndianSlice<'a, NativeEndian>>,
    encoding: gimli::Encoding,
    registers: &'a RegisterSet,
    read: &'a R,
}

impl<R: Fn(u64) -> Option<u64>> Frame<'_, R> {
    fn register(&self, register: Register) -> Option<u64> {
        self.registers.values.get(usize::from(register.0)).copied().flatten()
    }

    /// The value of an expression; `cfa` is on its stack at first.
    fn evaluate(&self, expression: &UnwindExpression<usize>, cfa: Option<u64>) -> Option<u64> {
        let mut evaluation = expression.get(self.eh_frame).ok()?.evaluation(self.encoding);
        if let Some(cfa) = cfa {
            evaluation.set_initial_value(cfa);
        }
        let mut state = evaluation.evaluate().ok()?;
        for _ in 0..MAX_EXPRESSION_STEPS {
            state = match state {
                EvaluationResult::Complete => {
                    return match evaluation.value_result()? {
                        Value::Generic(value) => Some(value),
                        _ => None,
                    };
                }
                EvaluationResult::RequiresRegister { register, .. } => {
                    evaluation.resume_with_register(Value::Generic(self.register(register)?)).ok()?
                }
                EvaluationResult::RequiresMemory { address, size: 8, .. } => {
                    evaluation.resume_with_memory(Value::Generic((self.read)(address)?)).ok()?
                }
                _ => return None,
            };
        }
        None
    }
}
