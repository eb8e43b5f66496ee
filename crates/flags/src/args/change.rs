//! Sets or removes a flag in the text of a file.

use std::collections::BTreeMap;

use crate::arguments::is_flag;
use crate::entry::Argument;
use crate::init_flags::is_repeatable;
use crate::lint::contains_secret;
use crate::source::{Change, CommandWords, Format, Order, Place, Role, apply};

use super::comment::insert_above;
use super::flag_change::{FlagChange, one_flag, quoted};
use super::walk::{ensure_one_node, flag_uses, reaches_node};
use super::{ArgsError, FlagUse, Input, Shape, place_name};

/// Applies a change to a file. Adds the lines of `comment`, each after `#`, above a flag that is new or has a new value, if the format
/// allows comments there. A flag that already has the requested value is left unchanged.
///
/// # Errors
/// If the file does not allow the change; see [`ArgsError`].
pub fn change(input: &Input, request: &FlagChange, comment: &[String]) -> Result<Input, ArgsError> {
    ensure_one_node(input)?;
    match request {
        FlagChange::Set { flag, words } => set(input, flag, words, comment),
        FlagChange::Unset { flag } => unset(input, flag),
    }
}

fn set(input: &Input, flag: &str, words: &[String], comment: &[String]) -> Result<Input, ArgsError> {
    let (wanted, _) = one_flag(&quoted(words))?;
    let all = flag_uses(input, 0);
    let same: Vec<&FlagUse> = all.iter().filter(|given| given.flag == flag).collect();
    if let [first, second, ..] = same.as_slice()
        && !flag.starts_with('+')
    {
        let (first, second) = (input.at(first.span.start), input.at(second.span.start));
        return Err(ArgsError::Twice { flag: flag.to_owned(), first, second });
    }
    let winner = same.last().copied();
    let has_it = |given: &FlagUse| given.values == wanted.values && !given.dynamic && !given.conditional;
    if winner.is_some_and(|given| has_it(given) && given.order != Order::OtpFlags) {
        return Ok(input.clone());
    }
    if let Some(why) = winner.and_then(|given| lacks_value(input, given)) {
        return Err(ArgsError::NotHeld { flag: flag.to_owned(), why });
    }
    let mut result = None;
    if let Some(winner) = winner.filter(|given| !given.conditional && given.order != Order::OtpFlags) {
        result = replace(input, winner, &wanted)?;
    }
    let result = match result {
        Some(text) => input.with_text(text)?,
        None => append(input, winner, words)?,
    };
    ensure_only_changed(input, &result, flag, Some(&wanted.values))?;
    let now = flag_uses(&result, 0);
    let Some(given) = now.iter().rfind(|given| given.flag == flag) else { return Ok(result) };
    match insert_above(&result, given, comment) {
        Some(commented) if ensure_only_changed(input, &commented, flag, Some(&wanted.values)).is_ok() => {
            Ok(commented)
        }
        _ => Ok(result),
    }
}

/// Describes the problem if a flag lacks its value. The next word is then probably another flag and must not be replaced.
fn lacks_value(input: &Input, given: &FlagUse) -> Option<String> {
    if given.entry?.argument != Some(Argument::Required) {
        return None;
    }
    let what = match given.values.first() {
        None => "has no value".to_owned(),
        Some(value) if is_flag(value) && !value[1..].starts_with(|c: char| c.is_ascii_digit()) => {
            format!("takes `{value}` as its value")
        }
        Some(_) => return None,
    };
    let at = input.at(given.span.start);
    Some(format!("{} at {at} {what}; add a value first", given.flag))
}

/// Replaces the value of a flag; `None` if the new value cannot take the place of the old one.
fn replace(input: &Input, old: &FlagUse, wanted: &FlagUse) -> Result<Option<String>, ArgsError> {
    let Some(fragment) = input.fragments.get(old.fragment) else { return Ok(None) };
    let each = |first: usize| -> Vec<Change> {
        let values = wanted.values.iter().enumerate();
        values.map(|(index, text)| Change::Replace { word: first + index, text: text.clone() }).collect()
    };
    let changes = match &old.shape {
        Shape::Apart(range) if range.len() == wanted.values.len() + 1 => each(range.start + 1),
        Shape::Glued(word, begin) => {
            let (Some(text), [value]) = (fragment.words.get(*word), wanted.values.as_slice()) else {
                return Ok(None);
            };
            let flag = text.text.get(..*begin).unwrap_or_default();
            vec![Change::Replace { word: *word, text: format!("{flag}{value}") }]
        }
        Shape::Pair { key, .. } if wanted.values.len() == 1 => each(key + 1),
        Shape::OfVariable { alone: true } if wanted.values.len() == 1 && old.values.len() == 1 => each(0),
        _ => return Ok(None),
    };
    match fragment.change(&changes) {
        Ok(edits) => Ok(Some(apply(&input.text, &edits))),
        // The format may not allow the new value in a variable that sets this flag; a later flag can override the variable.
        Err(_) if matches!(old.shape, Shape::OfVariable { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Appends the flag after everything that it must override.
fn append(input: &Input, winner: Option<&FlagUse>, words: &[String]) -> Result<Input, ArgsError> {
    if let Some(winner) = winner.filter(|given| !given.flag.starts_with('+')) {
        // A second init flag does not override the first one, so the existing flag is removed first.
        let without = unset(input, &winner.flag)?;
        return append(&without, None, words);
    }
    let (input, index) = match place(input, winner) {
        Some(index) => (input.clone(), index),
        None => {
            let with_place = new_place(input)?;
            let index = place(&with_place, winner).ok_or_else(|| no_room(input, winner))?;
            (with_place, index)
        }
    };
    let Some(fragment) = input.fragments.get(index) else {
        return Err(ArgsError::NoPlace { advice: "write the flag manually" });
    };
    let edits = fragment.change(&[Change::Append { words: words.to_vec(), comment: Vec::new() }])?;
    Ok(input.with_text(apply(&input.text, &edits))?)
}

fn no_room(input: &Input, winner: Option<&FlagUse>) -> ArgsError {
    match winner {
        Some(winner) => ArgsError::ByVariable {
            flag: winner.flag.clone(),
            variable: input
                .fragments
                .get(winner.fragment)
                .map(|fragment| place_name(&fragment.place).to_owned())
                .unwrap_or_default(),
            at: input.at(winner.span.start),
        },
        None => ArgsError::NoPlace { advice: "write the flag manually" },
    }
}

/// Finds the fragment to which a flag is added: the one that contains the effective value, otherwise the most suitable one.
fn place(input: &Input, winner: Option<&FlagUse>) -> Option<usize> {
    /// Variables for additional flags. Other variables of products replace the flags that the product sets by default.
    const ADDITIONAL: [&str; 4] =
        ["ERL_FLAGS", "ERL_OPTIONS", "SERVER_ADDITIONAL_ERL_ARGS", "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS"];
    let reaches_node = reaches_node(input);
    let candidates = input.fragments.iter().enumerate().filter(|(index, fragment)| {
        let takes_words = match &fragment.place {
            Place::ArgsFile { .. } => true,
            Place::Variable { effect, .. } => {
                effect.role == Role::Words && !fragment.words.iter().any(|word| word.conditional)
            }
            Place::CommandLine { words, .. } => *words != CommandWords::Options,
            Place::FileNames | Place::RunningNode => false,
        };
        let order = fragment.place.order().filter(|order| *order != Order::OtpFlags);
        let wins = order.is_some_and(|order| winner.is_none_or(|winner| order >= winner.order));
        takes_words && wins && reaches_node.get(*index) == Some(&true)
    });
    let worth = |index: usize, place: &Place| {
        let is_winners = winner.is_some_and(|winner| winner.fragment == index);
        let is_file = matches!(place, Place::ArgsFile { .. });
        (is_winners, is_file, ADDITIONAL.contains(&place_name(place)), index)
    };
    candidates.max_by_key(|(index, fragment)| worth(*index, &fragment.place)).map(|(index, _)| index)
}

/// Adds an empty variable for flags to a file.
fn new_place(input: &Input) -> Result<Input, ArgsError> {
    let text = &input.text;
    let eol = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let at_the_end = |line: &str| {
        let gap = if text.is_empty() || text.ends_with('\n') { "" } else { eol };
        format!("{text}{gap}{line}{eol}")
    };
    let no_place = |advice: &'static str| Err(ArgsError::NoPlace { advice });
    let new = match input.format {
        Format::EnvFile => at_the_end("ERL_FLAGS=\"\""),
        Format::Dockerfile => at_the_end("ENV ERL_FLAGS=\"\""),
        Format::RabbitmqEnv => at_the_end("SERVER_ADDITIONAL_ERL_ARGS=\"\""),
        Format::EjabberdCtl => at_the_end("ERL_OPTIONS=\"\""),
        Format::SystemdUnit => {
            let Some((before, after)) = behind_line(text, &["[Service]", "[Container]"]) else {
                return no_place("add a [Service] section first");
            };
            format!("{before}Environment=\"ERL_FLAGS=\"{eol}{after}")
        }
        Format::Shell => {
            // The variable must precede all commands, but follow the leading comments.
            let top: usize =
                text.split_inclusive('\n').take_while(|line| line.starts_with('#')).map(str::len).sum();
            let (before, after) = text.split_at(top);
            let gap = if before.is_empty() || before.ends_with('\n') { "" } else { eol };
            format!("{before}{gap}export ERL_FLAGS=\"\"{eol}{after}")
        }
        Format::Compose | Format::Kubernetes => {
            return no_place("add ERL_FLAGS with an empty value to the environment of the container");
        }
        Format::VmArgs | Format::VmArgsTemplate(_) => return no_place("write the flag manually"),
    };
    Ok(input.with_text(new)?)
}

/// Splits the text after the first line that equals one of `lines`.
fn behind_line<'t>(text: &'t str, lines: &[&str]) -> Option<(&'t str, &'t str)> {
    let mut end = 0;
    for line in text.split_inclusive('\n') {
        end += line.len();
        if lines.contains(&line.trim()) && line.ends_with('\n') {
            return Some(text.split_at(end));
        }
    }
    None
}

fn unset(input: &Input, flag: &str) -> Result<Input, ArgsError> {
    if is_repeatable(flag) {
        return Err(ArgsError::Accumulates { flag: flag.to_owned() });
    }
    let mut result = input.clone();
    let all = flag_uses(&result, 0);
    let mut left = all.iter().filter(|given| given.flag == flag).count();
    if left == 0 {
        // The user requested `-kernel` instead of `-kernel net_ticktime`.
        if let Some(given) = all.iter().find(|given| given.flag.split(' ').next() == Some(flag)) {
            return Err(ArgsError::NoParameter { flag: flag.to_owned(), example: given.flag.clone() });
        }
        return Err(ArgsError::NotThere { flag: flag.to_owned() });
    }
    while left > 0 {
        let all = flag_uses(&result, 0);
        // The last occurrence is removed first, so that positions in errors refer to the original file.
        let Some(given) = all.iter().rfind(|given| given.flag == flag) else { break };
        let words = match &given.shape {
            Shape::Apart(range) => range.clone(),
            Shape::Glued(word, _) => *word..word + 1,
            Shape::Pair { head, key, alone: true } => *head..key + 2,
            Shape::Pair { key, .. } => *key..key + 2,
            Shape::OfVariable { .. } => return Err(no_room(&result, Some(given))),
        };
        let Some(fragment) = result.fragments.get(given.fragment) else { break };
        let edits = fragment.change(&[Change::Remove { words }])?;
        result = result.with_text(apply(&result.text, &edits))?;
        left -= 1;
    }
    ensure_only_changed(input, &result, flag, None)?;
    Ok(result)
}

/// Ensures that a flag has the requested values and that all other flags are unchanged.
fn ensure_only_changed(
    before: &Input,
    after: &Input,
    flag: &str,
    wanted: Option<&[String]>,
) -> Result<(), ArgsError> {
    let not_held = |why: String| ArgsError::NotHeld { flag: flag.to_owned(), why };
    let (before, after) = (values(before), values(after));
    let now = after.get(flag).and_then(|list| list.last());
    if now.map(Vec::as_slice) != wanted {
        let now = match now {
            None => "the flag would be absent".to_owned(),
            Some(_) if contains_secret(flag) => "the flag would have a different value".to_owned(),
            Some(values) => format!("the value would be `{}`", values.join(" ")),
        };
        return Err(not_held(format!("{now}; check the text around it")));
    }
    let others = |map: &BTreeMap<String, Vec<Vec<String>>>| -> BTreeMap<String, Vec<Vec<String>>> {
        map.iter()
            .filter(|(name, _)| *name != flag)
            .map(|(name, list)| (name.clone(), list.clone()))
            .collect()
    };
    let (before, after) = (others(&before), others(&after));
    let differs = before.iter().find(|(name, list)| after.get(*name) != Some(list));
    let new = after.keys().find(|name| !before.contains_key(*name));
    match differs.map(|(name, _)| name).or(new) {
        Some(other) => Err(not_held(format!("{other} would change, too; check the text around it"))),
        None => Ok(()),
    }
}

/// Returns all values of each flag, in the order of effect.
fn values(input: &Input) -> BTreeMap<String, Vec<Vec<String>>> {
    let mut values: BTreeMap<String, Vec<Vec<String>>> = BTreeMap::new();
    for given in flag_uses(input, 0) {
        values.entry(given.flag).or_default().push(given.values);
    }
    values
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::source::Template;

    fn changed(
        format: Format,
        text: &str,
        request: &FlagChange,
        comment: &[&str],
    ) -> Result<String, ArgsError> {
        let input = Input::read(format, text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let comment: Vec<String> = comment.iter().map(|line| (*line).to_owned()).collect();
        change(&input, request, &comment).map(|input| input.text)
    }

    fn set(format: Format, text: &str, flag: &str, expect: &str) {
        let request = FlagChange::set(flag).unwrap_or_else(|error| panic!("{error}"));
        match changed(format, text, &request, &["why"]) {
            Ok(new) => assert_eq!(new, expect, "{flag} in\n{text}"),
            Err(error) => panic!("{error}\n{flag} in\n{text}"),
        }
    }

    fn unset(format: Format, text: &str, flag: &str, expect: &str) {
        let request = FlagChange::unset(flag).unwrap_or_else(|error| panic!("{error}"));
        match changed(format, text, &request, &[]) {
            Ok(new) => assert_eq!(new, expect, "{flag} in\n{text}"),
            Err(error) => panic!("{error}\n{flag} in\n{text}"),
        }
    }

    fn refused(format: Format, text: &str, request: FlagChange) -> String {
        changed(format, text, &request, &[]).expect_err(text).to_string()
    }

    const EEX: Format = Format::VmArgsTemplate(Template::Eex);

    #[test]
    fn new_flag_is_added_with_its_comment() {
        set(Format::VmArgs, "", "+sbwt none", "# why\n+sbwt none\n");
        set(Format::VmArgs, "# limits\n+P 5000\n", "+sbwt none", "# limits\n+P 5000\n# why\n+sbwt none\n");
        set(Format::VmArgs, "+P 5000 -extra x\n", "+sbwt none", "# why\n+P 5000 +sbwt none -extra x\n");
        set(
            Format::EnvFile,
            "A=b\nERL_FLAGS=+P 1\n",
            "+sbwt none",
            "A=b\n# why\nERL_FLAGS=+P 1 +sbwt none\n",
        );
        set(
            Format::Dockerfile,
            "FROM x\nENV ERL_FLAGS=\"+P 1\"\nCMD y\n",
            "+sbwt none",
            "FROM x\n# why\nENV ERL_FLAGS=\"+P 1 +sbwt none\"\nCMD y\n",
        );
        set(
            Format::SystemdUnit,
            "[Service]\nEnvironment=\"ERL_FLAGS=+P 1\"\n",
            "+sbwt none",
            "[Service]\n# why\nEnvironment=\"ERL_FLAGS=+P 1 +sbwt none\"\n",
        );
        set(
            Format::Kubernetes,
            "kind: ConfigMap\ndata:\n  vm.args: |\n    +P 1\n  b: c\n",
            "+sbwt none",
            "kind: ConfigMap\ndata:\n  vm.args: |\n    +P 1\n    # why\n    +sbwt none\n  b: c\n",
        );
        set(
            Format::Kubernetes,
            "env:\n  - name: ERL_FLAGS\n    value: \"+P 1\"\n",
            "+sbwt none",
            "env:\n  # why\n  - name: ERL_FLAGS\n    value: \"+P 1 +sbwt none\"\n",
        );
        set(
            Format::Compose,
            "services:\n  a:\n    environment:\n      - ERL_FLAGS=+P 1\n",
            "+sbwt none",
            "services:\n  a:\n    environment:\n      # why\n      - ERL_FLAGS=+P 1 +sbwt none\n",
        );
        set(
            Format::RabbitmqEnv,
            "SERVER_ADDITIONAL_ERL_ARGS='+P 1'\n",
            "+sbwt none",
            "# why\nSERVER_ADDITIONAL_ERL_ARGS='+P 1 +sbwt none'\n",
        );
    }

    #[test]
    fn variable_for_flags_is_added_if_the_file_has_none() {
        set(Format::EnvFile, "A=b", "+sbwt none", "A=b\n# why\nERL_FLAGS=\"+sbwt none\"\n");
        set(Format::Dockerfile, "FROM x\n", "+sbwt none", "FROM x\n# why\nENV ERL_FLAGS=\"+sbwt none\"\n");
        // Flags in a build stage have no effect.
        set(
            Format::Dockerfile,
            "FROM x AS build\nENV ERL_FLAGS=\"+P 1\"\nFROM y\n",
            "+sbwt none",
            "FROM x AS build\nENV ERL_FLAGS=\"+P 1\"\nFROM y\n# why\nENV ERL_FLAGS=\"+sbwt none\"\n",
        );
        set(
            Format::SystemdUnit,
            "[Unit]\n\n[Service]\nExecStart=/x\n",
            "+sbwt none",
            "[Unit]\n\n[Service]\n# why\nEnvironment=\"ERL_FLAGS=+sbwt none\"\nExecStart=/x\n",
        );
        set(
            Format::Shell,
            "#!/bin/sh\nexec x\n",
            "+sbwt none",
            "#!/bin/sh\n# why\nexport ERL_FLAGS=\"+sbwt none\"\nexec x\n",
        );
        set(Format::RabbitmqEnv, "", "+sbwt none", "# why\nSERVER_ADDITIONAL_ERL_ARGS=\"+sbwt none\"\n");
        set(
            Format::EjabberdCtl,
            "POLL=true\n",
            "+sbwt none",
            "POLL=true\n# why\nERL_OPTIONS=\"+sbwt none\"\n",
        );
        let two = "a:\n  environment:\n    ERL_FLAGS: +P 1\nb:\n  environment:\n    ERL_FLAGS: +P 2\n";
        let error = refused(Format::Compose, two, FlagChange::set("+P 5000").expect("a change"));
        assert!(error.contains("3:16, 6:16"), "{error}");
        let second = Input { node: Some(1), ..Input::read(Format::Compose, two).expect(two) };
        let changed = change(&second, &FlagChange::set("+P 5000").expect("a change"), &["why".to_owned()])
            .expect("room");
        assert_eq!(changed.text, two.replace("    ERL_FLAGS: +P 2", "    # why\n    ERL_FLAGS: +P 5000"));
        let error = refused(Format::Compose, "services: {}\n", FlagChange::set("+P 5000").expect("a change"));
        assert!(error.contains("ERL_FLAGS"), "{error}");
        let error = refused(Format::SystemdUnit, "[Unit]\n", FlagChange::set("+P 5000").expect("a change"));
        assert!(error.contains("[Service]"), "{error}");
    }

    #[test]
    fn effective_value_is_replaced() {
        set(
            Format::VmArgs,
            "+P 1000 # old\n+P 2000\n+Q 1\n",
            "+P 5000",
            "+P 1000 # old\n# why\n+P 5000\n+Q 1\n",
        );
        set(Format::VmArgs, "+S4\n", "+S 2:2", "# why\n+S2:2\n");
        set(Format::VmArgs, "+h 400\n", "+hms 500", "# why\n+h 500\n");
        set(
            Format::VmArgs,
            "-kernel net_ticktime 30 inet_dist_listen_min 9100\n",
            "-kernel net_ticktime 60",
            "# why\n-kernel net_ticktime 60 inet_dist_listen_min 9100\n",
        );
        set(Format::VmArgs, "-name a@b\n", "-name c@d", "# why\n-name c@d\n");
        set(Format::VmArgs, "\t+P 1\r\n+Q 1\r\n", "+P 5000", "\t# why\r\n\t+P 5000\r\n+Q 1\r\n");
        set(
            Format::EnvFile,
            "ERL_ZFLAGS=+P 1\nERL_FLAGS=+P 2\n",
            "+P 5000",
            "# why\nERL_ZFLAGS=+P 5000\nERL_FLAGS=+P 2\n",
        );
        set(Format::EjabberdCtl, "ERL_PROCESSES=250000\n", "+P 5000", "# why\nERL_PROCESSES=5000\n");
        set(Format::Shell, "exec erl +P 1 \"$@\"\n", "+P 5000", "exec erl +P 5000 \"$@\"\n");
        set(Format::Shell, "erl -s a -args_file b\n", "+P 5000", "erl -s a +P 5000 -args_file b\n");
        set(Format::Shell, "iex --erl '-s a' -S mix\n", "+P 5000", "iex --erl '-s a +P 5000' -S mix\n");
        set(
            Format::Dockerfile,
            "FROM x\nCMD [\"erl\", \"-s\", \"a\"]\n",
            "+P 5000",
            "FROM x\nCMD [\"erl\", \"-s\", \"a\", \"+P\", \"5000\"]\n",
        );
        set(Format::Kubernetes, "args: [erl, +P, '1']\n", "+P 5000", "args: [erl, +P, \"5000\"]\n");
        // A variable that sets several flags is not changed; a flag that overrides it is added.
        set(
            Format::RabbitmqEnv,
            "SCHEDULER_BUSY_WAIT_THRESHOLD=none\nSERVER_ADDITIONAL_ERL_ARGS='+P 1'\n",
            "+sbwt long",
            "SCHEDULER_BUSY_WAIT_THRESHOLD=none\n# why\nSERVER_ADDITIONAL_ERL_ARGS='+P 1 +sbwt long'\n",
        );
        // The same applies to a flag that is written without a value.
        set(Format::VmArgs, "+c\n+P 1\n", "+c false", "+c\n+P 1\n# why\n+c false\n");
    }

    #[test]
    fn flag_with_the_requested_value_is_left_unchanged() {
        for text in ["+P 5000\n", "+P 1\n+P5000\n"] {
            set(Format::VmArgs, text, "+P 5000", text);
        }
        // A comment that is already there is not added again.
        set(Format::VmArgs, "# why\n+P 1\n", "+P 5000", "# why\n+P 5000\n");
    }

    #[test]
    fn templates_are_kept_and_conditional_flags_are_overridden() {
        let text = "<%= if big do %>\n+P 5000\n<% else %>\n+P 1000\n<% end %>\n+sbwt <%= x %>\n";
        set(EEX, text, "+P 8000", &format!("{text}# why\n+P 8000\n"));
        set(EEX, text, "+sbwt none", &text.replace("+sbwt <%= x %>", "# why\n+sbwt none"));
    }

    #[test]
    fn comment_is_omitted_where_the_syntax_allows_none() {
        set(
            Format::Compose,
            "a:\n  ERL_FLAGS: >-\n    +P 1\n    +Q 2\n",
            "+Q 4096",
            "a:\n  # why\n  ERL_FLAGS: >-\n    +P 1\n    +Q 4096\n",
        );
        // The line above is part of a quoted word.
        set(Format::VmArgs, "-x 'a\nb' +P 1\n", "+P 5000", "-x 'a\nb' +P 5000\n");
        set(
            Format::Shell,
            "export A=1 \\\n  ERL_FLAGS='+P 1'\n",
            "+P 5000",
            "export A=1 \\\n  ERL_FLAGS='+P 5000'\n",
        );
        set(Format::Shell, "X=\"a\nb\" ERL_FLAGS='+P 1'\n", "+P 5000", "X=\"a\nb\" ERL_FLAGS='+P 5000'\n");
    }

    #[test]
    fn all_occurrences_of_a_flag_are_removed_with_their_values() {
        unset(
            Format::VmArgs,
            "# kernel poll\n+K true\n+P 5000\n+K false\n",
            "+K",
            "# kernel poll\n+P 5000\n",
        );
        unset(Format::VmArgs, "+P 1 +S4 +Q 2\n", "+S", "+P 1 +Q 2\n");
        unset(Format::VmArgs, "-kernel a 1 b 2 -heart\n", "-kernel a", "-kernel b 2 -heart\n");
        unset(Format::VmArgs, "-kernel a 1\n-heart\n", "-kernel a", "-heart\n");
        unset(Format::Shell, "ERL_FLAGS='+K true +P 1'\n", "+K", "ERL_FLAGS='+P 1'\n");
        let error =
            refused(Format::EjabberdCtl, "ERL_PROCESSES=5\n", FlagChange::unset("+P").expect("a change"));
        assert!(error.contains("ERL_PROCESSES at 1:15"), "{error}");
        let error = refused(Format::VmArgs, "+P 1", FlagChange::unset("+K").expect("a change"));
        assert!(error.contains("is not in this file"), "{error}");
        let error = refused(Format::VmArgs, "-kernel a 1", FlagChange::unset("-kernel").expect("a change"));
        assert!(error.contains("for example \"-kernel a\""), "{error}");
    }

    #[test]
    fn change_that_would_affect_other_flags_is_rejected() {
        // The existing flag lacks its value and would take the new flag as its value.
        let error = refused(Format::VmArgs, "+P", FlagChange::set("+sbwt none").expect("a change"));
        assert!(error.contains("check the text around it"), "{error}");
        // The flag lacks its value and takes the next flag as its value.
        let error = refused(
            Format::VmArgs,
            "+P 5000\n+sbwt\n+sbwtdcpu none\n",
            FlagChange::set("+sbwt none").expect("a change"),
        );
        assert!(error.contains("at 2:1 takes `+sbwtdcpu` as its value"), "{error}");
        // The new value must override the conditional one in ERL_ZFLAGS, but only ERL_FLAGS can be added, which is weaker.
        let conditional = "if x; then\n  ERL_ZFLAGS='+P 2048'\nfi\n";
        let error = refused(Format::Shell, conditional, FlagChange::set("+P 4096").expect("a change"));
        assert!(error.contains("from ERL_ZFLAGS at 2:15"), "{error}");
        let error = refused(
            Format::VmArgs,
            "-name a@b\n-name c@d\n",
            FlagChange::set("-name x@y").expect("a change"),
        );
        assert!(error.contains("twice, at 1:1 and 2:1"), "{error}");
    }

    proptest! {
        #[test]
        fn changed_file_has_the_requested_value(
            lines in proptest::collection::vec(
                prop_oneof![
                    Just("# a comment 'with a quote"), Just(""), Just("+P 5000"), Just("+sbwt short # why"), Just("+S4:4"),
                    Just("-name a@b"), Just("-kernel net_ticktime 30 x \"y z\""), Just("+K true +A 3"), Just("-setcookie 'a#b'"),
                    Just("+MBas aobf"), Just("\t-heart"), Just("+zdbbl 1024\r"),
                ],
                0..10,
            ),
            flag in prop_oneof![
                Just("+P 1048576"), Just("+sbwt none"), Just("+S 2:2"), Just("+MBas ageffcbf"), Just("-kernel net_ticktime 60"),
                Just("-heart"), Just("+c false"), Just("-proto_dist 'it is \"x\"'"),
            ],
            why in "[a-zA-Z0-9 '\"<%={}$#]{0,30}",
            as_eex: bool,
        ) {
            let text = lines.join("\n");
            let format = if as_eex { EEX } else { Format::VmArgs };
            let input = Input::read(format, text.clone()).expect("a file");
            let request = FlagChange::set(flag).expect("a change");
            let FlagChange::Set { words, .. } = &request else { panic!("{request:?}") };
            match change(&input, &request, &[why]) {
                Ok(changed) => {
                    let (wanted, _) = one_flag(&quoted(words)).expect("a flag");
                    let all = flag_uses(&changed, 0);
                    let last = all.iter().rfind(|given| given.flag == request.flag()).expect("the flag is in the file");
                    prop_assert_eq!(&last.values, &wanted.values);
                    // All comments are kept in order.
                    let comments = |text: &str| -> Vec<String> {
                        text.lines().filter(|line| line.starts_with("# a comment")).map(str::to_owned).collect()
                    };
                    prop_assert_eq!(comments(&text), comments(&changed.text));
                    // The flag can be removed again.
                    let unset = FlagChange::Unset { flag: request.flag().to_owned() };
                    let without = change(&changed, &unset, &[]).expect("the flag is in the file");
                    prop_assert!(flag_uses(&without, 0).iter().all(|given| given.flag != request.flag()));
                }
                Err(ArgsError::Twice { .. }) => {}
                Err(error) => prop_assert!(false, "{error}\n{text}"),
            }
        }
    }
}
