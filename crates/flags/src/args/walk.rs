//! Finds the flags in the words of a file.
//!
//! The launcher passes words that start with `+`, and their values, to the emulator, even between words for `init`. Words that start with
//! `-`, and the words after them, are for `init`. `-extra` ends the flags of its file or variable, but does not affect other files.

use std::ops::Range;

use crate::arguments::{flags, is_flag, takes_next};
use crate::catalog::entries;
use crate::entry::Entry;
use crate::init_flags::may_have_pairs;
use crate::source::{Format, Fragment, Order, Place, Role, Word, stages};

use super::{ArgsError, FlagUse, Input, Shape, place_name};

/// Returns all flags of a file that reach the node, in the order of effect.
pub(super) fn flag_uses(input: &Input, file: usize) -> Vec<FlagUse> {
    let reaches_node = reaches_node(input);
    let mut found = Vec::new();
    for (index, fragment) in input.fragments.iter().enumerate() {
        if reaches_node.get(index) == Some(&true) {
            found.extend(of_fragment(fragment, file, index));
        }
    }
    found.sort_by_key(|given| given.order);
    found
}

/// Whether the words of a fragment reach the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FragmentStatus {
    /// The words reach the node.
    Effective,
    /// The words do not reach the node, for this reason.
    Ignored(&'static str),
    /// The words are for another node, or for no node.
    OtherNode,
}

/// Returns for each fragment whether it reaches the node.
pub(super) fn reaches_node(input: &Input) -> Vec<bool> {
    fragment_statuses(input).into_iter().map(|status| status == FragmentStatus::Effective).collect()
}

/// Returns the status of each fragment.
pub(super) fn fragment_statuses(input: &Input) -> Vec<FragmentStatus> {
    let (fragments, image, nodes) = (&input.fragments, image(input), nodes(input));
    // In a YAML file, each command belongs to a different container.
    let mut commands = fragments.iter().filter(|fragment| is_in(&image, fragment)).filter_map(command);
    let first = commands.next();
    let several = !is_yaml(input) && commands.any(|command| Some(command) != first);
    let status = |index: usize, fragment: &Fragment| {
        let node = nodes.get(index).copied();
        match &fragment.place {
            _ if input.node.is_some_and(|meant| node != Some(meant)) => return FragmentStatus::OtherNode,
            Place::FileNames | Place::RunningNode => return FragmentStatus::OtherNode,
            Place::Variable { effect, .. } => match effect.ignored {
                Some(why) => return FragmentStatus::Ignored(why),
                None if effect.for_tool => {
                    return FragmentStatus::Ignored("for a command-line tool, not for the node");
                }
                None => {}
            },
            Place::CommandLine { .. } if several => {
                return FragmentStatus::Ignored(
                    "the file has several commands, and it is unknown which one starts the node",
                );
            }
            Place::ArgsFile { .. } | Place::CommandLine { .. } => {}
        }
        let mut later = fragments.get(index + 1..).unwrap_or_default().iter();
        if !is_in(&image, fragment) {
            FragmentStatus::Ignored("in a build stage that is not part of the image")
        } else if later.any(|later| is_in(&image, later) && replaces(input, later, fragment)) {
            FragmentStatus::Ignored("the variable is set again below")
        } else {
            FragmentStatus::Effective
        }
    };
    fragments.iter().enumerate().map(|(index, fragment)| status(index, fragment)).collect()
}

/// Whether a fragment of a Dockerfile is part of the final image, and not only of a build stage. Always true for other
/// files.
fn is_in(image: &Option<Vec<Range<usize>>>, fragment: &Fragment) -> bool {
    let begin = fragment.span().start;
    image.as_ref().is_none_or(|stages| stages.iter().any(|stage| stage.contains(&begin)))
}

/// Returns the byte ranges of the last stage of a Dockerfile and of the stages on which it is based; `None` for files without stages.
fn image(input: &Input) -> Option<Vec<Range<usize>>> {
    if input.format != Format::Dockerfile {
        return None;
    }
    let stages = stages(&input.text);
    let mut end = input.text.len();
    let mut wanted: Option<&str> = None;
    let mut image = Vec::new();
    // A stage can only be based on an earlier one.
    for (index, stage) in stages.iter().enumerate().rev() {
        let is_last = index + 1 == stages.len();
        let is_wanted = wanted.is_some_and(|name| {
            stage.name.is_some_and(|own| own.eq_ignore_ascii_case(name)) || name == index.to_string()
        });
        if is_last || is_wanted {
            image.push(stage.begin..end + usize::from(is_last));
            wanted = Some(stage.from);
        }
        end = stage.begin;
    }
    (!image.is_empty()).then_some(image)
}

/// Whether `later` sets the variable of `earlier` again, so that the earlier value is lost.
fn replaces(input: &Input, later: &Fragment, earlier: &Fragment) -> bool {
    let (Place::Variable { name, .. }, Place::Variable { name: old, .. }) = (&later.place, &earlier.place)
    else {
        return false;
    };
    // In a YAML file, the two variables belong to different containers.
    if name != old || is_yaml(input) {
        return false;
    }
    let mentions = |word: &Word| word.dynamic && word.text.contains(name.as_str());
    let conditional = later.words.iter().any(|word| word.conditional);
    let before = input.text.get(..later.span().start).unwrap_or_default();
    let appends = before.trim_end_matches(['"', '\'', ' ']).ends_with("+=");
    !appends && !conditional && !later.words.iter().any(mentions)
}

/// Returns the number of the command to which the words belong; `None` if they belong to no command.
fn command(fragment: &Fragment) -> Option<usize> {
    fragment.command().filter(|_| matches!(fragment.place, Place::CommandLine { .. }))
}

fn is_yaml(input: &Input) -> bool {
    matches!(input.format, Format::Compose | Format::Kubernetes)
}

/// Returns the index of the node to which each fragment belongs. Only YAML files have several nodes.
fn nodes(input: &Input) -> Vec<usize> {
    let (mut node, mut known): (usize, Vec<&Place>) = (0, Vec::new());
    let mut last = None;
    let mut nodes = Vec::with_capacity(input.fragments.len());
    for fragment in &input.fragments {
        let is_another = match command(fragment) {
            Some(own) => last.is_some_and(|last| last != own),
            None => !place_name(&fragment.place).is_empty() && known.contains(&&fragment.place),
        };
        if is_yaml(input) && is_another {
            node += 1;
            known.clear();
            last = None;
        }
        last = command(fragment).or(last);
        known.push(&fragment.place);
        nodes.push(node);
    }
    nodes
}

/// Fails if a file describes several nodes and none is selected.
pub(super) fn ensure_one_node(input: &Input) -> Result<(), ArgsError> {
    let nodes = nodes(input);
    let count = nodes.last().map_or(1, |last| last + 1);
    match input.node {
        Some(node) if node >= count => Err(ArgsError::NoSuchNode { node, count }),
        None if count > 1 => {
            let begin =
                |node| nodes.iter().position(|of| *of == node).and_then(|index| input.fragments.get(index));
            let begins = (0..count).filter_map(begin).map(|fragment| input.at(fragment.span().start));
            Err(ArgsError::SeveralNodes { begins: begins.collect() })
        }
        _ => Ok(()),
    }
}

/// Returns the flags of one fragment.
fn of_fragment(fragment: &Fragment, file: usize, index: usize) -> Vec<FlagUse> {
    let Some(order) = fragment.place.order() else { return Vec::new() };
    let walk = Walk { words: &fragment.words, file, index, order };
    match &fragment.place {
        Place::Variable { name, effect } => match effect.role {
            Role::Words => walk.words(),
            Role::ValueOf(flags) => {
                let alone = flags.len() == 1;
                flags.iter().filter_map(|flag| walk.of_variable(flag, by_spelling(flag), alone)).collect()
            }
            Role::ReadByVm => {
                let flag = entries().iter().find(|entry| entry.fallback.as_deref() == Some(name.as_str()));
                let known = flag.or_else(|| crate::entry(name));
                let spelled = flag.map_or(name.as_str(), |entry| entry.spelling());
                walk.of_variable(spelled, known, true).into_iter().collect()
            }
        },
        Place::ArgsFile { .. } | Place::CommandLine { .. } => walk.words(),
        Place::FileNames | Place::RunningNode => Vec::new(),
    }
}

fn by_spelling(flag: &str) -> Option<&'static Entry> {
    entries().iter().find(|entry| entry.spelling() == flag)
}

struct Walk<'w> {
    words: &'w [Word],
    file: usize,
    index: usize,
    order: Order,
}

impl Walk<'_> {
    fn words(&self) -> Vec<FlagUse> {
        let mut found = Vec::new();
        let mut at = 0;
        while let Some(word) = self.words.get(at) {
            let text = word.text.as_str();
            if text == "-extra" {
                found.extend(self.given(text, None, at..self.words.len()));
                break;
            }
            at = if text.starts_with('+') && is_flag(text) {
                self.emulator_flag(at, &mut found)
            } else if is_flag(text) && text != "--" {
                self.init_flag(at, &mut found)
            } else {
                at + 1
            };
        }
        found
    }

    /// Adds the emulator flag that starts at word `at`; returns the index of the next word to parse.
    fn emulator_flag(&self, at: usize, found: &mut Vec<FlagUse>) -> usize {
        let text = |index: usize| self.words.get(index).map(|word| word.text.as_str());
        let (Some(word), next) = (text(at), text(at + 1)) else { return at + 1 };
        let pair: Vec<String> = [Some(word), next].into_iter().flatten().map(str::to_owned).collect();
        let Some(first) = flags(&pair).into_iter().next() else { return at + 1 };
        let apart = takes_next(word, next);
        let end = at + 1 + usize::from(apart);
        let Some(mut given) = self.given(&first.flag, first.entry, at..end) else { return end };
        if let Some(value) = first.value.filter(|_| !apart) {
            given.shape = Shape::Glued(at, word.len() - value.len().min(word.len()));
            given.values = vec![value];
        }
        found.push(given);
        end
    }

    /// Adds the init flag that starts at word `at`, with all words up to the next flag; returns the index of the next flag.
    fn init_flag(&self, at: usize, found: &mut Vec<FlagUse>) -> usize {
        let rest = self.words.get(at + 1..).unwrap_or_default();
        let length = rest.iter().position(|word| is_flag(&word.text)).unwrap_or(rest.len());
        let end = at + 1 + length;
        let Some(word) = self.words.get(at) else { return end };
        let is_pairs = length >= 2 && length.is_multiple_of(2) && may_have_pairs(&word.text) && !word.dynamic;
        if !is_pairs {
            found.extend(self.given(&word.text, by_spelling(&word.text), at..end));
            return end;
        }
        for key in (at + 1..end).step_by(2) {
            let Some(name) = self.words.get(key) else { break };
            let flag = format!("{} {}", word.text, name.text);
            let Some(mut given) = self.given(&flag, by_spelling(&flag), key..key + 2) else { break };
            let alone = length == 2;
            if alone {
                given.span.start = word.span.start;
            }
            given.shape = Shape::Pair { head: at, key, alone };
            found.push(given);
        }
        end
    }

    /// Returns the flag in a range of words: the first word is the flag, the others are its values.
    fn given(&self, flag: &str, entry: Option<&'static Entry>, range: Range<usize>) -> Option<FlagUse> {
        let words = self.words.get(range.clone())?;
        let (first, last) = (words.first()?, words.last()?);
        Some(FlagUse {
            file: self.file,
            fragment: self.index,
            flag: flag.to_owned(),
            entry,
            values: words.iter().skip(1).map(|word| word.text.clone()).collect(),
            span: first.span.start..last.span.end,
            dynamic: words.iter().any(|word| word.dynamic),
            conditional: words.iter().any(|word| word.conditional),
            order: self.order,
            shape: Shape::Apart(range),
        })
    }

    /// Returns the flag that a variable sets.
    fn of_variable(&self, flag: &str, entry: Option<&'static Entry>, alone: bool) -> Option<FlagUse> {
        let mut given = self.given(flag, entry, 0..self.words.len())?;
        given.values = self.words.iter().map(|word| word.text.clone()).collect();
        given.shape = Shape::OfVariable { alone };
        Some(given)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks all flags, formatted as `flag=value`, with `?` before conditional and `~` before dynamic flags.
    fn check(format: Format, text: &str, expect: &[&str]) {
        let input = Input::read(format, text).unwrap_or_else(|error| panic!("{error}"));
        let shown: Vec<String> = flag_uses(&input, 0)
            .iter()
            .map(|given| {
                let mark = |is: bool, mark: &'static str| if is { mark } else { "" };
                let value = given.value().map(|value| format!("={value}")).unwrap_or_default();
                format!("{}{}{}{value}", mark(given.conditional, "?"), mark(given.dynamic, "~"), given.flag)
            })
            .collect();
        assert_eq!(shown, expect, "{text}");
    }

    #[test]
    fn emulator_flags_and_init_flags_are_distinguished() {
        check(
            Format::VmArgs,
            "-name a@b +S4 +sbwt none -kernel net_ticktime 30 inet_dist_listen_min 9100 -heart +c +h 400\n-pa x y\n+MBas aobf\n",
            &[
                "-name=a@b",
                "+S=4",
                "+sbwt=none",
                "-kernel net_ticktime=30",
                "-kernel inet_dist_listen_min=9100",
                "-heart",
                "+c",
                "+hms=400",
                "-pa=x y",
                "+MBas=aobf",
            ],
        );
        check(Format::VmArgs, "-couch_ini a.ini b.ini -env A b", &["-couch_ini=a.ini b.ini", "-env A=b"]);
        check(Format::VmArgs, "+P 1 -extra +P 2", &["+P=1", "-extra=+P 2"]);
        check(Format::VmArgs, "stray +zfuture 3", &["+zfuture=3"]);
        check(Format::VmArgs, "+sbwt +P 5", &["+sbwt=+P"]);
    }

    #[test]
    fn variables_are_in_the_order_of_effect() {
        check(
            Format::Shell,
            "ERL_ZFLAGS='+P 3'\nERL_FLAGS='+P 2'\nERL_MAX_PORTS=4096\nERL_AFLAGS='+P 1'\n",
            &["+Q=4096", "+P=1", "+P=2", "+P=3"],
        );
        check(Format::EjabberdCtl, "ERL_PROCESSES=250000\nPOLL=true\n", &["+K=true", "+P=250000"]);
        check(
            Format::RabbitmqEnv,
            "SCHEDULER_BUSY_WAIT_THRESHOLD=none\nCTL_ERL_ARGS='+P 1'\nSERVER_ERL_ARGS='+P 2'\n",
            &["+sbwt=none", "+sbwtdcpu=none", "+sbwtdio=none"],
        );
    }

    #[test]
    fn variable_that_is_set_again_loses_its_earlier_value() {
        check(Format::EnvFile, "ERL_FLAGS=+P 1\nERL_FLAGS=+Q 2\n", &["+Q=2"]);
        check(Format::Shell, "ERL_FLAGS='+P 1'\nERL_FLAGS=\"$ERL_FLAGS +Q 2\"\n", &["+P=1", "+Q=2"]);
        check(Format::Shell, "ERL_FLAGS='+P 1'\nERL_FLAGS+=' +Q 2'\n", &["+P=1", "+Q=2"]);
        check(Format::Shell, "ERL_FLAGS='+P 1'\nif x; then ERL_FLAGS='+Q 2'; fi\n", &["+P=1", "?+Q=2"]);
    }

    #[test]
    fn only_flags_in_stages_of_the_final_image_are_found() {
        let stages = "FROM elixir AS build\nENV ERL_FLAGS=+JMsingle\\ true\nFROM --platform=x debian AS base\nENV ERL_AFLAGS=+Q\\ 2\n";
        check(Format::Dockerfile, stages, &["+Q=2"]);
        check(Format::Dockerfile, &format!("{stages}FROM base\nENV ERL_ZFLAGS=+P\\ 1\n"), &["+Q=2", "+P=1"]);
        check(
            Format::Dockerfile,
            &format!("{stages}from BUILD\nENV ERL_ZFLAGS=+P\\ 1"),
            &["+JMsingle=true", "+P=1"],
        );
        check(Format::Dockerfile, "ENV ERL_FLAGS=+P\\ 1\n", &["+P=1"]);
        check(Format::Dockerfile, "FROM a\nENV ERL_FLAGS=+P\\ 1\nFROM b\nENV ERL_FLAGS=+Q\\ 1\n", &["+Q=1"]);
    }

    #[test]
    fn templates_and_conditions_are_marked() {
        let eex = Format::VmArgsTemplate(crate::source::Template::Eex);
        check(eex, "+P <%= x %>\n<%= if y do %>\n+Q 1\n<% end %>\n", &["~+P=<%= x %>", "?+Q=1"]);
    }
}
