//! `cargo run -p xtask -- check-lint [FOLDER…]`: compares the linter's findings with real VMs.
//!
//! Every file in the folders (default: fixtures/args) is linted for each installed release, and a VM of that release is started with the
//! file's flags. The VM must start if the linter reports no error, and must not start if it does. Otherwise the linter is wrong.
//!
//! Some flags are not passed to the VM: those that need the rest of a release (`-boot`, `-config`, `-s` …), those that leave processes
//! behind (`-detached`, `-heart`), the node's name, and flags with a template or variable, whose value is unknown.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use beamtune_flags::lint::{File, Level, Target, lint};
use beamtune_flags::source::{Fragment, Place, Role, Word, detect, read};

use crate::check_flags::cases::Given;
use crate::check_flags::vm::{self, Outcome, Vm};
use crate::{repository, workers};

/// Command line of the subcommand.
pub const USAGE: &str = "cargo run --release -p xtask -- check-lint [FOLDER…]";

/// Flags that are not passed to the VM, nor their values.
const LEFT_OUT: &[&str] = &[
    "-args_file",
    "-boot",
    "-boot_var",
    "-config",
    "-configfd",
    "-detached",
    "-eval",
    "-heart",
    "-init_debug",
    "-mode",
    "-name",
    // This flag is rejected without -proto_dist.
    "-no_epmd",
    "-proto_dist",
    "-remsh",
    "-run",
    "-s",
    "-sname",
    "-ssl_dist_optfile",
    "-user",
];

/// A file with flags.
struct FlagFile {
    path: PathBuf,
    fragments: Vec<Fragment>,
}

/// Results of one release.
#[derive(Debug)]
struct Tally {
    started: usize,
    not_started: usize,
    /// Files for which the linter was wrong.
    wrong: Vec<String>,
}

impl Tally {
    fn of(outcomes: &[(bool, Option<String>)]) -> Tally {
        let started = outcomes.iter().filter(|(started, _)| *started).count();
        let wrong = outcomes.iter().filter_map(|(_, wrong)| wrong.clone()).collect();
        Tally { started, not_started: outcomes.len() - started, wrong }
    }
}

/// Runs the subcommand.
pub fn run(arguments: impl Iterator<Item = String>) -> ExitCode {
    let folders: Vec<PathBuf> = arguments.map(PathBuf::from).collect();
    match check(&folders) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("check-lint could not run: {error:#}\nusage: {USAGE}");
            ExitCode::from(2)
        }
    }
}

fn check(folders: &[PathBuf]) -> Result<bool> {
    let default = [repository::root()?.join("fixtures/args")];
    let mut files = Vec::new();
    let mut unread = 0;
    for folder in if folders.is_empty() { &default[..] } else { folders } {
        collect(folder, &mut files, &mut unread)?;
    }
    if files.is_empty() {
        bail!("the folders contain no file with flags");
    }
    let vms = vm::installed()?;
    println!("{} files with flags, {unread} not read, {} releases", files.len(), vms.len());
    let tasks: Vec<(&FlagFile, &Vm)> =
        vms.iter().flat_map(|vm| files.iter().map(move |file| (file, vm))).collect();
    let outcomes = workers::run(tasks, |(file, vm)| judge(file, vm))?;
    let tallies: Vec<Tally> = outcomes.chunks(files.len()).map(Tally::of).collect();
    for (vm, tally) in vms.iter().zip(&tallies) {
        for wrong in &tally.wrong {
            println!("OTP {}: {wrong}", vm.version);
        }
    }
    for (vm, tally) in vms.iter().zip(&tallies) {
        println!(
            "OTP {}: {} files start, {} do not; the linter is wrong on {}",
            vm.version,
            tally.started,
            tally.not_started,
            tally.wrong.len()
        );
    }
    Ok(tallies.iter().all(|tally| tally.wrong.is_empty()))
}

/// Returns the paths of the files with flags in a folder and its subfolders, sorted.
pub fn files_with_flags(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    collect(folder, &mut files, &mut 0)?;
    Ok(files.into_iter().map(|file| file.path).collect())
}

/// Adds the files with flags in a folder and its subfolders, sorted by path.
fn collect(folder: &Path, files: &mut Vec<FlagFile>, unread: &mut usize) -> Result<()> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut paths: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    paths.sort();
    for path in paths {
        if path.is_dir() {
            collect(&path, files, unread)?;
            continue;
        }
        let Ok(text) = std::fs::read_to_string(&path) else {
            *unread += 1;
            continue;
        };
        let Some(format) = detect(&path.to_string_lossy(), &text) else { continue };
        match read(format, &text) {
            Ok(fragments) if fragments.iter().any(|fragment| !fragment.words.is_empty()) => {
                files.push(FlagFile { path, fragments });
            }
            Ok(_) => {}
            Err(_) => *unread += 1,
        }
    }
    Ok(())
}

/// Returns whether the VM started and, if the linter was wrong, how.
fn judge(file: &FlagFile, vm: &Vm) -> Result<(bool, Option<String>)> {
    let target = Target { releases: vec![vm.release], machine: Some(vm.machine) };
    let findings = lint(&[File { fragments: &file.fragments }], &target);
    let errors: Vec<_> = findings
        .iter()
        .filter(|finding| finding.level == Level::Error)
        .map(|finding| format!("{} {}", finding.code, finding.message))
        .collect();
    let outcome = vm.start(&given(&file.fragments), &[], !errors.is_empty())?;
    let started = matches!(outcome, Outcome::Booted { .. });
    let wrong = (started != errors.is_empty()).then(|| {
        let reported = if errors.is_empty() { "no error".to_owned() } else { errors.join("; ") };
        format!("{}: linter: {reported}; VM: {}", file.path.display(), outcome.describe())
    });
    Ok((started, wrong))
}

/// Returns the arguments and the environment that the launcher would build from the fragments, in the launcher's order.
fn given(fragments: &[Fragment]) -> Given {
    let mut given = Given::default();
    let mut ordered: Vec<&Fragment> = fragments.iter().collect();
    ordered.sort_by_key(|fragment| fragment.place.order());
    for fragment in ordered {
        match &fragment.place {
            Place::ArgsFile { .. } | Place::CommandLine { .. } | Place::RunningNode => {
                given.args.extend(startable(&fragment.words));
            }
            Place::Variable { name, effect } if effect.ignored.is_none() && !effect.for_tool => {
                match effect.role {
                    Role::Words => given.args.extend(startable(&fragment.words)),
                    Role::ValueOf(flags) => {
                        let values: Vec<_> = fragment.words.iter().filter(|word| !word.dynamic).collect();
                        if let [value] = values[..] {
                            given.args.extend(
                                flags.iter().flat_map(|flag| [(*flag).to_owned(), value.text.clone()]),
                            );
                        }
                    }
                    Role::ReadByVm => {
                        if let [word] = &fragment.words[..]
                            && !word.dynamic
                        {
                            given.environment.push((name.clone(), word.text.clone()));
                        }
                    }
                }
            }
            Place::Variable { .. } | Place::FileNames => {}
        }
    }
    given
}

/// Returns the words without the flags that are not passed, up to `-extra` or `--`: after these, the arguments that each start appends
/// would be plain arguments.
fn startable(words: &[Word]) -> Vec<String> {
    let words = words.split(|word| word.text == "-extra" || word.text == "--").next().unwrap_or_default();
    let is_flag = |word: &Word| word.text.starts_with('-') || word.text.starts_with('+');
    let mut kept = Vec::new();
    for group in words.chunk_by(|_, next| !is_flag(next)) {
        let left_out = group.first().is_some_and(|flag| LEFT_OUT.contains(&flag.text.as_str()));
        if !left_out && !group.iter().any(|word| word.dynamic) {
            kept.extend(group.iter().map(|word| word.text.clone()));
        }
    }
    kept
}
