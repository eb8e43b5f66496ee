//! CPU time per message of generators whose messages are returned to them; the target counts the messages.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::peers::Peers;
use super::placement::{Cores, on_core};
use super::process_tree::ProcessTree;
use super::tool::Tool;
use super::{mqtt, websocket};
use crate::bench::figure::{Figure, factor, judge_within, median, ratio, thousands};
use crate::bench::process::{TIMEOUT, pause, wait_for};
use crate::bench::{Bench, CONFIDENCE, or_not_measured};

/// Number of rounds with a window per generator; the minimum for an interval.
const ROUNDS: usize = 6;
/// Length of a window. It begins a third of its length after all connections are established.
const WINDOW: Duration = Duration::from_secs(3);
/// Size of a message, in bytes.
pub const MESSAGE_BYTES: usize = 64;
/// Minimum share of the messages of a window that must be returned; some are in flight at the ends of the window.
const MIN_RETURNED: f64 = 0.98;

/// Counters of a target.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages received.
    pub received: u64,
    /// Messages sent.
    pub sent: u64,
    /// Open connections of generators.
    pub connections: usize,
}

/// A server that returns messages.
pub trait Target {
    /// Returns the current counters.
    fn counts(&mut self) -> Result<Counts>;
}

/// A generator that is compared.
pub struct Contender<'a> {
    /// Name and version.
    pub name: String,
    /// Creates a command that connects, and exchanges messages until it is killed.
    pub command: Start<'a>,
    /// Minimum ratio of our messages per CPU second to those of this generator.
    pub limit: f64,
}

/// Builds the command for a window.
pub type Start<'a> = Box<dyn Fn() -> Result<Command> + 'a>;

impl Contender<'static> {
    /// Creates the contender `beamtune load` with one thread.
    pub fn ours(bench: &Bench, cores: Cores, scenario: &str) -> Result<Self> {
        let file = bench.folder.path().join("exchange.toml");
        fs::write(&file, scenario)?;
        let arguments = ["load", "--threads", "1"].map(OsString::from).into_iter().chain([file.into()]);
        Ok(Self {
            name: Tool::ours(&bench.beamtune)?.to_string(),
            command: command_on(cores, bench.beamtune.clone(), arguments.collect()),
            limit: 1.0,
        })
    }
}

/// Returns a function that builds the command of a program on the generator's core.
pub fn command_on(
    cores: Cores,
    program: PathBuf,
    arguments: Vec<impl AsRef<OsStr> + 'static>,
) -> Start<'static> {
    Box::new(move || {
        let mut command = on_core(cores.generator, &program)?;
        command.args(&arguments);
        Ok(command)
    })
}

/// Returns the description of the method for the page.
pub fn method() -> String {
    format!(
        "A generator with one thread, on the last core, exchanges messages of {MESSAGE_BYTES} bytes with a server with one \
         thread, on the first core. Each connection (device) sends a message and, when it has come back, the next one. \
         WebSocket: an echo server of this repository. MQTT: each device publishes to a topic that only it subscribes to; at \
         QoS 1 it also waits for the acknowledgement, and acknowledges what it receives. The server counts messages (mosquitto \
         in its `$SYS` topics), the kernel the CPU time of all processes of the generator, in windows of {} s that begin {} s \
         after all connections are established. Each of {ROUNDS} rounds has a window per generator, in random order; logarithms \
         are compared within rounds. The peers are small programs (`peers/`) on the named crates, which measure nothing. \
         tokio-tungstenite gets smaller read buffers, with which it is faster. Tsung's devices cannot wait for their own \
         messages (at QoS 1 they hang when a message arrives together with the acknowledgement), so half of them publish, \
         at QoS 0 as fast as they can and at QoS 1 as fast as they get acknowledgements, and the other half subscribe.",
        WINDOW.as_secs(),
        (WINDOW / 3).as_secs()
    )
}

/// Measures WebSocket, then MQTT.
pub fn measure(bench: &Bench) -> Result<Vec<Figure>> {
    let cores = Cores::of_this_process()?;
    let peers = Peers::build(&bench.repository)?;
    let mut figures = or_not_measured("WebSocket messages", websocket::measure(bench, &peers, cores))?;
    figures.extend(or_not_measured("MQTT messages", mqtt::measure(bench, &peers, cores))?);
    Ok(figures)
}

/// Compares the first contender, ours, with the others, in windows of random order. `what` describes the messages.
pub fn compare(
    bench: &Bench,
    target: &mut dyn Target,
    contenders: &[Contender<'_>],
    connections: usize,
    what: &str,
    random: &mut fastrand::Rng,
) -> Result<Vec<Figure>> {
    let mut rates = vec![Vec::new(); contenders.len()];
    let mut order: Vec<usize> = (0..contenders.len()).collect();
    for _ in 0..bench.pairs.unwrap_or(ROUNDS) {
        random.shuffle(&mut order);
        for index in &order {
            let contender = &contenders[*index];
            let rate =
                window(target, contender, connections, WINDOW).with_context(|| contender.name.clone())?;
            rates[*index].push(rate);
        }
    }
    let mut figures = Vec::new();
    let mut results = contenders.iter().zip(&rates);
    let Some((tool, ours)) = results.next() else { return Ok(figures) };
    for (peer, theirs) in results {
        let effect = ratio(ours, theirs, CONFIDENCE).context("too few rounds for an interval")?;
        figures.push(Figure {
            what: format!("{what}, per CPU second of the generator: {} against {}", tool.name, peer.name),
            value: format!(
                "{} times: {} against {}",
                factor(&effect),
                thousands(median(ours)),
                thousands(median(theirs))
            ),
            limit: format!("≥ {}", peer.limit),
            verdict: judge_within(&effect, peer.limit, f64::INFINITY),
        });
    }
    Ok(figures)
}

/// Returns the messages per CPU second of a generator.
fn window(
    target: &mut dyn Target,
    contender: &Contender<'_>,
    connections: usize,
    length: Duration,
) -> Result<f64> {
    let mut generator = ProcessTree::start(&mut (contender.command)()?)?;
    let has_ended = wait_for("all connections", TIMEOUT, || {
        let has_ended = generator.first.exit_status()?.is_some();
        Ok((has_ended || target.counts()?.connections >= connections).then_some(has_ended))
    })?;
    if has_ended {
        return Err(generator.first.failure());
    }
    pause(length / 3)?;
    let (before, cpu_before_ns) = (target.counts()?, generator.cpu_ns()?);
    pause(length)?;
    let (after, cpu_after_ns) = (target.counts()?, generator.cpu_ns()?);
    ensure!(after.connections >= connections, "only {} of its connections are open", after.connections);
    drop(generator);
    // The next generator must also find an idle target.
    wait_for("the target to close the connections", TIMEOUT, || {
        Ok((target.counts()?.connections == 0).then_some(()))
    })?;

    let received = (after.received - before.received) as f64;
    ensure!(received > 0.0, "it exchanges no messages");
    let returned = (after.sent - before.sent) as f64 / received;
    ensure!(returned >= MIN_RETURNED, "only {:.0} % of its messages come back", returned * 100.0);
    Ok(received / ((cpu_after_ns - cpu_before_ns) as f64 / 1e9))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(30);

    /// A target that returns the next of these counters on each call.
    struct Script(std::vec::IntoIter<Counts>);

    impl Target for Script {
        fn counts(&mut self) -> Result<Counts> {
            self.0.next().context("the script has ended")
        }
    }

    fn spin() -> Contender<'static> {
        let command = || {
            let mut command = Command::new("sh");
            command.args(["-c", "while :; do :; done"]);
            Ok(command)
        };
        Contender { name: "sh".into(), command: Box::new(command), limit: 1.0 }
    }

    fn script(received: u64, sent: u64, connections: usize) -> Script {
        let at = |received, sent, connections| Counts { received, sent, connections };
        let counts = [at(0, 0, 0), at(5, 5, 2), at(10, 10, 2), at(received, sent, connections), at(0, 0, 0)];
        Script(Vec::from(counts).into_iter())
    }

    #[test]
    fn a_window_gives_messages_per_second_of_cpu() {
        let rate = window(&mut script(3_010, 3_005, 2), &spin(), 2, SHORT).expect("a window");
        // The loop used some CPU time, but much less than a second.
        assert!(rate.is_finite() && rate > 3_000.0, "{rate}");
    }

    #[test]
    fn a_generator_without_returned_messages_has_no_figure() {
        let error =
            |mut script: Script| window(&mut script, &spin(), 2, SHORT).expect_err("no window").to_string();
        assert_eq!(error(script(10, 10, 2)), "it exchanges no messages");
        assert_eq!(error(script(110, 60, 2)), "only 50 % of its messages come back");
        assert_eq!(error(script(110, 110, 1)), "only 1 of its connections are open");
    }

    #[test]
    fn the_error_of_a_generator_that_ends_has_its_output() {
        let command = || {
            let mut command = Command::new("sh");
            command.args(["-c", "echo no such thing >&2; exit 1"]);
            Ok(command)
        };
        let contender = Contender { command: Box::new(command), ..spin() };
        let mut target = Script(vec![Counts::default(); 20_000].into_iter());
        let error = format!("{:#}", window(&mut target, &contender, 2, SHORT).expect_err("it ends"));
        assert!(error.contains("no such thing"), "{error}");
    }
}
