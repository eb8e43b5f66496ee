//! Findings and the other outcomes of rules: passed, or not judged and why.

use serde::{Deserialize, Serialize};

use crate::account::CpuAccount;
use crate::finding::{Account, Claim, Confidence, Cost, Signal, Subject};
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

/// What a finding asks of its reader; follows from severity, time left and confidence, see [`Level::of`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Information: nothing to do now.
    Notice,
    /// It costs something, and can wait until morning.
    Warning,
    /// Act now: users notice it, or the node fails within the hour.
    Critical,
}

text_names!(Level { Notice => "notice", Warning => "warning", Critical => "critical" });

/// Below this much time left a finding is critical, in seconds (judgement: an hour is too short to wait for the next working day).
pub const URGENT_SECONDS: f64 = 3_600.0;
/// Below this it is a warning.
pub const SOON_SECONDS: f64 = 86_400.0;
/// Where these come from.
pub const SOON_SOURCE: &str = "judgement: within a day somebody has to act, within an hour at once";
/// Below this it is worth a notice (judgement).
pub const FAR_SECONDS: f64 = 7.0 * 86_400.0;

/// Severity of what is worth a notice, and no more.
pub const MINOR: f64 = 20.0;
/// The highest severity that is not critical.
pub const BELOW_CRITICAL: f64 = 74.9;
/// Severity from which on a finding is a warning.
pub const WARNING: f64 = 25.0;
const CRITICAL: f64 = 75.0;

/// CPU time of less than this share of what the node may use is minor, however much of its work it is (judgement).
const MINOR_CPU_SHARE: f64 = 0.01;
/// A smaller share delays nothing yet, and is not critical (judgement).
const CRITICAL_CPU_SHARE: f64 = 0.10;

/// The highest severity that a claim allows. CPU time hurts nobody while more than that is idle and can be used: it costs something, and is
/// not critical. `idle_cores` is [`CpuAccount::idle_cores`]; without it only the share of the CPU decides.
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
    /// The level of a finding: the worse of how much it hurts now (see [`max_severity`]) and how soon something ends, but no more than its
    /// confidence allows. A guess is a notice. What is inferred is at most a warning, unless it is an end within the hour: that cannot wait
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

/// Where a measured value begins to matter. From it a rule gets its severity, and the report its thresholds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale {
    /// From here on a notice.
    pub notice: f64,
    /// From here on a warning.
    pub warning: f64,
    /// From here on critical.
    pub critical: f64,
    /// The source: a document, a measurement, or "judgement".
    pub source: &'static str,
}

impl Scale {
    /// The severity of a value: 0–100, or `None` below the notice threshold. Linear between the thresholds (25 at warning, 75 at critical),
    /// and from there on growing towards 100, which is reached at twice the distance from warning to critical.
    /// A scale whose thresholds fall (free space, hit rates) works the same way downwards.
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
    /// Its value; `None` where the evidence is a name rather than a number.
    pub value: Option<f64>,
    /// Its unit.
    pub unit: Unit,
    /// A name, or further words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The threshold that it was compared with.
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

    /// Adds the threshold that it is compared with, and its source.
    pub fn against(mut self, threshold: f64, source: impl Into<String>) -> Self {
        self.threshold = Some(threshold);
        self.source = Some(source.into());
        self
    }

    /// Adds the threshold of a warning, and its source.
    pub fn against_scale(self, scale: Scale) -> Self {
        self.against(scale.warning, scale.source)
    }

    /// Adds words to a number.
    pub fn with_text(mut self, text: impl Into<String>) -> Self {
        self.text = Some(text.into());
        self
    }
}

/// What speaks against a finding, or would explain it otherwise.
pub type Against = String;

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
    /// Resident memory that it would free, in bytes: an estimate until a trial has shown it. `None` if the rule cannot estimate it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saves_bytes: Option<f64>,
}

impl Remedy {
    /// Adds the resident memory that it is estimated to free, in bytes.
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
    /// Follows from the next three, see [`Level::of`].
    pub level: Level,
    /// How much it hurts now, 0–100, by the rule's own scale: a warning from 25 on, critical from 75 on.
    pub severity: f64,
    /// Time until something ends if it goes on like this, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_seconds: Option<f64>,
    /// Its confidence.
    pub confidence: Confidence,
    /// What it claims of the node's accounts; `None` if the recording does not show it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim: Option<Claim>,
    /// What is wrong, with its subject and the number that matters, in at most 72 characters where names are short. It is understood
    /// without the rest.
    pub title: String,
    /// The numbers and names behind the title, in one line or two: sentences or phrases, separated by semicolons. May be empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// Its subject, if it is one thing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<Subject>,
    /// What else other rules and programs need to know of it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub signals: Vec<Signal>,
    /// The finding that it is a consequence of, if that was found, too. It is listed under that one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub follows: Option<Follows>,
    /// A defect that the node has and that nothing in the recording shows at work: no finding to act on now.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub latent: bool,
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
    /// One that says nothing but its code and its severity, to be completed.
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

    /// Whether it carries a signal.
    pub fn has(&self, signal: &Signal) -> bool {
        self.signals.contains(signal)
    }

    /// Whether it is about the same thing as another one.
    pub fn is_about(&self, subject: &Subject) -> bool {
        self.subject.as_ref().is_some_and(|own| own.is_same(subject))
    }

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

/// The outcome of a rule for a period.
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
    /// The outcome.
    pub outcome: Outcome,
}

/// All outcomes for a period.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Diagnosis {
    /// One for each rule, in the order of their codes.
    pub verdicts: Vec<Verdict>,
    /// The CPU account; `None` if it was not requested, or could not be computed.
    pub cpu: Option<CpuAccount>,
}

impl Diagnosis {
    /// All findings but latent ones, as [`Diagnosis::chains`] lists them: what follows from another one is below it.
    pub fn findings(&self) -> Vec<&Finding> {
        self.chains().iter().flat_map(Chain::findings).collect()
    }

    /// All findings but latent ones, each under its first cause, the worst chain first: a cause ranks like the worst of its consequences.
    /// Of several findings of a rule, the worst one has the consequences.
    pub fn chains(&self) -> Vec<Chain<'_>> {
        let ordered = self.ordered();
        let is_found = |code: Code| ordered.iter().any(|finding| finding.code == code);
        let (consequences, causes): (Vec<&Finding>, Vec<&Finding>) =
            ordered.iter().partition(|finding| finding.cause().is_some_and(is_found));
        let mut chains: Vec<Chain<'_>> = Vec::new();
        // Those that follow from each other have no first cause, and are listed all the same.
        for cause in causes.into_iter().chain(consequences.iter().copied()) {
            if !chains.iter().any(|chain| chain.has(cause)) {
                chains.push(Chain::of(cause, &consequences, &chains));
            }
        }
        chains.sort_by(|a, b| compare(a.worst(), b.worst()));
        chains
    }

    /// Defects that the node has and that nothing in the recording shows at work.
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

    /// The level of the worst finding; latent ones do not count.
    pub fn worst(&self) -> Option<Level> {
        self.ordered().iter().map(|finding| finding.level).max()
    }
}

/// The order of findings, worst first: by level; then by stake; then by confidence, severity and code.
///
/// The stake is what would be gained by fixing it, 0–1: the share of an account that the finding claims, or how near an end is. Shares of
/// different accounts (CPU, memory, delay) count alike: half of the memory matters as much as half of the CPU.
pub fn compare(a: &Finding, b: &Finding) -> std::cmp::Ordering {
    b.level
        .cmp(&a.level)
        .then(stake(b).total_cmp(&stake(a)))
        .then(a.confidence.cmp(&b.confidence))
        .then(b.severity.total_cmp(&a.severity))
        .then(a.code.cmp(&b.code))
}

/// The stake, 0–1, weighted by confidence; 0 if a finding claims nothing.
pub fn stake(finding: &Finding) -> f64 {
    let share = finding.claim.map_or(0.0, |claim| claim.share.unwrap_or(0.0));
    let near = finding.left_seconds.map_or(0.0, |left| (1.0 - left / SOON_SECONDS).max(0.0));
    let grows =
        if finding.signals.iter().any(|signal| matches!(signal, Signal::Grows(_))) { GROWS } else { 0.0 };
    likelihood(finding.confidence) * share.max(near).max(grows).clamp(0.0, 1.0)
}

/// The minimum stake of growth: it costs nothing yet, and ends the node if it goes on (judgement).
const GROWS: f64 = 0.25;

/// The weight of a stake by the confidence of its finding (judgement: half of what is inferred, and a quarter of guesses, turn out true).
fn likelihood(confidence: Confidence) -> f64 {
    match confidence {
        Confidence::Measured => 1.0,
        Confidence::Inferred => 0.5,
        Confidence::Guess => 0.25,
    }
}

/// A finding that follows from no other one, with all its consequences: one problem.
#[derive(Debug, Clone, PartialEq)]
pub struct Chain<'d> {
    /// Where to begin.
    pub cause: &'d Finding,
    /// Its consequences, direct or not; each comes after its own cause.
    pub effects: Vec<&'d Finding>,
}

impl<'d> Chain<'d> {
    /// A finding with its consequences, except those in another chain.
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

    /// Whether it holds this very finding: a rule may report several.
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

    /// The level of its worst finding: that is how urgent it is to remove the cause.
    pub fn level(&self) -> Level {
        self.worst().level
    }
}

#[cfg(test)]
mod tests;
