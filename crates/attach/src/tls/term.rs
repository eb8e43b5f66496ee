//! Extracts file names from the Erlang term in a TLS option file.
//!
//! The VM evaluates such a file as an expression (lib/ssl/src/ssl_dist_sup.erl, `consult/1`). Nothing is evaluated here: an
//! expression such as `fun m:f/3` or `filename:join(…)` becomes [`Term::Other`], and parsing continues after it. So expressions
//! in options that are not needed here do no harm.

/// Maximum nesting; deeper terms become [`Term::Other`].
const MAX_DEPTH: usize = 32;

/// A term.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Term {
    Atom(String),
    /// A string, or a binary that consists of a string.
    Text(String),
    List(Vec<Term>),
    Tuple(Vec<Term>),
    Map(Vec<(Term, Term)>),
    /// A number, or an expression that would have to be evaluated.
    Other,
}

impl Term {
    /// Parses the term at the start of a text.
    pub fn read(text: &str) -> Term {
        let mut reader = Reader { rest: text };
        reader.term(0)
    }

    /// Returns the values of all tuples `{key, Value}` in a list, in order.
    pub fn values<'t>(&'t self, key: &'t str) -> impl Iterator<Item = &'t Term> {
        let items = if let Term::List(items) = self { items.as_slice() } else { &[] };
        items.iter().filter_map(move |item| match item {
            Term::Tuple(pair) => match pair.as_slice() {
                [Term::Atom(name), value] if name == key => Some(value),
                _ => None,
            },
            _ => None,
        })
    }
}

struct Reader<'t> {
    rest: &'t str,
}

impl Reader<'_> {
    /// Parses a term, and moves to the token after it.
    fn term(&mut self, depth: usize) -> Term {
        self.blanks();
        let begin = self.rest;
        let term = if depth > MAX_DEPTH { None } else { self.plain(depth) };
        self.blanks();
        match term {
            Some(term) if self.at_end_of_term() => term,
            _ => {
                self.rest = begin;
                self.skip();
                Term::Other
            }
        }
    }

    /// Parses a literal; returns `None` if the next term does not begin with one.
    fn plain(&mut self, depth: usize) -> Option<Term> {
        match self.rest.chars().next()? {
            '{' => self.several('{', '}', depth).map(Term::Tuple),
            '[' => self.several('[', ']', depth).map(Term::List),
            '#' => self.map(depth),
            '"' => {
                let mut text = self.quoted('"')?;
                self.blanks();
                // Adjacent strings are one string.
                while self.rest.starts_with('"') {
                    text.push_str(&self.quoted('"')?);
                    self.blanks();
                }
                Some(Term::Text(text))
            }
            '<' => {
                self.take("<<")?;
                self.blanks();
                let text = self.quoted('"')?;
                self.blanks();
                let _ = self.take("/utf8");
                self.blanks();
                self.take(">>")?;
                Some(Term::Text(text))
            }
            '\'' => self.quoted('\'').map(Term::Atom),
            first if first.is_lowercase() => {
                let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '@';
                let length = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
                let (name, rest) = self.rest.split_at(length);
                self.rest = rest;
                Some(Term::Atom(name.to_owned()))
            }
            _ => None,
        }
    }

    /// Parses the elements between two brackets; returns `None` for an improper list.
    fn several(&mut self, open: char, close: char, depth: usize) -> Option<Vec<Term>> {
        self.rest = self.rest.strip_prefix(open)?;
        let mut items = Vec::new();
        self.blanks();
        if let Some(rest) = self.rest.strip_prefix(close) {
            self.rest = rest;
            return Some(items);
        }
        loop {
            items.push(self.term(depth + 1));
            if let Some(rest) = self.rest.strip_prefix(close) {
                self.rest = rest;
                return Some(items);
            }
            self.take(",")?;
        }
    }

    fn map(&mut self, depth: usize) -> Option<Term> {
        self.take("#")?;
        self.blanks();
        self.take("{")?;
        let mut pairs = Vec::new();
        loop {
            self.blanks();
            if self.take("}").is_some() {
                return Some(Term::Map(pairs));
            }
            let key = self.plain(depth + 1)?;
            self.blanks();
            self.take("=>")?;
            pairs.push((key, self.term(depth + 1)));
            if self.take(",").is_none() && !self.rest.starts_with('}') {
                return None;
            }
        }
    }

    /// Parses the text between two quotes. Returns `None` if the text contains an escape sequence that file names do not need.
    fn quoted(&mut self, quote: char) -> Option<String> {
        let mut text = String::new();
        let mut chars = self.rest.strip_prefix(quote)?.chars();
        loop {
            match chars.next()? {
                '\\' => match chars.next()? {
                    'n' => text.push('\n'),
                    't' => text.push('\t'),
                    's' => text.push(' '),
                    escaped if escaped.is_alphanumeric() || escaped == '^' => return None,
                    escaped => text.push(escaped),
                },
                c if c == quote => {
                    self.rest = chars.as_str();
                    return Some(text);
                }
                c => text.push(c),
            }
        }
    }

    /// Skips an expression, up to the comma, bar or bracket after it.
    fn skip(&mut self) {
        let mut open = 0_usize;
        loop {
            self.blanks();
            if open == 0 && self.at_end_of_term() {
                return;
            }
            let mut chars = self.rest.chars();
            match chars.next() {
                None => return,
                // These are the brackets of a binary, not comparisons.
                Some('<') if self.rest.starts_with("<<") => {
                    chars.next();
                    open += 1;
                }
                Some('>') if self.rest.starts_with(">>") => {
                    chars.next();
                    open = open.saturating_sub(1);
                }
                Some('{' | '[' | '(') => open += 1,
                Some('}' | ']' | ')') => open = open.saturating_sub(1),
                Some(quote @ ('"' | '\'')) => {
                    // Up to the closing quote.
                    while let Some(c) = chars.next() {
                        match c {
                            '\\' => drop(chars.next()),
                            c if c == quote => break,
                            _ => {}
                        }
                    }
                }
                // A character literal: $, is not a comma.
                Some('$') if chars.next() == Some('\\') => drop(chars.next()),
                Some(_) => {}
            }
            self.rest = chars.as_str();
        }
    }

    fn at_end_of_term(&self) -> bool {
        let mut chars = self.rest.chars();
        match chars.next() {
            None | Some(',' | '|' | '}' | ']' | ')') => true,
            // This is the end of the expression, unlike a dot between digits.
            Some('.') => chars.next().is_none_or(|next| next.is_whitespace() || next == '%'),
            _ => false,
        }
    }

    /// Skips white space and comments.
    fn blanks(&mut self) {
        loop {
            self.rest = self.rest.trim_start();
            let Some(comment) = self.rest.strip_prefix('%') else { return };
            self.rest = comment.find('\n').and_then(|end| comment.get(end..)).unwrap_or_default();
        }
    }

    fn take(&mut self, token: &str) -> Option<()> {
        self.rest = self.rest.strip_prefix(token)?;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn atom(name: &str) -> Term {
        Term::Atom(name.to_owned())
    }

    fn text(text: &str) -> Term {
        Term::Text(text.to_owned())
    }

    #[test]
    fn plain_terms_are_parsed() {
        let check = |from: &str, expect: Term| assert_eq!(Term::read(from), expect, "{from}");
        check("\"/a b/c.pem\" .", text("/a b/c.pem"));
        check(r#""a\"b\\c\n""#, text("a\"b\\c\n"));
        check("\"one\" % and\n \"two\".", text("onetwo"));
        check("<<\"x\">>.", text("x"));
        check("<< \"ż\" /utf8 >>.", text("ż"));
        check("'an atom'", atom("an atom"));
        check("a@b_C1.\n", atom("a@b_C1"));
        check("[ ]", Term::List(vec![]));
        check("{a,[b ,\"c\"]}.", Term::Tuple(vec![atom("a"), Term::List(vec![atom("b"), text("c")])]));
        check("#{k => v, 'K' => \"w\"}", Term::Map(vec![(atom("k"), atom("v")), (atom("K"), text("w"))]));
        check("#{}", Term::Map(vec![]));
    }

    #[test]
    fn expressions_are_skipped() {
        for other in [
            "1",
            "1.5",
            "fun m:f/3",
            "filename:join(\"a,]\", b)",
            "fun(X, [Y]) -> {X, $,, $\\}, \"}\", '\\'}'} end",
            "[a | b]",
            "os:getenv(\"X\") ++ \"/y\"",
            "<<1, 2, 3>>",
            "\"\\x41\"",
            "#record{a = 1}",
        ] {
            let both = [Term::Other, atom("behind")];
            assert_eq!(Term::read(&format!("[{other}, behind].")), Term::List(both.to_vec()), "{other}");
        }
    }

    #[test]
    fn values_are_found_by_their_key() {
        let list = Term::read("[{a, 1}, {b, x, y}, b, {b, x}, {b, \"z\"}].");
        assert_eq!(list.values("b").collect::<Vec<_>>(), [&atom("x"), &text("z")]);
        assert_eq!(list.values("c").count(), 0);
        assert_eq!(atom("a").values("a").count(), 0);
    }

    #[test]
    fn depth_is_bounded() {
        let tower = "[".repeat(100_000);
        assert_eq!(Term::read(&tower), Term::Other);
        assert_eq!(Term::read(&format!("{tower}{}", "]".repeat(100_000))), {
            let mut expect = Term::Other;
            for _ in 0..=MAX_DEPTH {
                expect = Term::List(vec![expect]);
            }
            expect
        });
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in "[a{}\\[\\]()<>#$\"'\\\\,.=|% \n/1-]{0,60}") {
            let _ = Term::read(&text);
        }
    }
}
