//! What stands around a call in its statement: whether the shell's answer is the call's, and all of it.
//!
//! `rp(recon_alloc:fragmentation(current))` is answered by the whole list, `tl(recon_alloc:fragmentation(current))` by a part of it, and of
//! `{recon_alloc:fragmentation(max), recon_alloc:fragmentation(current)}` nobody can say which list is whose without reading the language.
//! So brackets are looked at and the names before them, and no more.

use crate::call::is_prompt;
use crate::terms::Call;
use crate::text::{is_space, word};

/// The longest call that is looked at, and what stands before it in its statement, in bytes.
pub const LONGEST_CALL: usize = 400;

/// Functions that print or write what they are given as it is, or carry it from another node.
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

/// What may stand before a call without brackets.
const BARE: [&str; 4] = ["IO.inspect", "inspect", "catch", "begin"];

/// Operators that make something else of what stands behind them.
const OPERATORS: [&str; 4] = ["<-", "||", "--", "++"];

/// Words that reckon with the numbers on both sides of them.
const RECKONING: [&str; 7] = ["div", "rem", "bsl", "bsr", "band", "bor", "bxor"];

/// What stands before a call in its statement.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Before {
    /// Where the statement begins in the text, in bytes.
    pub begin: usize,
    /// Brackets that are open.
    open: usize,
    /// One of them is that of a function that prints.
    prints: bool,
    /// Something is made of what the call answers.
    pub changes: bool,
}

impl Before {
    /// Of a call at a place; its statement does not begin before `from`.
    pub fn read(text: &str, from: usize, at: usize) -> Before {
        let (begin, has_prompt) = begins(text, from, at);
        let before = &text[begin..at];
        let mut read = Before { begin, ..Before::default() };
        // Brackets that are closed again before the call.
        let mut closed = 0_usize;
        // What stands here is outside of all open brackets, and the call's own expression begins at the comma.
        let (mut outer, mut comma) = (before.len(), None);
        for (n, c) in before.char_indices().rev() {
            match c {
                ')' | ']' | '}' => closed += 1,
                '(' | '[' | '{' if closed > 0 => closed -= 1,
                '(' | '[' | '{' => {
                    let name = if c == '(' { name_before(&before[..n]) } else { "" };
                    read.open += 1;
                    read.prints |= PRINTERS.contains(&name);
                    read.changes |= !name.is_empty() && !PRINTERS.contains(&name);
                    (outer, comma) = (n - name.len(), None);
                }
                ',' | ';' if closed == 0 && comma.is_none() => comma = Some(n + 1),
                _ => {}
            }
        }
        // Without a prompt, words before it may be those of whoever has written the text.
        let beside = before.get(comma.unwrap_or(0)..outer).unwrap_or_default();
        read.changes |= OPERATORS.iter().any(|operator| before.trim_end().ends_with(operator));
        read.changes |= has_prompt && !leaves_it(beside);
        read
    }

    /// Whether a call behind this one is answered beside it rather than in its place, with `between` between the two: both stand in the
    /// same brackets, or this one is printed by itself.
    pub fn is_answered_beside(&self, between: &str) -> bool {
        self.prints || self.open > closed(between)
    }
}

/// Whether Elixir's pipe behind a call gives its answer to something that does not print it: `|> Enum.take(3)`.
pub fn is_piped_on(text: &str, end: usize) -> bool {
    let (pipe, behind) = word(text, end);
    let (next, _) = word(text, behind);
    let name = next.split('(').next().unwrap_or_default();
    pipe == "|>" && !PRINTERS.contains(&name.trim_start_matches(':'))
}

/// Whether the number that a call between two places answers is reckoned with in its line: `… / 1024`, `… - call()`. Of a list that cannot be:
/// a dash beside its call is that of whoever has written the text, as is one at the begin of a line.
pub fn is_reckoned_with(text: &str, begin: usize, end: usize) -> bool {
    let is_blank = |c: char| is_space(c) && c != '\n';
    let before = text[..begin].trim_end_matches(is_blank).strip_suffix(['+', '-', '*', '/']);
    let is_operand = |c: char| c.is_alphanumeric() || matches!(c, '_' | ')');
    let is_behind = before.is_some_and(|before| before.trim_end_matches(is_blank).ends_with(is_operand));
    let (next, next_end) = word(text, end);
    let is_in_line = !text[end..next_end - next.len()].contains('\n');
    // An arrow shows what was answered, and behind a full stop nothing goes on.
    let is_arrow = next.starts_with("->") || next.starts_with("=>");
    let is_operator = next.starts_with(['+', '-', '*', '/', '<', '>', '=']) || RECKONING.contains(&next);
    is_behind || is_in_line && is_operator && !is_arrow && !text[..end].ends_with('.')
}

/// Where the statement begins in which a place stands, and whether a prompt of Erlang's shell or Elixir's stands before it.
fn begins(text: &str, from: usize, at: usize) -> (usize, bool) {
    let (mut begin, mut prompt) = (from, "");
    let mut place = from;
    loop {
        let (word, end) = word(text, place);
        if word.is_empty() || end > at {
            // One of a system's shell, `web1>`, stands before commands.
            return (
                begin,
                prompt.starts_with("iex") || prompt.starts_with(|c: char| c == '(' || c.is_ascii_digit()),
            );
        }
        // The shells repeat a prompt, or print dots, where a statement goes on.
        if is_prompt(word) && word != prompt && !word.starts_with("...") {
            (begin, prompt) = (end, word);
        } else if word.ends_with('.') && text[end..].trim_start_matches([' ', '\t', '\r']).starts_with('\n') {
            (begin, prompt) = (end, "");
        }
        place = end;
    }
}

/// The name of a function that ends here, without the colon that Elixir writes before one of Erlang's modules.
fn name_before(text: &str) -> &str {
    let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | ':' | '.' | '@' | '!');
    text[text.trim_end_matches(is_name).len()..].trim_start_matches([':', '.'])
}

/// Whether the value of an expression that begins so is that of what follows: `X =`, `IO.inspect`.
fn leaves_it(beside: &str) -> bool {
    let line = beside.rsplit('\n').next().unwrap_or_default();
    // Where a statement goes on, the shell has put a prompt into it.
    let is_prompt = |word: &&str| is_prompt(word.trim());
    let behind_prompt: usize = line.split_inclusive(is_space).take_while(is_prompt).map(str::len).sum();
    let beside = line[behind_prompt..].trim_matches(|c: char| is_space(c) || c == ':');
    let is_match =
        || beside.strip_suffix('=').is_some_and(|pattern| !pattern.ends_with(['=', '<', '>', '!', ':', '/']));
    beside.is_empty() || BARE.contains(&beside) || is_match()
}

/// Brackets that a text closes without having opened them.
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

/// Reads a call of one of the modules, with its brackets: `recon_alloc:fragmentation(current)`, `:recon_alloc.fragmentation(:current)`; or
/// what another function carries of it: `rpc:call(N, recon_alloc, fragmentation, [current])`.
pub fn call(text: &str, at: usize) -> Option<(Call, usize)> {
    // `recon` is the beginning of another one.
    const MODULES: [&str; 6] = ["recon_alloc", "recon", "instrument", "scheduler", "msacc", "erlang"];
    if text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
        return None;
    }
    let rest = &text[at..];
    let plain = rest.strip_prefix(':').unwrap_or(rest);
    let (module, behind) = MODULES.iter().find_map(|module| Some((*module, plain.strip_prefix(module)?)))?;
    let Some(behind) = behind.strip_prefix([':', '.']) else { return carried(text, module, behind) };
    let (function, behind) = name(behind)?;
    let inner = behind.strip_prefix('(')?;
    let length = enclosed(inner, '(', ')')?;
    let end = text.len() - inner.len() + length + 1;
    Some(called(text, module, function, &inner[..length], end))
}

/// Reads on behind the module where function and arguments are told apart, up to the bracket of the function that carries the call.
fn carried(text: &str, module: &'static str, behind: &str) -> Option<(Call, usize)> {
    fn past(rest: &str, mark: char) -> Option<&str> {
        Some(rest.trim_start_matches(is_space).strip_prefix(mark)?.trim_start_matches(is_space))
    }
    let rest = past(behind, ',')?;
    let (function, rest) = name(rest.strip_prefix(':').unwrap_or(rest))?;
    let inner = past(past(rest, ',')?, '[')?;
    let length = enclosed(inner, '[', ']')?;
    let rest = &inner[length + 1..];
    // How long it may take stands behind the arguments.
    let is_limit = |c: char| c.is_ascii_alphanumeric() || matches!(c, ':' | '_');
    let rest = past(rest, ',').map_or(rest, |limit| limit.trim_start_matches(is_limit));
    let rest = rest.trim_start_matches(is_space).strip_prefix(')')?;
    Some(called(text, module, function, &inner[..length], text.len() - rest.len()))
}

/// The name of a function that a text begins with, and what stands behind it.
fn name(text: &str) -> Option<(&str, &str)> {
    let is_end = |(n, c): &(usize, char)| *n >= LONGEST_CALL || !(c.is_ascii_alphanumeric() || *c == '_');
    let (end, _) = text.char_indices().find(is_end).filter(|(end, _)| *end > 0)?;
    Some(text.split_at(end))
}

/// Bytes up to the bracket that closes one that has been opened.
fn enclosed(inner: &str, open: char, close: char) -> Option<usize> {
    let mut depth = 1;
    for (n, c) in inner.char_indices().take_while(|(n, _)| *n < LONGEST_CALL) {
        depth += i32::from(c == open) - i32::from(c == close);
        if depth == 0 {
            return Some(n);
        }
    }
    None
}

/// A call that ends at a place, with the full stop behind it.
fn called(text: &str, module: &'static str, function: &str, arguments: &str, end: usize) -> (Call, usize) {
    let arguments = arguments.chars().filter(|c| !is_space(*c) && *c != ':').collect();
    let call = Call { module, function: function.to_owned(), arguments };
    (call, end + usize::from(text[end..].starts_with('.')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_before_a_call_changes_its_answer_or_prints_it() {
        for (before, changes) in [
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
            assert_eq!(Before::read(&text, 0, before.len()).changes, changes, "{before}");
        }
    }

    #[test]
    fn a_number_is_reckoned_with_where_an_operator_stands_beside_its_call() {
        for (before, behind, expect) in [
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
            let text = format!("{before}call(){behind}");
            let end = before.len() + "call()".len() + usize::from(behind.starts_with('.'));
            assert_eq!(is_reckoned_with(&text, before.len(), end), expect, "{text}");
        }
    }

    #[test]
    fn a_call_that_another_function_carries_is_read_up_to_that_ones_bracket() {
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
