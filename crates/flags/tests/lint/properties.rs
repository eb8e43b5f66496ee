//! Properties for any text in any format.

use beamtune_flags::lint::{File, Target, lint};
use beamtune_flags::parse_emu_args;
use beamtune_flags::source::{Format, Word, apply, read};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use crate::formats::FORMATS;
use crate::work::assert_no_more_than_linear;

/// The parts of generated texts.
const PIECES: &[&str] = &[
    "+P",
    "+S",
    "+sbwt",
    "+K",
    "+MBas",
    "+MBacul",
    "+Muacul",
    "+Mea",
    "+MBe",
    "+hmax",
    "+hms",
    "+SP",
    "+SDcpu",
    "+R",
    "+c",
    "+dcg",
    "+x",
    "+",
    "-",
    "--",
    "-extra",
    "-env",
    "-kernel",
    "-name",
    "-sname",
    "-smp",
    "-heart",
    "-setcookie",
    "-sbwt",
    "-args_file",
    "none",
    "true",
    "false",
    "min",
    "aobf",
    "2:4",
    "8k",
    "1_0",
    "100000000000",
    "-1",
    "99999999999999999999",
    "x#y",
    "%%",
    "//",
    "\\",
    "\\\n",
    "é",
    "\u{feff}",
    "\u{a0}",
    "\"",
    "'",
    "a b",
    "{a",
    "${X}",
    "$X",
    "<%= x %>",
    "<%= if x do %>",
    "<% end %>",
    "{{ y }}",
    " ",
    " ",
    " ",
    "\n",
    "\n",
    "\t",
    "=",
    ":",
    "ERL_FLAGS=",
    "ERL_ZFLAGS: ",
    "ERL_MAX_PORTS=",
    "ENV ERL_FLAGS=",
    "Environment=",
    "[Service]\n",
    "CPUQuota=50%\n",
    "LimitNOFILE=infinity\n",
    "services:\n  a:\n    cpus: 0.5\n    environment:\n      - ERL_FLAGS=",
    "FROM a\n",
    "RABBITMQ_SERVER_ERL_ARGS=",
    "POLL=true\n",
    "inet_dist_listen_min",
    "inet_dist_listen_max",
    "9100",
    "ERL_CRASH_DUMP_SECONDS",
    "erl ",
    "exec erl -x ",
    "elixir --erl '",
    "--name ",
    "--cookie ",
    "; ",
    "CMD erl ",
    "CMD [\"erl\", \"",
    "\", \"",
    "\"]",
    "ExecStart=erl ",
    "services:\n  a:\n    command: erl ",
    "command: [erl, ",
    "args:\n- ",
    "\n- ",
];

fn holds(format: Format, text: &str) -> Result<(), TestCaseError> {
    let Ok(fragments) = read(format, text) else { return Ok(()) };
    let target = Target::default();
    let found = lint(&[File { fragments: &fragments }], &target);
    for finding in &found {
        prop_assert!(text.get(finding.span.clone()).is_some(), "{:?}", finding);
        prop_assert!(!finding.releases.is_empty(), "{:?}", finding);
        prop_assert!(finding.releases.windows(2).all(|pair| pair[0] < pair[1]), "{:?}", finding);
        prop_assert!(!finding.message.is_empty() && !finding.message.contains('\n'), "{:?}", finding);
        for sentence in [&finding.reason, &finding.remedy] {
            prop_assert!(sentence.ends_with(['.', '!', ')']), "{:?}", finding);
        }
        for (_, span, _) in &finding.related {
            prop_assert!(text.get(span.clone()).is_some(), "{:?}", finding);
        }
        if let Some(fix) = &finding.fix {
            prop_assert!(read(format, &apply(text, &fix.edits)).is_ok(), "{:?}", finding);
        }
    }
    let ordered = |one: &beamtune_flags::lint::Finding, other: &beamtune_flags::lint::Finding| {
        (one.file, one.span.start) <= (other.file, other.span.start)
    };
    prop_assert!(found.windows(2).all(|pair| ordered(&pair[0], &pair[1])));
    Ok(())
}

/// Groups words: each flag with its values, in order.
fn groups(words: &[Word]) -> Vec<Vec<String>> {
    let mut groups: Vec<Vec<String>> = Vec::new();
    // The init flag to which further words belong.
    let mut open: Option<usize> = None;
    let mut words = words.iter().map(|word| word.text.clone()).peekable();
    while let Some(word) = words.next() {
        let next = words.peek().cloned();
        if word == "-extra" {
            groups.push(std::iter::once(word).chain(words.by_ref()).collect());
        } else if word.starts_with('+') {
            let pair: Vec<String> = [Some(word.clone()), next].into_iter().flatten().collect();
            let takes_next = parse_emu_args(&pair).first().is_some_and(|flag| {
                pair.len() == 2 && flag.flag == word && flag.value.as_ref() == pair.get(1)
            });
            groups.push(if takes_next { vec![word, words.next().expect("a next word")] } else { vec![word] });
        } else if word == "-env" {
            groups.push(std::iter::once(word).chain(words.by_ref().take(2)).collect());
        } else if word.starts_with('-') {
            open = (word != "--").then_some(groups.len());
            let mut group = vec![word.clone()];
            group.extend(words.next_if(|_| matches!(word.as_str(), "-name" | "-sname")));
            groups.push(group);
        } else if let Some(open) = open {
            groups[open].push(word);
        } else {
            groups.push(vec![word]);
        }
    }
    groups
}

/// Whether one group was removed and the others are unchanged, or the value of one emulator flag changed.
fn is_one_less(before: &[Vec<String>], after: &[Vec<String>]) -> bool {
    let same = before.iter().zip(after).take_while(|(one, other)| one == other).count();
    let rest = |skipped: usize| before.get(same + skipped..).unwrap_or_default();
    let changed = after.get(same..).unwrap_or_default();
    if changed == rest(1) {
        return true;
    }
    let [first, others @ ..] = changed else { return false };
    let of_emulator = first.first().is_some_and(|flag| flag.starts_with('+') || flag == "-env");
    of_emulator && others == rest(1) && rest(0).first().is_some_and(|old| old.len() == first.len())
}

/// Flags with safe fixes, and other words.
const FIXABLE: &[&str] = &[
    "+K true",
    "+K",
    "-smp true",
    "-smp",
    "-smp auto",
    "+R 25",
    "+P 5000",
    "+P5000",
    "+Q 4096",
    "+sbwt none",
    "+sbwt short",
    "+sbwt",
    "+zdbbl 1024",
    "+A 0",
    "+secio true",
    "+IOt 4",
    "+IOPt 50",
    "+MMmcs 50",
    "-emu_flavor smp",
    "-emu_type opt",
    "-env A b",
    "-env HEART_BEAT_TIMEOUT 5",
    "-env ERL_MAX_PORTS 5000",
    "-setcookie abc",
    "-name a@b",
    "-heart",
    "-x",
    "-x a b",
    "--",
    "true",
    "enable",
    "5",
    "more",
    "# +K true",
    "-kernel a 1",
    "-extra",
];

proptest! {
    #[test]
    fn safe_fix_changes_no_other_flag(
        pieces in vec((select(FIXABLE), select(&[" ", "\n", "\n"][..])), 1..14),
        in_variable: bool,
    ) {
        let text: String = pieces.iter().flat_map(|(piece, blank)| [*piece, *blank]).collect();
        let (format, text) = match in_variable {
            true => (Format::Shell, format!("ERL_FLAGS='{}'\n", text.replace('#', ""))),
            false => (Format::VmArgs, text),
        };
        let before = read(format, &text).expect("flags");
        for finding in lint(&[File { fragments: &before }], &Target::default()) {
            let Some(fix) = finding.fix.as_ref().filter(|fix| fix.safe) else { continue };
            let after = read(format, &apply(&text, &fix.edits)).expect("flags");
            let [before, after] = [&before, &after].map(|fragments| groups(&fragments[0].words));
            prop_assert!(is_one_less(&before, &after), "{} of {text:?}: {before:?} becomes {after:?}", fix.what);
        }
    }

    #[test]
    fn findings_of_any_text_are_consistent(text in "\\PC{0,200}", format in select(&FORMATS[..])) {
        holds(format, &text)?;
    }

    #[test]
    fn findings_of_any_flags_are_consistent(pieces in vec(select(PIECES), 0..40), format in select(&FORMATS[..]), blanks: bool) {
        let text = pieces.join(if blanks { " " } else { "" });
        holds(format, &text)?;
    }

    #[test]
    fn findings_do_not_depend_on_the_order_of_files(one in vec(select(PIECES), 0..12), other in vec(select(PIECES), 0..12)) {
        let (one, other) = (one.join(" "), format!("ERL_FLAGS='{}'", other.join(" ").replace('\'', "")));
        let (Ok(args), Ok(env)) = (read(Format::VmArgs, &one), read(Format::Shell, &other)) else { return Ok(()) };
        let (args, env) = (File { fragments: &args }, File { fragments: &env });
        let mut there: Vec<_> = lint(&[args, env], &Target::default());
        let mut back: Vec<_> = lint(&[env, args], &Target::default());
        for finding in &mut back {
            finding.file = 1 - finding.file;
            for related in &mut finding.related {
                related.0 = 1 - related.0;
            }
        }
        let key = |finding: &beamtune_flags::lint::Finding| format!("{finding:?}");
        there.sort_by_key(key);
        back.sort_by_key(key);
        prop_assert_eq!(there, back);
    }
}

#[test]
fn many_flags_are_linted_in_at_most_linear_time() {
    assert_no_more_than_linear(4000, |lines| {
        let text = "+K true +P 500000 +sbwt off +hmqd off_heap +hmax 100000000 -x y\n".repeat(lines);
        let fragments = read(Format::VmArgs, &text).expect("flags");
        let found = lint(&[File { fragments: &fragments }], &Target::default());
        assert!(found.len() > lines, "{}", found.len());
    });
}
