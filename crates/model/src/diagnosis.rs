//! Outcomes of rules: findings, passed, or not evaluated for a reason.

use serde::{Deserialize, Serialize};

use crate::account::CpuAccount;
use crate::finding::{Account, Claim, Confidence, Cost, Signal, Subject};
use crate::units::{Unit, text_names};

/// The permanent code of a rule: `BT001`. It never changes and is never reused for another rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Code(pub &'static str);

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

/// Urgency of a finding, derived from severity, time left and confidence by [`Level::of`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Information: nothing to do now.
    Notice,
    /// The problem has a cost, but can wait until morning.
    Warning,
    /// Act now: users notice the problem, or the node fails within the hour.
    Critical,
}

text_names!(Level { Notice => "notice", Warning => "warning", Critical => "critical" });

/// A finding with less time left is critical, in seconds (judgement: an hour is too short to wait for the next working day).
pub const URGENT_SECONDS: f64 = 3_600.0;
/// A finding with less time left is a warning, in seconds.
pub const SOON_SECONDS: f64 = 86_400.0;
/// Source of these two limits.
pub const SOON_SOURCE: &str = "judgement: act within a day, or at once if less than an hour is left";
/// A finding with less time left is worth a notice, in seconds (judgement).
pub const FAR_SECONDS: f64 = 7.0 * 86_400.0;

/// Severity of a finding that is worth a notice, but never a warning.
pub const MINOR: f64 = 20.0;
/// The highest severity that is not critical.
pub const BELOW_CRITICAL: f64 = 74.9;
/// Minimum severity of a warning.
pub const WARNING: f64 = 25.0;
const CRITICAL: f64 = 75.0;

/// A finding about CPU time is minor below this share of the CPU that the node may use, even on a nearly idle node (judgement).
const MINOR_CPU_SHARE: f64 = 0.01;
/// A smaller share of that CPU delays nothing yet, so it is not critical (judgement).
const CRITICAL_CPU_SHARE: f64 = 0.10;

/// Returns the highest severity that a claim allows. CPU time delays nobody as long as more CPU is idle: it has a cost, but is not
/// critical. `idle_cores` is [`CpuAccount::idle_cores`]; if it is `None`, only the share of the CPU decides.
pub fn max_severity(claim: &Claim, idle_cores: Option<f64>) -> f64 {
    let Cost::CpuCores(cores) = claim.cost else { return f64::INFINITY };
    let is_below = |limit: f64| claim.share.is_some_and(|share| share < limit);
    let has_room = claim.account == Account::CpuUsed && idle_cores.is_some_and(|idle| cores < idle);
    if is_below(MINOR_CPU_SHARE) {
        MINOR
    } else if is_below(CRITICAL_CPU_SHARE) || has_room {
        BELOW_CRITICAL
    } else {
        f64::INFINITY
    }
}

impl Level {
    /// Returns the level of a finding: the worse one of its severity now (see [`max_severity`]) and its time left, limited by its
    /// confidence. A guess is a notice. An inferred finding is at most a warning, unless less than an hour is left: that cannot wait
    /// for proof.
    pub fn of(severity: f64, left_seconds: Option<f64>, confidence: Confidence) -> Level {
        let soon = left_seconds.map_or(Level::Notice, Level::of_time_left);
        match confidence {
            Confidence::Measured => Level::of_severity(severity).max(soon),
            Confidence::Inferred => Level::of_severity(severity).min(Level::Warning).max(soon),
            Confidence::Guess => Level::Notice,
        }
    }

    fn of_severity(severity: f64) -> Level {
        if severity >= CRITICAL {
            Level::Critical
        } else if severity >= WARNING {
            Level::Warning
        } else {
            Level::Notice
        }
    }

    fn of_time_left(seconds: f64) -> Level {
        if seconds < URGENT_SECONDS {
            Level::Critical
        } else if seconds < SOON_SECONDS {
            Level::Warning
        } else {
            Level::Notice
        }
    }
}

/// Thresholds of a measured value. Rules derive a severity from them, and reports print them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale {
    /// Threshold of a notice.
    pub notice: f64,
    /// Threshold of a warning.
    pub warning: f64,
    /// Threshold of a critical finding.
    pub critical: f64,
    /// The source: a document, a measurement, or "judgement".
    pub source: &'static str,
}

impl Scale {
    /// Returns the severity of a value, 0–100, or `None` below the notice threshold. It is linear between the thresholds: 0 at notice,
    /// 25 at warning, 75 at critical. It reaches 100 as far above critical as critical is above warning.
    /// If the thresholds descend (free space, hit rates), lower values are more severe.
    pub fn severity(&self, value: f64) -> Option<f64> {
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
    /// The measured value; `None` if the evidence is a name rather than a number.
    pub value: Option<f64>,
    /// Unit of the value.
    pub unit: Unit,
    /// A name, or additional text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The threshold that the value was compared with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threshold: Option<f64>,
    /// Source of the threshold or of the value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

impl Evidence {
    /// Evidence that is a number with its unit.
    pub fn number(what: impl Into<String>, value: f64, unit: Unit) -> Self {
        Evidence { what: what.into(), value: Some(value), unit, text: None, threshold: None, source: None }
    }

    /// Evidence that is a name.
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

    /// Adds the threshold that the value is compared with, and the source of the threshold.
    pub fn against(mut self, threshold: f64, source: impl Into<String>) -> Self {
        self.threshold = Some(threshold);
        self.source = Some(source.into());
        self
    }

    /// Adds the warning threshold of a scale, and its source.
    pub fn against_scale(self, scale: Scale) -> Self {
        self.against(scale.warning, scale.source)
    }

    /// Adds text to a number.
    pub fn with_text(mut self, text: impl Into<String>) -> Self {
        self.text = Some(text.into());
        self
    }
}

/// A caveat: evidence against a finding, or another possible explanation.
pub type Against = String;

/// A remedy: a change that helps against the problem of a finding.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Remedy {
    /// The entry of the `flags` crate that describes this change.
    pub entry: String,
    /// The change as text to type, `+sbwt none +sbwtdcpu none +sbwtdio none`, or a description of a change in the code.
    pub change: String,
    /// Why it helps here, in one sentence.
    pub why: String,
    /// Possible side effects.
    pub risk: String,
    /// OTP releases for which it is valid, as text: `all`, `24.2 and later`.
    pub releases: String,
    /// Whether it can be set while the VM runs.
    pub at_run_time: bool,
    /// How to verify that it helps: what to run, and what should change.
    pub prove: String,
    /// Estimated resident memory that it would free, in bytes; only a trial can confirm it. `None` if the rule cannot estimate it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saves_bytes: Option<f64>,
}

impl Remedy {
    /// Adds the estimate of the resident memory that it frees, in bytes.
    pub fn saving(self, bytes: f64) -> Self {
        Remedy { saves_bytes: Some(bytes.max(0.0)), ..self }
    }
}

/// A problem that a rule reports.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// Code of the rule.
    pub code: Code,
    /// Name of the rule: `busy-waiting`.
    pub rule: &'static str,
    /// Derived from severity, time left and confidence by [`Level::of`].
    pub level: Level,
    /// Severity now, 0–100, on the rule's own scale: 25 or more is a warning, 75 or more is critical.
    pub severity: f64,
    /// Time until the node fails or a limit is reached if the trend continues, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_seconds: Option<f64>,
    /// Confidence of the rule in this finding.
    pub confidence: Confidence,
    /// The part of one of the node's accounts that it claims; `None` if the recording does not show it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim: Option<Claim>,
    /// What is wrong, with the subject and the most important number, in at most 72 characters if names are short. It must be
    /// understandable without the other fields.
    pub title: String,
    /// The numbers and names behind the title, in one or two lines: sentences or phrases, separated by semicolons. May be empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// The subject, if the finding has a single one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<Subject>,
    /// Further facts that other rules and programs need.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub signals: Vec<Signal>,
    /// The cause of this finding, if another rule has found it. The finding is listed under its cause.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub follows: Option<Follows>,
    /// Whether it is a defect of the node without any sign of it in the recording, so that there is nothing to do now.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub latent: bool,
    /// Numbers and names that support the finding.
    pub evidence: Vec<Evidence>,
    /// Caveats.
    pub against: Vec<Against>,
    /// How to confirm or refute it: what to do, and which result to expect. A phrase without a full stop.
    pub confirm: &'static str,
    /// Remedies, the best first.
    pub remedies: Vec<Remedy>,
}

impl Finding {
    /// Creates a finding that has only a code and a severity, to be completed.
    pub fn bare(code: Code, severity: f64) -> Finding {
        Finding {
            code,
            rule: "",
            level: Level::of(severity, None, Confidence::Measured),
            severity,
            left_seconds: None,
            confidence: Confidence::Measured,
            claim: None,
            title: String::new(),
            detail: String::new(),
            subject: None,
            signals: Vec::new(),
            follows: None,
            latent: false,
            evidence: Vec::new(),
            against: Vec::new(),
            confirm: "",
            remedies: Vec::new(),
        }
    }

    /// Whether it has this signal.
    pub fn has(&self, signal: &Signal) -> bool {
        self.signals.contains(signal)
    }

    /// Whether it is about this subject.
    pub fn is_about(&self, subject: &Subject) -> bool {
        self.subject.as_ref().is_some_and(|own| own.is_same(subject))
    }

    /// Code of the rule that has found its cause.
    fn cause(&self) -> Option<Code> {
        self.follows.as_ref().map(|follows| follows.code)
    }
}

/// The cause of a finding, which is another finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Follows {
    /// Code of the rule that has found the cause.
    pub code: Code,
    /// Name of this rule.
    pub rule: &'static str,
    /// How the cause leads to the consequence: a sentence without a full stop.
    pub why: &'static str,
}

/// The outcome of a rule for a period.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// At least one finding.
    Found(Vec<Finding>),
    /// The data were available and nothing was wrong: one sentence with the numbers.
    Healthy(String),
    /// Not enough data for an evaluation; never treat it as healthy.
    NotJudged {
        /// What is missing, and why.
        reason: String,
        /// How to get the missing data.
        next: String,
    },
}

/// The outcome of one rule.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// Code of the rule.
    pub code: Code,
    /// Name of the rule.
    pub rule: &'static str,
    /// The outcome.
    pub outcome: Outcome,
}

/// The outcomes of all rules for a period.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Diagnosis {
    /// One entry per rule, ordered by code.
    pub verdicts: Vec<Verdict>,
    /// The CPU account; `None` if it was not requested, or could not be computed.
    pub cpu: Option<CpuAccount>,
}

impl Diagnosis {
    /// Returns all findings except latent ones, in the order of [`Diagnosis::chains`]: consequences come after their cause.
    pub fn findings(&self) -> Vec<&Finding> {
        self.chains().iter().flat_map(Chain::findings).collect()
    }

    /// Groups all findings except latent ones under their root causes. Chains are ordered by their worst finding, the worst chain first.
    /// If the rule of a cause has several findings, the consequences are listed under the worst one.
    pub fn chains(&self) -> Vec<Chain<'_>> {
        let ordered = self.ordered();
        let is_found = |code: Code| ordered.iter().any(|finding| finding.code == code);
        let (consequences, causes): (Vec<&Finding>, Vec<&Finding>) =
            ordered.iter().partition(|finding| finding.cause().is_some_and(is_found));
        let mut chains: Vec<Chain<'_>> = Vec::new();
        // Findings that cause each other have no root cause, but are listed, too.
        for cause in causes.into_iter().chain(consequences.iter().copied()) {
            if !chains.iter().any(|chain| chain.has(cause)) {
                chains.push(Chain::of(cause, &consequences, &chains));
            }
        }
        chains.sort_by(|a, b| compare(a.worst(), b.worst()));
        chains
    }

    /// Defects of the node without any sign of them in the recording.
    pub fn latent(&self) -> Vec<&Finding> {
        self.all().filter(|finding| finding.latent).collect()
    }

    fn ordered(&self) -> Vec<&Finding> {
        let mut findings: Vec<&Finding> = self.all().filter(|finding| !finding.latent).collect();
        findings.sort_by(|a, b| compare(a, b));
        findings
    }

    fn all(&self) -> impl Iterator<Item = &Finding> {
        self.verdicts
            .iter()
            .filter_map(|verdict| match &verdict.outcome {
                Outcome::Found(findings) => Some(findings),
                _ => None,
            })
            .flatten()
    }

    /// The level of the worst finding, latent ones excluded; `None` without findings.
    pub fn worst(&self) -> Option<Level> {
        self.ordered().iter().map(|finding| finding.level).max()
    }
}

/// Orders findings, worst first: by level; then by stake; then by confidence, severity and code.
///
/// The stake is the possible gain of a fix, 0–1: the share of an account that the finding claims, or the closeness of a limit.
/// Different accounts (CPU, memory, delay) have the same weight: half of the memory matters as much as half of the CPU.
pub fn compare(a: &Finding, b: &Finding) -> std::cmp::Ordering {
    b.level
        .cmp(&a.level)
        .then(stake(b).total_cmp(&stake(a)))
        .then(a.confidence.cmp(&b.confidence))
        .then(b.severity.total_cmp(&a.severity))
        .then(a.code.cmp(&b.code))
}

/// The stake of a finding, 0–1, weighted by confidence; 0 if it claims nothing, nears no limit and concerns no growth.
pub fn stake(finding: &Finding) -> f64 {
    let share = finding.claim.map_or(0.0, |claim| claim.share.unwrap_or(0.0));
    let near = finding.left_seconds.map_or(0.0, |left| (1.0 - left / SOON_SECONDS).max(0.0));
    let grows =
        if finding.signals.iter().any(|signal| matches!(signal, Signal::Grows(_))) { GROWS } else { 0.0 };
    likelihood(finding.confidence) * share.max(near).max(grows).clamp(0.0, 1.0)
}

/// Minimum stake of growth: it costs nothing yet, but the node fails if it continues (judgement).
const GROWS: f64 = 0.25;

/// The weight of a stake by the confidence of its finding (judgement: half of the inferred findings and a quarter of the guesses are true).
fn likelihood(confidence: Confidence) -> f64 {
    match confidence {
        Confidence::Measured => 1.0,
        Confidence::Inferred => 0.5,
        Confidence::Guess => 0.25,
    }
}

/// A problem: a root cause with all its consequences.
#[derive(Debug, Clone, PartialEq)]
pub struct Chain<'d> {
    /// The root cause, to be fixed first.
    pub cause: &'d Finding,
    /// Direct and indirect consequences; each comes after its own cause.
    pub effects: Vec<&'d Finding>,
}

impl<'d> Chain<'d> {
    /// Builds the chain of a finding, without consequences that are in another chain.
    fn of(cause: &'d Finding, consequences: &[&'d Finding], others: &[Chain<'_>]) -> Chain<'d> {
        let mut chain = Chain { cause, effects: Vec::new() };
        if !others.iter().any(|other| other.cause.code == cause.code) {
            chain.add_effects(cause.code, consequences, others);
        }
        chain
    }

    /// Adds the consequences of a rule's findings, each followed by its own consequences.
    fn add_effects(&mut self, code: Code, consequences: &[&'d Finding], others: &[Chain<'_>]) {
        for &finding in consequences.iter().filter(|finding| finding.cause() == Some(code)) {
            if !self.has(finding) && !others.iter().any(|other| other.has(finding)) {
                self.effects.push(finding);
                self.add_effects(finding.code, consequences, others);
            }
        }
    }

    /// The cause, then its consequences.
    pub fn findings(&self) -> impl Iterator<Item = &'d Finding> + '_ {
        std::iter::once(self.cause).chain(self.effects.iter().copied())
    }

    /// Whether it contains this finding. Compares identities, because a rule may report several findings.
    fn has(&self, finding: &Finding) -> bool {
        self.findings().any(|one| std::ptr::eq(one, finding))
    }

    /// Its worst finding.
    fn worst(&self) -> &'d Finding {
        self.effects.iter().copied().fold(self.cause, |worst, one| match compare(one, worst) {
            std::cmp::Ordering::Less => one,
            _ => worst,
        })
    }

    /// The level of its worst finding: the urgency of fixing the root cause.
    pub fn level(&self) -> Level {
        self.worst().level
    }
}

#[cfg(test)]
mod tests;
