//! Writes the thresholds of all rules as a TOML file, and parses a file that changes some of them.
//!
//! ```toml
//! [gc-share]
//! gc_share = { notice = 0.15, warning = 0.4 }
//! ```

use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Range;

use beamtune_model::{Scale, Threshold, Thresholds};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::{RULES, Rule};

/// The source of changed thresholds, as evidence names it.
const CHANGED: &str = "set by --thresholds";
const LEVELS: [&str; 3] = ["notice", "warning", "critical"];

/// The errors in a file of thresholds, one per line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub struct Invalid(pub Vec<String>);

/// Returns every threshold once, with the rules that use it, in the order of the rules.
pub fn all() -> Vec<(&'static Threshold, Vec<&'static Rule>)> {
    let mut all: Vec<(&Threshold, Vec<&Rule>)> = Vec::new();
    for rule in RULES {
        for threshold in rule.thresholds {
            match all.iter_mut().find(|(known, _)| known.name == threshold.name) {
                Some((_, rules)) => rules.push(rule),
                None => all.push((threshold, vec![rule])),
            }
        }
    }
    all
}

/// Writes all thresholds, with these changes, as a file that can be edited.
pub fn listing(changed: &Thresholds) -> String {
    let mut out = String::from(
        "# The thresholds of beamtune's rules. Change numbers, delete the lines that stay as they are, and pass the file:\n\
         # beamtune doctor --thresholds FILE. Shares are 0 to 1; inf means never. See docs/thresholds.md.\n",
    );
    let mut section = "";
    for (threshold, rules) in all() {
        let Scale { notice, warning, critical, source } =
            changed.get(threshold.name).unwrap_or(threshold.default_scale());
        let (of, key) = split(threshold.name);
        if of != section {
            out.push_str(&format!("\n[{of}]\n"));
            section = of;
        }
        let codes: Vec<_> = rules.iter().map(|rule| rule.code.0).collect();
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "# {}: {}\n# source: {source}\n{key} = {{ notice = {notice}, warning = {warning}, critical = {critical} }}",
            codes.join(", "),
            threshold.what
        );
    }
    out
}

/// Splits a name into section and key.
fn split(name: &'static str) -> (&'static str, &'static str) {
    name.split_once('.').unwrap_or((name, ""))
}

/// Parses a file. A value equal to the default is not a change.
///
/// # Errors
/// If the text is not TOML, or has an unknown name or a value that is not a number. Also if levels do not get worse from notice to
/// critical.
pub fn parse(file: &str, text: &str) -> Result<Thresholds, Invalid> {
    let mut reading = Reading { text, faults: Vec::new(), changed: Thresholds::from_file(file) };
    let (document, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        reading.fault(error.span().unwrap_or(text.len()..text.len()), error.message());
    }
    if errors.is_empty() {
        reading.sections(document.get_ref());
    }
    let Reading { mut faults, changed, .. } = reading;
    faults.sort_by_key(|(line, _)| *line);
    match faults.is_empty() {
        true => Ok(changed),
        false => {
            let message = |(line, message)| format!("{file}:{line}: {message}");
            Err(Invalid(faults.into_iter().map(message).collect()))
        }
    }
}

/// State of the parser: the text, the errors so far, and the changed thresholds.
struct Reading<'t> {
    text: &'t str,
    /// Line numbers, from 1, and what is wrong there.
    faults: Vec<(usize, String)>,
    changed: Thresholds,
}

impl Reading<'_> {
    fn fault(&mut self, at: Range<usize>, message: impl Into<String>) {
        let before = self.text.get(..at.start).unwrap_or(self.text);
        self.faults.push((before.matches('\n').count() + 1, message.into()));
    }

    /// Parses all sections of a file.
    fn sections(&mut self, document: &DeTable<'_>) {
        let mut known: BTreeMap<&str, Vec<&'static Threshold>> = BTreeMap::new();
        for (threshold, _) in all() {
            known.entry(split(threshold.name).0).or_default().push(threshold);
        }
        let names: Vec<&str> = known.keys().copied().collect();
        for (key, value) in document {
            let section: &str = key.get_ref();
            match (known.get(section), value.get_ref()) {
                (None, _) => self.fault(key.span(), unknown("section", section, &names)),
                (Some(thresholds), DeValue::Table(table)) => self.section(thresholds, table),
                (Some(_), _) => self.fault(value.span(), format!("{section} must be a section: [{section}]")),
            }
        }
    }

    /// Parses the thresholds of a section.
    fn section(&mut self, thresholds: &[&'static Threshold], table: &DeTable<'_>) {
        let names: Vec<&str> = thresholds.iter().map(|threshold| split(threshold.name).1).collect();
        for (key, value) in table {
            let name: &str = key.get_ref();
            let threshold = thresholds.iter().find(|threshold| split(threshold.name).1 == name);
            match (threshold, value.get_ref()) {
                (None, _) => self.fault(key.span(), unknown("threshold", name, &names)),
                (Some(threshold), DeValue::Table(levels)) => self.levels(threshold, levels, key.span()),
                (Some(_), _) => {
                    self.fault(value.span(), format!("{name} needs levels: {name} = {{ warning = NUMBER }}"));
                }
            }
        }
    }

    /// Parses the levels of a threshold.
    fn levels(&mut self, threshold: &'static Threshold, levels: &DeTable<'_>, at: Range<usize>) {
        let usual = threshold.default_scale();
        let mut set = Scale { source: CHANGED, ..usual };
        let faults_before = self.faults.len();
        for (key, value) in levels {
            let level: &str = key.get_ref();
            let place = match level {
                "notice" => &mut set.notice,
                "warning" => &mut set.warning,
                "critical" => &mut set.critical,
                _ => {
                    self.fault(key.span(), unknown("level", level, &LEVELS));
                    continue;
                }
            };
            match number(value) {
                Some(number) => *place = number,
                None => self.fault(value.span(), format!("{level} must be a number of at least 0")),
            }
        }
        let rises = usual.critical >= usual.notice;
        let (least, most) = if rises { (set.notice, set.critical) } else { (set.critical, set.notice) };
        let is_ordered = least <= set.warning && set.warning <= most;
        if self.faults.len() > faults_before {
            return;
        }
        if !is_ordered {
            let order = if rises { "rise" } else { "fall" };
            self.fault(
                at,
                format!(
                    "{} must {order} from notice to critical, but is {}, {}, {}",
                    threshold.name, set.notice, set.warning, set.critical
                ),
            );
        } else if (set.notice, set.warning, set.critical) != (usual.notice, usual.warning, usual.critical) {
            self.changed.set(threshold.name, set);
        }
    }
}

/// A number that is not negative; `None` for any other value.
fn number(value: &Spanned<DeValue<'_>>) -> Option<f64> {
    let number = match value.get_ref() {
        DeValue::Integer(whole) => i64::from_str_radix(whole.as_str(), whole.radix()).ok()? as f64,
        DeValue::Float(float) => float.as_str().parse().ok()?,
        _ => return None,
    };
    (number >= 0.0).then_some(number)
}

/// Describes an unknown name, and suggests the nearest known name, or all.
fn unknown(what: &str, given: &str, known: &[&str]) -> String {
    let near = known.iter().map(|name| (strsim::osa_distance(given, name), name)).min();
    match near.filter(|(distance, _)| *distance <= given.chars().count() / 3) {
        Some((_, name)) => format!("unknown {what} {given:?}; did you mean {name}?"),
        None => format!("unknown {what} {given:?}; known: {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests;
