//! Writes docs/benchmarks.md: a section per group of figures, with its date and method. Measuring one group changes only
//! its section.

use std::process::Command;

use anyhow::Result;

use super::figure::{Figure, table};
use super::machine::{self, Interference};
use super::{Bench, CONFIDENCE, GROUPS, Group, process};

/// CPU use by other processes, in cores, above which figures are described as rough. Contention has been seen to reverse the sign
/// of an effect.
const QUIET_CORES: f64 = 0.1;

/// The result of a group.
pub struct Measured {
    /// The group's name.
    pub name: &'static str,
    /// The figures.
    pub figures: Vec<Figure>,
    /// CPU use by others.
    pub interference: Interference,
    /// Duration of the measurement.
    pub minutes: f64,
}

/// Date, program and host of a measurement.
pub struct Setup {
    date: String,
    version: String,
    machine: String,
    releases: String,
    seed: u64,
}

impl Setup {
    /// Returns the current setup.
    pub fn of(bench: &Bench) -> Result<Setup> {
        let line =
            |command: &mut Command| Ok::<_, anyhow::Error>(process::output(command)?.trim().to_owned());
        let releases: Vec<_> = bench.otps.iter().map(|otp| otp.release.to_string()).collect();
        Ok(Setup {
            date: line(Command::new("date").args(["-u", "+%Y-%m-%d %H:%M UTC"]))?,
            version: line(Command::new(&bench.beamtune).arg("--version"))?,
            machine: machine::describe(),
            releases: releases.join(", "),
            seed: bench.seed,
        })
    }
}

/// Returns the page with the measured groups. Other sections are copied from `before`, and marked as outdated if their code changed on a
/// later day (`last_change`).
pub fn render(
    before: &str,
    measured: &[Measured],
    setup: &Setup,
    last_change: impl Fn(&Group) -> Option<String>,
) -> String {
    let mut out = format!(
        "# Benchmarks\n\n\
         <!-- Written by `make bench`. `make bench ONLY=4` writes only the fourth section, `make bench ONLY=none` only marks \
         sections that are older than their code. -->\n\n\
         The overhead of beamtune on the node that it samples, its speed, and comparisons with other tools. Each section gives \
         its date, its host, and the CPU time that other processes used during the measurement. Above {QUIET_CORES} cores the host was not quiet, \
         and the figures are rough.\n\n\
         Comparisons alternate between the variants in windows of one run, in blocks of random order. A figure with brackets is \
         the Hodges-Lehmann estimate of the differences within blocks, with the exact interval of Wilcoxon's signed-rank test \
         at {confidence} % or more (`crates/stats/src/paired.rs`). A limit is met if the whole interval is below it, missed if \
         all of it is above, and inconclusive otherwise.\n",
        confidence = CONFIDENCE * 100.0,
    );
    for (index, group) in GROUPS.iter().enumerate() {
        let heading = heading(group);
        let result = measured.iter().find(|result| result.name == group.name);
        let text = match (result, section(before, &heading)) {
            (Some(result), _) => section_text(result, group, setup),
            (None, Some(kept)) => mark_outdated(kept, last_change(group)),
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

/// Returns the text from a heading to the next one.
fn section<'a>(page: &'a str, heading: &str) -> Option<&'a str> {
    let (_, behind) = page.split_once(&format!("\n{heading}\n\n"))?;
    Some(behind.split_once("\n## ").map_or(behind, |(text, _)| text))
}

const OUTDATED: &str = "**Outdated**: ";

/// Marks a section as outdated if it is older than its code. A section begins with the day on which it was measured.
fn mark_outdated(section: &str, last_change: Option<String>) -> String {
    let text = match section.strip_prefix(OUTDATED).and_then(|marked| marked.split_once("\n\n")) {
        Some((_, text)) => text,
        None => section,
    };
    match last_change {
        Some(day) if text.get(..day.len()).is_some_and(|measured| measured < day.as_str()) => {
            format!("{OUTDATED}the code changed on {day}.\n\n{text}")
        }
        _ => text.to_owned(),
    }
}

fn section_text(measured: &Measured, group: &Group, setup: &Setup) -> String {
    let Measured { figures, interference, minutes, .. } = measured;
    let Setup { date, version, machine, releases, seed } = setup;
    let Interference { others, stolen } = interference;
    let rough = if others + stolen > QUIET_CORES { " **Not quiet.**" } else { "" };
    let method = (group.method)();
    let method = if method.is_empty() { method } else { format!("\n{method}\n") };
    format!(
        "{date}, in {minutes:.0} minutes, seed {seed}: {version}; OTP {releases}; {machine}. Other processes used {others:.2} \
         cores, steal {stolen:.2} cores.{rough}\n\n{}{method}",
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

    fn setup(date: &str) -> Setup {
        let [date, version, machine, releases] = [date, "beamtune 1", "2 cores", "25"].map(str::to_owned);
        Setup { date, version, machine, releases, seed: 7 }
    }

    #[test]
    fn a_measured_group_changes_only_its_section() {
        let all: Vec<_> = GROUPS.iter().map(|group| measured(group.name, "5 ms", 0.0)).collect();
        let page = render("", &all, &setup("Monday"), |_| None);
        assert_eq!(page.matches("| 5 ms |").count(), GROUPS.len());
        assert_eq!(
            page.matches("Monday, in 2 minutes, seed 7: beamtune 1; OTP 25; 2 cores.").count(),
            GROUPS.len()
        );
        let again = render(&page, &[measured("linting", "6 ms", 0.3)], &setup("Tuesday"), |_| None);
        assert_eq!(again.matches("Monday").count(), GROUPS.len() - 1);
        assert_eq!((again.matches("| 6 ms |").count(), again.matches("**Not quiet.**").count()), (1, 1));
        let kept = |page: &str| page.replace(section(page, "## Linting").expect("a section"), "");
        assert_eq!(kept(&again), kept(&page));
        assert_eq!(render(&page, &[], &setup("Tuesday"), |_| None), page);
    }

    #[test]
    fn sections_older_than_their_code_are_marked_once() {
        let linting = || [measured("linting", "5 ms", 0.0)];
        let page = render("", &linting(), &setup("2026-11-20"), |_| None);
        let changed = |day: &'static str| move |_: &Group| Some(day.to_owned());
        let old = render(&page, &[], &setup(""), changed("2026-11-21"));
        assert!(
            old.contains("## Linting\n\n**Outdated**: the code changed on 2026-11-21.\n\n2026-11-20"),
            "{old}"
        );
        assert_eq!(render(&old, &[], &setup(""), changed("2026-11-21")), old);
        assert_eq!(render(&old, &[], &setup(""), changed("2026-11-20")), page);
        let again = render(&old, &linting(), &setup("2026-11-22"), changed("2026-11-22"));
        assert!(!again.contains(OUTDATED), "{again}");
    }

    #[test]
    fn a_group_without_figures_names_the_command() {
        let page = render("", &[measured("size", "12 MB", 0.0)], &setup("Monday"), |_| None);
        assert!(page.contains("## Linting\n\nNot measured yet: `make bench ONLY=7`.\n"), "{page}");
        assert!(page.contains("| size | 12 MB | – |"), "{page}");
    }
}
