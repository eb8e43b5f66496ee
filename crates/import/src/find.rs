//! Finds the output of every tool except lcnt in one pass over a text. It recognizes tables by their headings, terms by their first
//! element, and lines by their labels. The parts found are replaced by spaces, so that all other words keep their positions in the search
//! for lcnt's tables.

use crate::answers::{self, Call};
use crate::banner::{self, Banner};
use crate::part::{Part, Tool};
use crate::statement::{MAX_CALL_BYTES, StatementPrefix, call, is_in_arithmetic, is_transformed_by_pipe};
use crate::term::{self, Fault, TermError};
use crate::text::{Tokens, is_space, skip_spaces, word};
use crate::{instrument, msacc, rabbitmq};

/// Maximum number of parts; the output of `rabbitmq-diagnostics status` has some sixty.
const MAX_PARTS: usize = 2_000;

/// Maximum number of bytes that are parsed without a result, per byte of the text. A term of an unknown tool is parsed again at each
/// bracket in it. So each of its bytes is parsed at most once per level of nesting, plus once for the attempt that is too deep. Only
/// crafted text needs more.
const MAX_WASTED_PER_BYTE: usize = term::MAX_DEPTH as usize + 2;

/// Names that may follow a call in its statement without changing its result. Examples: `…, limit: :infinity); :ok`, because Elixir
/// truncates terms by default; `… |> IO.inspect(limit: :infinity)`; and `…), halt().`
const TRAILING_NAMES: [&str; 8] = ["IO", "inspect", "limit", "infinity", "ok", "pretty", "true", "halt"];

/// Other characters that may follow a call in its statement without changing its result.
const TRAILING_CHARS: [char; 17] = [
    '(', ')', '[', ']', '{', '}', '"', '\'', '`', '\u{201c}', '\u{201d}', '\u{2019}', '\\', ',', ';', '.',
    ':',
];

/// A term of an unknown tool.
const TERM: Tool = "a term";

/// The tool under which contradictory banners are reported.
const BANNER: Tool = "a banner";

const OTHER_BANNER: &str = "this banner differs from an earlier one, so facts that differ are left out: import the output of one VM at a time";

const CHANGED: &str = "the rest of the statement transforms the result of the call: print the plain result";
const SEVERAL: &str =
    "the statement has several calls, and this may be the result of any of them: print each separately";
const SAME_LINE: &str = "more text follows on its line, so it may not be the result of the call: copy both as the shell printed them";
const TOO_MANY: &str =
    "too many parts before this one; the text from here on was not read: import it separately";
const EXHAUSTED: &str = "too many nested brackets before it: import it separately";
const CUT: &str = "the text ends within this term";
const BROKEN: &str = "this is not a valid term: it contains a line break in a number, or other text";

/// Beginnings of the tools' terms, in Erlang and Elixir, without spaces. A broken term is reported if it begins like this.
const BEGINNINGS: [&str; 12] = [
    "[{total,",
    "[total:",
    "[{:total,",
    "[#{",
    "[%{",
    "[{{",
    "{ok,{",
    "{:ok,{",
    "[{binary_alloc,",
    "[binary_alloc:",
    "[{:binary_alloc,",
    "[{{:",
];

/// Number of characters that identify the tool of a term; `{"stream_queue_replica_reader_procs":{` is the longest beginning.
const MAX_BEGINNING_CHARS: usize = 40;

/// The output of all tools except lcnt.
#[derive(Debug, Default)]
pub struct ToolOutput {
    pub parts: Vec<Part>,
    pub banner: Banner,
    /// The text, with spaces in place of the parts.
    pub rest: String,
}

/// Finds the output of all tools except lcnt.
pub fn find(text: &str) -> ToolOutput {
    let (banner, other) = banners(text);
    let release = banner.release.as_deref().and_then(|release| release.parse().ok());
    let mut finder = Finder {
        text,
        release,
        parts: Vec::new(),
        blanks: Vec::new(),
        part_end: 0,
        call: None,
        budget: text.len().saturating_mul(MAX_WASTED_PER_BYTE).saturating_add(1_024),
    };
    let mut at = skip_spaces(text, 0);
    while at < text.len() && finder.parts.len() <= MAX_PARTS {
        at = finder.step(at);
    }
    let rest = blanked(text, &finder.blanks);
    finder.parts.extend(other);
    ToolOutput { parts: finder.parts, banner, rest }
}

/// Merges the banners of the text, and reports the first one that contradicts an earlier one. They may begin within a line, as in the
/// output of `rabbitmq-diagnostics status`.
fn banners(text: &str) -> (Banner, Option<Part>) {
    let all = text.match_indices(banner::FIRST_WORD).take(16);
    let all = all.map(|(at, _)| (at, banner::read(&mut Tokens::new(&text[at..]))));
    let (places, all): (Vec<usize>, Vec<Banner>) = all.filter(|(_, banner)| banner.erts.is_some()).unzip();
    let differs = |n: &usize| banner::contradicts(&all[*n], &all[..*n]);
    let other = (1..all.len()).find(differs).map(|n| {
        let begin = places[n];
        let end = text[begin..].find('\n').map_or(text.len(), |end| begin + end);
        Part { tool: BANNER, begin, end, data: Err(OTHER_BANNER) }
    });
    (banner::common_fields(&all), other)
}

/// Returns the text with spaces in place of the given byte ranges; line breaks are kept.
fn blanked(text: &str, blanks: &[(usize, usize)]) -> String {
    let mut rest = String::with_capacity(text.len());
    let mut at = 0;
    for (begin, end) in blanks {
        rest.push_str(&text[at..*begin]);
        rest.extend(text[*begin..*end].chars().map(|c| if c == '\n' { c } else { ' ' }));
        at = *end;
    }
    rest.push_str(&text[at..]);
    rest
}

/// A call whose result may follow.
struct PendingCall {
    call: Call,
    begin: usize,
    end: usize,
    prefix: StatementPrefix,
    /// Whether the results of several calls in its statement are printed.
    is_one_of_several: bool,
}

impl PendingCall {
    /// Returns why the following text may not be the result of the call.
    fn doubt(&self) -> Option<&'static str> {
        match self {
            PendingCall { prefix: StatementPrefix { alters: true, .. }, .. } => Some(CHANGED),
            PendingCall { is_one_of_several: true, .. } => Some(SEVERAL),
            _ => None,
        }
    }
}

struct Finder<'a> {
    text: &'a str,
    release: Option<u32>,
    /// At most [`MAX_PARTS`], plus one that reports that there are too many.
    parts: Vec<Part>,
    /// Byte ranges of parts and calls.
    blanks: Vec<(usize, usize)>,
    /// End of the last part.
    part_end: usize,
    /// The last call.
    call: Option<PendingCall>,
    /// Number of bytes that may still be parsed without a result.
    budget: usize,
}

impl Finder<'_> {
    /// Handles the word or term that begins at `at`, and returns the position where the search continues.
    fn step(&mut self, at: usize) -> usize {
        let rest = &self.text[at..];
        let end = match rest.chars().next() {
            Some('[' | '{' | '#' | '%') => self.term(at),
            Some('A' | 'E' | 'F' | 'M' | 'R' | 'T' | 'a'..='z' | ':' | '0'..='9') => self.word(at),
            _ => None,
        };
        match end.filter(|end| *end > at) {
            Some(end) => skip_spaces(self.text, end),
            None => self.next(at),
        }
    }

    /// Returns the position of the next word, or a position within this word at which a part may begin.
    fn next(&self, at: usize) -> usize {
        let mut letters = self.text[at..].char_indices();
        let first = letters.next().map_or(' ', |(_, c)| c);
        let is_name = |c: char| c.is_alphanumeric() || c == '_';
        let mut before = first;
        for (n, c) in letters {
            if is_space(c) || c == '\u{1b}' {
                return skip_spaces(self.text, at + n);
            }
            // A word may touch a prompt (`7>`) or a bracket, and a line may touch the previous line.
            if matches!(c, '[' | '{' | '#' | '%')
                || !is_name(before) && is_name(c)
                || !before.is_uppercase() && c.is_uppercase()
                || c == ':' && before != ':'
            {
                return at + n;
            }
            before = c;
        }
        self.text.len()
    }

    fn word(&mut self, at: usize) -> Option<usize> {
        if let Some((call, end)) = call(self.text, at) {
            self.blanks.push((at, end));
            self.call = Some(self.pending_call(call, at, end));
            return Some(end);
        }
        if let Some(end) = self.number(at) {
            return Some(end);
        }
        if msacc::begins(self.text, at) {
            let (end, data) = msacc::read(self.text, at);
            self.add(msacc::TOOL, at, end, data);
            return Some(end);
        }
        let follows_part = self.follows_directly(at);
        let is_label = follows_part
            || self.text[at..].starts_with(char::is_uppercase)
            || at == 0
            || self.text[..at].ends_with(|c: char| is_space(c) || matches!(c, 'm' | '>' | ')' | '.'));
        let (tool, end, data) = rabbitmq::read(self.text, at).filter(|_| is_label)?;
        self.add(tool, at, end, data);
        Some(end)
    }

    /// Reads a number that `recon_alloc:memory` returned.
    fn number(&mut self, at: usize) -> Option<usize> {
        let rest = &self.text[at..];
        let call = self.call_before(at).filter(|_| rest.starts_with(|c: char| c.is_ascii_digit()))?;
        let doubt = call.doubt();
        let end = at
            + rest
                .find(|c: char| !c.is_ascii_digit() && !matches!(c, '.' | '_' | 'e' | '-'))
                .unwrap_or(rest.len());
        let after = &self.text[end..];
        // Digits before `>` belong to a prompt, unless they follow the call directly: then they begin with the digits of the result.
        let is_prompt = after.starts_with('>');
        if end == at || is_prompt && !self.follows_directly(at) {
            return None;
        }
        // If a line break split the number, its other digits follow.
        let (next, next_end) = word(self.text, end);
        let goes_on = !next.is_empty() && next.bytes().all(|byte| byte.is_ascii_digit());
        let is_apart = after.starts_with(|c| is_space(c) || c == '\u{1b}');
        // A shell prints nothing else on that line; if line breaks were lost, its next prompt follows.
        let is_last = next.is_empty()
            || self.text[end..next_end - next.len()].contains('\n')
            || matches!(next, "ok" | ":ok")
            || next.find('>').is_some_and(|end| crate::call::is_prompt(&next[..=end]));
        let doubt = doubt.or((is_apart && !is_last).then_some(SAME_LINE));
        let is_alone = is_apart && is_last && !goes_on;
        let ends = is_alone || after.starts_with("iex(") || after.starts_with('(') && next.contains(')');
        let data = answers::number(&call.call, &self.text[at..end], ends)?;
        self.add(answers::RECON, at, end, doubt.map_or(data, Err));
        Some(end)
    }

    fn term(&mut self, at: usize) -> Option<usize> {
        if self.budget == 0 {
            if self.has_known_beginning(at) {
                self.add(TERM, at, at + 1, Err(EXHAUSTED));
            }
            return None;
        }
        match term::read(self.text, at) {
            Ok((term, end)) => {
                let pending_call = self.call_before(at);
                let alters = pending_call.is_some_and(|pending_call| pending_call.prefix.alters);
                let call = pending_call.and_then(Self::sole_call);
                let understood = msacc::threads(&term)
                    .map(|data| (msacc::TOOL, data))
                    .or_else(|| answers::interpret(&term, call))
                    .or_else(|| rabbitmq::json(&term))
                    .or_else(|| instrument::interpret(&term, call, self.release));
                let Some((tool, data)) = understood else {
                    self.charge(end - at);
                    return None;
                };
                self.add(tool, at, end, if alters { Err(CHANGED) } else { data });
                Some(end)
            }
            Err(TermError { fault, end, scanned }) => {
                self.charge(scanned - at);
                if !self.has_known_beginning(at) {
                    return None;
                }
                let why = if fault == Fault::Truncated { CUT } else { BROKEN };
                self.add(TERM, at, end, Err(why));
                Some(end)
            }
        }
    }

    /// Subtracts bytes that were parsed without a result from the budget; every attempt costs at least one byte.
    fn charge(&mut self, bytes: usize) {
        self.budget = self.budget.saturating_sub(bytes.max(1));
    }

    /// Whether the text begins like a term of a known tool.
    fn has_known_beginning(&self, at: usize) -> bool {
        let letters = self.text[at..].chars().filter(|c| !is_space(*c));
        let compact: String = letters.take(MAX_BEGINNING_CHARS).collect();
        BEGINNINGS.iter().any(|beginning| compact.starts_with(beginning))
            || rabbitmq::begins_as_json(&compact)
    }

    /// Whether a part or a call ends at `at`.
    fn follows_directly(&self, at: usize) -> bool {
        self.blanks.last().is_some_and(|(_, end)| *end == at)
    }

    /// Evaluates the statement around a call that begins at `begin`.
    fn pending_call(&self, call: Call, begin: usize, end: usize) -> PendingCall {
        let mut from = self.part_end.max(begin.saturating_sub(MAX_CALL_BYTES));
        while !self.text.is_char_boundary(from) {
            from += 1;
        }
        let mut prefix = StatementPrefix::read(self.text, from, begin);
        prefix.alters |= is_transformed_by_pipe(self.text, end);
        let is_number = call.module == answers::RECON && call.function == "memory";
        prefix.alters |= is_number && is_in_arithmetic(self.text, begin, end);
        let is_one_of_several = self.call.as_ref().is_some_and(|first| {
            prefix.begin <= first.begin
                && (first.is_one_of_several || first.call != call)
                && first.prefix.prints_both(&self.text[first.end..begin])
        });
        PendingCall { call, begin, end, prefix, is_one_of_several }
    }

    /// Returns the call, if the following text is its result.
    fn sole_call(pending_call: &PendingCall) -> Option<&Call> {
        (!pending_call.is_one_of_several).then_some(&pending_call.call)
    }

    /// Returns the last call, if only prompts and the rest of its statement are between it and `at`.
    fn call_before(&self, at: usize) -> Option<&PendingCall> {
        let pending_call = self.call.as_ref()?;
        if at - pending_call.end > MAX_CALL_BYTES {
            return None;
        }
        let text = &self.text[..at];
        // A function around the call may have further arguments: `lists:sublist(…, 3)`.
        let rest_of_line = text[pending_call.end..].find('\n').filter(|_| pending_call.prefix.alters);
        let mut after = pending_call.end + rest_of_line.unwrap_or(0);
        while after < at {
            let (word, next) = word(text, after);
            let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '@');
            // Any other character transforms the result, or begins a comment.
            let is_mark = |c: char| is_name(c) || TRAILING_CHARS.contains(&c);
            let is_rest = || {
                word.split("|>").all(|part| part.chars().all(is_mark))
                    && word
                        .split(|c| !is_name(c))
                        .all(|name| name.is_empty() || TRAILING_NAMES.contains(&name))
            };
            if !crate::call::is_prompt(word) && !is_rest() {
                return None;
            }
            after = next;
        }
        Some(pending_call)
    }

    fn add(
        &mut self,
        tool: Tool,
        begin: usize,
        end: usize,
        data: Result<crate::part::PartData, &'static str>,
    ) {
        let data = if self.parts.len() < MAX_PARTS { data } else { Err(TOO_MANY) };
        self.parts.push(Part { tool, begin, end, data });
        self.blanks.push((begin, end));
        self.part_end = end;
    }
}
