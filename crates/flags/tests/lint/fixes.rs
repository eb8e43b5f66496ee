//! Tests the effect of `--fix` on the files of the corpus.

use beamtune_flags::lint::{File, Finding, lint};
use beamtune_flags::source::{Edit, Format, Template, apply, read};

use super::corpus::samples;
use super::{TESTED_RELEASES, fragments, target};

/// Maximum number of rounds of fixing. Fixes with adjacent edits need several rounds.
const MAX_ROUNDS: usize = 20;

fn found(format: Format, text: &str) -> Vec<Finding> {
    let fragments = read(format, text).unwrap_or_else(|error| panic!("{error}:\n{text}"));
    lint(&[File { fragments: &fragments }], &target(TESTED_RELEASES))
}

/// Applies all safe fixes, and returns the new text and the number of edits.
fn fixed(format: Format, text: &str) -> (String, usize) {
    let mut text = text.to_owned();
    let mut made = 0;
    for _ in 0..MAX_ROUNDS {
        let edits: Vec<Edit> = found(format, &text)
            .into_iter()
            .filter_map(|finding| finding.fix.filter(|fix| fix.safe))
            .flat_map(|fix| fix.edits)
            .collect();
        if edits.is_empty() {
            return (text, made);
        }
        made += edits.len();
        text = apply(&text, &edits);
    }
    panic!("fixes do not converge:\n{text}");
}

#[test]
fn safe_fixes_are_applied_completely_and_cause_no_new_finding() {
    let mut made = 0;
    for sample in samples() {
        let before = found(sample.format, &sample.text);
        let (text, edits) = fixed(sample.format, &sample.text);
        made += edits;
        let after = found(sample.format, &text);
        assert!(
            after.iter().all(|finding| finding.fix.as_ref().is_none_or(|fix| !fix.safe)),
            "{}",
            sample.name
        );
        for finding in &after {
            let known = before.iter().any(|old| {
                old.code == finding.code && old.flag == finding.flag && old.releases == finding.releases
            });
            assert!(known, "{}: {} {} is new:\n{text}", sample.name, finding.code, finding.message);
        }
        if edits == 0 {
            assert_eq!(text, sample.text, "{}", sample.name);
        }
        // All comments are kept, in order.
        let comments = |text: &str| -> Vec<String> {
            text.lines().filter(|line| line.trim_start().starts_with('#')).map(str::to_owned).collect()
        };
        assert_eq!(comments(&text), comments(&sample.text), "{}", sample.name);
    }
    assert!(made > 10, "{made} edits");
}

#[test]
fn each_fix_applied_alone_resolves_its_finding() {
    for sample in samples() {
        let before = found(sample.format, &sample.text);
        for finding in &before {
            let Some(fix) = &finding.fix else { continue };
            let text = apply(&sample.text, &fix.edits);
            assert_ne!(text, sample.text, "{}: {}", sample.name, fix.what);
            let same = |found: &[Finding]| {
                found
                    .iter()
                    .filter(|other| other.code == finding.code && other.message == finding.message)
                    .count()
            };
            let after = found(sample.format, &text);
            assert!(same(&after) < same(&before), "{}: {} leaves {}", sample.name, fix.what, finding.message);
        }
    }
}

#[test]
fn fixes_keep_the_surrounding_bytes() {
    let check = |format: Format, text: &str, expect: &str| {
        assert_eq!(fixed(format, text).0, expect, "{text:?}");
    };
    check(
        Format::VmArgs,
        "# a\n+K true\n# b\n+P 500000   # c\n+sbwt none\n",
        "# a\n# b\n+P 524288   # c\n+sbwt none\n",
    );
    check(Format::VmArgs, "+P500000\r\n+Q 65536\r\n", "+P524288\r\n+Q 65536\r\n");
    check(Format::VmArgs, "+sbwt none\n+sbwt none +R 23\n", "+sbwt none\n");
    check(Format::EnvFile, "A=1\nERL_FLAGS=\"+K true +P 2048\" # x\n", "A=1\nERL_FLAGS=\"+P 2048\" # x\n");
    check(
        Format::Kubernetes,
        "- name: ERL_FLAGS\n  value: \"+K true +P 2000\"\n",
        "- name: ERL_FLAGS\n  value: \"+P 2048\"\n",
    );
    // No fix is safe, because the first flag disables +scl, and the second one does not enable it again.
    check(Format::VmArgs, "+sub true\n+sub false\n", "+sub true\n+sub false\n");
    // No fix is safe, because ERL_FLAGS may be used without ERL_ZFLAGS.
    check(
        Format::Shell,
        "ERL_FLAGS='+P 2048'\nERL_ZFLAGS='+P 4096'\n",
        "ERL_FLAGS='+P 2048'\nERL_ZFLAGS='+P 4096'\n",
    );
    check(Format::VmArgs, "-sbwt none\n+zdbbl 8k\n", "-sbwt none\n+zdbbl 8k\n");
    // A leftover word would become a second word of the name, and the node would start without a name.
    check(Format::VmArgs, "-name a@b\n-smp true\n+P 2048\n", "-name a@b\n+P 2048\n");
    check(Format::VmArgs, "-name a@b\n-smp enable x y\n", "-name a@b\n");
    check(Format::VmArgs, "-pa /x\n-smp enable\n+c y\n", "-pa /x\n-smp enable\n+c y\n");
    check(Format::VmArgs, "-pa /x\n-smp enable\n+P 2048\n-heart\n", "-pa /x\n+P 2048\n-heart\n");
    let eex = Format::VmArgsTemplate(Template::Eex);
    check(eex, "-name a@b\n-smp <%= x %>\n", "-name a@b\n-smp <%= x %>\n");
    check(eex, "-name a@b\n-smp auto <%= x %>\n", "-name a@b\n-smp auto <%= x %>\n");
    // Further words of a flag are removed with the flag, so that they do not become values of another flag.
    check(Format::VmArgs, "-setcookie abc\n-smp true\n+P 2048\n", "-setcookie abc\n+P 2048\n");
    check(Format::VmArgs, "-mnesia dir x -smp enable +K true more -a b\n", "-mnesia dir x -a b\n");
    check(Format::VmArgs, "-x a -smp -- y\n", "-x a -- y\n");
    // A placeholder of another tool may contain flags.
    check(Format::Shell, "ERL_OPTS=' -smp auto @OPTS@ '\n", "ERL_OPTS=' -smp auto @OPTS@ '\n");
    check(Format::VmArgs, "-smp __OPTS__\n-a b\n", "-smp __OPTS__\n-a b\n");
}

#[test]
fn file_without_flags_has_no_findings() {
    let none = fragments(Format::VmArgs, "# nothing\n");
    assert!(lint(&[File { fragments: &none }, File { fragments: &[] }], &target(TESTED_RELEASES)).is_empty());
    assert!(lint(&[], &target(TESTED_RELEASES)).is_empty());
}

#[test]
fn all_flags_of_a_long_file_are_fixed() {
    let text = "+K true\n-x y\n".repeat(5_000);
    let fixes = found(Format::VmArgs, &text).iter().filter(|finding| finding.fix.is_some()).count();
    assert_eq!(fixes, 5_000);
    let (text, made) = fixed(Format::VmArgs, &text);
    assert_eq!((text, made), ("-x y\n".repeat(5_000), 5_000));
}
