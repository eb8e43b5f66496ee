//! Control groups of the tests' own, with a name and a limit of processes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::wait_until;

/// A control group of the controller that counts processes and threads; dropping it removes it, once nothing is in it.
pub struct Group(PathBuf);

impl Group {
    /// `None` if none can be made here, and then that has been said.
    pub fn new(name: &str) -> Option<Group> {
        let made = root().ok_or_else(|| "the controller \"pids\" is not there".to_owned()).and_then(|root| {
            let path = root.join(name);
            fs::create_dir(&path).map(|()| Group(path)).map_err(|error| error.to_string())
        });
        made.inspect_err(|why| eprintln!("skipped, because no control group can be made here: {why}")).ok()
    }

    /// What a command must be run by to be in it.
    pub fn by(&self) -> [String; 4] {
        // 0 is whoever writes it: in a container of its own it does not know how it is called outside.
        let enter = format!("echo 0 > '{}' && exec \"$@\"", self.0.join("cgroup.procs").display());
        ["sh".to_owned(), "-c".to_owned(), enter, "sh".to_owned()]
    }

    /// A command in it.
    pub fn command(&self, of: &Command) -> Command {
        let [first, rest @ ..] = self.by();
        let mut command = Command::new(first);
        command.args(rest).arg(of.get_program()).args(of.get_args());
        of.get_envs().for_each(|(name, value)| {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        });
        command
    }

    /// Allows so many processes and threads.
    pub fn limit(&self, most: u32) {
        fs::write(self.0.join("pids.max"), most.to_string()).expect("a limit");
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Whoever was in it may still be ending.
        wait_until("the control group is empty", || fs::remove_dir(&self.0).is_ok() || !self.0.exists());
    }
}

/// The controller's root, in version 1 or 2.
fn root() -> Option<PathBuf> {
    let first = Path::new("/sys/fs/cgroup/pids");
    if first.join("cgroup.procs").exists() {
        return Some(first.to_owned());
    }
    let second = Path::new("/sys/fs/cgroup");
    let controllers = fs::read_to_string(second.join("cgroup.subtree_control")).ok()?;
    controllers.split_whitespace().any(|name| name == "pids").then(|| second.to_owned())
}
