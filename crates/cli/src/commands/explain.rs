//! `beamtune explain`: prints the page of a rule, with a node's measurements.

use std::process::ExitCode;

use anyhow::{Result, bail};
use beamtune_report::{diagnosis, page};
use include_dir::{Dir, include_dir};

use super::doctor::{Recorded, RecordedArgs};
use crate::terminal;

/// A page for each rule (`gc-share.md`), and for each lint (`BF001.md`).
static RULES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../docs/rules");
static LINTS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../docs/lint");

/// Explain a rule or lint; with a target, also show its measurements
#[derive(clap::Args)]
pub struct Args {
    /// Code or name of a rule or lint: BT008, ports-near-limit, BF001
    code: String,
    #[command(flatten)]
    recorded: RecordedArgs,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<ExitCode> {
    let style = terminal::style();
    let Some(subject) = find(&args.code) else {
        bail!(
            "no rule or lint is called {}; `beamtune doctor -v` shows the codes of a node's findings",
            args.code
        )
    };
    let node = match subject.rule {
        Some(code) if args.recorded.has_target() => {
            let Recorded { period, .. } = args.recorded.record(None)?;
            let diagnosis = beamtune_rules::diagnose(&period);
            format!("{}\n", diagnosis::of_rule(&period, &diagnosis, code, style))
        }
        None if args.recorded.has_target() => bail!("{} is a lint: use `beamtune lint FILE`", args.code),
        _ => String::new(),
    };
    terminal::print(&format!("{node}{}", page::render(subject.text, style)));
    Ok(ExitCode::SUCCESS)
}

/// A page, and the rule's code if the page is about a rule.
struct Subject {
    rule: Option<&'static str>,
    text: &'static str,
}

/// Finds a page by code or name, regardless of case.
fn find(asked: &str) -> Option<Subject> {
    let rule = beamtune_rules::RULES
        .iter()
        .find(|rule| rule.code.0.eq_ignore_ascii_case(asked) || rule.name.eq_ignore_ascii_case(asked));
    if let Some(rule) = rule {
        let text = RULES.get_file(format!("{}.md", rule.name))?.contents_utf8()?;
        return Some(Subject { rule: Some(rule.code.0), text });
    }
    let text = LINTS.get_file(format!("{}.md", asked.to_uppercase()))?.contents_utf8()?;
    Some(Subject { rule: None, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_has_a_page_that_can_be_found_by_code_and_name() {
        for rule in beamtune_rules::RULES {
            for asked in [rule.code.0.to_owned(), rule.name.to_owned(), rule.code.0.to_lowercase()] {
                let found = find(&asked).expect(&asked);
                assert!(found.text.contains(rule.code.0), "{asked}");
            }
        }
        assert!(find("bf001").is_some_and(|found| found.rule.is_none()));
        assert!(find("BT999").is_none() && find("../README").is_none());
    }
}
