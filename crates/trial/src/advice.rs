//! Derives the first candidates of a search from the findings about the unchanged target.

use beamtune_flags::parse_emu_args;
use beamtune_model::study::{AdvisedLevel, CPU, CPU_PER_REQUEST, CPU_TIME, Knob, Quantity, RSS, RSS_PEAK};
use beamtune_model::{Diagnosis, Finding, Outcome, Remedy};

/// Expected effect of a remedy for a finding of severity 0, as the logarithm of a ratio.
const MIN_EFFECT: f64 = 0.02;
/// Increase of the expected effect for severity 100 (chosen by judgement; the trials of the search correct it).
const EFFECT_OF_SEVERITY: f64 = 0.20;

/// Flags that are tried early for objectives of CPU time even without a finding. On many loads, the busy wait of idle schedulers takes
/// most of the CPU time (docs/known-truths.md).
const DEFAULT_ADVICE: &str = "+sbwt none";
/// The objectives for which [`DEFAULT_ADVICE`] is tried.
const CPU_OBJECTIVES: [Quantity; 3] = [CPU_PER_REQUEST, CPU, CPU_TIME];

/// Returns the advice for an objective, from the remedies of all findings. For a remedy without a matching knob, a knob is added.
/// `is_for_memory` must return true for the codes of rules whose remedies reduce resident memory; all other remedies are used for the
/// other objectives.
pub fn advice(
    diagnosis: &Diagnosis,
    objective: &str,
    rss_bytes: Option<f64>,
    is_for_memory: impl Fn(&str) -> bool,
    knobs: &mut Vec<Knob>,
) -> Vec<AdvisedLevel> {
    let wants_memory = [RSS.name, RSS_PEAK.name].contains(&objective);
    let mut advice: Vec<AdvisedLevel> = Vec::new();
    let found = diagnosis.verdicts.iter().filter_map(|verdict| match &verdict.outcome {
        Outcome::Found(findings) => Some(findings),
        Outcome::Healthy(_) | Outcome::NotJudged { .. } => None,
    });
    for finding in found.flatten().filter(|finding| is_for_memory(finding.code.0) == wants_memory) {
        for remedy in &finding.remedies {
            let Some(words) = flags(remedy) else { continue };
            let (knob, level) = find_or_add(knobs, remedy, words);
            if advice.iter().all(|known| (known.knob, known.level) != (knob, level)) {
                let why = format!("{} {}", finding.code, finding.rule);
                advice.push(AdvisedLevel { knob, level, effect: effect(finding, remedy, rss_bytes), why });
            }
        }
    }
    // The rules underestimate busy waiting if work arrives at short intervals.
    let words: Vec<String> = DEFAULT_ADVICE.split_whitespace().map(str::to_owned).collect();
    if CPU_OBJECTIVES.iter().any(|quantity| quantity.name == objective)
        && let Some((knob, level)) = find(knobs, &words)
        && advice.iter().all(|known| known.knob != knob)
    {
        advice.push(AdvisedLevel {
            knob,
            level,
            effect: -MIN_EFFECT,
            why: "effective on most loads".to_owned(),
        });
    }
    advice
}

/// Returns the words of a remedy if it consists only of known emulator flags.
fn flags(remedy: &Remedy) -> Option<Vec<String>> {
    let words: Vec<String> = remedy.change.split_whitespace().map(str::to_owned).collect();
    let settings = parse_emu_args(&words);
    let flag_words: usize = settings.iter().map(|setting| 1 + usize::from(setting.value.is_some())).sum();
    let is_plain = words.first().is_some_and(|word| word.starts_with('+')) && flag_words == words.len();
    (is_plain && settings.iter().all(|setting| setting.entry.is_some())).then_some(words)
}

/// Returns the knob and level of a remedy; adds a knob if none matches.
fn find_or_add(knobs: &mut Vec<Knob>, remedy: &Remedy, words: Vec<String>) -> (usize, usize) {
    find(knobs, &words).unwrap_or_else(|| {
        knobs.push(Knob { name: remedy.entry.clone(), levels: vec![Vec::new(), words], ordered: false });
        (knobs.len() - 1, 1)
    })
}

/// Finds the knob and level that set these flags.
fn find(knobs: &[Knob], words: &[String]) -> Option<(usize, usize)> {
    let levels = |(at, knob): (usize, &Knob)| {
        let level = knob.levels.iter().skip(1).position(|known| covers(known, words))?;
        Some((at, level + 1))
    };
    knobs.iter().enumerate().find_map(levels)
}

/// Whether `known` sets all flags of `wanted`, in any order. `known` may set more flags: the level of the knob with `+sbwt none` also
/// sets the busy wait of dirty schedulers.
fn covers(known: &[String], wanted: &[String]) -> bool {
    let known = parse_emu_args(known);
    parse_emu_args(wanted)
        .iter()
        .all(|wanted| known.iter().any(|known| (&known.flag, &known.value) == (&wanted.flag, &wanted.value)))
}

/// Returns the expected effect of a remedy on the objective, as the logarithm of a ratio.
fn effect(finding: &Finding, remedy: &Remedy, rss_bytes: Option<f64>) -> f64 {
    if let (Some(saves), Some(rss)) = (remedy.saves_bytes, rss_bytes)
        && saves < rss
    {
        return (1.0 - saves / rss).ln();
    }
    -(MIN_EFFECT + EFFECT_OF_SEVERITY * finding.severity / 100.0)
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

    fn advise(objective: &str) -> (Vec<AdvisedLevel>, Vec<Knob>) {
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
    fn flag_remedies_become_advice_and_new_flags_become_knobs() {
        let (advice, knobs) = advise("cpu-per-request");
        let found: Vec<_> =
            advice.iter().map(|advised| (advised.knob, advised.level, advised.why.as_str())).collect();
        assert_eq!(found, [(0, 1, "BT001 rule"), (2, 1, "BT003 rule")]);
        assert_eq!(knobs[2].levels[1].join(" "), "+zdbbl 8192");
        assert!((advice[0].effect + 0.12).abs() < 1e-9, "{}", advice[0].effect);
    }

    #[test]
    fn busy_wait_is_advised_for_cpu_time_even_without_findings() {
        let knob = Knob {
            name: "busy wait".to_owned(),
            levels: vec![Vec::new(), vec!["+sbwt".to_owned(), "none".to_owned()]],
            ordered: true,
        };
        let nothing = Diagnosis::default();
        let count =
            |objective: &str| advice(&nothing, objective, None, |_| false, &mut vec![knob.clone()]).len();
        assert_eq!((count("cpu-per-request"), count("p99"), count("rss")), (1, 0, 0));
    }

    #[test]
    fn memory_remedy_is_advised_for_rss_with_its_estimated_saving() {
        let (advice, knobs) = advise("rss");
        assert_eq!((advice.len(), knobs.len()), (1, 2));
        assert!((advice[0].effect - 0.4_f64.ln()).abs() < 1e-9, "{}", advice[0].effect);
    }
}
