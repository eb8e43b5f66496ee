//! The flags with a minus, for `init`, the launcher and applications, as far as readers have to know them.
//!
//! What the emulator itself takes stands in the catalogue; of these only what decides how the words behind them are read. Source: the
//! manuals of `erl` and `init`, and the start scripts of products.

use self::Behind::{Pairs, Parameters, Words};
use self::Fact::{Common, EachCounts, Ends, WantsValue};

/// What the words behind a flag are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Behind {
    /// Keys and values, which are Erlang terms: the flag is the name of an application.
    Parameters,
    /// Keys and values, as they stand.
    Pairs,
    /// Anything else, or nothing.
    Words,
}

/// What else is known of a flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fact {
    /// It takes one value at least.
    WantsValue,
    /// Given several times, each one counts.
    EachCounts,
    /// With it `erl` prints or does something else, and ends: no node starts.
    Ends,
    /// It is often written.
    Common,
}

/// Flags that are not listed are names of applications.
const FLAGS: &[(&str, Behind, &[Fact])] = &[
    ("-args_file", Words, &[WantsValue, EachCounts, Common]),
    ("-boot", Words, &[WantsValue, Common]),
    ("-boot_var", Pairs, &[WantsValue, Common]),
    ("-code_path_cache", Words, &[]),
    ("-compile", Words, &[]),
    ("-config", Words, &[WantsValue, EachCounts, Common]),
    ("-configfd", Words, &[WantsValue, Common]),
    ("-connect_all", Words, &[Common]),
    ("-couch_ini", Words, &[]),
    ("-detached", Words, &[Common]),
    ("-dir", Words, &[]),
    ("-dist_listen", Words, &[Common]),
    ("-embedded", Words, &[Common]),
    ("-emu_args_exit", Words, &[Ends]),
    ("-emu_flavor", Words, &[]),
    ("-emu_name_exit", Words, &[Ends]),
    ("-emu_qouted_cmd_exit", Words, &[Ends]),
    ("-emu_type", Words, &[]),
    ("-env", Pairs, &[WantsValue, Common]),
    ("-epmd_module", Words, &[WantsValue, Common]),
    ("-erl", Words, &[]),
    ("-erl_epmd_port", Words, &[WantsValue, Common]),
    ("-eval", Words, &[WantsValue, EachCounts, Common]),
    ("-extra", Words, &[EachCounts, Common]),
    ("-heart", Words, &[Common]),
    ("-hidden", Words, &[Common]),
    ("-home", Words, &[Common]),
    ("-hosts", Words, &[]),
    ("-id", Words, &[]),
    ("-init_debug", Words, &[Common]),
    ("-instr", Words, &[]),
    ("-kernel", Parameters, &[WantsValue, Common]),
    ("-loader", Words, &[Common]),
    ("-make", Words, &[Ends]),
    ("-man", Words, &[Ends]),
    ("-mnesia", Parameters, &[Common]),
    ("-mode", Words, &[WantsValue, Common]),
    ("-name", Words, &[WantsValue, Common]),
    ("-noinput", Words, &[Common]),
    ("-noshell", Words, &[Common]),
    ("-nouser", Words, &[]),
    ("-oldshell", Words, &[]),
    ("-pa", Words, &[WantsValue, EachCounts, Common]),
    ("-path", Words, &[WantsValue, EachCounts, Common]),
    ("-pidfile", Words, &[]),
    ("-progname", Words, &[]),
    ("-proto_dist", Words, &[WantsValue, Common]),
    ("-pz", Words, &[WantsValue, EachCounts, Common]),
    ("-release_root", Words, &[]),
    ("-remsh", Words, &[WantsValue, Common]),
    ("-root", Words, &[WantsValue, Common]),
    ("-rsh", Words, &[]),
    ("-run", Words, &[WantsValue, EachCounts, Common]),
    ("-s", Words, &[WantsValue, EachCounts, Common]),
    ("-sasl", Parameters, &[Common]),
    ("-setcookie", Words, &[WantsValue, Common]),
    ("-shutdown_time", Words, &[Common]),
    ("-smp", Words, &[]),
    ("-sname", Words, &[WantsValue, Common]),
    ("-ssl", Parameters, &[Common]),
    ("-ssl_dist_opt", Pairs, &[Common]),
    ("-ssl_dist_optfile", Words, &[Common]),
    ("-start_epmd", Words, &[WantsValue, Common]),
    ("-stdlib", Parameters, &[Common]),
    ("-suite", Words, &[]),
    ("-test", Words, &[]),
    ("-user", Words, &[WantsValue, Common]),
    ("-user_drv", Words, &[]),
    ("-version", Words, &[Ends]),
    ("-vm_args", Words, &[]),
];

/// Whether this is a flag of `init` or of the launcher, or of an application that many have, by its name with the minus: `-eval`.
pub fn is_init_flag(flag: &str) -> bool {
    FLAGS.iter().any(|(known, ..)| *known == flag)
}

/// Whether the words behind this flag may be keys and values.
pub(crate) fn may_have_pairs(flag: &str) -> bool {
    behind(flag) != Words
}

/// Whether this flag may be the name of an application.
pub(crate) fn may_be_application(flag: &str) -> bool {
    behind(flag) == Parameters
}

/// Whether this flag takes one value at least, so that a template behind it is no further flag.
pub(crate) fn wants_value(flag: &str) -> bool {
    is(flag, WantsValue)
}

/// Whether each of several such flags counts, and not the last one only.
pub(crate) fn each_counts(flag: &str) -> bool {
    is(flag, EachCounts)
}

/// Whether `erl` ends with this flag, and no node starts.
pub(crate) fn ends(flag: &str) -> bool {
    is(flag, Ends)
}

/// Whether this flag is often written, so that it is meant by the same word with a plus.
pub(crate) fn is_common(flag: &str) -> bool {
    is(flag, Common)
}

/// The flags that are often written.
pub(crate) fn common() -> impl Iterator<Item = &'static str> {
    FLAGS.iter().filter(|(.., facts)| facts.contains(&Common)).map(|(flag, ..)| *flag)
}

/// Whether this flag is listed.
pub(crate) fn is_known(flag: &str) -> bool {
    FLAGS.iter().any(|(known, ..)| *known == flag)
}

fn behind(flag: &str) -> Behind {
    FLAGS.iter().find(|(known, ..)| *known == flag).map_or(Parameters, |(_, behind, _)| *behind)
}

fn is(flag: &str, fact: Fact) -> bool {
    FLAGS.iter().any(|(known, _, facts)| *known == flag && facts.contains(&fact))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_stands_once_with_a_minus_and_in_order() {
        assert!(FLAGS.is_sorted_by(|(one, ..), (other, ..)| one < other));
        assert!(FLAGS.iter().all(|(flag, ..)| flag.starts_with('-')));
    }
}
