//! Puts what several tables say of one time together, so that nothing is counted twice.
//!
//! A text mostly has several tables of the same counts: classes, then single locks, then the places of one of them. A class that is told
//! both as a whole and by its places becomes one row for each place and one for what is left; locks that two calls have printed become
//! one row each; and what contradicts what was told before belongs to another collection and is not mixed with it.

use std::collections::{BTreeMap, HashMap};

use beamtune_model::locks::WAIT_BINS;
use beamtune_model::{LockRow, LockSession};

use crate::Unread;
use crate::made::{Made, made};
use crate::row::{HALF_DIGIT, Place};
use crate::walk::{Found, Log, Row, Told};

/// A microsecond in nanoseconds.
const MICROSECOND: i64 = 1_000;

/// A length is taken from the shares in the tables if they leave no more than this of it open.
const OPEN_SHARE: f64 = 0.05;

/// How parts are named that are not read.
const INFORMATION: &str = "information:";
const HEADINGS: &str = "headings of lcnt";

const NO_TIME: &str = "it was printed without the time, which follows from its share only if the duration is known: copy lcnt:information() too";
const OTHER_LENGTH: &str =
    "its time and its share belong to another duration: import one collection at a time";
const OTHER_TOLD: &str = "another collection was told of before: import one at a time";
const NOT_WITHIN: &str =
    "its counts are not within those that were told of the same lock: import one collection at a time";
const WHICH_LOCK: &str = "there are several locks of this name, and which one it is of is not known";
const NO_ROWS: &str =
    "no row was read of what was counted in this time: copy what lcnt:conflicts() prints too";
const EMPTY: &str =
    "it has headings and no row: lcnt leaves out locks that nobody waited for, unless it is told otherwise";
const NOT_WHOLE: &str = "not all lines of the histogram below it are there, so it is not known";

/// What was read of lcnt's tables.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Imported {
    /// The time for which locks were counted. Its `length` is 0 where neither `information` nor the shares in the tables tell it, its
    /// `locks` are at least those that the tables tell of; its `remark` says what is not exact.
    pub session: LockSession,
    /// What was counted. `locks` is 0 where it was not printed how many locks a row is of, `waits` where nobody printed a histogram,
    /// and `kind` is empty where it was not printed.
    pub rows: Vec<LockRow>,
    /// What was not read.
    pub unread: Vec<Unread>,
}

/// Counts with the time, in microseconds.
#[derive(Debug, Clone)]
struct Timed<'t> {
    made: Made<'t>,
    time_us: i64,
}

/// Sums of rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Sum {
    tries: i64,
    collisions: i64,
    time_us: i64,
}

impl Sum {
    fn of<'a, 't: 'a>(rows: impl IntoIterator<Item = &'a Timed<'t>>) -> Sum {
        rows.into_iter().fold(Sum::default(), |sum, row| {
            let Timed { made, time_us } = row;
            sum.with(Sum { tries: made.tries, collisions: made.collisions, time_us: *time_us })
        })
    }

    fn with(self, other: Sum) -> Sum {
        Sum {
            tries: self.tries.saturating_add(other.tries),
            collisions: self.collisions.saturating_add(other.collisions),
            time_us: self.time_us.saturating_add(other.time_us),
        }
    }

    /// What is left without another; `None` if that is more.
    fn without(self, other: Sum) -> Option<Sum> {
        let rest = Sum {
            tries: self.tries - other.tries,
            collisions: self.collisions - other.collisions,
            time_us: self.time_us - other.time_us,
        };
        (rest.tries >= 0 && rest.collisions >= 0 && rest.time_us >= 0).then_some(rest)
    }
}

/// Joins all that was found, and says how many parts beyond those that are named were not read.
pub fn join(found: Found) -> (Imported, usize) {
    let Found { tables, told, mut unread } = found;
    let mut refused: Vec<(&Row, &'static str)> = Vec::new();
    let mut rows = Vec::new();
    let mut block = 0;
    for table in &tables {
        // The places of one lock stand in a table of their own.
        block += 1;
        rows.extend(made(table, block, &mut |row, why| refused.push((row, why))));
    }
    let (told, told_at) = information(told, &mut unread);
    let length = Length::of(&told, &mut rows, &mut refused);
    let timed = times(rows, &length, &mut refused);
    let (classes, locks): (Vec<_>, Vec<_>) = timed.into_iter().partition(|row| row.made.id.is_none());
    let classes = whole_classes(classes, &mut refused);
    let (locks, told_locks) = single_locks(locks, &mut refused);
    let has_whole = !classes.is_empty();
    let is_rounded = classes.iter().chain(&locks).any(|row| !row.made.is_exact);
    let rows: Vec<LockRow> =
        classes.into_iter().chain(locks).map(|row| lock_row(row, &mut refused)).collect();
    refused.sort_by_key(|(row, _)| (row.line, row.column));
    for (row, why) in &refused {
        unread.add(row.line, row.column, &in_words(row), *why);
    }
    if rows.is_empty() {
        for (line, column) in told_at {
            unread.add(line, column, INFORMATION, NO_ROWS);
        }
        for table in tables.iter().filter(|table| table.rows.is_empty()) {
            unread.add(table.line, table.column, HEADINGS, EMPTY);
        }
    }
    let session = LockSession {
        length: length.us().saturating_mul(MICROSECOND),
        locks: told.locks.unwrap_or_else(|| locks_at_least(&rows).max(told_locks)),
        told: told_locks,
        remark: remark(&length, told.locks.is_some(), has_whole, is_rounded),
        ..LockSession::default()
    };
    let (unread, more) = unread.finish();
    (Imported { session, rows, unread }, more)
}

/// What `information` told; of several answers the first, with the lines and columns of all that agree with it.
fn information(told: Vec<Told>, unread: &mut Log) -> (Told, Vec<(usize, usize)>) {
    let mut told = told.into_iter();
    let Some(mut first) = told.next() else { return (Told::default(), Vec::new()) };
    let mut places = vec![(first.line, first.column)];
    for other in told {
        let agrees = |one: Option<i64>, other: Option<i64>| one.is_none() || other.is_none() || one == other;
        if agrees(first.locks, other.locks) && agrees(first.duration_us, other.duration_us) {
            first.locks = first.locks.or(other.locks);
            first.duration_us = first.duration_us.or(other.duration_us);
            places.push((other.line, other.column));
        } else {
            unread.add(other.line, other.column, INFORMATION, OTHER_TOLD);
        }
    }
    (first, places)
}

/// How long locks were counted.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Length {
    Told(i64),
    /// By the shares in the tables, at least and at most so many microseconds.
    Derived(f64, f64),
    Unknown,
}

impl Length {
    /// The length, and no rows that contradict it: those of the first table that tells it count.
    fn of<'t>(told: &Told, rows: &mut Vec<Made<'t>>, refused: &mut Vec<(&'t Row, &'static str)>) -> Length {
        let told = told.duration_us.filter(|us| *us > 0);
        let (mut least, mut most) = told.map_or((0.0, f64::INFINITY), |us| (us as f64, us as f64));
        rows.retain(|made| {
            let (Some(time), Some(share)) = (made.row.cells.time_us, made.row.cells.duration_pct) else {
                return true;
            };
            if time == 0 {
                return true;
            }
            // Time as a share of the length, which is rounded.
            let from = time as f64 * 100.0 / (share + HALF_DIGIT * 1.001);
            let to = if share > HALF_DIGIT {
                time as f64 * 100.0 / (share - HALF_DIGIT * 1.001)
            } else {
                f64::INFINITY
            };
            let (from, to) = (from.max(least), to.min(most));
            if from > to {
                refused.push((made.row, OTHER_LENGTH));
                return false;
            }
            if told.is_none() {
                (least, most) = (from, to);
            }
            true
        });
        match told {
            Some(us) => Length::Told(us),
            None if least > 0.0 && most - least <= OPEN_SHARE * least => Length::Derived(least, most),
            None => Length::Unknown,
        }
    }

    /// In microseconds; 0 if it is not known.
    fn us(self) -> i64 {
        match self {
            Length::Told(us) => us,
            Length::Derived(least, most) => ((least + most) / 2.0).round() as i64,
            Length::Unknown => 0,
        }
    }
}

/// Adds the times.
fn times<'t>(
    rows: Vec<Made<'t>>,
    length: &Length,
    refused: &mut Vec<(&'t Row, &'static str)>,
) -> Vec<Timed<'t>> {
    let timed = |made: Made<'t>| {
        let cells = &made.row.cells;
        let by_share = || match (length, cells.duration_pct) {
            (Length::Unknown, _) | (_, None) => None,
            (known, Some(share)) => Some((share / 100.0 * known.us() as f64).round() as i64),
        };
        let Some(time_us) = cells.time_us.or_else(by_share) else {
            refused.push((made.row, NO_TIME));
            return None;
        };
        let is_exact = made.is_exact && cells.time_us.is_some();
        Some(Timed { made: Made { is_exact, ..made }, time_us })
    };
    rows.into_iter().filter_map(timed).collect()
}

/// Rows of whole classes: for each its places, and what is left.
fn whole_classes<'t>(rows: Vec<Timed<'t>>, refused: &mut Vec<(&'t Row, &'static str)>) -> Vec<Timed<'t>> {
    let mut wholes: BTreeMap<String, Timed<'t>> = BTreeMap::new();
    let mut places: BTreeMap<String, BTreeMap<Place, Timed<'t>>> = BTreeMap::new();
    for row in rows {
        let class = row.made.class.clone();
        let known = match row.made.place.clone() {
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
        match is_same(known, &row) {
            true => merge(known, row),
            false => refused.push((row.made.row, OTHER_TOLD)),
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
            refused.extend(places.iter().map(|place| (place.made.row, NOT_WITHIN)));
            all.push(whole);
            continue;
        };
        // How many locks a class has is told with the class only.
        places.iter_mut().for_each(|place| place.made.locks = whole.made.locks);
        all.extend(places);
        all.extend(remainder(whole, rest));
    }
    all.extend(wholes.into_values());
    all
}

/// What is left of a lock or class beside its places; `None` if nothing is.
fn remainder<'t>(whole: Timed<'t>, rest: Sum) -> Option<Timed<'t>> {
    let Sum { tries, collisions, time_us } = rest;
    let has_bins = !whole.made.row.bins.is_empty();
    (rest != Sum::default() || has_bins)
        .then_some(Timed { made: Made { tries, collisions, ..whole.made }, time_us })
}

/// Rows of single locks, and how many locks these are.
fn single_locks<'t>(
    rows: Vec<Timed<'t>>,
    refused: &mut Vec<(&'t Row, &'static str)>,
) -> (Vec<Timed<'t>>, i64) {
    let (wholes, places): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.made.place.is_none());
    let wholes = apart(once(wholes), refused);
    let mut locks = wholes.iter().fold(0_i64, |sum, row| sum.saturating_add(row.made.locks.max(1)));
    let mut all: Vec<Option<Timed<'t>>> = wholes.into_iter().map(Some).collect();
    // By their names, and by their names and sums.
    let (mut named, mut summed): (HashMap<_, Vec<usize>>, HashMap<_, Vec<usize>>) =
        (HashMap::new(), HashMap::new());
    for (at, row) in all.iter().enumerate() {
        let Some(row) = row else { continue };
        named.entry(name(row)).or_default().push(at);
        summed.entry((name(row), Sum::of([row]))).or_default().push(at);
    }
    let mut blocks: BTreeMap<usize, Vec<Timed<'t>>> = BTreeMap::new();
    for row in once(places) {
        blocks.entry(row.made.block).or_default().push(row);
    }
    for places in blocks.into_values() {
        let Some(first) = places.first() else { continue };
        let (of, sum) = (name(first), Sum::of(&places));
        let known = named.get(&of).map_or(&[][..], Vec::as_slice);
        let only = match known {
            [only] => Some(*only),
            _ => None,
        };
        if known.is_empty() {
            locks = locks.saturating_add(first.made.locks.max(1));
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
                let why = if only.is_some() { NOT_WITHIN } else { WHICH_LOCK };
                refused.extend(places.iter().map(|place| (place.made.row, why)));
            }
        }
    }
    (all.into_iter().flatten().collect(), locks)
}

/// Where locks of one name are told one by one and also together, the latter without the former.
fn apart<'t>(rows: Vec<Timed<'t>>, refused: &mut Vec<(&'t Row, &'static str)>) -> Vec<Timed<'t>> {
    let (mut single, together): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.made.locks <= 1);
    let mut told: HashMap<_, (i64, Sum)> = HashMap::new();
    for row in &single {
        let (locks, sum) = told.entry(name(row)).or_default();
        *locks += 1;
        *sum = sum.with(Sum::of([row]));
    }
    for row in together {
        let (locks, sum) = told.get(&name(&row)).copied().unwrap_or_default();
        match Sum::of([&row]).without(sum).filter(|_| row.made.locks >= locks) {
            Some(rest) => {
                let left = row.made.locks - locks;
                let rest = remainder(row, rest).filter(|_| left > 0);
                single.extend(rest.map(|row| Timed { made: Made { locks: left, ..row.made }, ..row }));
            }
            None => refused.push((row.made.row, NOT_WITHIN)),
        }
    }
    single
}

/// What lock counting calls it; several locks may have the same name.
fn name(row: &Timed<'_>) -> (String, Option<String>) {
    (row.made.class.clone(), row.made.id.clone())
}

/// By what a single lock is known again: its numbers, for many have the same name.
type Key = (String, Option<String>, Option<Place>, i64, Option<(i64, i64)>);

fn key(row: &Timed<'_>, exactly: bool) -> Key {
    let made = &row.made;
    let numbers = exactly.then_some((made.collisions, row.time_us));
    (made.class.clone(), made.id.clone(), made.place.clone(), made.tries, numbers)
}

/// Each lock once: what one call prints several times are several locks, what several calls print is one.
fn once(rows: Vec<Timed<'_>>) -> Vec<Timed<'_>> {
    let mut prints: BTreeMap<usize, Vec<Timed<'_>>> = BTreeMap::new();
    for row in rows {
        prints.entry(row.made.print).or_default().push(row);
    }
    let mut all: Vec<Timed<'_>> = Vec::new();
    let (mut known, mut known_roughly) = (HashMap::new(), HashMap::new());
    for rows in prints.into_values() {
        let (mut here, mut here_roughly) = (HashMap::new(), HashMap::new());
        let mut fresh = Vec::new();
        for row in rows {
            let seen = match row.made.is_exact {
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

/// Whether there are as many already as there are here up to this one.
fn seen_before(key: Key, known: &HashMap<Key, usize>, here: &mut HashMap<Key, usize>) -> bool {
    let known = known.get(&key).copied().unwrap_or(0);
    let here = here.entry(key).or_insert(0);
    *here += 1;
    *here <= known
}

/// Whether two rows tell the same, as far as they tell it exactly.
fn is_same(one: &Timed<'_>, other: &Timed<'_>) -> bool {
    let are_exact = one.made.is_exact && other.made.is_exact;
    let have_counts = one.made.locks == other.made.locks || one.made.locks == 0 || other.made.locks == 0;
    one.made.tries == other.made.tries
        && have_counts
        && (!are_exact || (one.made.collisions, one.time_us) == (other.made.collisions, other.time_us))
}

/// Adds what another row of the same tells beyond the first.
fn merge<'t>(known: &mut Timed<'t>, row: Timed<'t>) {
    let keep = known.made.clone();
    let has_bins = |made: &Made<'_>| !made.row.bins.is_empty();
    if (row.made.is_exact && !keep.is_exact) || (has_bins(&row.made) && !has_bins(&keep)) {
        *known = row.clone();
    }
    known.made.locks = keep.locks.max(row.made.locks);
    if known.made.kind.is_empty() {
        known.made.kind = if keep.kind.is_empty() { row.made.kind } else { keep.kind };
    }
}

fn lock_row<'t>(row: Timed<'t>, refused: &mut Vec<(&'t Row, &'static str)>) -> LockRow {
    let Timed { made, time_us } = row;
    let mut histogram = made.row.bins.clone();
    if !histogram.is_empty() && histogram.len() != WAIT_BINS {
        refused.push((made.row, NOT_WHOLE));
        histogram.clear();
    }
    // Each wait that was timed stands in the histogram.
    let waits = histogram.iter().fold(0_i64, |sum, count| sum.saturating_add(*count));
    let used = histogram.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
    histogram.truncate(used);
    let place = made.place.unwrap_or_default();
    LockRow {
        class: made.class,
        kind: made.kind,
        id: made.id,
        locks: made.locks,
        file: place.file,
        line: place.line,
        tries: made.tries,
        collisions: made.collisions,
        waited: time_us.saturating_mul(MICROSECOND),
        waits,
        histogram,
        ..LockRow::default()
    }
}

/// Locks of the classes that were told as such.
fn locks_at_least(rows: &[LockRow]) -> i64 {
    let mut classes: HashMap<&str, i64> = HashMap::new();
    for row in rows.iter().filter(|row| row.id.is_none()) {
        let most = classes.entry(&row.class).or_insert(0);
        *most = row.locks.max(*most);
    }
    classes.values().fold(0, |sum, locks| sum.saturating_add(*locks))
}

fn remark(length: &Length, are_counted: bool, has_whole: bool, is_rounded: bool) -> String {
    let length = match length {
        Length::Told(_) => String::new(),
        Length::Derived(least, most) => {
            let open = (most - least) / 2.0 / 1e6;
            format!("How long it was follows from the shares in them, to {open:.6} s.")
        }
        Length::Unknown => "How long it was is not known: lcnt:information() tells it.".to_owned(),
    };
    let sentences = [
        "Read from tables that lcnt has printed, which shows 20 rows and leaves out what nobody waited for, unless it is told otherwise.",
        length.as_str(),
        if are_counted { "" } else { "How many locks there are is known at least." },
        if has_whole { "" } else { "Single locks are told only, no class as a whole." },
        if is_rounded { "Some counts follow from shares, and are rounded." } else { "" },
    ];
    sentences.iter().filter(|said| !said.is_empty()).copied().collect::<Vec<_>>().join(" ")
}

/// A row as a person finds it again.
fn in_words(row: &Row) -> String {
    let cells = &row.cells;
    let place = cells.place.as_ref().map(|place| match (&place.file, place.line) {
        (Some(file), Some(line)) => format!("{file}:{line}"),
        _ => "undefined".to_owned(),
    });
    let tries = cells.tries.map(|tries| tries.to_string());
    [cells.name.clone(), cells.id.clone(), place, tries].into_iter().flatten().collect::<Vec<_>>().join(" ")
}
