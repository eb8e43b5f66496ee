use super::*;
use beamtune_model::study::Knob;

fn knob(name: &str, levels: &[&str]) -> Knob {
    let words = |level: &&str| level.split_whitespace().map(str::to_owned).collect();
    Knob {
        name: name.to_owned(),
        levels: std::iter::once(Vec::new()).chain(levels.iter().map(words)).collect(),
        ordered: true,
    }
}

/// A study of three knobs. The rules advise the first and the last.
fn tuning(trials: usize) -> Tuning {
    let advised = |knob| AdvisedLevel { knob, level: 1, effect: -0.1, why: "BT001".to_owned() };
    Tuning {
        seed: 5,
        objective: "cpu-per-request".to_owned(),
        guards: vec![
            Margin { quantity: "p99".to_owned(), max: 0.10 },
            Margin { quantity: "errors".to_owned(), max: 0.001 },
        ],
        knobs: vec![
            knob("wait", &["+sbwt none"]),
            knob("heap", &["+hms 1024", "+hms 4096"]),
            knob("placebo", &["+swt low"]),
        ],
        advice: vec![advised(0), advised(2)],
        fatal: Vec::new(),
        trials,
    }
}

/// The true effects of a setting on CPU and p99: logarithms of ratios.
type World = fn(&[usize]) -> (f64, f64);

/// Without busy wait, CPU use falls by 40 %; larger heaps save a little; other knobs have no effect.
fn usual(point: &[usize]) -> (f64, f64) {
    let wait = if point[0] == 1 { -0.5 } else { 0.0 };
    (wait - 0.08 * point[1] as f64, 0.0)
}

fn outcome(world: World, order: &TrialOrder, random: &mut fastrand::Rng) -> TrialOutcome {
    let mut noise = |sd: f64| sd * ((0..12).map(|_| random.f64()).sum::<f64>() - 6.0);
    let (cpu, p99) = if order.point.is_empty() { (0.0, 0.0) } else { world(&order.point) };
    let mut measures = Measures::default();
    measures.set("cpu-per-request", 1e5 * (cpu + noise(0.02)).exp());
    measures.set("p99", 1e6 * (p99 + noise(0.02)).exp());
    measures.set("rss", 1e8);
    measures.set("errors", 0.0);
    TrialOutcome::Valid { measures }
}

/// Runs trials until the study ends.
fn run_with(
    tuning: &Tuning,
    mut outcome: impl FnMut(&TrialOrder) -> TrialOutcome,
) -> (TuningOutcome, Vec<Trial>) {
    let mut trials: Vec<Trial> = Vec::new();
    for _ in 0..1_000 {
        match next(tuning, &trials) {
            Next::Run(order) => {
                let outcome = outcome(&order);
                trials.push(Trial { order, began_unix_s: 0.0, took_s: 1.0, outcome, remarks: Vec::new() });
            }
            Next::Done(ending) => return (ending, trials),
        }
    }
    panic!("the study does not end");
}

fn run(tuning: &Tuning, world: World) -> (TuningOutcome, Vec<Trial>) {
    let mut random = fastrand::Rng::with_seed(20_261_121);
    run_with(tuning, |order| outcome(world, order, &mut random))
}

fn count(trials: &[Trial], phase: Phase) -> usize {
    trials.iter().filter(|trial| trial.order.phase == phase).count()
}

#[test]
fn good_setting_is_found_and_confirmed_and_useless_parts_are_removed() {
    let tuning = tuning(120);
    let (ending, trials) = run(&tuning, usual);
    assert_eq!(ending, TuningOutcome::Found);
    let stages = Stages::divide(120).expect("enough");
    assert_eq!(count(&trials, Phase::Same), 12);
    assert!(count(&trials, Phase::Search) <= stages.search);
    assert!(
        count(&trials, Phase::Confirm) <= stages.confirm && count(&trials, Phase::BackOut) <= stages.back_out
    );
    assert!(trials.len() <= 120);

    let verdict = judge(&tuning, &trials);
    let winner = &verdict.finalists[0];
    assert!(winner.is_better && winner.broken.is_empty(), "{verdict:#?}");
    let part = |knob: usize| verdict.parts.iter().find(|part| part.knob == knob);
    assert_eq!(part(0).map(|part| part.verdict), Some(PartVerdict::Yes), "{verdict:#?}");
    assert!(verdict.flags.join(" ").contains("+sbwt none"), "{verdict:#?}");
    let gain = verdict.gain.as_ref().expect("measured on fresh trials");
    let truth = usual(&verdict.point).0.exp();
    assert!((gain.ratio.low..=gain.ratio.high).contains(&truth), "{gain:?}, not {truth}");
    assert!(
        gain.repeat_interval.low < gain.ratio.low && gain.ratio.high < gain.repeat_interval.high,
        "{gain:?}"
    );
    let learnt = verdict
        .levels
        .iter()
        .find(|learnt| (learnt.knob, learnt.level) == (0, 1))
        .expect("the level was tried");
    assert!(learnt.effect.is_some_and(|effect| effect.high < 0.9), "{learnt:?}");
    assert!(!verdict.pareto_front.is_empty());
    // The placebo was advised. It must be removed or not be reported as worthwhile.
    assert!(part(2).is_none_or(|part| part.verdict != PartVerdict::Yes), "{verdict:#?}");
}

#[test]
fn nothing_is_recommended_if_nothing_is_better() {
    let (ending, trials) = run(&tuning(120), |_| (0.0, 0.0));
    assert!(matches!(ending, TuningOutcome::NothingBetter | TuningOutcome::NotConfirmed), "{ending:?}");
    let verdict = judge(&tuning(120), &trials);
    assert!(verdict.flags.is_empty() && verdict.parts.is_empty());
}

#[test]
fn setting_that_violates_a_constraint_is_not_recommended() {
    let world: World = |point| if point[0] == 1 { (-0.5, 0.4) } else { (0.0, 0.0) };
    let (_, trials) = run(&tuning(120), world);
    let verdict = judge(&tuning(120), &trials);
    assert!(!verdict.flags.contains(&"none".to_owned()), "{verdict:#?}");
}

#[test]
fn candidate_that_does_not_boot_is_a_result() {
    let tuning = tuning(120);
    let mut random = fastrand::Rng::with_seed(3);
    let (ending, trials) = run_with(&tuning, |order| match order.point.get(1) {
        Some(2) => TrialOutcome::Failed { reason: "the VM did not boot".to_owned() },
        _ => outcome(usual, order, &mut random),
    });
    assert_eq!(ending, TuningOutcome::Found);
    let verdict = judge(&tuning, &trials);
    assert_ne!(verdict.point[1], 2, "{verdict:#?}");
    let learnt = verdict.levels.iter().find(|learnt| (learnt.knob, learnt.level) == (1, 2));
    assert!(learnt.is_none_or(|learnt| learnt.failed > 0 && learnt.trials == 0), "{learnt:?}");
}

#[test]
fn failed_candidates_are_not_invalid_trials() {
    let mut tuning = tuning(120);
    tuning.knobs.extend((0..6).map(|number| knob(&format!("broken {number}"), &["+zz 1", "+zz 2"])));
    let mut random = fastrand::Rng::with_seed(4);
    let (ending, _) = run_with(&tuning, |order| match order.point.iter().skip(3).any(|level| *level > 0) {
        true => TrialOutcome::Failed { reason: "the VM did not boot".to_owned() },
        false => outcome(usual, order, &mut random),
    });
    assert_ne!(ending, TuningOutcome::TooManyInvalid);
}

#[test]
fn study_ends_if_the_unchanged_target_fails() {
    let (ending, trials) =
        run_with(&tuning(120), |_| TrialOutcome::Failed { reason: "no such release".to_owned() });
    assert_eq!((ending, trials.len()), (TuningOutcome::Fails { why: "no such release".to_owned() }, 2));
}

#[test]
fn too_few_trials_are_rejected_with_the_required_minimum() {
    let Next::Done(TuningOutcome::TooFewTrials { min_trials: least }) = next(&tuning(20), &[]) else {
        panic!("not rejected")
    };
    assert!(Stages::divide(least).is_ok() && Stages::divide(least - 1).is_err(), "{least}");
    let Ok(stages) = Stages::divide(least) else { panic!("too few") };
    assert_eq!(stages.same + stages.search + stages.confirm + stages.back_out, least);
}

#[test]
fn next_trial_depends_only_on_the_trials_that_have_ended() {
    let tuning = tuning(80);
    let (_, trials) = run(&tuning, usual);
    for (count, trial) in trials.iter().enumerate() {
        assert_eq!(next(&tuning, &trials[..count]), Next::Run(trial.order.clone()), "trial {count}");
    }
}

#[test]
fn number_of_trials_fits_the_time_budget() {
    let (_, trials) = run(&tuning(60), usual);
    let slow: Vec<Trial> =
        trials.iter().take(14).map(|trial| Trial { took_s: 20.0, ..trial.clone() }).collect();
    let trials = |budget_s| within(budget_s, 60, &slow);
    assert_eq!(within(1_800.0, 60, &slow[..11]), 60, "the duration of a trial is not known yet");
    assert_eq!(trials(1_800.0), 90);
    assert_eq!(trials(1_000.0), Stages::min_trials(), "the minimum may exceed the budget a little");
    assert!(trials(600.0) < Stages::min_trials());
}

#[test]
fn pareto_front_contains_the_trials_that_no_other_trial_dominates() {
    let trial = |cpu: f64, p99: f64, rss: f64| {
        let mut measures = Measures::default();
        measures.set("cpu-per-request", cpu);
        measures.set("p99", p99);
        measures.set("rss", rss);
        let order =
            TrialOrder { phase: Phase::Search, block: 0, label: 0, arm: Arm::default(), point: Vec::new() };
        let outcome = TrialOutcome::Valid { measures };
        Trial { order, began_unix_s: 0.0, took_s: 1.0, outcome, remarks: Vec::new() }
    };
    let trials = [trial(2.0, 2.0, 2.0), trial(1.0, 3.0, 2.0), trial(2.0, 2.0, 3.0), trial(3.0, 1.0, 1.0)];
    assert_eq!(front(&trials), [0, 1, 3]);
    assert_eq!(
        front(&[trial(1.0, 1.0, 1.0), trial(1.0, 1.0, 1.0)]),
        [0, 1],
        "both of two equal trials are in the front"
    );
}

/// There is no advice, and candidates set more parts than the back-out can remove one by one.
#[test]
fn good_part_is_found_even_if_it_was_never_tried_alone() {
    let mut tuning = tuning(67);
    tuning.advice.clear();
    tuning.knobs.extend((0..5).map(|number| knob(&format!("nothing {number}"), &["+zz 1", "+zz 2"])));
    let (ending, trials) = run(&tuning, usual);
    let verdict = judge(&tuning, &trials);
    assert_eq!(ending, TuningOutcome::Found, "{verdict:#?}");
    assert!(verdict.flags.join(" ").contains("+sbwt none"), "{verdict:#?}");
    assert!(verdict.parts.len() <= 2, "{verdict:#?}");
}

#[test]
fn gain_is_measured_on_the_confirmation_if_the_back_out_has_too_few_blocks() {
    let tuning = tuning(120);
    let mut random = fastrand::Rng::with_seed(9);
    let (_, trials) = run_with(&tuning, |order| match order.phase {
        Phase::BackOut if order.label == 1 => {
            TrialOutcome::Invalid { reasons: Vec::new(), measures: Measures::default() }
        }
        _ => outcome(usual, order, &mut random),
    });
    let gain = judge(&tuning, &trials).gain.expect("confirmed");
    assert!(gain.selected_by_same_trials && gain.pairs >= MIN_CONFIRM_BLOCKS, "{gain:?}");
}
