//! Parses the output of `lcnt` word by word.
//!
//! Line breaks may be lost when text is copied, so they hardly matter. A table is a line of headings and the words after it that fit. A row
//! begins only at the beginning of a line, directly after another row, or after unreadable words that end like a row. Otherwise, the second
//! word of a broken row could be mistaken for the first word of another row.

use std::collections::VecDeque;

use crate::banner::FIRST_WORD;
use crate::call::{self, Call, Calls, Function};
use crate::head::{self, Column, Head};
use crate::row::{self, Cells, Fault};
use crate::text::{Token, Tokens, unquoted};
use crate::{MAX_QUOTED_CHARS, MAX_UNREAD, Unread};

/// Maximum number of rows. A large node has half a million locks, but printing all of them is not useful.
const MAX_ROWS: usize = 200_000;

/// Maximum number of steps in splitting rows into cells, for a whole text.
const SPLIT_BUDGET: u32 = 2_000_000;

/// Maximum number of bytes that are scanned for the ends of unterminated calls, per byte of the text. A truncated call is scanned once, so
/// only crafted text needs more.
const MAX_CALL_SCAN_PER_BYTE: usize = 2;
/// Number of bytes that may be scanned for the ends of unterminated calls in addition.
const MIN_CALL_SCAN_BYTES: usize = 16 * call::MAX_CALL_BYTES;

const UNKNOWN: &str = "no known tool prints this";
const TOO_MANY: &str = "too many rows before this one";
const OVERFLOWED: &str = "a count has more digits than lcnt prints, so the histogram is unknown";
const NO_ROW: &str = "the row that this histogram belongs to was not read";
const NO_PLACES: &str = "the table of locations below these lines is missing: copy it, too";
const UNTERMINATED: &str =
    "too many unterminated calls before this one, so no further call was read: import it separately";

/// The output of lcnt in a text.
#[derive(Debug, Default)]
pub struct LcntOutput {
    pub tables: Vec<Table>,
    pub information: Vec<Information>,
    pub unread: UnreadLog,
}

/// A table.
#[derive(Debug)]
pub struct Table {
    /// Line of its headings.
    pub line: usize,
    /// Column of its headings in the text.
    pub column: usize,
    pub columns: Vec<Column>,
    /// The call that printed the table, if the text contains it.
    pub call: Option<Call>,
    /// The lock or class, if the lines above the table contain it.
    pub context: Option<Context>,
    /// Identifies the call that printed the table; a call may print several tables.
    pub call_id: usize,
    pub rows: Vec<Row>,
}

/// A row.
#[derive(Debug)]
pub struct Row {
    pub cells: Cells,
    pub line: usize,
    pub column: usize,
    /// Numbers of waits by duration; empty if there is no histogram below the row.
    pub bins: Vec<i64>,
}

/// The three lines above a table with the locations of one lock or class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Context {
    pub class: String,
    /// The lock, or the number of locks in the class.
    pub id: String,
    pub kind: String,
}

/// The output of `lcnt:information()`.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Information {
    pub line: usize,
    pub column: usize,
    pub locks: Option<i64>,
    pub duration_us: Option<i64>,
}

/// The parts that were not read.
#[derive(Debug, Default)]
pub struct UnreadLog {
    list: Vec<Unread>,
    /// Number of lines of the last part.
    lines: usize,
    /// Number of parts that are not listed.
    more: usize,
}

impl UnreadLog {
    /// Adds a part of the text.
    pub fn add(&mut self, line: usize, column: usize, text: &str, why: impl Into<String>) {
        self.end();
        if self.list.len() >= MAX_UNREAD {
            self.more += 1;
            return;
        }
        let text = text.chars().take(MAX_QUOTED_CHARS).collect();
        self.list.push(Unread { line, column, text, reason: why.into() });
        self.lines = 1;
    }

    /// Appends a word to the last part.
    fn extend(&mut self, token: &Token<'_>) {
        let Some(last) = self.list.last_mut().filter(|_| self.more == 0) else { return };
        self.lines = token.line + 1 - last.line;
        let left = MAX_QUOTED_CHARS.saturating_sub(last.text.chars().count() + 1);
        if left > 0 && self.lines == 1 {
            last.text.push(' ');
            last.text.extend(token.text.chars().take(left));
        }
    }

    fn end(&mut self) {
        if let Some(last) = self.list.last_mut().filter(|_| self.lines > 1) {
            last.reason.push_str(&format!(" ({} lines)", self.lines));
        }
        self.lines = 0;
    }

    /// Returns the listed parts, and the number of parts that are not listed.
    pub fn finish(mut self) -> (Vec<Unread>, usize) {
        self.end();
        (self.list, self.more)
    }
}

/// Parses all output of lcnt.
pub fn parse(text: &str) -> LcntOutput {
    let mut parser = Parser {
        tokens: Tokens::new(text),
        output: LcntOutput::default(),
        head: None,
        call: None,
        context: None,
        context_at: (0, 0),
        is_call_unanswered: false,
        in_information: false,
        shell_line: None,
        may_begin_row: false,
        failed_words: VecDeque::new(),
        last_reason: None,
        call_id: 0,
        rows: 0,
        budget: SPLIT_BUDGET,
        call_budget: text.len().saturating_mul(MAX_CALL_SCAN_PER_BYTE).saturating_add(MIN_CALL_SCAN_BYTES),
    };
    while let Some(token) = parser.tokens.peek(0) {
        parser.step(token);
    }
    parser.drop_context();
    parser.output
}

struct Parser<'a> {
    tokens: Tokens<'a>,
    output: LcntOutput,
    /// The headings of the current table.
    head: Option<Head>,
    call: Option<Call>,
    context: Option<Context>,
    /// Line and column of the context.
    context_at: (usize, usize),
    /// Whether no table of the call has been read yet.
    is_call_unanswered: bool,
    /// Whether the current word is within the output of `information`.
    in_information: bool,
    /// The last line with a prompt. The rest of this line is input.
    shell_line: Option<usize>,
    /// Whether a row may begin at the current word even if no line begins there.
    may_begin_row: bool,
    /// The last words that fit no row.
    failed_words: VecDeque<&'a str>,
    /// Why the previous word was not read.
    last_reason: Option<&'static str>,
    call_id: usize,
    rows: usize,
    budget: u32,
    /// Number of bytes that may still be scanned for the ends of calls.
    call_budget: usize,
}

impl<'a> Parser<'a> {
    fn step(&mut self, token: Token<'a>) {
        let is_read = self.shell(token)
            || self.divider(token)
            || self.head(token)
            || self.context(token)
            || self.information(token)
            || self.bin(token)
            || self.answer(token);
        if is_read {
            self.last_reason = None;
            self.failed_words.clear();
            return;
        }
        self.row(token);
    }

    fn leave_table(&mut self) {
        self.head = None;
        self.may_begin_row = false;
    }

    /// Reports context lines without a table.
    fn drop_context(&mut self) {
        if let Some(Context { class, id, kind }) = self.context.take() {
            let (line, column) = self.context_at;
            self.output.unread.add(line, column, &format!("lock: {class} id: {id} type: {kind}"), NO_PLACES);
        }
    }

    /// Reads a prompt, a call or a banner.
    fn shell(&mut self, token: Token<'a>) -> bool {
        let line = Some(token.line);
        if call::is_prompt(token.text) {
            self.leave_table();
            self.in_information = false;
            self.shell_line = line;
            self.tokens.skip(1);
            return true;
        }
        let is_first = token.is_first;
        let is_elixir = token.text == "Interactive" && self.tokens.word(1) == "Elixir";
        let begins_banner = matches!(token.text, FIRST_WORD | "Eshell") || token.text.starts_with("```");
        if is_first && (begins_banner || is_elixir) {
            self.leave_table();
            self.shell_line = line;
            self.tokens.skip(1);
            return true;
        }
        let is_typed = is_first || self.shell_line == line;
        let Some(at) = call::find_call(token.text).filter(|_| is_typed) else { return false };
        let begin = token.begin + at;
        let Some((call, length)) = self.calls(token, begin) else { return false };
        self.call = Some(call);
        self.is_call_unanswered = true;
        self.in_information = false;
        self.drop_context();
        self.call_id += 1;
        self.leave_table();
        while let Some(token) = self.tokens.peek(0).filter(|token| token.begin < begin + length) {
            self.shell_line = Some(token.line);
            self.tokens.skip(1);
        }
        true
    }

    /// Reads the calls that begin at `begin`; `None` if the scan budget is used up.
    fn calls(&mut self, token: Token<'a>, begin: usize) -> Option<(Call, usize)> {
        if self.call_budget == 0 {
            // Otherwise, the output of this call would be attributed to the previous one.
            (self.call, self.is_call_unanswered) = (None, false);
            return None;
        }
        let Calls { last, wasted_bytes } = call::read(&self.tokens.source()[begin..]);
        self.call_budget = self.call_budget.saturating_sub(wasted_bytes);
        if self.call_budget == 0 {
            self.output.unread.add(token.line, token.column, token.text, UNTERMINATED);
        }
        last
    }

    /// Reads a part of the line of dashes below the headings.
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
            && self.output.tables.last().is_some_and(|table| table.context.is_some())
            || self.call.as_ref().is_some_and(|call| call.function == Function::Histogram);
        if !self.is_call_unanswered && !goes_on {
            // The call that printed this table was not copied.
            self.call = None;
            self.call_id += 1;
        }
        self.is_call_unanswered = false;
        self.in_information = false;
        if self.shell_line == Some(token.line) {
            self.shell_line = None;
        }
        self.tokens.skip(head.words);
        self.output.tables.push(Table {
            line: token.line,
            column: token.column,
            columns: head.columns.clone(),
            call: self.call.clone().filter(|call| call.function != Function::Other),
            context: self.context.take(),
            call_id: self.call_id,
            rows: Vec::new(),
        });
        self.head = Some(head);
        self.may_begin_row = true;
        true
    }

    /// Reads the lines `lock: db_tab`, `id:   sessions`, `type: rw_mutex`.
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

    /// Reads a part of the output of `information`: a heading, then lines with a name, a colon and a number.
    fn information(&mut self, token: Token<'a>) -> bool {
        let words: [&str; 6] = std::array::from_fn(|n| self.tokens.word(n));
        let number = |word: &str| word.parse::<i64>().ok().filter(|number| *number >= 0);
        if words[0] == "information:" {
            self.begin_information(token);
            self.tokens.skip(1);
            return true;
        }
        let is_locks = words[0] == "#locks" && words[1] == ":";
        let is_duration = words[0] == "duration" && words[1] == ":" && words[3] == "us";
        if is_locks || is_duration {
            let Some(number) = number(words[2]) else { return false };
            if !self.in_information {
                self.begin_information(token);
            }
            if let Some(last) = self.output.information.last_mut() {
                *if is_locks { &mut last.locks } else { &mut last.duration_us } = Some(number);
            }
            self.tokens.skip(3);
            return true;
        }
        // The duration in seconds, and sums that are also in the tables, are skipped.
        let is_rest = match words {
            [
                "us" | "(" | "s)" | "%" | "summated" | "stats:" | "#tries" | "#colls" | "wait" | "percent"
                | ":",
                ..,
            ] => true,
            ["time" | "of" | "duration", ..] => true,
            [word, ..] => word.trim_start_matches('(').parse::<f64>().is_ok(),
        };
        if self.in_information && is_rest {
            self.tokens.skip(1);
            return true;
        }
        false
    }

    fn begin_information(&mut self, token: Token<'a>) {
        self.leave_table();
        self.in_information = true;
        self.output.information.push(Information {
            line: token.line,
            column: token.column,
            ..Information::default()
        });
    }

    /// Reads a line of a histogram with counts: `12 = log2 :     1034 | ####`.
    fn bin(&mut self, token: Token<'a>) -> bool {
        let words: [&str; 6] = std::array::from_fn(|n| self.tokens.word(n));
        let [index, "=", "log2", ":", count, "|"] = words else { return false };
        let Ok(index) = index.parse::<usize>() else { return false };
        self.tokens.skip(6);
        while self.tokens.word(0).starts_with('#') && self.tokens.word(0).bytes().all(|byte| byte == b'#') {
            self.tokens.skip(1);
        }
        // If line breaks were lost, the value that the shell prints follows the last line.
        if matches!(self.tokens.word(0), "ok" | ":ok") {
            self.tokens.skip(1);
        }
        let row = self.output.tables.last_mut().and_then(|table| table.rows.last_mut());
        match (row, count.parse::<i64>()) {
            (Some(row), Ok(count)) if row.bins.len() == index && count >= 0 => row.bins.push(count),
            (Some(_), Err(_)) => {
                self.output.unread.add(token.line, token.column, &words.join(" "), OVERFLOWED);
            }
            _ => self.output.unread.add(token.line, token.column, &words.join(" "), NO_ROW),
        }
        self.leave_table();
        true
    }

    /// Reads the return value that a shell prints after other output.
    fn answer(&mut self, token: Token<'a>) -> bool {
        let is_answer = matches!(token.text, "ok" | ":ok" | "true" | "false")
            || token.text.starts_with("{ok,")
            || token.text.starts_with("{:ok,");
        if is_answer && (self.head.is_some() || self.in_information || token.is_first) {
            self.leave_table();
            self.in_information = false;
            if token.text.starts_with('{') {
                self.shell_line = Some(token.line);
            }
            self.tokens.skip(1);
            return true;
        }
        false
    }

    /// Reads a row of the current table, or reports an unread word.
    fn row(&mut self, token: Token<'a>) {
        self.in_information = false;
        let is_first = token.is_first;
        let begins = is_first || self.may_begin_row;
        let mut why = UNKNOWN;
        if let Some(head) = self.head.take() {
            if begins {
                match row::read(&mut self.tokens, &head, &mut self.budget) {
                    Ok((cells, words)) => return self.take_row(token, head, cells, words),
                    Err(fault) => why = fault.why(),
                }
                if why == Fault::Mismatch.why() && is_first && !self.has_number() {
                    // The line is prose, so the table has ended.
                    self.may_begin_row = false;
                    return self.skip_word(token, UNKNOWN, false);
                }
            } else if let Some(before) = self.last_reason {
                why = before;
            }
            self.failed_words.push_back(token.text);
            if self.failed_words.len() > 8 {
                self.failed_words.pop_front();
            }
            self.may_begin_row = row::may_end(&head, self.failed_words.make_contiguous());
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
        self.may_begin_row = true;
        self.last_reason = None;
        self.failed_words.clear();
        if self.rows == MAX_ROWS {
            self.output.unread.add(token.line, token.column, token.text, TOO_MANY);
            return;
        }
        self.rows += 1;
        if let Some(table) = self.output.tables.last_mut() {
            table.rows.push(Row { cells, line: token.line, column: token.column, bins: Vec::new() });
        }
    }

    /// Whether one of the next words of the line is a number; every row contains a number.
    fn has_number(&mut self) -> bool {
        let Some(first) = self.tokens.peek(0) else { return false };
        let in_line = |token: &Token<'_>| token.line == first.line;
        (0..12)
            .map_while(|n| self.tokens.peek(n).filter(in_line))
            .any(|token| token.text.parse::<f64>().is_ok())
    }

    fn skip_word(&mut self, token: Token<'a>, why: &'static str, goes_on: bool) {
        if goes_on && self.last_reason == Some(why) {
            self.output.unread.extend(&token);
        } else {
            self.output.unread.add(token.line, token.column, token.text, why);
        }
        self.last_reason = Some(why);
        self.tokens.skip(1);
    }
}
