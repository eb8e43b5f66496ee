//! The rule on modules that are searched for, loaded and purged.

use beamtune_model::{Level, facts};

use super::node::{SyntheticNode, SyntheticProcess, node};
use super::{Read, assert_healthy, entries, finding, row};

fn named(name: &str, reductions: i64, runnable_of_10: i64) -> SyntheticProcess {
    SyntheticProcess {
        pid: "<0.50.0>",
        reductions,
        runnable_of_10,
        row: row(|row| row.name = Some(name.to_owned())),
        ..SyntheticProcess::default()
    }
}

/// The code server is busy in this many of ten samples.
fn searching(of_10: i64) -> SyntheticNode {
    node().with(|n| {
        n.system = 0.2;
        n.busiest = vec![SyntheticProcess { queue: (12, 0), ..named("code_server", 300_000, of_10) }];
    })
}

#[test]
fn a_code_server_that_searches_for_modules_is_found() {
    let found = finding(&searching(7), "BT057");
    assert_eq!(
        (found.level, found.subject_text().as_deref()),
        (Level::Warning, Some("code_server (<0.50.0>)"))
    );
    assert_eq!(entries(&found), ["code.known_modules", "code.load_at_start"]);
    assert_eq!(finding(&searching(10), "BT057").level, Level::Critical);
    // The process that reads the files for it is busier than the code server.
    let by_loader = searching(1).with(|n| {
        n.busiest.push(SyntheticProcess { pid: "<0.10.0>", ..named("erl_prim_loader", 500_000, 6) });
    });
    let found = finding(&by_loader, "BT057");
    assert_eq!(
        (found.level, found.subject_text().as_deref()),
        (Level::Warning, Some("code_server (<0.50.0>)"))
    );
    let caller = searching(7).with(|n| {
        n.busiest.push(SyntheticProcess {
            row: row(|row| {
                row.initial_call = Some("shop:order/1".to_owned());
                row.current_function = Some("code_server:call/1".to_owned());
            }),
            ..SyntheticProcess::default()
        });
    });
    let found = finding(&caller, "BT057");
    assert!(
        found.evidence.iter().any(|of| of.text.as_deref() == Some("shop:order/1 (<0.77.0>)")),
        "{found:?}"
    );
    let embedded =
        searching(7).with(|n| n.facts.push((facts::INIT_ARGS, r#"["-mode embedded"]"#.to_owned())));
    assert_eq!(entries(&finding(&embedded, "BT057")), ["code.known_modules"]);
    // A boot script that names all modules makes embedded mode possible.
    let boots = |script: &str| {
        let arguments = format!(r#"["-boot {script}"]"#);
        searching(7).with(|n| n.facts.push((facts::INIT_ARGS, arguments)))
    };
    let release = boots("/app/releases/0.1.0/start");
    assert_eq!(entries(&finding(&release, "BT057")), ["code.known_modules", "-mode"]);
    let rabbit = release.with(|n| n.facts.push((facts::PRODUCT, "RabbitMQ 3.10.8".to_owned())));
    for none in [rabbit, boots("start_clean"), boots("/usr/lib/erlang/bin/start")] {
        assert_eq!(entries(&finding(&none, "BT057")), ["code.known_modules", "code.load_at_start"]);
    }
    // In one sample only: the node loads modules that it has not used before.
    assert_healthy(&searching(1), "BT057");
    assert_healthy(
        &searching(7).with(|n| n.busiest[0].row.name = Some("code_server_of_mine".to_owned())),
        "BT057",
    );
    assert_healthy(&node(), "BT057");
}

/// 2,000 processes, and a purger with this many reductions a second.
fn purging(reductions: i64) -> SyntheticNode {
    node().with(|n| {
        n.processes = (2_000, 0);
        n.busiest = vec![
            named("erts_code_purger", reductions, 3),
            SyntheticProcess { pid: "<0.51.0>", ..named("code_server", 50_000, 4) },
        ];
    })
}

#[test]
fn replaced_modules_are_reported_before_the_code_server_that_loads_them() {
    let found = finding(&purging(800_000), "BT057");
    assert_eq!(
        (found.level, found.subject_text().as_deref()),
        (Level::Warning, Some("erts_code_purger (<0.50.0>)"))
    );
    assert_eq!(entries(&found), ["code.no_code_at_run_time"]);
    assert!(found.title.ends_with("modules/s replaced, each checked in 2,000 processes"), "{}", found.title);
    // With hardly any purges, the finding is about the code server.
    let found = finding(&purging(2_000), "BT057");
    assert_eq!(found.subject_text().as_deref(), Some("code_server (<0.51.0>)"));
    assert_healthy(&purging(2_000).with(|n| n.busiest[1].runnable_of_10 = 0), "BT057");
}

#[test]
fn searches_for_literals_by_the_purger_are_not_taken_for_persistent_terms() {
    let literals = purging(800_000).with(|n| {
        n.busiest.push(SyntheticProcess {
            pid: "<0.2.0>",
            reductions: 400_000,
            row: row(|row| row.initial_call = Some("erts_literal_area_collector:start/0".to_owned())),
            ..SyntheticProcess::default()
        });
    });
    let found = finding(&literals, "BT048");
    assert_eq!(found.follows.as_ref().map(|follows| follows.code.0), Some("BT057"));
    assert!(found.against.iter().any(|against| against.contains("modules were purged")), "{found:?}");
    assert!(finding(&purging(800_000), "BT057").follows.is_none());
}
