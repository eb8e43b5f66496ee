//! Lossless readers for all kinds of files that contain emulator flags.
//!
//! [`read`] parses a file into the words that the VM receives, each with its byte range in the file. A reader parses like
//! the programs that process the file: `erlexec` for args files and `ERL_FLAGS`, and before that the shell, Docker, Compose,
//! Kubernetes or systemd. Templates and variables are marked and not expanded.
//! [`Fragment::change`] is the inverse: it converts changes of words into minimal edits of the file for [`apply`].
//!
//! | format | read | not read |
//! |---|---|---|
//! | args files (`vm.args`) | all words; templates are kept | files named by `-args_file` |
//! | `.env` files | variables, in the dialect of Docker Compose | other dialects (`docker run --env-file` keeps quotes) |
//! | Dockerfiles | `ENV`, both forms; `CMD` with `ENTRYPOINT`; `RUN` with only exports | `ARG`, other commands in `RUN`, `HEALTHCHECK` |
//! | YAML | variables and commands of Compose and Kubernetes; files in a ConfigMap | aliases, values from secrets, probes |
//! | systemd units | `Environment=`; `ExecStart=`; the file names in `EnvironmentFile=` | `ExecStartPre=` and similar keys |
//! | shell scripts, `rabbitmq-env.conf`, `ejabberdctl.cfg` | assignments; commands | `${NAME:=value}`; commands in variables and `$(…)` |
//!
//! Commands are read if they start a VM with `erl`, `elixir` or `iex`, unless that VM is only a helper; see the module
//! `command`.
//!
//! Readers take linear time, and their recursion depth is limited. Files above [`MAX_BYTES`] are rejected.

mod command;
mod detect;
mod docker;
mod dotenv;
mod edit;
mod erlexec;
mod error;
mod exported;
mod layer;
mod lines;
mod place;
mod quote;
mod shell;
mod systemd;
mod template;
mod variables;
mod yaml;

use std::ops::Range;
use std::sync::Arc;

use self::erlexec::{Split, Unclosed, split};
use self::layer::Layer;
use self::variables::{Scope, Variable};

pub(crate) use self::docker::stages;
pub(crate) use self::edit::{Changes, WriteMode, reads_as};
pub(crate) use self::lines::line_begin;

pub use self::detect::detect;
pub use self::edit::{Change, Edit, apply};
pub use self::error::{Position, SourceError};
pub use self::lines::Lines;
pub use self::place::{CommandWords, Effect, Order, Place, Role};
pub use self::template::Template;

/// Maximum size of a file. The largest args file in public repositories has about 20 kB; a YAML file of a large release may
/// have a few MB.
pub const MAX_BYTES: usize = 32 << 20;

/// The syntax of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// An args file in the form that `erl` parses: `vm.args`.
    VmArgs,
    /// A template of an args file.
    VmArgsTemplate(Template),
    /// An `.env` file in the dialect of Docker Compose.
    EnvFile,
    /// A Dockerfile.
    Dockerfile,
    /// YAML in which Docker Compose expands `$NAME`.
    Compose,
    /// Any other YAML: Kubernetes manifests, Helm charts and their values.
    Kubernetes,
    /// A systemd unit, or a Quadlet of Podman.
    SystemdUnit,
    /// RabbitMQ's `rabbitmq-env.conf`.
    RabbitmqEnv,
    /// ejabberd's `ejabberdctl.cfg`.
    EjabberdCtl,
    /// A shell script that sets variables: `env.sh`, `/etc/default/…`.
    Shell,
}

/// A word that the VM receives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    /// The text that the VM receives, except that templates and variables are not expanded.
    pub text: String,
    /// The byte range in the file, including quotes.
    pub span: Range<usize>,
    /// Whether a part of the word is a template or a variable, so that the text is unknown.
    pub dynamic: bool,
    /// Whether the word is in a conditional part of the file: between `<% if … %>` and `<% end %>`, or after `if` in a script.
    pub conditional: bool,
    /// The byte range in the innermost text.
    at: Range<usize>,
}

/// The words of one variable, command or args file in a file. Their spans ascend and do not overlap.
#[derive(Debug, Clone)]
pub struct Fragment {
    /// The place of the words, which determines their meaning.
    pub place: Place,
    /// The words, in the order of the file.
    pub words: Vec<Word>,
    layer: Arc<Layer>,
    split: Split,
    format: Format,
    index: usize,
    command: Option<usize>,
}

impl Fragment {
    /// Returns the byte range from the first to the last word. For an empty fragment, the range is empty and is where the first word
    /// would be.
    pub fn span(&self) -> Range<usize> {
        match (self.words.first(), self.words.last()) {
            (Some(first), Some(last)) => first.span.start..last.span.end,
            _ => self.layer.range_in_file(0..0),
        }
    }

    /// Returns the format of the file.
    pub(crate) fn format(&self) -> Format {
        self.format
    }

    /// Returns the number of the command to which the words belong; `None` if they apply to all commands of the file. Each command starts
    /// at most one VM.
    pub(crate) fn command(&self) -> Option<usize> {
        self.command
    }

    /// Returns the text of the whole file.
    pub(crate) fn file_text(&self) -> &str {
        self.layer.file_text()
    }

    /// Returns the text after a word, up to the end of the innermost text. It contains comments, white space and the next words.
    pub(crate) fn text_after(&self, word: usize) -> &str {
        let at = self.words.get(word).map_or(usize::MAX, |word| word.at.end);
        self.layer.text().get(at..).unwrap_or_default()
    }
}

/// Parses a file into fragments, in the order of the file. A file without flags has no fragments.
///
/// # Errors
/// If the file violates its format; see [`SourceError`]. Only parts that are relevant for flags are checked.
pub fn read(format: Format, text: &str) -> Result<Vec<Fragment>, SourceError> {
    if text.len() > MAX_BYTES {
        return Err(SourceError::TooLarge { bytes: text.len(), limit: MAX_BYTES });
    }
    if let Some(offset) = text.find('\0') {
        return Err(SourceError::Binary { at: Position::of(text, offset) });
    }
    let found = match format {
        Format::VmArgs => template::Tags::default(),
        Format::VmArgsTemplate(kind) => {
            template::of_args_file(text, kind).map_err(|fault| faulty_template(text, kind, &fault))?
        }
        _ => template::of_any_file(text),
    };
    let file = Layer::file(text, found.tags, found.conditional);
    let mut reader = Reader { fragments: Vec::new(), commands: 0 };
    reader.layer(format, &file, None)?;
    let mut fragments = reader.fragments;
    fragments.sort_by_key(|fragment| fragment.span().start);
    for (index, fragment) in fragments.iter_mut().enumerate() {
        (fragment.format, fragment.index) = (format, index);
    }
    exported::mark(format, text, &mut fragments);
    Ok(fragments)
}

/// Decodes the bytes of a file as UTF-8.
///
/// # Errors
/// [`SourceError::Binary`] or [`SourceError::NotUtf8`], with the position of the first invalid byte.
pub fn text(bytes: &[u8]) -> Result<&str, SourceError> {
    let begin = |length: usize| std::str::from_utf8(&bytes[..length]).unwrap_or_default();
    if let Some(offset) = bytes.iter().position(|byte| *byte == 0) {
        let readable =
            std::str::from_utf8(&bytes[..offset]).map_or_else(|error| error.valid_up_to(), str::len);
        return Err(SourceError::Binary { at: Position::of(begin(readable), readable) });
    }
    std::str::from_utf8(bytes).map_err(|error| {
        let offset = error.valid_up_to();
        SourceError::NotUtf8 { at: Position::of(begin(offset), offset) }
    })
}

/// Returns the line and column of a byte offset. [`Lines`] is faster for many offsets in one text.
pub fn position(text: &str, offset: usize) -> Position {
    Position::of(text, offset)
}

/// Creates a fragment from the arguments of a running emulator (`erlang:system_info(emu_args)`, or `/proc/PID/cmdline` split at NULs).
/// Spans refer to the arguments, joined by single spaces. The argument `*` was redacted, so its text is unknown.
pub fn running_node(args: &[String]) -> Fragment {
    const HIDDEN: &str = "*";
    let line = args.join(" ");
    let mut words = Vec::with_capacity(args.len());
    let mut at = 0;
    for arg in args {
        let span = at..at + arg.len();
        at = span.end + 1;
        words.push(Word {
            text: arg.clone(),
            span: span.clone(),
            dynamic: arg == HIDDEN,
            conditional: false,
            at: span,
        });
    }
    let layer = Layer::file(&line, Vec::new(), Vec::new());
    Fragment {
        place: Place::RunningNode,
        words,
        layer,
        split: Split::Fields,
        format: Format::VmArgs,
        index: 0,
        command: None,
    }
}

fn faulty_template(text: &str, kind: Template, fault: &template::Fault) -> SourceError {
    match *fault {
        template::Fault::Unclosed { at, tag } => {
            SourceError::UnclosedTag { at: Position::of(text, at), tag: tag.to_owned() }
        }
        template::Fault::Unknown { at, tag } => SourceError::UnknownTag {
            at: Position::of(text, at),
            tag: tag.to_owned(),
            expected: kind.name(),
            advice: "give the file the extension of its kind (.eex, .erb, .src, .j2), or remove the tag",
        },
    }
}

/// Collects the fragments that the readers of all formats find.
struct Reader {
    fragments: Vec<Fragment>,
    /// The number of commands read so far that start a VM or have variables of their own.
    commands: usize,
}

impl Reader {
    /// Reads a text in a format; `name` is the name of an embedded file.
    fn layer(&mut self, format: Format, layer: &Arc<Layer>, name: Option<&str>) -> Result<(), SourceError> {
        match format {
            Format::VmArgs | Format::VmArgsTemplate(_) => {
                let place = Place::ArgsFile { name: name.map(str::to_owned) };
                self.words(place, layer, Split::ArgsFile, false)
            }
            Format::EnvFile => dotenv::read(self, layer),
            Format::Dockerfile => docker::read(self, layer),
            Format::Compose | Format::Kubernetes => yaml::read(self, format, layer),
            Format::SystemdUnit => systemd::read(self, layer),
            Format::RabbitmqEnv => shell::read(self, layer, Scope::RabbitmqEnv),
            Format::EjabberdCtl => shell::read(self, layer, Scope::EjabberdCtl),
            Format::Shell => shell::read(self, layer, Scope::Any),
        }
    }

    /// Adds the value of a variable.
    fn variable(
        &mut self,
        name: &str,
        variable: &Variable,
        value: &Arc<Layer>,
        conditional: bool,
    ) -> Result<(), SourceError> {
        let plain = value.text().trim().bytes().all(|byte| byte.is_ascii_digit());
        if variable.numbers_only && !plain {
            return Ok(());
        }
        let place = Place::Variable { name: name.to_owned(), effect: variable.effect() };
        self.words(place, value, variable.split, conditional)
    }

    fn words(
        &mut self,
        place: Place,
        layer: &Arc<Layer>,
        rules: Split,
        conditional: bool,
    ) -> Result<(), SourceError> {
        let pieces = split(layer, rules).map_err(|Unclosed { at, quote }| SourceError::UnclosedQuote {
            at: layer.position(at),
            quote,
            effect: match rules {
                Split::ArgsFile => "erl takes the rest of the file as one word",
                _ => "erl takes the rest of the value as one word",
            },
        })?;
        let words = pieces.into_iter().map(|piece| {
            let span = layer.range_in_file(piece.range.clone());
            let conditional = conditional || layer.is_conditional(&span);
            Word { text: piece.text, span, dynamic: piece.dynamic, conditional, at: piece.range }
        });
        let words = words.collect();
        self.add(place, words, layer, rules);
        Ok(())
    }

    /// Assigns the variables in the fragments from `begin` on to the next command.
    fn give_to_next_command(&mut self, begin: usize) {
        for fragment in self.fragments.iter_mut().skip(begin) {
            fragment.command = Some(self.commands);
        }
    }

    fn add(&mut self, place: Place, words: Vec<Word>, layer: &Arc<Layer>, split: Split) {
        let command = matches!(place, Place::CommandLine { .. }).then_some(self.commands);
        let layer = Arc::clone(layer);
        self.fragments.push(Fragment {
            place,
            words,
            layer,
            split,
            format: Format::VmArgs,
            index: 0,
            command,
        });
    }
}
