//! Grades diagnoses: compares them with the ground truth of VMs whose state is known.

use std::sync::Arc;

use anyhow::Result;
use beamtune_model::memory::{MemoryBreakdown, moved_during_scan};
use beamtune_model::{Diagnosis, Finding, HostPart, Level, Signal, Subject};
use beamtune_recording::{Reader, Selection};

use crate::flag_check::{FlagChecker, flags_of};
use crate::rows::{DISTURBING_CORES, Judged, Row, render_ranks};
use crate::{limits, synthetic};

/// Minimum steal, as counted by the kernel, for which a finding of steal is true. The rule's own minimum is 0.05; it is lower here,
/// since the period of the rule is only a part of the time counted here.
pub const MIN_STOLEN_CORES: f64 = 0.04;

/// The rule about CPU starvation.
const STARVED: &str = "BT004";

/// Maximum rank of a single cause. Each further cause raises the maximum by one.
const MAX_RANK: usize = 3;

/// Maximum share of resident memory that may be unexplained.
const MAX_UNEXPLAINED_SHARE: f64 = 0.03;
/// Up to this size, unexplained memory is allowed even if its share is larger.
const MAX_UNEXPLAINED_BYTES: f64 = 8e6;

/// The ground truth: the known state of a VM.
pub struct Truth<'a> {
    /// Expected findings: `CODE` above "notice"; `CODE:SUBJECT` at any level, `*` for any subject; `CODE!ENTRY` at any level with a remedy
    /// of that entry. `|` separates alternatives.
    pub expect: &'a [String],
    /// Other findings that are allowed, with or without a subject.
    pub allow: &'a [String],
    /// The root causes among `expect`.
    pub causes: Vec<&'a str>,
    /// True for the sick variant, which must have the expected findings; the healthy one must not.
    pub is_sick: bool,
    /// Names that must all occur in the expected findings.
    pub culprits: Vec<&'a str>,
    /// Cores used by processes outside of the case.
    pub foreign_cores: f64,
    /// Part of these that the hypervisor gave to other guests.
    pub stolen_cores: f64,
}

/// Returns the root causes among the expected findings: the given cause, or all of them.
pub fn causes<'a>(expect: &'a [String], cause: Option<&'a String>) -> Vec<&'a str> {
    match cause {
        Some(cause) => vec![cause.as_str()],
        None => expect.iter().map(String::as_str).collect(),
    }
}

/// Returns the codes in an expectation.
#[cfg(test)]
pub fn codes(expectation: &str) -> impl Iterator<Item = &str> {
    expectation.split('|').filter_map(|either| either.split([':', '!']).next())
}

/// True if a finding has the code of an expectation, and also its subject if the expectation has one.
fn is_of(finding: &Finding, expectation: &str) -> bool {
    expectation.split('|').any(|either| match either.split_once(':') {
        Some((code, about)) => finding.code.0 == code && (about == "*" || is_about(finding, about)),
        None => either.split('!').next() == Some(finding.code.0),
    })
}

/// True if a finding meets an expectation.
fn is_hit(finding: &Finding, expectation: &str) -> bool {
    expectation.split('|').any(|either| {
        if let Some((code, entry)) = either.split_once('!') {
            return finding.code.0 == code && finding.remedies.iter().any(|remedy| remedy.entry == entry);
        }
        match either.split_once(':') {
            Some((code, "*")) => finding.code.0 == code,
            Some((code, about)) => finding.code.0 == code && is_about(finding, about),
            None => finding.code.0 == either && finding.level > Level::Notice,
        }
    })
}

/// Grades a diagnosis. Also returns the flags of each remedy, for a VM to check.
pub fn judge(diagnosis: &Diagnosis, truth: &Truth<'_>) -> (Judged, Vec<Vec<String>>) {
    // Some synthetic nodes have known OTP bugs, which are reported as possible (latent) instead of observed.
    let findings: Vec<&Finding> = diagnosis.findings().into_iter().chain(diagnosis.latent()).collect();
    let mut judged = Judged {
        found: findings.iter().map(|finding| format!("{} {}", finding.code.0, level(finding))).collect(),
        foreign_cores: truth.foreign_cores,
        stolen_cores: truth.stolen_cores,
        ..Judged::default()
    };
    let is_known =
        |finding: &Finding| truth.expect.iter().chain(truth.allow).any(|known| is_of(finding, known));
    // Excused: true for the host, but not caused by the case.
    let is_excused = |finding: &Finding| {
        let is_own = truth.is_sick && is_known(finding);
        let is_true = match finding.subject {
            Some(Subject::Host { part: HostPart::Steal }) => truth.stolen_cores >= MIN_STOLEN_CORES,
            _ => truth.foreign_cores >= DISTURBING_CORES,
        };
        finding.code.0 == STARVED && !is_own && is_true
    };
    let is_expected = |finding: &Finding| truth.expect.iter().any(|code| is_hit(finding, code));
    if truth.is_sick {
        let is_missing = |code: &&String| !findings.iter().any(|finding| is_hit(finding, code));
        judged.missing = truth.expect.iter().filter(is_missing).cloned().collect();
        let takes_place = |finding: &&&Finding| finding.follows.is_none() && !is_excused(finding);
        let first: Vec<&&Finding> = findings.iter().filter(takes_place).collect();
        let rank = |cause: &&str| first.iter().position(|finding| is_hit(finding, cause)).map(|at| at + 1);
        judged.ranks = truth.causes.iter().map(rank).collect();
        let is_named =
            |culprit: &&str| findings.iter().any(|finding| is_expected(finding) && names(finding, culprit));
        judged.culprit = (!truth.culprits.is_empty()).then(|| truth.culprits.iter().all(is_named));
    }
    let is_unwanted = |finding: &&&Finding| match is_expected(finding) {
        true => !truth.is_sick,
        false => finding.level > Level::Notice && !is_known(finding),
    };
    for finding in findings.iter().filter(is_unwanted) {
        let list = if is_excused(finding) { &mut judged.excused } else { &mut judged.false_findings };
        list.push(sentence(finding));
    }
    let mut expected = findings.iter().filter(|finding| is_expected(finding));
    judged.estimate_bytes = expected.find_map(|finding| finding.remedies.first()?.saves_bytes);
    let remedies = findings.iter().flat_map(|finding| &finding.remedies).map(flags_of);
    (judged, remedies.filter(|flags| !flags.is_empty()).collect())
}

/// Grades the diagnosis of a recording. Remedies are graded only if `flags` is given, to check their flags with a VM.
pub fn judge_recording(reader: &Reader, truth: &Truth<'_>, flags: Option<&FlagChecker>) -> Result<Judged> {
    let period = Arc::new(reader.period(&Selection::default())?);
    let diagnosis = beamtune_rules::diagnose(&period);
    let (mut judged, remedies) = judge(&diagnosis, truth);
    let page = limits::page(&period, &diagnosis);
    judged.page_lines = Some(page.lines().count());
    judged.broken_limits = limits::broken(&page, diagnosis.worst());
    if let Some(checker) = flags {
        judged.remedies = remedies.len();
        for flags in remedies {
            judged.refused.extend((!checker.accepts(&flags)?).then(|| flags.join(" ")));
        }
    }
    let bridge = MemoryBreakdown::of(&period);
    (judged.resident_bytes, judged.unexplained_bytes) = (bridge.resident, bridge.unexplained());
    judged.moved_bytes = moved_during_scan(&period) as i64;
    Ok(judged)
}

/// Grades the diagnosis of a synthetic node.
pub fn judge_synthetic(
    case: &synthetic::Case,
    is_sick: bool,
    release: u32,
    flags: Option<&FlagChecker>,
) -> Result<Judged> {
    let owned = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
    let (expect, allow) = (owned(case.expect), owned(case.allow));
    let truth = Truth {
        expect: &expect,
        allow: &allow,
        causes: causes(&expect, None),
        culprits: Vec::new(),
        is_sick,
        foreign_cores: 0.0,
        stolen_cores: 0.0,
    };
    judge_recording(&case.recording(is_sick, release)?, &truth, flags)
}

/// Returns two answers: whether one of the causes ranks first, and whether all of them rank near the top.
pub fn places(ranks: &[Option<usize>]) -> (bool, bool) {
    let is_first = ranks.contains(&Some(1));
    let last = MAX_RANK + ranks.len().saturating_sub(1);
    (is_first, ranks.iter().all(|rank| rank.is_some_and(|rank| rank <= last)))
}

fn sentence(finding: &Finding) -> String {
    format!("{} ({}): {}", finding.code.0, level(finding), finding.title)
}

fn level(finding: &Finding) -> &'static str {
    match finding.level {
        Level::Notice => "notice",
        Level::Warning => "warning",
        Level::Critical => "critical",
    }
}

impl Row {
    /// Lists what is wrong with the result of the run; empty if nothing is.
    pub fn faults(&self) -> Vec<String> {
        let Judged { missing, ranks, refused, false_findings, .. } = &self.judged;
        let mut faults: Vec<String> =
            self.error.iter().map(|error| format!("could not be judged: {error}")).collect();
        faults.extend(missing.iter().map(|code| format!("no {code}")));
        if missing.is_empty() && !places(ranks).1 {
            faults.push(format!("the cause is ranked too low: {}", render_ranks(ranks)));
        }
        if self.judged.culprit == Some(false) {
            faults.push("the culprit is not named".to_owned());
        }
        faults.extend(refused.iter().map(|flag| format!("OTP {} refuses {flag}", self.run.release)));
        faults.extend(false_findings.iter().map(|finding| format!("false: {finding}")));
        if self.error.is_none() && self.judged.is_memory_due && self.judged.unexplained_bytes.is_none() {
            faults.push("the memory map was not read".to_owned());
        }
        if let (Some(resident), Some(unexplained)) =
            (self.judged.resident_bytes, self.judged.unexplained_bytes)
            && (unexplained.abs() as f64)
                > MAX_UNEXPLAINED_BYTES
                    .max(MAX_UNEXPLAINED_SHARE * resident as f64)
                    .max(self.judged.moved_bytes as f64)
        {
            let mb = |bytes: i64| bytes as f64 / 1e6;
            faults.push(format!("{:.1} of {:.1} MB are not explained", mb(unexplained), mb(resident)));
        }
        faults
    }
}

/// True if the subject of a finding, or one of its signals, has the name of the culprit. The texts of the finding are ignored.
fn names(finding: &Finding, culprit: &str) -> bool {
    let others = finding.signals.iter().flat_map(Signal::names);
    let own = finding.subject.iter().flat_map(Subject::names);
    own.chain(others).any(|name| is_called(name, culprit))
}

/// True if `name` is `culprit`, or contains it as a word (`child of shop_sup:init/1`), also with a number: `worker_7` for `worker`.
fn is_called(name: &str, culprit: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || "_@.".contains(c);
    name == culprit
        || name.match_indices(culprit).any(|(at, _)| {
            let before = name[..at].chars().next_back();
            let after = &name[at + culprit.len()..];
            let after = after
                .strip_prefix('_')
                .map_or(after, |number| number.trim_start_matches(|c: char| c.is_ascii_digit()));
            !before.is_some_and(is_part) && !after.chars().next().is_some_and(is_part)
        })
}

/// True if a finding has a subject with this name or kind, or a signal with this text.
fn is_about(finding: &Finding, about: &str) -> bool {
    let subject = finding.subject.as_ref();
    subject.is_some_and(|subject| subject.kind_name() == about || subject.names().contains(&about))
        || finding.signals.iter().any(|signal| matches!(signal, Signal::Unused(why) if why.text() == about))
}

#[cfg(test)]
mod tests {
    use beamtune_model::{Code, Follows, Outcome, Remedy, Verdict};

    use super::*;
    use crate::rows::Setting;
    use crate::rows::tests::row;

    fn finding(code: &'static str, score: f64, follows: Option<&'static str>) -> Finding {
        Finding {
            subject: Some(Subject::Table { name: "subject".to_owned(), owner: Some("worker_7".to_owned()) }),
            follows: follows.map(|code| Follows { code: Code(code), rule: "rule", why: "why" }),
            ..Finding::bare(Code(code), score)
        }
    }

    fn diagnosis(findings: &[Finding]) -> Diagnosis {
        let verdict = |finding: &Finding| Verdict {
            code: finding.code,
            rule: "rule",
            outcome: Outcome::Found(vec![finding.clone()]),
        };
        Diagnosis { verdicts: findings.iter().map(verdict).collect(), cpu: None }
    }

    fn verdict(findings: &[Finding], expect: &[&str], is_sick: bool, foreign_cores: f64) -> Judged {
        let expect: Vec<String> = expect.iter().map(ToString::to_string).collect();
        let allow = ["BT015".to_owned()];
        let causes = causes(&expect, None);
        let truth = Truth {
            expect: &expect,
            allow: &allow,
            causes,
            is_sick,
            culprits: vec!["worker_7"],
            foreign_cores,
            stolen_cores: foreign_cores / 10.0,
        };
        judge(&diagnosis(findings), &truth).0
    }

    #[test]
    fn a_consequence_of_another_finding_has_no_rank() {
        let found = [
            finding("BT002", 80.0, None),
            finding("BT016", 90.0, Some("BT002")),
            finding("BT006", 30.0, None),
        ];
        let judged = verdict(&found, &["BT006"], true, 0.0);
        assert_eq!(judged.ranks, [Some(2)]);
        assert_eq!(verdict(&found, &["BT016"], true, 0.0).ranks, [None]);
        assert_eq!(judged.culprit, Some(true));
        assert_eq!(judged.false_findings.len(), 2, "{judged:?}");
    }

    #[test]
    fn a_notice_meets_an_expectation_only_with_its_subject() {
        let found = [finding("BT009", 10.0, None)];
        assert_eq!(verdict(&found, &["BT009"], true, 0.0).missing, ["BT009"]);
        assert!(verdict(&found, &["BT009"], false, 0.0).false_findings.is_empty());
        assert!(verdict(&found, &["BT009:subject"], true, 0.0).missing.is_empty());
        assert!(verdict(&found, &["BT009:*"], true, 0.0).missing.is_empty());
        assert_eq!(verdict(&found, &["BT009:other"], true, 0.0).missing, ["BT009:other"]);
        assert_eq!(verdict(&found, &["BT009:subject"], false, 0.0).false_findings.len(), 1);
    }

    #[test]
    fn findings_with_an_unexpected_subject_are_false() {
        let found = [finding("BT045", 50.0, None)];
        assert_eq!(verdict(&found, &["BT045:other"], false, 0.0).false_findings.len(), 1);
        assert_eq!(verdict(&found, &["BT045:other"], true, 0.0).false_findings.len(), 1);
        assert!(verdict(&found, &["BT045:*"], true, 0.0).false_findings.is_empty());
        // This also holds for an allowed finding.
        let other = Finding { subject: Some(Subject::table("other")), ..finding("BT045", 50.0, None) };
        let allow = ["BT045:subject".to_owned()];
        let truth = Truth {
            expect: &[],
            allow: &allow,
            causes: Vec::new(),
            is_sick: false,
            culprits: Vec::new(),
            foreign_cores: 0.0,
            stolen_cores: 0.0,
        };
        let judged = judge(&diagnosis(&[found[0].clone(), other]), &truth).0;
        assert_eq!((judged.false_findings.len(), judged.culprit), (1, None), "{judged:?}");
    }

    #[test]
    fn all_culprits_must_be_named() {
        let expect = ["BT005".to_owned()];
        let named = |culprits: &[&'static str]| {
            let truth = Truth {
                expect: &expect,
                allow: &[],
                causes: causes(&expect, None),
                is_sick: true,
                culprits: culprits.to_vec(),
                foreign_cores: 0.0,
                stolen_cores: 0.0,
            };
            judge(&diagnosis(&[finding("BT005", 50.0, None)]), &truth).0.culprit
        };
        assert_eq!(named(&["worker_7"]), Some(true));
        assert_eq!(named(&["worker_7", "worker_9"]), Some(false));
        assert_eq!(named(&[]), None);
    }

    #[test]
    fn a_finding_can_be_expected_by_its_remedy() {
        let advised = |entry: &str| {
            let remedy = Remedy {
                entry: entry.to_owned(),
                change: String::new(),
                why: String::new(),
                risk: String::new(),
                releases: String::new(),
                at_run_time: false,
                prove: String::new(),
                saves_bytes: None,
            };
            [Finding { remedies: vec![remedy], ..finding("BT011", 80.0, None) }]
        };
        assert_eq!(verdict(&advised("+Mdai"), &["BT011!+Mdai"], true, 0.0).ranks, [Some(1)]);
        assert_eq!(verdict(&advised("+hms"), &["BT011!+Mdai"], true, 0.0).missing, ["BT011!+Mdai"]);
        assert_eq!(verdict(&advised("+Mdai"), &["BT012!+Mdai"], true, 0.0).missing, ["BT012!+Mdai"]);
        // The healthy variant may have the finding with another remedy.
        assert!(verdict(&advised("+hms"), &["BT011!+Mdai"], false, 0.0).false_findings.is_empty());
        assert_eq!(verdict(&advised("+Mdai"), &["BT011!+Mdai"], false, 0.0).false_findings.len(), 1);
    }

    #[test]
    fn one_of_two_alternative_findings_suffices() {
        let found = [finding("BT017", 80.0, None), finding("BT011", 70.0, Some("BT017"))];
        let judged = verdict(&found, &["BT011|BT017"], true, 0.0);
        assert_eq!((judged.ranks, judged.missing.len(), judged.false_findings.len()), (vec![Some(1)], 0, 0));
        assert_eq!(verdict(&found[1..], &["BT011|BT017"], false, 0.0).false_findings.len(), 1);
        let judged = verdict(&[finding("BT005", 80.0, None)], &["BT011|BT017:*"], true, 0.0);
        assert_eq!(judged.missing, ["BT011|BT017:*"]);
        assert_eq!(judged.false_findings.len(), 1);
    }

    #[test]
    fn allowed_findings_are_not_false_and_a_disturbed_host_excuses_only_cpu_starvation() {
        let found =
            [finding("BT015", 50.0, None), finding("BT004", 50.0, None), finding("BT005", 50.0, None)];
        let judged = verdict(&found, &[], false, 0.9);
        assert_eq!((judged.false_findings.len(), judged.excused.len()), (1, 1), "{judged:?}");
        assert_eq!(verdict(&found, &["BT005"], true, 0.9).ranks, [Some(1)]);
        assert_eq!(verdict(&found, &["BT005"], true, 0.1).ranks, [Some(2)]);
        assert_eq!(verdict(&found, &[], false, 0.1).false_findings.len(), 2);
        let cured = verdict(&found, &["BT004"], false, 0.9);
        assert_eq!((cured.false_findings.len(), cured.excused.len()), (1, 1), "{cured:?}");
    }

    #[test]
    fn steal_is_true_if_the_kernel_counted_it() {
        let steal = Finding { subject: Some(Subject::host(HostPart::Steal)), ..finding("BT004", 50.0, None) };
        let found = [steal, finding("BT005", 40.0, None)];
        assert_eq!(verdict(&found, &["BT005"], true, 0.6).ranks, [Some(1)]);
        assert_eq!(verdict(&found, &["BT005"], true, 0.3).ranks, [Some(2)]);
        assert_eq!(verdict(&found, &["BT005"], true, 0.3).false_findings.len(), 1);
    }

    #[test]
    fn the_best_rank_must_be_first_and_the_worst_near_the_top() {
        assert_eq!(places(&[Some(2), Some(1)]), (true, true));
        assert_eq!(places(&[Some(4), Some(2)]), (false, true));
        assert_eq!(places(&[Some(4)]), (false, false));
        assert_eq!(places(&[Some(1), None]), (true, false));
    }

    #[test]
    fn every_kind_of_fault_has_a_message() {
        assert!(row("a", Setting::Sick).faults().is_empty());
        let check = |change: fn(&mut Judged), expect: &str| {
            let mut row = row("a", Setting::Sick);
            change(&mut row.judged);
            assert_eq!(row.faults().join("; "), expect);
        };
        check(|judged| judged.missing = vec!["BT005".to_owned()], "no BT005");
        check(|judged| judged.ranks = vec![Some(4)], "the cause is ranked too low: 4");
        check(|judged| judged.culprit = Some(false), "the culprit is not named");
        check(|judged| judged.refused = vec!["+Mdai max".to_owned()], "OTP 25 refuses +Mdai max");
        check(|judged| judged.false_findings = vec!["BT001".to_owned()], "false: BT001");
        let unexplained = |judged: &mut Judged| {
            (judged.resident_bytes, judged.unexplained_bytes) = (Some(100_000_000), Some(9_000_000));
        };
        check(unexplained, "9.0 of 100.0 MB are not explained");
        check(|judged| judged.is_memory_due = true, "the memory map was not read");
        let mut churning = row("a", Setting::Sick);
        unexplained(&mut churning.judged);
        churning.judged.moved_bytes = 10_000_000;
        assert_eq!(churning.faults(), [] as [String; 0], "this much changed during the recording");
        let failed = Row { error: Some("it was not ready".to_owned()), ..row("a", Setting::Cured) };
        assert_eq!(failed.faults(), ["could not be judged: it was not ready"]);
    }
}
