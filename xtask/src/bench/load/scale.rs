//! Scale of the generator: 15,000 idle MQTT devices on two brokers, and 100,000 WebSocket connections.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use beamtune_model::load::LoadResult;

use super::echo::Echo;
use super::exchange::Target;
use super::mosquitto::Mosquitto;
use super::peers::Peers;
use super::placement::{Cores, anywhere, descriptors, on_core};
use super::process_tree::ProcessTree;
use super::rabbitmq::RabbitMq;
use crate::bench::figure::{Figure, Verdict, thousands};
use crate::bench::process::{pause, wait_for};
use crate::bench::{Bench, or_not_measured};

const IDLE_DEVICES: u64 = 15_000;
/// CPU use of the generator, as a share of a core.
const IDLE_LIMIT: f64 = 0.03;
const IDLE_LIMIT_MB: f64 = 150.0;
const RAMP_MOSQUITTO: Duration = Duration::from_secs(10);
const RAMP_RABBITMQ: Duration = Duration::from_secs(75);
const CONNECTIONS: u64 = 100_000;
/// Time over which the connections are opened.
const RAMP: Duration = Duration::from_secs(30);
/// Time for which all connections must stay open.
const HOLD: Duration = Duration::from_secs(60);
/// Time from the end of the ramp until the last connection is established; also the time after the hold.
const MARGIN: Duration = Duration::from_secs(3);
/// Timeout for the generator's exit.
const TIMEOUT: Duration = Duration::from_secs(60);
/// File descriptors of a server in addition to its even share of connections: the kernel distributes connections by a hash.
const SPARE_DESCRIPTORS: u64 = 1_000;

/// Returns the description of the method for the page.
pub fn method() -> String {
    format!(
        "{} MQTT devices with a keep-alive of 60 s connect and then stay idle. They connect to mosquitto within {} s, and to \
         RabbitMQ, which needs some 3 ms of CPU for each, within {} s. For the following {} s the CPU time of all processes of \
         the generator is counted; memory is the sum of their `VmHWM`. {} WebSocket connections are opened within {} s to echo \
         servers that share a port, on the first core, as many servers as the limit of file descriptors requires; the generator \
         has the last core. {} s after it was opened, each connection sends a message, which must come back. A second counts if \
         all connections are open at its end.",
        thousands(IDLE_DEVICES as f64),
        RAMP_MOSQUITTO.as_secs(),
        RAMP_RABBITMQ.as_secs(),
        HOLD.as_secs(),
        thousands(CONNECTIONS as f64),
        RAMP.as_secs(),
        (RAMP + HOLD + 2 * MARGIN).as_secs()
    )
}

/// Measures idle devices on both brokers, then WebSocket connections.
pub fn measure(bench: &Bench) -> Result<Vec<Figure>> {
    let mut figures = or_not_measured("idle MQTT devices on mosquitto", on_mosquitto(bench))?;
    figures.extend(or_not_measured("idle MQTT devices on RabbitMQ", on_rabbitmq(bench))?);
    figures.extend(or_not_measured("WebSocket connections", websocket(bench))?);
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
            (HOLD + 2 * MARGIN).as_secs()
        ),
        ramp,
        devices: IDLE_DEVICES,
    };
    let held = load.hold(bench, None, &mut || Ok(()))?;
    let what = format!("{} idle MQTT devices on {broker}", thousands(IDLE_DEVICES as f64));
    Ok(vec![
        held.figure(&what),
        Figure::below("CPU of the generator meanwhile", held.cores, IDLE_LIMIT, |cores| {
            format!("{:.1} % of a core", cores * 100.0)
        }),
        Figure::below(
            "peak RSS of the generator, all processes",
            held.peak_bytes as f64 / 1e6,
            IDLE_LIMIT_MB,
            |mb| format!("{mb:.0} MB"),
        ),
    ])
}

fn websocket(bench: &Bench) -> Result<Vec<Figure>> {
    let cores = Cores::of_this_process()?;
    let peers = Peers::build(&bench.repository)?;
    let per_server = descriptors()?.saturating_sub(SPARE_DESCRIPTORS).max(1);
    let servers = CONNECTIONS.div_ceil(per_server);
    let mut echo = Echo::start(&peers, cores.server, servers as usize)?;
    let load = Load {
        text: format!(
            "[load]\nramp = \"{}s\"\nturns = 1\n\n[devices.held]\ncount = {CONNECTIONS}\ntarget = \"ws://{}/\"\n\
             steps = [\"connect\", {{ sleep = \"{}s\" }}, {{ send = \"are you there?\" }}, {{ expect = \"are you there?\" }}]\n",
            RAMP.as_secs(),
            echo.address,
            // The first connection also sends after the hold.
            (RAMP + HOLD + 2 * MARGIN).as_secs()
        ),
        ramp: RAMP,
        devices: CONNECTIONS,
    };
    let held = load.hold(bench, Some(cores.generator), &mut || {
        let open = echo.counts()?.connections as u64;
        ensure!(open == CONNECTIONS, "the servers have {open} of {CONNECTIONS} connections");
        Ok(())
    })?;
    let connect =
        held.result.steps.iter().find(|step| step.is_connect).context("the result has no connects")?;
    let times = connect.service.as_ref().context("the result has no connect times")?;
    let p99_ns = times.percentile_ns("p99").context("the result has no p99 of the connect times")?;
    let what = format!(
        "{} WebSocket connections to {servers} servers, with an echoed message at the end",
        thousands(CONNECTIONS as f64)
    );
    let answered: u64 =
        held.result.steps.iter().filter(|step| step.name == "expect").map(|step| step.done).sum();
    let mut figure =
        held.figure(&what).with_suffix(&format!("; {} messages came back", thousands(answered as f64)));
    if answered != CONNECTIONS {
        figure.verdict = Verdict::Missed;
    }
    Ok(vec![
        figure,
        Figure::compared(
            "p99 of the time to connect, WebSocket handshake included",
            format!(
                "{:.1} ms, of {} connects in seconds in which the generator was not the limit",
                p99_ns as f64 / 1e6,
                thousands(times.count as f64)
            ),
        ),
        Figure::compared(
            "peak RSS of the generator, all processes",
            format!(
                "{:.0} MB, {:.1} KB per connection",
                held.peak_bytes as f64 / 1e6,
                held.peak_bytes as f64 / 1e3 / CONNECTIONS as f64
            ),
        ),
        Figure::compared(
            "CPU of the generator, while all are open; to open them",
            format!("{:.1} % of a core; {:.1} s", held.cores * 100.0, held.ramp_cpu_s),
        ),
    ])
}

/// Devices that connect, and then stay connected for longer than [`HOLD`].
struct Load {
    /// The scenario.
    text: String,
    ramp: Duration,
    devices: u64,
}

/// The result of a load.
struct HoldResult {
    result: LoadResult,
    devices: u64,
    /// Start of [`HOLD`], in seconds of the run.
    from_s: i64,
    /// Number of processes of the generator.
    processes: usize,
    /// CPU use of the generator during [`HOLD`].
    cores: f64,
    /// CPU time of the generator before [`HOLD`].
    ramp_cpu_s: f64,
    peak_bytes: u64,
}

impl Load {
    /// Runs the load, on one core or on any core. `check` is called at the start and at the end of [`HOLD`].
    fn hold(
        &self,
        bench: &Bench,
        core: Option<usize>,
        check: &mut dyn FnMut() -> Result<()>,
    ) -> Result<HoldResult> {
        let folder = tempfile::tempdir_in(bench.folder.path())?;
        let (scenario, output) = (folder.path().join("scenario.toml"), folder.path().join("result.json"));
        fs::write(&scenario, &self.text)?;
        let mut command = match core {
            Some(core) => on_core(core, &bench.beamtune)?,
            None => anywhere(&bench.beamtune)?,
        };
        let mut generator = ProcessTree::start(command.args(["load", "-o"]).arg(&output).arg(&scenario))?;
        let start = self.ramp + MARGIN;
        pause(start)?;
        check()?;
        let before_ns = generator.cpu_ns()?;
        pause(HOLD)?;
        let used_ns = generator.cpu_ns()? - before_ns;
        let (peak_bytes, processes) = (generator.peak_bytes(), generator.pids().len());
        check()?;
        wait_for("the generator to end", TIMEOUT, || generator.first.exit_status())?;
        let result = read(&output).map_err(|error| error.context(generator.first.failure()))?;
        Ok(HoldResult {
            result,
            devices: self.devices,
            from_s: start.as_secs() as i64,
            processes,
            cores: used_ns as f64 / HOLD.as_nanos() as f64,
            ramp_cpu_s: before_ns as f64 / 1e9,
            peak_bytes,
        })
    }
}

impl HoldResult {
    /// Returns the figure that shows whether all devices stayed connected, without errors.
    fn figure(&self, what: &str) -> Figure {
        let connected = connected_s(&self.result, self.from_s, self.devices);
        let errors = self.result.errors();
        let is_met = connected == HOLD.as_secs() && errors == 0;
        Figure {
            what: format!("{what}: seconds of {} with all connected", HOLD.as_secs()),
            value: format!("{connected} s, {errors} errors; processes of the generator: {}", self.processes),
            limit: format!("{} s, 0 errors", HOLD.as_secs()),
            verdict: if is_met { Verdict::Met } else { Verdict::Missed },
        }
    }
}

/// Returns the number of seconds of [`HOLD`] in which all devices were connected.
fn connected_s(result: &LoadResult, from_s: i64, devices: u64) -> u64 {
    let hold = from_s..from_s + HOLD.as_secs() as i64;
    let seconds = result.seconds.iter().filter(|second| hold.contains(&second.second));
    seconds.filter(|second| second.connected == Some(devices)).count() as u64
}

fn read(output: &Path) -> Result<LoadResult> {
    let text = fs::read_to_string(output).context("the generator wrote no result")?;
    serde_json::from_str(&text).context("cannot parse the generator's result")
}
