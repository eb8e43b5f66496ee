//! The flags of a node: which value of each is in effect and who says so, and files with other flags.
//!
//! [`effective`] joins the files of one node as the launcher does and tells for each flag the value that counts, where it stands, and
//! what it wins over. [`change`] gives a flag another value in the text of a file, or takes it away; [`convert`] writes the flags of
//! one file in the format of another. Comments, order and all other bytes stay.
//!
//! Nothing is handed out that was not read again: a changed text holds what was asked for, and every other flag has the values
//! that it had.

mod change;
mod comment;
mod convert;
mod effective;
mod walk;
mod wish;

use std::ops::Range;

use thiserror::Error;

use crate::entry::Entry;
use crate::source::{self, Format, Fragment, Order, Place, Position, SourceError};

pub use self::change::change;
pub use self::convert::{Target, convert, of_node};
pub use self::effective::{By, Effective, Idle, Overview, effective};
pub use self::wish::Wish;

/// A file with flags.
#[derive(Debug, Clone)]
pub struct Input {
    /// Its syntax.
    pub format: Format,
    /// Its text.
    pub text: String,
    /// What was read in it.
    pub fragments: Vec<Fragment>,
    /// Which of several nodes is meant, from 0, where a YAML file has containers of several. A new one begins where a variable
    /// is set that the one before has set already. `None` where there is only one.
    pub node: Option<usize>,
}

impl Input {
    /// Reads a text.
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

/// A flag where it stands in a file.
#[derive(Debug, Clone)]
pub struct Given {
    /// Index of the file.
    pub file: usize,
    /// Index of the fragment in the file.
    pub fragment: usize,
    /// As its entry spells it: `+sbwt`, `+MBas`, `-heart`, `-kernel net_ticktime`; as it stands if there is no entry.
    pub flag: String,
    /// What is known of it.
    pub entry: Option<&'static Entry>,
    /// The words of its value; empty for a flag without one.
    pub values: Vec<String>,
    /// Its bytes in the file.
    pub span: Range<usize>,
    /// A part of it is a template or a variable, so that its value is not known.
    pub dynamic: bool,
    /// It stands in a part of the file that may not count.
    pub conditional: bool,
    /// When it takes effect.
    pub order: Order,
    shape: Shape,
}

impl Given {
    /// The value in one text; `None` for a flag without one.
    pub fn value(&self) -> Option<String> {
        (!self.values.is_empty()).then(|| self.values.join(" "))
    }
}

/// How a flag stands in its fragment, by the indices of words.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Shape {
    /// The flag, and its values in words of their own.
    Apart(Range<usize>),
    /// Flag and value in one word, in which the value begins at this byte.
    Glued(usize, usize),
    /// A key and its value behind `-application`: the index of that word, and of the key.
    Pair {
        head: usize,
        key: usize,
        /// No other pair stands behind the same word.
        alone: bool,
    },
    /// The value of a variable that stands for this flag, and perhaps for others.
    OfVariable { alone: bool },
}

/// Why flags cannot be told or changed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ArgsError {
    /// The file cannot be read, or not be written so.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// What is asked for is not one flag.
    #[error("`{text}` is not one flag with its value: write it as in vm.args, such as \"+sbwt none\"")]
    NotOneFlag {
        /// What was asked for.
        text: String,
    },
    /// The flag has parameters, and it is not said which one is meant.
    #[error("{flag} holds several settings: say which is meant, such as \"{example}\"")]
    NoParameter {
        /// It.
        flag: String,
        /// It, with one of its parameters.
        example: String,
    },
    /// Nothing is known of the flag.
    #[error("no OTP release has the flag {flag}")]
    Unknown {
        /// It.
        flag: String,
    },
    /// The flag may be given many times, and each counts.
    #[error("{flag} may be given several times, and each of them counts: edit the file by hand")]
    Accumulates {
        /// It.
        flag: String,
    },
    /// A flag of which only one is meant is there several times.
    #[error("{flag} stands at {first} and again at {second}: take one away first")]
    Twice {
        /// It.
        flag: String,
        /// One place.
        first: Position,
        /// Another.
        second: Position,
    },
    /// A file describes several nodes.
    #[error("this file is about several nodes, whose flags begin at {}: say which is meant", listed(begins))]
    SeveralNodes {
        /// Where the flags of each begin.
        begins: Vec<Position>,
    },
    /// There are not so many nodes.
    #[error("there is no node {} in this file: it is about {count}", node + 1)]
    NoSuchNode {
        /// Which one was asked for, from 0.
        node: usize,
        /// How many there are.
        count: usize,
    },
    /// The flag has its value from a variable of the product.
    #[error("{flag} comes from {variable} at {at}: change that line by hand")]
    ByVariable {
        /// The flag.
        flag: String,
        /// The variable.
        variable: String,
        /// Where it stands.
        at: Position,
    },
    /// The file has no place for flags, and none can be made.
    #[error("there is no place for flags in this file: {advice}")]
    NoPlace {
        /// What to do.
        advice: &'static str,
    },
    /// The flag is not there.
    #[error("{flag} does not stand in this file")]
    NotThere {
        /// It.
        flag: String,
    },
    /// What was written would not be read as it was meant.
    #[error("{flag} cannot be written here: {why}")]
    NotHeld {
        /// The flag.
        flag: String,
        /// What would happen.
        why: String,
    },
    /// Something that cannot be carried over into another format.
    #[error("{at}: `{text}` cannot be written in the other format: {why}")]
    NotConvertible {
        /// Where it stands.
        at: Position,
        /// It.
        text: String,
        /// Why.
        why: &'static str,
    },
}

impl ArgsError {
    /// Where, if its text begins with a place.
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

/// What a place is called: the variable, or the file in the file; empty for a file of its own.
pub fn place_name(place: &Place) -> &str {
    match place {
        Place::ArgsFile { name } => name.as_deref().unwrap_or_default(),
        Place::Variable { name, .. } => name,
        Place::CommandLine { .. } => "the command line",
        Place::FileNames | Place::LiveNode => "",
    }
}
