//! From what the rules say of the target as it is to what a search tries first.

use beamtune_flags::parse_emu_args;
use beamtune_model::study::{Advised, CPU, CPU_PER_REQUEST, CPU_TIME, Knob, Quantity, RSS, RSS_PEAK};
use beamtune_model::{Diagnosis, Finding, Outcome, Remedy};

/// What a finding of the lowest severity is expected to change, as the logarithm of a ratio …
const LEAST_EFFECT: f64 = 0.02;
/// … and by how much more one of the highest (judgement; the search believes no more of it than trials show).
const MOST_EFFECT: f64 = 0.20;

/// What is tried early for CPU time whatever is found: it costs idle schedulers most of it, on many loads (docs/known-truths.md).
const USUAL: &str = "+sbwt none";
/// The objectives that it is for.
const FOR_CPU: [Quantity; 3] = [CPU_PER_REQUEST, CPU, CPU_TIME];

/// What is advised for an objective. Remedies of which no knob knows become knobs. `is_for_memory` tells rules by their codes: what
/// they advise is for resident memory, and what others do for all else.
pub fn advice(
    diagnosis: &Diagnosis,
    objective: &str,
    rss_bytes: Option<f64>,
    is_for_memory: impl Fn(&str) -> bool,
    knobs: &mut Vec<Knob>,
) -> Vec<Advised> {
    let wants_memory = [RSS.name, RSS_PEAK.name].contains(&objective);
    let mut advice: Vec<Advised> = Vec::new();
    let found = diagnosis.verdicts.iter().filter_map(|verdict| match &verdict.outcome {
        Outcome::Found(findings) => Some(findings),
        Outcome::Healthy(_) | Outcome::NotJudged { .. } => None,
    });
    for finding in found.flatten().filter(|finding| is_for_memory(finding.code.0) == wants_memory) {
        for remedy in &finding.remedies {
            let Some(words) = flags(remedy) else { continue };
            let (knob, level) = place(knobs, remedy, words);
            if advice.iter().all(|known| (known.knob, known.level) != (knob, level)) {
                let why = format!("{} {}", finding.code, finding.rule);
                advice.push(Advised { knob, level, effect: effect(finding, remedy, rss_bytes), why });
            }
        }
    }
    // No rule sees all of it: where a scheduler's next work is soon there, spinning looks like little.
    let words: Vec<String> = USUAL.split_whitespace().map(str::to_owned).collect();
    if FOR_CPU.iter().any(|quantity| quantity.name == objective)
        && let Some((knob, level)) = find(knobs, &words)
        && advice.iter().all(|known| known.knob != knob)
    {
        advice.push(Advised { knob, level, effect: -LEAST_EFFECT, why: "matters for most loads".to_owned() });
    }
    advice
}

/// A remedy's words, if it is nothing but emulator flags.
fn flags(remedy: &Remedy) -> Option<Vec<String>> {
    let words: Vec<String> = remedy.change.split_whitespace().map(str::to_owned).collect();
    let settings = parse_emu_args(&words);
    let of_flags: usize = settings.iter().map(|setting| 1 + usize::from(setting.value.is_some())).sum();
    let is_plain = words.first().is_some_and(|word| word.starts_with('+')) && of_flags == words.len();
    (is_plain && settings.iter().all(|setting| setting.entry.is_some())).then_some(words)
}

/// The knob and level that stand for a remedy's words.
fn place(knobs: &mut Vec<Knob>, remedy: &Remedy, words: Vec<String>) -> (usize, usize) {
    find(knobs, &words).unwrap_or_else(|| {
        knobs.push(Knob { name: remedy.entry.clone(), levels: vec![Vec::new(), words], ordered: false });
        (knobs.len() - 1, 1)
    })
}

/// The knob and level that set these words, if there are such.
fn find(knobs: &[Knob], words: &[String]) -> Option<(usize, usize)> {
    let levels = |(at, knob): (usize, &Knob)| {
        let level = knob.levels.iter().skip(1).position(|known| same(known, words))?;
        Some((at, level + 1))
    };
    knobs.iter().enumerate().find_map(levels)
}

/// Whether two lists of flags set the same, in whatever order; or the first sets more of a kind than the second, as a knob does for
/// `+sbwt none` where dirty schedulers busy wait as well.
fn same(known: &[String], wanted: &[String]) -> bool {
    let known = parse_emu_args(known);
    parse_emu_args(wanted)
        .iter()
        .all(|wanted| known.iter().any(|known| (&known.flag, &known.value) == (&wanted.flag, &wanted.value)))
}

fn effect(finding: &Finding, remedy: &Remedy, rss_bytes: Option<f64>) -> f64 {
    if let (Some(saves), Some(rss)) = (remedy.saves_bytes, rss_bytes)
        && saves < rss
    {
        return (1.0 - saves / rss).ln();
    }
    -(LEAST_EFFECT + MOST_EFFECT * finding.severity / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use beamtune_model::{Code, Verdict};

    fn finding(code: &'static str, score: f64, changes: &[(&str, Option<f64>)]) -> Verdict {
        let remedy = |(change, saves_bytes): &(&str, Option<f64>)| Remedy {
            entry: "+x".to_owned(),
            change: (*change).to_owned(),
            why: String::new(),
            risk: String::new(),
            releases: String::new(),
            at_run_time: false,
            prove: String::new(),
            saves_bytes: *saves_bytes,
        };
        let finding = Finding {
            remedies: changes.iter().map(remedy).collect(),
            rule: "rule",
            ..Finding::bare(Code(code), score)
        };
        Verdict { code: Code(code), rule: "rule", outcome: Outcome::Found(vec![finding]) }
    }

    fn asked(objective: &str) -> (Vec<Advised>, Vec<Knob>) {
        let diagnosis = Diagnosis {
            verdicts: vec![
                finding("BT001", 50.0, &[("+sbwt none", None), ("use fewer processes", None)]),
                finding("BT003", 20.0, &[("+zdbbl 8192", None)]),
                finding("BT024", 80.0, &[("+MBas aobf", Some(60.0))]),
            ],
            cpu: None,
        };
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<String>>();
        let knob = |name: &str, level: &str| Knob {
            name: name.to_owned(),
            levels: vec![Vec::new(), words(level)],
            ordered: false,
        };
        let mut knobs = vec![knob("busy wait", "+sbwt none +sbwtdcpu none"), knob("binaries", "+MBas aobf")];
        let advice = advice(&diagnosis, objective, Some(100.0), |code| code == "BT024", &mut knobs);
        (advice, knobs)
    }

    #[test]
    fn remedies_that_are_flags_become_advice_and_what_no_knob_knows_becomes_one() {
        let (advice, knobs) = asked("cpu-per-request");
        let told: Vec<_> =
            advice.iter().map(|advised| (advised.knob, advised.level, advised.why.as_str())).collect();
        assert_eq!(told, [(0, 1, "BT001 rule"), (2, 1, "BT003 rule")]);
        assert_eq!(knobs[2].levels[1].join(" "), "+zdbbl 8192");
        assert!((advice[0].effect + 0.12).abs() < 1e-9, "{}", advice[0].effect);
    }

    #[test]
    fn busy_waiting_is_tried_for_cpu_time_whatever_is_found() {
        let knob = Knob {
            name: "busy wait".to_owned(),
            levels: vec![Vec::new(), vec!["+sbwt".to_owned(), "none".to_owned()]],
            ordered: true,
        };
        let nothing = Diagnosis::default();
        let told =
            |objective: &str| advice(&nothing, objective, None, |_| false, &mut vec![knob.clone()]).len();
        assert_eq!((told("cpu-per-request"), told("p99"), told("rss")), (1, 0, 0));
    }

    #[test]
    fn what_gives_memory_back_is_advised_for_memory_with_its_estimate() {
        let (advice, knobs) = asked("rss");
        assert_eq!((advice.len(), knobs.len()), (1, 2));
        assert!((advice[0].effect - 0.4_f64.ln()).abs() < 1e-9, "{}", advice[0].effect);
    }
}
