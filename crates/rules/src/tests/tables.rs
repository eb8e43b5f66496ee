//! Tests of rules on the cost of tables: searches of whole tables, large objects, bags.

use beamtune_model::{
    Confidence, Cost, Finding, Level, Metric, Outcome, Period, SpawnRow, TableRow, WorkSample, facts, metrics,
};

use super::node::{SyntheticNode, SyntheticProcess, node};
use super::{Read, assert_healthy, diagnose, entries, finding, outcome, row, value};

/// A process with this stack in each sample, and this many of the million reductions per second of the node.
fn seen_at(pid: &'static str, reductions: i64, stack: &[&str]) -> SyntheticProcess {
    let row = row(|row| {
        row.name = Some("sessions".to_owned());
        row.stack = stack.iter().map(|&function| function.to_owned()).collect();
    });
    SyntheticProcess { pid, reductions, row, ..SyntheticProcess::default() }
}

const SEARCH: &[&str] = &["ets:select_trap/1", "shop:of_user/1", "shop:loop/1"];

fn searching(reductions: i64) -> SyntheticNode {
    node().with(|n| {
        n.busiest = vec![seen_at("<0.77.0>", reductions, SEARCH)];
        n.total_reductions = 1_000_000;
        n.utilization = 0.5;
    })
}

/// A node with a table of this many objects of this size, and with a worker that has a heap of this size and makes garbage.
fn copying(each: i64, objects: i64, heap_bytes: i64) -> SyntheticNode {
    node().with(|n| {
        n.ets = vec![TableRow {
            id: "ring".to_owned(),
            name: "ring".to_owned(),
            owner: "<0.55.0>".to_owned(),
            objects,
            memory_bytes: each * objects,
            kind: "set".to_owned(),
            protection: "protected".to_owned(),
            ..TableRow::default()
        }];
        n.gc = 0.1;
        n.reclaimed_words = 100_000_000;
        n.busiest = vec![SyntheticProcess {
            reductions: 900_000,
            row: row(|row| row.total_heap_words = Some(heap_bytes / 8)),
            ..SyntheticProcess::default()
        }];
    })
}

#[test]
fn large_objects_that_are_copied_out_of_a_table_are_named_before_what_follows() {
    let sick = copying(200_000, 1, 1_500_000);
    let found = finding(&sick, "BT068");
    assert_eq!((found.level, found.subject_text().as_deref()), (Level::Warning, Some("ring of <0.55.0>")));
    assert_eq!(entries(&found), ["code.shared_term"]);
    let diagnosis = diagnose(&sick.period());
    let gc = diagnosis.findings().into_iter().find(|found| found.code.0 == "BT011").expect("gc").clone();
    assert_eq!(gc.follows.map(|of| of.code.0), Some("BT068"));
    // In this order: small objects; heaps that never held such an object; hardly any garbage; a table of a product.
    assert_healthy(&copying(2_000, 100, 1_500_000), "BT068");
    assert_healthy(&copying(200_000, 1, 20_000), "BT068");
    assert_healthy(&copying(200_000, 1, 1_500_000).with(|n| n.reclaimed_words = 100_000), "BT068");
    let elixir = sick.with(|n| n.facts.push((facts::PRODUCT, "elixir".to_owned())));
    assert_eq!(finding(&elixir, "BT068").level, Level::Warning);
    let product =
        copying(200_000, 1, 1_500_000).with(|n| n.facts.push((facts::PRODUCT, "RabbitMQ 3.10.8".to_owned())));
    assert_healthy(&product, "BT068");
}

#[test]
fn a_bag_with_many_objects_is_named_if_schedulers_wait_for_locks() {
    let locked = |kind: &str, objects: i64| {
        copying(70, objects, 20_000).with(|n| {
            n.ets[0].kind = kind.to_owned();
            (n.utilization, n.cpu, n.gc) = (0.6, 0.2, 0.01);
            n.reclaimed_words = 1_000;
        })
    };
    let found = finding(&locked("bag", 50_000), "BT015");
    assert_eq!(found.subject_text().as_deref(), Some("ring"));
    assert!(found.title.ends_with("likely by ETS bag ring"), "{}", found.title);
    assert!(found.detail.contains("ring is a bag with 50,000 objects"), "{}", found.detail);
    assert_eq!(entries(&found).first(), Some(&"code.keyed_objects"));
    assert_eq!(finding(&locked("set", 50_000), "BT015").subject, None);
    assert_eq!(finding(&locked("bag", 500), "BT015").subject, None);
}

#[test]
fn a_process_that_searches_a_table_is_found_with_its_caller() {
    let found = finding(&searching(600_000), "BT058");
    assert_eq!((found.level, found.subject_text().as_deref()), (Level::Warning, Some("sessions (<0.77.0>)")));
    assert_eq!(found.title, "sessions searches whole ETS tables: about 0.66 cores");
    assert!(found.detail.contains("called by shop:of_user/1"), "{}", found.detail);
    assert_eq!(entries(&found), ["code.table_index"]);
    assert_eq!(finding(&searching(900_000), "BT058").level, Level::Critical);
    assert_eq!(finding(&searching(80_000), "BT058").level, Level::Notice);
    assert_healthy(&searching(20_000), "BT058");
    // The node does hardly any work.
    assert_eq!(finding(&searching(900_000).with(|n| n.utilization = 0.02), "BT058").level, Level::Notice);
    // Several processes search.
    let two = searching(300_000).with(|n| n.busiest.push(seen_at("<0.78.0>", 200_000, SEARCH)));
    let found = finding(&two, "BT058");
    assert_eq!(found.title, "sessions and 1 more search whole ETS tables: about 0.55 cores");
}

#[test]
fn large_tables_are_named_with_those_of_the_process_first() {
    let table = |name: &str, owner: &str, objects| TableRow {
        id: name.to_owned(),
        name: name.to_owned(),
        owner: owner.to_owned(),
        kind: "set".to_owned(),
        objects,
        ..TableRow::default()
    };
    let tables = searching(600_000).with(|n| {
        n.ets = vec![
            table("orders", "<0.9.0>", 900_000),
            table("sessions_by_id", "<0.77.0>", 30_000),
            table("settings", "<0.77.0>", 30),
        ];
    });
    let found = finding(&tables, "BT058");
    let told = found.evidence.iter().find(|evidence| evidence.what.starts_with("tables")).expect("tables");
    let expect = "sessions_by_id (set, 30000 objects, its own), orders (set, 900000 objects)";
    assert_eq!(told.text.as_deref(), Some(expect));
}

#[test]
fn advice_and_candidate_tables_fit_the_call() {
    let of_others = |name: &str, protection: &str| TableRow {
        name: name.to_owned(),
        protection: protection.to_owned(),
        ..table(name, "shop_sup", 50_000)
    };
    let check = |at: &str, change: &str, detail: &str| {
        let node = searching(600_000).with(|n| {
            n.busiest = vec![seen_at("<0.77.0>", 600_000, &[at, "shop:sweep/0", "shop:loop/0"])];
            n.ets = vec![
                of_others("visits", "public"),
                of_others("prices", "protected"),
                of_others("keys", "private"),
            ];
        });
        let found = finding(&node, "BT058");
        assert!(found.remedies[0].change.contains(change), "{at}: {:?}", found.remedies);
        assert!(found.detail.ends_with(detail), "{at}: {}", found.detail);
    };
    let readable = "candidate tables: `prices` (50,000 objects) and `visits` (50,000 objects)";
    check("ets:select_delete/2", "expire", "likely table `visits` (50,000 objects)");
    check("ets:select_count/2", "ets:info(T, size)", readable);
    check("ets:tab2list/1", "computed from the table", readable);
    check("ets:match_object/2", "second table", readable);
}

#[test]
fn a_search_with_a_small_share_of_a_large_host_is_a_notice() {
    let on = |cpus: i32, active: f64| {
        let node = searching(600_000).with(|n| {
            (n.schedulers, n.cpus) = (cpus as usize, cpus.into());
            (n.utilization, n.cpu) = (active, active);
        });
        finding(&node, "BT058")
    };
    let cores = |found: &Finding| match found.cost() {
        Some(Cost::CpuCores(cores)) => cores,
        other => panic!("{other:?}"),
    };
    let (small, large) = (on(2, 0.16), on(64, 0.005));
    // The searches do the same work on both hosts.
    let ratio = cores(&small) / cores(&large);
    assert!((0.99..1.01).contains(&ratio), "{ratio}");
    assert!(small.level > Level::Notice);
    assert_eq!(large.level, Level::Notice);
}

#[test]
fn lookups_and_functions_of_the_program_are_not_searches() {
    let at =
        |stack: &[&str]| searching(600_000).with(|n| n.busiest = vec![seen_at("<0.77.0>", 600_000, stack)]);
    assert_healthy(&at(&["ets:lookup/2", "shop:of_user/1"]), "BT058");
    assert_healthy(&at(&["shop:of_user/1"]), "BT058");
    let unknown = outcome(&at(&[]).period(), "BT058");
    assert!(matches!(unknown, Outcome::NotJudged { .. }), "{unknown:?}");
}

fn sample(kind: &str, looks: i64, stack: &str) -> WorkSample {
    WorkSample {
        kind: Some(kind.to_owned()),
        stack: stack.split_whitespace().map(str::to_owned).collect(),
        samples: looks,
        ..WorkSample::default()
    }
}

/// A node that uses one and a half cores, but none of whose processes does much.
fn spread(samples: &[WorkSample], tables: &[TableRow]) -> Period {
    let node = node().with(|n| {
        (n.utilization, n.cpu, n.total_reductions) = (1.5, 1.5, 1_000_000);
        n.ets = tables.to_vec();
    });
    let mut period = node.period();
    period.work_samples = samples.to_vec();
    period
}

fn table(name: &str, owner: &str, objects: i64) -> TableRow {
    TableRow {
        id: name.to_owned(),
        name: name.to_owned(),
        owner: "<0.60.0>".to_owned(),
        owner_name: Some(owner.to_owned()),
        kind: "set".to_owned(),
        objects,
        ..TableRow::default()
    }
}

#[test]
fn a_huge_table_with_more_objects_in_each_reading_grows() {
    let huge = |rows_per_s| {
        growing_table(rows_per_s, 70_000, None)
            .with(|n| n.series[0] = (&metrics::TABLE_ROWS, "baskets", 400_000, rows_per_s))
    };
    assert_eq!(finding(&huge(350), "BT084").level, Level::Notice);
    assert_healthy(&huge(0), "BT084");
    // The objects are short-lived, and some more arrive.
    let wave = huge(350).with(|n| n.series[0] = (&metrics::TABLE_ROWS, "other", 400_000, 0));
    assert_healthy(&wave, "BT084");
}

fn found(period: &Period, code: &str) -> Option<Finding> {
    match outcome(period, code) {
        Outcome::Found(findings) => findings.into_iter().next(),
        _ => None,
    }
}

#[test]
fn searches_by_many_processes_are_found_and_hot_code_follows() {
    let search = |stack| sample("desk:serve/1", 30, stack);
    let other = sample("desk:serve/1", 4, "desk:print/1 desk:serve/1");
    let in_mnesia =
        "ets:select_trap/1 mnesia_lib:db_match_object/3 mnesia:do_dirty_rpc/5 desk:find/1 desk:serve/1";
    let tables = [table("shelves", "shop", 900_000), table("loan", "mnesia_monitor", 50_000)];
    let period = spread(&[search(in_mnesia), other.clone()], &tables);
    let scans = found(&period, "BT058").expect("searches");
    assert_eq!((scans.level, scans.subject_text().as_deref()), (Level::Critical, Some("desk:find/1")));
    assert!(scans.title.starts_with("desk:find/1 searches whole Mnesia tables: "), "{}", scans.title);
    assert_eq!(entries(&scans), ["code.mnesia_index"]);
    assert!(
        scans.remedies[0].change.starts_with("mnesia:add_table_index(loan, FIELD)"),
        "{:?}",
        scans.remedies
    );
    let code = found(&period, "BT073").expect("code");
    assert_eq!(code.follows.map(|of| of.code.0), Some("BT058"));
    // The same in ETS tables.
    let of_ets = "ets:select_trap/1 desk:find/1 desk:serve/1";
    let scans = found(&spread(&[search(of_ets), other.clone()], &tables), "BT058").expect("searches");
    assert_eq!(entries(&scans), ["code.table_index"]);
    let told = scans.evidence.iter().find(|evidence| evidence.what == "most of them in").expect("where");
    assert_eq!(told.text.as_deref(), Some("ets:select or ets:match"));
    // A single process that does most of them is named itself.
    let one = searching(600_000).with(|n| n.ets = tables.to_vec());
    let mut one = one.period();
    one.work_samples = vec![sample("sessions", 30, "ets:select_trap/1 shop:of_user/1 shop:loop/1")];
    let scans = found(&one, "BT058").expect("searches");
    assert_eq!(scans.subject_text().as_deref(), Some("sessions (<0.77.0>)"));
    assert_eq!(found(&one, "BT073").and_then(|code| code.follows).map(|of| of.code.0), Some("BT058"));
}

#[test]
fn short_or_rarely_sampled_searches_are_ignored() {
    let tables = [table("loans", "shop", 50_000)];
    let level = |samples: &[WorkSample], tables: &[TableRow]| {
        found(&spread(samples, tables), "BT058").map(|found| (found.level, found.confidence))
    };
    let work = sample("desk:serve/1", 60, "desk:print/1 desk:serve/1");
    // The key may be bound. That it is not, is shown only if searches are most of the samples, or if a search of the same caller was
    // interrupted.
    let call = |looks| sample("desk:serve/1", looks, "ets:match_object/2 desk:find/1 desk:serve/1");
    assert_eq!(level(&[call(25), work.clone()], &tables), None);
    let long = sample("desk:serve/1", 3, "ets:select_trap/1 desk:find/1 desk:serve/1");
    assert_eq!(
        level(&[call(25), long.clone(), work.clone()], &tables),
        Some((Level::Warning, Confidence::Measured))
    );
    assert_eq!(level(&[call(90), work.clone()], &tables), Some((Level::Warning, Confidence::Inferred)));
    assert_eq!(level(&[call(90), work.clone()], &[table("settings", "shop", 90)]), None);
    // A fold visits all objects. On a small table, it takes almost no time.
    let fold = sample("desk:serve/1", 25, "desk:-sum/1-fun-0-/2 ets:do_foldl/4 desk:sum/1 desk:serve/1");
    assert!(level(&[fold.clone(), work.clone()], &tables).is_some());
    assert_eq!(level(&[fold, work.clone()], &[table("settings", "shop", 90)]), None);
    // Two of sixty samples are chance; three of sixty may be a true share of 1 %.
    assert_eq!(level(&[long, work], &tables), None);
}

/// A node with a table of 10,000 objects and 60 MB, which gains this much of both in each second. `sampled` has the results of its sampled
/// objects: position of the pid, objects with a pid, objects of ended processes.
fn growing_table(rows_per_s: i64, bytes_per_s: i64, sampled: Option<(i64, i64, i64)>) -> SyntheticNode {
    node().with(|n| {
        let mut series: Vec<(&'static Metric, &'static str, i64, i64)> = vec![
            (&metrics::TABLE_ROWS, "baskets", 10_000, rows_per_s),
            (&metrics::TABLE_MEMORY, "baskets", 60_000_000, bytes_per_s),
        ];
        if let Some((place, with_pid, ended)) = sampled {
            series.push((&metrics::TABLE_SAMPLED, "baskets", 100, 0));
            series.push((&metrics::TABLE_PID_PLACE, "baskets", place, 0));
            series.push((&metrics::TABLE_WITH_PID, "baskets", with_pid, 0));
            series.push((&metrics::TABLE_ENDED, "baskets", ended, 0));
        }
        n.series = series;
        n.ets = vec![of_kind("set")];
        n.kinds = vec![("ets", 80_000_000, bytes_per_s)];
        n.resident_growth = bytes_per_s;
        n.memory_available = 100_000_000_000;
    })
}

fn of_kind(kind: &str) -> TableRow {
    TableRow {
        id: "baskets".to_owned(),
        name: "baskets".to_owned(),
        owner: "<0.55.0>".to_owned(),
        objects: 10_000,
        kind: kind.to_owned(),
        protection: "public".to_owned(),
        ..TableRow::default()
    }
}

#[test]
fn objects_of_ended_processes_are_a_leak_at_any_rate() {
    let leaks = |ended| growing_table(90, 600_000, Some((metrics::PID_IS_KEY, 100, ended)));
    let found = finding(&leaks(98), "BT084");
    assert_eq!((found.level, found.subject_text().as_deref()), (Level::Warning, Some("baskets of <0.55.0>")));
    assert_eq!(found.title, "ETS table `baskets` grows by 90 objects/s (600 kB/s)");
    assert!(
        found.detail.starts_with("98 of 100 sampled objects belong to processes that have ended"),
        "{}",
        found.detail
    );
    assert_eq!(entries(&found), ["code.delete_rows_of_ended", "code.bounded_table"]);
    assert!(found.against.iter().any(|but| but.contains("sweep")), "{found:#?}");
    assert_eq!(finding(&leaks(30), "BT084").level, Level::Notice);
    // The table grows by 0.1 % in ten seconds: only certain growth is reported.
    let large = |ended| {
        growing_table(90, 600_000, Some((metrics::PID_IN_KEY, 100, ended)))
            .with(|n| n.series[0].2 = 1_000_000)
    };
    assert_eq!(finding(&large(98), "BT084").level, Level::Warning);
    assert_healthy(&large(2).with(|n| n.processes = (400_000, 0)), "BT084");
    // So few processes do not need all of the objects.
    assert_eq!(finding(&large(2), "BT084").level, Level::Notice);
    // The growth is slow, and its memory does not matter.
    let slow = |place| finding(&growing_table(10, 1_000, Some((place, 100, 98))), "BT084");
    assert_eq!(slow(metrics::PID_IN_KEY).level, Level::Warning);
    // The objects of a cache contain the pid of their writer.
    let written = slow(metrics::PID_IN_OBJECT);
    assert_eq!(written.level, Level::Notice);
    assert_eq!(entries(&written), ["code.bounded_table", "code.delete_rows_of_ended"]);
    let long = finding(&leaks(98).with(|n| n.seconds = 400), "BT084");
    assert_eq!((long.level, long.confidence), (Level::Warning, Confidence::Measured));
    assert!(!long.against.iter().any(|but| but.contains("sweep")), "{long:#?}");
}

#[test]
fn unexplained_growth_is_a_notice_until_memory_runs_out() {
    let grows = |sampled| growing_table(500, 3_000_000, sampled);
    let found = finding(&grows(None), "BT084");
    assert_eq!(found.level, Level::Notice);
    assert_eq!(entries(&found), ["code.bounded_table"]);
    assert!(found.against.iter().any(|but| but.contains("cache")), "{found:#?}");
    assert!(found.against.iter().any(|but| but.contains("not sampled")), "{found:#?}");
    // In this order: the processes of the objects are alive; few objects have a pid.
    let with_key = grows(Some((metrics::PID_IS_KEY, 100, 1))).with(|n| n.processes = (16_000, 0));
    let lives = finding(&with_key, "BT084");
    assert_eq!(lives.level, Level::Notice);
    assert!(lives.against.iter().any(|but| but.contains("alive")), "{lives:#?}");
    assert_eq!(finding(&grows(Some((metrics::PID_IN_OBJECT, 10, 10))), "BT084").level, Level::Notice);
    // New users arrive.
    let come = finding(&grows(None).with(|n| n.processes.1 = 400), "BT084");
    assert!(come.against.iter().any(|but| but.contains("users")), "{come:#?}");
    // In this order: memory is used up within minutes; in a long recording, within hours.
    let ends = grows(None).with(|n| n.memory_available = 240_000_000);
    assert_eq!(finding(&ends, "BT084").level, Level::Critical);
    let hours = grows(None).with(|n| (n.seconds, n.memory_available) = (400, 60_000_000_000));
    let found = finding(&hours, "BT084");
    assert_eq!(found.level, Level::Warning);
    assert!(matches!(found.cost(), Some(Cost::EndSeconds(_))), "{found:#?}");
    // In this order: a table that hardly grows; a table of constant size.
    assert_healthy(&growing_table(500, 5_000, None), "BT084");
    assert_healthy(&growing_table(0, 0, None), "BT084");
    assert_healthy(&node(), "BT084");
}

#[test]
fn growing_memory_follows_from_the_table_that_is_most_of_it() {
    let sick = growing_table(500, 3_000_000, None).with(|n| n.memory_available = 240_000_000);
    let follows = |node: &SyntheticNode| {
        let diagnosis = diagnose(&node.period());
        let found =
            diagnosis.findings().into_iter().find(|found| found.code.0 == "BT027").expect("growth").clone();
        found.follows.map(|of| of.code.0)
    };
    assert_eq!(follows(&sick), Some("BT084"));
    // Other tables grow more.
    assert_eq!(follows(&sick.with(|n| n.kinds = vec![("ets", 80_000_000, 9_000_000)])), None);
}

#[test]
fn the_remedy_of_a_growing_table_depends_on_its_type() {
    let change = |change: fn(&mut TableRow)| {
        let node = growing_table(500, 3_000_000, None).with(|n| change(&mut n.ets[0]));
        let found = finding(&node, "BT084");
        (found.remedies.last().map(|remedy| remedy.change.clone()).unwrap_or_default(), found)
    };
    assert!(change(|row| row.kind = "ordered_set".to_owned()).0.contains("ets:first/1"));
    assert!(change(|row| row.kind = "bag".to_owned()).0.contains("a bag keeps"));
    let (advice, found) = change(|row| row.owner_name = Some("mnesia_monitor".to_owned()));
    assert!(advice.contains("mnesia:dirty_delete/2"), "{advice}");
    assert_eq!(value(&found, "objects now"), Some(15_000.0));
    // Tables of Mnesia, of OTP, and of a product.
    let own = growing_table(500, 3_000_000, None);
    assert_healthy(&own.clone().with(|n| n.ets[0].name = "mnesia_held_locks".to_owned()), "BT084");
    assert_healthy(&own.clone().with(|n| n.ets[0].owner_name = Some("code_server".to_owned())), "BT084");
    assert_healthy(&own.with(|n| n.facts.push((facts::PRODUCT, "RabbitMQ 3.10.8".to_owned()))), "BT084");
}

#[test]
fn tables_that_were_not_watched_are_not_judged() {
    let old = outcome(&node().with(|n| n.missing_metrics.push(&metrics::TABLES_WATCHED)).period(), "BT084");
    assert!(matches!(old, Outcome::NotJudged { .. }), "{old:?}");
}

#[test]
fn tables_of_a_product_itself_are_ignored() {
    let ejabberd = |module: Option<&str>, application: Option<&str>| {
        growing_table(90, 600_000, Some((metrics::PID_IS_KEY, 100, 98))).with(|n| {
            n.facts.push((facts::PRODUCT, "ejabberd 23.1".to_owned()));
            let row = |what: &str, maker: Option<&str>| SpawnRow {
                what: what.to_owned(),
                kind: "baskets".to_owned(),
                creator: maker.map(str::to_owned),
                count: 1,
                sample_size: 1,
                ..SpawnRow::default()
            };
            n.spawns.push(row(SpawnRow::TABLE_MODULE, module));
            n.spawns.extend(application.map(|name| row(SpawnRow::TABLE_APPLICATION, Some(name))));
        })
    };
    let found = finding(&ejabberd(Some("mod_visits"), None), "BT084");
    assert_eq!(found.level, Level::Warning);
    let module = found.evidence.iter().find(|evidence| evidence.what == "created by module");
    let module = module.and_then(|evidence| evidence.text.as_deref()).unwrap_or_default();
    assert!(module.starts_with("mod_visits, of no application"), "{found:#?}");
    assert_eq!(finding(&ejabberd(Some("ejabberd_sup"), Some("ejabberd")), "BT084").level, Level::Notice);
    assert_healthy(&ejabberd(Some("mod_muc"), Some("ejabberd")), "BT084");
    // A recording of an older version.
    assert_healthy(&ejabberd(None, None).with(|n| n.spawns.clear()), "BT084");
}
