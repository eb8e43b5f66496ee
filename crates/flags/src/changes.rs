//! Lists the settings that changed between two OTP versions.

use crate::entry::{Entry, Kind};
use crate::{OtpVersion, entries};

/// A change of a setting between two versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The id of the setting.
    pub id: &'static str,
    /// The change.
    pub kind: ChangeKind,
}

/// The kind of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangeKind {
    /// Only the newer version has the setting.
    New,
    /// The newer version rejects the setting.
    Removed,
    /// The newer version accepts the setting but ignores it.
    WithoutEffect,
    /// The default changed.
    Default {
        /// The default in the older version.
        from: &'static str,
        /// The default in the newer version.
        to: &'static str,
    },
    /// The accepted values changed, or the way in which the VM changes them.
    AcceptedValues {
        /// The values that the older version accepts, as formatted by [`Takes::describe`](crate::Takes::describe).
        from: String,
        /// The values that the newer version accepts.
        to: String,
    },
    /// The spelling changed, or a new one was added.
    Spelling {
        /// The former spelling.
        from: &'static str,
        /// The current spelling.
        to: &'static str,
    },
    /// The effect changed.
    Effect {
        /// The first version with the change.
        at: &'static OtpVersion,
        /// What changed.
        text: &'static str,
    },
}

/// Returns the changes from one version to a later one, in the order of the catalogue. Empty if `to` is not later.
///
/// A release without a patch level means its first version: 25 to 26 means 25.0 to 26.0.
pub fn changes(from: impl Into<OtpVersion>, to: impl Into<OtpVersion>) -> Vec<Change> {
    let (from, to) = (from.into(), to.into());
    if from >= to {
        return Vec::new();
    }
    let bound_to_releases = entries()
        .iter()
        .filter(|entry| !matches!(entry.kind, Kind::HostSetting | Kind::Build | Kind::CodeChange));
    bound_to_releases
        .flat_map(|entry| {
            differences(entry, &from, &to).into_iter().map(move |what| Change { id: &entry.id, kind: what })
        })
        .collect()
}

fn differences(entry: &'static Entry, from: &OtpVersion, to: &OtpVersion) -> Vec<ChangeKind> {
    let between = |at: &OtpVersion| from < at && at <= to;
    let mut found: Vec<_> = entry
        .former_spellings
        .iter()
        .filter(|formerly| between(&formerly.until))
        .map(|formerly| ChangeKind::Spelling { from: &formerly.is, to: entry.spelling() })
        .collect();
    match (entry.exists_in(from.clone()), entry.exists_in(to.clone())) {
        (false, false) => return Vec::new(),
        (false, true) if found.is_empty() => return vec![ChangeKind::New],
        // The setting existed under another name.
        (false, true) => return found,
        (true, false) => return vec![ChangeKind::Removed],
        (true, true) => {}
    }
    match (entry.works_in(from.clone()), entry.works_in(to.clone())) {
        (true, false) => found.push(ChangeKind::WithoutEffect),
        // A setting without effect cannot change its effect.
        (false, _) => return found,
        (true, true) => {}
    }
    if let (Some(before), Some(now)) = (entry.default_in(from.clone()), entry.default_in(to.clone()))
        && before != now
    {
        found.push(ChangeKind::Default { from: before, to: now });
    }
    if let (Some(before), Some(now)) = (entry.accepted_in(from.clone()), entry.accepted_in(to.clone()))
        && !before.same_values(now)
    {
        found.push(ChangeKind::AcceptedValues { from: before.describe(), to: now.describe() });
    }
    found.extend(
        entry
            .effect_changes
            .iter()
            .filter(|news| between(&news.at))
            .map(|news| ChangeKind::Effect { at: &news.at, text: &news.text }),
    );
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry;

    fn version(text: &str) -> OtpVersion {
        OtpVersion::parse(text).expect(text)
    }

    fn of(id: &str, from: &str, to: &str) -> Vec<ChangeKind> {
        assert!(entry(id).is_some(), "{id}");
        changes(version(from), version(to))
            .into_iter()
            .filter(|change| change.id == id)
            .map(|change| change.kind)
            .collect()
    }

    #[test]
    fn new_defaults_are_reported() {
        assert_eq!(of("+P", "26", "27"), [ChangeKind::Default { from: "262144", to: "1048576" }]);
        assert_eq!(
            of("+C", "25", "26"),
            [ChangeKind::Default { from: "no_time_warp", to: "multi_time_warp" }]
        );
        assert_eq!(of("+P", "25", "26"), []);
        assert_eq!(of("+M<S>cp", "23.3", "24"), [ChangeKind::Default { from: "@", to: "its own letter" }]);
        assert_eq!(
            of("kernel.prevent_overlapping_partitions", "24.3", "25"),
            [ChangeKind::Default { from: "false", to: "true" }]
        );
    }

    #[test]
    fn new_and_removed_settings_are_reported() {
        assert_eq!(of("+hmaxib", "25", "26"), [ChangeKind::New]);
        assert_eq!(of("+Mdai", "24", "25"), [ChangeKind::New]);
        assert_eq!(of("+Mit", "23", "24"), [ChangeKind::Removed]);
        assert_eq!(of("+MX<P>", "23", "24"), [ChangeKind::Removed]);
        // The first versions of the next release do not have the backported setting.
        assert_eq!(of("+zosrl", "23.3.4.10", "24"), [ChangeKind::Removed]);
        assert_eq!(of("+zosrl", "23.3.4.10", "24.2"), []);
        assert_eq!(of("+K", "20", "21"), [ChangeKind::WithoutEffect]);
        assert_eq!(of("+K", "21", "29"), []);
    }

    #[test]
    fn changed_values_are_reported() {
        let takes = |id: &str, from: &str, to: &str| match of(id, from, to).as_slice() {
            [ChangeKind::AcceptedValues { from, to }] => (from.clone(), to.clone()),
            other => panic!("{id}: {other:?}"),
        };
        assert_eq!(takes("+Mea", "25", "26"), ("min | max | config".to_owned(), "min | max".to_owned()));
        let (before, now) = takes("+A", "22", "23");
        assert!(!before.contains("raised") && now.contains("raised to 1"), "{before}; {now}");
        assert!(takes("ets.write_concurrency", "24", "25").1.ends_with("auto"));
    }

    #[test]
    fn changed_spellings_and_effects_are_reported() {
        assert_eq!(
            of("kernel.connect_all", "24", "25"),
            [ChangeKind::Spelling { from: "-connect_all", to: "-kernel connect_all" }]
        );
        assert!(
            matches!(of("+S", "22", "23").as_slice(), [ChangeKind::Effect { text, .. }] if text.contains("cgroup v1"))
        );
    }

    /// Returns the ids of new settings, and all other changes as `id: change`.
    fn summarised(from: &str, to: &str) -> (Vec<&'static str>, Vec<String>) {
        let mut new = Vec::new();
        let mut others = Vec::new();
        for change in changes(version(from), version(to)) {
            match change.kind {
                ChangeKind::New => new.push(change.id),
                ChangeKind::Removed => others.push(format!("{}: removed", change.id)),
                ChangeKind::WithoutEffect => others.push(format!("{}: without effect", change.id)),
                ChangeKind::Default { from, to } => others.push(format!("{}: {from}, now {to}", change.id)),
                ChangeKind::AcceptedValues { .. } => others.push(format!("{}: takes", change.id)),
                ChangeKind::Spelling { .. } => others.push(format!("{}: spelling", change.id)),
                ChangeKind::Effect { at, .. } => others.push(format!("{}: effect of {at}", change.id)),
            }
        }
        new.sort_unstable();
        others.sort_unstable();
        (new, others)
    }

    #[test]
    fn upgrade_from_25_to_29_matches_the_release_notes() {
        // Source: ERTS and Kernel release notes of OTP 25.0 to 29.0.
        let (new, others) = summarised("25.0", "29.0");
        assert_eq!(
            new,
            [
                "+D",
                "+Dibpl",
                "+JM<P>",
                "+JMsingle",
                "+JPcover",
                "+JPperfdirectory",
                "+M<S>acful",
                "+MMlp",
                "+Mumadtn",
                "+hmaxib",
                "+pad",
                "+zhft",
                "-code_path_cache",
                "ERL_CRASH_DUMP_PUBLIC_KEY",
                "kernel.log_missed_net_ticks",
                "process.async_dist",
                "socket.read_ahead",
                "socket.reuseport",
                "socket.reuseport_lb",
            ]
        );
        assert_eq!(
            others,
            [
                "+C: no_time_warp, now multi_time_warp",
                "+IOs: effect of 28.0",
                "+JPperf: takes",
                "+M<S>atags: takes",
                "+Mea: takes",
                "+P: 262144, now 1048576",
                "+S: effect of 26.1",
                "+hmax: takes",
                "ets.named_table: effect of 29.0",
                "socket.inet_backend: effect of 27.0",
            ]
        );
    }

    #[test]
    fn upgrade_from_23_to_25_matches_the_release_notes() {
        let (new, others) = summarised("23.2", "25.0");
        for id in ["+IOs", "+JPperf", "+Mdai", "+ssrct", "+zosrl", "kernel.net_ticker_spawn_options"] {
            assert!(new.contains(&id), "{id}: {new:?}");
        }
        for change in [
            "+M<S>cp: @, now its own letter",
            "+MX<P>: removed",
            "+Mit: removed",
            "+Muycs: takes",
            "+S: effect of 23.3",
            "ERL_MALLOC_LIB: removed",
            "ets.write_concurrency: takes",
            "kernel.connect_all: spelling",
            "process.message_queue_data: effect of 25.0",
        ] {
            assert!(others.iter().any(|other| other == change), "{change}: {others:?}");
        }
    }

    #[test]
    fn the_same_or_an_older_version_has_no_changes() {
        assert_eq!(changes(27, 27), []);
        assert_eq!(changes(27, 25), []);
    }

    #[test]
    fn upgrade_by_two_releases_includes_the_changes_of_each_release() {
        for change in changes(24, 25).into_iter().chain(changes(25, 26)) {
            // A setting that appears in OTP 25 and changes in OTP 26 is reported as new from OTP 24 to 26.
            let over_both: Vec<_> =
                changes(24, 26).into_iter().filter(|found| found.id == change.id).collect();
            assert!(!over_both.is_empty(), "{change:?}");
        }
    }
}
