//! Networks of the tests' own: network namespaces, alone or joined to ours by a cable.

use std::process::Command;

use super::{run, unique};

/// Of the addresses for tests of networks, 198.18.0.0/15 (RFC 2544), each cable has four.
const CABLES: u32 = 1 << 15;

/// A network namespace with nothing in it but the loopback interface; dropping it ends all that runs in it.
pub struct Network(String);

impl Network {
    /// `None` if none can be made here, and then that has been said.
    pub fn new() -> Option<Network> {
        let name = unique("bt");
        let made = ip(&["netns", "add", &name]).map(|()| Network(name));
        let made = made.and_then(|network| {
            ip(&["-n", &network.0, "link", "set", "lo", "up"])?;
            Ok(network)
        });
        made.inspect_err(|why| eprintln!("skipped, because no network can be made here: {why}")).ok()
    }

    /// One with a cable to ours.
    pub fn joined() -> Option<(Network, Cable)> {
        let network = Network::new()?;
        let cable = Cable::to(&network.door());
        let cable = cable.inspect_err(|why| eprintln!("skipped, because no cable can be made here: {why}"));
        Some((network, cable.ok()?))
    }

    /// What a command must be run by to be inside, with mounts of its own.
    pub fn by(&self) -> [&str; 4] {
        ["ip", "netns", "exec", &self.0]
    }

    /// The file by which it is entered.
    pub fn door(&self) -> String {
        format!("/run/netns/{}", self.0)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // EPMD stays when its nodes go.
        let pids = run(Command::new("ip").args(["netns", "pids", &self.0])).stdout;
        for pid in pids.split_whitespace() {
            let _ = run(Command::new("kill").args(["-s", "KILL", pid]));
        }
        let _ = ip(&["netns", "delete", &self.0]);
    }
}

/// A pair of virtual interfaces, one here and one in another network namespace; it goes when that does.
pub struct Cable {
    /// The number of the cable, which no other one on this machine has.
    number: u32,
    /// What its end here is called.
    here: String,
    door: String,
    /// The IPv4 address at the other end.
    pub address: String,
}

/// What its end in the other namespace is called.
const THERE: &str = "node";

impl Cable {
    /// To the network namespace of this file.
    pub fn to(door: &str) -> Result<Cable, String> {
        let (number, here) = Cable::first_free(door)?;
        let cable = Cable { number, here, door: door.to_owned(), address: v4(number, 2) };
        ip(&["address", "add", &format!("{}/30", v4(number, 1)), "dev", &cable.here])?;
        ip(&["link", "set", &cable.here, "up"])?;
        cable.set_address("add")?;
        cable.set_link("up")?;
        Ok(cable)
    }

    /// The name of the interface here holds its number, and no other can be made with that name: whoever else makes cables at the same
    /// time takes the next one.
    fn first_free(door: &str) -> Result<(u32, String), String> {
        let mut taken = String::new();
        for tried in 0..CABLES {
            let number = (std::process::id() + tried) % CABLES;
            let here = format!("bt{number}");
            let pair = ["link", "add", &here, "type", "veth", "peer", "name", THERE, "netns", door];
            match ip(&pair) {
                Ok(()) => return Ok((number, here)),
                Err(why) if why.contains("File exists") => taken = why,
                Err(why) => return Err(why),
            }
        }
        Err(taken)
    }

    /// Draws it at the other end (`down`), or puts it in again (`up`).
    pub fn set_link(&self, state: &str) -> Result<(), String> {
        self.there(&["link", "set", THERE, state])
    }

    /// Takes the address at the other end away (`del`), or gives it back (`add`).
    pub fn set_address(&self, change: &str) -> Result<(), String> {
        self.there(&["address", change, &format!("{}/30", self.address), "dev", THERE])
    }

    /// Adds IPv6 addresses at both ends, and gives that at the other one.
    pub fn add_v6(&self) -> Result<String, String> {
        // From the networks for use within a site (RFC 4193).
        let address = |side: u32| format!("fdbe:a0::{:x}:{side}", self.number);
        // Without the second in which the kernel asks who else has it.
        ip(&["address", "add", &format!("{}/112", address(1)), "dev", &self.here, "nodad"])?;
        self.there(&["address", "add", &format!("{}/112", address(2)), "dev", THERE, "nodad"])?;
        Ok(address(2))
    }

    fn there(&self, words: &[&str]) -> Result<(), String> {
        done(Command::new("nsenter").arg(format!("--net={}", self.door)).arg("ip").args(words))
    }
}

fn v4(number: u32, side: u32) -> String {
    let last = 4 * number + side;
    format!("198.{}.{}.{}", 18 + (last >> 16), last >> 8 & 255, last & 255)
}

fn ip(words: &[&str]) -> Result<(), String> {
    done(Command::new("ip").args(words))
}

fn done(command: &mut Command) -> Result<(), String> {
    let said = run(command);
    if said.status == Some(0) { Ok(()) } else { Err(format!("{command:?}: {}", said.stderr.trim())) }
}
