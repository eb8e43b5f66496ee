//! Splits a text into words by the rules of the program that reads it.
//!
//! The launcher `erlexec` parses args files and its variables by the same rules. Source: `build_args_from_string` in
//! `erts/etc/common/erlexec.c`, identical from OTP 23 to 27; a test checks OTP 29. Six bytes are white space. Within single or double
//! quotes, all characters are literal, including backslashes. Outside quotes, a backslash escapes the next character, even a newline. In
//! args files, but not in variables, `#` starts a comment, even in the middle of a word. Some products put an unquoted variable on the
//! command line of `erl`: the shell then splits the value and does not process quotes in it.

use std::ops::Range;

use super::layer::{Layer, Tag, next};
use super::lines::line_end;
use super::quote::Style;

/// The rules by which a text is split into words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Split {
    /// `erlexec` splits an args file, which may contain comments.
    ArgsFile,
    /// `erlexec` splits a variable such as `ERL_FLAGS`.
    Variable,
    /// A shell splits an unquoted variable: only white space separates words.
    Fields,
    /// The text is one word.
    Whole,
    /// The program that starts the command splits it by its own rules.
    Command(Style),
}

/// A word in a layer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) text: String,
    /// The byte range in the layer, including quotes.
    pub(crate) range: Range<usize>,
    pub(crate) dynamic: bool,
}

/// A quote that is never closed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unclosed {
    pub(crate) at: usize,
    pub(crate) quote: char,
}

/// Splits a layer into words.
pub(crate) fn split(layer: &Layer, split: Split) -> Result<Vec<Piece>, Unclosed> {
    let mut words = Vec::new();
    if split == Split::Whole {
        let text = layer.text();
        let begin = text.len() - text.trim_start().len();
        let range = begin..begin + text.trim().len();
        if !range.is_empty() {
            let dynamic = layer.tags_in(&range).iter().any(|tag| !tag.silent);
            words.push(Piece { text: layer.slice(range.clone()).to_owned(), range, dynamic });
        }
        return Ok(words);
    }
    let bytes = layer.scan().as_bytes();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match byte {
            // A control tag may precede a word without a space in between.
            b'x' if layer.tag_at(at).is_some_and(|tag| tag.silent) => at = next(layer, at),
            byte if is_space(*byte, split) => at += 1,
            b'#' if split == Split::ArgsFile => {
                at = line_end(bytes, at);
            }
            _ => {
                let word = word(layer, split, at)?;
                at = word.range.end;
                words.push(word);
            }
        }
    }
    Ok(words)
}

fn is_space(byte: u8, split: Split) -> bool {
    match split {
        Split::Fields => matches!(byte, b' ' | b'\t' | b'\n'),
        _ => matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | b'\x0b' | b'\x0c'),
    }
}

/// Returns the word that begins at `begin`.
fn word(layer: &Layer, split: Split, begin: usize) -> Result<Piece, Unclosed> {
    let bytes = layer.scan().as_bytes();
    let quotes = split != Split::Fields;
    let mut piece = Piece { text: String::new(), range: begin..begin, dynamic: false };
    let mut quote: Option<(usize, u8)> = None;
    // A control tag belongs to the word if the word continues after it.
    let mut after_silent = false;
    let mut at = begin;
    while let Some(byte) = bytes.get(at).copied() {
        let end = next(layer, at);
        if let Some(Tag { silent, .. }) = layer.tag_at(at) {
            if *silent && quote.is_none() {
                after_silent = true;
            } else {
                piece.text.push_str(layer.slice(at..end));
                piece.dynamic = true;
                piece.range.end = end;
            }
            at = end;
            continue;
        }
        let mut taken = at..end;
        match quote {
            Some((_, open)) if byte == open => {
                quote = None;
                taken = end..end;
            }
            Some(_) => {}
            None if is_space(byte, split) || byte == b'#' && split == Split::ArgsFile => break,
            None if quotes && matches!(byte, b'"' | b'\'') => {
                quote = Some((at, byte));
                taken = end..end;
            }
            // A backslash at the end of the text is dropped.
            None if quotes && byte == b'\\' => {
                let escaped = next(layer, end);
                piece.dynamic |= layer.tag_at(end).is_some();
                taken = end..escaped;
            }
            None => {}
        }
        piece.dynamic |= after_silent;
        piece.text.push_str(layer.slice(taken.clone()));
        at = taken.end;
        piece.range.end = at;
    }
    match quote {
        Some((at, quote)) => Err(Unclosed { at, quote: char::from(quote) }),
        None => Ok(piece),
    }
}

/// Quotes a text so that it is parsed as one word; `None` if that is impossible.
pub(crate) fn quoted(text: &str, split: Split) -> Option<String> {
    // NUL would end the text; no flag contains other control characters.
    if text.chars().any(char::is_control) {
        return None;
    }
    match split {
        Split::Command(style) => style.write(text),
        Split::Whole => (!text.is_empty() && text.trim() == text).then(|| text.to_owned()),
        Split::Fields => (!text.is_empty() && !text.contains(' ')).then(|| text.to_owned()),
        Split::ArgsFile | Split::Variable => {
            let plain = |c: char| !matches!(c, ' ' | '"' | '\'' | '\\' | '#');
            let word = match text {
                text if !text.is_empty() && text.chars().all(plain) => text.to_owned(),
                text if !text.contains('"') => format!("\"{text}\""),
                text if !text.contains('\'') => format!("'{text}'"),
                text => {
                    let mut word = String::new();
                    for c in text.chars() {
                        if !plain(c) {
                            word.push('\\');
                        }
                        word.push(c);
                    }
                    word
                }
            };
            Some(word)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str, rules: Split) -> Vec<String> {
        let layer = Layer::file(text, Vec::new(), Vec::new());
        let words = split(&layer, rules).unwrap_or_else(|unclosed| panic!("{text:?}: {unclosed:?}"));
        words.into_iter().map(|word| word.text).collect()
    }

    #[test]
    fn args_files_are_split_as_by_the_launcher() {
        let check =
            |text: &str, expect: &[&str]| assert_eq!(words(text, Split::ArgsFile), expect, "{text:?}");
        check("", &[]);
        check(" \r\n\t\u{b}\u{c}", &[]);
        check("+P 100\n# a comment 'with quotes\n+Q 200", &["+P", "100", "+Q", "200"]);
        check("pa#ss\nb", &["pa", "b"]);
        check("'pa#ss' \"#\" \\#x", &["pa#ss", "#", "#x"]);
        check(r#"-a "b c"'d "e"'\ f"#, &["-a", "b cd \"e\" f"]);
        check(r#""\"x"#, &["\\x"]);
        check("\"\" ''", &["", ""]);
        check("-x \\\n+P 1", &["-x", "\n+P", "1"]);
        check("a\\", &["a"]);
        check("\\", &[""]);
        check("a\u{a0}b\u{85}c", &["a\u{a0}b\u{85}c"]);
        check("\u{feff}+P 1", &["\u{feff}+P", "1"]);
    }

    #[test]
    fn variables_have_no_comments() {
        assert_eq!(words("+P 100 #x a#b", Split::Variable), ["+P", "100", "#x", "a#b"]);
    }

    #[test]
    fn unquoted_variable_is_split_only_at_white_space() {
        assert_eq!(words("-x \"a b\"\t'c'\n\\d \r", Split::Fields), ["-x", "\"a", "b\"", "'c'", "\\d", "\r"]);
    }

    #[test]
    fn unclosed_quote_is_reported_with_its_position() {
        let layer = Layer::file("-a 'b' \"c d", Vec::new(), Vec::new());
        assert_eq!(split(&layer, Split::ArgsFile), Err(Unclosed { at: 7, quote: '"' }));
    }

    #[test]
    fn quotes_and_spaces_within_a_tag_do_not_end_a_word() {
        let text = "-name <%= f(\"a b\") %>@h <% if x do %>+P 1<% end %> +<% if y do %>Q<% end %> 2";
        let tag = |piece: &str, silent: bool, from: usize| {
            let start = from + text[from..].find(piece).expect(piece);
            Tag { range: start..start + piece.len(), silent }
        };
        let tags = vec![
            tag("<%= f(\"a b\") %>", false, 0),
            tag("<% if x do %>", true, 0),
            tag("<% end %>", true, 0),
            tag("<% if y do %>", true, 0),
            tag("<% end %>", true, 60),
        ];
        let layer = Layer::file(text, tags, Vec::new());
        let words = split(&layer, Split::ArgsFile).expect("no quotes");
        let shown: Vec<_> = words.iter().map(|word| (word.text.as_str(), word.dynamic)).collect();
        assert_eq!(
            shown,
            [
                ("-name", false),
                ("<%= f(\"a b\") %>@h", true),
                ("+P", false),
                ("1", false),
                ("+Q", true),
                ("2", false)
            ]
        );
        assert_eq!(&text[words[3].range.clone()], "1");
    }

    #[test]
    fn quoted_word_is_parsed_to_the_original_text() {
        for text in ["", "none", "a b", "it's", "say \"x\"", "it's \"x y\" \\ #", "#", "\\", "é"] {
            for rules in [Split::ArgsFile, Split::Variable] {
                let word = quoted(text, rules).expect(text);
                assert_eq!(words(&word, rules), [text], "{word:?}");
            }
        }
        assert_eq!(quoted("a\0b", Split::ArgsFile), None);
        assert_eq!(quoted("a b", Split::Fields), None);
        assert_eq!(quoted(" a", Split::Whole), None);
    }
}
