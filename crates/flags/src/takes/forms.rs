//! Forms of values other than plain numbers and keywords, such as `+S 4:2`.

mod topology;

use serde::Deserialize;

use super::judge::{ValueQuery, Verdict};
use super::number;

/// The form of a value that is not a plain number or keyword.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// Any word.
    Any,
    /// No value is accepted: the allocator does not have the flag.
    Refused,
    /// Any word that starts with one of the listed keywords, which are single letters.
    FirstLetter,
    /// `N`, `N:M` or `:M`: the number of schedulers, in total and online.
    Schedulers,
    /// Like `Schedulers`, for dirty CPU schedulers: both numbers are limited to those of the normal schedulers.
    DirtySchedulers,
    /// `A`, `A:B` or `:B`: the numbers of schedulers, in percent of the default or of the numbers that `+S` gives.
    SchedulerPercent,
    /// Like `SchedulerPercent`, for dirty CPU schedulers.
    DirtySchedulerPercent,
    /// A CPU topology: `L0-3c0-3`.
    CpuTopology,
    /// The number of the VM's own release or of one of the two releases before.
    Release,
    /// The name of an installed emulator.
    Installed,
    /// A host and a port.
    Address,
    /// A file or a directory.
    Path,
    /// Flags, as on the command line.
    Flags,
    /// An Erlang term; [`Entry::values`](crate::Entry::values) describes it.
    Term,
    /// Same values as for the other allocators.
    AsOthers,
}

/// The host's CPUs, which decide whether a value is accepted and what its effect is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostCpus {
    /// Logical processors: `erlang:system_info(logical_processors)`.
    pub processors: u32,
    /// Number of schedulers online by default: the processors available to the VM, limited by its CPU quota.
    pub online: u32,
}

/// `ERTS_MAX_NO_OF_SCHEDULERS` of OTP 23 to 27.
const MAX_SCHEDULERS: i32 = 1024;

impl Form {
    pub(super) fn describe(self) -> &'static str {
        match self {
            Form::Any => "anything",
            Form::Refused => "nothing",
            Form::FirstLetter => "a word that starts with",
            Form::Schedulers | Form::DirtySchedulers => {
                "N, N:M or :M; 0 or less is added to the number of processors"
            }
            Form::SchedulerPercent | Form::DirtySchedulerPercent => "A, A:B or :B, in percent",
            Form::CpuTopology => "L<ids>[t<ids>][c<ids>][p<ids>][n<ids>][:...]",
            Form::Release => "the VM's release or one of the two before",
            Form::Installed => "an installed emulator",
            Form::Address => "host:port",
            Form::Path => "a path",
            Form::Flags => "flags",
            Form::Term => "an Erlang term",
            Form::AsOthers => "as for other allocators",
        }
    }

    /// Determines how a VM treats a value. Returns `None` if the value does not have this form; it may still be a valid
    /// keyword or number.
    pub(super) fn judge(self, text: &str, words: &[String], question: &ValueQuery<'_>) -> Option<Verdict> {
        let machine = question.host_cpus;
        Some(match self {
            Form::Any => Verdict::accepted(None),
            Form::Refused => Verdict::refused("this allocator does not have the flag"),
            Form::FirstLetter => {
                let claimed = words.iter().any(|word| !word.is_empty() && text.starts_with(word.as_str()));
                // A complete keyword is treated like any other keyword.
                return (claimed && !words.iter().any(|word| word == text))
                    .then(|| Verdict::first_letter(text));
            }
            Form::Schedulers => verdict(schedulers(text, machine)),
            Form::DirtySchedulers => verdict(schedulers(text, machine).map(|sizes| sizes.cut(machine))),
            Form::SchedulerPercent => verdict(percent(text).and_then(|percent| percent.of(machine))),
            Form::DirtySchedulerPercent => {
                verdict(percent(text).and_then(|percent| percent.of_dirty(machine)))
            }
            Form::CpuTopology => match topology::check(text) {
                Ok(()) => Verdict::accepted(None),
                Err(why) => Verdict::refused(why),
            },
            Form::Release => release(text, question.otp.release()),
            Form::Installed => Verdict::unknown("depends on the installed emulators"),
            Form::Address | Form::Path | Form::Flags | Form::Term | Form::AsOthers => {
                Verdict::unknown("values of this form cannot be checked")
            }
        })
    }
}

/// Numbers of schedulers. Some depend on the host, which may be unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sizes {
    Known {
        all: i64,
        online: i64,
    },
    /// The value is accepted, but the resulting numbers depend on the host.
    Taken,
    /// Whether the value is accepted depends on the host.
    Depends,
}

impl Sizes {
    /// Limits dirty CPU schedulers to the default number of normal schedulers, because the value of `+S` is unknown here.
    fn cut(self, machine: Option<HostCpus>) -> Sizes {
        match (self, machine) {
            (Sizes::Known { all, online }, Some(machine)) => Sizes::Known {
                all: all.min(i64::from(machine.processors)),
                online: online.min(i64::from(machine.online)),
            },
            (Sizes::Known { .. }, None) => Sizes::Taken,
            (other, _) => other,
        }
    }
}

fn verdict(sizes: Result<Sizes, String>) -> Verdict {
    match sizes {
        Ok(Sizes::Known { all, online }) => Verdict::accepted(Some(format!("{{{all},{online}}}"))),
        Ok(Sizes::Taken) => Verdict::accepted(None),
        Ok(Sizes::Depends) => Verdict::unknown("depends on the number of processors"),
        Err(why) => Verdict::refused(why),
    }
}

/// Parses the two numbers of `N`, `N:M` or `:M`.
fn pair(text: &str) -> Option<(Option<i32>, Option<i32>)> {
    match number::scan(text) {
        Some((first, rest)) => {
            let second = rest.strip_prefix(':').and_then(number::scan);
            Some((Some(first), second.map(|(second, _)| second)))
        }
        None => {
            let (second, _) = number::scan(text.strip_prefix(':')?)?;
            Some((None, Some(second)))
        }
    }
}

/// Parses numbers of schedulers as `early_init` of `erl_init.c` does.
fn schedulers(text: &str, machine: Option<HostCpus>) -> Result<Sizes, String> {
    let (all, online) =
        pair(text).ok_or_else(|| format!("`{text}` is not a number of schedulers (N, N:M or :M)"))?;
    let (all, online) = match (machine, all, online) {
        (Some(machine), all, online) => on(machine, all, online),
        // Without M, the default number of schedulers is online, but at most N.
        (None, Some(all @ 1..=MAX_SCHEDULERS), None) => {
            return Ok(if all == 1 { Sizes::Known { all: 1, online: 1 } } else { Sizes::Taken });
        }
        (None, Some(all @ 1..), None) => (i64::from(all), 1),
        (None, Some(all @ 1..), Some(online @ 1..)) => (i64::from(all), i64::from(online)),
        (None, _, _) => return Ok(Sizes::Depends),
    };
    if !(1..=i64::from(MAX_SCHEDULERS)).contains(&all) {
        return Err(format!("{all} schedulers; accepted: 1 to {MAX_SCHEDULERS}"));
    }
    if !(1..=all).contains(&online) {
        return Err(format!("{online} schedulers online, but only {all} in total"));
    }
    Ok(Sizes::Known { all, online })
}

fn on(machine: HostCpus, all: Option<i32>, online: Option<i32>) -> (i64, i64) {
    let (processors, default) = (i64::from(machine.processors), i64::from(machine.online));
    // Without M, the default number is online, but at most N. For `:M`, N is the number of processors.
    let online = match (all, online) {
        (_, Some(online)) => i64::from(online),
        (Some(all), None) => i64::from(all).min(default),
        (None, None) => default,
    };
    let all = all.map_or(processors, i64::from);
    (if all > 0 { all } else { processors + all }, if online > 0 { online } else { default + online })
}

struct Percent {
    all: i64,
    online: i64,
}

fn percent(text: &str) -> Result<Percent, String> {
    let refused = || format!("`{text}` is not a percentage of schedulers (A, A:B or :B)");
    let (all, online) = pair(text).ok_or_else(refused)?;
    let (all, online) = match (all, online) {
        (Some(all), Some(online)) => (all, online),
        (Some(all), None) => (all, all.min(100)),
        (None, online) => (100, online.unwrap_or(100)),
    };
    if all < 0 || online < 0 {
        return Err(refused());
    }
    Ok(Percent { all: i64::from(all), online: i64::from(online) })
}

impl Percent {
    fn of(&self, machine: Option<HostCpus>) -> Result<Sizes, String> {
        let Some(machine) = machine else {
            // Any host accepts a value with at most as many schedulers online as in total, and at most the default.
            return Ok(if self.online <= self.all && self.all <= 100 {
                Sizes::Taken
            } else {
                Sizes::Depends
            });
        };
        let (all, online) = self.part(machine);
        if all > i64::from(MAX_SCHEDULERS) {
            return Err(format!("{all} schedulers; accepted: 1 to {MAX_SCHEDULERS}"));
        }
        if online > all {
            return Err(format!("{online} schedulers online, but only {all} in total"));
        }
        Ok(Sizes::Known { all, online })
    }

    fn of_dirty(&self, machine: Option<HostCpus>) -> Result<Sizes, String> {
        Ok(match machine {
            Some(machine) => {
                let (all, online) = self.part(machine);
                Sizes::Known { all, online: online.min(all) }.cut(Some(machine))
            }
            None => Sizes::Taken,
        })
    }

    fn part(&self, machine: HostCpus) -> (i64, i64) {
        let part = |whole: u32, percent: i64| (i64::from(whole) * percent / 100).max(1);
        (part(machine.processors, self.all), part(machine.online, self.online))
    }
}

fn release(text: &str, own: u32) -> Verdict {
    let asked = number::scan(text).map_or(0, |(number, _)| i64::from(number));
    let own = i64::from(own);
    if (own - 2..=own).contains(&asked) {
        Verdict::accepted(Some(asked.to_string()))
    } else {
        Verdict::refused(format!("OTP {own} accepts {} to {own}", own - 2))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::OtpVersion;

    const TWO: Option<HostCpus> = Some(HostCpus { processors: 2, online: 2 });
    const QUOTA: Option<HostCpus> = Some(HostCpus { processors: 64, online: 2 });

    fn judged(form: Form, text: &str, machine: Option<HostCpus>) -> String {
        let otp = OtpVersion::from(27);
        let question = ValueQuery { value: Some(text), otp: &otp, allocator: None, host_cpus: machine };
        match form.judge(text, &[], &question) {
            Some(Verdict::Accepted { effective, .. }) => effective.unwrap_or_else(|| "taken".to_owned()),
            Some(Verdict::Refused { .. }) => "refused".to_owned(),
            Some(Verdict::Unknown { .. }) => "depends".to_owned(),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn scheduler_counts_are_parsed_as_in_the_emulator() {
        let check = |text: &str, anywhere: &str, on_two: &str, under_quota: &str| {
            assert_eq!(judged(Form::Schedulers, text, None), anywhere, "{text} anywhere");
            assert_eq!(judged(Form::Schedulers, text, TWO), on_two, "{text} on two processors");
            assert_eq!(judged(Form::Schedulers, text, QUOTA), under_quota, "{text} under a quota");
        };
        check("4:2", "{4,2}", "{4,2}", "{4,2}");
        check("4", "taken", "{4,2}", "{4,2}");
        check("1", "{1,1}", "{1,1}", "{1,1}");
        check("2:4", "refused", "refused", "refused");
        check(":2", "depends", "{2,2}", "{64,2}");
        check(":3", "depends", "refused", "{64,3}");
        check("0", "depends", "{2,2}", "{64,2}");
        check("-1", "depends", "{1,1}", "{63,1}");
        check("1024", "taken", "{1024,2}", "{1024,2}");
        check("1025", "refused", "refused", "refused");
        check("1025:1", "refused", "refused", "refused");
        check("4:2x", "{4,2}", "{4,2}", "{4,2}");
        check("4:", "taken", "{4,2}", "{4,2}");
        check("zzz", "refused", "refused", "refused");
        check("", "refused", "refused", "refused");
    }

    #[test]
    fn dirty_cpu_schedulers_are_limited_to_the_number_of_normal_schedulers() {
        let check = |text: &str, on_two: &str| {
            assert_eq!(judged(Form::DirtySchedulers, text, TWO), on_two, "{text}");
        };
        check("1:1", "{1,1}");
        check("8:8", "{2,2}");
        check("8:9", "refused");
        assert_eq!(judged(Form::DirtySchedulers, "8:8", None), "taken");
    }

    #[test]
    fn percentages_refer_to_the_processors_of_the_host() {
        let check = |text: &str, anywhere: &str, on_two: &str| {
            assert_eq!(judged(Form::SchedulerPercent, text, None), anywhere, "{text} anywhere");
            assert_eq!(judged(Form::SchedulerPercent, text, TWO), on_two, "{text} on two processors");
        };
        check("50:50", "taken", "{1,1}");
        check("50", "taken", "{1,1}");
        check("0", "taken", "{1,1}");
        check("50:100", "depends", "refused");
        check("200", "depends", "{4,2}");
        check(":50", "taken", "{2,1}");
        check("-1", "refused", "refused");
        check("100000", "depends", "refused");
        assert_eq!(judged(Form::DirtySchedulerPercent, "200:200", TWO), "{2,2}");
        assert_eq!(judged(Form::DirtySchedulerPercent, "50:100", TWO), "{1,1}");
    }

    #[test]
    fn compatibility_release_must_be_one_of_the_last_three() {
        let check =
            |text: &str, expect: &str| assert_eq!(judged(Form::Release, text, None), expect, "{text}");
        check("27", "27");
        check("25", "25");
        check("24", "refused");
        check("28", "refused");
        check("r27", "refused");
    }

    proptest! {
        #[test]
        fn any_value_is_checked_without_a_panic(text in "[-+:,0-9LtcpnN ]{0,12}") {
            for form in [Form::Schedulers, Form::DirtySchedulers, Form::SchedulerPercent,
                Form::DirtySchedulerPercent, Form::CpuTopology, Form::Release] {
                for machine in [None, TWO, QUOTA] {
                    judged(form, &text, machine);
                }
            }
        }

        #[test]
        fn verdict_for_an_unknown_host_is_true_for_every_host(text in "[-:0-9]{1,6}", processors in 1_u32..200) {
            let machine = Some(HostCpus { processors, online: processors.div_ceil(2) });
            for form in [Form::Schedulers, Form::SchedulerPercent] {
                let (anywhere, here) = (judged(form, &text, None), judged(form, &text, machine));
                match anywhere.as_str() {
                    "taken" => prop_assert!(here != "refused", "{} is {}", text, here),
                    "depends" => {}
                    _ => prop_assert_eq!(anywhere, here),
                }
            }
        }
    }
}
