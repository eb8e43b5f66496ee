//! How a text is written inside of another one: quotes and escapes of every syntax around flags.
//!
//! Two ways. A piece of a value is written in the quotes that stand there ([`Quote::write`]), so that everything around it
//! keeps its bytes; where it cannot stand there (a space outside of quotes), the whole value is written anew
//! ([`Syntax::write`]), always in double quotes, which every one of these syntaxes has.

/// The quotes that a character stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quote {
    /// None: every character stands for itself.
    Same,
    /// A logical line put together from several: all but line ends stand for themselves.
    Joined,
    ShellBare,
    ShellSingle,
    ShellDouble,
    /// With the character that escapes, a backslash or a backtick.
    DockerBare(char),
    /// The rest of a line, after `ENV NAME `: spaces may stand there.
    DockerLine(char),
    DockerSingle,
    DockerDouble(char),
    DotenvBare,
    DotenvSingle,
    DotenvDouble,
    SystemdBare,
    /// With the quote itself.
    SystemdQuoted(char),
    YamlPlain,
    YamlSingle,
    YamlDouble,
    /// A literal block (`|`), with its indentation.
    YamlLiteral(usize),
    /// A folded block (`>`).
    YamlFolded,
    /// Where Compose fills in `$NAME`.
    Compose,
    /// Where Kubernetes fills in `$(NAME)`.
    Kubernetes,
}

/// How a whole value is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Syntax {
    /// It can only be changed in its place.
    Same,
    Shell,
    /// With the character that escapes.
    Docker(char),
    Dotenv,
    Systemd,
    Yaml,
}

/// How the words of a command are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// In a shell, or as a string that is split as a shell does it.
    Shell,
    /// On a line of a unit of systemd.
    Systemd,
    /// As texts between brackets and commas, in JSON or YAML; with who fills in variables.
    Flow(Quote),
    /// As lines of YAML that begin with a dash; with who fills in variables.
    Block(Quote),
}

/// A piece of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Segment<'t> {
    Text(&'t str),
    /// A template or a variable, which keeps its bytes.
    Tag(&'t str),
}

/// The place that a piece is written at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spot<'t> {
    /// What the value holds before it.
    pub(crate) before: &'t str,
    /// What it takes the place of.
    pub(crate) old: &'t str,
    /// What the value holds behind it.
    pub(crate) after: &'t str,
}

impl Quote {
    /// `text` as it is written in these quotes; `None` if it cannot stand there.
    pub(crate) fn write(self, text: &str, spot: Spot<'_>) -> Option<String> {
        match self {
            Quote::Same => Some(text.to_owned()),
            Quote::Joined | Quote::YamlFolded => (!text.contains(['\n', '\r'])).then(|| text.to_owned()),
            Quote::ShellBare | Quote::DockerBare(_) => is_bare(text, &[]).then(|| text.to_owned()),
            Quote::DockerLine(_) => (is_bare(text, &[' ']) && is_inside(text, spot)).then(|| text.to_owned()),
            Quote::ShellSingle | Quote::DockerSingle => without(text, &['\'', '\n']),
            Quote::ShellDouble => Some(escaped(text, '\\', &['\\', '"', '$', '`'])),
            Quote::DockerDouble(escape) => {
                (!text.contains('\n')).then(|| escaped(text, escape, &[escape, '"', '$']))
            }
            Quote::DotenvBare => {
                let quote_first = spot.before.is_empty() && text.starts_with(['"', '\'']);
                let comment = text.starts_with('#') || text.contains(" #");
                let fits = !quote_first && !comment && is_inside(text, spot);
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
            Quote::YamlPlain => yaml_plain(text, spot).then(|| text.to_owned()),
            Quote::YamlSingle => without(text, &['\n']).map(|text| text.replace('\'', "''")),
            Quote::YamlDouble => Some(yaml_double(text)),
            Quote::YamlLiteral(indent) => Some(yaml_literal(text, indent, spot)),
            Quote::Compose => Some(text.replace('$', "$$")),
            Quote::Kubernetes => Some(text.replace("$(", "$$(")),
        }
    }
}

impl Syntax {
    /// The value with its quotes; `None` if it can only be changed in its place.
    pub(crate) fn write(self, segments: &[Segment<'_>]) -> Option<String> {
        let quote = match self {
            Syntax::Same => return None,
            Syntax::Shell => Quote::ShellDouble,
            Syntax::Docker(escape) => Quote::DockerDouble(escape),
            Syntax::Dotenv => Quote::DotenvDouble,
            Syntax::Systemd => Quote::SystemdQuoted('"'),
            Syntax::Yaml => Quote::YamlDouble,
        };
        let spot = Spot { before: "", old: "", after: "" };
        let mut whole = String::from('"');
        for segment in segments {
            match segment {
                Segment::Text(text) => whole.push_str(&quote.write(text, spot)?),
                Segment::Tag(text) => whole.push_str(text),
            }
        }
        whole.push('"');
        Some(whole)
    }
}

impl Style {
    /// A word with its quotes, if it needs any; `None` if it cannot be written.
    pub(crate) fn write(self, text: &str) -> Option<String> {
        let spot = Spot { before: "", old: "", after: "" };
        let (bare, syntax, text) = match self {
            Style::Shell => (Some(Quote::ShellBare), Syntax::Shell, text.to_owned()),
            // Where systemd fills in variables, two dollars stand for one.
            Style::Systemd => (Some(Quote::SystemdBare), Syntax::Systemd, text.replace('$', "$$")),
            // Without quotes a number is no text to Kubernetes.
            Style::Flow(fills) | Style::Block(fills) => (None, Syntax::Yaml, fills.write(text, spot)?),
        };
        // To systemd a `;` ends the command, and both begin a comment on a line that continues it.
        let bare = bare.filter(|_| !text.is_empty() && !text.starts_with(['#', ';']));
        let bare = bare.and_then(|bare| bare.write(&text, spot));
        bare.or_else(|| syntax.write(&[Segment::Text(&text)]))
    }
}

/// Whether all characters stand for themselves outside of quotes, in a shell and in Docker.
fn is_bare(text: &str, also: &[char]) -> bool {
    let plain = |c: char| c.is_alphanumeric() || "+-_./:@%,=^".contains(c) || also.contains(&c);
    text.chars().all(plain)
}

/// Whether no white space would come to stand at the begin or the end of the value, where it is lost.
fn is_inside(text: &str, spot: Spot<'_>) -> bool {
    let begins = !spot.before.is_empty() || !text.starts_with(char::is_whitespace);
    let ends = !spot.after.is_empty() || !text.ends_with(char::is_whitespace);
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

/// Whether a text can stand without quotes. Stricter than YAML, which asks for what stands around it.
fn yaml_plain(text: &str, spot: Spot<'_>) -> bool {
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
    // `- ` begins a list.
    let first_fits = first_fits && text != "-" && !text.starts_with("- ");
    // A value that becomes a number or a truth value is another type for Kubernetes, which refuses it.
    let alone = spot.before.is_empty() && spot.after.is_empty();
    let typed = alone && is_typed(text) && !is_typed(spot.old);
    is_inside(text, spot) && !typed && (first_fits || !spot.before.is_empty())
}

/// Whether YAML takes a plain text for something else than a text.
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

/// With the indentation before every line that begins in `text`.
fn yaml_literal(text: &str, indent: usize, spot: Spot<'_>) -> String {
    let mut written = String::with_capacity(text.len() + indent);
    // Where a line that goes on behind the place begins, its indentation is there already.
    let mut begins = (spot.before.is_empty() || spot.before.ends_with('\n')) && spot.after.is_empty();
    for (index, line) in text.split_inclusive('\n').enumerate() {
        if (begins || index > 0) && line != "\n" {
            written.extend(std::iter::repeat_n(' ', indent));
        }
        written.push_str(line);
        begins = false;
    }
    // The line that was there now begins behind what was put before it.
    if text.ends_with('\n')
        && !spot.after.is_empty()
        && (spot.before.is_empty() || spot.before.ends_with('\n'))
    {
        written.extend(std::iter::repeat_n(' ', indent));
    }
    written
}
