//! Parsers of files that contain flags.

use beamtune_flags::source::{Change, Format, apply, read, text};

/// Parses arbitrary bytes; the first one selects the word to change. Spans are in order, and a change is either refused or
/// is parsed back as it was made.
pub fn check(format: Format, bytes: &[u8]) {
    let Ok(text) = text(bytes) else { return };
    assert_eq!(apply(text, &[]), text);
    let Ok(fragments) = read(format, text) else { return };
    for (index, fragment) in fragments.iter().enumerate() {
        let mut end = 0;
        for word in &fragment.words {
            assert!(word.span.start >= end && text.get(word.span.clone()).is_some(), "{word:?}");
            end = word.span.end;
        }
        let Some(last) = fragment.words.len().checked_sub(1) else { continue };
        let word = usize::from(bytes.first().copied().unwrap_or_default()).min(last);
        let change = Change::Replace { word, text: "it's \"new\"".to_owned() };
        let Ok(edits) = fragment.change(&[change]) else { continue };
        let again = read(format, &apply(text, &edits)).expect("a changed file can be parsed");
        for (other, (old, new)) in fragments.iter().zip(&again).enumerate() {
            for (at, (old, new)) in old.words.iter().zip(&new.words).enumerate() {
                let replaced = (other, at) == (index, word);
                assert_eq!(new.text, if replaced { "it's \"new\"" } else { &old.text });
            }
        }
    }
}

/// The start of a command, in each format with commands.
const COMMAND_STARTS: &[(Format, &str)] = &[
    (Format::Shell, "exec erl -x "),
    (Format::Shell, "elixir --erl \""),
    (Format::Dockerfile, "CMD erl -x "),
    (Format::Dockerfile, "CMD [\"erl\", \""),
    (Format::SystemdUnit, "ExecStart=erl -x "),
    (Format::SystemdUnit, "ExecStart=/bin/sh -c 'erl -x "),
    (Format::Compose, "services:\n  a:\n    command: erl -x "),
    (Format::Kubernetes, "args: [erl, -x, "),
];

/// The same with the input as the rest of a command.
pub fn command(bytes: &[u8]) {
    for (format, start) in COMMAND_STARTS {
        check(*format, &[start.as_bytes(), bytes].concat());
    }
}
