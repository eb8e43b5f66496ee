//! `beamtune lint`: what is wrong with flags, before a VM is started with them.

mod fix;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, bail};
use beamtune_flags::lint::{self, File, Finding, Level, Target};
use beamtune_flags::source::{Fragment, live_node};
use beamtune_report::lint::{self as report, Linted, Report, Unread};
use clap::ValueEnum;

use crate::access::AccessArgs;
use crate::inputs::{self, FormatName, Text};
use crate::node_args::{looks_like_a_node, node_args};
use crate::releases::{Releases, parse_releases};
use crate::terminal;

/// Find what is wrong with emulator flags, in files or of a running node.
///
/// Reads vm.args and its templates, .env, Dockerfiles, Compose and Kubernetes YAML, systemd units, rabbitmq-env.conf,
/// ejabberdctl.cfg and shell scripts.
///
/// Exit status: 0 = nothing above "note", 1 = findings, 2 = something could not be read; all else is shown all the same.
#[derive(clap::Args)]
pub struct Args {
    /// Files, folders (walked through), - for standard input; or a running node: its name or process id.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// OTP releases that the flags are for: 27, 25,27 or 25..27. Without it all that are supported; of a running node its own.
    #[arg(long, value_name = "RELEASES", value_parser = parse_releases)]
    otp: Option<Releases>,
    /// How to tell it.
    #[arg(long, value_enum, default_value_t = Output::Text)]
    format: Output,
    /// Make the changes that are safe: they do not change what a VM that starts today does, or only make happen what was plainly meant.
    #[arg(long)]
    fix: bool,
    /// All files are of one node: flags in one may win over those in another.
    #[arg(long)]
    together: bool,
    /// What kind of files these are, where their names do not tell.
    #[arg(long = "as", value_enum, value_name = "FORMAT")]
    read_as: Option<FormatName>,
    #[command(flatten)]
    access: AccessArgs,
}

/// How findings are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people.
    Text,
    /// docs/lint-output.schema.json.
    Json,
    /// SARIF 2.1.0, for code hosts and editors.
    Sarif,
    /// Annotations of GitHub's workflows.
    Github,
}

/// Something to lint.
struct Input {
    name: String,
    origin: Origin,
    text: String,
    fragments: Vec<Fragment>,
    releases: Vec<u32>,
}

/// Where it comes from.
enum Origin {
    /// A file, or standard input.
    Text(Box<Text>),
    /// A running node.
    Node,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<ExitCode> {
    let (mut inputs, mut unread) = read_all(args);
    if args.together && inputs.iter().any(|input| matches!(input.origin, Origin::Node)) {
        bail!("a running node has everything in it already: lint it alone, without --together");
    }
    if args.fix
        && inputs.iter().any(|input| matches!(&input.origin, Origin::Text(text) if text.snapshot.is_none()))
    {
        bail!("standard input cannot be fixed in its place: name the file");
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
        releases = asked_for(args);
    }
    releases.sort_unstable();
    releases.dedup();
    let told = Report { linted: &linted, findings: &findings, unread: &unread, releases: &releases };
    terminal::print(&match args.format {
        Output::Text => report::text(&told, terminal::style()),
        Output::Json => report::json(&told),
        Output::Sarif => report::sarif(&told),
        Output::Github => report::github(&told),
    });
    // Programs that read the other formats find this in them; people see it here in any case.
    for error in &unread {
        terminal::complain(&inputs::told(error));
    }
    Ok(if !unread.is_empty() {
        ExitCode::from(terminal::CANNOT)
    } else if findings.iter().any(|finding| finding.level > Level::Note) {
        ExitCode::from(terminal::FOUND)
    } else {
        ExitCode::SUCCESS
    })
}

fn asked_for(args: &Args) -> Vec<u32> {
    args.otp.as_ref().map_or_else(|| Target::default().releases, |releases| releases.0.clone())
}

/// Everything that is named, each file once.
fn read_all(args: &Args) -> (Vec<Input>, Vec<Unread>) {
    let (mut inputs, mut unread): (Vec<Input>, _) = (Vec::new(), Vec::new());
    for path in &args.paths {
        let mut texts = Vec::new();
        if path == Path::new("-") {
            take(inputs::standard_input(args.read_as, "--as"), &mut texts, &mut unread);
        } else if path.is_dir() {
            inputs::folder(path, &mut texts, &mut unread);
        } else if fs::symlink_metadata(path).is_ok() {
            take(inputs::file(path, args.read_as, "--as"), &mut texts, &mut unread);
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
                    releases: asked_for(args),
                });
            }
        }
    }
    (inputs, unread)
}

fn take(read: Result<Text, Unread>, texts: &mut Vec<Text>, unread: &mut Vec<Unread>) {
    match read {
        Ok(text) => texts.push(text),
        Err(error) => unread.push(error),
    }
}

fn node(path: &Path, args: &Args) -> Result<Input, Unread> {
    let name = path.display().to_string();
    let unread = |message: String| Unread { name: name.clone(), at: None, message };
    let Some(target) = path.to_str().filter(|text| looks_like_a_node(text)) else {
        return Err(unread("there is no such file or folder".to_owned()));
    };
    let node = node_args(target, &args.access)
        .map_err(|error| unread(format!("there is no such file, and as a node: {error:#}")))?;
    let releases = args.otp.as_ref().map_or_else(|| vec![node.release], |releases| releases.0.clone());
    let words = [node.args, vec!["--".to_owned()], node.init].concat();
    Ok(Input {
        name: node.label,
        text: words.join(" "),
        fragments: vec![live_node(&words)],
        origin: Origin::Node,
        releases,
    })
}

/// What is found in all of them; `file` counts the inputs.
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
