//! Thresholds by name, so that a person can change those that rest on judgement.

use std::collections::BTreeMap;

use crate::diagnosis::Scale;
use crate::period::Period;

/// A threshold of a rule, as it is written there. What holds of a period is what [`Threshold::of`] gives.
#[derive(Debug, Clone, Copy)]
pub struct Threshold {
    /// For ever: `gc-share.gc_share`. Section and key of a file that changes it; the key ends in its unit, where it is no share.
    pub name: &'static str,
    /// What is measured, with its unit.
    pub what: &'static str,
    scale: Scale,
}

impl Threshold {
    /// One of that name.
    pub const fn new(name: &'static str, what: &'static str, scale: Scale) -> Threshold {
        Threshold { name, what, scale }
    }

    /// What it is unless somebody changes it.
    pub const fn usual(&self) -> Scale {
        self.scale
    }

    /// What it is for those who judge this period.
    pub fn of(&self, period: &Period) -> Scale {
        period.thresholds.get(self.name).unwrap_or(self.scale)
    }
}

/// What the person who has a period judged has changed of the thresholds; empty where that is nothing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Thresholds {
    /// The file that says so.
    pub file: String,
    changed: BTreeMap<&'static str, Scale>,
}

impl Thresholds {
    /// None yet, by a file.
    pub fn of_file(file: &str) -> Thresholds {
        Thresholds { file: file.to_owned(), changed: BTreeMap::new() }
    }

    /// Changes one.
    pub fn set(&mut self, name: &'static str, scale: Scale) {
        self.changed.insert(name, scale);
    }

    /// What one was changed to.
    pub fn get(&self, name: &str) -> Option<Scale> {
        self.changed.get(name).copied()
    }

    /// The names of those that were changed, in their order.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &'static str> {
        self.changed.keys().copied()
    }
}
