//! `beamtune args`: which flags are in effect and who says so; and files with other flags.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::slice;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, bail};
use beamtune_flags::args::{self, ArgsError, Input, Target as Written, Wish};
use beamtune_flags::lint::{File, Level, Target, lint};
use beamtune_flags::source::{Format, MAX_BYTES};
use beamtune_flags::{OtpVersion, entries, in_effect, parse_emu_args};
use beamtune_report::args::{self as report, Sheet};
use beamtune_report::flags::{RELEASES, first_sentence, nearest};
use beamtune_report::lint::{Linted, Report, Unread, text as lint_text};
use beamtune_report::text::{clean_path, clean_words, wrap};
use clap::ValueEnum;

use crate::access::AccessArgs;
use crate::files::{self, Snapshot};
use crate::inputs::{self, FormatName};
use crate::node_args::{NodeArgs, looks_like_a_node, node_args};
use crate::releases::{Releases, parse_releases};
use crate::terminal;

/// Width of the comments that are written.
const COMMENT_COLUMNS: usize = 96;

/// Show which flags are in effect and where each comes from, or write a file with other flags.
///
/// With --set, --unset or --as the new file goes to standard output, or to -o FILE. Comments, order and everything else stay as they
/// are. What comes out is linted first: with errors nothing is written.
#[derive(clap::Args)]
pub struct Args {
    /// Files of one node, - for standard input; or a running node: its name or process id.
    #[arg(required = true, value_name = "TARGET|FILE")]
    paths: Vec<PathBuf>,
    /// Give a flag this value: "+sbwt none", "-kernel net_ticktime 30".
    #[arg(long, value_name = "FLAG", allow_hyphen_values = true)]
    set: Vec<String>,
    /// Take a flag away: +K.
    #[arg(long, value_name = "FLAG", allow_hyphen_values = true)]
    unset: Vec<String>,
    /// Why: the comment above what is set. Without it: what the flag does, and the date.
    #[arg(long, value_name = "TEXT", requires = "set")]
    why: Option<String>,
    /// Write another format.
    #[arg(long = "as", value_enum, value_name = "FORMAT")]
    write_as: Option<WriteAs>,
    /// Write this file; it must not exist yet.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Overwrite the file, and write flags that the linter finds errors in.
    #[arg(long)]
    force: bool,
    /// What kind of file it is, where its name does not tell.
    #[arg(long = "from", value_enum, value_name = "FORMAT")]
    read_as: Option<FormatName>,
    /// Which node is meant, from 1, where a YAML file has several.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..))]
    node: Option<u16>,
    /// OTP releases that the flags are for: 27, 25,27 or 25..27. Defaults are shown of the last one.
    #[arg(long, value_name = "RELEASES", value_parser = parse_releases)]
    otp: Option<Releases>,
    /// Print JSON.
    #[arg(long, conflicts_with_all = ["set", "unset", "write_as", "output"])]
    json: bool,
    #[command(flatten)]
    access: AccessArgs,
}

/// A format to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum WriteAs {
    /// An args file as erl reads it.
    #[value(name = "vm.args")]
    VmArgs,
    /// vm.args.eex of Mix releases.
    Eex,
    /// A .env file.
    Env,
    /// A Dockerfile.
    Dockerfile,
    /// A ConfigMap with ERL_FLAGS.
    K8s,
    /// A drop-in of a systemd unit.
    Systemd,
    /// rabbitmq-env.conf.
    Rabbitmq,
    /// ejabberdctl.cfg.
    Ejabberd,
}

impl WriteAs {
    fn target(self) -> Written {
        match self {
            WriteAs::VmArgs => Written::VmArgs,
            WriteAs::Eex => Written::Eex,
            WriteAs::Env => Written::Env,
            WriteAs::Dockerfile => Written::Dockerfile,
            WriteAs::K8s => Written::Kubernetes,
            WriteAs::Systemd => Written::Systemd,
            WriteAs::Rabbitmq => Written::Rabbitmq,
            WriteAs::Ejabberd => Written::Ejabberd,
        }
    }
}

/// What the flags are read from.
enum Subject {
    Files(Vec<inputs::Text>),
    Node(NodeArgs),
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<ExitCode> {
    let subject = subject(args)?;
    let writes = !args.set.is_empty() || !args.unset.is_empty() || args.write_as.is_some();
    match (writes, &args.output) {
        (true, _) => write(args, subject),
        (false, Some(_)) => bail!("what is to be written? Say it with --set, --unset or --as"),
        (false, None) => show(args, subject),
    }
}

fn subject(args: &Args) -> Result<Subject> {
    let exists = |path: &Path| fs::symlink_metadata(path).is_ok();
    if let [path] = args.paths.as_slice()
        && !exists(path)
        && let Some(target) = path.to_str().filter(|text| looks_like_a_node(text))
    {
        let node = node_args(target, &args.access).context("there is no such file, and as a node")?;
        return Ok(Subject::Node(node));
    }
    let mut texts = Vec::new();
    for path in &args.paths {
        if path == Path::new("-") {
            texts.push(inputs::standard_input(args.read_as, "--from").map_err(|unread| refusal(&unread))?);
        } else if path.is_dir() {
            let mut unread = Vec::new();
            inputs::folder(path, &mut texts, &mut unread);
            // What is in effect cannot be told by half of the files.
            if let Some(first) = unread.first() {
                return Err(refusal(first));
            }
        } else {
            texts.push(inputs::file(path, args.read_as, "--from").map_err(|unread| refusal(&unread))?);
        }
    }
    if texts.is_empty() {
        bail!(
            "there are no flags in {}",
            args.paths.first().map(|path| path.display().to_string()).unwrap_or_default()
        );
    }
    Ok(Subject::Files(texts))
}

fn refusal(unread: &Unread) -> anyhow::Error {
    anyhow!("{}", inputs::told(unread).trim_end())
}

/// The releases that the flags are for.
fn releases(args: &Args, subject: &Subject) -> Vec<u32> {
    match (&args.otp, subject) {
        (Some(releases), _) => releases.0.clone(),
        (None, Subject::Node(node)) => vec![node.release],
        (None, Subject::Files(_)) => Target::default().releases,
    }
}

fn show(args: &Args, subject: Subject) -> Result<ExitCode> {
    let release = releases(args, &subject).last().copied().unwrap_or(*RELEASES.end());
    let (sheet, of) = match subject {
        Subject::Node(node) => {
            let sheet = Sheet::of_node(&in_effect(&node.args, &node.environment, release));
            (sheet, clean_words(&node.label))
        }
        Subject::Files(texts) => {
            let texts = inputs::each_once(texts);
            let names: Vec<String> = texts.iter().map(|text| text.name.clone()).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let read: Vec<Input> = texts.into_iter().map(|text| input(text, args)).collect();
            let otp = OtpVersion::from(release);
            let overview = args::effective(&read, &otp).map_err(|error| {
                let is_at_fault = |input: &Input| args::effective(slice::from_ref(input), &otp).is_err();
                let at_fault = read.iter().position(is_at_fault).and_then(|nth| names.get(nth));
                anyhow!("{}", placed(at_fault.unwrap_or(&""), &error))
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
    let which = if args.otp.is_some() { "" } else { "; --otp names another release" };
    let which = if sheet.emulator.iter().any(|row| row.is_default) { which } else { "" };
    let title = format!("{of} · defaults of OTP {release}{which}");
    terminal::print(&format!("{}\n\n{}", wrap(&title, style.width, ""), report::text(&sheet, style)));
    Ok(ExitCode::SUCCESS)
}

fn input(text: inputs::Text, args: &Args) -> Input {
    // In other formats there is only one.
    let is_yaml = matches!(text.format, Format::Compose | Format::Kubernetes);
    let node = args.node.filter(|_| is_yaml).map(|node| usize::from(node) - 1);
    Input { format: text.format, text: text.text, fragments: text.fragments, node }
}

/// An error with its file, and with what the user can do about it here.
fn placed(name: &str, error: &ArgsError) -> String {
    let gap = if error.position().is_some() { "" } else { " " };
    format!("{}:{gap}{}", clean_path(name), clean_words(&advised(error)))
}

/// An error with what the user can do about it here.
fn advised(error: &ArgsError) -> String {
    let advice = match error {
        ArgsError::Unknown { flag } => match nearest(flag).as_slice() {
            [] => String::new(),
            near => format!("; similar: {}", near.join(", ")),
        },
        ArgsError::SeveralNodes { begins } => format!(" with --node 1 to --node {}", begins.len()),
        _ => String::new(),
    };
    format!("{error}{advice}")
}

fn write(args: &Args, subject: Subject) -> Result<ExitCode> {
    let releases = releases(args, &subject);
    let (mut result, name, old) = match subject {
        Subject::Node(node) => {
            terminal::complain(&format!(
                "of {} only the emulator's flags are written: what it was given for init and applications (-name, -kernel …) is not\n",
                clean_words(&node.label)
            ));
            (args::of_node(&parse_emu_args(&node.args))?, node.label, None)
        }
        Subject::Files(texts) => {
            let [mut text] = <[inputs::Text; 1]>::try_from(texts)
                .map_err(|texts| anyhow!("{} files are named; only one can be written", texts.len()))?;
            let (name, snapshot) = (text.name.clone(), text.snapshot.take());
            (input(text, args), name, snapshot)
        }
    };
    let placed = |error: ArgsError| anyhow!("{}", placed(&name, &error));
    if let Some(format) = args.write_as {
        result = args::convert(&result, format.target()).map_err(placed)?;
    }
    for flag in &args.unset {
        let wish = Wish::unset(flag).map_err(placed)?;
        result = args::change(&result, &wish, &[]).map_err(placed)?;
    }
    for flag in &args.set {
        let wish = Wish::set(flag).map_err(placed)?;
        result = args::change(&result, &wish, &comment(args, wish.flag())).map_err(placed)?;
    }
    if !is_sound(&result, args.output.as_deref(), &name, releases) && !args.force {
        bail!(
            "nothing is written, because a VM would not start with it; --otp says for which releases it is, --force writes it"
        );
    }
    deliver(args, result.text.as_bytes(), old)
}

/// Lines to put above a flag.
fn comment(args: &Args, flag: &str) -> Vec<String> {
    let why = args.why.clone().unwrap_or_else(|| {
        format!("{} Set on {}.", does(flag), date(SystemTime::now())).trim_start().to_owned()
    });
    wrap(&format!("{flag}: {why}"), COMMENT_COLUMNS, "").lines().map(str::to_owned).collect()
}

/// What a flag does, in one sentence; empty if that is not known.
fn does(flag: &str) -> &'static str {
    let entry = if flag.starts_with('+') {
        // It may be that of one allocator.
        parse_emu_args(&[flag.to_owned()]).into_iter().find_map(|setting| setting.entry)
    } else {
        let spelling = flag.strip_prefix("-env ").unwrap_or(flag);
        entries().iter().find(|entry| entry.spelling() == spelling)
    };
    entry.map(|entry| first_sentence(&entry.does)).unwrap_or_default()
}

/// Lints what is to be written; tells warnings and errors. `false` if there are errors.
fn is_sound(result: &Input, output: Option<&Path>, old_name: &str, releases: Vec<u32>) -> bool {
    let target = Target { releases, machine: None };
    let mut findings = lint(&[File { fragments: &result.fragments }], &target);
    findings.retain(|finding| finding.level > Level::Note);
    // What is not written yet cannot be fixed by --fix.
    findings.iter_mut().for_each(|finding| finding.fix = None);
    if findings.is_empty() {
        return true;
    }
    let name = output.map_or_else(|| format!("{old_name} (new)"), |path| path.display().to_string());
    let linted = [Linted { name: &name, text: &result.text, is_file: true }];
    let told = Report { linted: &linted, findings: &findings, unread: &[], releases: &target.releases };
    terminal::complain_styled(&lint_text(&told, terminal::style()));
    findings.iter().all(|finding| finding.level < Level::Error)
}

fn deliver(args: &Args, bytes: &[u8], old: Option<Snapshot>) -> Result<ExitCode> {
    let Some(path) = &args.output else {
        terminal::print(&String::from_utf8_lossy(bytes));
        return Ok(ExitCode::SUCCESS);
    };
    let shown = clean_path(&path.display().to_string());
    let not_written = || format!("{shown} is not written");
    if fs::symlink_metadata(path).is_err() {
        files::create(path, bytes).with_context(not_written)?;
    } else if args.force {
        let there = Snapshot::read(path, MAX_BYTES).with_context(not_written)?;
        // The file that was read must still be as it was then.
        let to_replace = old.filter(|old| old.is_same_file(&there)).unwrap_or(there);
        to_replace.replace(bytes).with_context(not_written)?;
    } else {
        bail!("{shown} exists already: --force overwrites it");
    }
    terminal::complain(&format!("{shown} is written\n"));
    Ok(ExitCode::SUCCESS)
}

/// The day in UTC: `2026-11-20`.
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
    fn a_comment_is_about_the_flag_and_about_no_other() {
        let check = |flag: &str, begin: &str| {
            let does = does(flag);
            assert!(does.starts_with(begin) && does.is_empty() == begin.is_empty(), "{flag}: {does}");
        };
        check("+MBas", "How a free block is looked for");
        check("-heart", "Starts the program heart");
        check("-kernel net_ticktime", "A node that is silent");
        // These begin like +e, +c, +n and +V.
        check("-emu_flavor", "Chooses the emulator");
        for flag in ["-connect_all", "-noshell", "-version"] {
            check(flag, "");
        }
        let dump = entry("ERL_CRASH_DUMP").expect("an entry");
        assert_eq!(does("-env ERL_CRASH_DUMP"), first_sentence(&dump.does));
    }

    #[test]
    fn a_day_is_written_as_people_sort_them() {
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
