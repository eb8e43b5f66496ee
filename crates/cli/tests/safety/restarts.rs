//! Effects of repeated restarts of the node, and of a restart of its EPMD, while the node is recorded.

use std::process::Command;
use std::time::Instant;

use beamtune_attach::locate::registered;
use beamtune_recording::Reader;

use crate::common::{Process, TIMEOUT, all_otps, folder, free_port, otp, run, unique, wait_until};
use crate::figures::{add_figure, count, short, spread};
use crate::node::{Node, NodeOptions};
use crate::recordings::{gaps, samples, vm_samples};

#[test]
fn repeatedly_restarted_node_is_recorded_after_each_restart() {
    for otp in all_otps() {
        let restarts = count(if otp.release == 25 { 10 } else { 3 }, 2);
        if count(false, otp.release != 25) {
            continue;
        }
        let options = NodeOptions {
            name: format!("{}@127.0.0.1", unique("again")),
            cookie: unique("cookie"),
            ..NodeOptions::default()
        };
        let mut node = Node::start_with(&otp, &options);
        let folder = folder();
        let file = folder.path().join("again.btr");
        let mut recorder = Process::start(node.beamtune("record").args(["--keep", "1h", "-o"]).arg(&file));
        let incarnations = || {
            Reader::open(&file).and_then(|reader| reader.recorded_incarnations()).map_or(0, |list| list.len())
        };
        wait_until("a sample", || vm_samples(&file) >= 1);
        let mut times = Vec::new();
        for restart in 1..=restarts {
            node.process.signal("KILL");
            drop(node);
            node = Node::start_with(&otp, &options);
            let begin = Instant::now();
            wait_until("the next incarnation", || incarnations() == restart + 1);
            times.push(begin.elapsed());
            node.assert_silent();
        }
        recorder.signal("INT");
        assert_eq!(recorder.wait().code(), Some(0));
        assert_eq!(incarnations(), restarts + 1);
        let gaps = gaps(&file);
        assert!(gaps.len() >= restarts, "{gaps:#?}");
        let reasons =
            ["is lost", "has no node", "cannot be reached", "reconnecting", "closed the connection"];
        let unknown: Vec<_> =
            gaps.iter().filter(|gap| !reasons.iter().any(|reason| gap.contains(reason))).collect();
        assert!(unknown.is_empty(), "{unknown:#?}");
        let case = "the node is restarted";
        add_figure(
            case,
            "restarts while it is recorded",
            otp.release,
            format!("{restarts}, with {} incarnations in the recording", incarnations()),
        );
        add_figure(
            case,
            "next incarnation in the recording, after the node is up",
            otp.release,
            spread(times),
        );
    }
}

/// Starts an EPMD for the test on this port.
fn epmd(port: u16) -> Process {
    let process = Process::start(Command::new("epmd").args(["-port", &port.to_string()]));
    wait_until("EPMD", || registered("127.0.0.1", port, TIMEOUT).is_ok());
    process
}

#[test]
fn node_is_recorded_while_epmd_is_restarted() {
    let Some(otp) = otp(25) else { return };
    let port = free_port();
    let first = epmd(port);
    let mut node = Node::visited(&otp, &NodeOptions { epmd_port: Some(port), ..NodeOptions::default() });
    let folder = folder();
    let file = folder.path().join("epmd.btr");
    let before = node.settled_footprint();
    let mut recorder = Process::start(node.beamtune("record").args(["-o"]).arg(&file));
    wait_until("two samples", || vm_samples(&file) >= 2);
    drop(first);
    let seen = samples(&file);
    wait_until("samples without EPMD", || vm_samples(&file) >= seen + 3);
    let output = run(node.beamtune("record").args(["--for", "1s", "-o"]).arg(folder.path().join("no.btr")));
    // A node on this host is found through /proc.
    assert_eq!(output.status, Some(0), "{}", output.stderr);
    add_figure("EPMD is restarted", "`record NODE` without EPMD, node on this host", 25, "works");
    let second = epmd(port);
    let begin = Instant::now();
    wait_until("the node registers again", || {
        registered("127.0.0.1", port, TIMEOUT).is_ok_and(|nodes| !nodes.is_empty())
    });
    let again = begin.elapsed();
    recorder.signal("INT");
    assert_eq!(recorder.wait().code(), Some(0));
    // On a busy host, the node may answer late. Such gaps have nothing to do with EPMD.
    let lost: Vec<_> = gaps(&file).into_iter().filter(|gap| !gap.contains("did not answer within")).collect();
    assert_eq!(lost, [""; 0]);
    let output = run(node.beamtune("record").args(["--for", "1s", "-o"]).arg(folder.path().join("yes.btr")));
    assert_eq!(output.status, Some(0), "{}", output.stderr);
    node.clean_again(&before, Instant::now());
    add_figure("EPMD is restarted", "gaps in the recording", 25, "none");
    add_figure(
        "EPMD is restarted",
        "the node registers again",
        25,
        format!("{} later, without help", short(again)),
    );
    drop(second);
}
