//! Tests of the page of `beamtune locks`, with known numbers.
#![allow(clippy::expect_used, clippy::panic, reason = "these are tests")]

use beamtune_model::{Diagnosis, LockRow, LockSession, LockWaitRow, Period};
use beamtune_report::diagnosis::{self, Verbosity};
use beamtune_report::locks::{
    Answer, Blocked, By, Contended, Filter, Look, Page, Remains, Sort, View, WaitShare, json, lines, render,
};
use beamtune_report::{Style, locks};

const MS: i64 = 1_000_000;

fn row(class: &str, id: Option<&str>, tries: i64, collisions: i64, waited: i64) -> LockRow {
    LockRow {
        class: class.to_owned(),
        kind: "mutex".to_owned(),
        id: id.map(str::to_owned),
        locks: 1,
        tries,
        collisions,
        wait_time: waited,
        ..LockRow::default()
    }
}

fn at(place: (&str, i64), row: LockRow) -> LockRow {
    LockRow { file: Some(place.0.to_owned()), line: Some(place.1), ..row }
}

/// A period with counts as printed by lock counting (`10000123 us`): classes at two places, and single locks of a table. Two of its slots
/// have their own rows; the other slots share one.
fn counted() -> Period {
    let slot =
        |waited: i64| at(("beam/erl_db_hash.c", 400), row("db_hash_slot", Some("carts"), 5_000, 900, waited));
    let classes = [
        LockRow {
            locks: 64,
            ..at(("beam/erl_db_hash.c", 400), row("db_hash_slot", None, 13_000_000, 110_000, 4_900 * MS))
        },
        LockRow {
            locks: 64,
            waits: 600,
            histogram: vec![0, 0, 0, 0, 0, 0, 0, 100, 0, 0, 0, 0, 500],
            ..row("db_hash_slot", None, 510_419, 3_487, 40_488_999)
        },
        LockRow { locks: 18, ..row("run_queue", None, 126_707_580, 1_178_423, 293_917_000) },
        row("atom_tab", None, 12, 0, 0),
    ];
    let singles = [
        slot(2_000 * MS),
        slot(1_000 * MS),
        LockRow { locks: 62, entity: Some("carts of shop".to_owned()), ..slot(500 * MS) },
        row("run_queue", Some("3"), 20_000, 100, 9_000),
        row("run_queue", Some("4"), 20_000, 100, 8_000),
    ];
    let session = LockSession {
        length: 10_000_123_000,
        categories: vec!["db".to_owned(), "scheduler".to_owned()],
        locks: 588,
        single_locks: 4,
        reductions: Some(12_345_678),
        cost_bytes: Some(70_000),
        remark: "somebody else has begun to count anew".to_owned(),
        ..LockSession::default()
    };
    let mut period = Period::default();
    period.lock_session = Some(session);
    period.locks = classes.into_iter().chain(singles).collect();
    period
}

fn remains() -> Vec<Remains> {
    vec![
        Remains {
            without: "db_hash_slot of the table carts".to_owned(),
            waited: 1_734 * MS,
            next: Some(("other db_hash_slot".to_owned(), 1_440 * MS)),
        },
        Remains { without: "other db_hash_slot".to_owned(), waited: 294 * MS, next: None },
    ]
}

fn page(period: &Period, views: &[View], look: Option<&Look>) -> String {
    let page = Page { look, contended: &[], views, remains: &remains(), verdicts: &Diagnosis::default() };
    let style = Style { width: 200, ..Style::PLAIN };
    render(period, &page, &verbose(style))
}

/// Returns a view with `-v`.
fn verbose(style: Style) -> diagnosis::View<'static> {
    diagnosis::View { style, verbosity: Verbosity::Evidence, ..diagnosis::View::PLAIN }
}

#[test]
fn counts_equal_those_printed_by_lcnt() {
    let period = counted();
    let classes = lines(&period, &View::all(By::Class));
    let first = &classes[0];
    assert_eq!(
        (first.class.as_str(), first.locks, first.tries, first.collisions),
        ("db_hash_slot", 64, 13_510_419, 113_487)
    );
    // lcnt prints these percentages for 13510419 tries, 113487 collisions, 4940488 µs, and a duration of 10000123 µs.
    assert_eq!(first.waited_us(), 4_940_488);
    assert_eq!(format!("{:.4}", first.collision_pct()), "0.8400");
    assert_eq!(format!("{:.4}", first.duration_pct(Some(10_000_123_000)).expect("a length")), "49.4043");
    assert_eq!(first.duration_pct(None), None);
    let atoms = classes.iter().find(|line| line.class == "atom_tab").expect("atom_tab");
    assert_eq!((atoms.collision_pct(), atoms.duration_pct(Some(10_000_123_000))), (0.0, Some(0.0)));
}

#[test]
fn page_with_v_has_all_counts_and_what_would_remain() {
    let views = [View::new(By::Class), View::new(By::Lock), View::new(By::Place)];
    let expect = "\
VM without a name · 0 µs

Threads waited for locks 52 % of the duration, summed over all threads (10 s counted).
Somebody else has begun to count anew

Locks were counted for 10.000 s: 588 locks, 4 of them listed individually. Categories: db, scheduler. 12,345,678 reductions in this time. Reading the counts used 70.0 kB of memory on the node.

Locks by class
lock          locks        tries  collisions  collisions %  waited µs  duration %
db_hash_slot     64   13,510,419     113,487        0.8400  4,940,488     49.4043
run_queue        18  126,707,580   1,178,423        0.9300    293,917      2.9391
1 filtered out

Locks by lock
lock          name                   locks   tries  collisions  collisions %  waited µs  duration %  histogram of waits, doubling from 1 ns to 0.5 s
db_hash_slot  carts (carts of shop)     64  15,000       2,700       18.0000  3,500,000     34.9996
run_queue     3                          1  20,000         100        0.5000          9      0.0001
run_queue     4                          1  20,000         100        0.5000          8      0.0001

Locks by place in the source
lock          place                         tries  collisions  collisions %  waited µs  duration %  histogram of waits, doubling from 1 ns to 0.5 s
db_hash_slot  beam/erl_db_hash.c:400   13,000,000     110,000        0.8462  4,900,000     48.9994
run_queue     unknown                 126,707,580   1,178,423        0.9300    293,917      2.9391
db_hash_slot  unknown                     510,419       3,487        0.6832     40,488      0.4049         ▂    █
1 filtered out

Remaining lock waits (lower bound)
  without db_hash_slot of the table carts: 17.3 % of the duration, most of it for other db_hash_slot (14.4 % of the duration)
  and without other db_hash_slot: no other waits

Nothing found.
";
    let page = page(&counted(), &views, None);
    assert_eq!(page, expect, "{page}");
}

#[test]
fn short_waits_are_not_listed() {
    let left = |without: &str, waited| Remains {
        without: without.to_owned(),
        waited,
        next: Some(("x".to_owned(), waited)),
    };
    let remains = [left("a", 20 * MS), left("b", 3 * MS), left("c", 2 * MS)];
    let verdicts = Diagnosis::default();
    let page = Page { look: None, contended: &[], views: &[], remains: &remains, verdicts: &verdicts };
    let text = render(&counted(), &page, &verbose(Style::PLAIN));
    assert!(text.contains("without a: 0.2 % of the duration, most of it for x"), "{text}");
    assert!(text.contains("and without b: almost no wait\n"), "{text}");
    assert!(!text.contains("without c"), "{text}");
}

#[test]
fn order_and_filter_can_be_chosen() {
    let period = counted();
    let names = |view: &View| {
        let name = |line: locks::Line| format!("{} {}", line.class, line.id.unwrap_or_default());
        lines(&period, view).into_iter().map(|line| name(line).trim().to_owned()).collect::<Vec<_>>()
    };
    let by = |sort| View { sort, ..View::all(By::Class) };
    assert_eq!(names(&by(Sort::Waited)), ["db_hash_slot", "run_queue", "atom_tab"]);
    assert_eq!(names(&by(Sort::Tries)), ["run_queue", "db_hash_slot", "atom_tab"]);
    assert_eq!(names(&by(Sort::Collisions)), ["run_queue", "db_hash_slot", "atom_tab"]);
    assert_eq!(names(&by(Sort::CollisionShare)), ["run_queue", "db_hash_slot", "atom_tab"]);
    assert_eq!(names(&by(Sort::Name)), ["atom_tab", "db_hash_slot", "run_queue"]);
    assert_eq!(names(&View { most: 2, reverse: true, ..by(Sort::Name) }), ["db_hash_slot", "atom_tab"]);
    let filtered = |filter: Filter| names(&View { filter, ..View::all(By::Lock) });
    assert_eq!(
        filtered(Filter { classes: vec!["run_queue".to_owned()], ..Filter::default() }),
        ["run_queue 3", "run_queue 4"]
    );
    assert_eq!(
        filtered(Filter { name: Some("shop".to_owned()), ..Filter::default() }),
        ["db_hash_slot carts"]
    );
    assert_eq!(
        filtered(Filter { waited_above: Some(8_000), ..Filter::default() }),
        ["db_hash_slot carts", "run_queue 3"]
    );
    assert_eq!(filtered(Filter { collisions_above: Some(100), ..Filter::default() }), ["db_hash_slot carts"]);
    assert_eq!(filtered(Filter { tries_above: Some(20_000), ..Filter::default() }), Vec::<String>::new());
}

#[test]
fn single_locks_of_one_name_stay_separate_without_places() {
    let slots = vec![
        row("db_hash_slot", Some("carts"), 50, 5, MS),
        row("db_hash_slot", Some("carts"), 40, 4, MS / 2),
    ];
    let mut period = Period::default();
    period.locks = slots;
    assert_eq!(lines(&period, &View::all(By::Lock)).len(), 2);
    // Only these locks of the class are known.
    let class = &lines(&period, &View::all(By::Class))[0];
    assert_eq!((class.tries, class.locks, class.is_whole), (90, 2, false));
    let page = page(&period, &[View::new(By::Class)], None);
    assert!(page.contains("≥ 2") && page.contains("only the listed locks"), "{page}");
}

fn look() -> Look {
    Look {
        answer: Answer::Yes,
        length: 5_000 * MS,
        share: Some(WaitShare {
            share: 0.163,
            interval: Some((0.121, 0.204)),
            is_lower_bound: false,
            is_counted: false,
            length: 4_000 * MS,
        }),
        remarks: Vec::new(),
        kinds: vec![
            Blocked {
                kind: "scheduler".to_owned(),
                threads: 4,
                awake_share: Some(0.99),
                blocked_share: Some(0.871),
                sleeps_per_second: Some(18_500.0),
                answer: Answer::Yes,
                why: "87.1 % of the awake time was blocked".to_owned(),
            },
            Blocked {
                kind: "dirty_cpu_scheduler".to_owned(),
                threads: 4,
                awake_share: None,
                blocked_share: None,
                sleeps_per_second: None,
                answer: Answer::NotSure,
                why: "the VM was not asked".to_owned(),
            },
        ],
        means: vec!["Waits that sleep were counted by a probe.".to_owned()],
    }
}

fn seen() -> Period {
    let wait = |stack: &[&str], waited: i64| LockWaitRow {
        length: 5_000 * MS,
        thread: "scheduler".to_owned(),
        how: "sleep".to_owned(),
        stack: stack.iter().map(|function| (*function).to_owned()).collect(),
        samples: 1_200,
        waited,
        ..LockWaitRow::default()
    };
    let waits = vec![wait(&["ets_update_counter_3", "a", "b", "c", "d"], 9_000 * MS), wait(&[], 3 * MS)];
    let mut period = Period::default();
    period.lock_waits = waits;
    period
}

fn contended() -> Vec<Contended> {
    let row = |lock: &str, object: &str, share, operation: &str| Contended {
        lock: lock.to_owned(),
        object: object.to_owned(),
        share,
        operation: operation.to_owned(),
    };
    vec![
        row("db_hash_slot", "table carts", 0.75, "beam/erl_db_hash.c:400"),
        row("run_queue", "run queue of scheduler 2", 0.2449, ""),
        row("", "", 0.0051, "enif_send"),
    ]
}

#[test]
fn brief_page_has_the_answer_the_locks_and_the_remaining_waits() {
    let (look, contended, verdicts) = (look(), contended(), Diagnosis::default());
    let page =
        Page { look: Some(&look), contended: &contended, views: &[], remains: &[], verdicts: &verdicts };
    let style = Style { width: 80, ..Style::PLAIN };
    let text = render(&seen(), &page, &diagnosis::View { style, ..diagnosis::View::PLAIN });
    let expect = "\
VM without a name · 0 µs

Lock contention: yes. Schedulers waited for locks 16 % [12, 20] of their busy
time (4.0 s sampled).

lock          belongs to                share of waits  operation
db_hash_slot  table carts                         75 %  beam/erl_db_hash.c:400
run_queue     run queue of scheduler 2            24 %
Without the first lock: still at least 4.1 % of their busy time, mostly for
run_queue run queue of scheduler 2.
";
    assert_eq!(text, expect, "{text}");
}

#[test]
fn brief_page_without_contention_is_one_sentence() {
    let contended = contended();
    let look = Look {
        answer: Answer::No,
        share: Some(WaitShare {
            share: 0.011,
            interval: Some((0.009, 0.0135)),
            ..look().share.expect("a share")
        }),
        ..look()
    };
    let verdicts = Diagnosis::default();
    let page =
        Page { look: Some(&look), contended: &contended, views: &[], remains: &[], verdicts: &verdicts };
    let text = render(&seen(), &page, &diagnosis::View::PLAIN);
    let (_, answer) = text.split_once("\n\n").expect("a heading");
    let expect = "Lock contention: no. Schedulers waited for locks 1.1 % [0.9, 1.4] of their busy time (4.0 s\nsampled).\n";
    assert_eq!(answer, expect, "{text}");
}

#[test]
fn unknown_answer_has_its_reason_and_the_remarks() {
    let look = Look {
        answer: Answer::NotSure,
        share: None,
        remarks: vec!["cannot sample lock waits: run beamtune as root".to_owned()],
        ..look()
    };
    let verdicts = Diagnosis::default();
    let page = Page { look: Some(&look), contended: &[], views: &[], remains: &[], verdicts: &verdicts };
    let text = render(&Period::default(), &page, &diagnosis::View::PLAIN);
    assert!(
        text.contains("Lock contention: not sure. 4 dirty cpu scheduler threads: the VM was not asked.\n"),
        "{text}"
    );
    assert!(text.contains("\nCannot sample lock waits: run beamtune as root\n"), "{text}");
}

#[test]
fn page_with_v_has_the_times_of_threads_and_their_stacks() {
    let (look, verdicts) = (look(), Diagnosis::default());
    let page = Page {
        look: Some(&look),
        contended: &[],
        views: &[View::new(By::Class)],
        remains: &[],
        verdicts: &verdicts,
    };
    let expect = "\
VM without a name · 0 µs

Lock contention: yes. Schedulers waited for locks 16 % [12, 20] of their busy time (4.0 s sampled).

threads                  awake  blocked  sleeps/s  wait      reason
scheduler            4  99.0 %   87.1 %    18,500  yes       87.1 % of the awake time was blocked
dirty cpu scheduler  4                             not sure  the VM was not asked
Waits that sleep were counted by a probe.

Sampled lock waits
threads    how    samples  waited  % of time  function, callers
scheduler  sleep    1,200   9.0 s      180.0  ets_update_counter_3 ← a ← b ← c
scheduler  sleep    1,200    3 ms        0.1  no stack

Nothing found.
";
    let text = render(&seen(), &page, &verbose(Style { width: 120, ..Style::PLAIN }));
    assert_eq!(text, expect, "{text}");
}

#[test]
fn sampling_without_waits_is_reported_with_its_length() {
    let mut period = Period::default();
    let verdicts = Diagnosis::default();
    let page = Page { look: None, contended: &[], views: &[], remains: &[], verdicts: &verdicts };
    let view = verbose(Style::PLAIN);
    assert!(!render(&period, &page, &view).contains("waits"));
    period.facts.set(beamtune_model::facts::LOCK_SAMPLING_LENGTH, "8000000000");
    let text = render(&period, &page, &view);
    assert!(text.contains("Sampled lock waits: none in 8.0 s\n"), "{text}");
}

#[test]
fn json_fits_its_schema_and_has_the_same_numbers() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema/locks.schema.json");
    let schema = std::fs::read_to_string(path).expect("the schema");
    let schema = jsonschema::validator_for(&serde_json::from_str(&schema).expect("JSON")).expect("a schema");
    let (look, remains, verdicts) = (look(), remains(), Diagnosis::default());
    let full = Page { look: Some(&look), contended: &[], views: &[], remains: &remains, verdicts: &verdicts };
    let empty = Page { look: None, remains: &[], ..full };
    for (period, page) in [(Period::default(), empty), (counted(), full), (seen(), full)] {
        let text = json(&period, &page);
        let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let errors: Vec<_> =
            schema.iter_errors(&value).map(|error| format!("{}: {error}", error.instance_path())).collect();
        assert!(errors.is_empty(), "{errors:#?}\n{text}");
    }
    let value: serde_json::Value = serde_json::from_str(&json(&counted(), &full)).expect("JSON");
    assert_eq!(value["classes"][0]["waited_us"], 4_940_488);
    assert_eq!(value["classes"][0]["histogram"][12], 500);
    assert_eq!(value["locks"][0]["entity"], "carts of shop");
    assert_eq!(value["places"][0]["line"], 400);
    assert_eq!(value["remains"][1]["next"], serde_json::Value::Null);
    assert_eq!(value["look"]["threads_wait"], "yes");
    assert_eq!(value["watched_seconds"], serde_json::Value::Null);
    let value: serde_json::Value = serde_json::from_str(&json(&seen(), &full)).expect("JSON");
    assert_eq!(value["watched_seconds"], 5.0);
}
