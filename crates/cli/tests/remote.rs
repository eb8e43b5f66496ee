//! Nodes on another host: the data of its operating system come from the node's agent.
//!
//! The other host is a network namespace with its own address. Its processes are visible on this host, so the same VM can be read both
//! ways. Since the address does not belong to this host, beamtune requests the data from the agent.
#![allow(clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "these are tests")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use beamtune_model::{Facts, Group, Series, Tick, facts};
use beamtune_recording::Reader;
use common::network::Network;
use common::{
    Otp, Output, Process, TIMEOUT, TestNode, all_otps, beamtune, folder, otp, run, unique, wait_until,
    wait_up_to,
};

/// The distribution port of the nodes in the namespace.
const PORT: &str = "9100";

/// A network namespace that appears as another host because of its address.
struct OtherHost {
    network: Network,
    address: String,
}

impl OtherHost {
    /// Creates the namespace. If that is impossible, returns `None` and prints why the test is skipped.
    fn new() -> Option<OtherHost> {
        let (network, veth) = Network::connected()?;
        Some(OtherHost { network, address: veth.address })
    }

    /// Starts a node on the other host, without EPMD. `before` is shell code that runs before the node starts.
    fn node(&self, otp: &Otp, before: &str) -> TestNode {
        let (name, cookie) = (format!("{}@{}", unique("far"), self.address), unique("cookie"));
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.network.path()));
        command.args([
            "unshare",
            "-m",
            "--propagation",
            "private",
            "sh",
            "-c",
            &format!("{before} exec \"$@\""),
            "sh",
        ]);
        if let Some(root) = &otp.root {
            command.arg("chroot").arg(root);
        }
        command.args(["erl", "-noinput", "-name", &name, "-setcookie", &cookie]);
        command.args([
            "-start_epmd",
            "false",
            "-erl_epmd_port",
            PORT,
            "-kernel",
            "inet_dist_listen_min",
            PORT,
        ]);
        command.args(["-eval", "io:put_chars(\"ready\\n\")."]);
        let mut process = Process::start(&mut command);
        process.expect_line("ready");
        TestNode { process, name, cookie, otp: otp.clone() }
    }

    fn target(&self) -> String {
        format!("{}:{PORT}", self.address)
    }
}

/// Reads the minimum and maximum of each series of the host, and the facts.
fn content(file: &Path) -> (BTreeMap<String, (i64, i64)>, Facts) {
    let reader = Reader::open(file).expect("opened");
    let table = reader.series().expect("series");
    let mut bounds = BTreeMap::new();
    for sample in reader.samples() {
        for (id, value) in sample.expect("readable").readings {
            let Some(Series { group, entity, name, .. }) = table.get(id) else { continue };
            if group.is_host() {
                let (min, max) = bounds.entry(format!("{group}/{entity}/{name}")).or_insert((value, value));
                (*min, *max) = (value.min(*min), value.max(*max));
            }
        }
    }
    (bounds, reader.facts(0).expect("facts"))
}

/// Counts the samples of the host in one incarnation of the VM; 0 while there is no file.
fn host_samples(file: &Path, incarnation: u32) -> usize {
    let is_match = |tick: Tick| tick.incarnation == incarnation && tick.host.is_some();
    Reader::open(file).map_or(0, |reader| {
        reader.samples().filter(|sample| sample.as_ref().is_ok_and(|sample| is_match(sample.tick))).count()
    })
}

fn gaps(file: &Path) -> Vec<String> {
    let reader = Reader::open(file).expect("opened");
    let gaps = reader.samples().flat_map(|sample| sample.expect("readable").gaps);
    gaps.map(|gap| format!("{} {}: {}", gap.source, gap.kind, gap.reason)).collect()
}

/// True if a gap was caused only by a delay.
fn is_late(gap: &str) -> bool {
    ["timed_out", "gone", "late"].iter().any(|kind| gap.split([' ', ':']).nth(1) == Some(kind))
}

fn doctor(node: &TestNode, target: &str) -> Output {
    run(beamtune().env("BEAMTUNE_COOKIE", &node.cookie).args(["doctor", target, "--for", "3s", "--json"]))
}

#[test]
fn agent_reads_the_same_host_data_as_a_local_recording() {
    for otp in all_otps() {
        let Some(other_host) = OtherHost::new() else { return };
        let node = other_host.node(&otp, "");
        let folder = folder();
        let (by_agent, direct) = (folder.path().join("by_agent.btr"), folder.path().join("direct.btr"));
        // The local recording begins before that of the agent and ends after it, so changing values must be within its bounds.
        let mut command = beamtune();
        command.args(["record", &node.pid().to_string(), "--host-only", "-o"]).arg(&direct);
        let mut local_recorder = Process::start(&mut command);
        wait_until("a sample of the host", || host_samples(&direct, 0) > 0);
        // On a busy host, the node may not answer in time. Some values are then missing.
        wait_up_to(4 * TIMEOUT, "a recording without late answers", || {
            let _ = std::fs::remove_file(&by_agent);
            let mut command = beamtune();
            command.env("BEAMTUNE_COOKIE", &node.cookie).args([
                "record",
                &other_host.target(),
                "--for",
                "4s",
                "-o",
            ]);
            let output = run(command.arg(&by_agent));
            assert_eq!(output.status, Some(0), "{}", output.stderr);
            let late: Vec<_> = gaps(&by_agent).into_iter().filter(|gap| is_late(gap)).collect();
            late.iter().for_each(|gap| eprintln!("OTP {}: {gap}", otp.release));
            late.is_empty()
        });
        let count = host_samples(&direct, 0);
        wait_until("another sample of the host", || host_samples(&direct, 0) > count);
        local_recorder.signal("INT");
        assert_eq!(local_recorder.wait().code(), Some(0));

        let ((remote, remote_facts), (local, local_facts)) = (content(&by_agent), content(&direct));
        let context = format!("OTP {}: {:#?}", otp.release, gaps(&by_agent));
        // In a chroot, the node sees no control groups.
        let sees_groups = otp.root.is_none();
        for key in [
            facts::HOST_NAME,
            facts::KERNEL_VERSION,
            facts::CPU_MODEL,
            facts::HOST_CPUS,
            facts::HOST_MEMORY,
            facts::CPUS_ALLOWED,
            facts::NOFILE_SOFT,
            facts::NOFILE_HARD,
            facts::OS_PID,
        ] {
            assert!(
                remote_facts.get(key).is_some() && remote_facts.get(key) == local_facts.get(key),
                "{key}: {context}"
            );
        }
        if sees_groups {
            for key in [
                facts::CGROUP_VERSION,
                facts::CGROUP_PATH,
                facts::CGROUP_OWN_PATH,
                facts::CGROUP_REACHES_ROOT,
            ] {
                assert_eq!(remote_facts.get(key), local_facts.get(key), "{key}: {context}");
            }
        } else {
            assert!(context.contains("host.cgroup "), "{context}");
        }
        let names = |values: &BTreeMap<String, (i64, i64)>| -> BTreeSet<String> {
            let is_group =
                |name: &&String| name.starts_with(Group::HostCgroup.text()) || name.contains("/cgroup/");
            // The wall clock is recorded only for VMs on this host.
            let is_clock = |name: &&String| *name == "host_cpu//wall_clock";
            // The memory, sockets, files and external programs of a VM can be read only on its own host.
            let local_only = [
                Group::HostMapping,
                Group::HostContent,
                Group::HostListen,
                Group::HostTcp,
                Group::HostUdp,
                Group::HostFiles,
                Group::HostPrograms,
            ];
            let is_local_only =
                |name: &&String| local_only.iter().any(|group| name.starts_with(&format!("{group}/")));
            values
                .keys()
                .filter(|name| (sees_groups || !is_group(name)) && !is_clock(name) && !is_local_only(name))
                .cloned()
                .collect()
        };
        assert_eq!(names(&remote), names(&local), "{context}");
        assert!(
            context.contains("host.smaps unsupported: not available: the node runs on another host"),
            "{context}"
        );
        for name in names(&remote) {
            let (read, (min, max)) = (remote.get(&name).expect("remote"), local.get(&name).expect("local"));
            let check = |slack: i64| {
                let is_between = min - slack <= read.0 && read.1 <= max + slack;
                assert!(is_between, "{name}: {read:?} is not within {min} to {max}: {context}");
            };
            let exact = ["quota", "weight", "memory_limit", "cpus_online", "cpus_allowed", "threads"];
            let time = name.starts_with(Group::HostThread.text()) && !name.ends_with("_switches");
            let is_process = name == "host_process//user" || name == "host_process//system";
            if time || is_process || exact.iter().any(|end| name.ends_with(&format!("/{end}"))) {
                check(0);
            }
            // These values change between two samples.
            if name == "host_process//rss" || name == "host_cpu//memory_available" {
                check(max / 4);
            }
            // The kernel may correct the idle time.
            if name.ends_with("/busy") || name.ends_with("/idle") {
                check(1_000_000_000);
            }
        }
    }
}

#[test]
fn host_rules_are_evaluated_for_a_remote_node() {
    for otp in all_otps() {
        let Some(other_host) = OtherHost::new() else { return };
        let node = other_host.node(&otp, "");
        let folder = folder();
        let file = folder.path().join("far.btr");
        let mut command = beamtune();
        command.env("BEAMTUNE_COOKIE", &node.cookie).args(["record", &other_host.target(), "-o"]).arg(&file);
        let mut recorder = Process::start(&mut command);
        wait_until("three samples of the host", || host_samples(&file, 0) >= 3);
        recorder.signal("INT");
        assert_eq!(recorder.wait().code(), Some(0));
        let json = run(beamtune().args(["diagnose", "--json"]).arg(&file)).json();
        let samples = |what: &str| json["period"][what].as_i64().unwrap_or(0);
        assert!(samples("host_samples") >= 3 && samples("host_samples") <= samples("samples"), "{json:#}");
        // The VM's CPU time is known, so busy wait can be evaluated.
        let assert_judged = |code: &str| {
            let none = json["not_judged"].as_array().into_iter().flatten().all(|rule| rule["code"] != code);
            assert!(none, "OTP {}: {json:#}", otp.release);
        };
        assert_judged("BT001");
        assert_judged("BT008");
        drop(node);
        let output = run(beamtune().args(["doctor", &other_host.target(), "--for", "1s", "--host-only"]));
        output.assert_refused(&["runs on another host"]);
    }
}

#[test]
fn host_rules_are_not_evaluated_without_proc() {
    let Some(otp) = otp(25) else { return };
    let Some(other_host) = OtherHost::new() else { return };
    let node = other_host.node(&otp, "umount -l /proc &&");
    let json = doctor(&node, &other_host.target()).json();
    assert!(json["period"]["vm_samples"].as_i64() > Some(0), "{json:#}");
    assert_eq!(json["period"]["host_samples"], 0);
    let not_judged = json["not_judged"].as_array().expect("a list");
    let reasons: Vec<_> = not_judged.iter().filter_map(|rule| rule["reason"].as_str()).collect();
    assert!(reasons.iter().any(|reason| reason.contains("/proc is not mounted on its host")), "{reasons:#?}");
}

#[test]
fn recording_of_a_restarted_remote_node_continues() {
    let Some(otp) = otp(25) else { return };
    let Some(other_host) = OtherHost::new() else { return };
    let folder = folder();
    let file = folder.path().join("far.btr");
    let first = other_host.node(&otp, "");
    let (name, cookie) = (first.name.clone(), first.cookie.clone());
    let mut command = beamtune();
    command.env("BEAMTUNE_COOKIE", &cookie).args(["record", &other_host.target(), "--keep", "1h", "-o"]);
    let mut recorder = Process::start(command.arg(&file));
    wait_until("samples of the host", || host_samples(&file, 0) >= 2);
    let old_pid = first.pid();
    drop(first);
    let (alive, _) = name.split_once('@').expect("a host");
    let naming = format!("{alive}@{}", other_host.address);
    let mut command = Command::new("nsenter");
    command.arg(format!("--net={}", other_host.network.path())).args([
        "erl",
        "-noinput",
        "-name",
        &naming,
        "-setcookie",
        &cookie,
    ]);
    command.args(["-start_epmd", "false", "-erl_epmd_port", PORT, "-kernel", "inet_dist_listen_min", PORT]);
    let second = Process::start(command.args(["-eval", "io:put_chars(\"ready\\n\")."]));
    wait_until("samples of the host in the next incarnation", || host_samples(&file, 1) >= 2);
    recorder.signal("INT");
    assert_eq!(recorder.wait().code(), Some(0));
    let reader = Reader::open(&file).expect("opened");
    let pid =
        |incarnation: u32| reader.facts(incarnation).expect("facts").get(facts::OS_PID).map(str::to_owned);
    assert_eq!((pid(0), pid(1)), (Some(old_pid.to_string()), Some(second.pid().to_string())));
}
