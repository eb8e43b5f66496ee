//! Reads values of a TOML document with their positions, and collects faults, so that all faults are reported together.

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

/// Returns the content of a file that a scenario names.
pub type Files<'f> = &'f dyn Fn(&str) -> io::Result<Vec<u8>>;

/// A text, and the faults found in it.
pub struct Document<'b> {
    pub text: &'b str,
    pub files: Files<'b>,
    faults: RefCell<Vec<(Range<usize>, String)>>,
}

impl<'b> Document<'b> {
    pub fn new(text: &'b str, files: Files<'b>) -> Self {
        Self { text, files, faults: RefCell::default() }
    }

    /// Adds a fault.
    pub fn fault(&self, at: Range<usize>, message: impl Into<String>) {
        self.faults.borrow_mut().push((at, message.into()));
    }

    /// Returns the faults, if there are any.
    pub fn faults(&self, file: &str) -> Option<Faults> {
        let found = self.faults.take();
        (!found.is_empty()).then(|| Faults::new(file, self.text, found))
    }
}

/// A table with a fixed set of keys.
pub struct Keys<'r> {
    document: &'r Document<'r>,
    table: &'r DeTable<'r>,
    place: &'static Place,
    /// Position of the table's header, or of the whole inline table.
    pub at: Range<usize>,
}

impl<'r> Keys<'r> {
    /// Reads a table. Unknown keys are faults.
    pub fn new(
        document: &'r Document<'r>,
        table: &'r DeTable<'r>,
        at: Range<usize>,
        place: &'static Place,
    ) -> Self {
        for key in table.keys() {
            let name = key.get_ref().as_ref();
            if !place.keys.contains(&name) {
                document.fault(
                    key.span(),
                    unknown(&format!("unknown key `{name}` in {}", place.title), name, place.keys),
                );
            }
        }
        Self { document, table, place, at }
    }

    /// Returns the value of a key, if the table has it.
    pub fn get(&self, key: &'static str) -> Option<Value<'r>> {
        debug_assert!(self.place.keys.contains(&key), "{key} is not listed for {}", self.place.title);
        let (_, value) = self.table.get_key_value(key)?;
        Some(Value { document: self.document, key, at: value.span(), value: value.get_ref() })
    }

    /// Returns the value of a required key; adds a fault if it is missing.
    pub fn require(&self, key: &'static str, example: &str) -> Option<Value<'r>> {
        let value = self.get(key);
        if value.is_none() {
            self.document.fault(self.at.clone(), format!("{} needs `{key}`: {example}", self.place.title));
        }
        value
    }

    /// Adds a fault if the table has this key.
    pub fn refuse(&self, key: &'static str, why: &str) {
        if let Some((name, _)) = self.table.get_key_value(key) {
            self.document.fault(name.span(), format!("`{key}` {why}"));
        }
    }
}

/// A value with its key and position.
#[derive(Clone)]
pub struct Value<'r> {
    document: &'r Document<'r>,
    /// The key; for an element of an array, the key of the array.
    pub key: &'r str,
    /// Byte range in the text.
    pub at: Range<usize>,
    value: &'r DeValue<'r>,
}

impl<'r> Value<'r> {
    /// Adds a fault at this value.
    pub fn fault(&self, message: impl Into<String>) {
        self.document.fault(self.at.clone(), message);
    }

    /// Adds a fault for a wrong type.
    fn fault_type(&self, wanted: &str) {
        let article = if self.value.is_integer() || self.value.is_array() { "an" } else { "a" };
        self.fault(format!("`{}` must be {wanted}, not {article} {}", self.key, self.value.type_str()));
    }

    /// Returns the document of this value.
    pub fn document(&self) -> &'r Document<'r> {
        self.document
    }

    /// Returns the TOML value.
    pub fn raw(&self) -> &'r DeValue<'r> {
        self.value
    }

    /// Reads a string.
    pub fn text(&self) -> Option<&'r str> {
        let text = self.value.as_str();
        if text.is_none() {
            self.fault_type("a string");
        }
        text
    }

    /// Reads a string and parses it.
    pub fn parsed<T, E: Display>(&self, parse: impl FnOnce(&str) -> Result<T, E>) -> Option<T> {
        let text = self.text()?;
        parse(text).map_err(|why| self.fault(format!("`{} = {text:?}`: {why}", self.key))).ok()
    }

    /// Reads an integer within bounds.
    pub fn integer(&self, bounds: RangeInclusive<u64>) -> Option<u64> {
        let Some(integer) = self.value.as_integer() else {
            self.fault_type("an integer");
            return None;
        };
        let number = u64::from_str_radix(integer.as_str(), integer.radix()).ok();
        let number = number.filter(|number| bounds.contains(number));
        if number.is_none() {
            let (low, high) = (bounds.start(), bounds.end());
            self.fault(format!("`{} = {integer}` is out of range: {low} to {high}", self.key));
        }
        number
    }

    /// Reads a number above 0 and at most `max`.
    pub fn positive(&self, max: f64) -> Option<f64> {
        let (text, number) = match self.value {
            DeValue::Integer(integer) => {
                let number = i64::from_str_radix(integer.as_str(), integer.radix());
                (integer.to_string(), number.ok().map(|number| number as f64))
            }
            DeValue::Float(float) => (float.to_string(), float.as_str().parse::<f64>().ok()),
            _ => {
                self.fault_type("a number");
                return None;
            }
        };
        let number = number.filter(|number| *number > 0.0 && *number <= max);
        if number.is_none() {
            self.fault(format!("`{} = {text}` is out of range: above 0, at most {max}", self.key));
        }
        number
    }

    /// Reads `true` or `false`.
    pub fn boolean(&self) -> Option<bool> {
        let boolean = self.value.as_bool();
        if boolean.is_none() {
            self.fault_type("true or false");
        }
        boolean
    }

    /// Reads a duration with its unit, in nanoseconds.
    pub fn duration_ns(&self) -> Option<u64> {
        if self.value.is_integer() || self.value.is_float() {
            let number = &self.document.text[self.at.clone()];
            self.fault(format!("`{} = {number}`: a time needs a unit: \"{number}s\"", self.key));
            return None;
        }
        self.parsed(units::duration_ns)
    }

    /// Reads a duration above 0 with its unit, in nanoseconds.
    pub fn positive_duration_ns(&self) -> Option<u64> {
        let nanoseconds = self.duration_ns()?;
        if nanoseconds == 0 {
            self.fault(format!("`{}` must be longer than 0", self.key));
            return None;
        }
        Some(nanoseconds)
    }

    /// Reads one of several names.
    pub fn choice<T: Copy>(&self, choices: &[(&str, T)]) -> Option<T> {
        let text = self.text()?;
        let found = choices.iter().find(|(name, _)| *name == text).map(|(_, choice)| *choice);
        if found.is_none() {
            let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
            self.fault(unknown(&format!("`{} = {text:?}` is unknown", self.key), text, &names));
        }
        found
    }

    /// Returns the elements of an array, or a single value without brackets.
    pub fn list(&self) -> Vec<Value<'r>> {
        match self.value {
            DeValue::Array(values) => values
                .iter()
                .map(|value| Value {
                    document: self.document,
                    key: self.key,
                    at: value.span(),
                    value: value.get_ref(),
                })
                .collect(),
            _ => vec![self.clone()],
        }
    }

    /// Reads a table with a fixed set of keys.
    pub fn keys(&self, place: &'static Place) -> Option<Keys<'r>> {
        let table = self.value.as_table();
        if table.is_none() {
            self.fault_type("a table");
        }
        Some(Keys::new(self.document, table?, self.at.clone(), place))
    }

    /// Returns the entries of a table with arbitrary keys, in the order of the file, each with the position of its key.
    pub fn entries(&self) -> Option<Vec<(Range<usize>, Value<'r>)>> {
        let Some(table) = self.value.as_table() else {
            self.fault_type("a table");
            return None;
        };
        let mut entries: Vec<_> = table.iter().map(|(key, value)| entry(self.document, key, value)).collect();
        entries.sort_by_key(|(at, _)| at.start);
        Some(entries)
    }

    /// Reads a text with placeholders.
    pub fn template(&self, table: Option<&Arc<Table>>) -> Option<Template> {
        let text = self.text()?;
        Template::parse(text, table).map_err(|why| self.fault_within(&why)).ok()
    }

    /// Reads a single-line text with placeholders, as in header fields.
    pub fn line(&self, table: Option<&Arc<Table>>) -> Option<Template> {
        if self.text()?.chars().any(|c| c.is_control() && c != '\t') {
            self.fault(format!("`{}` contains a line break or another control character", self.key));
            return None;
        }
        self.template(table)
    }

    /// Adds a fault at the first part of the value that the message quotes in backticks. Without such a part, the whole value is marked.
    pub fn fault_within(&self, why: &str) {
        let part = why.split('`').nth(1).unwrap_or_default();
        let at = match self.document.text[self.at.clone()].find(part) {
            Some(offset) if !part.is_empty() => self.at.start + offset..self.at.start + offset + part.len(),
            _ => self.at.clone(),
        };
        self.document.fault(at, why);
    }

    /// Reads the file that this value names. Returns its name and content.
    pub fn file(&self) -> Option<(String, Vec<u8>)> {
        let name = self.text()?;
        match (self.document.files)(name) {
            Ok(bytes) => Some((name.to_owned(), bytes)),
            Err(error) => {
                self.fault(format!("`{} = {name:?}`: {error}", self.key));
                None
            }
        }
    }
}

fn entry<'r>(
    document: &'r Document<'r>,
    key: &'r Spanned<std::borrow::Cow<'r, str>>,
    value: &'r Spanned<DeValue<'r>>,
) -> (Range<usize>, Value<'r>) {
    (key.span(), Value { document, key: key.get_ref(), at: value.span(), value: value.get_ref() })
}

/// Formats a message about something unknown, with the closest known name, or with all names.
pub fn unknown(what: &str, given: &str, known: &[&str]) -> String {
    match closest(given, known) {
        Some(close) => format!("{what}; did you mean `{close}`?"),
        None => format!("{what}; use one of {}", known.join(", ")),
    }
}

/// Returns the known name that is most similar to a mistyped name, if any is similar enough.
pub fn closest<'k>(given: &str, known: &[&'k str]) -> Option<&'k str> {
    let given = given.to_ascii_lowercase().replace('-', "_");
    let distance_to = |name: &str| strsim::damerau_levenshtein(&given, &name.replace('-', "_"));
    let candidates = known.iter().map(|name| (distance_to(name), *name));
    let (distance, name) = candidates.min_by_key(|(distance, _)| *distance)?;
    (distance <= 2 && distance < given.chars().count()).then_some(name)
}
