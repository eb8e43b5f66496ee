//! What the threads of a VM do, by the names that microstate accounting (msacc) gives them.
//!
//! `erlang:statistics(microstate_accounting)` tells for each thread its type and how long it was in each state.
//! What a type and a state are, and what a high share suggests, stands here. The data is `data/msacc.toml`.

use std::sync::OnceLock;

use serde::Deserialize;

use crate::OtpVersion;
use crate::catalog::broken;

const DATA: &str = include_str!("../data/msacc.toml");

/// A type of thread.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ThreadType {
    /// As msacc names it: `dirty_cpu_scheduler`.
    pub name: String,
    /// The first version that has it; absent: older than 21.0.
    pub since: Option<OtpVersion>,
    /// What it is.
    pub is: String,
    /// What it suggests when threads of this type are busy.
    pub high: String,
    /// What to look at or to change then.
    pub next: String,
    /// Settings that may help, by the ids of their entries.
    #[serde(default)]
    pub settings: Vec<String>,
}

/// What a thread is doing.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Microstate {
    /// As msacc names it: `check_io`.
    pub name: String,
    /// Only emulators configured `--with-microstate-accounting=extra` tell it apart.
    #[serde(default)]
    pub extra: bool,
    /// What it is.
    pub is: String,
    /// Where its time is counted in other builds, for a person; only for extra states.
    pub otherwise_in: Option<String>,
    /// What a high share of it suggests.
    pub high: String,
    /// What to look at or to change then.
    pub next: String,
    /// Settings that may help, by the ids of their entries.
    #[serde(default)]
    pub settings: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    thread: Vec<ThreadType>,
    state: Vec<Microstate>,
}

fn file() -> &'static File {
    static FILE: OnceLock<File> = OnceLock::new();
    FILE.get_or_init(|| toml::from_str(DATA).unwrap_or_else(|error| broken("msacc", &error)))
}

/// Every type of thread. Later releases may have more.
pub fn thread_types() -> &'static [ThreadType] {
    &file().thread
}

/// Every state. Later releases may have more.
pub fn microstates() -> &'static [Microstate] {
    &file().state
}

/// The state of a name.
pub fn microstate(name: &str) -> Option<&'static Microstate> {
    microstates().iter().find(|state| state.name == name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::entry;

    #[test]
    fn nothing_stands_twice_and_nothing_is_missing() {
        let types = thread_types().iter().map(|t| (&t.name, [&t.is, &t.high, &t.next], &t.settings));
        let states = microstates().iter().map(|s| (&s.name, [&s.is, &s.high, &s.next], &s.settings));
        let mut names = BTreeSet::new();
        for (name, texts, settings) in types.chain(states) {
            // A thread and a state may share a name: aux.
            names.insert(name.as_str());
            for text in texts {
                assert!(text.ends_with('.') && text.trim() == text, "{name}: {text:?}");
            }
            for id in settings {
                assert!(entry(id).is_some(), "{name}: no entry {id}");
            }
        }
        assert_eq!(names.len(), thread_types().len() + microstates().len() - 1);
    }

    #[test]
    fn each_build_has_the_states_of_the_source() {
        // erl_msacc.h of OTP 23 to 27.
        let basic: Vec<_> = microstates().iter().filter(|s| !s.extra).map(|s| s.name.as_str()).collect();
        assert_eq!(basic, ["aux", "check_io", "emulator", "gc", "other", "port", "sleep"]);
        let extra: Vec<_> = microstates().iter().filter(|s| s.extra).map(|s| s.name.as_str()).collect();
        assert_eq!(extra, ["alloc", "bif", "busy_wait", "ets", "gc_full", "nif", "send", "timers"]);
        for state in microstates() {
            assert_eq!(state.otherwise_in.is_some(), state.extra, "{}", state.name);
        }
    }
}
