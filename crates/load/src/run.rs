//! A whole run: threads of this process, or of several processes where one's descriptors do not suffice.
//!
//! A process that helps is started with an order on its standard input and tells of its seconds on its standard output, a
//! line each. It ends when its input does, so none is left behind however we end.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

use beamtune_model::load::LoadResult;
use serde::{Deserialize, Serialize};

use crate::LoadError;
use crate::collect::{Collector, OnSecond, Run};
use crate::engine::{self, Share, Spell};
use crate::program::Plan;

/// What a thread tells; threads of all processes are numbered through.
#[derive(Serialize, Deserialize)]
enum Told {
    Spell(usize, Box<Spell>),
    End(usize, Option<String>),
}

/// Which threads of all run here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The number of the first.
    pub first: usize,
    /// How many.
    pub threads: usize,
    /// Of all processes together.
    pub of: usize,
}

/// Runs a plan in so many threads of this process, until its time is over or `stop` is set. `on_second` is told of each
/// second when all threads are through with it.
///
/// # Errors
/// If a thread cannot be started or the system refuses what it must not; the other threads are stopped then.
pub fn run(
    plan: &Plan,
    threads: usize,
    stop: &AtomicBool,
    about: Run,
    on_second: &mut OnSecond<'_>,
) -> Result<LoadResult, LoadError> {
    let mut gathered = Gathered::new(plan, threads);
    let part = Part { first: 0, threads, of: threads };
    run_part(plan, part, stop, &mut |told| gathered.take(told, stop, on_second))?;
    gathered.finish(plan, Run { processes: 1, threads: threads as u32, ..about }, stop)
}

/// Runs a part of a plan for another process: tells of it on `output`, until `stop` is set.
///
/// # Errors
/// As [`run`], and if nobody reads what is told.
pub fn serve(plan: &Plan, part: Part, stop: &AtomicBool, output: &mut dyn Write) -> Result<(), LoadError> {
    let mut unheard = None;
    run_part(plan, part, stop, &mut |told| {
        let line = serde_json::to_string(&told).map_err(std::io::Error::from);
        let written = line.and_then(|line| writeln!(output, "{line}").and_then(|()| output.flush()));
        if let Err(cause) = written {
            stop.store(true, Ordering::Relaxed);
            unheard.get_or_insert(LoadError::System {
                what: "nobody reads what this part of the load tells",
                cause,
            });
        }
    })?;
    unheard.map_or(Ok(()), Err)
}

/// Runs a plan in other processes: each command is given its order as the first line of its input, and must then do as
/// [`serve`]. Each has so many threads.
///
/// # Errors
/// As [`run`], and if a process cannot be started or ends before its time.
pub fn lead(
    plan: &Plan,
    parts: Vec<(Command, Part, String)>,
    stop: &AtomicBool,
    about: Run,
    on_second: &mut OnSecond<'_>,
) -> Result<LoadResult, LoadError> {
    let threads = parts.iter().map(|(_, part, _)| part.threads).sum();
    let about = Run { processes: parts.len() as u32, threads: threads as u32, ..about };
    let mut gathered = Gathered::new(plan, threads);
    let (tell, told) = mpsc::channel();
    let mut workers = Vec::new();
    for (command, part, order) in parts {
        workers.push(Worker::start(command, part, &order, tell.clone())?);
    }
    drop(tell);
    loop {
        match told.recv_timeout(LOOK) {
            Ok(told) => gathered.take(told, stop, on_second),
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

/// How often the wish to stop is looked at.
const LOOK: std::time::Duration = std::time::Duration::from_millis(100);

/// What was told so far.
struct Gathered {
    collector: Collector,
    trouble: Option<LoadError>,
}

impl Gathered {
    fn new(plan: &Plan, threads: usize) -> Self {
        Self { collector: Collector::new(plan, threads), trouble: None }
    }

    fn take(&mut self, told: Told, stop: &AtomicBool, on_second: &mut OnSecond<'_>) {
        match told {
            Told::Spell(thread, spell) => self.collector.add(thread, *spell, on_second),
            Told::End(thread, trouble) => {
                if let Some(words) = trouble {
                    stop.store(true, Ordering::Relaxed);
                    self.trouble.get_or_insert(LoadError::Part { words });
                }
                self.collector.end(thread, on_second);
            }
        }
    }

    fn finish(self, plan: &Plan, about: Run, stop: &AtomicBool) -> Result<LoadResult, LoadError> {
        match self.trouble {
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
    tell_us: &mut dyn FnMut(Told),
) -> Result<(), LoadError> {
    thread::scope(|scope| {
        let (tell, told) = mpsc::channel();
        let mut refused = Ok(());
        for index in part.first..part.first + part.threads {
            let tell = tell.clone();
            let started =
                thread::Builder::new().name(format!("load {index}")).spawn_scoped(scope, move || {
                    let share = Share { index: index as u64, of: part.of as u64 };
                    let outcome = engine::run(plan, share, stop, &mut |spell| {
                        // The receiver lives until all senders have gone.
                        let _ = tell.send(Told::Spell(index, Box::new(spell)));
                    });
                    let _ = tell.send(Told::End(index, outcome.err().map(|error| error.to_string())));
                });
            if let Err(cause) = started {
                stop.store(true, Ordering::Relaxed);
                refused = Err(LoadError::System { what: "a thread cannot be started", cause });
                break;
            }
        }
        drop(tell);
        told.into_iter().for_each(tell_us);
        refused
    })
}

/// A process that runs a part.
struct Worker {
    child: Child,
    input: Option<ChildStdin>,
}

impl Worker {
    fn start(
        mut command: Command,
        part: Part,
        order: &str,
        tell: mpsc::Sender<Told>,
    ) -> Result<Self, LoadError> {
        let trouble =
            |cause| LoadError::System { what: "a process for a part of the load cannot be started", cause };
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(trouble)?;
        let (mut input, output) = (child.stdin.take(), child.stdout.take());
        // From here on it is ended whatever happens.
        let mut worker = Self { child, input: None };
        if let Some(input) = &mut input {
            writeln!(input, "{order}").and_then(|()| input.flush()).map_err(trouble)?;
        }
        worker.input = input;
        if let Some(output) = output {
            thread::Builder::new()
                .name("load part".to_owned())
                .spawn(move || read_worker(BufReader::new(output), part, &tell))
                .map_err(trouble)?;
        }
        Ok(worker)
    }

    /// Its input ends, so it ends by itself and tells what it has.
    fn stop(&mut self) {
        self.input = None;
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop();
        // Its output has ended, or it could not be started: nothing is lost if it does not go by itself.
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Hands on what a process tells. What of its threads has not ended when its output has, ended before its time.
fn read_worker(output: impl BufRead, part: Part, tell: &mpsc::Sender<Told>) {
    let mut left: Vec<usize> = (part.first..part.first + part.threads).collect();
    let mut words = "a process of the load ended before its time".to_owned();
    for line in output.lines() {
        let told = match line.map(|line| serde_json::from_str::<Told>(&line)) {
            Ok(Ok(told)) => told,
            Ok(Err(error)) => {
                words = format!("a process of the load said what is not understood: {error}");
                break;
            }
            Err(_) => break,
        };
        if let Told::End(thread, _) = &told {
            left.retain(|index| index != thread);
        }
        let _ = tell.send(told);
    }
    for thread in left {
        let _ = tell.send(Told::End(thread, Some(words.clone())));
    }
}
