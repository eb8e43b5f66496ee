//! The flags with a minus, for `init`, the launcher and applications, as far as readers have to know them.
//!
//! What the emulator itself takes stands in the catalogue; of these only what decides how the words behind them are read. Source: the
//! manuals of `erl` and `init`, and the start scripts of products.

use self::Fact::{Common, EachCounts, Ends, NoApplication, NoPairs, WantsValue};

/// What is known of a flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fact {
    /// The words behind it are no keys and values.
    NoPairs,
    /// It is not the name of an application.
    NoApplication,
    /// It takes one value at least.
    WantsValue,
    /// Given several times, each one counts.
    EachCounts,
    /// With it `erl` prints or does something else, and ends: no node starts.
    Ends,
    /// It is often written.
    Common,
}

const FLAGS: &[(&str, &[Fact])] = &[
    ("-args_file", &[NoPairs, NoApplication, WantsValue, EachCounts, Common]),
    ("-boot", &[NoPairs, NoApplication, WantsValue, Common]),
    ("-boot_var", &[NoApplication, WantsValue, Common]),
    ("-code_path_cache", &[NoPairs]),
    ("-compile", &[NoPairs]),
    ("-config", &[NoPairs, NoApplication, WantsValue, EachCounts, Common]),
    ("-configfd", &[NoPairs, NoApplication, WantsValue, Common]),
    ("-connect_all", &[NoPairs, NoApplication, Common]),
    ("-couch_ini", &[NoApplication]),
    ("-detached", &[NoPairs, NoApplication, Common]),
    ("-dir", &[NoApplication]),
    ("-dist_listen", &[NoPairs, NoApplication, Common]),
    ("-embedded", &[NoPairs, NoApplication, Common]),
    ("-emu_args_exit", &[NoPairs, Ends]),
    ("-emu_flavor", &[NoPairs]),
    ("-emu_name_exit", &[NoPairs, Ends]),
    ("-emu_qouted_cmd_exit", &[NoPairs, Ends]),
    ("-emu_type", &[NoPairs]),
    ("-env", &[NoApplication, WantsValue, Common]),
    ("-epmd_module", &[NoPairs, NoApplication, WantsValue, Common]),
    ("-erl", &[NoApplication]),
    ("-erl_epmd_port", &[NoPairs, NoApplication, WantsValue, Common]),
    ("-eval", &[NoPairs, NoApplication, WantsValue, EachCounts, Common]),
    ("-extra", &[NoPairs, NoApplication, EachCounts, Common]),
    ("-heart", &[NoPairs, NoApplication, Common]),
    ("-hidden", &[NoPairs, NoApplication, Common]),
    ("-home", &[NoPairs, NoApplication, Common]),
    ("-hosts", &[NoPairs]),
    ("-id", &[NoPairs]),
    ("-init_debug", &[NoPairs, NoApplication, Common]),
    ("-instr", &[NoPairs]),
    ("-kernel", &[WantsValue, Common]),
    ("-loader", &[NoPairs, NoApplication, Common]),
    ("-make", &[NoPairs, Ends]),
    ("-man", &[NoPairs, Ends]),
    ("-mnesia", &[Common]),
    ("-mode", &[NoPairs, NoApplication, WantsValue, Common]),
    ("-name", &[NoPairs, NoApplication, WantsValue, Common]),
    ("-noinput", &[NoPairs, NoApplication, Common]),
    ("-noshell", &[NoPairs, NoApplication, Common]),
    ("-nouser", &[NoPairs, NoApplication]),
    ("-oldshell", &[NoPairs]),
    ("-pa", &[NoPairs, NoApplication, WantsValue, EachCounts, Common]),
    ("-path", &[NoPairs, NoApplication, WantsValue, EachCounts, Common]),
    ("-pidfile", &[NoPairs]),
    ("-progname", &[NoPairs]),
    ("-proto_dist", &[NoPairs, NoApplication, WantsValue, Common]),
    ("-pz", &[NoPairs, NoApplication, WantsValue, EachCounts, Common]),
    ("-release_root", &[NoApplication]),
    ("-remsh", &[NoPairs, NoApplication, WantsValue, Common]),
    ("-root", &[NoPairs, NoApplication, WantsValue, Common]),
    ("-rsh", &[NoPairs]),
    ("-run", &[NoPairs, NoApplication, WantsValue, EachCounts, Common]),
    ("-s", &[NoPairs, NoApplication, WantsValue, EachCounts, Common]),
    ("-sasl", &[Common]),
    ("-setcookie", &[NoPairs, NoApplication, WantsValue, Common]),
    ("-shutdown_time", &[NoPairs, NoApplication, Common]),
    ("-smp", &[NoPairs]),
    ("-sname", &[NoPairs, NoApplication, WantsValue, Common]),
    ("-ssl", &[Common]),
    ("-ssl_dist_opt", &[NoApplication, Common]),
    ("-ssl_dist_optfile", &[NoApplication, Common]),
    ("-start_epmd", &[NoPairs, NoApplication, WantsValue, Common]),
    ("-stdlib", &[Common]),
    ("-suite", &[NoApplication]),
    ("-test", &[NoApplication]),
    ("-user", &[NoPairs, NoApplication, WantsValue, Common]),
    ("-user_drv", &[NoApplication]),
    ("-version", &[NoPairs, Ends]),
    ("-vm_args", &[NoApplication]),
];

/// Whether the words behind this flag are no keys and values.
pub(crate) fn has_no_pairs(flag: &str) -> bool {
    is(flag, NoPairs)
}

/// Whether this flag looks like an application with parameters and is none.
pub(crate) fn is_no_application(flag: &str) -> bool {
    is(flag, NoApplication)
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

fn is(flag: &str, fact: Fact) -> bool {
    FLAGS.iter().any(|(known, facts)| *known == flag && facts.contains(&fact))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_stands_once_with_a_minus_and_in_order() {
        assert!(FLAGS.is_sorted_by(|(one, _), (other, _)| one < other));
        for (flag, facts) in FLAGS {
            assert!(flag.starts_with('-') && !facts.is_empty(), "{flag}");
        }
    }
}
