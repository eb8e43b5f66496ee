//! The contract of a rule.

use beamtune_model::diagnosis::max_severity;
pub use beamtune_model::diagnosis::{BELOW_CRITICAL, FAR_SECONDS, MINOR, SOON_SECONDS, SOON_SOURCE, WARNING};
use beamtune_model::{
    Account, Claim, Code, Confidence, Cost, Evidence, Finding, Level, Metric, Missing, Period, Remedy,
    Signal, Subject, Threshold, Use,
};

/// A rule: what it is called, what it needs, and how it judges.
pub struct Rule {
    /// Permanent; never given to another rule.
    pub code: Code,
    /// Stem of its file and of its page: `busy-waiting`.
    pub name: &'static str,
    /// The question it answers, for lists.
    pub question: &'static str,
    /// What would confirm or refute a finding: what to do, and what to see then. A phrase without a full stop.
    pub confirm: &'static str,
    /// The thresholds that it judges by and that can be changed.
    pub thresholds: &'static [Threshold],
    /// The data that it requires. Its page says what it uses if available.
    pub needs: &'static [&'static Metric],
    /// First OTP release for which it can judge.
    pub since: u32,
    /// The account that its findings claim a share of.
    pub account: Account,
    /// Whether it names a cause, or a state of the node that has causes.
    pub role: Role,
    /// Whether its findings explain others even as notices: they are notices because they may be meant, or are only most likely.
    pub explains_as_notice: bool,
    /// Whether it names what takes the CPU from the node: what waits for a scheduler waits for that.
    pub has_the_cpu: bool,
    /// The confidence of its findings, unless they say otherwise.
    pub confidence: Confidence,
    /// Whether `beamtune memory` or `beamtune locks` asks for it.
    pub topics: &'static [Topic],
    /// What to paste if only text of the VM's tools is available; `None` if it cannot judge by such text.
    pub text: Option<&'static str>,
    /// Whether it judges crash dumps, which are of one moment and do not describe the host.
    pub judges_dumps: bool,
    /// Whether what it detects may take minutes to show: in a period below [`MINUTES_SECONDS`] "healthy" states the length of the period.
    pub needs_minutes: bool,
    /// Judges a period. `Err` where data are missing: it becomes "not judged", never "healthy".
    pub judge: fn(&Period) -> Result<Judgement, Missing>,
}

/// What kind of thing a rule names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// What somebody can change: a function, a process, a table, a flag, a limit.
    Cause,
    /// A state that has causes: a share of time, a wait, a queue. A cause that claims the same part of an account explains it.
    Symptom,
}

/// The subject of a rule, for commands that ask for a part of the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topic {
    /// What takes memory, or keeps it.
    Memory,
    /// CPU time that memory costs: mapping and garbage collection.
    MemoryCpu,
    /// Lock contention.
    Locks,
}

/// In a shorter period slow growth does not show, in seconds (judgement).
pub const MINUTES_SECONDS: f64 = 300.0;

impl Rule {
    /// What most rules have in common; the rest must be given.
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
        has_the_cpu: false,
        confidence: Confidence::Measured,
        topics: &[],
        text: None,
        judges_dumps: false,
        needs_minutes: false,
        judge: |_| Ok(Judgement::Healthy(String::new())),
    };

    /// Whether it is about memory: its size, or the CPU time that it costs.
    pub fn is_about_memory(&self) -> bool {
        self.topics.contains(&Topic::Memory) || self.topics.contains(&Topic::MemoryCpu)
    }
}

/// What a rule says.
#[derive(Debug)]
pub enum Judgement {
    /// Something is wrong, once or for several subjects.
    Found(Vec<Draft>),
    /// The data were there and nothing is wrong: one sentence with the number that shows it.
    Healthy(String),
    /// The data are there but say nothing yet.
    NotJudged {
        /// Why.
        reason: String,
        /// What to do to have it judged.
        next: String,
    },
}

impl Judgement {
    /// One finding.
    pub fn found(draft: Draft) -> Self {
        Judgement::Found(vec![draft])
    }

    /// Found if there is any finding, else healthy.
    pub fn found_or_healthy(drafts: Vec<Draft>, sentence: impl Into<String>) -> Self {
        if drafts.is_empty() { Judgement::Healthy(sentence.into()) } else { Judgement::Found(drafts) }
    }
}

/// A finding as a rule writes it; code, name, level and share are added by the engine.
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
    part: Option<Use>,
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
    /// The idle part of it that could be used, in cores.
    pub idle: Option<f64>,
    /// Memory that the node may use: the resident memory, and the room until the first limit. In bytes.
    pub memory: Option<f64>,
    /// Mean number of processes that wait for an answer.
    pub waiting: Option<f64>,
}

impl Totals {
    /// What share of its account a cost is, 0–1.
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
    /// A finding with its severity (0–100, see `Scale::severity`) and its title: at most 72 characters where names are short.
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

    /// What it is about.
    pub fn about(mut self, subject: impl Into<Option<Subject>>) -> Self {
        self.subject = subject.into();
        self
    }

    /// Adds a signal that other rules depend on.
    pub fn signals(mut self, signals: impl IntoIterator<Item = Signal>) -> Self {
        self.signals.extend(signals);
        self
    }

    /// Its cost, if known. Zero, or a value that is no number, is left out.
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

    /// Which part of the CPU's account that is.
    pub fn part(mut self, part: impl Into<Option<Use>>) -> Self {
        self.part = part.into();
        self
    }

    /// Its share of the account, 0–1, where that does not follow from the cost.
    pub fn share(mut self, share: impl Into<Option<f64>>) -> Self {
        self.share = share.into().filter(|share| share.is_finite()).map(|share| share.clamp(0.0, 1.0));
        self
    }

    /// Limits its confidence to this.
    pub fn confidence(mut self, confidence: Confidence) -> Self {
        self.confidence = Some(self.confidence.map_or(confidence, |known| known.max(confidence)));
        self
    }

    /// If true, it is a guess: the numbers have another explanation that is as likely.
    pub fn guess_if(self, is_guess: bool) -> Self {
        if is_guess { self.confidence(Confidence::Guess) } else { self }
    }

    /// If true, it is inferred: it follows only if something usual holds.
    pub fn inferred_if(self, is_inferred: bool) -> Self {
        if is_inferred { self.confidence(Confidence::Inferred) } else { self }
    }

    /// If true, it does little harm now.
    pub fn minor_if(mut self, is_minor: bool) -> Self {
        if is_minor {
            self.severity = self.severity.min(MINOR);
        }
        self
    }

    /// If true, too little is lost for a critical finding.
    pub fn at_most_warning_if(mut self, is_little: bool) -> Self {
        if is_little {
            self.severity = self.severity.min(BELOW_CRITICAL);
        }
        self
    }

    /// Nothing in the period shows it at work.
    pub fn latent(mut self) -> Self {
        self.latent = true;
        self
    }

    /// The numbers and names behind the title. Added to what is there, after a semicolon.
    pub fn detail(mut self, detail: impl AsRef<str>) -> Self {
        let detail = detail.as_ref();
        if !self.detail.is_empty() && !detail.is_empty() {
            self.detail.push_str("; ");
        }
        self.detail.push_str(detail);
        self
    }

    /// Adds evidence.
    pub fn because(mut self, evidence: Evidence) -> Self {
        self.evidence.push(evidence);
        self
    }

    /// What would confirm or refute it, if that differs from what the rule says.
    pub fn confirmed_by(mut self, confirm: &'static str) -> Self {
        self.confirm = Some(confirm);
        self
    }

    /// Adds evidence that may be missing.
    pub fn because_some(mut self, evidence: Option<Evidence>) -> Self {
        self.evidence.extend(evidence);
        self
    }

    /// Adds counter-evidence.
    pub fn but(mut self, against: impl Into<String>) -> Self {
        self.against.push(against.into());
        self
    }

    /// Adds counter-evidence if it applies.
    pub fn but_if(self, holds: bool, against: impl Into<String>) -> Self {
        if holds { self.but(against) } else { self }
    }

    /// Adds a remedy, after those added before, if it works on the node's release.
    pub fn fix(mut self, remedy: Option<Remedy>) -> Self {
        self.remedies.extend(remedy);
        self
    }

    /// Adds a remedy, if it applies.
    pub fn fix_if(self, applies: bool, remedy: impl FnOnce() -> Option<Remedy>) -> Self {
        if applies { self.fix(remedy()) } else { self }
    }

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

/// The account that a cost is of.
fn account(cost: Cost, part: Option<Use>, usual: Account) -> Account {
    match (cost, part) {
        (Cost::CpuCores(_), Some(part)) if part.is_used() => Account::CpuUsed,
        (Cost::CpuCores(_), Some(_)) => Account::CpuUnused,
        (Cost::CpuCores(_), None) => usual,
        (Cost::MemoryBytes(_), _) => Account::Memory,
        (Cost::DelaySeconds(_) | Cost::Waiting(_), _) => Account::Delay,
        (Cost::EndSeconds(_), _) => Account::HeadRoom,
    }
}
