//! mosquitto with a configuration of our own, and what it counts.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::exchange::{Counts, Target};
use crate::bench::process::{Running, command};

/// Debian's place, which is not in everybody's PATH.
const PROGRAM: &str = "/usr/sbin/mosquitto";
/// What it tells of itself, each second (mosquitto(8)), in this order.
const TOPICS: [&str; 3] = ["clients/connected", "publish/messages/received", "publish/messages/sent"];

/// It is ended, by its process id, when this goes out of scope.
pub struct Mosquitto {
    /// What hears of its counters.
    listener: Running,
    seen: Counts,
    /// Where it listens.
    pub address: SocketAddr,
    /// `mosquitto 2.0.11`.
    pub version: String,
    /// Last, as it is to end last.
    _running: Running,
}

impl Mosquitto {
    /// Starts it; `place` says where a program runs.
    pub fn start(folder: &Path, place: impl Fn(&str) -> Result<Command>) -> Result<Mosquitto> {
        ensure!(Path::new(PROGRAM).exists(), "{PROGRAM} is not installed (scripts/install.sh bench)");
        let address = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr())?;
        let file = folder.join("mosquitto.conf");
        fs::write(&file, configuration(address))?;
        let mut running = Running::start(place(PROGRAM)?.arg("-c").arg(&file))?;
        running.wait_until_it_listens("mosquitto", address)?;
        let mut subscribe = command("mosquitto_sub");
        subscribe.args(["-h", "127.0.0.1", "-p", &address.port().to_string(), "-F", "%t %p"]);
        subscribe.args(TOPICS.iter().flat_map(|topic| ["-t".to_owned(), format!("$SYS/broker/{topic}")]));
        let listener = Running::start(&mut subscribe).context("scripts/install.sh bench")?;
        Ok(Mosquitto { listener, seen: Counts::default(), address, version: version()?, _running: running })
    }

    fn take(&mut self, line: &str) -> Result<()> {
        let (topic, number) = line.split_once(' ').context("mosquitto tells no number")?;
        let number: u64 = number.parse().context("mosquitto tells no number")?;
        match topic {
            // Who listens to this is no generator.
            "clients/connected" => self.seen.connections = (number as usize).saturating_sub(1),
            "publish/messages/received" => self.seen.received = number,
            "publish/messages/sent" => self.seen.sent = number,
            _ => {}
        }
        Ok(())
    }
}

impl Target for Mosquitto {
    /// As of when it tells of them next.
    fn counts(&mut self) -> Result<Counts> {
        let told: Vec<String> = self.listener.lines().collect();
        for line in told.iter().filter_map(|line| line.strip_prefix("$SYS/broker/")) {
            self.take(line)?;
        }
        loop {
            let line = self.listener.expect_line("$SYS/broker/")?;
            self.take(&line)?;
            // The last one; it always comes, as telling of it counts too.
            if TOPICS.last().is_some_and(|topic| line.starts_with(topic)) {
                return Ok(self.seen);
            }
        }
    }
}

fn configuration(address: SocketAddr) -> String {
    format!(
        "listener {} {}\nallow_anonymous true\npersistence false\nset_tcp_nodelay true\nsys_interval 1\n\
         log_type error\n",
        address.port(),
        address.ip()
    )
}

/// The first line of its help: `mosquitto version 2.0.11`.
fn version() -> Result<String> {
    let said =
        Command::new(PROGRAM).arg("-h").stdin(Stdio::null()).output().context("mosquitto does not start")?;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let first = said.lines().next().context("mosquitto tells no version")?;
    Ok(first.replace(" version ", " "))
}
