//! Network namespaces for tests, isolated or connected to the host's network by a veth pair.

use std::process::Command;

use super::{run, unique};

/// Maximum number of pairs. Each uses four addresses of 198.18.0.0/15, which is reserved for network tests (RFC 2544).
const MAX_PAIRS: u32 = 1 << 15;

/// A network namespace with only the loopback interface. Dropping it ends all processes in it.
pub struct Network(String);

impl Network {
    /// Creates a network namespace. If that is impossible, returns `None` and prints why the test is skipped.
    pub fn new() -> Option<Network> {
        let name = unique("bt");
        let created = ip(&["netns", "add", &name]).map(|()| Network(name));
        let created = created.and_then(|network| {
            ip(&["-n", &network.0, "link", "set", "lo", "up"])?;
            Ok(network)
        });
        created
            .inspect_err(|why| eprintln!("skipped, because no network namespace can be created here: {why}"))
            .ok()
    }

    /// Creates a network namespace with a veth pair to the host's network.
    pub fn connected() -> Option<(Network, VethPair)> {
        let network = Network::new()?;
        let veth = VethPair::connect(&network.path());
        let veth =
            veth.inspect_err(|why| eprintln!("skipped, because no veth pair can be created here: {why}"));
        Some((network, veth.ok()?))
    }

    /// Returns the command prefix that runs a command in the network namespace, with its own mount namespace.
    pub fn prefix(&self) -> [&str; 4] {
        ["ip", "netns", "exec", &self.0]
    }

    /// Returns the path of the namespace's file (setns(2)).
    pub fn path(&self) -> String {
        format!("/run/netns/{}", self.0)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // EPMD outlives its nodes.
        let pids = run(Command::new("ip").args(["netns", "pids", &self.0])).stdout;
        for pid in pids.split_whitespace() {
            let _ = run(Command::new("kill").args(["-s", "KILL", pid]));
        }
        let _ = ip(&["netns", "delete", &self.0]);
    }
}

/// A pair of virtual interfaces, one on the host and one in another network namespace. It is removed with that namespace.
pub struct VethPair {
    /// Unique on this host.
    number: u32,
    /// Name of the interface at this end.
    local: String,
    /// File of the other end's namespace.
    namespace: String,
    /// The IPv4 address at the other end.
    pub address: String,
}

/// Name of the interface at the other end.
const PEER: &str = "node";

impl VethPair {
    /// Connects the host's network with the namespace that has this file.
    pub fn connect(namespace: &str) -> Result<VethPair, String> {
        let (number, local) = VethPair::create(namespace)?;
        let veth = VethPair { number, local, namespace: namespace.to_owned(), address: v4(number, 2) };
        ip(&["address", "add", &format!("{}/30", v4(number, 1)), "dev", &veth.local])?;
        ip(&["link", "set", &veth.local, "up"])?;
        veth.set_address("add")?;
        veth.set_link("up")?;
        Ok(veth)
    }

    /// Creates the interfaces with the first free number. The local name contains the number, and the kernel refuses existing names, so
    /// concurrent tests get different numbers.
    fn create(namespace: &str) -> Result<(u32, String), String> {
        let mut taken = String::new();
        for attempt in 0..MAX_PAIRS {
            let number = (std::process::id() + attempt) % MAX_PAIRS;
            let local = format!("bt{number}");
            let pair = ["link", "add", &local, "type", "veth", "peer", "name", PEER, "netns", namespace];
            match ip(&pair) {
                Ok(()) => return Ok((number, local)),
                Err(why) if why.contains("File exists") => taken = why,
                Err(why) => return Err(why),
            }
        }
        Err(taken)
    }

    /// Sets the state of the interface at the other end to `down` or `up`.
    pub fn set_link(&self, state: &str) -> Result<(), String> {
        self.ip_at_peer(&["link", "set", PEER, state])
    }

    /// Removes the address at the other end (`del`), or adds it again (`add`).
    pub fn set_address(&self, change: &str) -> Result<(), String> {
        self.ip_at_peer(&["address", change, &format!("{}/30", self.address), "dev", PEER])
    }

    /// Adds IPv6 addresses at both ends. Returns the address of the other end.
    pub fn add_v6(&self) -> Result<String, String> {
        // A unique local address (RFC 4193).
        let address = |side: u32| format!("fdbe:a0::{:x}:{side}", self.number);
        // `nodad` avoids the delay of one second for duplicate address detection.
        ip(&["address", "add", &format!("{}/112", address(1)), "dev", &self.local, "nodad"])?;
        self.ip_at_peer(&["address", "add", &format!("{}/112", address(2)), "dev", PEER, "nodad"])?;
        Ok(address(2))
    }

    /// Runs `ip` in the other namespace.
    fn ip_at_peer(&self, args: &[&str]) -> Result<(), String> {
        succeed(Command::new("nsenter").arg(format!("--net={}", self.namespace)).arg("ip").args(args))
    }
}

fn v4(number: u32, side: u32) -> String {
    let last = 4 * number + side;
    format!("198.{}.{}.{}", 18 + (last >> 16), last >> 8 & 255, last & 255)
}

fn ip(args: &[&str]) -> Result<(), String> {
    succeed(Command::new("ip").args(args))
}

fn succeed(command: &mut Command) -> Result<(), String> {
    let output = run(command);
    if output.status == Some(0) { Ok(()) } else { Err(format!("{command:?}: {}", output.stderr.trim())) }
}
