//! What a search for a setting has found out, as text: the setting first, then each of its parts, then how it was found.

use beamtune_model::study::{
    Ending, Finalist, Knob, Learnt, Part, Pays, Quantity, Trial, TrialOutcome, Tuning, TuningVerdict,
};

use crate::study::{change, guards, percent, value};
use crate::table::{Align::*, Table};
use crate::text::{self, Style};

/// Trials of the search that are shown, the best first.
const MOST_SHOWN: usize = 12;
/// Below this probability that all guards are kept, a level is said to break one.
const UNLIKELY: f64 = 0.5;

/// The whole text.
pub fn render(tuning: &Tuning, verdict: &TuningVerdict, trials: &[Trial], style: Style) -> String {
    let mut out = format!("{}\n\n", style.bold(&text::wrap(&headline(tuning, verdict), style.width, "  ")));
    if let Some(gain) = verdict.gain.as_ref().filter(|_| verdict.ending == Some(Ending::Found)) {
        out.push_str(&guards(&gain.guards, style));
        out.push('\n');
    }
    let parts = parts(tuning, verdict, style);
    if !parts.is_empty() {
        out.push_str(&parts);
        out.push('\n');
    }
    let finalists = finalists(tuning, verdict, style);
    if !finalists.is_empty() {
        out.push_str(&finalists);
        out.push('\n');
    }
    let learnt = learnt(tuning, verdict, style);
    if !learnt.is_empty() {
        out.push_str(&learnt);
        out.push('\n');
    }
    out.push_str(&tried(tuning, verdict, trials, style));
    out
}

/// The answer in one sentence.
fn headline(tuning: &Tuning, verdict: &TuningVerdict) -> String {
    let what = Quantity::find(&tuning.objective).map_or("", |quantity| quantity.what).trim_end_matches('.');
    let winner = verdict.winner.and_then(|winner| verdict.finalists.get(winner));
    match &verdict.ending {
        None => "Not decided yet: beamtune study resume goes on.".to_owned(),
        Some(Ending::Found) if verdict.flags.is_empty() => {
            "No flag at all: no part of what was found pays by itself.".to_owned()
        }
        Some(Ending::Found) => {
            let flags = text::clean_words(&verdict.flags.join(" "));
            match &verdict.gain {
                Some(gain) => format!(
                    "{flags}\n{what}: {}, from {} pairs of fresh trials{}. Another {} pairs should find {} to {}.",
                    change(gain.ratio),
                    gain.pairs,
                    if gain.has_chosen_it { ", which have chosen it, so it may be a little less" } else { "" },
                    gain.again_pairs,
                    percent(gain.again.low),
                    percent(gain.again.high)
                ),
                None => {
                    let gain = winner.and_then(|winner| winner.ratio).map(change).unwrap_or_default();
                    format!(
                        "{flags}\n{what}: with what was left out {gain}; without it, neither that nor the guards were tried."
                    )
                }
            }
        }
        Some(Ending::NothingBetter) => {
            "No setting that was tried is believed to be better than the target as it is.".to_owned()
        }
        Some(Ending::NotConfirmed) => {
            "What looked better in the search is not shown to be on fresh trials, or breaks a guard: nothing is advised.".to_owned()
        }
        Some(Ending::MethodFindsWhatIsNot) => {
            "The target differs from itself: this machine, or the target, changes while it is measured. Nothing is concluded.".to_owned()
        }
        Some(Ending::TooManyInvalid) => "Too many trials do not count. Nothing is concluded.".to_owned(),
        Some(Ending::Fails { why }) => format!("The target does not work as it is: {}", text::clean_words(why)),
        Some(Ending::TooFewTrials { least }) => {
            format!("Too little time to conclude anything: {least} trials are the least.")
        }
    }
}

fn parts(tuning: &Tuning, verdict: &TuningVerdict, style: Style) -> String {
    let mut table = Table::new(&[("part", Left), ("flags", Left), ("with it", Left), ("", Left)]);
    for Part { knob, level, ratio, pays } in &verdict.parts {
        let Some(of) = tuning.knobs.get(*knob) else { continue };
        let says = match pays {
            Pays::Yes => "pays",
            Pays::No => "does not pay: left out",
            Pays::Unknown => "undecided: kept",
        };
        let told = ratio.map_or_else(|| "not tried by itself".to_owned(), change);
        table.row([text::clean(&of.name), text::clean_words(&of.level(*level)), told, says.to_owned()]);
    }
    if table.is_empty() { String::new() } else { table.render(style) }
}

fn finalists(tuning: &Tuning, verdict: &TuningVerdict, style: Style) -> String {
    let mut table =
        Table::new(&[("confirmed on fresh trials", Left), (tuning.objective.as_str(), Left), ("", Left)]);
    for Finalist { point, ratio, is_better, broken, .. } in &verdict.finalists {
        let says = match (is_better, broken.as_slice()) {
            (true, []) => "better".to_owned(),
            (true, broken) => format!("breaks the guard of {}", text::clean_words(&broken.join(", "))),
            (false, _) => "not shown to be better".to_owned(),
        };
        let told = ratio.map(change).unwrap_or_default();
        table.row([setting(&tuning.knobs, point), told, says]);
    }
    if table.is_empty() { String::new() } else { table.render(style) }
}

/// What the search has learnt of each level, the best first.
fn learnt(tuning: &Tuning, verdict: &TuningVerdict, style: Style) -> String {
    let more = is_more_better(tuning);
    let mut rows: Vec<&Learnt> = verdict.levels.iter().collect();
    let worth = |learnt: &Learnt| match learnt.effect {
        Some(ratio) if more => -ratio.estimate,
        Some(ratio) => ratio.estimate,
        None => f64::INFINITY,
    };
    rows.sort_by(|a, b| worth(a).total_cmp(&worth(b)));
    let mut table = Table::new(&[
        ("what the search has learnt of each flag alone", Left),
        ("trials", Right),
        (tuning.objective.as_str(), Left),
        ("", Left),
    ]);
    for learnt in rows {
        let Some(knob) = tuning.knobs.get(learnt.knob) else { continue };
        table.row([
            text::clean_words(&knob.level(learnt.level)),
            learnt.trials.to_string(),
            learnt.effect.map(change).unwrap_or_default(),
            says(learnt, more).to_owned(),
        ]);
    }
    if table.is_empty() { String::new() } else { table.render(style) }
}

/// What follows from what was learnt of a level.
fn says(learnt: &Learnt, more_is_better: bool) -> &'static str {
    let Some(ratio) = learnt.effect else {
        return if learnt.is_fatal {
            "never tried: a VM does not start with it"
        } else {
            "the target does not work with it"
        };
    };
    let (is_better, is_worse) = match more_is_better {
        true => (ratio.low > 1.0, ratio.high < 1.0),
        false => (ratio.high < 1.0, ratio.low > 1.0),
    };
    match () {
        () if is_worse => "worse",
        () if learnt.within_guards < UNLIKELY => "may break a guard",
        () if is_better => "better",
        () => "no effect that can be told",
    }
}

fn is_more_better(tuning: &Tuning) -> bool {
    Quantity::find(&tuning.objective).is_some_and(|quantity| quantity.more_is_better)
}

/// All that was tried, the best first.
fn tried(tuning: &Tuning, verdict: &TuningVerdict, trials: &[Trial], style: Style) -> String {
    let mut rows: Vec<(f64, [String; 5])> = Vec::new();
    let mut failed = 0;
    for (at, trial) in trials.iter().enumerate() {
        match &trial.outcome {
            TrialOutcome::Valid { measures } => {
                let Some(found) = measures.get(&tuning.objective) else { continue };
                let told =
                    |name: &str| measures.get(name).map_or_else(String::new, |found| value(name, found));
                let row = [
                    setting(&tuning.knobs, &trial.order.point),
                    told(&tuning.objective),
                    told("p99"),
                    told("rss"),
                    if verdict.front.contains(&at) { "front".to_owned() } else { String::new() },
                ];
                rows.push((if is_more_better(tuning) { -found } else { found }, row));
            }
            TrialOutcome::Failed { .. } => failed += 1,
            TrialOutcome::Invalid { .. } => {}
        }
    }
    rows.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut table = Table::new(&[
        ("single trials, best first", Left),
        (tuning.objective.as_str(), Right),
        ("p99", Right),
        ("rss", Right),
        ("", Left),
    ]);
    let all = rows.len();
    let shown = |(place, (_, row)): &(usize, (f64, [String; 5]))| *place < MOST_SHOWN || row[4] == "front";
    let rows: Vec<_> = rows.into_iter().enumerate().filter(shown).collect();
    let left = all - rows.len();
    rows.into_iter().for_each(|(_, (_, row))| table.row(row));
    let mut out = if table.is_empty() { String::new() } else { table.render(style) };
    if left > 0 {
        out.push_str(&format!("and {left} more (beamtune study export)\n"));
    }
    if !verdict.front.is_empty() {
        let note = "Single trials decide nothing: the best of many looks better than it is. front: no other trial of the search is better in CPU, p99 and memory at once.";
        out.push_str(&text::wrap(note, style.width, ""));
        out.push('\n');
    }
    if failed > 0 {
        out.push_str(&format!("{failed} trials in which the target did not work\n"));
    }
    out
}

/// What a point sets, for people.
fn setting(knobs: &[Knob], point: &[usize]) -> String {
    let set = knobs.iter().zip(point).filter(|(_, level)| **level > 0);
    let flags: Vec<String> = set.map(|(knob, level)| knob.level(*level)).collect();
    if flags.is_empty() { "as it is".to_owned() } else { text::clean_words(&flags.join(" ")) }
}

/// What is written above a flag of the winner in its file.
pub fn comment(part: &Part, knob: &Knob, objective: &str, circumstances: &str) -> String {
    let told = match (part.ratio, part.pays) {
        (Some(ratio), Pays::Yes) => format!("{objective} {}", change(ratio)),
        (Some(ratio), _) => format!("{objective} {}, undecided", change(ratio)),
        (None, _) => "its own effect was not tried".to_owned(),
    };
    format!("{}: {told}; {circumstances}", knob.name)
}
