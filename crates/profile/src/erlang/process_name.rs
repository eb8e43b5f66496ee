//! Names of processes: the registered name, or the function with which a process was started.
//!
//! A registered process points to its registration (`RegProc`, register.h), whose third word points back to the process, and whose fifth is the
//! name. The function is a module, a function and an arity within the process (`u.initial`, erl_process.h); the place is the only one that fits in
//! all processes.

use super::atoms::{Atoms, is_atom};
use crate::memory::{Memory, is_pointer};

/// Words of a process in which these are searched. `u.initial` is at word 40 to 60 (OTP 23 to 29).
const PROCESS_WORDS: usize = 128;
/// Words at the beginning of a process in which its registration is searched.
const REGISTRATION_WORDS: usize = 16;
/// Words of a registration: the process, and the name.
const REGISTRATION: (usize, usize) = (2, 4);
/// Largest arity.
const MAX_ARITY: u64 = 255;

/// What is known of a process's name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProcessName {
    /// The registered name.
    pub registered: Option<String>,
    /// The first function, as `module:function/arity`.
    pub initial: Option<String>,
}

/// Finds the names of processes.
#[derive(Debug, Clone, Default)]
pub struct ProcessNames {
    /// Words at which the first function can be, after some processes.
    candidates: Option<Vec<usize>>,
}

impl ProcessNames {
    /// The name of the process at an address.
    pub fn read(&mut self, memory: &impl Memory, atoms: &Atoms, process: u64) -> ProcessName {
        let Some(words) = memory.words(process, PROCESS_WORDS) else { return ProcessName::default() };
        let mut pointers = words.iter().take(REGISTRATION_WORDS).skip(1).filter(|word| is_pointer(**word));
        let registered = pointers.find_map(|word| {
            let registration = memory.words(*word, REGISTRATION.1 + 1)?;
            let is_own = registration[REGISTRATION.0] == process;
            atoms.name(memory, registration[REGISTRATION.1]).filter(|_| is_own)
        });
        let is_function = |index: &usize| {
            words
                .get(*index..*index + 3)
                .is_some_and(|words| is_atom(words[0]) && is_atom(words[1]) && words[2] <= MAX_ARITY)
        };
        let known = self.candidates.clone().unwrap_or_else(|| (1..PROCESS_WORDS - 3).collect());
        let left: Vec<usize> = known.into_iter().filter(is_function).collect();
        let place = left.first().copied().filter(|_| left.len() == 1);
        if !left.is_empty() {
            self.candidates = Some(left);
        }
        let initial = place.and_then(|place| {
            let name = |word: u64| atoms.name(memory, word);
            Some(format!("{}:{}/{}", name(words[place])?, name(words[place + 1])?, words[place + 2]))
        });
        ProcessName { registered: registered.map(|name| name.to_string()), initial }
    }
}

#[cfg(test)]
mod tests {
    use super::super::atoms::tests::{put_atoms, term};
    use super::*;
    use crate::memory::Pieces;

    #[test]
    fn a_process_has_its_registered_name_and_its_first_function() {
        let mut memory = Pieces::default();
        let data = put_atoms(&mut memory, &[b"shop_cart", b"proc_lib", b"init_p"], false);
        let atoms = Atoms::find(&memory, &[data]).unwrap();
        let mut process = vec![1; PROCESS_WORDS];
        (process[7], process[50], process[51], process[52]) = (0x5_0000, term(4), term(5), 5);
        memory.put(0x1_0000, &process);
        memory.put(0x5_0000, &[0, 9, 0x1_0000, 0, term(3)]);
        // Another process, which points to the registration of the first one.
        process[50..53].copy_from_slice(&[term(3), term(5), 0]);
        memory.put(0x2_0000, &process);
        let mut names = ProcessNames::default();
        let first = names.read(&memory, &atoms, 0x1_0000);
        let expect = |registered: Option<&str>, initial: &str| ProcessName {
            registered: registered.map(str::to_owned),
            initial: Some(initial.to_owned()),
        };
        assert_eq!(first, expect(Some("shop_cart"), "proc_lib:init_p/5"));
        assert_eq!(names.read(&memory, &atoms, 0x2_0000), expect(None, "shop_cart:init_p/0"));
        assert_eq!(names.read(&memory, &atoms, 0x9_0000), ProcessName::default());
    }
}
