//! Goes through a text word by word, and takes out of it what `lcnt` has printed.
//!
//! Line breaks matter little, since they get lost: a table is a line of headings and what fits it behind that. A row begins where a line
//! begins, or right behind another row, or where what could not be read ends as rows do; never anywhere else, or the second word of a
//! broken row would be taken for the first one of another.

use std::collections::VecDeque;

use crate::banner::BEGINS;
use crate::call::{self, Call, Calls, Function};
use crate::head::{self, Column, Head};
use crate::row::{self, Cells, Fault};
use crate::text::{Token, Tokens, unquoted};
use crate::{MOST_UNREAD, TOLD_CHARS, Unread};

/// Rows that are read: a large node has half a million locks, and nobody prints all of them.
const MOST_ROWS: usize = 200_000;

/// Ways of cutting rows that are tried in the whole text.
const BUDGET: u32 = 2_000_000;

/// Bytes that are looked at for the ends of calls that have none, for each byte of the text, and in any text. Only text that is made for
/// it needs more: a call that was cut off is looked at once.
const CALLS_IN_VAIN: usize = 2;
const CALLS_IN_VAIN_ALWAYS: usize = 16 * call::LONGEST;

const NO_TABLE: &str = "it is of no tool that is known here";
const TOO_MANY: &str = "there are too many rows before it";
const OVERFLOWN: &str = "a count has more digits than lcnt prints, and so the histogram is not known";
const NO_ROW: &str = "the row that this histogram is of was not read";
const NO_PLACES: &str = "the table of places that these lines stand above is missing: copy it too";
const ENDLESS: &str =
    "too many calls without an end stand before it, and no further call was read: import it by itself";

/// What was found in a text.
#[derive(Debug, Default)]
pub struct Found {
    pub tables: Vec<Table>,
    pub told: Vec<Told>,
    pub unread: Log,
}

/// A table.
#[derive(Debug)]
pub struct Table {
    /// Where its headings begin.
    pub line: usize,
    pub column: usize,
    pub columns: Vec<Column>,
    /// The call that has printed it, where the text shows it.
    pub call: Option<Call>,
    /// The lock that it is of, where that stands above it.
    pub context: Option<Context>,
    /// Tables of one call have the same number.
    pub print: usize,
    pub rows: Vec<Row>,
}

/// A row.
#[derive(Debug)]
pub struct Row {
    pub cells: Cells,
    pub line: usize,
    pub column: usize,
    /// Counts of waits by their length; empty where none follow it.
    pub bins: Vec<i64>,
}

/// The three lines above a table of the places of one lock, or of one class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Context {
    pub class: String,
    /// The lock, or how many locks the class has.
    pub id: String,
    pub kind: String,
}

/// What `information` tells.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Told {
    pub line: usize,
    pub column: usize,
    pub locks: Option<i64>,
    pub duration_us: Option<i64>,
}

/// What was not read.
#[derive(Debug, Default)]
pub struct Log {
    list: Vec<Unread>,
    /// Lines of the last one.
    lines: usize,
    more: usize,
}

impl Log {
    /// Adds a part of the text.
    pub fn add(&mut self, line: usize, column: usize, text: &str, why: impl Into<String>) {
        self.end();
        if self.list.len() >= MOST_UNREAD {
            self.more += 1;
            return;
        }
        let text = text.chars().take(TOLD_CHARS).collect();
        self.list.push(Unread { line, column, text, why: why.into() });
        self.lines = 1;
    }

    /// Adds a word to the last part.
    fn go_on(&mut self, token: &Token<'_>) {
        let Some(last) = self.list.last_mut().filter(|_| self.more == 0) else { return };
        self.lines = token.line + 1 - last.line;
        let left = TOLD_CHARS.saturating_sub(last.text.chars().count() + 1);
        if left > 0 && self.lines == 1 {
            last.text.push(' ');
            last.text.extend(token.text.chars().take(left));
        }
    }

    fn end(&mut self) {
        if let Some(last) = self.list.last_mut().filter(|_| self.lines > 1) {
            last.why.push_str(&format!(" ({} lines)", self.lines));
        }
        self.lines = 0;
    }

    /// Those that are kept, and how many more there were.
    pub fn finish(mut self) -> (Vec<Unread>, usize) {
        self.end();
        (self.list, self.more)
    }
}

/// Finds all of it.
pub fn walk(text: &str) -> Found {
    let mut walk = Walk {
        tokens: Tokens::new(text),
        found: Found::default(),
        head: None,
        call: None,
        context: None,
        context_at: (0, 0),
        is_fresh: false,
        is_telling: false,
        shell_line: None,
        is_anchored: false,
        failing: VecDeque::new(),
        stray: None,
        print: 0,
        rows: 0,
        budget: BUDGET,
        calls_budget: text.len().saturating_mul(CALLS_IN_VAIN).saturating_add(CALLS_IN_VAIN_ALWAYS),
    };
    while let Some(token) = walk.tokens.peek(0) {
        walk.step(token);
    }
    walk.drop_context();
    walk.found
}

struct Walk<'a> {
    tokens: Tokens<'a>,
    found: Found,
    /// Of the table in which we are.
    head: Option<Head>,
    call: Option<Call>,
    context: Option<Context>,
    /// The line and column of that.
    context_at: (usize, usize),
    /// The call has not printed anything yet.
    is_fresh: bool,
    /// Within what `information` prints.
    is_telling: bool,
    /// A line with a prompt: what else stands on it is input.
    shell_line: Option<usize>,
    /// A row may begin here, although no line does.
    is_anchored: bool,
    /// The last words that did not fit.
    failing: VecDeque<&'a str>,
    /// Why the word before was not read.
    stray: Option<&'static str>,
    print: usize,
    rows: usize,
    budget: u32,
    /// Bytes that may be looked at still for the ends of calls.
    calls_budget: usize,
}

impl<'a> Walk<'a> {
    fn step(&mut self, token: Token<'a>) {
        let is_read = self.shell(token)
            || self.divider(token)
            || self.head(token)
            || self.context(token)
            || self.information(token)
            || self.bin(token)
            || self.answer(token);
        if is_read {
            self.stray = None;
            self.failing.clear();
            return;
        }
        self.row(token);
    }

    fn leave_table(&mut self) {
        self.head = None;
        self.is_anchored = false;
    }

    /// Lines that stand above no table.
    fn drop_context(&mut self) {
        if let Some(Context { class, id, kind }) = self.context.take() {
            let (line, column) = self.context_at;
            self.found.unread.add(line, column, &format!("lock: {class} id: {id} type: {kind}"), NO_PLACES);
        }
    }

    /// Prompts, calls and banners.
    fn shell(&mut self, token: Token<'a>) -> bool {
        let line = Some(token.line);
        if call::is_prompt(token.text) {
            self.leave_table();
            self.is_telling = false;
            self.shell_line = line;
            self.tokens.skip(1);
            return true;
        }
        let is_first = token.is_first;
        let is_elixirs = token.text == "Interactive" && self.tokens.word(1) == "Elixir";
        let begins_banner = matches!(token.text, BEGINS | "Eshell") || token.text.starts_with("```");
        if is_first && (begins_banner || is_elixirs) {
            self.leave_table();
            self.shell_line = line;
            self.tokens.skip(1);
            return true;
        }
        let is_typed = is_first || self.shell_line == line;
        let Some(at) = call::begins(token.text).filter(|_| is_typed) else { return false };
        let begin = token.begin + at;
        let Some((call, length)) = self.calls(token, begin) else { return false };
        self.call = Some(call);
        self.is_fresh = true;
        self.is_telling = false;
        self.drop_context();
        self.print += 1;
        self.leave_table();
        while let Some(token) = self.tokens.peek(0).filter(|token| token.begin < begin + length) {
            self.shell_line = Some(token.line);
            self.tokens.skip(1);
        }
        true
    }

    /// The calls that begin at a place of the text, unless too many before them had no end.
    fn calls(&mut self, token: Token<'a>, begin: usize) -> Option<(Call, usize)> {
        if self.calls_budget == 0 {
            // What one before it has printed would be taken for this one's.
            (self.call, self.is_fresh) = (None, false);
            return None;
        }
        let Calls { last, in_vain } = call::read(&self.tokens.whole()[begin..]);
        self.calls_budget = self.calls_budget.saturating_sub(in_vain);
        if self.calls_budget == 0 {
            self.found.unread.add(token.line, token.column, token.text, ENDLESS);
        }
        last
    }

    /// The line of dashes below the headings.
    fn divider(&mut self, token: Token<'a>) -> bool {
        let is_divider = self.head.is_some() && head::is_divider(token.text);
        if is_divider {
            self.tokens.skip(1);
        }
        is_divider
    }

    fn head(&mut self, token: Token<'a>) -> bool {
        let Some(head) = head::read(&mut self.tokens) else { return false };
        let goes_on = self.context.is_some()
            && self.found.tables.last().is_some_and(|table| table.context.is_some())
            || self.call.as_ref().is_some_and(|call| call.function == Function::Histogram);
        if !self.is_fresh && !goes_on {
            // Whoever cuts a text may have cut the call away.
            self.call = None;
            self.print += 1;
        }
        self.is_fresh = false;
        self.is_telling = false;
        if self.shell_line == Some(token.line) {
            self.shell_line = None;
        }
        self.tokens.skip(head.words);
        self.found.tables.push(Table {
            line: token.line,
            column: token.column,
            columns: head.columns.clone(),
            call: self.call.clone().filter(|call| call.function != Function::Other),
            context: self.context.take(),
            print: self.print,
            rows: Vec::new(),
        });
        self.head = Some(head);
        self.is_anchored = true;
        true
    }

    /// `lock: db_tab`, `id:   sessions`, `type: rw_mutex`.
    fn context(&mut self, token: Token<'a>) -> bool {
        let words: [&str; 6] = std::array::from_fn(|n| self.tokens.word(n));
        let ["lock:", class, "id:", id, "type:", kind] = words else { return false };
        self.drop_context();
        self.context = Some(Context { class: unquoted(class), id: unquoted(id), kind: kind.to_owned() });
        self.context_at = (token.line, token.column);
        self.tokens.skip(6);
        self.leave_table();
        true
    }

    /// What `information` prints: a heading, and lines with a name, a colon and a number.
    fn information(&mut self, token: Token<'a>) -> bool {
        let words: [&str; 6] = std::array::from_fn(|n| self.tokens.word(n));
        let number = |word: &str| word.parse::<i64>().ok().filter(|number| *number >= 0);
        if words[0] == "information:" {
            self.begin_telling(token);
            self.tokens.skip(1);
            return true;
        }
        let is_locks = words[0] == "#locks" && words[1] == ":";
        let is_duration = words[0] == "duration" && words[1] == ":" && words[3] == "us";
        if is_locks || is_duration {
            let Some(number) = number(words[2]) else { return false };
            if !self.is_telling {
                self.begin_telling(token);
            }
            if let Some(told) = self.found.told.last_mut() {
                *if is_locks { &mut told.locks } else { &mut told.duration_us } = Some(number);
            }
            self.tokens.skip(3);
            return true;
        }
        // The same in seconds, and sums that follow from the tables.
        let is_rest = match words {
            [
                "us" | "(" | "s)" | "%" | "summated" | "stats:" | "#tries" | "#colls" | "wait" | "percent"
                | ":",
                ..,
            ] => true,
            ["time" | "of" | "duration", ..] => true,
            [word, ..] => word.trim_start_matches('(').parse::<f64>().is_ok(),
        };
        if self.is_telling && is_rest {
            self.tokens.skip(1);
            return true;
        }
        false
    }

    fn begin_telling(&mut self, token: Token<'a>) {
        self.leave_table();
        self.is_telling = true;
        self.found.told.push(Told { line: token.line, column: token.column, ..Told::default() });
    }

    /// A line of a histogram with counts: `12 = log2 :     1034 | ####`.
    fn bin(&mut self, token: Token<'a>) -> bool {
        let words: [&str; 6] = std::array::from_fn(|n| self.tokens.word(n));
        let [index, "=", "log2", ":", count, "|"] = words else { return false };
        let Ok(index) = index.parse::<usize>() else { return false };
        self.tokens.skip(6);
        while self.tokens.word(0).starts_with('#') && self.tokens.word(0).bytes().all(|byte| byte == b'#') {
            self.tokens.skip(1);
        }
        // Where line breaks were lost, what the shell answers stands behind the last one.
        if matches!(self.tokens.word(0), "ok" | ":ok") {
            self.tokens.skip(1);
        }
        let row = self.found.tables.last_mut().and_then(|table| table.rows.last_mut());
        match (row, count.parse::<i64>()) {
            (Some(row), Ok(count)) if row.bins.len() == index && count >= 0 => row.bins.push(count),
            (Some(_), Err(_)) => self.found.unread.add(token.line, token.column, &words.join(" "), OVERFLOWN),
            _ => self.found.unread.add(token.line, token.column, &words.join(" "), NO_ROW),
        }
        self.leave_table();
        true
    }

    /// What a shell answers when nothing else is to be said.
    fn answer(&mut self, token: Token<'a>) -> bool {
        let is_answer = matches!(token.text, "ok" | ":ok" | "true" | "false")
            || token.text.starts_with("{ok,")
            || token.text.starts_with("{:ok,");
        if is_answer && (self.head.is_some() || self.is_telling || token.is_first) {
            self.leave_table();
            self.is_telling = false;
            if token.text.starts_with('{') {
                self.shell_line = Some(token.line);
            }
            self.tokens.skip(1);
            return true;
        }
        false
    }

    /// A row of the table in which we are, or something that is not read.
    fn row(&mut self, token: Token<'a>) {
        self.is_telling = false;
        let is_first = token.is_first;
        let begins = is_first || self.is_anchored;
        let mut why = NO_TABLE;
        if let Some(head) = self.head.take() {
            if begins {
                match row::read(&mut self.tokens, &head, &mut self.budget) {
                    Ok((cells, words)) => return self.take_row(token, head, cells, words),
                    Err(fault) => why = fault.why(),
                }
                if why == Fault::Misfit.why() && is_first && !self.has_number() {
                    // Prose: the table has ended.
                    self.is_anchored = false;
                    return self.skip_word(token, NO_TABLE, false);
                }
            } else if let Some(before) = self.stray {
                why = before;
            }
            self.failing.push_back(token.text);
            if self.failing.len() > 8 {
                self.failing.pop_front();
            }
            self.is_anchored = row::may_end(&head, self.failing.make_contiguous());
            self.head = Some(head);
            return self.skip_word(token, why, !begins);
        }
        if self.shell_line == Some(token.line) {
            self.tokens.skip(1);
            return;
        }
        self.skip_word(token, why, true);
    }

    fn take_row(&mut self, token: Token<'a>, head: Head, cells: Cells, words: usize) {
        self.head = Some(head);
        self.tokens.skip(words);
        self.is_anchored = true;
        self.stray = None;
        self.failing.clear();
        if self.rows == MOST_ROWS {
            self.found.unread.add(token.line, token.column, token.text, TOO_MANY);
            return;
        }
        self.rows += 1;
        if let Some(table) = self.found.tables.last_mut() {
            table.rows.push(Row { cells, line: token.line, column: token.column, bins: Vec::new() });
        }
    }

    /// Whether there is a number among the next words of the line, as there is in every row.
    fn has_number(&mut self) -> bool {
        let Some(first) = self.tokens.peek(0) else { return false };
        let in_line = |token: &Token<'_>| token.line == first.line;
        (0..12)
            .map_while(|n| self.tokens.peek(n).filter(in_line))
            .any(|token| token.text.parse::<f64>().is_ok())
    }

    fn skip_word(&mut self, token: Token<'a>, why: &'static str, goes_on: bool) {
        if goes_on && self.stray == Some(why) {
            self.found.unread.go_on(&token);
        } else {
            self.found.unread.add(token.line, token.column, token.text, why);
        }
        self.stray = Some(why);
        self.tokens.skip(1);
    }
}
