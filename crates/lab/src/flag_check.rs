//! Checks whether the VM of a release starts with the flags that a remedy advises.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use beamtune_flags::parse_emu_args;
use beamtune_model::Remedy;

use crate::erlang::Erlang;
use crate::host::Conditions;

/// Time limit for a VM to start and end, which usually takes 1 to 2 s.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Checks whether the VM of one Erlang starts with given flags. Each list of flags is tried once.
pub struct FlagChecker {
    erlang: Erlang,
    /// Results by list of flags.
    known: Mutex<BTreeMap<Vec<String>, bool>>,
}

impl FlagChecker {
    /// Returns a checker that has tried no flags yet.
    pub fn new(erlang: &Erlang) -> FlagChecker {
        FlagChecker { erlang: erlang.clone(), known: Mutex::default() }
    }

    /// True if the VM starts with these flags. All flags of a remedy are passed together, since one may need another (`+IOp 2` needs
    /// `+IOt 2`).
    pub fn accepts(&self, words: &[String]) -> Result<bool> {
        // Locked until the end of the function, so that no other thread tries the same flags.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(is_accepted) = known.get(words) {
            return Ok(*is_accepted);
        }
        let is_accepted = self.starts_with(words)?;
        // Only a VM that starts without flags can refuse them.
        if !is_accepted && !self.starts_with(&[])? {
            bail!("{} does not start, even without flags", self.erlang.erl());
        }
        known.insert(words.to_vec(), is_accepted);
        Ok(is_accepted)
    }

    fn starts_with(&self, words: &[String]) -> Result<bool> {
        let mut command = self.erlang.command(&self.erlang.erl(), &Conditions::default());
        command.args(words).args(["-noshell", "-eval", "halt()."]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let context = || format!("cannot run {}", self.erlang.erl());
        let mut child = command.spawn().with_context(context)?;
        let until = Instant::now() + TIMEOUT;
        while Instant::now() < until {
            if let Some(status) = child.try_wait().with_context(context)? {
                return Ok(status.success());
            }
            thread::sleep(Duration::from_millis(10));
        }
        child.kill().and_then(|()| child.wait()).with_context(context)?;
        bail!("{} {} did not end within {} s", self.erlang.erl(), words.join(" "), TIMEOUT.as_secs())
    }
}

/// Extracts the emulator flags of a remedy, with their values. A placeholder (`+MMscs N with N in MB …`) is replaced by an example
/// value of the flag.
pub fn flags_of(remedy: &Remedy) -> Vec<String> {
    let words: Vec<&str> =
        remedy.change.split_whitespace().map(|word| word.trim_end_matches([',', '.', ';', ':'])).collect();
    let mut flags = Vec::new();
    for (at, word) in words.iter().enumerate() {
        if !word.starts_with('+') {
            continue;
        }
        let pair: Vec<String> = words.iter().skip(at).take(2).map(|word| (*word).to_owned()).collect();
        let Some(setting) = parse_emu_args(&pair).into_iter().next() else { continue };
        let Some(entry) = setting.entry else { continue };
        let value = setting.value.map(|value| match &entry.example {
            Some(example) if is_placeholder(&value) => example.clone(),
            _ => value,
        });
        flags.extend([Some(setting.flag), value].into_iter().flatten().filter(|word| !word.is_empty()));
    }
    flags
}

/// True for `N`, `N:M`, `BYTES`: capital letters without digits.
fn is_placeholder(value: &str) -> bool {
    value.contains(|c: char| c.is_ascii_uppercase())
        && !value.contains(|c: char| c.is_ascii_digit() || c.is_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags_in(change: &str) -> String {
        let word = String::new;
        let remedy = Remedy {
            entry: word(),
            change: change.to_owned(),
            why: word(),
            risk: word(),
            releases: word(),
            at_run_time: false,
            prove: word(),
            saves_bytes: None,
        };
        flags_of(&remedy).join(" ")
    }

    #[test]
    fn flags_of_a_remedy_are_extracted() {
        let check = |change: &str, expect: &str| assert_eq!(flags_in(change), expect, "{change}");
        check("+sbwt none +sbwtdcpu none", "+sbwt none +sbwtdcpu none");
        check("+Q 65536", "+Q 65536");
        check("start it with +S 2:2, and no more", "+S 2:2");
        check("split the process into several", "");
        check("+1 schedulers", "");
    }

    #[test]
    fn a_placeholder_is_replaced_by_an_example() {
        let found = flags_in("+MMscs N with N in MB above the peak of all carriers, and +MMsco false");
        let words: Vec<&str> = found.split(' ').collect();
        let ["+MMscs", size, "+MMsco", "false"] = words.as_slice() else { panic!("{found}") };
        assert!(size.parse::<u32>().is_ok(), "{found}");
    }
}
