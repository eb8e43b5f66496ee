//! Determines whether printed text is the plain and complete result of a call, from the statement around the call.
//!
//! `rp(recon_alloc:fragmentation(current))` returns the whole list, but `tl(recon_alloc:fragmentation(current))` only a part of it. For
//! `{recon_alloc:fragmentation(max), recon_alloc:fragmentation(current)}`, assigning the lists to the calls would need a parser of the
//! language. Only brackets and the names before them are examined here.

use crate::answers::Call;
use crate::call::is_prompt;
use crate::text::{is_space, word};

/// Maximum length of a call, and of the part of its statement before it, in bytes.
pub const MAX_CALL_BYTES: usize = 400;

/// Functions that print, write or return their argument unchanged, or apply a function, possibly on another node.
const PRINTERS: [&str; 28] = [
    "rp",
    "eval",
    "io:format",
    "io:fwrite",
    "io_lib:format",
    "io_lib:fwrite",
    "io.format",
    "io.fwrite",
    "IO.inspect",
    "IO.puts",
    "inspect",
    "Kernel.inspect",
    "erlang:display",
    "erlang.display",
    "msacc:print",
    "msacc.print",
    "rpc:call",
    "rpc.call",
    "erpc:call",
    "erpc.call",
    "apply",
    "erlang:apply",
    "erlang.apply",
    "Kernel.apply",
    "file:write_file",
    "file.write_file",
    "File.write",
    "File.write!",
];

/// Words without brackets that may precede a call.
const BARE_WORDS: [&str; 4] = ["IO.inspect", "inspect", "catch", "begin"];

/// Operators that transform the value after them.
const OPERATORS: [&str; 4] = ["<-", "||", "--", "++"];

/// Infix operators on numbers that are words.
const WORD_OPERATORS: [&str; 7] = ["div", "rem", "bsl", "bsr", "band", "bor", "bxor"];

/// The part of a statement before a call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StatementPrefix {
    /// Position of the statement in the text, in bytes.
    pub begin: usize,
    /// Number of open brackets.
    open: usize,
    /// Whether one of the open brackets belongs to a printing function.
    prints: bool,
    /// Whether the statement transforms the result of the call.
    pub alters: bool,
}

impl StatementPrefix {
    /// Reads the text before a call at `at`; its statement does not begin before `from`.
    pub fn read(text: &str, from: usize, at: usize) -> StatementPrefix {
        let (begin, has_prompt) = statement_begin(text, from, at);
        let before = &text[begin..at];
        let mut prefix = StatementPrefix { begin, ..StatementPrefix::default() };
        // Number of closing brackets whose opening brackets are still to be found, further left.
        let mut closed = 0_usize;
        // The expression around the call begins after `comma`; the text after `outer` is within open brackets.
        let (mut outer, mut comma) = (before.len(), None);
        for (n, c) in before.char_indices().rev() {
            match c {
                ')' | ']' | '}' => closed += 1,
                '(' | '[' | '{' if closed > 0 => closed -= 1,
                '(' | '[' | '{' => {
                    let name = if c == '(' { name_before(&before[..n]) } else { "" };
                    prefix.open += 1;
                    prefix.prints |= PRINTERS.contains(&name);
                    prefix.alters |= !name.is_empty() && !PRINTERS.contains(&name);
                    (outer, comma) = (n - name.len(), None);
                }
                ',' | ';' if closed == 0 && comma.is_none() => comma = Some(n + 1),
                _ => {}
            }
        }
        // Without a prompt, words before the call may be prose.
        let beside = before.get(comma.unwrap_or(0)..outer).unwrap_or_default();
        prefix.alters |= OPERATORS.iter().any(|operator| before.trim_end().ends_with(operator));
        prefix.alters |= has_prompt && !keeps_value(beside);
        prefix
    }

    /// Whether the results of this call and of a later one in the same statement are both printed. This is true if they share brackets, or
    /// a function prints this one. `between` is the text between the two calls.
    pub fn prints_both(&self, between: &str) -> bool {
        self.prints || self.open > closed(between)
    }
}

/// Whether an Elixir pipe after a call passes its result to a function that does not just print it: `|> Enum.take(3)`.
pub fn is_transformed_by_pipe(text: &str, end: usize) -> bool {
    let (pipe, after) = word(text, end);
    let (next, _) = word(text, after);
    let name = next.split('(').next().unwrap_or_default();
    pipe == "|>" && !PRINTERS.contains(&name.trim_start_matches(':'))
}

/// Whether the result of a call is an operand on its line: `… / 1024`, `… - call()`. This is used only for numbers: beside a call that
/// returns a list, or at the beginning of a line, a dash is punctuation.
pub fn is_in_arithmetic(text: &str, begin: usize, end: usize) -> bool {
    let is_blank = |c: char| is_space(c) && c != '\n';
    let before = text[..begin].trim_end_matches(is_blank).strip_suffix(['+', '-', '*', '/']);
    let is_operand = |c: char| c.is_alphanumeric() || matches!(c, '_' | ')');
    let follows_operand =
        before.is_some_and(|before| before.trim_end_matches(is_blank).ends_with(is_operand));
    let (next, next_end) = word(text, end);
    let is_in_line = !text[end..next_end - next.len()].contains('\n');
    // An arrow precedes the result, and a full stop ends the statement.
    let is_arrow = next.starts_with("->") || next.starts_with("=>");
    let is_operator = next.starts_with(['+', '-', '*', '/', '<', '>', '=']) || WORD_OPERATORS.contains(&next);
    follows_operand || is_in_line && is_operator && !is_arrow && !text[..end].ends_with('.')
}

/// Returns the start of the statement around `at`, and whether a prompt of Erlang's or Elixir's shell precedes it.
fn statement_begin(text: &str, from: usize, at: usize) -> (usize, bool) {
    let (mut begin, mut prompt) = (from, "");
    let mut place = from;
    loop {
        let (word, end) = word(text, place);
        if word.is_empty() || end > at {
            // The prompt of an operating system shell, such as `web1>`, is not one of them.
            return (
                begin,
                prompt.starts_with("iex") || prompt.starts_with(|c: char| c == '(' || c.is_ascii_digit()),
            );
        }
        // If a statement continues, the shells repeat the prompt, or print dots.
        if is_prompt(word) && word != prompt && !word.starts_with("...") {
            (begin, prompt) = (end, word);
        } else if word.ends_with('.') && text[end..].trim_start_matches([' ', '\t', '\r']).starts_with('\n') {
            (begin, prompt) = (end, "");
        }
        place = end;
    }
}

/// Returns the function name at the end of a text, without the colon before an Erlang module in Elixir.
fn name_before(text: &str) -> &str {
    let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | ':' | '.' | '@' | '!');
    text[text.trim_end_matches(is_name).len()..].trim_start_matches([':', '.'])
}

/// Whether an expression with this beginning has the value of the following call: `X =`, `IO.inspect`.
fn keeps_value(beside: &str) -> bool {
    let line = beside.rsplit('\n').next().unwrap_or_default();
    // If a statement continues, the shell inserts a prompt.
    let is_prompt = |word: &&str| is_prompt(word.trim());
    let prompt_bytes: usize = line.split_inclusive(is_space).take_while(is_prompt).map(str::len).sum();
    let beside = line[prompt_bytes..].trim_matches(|c: char| is_space(c) || c == ':');
    let is_match =
        || beside.strip_suffix('=').is_some_and(|pattern| !pattern.ends_with(['=', '<', '>', '!', ':', '/']));
    beside.is_empty() || BARE_WORDS.contains(&beside) || is_match()
}

/// Counts the brackets that a text closes without opening them.
fn closed(text: &str) -> usize {
    let (mut open, mut closed) = (0_usize, 0);
    for c in text.chars() {
        match c {
            '(' | '[' | '{' => open += 1,
            ')' | ']' | '}' if open > 0 => open -= 1,
            ')' | ']' | '}' => closed += 1,
            _ => {}
        }
    }
    closed
}

/// Parses a call of one of the modules, with its brackets: `recon_alloc:fragmentation(current)`, `:recon_alloc.fragmentation(:current)`.
/// Also parses module, function and arguments within another call: `rpc:call(N, recon_alloc, fragmentation, [current])`.
pub fn call(text: &str, at: usize) -> Option<(Call, usize)> {
    // `recon_alloc` must precede its prefix `recon`.
    const MODULES: [&str; 6] = ["recon_alloc", "recon", "instrument", "scheduler", "msacc", "erlang"];
    if text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
        return None;
    }
    let rest = &text[at..];
    let plain = rest.strip_prefix(':').unwrap_or(rest);
    let (module, after) = MODULES.iter().find_map(|module| Some((*module, plain.strip_prefix(module)?)))?;
    let Some(after) = after.strip_prefix([':', '.']) else { return call_by_mfa(text, module, after) };
    let (function, after) = name(after)?;
    let inner = after.strip_prefix('(')?;
    let length = enclosed(inner, '(', ')')?;
    let end = text.len() - inner.len() + length + 1;
    Some(new_call(text, module, function, &inner[..length], end))
}

/// Parses function and arguments after the module in a call of `rpc:call/4` or a similar function, up to its closing bracket.
fn call_by_mfa(text: &str, module: &'static str, after: &str) -> Option<(Call, usize)> {
    fn past(rest: &str, mark: char) -> Option<&str> {
        Some(rest.trim_start_matches(is_space).strip_prefix(mark)?.trim_start_matches(is_space))
    }
    let rest = past(after, ',')?;
    let (function, rest) = name(rest.strip_prefix(':').unwrap_or(rest))?;
    let inner = past(past(rest, ',')?, '[')?;
    let length = enclosed(inner, '[', ']')?;
    let rest = &inner[length + 1..];
    // A timeout may follow the arguments.
    let is_limit = |c: char| c.is_ascii_alphanumeric() || matches!(c, ':' | '_');
    let rest = past(rest, ',').map_or(rest, |limit| limit.trim_start_matches(is_limit));
    let rest = rest.trim_start_matches(is_space).strip_prefix(')')?;
    Some(new_call(text, module, function, &inner[..length], text.len() - rest.len()))
}

/// Returns the function name at the beginning of a text, and the text after it.
fn name(text: &str) -> Option<(&str, &str)> {
    let is_end = |(n, c): &(usize, char)| *n >= MAX_CALL_BYTES || !(c.is_ascii_alphanumeric() || *c == '_');
    let (end, _) = text.char_indices().find(is_end).filter(|(end, _)| *end > 0)?;
    Some(text.split_at(end))
}

/// Returns the number of bytes up to the matching closing bracket.
fn enclosed(inner: &str, open: char, close: char) -> Option<usize> {
    let mut depth = 1;
    for (n, c) in inner.char_indices().take_while(|(n, _)| *n < MAX_CALL_BYTES) {
        depth += i32::from(c == open) - i32::from(c == close);
        if depth == 0 {
            return Some(n);
        }
    }
    None
}

/// Returns a call that ends at `end`, and its end including a full stop.
fn new_call(text: &str, module: &'static str, function: &str, arguments: &str, end: usize) -> (Call, usize) {
    let arguments = arguments.chars().filter(|c| !is_space(*c) && *c != ':').collect();
    let call = Call { module, function: function.to_owned(), arguments };
    (call, end + usize::from(text[end..].starts_with('.')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_before_a_call_shows_whether_its_result_is_transformed() {
        for (before, alters) in [
            ("", false),
            ("1> ", false),
            ("1> rp(", false),
            ("1> X = ", false),
            ("1> {ok, X} = ", false),
            ("1> X =:= ", true),
            ("1> f(a), rp(", false),
            ("1> f(a), g(b, ", true),
            ("iex(1)> ", false),
            ("iex(1)> hd ", true),
            ("iex(1)> hd(\n...(1)> ", true),
            ("1> hd(\n1> ", true),
            ("1> \n1> ", false),
            ("1>\n1> hd ", true),
            ("1> hd(x.\n2> ", false),
            ("hd(x).\n", false),
            ("He said (with hd ", false),
            ("see ", false),
            ("root@web1> bin/app rpc \"", false),
            ("(shop@web1)1> size ", true),
            ("[X || X <- ", true),
        ] {
            let text = format!("{before}call()");
            assert_eq!(StatementPrefix::read(&text, 0, before.len()).alters, alters, "{before}");
        }
    }

    #[test]
    fn an_operator_beside_a_call_makes_its_result_an_operand() {
        for (before, after, expect) in [
            ("", " / 1024.", true),
            ("", "/1024", true),
            ("1> ", " div 1024.", true),
            ("f() - ", ".", true),
            ("2 * ", ".", true),
            ("x -", "", true),
            ("- ", "", false),
            ("a\n- ", ".\n- b", false),
            ("1> ", ".\n123\n", false),
            ("", ". - 5 minutes later", false),
            ("", " => 123", false),
            ("", " division", false),
        ] {
            let text = format!("{before}call(){after}");
            let end = before.len() + "call()".len() + usize::from(after.starts_with('.'));
            assert_eq!(is_in_arithmetic(&text, before.len(), end), expect, "{text}");
        }
    }

    #[test]
    fn a_call_by_module_function_and_arguments_is_read_up_to_the_closing_bracket() {
        for (text, arguments) in [
            ("recon_alloc, fragmentation, [current]).", Some("current")),
            (":recon_alloc , :fragmentation,[:current] , 5000)", Some("current")),
            ("recon_alloc,fragmentation,[], infinity).", Some("")),
            ("recon_alloc, fragmentation, [current]}", None),
            ("recon_alloc, fragmentation, [current", None),
            ("recon_alloc, and fragmentation", None),
        ] {
            let read = call(text, 0);
            assert_eq!(read.as_ref().map(|(call, _)| call.arguments.as_str()), arguments, "{text}");
            assert!(read.is_none_or(|(_, end)| end == text.len()), "{text}");
        }
    }
}
