//! The environment variables that become flags of an emulator, and how products use them.
//!
//! Sources: `erlexec.c` and the `erl` manual of OTP; `bin/elixir` of Elixir 1.14 and later; `rabbitmq-env` and `rabbitmq-server` of
//! RabbitMQ 3.10 and 4.x; `ejabberdctl` of ejabberd 23.01 and later; `emqx_conf_schema.erl` of EMQX 5; `vernemq.sh` of docker-vernemq;
//! `foreground.sh` of Distillery.

use super::erlexec::Split;
use super::place::{Effect, Order, Role};

/// The files in which the name of a variable has a meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// All files.
    Any,
    /// `rabbitmq-env.conf`, where the names have no prefix `RABBITMQ_`.
    RabbitmqEnv,
    /// `ejabberdctl.cfg`. The script sets these variables before it reads the file, so the environment has no effect.
    EjabberdCtl,
}

/// An environment variable, or a variable in a product's configuration file.
#[derive(Debug)]
pub(crate) struct Variable {
    name: &'static str,
    scope: Scope,
    effect: Effect,
    /// How the value is split into words.
    pub(crate) split: Split,
    /// Whether the product converts values other than plain numbers (`auto`, `16MB`), so that they are skipped.
    pub(crate) numbers_only: bool,
}

/// Finds a variable by its name; `None` if it is not relevant for flags.
pub(crate) fn find(name: &str, scope: Scope) -> Option<&'static Variable> {
    if is_of_release(name) {
        return Some(&OF_RELEASE);
    }
    VARIABLES
        .iter()
        .find(|variable| variable.name == name && (variable.scope == Scope::Any || variable.scope == scope))
}

/// Whether a text contains the name of any variable of this scope.
pub(crate) fn is_mentioned(text: &str, scope: Scope) -> bool {
    let counts = |variable: &&Variable| variable.scope == Scope::Any || variable.scope == scope;
    text.contains("ERL_OTP") || VARIABLES.iter().filter(counts).any(|variable| text.contains(variable.name))
}

impl Variable {
    pub(crate) fn effect(&self) -> Effect {
        self.effect
    }
}

/// Whether the name is that of a variable for one release, such as `ERL_OTP27_FLAGS`.
fn is_of_release(name: &str) -> bool {
    name.strip_prefix("ERL_OTP")
        .and_then(|rest| rest.strip_suffix("_FLAGS"))
        .is_some_and(|release| release.len() >= 2 && release.bytes().all(|byte| byte.is_ascii_digit()))
}

const OF_RELEASE: Variable = words("ERL_OTP<NN>_FLAGS", Order::OtpFlags, Split::Variable);

const VARIABLES: &[Variable] = &[
    words("ERL_AFLAGS", Order::AFlags, Split::Variable),
    words("ERL_FLAGS", Order::Flags, Split::Variable),
    words("ERL_ZFLAGS", Order::ZFlags, Split::Variable),
    read_by_vm("ERL_MAX_PORTS"),
    read_by_vm("ERL_FULLSWEEP_AFTER"),
    read_by_vm("ERL_THREAD_POOL_SIZE"),
    read_by_vm("ERL_MAX_ETS_TABLES"),
    read_by_vm("ERL_CRASH_DUMP"),
    read_by_vm("ERL_CRASH_DUMP_SECONDS"),
    read_by_vm("ERL_CRASH_DUMP_BYTES"),
    read_by_vm("ERL_CRASH_DUMP_NICE"),
    // `… $ELIXIR_ERL_OPTIONS $ERL "$@"`, where the args file is among "$@".
    words("ELIXIR_ERL_OPTIONS", Order::CommandLine(10), Split::Fields),
    // `-args_file … ${ERL_OPTS}`.
    words("ERL_OPTS", Order::CommandLine(70), Split::Fields),
    // `… ${RABBITMQ_SERVER_ERL_ARGS} ${RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS} ${RABBITMQ_SERVER_START_ARGS} …`, `set -f`.
    words("RABBITMQ_SERVER_ERL_ARGS", Order::CommandLine(20), Split::Fields),
    words("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", Order::CommandLine(30), Split::Fields),
    words("RABBITMQ_SERVER_START_ARGS", Order::CommandLine(40), Split::Fields),
    words("RABBITMQ_CTL_ERL_ARGS", Order::CommandLine(20), Split::Fields).of_tool(),
    words("SERVER_ADDITIONAL_ERL_ARGS", Order::CommandLine(30), Split::Fields).only_in(Scope::RabbitmqEnv),
    words("SERVER_START_ARGS", Order::CommandLine(40), Split::Fields).only_in(Scope::RabbitmqEnv),
    words("CTL_ERL_ARGS", Order::CommandLine(20), Split::Fields).only_in(Scope::RabbitmqEnv).of_tool(),
    words("SERVER_ERL_ARGS", Order::CommandLine(20), Split::Fields).only_in(Scope::RabbitmqEnv).ignored(
        "rabbitmq-env overwrites SERVER_ERL_ARGS after reading this file: use RABBITMQ_SERVER_ERL_ARGS",
    ),
    // RabbitMQ inserts the values of these variables into the default of SERVER_ERL_ARGS.
    value("RABBITMQ_MAX_NUMBER_OF_PROCESSES", &["+P"], 20),
    value("RABBITMQ_MAX_NUMBER_OF_ATOMS", &["+t"], 20),
    value("RABBITMQ_SCHEDULER_BIND_TYPE", &["+stbt"], 20),
    value("RABBITMQ_DISTRIBUTION_BUFFER_SIZE", &["+zdbbl"], 20),
    value("RABBITMQ_SCHEDULER_BUSY_WAIT_THRESHOLD", &["+sbwt", "+sbwtdcpu", "+sbwtdio"], 20),
    value("RABBITMQ_IO_THREAD_POOL_SIZE", &["+A"], 15),
    value("MAX_NUMBER_OF_PROCESSES", &["+P"], 20).only_in(Scope::RabbitmqEnv),
    value("MAX_NUMBER_OF_ATOMS", &["+t"], 20).only_in(Scope::RabbitmqEnv),
    value("SCHEDULER_BIND_TYPE", &["+stbt"], 20).only_in(Scope::RabbitmqEnv),
    value("DISTRIBUTION_BUFFER_SIZE", &["+zdbbl"], 20).only_in(Scope::RabbitmqEnv),
    value("SCHEDULER_BUSY_WAIT_THRESHOLD", &["+sbwt", "+sbwtdcpu", "+sbwtdio"], 20)
        .only_in(Scope::RabbitmqEnv),
    value("IO_THREAD_POOL_SIZE", &["+A"], 15).only_in(Scope::RabbitmqEnv),
    // `+K $POLL +P $ERL_PROCESSES $ERL_OPTIONS … -args_file $VMARGS`; `-smp $SMP` until ejabberd 19.
    value("POLL", &["+K"], 20).only_in(Scope::EjabberdCtl),
    value("SMP", &["-smp"], 20).only_in(Scope::EjabberdCtl),
    value("ERL_PROCESSES", &["+P"], 21).only_in(Scope::EjabberdCtl),
    words("ERL_OPTIONS", Order::CommandLine(22), Split::Fields),
    // The product writes these values into the args file at start.
    number("EMQX_NODE__PROCESS_LIMIT", &["+P"]),
    number("EMQX_NODE__MAX_PORTS", &["+Q"]),
    number("EMQX_NODE__DIST_BUFFER_SIZE", &["+zdbbl"]),
    number("EMQX_NODE__MAX_ETS_TABLES", &["+e"]),
    number("EMQX_NODE__SCHEDULERS", &["+S"]),
    number("DOCKER_VERNEMQ_ERLANG__PROCESS_LIMIT", &["+P"]),
    number("DOCKER_VERNEMQ_ERLANG__MAX_PORTS", &["+Q"]),
    number("DOCKER_VERNEMQ_ERLANG__DISTRIBUTION_BUFFER_SIZE", &["+zdbbl"]),
    number("DOCKER_VERNEMQ_ERLANG__MAX_ETS_TABLES", &["+e"]),
];

const fn row(name: &'static str, role: Role, order: Order, split: Split) -> Variable {
    let effect = Effect { role, order, for_tool: false, ignored: None };
    Variable { name, scope: Scope::Any, effect, split, numbers_only: false }
}

const fn words(name: &'static str, order: Order, split: Split) -> Variable {
    row(name, Role::Words, order, split)
}

/// A variable whose value the start script of the product inserts, without quotes, as the value of a flag: `+P $NAME`. `place` is the
/// position on the command line.
const fn value(name: &'static str, flags: &'static [&'static str], place: u8) -> Variable {
    row(name, Role::ValueOf(flags), Order::CommandLine(place), Split::Fields)
}

const fn number(name: &'static str, flags: &'static [&'static str]) -> Variable {
    let variable = row(name, Role::ValueOf(flags), Order::ARGS_FILE, Split::Whole);
    Variable { numbers_only: true, ..variable }
}

const fn read_by_vm(name: &'static str) -> Variable {
    row(name, Role::ReadByVm, Order::Fallback, Split::Whole)
}

impl Variable {
    const fn only_in(mut self, scope: Scope) -> Variable {
        self.scope = scope;
        self
    }

    const fn of_tool(mut self) -> Variable {
        self.effect.for_tool = true;
        self
    }

    const fn ignored(mut self, why: &'static str) -> Variable {
        self.effect.ignored = Some(why);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_known_only_in_the_files_of_their_product() {
        let known = |name: &str, scope: Scope| find(name, scope).is_some();
        assert!(known("ERL_FLAGS", Scope::Any));
        assert!(known("ERL_FLAGS", Scope::RabbitmqEnv));
        assert!(known("ERL_OTP27_FLAGS", Scope::Any));
        assert!(!known("ERL_OTP_FLAGS", Scope::Any));
        assert!(!known("ERL_OTPxx_FLAGS", Scope::Any));
        assert!(known("SERVER_ADDITIONAL_ERL_ARGS", Scope::RabbitmqEnv));
        assert!(!known("SERVER_ADDITIONAL_ERL_ARGS", Scope::Any));
        assert!(known("POLL", Scope::EjabberdCtl));
        assert!(!known("POLL", Scope::Any));
        assert!(!known("PATH", Scope::Any));
    }

    #[test]
    fn variables_are_unique() {
        for (index, variable) in VARIABLES.iter().enumerate() {
            assert!(VARIABLES[..index].iter().all(|other| other.name != variable.name), "{}", variable.name);
        }
    }
}
