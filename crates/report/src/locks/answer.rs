//! The brief page: whether there is lock contention, for which locks, and which waits would remain without the most contended lock.

use beamtune_model::units::seconds;
use beamtune_model::{Diagnosis, Outcome, Period};

use super::lines::{By, View, lines};
use super::look::{Answer, Look, WaitShare};
use super::{Page, length, of_duration};
use crate::table::{Align::*, Table};
use crate::text::{self, Style};

/// Maximum number of rows of a brief page, and minimum share of the waits for a row (judgement).
const MAX_ROWS: usize = 8;
const MIN_SHARE: f64 = 0.01;

/// What threads waited for: a lock with its owner, or an operation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Contended {
    /// The class of locks; empty if unknown.
    pub lock: String,
    /// What the lock belongs to: `table carts`; empty if unknown.
    pub object: String,
    /// Share of all lock waits, 0 to 1.
    pub share: f64,
    /// The operation in which threads waited, or the place in the emulator's source; empty if unknown.
    pub operation: String,
}

/// Renders the page. With `is_verbose`, the outcomes of rules follow on the page, so reasons for a missing evaluation are left out here.
pub fn render(period: &Period, page: &Page<'_>, is_verbose: bool, style: Style) -> String {
    let waits = share_of_waits(period, page);
    let remark = period.lock_session.as_ref().map_or("", |session| &session.remark);
    // Remarks are more precise about what is missing.
    let has_remarks = page.look.is_some_and(|look| !look.remarks.is_empty());
    let is_unknown = waits.is_none() && page.contended.is_empty() && !has_remarks;
    let paragraphs = [
        format!("{}{}", answer(page.look, waits, style), note(remark, style)),
        match page.look.is_some_and(|look| look.answer == Answer::No) {
            true => String::new(),
            false => format!("{}{}", rows(page.contended, style), without(page.contended, waits, style)),
        },
        page.look
            .map_or_else(String::new, |look| look.remarks.iter().map(|remark| note(remark, style)).collect()),
        match is_unknown && !is_verbose {
            true => not_judged(page.verdicts, style),
            false => String::new(),
        },
    ];
    let paragraphs: Vec<String> = paragraphs.into_iter().filter(|paragraph| !paragraph.is_empty()).collect();
    paragraphs.join("\n")
}

/// How long threads waited: the parts of a sentence.
#[derive(Debug, Clone, Copy)]
struct Waits {
    threads: &'static str,
    share: f64,
    interval: Option<(f64, f64)>,
    is_lower_bound: bool,
    whole: &'static str,
    how: &'static str,
    seconds: f64,
}

fn share_of_waits(period: &Period, page: &Page<'_>) -> Option<Waits> {
    if let Some(WaitShare { share, interval, is_lower_bound, is_counted, length }) =
        page.look.and_then(|look| look.share)
    {
        let (threads, whole, how) = match is_counted {
            true => ("Threads", "the schedulers' time", "counted"),
            false => ("Schedulers", "their busy time", "sampled"),
        };
        let seconds = seconds(length);
        return Some(Waits { threads, share, interval, is_lower_bound, whole, how, seconds });
    }
    // Imported counts may lack the number of schedulers.
    let length = length(period)?;
    let waited =
        lines(period, &View::all(By::Class)).iter().fold(0_i64, |sum, line| sum.saturating_add(line.waited));
    Some(Waits {
        threads: "Threads",
        share: of_duration(waited, Some(length))? / 100.0,
        interval: None,
        is_lower_bound: false,
        whole: "the duration, summed over all threads",
        how: "counted",
        seconds: seconds(length),
    })
}

fn answer(look: Option<&Look>, waits: Option<Waits>, style: Style) -> String {
    let words = match look.map(|look| look.answer) {
        Some(Answer::Yes) => "Lock contention: yes.",
        Some(Answer::No) => "Lock contention: no.",
        Some(Answer::NotSure) => "Lock contention: not sure.",
        // Imported counts: the number of schedulers is unknown.
        None => "",
    };
    let reason = match (waits, look.and_then(reason)) {
        (Some(waits), _) => {
            let bound = if waits.is_lower_bound { "at least " } else { "" };
            let interval = waits
                .interval
                .map_or_else(String::new, |(low, high)| format!(" [{}, {}]", number(low), number(high)));
            let (share, whole, how) = (number(waits.share), waits.whole, waits.how);
            format!(
                "{} waited for locks {bound}{share} %{interval} of {whole} ({} {how}).",
                waits.threads,
                text::seconds(waits.seconds)
            )
        }
        (None, Some(reason)) => reason,
        (None, None) => String::new(),
    };
    let text = text::wrap(format!("{words} {reason}").trim(), style.width, "");
    match text.strip_prefix(words) {
        // The answer is never wrapped, because it is shorter than any line.
        Some(reason) if !words.is_empty() => format!("{}{reason}\n", style.bold(words)),
        _ if text.is_empty() => String::new(),
        _ => format!("{text}\n"),
    }
}

/// Returns the reason for an answer if waits are unknown: how threads spent their time.
fn reason(look: &Look) -> Option<String> {
    let kind = look.kinds.iter().find(|kind| kind.answer == look.answer).or(look.kinds.first())?;
    let threads = text::clean(&kind.kind.replace('_', " "));
    Some(format!("{} {threads} threads: {}.", kind.threads, text::sentence(&kind.why)))
}

fn rows(contended: &[Contended], style: Style) -> String {
    let mut table =
        Table::new(&[("lock", Left), ("belongs to", Left), ("share of waits", Right), ("operation", Left)]);
    let worth = contended.iter().filter(|row| row.share >= MIN_SHARE);
    for row in worth.take(MAX_ROWS) {
        table.row([
            if row.lock.is_empty() { "unknown".to_owned() } else { text::clean(&row.lock) },
            text::sentence(&row.object),
            format!("{} %", number(row.share)),
            text::sentence(&row.operation),
        ]);
    }
    table.render(style)
}

/// Renders the waits that would remain without the lock of the first row.
fn without(contended: &[Contended], waits: Option<Waits>, style: Style) -> String {
    let (Some(first), Some(waits)) = (contended.first(), waits) else { return String::new() };
    let left = waits.share * (1.0 - first.share);
    let words = match contended.get(1) {
        Some(next) => {
            let next: Vec<&str> = [&next.lock, &next.object, &next.operation]
                .into_iter()
                .map(String::as_str)
                .filter(|word| !word.is_empty())
                .take(2)
                .collect();
            format!(
                "Without the first lock: still at least {} % of {}, mostly for {}.",
                number(left),
                waits.whole,
                text::sentence(&next.join(" "))
            )
        }
        None => "Without this lock: no lock waits.".to_owned(),
    };
    format!("{}\n", text::wrap(&words, style.width, ""))
}

fn not_judged(verdicts: &Diagnosis, style: Style) -> String {
    let line = |outcome: &Outcome| match outcome {
        Outcome::NotJudged { reason, next } => {
            Some(note(&format!("not evaluated: {reason}; next: {next}"), style))
        }
        _ => None,
    };
    verdicts.verdicts.iter().filter_map(|verdict| line(&verdict.outcome)).collect()
}

/// Renders a remark as a separate sentence.
fn note(remark: &str, style: Style) -> String {
    let mut letters = remark.chars();
    let Some(first) = letters.next() else { return String::new() };
    let remark: String = first.to_uppercase().chain(letters).collect();
    format!("{}\n", text::wrap(&text::sentence(&remark), style.width, ""))
}

/// Formats a share in percent, with two digits: `4.7`, `16`.
fn number(share: f64) -> String {
    let percent = share * 100.0;
    if percent < 9.95 { format!("{percent:.1}") } else { format!("{percent:.0}") }
}
