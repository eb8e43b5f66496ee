//! Executes the runs of an evaluation: starts each VM, records it like `doctor`, and grades the diagnosis.
//!
//! Robust labs run two at a time, all others alone. Each result is written as soon as the run is over, so that an interrupted
//! evaluation can be continued.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use beamtune_host::family::{self, Family};
use beamtune_host::machine;
use beamtune_host::tree::LocalTree;
use beamtune_node::Printer;
use beamtune_node::access::AccessOptions;
use beamtune_node::profiling::ProfileWhen;
use beamtune_node::record::{RecordError, RecordOptions, record_node_into};
use beamtune_node::target::LiveTarget;
use beamtune_recording::{Plan, Stop};

use crate::catalog::Lab;
use crate::flag_check::FlagChecker;
use crate::judge::{Truth, causes, judge_recording, judge_synthetic};
use crate::manifest::Manifest;
use crate::otp::Installed;
use crate::plan::{Job, PARALLEL_LABS, USUAL_RUN, Workload};
use crate::recordings::{RecordingStore, RunNotes};
use crate::rows::{Judged, Kind, Row, Rows, Run, Setting};
use crate::run::{LabEvent, Modules, Options, RunningLab};
use crate::{page, software};

/// Length of a recording: the default of `doctor`.
const RECORDING_LENGTH: Duration = Duration::from_secs(10);
/// Time limit for a lab to become ready.
const READY_TIMEOUT: Duration = Duration::from_secs(180);
/// Time after which a lab ends, even if beamtune was killed.
const LAB_SECONDS: u32 = 240;
/// Maximum number of repetitions of a run that was wrong while other processes used the host.
const MAX_REPEATS: u32 = 2;

/// The state of an evaluation that runs.
pub struct Executor {
    master: u64,
    /// Set when the runs end early.
    pub stop: Stop,
    /// The results so far.
    pub rows: Rows,
    store: RecordingStore,
    /// Erlang systems by release.
    systems: BTreeMap<u32, ErlangSystem>,
    day: String,
    cpus: usize,
    linux: String,
    /// Progress of all runs.
    progress: Mutex<Progress>,
    print: Printer,
}

/// An Erlang installation, with the labs compiled for it and the flags that it accepts.
struct ErlangSystem {
    installed: Installed,
    modules: Arc<Modules>,
    flags: FlagChecker,
}

#[derive(Default)]
struct Progress {
    total: usize,
    done: usize,
    /// Number of runs that are not synthetic.
    timed: u32,
    /// Their total duration.
    took: Duration,
    /// Number of robust labs that have not begun.
    robust: usize,
    /// Number of other runs that have not begun, without synthetic ones.
    others: usize,
}

impl Executor {
    /// Compiles the labs for each release that a run needs. Only then is `begin` called, which replaces the file of results: a
    /// compilation error must not destroy existing results.
    pub fn prepare(
        master: u64,
        installed: &[Installed],
        jobs: &[Job<'_>],
        stop: Stop,
        store: RecordingStore,
        print: Printer,
        begin: impl FnOnce() -> Result<Rows>,
    ) -> Result<Executor> {
        let mut systems = BTreeMap::new();
        for one in installed.iter().filter(|one| jobs.iter().any(|job| job.run.release == one.release)) {
            let modules = Arc::new(Modules::compile(&one.erlang)?);
            let flags = FlagChecker::new(&one.erlang);
            systems.insert(one.release, ErlangSystem { installed: one.clone(), modules, flags });
        }
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Ok(Executor {
            master,
            stop,
            rows: begin()?,
            store,
            systems,
            day: jiff::Zoned::now().strftime("%Y-%m-%d").to_string(),
            cpus: thread::available_parallelism().map_or(1, Into::into),
            linux: kernel.trim().split('.').take(2).collect::<Vec<_>>().join("."),
            progress: Mutex::new(Progress::default()),
            print,
        })
    }

    /// Executes all runs, or those until `stop` is requested.
    pub fn run(&self, jobs: Vec<Job<'_>>) -> Result<()> {
        let (synthetic, jobs): (VecDeque<_>, VecDeque<_>) = jobs.into_iter().partition(Job::is_synthetic);
        let (robust, others): (VecDeque<_>, VecDeque<_>) = jobs.into_iter().partition(Job::is_robust);
        {
            let mut progress = self.progress();
            (progress.robust, progress.others) = (robust.len(), others.len());
            progress.total = synthetic.len() + robust.len() + others.len();
        }
        self.drain(synthetic, 1)?;
        self.drain(robust, PARALLEL_LABS.min(self.cpus))?;
        self.drain(others, 1)
    }

    fn drain(&self, jobs: VecDeque<Job<'_>>, parallel: usize) -> Result<()> {
        let jobs = Mutex::new(jobs);
        let work = || -> Result<()> {
            loop {
                let next = jobs.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                let Some(job) = next.filter(|_| !self.stop.is_requested()) else { return Ok(()) };
                // An error also stops the other worker.
                self.one(&job).inspect_err(|_| self.stop.request())?;
            }
        };
        thread::scope(|scope| {
            let workers: Vec<_> = (0..parallel).map(|_| scope.spawn(work)).collect();
            workers.into_iter().try_for_each(|worker| match worker.join() {
                Ok(ended) => ended,
                Err(_) => Err(anyhow!("a worker panicked")),
            })
        })
    }

    /// Executes one run, and repeats it if it was disturbed.
    fn one(&self, job: &Job<'_>) -> Result<()> {
        if !job.is_synthetic() {
            let mut progress = self.progress();
            let left = if job.is_robust() { &mut progress.robust } else { &mut progress.others };
            *left = left.saturating_sub(1);
        }
        let begin = Instant::now();
        let mut attempts = 0;
        let row = loop {
            attempts += 1;
            let (judged, error) = match self.try_once(job) {
                _ if self.stop.is_requested() => return Ok(()),
                Ok(judged) => (judged, None),
                Err(error) => (Judged::default(), Some(format!("{error:#}"))),
            };
            let row = Row {
                run: job.run.clone(),
                master: self.master,
                day: self.day.clone(),
                cpus: self.cpus,
                linux: self.linux.clone(),
                took_s: begin.elapsed().as_secs_f64(),
                attempts,
                error,
                judged,
            };
            if row.faults().is_empty() || !row.is_disturbed() || attempts > MAX_REPEATS {
                break row;
            }
        };
        self.report(&row, begin.elapsed());
        self.rows.add(row)
    }

    fn try_once(&self, job: &Job<'_>) -> Result<Judged> {
        let release = job.run.release;
        let system = || self.systems.get(&release).with_context(|| format!("OTP {release} is not installed"));
        match job.what {
            Workload::Synthetic(case) => {
                let flags = self.systems.get(&release).map(|system| &system.flags);
                judge_synthetic(case, job.run.setting == Setting::Sick, release, flags)
            }
            Workload::Lab(lab) => self.lab(lab, &job.run, system()?),
            Workload::Software(case) => {
                let software = software::start(case, &self.stop, self.print)?;
                let truth = Truth {
                    expect: &case.expect,
                    allow: &case.allow,
                    causes: causes(&case.expect, case.cause.as_ref()),
                    culprits: case.culprit.as_deref().into_iter().collect(),
                    is_sick: !case.expect.is_empty(),
                    foreign_cores: 0.0,
                    stolen_cores: 0.0,
                };
                let flags = &system()?.flags;
                self.examine(
                    &software.target().to_string(),
                    &software.processes(),
                    truth,
                    true,
                    &job.run,
                    flags,
                )
            }
        }
    }

    fn lab(&self, lab: &Lab, run: &Run, system: &ErlangSystem) -> Result<Judged> {
        let options = Options {
            seed: run.seed,
            cured: run.setting != Setting::Sick,
            erlang: system.installed.erlang.clone(),
            cores: run.cores,
            for_seconds: LAB_SECONDS,
            params: Vec::new(),
            // The VMs' log must not appear between the lines of the evaluation.
            errors: Some(Arc::new(tempfile::tempfile().context("cannot create a log file for the VM")?)),
            print: self.print,
        };
        let mut running = RunningLab::start(lab, &options, &system.modules)?;
        let until = Instant::now() + READY_TIMEOUT;
        let ready = loop {
            if self.stop.is_requested() || Instant::now() > until {
                bail!("it was not ready within {} s", READY_TIMEOUT.as_secs());
            }
            match running.next(lab, &options, Duration::from_millis(100))? {
                LabEvent::Ready(line) => break line,
                LabEvent::Ended => {
                    let status = running.wait()?;
                    let line = options.errors.as_deref().and_then(last_line);
                    let line = line.map_or(String::new(), |line| format!("; its last output: {line}"));
                    bail!("its VM ended before it was ready: {status}{line}");
                }
                LabEvent::Line(_) | LabEvent::Nothing => {}
            }
        };
        let word = |key: &str| ready.split(' ').find_map(|word| word.strip_prefix(key));
        let node = word("node=").context("its ready line does not contain the node name")?;
        let Manifest { expect, allow, cause, .. } = &lab.manifest;
        let truth = Truth {
            expect,
            allow,
            causes: causes(expect, cause.as_ref()),
            culprits: word("sick=").map(culprits).filter(|_| !expect.is_empty()).unwrap_or_default(),
            is_sick: run.setting == Setting::Sick,
            foreign_cores: 0.0,
            stolen_cores: 0.0,
        };
        // A VM that is restarted may end before its memory map has been read.
        let is_memory_due = !lab.manifest.setting(run.setting != Setting::Sick).host.restarts;
        let judged = self.examine(node, &running.processes(), truth, is_memory_due, run, &system.flags)?;
        Ok(Judged { split: Some(lab.manifest.split), ..judged })
    }

    /// Records a VM like `doctor`, and grades the diagnosis. `own` are the processes of the case. The CPU use of all other processes
    /// during the recording is added to the ground truth.
    fn examine(
        &self,
        target: &str,
        own: &[u32],
        truth: Truth<'_>,
        is_memory_due: bool,
        run: &Run,
        flags: &FlagChecker,
    ) -> Result<Judged> {
        let live = LiveTarget::find(Some(target), &AccessOptions::new(self.print))?;
        let options = RecordOptions {
            profile: Some(ProfileWhen::Once(RECORDING_LENGTH)),
            ..RecordOptions::of(Duration::from_secs(1), Some(RECORDING_LENGTH))
        };
        let before = Cpu::now(own);
        let open = |_: &str| self.store.writer(run);
        let recorded = record_node_into(&live, &options, Plan::default(), &self.stop, open, &mut |_| {});
        let (reader, _) = recorded.map_err(RecordError::into_error)?;
        let after = Cpu::now(own);
        let truth = Truth {
            foreign_cores: after.foreign_since(&before),
            stolen_cores: after.stolen_since(&before),
            ..truth
        };
        self.store.write_notes(&RunNotes {
            run: run.clone(),
            culprits: truth.culprits.iter().map(ToString::to_string).collect(),
            foreign_cores: truth.foreign_cores,
            stolen_cores: truth.stolen_cores,
            is_memory_due,
        })?;
        let judged = judge_recording(&reader, &truth, Some(flags))?;
        Ok(Judged { is_memory_due, ..judged })
    }

    /// Prints a line about a finished run.
    fn report(&self, row: &Row, took: Duration) {
        let mut progress = self.progress();
        progress.done += 1;
        if row.run.kind != Kind::Synthetic {
            progress.timed += 1;
            progress.took += took;
        }
        let mean = progress.took.checked_div(progress.timed).unwrap_or(USUAL_RUN);
        let slots = progress.robust.div_ceil(PARALLEL_LABS.min(self.cpus)) + progress.others;
        let left = mean * u32::try_from(slots).unwrap_or(u32::MAX);
        (self.print)(&format!(
            "[{}/{}, {} min left] {}\n",
            progress.done,
            progress.total,
            left.as_secs().div_ceil(60),
            page::line(row)
        ));
    }

    fn progress(&self) -> std::sync::MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Parses the culprits in the ready line, separated by commas; `-` for none.
fn culprits(text: &str) -> Vec<&str> {
    text.split(',').filter(|culprit| *culprit != "-").collect()
}

/// Returns the last line that is not empty; `None` if absent, or the file cannot be read.
fn last_line(file: &File) -> Option<String> {
    const MAX_BYTES: u64 = 1_000;
    let length = file.metadata().map_or(0, |data| data.len());
    let mut end = vec![0; length.min(MAX_BYTES) as usize];
    // The VMs share the file position, so it must not be changed.
    file.read_exact_at(&mut end, length.saturating_sub(MAX_BYTES)).ok()?;
    let text = String::from_utf8_lossy(&end);
    text.lines().map(str::trim).rfind(|line| !line.is_empty()).map(str::to_owned)
}

/// CPU time used so far by the host, and by a case together with beamtune. A case that runs in parallel counts as a disturbance,
/// like any other process.
struct Cpu {
    at: Instant,
    cpus: f64,
    /// Ticks of all CPUs.
    all: f64,
    /// Ticks in which a CPU was busy, including steal.
    busy: f64,
    /// Ticks of steal.
    stolen: f64,
    ours_ns: f64,
}

impl Cpu {
    /// Reads the current values. `own` are the processes of the case.
    fn now(own: &[u32]) -> Cpu {
        let tree = LocalTree::default();
        let (busy, stolen, idle, cpus) = machine::cpu_times(&tree).map_or((0, 0, 0, 0), |times| {
            (times.busy_ticks + times.steal_ticks, times.steal_ticks, times.idle_ticks, times.cpus)
        });
        let of_case = own.iter().map(|pid| Family::of(&tree, *pid).map_or(0, |family| family.cpu_ns));
        // CPU time that cannot be read is attributed to other processes.
        let ours =
            of_case.sum::<i64>() + family::usage(&tree, std::process::id()).map_or(0, |(cpu_ns, _)| cpu_ns);
        Cpu {
            at: Instant::now(),
            cpus: cpus as f64,
            all: (busy + idle) as f64,
            busy: busy as f64,
            stolen: stolen as f64,
            ours_ns: ours as f64,
        }
    }

    /// Returns the cores used by other processes since `before`.
    fn foreign_since(&self, before: &Cpu) -> f64 {
        let all = self.all - before.all;
        if all <= 0.0 {
            return 0.0;
        }
        let busy = (self.busy - before.busy) * self.cpus / all;
        let ours = (self.ours_ns - before.ours_ns) / self.at.duration_since(before.at).as_nanos() as f64;
        (busy - ours).max(0.0)
    }

    /// Returns the cores given to other guests since `before`.
    fn stolen_since(&self, before: &Cpu) -> f64 {
        let all = self.all - before.all;
        if all > 0.0 { (self.stolen - before.stolen) * self.cpus / all } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn the_last_line_of_a_log_is_found() {
        let last = |text: &str| {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(text.as_bytes()).unwrap();
            last_line(&file)
        };
        assert_eq!(last("starting\n  no such flag: +x \n\n").as_deref(), Some("no such flag: +x"));
        assert_eq!(last(&format!("{}\nthe end", "x".repeat(5_000))).as_deref(), Some("the end"));
        assert_eq!((last(""), last("\n \n")), (None, None));
    }
}
