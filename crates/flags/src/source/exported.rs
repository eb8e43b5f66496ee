//! Finds variables of a sourced script that do not reach the VM because they are not exported.
//!
//! `rabbitmq-env` sources `rabbitmq-env.conf` and uses RabbitMQ's own variables itself. Variables that `erl` or the emulator reads must be
//! exported; `rabbitmq-env` itself exports only `ERL_EPMD_PORT` and `ERL_EPMD_ADDRESS`.

use std::collections::BTreeSet;

use super::place::{Order, Place};
use super::{Format, Fragment};

const WHY: &str = "the shell of rabbitmq-env reads the file, and a variable that erl reads must be exported: \
    put export before it, unless the environment already has the variable";

/// Marks the variables of a file that have no effect because they are not exported.
pub(super) fn mark(format: Format, text: &str, fragments: &mut [Fragment]) {
    if format != Format::RabbitmqEnv {
        return;
    }
    let exported = names(text);
    for fragment in fragments {
        if let Place::Variable { name, effect } = &mut fragment.place
            && !matches!(effect.order, Order::CommandLine(_))
            && effect.ignored.is_none()
            && exported.as_ref().is_some_and(|exported| !exported.contains(name.as_str()))
        {
            effect.ignored = Some(WHY);
        }
    }
}

/// Returns all names that a script exports; `None` if it exports all variables.
fn names(text: &str) -> Option<BTreeSet<&str>> {
    let mut names = BTreeSet::new();
    let mut continued = false;
    for line in text.lines() {
        let mut words = line.split([' ', '\t', ';', '&']).filter(|word| !word.is_empty()).peekable();
        let mut exports = continued;
        while let Some(word) = words.next() {
            match word {
                "#" => break,
                "export" => exports = true,
                "declare" | "typeset" => {
                    exports =
                        words.next_if(|next| next.starts_with('-')).is_some_and(|flags| flags.contains('x'));
                }
                "set" if matches!(words.peek(), Some(&"-a" | &"-o")) => return None,
                _ if exports => {
                    names.insert(word.split('=').next().unwrap_or_default());
                }
                _ => {}
            }
        }
        continued = exports && line.trim_end().ends_with('\\');
    }
    Some(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exported_names_are_found_anywhere_in_a_script() {
        let check = |text: &str, expect: Option<&[&str]>| {
            let found = names(text).map(|names| names.into_iter().collect::<Vec<_>>());
            assert_eq!(found.as_deref(), expect, "{text:?}");
        };
        check("A=1\nB=2", Some(&[]));
        check("export A=1\n# export B\nC=3; export C", Some(&["A", "C"]));
        check("  export A B=2 \\\n  C=3\nD=4", Some(&["A", "B", "C", "\\"]));
        check("[ -n \"$A\" ] && export A", Some(&["A"]));
        check("declare -x A=1\ndeclare B=2", Some(&["A"]));
        check("set -a\nA=1", None);
        check("set -o allexport\nA=1", None);
    }
}
