//! `cargo run -p xtask -- check-flags`: what the data of the crate `flags` says, held against real VMs.
//!
//! Every flag and variable is given to each release that is installed: absent, at the bounds of what it takes and
//! just outside, with each of its words, with wrong ones, and where the release does not have it. What the data says
//! ([`Entry::judge`]) is compared with what the VM does: whether it starts, which value it then has in effect, and
//! what it lists in `emu_args`. Options of tables, processes and sockets, and what is set at run time, are set in a VM
//! that runs. The VM is right. Writes docs/vm-checks.md when all agree.

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

/// How it is called.
pub const USAGE: &str = "cargo run -p xtask -- check-flags [--only FLAG] [--release N]";

/// Questions to one running VM: an argument of a program holds 128 KiB.
const QUESTIONS_AT_A_TIME: usize = 150;

/// The releases that a full check wants.
const RELEASES: [u32; 4] = [23, 25, 27, 29];

/// What the user wants.
#[derive(Default)]
struct Wish {
    only: Option<String>,
    release: Option<u32>,
}

impl Wish {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Option<Wish> {
        let mut wish = Wish::default();
        while let Some(option) = arguments.next() {
            let value = arguments.next()?;
            match option.as_str() {
                "--only" => wish.only = Some(value),
                "--release" => wish.release = Some(value.parse().ok()?),
                _ => return None,
            }
        }
        Some(wish)
    }

    fn is_all(&self) -> bool {
        self.only.is_none() && self.release.is_none()
    }

    fn wants_release(&self, release: u32) -> bool {
        self.release.is_none_or(|wished| wished == release)
    }

    fn wants(&self, entry: &Entry) -> bool {
        self.only.as_ref().is_none_or(|only| entry.id == *only)
    }
}

/// Runs the subcommand.
pub fn run(arguments: impl Iterator<Item = String>) -> ExitCode {
    let Some(wish) = Wish::parse(arguments) else {
        eprintln!("usage: {USAGE}");
        return ExitCode::from(2);
    };
    match check(&wish) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("check-flags could not run: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// What one start is for.
enum Work {
    /// Cases that share it.
    Cases(Vec<Case>),
    /// Questions to a VM that runs.
    Questions(Vec<Question>),
    /// All values that are in effect when nothing is given.
    Defaults,
}

/// Work for a VM, and where its results go.
struct Task<'v> {
    vm: &'v Vm,
    tally: usize,
    work: Work,
}

fn check(wish: &Wish) -> Result<bool> {
    let begin = Instant::now();
    ensure!(
        entries().iter().any(|entry| wish.wants(entry)),
        "{} is the id of no entry",
        wish.only.as_deref().unwrap_or_default()
    );
    let mut vms = vm::installed()?;
    vms.retain(|vm| wish.wants_release(vm.release));
    for release in RELEASES.into_iter().filter(|&release| wish.wants_release(release)) {
        if !vms.iter().any(|vm| vm.release == release) {
            eprintln!("skipped, because OTP {release} is not installed (make otp)");
        }
    }
    let mut tallies: Vec<Tally> = vms.iter().map(|vm| Tally::new(vm.release, &vm.version)).collect();
    let tasks = tasks(wish, &vms)?;
    let all = tasks.len();
    let done = AtomicUsize::new(0);
    let reports = workers::run(tasks, |task| {
        let mut report = Tally::new(task.vm.release, &task.vm.version);
        if let Err(error) = task.run(&mut report) {
            report.differences.push(format!("OTP {}: could not run: {error:#}", task.vm.version));
        }
        let done = done.fetch_add(1, Ordering::Relaxed) + 1;
        if done.is_multiple_of(250) || done == all {
            eprintln!("{done} of {all} after {} s", begin.elapsed().as_secs());
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
    if differences == 0 && wish.is_all() && vms.len() == RELEASES.len() {
        let page = repository::root()?.join("docs/vm-checks.md");
        std::fs::write(page, page::write(&tallies)).context("docs/vm-checks.md")?;
    }
    Ok(differences == 0)
}

fn tasks<'v>(wish: &Wish, vms: &'v [Vm]) -> Result<Vec<Task<'v>>> {
    let mut tasks = Vec::new();
    for (tally, vm) in vms.iter().enumerate() {
        ensure!(
            matches!(vm.start(&Given::default(), &[], true)?, Outcome::Booted { .. }),
            "OTP {} does not even start without flags, as fatal cases are run",
            vm.release
        );
        let wanted = || entries().iter().filter(move |entry| wish.wants(entry));
        let questions: Vec<_> = wanted().flat_map(|entry| cases::questions(entry, vm)).collect();
        let cases: Vec<_> = wanted().flat_map(|entry| cases::of(entry, vm)).collect();
        let defaults = wish.only.is_none().then_some(Work::Defaults);
        let work = defaults
            .into_iter()
            .chain(questions.chunks(QUESTIONS_AT_A_TIME).map(|some| Work::Questions(some.to_vec())))
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

    /// Starts cases together, and where they do not all agree, one by one.
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

    /// Compares what a VM that has started shows of a case that it should accept.
    fn compare(&self, case: &Case, value: Option<&str>, args: &[String], report: &mut Tally) {
        report.accepted += 1;
        report.entries.insert(&case.entry.id);
        if let (Verdict::Accepted { effective: Some(expect), .. }, Some(seen)) = (&case.expected, value) {
            report.values += 1;
            if expect != seen {
                self.differs(&case.name(), &case.expected, &format!("{seen} in effect"), report);
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

    /// Has a running VM set values.
    fn ask(&self, questions: &[Question], report: &mut Tally) -> Result<()> {
        let expressions: Vec<_> = questions.iter().map(|question| question.expression.clone()).collect();
        let values = self.evaluate(&expressions, report)?;
        for (question, seen) in questions.iter().zip(&values) {
            report.questions += 1;
            report.asked.insert(&question.entry.id);
            let failed = seen.starts_with(NO_VALUE);
            let agrees = match &question.expected {
                Verdict::Accepted { effective: Some(expect), .. } => seen == expect,
                Verdict::Accepted { effective: None, .. } => !failed,
                _ => failed,
            };
            if !agrees {
                let name = format!("{} {}", question.entry.id, question.value);
                self.differs(&name, &question.expected, seen, report);
            }
        }
        Ok(())
    }

    /// Compares what is in effect when nothing is given: of flags, of options that a running VM is asked for, and of
    /// every allocator.
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
        for some in asked.chunks(QUESTIONS_AT_A_TIME) {
            let expressions: Vec<_> = some.iter().map(|(_, _, expression)| expression.clone()).collect();
            let values = self.evaluate(&expressions, report)?;
            for ((name, expect, _), seen) in some.iter().zip(&values) {
                report.defaults += 1;
                if expect != seen {
                    report
                        .differences
                        .push(format!("OTP {version}: {name} by default: expected {expect}, seen {seen}"));
                }
            }
        }
        Ok(())
    }

    /// The values of expressions on a VM without flags.
    fn evaluate(&self, expressions: &[String], report: &mut Tally) -> Result<Vec<String>> {
        report.starts += 1;
        match self.vm.start(&Given::default(), expressions, false)? {
            Outcome::Booted { values, .. } => Ok(values),
            outcome => anyhow::bail!("a VM without flags: seen {}", outcome.describe()),
        }
    }

    fn differs(&self, name: &str, expected: &Verdict, seen: &str, report: &mut Tally) {
        let expected = match expected {
            Verdict::Accepted { effective: Some(value), .. } => format!("{value} in effect"),
            Verdict::Accepted { .. } => "that it is taken".to_owned(),
            Verdict::Refused { why } => format!("that it is refused ({why})"),
            Verdict::Fatal { why } => format!("that it does not survive ({why})"),
            Verdict::Unknown { why } => format!("nothing ({why})"),
        };
        report.differences.push(format!("OTP {}: {name}: expected {expected}, seen {seen}", self.vm.version));
    }
}
