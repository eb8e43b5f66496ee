//! The diagnosis as JSON. `docs/schema/diagnosis.schema.json` defines the format. New fields may be added within a version.

use beamtune_model::text::is_hidden;
use beamtune_model::units::seconds;
use beamtune_model::{CpuAccount, Diagnosis, Finding, Gap, Level, Outcome, Period, facts};
use serde::Serialize;

/// Version of the format; increased when a field changes its meaning or is removed.
pub const VERSION: u32 = 3;

#[derive(Serialize)]
struct Document<'a> {
    version: u32,
    node: Node<'a>,
    period: Span,
    worst: Option<Level>,
    cpu: Option<&'a CpuAccount>,
    #[serde(flatten)]
    judged: Judged<'a>,
}

/// The outcomes of the rules, and the gaps of the period: the last part of each document with findings.
#[derive(Serialize)]
pub(crate) struct Judged<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    thresholds: Option<Changed<'a>>,
    findings: Vec<&'a Finding>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    latent: Vec<&'a Finding>,
    healthy: Vec<Healthy<'a>>,
    not_judged: Vec<NotJudged<'a>>,
    gaps: Vec<GapDocument<'a>>,
}

/// Thresholds that the user overrides.
#[derive(Serialize)]
struct Changed<'a> {
    file: &'a str,
    changed: Vec<&'static str>,
}

#[derive(Serialize)]
pub(crate) struct Node<'a> {
    name: Option<&'a str>,
    os_pid: Option<u32>,
    product: Option<&'a str>,
    otp_release: Option<u32>,
    otp_version: Option<&'a str>,
    erts_version: Option<&'a str>,
    schedulers_online: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    synthetic: Option<&'a str>,
}

#[derive(Serialize)]
pub(crate) struct Span {
    seconds: f64,
    samples: u32,
    vm_samples: u32,
    host_samples: u32,
    /// Wall-clock begin, seconds since 1970.
    began: Option<f64>,
    lives: u32,
}

#[derive(Serialize)]
struct Healthy<'a> {
    code: &'static str,
    rule: &'static str,
    summary: &'a str,
}

#[derive(Serialize)]
struct NotJudged<'a> {
    code: &'static str,
    rule: &'static str,
    reason: &'a str,
    next: &'a str,
}

#[derive(Serialize)]
struct GapDocument<'a> {
    begin_seconds: f64,
    end_seconds: f64,
    source: &'a str,
    kind: &'static str,
    reason: &'a str,
}

impl<'a> Node<'a> {
    pub(crate) fn of(period: &'a Period) -> Self {
        let facts = &period.facts;
        let incarnation = period.incarnation.as_ref();
        Node {
            name: incarnation
                .map(|inc| inc.node.as_str())
                .filter(|node| !node.is_empty())
                .or(facts.get(facts::NODE_NAME)),
            os_pid: incarnation.and_then(|inc| inc.os_pid),
            product: facts.get(facts::PRODUCT),
            otp_release: facts.otp_release(),
            otp_version: facts.get(facts::OTP_VERSION),
            erts_version: facts.get(facts::ERTS_VERSION),
            schedulers_online: facts.number(facts::SCHEDULERS_ONLINE),
            synthetic: facts.get(facts::SYNTHETIC),
        }
    }
}

impl Span {
    pub(crate) fn of(period: &Period) -> Self {
        let incarnation = period.incarnation.as_ref();
        Span {
            seconds: period.seconds(),
            samples: period.ticks,
            vm_samples: period.vm_ticks,
            host_samples: period.host_ticks,
            began: incarnation
                .map(|inc| seconds(inc.wall0.saturating_add(period.begin.saturating_sub(inc.mono0)))),
            lives: period.incarnation_count,
        }
    }
}

impl<'a> Judged<'a> {
    pub(crate) fn of(period: &'a Period, diagnosis: &'a Diagnosis) -> Self {
        let (mut healthy, mut not_judged) = (Vec::new(), Vec::new());
        for verdict in &diagnosis.verdicts {
            match &verdict.outcome {
                Outcome::Found(_) => {}
                Outcome::Healthy(summary) => {
                    healthy.push(Healthy { code: verdict.code.0, rule: verdict.rule, summary });
                }
                Outcome::NotJudged { reason, next } => {
                    not_judged.push(NotJudged { code: verdict.code.0, rule: verdict.rule, reason, next });
                }
            }
        }
        let gaps = period.gaps.iter().map(gap).collect();
        let changed: Vec<_> = period.thresholds.names().collect();
        let thresholds = (!changed.is_empty()).then_some(Changed { file: &period.thresholds.file, changed });
        let (findings, latent) = (diagnosis.findings(), diagnosis.latent());
        Judged { thresholds, findings, latent, healthy, not_judged, gaps }
    }
}

/// Renders the diagnosis as a JSON document, indented, with a final newline.
pub fn render(period: &Period, diagnosis: &Diagnosis) -> String {
    let document = Document {
        version: VERSION,
        node: Node::of(period),
        period: Span::of(period),
        worst: diagnosis.worst(),
        cpu: diagnosis.cpu.as_ref(),
        judged: Judged::of(period, diagnosis),
    };
    pretty(&document)
}

/// Renders a document as JSON, indented, with a final newline. The result is safe to show on a terminal: characters for which
/// [`is_hidden`] is true are written as `\uXXXX`. JSON itself requires this only for the first 32 characters.
pub fn pretty(document: &impl Serialize) -> String {
    let text = serde_json::to_string_pretty(document)
        .unwrap_or_else(|error| format!("{{\"error\": \"{}\"}}", error.to_string().escape_default()));
    let mut out = String::with_capacity(text.len() + 1);
    for c in text.chars() {
        if is_hidden(c) && c != '\n' {
            let mut units = [0; 2];
            out.extend(c.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")));
        } else {
            out.push(c);
        }
    }
    out.push('\n');
    out
}

fn gap(gap: &Gap) -> GapDocument<'_> {
    GapDocument {
        begin_seconds: seconds(gap.begin),
        end_seconds: seconds(gap.end),
        source: &gap.source,
        kind: gap.kind.text(),
        reason: &gap.reason,
    }
}
