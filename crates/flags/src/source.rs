//! Lossless readers for every kind of file in which emulator flags stand.
//!
//! [`read`] goes from the text of a file to the words that the VM gets, each with its bytes in the file. A reader sees what the
//! programs see: for args files and `ERL_FLAGS` that is the launcher `erlexec`, around them the shell, Docker, Compose,
//! Kubernetes or systemd. What a template or a variable will take the place of is kept as it is and marked.
//! [`Fragment::change`] goes back: from changes of words to the edits of the file that make them and nothing else, and
//! [`apply`] makes those.
//!
//! | format | what is read | not read |
//! |---|---|---|
//! | args files (`vm.args`) | all words; templates are kept | the files that `-args_file` names |
//! | `.env` files | variables as Docker Compose reads them | other dialects (`docker run --env-file` takes quotes as they are) |
//! | Dockerfiles | `ENV`, both forms, over several lines; `CMD` with `ENTRYPOINT`; `RUN` that only exports | `ARG`, other commands in `RUN` and `HEALTHCHECK` |
//! | YAML | Compose's and Kubernetes' variables and commands; files in a ConfigMap | aliases, values from secrets, probes |
//! | systemd units | `Environment=`; `ExecStart=`; the names in `EnvironmentFile=` | `ExecStartPre=` and its like |
//! | shell scripts, `rabbitmq-env.conf`, `ejabberdctl.cfg` | assignments; commands | `${NAME:=value}`; commands in variables and substitutions |
//!
//! Of commands those are taken that start a VM with `erl`, `elixir` or `iex`, unless that VM is only a helper: the module
//! `command` says which.
//!
//! A reader has no limit of time that grows faster than the file, and none of depth: files above [`MAX_BYTES`] are refused.

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
pub(crate) use self::edit::{Changes, Way, reads_as};
pub(crate) use self::lines::line_begin;

pub use self::detect::detect;
pub use self::edit::{Change, Edit, apply};
pub use self::error::{Position, SourceError};
pub use self::lines::Lines;
pub use self::place::{CommandWords, Effect, Order, Place, Role};
pub use self::template::Template;

/// The longest file that is read, in bytes. The longest args file found in public repositories has some 20 kB; a YAML file
/// of a large release may have a few MB.
pub const MAX_BYTES: usize = 32 << 20;

/// The syntax of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// An args file as `erl` reads it: `vm.args`.
    VmArgs,
    /// An args file that is made from a template.
    VmArgsTemplate(Template),
    /// A `.env` file, as Docker Compose reads it.
    EnvFile,
    /// A Dockerfile.
    Dockerfile,
    /// YAML in which Docker Compose fills in `$NAME`.
    Compose,
    /// Any other YAML: Kubernetes' manifests, Helm's charts and their values.
    Kubernetes,
    /// A unit of systemd, or a Quadlet of Podman.
    SystemdUnit,
    /// RabbitMQ's `rabbitmq-env.conf`.
    RabbitmqEnv,
    /// ejabberd's `ejabberdctl.cfg`.
    EjabberdCtl,
    /// A shell script that sets variables: `env.sh`, `/etc/default/…`.
    Shell,
}

/// A word that the VM gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    /// As the VM gets it; a template or a variable in it stands as in the file.
    pub text: String,
    /// Its bytes in the file, with its quotes.
    pub span: Range<usize>,
    /// Part of it is a template or a variable, so that its text is not known.
    pub dynamic: bool,
    /// It stands in a part of the file that may not be there: between `<% if … %>` and `<% end %>`, or behind `if` in a script.
    pub conditional: bool,
    /// Where it stands in the innermost text.
    at: Range<usize>,
}

/// Words of a file that belong together. Their spans ascend and do not overlap.
#[derive(Debug, Clone)]
pub struct Fragment {
    /// What they are for.
    pub place: Place,
    /// In the order of the file.
    pub words: Vec<Word>,
    layer: Arc<Layer>,
    split: Split,
    format: Format,
    index: usize,
    command: Option<usize>,
}

impl Fragment {
    /// The bytes of the file from the first to the last word; where the first would stand if there is none.
    pub fn span(&self) -> Range<usize> {
        match (self.words.first(), self.words.last()) {
            (Some(first), Some(last)) => first.span.start..last.span.end,
            _ => self.layer.out(0..0),
        }
    }

    /// The syntax of the file that it was read from.
    pub(crate) fn format(&self) -> Format {
        self.format
    }

    /// Which command of the file its words are for; `None` if for all that stands in it. Each command starts a VM of its own, if
    /// any.
    pub(crate) fn command(&self) -> Option<usize> {
        self.command
    }

    /// The whole file.
    pub(crate) fn file_text(&self) -> &str {
        self.layer.file_text()
    }

    /// What stands behind a word, up to the end of the innermost text: a comment, white space, the next words.
    pub(crate) fn behind(&self, word: usize) -> &str {
        let at = self.words.get(word).map_or(usize::MAX, |word| word.at.end);
        self.layer.text().get(at..).unwrap_or_default()
    }
}

/// The words of a file, in the order of the file. A file without flags gives none.
///
/// # Errors
/// Where the file is not what the format asks for: see [`SourceError`]. Only what concerns flags is looked at; a faulty line
/// elsewhere is none of ours.
pub fn read(format: Format, text: &str) -> Result<Vec<Fragment>, SourceError> {
    if text.len() > MAX_BYTES {
        return Err(SourceError::TooLarge { bytes: text.len(), limit: MAX_BYTES });
    }
    if let Some(offset) = text.find('\0') {
        return Err(SourceError::Binary { at: Position::of(text, offset) });
    }
    let found = match format {
        Format::VmArgs => template::Found::default(),
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

/// The text of a file's bytes.
///
/// # Errors
/// [`SourceError::Binary`] or [`SourceError::NotUtf8`], with the first byte that is wrong.
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

/// The line and the column of a byte of a text; for many of them ask [`Lines`].
pub fn position(text: &str, offset: usize) -> Position {
    Position::of(text, offset)
}

/// The arguments of a live emulator (`erlang:system_info(emu_args)`, or `/proc/PID/cmdline` at NULs) as a fragment. Spans are those
/// in the arguments joined with one space. A `*` stands for what is not shown, so nobody knows what it is.
pub fn live_node(args: &[String]) -> Fragment {
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
        place: Place::LiveNode,
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
            advice: "name the file by its kind (.eex, .erb, .src, .j2), or remove the tag",
        },
    }
}

/// What the readers of all formats put their finds into.
struct Reader {
    fragments: Vec<Fragment>,
    /// How many commands have been read, of those that start a VM or have variables of their own.
    commands: usize,
}

impl Reader {
    /// Reads a text in a format; `name` is that of a file inside of a file.
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

    /// Takes the value of a variable.
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
            let span = layer.out(piece.range.clone());
            let conditional = conditional || layer.is_conditional(&span);
            Word { text: piece.text, span, dynamic: piece.dynamic, conditional, at: piece.range }
        });
        let words = words.collect();
        self.add(place, words, layer, rules);
        Ok(())
    }

    /// Says of the fragments from `begin` on that they are variables of the command that is read next.
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
