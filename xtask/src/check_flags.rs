//! `cargo run -p xtask -- check-flags`: compares the data of the crate `flags` with real VMs.
//!
//! VMs of each installed release are started with every flag and variable: with values at and just beyond its bounds, with each accepted
//! word, with wrong words, and on releases that do not have the flag. The prediction ([`Entry::judge`]) is compared with the VM: whether it
//! starts, which value is in effect, and what `emu_args` lists. Options of tables, processes and sockets, and settings that can change at
//! run time, are set in a running VM. If prediction and VM differ, the data is wrong. Writes docs/vm-checks.md if nothing differs.

mod batches;
pub mod cases;
mod page;
pub mod vm;

use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use beamtune_flags::{Entry, Verdict, allocators, entries, parse_emu_args};

use cases::{Case, Given, Question};
use page::Tally;
use vm::{NO_VALUE, Outcome, Vm};

use crate::{repository, workers};

/// Command line of the subcommand.
pub const USAGE: &str = "cargo run -p xtask -- check-flags [--only FLAG] [--release N]";

/// Maximum number of expressions that one VM evaluates: Linux limits an argument of a program to 128 KiB.
const MAX_EXPRESSIONS: usize = 150;

/// The releases that a full check covers.
const RELEASES: [u32; 4] = [23, 25, 27, 29];

/// Options of the subcommand.
#[derive(Default)]
struct Options {
    only: Option<String>,
    release: Option<u32>,
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Option<Options> {
        let mut options = Options::default();
        while let Some(option) = arguments.next() {
            let value = arguments.next()?;
            match option.as_str() {
                "--only" => options.only = Some(value),
                "--release" => options.release = Some(value.parse().ok()?),
                _ => return None,
            }
        }
        Some(options)
    }

    fn is_full(&self) -> bool {
        self.only.is_none() && self.release.is_none()
    }

    fn includes_release(&self, release: u32) -> bool {
        self.release.is_none_or(|only| only == release)
    }

    fn includes(&self, entry: &Entry) -> bool {
        self.only.as_ref().is_none_or(|only| entry.id == *only)
    }
}

/// Runs the subcommand.
pub fn run(arguments: impl Iterator<Item = String>) -> ExitCode {
    let Some(options) = Options::parse(arguments) else {
        eprintln!("usage: {USAGE}");
        return ExitCode::from(2);
    };
    match check(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("check-flags could not run: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// What a VM is started to check.
enum Work {
    /// Cases that are started together in one VM.
    Cases(Vec<Case>),
    /// Settings that are changed in a running VM.
    Questions(Vec<Question>),
    /// All default values.
    Defaults,
}

/// A VM to start, and what to check with it.
struct Task<'v> {
    vm: &'v Vm,
    /// Index of the tally to which the results are added.
    tally: usize,
    work: Work,
}

fn check(options: &Options) -> Result<bool> {
    let begin = Instant::now();
    ensure!(
        entries().iter().any(|entry| options.includes(entry)),
        "no entry has the id {}",
        options.only.as_deref().unwrap_or_default()
    );
    let mut vms = vm::installed()?;
    vms.retain(|vm| options.includes_release(vm.release));
    for release in RELEASES.into_iter().filter(|&release| options.includes_release(release)) {
        if !vms.iter().any(|vm| vm.release == release) {
            eprintln!("skipped, because OTP {release} is not installed (make otp)");
        }
    }
    let mut tallies: Vec<Tally> = vms.iter().map(|vm| Tally::new(vm.release, &vm.version)).collect();
    let tasks = tasks(options, &vms)?;
    let total = tasks.len();
    let done = AtomicUsize::new(0);
    let reports = workers::run(tasks, |task| {
        let mut report = Tally::new(task.vm.release, &task.vm.version);
        if let Err(error) = task.run(&mut report) {
            report.differences.push(format!("OTP {}: could not run: {error:#}", task.vm.version));
        }
        let done = done.fetch_add(1, Ordering::Relaxed) + 1;
        if done.is_multiple_of(250) || done == total {
            eprintln!("{done} of {total} after {} s", begin.elapsed().as_secs());
        }
        Ok((task.tally, report))
    })?;
    for (tally, report) in reports {
        if let Some(tally) = tallies.get_mut(tally) {
            tally.add(report);
        }
    }
    let mut differences = 0;
    for difference in tallies.iter().flat_map(|tally| &tally.differences) {
        println!("{difference}");
        differences += 1;
    }
    println!("{differences} differences");
    for tally in &tallies {
        println!("{}", tally.line());
    }
    if differences == 0 && options.is_full() && vms.len() == RELEASES.len() {
        let page = repository::root()?.join("docs/vm-checks.md");
        std::fs::write(page, page::write(&tallies)).context("docs/vm-checks.md")?;
    }
    Ok(differences == 0)
}

fn tasks<'v>(options: &Options, vms: &'v [Vm]) -> Result<Vec<Task<'v>>> {
    let mut tasks = Vec::new();
    for (tally, vm) in vms.iter().enumerate() {
        ensure!(
            matches!(vm.start(&Given::default(), &[], true)?, Outcome::Booted { .. }),
            "OTP {} does not start without flags under the limits of fatal cases",
            vm.release
        );
        let included = || entries().iter().filter(move |entry| options.includes(entry));
        let questions: Vec<_> = included().flat_map(|entry| cases::questions(entry, vm)).collect();
        let cases: Vec<_> = included().flat_map(|entry| cases::of(entry, vm)).collect();
        let defaults = options.only.is_none().then_some(Work::Defaults);
        let work = defaults
            .into_iter()
            .chain(questions.chunks(MAX_EXPRESSIONS).map(|some| Work::Questions(some.to_vec())))
            .chain(batches::batches(cases).into_iter().map(Work::Cases));
        tasks.extend(work.map(|work| Task { vm, tally, work }));
    }
    Ok(tasks)
}

impl Task<'_> {
    fn run(&self, report: &mut Tally) -> Result<()> {
        match &self.work {
            Work::Cases(cases) => self.start(cases, report),
            Work::Questions(questions) => self.ask(questions, report),
            Work::Defaults => self.defaults(report),
        }
    }

    /// Starts all cases in one VM; if one of them differs, starts each of them alone.
    fn start(&self, cases: &[Case], report: &mut Tally) -> Result<()> {
        if let [case] = cases {
            return self.start_one(case, report);
        }
        let given = Given {
            args: cases.iter().flat_map(|case| case.given.args.clone()).collect(),
            environment: cases.iter().flat_map(|case| case.given.environment.clone()).collect(),
        };
        let expressions: Vec<_> = cases.iter().filter_map(|case| case.effective.clone()).collect();
        report.starts += 1;
        if let Outcome::Booted { values, args } = self.vm.start(&given, &expressions, false)? {
            let mut values = values.into_iter();
            let mut together = report.empty();
            for case in cases {
                let value = case.effective.as_ref().and_then(|_| values.next());
                self.compare(case, value.as_deref(), &args, &mut together);
            }
            if together.differences.is_empty() {
                report.add(together);
                return Ok(());
            }
        }
        report.split += 1;
        cases.iter().try_for_each(|case| self.start_one(case, report))
    }

    fn start_one(&self, case: &Case, report: &mut Tally) -> Result<()> {
        let expressions: Vec<_> = case.effective.iter().cloned().collect();
        let is_fatal = matches!(case.expected, Verdict::Fatal { .. });
        report.starts += 1;
        report.entries.insert(&case.entry.id);
        match (&case.expected, self.vm.start(&case.given, &expressions, is_fatal)?) {
            (Verdict::Accepted { .. }, Outcome::Booted { values, args }) => {
                self.compare(case, values.first().map(String::as_str), &args, report);
            }
            (Verdict::Refused { .. }, Outcome::Refused { .. }) => report.refused += 1,
            (Verdict::Fatal { why }, Outcome::Died { .. } | Outcome::Hung) => {
                report.fatal.insert(case.name(), why.clone());
            }
            (expected, outcome) => self.differs(&case.name(), expected, &outcome.describe(), report),
        }
        Ok(())
    }

    /// Compares a started VM with a case that the VM should accept.
    fn compare(&self, case: &Case, value: Option<&str>, args: &[String], report: &mut Tally) {
        report.accepted += 1;
        report.entries.insert(&case.entry.id);
        if let (Verdict::Accepted { effective: Some(expect), .. }, Some(actual)) = (&case.expected, value) {
            report.values += 1;
            if expect != actual {
                self.differs(&case.name(), &case.expected, &format!("{actual} in effect"), report);
            }
        }
        if let Some((flag, value)) = &case.listed {
            report.listings += 1;
            let settings = parse_emu_args(args);
            let setting = settings.iter().find(|setting| setting.flag == *flag);
            if setting.is_none_or(|setting| setting.value != *value) {
                self.differs(&case.name(), &case.expected, &format!("emu_args {args:?}"), report);
            }
        }
    }

    /// Sets values in a running VM.
    fn ask(&self, questions: &[Question], report: &mut Tally) -> Result<()> {
        let expressions: Vec<_> = questions.iter().map(|question| question.expression.clone()).collect();
        let values = self.evaluate(&expressions, report)?;
        for (question, actual) in questions.iter().zip(&values) {
            report.questions += 1;
            report.asked.insert(&question.entry.id);
            let failed = actual.starts_with(NO_VALUE);
            let agrees = match &question.expected {
                Verdict::Accepted { effective: Some(expect), .. } => actual == expect,
                Verdict::Accepted { effective: None, .. } => !failed,
                _ => failed,
            };
            if !agrees {
                let name = format!("{} {}", question.entry.id, question.value);
                self.differs(&name, &question.expected, actual, report);
            }
        }
        Ok(())
    }

    /// Compares the defaults of flags, of settings of a running VM, and of every allocator.
    fn defaults(&self, report: &mut Tally) -> Result<()> {
        let version = &self.vm.version;
        let mut asked = Vec::new();
        for entry in entries().iter().filter(|entry| entry.works_in(version.clone())) {
            let Some(default) = entry.default_value_in(version.clone()) else { continue };
            let expression = match &entry.probe {
                Some(probe) => Some(probe.expression(None)),
                None => cases::expression(entry, None),
            };
            let verdict = entry.judge(&cases::question(Some(default), self.vm, Some('B')));
            if let (Some(expression), Verdict::Accepted { effective: Some(expect), .. }) =
                (expression, verdict)
            {
                asked.push((entry.id.clone(), expect, expression));
            }
        }
        for allocator in allocators().iter().filter(|allocator| allocator.exists_in(version.clone())) {
            let schedulers = u64::from(self.vm.machine.processors);
            for (option, expect) in allocator.default_options(version.clone(), schedulers) {
                let expression = format!(
                    "proplists:get_value({option}, proplists:get_value(options, \
                     element(3, lists:last(erlang:system_info({{allocator, {}}})))))",
                    allocator.name
                );
                asked.push((format!("{option} of {}", allocator.name), expect, expression));
            }
        }
        for some in asked.chunks(MAX_EXPRESSIONS) {
            let expressions: Vec<_> = some.iter().map(|(_, _, expression)| expression.clone()).collect();
            let values = self.evaluate(&expressions, report)?;
            for ((name, expect, _), actual) in some.iter().zip(&values) {
                report.defaults += 1;
                if expect != actual {
                    let difference = format!("default of {name}: expected {expect}, got {actual}");
                    report.differences.push(format!("OTP {version}: {difference}"));
                }
            }
        }
        Ok(())
    }

    /// Returns the values of expressions in a VM without flags.
    fn evaluate(&self, expressions: &[String], report: &mut Tally) -> Result<Vec<String>> {
        report.starts += 1;
        match self.vm.start(&Given::default(), expressions, false)? {
            Outcome::Booted { values, .. } => Ok(values),
            outcome => anyhow::bail!("a VM without flags does not start: {}", outcome.describe()),
        }
    }

    fn differs(&self, name: &str, expected: &Verdict, actual: &str, report: &mut Tally) {
        let expected = match expected {
            Verdict::Accepted { effective: Some(value), .. } => format!("{value} in effect"),
            Verdict::Accepted { .. } => "accepted".to_owned(),
            Verdict::Refused { why } => format!("rejected ({why})"),
            Verdict::Fatal { why } => format!("fatal ({why})"),
            Verdict::Unknown { why } => format!("unknown ({why})"),
        };
        report
            .differences
            .push(format!("OTP {}: {name}: expected {expected}, got {actual}", self.vm.version));
    }
}
