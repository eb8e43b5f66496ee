//! The network between beamtune and a node is cut.

use std::process::Command;
use std::time::{Duration, Instant};

use beamtune_attach::locate;

use crate::common::network::{Cable, Network};
use crate::common::{Otp, PATIENCE, Running, all_otps, beamtune, folder, wait_until};
use crate::figures::{count, short, tell};
use crate::node::{How, Node};
use crate::recordings::{gaps, samples, vm_samples};

/// How the connection is cut, and mended.
type Change = fn(&Cable, bool) -> Result<(), String>;

const WAYS: [(&str, Change); 2] = [
    ("the cable is drawn", |cable, cut| cable.set_link(if cut { "down" } else { "up" })),
    ("the address is gone", |cable, cut| cable.set_address(if cut { "del" } else { "add" })),
];

/// Longer than everything that ends by time: the agent's lease (30 s), and the node's net tick (75 s at most).
const FULL_CUT: Duration = Duration::from_secs(90);
/// The same with a net tick of 4 s (5 s at most).
const SHORT_CUT: Duration = Duration::from_secs(8);
/// So long a short one lasts if the node is not as before by then: a busy machine takes its time, but the lease is not reached.
const LONGEST_SHORT_CUT: Duration = Duration::from_secs(25);

/// So long after the cut has been mended samples come again: an attempt to connect that was under way (20 s), and the next.
const BACK_AFTER: Duration = Duration::from_secs(25);

fn cut(otp: &Otp) {
    let Some((network, cable)) = Network::joined() else { return };
    let [ip, by @ ..] = network.by();
    let _epmd = Running::start(Command::new(ip).args(by).arg("epmd"));
    wait_until("EPMD", || locate::registered(&cable.address, 4369, PATIENCE).is_ok());
    let (length, longest) = count((FULL_CUT, FULL_CUT), (SHORT_CUT, LONGEST_SHORT_CUT));
    let name = format!("cut@{}", cable.address);
    let args = ["-kernel", "net_ticktime", count("60", "4")];
    let mut node = Node::visited(otp, &How { name, by: &network.by(), args: &args, ..How::default() });
    let folder = folder();
    let file = folder.path().join("cut.btr");
    let before = node.settled_footprint();
    // By its address: the process is one of this host, and beamtune would go into its network.
    let listening = locate::registered(&cable.address, 4369, PATIENCE).expect("EPMD answers");
    let target = format!("{}:{}", cable.address, listening.first().expect("the node").port);
    let mut command = beamtune();
    command.env("BEAMTUNE_COOKIE", &node.cookie).args(["record", "--keep", "1h", &target, "-o"]).arg(&file);
    let mut recorder = Running::start(&mut command);
    wait_until("three samples", || vm_samples(&file) >= 3);
    let back_after = count(BACK_AFTER, PATIENCE);
    for (way, change) in WAYS {
        let begin = Instant::now();
        change(&cable, true).expect("cut");
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
        change(&cable, false).expect("mended");
        let (lasted, mended) = (begin.elapsed(), Instant::now());
        let seen = samples(&file);
        while vm_samples(&file) <= seen {
            assert!(
                mended.elapsed() < back_after,
                "OTP {}, {way}: no sample after {back_after:?}",
                otp.release
            );
            std::thread::sleep(Duration::from_millis(50));
        }
        let back = mended.elapsed();
        let of = otp.release;
        tell(way, "for", of, short(lasted));
        let clean = clean.expect("the node is as before, whether the network is there or not");
        let gone = gone.expect("the agent leaves, whether the network is there or not");
        tell(way, "agent gone, flags back", of, format!("{} after the cut", short(gone)));
        tell(
            way,
            "connection given up by the node, all as before",
            of,
            format!("{} after the cut", short(clean)),
        );
        tell(way, "recording goes on", of, format!("{} after the end of the cut", short(back)));
    }
    let reasons = gaps(&file);
    tell(
        "the cable is drawn",
        "gaps of both cuts",
        otp.release,
        reasons.join("; ").replace(&node.name, "NODE"),
    );
    assert!(
        reasons.iter().any(|reason| reason.contains("did not answer") || reason.contains("sent nothing")),
        "{reasons:#?}"
    );

    // Who wants to end while the network is away is not held up.
    cable.set_link("down").expect("cut");
    let begin = Instant::now();
    recorder.signal("INT");
    assert_eq!(recorder.wait().code(), Some(0));
    let ended = begin.elapsed();
    tell("the cable is drawn", "Ctrl-C meanwhile ends `record` after", otp.release, short(ended));
    assert!(ended < count(Duration::from_secs(10), Duration::MAX), "{ended:?}");
    cable.set_link("up").expect("mended");
    let begin = Instant::now();
    let gone = node.clean_again(&before, begin);
    tell("the cable is drawn", "and the node is as before", otp.release, format!("{} later", short(gone)));
    tell(
        "the cable is drawn",
        "lines of OTP in the node's log (\"not responding\", \"Removing (timedout) connection\"), both cuts",
        otp.release,
        node.log().iter().filter(|line| line.starts_with("**")).count(),
    );
}

#[test]
fn a_cut_is_a_gap_and_the_recording_goes_on_by_itself() {
    let otps: Vec<_> = all_otps().into_iter().filter(|otp| count(true, otp.release == 25)).collect();
    std::thread::scope(|scope| {
        let threads: Vec<_> = otps.iter().map(|otp| scope.spawn(|| cut(otp))).collect();
        threads.into_iter().for_each(|thread| thread.join().expect("it held"));
    });
}
