//! Call stacks of C code.

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
