//! A finding as text: in one line, in a few lines, or in full.

use beamtune_flags::Kind;
use beamtune_model::{Chain, Confidence, Cost, Evidence, Finding, Follows, Level, Period, Remedy, facts};

use super::View;
use crate::text::{self, Style};

/// Column at which titles and texts begin: after the level, or after `fix`, `verify` and `more`.
const INDENT: usize = 10;
/// Columns at the end of the first line for the code: `BT008` and two spaces.
const CODE_COLUMNS: usize = 7;
/// Maximum number of consequences that are named.
const MAX_EFFECTS: usize = 3;
/// Text of [`Remedy::risk`] for a remedy without risk.
const NO_RISK: &str = "None.";

/// Products whose scripts start the VM, by the beginning of their names, and the variable from which these scripts take emulator flags.
/// Sources: rabbitmq-env.conf(5), ejabberdctl.cfg.
const FLAG_VARIABLES: [(&str, &str); 2] =
    [("RabbitMQ", "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS"), ("ejabberd", "ERL_OPTIONS in ejabberdctl.cfg")];

/// Renders a notice in one line: its title and its code.
pub(super) fn line(finding: &Finding, style: Style) -> String {
    let title = text::clauses(&text::sentence(&finding.title), title_width(style), 1);
    let label = style.level(finding.level, &format!("{:<INDENT$}", label(finding.level)));
    coded(&label, title.first().map_or("", String::as_str), finding, true, style)
}

/// The parts of a finding's block of text, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Title,
    Detail,
    Effect,
    Fix,
    Risk,
    Verify,
    More,
}

const PARTS: [Part; 7] =
    [Part::Title, Part::Detail, Part::Effect, Part::Fix, Part::Risk, Part::Verify, Part::More];

/// Parts that are shortened one after the other until a block is short enough, each with its new number of lines.
const GIVES_WAY: [(Part, usize); 12] = [
    (Part::Verify, 1),
    (Part::Detail, 3),
    (Part::Verify, 0),
    (Part::Risk, 1),
    (Part::Detail, 2),
    (Part::Fix, 3),
    (Part::Effect, 2),
    (Part::Title, 2),
    (Part::Detail, 1),
    (Part::Fix, 2),
    (Part::Risk, 0),
    (Part::Effect, 1),
];

/// Renders a cause with its consequences in at most `max_lines`: title, numbers, consequences, and the best remedy with its risk. The first
/// finding also has a way to verify the remedy, and the command that shows more.
pub(super) fn brief(period: &Period, chain: &Chain<'_>, max_lines: usize, view: &View<'_>) -> String {
    let style = view.style;
    let finding = chain.cause;
    let is_first = max_lines > super::FURTHER_LINES;
    let remedy = finding.remedies.first();
    let effects: Vec<&Finding> = chain.effects.iter().copied().filter(|one| is_effect(one)).collect();
    let part = |part: Part, max_lines: usize| match part {
        Part::Title => title(finding, chain.level(), max_lines, style),
        Part::Detail => detail(finding, max_lines, style),
        Part::Effect => effect_lines(&effects, max_lines, style),
        Part::Fix => remedy
            .map(|remedy| labelled("fix", &change(period, remedy), max_lines, style))
            .unwrap_or_default(),
        Part::Risk => remedy.map(|remedy| risk(remedy, max_lines, style)).unwrap_or_default(),
        Part::Verify => remedy
            .filter(|_| is_first)
            .map(|remedy| labelled("verify", &remedy.prove, max_lines, style))
            .unwrap_or_default(),
        Part::More => {
            let more = view.invocation.filter(|_| is_first);
            let more = more.map(|of| format!("beamtune explain {} {}", finding.code, of.target));
            more.map(|more| labelled("more", &more, max_lines, style)).unwrap_or_default()
        }
    };
    let mut parts: Vec<(Part, Vec<String>)> =
        PARTS.iter().map(|kind| (*kind, part(*kind, usize::MAX))).collect();
    for (kind, lines) in GIVES_WAY {
        if parts.iter().map(|(_, lines)| lines.len()).sum::<usize>() <= max_lines {
            break;
        }
        if let Some((_, long)) = parts.iter_mut().find(|(known, long)| *known == kind && long.len() > lines) {
            *long = part(kind, lines);
        }
    }
    parts.into_iter().flat_map(|(_, lines)| lines).collect()
}

/// Whether a consequence is worth a line. A notice about idle CPU is not: the account shows how much is idle, and why.
fn is_effect(finding: &Finding) -> bool {
    finding.level > Level::Notice || super::idle_for(finding).is_none()
}

/// Renders the title, with level and code on its first line.
fn title(finding: &Finding, level: Level, max_lines: usize, style: Style) -> Vec<String> {
    let lines = text::clauses(&text::sentence(&finding.title), title_width(style), max_lines);
    let label = style.level(level, &format!("{:<INDENT$}", label(level)));
    let line = |(index, line): (usize, &String)| match index {
        0 => coded(&label, line, finding, true, style),
        _ => format!("{:INDENT$}{}\n", "", style.bold(line)),
    };
    lines.iter().enumerate().map(line).collect()
}

/// Renders the numbers and names behind the title.
fn detail(finding: &Finding, max_lines: usize, style: Style) -> Vec<String> {
    let lines = text::clauses(&text::sentence(&finding.detail), body_width(style), max_lines);
    lines.into_iter().map(|line| format!("{:INDENT$}{line}\n", "")).collect()
}

/// Renders the consequences of a finding: as many whole titles as fit, and the number of the others.
fn effect_lines(effects: &[&Finding], max_lines: usize, style: Style) -> Vec<String> {
    let (effects, most) = first_of_each_rule(effects);
    let most = most.min(MAX_EFFECTS);
    let mut fitting = (1..=most).rev().map(|count| first_effects(&effects, count, style));
    let codes = || {
        let codes: Vec<&str> = effects.iter().map(|finding| finding.code.0).collect();
        labelled("effect", &format!("{} (-v)", codes.join(", ")), 1, style)
    };
    fitting.find(|lines| lines.len() <= max_lines).unwrap_or_else(|| match &effects[..] {
        [] => Vec::new(),
        _ => codes(),
    })
}

/// Moves the first effect of each rule to the front, and returns their number. Further effects of a rule mostly repeat the first one, such
/// as those of other members of a pool.
fn first_of_each_rule<'f>(effects: &[&'f Finding]) -> (Vec<&'f Finding>, usize) {
    let is_first = |(place, finding): &(usize, &&Finding)| {
        !effects.iter().take(*place).any(|before| before.code == finding.code)
    };
    let (first, others): (Vec<_>, Vec<_>) = effects.iter().enumerate().partition(is_first);
    let rules = first.len();
    (first.into_iter().chain(others).map(|(_, finding)| *finding).collect(), rules)
}

/// Renders the first titles; the last one says how many more there are.
fn first_effects(effects: &[&Finding], count: usize, style: Style) -> Vec<String> {
    let more = effects.len() - count;
    let mut out = Vec::new();
    for (index, finding) in effects.iter().take(count).enumerate() {
        let label = if index == 0 { style.dim(&label_text("effect")) } else { " ".repeat(INDENT) };
        let is_last = index + 1 == count && more > 0;
        let more = if is_last { format!(", and {more} more (-v)") } else { String::new() };
        let words = format!("{}{more}", text::sentence(&finding.title));
        let lines = text::lines(&words, title_width(style), usize::MAX);
        out.extend(lines.into_iter().enumerate().map(|(index, line)| match index {
            0 => coded(&label, &line, finding, false, style),
            _ => format!("{:INDENT$}{line}\n", ""),
        }));
    }
    out
}

/// Renders the risk of a remedy; no lines if absent, or if not even its first clause fits.
fn risk(remedy: &Remedy, max_lines: usize, style: Style) -> Vec<String> {
    let risk = text::sentence(&remedy.risk);
    let is_whole = text::whole_clauses(&risk, body_width(style), max_lines).is_some();
    match remedy.risk == NO_RISK || !is_whole {
        true => Vec::new(),
        false => labelled("risk", &remedy.risk, max_lines, style),
    }
}

fn label_text(label: &str) -> String {
    format!("   {label:<6} ")
}

/// Renders text with a label before its first line.
fn labelled(label: &str, words: &str, max_lines: usize, style: Style) -> Vec<String> {
    let lines = text::clauses(&text::sentence(words), body_width(style), max_lines);
    let line = |(index, line): (usize, String)| match index {
        0 => format!("{}{line}\n", style.dim(&label_text(label))),
        _ => format!("{:INDENT$}{line}\n", ""),
    };
    lines.into_iter().enumerate().map(line).collect()
}

/// Renders a line with the finding's code at the right margin.
fn coded(label: &str, words: &str, finding: &Finding, is_bold: bool, style: Style) -> String {
    let space = title_width(style).saturating_sub(text::width(words));
    let words = if is_bold { style.bold(words) } else { words.to_owned() };
    format!("{label}{words}{:space$}  {}\n", "", style.dim(finding.code.0))
}

fn label(level: Level) -> &'static str {
    match level {
        Level::Critical => "CRITICAL",
        Level::Warning => "WARNING",
        Level::Notice => "notice",
    }
}

fn title_width(style: Style) -> usize {
    body_width(style) - CODE_COLUMNS
}

fn body_width(style: Style) -> usize {
    style.width.saturating_sub(INDENT).max(40)
}

/// Returns what to type, and where.
fn change(period: &Period, remedy: &Remedy) -> String {
    let product = period.facts.get(facts::PRODUCT);
    let variable =
        product.and_then(|product| FLAG_VARIABLES.iter().find(|(name, _)| product.starts_with(name)));
    let flag_file = variable.map_or("vm.args", |(_, variable)| *variable);
    let place = match beamtune_flags::entry(&remedy.entry).map(|entry| entry.kind) {
        Some(Kind::EmulatorFlag | Kind::InitFlag) => format!(" ({flag_file}, restart)"),
        Some(Kind::KernelParameter) if remedy.at_run_time => " (sys.config; no restart)".to_owned(),
        Some(Kind::KernelParameter) => " (sys.config, restart)".to_owned(),
        Some(Kind::Environment) => " (environment, restart)".to_owned(),
        Some(Kind::RuntimeSetting) => " (at run time, lost on restart)".to_owned(),
        Some(Kind::HostSetting) if remedy.at_run_time => " (no restart)".to_owned(),
        Some(Kind::EtsOption | Kind::ProcessOption | Kind::SocketOption) => " (code)".to_owned(),
        Some(Kind::HostSetting | Kind::Build | Kind::CodeChange) | None => String::new(),
    };
    format!("{}{place}", remedy.change)
}

/// Renders a finding with all evidence, under the given level; with remedies if `is_advised` is set.
pub(super) fn full(
    period: &Period,
    finding: &Finding,
    level: Level,
    is_advised: bool,
    style: Style,
) -> String {
    let mut out = [title(finding, level, usize::MAX, style), detail(finding, usize::MAX, style)].concat();
    let facts = [
        Some(finding.rule.to_owned()),
        Some(confidence(finding.confidence).to_owned()),
        finding.claim.map(|claim| cost(claim.cost)),
    ];
    let facts: Vec<String> = facts.into_iter().flatten().collect();
    out.push(format!("{:INDENT$}{}\n", "", style.dim(&facts.join(" · "))));
    if let Some(Follows { code, rule, why }) = &finding.follows {
        out.extend(labelled("cause", &format!("{code} {rule}: {why}"), usize::MAX, style));
    }
    out.push(evidence(&finding.evidence, style));
    let mut add = |label: &str, words: &str| out.extend(labelled(label, words, usize::MAX, style));
    finding.against.iter().for_each(|against| add("caveat", against));
    if !is_advised {
        return out.concat();
    }
    if !finding.confirm.is_empty() {
        add("check", finding.confirm);
    }
    for remedy in &finding.remedies {
        let valid = match remedy.releases.as_str() {
            "" | "all" => String::new(),
            releases => format!(" [OTP {releases}]"),
        };
        add("fix", &format!("{}{valid}", change(period, remedy)));
        add("why", &remedy.why);
        if remedy.risk != NO_RISK {
            add("risk", &remedy.risk);
        }
        if let Some(bytes) = remedy.saves_bytes {
            add("saves", &format!("{} of resident memory (estimated)", text::bytes(bytes)));
        }
        add("verify", &remedy.prove);
    }
    out.concat()
}

fn confidence(confidence: Confidence) -> &'static str {
    match confidence {
        Confidence::Measured => "measured",
        Confidence::Inferred => "inferred",
        Confidence::Guess => "low confidence",
    }
}

/// Renders evidence as a table: what was measured, and its value with the threshold.
fn evidence(evidence: &[Evidence], style: Style) -> String {
    let names: Vec<_> = evidence.iter().map(|one| text::sentence(&one.what)).collect();
    let width = names.iter().map(|name| text::width(name)).max().unwrap_or(0).min(50);
    let column = INDENT + 2 + width + 2;
    let mut out = String::new();
    for (name, one) in names.iter().zip(evidence) {
        // A name that is wider than its column gets its own line.
        let value_width = style.width.saturating_sub(column).max(30);
        let values = text::lines(&value(one), value_width, usize::MAX);
        let mut values = values.iter();
        let first = values.next().map_or("", String::as_str);
        match text::width(name) <= width {
            true => out.push_str(&format!("{:INDENT$}  {name:<width$}  {first}\n", "")),
            false => out.push_str(&format!("{:INDENT$}  {name}\n{:column$}{first}\n", "", "")),
        }
        values.for_each(|line| out.push_str(&format!("{:column$}{line}\n", "")));
    }
    out
}

fn value(evidence: &Evidence) -> String {
    let mut parts = Vec::new();
    parts.extend(evidence.value.map(|value| text::value(value, evidence.unit)));
    parts.extend(evidence.text.as_deref().map(text::exact_sentence));
    if let Some(threshold) = evidence.threshold {
        parts.push(format!("(warning from {})", text::value(threshold, evidence.unit)));
    }
    parts.join("  ")
}

/// Formats the cost of a finding, which is an estimate.
fn cost(cost: Cost) -> String {
    match cost {
        Cost::CpuCores(cores) => format!("costs {cores:.2} cores"),
        Cost::MemoryBytes(bytes) => format!("costs {} of memory", text::bytes(bytes)),
        Cost::DelaySeconds(seconds) => format!("delays of {}", text::seconds(seconds)),
        Cost::Waiting(count) => format!("{} waiting", text::decimal(count)),
        Cost::EndSeconds(seconds) => format!("{} left", text::seconds(seconds)),
    }
}
