//! `beamtune lab evaluate`: measures how often diagnoses of nodes with known faults are right.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, bail};
use beamtune_lab::evaluate::{Evaluation, EvaluationOptions, Results};
use beamtune_lab::manifest::CORES;
use beamtune_lab::rows::{Kind, Row, Rows};
use beamtune_lab::{Cases, Selection, page, recordings};
use beamtune_recording::Stop;

use crate::releases::{Releases, parse_releases};
use crate::signals::stop_on_signals;
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

impl Args {
    fn options(&self) -> EvaluationOptions {
        EvaluationOptions {
            selection: Selection {
                releases: self.otp.0.clone(),
                quick: self.quick,
                names: self.labs.clone(),
                robust: self.robust,
                cores: self.cores,
            },
            seed: self.seed,
            resume: self.resume,
            fresh: self.fresh,
            output: self.output.clone(),
            keep: self.keep.clone(),
            print: terminal::complain,
        }
    }
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<ExitCode> {
    let (options, cases) = (args.options(), Cases::all()?);
    let evaluation = Evaluation::new(&options, &cases)?;
    terminal::complain(&evaluation.summary());
    let stop = Stop::default();
    stop_on_signals(&stop)?;
    print_results(args.page.as_deref(), &evaluation.run(stop)?)
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
    print_results(None, &Results::of(rows))
}

/// Prints the results, and writes the page. The exit status depends on the planned runs only.
fn print_results(write_to: Option<&Path>, results: &Results) -> Result<ExitCode> {
    let (synthetic, measured): (Vec<Row>, Vec<Row>) =
        results.rows.iter().cloned().partition(|row| row.run.kind == Kind::Synthetic);
    for rows in [&measured, &synthetic].into_iter().filter(|rows| !rows.is_empty()) {
        terminal::print(&format!("{}\n", page::table(rows, terminal::style())));
    }
    page::sums(&measured).iter().for_each(|sum| terminal::print(&format!("{sum}\n")));
    if !synthetic.is_empty() {
        terminal::print(&format!("{}\n", page::synthetic(&synthetic)));
    }
    if !results.is_complete {
        bail!("interrupted before all runs were done; continue with --resume");
    }
    if let Some(page) = write_to {
        page::update(page, &results.rows)?;
    }
    Ok(if results.all_right() { ExitCode::SUCCESS } else { ExitCode::from(terminal::FOUND) })
}
