//! Effects of stopping the VM for a while (SIGSTOP).

use std::time::{Duration, Instant};

use crate::common::{Otp, Process, TIMEOUT, all_otps, folder, wait_until};
use crate::figures::{add_figure, count, short};
use crate::node::{Node, NodeOptions};
use crate::recordings::{gaps, samples, vm_samples};

/// Time limit for the first sample after SIGCONT, on an idle host.
const MAX_TIME_TO_SAMPLE: Duration = Duration::from_secs(10);
/// Time limit for cleaning up the node after SIGCONT, if the recorder was killed while the VM was stopped.
const MAX_TIME_TO_CLEAN: Duration = Duration::from_secs(2);

fn freeze(otp: &Otp) {
    let length = Duration::from_secs(count(35, 4));
    let case = "the VM is frozen";
    let mut node = Node::visited(otp, &NodeOptions::default());
    let folder = folder();
    let file = folder.path().join("frozen.btr");
    let before = node.settled_footprint();
    let mut recorder = Process::start(node.beamtune("record").args(["--keep", "1h", "-o"]).arg(&file));
    wait_until("three samples", || vm_samples(&file) >= 3);

    node.process.signal("STOP");
    std::thread::sleep(length);
    let seen = samples(&file);
    node.process.signal("CONT");
    let resumed = Instant::now();
    let limit = count(MAX_TIME_TO_SAMPLE, TIMEOUT);
    while vm_samples(&file) <= seen {
        assert!(resumed.elapsed() < limit, "OTP {}: no sample after {limit:?}", otp.release);
        std::thread::sleep(Duration::from_millis(20));
    }
    let of = otp.release;
    add_figure(case, "duration (SIGSTOP)", of, short(length));
    add_figure(case, "recording continues", of, format!("{} after SIGCONT", short(resumed.elapsed())));
    let gaps = gaps(&file);
    assert!(gaps.iter().any(|gap| gap.contains("did not answer")), "{gaps:#?}");
    add_figure(case, "gaps, with reasons", of, gaps.join("; ").replace(&node.name, "NODE"));

    // The recorder is killed while the VM is stopped. The node notices this when it continues.
    node.process.signal("STOP");
    recorder.signal("KILL");
    recorder.wait();
    std::thread::sleep(length);
    node.process.signal("CONT");
    let clean = node.clean_again(&before, Instant::now());
    assert!(clean < count(MAX_TIME_TO_CLEAN, Duration::MAX), "OTP {of}: {clean:?}");
    add_figure(
        case,
        "recorder killed meanwhile: node as before",
        of,
        format!("{} after SIGCONT", short(clean)),
    );
    node.assert_silent();
}

#[test]
fn frozen_vm_is_recorded_as_a_gap_and_does_not_keep_the_agent() {
    let otps = all_otps();
    std::thread::scope(|scope| {
        let threads: Vec<_> = otps.iter().map(|otp| scope.spawn(|| freeze(otp))).collect();
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    });
}
