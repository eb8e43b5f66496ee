//! A network of its own for a node, of which the cable can be drawn.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};

use beamtune_attach::locate::registered;

use crate::common::{PATIENCE, Running, unique, wait_until};

/// A network namespace with one address, joined to ours by a pair of virtual interfaces; removed with the test.
pub struct Namespace {
    pub name: String,
    /// The address inside.
    pub address: String,
    ours: String,
    _epmd: Running,
}

fn ip(words: &[&str]) -> bool {
    let status = Command::new("ip").args(words).stdin(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

impl Namespace {
    /// Makes one, with an EPMD in it. `None`, and it has been said, where that is not allowed.
    pub fn new() -> Option<Namespace> {
        static NEXT: AtomicU8 = AtomicU8::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = unique("btsafe");
        // 15 characters are the most that an interface's name may have.
        let ours = format!("bt{}n{number}", std::process::id());
        // Of the networks that nobody has elsewhere (RFC 2544's, for tests).
        let network = format!("198.18.{}", (std::process::id() % 200) as u8 + number % 50);
        if !ip(&["netns", "add", &name]) {
            eprintln!("skipped, because network namespaces cannot be made here (needs root and iproute2)");
            return None;
        }
        let address = format!("{network}.2");
        let inside = |words: &[&str]| ip(&[&["-n", &name], words].concat());
        let made = ip(&["link", "add", &ours, "type", "veth", "peer", "name", "node", "netns", &name])
            && ip(&["addr", "add", &format!("{network}.1/24"), "dev", &ours])
            && ip(&["link", "set", &ours, "up"])
            && inside(&["addr", "add", &format!("{address}/24"), "dev", "node"])
            && inside(&["link", "set", "node", "up"])
            && inside(&["link", "set", "lo", "up"]);
        if !made {
            ip(&["netns", "del", &name]);
            eprintln!("skipped, because virtual interfaces cannot be made here (needs root)");
            return None;
        }
        let epmd = Running::start(Command::new("ip").args(["netns", "exec", &name, "epmd"]));
        wait_until("EPMD", || registered(&address, 4369, PATIENCE).is_ok());
        Some(Namespace { name, address, ours, _epmd: epmd })
    }

    /// What a command must be run by to be inside.
    pub fn by(&self) -> [&str; 4] {
        ["ip", "netns", "exec", &self.name]
    }

    fn inside(&self, words: &[&str]) {
        assert!(ip(&[&["-n", &self.name], words].concat()), "ip {words:?}");
    }

    /// Draws the cable at the node's end, or puts it in again.
    pub fn link(&self, state: &str) {
        self.inside(&["link", "set", "node", state]);
    }

    /// Takes the node's address away (`del`), or gives it back (`add`).
    pub fn address(&self, change: &str) {
        self.inside(&["addr", change, &format!("{}/24", self.address), "dev", "node"]);
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        ip(&["link", "del", &self.ours]);
        ip(&["netns", "del", &self.name]);
    }
}
