//! Host conditions for the VM of a lab: CPU quota, memory limit, CPU set, neighbours, limit of open files, restarts.
//!
//! All are set before the VM starts, by a chain of wrapper programs, each of which execs the next. So the VM stays a child process of
//! beamtune (or of the shell that restarts it).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use beamtune_node::Printer;
use beamtune_runner::preset::quoted;

use crate::manifest::HostSetting;

/// Limit of the CPU time of a neighbour (`ulimit -t`), so that it ends even if beamtune was killed.
const NEIGHBOUR_LIFE_SECONDS: u32 = 900;

/// Maximum number of starts of a VM that is restarted when it fails, so that the restart loop always ends.
const MAX_STARTS: u32 = 150;

/// Period of the CPU quota: the kernel's default.
const PERIOD_USEC: u64 = 100_000;

/// Host conditions in force. Dropping this value undoes them: it kills the neighbours and removes the control groups.
#[derive(Default)]
pub struct Conditions {
    neighbours: Vec<Child>,
    groups: Vec<Group>,
    prefix: Vec<String>,
}

impl Conditions {
    /// Sets up the conditions. `name` makes the name of the control group unique.
    pub fn new(setting: &HostSetting, name: &str, print: Printer) -> Result<Conditions> {
        let mut conditions = Conditions::default();
        if let Some(percent) = setting.cpu_quota_pct {
            conditions.groups.push(Group::with_quota(name, u64::from(percent) * PERIOD_USEC / 100, print)?);
        }
        if let Some(megabytes) = setting.memory_limit_mb {
            conditions.groups.push(Group::with_memory_limit(name, megabytes * 1_000_000, print)?);
        }
        for group in &conditions.groups {
            // The shell enters the group, then execs the next program.
            let enter = format!("echo $$ > '{}' && exec \"$@\"", group.path.join("cgroup.procs").display());
            conditions.prefix.extend(["sh", "-c", &enter, "sh"].map(str::to_owned));
        }
        if let Some(cpus) = &setting.cpus {
            conditions.prefix.extend(["taskset", "-c", cpus].map(str::to_owned));
        }
        if let Some(limit) = setting.nofile {
            conditions.prefix.extend(["prlimit".to_owned(), format!("--nofile={limit}:{limit}")]);
        }
        if setting.restarts {
            // The VM is killed when the shell ends, and the shell when beamtune ends.
            let again = format!(
                "n=0; until setpriv --pdeathsig KILL \"$@\"; do n=$((n + 1)); [ $n -lt {MAX_STARTS} ] || exit 1; sleep 0.3; done"
            );
            conditions
                .prefix
                .extend(["setpriv", "--pdeathsig", "KILL", "sh", "-c", &again, "sh"].map(str::to_owned));
        }
        for _ in 0..setting.neighbours {
            let child = neighbour(setting.cpus.as_deref()).context("cannot start a neighbour")?;
            conditions.neighbours.push(child);
        }
        Ok(conditions)
    }

    /// Returns the command that starts `program` under these conditions.
    pub fn command(&self, program: &str) -> Command {
        match self.prefix.split_first() {
            Some((first, rest)) => {
                let mut command = Command::new(first);
                command.args(rest).arg(program);
                command
            }
            None => Command::new(program),
        }
    }

    /// True if the conditions include control groups.
    pub fn has_groups(&self) -> bool {
        !self.groups.is_empty()
    }

    /// Returns the process ids of the neighbours.
    pub fn neighbours(&self) -> impl Iterator<Item = u32> {
        self.neighbours.iter().map(Child::id)
    }

    /// Wraps a shell command line so that it runs under these conditions.
    pub fn shell(&self, line: &str) -> String {
        let words = self.prefix.iter().map(|word| quoted(word));
        words.chain(["sh -c".to_owned(), quoted(line)]).collect::<Vec<_>>().join(" ")
    }
}

impl Drop for Conditions {
    fn drop(&mut self) {
        for child in &mut self.neighbours {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Starts a process that only uses CPU. It is killed when beamtune ends, or when its CPU time limit is reached.
fn neighbour(cpus: Option<&str>) -> std::io::Result<Child> {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]);
    if let Some(cpus) = cpus {
        command.args(["taskset", "-c", cpus]);
    }
    let spin = format!("ulimit -t {NEIGHBOUR_LIFE_SECONDS}; while :; do :; done");
    command.args(["sh", "-c", &spin]).stdin(Stdio::null()).spawn()
}

/// A control group, which is removed when this value is dropped.
struct Group {
    path: PathBuf,
    /// Prints a warning if the group cannot be removed.
    print: Printer,
}

impl Group {
    fn with_quota(name: &str, quota_usec: u64, print: Printer) -> Result<Group> {
        let (root, is_v2) = controller("cpu", &["cpu", "cpu,cpuacct"])?;
        let quota = match is_v2 {
            true => vec![("cpu.max", format!("{quota_usec} {PERIOD_USEC}"))],
            false => {
                vec![
                    ("cpu.cfs_period_us", PERIOD_USEC.to_string()),
                    ("cpu.cfs_quota_us", quota_usec.to_string()),
                ]
            }
        };
        Group::new(&root, name, &quota, print)
    }

    fn with_memory_limit(name: &str, bytes: u64, print: Printer) -> Result<Group> {
        let (root, is_v2) = controller("memory", &["memory"])?;
        let file = if is_v2 { "memory.max" } else { "memory.limit_in_bytes" };
        Group::new(&root, &format!("{name}-memory"), &[(file, bytes.to_string())], print)
    }

    fn new(root: &Path, name: &str, settings: &[(&str, String)], print: Printer) -> Result<Group> {
        let path = root.join(format!("beamtune-{name}"));
        fs::create_dir(&path).with_context(|| match path.exists() {
            true => {
                format!(
                    "control group {0} exists, from an earlier run: remove it with rmdir {0}",
                    path.display()
                )
            }
            false => format!("cannot create control group {}: run the lab as root", path.display()),
        })?;
        let group = Group { path, print };
        for (file, value) in settings {
            let path = group.path.join(file);
            fs::write(&path, value).with_context(|| format!("cannot set {}", path.display()))?;
        }
        Ok(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A group can be removed only when its processes have ended, which may take a moment.
        for _ in 0..50 {
            if fs::remove_dir(&self.path).is_ok() || !self.path.exists() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        (self.print)(&format!(
            "control group {0} is not removed, since it contains processes (see {0}/cgroup.procs)\n",
            self.path.display()
        ));
    }
}

/// Returns the mount point of a controller, and true for cgroup v2. `names` are the possible names of its folder in v1.
fn controller(name: &str, names: &[&str]) -> Result<(PathBuf, bool)> {
    let mount = Path::new("/sys/fs/cgroup");
    let mut folders = names.iter().map(|name| mount.join(name));
    if let Some(folder) = folders.find(|folder| folder.join("cgroup.procs").exists()) {
        return Ok((folder, false));
    }
    let controllers = fs::read_to_string(mount.join("cgroup.subtree_control")).unwrap_or_default();
    if controllers.split_whitespace().any(|controller| controller == name) {
        return Ok((mount.to_owned(), true));
    }
    bail!("the lab needs the cgroup controller {name}, which is not mounted")
}
