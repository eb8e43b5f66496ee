//! Lock counts, grouped by class, by single lock or by place, sorted and filtered.

use std::collections::BTreeMap;

use beamtune_model::{LockRow, Nanos, Period};

use super::of_duration;

/// How counts are grouped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// All locks of a class together.
    Class,
    /// Each reported lock; locks of the same name may be grouped.
    Lock,
    /// Each place in the emulator's source at which locks of a class are taken.
    Place,
}

/// The sort order: numbers in descending order, names in alphabetical order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    /// Wait time.
    Waited,
    /// Attempts to take the lock.
    Tries,
    /// Attempts that failed because another thread held the lock.
    Collisions,
    /// Collisions as a share of the attempts.
    CollisionShare,
    /// The name of the class, then that of the lock.
    Name,
}

impl Sort {
    /// All orders, with their names on the command line.
    pub const ALL: [(&'static str, Sort); 5] = [
        ("time", Sort::Waited),
        ("tries", Sort::Tries),
        ("collisions", Sort::Collisions),
        ("ratio", Sort::CollisionShare),
        ("name", Sort::Name),
    ];
}

/// A filter of lines; the default passes all of them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Filter {
    /// Only these classes; all classes if empty.
    pub classes: Vec<String>,
    /// Only locks whose class, name or entity contains this text.
    pub name: Option<String>,
    /// Only lines with more tries.
    pub tries_above: Option<i64>,
    /// Only lines with more collisions.
    pub collisions_above: Option<i64>,
    /// Only lines with a longer wait time.
    pub waited_above: Option<Nanos>,
}

/// A table of counts.
#[derive(Debug, Clone, PartialEq)]
pub struct View {
    /// How counts are grouped.
    pub by: By,
    /// The sort order.
    pub sort: Sort,
    /// Whether to reverse the order.
    pub reverse: bool,
    /// Maximum number of lines.
    pub most: usize,
    /// The filter.
    pub filter: Filter,
    /// Whether to show a histogram of waits by length, too.
    pub histogram: bool,
}

impl View {
    /// Creates a view like that of `lcnt`: 20 lines, the longest waits first, and only lines with collisions and waits.
    pub fn new(by: By) -> View {
        let filter = Filter {
            tries_above: Some(0),
            collisions_above: Some(0),
            waited_above: Some(0),
            ..Filter::default()
        };
        View { by, sort: Sort::Waited, reverse: false, most: 20, filter, histogram: by != By::Class }
    }

    /// Creates a view of all lines.
    pub fn all(by: By) -> View {
        View { filter: Filter::default(), most: usize::MAX, ..View::new(by) }
    }
}

/// A line of a table: a class, a lock or a place.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Line {
    /// The class.
    pub class: String,
    /// Kind of lock; empty if unknown.
    pub kind: String,
    /// The lock, as named by lock counting; `None` for a class.
    pub id: Option<String>,
    /// What the lock belongs to, if reported.
    pub entity: Option<String>,
    /// Number of locks; 0 if unknown.
    pub locks: i64,
    /// Whether the line covers the whole class or lock. An imported table of single locks does not cover the whole class.
    pub is_whole: bool,
    /// File and line in the emulator's source; `None` for all places together, or if lock counting does not report the place.
    pub place: Option<(String, i64)>,
    /// Attempts to take the lock.
    pub tries: i64,
    /// Attempts that failed because another thread held the lock.
    pub collisions: i64,
    /// Wait time, summed over all threads.
    pub waited: Nanos,
    /// Number of timed waits.
    pub waits: i64,
    /// Waits by length: entry *n* counts waits from 2^*n* ns up to 2^(*n*+1) ns. Empty if unknown.
    pub histogram: Vec<i64>,
}

impl Line {
    /// Collisions in percent of the tries; 0 if there are no tries.
    pub fn collision_pct(&self) -> f64 {
        if self.tries == 0 { 0.0 } else { self.collisions as f64 / self.tries as f64 * 100.0 }
    }

    /// Wait time in microseconds.
    pub fn waited_us(&self) -> i64 {
        self.waited / 1_000
    }

    /// Wait time in percent of the duration; `None` if the duration is unknown.
    pub fn duration_pct(&self, length: Option<Nanos>) -> Option<f64> {
        of_duration(self.waited, length)
    }

    fn add(&mut self, row: &LockRow) {
        self.tries = self.tries.saturating_add(row.tries);
        self.collisions = self.collisions.saturating_add(row.collisions);
        self.waited = self.waited.saturating_add(row.wait_time);
        self.waits = self.waits.saturating_add(row.waits);
        if self.histogram.len() < row.histogram.len() {
            self.histogram.resize(row.histogram.len(), 0);
        }
        for (sum, count) in self.histogram.iter_mut().zip(&row.histogram) {
            *sum = sum.saturating_add(*count);
        }
        if self.kind.is_empty() {
            self.kind.clone_from(&row.kind);
        }
        if self.entity.is_none() {
            self.entity.clone_from(&row.entity);
        }
    }
}

/// Returns the lines of a view.
pub fn lines(period: &Period, view: &View) -> Vec<Line> {
    let mut lines = match view.by {
        By::Class => classes(&period.locks, |_| None),
        By::Place => classes(&period.locks, |row| Some((row.file.clone(), row.line))),
        By::Lock => locks(&period.locks),
    };
    lines.retain(|line| passes(line, &view.filter));
    lines.sort_by(|a, b| {
        let names = || (&a.class, &a.id, &a.place).cmp(&(&b.class, &b.id, &b.place));
        let order = match view.sort {
            Sort::Waited => b.waited.cmp(&a.waited).then(b.collisions.cmp(&a.collisions)),
            Sort::Tries => b.tries.cmp(&a.tries),
            Sort::Collisions => b.collisions.cmp(&a.collisions),
            Sort::CollisionShare => b.collision_pct().total_cmp(&a.collision_pct()),
            Sort::Name => names(),
        };
        order.then_with(names)
    });
    // Like `lcnt`, reverses the lines that are shown, rather than showing the last ones of all.
    lines.truncate(view.most);
    if view.reverse {
        lines.reverse();
    }
    lines
}

fn passes(line: &Line, filter: &Filter) -> bool {
    let above = |value: i64, least: Option<i64>| least.is_none_or(|least| value > least);
    let has_name = |name: &str| {
        [Some(&line.class), line.id.as_ref(), line.entity.as_ref()]
            .into_iter()
            .flatten()
            .any(|text| text.contains(name))
    };
    (filter.classes.is_empty() || filter.classes.contains(&line.class))
        && filter.name.as_deref().is_none_or(has_name)
        && above(line.tries, filter.tries_above)
        && above(line.collisions, filter.collisions_above)
        && above(line.waited, filter.waited_above)
}

/// Returns lines of classes, or of their places. If a class has no counts of its own, the counts of its single locks are added up.
fn classes(rows: &[LockRow], key: impl Fn(&LockRow) -> Option<(Option<String>, Option<i64>)>) -> Vec<Line> {
    let whole: std::collections::HashSet<&str> =
        rows.iter().filter(|row| row.id.is_none()).map(|row| row.class.as_str()).collect();
    let mut lines: BTreeMap<_, Line> = BTreeMap::new();
    for row in rows {
        let is_whole = whole.contains(row.class.as_str());
        if row.id.is_some() == is_whole {
            continue;
        }
        let at = key(row);
        let place = at.clone().and_then(|(file, line)| file.zip(line));
        let line = lines.entry((row.class.as_str(), at)).or_insert_with(|| Line {
            class: row.class.clone(),
            is_whole,
            place,
            ..Line::default()
        });
        line.add(row);
        line.entity = None;
        line.locks = if is_whole { line.locks.max(row.locks) } else { line.locks.saturating_add(row.locks) };
    }
    lines.into_values().collect()
}

/// Returns lines of single locks. Several locks may have the same name, such as the slots of a table. In rows without places, each row is a
/// separate lock. In rows with places, a lock has several rows, so rows of the same name are merged.
fn locks(rows: &[LockRow]) -> Vec<Line> {
    let mut names: BTreeMap<(&str, &str), Vec<&LockRow>> = BTreeMap::new();
    for row in rows {
        if let Some(id) = row.id.as_deref() {
            names.entry((&row.class, id)).or_default().push(row);
        }
    }
    let mut lines = Vec::new();
    for ((class, id), rows) in names {
        let of = |rows: &[&LockRow]| {
            let mut line =
                Line { class: class.to_owned(), id: Some(id.to_owned()), is_whole: true, ..Line::default() };
            let mut places: BTreeMap<_, i64> = BTreeMap::new();
            for row in rows {
                line.add(row);
                let locks = places.entry((&row.file, row.line)).or_default();
                *locks = locks.saturating_add(row.locks);
            }
            line.locks = places.into_values().max().unwrap_or(0);
            line
        };
        match rows.iter().all(|row| row.file.is_none()) {
            true => lines.extend(rows.iter().map(|row| of(&[*row]))),
            false => lines.push(of(&rows)),
        }
    }
    lines
}
