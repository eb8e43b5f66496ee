//! Searches of whole tables by any process, by samples of running processes.

use beamtune_model::Period;

use crate::signals::counts::{largest_first, share_interval};
use crate::signals::hot_code::{self, MIN_SAMPLES};
use crate::signals::stack;

/// Fewer samples in a search may be chance (judgement).
const MIN_SEARCHING: i64 = 3;

/// A table with fewer objects is searched in one go, in some tens of microseconds: ETS yields after a thousand objects.
pub(crate) const LARGE_OBJECTS: i64 = 1_000;

/// More than this share is most (judgement).
const MOST: f64 = 0.5;

/// Searches of whole tables.
pub(crate) struct Searches<'a> {
    /// Number of samples within searches, and of all samples.
    pub samples: (i64, i64),
    /// The 95 % interval of the share of these samples.
    pub interval: (f64, f64),
    /// The OTP function of most of these searches.
    pub function: &'a str,
    /// The program's own functions that called them, with samples, most first.
    pub callers: Vec<(&'a str, i64)>,
    /// Kinds of the searching processes, most samples first.
    pub kinds: Vec<(&'a str, i64)>,
    /// Whether most of them search tables of Mnesia.
    pub in_mnesia: bool,
    /// Whether some were interrupted, as only long searches are.
    pub is_long: bool,
}

impl<'a> Searches<'a> {
    /// Returns the searches; `None` if hardly any process was sampled in one. A search that may be short counts if its caller was also
    /// sampled in a long one. All of them count if searches are most of the samples and there is a large table. A search that visits all
    /// objects is long if there is a large table.
    pub(crate) fn of(period: &'a Period) -> Option<Searches<'a>> {
        let samples = hot_code::samples(period);
        let all = samples.iter().fold(0, |sum: i64, sample| sum.saturating_add(sample.looks));
        let mut tables = period.tables.iter();
        let are_large = period.tables.is_empty() || tables.any(|table| table.objects >= LARGE_OBJECTS);
        let seen: Vec<Seen<'_>> = samples.iter().filter_map(|sample| Seen::of(sample, are_large)).collect();
        let looks = |of: &[&Seen<'_>]| of.iter().fold(0, |sum: i64, one| sum.saturating_add(one.looks));
        let is_sure = |one: &&Seen<'_>| {
            one.is_long || seen.iter().any(|other| other.is_long && other.caller == one.caller)
        };
        let every: Vec<&Seen<'_>> = seen.iter().collect();
        let sure: Vec<&Seen<'_>> = seen.iter().filter(is_sure).collect();
        let is_long = !sure.is_empty();
        let own = if are_large && looks(&every) as f64 > MOST * all as f64 { every } else { sure };
        let within = looks(&own);
        if all < MIN_SAMPLES || within < MIN_SEARCHING {
            return None;
        }
        let functions = largest_first(own.iter().map(|one| (one.function, one.looks)));
        let in_mnesia: Vec<&Seen<'_>> = own.iter().copied().filter(|one| one.in_mnesia).collect();
        Some(Searches {
            samples: (within, all),
            interval: share_interval(within, all),
            function: functions.first()?.0,
            callers: largest_first(own.iter().filter_map(|one| Some((one.caller?, one.looks)))),
            kinds: largest_first(own.iter().filter_map(|one| Some((one.kind?, one.looks)))),
            in_mnesia: looks(&in_mnesia) as f64 > MOST * within as f64,
            is_long,
        })
    }

    /// Returns their share of the samples.
    pub(crate) fn share(&self) -> f64 {
        self.samples.0 as f64 / self.samples.1.max(1) as f64
    }

    /// Returns the program's function that called most of them.
    pub(crate) fn caller(&self) -> Option<&'a str> {
        let (caller, looks) = self.callers.first()?;
        (*looks as f64 > MOST * self.samples.0 as f64).then_some(caller)
    }
}

/// Samples of one stack within a search.
struct Seen<'a> {
    looks: i64,
    kind: Option<&'a str>,
    function: &'a str,
    caller: Option<&'a str>,
    in_mnesia: bool,
    is_long: bool,
}

impl<'a> Seen<'a> {
    fn of(sample: &hot_code::Sample<'a>, are_large: bool) -> Option<Seen<'a>> {
        let (function, caller) = stack::of_search(sample.stack)?;
        Some(Seen {
            looks: sample.looks,
            kind: sample.kind,
            function,
            caller,
            in_mnesia: stack::is_in_mnesia(sample.stack),
            is_long: stack::is_interrupted_search(function)
                || are_large && stack::is_of_all_objects(function),
        })
    }
}
