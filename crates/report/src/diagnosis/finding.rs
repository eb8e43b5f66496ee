//! One finding: in a line, in a few, or with all that is known of it.

use beamtune_flags::Kind;
use beamtune_model::{Cost, Evidence, Finding, Follows, Level, Period, Remedy, facts};

use super::View;
use crate::text::{self, Style};

/// Column at which titles and texts begin: after the level, or after `fix`, `proof` and `more`.
const INDENT: usize = 10;
/// Columns at the end of the first line for the code: `BT008` and what separates it.
const CODE_COLUMNS: usize = 7;
/// Lines of a title, and of a detail in the first finding.
const TITLE_LINES: usize = 2;
const DETAIL_LINES: usize = 3;
/// Lines of the best remedy in the first finding.
const FIX_LINES: usize = 3;

/// Products whose scripts start the VM, by the beginning of their names, and the variable from which they take its flags.
/// Sources: rabbitmq-env.conf(5), ejabberdctl.cfg.
const FLAG_VARIABLES: [(&str, &str); 2] =
    [("RabbitMQ", "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS"), ("ejabberd", "ERL_OPTIONS in ejabberdctl.cfg")];

/// A notice: its title and its code, cut to one line.
pub(super) fn line(finding: &Finding, style: Style) -> String {
    let title = text::lines(&text::sentence(&finding.title), title_width(style), 1);
    first_line(finding, title.first().map_or("", String::as_str), style)
}

/// At most `max_lines`: title, numbers, what follows from it, the best remedy; of the first finding also how to prove it.
pub(super) fn brief(
    period: &Period,
    finding: &Finding,
    consequences: &[&Finding],
    max_lines: usize,
    view: &View<'_>,
) -> String {
    let style = view.style;
    let is_first = max_lines > super::FURTHER_LINES;
    let title = title(finding, TITLE_LINES, style);
    let remedy = finding.remedies.first();
    let fix_lines = if is_first { FIX_LINES } else { FIX_LINES - 1 };
    let fix =
        remedy.map(|remedy| labelled("fix", &change(period, remedy), fix_lines, style)).unwrap_or_default();
    let effects = effects(consequences, style);
    let used = title.len() + fix.len() + effects.len();
    let mut end: Vec<String> = Vec::new();
    if is_first {
        end.extend(remedy.map(|remedy| labelled("proof", &remedy.prove, 1, style)).unwrap_or_default());
        let more = view.invocation.map(|of| format!("beamtune explain {} {}", finding.code, of.target));
        end.extend(more.map(|more| labelled("more", &more, 1, style)).unwrap_or_default());
    }
    let detail_lines = DETAIL_LINES.min(max_lines.saturating_sub(used + end.len()));
    let detail = detail(finding, detail_lines, style);
    [title, detail, effects, fix, end].concat().concat()
}

/// The title, with level and code on its first line.
fn title(finding: &Finding, max_lines: usize, style: Style) -> Vec<String> {
    let lines = text::lines(&text::sentence(&finding.title), title_width(style), max_lines);
    let line = |(index, line): (usize, &String)| match index {
        0 => first_line(finding, line, style),
        _ => format!("{:INDENT$}{}\n", "", style.bold(line)),
    };
    lines.iter().enumerate().map(line).collect()
}

/// The numbers and names behind the title.
fn detail(finding: &Finding, max_lines: usize, style: Style) -> Vec<String> {
    let lines = text::lines(&text::sentence(&finding.detail), body_width(style), max_lines);
    lines.into_iter().map(|line| format!("{:INDENT$}{line}\n", "")).collect()
}

/// What follows from a finding, in one line: as many titles as fit, and how many do not.
fn effects(consequences: &[&Finding], style: Style) -> Vec<String> {
    let mut words = String::new();
    for (index, one) in consequences.iter().enumerate() {
        let separator = if index == 0 { "" } else { "; " };
        let next = format!("{separator}{} ({})", text::sentence(&one.title), one.code);
        let rest = consequences.len() - index - 1;
        let more = if rest == 0 { String::new() } else { format!("; {rest} more") };
        if index > 0 && words.chars().count() + next.chars().count() + more.len() > body_width(style) {
            words.push_str(&format!("; {} more", rest + 1));
            break;
        }
        words.push_str(&next);
    }
    labelled("effect", &words, 1, style)
}

/// A line with a label before it, and those that continue it.
fn labelled(label: &str, words: &str, max_lines: usize, style: Style) -> Vec<String> {
    let label = format!("   {label:<6} ");
    let lines = text::lines(&text::sentence(words), body_width(style), max_lines);
    let line = |(index, line): (usize, String)| match index {
        0 => format!("{}{line}\n", style.dim(&label)),
        _ => format!("{:INDENT$}{line}\n", ""),
    };
    lines.into_iter().enumerate().map(line).collect()
}

fn first_line(finding: &Finding, title: &str, style: Style) -> String {
    let label = style.level(finding.level, &format!("{:<INDENT$}", label(finding.level)));
    let space = title_width(style).saturating_sub(title.chars().count());
    let code = style.dim(finding.code.0);
    format!("{label}{}{:space$}  {code}\n", style.bold(title), "")
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

/// What to type, and where.
fn change(period: &Period, remedy: &Remedy) -> String {
    let is_flag = beamtune_flags::entry(&remedy.entry).is_some_and(|entry| entry.kind == Kind::EmulatorFlag);
    let product = period.facts.get(facts::PRODUCT).filter(|_| is_flag);
    let variable =
        product.and_then(|product| FLAG_VARIABLES.iter().find(|(name, _)| product.starts_with(name)));
    match variable {
        Some((_, variable)) => format!("{} in {variable}", remedy.change),
        None => remedy.change.clone(),
    }
}

/// With all evidence; `is_advised` also with remedies.
pub(super) fn full(period: &Period, finding: &Finding, is_advised: bool, style: Style) -> String {
    let mut out = [title(finding, usize::MAX, style), detail(finding, usize::MAX, style)].concat();
    let facts = [
        Some(finding.rule.to_owned()),
        Some(finding.confidence.text().to_owned()),
        finding.claim.map(|claim| cost(claim.cost)),
    ];
    let facts: Vec<String> = facts.into_iter().flatten().collect();
    out.push(format!("{:INDENT$}{}\n", "", style.dim(&facts.join(" · "))));
    if let Some(Follows { code, rule, why }) = &finding.follows {
        out.extend(labelled("after", &format!("{code} {rule}: {why}"), usize::MAX, style));
    }
    out.push(evidence(&finding.evidence, style));
    let mut add = |label: &str, words: &str| out.extend(labelled(label, words, usize::MAX, style));
    finding.against.iter().for_each(|against| add("but", against));
    if !is_advised {
        return out.concat();
    }
    if !finding.confirm.is_empty() {
        add("check", finding.confirm);
    }
    for remedy in &finding.remedies {
        let valid = [
            (!matches!(remedy.releases.as_str(), "" | "all")).then(|| format!("OTP {}", remedy.releases)),
            remedy.at_run_time.then(|| "at run time".to_owned()),
        ];
        let valid: Vec<_> = valid.into_iter().flatten().collect();
        let valid = if valid.is_empty() { String::new() } else { format!(" [{}]", valid.join(", ")) };
        add("fix", &format!("{}{valid}", change(period, remedy)));
        add("why", &remedy.why);
        if !remedy.risk.is_empty() {
            add("risk", &remedy.risk);
        }
        if let Some(bytes) = remedy.saves_bytes {
            add("saves", &format!("{} of resident memory (estimated)", text::bytes(bytes)));
        }
        add("proof", &remedy.prove);
    }
    out.concat()
}

/// A table: what was measured, and its value with the threshold.
fn evidence(evidence: &[Evidence], style: Style) -> String {
    let names: Vec<_> = evidence.iter().map(|one| text::sentence(&one.what)).collect();
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0).min(50);
    let column = INDENT + 2 + width + 2;
    let mut out = String::new();
    for (name, one) in names.iter().zip(evidence) {
        // A name that is wider than its column has a line of its own.
        let value_width = style.width.saturating_sub(column).max(30);
        let values = text::lines(&value(one), value_width, usize::MAX);
        let mut values = values.iter();
        let first = values.next().map_or("", String::as_str);
        match name.chars().count() <= width {
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

/// What is at stake. It is an estimate.
fn cost(cost: Cost) -> String {
    match cost {
        Cost::CpuCores(cores) => format!("costs {cores:.2} cores"),
        Cost::MemoryBytes(bytes) => format!("costs {} of memory", text::bytes(bytes)),
        Cost::DelaySeconds(seconds) => format!("delays of {}", text::seconds(seconds)),
        Cost::Waiting(count) => format!("{} waiting", text::decimal(count)),
        Cost::EndSeconds(seconds) => format!("{} left", text::seconds(seconds)),
    }
}
