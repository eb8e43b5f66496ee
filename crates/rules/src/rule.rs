//! The interface of a rule, and the findings that it returns.

use beamtune_model::diagnosis::max_severity;
pub use beamtune_model::diagnosis::{BELOW_CRITICAL, FAR_SECONDS, MINOR, SOON_SECONDS, SOON_SOURCE, WARNING};
use beamtune_model::{
    Account, Claim, Code, Confidence, Cost, CpuUse, Evidence, Finding, Level, Metric, Missing, Period,
    Remedy, Signal, Subject, Threshold,
};

/// A rule: its identity, the data that it needs, and the function that evaluates a period.
pub struct Rule {
    /// Permanent code, never reused.
    pub code: Code,
    /// Name of its page, and with underscores of its source file: `busy-waiting`.
    pub name: &'static str,
    /// The question that it answers, for lists of rules.
    pub question: &'static str,
    /// How to confirm or refute a finding: what to do, and the result to expect. A phrase without a full stop.
    pub confirm: &'static str,
    /// Thresholds that it compares with. The user can change them.
    pub thresholds: &'static [Threshold],
    /// Data that it requires. Its page also lists data that it uses if available.
    pub needs: &'static [&'static Metric],
    /// First OTP release that it supports.
    pub since: u32,
    /// The account of which its findings claim a share.
    pub account: Account,
    /// Whether it names a cause, or a state of the node that itself has causes.
    pub role: Role,
    /// Whether its findings explain other findings even as notices. They are notices because the behaviour may be intended, or because they
    /// are only the most likely cause.
    pub explains_as_notice: bool,
    /// Whether it names what occupies the node's CPU, which explains why processes wait for a scheduler.
    pub explains_run_queue: bool,
    /// Confidence of its findings. A finding can only lower it.
    pub confidence: Confidence,
    /// The topics by which `beamtune memory` and `beamtune locks` select it.
    pub topics: &'static [Topic],
    /// Output of a VM tool that can be pasted in place of a recording; `None` if such text is not enough for this rule.
    pub text: Option<&'static str>,
    /// Whether it can evaluate crash dumps, which describe one moment and not the host.
    pub judges_dumps: bool,
    /// Whether the problem may take minutes to show. In a period below [`MINUTES_SECONDS`], "healthy" states the length of the period.
    pub needs_minutes: bool,
    /// Evaluates a period. Returns `Err` if data are missing, which is reported as "not judged", never as "healthy".
    pub judge: fn(&Period) -> Result<Judgement, Missing>,
}

/// What a rule names: a cause or a symptom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Something that a person can change: a function, a process, a table, a flag, a limit.
    Cause,
    /// A state that has causes: a share of time, a wait, a queue. A cause that claims the same part of an account explains the state.
    Symptom,
}

/// Topic of a rule, for commands that select some of the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topic {
    /// What uses or retains memory.
    Memory,
    /// CPU time that memory management costs: mapping and garbage collection.
    MemoryCpu,
    /// Lock contention.
    Locks,
}

/// Minimum length of a period in which slow growth shows, in seconds (judgement).
pub const MINUTES_SECONDS: f64 = 300.0;

impl Rule {
    /// Defaults of the fields that are the same for most rules; each rule sets the others.
    pub(crate) const COMMON: Rule = Rule {
        code: Code(""),
        name: "",
        question: "",
        confirm: "",
        thresholds: &[],
        needs: &[],
        since: 21,
        account: Account::CpuUsed,
        role: Role::Cause,
        explains_as_notice: false,
        explains_run_queue: false,
        confidence: Confidence::Measured,
        topics: &[],
        text: None,
        judges_dumps: false,
        needs_minutes: false,
        judge: |_| Ok(Judgement::Healthy(String::new())),
    };

    /// Whether the rule is about memory: its size, or the CPU time that it costs.
    pub fn is_about_memory(&self) -> bool {
        self.topics.contains(&Topic::Memory) || self.topics.contains(&Topic::MemoryCpu)
    }
}

/// Result of a rule.
#[derive(Debug)]
pub enum Judgement {
    /// Something is wrong, with one or more subjects.
    Found(Vec<Draft>),
    /// The data were available and nothing is wrong: one sentence with the number that shows this.
    Healthy(String),
    /// The data are available but not yet conclusive.
    NotJudged {
        /// Why there is no result.
        reason: String,
        /// What to do to get one.
        next: String,
    },
}

impl Judgement {
    /// Returns a single finding.
    pub fn found(draft: Draft) -> Self {
        Judgement::Found(vec![draft])
    }

    /// Returns the findings, or "healthy" with this sentence if the list is empty.
    pub fn found_or_healthy(drafts: Vec<Draft>, sentence: impl Into<String>) -> Self {
        if drafts.is_empty() { Judgement::Healthy(sentence.into()) } else { Judgement::Found(drafts) }
    }
}

/// A finding as a rule writes it. The engine adds code, name, level and share.
#[derive(Debug)]
pub struct Draft {
    severity: f64,
    left_seconds: Option<f64>,
    confidence: Option<Confidence>,
    title: String,
    detail: String,
    subject: Option<Subject>,
    signals: Vec<Signal>,
    cost: Option<Cost>,
    part: Option<CpuUse>,
    share: Option<f64>,
    latent: bool,
    evidence: Vec<Evidence>,
    against: Vec<String>,
    remedies: Vec<Remedy>,
    confirm: Option<&'static str>,
}

/// The sizes of the accounts of a period; `None` if unknown.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Totals {
    /// CPU that the node may use, in cores.
    pub cores: Option<f64>,
    /// Idle part of that CPU that could be used, in cores.
    pub idle: Option<f64>,
    /// Memory that the node may use, in bytes: resident memory plus the room below the first limit.
    pub memory: Option<f64>,
    /// Mean number of processes that wait for a reply.
    pub waiting: Option<f64>,
}

impl Totals {
    /// Returns the share of its account that a cost takes, 0–1.
    fn share(&self, cost: Cost) -> Option<f64> {
        let of = |total: Option<f64>, part: f64| {
            total.filter(|total| *total > 0.0).map(|total| (part / total).min(1.0))
        };
        match cost {
            Cost::CpuCores(cores) => of(self.cores, cores),
            Cost::MemoryBytes(bytes) => of(self.memory, bytes),
            Cost::Waiting(count) => of(self.waiting, count),
            Cost::DelaySeconds(_) | Cost::EndSeconds(_) => None,
        }
    }
}

impl Draft {
    /// Creates a finding with its severity (0–100, see `Scale::severity`) and its title (at most 72 characters if names are short).
    pub fn new(severity: f64, title: impl Into<String>) -> Self {
        Draft {
            severity,
            left_seconds: None,
            confidence: None,
            title: title.into(),
            detail: String::new(),
            subject: None,
            signals: Vec::new(),
            cost: None,
            part: None,
            share: None,
            latent: false,
            evidence: Vec::new(),
            against: Vec::new(),
            remedies: Vec::new(),
            confirm: None,
        }
    }

    /// Sets the subject of the finding.
    pub fn about(mut self, subject: impl Into<Option<Subject>>) -> Self {
        self.subject = subject.into();
        self
    }

    /// Adds signals, which the relations between findings use.
    pub fn signals(mut self, signals: impl IntoIterator<Item = Signal>) -> Self {
        self.signals.extend(signals);
        self
    }

    /// Sets its cost, if known. Ignores values that are not finite, and a cost of zero. A time left of zero is valid.
    pub fn costs(mut self, cost: impl Into<Option<Cost>>) -> Self {
        let is_known = |cost: &Cost| match cost {
            Cost::EndSeconds(seconds) => seconds.is_finite() && *seconds >= 0.0,
            cost => cost.value().is_finite() && cost.value() > 0.0,
        };
        self.cost = cost.into().filter(is_known);
        if let Some(Cost::EndSeconds(seconds)) = self.cost {
            self.left_seconds = Some(seconds);
        }
        self
    }

    /// Sets the part of the CPU account that the cost belongs to.
    pub fn part(mut self, part: impl Into<Option<CpuUse>>) -> Self {
        self.part = part.into();
        self
    }

    /// Sets its share of the account, 0–1, if that does not follow from the cost.
    pub fn share(mut self, share: impl Into<Option<f64>>) -> Self {
        self.share = share.into().filter(|share| share.is_finite()).map(|share| share.clamp(0.0, 1.0));
        self
    }

    /// Limits its confidence to this level.
    pub fn confidence(mut self, confidence: Confidence) -> Self {
        self.confidence = Some(self.confidence.map_or(confidence, |known| known.max(confidence)));
        self
    }

    /// If true, marks it as a guess: another explanation of the numbers is as likely.
    pub fn guess_if(self, is_guess: bool) -> Self {
        if is_guess { self.confidence(Confidence::Guess) } else { self }
    }

    /// If true, marks it as inferred: it follows only under a condition that usually holds.
    pub fn inferred_if(self, is_inferred: bool) -> Self {
        if is_inferred { self.confidence(Confidence::Inferred) } else { self }
    }

    /// If true, limits its severity: it does little harm now.
    pub fn minor_if(mut self, is_minor: bool) -> Self {
        if is_minor {
            self.severity = self.severity.min(MINOR);
        }
        self
    }

    /// If true, limits it to a warning: too little is at stake for a critical finding.
    pub fn at_most_warning_if(mut self, is_little: bool) -> Self {
        if is_little {
            self.severity = self.severity.min(BELOW_CRITICAL);
        }
        self
    }

    /// Marks it as latent: nothing in the period shows that the problem has occurred.
    pub fn latent(mut self) -> Self {
        self.latent = true;
        self
    }

    /// Appends to the detail, after a semicolon: the numbers and names behind the title.
    pub fn detail(mut self, detail: impl AsRef<str>) -> Self {
        let detail = detail.as_ref();
        if !self.detail.is_empty() && !detail.is_empty() {
            self.detail.push_str("; ");
        }
        self.detail.push_str(detail);
        self
    }

    /// Adds evidence.
    pub fn evidence(mut self, evidence: Evidence) -> Self {
        self.evidence.push(evidence);
        self
    }

    /// Sets how to confirm or refute it, if that differs from the rule's text.
    pub fn confirmed_by(mut self, confirm: &'static str) -> Self {
        self.confirm = Some(confirm);
        self
    }

    /// Adds optional evidence.
    pub fn because_some(mut self, evidence: Option<Evidence>) -> Self {
        self.evidence.extend(evidence);
        self
    }

    /// Adds counter-evidence.
    pub fn counter_evidence(mut self, against: impl Into<String>) -> Self {
        self.against.push(against.into());
        self
    }

    /// Adds counter-evidence if it applies.
    pub fn but_if(self, holds: bool, against: impl Into<String>) -> Self {
        if holds { self.counter_evidence(against) } else { self }
    }

    /// Adds a remedy after those already added, if it works on the node's release.
    pub fn remedy(mut self, remedy: Option<Remedy>) -> Self {
        self.remedies.extend(remedy);
        self
    }

    /// Adds a remedy if it applies.
    pub fn fix_if(self, applies: bool, remedy: impl FnOnce() -> Option<Remedy>) -> Self {
        if applies { self.remedy(remedy()) } else { self }
    }

    /// Turns the draft into a finding: adds code, name, level and share.
    pub(crate) fn finish(self, rule: &Rule, totals: &Totals) -> Finding {
        let share = self.share.or_else(|| totals.share(self.cost?));
        let confidence = self.confidence.unwrap_or(rule.confidence).max(rule.confidence);
        let claim = self.cost.map(|cost| Claim {
            account: account(cost, self.part, rule.account),
            part: self.part,
            cost,
            share,
            explained: None,
        });
        let most = claim.as_ref().map_or(f64::INFINITY, |claim| max_severity(claim, totals.idle));
        let severity = self.severity.min(most);
        Finding {
            code: rule.code,
            rule: rule.name,
            level: Level::of(severity, self.left_seconds, confidence),
            severity,
            left_seconds: self.left_seconds,
            confidence,
            claim,
            title: self.title,
            detail: self.detail,
            subject: self.subject,
            signals: self.signals,
            follows: None,
            latent: self.latent,
            evidence: self.evidence,
            against: self.against,
            confirm: self.confirm.unwrap_or(rule.confirm),
            remedies: self.remedies,
        }
    }
}

/// Returns the account that a cost belongs to.
fn account(cost: Cost, part: Option<CpuUse>, usual: Account) -> Account {
    match (cost, part) {
        (Cost::CpuCores(_), Some(part)) if part.is_used() => Account::CpuUsed,
        (Cost::CpuCores(_), Some(_)) => Account::CpuUnused,
        (Cost::CpuCores(_), None) => usual,
        (Cost::MemoryBytes(_), _) => Account::Memory,
        (Cost::DelaySeconds(_) | Cost::Waiting(_), _) => Account::Delay,
        (Cost::EndSeconds(_), _) => Account::HeadRoom,
    }
}
