//! Tables in plain text.

use crate::text::Style;

/// Where a column's cells stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// Names.
    Left,
    /// Numbers.
    Right,
}

/// A table whose columns are as wide as their widest cell.
#[derive(Debug, Clone)]
pub struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with the given headings.
    pub fn new(columns: &[(&str, Align)]) -> Self {
        Table {
            columns: columns.iter().map(|(name, align)| ((*name).to_owned(), *align)).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row; cells beyond the columns are dropped, missing ones are empty.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let mut cells: Vec<_> = cells.into_iter().take(self.columns.len()).collect();
        cells.resize(self.columns.len(), String::new());
        self.rows.push(cells);
    }

    /// True before the first row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The text, each line ended; empty for a table without rows.
    pub fn render(&self, style: Style) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let width = |index: usize| {
            let cells = self.rows.iter().map(|row| row[index].chars().count());
            cells.chain([self.columns[index].0.chars().count()]).max().unwrap_or(0)
        };
        let widths: Vec<_> = (0..self.columns.len()).map(width).collect();
        let line = |cells: &[String]| {
            let mut out = String::new();
            for (index, cell) in cells.iter().enumerate() {
                let pad = " ".repeat(widths[index] - cell.chars().count());
                match self.columns[index].1 {
                    Align::Left => out.extend([cell.as_str(), &pad]),
                    Align::Right => out.extend([&pad, cell.as_str()]),
                }
                out.push_str("  ");
            }
            out.trim_end().to_owned()
        };
        let headings: Vec<_> = self.columns.iter().map(|(name, _)| name.clone()).collect();
        let mut out = style.dim(&line(&headings));
        out.push('\n');
        for row in &self.rows {
            out.push_str(&line(row));
            out.push('\n');
        }
        out
    }
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
    }
}
