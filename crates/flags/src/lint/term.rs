//! Checks whether a text is an Erlang term. Only the syntax that is common on command lines is supported.
//!
//! `init` passes the values of `-kernel` and other applications to `erl_scan` and `erl_parse`. If a shell or an args file has removed the
//! quotes of a value, it is often not a term. Only a text that is certainly not a term is reported.

/// Maximum nesting of a term; deeper terms are not checked.
const MAX_DEPTH: usize = 64;

/// Whether a text is certainly not an Erlang term.
pub(super) fn is_not_a_term(text: &str) -> bool {
    // Non-ASCII letters are not checked, because an atom may contain some of them.
    if !text.is_ascii() {
        return false;
    }
    let mut reader = Reader { rest: text, depth: 0, undecided: false };
    let term = reader.term();
    reader.blanks();
    !(reader.undecided || term && reader.rest.is_empty())
}

struct Reader<'t> {
    rest: &'t str,
    depth: usize,
    /// Whether the text contains syntax that is not supported here.
    undecided: bool,
}

impl Reader<'_> {
    fn blanks(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn take(&mut self, token: &str) -> bool {
        self.blanks();
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn term(&mut self) -> bool {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            self.undecided = true;
            return false;
        }
        self.blanks();
        let found = match self.rest.chars().next() {
            Some('{') => self.several("{", "}"),
            Some('[') => self.several("[", "]"),
            Some('"') => self.quoted('"') && self.more_text(),
            Some('\'') => self.quoted('\''),
            Some(c) if c.is_ascii_lowercase() => self.name(),
            Some(c) if c.is_ascii_digit() => self.number(),
            Some('-' | '+') => {
                self.rest = &self.rest[1..];
                self.blanks();
                self.rest.starts_with(|c: char| c.is_ascii_digit()) && self.number()
            }
            // Maps, binaries, characters and funs are rare and not parsed.
            Some('#' | '<' | '$' | '%') => self.give_up(),
            _ => false,
        };
        self.depth -= 1;
        found
    }

    fn give_up(&mut self) -> bool {
        self.undecided = true;
        false
    }

    fn several(&mut self, open: &str, close: &str) -> bool {
        if !self.take(open) {
            return false;
        }
        if self.take(close) {
            return true;
        }
        loop {
            if !self.term() {
                return false;
            }
            if self.take(close) {
                return true;
            }
            if self.take("|") && close == "]" {
                return self.term() && self.take(close);
            }
            if !self.take(",") {
                return false;
            }
        }
    }

    fn quoted(&mut self, mark: char) -> bool {
        let mut characters = self.rest.char_indices().skip(1);
        while let Some((at, c)) = characters.next() {
            match c {
                '\\' => {
                    characters.next();
                }
                c if c == mark => {
                    self.rest = &self.rest[at + c.len_utf8()..];
                    return true;
                }
                _ => {}
            }
        }
        false
    }

    /// Parses further string literals, because adjacent literals form one string.
    fn more_text(&mut self) -> bool {
        self.blanks();
        while self.rest.starts_with('"') {
            if !self.quoted('"') {
                return false;
            }
            self.blanks();
        }
        true
    }

    fn name(&mut self) -> bool {
        let end = self.rest.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '@')));
        let (name, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        const RESERVED: &[&str] = &[
            "after", "and", "andalso", "band", "begin", "bnot", "bor", "bsl", "bsr", "bxor", "case", "catch",
            "cond", "div", "else", "end", "fun", "if", "let", "maybe", "not", "of", "or", "orelse",
            "receive", "rem", "try", "when", "xor",
        ];
        if RESERVED.contains(&name) {
            return self.give_up();
        }
        self.rest = rest;
        true
    }

    fn number(&mut self) -> bool {
        let digits =
            |text: &str| text.find(|c: char| !(c.is_ascii_digit() || c == '_')).unwrap_or(text.len());
        self.rest = &self.rest[digits(self.rest)..];
        if self.rest.starts_with('#') {
            return self.give_up();
        }
        if let Some(part) =
            self.rest.strip_prefix('.').filter(|part| part.starts_with(|c: char| c.is_ascii_digit()))
        {
            self.rest = &part[digits(part)..];
            if let Some(power) = self.rest.strip_prefix(['e', 'E']) {
                let power = power.strip_prefix(['-', '+']).unwrap_or(power);
                self.rest = &power[digits(power)..];
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn terms_are_distinguished_from_texts_without_quotes() {
        for term in [
            "true",
            "30",
            "-1",
            "1.0",
            "1.5e-3",
            "'a b'",
            "\"/var/lib/x\"",
            "\"a\" \"b\"",
            "\"a\\\"b\"",
            "{127,0,0,1}",
            "[]",
            "{}",
            "[{nodelay,true},{backlog, 1024}]",
            "[{console,[{level,warning}]}]",
            "[a|b]",
            "a@b",
            "inet6_tcp",
            // This syntax is not supported, so the text may be a term.
            "#{a => 1}",
            "<<1>>",
            "16#ff",
            "fun x:y/1",
            "größe",
        ] {
            assert!(!is_not_a_term(term), "{term}");
        }
        for text in [
            "/var/lib/x",
            "{file,log/kernel.log}",
            "a/b",
            "a b",
            "",
            "\n",
            "{a",
            "[a,]",
            "\"open",
            "127.0.0.1",
            "Name",
            "a,b",
            "*@host",
        ] {
            assert!(is_not_a_term(text), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_checked_without_a_panic(text in "[\\[\\]{}|,\"'a1. #<e\\\\é-]{0,40}") {
            is_not_a_term(&text);
        }
    }
}
