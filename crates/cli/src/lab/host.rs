//! What a lab wants around its VM: a CPU quota, a limit of memory, few CPUs, neighbours, a limit of open files, somebody who starts it
//! again.
//!
//! All of it is set before the VM starts, by programs that replace themselves by the next one, so that
//! the VM remains our child (or the child of the shell that starts it again).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

use super::manifest::HostSetting;
use crate::terminal;
use crate::trial::preset::quoted;

/// Neighbours stop by themselves after this, whatever becomes of us.
const NEIGHBOUR_LIFE_SECONDS: u32 = 900;

/// A VM that is started again whenever it ends in error is so at most so often, whatever becomes of us.
const MOST_STARTS: u32 = 150;

/// The quota's enforcement period: the kernel's default.
const PERIOD_USEC: u64 = 100_000;

/// What was set up; dropping it takes it down again.
#[derive(Default)]
pub struct Conditions {
    neighbours: Vec<Child>,
    groups: Vec<Group>,
    prefix: Vec<String>,
}

impl Conditions {
    /// Sets up what the lab wants. `name` makes the control group's name unique.
    pub fn new(setting: &HostSetting, name: &str) -> Result<Conditions> {
        let mut conditions = Conditions::default();
        if let Some(percent) = setting.cpu_quota_pct {
            conditions.groups.push(Group::with_quota(name, u64::from(percent) * PERIOD_USEC / 100)?);
        }
        if let Some(megabytes) = setting.memory_limit_mb {
            conditions.groups.push(Group::with_memory_limit(name, megabytes * 1_000_000)?);
        }
        for group in &conditions.groups {
            // The shell enters the group and then becomes the VM.
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
            // The VM dies with the shell, and the shell with us.
            let again = format!(
                "n=0; until setpriv --pdeathsig KILL \"$@\"; do n=$((n + 1)); [ $n -lt {MOST_STARTS} ] || exit 1; sleep 0.3; done"
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

    /// The command that starts `program` inside of all this.
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

    /// Whether what is started is put into control groups.
    pub fn has_groups(&self) -> bool {
        !self.groups.is_empty()
    }

    /// Process ids of the neighbours.
    pub fn neighbours(&self) -> impl Iterator<Item = u32> {
        self.neighbours.iter().map(Child::id)
    }

    /// The command line that runs another one inside of all this.
    pub fn shell(&self, line: &str) -> String {
        let words = self.prefix.iter().map(|word| quoted(word));
        words.chain(["sh -c".to_owned(), quoted(line)]).collect::<Vec<_>>().join(" ")
    }
}

impl Drop for Conditions {
    fn drop(&mut self) {
        for child in &mut self.neighbours {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A process that does nothing but compute; it ends with us, and after a while in any case.
fn neighbour(cpus: Option<&str>) -> std::io::Result<Child> {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]);
    if let Some(cpus) = cpus {
        command.args(["taskset", "-c", cpus]);
    }
    let spin = format!("ulimit -t {NEIGHBOUR_LIFE_SECONDS}; while :; do :; done");
    command.args(["sh", "-c", &spin]).stdin(Stdio::null()).spawn()
}

/// A control group; dropping it removes it.
struct Group {
    path: PathBuf,
}

impl Group {
    fn with_quota(name: &str, quota_usec: u64) -> Result<Group> {
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
        Group::new(&root, name, &quota)
    }

    fn with_memory_limit(name: &str, bytes: u64) -> Result<Group> {
        let (root, is_v2) = controller("memory", &["memory"])?;
        let file = if is_v2 { "memory.max" } else { "memory.limit_in_bytes" };
        Group::new(&root, &format!("{name}-memory"), &[(file, bytes.to_string())])
    }

    fn new(root: &Path, name: &str, settings: &[(&str, String)]) -> Result<Group> {
        let path = root.join(format!("beamtune-{name}"));
        fs::create_dir(&path).with_context(|| match path.exists() {
            true => {
                format!("the control group {0} is there already, of a run before: rmdir {0}", path.display())
            }
            false => format!("cannot make the control group {}: run this lab as root", path.display()),
        })?;
        let group = Group { path };
        for (file, value) in settings {
            let path = group.path.join(file);
            fs::write(&path, value).with_context(|| format!("cannot set {}", path.display()))?;
        }
        Ok(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A group with processes in it cannot be removed; those that were in it are dead or dying.
        for _ in 0..50 {
            if fs::remove_dir(&self.path).is_ok() || !self.path.exists() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        terminal::complain(&format!(
            "the control group {0} has processes in it, and stays (see {0}/cgroup.procs)\n",
            self.path.display()
        ));
    }
}

/// The root of a controller, and whether it is of version 2; `names` are those of its folder in version 1.
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
    bail!("this lab needs the cgroup controller \"{name}\", which is not mounted")
}
