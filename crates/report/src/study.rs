//! What a comparison has found out, as text: first the answer, then how well it is known, then everything that was measured.

use beamtune_model::Unit;
use beamtune_model::study::{
    Answer, GuardVerdict, InvalidKind, Quantity, QuantityEffect, Question, Ratio, Verdict,
};

use crate::table::{Align::*, Table};
use crate::text::{self, Style};

/// The whole text.
pub fn render(question: &Question, verdict: &Verdict, style: Style) -> String {
    let mut out = String::new();
    let mut line = |text: &str| {
        out.push_str(&text::wrap(text, style.width, "  "));
        out.push('\n');
    };
    for arm in [&question.a, &question.b] {
        line(&format!("{}: {}", text::clean(&arm.name), text::clean_words(&arm.describe())));
    }
    let answer = answer(question, verdict);
    out.push_str(&style.bold(&text::wrap(&answer, style.width, "  ")));
    out.push_str("\n\n");
    for sentence in
        [same(verdict), pairs(question, verdict), invalid(verdict)].into_iter().filter(|it| !it.is_empty())
    {
        out.push_str(&text::wrap(&sentence, style.width, "  "));
        out.push('\n');
    }
    let effects = effects(question, verdict, style);
    if !effects.is_empty() {
        out.push('\n');
        out.push_str(&effects);
    }
    out.push_str(&guards(&verdict.guards, style));
    out
}

/// What must not become worse, a line each.
pub(crate) fn guards(guards: &[GuardVerdict], style: Style) -> String {
    let line = |guard: &GuardVerdict| {
        let by = text::decimal(guard.margin.most * 100.0);
        let verdict = match guard.verdict {
            "kept" => "kept".to_owned(),
            "broken" => style.bold("broken"),
            "not_measured" => "was not measured".to_owned(),
            _ => "not known: more pairs would tell".to_owned(),
        };
        format!("guard: {} worse by less than {by} %: {verdict}\n", text::clean(&guard.margin.quantity))
    };
    guards.iter().map(line).collect()
}

/// The answer in one sentence.
fn answer(question: &Question, verdict: &Verdict) -> String {
    let objective = verdict.effects.iter().find(|effect| effect.quantity == question.objective);
    let what = Quantity::find(&question.objective).map_or("", |quantity| quantity.what).trim_end_matches('.');
    let effect = objective.and_then(|effect| effect.ratio).map(change).unwrap_or_default();
    let broken = verdict.guards.iter().any(|guard| guard.verdict == "broken");
    match &verdict.answer {
        Answer::Open => "Not decided yet: beamtune study resume goes on.".to_owned(),
        Answer::Better if broken => format!("{what}: {effect}. That is better, but a guard is broken: B is no gain."),
        Answer::Better => format!("{what}: {effect}. B is better."),
        Answer::Worse => format!("{what}: {effect}. B is worse."),
        Answer::Same => format!("{what}: {effect}. If there is a difference, it is too small to matter."),
        Answer::Undecided => {
            let most = objective.and_then(|effect| effect.ratio).map(|ratio| (1.0 - ratio.low).max(ratio.high - 1.0));
            let bound = most.map(|most| format!("; one of more than {} % is ruled out", text::decimal(most * 100.0)));
            format!(
                "{what}: {effect}. {} pairs do not tell whether there is a difference{}.",
                verdict.pairs,
                bound.unwrap_or_default()
            )
        }
        Answer::BelowDetectable => format!(
            "{what}: {effect}. That is less than this machine can show reliably, so nothing is concluded: use a quieter one, or a longer --for."
        ),
        Answer::MethodFindsWhatIsNot => {
            "A differs from itself: this machine, or the target, changes while it is measured. Nothing is concluded.".to_owned()
        }
        Answer::TooManyInvalid => "Too many trials do not count. Nothing is concluded.".to_owned(),
        Answer::Fails { arm, why } => {
            format!("{} does not work: {}", text::clean(arm), text::clean_words(why))
        }
    }
}

/// `54 % less [31 %, 58 %]`, or with an interval that has both signs `-1.2 % [-3.0 %, +0.8 %]`.
pub(crate) fn change(ratio: Ratio) -> String {
    format!("{} [{}, {}]", percent(ratio.estimate), percent(ratio.low), percent(ratio.high))
}

/// By how many percent a ratio differs from one.
pub fn percent(ratio: f64) -> String {
    let by = (ratio - 1.0) * 100.0;
    if by.abs() < 9.95 { format!("{by:+.1} %") } else { format!("{by:+.0} %") }
}

/// What A against itself has shown.
fn same(verdict: &Verdict) -> String {
    let Some(ratio) = verdict.same else {
        return format!("{} pairs of A with itself so far.", verdict.same_pairs);
    };
    let least = match verdict.detectable {
        Some(least) => format!(
            "with the pairs that were planned, it shows effects of {} % and more",
            text::decimal(least * 100.0)
        ),
        None => "what it can show cannot be told from them".to_owned(),
    };
    format!(
        "This machine: {} pairs of A with itself differ by {}; {least}.",
        verdict.same_pairs,
        change(ratio)
    )
}

fn pairs(question: &Question, verdict: &Verdict) -> String {
    if verdict.pairs == 0 {
        return String::new();
    }
    let objective = verdict.effects.iter().find(|effect| effect.quantity == question.objective);
    let level = objective.and_then(|effect| effect.ratio).map_or(String::new(), |ratio| {
        format!(
            "; the interval of what decides is one of {:.1} %, for the looks that were planned",
            ratio.confidence * 100.0
        )
    });
    format!("Compared: {} pairs, each in random order and with a fresh VM{level}.", verdict.pairs)
}

fn invalid(verdict: &Verdict) -> String {
    let mut parts: Vec<String> =
        verdict.invalid.iter().map(|(kind, count)| format!("{count} for {}", reason(*kind))).collect();
    if verdict.failed > 0 {
        parts.push(format!("{} in which the target failed", verdict.failed));
    }
    if parts.is_empty() { String::new() } else { format!("Trials that do not count: {}.", parts.join(", ")) }
}

fn reason(kind: InvalidKind) -> &'static str {
    match kind {
        InvalidKind::Interference => "others on this machine",
        InvalidKind::GeneratorBound => "a load generator at its limit",
        InvalidKind::NotSteady => "a target that was not steady",
        InvalidKind::Clock => "a clock that jumped",
        InvalidKind::NotMeasured => "what could not be measured",
    }
}

fn effects(question: &Question, verdict: &Verdict, style: Style) -> String {
    let mut table =
        Table::new(&[("", Left), ("A", Right), ("B", Right), ("B against A", Right), ("95 %", Left)]);
    // Of kinds of threads that did nothing, there is nothing to say.
    let is_idle =
        |effect: &&QuantityEffect| effect.quantity.contains('/') && effect.a == 0.0 && effect.b == 0.0;
    for QuantityEffect { quantity, a, b, ratio } in verdict.effects.iter().filter(|effect| !is_idle(effect)) {
        let mark = if *quantity == question.objective { " *" } else { "" };
        table.row([
            format!("{}{mark}", text::clean(quantity)),
            value(quantity, *a),
            value(quantity, *b),
            ratio.map_or(String::new(), |ratio| percent(ratio.estimate)),
            ratio.map_or(String::new(), |ratio| format!("{} to {}", percent(ratio.low), percent(ratio.high))),
        ]);
    }
    if table.is_empty() { String::new() } else { table.render(style) }
}

/// A measured value with its unit.
pub fn value(quantity: &str, value: f64) -> String {
    let name = quantity.split('/').next().unwrap_or(quantity);
    match Quantity::find(name).map(|quantity| quantity.unit) {
        Some(Unit::Nanoseconds) => time(value),
        Some(unit) => text::value(value, unit),
        None => text::decimal(value),
    }
}

/// A short time with three digits: a percentile that changes by five percent is to be seen.
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
    use beamtune_model::study::{Arm, GuardVerdict, Margin};

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
            most_pairs: 30,
        }
    }

    fn verdict(answer: Answer) -> Verdict {
        let ratio = Ratio { estimate: 0.46, low: 0.42, high: 0.69, confidence: 0.992 };
        Verdict {
            answer,
            same: Some(Ratio { estimate: 0.994, low: 0.935, high: 1.057, confidence: 0.969 }),
            same_pairs: 6,
            detectable: Some(0.071),
            pairs: 8,
            effects: vec![
                QuantityEffect {
                    quantity: "cpu-per-request".to_owned(),
                    a: 81_234.0,
                    b: 37_100.0,
                    ratio: Some(ratio),
                },
                QuantityEffect {
                    quantity: "cpu-per-request/scheduler".to_owned(),
                    a: 70_000.0,
                    b: 30_000.0,
                    ratio: Some(ratio),
                },
                QuantityEffect { quantity: "cpu-per-request/async".to_owned(), a: 0.0, b: 0.0, ratio: None },
                QuantityEffect { quantity: "errors".to_owned(), a: 0.0, b: 0.0, ratio: None },
            ],
            guards: vec![GuardVerdict {
                margin: Margin { quantity: "p99".to_owned(), most: 0.05 },
                verdict: "kept",
            }],
            invalid: [(InvalidKind::Interference, 3)].into(),
            failed: 0,
        }
    }

    #[test]
    fn the_answer_comes_first_and_then_how_well_it_is_known() {
        let text = render(&question(), &verdict(Answer::Better), Style::PLAIN);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[..3],
            [
                "A: as it is",
                "B: +sbwt none",
                "CPU time of the VM per correct response: -54 % [-58 %, -31 %]. B is better."
            ]
        );
        for part in [
            "6 pairs of A with itself differ by -0.6 % [-6.5 %, +5.7 %]",
            "effects of 7.1 % and more",
            "8 pairs, each in random order",
            "99.2 %",
            "3 for others on this machine",
            "81.2 µs",
            "guard: p99 worse by less than 5 %: kept",
        ] {
            assert!(text.replace("\n  ", " ").contains(part), "{part:?} is not in\n{text}");
        }
        assert!(!text.contains("/async"), "{text}");
    }

    #[test]
    fn every_answer_says_what_it_means() {
        let check = |answer: Answer, expect: &str| {
            let text = render(&question(), &verdict(answer), Style::PLAIN).replace("\n  ", " ");
            assert!(text.contains(expect), "{expect:?} is not in\n{text}");
        };
        check(Answer::Worse, "B is worse.");
        check(Answer::Same, "too small to matter");
        check(Answer::Undecided, "8 pairs do not tell whether there is a difference; one of more than");
        check(Answer::BelowDetectable, "nothing is concluded: use a quieter one");
        check(Answer::MethodFindsWhatIsNot, "A differs from itself");
        check(Answer::TooManyInvalid, "Too many trials do not count");
        check(Answer::Open, "beamtune study resume");
        check(
            Answer::Fails { arm: "B".to_owned(), why: "bad\u{1b}[0m flag".to_owned() },
            "B does not work: bad",
        );
    }

    #[test]
    fn a_gain_with_a_broken_guard_is_none() {
        let mut verdict = verdict(Answer::Better);
        verdict.guards[0].verdict = "broken";
        let text = render(&question(), &verdict, Style::PLAIN).replace("\n  ", " ");
        assert!(text.contains("a guard is broken: B is no gain"), "{text}");
    }

    #[test]
    fn times_are_told_with_three_digits() {
        let check = |nanoseconds, expect: &str| assert_eq!(value("p99", nanoseconds), expect);
        check(950.0, "0.95 µs");
        check(81_234.0, "81.2 µs");
        check(2_049_000.0, "2.05 ms");
        check(1.5e9, "1.50 s");
    }
}
