//! What words are for, and the order in which the launcher joins them.

/// What the words of a fragment are for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// An args file, given with `-args_file`. The name is its key in a ConfigMap; `None` for a file of its own.
    ArgsFile {
        /// `vm.args`.
        name: Option<String>,
    },
    /// An environment variable, or a setting of a product that acts as one.
    Variable {
        /// Its name in the file.
        name: String,
        /// What its value is used for.
        effect: Effect,
    },
    /// Words of a command that starts a VM.
    CommandLine {
        /// Their role in the command.
        words: CommandWords,
        /// When they take effect.
        order: Order,
    },
    /// The names of files with further variables (`EnvironmentFile=` of systemd). Those files are not read.
    FileNames,
    /// The arguments of a running emulator. Its flags start with `-` instead of `+`.
    LiveNode,
}

/// The role of words in a command that starts a VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandWords {
    /// Arguments of `erl`.
    OfErl,
    /// A value of `--erl` of `elixir` or `iex`, which pass its words on without processing quotes.
    Switches,
    /// Other options of `elixir` or `iex`, as the flags of `erl` that they are turned into: `--cookie` is `-setcookie`.
    Options,
}

/// What the value of a variable is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effect {
    /// What its words are.
    pub role: Role,
    /// When they take effect.
    pub order: Order,
    /// They are for a command-line tool with a VM of its own, such as `rabbitmqctl`, not for the node.
    pub of_tool: bool,
    /// Why the variable has no effect in this file.
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

/// The order in which the launcher joins words. Of several values the last one wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Order {
    /// Variables that the VM reads itself; the corresponding flag overrides them.
    Fallback,
    /// `ERL_OTP<NN>_FLAGS`.
    OtpFlags,
    /// `ERL_AFLAGS`.
    AFlags,
    /// The command line; the number orders the parts that products put there.
    CommandLine(u8),
    /// `ERL_FLAGS`.
    Flags,
    /// `ERL_ZFLAGS`.
    ZFlags,
}

impl Order {
    /// The position of `-args_file` on the command line of products, and thus of the words of that file.
    pub const ARGS_FILE: Order = Order::CommandLine(50);
}

impl Place {
    /// When the words take effect; `None` if they are not arguments of `erl`.
    pub fn order(&self) -> Option<Order> {
        match self {
            Place::ArgsFile { .. } => Some(Order::ARGS_FILE),
            Place::Variable { effect, .. } => Some(effect.order),
            Place::CommandLine { order, .. } => Some(*order),
            // It contains all flags in the order of effect.
            Place::LiveNode => Some(Order::CommandLine(0)),
            Place::FileNames => None,
        }
    }
}
