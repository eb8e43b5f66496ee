//! A VM's distribution, according to the operating system: node name and ports.
//!
//! The configuration may differ from the actual state: a node can set its name at run time, as RabbitMQ does, and can stop its
//! distribution. So each name has a source, and the ports on which the process actually listens are listed, too. EPMD identifies the
//! distribution port among them.
//!
//! `RELEASE_NODE` is ignored: release scripts convert it to `-name` or `-sname`. If the distribution is disabled, the variable is set
//! although the VM is not distributed.

use std::fmt;
use std::net::IpAddr;

use crate::command_line::{CommandLine, Environment};
use crate::text;

/// The source of a node name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameSource {
    /// The flag `-name` or `-sname`; this name is certain.
    CommandLine,
    /// The environment variable with this name, which a script or the application reads.
    Environment(&'static str),
    /// A file that the application reads.
    ConfigFile,
    /// The application's default name.
    Default,
}

/// A node's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeName {
    /// The part before the `@`, as registered in EPMD.
    pub alive: String,
    /// The part after the `@`; `None` if the VM determined it at run time, so that it is unknown.
    pub host: Option<String>,
    /// Whether it is a long name (`-name`); nodes with long names cannot connect to nodes with short names.
    pub long: bool,
    /// The source of the name.
    pub source: NameSource,
}

impl NodeName {
    /// Returns `alive@host`, if the host is known.
    pub fn full(&self) -> Option<String> {
        Some(format!("{}@{}", self.alive, self.host.as_deref()?))
    }

    /// Adds the host to a configured name if it is missing. `host_name` is the VM's host name, which is cut at the first dot for a short
    /// name.
    pub(crate) fn new(given: &str, long: bool, source: NameSource, host_name: Option<&str>) -> Self {
        let given = text::printable(given);
        let (alive, host) = match given.split_once('@') {
            Some((alive, host)) if !host.is_empty() => (alive.to_owned(), Some(host.to_owned())),
            Some((alive, _)) => (alive.to_owned(), None),
            None => (given, None),
        };
        let short_host = || {
            let short = host_name?.split('.').next()?;
            (!long && !short.is_empty()).then(|| short.to_owned())
        };
        NodeName { alive, host: host.or_else(short_host), long, source }
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.alive, self.host.as_deref().unwrap_or("?"))
    }
}

/// An address and port on which a process accepts connections, or one end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listener {
    /// The address.
    pub address: IpAddr,
    /// The port.
    pub port: u16,
}

/// The configuration of a VM's distribution, and its listening sockets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Distribution {
    /// The node's name; `None` for a VM that is not distributed, or that gets its name from a peer.
    pub name: Option<NodeName>,
    /// Whether the node accepts connections. With `-dist_listen false`, it only connects to others.
    pub listens: bool,
    /// Whether the node is registered in EPMD. With `-start_epmd false`, `-no_epmd` or a fixed port, it may not be.
    pub uses_epmd: bool,
    /// `-epmd_module`, if a module other than `erl_epmd` finds ports.
    pub epmd_module: Option<String>,
    /// `ERL_EPMD_PORT`, if it is not 4369.
    pub epmd_port: Option<u16>,
    /// First and last port of the configured range.
    pub ports: Option<(u16, u16)>,
    /// All ports on which the process listens; `None` if they could not be read.
    pub listeners: Option<Vec<Listener>>,
}

impl Distribution {
    /// Reads the configuration from command line and environment. This does not include a name that an application sets at run time.
    pub(crate) fn configured(line: &CommandLine, environment: &Environment, host_name: Option<&str>) -> Self {
        // With the name `undefined`, the node gets its name from the first node that it connects to (OTP 23 and later).
        let name = match line.last_of(["name", "sname"]) {
            Some((_, Some("undefined")) | (_, None)) | None => None,
            Some((flag, Some(given))) => {
                Some(NodeName::new(given, flag == "name", NameSource::CommandLine, host_name))
            }
        };
        let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0);
        let own_port = line
            .value("erl_epmd_port")
            .or(line.parameter("kernel", "erl_epmd_node_listen_port"))
            .and_then(port);
        let range = || {
            let first = line.parameter("kernel", "inet_dist_listen_min").and_then(port)?;
            let last = line.parameter("kernel", "inet_dist_listen_max").and_then(port);
            Some((first, last.unwrap_or(first).max(first)))
        };
        Distribution {
            name,
            listens: line.value("dist_listen") != Some("false"),
            uses_epmd: own_port.is_none()
                && line.value("start_epmd") != Some("false")
                && line.values("no_epmd").is_none(),
            epmd_module: line.value("epmd_module").map(text::printable),
            epmd_port: environment.get("ERL_EPMD_PORT").and_then(port),
            ports: own_port.map(|port| (port, port)).or_else(range),
            listeners: None,
        }
    }

    /// Returns the ports that may be the distribution port. These are the listening ports in the configured range, or all listening ports
    /// if none is in the range. If the listening ports are unknown, returns the configured port, unless a range is configured.
    pub fn possible_ports(&self) -> Vec<u16> {
        let Some(listeners) = &self.listeners else {
            let single = self.ports.filter(|(first, last)| first == last);
            return single.map(|(port, _)| port).into_iter().collect();
        };
        let mut ports: Vec<u16> = listeners.iter().map(|listener| listener.port).collect();
        ports.sort_unstable();
        ports.dedup();
        let configured = |port: &u16| self.ports.is_some_and(|(first, last)| (first..=last).contains(port));
        if ports.iter().any(configured) {
            ports.retain(configured);
        }
        ports
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configured(words: &str, variables: &str) -> Distribution {
        let line = format!("beam.smp -- -root / -progname erl -- -home / -- {words}");
        let list = |words: &str| words.split(' ').map(|word| format!("{word}\0")).collect::<String>();
        let (line, environment) =
            (CommandLine::parse(list(&line).as_bytes()), Environment::parse(list(variables).as_bytes()));
        Distribution::configured(&line, &environment, Some("web-1.example.org"))
    }

    #[test]
    fn names_are_completed_with_the_host_if_it_is_known() {
        let check = |words: &str, expect: Option<(&str, bool)>| {
            let name = configured(words, "").name;
            let read = name.as_ref().map(|name| (name.to_string(), name.long));
            assert_eq!(read, expect.map(|(name, long)| (name.to_owned(), long)), "{words}");
        };
        check("-sname demo", Some(("demo@web-1", false)));
        check("-sname demo@other", Some(("demo@other", false)));
        check("-name demo@10.0.0.7", Some(("demo@10.0.0.7", true)));
        // The VM's resolver determines the host's full name.
        check("-name demo", Some(("demo@?", true)));
        check("-name a@h -sname b", Some(("b@web-1", false)));
        check("-sname demo@", Some(("demo@web-1", false)));
        check("-name undefined", None);
        check("-sname", None);
        check("-noinput", None);
        check("-extra -sname demo", None);
    }

    #[test]
    fn listening_options_are_parsed() {
        let plain = configured("-sname a", "");
        assert!(plain.listens && plain.uses_epmd);
        assert!(!configured("-sname a -dist_listen false", "").listens);
        assert!(!configured("-sname a -start_epmd false", "").uses_epmd);
        assert_eq!(configured("-sname a", "ERL_EPMD_PORT=4370").epmd_port, Some(4370));
        assert_eq!(configured("-sname a", "ERL_EPMD_PORT=many").epmd_port, None);
        assert_eq!(configured("-epmd_module ekka_epmd", "").epmd_module.as_deref(), Some("ekka_epmd"));
    }

    #[test]
    fn possible_distribution_ports_are_found() {
        let check = |words: &str, listening: Option<&[u16]>, expect: &[u16]| {
            let mut distribution = configured(words, "");
            let listener = |port: &u16| Listener { address: IpAddr::from([0, 0, 0, 0]), port: *port };
            distribution.listeners = listening.map(|ports| ports.iter().map(listener).collect());
            assert_eq!(distribution.possible_ports(), expect, "{words}");
        };
        check("-erl_epmd_port 9100", None, &[9100]);
        check("-kernel erl_epmd_node_listen_port 9100", None, &[9100]);
        check("-erl_epmd_port 9100", Some(&[5672, 9100]), &[9100]);
        check(
            "-kernel inet_dist_listen_min 9100 inet_dist_listen_max 9105",
            Some(&[9103, 5672, 9106]),
            &[9103],
        );
        check("-kernel inet_dist_listen_min 9100", Some(&[9100, 9101]), &[9100]);
        check("-kernel inet_dist_listen_min 9100 inet_dist_listen_max 9105", None, &[]);
        check("-sname a", Some(&[45001, 5672, 5672]), &[5672, 45001]);
        check("-erl_epmd_port 9100", Some(&[45001, 5672]), &[5672, 45001]);
        check("-kernel inet_dist_listen_min 0", Some(&[7]), &[7]);
    }
}
