//! Flags that start with a minus: for `init`, for the launcher and for applications.
//!
//! Emulator flags are in the catalogue. This list contains only what is needed to parse the words after a flag.
//! Sources: the manuals of `erl` and `init`, and the start scripts of products.

use self::Operands::{Pairs, Parameters, Words};
use self::Property::{Common, Exits, Repeatable, RequiresValue};

/// The kind of words that may follow a flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operands {
    /// Keys and values of application parameters, which are Erlang terms: the flag names an application.
    Parameters,
    /// Keys and values that are not parsed as Erlang terms.
    Pairs,
    /// Any other words, or none.
    Words,
}

/// A property of a flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Property {
    /// The flag takes at least one value.
    RequiresValue,
    /// Every occurrence has an effect, not only the last one.
    Repeatable,
    /// `erl` prints something or does another task, and exits: no node starts.
    Exits,
    /// The flag is commonly used.
    Common,
}

/// The known flags. Any other flag is taken for the name of an application.
const FLAGS: &[(&str, Operands, &[Property])] = &[
    ("-args_file", Words, &[RequiresValue, Repeatable, Common]),
    ("-boot", Words, &[RequiresValue, Common]),
    ("-boot_var", Pairs, &[RequiresValue, Common]),
    ("-code_path_cache", Words, &[]),
    ("-compile", Words, &[]),
    ("-config", Words, &[RequiresValue, Repeatable, Common]),
    ("-configfd", Words, &[RequiresValue, Common]),
    ("-connect_all", Words, &[Common]),
    ("-couch_ini", Words, &[]),
    ("-detached", Words, &[Common]),
    ("-dir", Words, &[]),
    ("-dist_listen", Words, &[Common]),
    ("-embedded", Words, &[Common]),
    ("-emu_args_exit", Words, &[Exits]),
    ("-emu_flavor", Words, &[]),
    ("-emu_name_exit", Words, &[Exits]),
    ("-emu_qouted_cmd_exit", Words, &[Exits]),
    ("-emu_type", Words, &[]),
    ("-env", Pairs, &[RequiresValue, Common]),
    ("-epmd_module", Words, &[RequiresValue, Common]),
    ("-erl", Words, &[]),
    ("-erl_epmd_port", Words, &[RequiresValue, Common]),
    ("-eval", Words, &[RequiresValue, Repeatable, Common]),
    ("-extra", Words, &[Repeatable, Common]),
    ("-heart", Words, &[Common]),
    ("-hidden", Words, &[Common]),
    ("-home", Words, &[Common]),
    ("-hosts", Words, &[]),
    ("-id", Words, &[]),
    ("-init_debug", Words, &[Common]),
    ("-instr", Words, &[]),
    ("-kernel", Parameters, &[RequiresValue, Common]),
    ("-loader", Words, &[Common]),
    ("-make", Words, &[Exits]),
    ("-man", Words, &[Exits]),
    ("-mnesia", Parameters, &[Common]),
    ("-mode", Words, &[RequiresValue, Common]),
    ("-name", Words, &[RequiresValue, Common]),
    ("-noinput", Words, &[Common]),
    ("-noshell", Words, &[Common]),
    ("-nouser", Words, &[]),
    ("-oldshell", Words, &[]),
    ("-pa", Words, &[RequiresValue, Repeatable, Common]),
    ("-path", Words, &[RequiresValue, Repeatable, Common]),
    ("-pidfile", Words, &[]),
    ("-progname", Words, &[]),
    ("-proto_dist", Words, &[RequiresValue, Common]),
    ("-pz", Words, &[RequiresValue, Repeatable, Common]),
    ("-release_root", Words, &[]),
    ("-remsh", Words, &[RequiresValue, Common]),
    ("-root", Words, &[RequiresValue, Common]),
    ("-rsh", Words, &[]),
    ("-run", Words, &[RequiresValue, Repeatable, Common]),
    ("-s", Words, &[RequiresValue, Repeatable, Common]),
    ("-sasl", Parameters, &[Common]),
    ("-setcookie", Words, &[RequiresValue, Common]),
    ("-shutdown_time", Words, &[Common]),
    ("-smp", Words, &[]),
    ("-sname", Words, &[RequiresValue, Common]),
    ("-ssl", Parameters, &[Common]),
    ("-ssl_dist_opt", Pairs, &[Common]),
    ("-ssl_dist_optfile", Words, &[Common]),
    ("-start_epmd", Words, &[RequiresValue, Common]),
    ("-stdlib", Parameters, &[Common]),
    ("-suite", Words, &[]),
    ("-test", Words, &[]),
    ("-user", Words, &[RequiresValue, Common]),
    ("-user_drv", Words, &[]),
    ("-version", Words, &[Exits]),
    ("-vm_args", Words, &[]),
];

/// Whether this flag, written with the minus (`-eval`), belongs to `init`, the launcher or a common application.
pub fn is_init_flag(flag: &str) -> bool {
    FLAGS.iter().any(|(known, ..)| *known == flag)
}

/// Whether the words after this flag may be keys and values.
pub(crate) fn may_have_pairs(flag: &str) -> bool {
    operands(flag) != Words
}

/// Whether this flag may name an application.
pub(crate) fn may_be_application(flag: &str) -> bool {
    operands(flag) == Parameters
}

/// Whether this flag takes at least one value. If so, a template that follows is a value and not another flag.
pub(crate) fn requires_value(flag: &str) -> bool {
    has(flag, RequiresValue)
}

/// Whether every occurrence of this flag has an effect, not only the last one.
pub(crate) fn is_repeatable(flag: &str) -> bool {
    has(flag, Repeatable)
}

/// Whether `erl` exits if this flag is given, so that no node starts.
pub(crate) fn exits(flag: &str) -> bool {
    has(flag, Exits)
}

/// Whether this flag is commonly used. If so, the same word with a plus is probably a typo.
pub(crate) fn is_common(flag: &str) -> bool {
    has(flag, Common)
}

/// Iterates over the flags that are commonly used.
pub(crate) fn common_flags() -> impl Iterator<Item = &'static str> {
    FLAGS.iter().filter(|(.., properties)| properties.contains(&Common)).map(|(flag, ..)| *flag)
}

/// Whether the list contains this flag.
pub(crate) fn is_known(flag: &str) -> bool {
    FLAGS.iter().any(|(known, ..)| *known == flag)
}

fn operands(flag: &str) -> Operands {
    FLAGS.iter().find(|(known, ..)| *known == flag).map_or(Parameters, |(_, operands, _)| *operands)
}

fn has(flag: &str, property: Property) -> bool {
    FLAGS.iter().any(|(known, _, properties)| *known == flag && properties.contains(&property))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_unique_sorted_and_start_with_a_minus() {
        assert!(FLAGS.is_sorted_by(|(one, ..), (other, ..)| one < other));
        assert!(FLAGS.iter().all(|(flag, ..)| flag.starts_with('-')));
    }
}
