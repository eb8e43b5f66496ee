//! `beamtune lab evaluate`: how often a diagnosis is right, where the truth is known.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use beamtune_recording::Stop;

use crate::lab::evaluate::{Evaluation, Job, What, minutes};
use crate::lab::kept::{self, Keep};
use crate::lab::manifest::CORES;
use crate::lab::otp::{self, Installed};
use crate::lab::rows::{Kind, Row, Rows, Run, Setting, is_same};
use crate::lab::software::{self, Case};
use crate::lab::{Lab, all, elixir, nif, page, synthetic};
use crate::releases::{Releases, parse_releases};
use crate::take::stop_on_signals;
use crate::terminal;

/// Run all labs, sick and cured, and real software, look at each as doctor does, and say how often that is right. What no machine
/// at hand can be sick with is judged by recordings that are made up, and counted apart.
///
/// Takes two hours on a quiet machine, half an hour with --quick. Ctrl-C ends it; --resume goes on from there.
/// Exit status: 0 = all right, 1 = something is not, 2 = could not do the work.
#[derive(clap::Args)]
pub struct Args {
    /// The OTP releases: this host's own, and those that `make otp` has made.
    #[arg(long, value_name = "LIST", value_parser = parse_releases, default_value = "23,25,27,29")]
    otp: Releases,
    /// Each lab on one of the releases, a different one from lab to lab and from seed to seed; of those that must have the
    /// machine alone, every second one cured too.
    #[arg(long)]
    quick: bool,
    /// Only these labs, cases of software and synthetic recordings.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    labs: Vec<String>,
    /// Only labs that show what they show also beside other work on the machine.
    #[arg(long)]
    robust: bool,
    /// CPUs of the machine that labs are to be sick on: as many schedulers, and work for them. This machine should have as many.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=64), default_value_t = CORES)]
    cores: u32,
    /// The seed of all seeds; drawn itself if not given.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Go on: what is in the file already is not run again.
    #[arg(long, conflicts_with_all = ["fresh", "seed"])]
    resume: bool,
    /// Run all that is asked for, in place of what the file has of the same.
    #[arg(long)]
    fresh: bool,
    /// Where results are kept, a line of JSON for each run.
    #[arg(short, long, value_name = "FILE", default_value = "lab-evaluation.jsonl")]
    output: PathBuf,
    /// Keep the recording of each run in this folder; `beamtune lab judge FOLDER` judges them again.
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
    /// Write what all rows of the file say between the marks of this page.
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<ExitCode> {
    let before = Rows::read(&args.output)?;
    if !before.is_empty() && !args.resume && !args.fresh {
        bail!("{} has results: --resume goes on, --fresh measures anew", args.output.display());
    }
    let old_master = before.last().map(|row| row.master).filter(|_| args.resume);
    let master = args.seed.or(old_master).unwrap_or_else(drawn);
    let own = otp::own();
    let installed = installed(&args.otp, own.as_ref());
    let (labs, cases) = (all()?, software::all()?);
    check_names(&args.labs, &labs, &cases)?;
    let mut jobs = jobs_of_labs(args, master, &installed, &labs);
    jobs.extend(jobs_of_software(args, master, own.as_ref(), &installed, &cases));
    jobs.extend(jobs_of_synthetic(args, master));
    if jobs.is_empty() {
        bail!("nothing of what was asked for can be run here: install Erlang, or run make otp");
    }
    let planned: Vec<Run> = jobs.iter().map(|job| job.run.clone()).collect();
    let is_planned = |run: &Run| planned.iter().any(|other| is_same(other, run));
    let is_kept = |row: &&Row| {
        let stays = if args.resume { row.error.is_none() } else { !is_planned(&row.run) };
        // Of a case that was renamed or taken away nobody could say whether it is right.
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
            keep_aside(&args.output)?;
        }
        Rows::begin(&args.output, kept)
    };
    let keep = Keep::in_folder(args.keep.as_deref())?;
    let evaluation = Evaluation::prepare(master, &installed, &jobs, stop, keep, begin)?;
    evaluation.run(jobs)?;
    let is_whole = !evaluation.stop.is_requested();
    tell(args.page.as_deref(), &evaluation.rows.into_sorted(), is_whole, &planned)
}

/// Judge the recordings that `lab evaluate --keep` wrote again, with the rules of this version.
///
/// Runs no VM, so remedies are not tried. Exit status: 0 = all right, 1 = something is not, 2 = failed.
#[derive(clap::Args)]
pub struct JudgeArgs {
    /// The folder.
    folder: PathBuf,
    /// Write the results to this file, a line of JSON for each run.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Runs the subcommand.
pub fn judge_again(args: &JudgeArgs) -> Result<ExitCode> {
    let rows = kept::judge_all(&args.folder)?;
    if let Some(output) = &args.output {
        Rows::begin(output, rows.clone())?;
    }
    let planned: Vec<Run> = rows.iter().map(|row| row.run.clone()).collect();
    tell(None, &rows, true, &planned)
}

/// Keeps what a file has beside it: two hours of results are not lost to a try.
fn keep_aside(output: &Path) -> Result<()> {
    let mut aside = output.as_os_str().to_owned();
    aside.push(".before");
    std::fs::copy(output, &aside).with_context(|| format!("cannot write {}", aside.display()))?;
    terminal::complain(&format!("what {} had is kept in {}\n", output.display(), aside.display()));
    Ok(())
}

/// Prints what there is, and writes the page. Whether all is right is asked of the planned runs alone.
fn tell(write_to: Option<&Path>, rows: &[Row], is_whole: bool, planned: &[Run]) -> Result<ExitCode> {
    let (synthetic, measured): (Vec<Row>, Vec<Row>) =
        rows.iter().cloned().partition(|row| row.run.kind == Kind::Synthetic);
    for rows in [&measured, &synthetic].into_iter().filter(|rows| !rows.is_empty()) {
        terminal::print(&format!("{}\n", page::table(rows, terminal::style())));
    }
    page::sums(&measured).iter().for_each(|sum| terminal::print(&format!("{sum}\n")));
    if !synthetic.is_empty() {
        terminal::print(&format!("{}\n", page::synthetic(&synthetic)));
    }
    if !is_whole {
        bail!("it was ended before all runs were done: --resume goes on");
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

/// The releases that are here; of the others it is said that they are not.
fn installed(wanted: &Releases, own: Option<&Installed>) -> Vec<Installed> {
    let find = |release: &u32| {
        let found = otp::find(*release, own);
        match &found {
            None => skip(&format!("OTP {release} is not installed (make otp)")),
            Some(one) if one.erlang.root.is_some() && !is_root() => {
                skip(&format!("OTP {release} has a root folder of its own, and chroot needs root"));
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
        Some(name) => bail!("there is no lab and no case {name:?}: beamtune lab list shows the labs"),
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
            skip(&format!("the lab {name} needs root"));
            continue;
        }
        if manifest.nif.is_some() && !compiler {
            skip(&format!("the lab {name} needs a C compiler"));
            continue;
        }
        let new_enough = || installed.iter().filter(|one| one.release >= manifest.min_otp);
        let has_elixir = |one: &&Installed| manifest.elixir.is_none() || elixir::is_installed(&one.erlang);
        let mut able: Vec<&Installed> = new_enough().filter(has_elixir).collect();
        if able.is_empty() {
            match new_enough().next() {
                None => skip(&format!("the lab {name} needs OTP {}", manifest.min_otp)),
                Some(_) => skip(&format!("the lab {name} needs Elixir")),
            }
            continue;
        }
        if args.quick {
            able = vec![able[(index + master as usize) % able.len()]];
        }
        for one in able {
            let seed = seed(master, name, one.release);
            // These are what takes the time: half an hour is not enough for all.
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
                what: What::Lab(lab),
            }));
        }
    }
    jobs
}

/// Software runs on this host's own Erlang, if that is one of those asked for.
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
            skip("software runs on this host's own Erlang, which is none of those asked for");
        }
        return jobs;
    };
    for case in wanted {
        if let Some(why) = case.missing() {
            skip(&format!("of {}: {why}", case.name));
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
            what: What::Software(case),
        });
    }
    jobs
}

/// Of all releases that are asked for, whatever is installed: these need no VM.
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
                what: What::Synthetic(case),
            }));
        }
    }
    jobs
}

fn is_wanted(args: &Args, name: &str) -> bool {
    args.labs.is_empty() || args.labs.iter().any(|wanted| wanted == name)
}

/// Differs from evaluation to evaluation, which is all that is asked of it.
fn drawn() -> u64 {
    jiff::Timestamp::now().as_nanosecond().unsigned_abs() as u64 % 1_000_000_000
}

/// The seed of a case on a release: the same sick and cured (FNV-1a of what tells it from others).
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
    fn seeds_differ_by_case_release_and_master_and_are_the_same_again() {
        assert_eq!(seed(1, "a", 25), seed(1, "a", 25));
        for other in [seed(2, "a", 25), seed(1, "b", 25), seed(1, "a", 27)] {
            assert_ne!(seed(1, "a", 25), other);
        }
    }
}
