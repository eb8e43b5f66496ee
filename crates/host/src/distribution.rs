//! A VM's distribution, as far as the operating system shows it: node name and ports.
//!
//! The configuration may differ from reality: a node can name itself at run time (RabbitMQ does), and can stop its distribution. So each name
//! comes with its source, and the ports on which the process really listens are listed, too; with the names registered in EPMD the node's
//! port can be found among them.
//!
//! `RELEASE_NODE` is ignored: release scripts turn it into `-name` or `-sname`, unless the distribution is disabled, and then the variable
//! is set although the VM is not distributed.

use std::fmt;
use std::net::IpAddr;

use crate::command_line::{CommandLine, Environment};
use crate::text;

/// Where a node's name was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameSource {
    /// `-name` or `-sname`: certain.
    CommandLine,
    /// A variable of this name, which a script or the application reads.
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
    /// The part after it; `None` if the VM determined it at run time and it is unknown here.
    pub host: Option<String>,
    /// Long name (`-name`); nodes with long and with short names cannot connect to each other.
    pub long: bool,
    /// Where it was found.
    pub source: NameSource,
}

impl NodeName {
    /// `alive@host`, if the host is known.
    pub fn full(&self) -> Option<String> {
        Some(format!("{}@{}", self.alive, self.host.as_deref()?))
    }

    /// Completes a given name. `host_name` is the VM's host name; a short name ends at its first dot.
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

/// A port on which the process accepts connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listener {
    /// The address.
    pub address: IpAddr,
    /// The port.
    pub port: u16,
}

/// A VM's distribution, as far as known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Distribution {
    /// The node's name; `None` for a VM that is not distributed, or that gets its name from a peer.
    pub name: Option<NodeName>,
    /// False with `-dist_listen false`: it connects to others, but does not accept connections.
    pub listens: bool,
    /// False with `-start_epmd false`, `-no_epmd` or a fixed port: it may not be registered in EPMD.
    pub uses_epmd: bool,
    /// `-epmd_module`, if another module than `erl_epmd` finds ports.
    pub epmd_module: Option<String>,
    /// `ERL_EPMD_PORT`, if it is not 4369.
    pub epmd_port: Option<u16>,
    /// First and last port of the configured range.
    pub ports: Option<(u16, u16)>,
    /// All ports on which the process listens; `None` if they could not be read.
    pub listeners: Option<Vec<Listener>>,
}

impl Distribution {
    /// The configuration from command line and environment, without the name that an application gives itself.
    pub(crate) fn configured(line: &CommandLine, environment: &Environment, host_name: Option<&str>) -> Self {
        // "undefined" requests a name from the first node that it connects to (OTP 23 and newer).
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

    /// Possible distribution ports: the listening ports in the configured range, or all listening ports if none is. If listening
    /// ports are unknown, a single configured port.
    pub fn candidates(&self) -> Vec<u16> {
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
    fn names_are_completed_as_far_as_possible() {
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
            assert_eq!(distribution.candidates(), expect, "{words}");
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
