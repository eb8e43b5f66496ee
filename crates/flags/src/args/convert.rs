//! Converts the flags of a file to another format.
//!
//! The order of effect and the comments of an args file are kept. Parts that the new format cannot express, such as template tags, are
//! rejected with their position.

use crate::arguments::{Origin, Setting};
use crate::entry::Argument;
use crate::lint::contains_secret;
use crate::source::{Change, Format, Fragment, Order, Place, Role, SourceError, Template, Word, apply};

use super::walk::{ensure_one_node, flag_uses, reaches_node};
use super::{ArgsError, FlagUse, Input, Shape};

/// The format to which a file is converted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// `vm.args`.
    VmArgs,
    /// `vm.args.eex` of Mix releases.
    Eex,
    /// An `.env` file with `ERL_FLAGS`.
    Env,
    /// `ENV ERL_FLAGS` of a Dockerfile.
    Dockerfile,
    /// A ConfigMap with `ERL_FLAGS`, for `envFrom`.
    Kubernetes,
    /// A systemd drop-in unit with `ERL_FLAGS`.
    Systemd,
    /// `rabbitmq-env.conf`.
    Rabbitmq,
    /// `ejabberdctl.cfg`.
    Ejabberd,
}

impl Target {
    /// Returns the format of the converted file.
    pub fn format(self) -> Format {
        match self {
            Target::VmArgs => Format::VmArgs,
            Target::Eex => Format::VmArgsTemplate(Template::Eex),
            Target::Env => Format::EnvFile,
            Target::Dockerfile => Format::Dockerfile,
            Target::Kubernetes => Format::Kubernetes,
            Target::Systemd => Format::SystemdUnit,
            Target::Rabbitmq => Format::RabbitmqEnv,
            Target::Ejabberd => Format::EjabberdCtl,
        }
    }

    /// Returns the text above the comments, the line with the empty variable, and the indentation of comments and variable. `None`
    /// for args files, which have no variable.
    fn frame(self) -> Option<(&'static str, &'static str, &'static str)> {
        match self {
            Target::VmArgs | Target::Eex => None,
            Target::Env => Some(("", "ERL_FLAGS=\"\"\n", "")),
            Target::Dockerfile => Some(("", "ENV ERL_FLAGS=\"\"\n", "")),
            Target::Systemd => Some(("[Service]\n", "Environment=\"ERL_FLAGS=\"\n", "")),
            Target::Rabbitmq => Some(("", "SERVER_ADDITIONAL_ERL_ARGS=\"\"\n", "")),
            Target::Ejabberd => Some(("", "ERL_OPTIONS=\"\"\n", "")),
            Target::Kubernetes => Some((
                "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: erl-flags\ndata:\n",
                "  ERL_FLAGS: \"\"\n",
                "  ",
            )),
        }
    }
}

/// A flag with its values and the comments before it.
#[derive(Debug, Default)]
struct Item {
    /// The byte offset in the old file.
    at: usize,
    comments: Vec<String>,
    words: Vec<String>,
}

/// Converts the flags of `input` to another format. Comments are kept if `input` is an args file.
///
/// # Errors
/// [`ArgsError::NotConvertible`] if the other format cannot express a part of the file; [`ArgsError::SeveralNodes`].
pub fn convert(input: &Input, target: Target) -> Result<Input, ArgsError> {
    ensure_one_node(input)?;
    let format = target.format();
    if is_args_file(input.format) && is_args_file(format) {
        return same_text(input, format);
    }
    let items = items(input)?;
    let words: Vec<&String> = items.iter().flat_map(|item| &item.words).collect();
    let conversion_error = |nth: usize, why: &'static str| conversion_error(input, &items, nth, why);
    let result = written(&items, target).map_err(|error| match &error {
        // The error refers to a position in the new file, which the user has not seen.
        ArgsError::Source(SourceError::CannotWrite { reason, .. }) => {
            let alone = |word: &str| Item { words: vec![word.to_owned()], ..Item::default() };
            let nth = words.iter().position(|word| written(&[alone(word)], target).is_err());
            nth.map_or(error.clone(), |nth| conversion_error(nth, reason))
        }
        _ => error,
    })?;
    let read: Vec<&Word> = result.fragments.iter().flat_map(|fragment| &fragment.words).collect();
    if let Some(nth) = read.iter().position(|word| word.dynamic) {
        return Err(conversion_error(nth, "it would be parsed as a template or variable"));
    }
    let differs = |nth: &usize| read.get(*nth).map(|word| &word.text) != words.get(*nth).copied();
    match (0..read.len().max(words.len())).find(differs) {
        Some(nth) => Err(conversion_error(nth, "it would be parsed differently")),
        None => Ok(result),
    }
}

/// Writes a file with these flags.
fn written(items: &[Item], target: Target) -> Result<Input, ArgsError> {
    let format = target.format();
    let Some((head, variable, indent)) = target.frame() else { return lines(format, items) };
    let mut text = head.to_owned();
    for comment in items.iter().flat_map(|item| &item.comments) {
        text.push_str(format!("{indent}# {comment}").trim_end());
        text.push('\n');
    }
    text.push_str(variable);
    let words: Vec<String> = items.iter().flat_map(|item| item.words.clone()).collect();
    append(Input::read(format, text)?, &words, &[])
}

/// Creates an error about the flag to which the nth word of all items belongs, with the position of the flag in the old file.
fn conversion_error(input: &Input, items: &[Item], nth: usize, why: &'static str) -> ArgsError {
    let mut count = 0;
    let holds = |item: &&Item| {
        count += item.words.len();
        nth < count
    };
    let item = items.iter().find(holds).or(items.last());
    let (at, words) = item.map_or((0, &[][..]), |item| (item.at, &item.words));
    let shown = words.iter().enumerate().map(|(nth, word)| {
        let before = nth.checked_sub(1).and_then(|before| words.get(before));
        if before.is_some_and(|before| contains_secret(before)) { "*" } else { word }
    });
    ArgsError::NotConvertible { at: input.at(at), text: shown.collect::<Vec<_>>().join(" "), why }
}

/// Writes the flags with which a node was started as an args file: each flag once, with its effective value.
///
/// # Errors
/// If an args file cannot express a value.
pub fn args_file_of_node(settings: &[Setting]) -> Result<Input, ArgsError> {
    let item = |setting: &Setting| {
        let argument = setting.entry.and_then(|entry| entry.argument);
        let is_glued = matches!(argument, Some(Argument::Glued | Argument::GluedOptional));
        let words = match &setting.value {
            Some(value) if is_glued => vec![format!("{}{value}", setting.flag)],
            Some(value) => vec![setting.flag.clone(), value.clone()],
            None => vec![setting.flag.clone()],
        };
        Item { words, ..Item::default() }
    };
    let items: Vec<Item> =
        settings.iter().filter(|setting| setting.origin != Origin::Default).map(item).collect();
    lines(Format::VmArgs, &items)
}

fn is_args_file(format: Format) -> bool {
    matches!(format, Format::VmArgs | Format::VmArgsTemplate(_))
}

/// Converts between kinds of args files: the text is kept if it has the same meaning in the new format.
fn same_text(input: &Input, format: Format) -> Result<Input, ArgsError> {
    if let Some(word) = dynamic(input) {
        return if format == input.format {
            Ok(input.clone())
        } else {
            Err(not_convertible(input, word, "templates cannot be converted"))
        };
    }
    let result = Input::read(format, input.text.clone())?;
    if let Some(word) = dynamic(&result) {
        return Err(not_convertible(&result, word, "it would be parsed as a template or variable"));
    }
    Ok(result)
}

fn dynamic(input: &Input) -> Option<&Word> {
    input.fragments.iter().flat_map(|fragment| &fragment.words).find(|word| word.dynamic || word.conditional)
}

fn not_convertible(input: &Input, word: &Word, why: &'static str) -> ArgsError {
    ArgsError::NotConvertible { at: input.at(word.span.start), text: word.text.clone(), why }
}

/// Returns all flags that reach the node, in the order of effect; `-extra` and the words after it come last.
fn items(input: &Input) -> Result<Vec<Item>, ArgsError> {
    let reaches_node = reaches_node(input);
    let mut fragments: Vec<(usize, &Fragment)> = input
        .fragments
        .iter()
        .enumerate()
        .filter(|(index, _)| reaches_node.get(*index) == Some(&true))
        .collect();
    fragments.sort_by_key(|(_, fragment)| fragment.place.order());
    let flag_uses = flag_uses(input, 0);
    let (mut items, mut extra) = (Vec::new(), Vec::new());
    for (index, fragment) in fragments {
        let flag_uses = flag_uses.iter().filter(|given| given.fragment == index);
        if let Some(word) = fragment.words.iter().find(|word| word.dynamic || word.conditional) {
            return Err(not_convertible(input, word, "its value is unknown here"));
        }
        let is_words = match &fragment.place {
            Place::Variable { effect, .. } => effect.role == Role::Words,
            _ => true,
        };
        if fragment.place.order() == Some(Order::OtpFlags)
            && let Some(word) = fragment.words.first()
        {
            return Err(not_convertible(input, word, "this variable is for one OTP release only"));
        }
        let of_fragment = if is_words {
            of_words(input, fragment, flag_uses)?
        } else {
            flag_uses.map(of_variable).collect()
        };
        for item in of_fragment {
            let is_extra = item.words.first().is_some_and(|word| word == "-extra");
            if is_extra { extra.push(item) } else { items.push(item) }
        }
    }
    // Only one `-extra` is kept; a second one would be an argument of the Erlang program.
    for item in extra.iter_mut().skip(1) {
        item.words.remove(0);
    }
    items.extend(extra);
    Ok(items)
}

/// Returns the flag that is equivalent to a variable.
fn of_variable(given: &FlagUse) -> Item {
    let mut words = vec![given.flag.clone()];
    if !given.flag.starts_with(['+', '-']) {
        // `-env` sets the variable before the VM reads it.
        words.insert(0, "-env".to_owned());
    }
    words.extend(given.values.iter().cloned());
    Item { at: given.span.start, words, ..Item::default() }
}

/// Returns the flags of a fragment, each with the stray words after it.
fn of_words<'g>(
    input: &Input,
    fragment: &Fragment,
    flag_uses: impl Iterator<Item = &'g FlagUse>,
) -> Result<Vec<Item>, ArgsError> {
    let mut begins: Vec<usize> = flag_uses
        .map(|given| match &given.shape {
            Shape::Apart(range) => range.start,
            Shape::Glued(word, _) => *word,
            Shape::Pair { head, .. } => *head,
            Shape::OfVariable { .. } => 0,
        })
        .collect();
    begins.sort_unstable();
    let has_comments = matches!(fragment.place, Place::ArgsFile { name: None });
    let mut items: Vec<Item> = Vec::new();
    let mut done = if has_comments { 0 } else { fragment.span().start };
    for (at, word) in fragment.words.iter().enumerate() {
        if items.is_empty() || begins.binary_search(&at).is_ok() {
            items.push(Item { at: word.span.start, ..Item::default() });
        }
        if has_comments {
            let comments = comments(input, done..word.span.start)?;
            if let Some(item) = items.last_mut() {
                item.comments.extend(comments);
            }
        }
        done = word.span.end;
        if let Some(item) = items.last_mut() {
            item.words.push(word.text.clone());
        }
    }
    if has_comments {
        let comments = comments(input, done..input.text.len())?;
        items.push(Item { comments, ..Item::default() });
    }
    Ok(items)
}

/// Returns the comments in a range of bytes between two words.
fn comments(input: &Input, between: std::ops::Range<usize>) -> Result<Vec<String>, ArgsError> {
    let mut comments = Vec::new();
    let mut at = between.start;
    for line in input.text.get(between).unwrap_or_default().split_inclusive('\n') {
        let text = line.trim();
        match text.strip_prefix('#') {
            Some(comment) => {
                comments.push(comment.trim_start_matches('#').trim().replace(char::is_control, " "));
            }
            None if text.is_empty() => {}
            None => {
                return Err(ArgsError::NotConvertible {
                    at: input.at(at + (line.len() - line.trim_start().len())),
                    text: text.to_owned(),
                    why: "templates cannot be converted",
                });
            }
        }
        at += line.len();
    }
    Ok(comments)
}

/// Writes an args file with one line for each flag.
fn lines(format: Format, items: &[Item]) -> Result<Input, ArgsError> {
    let mut result = Input::read(format, "")?;
    for item in items {
        if item.words.is_empty() {
            let comments: String = item.comments.iter().map(|comment| format!("# {comment}\n")).collect();
            result = Input::read(format, format!("{}{comments}", result.text))?;
        } else {
            result = append(result, &item.words, &item.comments)?;
        }
    }
    Ok(result)
}

fn append(input: Input, words: &[String], comments: &[String]) -> Result<Input, ArgsError> {
    if words.is_empty() {
        return Ok(input);
    }
    let Some(fragment) = input.fragments.first() else {
        return Err(ArgsError::NoPlace { advice: "write the flags manually" });
    };
    let change = Change::Append { words: words.to_vec(), comment: comments.to_vec() };
    let edits = fragment.change(&[change])?;
    Ok(Input::read(input.format, apply(&input.text, &edits))?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL: [Target; 8] = [
        Target::VmArgs,
        Target::Eex,
        Target::Env,
        Target::Dockerfile,
        Target::Kubernetes,
        Target::Systemd,
        Target::Rabbitmq,
        Target::Ejabberd,
    ];

    fn converted(format: Format, text: &str, target: Target) -> Result<String, ArgsError> {
        let input = Input::read(format, text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        convert(&input, target).map(|input| input.text)
    }

    fn check(format: Format, text: &str, target: Target, expect: &str) {
        match converted(format, text, target) {
            Ok(new) => assert_eq!(new, expect, "{text}"),
            Err(error) => panic!("{error}\n{text}"),
        }
    }

    #[test]
    fn args_file_is_converted_to_every_format() {
        let text = "## Limits\n+P 5000 # many\n\n# Name\n-setcookie 'a b'\n# end\n";
        check(Format::VmArgs, text, Target::Eex, text);
        check(
            Format::VmArgs,
            text,
            Target::Env,
            "# Limits\n# many\n# Name\n# end\nERL_FLAGS=\"+P 5000 -setcookie \\\"a b\\\"\"\n",
        );
        check(
            Format::VmArgs,
            text,
            Target::Dockerfile,
            "# Limits\n# many\n# Name\n# end\nENV ERL_FLAGS=\"+P 5000 -setcookie \\\"a b\\\"\"\n",
        );
        check(
            Format::VmArgs,
            text,
            Target::Systemd,
            "[Service]\n# Limits\n# many\n# Name\n# end\nEnvironment=\"ERL_FLAGS=+P 5000 -setcookie \\\"a b\\\"\"\n",
        );
        check(
            Format::VmArgs,
            "# x\n+P 5000\n",
            Target::Kubernetes,
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: erl-flags\ndata:\n  # x\n  ERL_FLAGS: \"+P 5000\"\n",
        );
        check(Format::VmArgs, "+P 5000\n", Target::Rabbitmq, "SERVER_ADDITIONAL_ERL_ARGS=\"+P 5000\"\n");
        check(Format::VmArgs, "+P 5000\n", Target::Ejabberd, "ERL_OPTIONS=\"+P 5000\"\n");
        // RabbitMQ and ejabberd split flags only at white space and do not support quotes.
        let error = converted(Format::VmArgs, text, Target::Rabbitmq).expect_err("white space");
        assert!(error.to_string().contains("splits"), "{error}");
        assert!(error.to_string().starts_with("5:1: `-setcookie *` cannot be written"), "{error}");
    }

    #[test]
    fn variables_are_converted_to_an_args_file_in_the_order_of_effect() {
        check(
            Format::EnvFile,
            "ERL_ZFLAGS=+Q 9\nERL_AFLAGS=+sbwt none -extra a\nERL_MAX_PORTS=4096\nERL_CRASH_DUMP=/tmp/x\n",
            Target::VmArgs,
            "+Q 4096\n-env ERL_CRASH_DUMP /tmp/x\n+sbwt none\n+Q 9\n-extra a\n",
        );
        check(
            Format::EjabberdCtl,
            "ERL_PROCESSES=250000\nERL_OPTIONS=\"+sbwt none\"\n",
            Target::VmArgs,
            "+P 250000\n+sbwt none\n",
        );
    }

    #[test]
    fn flags_of_a_running_node_are_written_as_an_args_file() {
        let args =
            ["-P", "1000", "-sbwtnone", "-fnuw", "-P", "5000", "-MBas", "aobf", "-d"].map(str::to_owned);
        let input = args_file_of_node(&crate::parse_emu_args(&args)).expect("an args file");
        assert_eq!(input.text, "+P 5000\n+sbwt none\n+fnuw\n+MBas aobf\n+d\n");
    }

    #[test]
    fn parts_that_the_new_format_cannot_express_are_rejected() {
        let eex = Format::VmArgsTemplate(Template::Eex);
        let refused = |format: Format, text: &str, target: Target, place: &str| {
            let error = converted(format, text, target).expect_err(text).to_string();
            assert!(error.starts_with(place), "{error}");
        };
        refused(eex, "+P 1\n+S <%= x %>\n", Target::Env, "2:4: `<%= x %>`");
        refused(eex, "+P 1\n+S <%= x %>\n", Target::VmArgs, "2:4: `<%= x %>`");
        refused(eex, "+P 1\n<%# note %>\n+Q 1\n", Target::Env, "2:1: `<%# note %>`");
        refused(Format::VmArgs, "+P 1 -x <%=y%>\n", Target::Eex, "1:9: ");
        refused(Format::EnvFile, "ERL_OTP27_FLAGS=+P 1\n", Target::VmArgs, "1:17: `+P`");
        check(eex, "+S <%= x %>\n", Target::Eex, "+S <%= x %>\n");
    }

    proptest! {
        #[test]
        fn conversion_keeps_all_words(
            flags in proptest::collection::vec(
                prop_oneof![
                    Just("+P 5000".to_owned()), Just("+sbwtnone".to_owned()), Just("-heart".to_owned()), Just("# a comment".to_owned()),
                    "-[a-z]{2,5} [a-z]{1,4} [!-~é]{0,8}".prop_map(|text| {
                        let quoted: String = text.chars().flat_map(|c| {
                            let escape = matches!(c, '"' | '\'' | '\\' | '#').then_some('\\');
                            escape.into_iter().chain([c])
                        }).collect();
                        quoted
                    }),
                ],
                0..8,
            ),
            target in proptest::sample::select(&ALL[..]),
        ) {
            let text = format!("{}\n", flags.join("\n"));
            let input = Input::read(Format::VmArgs, text.clone()).expect("a file");
            let words = |input: &Input| -> Vec<String> {
                input.fragments.iter().flat_map(|fragment| &fragment.words).map(|word| word.text.clone()).collect()
            };
            match convert(&input, target) {
                Ok(result) => {
                    let (mut old, mut new) = (words(&input), words(&result));
                    // `-extra` is moved to the end.
                    if old.iter().any(|word| word == "-extra") {
                        old.sort();
                        new.sort();
                    }
                    prop_assert_eq!(old, new, "{}", result.text);
                }
                // Some formats cannot express some words, which is an error.
                Err(ArgsError::Source(_) | ArgsError::NotConvertible { .. } | ArgsError::NotHeld { .. }) => {}
                Err(error) => prop_assert!(false, "{error}"),
            }
        }
    }
}
