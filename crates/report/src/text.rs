//! Formatting of text, numbers and colours for a terminal.

pub use beamtune_model::text::bytes;
use beamtune_model::text::{grouped, is_hidden};
use beamtune_model::{Level, Unit};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Maximum length of a name in characters; longer names are cut.
const NAME_CHARS: usize = 200;

/// Colours and width of the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Whether to use colours and bold text.
    pub colour: bool,
    /// Number of columns; text is wrapped to this width.
    pub width: usize,
}

impl Style {
    /// No colours, 100 columns: for files, pipes and tests.
    pub const PLAIN: Style = Style { colour: false, width: 100 };

    fn paint(self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Renders bold text.
    pub fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    /// Renders less important text.
    pub fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }

    /// Renders text in the colour of good news.
    pub fn good(self, text: &str) -> String {
        self.paint("32", text)
    }

    /// Renders text in the colour of a level.
    pub fn level(self, level: Level, text: &str) -> String {
        self.paint(
            match level {
                Level::Critical => "1;31",
                Level::Warning => "1;33",
                Level::Notice => "36",
            },
            text,
        )
    }
}

/// Makes a text of several lines safe for a terminal: characters for which [`is_hidden`] is true are written as `\u{…}`.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hidden(c) && c != '\n' {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    out
}

/// Makes external text safe for a terminal: characters for which [`is_hidden`] is true are written as `\u{…}`, and long text is cut.
pub fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (count, c) in text.chars().enumerate() {
        if count == NAME_CHARS {
            out.push('…');
            break;
        }
        if is_hidden(c) {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    out
}

/// Cleans each word of a text separately, so that a long text is not cut.
pub fn clean_words(text: &str) -> String {
    text.split(' ').map(clean).collect::<Vec<_>>().join(" ")
}

/// Cleans each part of a path separately, so that a long path is not cut and can still be opened.
pub fn clean_path(path: &str) -> String {
    path.split('/').map(clean).collect::<Vec<_>>().join("/")
}

/// Converts names of Elixir modules in a text to Elixir's notation: `Elixir.MyApp.Worker:init/1` → `MyApp.Worker.init/1`,
/// `{'Elixir.Shop.Cart',7}` → `{Shop.Cart,7}`.
pub fn elixir_name(text: &str) -> String {
    const PREFIX: &str = "Elixir.";
    let is_name = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(PREFIX) {
        let (before, found) = rest.split_at(at);
        out.push_str(before);
        let found = &found[PREFIX.len()..];
        let end = found.find(|c| !is_name(c)).unwrap_or(found.len());
        let (module, after) = found.split_at(end);
        if before.chars().next_back().is_some_and(is_name) || !module.starts_with(char::is_uppercase) {
            out.push_str(PREFIX);
            rest = found;
            continue;
        }
        rest = after;
        // In Erlang's notation, the atom of such a module is quoted.
        if out.ends_with('\'') && after.starts_with('\'') {
            out.pop();
            rest = &after[1..];
        }
        out.push_str(module);
        if let Some(function) = rest.strip_prefix(':')
            && function.starts_with(|c: char| c.is_lowercase() || c == '_' || c == '\'')
        {
            out.push('.');
            rest = function;
        }
    }
    out.push_str(rest);
    out
}

/// Replaces compiler-generated names of funs and comprehensions in a text by the function that contains them: `shop:-sum/1-fun-0-/2` →
/// `a fun in shop:sum/1`, `shop:-sum/1-lc$^0/1-0-/2` → `a list comprehension in shop:sum/1`.
pub fn written_in(text: &str) -> String {
    let is_module = |c: char| c.is_alphanumeric() || c == '_' || c == '.' || c == '@';
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(":-") {
        let (before, made) = rest.split_at(at);
        let start = before
            .rfind(|c| !is_module(c))
            .map_or(0, |at| at + before[at..].chars().next().map_or(1, char::len_utf8));
        let (before, module) = before.split_at(start);
        out.push_str(before);
        match GeneratedFunction::parse(&made[2..]).filter(|_| !module.is_empty()) {
            Some(made) => {
                out.push_str(&format!("{} in {module}:{}", made.what, made.function));
                rest = made.rest;
            }
            None => {
                out.push_str(module);
                out.push_str(":-");
                rest = &made[2..];
            }
        }
    }
    out.push_str(rest);
    out
}

/// A function that the compiler has generated from a part of another function.
struct GeneratedFunction<'a> {
    what: String,
    /// The function that contains this part: `sum/1`.
    function: &'a str,
    /// The text after the name.
    rest: &'a str,
}

impl<'a> GeneratedFunction<'a> {
    /// Parses the name at the start of a text: `sum/1-fun-0-/2`. Names are as in OTP's `v3_core.erl` and `sys_core_inline.erl`.
    fn parse(text: &'a str) -> Option<Self> {
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let slash = text.find('/').filter(|at| *at > 0)?;
        let arity = digits(&text[slash + 1..]);
        let function = &text[..slash + 1 + arity];
        let part = text[function.len()..].strip_prefix('-').filter(|_| arity > 0)?;
        let end = part.find("-/")?;
        let (part, rest) = part.split_at(end);
        let own_arity = digits(&rest[2..]);
        if own_arity == 0 || text[..slash].contains([' ', ':', ';', ',']) || part.contains(' ') {
            return None;
        }
        let what = match part.split_once(['-', '^', '$']) {
            Some(("lc", _)) => "a list comprehension".to_owned(),
            Some(("lbc" | "bc", _)) => "a binary comprehension".to_owned(),
            Some(("mc", _)) => "a map comprehension".to_owned(),
            Some(("lists", inlined)) => format!("lists:{}", inlined.split('/').next().unwrap_or_default()),
            _ => "a fun".to_owned(),
        };
        Some(GeneratedFunction { what, function, rest: &rest[2 + own_arity..] })
    }
}

/// Prepares a text for the terminal: readable names of funs, Elixir's notation for Elixir modules, each word cleaned.
pub fn sentence(text: &str) -> String {
    exact_sentence(&written_in(text))
}

/// Like [`sentence`], but keeps exact function names, as in a trace or in `process_info/2`.
pub fn exact_sentence(text: &str) -> String {
    clean_words(&elixir_name(text))
}

/// Formats a value with its unit for people: `1.2 GB`, `0.38 cores`, `38 %`, `1,200/s`.
pub fn value(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Bytes => bytes(value),
        Unit::Ratio => format!("{} %", decimal(value * 100.0)),
        Unit::Permille => format!("{} %", decimal(value / 10.0)),
        Unit::Cores => format!("{value:.2} cores"),
        Unit::PerSecond => format!("{}/s", decimal(value)),
        Unit::Seconds => seconds(value),
        Unit::Nanoseconds => seconds(value / 1e9),
        Unit::Words => bytes(value * 8.0),
        Unit::Count | Unit::Reductions | Unit::PerfCounter | Unit::NativeTime => decimal(value),
    }
}

/// Formats a share with one decimal: `98.2 %`; empty if unknown.
pub fn share(share: Option<f64>) -> String {
    share.map_or(String::new(), |share| format!("{:.1} %", share * 100.0))
}

/// Formats a number with thousands separators; small numbers keep decimals.
pub fn decimal(value: f64) -> String {
    if !value.is_finite() {
        return "?".to_owned();
    }
    if value.abs() < 100.0 && value.fract() != 0.0 {
        return if value.abs() < 1.0 { format!("{value:.2}") } else { format!("{value:.1}") };
    }
    grouped(value)
}

/// Formats a duration: `350 µs`, `40 s`, `12 min`, `3.5 h`, `2.1 days`.
pub fn seconds(value: f64) -> String {
    match value.abs() {
        v if v < 1e-3 => format!("{:.0} µs", value * 1e6),
        v if v < 1.0 => format!("{:.0} ms", value * 1e3),
        v if v < 10.0 => format!("{value:.1} s"),
        v if v < 120.0 => format!("{value:.0} s"),
        v if v < 7_200.0 => format!("{:.0} min", value / 60.0),
        v if v < 172_800.0 => format!("{:.1} h", value / 3_600.0),
        _ => format!("{:.1} days", value / 86_400.0),
    }
}

/// Returns the number of columns that a text takes on a terminal.
pub fn width(text: &str) -> usize {
    text.width()
}

/// Returns the beginning of a text, in at most `width` columns.
fn beginning(text: &str, width: usize) -> &str {
    let mut columns = 0;
    let end = text.char_indices().find(|(_, c)| {
        columns += c.width().unwrap_or(0);
        columns > width
    });
    end.and_then(|(end, _)| text.get(..end)).unwrap_or(text)
}

/// Number of cells in a bar.
pub const BAR_CELLS: usize = 20;

/// Renders a share, 0 to 1, as a bar.
pub fn bar(share: f64) -> String {
    let filled = ((share * BAR_CELLS as f64).round() as usize).min(BAR_CELLS);
    format!("{}{}", "█".repeat(filled), "░".repeat(BAR_CELLS - filled))
}

/// Wraps text at spaces so that no line is longer than `width`, with `indent` before each line except the first.
pub fn wrap(text: &str, width: usize, indent: &str) -> String {
    let mut out = String::new();
    let mut column = 0;
    for word in text.split(' ') {
        let length = word.width();
        if column > 0 && column + 1 + length > width {
            out.push('\n');
            out.push_str(indent);
            column = 0;
        } else if column > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
    }
    out
}

/// Wraps text at spaces into at most `max_lines` lines of `width`. If text is left out at the end, `…` marks this. Empty text has no lines.
pub fn lines(text: &str, width: usize, max_lines: usize) -> Vec<String> {
    if text.is_empty() || max_lines == 0 {
        return Vec::new();
    }
    let wrapped = wrap(text, width, "");
    let mut lines: Vec<String> = wrapped.lines().take(max_lines).map(str::to_owned).collect();
    let is_cut = wrapped.lines().nth(max_lines).is_some();
    if let Some(last) = lines.last_mut() {
        let is_wide = last.width() > width;
        if is_cut || (is_wide && max_lines == 1) {
            *last = beginning(last, width.saturating_sub(1)).to_owned();
            last.truncate(last.trim_end_matches([' ', ',', ';', ':']).len());
            last.push('…');
        }
    }
    lines
}

/// Like [`lines`], but leaves out whole clauses at the end, without a mark. `None` if not even the first clause fits.
pub fn whole_clauses(text: &str, width: usize, max_lines: usize) -> Option<Vec<String>> {
    let fits = |text: &str| {
        let wrapped = wrap(text, width, "");
        wrapped.lines().count() <= max_lines && (max_lines > 1 || wrapped.width() <= width)
    };
    if fits(text) {
        return Some(lines(text, width, max_lines));
    }
    let ends = clause_ends(text).into_iter().rev();
    let clause = ends.filter_map(|end| text.get(..end)).find(|text| fits(text))?;
    Some(lines(clause, width, max_lines))
}

/// Like [`whole_clauses`], but if not even the first clause fits, the text is cut within it.
pub fn clauses(text: &str, width: usize, max_lines: usize) -> Vec<String> {
    whole_clauses(text, width, max_lines).unwrap_or_else(|| lines(text, width, max_lines))
}

/// Returns the positions at which a text may end early: before a semicolon, full stop, colon or parenthesis, or before a comma with a
/// conjunction; never within brackets.
fn clause_ends(text: &str) -> Vec<usize> {
    const SEPARATORS: [&str; 7] = ["; ", ". ", " (", ", or ", ", and ", ", but ", ": "];
    let mut depth = 0_usize;
    let mut ends = Vec::new();
    for (at, c) in text.char_indices() {
        let rest = text.get(at..).unwrap_or_default();
        if depth == 0 && at > 0 && SEPARATORS.iter().any(|separator| rest.starts_with(separator)) {
            ends.push(at);
        }
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    ends
}

/// Converts text for a terminal without UTF-8: symbols that beamtune itself prints get an ASCII form, all other characters are escaped.
pub fn ascii(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            c if c.is_ascii() => out.push(c),
            '·' | '–' | '−' => out.push('-'),
            '…' => out.push_str("..."),
            '→' => out.push_str("->"),
            '←' => out.push_str("<-"),
            '▁'..='▇' => out.push('|'),
            '×' => out.push('x'),
            'µ' => out.push('u'),
            '≤' => out.push_str("<="),
            '≥' => out.push_str(">="),
            '±' => out.push_str("+-"),
            '█' => out.push('#'),
            '░' => out.push('.'),
            c => out.extend(c.escape_unicode()),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn values_are_readable() {
        let check = |number, unit, expect: &str| assert_eq!(value(number, unit), expect);
        check(1_234_567_890.0, Unit::Bytes, "1.23 GB");
        check(999.0, Unit::Bytes, "999 B");
        check(0.384, Unit::Ratio, "38.4 %");
        check(0.384, Unit::Cores, "0.38 cores");
        check(1_200.0, Unit::PerSecond, "1,200/s");
        check(0.25, Unit::PerSecond, "0.25/s");
        check(1_234_567.0, Unit::Count, "1,234,567");
        check(-1_234.0, Unit::Count, "-1,234");
        check(12.0, Unit::Count, "12");
        check(0.000_35, Unit::Seconds, "350 µs");
        check(100_000.0, Unit::Seconds, "27.8 h");
        check(f64::NAN, Unit::Count, "?");
    }

    #[test]
    fn external_text_cannot_control_the_terminal() {
        assert_eq!(clean("a\x1b[31mred"), "a\\u{1b}[31mred");
        assert_eq!(escape("two\nlines\r\u{9b}2J"), "two\nlines\\u{d}\\u{9b}2J");
        assert_eq!(clean("\u{202e}evil"), "\\u{202e}evil");
        assert_eq!(clean(&"x".repeat(500)).chars().count(), NAME_CHARS + 1);
    }

    #[test]
    fn elixir_modules_lose_their_prefix() {
        let check = |text: &str, expect: &str| assert_eq!(sentence(text), expect);
        check(
            "the process Elixir.MyApp.Worker:init/1 (<0.1.0>) grows",
            "the process MyApp.Worker.init/1 (<0.1.0>) grows",
        );
        check("in gen_server:loop/7", "in gen_server:loop/7");
        check("(Elixir.Registry)", "(Registry)");
        check("{'Elixir.Shop.Cart',<<\"7\">>}", "{Shop.Cart,<<\"7\">>}");
        check("['Elixir.A','Elixir.B':'-run/0-fun-0-'/1]", "[A,B.'-run/0-fun-0-'/1]");
        check("Elixir.Shop: 5 messages", "Shop: 5 messages");
        check("my_Elixir.Shop and Elixir. and Elixir.x", "my_Elixir.Shop and Elixir. and Elixir.x");
    }

    #[test]
    fn funs_are_named_by_the_function_that_contains_them() {
        let check = |text: &str, expect: &str| assert_eq!(sentence(text), expect);
        check("child of mail:-start/2-fun-1-/0", "child of a fun in mail:start/2");
        check("wait in desk:-open/1-lc$^0/1-0-/4; they", "wait in a list comprehension in desk:open/1; they");
        check("Elixir.Shop.Cart:-add/3-fun-0-/1 (<0.9.0>)", "a fun in Shop.Cart.add/3 (<0.9.0>)");
        check(
            "map:-draw/1-mc$^0/1-0-/2, x:-y/0-lbc$^1/2-0-/2",
            "a map comprehension in map:draw/1, a binary comprehension in x:y/0",
        );
        check("in web:-stop/1-lists^foreach/1-0-/1", "in lists:foreach in web:stop/1");
        check("named: web:-serve/2-Loop/1-0-/3", "named: a fun in web:serve/2");
        // Not the name of a fun.
        check("a :-) and b:-c and d:-e/f-g-/h", "a :-) and b:-c and d:-e/f-g-/h");
        check("é:-f/1-fun-0-/1", "a fun in é:f/1");
        assert_eq!(exact_sentence("mail:-start/2-fun-1-/0"), "mail:-start/2-fun-1-/0");
    }

    #[test]
    fn wrapping_keeps_words_and_width() {
        assert_eq!(wrap("aa bb cc", 5, "  "), "aa bb\n  cc");
        assert_eq!(wrap("toolongword b", 5, ""), "toolongword\nb");
    }

    #[test]
    fn number_of_lines_is_limited() {
        assert_eq!(lines("aa bb cc dd", 5, 2), ["aa bb", "cc dd"]);
        assert_eq!(lines("aa bb, cc dd", 6, 1), ["aa bb…"]);
        assert_eq!(lines("unbreakable", 5, 1), ["unbr…"]);
        assert!(lines("", 5, 3).is_empty() && lines("a", 5, 0).is_empty());
    }

    #[test]
    fn width_is_that_of_the_terminal() {
        assert_eq!(width("abc"), 3);
        assert_eq!(width("注文"), 4);
        assert_eq!(wrap("注文 注文", 8, ""), "注文\n注文");
        assert_eq!(lines("注文サーバ", 5, 1), ["注文…"]);
    }

    #[test]
    fn a_long_text_ends_with_a_clause() {
        let check = |text: &str, max_lines, expect: &[&str]| {
            assert_eq!(clauses(text, 20, max_lines), expect, "{text}");
        };
        check("close the port; or restart the node", 1, &["close the port"]);
        check("raise the quota above 2 cores (systemd: CPUQuota=)", 2, &["raise the quota", "above 2 cores"]);
        check("set {active, once}, or read; then write it", 1, &["set {active, once}"]);
        check("short; enough", 1, &["short; enough"]);
        // No clause fits.
        check("one_name_that_goes_on_and_on", 1, &["one_name_that_goes_…"]);
    }

    #[test]
    fn text_without_utf8_is_readable() {
        assert_eq!(ascii("a · 3 µs → 4 … ██░"), "a - 3 us -> 4 ... ##.");
        assert_eq!(ascii("Zürich"), "Z\\u{fc}rich");
    }

    proptest! {
        #[test]
        fn cleaned_text_has_no_hidden_characters(text in ".{0,300}") {
            prop_assert!(!clean(&text).chars().any(is_hidden));
        }

        #[test]
        fn arbitrary_names_do_not_panic(text in "([a-zé:/0-9$^-]|fun|lc| ){0,40}") {
            prop_assert!(written_in(&text).len() <= 4 * text.len() + 40);
        }

        #[test]
        fn wrapping_loses_no_word(words in prop::collection::vec("[a-z]{1,12}", 1..30), width in 5..40_usize) {
            let text = words.join(" ");
            let wrapped = wrap(&text, width, "   ");
            prop_assert_eq!(wrapped.split_whitespace().collect::<Vec<_>>(), words);
        }
    }
}
