//! Findings and what is said beside them: what looked healthy, and what could not be judged and why.

use serde::{Deserialize, Serialize};

use crate::account::Account;
use crate::units::{Unit, text_names};

/// The permanent code of a rule: `BT001`. Never changed, never given to another rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Code(pub &'static str);

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Worth knowing; nothing to do now.
    Notice,
    /// Costs something, or will.
    Warning,
    /// Hurts now.
    Critical,
}

text_names!(Level { Notice => "notice", Warning => "warning", Critical => "critical" });

impl Level {
    /// The level of a score: warnings begin at 25, critical findings at 75.
    pub fn of(score: f64) -> Level {
        if score >= 75.0 {
            Level::Critical
        } else if score >= 25.0 {
            Level::Warning
        } else {
            Level::Notice
        }
    }
}

/// Where a measured value begins to matter. From it a rule gets its score, and the report its thresholds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale {
    /// From here on a notice.
    pub notice: f64,
    /// From here on a warning.
    pub warning: f64,
    /// From here on critical.
    pub critical: f64,
    /// Who says so: a document, a measurement, or "judgement".
    pub source: &'static str,
}

impl Scale {
    /// The score of a value: 0–100, or `None` below the notice threshold. Linear between the thresholds, and
    /// from critical (75) on growing towards 100, which is reached at twice the distance from warning to critical.
    /// A scale whose thresholds fall (free space, hit rates) works the same way downwards.
    pub fn score(&self, value: f64) -> Option<f64> {
        let ascending = self.critical >= self.notice;
        let sign = if ascending { 1.0 } else { -1.0 };
        let (v, n, w, c) = (sign * value, sign * self.notice, sign * self.warning, sign * self.critical);
        if v.is_nan() || v < n {
            return None;
        }
        let between = |from: f64, to: f64| if to > from { (v - from) / (to - from) } else { 1.0 };
        Some(if v < w {
            25.0 * between(n, w).min(0.999)
        } else if v < c {
            25.0 + 50.0 * between(w, c).min(0.999)
        } else {
            75.0 + 25.0 * between(c, c + (c - w)).min(1.0)
        })
    }
}

/// One number that supports a finding or a healthy verdict.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Evidence {
    /// What was measured, as a noun phrase: "CPU used by scheduler threads".
    pub what: String,
    /// Its value; `None` where the evidence is a name rather than a number.
    pub value: Option<f64>,
    /// Its unit.
    pub unit: Unit,
    /// A name, or further words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The threshold that it was held against.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threshold: Option<f64>,
    /// Where threshold or value come from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

impl Evidence {
    /// A number with its unit.
    pub fn number(what: impl Into<String>, value: f64, unit: Unit) -> Self {
        Evidence { what: what.into(), value: Some(value), unit, text: None, threshold: None, source: None }
    }

    /// A name.
    pub fn text(what: impl Into<String>, text: impl Into<String>) -> Self {
        Evidence {
            what: what.into(),
            value: None,
            unit: Unit::Count,
            text: Some(text.into()),
            threshold: None,
            source: None,
        }
    }

    /// The threshold that it is held against, and who says so.
    pub fn against(mut self, threshold: f64, source: impl Into<String>) -> Self {
        self.threshold = Some(threshold);
        self.source = Some(source.into());
        self
    }

    /// Adds words to a number.
    pub fn with_text(mut self, text: impl Into<String>) -> Self {
        self.text = Some(text.into());
        self
    }
}

/// What speaks against a finding, or would explain it otherwise.
pub type Against = String;

/// What a finding costs, estimated from the recording: what would be won at most by mending it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(tag = "kind", content = "value", rename_all = "snake_case")]
pub enum Cost {
    /// CPU time that goes into it, or that it keeps from who wants it, in cores.
    CpuCores(f64),
    /// Memory that it holds, in bytes.
    MemoryBytes(f64),
    /// How long somebody stands still for it each time, in seconds: the longest that was seen, or the mean where only that is known.
    DelaySeconds(f64),
    /// How many processes, messages, jobs or clients wait for it at a time, on average.
    Waiting(f64),
    /// Time until there is no more of something, in seconds; 0 where there is none left.
    EndSeconds(f64),
}

impl Cost {
    /// As a number of its own unit.
    pub fn value(self) -> f64 {
        match self {
            Cost::CpuCores(value)
            | Cost::MemoryBytes(value)
            | Cost::DelaySeconds(value)
            | Cost::Waiting(value)
            | Cost::EndSeconds(value) => value,
        }
    }
}

/// What to do about a finding.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Remedy {
    /// The entry of the `flags` crate that describes it.
    pub entry: String,
    /// The change itself, ready to use: `+sbwt none +sbwtdcpu none +sbwtdio none`, or what to change in the code.
    pub change: String,
    /// Why it helps here, in one sentence.
    pub why: String,
    /// What it may cost.
    pub risk: String,
    /// OTP releases for which it is valid, for a person: `all`, `24.2 and later`.
    pub releases: String,
    /// True where it can be set while the VM runs.
    pub at_run_time: bool,
    /// How to prove it: what to run, what should change.
    pub prove: String,
    /// Resident memory that it would give back, in bytes: an estimate until a trial has shown it. `None` where the rule cannot
    /// tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saves_bytes: Option<f64>,
}

impl Remedy {
    /// Adds what it is estimated to give back, in bytes.
    pub fn saving(self, bytes: f64) -> Self {
        Remedy { saves_bytes: Some(bytes.max(0.0)), ..self }
    }
}

/// What a rule found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// The rule.
    pub code: Code,
    /// The rule's name: `busy-waiting`.
    pub rule: &'static str,
    /// Follows from the score.
    pub level: Level,
    /// 0–100, worst first in the answer.
    pub score: f64,
    /// One sentence.
    pub summary: String,
    /// The process, table, thread or limit that it is about, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// What it costs; `None` where the recording does not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
    /// What it is a consequence of, if that was found, too. It stands under that one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub follows: Option<Follows>,
    /// The numbers.
    pub evidence: Vec<Evidence>,
    /// What speaks against it.
    pub against: Vec<Against>,
    /// What would confirm or refute it: what to do, and what to see then. A phrase without a full stop.
    pub confirm: &'static str,
    /// What to do, best first.
    pub remedies: Vec<Remedy>,
}

impl Finding {
    /// The rule of what it follows from.
    fn cause(&self) -> Option<Code> {
        self.follows.as_ref().map(|follows| follows.code)
    }
}

/// Why a finding is a consequence of another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Follows {
    /// The rule of the other one.
    pub code: Code,
    /// Its name.
    pub rule: &'static str,
    /// How the one leads to the other: a sentence without a full stop.
    pub why: &'static str,
}

/// What a rule says of a period.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// At least one finding.
    Found(Vec<Finding>),
    /// The data were there and nothing was wrong; one sentence with the numbers in it.
    Healthy(String),
    /// Not enough data; never to be read as healthy.
    NotJudged {
        /// What is missing, and why.
        reason: String,
        /// What to do to have it judged.
        next: String,
    },
}

/// A rule's outcome with its rule.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// The rule.
    pub code: Code,
    /// Its name.
    pub rule: &'static str,
    /// What it says.
    pub outcome: Outcome,
}

/// All that is said of a period.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Diagnosis {
    /// One for each rule, in the order of their codes.
    pub verdicts: Vec<Verdict>,
    /// Where the CPUs went; `None` where that was not asked, or could not be told.
    pub cpu: Option<Account>,
}

impl Diagnosis {
    /// All findings, worst first; of equal scores the lower code first. What follows from another one stands under it, and what follows from
    /// that under both; a cause is as bad as the worst of these.
    pub fn findings(&self) -> Vec<&Finding> {
        let by_score = self.by_score();
        let is_found = |code: Code| by_score.iter().any(|finding| finding.code == code);
        let (consequences, mut first): (Vec<&Finding>, Vec<&Finding>) =
            by_score.iter().partition(|finding| finding.cause().is_some_and(is_found));
        let worst = |cause: &Finding| {
            let mut all = Vec::new();
            add_consequences(cause.code, &consequences, &mut all);
            all.iter().map(|finding| finding.score).fold(cause.score, f64::max)
        };
        // A stable sort: of several findings of a rule the worst one comes first, and has what follows.
        first.sort_by(|a, b| worst(b).total_cmp(&worst(a)));
        let mut findings = Vec::new();
        for cause in first {
            let is_first = findings.iter().all(|finding: &&Finding| finding.code != cause.code);
            findings.push(cause);
            if is_first {
                add_consequences(cause.code, &consequences, &mut findings);
            }
        }
        // Those that follow from each other have no first cause, and are told all the same.
        for finding in consequences {
            if !is_in(finding, &findings) {
                findings.push(finding);
            }
        }
        findings
    }

    fn by_score(&self) -> Vec<&Finding> {
        let mut findings: Vec<&Finding> = self
            .verdicts
            .iter()
            .filter_map(|verdict| match &verdict.outcome {
                Outcome::Found(findings) => Some(findings),
                _ => None,
            })
            .flatten()
            .collect();
        findings.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.code.cmp(&b.code)));
        findings
    }

    /// The level of the worst finding.
    pub fn worst(&self) -> Option<Level> {
        self.by_score().iter().map(|finding| finding.level).max()
    }
}

/// Adds what follows from a rule's findings, each with what follows from it in turn, unless it is among them already.
fn add_consequences<'a>(code: Code, consequences: &[&'a Finding], findings: &mut Vec<&'a Finding>) {
    for &finding in consequences.iter().filter(|finding| finding.cause() == Some(code)) {
        if !is_in(finding, findings) {
            findings.push(finding);
            add_consequences(finding.code, consequences, findings);
        }
    }
}

/// Whether it is this very finding: a rule may tell several.
fn is_in(finding: &Finding, findings: &[&Finding]) -> bool {
    findings.iter().any(|other| std::ptr::eq(*other, finding))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_rise_through_the_levels_and_never_past_100() {
        let rising = Scale { notice: 0.1, warning: 0.2, critical: 0.6, source: "test" };
        let check = |scale: &Scale, value, expect: Option<Level>| {
            let level = scale.score(value).map(Level::of);
            assert_eq!(level, expect, "{value} → {:?}", scale.score(value));
        };
        check(&rising, 0.05, None);
        check(&rising, 0.1, Some(Level::Notice));
        check(&rising, 0.1999999, Some(Level::Notice));
        check(&rising, 0.2, Some(Level::Warning));
        check(&rising, 0.5999999, Some(Level::Warning));
        check(&rising, 0.6, Some(Level::Critical));
        check(&rising, f64::NAN, None);
        assert_eq!(rising.score(1e9), Some(100.0));

        let falling = Scale { notice: 100.0, warning: 50.0, critical: 10.0, source: "test" };
        check(&falling, 101.0, None);
        check(&falling, 60.0, Some(Level::Notice));
        check(&falling, 50.0, Some(Level::Warning));
        check(&falling, 10.0, Some(Level::Critical));
        check(&falling, 0.0, Some(Level::Critical));
    }

    #[test]
    fn what_follows_from_another_one_stands_under_it() {
        let finding = |code, score, cause: Option<&'static str>| Finding {
            code: Code(code),
            rule: "test",
            level: Level::of(score),
            score,
            summary: String::new(),
            subject: None,
            cost: None,
            follows: cause.map(|cause| Follows { code: Code(cause), rule: "cause", why: "so it is" }),
            evidence: vec![],
            against: vec![],
            confirm: "",
            remedies: vec![],
        };
        let check = |findings: Vec<Finding>, expect: &[&str]| {
            let verdict = |finding: Finding| Verdict {
                code: finding.code,
                rule: "test",
                outcome: Outcome::Found(vec![finding]),
            };
            let diagnosis = Diagnosis { verdicts: findings.into_iter().map(verdict).collect(), cpu: None };
            let order: Vec<_> = diagnosis.findings().iter().map(|finding| finding.code.0).collect();
            assert_eq!(order, expect);
            let worst = diagnosis.by_score().first().map(|finding| finding.level);
            assert_eq!(diagnosis.worst(), worst);
        };
        let cause = || finding("BT002", 40.0, None);
        check(
            vec![finding("BT001", 50.0, None), cause(), finding("BT016", 90.0, Some("BT002"))],
            &["BT002", "BT016", "BT001"],
        );
        // Its cause was not found.
        check(vec![finding("BT016", 30.0, Some("BT002")), finding("BT017", 90.0, None)], &["BT017", "BT016"]);
        // What follows from a consequence stands under it, and counts for the first cause.
        check(
            vec![
                finding("BT001", 50.0, None),
                cause(),
                finding("BT015", 90.0, Some("BT005")),
                finding("BT005", 10.0, Some("BT002")),
                finding("BT016", 20.0, Some("BT002")),
            ],
            &["BT002", "BT016", "BT005", "BT015", "BT001"],
        );
        // Nothing is lost, whatever was said of it.
        check(
            vec![finding("BT005", 10.0, Some("BT006")), finding("BT006", 20.0, Some("BT005")), cause()],
            &["BT002", "BT006", "BT005"],
        );
        // Of two findings of the cause's rule, the worse one has it.
        check(
            vec![cause(), finding("BT002", 60.0, None), finding("BT017", 10.0, Some("BT002"))],
            &["BT002", "BT017", "BT002"],
        );
    }

    #[test]
    fn findings_come_worst_first() {
        let finding = |code, score| Finding {
            code: Code(code),
            rule: "test",
            level: Level::of(score),
            score,
            summary: String::new(),
            subject: None,
            cost: None,
            follows: None,
            evidence: vec![],
            against: vec![],
            confirm: "",
            remedies: vec![],
        };
        let diagnosis = Diagnosis {
            verdicts: vec![
                Verdict {
                    code: Code("BT001"),
                    rule: "a",
                    outcome: Outcome::Found(vec![finding("BT001", 30.0)]),
                },
                Verdict { code: Code("BT002"), rule: "b", outcome: Outcome::Healthy(String::new()) },
                Verdict {
                    code: Code("BT003"),
                    rule: "c",
                    outcome: Outcome::Found(vec![finding("BT003", 90.0)]),
                },
            ],
            cpu: None,
        };
        let codes: Vec<_> = diagnosis.findings().iter().map(|f| f.code.0).collect();
        assert_eq!(codes, ["BT003", "BT001"]);
        assert_eq!(diagnosis.worst(), Some(Level::Critical));
        assert_eq!(Diagnosis::default().worst(), None);
    }
}
