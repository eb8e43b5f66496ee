//! Command line and environment of a node's process on this host, as plain data. The caller reads them.

use std::path::{Path, PathBuf};

use crate::epmd;
use crate::error::AttachError;

/// The operating system process of a node on this host.
#[derive(Debug, Clone, Default)]
pub struct Process {
    /// Its command line, as in `/proc/PID/cmdline`. erlexec has already inserted the content of vm.args and `ERL_FLAGS`.
    pub arguments: Vec<String>,
    /// Its environment, as in `/proc/PID/environ`.
    pub environment: Vec<(String, String)>,
    /// Its working directory.
    pub directory: PathBuf,
    /// The user that it runs as, for messages.
    pub owner: String,
    /// Home directory of this user.
    pub owner_home: Option<PathBuf>,
    /// Root of its file system as beamtune sees it: `/`, or `/proc/PID/root` in a container or chroot.
    pub root: PathBuf,
}

impl Process {
    /// Returns whether its distribution uses TLS. Probing over the network would make the node log a line.
    pub fn speaks_tls(&self) -> bool {
        self.flag_values("proto_dist").iter().any(|values| values.iter().any(|value| value.ends_with("_tls")))
    }

    /// Returns the port of the EPMD with which the node is registered.
    pub fn epmd_port(&self) -> Result<u16, AttachError> {
        epmd::port(self.variable("ERL_EPMD_PORT"))
    }

    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        let found = self.environment.iter().find(|(found, _)| found == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    /// Converts a path of the process to the path under which beamtune sees the file.
    pub(crate) fn path_from_here(&self, path: &Path) -> PathBuf {
        let absolute = self.directory.join(path);
        self.root.join(absolute.strip_prefix("/").unwrap_or(&absolute))
    }

    /// Returns the values of each `-FLAG` on the command line, as `init:get_argument/1` does. A flag's values end at the next
    /// argument that begins with `-` or `+`, and `-extra` ends all flags.
    pub(crate) fn flag_values(&self, flag: &str) -> Vec<Vec<&str>> {
        let mut found: Vec<Vec<&str>> = Vec::new();
        let mut in_flag = false;
        for argument in &self.arguments {
            if argument == "-extra" {
                break;
            }
            if argument.starts_with(['-', '+']) {
                in_flag = argument.strip_prefix('-') == Some(flag);
                if in_flag {
                    found.push(Vec::new());
                }
            } else if let Some(values) = found.last_mut()
                && in_flag
            {
                values.push(argument);
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(line: &str) -> Process {
        Process { arguments: line.split_whitespace().map(str::to_owned).collect(), ..Process::default() }
    }

    #[test]
    fn flags_are_parsed_as_the_vm_does() {
        fn check(line: &str, expect: &[&[&str]]) {
            assert_eq!(process(line).flag_values("flag"), expect, "{line}");
        }
        check("beam.smp -flag a b -other c +S 1 d -flag", &[&["a", "b"], &[]]);
        check("-flag a -- b -flag c -extra -flag d", &[&["a"], &["c"]]);
        check("-flagged a flag b", &[]);
    }

    #[test]
    fn tls_is_recognized_by_the_command_line() {
        for (line, expect) in [
            ("-proto_dist inet_tls", true),
            ("-proto_dist inet6_tls", true),
            ("-proto_dist inet6_tcp", false),
            ("-name inet_tls", false),
        ] {
            assert_eq!(process(line).speaks_tls(), expect, "{line}");
        }
    }

    #[test]
    fn epmd_port_is_that_of_the_process_environment() {
        let environment = vec![("ERL_EPMD_PORT".to_owned(), "4370".to_owned())];
        assert_eq!(Process { environment, ..Process::default() }.epmd_port().unwrap(), 4370);
        assert_eq!(Process::default().epmd_port().unwrap(), 4369);
    }
}
