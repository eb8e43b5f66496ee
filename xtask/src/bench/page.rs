//! docs/benchmarks.md: a section for each group of figures, with when and how it was measured. Who measures one group anew
//! changes its section alone.

use std::process::Command;

use anyhow::Result;

use super::figure::{Figure, table};
use super::machine::{self, Interference};
use super::{Bench, CONFIDENCE, GROUPS, Group, process};

/// More than this used by others, and the machine is not quiet: contention has been seen to turn an effect around.
const QUIET_CORES: f64 = 0.1;

/// What was found of a group.
pub struct Measured {
    /// The group's name.
    pub name: &'static str,
    /// The figures.
    pub figures: Vec<Figure>,
    /// What else ran.
    pub interference: Interference,
    /// How long it took.
    pub minutes: f64,
}

/// Of which program, where and when.
pub struct About {
    date: String,
    version: String,
    machine: String,
    releases: String,
    seed: u64,
}

impl About {
    /// Now, on this machine.
    pub fn of(bench: &Bench) -> Result<About> {
        let line =
            |command: &mut Command| Ok::<_, anyhow::Error>(process::output(command)?.trim().to_owned());
        let releases: Vec<_> = bench.otps.iter().map(|otp| otp.release.to_string()).collect();
        Ok(About {
            date: line(Command::new("date").args(["-u", "+%Y-%m-%d %H:%M UTC"]))?,
            version: line(Command::new(&bench.beamtune).arg("--version"))?,
            machine: machine::describe(),
            releases: releases.join(", "),
            seed: bench.seed,
        })
    }
}

/// The page with what was measured; other sections stay as they were in `before`, marked where the code that they measure was
/// changed on a later day, which `last_change` gives.
pub fn written(
    before: &str,
    measured: &[Measured],
    about: &About,
    last_change: impl Fn(&Group) -> Option<String>,
) -> String {
    let mut out = format!(
        "# Benchmarks\n\n\
         <!-- `make bench` writes this page, `make bench ONLY=4` the fourth section alone; `make bench ONLY=none` marks what is older \
         than its code. -->\n\n\
         What beamtune costs the node that it watches, how fast it is, and how it compares. Each section says when and on what \
         it was measured, and how much CPU others used meanwhile: with more than {QUIET_CORES} cores the machine was not quiet, \
         and the figures are rough.\n\n\
         What is compared is measured in alternating windows of one run, in blocks of random order. A figure with brackets is \
         the Hodges-Lehmann estimate of the differences within blocks, in brackets the exact interval of Wilcoxon's signed-rank \
         test at no less than {confidence} % (`crates/stats/src/paired.rs`). A limit is kept if the whole interval is below it, \
         missed if none of it is, else unproven.\n",
        confidence = CONFIDENCE * 100.0,
    );
    for (index, group) in GROUPS.iter().enumerate() {
        let heading = heading(group);
        let found = measured.iter().find(|found| found.name == group.name);
        let text = match (found, section(before, &heading)) {
            (Some(found), _) => told(found, group, about),
            (None, Some(kept)) => marked(kept, last_change(group)),
            (None, None) => format!("Not measured yet: `make bench ONLY={}`.\n", index + 1),
        };
        out.push_str(&format!("\n{heading}\n\n{text}"));
    }
    out
}

fn heading(group: &Group) -> String {
    let mut name = group.name.chars();
    let first = name.next().map(|first| first.to_ascii_uppercase());
    format!("## {}{}", first.unwrap_or_default(), name.as_str())
}

/// What stands below a heading, up to the next one.
fn section<'a>(page: &'a str, heading: &str) -> Option<&'a str> {
    let (_, behind) = page.split_once(&format!("\n{heading}\n\n"))?;
    Some(behind.split_once("\n## ").map_or(behind, |(text, _)| text))
}

const OLDER: &str = "**Older than the code**: ";

/// A section begins with the day on which it was measured.
fn marked(section: &str, last_change: Option<String>) -> String {
    let text = match section.strip_prefix(OLDER).and_then(|marked| marked.split_once("\n\n")) {
        Some((_, text)) => text,
        None => section,
    };
    match last_change {
        Some(day) if text.get(..day.len()).is_some_and(|measured| measured < day.as_str()) => {
            format!("{OLDER}last changed on {day}.\n\n{text}")
        }
        _ => text.to_owned(),
    }
}

fn told(Measured { figures, interference, minutes, .. }: &Measured, group: &Group, about: &About) -> String {
    let About { date, version, machine, releases, seed } = about;
    let Interference { others, stolen } = interference;
    let rough = if others + stolen > QUIET_CORES { " **Not quiet.**" } else { "" };
    let method = (group.method)();
    let method = if method.is_empty() { method } else { format!("\n{method}\n") };
    format!(
        "{date}, in {minutes:.0} minutes, seed {seed}: {version}; OTP {releases}; {machine}. Others used {others:.2} cores, \
         {stolen:.2} were withheld.{rough}\n\n{}{method}",
        table(figures)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(name: &'static str, figure: &str, others: f64) -> Measured {
        let interference = Interference { others, stolen: 0.0 };
        Measured { name, figures: vec![Figure::compared(name, figure)], interference, minutes: 2.0 }
    }

    fn about(date: &str) -> About {
        let [date, version, machine, releases] = [date, "beamtune 1", "2 cores", "25"].map(str::to_owned);
        About { date, version, machine, releases, seed: 7 }
    }

    #[test]
    fn what_is_measured_anew_changes_its_section_alone() {
        let all: Vec<_> = GROUPS.iter().map(|group| measured(group.name, "5 ms", 0.0)).collect();
        let page = written("", &all, &about("Monday"), |_| None);
        assert_eq!(page.matches("| 5 ms |").count(), GROUPS.len());
        assert_eq!(
            page.matches("Monday, in 2 minutes, seed 7: beamtune 1; OTP 25; 2 cores.").count(),
            GROUPS.len()
        );
        let again = written(&page, &[measured("linting", "6 ms", 0.3)], &about("Tuesday"), |_| None);
        assert_eq!(again.matches("Monday").count(), GROUPS.len() - 1);
        assert_eq!((again.matches("| 6 ms |").count(), again.matches("**Not quiet.**").count()), (1, 1));
        let kept = |page: &str| page.replace(section(page, "## Linting").expect("a section"), "");
        assert_eq!(kept(&again), kept(&page));
        assert_eq!(written(&page, &[], &about("Tuesday"), |_| None), page);
    }

    #[test]
    fn sections_older_than_their_code_are_marked_once() {
        let linting = || [measured("linting", "5 ms", 0.0)];
        let page = written("", &linting(), &about("2026-11-20"), |_| None);
        let changed = |day: &'static str| move |_: &Group| Some(day.to_owned());
        let old = written(&page, &[], &about(""), changed("2026-11-21"));
        assert!(
            old.contains("## Linting\n\n**Older than the code**: last changed on 2026-11-21.\n\n2026-11-20"),
            "{old}"
        );
        assert_eq!(written(&old, &[], &about(""), changed("2026-11-21")), old);
        assert_eq!(written(&old, &[], &about(""), changed("2026-11-20")), page);
        let again = written(&old, &linting(), &about("2026-11-22"), changed("2026-11-22"));
        assert!(!again.contains(OLDER), "{again}");
    }

    #[test]
    fn what_was_never_measured_says_how_to() {
        let page = written("", &[measured("size", "12 MB", 0.0)], &about("Monday"), |_| None);
        assert!(page.contains("## Linting\n\nNot measured yet: `make bench ONLY=7`.\n"), "{page}");
        assert!(page.contains("| size | 12 MB | – |"), "{page}");
    }
}
