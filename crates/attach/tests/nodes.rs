//! Tests connections and calls to real nodes of each release.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "test code")]

mod common;

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use beamtune_attach::AttachError;
use beamtune_attach::connection::{Connection, Settings};
use beamtune_attach::cookie::{CookieSettings, find, places};
use beamtune_attach::error::Step;
use beamtune_attach::etf::{Document, Value};
use beamtune_attach::locate::{locate, registered};
use beamtune_attach::message::{self, Spawn};
use common::{
    COOKIE, PATIENCE, TestNode, connect, evaluate, eventually, form, found, free_port, on_each_release,
    on_release, process, soon, try_evaluate, unique_name,
};

const SECOND: Duration = Duration::from_secs(1);

fn call(connection: &mut Connection, module: &str, function: &str, arguments: Vec<Value<'_>>) -> Document {
    connection.call(module, function, arguments, soon()).unwrap()
}

fn system_info(connection: &mut Connection, item: &str) -> Document {
    call(connection, "erlang", "system_info", vec![Value::atom(item)])
}

#[test]
fn functions_can_be_called() {
    on_each_release(|otp| {
        let node = otp.start();
        let mut connection = node.connect();
        assert_eq!(&**connection.node(), node.name);
        let release = system_info(&mut connection, "otp_release");
        assert_eq!(release.root().to_text().unwrap(), otp.release.to_string());
        let pid = call(&mut connection, "os", "getpid", vec![]);
        assert_eq!(pid.root().to_text().unwrap(), node.os_pid().to_string());
        let creation = system_info(&mut connection, "creation");
        assert_eq!(creation.root().as_u64().unwrap(), u64::from(connection.established().creation));
    });
}

#[test]
fn failed_call_is_an_error_with_the_reason() {
    on_each_release(|otp| {
        let node = otp.start();
        let mut connection = node.connect();
        let mut check = |module, function, arguments, expect: &str| {
            let error = connection.call(module, function, arguments, soon()).unwrap_err().to_string();
            assert!(error.contains(expect), "{error}\ninstead of {expect}");
        };
        let name = &node.name;
        let undefined = format!("nowhere:nothing/0 on {name} failed: error: undef");
        check("nowhere", "nothing", vec![], &undefined);
        check("erlang", "exit", vec![Value::atom("why")], "exit: why");
        check("erlang", "throw", vec![Value::atom("why")], "throw: why");
        check("erlang", "error", vec![Value::atom("why")], "error: why");
        check("erlang", "atom_to_list", vec![Value::from(1i64)], "error: badarg");
        let killed = "Me = self(), spawn(fun() -> exit(Me, kill) end), receive nothing -> ok end";
        let error = try_evaluate(&mut connection, killed).unwrap_err().to_string();
        assert!(error.ends_with("failed: killed"), "{error}");
        // A call that exceeds its deadline.
        let sleep = vec![Value::from(60_000i64)];
        let late = connection.call("timer", "sleep", sleep, Instant::now() + SECOND / 5).unwrap_err();
        assert!(matches!(late, AttachError::TimedOut { step: Step::Receive, .. }), "{late}");
        // The connection is still usable.
        assert!(call(&mut connection, "erlang", "node", vec![]).root().is_atom(name));
    });
}

#[test]
fn call_waits_while_the_process_table_is_full() {
    // Keeps the process table full for three seconds.
    const FILL: &str = "End = erlang:monotonic_time(millisecond) + 3000,
        Fill = fun Fill() ->
            Left = End - erlang:monotonic_time(millisecond),
            [catch spawn(timer, sleep, [Left]) || _ <- lists:seq(1, 1100), Left > 0, erlang:system_info(process_count) < 1024],
            receive after 5 -> ok end,
            Left > 0 andalso Fill()
        end,
        spawn(Fill), ok";
    on_each_release(|otp| {
        let node = otp.start_with(&["+P", "1024"]);
        let mut connection = node.connect();
        evaluate(&mut connection, FILL);
        eventually("a full table", || {
            let called = connection.call("erlang", "node", vec![], Instant::now() + SECOND / 2);
            matches!(called, Err(AttachError::ProcessTableFull { .. }))
        });
        assert!(call(&mut connection, "erlang", "node", vec![]).root().is_atom(&node.name));
    });
}

#[test]
fn terms_of_all_types_survive_the_round_trip() {
    on_each_release(|otp| {
        let node = otp.start();
        let mut connection = node.connect();
        let me = connection.new_pid();
        let reference = connection.new_reference();
        let term = Value::tuple([
            Value::from(-1i64),
            Value::from(u64::MAX),
            Value::from(i64::MIN),
            Value::Integer(i128::MAX),
            Value::Float(-0.5),
            Value::atom("plain"),
            Value::atom("żółw"),
            Value::atom("ż".repeat(255)),
            Value::binary(vec![0; 300]),
            Value::list([]),
            Value::list([Value::from(-1i64), Value::from(-2i64)]),
            Value::list([Value::from(1i64), Value::from(2i64)]),
            Value::List((0..70_000).map(|number: i64| Value::from(number % 256)).collect()),
            Value::Tuple((0..300).map(|number: i64| Value::from(number)).collect()),
            Value::Map(vec![(Value::atom("key"), Value::tuple([]))]),
            Value::from(&me),
            Value::from(&reference),
        ]);
        let back = call(&mut connection, "lists", "last", vec![Value::list([term.clone()])]);
        assert_eq!(back.root().to_value().unwrap(), term);
        // Terms that only the node can create.
        let check = |connection: &mut Connection, expression: &str, expect: &str| {
            assert_eq!(evaluate(connection, expression).root().to_string(), expect, "{expression}");
        };
        check(&mut connection, "<<5:3>>", "<<bits>>");
        check(&mut connection, "fun lists:map/2", "#Fun<>");
        check(&mut connection, "fun(X) -> {X, 1} end", "#Fun<>");
        check(&mut connection, "hd(erlang:ports())", "#Port<>");
        check(&mut connection, "[a|b]", "[a|b]");
        check(&mut connection, "\"text\"", "\"text\"");
        check(&mut connection, "-(1 bsl 70)", "-1180591620717411303424");
        check(&mut connection, "list_to_atom([233])", "'é'");
        check(&mut connection, "1.0e300", "1e300");
        let own = evaluate(&mut connection, "self()").root().as_pid().unwrap();
        assert_eq!(&*own.node, node.name);
        let made = evaluate(&mut connection, "make_ref()").root().as_reference().unwrap();
        assert_eq!(made.creation, connection.established().creation);
    });
}

#[test]
fn beamtune_is_a_hidden_node_and_reuses_its_names() {
    on_each_release(|otp| {
        let node = otp.start();
        let mut watcher = node.connect();
        let nodes = |watcher: &mut Connection, kind: &str| {
            let nodes = call(watcher, "erlang", "nodes", vec![Value::atom(kind)]);
            let nodes = nodes.root().list().unwrap();
            nodes.map(|name| name.as_atom().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(nodes(&mut watcher, "visible"), [""; 0]);
        assert_eq!(nodes(&mut watcher, "hidden"), [watcher.established().own_name.to_string()]);
        let atoms = |watcher: &mut Connection| system_info(watcher, "atom_count").root().as_u64().unwrap();
        let connect_fifty_times = |watcher: &mut Connection| {
            let mut names = Vec::new();
            let before = atoms(watcher);
            for _ in 0..50 {
                let mut connection = node.connect();
                assert!(call(&mut connection, "erlang", "node", vec![]).root().is_atom(&node.name));
                names.push(connection.established().own_name.to_string());
                drop(connection);
                eventually("the end of a connection", || nodes(watcher, "hidden").len() == 1);
            }
            names.sort();
            names.dedup();
            (names, atoms(watcher) - before)
        };
        let (names, _) = connect_fifty_times(&mut watcher);
        assert!(names.len() <= 8 && names.iter().all(|name| name.starts_with("beamtune_")), "{names:?}");
        // By now, the node has loaded all code that this needs.
        let (_, new_atoms) = connect_fifty_times(&mut watcher);
        assert!(new_atoms <= 8, "{new_atoms}");
    });
}

#[test]
fn connecting_waits_for_a_free_name() {
    on_each_release(|otp| {
        let node = otp.start();
        let mut connections: Vec<_> = (0..8).map(|_| node.connect()).collect();
        let mut names: Vec<_> = connections.iter().map(|c| c.established().own_name.to_string()).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 8, "{names:?}");
        let state = |watcher: &mut Connection| {
            let crypto = call(watcher, "erlang", "module_loaded", vec![Value::atom("crypto")]);
            (system_info(watcher, "atom_count").root().to_string(), crypto.root().to_string())
        };
        state(&mut connections[0]);
        let before = state(&mut connections[0]);
        let refused = node.try_connect(COOKIE).unwrap_err();
        assert!(matches!(refused, AttachError::NamesTaken { names: 8, .. }), "{refused:?}");
        assert_eq!(state(&mut connections[0]), before);
        // A connection that is closed in the meantime frees its name.
        let last = connections.pop();
        let name = node.name.clone();
        let waiting = std::thread::spawn(move || connect(&name, 4369, COOKIE));
        drop(last);
        waiting.join().unwrap().unwrap();
    });
}

#[test]
fn wrong_cookie_is_an_error() {
    on_each_release(|otp| {
        let node = otp.start();
        let error = node.try_connect("another_cookie").unwrap_err();
        assert!(
            matches!(&error, AttachError::WrongCookie { node: name, .. } if *name == node.name),
            "{error:?}"
        );
        let text = error.to_string();
        assert!(
            text.contains("rejects the cookie (from the test)") && text.contains("--cookie-file"),
            "{text}"
        );
        assert!(!text.contains("another_cookie"), "{text}");
    });
}

#[test]
fn stopped_node_is_a_timeout_with_the_reason() {
    on_each_release(|otp| {
        let node = otp.start();
        let located = locate(&node.name.parse().unwrap(), 4369, PATIENCE).unwrap();
        let settings = Settings { setup_timeout: SECOND / 2, ..Settings::default() };
        let mut connection = node.connect();
        node.signal("STOP");
        let error = Connection::open(&located, &found(COOKIE), None, settings).unwrap_err();
        assert!(matches!(error, AttachError::TimedOut { step: Step::Handshake, .. }), "{error:?}");
        assert!(error.to_string().contains("is the VM stopped (SIGSTOP"), "{error}");
        // An established connection times out, and is usable again when the node continues.
        let error = connection.call("erlang", "node", vec![], Instant::now() + SECOND / 5).unwrap_err();
        assert!(matches!(error, AttachError::TimedOut { step: Step::Receive, .. }), "{error:?}");
        node.signal("CONT");
        assert!(call(&mut connection, "erlang", "node", vec![]).root().is_atom(&node.name));
    });
}

#[test]
fn end_of_the_node_is_an_error() {
    on_each_release(|otp| {
        let mut node = otp.start();
        let mut connection = node.connect();
        node.stop();
        let error = connection.call("erlang", "node", vec![], soon()).unwrap_err();
        assert!(matches!(error, AttachError::Lost { .. }), "{error:?}");
        // EPMD notices this some time later, and then no longer lists the node.
        eventually("EPMD's notice", || match node.try_connect(COOKIE).unwrap_err() {
            AttachError::NoSuchNode { .. } => true,
            AttachError::Unreachable { .. } => false,
            other => panic!("{other:?}"),
        });
    });
}

/// Uses thousands of processes, so that some exit while the connection is going down: a single one does so in 1 % of cases.
#[test]
fn node_does_not_reconnect_to_a_client_that_is_gone() {
    const PROCESSES: usize = 20_000;
    on_each_release(|otp| {
        let node = otp.start();
        let (mut gone, mut stays) = (node.connect(), node.connect());
        // Exits with a compound reason, as sessions do. Immediate terms are signalled in another way.
        let ends = "process_flag(trap_exit, true), receive {'EXIT', _, _} -> exit({one, reason}) end";
        let forms = Value::list([form(&mut gone, ends).unwrap()]);
        for _ in 0..PROCESSES {
            let arguments = vec![forms.clone(), Value::list([]), Value::atom("none")];
            let spawn = Spawn { module: "erl_eval", function: "exprs", arguments };
            let frame = message::spawn_request(&gone.new_reference(), &gone.new_pid(), spawn).unwrap();
            gone.send(&frame, soon()).unwrap();
        }
        let mut processes = || system_info(&mut stays, "process_count").root().as_i64().unwrap();
        eventually("the processes", || processes() > PROCESSES as i64);
        drop(gone);
        eventually("their end", || processes() < PROCESSES as i64 / 100);
        // net_kernel answers after it has handled all earlier connection requests.
        evaluate(&mut stays, "sys:get_state(net_kernel)");
        let resolver = evaluate(&mut stays, "whereis(inet_gethost_native_sup)");
        assert!(resolver.root().is_atom("undefined"), "OTP {}: {}", otp.release, resolver.root());
    });
}

#[test]
fn node_with_a_short_name_is_reached() {
    on_each_release(|otp| {
        let short = unique_name();
        let node = TestNode::start(otp, &short, &["-sname", &short, "-setcookie", COOKIE], &[]);
        let mut connection = connect(&short, 4369, COOKIE).unwrap();
        let full = connection.node().to_string();
        assert!(full.starts_with(&format!("{short}@")) && !full.contains('.'), "{full}");
        assert!(call(&mut connection, "erlang", "node", vec![]).root().is_atom(&full));
        // Also by its full name, but not with another host part.
        connect(&full, 4369, COOKIE).unwrap();
        let error = connect(&format!("{short}@127.0.0.1"), 4369, COOKIE).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("the node at this address is {full}, not {short}@127.0.0.1: use {full}")
        );
        drop(node);
    });
}

#[test]
fn unknown_name_is_an_error_with_the_registered_names() {
    on_release(25, |otp| {
        let node = otp.start();
        let error = connect("no_such_node@127.0.0.1", 4369, COOKIE).unwrap_err();
        let AttachError::NoSuchNode { known, .. } = &error else { panic!("{error:?}") };
        let short = node.name.split('@').next().unwrap();
        assert!(known.iter().any(|name| name == short), "{known:?}");
        assert!(error.to_string().contains("has no node \"no_such_node\"; registered: "), "{error}");
        let listed = registered("127.0.0.1", 4369, PATIENCE).unwrap();
        assert!(listed.iter().any(|node| node.name == short && node.port > 0), "{listed:?}");
    });
}

#[test]
fn node_at_a_known_port_needs_no_epmd() {
    on_each_release(|otp| {
        let port = free_port().to_string();
        let name = format!("{}@127.0.0.1", unique_name());
        let node = TestNode::start(
            otp,
            &name,
            &[
                &["-name", &name, "-setcookie", COOKIE, "-start_epmd", "false", "-erl_epmd_port", &port][..],
                &["-kernel", "inet_dist_listen_min", &port, "inet_dist_listen_max", &port],
            ]
            .concat(),
            // No EPMD listens there.
            &[("ERL_EPMD_PORT", &free_port().to_string())],
        );
        let mut connection = connect(&format!("127.0.0.1:{port}"), 1, COOKIE).unwrap();
        assert!(call(&mut connection, "erlang", "node", vec![]).root().is_atom(&name));
        drop(node);
    });
}

#[test]
fn cookie_of_a_node_on_this_host_is_found() {
    on_each_release(|otp| {
        let check = |arguments: &[&str], environment: &[(&str, &str)], origin: &str| {
            let name = format!("{}@127.0.0.1", unique_name());
            let node = TestNode::start(otp, &name, &[&["-name", &name], arguments].concat(), environment);
            let places = places(&CookieSettings::default(), Some(&process(&node))).unwrap();
            let cookie = find(&places, |path| std::fs::read(path)).unwrap();
            assert!(cookie.origin.ends_with(origin), "{} instead of {origin}", cookie.origin);
            let located = locate(&name.parse().unwrap(), 4369, PATIENCE).unwrap();
            let mut connection = Connection::open(&located, &cookie, None, Settings::default()).unwrap();
            assert!(call(&mut connection, "erlang", "node", vec![]).root().is_atom(&name));
        };
        check(&["-setcookie", "from_the_line"], &[], "the node's command line");
        check(&["-nocookie"], &[], "the node's command line");
        check(&[], &[("ERL_FLAGS", "-setcookie from_erl_flags")], "the node's command line");
        otp.with_file("args", b"-setcookie from_a_file", |path| {
            check(&["-args_file", path], &[], "the node's command line");
        });
        otp.with_file(".erlang.cookie", b"FROM_ITS_HOME\n", |path| {
            let home = Path::new(path).parent().unwrap().to_str().unwrap();
            check(&[], &[("HOME", home)], path);
            // Two cookies on the command line are ignored.
            check(&["-setcookie", "a", "-setcookie", "b"], &[("HOME", home)], path);
        });
    });
}

/// A separate EPMD, which is killed at the end of the test.
struct Epmd {
    child: Child,
    port: u16,
}

impl Epmd {
    fn start() -> Epmd {
        let port = free_port();
        let child = Command::new("epmd")
            .args(["-port", &port.to_string(), "-address", "127.0.0.1"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("epmd starts");
        let epmd = Epmd { child, port };
        eventually("EPMD's start", || registered("127.0.0.1", port, PATIENCE).is_ok());
        epmd
    }
}

impl Drop for Epmd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn epmd_at_another_port_is_found() {
    on_release(25, |otp| {
        let epmd = Epmd::start();
        let name = format!("{}@127.0.0.1", unique_name());
        let port = epmd.port.to_string();
        let arguments = ["-name", &name, "-setcookie", COOKIE];
        let _node = TestNode::start(otp, &name, &arguments, &[("ERL_EPMD_PORT", &port)]);
        assert_eq!(&**connect(&name, epmd.port, COOKIE).unwrap().node(), name);
        assert!(matches!(connect(&name, 4369, COOKIE), Err(AttachError::NoSuchNode { .. })));
    });
}

#[test]
fn missing_epmd_is_an_error_with_remedies() {
    let error = connect("any@127.0.0.1", free_port(), COOKIE).unwrap_err();
    assert!(matches!(error, AttachError::EpmdDown { .. }), "{error:?}");
    let text = error.to_string();
    for part in ["no EPMD answers at 127.0.0.1:", "-name or -sname", "give HOST:PORT", "ERL_EPMD_PORT"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn unused_port_is_unreachable() {
    let error = connect(&format!("127.0.0.1:{}", free_port()), 1, COOKIE).unwrap_err();
    assert!(matches!(error, AttachError::Unreachable { .. }), "{error:?}");
}

#[test]
fn unknown_host_is_an_error() {
    let error = connect("any@no-such-host.invalid", 4369, COOKIE).unwrap_err();
    assert!(
        matches!(error, AttachError::UnknownHost { .. } | AttachError::TimedOut { step: Step::Resolve, .. }),
        "{error:?}"
    );
}

#[test]
fn node_that_does_not_allow_our_connection_is_an_error() {
    on_each_release(|otp| {
        let node = otp.start();
        let mut connection = node.connect();
        assert!(evaluate(&mut connection, "net_kernel:allow(['friend@elsewhere'])").root().is_atom("ok"));
        let error = node.try_connect(COOKIE).unwrap_err();
        assert!(matches!(error, AttachError::NotAllowed { .. }), "{error:?}");
    });
}

#[test]
fn ten_megabytes_arrive_in_one_message() {
    on_each_release(|otp| {
        let node = otp.start();
        let mut connection = node.connect();
        let bytes = 10 * 1024 * 1024;
        let start = Instant::now();
        let big = evaluate(&mut connection, &format!("binary:copy(<<7>>, {bytes})"));
        println!("OTP {}: 10 MB binary in {:?}", otp.release, start.elapsed());
        let content = big.root().as_bytes().unwrap();
        assert!(content.len() == bytes && content.iter().all(|&byte| byte == 7));
        // 100,000 nested tuples with a total of 12 MB.
        let start = Instant::now();
        let rows = evaluate(
            &mut connection,
            "[{I, foo, {bar, I}, <<\"text\">>, -I, [], 1.5} || I <- lists:seq(1, 100000)]",
        );
        println!("OTP {}: 100,000 tuples in {:?}", otp.release, start.elapsed());
        let sum: i64 =
            rows.root().list().unwrap().map(|row| row.tuple_of::<7>().unwrap()[0].as_i64().unwrap()).sum();
        assert_eq!(sum, 5_000_050_000);
    });
}

#[test]
fn ticks_keep_an_idle_connection_open() {
    on_each_release(|otp| {
        // The node sends a tick every second, and drops the connection after 4 s without an answer.
        let node = otp.start_with(&["-kernel", "net_ticktime", "4"]);
        let mut connection = node.connect();
        connection.pump(Instant::now() + 7 * SECOND).unwrap();
        assert!(call(&mut connection, "erlang", "node", vec![]).root().is_atom(&node.name));
    });
}

#[test]
fn other_peers_are_distinct_errors() {
    use std::io::Write;
    use std::net::TcpListener;
    fn check(says: &'static [u8], expect: impl Fn(&AttachError) -> bool) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let peer = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(says).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            // Wait until the other side closes the connection.
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
        });
        let error = connect(&format!("127.0.0.1:{port}"), 1, COOKIE).unwrap_err();
        assert!(expect(&error), "{error:?}");
        peer.join().unwrap();
    }
    check(b"", |error| matches!(error, AttachError::ClosedDuringHandshake { .. }));
    check(b"HTTP/1.1 400 Bad Request\r\n\r\n", |error| matches!(error, AttachError::Protocol { .. }));
    check(&[21, 3, 3, 0, 2, 2, 10], |error| matches!(error, AttachError::TlsNeeded { .. }));
    check(b"\0\x01x", |error| matches!(error, AttachError::Protocol { .. }));
}
