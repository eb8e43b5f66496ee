//! What holds for any text, of any format.

use beamtune_flags::lint::{File, Target, lint};
use beamtune_flags::source::{Format, apply, read};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use crate::formats::FORMATS;

/// What the generated texts are made of.
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

proptest! {
    #[test]
    fn no_text_is_too_odd(text in "\\PC{0,200}", format in select(&FORMATS[..])) {
        holds(format, &text)?;
    }

    #[test]
    fn no_flags_are_too_odd(pieces in vec(select(PIECES), 0..40), format in select(&FORMATS[..]), blanks: bool) {
        let text = pieces.join(if blanks { " " } else { "" });
        holds(format, &text)?;
    }

    #[test]
    fn the_order_of_files_does_not_matter(one in vec(select(PIECES), 0..12), other in vec(select(PIECES), 0..12)) {
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
fn many_flags_are_linted_in_no_more_than_linear_time() {
    let text = "+K true +P 500000 +sbwt off +hmqd off_heap +hmax 100000000 -x y\n".repeat(4000);
    let fragments = read(Format::VmArgs, &text).expect("flags");
    let begin = std::time::Instant::now();
    let found = lint(&[File { fragments: &fragments }], &Target::default());
    assert!(found.len() > 4000, "{}", found.len());
    // A quarter of a megabyte; with the square of it this would take hours.
    assert!(begin.elapsed().as_secs() < 60, "{:?}", begin.elapsed());
}
