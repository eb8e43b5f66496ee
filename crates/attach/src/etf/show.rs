//! Displays a term as Erlang prints it, for use in messages: truncated, and without terminal control characters.

use std::fmt::{self, Write};

use super::{Kind, Term};

/// Maximum number of characters displayed.
const MAX_CHARACTERS: usize = 400;
/// Maximum nesting; deeper levels are displayed as "...".
const MAX_LEVELS: usize = 12;

impl fmt::Display for Term<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = Short { text: String::new() };
        // The only possible error is that the text has reached its maximum length.
        let _ = show(*self, MAX_LEVELS, &mut out);
        f.write_str(&out.text)
    }
}

impl fmt::Debug for Term<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

struct Short {
    text: String,
}

impl Write for Short {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        for character in part.chars() {
            if self.text.len() >= MAX_CHARACTERS {
                self.text.push_str("...");
                return Err(fmt::Error);
            }
            self.text.push(character);
        }
        Ok(())
    }
}

fn show(term: Term<'_>, levels: usize, out: &mut Short) -> fmt::Result {
    if levels == 0 {
        return out.write_str("...");
    }
    match term.kind() {
        Kind::Integer => match (term.as_i128(), term.as_big()) {
            (Ok(value), _) => write!(out, "{value}"),
            (_, Some((negative, digits))) => {
                out.write_str(if negative { "-16#" } else { "16#" })?;
                digits.iter().rev().try_for_each(|digit| write!(out, "{digit:02X}"))
            }
            _ => Ok(()),
        },
        Kind::Float => write!(out, "{:?}", term.as_f64().unwrap_or_default()),
        Kind::Atom => show_atom(term.as_atom().unwrap_or_default(), out),
        Kind::Tuple => {
            out.write_char('{')?;
            show_elements(term.tuple().into_iter().flatten(), levels, out)?;
            out.write_char('}')
        }
        Kind::List => show_list(term, levels, out),
        Kind::Map => {
            out.write_str("#{")?;
            for (position, (key, value)) in term.map().into_iter().flatten().enumerate() {
                if position > 0 {
                    out.write_char(',')?;
                }
                show(key, levels - 1, out)?;
                out.write_str(" => ")?;
                show(value, levels - 1, out)?;
            }
            out.write_char('}')
        }
        Kind::Binary => match term.as_str() {
            Ok(text) if text.chars().all(|character| !character.is_control()) => {
                write!(out, "<<\"{}\">>", text.escape_debug())
            }
            _ => write!(out, "<<{} bytes>>", term.as_bytes().map_or(0, <[u8]>::len)),
        },
        Kind::BitString => out.write_str("<<bits>>"),
        Kind::Pid => term.as_pid().map_or(Ok(()), |pid| write!(out, "{pid}")),
        Kind::Port => out.write_str("#Port<>"),
        Kind::Reference => out.write_str("#Ref<>"),
        Kind::Export | Kind::Fun => out.write_str("#Fun<>"),
    }
}

fn show_list(term: Term<'_>, levels: usize, out: &mut Short) -> fmt::Result {
    let Some((elements, tail)) = term.as_any_list() else { return Ok(()) };
    // As in Erlang's shell, a list of printable code points is displayed as text.
    if elements.len() > 0
        && let Ok(text) = term.to_text()
        && text.chars().all(|character| !character.is_control())
    {
        return write!(out, "\"{}\"", text.escape_debug());
    }
    out.write_char('[')?;
    show_elements(elements, levels, out)?;
    if let Some(tail) = tail
        && !tail.list().is_ok_and(|rest| rest.len() == 0)
    {
        out.write_char('|')?;
        show(tail, levels - 1, out)?;
    }
    out.write_char(']')
}

fn show_elements<'a>(
    elements: impl Iterator<Item = Term<'a>>,
    levels: usize,
    out: &mut Short,
) -> fmt::Result {
    for (position, element) in elements.enumerate() {
        if position > 0 {
            out.write_char(',')?;
        }
        show(element, levels - 1, out)?;
    }
    Ok(())
}

fn show_atom(name: &str, out: &mut Short) -> fmt::Result {
    let plain = name.starts_with(|first: char| first.is_ascii_lowercase())
        && name.chars().all(|other| other.is_ascii_alphanumeric() || "_@".contains(other));
    if plain { out.write_str(name) } else { write!(out, "'{}'", name.escape_debug()) }
}
