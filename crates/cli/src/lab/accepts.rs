//! Whether the VM of a release starts with the flags that a remedy advises.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use beamtune_flags::parse_emu_args;
use beamtune_model::Remedy;

use super::host::Conditions;
use super::run::Erlang;

/// Asks the VMs of one Erlang, each flag once.
pub struct Accepts {
    erlang: Erlang,
    /// Whether a VM has started with these words.
    known: Mutex<BTreeMap<Vec<String>, bool>>,
}

impl Accepts {
    pub fn new(erlang: &Erlang) -> Accepts {
        Accepts { erlang: erlang.clone(), known: Mutex::default() }
    }

    /// Which of these flags the VM refuses.
    pub fn refused(&self, flags: &[Vec<String>]) -> Result<Vec<String>> {
        let mut refused = Vec::new();
        for flag in flags {
            // Held meanwhile, so that nobody asks the same at the same time.
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            let is_accepted = match known.get(flag) {
                Some(is_accepted) => *is_accepted,
                None => {
                    let is_accepted = self.starts_with(flag)?;
                    known.insert(flag.clone(), is_accepted);
                    is_accepted
                }
            };
            refused.extend((!is_accepted).then(|| flag.join(" ")));
        }
        Ok(refused)
    }

    fn starts_with(&self, flag: &[String]) -> Result<bool> {
        let mut command = self.erlang.command(&self.erlang.erl(), &Conditions::default());
        command.args(flag).args(["-noshell", "-eval", "halt()."]);
        let output = command.output().with_context(|| format!("cannot run {}", self.erlang.erl()))?;
        Ok(output.status.success())
    }
}

/// The emulator flags that a remedy tells to set, each with its value. Where it says what to put in place of a value
/// (`+MMscs N with N in MB …`), one that the flag takes stands for that.
pub fn flags_of(remedy: &Remedy) -> Vec<Vec<String>> {
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
        flags.push(
            [Some(setting.flag), value].into_iter().flatten().filter(|word| !word.is_empty()).collect(),
        );
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

    fn advising(change: &str) -> Vec<String> {
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
        flags_of(&remedy).iter().map(|flag| flag.join(" ")).collect()
    }

    #[test]
    fn the_flags_of_a_remedy_are_found_in_its_words() {
        let check = |change: &str, expect: &[&str]| assert_eq!(advising(change), expect, "{change}");
        check("+sbwt none +sbwtdcpu none", &["+sbwt none", "+sbwtdcpu none"]);
        check("+Q 65536", &["+Q 65536"]);
        check("start it with +S 2:2, and no more", &["+S 2:2"]);
        check("split the process into several", &[]);
        check("+1 schedulers", &[]);
    }

    #[test]
    fn what_stands_for_a_value_is_replaced_by_one() {
        let found = advising("+MMscs N with N in MB above the peak of all carriers, and +MMsco false");
        let [size, only] = found.as_slice() else { panic!("{found:?}") };
        let number = size.strip_prefix("+MMscs ").and_then(|value| value.parse::<u32>().ok());
        assert!(number.is_some() && only == "+MMsco false", "{found:?}");
    }
}
