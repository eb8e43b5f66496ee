//! Tests of the linter: each rule on small texts, all rules on the corpus, and properties for any text.

#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "tests")]

mod commands;
mod corpus;
mod fixes;
#[path = "../formats/mod.rs"]
mod formats;
mod pages;
mod properties;
mod rules;
#[path = "../work/mod.rs"]
mod work;

use beamtune_flags::lint::{File, Finding, Level, Target, lint};
use beamtune_flags::source::{Format, Fragment, read};

/// The releases on which the corpus was tested.
const TESTED_RELEASES: &[u32] = &[23, 25, 27, 29];

fn target(releases: &[u32]) -> Target {
    Target { releases: releases.to_vec(), ..Target::default() }
}

fn fragments(format: Format, text: &str) -> Vec<Fragment> {
    read(format, text).unwrap_or_else(|error| panic!("{error}:\n{text}"))
}

/// Returns the findings in the files of one node, for OTP 23, 25, 27 and 29.
fn linted(files: &[(Format, &str)]) -> Vec<Finding> {
    let read: Vec<Vec<Fragment>> = files.iter().map(|(format, text)| fragments(*format, text)).collect();
    let files: Vec<File<'_>> = read.iter().map(|fragments| File { fragments }).collect();
    lint(&files, &target(TESTED_RELEASES))
}

/// Formats a finding as `BF011 note +P`, followed by the affected releases unless these are all tested releases.
fn shown(finding: &Finding) -> String {
    let releases: Vec<String> = finding.releases.iter().map(u32::to_string).collect();
    let releases = if finding.releases == TESTED_RELEASES {
        String::new()
    } else {
        format!(" in {}", releases.join(","))
    };
    format!("{} {} {}{releases}", finding.code, level(finding.level), finding.flag)
}

fn level(level: Level) -> &'static str {
    match level {
        Level::Error => "error",
        Level::Warning => "warning",
        Level::Note => "note",
    }
}
