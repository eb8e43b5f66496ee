//! Tables in plain text.

use crate::text::{self, Style};

/// The alignment of a column's cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// For names.
    Left,
    /// For numbers.
    Right,
}

/// Minimum width of the last column, in columns of the terminal, even if the line is then longer than the terminal (judgement).
const MIN_WRAPPED_WIDTH: usize = 24;

/// A table whose columns are as wide as their widest cell.
#[derive(Debug, Clone)]
pub struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table with the given headings.
    pub fn new(columns: &[(&str, Align)]) -> Self {
        Table {
            columns: columns.iter().map(|(name, align)| ((*name).to_owned(), *align)).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row. Cells beyond the last column are dropped; missing cells are empty.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let mut cells: Vec<_> = cells.into_iter().take(self.columns.len()).collect();
        cells.resize(self.columns.len(), String::new());
        self.rows.push(cells);
    }

    /// Whether the table has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Renders headings and rows, each line with a final newline; empty for a table without rows.
    pub fn render(&self, style: Style) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let headings: Vec<_> = self.columns.iter().map(|(name, _)| name.clone()).collect();
        let line = self.line(&headings, &self.widths(), usize::MAX);
        format!("{}\n{}", style.dim(line.trim_end()), self.body(style))
    }

    /// Renders the first rows, and how many more `-v` shows.
    pub fn first(mut self, max_rows: usize, style: Style) -> String {
        let more = self.rows.len().saturating_sub(max_rows);
        self.rows.truncate(max_rows);
        let text = self.render(style);
        if more == 0 { text } else { format!("{text}{}", style.dim(&format!("{more} more: -v\n"))) }
    }

    /// Renders only the rows, each line with a final newline. Text in the last column is wrapped to the style's width.
    pub fn body(&self, style: Style) -> String {
        let widths = self.widths();
        self.rows.iter().map(|row| self.line(row, &widths, style.width)).collect()
    }

    fn line(&self, cells: &[String], widths: &[usize], width: usize) -> String {
        let mut out = String::new();
        let mut column = 0;
        for (index, cell) in cells.iter().enumerate() {
            let (cell_width, align) = (widths[index], self.columns[index].1);
            let is_last = index + 1 == cells.len();
            if is_last && align == Align::Left {
                let room = width.saturating_sub(column).max(MIN_WRAPPED_WIDTH);
                // Text that fits is not wrapped, which keeps multiple spaces, as in a histogram.
                match cell.chars().count() <= room {
                    true => out.push_str(cell),
                    false => out.push_str(&text::wrap(cell, room, &" ".repeat(column))),
                }
                continue;
            }
            let pad = " ".repeat(cell_width - cell.chars().count());
            match align {
                Align::Left => out.extend([cell.as_str(), &pad]),
                Align::Right => out.extend([&pad, cell.as_str()]),
            }
            out.push_str("  ");
            column += cell_width + 2;
        }
        format!("{}\n", out.trim_end())
    }

    /// Returns the widths of the columns, without separators.
    fn widths(&self) -> Vec<usize> {
        let cells = |index: usize| self.rows.iter().map(move |row| row[index].chars().count());
        let width = |(index, (name, _)): (usize, &(String, Align))| {
            cells(index).chain([name.chars().count()]).max().unwrap_or(0)
        };
        self.columns.iter().enumerate().map(width).collect()
    }
}

/// Joins as many items as fit into a line, at least the first one. If this is longer than the line, it is cut.
pub fn fitting(items: &[String], width: usize) -> String {
    let mut out = String::new();
    for item in items {
        let separator = if out.is_empty() { "" } else { ", " };
        if !out.is_empty() && out.chars().count() + separator.len() + item.chars().count() > width {
            break;
        }
        out.extend([separator, item]);
    }
    text::lines(&out, width, 1).pop().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&[("name", Align::Left), ("n", Align::Right)]);
        table.row(["a".to_owned(), "1,000".to_owned()]);
        table.row(["longer".to_owned()]);
        assert_eq!(table.render(Style::PLAIN), "name        n\na       1,000\nlonger\n");
        assert_eq!(table.body(Style::PLAIN), "a       1,000\nlonger\n");
        assert_eq!(table.first(1, Style::PLAIN), "name      n\na     1,000\n1 more: -v\n");
    }

    #[test]
    fn text_in_the_last_column_wraps_to_the_terminal() {
        let mut table = Table::new(&[("n", Align::Right), ("why", Align::Left)]);
        table.row(["12".to_owned(), "a scheduler that waits for its run queue".to_owned()]);
        let style = Style { width: 34, ..Style::PLAIN };
        assert_eq!(table.render(style), " n  why\n12  a scheduler that waits for its\n    run queue\n");
    }

    #[test]
    fn items_that_do_not_fit_are_left_out_entirely() {
        let items = ["carts 12 MB", "users 3 MB", "a"].map(str::to_owned);
        assert_eq!(fitting(&items, 23), "carts 12 MB, users 3 MB");
        assert_eq!(fitting(&items, 22), "carts 12 MB");
        assert_eq!(fitting(&items, 8), "carts 1…");
        assert_eq!(fitting(&[], 8), "");
    }
}
