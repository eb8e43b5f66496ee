//! Lock classes of the emulator, by the names that lock counting (lcnt) prints.
//!
//! Lock counting reports which locks are contended. This catalogue lists what each lock protects, what usually
//! causes contention, and what helps. Names, kinds and releases come from the source code of the emulator; causes and
//! remedies come from experience. The data is in `data/locks.toml`.

use std::sync::OnceLock;

use serde::Deserialize;

use crate::OtpVersion;
use crate::catalog::broken;

const DATA: &str = include_str!("../data/locks.toml");

/// A lock class: all locks with the same name.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockClass {
    /// The name that lock counting prints: `db_tab`. Locks that a NIF library or port driver creates are not listed.
    pub name: String,
    /// The kinds of lock, in the order of releases; each one applies from its first release on.
    pub kind: Vec<LockKindSince>,
    /// The category by which lock counting is enabled for this class: `db`, `process`, `scheduler` …
    pub category: String,
    /// The number of locks in the class, such as one per table, for output.
    pub instances: String,
    /// The releases in [`LOOKED_AT`] that have this class.
    pub seen_in: Vec<u32>,
    /// The builds or platforms with this class; `None`: all.
    pub only_in: Option<String>,
    /// What the locks protect.
    pub protects: String,
    /// What usually causes contention.
    pub contended_by: String,
    /// Another class whose remedies apply here, too, and are listed first. That class must not refer to a third one.
    pub remedy_as: Option<String>,
    /// The remedies, best first; empty if none is known or needed.
    #[serde(default)]
    pub remedy: Vec<Alternative>,
    /// Settings that may help, as ids of their entries.
    #[serde(default)]
    pub settings: Vec<String>,
    /// The file below `erts/emulator` that creates the locks.
    pub source: String,
}

/// A remedy for contention of a lock class.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(from = "AlternativeData")]
pub struct Alternative {
    /// What to do, as a part of a sentence.
    pub text: String,
    /// The first version in which the remedy is available; `None`: all versions.
    pub since: Option<OtpVersion>,
    /// What to do in older versions; `None`: nothing.
    pub older: Option<String>,
    /// The first version in which the remedy no longer helps.
    pub removed_in: Option<OtpVersion>,
    /// The id of the setting that the remedy changes. The remedy is omitted if the node already has this setting.
    pub setting: Option<String>,
    /// The recommended value of the setting.
    pub value: Option<String>,
}

/// The form of an [`Alternative`] in the data: only a text if it has no conditions.
#[derive(Deserialize)]
#[serde(untagged)]
enum AlternativeData {
    Text(String),
    Fields(AlternativeFields),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AlternativeFields {
    text: String,
    since: Option<OtpVersion>,
    older: Option<String>,
    removed_in: Option<OtpVersion>,
    setting: Option<String>,
    value: Option<String>,
}

impl From<AlternativeData> for Alternative {
    fn from(data: AlternativeData) -> Self {
        match data {
            AlternativeData::Text(text) => {
                Alternative { text, since: None, older: None, removed_in: None, setting: None, value: None }
            }
            AlternativeData::Fields(AlternativeFields { text, since, older, removed_in, setting, value }) => {
                Alternative { text, since, older, removed_in, setting, value }
            }
        }
    }
}

impl Alternative {
    /// Returns what to do in a version, or if the version is unknown; `None` if the version lacks this remedy.
    pub fn text_in(&self, otp: Option<&OtpVersion>) -> Option<&str> {
        let Some(otp) = otp else { return Some(&self.text) };
        if self.removed_in.as_ref().is_some_and(|removed_in| otp >= removed_in) {
            return None;
        }
        match &self.since {
            Some(since) if otp < since => self.older.as_deref(),
            _ => Some(&self.text),
        }
    }
}

/// The releases whose source code was searched for locks.
pub const INSPECTED_RELEASES: [u32; 4] = [23, 25, 27, 29];

/// The kind of a lock, starting with one release.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockKindSince {
    /// The first inspected release with this kind; `None`: it applies from the first release on.
    pub from: Option<u32>,
    /// The kind.
    pub is: LockKind,
}

/// The kind of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LockKind {
    /// One owner at a time; waiting threads spin for a while, then sleep.
    Mutex,
    /// One writer or any number of readers.
    RwMutex,
    /// One owner at a time; waiting threads spin.
    Spinlock,
    /// One of the locks of an Erlang process, which share one machine word.
    ProcessLock,
}

impl LockClass {
    /// Whether this release has the class. For a release that was not inspected, the previous and the next inspected
    /// release must agree; otherwise the result is `None`.
    pub fn exists_in(&self, release: u32) -> Option<bool> {
        let before = INSPECTED_RELEASES.iter().rfind(|looked_at| **looked_at <= release)?;
        let after = INSPECTED_RELEASES.iter().find(|looked_at| **looked_at >= release)?;
        let (before, after) = (self.seen_in.contains(before), self.seen_in.contains(after));
        (before == after).then_some(before)
    }

    /// Returns all remedies as a sentence: `As for port_lock; several sockets.`
    pub fn remedy_text(&self) -> String {
        let other = self.remedy_as.as_ref().map(|other| format!("As for {other}"));
        let parts: Vec<String> =
            other.into_iter().chain(self.remedy.iter().map(|one| one.text.clone())).collect();
        if parts.is_empty() { "None.".to_owned() } else { format!("{}.", parts.join("; ")) }
    }

    /// Returns the kind of lock in this release.
    pub fn kind_in(&self, release: u32) -> Option<LockKind> {
        let step = self.kind.iter().rfind(|step| step.from.is_none_or(|from| release >= from));
        step.map(|step| step.is)
    }
}

/// Returns all lock classes.
pub fn lock_classes() -> &'static [LockClass] {
    static CLASSES: OnceLock<Vec<LockClass>> = OnceLock::new();
    CLASSES.get_or_init(|| toml::from_str::<File>(DATA).unwrap_or_else(|error| broken("locks", &error)).lock)
}

/// Finds the class of a lock by the name that lock counting prints. Ignores a number in brackets, as in the names of
/// socket locks (`esock.r[17]`). `None` for locks that a NIF library or port driver creates.
pub fn lock_class(name: &str) -> Option<&'static LockClass> {
    let name = name.split_once('[').map_or(name, |(name, _)| name);
    lock_classes().iter().find(|class| class.name == name)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    lock: Vec<LockClass>,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::entry;

    #[test]
    fn classes_are_unique_and_complete() {
        let mut seen = BTreeSet::new();
        for class in lock_classes() {
            let name = &class.name;
            assert!(seen.insert(name.as_str()), "duplicate class {name}");
            for text in [&class.protects, &class.contended_by, &class.remedy_text()] {
                assert!(text.ends_with('.') && text.trim() == text, "{name}: {text:?}");
            }
            for alternative in &class.remedy {
                assert!(!alternative.text.ends_with('.'), "{name}: {:?}", alternative.text);
                let setting = alternative.setting.as_deref();
                assert!(setting.is_none_or(|id| entry(id).is_some()), "{name}: no entry {setting:?}");
            }
            if let Some(other) = &class.remedy_as {
                let other = lock_class(other).expect("a class");
                assert!(other.remedy_as.is_none() && !other.remedy.is_empty(), "{name}: {}", other.name);
            }
            assert!(!class.instances.is_empty() && !class.source.is_empty(), "{name}");
            assert!(
                class.kind.first().is_some_and(|first| first.from.is_none()),
                "{name}: the first kind must not have `from`"
            );
            assert!(
                class.kind.windows(2).all(|pair| pair[0].from < pair[1].from),
                "{name}: kinds out of order"
            );
            assert!(
                !class.seen_in.is_empty()
                    && class.seen_in.iter().all(|release| INSPECTED_RELEASES.contains(release)),
                "{name}: {:?}",
                class.seen_in
            );
            for id in &class.settings {
                assert!(entry(id).is_some(), "{name}: no entry {id}");
            }
        }
        assert!(seen.len() > 90, "{}", seen.len());
    }

    #[test]
    fn categories_are_those_of_lock_counting() {
        // Source: erl_lock_flags.h.
        let known = ["allocator", "process", "io", "db", "debug", "scheduler", "generic", "distribution"];
        for class in lock_classes() {
            assert!(known.contains(&class.category.as_str()), "{}: {}", class.name, class.category);
        }
    }

    #[test]
    fn class_is_found_by_the_name_that_lock_counting_prints() {
        assert_eq!(lock_class("db_tab").map(|class| class.category.as_str()), Some("db"));
        assert_eq!(lock_class("esock.r[17]").map(|class| class.name.as_str()), Some("esock.r"));
        assert!(lock_class("my_library_lock").is_none());
    }

    #[test]
    fn alternatives_depend_on_the_version() {
        let texts = |name: &str, otp: Option<&str>| {
            let otp = otp.and_then(OtpVersion::parse);
            let class = lock_class(name).expect(name);
            class.remedy.iter().filter_map(|one| one.text_in(otp.as_ref())).collect::<Vec<_>>().join("; ")
        };
        assert!(texts("db_tab", Some("24.3")).starts_with("write_concurrency true; "));
        assert!(texts("db_tab", Some("25.0")).starts_with("write_concurrency true or auto"));
        assert!(texts("db_tab", None).starts_with("write_concurrency true or auto"));
        assert!(!texts("process_table", Some("27.3")).contains("iterator"));
        assert!(!texts("meta_name_tab", Some("29.0")).contains("ets:whereis"));
        assert_eq!(
            lock_class("port_sched_lock").map(LockClass::remedy_text).as_deref(),
            Some("As for port_lock.")
        );
        assert_eq!(lock_class("async_init_mtx").map(LockClass::remedy_text).as_deref(), Some("None."));
    }

    #[test]
    fn existence_in_a_release_follows_from_the_inspected_releases() {
        let check = |name: &str, otp: u32, expect: Option<bool>| {
            assert_eq!(lock_class(name).expect(name).exists_in(otp), expect, "{name} in OTP {otp}");
        };
        check("db_tab", 26, Some(true));
        check("proc_sig_queue_buffer", 23, Some(false));
        check("proc_sig_queue_buffer", 24, None);
        check("proc_sig_queue_buffer", 25, Some(true));
        check("code_write_permission", 27, Some(false));
        check("export_staging_lock", 29, Some(true));
        // No release before OTP 23 or after OTP 29 was inspected.
        check("db_tab", 22, None);
        check("db_tab", 30, None);
        assert_eq!(lock_class("meta_name_tab").and_then(|class| class.kind_in(27)), Some(LockKind::RwMutex));
        assert_eq!(lock_class("meta_name_tab").and_then(|class| class.kind_in(29)), Some(LockKind::Mutex));
    }
}
