//! Unwinds C code with the unwind tables of the program and its libraries (`.eh_frame`), and restores all registers that a function preserves for
//! its caller.
//!
//! A stripped VM has no frame pointers (distributions build with -fomit-frame-pointer). But it always has `.eh_frame`, which is exact at
//! every instruction (-fasynchronous-unwind-tables is the default on x86-64 and ARM64). The rules of a place are interpreted once and then
//! kept, because the same few hundred places occur again and again.
//!
//! The C code of a BIF is called from generated code, which has no unwind tables: there the stack ends with [`StackEnd::Generated`]. The
//! restored registers tell where that code keeps its process and its stack.

use std::collections::HashMap;
use std::ops::Range;

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, EhFrameOffset, Encoding, EndianSlice, EvaluationResult,
    NativeEndian, Pointer, Register, RegisterRule, UnwindContext, UnwindExpression, UnwindSection, Value,
};

use crate::elf::{Elf, Section};
use crate::image::Image;
use crate::memory::WORD_BYTES;
use crate::stack::StackEnd;

/// Limit of frames; the VM's own C code has about ten, a NIF may recurse.
const MAX_FRAMES: usize = 128;
/// Steps of one DWARF expression; those of compilers have about ten. Expressions may contain loops.
const MAX_EXPRESSION_STEPS: u32 = 64;
/// Places whose rules are kept. A profile of RabbitMQ has some hundreds; each takes up to 1 KB.
const MAX_ROWS: usize = 16_384;
/// Largest `.eh_frame` without an index, in bytes: it is searched from the start. All linkers write the index.
const MAX_UNINDEXED_BYTES: usize = 4 << 20;

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
    /// All bits of a return address belong to the address.
    pub const ADDRESS_MASK: u64 = u64::MAX;
    /// There are no rules beside those of DWARF.
    pub const VENDOR: gimli::Vendor = gimli::Vendor::Default;
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
    /// The bits of an address. Those above may be a signature (pointer authentication).
    pub const ADDRESS_MASK: u64 = (1 << 48) - 1;
    /// Rules tell where a return address is signed.
    pub const VENDOR: gimli::Vendor = gimli::Vendor::AArch64;
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

/// How to restore the registers of the caller at one place in the code.
struct Row {
    cfa: CfaRule<usize>,
    /// By register; others have no rule.
    rules: Vec<(usize, RegisterRule<usize>)>,
    /// Of the expressions.
    encoding: Encoding,
    /// Whether the caller was interrupted by a signal.
    is_signal_frame: bool,
}

/// Unwinds C code of one process.
#[derive(Default)]
pub struct NativeUnwinder {
    /// Sorted by address.
    tables: Vec<Tables>,
    context: Box<UnwindContext<usize>>,
    /// By address; `None`: there are no rules.
    rows: HashMap<u64, Option<Row>>,
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
        NativeUnwinder { tables, ..NativeUnwinder::default() }
    }

    /// Adds a file, such as the vDSO, which is no file of the process.
    pub fn add(&mut self, elf: &Elf, range: Range<u64>, bias: u64) {
        self.tables.extend(Tables::of(elf, range, bias));
        self.tables.sort_by_key(|tables| tables.range.start);
        self.rows.clear();
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
        if LR.is_none() {
            // The rules of the linker's stubs refer to the instruction pointer by this number.
            stack.registers.values[RETURN_ADDRESS] = Some(registers.ip);
        }
        // The innermost function may be at any instruction, its callers are behind a call.
        let mut is_interrupted = true;
        loop {
            let ip = stack.registers.ip;
            let lookup = if is_interrupted { ip } else { ip.wrapping_sub(1) };
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
            if self.rows.len() >= MAX_ROWS {
                self.rows.clear();
            }
            let row = self.rows.entry(lookup).or_insert_with(|| tables.row(&mut self.context, lookup));
            let row = row.as_ref();
            let step = match row {
                Some(row) => tables.step(row, &stack.registers, is_interrupted, &read),
                None => step_without_rules(&stack.registers, is_interrupted, &read),
            };
            stack.end = match step {
                Step::Caller(caller) => {
                    stack.registers = caller;
                    is_interrupted = row.is_some_and(|row| row.is_signal_frame);
                    continue;
                }
                Step::Bottom => StackEnd::Bottom,
                Step::Unread => StackEnd::Cut,
                Step::Lost => StackEnd::Lost,
            };
            return stack;
        }
    }
}

/// The result of unwinding one frame.
#[allow(clippy::large_enum_variant, reason = "it lives for one step, on the stack")]
enum Step {
    /// The registers of the caller.
    Caller(RegisterSet),
    /// There is no caller.
    Bottom,
    /// The stack was not copied so far.
    Unread,
    /// The rules cannot be applied.
    Lost,
}

impl Tables {
    fn of(elf: &Elf, range: Range<u64>, bias: u64) -> Option<Tables> {
        let eh_frame = elf.eh_frame.clone()?;
        if elf.eh_frame_hdr.is_none() && eh_frame.data.len() > MAX_UNINDEXED_BYTES {
            return None;
        }
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

    fn eh_frame(&self) -> EhFrame<EndianSlice<'_, NativeEndian>> {
        let mut eh_frame = EhFrame::new(&self.eh_frame.data, NativeEndian);
        eh_frame.set_vendor(VENDOR);
        eh_frame
    }

    /// The rules at an address of the process.
    fn row(&self, context: &mut UnwindContext<usize>, address: u64) -> Option<Row> {
        let address = address.wrapping_sub(self.bias);
        let eh_frame = self.eh_frame();
        let entry = match &self.eh_frame_hdr {
            Some(header) => {
                let header = EhFrameHdr::new(&header.data, NativeEndian).parse(&self.bases, 8).ok()?;
                let Pointer::Direct(entry) = header.table()?.lookup(address, &self.bases).ok()? else {
                    return None;
                };
                // gimli's own subtraction may overflow.
                let offset = usize::try_from(entry.checked_sub(self.eh_frame.range.start)?).ok()?;
                eh_frame.fde_from_offset(&self.bases, EhFrameOffset(offset), EhFrame::cie_from_offset)
            }
            None => eh_frame.fde_for_address(&self.bases, address, EhFrame::cie_from_offset),
        };
        // An index without the address leads to its neighbour.
        let entry = entry.ok().filter(|entry| entry.contains(address))?;
        let row = entry.unwind_info_for_address(&eh_frame, &self.bases, context, address).ok()?;
        let rules = row.registers().map(|(register, rule)| (usize::from(register.0), rule.clone()));
        Some(Row {
            cfa: row.cfa().clone(),
            rules: rules.filter(|(register, _)| *register < COUNT).collect(),
            encoding: entry.cie().encoding(),
            is_signal_frame: entry.is_signal_trampoline(),
        })
    }

    fn step(
        &self,
        row: &Row,
        registers: &RegisterSet,
        is_interrupted: bool,
        read: &impl Fn(u64) -> Option<u64>,
    ) -> Step {
        let frame = Frame { eh_frame: &self.eh_frame(), encoding: row.encoding, registers, read };
        let cfa = match &row.cfa {
            CfaRule::RegisterAndOffset { register, offset } => {
                frame.register(*register).map(|value| value.wrapping_add_signed(*offset))
            }
            CfaRule::Expression(expression) => frame.evaluate(expression, None),
        };
        let Some(cfa) = cfa.filter(|cfa| is_shorter(*cfa, registers, is_interrupted)) else {
            return Step::Lost;
        };
        let mut caller = registers.preserved(is_interrupted);
        let mut is_unread = false;
        for (register, rule) in &row.rules {
            caller.values[*register] = match rule {
                RegisterRule::SameValue => registers.values[*register],
                RegisterRule::Offset(offset) => {
                    let at = cfa.wrapping_add_signed(*offset);
                    // The end of a function restores one register after the other: those below the stack pointer are restored already.
                    let is_restored = is_interrupted && Some(at) < registers.values[SP];
                    let value = if is_restored { registers.values[*register] } else { read(at) };
                    is_unread |= value.is_none() && !is_restored;
                    value
                }
                RegisterRule::ValOffset(offset) => Some(cfa.wrapping_add_signed(*offset)),
                RegisterRule::Register(other) => frame.register(*other),
                RegisterRule::Expression(expression) => frame.evaluate(expression, Some(cfa)).and_then(read),
                RegisterRule::ValExpression(expression) => frame.evaluate(expression, Some(cfa)),
                RegisterRule::Constant(value) => Some(*value),
                _ => None,
            };
        }
        caller.values[SP] = Some(cfa);
        match caller.values[RETURN_ADDRESS] {
            None if is_unread => Step::Unread,
            // The first function of a thread has no return address.
            None | Some(0) => Step::Bottom,
            Some(ip) => Step::Caller(RegisterSet { ip: ip & ADDRESS_MASK, ..caller }),
        }
    }
}

impl RegisterSet {
    /// The registers of the caller, as far as they are the same without a rule.
    fn preserved(&self, is_interrupted: bool) -> RegisterSet {
        let mut caller = RegisterSet::default();
        for register in PRESERVED {
            caller.values[*register] = self.values[*register];
        }
        if let Some(link) = LR.filter(|_| is_interrupted) {
            caller.values[link] = self.values[link];
        }
        caller
    }
}

/// Whether a stack that begins at `cfa` is shorter than that of these registers; otherwise unwinding might never end. On ARM64, a function
/// that calls no other needs no stack.
fn is_shorter(cfa: u64, registers: &RegisterSet, is_interrupted: bool) -> bool {
    let is_leaf = is_interrupted && LR.is_some();
    registers.values[SP].is_none_or(|sp| cfa > sp || (cfa == sp && is_leaf))
}

/// Unwinds code without rules, such as the assembler code of some C libraries. The innermost function is taken for one that has stored nothing
/// so far; any other one for one with a frame pointer.
fn step_without_rules(
    registers: &RegisterSet,
    is_interrupted: bool,
    read: &impl Fn(u64) -> Option<u64>,
) -> Step {
    let word_bytes = WORD_BYTES as u64;
    let mut caller = registers.preserved(is_interrupted);
    let base = registers.values[if is_interrupted { SP } else { FP }];
    let Some(base) = base else { return Step::Lost };
    let (cfa, ip) = match (is_interrupted, LR) {
        (true, Some(link)) => (base, registers.values[link]),
        (true, None) => (base.wrapping_add(word_bytes), read(base)),
        (false, _) => {
            caller.values[FP] = read(base);
            (base.wrapping_add(2 * word_bytes), read(base.wrapping_add(word_bytes)))
        }
    };
    if !is_shorter(cfa, registers, is_interrupted) {
        return Step::Lost;
    }
    caller.values[SP] = Some(cfa);
    match ip {
        None => Step::Unread,
        Some(0) => Step::Bottom,
        Some(ip) => Step::Caller(RegisterSet { ip: ip & ADDRESS_MASK, ..caller }),
    }
}

/// What the rules of a frame refer to.
struct Frame<'a, R> {
    eh_frame: &'a EhFrame<EndianSlice<'a, NativeEndian>>,
    encoding: Encoding,
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
        evaluation.set_max_iterations(MAX_EXPRESSION_STEPS);
        if let Some(cfa) = cfa {
            evaluation.set_initial_value(cfa);
        }
        let mut state = evaluation.evaluate().ok()?;
        loop {
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
    }
}

#[cfg(test)]
mod tests;
