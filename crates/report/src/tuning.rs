//! What a search for a setting has found out, as text: the setting first, then each of its parts, then how it was found.

use beamtune_model::study::{
    Ending, Finalist, Knob, Part, Pays, Quantity, Trial, TrialOutcome, Tuning, TuningVerdict,
};

use crate::study::{change, value};
use crate::table::{Align::*, Table};
use crate::text::{self, Style};

/// Trials of the search that are shown, the best first.
const MOST_SHOWN: usize = 12;

/// The whole text.
pub fn render(tuning: &Tuning, verdict: &TuningVerdict, trials: &[Trial], style: Style) -> String {
    let mut out = format!("{}\n\n", style.bold(&text::wrap(&headline(tuning, verdict), style.width, "  ")));
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
    out.push_str(&tried(tuning, trials, style));
    out
}

/// The answer in one sentence.
fn headline(tuning: &Tuning, verdict: &TuningVerdict) -> String {
    let what = Quantity::find(&tuning.objective).map_or("", |quantity| quantity.what).trim_end_matches('.');
    let best = verdict.finalists.iter().find(|finalist| finalist.is_better && finalist.broken.is_empty());
    match &verdict.ending {
        None => "Not decided yet: beamtune study resume goes on.".to_owned(),
        Some(Ending::Found) => {
            let gain = best.and_then(|best| best.ratio).map(change).unwrap_or_default();
            let flags = text::clean_words(&verdict.flags.join(" "));
            let flags = if flags.is_empty() { "no flag at all: no part of what was found pays by itself".to_owned() } else { flags };
            format!("{flags}\n{what}: {gain}.")
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

/// All that was tried, the best first.
fn tried(tuning: &Tuning, trials: &[Trial], style: Style) -> String {
    let mut rows: Vec<(f64, [String; 4])> = Vec::new();
    let mut failed = 0;
    for trial in trials {
        match &trial.outcome {
            TrialOutcome::Valid { measures } => {
                let Some(found) = measures.get(&tuning.objective) else { continue };
                let more = Quantity::find(&tuning.objective).is_some_and(|quantity| quantity.more_is_better);
                let told =
                    |name: &str| measures.get(name).map_or_else(String::new, |found| value(name, found));
                let row = [
                    setting(&tuning.knobs, &trial.order.point),
                    told(&tuning.objective),
                    told("p99"),
                    told("rss"),
                ];
                rows.push((if more { -found } else { found }, row));
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
    ]);
    let all = rows.len();
    rows.into_iter().take(MOST_SHOWN).for_each(|(_, row)| table.row(row));
    let mut out = if table.is_empty() { String::new() } else { table.render(style) };
    if all > MOST_SHOWN {
        out.push_str(&format!(
            "and {} more; single trials decide nothing: the best of many looks better than it is\n",
            all - MOST_SHOWN
        ));
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
