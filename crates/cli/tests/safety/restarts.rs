//! The node, and its EPMD, are started again and again while they are recorded.

use std::process::Command;
use std::time::Instant;

use beamtune_attach::locate::registered;
use beamtune_recording::Reader;

use crate::common::{PATIENCE, Running, all_otps, folder, free_port, otp, run, unique, wait_until};
use crate::figures::{count, short, spread, tell};
use crate::node::{How, Node};
use crate::recordings::{gaps, samples, vm_samples};

#[test]
fn a_node_that_is_started_again_and_again_is_recorded_each_time() {
    for otp in all_otps() {
        let restarts = count(if otp.release == 25 { 10 } else { 3 }, 2);
        if count(false, otp.release != 25) {
            continue;
        }
        let how = How {
            name: format!("{}@127.0.0.1", unique("again")),
            cookie: unique("cookie"),
            ..How::default()
        };
        let mut node = Node::start_so(&otp, &how);
        let folder = folder();
        let file = folder.path().join("again.btr");
        let mut recorder = Running::start(node.beamtune("record").args(["--keep", "1h", "-o"]).arg(&file));
        let lives = || Reader::open(&file).and_then(|reader| reader.lives()).map_or(0, |lives| lives.len());
        wait_until("a sample", || vm_samples(&file) >= 1);
        let mut times = Vec::new();
        for restart in 1..=restarts {
            node.running.signal("KILL");
            drop(node);
            node = Node::start_so(&otp, &how);
            let begin = Instant::now();
            wait_until("the next life", || lives() == restart + 1);
            times.push(begin.elapsed());
            node.assert_silent();
        }
        recorder.signal("INT");
        assert_eq!(recorder.wait().code(), Some(0));
        assert_eq!(lives(), restarts + 1);
        let gaps = gaps(&file);
        assert!(gaps.len() >= restarts, "{gaps:#?}");
        let reasons =
            ["is lost", "knows no node", "cannot be reached", "reconnecting", "closed the connection"];
        let unknown: Vec<_> =
            gaps.iter().filter(|gap| !reasons.iter().any(|reason| gap.contains(reason))).collect();
        assert!(unknown.is_empty(), "{unknown:#?}");
        let case = "the node is started again";
        tell(
            case,
            "while it is recorded",
            otp.release,
            format!("{restarts} times, {} lives in the recording", lives()),
        );
        tell(case, "its next life is in the recording, after it was up", otp.release, spread(times));
    }
}

/// An EPMD of ours at a port of its own.
fn epmd(port: u16) -> Running {
    let running = Running::start(Command::new("epmd").args(["-port", &port.to_string()]));
    wait_until("EPMD", || registered("127.0.0.1", port, PATIENCE).is_ok());
    running
}

#[test]
fn epmd_may_come_and_go_while_a_node_is_recorded() {
    let Some(otp) = otp(25) else { return };
    let port = free_port();
    let first = epmd(port);
    let mut node = Node::visited(&otp, &How { epmd_port: Some(port), ..How::default() });
    let folder = folder();
    let file = folder.path().join("epmd.btr");
    let before = node.settled_footprint();
    let mut recorder = Running::start(node.beamtune("record").args(["-o"]).arg(&file));
    wait_until("two samples", || vm_samples(&file) >= 2);
    drop(first);
    let seen = samples(&file);
    wait_until("samples without EPMD", || vm_samples(&file) >= seen + 3);
    let said = run(node.beamtune("record").args(["--for", "1s", "-o"]).arg(folder.path().join("no.btr")));
    // A node of this host is found by its process.
    assert_eq!(said.status, Some(0), "{}", said.stderr);
    tell("EPMD is started again", "`record NODE` meanwhile, node on this host", 25, "works");
    let second = epmd(port);
    let begin = Instant::now();
    wait_until("the node is registered again", || {
        registered("127.0.0.1", port, PATIENCE).is_ok_and(|nodes| !nodes.is_empty())
    });
    let again = begin.elapsed();
    recorder.signal("INT");
    assert_eq!(recorder.wait().code(), Some(0));
    // On a busy machine the node may be late; that is not due to EPMD.
    let lost: Vec<_> = gaps(&file).into_iter().filter(|gap| !gap.contains("did not answer within")).collect();
    assert_eq!(lost, [""; 0]);
    let said = run(node.beamtune("record").args(["--for", "1s", "-o"]).arg(folder.path().join("yes.btr")));
    assert_eq!(said.status, Some(0), "{}", said.stderr);
    node.clean_again(&before, Instant::now());
    tell("EPMD is started again", "gaps in the recording", 25, "none");
    tell(
        "EPMD is started again",
        "the node is registered again",
        25,
        format!("{} later, by itself", short(again)),
    );
    drop(second);
}
