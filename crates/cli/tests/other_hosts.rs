//! Nodes on another host, simulated on one machine. The node runs in a container with its own addresses, beamtune in a PID namespace
//! that hides the container's processes.
#![allow(clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "these are tests")]

mod common;

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use beamtune_model::metrics::ROUND_TRIP;
use beamtune_recording::Reader;
use common::containers::{Container, can_create_namespaces};
use common::{Otp, Output, TIMEOUT, all_otps, beamtune, folder, on_all_otps, run, unique};

const COOKIE: &str = "other_hosts";

/// Starts a node in a container. The host in its name does not resolve to the container.
fn node(otp: &Otp, name: &str, args: &[&str]) -> Container {
    let own = ["-name", name, "-setcookie", COOKIE, "-kernel", "inet_dist_listen_min", "9100"];
    let own = [&own[..], &["inet_dist_listen_max", "9100"], args].concat();
    Container::run(otp, &["-n", "-m", "-u", "-p"], &[], name, &own)
}

/// Runs beamtune in a namespace in which the node's process is not visible, with these lines in /etc/hosts.
fn elsewhere(hosts: &str, folder: &Path, args: &[&str]) -> Output {
    let file = folder.join("hosts");
    let own = fs::read_to_string("/etc/hosts").unwrap_or_default();
    fs::write(&file, format!("{hosts}\n{own}")).expect("written");
    let script = "mount --bind \"$1\" /etc/hosts && shift && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["-p", "-m", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script, "sh"]);
    command.arg(file).arg(beamtune().get_program()).args(args).env("BEAMTUNE_COOKIE", COOKIE);
    run(&mut command)
}

fn assert_attached(output: &Output, node: &Container) {
    assert!(matches!(output.status, Some(0 | 1)), "{:?}: {}", output.status, output.stderr);
    let answer = output.json();
    assert_eq!(answer["node"]["name"], node.name.as_str());
    // The agent sends the data of the other host.
    for samples in ["vm_samples", "host_samples"] {
        assert!(answer["period"][samples].as_i64().is_some_and(|samples| samples > 0), "{answer:#}");
    }
}

fn doctor(target: &str) -> [&str; 5] {
    ["doctor", target, "--for", "1s", "--json"]
}

#[test]
fn node_on_another_host_is_reached_by_name_and_address() {
    if !can_create_namespaces() {
        return;
    }
    on_all_otps(|otp| {
        let folder = folder();
        let (alive, host) = (unique("far"), "far.example.test");
        let node = node(otp, &format!("{alive}@{host}"), &[]);
        let [v4, v6] = node.connect();
        // At the first address, only EPMD listens; at the second, also the node.
        let hosts = format!("{v6} {host}\n{v4} {host}");
        assert_attached(&elsewhere(&hosts, folder.path(), &doctor(&node.name)), &node);
        for target in [format!("{host}:9100"), format!("{v4}:9100")] {
            assert_attached(&elsewhere(&hosts, folder.path(), &doctor(&target)), &node);
        }
        let output = elsewhere(&hosts, folder.path(), &doctor(&format!("[{v6}]:9100")));
        output.assert_refused(&[&format!("[{v6}]:9100 cannot be reached"), "refused"]);
        let output = elsewhere("", folder.path(), &doctor(&node.name));
        output.assert_refused(&["cannot resolve host far.example.test"]);
        // This name is not registered with the EPMD of the other host.
        let output = elsewhere(&hosts, folder.path(), &doctor(&format!("nobody@{host}")));
        output.assert_refused(&["has no node \"nobody\"", &alive]);
    });
}

#[test]
fn host_with_only_an_ipv6_address_is_reached() {
    if !can_create_namespaces() {
        return;
    }
    on_all_otps(|otp| {
        let folder = folder();
        let host = "far6.example.test";
        let node = node(otp, &format!("{}@{host}", unique("far")), &["-proto_dist", "inet6_tcp"]);
        let [_, v6] = node.connect();
        let hosts = format!("{v6} {host}");
        assert_attached(&elsewhere(&hosts, folder.path(), &doctor(&node.name)), &node);
        assert_attached(&elsewhere(&hosts, folder.path(), &doctor(&format!("{host}:9100"))), &node);
        assert_attached(&elsewhere("", folder.path(), &doctor(&format!("[{v6}]:9100"))), &node);
    });
}

/// Starts a proxy that delays each byte, in both directions. Returns its port. It ends with this process.
fn start_delaying_proxy(to: SocketAddr, delay: Duration) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("its number").port();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let node = TcpStream::connect(to).expect("the node");
            let clone = |stream: &TcpStream| stream.try_clone().expect("a second one");
            for (from, to) in [(clone(&client), clone(&node)), (node, client)] {
                from.set_nodelay(true).and_then(|()| to.set_nodelay(true)).expect("at once");
                forward(from, to, delay);
            }
        }
    });
    port
}

fn forward(mut from: TcpStream, mut to: TcpStream, delay: Duration) {
    let (sender, chunks) = mpsc::channel::<(Instant, Vec<u8>)>();
    thread::spawn(move || {
        let mut chunk = [0; 65_536];
        while let Ok(length @ 1..) = from.read(&mut chunk) {
            if sender.send((Instant::now() + delay, chunk[..length].to_vec())).is_err() {
                break;
            }
        }
    });
    thread::spawn(move || {
        for (due, chunk) in chunks {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&chunk).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
}

#[test]
fn delayed_connection_provides_a_sample_every_second() {
    if !can_create_namespaces() {
        return;
    }
    const DELAY: Duration = Duration::from_millis(50);
    for otp in all_otps() {
        let folder = folder();
        let node = node(&otp, &format!("{}@127.0.0.1", unique("slow")), &[]);
        let [v4, _] = node.connect();
        let port = start_delaying_proxy(format!("{v4}:9100").parse().expect("an address"), DELAY);
        let deadline = Instant::now() + TIMEOUT;
        let (reader, samples) = loop {
            let file = folder.path().join(format!("{}.btr", unique("slow")));
            let (target, path) = (format!("127.0.0.1:{port}"), file.display().to_string());
            let output = elsewhere("", folder.path(), &["record", &target, "--for", "5s", "-o", &path]);
            assert_eq!(output.status, Some(0), "{}", output.stderr);
            let reader = Reader::open(&file).expect("a recording");
            let samples: Vec<_> = reader.samples().map(|sample| sample.expect("readable")).collect();
            // A busy host occasionally misses a tick; a connection that is too slow would miss one in every recording.
            let mut gaps = samples.iter().flat_map(|sample| &sample.gaps);
            if !gaps.any(|gap| gap.source == "recorder") || Instant::now() > deadline {
                break (reader, samples);
            }
        };
        let of_vm = samples.iter().filter(|sample| sample.tick.vm.is_some()).count();
        assert!(of_vm >= 5, "OTP {}: {of_vm} samples in 5 s", otp.release);
        for pair in samples.windows(2) {
            let apart_ms = (pair[1].tick.t - pair[0].tick.t) / 1_000_000;
            assert!((900..1_100).contains(&apart_ms), "OTP {}: {apart_ms} ms apart", otp.release);
        }
        // The round-trip times show that the delay took effect.
        let series = reader.series().expect("series");
        let round_trip = series.find(ROUND_TRIP.group, "", ROUND_TRIP.name).expect("round trips");
        let of_round_trip = |(id, value): &(_, i64)| (*id == round_trip).then_some(*value);
        let readings = samples.iter().flat_map(|sample| &sample.readings);
        let trips: Vec<i64> = readings.filter_map(of_round_trip).collect();
        assert!(!trips.is_empty() && trips.iter().all(|trip| *trip >= 100_000_000), "{trips:?}");
    }
}
