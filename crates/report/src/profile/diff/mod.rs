//! The differences between two profiles: shares of the sampled CPU time, by state, function and call path.
//!
//! Shares do not depend on how long a profile is, on its rate, or on how busy the VM was. What the VM used in total is stated beside them,
//! in cores: samples per second, multiplied by the CPU time that each represents.

mod formats;
mod render;

use std::collections::{BTreeMap, HashMap};

use beamtune_model::units::SECOND_NS;
use beamtune_model::{CpuState, Nanos};
use beamtune_stats::proportion::{Difference, Dispersion, Proportion, critical_value, difference};

use super::tree::Node;
use super::{FunctionTime, Page, function_times, innermost_function};

pub use formats::{collapsed_diff, json_diff};
pub use render::render_diff;

/// Probability that all intervals of a list contain the true change.
const CONFIDENCE: f64 = 0.95;
/// Functions and call paths with a smaller average share are not compared, because each comparison widens the intervals of all
/// others (judgement).
pub(super) const MIN_SHARE: f64 = 0.005;

/// The CPU time of something in both profiles: before and after.
type Times = [Nanos; 2];

/// Whether something has another share than before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    More,
    Less,
    NotShown,
}

/// The change of a state, a function or a call path.
#[derive(Debug, Clone, PartialEq)]
struct Change {
    /// The state, the function, or the last function of the path. Untrusted text.
    name: String,
    /// Share of the sampled CPU time, from 0 to 1, before and after.
    shares: [f64; 2],
    /// CPU time per time, before and after.
    cores: [f64; 2],
    /// Change of the share.
    difference: Difference,
}

impl Change {
    fn verdict(&self) -> Verdict {
        match self.difference.is_significant() {
            false => Verdict::NotShown,
            true if self.difference.estimate > 0.0 => Verdict::More,
            true => Verdict::Less,
        }
    }
}

/// The change of a call path.
#[derive(Debug, Clone, PartialEq)]
struct PathChange {
    /// Number of functions above the last one. The path leads through the closest rows before this one that have smaller depths.
    depth: usize,
    change: Change,
}

/// Two profiles, and what differs between them. Lists are sorted by the size of the change, call paths as a tree.
#[derive(Debug, Clone)]
pub struct Comparison<'a> {
    /// The profile before, and the one after.
    pub(super) pages: [Page<'a>; 2],
    states: Vec<Change>,
    /// Erlang functions, by the time in themselves and in the C code that they call.
    own: Vec<Change>,
    /// Erlang functions, with the functions that they call.
    total: Vec<Change>,
    paths: Vec<PathChange>,
    /// Critical value of the intervals of the call paths.
    pub(super) z_of_paths: f64,
    /// This many samples are worth one independent sample.
    pub(super) dispersion: f64,
}

impl<'a> Comparison<'a> {
    /// Compares two profiles.
    pub fn new(before: Page<'a>, after: Page<'a>) -> Self {
        let pages = [before, after];
        let whole = Whole::new(pages);
        let states = CpuState::ALL.iter();
        let states = states.map(|state| (state.text(), pages.map(|page| state_time(&page, *state))));
        let functions = pages.map(|page| function_times(page.profile));
        let root = Node::root(pages.map(|page| page.profile));
        let z_of_paths = critical_value(CONFIDENCE, whole.count_paths(&root));
        let mut paths = Vec::new();
        whole.add_paths(&root, 0, z_of_paths, &mut paths);
        Comparison {
            pages,
            // There are few states, and all of them are compared.
            states: whole.changes(states.filter(|(_, times)| *times != [0, 0]), 0.0),
            own: whole.changes(by_function(&functions, |time| time.own), MIN_SHARE),
            total: whole.changes(by_function(&functions, |time| time.total), MIN_SHARE),
            paths,
            z_of_paths,
            dispersion: whole.dispersion,
        }
    }

    /// Whether both profiles have samples, without which nothing can be compared.
    fn has_samples(&self) -> bool {
        self.pages.iter().all(|page| page.profile.total() > 0)
    }
}

fn state_time(page: &Page<'_>, state: CpuState) -> Nanos {
    let samples = page.profile.samples.iter().filter(|sample| sample.state == state);
    samples.map(|sample| sample.weight).sum()
}

/// One time of each function that occurs in a profile.
fn by_function<'p>(
    functions: &[HashMap<&'p str, FunctionTime<'p>>; 2],
    time: impl Fn(&FunctionTime<'p>) -> Nanos,
) -> impl Iterator<Item = (&'p str, Times)> {
    let mut out = HashMap::<&str, Times>::new();
    for (index, functions) in functions.iter().enumerate() {
        for (name, found) in functions {
            out.entry(*name).or_default()[index] = time(found);
        }
    }
    out.into_iter()
}

/// How much the shares of functions vary between the seconds of each profile, compared to independent samples. Loads change, and a sample
/// resembles the one before it.
fn dispersion(pages: &[Page<'_>; 2]) -> f64 {
    let mut dispersion = Dispersion::default();
    for page in pages {
        let mut wholes = BTreeMap::<i64, u32>::new();
        let mut parts = BTreeMap::<&str, HashMap<i64, u32>>::new();
        for sample in &page.profile.samples {
            let second = sample.t.div_euclid(SECOND_NS);
            *wholes.entry(second).or_default() += sample.count;
            if let Some(name) = innermost_function(page.profile, sample) {
                *parts.entry(name).or_default().entry(second).or_default() += sample.count;
            }
        }
        let all = f64::from(page.profile.sample_count());
        for parts in parts.values().filter(|parts| f64::from(parts.values().sum::<u32>()) >= MIN_SHARE * all)
        {
            let group = |(second, whole): (&i64, &u32)| {
                let part = parts.get(second).copied().unwrap_or_default();
                Proportion { part: f64::from(part), whole: f64::from(*whole) }
            };
            dispersion.add(&wholes.iter().map(group).collect::<Vec<_>>());
        }
    }
    dispersion.factor()
}

/// What shares are parts of, before and after.
#[derive(Debug, Clone, Copy)]
struct Whole {
    cpu: Times,
    length: Times,
    samples: [u32; 2],
    dispersion: f64,
}

impl Whole {
    fn new(pages: [Page<'_>; 2]) -> Self {
        Whole {
            cpu: pages.map(|page| page.profile.total()),
            length: pages.map(|page| page.profile.length),
            samples: pages.map(|page| page.profile.sample_count()),
            dispersion: dispersion(&pages),
        }
    }

    fn shares(&self, times: Times) -> [f64; 2] {
        [0, 1].map(|index| times[index] as f64 / self.cpu[index].max(1) as f64)
    }

    fn is_compared(&self, times: Times, min_share: f64) -> bool {
        self.shares(times).iter().sum::<f64>() / 2.0 >= min_share
    }

    /// `None` without samples.
    fn change(&self, name: &str, times: Times, z: f64) -> Option<Change> {
        let shares = self.shares(times);
        // Samples of one profile represent the same CPU time each, so the share of the time is the share of the samples.
        let [before, after] = [0, 1].map(|index| {
            let whole = f64::from(self.samples[index]) / self.dispersion;
            Proportion { part: shares[index] * whole, whole }
        });
        Some(Change {
            name: name.to_owned(),
            shares,
            cores: [0, 1].map(|index| times[index] as f64 / self.length[index].max(1) as f64),
            difference: difference(before, after, z)?,
        })
    }

    /// The changes with at least a share, largest first.
    fn changes<'n>(&self, times: impl Iterator<Item = (&'n str, Times)>, min_share: f64) -> Vec<Change> {
        let compared: Vec<_> = times.filter(|(_, times)| self.is_compared(*times, min_share)).collect();
        let z = critical_value(CONFIDENCE, compared.len());
        let changes = compared.into_iter().filter_map(|(name, times)| self.change(name, times, z));
        let mut changes: Vec<Change> = changes.collect();
        let size = |change: &Change| change.difference.estimate.abs();
        changes.sort_by(|a, b| size(b).total_cmp(&size(a)).then_with(|| a.name.cmp(&b.name)));
        changes
    }

    /// Number of call paths below a node that are compared.
    fn count_paths(&self, node: &Node<2>) -> usize {
        let compared = node.calls.values().filter(|call| self.is_compared(call.times, MIN_SHARE));
        compared.map(|call| 1 + self.count_paths(call)).sum()
    }

    /// Adds the call paths below a node, each followed by its own, those with the largest share first.
    fn add_paths(&self, node: &Node<2>, depth: usize, z: f64, out: &mut Vec<PathChange>) {
        let calls = node.calls.iter().filter(|(_, call)| self.is_compared(call.times, MIN_SHARE));
        let mut calls: Vec<_> = calls.collect();
        let share = |call: &Node<2>| self.shares(call.times).iter().sum::<f64>();
        calls.sort_by(|(a, x), (b, y)| share(y).total_cmp(&share(x)).then_with(|| a.cmp(b)));
        for (name, call) in calls {
            let Some(change) = self.change(name, call.times, z) else { continue };
            out.push(PathChange { depth, change });
            self.add_paths(call, depth + 1, z, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use beamtune_model::Profile;
    use proptest::prelude::*;

    use super::super::tests::profile;
    use super::*;

    fn page(profile: &Profile) -> Page<'_> {
        Page { node: "shop@web1", profile }
    }

    /// 1,000 samples: `work` in one function, the others in a second one, 100 of all in the kernel.
    fn with_work(work: u32) -> Profile {
        profile(&[
            ("shop:loop/1;jsx:encode/2", work, CpuState::Process),
            ("shop:loop/1;lists:map/2", 900 - work, CpuState::Process),
            ("k:futex_wait", 100, CpuState::SleepAndWake),
        ])
    }

    fn find<'c>(changes: &'c [Change], name: &str) -> &'c Change {
        changes.iter().find(|change| change.name == name).unwrap()
    }

    #[test]
    fn a_shift_of_ten_points_is_found_in_both_functions() {
        let (before, after) = (with_work(300), with_work(400));
        let comparison = Comparison::new(page(&before), page(&after));
        for changes in [&comparison.own, &comparison.total] {
            let (more, less) = (find(changes, "jsx:encode/2"), find(changes, "lists:map/2"));
            assert!((more.difference.estimate - 0.1).abs() < 1e-9, "{more:?}");
            assert!(more.difference.low > 0.04 && more.difference.high < 0.16, "{more:?}");
            assert_eq!((more.verdict(), less.verdict()), (Verdict::More, Verdict::Less));
        }
        assert_eq!(find(&comparison.total, "shop:loop/1").verdict(), Verdict::NotShown);
        assert!(comparison.states.iter().all(|state| state.verdict() == Verdict::NotShown));
        let verdicts: Vec<_> =
            comparison.paths.iter().map(|path| (path.depth, path.change.verdict())).collect();
        assert_eq!(
            verdicts,
            [(0, Verdict::NotShown), (1, Verdict::Less), (1, Verdict::More), (0, Verdict::NotShown)]
        );
    }

    #[test]
    fn rate_and_length_do_not_change_shares() {
        let before = with_work(300);
        // Ten times as long, at a fifth of the rate: twice as many samples, each with five times the time.
        let mut after = before.clone();
        (after.length, after.rate_hz) = (10 * after.length, 20);
        for sample in &mut after.samples {
            sample.count *= 2;
            sample.weight *= 10;
        }
        let comparison = Comparison::new(page(&before), page(&after));
        for change in comparison.own.iter().chain(&comparison.total).chain(&comparison.states) {
            assert!(change.difference.estimate.abs() < 1e-9, "{change:?}");
            assert!((change.cores[0] - change.cores[1]).abs() < 1e-9, "{change:?}");
            assert_eq!(change.verdict(), Verdict::NotShown);
        }
    }

    #[test]
    fn a_busier_vm_has_equal_shares_and_more_cores() {
        let before = with_work(300);
        let mut after = before.clone();
        after.length /= 2;
        let comparison = Comparison::new(page(&before), page(&after));
        let encode = find(&comparison.own, "jsx:encode/2");
        assert_eq!((encode.shares[0], encode.verdict()), (encode.shares[1], Verdict::NotShown));
        assert_eq!((encode.cores[0], encode.cores[1]), (1.5, 3.0));
    }

    #[test]
    fn shares_that_change_from_second_to_second_have_wider_intervals() {
        let (mut before, after) = (with_work(300), with_work(370));
        let steady = Comparison::new(page(&before), page(&after));
        assert_eq!((steady.dispersion, find(&steady.own, "jsx:encode/2").verdict()), (1.0, Verdict::More));
        // The same samples, but each function has seconds of its own.
        for (second, sample) in before.samples.iter_mut().enumerate() {
            sample.t = second as i64 * SECOND_NS;
        }
        let changing = Comparison::new(page(&before), page(&after));
        assert!(changing.dispersion > 100.0, "{}", changing.dispersion);
        assert_eq!(find(&changing.own, "jsx:encode/2").verdict(), Verdict::NotShown);
    }

    #[test]
    fn a_function_that_is_new_or_gone_is_a_change() {
        let before = profile(&[("a:old/0", 500, CpuState::Process), ("a:b/0", 500, CpuState::Process)]);
        let after = profile(&[("a:new/0", 500, CpuState::Process), ("a:b/0", 500, CpuState::Process)]);
        let comparison = Comparison::new(page(&before), page(&after));
        let verdict = |name| find(&comparison.own, name).verdict();
        assert_eq!((verdict("a:old/0"), verdict("a:new/0")), (Verdict::Less, Verdict::More));
        assert_eq!(verdict("a:b/0"), Verdict::NotShown);
    }

    #[test]
    fn an_empty_profile_is_not_compared() {
        let (empty, full) = (Profile { length: 1, ..Profile::default() }, with_work(300));
        for (before, after) in [(&empty, &full), (&full, &empty), (&empty, &empty)] {
            let comparison = Comparison::new(page(before), page(after));
            assert!(!comparison.has_samples());
            assert!(comparison.own.is_empty() && comparison.states.is_empty() && comparison.paths.is_empty());
        }
    }

    /// Profiles of five functions that call each other, with these sample counts.
    fn of_counts(counts: &[u16]) -> Profile {
        let stacks = ["a:a/0;b:b/0", "a:a/0;c:c/0", "a:a/0", "d:d/0;k:read", "d:d/0;e:e/0"];
        let counts = stacks.iter().zip(counts);
        let stacks: Vec<_> =
            counts.map(|(stack, count)| (*stack, u32::from(*count) + 1, CpuState::Process)).collect();
        profile(&stacks)
    }

    proptest! {
        #[test]
        fn equal_profiles_show_no_difference(counts in prop::collection::vec(any::<u16>(), 5)) {
            let profile = of_counts(&counts);
            let comparison = Comparison::new(page(&profile), page(&profile));
            let paths = comparison.paths.iter().map(|path| &path.change);
            let lists = [&comparison.states, &comparison.own, &comparison.total];
            for change in lists.into_iter().flatten().chain(paths) {
                prop_assert_eq!((change.verdict(), change.difference.estimate), (Verdict::NotShown, 0.0));
            }
        }

        #[test]
        fn exchanged_profiles_mirror_all_changes(counts in prop::collection::vec(any::<u16>(), 10)) {
            let (first, second) = (of_counts(&counts[..5]), of_counts(&counts[5..]));
            let there = Comparison::new(page(&first), page(&second));
            let back = Comparison::new(page(&second), page(&first));
            for (there, back) in [(&there.own, &back.own), (&there.total, &back.total)] {
                prop_assert_eq!(there.len(), back.len());
                for change in there {
                    let mirrored = find(back, &change.name);
                    let [before, after] = change.shares;
                    prop_assert_eq!([after, before], mirrored.shares);
                    prop_assert_eq!(change.difference.estimate, -mirrored.difference.estimate);
                    prop_assert_eq!(change.difference.low, -mirrored.difference.high);
                }
            }
            prop_assert_eq!(there.paths.len(), back.paths.len());
        }
    }
}
