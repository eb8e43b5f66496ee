//! Output of lcnt itself, for real and invented counts: the counts that are read equal those that lcnt printed.
#![allow(clippy::expect_used, clippy::panic, reason = "these are tests")]

#[allow(dead_code, reason = "functions that generate tables are used by other tests")]
mod printed;

use beamtune_model::LockRow;
use printed::{Imported, numbers, read, read_all, reasons, sum};

/// Printed by lcnt of OTP 25.2, from invented counts (made_counts.erl).
const INVENTED: &str = include_str!("fixtures/made-counts-otp25.txt");

#[test]
fn output_of_lcnt_is_read() {
    let imported = read(INVENTED);
    let whole = |class: &str| {
        let rows = imported.rows.iter().filter(|row| row.class == class && row.id.is_none());
        rows.fold((0, 0, 0, 0), |sum, row| {
            (row.locks, sum.1 + row.tries, sum.2 + row.collisions, sum.3 + row.wait_time / 1_000)
        })
    };
    assert_eq!(whole("run_queue"), (2, 1_000_008_887, 123_456_801, 645_679_000));
    assert_eq!(whole("db_hash_slot"), (24, 129_900, 18_000, 2_700_000));
    assert_eq!(whole("alcu_allocator"), (1, 16_013, 1_160, 1_046_038));
    assert_eq!(whole("db_tab"), (2, 160_012, 1_001, 100_005));
    assert_eq!(whole("esock.r[17]"), (1, 100, 3, 17));
    let lock = |id: &str| {
        imported.rows.iter().filter(|row| row.id.as_deref() == Some(id)).map(numbers).collect::<Vec<_>>()
    };
    assert_eq!(
        lock("my table"),
        [("db_tab", Some("my table"), 1, 90_000, 700, 80_000), ("db_tab", Some("my table"), 1, 12, 1, 5)]
    );
    // The name has 85 characters. lcnt prints 80 of them, which touch the class.
    assert_eq!(lock(&"t".repeat(80)), [("db_tab", Some("t".repeat(80).as_str()), 1, 70_000, 300, 20_000)]);
    assert_eq!(lock("sessions").len(), 17, "lcnt prints 20 rows");
    let session = &imported.session;
    assert_eq!((session.length, session.locks, session.single_locks), (5_123_456_000, 34, 21));
    assert!(!session.remark.contains("rounded"), "{}", session.remark);
    let kinds: Vec<_> =
        imported.rows.iter().filter(|row| row.class == "proc_main").map(|row| row.kind.as_str()).collect();
    assert_eq!(kinds, ["proclock"]);
    let waits: i64 =
        imported.rows.iter().filter(|row| row.class == "alcu_allocator").map(|row| row.waits).sum();
    assert_eq!(waits, 1_100);
    let unread = reasons(&imported);
    assert_eq!(unread.len(), 2, "{unread:#?}");
    assert!(
        unread.iter().all(|(line, _, why)| (67..69).contains(line) && why.contains("several classes")),
        "{unread:#?}"
    );
}

/// Terminal output of lcnt on lock-counting emulators, and the counts that lcnt saved (kept_counts.erl). The node had a table with many
/// writers, with one lock and with many locks.
const PRINTED: [(&str, &str); 3] = [
    (include_str!("fixtures/shell-otp25.txt"), include_str!("fixtures/shell-otp25.tsv")),
    (include_str!("fixtures/shell-otp27.txt"), include_str!("fixtures/shell-otp27.tsv")),
    (include_str!("fixtures/elixir-otp25.txt"), include_str!("fixtures/elixir-otp25.tsv")),
];

/// Compares imported counts with the saved ones.
fn assert_saved(imported: &Imported, saved: &str) {
    let number = |text: &str| text.parse::<i64>().expect("a number");
    for line in saved.lines() {
        let cells: Vec<&str> = line.split('\t').collect();
        if let ["all", duration_us, locks] = cells[..] {
            let session = &imported.session;
            assert_eq!((session.length / 1_000, session.locks), (number(duration_us), number(locks)));
            continue;
        }
        let [what, class, id, tries, collisions, us] = cells[..] else { panic!("{line}") };
        let counts = [number(tries), number(collisions), number(us)];
        let of_class = || imported.rows.iter().filter(|row| row.class == class);
        match what {
            "class" => {
                assert_eq!(sum(of_class().filter(|row| row.id.is_none())), counts, "{line}");
                assert!(
                    of_class().filter(|row| row.id.is_none()).all(|row| row.locks == number(id)),
                    "{line}"
                );
            }
            "place" => {
                let at = |row: &&LockRow| {
                    let place = row.file.as_deref().zip(row.line);
                    place.is_some_and(|(file, at)| format!("'{file}:{at}'") == id)
                };
                assert_eq!(sum(of_class().filter(|row| row.id.is_none()).filter(at)), counts, "{line}");
            }
            _ => {
                let id = id.trim_matches('\'');
                let mut single: Vec<_> = of_class().filter(|row| row.id.as_deref() == Some(id)).collect();
                let whole = sum(single.iter().copied().filter(|_| class == "db_tab"));
                single.retain(|row| [row.tries, row.collisions, row.wait_time / 1_000] == counts);
                assert!(single.len() == 1 || whole == counts, "{line}");
            }
        }
    }
}

#[test]
fn counts_in_terminal_output_equal_the_saved_ones() {
    for (printed, saved) in PRINTED {
        let imported = read_all(printed);
        assert_saved(&imported, saved);
        assert!(!imported.session.remark.contains("rounded"), "{}", imported.session.remark);
        assert!(imported.banner.release.is_some() && imported.banner.schedulers.is_some());
        // A web page may drop line breaks, and also indentation.
        for space in [" ", "\u{a0}"] {
            let in_a_line = printed.replace('\n', space);
            let again = read_all(&in_a_line);
            assert_saved(&again, saved);
            assert_eq!(again.rows, imported.rows);
        }
    }
}
