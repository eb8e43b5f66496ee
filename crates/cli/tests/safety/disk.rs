//! Effects of a disk that is full or read-only.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::{Process, folder, otp, run, text, wait_until};
use crate::figures::{add_figure, count, short};
use crate::node::{Node, NodeOptions};
use crate::recordings::{samples, vm_samples};

/// A file system of limited size. It is unmounted when dropped.
struct SmallDisk {
    folder: tempfile::TempDir,
}

impl SmallDisk {
    fn new(size: &str) -> Option<SmallDisk> {
        let folder = folder();
        let option = format!("size={size}");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &option, "tmpfs"]).arg(folder.path()).status();
        if mounted.is_ok_and(|status| status.success()) {
            return Some(SmallDisk { folder });
        }
        eprintln!("skipped, because a small file system cannot be mounted here (needs root)");
        None
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn remount(&self, options: &str) {
        let status =
            Command::new("mount").args(["-o", &format!("remount,{options}")]).arg(self.path()).status();
        assert!(status.expect("mount").success());
    }

    /// Fills the disk.
    fn fill(&self) {
        let _ = std::fs::write(self.path().join("filler"), vec![1; 64 << 20]);
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}

const CASE: &str = "the disk is full";

#[test]
fn full_or_read_only_disk_is_reported_at_the_start_and_the_agent_removed() {
    let Some(otp) = otp(25) else { return };
    let Some(disk) = SmallDisk::new("1m") else { return };
    let mut node = Node::visited(&otp, &NodeOptions::default());
    let before = node.settled_footprint();
    let mut check = |what: &str, words: &[&str], file: &str| {
        for ring in [false, true] {
            let mut command = node.beamtune("record");
            command.args(["--for", "2s", "-o"]).arg(disk.path().join(file));
            if ring {
                command.args(["--keep", "1h", "--max-size", "10MB"]);
            }
            let begin = Instant::now();
            let output = run(&mut command);
            output.assert_refused(words);
            let kind = if ring { "`record --keep`" } else { "`record`" };
            let message = output.stderr.replace(&text(disk.path()), "/disk").replace(&node.name, "NODE");
            let message = message.trim().replace('\n', " / ");
            add_figure(
                CASE,
                &format!("{what}: {kind}"),
                25,
                format!("status 2 after {}: {message}", short(begin.elapsed())),
            );
            node.clean_again(&before, Instant::now());
        }
    };
    disk.fill();
    check("full from the start", &["disk is full"], "full.btr");
    std::fs::remove_file(disk.path().join("filler")).expect("removed");
    disk.remount("ro");
    check("file system is read-only", &["read-only.btr: read-only"], "read-only.btr");
    check("folder does not exist", &["absent.btr: No such file or directory"], "absent/absent.btr");
    node.assert_silent();
}

#[test]
fn when_the_disk_becomes_full_a_recording_ends_and_a_ring_waits_for_space() {
    let Some(otp) = otp(25) else { return };
    let Some(disk) = SmallDisk::new("2m") else { return };
    let mut node = Node::visited(&otp, &NodeOptions::default());
    let before = node.settled_footprint();
    let file = disk.path().join("plain.btr");
    let mut command = node.beamtune("record");
    command.args(["--every", "100ms", "-o"]).arg(&file);
    let mut recorder = Process::start(command.stderr(std::process::Stdio::piped()));
    wait_until("ten samples", || vm_samples(&file) >= 10);
    disk.fill();
    let begin = Instant::now();
    let status = recorder.wait();
    assert_eq!(status.code(), Some(2));
    let plain = begin.elapsed();
    let kept = samples(&file);
    assert!(kept >= 10, "{kept}");
    add_figure(
        CASE,
        "becomes full while `record` runs",
        25,
        format!("status 2 after {}, {kept} samples readable", short(plain)),
    );
    node.clean_again(&before, Instant::now());
    std::fs::remove_file(disk.path().join("filler")).expect("removed");
    std::fs::remove_file(&file).expect("removed");

    let file = disk.path().join("ring.btr");
    let mut command = node.beamtune("record");
    command.args(["--every", "100ms", "--keep", "1h", "--max-size", "10MB", "-o"]).arg(&file);
    let mut ring = Process::start(&mut command);
    wait_until("ten samples", || vm_samples(&file) >= 10);
    disk.fill();
    std::thread::sleep(Duration::from_secs(count(30, 13)));
    assert!(ring.child.try_wait().expect("wait").is_none(), "the ring has ended");
    let full = samples(&file);
    assert!(full >= 10, "{full}");
    std::fs::remove_file(disk.path().join("filler")).expect("removed");
    let begin = Instant::now();
    wait_until("more samples once there is free space", || vm_samples(&file) > full);
    let back = begin.elapsed();
    ring.signal("INT");
    assert_eq!(ring.wait().code(), Some(0));
    samples(&file);
    node.clean_again(&before, Instant::now());
    node.assert_silent();
    add_figure(
        CASE,
        "becomes full while `record --keep` runs",
        25,
        format!("{full} samples readable meanwhile; continues {} after space is freed", short(back)),
    );
}
