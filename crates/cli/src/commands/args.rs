//! `beamtune args`: shows which flags are in effect and where they are set, or writes a file with changed flags.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::slice;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, bail};
use beamtune_flags::args::{self, ArgsError, FlagChange, Input, Target as OutputFormat};
use beamtune_flags::lint::{File, Level, Target, lint};
use beamtune_flags::source::{Format, MAX_BYTES};
use beamtune_flags::{OtpVersion, effective_settings, entries, parse_emu_args};
use beamtune_report::args::{self as report, Sheet};
use beamtune_report::flags::{RELEASES, first_sentence, nearest};
use beamtune_report::lint::{Linted, Report, Unread, text as lint_text};
use beamtune_report::text::{clean_path, clean_words, wrap};
use clap::ValueEnum;

use crate::access::AccessArgs;
use crate::files::{self, Snapshot};
use crate::flag_files::{self, FlagFile, FormatName};
use crate::node_args::{NodeArgs, looks_like_a_node, node_args};
use crate::releases::{Releases, parse_releases};
use crate::terminal;

/// Width of comments in written files.
const COMMENT_COLUMNS: usize = 96;

/// Show which flags are in effect and where they are set, or change them
///
/// With --set, --unset or --as, the new file goes to standard output, or to -o FILE. Comments, order and everything else are kept. The
/// result is linted; if there are errors, nothing is written.
#[derive(clap::Args)]
pub struct Args {
    /// Files of one node, - for standard input, or a running node
    #[arg(required = true, value_name = "TARGET|FILE")]
    paths: Vec<PathBuf>,
    /// Set a flag: "+sbwt none", "-kernel net_ticktime 30"
    #[arg(long, value_name = "FLAG", allow_hyphen_values = true)]
    set: Vec<String>,
    /// Remove a flag: +K
    #[arg(long, value_name = "FLAG", allow_hyphen_values = true)]
    unset: Vec<String>,
    /// Comment above the flag [default: what it does, and the date]
    #[arg(long, value_name = "TEXT", requires = "set")]
    why: Option<String>,
    /// Convert to another format
    #[arg(long = "as", value_enum, value_name = "FORMAT")]
    write_as: Option<WriteAs>,
    /// Output file; must not exist, unless --force is given
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Overwrite the output file, and write despite linter errors
    #[arg(long)]
    force: bool,
    /// Input format, if the file name does not show it
    #[arg(long = "from", value_enum, value_name = "FORMAT")]
    read_as: Option<FormatName>,
    /// Number of the node (from 1), if a YAML file contains several
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..))]
    node: Option<u16>,
    /// OTP releases: 27 or 25,27 or 25..27
    ///
    /// Default values are shown for the last release.
    #[arg(long, value_name = "RELEASES", value_parser = parse_releases)]
    otp: Option<Releases>,
    /// Print JSON
    #[arg(long, conflicts_with_all = ["set", "unset", "write_as", "output"])]
    json: bool,
    #[command(flatten)]
    access: AccessArgs,
}

/// An output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum WriteAs {
    /// Arguments file for erl -args_file
    #[value(name = "vm.args")]
    VmArgs,
    /// vm.args.eex of a Mix release
    Eex,
    /// .env file
    Env,
    /// Dockerfile
    Dockerfile,
    /// ConfigMap with ERL_FLAGS
    K8s,
    /// Drop-in of a systemd unit
    Systemd,
    /// rabbitmq-env.conf
    Rabbitmq,
    /// ejabberdctl.cfg
    Ejabberd,
}

impl WriteAs {
    fn output_format(self) -> OutputFormat {
        match self {
            WriteAs::VmArgs => OutputFormat::VmArgs,
            WriteAs::Eex => OutputFormat::Eex,
            WriteAs::Env => OutputFormat::Env,
            WriteAs::Dockerfile => OutputFormat::Dockerfile,
            WriteAs::K8s => OutputFormat::Kubernetes,
            WriteAs::Systemd => OutputFormat::Systemd,
            WriteAs::Rabbitmq => OutputFormat::Rabbitmq,
            WriteAs::Ejabberd => OutputFormat::Ejabberd,
        }
    }
}

/// The source of the flags.
enum FlagSource {
    Files(Vec<FlagFile>),
    Node(NodeArgs),
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<ExitCode> {
    let source = flag_source(args)?;
    let writes = !args.set.is_empty() || !args.unset.is_empty() || args.write_as.is_some();
    match (writes, &args.output) {
        (true, _) => write(args, source),
        (false, Some(_)) => bail!("-o requires --set, --unset or --as"),
        (false, None) => show(args, source),
    }
}

fn flag_source(args: &Args) -> Result<FlagSource> {
    let exists = |path: &Path| fs::symlink_metadata(path).is_ok();
    if let [path] = args.paths.as_slice()
        && !exists(path)
        && let Some(target) = path.to_str().filter(|text| looks_like_a_node(text))
    {
        let node = node_args(target, &args.access)
            .with_context(|| format!("no file {target}, and reading it as a node failed"))?;
        return Ok(FlagSource::Node(node));
    }
    let mut texts = Vec::new();
    for path in &args.paths {
        if path == Path::new("-") {
            texts
                .push(flag_files::standard_input(args.read_as, "--from").map_err(|unread| refusal(&unread))?);
        } else if path.is_dir() {
            let mut unread = Vec::new();
            flag_files::folder(path, &mut texts, &mut unread);
            // If a file cannot be read, the flags in effect are unknown.
            if let Some(first) = unread.first() {
                return Err(refusal(first));
            }
        } else {
            texts.push(flag_files::file(path, args.read_as, "--from").map_err(|unread| refusal(&unread))?);
        }
    }
    if texts.is_empty() {
        bail!(
            "no flags in {}",
            args.paths.first().map(|path| path.display().to_string()).unwrap_or_default()
        );
    }
    Ok(FlagSource::Files(texts))
}

fn refusal(unread: &Unread) -> anyhow::Error {
    anyhow!("{}", flag_files::render(unread).trim_end())
}

/// Returns the OTP releases that the flags are meant for.
fn releases(args: &Args, source: &FlagSource) -> Vec<u32> {
    match (&args.otp, source) {
        (Some(releases), _) => releases.0.clone(),
        (None, FlagSource::Node(node)) => vec![node.release],
        (None, FlagSource::Files(_)) => Target::default().releases,
    }
}

fn show(args: &Args, source: FlagSource) -> Result<ExitCode> {
    let release = releases(args, &source).last().copied().unwrap_or(*RELEASES.end());
    let (sheet, of) = match source {
        FlagSource::Node(node) => {
            let sheet = Sheet::of_node(&effective_settings(&node.args, &node.environment, release));
            (sheet, clean_words(&node.label))
        }
        FlagSource::Files(texts) => {
            let texts = flag_files::deduplicate(texts);
            let names: Vec<String> = texts.iter().map(|text| text.name.clone()).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let read: Vec<Input> = texts.into_iter().map(|text| input(text, args)).collect();
            let otp = OtpVersion::from(release);
            let overview = args::effective_flags(&read, &otp).map_err(|error| {
                let fails = |input: &Input| args::effective_flags(slice::from_ref(input), &otp).is_err();
                let name = read.iter().position(fails).and_then(|nth| names.get(nth));
                anyhow!("{}", located(name.unwrap_or(&""), &error))
            })?;
            let of = names.iter().map(|name| clean_path(name)).collect::<Vec<_>>().join(", ");
            (Sheet::of_files(&names, &read, &overview), of)
        }
    };
    if args.json {
        terminal::print(&report::json(&sheet));
        return Ok(ExitCode::SUCCESS);
    }
    let style = terminal::style();
    let hint = if args.otp.is_some() { "" } else { " (choose another with --otp)" };
    let hint = if sheet.emulator.iter().any(|row| row.is_default) { hint } else { "" };
    let title = format!("{of} · defaults of OTP {release}{hint}");
    terminal::print(&format!("{}\n\n{}", wrap(&title, style.width, ""), report::text(&sheet, style)));
    Ok(ExitCode::SUCCESS)
}

fn input(text: FlagFile, args: &Args) -> Input {
    // Other formats contain a single node.
    let is_yaml = matches!(text.format, Format::Compose | Format::Kubernetes);
    let node = args.node.filter(|_| is_yaml).map(|node| usize::from(node) - 1);
    Input { format: text.format, text: text.text, fragments: text.fragments, node }
}

/// Formats an error with its file name and a hint.
fn located(name: &str, error: &ArgsError) -> String {
    let gap = if error.position().is_some() { "" } else { " " };
    format!("{}:{gap}{}", clean_path(name), clean_words(&with_hint(error)))
}

/// Formats an error with a hint.
fn with_hint(error: &ArgsError) -> String {
    let hint = match error {
        ArgsError::Unknown { flag } => match nearest(flag).as_slice() {
            [] => String::new(),
            near => format!("; similar: {}", near.join(", ")),
        },
        ArgsError::SeveralNodes { begins } => format!(" with --node 1 to --node {}", begins.len()),
        _ => String::new(),
    };
    format!("{error}{hint}")
}

fn write(args: &Args, source: FlagSource) -> Result<ExitCode> {
    let releases = releases(args, &source);
    let (mut result, name, old) = match source {
        FlagSource::Node(node) => {
            terminal::complain(&format!(
                "writing the emulator flags of {} only, without those of init and applications (-name, -kernel …)\n",
                clean_words(&node.label)
            ));
            (args::args_file_of_node(&parse_emu_args(&node.args))?, node.label, None)
        }
        FlagSource::Files(texts) => {
            let [mut text] = <[FlagFile; 1]>::try_from(texts)
                .map_err(|texts| anyhow!("cannot change {} files at once: name one", texts.len()))?;
            let (name, snapshot) = (text.name.clone(), text.snapshot.take());
            (input(text, args), name, snapshot)
        }
    };
    let located = |error: ArgsError| anyhow!("{}", located(&name, &error));
    if let Some(format) = args.write_as {
        result = args::convert(&result, format.output_format()).map_err(located)?;
    }
    for flag in &args.unset {
        let request = FlagChange::unset(flag).map_err(located)?;
        result = args::change(&result, &request, &[]).map_err(located)?;
    }
    for flag in &args.set {
        let request = FlagChange::set(flag).map_err(located)?;
        result = args::change(&result, &request, &comment(args, request.flag())).map_err(located)?;
    }
    if !is_sound(&result, args.output.as_deref(), &name, releases) && !args.force {
        bail!(
            "nothing written: a VM would not start with these flags; select other releases with --otp, or write anyway with --force"
        );
    }
    deliver(args, result.text.as_bytes(), old)
}

/// Returns the comment lines to write above a flag.
fn comment(args: &Args, flag: &str) -> Vec<String> {
    let why = args.why.clone().unwrap_or_else(|| {
        format!("{} Set on {}.", summary(flag), date(SystemTime::now())).trim_start().to_owned()
    });
    wrap(&format!("{flag}: {why}"), COMMENT_COLUMNS, "").lines().map(str::to_owned).collect()
}

/// Returns what a flag does, in one sentence; empty if unknown.
fn summary(flag: &str) -> &'static str {
    let entry = if flag.starts_with('+') {
        // The parser also finds flags of a single allocator.
        parse_emu_args(&[flag.to_owned()]).into_iter().find_map(|setting| setting.entry)
    } else {
        let spelling = flag.strip_prefix("-env ").unwrap_or(flag);
        entries().iter().find(|entry| entry.spelling() == spelling)
    };
    entry.map(|entry| first_sentence(&entry.description)).unwrap_or_default()
}

/// Lints the result, and prints warnings and errors. Returns `false` if there are errors.
fn is_sound(result: &Input, output: Option<&Path>, old_name: &str, releases: Vec<u32>) -> bool {
    let target = Target { releases, machine: None };
    let mut findings = lint(&[File { fragments: &result.fragments }], &target);
    findings.retain(|finding| finding.level > Level::Note);
    // --fix cannot change a file that has not been written yet.
    findings.iter_mut().for_each(|finding| finding.fix = None);
    if findings.is_empty() {
        return true;
    }
    let name = output.map_or_else(|| format!("{old_name} (new)"), |path| path.display().to_string());
    let linted = [Linted { name: &name, text: &result.text, is_file: true }];
    let report = Report { linted: &linted, findings: &findings, unread: &[], releases: &target.releases };
    terminal::complain_styled(&lint_text(&report, terminal::style()));
    findings.iter().all(|finding| finding.level < Level::Error)
}

fn deliver(args: &Args, bytes: &[u8], old: Option<Snapshot>) -> Result<ExitCode> {
    let Some(path) = &args.output else {
        terminal::print(&String::from_utf8_lossy(bytes));
        return Ok(ExitCode::SUCCESS);
    };
    let shown = clean_path(&path.display().to_string());
    let not_written = || format!("cannot write {shown}");
    if fs::symlink_metadata(path).is_err() {
        files::create(path, bytes).with_context(not_written)?;
    } else if args.force {
        let there = Snapshot::read(path, MAX_BYTES).with_context(not_written)?;
        // The input file must not have changed since it was read.
        let to_replace = old.filter(|old| old.is_same_file(&there)).unwrap_or(there);
        to_replace.replace(bytes).with_context(not_written)?;
    } else {
        bail!("{shown} already exists; overwrite it with --force");
    }
    terminal::complain(&format!("wrote {shown}\n"));
    Ok(ExitCode::SUCCESS)
}

/// Formats the date in UTC: `2026-11-20`.
fn date(now: SystemTime) -> String {
    const SECONDS_A_DAY: u64 = 86_400;
    let is_leap =
        |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut days = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() / SECONDS_A_DAY);
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    format!("{year}-{month:02}-{:02}", days + 1)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use beamtune_flags::entry;

    use super::*;

    #[test]
    fn a_comment_describes_its_flag_only() {
        let check = |flag: &str, begin: &str| {
            let summary = summary(flag);
            assert!(
                summary.starts_with(begin) && summary.is_empty() == begin.is_empty(),
                "{flag}: {summary}"
            );
        };
        check("+MBas", "Sets the strategy for finding a free block");
        check("-heart", "Starts the program heart");
        check("-kernel net_ticktime", "Sets after how much silence");
        // These begin with the same letters as +e, +c, +n and +V.
        check("-emu_flavor", "Selects the emulator");
        for flag in ["-connect_all", "-noshell", "-version"] {
            check(flag, "");
        }
        let dump = entry("ERL_CRASH_DUMP").expect("an entry");
        assert_eq!(summary("-env ERL_CRASH_DUMP"), first_sentence(&dump.description));
    }

    #[test]
    fn dates_are_in_iso_format() {
        let check = |seconds: u64, expect: &str| {
            assert_eq!(date(UNIX_EPOCH + Duration::from_secs(seconds)), expect, "{seconds}");
        };
        check(0, "1970-01-01");
        check(86_399, "1970-01-01");
        check(68_169_600, "1972-02-29");
        check(68_256_000, "1972-03-01");
        check(951_782_400, "2000-02-29");
        check(1_795_132_800, "2026-11-20");
        check(1_798_675_200, "2026-12-31");
        check(1_798_761_600, "2027-01-01");
    }
}
