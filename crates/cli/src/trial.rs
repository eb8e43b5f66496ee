//! Runs trials: starts the target under a setting, waits until it can take its load, drives that, records, and ends everything.
//!
//! Nothing of the target's own is changed: flags reach its VM by ERL_ZFLAGS, variables by the environment. That a candidate does not
//! boot or kills the VM is a result. All that is started stands below a guard, which ends it however we end.

mod drive;
mod ready;
mod started;

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, bail};
use beamtune_flags::{effective, parse_emu_args};
use beamtune_host::cpus;
use beamtune_host::discovery::Vm;
use beamtune_host::process::Identity;
use beamtune_host::source::MemoryBudget;
use beamtune_host::tree::LocalTree;
use beamtune_load::clock::now_ns;
use beamtune_model::study::{Invalid, InvalidKind, Measures, Order, Trial, TrialOutcome};
use beamtune_model::{Nanos, Period, facts};
use beamtune_recording::{Existing, Plan, Reader, Selection, Stop, SystemClock, Writer};
use beamtune_trial::gate::{self, Seen};
use beamtune_trial::measure;
use serde::{Deserialize, Serialize};

use crate::access::AccessArgs;
use crate::commands::load::Written;
use crate::subject::{Live, NoAccess};
use crate::take::{self, Wish};
use drive::{Driven, Drove};
pub use ready::Ready;
use started::{LOOK, Started, start};

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
    pub load: Written,
    /// Seconds of each trial that count.
    pub window_s: u32,
    /// Seconds of warm-up at most.
    pub warm_up_s: u32,
    /// CPUs for the target and for the generator; `None`: they share all.
    pub pins: Option<Pins>,
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

/// A trial that was run, with its recording.
pub struct Done {
    pub trial: Trial,
    pub recording: Option<Vec<u8>>,
}

/// Runs a trial. `None` if we were asked to stop meanwhile: then nothing of it counts.
///
/// # Errors
/// For what no other trial would do better: a port that is taken, a load that nobody can send.
pub fn run(setup: &Setup, access: &AccessArgs, order: &Order, stop: &Stop) -> Result<Option<Done>> {
    let begin = Instant::now();
    let began_unix_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
    let scratch =
        tempfile::Builder::new().prefix("beamtune-trial-").tempdir().context("cannot make a folder")?;
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
    let cpus = setup.pins.as_ref().map_or(&[][..], |pins| &pins.target);
    let mut started =
        start(&setup.start, &setup.folder, &order.arm, cpus, &scratch.path().join("target.log"))?;
    let vm = match await_ready(setup, &mut started, stop)? {
        Awaited::Ready(vm) => vm,
        Awaited::Failed(why) => return Ok(failed(why)),
        Awaited::Stopped => return Ok(None),
    };
    let live = Live::find(Some(&vm.identity.pid.to_string()), access)?;
    let remarks = match &live.access {
        Err(NoAccess::NoDistribution) => {
            vec!["the VM has no distribution: what only it knows was not measured".to_owned()]
        }
        Err(NoAccess::Closed(error)) => bail!("cannot attach to the target: {error:#}"),
        Ok(_) => Vec::new(),
    };
    let file = scratch.path().join("trial.beamtune");
    let (drove, recorded) = record_while(&live, &file, || {
        let load = drive::Load {
            written: &setup.load,
            threads: setup.pins.as_ref().map_or(1, |pins| pins.generator.len()),
            window_s: setup.window_s,
            warm_up_s: setup.warm_up_s,
        };
        drive::drive(&load, vm.identity.pid, stop)
    });
    let words = started.last_words();
    let driven = match drove {
        Ok(Drove::Measured(driven)) => driven,
        Ok(Drove::Stopped) => return Ok(None),
        Ok(Drove::VmEnded) => return Ok(failed(format!("the VM ended under the load: {}", said(&words)))),
        // What went wrong with the load may be the end of the VM.
        Err(error) if !is_there(&vm) => {
            return Ok(failed(format!("the VM ended before the load ({error:#}): {}", said(&words))));
        }
        Err(error) => return Err(error),
    };
    recorded?;
    started.stop(setup.stop.as_deref(), &setup.folder)?;
    let period = window(&Reader::open(&file)?, &driven)?;
    let outcome = outcome(&period, order, &driven);
    let recording = std::fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(Some(Done { trial: trial(outcome, remarks), recording: Some(recording) }))
}

/// Whether a VM has not ended.
fn is_there(vm: &Vm) -> bool {
    Identity::of(&LocalTree::default(), vm.identity.pid).is_ok_and(|identity| identity == vm.identity)
}

/// Whatever listens where the target is to listen would be measured in its place.
fn must_be_free(setup: &Setup) -> Result<()> {
    let scenario = setup.load.read(&[])?;
    let addresses = scenario.targets().into_iter().map(|target| format!("{}:{}", target.host, target.port));
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
        let why = match setup.ready.look() {
            Ok(()) => match choose(setup, &vms)? {
                Some(vm) => return Ok(Awaited::Ready(Box::new(vm))),
                None => "none of its processes is a BEAM VM".to_owned(),
            },
            Err(error) => format!("{error:#}"),
        };
        let ended = started.ended().map(str::to_owned);
        if let Some(ended) = ended.filter(|ended| vms.is_empty() && ended != "exited 0") {
            let words = started.last_words();
            return Ok(Awaited::Failed(format!("the target did not start ({ended}): {}", said(&words))));
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
    let ports: Vec<u16> = setup.load.read(&[])?.targets().iter().map(|target| target.port).collect();
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

/// Records into a file for as long as something else takes.
fn record_while<T>(live: &Live, file: &Path, work: impl FnOnce() -> T) -> (T, Result<()>) {
    let stop = Stop::default();
    let wish = Wish {
        every: Duration::from_secs(1),
        length: None,
        file: Some(file),
        host_only: matches!(live.access, Err(NoAccess::NoDistribution)),
        looking: MemoryBudget::default(),
        once: &[],
    };
    thread::scope(|scope| {
        let record = scope.spawn(|| {
            // Where that is refused, the generator may be late, and says so.
            let _ = cpus::give_way();
            let open = |_: &str| Ok(Writer::create(file, Existing::Refuse)?);
            take::take_into(live, &wish, Plan::default(), &stop, open, &mut |_| {}).map(drop)
        });
        let result = work();
        stop.request();
        let recorded = match record.join() {
            Ok(recorded) => recorded.map_err(take::Failed::into_error),
            Err(_) => Err(anyhow!("the recorder has ended")),
        };
        (result, recorded)
    })
}

/// What was recorded of the window.
fn window(reader: &Reader, driven: &Driven) -> Result<Period> {
    let wall_at_zero = reader.wall_at_zero().context("the recording does not say when it began")?;
    // The load counts on CLOCK_MONOTONIC, the recording from its own beginning: both clocks are read now.
    let now_ns = Nanos::try_from(now_ns()).unwrap_or(Nanos::MAX);
    let ahead = SystemClock::wall_now() - now_ns - wall_at_zero;
    let instant =
        |monotonic_ns: u64| Nanos::try_from(monotonic_ns).unwrap_or(Nanos::MAX).saturating_add(ahead);
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
    let seen = Seen { period, own_cores: driven.own_cores, bound: &driven.bound, seconds: &driven.seconds };
    let mut reasons = gate::gate(&seen);
    if period.lives > 1 {
        return TrialOutcome::Failed { why: "the VM was started again under the load".to_owned() };
    }
    if driven.answers.done == 0 {
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
