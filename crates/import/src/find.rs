//! Goes through a text once and finds what tools other than lcnt have printed: tables by their headings, terms by what stands first in
//! them, lines by their labels. What was found is blanked, so that what goes through the rest afterwards finds every word at its place.

use crate::banner::{self, Banner};
use crate::part::{Part, Tool};
use crate::term::{self, Fault};
use crate::terms::{self, Call};
use crate::text::{Tokens, is_space, skip_spaces, word};
use crate::{instrument, msacc, rabbitmq};

/// Parts that are kept: `status` has some sixty lines.
const MOST_PARTS: usize = 2_000;

/// The longest call that is looked at, in bytes.
const LONGEST_CALL: usize = 400;

/// Bytes of terms that are read in vain, for each byte of the text: brackets within brackets that are never closed.
const IN_VAIN: usize = 4;

/// Names that stand behind a call in the same statement, beside brackets and quotes: `…, limit: :infinity); :ok`, which Elixir needs to
/// print all of a term, `… |> IO.inspect(limit: :infinity)`, `…), halt().`
const AROUND: [&str; 8] = ["IO", "inspect", "limit", "infinity", "ok", "pretty", "true", "halt"];

const CALL: Tool = "a call";
const CUT: &str = "the text ends before the term does";
const BROKEN: &str =
    "something stands in this term that stands in none: a line break in a number, or other text";

/// What the terms of tools begin with, in either language and without spaces: a broken one of them is named as such.
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

/// What was found.
#[derive(Debug, Default)]
pub struct Found {
    pub parts: Vec<Part>,
    pub banner: Banner,
    /// The text without what was found.
    pub rest: String,
}

/// Finds all of it.
pub fn find(text: &str) -> Found {
    let banner = banners(text);
    let release = banner.release.as_deref().and_then(|release| release.parse().ok());
    let mut finder = Finder {
        text,
        release,
        parts: Vec::new(),
        call: None,
        budget: text.len().saturating_mul(IN_VAIN).saturating_add(1_024),
    };
    let mut at = skip_spaces(text, 0);
    while at < text.len() {
        at = finder.step(at);
    }
    let rest = blanked(text, &finder.parts);
    let parts = finder.parts.into_iter().filter(|part| part.tool != CALL).collect();
    Found { parts, banner, rest }
}

/// The first banner in the text, which `rabbitmq-diagnostics status` has in the middle of a line.
fn banners(text: &str) -> Banner {
    text.match_indices(banner::BEGINS)
        .take(16)
        .map(|(at, _)| banner::read(&mut Tokens::new(&text[at..])))
        .find(|banner| banner.erts.is_some())
        .unwrap_or_default()
}

/// The text with spaces in the place of each letter of the parts.
fn blanked(text: &str, parts: &[Part]) -> String {
    let mut rest = String::with_capacity(text.len());
    let mut at = 0;
    for part in parts {
        rest.push_str(&text[at..part.begin]);
        rest.extend(text[part.begin..part.end].chars().map(|c| if c == '\n' { c } else { ' ' }));
        at = part.end;
    }
    rest.push_str(&text[at..]);
    rest
}

struct Finder<'a> {
    text: &'a str,
    release: Option<u32>,
    parts: Vec<Part>,
    /// The last call, and where it ends.
    call: Option<(Call, usize)>,
    budget: usize,
}

impl Finder<'_> {
    /// Looks at what begins here, and gives the place to go on at.
    fn step(&mut self, at: usize) -> usize {
        let rest = &self.text[at..];
        let end = match rest.chars().next() {
            _ if self.parts.len() >= MOST_PARTS => return self.text.len(),
            Some('[' | '{' | '#' | '%') => self.term(at),
            Some('A' | 'E' | 'F' | 'M' | 'R' | 'T' | 'a'..='z' | ':' | '0'..='9') => self.word(at),
            _ => None,
        };
        match end.filter(|end| *end > at) {
            Some(end) => skip_spaces(self.text, end),
            None => self.next(at),
        }
    }

    /// Where the next word begins, or a term within this one.
    fn next(&self, at: usize) -> usize {
        let mut letters = self.text[at..].char_indices();
        let first = letters.next().map_or(' ', |(_, c)| c);
        let is_name = |c: char| c.is_alphanumeric() || c == '_';
        let mut before = first;
        for (n, c) in letters {
            if is_space(c) || c == '\u{1b}' {
                return skip_spaces(self.text, at + n);
            }
            // A word may touch a prompt (`7>`) or a bracket, and a line the one before it.
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
            self.add(CALL, at, end, Ok(Default::default()));
            self.call = Some((call, end));
            return Some(end);
        }
        if let Some(end) = self.number(at) {
            return Some(end);
        }
        if msacc::begins(self.text, at) {
            let (end, told) = msacc::read(self.text, at);
            self.add(msacc::TOOL, at, end, told);
            return Some(end);
        }
        let is_behind_part = self.parts.last().is_some_and(|part| part.end == at);
        let is_label = is_behind_part
            || self.text[at..].starts_with(char::is_uppercase)
            || at == 0
            || self.text[..at].ends_with(|c: char| is_space(c) || matches!(c, 'm' | '>' | ')' | '.'));
        let (tool, end, told) = rabbitmq::read(self.text, at).filter(|_| is_label)?;
        self.add(tool, at, end, told);
        Some(end)
    }

    /// A number that recon has answered.
    fn number(&mut self, at: usize) -> Option<usize> {
        let rest = &self.text[at..];
        let call = self.call_before(at).filter(|_| rest.starts_with(|c: char| c.is_ascii_digit()))?;
        let end = at
            + rest
                .find(|c: char| !c.is_ascii_digit() && !matches!(c, '.' | '_' | 'e' | '-'))
                .unwrap_or(rest.len());
        let behind = &self.text[end..];
        // Digits before `>` are those of a prompt. Where they stand right behind the call, the answer's touch them.
        let is_prompt = behind.starts_with('>');
        if end == at || is_prompt && self.parts.last().is_none_or(|part| part.end != at) {
            return None;
        }
        // A line break in the number leaves digits behind it.
        let (next, _) = word(self.text, end);
        let goes_on = !next.is_empty() && next.bytes().all(|byte| byte.is_ascii_digit());
        let is_alone = behind.starts_with(|c| is_space(c) || c == '\u{1b}') && !goes_on;
        let ends = is_alone || behind.starts_with("iex(") || behind.starts_with('(') && next.contains(')');
        let told = terms::number(call, &self.text[at..end], ends)?;
        self.add(terms::RECON, at, end, told);
        Some(end)
    }

    fn term(&mut self, at: usize) -> Option<usize> {
        if self.budget == 0 {
            return None;
        }
        match term::read(self.text, at) {
            Ok((term, end)) => {
                let call = self.call_before(at);
                let understood = msacc::threads(&term)
                    .map(|told| (msacc::TOOL, told))
                    .or_else(|| terms::understand(&term, call))
                    .or_else(|| instrument::understand(&term, call, self.release));
                let Some((tool, told)) = understood else {
                    self.budget = self.budget.saturating_sub(end - at);
                    return None;
                };
                self.add(tool, at, end, told);
                Some(end)
            }
            Err((fault, end)) => {
                self.budget = self.budget.saturating_sub(end - at);
                let compact: String = self.text[at..].chars().filter(|c| !is_space(*c)).take(24).collect();
                let is_known = BEGINNINGS.iter().any(|beginning| compact.starts_with(beginning));
                if !is_known {
                    return None;
                }
                let why = if fault == Fault::Ends { CUT } else { BROKEN };
                self.add("a term", at, end, Err(why));
                Some(end)
            }
        }
    }

    /// The call that nothing but prompts and the rest of its own statement stand behind.
    fn call_before(&self, at: usize) -> Option<&Call> {
        let (call, end) = self.call.as_ref()?;
        if at - end > LONGEST_CALL {
            return None;
        }
        let text = &self.text[..at];
        let mut behind = *end;
        while behind < at {
            let (word, next) = word(text, behind);
            let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '@');
            let is_rest =
                || word.split(|c| !is_name(c)).all(|name| name.is_empty() || AROUND.contains(&name));
            if !crate::call::is_prompt(word) && !is_rest() {
                return None;
            }
            behind = next;
        }
        Some(call)
    }

    fn add(&mut self, tool: Tool, begin: usize, end: usize, told: Result<crate::part::Told, &'static str>) {
        self.parts.push(Part { tool, begin, end, told });
    }
}

/// Reads a call of one of the modules, with its brackets: `recon_alloc:fragmentation(current)`, `:recon_alloc.fragmentation(:current)`.
fn call(text: &str, at: usize) -> Option<(Call, usize)> {
    const MODULES: [&str; 5] = ["recon_alloc", "instrument", "scheduler", "msacc", "erlang"];
    if text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
        return None;
    }
    let rest = &text[at..];
    let plain = rest.strip_prefix(':').unwrap_or(rest);
    let (module, behind) = MODULES
        .iter()
        .find_map(|module| Some((*module, plain.strip_prefix(module)?.strip_prefix([':', '.'])?)))?;
    let name = behind.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).filter(|name| *name > 0)?;
    let inner = behind[name..].strip_prefix('(')?;
    let mut depth = 1;
    for (n, c) in inner.char_indices().take_while(|(n, _)| *n < LONGEST_CALL) {
        depth += match c {
            '(' => 1,
            ')' => -1,
            _ => 0,
        };
        if depth == 0 {
            let arguments = inner[..n].chars().filter(|c| !is_space(*c) && *c != ':').collect();
            let call = Call { module, function: behind[..name].to_owned(), arguments };
            let end = text.len() - inner.len() + n + 1;
            return Some((call, end + usize::from(text[end..].starts_with('.'))));
        }
    }
    None
}
