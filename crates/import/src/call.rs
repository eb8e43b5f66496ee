//! What was typed into a shell: which function of `lcnt` printed what follows, and with which options.
//!
//! Erlang's shell and Elixir's, with prompts or without: `3> lcnt:conflicts([{combine,false}]).`,
//! `iex(3)> :lcnt.conflicts(combine: false)`.

use crate::text::unescaped;

/// The longest call that is looked at, in bytes.
pub const LONGEST: usize = 4_000;

/// A function that prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Function {
    Conflicts,
    Inspect,
    Locations,
    Histogram,
    /// One that prints no table.
    Other,
}

/// A call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    pub function: Function,
    /// The option `combine`: classes rather than single locks. `None` where it was not given.
    pub combine: Option<bool>,
    /// The class that was asked for, of `inspect` and `histogram`.
    pub class: Option<String>,
    /// The single lock that was asked for.
    pub id: Option<String>,
    /// Some locks of the class were asked for, one or several, and not all of it.
    pub is_part: bool,
}

impl Call {
    /// Whether what follows is of classes, by the option or by the function's own default.
    pub fn combines(&self) -> bool {
        self.combine.unwrap_or(self.function != Function::Inspect)
    }
}

/// A prompt of a shell: `3>`, `(shop@web1)3>`, `iex(3)>`, `iex(shop@web1)3>`, `...>`.
pub fn is_prompt(word: &str) -> bool {
    let Some(before) = word.strip_suffix('>') else { return false };
    // A pid or a port, which may touch the word before it, or an arrow.
    let is_other = before.contains(['<', '#']) || before.starts_with(['-', '=']);
    !is_other
        && (before == "iex"
            || before == "..."
            || before.ends_with(')')
            || before.ends_with(|c: char| c.is_ascii_digit()))
}

/// Where a call of `lcnt` begins in a word: behind a prompt, or behind another call.
pub fn begins(word: &str) -> Option<usize> {
    let at = word.find("lcnt:").or_else(|| word.find(":lcnt.").map(|at| at + 1))?;
    let is_inside = word[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
    (!is_inside).then_some(at)
}

/// What begins with `lcnt` in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Calls {
    /// Of the calls that stand here, one behind the other, the last one that prints something, and the bytes that all of them take.
    pub last: Option<(Call, usize)>,
    /// Bytes that were looked at for the end of a call that has none.
    pub in_vain: usize,
}

/// Reads the calls that a text begins with; `text` begins with `lcnt`.
pub fn read(text: &str) -> Calls {
    let mut end = 0;
    let mut in_vain = 0;
    let mut last: Option<Call> = None;
    loop {
        let rest = &text[end..];
        let length = match one_ends(rest) {
            Ok(length) => length,
            Err(looked) => {
                in_vain = looked;
                break;
            }
        };
        let call = understand(&rest[..length]);
        if last.is_none() || call.function != Function::Other {
            last = Some(call);
        }
        end += length;
        let behind = text[end..].trim_start_matches([',', ';', '.', ' ', '\t']);
        let next = behind.strip_prefix(':').unwrap_or(behind);
        if !(next.starts_with("lcnt:") || next.starts_with("lcnt.")) {
            break;
        }
        end = text.len() - next.len();
    }
    Calls { last: last.map(|call| (call, end)), in_vain }
}

/// Bytes of the call that a text begins with: up to the bracket that closes its first one. Where there is none, the bytes that were looked
/// at for it.
fn one_ends(text: &str) -> Result<usize, usize> {
    let mut depth = 0;
    let mut quotes = None;
    let mut is_escaped = false;
    for (at, c) in text.char_indices().take_while(|(at, _)| *at < LONGEST) {
        match c {
            _ if quotes.is_some() && is_escaped => is_escaped = false,
            '\\' if quotes.is_some() => is_escaped = true,
            c if quotes == Some(c) => quotes = None,
            _ if quotes.is_some() => {}
            '\'' | '"' => quotes = Some(c),
            '(' => depth += 1,
            ')' if depth == 1 => return Ok(at + 1),
            ')' => depth -= 1,
            // A name without brackets is no call, or one of Elixir's without arguments.
            c if depth == 0 && !(c.is_alphanumeric() || matches!(c, ':' | '.' | '_')) => {
                return if at > "lcnt:".len() { Ok(at) } else { Err(at) };
            }
            _ => {}
        }
    }
    Err(text.len().min(LONGEST))
}

fn understand(text: &str) -> Call {
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
    let asks = matches!(function, Function::Inspect | Function::Histogram);
    let (class, id, is_part) = if asks { asked_for(arguments) } else { (None, None, false) };
    Call { function, combine: option(arguments, "combine"), class, id, is_part }
}

/// The value of an option that is true or false, in either language: `{combine,true}`, `combine: true`, `{:combine, true}`.
fn option(arguments: &str, name: &str) -> Option<bool> {
    let behind = &arguments[arguments.find(name)? + name.len()..];
    let value = behind.trim_start_matches(|c: char| c.is_whitespace() || matches!(c, ':' | ','));
    match value {
        value if value.starts_with("true") => Some(true),
        value if value.starts_with("false") => Some(false),
        // In a list, an atom alone means true.
        _ if behind.starts_with([',', ']', '}']) => Some(true),
        _ => None,
    }
}

/// The first argument, and whether it asks for a part of a class: `db_tab`, `:db_tab`, `{db_tab, sessions}`, `{:db_tab, :"my table"}`.
fn asked_for(arguments: &str) -> (Option<String>, Option<String>, bool) {
    let inner = arguments.trim_start_matches(['(', ' ']);
    let Some(pair) = inner.strip_prefix('{') else {
        return (atom(inner).map(|(class, _)| class), None, false);
    };
    let Some((class, behind)) = atom(pair) else { return (None, None, true) };
    // A list of locks is no single one, nor is a pid that a shell has computed.
    let id = behind.trim_start().strip_prefix(',').and_then(atom);
    let id = id.filter(|(_, behind)| behind.trim_start().starts_with('}')).map(|(id, _)| id);
    (Some(class), id, true)
}

/// The atom that a text begins with, in either language, without its quotes; and what stands behind it.
fn atom(text: &str) -> Option<(String, &str)> {
    let text = text.trim_start();
    let elixirs = text.strip_prefix(':');
    let inner = elixirs.unwrap_or(text);
    let quote = inner.chars().next().filter(|c| *c == '\'' || (*c == '"' && elixirs.is_some()));
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

    fn check(text: &str, function: Function, combines: bool, asked: (Option<&str>, Option<&str>)) {
        let begin = begins(text).unwrap_or_else(|| panic!("no call: {text}"));
        let (call, _) = read(&text[begin..]).last.unwrap_or_else(|| panic!("no call: {text}"));
        assert_eq!((call.function, call.combines()), (function, combines), "{text}");
        assert_eq!((call.class.as_deref(), call.id.as_deref()), asked, "{text}");
    }

    #[test]
    fn calls_of_both_languages_are_understood() {
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
    fn a_part_of_a_class_is_not_taken_for_the_class() {
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
    fn what_is_no_call_is_none() {
        assert_eq!(begins("my_lcnt:conflicts()"), None);
        assert_eq!(read("lcnt:conflicts([").last, None);
        assert_eq!(begins("lock"), None);
    }

    #[test]
    fn what_is_looked_at_for_the_end_of_a_call_is_told() {
        let more = "x".repeat(2 * LONGEST);
        assert_eq!(read(&format!("lcnt:conflicts({more}")).in_vain, LONGEST);
        let behind = read(&format!("lcnt:clear(),lcnt:conflicts({more}"));
        assert_eq!(behind.last.map(|(_, end)| end), Some("lcnt:clear(),".len()));
        assert_eq!(behind.in_vain, LONGEST);
        assert_eq!(read("lcnt:conflicts(").in_vain, "lcnt:conflicts(".len());
        assert_eq!(read("lcnt:conflicts().").in_vain, 0);
    }

    #[test]
    fn prompts_are_told_from_pids() {
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
