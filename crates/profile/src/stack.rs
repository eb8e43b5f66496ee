//! Call stacks: registers and stack memory of a sample, and the frames derived from them.

use crate::native::{self, RegisterSet};

/// The registers with which unwinding starts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Registers {
    /// Instruction pointer.
    pub ip: u64,
    /// Stack pointer.
    pub sp: u64,
    /// Frame pointer.
    pub fp: u64,
    /// Link register of ARM64; 0 elsewhere.
    pub lr: u64,
}

impl Registers {
    /// Those of a sample.
    pub fn of(sampled: &RegisterSet) -> Registers {
        let value = |number: Option<usize>| number.and_then(|number| sampled.values[number]).unwrap_or(0);
        Registers {
            ip: sampled.ip,
            sp: value(Some(native::SP)),
            fp: value(Some(native::FP)),
            lr: value(native::LR),
        }
    }
}

/// Why a stack ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StackEnd {
    /// The thread's first function was reached.
    #[default]
    Bottom,
    /// The caller is generated code, or code of a file that could not be read. Such code has no unwind tables, and frames found through
    /// frame pointers would be wrong.
    Generated,
    /// The copied part of the stack was too short, or the limit on frames is reached.
    Cut,
    /// Unwinding failed.
    Lost,
}

/// A call stack.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Stack {
    /// An address within each function, innermost first. For return addresses: the address of the call.
    pub frames: Vec<u64>,
    /// Why there are no more frames.
    pub end: StackEnd,
}
