//! Goes through a text once and finds what tools other than lcnt have printed: tables by their headings, terms by what stands first in
//! them, lines by their labels. What was found is blanked, so that what goes through the rest afterwards finds every word at its place.

use crate::banner::{self, Banner};
use crate::part::{Part, Tool};
use crate::statement::{Before, LONGEST_CALL, call, is_piped_on, is_reckoned_with};
use crate::term::{self, Fault, NoTerm};
use crate::terms::{self, Call};
use crate::text::{Tokens, is_space, skip_spaces, word};
use crate::{instrument, msacc, rabbitmq};

/// Parts that are kept: `status` has some sixty lines.
const MOST_PARTS: usize = 2_000;

/// Bytes of terms that are read in vain, for each byte of the text. A term that is none of a tool's is read again at each bracket within
/// it, so each of its bytes as often as terms are deep, and once more where it is too deep. Only text that is made for it needs more.
const IN_VAIN: usize = term::DEEPEST as usize + 2;

/// Names that stand behind a call in the same statement, beside brackets and quotes: `…, limit: :infinity); :ok`, which Elixir needs to
/// print all of a term, `… |> IO.inspect(limit: :infinity)`, `…), halt().`
const AROUND: [&str; 8] = ["IO", "inspect", "limit", "infinity", "ok", "pretty", "true", "halt"];

/// Marks that stand behind a call in its statement and change nothing of its answer.
const MARKS: [char; 17] = [
    '(', ')', '[', ']', '{', '}', '"', '\'', '`', '\u{201c}', '\u{201d}', '\u{2019}', '\\', ',', ';', '.',
    ':',
];

/// A term whose tool is not known.
const TERM: Tool = "a term";

/// What is named where a text has several.
const BANNER: Tool = "a banner";

const OTHER_BANNER: &str = "another banner than before, so what the two tell otherwise is not taken, be it the release: import what one VM has printed at a time";

const CHANGED: &str = "what stands around the call in its statement makes something else of its answer, or takes some of it only: print all of it";
const SEVERAL: &str = "several calls stand in one statement, and of which one this is the answer is not known: print each by itself";
const BESIDE: &str =
    "more stands in its line, so it may be no answer of the call: copy both as the shell has printed them";
const TOO_MANY: &str =
    "there are too many parts before it, and neither it nor what follows was read: import the rest by itself";
const EXHAUSTED: &str = "too much was read in vain before it, brackets within brackets: import it by itself";
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

/// Letters by which it is known of which tool a term is: `{"stream_queue_replica_reader_procs":{` is the longest.
const LONGEST_BEGINNING: usize = 40;

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
    let (banner, other) = banners(text);
    let release = banner.release.as_deref().and_then(|release| release.parse().ok());
    let mut finder = Finder {
        text,
        release,
        parts: Vec::new(),
        blanks: Vec::new(),
        behind_part: 0,
        call: None,
        budget: text.len().saturating_mul(IN_VAIN).saturating_add(1_024),
    };
    let mut at = skip_spaces(text, 0);
    while at < text.len() && finder.parts.len() <= MOST_PARTS {
        at = finder.step(at);
    }
    let rest = blanked(text, &finder.blanks);
    finder.parts.extend(other);
    Found { parts: finder.parts, banner, rest }
}

/// What the banners in the text tell, which `rabbitmq-diagnostics status` has in the middle of a line; and the first one that tells some of it
/// otherwise than those before.
fn banners(text: &str) -> (Banner, Option<Part>) {
    let all = text.match_indices(banner::BEGINS).take(16);
    let all = all.map(|(at, _)| (at, banner::read(&mut Tokens::new(&text[at..]))));
    let (places, all): (Vec<usize>, Vec<Banner>) = all.filter(|(_, banner)| banner.erts.is_some()).unzip();
    let differs = |n: &usize| banner::differs(&all[*n], &all[..*n]);
    let other = (1..all.len()).find(differs).map(|n| {
        let begin = places[n];
        let end = text[begin..].find('\n').map_or(text.len(), |end| begin + end);
        Part { tool: BANNER, begin, end, told: Err(OTHER_BANNER) }
    });
    (banner::alike(&all), other)
}

/// The text with spaces in the place of each letter that was understood.
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

/// A call, which stands before its answer.
struct Asked {
    call: Call,
    begin: usize,
    end: usize,
    before: Before,
    /// Others in the same statement are answered beside it.
    is_one_of_several: bool,
}

impl Asked {
    /// Why what follows may be no answer of the call.
    fn doubt(&self) -> Option<&'static str> {
        match self {
            Asked { before: Before { changes: true, .. }, .. } => Some(CHANGED),
            Asked { is_one_of_several: true, .. } => Some(SEVERAL),
            _ => None,
        }
    }
}

struct Finder<'a> {
    text: &'a str,
    release: Option<u32>,
    /// At most [`MOST_PARTS`], and the first one that is too many.
    parts: Vec<Part>,
    /// Where parts and calls begin and end.
    blanks: Vec<(usize, usize)>,
    /// Where the last part ends.
    behind_part: usize,
    /// The last call.
    call: Option<Asked>,
    /// Bytes that may be read in vain.
    budget: usize,
}

impl Finder<'_> {
    /// Looks at what begins here, and gives the place to go on at.
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
            self.blanks.push((at, end));
            self.call = Some(self.asked(call, at, end));
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
        let is_behind_part = self.is_behind_another(at);
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
        let doubt = call.doubt();
        let end = at
            + rest
                .find(|c: char| !c.is_ascii_digit() && !matches!(c, '.' | '_' | 'e' | '-'))
                .unwrap_or(rest.len());
        let behind = &self.text[end..];
        // Digits before `>` are those of a prompt. Where they stand right behind the call, the answer's touch them.
        let is_prompt = behind.starts_with('>');
        if end == at || is_prompt && !self.is_behind_another(at) {
            return None;
        }
        // A line break in the number leaves digits behind it.
        let (next, next_end) = word(self.text, end);
        let goes_on = !next.is_empty() && next.bytes().all(|byte| byte.is_ascii_digit());
        let is_apart = behind.starts_with(|c| is_space(c) || c == '\u{1b}');
        // In its line a shell prints nothing behind it; where line breaks were lost, its next prompt.
        let is_last = next.is_empty()
            || self.text[end..next_end - next.len()].contains('\n')
            || matches!(next, "ok" | ":ok")
            || next.find('>').is_some_and(|end| crate::call::is_prompt(&next[..=end]));
        let doubt = doubt.or((is_apart && !is_last).then_some(BESIDE));
        let is_alone = is_apart && is_last && !goes_on;
        let ends = is_alone || behind.starts_with("iex(") || behind.starts_with('(') && next.contains(')');
        let told = terms::number(&call.call, &self.text[at..end], ends)?;
        self.add(terms::RECON, at, end, doubt.map_or(told, Err));
        Some(end)
    }

    fn term(&mut self, at: usize) -> Option<usize> {
        if self.budget == 0 {
            if self.begins_as_known(at) {
                self.add(TERM, at, at + 1, Err(EXHAUSTED));
            }
            return None;
        }
        match term::read(self.text, at) {
            Ok((term, end)) => {
                let asked = self.call_before(at);
                let changes = asked.is_some_and(|asked| asked.before.changes);
                let call = asked.and_then(Self::known);
                let understood = msacc::threads(&term)
                    .map(|told| (msacc::TOOL, told))
                    .or_else(|| terms::understand(&term, call))
                    .or_else(|| rabbitmq::json(&term))
                    .or_else(|| instrument::understand(&term, call, self.release));
                let Some((tool, told)) = understood else {
                    self.charge(end - at);
                    return None;
                };
                self.add(tool, at, end, if changes { Err(CHANGED) } else { told });
                Some(end)
            }
            Err(NoTerm { fault, end, looked }) => {
                self.charge(looked - at);
                if !self.begins_as_known(at) {
                    return None;
                }
                let why = if fault == Fault::Ends { CUT } else { BROKEN };
                self.add(TERM, at, end, Err(why));
                Some(end)
            }
        }
    }

    /// Takes what was read in vain from the budget; an attempt costs something, too.
    fn charge(&mut self, bytes: usize) {
        self.budget = self.budget.saturating_sub(bytes.max(1));
    }

    /// Whether a term begins here as those of the tools do.
    fn begins_as_known(&self, at: usize) -> bool {
        let letters = self.text[at..].chars().filter(|c| !is_space(*c));
        let compact: String = letters.take(LONGEST_BEGINNING).collect();
        BEGINNINGS.iter().any(|beginning| compact.starts_with(beginning))
            || rabbitmq::begins_as_json(&compact)
    }

    /// Whether a part or a call ends here.
    fn is_behind_another(&self, at: usize) -> bool {
        self.blanks.last().is_some_and(|(_, end)| *end == at)
    }

    /// A call that begins here, with what its statement makes of it.
    fn asked(&self, call: Call, begin: usize, end: usize) -> Asked {
        let mut from = self.behind_part.max(begin.saturating_sub(LONGEST_CALL));
        while !self.text.is_char_boundary(from) {
            from += 1;
        }
        let mut before = Before::read(self.text, from, begin);
        before.changes |= is_piped_on(self.text, end);
        let is_number = call.module == terms::RECON && call.function == "memory";
        before.changes |= is_number && is_reckoned_with(self.text, begin, end);
        let is_one_of_several = self.call.as_ref().is_some_and(|first| {
            before.begin <= first.begin
                && (first.is_one_of_several || first.call != call)
                && first.before.is_answered_beside(&self.text[first.end..begin])
        });
        Asked { call, begin, end, before, is_one_of_several }
    }

    /// The call, if what follows is its answer.
    fn known(asked: &Asked) -> Option<&Call> {
        (!asked.is_one_of_several).then_some(&asked.call)
    }

    /// The call that nothing but prompts and the rest of its own statement stand behind.
    fn call_before(&self, at: usize) -> Option<&Asked> {
        let asked = self.call.as_ref()?;
        if at - asked.end > LONGEST_CALL {
            return None;
        }
        let text = &self.text[..at];
        // Of a function around the call other arguments may follow: `lists:sublist(…, 3)`.
        let rest_of_line = text[asked.end..].find('\n').filter(|_| asked.before.changes);
        let mut behind = asked.end + rest_of_line.unwrap_or(0);
        while behind < at {
            let (word, next) = word(text, behind);
            let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '@');
            // Any other mark makes something else of the answer, or begins a remark.
            let is_mark = |c: char| is_name(c) || MARKS.contains(&c);
            let is_rest = || {
                word.split("|>").all(|part| part.chars().all(is_mark))
                    && word.split(|c| !is_name(c)).all(|name| name.is_empty() || AROUND.contains(&name))
            };
            if !crate::call::is_prompt(word) && !is_rest() {
                return None;
            }
            behind = next;
        }
        Some(asked)
    }

    fn add(&mut self, tool: Tool, begin: usize, end: usize, told: Result<crate::part::Told, &'static str>) {
        let told = if self.parts.len() < MOST_PARTS { told } else { Err(TOO_MANY) };
        self.parts.push(Part { tool, begin, end, told });
        self.blanks.push((begin, end));
        self.behind_part = end;
    }
}
