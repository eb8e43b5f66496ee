//! Messages that come back to who sent them: what each costs a generator, by what the target has counted meanwhile.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::family::Family;
use super::peers::Peers;
use super::place::{Cores, on_core};
use super::tool::Tool;
use super::{mqtt, websocket};
use crate::bench::figure::{Figure, judge_within, median, ratio, thousands, times};
use crate::bench::process::{PATIENCE, pause, wait_for};
use crate::bench::{Bench, CONFIDENCE, or_not_measured};

/// Rounds, in each of which every generator has a window: the fewest that allow an interval.
const ROUNDS: usize = 6;
/// It begins a third of that after all connections stand.
const WINDOW: Duration = Duration::from_secs(3);
/// Of each message.
pub const MESSAGE_BYTES: usize = 64;
/// What was sent in a window has come back in it, but for what was under way at its ends.
const LEAST_BACK: f64 = 0.98;

/// What a target has seen so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages that came.
    pub received: u64,
    /// Messages that it has sent.
    pub sent: u64,
    /// Connections of generators that stand.
    pub connections: usize,
}

/// What generators exchange messages with.
pub trait Target {
    /// What it has seen, as of now.
    fn counts(&mut self) -> Result<Counts>;
}

/// A generator, and how it is started.
pub struct Contender<'a> {
    /// With its version.
    pub name: String,
    /// It connects, exchanges messages, and does not end.
    pub command: Start<'a>,
    /// Ours is to do so many times as much as this one for each second of CPU.
    pub limit: f64,
}

/// How a generator is started; again for each window.
pub type Start<'a> = Box<dyn Fn() -> Result<Command> + 'a>;

impl Contender<'static> {
    /// Ours, in one thread, with a scenario.
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

/// A program on the generator's core.
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

/// How it is measured, for the page.
pub fn method() -> String {
    format!(
        "A generator in one thread on the last core exchanges messages of {MESSAGE_BYTES} bytes with a \
         server in one thread on the first core: each connection, or device, sends one, and the next one when it has come back. \
         WebSocket: a server of our own echoes them. MQTT: each device subscribes to a topic of its own and publishes to it; at \
         QoS 1 it also waits for the acknowledgement, and acknowledges what comes. The server counts messages (mosquitto by its \
         `$SYS` topics), the kernel the CPU of all of the generator's processes, in windows of {} s that begin {} s after all \
         connections stand. In each of {ROUNDS} rounds every generator has a window, in random order; compared are logarithms \
         within rounds. The peers are small programs of our own (`peers/`) on the crates that are named, which measure \
         nothing; of tokio-tungstenite, the read buffers are made smaller, as it is slower otherwise. Devices of Tsung cannot wait \
         for what they have published themselves (at QoS 1 they hang when it comes together with the acknowledgement): half of \
         them publish as fast as they can, from QoS 1 on as fast as they are acknowledged, and the other half subscribe.",
        WINDOW.as_secs(),
        (WINDOW / 3).as_secs()
    )
}

/// Messages of WebSocket, and of MQTT.
pub fn measure(bench: &Bench) -> Result<Vec<Figure>> {
    let cores = Cores::of_this_process()?;
    let peers = Peers::build(&bench.repository)?;
    let mut figures = or_not_measured("messages of WebSocket", websocket::measure(bench, &peers, cores))?;
    figures.extend(or_not_measured("messages of MQTT", mqtt::measure(bench, &peers, cores))?);
    Ok(figures)
}

/// Ours, the first, beside the others, in windows of random order. `what` says what is exchanged.
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
    let mut seen = contenders.iter().zip(&rates);
    let Some((tool, ours)) = seen.next() else { return Ok(figures) };
    for (peer, theirs) in seen {
        let effect = ratio(ours, theirs, CONFIDENCE).context("too few rounds for an interval")?;
        figures.push(Figure {
            what: format!("{what} per second of the generator's CPU: {} beside {}", tool.name, peer.name),
            value: format!(
                "{} times as many: {} against {}",
                times(&effect),
                thousands(median(ours)),
                thousands(median(theirs))
            ),
            limit: format!("≥ {}", peer.limit),
            verdict: judge_within(&effect, peer.limit, f64::INFINITY),
        });
    }
    Ok(figures)
}

/// How many messages a generator exchanges for each second of its CPU.
fn window(
    target: &mut dyn Target,
    contender: &Contender<'_>,
    connections: usize,
    length: Duration,
) -> Result<f64> {
    let mut generator = Family::start(&mut (contender.command)()?)?;
    let has_ended = wait_for("all connections", PATIENCE, || {
        let has_ended = generator.first.ended()?.is_some();
        Ok((has_ended || target.counts()?.connections >= connections).then_some(has_ended))
    })?;
    if has_ended {
        return Err(generator.first.failure());
    }
    pause(length / 3)?;
    let (before, cpu_before_ns) = (target.counts()?, generator.cpu_ns()?);
    pause(length)?;
    let (after, cpu_after_ns) = (target.counts()?, generator.cpu_ns()?);
    ensure!(after.connections >= connections, "only {} of its connections stand", after.connections);
    drop(generator);
    // So that the next one finds it as this one did.
    wait_for("the target to see the connections' end", PATIENCE, || {
        Ok((target.counts()?.connections == 0).then_some(()))
    })?;

    let received = (after.received - before.received) as f64;
    ensure!(received > 0.0, "it exchanges nothing");
    let back = (after.sent - before.sent) as f64 / received;
    ensure!(back >= LEAST_BACK, "only {:.0} % of its messages come back", back * 100.0);
    Ok(received / ((cpu_after_ns - cpu_before_ns) as f64 / 1e9))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(30);

    /// Has so many more connections and messages each time that it is asked.
    struct Script(std::vec::IntoIter<Counts>);

    impl Target for Script {
        fn counts(&mut self) -> Result<Counts> {
            self.0.next().context("asked too often")
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
        // It had some of that time, and by far not a second.
        assert!(rate.is_finite() && rate > 3_000.0, "{rate}");
    }

    #[test]
    fn a_generator_that_exchanges_nothing_has_no_figure() {
        let error =
            |mut script: Script| window(&mut script, &spin(), 2, SHORT).expect_err("no window").to_string();
        assert_eq!(error(script(10, 10, 2)), "it exchanges nothing");
        assert_eq!(error(script(110, 60, 2)), "only 50 % of its messages come back");
        assert_eq!(error(script(110, 110, 1)), "only 1 of its connections stand");
    }

    #[test]
    fn one_that_ends_says_why() {
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
