//! Effects of killing the recorder at a random moment.

use std::time::{Duration, Instant};

use crate::common::{Process, all_otps, folder, wait_until};
use crate::figures::{add_figure, count, spread};
use crate::node::{Node, NodeOptions};
use crate::recordings::{samples, vm_samples};

/// Seed of the random moments.
const SEED: u64 = 20_261_120;

/// Time limit for cleaning up the node after the recorder was killed, on an idle host.
const MAX_TIME_TO_CLEAN: Duration = Duration::from_secs(2);

#[test]
fn node_is_cleaned_up_and_recording_readable_after_the_recorder_is_killed() {
    for otp in all_otps() {
        let kills = count(if otp.release == 25 { 200 } else { 50 }, 8);
        let mut random = fastrand::Rng::with_seed(SEED + u64::from(otp.release));
        let mut node = Node::visited(&otp, &NodeOptions::default());
        let folder = folder();
        let before = node.settled_footprint();
        let (mut attached, mut files, mut read, mut times) = (0, 0, 0, Vec::new());
        for turn in 0..kills {
            let file = folder.path().join(format!("{turn}.btr"));
            let mut command = node.beamtune("record");
            let mut recorder = Process::start(command.args(["--every", "100ms", "-o"]).arg(&file));
            // Half of the recorders are killed while they attach, the others while they record.
            let moment = match turn % 2 {
                0 => random.u64(0..100),
                _ => random.u64(100..3000),
            };
            std::thread::sleep(Duration::from_millis(moment));
            if turn + 1 == kills {
                // On a busy host, none of the other recorders may have got this far.
                wait_until("samples", || vm_samples(&file) >= 2);
            }
            attached += usize::from(node.has_agent());
            let stored = vm_samples(&file);
            recorder.signal("KILL");
            let killed = Instant::now();
            times.push(node.clean_again(&before, killed));
            recorder.wait();
            if file.exists() {
                let found = samples(&file);
                // Each sample is stored before the next one is taken. The number of samples depends on the speed of the host.
                let min = count((moment as usize / 100).saturating_sub(10), 0).max(stored);
                assert!(found >= min, "OTP {}: {found} samples after {moment} ms", otp.release);
                files += 1;
                read += found;
            } else {
                assert!(moment < count(1500, u64::MAX), "OTP {}: no file after {moment} ms", otp.release);
            }
        }
        assert!(attached > 0, "no recorder was killed while attached");
        let longest = times.iter().max().copied().unwrap_or_default();
        assert!(longest < count(MAX_TIME_TO_CLEAN, Duration::MAX), "OTP {}: {longest:?}", otp.release);
        node.assert_silent();
        let case = "the recorder is killed";
        add_figure(
            case,
            "SIGKILL at a random time between 0 and 3 s",
            otp.release,
            format!("{kills} times, {attached} of them with the agent loaded"),
        );
        add_figure(case, "flags restored and agent left after", otp.release, spread(times));
        add_figure(
            case,
            "recordings left behind",
            otp.release,
            format!("{files}, all readable to the end: {read} samples"),
        );
    }
}
