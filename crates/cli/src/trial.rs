//! Runs trials: starts the target under a setting, waits until it can take its load, drives that, records, and ends everything.
//!
//! Nothing of the target's own is changed: flags reach its VM by ERL_ZFLAGS, variables by the environment. That a candidate does not
//! boot or kills the VM is a result. All that is started stands below a guard, which ends it however we end.

mod command;
mod drive;
mod job;
mod looks;
pub mod preset;
mod ready;
pub mod started;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, bail};
use beamtune_flags::{effective, parse_emu_args};
use beamtune_host::cpus;
use beamtune_host::discovery::Vm;
use beamtune_host::process::Identity;
use beamtune_host::tree::LocalTree;
use beamtune_load::clock::now_ns;
use beamtune_model::study::{Invalid, InvalidKind, Measures, Order, Trial, TrialOutcome};
use beamtune_model::{Nanos, Period, facts};
use beamtune_recording::{Existing, Plan, Reader, Selection, Stop, Writer};
use beamtune_trial::gate::{self, Seen};
use beamtune_trial::measure;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::access::AccessArgs;
use crate::commands::load::Written;
use crate::subject::{Live, NoAccess};
use crate::take::{self, Wish};
pub use command::LoadCommand;
use drive::{Driven, Drove};
pub use ready::Ready;
use started::{LOOK, Launch, Started, start};

/// How each trial of a study is run; kept with the study.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Setup {
    /// The command line that starts the target.
    pub start: String,
    /// The folder that it is started in.
    pub folder: PathBuf,
    /// What shows that it is ready.
    pub ready: Ready,
    /// How long that may take, in seconds.
    pub ready_within_s: f64,
    /// The command line that stops it; without one its VM is asked to end.
    pub stop: Option<String>,
    /// The node, where the target has several VMs.
    pub node: Option<String>,
    /// What drives it.
    pub load: Load,
    /// The port that was chosen for it; the commands have it as `BEAMTUNE_PORT`.
    pub port: Option<u16>,
    /// Seconds of each trial that count.
    pub window_s: u32,
    /// Seconds of warm-up at most.
    pub warm_up_s: u32,
    /// CPUs for the target and for the generator; `None`: they share all.
    pub pins: Option<Pins>,
}

/// What drives a target.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Load {
    /// A scenario of ours.
    Scenario(Written),
    /// Another generator, or anything that ends by itself.
    Command(LoadCommand),
    /// Nothing: the target is a job, which ends by itself within so many seconds.
    Job { within_s: f64 },
}

impl Load {
    /// What people call it.
    pub fn name(&self) -> &str {
        match self {
            Load::Scenario(written) => &written.name,
            Load::Command(load) => &load.command,
            Load::Job { .. } => "the job itself",
        }
    }

    /// `HOST:PORT` of each target, where it tells.
    pub fn addresses(&self) -> Result<Vec<(String, u16)>> {
        let Load::Scenario(written) = self else { return Ok(Vec::new()) };
        Ok(written.read(&[])?.targets().iter().map(|target| (target.host.clone(), target.port)).collect())
    }
}

/// Who runs where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pins {
    /// CPUs of the target.
    pub target: Vec<usize>,
    /// CPUs of the generator, and of beamtune itself.
    pub generator: Vec<usize>,
}

impl Pins {
    /// A quarter of the CPUs, at least one, for the generator; `None` where there is but one.
    pub fn apart(cpus: &[usize]) -> Option<Pins> {
        let generator = (cpus.len() / 4).max(1);
        let (generator, target) = cpus.split_at_checked(generator)?;
        (!target.is_empty()).then(|| Pins { target: target.to_vec(), generator: generator.to_vec() })
    }
}

/// Between two samples of a trial's recording.
const SAMPLES: Duration = Duration::from_secs(1);
/// The same of a job, which may be over soon.
const JOB_SAMPLES: Duration = Duration::from_millis(250);

/// How long it is tried to attach to a job's VM.
const JOB_PATIENCE: Duration = Duration::from_millis(500);
/// A job that is shorter may be over before anything can be read of it.
const SHORT_JOB_S: f64 = 2.0;

/// A trial that was run, with its recording.
pub struct Done {
    pub trial: Trial,
    pub recording: Option<Vec<u8>>,
}

/// Runs a trial. `None` if we were asked to stop meanwhile: then nothing of it counts.
///
/// # Errors
/// For what no other trial would do better: a port that is taken, a load that cannot be driven.
pub fn run(setup: &Setup, access: &AccessArgs, order: &Order, stop: &Stop) -> Result<Option<Done>> {
    let begin = Instant::now();
    let began_unix_s = unix_s();
    let trial = |outcome, remarks| Trial {
        order: order.clone(),
        began_unix_s,
        took_s: begin.elapsed().as_secs_f64(),
        outcome,
        remarks,
    };
    let failed =
        |why: String| Some(Done { trial: trial(TrialOutcome::Failed { why }, Vec::new()), recording: None });
    must_be_free(setup)?;
    let place = Place::new(setup)?;
    let arms = order.arm.environment.iter().map(|(name, value)| (name.clone(), value.clone()));
    let begin_ns = now_ns();
    let mut started = start(Launch {
        command: &setup.start,
        folder: &setup.folder,
        flags: &order.arm.flags,
        environment: place.environment.iter().cloned().chain(arms).collect(),
        cpus: setup.pins.as_ref().map_or(&[][..], |pins| &pins.target),
        folders: &[place.own.path(), place.data.path()],
        log: place.own.path().join("target.log"),
        out: None,
    })?;
    let vm = match await_ready(setup, &mut started, stop)? {
        Awaited::Ready(vm) => vm,
        Awaited::Failed(why) => return Ok(failed(why)),
        Awaited::Stopped => return Ok(None),
    };
    let is_job = matches!(setup.load, Load::Job { .. });
    let live = match Live::find(Some(&vm.identity.pid.to_string()), access) {
        Err(_) if !is_there(&vm) => {
            return Ok(failed(format!("the VM ended at once: {}", said(&started.last_words()))));
        }
        live => live?,
    };
    let remarks = match &live.access {
        Err(NoAccess::NoDistribution) => {
            vec!["the VM has no distribution: what only it knows was not measured".to_owned()]
        }
        // A job may end before it can be attached to.
        Err(NoAccess::Closed(error)) if !is_job => {
            bail!("cannot attach to the target: {error:#}")
        }
        _ => Vec::new(),
    };
    let file = place.own.path().join("trial.beamtune");
    let pid = vm.identity.pid;
    let (drove, recorded) = record_while(&live, &file, is_job, || match &setup.load {
        Load::Job { within_s } => {
            job::watch(&mut started, pid, begin_ns, Duration::from_secs_f64(*within_s), stop)
        }
        load => drive(setup, load, &place, pid, stop),
    });
    let words = started.last_words();
    let driven = match drove {
        Ok(Drove::Measured(driven)) => driven,
        Ok(Drove::Stopped) => return Ok(None),
        Ok(Drove::VmEnded) => return Ok(failed(format!("the VM ended under the load: {}", said(&words)))),
        Ok(Drove::Failed(why)) => return Ok(failed(why)),
        // What went wrong with the load may be the end of the VM.
        Ok(Drove::LoadFailed(why)) if !is_there(&vm) => {
            return Ok(failed(format!("the VM ended under the load ({why}): {}", said(&words))));
        }
        // If a setting does it, that is a result; if the target as it is does it, no other trial would do better.
        Ok(Drove::LoadFailed(why)) if order.arm.flags.is_empty() && order.arm.environment.is_empty() => {
            bail!("the load command failed: {why}")
        }
        Ok(Drove::LoadFailed(why)) => return Ok(failed(format!("the load command failed: {why}"))),
        Err(error) if !is_there(&vm) => {
            return Ok(failed(format!("the VM ended before the load ({error:#}): {}", said(&words))));
        }
        Err(error) => return Err(error),
    };
    let zero_ns = match recorded {
        // Too little of it was seen to be recorded.
        Err(error) if is_job && driven.answers.seconds < SHORT_JOB_S => {
            return Ok(failed(format!("the job cannot be measured: {error:#}")));
        }
        recorded => recorded?,
    };
    started.stop(setup.stop.as_deref(), &setup.folder, place.environment.clone())?;
    // Results of other generators tell the time by the wall clock, so they would be looked for in another place.
    let moved_s = unix_s() - began_unix_s - begin.elapsed().as_secs_f64();
    let outcome = match gate::clock(moved_s) {
        Some(reason) => TrialOutcome::Invalid { reasons: vec![reason], measures: Measures::default() },
        None => outcome(&window(&Reader::open(&file)?, zero_ns, &driven)?, order, &driven),
    };
    let recording = std::fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(Some(Done { trial: trial(outcome, remarks), recording: Some(recording) }))
}

/// Wall-clock time, in seconds since 1970.
fn unix_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// Folders and variables of one trial.
struct Place {
    own: TempDir,
    data: TempDir,
    environment: Vec<(String, String)>,
}

impl Place {
    fn new(setup: &Setup) -> Result<Place> {
        let folder = |name: &str, mode: u32| {
            let permissions = Permissions::from_mode(mode);
            let made = tempfile::Builder::new().prefix(name).permissions(permissions).tempdir();
            made.context("cannot make a folder for a trial")
        };
        // The target may be started as another user.
        let (own, data) = (folder("beamtune-trial-", 0o700)?, folder("beamtune-data-", 0o711)?);
        let path = data.path().to_str().context("the folder of temporary files has no name in UTF-8")?;
        let mut environment = vec![("BEAMTUNE_FOLDER".to_owned(), path.to_owned())];
        environment.extend(setup.port.map(|port| ("BEAMTUNE_PORT".to_owned(), port.to_string())));
        Ok(Place { own, data, environment })
    }
}

/// Drives a load against the VM with this process id.
fn drive(setup: &Setup, load: &Load, place: &Place, vm: u32, stop: &Stop) -> Result<Drove> {
    let cpus = setup.pins.as_ref().map_or(&[][..], |pins| &pins.generator);
    match load {
        Load::Scenario(written) => {
            let threads = cpus.len().max(1);
            let load = drive::Load { written, threads, window_s: setup.window_s, warm_up_s: setup.warm_up_s };
            drive::drive(&load, vm, stop)
        }
        Load::Command(load) => {
            let launch = Launch {
                command: &load.command,
                folder: &setup.folder,
                flags: &[],
                environment: place.environment.clone(),
                cpus,
                folders: &[],
                log: place.own.path().join("load.log"),
                out: None,
            };
            load.drive(command::Given { launch, data: place.data.path(), window_s: setup.window_s, vm }, stop)
        }
        Load::Job { .. } => bail!("a job has no load"),
    }
}

/// Whether a VM has not ended.
fn is_there(vm: &Vm) -> bool {
    Identity::of(&LocalTree::default(), vm.identity.pid).is_ok_and(|identity| identity == vm.identity)
}

/// Whatever listens where the target is to listen would be measured in its place.
fn must_be_free(setup: &Setup) -> Result<()> {
    let addresses = setup.load.addresses()?.into_iter().map(|(host, port)| format!("{host}:{port}"));
    for address in addresses.chain(setup.ready.address().map(str::to_owned)) {
        if ready::connect(&address).is_ok() {
            bail!("something listens at {address} already: stop it, since beamtune starts the target itself");
        }
    }
    Ok(())
}

enum Awaited {
    Ready(Box<Vm>),
    Failed(String),
    Stopped,
}

/// Waits until the target is ready.
fn await_ready(setup: &Setup, started: &mut Started, stop: &Stop) -> Result<Awaited> {
    let until = Instant::now() + Duration::from_secs_f64(setup.ready_within_s);
    loop {
        if stop.is_requested() {
            return Ok(Awaited::Stopped);
        }
        let vms = started.vms();
        let meant: Vec<Vm> = vms.iter().filter(|vm| setup.ready.may_be(vm)).cloned().collect();
        let why = match setup.ready.look() {
            Ok(()) => match choose(setup, &meant)? {
                Some(vm) => return Ok(Awaited::Ready(Box::new(vm))),
                None if !vms.is_empty() => "none of its VMs is a node that others can connect to".to_owned(),
                None => "none of its processes is a BEAM VM".to_owned(),
            },
            Err(error) => format!("{error:#}"),
        };
        let is_job = matches!(setup.load, Load::Job { .. });
        // One that has detached itself has ended well.
        let ended = started.ended().filter(|ended| is_job || !ended.is_well()).cloned();
        if let Some(ended) = ended.filter(|_| vms.is_empty()) {
            let words = started.last_words();
            let what = if is_job && ended.is_well() {
                "the job ended before its VM was seen: it is too short to be measured"
            } else {
                "the target did not start"
            };
            return Ok(Awaited::Failed(format!("{what} ({}): {}", ended.how, said(&words))));
        }
        if Instant::now() > until {
            let words = started.last_words();
            return Ok(Awaited::Failed(format!(
                "the target was not ready within {:.0} s, for {why}; it said: {}",
                setup.ready_within_s,
                said(&words)
            )));
        }
        stop.wait(LOOK);
    }
}

/// What a target has said, or that it said nothing.
fn said(words: &str) -> &str {
    if words.is_empty() { "(nothing)" } else { words }
}

/// The VM that is measured: the only one, the one of that name, or the one that listens where the load goes.
fn choose(setup: &Setup, vms: &[Vm]) -> Result<Option<Vm>> {
    if let Some(node) = &setup.node {
        let is_it = |vm: &&Vm| {
            let name = vm.distribution.name.as_ref();
            name.is_some_and(|name| name.to_string() == *node || name.alive == *node)
        };
        return Ok(vms.iter().find(is_it).cloned());
    }
    let mut ports: Vec<u16> = setup.load.addresses()?.into_iter().map(|(_, port)| port).collect();
    ports.extend(setup.ready.port());
    let listens = |vm: &&Vm| {
        let listeners = vm.distribution.listeners.as_deref().unwrap_or_default();
        listeners.iter().any(|listener| ports.contains(&listener.port))
    };
    match vms {
        [] => Ok(None),
        [vm] => Ok(Some(vm.clone())),
        several => match several.iter().filter(listens).collect::<Vec<_>>().as_slice() {
            [vm] => Ok(Some((*vm).clone())),
            _ => bail!("the target has {} BEAM VMs: say which one is meant with --node NAME", several.len()),
        },
    }
}

/// Records into a file for as long as something else takes, and says when the recording begins, on CLOCK_MONOTONIC. Of a job, whose VM may
/// not have a name yet, the host's view is enough where the VM cannot be attached to soon.
fn record_while<T>(live: &Live, file: &Path, is_job: bool, work: impl FnOnce() -> T) -> (T, Result<u64>) {
    let stop = Stop::default();
    let record = || {
        // Where that is refused, the generator may be late, and says so.
        let _ = cpus::give_way();
        let begin = Instant::now();
        let mut host_only = live.access.is_err();
        loop {
            let wish = Wish {
                file: Some(file),
                host_only,
                ..Wish::of(if is_job { JOB_SAMPLES } else { SAMPLES }, None)
            };
            let mut zero_ns = 0;
            let open = |_: &str| {
                let writer = Writer::create(file, Existing::Refuse)?;
                zero_ns = now_ns();
                Ok(writer)
            };
            match take::take_into(live, &wish, Plan::default(), &stop, open, &mut |_| {}) {
                Err(take::Failed::ForNow(_)) if is_job && !host_only && !stop.is_requested() => {
                    host_only = begin.elapsed() > JOB_PATIENCE;
                    stop.wait(LOOK);
                }
                taken => return taken.map(|_| zero_ns),
            }
        }
    };
    thread::scope(|scope| {
        let recorder = scope.spawn(record);
        let result = work();
        stop.request();
        let recorded = match recorder.join() {
            Ok(recorded) => recorded.map_err(take::Failed::into_error),
            Err(_) => Err(anyhow!("the recorder has ended")),
        };
        (result, recorded)
    })
}

/// What was recorded of the window, where the recording began at this moment of CLOCK_MONOTONIC.
fn window(reader: &Reader, zero_ns: u64, driven: &Driven) -> Result<Period> {
    let instant =
        |monotonic_ns: u64| Nanos::try_from(monotonic_ns.saturating_sub(zero_ns)).unwrap_or(Nanos::MAX);
    let selection = Selection {
        from: Some(instant(driven.begin_ns)),
        to: Some(instant(driven.end_ns)),
        ..Selection::default()
    };
    Ok(reader.period(&selection)?)
}

fn outcome(period: &Period, order: &Order, driven: &Driven) -> TrialOutcome {
    if let Some(why) = not_taken(period, &order.arm.flags) {
        return TrialOutcome::Failed { why };
    }
    let measures: Measures = measure::measure(period, &driven.answers);
    let Driven { own_cores, bound, stood_still, seconds, .. } = driven;
    let seen = Seen { period, own_cores: *own_cores, bound, stood_still: *stood_still, seconds };
    let mut reasons = gate::gate(&seen);
    if period.lives > 1 {
        return TrialOutcome::Failed { why: "the VM was started again under the load".to_owned() };
    }
    if driven.answers.done == 0 && driven.answers.run.is_none() {
        reasons.push(Invalid { kind: InvalidKind::NotMeasured, why: "no right answer came".to_owned() });
    }
    match reasons.is_empty() {
        true => TrialOutcome::Valid { measures },
        false => TrialOutcome::Invalid { reasons, measures },
    }
}

/// Which of the flags the VM does not have, if there is one.
fn not_taken(period: &Period, flags: &[String]) -> Option<String> {
    let facts = &period.facts;
    let Some(args) = facts.list(facts::EMU_ARGS).or_else(|| facts.list(facts::COMMAND_LINE)) else {
        return (!flags.is_empty()).then(|| "what the VM was started with could not be read".to_owned());
    };
    for setting in parse_emu_args(&emulators(flags)) {
        let has = effective(&args, &setting.flag);
        let wanted = setting.value.unwrap_or_default();
        if has.as_ref() != Some(&wanted) {
            let has = has.map_or_else(|| "does not have it".to_owned(), |has| format!("has {has}"));
            return Some(format!("{} {wanted} did not reach the VM, which {has}", setting.flag));
        }
    }
    None
}

/// The words that are for the emulator; it does not tell those that are for init.
fn emulators(flags: &[String]) -> Vec<String> {
    let mut is_emulators = false;
    let of_it = |word: &&String| {
        is_emulators = word.starts_with('+') || (is_emulators && !word.starts_with('-'));
        is_emulators
    };
    flags.iter().filter(of_it).cloned().collect()
}
