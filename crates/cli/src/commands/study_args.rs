//! The options that `compare` and `tune` share: the target, its load, and the criteria of the verdict.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use beamtune_host::cpus;
use beamtune_load::scenario::{QuickLoad, ScenarioText};
use beamtune_model::study::{ERRORS, Margin, QUANTITIES, Quantity};
use beamtune_report::diagnosis::{Verbosity, View};
use beamtune_runner::preset::{self, Preset};
use beamtune_runner::{Load, LoadCommand, Pins, Ready, Setup};

use crate::access::AccessArgs;
use crate::terminal;

const TARGET: &str = "Target (exactly one)";

/// Options for the target and its load.
#[derive(clap::Args)]
pub struct TargetArgs {
    #[command(flatten)]
    start: StartArgs,
    /// Readiness condition [default: it listens on the address of the load]
    ///
    /// http://HOST:PORT/PATH (returns a status below 400), tcp:PORT, tcp:HOST:PORT, or node (accepts distribution connections).
    #[arg(long, value_name = "WHAT", value_parser = Ready::parse)]
    ready: Option<Ready>,
    /// Time limit for the target to become ready
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = terminal::parse_duration)]
    ready_within: Duration,
    /// Command that stops the target [default: terminate its VM]
    #[arg(long, value_name = "COMMAND")]
    stop: Option<String>,
    /// Node to measure, if the target has several VMs
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Load: a URL or a scenario file, as for beamtune load
    ///
    /// URLs are http, https, ws, wss, mqtt, mqtts, tcp and tls. $BEAMTUNE_PORT is the port of the target.
    #[arg(long, value_name = "URL|FILE", conflicts_with_all = ["load_cmd", "work"])]
    load: Option<String>,
    /// Load: a command that ends, such as another load generator
    ///
    /// If beamtune load import can read the output, the requests are measured; otherwise, the duration of the command.
    #[arg(long, value_name = "COMMAND", conflicts_with = "work")]
    load_cmd: Option<String>,
    /// File with the results of --load-cmd [default: its output]
    ///
    /// A relative path refers to $BEAMTUNE_FOLDER.
    #[arg(long, value_name = "FILE", requires = "load_cmd")]
    load_result: Option<PathBuf>,
    /// Time limit of the command of --load-cmd or --work
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = terminal::parse_duration)]
    within: Duration,
    /// Requests per second, for a URL
    #[arg(long, value_name = "N", requires = "load")]
    rate: Option<f64>,
    /// Connections, for a URL
    #[arg(long, value_name = "N", requires = "load")]
    connections: Option<u64>,
    /// Measured time of each trial
    #[arg(long = "for", value_name = "TIME", default_value = "20s", value_parser = terminal::parse_duration)]
    window: Duration,
    /// Maximum warm-up time; it ends early if the target is steady
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = terminal::parse_duration)]
    warm_up: Duration,
    /// Let target and load share all CPUs, instead of separating them
    #[arg(long)]
    no_pins: bool,
}

/// The target: exactly one of these.
#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct StartArgs {
    /// Start a command; flags reach its VM through ERL_ZFLAGS
    #[arg(long, value_name = "COMMAND", help_heading = TARGET)]
    start: Option<String>,
    /// Run a job: a command that does its work and ends, without a load
    #[arg(long, value_name = "COMMAND", help_heading = TARGET)]
    work: Option<String>,
    /// Start the installed RabbitMQ, as a separate node on $BEAMTUNE_PORT
    #[arg(long, help_heading = TARGET)]
    rabbitmq: bool,
    /// Start the installed ejabberd, with an empty database
    ///
    /// FOLDER contains the configuration.
    #[arg(long, value_name = "FOLDER", num_args = 0..=1, require_equals = true, default_missing_value = "/etc/ejabberd", help_heading = TARGET)]
    ejabberd: Option<PathBuf>,
    /// Start the Mix or rebar3 release in this folder
    #[arg(long, value_name = "FOLDER", visible_alias = "mix-release", help_heading = TARGET)]
    release: Option<PathBuf>,
    /// Start erl with these arguments
    #[arg(long, value_name = "ARGUMENTS", allow_hyphen_values = true, help_heading = TARGET)]
    erl: Option<String>,
    /// Start a systemd service, by name or unit file; stop it first
    #[arg(long, value_name = "NAME|FILE", help_heading = TARGET)]
    unit: Option<String>,
}

/// Options for the question and the output.
#[derive(clap::Args)]
pub struct StudyArgs {
    /// Quantity that decides [default: cpu-per-request; duration for --work]
    ///
    /// cpu-per-request, throughput, p50, p90, p99, rss, rss-peak …
    #[arg(long, value_name = "QUANTITY", value_parser = objective)]
    objective: Option<String>,
    /// Quantity that must not get worse by more than a margin: p99:+5%
    ///
    /// More examples: rss:+10%, throughput:-2%, errors:+0.1%; "none" removes all constraints.
    /// [default: p99:+10% errors:+0.1%; for tune also rss:+10%; for --work rss-peak:+10%]
    #[arg(long, value_name = "QUANTITY:MARGIN", value_parser = guard)]
    guard: Vec<Guard>,
    /// Seed for the order of trials and all other random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// File of the study [default: COMMAND-DATE-TIME.study]
    #[arg(long, value_name = "FILE")]
    pub study: Option<PathBuf>,
    /// Print what would be done and how long it would take, and exit
    #[arg(long)]
    pub plan: bool,
    #[command(flatten)]
    pub result: ResultArgs,
    #[command(flatten)]
    pub access: AccessArgs,
}

/// How the result of a study is printed.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct ResultArgs {
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    /// Show all measured quantities, candidates and trials
    #[arg(short, long = "verbose", action = clap::ArgAction::Count)]
    verbose: u8,
}

impl ResultArgs {
    /// Returns the view of the page.
    pub fn view(self) -> View<'static> {
        View {
            style: terminal::style(),
            verbosity: Verbosity::of(self.verbose),
            invocation: None,
            recorded_at: None,
        }
    }
}

/// A constraint: a quantity that must not get worse, with its margin. `None` is "none": no constraints.
type Guard = Option<Margin>;

/// Minimum length of the window: half of a shorter one would be too short to evaluate.
const MIN_WINDOW_S: u64 = 4;
/// Minimum length of the warm-up.
const MIN_WARM_UP_S: u64 = 2;
/// Assumed time for starting and stopping the target, until the first trials have measured it (a plain VM takes 2 s, RabbitMQ 6 s).
const START_AND_STOP_S: f64 = 2.0;

impl StudyArgs {
    /// Returns the quantity that decides.
    pub fn objective(&self, setup: &Setup) -> String {
        let default = if matches!(setup.load, Load::Job { .. }) { "duration" } else { "cpu-per-request" };
        self.objective.clone().unwrap_or_else(|| default.to_owned())
    }

    /// Returns the constraints: those of the options, otherwise the default for a job, otherwise `defaults`.
    pub fn guards(&self, setup: &Setup, defaults: &[&str]) -> Result<Vec<Margin>> {
        if !self.guard.is_empty() {
            return Ok(self.guard.iter().flatten().cloned().collect());
        }
        let defaults = if matches!(setup.load, Load::Job { .. }) { &["rss-peak:+10%"] } else { defaults };
        defaults.iter().map(|text| margin(text).map_err(anyhow::Error::msg)).collect()
    }
}

impl TargetArgs {
    pub fn setup(&self) -> Result<Setup> {
        let seconds = |what: &str, length: Duration, min: u64| match length.as_secs() {
            seconds if seconds >= min => Ok(u32::try_from(seconds).unwrap_or(u32::MAX)),
            _ => bail!("{what} is too short: the minimum is {min}s"),
        };
        let window_s = seconds("--for", self.window, MIN_WINDOW_S)?;
        let warm_up_s = seconds("--warm-up", self.warm_up, MIN_WARM_UP_S)?;
        let preset = self.start.preset()?;
        if let Some(remark) = &preset.remark {
            terminal::complain(&format!("note: {remark}\n"));
        }
        let load = self.load(preset.port)?;
        let ready = self.ready(&load, preset.port)?;
        let allowed = cpus::allowed().context("cannot read which CPUs this process may use")?;
        // A job has no load generator.
        let is_shared = self.no_pins || matches!(load, Load::Job { .. });
        Ok(Setup {
            start: preset.start,
            folder: std::env::current_dir().context("cannot read the working directory")?,
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
        if self.start.work.is_some() {
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
                "no load: name a URL or a scenario with --load, a load generator with --load-cmd, or a job with --work instead of --start"
            ),
        };
        let load = if load.contains("://") {
            // The user cannot know the port that beamtune chooses for the target.
            let url = match port {
                Some(port) => load.replace("$BEAMTUNE_PORT", &port.to_string()),
                None => load.clone(),
            };
            let quick = QuickLoad {
                per_second: self.rate,
                devices: self.connections.unwrap_or(QuickLoad::default().devices),
                ..QuickLoad::default()
            };
            ScenarioText::of_url(&url, &quick)?
        } else if self.rate.is_some() || self.connections.is_some() {
            bail!("--rate and --connections apply only to a URL; set them in the scenario file");
        } else {
            let mut load = ScenarioText::of_file(load)?;
            // A study can be resumed from any directory.
            load.folder = std::path::absolute(&load.folder).context("cannot read the working directory")?;
            load
        };
        // Errors in the scenario are reported before the target is started.
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
                "no readiness condition: set it with --ready tcp:PORT, --ready http://HOST:PORT/PATH or --ready node"
            ),
        }
    }
}

impl StartArgs {
    fn preset(&self) -> Result<Preset> {
        let plain = |start: &String| Ok(Preset::of_command(start.clone()));
        let start = self.start.as_ref().or(self.work.as_ref()).map(plain);
        start
            .or_else(|| self.rabbitmq.then(preset::rabbitmq))
            .or_else(|| Some(preset::ejabberd(self.ejabberd.as_deref()?)))
            .or_else(|| Some(preset::release(self.release.as_deref()?)))
            .or_else(|| Some(Ok(preset::erl(self.erl.as_deref()?))))
            .or_else(|| Some(preset::unit(self.unit.as_deref()?)))
            .unwrap_or_else(|| bail!("no target: name one with --start COMMAND"))
    }
}

/// Describes the constraints, for messages.
pub fn guards(margins: &[Margin]) -> String {
    let texts =
        margins.iter().map(|margin| format!("{} by more than {}", margin.quantity, share(margin.max)));
    let texts: Vec<String> = texts.collect();
    if texts.is_empty() { "nothing".to_owned() } else { texts.join(", ") }
}

/// Describes the CPUs of target and load, for messages. A VM that may use one CPU has one scheduler.
pub fn pins(setup: &Setup) -> String {
    let Some(pins) = &setup.pins else {
        return match setup.load {
            Load::Job { .. } => "the job uses all CPUs".to_owned(),
            _ => "target and load share all CPUs".to_owned(),
        };
    };
    let hint = match pins.target.len() {
        1 => "; on one CPU, a VM has one scheduler (+S 1): --no-pins lets it use all CPUs",
        _ => "",
    };
    format!("the target runs on CPU {}, the load on CPU {}{hint}", list(&pins.target), list(&pins.generator))
}

/// Returns the duration of a trial in seconds, if the target is steady at once, and if the warm-up takes its full time. `None` if the
/// duration depends on a command.
pub fn trial_s(setup: &Setup) -> Option<(f64, f64)> {
    let Load::Scenario(_) = setup.load else { return None };
    let with = |warm_up_s: f64| f64::from(setup.window_s) + warm_up_s + START_AND_STOP_S;
    let max = f64::from(setup.warm_up_s);
    Some((with(max.min(beamtune_trial::steady::STEADY_SECONDS as f64)), with(max)))
}

pub fn minutes(seconds: f64) -> String {
    format!("{:.0} min", (seconds / 60.0).ceil())
}

fn list(cpus: &[usize]) -> String {
    cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

fn share(max: f64) -> String {
    format!("{} %", (max * 1e4).round() / 1e2)
}

fn quantity(text: &str) -> Result<String, String> {
    match Quantity::find(text) {
        Some(_) => Ok(text.to_owned()),
        None => {
            let names: Vec<&str> = QUANTITIES.iter().map(|quantity| quantity.name).collect();
            Err(format!("{text:?} is not a quantity; use one of: {}", names.join(", ")))
        }
    }
}

fn objective(text: &str) -> Result<String, String> {
    if text == ERRORS.name {
        return Err(
            "errors cannot be the objective, since they have no ratio; limit them with --guard errors:+0.1%"
                .to_owned(),
        );
    }
    quantity(text)
}

fn guard(text: &str) -> Result<Guard, String> {
    if text == "none" { Ok(None) } else { margin(text).map(Some) }
}

/// Parses `p99:+5%`.
fn margin(text: &str) -> Result<Margin, String> {
    let (name, by) = text.split_once(':').ok_or_else(|| format!("{text:?} has no margin; write p99:+5%"))?;
    let name = quantity(name)?;
    let more_is_better = Quantity::find(&name).is_some_and(|quantity| quantity.more_is_better);
    let number = by.strip_suffix('%').and_then(|number| number.parse::<f64>().ok());
    let number = number.ok_or_else(|| format!("{by:?} is not a margin; write +5%"))? / 100.0;
    let max = if more_is_better { -number } else { number };
    if max > 0.0 && max < 1.0 {
        Ok(Margin { quantity: name, max })
    } else {
        let example = if more_is_better { "throughput:-2%" } else { "p99:+5%" };
        Err(format!("{by:?} is not a valid margin for {name}; write {example}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constraints_are_parsed_with_their_margins() {
        let check = |text: &str, expect: Option<(&str, f64)>| {
            let read = margin(text).ok();
            let read = read.as_ref().map(|margin| (margin.quantity.as_str(), margin.max));
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
    fn errors_cannot_be_the_objective() {
        assert!(objective("errors").is_err());
        assert!(objective("p99").is_ok());
    }
}
