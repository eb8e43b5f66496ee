//! Runs a plan in threads of this process, or in several processes if one process has too few descriptors.
//!
//! A worker process reads its instructions from standard input and writes one JSON line per report to standard output. It ends when its
//! input ends, so no worker survives this process, however this process ends.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

use beamtune_model::load::LoadResult;
use serde::{Deserialize, Serialize};

use crate::LoadError;
use crate::collect::{Collector, OnSecond, Run};
use crate::engine::{self, Share, ThreadSecond};
use crate::program::Plan;

/// A report of a thread. Threads are numbered over all processes.
#[derive(Serialize, Deserialize)]
enum Report {
    /// The results of one second of this thread.
    Second(usize, Box<ThreadSecond>),
    /// This thread has ended. Contains its error if it failed.
    End(usize, Option<String>),
}

/// The threads of a run that belong to one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Number of the first thread.
    pub first: usize,
    /// Number of threads in this process.
    pub threads: usize,
    /// Number of threads in all processes.
    pub of: usize,
}

/// Runs a plan in threads of this process, until the plan's time is over or `stop` is set. Calls `on_second` for each second that all
/// threads have finished.
///
/// # Errors
/// If a thread cannot be started or a system call fails; the other threads are stopped.
pub fn run(
    plan: &Plan,
    threads: usize,
    stop: &AtomicBool,
    about: Run,
    on_second: &mut OnSecond<'_>,
) -> Result<LoadResult, LoadError> {
    let mut gathered = Gathered::new(plan, threads);
    let part = Part { first: 0, threads, of: threads };
    run_part(plan, part, stop, &mut |report| gathered.add(report, stop, on_second))?;
    gathered.finish(plan, Run { processes: 1, threads: threads as u32, ..about }, stop)
}

/// Runs one part of a plan in a worker process, until `stop` is set. Writes reports to `output`.
///
/// # Errors
/// As for [`run`], and if a report cannot be written.
pub fn run_worker(
    plan: &Plan,
    part: Part,
    stop: &AtomicBool,
    output: &mut dyn Write,
) -> Result<(), LoadError> {
    let mut failure = None;
    run_part(plan, part, stop, &mut |report| {
        let line = serde_json::to_string(&report).map_err(std::io::Error::from);
        let written = line.and_then(|line| writeln!(output, "{line}").and_then(|()| output.flush()));
        if let Err(cause) = written {
            stop.store(true, Ordering::Relaxed);
            failure.get_or_insert(LoadError::System {
                what: "cannot report to the process that started this part of the load",
                cause,
            });
        }
    })?;
    failure.map_or(Ok(()), Err)
}

/// Runs a plan in worker processes. Each command gets its instructions as the first line of its standard input, and must then call
/// [`serve`].
///
/// # Errors
/// As for [`run`], and if a process cannot be started or ends too early.
pub fn run_in_workers(
    plan: &Plan,
    parts: Vec<(Command, Part, String)>,
    stop: &AtomicBool,
    about: Run,
    on_second: &mut OnSecond<'_>,
) -> Result<LoadResult, LoadError> {
    let threads = parts.iter().map(|(_, part, _)| part.threads).sum();
    let about = Run { processes: parts.len() as u32, threads: threads as u32, ..about };
    let mut gathered = Gathered::new(plan, threads);
    let (sender, reports) = mpsc::channel();
    let mut workers = Vec::new();
    for (command, part, order) in parts {
        workers.push(Worker::start(command, part, &order, sender.clone())?);
    }
    drop(sender);
    loop {
        match reports.recv_timeout(STOP_POLL_INTERVAL) {
            Ok(report) => gathered.add(report, stop, on_second),
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
        }
        if stop.load(Ordering::Relaxed) {
            workers.iter_mut().for_each(Worker::stop);
        }
    }
    drop(workers);
    gathered.finish(plan, about, stop)
}

/// Interval at which `stop` is checked.
const STOP_POLL_INTERVAL: std::time::Duration = std::time::Duration::from_millis(100);

/// The reports received so far.
struct Gathered {
    collector: Collector,
    error: Option<LoadError>,
}

impl Gathered {
    fn new(plan: &Plan, threads: usize) -> Self {
        Self { collector: Collector::new(plan, threads), error: None }
    }

    fn add(&mut self, report: Report, stop: &AtomicBool, on_second: &mut OnSecond<'_>) {
        match report {
            Report::Second(thread, second) => self.collector.add(thread, *second, on_second),
            Report::End(thread, error) => {
                if let Some(words) = error {
                    stop.store(true, Ordering::Relaxed);
                    self.error.get_or_insert(LoadError::Part { words });
                }
                self.collector.end(thread, on_second);
            }
        }
    }

    fn finish(self, plan: &Plan, about: Run, stop: &AtomicBool) -> Result<LoadResult, LoadError> {
        match self.error {
            Some(error) => Err(error),
            None => {
                let is_interrupted = about.is_interrupted || stop.load(Ordering::Relaxed);
                Ok(self.collector.finish(plan, &Run { is_interrupted, ..about }))
            }
        }
    }
}

fn run_part(
    plan: &Plan,
    part: Part,
    stop: &AtomicBool,
    on_report: &mut dyn FnMut(Report),
) -> Result<(), LoadError> {
    thread::scope(|scope| {
        let (sender, reports) = mpsc::channel();
        let mut outcome = Ok(());
        for index in part.first..part.first + part.threads {
            let sender = sender.clone();
            let started =
                thread::Builder::new().name(format!("load {index}")).spawn_scoped(scope, move || {
                    let share = Share { index: index as u64, of: part.of as u64 };
                    let outcome = engine::run(plan, share, stop, &mut |second| {
                        // This cannot fail: the receiver outlives all senders.
                        let _ = sender.send(Report::Second(index, Box::new(second)));
                    });
                    let _ = sender.send(Report::End(index, outcome.err().map(|error| error.to_string())));
                });
            if let Err(cause) = started {
                stop.store(true, Ordering::Relaxed);
                outcome = Err(LoadError::System { what: "cannot start a thread of the load", cause });
                break;
            }
        }
        drop(sender);
        reports.into_iter().for_each(on_report);
        outcome
    })
}

/// A process that runs a part of a plan.
struct Worker {
    child: Child,
    input: Option<ChildStdin>,
}

impl Worker {
    fn start(
        mut command: Command,
        part: Part,
        order: &str,
        sender: mpsc::Sender<Report>,
    ) -> Result<Self, LoadError> {
        let error = |cause| LoadError::System { what: "cannot start a process of the load", cause };
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(error)?;
        let (mut input, output) = (child.stdin.take(), child.stdout.take());
        // From here on, `drop` ends the process, even after an error.
        let mut worker = Self { child, input: None };
        if let Some(input) = &mut input {
            writeln!(input, "{order}").and_then(|()| input.flush()).map_err(error)?;
        }
        worker.input = input;
        if let Some(output) = output {
            thread::Builder::new()
                .name("load part".to_owned())
                .spawn(move || read_worker(BufReader::new(output), part, &sender))
                .map_err(error)?;
        }
        Ok(worker)
    }

    /// Closes the input of the process, which then reports its last results and ends.
    fn stop(&mut self) {
        self.input = None;
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop();
        // The output of the process has ended, or its start failed: killing it loses nothing.
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Forwards the reports of a process. If the output ends before a thread has reported its end, that thread has failed.
fn read_worker(output: impl BufRead, part: Part, sender: &mpsc::Sender<Report>) {
    let mut running: Vec<usize> = (part.first..part.first + part.threads).collect();
    let mut words = "a process of the load ended too early".to_owned();
    for line in output.lines() {
        let report = match line.map(|line| serde_json::from_str::<Report>(&line)) {
            Ok(Ok(report)) => report,
            Ok(Err(error)) => {
                words = format!("cannot parse a report of a process of the load: {error}");
                break;
            }
            Err(_) => break,
        };
        if let Report::End(thread, _) = &report {
            running.retain(|index| index != thread);
        }
        let _ = sender.send(report);
    }
    for thread in running {
        let _ = sender.send(Report::End(thread, Some(words.clone())));
    }
}
