//! Nodes in their own namespaces, like those of a container: network, process ids, mounts, host name, control groups.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::network::VethPair;
use super::{Otp, Process, run, wait_until};

/// The script of the container's process 1. Its arguments are `ROOT COMMAND…`.
const ENTER: &str = "set -e; ip link set lo up; mount -t proc proc \"${1%/}/proc\"; root=$1; shift; \
                     if [ \"$root\" = / ]; then exec \"$@\"; fi; exec chroot \"$root\" \"$@\"";

/// True if namespaces can be created on this host. If not, prints why the test is skipped.
pub fn can_create_namespaces() -> bool {
    let output = run(Command::new("unshare").args(["-n", "-m", "-u", "-p", "-C", "--fork", "ip", "link"]));
    if output.status != Some(0) {
        eprintln!("skipped, because no namespaces can be created here (needs root): {}", output.stderr);
    }
    output.status == Some(0)
}

/// A node in a container. Dropping it ends all processes in it, and so its namespaces.
pub struct Container {
    process: Process,
    /// The VM's process id on the host; inside the container it is 1.
    pub pid: u32,
    pub name: String,
}

impl Container {
    /// Starts a node in a container with the host name `box`. `unshare` are the options of unshare(1); `before` is a prefix of the VM's
    /// command.
    pub fn run(otp: &Otp, unshare: &[&str], before: &[&str], name: &str, args: &[&str]) -> Container {
        let mut command = Command::new("unshare");
        command.args(unshare).args(["--fork", "--kill-child", "sh", "-c", ENTER, "sh"]);
        command.arg(otp.root.as_deref().unwrap_or(Path::new("/"))).args(before).arg("erl").args(args);
        command.args(["-noinput", "-eval", "io:put_chars(\"ready\\n\")."]).env("HOSTNAME", "box");
        let mut process = Process::start(&mut command);
        process.expect_line("ready");
        let pid = child_of(process.pid());
        Container { process, pid, name: name.to_owned() }
    }

    /// Connects the container to the host's network. Returns its IPv4 and its IPv6 address.
    pub fn connect(&self) -> [String; 2] {
        let veth = VethPair::connect(&format!("/proc/{}/ns/net", self.pid)).expect("a veth pair");
        let v6 = veth.add_v6().expect("an IPv6 address");
        [veth.address, v6]
    }

    pub fn pid_text(&self) -> String {
        self.pid.to_string()
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // When the first process of a PID namespace ends, the kernel kills all others in it. `unshare --kill-child` alone does not work
        // after that process has changed its user.
        let _ = run(Command::new("kill").args(["-s", "KILL", &self.pid_text()]));
        let _ = self.process.child.kill();
        let _ = self.process.child.wait();
        let folder = PathBuf::from(format!("/proc/{}", self.pid));
        wait_until("the container has ended", || !folder.exists());
    }
}

/// Returns the only child of a process.
fn child_of(parent: u32) -> u32 {
    let parent_of = |pid: u32| {
        let mut stat = String::new();
        fs::File::open(format!("/proc/{pid}/stat")).ok()?.read_to_string(&mut stat).ok()?;
        stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse::<u32>().ok()
    };
    let pids = fs::read_dir("/proc").expect("/proc").flatten();
    let mut pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.find(|pid| parent_of(*pid) == Some(parent)).expect("a child")
}
