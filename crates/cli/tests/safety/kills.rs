//! `kill -9` at whatever moment.

use std::time::{Duration, Instant};

use crate::common::{Running, all_otps, folder, wait_until};
use crate::figures::{count, spread, tell};
use crate::node::{How, Node};
use crate::recordings::{samples, vm_samples};

/// From which the moments are drawn.
const SEED: u64 = 20_261_120;

/// A node is to be as it was so long after the recorder's death, where nothing else keeps the machine busy.
const AT_MOST: Duration = Duration::from_secs(2);

#[test]
fn whenever_a_recorder_is_killed_the_node_is_as_before_and_the_file_is_whole() {
    for otp in all_otps() {
        let kills = count(if otp.release == 25 { 200 } else { 50 }, 8);
        let mut random = fastrand::Rng::with_seed(SEED + u64::from(otp.release));
        let mut node = Node::visited(&otp, &How::default());
        let folder = folder();
        let before = node.settled_footprint();
        let (mut at_work, mut files, mut read, mut times) = (0, 0, 0, Vec::new());
        for turn in 0..kills {
            let file = folder.path().join(format!("{turn}.btr"));
            let mut command = node.beamtune("record");
            let mut recorder = Running::start(command.args(["--every", "100ms", "-o"]).arg(&file));
            // Half of them while it comes, the others while it records.
            let moment = match turn % 2 {
                0 => random.u64(0..100),
                _ => random.u64(100..3000),
            };
            std::thread::sleep(Duration::from_millis(moment));
            if turn + 1 == kills {
                // On a busy machine none of the others may have come so far.
                wait_until("samples", || vm_samples(&file) >= 2);
            }
            at_work += usize::from(node.has_agent());
            let stored = vm_samples(&file);
            recorder.signal("KILL");
            let killed = Instant::now();
            times.push(node.clean_again(&before, killed));
            recorder.wait();
            if file.exists() {
                let found = samples(&file);
                // Each is stored before the next one is taken; how many that are by then is a matter of the machine.
                let least = count((moment as usize / 100).saturating_sub(10), 0).max(stored);
                assert!(found >= least, "OTP {}: {found} samples after {moment} ms", otp.release);
                files += 1;
                read += found;
            } else {
                assert!(moment < count(1500, u64::MAX), "OTP {}: no file after {moment} ms", otp.release);
            }
        }
        assert!(at_work > 0, "none came so far");
        let longest = times.iter().max().copied().unwrap_or_default();
        assert!(longest < count(AT_MOST, Duration::MAX), "OTP {}: {longest:?}", otp.release);
        node.assert_silent();
        let case = "the recorder is killed";
        tell(
            case,
            "killed at random moments from 0 to 3 s",
            otp.release,
            format!("{kills} times, {at_work} with the agent there"),
        );
        tell(case, "flags back and agent gone after", otp.release, spread(times));
        tell(
            case,
            "recordings that it left",
            otp.release,
            format!("{files}, all read to the end: {read} samples"),
        );
    }
}
