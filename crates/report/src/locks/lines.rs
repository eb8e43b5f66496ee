//! Counts of locks gathered by class, by single lock or by place, in an order and with a filter of one's choice.

use std::collections::BTreeMap;

use beamtune_model::{LockRow, Nanos, Period};

use super::of_duration;

/// By what counts are gathered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// All locks of a class together.
    Class,
    /// Each lock that is told, or what has the same name.
    Lock,
    /// Each place in the emulator's source, of a class.
    Place,
}

/// What comes first: the largest, but for names, where it is the first one of the alphabet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    /// Time waited.
    Waited,
    /// How often it was tried.
    Tries,
    /// How often it was taken then.
    Collisions,
    /// Collisions as a share of the tries.
    CollisionShare,
    /// The name of the class, then of the lock.
    Name,
}

impl Sort {
    /// All, with the names that the command line has for them.
    pub const ALL: [(&'static str, Sort); 5] = [
        ("time", Sort::Waited),
        ("tries", Sort::Tries),
        ("collisions", Sort::Collisions),
        ("ratio", Sort::CollisionShare),
        ("name", Sort::Name),
    ];
}

/// What is left out. Nothing is, by default.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Filter {
    /// Only these classes; empty: all.
    pub classes: Vec<String>,
    /// Only locks whose name or entity has this in it.
    pub name: Option<String>,
    /// Only with more tries than this.
    pub tries_above: Option<i64>,
    /// Only with more collisions than this.
    pub collisions_above: Option<i64>,
    /// Only with more time waited than this.
    pub waited_above: Option<Nanos>,
}

/// A table of counts.
#[derive(Debug, Clone, PartialEq)]
pub struct View {
    /// By what they are gathered.
    pub by: By,
    /// What comes first.
    pub sort: Sort,
    /// The other way round.
    pub reverse: bool,
    /// Lines at most.
    pub most: usize,
    /// What is left out.
    pub filter: Filter,
    /// Whether waits are shown by their length, too.
    pub histogram: bool,
}

impl View {
    /// As lock counting's own tool shows them: 20 lines, the longest waits first, and only where something collided and was waited for.
    pub fn new(by: By) -> View {
        let filter = Filter {
            tries_above: Some(0),
            collisions_above: Some(0),
            waited_above: Some(0),
            ..Filter::default()
        };
        View { by, sort: Sort::Waited, reverse: false, most: 20, filter, histogram: by != By::Class }
    }

    /// All of them.
    pub fn all(by: By) -> View {
        View { filter: Filter::default(), most: usize::MAX, ..View::new(by) }
    }
}

/// A line: of a class, a lock or a place.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Line {
    /// The class.
    pub class: String,
    /// Its kind; empty where that is not known.
    pub kind: String,
    /// The lock, as lock counting names it; `None` of a class.
    pub id: Option<String>,
    /// What the lock belongs to, as far as it was told.
    pub entity: Option<String>,
    /// How many locks; 0 where nobody told.
    pub locks: i64,
    /// Whether these are all counts of the class or the lock. Of an imported table of single locks the class is not known as a whole.
    pub is_whole: bool,
    /// File and line in the emulator's source; `None` of all places, and where lock counting does not tell.
    pub place: Option<(String, i64)>,
    /// How often it was tried.
    pub tries: i64,
    /// How often it was taken then.
    pub collisions: i64,
    /// Time waited, of all threads together.
    pub waited: Nanos,
    /// Waits that were timed.
    pub waits: i64,
    /// Waits by their length: the entry *n* counts those of 2^*n* ns and more. Empty where it is not known.
    pub histogram: Vec<i64>,
}

impl Line {
    /// Collisions in percent of the tries, 0 without any.
    pub fn collision_pct(&self) -> f64 {
        if self.tries == 0 { 0.0 } else { self.collisions as f64 / self.tries as f64 * 100.0 }
    }

    /// Time waited, in microseconds.
    pub fn waited_us(&self) -> i64 {
        self.waited / 1_000
    }

    /// Time waited in percent of the duration; `None` where it is not known how long that was.
    pub fn duration_pct(&self, length: Option<Nanos>) -> Option<f64> {
        of_duration(self.waited, length)
    }

    fn add(&mut self, row: &LockRow) {
        self.tries = self.tries.saturating_add(row.tries);
        self.collisions = self.collisions.saturating_add(row.collisions);
        self.waited = self.waited.saturating_add(row.waited);
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

/// The lines of a table.
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
    // The last ones of the whole, not the first ones from behind: as lock counting's own tool does it, of those that are shown.
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

/// Whole classes, or their places, where they are known; else what is known of their single locks.
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

/// Single locks. Several may have the same name, as the slots of a table do: where they are told without places, each row is one of
/// them; else rows of one name are gathered, because a lock has several then.
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
