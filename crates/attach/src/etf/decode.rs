//! The decoder: makes one pass over untrusted bytes and builds the tape that [`Term`] reads.

use super::{Term, TermError, VERSION, tag};

/// Limits of the decoder. Input that exceeds them is rejected before significant memory is allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the encoded term.
    pub bytes: usize,
    /// Number of subterms. Each atom, number, container and string of bytes counts as one, and takes 16 bytes of memory.
    pub terms: usize,
    /// Maximum nesting depth.
    pub depth: usize,
}

impl Default for Limits {
    /// 64 MiB; 4 Mi terms, which take 64 MiB of memory (the allocator tables of 64 schedulers have 50,000 terms); 256 levels (the
    /// deepest term from the agent or a BIF has about 10).
    fn default() -> Self {
        Limits { bytes: 64 << 20, terms: 4 << 20, depth: 256 }
    }
}

/// How a term is represented on the tape. It determines the meaning of [`Node::at`] and [`Node::len`]:
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// `at`: the tag; `len`: the value, as an `i32`.
    Int,
    /// `at`: the sign byte, followed by the digits; `len`: number of digits (bytes, least significant first).
    Big,
    /// `at`: the 8 bytes of the float.
    Float,
    /// `at`, `len`: the UTF-8 text within the document's bytes.
    Atom,
    /// `at`, `len`: the text within [`Document::stored`] (a Latin-1 atom converted to UTF-8).
    StoredAtom,
    /// `len`: number of elements, whose subtrees follow.
    Tuple,
    /// The empty list.
    Nil,
    /// `at`, `len`: the elements, one byte each.
    ByteList,
    /// `len`: number of elements. Their subtrees follow, and then the subtree of the tail.
    List,
    /// `len`: number of pairs. The subtrees of keys and values follow, alternating.
    Map,
    /// `at`, `len`: the content.
    Binary,
    /// `at`, `len`: the content, whose last byte is partial.
    BitString,
    /// `at`: id, serial, creation, 4 bytes each; the node's atom follows.
    Pid,
    /// `at`: the bytes after the node's atom. The node's atom follows.
    Port,
    /// `at`: creation and `len` words of 4 bytes; the node's atom follows.
    Reference,
    /// Module, function and arity follow.
    Export,
    /// Opaque.
    Fun,
}

/// One term on the tape.
#[derive(Debug, Clone, Copy)]
pub(super) struct Node {
    pub form: Form,
    pub at: u32,
    pub len: u32,
    /// Index of the first node after the subtree of this one.
    pub end: u32,
}

/// A decoded term together with its bytes.
#[derive(Debug)]
pub struct Document {
    pub(super) bytes: Vec<u8>,
    pub(super) nodes: Vec<Node>,
    /// Text of Latin-1 atoms, as UTF-8.
    pub(super) stored: String,
    root: u32,
}

impl Document {
    /// Decodes a term that fills `bytes` from the version byte at `start` to the end.
    pub fn decode(bytes: Vec<u8>, start: usize, limits: Limits) -> Result<Document, TermError> {
        let (document, end) = Document::decode_prefix(bytes, start, limits)?;
        if end < document.bytes.len() {
            return Err(TermError::Malformed { what: "bytes after the end of the term", offset: end });
        }
        Ok(document)
    }

    /// Decodes the term that begins with the version byte at `start`. Other bytes may follow it. Also returns the offset of the
    /// first byte after the term.
    pub fn decode_prefix(
        bytes: Vec<u8>,
        start: usize,
        limits: Limits,
    ) -> Result<(Document, usize), TermError> {
        // Offsets and counts have 32 bits.
        let limit = limits.bytes.min(u32::MAX as usize / 2);
        if bytes.len() > limit {
            return Err(TermError::TooManyBytes { bytes: bytes.len(), limit });
        }
        let mut decoder =
            Decoder { bytes: &bytes, at: start, limits, nodes: Vec::new(), stored: String::new() };
        decoder.document()?;
        let Decoder { at: end, nodes, stored, .. } = decoder;
        Ok((Document { bytes, nodes, stored, root: 0 }, end))
    }

    /// The outermost term.
    pub fn root(&self) -> Term<'_> {
        Term::node(self, self.root)
    }

    /// Memory that the document takes, in bytes: the input, and the tape, which can be sixteen times as large.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.nodes.capacity() * size_of::<Node>() + self.stored.capacity()
    }

    /// Makes the subterm that `pick` returns the root of the document. The rest of the document stays in memory.
    pub(crate) fn narrow(
        mut self,
        pick: impl for<'a> FnOnce(Term<'a>) -> Result<Term<'a>, TermError>,
    ) -> Result<Document, TermError> {
        let term = pick(self.root())?;
        let offset = term.offset();
        let index = term.index().ok_or(TermError::Malformed { what: "a byte of a string", offset })?;
        self.root = index;
        Ok(self)
    }

    /// Returns the bytes, so that the next term in them can be decoded.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// A container whose elements are being decoded.
struct Open {
    node: usize,
    left: u32,
}

struct Decoder<'a> {
    bytes: &'a [u8],
    at: usize,
    limits: Limits,
    nodes: Vec<Node>,
    stored: String,
}

impl<'a> Decoder<'a> {
    fn document(&mut self) -> Result<(), TermError> {
        let offset = self.at;
        if self.byte()? != VERSION {
            return Err(TermError::Malformed { what: "no version byte 131 before the term", offset });
        }
        let mut open: Vec<Open> = Vec::new();
        loop {
            let offset = self.at;
            let node = self.nodes.len();
            let left = self.term()?;
            if left > 0 {
                if open.len() >= self.limits.depth {
                    return Err(TermError::TooDeep { limit: self.limits.depth, offset });
                }
                open.push(Open { node, left });
                continue;
            }
            // The term is complete, and with it perhaps the containers around it.
            loop {
                let end = self.nodes.len() as u32;
                let Some(container) = open.last_mut() else { return Ok(()) };
                container.left -= 1;
                if container.left > 0 {
                    break;
                }
                if let Some(node) = self.nodes.get_mut(container.node) {
                    node.end = end;
                }
                open.pop();
            }
        }
    }

    /// Decodes one term, or the head of a container. Returns the number of elements that follow.
    fn term(&mut self) -> Result<u32, TermError> {
        let offset = self.at;
        match self.byte()? {
            tag::SMALL_INTEGER => {
                let value = self.byte()?;
                self.push(Form::Int, offset, u32::from(value))?;
            }
            tag::INTEGER => {
                let value = self.u32()?;
                self.push(Form::Int, offset, value)?;
            }
            tag::SMALL_BIG => {
                let digits = u32::from(self.byte()?);
                self.big(digits)?;
            }
            tag::LARGE_BIG => {
                let digits = self.u32()?;
                self.big(digits)?;
            }
            tag::NEW_FLOAT => {
                let at = self.at;
                if !f64::from_be_bytes(self.array()?).is_finite() {
                    return Err(TermError::Malformed { what: "a float that is not finite", offset: at });
                }
                self.push(Form::Float, at, 0)?;
            }
            tag::ATOM_UTF8 | tag::SMALL_ATOM_UTF8 | tag::ATOM_LATIN1 | tag::SMALL_ATOM_LATIN1 => {
                self.at = offset;
                self.atom()?;
            }
            tag::SMALL_TUPLE => {
                let arity = u32::from(self.byte()?);
                return self.container(Form::Tuple, offset, arity, u64::from(arity));
            }
            tag::LARGE_TUPLE => {
                let arity = self.u32()?;
                return self.container(Form::Tuple, offset, arity, u64::from(arity));
            }
            tag::NIL => self.push(Form::Nil, offset, 0)?,
            tag::STRING => {
                let len = u32::from(self.u16()?);
                self.content(Form::ByteList, len)?;
            }
            tag::LIST => {
                let len = self.u32()?;
                return self.container(Form::List, offset, len, u64::from(len) + 1);
            }
            tag::MAP => {
                let pairs = self.u32()?;
                return self.container(Form::Map, offset, pairs, u64::from(pairs) * 2);
            }
            tag::BINARY => {
                let len = self.u32()?;
                self.content(Form::Binary, len)?;
            }
            tag::BIT_BINARY => {
                let len = self.u32()?;
                let bits = self.byte()?;
                if len == 0 || !(1..=8).contains(&bits) {
                    return Err(TermError::Malformed { what: "a bit string's length", offset });
                }
                self.content(if bits == 8 { Form::Binary } else { Form::BitString }, len)?;
            }
            tag::NEW_PID => self.identifier(Form::Pid, 12, 0)?,
            tag::NEW_PORT => self.identifier(Form::Port, 8, 0)?,
            tag::V4_PORT => self.identifier(Form::Port, 12, 0)?,
            tag::NEWER_REFERENCE => {
                let words = self.u16()?;
                // "not larger than 5", External Term Format, NEWER_REFERENCE_EXT.
                if words > 5 {
                    return Err(TermError::Malformed { what: "a reference of more than 5 words", offset });
                }
                self.identifier(Form::Reference, 4 + 4 * usize::from(words), u32::from(words))?;
            }
            tag::EXPORT => {
                let node = self.nodes.len();
                self.push(Form::Export, offset, 0)?;
                self.atom()?;
                self.atom()?;
                let at = self.at;
                if self.byte()? != tag::SMALL_INTEGER {
                    return Err(TermError::Malformed { what: "an exported fun's arity", offset: at });
                }
                let arity = self.byte()?;
                self.push(Form::Int, at, u32::from(arity))?;
                self.close(node);
            }
            tag::NEW_FUN => {
                let at = self.at;
                let size = self.u32()?;
                // The size includes its own 4 bytes.
                let Some(rest) = size.checked_sub(4) else {
                    return Err(TermError::Malformed { what: "a fun's size", offset: at });
                };
                self.take(rest as usize)?;
                self.push(Form::Fun, offset, 0)?;
            }
            tag => return Err(TermError::UnknownTag { tag, offset }),
        }
        Ok(0)
    }

    fn container(&mut self, form: Form, offset: usize, len: u32, terms: u64) -> Result<u32, TermError> {
        // Every term has at least one byte, so the count cannot exceed the bytes left.
        if terms > (self.bytes.len() - self.at) as u64 {
            return Err(TermError::Truncated { offset: self.bytes.len() });
        }
        self.push(form, offset, len)?;
        Ok(terms as u32)
    }

    fn content(&mut self, form: Form, len: u32) -> Result<(), TermError> {
        let at = self.at;
        self.take(len as usize)?;
        self.push(form, at, len)
    }

    fn big(&mut self, digits: u32) -> Result<(), TermError> {
        let at = self.at;
        if self.byte()? > 1 {
            return Err(TermError::Malformed { what: "a bignum's sign", offset: at });
        }
        self.take(digits as usize)?;
        self.push(Form::Big, at, digits)
    }

    /// Decodes a pid, port or reference: the node's atom, then `len` bytes.
    fn identifier(&mut self, form: Form, len: usize, words: u32) -> Result<(), TermError> {
        let node = self.nodes.len();
        self.push(form, 0, words)?;
        self.atom()?;
        let at = self.at;
        self.take(len)?;
        if let Some(node) = self.nodes.get_mut(node) {
            node.at = at as u32;
        }
        self.close(node);
        Ok(())
    }

    fn atom(&mut self) -> Result<(), TermError> {
        let offset = self.at;
        let (len, latin1) = match self.byte()? {
            tag::SMALL_ATOM_UTF8 => (usize::from(self.byte()?), false),
            tag::ATOM_UTF8 => (usize::from(self.u16()?), false),
            tag::SMALL_ATOM_LATIN1 => (usize::from(self.byte()?), true),
            tag::ATOM_LATIN1 => (usize::from(self.u16()?), true),
            _ => return Err(TermError::Malformed { what: "no atom where one is required", offset }),
        };
        let at = self.at;
        let text = self.take(len)?;
        let ascii = text.is_ascii();
        let characters = if latin1 || ascii {
            len
        } else {
            let Ok(text) = std::str::from_utf8(text) else {
                return Err(TermError::Malformed { what: "an atom that is not UTF-8", offset: at });
            };
            text.chars().count()
        };
        // MAX_ATOM_CHARACTERS, erts/emulator/beam/atom.h.
        if characters > 255 {
            return Err(TermError::Malformed { what: "an atom of more than 255 characters", offset });
        }
        if latin1 && !ascii {
            let stored_at = self.stored.len();
            self.stored.extend(text.iter().map(|&byte| char::from(byte)));
            let stored_len = self.stored.len() - stored_at;
            return self.push(Form::StoredAtom, stored_at, stored_len as u32);
        }
        self.push(Form::Atom, at, len as u32)
    }

    fn push(&mut self, form: Form, at: usize, len: u32) -> Result<(), TermError> {
        if self.nodes.len() >= self.limits.terms.min(u32::MAX as usize / 2) {
            return Err(TermError::TooManyTerms { limit: self.limits.terms });
        }
        let end = self.nodes.len() as u32 + 1;
        self.nodes.push(Node { form, at: at as u32, len, end });
        Ok(())
    }

    /// Marks the last node so far as the end of the subtree of `node`.
    fn close(&mut self, node: usize) {
        let end = self.nodes.len() as u32;
        if let Some(node) = self.nodes.get_mut(node) {
            node.end = end;
        }
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], TermError> {
        let bytes: &'a [u8] = self.bytes;
        let rest = bytes.get(self.at..).unwrap_or_default();
        let Some(taken) = rest.get(..len) else {
            return Err(TermError::Truncated { offset: self.bytes.len() });
        };
        self.at += len;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], TermError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    fn byte(&mut self) -> Result<u8, TermError> {
        Ok(u8::from_be_bytes(self.array()?))
    }

    fn u16(&mut self) -> Result<u16, TermError> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    fn u32(&mut self) -> Result<u32, TermError> {
        Ok(u32::from_be_bytes(self.array()?))
    }
}
