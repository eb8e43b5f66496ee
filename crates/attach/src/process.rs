//! What the process of a node on this host tells about it: its command line and environment, as plain data
//! that the caller has read.

use std::path::{Path, PathBuf};

use crate::epmd;
use crate::error::AttachError;

/// What is known of the process of a node on this host.
#[derive(Debug, Clone, Default)]
pub struct Process {
    /// Its command line, as in `/proc/PID/cmdline`: with the content of vm.args and of `ERL_FLAGS` in it,
    /// because erlexec has put it there.
    pub arguments: Vec<String>,
    /// Its environment, as in `/proc/PID/environ`.
    pub environment: Vec<(String, String)>,
    /// Its working directory.
    pub directory: PathBuf,
    /// The user that it runs as, for messages.
    pub owner: String,
    /// That user's home.
    pub owner_home: Option<PathBuf>,
    /// Where its file system is seen from here: `/`, or `/proc/PID/root` for one in a container or chroot.
    pub root: PathBuf,
}

impl Process {
    /// Whether its distribution speaks TLS; asking it over the wire would put a line into its log.
    pub fn speaks_tls(&self) -> bool {
        self.flag_values("proto_dist").iter().any(|values| values.iter().any(|value| value.ends_with("_tls")))
    }

    /// The port of the EPMD that it is registered with.
    pub fn epmd_port(&self) -> Result<u16, AttachError> {
        epmd::port(self.variable("ERL_EPMD_PORT"))
    }

    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        let found = self.environment.iter().find(|(found, _)| found == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    pub(crate) fn seen_from_here(&self, path: &Path) -> PathBuf {
        let absolute = self.directory.join(path);
        self.root.join(absolute.strip_prefix("/").unwrap_or(&absolute))
    }

    /// The values of each `-FLAG` on the command line, as `init:get_argument/1` sees them: a flag's values
    /// end at the next word with `-` or `+` before it, and at `-extra` all flags end.
    pub(crate) fn flag_values(&self, flag: &str) -> Vec<Vec<&str>> {
        let mut found: Vec<Vec<&str>> = Vec::new();
        let mut collecting = false;
        for argument in &self.arguments {
            if argument == "-extra" {
                break;
            }
            if argument.starts_with(['-', '+']) {
                collecting = argument.strip_prefix('-') == Some(flag);
                if collecting {
                    found.push(Vec::new());
                }
            } else if let Some(values) = found.last_mut()
                && collecting
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
    fn flags_are_read_as_the_vm_reads_them() {
        fn check(line: &str, expect: &[&[&str]]) {
            assert_eq!(process(line).flag_values("flag"), expect, "{line}");
        }
        check("beam.smp -flag a b -other c +S 1 d -flag", &[&["a", "b"], &[]]);
        check("-flag a -- b -flag c -extra -flag d", &[&["a"], &["c"]]);
        check("-flagged a flag b", &[]);
    }

    #[test]
    fn a_node_with_tls_is_known_by_its_command_line() {
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
    fn its_own_epmd_is_the_one_to_ask() {
        let environment = vec![("ERL_EPMD_PORT".to_owned(), "4370".to_owned())];
        assert_eq!(Process { environment, ..Process::default() }.epmd_port().unwrap(), 4370);
        assert_eq!(Process::default().epmd_port().unwrap(), 4369);
    }
}
