//! Generated output in the format of lcnt, without a VM: tables by class, by lock and by location, also after copying.
#![allow(clippy::expect_used, clippy::panic, reason = "these are tests")]

mod printed;

use beamtune_import::{ImportError, MAX_BYTES};
use printed::{
    CONFLICTS, Counted, INSPECT, Imported, LOCATIONS, PLACES, counted, full_histogram, information, numbers,
    read, read_all, reasons, sum, table,
};
use proptest::prelude::*;

const LENGTH_US: i64 = 10_000_123;

fn classes() -> Vec<Counted> {
    vec![
        counted("db_hash_slot", "5696", 13_510_419, 113_487, 4_940_488),
        counted("alcu_allocator", "10", 3_330_003, 35_775, 2_342_396),
        counted("run_queue", "18", 126_707_580, 1_178_423, 293_917),
        counted("'esock.r[17]'", "1", 31_091, 13, 29),
        counted("process_table", "1", 0, 0, 0),
    ]
}

fn single_locks() -> Vec<Counted> {
    vec![
        counted("alcu_allocator", "eheap_alloc", 366_897, 32_614, 2_332_258),
        counted("db_hash_slot", "metrics", 1_897_002, 70_809, 1_745_175),
        counted("db_hash_slot", "metrics", 898_806, 12_730, 697_678),
        counted("db_tab", "'my table'", 40_471, 307, 90_890),
        counted("proc_main", "<nonode@nohost.4901.0>", 2_832_033, 67_558, 122_949),
        counted("process_table", "[]", 12, 1, 3),
        counted("run_queue", "8", 8_737_378, 83_259, 21_185),
    ]
}

fn session() -> String {
    format!(
        "Erlang/OTP 25 [erts-13.1.5] [64-bit] [smp:16:16] [jit] [lock-counting]\n\nEshell V13.1.5  (abort with ^G)\n\
         1> lcnt:clear(), timer:sleep(10000), lcnt:collect().\nok\n2> lcnt:conflicts().\n{}ok\n\
         3> lcnt:conflicts([{{combine, false}}]).\n{}ok\n4> lcnt:information().\n{}ok\n",
        table(CONFLICTS, &classes(), LENGTH_US),
        table(CONFLICTS, &single_locks(), LENGTH_US),
        information(20_959, LENGTH_US, &classes()),
    )
}

#[test]
fn a_session_is_read_as_it_was_printed() {
    let imported = read_all(&session());
    let rows: Vec<_> = imported.rows.iter().map(numbers).collect();
    assert!(rows.contains(&("db_hash_slot", None, 5_696, 13_510_419, 113_487, 4_940_488)), "{rows:#?}");
    assert!(rows.contains(&("esock.r[17]", None, 1, 31_091, 13, 29)));
    assert!(rows.contains(&("process_table", None, 1, 0, 0, 0)));
    assert!(rows.contains(&("db_tab", Some("my table"), 1, 40_471, 307, 90_890)));
    assert!(rows.contains(&("proc_main", Some("<nonode@nohost.4901.0>"), 1, 2_832_033, 67_558, 122_949)));
    assert_eq!(rows.len(), 12);
    let session = &imported.session;
    assert_eq!((session.length, session.locks, session.single_locks), (LENGTH_US * 1_000, 20_959, 7));
    assert_eq!((session.reductions, session.t), (None, 0));
    let banner = &imported.banner;
    assert_eq!((banner.release.as_deref(), banner.erts.as_deref()), (Some("25"), Some("13.1.5")));
    assert_eq!(banner.schedulers, Some((16, 16)));
}

#[test]
fn elixir_sessions_and_bare_tables_are_read() {
    let rows = |text: &str| read_all(text).rows;
    let table_of_locks = table(CONFLICTS, &single_locks(), LENGTH_US);
    let bare = rows(&table_of_locks);
    assert_eq!(rows(&format!("iex(2)> :lcnt.conflicts(combine: false)\n{table_of_locks}:ok\n")), bare);
    assert_eq!(
        rows(&format!(
            "(a@b)2> lcnt:conflicts([{{combine,false}}]).\r\n{}ok",
            table_of_locks.replace('\n', "\r\n")
        )),
        bare
    );
    assert_eq!(
        rows(&format!("iex(a@b)1> {{:ok, _}} = :lcnt.start()\n{{:ok, #PID<0.1.0>}}\n{table_of_locks}")),
        bare
    );
    assert!(bare.iter().all(|row| row.id.is_some()));
    assert!(rows(&table(CONFLICTS, &classes(), LENGTH_US)).iter().all(|row| row.id.is_none()));
}

#[test]
fn the_duration_is_derived_from_percentages() {
    let check = |rows: &[Counted], expect: Option<i64>| {
        let imported = read_all(&table(CONFLICTS, rows, LENGTH_US));
        let length = imported.session.length / 1_000;
        match expect {
            Some(us) => assert!((length - us).abs() < 100, "{length}"),
            None => assert_eq!(length, 0),
        }
        let says_unknown = imported.session.remark.contains("duration is unknown");
        assert_eq!(says_unknown, expect.is_none(), "{}", imported.session.remark);
    };
    check(&classes(), Some(LENGTH_US));
    // A percentage of 0.0003 leaves an uncertainty of one sixth, and zero contains no information.
    check(&classes()[3..], None);
    check(&classes()[4..], None);
    let many = table("name,id,tries,colls,ratio,duration", &classes(), LENGTH_US);
    let unknown = read(&many);
    assert!(unknown.rows.is_empty());
    assert!(
        unknown.unread.iter().all(|unread| unread.reason.contains("lcnt:information()")),
        "{:#?}",
        unknown.unread
    );
    let known = read_all(&format!("{many}{}", information(5_726, LENGTH_US, &classes())));
    let row = known.rows.iter().find(|row| row.class == "db_hash_slot").expect("a row");
    assert!((row.wait_time / 1_000 - 4_940_488).abs() <= 5, "{row:?}");
}

#[test]
fn collisions_are_derived_from_their_percentage() {
    let imported =
        read_all(&format!("lcnt:conflicts().\n{}", table("name,id,tries,ratio,time", &classes(), LENGTH_US)));
    let row = imported.rows.iter().find(|row| row.class == "alcu_allocator").expect("a row");
    assert!((row.collisions - 35_775).abs() <= 2, "{row:?}");
    assert!(imported.session.remark.contains("rounded"), "{}", imported.session.remark);
    let exact = read_all(&format!(
        "lcnt:conflicts().\n{}",
        table("name,id,tries,ratio,time", &classes()[3..4], LENGTH_US)
    ));
    assert_eq!(exact.rows[0].collisions, 13);
    assert!(!exact.session.remark.contains("rounded"));
}

fn of_eheap() -> Vec<Counted> {
    vec![
        counted("", "", 160_013, 11_600, 1_046_038).at("'beam/erl_alloc_util.c':1809"),
        counted("", "", 28_164, 1_142, 868_892).at("'beam/erl_alloc_util.c':2081"),
        counted("", "", 154, 6, 3_945).at("undefined:0"),
    ]
}

#[test]
fn a_lock_with_its_locations_is_not_counted_twice() {
    let lines = "lock: alcu_allocator\nid:   eheap_alloc\ntype: mutex\n";
    let places = table(PLACES, &of_eheap(), LENGTH_US);
    let text = format!(
        "{}\n5> lcnt:inspect({{alcu_allocator,eheap_alloc}}, [{{locations,true}}]).\n{lines}{places}ok\n",
        table(CONFLICTS, &single_locks(), LENGTH_US)
    );
    let imported = read_all(&text);
    let eheap: Vec<_> = imported.rows.iter().filter(|row| row.id.as_deref() == Some("eheap_alloc")).collect();
    let at: Vec<_> = eheap.iter().map(|row| (row.file.as_deref(), row.line, row.tries)).collect();
    let file = Some("beam/erl_alloc_util.c");
    assert_eq!(
        at,
        [(None, None, 178_566), (file, Some(1809), 160_013), (file, Some(2081), 28_164), (None, None, 154)]
    );
    assert_eq!(eheap.iter().map(|row| row.tries).sum::<i64>(), 366_897);
    assert_eq!(eheap.iter().map(|row| row.wait_time).sum::<i64>(), 2_332_258_000);
    assert_eq!(imported.session.single_locks, 7);
    assert!(eheap[1].kind == "mutex");

    // Counts that exceed those of the lock belong to another collection.
    let more = format!(
        "{}{lines}{}",
        table(CONFLICTS, &single_locks()[..1], LENGTH_US),
        table(PLACES, &[counted("", "", 400_000, 1, 1)], LENGTH_US)
    );
    assert!(reasons(&read(&more))[0].2.contains("exceed those of the lock"));
}

#[test]
fn the_rest_of_a_class_besides_its_locations_is_another_row() {
    let text = format!(
        "{}\n{}{}",
        table(CONFLICTS, &classes(), LENGTH_US),
        "iex(7)> :lcnt.inspect(:alcu_allocator, locations: true, combine: true)\nlock: alcu_allocator\nid:   10\ntype: mutex\n",
        table(PLACES, &of_eheap(), LENGTH_US)
    );
    let imported = read_all(&text);
    let rows: Vec<_> = imported.rows.iter().filter(|row| row.class == "alcu_allocator").collect();
    assert_eq!(rows.len(), 4);
    assert!(rows.iter().all(|row| row.id.is_none() && row.locks == 10));
    assert_eq!(rows.iter().map(|row| row.tries).sum::<i64>(), 3_330_003);
    // Without the call, the number after "id" may be a lock.
    let cut = format!("lock: run_queue\nid:   10\ntype: mutex\n{}", table(PLACES, &of_eheap(), LENGTH_US));
    assert!(
        read(&cut).unread.iter().all(|unread| unread.reason.contains("copy the call")),
        "{:#?}",
        read(&cut).unread
    );
    let bare = table(PLACES, &of_eheap(), LENGTH_US);
    assert!(reasons(&read(&bare))[0].2.contains("which lock these locations belong to"));
    let called = format!(
        "> lcnt:inspect(x)\n:lcnt.inspect({{:alcu_allocator, :eheap_alloc}}, locations: true, combine: true)\n{bare}"
    );
    assert!(
        read(&called)
            .rows
            .iter()
            .all(|row| row.class == "alcu_allocator" && row.id.as_deref() == Some("eheap_alloc"))
    );
}

#[test]
fn locks_with_the_same_name_are_not_a_class() {
    let slots =
        [counted("db_hash_slot", "carts", 900, 9, 5_000), counted("db_hash_slot", "carts", 800, 8, 4_000)];
    let together = [counted("db_hash_slot", "64", 2_500, 25, 10_000)];
    let one_by_one =
        format!("lcnt:conflicts([{{combine,false}}]).\n{}ok\n", table(CONFLICTS, &slots, LENGTH_US));
    let call = ":lcnt.inspect({:db_hash_slot, :carts}, combine: true)\n";
    let text = format!("{call}{}:ok\n", table(INSPECT, &together, LENGTH_US));
    let rows = |text: &str| read_all(text).rows;
    assert_eq!(
        rows(&text).iter().map(numbers).collect::<Vec<_>>(),
        [("db_hash_slot", Some("carts"), 64, 2_500, 25, 10_000)]
    );
    let both = read_all(&format!("{one_by_one}{text}"));
    assert_eq!(both.session.single_locks, 64);
    assert_eq!(sum(both.rows.iter()), [2_500, 25, 10_000]);
    assert_eq!(both.rows.iter().map(|row| row.locks).sum::<i64>(), 64);
    // The table does not contain the names of the locks in a list.
    let some = text.replace(":carts", "[:carts, :users]");
    assert!(read(&some).unread.iter().all(|unread| unread.reason.contains("which ones")), "{some}");
    assert!(read(&some).rows.is_empty());
}

#[test]
fn locations_of_several_classes_are_refused() {
    let rows = [
        counted("db_tab", "", 5_000, 50, 4_000).at("'beam/erl_db.c':400"),
        counted("proc_msgq,proc_main", "", 900, 9, 3_000).at("'beam/erl_process_lock.h':500"),
    ];
    let imported = read(&format!("lcnt:locations().\n{}ok", table(LOCATIONS, &rows, LENGTH_US)));
    assert_eq!(imported.rows.len(), 1);
    assert_eq!(
        (imported.rows[0].class.as_str(), imported.rows[0].line, imported.rows[0].locks),
        ("db_tab", Some(400), 0)
    );
    let [(line, text, why)] = reasons(&imported)[..] else { panic!("{:#?}", imported.unread) };
    assert_eq!(
        (line, text),
        (5, "proc_msgq,proc_main 'beam/erl_process_lock.h':500 900".replace('\'', "").as_str())
    );
    assert!(why.contains("several classes"), "{why}");
}

#[test]
fn histograms_with_counts_are_read_but_not_those_with_marks() {
    let mut row = counted("db_tab", "3", 5_000, 600, 40_000);
    row.bins[7] = 100;
    row.bins[12] = 500;
    let marks = read_all(&format!(
        "lcnt:inspect(db_tab).\n{}",
        table(INSPECT, &[Counted { id: "t".to_owned(), ..row.clone() }], LENGTH_US)
    ));
    assert_eq!((marks.rows[0].histogram.len(), marks.rows[0].waits), (0, 0));
    let text = format!(
        "lcnt:histogram(db_tab).\n{}{}",
        table(CONFLICTS, std::slice::from_ref(&row), LENGTH_US),
        full_histogram(&row.bins)
    );
    let counts = read_all(&text);
    assert_eq!((counts.rows[0].histogram.len(), counts.rows[0].waits), (13, 600));
    assert_eq!(counts.rows[0].histogram[12], 500);
    let cut: String = text.lines().take(20).map(|line| format!("{line}\n")).collect();
    let cut = read(&cut);
    assert_eq!((cut.rows.len(), cut.rows[0].histogram.len(), cut.unread.len()), (1, 0, 1));
    row.bins[12] = 500_000_000;
    let long = read(&format!(
        "lcnt:histogram(db_tab).\n{}{}",
        table(CONFLICTS, std::slice::from_ref(&row), LENGTH_US),
        full_histogram(&row.bins)
    ));
    assert!(long.rows[0].histogram.is_empty());
    assert!(long.unread.iter().any(|unread| unread.reason.contains("more digits")), "{:#?}", long.unread);
}

#[test]
fn swapped_keys_are_swapped_back_if_possible() {
    let rows = [
        counted("mnesia_locker", "proc_main", 1_985_337, 759_124, 80_550),
        counted("<nonode@nohost.85.0>", "proc_msgq", 309_172, 6_396, 17_126),
        counted("db_tab", "account", 604_456, 2_175, 7_909),
    ];
    let imported = read_all(&table(CONFLICTS, &rows, LENGTH_US));
    let names: Vec<_> =
        imported.rows.iter().map(|row| (row.class.as_str(), row.id.as_deref().unwrap_or_default())).collect();
    assert!(
        names.contains(&("proc_main", "mnesia_locker"))
            && names.contains(&("proc_msgq", "<nonode@nohost.85.0>")),
        "{names:?}"
    );
    let combined = [
        counted("run_queue", "10", 590_799, 8_875, 37_906),
        counted("mnesia_locker", "5", 6_479_323, 823_122, 9_865),
        counted("<nonode@nohost.85.0>", "5", 17, 2, 87),
    ];
    let imported = read(&format!("lcnt:conflicts().\n{}", table(CONFLICTS, &combined, LENGTH_US)));
    assert_eq!(imported.rows.iter().map(|row| row.class.as_str()).collect::<Vec<_>>(), ["run_queue"]);
    assert!(imported.unread.iter().all(|unread| unread.reason.contains("swap")), "{:#?}", imported.unread);
}

#[test]
fn locks_printed_by_two_calls_are_counted_once() {
    let slots = |range: std::ops::Range<usize>| {
        let slot = |n: usize| counted("db_hash_slot", "metrics", 1_000 + (n as i64 / 2), 10, 2_000);
        range.map(slot).collect::<Vec<_>>()
    };
    let text = format!(
        "lcnt:conflicts([{{combine,false}}]).\n{}ok\nlcnt:inspect(db_hash_slot).\n{}ok\n",
        table(CONFLICTS, &slots(0..6), LENGTH_US),
        table(INSPECT, &slots(2..10), LENGTH_US)
    );
    let imported = read_all(&text);
    assert_eq!(imported.rows.len(), 10, "two slots may have the same numbers");
    assert_eq!(imported.session.single_locks, 10);
}

#[test]
fn counts_of_another_collection_are_refused() {
    let other: Vec<_> = classes().into_iter().map(|row| Counted { tries: row.tries + 7, ..row }).collect();
    let text =
        format!("{}ok\n{}ok\n", table(CONFLICTS, &classes(), LENGTH_US), table(CONFLICTS, &other, LENGTH_US));
    let imported = read(&text);
    assert_eq!(imported.rows.len(), 5);
    assert_eq!(
        imported.rows.iter().map(|row| row.tries).sum::<i64>(),
        classes().iter().map(|row| row.tries).sum::<i64>()
    );
    assert_eq!(reasons(&imported).len(), 5);
    assert!(
        reasons(&imported).iter().all(|(line, _, why)| *line > 10 && why.contains("another collection")),
        "{:#?}",
        imported.unread
    );
    // Equal tables contain no new information.
    let twice = format!("{0}ok\n{0}ok\n", table(CONFLICTS, &classes(), LENGTH_US));
    assert_eq!(read_all(&twice).rows.len(), 5);
    let longer = format!(
        "{}ok\n{}ok\n",
        table(CONFLICTS, &classes()[..2], LENGTH_US),
        table(CONFLICTS, &classes()[2..3], 3 * LENGTH_US)
    );
    let imported = read(&longer);
    assert_eq!(imported.rows.len(), 2);
    assert!(reasons(&imported)[0].2.contains("another duration"));
}

#[test]
fn unread_text_is_reported_with_its_position() {
    let table = table(CONFLICTS, &classes(), LENGTH_US);
    let broken = table.replace("alcu_allocator", "alcu allocator");
    let text = format!("We saw this:\nand more of it\n{broken}\n  The first one is bad.\n");
    let imported = read(&text);
    assert_eq!(imported.rows.len(), 4);
    let unread: Vec<_> =
        imported.unread.iter().map(|unread| (unread.line, unread.column, unread.reason.as_str())).collect();
    assert_eq!(
        unread,
        [
            (1, 1, "no known tool prints this (2 lines)"),
            (6, 2, "it does not fit the columns above it"),
            (11, 3, "no known tool prints this"),
        ]
    );
    assert!(imported.unread[1].text.starts_with("alcu allocator 10 3330003"), "{:?}", imported.unread[1]);
    let without = read(&printed::table("name,tries,colls,time", &classes(), LENGTH_US));
    assert!(reasons(&without)[0].2.contains("the column id is missing"));
}

#[test]
fn a_long_name_may_touch_the_cell_before_it() {
    let long = "t".repeat(85);
    let imported = read_all(&table(CONFLICTS, &[counted("db_tab", &long, 40_471, 307, 90_890)], LENGTH_US));
    assert_eq!(numbers(&imported.rows[0]), ("db_tab", Some(&long[..80]), 1, 40_471, 307, 90_890));
}

#[test]
fn other_or_too_large_text_is_refused() {
    assert_eq!(beamtune_import::read(b"hello\nlock id"), Err(ImportError::NothingFound));
    assert_eq!(beamtune_import::read(b""), Err(ImportError::NothingFound));
    let bytes = MAX_BYTES + 1;
    assert_eq!(beamtune_import::read(&vec![b' '; bytes]), Err(ImportError::TooLarge { bytes }));
}

#[test]
fn output_without_rows_is_reported() {
    let memory = "1> erlang:memory().\n[{total,3},{processes,1},{system,2}]\n";
    let unread = |text: &str| {
        let reading = beamtune_import::read(text.as_bytes()).expect("a reading");
        assert_eq!((reading.locks, reading.tools), (None, vec!["erlang:memory"]), "{text}");
        let places = reading.unread.into_iter().map(|unread| (unread.line, unread.column, unread.reason));
        places.collect::<Vec<_>>()
    };
    let check = |text: &str, line: usize, why: &str| {
        for text in [format!("{memory}{text}"), format!("{memory}{text}ok\n3> halt().\n")] {
            let unread = unread(&text);
            assert!(
                unread.len() == 1 && unread[0].0 == line && unread[0].2.contains(why),
                "{text}: {unread:#?}"
            );
        }
    };
    let printed_information =
        format!("2> lcnt:information().\n{}", information(20_959, LENGTH_US, &classes()));
    check(&printed_information, 4, "no row of this collection was read");
    check(&format!("2> lcnt:conflicts().\n{}", table(CONFLICTS, &[], LENGTH_US)), 4, "headings but no row");
    let places = "2> lcnt:inspect({alcu_allocator,eheap_alloc}, [{locations,true}]).\n\
                  lock: alcu_allocator\nid:   eheap_alloc\ntype: mutex\n";
    check(places, 4, "the table of locations");
    // If there are rows, the information belongs to them, and a table without rows does not contradict them.
    let both = format!("{printed_information}{}", table(CONFLICTS, &classes(), LENGTH_US));
    let imported = read_all(&format!("{}{both}", table(CONFLICTS, &[], LENGTH_US)));
    assert_eq!((imported.rows.len(), imported.session.locks), (5, 20_959));
    // The information of another collection is refused, with or without rows.
    let other = format!("{printed_information}{}", information(7, LENGTH_US, &classes()));
    let lines: Vec<_> = unread(&format!("{memory}{other}")).into_iter().map(|(line, ..)| line).collect();
    assert_eq!(lines, [4, 13]);
}

#[test]
fn many_unreadable_words_are_read_quickly() {
    let head = table(CONFLICTS, &[], LENGTH_US);
    for filler in [
        "aaaaaaaa1111111111111111 2222222222222222.3333\n",
        "a 1 2 ",
        "'",
        "1>",
        "lcnt:conflicts([",
        "| x ",
        "lock ",
        "<",
    ] {
        let imported = read(&format!("{head}{}", filler.repeat(40_000)));
        assert!(imported.unread.len() <= 1_001);
    }
}

/// Generates rows with any numbers.
fn any_rows() -> impl Strategy<Value = Vec<Counted>> {
    let name =
        prop::sample::select(vec!["db_tab", "run_queue", "proc_main", "alcu_allocator", "'esock.r[3]'"]);
    let id = prop_oneof![
        (0..2_000_i64).prop_map(|n| n.to_string()),
        "[a-z][a-z_0-9]{0,12}",
        Just("'a b'".to_owned()),
        (1..9_000).prop_map(|n| format!("<nonode@nohost.{n}.0>")),
        Just("[]".to_owned()),
    ];
    let row = (name, id, 0..20_000_000_i64, 0..1_000_i64, 0..40_000_000_i64).prop_map(
        |(name, id, tries, permille, time)| counted(name, &id, tries, tries * permille / 1_000, time),
    );
    prop::collection::vec(row, 1..12)
}

/// Returns the imported rows in a fixed order.
fn sorted(imported: &Imported) -> Vec<(String, String, i64, i64, i64)> {
    let mut rows: Vec<_> = imported
        .rows
        .iter()
        .map(|row| {
            (
                row.class.clone(),
                row.id.clone().unwrap_or_default(),
                row.tries,
                row.collisions,
                row.wait_time / 1_000,
            )
        })
        .collect();
    rows.sort();
    rows
}

fn expected(rows: &[Counted]) -> Vec<(String, String, i64, i64, i64)> {
    let plain = |text: &str| text.trim_matches('\'').to_owned();
    let mut rows: Vec<_> = rows
        .iter()
        .map(|row| (plain(&row.name), plain(&row.id), row.tries, row.collisions, row.time_us))
        .collect();
    rows.sort();
    rows
}

const CALL: &str = "3> lcnt:conflicts([{combine,false}]).\n";

proptest! {
    #[test]
    fn lost_line_breaks_and_other_spaces_change_nothing(rows in any_rows(), spaces in prop::sample::select(vec![" ", "\t", "\u{a0}", " \u{200b}", "\n  "])) {
        let text = format!("{CALL}{}ok\n", table(CONFLICTS, &rows, LENGTH_US));
        prop_assert_eq!(sorted(&read_all(&text)), expected(&rows));
        let in_a_line = text.replace('\n', " ");
        prop_assert_eq!(sorted(&read_all(&in_a_line)), expected(&rows));
        // The call and quoted names may contain spaces; other cells do not.
        let (call, table) = text.split_at(CALL.len());
        let squeezed: Vec<_> = table.replace("'a b'", "'a\u{1}b'").split_whitespace().map(str::to_owned).collect();
        let respaced = format!("{call}{}", squeezed.join(spaces).replace('\u{1}', " "));
        prop_assert_eq!(sorted(&read_all(&respaced)), expected(&rows));
    }

    #[test]
    fn coloured_and_quoted_text_is_read_too(rows in any_rows()) {
        let table = table(CONFLICTS, &rows, LENGTH_US);
        let coloured: String = table.lines().map(|line| format!("\x1b[1m{line}\x1b[0m\n")).collect();
        prop_assert_eq!(sorted(&read_all(&format!("{CALL}{coloured}"))), expected(&rows));
    }

    #[test]
    fn touching_columns_are_read_correctly_or_not_at_all(rows in any_rows(), gone in prop::collection::vec(prop::bool::weighted(0.2), 120)) {
        let text = table(CONFLICTS, &rows, LENGTH_US);
        let mut gone = gone.into_iter().cycle();
        let mut touching = CALL.to_owned();
        // Rows that begin a line and have one word per column must be read, up to a line without numbers, which is treated as prose.
        let (mut min_rows, mut is_first, mut has_ended) = (0, true, false);
        for (number, line) in text.lines().enumerate() {
            let words: Vec<_> = line.replace("'a b'", "'a\u{1}b'").split_whitespace().map(str::to_owned).collect();
            let mut printed = String::new();
            let mut is_clean = true;
            for (at, word) in words.iter().enumerate() {
                let touches = at > 0 && gone.next().unwrap_or(false);
                is_clean &= !touches;
                printed.push_str(if touches { "" } else { " " });
                printed.push_str(word);
            }
            if number > 1 {
                has_ended |= !printed.split_whitespace().any(|word| word.parse::<f64>().is_ok());
                min_rows += usize::from(is_clean && is_first && !has_ended);
            }
            is_first = number == 1 || !gone.next().unwrap_or(false);
            touching.push_str(&printed.replace('\u{1}', " "));
            touching.push_str(if is_first { "\n" } else { " " });
        }
        let expected = expected(&rows);
        let rows_read = sorted(&read(&touching));
        for row in &rows_read {
            prop_assert!(expected.contains(row), "{row:?}\n{touching}");
        }
        prop_assert!(rows_read.len() >= min_rows, "{} of {min_rows}\n{touching}", rows_read.len());
    }

    #[test]
    fn lost_spaces_never_make_another_row(rows in any_rows(), gone in prop::collection::vec(0.0..1.0_f64, 1..6)) {
        let whole: Vec<char> = format!("{CALL}{}ok\n", table(CONFLICTS, &rows, LENGTH_US)).chars().collect();
        let begin = CALL.len() + 200;
        let is_lost = |share: f64| {
            let at = begin + (share * whole.len().saturating_sub(begin) as f64) as usize;
            // The loss of a space within a name is not always detectable.
            let is_within_name = whole.get(at - 1) == Some(&'a') && whole.get(at + 1) == Some(&'b');
            (whole.get(at).is_some_and(|c| c.is_whitespace()) && !is_within_name).then_some(at)
        };
        let lost: Vec<usize> = gone.into_iter().filter_map(is_lost).collect();
        // A row must be read if no space was lost in it, and neither of its line breaks.
        let breaks: Vec<usize> = (0..whole.len()).filter(|at| whole[*at] == '\n').collect();
        let of_rows = breaks.windows(2).skip(2).take(rows.len());
        let min_rows = of_rows.filter(|line| !lost.iter().any(|at| (line[0]..=line[1]).contains(at))).count();
        let kept = whole.iter().enumerate().filter(|(at, _)| !lost.contains(at));
        let text: String = kept.map(|(_, c)| *c).collect();
        let expected = expected(&rows);
        let rows_read = sorted(&read(&text));
        for row in &rows_read {
            prop_assert!(expected.contains(row), "{row:?}\n{text}");
        }
        prop_assert!(rows_read.len() >= min_rows, "{} of {min_rows}\n{text}", rows_read.len());
    }

    #[test]
    fn any_text_is_accepted(parts in prop::collection::vec(prop::sample::select(vec![
        "lock id #tries #collisions collisions [%] time [us] duration [%]", "----- ---", "\n", " ", "db_tab 3 10 1 10.0000 5 0.1000",
        "'", "|", "|  x.X|", "lock: a\nid: 3\ntype: mutex\n", "0 = log2 : 3 |", "information:", "#locks : 3", "duration : 5 us", "3>",
        "lcnt:conflicts([{combine,false}])", "lcnt:inspect({a,b}, [", "\u{1b}[1m", "é", "9223372036854775807", "0.0000", "ok", "location #tries",
    ]), 0..40)) {
        let _ = beamtune_import::read(parts.concat().as_bytes());
    }

    #[test]
    fn any_bytes_are_accepted(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = beamtune_import::read(&bytes);
    }
}
