//! Real v1 control groups, which the tests create and remove. v2 is tested only with fake trees, since the hosts of these tests have v1.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "tests")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use beamtune_host::cgroup::{Groups, Version};
use beamtune_host::tree::LocalTree;
use beamtune_model::{facts, metrics};
use common::{Recorder, Running, eventually, installed, is_root, unique_name};

/// A control group that is removed after the test; its processes must have ended.
struct TestGroup(PathBuf);

impl TestGroup {
    fn make(path: PathBuf, quota_us: i64, period_us: i64) -> Self {
        fs::create_dir(&path).unwrap();
        let group = TestGroup(path);
        // The period is set first, because the quota must be at least a thousandth of it.
        group.write("cpu.cfs_period_us", period_us);
        group.write("cpu.cfs_quota_us", quota_us);
        group
    }

    fn write(&self, file: &str, value: i64) {
        fs::write(self.0.join(file), value.to_string()).unwrap();
    }
}

impl Drop for TestGroup {
    fn drop(&mut self) {
        // After the last process has ended, the kernel may need some time.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() || !self.0.exists() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        println!("could not remove {}", self.0.display());
    }
}

/// Returns the mount point of the v1 CPU controller, if groups can be created there.
fn cpu_controller() -> Option<PathBuf> {
    if !is_root() {
        return None;
    }
    let folders = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"];
    let found = folders.iter().map(Path::new).find(|folder| folder.join("cpu.cfs_quota_us").exists());
    if found.is_none() {
        println!("skipped, because the v1 CPU controller is not mounted here");
    }
    found.map(Path::to_owned)
}

fn busy() -> Running {
    let mut command = Command::new("sh");
    command.args(["-c", "echo up; while :; do :; done"]);
    let process = Running::start(command);
    process.line("up");
    process
}

#[test]
fn throttling_is_counted_for_the_group_with_the_tightest_quota() {
    let Some(controller) = cpu_controller() else { return };
    let name = unique_name();
    let tree = LocalTree::default();
    let outer = TestGroup::make(controller.join(&name), 20_000, 100_000);
    // The parent is throttled, since the inner group has no quota (-1). According to the kernel's rules, its quota could not exceed the
    // parent's anyway.
    let inner = TestGroup::make(outer.0.join("inner"), -1, 100_000);
    let process = busy();
    inner.write("cgroup.procs", process.pid().into());

    let groups = Groups::of(&tree, process.pid()).unwrap();
    let branch = groups.cpu.as_ref().unwrap();
    assert_eq!((branch.version, branch.reaches_root), (Version::V1, true));
    let limits = eventually("throttling", || {
        let limits = groups.cpu_limits(&tree).unwrap().unwrap();
        (limits.tightest.throttled_periods? >= 5).then_some(limits)
    });
    println!("{limits:?}");
    assert_eq!((limits.tightest.path, limits.tightest.quota_permille), (format!("/{name}"), Some(200)));
    assert_eq!((limits.own.path, limits.own.quota_permille), (format!("/{name}/inner"), None));
    assert!(limits.tightest.periods >= limits.tightest.throttled_periods);
    assert!(limits.tightest.throttled_ns > Some(0));
    assert_eq!(limits.own.throttled_periods, Some(0));
    drop(process);
}

#[test]
fn a_recording_follows_the_process_into_another_group() {
    let Some(controller) = cpu_controller() else { return };
    let name = unique_name();
    let group = TestGroup::make(controller.join(&name), 50_000, 100_000);
    let process = busy();
    let mut recorder = Recorder::of(process.pid());
    let before = recorder.sample(true);
    assert_eq!(recorder.value(&before, &metrics::CGROUP_QUOTA, "cpu"), None);
    group.write("cgroup.procs", process.pid().into());
    let after = recorder.sample(true);
    assert_eq!(recorder.value(&after, &metrics::CGROUP_QUOTA, "cpu"), Some(500));
    assert_eq!(recorder.value(&after, &metrics::CGROUP_QUOTA, "own_cpu"), Some(500));
    let fact = |key: &str| after.facts.iter().find(|(found, _)| found == key).map(|(_, value)| value.clone());
    assert_eq!(fact(facts::CGROUP_PATH), Some(format!("/{name}")));
    // A changed quota is recorded in the next sample, even without detail.
    group.write("cpu.cfs_quota_us", 30_000);
    let changed = recorder.sample(false);
    assert_eq!(recorder.value(&changed, &metrics::CGROUP_QUOTA, "cpu"), Some(300));
    drop(process);
}

#[test]
fn the_memory_limit_of_our_own_groups_is_read() {
    let Some(_) = cpu_controller() else { return };
    let tree = LocalTree::default();
    let groups = Groups::of(&tree, std::process::id()).unwrap();
    let Some(memory) = groups.memory_limits(&tree).unwrap() else {
        return println!("skipped, because there is no memory controller here");
    };
    println!("{memory:?}");
    assert!(memory.used_bytes.is_some_and(|used| used > 0));
}

/// Finds the only child of a process.
fn child_of(parent: u32) -> Option<u32> {
    let pids = fs::read_dir("/proc").unwrap().flatten();
    let mut pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.find(|pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields = stat.rsplit(')').next().unwrap_or_default();
        fields.split_whitespace().nth(1) == Some(&parent.to_string())
    })
}

#[test]
fn control_groups_of_a_container_are_read_from_the_host() {
    let Some(controller) = cpu_controller() else { return };
    let Some(otp) = installed(25) else { return println!("skipped, because OTP 25 is not installed") };
    // The groups are named like those of Docker. The container's group is the root of the container's namespace.
    let docker = controller.join("docker");
    let was_there = docker.exists();
    let outer = (!was_there).then(|| TestGroup::make(docker.clone(), -1, 100_000));
    let id = format!("{:064x}", std::process::id());
    let group = TestGroup::make(docker.join(&id), 40_000, 100_000);
    let procs = group.0.join("cgroup.procs");
    let mut command = Command::new("sh");
    // The shell moves itself into the group, and then creates namespaces, including one for control groups.
    let script = "echo $$ > \"$1\"; shift; exec unshare \"$@\"";
    command.args(["-c", script, "sh"]).arg(procs);
    command.args(["-p", "-m", "-n", "-C", "--fork", "--kill-child", "--mount-proc", "erl", "-noinput"]);
    command.args(["-eval", "io:format(\"up~n\")."]);
    let container = Running::start(command);
    container.line("up");
    let pid = child_of(container.pid()).unwrap();

    let vm = beamtune_host::discovery::inspect(&LocalTree::default(), pid).unwrap();
    let known = vm.container.unwrap();
    assert_eq!((known.kind, known.id.as_str()), ("docker", id.as_str()));
    let mut recorder = Recorder::of(pid);
    let sample = recorder.sample(true);
    assert_eq!(recorder.value(&sample, &metrics::CGROUP_QUOTA, "cpu"), Some(400));
    assert_eq!(recorder.value(&sample, &metrics::CGROUP_QUOTA, "own_cpu"), Some(400));
    let fact =
        |key: &str| sample.facts.iter().find(|(found, _)| found == key).map(|(_, value)| value.clone());
    assert_eq!(fact(facts::CGROUP_PATH), Some(format!("/docker/{id}")));
    assert_eq!(fact(facts::CGROUP_REACHES_ROOT).as_deref(), Some("true"));
    assert_eq!(fact(facts::OS_PID).as_deref(), Some("1"));
    assert_eq!(fact(facts::HOST_PID), Some(pid.to_string()));
    assert_eq!(fact(facts::OTP_RELEASE), Some(otp.release.to_string()));
    // The limits are those of the container, but the host name is that of the host.
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    assert_eq!(fact(facts::NOFILE_SOFT).as_deref(), files.split_whitespace().nth(3));
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert_eq!(fact(facts::HOST_NAME).as_deref(), Some(name.trim()));
    assert!(recorder.values(&sample, &metrics::THREAD_CPU).len() > 10);
    drop(container);
    drop(group);
    drop(outer);
}
