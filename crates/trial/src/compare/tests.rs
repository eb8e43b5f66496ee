use super::*;
use beamtune_model::study::{Arm, Invalid};

fn question() -> Question {
    let arm = |name: &str, flags: &[&str]| Arm {
        name: name.to_owned(),
        flags: flags.iter().map(ToString::to_string).collect(),
        ..Arm::default()
    };
    Question {
        seed: 7,
        a: arm("A", &[]),
        b: arm("B", &["+sbwt", "none"]),
        objective: "cpu-per-request".to_owned(),
        guards: vec![Margin { quantity: "p99".to_owned(), max: 0.10 }],
        same_pairs: 6,
        max_pairs: 30,
    }
}

fn trial(order: TrialOrder, outcome: TrialOutcome) -> Trial {
    Trial { order, began_unix_s: 0.0, took_s: 1.0, outcome, remarks: Vec::new() }
}

fn valid(cpu: f64, p99: f64) -> TrialOutcome {
    let mut measures = Measures::default();
    measures.set("cpu-per-request", cpu);
    measures.set("cpu-per-request/scheduler", cpu / 2.0);
    measures.set("p99", p99);
    measures.set("errors", 0.0);
    TrialOutcome::Valid { measures }
}

fn invalid() -> TrialOutcome {
    let reasons = vec![Invalid {
        kind: InvalidKind::Interference,
        why: "other processes used 1.00 of 2 cores".to_owned(),
    }];
    TrialOutcome::Invalid { reasons, measures: Measures::default() }
}

/// Runs trials until the comparison ends.
fn run(
    question: &Question,
    mut outcome: impl FnMut(&TrialOrder, usize) -> TrialOutcome,
) -> (Answer, Vec<Trial>) {
    let mut trials = Vec::new();
    for count in 0..1_000 {
        match next(question, &trials) {
            Next::Run(order) => {
                let outcome = outcome(&order, count);
                trials.push(trial(order, outcome));
            }
            Next::Done(answer) => return (answer, trials),
        }
    }
    panic!("the comparison does not end");
}

/// A deterministic generator of noise of a few percent.
struct Noise(fastrand::Rng);

impl Noise {
    fn times(&mut self, sd: f64) -> f64 {
        let normal = (0..12).map(|_| self.0.f64()).sum::<f64>() - 6.0;
        1.0 + sd * normal
    }
}

fn noise() -> Noise {
    Noise(fastrand::Rng::with_seed(20_261_121))
}

fn is_b(order: &TrialOrder) -> bool {
    order.arm.name == "B"
}

#[test]
fn a_is_first_compared_with_itself_and_then_with_b_until_a_look_decides() {
    let (question, mut noise) = (question(), noise());
    let (answer, trials) = run(&question, |order, _| {
        valid(noise.times(0.02) * if is_b(order) { 0.6 } else { 1.0 }, noise.times(0.02))
    });
    assert_eq!(answer, Answer::Better);
    assert_eq!(trials.len(), 2 * (6 + 8), "six pairs of A with itself, and the first look decides");
    assert!(trials[..12].iter().all(|trial| trial.order.phase == Phase::Same && !is_b(&trial.order)));
    assert!(trials[12..].iter().all(|trial| trial.order.phase == Phase::Pair));
    let first_is_b = trials[12..].chunks(2).filter(|pair| is_b(&pair[0].order)).count();
    assert!((1..8).contains(&first_is_b), "the order is random: {first_is_b} of 8");
    for pair in trials.chunks(2) {
        assert_eq!(pair[0].order.block, pair[1].order.block);
        assert_ne!(pair[0].order.label, pair[1].order.label);
    }

    let verdict = judge(&question, &trials);
    assert_eq!((verdict.answer, verdict.same_pairs, verdict.pairs), (Answer::Better, 6, 8));
    let effect = &verdict.effects[0];
    let ratio = effect.ratio.expect("an interval");
    assert_eq!(effect.quantity, "cpu-per-request");
    assert!((ratio.estimate - 0.6).abs() < 0.02 && ratio.low < 0.6 && ratio.high > 0.59, "{ratio:?}");
    assert_eq!(verdict.effects[1].quantity, "cpu-per-request/scheduler");
    assert_eq!(verdict.guards[0].verdict, "kept");
    assert!(verdict.detectable.is_some_and(|size| (0.01..0.2).contains(&size)), "{:?}", verdict.detectable);
}

#[test]
fn increase_is_worse_unless_more_is_better() {
    let mut question = question();
    let mut a = noise();
    let (answer, _) =
        run(&question, |order, _| valid(a.times(0.02) * if is_b(order) { 1.3 } else { 1.0 }, 1.0));
    assert_eq!(answer, Answer::Worse);
    question.objective = "throughput".to_owned();
    let mut a = noise();
    let (answer, _) = run(&question, |order, _| {
        let mut measures = Measures::default();
        measures.set("throughput", a.times(0.02) * if is_b(order) { 1.3 } else { 1.0 });
        TrialOutcome::Valid { measures }
    });
    assert_eq!(answer, Answer::Better);
}

#[test]
fn block_with_an_invalid_trial_is_run_again() {
    let (question, mut noise) = (question(), noise());
    let (answer, trials) = run(&question, |order, count| match count {
        3 | 14 => invalid(),
        _ => valid(noise.times(0.02) * if is_b(order) { 0.6 } else { 1.0 }, 1.0),
    });
    assert_eq!(answer, Answer::Better);
    // The fourth trial was the second of its block, so both trials are lost. The fifteenth was the first of its block, so the second
    // trial of that block was not run.
    assert_eq!(trials.len(), 2 * (6 + 8) + 2 + 1);
    assert_eq!(judge(&question, &trials).invalid, BTreeMap::from([(InvalidKind::Interference, 2)]));
}

#[test]
fn too_many_invalid_trials_give_no_answer() {
    let question = question();
    let (answer, trials) =
        run(&question, |_, count| if count % 2 == 0 { invalid() } else { valid(1.0, 1.0) });
    assert_eq!(answer, Answer::TooManyInvalid);
    // The first block has one trial; the next four blocks have two trials, of which the second is invalid.
    assert_eq!(trials.len(), 9);
}

#[test]
fn trial_without_the_objective_is_invalid() {
    let question = Question { objective: "p99.9".to_owned(), ..question() };
    let (answer, _) = run(&question, |_, _| valid(1.0, 1.0));
    assert_eq!(answer, Answer::TooManyInvalid);
}

#[test]
fn setting_that_fails_twice_ends_the_comparison() {
    let (question, mut noise) = (question(), noise());
    let (answer, trials) = run(&question, |order, _| match is_b(order) {
        true => TrialOutcome::Failed { reason: "the VM did not boot: bad size".to_owned() },
        false => valid(noise.times(0.02), 1.0),
    });
    assert_eq!(
        answer,
        Answer::Fails { arm: "B".to_owned(), why: "the VM did not boot: bad size".to_owned() }
    );
    assert_eq!(judge(&question, &trials).failed, 2);
}

#[test]
fn comparison_ends_if_a_differs_from_itself() {
    let question = question();
    let mut drift = 1.0;
    let (answer, _) = run(&question, |order, _| {
        drift *= 1.0001;
        valid(drift * if order.label == 1 { 1.1 } else { 1.0 }, 1.0)
    });
    assert_eq!(answer, Answer::FalsePositive);
}

#[test]
fn chance_difference_of_a_from_itself_doubles_the_number_of_pairs() {
    let (question, mut noise) = (question(), noise());
    let (answer, trials) = run(&question, |order, count| {
        let bad_luck = if count < 12 && order.label == 1 { 1.05 } else { 1.0 };
        valid(bad_luck * noise.times(0.01) * if is_b(order) { 0.6 } else { 1.0 }, 1.0)
    });
    assert_eq!(answer, Answer::Better);
    assert_eq!(judge(&question, &trials).same_pairs, 12);
}

#[test]
fn false_positives_are_rare() {
    let (mut alarms, runs) = (0, 300);
    for seed in 0..runs {
        let mut noise = Noise(fastrand::Rng::with_seed(seed));
        let question = Question { seed, ..question() };
        let (answer, _) = run(&question, |_, _| valid(noise.times(0.03), 1.0));
        alarms += u64::from(matches!(answer, Answer::Better | Answer::Worse));
    }
    assert!(alarms * 100 <= 8 * runs, "{alarms} false positives in {runs} comparisons");
}

#[test]
fn constraint_is_broken_if_its_margin_is_exceeded() {
    let (question, mut noise) = (question(), noise());
    let (_, trials) = run(&question, |order, _| {
        let b = is_b(order);
        valid(noise.times(0.01) * if b { 0.5 } else { 1.0 }, noise.times(0.02) * if b { 1.4 } else { 1.0 })
    });
    assert_eq!(judge(&question, &trials).guards[0].verdict, "broken");
}

#[test]
fn next_trial_depends_only_on_the_trials_that_have_ended() {
    let (question, mut noise) = (question(), noise());
    let (_, trials) =
        run(&question, |order, _| valid(noise.times(0.02) * if is_b(order) { 0.9 } else { 1.0 }, 1.0));
    for (count, trial) in trials.iter().enumerate() {
        assert_eq!(next(&question, &trials[..count]), Next::Run(trial.order.clone()));
    }
}

#[test]
fn no_trials_are_planned_if_there_is_no_time_for_the_first_look() {
    let question = Question { max_pairs: 7, ..question() };
    assert_eq!(trials(&question), None);
    assert_eq!(trials(&Question { max_pairs: 12, ..question }), Some((28, 36)));
}
