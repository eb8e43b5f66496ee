//! Control groups for tests, with a name and a limit on processes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::wait_until;

/// A control group of the pids controller. Dropping it waits until the group is empty, then removes it.
pub struct ControlGroup(PathBuf);

impl ControlGroup {
    /// Creates a control group. If that is impossible, returns `None` and prints why the test is skipped.
    pub fn new(name: &str) -> Option<ControlGroup> {
        let created = root().ok_or_else(|| "there is no pids controller".to_owned()).and_then(|root| {
            let path = root.join(name);
            fs::create_dir(&path).map(|()| ControlGroup(path)).map_err(|error| error.to_string())
        });
        created
            .inspect_err(|why| eprintln!("skipped, because no control group can be created here: {why}"))
            .ok()
    }

    /// Returns the command prefix that moves a process into the group.
    pub fn prefix(&self) -> [String; 4] {
        // 0 is the writing process itself. In a PID namespace, a process does not know its process id on the host.
        let enter = format!("echo 0 > '{}' && exec \"$@\"", self.0.join("cgroup.procs").display());
        ["sh".to_owned(), "-c".to_owned(), enter, "sh".to_owned()]
    }

    /// Returns a copy of a command that runs in this group.
    pub fn command(&self, original: &Command) -> Command {
        let [first, rest @ ..] = self.prefix();
        let mut command = Command::new(first);
        command.args(rest).arg(original.get_program()).args(original.get_args());
        original.get_envs().for_each(|(name, value)| {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        });
        command
    }

    /// Sets the maximum number of processes and threads.
    pub fn limit(&self, max: u32) {
        fs::write(self.0.join("pids.max"), max.to_string()).expect("a limit");
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        // The processes of the group may take a moment to end.
        wait_until("the control group is empty", || fs::remove_dir(&self.0).is_ok() || !self.0.exists());
    }
}

/// Returns the root folder of the pids controller, in cgroup version 1 or 2.
fn root() -> Option<PathBuf> {
    let v1 = Path::new("/sys/fs/cgroup/pids");
    if v1.join("cgroup.procs").exists() {
        return Some(v1.to_owned());
    }
    let v2 = Path::new("/sys/fs/cgroup");
    let controllers = fs::read_to_string(v2.join("cgroup.subtree_control")).ok()?;
    controllers.split_whitespace().any(|name| name == "pids").then(|| v2.to_owned())
}
