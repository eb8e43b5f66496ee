//! Parses terms that the shells of Erlang and Elixir print: lists, tuples, maps, numbers, atoms, strings. Terms that a shell has
//! truncated are marked, and values that have no syntax (pids, functions) are skipped.
//!
//! Nothing is evaluated, and an unexpected word makes the whole term invalid. JSON is parsed, too: an object becomes a tuple of pairs.

use crate::text::{find_within, skip_spaces};

/// Maximum depth of nested terms.
pub const MAX_DEPTH: u32 = 32;
/// Maximum length of the prefix of an opaque value, before its bracket; `#Reference<` has the longest.
const MAX_PREFIX_BYTES: usize = "#Reference".len();
/// Maximum length of a pid, a reference or a function, in bytes.
const MAX_OPAQUE_BYTES: usize = 200;
/// Maximum number of subterms; the data of 100,000 carriers have this many.
const MAX_PARTS: usize = 2_000_000;

/// An Erlang term.
#[derive(Debug, Clone, PartialEq)]
pub enum Term {
    Integer(i64),
    Float(f64),
    Atom(String),
    /// A string in Erlang or Elixir, or a binary that contains text.
    Text(String),
    Tuple(Vec<Term>),
    List(Vec<Term>),
    Map(Vec<(Term, Term)>),
    /// A pid, a reference, a port, a function, a binary without text, or an integer beyond 64 bits.
    Other,
    /// `...`, which shows that the shell has truncated the term.
    Ellipsis,
}

impl Term {
    pub fn integer(&self) -> Option<i64> {
        match self {
            Term::Integer(number) => Some(*number),
            _ => None,
        }
    }

    /// Returns the value of an integer or a float.
    pub fn number(&self) -> Option<f64> {
        match self {
            Term::Integer(number) => Some(*number as f64),
            Term::Float(number) => Some(*number),
            _ => None,
        }
    }

    pub fn atom(&self) -> Option<&str> {
        match self {
            Term::Atom(name) => Some(name),
            _ => None,
        }
    }

    pub fn text(&self) -> Option<&str> {
        match self {
            Term::Text(text) => Some(text),
            _ => None,
        }
    }

    pub fn tuple(&self) -> Option<&[Term]> {
        match self {
            Term::Tuple(parts) => Some(parts),
            _ => None,
        }
    }

    pub fn list(&self) -> Option<&[Term]> {
        match self {
            Term::List(parts) => Some(parts),
            _ => None,
        }
    }

    pub fn map(&self) -> Option<&[(Term, Term)]> {
        match self {
            Term::Map(pairs) => Some(pairs),
            _ => None,
        }
    }

    /// Whether a shell has truncated any part of the term.
    pub fn is_truncated(&self) -> bool {
        match self {
            Term::Ellipsis => true,
            Term::Tuple(parts) | Term::List(parts) => parts.iter().any(Term::is_truncated),
            Term::Map(pairs) => pairs.iter().any(|(key, value)| key.is_truncated() || value.is_truncated()),
            _ => false,
        }
    }
}

/// Why a text is not a term.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The text ends within the term.
    Truncated,
    /// The text contains something that cannot be part of a term.
    Invalid,
    /// The term is deeper or longer than any term that the VM's tools print.
    TooLarge,
}

/// An error of the parser, with its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TermError {
    pub fault: Fault,
    /// End of the text that could be parsed.
    pub end: usize,
    /// End of the text that was scanned, which determines the cost: the end of a string may be searched far beyond the error.
    pub scanned: usize,
}

/// Parses the term that begins at `at`, and returns it with the position after it.
pub fn read(text: &str, at: usize) -> Result<(Term, usize), TermError> {
    let mut reader = Reader { text, at, parts: 0, scanned: at };
    match reader.term(0) {
        Ok(term) => Ok((term, reader.at)),
        Err(fault) => Err(TermError { fault, end: reader.at, scanned: reader.scanned.max(reader.at) }),
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    parts: usize,
    scanned: usize,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// Records that the next `bytes` bytes were scanned.
    fn note_scanned(&mut self, bytes: usize) {
        self.scanned = self.scanned.max(self.at + bytes);
    }

    fn skip_spaces(&mut self) {
        self.at = skip_spaces(self.text, self.at);
    }

    fn take(&mut self, word: &str) -> bool {
        let begins = self.rest().starts_with(word);
        if begins {
            self.at += word.len();
        }
        begins
    }

    fn term(&mut self, depth: u32) -> Result<Term, Fault> {
        self.parts += 1;
        if depth > MAX_DEPTH || self.parts > MAX_PARTS {
            return Err(Fault::TooLarge);
        }
        self.skip_spaces();
        let rest = self.rest();
        let Some(first) = rest.chars().next() else { return Err(Fault::Truncated) };
        match first {
            '[' => self.elements("[", "]", depth).map(Term::List),
            '{' => self.elements("{", "}", depth).map(Term::Tuple),
            '#' if rest.starts_with("#{") => self.pairs("#{", depth),
            '%' if rest.starts_with("%{") => self.pairs("%{", depth),
            '#' => self.opaque('#'),
            '<' if rest.starts_with("<<") => self.binary(),
            '<' => self.opaque('<'),
            '"' => self.quoted('"').map(Term::Text),
            '\'' => self.quoted('\'').map(Term::Atom),
            '~' if rest.starts_with("~c\"") => {
                self.at += "~c".len();
                self.quoted('"').map(Term::Text)
            }
            ':' if rest.starts_with(":\"") => {
                self.at += 1;
                self.quoted('"').map(Term::Atom)
            }
            ':' => {
                self.at += 1;
                self.word().map(|name| Term::Atom(name.to_owned()))
            }
            '…' => {
                self.at += first.len_utf8();
                Ok(Term::Ellipsis)
            }
            '.' if self.take("...") => Ok(Term::Ellipsis),
            '.' if "...".starts_with(rest) => Err(Fault::Truncated),
            '-' | '0'..='9' => self.number(),
            c if c.is_alphabetic() || c == '_' => self.word().map(|name| Term::Atom(name.to_owned())),
            _ => Err(Fault::Invalid),
        }
    }

    /// Parses elements between brackets, which are separated by commas, or by a vertical bar before a tail.
    fn elements(&mut self, open: &str, close: &str, depth: u32) -> Result<Vec<Term>, Fault> {
        self.at += open.len();
        let mut parts = Vec::new();
        self.skip_spaces();
        if self.take(close) {
            return Ok(parts);
        }
        loop {
            let part = self.term(depth + 1)?;
            // Elixir prints `{:total, 1}` as `total: 1`.
            parts.push(match self.is_key(&part) {
                true => Term::Tuple(vec![as_atom(part), self.term(depth + 2)?]),
                false => part,
            });
            self.skip_spaces();
            match self.rest().chars().next() {
                Some(',' | '|') => self.at += 1,
                Some(_) if self.take(close) => return Ok(parts),
                Some(_) => return Err(Fault::Invalid),
                None => return Err(Fault::Truncated),
            }
        }
    }

    fn pairs(&mut self, open: &str, depth: u32) -> Result<Term, Fault> {
        self.at += open.len();
        let mut pairs = Vec::new();
        self.skip_spaces();
        if self.take("}") {
            return Ok(Term::Map(pairs));
        }
        loop {
            let key = self.term(depth + 1)?;
            let is_keyword = self.is_key(&key);
            self.skip_spaces();
            if key == Term::Ellipsis {
                pairs.push((Term::Ellipsis, Term::Ellipsis));
            } else if is_keyword || self.take("=>") {
                pairs.push((if is_keyword { as_atom(key) } else { key }, self.term(depth + 1)?));
            } else {
                return Err(self.invalid_or_truncated());
            }
            self.skip_spaces();
            if self.take("}") {
                return Ok(Term::Map(pairs));
            }
            if !self.take(",") {
                return Err(self.invalid_or_truncated());
            }
        }
    }

    fn invalid_or_truncated(&self) -> Fault {
        if self.rest().is_empty() { Fault::Truncated } else { Fault::Invalid }
    }

    /// Whether this is an Elixir key, which a colon follows. Consumes the colon.
    fn is_key(&mut self, part: &Term) -> bool {
        let is_allowed = matches!(part, Term::Atom(_) | Term::Text(_));
        let is_key = is_allowed && self.rest().starts_with(':') && !self.rest().starts_with("::");
        if is_key {
            self.at += 1;
        }
        is_key
    }

    fn word(&mut self) -> Result<&'a str, Fault> {
        let rest = self.rest();
        let is_allowed = |c: char| c.is_alphanumeric() || matches!(c, '_' | '@' | '?' | '!' | '.');
        let end = rest.find(|c| !is_allowed(c)).unwrap_or(rest.len());
        self.note_scanned(end);
        // Elixir's shell prints `...` separately, never within a word.
        if end == 0 || rest[..end].contains("..") {
            return Err(self.invalid_or_truncated());
        }
        self.at += end;
        Ok(&rest[..end])
    }

    /// Parses text between quotes, and resolves escapes.
    fn quoted(&mut self, quote: char) -> Result<String, Fault> {
        let mut text = String::new();
        let mut letters = self.rest().char_indices().skip(1);
        while let Some((at, c)) = letters.next() {
            match c {
                '\\' => text.extend(letters.next().map(|(_, c)| c)),
                // Names and numbers contain no line breaks, so this string is not from a tool.
                '\n' => {
                    self.note_scanned(at);
                    return Err(Fault::Invalid);
                }
                c if c == quote => {
                    self.at += at + 1;
                    return Ok(text);
                }
                c => text.push(c),
            }
        }
        self.note_scanned(self.rest().len());
        Err(Fault::Truncated)
    }

    /// Parses a binary: `<<"text">>`, or bytes.
    fn binary(&mut self) -> Result<Term, Fault> {
        self.at += "<<".len();
        self.skip_spaces();
        let text = if self.rest().starts_with('"') { Some(self.quoted('"')?) } else { None };
        let rest = self.rest();
        let is_allowed = |c: char| {
            c.is_ascii_alphanumeric() || crate::text::is_space(c) || matches!(c, ',' | ':' | '/' | '.' | '…')
        };
        let end = rest.find(|c| !is_allowed(c)).unwrap_or(rest.len());
        let (between, after) = rest.split_at(end);
        self.note_scanned(end);
        if !after.starts_with(">>") {
            return Err(if ">".starts_with(after) { Fault::Truncated } else { Fault::Invalid });
        }
        self.at += end + ">>".len();
        let is_truncated = between.contains("...") || between.contains('…');
        Ok(match text {
            _ if is_truncated => Term::Ellipsis,
            Some(text) if matches!(between, "" | "/utf8") => Term::Text(text),
            _ => Term::Other,
        })
    }

    /// Skips an opaque value: `<0.80.0>`, `#Ref<…>`, `#PID<…>`, `#Fun<…>`.
    fn opaque(&mut self, first: char) -> Result<Term, Fault> {
        let rest = self.rest();
        let open = find_within(rest, "<", MAX_PREFIX_BYTES).ok_or(self.invalid_or_truncated())?;
        self.note_scanned(open + MAX_OPAQUE_BYTES);
        if !rest[..open].strip_prefix(first).unwrap_or_default().chars().all(char::is_alphabetic) {
            return Err(Fault::Invalid);
        }
        for (at, c) in rest[open..].char_indices().skip(1) {
            match c {
                '>' if !rest[..open + at].ends_with('-') => {
                    self.at += open + at + 1;
                    return Ok(Term::Other);
                }
                '\n' | '[' | '{' => return Err(Fault::Invalid),
                _ if at > MAX_OPAQUE_BYTES => return Err(Fault::TooLarge),
                _ => {}
            }
        }
        Err(Fault::Truncated)
    }

    fn number(&mut self) -> Result<Term, Fault> {
        let rest = self.rest();
        let sign = usize::from(rest.starts_with('-'));
        let digits = |from: usize| {
            let is_digit = |c: char| c.is_ascii_digit() || c == '_';
            rest[from..].find(|c| !is_digit(c)).map_or(rest.len(), |end| from + end)
        };
        let mut end = digits(sign);
        self.note_scanned(end);
        if end == sign {
            return Err(if rest.len() == sign { Fault::Truncated } else { Fault::Invalid });
        }
        let mut is_float = false;
        if rest[end..].starts_with('.') && rest[end + 1..].starts_with(|c: char| c.is_ascii_digit()) {
            is_float = true;
            end = digits(end + 1);
            self.note_scanned(end);
            if rest[end..].starts_with(['e', 'E']) {
                let exponent = end + 1 + usize::from(rest[end + 1..].starts_with(['-', '+']));
                end = digits(exponent);
                if end == exponent {
                    return Err(if rest.len() == end { Fault::Truncated } else { Fault::Invalid });
                }
            }
        }
        match rest[end..].chars().next() {
            // The number may continue.
            None => return Err(Fault::Truncated),
            Some(c) if c.is_alphanumeric() || matches!(c, '.' | '#') => return Err(Fault::Invalid),
            Some(_) => {}
        }
        self.at += end;
        let plain: String = rest[..end].chars().filter(|c| *c != '_').collect();
        Ok(match is_float {
            true => {
                plain.parse().ok().filter(|number: &f64| number.is_finite()).map_or(Term::Other, Term::Float)
            }
            false => plain.parse().map_or(Term::Other, Term::Integer),
        })
    }
}

fn as_atom(key: Term) -> Term {
    match key {
        Term::Text(name) => Term::Atom(name),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn atom(name: &str) -> Term {
        Term::Atom(name.to_owned())
    }

    fn pair(name: &str, value: Term) -> Term {
        Term::Tuple(vec![atom(name), value])
    }

    #[test]
    fn terms_in_both_languages_are_parsed_to_the_same_result() {
        let expect = Term::List(vec![
            pair("total", Term::Integer(31_000_000)),
            pair("share", Term::Float(1.5e-4)),
            pair("said", Term::Text("12.0%".to_owned())),
        ]);
        for text in [
            "[{total,31000000},\n {share,1.5e-4},{said,\"12.0%\"}]",
            "[total: 31_000_000, share: 1.5e-4, said: \"12.0%\"]",
            "[{:total, 31_000_000}, {:share, 1.5e-4}, {:said, ~c\"12.0%\"}]",
            "> [{total,\u{a0}31000000},\n> {share,\x1b[33m1.5e-4\x1b[0m}, {'said',<<\"12.0%\">>}]",
        ] {
            assert_eq!(read(text, 0), Ok((expect.clone(), text.len())), "{text}");
        }
        let map = Term::Map(vec![(atom("$type"), atom("msacc_data")), (atom("id"), Term::Integer(-1))]);
        for text in [
            "#{'$type' => msacc_data,id => -1}",
            "%{\"$type\": :msacc_data, id: -1}",
            "%{:\"$type\" => :msacc_data, :id => -1}",
        ] {
            assert_eq!(read(text, 0), Ok((map.clone(), text.len())), "{text}");
        }
    }

    #[test]
    fn opaque_values_are_skipped() {
        for text in [
            "<0.80.0>",
            "#Ref<0.1.2.3>",
            "#PID<0.1.0>",
            "#Function<42.1/0 in :erl_eval.expr/6>",
            "<<1,2,3>>",
            "99999999999999999999 ",
        ] {
            assert_eq!(read(text, 0).map(|(term, _)| term), Ok(Term::Other), "{text}");
        }
    }

    #[test]
    fn truncated_terms_are_recognized() {
        for text in ["[{a,1}|...]", "[1,...]", "{a,…}", "#{a => ...}", "%{a: 1, ...}", "<<\"abc\"...>>"] {
            assert_eq!(read(text, 0).map(|(term, _)| term.is_truncated()), Ok(true), "{text}");
        }
        for text in ["", "[", "[1", "{a,12", "[{a,1},", "\"abc", "#{a", "#{a =>", "[..", "1.5e"] {
            assert_eq!(read(text, 0).map_err(|error| error.fault), Err(Fault::Truncated), "{text}");
        }
        for text in
            ["[1 2]", "{a,1]", "12us", "[1.2.3]", "16#ff ", "#{a,1}", "[\"a\nb\"]", "(", "[emu lator]"]
        {
            assert_eq!(read(text, 0).map_err(|error| error.fault), Err(Fault::Invalid), "{text}");
        }
        assert_eq!(read(&"[".repeat(100), 0).map_err(|error| error.fault), Err(Fault::TooLarge));
    }

    #[test]
    fn invalid_terms_are_not_scanned_to_the_end_of_the_text() {
        for (begin, more) in
            [("#", "#"), ("[<<", "[<<"), ("[<<1,2", "[<<1,2"), ("[#R", "[#R"), ("<", " ["), ("{#Ref", "\n")]
        {
            let text = begin.to_owned() + &more.repeat(10_000);
            let scanned = read(&text, 0).map(|_| ()).map_err(|error| error.scanned);
            assert!(scanned.is_err_and(|scanned| scanned <= 300), "{begin}: {scanned:?}");
        }
        // The bytes of a long string are counted as scanned, although the term could be parsed only up to its beginning.
        let text = "{a,\"".to_owned() + &"b".repeat(10_000);
        let error = read(&text, 0).expect_err("no term");
        assert_eq!((error.end, error.scanned), (3, text.len()));
    }

    fn terms() -> impl Strategy<Value = Term> {
        let leaf = prop_oneof![
            any::<i64>().prop_map(Term::Integer),
            (-1e9..1e9_f64).prop_map(Term::Float),
            "[a-z][a-z_0-9]{0,8}".prop_map(Term::Atom),
            "[A-Z $'{}%.,]{0,6}".prop_map(Term::Text),
        ];
        leaf.prop_recursive(4, 40, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Term::List),
                prop::collection::vec(inner.clone(), 0..5).prop_map(Term::Tuple),
                prop::collection::vec((inner.clone(), inner), 0..4).prop_map(Term::Map),
            ]
        })
    }

    /// Prints a term like a shell, with `space` wherever spaces are allowed.
    fn shell_output(term: &Term, is_elixir: bool, space: &str) -> String {
        let all = |parts: &[Term]| {
            parts
                .iter()
                .map(|part| shell_output(part, is_elixir, space))
                .collect::<Vec<_>>()
                .join(&format!(",{space}"))
        };
        match term {
            Term::Integer(number) => number.to_string(),
            Term::Float(number) => format!("{number:?}"),
            Term::Atom(name) if is_elixir => format!(":{name}"),
            Term::Atom(name) => name.clone(),
            Term::Text(text) => format!("{text:?}").replace("\\'", "'"),
            Term::Tuple(parts) => format!("{{{space}{}{space}}}", all(parts)),
            Term::List(parts) => format!("[{space}{}]", all(parts)),
            Term::Map(pairs) => {
                let pairs: Vec<_> = pairs
                    .iter()
                    .map(|(key, value)| {
                        format!(
                            "{} =>{space}{}",
                            shell_output(key, is_elixir, space),
                            shell_output(value, is_elixir, space)
                        )
                    })
                    .collect();
                format!("{}{{{}}}", if is_elixir { '%' } else { '#' }, pairs.join(&format!(",{space}")))
            }
            Term::Other | Term::Ellipsis => "...".to_owned(),
        }
    }

    proptest! {
        #[test]
        fn printed_terms_are_parsed_to_the_original_terms(term in terms(), is_elixir: bool, space in "[ \n\u{a0}]{0,3}(\n> )?") {
            let text = format!("{};", shell_output(&term, is_elixir, &space));
            prop_assert_eq!(read(&text, 0), Ok((term, text.len() - 1)), "{}", text);
        }

        #[test]
        fn a_truncated_term_is_not_mistaken_for_another_term(term in terms(), is_elixir: bool, share in 0.0..1.0_f64) {
            let term = Term::List(vec![term]);
            let text = shell_output(&term, is_elixir, " ");
            let mut end = (text.len() as f64 * share) as usize;
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            prop_assert!(read(&text[..end], 0).is_err(), "{}", &text[..end]);
        }

        #[test]
        fn arbitrary_text_does_not_panic(text in "[\\[\\]{}#%<>a-c0-9.,:|\"'\\\\ \n…=-]{0,60}") {
            if let Ok((_, end)) = read(&text, 0) {
                prop_assert!(text.is_char_boundary(end));
            }
        }
    }
}
