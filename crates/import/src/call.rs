//! Parses calls of `lcnt` that were entered in a shell: they show which function printed the following text, and with which options.
//!
//! Calls in Erlang and Elixir are recognized, with and without prompts: `3> lcnt:conflicts([{combine,false}]).`,
//! `iex(3)> :lcnt.conflicts(combine: false)`.

use crate::text::unescaped;

/// Maximum length of a call, in bytes.
pub const MAX_CALL_BYTES: usize = 4_000;

/// A function of `lcnt`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Function {
    Conflicts,
    Inspect,
    Locations,
    Histogram,
    /// A function that prints no table.
    Other,
}

/// A call of `lcnt`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    pub function: Function,
    /// The option `combine`, which lists classes instead of single locks. `None` if it was not given.
    pub combine: Option<bool>,
    /// The class, for `inspect` and `histogram`.
    pub class: Option<String>,
    /// The single lock, if the arguments contain exactly one.
    pub id: Option<String>,
    /// Whether the arguments contain one or more locks of the class instead of the class.
    pub is_part: bool,
}

impl Call {
    /// Whether the output lists classes, according to the option or the default of the function.
    pub fn combines(&self) -> bool {
        self.combine.unwrap_or(self.function != Function::Inspect)
    }
}

/// Whether the word is a prompt: `3>`, `(shop@web1)3>`, `iex(3)>`, `iex(shop@web1)3>`, `...>`.
pub fn is_prompt(word: &str) -> bool {
    let Some(before) = word.strip_suffix('>') else { return false };
    // A pid or a port, which may touch the previous word, or an arrow.
    let is_other = before.contains(['<', '#']) || before.starts_with(['-', '=']);
    !is_other
        && (before == "iex"
            || before == "..."
            || before.ends_with(')')
            || before.ends_with(|c: char| c.is_ascii_digit()))
}

/// Returns the offset at which a call of `lcnt` begins in a word; a prompt or another call may precede it.
pub fn find_call(word: &str) -> Option<usize> {
    let at = word.find("lcnt:").or_else(|| word.find(":lcnt.").map(|at| at + 1))?;
    let is_inside = word[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
    (!is_inside).then_some(at)
}

/// Consecutive calls of `lcnt`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Calls {
    /// The last of these calls that prints a table, and the length of all calls in bytes.
    pub last: Option<(Call, usize)>,
    /// Number of bytes that were scanned for the end of an unterminated call.
    pub wasted_bytes: usize,
}

/// Parses consecutive calls; `text` begins with `lcnt`.
pub fn read(text: &str) -> Calls {
    let mut end = 0;
    let mut wasted_bytes = 0;
    let mut last: Option<Call> = None;
    loop {
        let rest = &text[end..];
        let length = match call_length(rest) {
            Ok(length) => length,
            Err(scanned) => {
                wasted_bytes = scanned;
                break;
            }
        };
        let call = parse(&rest[..length]);
        if last.is_none() || call.function != Function::Other {
            last = Some(call);
        }
        end += length;
        let after = text[end..].trim_start_matches([',', ';', '.', ' ', '\t']);
        let next = after.strip_prefix(':').unwrap_or(after);
        if !(next.starts_with("lcnt:") || next.starts_with("lcnt.")) {
            break;
        }
        end = text.len() - next.len();
    }
    Calls { last: last.map(|call| (call, end)), wasted_bytes }
}

/// Returns the length of the first call in bytes, including its closing bracket. Without a call, returns the number of bytes scanned.
fn call_length(text: &str) -> Result<usize, usize> {
    let mut depth = 0;
    let mut quotes = None;
    let mut is_escaped = false;
    for (at, c) in text.char_indices().take_while(|(at, _)| *at < MAX_CALL_BYTES) {
        match c {
            _ if quotes.is_some() && is_escaped => is_escaped = false,
            '\\' if quotes.is_some() => is_escaped = true,
            c if quotes == Some(c) => quotes = None,
            _ if quotes.is_some() => {}
            '\'' | '"' => quotes = Some(c),
            '(' => depth += 1,
            ')' if depth == 1 => return Ok(at + 1),
            ')' => depth -= 1,
            // Without brackets, this is an Elixir call without arguments, or not a call.
            c if depth == 0 && !(c.is_alphanumeric() || matches!(c, ':' | '.' | '_')) => {
                return if at > "lcnt:".len() { Ok(at) } else { Err(at) };
            }
            _ => {}
        }
    }
    Err(text.len().min(MAX_CALL_BYTES))
}

fn parse(text: &str) -> Call {
    let name_begins = "lcnt:".len();
    let name_ends = text.find(['(', ' ', '\n']).unwrap_or(text.len());
    let name = text.get(name_begins..name_ends).unwrap_or_default();
    let function = match name {
        "conflicts" => Function::Conflicts,
        "inspect" => Function::Inspect,
        "locations" => Function::Locations,
        "histogram" => Function::Histogram,
        _ => Function::Other,
    };
    let arguments = text.get(name_ends..).unwrap_or_default();
    let has_target = matches!(function, Function::Inspect | Function::Histogram);
    let (class, id, is_part) = if has_target { first_argument(arguments) } else { (None, None, false) };
    Call { function, combine: option(arguments, "combine"), class, id, is_part }
}

/// Returns the value of a boolean option in either language: `{combine,true}`, `combine: true`, `{:combine, true}`.
fn option(arguments: &str, name: &str) -> Option<bool> {
    let after = &arguments[arguments.find(name)? + name.len()..];
    let value = after.trim_start_matches(|c: char| c.is_whitespace() || matches!(c, ':' | ','));
    match value {
        value if value.starts_with("true") => Some(true),
        value if value.starts_with("false") => Some(false),
        // In a list of options, the name alone means true.
        _ if after.starts_with([',', ']', '}']) => Some(true),
        _ => None,
    }
}

/// Returns the class and the lock in the first argument, and whether it specifies only a part of a class: `db_tab`, `:db_tab`,
/// `{db_tab, sessions}`, `{:db_tab, :"my table"}`.
fn first_argument(arguments: &str) -> (Option<String>, Option<String>, bool) {
    let inner = arguments.trim_start_matches(['(', ' ']);
    let Some(pair) = inner.strip_prefix('{') else {
        return (atom(inner).map(|(class, _)| class), None, false);
    };
    let Some((class, after)) = atom(pair) else { return (None, None, true) };
    // A list of locks is not a single lock, and neither is a pid that the shell computed.
    let id = after.trim_start().strip_prefix(',').and_then(atom);
    let id = id.filter(|(_, after)| after.trim_start().starts_with('}')).map(|(id, _)| id);
    (Some(class), id, true)
}

/// Parses the atom at the beginning of a text, in either language. Returns it without its quotes, and the text after it.
fn atom(text: &str) -> Option<(String, &str)> {
    let text = text.trim_start();
    let elixir_atom = text.strip_prefix(':');
    let inner = elixir_atom.unwrap_or(text);
    let quote = inner.chars().next().filter(|c| *c == '\'' || (*c == '"' && elixir_atom.is_some()));
    let Some(quote) = quote else {
        let end =
            inner.find(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '@'))).unwrap_or(inner.len());
        return (end > 0).then(|| (inner[..end].to_owned(), &inner[end..]));
    };
    let mut is_escaped = false;
    let closes = |(_, c): &(usize, char)| {
        let closes = !is_escaped && *c == quote;
        is_escaped = !is_escaped && *c == '\\';
        closes
    };
    let (end, _) = inner.char_indices().skip(1).find(closes)?;
    Some((unescaped(&inner[1..end]), &inner[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, function: Function, combines: bool, target: (Option<&str>, Option<&str>)) {
        let begin = find_call(text).unwrap_or_else(|| panic!("no call: {text}"));
        let (call, _) = read(&text[begin..]).last.unwrap_or_else(|| panic!("no call: {text}"));
        assert_eq!((call.function, call.combines()), (function, combines), "{text}");
        assert_eq!((call.class.as_deref(), call.id.as_deref()), target, "{text}");
    }

    #[test]
    fn calls_of_both_languages_are_parsed() {
        use Function::*;
        check("lcnt:conflicts().", Conflicts, true, (None, None));
        check("3>lcnt:conflicts([{combine,false},{print,[name,id]}]).", Conflicts, false, (None, None));
        check(":lcnt.conflicts(combine: false, print: [:name, :id])", Conflicts, false, (None, None));
        check(":lcnt.conflicts([{:combine, false}])", Conflicts, false, (None, None));
        check("lcnt:inspect(db_tab).", Inspect, false, (Some("db_tab"), None));
        check(
            "lcnt:inspect({alcu_allocator, eheap_alloc}, [locations, {combine, true}]).",
            Inspect,
            true,
            (Some("alcu_allocator"), Some("eheap_alloc")),
        );
        check(
            ":lcnt.inspect({:db_tab, :sessions}, locations: true)",
            Inspect,
            false,
            (Some("db_tab"), Some("sessions")),
        );
        check("lcnt:inspect({db_tab, [a, b]}).", Inspect, false, (Some("db_tab"), None));
        check("lcnt:inspect({db_tab, 'my {table}'}).", Inspect, false, (Some("db_tab"), Some("my {table}")));
        check(
            ":lcnt.inspect({:db_tab, :\"it's (mine)\"}, combine: true)",
            Inspect,
            true,
            (Some("db_tab"), Some("it's (mine)")),
        );
        check("lcnt:inspect({proc_main, self()}).", Inspect, false, (Some("proc_main"), None));
        check("lcnt:histogram('esock.r[1]').", Histogram, true, (Some("esock.r[1]"), None));
        check("lcnt:collect(),lcnt:conflicts().", Conflicts, true, (None, None));
        check("lcnt:conflicts(), lcnt:rt_opt({copy_save, false}).", Conflicts, true, (None, None));
        check(":lcnt.locations() next", Locations, true, (None, None));
        check("lcnt:inspect(run_queue, [combine]).", Inspect, true, (Some("run_queue"), None));
    }

    #[test]
    fn some_locks_of_a_class_are_distinguished_from_the_class() {
        for (text, expect) in [
            ("lcnt:inspect(db_tab)", false),
            ("lcnt:inspect({db_tab, a})", true),
            ("lcnt:inspect({db_tab, [a, b]})", true),
            ("lcnt:inspect({proc_main, self()})", true),
            ("lcnt:conflicts()", false),
        ] {
            assert_eq!(read(text).last.map(|(call, _)| call.is_part), Some(expect), "{text}");
        }
    }

    #[test]
    fn other_text_is_not_a_call() {
        assert_eq!(find_call("my_lcnt:conflicts()"), None);
        assert_eq!(read("lcnt:conflicts([").last, None);
        assert_eq!(find_call("lock"), None);
    }

    #[test]
    fn bytes_scanned_for_the_end_of_unterminated_calls_are_counted() {
        let more = "x".repeat(2 * MAX_CALL_BYTES);
        assert_eq!(read(&format!("lcnt:conflicts({more}")).wasted_bytes, MAX_CALL_BYTES);
        let after = read(&format!("lcnt:clear(),lcnt:conflicts({more}"));
        assert_eq!(after.last.map(|(_, end)| end), Some("lcnt:clear(),".len()));
        assert_eq!(after.wasted_bytes, MAX_CALL_BYTES);
        assert_eq!(read("lcnt:conflicts(").wasted_bytes, "lcnt:conflicts(".len());
        assert_eq!(read("lcnt:conflicts().").wasted_bytes, 0);
    }

    #[test]
    fn pids_are_not_prompts() {
        for prompt in ["3>", "(shop@web1)3>", "iex(3)>", "iex(shop@web1)3>", "iex>", "...>", "...(2)>"] {
            assert!(is_prompt(prompt), "{prompt}");
        }
        for word in [
            "<0.80.0>",
            "#Port<0.5>",
            "db_tab",
            "->",
            ">",
            "=>",
            "<nonode@nohost.1.0>",
            "db_tab<nonode@nohost.1.0>",
            "port_lock#Port<nonode@nohost.5>",
        ] {
            assert!(!is_prompt(word), "{word}");
        }
    }
}
