//! Identifiers that outlive the message they arrived in: they are stored, compared and sent back.

use std::fmt;
use std::sync::Arc;

/// A process identifier.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Pid {
    /// The node that the process runs on.
    pub node: Arc<str>,
    /// Number of the process on its node.
    pub id: u32,
    /// Upper part of the process number.
    pub serial: u32,
    /// Incarnation of the node; never 0 for a running node.
    pub creation: u32,
}

/// A reference, unique across the incarnations of its node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Reference {
    /// The node that created it.
    pub node: Arc<str>,
    /// Incarnation of the node.
    pub creation: u32,
    /// The reference's words (1 to 5), in wire order.
    pub words: Vec<u32>,
}

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{}.{}.{}>", self.node.escape_debug(), self.id, self.serial)
    }
}
