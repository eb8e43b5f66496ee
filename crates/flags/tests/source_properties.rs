//! Properties for any text: readers return words or an error, spans are ordered, an edit changes only its own bytes, and a replaced word
//! is found when the file is parsed again.

#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "tests")]

mod formats;
mod work;

use beamtune_flags::source::{Change, Edit, Format, Place, apply, detect, read, text};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use formats::FORMATS;
use work::assert_no_more_than_linear;

/// Pieces that have a meaning for one of the readers.
const PIECES: &[&str] = &[
    "ERL_FLAGS",
    "=",
    "+P",
    "5000",
    " ",
    "  ",
    "\n",
    "\r\n",
    "\t",
    "\"",
    "'",
    "\\",
    "\\\n",
    "#",
    " #",
    "$",
    "${A}",
    "$(b c)",
    "`d`",
    "$$",
    "%",
    "%%",
    "%i",
    "<%= x %>",
    "<% if x do %>",
    "<% end %>",
    "<%",
    "%>",
    "{{ a }}",
    "{{- if .x }}",
    "{{- end }}",
    "{{",
    "}}",
    "{%",
    "ENV ",
    "ENV ERL_ZFLAGS ",
    "export ",
    "Environment=",
    "EnvironmentFile=",
    "RUN <<E",
    "\nE\n",
    "# escape=`\n",
    "`",
    "- ",
    ": ",
    "  ERL_FLAGS: ",
    "- name: ERL_FLAGS\n",
    "  value: ",
    "vm.args: |\n  ",
    "vm.args: >-\n    ",
    "[",
    "]",
    "{",
    "}",
    ",",
    "&a ",
    "*a",
    "---\n",
    "if ",
    "; then ",
    "fi\n",
    "case x in a) ",
    "esac",
    "(",
    ")",
    "&&",
    "<<E\n",
    "-extra",
    "--",
    "é",
    "日本",
    "\u{a0}",
    "\u{feff}",
    "|",
    ">",
    "x",
    "-",
    "+sbwt none",
    "SERVER_ADDITIONAL_ERL_ARGS=",
    "ERL_PROCESSES=",
    "erl ",
    "erl -x ",
    "\"erl\", ",
    "elixir --erl ",
    "--name ",
    "-args_file ",
    "sh -c ",
    "env ",
    "CMD ",
    "CMD [\"erl\", \"-x\"",
    "ENTRYPOINT [",
    "FROM x\n",
    "ExecStart=erl ",
    "command: ",
    "command: [erl, ",
    "args:\n  - ",
];

/// Texts that start a value in the different formats.
const BEGINS: &[&str] = &[
    "",
    "ERL_FLAGS=",
    "ERL_FLAGS=\"",
    "export ERL_FLAGS='",
    "ENV ERL_FLAGS=",
    "ENV A=b ERL_FLAGS=\"",
    "ENV ERL_FLAGS ",
    "Environment=ERL_FLAGS=",
    "Environment=A=b \"ERL_FLAGS=",
    "a:\n  ERL_FLAGS: ",
    "a:\n  ERL_FLAGS: \"",
    "a:\n  ERL_FLAGS: '",
    "- ERL_FLAGS=",
    "- \"ERL_FLAGS=",
    "name: ERL_FLAGS\nvalue: >-\n  ",
    "a:\n  vm.args: |\n    ",
    "exec erl -x ",
    "sudo -u a elixir --erl \"",
    "iex --name a --erl '",
    "sh -c \"erl ",
    "CMD erl -x ",
    "CMD [\"erl\", \"",
    "CMD [\"sh\", \"-c\", \"erl -x ",
    "ExecStart=erl -x ",
    "ExecStart=sh -c 'erl -x ",
    "services:\n  a:\n    command: erl ",
    "a:\n  command: [erl, '-x', \"",
    "a:\n  command:\n  - erl\n  - ",
    "a:\n  args: [-c, 'erl ",
];

fn any_text() -> impl Strategy<Value = String> {
    // Many texts with a value are valid only if a quote is closed.
    let ends = select(&["", "\"", "'", "\"\n", "'\n", "\n"][..]);
    let pieces = vec(select(PIECES), 0..12);
    prop_oneof![
        5 => (select(BEGINS), pieces, ends).prop_map(|(begin, pieces, end)| format!("{begin}{}{end}", pieces.concat())),
        2 => vec(select(PIECES), 0..30).prop_map(|pieces| pieces.concat()),
        1 => ".{0,60}",
    ]
}

/// Generates typical and unusual words.
fn any_word() -> impl Strategy<Value = String> {
    prop_oneof![
        "[+-][A-Za-z]{1,6}",
        "[0-9]{1,7}(:[0-9]{1,3})?",
        "[a-zA-Z0-9 '\"\\\\#$%:{},\\[\\]<>&*!|`@=é-]{1,8}",
    ]
}

/// Writes a file of a format with these words in one place and other text around them. The words may contain anything that can be
/// quoted.
fn file_with(format: Format, words: &[String]) -> String {
    let line: Vec<String> = words.iter().map(|word| in_quotes(word)).collect();
    let line = line.join(" ");
    let in_double = |text: &str, also: &str| -> String {
        text.chars()
            .flat_map(|c| [Some('\\').filter(|_| c == '\\' || c == '"' || also.contains(c)), Some(c)])
            .flatten()
            .collect()
    };
    match format {
        Format::VmArgs | Format::VmArgsTemplate(_) => format!("# begin\n-a b\n{line}\n+Q 1 # end\n"),
        Format::EnvFile => format!("A=1\nERL_FLAGS=\"{}\"\nERL_ZFLAGS=+Q 1\n", in_double(&line, "$")),
        Format::Dockerfile => format!(
            "FROM x\nENV A=1 ERL_FLAGS=\"{}\" \\\n  B=2\nENV ERL_ZFLAGS +Q 1\n",
            in_double(&line, "$")
        ),
        Format::Compose => format!(
            "a:\n  - ERL_ZFLAGS=+Q 1\nb: {{ERL_FLAGS: '{}'}} # end\n",
            line.replace('\'', "''").replace('$', "$$")
        ),
        Format::Kubernetes => {
            format!("data:\n  # begin\n  vm.args: |\n    -a b\n    {line}\n    +Q 1\nb: c\n")
        }
        Format::SystemdUnit => format!(
            "[Service]\nEnvironment=A=1 \"ERL_FLAGS={}\" \\\n B=2\n",
            in_double(&line, "").replace('%', "%%")
        ),
        Format::RabbitmqEnv | Format::EjabberdCtl | Format::Shell => {
            format!("# begin\nexport ERL_FLAGS=\"{}\" # it's\nERL_ZFLAGS='+Q 1'\n", in_double(&line, "$`"))
        }
    }
}

/// Writes a command with these words after `erl -begin`, in the formats that have commands.
fn command_with(format: Format, words: &[String]) -> Option<String> {
    let escaped = |text: &str, also: &str| -> String {
        let escape = |c: char| [Some('\\').filter(|_| "\\\"".contains(c) || also.contains(c)), Some(c)];
        text.chars().flat_map(escape).flatten().collect()
    };
    let all = |between: &str, write: &dyn Fn(&str) -> String| -> String {
        let words: Vec<String> = words.iter().map(|word| write(word)).collect();
        words.join(between)
    };
    let text = match format {
        Format::Shell => {
            let words = all(" \\\n  ", &|word| format!("'{}'", word.replace('\'', "'\\''")));
            format!("#!/bin/sh\ncd x && exec erl -begin {words} >log 2>&1 # it's\n")
        }
        Format::Dockerfile => {
            let words = all(", \\\n  ", &|word| format!("\"{}\"", escaped(word, "")));
            format!("FROM x\nENTRYPOINT [\"tini\", \"--\"]\nCMD [\"erl\", \"-begin\", {words}]\n")
        }
        Format::SystemdUnit => {
            let plain = |word: &str| word.replace('%', "%%").replace('$', "$$");
            let words = all(" \\\n  ", &|word| format!("\"{}\"", escaped(&plain(word), "")));
            format!("[Service]\nExecStart=-/bin/erl -begin {words}\nRestart=always\n")
        }
        Format::Compose => {
            let words =
                all("\n      - ", &|word| format!("'{}'", word.replace('\'', "''").replace('$', "$$")));
            format!("services:\n  a:\n    command:\n      - erl\n      - -begin\n      - {words}\n")
        }
        Format::Kubernetes => {
            let words = all(",\n    ", &|word| format!("\"{}\"", escaped(word, "")));
            format!("a:\n  args: [\"-begin\", {words}] # why\n  command: [erl]\n")
        }
        _ => return None,
    };
    Some(text)
}

/// Opening delimiters of templates and substitutions.
const MARKS: [&str; 6] = ["<%", "{{", "{%", "{#", "${", "$("];

/// Quotes a word for the launcher.
fn in_quotes(word: &str) -> String {
    if !word.contains('"') {
        return format!("\"{word}\"");
    }
    word.chars().flat_map(|c| ['\\', c]).collect()
}

fn texts(format: Format, text: &str) -> Option<Vec<(Place, Vec<String>)>> {
    let fragments = read(format, text).ok()?;
    let texts = fragments
        .into_iter()
        .map(|fragment| (fragment.place, fragment.words.into_iter().map(|word| word.text).collect()));
    Some(texts.collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn spans_are_ordered_for_any_text(text in any_text()) {
        for format in FORMATS {
            let Ok(fragments) = read(format, &text) else { continue };
            let mut begin = 0;
            for fragment in &fragments {
                prop_assert!(fragment.span().start >= begin, "{:?}: fragments out of order", format);
                begin = fragment.span().start;
                let mut end = 0;
                for word in &fragment.words {
                    prop_assert!(word.span.start >= end, "{:?}: {:?} in {:?}", format, word, text);
                    prop_assert!(text.get(word.span.clone()).is_some(), "{:?}: {:?} in {:?}", format, word, text);
                    end = word.span.end;
                }
            }
        }
    }

    #[test]
    fn arbitrary_bytes_are_a_text_or_an_error(bytes in vec(any::<u8>(), 0..200), path in ".{0,12}") {
        if let Ok(text) = text(&bytes) {
            detect(&path, text);
            for format in FORMATS {
                let _ = read(format, text);
            }
        }
    }

    #[test]
    fn applying_no_edits_changes_nothing(text in any_text()) {
        prop_assert_eq!(apply(&text, &[]), text);
    }

    #[test]
    fn edits_change_only_their_own_bytes(text in any_text(), at in any::<Index>(), length in 0usize..9, new in ".{0,5}") {
        let begin = at.index(text.len() + 1);
        let span = begin..(begin + length).min(text.len());
        let edit = Edit { span: span.clone(), replacement: new.clone() };
        let result = apply(&text, &[edit]);
        match (text.get(..span.start), text.get(span.end..)) {
            (Some(before), Some(after)) => prop_assert_eq!(result, format!("{before}{new}{after}")),
            _ => prop_assert_eq!(result, text),
        }
    }

    #[test]
    fn words_that_are_written_to_a_file_are_found_again(words in vec(any_word(), 1..5)) {
        for format in FORMATS {
            if MARKS.iter().any(|mark| words.iter().any(|word| word.contains(mark))) {
                continue;
            }
            let file = file_with(format, &words);
            let found = texts(format, &file).unwrap_or_else(|| panic!("{format:?}:\n{file}"));
            let holds = found.iter().any(|(_, found)| found.windows(words.len()).any(|window| window == words));
            prop_assert!(holds, "{:?}: {:?} not found in {:?}\n{}", format, words, found, file);
        }
    }

    #[test]
    fn replaced_word_is_found_again_and_all_others_are_unchanged(
        words in vec(any_word(), 1..5),
        which in any::<Index>(),
        new in any_word(),
    ) {
        for format in FORMATS {
            let file = file_with(format, &words);
            let Ok(fragments) = read(format, &file) else { continue };
            for (index, fragment) in fragments.iter().enumerate() {
                if fragment.words.is_empty() {
                    continue;
                }
                let word = which.index(fragment.words.len());
                let change = Change::Replace { word, text: new.clone() };
                let Ok(edits) = fragment.change(&[change]) else {
                    // Only a word that contains an opening delimiter of a template is rejected.
                    prop_assert!(MARKS.iter().any(|mark| new.contains(mark)), "{:?}: {:?} refused in\n{}", format, new, file);
                    continue;
                };
                let result = apply(&file, &edits);
                let mut expected = texts(format, &file).expect("parsed before");
                expected[index].1[word] = new.clone();
                prop_assert_eq!(texts(format, &result), Some(expected), "{:?}\n{}\n{}", format, file, result);
            }
        }
    }

    #[test]
    fn words_of_a_command_are_found_again_and_changed_as_requested(
        words in vec(any_word(), 1..5),
        which in any::<Index>(),
        new in any_word(),
    ) {
        // With these words, the VM is a helper, or the command is split into two fragments.
        const OTHERS: [&str; 5] = ["+V", "-make", "-man", "-extra", "-remsh"];
        let is_odd = |word: &String| OTHERS.contains(&word.as_str()) || MARKS.iter().any(|mark| word.contains(mark));
        if words.iter().chain([&new]).any(is_odd) {
            return Ok(());
        }
        let begin = "-begin".to_owned();
        let expected: Vec<String> = [&begin].into_iter().chain(&words).cloned().collect();
        for format in FORMATS {
            let Some(file) = command_with(format, &words) else { continue };
            let only = |file: &str| match texts(format, file).as_deref() {
                Some([(_, words)]) => words.clone(),
                other => panic!("{format:?}: {other:?}\n{file}"),
            };
            prop_assert_eq!(only(&file), expected.clone(), "{:?}\n{}", format, file);
            let fragments = read(format, &file).expect("parsed before");
            let at = 1 + which.index(words.len());
            let (mut replaced, mut removed, mut longer) = (expected.clone(), expected.clone(), expected.clone());
            replaced[at] = new.clone();
            removed.remove(at);
            longer.push(new.clone());
            for (change, expected) in [
                (Change::Replace { word: at, text: new.clone() }, replaced),
                (Change::Remove { words: at..at + 1 }, removed),
                (Change::Append { words: vec![new.clone()], comment: Vec::new() }, longer),
            ] {
                let edits = fragments[0].change(std::slice::from_ref(&change));
                let edits = edits.unwrap_or_else(|error| panic!("{format:?}: {error}\n{file}"));
                prop_assert_eq!(only(&apply(&file, &edits)), expected, "{:?}: {:?}\n{}", format, change, file);
            }
        }
    }

    #[test]
    fn change_of_any_text_succeeds_or_is_rejected(text in any_text(), new in any_word(), which in any::<Index>()) {
        for format in FORMATS {
            let Ok(fragments) = read(format, &text) else { continue };
            for (index, fragment) in fragments.iter().enumerate() {
                let mut changes = vec![Change::Append { words: vec![new.clone()], comment: vec!["why".to_owned()] }];
                if !fragment.words.is_empty() {
                    let word = which.index(fragment.words.len());
                    changes.push(Change::Remove { words: word..word + 1 });
                }
                for change in changes {
                    let Ok(edits) = fragment.change(std::slice::from_ref(&change)) else { continue };
                    let result = apply(&text, &edits);
                    let mut expected = texts(format, &text).expect("parsed before");
                    let of_fragment = &mut expected[index].1;
                    match change {
                        Change::Remove { words } => {
                            of_fragment.drain(words);
                        }
                        _ => {
                            let is_command = matches!(fragment.place, Place::CommandLine { .. });
                            let ends = |word: &String| word == "-extra" || is_command && word == "-args_file";
                            let extra = of_fragment.iter().position(ends);
                            of_fragment.insert(extra.unwrap_or(of_fragment.len()), new.clone());
                        }
                    }
                    prop_assert_eq!(texts(format, &result), Some(expected), "{:?}\n{:?}\n{:?}", format, text, result);
                }
            }
        }
    }
}

/// The texts repeat pieces for which a reader that scans the file once per piece would take quadratic time.
#[test]
fn repetitions_take_linear_time() {
    const LENGTH: usize = 100_000;
    let pieces = [
        "a",
        " ",
        "+P 1 ",
        "'",
        "\"",
        "\\",
        "#",
        "$",
        "$a",
        "${",
        "${a}",
        "$(",
        "`",
        "{{",
        "{{a}}",
        "{{a",
        "{{-",
        "<%",
        "<%=a%>",
        "<% if a do %>",
        "{%a%}",
        "{%if a%}",
        "A=",
        "ERL_FLAGS=",
        "ERL_FLAGS='",
        "\n",
        "\\\n",
        "a: ",
        "- ",
        "[",
        "{",
        "<<E\n",
        "ENV ERL_FLAGS=a\n",
        "RUN <<E\n",
        "é",
        "\"a\" ",
        "a b\n",
        "- ERL_FLAGS=a\n",
        "ERL_FLAGS='\n",
        "ERL_FLAGS=\"a\\\n",
        "ERL_FLAGS=$a\n",
        "- \"ERL_FLAGS=a $b\"\n",
        "{{a}}\n",
        "erl -x\n",
        "erl ",
        "sh -c 'erl a'\n",
        "elixir --erl a\n",
        "A=b env ERL_FLAGS=a c\n",
        "CMD erl a\n",
        "FROM a\nCMD [\"erl\", \"a\"]\n",
        "ExecStart=erl a\n",
        "- command: [erl, a]\n",
        "  - erl\n",
    ];
    assert_no_more_than_linear(LENGTH, |length| {
        for piece in pieces {
            let text = piece.repeat(length / piece.len());
            for format in FORMATS {
                let _ = read(format, &text);
                let _ = read(format, &with_value(format, &text));
            }
        }
    });
}

#[test]
fn line_of_ten_megabytes_is_read() {
    let words = "+P 5000 ".repeat(1_250_000);
    for format in [
        Format::VmArgs,
        Format::EnvFile,
        Format::Dockerfile,
        Format::Kubernetes,
        Format::SystemdUnit,
        Format::Shell,
    ] {
        let fragments = read(format, &with_value(format, &words)).expect("words");
        assert_eq!(fragments[0].words.len(), 2_500_000, "{format:?}");
    }
}

#[test]
fn command_that_is_too_long_for_the_kernel_is_skipped() {
    let words = "+P 5000 ".repeat(300_000);
    let list = "\"+P\", ".repeat(300_000);
    for (format, text) in [
        (Format::Shell, format!("erl {words}")),
        (Format::Dockerfile, format!("CMD erl {words}")),
        (Format::Dockerfile, format!("CMD [\"erl\", {list}\"-x\"]")),
        (Format::SystemdUnit, format!("ExecStart=erl {words}")),
        (Format::Compose, format!("a:\n  command: erl {words}")),
        (Format::Kubernetes, format!("args: [erl, {list}-x]")),
    ] {
        assert!(read(format, &text).expect("a text").is_empty(), "{format:?}");
    }
}

/// Writes a file with a single value.
fn with_value(format: Format, value: &str) -> String {
    match format {
        Format::VmArgs | Format::VmArgsTemplate(_) => value.to_owned(),
        Format::Dockerfile => format!("ENV ERL_FLAGS=\"{value}\""),
        Format::SystemdUnit => format!("Environment=\"ERL_FLAGS={value}\""),
        Format::Compose | Format::Kubernetes => format!("ERL_FLAGS: \"{value}\""),
        _ => format!("ERL_FLAGS=\"{value}\""),
    }
}
