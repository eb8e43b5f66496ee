//! Records a day of a large, busy, synthetic node, reads the recording, and prints the cost of both.
//!
//! ```text
//! cargo run --release -p beamtune-recording --example day                     the whole day; fails if a limit is exceeded
//! cargo run --release -p beamtune-recording --example day -- write FILE HOURS
//! cargo run --release -p beamtune-recording --example day -- read FILE
//! cargo run --release -p beamtune-recording --example day -- real FILE SECONDS  in real time
//! ```
//!
//! Writing and reading run in separate processes, so that the memory use of each is measured separately.

#![allow(clippy::print_stdout, reason = "the program prints")]

#[path = "day/synthetic.rs"]
mod synthetic;

use std::cell::Cell;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::rc::Rc;
use std::time::{Duration, Instant};

use beamtune_model::units::SECOND_NS;
use beamtune_model::{
    Clock, Nanos, SampleBuilder, SampleRequest, SeriesTable, Source, SourceTrouble, Span, Tick,
};
use beamtune_recording::{Existing, Plan, Reader, Selection, Sources, Stop, SystemClock, Writer, record};
use synthetic::{Host, Node, Vm};

type Failure = Box<dyn Error>;

/// Seed of the node's numbers.
const SEED: u64 = 2;

fn main() -> Result<ExitCode, Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [] => day(),
        ["write", file, hours] => write(Path::new(file), hours.parse()?),
        ["read", file] => read(Path::new(file)),
        ["real", file, seconds] => real(Path::new(file), seconds.parse()?),
        _ => Err("unknown arguments; see the head of examples/day.rs".into()),
    }
}

/// Prints a measured value with its limit. Returns false if the value exceeds the limit.
fn report(what: &str, value: f64, unit: &str, limit: Option<f64>) -> bool {
    let holds = limit.is_none_or(|limit| value < limit);
    let limit = limit.map(|limit| format!("below {limit} {unit}")).unwrap_or_default();
    println!("| {what} | {value:.1} {unit} | {limit}{} |", if holds { "" } else { " BROKEN" });
    holds
}

fn verdict(holds: &[bool]) -> ExitCode {
    if holds.iter().all(|holds| *holds) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn day() -> Result<ExitCode, Failure> {
    let directory = tempfile::tempdir()?;
    let file: PathBuf = directory.path().join("day.btr");
    let this = std::env::current_exe()?;
    println!("| what | measured | limit |\n|---|---|---|");
    let mut holds = Vec::new();
    for arguments in [vec!["write", "FILE", "24"], vec!["read", "FILE"]] {
        let status = Command::new(&this)
            .args(arguments.into_iter().map(|argument| match argument {
                "FILE" => file.as_os_str(),
                other => other.as_ref(),
            }))
            .status()?;
        holds.push(status.success());
    }
    Ok(verdict(&holds))
}

/// A clock that moves only during sleeps.
struct VirtualClock(Cell<Nanos>);

impl Clock for VirtualClock {
    fn now(&self) -> Nanos {
        self.0.get()
    }

    fn wall(&self) -> i64 {
        1_700_000_000 * SECOND_NS + self.0.get()
    }

    fn sleep_until(&self, until: Nanos) {
        self.0.set(until);
    }
}

/// A source that stores when `collect` returned. From then until progress is reported, time is spent in recorder and writer.
struct Timed<'a>(Vm, &'a Cell<Instant>);

impl Source for Timed<'_> {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn request(&mut self, ask: SampleRequest, clock: &dyn Clock) -> Result<(), SourceTrouble> {
        self.0.request(ask, clock)
    }

    fn collect(
        &mut self,
        deadline: Nanos,
        clock: &dyn Clock,
        out: &mut SampleBuilder<'_>,
    ) -> Result<Span, SourceTrouble> {
        let span = self.0.collect(deadline, clock, out);
        self.1.set(Instant::now());
        span
    }
}

fn write(file: &Path, hours: i64) -> Result<ExitCode, Failure> {
    let seconds = hours * 3_600;
    let generating = generating()?;
    let start = cpu()?;
    let (bytes_before, mut times) = (written_bytes()?, Vec::new());
    let mut writer = Writer::create(file, Existing::Replace)?;
    let node = Node::new(SEED);
    let collected = Cell::new(Instant::now());
    let (mut vm, mut host) = (Timed(Vm(Rc::clone(&node), None), &collected), Host(node));
    let plan = Plan { length: Some((seconds - 1) * SECOND_NS), ..Plan::default() };
    let sources = Sources { vm: Some(&mut vm), host: Some(&mut host) };
    let outcome = record(&plan, sources, &VirtualClock(Cell::new(0)), &Stop::default(), &mut writer, |_| {
        times.push(collected.get().elapsed());
    })?;
    let finishing = Instant::now();
    let reader = writer.finish()?;
    let finish = finishing.elapsed();
    let used = cpu()? - start;
    let samples = outcome.samples as f64;
    let size = fs::metadata(file)?.len() as f64;

    times.sort_unstable();
    let percentile = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
    let per_day = size / seconds as f64 * 86_400.0;
    let series = reader.series()?.len() as f64;
    report("recorded", hours as f64, "h", None);
    report("series", series, "", None);
    let mut holds = vec![report("size of a day", per_day / 1e6, "MB", Some(500.0))];
    let written = (written_bytes()? - bytes_before) as f64;
    report("bytes written to disk, per second", written / samples / 1e3, "kB", None);
    report(
        "CPU time per sample, recorder and writer",
        used.as_secs_f64() / samples * 1e3 - generating,
        "ms",
        None,
    );
    report("CPU time per sample, generating it", generating, "ms", None);
    report("storing a sample, median", percentile(0.5), "ms", None);
    report("storing a sample, 99th percentile", percentile(0.99), "ms", None);
    report("storing a sample, longest", percentile(1.0), "ms", None);
    report("closing", finish.as_secs_f64() * 1e3, "ms", None);
    holds.push(report("memory while recording", peak_rss_mb()?, "MB", Some(80.0)));
    Ok(verdict(&holds))
}

/// Measures the CPU time for generating one sample, in milliseconds.
fn generating() -> Result<f64, Failure> {
    const SAMPLES: i64 = 2_000;
    let node = Node::new(SEED);
    let (mut vm, mut host) = (Vm(Rc::clone(&node), None), Host(node));
    let clock = VirtualClock(Cell::new(0));
    let mut table = SeriesTable::default();
    let start = cpu()?;
    for second in 0..SAMPLES {
        let t = second * SECOND_NS;
        let tick = Tick { t, incarnation: 0, vm: None, host: None, late: 0 };
        let mut out = SampleBuilder::new(&mut table, tick);
        vm.request(SampleRequest { seq: second as u64, t, detail: second % 10 == 0 }, &clock)?;
        host.collect(t, &clock, &mut out)?;
        vm.collect(t, &clock, &mut out)?;
    }
    Ok((cpu()? - start).as_secs_f64() / SAMPLES as f64 * 1e3)
}

fn read(file: &Path) -> Result<ExitCode, Failure> {
    let start = Instant::now();
    let reader = Reader::open(file)?;
    let opened = start.elapsed();
    let lives = reader.recorded_incarnations()?;
    let (listed, cpu_before) = (start.elapsed(), cpu()?);
    let period = reader.period(&Selection::default())?;
    let (all, cpu_used) = (start.elapsed(), cpu()? - cpu_before);
    assert_eq!(lives.first().map(|life| life.ticks), Some(period.ticks));
    let holds = [
        report("opening", opened.as_secs_f64() * 1e3, "ms", Some(1_000.0)),
        report("opening and counting the ticks", listed.as_secs_f64() * 1e3, "ms", None),
        report("reading all of it into a period", (all - listed).as_secs_f64(), "s", Some(10.0)),
        report("CPU time of that", cpu_used.as_secs_f64(), "s", None),
        report("memory while reading", peak_rss_mb()?, "MB", Some(200.0)),
    ];
    Ok(verdict(&holds))
}

fn real(file: &Path, seconds: i64) -> Result<ExitCode, Failure> {
    let stop = Stop::default();
    let clock = SystemClock::new(stop.clone());
    let (start, bytes_before, mut times) = (cpu()?, written_bytes()?, Vec::new());
    let mut writer = Writer::create(file, Existing::Replace)?;
    let node = Node::new(SEED);
    let collected = Cell::new(Instant::now());
    let (mut vm, mut host) = (Timed(Vm(Rc::clone(&node), None), &collected), Host(node));
    let plan = Plan { length: Some(seconds * SECOND_NS), ..Plan::default() };
    let sources = Sources { vm: Some(&mut vm), host: Some(&mut host) };
    let outcome =
        record(&plan, sources, &clock, &stop, &mut writer, |_| times.push(collected.get().elapsed()))?;
    let reader = writer.finish()?;
    let late: Vec<Nanos> = reader.samples().filter_map(Result::ok).map(|sample| sample.tick.late).collect();
    let samples = outcome.samples as f64;
    times.sort_unstable();
    let percentile = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
    report("samples", samples, "", None);
    report("missed ticks", outcome.missed as f64, "", None);
    report("latest sample", late.iter().copied().max().unwrap_or(0) as f64 / 1e6, "ms", None);
    report(
        "CPU, including generating the numbers",
        (cpu()? - start).as_secs_f64() / seconds as f64 * 100.0,
        "% of a core",
        None,
    );
    report(
        "bytes written to disk, per second",
        (written_bytes()? - bytes_before) as f64 / samples / 1e3,
        "kB",
        None,
    );
    report("storing a sample, median", percentile(0.5), "ms", None);
    report("storing a sample, 99th percentile", percentile(0.99), "ms", None);
    report("storing a sample, longest", percentile(1.0), "ms", None);
    let holds = report("memory while recording", peak_rss_mb()?, "MB", Some(80.0));
    Ok(verdict(&[holds]))
}

/// Returns the CPU time used by this process, in steps of 10 ms.
fn cpu() -> Result<Duration, Failure> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    // The name in parentheses may contain spaces; utime and stime are fields 14 and 15 (proc(5)).
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: u64 =
        fields.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Ok(Duration::from_millis(ticks * 10))
}

fn peak_rss_mb() -> Result<f64, Failure> {
    let kilobytes: f64 = field("/proc/self/status", "VmHWM:")?.trim_end_matches("kB").trim().parse()?;
    Ok(kilobytes * 1_024.0 / 1e6)
}

fn written_bytes() -> Result<u64, Failure> {
    Ok(field("/proc/self/io", "write_bytes:")?.parse()?)
}

fn field(file: &str, name: &str) -> Result<String, Failure> {
    let content = fs::read_to_string(file)?;
    let line = content.lines().find_map(|line| line.strip_prefix(name)).ok_or("no such line in /proc")?;
    Ok(line.trim().to_owned())
}
