//! Tests of lock counters: the agent's terms become rows.

use beamtune_model::{LockRow, LockSession};

use super::*;

/// Builds a row `{File, Line, Tries, Collisions, Microseconds, Waits, Bins}`.
fn place(file: &'static str, numbers_of: [i64; 5], bins: &[i64]) -> Value<'static> {
    let [line, tries, collisions, us, waits] = numbers_of.map(Value::from);
    let file = if file.is_empty() { Value::atom("undefined") } else { binary(file) };
    Value::tuple([file, line, tries, collisions, us, waits, numbers(bins)])
}

/// Builds a row `{Class, Kind, Locks, Places}`.
fn class(name: &'static str, locks: i64, places: Vec<Value<'static>>) -> Value<'static> {
    Value::tuple([binary(name), binary("rw_mutex"), Value::from(locks), Value::List(places)])
}

/// Builds a row `{Class, Kind, Id, Entity, Locks, Places}`.
fn lock(id: &'static str, entity: Value<'static>, locks: i64, places: Vec<Value<'static>>) -> Value<'static> {
    let (class, kind) = (binary("db_hash_slot"), binary("rw_mutex"));
    Value::tuple([class, kind, binary(id), entity, Value::from(locks), Value::List(places)])
}

const NUMBERS: [(&str, i64); 6] = [
    ("end_ns", 500),
    ("duration_us", 2_000),
    ("locks", 588),
    ("singles", 1),
    ("unplaced", 0),
    ("cost_bytes", 70_000),
];

fn counted(
    numbers_of: &[(&'static str, i64)],
    classes: Vec<Value<'static>>,
    rows: Vec<Value<'static>>,
    disturbed: bool,
) -> Value<'static> {
    let mut pairs: Vec<_> = numbers_of.iter().map(|&(key, number)| (key, Value::from(number))).collect();
    pairs.extend([
        ("told", Value::atom("ok")),
        ("categories", Value::list([binary("db"), binary("io")])),
        ("reductions", Value::from(9_000i64)),
        ("processes", Value::from(80i64)),
        ("disturbed", Value::from(disturbed)),
        ("left_out", Value::List(disturbed.then(|| binary("process")).into_iter().collect())),
        ("classes", Value::List(classes)),
        ("rows", Value::List(rows)),
    ]);
    done("locks", &pairs)
}

#[test]
fn classes_and_locks_become_rows() {
    let slots = || vec![place("beam/erl_db_hash.c", [400, 90, 40, 5_000, 38], &[0, 3, 35])];
    let classes = vec![
        class("db_hash_slot", 128, vec![place("", [0, 7, 1, 0, 0], &[]), slots().remove(0)]),
        class("atom_tab", 1, vec![place("", [0, 0, 0, 0, 0], &[])]),
    ];
    let rows = vec![
        lock("sessions", binary("sessions of store"), 1, slots()),
        lock("sessions", Value::atom("undefined"), 63, vec![place("", [0, 2, 1, 0, 0], &[])]),
    ];
    let mut recording = Recording::default();
    let sample = recording.add(vec![counted(&NUMBERS, classes, rows, false)]).unwrap();
    assert!(sample.gaps.is_empty(), "{:?}", sample.gaps);
    let session = LockSession {
        t: 1_000_500,
        length: 2_000_000,
        categories: vec!["db".to_owned(), "io".to_owned()],
        locks: 588,
        single_locks: 1,
        reductions: Some(9_000),
        processes: Some(80),
        cost_bytes: Some(70_000),
        remark: String::new(),
    };
    assert_eq!(sample.lock_sessions, [session]);
    let row = |class: &str, locks, tries, collisions| LockRow {
        t: 1_000_500,
        class: class.to_owned(),
        kind: "rw_mutex".to_owned(),
        locks,
        tries,
        collisions,
        ..LockRow::default()
    };
    let placed = |row: LockRow| LockRow {
        file: Some("beam/erl_db_hash.c".to_owned()),
        line: Some(400),
        wait_time: 5_000_000,
        waits: 38,
        histogram: vec![0, 3, 35],
        ..row
    };
    let of = |row: LockRow, entity: Option<&str>| LockRow {
        id: Some("sessions".to_owned()),
        entity: entity.map(str::to_owned),
        ..row
    };
    let expect = [
        row("db_hash_slot", 128, 7, 1),
        placed(row("db_hash_slot", 128, 90, 40)),
        row("atom_tab", 1, 0, 0),
        of(placed(row("db_hash_slot", 1, 90, 40)), Some("sessions of store")),
        of(row("db_hash_slot", 63, 2, 1), None),
    ];
    assert_eq!(sample.locks, expect);
}

#[test]
fn disturbances_are_remarks() {
    let mut recording = Recording::default();
    let mut numbers_of = NUMBERS;
    numbers_of[4].1 = 3;
    let sample = recording.add(vec![counted(&numbers_of, Vec::new(), Vec::new(), true)]).unwrap();
    let expect = "another tool changed the lock counting mask or reset the counters in the meantime; \
                  locks of the category process are no longer counted, because the node has too many processes \
                  (1 kB for each lock); to count them again, run `erts_debug:lcnt_control(mask, Categories)` in the node's shell; \
                  3 counts have no source location, since the table of locations was full";
    assert_eq!(sample.lock_sessions[0].remark, expect);
}

#[test]
fn refusal_is_a_gap_with_a_remedy() {
    for (outcome, kind, reason) in [
        ("not_lcnt", TroubleKind::Unsupported, "beamtune emulator"),
        ("busy", TroubleKind::Denied, "try again"),
        ("copy_save", TroubleKind::Denied, "lcnt_control(copy_save, false)"),
        ("too_large", TroubleKind::Denied, "leave out the category process"),
        ("limit", TroubleKind::TimedOut, "allow more time"),
        ("no_answer", TroubleKind::TimedOut, "dirty CPU schedulers"),
        ("lost", TroubleKind::Gone, "try again"),
        ("unknown_outcome", TroubleKind::Denied, "unknown_outcome"),
    ] {
        let mut recording = Recording::default();
        let sample = recording.add(vec![done("locks", &[("told", Value::atom(outcome))])]).unwrap();
        let [gap] = &sample.gaps[..] else { panic!("{outcome}: {:?}", sample.gaps) };
        assert_eq!((gap.source.as_str(), gap.kind), ("vm.locks", kind));
        assert!(gap.reason.contains(reason), "{}", gap.reason);
        assert!(sample.lock_sessions.is_empty() && sample.locks.is_empty());
    }
}

#[test]
fn estimate_is_not_a_session() {
    let mut recording = Recording::default();
    let estimate = done("locks", &[("told", Value::atom("ok")), ("estimate", map(&[]))]);
    let sample = recording.add(vec![estimate]).unwrap();
    assert!(sample.lock_sessions.is_empty() && sample.gaps.is_empty(), "{:?}", sample.gaps);
}

#[test]
fn malformed_counts_are_a_gap() {
    let check = |item: Value<'static>| {
        let mut recording = Recording::default();
        let sample = recording.add(vec![item]).unwrap();
        assert!(matches!(&sample.gaps[..], [gap] if gap.kind == TroubleKind::Garbled), "{:?}", sample.gaps);
        assert!(sample.lock_sessions.is_empty() && sample.locks.is_empty());
    };
    let of_class = |numbers_of, bins: &[i64]| {
        counted(&NUMBERS, vec![class("db_tab", 1, vec![place("a.c", numbers_of, bins)])], Vec::new(), false)
    };
    for at in 0..5 {
        let mut numbers_of = [1; 5];
        numbers_of[at] = -1;
        check(of_class(numbers_of, &[1]));
    }
    check(of_class([1; 5], &[-1]));
    check(counted(&NUMBERS, vec![class("db_tab", -1, Vec::new())], Vec::new(), false));
    check(counted(&NUMBERS, vec![tuple(&[1, 2])], Vec::new(), false));
    check(counted(&NUMBERS, Vec::new(), vec![lock("a", Value::atom("undefined"), -1, Vec::new())], false));
    for at in 1..5 {
        let mut numbers_of = NUMBERS;
        numbers_of[at].1 = -1;
        check(counted(&numbers_of, Vec::new(), Vec::new(), false));
    }
    for at in 0..5 {
        let mut numbers_of = NUMBERS.to_vec();
        numbers_of.remove(at);
        check(counted(&numbers_of, Vec::new(), Vec::new(), false));
    }
    check(done("locks", &[]));
    check(done("locks", &[("told", Value::from(5i64))]));
}

#[test]
fn row_count_is_limited() {
    let places = || vec![place("beam/erl_db.c", [1, 1, 1, i64::MAX, 1], &[1; 90]); 3_000];
    let classes = vec![class("db_tab", 1, places()), class("db_tab_fix", 1, places())];
    let rows = vec![lock("a", Value::atom("undefined"), 1, places())];
    let mut recording = Recording::default();
    let sample = recording.add(vec![counted(&NUMBERS, classes, rows, false)]).unwrap();
    assert_eq!((sample.locks.len(), sample.lock_sessions.len()), (5_000, 1));
    assert_eq!((sample.locks[0].histogram.len(), sample.locks[0].wait_time), (30, i64::MAX));
}

#[test]
fn fixtures_of_real_agents_are_decoded() {
    for release in [25, 27] {
        let sample = Recording::default().add_fixture(&format!("r{release}-sample-locks"));
        assert!(sample.gaps.is_empty(), "{release}: {:?}", sample.gaps);
        let [session] = &sample.lock_sessions[..] else { panic!("{release}: {:?}", sample.lock_sessions) };
        assert!(session.remark.is_empty() && session.single_locks == 5 && session.locks > 300, "{session:?}");
        assert!(session.length >= 500_000_000 && session.reductions > Some(0), "{session:?}");
        let of = |id| {
            sample.locks.iter().filter(move |row| row.class == "db_hash_slot" && row.id.as_deref() == id)
        };
        let waited = |id| of(id).map(|row| row.wait_time).sum::<i64>();
        assert!(waited(Some("sessions")) > 0 && waited(None) >= waited(Some("sessions")), "{release}");
        assert!(
            of(Some("sessions"))
                .any(|row| row.entity.as_deref().is_some_and(|of| of.starts_with("sessions of ")))
        );
    }
}
