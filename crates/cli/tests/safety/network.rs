//! Effects of a network failure between beamtune and a node.

use std::process::Command;
use std::time::{Duration, Instant};

use beamtune_attach::locate;

use crate::common::network::{Network, VethPair};
use crate::common::{Otp, Process, TIMEOUT, all_otps, beamtune, folder, wait_until};
use crate::figures::{add_figure, count, short};
use crate::node::{Node, NodeOptions};
use crate::recordings::{gaps, samples, vm_samples};

/// Cuts (true) or restores (false) the connection.
type Change = fn(&VethPair, bool) -> Result<(), String>;

const WAYS: [(&str, Change); 2] = [
    ("the cable is unplugged", |veth, cut| veth.set_link(if cut { "down" } else { "up" })),
    ("the address is removed", |veth, cut| veth.set_address(if cut { "del" } else { "add" })),
];

/// Length of a cut in `make safety`. It exceeds every timeout: the agent's lease (30 s) and the node's net tick time (at most 75 s).
const FULL_CUT: Duration = Duration::from_secs(90);
/// Length of a cut in `make test`, with a net tick time of 4 s (at most 5 s).
const SHORT_CUT: Duration = Duration::from_secs(8);
/// A short cut lasts up to this long, if the node has not been cleaned up earlier. A busy host takes longer, but not as long as the lease.
const MAX_SHORT_CUT: Duration = Duration::from_secs(25);

/// Limit for the first sample after the cut: an attempt to connect that had begun (20 s), and the next one.
const MAX_TIME_TO_SAMPLE: Duration = Duration::from_secs(25);

fn cut(otp: &Otp) {
    let Some((network, veth)) = Network::connected() else { return };
    let [ip, prefix @ ..] = network.prefix();
    let _epmd = Process::start(Command::new(ip).args(prefix).arg("epmd"));
    wait_until("EPMD", || locate::registered(&veth.address, 4369, TIMEOUT).is_ok());
    let (length, longest) = count((FULL_CUT, FULL_CUT), (SHORT_CUT, MAX_SHORT_CUT));
    let name = format!("cut@{}", veth.address);
    let args = ["-kernel", "net_ticktime", count("60", "4")];
    let mut node = Node::visited(
        otp,
        &NodeOptions { name, prefix: &network.prefix(), args: &args, ..NodeOptions::default() },
    );
    let folder = folder();
    let file = folder.path().join("cut.btr");
    let before = node.settled_footprint();
    // The target is an address. By name, beamtune would find the process on this host, and enter its network.
    let listening = locate::registered(&veth.address, 4369, TIMEOUT).expect("EPMD answers");
    let target = format!("{}:{}", veth.address, listening.first().expect("the node").port);
    let mut command = beamtune();
    command.env("BEAMTUNE_COOKIE", &node.cookie).args(["record", "--keep", "1h", &target, "-o"]).arg(&file);
    let mut recorder = Process::start(&mut command);
    wait_until("three samples", || vm_samples(&file) >= 3);
    let limit = count(MAX_TIME_TO_SAMPLE, TIMEOUT);
    for (way, change) in WAYS {
        let begin = Instant::now();
        change(&veth, true).expect("cut");
        let (mut gone, mut clean) = (None, None);
        while begin.elapsed() < if clean.is_some() { length } else { longest } {
            if gone.is_none() && !node.has_agent() && node.switches() == before.1 {
                gone = Some(begin.elapsed());
            }
            if clean.is_none() && gone.is_some() && node.footprint() == before {
                clean = Some(begin.elapsed());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        change(&veth, false).expect("mended");
        let (lasted, mended) = (begin.elapsed(), Instant::now());
        let seen = samples(&file);
        while vm_samples(&file) <= seen {
            assert!(mended.elapsed() < limit, "OTP {}, {way}: no sample after {limit:?}", otp.release);
            std::thread::sleep(Duration::from_millis(50));
        }
        let back = mended.elapsed();
        let of = otp.release;
        add_figure(way, "duration", of, short(lasted));
        let clean = clean.expect("the node is cleaned up even without the network");
        let gone = gone.expect("the agent leaves even without the network");
        add_figure(way, "agent left, flags restored", of, format!("{} after the cut", short(gone)));
        add_figure(
            way,
            "connection closed by the node, node as before",
            of,
            format!("{} after the cut", short(clean)),
        );
        add_figure(way, "recording continues", of, format!("{} after the end of the cut", short(back)));
    }
    let reasons = gaps(&file);
    add_figure(
        "the cable is unplugged",
        "gaps of both cuts",
        otp.release,
        reasons.join("; ").replace(&node.name, "NODE"),
    );
    assert!(
        reasons.iter().any(|reason| reason.contains("did not answer") || reason.contains("sent nothing")),
        "{reasons:#?}"
    );

    // The recorder can also be stopped while the network is down.
    veth.set_link("down").expect("cut");
    let begin = Instant::now();
    recorder.signal("INT");
    assert_eq!(recorder.wait().code(), Some(0));
    let ended = begin.elapsed();
    add_figure(
        "the cable is unplugged",
        "Ctrl-C during a cut ends `record` after",
        otp.release,
        short(ended),
    );
    assert!(ended < count(Duration::from_secs(10), Duration::MAX), "{ended:?}");
    veth.set_link("up").expect("mended");
    let begin = Instant::now();
    let gone = node.clean_again(&before, begin);
    add_figure(
        "the cable is unplugged",
        "then the node is as before",
        otp.release,
        format!("{} after the end of the cut", short(gone)),
    );
    add_figure(
        "the cable is unplugged",
        "OTP's lines in the node's log (\"not responding\", \"Removing (timedout) connection\"), both cuts",
        otp.release,
        node.log().iter().filter(|line| line.starts_with("**")).count(),
    );
}

#[test]
fn cut_connection_is_recorded_as_a_gap_and_the_recording_continues() {
    let otps: Vec<_> = all_otps().into_iter().filter(|otp| count(true, otp.release == 25)).collect();
    std::thread::scope(|scope| {
        let threads: Vec<_> = otps.iter().map(|otp| scope.spawn(|| cut(otp))).collect();
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    });
}
