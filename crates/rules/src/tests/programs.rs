//! Tests of rules on external programs.

use beamtune_model::{Cost, Finding, Level, Outcome, PortRow, SpawnRow, Subject, metrics};

use super::node::{ExternalPrograms, SyntheticNode, SyntheticProcess, node, stack_row};
use super::{Read, assert_healthy, entries, finding, outcome, row, value};

fn programs(name: &'static str, alive: (i64, i64), orphans: i64) -> ExternalPrograms {
    ExternalPrograms { name, alive, orphans, cpu: 0.0, resident: 10 << 20, oldest: 1_200 }
}

/// A node on which external programs use most of the CPUs that the schedulers wait for.
fn converting() -> SyntheticNode {
    node().with(|n| {
        (n.utilization, n.cpu, n.run_queue_delay, n.voluntary_switches) = (0.6, 0.15, 0.4, 1_000);
        (n.programs_cpu, n.programs_ended) = (1.4, 2);
        n.programs = vec![ExternalPrograms { cpu: 1.3, ..programs("convert", (3, 0), 0) }];
        n.program_ports = Some(3);
        n.busiest = vec![SyntheticProcess {
            pid: "<0.99.0>",
            reductions: 1_000,
            row: row(|r| {
                r.name = Some("thumbs".to_owned());
                r.stack = Vec::new();
            }),
            waiting_stack: ["os:get_data/4", "os:cmd/2", "thumbs:make/2", "gen_server:loop/7"]
                .map(str::to_owned)
                .to_vec(),
            ..SyntheticProcess::default()
        }];
    })
}

fn follows(finding: &Finding) -> Option<&'static str> {
    finding.follows.as_ref().map(|follows| follows.code.0)
}

#[test]
fn programs_that_use_the_cpu_are_named_with_their_starter_and_explain_the_wait() {
    let found = finding(&converting(), "BT060");
    assert_eq!((found.level, entries(&found)), (Level::Warning, vec!["code.limit_programs"]));
    assert_eq!(found.title, "External programs use 1.4 of 2.0 cores, most by convert");
    assert_eq!(found.detail, "convert 1.30; started by thumbs (<0.99.0>), in thumbs:make/2");
    assert_eq!(found.subject_text().as_deref(), Some("thumbs (<0.99.0>)"));
    assert!(
        matches!(found.cost(), Some(Cost::CpuCores(cores)) if (cores - 1.4).abs() < 0.01),
        "{:?}",
        found.cost()
    );
    let starved = finding(&converting(), "BT004");
    assert_eq!((follows(&starved), starved.subject_text().as_deref()), (Some("BT060"), Some("programs")));
    assert_eq!(entries(&starved)[0], "code.limit_programs");
    // External programs are no problem if no process lacks CPU.
    let idle = converting().with(|n| (n.run_queue_delay, n.cpus, n.schedulers) = (0.0, 8, 8));
    let found = finding(&idle, "BT060");
    assert_eq!((found.level, found.against.len()), (Level::Notice, 1));
    // With a quota, the programs use it up.
    let quota =
        converting().with(|n| (n.quota, n.throttled_periods_of_10, n.throttled) = (Some(1_900), 5, 0.8));
    assert_eq!(follows(&finding(&quota, "BT002")), Some("BT060"));
}

#[test]
fn external_programs_of_the_node_are_not_neighbours() {
    let neighbours = converting().with(|n| (n.programs_cpu, n.other_cpu) = (0.0, 1.6));
    let found = finding(&neighbours, "BT004");
    assert_eq!((follows(&found), found.subject_text().as_deref()), (None, Some("neighbours")));
    assert_healthy(&neighbours, "BT060");
    // An older recording has no external programs. They then count as other OS processes, as before.
    let old = converting().with(|n| n.missing_metrics.push(&metrics::PROGRAMS_CPU));
    assert_eq!(finding(&old, "BT004").subject_text().as_deref(), Some("neighbours"));
    assert!(matches!(outcome(&old.period(), "BT060"), Outcome::NotJudged { .. }));
}

#[test]
fn short_programs_are_reported_by_their_number() {
    let short = converting().with(|n| {
        (n.programs_cpu, n.programs_ended, n.run_queue_delay) = (0.6, 300, 0.0);
        let helper = programs("inet_gethost", (2, 0), 0);
        // Age of the oldest one at the beginning: here it starts eight seconds later.
        n.programs = vec![ExternalPrograms { oldest: -8, cpu: 0.001, ..programs("sh", (1, 0), 0) }, helper];
    });
    let found = finding(&short, "BT060");
    assert_eq!(
        (found.level, entries(&found)),
        (Level::Warning, vec!["code.fewer_programs", "code.no_shell"])
    );
    assert_eq!(found.title, "300 external programs/s (sh) use 0.60 of 2.0 cores");
    assert_eq!(found.detail, "2.0 ms of CPU each; started by thumbs (<0.99.0>), in thumbs:make/2");
    assert_eq!(value(&found, "CPU per program"), Some(0.6 / 300.0));
    // No process was sampled while it started the program, so the program is named.
    let unseen = short.clone().with(|n| n.busiest.clear());
    let found = finding(&unseen, "BT060");
    assert!(matches!(&found.subject, Some(Subject::OsProcess { name, .. }) if name == "sh"), "{found:?}");
    assert!(found.detail.contains("was not sampled"), "{}", found.detail);
    // OTP's replacement for a program is named.
    let sums = short.clone().with(|n| n.programs[0].name = "sha256sum");
    assert!(
        finding(&sums, "BT060").remedies[0].change.starts_with("use crypto:hash/2"),
        "{:?}",
        found.remedies
    );
    // If the counter cannot be read, only the CPU use of programs is known.
    let unread = short.clone().with(|n| n.missing_metrics.push(&metrics::PROGRAMS_ENDED));
    assert_eq!(finding(&unread, "BT060").level, Level::Notice);
    // Some programs per second that use little CPU are normal.
    assert_healthy(&short.clone().with(|n| (n.programs_cpu, n.programs_ended) = (0.01, 3)), "BT060");
    assert_eq!(
        finding(&short.with(|n| (n.programs_cpu, n.programs_ended) = (0.03, 60)), "BT060").level,
        Level::Notice
    );
}

#[test]
fn the_starter_of_programs_is_recognized_by_its_port_or_by_a_sample_of_its_wait() {
    let by_port = converting().with(|n| {
        n.busiest.clear();
        n.sockets = vec![PortRow {
            id: "#Port<0.9>".to_owned(),
            name: "ffmpeg".to_owned(),
            connected: Some("<0.55.0>".to_owned()),
            os_pid: Some(4_711),
            ..PortRow::default()
        }];
    });
    assert_eq!(finding(&by_port, "BT060").subject_text().as_deref(), Some("<0.55.0>"));
    let by_opener = converting().with(|n| {
        n.busiest.clear();
        n.spawns = vec![SpawnRow {
            what: "port".to_owned(),
            kind: "/usr/bin/convert - png:-".to_owned(),
            creator: Some("gallery".to_owned()),
            count: 2,
            sample_size: 9,
            ..SpawnRow::default()
        }];
    });
    let found = finding(&by_opener, "BT060");
    assert_eq!(
        (found.subject_text().as_deref(), &*found.detail),
        (Some("gallery"), "convert 1.30; started by gallery")
    );
    let by_sample = converting().with(|n| {
        n.busiest.clear();
        n.stacks = vec![stack_row(4, &["Elixir.System:do_cmd/3", "Elixir.Shop.Thumbs:make/1"], &[])];
    });
    assert_eq!(finding(&by_sample, "BT060").subject_text().as_deref(), Some("Elixir.Shop.Thumbs:make/1"));
}

#[test]
fn programs_without_a_port_are_left_behind() {
    let left = |children: i64, ports: i64| {
        node().with(|n| {
            (n.programs, n.program_ports) = (vec![programs("sleep", (children, 0), 0)], Some(ports));
        })
    };
    let found = finding(&left(40, 2), "BT061");
    assert_eq!((found.level, entries(&found)), (Level::Warning, vec!["code.end_programs"]));
    assert_eq!(found.title, "38 external programs outlive their port, mostly sleep");
    assert!(matches!(found.cost(), Some(Cost::MemoryBytes(bytes)) if bytes > 300e6), "{:?}", found.cost());
    assert_eq!(finding(&left(10, 2), "BT061").level, Level::Notice);
    // In this order: a pool in which each program has its port, however large it is; a few programs that are just ending.
    assert_healthy(&left(64, 64), "BT061");
    assert_healthy(&left(6, 2), "BT061");
    // Without known ports, this is not judged, but the rest is.
    assert_healthy(&left(40, 2).with(|n| n.program_ports = None), "BT061");
}

#[test]
fn orphans_and_zombies_are_reported() {
    let orphans = |count: i64| {
        node().with(|n| {
            n.programs = vec![programs("inet_gethost", (2, 0), 0), programs("tail", (count, 0), count)];
        })
    };
    let found = finding(&orphans(30), "BT061");
    assert_eq!(
        (found.level, found.title.as_str()),
        (Level::Warning, "30 orphans of external programs, mostly tail")
    );
    assert_healthy(&orphans(2), "BT061");
    let zombies = node().with(|n| n.zombies = 150);
    let found = finding(&zombies, "BT061");
    assert_eq!((found.level, entries(&found)), (Level::Warning, vec!["host.init_process"]));
    assert_healthy(&node().with(|n| n.zombies = 3), "BT061");
}

#[test]
fn growing_programs_are_a_warning_only_after_minutes() {
    let grows = |seconds: i64| {
        node().with(|n| {
            n.seconds = seconds;
            n.programs = vec![programs("ping", (4, 2), 0)];
            n.program_ports = None;
        })
    };
    assert_eq!(finding(&grows(10), "BT061").level, Level::Notice);
    let found = finding(&grows(600), "BT061");
    assert_eq!(found.level, Level::Warning);
    assert_eq!(found.subject_text().as_deref(), Some("ping"));
    // As many programs end as start.
    assert_healthy(&grows(600).with(|n| n.programs_ended = 5), "BT061");
}

#[test]
fn memory_of_programs_is_reported_near_the_limit() {
    let large = |used: i64| {
        node().with(|n| {
            n.group_memory = Some((used << 20, 1_000 << 20));
            n.programs = vec![ExternalPrograms { resident: 150 << 20, ..programs("chrome", (4, 0), 0) }];
            n.program_ports = Some(4);
        })
    };
    let found = finding(&large(950), "BT061");
    assert_eq!(found.level, Level::Warning);
    assert_eq!(found.title, "External programs use 60 % of the memory limit, mostly chrome");
    assert_eq!(finding(&large(700), "BT061").level, Level::Notice);
}
