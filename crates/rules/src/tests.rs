//! Tests every rule on a faulty node, on a healthy node and on a node that lacks its data, and tests every branch of advice. (The binary's
//! own tests diagnose real nodes.)

mod account;
mod binaries;
mod broker;
mod chains;
mod code;
mod cpu;
mod crashes;
mod died;
mod distribution;
mod disturbed;
mod external_waits;
mod heaps;
mod host;
mod hot_code;
mod large_messages;
mod limits;
mod links;
mod listen;
mod locks;
mod memory;
mod messages;
mod mnesia;
mod near_limit;
mod priorities;
mod processes;
mod profile;
mod programs;
mod setup;
mod spawns;
mod staying;
mod tables;
mod traces;
mod waiting;

use std::sync::Arc;
use std::time::Duration;

use beamtune_model::{
    Code, Cost, Diagnosis, Finding, Level, Missing, Outcome, Period, ProcessRow, WaitSampleRow, facts,
};
use beamtune_synthetic as node;

use crate::RULES;
use crate::rule::{Draft, Judgement, Rule};
use node::{SyntheticNode, SyntheticProcess, node, stack_row};

fn diagnose(period: &Period) -> Diagnosis {
    crate::diagnose(&Arc::new(period.clone()))
}

fn outcome(period: &Period, code: &str) -> Outcome {
    let diagnosis = diagnose(period);
    diagnosis
        .verdicts
        .into_iter()
        .find(|verdict| verdict.code.0 == code)
        .expect("a rule with that code")
        .outcome
}

fn finding(node: &SyntheticNode, code: &str) -> Finding {
    match outcome(&node.period(), code) {
        Outcome::Found(findings) => findings.into_iter().next().expect("a finding"),
        other => panic!("{code}: {other:?}"),
    }
}

fn assert_healthy(node: &SyntheticNode, code: &str) {
    let outcome = outcome(&node.period(), code);
    assert!(matches!(outcome, Outcome::Healthy(_)), "{code}: {outcome:?}");
}

/// Returns the value of the evidence with this name.
fn value(finding: &Finding, what: &str) -> Option<f64> {
    finding.evidence.iter().find(|evidence| evidence.what == what).and_then(|evidence| evidence.value)
}

/// Accessors for parts of a finding.
trait Read {
    /// Returns its subject as text.
    fn subject_text(&self) -> Option<String>;
    fn cost(&self) -> Option<Cost>;
}

impl Read for Finding {
    fn subject_text(&self) -> Option<String> {
        self.subject.as_ref().map(ToString::to_string)
    }

    fn cost(&self) -> Option<Cost> {
        self.claim.map(|claim| claim.cost)
    }
}

fn entries(finding: &Finding) -> Vec<&str> {
    finding.remedies.iter().map(|remedy| remedy.entry.as_str()).collect()
}

fn row(change: impl FnOnce(&mut ProcessRow)) -> ProcessRow {
    let mut row = ProcessRow { stack: vec!["gen_server:loop/7".to_owned()], ..ProcessRow::default() };
    change(&mut row);
    row
}

#[test]
fn codes_are_unique_and_in_order() {
    let codes: Vec<_> = RULES.iter().map(|rule| rule.code.0).collect();
    let expect: Vec<_> = (1..=codes.len()).map(|n| format!("BT{n:03}")).collect();
    assert_eq!(codes, expect);
}

/// Finds missing pages, and pages that the list does not contain.
#[test]
fn every_rule_has_its_file_and_its_page() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let stems = |folder: &str, ending: &str| -> Vec<String> {
        let mut stems: Vec<String> = std::fs::read_dir(root.join(folder))
            .expect("a folder")
            .filter_map(|entry| {
                entry.ok()?.file_name().into_string().ok()?.strip_suffix(ending).map(str::to_owned)
            })
            .filter(|stem| stem != "README" && stem != "limits")
            .collect();
        stems.sort();
        stems
    };
    let mut names: Vec<_> = RULES.iter().map(|rule| rule.name.to_owned()).collect();
    names.sort();
    assert_eq!(stems("../../docs/rules", ".md"), names);
    let files: Vec<_> = stems("src/rules", ".rs").iter().map(|stem| stem.replace('_', "-")).collect();
    assert_eq!(files, names);
    let list = std::fs::read_to_string(root.join("../../docs/rules/README.md")).expect("the list of pages");
    for rule in RULES {
        let row = format!("| {} | [{1}]({1}.md) | {2} | ", rule.code, rule.name, rule.question);
        assert!(list.contains(&row), "the list of pages has no row {row:?}");
        let page = std::fs::read_to_string(root.join("../../docs/rules").join(format!("{}.md", rule.name)));
        let page = page.expect("the page of the rule");
        let heading = format!("# {} {}", rule.code, rule.name);
        assert!(page.starts_with(&heading), "{} does not begin with {heading:?}", rule.name);
    }
}

#[test]
fn every_rule_names_a_test_that_confirms_or_refutes_it() {
    for rule in RULES {
        assert!(rule.confirm.len() > 30 && !rule.confirm.ends_with('.'), "{}", rule.name);
    }
}

#[test]
fn a_healthy_node_has_no_finding() {
    let diagnosis = diagnose(&node().period());
    let above: Vec<_> = diagnosis.findings().into_iter().filter(|f| f.level > Level::Notice).collect();
    assert!(above.is_empty(), "{above:#?}");
    let unjudged: Vec<_> =
        diagnosis.verdicts.iter().filter(|v| matches!(v.outcome, Outcome::NotJudged { .. })).collect();
    assert!(unjudged.is_empty(), "{unjudged:#?}");
}

#[test]
fn nothing_is_healthy_without_data() {
    for verdict in diagnose(&Period::default()).verdicts {
        assert!(
            matches!(verdict.outcome, Outcome::NotJudged { .. }),
            "{}: {:?}",
            verdict.code,
            verdict.outcome
        );
    }
}

#[test]
fn a_rule_without_its_required_data_gives_no_result() {
    for rule in RULES {
        for needed in rule.needs {
            let period = node()
                .with(|n| {
                    n.missing_metrics.push(needed);
                    n.quota = Some(1_000);
                })
                .period();
            let outcome = outcome(&period, rule.code.0);
            assert!(
                matches!(outcome, Outcome::NotJudged { .. }),
                "{} without {}: {outcome:?}",
                rule.code,
                needed.name
            );
        }
    }
}

#[test]
fn every_remedy_named_in_the_rules_has_an_entry() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/rules");
    let mut ids = Vec::new();
    for entry in std::fs::read_dir(root).expect("the rules") {
        let text = std::fs::read_to_string(entry.expect("a file").path()).expect("the text of the file");
        for (index, _) in text.match_indices("remedy::of(") {
            let call = &text[index..];
            let id = call.split('"').nth(1).expect("a literal id");
            ids.push(id.to_owned());
        }
    }
    assert!(ids.len() > 20, "{ids:?}");
    for id in ids {
        let entry = beamtune_flags::entry(&id).unwrap_or_else(|| panic!("no entry {id}"));
        assert!(!entry.risk.to_string().is_empty(), "{id} does not state its risk");
        assert!(!entry.releases(Some(25)).is_empty(), "{id} does not state its releases");
    }
}

/// A test rule with this code.
const fn rule(code: &'static str, judge: fn(&Period) -> Result<Judgement, Missing>) -> Rule {
    Rule { code: Code(code), name: "test", judge, ..Rule::COMMON }
}

#[test]
fn a_rule_that_panics_or_hangs_is_reported_and_later_rules_still_run() {
    static RULES: [Rule; 4] = [
        rule("BT901", |_| panic!("as a test wants")),
        rule("BT902", |_| {
            loop {
                std::thread::sleep(Duration::from_millis(50));
            }
        }),
        rule("BT903", |_| Ok(Judgement::found(Draft::new(50.0, "something")))),
        rule("BT904", |_| Ok(Judgement::Healthy("all".to_owned()))),
    ];
    // Printing the panic with its stack takes a second on a busy host.
    let limit = Duration::from_secs(5);
    let diagnosis = crate::by(RULES.iter(), &Arc::new(node().period()), limit);
    let reasons: Vec<String> = diagnosis
        .verdicts
        .iter()
        .map(|verdict| match &verdict.outcome {
            Outcome::NotJudged { reason, .. } => reason.clone(),
            other => format!("{} {other:?}", verdict.code),
        })
        .collect();
    assert_eq!(reasons[0], "fault in beamtune: rule BT901 test failed");
    assert_eq!(reasons[1], "fault in beamtune: rule BT902 test did not finish in 5 s");
    let found: Vec<_> = diagnosis.findings().iter().map(|finding| finding.code.0).collect();
    assert_eq!(found, ["BT903"], "{reasons:#?}");
    assert_eq!(reasons[3], "BT904 Healthy(\"all\")");
}

/// The stack of a process that others wait for.
fn held(pid: &str, status: &str, stack: &[&str]) -> WaitSampleRow {
    WaitSampleRow {
        pid: Some(pid.to_owned()),
        status: status.to_owned(),
        sample_size: 0,
        ..stack_row(1, stack, &[])
    }
}

fn serial() -> SyntheticNode {
    node().with(|n| {
        n.utilization = 0.5;
        n.cpu = 0.5;
        n.busiest = vec![SyntheticProcess {
            pid: "<0.99.0>",
            reductions: 800_000,
            queue: (30, 0),
            runnable_of_10: 10,
            row: row(|r| {
                r.name = Some("router".to_owned());
                r.current_function = Some("router:handle/2".to_owned());
            }),
            ..SyntheticProcess::default()
        }];
    })
}

#[test]
fn a_remedy_that_the_release_does_not_support_is_not_offered() {
    let period =
        |release: &str| node().with(|n| n.facts.push((facts::OTP_RELEASE, release.to_owned()))).period();
    let offered = |release| crate::remedy::of(&period(release), "+Mdai", "+Mdai max", "", "").is_some();
    assert!(!offered("23"), "an unknown flag prevents the boot");
    assert!(offered("25"));
}
