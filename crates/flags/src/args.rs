//! The flags of a node: the effective value of each and where it comes from, and files with changed flags.
//!
//! [`effective`] joins the files of one node as the launcher does and returns for each flag the effective value, its place, and the
//! values that it overrides. [`change`] sets or removes a flag in the text of a file; [`convert`] writes the flags of one file in the
//! format of another. Comments, order and all other bytes stay the same.
//!
//! Every result is parsed again before it is returned: the new text has the requested value, and all other flags keep theirs.

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
pub use self::convert::{Target, convert, of_node};
pub use self::effective::{By, EffectiveFlag, IneffectiveFlag, Overview, effective};
pub use self::flag_change::Wish;

/// A file with flags.
#[derive(Debug, Clone)]
pub struct Input {
    /// Its syntax.
    pub format: Format,
    /// Its text.
    pub text: String,
    /// Its parsed fragments.
    pub fragments: Vec<Fragment>,
    /// Which of several nodes is meant, from 0, if a YAML file has containers of several nodes. A new node begins with a variable that
    /// the node before it already has. `None` if there is only one.
    pub node: Option<usize>,
}

impl Input {
    /// Parses a text.
    ///
    /// # Errors
    /// Those of [`source::read`].
    pub fn read(format: Format, text: impl Into<String>) -> Result<Input, SourceError> {
        let text = text.into();
        let fragments = source::read(format, &text)?;
        Ok(Input { format, text, fragments, node: None })
    }

    /// The same file with another text.
    fn with_text(&self, text: impl Into<String>) -> Result<Input, SourceError> {
        Ok(Input { node: self.node, ..Input::read(self.format, text)? })
    }

    fn at(&self, offset: usize) -> Position {
        source::position(&self.text, offset)
    }
}

/// One use of a flag in a file.
#[derive(Debug, Clone)]
pub struct Given {
    /// Index of the file.
    pub file: usize,
    /// Index of the fragment in the file.
    pub fragment: usize,
    /// The spelling of its entry: `+sbwt`, `+MBas`, `-heart`, `-kernel net_ticktime`; without an entry the text of the file.
    pub flag: String,
    /// Its entry in the catalogue.
    pub entry: Option<&'static Entry>,
    /// The words of its value; empty for a flag without one.
    pub values: Vec<String>,
    /// Its bytes in the file.
    pub span: Range<usize>,
    /// Part of it is a template or a variable, so its value is unknown.
    pub dynamic: bool,
    /// It is in a part of the file that may not take effect.
    pub conditional: bool,
    /// When it takes effect.
    pub order: Order,
    shape: Shape,
}

impl Given {
    /// The value as one text; `None` for a flag without one.
    pub fn value(&self) -> Option<String> {
        (!self.values.is_empty()).then(|| self.values.join(" "))
    }
}

/// How the words of a fragment form the flag, as indices of words.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Shape {
    /// The flag and its values are separate words.
    Apart(Range<usize>),
    /// Flag and value are one word; the value begins at this byte.
    Glued(usize, usize),
    /// A key and its value after `-application`: the indices of that word and of the key.
    Pair {
        head: usize,
        key: usize,
        /// It is the only pair after that word.
        alone: bool,
    },
    /// The value of a variable that sets this flag; not `alone` if it sets others as well.
    OfVariable { alone: bool },
}

/// Why flags cannot be reported or changed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ArgsError {
    /// The file cannot be parsed, or the change cannot be written.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The request is not a single flag.
    #[error("`{text}` is not one flag with its value; write it as in vm.args, for example \"+sbwt none\"")]
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
    /// The flag may be repeated, and every occurrence has an effect.
    #[error("{flag} can be repeated, and every occurrence has an effect; edit the file by hand")]
    Accumulates {
        /// The flag.
        flag: String,
    },
    /// A flag that must be given only once is given several times.
    #[error("{flag} is given at {first} and again at {second}; remove one of them first")]
    Twice {
        /// The flag.
        flag: String,
        /// The first place.
        first: Position,
        /// The second place.
        second: Position,
    },
    /// A file describes several nodes.
    #[error("this file describes several nodes, whose flags begin at {}; select one of them", listed(begins))]
    SeveralNodes {
        /// Where the flags of each node begin.
        begins: Vec<Position>,
    },
    /// The file has fewer nodes.
    #[error("no node {} in this file; it describes {count}", node + 1)]
    NoSuchNode {
        /// The requested node, from 0.
        node: usize,
        /// The number of nodes.
        count: usize,
    },
    /// A variable of the product sets the flag.
    #[error("{flag} comes from {variable} at {at}; change that line by hand")]
    ByVariable {
        /// The flag.
        flag: String,
        /// The variable.
        variable: String,
        /// The place of its value.
        at: Position,
    },
    /// The file has no place for flags, and none can be added.
    #[error("this file has no place for flags; {advice}")]
    NoPlace {
        /// What to do.
        advice: &'static str,
    },
    /// The file does not have the flag.
    #[error("{flag} is not in this file")]
    NotThere {
        /// The flag.
        flag: String,
    },
    /// The changed file would not be parsed as intended.
    #[error("{flag} cannot be written here: {why}")]
    NotHeld {
        /// The flag.
        flag: String,
        /// What would happen.
        why: String,
    },
    /// A part that the other format cannot express.
    #[error("{at}: `{text}` cannot be written in the other format: {why}")]
    NotConvertible {
        /// Its place.
        at: Position,
        /// Its text.
        text: String,
        /// The reason.
        why: &'static str,
    },
}

impl ArgsError {
    /// The place of the error, if its text starts with one.
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

/// The name of a place: the variable, or the name of the embedded file; empty for a file of its own.
pub fn place_name(place: &Place) -> &str {
    match place {
        Place::ArgsFile { name } => name.as_deref().unwrap_or_default(),
        Place::Variable { name, .. } => name,
        Place::CommandLine { .. } => "the command line",
        Place::FileNames | Place::LiveNode => "",
    }
}
