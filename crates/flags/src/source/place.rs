//! Where words take effect: in which order the launcher puts them together.

/// What a file's words are for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// An args file, which is given with `-args_file`. The name is its key in a ConfigMap; `None` for a file of its own.
    ArgsFile {
        /// `vm.args`.
        name: Option<String>,
    },
    /// An environment variable, or a setting of a product that acts like one.
    Variable {
        /// As it stands in the file.
        name: String,
        /// What becomes of its value.
        effect: Effect,
    },
    /// Words of a command that starts a VM.
    CommandLine {
        /// What they are to the command.
        words: CommandWords,
        /// Before or behind what they count.
        order: Order,
    },
    /// The names of files with further variables (`EnvironmentFile=` of systemd), which are not read.
    FileNames,
    /// The arguments that a live emulator was started with. Its flags begin with `-` where people write `+`.
    LiveNode,
}

/// What words are to the command that starts a VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandWords {
    /// Arguments of `erl`.
    OfErl,
    /// A value of `--erl` of `elixir` or `iex`, which hand its words on without quotes.
    Switches,
    /// Other options of `elixir` or `iex`, as the flags of `erl` that they become: `--cookie` is `-setcookie`.
    Options,
}

/// What becomes of a variable's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effect {
    /// What its words are.
    pub role: Role,
    /// When they count.
    pub order: Order,
    /// They are not for the node but for a command-line tool with a VM of its own, such as `rabbitmqctl`.
    pub of_tool: bool,
    /// Why the variable has no effect in this file.
    pub ignored: Option<&'static str>,
}

/// What the words of a variable are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Arguments of `erl`.
    Words,
    /// The value of these flags: `ERL_PROCESSES=250000` is `+P 250000`.
    ValueOf(&'static [&'static str]),
    /// A value that the VM itself asks the environment for.
    ReadByVm,
}

/// The order in which the launcher puts words together: of several values the last one counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Order {
    /// Variables that the VM reads itself: a flag for the same thing beats them.
    Fallback,
    /// `ERL_OTP<NN>_FLAGS`.
    OtpFlags,
    /// `ERL_AFLAGS`.
    AFlags,
    /// The command line; the number orders what one product puts there.
    CommandLine(u8),
    /// `ERL_FLAGS`.
    Flags,
    /// `ERL_ZFLAGS`.
    ZFlags,
}

impl Order {
    /// Where products put `-args_file` on the command line, and with it the words of that file.
    pub const ARGS_FILE: Order = Order::CommandLine(50);
}

impl Place {
    /// When the words take effect; `None` where they are no words for `erl`.
    pub fn order(&self) -> Option<Order> {
        match self {
            Place::ArgsFile { .. } => Some(Order::ARGS_FILE),
            Place::Variable { effect, .. } => Some(effect.order),
            Place::CommandLine { order, .. } => Some(*order),
            // Everything is in it, in the order of effect.
            Place::LiveNode => Some(Order::CommandLine(0)),
            Place::FileNames => None,
        }
    }
}
