//! The result of a search for flags as text: the setting with its measured effect, a row per part of it, and what was tried. With `-v` also
//! all candidates and trials.

use beamtune_model::study::{
    Finalist, Knob, LevelResult, PartVerdict, Quantity, SettingPart, Trial, TrialOutcome, Tuning,
    TuningOutcome, TuningVerdict,
};

use crate::diagnosis::{Verbosity, View};
use crate::study::{Circumstances, change, guards, label, percent, value};
use crate::table::{Align::*, Table};
use crate::text::{self, Style};

/// If the probability that all constraints are kept is lower, a level is reported as possibly violating one.
const UNLIKELY: f64 = 0.5;

/// Renders the result of a search.
pub fn render(
    tuning: &Tuning,
    verdict: &TuningVerdict,
    trials: &[Trial],
    run: Circumstances<'_>,
    view: &View<'_>,
) -> String {
    let style = view.style;
    let heading = format!(
        "{} · {} trials in {} · {}",
        label(&tuning.objective),
        trials.len(),
        text::seconds(run.took_s),
        text::clean_words(run.load)
    );
    let mut sections = vec![
        style.bold(&text::wrap(&heading, style.width, "  ")) + "\n",
        format!("{}{}", answer(tuning, verdict, style), parts(tuning, verdict, style)),
        summary(tuning, verdict, trials, style),
    ];
    if view.verbosity > Verbosity::Brief {
        sections.extend([
            finalists(tuning, verdict, style),
            learnt(tuning, verdict, style),
            tried(tuning, verdict, trials, style),
        ]);
    }
    sections.retain(|section| !section.is_empty());
    sections.join("\n")
}

/// Renders the setting and its measured effect, or why no setting is recommended.
fn answer(tuning: &Tuning, verdict: &TuningVerdict, style: Style) -> String {
    let wrapped = |words: &str| format!("{}\n", text::wrap(words, style.width, "  "));
    let none = |words: &str| style.bold(text::wrap(words, style.width, "  ").as_str()) + "\n";
    let winner = verdict.winner.and_then(|winner| verdict.finalists.get(winner));
    match &verdict.ending {
        None => none("Not finished: continue with beamtune study resume FILE."),
        Some(TuningOutcome::Found) if verdict.flags.is_empty() => {
            none("No improvement: no part of the best setting helps alone.")
        }
        Some(TuningOutcome::Found) => {
            let flags =
                style.bold(&text::wrap(&text::clean_words(&verdict.flags.join(" ")), style.width, "  "));
            let proof = match &verdict.gain {
                Some(gain) => {
                    let guards = guards(&gain.guards);
                    let guards = if guards.is_empty() { guards } else { format!("; {guards}") };
                    let bias = match gain.selected_by_same_trials {
                        true => ", which were also used to select it, so the true effect may be smaller",
                        false => "",
                    };
                    format!(
                        "{} {} in {} pairs of new trials{bias}{guards}. A replication with {} pairs should find {} to {}.",
                        label(&tuning.objective),
                        change(gain.ratio),
                        gain.pairs,
                        gain.again_pairs,
                        percent(gain.repeat_interval.low),
                        percent(gain.repeat_interval.high)
                    )
                }
                None => format!(
                    "{} {} with parts that were removed later; the remaining setting was not tried alone, and guards were not tested for it.",
                    label(&tuning.objective),
                    winner.and_then(|winner| winner.ratio).map(change).unwrap_or_default()
                ),
            };
            format!("{flags}\n{}", wrapped(&proof))
        }
        Some(TuningOutcome::NothingBetter) => none("No tried setting is better than the unchanged target."),
        Some(TuningOutcome::NotConfirmed) => {
            none("No improvement: no candidate was better in new trials without violating a guard.")
        }
        Some(TuningOutcome::MethodFindsWhatIsNot) => none(
            "No verdict: the target differs from itself; the machine or the target changed during the study.",
        ),
        Some(TuningOutcome::TooManyInvalid) => none("No verdict: too many invalid trials."),
        Some(TuningOutcome::Fails { why }) => {
            none(&format!("The target does not work: {}", text::clean_words(why)))
        }
        Some(TuningOutcome::TooFewTrials { min_trials: least }) => {
            none(&format!("No verdict: too few trials. At least {least} are needed; raise --budget."))
        }
    }
}

/// Renders the lines for vm.args, each with its measured effect.
fn parts(tuning: &Tuning, verdict: &TuningVerdict, style: Style) -> String {
    let mut table = Table::new(&[("", Left), ("", Right), ("", Left)]);
    for SettingPart { knob, level, ratio, verdict: pays } in &verdict.parts {
        let Some(of) = tuning.knobs.get(*knob) else { continue };
        let words = match pays {
            PartVerdict::Yes => "better",
            PartVerdict::No => "no difference, removed",
            PartVerdict::Unknown => "no difference shown, kept",
        };
        let proof = ratio.map_or_else(|| "not tried alone".to_owned(), change);
        table.row([format!("  {}", text::clean_words(&of.level(*level))), proof, words.to_owned()]);
    }
    table.body(style)
}

/// Renders which flags were tried, one line per kind of result.
fn summary(tuning: &Tuning, verdict: &TuningVerdict, trials: &[Trial], style: Style) -> String {
    let more = is_more_better(tuning);
    let is_in_result = |learnt: &&LevelResult| verdict.point.get(learnt.knob) == Some(&learnt.level);
    let mut table = Table::new(&[("", Left), ("", Left)]);
    for result in
        [Found::Better, Found::Unknown, Found::Worse, Found::BreaksGuard, Found::Fails, Found::Fatal]
    {
        let of_result =
            verdict.levels.iter().filter(|learnt| !is_in_result(learnt) && found(learnt, more) == result);
        let flags: Vec<String> = of_result
            .filter_map(|learnt| Some(text::clean_words(&tuning.knobs.get(learnt.knob)?.level(learnt.level))))
            .collect();
        if !flags.is_empty() {
            table.row([result.text().to_owned(), flags.join(", ")]);
        }
    }
    let failed = trials.iter().filter(|trial| matches!(trial.outcome, TrialOutcome::Failed { .. })).count();
    let failed = match failed {
        0 => String::new(),
        1 => "The target failed in 1 trial.\n".to_owned(),
        failed => format!("The target failed in {failed} trials.\n"),
    };
    match table.is_empty() {
        true => failed,
        false => {
            format!("Also tried, each flag alone (estimates from the search):\n{}{failed}", table.body(style))
        }
    }
}

fn finalists(tuning: &Tuning, verdict: &TuningVerdict, style: Style) -> String {
    let mut table =
        Table::new(&[("candidate in new trials", Left), (tuning.objective.as_str(), Right), ("", Left)]);
    for Finalist { point, ratio, is_better, broken, .. } in &verdict.finalists {
        let words = match (is_better, broken.as_slice()) {
            (true, []) => "better".to_owned(),
            (true, broken) => format!("violates a guard: {}", text::clean_words(&broken.join(", "))),
            (false, _) => "no difference shown".to_owned(),
        };
        table.row([setting(&tuning.knobs, point), ratio.map(change).unwrap_or_default(), words]);
    }
    table.render(style)
}

/// Renders the result of the search for each level, the best first.
fn learnt(tuning: &Tuning, verdict: &TuningVerdict, style: Style) -> String {
    let more = is_more_better(tuning);
    let mut rows: Vec<&LevelResult> = verdict.levels.iter().collect();
    let worth = |learnt: &LevelResult| match learnt.effect {
        Some(ratio) if more => -ratio.estimate,
        Some(ratio) => ratio.estimate,
        None => f64::INFINITY,
    };
    rows.sort_by(|a, b| worth(a).total_cmp(&worth(b)));
    let mut table = Table::new(&[
        ("flag alone, estimated", Left),
        ("trials", Right),
        (tuning.objective.as_str(), Right),
        ("", Left),
    ]);
    for learnt in rows {
        let Some(knob) = tuning.knobs.get(learnt.knob) else { continue };
        table.row([
            text::clean_words(&knob.level(learnt.level)),
            learnt.trials.to_string(),
            learnt.effect.map(change).unwrap_or_default(),
            found(learnt, more).text().to_owned(),
        ]);
    }
    table.render(style)
}

/// Result of the search for a level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Better,
    Worse,
    Unknown,
    BreaksGuard,
    Fails,
    Fatal,
}

impl Found {
    fn text(self) -> &'static str {
        match self {
            Found::Better => "better",
            Found::Worse => "worse",
            Found::Unknown => "no difference shown",
            Found::BreaksGuard => "may violate a guard",
            Found::Fails => "the target fails",
            Found::Fatal => "the VM does not start",
        }
    }
}

fn found(learnt: &LevelResult, more_is_better: bool) -> Found {
    let Some(ratio) = learnt.effect else {
        return if learnt.is_fatal { Found::Fatal } else { Found::Fails };
    };
    let (is_better, is_worse) = match more_is_better {
        true => (ratio.low > 1.0, ratio.high < 1.0),
        false => (ratio.high < 1.0, ratio.low > 1.0),
    };
    match () {
        () if is_worse => Found::Worse,
        () if learnt.within_guards < UNLIKELY => Found::BreaksGuard,
        () if is_better => Found::Better,
        () => Found::Unknown,
    }
}

fn is_more_better(tuning: &Tuning) -> bool {
    Quantity::find(&tuning.objective).is_some_and(|quantity| quantity.more_is_better)
}

/// Renders all trials, the best first.
fn tried(tuning: &Tuning, verdict: &TuningVerdict, trials: &[Trial], style: Style) -> String {
    let mut rows: Vec<(f64, [String; 5])> = Vec::new();
    for (at, trial) in trials.iter().enumerate() {
        let TrialOutcome::Valid { measures } = &trial.outcome else { continue };
        let Some(measured) = measures.get(&tuning.objective) else { continue };
        let cell = |name: &str| measures.get(name).map_or_else(String::new, |found| value(name, found));
        let row = [
            setting(&tuning.knobs, &trial.order.point),
            cell(&tuning.objective),
            cell("p99"),
            cell("rss"),
            if verdict.pareto_front.contains(&at) { "front".to_owned() } else { String::new() },
        ];
        rows.push((if is_more_better(tuning) { -measured } else { measured }, row));
    }
    rows.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut table = Table::new(&[
        ("single trials, best first", Left),
        (tuning.objective.as_str(), Right),
        ("p99", Right),
        ("rss", Right),
        ("", Left),
    ]);
    rows.into_iter().for_each(|(_, row)| table.row(row));
    let mut out = table.render(style);
    if !verdict.pareto_front.is_empty() {
        let note = "Do not rely on single trials: the best of many looks better than it is. front: no other trial is better in all of CPU, p99 and memory (Pareto front).";
        out.push_str(&text::wrap(note, style.width, ""));
        out.push('\n');
    }
    out
}

/// Formats the flags of a point, which is the level of each knob.
fn setting(knobs: &[Knob], point: &[usize]) -> String {
    let set = knobs.iter().zip(point).filter(|(_, level)| **level > 0);
    let flags: Vec<String> = set.map(|(knob, level)| knob.level(*level)).collect();
    if flags.is_empty() { "unchanged".to_owned() } else { text::clean_words(&flags.join(" ")) }
}

/// Returns the comment on a flag in the new vm.args.
pub fn comment(part: &SettingPart, knob: &Knob, objective: &str, circumstances: &str) -> String {
    let proof = match (part.ratio, part.verdict) {
        (Some(ratio), PartVerdict::Yes) => format!("{objective} {}", change(ratio)),
        (Some(ratio), _) => format!("{objective} {}, undecided", change(ratio)),
        (None, _) => "not tried alone".to_owned(),
    };
    format!("{}: {proof}; {circumstances}", knob.name)
}

#[cfg(test)]
mod tests {
    use beamtune_model::study::{GuardVerdict, Margin, Ratio, SettingEffect};

    use super::*;

    fn ratio(estimate: f64, low: f64, high: f64) -> Ratio {
        Ratio { estimate, low, high, confidence: 0.95 }
    }

    fn tuning() -> Tuning {
        let knob = |name: &str, levels: &[&str]| Knob {
            name: name.to_owned(),
            levels: [""]
                .iter()
                .chain(levels)
                .map(|text| text.split_whitespace().map(str::to_owned).collect())
                .collect(),
            ordered: false,
        };
        Tuning {
            seed: 1,
            objective: "cpu-per-request".to_owned(),
            guards: Vec::new(),
            knobs: vec![
                knob("busy wait", &["+sbwt none +sbwtdcpu none"]),
                knob("full sweeps", &["-env ERL_FULLSWEEP_AFTER 5"]),
                knob("schedulers", &["+S 1:1", "+S 4:4"]),
            ],
            advice: Vec::new(),
            fatal: Vec::new(),
            trials: 64,
        }
    }

    fn learnt(knob: usize, level: usize, effect: Option<Ratio>) -> LevelResult {
        LevelResult { knob, level, trials: 4, failed: 0, effect, within_guards: 0.9, is_fatal: false }
    }

    fn verdict() -> TuningVerdict {
        let guard = |quantity: &str| GuardVerdict {
            margin: Margin { quantity: quantity.to_owned(), max: 0.1 },
            verdict: "kept",
        };
        TuningVerdict {
            ending: Some(TuningOutcome::Found),
            parts: vec![
                SettingPart {
                    knob: 0,
                    level: 1,
                    ratio: Some(ratio(0.6, 0.5, 0.7)),
                    verdict: PartVerdict::Yes,
                },
                SettingPart {
                    knob: 1,
                    level: 1,
                    ratio: Some(ratio(0.97, 0.92, 1.02)),
                    verdict: PartVerdict::Unknown,
                },
            ],
            point: vec![1, 1, 0],
            flags: "+sbwt none +sbwtdcpu none -env ERL_FULLSWEEP_AFTER 5"
                .split(' ')
                .map(str::to_owned)
                .collect(),
            gain: Some(SettingEffect {
                ratio: ratio(0.58, 0.53, 0.64),
                pairs: 12,
                selected_by_same_trials: false,
                repeat_interval: ratio(0.58, 0.5, 0.67),
                again_pairs: 8,
                guards: vec![guard("p99"), guard("rss")],
            }),
            levels: vec![
                learnt(0, 1, Some(ratio(0.6, 0.5, 0.7))),
                learnt(2, 1, Some(ratio(1.3, 1.2, 1.4))),
                learnt(2, 2, None),
            ],
            ..TuningVerdict::default()
        }
    }

    fn page(verdict: &TuningVerdict, verbosity: Verbosity) -> String {
        let run = Circumstances { load: "load http://x/", took_s: 2_700.0 };
        render(&tuning(), verdict, &[], run, &View { verbosity, ..View::PLAIN })
    }

    #[test]
    fn page_has_each_flag_with_its_effect_and_what_was_tried() {
        let expect = "\
CPU per request · 0 trials in 45 min · load http://x/

+sbwt none +sbwtdcpu none -env ERL_FULLSWEEP_AFTER 5
CPU per request -42 % [-47, -36] in 12 pairs of new trials; p99: guard +10 % kept, RSS: guard +10 %
  kept. A replication with 8 pairs should find -50 % to -33 %.
  +sbwt none +sbwtdcpu none      -40 % [-50, -30]  better
  -env ERL_FULLSWEEP_AFTER 5  -3.0 % [-8.0, +2.0]  no difference shown, kept

Also tried, each flag alone (estimates from the search):
worse             +S 1:1
the target fails  +S 4:4
";
        let text = page(&verdict(), Verbosity::Brief);
        assert_eq!(text, expect, "{text}");
        let verbose = page(&verdict(), Verbosity::Evidence);
        assert!(verbose.contains("flag alone, estimated"), "{verbose}");
    }

    #[test]
    fn search_without_a_result_has_a_reason() {
        let check = |ending: Option<TuningOutcome>, expect: &str| {
            let text = page(&TuningVerdict { ending, ..TuningVerdict::default() }, Verbosity::Brief);
            assert!(text.contains(expect), "{expect:?} is not in\n{text}");
        };
        check(None, "Not finished");
        check(Some(TuningOutcome::Found), "No improvement: no part");
        check(Some(TuningOutcome::NothingBetter), "No tried setting is better");
        check(Some(TuningOutcome::NotConfirmed), "No improvement: no candidate");
        check(Some(TuningOutcome::MethodFindsWhatIsNot), "differs from itself");
        check(Some(TuningOutcome::TooManyInvalid), "too many invalid trials");
        check(Some(TuningOutcome::Fails { why: "no port".to_owned() }), "The target does not work: no port");
        check(Some(TuningOutcome::TooFewTrials { min_trials: 40 }), "At least 40 are needed");
    }
}
