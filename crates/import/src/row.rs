//! Rows of a table: their cells, and what must hold between them.
//!
//! Mostly a row has one word in each column. Where words touch each other it is cut where the columns end; where the alignment is lost
//! too, in all ways that give cells of the right kind, and it is read if that is one way only.

use crate::head::{Column, Head, is_divider};
use crate::text::{self, Tokens};

/// Lines longer than this are no rows: ten columns of 80 characters.
const LONGEST_LINE: usize = 2_000;

/// Ways of cutting a row that are tried at most.
const MOST_STEPS: u32 = 20_000;

/// Half a unit of the last digit of a share.
pub const HALF_DIGIT: f64 = 0.000_05;

/// Columns of this width and more may be cut: lcnt makes none wider.
const WIDEST: usize = 80;

/// Where in the emulator's source; neither is known where lock counting does not tell.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    pub file: Option<String>,
    pub line: Option<i64>,
}

/// The cells of a row; `None` where the table has no such column.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Cells {
    /// As it is printed, with quotes.
    pub name: Option<String>,
    /// As it is printed, with quotes.
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
    /// Puts a text into a column; false if it is not what the column holds.
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

    /// Whether the share of collisions follows from the counts; true where one of them is missing.
    pub fn agrees(&self) -> bool {
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

/// Why words are no row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Its cells are not what the columns hold.
    Misfit,
    /// The share of collisions does not follow from the counts.
    Disagrees,
    /// There are several ways to cut it.
    Unclear,
    /// A number fills its column, so that digits may be missing.
    Cut,
}

impl Fault {
    /// In words.
    pub fn why(self) -> &'static str {
        match self {
            Fault::Misfit => "it does not fit the columns above it",
            Fault::Disagrees => {
                "its share of collisions does not follow from its counts, so a number is wrong or belongs elsewhere"
            }
            Fault::Unclear => "its columns touch each other, and where one ends is not clear",
            Fault::Cut => "a number fills its column, so that digits of it may be missing",
        }
    }
}

/// Reads the row that begins here, and says how many words it takes. `budget` is what may be tried still in the whole text.
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
    if line.len() > LONGEST_LINE {
        return Err(fault);
    }
    let words = tokens.left_in_line();
    match by_ends(line, head) {
        Ok(cells) => return Ok((cells, words)),
        Err(Fault::Cut) => return Err(Fault::Cut),
        Err(_) => {}
    }
    by_cutting(line.trim(), head, budget).map(|cells| (cells, words)).map_err(|cutting| match cutting {
        Fault::Misfit => fault,
        other => other,
    })
}

/// One word in each column.
fn by_words(tokens: &mut Tokens<'_>, head: &Head) -> Result<(Cells, usize), Fault> {
    let mut cells = Cells::default();
    let mut words = 0;
    let first = tokens.peek(0).ok_or(Fault::Misfit)?;
    let mut last_line = first.line;
    for column in &head.columns {
        let token = tokens.peek(words).ok_or(Fault::Misfit)?;
        if *column == Column::Histogram && token.text == "|" {
            // A line was broken within it.
            words += broken_histogram(tokens, words).ok_or(Fault::Misfit)?;
            continue;
        }
        if !cells.put(*column, token.text) {
            return Err(Fault::Misfit);
        }
        words += 1;
        last_line = token.line;
    }
    if !cells.agrees() {
        return Err(Fault::Disagrees);
    }
    // A number may be broken, too; then the two parts of it count as two cells, which only the share betrays for sure.
    let is_checked = cells.tries.is_some() && cells.collisions.is_some() && cells.collision_pct.is_some();
    if last_line != first.line && !is_checked {
        return Err(Fault::Misfit);
    }
    Ok((cells, words))
}

/// Words of a histogram that stands in two lines; it begins `n` words on.
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

/// Cuts a line where the headings end.
fn by_ends(line: &str, head: &Head) -> Result<Cells, Fault> {
    let letters: Vec<char> = line.chars().collect();
    let (Some(end), Some(last)) = (head.ends.last(), head.columns.last()) else { return Err(Fault::Misfit) };
    // A histogram begins where its heading begins, and is longer.
    if *last != Column::Histogram && letters.len() != *end {
        return Err(Fault::Misfit);
    }
    let mut cells = Cells::default();
    let mut begin = 0;
    for (column, end) in head.columns.iter().zip(&head.ends) {
        let end = if *column == Column::Histogram { letters.len() } else { *end };
        let slice: String = letters.get(begin..end).ok_or(Fault::Misfit)?.iter().collect();
        if !cells.put(*column, slice.trim()) {
            return Err(Fault::Misfit);
        }
        // What is longer than its column is cut at its end. Of names only the longest are, which say so by their length.
        let may_be_cut = column.is_number() || end - begin < WIDEST;
        if begin > 0 && !slice.starts_with(' ') && may_be_cut && *column != Column::Histogram {
            return Err(Fault::Cut);
        }
        begin = end;
    }
    if cells.agrees() { Ok(cells) } else { Err(Fault::Disagrees) }
}

/// Cuts a line in every way; there must be one only.
fn by_cutting(line: &str, head: &Head, budget: &mut u32) -> Result<Cells, Fault> {
    let mut search = Search {
        columns: &head.columns,
        found: Vec::new(),
        steps: MOST_STEPS.min(*budget),
        disagrees: false,
    };
    let before = search.steps;
    search.cut(line, 0, &Cells::default());
    *budget -= before - search.steps;
    if search.steps == 0 {
        return Err(Fault::Unclear);
    }
    match search.found.len() {
        0 if search.disagrees => Err(Fault::Disagrees),
        0 => Err(Fault::Misfit),
        1 => search.found.pop().ok_or(Fault::Misfit),
        _ => Err(Fault::Unclear),
    }
}

struct Search<'h> {
    columns: &'h [Column],
    /// At most two: that is one too many.
    found: Vec<Cells>,
    steps: u32,
    /// There was a way, but its share of collisions is wrong.
    disagrees: bool,
}

impl Search<'_> {
    fn cut(&mut self, rest: &str, at: usize, cells: &Cells) {
        let rest = rest.trim_start();
        let Some(column) = self.columns.get(at) else {
            if rest.is_empty() && !cells.agrees() {
                self.disagrees = true;
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
            let (cell, behind) = rest.split_at(length);
            let mut cells = cells.clone();
            if cells.put(*column, cell) {
                self.cut(behind, at + 1, &cells);
            }
        }
    }
}

/// How many bytes a cell at the beginning of a text may take.
fn lengths(column: Column, rest: &str) -> Vec<usize> {
    let run = |is: fn(char) -> bool| rest.find(|c| !is(c)).unwrap_or(rest.len());
    match column {
        Column::Tries | Column::Collisions | Column::Time => (1..=run(|c| c.is_ascii_digit())).collect(),
        // Always four digits behind the point.
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

/// An atom, quoted or not, a pid, a port, or several classes with commas between them.
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

/// `<nonode@nohost.80.0>`, `#Port<nonode@nohost.5>`.
pub fn is_pid_or_port(name: &str) -> bool {
    (name.starts_with('<') || name.starts_with("#Port<")) && name.ends_with('>') && name.contains('.')
}

/// The parts of a name; all but one in tables of places have one.
pub fn names(cell: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(cell);
    std::iter::from_fn(move || {
        let text = rest?;
        let begin = text::quoted(text).filter(|_| text.starts_with('\'')).unwrap_or(0);
        let comma = text.get(begin..).and_then(|behind| behind.find(',')).map(|at| begin + at);
        rest = comma.and_then(|at| text.get(at + 1..));
        Some(comma.map_or(text, |at| &text[..at]))
    })
}

fn is_id(cell: &str) -> bool {
    let is_word = !cell.is_empty() && !cell.contains('|') && !is_divider(cell);
    // A share, or what stands on a line with a prompt, is none.
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
    // Without a file a line says nothing.
    Some(Place { line: line.filter(|_| file.is_some()), file })
}

fn integer(cell: &str) -> Option<i64> {
    let is_plain = !cell.is_empty() && cell.bytes().all(|byte| byte.is_ascii_digit());
    // The VM writes no zeros in front.
    (is_plain && (cell.len() == 1 || !cell.starts_with('0'))).then(|| cell.parse().ok()).flatten()
}

/// A number with four digits behind the point.
fn share(cell: &str) -> Option<f64> {
    let (whole, digits) = cell.split_once('.')?;
    let is_fraction = digits.len() == 4 && digits.bytes().all(|byte| byte.is_ascii_digit());
    (is_fraction && integer(whole).is_some()).then(|| cell.parse().ok()).flatten()
}

/// Whether the words up to here, this one included, end as a row does: with numbers in the last columns. So another may follow.
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
    fn numbers_that_do_not_agree_are_not_believed() {
        let row = " run_queue   10  590799         8875          1.6022      37906        2.2167\n";
        assert_eq!(read_after(HEADINGS, row), Err(Fault::Disagrees));
        assert_eq!(read_after(HEADINGS, "run_queue 10 590799 8875 1.5022 37906"), Err(Fault::Misfit));
        assert_eq!(read_after(HEADINGS, "run_queue 10 590799 8875 1.50 37906 2.2167"), Err(Fault::Misfit));
        assert_eq!(read_after(HEADINGS, "run queue 10 590799 8875 1.5022 37906 2.2167"), Err(Fault::Misfit));
    }

    #[test]
    fn touching_columns_are_cut_where_there_is_one_way_only() {
        // A share has four digits behind its point; the counts must give it.
        assert_eq!(read_after(HEADINGS, "run_queue 10 59079988751.5022379062.2167"), Err(Fault::Unclear));
        assert_eq!(read_after(HEADINGS, "run_queue 10 59079988751.5022 37906 2.2167"), Ok(expected()));
        assert_eq!(read_after(HEADINGS, "run_queue 10 590799 8875 1.502237906 2.2167"), Ok(expected()));
        // Nobody knows whether the class is "run_queue" or "run_queue1".
        assert_eq!(read_after(HEADINGS, "run_queue10 590799 8875 1.5022 37906 2.2167"), Err(Fault::Unclear));
    }

    #[test]
    fn a_line_that_kept_its_alignment_is_cut_where_the_columns_end() {
        let headings = format!("   lock{:>80}  #tries  time [us]\n", "id");
        let id = "t".repeat(80);
        let cells = read_after(&headings, &format!(" db_tab{id}      12         34\n")).expect("a row");
        assert_eq!(cells.id.as_deref(), Some(id.as_str()));
        assert_eq!((cells.name.as_deref(), cells.tries, cells.time_us), (Some("db_tab"), Some(12), Some(34)));
        let narrow = "   lock  #tries  time [us]\n";
        assert_eq!(read_after(narrow, " db_tab12345678         34\n"), Err(Fault::Cut));
    }

    #[test]
    fn names_places_and_ids_are_what_the_vm_prints() {
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
    fn an_end_of_a_row_is_known() {
        let head = head::read(&mut Tokens::new(HEADINGS)).expect("headings");
        assert!(may_end(&head, &["x", "12", "0", "0.0000", "0", "0.0000"]));
        assert!(!may_end(&head, &["x", "12", "0", "0.0000", "0"]));
        assert!(!may_end(&head, &["db_tab", "my"]));
    }
}
