//! Tests of rules about the spelling of words: signs, quotes, comments, and words for another program.

use beamtune_flags::source::{Format, Template};

use super::{EEX, OVERLAY, args, check};
use crate::linted;

#[test]
fn bf014_minus_instead_of_plus() {
    args("-sbwt none", &["BF014 warning -sbwt"]);
    args("-P 2000000", &["BF014 warning -P"]);
    check(OVERLAY, "-sbwt ${WAIT}", &["BF014 warning -sbwt"]);
    args("-s app\n-pa ebin\n-mode embedded\n-t x\n-P x\n-n\n-c -d -r\n-K maybe", &[]);
    args("-sbwt", &[]);
    args("-A30\n-a16\n-S4:4", &["BF014 warning -A30", "BF014 warning -a16", "BF014 warning -S4:4"]);
    args("-h2 port 80\n-R16\n-x5\n-A30x\n-sbwtnone\n-s3", &[]);
    let found = linted(&[(Format::VmArgs, "-P5000000")]);
    assert!(found[0].remedy.contains("`+P8388608`") && found[0].fix.is_some(), "{found:?}");
    let found = linted(&[(Format::VmArgs, "-P 2000000")]);
    assert!(found[0].remedy.contains("`+P 2097152`"), "{found:?}");
    let fix = |text: &str| linted(&[(Format::VmArgs, text)])[0].fix.is_some();
    assert!(fix("-sbwt none") && !fix("-setcookie a -sbwt none b"));
}

#[test]
fn bf016_comments_within_words() {
    args("-setcookie pa#ss", &["BF016 warning -setcookie"]);
    args("-setcookie 'pa#ss'\n+Q 65536# ports\n+P 2097152 #x", &[]);
}

#[test]
fn bf017_continued_lines() {
    args("+sbwt none \\\n+zdbbl 8192\n", &["BF017 warning \\"]);
    args("-kernel a 1 \\\n  b 2\n", &["BF017 error \\"]);
    args("-kernel a 1\n  b 2\n", &[]);
    // In a shell, a backslash joins lines.
    check(Format::Shell, "ERL_FLAGS=\"+sbwt none \\\n +zdbbl 8192\"\n", &[]);
}

#[test]
fn bf018_comments_of_other_languages() {
    args("%% a comment\n+P 2097152\n", &[]);
    args("%% +P 2097152\n", &["BF018 warning +P"]);
    args("-noshell\n// quiet\n", &["BF018 warning //"]);
    args("-noshell\n# 100 %\n", &[]);
}

#[test]
fn bf019_several_words_in_one() {
    args("\"+P 2097152\"", &["BF019 note +P 2097152"]);
    args("'-kernel a 1'", &["BF019 warning -kernel a 1"]);
    args("'+sbwt none'", &["BF003 error +sbwt none"]);
    check(
        Format::Compose,
        "services:\n  a:\n    environment:\n      - ERL_FLAGS=\"+S 2:2 +P 2097152\"\n",
        &["BF019 warning +S 2:2 +P 2097152"],
    );
    args("-eval \"a() + b().\"", &[]);
    let rabbit = |value: &str| {
        format!("services:\n  a:\n    environment:\n      RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS: {value}\n")
    };
    check(Format::Compose, &rabbit("'\"+P 2097152 -heart\"'"), &["BF019 note +P"]);
    check(Format::Compose, &rabbit("'-rabbit x \"y\"'"), &[]);
}

#[test]
fn bf020_invisible_characters() {
    args("\u{feff}+sbwt none", &["BF020 warning +sbwt"]);
    args("+P 2097152 \u{a0}-noshell", &["BF020 warning -noshell"]);
    args("\u{2013}kernel a 1", &["BF020 warning -kernel"]);
    args("-setcookie gr\u{fc}n", &[]);
}

#[test]
fn bf021_values_that_are_not_terms() {
    args("-kernel error_logger {file,\"x/y\"}", &["BF021 error -kernel"]);
    args("-kernel a 1 b", &["BF021 warning -kernel"]);
    args("-kernel a/b 1", &["BF021 error -kernel"]);
    args("-stdlib a /x", &["BF021 error -stdlib"]);
    args("-mnesia dir /var/lib/x", &["BF021 warning -mnesia"]);
    args("-mnesia dir '\"/var/lib/x\"'", &[]);
    args("-boot_var A /x -config /x/y -pa /a /b\n-couch_ini /a /b\n-ssl_dist_opt server_certfile /x", &[]);
    args("-hosts web1 10.0.0.2", &[]);
    check(OVERLAY, "-kernel a ${B}\n-kernel ${C}\n-mnesia dir ${D}/x", &[]);
    // When a shell splits a variable, it keeps quotes in the value.
    check(
        Format::Compose,
        "services:\n  a:\n    environment:\n      RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS: -rabbit x \"/y\"\n",
        &[],
    );
}

#[test]
fn bf022_variables_without_effect() {
    args("-env ERL_FLAGS '+P 2097152'", &["BF022 warning -env"]);
    args("-env ERL_OTP27_FLAGS '+P 2097152'", &["BF022 warning -env"]);
    args("-env A=1 b", &["BF022 warning -env"]);
    args("-env A=1\n+sbwt none", &["BF022 warning -env", "BF022 warning +sbwt"]);
    args("-env ERL_CRASH_DUMP /x", &[]);
    args("-env ERTS_MAX_PORTS 4096", &["BF022 warning -env"]);
    args(
        "-env INET_DIST_LISTEN_MIN 9000\n-env RUN_ERL_LOG_MAXSIZE 100000",
        &["BF022 warning -env", "BF022 warning -env"],
    );
    args("-env MY_OWN 1\n-env HEART_COMMAND x", &[]);
}

#[test]
fn bf023_paths_of_args_files() {
    args("-args_file more.args", &["BF023 warning -args_file"]);
    args("-args_file /etc/more.args", &[]);
    check(OVERLAY, "-args_file ${MORE}", &[]);
}

#[test]
fn bf025_variables_that_are_not_expanded() {
    check(EEX, "-name a@${HOST}\n", &["BF024 warning -name", "BF025 warning -name"]);
    check(EEX, "+P ${N}\n", &["BF025 warning +P"]);
    check(EEX, "-setcookie <%= release.profile.cookie %>\n-name a@${HOST}\n", &[]);
    check(EEX, "-pa <%= \"a@#{host}\" %>\n-x <%= \"${y}\" %>", &[]);
    check(Format::VmArgsTemplate(Template::Erb), "-heart <%= @x %>\n+P ${N}\n", &[]);
    let remedy = |text: &str, at: usize| linted(&[(EEX, text)])[at].remedy.clone();
    assert!(remedy("+P ${N}", 0).contains("ERL_FLAGS"));
    assert!(remedy("-name a@${HOST}", 1).contains("RELEASE_NODE"));
    assert!(remedy("-setcookie ${C}", 1).contains("RELEASE_COOKIE"));
    check(OVERLAY, "-name a@${HOST}\n", &[]);
}

#[test]
fn bf032_flags_after_extra() {
    args("-extra +P 2097152", &["BF032 warning +P"]);
    args("-extra --no-halt +", &[]);
    // `+iex` is an argument of Elixir itself.
    args("-user Elixir.IEx.CLI -extra --no-halt +iex", &[]);
}

#[test]
fn bf033_misspelled_flags() {
    args("-evn ERL_FULLSWEEP_AFTER 10", &["BF033 warning -evn"]);
    args("--proto_dist inet6_tcp", &["BF033 warning --proto_dist"]);
    args("-setcokie abc", &["BF033 warning -setcokie"]);
    args("-kernal net_ticktime 30", &["BF033 warning -kernal"]);
    // These words may be flags of applications.
    args(
        "-evn A b\n-kernal x 1\n-nam a\n--dot-iex x\n-hiden\n-code_path_choice strict\n-enable-feature all",
        &[],
    );
    args("-extra --proto_dist x", &[]);
    check(OVERLAY, "-setcooki${E} abc", &[]);
}

#[test]
fn bf034_comments_about_another_flag() {
    let found = &["BF034 warning +MBmmmbc"];
    args("## +MBmmsbc 1024: more single-block carriers of mseg_alloc\n+MBmmmbc 1024\n", found);
    args("+MBmmmbc 1024 # +MBmmsbc 1024 for the large binaries of ours\n", found);
    // No finding: a commented-out flag, a different number, a comment about this flag, and a flag that is given, too.
    args("##+sbwtdcpu none\n+sbwtdio none\n", &[]);
    args("## +MBmmsbc 512: more single-block carriers of mseg_alloc\n+MBmmmbc 1024\n", &[]);
    args("## +MBmmmbc 1024, not +MBmmsbc 1024, for large binaries\n+MBmmmbc 1024\n", &[]);
    args("+MBmmsbc 1024\n## +MBmmsbc 1024: and the same for carriers of many blocks\n+MBmmmbc 1024\n", &[]);
}
