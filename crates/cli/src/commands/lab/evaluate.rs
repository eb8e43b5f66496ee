//! `beamtune lab evaluate`: measures how often diagnoses of nodes with known faults are right.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use beamtune_recording::Stop;

use crate::lab::evaluate::{Evaluation, Job, Workload, minutes};
use crate::lab::manifest::CORES;
use crate::lab::otp::{self, Installed};
use crate::lab::recordings::{self, RecordingStore};
use crate::lab::rows::{Kind, Row, Rows, Run, Setting, is_same};
use crate::lab::software::{self, Case};
use crate::lab::{Lab, all, elixir, nif, page, synthetic};
use crate::recorder::stop_on_signals;
use crate::releases::{Releases, parse_releases};
use crate::terminal;

/// Run all labs and real software, and measure how often doctor is right
///
/// Labs run in their sick and healthy variants. Faults that cannot be produced are evaluated from synthetic recordings, and counted
/// separately. Takes two hours on an idle host, half an hour with --quick. After Ctrl-C, continue with --resume.
///
/// Exit status: 0 = all right, 1 = a run was wrong, 2 = failed.
#[derive(clap::Args)]
pub struct Args {
    /// OTP releases: this host's own, and those from make otp
    #[arg(long, value_name = "LIST", value_parser = parse_releases, default_value = "23,25,27,29")]
    otp: Releases,
    /// Run each lab on one release only, chosen by the seed
    ///
    /// Labs that need the host for themselves always run in their sick variant, but only half of them also run in their healthy one.
    #[arg(long)]
    quick: bool,
    /// Run only these labs, software cases and synthetic recordings
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    labs: Vec<String>,
    /// Run only labs that tolerate other work on the host
    #[arg(long)]
    robust: bool,
    /// Number of CPUs to size labs for; this host should have as many
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=64), default_value_t = CORES)]
    cores: u32,
    /// Master seed, from which all other seeds are derived [default: random]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Continue: skip runs whose results are in the file
    #[arg(long, conflicts_with_all = ["fresh", "seed"])]
    resume: bool,
    /// Replace results in the file; with --labs, only those of these labs
    #[arg(long)]
    fresh: bool,
    /// File for results, one line of JSON per run
    #[arg(short, long, value_name = "FILE", default_value = "lab-evaluation.jsonl")]
    output: PathBuf,
    /// Keep the recordings in this folder, for beamtune lab judge
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
    /// Update the section between the markers in this Markdown page
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<ExitCode> {
    let before = Rows::read(&args.output)?;
    if !before.is_empty() && !args.resume && !args.fresh {
        bail!("{} contains results: --resume continues, --fresh replaces them", args.output.display());
    }
    let old_master = before.last().map(|row| row.master).filter(|_| args.resume);
    let master = args.seed.or(old_master).unwrap_or_else(random_seed);
    let own = otp::own();
    let installed = installed(&args.otp, own.as_ref());
    let (labs, cases) = (all()?, software::all()?);
    check_names(&args.labs, &labs, &cases)?;
    let mut jobs = jobs_of_labs(args, master, &installed, &labs);
    jobs.extend(jobs_of_software(args, master, own.as_ref(), &installed, &cases));
    jobs.extend(jobs_of_synthetic(args, master));
    if jobs.is_empty() {
        bail!("none of the requested runs is possible here: install Erlang, or run make otp");
    }
    let planned: Vec<Run> = jobs.iter().map(|job| job.run.clone()).collect();
    let is_planned = |run: &Run| planned.iter().any(|other| is_same(other, run));
    let is_kept = |row: &&Row| {
        // A run of all labs replaces everything, since another seed may choose other releases.
        let stays =
            if args.resume { row.error.is_none() } else { !args.labs.is_empty() && !is_planned(&row.run) };
        // A case that was renamed or removed cannot be graded any more.
        stays && is_known(&row.run.case, &labs, &cases)
    };
    let kept: Vec<Row> = before.iter().filter(is_kept).cloned().collect();
    jobs.retain(|job| !kept.iter().any(|row| is_same(&row.run, &job.run)));
    terminal::complain(&format!(
        "master seed {master}; {} runs, about {} min; results in {}\n",
        jobs.len(),
        minutes(&jobs),
        args.output.display()
    ));
    let stop = Stop::default();
    stop_on_signals(&stop)?;
    let begin = || {
        if kept.len() < before.len() {
            back_up(&args.output)?;
        }
        Rows::begin(&args.output, kept)
    };
    let store = RecordingStore::new(args.keep.as_deref())?;
    let evaluation = Evaluation::prepare(master, &installed, &jobs, stop, store, begin)?;
    evaluation.run(jobs)?;
    let is_complete = !evaluation.stop.is_requested();
    print_results(args.page.as_deref(), &evaluation.rows.into_sorted(), is_complete, &planned)
}

/// Grade recordings of lab evaluate --keep again, with the current rules
///
/// No VM is started, so remedies are not tried. Exit status: 0 = all right, 1 = a run was wrong, 2 = failed.
#[derive(clap::Args)]
pub struct JudgeArgs {
    /// Folder with the recordings
    folder: PathBuf,
    /// Write the results to this file, one line of JSON per run
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Runs the subcommand.
pub fn judge_again(args: &JudgeArgs) -> Result<ExitCode> {
    let rows = recordings::judge_all(&args.folder)?;
    if let Some(output) = &args.output {
        Rows::begin(output, rows.clone())?;
    }
    let planned: Vec<Run> = rows.iter().map(|row| row.run.clone()).collect();
    print_results(None, &rows, true, &planned)
}

/// Copies a file before its results are replaced, since producing them may have taken two hours.
fn back_up(output: &Path) -> Result<()> {
    let mut copy = output.as_os_str().to_owned();
    copy.push(".before");
    std::fs::copy(output, &copy).with_context(|| format!("cannot write {}", copy.display()))?;
    terminal::complain(&format!("copied {} to {}\n", output.display(), copy.display()));
    Ok(())
}

/// Prints the results, and writes the page. The exit status depends on the planned runs only.
fn print_results(
    write_to: Option<&Path>,
    rows: &[Row],
    is_complete: bool,
    planned: &[Run],
) -> Result<ExitCode> {
    let (synthetic, measured): (Vec<Row>, Vec<Row>) =
        rows.iter().cloned().partition(|row| row.run.kind == Kind::Synthetic);
    for rows in [&measured, &synthetic].into_iter().filter(|rows| !rows.is_empty()) {
        terminal::print(&format!("{}\n", page::table(rows, terminal::style())));
    }
    page::sums(&measured).iter().for_each(|sum| terminal::print(&format!("{sum}\n")));
    if !synthetic.is_empty() {
        terminal::print(&format!("{}\n", page::synthetic(&synthetic)));
    }
    if !is_complete {
        bail!("interrupted before all runs were done; continue with --resume");
    }
    if let Some(path) = write_to {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let text = page::replaced(&text, &page::section(rows)).with_context(|| path.display().to_string())?;
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let is_planned = |row: &&Row| planned.iter().any(|run| is_same(run, &row.run));
    let all_right = rows.iter().filter(is_planned).all(|row| row.faults().is_empty());
    Ok(if all_right { ExitCode::SUCCESS } else { ExitCode::from(terminal::FOUND) })
}

/// Returns the installed releases, and reports the others as skipped.
fn installed(wanted: &Releases, own: Option<&Installed>) -> Vec<Installed> {
    let find = |release: &u32| {
        let found = otp::find(*release, own);
        match &found {
            None => skip(&format!("OTP {release} is not installed (make otp)")),
            Some(one) if one.erlang.root.is_some() && !is_root() => {
                skip(&format!("OTP {release} is in a root file system of its own, and chroot needs root"));
                return None;
            }
            Some(_) => {}
        }
        found
    };
    wanted.0.iter().filter_map(find).collect()
}

fn skip(why: &str) {
    terminal::complain(&format!("skipped, because {why}\n"));
}

fn is_known(name: &str, labs: &[Lab], cases: &[Case]) -> bool {
    labs.iter().any(|lab| lab.manifest.name == name)
        || cases.iter().any(|case| case.name == name)
        || synthetic::CASES.iter().any(|case| case.name == name)
}

fn check_names(names: &[String], labs: &[Lab], cases: &[Case]) -> Result<()> {
    match names.iter().find(|name| !is_known(name, labs, cases)) {
        Some(name) => bail!("no lab or case {name:?}; list them with: beamtune lab list"),
        None => Ok(()),
    }
}

fn jobs_of_labs<'a>(args: &Args, master: u64, installed: &[Installed], labs: &'a [Lab]) -> Vec<Job<'a>> {
    let (root, compiler) = (is_root(), nif::has_compiler());
    let mut jobs = Vec::new();
    for (index, lab) in labs.iter().enumerate() {
        let manifest = &lab.manifest;
        let name = &manifest.name;
        if !is_wanted(args, name) || (args.robust && !manifest.robust) {
            continue;
        }
        if manifest.needs_root && !root {
            skip(&format!("lab {name} needs root"));
            continue;
        }
        if manifest.nif.is_some() && !compiler {
            skip(&format!("lab {name} needs a C compiler"));
            continue;
        }
        let new_enough = || installed.iter().filter(|one| one.release >= manifest.min_otp);
        let has_elixir = |one: &&Installed| manifest.elixir.is_none() || elixir::is_installed(&one.erlang);
        let mut suitable: Vec<&Installed> = new_enough().filter(has_elixir).collect();
        if suitable.is_empty() {
            match new_enough().next() {
                None => skip(&format!("lab {name} needs OTP {}", manifest.min_otp)),
                Some(_) => skip(&format!("lab {name} needs Elixir")),
            }
            continue;
        }
        if args.quick {
            suitable = vec![suitable[(index + master as usize) % suitable.len()]];
        }
        for one in suitable {
            let seed = seed(master, name, one.release);
            // These labs take most of the time; half an hour is not enough for both variants of all.
            let is_sick_only = args.quick && !manifest.robust && seed % 2 == 1;
            let settings: &[Setting] = match manifest.sick {
                Some(_) if is_sick_only => &[Setting::Sick],
                Some(_) => &[Setting::Sick, Setting::Cured],
                None => &[Setting::Healthy],
            };
            jobs.extend(settings.iter().map(|setting| Job {
                run: Run {
                    case: name.clone(),
                    kind: Kind::Lab,
                    release: one.release,
                    setting: *setting,
                    seed,
                    cores: args.cores,
                },
                what: Workload::Lab(lab),
            }));
        }
    }
    jobs
}

/// Lists the runs of software, which run on this host's own Erlang only.
fn jobs_of_software<'a>(
    args: &Args,
    master: u64,
    own: Option<&Installed>,
    installed: &[Installed],
    cases: &'a [Case],
) -> Vec<Job<'a>> {
    let mut jobs = Vec::new();
    let mut wanted = cases.iter().filter(|case| is_wanted(args, &case.name) && !args.robust).peekable();
    let Some(own) = own.filter(|own| installed.iter().any(|one| one.release == own.release)) else {
        if wanted.peek().is_some() {
            skip("software needs this host's own Erlang, whose release was not requested");
        }
        return jobs;
    };
    for case in wanted {
        if let Some(why) = case.missing() {
            skip(&format!("{}: {why}", case.name));
            continue;
        }
        let setting = if case.expect.is_empty() { Setting::Healthy } else { Setting::Sick };
        let seed = seed(master, &case.name, own.release);
        jobs.push(Job {
            run: Run {
                case: case.name.clone(),
                kind: Kind::Software,
                release: own.release,
                setting,
                seed,
                cores: CORES,
            },
            what: Workload::Software(case),
        });
    }
    jobs
}

/// Lists the runs of synthetic recordings. They need no VM, so all requested releases are possible.
fn jobs_of_synthetic(args: &Args, master: u64) -> Vec<Job<'static>> {
    let mut jobs = Vec::new();
    for case in synthetic::CASES.iter().filter(|case| is_wanted(args, case.name)) {
        for release in case.releases().filter(|release| args.otp.0.contains(release)) {
            jobs.extend([Setting::Sick, Setting::Healthy].map(|setting| Job {
                run: Run {
                    case: case.name.to_owned(),
                    kind: Kind::Synthetic,
                    release,
                    setting,
                    seed: seed(master, case.name, release),
                    cores: CORES,
                },
                what: Workload::Synthetic(case),
            }));
        }
    }
    jobs
}

fn is_wanted(args: &Args, name: &str) -> bool {
    args.labs.is_empty() || args.labs.iter().any(|wanted| wanted == name)
}

/// Returns a number that differs between evaluations.
fn random_seed() -> u64 {
    jiff::Timestamp::now().as_nanosecond().unsigned_abs() as u64 % 1_000_000_000
}

/// Returns the seed of a case on a release, which is the same for all variants (FNV-1a).
fn seed(master: u64, case: &str, release: u32) -> u32 {
    let hash = format!("{master} {case} {release}").bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash >> 32) as u32 % 1_000_000
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_depend_on_case_release_and_master_seed() {
        assert_eq!(seed(1, "a", 25), seed(1, "a", 25));
        for other in [seed(2, "a", 25), seed(1, "b", 25), seed(1, "a", 27)] {
            assert_ne!(seed(1, "a", 25), other);
        }
    }
}
