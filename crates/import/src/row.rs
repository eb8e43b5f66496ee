//! Parses rows of a table, and checks that their cells are consistent.
//!
//! Usually, a row has one word per column. If words touch, the line is split at the ends of the columns. If the alignment is also
//! lost, all ways to split the line into valid cells are tried. The row is read if there is exactly one such way.

use crate::head::{Column, Head, is_divider};
use crate::text::{self, Tokens};

/// Longer lines are not rows, which have at most ten columns of 80 characters.
const MAX_LINE_BYTES: usize = 2_000;

/// Maximum number of steps in splitting one row.
const MAX_STEPS: u32 = 20_000;

/// Half a unit of the last decimal of a percentage.
pub const HALF_DIGIT: f64 = 0.000_05;

/// The maximum width of a column in lcnt. A column of this width may contain truncated names.
const MAX_COLUMN_CHARS: usize = 80;

/// A location in the emulator's source. Both fields are `None` if lock counting does not know the location.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    pub file: Option<String>,
    pub line: Option<i64>,
}

/// The cells of a row; `None` if the table has no such column.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Cells {
    /// The name as printed, with quotes.
    pub name: Option<String>,
    /// The id as printed, with quotes.
    pub id: Option<String>,
    pub kind: Option<String>,
    pub place: Option<Place>,
    pub tries: Option<i64>,
    pub collisions: Option<i64>,
    pub collision_pct: Option<f64>,
    pub time_us: Option<i64>,
    pub duration_pct: Option<f64>,
}

impl Cells {
    /// Sets a cell. Returns false if the text is invalid for the column.
    fn put(&mut self, column: Column, cell: &str) -> bool {
        match column {
            Column::Name => {
                self.name = is_name(cell).then(|| cell.to_owned());
                self.name.is_some()
            }
            Column::Id => {
                self.id = is_id(cell).then(|| cell.to_owned());
                self.id.is_some()
            }
            Column::Kind => {
                self.kind = is_kind(cell).then(|| cell.to_owned());
                self.kind.is_some()
            }
            Column::Place => {
                self.place = place(cell);
                self.place.is_some()
            }
            Column::Tries => {
                self.tries = integer(cell);
                self.tries.is_some()
            }
            Column::Collisions => {
                self.collisions = integer(cell);
                self.collisions.is_some()
            }
            Column::CollisionShare => {
                self.collision_pct = share(cell);
                self.collision_pct.is_some()
            }
            Column::Time => {
                self.time_us = integer(cell);
                self.time_us.is_some()
            }
            Column::Duration => {
                self.duration_pct = share(cell);
                self.duration_pct.is_some()
            }
            Column::Histogram => is_histogram(cell),
        }
    }

    /// Whether the collision percentage follows from the counts; true if one of these values is missing.
    pub fn is_consistent(&self) -> bool {
        match (self.tries, self.collisions, self.collision_pct) {
            (Some(0), _, Some(printed)) => printed == 0.0,
            (Some(tries), Some(collisions), Some(printed)) => {
                let share = collisions as f64 / tries as f64 * 100.0;
                (share - printed).abs() <= HALF_DIGIT * 1.001
            }
            _ => true,
        }
    }
}

/// Why words are not a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A cell is invalid for its column.
    Mismatch,
    /// The collision percentage does not follow from the counts.
    Inconsistent,
    /// There are several ways to split the line.
    Ambiguous,
    /// A number fills its column, so digits may be missing.
    Truncated,
}

impl Fault {
    /// Returns the reason, for the user.
    pub fn why(self) -> &'static str {
        match self {
            Fault::Mismatch => "it does not fit the columns above it",
            Fault::Inconsistent => {
                "its collision percentage does not follow from its counts, so a number is wrong or belongs elsewhere"
            }
            Fault::Ambiguous => "its columns touch, so their ends are ambiguous",
            Fault::Truncated => "a number fills its column, so digits may be missing",
        }
    }
}

/// Reads a row at the current word. Returns the cells and the number of words. `budget` limits the steps of splitting in the whole text.
pub fn read(tokens: &mut Tokens<'_>, head: &Head, budget: &mut u32) -> Result<(Cells, usize), Fault> {
    let fault = match by_words(tokens, head) {
        Ok(read) => return Ok(read),
        Err(fault) => fault,
    };
    let Some(first) = tokens.peek(0) else { return Err(fault) };
    if !first.is_first {
        return Err(fault);
    }
    let line = tokens.line_of(first);
    if line.len() > MAX_LINE_BYTES {
        return Err(fault);
    }
    let words = tokens.left_in_line();
    match by_ends(line, head) {
        Ok(cells) => return Ok((cells, words)),
        Err(Fault::Truncated) => return Err(Fault::Truncated),
        Err(_) => {}
    }
    by_splitting(line.trim(), head, budget).map(|cells| (cells, words)).map_err(|fault_of_splitting| {
        match fault_of_splitting {
            Fault::Mismatch => fault,
            other => other,
        }
    })
}

/// Reads a row that has one word per column.
fn by_words(tokens: &mut Tokens<'_>, head: &Head) -> Result<(Cells, usize), Fault> {
    let mut cells = Cells::default();
    let mut words = 0;
    let first = tokens.peek(0).ok_or(Fault::Mismatch)?;
    let mut last_line = first.line;
    for column in &head.columns {
        let token = tokens.peek(words).ok_or(Fault::Mismatch)?;
        if *column == Column::Histogram && token.text == "|" {
            // There is a line break within the histogram.
            words += broken_histogram(tokens, words).ok_or(Fault::Mismatch)?;
            continue;
        }
        if !cells.put(*column, token.text) {
            return Err(Fault::Mismatch);
        }
        words += 1;
        last_line = token.line;
    }
    if !cells.is_consistent() {
        return Err(Fault::Inconsistent);
    }
    // A line break may split a number, too. Its two parts are then read as two cells, which only the percentage reliably detects.
    let is_checked = cells.tries.is_some() && cells.collisions.is_some() && cells.collision_pct.is_some();
    if last_line != first.line && !is_checked {
        return Err(Fault::Mismatch);
    }
    Ok((cells, words))
}

/// Counts the words of a histogram that contains a line break, and that begins `n` words after the current one.
fn broken_histogram(tokens: &mut Tokens<'_>, n: usize) -> Option<usize> {
    for words in 1..16 {
        let word = tokens.word(n + words);
        let marks = word.trim_end_matches('|');
        if word.is_empty() || !marks.bytes().all(|byte| matches!(byte, b'.' | b'x' | b'X')) {
            return None;
        }
        if word.ends_with('|') {
            return Some(words + 1);
        }
    }
    None
}

/// Splits a line at the ends of the headings.
fn by_ends(line: &str, head: &Head) -> Result<Cells, Fault> {
    let letters: Vec<char> = line.chars().collect();
    let (Some(end), Some(last)) = (head.ends.last(), head.columns.last()) else {
        return Err(Fault::Mismatch);
    };
    // A histogram begins below the beginning of its heading, and is longer than the heading.
    if *last != Column::Histogram && letters.len() != *end {
        return Err(Fault::Mismatch);
    }
    let mut cells = Cells::default();
    let mut begin = 0;
    for (column, end) in head.columns.iter().zip(&head.ends) {
        let end = if *column == Column::Histogram { letters.len() } else { *end };
        let slice: String = letters.get(begin..end).ok_or(Fault::Mismatch)?.iter().collect();
        if !cells.put(*column, slice.trim()) {
            return Err(Fault::Mismatch);
        }
        // Cells that are longer than the column are truncated. For names, this happens only in columns of the maximum width.
        let may_be_cut = column.is_number() || end - begin < MAX_COLUMN_CHARS;
        if begin > 0 && !slice.starts_with(' ') && may_be_cut && *column != Column::Histogram {
            return Err(Fault::Truncated);
        }
        begin = end;
    }
    if cells.is_consistent() { Ok(cells) } else { Err(Fault::Inconsistent) }
}

/// Splits a line in every possible way. Fails unless exactly one way is valid.
fn by_splitting(line: &str, head: &Head, budget: &mut u32) -> Result<Cells, Fault> {
    let mut search = Search {
        columns: &head.columns,
        found: Vec::new(),
        steps: MAX_STEPS.min(*budget),
        is_inconsistent: false,
    };
    let before = search.steps;
    search.split(line, 0, &Cells::default());
    *budget -= before - search.steps;
    if search.steps == 0 {
        return Err(Fault::Ambiguous);
    }
    match search.found.len() {
        0 if search.is_inconsistent => Err(Fault::Inconsistent),
        0 => Err(Fault::Mismatch),
        1 => search.found.pop().ok_or(Fault::Mismatch),
        _ => Err(Fault::Ambiguous),
    }
}

struct Search<'h> {
    columns: &'h [Column],
    /// The results found; the search ends after two, because the line is then ambiguous.
    found: Vec<Cells>,
    /// Number of steps left.
    steps: u32,
    /// Whether there was a way that resulted in an inconsistent collision percentage.
    is_inconsistent: bool,
}

impl Search<'_> {
    fn split(&mut self, rest: &str, at: usize, cells: &Cells) {
        let rest = rest.trim_start();
        let Some(column) = self.columns.get(at) else {
            if rest.is_empty() && !cells.is_consistent() {
                self.is_inconsistent = true;
            } else if rest.is_empty() && !self.found.contains(cells) {
                self.found.push(cells.clone());
            }
            return;
        };
        for length in lengths(*column, rest) {
            if self.steps == 0 || self.found.len() > 1 {
                return;
            }
            self.steps -= 1;
            let (cell, after) = rest.split_at(length);
            let mut cells = cells.clone();
            if cells.put(*column, cell) {
                self.split(after, at + 1, &cells);
            }
        }
    }
}

/// Returns the possible lengths of a cell at the beginning of a text, in bytes.
fn lengths(column: Column, rest: &str) -> Vec<usize> {
    let run = |is: fn(char) -> bool| rest.find(|c| !is(c)).unwrap_or(rest.len());
    match column {
        Column::Tries | Column::Collisions | Column::Time => (1..=run(|c| c.is_ascii_digit())).collect(),
        // A percentage always has four decimals.
        Column::CollisionShare | Column::Duration => {
            let whole = run(|c| c.is_ascii_digit());
            vec![whole + 5].into_iter().filter(|length| rest.is_char_boundary(*length)).collect()
        }
        Column::Histogram => text::histogram(rest).into_iter().collect(),
        Column::Name | Column::Id if rest.starts_with('\'') => text::quoted(rest).into_iter().collect(),
        Column::Name | Column::Id if rest.starts_with(['<', '#']) => {
            rest.find('>').map(|end| end + 1).into_iter().collect()
        }
        Column::Name | Column::Id | Column::Kind => {
            let word = rest.find(char::is_whitespace).unwrap_or(rest.len()).min(256);
            (1..=word).filter(|length| rest.is_char_boundary(*length)).collect()
        }
        Column::Place => {
            let colon = if rest.starts_with('\'') { text::quoted(rest) } else { rest.find(':') };
            let Some(colon) = colon else { return Vec::new() };
            let digits = rest.get(colon + 1..).unwrap_or_default();
            let digits = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
            (1..=digits).map(|count| colon + 1 + count).collect()
        }
    }
}

/// Whether a cell is a valid name: an atom (quoted or not), a pid, a port, or several classes separated by commas.
fn is_name(cell: &str) -> bool {
    names(cell).all(|name| {
        let is_atom = name.starts_with(|c: char| c.is_ascii_lowercase())
            && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '@'));
        is_atom || is_quoted(name) || is_pid_or_port(name)
    })
}

fn is_quoted(name: &str) -> bool {
    name.starts_with('\'') && text::quoted(name) == Some(name.len())
}

/// Whether a name is a pid or a port: `<nonode@nohost.80.0>`, `#Port<nonode@nohost.5>`.
pub fn is_pid_or_port(name: &str) -> bool {
    (name.starts_with('<') || name.starts_with("#Port<")) && name.ends_with('>') && name.contains('.')
}

/// Returns the names in a cell; only in tables of locations is there more than one.
pub fn names(cell: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(cell);
    std::iter::from_fn(move || {
        let text = rest?;
        let begin = text::quoted(text).filter(|_| text.starts_with('\'')).unwrap_or(0);
        let comma = text.get(begin..).and_then(|after| after.find(',')).map(|at| begin + at);
        rest = comma.and_then(|at| text.get(at + 1..));
        Some(comma.map_or(text, |at| &text[..at]))
    })
}

fn is_id(cell: &str) -> bool {
    let is_word = !cell.is_empty() && !cell.contains('|') && !is_divider(cell);
    // Percentages, and input after a prompt, are not ids.
    is_word
        && share(cell).is_none()
        && (is_quoted(cell) || is_pid_or_port(cell) || !cell.contains(['\'', '<', '>']))
}

fn is_kind(cell: &str) -> bool {
    const KINDS: [&str; 6] = ["mutex", "rw_mutex", "spinlock", "rw_spinlock", "proclock", "undefined"];
    KINDS.contains(&cell)
}

fn is_histogram(cell: &str) -> bool {
    text::histogram(cell) == Some(cell.len())
}

fn place(cell: &str) -> Option<Place> {
    let (file, line) = cell.rsplit_once(':')?;
    if !(is_quoted(file) || is_name(file) || file.contains('/')) || file.contains(',') {
        return None;
    }
    let file = Some(text::unquoted(file)).filter(|file| file != "undefined");
    let line = match line {
        "undefined" => None,
        digits => Some(integer(digits)?),
    };
    // A line without a file is meaningless.
    Some(Place { line: line.filter(|_| file.is_some()), file })
}

fn integer(cell: &str) -> Option<i64> {
    let is_plain = !cell.is_empty() && cell.bytes().all(|byte| byte.is_ascii_digit());
    // The VM does not print leading zeros.
    (is_plain && (cell.len() == 1 || !cell.starts_with('0'))).then(|| cell.parse().ok()).flatten()
}

/// Parses a number with four decimals.
fn share(cell: &str) -> Option<f64> {
    let (whole, digits) = cell.split_once('.')?;
    let is_fraction = digits.len() == 4 && digits.bytes().all(|byte| byte.is_ascii_digit());
    (is_fraction && integer(whole).is_some()).then(|| cell.parse().ok()).flatten()
}

/// Whether the last words end like a row, with numbers in the last columns, so that another row may follow.
pub fn may_end(head: &Head, last: &[&str]) -> bool {
    let numbers: Vec<Column> =
        head.columns.iter().rev().copied().take_while(|column| column.is_number()).collect();
    let mut cells = Cells::default();
    numbers.len() >= 2
        && last.len() >= numbers.len()
        && numbers.iter().zip(last.iter().rev()).all(|(column, cell)| cells.put(*column, cell))
}

impl Column {
    fn is_number(self) -> bool {
        !matches!(self, Column::Name | Column::Id | Column::Kind | Column::Place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head;

    const HEADINGS: &str = "      lock   id  #tries  #collisions  collisions [%]  time [us]  duration [%]\n";

    fn read_after(headings: &str, row: &str) -> Result<Cells, Fault> {
        let text = format!("{headings}{row}");
        let mut tokens = Tokens::new(&text);
        let head = head::read(&mut tokens).expect("headings");
        tokens.skip(head.words);
        read(&mut tokens, &head, &mut 1_000_000).map(|(cells, _)| cells)
    }

    fn expected() -> Cells {
        Cells {
            name: Some("run_queue".to_owned()),
            id: Some("10".to_owned()),
            tries: Some(590_799),
            collisions: Some(8_875),
            collision_pct: Some(1.5022),
            time_us: Some(37_906),
            duration_pct: Some(2.2167),
            ..Cells::default()
        }
    }

    #[test]
    fn a_row_has_a_word_in_each_column() {
        let row = " run_queue   10  590799         8875          1.5022      37906        2.2167\n";
        assert_eq!(read_after(HEADINGS, row), Ok(expected()));
        assert_eq!(read_after(HEADINGS, "run_queue 10\n590799 8875 1.5022 37906 2.2167"), Ok(expected()));
    }

    #[test]
    fn inconsistent_numbers_are_rejected() {
        let row = " run_queue   10  590799         8875          1.6022      37906        2.2167\n";
        assert_eq!(read_after(HEADINGS, row), Err(Fault::Inconsistent));
        assert_eq!(read_after(HEADINGS, "run_queue 10 590799 8875 1.5022 37906"), Err(Fault::Mismatch));
        assert_eq!(read_after(HEADINGS, "run_queue 10 590799 8875 1.50 37906 2.2167"), Err(Fault::Mismatch));
        assert_eq!(
            read_after(HEADINGS, "run queue 10 590799 8875 1.5022 37906 2.2167"),
            Err(Fault::Mismatch)
        );
    }

    #[test]
    fn touching_columns_are_split_if_there_is_exactly_one_way() {
        // A percentage has four decimals, and must follow from the counts.
        assert_eq!(read_after(HEADINGS, "run_queue 10 59079988751.5022379062.2167"), Err(Fault::Ambiguous));
        assert_eq!(read_after(HEADINGS, "run_queue 10 59079988751.5022 37906 2.2167"), Ok(expected()));
        assert_eq!(read_after(HEADINGS, "run_queue 10 590799 8875 1.502237906 2.2167"), Ok(expected()));
        // The class may be "run_queue" or "run_queue1".
        assert_eq!(
            read_after(HEADINGS, "run_queue10 590799 8875 1.5022 37906 2.2167"),
            Err(Fault::Ambiguous)
        );
    }

    #[test]
    fn an_aligned_line_is_split_at_the_ends_of_its_columns() {
        let headings = format!("   lock{:>80}  #tries  time [us]\n", "id");
        let id = "t".repeat(80);
        let cells = read_after(&headings, &format!(" db_tab{id}      12         34\n")).expect("a row");
        assert_eq!(cells.id.as_deref(), Some(id.as_str()));
        assert_eq!((cells.name.as_deref(), cells.tries, cells.time_us), (Some("db_tab"), Some(12), Some(34)));
        let narrow = "   lock  #tries  time [us]\n";
        assert_eq!(read_after(narrow, " db_tab12345678         34\n"), Err(Fault::Truncated));
    }

    #[test]
    fn names_locations_and_ids_have_the_format_of_the_vm() {
        for name in ["db_tab", "'esock.r[17]'", "<nonode@nohost.80.0>", "proc_main,proc_msgq", "'a b',c"] {
            assert!(is_name(name), "{name}");
        }
        for name in ["12", "Db", "db-tab", "lcnt:conflicts().", "0.1", "", "5>", "-----"] {
            assert!(!is_name(name), "{name}");
        }
        let at = |file: &str, line| Some(Place { file: Some(file.to_owned()), line: Some(line) });
        assert_eq!(place("'beam/erl_db.c':1809"), at("beam/erl_db.c", 1809));
        assert_eq!(place("undefined:0"), Some(Place::default()));
        assert_eq!(place("beam/erl_db.c:x"), None);
        assert_eq!(names("'a,b',c").collect::<Vec<_>>(), ["'a,b'", "c"]);
        assert_eq!(
            (integer("007"), integer("0"), share("1.50"), share("0.0000")),
            (None, Some(0), None, Some(0.0))
        );
    }

    #[test]
    fn the_end_of_a_row_is_recognized() {
        let head = head::read(&mut Tokens::new(HEADINGS)).expect("headings");
        assert!(may_end(&head, &["x", "12", "0", "0.0000", "0", "0.0000"]));
        assert!(!may_end(&head, &["x", "12", "0", "0.0000", "0"]));
        assert!(!may_end(&head, &["db_tab", "my"]));
    }
}
