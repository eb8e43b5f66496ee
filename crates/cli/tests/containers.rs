//! Nodes in containers of this host, as the host sees them: namespaces of network, process ids and mounts, made by
//! `unshare`, with the VMs of each release in them.
#![allow(clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "these are tests")]

mod common;

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use beamtune_model::{Sample, facts};
use beamtune_recording::Reader;
use common::containers::{Container, can_contain};
use common::group::Group;
use common::network::Network;
use common::{
    Otp, Running, Said, TestNode, all_otps, beamtune, folder, on_all_otps, otp, run, unique, wait_until,
};
use serde_json::Value;
use tempfile::TempDir;

/// All containers of the tests use the same port, as containers do.
const PORT: [&str; 5] = ["-kernel", "inet_dist_listen_min", "9100", "inet_dist_listen_max", "9100"];

/// The namespaces of a container.
const ALL: &[&str] = &["-n", "-m", "-u", "-p", "-C"];

fn doctor(target: &str) -> Command {
    let mut command = beamtune();
    command.args(["doctor", target, "--for", "2s", "--json"]);
    command
}

fn assert_attached(said: &Said) {
    assert!(matches!(said.status, Some(0 | 1)), "{:?}: {}", said.status, said.stderr);
    for samples in ["vm_samples", "host_samples"] {
        let samples = said.json()["period"][samples].as_i64();
        assert!(samples.is_some_and(|samples| samples > 0), "{:#}", said.json());
    }
}

fn row(pid: u32) -> Value {
    let rows = run(beamtune().args(["nodes", "--json"])).json();
    let row = rows.as_array().into_iter().flatten().find(|row| row["pid"] == pid).cloned();
    row.unwrap_or_else(|| panic!("process {pid} is not in {rows:#}"))
}

/// A home below a release's root, with a cookie to which a link leads as the container sees it. Where the same link leads to
/// here is another cookie.
struct Home {
    /// Called the same here and there.
    path: TempDir,
    there: PathBuf,
}

impl Home {
    fn new(otp: &Otp) -> Home {
        let path = tempfile::tempdir().expect("a folder");
        let inside = path.path().strip_prefix("/").expect("an absolute path");
        let there = otp.root.as_deref().unwrap_or(Path::new("/")).join(inside);
        fs::create_dir_all(&there).expect("a folder");
        let cookie = |folder: &Path, cookie: &str| {
            let file = folder.join("secret");
            fs::write(&file, cookie).expect("a cookie");
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("its mode");
        };
        cookie(path.path(), "that_of_the_host");
        // Without a root of its own it is the same file.
        cookie(&there, &unique("cookie"));
        symlink(path.path().join("secret"), there.join(".erlang.cookie")).expect("a link");
        Home { path, there }
    }

    /// A node with its cookie from here.
    fn node(&self, otp: &Otp, name: &str, args: &[&str]) -> Container {
        self.node_by(&[], otp, name, args)
    }

    /// The same with what stands before the VM's command.
    fn node_by(&self, by: &[&str], otp: &Otp, name: &str, args: &[&str]) -> Container {
        let home = format!("HOME={}", self.path.path().display());
        let args = [&["-name", name], &PORT[..], args].concat();
        Container::run(otp, ALL, &[by, &["env", &home]].concat(), name, &args)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // Where it is the same folder, it is gone already or goes with the other one.
        let _ = fs::remove_dir_all(&self.there);
    }
}

#[test]
fn nodes_in_containers_are_looked_into_from_the_host() {
    if !can_contain() {
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

        // Each is the one that was meant, whether it is asked or its process is looked at.
        let folder = folder();
        for (container, expect) in [(&one, "131072"), (&other, "262144")] {
            // OTP 27 has quadrupled the default.
            let expect = if expect == "262144" && otp.release >= 27 { "1048576" } else { expect };
            let file = folder.path().join(container.pid_text());
            let said =
                run(beamtune().args(["record", &container.pid_text(), "--for", "1s", "-o"]).arg(&file));
            assert_eq!(said.status, Some(0), "{}", said.stderr);
            let told = facts_in(&file);
            let fact =
                |key: &str| told.iter().rfind(|(known, _)| known == key).map(|(_, value)| value.as_str());
            assert_eq!(fact(facts::PROCESS_LIMIT), Some(expect), "OTP {}", otp.release);
            assert_eq!(fact(facts::OS_PID), Some("1"));
            assert_eq!(fact(facts::HOST_PID), Some(container.pid_text().as_str()));
        }
        let args = |container: &Container| run(beamtune().args(["args", &container.pid_text()])).stdout;
        assert!(args(&one).contains("100000") && !args(&other).contains("100000"), "{}", args(&one));
        let said = run(beamtune().args(["lint", &one.pid_text()]));
        assert!(matches!(said.status, Some(0 | 1)) && said.stdout.contains("1 source"), "{}", said.stdout);

        // By a name that both have neither is meant.
        for target in [&*name, name.split('@').next().expect("a name")] {
            let pids = [one.pid_text(), other.pid_text()];
            run(&mut doctor(target)).assert_refused(&["2 BEAM VMs", "by process id", &pids[0], &pids[1]]);
        }
        // What the process id is inside is no answer either.
        run(&mut doctor("1")).assert_refused(&["in a container", &one.pid_text(), &other.pid_text()]);
        drop(other);
        assert_attached(&run(&mut doctor(&name)));
    }
}

#[test]
fn two_nodes_of_one_name_need_a_recording_each() {
    let (true, Some(otp)) = (can_contain(), otp(25)) else { return };
    let name = format!("{}@127.0.0.1", unique("boxed"));
    let home = Home::new(&otp);
    let two = [home.node(&otp, &name, &[]), home.node(&otp, &name, &[])];
    let folder = folder();
    let mut command = beamtune();
    command.args(["record", "--keep", "1h", "--max-size", "20MB", "--for", "2s"]);
    let said = run(command.args([two[0].pid_text(), two[1].pid_text()]).arg("-o").arg(folder.path()));
    let file = format!("{name}.btr");
    said.assert_refused(&["another target of this command", &file, "a file of its own"]);
    assert!(Reader::open(&folder.path().join(file)).is_ok_and(|reader| reader.samples().count() > 0));
}

/// Samples of a recording that are such; none while the file is not there.
fn samples(file: &Path, are: impl Fn(&Sample) -> bool) -> usize {
    let Ok(reader) = Reader::open(file) else { return 0 };
    reader.samples().filter(|sample| sample.as_ref().is_ok_and(&are)).count()
}

/// Samples of VM and host in one of the VM's lives.
fn whole_samples(file: &Path, life: u32) -> usize {
    samples(file, |Sample { tick, .. }| tick.incarnation == life && tick.vm.is_some() && tick.host.is_some())
}

/// The processes that a recording is of, one after the other.
fn pids_in(file: &Path) -> Vec<String> {
    let is_pid = |(key, _): &(String, String)| key == facts::HOST_PID;
    facts_in(file).into_iter().filter(is_pid).map(|(_, pid)| pid).collect()
}

/// All facts of a recording, in their order.
fn facts_in(file: &Path) -> Vec<(String, String)> {
    let reader = Reader::open(file).expect("a recording");
    reader.samples().flat_map(|sample| sample.expect("readable").facts).collect()
}

/// A node in a network of its own and nothing else.
fn node_in(network: &Network, otp: &Otp, name: &str) -> Running {
    let ([ip, by @ ..], erl) = (network.by(), otp.command("erl"));
    let mut command = Command::new(ip);
    command.args(by).arg(erl.get_program()).args(erl.get_args());
    command.args(["-name", name, "-setcookie", "any", "-noinput"]);
    command.args(["-eval", "io:put_chars(\"ready\n\")."]);
    let mut node = Running::start(&mut command);
    node.expect_line("ready");
    node
}

#[test]
fn a_node_in_a_network_of_its_own_and_nothing_else_is_looked_into() {
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
fn a_port_of_the_hosts_loopback_is_not_that_of_a_container() {
    let (true, Some(otp)) = (can_contain(), otp(25)) else { return };
    let home = Home::new(&otp);
    let name = format!("{}@127.0.0.1", unique("boxed"));
    let _container = home.node(&otp, &name, &[]);
    if TcpStream::connect("127.0.0.1:9100").is_ok() {
        eprintln!("skipped, because something listens at port 9100 of this host");
        return;
    }
    let said = run(doctor("127.0.0.1:9100").env("BEAMTUNE_COOKIE", "any"));
    said.assert_refused(&["127.0.0.1:9100 cannot be reached", "refused"]);
}

#[test]
fn a_node_without_epmd_on_the_containers_own_address_is_looked_into() {
    if !can_contain() {
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
fn a_short_name_has_the_containers_own_host_in_it() {
    let (true, Some(otp)) = (can_contain(), otp(25)) else { return };
    let alive = unique("boxed");
    let name = format!("{alive}@box");
    let container = Container::run(&otp, ALL, &[], &name, &["-sname", &name, "-setcookie", "any"]);
    assert_eq!(row(container.pid)["node"], name);
    assert_attached(&run(&mut doctor(&name)));
    // A node of that name elsewhere is another one.
    let said =
        run(doctor(&format!("{alive}@127.0.0.9")).env("ERL_EPMD_PORT", "4399").env("BEAMTUNE_COOKIE", "x"));
    said.assert_refused(&["no EPMD answers at 127.0.0.9:4399"]);
}

#[test]
fn a_node_with_tls_in_a_container_is_looked_into() {
    if !can_contain() {
        return;
    }
    on_all_otps(|otp| {
        let home = Home::new(otp);
        let pem = home.there.join("node.pem");
        let mut command = Command::new("openssl");
        command.args(["req", "-x509", "-nodes", "-days", "2", "-newkey", "rsa:2048", "-subj", "/CN=node"]);
        let certificate = home.there.join("certificate");
        let said = run(command.arg("-keyout").arg(&pem).arg("-out").arg(&certificate));
        assert_eq!(said.status, Some(0), "{}", said.stderr);
        let both = [fs::read(&certificate).expect("it"), fs::read(&pem).expect("its key")].concat();
        fs::write(&pem, both).expect("both");
        // A link, whose name is relative to the VM's working folder.
        symlink(home.path.path().join("node.pem"), home.there.join("link.pem")).expect("a link");
        fs::write(home.there.join("options"), "[{server, [{certfile, \"link.pem\"}]}].").expect("options");
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
fn a_recording_goes_on_when_the_container_is_started_again() {
    if !can_contain() {
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
        let mut recording = Running::start(&mut command);
        wait_until("samples of VM and host", || whole_samples(&file, 0) >= 2);
        drop(first);
        let second = home.node(otp, &name, &[]);
        wait_until("samples of VM and host of the next life", || whole_samples(&file, 1) >= 2);
        recording.signal("INT");
        assert_eq!(recording.wait().code(), Some(0));
        assert_eq!(pids_in(&file), [first_pid, second.pid_text()], "OTP {}", otp.release);
    });
}

#[test]
fn a_recording_does_not_go_on_with_the_twin_of_a_container() {
    if !can_contain() {
        return;
    }
    // As Docker names them.
    let group = |digit: &str| {
        let start = format!("{:08x}", std::process::id());
        Group::new(&format!("docker-{start}{}.scope", digit.repeat(56)))
    };
    let (Some(one), Some(other)) = (group("1"), group("2")) else { return };
    for otp in all_otps().into_iter().filter(|otp| otp.root.is_none()) {
        let folder = folder();
        let file = folder.path().join("twin.btr");
        let name = format!("{}@127.0.0.1", unique("boxed"));
        // One cookie, as replicas have.
        let home = Home::new(&otp);
        let node = |group: &Group| home.node_by(&group.by().each_ref().map(String::as_str), &otp, &name, &[]);
        let (first, twin) = (node(&one), node(&other));
        let first_pid = first.pid_text();
        assert!(row(first.pid)["place"].as_str().is_some_and(|place| place.starts_with("docker ")));
        let mut command = beamtune();
        command.args(["record", "--keep", "1h", "--max-size", "20MB", &first_pid, "-o"]).arg(&file);
        let mut recording = Running::start(&mut command);
        wait_until("samples of VM and host", || whole_samples(&file, 0) >= 2);
        drop((first, twin));
        // The other one is up first.
        let _twin = node(&other);
        let before = samples(&file, |_| true);
        wait_until("some looks at what is there", || samples(&file, |_| true) >= before + 4);
        let again = node(&one);
        wait_until("samples of VM and host of the next life", || whole_samples(&file, 1) >= 2);
        recording.signal("INT");
        assert_eq!(recording.wait().code(), Some(0));
        assert_eq!(pids_in(&file), [first_pid, again.pid_text()], "OTP {}", otp.release);
    }
}

/// Runs what follows as a user who may nothing.
const NOBODY: [&str; 7] = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--"];

fn as_nobody(args: &[&str]) -> Said {
    let mut command = Command::new(NOBODY[0]);
    command.args(&NOBODY[1..]).arg(beamtune().get_program()).args(args);
    run(command.env("BEAMTUNE_COOKIE", "any"))
}

#[test]
fn who_may_not_see_a_vms_network_is_not_shown_another_node_of_ours() {
    let (Some(otp), Some(network)) = (otp(25), Network::new()) else { return };
    let alive = unique("netns");
    let node = node_in(&network, &otp, &format!("{alive}@127.0.0.1"));
    // It has registered with our EPMD what the other one has with that of its network.
    let name = format!("{alive}@127.0.0.2");
    let other = TestNode::trusting(&otp, "any", &["-name", &name], &name, &[], "ok");
    let said = as_nobody(&["doctor", &node.pid().to_string(), "--for", "1s"]);
    if said.stderr.contains("setpriv") {
        eprintln!("skipped, because the binary cannot be run as nobody: {}", said.stderr);
        return;
    }
    said.assert_refused(&[&name]);
    // As the one that it is it can be looked into; what is found depends on what else this machine does.
    let said = as_nobody(&["doctor", &other.pid().to_string(), "--for", "1s", "--json"]);
    assert!(matches!(said.status, Some(0 | 1)), "{:?}: {}", said.status, said.stderr);
    let answer = said.json();
    assert_eq!(answer["node"]["name"], name.as_str());
    assert!(answer["period"]["vm_samples"].as_i64().is_some_and(|samples| samples > 0), "{answer:#}");
}

#[test]
fn who_may_not_enter_is_told_what_to_do() {
    let (true, Some(otp)) = (can_contain(), otp(25)) else { return };
    let name = format!("{}@127.0.0.1", unique("boxed"));
    let before = [&NOBODY[..], &["env", "HOME=/tmp"]].concat();
    let args = ["-name", &name, "-setcookie", "any"];
    let container = Container::run(&otp, ALL, &before, &name, &args);
    let said = as_nobody(&["doctor", &container.pid_text(), "--for", "1s"]);
    if said.stderr.contains("setpriv") {
        eprintln!("skipped, because the binary cannot be run as nobody: {}", said.stderr);
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
    said.assert_refused(&words);
    let rows = as_nobody(&["nodes", "--json"]).json();
    let row = rows.as_array().into_iter().flatten().find(|row| row["pid"] == container.pid).cloned();
    let row = row.expect("its row");
    assert_eq!(row["attachable"], false);
    assert!(row["why_not"].as_str().is_some_and(|why| why.contains(&nsenter)), "{row:#}");
    // Of another user's container not even that much is known.
    let others = Container::run(&otp, ALL, &[], &name, &args);
    let said = as_nobody(&["doctor", &others.pid_text(), "--for", "1s"]);
    said.assert_refused(&["it is in a container: not allowed to read", "run beamtune as root"]);
    // What needs no connection works all the same.
    let said = as_nobody(&["args", &container.pid_text()]);
    assert_eq!(said.status, Some(0), "{}", said.stderr);
    assert_attached(&run(&mut doctor(&container.pid_text())));
}

#[test]
fn a_container_with_users_of_its_own_is_looked_into() {
    let (true, Some(otp)) = (can_contain(), otp(25)) else { return };
    let said = run(Command::new("unshare").args(["-U", "-r", "-n", "-m", "-p", "--fork", "ip", "link"]));
    if said.status != Some(0) {
        eprintln!("skipped, because no user namespaces can be made here: {}", said.stderr);
        return;
    }
    let name = format!("{}@127.0.0.1", unique("boxed"));
    let args = ["-name", &name, "-setcookie", "any"];
    let container = Container::run(&otp, &["-U", "-r", "-n", "-m", "-p"], &[], &name, &args);
    assert_attached(&run(&mut doctor(&container.pid_text())));
    assert_attached(&run(&mut doctor(&name)));
}
