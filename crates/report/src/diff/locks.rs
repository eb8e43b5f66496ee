//! Changes between two sessions of lock counting: for which locks threads wait less, and for which more.
//!
//! Two sessions rarely have the same length and the same load. So wait time is reported per million reductions, the VM's own measure of
//! work. If reductions are unknown, it is reported as a share of the duration.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use beamtune_model::{LockSession, Nanos, Period};

use crate::locks::{By, Line, View, lines};
use crate::table::{Align::*, Table};
use crate::text::{self, Style};

/// Smaller changes are not shown, as a share of the total wait time of the session that waited longer.
const MIN_CHANGE: f64 = 0.005;
/// Maximum number of rows of a comparison.
const ROWS: usize = 20;
/// Wait time is reported per this number of reductions.
const WORK: f64 = 1e6;

/// The measure by which two sessions are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// Wait time in microseconds per million reductions.
    Reductions,
    /// Wait time in percent of the duration.
    Duration,
}

/// Wait time of a lock class, or of a single lock, in two sessions.
#[derive(Debug, Clone, PartialEq)]
pub struct Moved {
    /// The class.
    pub class: String,
    /// The lock; `None` for a whole class.
    pub id: Option<String>,
    /// Wait time in session A, in the unit of the measure; `None` if not reported.
    pub a: Option<f64>,
    /// Wait time in session B.
    pub b: Option<f64>,
    /// Collisions in percent of the tries, in session A.
    pub collisions_a: Option<f64>,
    /// Collisions in percent of the tries, in session B.
    pub collisions_b: Option<f64>,
}

impl Moved {
    /// The change of wait time from A to B; a time that was not reported is taken as 0.
    fn change(&self) -> f64 {
        self.b.unwrap_or(0.0) - self.a.unwrap_or(0.0)
    }
}

/// Returns the changes: the class with the largest change first, and after each class its locks in the same order. `None` if locks were
/// not counted in both periods, or if neither work nor duration is known.
pub fn moved(a: &Period, b: &Period) -> Option<(Measure, Vec<Moved>)> {
    let (one, other) = (a.lock_session.as_ref()?, b.lock_session.as_ref()?);
    let (measure, unit_a, unit_b) = units(one, other)?;
    let (before, after) = (gathered(a), gathered(b));
    let names: BTreeSet<&Name> = before.keys().chain(after.keys()).collect();
    let mut classes: BTreeMap<&str, Vec<Moved>> = BTreeMap::new();
    for name in names {
        let (before, after) = (before.get(name), after.get(name));
        let waited = |line: Option<&Line>, unit: f64| line.map(|line| line.waited as f64 / unit);
        classes.entry(&name.0).or_default().push(Moved {
            class: name.0.clone(),
            id: name.1.clone(),
            a: waited(before, unit_a),
            b: waited(after, unit_b),
            collisions_a: before.map(Line::collision_pct),
            collisions_b: after.map(Line::collision_pct),
        });
    }
    let mut classes: Vec<(f64, Vec<Moved>)> = classes
        .into_values()
        .map(|mut rows| {
            // The sort is stable, so equal changes stay in the order of their names.
            rows.sort_by(|x, y| {
                let locks_behind = x.id.is_some().cmp(&y.id.is_some());
                locks_behind.then_with(|| y.change().abs().total_cmp(&x.change().abs()))
            });
            let most = rows.iter().map(|row| row.change().abs()).fold(0.0, f64::max);
            (most, rows)
        })
        .collect();
    classes.sort_by(|x, y| y.0.total_cmp(&x.0));
    Some((measure, classes.into_iter().flat_map(|(_, rows)| rows).collect()))
}

/// Chooses the measure, and returns the nanoseconds per unit of it in each session.
fn units(a: &LockSession, b: &LockSession) -> Option<(Measure, f64, f64)> {
    let work = |session: &LockSession| {
        session
            .reductions
            .filter(|reductions| *reductions > 0)
            .map(|reductions| reductions as f64 / WORK * 1e3)
    };
    if let (Some(a), Some(b)) = (work(a), work(b)) {
        return Some((Measure::Reductions, a, b));
    }
    let length = |session: &LockSession| (session.length > 0).then_some(session.length as f64 / 100.0);
    Some((Measure::Duration, length(a)?, length(b)?))
}

/// Class and lock; `None` for the whole class.
type Name = (String, Option<String>);

/// Returns one line per lock class and per single lock. Leaves out locks that have only a number, since they are interchangeable, and
/// classes of which only some locks are known.
fn gathered(period: &Period) -> BTreeMap<Name, Line> {
    let mut all: BTreeMap<Name, Line> = BTreeMap::new();
    let lines = [By::Class, By::Lock].into_iter().flat_map(|by| lines(period, &View::all(by)));
    let is_number = |id: &str| id.bytes().all(|byte| byte.is_ascii_digit());
    for line in lines.filter(|line| line.is_whole && !line.id.as_deref().is_some_and(is_number)) {
        match all.entry((line.class.clone(), line.id.clone())) {
            Entry::Vacant(free) => {
                free.insert(line);
            }
            Entry::Occupied(mut known) => {
                let known = known.get_mut();
                known.tries = known.tries.saturating_add(line.tries);
                known.collisions = known.collisions.saturating_add(line.collisions);
                known.waited = known.waited.saturating_add(line.waited);
            }
        }
    }
    all
}

/// Returns a remark on categories that were counted in only one session. Their locks may only look new, because the other session did not
/// count them.
fn other_categories(a: &LockSession, b: &LockSession) -> Option<String> {
    let only = |one: &LockSession, other: &LockSession| {
        let left = one.categories.iter().filter(|name| !other.categories.contains(name));
        left.map(|name| text::clean(name)).collect::<Vec<_>>().join(", ")
    };
    if a.categories.is_empty() || b.categories.is_empty() {
        return None;
    }
    let said: Vec<String> = [(only(a, b), "A"), (only(b, a), "B")]
        .into_iter()
        .filter(|(names, _)| !names.is_empty())
        .map(|(names, side)| format!("only in {side}: {names}"))
        .collect();
    (!said.is_empty()).then(|| format!("Different categories of locks were counted: {}.\n", said.join("; ")))
}

/// Formats the change of wait time.
fn change(a: Option<f64>, b: Option<f64>) -> String {
    match (a, b) {
        (Some(a), Some(b)) if a > 0.0 && b < 2.0 * a => format!("{:+.0} %", (b / a - 1.0) * 100.0),
        (Some(a), Some(b)) if a > 0.0 => format!("× {:.1}", b / a),
        (Some(_), None) => "not reported".to_owned(),
        _ => "new".to_owned(),
    }
}

/// Renders the comparison as text; empty if locks were counted in neither period.
pub fn render(a: &Period, b: &Period, style: Style) -> String {
    let Some((measure, all)) = moved(a, b) else {
        return match (&a.lock_session, &b.lock_session) {
            (None, None) => String::new(),
            (Some(_), Some(_)) => {
                "Locks were counted in both, but neither reductions nor the duration are known.\n".to_owned()
            }
            (Some(_), None) => "Locks were counted in A only.\n".to_owned(),
            (None, Some(_)) => "Locks were counted in B only.\n".to_owned(),
        };
    };
    let whole = |side: fn(&Moved) -> Option<f64>| {
        all.iter().filter(|moved| moved.id.is_none()).filter_map(side).sum::<f64>()
    };
    let (total_a, total_b) = (whole(|moved| moved.a), whole(|moved| moved.b));
    let unit = match measure {
        Measure::Reductions => "µs waited per million reductions",
        Measure::Duration => "wait time in % of the duration, because reductions are unknown in A or B",
    };
    let mut out = format!("{} ({unit})\n", style.bold("Locks"));
    let mut table = Table::new(&[
        ("lock", Left),
        ("A", Right),
        ("B", Right),
        ("change", Right),
        ("collisions % A", Right),
        ("B", Right),
    ]);
    let value = |value: Option<f64>| match value {
        None => "–".to_owned(),
        Some(large) if large >= 1_000.0 => text::decimal(large.round()),
        Some(small) => format!("{small:.2}"),
    };
    let percent = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.2}"));
    let least = MIN_CHANGE * total_a.max(total_b);
    let shown: Vec<_> =
        all.iter().filter(|moved| moved.change() != 0.0 && moved.change().abs() >= least).collect();
    for moved in shown.iter().take(ROWS) {
        let name = match &moved.id {
            Some(id) => format!("  {} {}", text::clean(&moved.class), text::sentence(id)),
            None => text::clean(&moved.class),
        };
        table.row([
            name,
            value(moved.a),
            value(moved.b),
            change(moved.a, moved.b),
            percent(moved.collisions_a),
            percent(moved.collisions_b),
        ]);
    }
    if all.iter().any(|moved| moved.id.is_none()) {
        table.row([
            "all".to_owned(),
            value(Some(total_a)),
            value(Some(total_b)),
            if total_a > 0.0 || total_b > 0.0 { change(Some(total_a), Some(total_b)) } else { String::new() },
            String::new(),
            String::new(),
        ]);
    }
    out.push_str(&table.render(style));
    if shown.len() > ROWS {
        out.push_str(&format!("and {} more\n", shown.len() - ROWS));
    }
    if shown.is_empty() {
        out.push_str("Wait times have not changed.\n");
    }
    let told = |length: Nanos| {
        if length > 0 { format!("{:.1} s", length as f64 / 1e9) } else { "an unknown duration".to_owned() }
    };
    let lengths = [a, b].map(|period| told(period.lock_session.as_ref().map_or(0, |session| session.length)));
    out.push_str(&format!("Locks were counted for {} in A, {} in B.\n", lengths[0], lengths[1]));
    if let (Some(one), Some(other)) = (&a.lock_session, &b.lock_session) {
        out.push_str(&other_categories(one, other).unwrap_or_default());
    }
    out
}

#[cfg(test)]
mod tests {
    use beamtune_model::LockRow;

    use super::*;

    fn period(reductions: Option<i64>, seconds: i64, locks: &[(&str, Option<&str>, i64)]) -> Period {
        let row = |(class, id, ms): &(&str, Option<&str>, i64)| LockRow {
            class: (*class).to_owned(),
            id: id.map(str::to_owned),
            locks: 1,
            tries: 1_000,
            collisions: 10 * ms,
            wait_time: ms * 1_000_000,
            ..LockRow::default()
        };
        let session = LockSession { length: seconds * 1_000_000_000, reductions, ..LockSession::default() };
        let mut period = Period::default();
        period.lock_session = Some(session);
        period.locks = locks.iter().map(row).collect();
        period
    }

    #[test]
    fn waits_are_compared_per_unit_of_work() {
        let before = period(
            Some(10_000_000),
            10,
            &[("db_tab", None, 50), ("db_tab", Some("carts"), 40), ("run_queue", None, 1)],
        );
        let after = period(
            Some(40_000_000),
            20,
            &[("db_tab", None, 20), ("db_tab", Some("carts"), 4), ("run_queue", None, 4)],
        );
        let (measure, all) = moved(&before, &after).expect("both were counted");
        assert_eq!(measure, Measure::Reductions);
        let of = |class: &str, id: Option<&str>| {
            let moved = all
                .iter()
                .find(|moved| moved.class == class && moved.id.as_deref() == id)
                .expect("a row of this lock");
            (moved.a, moved.b)
        };
        // 50 ms for 10 million reductions, 20 ms for 40 million.
        assert_eq!(of("db_tab", None), (Some(5_000.0), Some(500.0)));
        assert_eq!(of("db_tab", Some("carts")), (Some(4_000.0), Some(100.0)));
        assert_eq!(of("run_queue", None), (Some(100.0), Some(100.0)));
        assert_eq!(all[0].class, "db_tab");
        let text = render(&before, &after, Style::PLAIN);
        let expect = "\
Locks (µs waited per million reductions)
lock               A       B   change  collisions % A      B
db_tab         5,000  500.00    -90 %           50.00  20.00
  db_tab carts 4,000  100.00    -98 %           40.00   4.00
all            5,100  600.00    -88 %
Locks were counted for 10.0 s in A, 20.0 s in B.
";
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(&text), words(expect), "{text}");
    }

    #[test]
    fn without_reductions_the_duration_is_the_measure() {
        let before = period(None, 10, &[("db_tab", None, 5_000)]);
        let after = period(Some(5), 20, &[("db_tab", None, 20_000)]);
        let (measure, all) = moved(&before, &after).expect("both were counted");
        assert_eq!((measure, all[0].a, all[0].b), (Measure::Duration, Some(50.0), Some(100.0)));
        assert!(render(&before, &after, Style::PLAIN).contains("× 2.0"));
        assert!(moved(&before, &period(None, 0, &[])).is_none());
        assert!(render(&before, &period(None, 0, &[]), Style::PLAIN).contains("neither reductions"));
        assert!(moved(&before, &Period::default()).is_none());
        assert_eq!(render(&before, &Period::default(), Style::PLAIN), "Locks were counted in A only.\n");
        assert_eq!(render(&Period::default(), &Period::default(), Style::PLAIN), "");
    }

    #[test]
    fn new_locks_and_locks_no_longer_reported_are_marked() {
        let before = period(
            None,
            10,
            &[("db_tab", None, 500), ("db_tab", Some("t"), 500), ("run_queue", Some("3"), 9)],
        );
        let after = period(None, 10, &[("db_tab", None, 500), ("db_hash_slot", None, 100)]);
        let text = render(&before, &after, Style::PLAIN);
        assert!(text.lines().any(|line| line.starts_with("db_hash_slot") && line.contains("new")), "{text}");
        assert!(
            text.lines().any(|line| line.starts_with("  db_tab t") && line.contains("not reported")),
            "{text}"
        );
        assert!(!text.contains("run_queue"), "{text}");
    }

    #[test]
    fn locks_follow_their_class() {
        let before = period(
            None,
            10,
            &[
                ("db_tab", None, 900),
                ("db_tab", Some("b"), 400),
                ("db_tab", Some("a"), 500),
                ("run_queue", None, 450),
            ],
        );
        let after = period(None, 10, &[("db_tab", None, 100), ("run_queue", None, 0)]);
        let (_, all) = moved(&before, &after).expect("both were counted");
        let names: Vec<_> = all.iter().map(|moved| (moved.class.as_str(), moved.id.as_deref())).collect();
        let expect = [("db_tab", None), ("db_tab", Some("a")), ("db_tab", Some("b")), ("run_queue", None)];
        assert_eq!(names, expect);
    }

    #[test]
    fn categories_counted_in_only_one_session_are_reported() {
        let with = |categories: &[&str]| {
            let mut period = period(None, 10, &[("db_tab", None, 900)]);
            let names = categories.iter().map(|name| (*name).to_owned()).collect();
            period.lock_session.as_mut().expect("a session").categories = names;
            period
        };
        let text = render(&with(&["db", "io"]), &with(&["db", "process"]), Style::PLAIN);
        assert!(
            text.ends_with(
                "Different categories of locks were counted: only in A: io; only in B: process.\n"
            ),
            "{text}"
        );
        for other in [with(&["db"]), with(&[])] {
            assert!(!render(&with(&["db"]), &other, Style::PLAIN).contains("categories"));
        }
    }
}
