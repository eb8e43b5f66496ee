//! Whether the VM of a release starts with the flags that a remedy advises.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use beamtune_flags::parse_emu_args;
use beamtune_model::Remedy;

use super::host::Conditions;
use super::run::Erlang;

/// A VM that starts has ended within this (a second or two, on a busy machine).
const ENDS_WITHIN: Duration = Duration::from_secs(60);

/// Asks the VMs of one Erlang, the same thing once.
pub struct Accepts {
    erlang: Erlang,
    /// Whether a VM has started with these words.
    known: Mutex<BTreeMap<Vec<String>, bool>>,
}

impl Accepts {
    pub fn new(erlang: &Erlang) -> Accepts {
        Accepts { erlang: erlang.clone(), known: Mutex::default() }
    }

    /// Whether the VM starts with these words. Those of a remedy are given together, since one may need another (no `+IOp 2` without
    /// `+IOt 2`).
    pub fn takes(&self, words: &[String]) -> Result<bool> {
        // Held meanwhile, so that nobody asks the same at the same time.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(is_taken) = known.get(words) {
            return Ok(*is_taken);
        }
        let is_taken = self.starts_with(words)?;
        // Flags are refused by a VM that starts without them.
        if !is_taken && !self.starts_with(&[])? {
            bail!("{} does not start, with any flags or none", self.erlang.erl());
        }
        known.insert(words.to_vec(), is_taken);
        Ok(is_taken)
    }

    fn starts_with(&self, words: &[String]) -> Result<bool> {
        let mut command = self.erlang.command(&self.erlang.erl(), &Conditions::default());
        command.args(words).args(["-noshell", "-eval", "halt()."]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let context = || format!("cannot run {}", self.erlang.erl());
        let mut child = command.spawn().with_context(context)?;
        let until = Instant::now() + ENDS_WITHIN;
        while Instant::now() < until {
            if let Some(status) = child.try_wait().with_context(context)? {
                return Ok(status.success());
            }
            thread::sleep(Duration::from_millis(10));
        }
        child.kill().and_then(|()| child.wait()).with_context(context)?;
        bail!("{} {} has not ended within {} s", self.erlang.erl(), words.join(" "), ENDS_WITHIN.as_secs())
    }
}

/// The words of the emulator flags that a remedy tells to set, with their values. Where it says what to put in place of a value
/// (`+MMscs N with N in MB …`), one that the flag takes stands for that.
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

/// `N`, `N:M`, `BYTES`: letters that are all capitals, and no digit.
fn is_placeholder(value: &str) -> bool {
    value.contains(|c: char| c.is_ascii_uppercase())
        && !value.contains(|c: char| c.is_ascii_digit() || c.is_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advising(change: &str) -> String {
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
    fn the_flags_of_a_remedy_are_found_in_its_words() {
        let check = |change: &str, expect: &str| assert_eq!(advising(change), expect, "{change}");
        check("+sbwt none +sbwtdcpu none", "+sbwt none +sbwtdcpu none");
        check("+Q 65536", "+Q 65536");
        check("start it with +S 2:2, and no more", "+S 2:2");
        check("split the process into several", "");
        check("+1 schedulers", "");
    }

    #[test]
    fn what_stands_for_a_value_is_replaced_by_one() {
        let found = advising("+MMscs N with N in MB above the peak of all carriers, and +MMsco false");
        let words: Vec<&str> = found.split(' ').collect();
        let ["+MMscs", size, "+MMsco", "false"] = words.as_slice() else { panic!("{found}") };
        assert!(size.parse::<u32>().is_ok(), "{found}");
    }
}
