//! Tests each rule on minimal texts with a finding and on similar texts without.

mod alone;
mod deployment;
mod together;
mod words;

use beamtune_flags::source::{Format, Template};

use super::{linted, shown};

fn check_files(files: &[(Format, &str)], expect: &[&str]) {
    let found: Vec<String> = linted(files).iter().map(shown).collect();
    assert_eq!(found, expect, "{files:?}");
}

fn check(format: Format, text: &str, expect: &[&str]) {
    check_files(&[(format, text)], expect);
}

fn args(text: &str, expect: &[&str]) {
    check(Format::VmArgs, text, expect);
}

const EEX: Format = Format::VmArgsTemplate(Template::Eex);
const OVERLAY: Format = Format::VmArgsTemplate(Template::Overlay);

#[test]
fn findings_do_not_contain_cookies() {
    for text in [
        "'-setcookie SECRET'",
        "-setcookie my#SECRET",
        "-setcookie a -setcookie SECRET",
        "-env RELEASE_COOKIE=SECRET +P",
        "% -setcookie SECRET",
        "+setcookie SECRET",
        "\u{a0}-setcookie SECRET",
        "+sbwt -setcookie SECRET",
        "-extra -setcookie SECRET +P 5000",
    ] {
        let found = linted(&[(Format::VmArgs, text)]);
        assert!(!found.is_empty(), "{text}");
        for finding in found {
            let fix = finding.fix.map(|fix| fix.what).unwrap_or_default();
            let texts = [finding.message, finding.reason, finding.remedy, finding.flag, fix];
            assert!(!texts.join("\n").contains("SECRET"), "{text}: {texts:?}");
        }
    }
}

#[test]
fn same_rules_apply_to_a_running_node() {
    use beamtune_flags::lint::{File, lint};
    let args: Vec<String> = "/usr/bin/beam.smp -sbwt none -K true -future 1 -sbwt short -- -root /x -- -home /y -- -heart -sbwt x"
        .split(' ')
        .map(str::to_owned)
        .collect();
    let fragments = [beamtune_flags::source::running_node(&args)];
    let found = lint(&[File { fragments: &fragments }], &super::target(&[27]));
    let shown: Vec<String> =
        found.iter().map(|finding| format!("{} {}", finding.code, finding.flag)).collect();
    assert_eq!(shown, ["BF008 -sbwt", "BF006 -K"]);
    assert!(found.iter().all(|finding| finding.fix.is_none()));
}

#[test]
fn only_requested_releases_are_checked() {
    use beamtune_flags::lint::{File, lint};
    let fragments = super::fragments(Format::VmArgs, "+zhft infinity\n+hmaxib true\n");
    let of = |releases: &[u32]| lint(&[File { fragments: &fragments }], &super::target(releases)).len();
    assert_eq!(of(&[27, 28, 29]), 0);
    assert_eq!(of(&[26]), 1);
    assert_eq!(of(&[25]), 2);
    assert_eq!(of(&[]), 0);
}
