//! Tests of rules on tables that fill up, and on settings that are too large or too slow.

use beamtune_model::{Confidence, Cost, Level, SpawnRow, TableRow, facts, metrics};

use super::node::{SyntheticNode, node};
use super::{Read, assert_healthy, entries, finding, value};

fn spawn(what: &str, kind: &str, maker: &str) -> SpawnRow {
    SpawnRow {
        what: what.to_owned(),
        kind: kind.to_owned(),
        creator: Some(maker.to_owned()),
        count: 150,
        sample_size: 200,
        t: 0,
        bytes: None,
    }
}

#[test]
fn tables_that_fill_up_are_found_with_what_fills_them() {
    let leak = node().with(|n| {
        n.processes = (20_000, 1_000);
        n.spawns = vec![spawn("process", "worker:init/1", "pool")];
    });
    let found = finding(&leak, "BT007");
    // Within ten seconds, returning users look the same. Within a minute they do not, nor if half of the table is in use.
    assert_eq!((found.level, found.confidence), (Level::Critical, Confidence::Inferred));
    let minute = finding(&leak.clone().with(|n| n.seconds = 60), "BT007");
    assert_eq!((minute.level, minute.confidence), (Level::Critical, Confidence::Measured));
    let half = finding(&node().with(|n| n.processes = (130_000, 500)), "BT007");
    assert_eq!((half.level, half.confidence), (Level::Critical, Confidence::Measured));
    assert_eq!(found.subject_text().as_deref(), Some("worker:init/1 started by pool"));
    // A larger table would only be full later, so it is not advised.
    assert_eq!(entries(&found), ["code.bounded_processes"]);
    let soon = finding(&node().with(|n| n.processes = (230_000, 100)), "BT007");
    assert_eq!(entries(&soon), ["code.bounded_processes", "+P"]);
    assert!(
        found.cost().is_some() && found.cost() == value(&found, "time to the limit").map(Cost::EndSeconds)
    );
    let full = finding(&node().with(|n| n.processes = (230_000, 0)), "BT007");
    assert_eq!((full.level, entries(&full)), (Level::Warning, vec!["+P"]));
    // The number of processes does not grow.
    assert_eq!(full.cost(), None);
    assert_healthy(&node().with(|n| n.processes = (100_000, 0)), "BT007");
}

#[test]
fn ports_and_descriptors_are_each_judged_by_their_limit() {
    let files = node().with(|n| {
        n.open_files = (900, 0);
        n.facts.push((facts::NOFILE_SOFT, "1024".to_owned()));
    });
    let found = finding(&files, "BT008");
    assert_eq!((found.level, entries(&found)), (Level::Warning, vec!["host.nofile"]));
    let others = found.evidence.iter().find(|evidence| evidence.what == "file descriptors without a port");
    assert_eq!(others.and_then(|evidence| evidence.value), Some(880.0));
    // The descriptors were not sampled. If they are, the most frequent kind is named.
    let frequent = |node: &SyntheticNode| {
        let found = finding(node, "BT008");
        let evidence =
            found.evidence.into_iter().find(|evidence| evidence.what == "most frequent kind of descriptors");
        evidence.map(|evidence| (evidence.value, evidence.text.unwrap_or_default()))
    };
    assert_eq!(frequent(&files), None);
    let sampled = |kinds: &[(&'static str, i64)]| {
        let kinds = kinds.to_vec();
        frequent(&files.clone().with(|n| n.open_kinds = kinds)).expect("a kind")
    };
    assert_eq!(
        sampled(&[("/srv/uploads", 400), ("socket", 40), ("eventpoll", 10)]),
        (Some(800.0), "files in /srv/uploads: 400 of 450 sampled".to_owned())
    );
    assert!(sampled(&[("/srv/uploads", 4), ("socket", 40)]).1.starts_with("sockets: 40 of 44"));
    assert!(sampled(&[("/dev/null", 9)]).1.starts_with("files opened as /dev/null: 9 of 9"));
    // The finding is about these files, not about the few ports.
    let uploads = finding(
        &files.clone().with(|n| {
            n.open_kinds = vec![("/srv/uploads", 400), ("socket", 40)];
            n.spawns = vec![spawn("port", "tcp_inet", "net_kernel")];
        }),
        "BT008",
    );
    assert_eq!(uploads.subject_text().as_deref(), Some("files in /srv/uploads"));
    assert_eq!(uploads.title, "File descriptors at 88 % of the limit");
    assert_eq!(uploads.detail, "900 of 1,024 file descriptors; most are files in /srv/uploads");
    let has_port_kind = uploads.evidence.iter().any(|evidence| evidence.what == "most frequent kind");
    assert!(!has_port_kind, "{:?}", uploads.evidence);
    let grows = |kind: &'static str| {
        let node = files.clone().with(|n| (n.open_files, n.open_kinds) = ((700, 5), vec![(kind, 400)]));
        finding(&node, "BT008").remedies[0].change.clone()
    };
    assert!(grows("/srv/uploads").starts_with("close files"), "{}", grows("/srv/uploads"));
    assert!(grows("pipe").starts_with("close them"), "{}", grows("pipe"));
    // Ports leak, in addition to a constant large number of files.
    let ports = files.clone().with(|n| {
        n.open_kinds = vec![("/srv/uploads", 400), ("socket", 40)];
        n.ports = (20, 2);
        n.spawns = vec![spawn("port", "tcp_inet", "acceptor")];
    });
    let found = finding(&ports, "BT008");
    assert_eq!(found.subject_text().as_deref(), Some("tcp_inet opened by acceptor"));
    assert!(found.remedies[0].change.starts_with("close sockets"), "{}", found.remedies[0].change);
    // Sockets of the module `socket` are not ports, so the opener of the few ports has not opened them.
    let sockets = files.clone().with(|n| {
        n.open_kinds = vec![("socket", 400)];
        n.spawns = vec![spawn("port", "tcp_inet", "acceptor")];
    });
    assert_eq!(finding(&sockets, "BT008").subject_text().as_deref(), Some("ports"));
    // Files are counted rarely, so the growth of ports is used.
    let few = node().with(|n| {
        n.ports = (300, 20);
        n.open_files = (500, 0);
        n.facts.push((facts::NOFILE_SOFT, "1024".to_owned()));
    });
    // A higher limit helps only if little is left: raising it needs a restart, which frees them anyway.
    assert_eq!(entries(&finding(&few, "BT008")), ["code.close_ports"]);
    // A higher limit is also advised if many descriptors are in use, while the port table has room for hours.
    let many = node().with(|n| {
        (n.ports, n.open_files) = ((2_880, 10), (3_000, 0));
        n.facts.push((facts::NOFILE_SOFT, "4096".to_owned()));
    });
    let found = finding(&many, "BT008");
    assert_eq!((found.level, entries(&found)), (Level::Critical, vec!["code.close_ports", "host.nofile"]));
    // The kernel rejects a limit above its own.
    let raise = |limit: i64| {
        let nearly = node().with(|n| {
            n.open_files = (9 * limit / 10, 0);
            n.facts.push((facts::NOFILE_SOFT, limit.to_string()));
        });
        finding(&nearly, "BT008").remedies[0].change.clone()
    };
    assert!(
        raise(600_000).ends_with(" (raise sysctl fs.nr_open first, if it is lower)"),
        "{}",
        raise(600_000)
    );
    assert!(raise(500_000).ends_with("LimitNOFILE=)"), "{}", raise(500_000));
    let leak = node().with(|n| {
        n.ports = (20_000, 500);
        n.spawns = vec![spawn("port", "tcp_inet", "acceptor")];
    });
    let found = finding(&leak, "BT008");
    assert_eq!(found.subject_text().as_deref(), Some("tcp_inet opened by acceptor"));
    assert!(found.title.contains("limit reached in"), "{}", found.title);
    assert!(
        found.detail.ends_with("; tcp_inet opened by acceptor: 100 % of those sampled"),
        "{}",
        found.detail
    );
    assert_eq!(entries(&found), ["code.close_ports"]);
    assert_healthy(&node(), "BT008");
}

/// A node with sockets. Some of them are sampled, and of these some belong to processes that have ended and have unsent bytes.
fn disowned(sockets: i64, sampled: i64, ended: i64, unsent: i64) -> SyntheticNode {
    node().with(|n| {
        (n.ports, n.open_files) = ((sockets, 4), (sockets + 20, 4));
        n.facts.push((facts::NOFILE_SOFT, "20000".to_owned()));
        n.spawns = vec![spawn("port", "tcp_inet", "files:init/1")];
        n.series.push((&metrics::PORTS_READ, "", sockets + 40, 0));
        n.series.push((&metrics::PORT_QUEUES, "", unsent * sockets / sampled, 0));
        n.series.push((&metrics::SOCKETS_READ, "", sockets, 0));
        n.series.push((&metrics::SOCKETS_SAMPLED, "", sampled, 0));
        n.series.push((&metrics::SOCKETS_ENDED, "", ended, 0));
        n.series.push((&metrics::SOCKETS_ENDED_QUEUES, "", unsent, 0));
    })
}

#[test]
fn sockets_that_outlive_their_process_are_the_leak() {
    let mb = 1_000_000;
    let sick = disowned(200, 100, 60, 30 * mb);
    let found = finding(&sick, "BT008");
    let says =
        "; 60 of 100 sampled sockets belong to processes that have ended; about 60 MB wait unsent in them";
    assert!(found.detail.ends_with(says), "{}", found.detail);
    assert_eq!(found.subject_text().as_deref(), Some("tcp_inet opened by files:init/1"));
    assert_eq!(entries(&found), ["code.linger", "socket.send_timeout"]);
    // The growing binaries wait in these sockets.
    let grows = sick.clone().with(|n| {
        (n.resident, n.resident_growth) = (150 * mb, 2 * mb);
        n.kinds = vec![("binary", 80 * mb, 2 * mb)];
    });
    let growth = finding(&grows, "BT027");
    assert_eq!(growth.follows.as_ref().map(|of| of.code.0), Some("BT008"), "{growth:#?}");
    assert_eq!(entries(&growth), ["socket.send_timeout"]);
    // Without unsent bytes, no process was linked to the sockets.
    let unlinked = finding(&disowned(150, 100, 90, 0), "BT008");
    assert!(unlinked.detail.ends_with("belong to processes that have ended"), "{}", unlinked.detail);
    assert!(unlinked.remedies[0].change.contains("no unlink/1"), "{:?}", unlinked.remedies);
    // In this order: a few of many sockets, which may just be closing; a constant number of sockets.
    assert_eq!(entries(&finding(&disowned(800, 100, 8, mb), "BT008")), ["code.close_ports"]);
    assert_eq!(entries(&finding(&disowned(400, 100, 15, mb), "BT008")), ["code.close_ports"]);
    let still = sick.with(|n| (n.ports, n.open_files) = ((200, 0), (220, 0)));
    assert_healthy(&still, "BT008");
}

#[test]
fn a_few_sockets_that_outlive_their_process_are_the_leak_if_they_grow() {
    let grows = disowned(900, 100, 6, 3_000_000).with(|n| {
        n.series.retain(|(metric, ..)| metric.name != metrics::SOCKETS_ENDED.name);
        n.series.push((&metrics::SOCKETS_ENDED, "", 6, 1));
    });
    assert_eq!(entries(&finding(&grows, "BT008")), ["code.linger", "socket.send_timeout"]);
}

#[test]
fn silent_connections_are_the_leak() {
    let silent = |silent: i64, product: &str| {
        node().with(|n| {
            (n.ports, n.open_files) = ((700, 9), (720, 9));
            n.facts.push((facts::NOFILE_SOFT, "16000".to_owned()));
            n.facts.push((facts::PRODUCT, product.to_owned()));
            n.series.push((&metrics::TCP_CONNECTIONS, "0.0.0.0:5672", 690, 0));
            n.series.push((&metrics::TCP_SILENT, "0.0.0.0:5672", silent, 0));
        })
    };
    let found = finding(&silent(500, "RabbitMQ 3.10.8"), "BT008");
    assert!(
        found.detail.ends_with("500 of 690 connections at 0.0.0.0:5672 received nothing for 30 s or more"),
        "{}",
        found.detail
    );
    assert!(found.remedies[0].change.starts_with("set heartbeat > 0 (rabbitmq.conf"), "{:?}", found.remedies);
    let own = finding(&silent(500, "shop 1.0"), "BT008");
    assert!(own.remedies[0].change.contains("keepalive"), "{:?}", own.remedies);
    // Most of them receive data.
    assert!(!finding(&silent(100, "shop 1.0"), "BT008").detail.contains("nothing for 30 s"));
    // The number of connections is constant, although they are silent.
    assert_healthy(
        &silent(500, "shop 1.0").with(|n| (n.ports, n.open_files) = ((700, 0), (720, 0))),
        "BT008",
    );
}

#[test]
fn processes_of_known_products_get_specific_advice() {
    let leak = |kind| {
        let node = node().with(|n| {
            n.processes = (2_000, 30);
            n.spawns = vec![spawn("process", kind, "its_sup")];
        });
        finding(&node, "BT007").remedies[0].change.clone()
    };
    assert!(leak("mod_muc_room:init/1").contains("rooms_unused_destroy"));
    assert!(leak("shop_order:init/1").starts_with("end the processes"));
}

#[test]
fn atoms_that_grow_are_found() {
    let leak = node().with(|n| n.atoms = (100_000, 5_000));
    let found = finding(&leak, "BT009");
    assert_eq!(entries(&found), ["code.no_atoms_from_input", "+t"]);
    assert_eq!((found.level, found.confidence), (Level::Critical, Confidence::Inferred));
    assert_eq!(finding(&leak.with(|n| n.seconds = 30), "BT009").confidence, Confidence::Measured);
    let full = finding(&node().with(|n| n.atoms = (900_000, 0)), "BT009");
    assert_eq!(entries(&full), ["+t"]);
    assert_healthy(&node(), "BT009");
    // A common prefix is reported, unless as many atoms lack it, or the number of atoms is constant.
    let prefix = |atoms: (i64, i64), count: i64| {
        let found = finding(
            &node().with(|n| {
                n.atoms = atoms;
                n.spawns =
                    vec![SpawnRow { count, sample_size: 50, creator: None, ..spawn("atom", "session:", "") }];
            }),
            "BT009",
        );
        let evidence =
            found.evidence.into_iter().find(|evidence| evidence.what == "prefix of the newest atoms");
        (
            found.detail.ends_with("most of the newest atoms begin with session:"),
            evidence.and_then(|evidence| evidence.text),
        )
    };
    assert_eq!(prefix((100_000, 5_000), 40), (true, Some("session: (440 of 550 sampled)".to_owned())));
    assert_eq!(prefix((100_000, 5_000), 20), (false, None));
    assert_eq!(prefix((900_000, 0), 40), (false, None));
}

#[test]
fn ets_tables_that_only_grow_are_a_leak() {
    let leak = node().with(|n| {
        n.tables = (1_000, 50);
        n.spawns = vec![spawn("ets", "session_cache", "session_sup")];
    });
    let found = finding(&leak, "BT010");
    assert_eq!(found.level, Level::Warning);
    assert_eq!(found.subject_text().as_deref(), Some("session_cache of session_sup"));
    // A running node reports owners of tables, not names. The names of the largest tables of that owner are used.
    let live = leak.with(|n| {
        n.spawns = vec![spawn("ets", "table", "route_planner")];
        let table = |id: &str, name: &str| TableRow {
            id: id.to_owned(),
            name: name.to_owned(),
            owner: "<0.9.0>".to_owned(),
            owner_name: Some("route_planner".to_owned()),
            ..TableRow::default()
        };
        n.ets = vec![table("#Ref<0.1>", "stops"), table("#Ref<0.2>", "stops"), table("#Ref<0.3>", "edges")];
        n.kinds = vec![("ets", 50_000_000, 2_500_000)];
        n.memory_available = 2_000_000_000;
    });
    let found = finding(&live, "BT010");
    assert!(
        found.detail.starts_with("most are owned by process route_planner, such as `stops`; "),
        "{}",
        found.detail
    );
    // The memory of all tables grows because of them.
    assert_eq!(finding(&live, "BT027").follows.map(|cause| cause.code.0), Some("BT010"));
    // Here large tables grow, and these are small.
    let others = live.with(|n| n.kinds = vec![("ets", 5_000_000_000, 20_000_000)]);
    assert_eq!(finding(&others, "BT027").follows, None);
    assert_healthy(&node().with(|n| n.tables = (5_000, 0)), "BT010");
    assert_healthy(&node().with(|n| n.tables = (20, 2)), "BT010");
}

#[test]
fn poll_is_judged_by_the_number_of_its_descriptors() {
    let check = |descriptors, expect| {
        let node = node().with(|n| {
            n.epoll = false;
            n.descriptors = descriptors;
        });
        let found = finding(&node, "BT013");
        assert_eq!((found.level, entries(&found)), (expect, vec!["build.kernel_poll"]), "{descriptors}");
    };
    check(5, Level::Notice);
    check(500, Level::Warning);
    check(9_000, Level::Critical);
    // One fallback set without kernel poll is normal: the synthetic node has one.
    assert_healthy(&node(), "BT013");
}

#[test]
fn busy_poll_threads_are_judged_by_their_set() {
    let busy = |threads: &[(f64, f64)]| {
        let threads = threads.to_vec();
        node().with(|n| (n.poll_threads, n.descriptors) = (threads, 40_000))
    };
    let flags =
        |node: SyntheticNode, args: &str| node.with(|n| n.facts.push((facts::EMU_ARGS, args.to_owned())));
    let found = finding(&busy(&[(0.98, 0.7)]), "BT059");
    assert_eq!((found.level, entries(&found)), (Level::Critical, vec!["socket.active", "+IOt", "+IOp"]));
    assert_eq!(found.title, "Poll thread 98 % busy: socket events wait");
    assert_eq!(found.detail, "40,000 file descriptors; 0.98 cores");
    assert_eq!(found.remedies[1].change, "+IOt 2");
    // The poll thread waits for a lock, and uses little CPU.
    assert_eq!(finding(&busy(&[(0.3, 0.9)]), "BT059").level, Level::Warning);
    assert_eq!(finding(&busy(&[(0.7, 0.1)]), "BT059").level, Level::Notice);

    // Two threads of one poll set share its events; those of two sets do not.
    let uneven = busy(&[(0.98, 0.0), (0.1, 0.0)]);
    assert_healthy(&uneven, "BT059");
    for args in [r#"["-IOt","2","-IOp","2"]"#, r#"["-IOt","2","-IOPp","100"]"#] {
        let found = finding(&flags(uneven.clone(), args), "BT059");
        assert!(found.title.starts_with("Threads of one of 2 poll sets 98 % busy"), "{}", found.title);
        assert_eq!(found.remedies[1].change, "+IOt 4");
    }
    assert_healthy(&flags(uneven, r#"["-IOt","2","-IOPp","50"]"#), "BT059");

    // The eleventh of twelve threads belongs to the fifth of six sets.
    let twelve: Vec<(f64, f64)> = (0..12).map(|nth| (if nth % 6 == 4 { 0.98 } else { 0.0 }, 0.0)).collect();
    assert!(finding(&flags(busy(&twelve), r#"["-IOt","12","-IOp","6"]"#), "BT059").level >= Level::Warning);

    // A flag that is off is reported, unless the release does not know it.
    let off = flags(busy(&[(0.98, 0.0)]), r#"["-IOs","false"]"#);
    assert_eq!(entries(&finding(&off, "BT059")), ["socket.active", "+IOs", "+IOt", "+IOp"]);

    // Fully used schedulers are the bottleneck.
    let full = busy(&[(0.98, 0.0)]).with(|n| (n.utilization, n.cpu) = (0.95, 0.95));
    assert_eq!(finding(&full, "BT059").level, Level::Notice);
    // A single descriptor that nothing reads keeps a thread busy, too.
    let few = finding(&busy(&[(0.98, 0.0)]).with(|n| n.descriptors = 4), "BT059");
    assert!(few.against.iter().any(|text| text.contains("so few descriptors")), "{:?}", few.against);
    assert_healthy(&busy(&[(0.5, 0.5)]), "BT059");
}

#[test]
fn a_poll_thread_is_busy_because_of_missing_epoll() {
    let node = node().with(|n| {
        n.epoll = false;
        n.descriptors = 9_000;
        n.poll_threads = vec![(0.99, 0.1)];
    });
    let found = finding(&node, "BT059");
    assert_eq!(found.follows.as_ref().map(|cause| cause.code.0), Some("BT013"));
    assert_eq!(entries(&found), ["socket.active"]);
}

#[test]
fn an_oversized_port_table_is_reported_with_the_origin_of_its_size() {
    let limit = |n: i64| node().with(move |node| node.facts.push((facts::PORT_LIMIT, n.to_string())));
    let found = finding(&limit(134_217_727), "BT014");
    assert_eq!((found.level, entries(&found)), (Level::Critical, vec!["+Q", "host.nofile"]));
    assert_eq!(found.title, "Port table has 134,217,727 entries for 20 ports: 1611 MB");
    assert!(found.detail.contains("open file limit"), "{}", found.detail);
    // Files that are not ports need descriptors, but no entry in the table.
    let files = finding(&limit(134_217_727).with(|n| n.open_files = (100_000, 0)), "BT014");
    let changes: Vec<_> = files.remedies.iter().map(|remedy| remedy.change.as_str()).collect();
    assert_eq!(changes[0], "+Q 65536");
    assert!(changes[1].contains(" 400000 "), "{changes:?}");
    let by_flag =
        limit(16_777_216).with(|n| n.facts.push((facts::EMU_ARGS, r#"["-Q","16777216"]"#.to_owned())));
    let found = finding(&by_flag, "BT014");
    assert_eq!((found.level, entries(&found)), (Level::Warning, vec!["+Q"]));
    let by_environment = limit(16_777_216)
        .with(|n| n.facts.push((facts::ENVIRONMENT, r#"{"ERL_MAX_PORTS":"16777216"}"#.to_owned())));
    assert!(finding(&by_environment, "BT014").detail.contains("ERL_MAX_PORTS"));
    // A table of which a tenth or more is in use is not oversized.
    assert_healthy(&limit(16_777_216).with(|n| n.ports = (5_000_000, 0)), "BT014");
    assert_healthy(&node(), "BT014");
}

#[test]
fn an_interpreter_is_found_if_its_release_has_a_jit() {
    let with = |known: &[(&'static str, &str)]| {
        node().with(|n| {
            n.cpu = 0.6;
            n.facts.extend(known.iter().map(|(key, value)| (*key, (*value).to_owned())));
        })
    };
    let found = finding(&with(&[(facts::EMU_FLAVOR, "emu")]), "BT034");
    assert_eq!((found.level, entries(&found)), (Level::Warning, vec!["build.jit"]));
    let asked = [(facts::EMU_FLAVOR, "emu"), (facts::INIT_ARGS, r#"["-emu_flavor emu","-noinput"]"#)];
    let asked = finding(&with(&asked), "BT034");
    assert_eq!(entries(&asked), ["-emu_flavor"]);
    // Some builds name the emulator with the JIT differently, and do not start with `-emu_flavor jit`. So the advice is to leave out the
    // flag.
    assert_eq!(asked.remedies[0].change, "leave out -emu_flavor emu");
    let idle = with(&[(facts::EMU_FLAVOR, "emu")]).with(|n| n.cpu = 0.01);
    assert_eq!(finding(&idle, "BT034").level, Level::Notice);
    for known in [
        [(facts::EMU_FLAVOR, "jit"), (facts::OTP_RELEASE, "27")],
        // ARM64 has a JIT since OTP 25.
        [(facts::EMU_FLAVOR, "emu"), (facts::ARCHITECTURE, "riscv64-unknown-linux-gnu")],
    ] {
        assert_healthy(&with(&known), "BT034");
    }
    let arm = |release| {
        with(&[
            (facts::EMU_FLAVOR, "emu"),
            (facts::ARCHITECTURE, "aarch64-unknown-linux-gnu"),
            (facts::OTP_RELEASE, release),
        ])
    };
    assert_healthy(&arm("24"), "BT034");
    assert_eq!(finding(&arm("25"), "BT034").level, Level::Warning);
}

#[test]
fn a_debug_emulator_is_found() {
    let of = |kind: &str| node().with(|n| n.facts.push((facts::EMU_TYPE, kind.to_owned())));
    let found = finding(&of("debug"), "BT034");
    assert_eq!((found.level, found.subject_text().as_deref()), (Level::Critical, Some("debug")));
    assert_eq!(entries(&found), ["-emu_type"]);
    assert_eq!(finding(&of("lcnt"), "BT034").level, Level::Notice);
    assert_eq!(finding(&of("frmptr"), "BT034").level, Level::Notice);
}
