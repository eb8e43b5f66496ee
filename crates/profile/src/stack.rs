//! Stacks: the registers and the copy of memory that a sample brings, and the frames that become of them.

/// What of a thread's registers unwinding begins with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Registers {
    /// The instruction.
    pub ip: u64,
    /// The stack's pointer.
    pub sp: u64,
    /// The frame's pointer.
    pub fp: u64,
    /// The link register of ARM64; 0 elsewhere.
    pub lr: u64,
}

/// Why a stack ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StackEnd {
    /// The thread begins there.
    #[default]
    Bottom,
    /// The caller is code that the VM has made, or that of a file that could not be read. Of such there are no unwind tables, and what
    /// would be found by frame pointers there would be invented.
    Generated,
    /// The copy of the stack was not long enough, or there are more frames than are kept.
    Cut,
    /// The unwind tables did not help.
    Lost,
}

/// Where a thread was.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Stack {
    /// An address within each function, innermost first. Return addresses are those of the calls.
    pub frames: Vec<u64>,
    /// What is behind the last one.
    pub end: StackEnd,
}
