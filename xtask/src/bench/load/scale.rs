//! How large the generator gets: 15,000 idle MQTT devices on two brokers, and 100,000 connections.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use beamtune_model::load::LoadResult;

use super::echo::Echo;
use super::exchange::Target;
use super::family::Family;
use super::mosquitto::Mosquitto;
use super::peers::Peers;
use super::place::{Cores, anywhere, descriptors, on_core};
use super::rabbitmq::RabbitMq;
use crate::bench::figure::{Figure, Verdict, thousands};
use crate::bench::process::{pause, wait_for};
use crate::bench::{Bench, or_not_measured};

const IDLE_DEVICES: u64 = 15_000;
/// Of a core.
const IDLE_LIMIT: f64 = 0.03;
const IDLE_LIMIT_MB: f64 = 150.0;
const RAMP_MOSQUITTO: Duration = Duration::from_secs(10);
const RAMP_RABBITMQ: Duration = Duration::from_secs(75);
const CONNECTIONS: u64 = 100_000;
/// They are made within it.
const RAMP: Duration = Duration::from_secs(30);
/// All of them stand for so long.
const HELD: Duration = Duration::from_secs(60);
/// From the end of the ramp, until the last one stands; and behind the time in which they are held.
const MARGIN: Duration = Duration::from_secs(3);
/// How long a generator may take to end.
const PATIENCE: Duration = Duration::from_secs(60);
/// Descriptors of a server that are no connections, and room for chance: the kernel spreads connections by a hash.
const SPARE_DESCRIPTORS: u64 = 1_000;

/// How it is measured, for the page.
pub fn method() -> String {
    format!(
        "{} MQTT devices with a keep-alive of 60 s connect, to mosquitto within {} s, to RabbitMQ, which takes \
         some 3 ms of CPU for each, within {} s, and do nothing. For {} s from then on the kernel counts the CPU of all of the \
         generator's processes; memory is the sum of their `VmHWM`. {} WebSocket connections are made within {} s to echo \
         servers that share a port, as many as descriptors demand, on the first core; the generator has the last one. {} s after \
         it was made, each sends a message, which must come back. A second in which all stand is one at whose end they do.",
        thousands(IDLE_DEVICES as f64),
        RAMP_MOSQUITTO.as_secs(),
        RAMP_RABBITMQ.as_secs(),
        HELD.as_secs(),
        thousands(CONNECTIONS as f64),
        RAMP.as_secs(),
        (RAMP + HELD + 2 * MARGIN).as_secs()
    )
}

/// All of it.
pub fn measure(bench: &Bench) -> Result<Vec<Figure>> {
    let mut figures = or_not_measured("idle MQTT devices on mosquitto", on_mosquitto(bench))?;
    figures.extend(or_not_measured("idle MQTT devices on RabbitMQ", on_rabbitmq(bench))?);
    figures.extend(or_not_measured("many connections", many(bench))?);
    Ok(figures)
}

fn on_mosquitto(bench: &Bench) -> Result<Vec<Figure>> {
    let broker = Mosquitto::start(bench.folder.path(), |program| anywhere(program))?;
    idle(bench, &format!("mqtt://{}", broker.address), &broker.version, RAMP_MOSQUITTO)
}

fn on_rabbitmq(bench: &Bench) -> Result<Vec<Figure>> {
    let broker = RabbitMq::start(bench)?;
    idle(bench, &format!("mqtt://{}", broker.address), &broker.version, RAMP_RABBITMQ)
}

fn idle(bench: &Bench, target: &str, broker: &str, ramp: Duration) -> Result<Vec<Figure>> {
    let load = Load {
        text: format!(
            "[load]\nramp = \"{}s\"\nfor = \"{}s\"\nrundown = \"0s\"\n\n[devices.idle]\ncount = {IDLE_DEVICES}\n\
             target = \"{target}\"\nsteps = [\"connect\", {{ sleep = \"30d\" }}]\n",
            ramp.as_secs(),
            (HELD + 2 * MARGIN).as_secs()
        ),
        ramp,
        devices: IDLE_DEVICES,
    };
    let held = load.hold(bench, None, &mut || Ok(()))?;
    let what = format!("{} idle MQTT devices on {broker}", thousands(IDLE_DEVICES as f64));
    Ok(vec![
        held.figure(&what),
        Figure::below("the generator's CPU meanwhile", held.cores, IDLE_LIMIT, |cores| {
            format!("{:.1} % of a core", cores * 100.0)
        }),
        Figure::below(
            "its memory: most ever resident, of all its processes",
            held.peak_bytes as f64 / 1e6,
            IDLE_LIMIT_MB,
            |mb| format!("{mb:.0} MB"),
        ),
    ])
}

fn many(bench: &Bench) -> Result<Vec<Figure>> {
    let cores = Cores::of_this_process()?;
    let peers = Peers::build(&bench.repository)?;
    let room = descriptors()?.saturating_sub(SPARE_DESCRIPTORS).max(1);
    let servers = CONNECTIONS.div_ceil(room);
    let mut echo = Echo::start(&peers, cores.server, servers as usize)?;
    let load = Load {
        text: format!(
            "[load]\nramp = \"{}s\"\nturns = 1\n\n[devices.held]\ncount = {CONNECTIONS}\ntarget = \"ws://{}/\"\n\
             steps = [\"connect\", {{ sleep = \"{}s\" }}, {{ send = \"are you there?\" }}, {{ expect = \"are you there?\" }}]\n",
            RAMP.as_secs(),
            echo.address,
            // The first one when all of them have stood long enough.
            (RAMP + HELD + 2 * MARGIN).as_secs()
        ),
        ramp: RAMP,
        devices: CONNECTIONS,
    };
    let held = load.hold(bench, Some(cores.generator), &mut || {
        let standing = echo.counts()?.connections as u64;
        ensure!(standing == CONNECTIONS, "the servers have {standing} of {CONNECTIONS} connections");
        Ok(())
    })?;
    let connect = held.result.steps.iter().find(|step| step.is_connect).context("nothing has connected")?;
    let times = connect.service.as_ref().context("nothing has connected in time")?;
    let p99_ns = times.percentile_ns("p99").context("too few have connected in time")?;
    let what = format!(
        "{} WebSocket connections to {servers} servers, each of which sends and gets a message at the end",
        thousands(CONNECTIONS as f64)
    );
    let answered: u64 =
        held.result.steps.iter().filter(|step| step.name == "expect").map(|step| step.done).sum();
    let mut figure = held.figure(&what).with(&format!("; {} messages came back", thousands(answered as f64)));
    if answered != CONNECTIONS {
        figure.verdict = Verdict::Missed;
    }
    Ok(vec![
        figure,
        Figure::compared(
            "the time that one of them takes to connect, WebSocket's handshake included, p99",
            format!(
                "{:.1} ms; of {} in seconds in which the generator was not the limit",
                p99_ns as f64 / 1e6,
                thousands(times.count as f64)
            ),
        ),
        Figure::compared(
            "the generator's memory: most ever resident, of all its processes",
            format!(
                "{:.0} MB, {:.1} KB for each connection",
                held.peak_bytes as f64 / 1e6,
                held.peak_bytes as f64 / 1e3 / CONNECTIONS as f64
            ),
        ),
        Figure::compared(
            "its CPU: while they stand; to connect them",
            format!("{:.1} % of a core; {:.1} s", held.cores * 100.0, held.ramp_cpu_s),
        ),
    ])
}

/// Devices that connect, and then stand for longer than [`HELD`].
struct Load {
    /// The scenario.
    text: String,
    ramp: Duration,
    devices: u64,
}

/// What was seen of them.
struct Held {
    result: LoadResult,
    devices: u64,
    /// The first of [`HELD`], in seconds of the run.
    from_s: i64,
    processes: usize,
    /// While they stood.
    cores: f64,
    /// Until then.
    ramp_cpu_s: f64,
    peak_bytes: u64,
}

impl Load {
    /// Runs it on a core, or wherever; `check` is called when all should stand, at the beginning and at the end.
    fn hold(
        &self,
        bench: &Bench,
        core: Option<usize>,
        check: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Held> {
        let folder = tempfile::tempdir_in(bench.folder.path())?;
        let (scenario, output) = (folder.path().join("scenario.toml"), folder.path().join("result.json"));
        fs::write(&scenario, &self.text)?;
        let mut command = match core {
            Some(core) => on_core(core, &bench.beamtune)?,
            None => anywhere(&bench.beamtune)?,
        };
        let mut generator = Family::start(command.args(["load", "-o"]).arg(&output).arg(&scenario))?;
        let stands_from = self.ramp + MARGIN;
        pause(stands_from)?;
        check()?;
        let before_ns = generator.cpu_ns()?;
        pause(HELD)?;
        let used_ns = generator.cpu_ns()? - before_ns;
        let (peak_bytes, processes) = (generator.peak_bytes(), generator.pids().len());
        check()?;
        wait_for("the generator to end", PATIENCE, || generator.first.ended())?;
        let result = read(&output).map_err(|error| error.context(generator.first.failure()))?;
        Ok(Held {
            result,
            devices: self.devices,
            from_s: stands_from.as_secs() as i64,
            processes,
            cores: used_ns as f64 / HELD.as_nanos() as f64,
            ramp_cpu_s: before_ns as f64 / 1e9,
            peak_bytes,
        })
    }
}

impl Held {
    /// Whether all of them stood all the time, without an error.
    fn figure(&self, what: &str) -> Figure {
        let standing = standing_s(&self.result, self.from_s, self.devices);
        let errors = self.result.errors();
        let is_kept = standing == HELD.as_secs() && errors == 0;
        Figure {
            what: format!("{what}: seconds of {} in which all stand", HELD.as_secs()),
            value: format!("{standing} s, {errors} errors; processes of the generator: {}", self.processes),
            limit: format!("{} s, 0 errors", HELD.as_secs()),
            verdict: if is_kept { Verdict::Kept } else { Verdict::Missed },
        }
    }
}

/// In how many seconds of [`HELD`] all devices were connected.
fn standing_s(result: &LoadResult, from_s: i64, devices: u64) -> u64 {
    let held = from_s..from_s + HELD.as_secs() as i64;
    let stand = result.seconds.iter().filter(|second| held.contains(&second.second));
    stand.filter(|second| second.connected == Some(devices)).count() as u64
}

fn read(output: &Path) -> Result<LoadResult> {
    let text = fs::read_to_string(output).context("the generator has written no result")?;
    serde_json::from_str(&text).context("the generator's result is not understood")
}
