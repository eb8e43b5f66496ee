//! Named thresholds, so that users can override those whose source is experience.

use std::collections::BTreeMap;

use crate::diagnosis::Scale;
use crate::period::Period;

/// A threshold as declared by a rule. [`Threshold::of`] returns the value that applies to a period.
#[derive(Debug, Clone, Copy)]
pub struct Threshold {
    /// Permanent name: `gc-share.gc_share`, section and key in a thresholds file. The key ends in the unit of the value, unless the value
    /// is a share.
    pub name: &'static str,
    /// Description of the measured value, with its unit.
    pub what: &'static str,
    scale: Scale,
}

impl Threshold {
    /// Declares a threshold.
    pub const fn new(name: &'static str, what: &'static str, scale: Scale) -> Threshold {
        Threshold { name, what, scale }
    }

    /// The default.
    pub const fn default_scale(&self) -> Scale {
        self.scale
    }

    /// The value for this period: the default unless overridden.
    pub fn of(&self, period: &Period) -> Scale {
        period.thresholds.get(self.name).unwrap_or(self.scale)
    }
}

/// Overridden thresholds; empty by default.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Thresholds {
    /// The thresholds file that contains the overrides.
    pub file: String,
    changed: BTreeMap<&'static str, Scale>,
}

impl Thresholds {
    /// Creates an empty set of overrides for this file.
    pub fn from_file(file: &str) -> Thresholds {
        Thresholds { file: file.to_owned(), changed: BTreeMap::new() }
    }

    /// Overrides a threshold.
    pub fn set(&mut self, name: &'static str, scale: Scale) {
        self.changed.insert(name, scale);
    }

    /// The override of a threshold, if any.
    pub fn get(&self, name: &str) -> Option<Scale> {
        self.changed.get(name).copied()
    }

    /// Names of the overridden thresholds, sorted.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &'static str> {
        self.changed.keys().copied()
    }
}
