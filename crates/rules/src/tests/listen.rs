//! Tests of rules on sockets: connections that wait to be accepted, and datagrams that are dropped.

use beamtune_model::{Level, Outcome, PortRow, facts, metrics};

use super::node::{Listener, SyntheticNode, SyntheticProcess, TcpGroup, node};
use super::{Read, assert_healthy, entries, finding, outcome, row};

fn listening(waiting: &'static [i64], limit: Option<i64>) -> SyntheticNode {
    node().with(|n| n.listeners = vec![Listener { address: "0.0.0.0:8080", waiting, limit }])
}

#[test]
fn waiting_connections_are_found_with_their_port_and_waiting_time() {
    let sick = listening(&[60, 70, 80], Some(128));
    let found = finding(&sick, "BT054");
    assert_eq!((found.level, found.subject_text().as_deref()), (Level::Critical, Some("0.0.0.0:8080")));
    assert_eq!(found.title, "0.0.0.0:8080: 69 connections wait 1.4 s to be accepted");
    let begin = "queue length at most 80 of 128; scheduler utilization 30 %: ";
    assert!(found.detail.starts_with(begin), "{}", found.detail);
    assert_eq!(
        entries(&found),
        ["code.accept_loop", "code.more_in_flight", "socket.backlog", "host.listen_backlog"]
    );
    // If other sockets listen, too, the waiting time is less certain.
    let shared = finding(&sick.clone().with(|n| n.other_listeners = 3), "BT054");
    assert!(shared.title.contains("wait at least 1.4 s") && shared.against.len() == 1, "{shared:#?}");
    // Accepted connections are counted for both addresses of the node together.
    let two = sick.clone().with(|n| {
        n.listeners.push(Listener { address: "0.0.0.0:9090", waiting: &[0, 0, 0], limit: Some(128) });
    });
    let both = finding(&two, "BT054");
    assert!(both.title.contains("wait at least 1.4 s") && both.against.len() == 1, "{both:#?}");
    // A short wait at a high rate of connections is no finding; at a low rate it is one.
    assert_healthy(&listening(&[0, 1, 2], Some(1_024)).with(|n| n.connections = (1_000, 0)), "BT054");
    let few = finding(&listening(&[0, 1, 2], Some(1_024)).with(|n| n.connections = (5, 0)), "BT054");
    assert_eq!((few.level, entries(&few)), (Level::Warning, vec!["code.accept_loop", "code.more_in_flight"]));
    // A client has waited all the time, and no other client has come since.
    let stuck = finding(&listening(&[1], Some(128)).with(|n| n.connections = (0, 0)), "BT054");
    assert!(stuck.level == Level::Critical && stuck.title.contains("waits at least 10.0 s"), "{stuck:#?}");
    // The waiting time is unknown if another program accepts thousands of connections. A queue that is never empty is worth a notice.
    let other = listening(&[3, 2], None).with(|n| (n.connections, n.other_listeners) = ((5_000, 0), 1));
    assert_eq!(finding(&other, "BT054").level, Level::Notice);
    // A queue that is filled once or twice is chance.
    assert_healthy(&listening(&[9, 0, 0, 0, 0, 0], Some(10)), "BT054");
}

#[test]
fn a_longer_queue_is_advised_if_it_was_full_and_longer_than_before() {
    let advised = |waiting, limit| {
        let found = finding(&listening(waiting, Some(limit)), "BT054");
        let change = |entry: &str| {
            let remedy = found.remedies.iter().find(|remedy| remedy.entry == entry);
            remedy.map(|remedy| remedy.change.clone())
        };
        (change("socket.backlog"), change("host.listen_backlog").is_some())
    };
    let text = |text: &str| Some(format!("{{backlog, {text}"));
    assert_eq!(advised(&[5, 6], 5), (text("1024} where connections come in bursts (now 5)"), false));
    assert_eq!(
        advised(&[1_000, 1_025], 1_024),
        (text("4096} where connections come in bursts (now 1024)"), false)
    );
    let cut = |to: i64, now: i64| {
        text(&format!(
            "{to}}} where connections come in bursts (now {now}), with net.core.somaxconn at least as large: it limits the backlog"
        ))
    };
    assert_eq!(advised(&[128, 129], 128), (cut(1_024, 128), true));
    assert_eq!(advised(&[4_000, 4_097], 4_096), (cut(16_384, 4_096), true));
    assert_eq!(advised(&[2_000, 2_001], 2_000), (cut(8_000, 2_000), true));
    assert_eq!(advised(&[60, 70, 80], 1_024), (None, false));
}

#[test]
fn dropped_connections_are_attributed_to_the_vm_if_its_queue_is_full_or_only_it_listens() {
    let away = listening(&[0], Some(5)).with(|n| {
        n.connections = (50, 1);
        n.listeners.push(Listener { address: "[::]:4369", waiting: &[0], limit: Some(128) });
    });
    let found = finding(&away, "BT054");
    assert_eq!((found.level, found.subject_text().as_deref()), (Level::Warning, Some("0.0.0.0:8080")));
    assert_eq!(found.title, "0.0.0.0:8080: accept queue overflows, 1.0 connections/s dropped");
    assert!(found.detail.starts_with("queue length at most 0 of 5; "), "{found:#?}");
    assert!(entries(&found).contains(&"socket.backlog"));
    let shared = away.with(|n| n.other_listeners = 1);
    let Outcome::Healthy(sentence) = outcome(&shared.period(), "BT054") else {
        panic!("the drops belong to another program")
    };
    assert!(sentence.ends_with("those of another program"), "{sentence}");
    // The queue of the VM, with 5 places, is full long before one with 128.
    let short = finding(&shared.clone().with(|n| n.other_accept_queue_limit = Some(128)), "BT054");
    assert!(short.title.contains("accept queue overflows"), "{short:#?}");
    assert_healthy(&shared.clone().with(|n| n.other_accept_queue_limit = Some(16)), "BT054");
    let full = shared.with(|n| n.listeners[1].waiting = &[129, 0, 0, 0, 0, 0]);
    assert_eq!(finding(&full, "BT054").subject_text().as_deref(), Some("[::]:4369"));
}

#[test]
fn the_reason_for_waiting_connections_follows_from_the_vms_work_and_product() {
    let sick = || listening(&[60, 70, 80], Some(1_024));
    let busy = finding(&sick().with(|n| n.utilization = 0.97), "BT054");
    assert!(busy.detail.ends_with("scheduler utilization 97 %: no time to accept"), "{busy:#?}");
    // A queue with room need not be longer.
    assert!(entries(&busy).is_empty(), "{busy:#?}");
    let fact = |key, value: &str| sick().with(|n| n.facts.push((key, value.to_owned())));
    let rabbit = finding(&fact(facts::PRODUCT, "RabbitMQ 3.10.8"), "BT054");
    assert_eq!(entries(&rabbit), ["rabbitmq.listeners"]);
    let ranch = fact(facts::APPLICATIONS, r#"{"kernel":"8.5","ranch":"2.1.0"}"#).with(|n| {
        let stands = |place: &str| SyntheticProcess {
            row: row(|r| r.current_function = Some(place.to_owned())),
            ..SyntheticProcess::default()
        };
        n.busiest = vec![stands("ranch_conns_sup:start_protocol/3")];
        n.sockets = vec![PortRow {
            name: "tcp_inet".to_owned(),
            connected: Some("<0.77.0>".to_owned()),
            ..PortRow::default()
        }];
    });
    let ranch = finding(&ranch, "BT054");
    assert!(ranch.detail.ends_with("Ranch acceptors wait: max_connections is reached"), "{ranch:#?}");
    assert_eq!(entries(&ranch), ["ranch.max_connections", "ranch.num_acceptors"]);
    let told = |text: &str| ranch.evidence.iter().any(|e| e.text.as_deref() == Some(text));
    assert!(told("<0.77.0>"), "{ranch:#?}");
    let behind = sick().with(|n| {
        let row = row(|r| r.initial_call = Some("ranch_conns_sup:init/6".to_owned()));
        n.busiest = vec![SyntheticProcess { queue: (40, 0), row, ..SyntheticProcess::default() }];
    });
    // If no acceptor was sampled at the limit, there may be none. If connections are started slowly, the limit is not the cause.
    let of_ranch = |node: SyntheticNode| {
        node.with(|n| n.facts.push((facts::APPLICATIONS, r#"{"ranch":"2.1.0"}"#.to_owned())))
    };
    assert_eq!(
        entries(&finding(&of_ranch(sick()), "BT054")),
        ["ranch.num_acceptors", "ranch.max_connections"]
    );
    assert_eq!(entries(&finding(&of_ranch(behind.clone()), "BT054"))[0], "code.accept_loop");
    let behind = finding(&behind, "BT054");
    assert!(behind.evidence.iter().any(|e| e.value == Some(40.0)), "{behind:#?}");
}

#[test]
fn queues_that_could_not_be_read_are_not_judged() {
    let without = node().with(|n| n.missing_metrics.push(&metrics::LISTENING_SOCKETS));
    assert!(matches!(outcome(&without.period(), "BT054"), Outcome::NotJudged { .. }));
    let short = node().with(|n| n.seconds = 2);
    assert!(matches!(outcome(&short.period(), "BT054"), Outcome::NotJudged { .. }));
    let Outcome::Healthy(sentence) = outcome(&node().with(|n| n.listeners.clear()).period(), "BT054") else {
        panic!("a node without listening sockets is healthy")
    };
    assert_eq!(sentence, "no listening TCP socket");
}

#[test]
fn dropped_datagrams_are_found() {
    let with = |drops| node().with(|n| n.udp_drops = vec![("0.0.0.0:8125", drops), ("0.0.0.0:53", 0)]);
    let levels = [(50, Level::Critical), (20, Level::Warning), (1, Level::Notice)];
    for (drops, level) in levels {
        // A hundred datagrams arrive per second.
        let node = with(drops).with(|n| n.datagrams = if drops == 1 { 500 } else { 100 });
        let found = finding(&node, "BT075");
        assert_eq!(found.level, level, "{drops}");
        assert_eq!(found.subject_text().as_deref(), Some("0.0.0.0:8125"));
        assert_eq!(entries(&found), ["socket.recbuf", "host.socket_buffers", "code.read_datagrams"]);
    }
    assert_healthy(&with(0), "BT075");
    assert_healthy(&with(1).with(|n| n.datagrams = 2_000), "BT075");
}

fn connected(group: &'static str, followed: &'static [(&'static str, i64, Option<i64>)]) -> SyntheticNode {
    let connections: &[i64] = if group.starts_with("to ") { &[] } else { &[52] };
    let unread = followed.len() as i64;
    node().with(|n| n.tcp = vec![TcpGroup { group, connections, unread, sampled: followed }])
}

#[test]
fn unread_connections_are_found_with_their_waiting_time() {
    const C2S: &str = "0.0.0.0:5222";
    let check = |node: &SyntheticNode, level: Level, begins: &str, fixes: &[&str]| {
        let found = finding(node, "BT079");
        assert_eq!((found.level, entries(&found)), (level, fixes.to_vec()), "{found:#?}");
        assert!(found.title.starts_with(begins), "{}", found.title);
    };
    let read = ["code.read_sockets"];
    let shaped =
        connected(C2S, &[("10.0.0.7:41234", 90_000, Some(3_000)), ("10.0.0.8:41235", 120_000, Some(3_000))]);
    let text = "2 of 52 connections at 0.0.0.0:5222 unread, bytes wait 40 s";
    check(&shaped, Level::Warning, text, &read);
    let of_ejabberd = shaped.clone().with(|n| n.facts.push((facts::PRODUCT, "ejabberd 23.01".to_owned())));
    check(&of_ejabberd, Level::Warning, text, &["ejabberd.shaper"]);
    // Nothing is read, whether the number of arriving bytes is known or not.
    let idle = connected("to 10.0.0.9:5432", &[("10.0.0.1:40000", 9_000, Some(0))]);
    check(&idle, Level::Warning, "1 connection to 10.0.0.9:5432 unread for 10 s", &read);
    let unknown = connected(C2S, &[("10.0.0.7:41234", 9_000, None)]);
    check(&unknown, Level::Warning, "1 of 52 connections at 0.0.0.0:5222 unread for 10 s", &read);
    // The VM has no time to read.
    let busy = shaped.clone().with(|n| n.utilization = 0.97);
    check(&busy, Level::Warning, text, &[]);
    // In a transfer at full speed, some bytes always wait, for milliseconds.
    assert_healthy(&connected(C2S, &[("10.0.0.7:41234", 6_000_000, Some(100_000_000))]), "BT079");
    assert_healthy(&connected(C2S, &[]), "BT079");
    // Many connections are delayed a little. The wait is computed from all waiting and all read bytes.
    let slow = |waiting: i64, read: i64| {
        connected(C2S, &[]).with(|n| {
            n.series.push((&metrics::TCP_WAITING, C2S, waiting, 0));
            n.series.push((&metrics::IO_INPUT, "", 0, read));
        })
    };
    let found = finding(&slow(170_000, 50_000), "BT079");
    assert_eq!((found.level, entries(&found)), (Level::Notice, read.to_vec()));
    assert_eq!(found.title, "Received bytes at 0.0.0.0:5222 wait 3 s to be read");
    assert_healthy(&slow(1_000_000, 100_000_000), "BT079");
    assert_healthy(&slow(500, 600), "BT079");
    let short = shaped.with(|n| n.seconds = 3);
    assert!(matches!(outcome(&short.period(), "BT079"), Outcome::NotJudged { .. }));
    let without = node().with(|n| n.missing_metrics.push(&metrics::TCP_SAMPLED));
    assert!(matches!(outcome(&without.period(), "BT079"), Outcome::NotJudged { .. }));
}

#[test]
fn the_reader_of_a_connection_is_the_owner_of_the_port_that_has_read_as_much() {
    let unread = connected("0.0.0.0:5222", &[("10.0.0.7:41234", 90_000, Some(3_000))]);
    let period = unread.period();
    let last = |metric| period.stat(metric, "0.0.0.0:5222,10.0.0.7:41234").expect("recorded").last.value;
    let read = last(&metrics::TCP_RECEIVED) - last(&metrics::TCP_UNREAD_BYTES);
    let with_ports = |ports: &[(&'static str, i64)]| {
        finding(
            &unread.clone().with(|n| {
                let port = |&(owner, input_bytes): &(&str, i64)| PortRow {
                    id: format!("#Port of {owner}"),
                    name: "tcp_inet".to_owned(),
                    connected: Some(owner.to_owned()),
                    input_bytes,
                    ..PortRow::default()
                };
                n.sockets = ports.iter().map(port).collect();
                let session = row(|row| row.name = Some("lobby".to_owned()));
                n.busiest = vec![SyntheticProcess {
                    pid: "<0.70.0>",
                    reductions: 10,
                    row: session,
                    ..SyntheticProcess::default()
                }];
            }),
            "BT079",
        )
        .detail
    };
    let detail = with_ports(&[("<0.70.0>", read), ("<0.71.0>", 12)]);
    assert!(detail.contains("90.0 kB from 10.0.0.7:41234 in the receive queue of 0.0.0.0:5222"), "{detail}");
    assert!(detail.contains("to be read by lobby (<0.70.0>)"), "{detail}");
    let detail = with_ports(&[("<0.70.0>", read), ("<0.71.0>", read)]);
    assert!(detail.contains("is not recorded: inet:i()"), "{detail}");
}

#[test]
fn a_connection_limit_a_short_backlog_and_slow_acceptors_are_distinguished() {
    let with = |waiting: &'static [i64], limit, open: &'static [i64]| {
        let connected = TcpGroup { group: "0.0.0.0:8080", connections: open, unread: 0, sampled: &[] };
        listening(waiting, Some(limit)).with(|n| n.tcp = vec![connected])
    };
    let check = |node: &SyntheticNode, says: &str, fixes: &[&str]| {
        let found = finding(node, "BT054");
        assert!(found.detail.contains(says), "{}", found.detail);
        assert_eq!(entries(&found), fixes, "{found:#?}");
    };
    let limit = ["code.connection_limit"];
    let slow = ["code.accept_loop", "code.more_in_flight"];
    check(&with(&[60, 61, 62], 1_024, &[100]), "100 connections stay open", &limit);
    // One connection ends, and the next one is accepted.
    check(&with(&[60, 61, 62], 1_024, &[100, 99]), "100 connections stay open", &limit);
    // In that case, a full queue is no reason for a longer one.
    check(&with(&[128, 129], 128, &[100]), "100 connections stay open", &limit);
    // So few connections may be those that the acceptors handle, unless their number never changes.
    check(&with(&[60, 61, 62], 1_024, &[4]), "too few acceptors", &slow);
    let still = with(&[60], 1_024, &[4]).with(|n| n.connections = (0, 0));
    check(&still, "4 connections stay open", &limit);
    check(&with(&[60, 61, 62], 1_024, &[100, 200, 300]), "too few acceptors", &slow);
    // The queue is mostly empty, and full for moments.
    let bursts = with(&[0, 0, 0, 0, 0, 5], 5, &[10, 30]).with(|n| n.connections = (50, 2));
    check(&bursts, "bursts exceed the backlog", &["socket.backlog"]);
    // If the schedulers are busy, that is the reason.
    check(&with(&[60, 61, 62], 1_024, &[100]).with(|n| n.utilization = 0.97), "no time to accept", &[]);
}

#[test]
fn connections_too_short_to_be_sampled_are_counted() {
    let short = |per_s| {
        churning(0, &[3], 0).with(|n| {
            n.connections = (per_s, 0);
            // Other sockets belong to another program.
            n.other_listeners = 3;
        })
    };
    let says = |node: &SyntheticNode| {
        let Outcome::Healthy(says) = outcome(&node.period(), "BT083") else { panic!("a finding") };
        says
    };
    let many = says(&short(42));
    assert!(many.starts_with("connections accepted in the network namespace: 42/s; sampled"), "{many}");
    let few = says(&short(2));
    assert_eq!(few, "connections accepted in the network namespace: 2.0/s");
    let unknown = says(&short(42).with(|n| n.missing_metrics.push(&metrics::PASSIVE_OPENS)));
    assert!(unknown.ends_with("number of shorter ones unknown"), "{unknown}");
}

const CHURN: &str = "0.0.0.0:8080";

/// A node with this many new connections per second, open connections, and connections that it has closed in ten seconds.
fn churning(accepted: i64, open: &'static [i64], closed: i64) -> SyntheticNode {
    node().with(|n| {
        n.tcp = vec![TcpGroup { group: CHURN, connections: open, unread: 0, sampled: &[] }];
        n.series.push((&metrics::TCP_BEGUN, CHURN, 0, accepted));
        n.series.push((&metrics::TCP_CLOSED, CHURN, closed, 0));
        n.connections = (accepted, 0);
        (n.utilization, n.cpu) = (0.9, 0.9);
    })
}

#[test]
fn short_lived_connections_are_reported_with_the_side_that_closes_them() {
    let check = |node: &SyntheticNode, level: Level, says: &str, fixes: &[&str]| {
        let found = finding(node, "BT083");
        assert_eq!((found.level, entries(&found)), (level, fixes.to_vec()), "{found:#?}");
        assert_eq!(found.title, says);
    };
    let sick = churning(200, &[790, 800, 810], 2_000);
    let by_node = "0.0.0.0:8080: 200 connections/s live 4 s, closed by the node";
    check(&sick, Level::Warning, by_node, &["code.idle_timeout"]);
    let lived = |lives: &'static [(&'static str, i64)]| {
        let series = lives.iter().map(|(life, count)| (&metrics::TCP_LIVED, *life, *count, 0));
        sick.clone().with(|n| n.series.extend(series))
    };
    let same = lived(&[
        ("0.0.0.0:8080,3", 200),
        ("0.0.0.0:8080,4", 500),
        ("0.0.0.0:8080,5", 100),
        ("0.0.0.0:8080,8", 9),
    ]);
    let by_timer = "0.0.0.0:8080: 200 connections/s live 4 s, closed by a timeout";
    check(&same, Level::Warning, by_timer, &["code.idle_timeout"]);
    let spread = lived(&[
        ("0.0.0.0:8080,1", 200),
        ("0.0.0.0:8080,4", 200),
        ("0.0.0.0:8080,7", 200),
        ("0.0.0.0:8081,4", 2_000),
    ]);
    check(&spread, Level::Warning, by_node, &["code.idle_timeout"]);
    // In this order: the CPU is mostly idle; few connections arrive.
    check(&sick.clone().with(|n| n.utilization = 0.2), Level::Notice, by_node, &["code.idle_timeout"]);
    let few = "0.0.0.0:8080: 40 connections/s live 4 s, closed by the node";
    check(&churning(40, &[160], 400), Level::Notice, few, &["code.idle_timeout"]);
    let by_clients = "0.0.0.0:8080: 200 connections/s live 4 s, closed by clients";
    check(&churning(200, &[800], 10), Level::Notice, by_clients, &["code.keep_connections"]);
    // All clients give up at the same age, whatever the protocol: keep-alive does not help.
    let gives_up = churning(200, &[1_800], 10).with(|n| {
        n.series.push((&metrics::TCP_LIVED, "0.0.0.0:8080,4", 700, 0));
        n.series.push((&metrics::TCP_LIVED, "0.0.0.0:8080,9", 20, 0));
    });
    let says = "0.0.0.0:8080: 200 connections/s live 4 s, then clients give up";
    check(&gives_up, Level::Notice, says, &["code.client_retry"]);
    // As many connections are in TIME_WAIT as are closed between two samples.
    let requests = "0.0.0.0:8080: 500 connections/s live below 1 s, closed by the node";
    check(&churning(9, &[4], 5_000), Level::Notice, requests, &["code.keep_connections"]);
    let rabbit = sick.clone().with(|n| n.facts.push((facts::PRODUCT, "RabbitMQ 3.10.8".to_owned())));
    check(&rabbit, Level::Warning, by_node, &["rabbitmq.long_lived"]);
}

#[test]
fn connections_that_stay_or_cost_nothing_are_healthy() {
    // In this order: clients that come back and stay; connections that live for minutes; a server with short requests; an idle node.
    assert_healthy(&churning(100, &[0, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1_000], 0), "BT083");
    assert_healthy(&churning(20, &[1_200], 200), "BT083");
    assert_healthy(&churning(50, &[5], 500), "BT083");
    assert_healthy(&churning(5, &[20], 50), "BT083");
    assert_healthy(&churning(200, &[800], 2_000).with(|n| n.utilization = 0.02), "BT083");
    assert_healthy(&node(), "BT083");
    // Most connections stay, and a few clients connect for one request each, too short to be sampled.
    assert_healthy(&churning(0, &[260], 240), "BT083");
    assert_healthy(&churning(3, &[40], 600), "BT083");
    let old = node().with(|n| n.missing_metrics.push(&metrics::TCP_BEGUN));
    assert!(matches!(outcome(&old.period(), "BT083"), Outcome::NotJudged { .. }));
}
