//! VMs in namespaces of their own, as a container has them: network, process ids, mounts, host name, control groups.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::network::Cable;
use super::{Otp, Running, run, wait_until};

/// Runs as process 1 of a container: `ROOT COMMAND…`.
const ENTER: &str = "set -e; ip link set lo up; mount -t proc proc \"${1%/}/proc\"; root=$1; shift; \
                     if [ \"$root\" = / ]; then exec \"$@\"; fi; exec chroot \"$root\" \"$@\"";

/// True if namespaces can be made here; else it has been said that the test is skipped.
pub fn can_contain() -> bool {
    let said = run(Command::new("unshare").args(["-n", "-m", "-u", "-p", "-C", "--fork", "ip", "link"]));
    if said.status != Some(0) {
        eprintln!("skipped, because no namespaces can be made here (root can): {}", said.stderr);
    }
    said.status == Some(0)
}

/// A node in a container; dropping it ends all of its processes, and with them its namespaces go.
pub struct Container {
    running: Running,
    /// The VM's process id here; in the container it is 1.
    pub pid: u32,
    pub name: String,
}

impl Container {
    /// Starts a node in a container whose host is called `box`. `unshare` says of which namespaces it is made, `before`
    /// stands before the VM's command.
    pub fn run(otp: &Otp, unshare: &[&str], before: &[&str], name: &str, args: &[&str]) -> Container {
        let mut command = Command::new("unshare");
        command.args(unshare).args(["--fork", "--kill-child", "sh", "-c", ENTER, "sh"]);
        command.arg(otp.root.as_deref().unwrap_or(Path::new("/"))).args(before).arg("erl").args(args);
        command.args(["-noinput", "-eval", "io:put_chars(\"ready\\n\")."]).env("HOSTNAME", "box");
        let mut running = Running::start(&mut command);
        running.expect_line("ready");
        let pid = child_of(running.pid());
        Container { running, pid, name: name.to_owned() }
    }

    /// Joins it to this network. It gets an IPv4 and an IPv6 address, which are given back.
    pub fn join(&self) -> [String; 2] {
        let cable = Cable::to(&format!("/proc/{}/ns/net", self.pid)).expect("a cable");
        let v6 = cable.add_v6().expect("an IPv6 address");
        [cable.address, v6]
    }

    pub fn pid_text(&self) -> String {
        self.pid.to_string()
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // It is the first process of its namespace, so the kernel ends all others there. With unshare alone it would only end
        // if it had not become another user since.
        let _ = run(Command::new("kill").args(["-s", "KILL", &self.pid_text()]));
        let _ = self.running.child.kill();
        let _ = self.running.child.wait();
        let folder = PathBuf::from(format!("/proc/{}", self.pid));
        wait_until("the container has ended", || !folder.exists());
    }
}

/// The only child of a process.
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
