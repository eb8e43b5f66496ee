//! Diagnoses recordings of labs that were made with earlier versions (`fixtures/recordings`).

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use beamtune_model::{Code, Diagnosis, Finding, Level, Outcome, Subject, Unit};
use beamtune_recording::{Reader, Selection};
use beamtune_report::Style;
use beamtune_report::diagnosis::{Invocation, MAX_HEALTHY_LINES, MAX_LINES, View, render};
use beamtune_rules::relations;

/// Returns all recordings by name.
fn recordings() -> BTreeMap<String, PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/recordings");
    let entries = std::fs::read_dir(&folder).expect("fixtures/recordings");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let recordings = paths.filter(|path| path.extension().is_some_and(|ending| ending == "beamtune"));
    recordings.map(|path| (path.file_stem().unwrap().to_string_lossy().into_owned(), path)).collect()
}

fn diagnose(path: &Path) -> Diagnosis {
    let period = Reader::open(path).expect("a recording").period(&Selection::default()).expect("a period");
    beamtune_rules::diagnose(&Arc::new(period))
}

/// Returns the essence of a diagnosis without text: codes, levels and causes of all findings.
fn skeleton(diagnosis: &Diagnosis) -> Vec<(Code, Level, Option<Code>)> {
    let findings = diagnosis.findings();
    findings
        .iter()
        .map(|finding| (finding.code, finding.level, finding.follows.as_ref().map(|follows| follows.code)))
        .collect()
}

fn without_prose(finding: &mut Finding) {
    finding.title = "x".to_owned();
    finding.detail = "x".to_owned();
    for evidence in &mut finding.evidence {
        evidence.what = "x".to_owned();
        evidence.text = evidence.text.as_ref().map(|_| "x".to_owned());
        evidence.source = evidence.source.as_ref().map(|_| "x".to_owned());
    }
    finding.against.iter_mut().for_each(|against| *against = "x".to_owned());
    finding.confirm = "x";
    for remedy in &mut finding.remedies {
        for text in [&mut remedy.change, &mut remedy.why, &mut remedy.risk, &mut remedy.prove] {
            *text = "x".to_owned();
        }
    }
}

#[test]
fn rewording_changes_neither_levels_nor_order_nor_relations() {
    let mut related = 0;
    for (name, path) in recordings() {
        let diagnosis = diagnose(&path);
        let mut reworded = diagnosis.clone();
        for verdict in &mut reworded.verdicts {
            if let Outcome::Found(found) = &mut verdict.outcome {
                found.iter_mut().for_each(without_prose);
            }
        }
        relations::relate(&mut reworded.verdicts);
        assert_eq!(skeleton(&reworded), skeleton(&diagnosis), "{name}");
        related += skeleton(&diagnosis).iter().filter(|(.., follows)| follows.is_some()).count();
    }
    assert!(related >= 3, "only {related} relations in all recordings, which is too few for this test");
}

#[test]
fn pages_stay_within_their_line_and_width_limits() {
    for (name, path) in recordings() {
        let period = Arc::new(Reader::open(&path).unwrap().period(&Selection::default()).unwrap());
        let diagnosis = beamtune_rules::diagnose(&period);
        let is_healthy = diagnosis.worst().is_none_or(|worst| worst == Level::Notice);
        let most = if is_healthy { MAX_HEALTHY_LINES } else { MAX_LINES };
        for width in [80, 100] {
            let style = Style { width, ..Style::PLAIN };
            let view = View {
                style,
                invocation: Some(Invocation { command: "doctor", target: "shop@web1" }),
                ..View::PLAIN
            };
            let page = render(&period, &diagnosis, &view);
            let lines = page.lines().count();
            assert!(lines <= most, "{name}: {lines} lines\n{page}");
            assert!(page.lines().all(|line| line.chars().count() <= width), "{name}\n{page}");
        }
    }
}

/// Lists contradictions between the findings of a page, by codes and subjects. Readers take each finding literally.
fn contradictions(diagnosis: &Diagnosis) -> Vec<String> {
    let findings = diagnosis.findings();
    let mut found = Vec::new();
    let pid = |finding: &Finding| finding.subject.as_ref().and_then(Subject::pid).map(str::to_owned);
    for one in &findings {
        // A process cannot be busy all the time and also wait for replies.
        let waits =
            |other: &&&Finding| other.code.0 == "BT053" && pid(other).is_some() && pid(other) == pid(one);
        if one.code.0 == "BT005" && findings.iter().any(|other| waits(&other)) {
            found.push(format!("{} is busy, and waits", one.title));
        }
        if let Some(follows) = &one.follows
            && !findings.iter().any(|other| other.code == follows.code)
        {
            found.push(format!("{} follows from {}, which was not found", one.code, follows.code));
        }
        // A share cannot exceed 100 %.
        let is_whole = |evidence: &&beamtune_model::Evidence| {
            evidence.unit == Unit::Ratio
                && evidence.what.contains("share of")
                && evidence.what.contains("reductions")
                && evidence.value > Some(1.0)
        };
        found
            .extend(one.evidence.iter().find(is_whole).map(|evidence| format!("{}: {evidence:?}", one.code)));
        // Two findings must not advise different values of the same setting, unless one finding is a consequence of another.
        for other in findings.iter().filter(|other| other.code != one.code && pid(other) == pid(one)) {
            let are_apart = one.follows.is_none() && other.follows.is_none();
            for (mine, theirs) in
                one.remedies.iter().flat_map(|mine| other.remedies.iter().map(move |theirs| (mine, theirs)))
            {
                let is_flag = mine.entry.starts_with('+') && mine.entry == theirs.entry;
                let value =
                    |change: &str| change.split([',', ';', ' ']).take(2).collect::<Vec<_>>().join(" ");
                if are_apart && is_flag && value(&mine.change) != value(&theirs.change) {
                    found.push(format!(
                        "{} says {}, {} says {}",
                        one.code, mine.change, other.code, theirs.change
                    ));
                }
            }
        }
    }
    found
}

#[test]
fn findings_of_one_page_do_not_contradict_each_other() {
    for (name, path) in recordings() {
        assert_eq!(contradictions(&diagnose(&path)), Vec::<String>::new(), "{name}");
    }
}

#[test]
fn recordings_of_earlier_versions_are_diagnosed() {
    let text = std::fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/recordings/expected.txt"),
    );
    let text = text.expect("expected.txt");
    let expected: BTreeMap<&str, &str> = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .map(|line| line.split_once(' ').expect("NAME CODE"))
        .collect();
    let recordings = recordings();
    assert_eq!(expected.len(), recordings.len(), "one line for each recording");
    for (name, path) in &recordings {
        let diagnosis = diagnose(path);
        let first = diagnosis.findings().first().map(|finding| finding.code.0);
        let worst = diagnosis.worst().filter(|level| *level > Level::Notice);
        match expected[name.as_str()] {
            "healthy" => assert_eq!(worst, None, "{name}: {:?}", skeleton(&diagnosis)),
            code => assert_eq!(first, Some(code), "{name}: {:?}", skeleton(&diagnosis)),
        }
    }
}
