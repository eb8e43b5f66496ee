//! Determines how a VM of one release treats a setting.
//!
//! A release comprises several versions. If the first version rejects a setting and a later version accepts it, no error is reported,
//! because the patch level is unknown.

use crate::OtpVersion;
use crate::entry::{AbsentBehavior, Argument, Entry};
use crate::takes::{AcceptedValues, HostCpus, SilentChange, ValueQuery, Verdict};

use super::node::{Setting, SettingKind, Value};

/// Whether a release has a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Presence {
    /// All versions of the release have the setting.
    There,
    /// The release has the setting since this patch level.
    From(OtpVersion),
    /// The setting was added later, in this version.
    NotYet(OtpVersion),
    /// The setting was removed in this version.
    Gone(OtpVersion),
}

/// How one release treats a setting.
#[derive(Debug, Clone)]
pub(super) struct Outcome {
    pub(super) release: u32,
    pub(super) presence: Presence,
    /// The verdict of the newest version of the release.
    pub(super) verdict: Verdict,
    /// The first version of the release that accepts the value, if earlier ones reject it.
    pub(super) value_from: Option<OtpVersion>,
    /// The first version that accepts the setting but ignores it.
    pub(super) ignored_since: Option<OtpVersion>,
}

impl Outcome {
    /// Whether the VM starts, or may start if the verdict is unknown.
    pub(super) fn starts(&self) -> bool {
        !matches!(self.verdict, Verdict::Refused { .. } | Verdict::Fatal { .. })
    }

    pub(super) fn altered(&self) -> &[SilentChange] {
        match &self.verdict {
            Verdict::Accepted { changes: altered, .. } => altered,
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

/// Returns a version that is newer than all versions of the release.
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

/// Determines how each of these releases treats a setting with a known flag.
pub(super) fn outcomes(
    setting: &Setting<'_>,
    entry: &Entry,
    releases: &[u32],
    machine: Option<HostCpus>,
) -> Vec<Outcome> {
    releases.iter().map(|release| outcome(setting, entry, *release, machine)).collect()
}

fn outcome(setting: &Setting<'_>, entry: &Entry, release: u32, machine: Option<HostCpus>) -> Outcome {
    let presence = presence(entry, release);
    let newest = newest(release);
    let value = match &setting.value {
        Value::Text(text) => Some(Some(text.as_str())),
        Value::Absent | Value::Missing => Some(None),
        Value::Unknown => None,
    };
    let judge = |otp: &OtpVersion| match value {
        Some(value) => entry.judge(&ValueQuery { value, otp, allocator: setting.letter, host_cpus: machine }),
        None => Verdict::Unknown { why: "its value is a template".to_owned() },
    };
    let absent = matches!(presence, Presence::NotYet(_) | Presence::Gone(_));
    let mut verdict = judge(&newest);
    if absent && entry.absent_behavior == AbsentBehavior::Refused {
        let refused = Verdict::Refused { why: format!("OTP {release} does not have {}", entry.spelling()) };
        // Unlike an unknown flag, an unknown parameter is ignored.
        let no_flag = setting.kind == SettingKind::Kernel;
        verdict = if no_flag { Verdict::Unknown { why: "nothing reads it".to_owned() } } else { refused };
    }
    let glued = setting.kind == SettingKind::Flag && setting.words.len() == 1;
    let apart = setting.kind == SettingKind::Flag && setting.words.len() > 1;
    let signed = setting.known_value().is_some_and(|value| is_taken_for_flag(setting.name, value, release));
    if apart && signed && !absent {
        verdict = Verdict::Refused {
            why: "the launcher takes a word with a leading sign as the next flag".to_owned(),
        };
    }
    let begins_known = |takes: &AcceptedValues| {
        let mut known = takes.words.iter().chain(&takes.refuses).filter(|known| !known.is_empty());
        setting.known_value().is_some_and(|value| known.any(|known| value.starts_with(known.as_str())))
    };
    if glued
        && entry.argument == Some(Argument::Optional)
        && matches!(verdict, Verdict::Refused { .. })
        && entry.accepts.iter().any(begins_known)
    {
        // Some letters are rejected only as a separate word, such as `+B c` before 25.0. In the same word, text after them is ignored.
        verdict = Verdict::Unknown { why: "it is in the same word as the flag".to_owned() };
    }
    if setting.kind == SettingKind::Kernel && !absent {
        // The effect of an invalid parameter depends on when and by which application it is read.
        verdict = match verdict {
            Verdict::Fatal { why } => Verdict::Refused { why },
            other => other,
        };
    }
    let starts = |verdict: &Verdict| !matches!(verdict, Verdict::Refused { .. } | Verdict::Fatal { .. });
    let value_from =
        (presence == Presence::There && starts(&verdict) && !starts(&judge(&OtpVersion::from(release))))
            .then(|| {
                let steps = entry.accepts.iter().filter_map(|step| step.from.clone());
                steps.filter(|from| from.release() == release && starts(&judge(from))).min()
            })
            .flatten();
    let ignored_since = entry.ignored_since.clone().filter(|ignored| *ignored <= newest && starts(&verdict));
    Outcome { release, presence, verdict, value_from, ignored_since }
}

/// Whether the launcher of a release takes a value with a sign for the next flag, and therefore reports a missing value. OTP 23 does so for
/// these families of flags, OTP 25 for none; OTP 24 was not tested.
pub(super) fn is_taken_for_flag(name: &str, value: &str, release: u32) -> bool {
    const LAST_RELEASE: u32 = 23;
    let family = ["+h", "+s", "+z", "+M"].iter().any(|family| name.starts_with(family));
    release <= LAST_RELEASE && family && value.starts_with(['-', '+'])
}
