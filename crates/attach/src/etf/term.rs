//! [`Term`] is a view of one term of a [`Document`], with accessors for the expected types.

use std::sync::Arc;

use super::decode::{Form, Node};
use super::{Document, Kind, Pid, Reference, TermError, Value};

/// One term of a [`Document`], as cheap to copy as a slice.
#[derive(Clone, Copy)]
pub struct Term<'a> {
    document: &'a Document,
    place: Place,
}

#[derive(Clone, Copy)]
enum Place {
    /// Index on the tape.
    Node(u32),
    /// Offset of an element of a list of bytes, which has no node on the tape.
    Byte(u32),
}

impl<'a> Term<'a> {
    pub(super) fn node(document: &'a Document, index: u32) -> Term<'a> {
        Term { document, place: Place::Node(index) }
    }

    pub(super) fn index(self) -> Option<u32> {
        match self.place {
            Place::Node(index) => Some(index),
            Place::Byte(_) => None,
        }
    }

    fn form(self) -> (Form, u32, u32) {
        match self.place {
            Place::Node(index) => {
                let node = self.document.node(index);
                (node.form, node.at, node.len)
            }
            Place::Byte(at) => (Form::Int, at, u32::from(self.document.byte(at))),
        }
    }

    /// The type of the term.
    pub fn kind(self) -> Kind {
        match self.form().0 {
            Form::Int | Form::Big => Kind::Integer,
            Form::Float => Kind::Float,
            Form::Atom | Form::StoredAtom => Kind::Atom,
            Form::Tuple => Kind::Tuple,
            Form::Nil | Form::ByteList | Form::List => Kind::List,
            Form::Map => Kind::Map,
            Form::Binary => Kind::Binary,
            Form::BitString => Kind::BitString,
            Form::Pid => Kind::Pid,
            Form::Port => Kind::Port,
            Form::Reference => Kind::Reference,
            Form::Export => Kind::Export,
            Form::Fun => Kind::Fun,
        }
    }

    /// Returns the offset of the term's content, in bytes from the start of the buffer.
    pub fn offset(self) -> usize {
        match self.form() {
            (Form::StoredAtom, ..) => 0,
            (_, at, _) => at as usize,
        }
    }

    fn unexpected(self, expected: &'static str) -> TermError {
        TermError::Unexpected { expected, found: self.kind(), offset: self.offset() }
    }

    /// Returns the text of an atom.
    pub fn as_atom(self) -> Result<&'a str, TermError> {
        let (form, at, len) = self.form();
        let (at, end) = (at as usize, at as usize + len as usize);
        match form {
            Form::Atom => Ok(std::str::from_utf8(self.document.slice(at, end)).unwrap_or_default()),
            Form::StoredAtom => Ok(self.document.stored.get(at..end).unwrap_or_default()),
            _ => Err(self.unexpected("an atom")),
        }
    }

    /// Returns whether this is the atom `name`.
    pub fn is_atom(self, name: &str) -> bool {
        self.as_atom().is_ok_and(|atom| atom == name)
    }

    /// Returns the value of the atom `true` or `false`.
    pub fn as_bool(self) -> Result<bool, TermError> {
        match self.as_atom() {
            Ok("true") => Ok(true),
            Ok("false") => Ok(false),
            _ => Err(self.unexpected("true or false")),
        }
    }

    /// Returns the value of an integer of at most 127 bits and a sign.
    pub fn as_i128(self) -> Result<i128, TermError> {
        let (form, at, len) = self.form();
        match form {
            Form::Int => Ok(i128::from(len as i32)),
            Form::Big => {
                let (negative, digits) = self.big(at, len);
                let mut value: i128 = 0;
                for (position, &digit) in digits.iter().enumerate() {
                    // The 128th bit would be the sign.
                    if digit != 0 && (position > 15 || position == 15 && digit > 127) {
                        return Err(TermError::OutOfRange {
                            expected: "an integer of at most 127 bits",
                            offset: at as usize,
                        });
                    }
                    if position < 16 {
                        value |= i128::from(digit) << (8 * position);
                    }
                }
                Ok(if negative { -value } else { value })
            }
            _ => Err(self.unexpected("an integer")),
        }
    }

    /// Returns the value of an integer that fits in an `i64`.
    pub fn as_i64(self) -> Result<i64, TermError> {
        self.as_i128()?.try_into().map_err(|_| TermError::OutOfRange {
            expected: "an integer of at most 64 bits",
            offset: self.offset(),
        })
    }

    /// Returns the value of a non-negative integer that fits in a `u64`.
    pub fn as_u64(self) -> Result<u64, TermError> {
        self.as_i128()?.try_into().map_err(|_| TermError::OutOfRange {
            expected: "a non-negative integer of at most 64 bits",
            offset: self.offset(),
        })
    }

    /// Returns the value of a float, or the float nearest to an integer of at most 127 bits.
    pub fn as_f64(self) -> Result<f64, TermError> {
        let (form, at, _) = self.form();
        match form {
            Form::Float => Ok(f64::from_be_bytes(self.document.array(at))),
            Form::Int | Form::Big => Ok(self.as_i128()? as f64),
            _ => Err(self.unexpected("a number")),
        }
    }

    /// Returns the content of a binary.
    pub fn as_bytes(self) -> Result<&'a [u8], TermError> {
        let (form, at, len) = self.form();
        match form {
            Form::Binary => Ok(self.document.slice(at as usize, at as usize + len as usize)),
            _ => Err(self.unexpected("a binary")),
        }
    }

    /// Returns the content of a binary of UTF-8 text.
    pub fn as_str(self) -> Result<&'a str, TermError> {
        std::str::from_utf8(self.as_bytes()?)
            .map_err(|_| TermError::OutOfRange { expected: "a binary of UTF-8 text", offset: self.offset() })
    }

    /// Returns the text of a proper list of code points, Erlang's `string()`.
    pub fn to_text(self) -> Result<String, TermError> {
        self.list()?
            .map(|character| {
                u32::try_from(character.as_i128()?).ok().and_then(char::from_u32).ok_or(
                    TermError::OutOfRange { expected: "a Unicode code point", offset: character.offset() },
                )
            })
            .collect()
    }

    /// A pid.
    pub fn as_pid(self) -> Result<Pid, TermError> {
        let (Form::Pid, at, _) = self.form() else { return Err(self.unexpected("a pid")) };
        Ok(Pid {
            node: self.node_name(),
            id: u32::from_be_bytes(self.document.array(at)),
            serial: u32::from_be_bytes(self.document.array(at + 4)),
            creation: u32::from_be_bytes(self.document.array(at + 8)),
        })
    }

    /// A reference.
    pub fn as_reference(self) -> Result<Reference, TermError> {
        let (Form::Reference, at, words) = self.form() else { return Err(self.unexpected("a reference")) };
        Ok(Reference {
            node: self.node_name(),
            creation: u32::from_be_bytes(self.document.array(at)),
            words: (1..=words).map(|word| u32::from_be_bytes(self.document.array(at + 4 * word))).collect(),
        })
    }

    /// Returns the node name of a pid or reference, which is its first child.
    fn node_name(self) -> Arc<str> {
        let child = Term { place: Place::Node(self.first_child()), ..self };
        Arc::from(child.as_atom().unwrap_or_default())
    }

    /// Returns the elements of a tuple.
    pub fn tuple(self) -> Result<Elements<'a>, TermError> {
        match self.form() {
            (Form::Tuple, _, len) => Ok(self.children(len)),
            _ => Err(self.unexpected("a tuple")),
        }
    }

    /// Returns the elements of a tuple of size `N`.
    pub fn tuple_of<const N: usize>(self) -> Result<[Term<'a>; N], TermError> {
        let mut elements = self.tuple()?;
        let found = elements.len();
        let mut array = [self; N];
        if found != N {
            return Err(TermError::Arity { expected: N, found, offset: self.offset() });
        }
        for slot in &mut array {
            if let Some(element) = elements.next() {
                *slot = element;
            }
        }
        Ok(array)
    }

    /// Returns the elements of a proper list, whether it is encoded as terms, as a string of bytes, or as the empty list.
    pub fn list(self) -> Result<Elements<'a>, TermError> {
        match self.form() {
            (Form::Nil, ..) => Ok(self.children(0)),
            (Form::ByteList, at, len) => {
                Ok(Elements { document: self.document, next: Place::Byte(at), left: len })
            }
            (Form::List, _, len) => {
                let elements = self.children(len);
                let mut with_tail = elements.clone();
                with_tail.left = len + 1;
                match with_tail.nth(len as usize) {
                    Some(tail) if tail.form().0 == Form::Nil => Ok(elements),
                    _ => Err(self.unexpected("a proper list")),
                }
            }
            _ => Err(self.unexpected("a list")),
        }
    }

    /// Returns the pairs of a map.
    pub fn map(self) -> Result<Pairs<'a>, TermError> {
        match self.form() {
            (Form::Map, _, pairs) => Ok(Pairs { elements: self.children(2 * pairs) }),
            _ => Err(self.unexpected("a map")),
        }
    }

    /// Returns the value under an atom key of a map, if the key is present.
    pub fn get(self, key: &str) -> Result<Option<Term<'a>>, TermError> {
        Ok(self.map()?.find(|(found, _)| found.is_atom(key)).map(|(_, value)| value))
    }

    /// Returns the value under a mandatory atom key of a map.
    pub fn field(self, key: &'static str) -> Result<Term<'a>, TermError> {
        self.get(key)?.ok_or(TermError::MissingKey { key, offset: self.offset() })
    }

    /// Copies the term, to store it or send it back. Ports, funs, bit strings, improper lists and integers of more than 127 bits
    /// cannot be copied. The depth of recursion is limited by the decoder.
    pub fn to_value(self) -> Result<Value<'static>, TermError> {
        Ok(match self.kind() {
            Kind::Integer => Value::Integer(self.as_i128()?),
            Kind::Float => Value::Float(self.as_f64()?),
            Kind::Atom => Value::atom(self.as_atom()?.to_owned()),
            Kind::Binary => Value::binary(self.as_bytes()?.to_owned()),
            Kind::Tuple => Value::Tuple(self.tuple()?.map(Term::to_value).collect::<Result<_, _>>()?),
            Kind::List => Value::List(self.list()?.map(Term::to_value).collect::<Result<_, _>>()?),
            Kind::Map => {
                let pair = |(key, value): (Term<'_>, Term<'_>)| Ok((key.to_value()?, value.to_value()?));
                Value::Map(self.map()?.map(pair).collect::<Result<_, TermError>>()?)
            }
            Kind::Pid => Value::Pid(self.as_pid()?),
            Kind::Reference => Value::Reference(self.as_reference()?),
            Kind::BitString | Kind::Port | Kind::Export | Kind::Fun => {
                return Err(self.unexpected("a term that can be encoded"));
            }
        })
    }

    /// Returns the sign and the digits (bytes, least significant first) of a bignum, for display.
    pub(super) fn as_big(self) -> Option<(bool, &'a [u8])> {
        match self.form() {
            (Form::Big, at, len) => Some(self.big(at, len)),
            _ => None,
        }
    }

    /// Returns the elements and the tail of a list, proper or improper.
    pub(super) fn as_any_list(self) -> Option<(Elements<'a>, Option<Term<'a>>)> {
        match self.form() {
            (Form::List, _, len) => {
                let mut tail = self.children(len + 1);
                Some((self.children(len), tail.nth(len as usize)))
            }
            _ => self.list().ok().map(|elements| (elements, None)),
        }
    }

    fn big(self, at: u32, len: u32) -> (bool, &'a [u8]) {
        let at = at as usize;
        (self.document.byte(at as u32) == 1, self.document.slice(at + 1, at + 1 + len as usize))
    }

    fn first_child(self) -> u32 {
        match self.place {
            Place::Node(index) => index + 1,
            Place::Byte(at) => at,
        }
    }

    fn children(self, len: u32) -> Elements<'a> {
        Elements { document: self.document, next: Place::Node(self.first_child()), left: len }
    }
}

/// The elements of a tuple or list, in order.
#[derive(Clone)]
pub struct Elements<'a> {
    document: &'a Document,
    next: Place,
    left: u32,
}

impl<'a> Iterator for Elements<'a> {
    type Item = Term<'a>;

    fn next(&mut self) -> Option<Term<'a>> {
        self.left = self.left.checked_sub(1)?;
        let term = Term { document: self.document, place: self.next };
        self.next = match self.next {
            Place::Node(index) => Place::Node(self.document.node(index).end),
            Place::Byte(at) => Place::Byte(at + 1),
        };
        Some(term)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left as usize, Some(self.left as usize))
    }
}

impl ExactSizeIterator for Elements<'_> {}

/// The pairs of a map, in wire order.
#[derive(Clone)]
pub struct Pairs<'a> {
    elements: Elements<'a>,
}

impl<'a> Iterator for Pairs<'a> {
    type Item = (Term<'a>, Term<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        Some((self.elements.next()?, self.elements.next()?))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.elements.len() / 2, Some(self.elements.len() / 2))
    }
}

impl ExactSizeIterator for Pairs<'_> {}

// The decoder has checked all indices and ranges on the tape, so the default values below are never returned.
impl Document {
    fn node(&self, index: u32) -> Node {
        self.nodes.get(index as usize).copied().unwrap_or(Node {
            form: Form::Nil,
            at: 0,
            len: 0,
            end: index.saturating_add(1),
        })
    }

    fn slice(&self, start: usize, end: usize) -> &[u8] {
        self.bytes.get(start..end).unwrap_or_default()
    }

    fn byte(&self, at: u32) -> u8 {
        self.bytes.get(at as usize).copied().unwrap_or_default()
    }

    fn array<const N: usize>(&self, at: u32) -> [u8; N] {
        let at = at as usize;
        self.bytes.get(at..at + N).and_then(|slice| slice.try_into().ok()).unwrap_or([0; N])
    }
}
