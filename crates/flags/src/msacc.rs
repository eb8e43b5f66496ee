//! Thread types and thread states of microstate accounting (msacc).
//!
//! For each thread, `erlang:statistics(microstate_accounting)` reports the type and the time spent in each state. This
//! catalogue explains the types and states, and what a high share of time suggests. The data is in `data/msacc.toml`.

use std::sync::OnceLock;

use serde::Deserialize;

use crate::OtpVersion;
use crate::catalog::broken;

const DATA: &str = include_str!("../data/msacc.toml");

/// A type of thread.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ThreadType {
    /// The name in msacc: `dirty_cpu_scheduler`.
    pub name: String,
    /// The first version with this type; `None`: older than 21.0.
    pub since: Option<OtpVersion>,
    /// The tasks of these threads.
    pub is: String,
    /// The likely cause if threads of this type are busy.
    pub high: String,
    /// What to check or change in that case.
    pub next: String,
    /// Settings that may help, as ids of their entries.
    #[serde(default)]
    pub settings: Vec<String>,
}

/// A state of a thread.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Microstate {
    /// The name in msacc: `check_io`.
    pub name: String,
    /// Whether only emulators configured `--with-microstate-accounting=extra` report this state.
    #[serde(default)]
    pub extra: bool,
    /// What a thread does in this state.
    pub is: String,
    /// For extra states: the state to which other builds attribute the time, for output.
    pub otherwise_in: Option<String>,
    /// The likely cause of a high share.
    pub high: String,
    /// What to check or change in that case.
    pub next: String,
    /// Settings that may help, as ids of their entries.
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

/// Returns all known thread types. Later releases may have more.
pub fn thread_types() -> &'static [ThreadType] {
    &file().thread
}

/// Returns all known states. Later releases may have more.
pub fn microstates() -> &'static [Microstate] {
    &file().state
}

/// Finds a state by its name.
pub fn microstate(name: &str) -> Option<&'static Microstate> {
    microstates().iter().find(|state| state.name == name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::entry;

    #[test]
    fn types_and_states_are_unique_and_complete() {
        let types = thread_types().iter().map(|t| (&t.name, [&t.is, &t.high, &t.next], &t.settings));
        let states = microstates().iter().map(|s| (&s.name, [&s.is, &s.high, &s.next], &s.settings));
        let mut names = BTreeSet::new();
        for (name, texts, settings) in types.chain(states) {
            // A thread type and a state may share a name: aux.
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
    fn states_match_the_emulator_source() {
        // Source: erl_msacc.h of OTP 23 to 27.
        let basic: Vec<_> = microstates().iter().filter(|s| !s.extra).map(|s| s.name.as_str()).collect();
        assert_eq!(basic, ["aux", "check_io", "emulator", "gc", "other", "port", "sleep"]);
        let extra: Vec<_> = microstates().iter().filter(|s| s.extra).map(|s| s.name.as_str()).collect();
        assert_eq!(extra, ["alloc", "bif", "busy_wait", "ets", "gc_full", "nif", "send", "timers"]);
        for state in microstates() {
            assert_eq!(state.otherwise_in.is_some(), state.extra, "{}", state.name);
        }
    }
}
