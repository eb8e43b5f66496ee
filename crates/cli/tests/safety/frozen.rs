//! The VM stands still for a while.

use std::time::{Duration, Instant};

use crate::common::{Otp, PATIENCE, Running, all_otps, folder, wait_until};
use crate::figures::{count, short, tell};
use crate::node::{How, Node};
use crate::recordings::{gaps, samples, vm_samples};

/// So long after it runs again samples come, where nothing else keeps the machine busy.
const BACK_AFTER: Duration = Duration::from_secs(10);
/// And so long after that it is as before, if the recorder has died meanwhile.
const AT_MOST: Duration = Duration::from_secs(2);

fn freeze(otp: &Otp) {
    let length = Duration::from_secs(count(35, 4));
    let case = "the VM is frozen";
    let mut node = Node::visited(otp, &How::default());
    let folder = folder();
    let file = folder.path().join("frozen.btr");
    let before = node.settled_footprint();
    let mut recorder = Running::start(node.beamtune("record").args(["--keep", "1h", "-o"]).arg(&file));
    wait_until("three samples", || vm_samples(&file) >= 3);

    node.running.signal("STOP");
    std::thread::sleep(length);
    let seen = samples(&file);
    node.running.signal("CONT");
    let resumed = Instant::now();
    let back_after = count(BACK_AFTER, PATIENCE);
    while vm_samples(&file) <= seen {
        assert!(resumed.elapsed() < back_after, "OTP {}: no sample after {back_after:?}", otp.release);
        std::thread::sleep(Duration::from_millis(20));
    }
    let of = otp.release;
    tell(case, "for (SIGSTOP)", of, short(length));
    tell(case, "recording goes on", of, format!("{} after SIGCONT", short(resumed.elapsed())));
    let gaps = gaps(&file);
    assert!(gaps.iter().any(|gap| gap.contains("did not answer")), "{gaps:#?}");
    tell(case, "gaps, with reasons", of, gaps.join("; ").replace(&node.name, "NODE"));

    // Meanwhile the recorder is killed: the node learns of it when it runs again.
    node.running.signal("STOP");
    recorder.signal("KILL");
    recorder.wait();
    std::thread::sleep(length);
    node.running.signal("CONT");
    let clean = node.clean_again(&before, Instant::now());
    assert!(clean < count(AT_MOST, Duration::MAX), "OTP {of}: {clean:?}");
    tell(case, "recorder killed meanwhile: node as before", of, format!("{} after SIGCONT", short(clean)));
    node.assert_silent();
}

#[test]
fn a_frozen_vm_is_a_gap_and_does_not_keep_an_agent() {
    let otps = all_otps();
    std::thread::scope(|scope| {
        let threads: Vec<_> = otps.iter().map(|otp| scope.spawn(|| freeze(otp))).collect();
        threads.into_iter().for_each(|thread| thread.join().expect("it held"));
    });
}
