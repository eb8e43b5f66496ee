//! Text with placeholders: `/device/${device}?n=${count}`.
//!
//! A placeholder's value depends on the device and its current turn, and comes from counters, a seeded generator or a table. The same seed
//! gives the same text. Rendering allocates only the output buffer.

use std::io::Write;
use std::sync::Arc;

use rand_core::Rng;
use rand_xoshiro::Xoroshiro128PlusPlus;

/// A sequence of literal texts and placeholders.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Template {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq)]
enum Part {
    Literal(Vec<u8>),
    Value(Value),
}

/// A placeholder: the content of `${…}`.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// `device`: the device's number, from 0.
    Device,
    /// `turn`: the number of the device's turn, from 0.
    Turn,
    /// `count`: how many messages with a count the device has sent before this one.
    Count,
    /// `random:LOW..HIGH`: a random integer, both ends included.
    Random {
        /// The minimum.
        low: u64,
        /// The maximum.
        high: u64,
    },
    /// `hex:N`: this number of random hexadecimal digits.
    Hex(usize),
    /// `row:COLUMN`: a cell of the table. The row is the device's number, modulo the number of rows.
    Cell {
        /// The table.
        table: Arc<Table>,
        /// Index of the column.
        column: usize,
    },
    /// `sent_ns`: the instant of sending, CLOCK_MONOTONIC in nanoseconds.
    Sent,
}

/// A table of values from a CSV file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Table {
    /// The names of the columns.
    pub columns: Vec<String>,
    /// The rows, each with one cell per column.
    pub rows: Vec<Vec<String>>,
}

/// The state from which placeholders get their values.
pub struct Values<'a> {
    /// Number of the device.
    pub device: u64,
    /// Current turn of the device.
    pub turn: u64,
    /// Message count of the device.
    pub count: &'a mut u64,
    /// Random number generator of the device.
    pub random: &'a mut Xoroshiro128PlusPlus,
    /// The current instant, CLOCK_MONOTONIC.
    pub now_ns: u64,
}

impl Template {
    /// Creates a template from a text without placeholders.
    pub fn literal(text: impl Into<Vec<u8>>) -> Self {
        let mut template = Self::default();
        template.push_literal(&text.into());
        template
    }

    /// Parses a text with placeholders; `$${` is a literal `${`. The error names the placeholder and completes a sentence.
    pub fn parse(text: &str, table: Option<&Arc<Table>>) -> Result<Self, String> {
        let mut template = Self::default();
        let mut rest = text;
        while let Some(at) = rest.find("${") {
            if rest[..at].ends_with('$') {
                template.push_literal(&rest.as_bytes()[..at - 1]);
                template.push_literal(b"${");
                rest = &rest[at + 2..];
                continue;
            }
            template.push_literal(&rest.as_bytes()[..at]);
            let Some(end) = rest[at..].find('}') else {
                return Err(format!("`{}` has no closing `}}`", &rest[at..]));
            };
            template.parts.push(Part::Value(value(&rest[at + 2..at + end], table)?));
            rest = &rest[at + end + 1..];
        }
        template.push_literal(rest.as_bytes());
        Ok(template)
    }

    /// Appends a text.
    pub fn push_literal(&mut self, text: &[u8]) {
        match self.parts.last_mut() {
            _ if text.is_empty() => {}
            Some(Part::Literal(last)) => last.extend_from_slice(text),
            _ => self.parts.push(Part::Literal(text.to_vec())),
        }
    }

    /// Appends a template.
    pub fn push(&mut self, other: &Self) {
        for part in &other.parts {
            match part {
                Part::Literal(text) => self.push_literal(text),
                Part::Value(_) => self.parts.push(part.clone()),
            }
        }
    }

    /// Returns the text if it has no placeholders.
    pub fn fixed(&self) -> Option<&[u8]> {
        match self.parts.as_slice() {
            [] => Some(&[]),
            [Part::Literal(text)] => Some(text),
            _ => None,
        }
    }

    /// Returns an upper bound of the rendered length, in bytes.
    pub fn max_bytes(&self) -> usize {
        let max = |part: &Part| match part {
            Part::Literal(text) => text.len(),
            Part::Value(Value::Random { high, .. }) => high.to_string().len(),
            Part::Value(Value::Hex(digits)) => *digits,
            Part::Value(Value::Cell { table, column }) => {
                table.rows.iter().filter_map(|row| row.get(*column)).map(String::len).max().unwrap_or(0)
            }
            Part::Value(Value::Device | Value::Turn | Value::Count | Value::Sent) => {
                u64::MAX.to_string().len()
            }
        };
        self.parts.iter().map(max).sum()
    }

    /// Appends the rendered text to `out`.
    pub fn render(&self, values: &mut Values<'_>, out: &mut Vec<u8>) {
        let mut counted = false;
        for part in &self.parts {
            // Writing to a vector does not fail.
            let _ = match part {
                Part::Literal(text) => out.write_all(text),
                Part::Value(Value::Device) => write!(out, "{}", values.device),
                Part::Value(Value::Turn) => write!(out, "{}", values.turn),
                Part::Value(Value::Count) => {
                    counted = true;
                    write!(out, "{}", values.count)
                }
                Part::Value(Value::Random { low, high }) => {
                    // The modulo bias is negligible for 64 bits.
                    let span = (high - low).wrapping_add(1);
                    let random = values.random.next_u64();
                    write!(out, "{}", if span == 0 { random } else { low + random % span })
                }
                Part::Value(Value::Hex(digits)) => {
                    let mut left = *digits;
                    while left > 0 {
                        let took = left.min(16);
                        let random = values.random.next_u64() >> (4 * (16 - took));
                        let _ = write!(out, "{random:0took$x}");
                        left -= took;
                    }
                    Ok(())
                }
                Part::Value(Value::Cell { table, column }) => {
                    let row = (values.device % table.rows.len().max(1) as u64) as usize;
                    let cell = table.rows.get(row).and_then(|row| row.get(*column));
                    out.write_all(cell.map_or(b"", |cell| cell.as_bytes()))
                }
                Part::Value(Value::Sent) => write!(out, "{}", values.now_ns),
            };
        }
        if counted {
            *values.count += 1;
        }
    }
}

fn value(name: &str, table: Option<&Arc<Table>>) -> Result<Value, String> {
    let known = "device, turn, count, random:LOW..HIGH, hex:N, row:COLUMN, sent_ns";
    match name.split_once(':').unwrap_or((name, "")) {
        ("device", "") => Ok(Value::Device),
        ("turn", "") => Ok(Value::Turn),
        ("count", "") => Ok(Value::Count),
        ("sent_ns", "") => Ok(Value::Sent),
        ("random", range) => {
            let bounds =
                range.split_once("..").and_then(|(low, high)| Some((low.parse().ok()?, high.parse().ok()?)));
            match bounds {
                Some((low, high)) if low <= high => Ok(Value::Random { low, high }),
                _ => Err(format!("`${{{name}}}` needs two integers, as in ${{random:1..100}}")),
            }
        }
        ("hex", digits) => match digits.parse() {
            Ok(digits @ 1..=1_048_576) => Ok(Value::Hex(digits)),
            _ => Err(format!("`${{{name}}}` needs a number of digits, as in ${{hex:16}}")),
        },
        ("row", column) => {
            let Some(table) = table else {
                return Err(format!("`${{{name}}}` needs a table: add `table = \"FILE.csv\"`"));
            };
            match table.columns.iter().position(|known| known == column) {
                Some(column) => Ok(Value::Cell { table: Arc::clone(table), column }),
                None => Err(format!("`${{{name}}}`: the table has the columns {}", table.columns.join(", "))),
            }
        }
        _ => Err(format!("`${{{name}}}` is unknown; known are {known}")),
    }
}

#[cfg(test)]
mod tests {
    use rand_core::SeedableRng;

    use super::*;

    fn table() -> Arc<Table> {
        let rows = vec![vec!["anna".to_owned(), "a1".to_owned()], vec!["bert".to_owned(), "b2".to_owned()]];
        Arc::new(Table { columns: vec!["user".to_owned(), "key".to_owned()], rows })
    }

    fn render(text: &str, device: u64) -> String {
        let template = Template::parse(text, Some(&table())).unwrap();
        let mut random = Xoroshiro128PlusPlus::seed_from_u64(1);
        let mut count = 0;
        let mut out = Vec::new();
        for _ in 0..2 {
            let mut values = Values { device, turn: 4, count: &mut count, random: &mut random, now_ns: 77 };
            template.render(&mut values, &mut out);
            out.push(b'|');
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn placeholders_are_replaced_by_their_values() {
        assert_eq!(render("/d/${device}/${turn}", 9), "/d/9/4|/d/9/4|");
        assert_eq!(render("${count}-${count}", 9), "0-0|1-1|");
        assert_eq!(render("${row:user}:${row:key}", 3), "bert:b2|bert:b2|");
        assert_eq!(render("a$${device}b$c", 3), "a${device}b$c|a${device}b$c|");
        assert_eq!(render("${random:5..5}${sent_ns}", 3), "577|577|");
    }

    #[test]
    fn random_digits_have_the_requested_length() {
        for digits in [1, 15, 16, 17, 40] {
            let text = render(&format!("${{hex:{digits}}}"), 0);
            let parts: Vec<&str> = text.split('|').collect();
            assert_eq!((parts[0].len(), parts[1].len()), (digits, digits));
            assert!(digits < 15 || parts[0] != parts[1]);
        }
    }

    #[test]
    fn invalid_placeholders_are_named_in_the_error() {
        for (text, part) in [
            ("${devise}", "`${devise}` is unknown"),
            ("${device", "`${device` has no closing"),
            ("${random:9..1}", "needs two integers"),
            ("${hex:0}", "needs a number of digits"),
            ("${row:age}", "the table has the columns user, key"),
        ] {
            let error = Template::parse(text, Some(&table())).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
        assert!(Template::parse("${row:user}", None).unwrap_err().contains("needs a table"));
    }

    #[test]
    fn the_rendered_length_has_an_upper_bound() {
        for (text, max) in
            [("", 0), ("abc", 3), ("${device}", 20), ("a${random:5..100}", 4), ("${hex:7}${row:user}", 11)]
        {
            let template = Template::parse(text, Some(&table())).unwrap();
            assert_eq!(template.max_bytes(), max, "{text}");
            assert!(render(text, u64::MAX).split('|').all(|one| one.len() <= max), "{text}");
        }
    }

    #[test]
    fn text_without_placeholders_is_fixed() {
        assert_eq!(Template::parse("a$${b", None).unwrap().fixed(), Some(&b"a${b"[..]));
        assert_eq!(Template::parse("", None).unwrap().fixed(), Some(&b""[..]));
        assert_eq!(Template::parse("a${device}", None).unwrap().fixed(), None);
    }
}
