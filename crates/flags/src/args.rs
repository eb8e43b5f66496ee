//! Reads and edits the flags in a node's configuration files: vm.args, environment variables, scripts.
//!
//! [`effective`] combines the files of one node as the launcher does. For each flag it returns the effective value, where that value
//! is given, and the values that it overrides. [`change`] sets or removes a flag in the text of a file and leaves all other bytes
//! unchanged. [`convert`] writes the flags and comments of one file in the format of another.
//!
//! Every new text is parsed again before it is returned, to verify that it has the requested value and that all other flags are
//! unchanged.

mod change;
mod comment;
mod convert;
mod effective;
mod flag_change;
mod walk;

use std::ops::Range;

use thiserror::Error;

use crate::entry::Entry;
use crate::source::{self, Format, Fragment, Order, Place, Position, SourceError};

pub use self::change::change;
pub use self::convert::{Target, args_file_of_node, convert};
pub use self::effective::{EffectiveFlag, IneffectiveFlag, Overview, ValueSource, effective_flags};
pub use self::flag_change::FlagChange;

/// A file with flags.
#[derive(Debug, Clone)]
pub struct Input {
    /// The syntax of the file.
    pub format: Format,
    /// The content of the file.
    pub text: String,
    /// The parsed fragments of the file.
    pub fragments: Vec<Fragment>,
    /// The index of the selected node, from 0, if a YAML file has containers of several nodes. A new node is assumed to begin at a
    /// variable that the previous node already has. `None` if there is only one node.
    pub node: Option<usize>,
}

impl Input {
    /// Parses the content of a file.
    ///
    /// # Errors
    /// Fails in the same cases as [`source::read`].
    pub fn read(format: Format, text: impl Into<String>) -> Result<Input, SourceError> {
        let text = text.into();
        let fragments = source::read(format, &text)?;
        Ok(Input { format, text, fragments, node: None })
    }

    /// Returns the same file with new content.
    fn with_text(&self, text: impl Into<String>) -> Result<Input, SourceError> {
        Ok(Input { node: self.node, ..Input::read(self.format, text)? })
    }

    fn at(&self, offset: usize) -> Position {
        source::position(&self.text, offset)
    }
}

/// One occurrence of a flag in a file.
#[derive(Debug, Clone)]
pub struct FlagUse {
    /// Index of the file in the list of inputs.
    pub file: usize,
    /// Index of the fragment in the file.
    pub fragment: usize,
    /// The spelling in the catalogue: `+sbwt`, `+MBas`, `-heart`, `-kernel net_ticktime`. For an unknown flag, the spelling in the file.
    pub flag: String,
    /// The entry in the catalogue; `None` for an unknown flag.
    pub entry: Option<&'static Entry>,
    /// The words of the value; empty for a flag without a value.
    pub values: Vec<String>,
    /// The byte range of the flag and its value in the file.
    pub span: Range<usize>,
    /// Whether a part is a template or a variable, so that the value is unknown.
    pub dynamic: bool,
    /// Whether the flag is in a part of the file that may not take effect, such as a branch of a script.
    pub conditional: bool,
    /// The position of the flag in the order in which the launcher applies its sources.
    pub order: Order,
    shape: Shape,
}

impl FlagUse {
    /// Returns the value, joined by spaces; `None` for a flag without a value.
    pub fn value(&self) -> Option<String> {
        (!self.values.is_empty()).then(|| self.values.join(" "))
    }
}

/// How the words of a fragment form the flag; numbers are indices of words.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Shape {
    /// The flag and its values are separate words, in this range.
    Apart(Range<usize>),
    /// Flag and value are one word: its index, and the byte offset of the value in the word.
    Glued(usize, usize),
    /// A key and its value after `-application`.
    Pair {
        /// The index of `-application`.
        head: usize,
        /// The index of the key.
        key: usize,
        /// Whether this is the only pair after `-application`.
        alone: bool,
    },
    /// The value of a variable that sets this flag.
    OfVariable {
        /// Whether the variable sets only this flag.
        alone: bool,
    },
}

/// The reason why flags cannot be reported or changed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ArgsError {
    /// The file cannot be parsed, or the change cannot be written.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The request is not a single flag.
    #[error(
        "`{text}` is not exactly one flag with its value; write it as in vm.args, for example \"+sbwt none\""
    )]
    NotOneFlag {
        /// The request.
        text: String,
    },
    /// The flag has parameters, and the request does not name one.
    #[error("{flag} has several parameters; name one, for example \"{example}\"")]
    NoParameter {
        /// The flag.
        flag: String,
        /// The flag with one of its parameters.
        example: String,
    },
    /// The flag is unknown.
    #[error("no OTP release has the flag {flag}")]
    Unknown {
        /// The flag.
        flag: String,
    },
    /// The flag cannot be changed here, because every occurrence of the flag has an effect.
    #[error("{flag} can be repeated, and every occurrence has an effect; edit the file manually")]
    Accumulates {
        /// The flag.
        flag: String,
    },
    /// The flag is given several times, so that it is unclear which occurrence to change.
    #[error("{flag} is given twice, at {first} and {second}; remove one of them first")]
    Twice {
        /// The flag.
        flag: String,
        /// The first occurrence.
        first: Position,
        /// The second occurrence.
        second: Position,
    },
    /// The file describes several nodes, and none is selected.
    #[error("this file describes several nodes, whose flags begin at {}; select one of them", listed(begins))]
    SeveralNodes {
        /// Where the flags of each node begin.
        begins: Vec<Position>,
    },
    /// The selected node does not exist.
    #[error("no node {} in this file; it describes {count}", node + 1)]
    NoSuchNode {
        /// The requested node, from 0.
        node: usize,
        /// The number of nodes.
        count: usize,
    },
    /// An environment variable of a product (such as RabbitMQ) sets the flag.
    #[error("{flag} comes from {variable} at {at}; change that line manually")]
    ByVariable {
        /// The flag.
        flag: String,
        /// The variable.
        variable: String,
        /// The position of the variable's value.
        at: Position,
    },
    /// The file has no place for flags, and none can be added.
    #[error("this file has no place for flags; {advice}")]
    NoPlace {
        /// How the user can proceed.
        advice: &'static str,
    },
    /// The file does not have the flag.
    #[error("{flag} is not in this file")]
    NotThere {
        /// The flag.
        flag: String,
    },
    /// If the flag were written, the file would not be parsed as intended.
    #[error("{flag} cannot be written here: {why}")]
    NotHeld {
        /// The flag.
        flag: String,
        /// What would happen.
        why: String,
    },
    /// The other format cannot express a part of the file.
    #[error("{at}: `{text}` cannot be written in the other format: {why}")]
    NotConvertible {
        /// The position of the part.
        at: Position,
        /// The text of the part.
        text: String,
        /// The reason.
        why: &'static str,
    },
}

impl ArgsError {
    /// Returns the position of the error, if the error message starts with a position.
    pub fn position(&self) -> Option<Position> {
        match self {
            ArgsError::Source(error) => error.position(),
            ArgsError::NotConvertible { at, .. } => Some(*at),
            _ => None,
        }
    }
}

fn listed(places: &[Position]) -> String {
    places.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Returns the name of a place: of the variable or of the embedded file. Empty if the place is a whole file.
pub fn place_name(place: &Place) -> &str {
    match place {
        Place::ArgsFile { name } => name.as_deref().unwrap_or_default(),
        Place::Variable { name, .. } => name,
        Place::CommandLine { .. } => "the command line",
        Place::FileNames | Place::RunningNode => "",
    }
}
