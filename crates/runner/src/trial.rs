//! One trial, from the start of its target to its outcome.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, bail};
use beamtune_flags::{effective_value, parse_emu_args};
use beamtune_host::cpus;
use beamtune_host::discovery::Vm;
use beamtune_load::clock::now_ns;
use beamtune_model::study::{Invalid, InvalidKind, Measures, Trial, TrialOrder, TrialOutcome};
use beamtune_model::{Nanos, Period, facts};
use beamtune_node::access::{AccessError, AccessOptions};
use beamtune_node::record::{RecordError, RecordOptions, record_node_into};
use beamtune_node::target::LiveTarget;
use beamtune_recording::{Existing, Plan, Reader, Selection, Stop, Writer};
use beamtune_trial::gate::{self, TrialConditions};
use beamtune_trial::measure;
use tempfile::TempDir;

use crate::drive::{LoadEnd, LoadRun};
use crate::process::{GuardedCommand, Launch, POLL_INTERVAL, is_running, launch, or_nothing};
use crate::setup::{Load, Setup};
use crate::{command, drive, job, ready};

/// Time between two samples of a trial.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
/// Time between two samples of a job, which may be short.
const JOB_SAMPLE_INTERVAL: Duration = Duration::from_millis(250);

/// Time limit for attaching to a job's VM.
const JOB_ATTACH_TIMEOUT: Duration = Duration::from_millis(500);
/// A job that is shorter than this may end before it can be recorded.
const SHORT_JOB_S: f64 = 2.0;

/// A finished trial, with its recording.
pub struct FinishedTrial {
    /// The trial, with its outcome.
    pub trial: Trial,
    /// The recording; `None` if the target could not be measured.
    pub recording: Option<Vec<u8>>,
}

/// Runs a trial. Returns `None` if the user stopped it.
///
/// # Errors
/// If every trial would fail: a port is in use, or the load cannot be run.
pub fn run(
    setup: &Setup,
    access: &AccessOptions,
    order: &TrialOrder,
    stop: &Stop,
) -> Result<Option<FinishedTrial>> {
    let begin = Instant::now();
    let began_unix_s = unix_s();
    let trial = |outcome, remarks| Trial {
        order: order.clone(),
        began_unix_s,
        took_s: begin.elapsed().as_secs_f64(),
        outcome,
        remarks,
    };
    let failed = |why: String| {
        Some(FinishedTrial {
            trial: trial(TrialOutcome::Failed { reason: why }, Vec::new()),
            recording: None,
        })
    };
    check_addresses_free(setup)?;
    let folders = TrialFolders::new(setup)?;
    let arms = order.arm.environment.iter().map(|(name, value)| (name.clone(), value.clone()));
    let begin_ns = now_ns();
    let mut target = launch(Launch {
        command: &setup.start,
        folder: &setup.folder,
        flags: &order.arm.flags,
        environment: folders.environment.iter().cloned().chain(arms).collect(),
        cpus: setup.pins.as_ref().map_or(&[][..], |pins| &pins.target),
        folders: &[folders.own.path(), folders.data.path()],
        log: folders.own.path().join("target.log"),
        out: None,
    })?;
    let vm = match await_ready(setup, &mut target, stop)? {
        Readiness::Ready(vm) => vm,
        Readiness::Failed(why) => return Ok(failed(why)),
        Readiness::Stopped => return Ok(None),
    };
    let is_job = matches!(setup.load, Load::Job { .. });
    let live = match LiveTarget::find(Some(&vm.identity.pid.to_string()), access) {
        Err(_) if !is_running(&vm) => {
            return Ok(failed(format!("the VM ended at once: {}", or_nothing(&target.last_output()))));
        }
        live => live?,
    };
    let remarks = match &live.access {
        Err(AccessError::NoDistribution) => {
            vec!["the VM has no distribution, so only its process was measured".to_owned()]
        }
        // A job may end before beamtune can attach to it.
        Err(AccessError::CannotAttach(error)) if !is_job => {
            bail!("cannot attach to the target: {error:#}")
        }
        _ => Vec::new(),
    };
    let file = folders.own.path().join("trial.beamtune");
    let pid = vm.identity.pid;
    let (end, recorded) = record_while(&live, &file, is_job, || match &setup.load {
        Load::Job { within_s } => {
            job::watch(&mut target, pid, begin_ns, Duration::from_secs_f64(*within_s), stop)
        }
        load => apply(setup, load, &folders, pid, stop),
    });
    let output = target.last_output();
    let run = match end {
        Ok(LoadEnd::Measured(run)) => run,
        Ok(LoadEnd::Stopped) => return Ok(None),
        Ok(LoadEnd::VmEnded) => {
            return Ok(failed(format!("the VM ended under the load: {}", or_nothing(&output))));
        }
        Ok(LoadEnd::Failed(why)) => return Ok(failed(why)),
        // The load may have failed because the VM ended.
        Ok(LoadEnd::LoadFailed(why)) if !is_running(&vm) => {
            return Ok(failed(format!("the VM ended under the load ({why}): {}", or_nothing(&output))));
        }
        // Under a setting, this failure is a result. Without a setting, every trial would fail.
        Ok(LoadEnd::LoadFailed(why)) if order.arm.flags.is_empty() && order.arm.environment.is_empty() => {
            bail!("the load command failed: {why}")
        }
        Ok(LoadEnd::LoadFailed(why)) => return Ok(failed(format!("the load command failed: {why}"))),
        Err(error) if !is_running(&vm) => {
            return Ok(failed(format!("the VM ended before the load ({error:#}): {}", or_nothing(&output))));
        }
        Err(error) => return Err(error),
    };
    let zero_ns = match recorded {
        // The job was too short for a recording.
        Err(error) if is_job && run.answers.seconds < SHORT_JOB_S => {
            return Ok(failed(format!("the job cannot be measured: {error:#}")));
        }
        recorded => recorded?,
    };
    target.stop(setup.stop.as_deref(), &setup.folder, folders.environment.clone())?;
    // Results of other generators have wall-clock times. If the clock was set, they would refer to a wrong part of the recording.
    let moved_s = unix_s() - began_unix_s - begin.elapsed().as_secs_f64();
    let outcome = match gate::clock(moved_s) {
        Some(reason) => TrialOutcome::Invalid { reasons: vec![reason], measures: Measures::default() },
        None => outcome(&window(&Reader::open(&file)?, zero_ns, &run)?, order, &run),
    };
    let recording = std::fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(Some(FinishedTrial { trial: trial(outcome, remarks), recording: Some(recording) }))
}

/// Returns the wall-clock time, in seconds since 1970-01-01 UTC.
fn unix_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// Folders and environment variables of one trial.
struct TrialFolders {
    own: TempDir,
    data: TempDir,
    environment: Vec<(String, String)>,
}

impl TrialFolders {
    fn new(setup: &Setup) -> Result<TrialFolders> {
        let folder = |name: &str, mode: u32| {
            let permissions = Permissions::from_mode(mode);
            let created = tempfile::Builder::new().prefix(name).permissions(permissions).tempdir();
            created.context("cannot create a temporary folder for the trial")
        };
        // The target may run as another user.
        let (own, data) = (folder("beamtune-trial-", 0o700)?, folder("beamtune-data-", 0o711)?);
        let path = data.path().to_str().context("the path of the temporary folder is not UTF-8")?;
        let mut environment = vec![("BEAMTUNE_FOLDER".to_owned(), path.to_owned())];
        environment.extend(setup.port.map(|port| ("BEAMTUNE_PORT".to_owned(), port.to_string())));
        Ok(TrialFolders { own, data, environment })
    }
}

/// Applies a load to the VM with this process id.
fn apply(setup: &Setup, load: &Load, folders: &TrialFolders, vm: u32, stop: &Stop) -> Result<LoadEnd> {
    let cpus = setup.pins.as_ref().map_or(&[][..], |pins| &pins.generator);
    match load {
        Load::Scenario(written) => {
            let threads = cpus.len().max(1);
            let load = drive::ScenarioLoad {
                written,
                threads,
                window_s: setup.window_s,
                warm_up_s: setup.warm_up_s,
            };
            drive::run(&load, vm, stop)
        }
        Load::Command(load) => {
            let launch = Launch {
                command: &load.command,
                folder: &setup.folder,
                flags: &[],
                environment: folders.environment.clone(),
                cpus,
                folders: &[],
                log: folders.own.path().join("load.log"),
                out: None,
            };
            let trial =
                command::TrialContext { launch, data: folders.data.path(), window_s: setup.window_s, vm };
            load.run(trial, stop)
        }
        Load::Job { .. } => bail!("a job has no load"),
    }
}

/// Fails if an address of the target is in use: the process that uses it would be measured instead.
fn check_addresses_free(setup: &Setup) -> Result<()> {
    let addresses = setup.load.addresses()?.into_iter().map(|(host, port)| format!("{host}:{port}"));
    for address in addresses.chain(setup.ready.address().map(str::to_owned)) {
        if ready::connect(&address).is_ok() {
            bail!(
                "{address} is in use: stop the process that listens there; beamtune starts the target itself"
            );
        }
    }
    Ok(())
}

enum Readiness {
    Ready(Box<Vm>),
    Failed(String),
    Stopped,
}

/// Waits until the target is ready.
fn await_ready(setup: &Setup, target: &mut GuardedCommand, stop: &Stop) -> Result<Readiness> {
    let until = Instant::now() + Duration::from_secs_f64(setup.ready_within_s);
    loop {
        if stop.is_requested() {
            return Ok(Readiness::Stopped);
        }
        let vms = target.vms();
        let candidates: Vec<Vm> = vms.iter().filter(|vm| setup.ready.accepts(vm)).cloned().collect();
        let why = match setup.ready.check() {
            Ok(()) => match choose(setup, &candidates)? {
                Some(vm) => return Ok(Readiness::Ready(Box::new(vm))),
                None if !vms.is_empty() => "none of its VMs is a node that accepts connections".to_owned(),
                None => "none of its processes is an Erlang VM".to_owned(),
            },
            Err(error) => format!("{error:#}"),
        };
        let is_job = matches!(setup.load, Load::Job { .. });
        // A command that exits with 0 may have daemonized.
        let exit = target.exit().filter(|exit| is_job || !exit.is_success()).cloned();
        if let Some(exit) = exit.filter(|_| vms.is_empty()) {
            let output = target.last_output();
            let what = if is_job && exit.is_success() {
                "the job ended before its VM was found: it is too short to be measured"
            } else {
                "the target did not start"
            };
            return Ok(Readiness::Failed(format!("{what} ({}): {}", exit.how, or_nothing(&output))));
        }
        if Instant::now() > until {
            let output = target.last_output();
            return Ok(Readiness::Failed(format!(
                "the target was not ready within {:.0} s: {why}; its output: {}",
                setup.ready_within_s,
                or_nothing(&output)
            )));
        }
        stop.wait(POLL_INTERVAL);
    }
}

/// Chooses the VM to measure: the one with the given name, the only one, or the one that listens on the port of the load.
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
            _ => bail!("the target has {} Erlang VMs: choose one with --node NAME", several.len()),
        },
    }
}

/// Records into a file while `work` runs. Also returns when the recording began, on CLOCK_MONOTONIC. A job's VM may not have a node
/// name yet: if attaching fails for a while, only its process is recorded.
fn record_while<T>(
    live: &LiveTarget,
    file: &Path,
    is_job: bool,
    work: impl FnOnce() -> T,
) -> (T, Result<u64>) {
    let stop = Stop::default();
    let record = || {
        // If the priority cannot be lowered, the generator may run late, which it reports.
        let _ = cpus::lower_priority();
        let begin = Instant::now();
        let mut host_only = live.access.is_err();
        loop {
            let interval = if is_job { JOB_SAMPLE_INTERVAL } else { SAMPLE_INTERVAL };
            let options = RecordOptions { file: Some(file), host_only, ..RecordOptions::of(interval, None) };
            let mut zero_ns = 0;
            let open = |_: &str| {
                let writer = Writer::create(file, Existing::Refuse)?;
                zero_ns = now_ns();
                Ok(writer)
            };
            match record_node_into(live, &options, Plan::default(), &stop, open, &mut |_| {}) {
                Err(RecordError::Temporary(_)) if is_job && !host_only && !stop.is_requested() => {
                    host_only = begin.elapsed() > JOB_ATTACH_TIMEOUT;
                    stop.wait(POLL_INTERVAL);
                }
                recorded => return recorded.map(|_| zero_ns),
            }
        }
    };
    thread::scope(|scope| {
        let thread = scope.spawn(record);
        let result = work();
        stop.request();
        let recorded = match thread.join() {
            Ok(recorded) => recorded.map_err(RecordError::into_error),
            Err(_) => Err(anyhow!("the recording thread panicked")),
        };
        (result, recorded)
    })
}

/// Returns the period of the measured window. The recording began at `zero_ns` on CLOCK_MONOTONIC.
fn window(reader: &Reader, zero_ns: u64, run: &LoadRun) -> Result<Period> {
    let instant =
        |monotonic_ns: u64| Nanos::try_from(monotonic_ns.saturating_sub(zero_ns)).unwrap_or(Nanos::MAX);
    let selection = Selection {
        from: Some(instant(run.begin_ns)),
        to: Some(instant(run.end_ns)),
        ..Selection::default()
    };
    Ok(reader.period(&selection)?)
}

fn outcome(period: &Period, order: &TrialOrder, run: &LoadRun) -> TrialOutcome {
    if let Some(why) = missing_flag(period, &order.arm.flags) {
        return TrialOutcome::Failed { reason: why };
    }
    let measures: Measures = measure::measure(period, &run.answers);
    let LoadRun { own_cores, bound, stalled_seconds, seconds, .. } = run;
    let seen = TrialConditions {
        period,
        own_cores: *own_cores,
        bound_seconds: bound,
        stalled_seconds: *stalled_seconds,
        seconds,
    };
    let mut reasons = gate::gate(&seen);
    if period.incarnation_count > 1 {
        return TrialOutcome::Failed { reason: "the VM was restarted under the load".to_owned() };
    }
    if run.answers.done == 0 && run.answers.run.is_none() {
        reasons.push(Invalid { kind: InvalidKind::NotMeasured, why: "no request succeeded".to_owned() });
    }
    match reasons.is_empty() {
        true => TrialOutcome::Valid { measures },
        false => TrialOutcome::Invalid { reasons, measures },
    }
}

/// Returns an error message for the first flag that the VM does not have.
fn missing_flag(period: &Period, flags: &[String]) -> Option<String> {
    let facts = &period.facts;
    let Some(args) = facts.list(facts::EMU_ARGS).or_else(|| facts.list(facts::COMMAND_LINE)) else {
        return (!flags.is_empty()).then(|| "the VM's command line could not be read".to_owned());
    };
    for setting in parse_emu_args(&emulator_flags(flags)) {
        let has = effective_value(&args, &setting.flag);
        let wanted = setting.value.unwrap_or_default();
        if has.as_ref() != Some(&wanted) {
            let has = has.map_or_else(|| "does not have the flag".to_owned(), |has| format!("has {has}"));
            return Some(format!("the VM did not get {} {wanted}: it {has}", setting.flag));
        }
    }
    None
}

/// Returns the emulator flags. The VM does not report those of init.
fn emulator_flags(flags: &[String]) -> Vec<String> {
    let mut is_emulator_flag = false;
    let is_kept = |word: &&String| {
        is_emulator_flag = word.starts_with('+') || (is_emulator_flag && !word.starts_with('-'));
        is_emulator_flag
    };
    flags.iter().filter(is_kept).cloned().collect()
}
