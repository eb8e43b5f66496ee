//! Runs labs and software whose state is known, looks at each as `doctor` does, and judges what is said of it.
//!
//! Labs that others on the machine do not disturb run two at a time, all else alone. Each run is written to a file
//! as soon as it is over, so what was broken off goes on from there.

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
use beamtune_model::memory::{Bridge, moved_while_looking};
use beamtune_recording::{Plan, Reader, Selection, Stop};

use super::accepts::Accepts;
use super::judge::{Truth, causes, judge};
use super::kept::{Keep, Known};
use super::manifest::Manifest;
use super::otp::Installed;
use super::rows::{Judged, Kind, Row, Rows, Run, Setting};
use super::run::{Modules, Options, Running, Said};
use super::software::{self, Case};
use super::{Lab, page, synthetic};
use crate::access::AccessArgs;
use crate::subject::Live;
use crate::take::{Failed, Wish, take_into};
use crate::terminal;

/// As long as `doctor` looks if nothing else is said.
const LOOK: Duration = Duration::from_secs(10);
/// A lab is there within this, or cannot be.
const READY_WITHIN: Duration = Duration::from_secs(180);
/// A lab ends by itself after this, whatever becomes of us.
const LAB_SECONDS: u32 = 240;
/// A run that was wrong while others had the machine is repeated so often.
const REPEATS: u32 = 2;
/// Robust labs at a time, where there are as many CPUs.
const AT_A_TIME: usize = 2;
/// What a run takes before one has been seen: the mean of 700 runs, of which the look takes 10 s.
const USUAL_RUN: Duration = Duration::from_secs(12);

/// One run that is to be done.
pub struct Job<'a> {
    pub run: Run,
    pub what: What<'a>,
}

pub enum What<'a> {
    Lab(&'a Lab),
    Software(&'a Case),
    Synthetic(&'static synthetic::Case),
}

impl Job<'_> {
    fn is_robust(&self) -> bool {
        matches!(self.what, What::Lab(lab) if lab.manifest.robust)
    }

    /// Nothing is run, so it takes no time, and says nothing of how long others take.
    fn is_synthetic(&self) -> bool {
        self.run.kind == Kind::Synthetic
    }
}

/// What all runs have in common.
pub struct Evaluation {
    pub master: u64,
    pub stop: Stop,
    pub rows: Rows,
    keep: Keep,
    /// By release.
    places: BTreeMap<u32, Place>,
    day: String,
    cpus: usize,
    linux: String,
    /// How many there are, and how many have ended.
    progress: Mutex<Progress>,
}

/// An Erlang with what it has compiled and told.
struct Place {
    installed: Installed,
    modules: Arc<Modules>,
    accepts: Accepts,
}

#[derive(Default)]
struct Progress {
    total: usize,
    done: usize,
    /// Of these, those that took their time, and how much.
    timed: u32,
    took: Duration,
    /// Of each kind, those that have not begun.
    robust: usize,
    others: usize,
}

impl Evaluation {
    /// Compiles the labs on each release that one of these runs needs. The file of results is begun after that: what does not compile
    /// costs none that are there.
    pub fn prepare(
        master: u64,
        installed: &[Installed],
        jobs: &[Job<'_>],
        stop: Stop,
        keep: Keep,
        begin: impl FnOnce() -> Result<Rows>,
    ) -> Result<Evaluation> {
        let mut places = BTreeMap::new();
        for one in installed.iter().filter(|one| jobs.iter().any(|job| job.run.release == one.release)) {
            let modules = Arc::new(Modules::compile(&one.erlang)?);
            let accepts = Accepts::new(&one.erlang);
            places.insert(one.release, Place { installed: one.clone(), modules, accepts });
        }
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Ok(Evaluation {
            master,
            stop,
            rows: begin()?,
            keep,
            places,
            day: jiff::Zoned::now().strftime("%Y-%m-%d").to_string(),
            cpus: thread::available_parallelism().map_or(1, Into::into),
            linux: kernel.trim().split('.').take(2).collect::<Vec<_>>().join("."),
            progress: Mutex::new(Progress::default()),
        })
    }

    /// Does all of them, or as many as there are before it is to stop.
    pub fn run(&self, jobs: Vec<Job<'_>>) -> Result<()> {
        let (synthetic, jobs): (VecDeque<_>, VecDeque<_>) = jobs.into_iter().partition(Job::is_synthetic);
        let (robust, others): (VecDeque<_>, VecDeque<_>) = jobs.into_iter().partition(Job::is_robust);
        {
            let mut progress = self.progress();
            (progress.robust, progress.others) = (robust.len(), others.len());
            progress.total = synthetic.len() + robust.len() + others.len();
        }
        self.drain(synthetic, 1)?;
        self.drain(robust, AT_A_TIME.min(self.cpus))?;
        self.drain(others, 1)
    }

    fn drain(&self, jobs: VecDeque<Job<'_>>, at_a_time: usize) -> Result<()> {
        let jobs = Mutex::new(jobs);
        let work = || -> Result<()> {
            loop {
                let next = jobs.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                let Some(job) = next.filter(|_| !self.stop.is_requested()) else { return Ok(()) };
                // The other worker would go on for nobody.
                self.one(&job).inspect_err(|_| self.stop.request())?;
            }
        };
        thread::scope(|scope| {
            let workers: Vec<_> = (0..at_a_time).map(|_| scope.spawn(work)).collect();
            workers.into_iter().try_for_each(|worker| match worker.join() {
                Ok(ended) => ended,
                Err(_) => Err(anyhow!("a run has ended in the middle")),
            })
        })
    }

    /// One run with its repetitions.
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
            if row.faults().is_empty() || !row.is_disturbed() || attempts > REPEATS {
                break row;
            }
        };
        self.tell(&row, begin.elapsed());
        self.rows.add(row)
    }

    fn try_once(&self, job: &Job<'_>) -> Result<Judged> {
        let release = job.run.release;
        let place = || self.places.get(&release).with_context(|| format!("OTP {release} is not there"));
        match job.what {
            What::Synthetic(case) => {
                let accepts = self.places.get(&release).map(|place| &place.accepts);
                judge_synthetic(case, job.run.setting == Setting::Sick, release, accepts)
            }
            What::Lab(lab) => self.lab(lab, &job.run, place()?),
            What::Software(case) => {
                let started = software::start(case, &self.stop)?;
                let truth = Truth {
                    expect: &case.expect,
                    allow: &case.allow,
                    causes: causes(&case.expect, case.cause.as_ref()),
                    culprits: case.culprit.as_deref().into_iter().collect(),
                    is_sick: !case.expect.is_empty(),
                    foreign_cores: 0.0,
                    stolen_cores: 0.0,
                };
                let accepts = &place()?.accepts;
                self.examine(
                    &started.target().to_string(),
                    &started.processes(),
                    truth,
                    true,
                    &job.run,
                    accepts,
                )
            }
        }
    }

    fn lab(&self, lab: &Lab, run: &Run, place: &Place) -> Result<Judged> {
        let options = Options {
            seed: run.seed,
            cured: run.setting != Setting::Sick,
            erlang: place.installed.erlang.clone(),
            cores: run.cores,
            for_seconds: LAB_SECONDS,
            params: Vec::new(),
            // What they log would stand between the lines of the evaluation.
            errors: Some(Arc::new(tempfile::tempfile().context("cannot make a file for what the VM logs")?)),
        };
        let mut running = Running::start(lab, &options, &place.modules)?;
        let until = Instant::now() + READY_WITHIN;
        let ready = loop {
            if self.stop.is_requested() || Instant::now() > until {
                bail!("it was not ready within {} s", READY_WITHIN.as_secs());
            }
            match running.next(lab, &options, Duration::from_millis(100))? {
                Said::Ready(line) => break line,
                Said::Ended => {
                    let status = running.wait()?;
                    let said = options.errors.as_deref().and_then(last_line);
                    let said = said.map_or(String::new(), |line| format!("; it has said: {line}"));
                    bail!("its VM ended before it was ready: {status}{said}");
                }
                Said::Line(_) | Said::Nothing => {}
            }
        };
        let word = |key: &str| ready.split(' ').find_map(|word| word.strip_prefix(key));
        let node = word("node=").context("it does not tell its node's name")?;
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
        // A VM that ends now and then may do so before its memory has been read.
        let is_memory_due = !lab.manifest.setting(run.setting != Setting::Sick).host.restarts;
        let judged = self.examine(node, &running.processes(), truth, is_memory_due, run, &place.accepts)?;
        Ok(Judged { split: Some(lab.manifest.split), ..judged })
    }

    /// Looks at a VM as `doctor` does, and judges what is found. `own` are the processes of its case; what others use meanwhile is
    /// put into the truth.
    fn examine(
        &self,
        target: &str,
        own: &[u32],
        truth: Truth<'_>,
        is_memory_due: bool,
        run: &Run,
        accepts: &Accepts,
    ) -> Result<Judged> {
        let live = Live::find(Some(target), &AccessArgs::default())?;
        let wish = Wish::of(Duration::from_secs(1), Some(LOOK));
        let before = Cpu::now(own);
        let open = |_: &str| self.keep.writer(run);
        let taken = take_into(&live, &wish, Plan::default(), &self.stop, open, &mut |_| {});
        let (reader, _) = taken.map_err(Failed::into_error)?;
        let after = Cpu::now(own);
        let truth = Truth {
            foreign_cores: after.foreign_since(&before),
            stolen_cores: after.stolen_since(&before),
            ..truth
        };
        self.keep.note(&Known {
            run: run.clone(),
            culprits: owned(&truth.culprits),
            foreign_cores: truth.foreign_cores,
            stolen_cores: truth.stolen_cores,
            is_memory_due,
        })?;
        let judged = judge_recording(&reader, &truth, Some(accepts))?;
        Ok(Judged { is_memory_due, ..judged })
    }

    /// A line of progress.
    fn tell(&self, row: &Row, took: Duration) {
        let mut progress = self.progress();
        progress.done += 1;
        if row.run.kind != Kind::Synthetic {
            progress.timed += 1;
            progress.took += took;
        }
        let mean = progress.took.checked_div(progress.timed).unwrap_or(USUAL_RUN);
        let slots = progress.robust.div_ceil(AT_A_TIME.min(self.cpus)) + progress.others;
        let left = mean * u32::try_from(slots).unwrap_or(u32::MAX);
        terminal::complain(&format!(
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

/// Judges what a recording says. Remedies count only where a VM can be asked for their flags.
pub fn judge_recording(reader: &Reader, truth: &Truth<'_>, accepts: Option<&Accepts>) -> Result<Judged> {
    let period = Arc::new(reader.period(&Selection::default())?);
    let (mut judged, remedies) = judge(&beamtune_rules::diagnose(&period), truth);
    if let Some(accepts) = accepts {
        judged.remedies = remedies.len();
        for flags in remedies {
            judged.refused.extend((!accepts.takes(&flags)?).then(|| flags.join(" ")));
        }
    }
    let bridge = Bridge::of(&period);
    (judged.resident_bytes, judged.unexplained_bytes) = (bridge.resident, bridge.unexplained());
    judged.moved_bytes = moved_while_looking(&period) as i64;
    Ok(judged)
}

/// Judges the recording of a made-up node.
pub fn judge_synthetic(
    case: &synthetic::Case,
    is_sick: bool,
    release: u32,
    accepts: Option<&Accepts>,
) -> Result<Judged> {
    let (expect, allow) = (owned(case.expect), owned(case.allow));
    let truth = Truth {
        expect: &expect,
        allow: &allow,
        causes: causes(&expect, None),
        culprits: Vec::new(),
        is_sick,
        foreign_cores: 0.0,
        stolen_cores: 0.0,
    };
    judge_recording(&case.recording(is_sick, release)?, &truth, accepts)
}

/// Of the ready line: with commas between them, and `-` for none.
fn culprits(told: &str) -> Vec<&str> {
    told.split(',').filter(|culprit| *culprit != "-").collect()
}

/// The last line that is not empty; none where nothing can be read.
fn last_line(file: &File) -> Option<String> {
    const LONGEST_BYTES: u64 = 1_000;
    let length = file.metadata().map_or(0, |data| data.len());
    let mut end = vec![0; length.min(LONGEST_BYTES) as usize];
    // The VMs write at the common position.
    file.read_exact_at(&mut end, length.saturating_sub(LONGEST_BYTES)).ok()?;
    let text = String::from_utf8_lossy(&end);
    text.lines().map(str::trim).rfind(|line| !line.is_empty()).map(str::to_owned)
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}

/// How long so many runs take, by what is usual.
pub fn minutes(jobs: &[Job<'_>]) -> u64 {
    let robust = jobs.iter().filter(|job| job.is_robust()).count();
    let others = jobs.iter().filter(|job| !job.is_robust() && !job.is_synthetic()).count();
    let slots = robust.div_ceil(AT_A_TIME) + others;
    (slots as u64 * USUAL_RUN.as_secs()).div_ceil(60)
}

/// CPU time so far: of the machine, and of a case and of us. Another case beside it disturbs it as any other work does.
struct Cpu {
    at: Instant,
    cpus: f64,
    /// In ticks, all, those in which somebody had a CPU, and of these those of other guests.
    all: f64,
    busy: f64,
    stolen: f64,
    ours_ns: f64,
}

impl Cpu {
    /// `own` are the processes of the case.
    fn now(own: &[u32]) -> Cpu {
        let tree = LocalTree::default();
        let (busy, stolen, idle, cpus) = machine::cpu_times(&tree).map_or((0, 0, 0, 0), |times| {
            (times.busy_ticks + times.steal_ticks, times.steal_ticks, times.idle_ticks, times.cpus)
        });
        let of_case = own.iter().map(|pid| Family::of(&tree, *pid).map_or(0, |family| family.cpu_ns));
        // What cannot be read counts as others'.
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

    /// Cores that others have had since.
    fn foreign_since(&self, before: &Cpu) -> f64 {
        let all = self.all - before.all;
        if all <= 0.0 {
            return 0.0;
        }
        let busy = (self.busy - before.busy) * self.cpus / all;
        let ours = (self.ours_ns - before.ours_ns) / self.at.duration_since(before.at).as_nanos() as f64;
        (busy - ours).max(0.0)
    }

    /// Cores that the hypervisor has given to other guests since.
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
    fn what_a_vm_has_said_last_is_told() {
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
