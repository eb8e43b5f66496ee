//! The result of a comparison as text: old and new values, and each change with its interval and verdict. It also has the smallest effect
//! that can be detected on this machine.

use beamtune_model::Unit;
use beamtune_model::study::{
    Answer, Arm, GuardVerdict, InvalidKind, Quantity, QuantityEffect, Question, Ratio, Verdict,
};

use crate::diagnosis::{Verbosity, View};
use crate::table::{Align::*, Table};
use crate::text::{self, Style};

/// Quantities of a brief page, in addition to the objective and the constraints.
const BRIEF: [&str; 7] = ["cpu-per-request", "cpu-time", "duration", "throughput", "p50", "p99", "rss"];
/// Limits for quantities other than the objective, as shares of A (judgement). A change below the first one is not a difference, as for the
/// objective. If the whole interval is within the second one, there is no difference.
const MIN_DIFFERENCE: f64 = 0.01;
const MAX_SAME: f64 = 0.03;

/// How a study was run.
#[derive(Debug, Clone, Copy)]
pub struct Circumstances<'a> {
    /// The load: `http://127.0.0.1:8080/, 300 req/s`.
    pub load: &'a str,
    /// Time of all trials, in seconds.
    pub took_s: f64,
}

/// Renders the result of a comparison.
pub fn render(question: &Question, verdict: &Verdict, run: Circumstances<'_>, view: &View<'_>) -> String {
    let style = view.style;
    let is_brief = view.verbosity == Verbosity::Brief;
    let heading = format!(
        "{} against {} · {} pairs in {} · {}",
        setting(&question.b),
        setting(&question.a),
        verdict.pairs,
        text::seconds(run.took_s),
        text::clean_words(run.load)
    );
    let mut out = format!("{}\n\n", style.bold(&text::wrap(&heading, style.width, "  ")));
    let effects = effects(question, verdict, is_brief, style);
    if !effects.is_empty() {
        out.push_str(&format!("{effects}\n"));
    }
    let mut lines = vec![answer(question, verdict), machine(verdict), invalid(verdict)];
    if !is_brief {
        lines.push(level(question, verdict));
    }
    for line in lines.iter().filter(|line| !line.is_empty()) {
        out.push_str(&format!("{}\n", text::wrap(line, style.width, "  ")));
    }
    out
}

fn setting(arm: &Arm) -> String {
    match arm.flags.is_empty() && arm.environment.is_empty() {
        true => "the default".to_owned(),
        false => text::clean_words(&arm.describe()),
    }
}

/// Returns the part of the answer that the table of effects does not contain.
fn answer(question: &Question, verdict: &Verdict) -> String {
    let objective = verdict.effects.iter().find(|effect| effect.quantity == question.objective);
    let is_broken = verdict.guards.iter().any(|guard| guard.verdict == "broken");
    match &verdict.answer {
        Answer::Better if is_broken => "A guard is violated: B is not an improvement.".to_owned(),
        Answer::Better | Answer::Worse | Answer::Same => String::new(),
        Answer::Open => "Not finished: continue with beamtune study resume FILE.".to_owned(),
        Answer::Undecided => {
            let ratio = objective.and_then(|effect| effect.ratio);
            let most = ratio.map(|ratio| (1.0 - ratio.low).max(ratio.high - 1.0));
            let bound = most.map_or_else(String::new, |most| {
                format!("; a difference above {} % is ruled out", in_percent(most))
            });
            format!("{} pairs show no difference{bound}.", verdict.pairs)
        }
        Answer::BelowDetectable => {
            "The difference is too small to be shown on this machine: use a quieter one, or a longer --for."
                .to_owned()
        }
        Answer::FalsePositive => {
            "No verdict: A differs from itself; the machine or the target changed during the study."
                .to_owned()
        }
        Answer::TooManyInvalid => "No verdict: too many invalid trials.".to_owned(),
        Answer::Fails { arm, why } => {
            format!("{} does not work: {}", text::clean(arm), text::clean_words(why))
        }
    }
}

/// Formats a change with its interval: `-54 % [-58, -31]`.
pub(crate) fn change(ratio: Ratio) -> String {
    let number = |ratio: f64| percent(ratio).trim_end_matches(" %").to_owned();
    format!("{} [{}, {}]", percent(ratio.estimate), number(ratio.low), number(ratio.high))
}

/// Formats a ratio as a change in percent.
pub fn percent(ratio: f64) -> String {
    let by = (ratio - 1.0) * 100.0;
    // Avoids a minus sign before a change that rounds to zero.
    let by = if by.abs() < 0.05 { 0.0 } else { by };
    if by.abs() < 9.95 { format!("{by:+.1} %") } else { format!("{by:+.0} %") }
}

/// Formats a share in percent, with two digits: `5.6`, `10`.
fn in_percent(share: f64) -> String {
    let percent = share * 100.0;
    let is_whole = (percent - percent.round()).abs() < 1e-9;
    if percent < 9.95 && !is_whole { format!("{percent:.1}") } else { format!("{percent:.0}") }
}

/// Returns the result of the A/A test, and the smallest effect that can be detected.
fn machine(verdict: &Verdict) -> String {
    let Some(ratio) = verdict.same else {
        return format!("A/A test: {} pairs so far.", verdict.same_pairs);
    };
    let detectable = match verdict.detectable {
        Some(least) => format!("effects of {} % or more are detectable", in_percent(least)),
        None => "the smallest detectable effect is unknown".to_owned(),
    };
    format!("A/A test: A differs from itself by {}; {detectable}.", change(ratio))
}

/// Returns the confidence level of the intervals, and how the trials were run.
fn level(question: &Question, verdict: &Verdict) -> String {
    let objective = verdict.effects.iter().find(|effect| effect.quantity == question.objective);
    objective.and_then(|effect| effect.ratio).map_or(String::new(), |ratio| {
        format!(
            "Intervals: {:.1} % for {} (planned analyses), 95 % for the others. Each pair in random order, each trial with a fresh VM; {} pairs of A against itself.",
            ratio.confidence * 100.0,
            question.objective,
            verdict.same_pairs
        )
    })
}

fn invalid(verdict: &Verdict) -> String {
    let mut parts: Vec<String> =
        verdict.invalid.iter().map(|(kind, count)| format!("{count} ({})", reason(*kind))).collect();
    if verdict.failed > 0 {
        parts.push(format!("{} (the target failed)", verdict.failed));
    }
    if parts.is_empty() { String::new() } else { format!("Invalid trials: {}.", parts.join(", ")) }
}

fn reason(kind: InvalidKind) -> &'static str {
    match kind {
        InvalidKind::Interference => "other processes on the host",
        InvalidKind::GeneratorBound => "load generator at its limit",
        InvalidKind::NotSteady => "target not steady",
        InvalidKind::Clock => "clock jumped",
        InvalidKind::NotMeasured => "data missing",
    }
}

/// Renders one row per quantity: the objective first, then those with constraints, then the others.
fn effects(question: &Question, verdict: &Verdict, is_brief: bool, style: Style) -> String {
    let is_guarded = |name: &str| verdict.guards.iter().any(|guard| guard.margin.quantity == name);
    let rank = |effect: &&QuantityEffect| match effect.quantity.as_str() {
        name if name == question.objective => 0,
        name if is_guarded(name) => 1,
        name if BRIEF.contains(&name) => 2,
        _ => 3,
    };
    // A part of the CPU time without use, of a kind of thread that did nothing.
    let is_idle =
        |effect: &&QuantityEffect| effect.quantity.contains('/') && effect.a == 0.0 && effect.b == 0.0;
    let mut shown: Vec<&QuantityEffect> = verdict.effects.iter().filter(|effect| !is_idle(effect)).collect();
    shown.retain(|effect| !is_brief || rank(effect) < 3);
    shown.sort_by_key(rank);
    let pairs: Vec<(String, String)> = shown
        .iter()
        .map(|effect| old_and_new(&value(&effect.quantity, effect.a), &value(&effect.quantity, effect.b)))
        .collect();
    let width = pairs.iter().map(|(old, _)| old.chars().count()).max().unwrap_or(0);
    let mut table = Table::new(&[("", Left), ("", Left), ("", Right), ("", Left), ("", Left)]);
    for (effect, (old, new)) in shown.into_iter().zip(pairs) {
        let (by, interval) = match effect.ratio.map(change).as_deref().and_then(|text| text.split_once(" ["))
        {
            Some((by, interval)) => (by.to_owned(), format!("[{interval}")),
            None => Default::default(),
        };
        table.row([
            label(&effect.quantity),
            format!("{old:>width$} → {new}"),
            by,
            interval,
            verdict_words(question, verdict, effect).join("; "),
        ]);
    }
    let mut out = table.body(style);
    for guard in &verdict.guards {
        if verdict.effects.iter().all(|effect| effect.quantity != guard.margin.quantity) {
            out.push_str(&format!("{}: {}\n", label(&guard.margin.quantity), guard_words(guard)));
        }
    }
    out
}

/// Removes the unit of the old value if the new value has the same: `1.21` and `0.64 ms`.
fn old_and_new(old: &str, new: &str) -> (String, String) {
    let number = |text: &str| {
        text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit() || ",.".contains(c)).len()
    };
    let (end, new_end) = (number(old), number(new));
    let old = if old[end..] == new[new_end..] { &old[..end] } else { old };
    (old.to_owned(), new.to_owned())
}

/// Formats the name of a quantity for people: `cpu-per-request/scheduler` becomes `CPU per request, scheduler`.
pub(crate) fn label(quantity: &str) -> String {
    let words = quantity.split_once('/').map_or_else(
        || quantity.replace('-', " "),
        |(name, part)| format!("{}, {}", name.replace('-', " "), part.replace('_', " ")),
    );
    let words = match words.split_once(' ').unwrap_or((&words, "")) {
        ("cpu", rest) => format!("CPU {rest}"),
        ("rss", rest) => format!("RSS {rest}"),
        _ => words,
    };
    text::clean(words.trim_end())
}

fn verdict_words(question: &Question, verdict: &Verdict, effect: &QuantityEffect) -> Vec<String> {
    let word = match (effect.quantity == question.objective, effect.ratio) {
        (true, _) => match verdict.answer {
            Answer::Better => "better",
            Answer::Worse => "worse",
            Answer::Same => "no difference",
            Answer::Undecided | Answer::BelowDetectable => "no difference shown",
            Answer::Open => "not decided yet",
            Answer::FalsePositive | Answer::TooManyInvalid | Answer::Fails { .. } => "",
        },
        (false, Some(ratio)) => {
            let name = effect.quantity.split('/').next().unwrap_or_default();
            by_interval(ratio, Quantity::find(name).is_some_and(|quantity| quantity.more_is_better))
        }
        (false, None) if effect.a == effect.b => "no difference",
        (false, None) => "",
    };
    let guard = verdict.guards.iter().find(|guard| guard.margin.quantity == effect.quantity);
    let word = (!word.is_empty()).then(|| word.to_owned());
    word.into_iter().chain(guard.map(guard_words)).collect()
}

fn by_interval(ratio: Ratio, more_is_better: bool) -> &'static str {
    let (is_less, is_more) = (ratio.high < 1.0, ratio.low > 1.0);
    if (is_less || is_more) && (ratio.estimate - 1.0).abs() >= MIN_DIFFERENCE {
        return if is_more == more_is_better { "better" } else { "worse" };
    }
    match ratio.low >= 1.0 - MAX_SAME && ratio.high <= 1.0 + MAX_SAME {
        true => "no difference",
        false => "no difference shown",
    }
}

/// Formats the verdict on a constraint: `guard +10 % kept`.
fn guard_words(guard: &GuardVerdict) -> String {
    let more_is_better =
        Quantity::find(&guard.margin.quantity).is_some_and(|quantity| quantity.more_is_better);
    let sign = if more_is_better { '-' } else { '+' };
    let verdict = match guard.verdict {
        "kept" => "kept",
        "broken" => "violated",
        "not_measured" => "not measured",
        _ => "undecided",
    };
    format!("guard {sign}{} % {verdict}", in_percent(guard.margin.max))
}

/// Formats the verdicts on all constraints in a line: `p99: guard +10 % kept, RSS: …`.
pub(crate) fn guards(guards: &[GuardVerdict]) -> String {
    let one = |guard: &GuardVerdict| format!("{}: {}", label(&guard.margin.quantity), guard_words(guard));
    guards.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Formats a measured value with its unit.
pub fn value(quantity: &str, value: f64) -> String {
    let name = quantity.split('/').next().unwrap_or(quantity);
    match Quantity::find(name).map(|quantity| quantity.unit) {
        Some(Unit::Nanoseconds) => time(value),
        Some(unit) => text::value(value, unit),
        None => text::decimal(value),
    }
}

/// Formats a time with three digits, so that a change of five percent is visible.
fn time(nanoseconds: f64) -> String {
    let (value, unit) = match nanoseconds {
        ns if ns < 1e6 => (ns / 1e3, "µs"),
        ns if ns < 1e9 => (ns / 1e6, "ms"),
        ns => (ns / 1e9, "s"),
    };
    let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.digits$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use beamtune_model::study::Margin;

    fn question() -> Question {
        let arm = |name: &str, flags: &[&str]| Arm {
            name: name.to_owned(),
            flags: flags.iter().map(ToString::to_string).collect(),
            ..Arm::default()
        };
        Question {
            seed: 1,
            a: arm("A", &[]),
            b: arm("B", &["+sbwt", "none"]),
            objective: "cpu-per-request".to_owned(),
            guards: Vec::new(),
            same_pairs: 6,
            max_pairs: 30,
        }
    }

    fn verdict(answer: Answer) -> Verdict {
        let ratio = |estimate, low, high| Some(Ratio { estimate, low, high, confidence: 0.992 });
        let effect =
            |quantity: &str, a, b, ratio| QuantityEffect { quantity: quantity.to_owned(), a, b, ratio };
        Verdict {
            answer,
            same: Some(Ratio { estimate: 0.994, low: 0.935, high: 1.057, confidence: 0.969 }),
            same_pairs: 6,
            detectable: Some(0.071),
            pairs: 8,
            effects: vec![
                effect("rss", 39.2e6, 39.3e6, ratio(1.002, 0.991, 1.018)),
                effect("cpu-per-request", 81_234.0, 37_100.0, ratio(0.46, 0.42, 0.69)),
                effect("cpu-per-request/scheduler", 70_000.0, 30_000.0, ratio(0.43, 0.4, 0.6)),
                effect("cpu-per-request/async", 0.0, 0.0, None),
                effect("throughput", 300.0, 280.0, ratio(0.93, 0.9, 0.95)),
                effect("p99", 1_900_000.0, 2_000_000.0, ratio(1.03, 0.96, 1.11)),
                effect("errors", 0.0, 0.0, None),
            ],
            guards: vec![GuardVerdict {
                margin: Margin { quantity: "p99".to_owned(), max: 0.1 },
                verdict: "kept",
            }],
            invalid: [(InvalidKind::Interference, 3)].into(),
            failed: 0,
        }
    }

    fn page(verdict: &Verdict, view: &View<'_>) -> String {
        render(&question(), verdict, Circumstances { load: "load 300 req/s", took_s: 240.0 }, view)
    }

    #[test]
    fn page_has_the_setting_then_each_change_with_its_verdict() {
        let text = page(&verdict(Answer::Better), &View::PLAIN);
        let rows: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split("  ").map(str::trim).filter(|word| !word.is_empty()).collect())
            .collect();
        assert_eq!(
            text.lines().next(),
            Some("+sbwt none against the default · 8 pairs in 4 min · load 300 req/s")
        );
        assert_eq!(rows[2], ["CPU per request", "81.2 → 37.1 µs", "-54 %", "[-58, -31]", "better"], "{text}");
        assert_eq!(
            rows[3],
            ["p99", "1.90 → 2.00 ms", "+3.0 %", "[-4.0, +11]", "no difference shown; guard +10 % kept"],
            "{text}"
        );
        assert_eq!(rows[4], ["RSS", "39.2 → 39.3 MB", "+0.2 %", "[-0.9, +1.8]", "no difference"], "{text}");
        assert_eq!(rows[5], ["throughput", "300 → 280/s", "-7.0 %", "[-10, -5.0]", "worse"], "{text}");
        let end = "\nA/A test: A differs from itself by -0.6 % [-6.5, +5.7]; effects of 7.1 % or more are detectable.\n\
            Invalid trials: 3 (other processes on the host).\n";
        assert!(text.ends_with(end), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 100) && text.lines().count() == 9, "{text}");
    }

    #[test]
    fn page_with_v_has_all_quantities_and_the_level_of_the_intervals() {
        let text = page(&verdict(Answer::Better), &View { verbosity: Verbosity::Evidence, ..View::PLAIN });
        assert!(text.contains("CPU per request, scheduler"), "{text}");
        assert!(text.contains("Intervals: 99.2 % for cpu-per-request"), "{text}");
        assert!(!text.contains("async"), "a kind of thread that did nothing: {text}");
    }

    #[test]
    fn each_answer_has_its_text() {
        let check = |answer: Answer, expect: &str| {
            let text = page(&verdict(answer), &View::PLAIN).replace("\n  ", " ");
            assert!(text.contains(expect), "{expect:?} is not in\n{text}");
        };
        check(Answer::Worse, "[-58, -31]    worse");
        check(Answer::Same, "[-58, -31]    no difference");
        check(Answer::Undecided, "8 pairs show no difference; a difference above 58 % is ruled out.");
        check(Answer::BelowDetectable, "too small to be shown on this machine");
        check(Answer::FalsePositive, "A differs from itself");
        check(Answer::TooManyInvalid, "too many invalid trials");
        check(Answer::Open, "beamtune study resume");
        check(
            Answer::Fails { arm: "B".to_owned(), why: "bad\u{1b}[0m flag".to_owned() },
            "B does not work: bad",
        );
    }

    #[test]
    fn quantity_other_than_the_objective_is_evaluated_by_its_interval() {
        let check = |estimate, low, high, expect: &str| {
            let ratio = Ratio { estimate, low, high, confidence: 0.95 };
            assert_eq!(by_interval(ratio, false), expect, "{ratio:?}");
        };
        check(0.9, 0.8, 0.99, "better");
        check(1.02, 1.015, 1.025, "worse");
        check(1.005, 1.003, 1.007, "no difference");
        check(1.01, 0.98, 1.02, "no difference");
        check(1.01, 0.9, 1.1, "no difference shown");
    }

    #[test]
    fn improvement_with_a_violated_constraint_is_no_gain() {
        let mut verdict = verdict(Answer::Better);
        verdict.guards[0].verdict = "broken";
        let text = page(&verdict, &View::PLAIN);
        assert!(text.contains("guard +10 % violated") && text.contains("B is not an improvement"), "{text}");
    }

    #[test]
    fn constraint_that_was_not_measured_is_reported() {
        let mut verdict = verdict(Answer::Better);
        verdict.guards[0].margin.quantity = "rss-peak".to_owned();
        verdict.guards[0].verdict = "not_measured";
        let text = page(&verdict, &View::PLAIN);
        assert!(text.contains("RSS peak: guard +10 % not measured"), "{text}");
    }

    #[test]
    fn common_unit_is_written_once() {
        assert_eq!(old_and_new("1.21 ms", "0.64 ms"), ("1.21".to_owned(), "0.64 ms".to_owned()));
        assert_eq!(old_and_new("0.95 ms", "1.20 s"), ("0.95 ms".to_owned(), "1.20 s".to_owned()));
        assert_eq!(old_and_new("1,300/s", "980/s"), ("1,300".to_owned(), "980/s".to_owned()));
        assert_eq!(old_and_new("3", "4"), ("3".to_owned(), "4".to_owned()));
    }

    #[test]
    fn times_have_three_digits() {
        let check = |nanoseconds, expect: &str| assert_eq!(value("p99", nanoseconds), expect);
        check(950.0, "0.95 µs");
        check(81_234.0, "81.2 µs");
        check(2_049_000.0, "2.05 ms");
        check(1.5e9, "1.50 s");
    }
}
