//! Nodes in containers, diagnosed from the host. The containers are namespaces for network, process ids and mounts, created by `unshare`,
//! with a VM of each release.
#![allow(clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "these are tests")]

mod common;

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use beamtune_model::{Sample, facts};
use beamtune_recording::Reader;
use common::containers::{Container, can_create_namespaces};
use common::group::ControlGroup;
use common::network::Network;
use common::{
    Otp, Output, Process, TestNode, all_otps, beamtune, folder, on_all_otps, otp, run, unique, wait_until,
};
use serde_json::Value;
use tempfile::TempDir;

/// All containers use the same port, like real ones.
const PORT: [&str; 5] = ["-kernel", "inet_dist_listen_min", "9100", "inet_dist_listen_max", "9100"];

/// The namespaces of a container, as options of unshare(1).
const ALL: &[&str] = &["-n", "-m", "-u", "-p", "-C"];

fn doctor(target: &str) -> Command {
    let mut command = beamtune();
    command.args(["doctor", target, "--for", "2s", "--json"]);
    command
}

fn assert_attached(output: &Output) {
    assert!(matches!(output.status, Some(0 | 1)), "{:?}: {}", output.status, output.stderr);
    for samples in ["vm_samples", "host_samples"] {
        let samples = output.json()["period"][samples].as_i64();
        assert!(samples.is_some_and(|samples| samples > 0), "{:#}", output.json());
    }
}

fn row(pid: u32) -> Value {
    let rows = run(beamtune().args(["nodes", "--json"])).json();
    let row = rows.as_array().into_iter().flatten().find(|row| row["pid"] == pid).cloned();
    row.unwrap_or_else(|| panic!("process {pid} is not in {rows:#}"))
}

/// A home directory below a release's root. Its `.erlang.cookie` is a symbolic link, which leads to one cookie inside the container, and
/// to a different one on the host.
struct Home {
    /// The path, which is the same in the container and on the host.
    path: TempDir,
    inner: PathBuf,
}

impl Home {
    fn new(otp: &Otp) -> Home {
        let path = tempfile::tempdir().expect("a folder");
        let inside = path.path().strip_prefix("/").expect("an absolute path");
        let inner = otp.root.as_deref().unwrap_or(Path::new("/")).join(inside);
        fs::create_dir_all(&inner).expect("a folder");
        let write_cookie = |folder: &Path, cookie: &str| {
            let file = folder.join("secret");
            fs::write(&file, cookie).expect("a cookie");
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("its mode");
        };
        write_cookie(path.path(), "that_of_the_host");
        // Without a chroot, both are the same file.
        write_cookie(&inner, &unique("cookie"));
        symlink(path.path().join("secret"), inner.join(".erlang.cookie")).expect("a link");
        Home { path, inner }
    }

    /// Starts a node whose cookie is in this home directory.
    fn node(&self, otp: &Otp, name: &str, args: &[&str]) -> Container {
        self.node_with_prefix(&[], otp, name, args)
    }

    /// Starts such a node with a prefix of the VM's command.
    fn node_with_prefix(&self, prefix: &[&str], otp: &Otp, name: &str, args: &[&str]) -> Container {
        let home = format!("HOME={}", self.path.path().display());
        let args = [&["-name", name], &PORT[..], args].concat();
        Container::run(otp, ALL, &[prefix, &["env", &home]].concat(), name, &args)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // Without a chroot, this is the folder `path`, which is removed anyway.
        let _ = fs::remove_dir_all(&self.inner);
    }
}

#[test]
fn nodes_in_containers_can_be_diagnosed_from_the_host() {
    if !can_create_namespaces() {
        return;
    }
    for otp in all_otps() {
        let name = format!("{}@127.0.0.1", unique("boxed"));
        let (one, other) = (Home::new(&otp), Home::new(&otp));
        let (one, other) = (one.node(&otp, &name, &["+P", "100000"]), other.node(&otp, &name, &[]));
        let mut networks = Vec::new();
        for container in [&one, &other] {
            let row = row(container.pid);
            assert_eq!((&row["node"], &row["attachable"]), (&name.as_str().into(), &true.into()), "{row:#}");
            let network = row["network_namespace"].as_u64().expect("a network of its own");
            assert_eq!(row["place"], format!("container, network {network}"));
            networks.push(network);
            assert_attached(&run(&mut doctor(&container.pid_text())));
        }
        assert_ne!(networks[0], networks[1]);
        let listed = run(beamtune().arg("nodes")).stdout;
        assert!(listed.contains(&format!("container, network {}", networks[0])), "{listed}");

        // Each target is the intended node, both over the connection and through /proc.
        let folder = folder();
        for (container, expect) in [(&one, "131072"), (&other, "262144")] {
            // In OTP 27, the default is four times as large.
            let expect = if expect == "262144" && otp.release >= 27 { "1048576" } else { expect };
            let file = folder.path().join(container.pid_text());
            let output =
                run(beamtune().args(["record", &container.pid_text(), "--for", "1s", "-o"]).arg(&file));
            assert_eq!(output.status, Some(0), "{}", output.stderr);
            let all = facts_in(&file);
            let fact =
                |key: &str| all.iter().rfind(|(known, _)| known == key).map(|(_, value)| value.as_str());
            assert_eq!(fact(facts::PROCESS_LIMIT), Some(expect), "OTP {}", otp.release);
            assert_eq!(fact(facts::OS_PID), Some("1"));
            assert_eq!(fact(facts::HOST_PID), Some(container.pid_text().as_str()));
        }
        let args = |container: &Container| run(beamtune().args(["args", &container.pid_text()])).stdout;
        assert!(args(&one).contains("100000") && !args(&other).contains("100000"), "{}", args(&one));
        let output = run(beamtune().args(["lint", &one.pid_text()]));
        assert!(
            matches!(output.status, Some(0 | 1)) && output.stdout.contains("1 source"),
            "{}",
            output.stdout
        );

        // If both nodes have the name, it is ambiguous.
        for target in [&*name, name.split('@').next().expect("a name")] {
            let pids = [one.pid_text(), other.pid_text()];
            run(&mut doctor(target)).assert_refused(&[
                "2 Erlang VMs",
                "by its process id",
                &pids[0],
                &pids[1],
            ]);
        }
        // The process id inside the container is also ambiguous.
        run(&mut doctor("1")).assert_refused(&["In a container", &one.pid_text(), &other.pid_text()]);
        drop(other);
        assert_attached(&run(&mut doctor(&name)));
    }
}

#[test]
fn two_nodes_with_the_same_name_need_separate_recordings() {
    let (true, Some(otp)) = (can_create_namespaces(), otp(25)) else { return };
    let name = format!("{}@127.0.0.1", unique("boxed"));
    let home = Home::new(&otp);
    let two = [home.node(&otp, &name, &[]), home.node(&otp, &name, &[])];
    let folder = folder();
    let mut command = beamtune();
    command.args(["record", "--keep", "1h", "--max-size", "20MB", "--for", "2s"]);
    let output = run(command.args([two[0].pid_text(), two[1].pid_text()]).arg("-o").arg(folder.path()));
    let file = format!("{name}.btr");
    output.assert_refused(&["another target is already recorded into", &file, "own file"]);
    assert!(Reader::open(&folder.path().join(file)).is_ok_and(|reader| reader.samples().count() > 0));
}

/// Counts the samples of a recording that satisfy a condition; 0 while there is no file.
fn samples(file: &Path, are: impl Fn(&Sample) -> bool) -> usize {
    let Ok(reader) = Reader::open(file) else { return 0 };
    reader.samples().filter(|sample| sample.as_ref().is_ok_and(&are)).count()
}

/// Counts the samples with data of both VM and host, in one incarnation of the VM.
fn whole_samples(file: &Path, incarnation: u32) -> usize {
    samples(file, |Sample { tick, .. }| {
        tick.incarnation == incarnation && tick.vm.is_some() && tick.host.is_some()
    })
}

/// Returns the process ids of a recording's VM, in order.
fn pids_in(file: &Path) -> Vec<String> {
    let is_pid = |(key, _): &(String, String)| key == facts::HOST_PID;
    facts_in(file).into_iter().filter(is_pid).map(|(_, pid)| pid).collect()
}

/// Returns all facts of a recording, in order.
fn facts_in(file: &Path) -> Vec<(String, String)> {
    let reader = Reader::open(file).expect("a recording");
    reader.samples().flat_map(|sample| sample.expect("readable").facts).collect()
}

/// Starts a node in its own network namespace, but without other separate namespaces.
fn node_in(network: &Network, otp: &Otp, name: &str) -> Process {
    let ([ip, prefix @ ..], erl) = (network.prefix(), otp.command("erl"));
    let mut command = Command::new(ip);
    command.args(prefix).arg(erl.get_program()).args(erl.get_args());
    command.args(["-name", name, "-setcookie", "any", "-noinput"]);
    command.args(["-eval", "io:put_chars(\"ready\n\")."]);
    let mut node = Process::start(&mut command);
    node.expect_line("ready");
    node
}

#[test]
fn node_with_only_a_network_namespace_can_be_diagnosed() {
    on_all_otps(|otp| {
        let Some(network) = Network::new() else { return };
        let name = format!("{}@127.0.0.1", unique("netns"));
        let node = node_in(&network, otp, &name);
        let row = row(node.pid());
        assert_eq!(row["place"], format!("network {}", row["network_namespace"]), "{row:#}");
        assert_eq!((&row["node"], &row["attachable"]), (&name.as_str().into(), &true.into()), "{row:#}");
        assert_attached(&run(&mut doctor(&node.pid().to_string())));
        assert_attached(&run(&mut doctor(&name)));
    });
}

#[test]
fn loopback_address_refers_to_the_host_and_not_to_a_container() {
    let (true, Some(otp)) = (can_create_namespaces(), otp(25)) else { return };
    let home = Home::new(&otp);
    let name = format!("{}@127.0.0.1", unique("boxed"));
    let _container = home.node(&otp, &name, &[]);
    if TcpStream::connect("127.0.0.1:9100").is_ok() {
        eprintln!("skipped, because something listens on port 9100 of this host");
        return;
    }
    let output = run(doctor("127.0.0.1:9100").env("BEAMTUNE_COOKIE", "any"));
    output.assert_refused(&["127.0.0.1:9100 cannot be reached", "refused"]);
}

#[test]
fn node_without_epmd_on_the_containers_own_address_can_be_diagnosed() {
    if !can_create_namespaces() {
        return;
    }
    on_all_otps(|otp| {
        let home = Home::new(otp);
        let name = format!("{}@127.0.0.2", unique("boxed"));
        let only = ["-kernel", "inet_dist_use_interface", "{127,0,0,2}"];
        let only = [&["-start_epmd", "false", "-erl_epmd_port", "9100"], &only[..]].concat();
        let container = home.node(otp, &name, &only);
        assert_attached(&run(&mut doctor(&container.pid_text())));
        assert_attached(&run(&mut doctor(&name)));
    });
}

#[test]
fn short_name_is_completed_with_the_containers_host_name() {
    let (true, Some(otp)) = (can_create_namespaces(), otp(25)) else { return };
    let alive = unique("boxed");
    let name = format!("{alive}@box");
    let container = Container::run(&otp, ALL, &[], &name, &["-sname", &name, "-setcookie", "any"]);
    assert_eq!(row(container.pid)["node"], name);
    assert_attached(&run(&mut doctor(&name)));
    // The same name on another host is another node.
    let output =
        run(doctor(&format!("{alive}@127.0.0.9")).env("ERL_EPMD_PORT", "4399").env("BEAMTUNE_COOKIE", "x"));
    output.assert_refused(&["no EPMD answers at 127.0.0.9:4399"]);
}

#[test]
fn node_with_tls_in_a_container_can_be_diagnosed() {
    if !can_create_namespaces() {
        return;
    }
    on_all_otps(|otp| {
        let home = Home::new(otp);
        let pem = home.inner.join("node.pem");
        let mut command = Command::new("openssl");
        command.args(["req", "-x509", "-nodes", "-days", "2", "-newkey", "rsa:2048", "-subj", "/CN=node"]);
        let certificate = home.inner.join("certificate");
        let output = run(command.arg("-keyout").arg(&pem).arg("-out").arg(&certificate));
        assert_eq!(output.status, Some(0), "{}", output.stderr);
        let both = [fs::read(&certificate).expect("a certificate"), fs::read(&pem).expect("a key")].concat();
        fs::write(&pem, both).expect("a file");
        // The certificate is a symbolic link, with a path relative to the VM's working directory.
        symlink(home.path.path().join("node.pem"), home.inner.join("link.pem")).expect("a link");
        fs::write(home.inner.join("options"), "[{server, [{certfile, \"link.pem\"}]}].").expect("options");
        let name = format!("{}@127.0.0.1", unique("boxed"));
        let enter = format!("cd {} && exec \"$@\"", home.path.path().display());
        let before = ["env", &format!("HOME={}", home.path.path().display()), "sh", "-c", &enter, "sh"];
        let options = home.path.path().join("options").display().to_string();
        let args = ["-name", &name, "-proto_dist", "inet_tls", "-ssl_dist_optfile", &options];
        let container = Container::run(otp, ALL, &before, &name, &args);
        assert_eq!(row(container.pid)["attachable"], true);
        assert_attached(&run(&mut doctor(&container.pid_text())));
    });
}

#[test]
fn recording_continues_when_the_container_is_restarted() {
    if !can_create_namespaces() {
        return;
    }
    on_all_otps(|otp| {
        let folder = folder();
        let file = folder.path().join("restart.btr");
        let name = format!("{}@127.0.0.1", unique("boxed"));
        let home = Home::new(otp);
        let first = home.node(otp, &name, &[]);
        let first_pid = first.pid_text();
        let mut command = beamtune();
        command.args(["record", "--keep", "1h", "--max-size", "20MB", &name, "-o"]).arg(&file);
        let mut recording = Process::start(&mut command);
        wait_until("samples of VM and host", || whole_samples(&file, 0) >= 2);
        drop(first);
        let second = home.node(otp, &name, &[]);
        wait_until("samples of VM and host of the next incarnation", || whole_samples(&file, 1) >= 2);
        recording.signal("INT");
        assert_eq!(recording.wait().code(), Some(0));
        assert_eq!(pids_in(&file), [first_pid, second.pid_text()], "OTP {}", otp.release);
    });
}

#[test]
fn recording_does_not_continue_with_a_replica_of_the_container() {
    if !can_create_namespaces() {
        return;
    }
    // Docker uses such names.
    let group = |digit: &str| {
        let start = format!("{:08x}", std::process::id());
        ControlGroup::new(&format!("docker-{start}{}.scope", digit.repeat(56)))
    };
    let (Some(one), Some(other)) = (group("1"), group("2")) else { return };
    for otp in all_otps().into_iter().filter(|otp| otp.root.is_none()) {
        let folder = folder();
        let file = folder.path().join("replica.btr");
        let name = format!("{}@127.0.0.1", unique("boxed"));
        // Both nodes have the same cookie, like replicas of a service.
        let home = Home::new(&otp);
        let node = |group: &ControlGroup| {
            home.node_with_prefix(&group.prefix().each_ref().map(String::as_str), &otp, &name, &[])
        };
        let (first, replica) = (node(&one), node(&other));
        let first_pid = first.pid_text();
        assert!(row(first.pid)["place"].as_str().is_some_and(|place| place.starts_with("docker ")));
        let mut command = beamtune();
        command.args(["record", "--keep", "1h", "--max-size", "20MB", &first_pid, "-o"]).arg(&file);
        let mut recording = Process::start(&mut command);
        wait_until("samples of VM and host", || whole_samples(&file, 0) >= 2);
        drop((first, replica));
        // The replica starts first.
        let _replica = node(&other);
        let before = samples(&file, |_| true);
        wait_until("a few attempts to find it again", || samples(&file, |_| true) >= before + 4);
        let restarted = node(&one);
        wait_until("samples of VM and host of the next incarnation", || whole_samples(&file, 1) >= 2);
        recording.signal("INT");
        assert_eq!(recording.wait().code(), Some(0));
        assert_eq!(pids_in(&file), [first_pid, restarted.pid_text()], "OTP {}", otp.release);
    }
}

/// Runs a command without any privileges.
const NOBODY: [&str; 7] = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--"];

fn as_nobody(args: &[&str]) -> Output {
    let mut command = Command::new(NOBODY[0]);
    command.args(&NOBODY[1..]).arg(beamtune().get_program()).args(args);
    run(command.env("BEAMTUNE_COOKIE", "any"))
}

#[test]
fn another_node_is_not_shown_if_the_vms_network_cannot_be_read() {
    let (Some(otp), Some(network)) = (otp(25), Network::new()) else { return };
    let alive = unique("netns");
    let node = node_in(&network, &otp, &format!("{alive}@127.0.0.1"));
    // This node is registered with the host's EPMD, under the name that the first node has in its own network.
    let name = format!("{alive}@127.0.0.2");
    let other = TestNode::with_cookie(&otp, "any", &["-name", &name], &name, &[], "ok");
    let output = as_nobody(&["doctor", &node.pid().to_string(), "--for", "1s"]);
    if output.stderr.contains("setpriv") {
        eprintln!("skipped, because the binary cannot be run as nobody: {}", output.stderr);
        return;
    }
    output.assert_refused(&[&name]);
    // The other node itself can be diagnosed. The findings depend on what else is running on this host.
    let output = as_nobody(&["doctor", &other.pid().to_string(), "--for", "1s", "--json"]);
    assert!(matches!(output.status, Some(0 | 1)), "{:?}: {}", output.status, output.stderr);
    let answer = output.json();
    assert_eq!(answer["node"]["name"], name.as_str());
    assert!(answer["period"]["vm_samples"].as_i64().is_some_and(|samples| samples > 0), "{answer:#}");
}

#[test]
fn error_for_a_user_who_may_not_enter_a_container_names_the_remedy() {
    let (true, Some(otp)) = (can_create_namespaces(), otp(25)) else { return };
    let name = format!("{}@127.0.0.1", unique("boxed"));
    let before = [&NOBODY[..], &["env", "HOME=/tmp"]].concat();
    let args = ["-name", &name, "-setcookie", "any"];
    let container = Container::run(&otp, ALL, &before, &name, &args);
    let output = as_nobody(&["doctor", &container.pid_text(), "--for", "1s"]);
    if output.stderr.contains("setpriv") {
        eprintln!("skipped, because the binary cannot be run as nobody: {}", output.stderr);
        return;
    }
    let nsenter = format!("nsenter -t {} -n beamtune", container.pid);
    let words = [
        "is in another network namespace",
        "not permitted",
        "as root",
        &nsenter,
        "docker run --network container:",
    ];
    output.assert_refused(&words);
    let rows = as_nobody(&["nodes", "--json"]).json();
    let row = rows.as_array().into_iter().flatten().find(|row| row["pid"] == container.pid).cloned();
    let row = row.expect("its row");
    assert_eq!(row["attachable"], false);
    assert!(row["why_not"].as_str().is_some_and(|why| why.contains(&nsenter)), "{row:#}");
    // For a container of another user, even the network namespace is unknown.
    let others = Container::run(&otp, ALL, &[], &name, &args);
    let output = as_nobody(&["doctor", &others.pid_text(), "--for", "1s"]);
    output.assert_refused(&["it runs in a container: not allowed to read", "run beamtune as root"]);
    // Commands that need no connection still work.
    let output = as_nobody(&["args", &container.pid_text()]);
    assert_eq!(output.status, Some(0), "{}", output.stderr);
    assert_attached(&run(&mut doctor(&container.pid_text())));
}

#[test]
fn container_with_a_user_namespace_can_be_diagnosed() {
    let (true, Some(otp)) = (can_create_namespaces(), otp(25)) else { return };
    let output = run(Command::new("unshare").args(["-U", "-r", "-n", "-m", "-p", "--fork", "ip", "link"]));
    if output.status != Some(0) {
        eprintln!("skipped, because no user namespaces can be created here: {}", output.stderr);
        return;
    }
    let name = format!("{}@127.0.0.1", unique("boxed"));
    let args = ["-name", &name, "-setcookie", "any"];
    let container = Container::run(&otp, &["-U", "-r", "-n", "-m", "-p"], &[], &name, &args);
    assert_attached(&run(&mut doctor(&container.pid_text())));
    assert_attached(&run(&mut doctor(&name)));
}
