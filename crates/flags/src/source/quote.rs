//! Quotes and escapes of all syntaxes that may surround flags.
//!
//! A part of a value is written within the existing quotes ([`Quote::write`]), so that the rest of the file does not change. If that is
//! impossible, such as for a space outside quotes, the whole value is rewritten in double quotes ([`Syntax::write`]), which all of these
//! syntaxes have.

/// The quotes that surround a character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quote {
    /// No quotes: every character is literal.
    Same,
    /// A logical line that was joined from several lines: all characters except line ends are literal.
    Joined,
    ShellBare,
    ShellSingle,
    ShellDouble,
    /// Unquoted text of a Dockerfile, with the escape character: a backslash or a backtick.
    DockerBare(char),
    /// The rest of a line after `ENV NAME `, which may contain spaces.
    DockerLine(char),
    DockerSingle,
    DockerDouble(char),
    DotenvBare,
    DotenvSingle,
    DotenvDouble,
    SystemdBare,
    /// A quoted text of systemd, with the quote character.
    SystemdQuoted(char),
    YamlPlain,
    YamlSingle,
    YamlDouble,
    /// A literal block (`|`), with the indentation.
    YamlLiteral(usize),
    /// A folded block (`>`).
    YamlFolded,
    /// Text in which Compose expands `$NAME`.
    Compose,
    /// Text in which Kubernetes expands `$(NAME)`.
    Kubernetes,
}

/// The syntax in which a whole value is rewritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Syntax {
    /// The value cannot be rewritten, only changed in place.
    Same,
    Shell,
    /// The syntax of a Dockerfile, with the escape character.
    Docker(char),
    Dotenv,
    Systemd,
    Yaml,
}

/// The syntax in which the words of a command are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// A shell command, or a string that is split like a shell command.
    Shell,
    /// A line of a systemd unit.
    Systemd,
    /// A list in brackets, separated by commas, in JSON or YAML; with the quote of the program that expands variables.
    Flow(Quote),
    /// A YAML block list; with the quote of the program that expands variables.
    Block(Quote),
}

/// A part of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Segment<'t> {
    Text(&'t str),
    /// A template or a variable, which is kept unchanged.
    Tag(&'t str),
}

/// The text that surrounds the text to write.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Context<'t> {
    /// The part of the value before the text to write.
    pub(crate) before: &'t str,
    /// The replaced text.
    pub(crate) old: &'t str,
    /// The part of the value after the text to write.
    pub(crate) after: &'t str,
}

impl Quote {
    /// Escapes `text` for these quotes; `None` if these quotes cannot contain it.
    pub(crate) fn write(self, text: &str, context: Context<'_>) -> Option<String> {
        match self {
            Quote::Same => Some(text.to_owned()),
            Quote::Joined | Quote::YamlFolded => (!text.contains(['\n', '\r'])).then(|| text.to_owned()),
            Quote::ShellBare | Quote::DockerBare(_) => is_bare(text, &[]).then(|| text.to_owned()),
            Quote::DockerLine(_) => {
                (is_bare(text, &[' ']) && is_inside(text, context)).then(|| text.to_owned())
            }
            Quote::ShellSingle | Quote::DockerSingle => without(text, &['\'', '\n']),
            Quote::ShellDouble => Some(escaped(text, '\\', &['\\', '"', '$', '`'])),
            Quote::DockerDouble(escape) => {
                (!text.contains('\n')).then(|| escaped(text, escape, &[escape, '"', '$']))
            }
            Quote::DotenvBare => {
                let quote_first = context.before.is_empty() && text.starts_with(['"', '\'']);
                let comment = text.starts_with('#') || text.contains(" #");
                let fits = !quote_first && !comment && is_inside(text, context);
                fits.then(|| without(text, &['$', '\n', '\r'])).flatten()
            }
            Quote::DotenvSingle => without(text, &['\'', '\\', '\n']),
            Quote::DotenvDouble => Some(escaped(text, '\\', &['\\', '"', '$']).replace('\n', "\\n")),
            Quote::SystemdBare => {
                let fits = !text.contains(|c: char| c.is_whitespace() || matches!(c, '"' | '\''));
                fits.then(|| escaped(text, '\\', &['\\']).replace('%', "%%"))
            }
            Quote::SystemdQuoted(quote) => {
                (!text.contains('\n')).then(|| escaped(text, '\\', &['\\', quote]).replace('%', "%%"))
            }
            Quote::YamlPlain => yaml_plain(text, context).then(|| text.to_owned()),
            Quote::YamlSingle => without(text, &['\n']).map(|text| text.replace('\'', "''")),
            Quote::YamlDouble => Some(yaml_double(text)),
            Quote::YamlLiteral(indent) => Some(yaml_literal(text, indent, context)),
            Quote::Compose => Some(text.replace('$', "$$")),
            Quote::Kubernetes => Some(text.replace("$(", "$$(")),
        }
    }
}

impl Syntax {
    /// Writes a value in double quotes; `None` if it can only be changed in place.
    pub(crate) fn write(self, segments: &[Segment<'_>]) -> Option<String> {
        let quote = match self {
            Syntax::Same => return None,
            Syntax::Shell => Quote::ShellDouble,
            Syntax::Docker(escape) => Quote::DockerDouble(escape),
            Syntax::Dotenv => Quote::DotenvDouble,
            Syntax::Systemd => Quote::SystemdQuoted('"'),
            Syntax::Yaml => Quote::YamlDouble,
        };
        let context = Context { before: "", old: "", after: "" };
        let mut whole = String::from('"');
        for segment in segments {
            match segment {
                Segment::Text(text) => whole.push_str(&quote.write(text, context)?),
                Segment::Tag(text) => whole.push_str(text),
            }
        }
        whole.push('"');
        Some(whole)
    }
}

impl Style {
    /// Writes a word, with quotes if needed; `None` if it cannot be written.
    pub(crate) fn write(self, text: &str) -> Option<String> {
        let context = Context { before: "", old: "", after: "" };
        let (bare, syntax, text) = match self {
            Style::Shell => (Some(Quote::ShellBare), Syntax::Shell, text.to_owned()),
            // systemd expands variables in commands, so a dollar is written `$$`.
            Style::Systemd => (Some(Quote::SystemdBare), Syntax::Systemd, text.replace('$', "$$")),
            // Kubernetes rejects an unquoted number.
            Style::Flow(expansion) | Style::Block(expansion) => {
                (None, Syntax::Yaml, expansion.write(text, context)?)
            }
        };
        // In systemd, `;` ends a command, and on a continuation line both `#` and `;` start a comment.
        let bare = bare.filter(|_| !text.is_empty() && !text.starts_with(['#', ';']));
        let bare = bare.and_then(|bare| bare.write(&text, context));
        bare.or_else(|| syntax.write(&[Segment::Text(&text)]))
    }
}

/// Whether all characters are literal outside quotes, in a shell and in Docker.
fn is_bare(text: &str, also: &[char]) -> bool {
    let plain = |c: char| c.is_alphanumeric() || "+-_./:@%,=^".contains(c) || also.contains(&c);
    text.chars().all(plain)
}

/// Whether the value would have no white space at its start or end, which would be lost.
fn is_inside(text: &str, context: Context<'_>) -> bool {
    let begins = !context.before.is_empty() || !text.starts_with(char::is_whitespace);
    let ends = !context.after.is_empty() || !text.ends_with(char::is_whitespace);
    begins && ends
}

fn without(text: &str, characters: &[char]) -> Option<String> {
    (!text.contains(characters)).then(|| text.to_owned())
}

fn escaped(text: &str, escape: char, characters: &[char]) -> String {
    let mut written = String::with_capacity(text.len());
    for c in text.chars() {
        if characters.contains(&c) {
            written.push(escape);
        }
        written.push(c);
    }
    written
}

/// Whether a text is valid as a plain scalar. Stricter than YAML, which allows more characters in some contexts.
fn yaml_plain(text: &str, context: Context<'_>) -> bool {
    let mut characters = text.chars().peekable();
    while let Some(c) = characters.next() {
        let fits = match c {
            ':' => characters.peek().is_some_and(|next| next.is_alphanumeric()),
            c => c.is_alphanumeric() || " +-_./=@%^~$()\"'\\".contains(c),
        };
        if !fits {
            return false;
        }
    }
    let first_fits = match text.chars().next() {
        Some(c) => c.is_alphanumeric() || "+-_./".contains(c),
        None => true,
    };
    // `- ` starts a list item.
    let first_fits = first_fits && text != "-" && !text.starts_with("- ");
    // Kubernetes rejects an unquoted number or boolean where a string is required.
    let alone = context.before.is_empty() && context.after.is_empty();
    let typed = alone && is_typed(text) && !is_typed(context.old);
    is_inside(text, context) && !typed && (first_fits || !context.before.is_empty())
}

/// Whether YAML parses a plain text as something other than a string.
fn is_typed(text: &str) -> bool {
    const WORDS: [&str; 9] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    let number = text.trim_start_matches(['+', '-']).starts_with(|c: char| c.is_ascii_digit() || c == '.');
    text.is_empty() || number || WORDS.contains(&text.to_ascii_lowercase().as_str())
}

fn yaml_double(text: &str) -> String {
    let mut written = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' | '"' => {
                written.push('\\');
                written.push(c);
            }
            '\n' => written.push_str("\\n"),
            '\t' => written.push_str("\\t"),
            c if c.is_control() || matches!(c, '\u{feff}' | '\u{2028}' | '\u{2029}') => {
                written.push_str(&format!("\\u{:04X}", u32::from(c)));
            }
            c => written.push(c),
        }
    }
    written
}

/// Adds the indentation to every line that starts in `text`.
fn yaml_literal(text: &str, indent: usize, context: Context<'_>) -> String {
    let mut written = String::with_capacity(text.len() + indent);
    // If the line continues after the inserted text, it is already indented.
    let mut begins =
        (context.before.is_empty() || context.before.ends_with('\n')) && context.after.is_empty();
    for (index, line) in text.split_inclusive('\n').enumerate() {
        if (begins || index > 0) && line != "\n" {
            written.extend(std::iter::repeat_n(' ', indent));
        }
        written.push_str(line);
        begins = false;
    }
    // The existing line now starts after the inserted text and needs an indentation of its own.
    if text.ends_with('\n')
        && !context.after.is_empty()
        && (context.before.is_empty() || context.before.ends_with('\n'))
    {
        written.extend(std::iter::repeat_n(' ', indent));
    }
    written
}
