//! What `compare` and `tune` start and drive, and what decides: the options that both have.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use beamtune_host::cpus;
use beamtune_load::scenario::Quick;
use beamtune_model::study::{ERRORS, Margin, QUANTITIES, Quantity};

use super::load::Written;
use crate::access::AccessArgs;
use crate::terminal;
use crate::trial::preset::{self, Preset};
use crate::trial::{Load, LoadCommand, Pins, Ready, Setup};

/// What is started and driven.
#[derive(clap::Args)]
pub struct TargetArgs {
    #[command(flatten)]
    which: Which,
    /// What shows that it is ready: http://HOST:PORT/PATH, tcp:PORT, tcp:HOST:PORT or node; without it, that it listens where the load goes.
    #[arg(long, value_name = "WHAT", value_parser = Ready::parse)]
    ready: Option<Ready>,
    /// How long that may take.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = terminal::parse_duration)]
    ready_within: Duration,
    /// The command line that stops it; without one its VM is asked to end.
    #[arg(long, value_name = "COMMAND")]
    stop: Option<String>,
    /// Which node, where the target has several VMs.
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// The load: a URL (http, ws, mqtt, tcp …) or a file with a scenario, as of beamtune load.
    #[arg(long, value_name = "URL|FILE", conflicts_with_all = ["load_cmd", "work"])]
    load: Option<String>,
    /// The load: a command that ends by itself. What load import reads of what it prints is counted; else how long it took.
    #[arg(long, value_name = "COMMAND", conflicts_with = "work")]
    load_cmd: Option<String>,
    /// The file to which that command writes its results, in $BEAMTUNE_FOLDER if it is relative.
    #[arg(long, value_name = "FILE", requires = "load_cmd")]
    load_result: Option<PathBuf>,
    /// How long the command of --load-cmd, or the job of --work, may take.
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = terminal::parse_duration)]
    within: Duration,
    /// Of a URL: requests a second.
    #[arg(long, value_name = "N", requires = "load")]
    rate: Option<f64>,
    /// Of a URL: connections.
    #[arg(long, value_name = "N", requires = "load")]
    connections: Option<u64>,
    /// How much of each trial counts.
    #[arg(long = "for", value_name = "TIME", default_value = "20s", value_parser = terminal::parse_duration)]
    window: Duration,
    /// How long it is waited at most until the target is steady.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = terminal::parse_duration)]
    warm_up: Duration,
    /// Let target and generator share all CPUs; without it each has its own.
    #[arg(long)]
    no_pins: bool,
}

/// What is started: one of these.
#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct Which {
    /// The command line that starts the target, on which its VM's flags reach it by ERL_ZFLAGS.
    #[arg(long, value_name = "COMMAND")]
    start: Option<String>,
    /// A job instead of a service: the command line that does the work and ends.
    #[arg(long, value_name = "COMMAND")]
    work: Option<String>,
    /// The RabbitMQ that is installed: one of its own, with its configuration, on the port $BEAMTUNE_PORT.
    #[arg(long)]
    rabbitmq: bool,
    /// The ejabberd that is installed, with its configuration, or that of another folder, and an empty database.
    #[arg(long, value_name = "FOLDER", num_args = 0..=1, require_equals = true, default_missing_value = "/etc/ejabberd")]
    ejabberd: Option<PathBuf>,
    /// A release of mix or rebar3, by its folder.
    #[arg(long, value_name = "FOLDER", visible_alias = "mix-release")]
    release: Option<PathBuf>,
    /// erl, with these arguments.
    #[arg(long, value_name = "ARGUMENTS", allow_hyphen_values = true)]
    erl: Option<String>,
    /// A service of systemd, by its name or unit file; it must not run meanwhile.
    #[arg(long, value_name = "NAME|FILE")]
    unit: Option<String>,
}

/// What is asked, and how it is told.
#[derive(clap::Args)]
pub struct StudyArgs {
    /// What decides: cpu-per-request, throughput, p50, p90, p99, rss, rss-peak … [default: cpu-per-request; of a job: duration]
    #[arg(long, value_name = "QUANTITY", value_parser = objective)]
    objective: Option<String>,
    /// What must not become worse, and by how much it may: p99:+5%, rss:+10%, throughput:-2%, errors:+0.1%; none for nothing
    /// [default: p99:+10% errors:+0.1%, with tune also rss:+10%; of a job: rss-peak:+10%]
    #[arg(long, value_name = "QUANTITY:MARGIN", value_parser = guard)]
    guard: Vec<Guard>,
    /// The seed of every order and choice.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// The study's file; without it, one with the time in its name, here.
    #[arg(long, value_name = "FILE")]
    pub study: Option<PathBuf>,
    /// Say what would be done and how long it takes, and do nothing.
    #[arg(long)]
    pub plan: bool,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub access: AccessArgs,
}

/// What must not become worse, or that nothing is guarded.
type Guard = Option<Margin>;

/// The shortest window: of fewer seconds no half says anything.
const LEAST_WINDOW_S: u64 = 4;
/// The shortest warm-up.
const LEAST_WARM_UP_S: u64 = 2;
/// Beside window and warm-up a trial takes some seconds to start and to stop (a plain VM 2 s, RabbitMQ 6 s); the first trials tell.
const START_AND_STOP_S: f64 = 2.0;

impl StudyArgs {
    /// Name of the quantity that decides.
    pub fn objective(&self, setup: &Setup) -> String {
        let usual = if matches!(setup.load, Load::Job { .. }) { "duration" } else { "cpu-per-request" };
        self.objective.clone().unwrap_or_else(|| usual.to_owned())
    }

    /// What must not become worse: what was asked for, else `usual`, else what a job has.
    pub fn guards(&self, setup: &Setup, usual: &[&str]) -> Result<Vec<Margin>> {
        if !self.guard.is_empty() {
            return Ok(self.guard.iter().flatten().cloned().collect());
        }
        let usual = if matches!(setup.load, Load::Job { .. }) { &["rss-peak:+10%"] } else { usual };
        usual.iter().map(|text| margin(text).map_err(anyhow::Error::msg)).collect()
    }
}

impl TargetArgs {
    pub fn setup(&self) -> Result<Setup> {
        let seconds = |what: &str, length: Duration, least: u64| match length.as_secs() {
            seconds if seconds >= least => Ok(u32::try_from(seconds).unwrap_or(u32::MAX)),
            _ => bail!("{what} is too short: {least}s is the least"),
        };
        let window_s = seconds("--for", self.window, LEAST_WINDOW_S)?;
        let warm_up_s = seconds("--warm-up", self.warm_up, LEAST_WARM_UP_S)?;
        let preset = self.which.preset()?;
        if let Some(remark) = &preset.remark {
            terminal::complain(&format!("note: {remark}\n"));
        }
        let load = self.load(preset.port)?;
        let ready = self.ready(&load, preset.port)?;
        let allowed = cpus::allowed().context("cannot read which CPUs may be used")?;
        // A job has the machine for itself.
        let is_shared = self.no_pins || matches!(load, Load::Job { .. });
        Ok(Setup {
            start: preset.start,
            folder: std::env::current_dir().context("cannot read the working folder")?,
            ready,
            ready_within_s: self.ready_within.as_secs_f64(),
            stop: self.stop.clone(),
            node: self.node.clone(),
            load,
            port: preset.port.filter(|_| preset.is_own_port),
            window_s,
            warm_up_s,
            pins: if is_shared { None } else { Pins::apart(&allowed) },
        })
    }

    fn load(&self, port: Option<u16>) -> Result<Load> {
        if self.which.work.is_some() {
            return Ok(Load::Job { within_s: self.within.as_secs_f64() });
        }
        let load = match (&self.load, &self.load_cmd) {
            (Some(load), _) => load,
            (None, Some(command)) => {
                return Ok(Load::Command(LoadCommand {
                    command: command.clone(),
                    result: self.load_result.clone(),
                    within_s: self.within.as_secs_f64(),
                }));
            }
            (None, None) => bail!(
                "no load: name a URL or a scenario with --load, another generator with --load-cmd, or, of a job that ends by itself, --work in place of --start"
            ),
        };
        let load = if load.contains("://") {
            // The port that is chosen for a target is not known to who writes the URL.
            let url = match port {
                Some(port) => load.replace("$BEAMTUNE_PORT", &port.to_string()),
                None => load.clone(),
            };
            let quick = Quick {
                per_second: self.rate,
                devices: self.connections.unwrap_or(Quick::default().devices),
                ..Quick::default()
            };
            Written::of_url(&url, &quick)?
        } else if self.rate.is_some() || self.connections.is_some() {
            bail!("--rate and --connections go with a URL; a scenario says it itself");
        } else {
            let mut load = Written::of_file(load)?;
            // A study can be gone on with from any folder.
            load.folder = std::path::absolute(&load.folder).context("cannot read the working folder")?;
            load
        };
        // What is wrong with it is said now, and not after the target has been started.
        load.read(&[])?;
        Ok(Load::Scenario(load))
    }

    fn ready(&self, load: &Load, port: Option<u16>) -> Result<Ready> {
        if let Some(ready) = &self.ready {
            return Ok(ready.clone());
        }
        let at = |host: &str, port: u16| Ready::Tcp(format!("{host}:{port}"));
        match (load.addresses()?.first(), port) {
            _ if matches!(load, Load::Job { .. }) => Ok(Ready::Vm),
            (Some((host, port)), _) => Ok(at(host, *port)),
            (None, Some(port)) => Ok(at("127.0.0.1", port)),
            (None, None) => bail!(
                "say with --ready what shows that the target can take the load: tcp:PORT, http://HOST:PORT/PATH, or node"
            ),
        }
    }
}

impl Which {
    fn preset(&self) -> Result<Preset> {
        let plain = |start: &String| Ok(Preset::of_command(start.clone()));
        let start = self.start.as_ref().or(self.work.as_ref()).map(plain);
        start
            .or_else(|| self.rabbitmq.then(preset::rabbitmq))
            .or_else(|| Some(preset::ejabberd(self.ejabberd.as_deref()?)))
            .or_else(|| Some(preset::release(self.release.as_deref()?)))
            .or_else(|| Some(Ok(preset::erl(self.erl.as_deref()?))))
            .or_else(|| Some(preset::unit(self.unit.as_deref()?)))
            .unwrap_or_else(|| bail!("say what is to be started: --start COMMAND"))
    }
}

/// What must not become worse, for people.
pub fn guards(margins: &[Margin]) -> String {
    let told =
        margins.iter().map(|margin| format!("{} by more than {}", margin.quantity, share(margin.most)));
    let told: Vec<String> = told.collect();
    if told.is_empty() { "nothing".to_owned() } else { told.join(", ") }
}

/// Who runs where. A VM that may run on one CPU has one scheduler.
pub fn pins(setup: &Setup) -> String {
    let Some(pins) = &setup.pins else {
        return match setup.load {
            Load::Job { .. } => "the job has all CPUs".to_owned(),
            _ => "target and load share all CPUs".to_owned(),
        };
    };
    let one = match pins.target.len() {
        1 => ", where a VM has one scheduler (+S 1) unless it is told otherwise; --no-pins lets it have all",
        _ => "",
    };
    format!("the target on CPU {}, the load on CPU {}{one}", list(&pins.target), list(&pins.generator))
}

/// How long a trial takes, in seconds: one that is steady at once, and one that is not before the end of its warm-up. `None` where a
/// command decides.
pub fn trial_s(setup: &Setup) -> Option<(f64, f64)> {
    let Load::Scenario(_) = setup.load else { return None };
    let with = |warm_up_s: f64| f64::from(setup.window_s) + warm_up_s + START_AND_STOP_S;
    let most = f64::from(setup.warm_up_s);
    Some((with(most.min(beamtune_trial::steady::STEADY_SECONDS as f64)), with(most)))
}

pub fn minutes(seconds: f64) -> String {
    format!("{:.0} min", (seconds / 60.0).ceil())
}

fn list(cpus: &[usize]) -> String {
    cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

fn share(most: f64) -> String {
    format!("{} %", (most * 1e4).round() / 1e2)
}

fn quantity(text: &str) -> Result<String, String> {
    match Quantity::find(text) {
        Some(_) => Ok(text.to_owned()),
        None => {
            let names: Vec<&str> = QUANTITIES.iter().map(|quantity| quantity.name).collect();
            Err(format!("{text:?} is not measured; what is: {}", names.join(", ")))
        }
    }
}

fn objective(text: &str) -> Result<String, String> {
    if text == ERRORS.name {
        return Err(
            "of errors there is no ratio that could decide; guard them: --guard errors:+0.1%".to_owned()
        );
    }
    quantity(text)
}

fn guard(text: &str) -> Result<Guard, String> {
    if text == "none" { Ok(None) } else { margin(text).map(Some) }
}

/// `p99:+5%`.
fn margin(text: &str) -> Result<Margin, String> {
    let (name, by) = text.split_once(':').ok_or_else(|| format!("{text:?} has no margin; write p99:+5%"))?;
    let name = quantity(name)?;
    let more_is_better = Quantity::find(&name).is_some_and(|quantity| quantity.more_is_better);
    let number = by.strip_suffix('%').and_then(|number| number.parse::<f64>().ok());
    let number = number.ok_or_else(|| format!("{by:?} is no margin; write +5%"))? / 100.0;
    let most = if more_is_better { -number } else { number };
    if most > 0.0 && most < 1.0 {
        Ok(Margin { quantity: name, most })
    } else {
        let example = if more_is_better { "throughput:-2%" } else { "p99:+5%" };
        Err(format!("{by:?} is no margin by which {name} may become worse; write it as {example}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guards_are_read_with_their_margins() {
        let check = |text: &str, expect: Option<(&str, f64)>| {
            let read = margin(text).ok();
            let read = read.as_ref().map(|margin| (margin.quantity.as_str(), margin.most));
            assert_eq!(read, expect, "{text}");
        };
        check("p99:+5%", Some(("p99", 0.05)));
        check("p99:5%", Some(("p99", 0.05)));
        check("throughput:-2%", Some(("throughput", 0.02)));
        check("errors:+0.1%", Some(("errors", 0.001)));
        check("throughput:+2%", None);
        check("p99:-5%", None);
        check("p99:+500%", None);
        check("speed:+5%", None);
        check("p99", None);
        assert_eq!(guard("none"), Ok(None));
    }

    #[test]
    fn errors_cannot_decide() {
        assert!(objective("errors").is_err());
        assert!(objective("p99").is_ok());
    }
}
