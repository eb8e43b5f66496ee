//! The knobs that a study can set for an OTP release and a number of CPUs, each with a few levels.
//!
//! A knob is one decision for the user and may set several flags that are useful only together. The table contains flags that are known
//! to have an effect on some load. `beamtune_flags` decides whether a release accepts a value, so that no trial is wasted on a VM that
//! would not start.

use beamtune_flags::lint::{File, Level, Target, lint};
use beamtune_flags::source::running_node;
use beamtune_flags::{OtpVersion, SilentChange, ValueQuery, Verdict, parse_emu_args};
use beamtune_model::study::{FatalLevels, Knob};

use crate::space::{Parameter, Space};

/// The knobs: name, whether the levels are ordered, and the levels in addition to the default.
const KNOBS: &[(&str, bool, &[&str])] = &[
    (
        "busy wait",
        true,
        &[
            "+sbwt very_short +sbwtdcpu very_short +sbwtdio very_short",
            "+sbwt none +sbwtdcpu none +sbwtdio none",
        ],
    ),
    ("wake-up threshold", true, &["+swt low", "+swt very_low"]),
    ("utilization balancing", false, &["+sub true"]),
    ("port parallelism", false, &["+spp true"]),
    ("minimum heap size", true, &["+hms 1024", "+hms 4096"]),
    ("off-heap messages", false, &["+hmqd off_heap"]),
    ("dirty allocators", false, &["+Mdai max"]),
    ("binary_alloc strategy", false, &["+MBas aobf", "+MBas ageffcbf"]),
    ("binary_alloc carriers", true, &["+MBlmbcs 1024 +MBsbct 256", "+MBlmbcs 512 +MBsbct 128"]),
    ("eheap_alloc carriers", true, &["+MHlmbcs 20480 +MHsbct 2048", "+MHlmbcs 40960 +MHsbct 4096"]),
    ("abandoned carriers", true, &["+Muacul 80"]),
    ("segment cache", true, &["+MMmcs 20", "+MMmcs 30"]),
    ("fullsweep interval", true, &["-env ERL_FULLSWEEP_AFTER 20", "-env ERL_FULLSWEEP_AFTER 5"]),
];

/// Returns the knobs of a release with the levels that the release accepts. The number of schedulers is a knob if there is more than one
/// CPU.
pub fn knobs(otp: &OtpVersion, cpus: usize) -> Vec<Knob> {
    let mut knobs: Vec<Knob> = KNOBS
        .iter()
        .map(|(name, ordered, levels)| {
            let words = |level: &&str| level.split_whitespace().map(str::to_owned).collect::<Vec<String>>();
            let levels = levels.iter().map(words).filter(|level| is_accepted(level, otp));
            Knob {
                name: (*name).to_owned(),
                levels: std::iter::once(Vec::new()).chain(levels).collect(),
                ordered: *ordered,
            }
        })
        .collect();
    if cpus > 1 {
        let fewer = [cpus - 1, cpus / 2];
        let mut levels: Vec<Vec<String>> =
            fewer.iter().filter(|n| **n > 0).map(|n| vec!["+S".to_owned(), format!("{n}:{n}")]).collect();
        levels.dedup();
        levels.insert(0, Vec::new());
        knobs.push(Knob { name: "schedulers".to_owned(), levels, ordered: true });
    }
    knobs.retain(|knob| knob.levels.len() > 1);
    knobs
}

/// Whether a release accepts all flags of a level and ignores none. Arguments with a minus are for init, which accepts all arguments.
fn is_accepted(words: &[String], otp: &OtpVersion) -> bool {
    if words.first().is_some_and(|word| word.starts_with('-')) {
        return true;
    }
    parse_emu_args(words).iter().all(|setting| {
        let Some(entry) = setting.entry else { return false };
        let allocator = entry.allocator_in(&setting.flag);
        let question = ValueQuery { value: setting.value.as_deref(), otp, allocator, host_cpus: None };
        let has_effect = |altered: &[SilentChange]| {
            !altered.iter().any(|what| matches!(what, SilentChange::Ignored | SilentChange::ReadAs { .. }))
        };
        matches!(entry.judge(&question), Verdict::Accepted { changes, .. } if has_effect(&changes))
    })
}

/// Returns the levels and pairs of levels with which a VM of this release is known not to start, to crash or to hang, given its current
/// arguments `args`. They are never tried.
pub fn fatal_levels(knobs: &[Knob], args: &[String], release: u32) -> Vec<FatalLevels> {
    let target = Target { releases: vec![release], machine: None };
    let errors = |more: &[&[String]]| {
        let args: Vec<String> = args.iter().chain(more.iter().copied().flatten()).cloned().collect();
        let found = lint(&[File { fragments: &[running_node(&args)] }], &target);
        found.into_iter().filter(|finding| finding.level == Level::Error).count()
    };
    // Errors in the current arguments are ignored, because the target runs with them.
    let before = errors(&[]);
    let levels: Vec<((usize, usize), &[String])> = knobs
        .iter()
        .enumerate()
        .flat_map(|(at, knob)| {
            let levels = knob.levels.iter().enumerate().skip(1);
            levels.map(move |(level, words)| ((at, level), words.as_slice()))
        })
        .collect();
    let (bad, good): (Vec<_>, Vec<_>) = levels.into_iter().partition(|(_, words)| errors(&[words]) > before);
    let mut fatal: Vec<FatalLevels> = bad.into_iter().map(|(level, _)| vec![level]).collect();
    for (at, (one, words)) in good.iter().enumerate() {
        let others = good.iter().skip(at + 1).filter(|(other, _)| other.0 != one.0);
        let conflicting = others.filter(|(_, other_words)| errors(&[words, other_words]) > before);
        fatal.extend(conflicting.map(|(other, _)| vec![*one, *other]));
    }
    fatal
}

/// Returns the search space of these knobs.
pub fn space(knobs: &[Knob]) -> Space {
    let parameter = |knob: &Knob| Parameter {
        name: knob.name.clone(),
        levels: knob.levels.len(),
        default: 0,
        ordered: knob.ordered,
    };
    Space { parameters: knobs.iter().map(parameter).collect() }
}

/// Returns the flags that a point sets.
pub fn flags(knobs: &[Knob], point: &[usize]) -> Vec<String> {
    let levels = knobs.iter().zip(point).filter_map(|(knob, level)| knob.levels.get(*level));
    levels.flatten().cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn otp(text: &str) -> OtpVersion {
        OtpVersion::parse(text).expect("a version")
    }

    fn levels(knobs: &[Knob], name: &str) -> usize {
        knobs.iter().find(|knob| knob.name == name).map_or(0, |knob| knob.levels.len())
    }

    #[test]
    fn knobs_have_only_levels_that_the_release_accepts() {
        let (old, new) = (knobs(&otp("23.3"), 1), knobs(&otp("27.2"), 1));
        assert_eq!((levels(&old, "dirty allocators"), levels(&new, "dirty allocators")), (0, 2));
        for knobs in [&old, &new] {
            assert_eq!(levels(knobs, "busy wait"), 3);
            assert_eq!(levels(knobs, "schedulers"), 0, "with one CPU there is only one scheduler");
            assert!(knobs.iter().all(|knob| knob.levels[0].is_empty() && knob.levels.len() > 1));
        }
    }

    #[test]
    fn recent_release_accepts_every_level_of_the_table() {
        let all = knobs(&otp("27.2"), 1);
        for (name, _, table_levels) in KNOBS {
            assert_eq!(levels(&all, name), table_levels.len() + 1, "{name}");
        }
    }

    #[test]
    fn scheduler_levels_are_below_the_number_of_cpus() {
        let find = |cpus| knobs(&otp("27.2"), cpus).into_iter().find(|knob| knob.name == "schedulers");
        let levels =
            |cpus| find(cpus).map(|knob| knob.levels.iter().map(|words| words.join(" ")).collect::<Vec<_>>());
        assert_eq!(levels(1), None);
        assert_eq!(levels(2), Some(vec![String::new(), "+S 1:1".to_owned()]));
        assert_eq!(levels(8), Some(vec![String::new(), "+S 7:7".to_owned(), "+S 4:4".to_owned()]));
    }

    #[test]
    fn levels_that_prevent_the_start_are_fatal() {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<String>>();
        let knob = |name: &str, levels: &[&str]| Knob {
            name: name.to_owned(),
            levels: std::iter::once(Vec::new()).chain(levels.iter().map(|level| words(level))).collect(),
            ordered: false,
        };
        let knobs = [
            knob("pollsets", &["+IOp 2", "+IOp 4"]),
            knob("poll threads", &["+IOt 2", "+IOt 8"]),
            knob("binding", &["+sbt db"]),
            knob("busy wait", &["+sbwt none"]),
        ];
        let found = fatal_levels(&knobs, &words("+IOt 4 +ssrct -sname x"), 25);
        assert_eq!(
            found,
            [vec![(2, 1)], vec![(0, 2), (1, 1)]],
            "binding without topology; more pollsets than threads"
        );
    }

    #[test]
    fn point_sets_the_flags_of_its_levels() {
        let knobs = knobs(&otp("27.2"), 1);
        let mut point = space(&knobs).default_point();
        assert!(flags(&knobs, &point).is_empty());
        point[0] = 2;
        point[2] = 1;
        assert_eq!(flags(&knobs, &point).join(" "), "+sbwt none +sbwtdcpu none +sbwtdio none +sub true");
    }
}
