//! Merges the tables of one lock counting collection, so that nothing is counted twice.
//!
//! A text usually contains several tables of the same counts: classes, then single locks, then the locations of one of them. A class that
//! is printed both as a whole and by location becomes one row per location and one row for the rest. A lock that two calls printed becomes
//! one row. Rows that contradict earlier ones belong to another collection and are refused.

use std::collections::{BTreeMap, HashMap};

use beamtune_model::locks::WAIT_BINS;
use beamtune_model::{LockRow, LockSession};

use crate::Unread;
use crate::counted::{CountedRow, counted_rows};
use crate::lcnt::{Information, LcntOutput, Row, UnreadLog};
use crate::row::{HALF_DIGIT, Place};

/// A microsecond in nanoseconds.
const MICROSECOND: i64 = 1_000;

/// Maximum relative uncertainty of a duration that is derived from percentages.
const MAX_LENGTH_UNCERTAINTY: f64 = 0.05;

/// Names of unread parts.
const INFORMATION: &str = "information:";
const HEADINGS: &str = "headings of lcnt";

const NO_TIME: &str =
    "the column time is missing, and its percentage needs the duration: copy lcnt:information() too";
const OTHER_LENGTH: &str =
    "its time and percentage belong to another duration: import one collection at a time";
const OTHER_COLLECTION: &str =
    "it contradicts an earlier table, so it belongs to another collection: import one at a time";
const EXCEEDS_WHOLE: &str =
    "its counts exceed those of the lock or class that they are part of: import one collection at a time";
const AMBIGUOUS_NAME: &str = "several locks have this name, so it is unknown which one this is";
const NO_ROWS: &str = "no row of this collection was read: copy the output of lcnt:conflicts() too";
const EMPTY: &str = "it has headings but no row: by default, lcnt omits locks without wait time";
const INCOMPLETE_HISTOGRAM: &str = "the histogram below it is incomplete, and was not read";

/// The merged data of lcnt's tables.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Imported {
    /// The collection. `length` is 0 if neither `information` nor percentages contain it. `locks` may be a lower bound derived from the
    /// rows. `remark` describes what is not exact.
    pub session: LockSession,
    /// The counts. `locks` is 0 and `kind` is empty if they were not printed; `waits` is 0 if there is no histogram.
    pub rows: Vec<LockRow>,
    /// The parts that were not read.
    pub unread: Vec<Unread>,
}

/// A row with its wait time, in microseconds.
#[derive(Debug, Clone)]
struct TimedRow<'t> {
    counted: CountedRow<'t>,
    time_us: i64,
}

/// Sums over rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Sum {
    tries: i64,
    collisions: i64,
    time_us: i64,
}

impl Sum {
    fn of<'a, 't: 'a>(rows: impl IntoIterator<Item = &'a TimedRow<'t>>) -> Sum {
        rows.into_iter().fold(Sum::default(), |sum, row| {
            let TimedRow { counted, time_us } = row;
            sum.with(Sum { tries: counted.tries, collisions: counted.collisions, time_us: *time_us })
        })
    }

    fn with(self, other: Sum) -> Sum {
        Sum {
            tries: self.tries.saturating_add(other.tries),
            collisions: self.collisions.saturating_add(other.collisions),
            time_us: self.time_us.saturating_add(other.time_us),
        }
    }

    /// Subtracts the other sum; `None` if a count would be negative.
    fn without(self, other: Sum) -> Option<Sum> {
        let rest = Sum {
            tries: self.tries - other.tries,
            collisions: self.collisions - other.collisions,
            time_us: self.time_us - other.time_us,
        };
        (rest.tries >= 0 && rest.collisions >= 0 && rest.time_us >= 0).then_some(rest)
    }
}

/// Merges all tables. Also returns the number of unread parts that are not listed.
pub fn join(output: LcntOutput) -> (Imported, usize) {
    let LcntOutput { tables, information, mut unread } = output;
    let mut refused: Vec<(&Row, &'static str)> = Vec::new();
    let mut rows = Vec::new();
    let mut table_number = 0;
    for table in &tables {
        // The locations of each lock are in a separate table.
        table_number += 1;
        rows.extend(counted_rows(table, table_number, &mut |row, why| refused.push((row, why))));
    }
    let (information, positions) = merge_information(information, &mut unread);
    let length = Length::of(&information, &mut rows, &mut refused);
    let timed_rows = add_times(rows, &length, &mut refused);
    let (classes, locks): (Vec<_>, Vec<_>) = timed_rows.into_iter().partition(|row| row.counted.id.is_none());
    let classes = whole_classes(classes, &mut refused);
    let (locks, single_lock_count) = single_locks(locks, &mut refused);
    let has_classes = !classes.is_empty();
    let is_rounded = classes.iter().chain(&locks).any(|row| !row.counted.is_exact);
    let rows: Vec<LockRow> =
        classes.into_iter().chain(locks).map(|row| lock_row(row, &mut refused)).collect();
    refused.sort_by_key(|(row, _)| (row.line, row.column));
    for (row, why) in &refused {
        unread.add(row.line, row.column, &describe(row), *why);
    }
    if rows.is_empty() {
        for (line, column) in positions {
            unread.add(line, column, INFORMATION, NO_ROWS);
        }
        for table in tables.iter().filter(|table| table.rows.is_empty()) {
            unread.add(table.line, table.column, HEADINGS, EMPTY);
        }
    }
    let session = LockSession {
        length: length.us().saturating_mul(MICROSECOND),
        locks: information.locks.unwrap_or_else(|| min_lock_count(&rows).max(single_lock_count)),
        single_locks: single_lock_count,
        remark: remark(&length, information.locks.is_some(), has_classes, is_rounded),
        ..LockSession::default()
    };
    let (unread, more) = unread.finish();
    (Imported { session, rows, unread }, more)
}

/// Merges the outputs of `information` that agree with the first one, and returns their positions.
fn merge_information(all: Vec<Information>, unread: &mut UnreadLog) -> (Information, Vec<(usize, usize)>) {
    let mut all = all.into_iter();
    let Some(mut first) = all.next() else { return (Information::default(), Vec::new()) };
    let mut positions = vec![(first.line, first.column)];
    for other in all {
        let agrees = |one: Option<i64>, other: Option<i64>| one.is_none() || other.is_none() || one == other;
        if agrees(first.locks, other.locks) && agrees(first.duration_us, other.duration_us) {
            first.locks = first.locks.or(other.locks);
            first.duration_us = first.duration_us.or(other.duration_us);
            positions.push((other.line, other.column));
        } else {
            unread.add(other.line, other.column, INFORMATION, OTHER_COLLECTION);
        }
    }
    (first, positions)
}

/// The duration of the collection.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Length {
    Printed(i64),
    /// Minimum and maximum in microseconds, derived from percentages.
    Derived(f64, f64),
    Unknown,
}

impl Length {
    /// Determines the duration. Rows that contradict it are refused. If it was not printed, it is derived from the rows, and the first ones
    /// take precedence.
    fn of<'t>(
        information: &Information,
        rows: &mut Vec<CountedRow<'t>>,
        refused: &mut Vec<(&'t Row, &'static str)>,
    ) -> Length {
        let printed = information.duration_us.filter(|us| *us > 0);
        let (mut min, mut max) = printed.map_or((0.0, f64::INFINITY), |us| (us as f64, us as f64));
        rows.retain(|counted| {
            let (Some(time), Some(share)) = (counted.row.cells.time_us, counted.row.cells.duration_pct)
            else {
                return true;
            };
            if time == 0 {
                return true;
            }
            // The share is the wait time as a percentage of the duration, and is rounded.
            let from = time as f64 * 100.0 / (share + HALF_DIGIT * 1.001);
            let to = if share > HALF_DIGIT {
                time as f64 * 100.0 / (share - HALF_DIGIT * 1.001)
            } else {
                f64::INFINITY
            };
            let (from, to) = (from.max(min), to.min(max));
            if from > to {
                refused.push((counted.row, OTHER_LENGTH));
                return false;
            }
            if printed.is_none() {
                (min, max) = (from, to);
            }
            true
        });
        match printed {
            Some(us) => Length::Printed(us),
            None if min > 0.0 && max - min <= MAX_LENGTH_UNCERTAINTY * min => Length::Derived(min, max),
            None => Length::Unknown,
        }
    }

    /// Returns the duration in microseconds; 0 if unknown.
    fn us(self) -> i64 {
        match self {
            Length::Printed(us) => us,
            Length::Derived(min, max) => ((min + max) / 2.0).round() as i64,
            Length::Unknown => 0,
        }
    }
}

/// Adds the wait times to the rows; refuses rows with an unknown wait time.
fn add_times<'t>(
    rows: Vec<CountedRow<'t>>,
    length: &Length,
    refused: &mut Vec<(&'t Row, &'static str)>,
) -> Vec<TimedRow<'t>> {
    let with_time = |counted: CountedRow<'t>| {
        let cells = &counted.row.cells;
        let by_share = || match (length, cells.duration_pct) {
            (Length::Unknown, _) | (_, None) => None,
            (known, Some(share)) => Some((share / 100.0 * known.us() as f64).round() as i64),
        };
        let Some(time_us) = cells.time_us.or_else(by_share) else {
            refused.push((counted.row, NO_TIME));
            return None;
        };
        let is_exact = counted.is_exact && cells.time_us.is_some();
        Some(TimedRow { counted: CountedRow { is_exact, ..counted }, time_us })
    };
    rows.into_iter().filter_map(with_time).collect()
}

/// Merges the rows of classes. For each class, returns its locations and the rest.
fn whole_classes<'t>(
    rows: Vec<TimedRow<'t>>,
    refused: &mut Vec<(&'t Row, &'static str)>,
) -> Vec<TimedRow<'t>> {
    let mut wholes: BTreeMap<String, TimedRow<'t>> = BTreeMap::new();
    let mut places: BTreeMap<String, BTreeMap<Place, TimedRow<'t>>> = BTreeMap::new();
    for row in rows {
        let class = row.counted.class.clone();
        let known = match row.counted.place.clone() {
            None => match wholes.get_mut(&class) {
                Some(known) => known,
                None => {
                    wholes.insert(class, row);
                    continue;
                }
            },
            Some(place) => match places.entry(class).or_default().entry(place) {
                std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
                std::collections::btree_map::Entry::Vacant(free) => {
                    free.insert(row);
                    continue;
                }
            },
        };
        match agree(known, &row) {
            true => merge(known, row),
            false => refused.push((row.counted.row, OTHER_COLLECTION)),
        }
    }
    let mut all = Vec::new();
    for (class, places) in places {
        let mut places: Vec<_> = places.into_values().collect();
        let Some(whole) = wholes.remove(&class) else {
            all.extend(places);
            continue;
        };
        let Some(rest) = Sum::of([&whole]).without(Sum::of(&places)) else {
            refused.extend(places.iter().map(|place| (place.counted.row, EXCEEDS_WHOLE)));
            all.push(whole);
            continue;
        };
        // The number of locks is printed only with the class.
        places.iter_mut().for_each(|place| place.counted.locks = whole.counted.locks);
        all.extend(places);
        all.extend(remainder(whole, rest));
    }
    all.extend(wholes.into_values());
    all
}

/// Returns the part of a lock or class that its locations do not include; `None` if there is no such part.
fn remainder<'t>(whole: TimedRow<'t>, rest: Sum) -> Option<TimedRow<'t>> {
    let Sum { tries, collisions, time_us } = rest;
    let has_bins = !whole.counted.row.bins.is_empty();
    (rest != Sum::default() || has_bins)
        .then_some(TimedRow { counted: CountedRow { tries, collisions, ..whole.counted }, time_us })
}

/// Merges the rows of single locks. Also returns the number of these locks.
fn single_locks<'t>(
    rows: Vec<TimedRow<'t>>,
    refused: &mut Vec<(&'t Row, &'static str)>,
) -> (Vec<TimedRow<'t>>, i64) {
    let (wholes, places): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.counted.place.is_none());
    let wholes = subtract_single_locks(deduplicate(wholes), refused);
    let mut locks = wholes.iter().fold(0_i64, |sum, row| sum.saturating_add(row.counted.locks.max(1)));
    let mut all: Vec<Option<TimedRow<'t>>> = wholes.into_iter().map(Some).collect();
    // Indexes by name, and by name and sums.
    let (mut named, mut summed): (HashMap<_, Vec<usize>>, HashMap<_, Vec<usize>>) =
        (HashMap::new(), HashMap::new());
    for (at, row) in all.iter().enumerate() {
        let Some(row) = row else { continue };
        named.entry(name(row)).or_default().push(at);
        summed.entry((name(row), Sum::of([row]))).or_default().push(at);
    }
    let mut by_table: BTreeMap<usize, Vec<TimedRow<'t>>> = BTreeMap::new();
    for row in deduplicate(places) {
        by_table.entry(row.counted.table_number).or_default().push(row);
    }
    for places in by_table.into_values() {
        let Some(first) = places.first() else { continue };
        let (of, sum) = (name(first), Sum::of(&places));
        let known = named.get(&of).map_or(&[][..], Vec::as_slice);
        let only = match known {
            [only] => Some(*only),
            _ => None,
        };
        if known.is_empty() {
            locks = locks.saturating_add(first.counted.locks.max(1));
            all.extend(places.into_iter().map(Some));
            continue;
        }
        let at = summed.get_mut(&(of, sum)).and_then(Vec::pop).or(only);
        let rest = at.and_then(|at| all.get(at)?.as_ref()).and_then(|whole| Sum::of([whole]).without(sum));
        match at.zip(rest) {
            Some((at, rest)) => {
                let whole = all.get_mut(at).and_then(Option::take);
                all.extend(whole.and_then(|whole| remainder(whole, rest)).map(Some));
                all.extend(places.into_iter().map(Some));
            }
            None => {
                let why = if only.is_some() { EXCEEDS_WHOLE } else { AMBIGUOUS_NAME };
                refused.extend(places.iter().map(|place| (place.counted.row, why)));
            }
        }
    }
    (all.into_iter().flatten().collect(), locks)
}

/// If locks of the same name are printed both singly and as a sum, subtracts the single locks from the sum.
fn subtract_single_locks<'t>(
    rows: Vec<TimedRow<'t>>,
    refused: &mut Vec<(&'t Row, &'static str)>,
) -> Vec<TimedRow<'t>> {
    let (mut single, together): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.counted.locks <= 1);
    let mut printed: HashMap<_, (i64, Sum)> = HashMap::new();
    for row in &single {
        let (locks, sum) = printed.entry(name(row)).or_default();
        *locks += 1;
        *sum = sum.with(Sum::of([row]));
    }
    for row in together {
        let (locks, sum) = printed.get(&name(&row)).copied().unwrap_or_default();
        match Sum::of([&row]).without(sum).filter(|_| row.counted.locks >= locks) {
            Some(rest) => {
                let left = row.counted.locks - locks;
                let rest = remainder(row, rest).filter(|_| left > 0);
                single.extend(
                    rest.map(|row| TimedRow { counted: CountedRow { locks: left, ..row.counted }, ..row }),
                );
            }
            None => refused.push((row.counted.row, EXCEEDS_WHOLE)),
        }
    }
    single
}

/// Returns the name of a lock: its class and id. Several locks may have the same name.
fn name(row: &TimedRow<'_>) -> (String, Option<String>) {
    (row.counted.class.clone(), row.counted.id.clone())
}

/// Identifies a single lock by its counts, since many locks have the same name.
type Key = (String, Option<String>, Option<Place>, i64, Option<(i64, i64)>);

fn key(row: &TimedRow<'_>, exactly: bool) -> Key {
    let counted = &row.counted;
    let numbers = exactly.then_some((counted.collisions, row.time_us));
    (counted.class.clone(), counted.id.clone(), counted.place.clone(), counted.tries, numbers)
}

/// Removes duplicates. Equal rows of one call are different locks; equal rows of different calls are the same lock.
fn deduplicate(rows: Vec<TimedRow<'_>>) -> Vec<TimedRow<'_>> {
    let mut by_call: BTreeMap<usize, Vec<TimedRow<'_>>> = BTreeMap::new();
    for row in rows {
        by_call.entry(row.counted.call_id).or_default().push(row);
    }
    let mut all: Vec<TimedRow<'_>> = Vec::new();
    let (mut known, mut known_roughly) = (HashMap::new(), HashMap::new());
    for rows in by_call.into_values() {
        let (mut here, mut here_roughly) = (HashMap::new(), HashMap::new());
        let mut fresh = Vec::new();
        for row in rows {
            let seen = match row.counted.is_exact {
                true => seen_before(key(&row, true), &known, &mut here),
                false => seen_before(key(&row, false), &known_roughly, &mut here_roughly),
            };
            if !seen {
                fresh.push(row);
            }
        }
        for row in &fresh {
            *known.entry(key(row, true)).or_insert(0) += 1;
            *known_roughly.entry(key(row, false)).or_insert(0) += 1;
        }
        all.extend(fresh);
    }
    all
}

/// Whether earlier calls printed at least as many rows with this key as the current call has printed so far.
fn seen_before(key: Key, known: &HashMap<Key, usize>, here: &mut HashMap<Key, usize>) -> bool {
    let known = known.get(&key).copied().unwrap_or(0);
    let here = here.entry(key).or_insert(0);
    *here += 1;
    *here <= known
}

/// Whether two rows agree in all numbers that are exact.
fn agree(one: &TimedRow<'_>, other: &TimedRow<'_>) -> bool {
    let are_exact = one.counted.is_exact && other.counted.is_exact;
    let have_counts =
        one.counted.locks == other.counted.locks || one.counted.locks == 0 || other.counted.locks == 0;
    one.counted.tries == other.counted.tries
        && have_counts
        && (!are_exact || (one.counted.collisions, one.time_us) == (other.counted.collisions, other.time_us))
}

/// Adds the values that another row of the same class or location has, but the first one lacks.
fn merge<'t>(known: &mut TimedRow<'t>, row: TimedRow<'t>) {
    let keep = known.counted.clone();
    let has_bins = |counted: &CountedRow<'_>| !counted.row.bins.is_empty();
    if (row.counted.is_exact && !keep.is_exact) || (has_bins(&row.counted) && !has_bins(&keep)) {
        *known = row.clone();
    }
    known.counted.locks = keep.locks.max(row.counted.locks);
    if known.counted.kind.is_empty() {
        known.counted.kind = if keep.kind.is_empty() { row.counted.kind } else { keep.kind };
    }
}

fn lock_row<'t>(row: TimedRow<'t>, refused: &mut Vec<(&'t Row, &'static str)>) -> LockRow {
    let TimedRow { counted, time_us } = row;
    let mut histogram = counted.row.bins.clone();
    if !histogram.is_empty() && histogram.len() != WAIT_BINS {
        refused.push((counted.row, INCOMPLETE_HISTOGRAM));
        histogram.clear();
    }
    // The histogram contains every timed wait.
    let waits = histogram.iter().fold(0_i64, |sum, count| sum.saturating_add(*count));
    let used = histogram.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
    histogram.truncate(used);
    let place = counted.place.unwrap_or_default();
    LockRow {
        class: counted.class,
        kind: counted.kind,
        id: counted.id,
        locks: counted.locks,
        file: place.file,
        line: place.line,
        tries: counted.tries,
        collisions: counted.collisions,
        wait_time: time_us.saturating_mul(MICROSECOND),
        waits,
        histogram,
        ..LockRow::default()
    }
}

/// Returns a lower bound for the number of locks, from the rows of classes.
fn min_lock_count(rows: &[LockRow]) -> i64 {
    let mut classes: HashMap<&str, i64> = HashMap::new();
    for row in rows.iter().filter(|row| row.id.is_none()) {
        let max = classes.entry(&row.class).or_insert(0);
        *max = row.locks.max(*max);
    }
    classes.values().fold(0, |sum, locks| sum.saturating_add(*locks))
}

fn remark(length: &Length, are_counted: bool, has_classes: bool, is_rounded: bool) -> String {
    let length = match length {
        Length::Printed(_) => String::new(),
        Length::Derived(min, max) => {
            let uncertainty = (max - min) / 2.0 / 1e6;
            format!("The duration is derived from percentages, to within {uncertainty:.6} s.")
        }
        Length::Unknown => "The duration is unknown: copy lcnt:information() too.".to_owned(),
    };
    let sentences = [
        "Imported from the output of lcnt, which by default prints 20 rows and omits locks without wait time.",
        length.as_str(),
        if are_counted { "" } else { "The number of locks is a lower bound." },
        if has_classes { "" } else { "Only single locks were printed, no whole class." },
        if is_rounded { "Some counts are derived from percentages and rounded." } else { "" },
    ];
    sentences.iter().filter(|sentence| !sentence.is_empty()).copied().collect::<Vec<_>>().join(" ")
}

/// Returns the words of a row by which the user can find it in the text.
fn describe(row: &Row) -> String {
    let cells = &row.cells;
    let place = cells.place.as_ref().map(|place| match (&place.file, place.line) {
        (Some(file), Some(line)) => format!("{file}:{line}"),
        _ => "undefined".to_owned(),
    });
    let tries = cells.tries.map(|tries| tries.to_string());
    [cells.name.clone(), cells.id.clone(), place, tries].into_iter().flatten().collect::<Vec<_>>().join(" ")
}
