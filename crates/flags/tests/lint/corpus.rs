//! Tests on the files of fixtures/args. Their mistakes were listed manually and tested on VMs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use beamtune_flags::lint::{File, Finding, Level, lint};
use beamtune_flags::source::{self, Fragment, SourceError, detect, read};
use serde::Deserialize;

use super::{TESTED_RELEASES, level, target};

#[derive(Deserialize)]
struct Expect {
    boot: BTreeMap<String, String>,
    #[serde(default)]
    mistake: Vec<Mistake>,
}

#[derive(Deserialize)]
struct Mistake {
    line: usize,
    flag: String,
    otp: Vec<u32>,
    effect: String,
}

/// A file of the corpus with flags.
pub(super) struct Sample {
    /// The path, relative to fixtures/args.
    pub(super) name: String,
    pub(super) text: String,
    pub(super) format: source::Format,
    expect: Expect,
}

/// A file that the reader rejects, with its mistakes.
struct RejectedFile {
    name: String,
    /// The line of the error of the reader.
    line: Option<usize>,
    expect: Expect,
}

/// Listed mistakes that the linter does not find or reports differently, with the reason.
const NOT_FOUND: &[(&str, usize, &str, u32, &str)] = &[
    (
        "rebar3/include/self/vm.args",
        2,
        "-args_file",
        0,
        "a warning: the linter does not know the name of the file",
    ),
    ("large-host/feed/vm.args", 9, "+zosrl", 23, "a warning: 23.3.4.10 and later have it"),
    ("rabbitmq/buffers/rabbitmq-env.conf", 4, "+pad", 25, "a warning: 25.3 and later have it"),
    ("shell/game/start.sh", 8, "+t", 23, "a warning: OTP 23 dies only after its start"),
    (
        "rabbitmq/systemd/rabbitmq-server.service.d/override.conf",
        5,
        "+t",
        23,
        "a warning: OTP 23 dies only after its start",
    ),
    ("rabbitmq/k8s/cluster.yaml", 13, "", 0, "the reader does not support the key envConfig"),
];

/// Files with which a VM behaves differently from what the linter reports, with the reason.
const BOOTS_DIFFERENTLY: &[(&str, &str)] = &[
    ("rabbitmq/k8s/cluster.yaml", "the reader does not support the key envConfig"),
    (
        "rebar3/include/vm.args",
        "the VM is started in another directory, where the file it names does not exist",
    ),
    ("rebar3/include/self/vm.args", "the linter does not know the name of the file"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/args")
}

fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> =
        std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            collect(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "expect") {
            found.push(path.with_extension(""));
        }
    }
}

fn all() -> (Vec<Sample>, Vec<RejectedFile>) {
    let mut paths = Vec::new();
    collect(&root(), &mut paths);
    assert!(paths.len() > 100, "{}", paths.len());
    let (mut samples, mut rejected) = (Vec::new(), Vec::new());
    for path in paths {
        let name = path.strip_prefix(root()).expect("below").to_str().expect("ASCII").to_owned();
        let expect = std::fs::read_to_string(format!("{}.expect", path.display())).expect("an expectation");
        let expect: Expect = toml::from_str(&expect).unwrap_or_else(|error| panic!("{name}: {error}"));
        let bytes = std::fs::read(&path).expect("a file");
        let text = source::text(&bytes).map(str::to_owned);
        let format = text.as_ref().ok().and_then(|text| detect(&name, text));
        let fault = match (&text, format) {
            (Err(error), _) => Some(line_of(error)),
            (Ok(text), Some(format)) => read(format, text).err().as_ref().map(line_of),
            (Ok(_), None) => Some(None),
        };
        match (fault, text, format) {
            (None, Ok(text), Some(format)) => samples.push(Sample { name, text, format, expect }),
            (fault, _, _) => rejected.push(RejectedFile { name, line: fault.flatten(), expect }),
        }
    }
    (samples, rejected)
}

pub(super) fn samples() -> Vec<Sample> {
    all().0
}

fn line_of(error: &SourceError) -> Option<usize> {
    error.position().map(|at| at.line)
}

fn findings(sample: &Sample) -> (Vec<Fragment>, Vec<Finding>) {
    let fragments = read(sample.format, &sample.text).expect("a valid file");
    let found = lint(&[File { fragments: &fragments }], &target(TESTED_RELEASES));
    (fragments, found)
}

/// Whether a finding is about the flag of a mistake.
fn is_about(mistake: &str, flag: &str) -> bool {
    let blank = |text: &str| text.contains(char::is_whitespace);
    mistake == flag
        || mistake.strip_prefix(flag).is_some_and(|rest| rest.starts_with([' ', '=']))
        || mistake.split_whitespace().any(|word| word == flag)
        || blank(flag) && mistake.contains(flag)
}

fn fits(effect: &str, level: Level) -> bool {
    matches!(effect, "refused" | "fatal") == (level == Level::Error)
}

fn described(sample: &Sample, finding: &Finding) -> String {
    let at = source::position(&sample.text, finding.span.start);
    format!(
        "{}:{}: {} {} {} {:?}",
        sample.name,
        at.line,
        finding.code,
        level(finding.level),
        finding.flag,
        finding.releases
    )
}

#[test]
fn every_finding_is_a_listed_mistake() {
    let mut wrong = Vec::new();
    for sample in samples() {
        for finding in findings(&sample).1 {
            let line = source::position(&sample.text, finding.span.start).line;
            for release in &finding.releases {
                let known = sample.expect.mistake.iter().any(|mistake| {
                    mistake.line == line
                        && mistake.otp.contains(release)
                        && is_about(&mistake.flag, &finding.flag)
                        && (finding.level != Level::Error || fits(&mistake.effect, Level::Error))
                });
                if !known {
                    wrong.push(format!("{} in {release}", described(&sample, &finding)));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_listed_mistake_is_found() {
    let mut missed = Vec::new();
    let mut used = vec![false; NOT_FOUND.len()];
    let mut checked = 0;
    for sample in samples() {
        let found = findings(&sample).1;
        for mistake in &sample.expect.mistake {
            for release in &mistake.otp {
                checked += 1;
                let is_found = found.iter().any(|finding| {
                    source::position(&sample.text, finding.span.start).line == mistake.line
                        && finding.releases.contains(release)
                        && is_about(&mistake.flag, &finding.flag)
                        && fits(&mistake.effect, finding.level)
                });
                let excused = NOT_FOUND.iter().position(|(name, line, flag, only, _)| {
                    *name == sample.name
                        && *line == mistake.line
                        && mistake.flag.starts_with(flag)
                        && (*only == 0 || only == release)
                });
                match (is_found, excused) {
                    (false, None) => missed.push(format!(
                        "{}:{}: {} ({}) in {release}",
                        sample.name, mistake.line, mistake.flag, mistake.effect
                    )),
                    (false, Some(index)) => used[index] = true,
                    (true, _) => {}
                }
            }
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
    assert!(checked > 400, "{checked}");
    for (excuse, used) in NOT_FOUND.iter().zip(used) {
        // A rejected file has no findings, so its exceptions cannot be used.
        let read = samples().iter().any(|sample| sample.name == excuse.0);
        assert!(used || !read, "the linter finds {excuse:?} now; remove the exception");
    }
}

#[test]
fn errors_of_rejected_files_are_at_the_listed_mistake() {
    for file in all().1 {
        let Some(first) = file.expect.mistake.first() else { continue };
        assert_eq!(file.line, Some(first.line), "{}", file.name);
    }
}

#[test]
fn errors_are_reported_for_exactly_the_releases_that_do_not_boot() {
    let mut wrong = Vec::new();
    for sample in samples() {
        if BOOTS_DIFFERENTLY.iter().any(|(name, _)| *name == sample.name) {
            continue;
        }
        let found = findings(&sample).1;
        for release in TESTED_RELEASES {
            let boots = sample.expect.boot.get(&release.to_string()).map(String::as_str) == Some("boots");
            let error = found
                .iter()
                .find(|finding| finding.level == Level::Error && finding.releases.contains(release));
            if boots == error.is_some() {
                let what = error.map_or_else(|| "no error".to_owned(), |error| described(&sample, error));
                wrong.push(format!("{} in {release}: boots is {boots}, {what}", sample.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_texts_of_all_findings_match_the_snapshots() {
    let mut groups: BTreeMap<String, String> = BTreeMap::new();
    for sample in samples() {
        let group = sample.name.split('/').next().expect("a folder").to_owned();
        let text = groups.entry(group).or_default();
        let found = findings(&sample).1;
        let _ = writeln!(text, "== {} ({} findings)\n", sample.name, found.len());
        for finding in found {
            let at = source::position(&sample.text, finding.span.start);
            let releases: Vec<String> = finding.releases.iter().map(u32::to_string).collect();
            let _ = writeln!(
                text,
                "{}:{} {} {} {} [{}]\n  {}\n  why: {}\n  do: {}",
                at.line,
                at.column,
                finding.code,
                level(finding.level),
                finding.flag.escape_debug(),
                releases.join(" "),
                finding.message,
                finding.reason,
                finding.remedy
            );
            for (_, span, what) in &finding.related {
                let at = source::position(&sample.text, span.start);
                let _ = writeln!(text, "  see {}:{}: {what}", at.line, at.column);
            }
            if let Some(fix) = &finding.fix {
                let _ = writeln!(text, "  fix{}: {}", if fix.safe { " (safe)" } else { "" }, fix.what);
            }
            text.push('\n');
        }
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lint/snapshots");
    let update = std::env::var_os("UPDATE").is_some();
    for (group, text) in groups {
        let path = folder.join(format!("{group}.txt"));
        if update {
            std::fs::write(&path, &text).expect("a snapshot");
        }
        let before = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(before == text, "{} differs; update it with UPDATE=1 and review git diff", path.display());
    }
}
