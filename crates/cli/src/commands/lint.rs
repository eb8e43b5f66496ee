//! `beamtune lint`: finds errors in emulator flags before a VM is started with them.

mod fix;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, bail};
use beamtune_flags::lint::{self, File, Finding, Level, Target};
use beamtune_flags::source::{Fragment, running_node};
use beamtune_report::lint::{self as report, Linted, Report, Unread};
use clap::ValueEnum;

use crate::access::AccessArgs;
use crate::flag_files::{self, FlagFile, FormatName};
use crate::node_args::{looks_like_a_node, node_args};
use crate::releases::{Releases, parse_releases};
use crate::terminal;

/// Find errors in the emulator flags of files or a running node
///
/// Reads vm.args and its templates, .env files, Dockerfiles, Compose and Kubernetes YAML, systemd units, rabbitmq-env.conf,
/// ejabberdctl.cfg and shell scripts.
///
/// Exit status: 0 = nothing above "note", 1 = findings, 2 = an input could not be read (findings in the others are printed).
#[derive(clap::Args)]
pub struct Args {
    /// Files, folders, - for standard input, or a running node
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// OTP releases: 27 or 25,27 or 25..27 [default: all supported]
    ///
    /// For a running node, the default is its own release.
    #[arg(long, value_name = "RELEASES", value_parser = parse_releases)]
    otp: Option<Releases>,
    /// Output format
    #[arg(long, value_enum, default_value_t = Output::Text)]
    format: Output,
    /// Apply safe fixes
    ///
    /// A fix is safe if a VM that currently starts behaves as before, or as was obviously intended.
    #[arg(long)]
    fix: bool,
    /// Treat all files as those of one node; one may override another
    #[arg(long)]
    together: bool,
    /// Format of the files, if it cannot be inferred from their names
    #[arg(long = "as", value_enum, value_name = "FORMAT")]
    read_as: Option<FormatName>,
    #[command(flatten)]
    access: AccessArgs,
}

/// An output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// Text
    Text,
    /// JSON (docs/lint-output.schema.json)
    Json,
    /// SARIF 2.1.0, for code hosts and editors
    Sarif,
    /// Annotations of GitHub workflows
    Github,
}

/// An input to lint.
struct Input {
    name: String,
    origin: Origin,
    text: String,
    fragments: Vec<Fragment>,
    releases: Vec<u32>,
}

/// The origin of an input.
enum Origin {
    /// A file, or standard input.
    Text(Box<FlagFile>),
    /// A running node.
    Node,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<ExitCode> {
    let (mut inputs, mut unread) = read_all(args);
    if args.together && inputs.iter().any(|input| matches!(input.origin, Origin::Node)) {
        bail!("--together requires files; lint a running node alone");
    }
    if args.fix
        && inputs.iter().any(|input| matches!(&input.origin, Origin::Text(text) if text.snapshot.is_none()))
    {
        bail!("--fix cannot change standard input: name a file");
    }
    if args.fix {
        for line in fix::fix(&mut inputs, args.together, &mut unread) {
            terminal::complain(&line);
        }
    }
    let findings = check(&inputs, args.together);
    let linted: Vec<Linted<'_>> = inputs
        .iter()
        .map(|input| Linted {
            name: &input.name,
            text: &input.text,
            is_file: matches!(&input.origin, Origin::Text(text) if text.snapshot.is_some()),
        })
        .collect();
    let mut releases: Vec<u32> = inputs.iter().flat_map(|input| input.releases.clone()).collect();
    if inputs.is_empty() {
        releases = requested_releases(args);
    }
    releases.sort_unstable();
    releases.dedup();
    let report = Report { linted: &linted, findings: &findings, unread: &unread, releases: &releases };
    terminal::print(&match args.format {
        Output::Text => report::text(&report, terminal::style()),
        Output::Json => report::json(&report),
        Output::Sarif => report::sarif(&report),
        Output::Github => report::github(&report),
    });
    // Some output formats also contain these errors, but on standard error they are always visible.
    for error in &unread {
        terminal::complain(&flag_files::render(error));
    }
    Ok(if !unread.is_empty() {
        ExitCode::from(terminal::CANNOT)
    } else if findings.iter().any(|finding| finding.level > Level::Note) {
        ExitCode::from(terminal::FOUND)
    } else {
        ExitCode::SUCCESS
    })
}

fn requested_releases(args: &Args) -> Vec<u32> {
    args.otp.as_ref().map_or_else(|| Target::default().releases, |releases| releases.0.clone())
}

/// Reads all inputs, each file once.
fn read_all(args: &Args) -> (Vec<Input>, Vec<Unread>) {
    let (mut inputs, mut unread): (Vec<Input>, _) = (Vec::new(), Vec::new());
    for path in &args.paths {
        let mut texts = Vec::new();
        if path == Path::new("-") {
            collect(flag_files::standard_input(args.read_as, "--as"), &mut texts, &mut unread);
        } else if path.is_dir() {
            flag_files::folder(path, &mut texts, &mut unread);
        } else if fs::symlink_metadata(path).is_ok() {
            collect(flag_files::file(path, args.read_as, "--as"), &mut texts, &mut unread);
        } else {
            match node(path, args) {
                Ok(input) => inputs.push(input),
                Err(error) => unread.push(error),
            }
        }
        for text in texts {
            let is_known = inputs
                .iter()
                .any(|known| matches!(&known.origin, Origin::Text(known) if known.is_same_file(&text)));
            if !is_known {
                inputs.push(Input {
                    name: text.name.clone(),
                    text: text.text.clone(),
                    fragments: text.fragments.clone(),
                    origin: Origin::Text(Box::new(text)),
                    releases: requested_releases(args),
                });
            }
        }
    }
    (inputs, unread)
}

fn collect(read: Result<FlagFile, Unread>, texts: &mut Vec<FlagFile>, unread: &mut Vec<Unread>) {
    match read {
        Ok(text) => texts.push(text),
        Err(error) => unread.push(error),
    }
}

fn node(path: &Path, args: &Args) -> Result<Input, Unread> {
    let name = path.display().to_string();
    let unread = |message: String| Unread { name: name.clone(), at: None, message };
    let Some(target) = path.to_str().filter(|text| looks_like_a_node(text)) else {
        return Err(unread("no such file or folder".to_owned()));
    };
    let node = node_args(target, &args.access)
        .map_err(|error| unread(format!("no such file, and reading it as a node failed: {error:#}")))?;
    let releases = args.otp.as_ref().map_or_else(|| vec![node.release], |releases| releases.0.clone());
    let words = [node.args, vec!["--".to_owned()], node.init].concat();
    Ok(Input {
        name: node.label,
        text: words.join(" "),
        fragments: vec![running_node(&words)],
        origin: Origin::Node,
        releases,
    })
}

/// Lints all inputs. The field `file` of a finding is the index of its input.
fn check(inputs: &[Input], together: bool) -> Vec<Finding> {
    let target = |input: &Input| Target { releases: input.releases.clone(), machine: None };
    if together {
        let files: Vec<File<'_>> = inputs.iter().map(|input| File { fragments: &input.fragments }).collect();
        return inputs.first().map(|first| lint::lint(&files, &target(first))).unwrap_or_default();
    }
    let mut all = Vec::new();
    for (index, input) in inputs.iter().enumerate() {
        let mut findings = lint::lint(&[File { fragments: &input.fragments }], &target(input));
        for finding in &mut findings {
            finding.file = index;
            finding.related.iter_mut().for_each(|(file, _, _)| *file = index);
        }
        all.extend(findings);
    }
    all
}
