//! `kill -9` at whatever moment.

use std::time::{Duration, Instant};

use crate::common::{Running, all_otps, folder};
use crate::figures::{count, spread, tell};
use crate::node::{How, Node};
use crate::recordings::samples;

/// From which the moments are drawn.
const SEED: u64 = 20_261_120;

/// A node is to be as it was so long after the recorder's death.
const AT_MOST: Duration = Duration::from_secs(2);

#[test]
fn whenever_a_recorder_is_killed_the_node_is_as_before_and_the_file_is_whole() {
    for otp in all_otps() {
        let kills = count(if otp.release == 25 { 200 } else { 50 }, 8);
        let mut random = fastrand::Rng::with_seed(SEED + u64::from(otp.release));
        let mut node = Node::visited(&otp, &How::default());
        let folder = folder();
        let before = node.footprint();
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
            at_work += usize::from(node.has_agent());
            recorder.signal("KILL");
            let killed = Instant::now();
            times.push(node.clean_again(&before, killed));
            recorder.wait();
            if file.exists() {
                let found = samples(&file);
                // Each is stored before the next one is taken.
                let least = (moment as usize / 100).saturating_sub(10);
                assert!(found >= least, "OTP {}: {found} samples after {moment} ms", otp.release);
                files += 1;
                read += found;
            } else {
                assert!(moment < 1500, "OTP {}: no file after {moment} ms", otp.release);
            }
        }
        assert!(at_work > 0, "none came so far");
        let longest = times.iter().max().copied().unwrap_or_default();
        assert!(longest < AT_MOST, "OTP {}: {longest:?}", otp.release);
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
