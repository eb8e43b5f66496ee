//! Splits a text into words with their positions. Text copied from a web page or a terminal contains various kinds of spaces and colour
//! codes; all of these separate words.

use std::collections::VecDeque;

/// Maximum length of a quoted atom. An atom has at most 255 characters, some of which may be escaped.
const MAX_QUOTED_CHARS: usize = 600;

/// Maximum length of a word. A prompt contains a node name of at most 255 characters, and a few other characters.
const MAX_WORD_CHARS: usize = 300;

/// Maximum number of marks in a histogram; lcnt prints 30 between vertical bars.
const MAX_MARKS: usize = 64;

/// A word of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token<'a> {
    /// The characters up to the next space. A quoted atom with its spaces is one word, and so is a histogram with its bars.
    pub text: &'a str,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// Position of the word in the text, in bytes.
    pub begin: usize,
    /// Position of its line in the text, in bytes.
    pub line_begin: usize,
    /// Whether only white space precedes it on its line.
    pub is_first: bool,
}

/// All words, read on demand.
#[derive(Debug)]
pub struct Tokens<'a> {
    text: &'a str,
    at: usize,
    line: usize,
    line_begin: usize,
    /// Number of characters of the line before `at`.
    column: usize,
    /// Whether these are only white space.
    is_blank: bool,
    ahead: VecDeque<Token<'a>>,
}

impl<'a> Tokens<'a> {
    pub fn new(text: &'a str) -> Self {
        Tokens { text, at: 0, line: 1, line_begin: 0, column: 0, is_blank: true, ahead: VecDeque::new() }
    }

    /// Returns the whole text.
    pub fn source(&self) -> &'a str {
        self.text
    }

    /// Returns the word that is `n` words ahead; `None` at the end of the text.
    pub fn peek(&mut self, n: usize) -> Option<Token<'a>> {
        while self.ahead.len() <= n {
            let token = self.scan()?;
            self.ahead.push_back(token);
        }
        self.ahead.get(n).copied()
    }

    /// Returns the text of the word that is `n` words ahead; empty at the end of the text.
    pub fn word(&mut self, n: usize) -> &'a str {
        self.peek(n).map_or("", |token| token.text)
    }

    /// Skips `n` words.
    pub fn skip(&mut self, n: usize) {
        for _ in 0..n {
            if self.peek(0).is_none() {
                return;
            }
            self.ahead.pop_front();
        }
    }

    /// Counts the words up to the end of the line.
    pub fn left_in_line(&mut self) -> usize {
        let Some(first) = self.peek(0) else { return 0 };
        (0..).take_while(|n| self.peek(*n).is_some_and(|token| token.line == first.line)).count()
    }

    /// Returns the line of a word, without trailing white space.
    pub fn line_of(&self, token: Token<'a>) -> &'a str {
        let rest = &self.text[token.line_begin..];
        rest.find('\n').map_or(rest, |end| &rest[..end]).trim_end()
    }

    fn scan(&mut self) -> Option<Token<'a>> {
        self.skip_spaces();
        let rest = &self.text[self.at..];
        let length = word_length(rest);
        if length == 0 {
            return None;
        }
        let token = Token {
            text: &rest[..length],
            line: self.line,
            column: self.column + 1,
            begin: self.at,
            line_begin: self.line_begin,
            is_first: self.is_blank,
        };
        self.is_blank = false;
        self.column += token.text.chars().count();
        self.at += length;
        Some(token)
    }

    fn skip_spaces(&mut self) {
        let mut is_quoting = self.at == 0;
        while let Some(c) = self.text[self.at..].chars().next() {
            let Some(length) = space(&self.text[self.at..], &mut is_quoting) else { return };
            self.column += self.text[self.at..self.at + length].chars().count();
            self.at += length;
            // Quote marks and colour codes are not white space here.
            self.is_blank &= c.is_whitespace();
            if c == '\n' {
                self.line += 1;
                self.line_begin = self.at;
                self.column = 0;
                self.is_blank = true;
            }
        }
    }
}

/// Skips spaces, if there are any at `from`.
pub fn skip_spaces(text: &str, from: usize) -> usize {
    let mut at = from;
    let mut is_quoting = at == 0;
    while let Some(length) = space(&text[at..], &mut is_quoting) {
        at += length;
    }
    at
}

/// Returns the end of these consecutive words, if they are at `begin`.
pub fn match_words(text: &str, begin: usize, words: &[&str]) -> Option<usize> {
    let mut at = begin;
    for (n, word) in words.iter().enumerate() {
        if n > 0 {
            at = skip_spaces(text, at);
        }
        at += text[at..].starts_with(word).then_some(word.len())?;
    }
    Some(at)
}

/// Returns the next word and its end: a space, or [`MAX_WORD_CHARS`] characters later. The limit is needed because callers request the word
/// at every position.
pub fn word(text: &str, from: usize) -> (&str, usize) {
    let begin = skip_spaces(text, from);
    let is_end =
        |(n, (_, c)): &(usize, (usize, char))| *n == MAX_WORD_CHARS || is_space(*c) || *c == '\u{1b}';
    let end = text[begin..].char_indices().enumerate().find(is_end);
    let end = end.map_or(text.len(), |(_, (end, _))| begin + end);
    (&text[begin..end], end)
}

/// Returns the position of a pattern in a text, if it begins within the first `max` bytes.
pub fn find_within(text: &str, pattern: &str, max: usize) -> Option<usize> {
    (0..=max).find(|at| text.get(*at..).is_some_and(|rest| rest.starts_with(pattern)))
}

/// Returns the number of bytes of the space at the beginning of `rest`; `None` if it begins with a word. `is_quoting` means that there was
/// no word on this line yet, so `>` is the quote mark of a mail.
fn space(rest: &str, is_quoting: &mut bool) -> Option<usize> {
    match rest.chars().next()? {
        '\u{1b}' => Some(escape(rest)),
        '>' if *is_quoting => Some(1),
        c if is_space(c) => {
            *is_quoting |= c == '\n';
            Some(c.len_utf8())
        }
        _ => None,
    }
}

/// Whether a character is white space, including that of web pages, or invisible.
pub fn is_space(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\u{200b}' | '\u{feff}' | '\u{ad}')
}

/// Returns the number of bytes of the terminal control sequence at the beginning of `rest`.
fn escape(rest: &str) -> usize {
    let bytes = rest.as_bytes();
    if bytes.get(1) != Some(&b'[') {
        return 1;
    }
    let end = bytes.iter().skip(2).take(32).position(|byte| (0x40..=0x7e).contains(byte));
    end.map_or(1, |end| end + 3)
}

/// Returns the number of bytes of the word at the beginning of `rest`.
fn word_length(rest: &str) -> usize {
    if rest.starts_with('|') {
        return histogram(rest).unwrap_or(1);
    }
    let mut before = None;
    let mut at = 0;
    while let Some(c) = rest[at..].chars().next() {
        if is_space(c) || matches!(c, '|' | '\u{1b}') {
            break;
        }
        let may_open = before.is_none_or(|before| matches!(before, '(' | '[' | '{' | ',' | ':'));
        let length = if c == '\'' && may_open { quoted(&rest[at..]) } else { None };
        at += length.unwrap_or(c.len_utf8());
        before = Some(c);
    }
    at
}

/// Returns the number of bytes of the quoted atom at the beginning of `rest`, including quotes; `None` if it does not end on its line.
pub fn quoted(rest: &str) -> Option<usize> {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1).take(MAX_QUOTED_CHARS) {
        match c {
            '\n' => return None,
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '\'' => return Some(at + 1),
            _ => {}
        }
    }
    None
}

/// Returns the number of bytes of the histogram at the beginning of `rest`, including bars.
pub fn histogram(rest: &str) -> Option<usize> {
    for (at, c) in rest.char_indices().skip(1).take(MAX_MARKS + 1) {
        match c {
            '|' => return Some(at + 1),
            '.' | 'x' | 'X' => {}
            c if is_space(c) && c != '\n' => {}
            _ => return None,
        }
    }
    None
}

/// Returns an atom without its quotes.
pub fn unquoted(atom: &str) -> String {
    match atom.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')) {
        Some(inner) => unescaped(inner),
        None => atom.to_owned(),
    }
}

/// Removes the escapes in a quoted atom.
pub fn unescaped(inner: &str) -> String {
    let mut out = String::with_capacity(inner.len());
    let mut letters = inner.chars();
    while let Some(c) = letters.next() {
        match c {
            '\\' => out.extend(letters.next()),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<(&str, usize, usize)> {
        let mut tokens = Tokens::new(text);
        let mut words = Vec::new();
        while let Some(token) = tokens.peek(0) {
            words.push((token.text, token.line, token.column));
            tokens.skip(1);
        }
        words
    }

    #[test]
    fn words_have_positions() {
        assert_eq!(words("a  bé\r\n c"), [("a", 1, 1), ("bé", 1, 4), ("c", 2, 2)]);
        assert_eq!(words("\u{a0}a\u{200b}b\x1b[31mc\x1b[0m"), [("a", 1, 2), ("b", 1, 4), ("c", 1, 10)]);
        assert_eq!(words(""), []);
        assert_eq!(words(" \n "), []);
    }

    #[test]
    fn quote_marks_of_mails_are_not_words() {
        assert_eq!(words("> a > b\n>> c\n"), [("a", 1, 3), (">", 1, 5), ("b", 1, 7), ("c", 2, 4)]);
        assert_eq!(skip_spaces("a\n > > b", 1), 7);
        assert_eq!(skip_spaces("a > b", 1), 2);
    }

    #[test]
    fn quoted_atoms_and_histograms_are_one_word_if_they_end_on_their_line() {
        let texts = |text| words(text).into_iter().map(|word| word.0).collect::<Vec<_>>();
        assert_eq!(texts("db_tab 'my table' 1"), ["db_tab", "'my table'", "1"]);
        assert_eq!(texts("'beam/erl_db.c':1809 2"), ["'beam/erl_db.c':1809", "2"]);
        assert_eq!(texts("'it\\'s' don't 'open\nend'"), ["'it\\'s'", "don't", "'open", "end'"]);
        assert_eq!(texts("0.1|. x X | 2"), ["0.1", "|. x X |", "2"]);
        assert_eq!(texts("12 | #### |"), ["12", "|", "####", "|"]);
    }

    #[test]
    fn the_line_of_a_word_is_found() {
        let mut tokens = Tokens::new("one two\n  three four \n");
        tokens.skip(3);
        let four = tokens.peek(0).expect("a word");
        assert_eq!(tokens.line_of(four), "  three four");
        assert_eq!(tokens.left_in_line(), 1);
    }

    #[test]
    fn words_have_a_maximum_length() {
        let long = "é".repeat(1_000);
        assert_eq!(word(&long, 0).0.chars().count(), MAX_WORD_CHARS);
        assert_eq!(word(" short one", 0), ("short", 6));
        assert_eq!(find_within("12.34%", "%", 6), Some(5));
        assert_eq!(find_within("é12.34%", "%", 6), None);
        assert_eq!(find_within("12", "%", 6), None);
    }

    #[test]
    fn quotes_of_atoms_are_removed() {
        assert_eq!(unquoted("'esock.r[17]'"), "esock.r[17]");
        assert_eq!(unquoted("'it\\'s \\\\'"), "it's \\");
        assert_eq!(unquoted("db_tab"), "db_tab");
    }
}
