//! Reading values out of a TOML file with their places in it, so that everything wrong can be said at once and where it is.

use std::cell::RefCell;
use std::fmt::Display;
use std::io;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::fault::Faults;
use super::keys::Place;
use super::units;
use crate::template::{Table, Template};

/// Gives the content of a file that a scenario names.
pub type Files<'f> = &'f dyn Fn(&str) -> io::Result<Vec<u8>>;

/// A text, and what has been found wrong with it.
pub struct Book<'b> {
    pub text: &'b str,
    pub files: Files<'b>,
    faults: RefCell<Vec<(Range<usize>, String)>>,
}

impl<'b> Book<'b> {
    pub fn new(text: &'b str, files: Files<'b>) -> Self {
        Self { text, files, faults: RefCell::default() }
    }

    /// Notes that something is wrong.
    pub fn fault(&self, at: Range<usize>, message: impl Into<String>) {
        self.faults.borrow_mut().push((at, message.into()));
    }

    /// What was noted, if anything was.
    pub fn faults(&self, file: &str) -> Option<Faults> {
        let found = self.faults.take();
        (!found.is_empty()).then(|| Faults::new(file, self.text, found))
    }
}

/// A table of which the keys are known.
pub struct Keys<'r> {
    book: &'r Book<'r>,
    table: &'r DeTable<'r>,
    place: &'static Place,
    /// Its head, or the whole of it if it stands in a line.
    pub at: Range<usize>,
}

impl<'r> Keys<'r> {
    /// Notes every key that does not belong there.
    pub fn new(book: &'r Book<'r>, table: &'r DeTable<'r>, at: Range<usize>, place: &'static Place) -> Self {
        for key in table.keys() {
            let name = key.get_ref().as_ref();
            if !place.keys.contains(&name) {
                book.fault(
                    key.span(),
                    unknown(&format!("`{name}` is no key of {}", place.title), name, place.keys),
                );
            }
        }
        Self { book, table, place, at }
    }

    /// The value of a key, if it is there.
    pub fn get(&self, key: &'static str) -> Option<Value<'r>> {
        debug_assert!(self.place.keys.contains(&key), "{key} is not listed for {}", self.place.title);
        let (_, value) = self.table.get_key_value(key)?;
        Some(Value { book: self.book, key, at: value.span(), value: value.get_ref() })
    }

    /// The value of a key that has to be there.
    pub fn need(&self, key: &'static str, example: &str) -> Option<Value<'r>> {
        let value = self.get(key);
        if value.is_none() {
            self.book.fault(self.at.clone(), format!("{} needs `{key}`: {example}", self.place.title));
        }
        value
    }

    /// Notes that a key, if it is there, has no meaning there.
    pub fn refuse(&self, key: &'static str, why: &str) {
        if let Some((name, _)) = self.table.get_key_value(key) {
            self.book.fault(name.span(), format!("`{key}` {why}"));
        }
    }
}

/// A value, its key, and where it stands.
#[derive(Clone)]
pub struct Value<'r> {
    book: &'r Book<'r>,
    /// The key; of a value in an array: the array's.
    pub key: &'r str,
    /// Its bytes in the text.
    pub at: Range<usize>,
    value: &'r DeValue<'r>,
}

impl<'r> Value<'r> {
    /// Notes that something is wrong with it.
    pub fn fault(&self, message: impl Into<String>) {
        self.book.fault(self.at.clone(), message);
    }

    fn is_no(&self, wanted: &str) {
        let article = if self.value.is_integer() || self.value.is_array() { "an" } else { "a" };
        self.fault(format!("`{}` is {wanted}, not {article} {}", self.key, self.value.type_str()));
    }

    /// The book that it stands in.
    pub fn book(&self) -> &'r Book<'r> {
        self.book
    }

    /// What TOML has it for.
    pub fn raw(&self) -> &'r DeValue<'r> {
        self.value
    }

    /// A text.
    pub fn text(&self) -> Option<&'r str> {
        let text = self.value.as_str();
        if text.is_none() {
            self.is_no("a text");
        }
        text
    }

    /// A text, made into something else.
    pub fn parsed<T, E: Display>(&self, parse: impl FnOnce(&str) -> Result<T, E>) -> Option<T> {
        let text = self.text()?;
        parse(text).map_err(|why| self.fault(format!("`{} = {text:?}`: {why}", self.key))).ok()
    }

    /// A whole number within bounds.
    pub fn whole(&self, bounds: RangeInclusive<u64>) -> Option<u64> {
        let Some(integer) = self.value.as_integer() else {
            self.is_no("a whole number");
            return None;
        };
        let number = u64::from_str_radix(integer.as_str(), integer.radix()).ok();
        let number = number.filter(|number| bounds.contains(number));
        if number.is_none() {
            let (low, high) = (bounds.start(), bounds.end());
            self.fault(format!("`{} = {integer}` is out of bounds: {low} to {high}", self.key));
        }
        number
    }

    /// A number above zero, up to a greatest.
    pub fn positive(&self, greatest: f64) -> Option<f64> {
        let (text, number) = match self.value {
            DeValue::Integer(integer) => {
                let whole = i64::from_str_radix(integer.as_str(), integer.radix());
                (integer.to_string(), whole.ok().map(|whole| whole as f64))
            }
            DeValue::Float(float) => (float.to_string(), float.as_str().parse::<f64>().ok()),
            _ => {
                self.is_no("a number");
                return None;
            }
        };
        let number = number.filter(|number| *number > 0.0 && *number <= greatest);
        if number.is_none() {
            self.fault(format!("`{} = {text}` is out of bounds: above 0, up to {greatest}", self.key));
        }
        number
    }

    /// `true` or `false`.
    pub fn boolean(&self) -> Option<bool> {
        let boolean = self.value.as_bool();
        if boolean.is_none() {
            self.is_no("true or false");
        }
        boolean
    }

    /// A time with its unit, in nanoseconds.
    pub fn duration_ns(&self) -> Option<u64> {
        if self.value.is_integer() || self.value.is_float() {
            let number = &self.book.text[self.at.clone()];
            self.fault(format!("`{} = {number}`: a time has a unit: \"{number}s\"", self.key));
            return None;
        }
        self.parsed(units::duration_ns)
    }

    /// A time with its unit that is not zero, in nanoseconds.
    pub fn some_time_ns(&self) -> Option<u64> {
        let nanoseconds = self.duration_ns()?;
        if nanoseconds == 0 {
            self.fault(format!("`{}` is longer than nothing", self.key));
            return None;
        }
        Some(nanoseconds)
    }

    /// One of several names.
    pub fn choice<T: Copy>(&self, choices: &[(&str, T)]) -> Option<T> {
        let text = self.text()?;
        let found = choices.iter().find(|(name, _)| *name == text).map(|(_, choice)| *choice);
        if found.is_none() {
            let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
            self.fault(unknown(&format!("`{} = {text:?}` is not known", self.key), text, &names));
        }
        found
    }

    /// The values of an array; a single one may stand without its brackets.
    pub fn list(&self) -> Vec<Value<'r>> {
        match self.value {
            DeValue::Array(values) => values
                .iter()
                .map(|value| Value {
                    book: self.book,
                    key: self.key,
                    at: value.span(),
                    value: value.get_ref(),
                })
                .collect(),
            _ => vec![self.clone()],
        }
    }

    /// A table whose keys are known.
    pub fn keys(&self, place: &'static Place) -> Option<Keys<'r>> {
        let table = self.value.as_table();
        if table.is_none() {
            self.is_no("a table");
        }
        Some(Keys::new(self.book, table?, self.at.clone(), place))
    }

    /// The entries of a table with any keys, in the order of the file: the key's own place is that of its name.
    pub fn entries(&self) -> Option<Vec<(Range<usize>, Value<'r>)>> {
        let Some(table) = self.value.as_table() else {
            self.is_no("a table");
            return None;
        };
        let mut entries: Vec<_> = table.iter().map(|(key, value)| entry(self.book, key, value)).collect();
        entries.sort_by_key(|(at, _)| at.start);
        Some(entries)
    }

    /// A text with values in it.
    pub fn template(&self, table: Option<&Arc<Table>>) -> Option<Template> {
        let text = self.text()?;
        Template::parse(text, table).map_err(|why| self.fault_within(&why)).ok()
    }

    /// A text with values in it that takes one line, as the fields of a head do.
    pub fn line(&self, table: Option<&Arc<Table>>) -> Option<Template> {
        if self.text()?.chars().any(|c| c.is_control() && c != '\t') {
            self.fault(format!("`{}` holds a line's end or another control character", self.key));
            return None;
        }
        self.template(table)
    }

    /// Notes a fault whose first words in backticks are a part of the text, where that part stands.
    pub fn fault_within(&self, why: &str) {
        let part = why.split('`').nth(1).unwrap_or_default();
        let at = match self.book.text[self.at.clone()].find(part) {
            Some(offset) if !part.is_empty() => self.at.start + offset..self.at.start + offset + part.len(),
            _ => self.at.clone(),
        };
        self.book.fault(at, why);
    }

    /// The content of the file whose name it is.
    pub fn file(&self) -> Option<(String, Vec<u8>)> {
        let name = self.text()?;
        match (self.book.files)(name) {
            Ok(bytes) => Some((name.to_owned(), bytes)),
            Err(error) => {
                self.fault(format!("`{} = {name:?}`: {error}", self.key));
                None
            }
        }
    }
}

fn entry<'r>(
    book: &'r Book<'r>,
    key: &'r Spanned<std::borrow::Cow<'r, str>>,
    value: &'r Spanned<DeValue<'r>>,
) -> (Range<usize>, Value<'r>) {
    (key.span(), Value { book, key: key.get_ref(), at: value.span(), value: value.get_ref() })
}

/// A sentence that something is not known, with what may have been meant.
pub fn unknown(what: &str, given: &str, known: &[&str]) -> String {
    match closest(given, known) {
        Some(close) => format!("{what}; did you mean `{close}`?"),
        None => format!("{what}; there are {}", known.join(", ")),
    }
}

/// The name that a mistyped one is nearest to, if any is near.
pub fn closest<'k>(given: &str, known: &[&'k str]) -> Option<&'k str> {
    let given = given.to_ascii_lowercase().replace('-', "_");
    let distance = |name: &str| strsim::damerau_levenshtein(&given, &name.replace('-', "_"));
    let (near, name) = known.iter().map(|name| (distance(name), *name)).min_by_key(|(near, _)| *near)?;
    (near <= 2 && near < given.chars().count()).then_some(name)
}
