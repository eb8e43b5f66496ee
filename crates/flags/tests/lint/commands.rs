//! Tests of commands that start a VM: which variables and commands belong to the same node, and texts without findings.

use beamtune_flags::source::Format;

use super::{linted, shown};

fn check(files: &[(Format, &str)], expect: &[&str]) {
    let found: Vec<String> = linted(files).iter().map(shown).collect();
    assert_eq!(found, expect, "{files:?}");
}

fn check_script(text: &str, expect: &[&str]) {
    check(&[(Format::Shell, text)], expect);
}

#[test]
fn variables_that_a_build_step_exports_do_not_reach_the_node() {
    let build = "FROM x\nRUN export ERL_FLAGS='+K true' && mix release\nRUN ERL_FLAGS='+P 100' mix compile\nRUN <<E\nexport ERL_FLAGS=+K\nE\n";
    check(&[(Format::Dockerfile, build)], &[]);
    check(&[(Format::Dockerfile, &format!("{build}ENV ERL_FLAGS=+K\\ true\n"))], &["BF006 warning +K"]);
    check(&[(Format::Dockerfile, &format!("{build}CMD erl +P 1048576\n"))], &[]);
    // If the step contains no other command, the export has no effect and is reported.
    let alone = "FROM x\nRUN export ERL_FLAGS='+K true +P 1' && export ERL_MAX_PORTS=1\nENV ERL_ZFLAGS=\"+P 1048576\"\n";
    check(&[(Format::Dockerfile, alone)], &["BF030 warning ERL_FLAGS", "BF030 warning ERL_MAX_PORTS"]);
    check(&[(Format::Dockerfile, "FROM x\nRUN [\"export ERL_FLAGS=+K\"]\nRUN export ERL_FLAGS='+K\n")], &[]);
}

#[test]
fn command_and_surrounding_variables_belong_to_one_node() {
    check_script("export ERL_FLAGS='+P 1048576'\nexec erl +P 2097152\n", &["BF008 warning +P"]);
    check_script("export ERL_AFLAGS='+P 1048576'\nexec erl +P 2097152\n", &["BF008 warning +P"]);
    check_script("ERL_ZFLAGS='+P 1048576' erl +P 2097152\n", &["BF008 warning +P"]);
    check_script("sh -c 'exec env ERL_ZFLAGS=\"+P 1048576\" erl +P 2097152'\n", &["BF008 warning +P"]);
    check(
        &[(Format::Dockerfile, "FROM x\nENV ERL_FLAGS=\"+P 1048576\"\nCMD [\"erl\", \"+P\", \"2097152\"]\n")],
        &["BF008 warning +P"],
    );
    check(
        &[(
            Format::SystemdUnit,
            "[Service]\nEnvironment=\"ERL_FLAGS=+P 1048576\"\nExecStart=/bin/erl +P 2097152\n",
        )],
        &["BF008 warning +P"],
    );
    let compose = "services:\n  a:\n    environment: {ERL_FLAGS: +P 1048576}\n    command: erl +P 2097152\n  b:\n    command: erl +P 4194304\n";
    check(&[(Format::Compose, compose)], &["BF008 warning +P"]);
}

#[test]
fn several_commands_start_different_nodes() {
    let script = "export ERL_FLAGS='+P 1048576'\ncase $1 in\nstart) erl -name a@h -setcookie x +P 2097152 ;;\nconsole) erl -name b@h -setcookie y +P 4194304 ;;\nesac\n";
    check_script(script, &[]);
    check_script("erl +P 2097152 +P 1048576; erl +Q 65536\n", &["BF008 warning +P"]);
    let unit = "[Service]\nType=oneshot\nExecStart=/bin/erl -setcookie x\nExecStart=/bin/erl -setcookie y\n";
    check(&[(Format::SystemdUnit, unit)], &[]);
    let stages = "FROM x AS a\nCMD erl +P 2097152\nFROM y\nENV ERL_FLAGS=\"+P 1048576\"\nCMD erl -s b\n";
    check(&[(Format::Dockerfile, stages)], &[]);
}

#[test]
fn variable_before_a_command_is_only_for_that_command() {
    check_script("ERL_FLAGS='+P 1048576' rebar3 compile\nexec erl +P 2097152\n", &[]);
    check_script("env ERL_FLAGS='+P 1048576' rebar3 compile\nexec erl +P 2097152\n", &[]);
    check_script("ERL_FLAGS='+P 1048576'\nexec erl +P 2097152\n", &["BF008 warning +P"]);
}

#[test]
fn flags_after_an_args_file_override_it() {
    let args_file = (Format::VmArgs, "+P 2097152\n+Q 65536\n");
    let command = |text: &'static str| [(Format::Shell, text), args_file];
    check(&command("erl -args_file vm.args +P 1048576"), &["BF008 warning +P"]);
    let found = linted(&command("erl +Q 131072 -args_file vm.args +P 1048576"));
    let messages: Vec<(usize, &str)> =
        found.iter().map(|found| (found.file, found.message.as_str())).collect();
    assert_eq!(
        messages,
        [
            (0, "`+Q 131072` is overridden by `+Q 65536` of the args file, in OTP 23, 25, 27 and 29"),
            (
                1,
                "`+P 2097152` is overridden by `+P 1048576` of the rest of the command line, in OTP 23, 25, 27 and 29"
            ),
        ]
    );
    // Another command may name the args file, so nothing is reported.
    check(&command("erl +P 1048576 +Q 131072"), &[]);
}

#[test]
fn usual_commands_have_no_findings() {
    check_script("cd /srv && exec erl -args_file etc/vm.args", &[]);
    check_script("erl -noshell -setcookie \"$COOKIE\" -name a@h +P", &["BF005 error +P"]);
    check_script("erl +P \"$N\" $FLAGS", &[]);
    check_script("iex --name a@h --cookie b -S mix phx.server", &[]);
}

#[test]
fn limits_of_a_container_apply_to_its_command() {
    let pod = "kind: Pod\nspec:\n  containers:\n    - command: [erl, -noinput]\n      args: [COMMAND]\n      resources: {limits: {cpu: 2}}\n";
    let check = |args: &str, expect: &[&str]| {
        check(&[(Format::Kubernetes, &pod.replace("COMMAND", args))], expect);
    };
    check("-s, app", &["BF027 note +sbwt"]);
    check("+sbwt, none", &[]);
    check("+sbwt, none, +S, '4:4'", &["BF027 warning +S"]);
    check("$(FLAGS)", &[]);
}
