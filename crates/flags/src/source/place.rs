//! The place of words in a configuration, and the order in which the launcher combines places.

/// The place of the words of a fragment, which determines their meaning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// An args file, given with `-args_file`.
    ArgsFile {
        /// The key in a ConfigMap, such as `vm.args`; `None` for a separate file.
        name: Option<String>,
    },
    /// An environment variable, or a setting of a product that acts as one.
    Variable {
        /// The name of the variable in the file.
        name: String,
        /// How the value is used.
        effect: Effect,
    },
    /// Words of a command that starts a VM.
    CommandLine {
        /// The role of the words in the command.
        words: CommandWords,
        /// The position of the words in the order of effect.
        order: Order,
    },
    /// The names of files with further variables (`EnvironmentFile=` of systemd). Those files are not read.
    FileNames,
    /// The arguments of a running emulator. Flags start with `-` instead of `+`.
    RunningNode,
}

/// The role of words in a command that starts a VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandWords {
    /// Arguments of `erl`.
    Erl,
    /// The value of `--erl` of `elixir` or `iex`, which split it into words without processing quotes.
    Switches,
    /// Other options of `elixir` or `iex`, in the form of the corresponding flags of `erl`: `-setcookie` for `--cookie`.
    Options,
}

/// How the value of a variable is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effect {
    /// The role of the words.
    pub role: Role,
    /// The position of the words in the order of effect.
    pub order: Order,
    /// Whether the words are for a command-line tool with a VM of its own, such as `rabbitmqctl`, and not for the node.
    pub for_tool: bool,
    /// If the variable has no effect in this file, the reason.
    pub ignored: Option<&'static str>,
}

/// The role of the words of a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Arguments of `erl`.
    Words,
    /// The value of these flags: `ERL_PROCESSES=250000` is `+P 250000`.
    ValueOf(&'static [&'static str]),
    /// A value that the VM reads from the environment.
    ReadByVm,
}

/// The order in which the launcher joins words. If a flag occurs several times, the last occurrence takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Order {
    /// Variables that the VM itself reads; the corresponding flag overrides them.
    Fallback,
    /// `ERL_OTP<NN>_FLAGS`.
    OtpFlags,
    /// `ERL_AFLAGS`.
    AFlags,
    /// The command line; the number orders the parts that start scripts of products add.
    CommandLine(u8),
    /// `ERL_FLAGS`.
    Flags,
    /// `ERL_ZFLAGS`.
    ZFlags,
}

impl Order {
    /// The position at which products put `-args_file`, and therefore the words of the args file, on the command line.
    pub const ARGS_FILE: Order = Order::CommandLine(50);
}

impl Place {
    /// Returns the position of the words in the order of effect; `None` if they are not arguments of `erl`.
    pub fn order(&self) -> Option<Order> {
        match self {
            Place::ArgsFile { .. } => Some(Order::ARGS_FILE),
            Place::Variable { effect, .. } => Some(effect.order),
            Place::CommandLine { order, .. } => Some(*order),
            // These arguments contain all flags in the order of effect.
            Place::RunningNode => Some(Order::CommandLine(0)),
            Place::FileNames => None,
        }
    }
}
