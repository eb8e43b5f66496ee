//! Starts mosquitto with a configuration of our own, and reads its counters.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::exchange::{Counts, Target};
use crate::bench::process::{Running, command};

/// Path in Debian; its folder is not in every user's PATH.
const PROGRAM: &str = "/usr/sbin/mosquitto";
/// Topics of the counters below `$SYS/broker`, which mosquitto publishes every second in this order (mosquitto(8)).
const TOPICS: [&str; 3] = ["clients/connected", "publish/messages/received", "publish/messages/sent"];

/// A broker that is killed when dropped.
pub struct Mosquitto {
    /// The process that subscribes to the counters.
    subscriber: Running,
    counts: Counts,
    /// Address of the listener.
    pub address: SocketAddr,
    /// Name and version: `mosquitto 2.0.11`.
    pub version: String,
    /// This field is the last, so that it is dropped after the subscriber.
    _running: Running,
}

impl Mosquitto {
    /// Starts the broker; `place` creates the command on a CPU.
    pub fn start(folder: &Path, place: impl Fn(&str) -> Result<Command>) -> Result<Mosquitto> {
        ensure!(Path::new(PROGRAM).exists(), "{PROGRAM} is not installed (scripts/install.sh bench)");
        let address = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr())?;
        let file = folder.join("mosquitto.conf");
        fs::write(&file, configuration(address))?;
        let mut running = Running::start(place(PROGRAM)?.arg("-c").arg(&file))?;
        running.wait_until_listening("mosquitto", address)?;
        let mut subscribe = command("mosquitto_sub");
        subscribe.args(["-h", "127.0.0.1", "-p", &address.port().to_string(), "-F", "%t %p"]);
        subscribe.args(TOPICS.iter().flat_map(|topic| ["-t".to_owned(), format!("$SYS/broker/{topic}")]));
        let subscriber = Running::start(&mut subscribe)
            .context("mosquitto_sub is not installed (scripts/install.sh bench)")?;
        let counts = Counts::default();
        Ok(Mosquitto { subscriber, counts, address, version: version()?, _running: running })
    }

    fn update(&mut self, line: &str) -> Result<()> {
        let parse =
            || line.split_once(' ').and_then(|(topic, number)| Some((topic, number.parse::<u64>().ok()?)));
        let (topic, number) =
            parse().with_context(|| format!("mosquitto published {line:?}, expected a number"))?;
        match topic {
            // The subscriber is a client, too.
            "clients/connected" => self.counts.connections = (number as usize).saturating_sub(1),
            "publish/messages/received" => self.counts.received = number,
            "publish/messages/sent" => self.counts.sent = number,
            _ => {}
        }
        Ok(())
    }
}

impl Target for Mosquitto {
    /// Waits for the next publication of the counters.
    fn counts(&mut self) -> Result<Counts> {
        let earlier: Vec<String> = self.subscriber.lines().collect();
        for line in earlier.iter().filter_map(|line| line.strip_prefix("$SYS/broker/")) {
            self.update(line)?;
        }
        loop {
            let line = self.subscriber.expect_line("$SYS/broker/")?;
            self.update(&line)?;
            // mosquitto only publishes changes. The number of sent messages always changes, because these publications are counted.
            if TOPICS.last().is_some_and(|topic| line.starts_with(topic)) {
                return Ok(self.counts);
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

/// Returns the first line of the help: `mosquitto version 2.0.11`.
fn version() -> Result<String> {
    let output =
        Command::new(PROGRAM).arg("-h").stdin(Stdio::null()).output().context("cannot start mosquitto")?;
    let help = String::from_utf8_lossy(&output.stdout).into_owned();
    let first = help.lines().next().context("mosquitto printed no version")?;
    Ok(first.replace(" version ", " "))
}
