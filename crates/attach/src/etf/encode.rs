//! The encoder: a [`Value`] is a term that we build and encode for a node.

use std::borrow::Cow;

use super::{Pid, Reference, VERSION, tag};

/// A term to send.
#[derive(Debug, Clone, PartialEq)]
pub enum Value<'a> {
    /// An integer.
    Integer(i128),
    /// A float; it must be finite.
    Float(f64),
    /// An atom. The node never frees atoms, so use this only for constants.
    Atom(Cow<'a, str>),
    /// A binary.
    Binary(Cow<'a, [u8]>),
    /// A tuple.
    Tuple(Vec<Value<'a>>),
    /// A proper list.
    List(Vec<Value<'a>>),
    /// A map, whose keys must be distinct.
    Map(Vec<(Value<'a>, Value<'a>)>),
    /// A pid.
    Pid(Pid),
    /// A reference.
    Reference(Reference),
    /// A term that is already encoded, with its version byte.
    Encoded(Cow<'a, [u8]>),
}

/// A [`Value`] that the format cannot represent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// An atom has at most 255 characters.
    #[error("cannot encode an atom of {0} characters, the maximum is 255")]
    AtomTooLong(usize),
    /// Lengths are limited to 32 bits.
    #[error("cannot encode {0} elements or bytes in one term")]
    TooLong(usize),
    /// Erlang has no infinity and no NaN.
    #[error("cannot encode a float that is not finite")]
    NotFinite,
}

impl<'a> Value<'a> {
    /// An atom.
    pub fn atom(name: impl Into<Cow<'a, str>>) -> Self {
        Value::Atom(name.into())
    }

    /// A binary.
    pub fn binary(content: impl Into<Cow<'a, [u8]>>) -> Self {
        Value::Binary(content.into())
    }

    /// A tuple.
    pub fn tuple(elements: impl Into<Vec<Value<'a>>>) -> Self {
        Value::Tuple(elements.into())
    }

    /// A proper list.
    pub fn list(elements: impl Into<Vec<Value<'a>>>) -> Self {
        Value::List(elements.into())
    }

    /// Encodes this term, starting with the version byte.
    pub fn to_bytes(&self) -> Result<Vec<u8>, EncodeError> {
        let mut bytes = Vec::new();
        self.write(&mut bytes)?;
        Ok(bytes)
    }

    /// Appends the encoded term to `bytes`, starting with the version byte.
    pub fn write(&self, bytes: &mut Vec<u8>) -> Result<(), EncodeError> {
        bytes.push(VERSION);
        self.write_bare(bytes)
    }

    /// Appends the encoded term without a version byte. Recursion is safe here: the tree was built by nested expressions in our
    /// own source.
    fn write_bare(&self, bytes: &mut Vec<u8>) -> Result<(), EncodeError> {
        match self {
            Value::Integer(value) => write_integer(*value, bytes),
            Value::Float(value) => {
                if !value.is_finite() {
                    return Err(EncodeError::NotFinite);
                }
                bytes.push(tag::NEW_FLOAT);
                bytes.extend(value.to_be_bytes());
            }
            Value::Atom(name) => write_atom(name, bytes)?,
            Value::Binary(content) => {
                bytes.push(tag::BINARY);
                bytes.extend(length(content.len())?);
                bytes.extend_from_slice(content);
            }
            Value::Tuple(elements) => {
                match u8::try_from(elements.len()) {
                    Ok(arity) => bytes.extend([tag::SMALL_TUPLE, arity]),
                    Err(_) => {
                        bytes.push(tag::LARGE_TUPLE);
                        bytes.extend(length(elements.len())?);
                    }
                }
                for element in elements {
                    element.write_bare(bytes)?;
                }
            }
            // STRING_EXT, the short form of a list of bytes, is not used: it saves little, and lists with negative elements would
            // have to be excluded.
            Value::List(elements) => {
                if !elements.is_empty() {
                    bytes.push(tag::LIST);
                    bytes.extend(length(elements.len())?);
                    for element in elements {
                        element.write_bare(bytes)?;
                    }
                }
                bytes.push(tag::NIL);
            }
            Value::Map(pairs) => {
                bytes.push(tag::MAP);
                bytes.extend(length(pairs.len())?);
                for (key, value) in pairs {
                    key.write_bare(bytes)?;
                    value.write_bare(bytes)?;
                }
            }
            Value::Pid(pid) => {
                bytes.push(tag::NEW_PID);
                write_atom(&pid.node, bytes)?;
                for word in [pid.id, pid.serial, pid.creation] {
                    bytes.extend(word.to_be_bytes());
                }
            }
            Value::Reference(reference) => {
                bytes.push(tag::NEWER_REFERENCE);
                let words = u16::try_from(reference.words.len())
                    .map_err(|_| EncodeError::TooLong(reference.words.len()))?;
                bytes.extend(words.to_be_bytes());
                write_atom(&reference.node, bytes)?;
                bytes.extend(reference.creation.to_be_bytes());
                for word in &reference.words {
                    bytes.extend(word.to_be_bytes());
                }
            }
            Value::Encoded(term) => bytes.extend_from_slice(term.strip_prefix(&[VERSION]).unwrap_or(term)),
        }
        Ok(())
    }
}

fn length(len: usize) -> Result<[u8; 4], EncodeError> {
    u32::try_from(len).map(u32::to_be_bytes).map_err(|_| EncodeError::TooLong(len))
}

fn write_integer(value: i128, bytes: &mut Vec<u8>) {
    if let Ok(small) = u8::try_from(value) {
        bytes.extend([tag::SMALL_INTEGER, small]);
    } else if let Ok(int) = i32::try_from(value) {
        bytes.push(tag::INTEGER);
        bytes.extend(int.to_be_bytes());
    } else {
        let digits = value.unsigned_abs().to_le_bytes();
        let used = digits.iter().rposition(|&digit| digit != 0).map_or(0, |last| last + 1);
        bytes.extend([tag::SMALL_BIG, used as u8, u8::from(value < 0)]);
        bytes.extend(digits.iter().take(used));
    }
}

fn write_atom(name: &str, bytes: &mut Vec<u8>) -> Result<(), EncodeError> {
    let characters = name.chars().count();
    if characters > 255 {
        return Err(EncodeError::AtomTooLong(characters));
    }
    match u8::try_from(name.len()) {
        Ok(len) => bytes.extend([tag::SMALL_ATOM_UTF8, len]),
        Err(_) => {
            bytes.push(tag::ATOM_UTF8);
            // 255 characters are at most 1,020 bytes.
            bytes.extend((name.len() as u16).to_be_bytes());
        }
    }
    bytes.extend_from_slice(name.as_bytes());
    Ok(())
}

impl From<i64> for Value<'_> {
    fn from(value: i64) -> Self {
        Value::Integer(value.into())
    }
}

impl From<u64> for Value<'_> {
    fn from(value: u64) -> Self {
        Value::Integer(value.into())
    }
}

impl From<bool> for Value<'_> {
    fn from(value: bool) -> Self {
        Value::atom(if value { "true" } else { "false" })
    }
}

impl From<&Pid> for Value<'_> {
    fn from(pid: &Pid) -> Self {
        Value::Pid(pid.clone())
    }
}

impl From<&Reference> for Value<'_> {
    fn from(reference: &Reference) -> Self {
        Value::Reference(reference.clone())
    }
}
