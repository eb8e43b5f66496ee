//! Finds the arguments of `erl` in the words of a command.
//!
//! The readers of scripts, Dockerfiles, YAML and units split commands into words by their own rules; this module determines what a
//! command starts. It accepts only commands that certainly start a VM: `erl`, `werl` or `erlexec` in any directory
//! (`"$BINDIR/erlexec"`), `elixir` and `iex`. Wrapper programs (`exec`, `sudo -u app`, `tini --`) may precede them, and they may be in
//! the text of `sh -c`. Not accepted are `$ERL`, whose value is unknown, `which erl`, which starts nothing, and `mix`, `rebar3` and
//! releases, which do not accept flags of `erl`.
//!
//! `elixir` and `iex` pass the value of `--erl`, split at white space, to `erl`, and convert a few other options to flags. They parse
//! options only up to the first word that is not one of their options: in `elixir -S mix run --erl "+P 1"`, `--erl` is an argument of
//! the program. This follows `bin/elixir` of Elixir 1.9 to 1.20; a test compares this module with the script.
//!
//! **Helper VMs are ignored.** A helper compiles, prints its version, evaluates an expression and halts, or is a remote shell. It runs
//! briefly or next to the node, so its flags are not those of the node.

use std::sync::Arc;

use super::erlexec::Split;
use super::error::SourceError;
use super::layer::Layer;
use super::place::{CommandWords, Order, Place};
use super::variables::{Scope, find};
use super::{Reader, Word, shell};

/// A word of a command.
pub(super) struct Argument {
    /// The decoded word, without quotes.
    pub(super) value: Arc<Layer>,
    /// The byte range in the text of the command, including quotes.
    pub(super) at: std::ops::Range<usize>,
}

/// The words of a command that are in the same text, in the order of the command.
pub(super) struct CommandPart {
    pub(super) layer: Arc<Layer>,
    pub(super) split: Split,
    pub(super) arguments: Vec<Argument>,
    /// Whether the command is conditional.
    pub(super) conditional: bool,
}

/// Maximum number of words in a command. With the usual stack limit, Linux allows 2 MiB for all words and a pointer of 8 bytes to each
/// (execve(2)).
pub(super) const MAX_WORDS: usize = 200_000;

/// The program that a command starts, with the index of the first argument of the program, or of the text that a shell runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StartedProgram {
    Erl(usize),
    Elixir(usize),
    /// A shell that runs a text.
    Shell(usize),
}

/// Reads the command of a container: the entry point and its arguments. An entry point that is a script is assumed to finally start its
/// arguments as a command.
pub(super) fn read_container_command(
    reader: &mut Reader,
    entry_point: Option<&CommandPart>,
    arguments: Option<&CommandPart>,
) -> Result<(), SourceError> {
    match (entry_point, arguments) {
        (Some(entry_point), Some(arguments)) => {
            if !read(reader, &[entry_point, arguments])? {
                read(reader, &[arguments])?;
            }
        }
        (Some(only), None) | (None, Some(only)) => {
            read(reader, &[only])?;
        }
        (None, None) => {}
    }
    Ok(())
}

/// Reads the words of a command, which may be in several texts, and the variables that `env` sets for the command. Returns whether the
/// command starts a VM or a shell.
pub(super) fn read(reader: &mut Reader, command: &[&CommandPart]) -> Result<bool, SourceError> {
    let words: Vec<(usize, &Argument)> = command
        .iter()
        .enumerate()
        .flat_map(|(index, written)| written.arguments.iter().map(move |argument| (index, argument)))
        .collect();
    if words.len() > MAX_WORDS {
        return Ok(false);
    }
    let mut assignments = Vec::new();
    let starts = starts(&words, &mut assignments);
    let (begin, number) = (reader.fragments.len(), reader.commands);
    for value in assignments {
        let name = value.text().split('=').next().unwrap_or_default();
        let Some(variable) = find(name, Scope::Any) else { continue };
        let conditional = command.iter().any(|written| written.conditional);
        let value = Layer::part(value, name.len() + 1..value.text().len());
        reader.variable(name, variable, &value, conditional)?;
    }
    reader.give_to_next_command(begin);
    let has_variables = reader.fragments.len() > begin;
    let taken = FoundCommand { command, words };
    match starts {
        None => {}
        Some(StartedProgram::Erl(first)) => taken.erl(reader, first),
        Some(StartedProgram::Elixir(first)) => taken.elixir(reader, first)?,
        Some(StartedProgram::Shell(text)) => {
            if let Some((_, text)) = taken.words.get(text) {
                shell::read(reader, &text.value, Scope::Any)?;
            }
        }
    }
    reader.commands += usize::from(has_variables && reader.commands == number);
    Ok(starts.is_some())
}

/// Whether the words are a command that starts a VM.
pub(super) fn starts_vm(command: &CommandPart) -> bool {
    let words: Vec<(usize, &Argument)> = command.arguments.iter().map(|argument| (0, argument)).collect();
    matches!(starts(&words, &mut Vec::new()), Some(StartedProgram::Erl(_) | StartedProgram::Elixir(_)))
}

/// Whether a command with this first word may start a VM.
pub(super) fn may_start(word: &Layer) -> bool {
    let known = |name: &str| {
        is_erl(name)
            || is_elixir(name)
            || SHELLS.contains(&name)
            || USERS.contains(&name)
            || name == RUN_ERL
            || WRAPPERS.iter().any(|wrapper| wrapper.name == name)
    };
    program(word).is_some_and(known)
}

/// Whether a word is the name of a shell.
pub(super) fn is_shell(word: &Layer) -> bool {
    program(word).is_some_and(|name| SHELLS.contains(&name))
}

const SHELLS: &[&str] = &["sh", "bash", "dash", "ash", "ksh", "zsh"];
/// Programs that run a shell command as another user.
const USERS: &[&str] = &["su", "runuser"];
/// A program that runs its last argument, a shell command, in a pseudo terminal.
const RUN_ERL: &str = "run_erl";

/// A program that starts the program named by its arguments.
struct Wrapper {
    name: &'static str,
    /// Letters of the options that take the next word as a value.
    with_values: &'static str,
    /// The number of words between the options and the name of the started program.
    operands: usize,
    /// Whether assignments may precede the name of the started program.
    assigns: bool,
}

const WRAPPERS: &[Wrapper] = &[
    wrapper("exec", "a", 0),
    wrapper("nohup", "", 0),
    Wrapper { name: "env", with_values: "uC", operands: 0, assigns: true },
    Wrapper { name: "sudo", with_values: "ugChprtTUDR", operands: 0, assigns: true },
    wrapper("doas", "uC", 0),
    wrapper("su-exec", "", 1),
    wrapper("gosu", "", 1),
    wrapper("setuidgid", "", 1),
    wrapper("s6-setuidgid", "", 1),
    wrapper("chpst", "uUbe/nlLmdopfcrt", 0),
    wrapper("setpriv", "", 0),
    wrapper("setsid", "", 0),
    wrapper("nice", "n", 0),
    wrapper("ionice", "cnp", 0),
    wrapper("chrt", "TPD", 1),
    wrapper("taskset", "", 1),
    wrapper("numactl", "NmCcipw", 0),
    wrapper("timeout", "sk", 1),
    wrapper("time", "fo", 0),
    wrapper("stdbuf", "ioe", 0),
    wrapper("unbuffer", "", 0),
    wrapper("authbind", "", 0),
    wrapper("tini", "pe", 0),
    wrapper("dumb-init", "r", 0),
    wrapper("catatonit", "", 0),
];

const fn wrapper(name: &'static str, with_values: &'static str, operands: usize) -> Wrapper {
    Wrapper { name, with_values, operands, assigns: false }
}

impl Wrapper {
    /// Returns the index of the word that names the started program. The arguments of the wrapper begin at `at`.
    fn program<'w>(
        &self,
        words: &[(usize, &'w Argument)],
        mut at: usize,
        assignments: &mut Vec<&'w Arc<Layer>>,
    ) -> Option<usize> {
        while let Some(option) = words.get(at).map(|(_, word)| word.value.text())
            && option.len() > 1
            && option.starts_with('-')
        {
            at += 1;
            if option == "--" {
                break;
            }
            // The last letter of a group takes the next word as its value; any other letter takes the rest of the group.
            let mut letters = option.strip_prefix('-').unwrap_or_default().chars();
            let is_long = option.starts_with("--");
            let takes = letters.position(|letter| self.with_values.contains(letter));
            at += usize::from(!is_long && takes.is_some() && letters.next().is_none());
        }
        while let Some((_, word)) = words.get(at)
            && self.assigns
            && word.value.text().contains('=')
        {
            assignments.push(&word.value);
            at += 1;
        }
        Some(at + self.operands).filter(|at| *at < words.len())
    }
}

/// Returns the name of a program, without its directory; `None` if the name is unknown.
fn program(word: &Layer) -> Option<&str> {
    let begin = word.scan().rfind('/').map_or(0, |slash| slash + 1);
    let end = word.text().len();
    (begin < end && word.tags_in(&(begin..end)).is_empty()).then(|| word.slice(begin..end))
}

fn is_erl(name: &str) -> bool {
    matches!(name, "erl" | "werl" | "erlexec")
}

fn is_elixir(name: &str) -> bool {
    matches!(name, "elixir" | "iex")
}

/// Determines what a command starts, and adds the assignments before the program to `assignments`.
fn starts<'w>(
    words: &[(usize, &'w Argument)],
    assignments: &mut Vec<&'w Arc<Layer>>,
) -> Option<StartedProgram> {
    let mut at = 0;
    loop {
        let name = program(&words.get(at)?.1.value)?;
        let first = at + 1;
        match name {
            name if is_erl(name) => return Some(StartedProgram::Erl(first)),
            name if is_elixir(name) => return Some(StartedProgram::Elixir(first)),
            RUN_ERL => return (first < words.len()).then(|| StartedProgram::Shell(words.len() - 1)),
            name if SHELLS.contains(&name) => return text_of_shell(words, first).map(StartedProgram::Shell),
            name if USERS.contains(&name) => {
                let option = words.iter().skip(first).position(|(_, word)| is_command_option(&word.value))?;
                return Some(first + option + 1).filter(|at| *at < words.len()).map(StartedProgram::Shell);
            }
            name => {
                let wrapper = WRAPPERS.iter().find(|wrapper| wrapper.name == name)?;
                at = wrapper.program(words, first, assignments)?;
            }
        }
    }
}

/// Whether a word is `-c`, possibly with other letters: `-lc`.
fn is_command_option(word: &Layer) -> bool {
    let letters = word.text().strip_prefix('-').unwrap_or_default();
    letters.contains('c') && letters.bytes().all(|byte| byte.is_ascii_alphabetic())
}

/// Returns the index of the text that a shell runs, which is the first word after the options if `-c` is one of them.
fn text_of_shell(words: &[(usize, &Argument)], first: usize) -> Option<usize> {
    let (mut at, mut runs) = (first, false);
    while let Some(option) = words.get(at).map(|(_, word)| &word.value)
        && option.text().starts_with(['-', '+'])
    {
        at += 1;
        runs |= is_command_option(option);
        // `-o` takes a value: `-o pipefail`, `-euo pipefail`.
        at += usize::from(!option.text().starts_with("--") && option.text().ends_with(['o', 'O']));
    }
    (runs && at < words.len()).then_some(at)
}

/// A command and all of its words.
struct FoundCommand<'c> {
    command: &'c [&'c CommandPart],
    /// The words, each with the index of its text.
    words: Vec<(usize, &'c Argument)>,
}

/// The positions of the values of `--erl` on the command line (see [`Order::CommandLine`]). All values beyond the last position share it.
const FIRST_SWITCH: u8 = 20;
const LAST_SWITCH: u8 = 39;
/// Positions relative to the args file. If the command names no args file, its position is unknown; equal positions mean that it is
/// uncertain which one takes effect.
const SAME_AS_ARGS_FILE: u8 = 50;
const BEFORE_ARGS_FILE: u8 = 45;
const AFTER_ARGS_FILE: u8 = 55;

impl FoundCommand<'_> {
    fn text(&self, at: usize) -> Option<&str> {
        self.words.get(at).map(|(_, word)| word.value.text())
    }

    fn erl(&self, reader: &mut Reader, first: usize) {
        let end = (first..self.words.len()).find(|at| self.text(*at) == Some("-extra"));
        let own: Vec<&str> =
            (first..end.unwrap_or(self.words.len())).filter_map(|at| self.text(at)).collect();
        if is_helper(&own) {
            return;
        }
        let words = (first..self.words.len()).filter_map(|at| self.word(at)).collect();
        self.add(reader, CommandWords::Erl, words);
        reader.commands += 1;
    }

    fn word(&self, at: usize) -> Option<(usize, Word)> {
        let (index, argument) = self.words.get(at)?;
        let layer = &self.command.get(*index)?.layer;
        let value = &argument.value;
        let span = layer.range_in_file(argument.at.clone());
        let conditional = layer.is_conditional(&span);
        let word = Word {
            text: value.text().to_owned(),
            dynamic: !value.tags_in(&(0..value.text().len())).is_empty(),
            conditional,
            span,
            at: argument.at.clone(),
        };
        Some((*index, word))
    }

    /// Adds words as fragments. A new fragment starts where another text starts, and after `-args_file NAME`, because the words of that
    /// file come in between.
    fn add(&self, reader: &mut Reader, kind: CommandWords, words: Vec<(usize, Word)>) {
        let end = words.iter().position(|(_, word)| word.text == "-extra").unwrap_or(words.len());
        let file = words[..end].iter().position(|(_, word)| word.text == "-args_file");
        let mut pieces: Vec<((usize, Order), Vec<Word>)> = Vec::new();
        for (at, (text, word)) in words.into_iter().enumerate() {
            let order = Order::CommandLine(match file {
                None => SAME_AS_ARGS_FILE,
                Some(file) if at <= file + 1 => BEFORE_ARGS_FILE,
                Some(_) => AFTER_ARGS_FILE,
            });
            match pieces.last_mut() {
                Some((key, piece)) if *key == (text, order) => piece.push(word),
                _ => pieces.push(((text, order), vec![word])),
            }
        }
        for ((text, order), words) in pieces {
            let Some(written) = self.command.get(text) else { continue };
            if text > 0 && words.first().is_some_and(|word| !is_flag(&word.text)) {
                mark_last_word_unknown(reader);
            }
            reader.add(Place::CommandLine { words: kind, order }, words, &written.layer, written.split);
        }
    }

    fn elixir(&self, reader: &mut Reader, first: usize) -> Result<(), SourceError> {
        let is_iex = self.words.get(first - 1).and_then(|(_, word)| program(&word.value)) == Some("iex");
        let (mut switches, mut options) = (Vec::new(), Vec::new());
        let (mut evaluates, mut stays, mut is_remote) = (false, is_iex, false);
        let mut at = first;
        while let Some((_, word)) = self.words.get(at) {
            let is_known = word.value.tags_in(&(0..word.value.text().len())).is_empty();
            let option = OPTIONS.iter().find(|option| is_known && option.name == word.value.text());
            let Some(option) = option else { break };
            let end = at + 1 + option.values;
            match option.name {
                "--erl" => switches.extend(self.words.get(at + 1)),
                "-e" | "--eval" => evaluates = true,
                "--no-halt" => stays = true,
                "--remsh" | "--rpc-eval" => is_remote = true,
                _ => {}
            }
            if let Some(flag) = option.becomes {
                let name = self.word(at).map(|(text, word)| (text, Word { text: flag.to_owned(), ..word }));
                options.extend(name);
                options.extend((at + 1..end).filter_map(|at| self.word(at)));
            }
            at = end;
        }
        if is_remote || evaluates && !stays {
            return Ok(());
        }
        for (nth, (_, value)) in switches.into_iter().enumerate() {
            let nth = u8::try_from(nth).unwrap_or(u8::MAX);
            let order = Order::CommandLine(FIRST_SWITCH.saturating_add(nth).min(LAST_SWITCH));
            let place = Place::CommandLine { words: CommandWords::Switches, order };
            if nth > 0 && !is_flag(value.value.text().trim_start()) {
                mark_last_word_unknown(reader);
            }
            reader.words(place, &value.value, Split::Fields, false)?;
        }
        self.add(reader, CommandWords::Options, options);
        reader.commands += 1;
        Ok(())
    }
}

fn is_flag(text: &str) -> bool {
    text.starts_with(['-', '+'])
}

/// Marks the last word as unknown, because the flag in it may take the next word, which is in another text, as its value.
fn mark_last_word_unknown(reader: &mut Reader) {
    let last = reader.fragments.last_mut().and_then(|fragment| fragment.words.last_mut());
    if let Some(word) = last {
        word.dynamic = true;
    }
}

/// An option of `elixir` and `iex`.
struct ElixirOption {
    name: &'static str,
    /// The number of words that the option takes.
    values: usize,
    /// The flag of `erl` to which the option is converted.
    becomes: Option<&'static str>,
}

const OPTIONS: &[ElixirOption] = &[
    option("--erl", 1),
    becomes("--name", 1, "-name"),
    becomes("--sname", 1, "-sname"),
    becomes("--cookie", 1, "-setcookie"),
    becomes("--hidden", 0, "-hidden"),
    becomes("--vm-args", 1, "-args_file"),
    becomes("--erl-config", 1, "-config"),
    becomes("--boot", 1, "-boot"),
    becomes("--boot-var", 2, "-boot_var"),
    option("+iex", 0),
    option("-v", 0),
    option("--no-halt", 0),
    option("--color", 0),
    option("--no-color", 0),
    option("--werl", 0),
    option("-e", 1),
    option("-r", 1),
    option("-pr", 1),
    option("-pa", 1),
    option("-pz", 1),
    option("--app", 1),
    option("--eval", 1),
    option("--remsh", 1),
    option("--dot-iex", 1),
    option("--dbg", 1),
    option("--logger-otp-reports", 1),
    option("--logger-sasl-reports", 1),
    option("--rpc-eval", 2),
    option("--pipe-to", 2),
];

const fn option(name: &'static str, values: usize) -> ElixirOption {
    ElixirOption { name, values, becomes: None }
}

const fn becomes(name: &'static str, values: usize, flag: &'static str) -> ElixirOption {
    ElixirOption { name, values, becomes: Some(flag) }
}

/// Whether the words start a VM that exits after one task, or a shell on another node.
fn is_helper(words: &[&str]) -> bool {
    const ALONE: &[&str] = &["-version", "+V", "-make", "-compile", "-man", "-remsh"];
    const ENDS: &[[&str; 2]] = &[["init", "stop"], ["erlang", "halt"]];
    words.iter().any(|word| ALONE.contains(word))
        || words.windows(2).any(|pair| {
            pair[0] == "-eval" && ["halt(", "init:stop(", "q()"].iter().any(|call| pair[1].contains(call))
        })
        || words
            .windows(3)
            .any(|words| matches!(words[0], "-s" | "-run") && ENDS.contains(&[words[1], words[2]]))
}
