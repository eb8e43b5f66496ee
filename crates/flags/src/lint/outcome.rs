//! What a VM of a release makes of a setting.
//!
//! A release is more than one version. What its first version refuses and a later one takes is no error: it depends on
//! the patch level, which nobody has told.

use crate::OtpVersion;
use crate::entry::{Argument, Entry, WhereAbsent};
use crate::takes::{Altered, Machine, Question, Takes, Verdict};

use super::node::{Setting, Value, Via};

/// Whether a release has a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Presence {
    /// From its first version on.
    There,
    /// From this patch level on.
    From(OtpVersion),
    /// It came later, with this version.
    NotYet(OtpVersion),
    /// It was removed in this version.
    Gone(OtpVersion),
}

/// What a release makes of a setting.
#[derive(Debug, Clone)]
pub(super) struct Outcome {
    pub(super) release: u32,
    pub(super) presence: Presence,
    /// What the newest version of the release makes of it.
    pub(super) verdict: Verdict,
    /// The first version of the release that takes the value, where older ones refuse it.
    pub(super) value_from: Option<OtpVersion>,
    /// It is accepted and has no effect since this version.
    pub(super) ignored_since: Option<OtpVersion>,
}

impl Outcome {
    /// Whether the VM starts, as far as is known.
    pub(super) fn starts(&self) -> bool {
        !matches!(self.verdict, Verdict::Refused { .. } | Verdict::Fatal { .. })
    }

    pub(super) fn altered(&self) -> &[Altered] {
        match &self.verdict {
            Verdict::Accepted { altered, .. } => altered,
            _ => &[],
        }
    }

    pub(super) fn effective(&self) -> Option<&str> {
        match &self.verdict {
            Verdict::Accepted { effective, .. } => effective.as_deref(),
            _ => None,
        }
    }
}

/// A version that is newer than all of its release.
fn newest(release: u32) -> OtpVersion {
    OtpVersion::parse(&format!("{release}.9999")).unwrap_or_else(|| OtpVersion::from(release))
}

fn presence(entry: &Entry, release: u32) -> Presence {
    let first = OtpVersion::from(release);
    if let Some(gone) = entry.removed_in.as_ref().filter(|gone| **gone <= first) {
        return Presence::Gone(gone.clone());
    }
    if entry.exists_in(first) {
        return Presence::There;
    }
    match entry.since.iter().find(|since| since.release() == release) {
        Some(patch) => Presence::From(patch.clone()),
        None => Presence::NotYet(entry.since.first().cloned().unwrap_or_else(|| OtpVersion::from(release))),
    }
}

/// What each of these releases makes of a setting whose flag is known.
pub(super) fn outcomes(
    setting: &Setting<'_>,
    entry: &Entry,
    releases: &[u32],
    machine: Option<Machine>,
) -> Vec<Outcome> {
    releases.iter().map(|release| outcome(setting, entry, *release, machine)).collect()
}

fn outcome(setting: &Setting<'_>, entry: &Entry, release: u32, machine: Option<Machine>) -> Outcome {
    let presence = presence(entry, release);
    let newest = newest(release);
    let value = match &setting.value {
        Value::Text(text) => Some(Some(text.as_str())),
        Value::Absent | Value::Missing => Some(None),
        Value::Unknown => None,
    };
    let judge = |otp: &OtpVersion| match value {
        Some(value) => entry.judge(&Question { value, otp, allocator: setting.letter, machine }),
        None => Verdict::Unknown { why: "its value is filled in later".to_owned() },
    };
    let absent = matches!(presence, Presence::NotYet(_) | Presence::Gone(_));
    let mut verdict = judge(&newest);
    if absent && entry.where_absent == WhereAbsent::Refused {
        let refused = Verdict::Refused { why: format!("OTP {release} does not have {}", entry.spelling()) };
        // What an application asks for is no flag: nobody refuses it.
        let no_flag = setting.via == Via::Kernel;
        verdict = if no_flag { Verdict::Unknown { why: "nobody asks for it".to_owned() } } else { refused };
    }
    let glued = setting.via == Via::Flag && setting.words.len() == 1;
    let apart = setting.via == Via::Flag && setting.words.len() > 1;
    let signed = setting.known_value().is_some_and(|value| is_taken_for_flag(setting.name, value, release));
    if apart && signed && !absent {
        verdict = Verdict::Refused {
            why: "the launcher takes a word that begins with a sign for the next flag".to_owned(),
        };
    }
    let begins_known = |takes: &Takes| {
        let mut known = takes.words.iter().chain(&takes.refuses).filter(|known| !known.is_empty());
        setting.known_value().is_some_and(|value| known.any(|known| value.starts_with(known.as_str())))
    };
    if glued
        && entry.argument == Some(Argument::Optional)
        && matches!(verdict, Verdict::Refused { .. })
        && entry.takes.iter().any(begins_known)
    {
        // Some letters are refused as a word of their own only, as in `+B c` before 25.0; and what stands behind them in the word of
        // the flag is not read.
        verdict = Verdict::Unknown { why: "it stands in the word of the flag".to_owned() };
    }
    if setting.via == Via::Kernel && !absent {
        // When and by whom a parameter is read decides what comes of it.
        verdict = match verdict {
            Verdict::Fatal { why } => Verdict::Refused { why },
            other => other,
        };
    }
    let starts = |verdict: &Verdict| !matches!(verdict, Verdict::Refused { .. } | Verdict::Fatal { .. });
    let value_from =
        (presence == Presence::There && starts(&verdict) && !starts(&judge(&OtpVersion::from(release))))
            .then(|| {
                let steps = entry.takes.iter().filter_map(|step| step.from.clone());
                steps.filter(|from| from.release() == release && starts(&judge(from))).min()
            })
            .flatten();
    let ignored_since = entry.ignored_since.clone().filter(|ignored| *ignored <= newest && starts(&verdict));
    Outcome { release, presence, verdict, value_from, ignored_since }
}

/// Whether the launcher of a release takes a value with a sign for the next flag, and misses the value: that of OTP 23 does so for
/// these families of flags, that of OTP 25 for none. OTP 24 was not tried.
pub(super) fn is_taken_for_flag(name: &str, value: &str, release: u32) -> bool {
    const LAST: u32 = 23;
    let family = ["+h", "+s", "+z", "+M"].iter().any(|family| name.starts_with(family));
    release <= LAST && family && value.starts_with(['-', '+'])
}
