//! Tests the search on problems with known answers.

use super::*;
use crate::space::Parameter;

/// A problem with four switches and a size. The rules advise the first switch, correctly, and the second, wrongly.
fn problem() -> Problem {
    let switch = |name: &str| Parameter { name: name.to_owned(), levels: 2, default: 0, ordered: false };
    let size = Parameter { name: "+size".to_owned(), levels: 5, default: 0, ordered: true };
    let advice = |parameter, effect| Advice { parameter, level: 1, effect };
    Problem {
        space: Space { parameters: vec![switch("+a"), switch("+b"), switch("+c"), switch("+d"), size] },
        advice: vec![advice(1, -0.05), advice(0, -0.1)],
        noise_sd: 0.02,
        max_set: usize::MAX,
        fatal: Vec::new(),
        limits: vec![Limit { max: 0.05, noise_sd: 0.02 }],
    }
}

/// The true values of a point: the first switch gains 10 %, the second costs 20 %, and a larger size is better but breaks the limit.
fn truth(point: &[usize]) -> Vec<f64> {
    let size = point[4] as f64;
    let objective = -0.1 * point[0] as f64 + 0.2 * point[1] as f64 - 0.05 * size;
    vec![objective, 0.03 * (size - 2.0)]
}

fn study(trials: usize, seed: u64, mut outcome: impl FnMut(&Point) -> Option<Vec<f64>>) -> Vec<Outcome> {
    let problem = problem();
    let mut outcomes = Vec::new();
    for _ in 0..trials {
        let Some(point) = next(&problem, &outcomes, seed) else { break };
        let values = outcome(&point);
        outcomes.push(Outcome { point, values });
    }
    outcomes
}

fn noisy(seed: u64) -> impl FnMut(&Point) -> Option<Vec<f64>> {
    let mut random = fastrand::Rng::with_seed(seed);
    move |point| Some(truth(point).into_iter().map(|value| value + 0.02 * (random.f64() - 0.5)).collect())
}

#[test]
fn default_is_tried_first_then_each_advice_then_all_advice() {
    let points: Vec<Point> = study(4, 1, noisy(1)).into_iter().map(|outcome| outcome.point).collect();
    assert_eq!(points, [vec![0; 5], vec![1, 0, 0, 0, 0], vec![0, 1, 0, 0, 0], vec![1, 1, 0, 0, 0]]);
}

#[test]
fn best_setting_within_the_limits_is_found() {
    for seed in 0..5 {
        let outcomes = study(20, seed, noisy(seed));
        let best = finalists(&problem(), &outcomes, 1).into_iter().next().expect("something is better");
        // The third and the fourth switch have no effect.
        assert_eq!((best.point[0], best.point[1]), (1, 0), "{best:?}");
        assert!((2..=3).contains(&best.point[4]), "{best:?}");
        assert!((best.objective.mean - truth(&best.point)[0]).abs() < 0.04, "{best:?}");
    }
}

#[test]
fn no_good_finalist_is_found_if_no_setting_has_an_effect() {
    for seed in 0..5 {
        let mut random = fastrand::Rng::with_seed(seed);
        let outcomes = study(20, seed, |_| Some(vec![0.04 * (random.f64() - 0.5), 0.0]));
        let found = finalists(&problem(), &outcomes, 3);
        let best = found.iter().map(|belief| -belief.objective.mean).fold(0.0, f64::max);
        assert!(best < 0.02, "{found:?}");
    }
}

#[test]
fn interrupted_study_continues_with_the_same_points() {
    let whole = study(12, 3, |point| Some(truth(point)));
    assert_eq!(next(&problem(), &whole[..9], 3).as_ref(), Some(&whole[9].point));
    let points: std::collections::BTreeSet<&Point> = whole.iter().map(|outcome| &outcome.point).collect();
    assert_eq!(points.len(), whole.len(), "no point is tried twice");
}

#[test]
fn level_with_which_trials_fail_is_avoided() {
    // The third switch terminates the VM.
    let outcomes = study(24, 5, |point| (point[2] == 0).then(|| truth(point)));
    let broken = outcomes.iter().filter(|outcome| outcome.values.is_none()).count();
    assert!(broken <= 3, "{broken} of {}", outcomes.len());
    assert!(finalists(&problem(), &outcomes, 3).iter().all(|belief| belief.point[2] == 0));
}

#[test]
fn all_points_of_a_small_space_are_tried() {
    let mut small = problem();
    small.space.parameters.truncate(2);
    let mut outcomes = Vec::new();
    while let Some(point) = next(&small, &outcomes, 1) {
        outcomes.push(Outcome { point, values: Some(vec![0.0, 0.0]) });
    }
    assert_eq!(outcomes.len(), 4);
}

#[test]
fn outcomes_of_another_problem_are_ignored() {
    let strange = [
        Outcome { point: vec![9; 5], values: Some(vec![0.0, 0.0]) },
        Outcome { point: vec![0; 2], values: Some(vec![0.0, 0.0]) },
        Outcome { point: vec![0; 5], values: Some(vec![0.0]) },
        Outcome { point: vec![0; 9], values: None },
    ];
    assert!(next(&problem(), &strange, 1).is_some());
    assert_eq!(finalists(&problem(), &strange, 3), []);
    // They are also ignored once the model decides.
    let mut outcomes = study(6, 1, noisy(1));
    outcomes.extend(strange);
    assert!(next(&problem(), &outcomes, 1).is_some());
    let nothing = Problem { space: Space::default(), advice: Vec::new(), ..problem() };
    assert_eq!(next(&nothing, &[], 1), Some(Vec::new()));
    assert_eq!(next(&nothing, &[Outcome { point: Vec::new(), values: Some(vec![0.0, 0.0]) }], 1), None);
}

#[test]
fn fatal_combinations_are_never_tried() {
    // The first switch together with the second, and level 1 of the size.
    let fatal = vec![vec![(0, 1), (1, 1)], vec![(4, 1)]];
    let careful = Problem { fatal: fatal.clone(), ..problem() };
    let mut outcomes = Vec::new();
    for _ in 0..30 {
        let Some(point) = next(&careful, &outcomes, 7) else { break };
        let values = Some(truth(&point));
        outcomes.push(Outcome { point, values });
    }
    assert!(outcomes.len() > 10);
    let is_fatal =
        |point: &Point| fatal.iter().any(|levels| levels.iter().all(|(at, level)| point[*at] == *level));
    assert!(!outcomes.iter().any(|outcome| is_fatal(&outcome.point)), "{outcomes:?}");
}

#[test]
fn part_that_is_needed_to_keep_a_limit_is_not_pruned() {
    // The first switch improves the objective but breaks the limit; the second one compensates for this.
    let truth = |point: &[usize]| {
        let (gain, cost) = if point[0] == 1 { (-0.3, 0.3) } else { (0.0, 0.0) };
        let mended = if point[1] == 1 { -0.35 } else { 0.0 };
        vec![gain, cost + mended]
    };
    let problem = Problem { advice: Vec::new(), ..problem() };
    let mut outcomes = Vec::new();
    for first in [0, 1] {
        for second in [0, 1] {
            for _ in 0..3 {
                let mut point = problem.space.default_point();
                (point[0], point[1]) = (first, second);
                outcomes.push(Outcome { values: Some(truth(&point)), point });
            }
        }
    }
    let found = finalists(&problem, &outcomes, 1);
    assert_eq!(found.first().map(|belief| &belief.point[..2]), Some(&[1, 1][..]), "{found:?}");
}
