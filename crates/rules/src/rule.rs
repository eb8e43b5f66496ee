//! The contract of a rule.

use beamtune_model::{Code, Cost, Evidence, Finding, Level, Metric, Missing, Period, Remedy};

/// Score of what is worth a notice, and no more: it harms little, or may have another reason.
pub const NOTICE: f64 = 20.0;

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
    /// What it cannot do without. What it uses if it is there is said on its page.
    pub needs: &'static [&'static Metric],
    /// First OTP release for which it can judge.
    pub since: u32,
    /// Judges a period. `Err` where data are missing: it becomes "not judged", never "healthy".
    pub judge: fn(&Period) -> Result<Judgement, Missing>,
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

/// A finding as a rule writes it; code, name and level are added by the engine.
#[derive(Debug)]
pub struct Draft {
    score: f64,
    summary: String,
    subject: Option<String>,
    cost: Option<Cost>,
    evidence: Vec<Evidence>,
    against: Vec<String>,
    remedies: Vec<Remedy>,
}

impl Draft {
    /// A finding with its score (0–100, see [`Level::of`]) and its sentence.
    pub fn new(score: f64, summary: impl Into<String>) -> Self {
        Draft {
            score,
            summary: summary.into(),
            subject: None,
            cost: None,
            evidence: Vec::new(),
            against: Vec::new(),
            remedies: Vec::new(),
        }
    }

    /// The process, table or limit that it is about.
    pub fn about(mut self, subject: impl Into<String>) -> Self {
        self.subject = Some(subject.into());
        self
    }

    /// What it costs, where that is known. What is nothing, or no number, is not told.
    pub fn costs(mut self, cost: impl Into<Option<Cost>>) -> Self {
        let is_told = |cost: &Cost| match cost {
            Cost::EndSeconds(seconds) => seconds.is_finite() && *seconds >= 0.0,
            cost => cost.value().is_finite() && cost.value() > 0.0,
        };
        self.cost = cost.into().filter(is_told);
        self
    }

    pub(crate) fn cost(&self) -> Option<Cost> {
        self.cost
    }

    /// Limits its score.
    pub(crate) fn at_most(self, score: f64) -> Self {
        Draft { score: self.score.min(score), ..self }
    }

    /// Adds to its sentence.
    pub fn and(mut self, more: &str) -> Self {
        self.summary.push_str(more);
        self
    }

    /// Adds evidence.
    pub fn because(mut self, evidence: Evidence) -> Self {
        self.evidence.push(evidence);
        self
    }

    /// Adds evidence that may not be there.
    pub fn because_some(mut self, evidence: Option<Evidence>) -> Self {
        self.evidence.extend(evidence);
        self
    }

    /// Adds what speaks against it.
    pub fn but(mut self, against: impl Into<String>) -> Self {
        self.against.push(against.into());
        self
    }

    /// Adds what speaks against it, if it does.
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

    pub(crate) fn finish(self, rule: &Rule) -> Finding {
        Finding {
            code: rule.code,
            rule: rule.name,
            level: Level::of(self.score),
            score: self.score,
            summary: self.summary,
            subject: self.subject,
            cost: self.cost,
            follows: None,
            evidence: self.evidence,
            against: self.against,
            confirm: rule.confirm,
            remedies: self.remedies,
        }
    }
}
