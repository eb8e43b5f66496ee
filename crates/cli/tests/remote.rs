//! Nodes on another host: what the operating system there knows comes through the node's agent.
//!
//! The other host is a network namespace with an address of its own. Its processes can be seen from here, so the same
//! VM can be read both ways; that its address is none of ours is what makes beamtune ask its agent.
#![allow(clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "these are tests")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use beamtune_model::{Facts, Group, Series, Tick, facts};
use beamtune_recording::Reader;
use common::network::Network;
use common::{
    Otp, PATIENCE, Running, Said, TestNode, all_otps, beamtune, folder, otp, run, unique, wait_until,
    wait_up_to,
};

/// Where the nodes listen in the namespace.
const PORT: &str = "9100";

/// Another host, as its address tells.
struct Far {
    network: Network,
    address: String,
}

impl Far {
    /// `None` if none can be made here, and then that has been said.
    fn new() -> Option<Far> {
        let (network, cable) = Network::joined()?;
        Some(Far { network, address: cable.address })
    }

    /// A node there, without EPMD. `before` is what a shell does before it becomes the node.
    fn node(&self, otp: &Otp, before: &str) -> TestNode {
        let (name, cookie) = (format!("{}@{}", unique("far"), self.address), unique("cookie"));
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.network.door()));
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
        let mut running = Running::start(&mut command);
        running.expect_line("ready");
        TestNode { running, name, cookie, otp: otp.clone() }
    }

    fn target(&self) -> String {
        format!("{}:{PORT}", self.address)
    }
}

/// The lowest and the highest value of each series of the host, and the facts.
fn content(file: &Path) -> (BTreeMap<String, (i64, i64)>, Facts) {
    let reader = Reader::open(file).expect("opened");
    let table = reader.series().expect("series");
    let mut bounds = BTreeMap::new();
    for sample in reader.samples() {
        for (id, value) in sample.expect("readable").readings {
            let Some(Series { group, entity, name, .. }) = table.get(id) else { continue };
            if group.is_host() {
                let (least, most) =
                    bounds.entry(format!("{group}/{entity}/{name}")).or_insert((value, value));
                (*least, *most) = (value.min(*least), value.max(*most));
            }
        }
    }
    (bounds, reader.facts(0).expect("facts"))
}

/// Samples of the host in one of the VM's lives; none while the file is not there.
fn hosts(file: &Path, life: u32) -> usize {
    let of_life = |tick: Tick| tick.incarnation == life && tick.host.is_some();
    Reader::open(file).map_or(0, |reader| {
        reader.samples().filter(|sample| sample.as_ref().is_ok_and(|sample| of_life(sample.tick))).count()
    })
}

fn gaps(file: &Path) -> Vec<String> {
    let reader = Reader::open(file).expect("opened");
    let gaps = reader.samples().flat_map(|sample| sample.expect("readable").gaps);
    gaps.map(|gap| format!("{} {}: {}", gap.source, gap.kind, gap.reason)).collect()
}

/// Whether a gap is one of time alone.
fn is_late(gap: &str) -> bool {
    ["timed_out", "gone", "late"].iter().any(|kind| gap.split([' ', ':']).nth(1) == Some(kind))
}

fn doctor(node: &TestNode, target: &str) -> Said {
    run(beamtune().env("BEAMTUNE_COOKIE", &node.cookie).args(["doctor", target, "--for", "3s", "--json"]))
}

#[test]
fn the_host_of_a_far_node_is_read_as_one_here() {
    for otp in all_otps() {
        let Some(far) = Far::new() else { return };
        let node = far.node(&otp, "");
        let folder = folder();
        let (through, direct) = (folder.path().join("through.btr"), folder.path().join("direct.btr"));
        // What is read here begins before what is asked there, and ends after it: so it bounds what moves.
        let mut read = beamtune();
        read.args(["record", &node.pid().to_string(), "--host-only", "-o"]).arg(&direct);
        let mut read = Running::start(&mut read);
        wait_until("a sample of the host", || hosts(&direct, 0) > 0);
        // On a busy machine the node may not answer in time, and then not all is told.
        wait_up_to(4 * PATIENCE, "a recording in which all was told in time", || {
            let _ = std::fs::remove_file(&through);
            let mut asked = beamtune();
            asked.env("BEAMTUNE_COOKIE", &node.cookie).args(["record", &far.target(), "--for", "4s", "-o"]);
            let asked = run(asked.arg(&through));
            assert_eq!(asked.status, Some(0), "{}", asked.stderr);
            let late: Vec<_> = gaps(&through).into_iter().filter(|gap| is_late(gap)).collect();
            late.iter().for_each(|gap| eprintln!("OTP {}: {gap}", otp.release));
            late.is_empty()
        });
        let seen = hosts(&direct, 0);
        wait_until("another sample of the host", || hosts(&direct, 0) > seen);
        read.signal("INT");
        assert_eq!(read.wait().code(), Some(0));

        let ((there, told), (here, known)) = (content(&through), content(&direct));
        let about = format!("OTP {}: {:#?}", otp.release, gaps(&through));
        // Where the node has a root of its own, it sees no control groups.
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
            assert!(told.get(key).is_some() && told.get(key) == known.get(key), "{key}: {about}");
        }
        if sees_groups {
            for key in [
                facts::CGROUP_VERSION,
                facts::CGROUP_PATH,
                facts::CGROUP_OWN_PATH,
                facts::CGROUP_REACHES_ROOT,
            ] {
                assert_eq!(told.get(key), known.get(key), "{key}: {about}");
            }
        } else {
            assert!(about.contains("host.cgroup "), "{about}");
        }
        let names = |values: &BTreeMap<String, (i64, i64)>| -> BTreeSet<String> {
            let is_group =
                |name: &&String| name.starts_with(Group::HostCgroup.text()) || name.contains("/cgroup/");
            // The clock there is another one, of which ours says nothing.
            let is_clock = |name: &&String| *name == "host_cpu//wall_clock";
            // Nobody but who is there can look into the VM's memory, or at which sockets, files and programs are the VM's.
            let here_only = [
                Group::HostMapping,
                Group::HostContent,
                Group::HostListen,
                Group::HostTcp,
                Group::HostUdp,
                Group::HostFiles,
                Group::HostPrograms,
            ];
            let is_here_only =
                |name: &&String| here_only.iter().any(|group| name.starts_with(&format!("{group}/")));
            values
                .keys()
                .filter(|name| (sees_groups || !is_group(name)) && !is_clock(name) && !is_here_only(name))
                .cloned()
                .collect()
        };
        assert_eq!(names(&there), names(&here), "{about}");
        assert!(
            about.contains("host.smaps unsupported: not judged: the node runs on another host"),
            "{about}"
        );
        for name in names(&there) {
            let (through, (least, most)) = (there.get(&name).expect("there"), here.get(&name).expect("here"));
            let check = |slack: i64| {
                let is_between = least - slack <= through.0 && through.1 <= most + slack;
                assert!(is_between, "{name}: {through:?} is not within {least} to {most}: {about}");
            };
            let exact = ["quota", "weight", "memory_limit", "cpus_online", "cpus_allowed", "threads"];
            let time = name.starts_with(Group::HostThread.text()) && !name.ends_with("_switches");
            let is_process = name == "host_process//user" || name == "host_process//system";
            if time || is_process || exact.iter().any(|end| name.ends_with(&format!("/{end}"))) {
                check(0);
            }
            // They go up and down between two looks.
            if name == "host_process//rss" || name == "host_cpu//memory_available" {
                check(most / 4);
            }
            // The kernel may take some idle time back.
            if name.ends_with("/busy") || name.ends_with("/idle") {
                check(1_000_000_000);
            }
        }
    }
}

#[test]
fn rules_of_the_host_judge_a_far_node() {
    for otp in all_otps() {
        let Some(far) = Far::new() else { return };
        let node = far.node(&otp, "");
        let folder = folder();
        let file = folder.path().join("far.btr");
        let mut command = beamtune();
        command.env("BEAMTUNE_COOKIE", &node.cookie).args(["record", &far.target(), "-o"]).arg(&file);
        let mut recorder = Running::start(&mut command);
        wait_until("three samples of the host", || hosts(&file, 0) >= 3);
        recorder.signal("INT");
        assert_eq!(recorder.wait().code(), Some(0));
        let json = run(beamtune().args(["diagnose", "--json"]).arg(&file)).json();
        let samples = |what: &str| json["period"][what].as_i64().unwrap_or(0);
        assert!(samples("host_samples") >= 3 && samples("host_samples") <= samples("samples"), "{json:#}");
        // The CPU of the VM is known, so busy waiting can be told.
        let judged = |code: &str| {
            let none = json["not_judged"].as_array().into_iter().flatten().all(|rule| rule["code"] != code);
            assert!(none, "OTP {}: {json:#}", otp.release);
        };
        judged("BT001");
        judged("BT008");
        drop(node);
        let said = run(beamtune().args(["doctor", &far.target(), "--for", "1s", "--host-only"]));
        said.assert_refused(&["runs on another host"]);
    }
}

#[test]
fn without_proc_the_rules_of_the_host_say_why_they_do_not_judge() {
    let Some(otp) = otp(25) else { return };
    let Some(far) = Far::new() else { return };
    let node = far.node(&otp, "umount -l /proc &&");
    let json = doctor(&node, &far.target()).json();
    assert!(json["period"]["vm_samples"].as_i64() > Some(0), "{json:#}");
    assert_eq!(json["period"]["host_samples"], 0);
    let not_judged = json["not_judged"].as_array().expect("a list");
    let reasons: Vec<_> = not_judged.iter().filter_map(|rule| rule["reason"].as_str()).collect();
    assert!(
        reasons.iter().any(|reason| reason.contains("no /proc is mounted where it runs")),
        "{reasons:#?}"
    );
}

#[test]
fn a_far_node_that_is_started_again_is_read_on() {
    let Some(otp) = otp(25) else { return };
    let Some(far) = Far::new() else { return };
    let folder = folder();
    let file = folder.path().join("far.btr");
    let first = far.node(&otp, "");
    let (name, cookie) = (first.name.clone(), first.cookie.clone());
    let mut command = beamtune();
    command.env("BEAMTUNE_COOKIE", &cookie).args(["record", &far.target(), "--keep", "1h", "-o"]);
    let mut recorder = Running::start(command.arg(&file));
    wait_until("samples of the host", || hosts(&file, 0) >= 2);
    let old_pid = first.pid();
    drop(first);
    let (user, _) = name.split_once('@').expect("a host");
    let naming = format!("{user}@{}", far.address);
    let mut command = Command::new("nsenter");
    command.arg(format!("--net={}", far.network.door())).args([
        "erl",
        "-noinput",
        "-name",
        &naming,
        "-setcookie",
        &cookie,
    ]);
    command.args(["-start_epmd", "false", "-erl_epmd_port", PORT, "-kernel", "inet_dist_listen_min", PORT]);
    let second = Running::start(command.args(["-eval", "io:put_chars(\"ready\\n\")."]));
    wait_until("samples of the host in the next life", || hosts(&file, 1) >= 2);
    recorder.signal("INT");
    assert_eq!(recorder.wait().code(), Some(0));
    let reader = Reader::open(&file).expect("opened");
    let pid = |life: u32| reader.facts(life).expect("facts").get(facts::OS_PID).map(str::to_owned);
    assert_eq!((pid(0), pid(1)), (Some(old_pid.to_string()), Some(second.pid().to_string())));
}
