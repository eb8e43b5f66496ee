//! HTTP/1.1 requests, and an incremental reader of replies (RFC 9112).
//!
//! Heads are parsed by httparse. Bodies are counted and discarded, unless a check needs them.

use std::borrow::Cow;
use std::fmt;
use std::io::Write;
use std::mem::MaybeUninit;

use super::{Answer, CHECKED_BYTES, Checks, missing_part};
use crate::tally::ErrorKind;
use crate::template::{Template, Values};

/// Maximum size of a head; browsers and nginx allow between 8 and 256 kB.
pub(super) const MAX_HEAD_BYTES: usize = 64 * 1024;
/// Maximum number of fields of a head.
pub(super) const MAX_FIELDS: usize = 128;
/// Maximum length of a chunk-size line, extensions included, and of a trailer line.
const MAX_LINE_BYTES: usize = 16 * 1024;

/// Returns the head of a request, without the empty line at its end.
pub(super) fn head(method: &str, path: &Template, fields: &[(String, Template)]) -> Template {
    let mut head = Template::literal(format!("{method} "));
    head.push(path);
    head.push_literal(b" HTTP/1.1\r\n");
    for (name, value) in fields {
        head.push_literal(format!("{name}: ").as_bytes());
        head.push(value);
        head.push_literal(b"\r\n");
    }
    head
}

/// An HTTP/1.1 request.
#[derive(Debug, Clone)]
pub struct HttpRequest {
    head: Template,
    body: Option<Template>,
    is_head: bool,
    /// The whole request, if it has no placeholders.
    fixed: Option<Box<[u8]>>,
}

impl HttpRequest {
    /// Creates a request with this method, path (with query) and header fields (name and value, including `Host`). Adds `Content-Length` if
    /// there is a body, or if the method usually has one.
    pub fn new(method: &str, path: &Template, fields: &[(String, Template)], body: Option<Template>) -> Self {
        let head = head(method, path, fields);
        let body = body.or_else(|| matches!(method, "POST" | "PUT" | "PATCH").then(Template::default));
        let fixed = match (head.fixed(), &body) {
            (Some(head), None) => Some([head, b"\r\n"].concat()),
            (Some(head), Some(body)) => body.fixed().map(|body| {
                [head, format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes(), body].concat()
            }),
            (None, _) => None,
        };
        Self { head, body, is_head: method == "HEAD", fixed: fixed.map(Vec::into_boxed_slice) }
    }

    /// Returns the whole request if it has no placeholders.
    pub fn fixed(&self) -> Option<&[u8]> {
        self.fixed.as_deref()
    }

    /// Whether the method is HEAD.
    pub fn is_head(&self) -> bool {
        self.is_head
    }

    /// Appends the request to `out`; `scratch` is overwritten.
    pub fn render(&self, values: &mut Values<'_>, scratch: &mut Vec<u8>, out: &mut Vec<u8>) {
        self.head.render(values, out);
        if let Some(body) = &self.body {
            scratch.clear();
            body.render(values, scratch);
            // Writing to a vector does not fail.
            let _ = write!(out, "Content-Length: {}\r\n\r\n", scratch.len());
            out.extend_from_slice(scratch);
        } else {
            out.extend_from_slice(b"\r\n");
        }
    }
}

/// A violation of HTTP by the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpFault {
    /// The head is malformed.
    Head,
    /// The head is longer than 64 kB, or has more than 128 fields.
    LongHead,
    /// `Content-Length` is not a number, or has two different values.
    Length,
    /// The last coding of `Transfer-Encoding` is not `chunked`.
    Coding,
    /// A chunk size is malformed, or a chunk does not end after its size.
    Chunk,
    /// Bytes that belong to no request.
    Unasked,
    /// Status 101, although no upgrade was requested.
    Switch,
    /// The connection ended before the reply.
    Unanswered,
    /// The connection ended within the reply.
    Cut,
}

impl fmt::Display for HttpFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Head => "not an HTTP/1 reply",
            Self::LongHead => "head longer than 64 kB or 128 fields",
            Self::Length => "invalid Content-Length",
            Self::Coding => "unknown Transfer-Encoding",
            Self::Chunk => "malformed chunk",
            Self::Unasked => "bytes after the reply",
            Self::Switch => "unrequested 101 Switching Protocols",
            Self::Unanswered => "closed before the answer",
            Self::Cut => "closed within the reply",
        })
    }
}

/// The parts of a reply that the reader keeps for checks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Wanted {
    /// Whether the request was HEAD: the reply then has no body, whatever its head says.
    is_head: bool,
    /// Whether to keep the head.
    head: bool,
    /// Number of bytes to keep of the body.
    body_bytes: usize,
}

/// A complete reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reply {
    /// Status code.
    pub status: u16,
    /// Whether the connection can be used again.
    pub keeps_alive: bool,
    /// Size of the body in bytes, without chunk framing.
    pub body_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// No request is pending.
    Idle,
    Head,
    /// In a body with this number of bytes left.
    Length(u64),
    ChunkSize,
    /// In a chunk with this number of bytes left.
    ChunkData(u64),
    /// At the line end that follows a chunk.
    ChunkEnd,
    Trailer,
    UntilClose,
}

/// Reads the replies of one connection.
#[derive(Debug)]
pub struct Reader {
    state: State,
    wanted: Wanted,
    reply: Reply,
    kept: Option<Box<Kept>>,
}

/// The kept parts of a reply.
#[derive(Debug, Default)]
struct Kept {
    /// The head, with the empty line.
    head: Vec<u8>,
    /// The beginning of the body.
    body: Vec<u8>,
}

impl Default for Reader {
    fn default() -> Self {
        let reply = Reply { status: 0, keeps_alive: true, body_bytes: 0 };
        Self { state: State::Idle, wanted: Wanted::default(), reply, kept: None }
    }
}

impl Reader {
    /// Prepares for the reply to a request.
    pub fn expect(&mut self, is_head: bool, checks: &Checks) {
        let body_bytes = if checks.body.is_empty() { 0 } else { CHECKED_BYTES };
        self.keep(Wanted { is_head, head: !checks.fields.is_empty(), body_bytes });
    }

    fn keep(&mut self, wanted: Wanted) {
        self.state = State::Head;
        self.wanted = wanted;
        self.reply = Reply { status: 0, keeps_alive: true, body_bytes: 0 };
        if wanted.head || wanted.body_bytes > 0 {
            let kept = self.kept.get_or_insert_default();
            kept.head.clear();
            kept.body.clear();
        }
    }

    /// Applies the request's checks to its reply.
    pub fn answer(&self, reply: Reply, checks: &Checks) -> Answer {
        let wrong = if allows(checks, reply.status) {
            self.failed_check(checks).map(|text| (ErrorKind::Check, Cow::Owned(text)))
        } else {
            Some((ErrorKind::Status, Cow::Owned(format!("status {}", reply.status))))
        };
        Answer { bytes: reply.body_bytes, keeps_alive: reply.keeps_alive, wrong }
    }

    /// Returns the first failed check of fields or body.
    fn failed_check(&self, checks: &Checks) -> Option<String> {
        if checks.fields.is_empty() && checks.body.is_empty() {
            return None;
        }
        let kept = self.kept.as_deref()?;
        let head = String::from_utf8_lossy(&kept.head);
        for (name, part) in &checks.fields {
            let values = head.lines().skip(1).filter_map(|line| line.split_once(':'));
            let mut values = values.filter(|(field, _)| field.eq_ignore_ascii_case(name));
            if !values.any(|(_, value)| value.contains(part.as_str())) {
                let what = if part.is_empty() {
                    "is not in the head".to_owned()
                } else {
                    format!("does not contain {part:?}")
                };
                return Some(format!("{name} {what}"));
            }
        }
        missing_part(checks, &kept.body).map(|part| format!("the body does not contain {part:?}"))
    }

    /// Reads until the end of a reply. Returns the number of bytes used, which may be 0. The caller passes the unused bytes again, followed
    /// by more.
    pub fn read(&mut self, input: &[u8]) -> Result<(usize, Option<Reply>), HttpFault> {
        let mut used = 0;
        loop {
            let rest = &input[used..];
            if rest.is_empty() {
                return Ok((used, None));
            }
            let took = match self.state {
                State::Idle => return Err(HttpFault::Unasked),
                State::Head => match self.head(rest)? {
                    0 => return Ok((used, None)),
                    took => took,
                },
                State::Length(missing) | State::ChunkData(missing) => {
                    let took = usize::try_from(missing).unwrap_or(usize::MAX).min(rest.len());
                    self.body(&rest[..took]);
                    let missing = missing - took as u64;
                    self.state = match self.state {
                        State::Length(_) if missing == 0 => return Ok((used + took, Some(self.done()))),
                        State::Length(_) => State::Length(missing),
                        _ if missing == 0 => State::ChunkEnd,
                        _ => State::ChunkData(missing),
                    };
                    took
                }
                State::UntilClose => {
                    self.body(rest);
                    rest.len()
                }
                State::ChunkSize | State::ChunkEnd | State::Trailer => {
                    let Some((line, took)) = line(rest)? else { return Ok((used, None)) };
                    self.state = match self.state {
                        State::ChunkSize => match chunk_size(line)? {
                            0 => State::Trailer,
                            size => State::ChunkData(size),
                        },
                        State::ChunkEnd if line.is_empty() => State::ChunkSize,
                        State::ChunkEnd => return Err(HttpFault::Chunk),
                        _ if line.is_empty() => return Ok((used + took, Some(self.done()))),
                        state => state,
                    };
                    took
                }
            };
            used += took;
            // A reply without a body ends with its head.
            if self.state == State::Length(0) {
                return Ok((used, Some(self.done())));
            }
        }
    }

    /// Handles the end of the connection; `unread` contains the unused bytes. Returns the reply if its body ends with the connection.
    pub fn end(&mut self, unread: &[u8]) -> Result<Option<Reply>, HttpFault> {
        match self.state {
            State::Idle => Ok(None),
            State::UntilClose if unread.is_empty() => {
                self.reply.keeps_alive = false;
                Ok(Some(self.done()))
            }
            State::Head if unread.is_empty() => Err(HttpFault::Unanswered),
            _ => Err(HttpFault::Cut),
        }
    }

    fn done(&mut self) -> Reply {
        self.state = State::Idle;
        self.reply
    }

    fn body(&mut self, bytes: &[u8]) {
        self.reply.body_bytes += bytes.len() as u64;
        if self.wanted.body_bytes > 0
            && let Some(kept) = &mut self.kept
        {
            let room = self.wanted.body_bytes.saturating_sub(kept.body.len());
            kept.body.extend_from_slice(&bytes[..room.min(bytes.len())]);
        }
    }

    /// Reads a head. Returns its length, or 0 if it is incomplete.
    fn head(&mut self, input: &[u8]) -> Result<usize, HttpFault> {
        // Most replies have few fields, and initializing 128 of them would cost more than parsing.
        let mut fields = [const { MaybeUninit::uninit() }; MAX_FIELDS];
        let mut response = httparse::Response::new(&mut []);
        let parser = httparse::ParserConfig::default();
        let length = match parser.parse_response_with_uninit_headers(&mut response, input, &mut fields) {
            Ok(httparse::Status::Complete(length)) if length <= MAX_HEAD_BYTES => length,
            Ok(httparse::Status::Partial) if input.len() < MAX_HEAD_BYTES => return Ok(0),
            Ok(_) | Err(httparse::Error::TooManyHeaders) => return Err(HttpFault::LongHead),
            Err(_) => return Err(HttpFault::Head),
        };
        let status = response.code.ok_or(HttpFault::Head)?;
        if status == 101 {
            return Err(HttpFault::Switch);
        }
        if (100..200).contains(&status) {
            // This is an interim response; the final one follows.
            return Ok(length);
        }
        self.reply.status = status;
        self.reply.keeps_alive = response.version == Some(1);
        let framing = framing(response.headers, &mut self.reply.keeps_alive)?;
        self.state = if self.wanted.is_head || status == 204 || status == 304 {
            State::Length(0)
        } else {
            match framing {
                Framing::Length(bytes) => State::Length(bytes),
                Framing::Chunked => State::ChunkSize,
                Framing::UntilClose => State::UntilClose,
            }
        };
        if self.wanted.head
            && let Some(kept) = &mut self.kept
        {
            kept.head.extend_from_slice(&input[..length]);
        }
        Ok(length)
    }
}

/// Whether the checks accept the status.
fn allows(checks: &Checks, status: u16) -> bool {
    match checks.statuses.as_slice() {
        [] => (200..400).contains(&status),
        ranges => ranges.iter().any(|(low, high)| (*low..=*high).contains(&status)),
    }
}

enum Framing {
    Length(u64),
    Chunked,
    UntilClose,
}

/// Determines the framing of the body (RFC 9112, 6.3): `Transfer-Encoding` overrides `Content-Length`.
fn framing(fields: &[httparse::Header<'_>], keeps_alive: &mut bool) -> Result<Framing, HttpFault> {
    let mut length = None;
    let mut is_chunked = false;
    for field in fields {
        if field.name.eq_ignore_ascii_case("content-length") {
            for part in field.value.split(|byte| *byte == b',') {
                let bytes = number(part.trim_ascii(), 10).ok_or(HttpFault::Length)?;
                if length.replace(bytes).is_some_and(|before| before != bytes) {
                    return Err(HttpFault::Length);
                }
            }
        } else if field.name.eq_ignore_ascii_case("transfer-encoding") {
            let last = field.value.rsplit(|byte| *byte == b',').next().unwrap_or_default().trim_ascii();
            if !last.eq_ignore_ascii_case(b"chunked") {
                return Err(HttpFault::Coding);
            }
            is_chunked = true;
        } else if field.name.eq_ignore_ascii_case("connection") {
            for option in field.value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
                if option.eq_ignore_ascii_case(b"close") {
                    *keeps_alive = false;
                } else if option.eq_ignore_ascii_case(b"keep-alive") {
                    *keeps_alive = true;
                }
            }
        }
    }
    Ok(match length {
        _ if is_chunked => Framing::Chunked,
        Some(bytes) => Framing::Length(bytes),
        None => Framing::UntilClose,
    })
}

/// Returns the first line without its line end, and its length including the line end; `None` if it is incomplete.
fn line(input: &[u8]) -> Result<Option<(&[u8], usize)>, HttpFault> {
    match input.iter().take(MAX_LINE_BYTES).position(|byte| *byte == b'\n') {
        Some(at) => Ok(Some((input[..at].strip_suffix(b"\r").unwrap_or(&input[..at]), at + 1))),
        None if input.len() >= MAX_LINE_BYTES => Err(HttpFault::Chunk),
        None => Ok(None),
    }
}

fn chunk_size(line: &[u8]) -> Result<u64, HttpFault> {
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    number(digits, 16).ok_or(HttpFault::Chunk)
}

/// Parses a number that consists of digits only: no sign, no white space.
fn number(digits: &[u8], radix: u32) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |sum, digit| {
        let digit = char::from(*digit).to_digit(radix)?;
        sum.checked_mul(u64::from(radix))?.checked_add(u64::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Feeds `input` to a reader in pieces that end at `cuts`, as a socket would, then closes the connection.
    fn feed(input: &[u8], cuts: &[usize], wanted: Wanted) -> (Vec<Result<Reply, HttpFault>>, Vec<u8>) {
        let mut reader = Reader::default();
        reader.keep(wanted);
        let mut replies = Vec::new();
        let mut held: Vec<u8> = Vec::new();
        let mut from = 0;
        for cut in cuts.iter().copied().chain([input.len()]) {
            let cut = cut.clamp(from, input.len());
            held.extend_from_slice(&input[from..cut]);
            from = cut;
            loop {
                match reader.read(&held) {
                    Ok((used, reply)) => {
                        held.drain(..used);
                        let Some(reply) = reply else { break };
                        replies.push(Ok(reply));
                        if held.is_empty() && from == input.len() {
                            break;
                        }
                        reader.keep(wanted);
                    }
                    Err(fault) => {
                        replies.push(Err(fault));
                        return (replies, body_of(&reader));
                    }
                }
            }
        }
        match reader.end(&held) {
            Ok(Some(reply)) => replies.push(Ok(reply)),
            Ok(None) => {}
            Err(fault) => replies.push(Err(fault)),
        }
        (replies, body_of(&reader))
    }

    fn body_of(reader: &Reader) -> Vec<u8> {
        reader.kept.as_ref().map(|kept| kept.body.clone()).unwrap_or_default()
    }

    const BODY: Wanted = Wanted { is_head: false, head: false, body_bytes: 100 };

    fn check(input: &str, status: u16, keeps_alive: bool, expected_body: &str) {
        let (replies, body) = feed(input.as_bytes(), &[], BODY);
        let body_bytes = expected_body.len() as u64;
        assert_eq!(replies, [Ok(Reply { status, keeps_alive, body_bytes })], "{input:?}");
        assert_eq!(String::from_utf8_lossy(&body), expected_body);
    }

    fn faulty(input: &str, fault: HttpFault) {
        let (replies, _) = feed(input.as_bytes(), &[], BODY);
        assert_eq!(replies, [Err(fault)], "{input:.200}");
    }

    #[test]
    fn bodies_end_where_the_head_says() {
        check("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, true, "hello");
        check("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", 200, true, "");
        check("HTTP/1.1 200 OK\r\nContent-Length: 3, 3\r\n\r\nabc", 200, true, "abc");
        check(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;x=y\r\n world\r\n0\r\n\r\n",
            200,
            true,
            "hello world",
        );
        check(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\nContent-Length: 9\r\n\r\n1\r\na\r\n0\r\nT: x\r\n\r\n",
            200,
            true,
            "a",
        );
        check("HTTP/1.1 200 OK\r\n\r\nuntil the end", 200, false, "until the end");
        check("HTTP/1.1 204 No Content\r\n\r\n", 204, true, "");
        check("HTTP/1.1 304 Not Modified\r\nContent-Length: 90\r\n\r\n", 304, true, "");
        check("HTTP/1.1 200\r\nContent-Length: 1\r\n\r\nx", 200, true, "x");
    }

    #[test]
    fn interim_responses_are_skipped() {
        check(
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
            200,
            true,
            "ok",
        );
    }

    #[test]
    fn a_reply_to_head_has_no_body() {
        let wanted = Wanted { is_head: true, ..BODY };
        let (replies, _) = feed(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n", &[], wanted);
        assert_eq!(replies, [Ok(Reply { status: 200, keeps_alive: true, body_bytes: 0 })]);
    }

    #[test]
    fn the_connection_header_determines_keep_alive() {
        check("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx", 200, false, "x");
        check("HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx", 200, false, "x");
        check("HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 1\r\n\r\nx", 200, true, "x");
    }

    #[test]
    fn violations_of_http_are_detected() {
        faulty("220 smtp ready\r\n", HttpFault::Head);
        faulty("HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n", HttpFault::Length);
        faulty("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", HttpFault::Length);
        faulty("HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n", HttpFault::Length);
        faulty("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", HttpFault::Coding);
        faulty("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", HttpFault::Chunk);
        faulty("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n", HttpFault::Chunk);
        faulty(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
            HttpFault::Chunk,
        );
        faulty("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel", HttpFault::Cut);
        faulty("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n", HttpFault::Cut);
        faulty("HTTP/1.1 101 Switching Protocols\r\n\r\n", HttpFault::Switch);
        faulty(&format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "y".repeat(70_000)), HttpFault::LongHead);
        faulty(&format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: y\r\n".repeat(200)), HttpFault::LongHead);
        faulty(
            &format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;{}", "x".repeat(20_000)),
            HttpFault::Chunk,
        );
    }

    #[test]
    fn bytes_without_a_request_are_a_fault() {
        let mut reader = Reader::default();
        assert_eq!(reader.read(b"HTTP/1.1 408 Request Timeout\r\n\r\n"), Err(HttpFault::Unasked));
    }

    #[test]
    fn forty_fields_are_accepted() {
        let fields: String = (0..40).map(|n| format!("X-{n}: y\r\n")).collect();
        check(&format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: 1\r\n\r\nx"), 200, true, "x");
    }

    proptest! {
        #[test]
        fn the_result_does_not_depend_on_how_the_input_is_split(cuts in proptest::collection::vec(0_usize..250, 0..12)) {
            let input = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\nA: b\r\n\r\nHTTP/1.1 404 Not Found\r\nContent-Length: 3\r\n\r\nno!HTTP/1.1 200 OK\r\n\r\nrest";
            let mut cuts = cuts;
            cuts.sort_unstable();
            prop_assert_eq!(feed(input, &cuts, BODY), feed(input, &[], BODY));
        }

        #[test]
        fn arbitrary_bytes_neither_panic_nor_loop_forever(input in proptest::collection::vec(any::<u8>(), 0..400), cuts in proptest::collection::vec(0_usize..400, 0..5)) {
            let mut whole = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
            whole.extend_from_slice(&input);
            let mut cuts = cuts;
            cuts.sort_unstable();
            feed(&whole, &cuts, BODY);
            feed(&input, &cuts, BODY);
        }
    }
}
