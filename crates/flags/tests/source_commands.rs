//! Tests the readers on commands that start a VM.

#![allow(clippy::expect_used, clippy::panic, reason = "tests")]

use beamtune_flags::source::{
    Change, CommandWords, Format, Fragment, Order, Place, SourceError, apply, read,
};

/// Formats the fragments as lines `NAME: word|word`, for commands with the position in the order of effect (`erl 50`), and with `~` before
/// dynamic words.
fn shown(format: Format, text: &str) -> Vec<String> {
    let fragments = read(format, text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    fragments.iter().map(show).collect()
}

fn show(fragment: &Fragment) -> String {
    let place = match &fragment.place {
        Place::CommandLine { words, order: Order::CommandLine(order) } => {
            let what = match words {
                CommandWords::Erl => "erl",
                CommandWords::Switches => "--erl",
                CommandWords::Options => "options",
            };
            format!("{what} {order}")
        }
        Place::Variable { name, .. } => name.clone(),
        other => panic!("{other:?}"),
    };
    let words = fragment.words.iter().map(|word| {
        assert!(!word.conditional, "{word:?}");
        format!("{}{}", if word.dynamic { "~" } else { "" }, word.text)
    });
    format!("{place}: {}", words.collect::<Vec<_>>().join("|"))
}

fn check(format: Format, text: &str, expect: &[&str]) {
    assert_eq!(shown(format, text), expect, "{text}");
}

#[test]
fn arguments_of_erl_are_found_after_wrapper_programs() {
    let check = |text: &str, expect: &str| check(Format::Shell, text, &[expect]);
    check("erl +P 5000 -sname 'a b' \"c\"\\ d", "erl 50: +P|5000|-sname|a b|c d");
    check("exec /usr/lib/erlang/bin/erl \\\n  +P 5000 \\\n  +Q 1 # +A 3\n", "erl 50: +P|5000|+Q|1");
    check("exec \"$BINDIR/erlexec\" -boot \"$B\" $OPTS", "erl 50: -boot|~$B|~$OPTS");
    check("HOME=/tmp LANG=C werl -x", "erl 50: -x");
    check("sudo -u app -E env -i A=1 B=2 nice -n 5 erl -x", "erl 50: -x");
    check("nohup nice -19 setsid erl -x > log 2>&1 +P 1 &", "erl 50: -x|+P|1");
    check("taskset -c 0,1 numactl -C0 timeout -k 5 60 erl -x", "erl 50: -x");
    check("su -s /bin/sh app -c \"exec erl +P '5 0'\"", "erl 50: +P|5 0");
    check("bash -euo pipefail -c 'cd /x && erl -x \"a b\"' name", "erl 50: -x|a b");
    check("run_erl -daemon /tmp/ /var/log \"exec erl +P 5\"", "erl 50: +P|5");
    check("gosu app tini -s -- erl -x", "erl 50: -x");
    check(
        "start() {\n  if cd /srv; then\n    erl -x || exit\n  fi\n}\ncase $1 in\nerl) start ;;\nesac\n",
        "erl 50: -x",
    );
    check("(cd /srv && erl -x)", "erl 50: -x");
    check(
        "erl -eval 'a \"b\" $c' -x \"\\$d \\e\" $'f' 2>/dev/null",
        "erl 50: -eval|a \"b\" $c|-x|$d \\e|~$'f'",
    );
    check("erl -pa ebin deps/*/ebin -x a=b ~/c", "erl 50: -pa|ebin|deps/*/ebin|-x|a=b|~/c");
    check("erl -x <<E\n+P 1\nE\n", "erl 50: -x");
}

#[test]
fn variables_of_a_command_are_read_with_its_words() {
    check(
        Format::Shell,
        "ERL_FLAGS='+P 1' erl +Q 2\nexec env -i ERL_ZFLAGS=\"+A 3\" erl -x\nsh -c 'ERL_AFLAGS=+B erl -y'\n",
        &[
            "ERL_FLAGS: +P|1",
            "erl 50: +Q|2",
            "ERL_ZFLAGS: +A|3",
            "erl 50: -x",
            "ERL_AFLAGS: +B",
            "erl 50: -y",
        ],
    );
}

#[test]
fn commands_that_only_mention_erl_are_skipped() {
    for text in [
        "echo erl +P 1",
        "apt-get install erl -y",
        "which erl",
        "# erl +P 1",
        "cat <<E\nerl +P 1\nE",
        "$ERL +P 1",
        "erl=+P",
        "alias erl='erl +P 1'",
        "x=$(erl +P 1)",
        "x=`erl +P 1`",
        "erlc +P 1",
        "./erl.sh +P 1",
        "\"$X\"erl +P 1",
        "$PREFIX erl +P 1",
        "ssh host erl +P 1",
        "docker run image erl +P 1",
        "for x in erl +P; do :; done",
        "case x in erl) ;; esac",
        "case x in\n'erl' +P) ;;\nesac",
        "erl() { :; }",
        "erl",
        "sh erl +P 1",
        "exec",
        "sudo -u",
        "sh -c",
        "mix run --erl '+P 1'",
        "rebar3 shell --sname x",
    ] {
        check(Format::Shell, text, &[]);
    }
}

#[test]
fn helper_vms_are_skipped() {
    for command in [
        "erl -version",
        "erl -noshell +V",
        "erl -noshell -eval 'io:format(\"~s\", [code:root_dir()]), halt().'",
        "erl -noshell -eval \"init:stop()\"",
        "erl +P 1 -noshell -s make all -s init stop",
        "erl -run eqc start -run init stop",
        "erl -s x -s erlang halt",
        "erl -make",
        "erl -name a -remsh b",
        "iex --sname a --cookie c --remsh b",
        "elixir --sname a --rpc-eval b 'c'",
        "elixir --erl '+P 1' -e 'IO.puts(1)'",
    ] {
        check(Format::Shell, command, &[]);
    }
    check(Format::Shell, "erl -s init stopper -eval 'x:run()'", &["erl 50: -s|init|stopper|-eval|x:run()"]);
    check(Format::Shell, "erl -x -extra -s init stop", &["erl 50: -x|-extra|-s|init|stop"]);
    check(Format::Shell, "elixir --erl +K -e x --no-halt", &["--erl 20: +K"]);
    check(Format::Shell, "iex --erl +K -e x", &["--erl 20: +K"]);
}

#[test]
fn words_after_an_args_file_override_it() {
    check(
        Format::Shell,
        "erl +P 1 -args_file vm.args +P 2 -extra -args_file x",
        &["erl 45: +P|1|-args_file|vm.args", "erl 55: +P|2|-extra|-args_file|x"],
    );
    check(Format::Shell, "erl -x -extra -args_file y", &["erl 50: -x|-extra|-args_file|y"]);
    let order = |text: &str| read(Format::Shell, text).expect(text)[0].place.order().expect("words");
    let rising = [
        order("ERL_AFLAGS=x"),
        order("ELIXIR_ERL_OPTIONS=x"),
        order("elixir --erl x"),
        order("erl -args_file x"),
        Order::ARGS_FILE,
        order("ERL_FLAGS=x"),
    ];
    assert!(rising.windows(2).all(|pair| pair[0] < pair[1]), "{rising:?}");
    assert_eq!(order("erl -x"), Order::ARGS_FILE, "it is uncertain which one takes effect");
}

#[test]
fn known_options_of_elixir_and_iex_are_converted_to_flags() {
    check(
        Format::Shell,
        "exec elixir --erl \"+S ${N}:2 +Q 1\" --name \"a@$(hostname)\" --cookie 'c' --hidden --erl '-x \"a b\"' -pa ebin --no-halt -S mix run --erl '+P 1'",
        &[
            "--erl 20: +S|~${N}:2|+Q|1",
            "options 50: -name|~a@$(hostname)|-setcookie|c|-hidden",
            "--erl 21: -x|\"a|b\"",
        ],
    );
    check(
        Format::Shell,
        "iex --sname a --vm-args vm.args --boot x --boot-var LIB /lib --erl-config sys --werl --dot-iex '' --erl +K",
        &[
            "options 45: -sname|a|-args_file|vm.args",
            "options 55: -boot|x|-boot_var|LIB|/lib|-config|sys",
            "--erl 20: +K",
        ],
    );
    for text in [
        "elixir -S mix run --erl '+P 1'",
        "elixir a.exs --erl '+P 1'",
        "iex -S mix --name a",
        "elixir $X --erl +K",
    ] {
        check(Format::Shell, text, &[]);
    }
    // The value of a flag is unknown if it is in the next text.
    check(
        Format::Shell,
        "elixir --erl '+A 1 +P' --erl '5 +Q' --erl +K",
        &["--erl 20: +A|1|~+P", "--erl 21: 5|+Q", "--erl 22: +K"],
    );
    check(Format::Shell, "elixir --name", &["options 50: -name"]);
    check(Format::Shell, "elixir --erl", &[]);
}

#[test]
fn last_entry_point_and_command_of_a_dockerfile_take_effect() {
    let check = |text: &str, expect: &[&str]| check(Format::Dockerfile, text, expect);
    check(
        "FROM x\nCMD [\"erl\", \"+P\", \"5\\u0030\", \"a \\\"b\\\"\", \"$x\"]\n",
        &["erl 50: +P|50|a \"b\"|$x"],
    );
    check("FROM x\nCMD erl +P 5 \\\n  # why\n  -x \"$HOME\" 'a b'\n", &["erl 50: +P|5|-x|~$HOME|a b"]);
    check("FROM x\nENTRYPOINT [\"tini\", \"--\"]\nCMD [\"erl\", \"-x\"]\n", &["erl 50: -x"]);
    check("FROM x\nENTRYPOINT [\"tini\", \"--\"]\nCMD erl -x\n", &["erl 50: -x"]);
    check("FROM x\nENTRYPOINT [\"/start.sh\"]\nCMD [\"erl\", \"-x\"]\n", &["erl 50: -x"]);
    check("FROM x\nCMD [\"-y\"]\nENTRYPOINT [\"erl\", \"-x\"]\n", &["erl 50: -y", "erl 50: -x"]);
    check(
        "FROM x\nENTRYPOINT [\"erl\", \"-args_file\", \"a\", \"-x\"]\nCMD [\"-y\"]\n",
        &["erl 45: -args_file|a", "erl 55: -x", "erl 55: -y"],
    );
    check("FROM x\nENTRYPOINT [\"erl\", \"+P\"]\nCMD [\"5\"]\n", &["erl 50: ~+P", "erl 50: 5"]);
    check("FROM x\nENTRYPOINT exec erl -x\nCMD [\"-y\"]\n", &["erl 50: -x"]);
    check("FROM x\nCMD [\"sh\", \"-c\", \"exec erl +P $N -x 'a'\"]\n", &["erl 50: +P|~$N|-x|a"]);
    check("FROM x\nCMD erl -x\nCMD [\"/other\"]\n", &[]);
    check("FROM x AS a\nCMD erl -x\nFROM y\nCMD erl -y\n", &["erl 50: -x", "erl 50: -y"]);
    check("FROM x\nRUN erl -x\nHEALTHCHECK CMD erl -y\n", &[]);
    check("FROM x\nSHELL [\"powershell\", \"-c\"]\nCMD erl -x\n", &[]);
    check("FROM x\nSHELL [\"/bin/bash\", \"-lc\"]\nCMD erl -x\n", &["erl 50: -x"]);
    // The command is not a JSON list, so a shell runs it.
    check("FROM x\nCMD ['erl', '-x']\n", &[]);
    check("FROM x\nCMD [\"erl\", \"-x\",]\n", &[]);
    check("FROM x\nCMD [\"erl\", \"-x\", 1]\n", &[]);
    check("FROM x\nCMD [\"erl\", \"-x\"] # why\n", &["erl 50: -x"]);
    check("FROM x\nCMD [ \\\n  \"erl\", \\\n  \"-x\" ]\n", &["erl 50: -x"]);
    check("FROM x\nENTRYPOINT []\nCMD []\n", &[]);
    check("FROM x\nCMD\n", &[]);
    check(
        "FROM x\nENV ERL_FLAGS=+A\\ 3\nCMD ERL_ZFLAGS=\"+P 1\" elixir --erl \"+Q 2\" -S mix\n",
        &["ERL_FLAGS: +A|3", "ERL_ZFLAGS: +P|1", "--erl 20: +Q|2"],
    );
}

#[test]
fn commands_of_units_are_parsed_with_the_syntax_of_systemd() {
    let check = |line: &str, expect: &[&str]| {
        check(Format::SystemdUnit, &format!("[Service]\n{line}\nExecStop=/bin/erl -z\n"), expect);
    };
    check(
        "ExecStart=/usr/bin/erl +P 5 -x 'a b' c\\x20d \"e\\\"f\" 100%% %i $$g",
        &["erl 50: +P|5|-x|a b|c d|e\"f|100%|~%i|$g"],
    );
    check("ExecStart=-/usr/bin/erl -x \\\n  -y ${A}b $C d$E f${G}", &["erl 50: -x|-y|~${A}b|~$C|d$E|~f${G}"]);
    check("ExecStart=@/usr/bin/erl beam -x", &["erl 50: -x"]);
    check("ExecStart=:/usr/bin/erl $$a ${B}", &["erl 50: $$a|${B}"]);
    check("ExecStart=+!/usr/bin/env -i A=1 erl -x", &["erl 50: -x"]);
    check("ExecStart=/bin/sh -c 'exec erl +P $$N -x \"a b\" ${M}'", &["erl 50: +P|~$N|-x|a b|~${M}"]);
    check("ExecStart=/bin/erl -x ; /bin/erl -y \\; z;", &["erl 50: -x", "erl 50: -y|;|z;"]);
    check("ExecStart=/usr/bin/env \"ERL_FLAGS=+P 1\" erl -x", &["ERL_FLAGS: +P|1", "erl 50: -x"]);
    check("ExecStart=\nExecStart=elixir --erl \"+P 5 +A 1\" -S mix run", &["--erl 20: +P|5|+A|1"]);
    check("Exec=erl -x", &["erl 50: -x"]);
    check("ExecStartPre=/bin/erl -x\nExecReload=/bin/erl -y\nExecStart=/opt/app/bin/app start", &[]);
    check("ExecStart=/opt/app 'unclosed", &[]);
    check("ExecStart=", &[]);
    let error = read(Format::SystemdUnit, "ExecStart=/bin/erl +P '5").expect_err("an unclosed quote");
    assert!(error.to_string().starts_with("1:23: this ' is never closed, so systemd"), "{error}");
}

#[test]
fn commands_of_compose_are_lists_or_strings() {
    let check = |text: &str, expect: &[&str]| {
        let file = format!("services:\n  a:\n{text}\n  b:\n    image: erl\n");
        check(Format::Compose, &file, expect);
    };
    check("    command: erl +P 5 -x \"a b\" $$c ${D} '$E'", &["erl 50: +P|5|-x|a b|~$c|~${D}|~$E"]);
    check("    command: >-\n      erl +P 5\n      -x", &["erl 50: +P|5|-x"]);
    check("    command: |\n      erl +P 5\n      -x", &["erl 50: +P|5|-x"]);
    check("    command: erl -x && erl -y", &["erl 50: -x"]);
    check("    command: [erl, +P, '5', \"a b\", $$c, $D]", &["erl 50: +P|5|a b|$c|~$D"]);
    check("    command:\n      - erl\n      - +P\n      - 5\n", &["erl 50: +P|5"]);
    check("    command: [env, \"ERL_FLAGS=+P $N\", erl, -x]", &["ERL_FLAGS: +P|~$N", "erl 50: -x"]);
    check("    command: [-y]\n    entrypoint: [erl, -x]", &["erl 50: -y", "erl 50: -x"]);
    check("    entrypoint: tini --\n    command: erl -x", &["erl 50: -x"]);
    check("    command: sh -c \"exec erl +P 5 $$N\"", &["erl 50: +P|5|~$N"]);
    check("    command: [bash, -c, 'cd /x; exec elixir --erl \"+P 5\" x.exs']", &["--erl 20: +P|5"]);
    check("    command: [erl, *x]", &[]);
    check("    command: [erl, [-x]]", &[]);
    check("    command: {erl: -x}", &[]);
    check("    healthcheck:\n      test: [CMD, erl, -x]", &[]);
    check("    command:", &[]);
    check("    command: ~\n    entrypoint: ''", &[]);
    check("    command: 'erl \"-x'", &[]);
}

#[test]
fn commands_of_kubernetes_are_found_with_their_arguments() {
    let check = |container: &str, expect: &[&str]| {
        let file = format!("kind: Pod\nspec:\n  containers:\n    - name: a\n{container}\n");
        check(Format::Kubernetes, &file, expect);
    };
    check(
        "      command: [erl, -x]\n      args:\n        - +P\n        - \"5\"",
        &["erl 50: -x", "erl 50: +P|5"],
    );
    check("      args: [\"+P\", \"$(N)\", \"$$(M)\"]\n      command: [\"erl\"]", &["erl 50: +P|~$(N)|$(M)"]);
    check("      command: [sh, -c]\n      args: [\"exec erl +P $N -x 'a b'\"]", &["erl 50: +P|~$N|-x|a b"]);
    check(
        "      command:\n        - /bin/sh\n        - -c\n        - |\n          cd /srv\n          exec erl +P 5 \\\n            -x\n",
        &["erl 50: +P|5|-x"],
    );
    check("      args: [erl, -x]", &["erl 50: -x"]);
    check("      livenessProbe:\n        exec:\n          command: [erl, -x]", &[]);
    check("      lifecycle: {preStop: {exec: {command: [erl, -x]}}}", &[]);
    check("      command: erl -x {{ .Values.y }}", &["erl 50: -x|~{{ .Values.y }}"]);
    check(
        "      command: [erl]\n      args: {{ toYaml .Values.args | nindent 8 }}",
        &["erl 50: ~{{ toYaml .Values.args | nindent 8 }}"],
    );
    // A command of several lines is the script of a pipeline.
    check("      command: |\n        erl -x\n        rebar3 ct", &[]);
    check("      entrypoint: [erl, -x]", &[]);
}

#[test]
fn commands_before_an_error_are_found_if_the_script_sets_no_variables() {
    check(Format::Shell, "erl -x\necho \"it's\nerl -y\n", &["erl 50: -x"]);
    let text = "ERL_FLAGS=1\nerl -x\necho \"it's\n";
    assert!(matches!(read(Format::Shell, text), Err(SourceError::UnclosedQuote { .. })));
}

#[test]
fn words_have_their_byte_range_in_the_file() {
    let check = |format: Format, text: &str, expect: &[&str]| {
        let fragments = read(format, text).expect(text);
        let words = fragments.iter().flat_map(|fragment| &fragment.words);
        assert_eq!(words.map(|word| &text[word.span.clone()]).collect::<Vec<_>>(), expect, "{text}");
    };
    check(Format::Shell, "erl +P\\\n1 'a b'\"c\" \\\n -é", &["+P\\\n1", "'a b'\"c\"", "-é"]);
    check(Format::Shell, "sh -c 'erl \"a b\" \"'$x'\"'", &["\"a b\"", "\"'$x'\""]);
    check(Format::Shell, "elixir --name a --erl \"+P '5'\"", &["--name", "a", "+P", "'5'"]);
    check(Format::Dockerfile, "CMD [\"erl\", \"a \\\"b\"]", &["\"a \\\"b\""]);
    check(Format::Dockerfile, "CMD erl +P\\\n1 'b'", &["+P\\\n1", "'b'"]);
    check(Format::SystemdUnit, "ExecStart=erl \"a\\x20b\" \\\n c", &["\"a\\x20b\"", "c"]);
    check(Format::Compose, "services: {a: {command: [erl, 'it''s', -x]}}", &["'it''s'", "-x"]);
    check(Format::Compose, "services:\n  a:\n    command: \"erl 'a\\tb' -x\"", &["'a\\tb'", "-x"]);
    check(Format::Kubernetes, "command: [sh, -c, \"erl \\\"a b\\\" -x\"]", &["\\\"a b\\\"", "-x"]);
}

/// Applies one change to the last fragment, and returns the new file.
fn changed(format: Format, text: &str, change: Change) -> Result<String, SourceError> {
    let fragments = read(format, text).expect(text);
    let fragment = fragments.last().expect("a command");
    Ok(apply(text, &fragment.change(&[change])?))
}

#[test]
fn words_are_replaced_in_the_style_of_the_command() {
    let check = |format: Format, text: &str, word: usize, new: &str, expect: &str| {
        let result = changed(format, text, Change::Replace { word, text: new.to_owned() });
        assert_eq!(result.unwrap_or_else(|error| panic!("{error}\n{text}")), expect);
    };
    check(Format::Shell, "exec erl '+P' 1 \"$@\"", 1, "5000", "exec erl '+P' 5000 \"$@\"");
    check(Format::Shell, "erl +P 1", 1, "a $b", "erl +P \"a \\$b\"");
    check(Format::Shell, "erl -x a", 1, "", "erl -x \"\"");
    check(Format::Shell, "sh -c 'erl +P 1'", 1, "it's", "sh -c \"erl +P \\\"it's\\\"\"");
    check(Format::Shell, "elixir --erl \"+P 1\" x", 1, "5", "elixir --erl \"+P 5\" x");
    check(Format::Dockerfile, "CMD [\"erl\", \"-x\"]", 0, "a \"b\"", "CMD [\"erl\", \"a \\\"b\\\"\"]");
    check(Format::Dockerfile, "CMD erl +P \\\n  1 -x", 1, "a b", "CMD erl +P \\\n  \"a b\" -x");
    check(Format::SystemdUnit, "ExecStart=erl -x\n", 0, "5% $a", "ExecStart=erl \"5%% $$a\"\n");
    check(Format::SystemdUnit, "ExecStart=erl \\\n -x\n", 0, "#", "ExecStart=erl \\\n \"#\"\n");
    check(Format::SystemdUnit, "ExecStart=erl -x ; b\n", 0, ";", "ExecStart=erl \";\" ; b\n");
    check(
        Format::Compose,
        "services: {a: {command: [erl, +P, 1]}}",
        1,
        "$2",
        "services: {a: {command: [erl, +P, \"$$2\"]}}",
    );
    check(
        Format::Compose,
        "services:\n  a:\n    command: erl -x 1 # why\n",
        1,
        "2",
        "services:\n  a:\n    command: erl -x 2 # why\n",
    );
    check(
        Format::Kubernetes,
        "args:\n  - erl\n  - -x # why\n  - '1'\n",
        0,
        "a: b",
        "args:\n  - erl\n  - \"a: b\" # why\n  - '1'\n",
    );
}

#[test]
fn words_are_removed_from_a_command() {
    let check = |format: Format, text: &str, words: std::ops::Range<usize>, expect: &str| {
        let result = changed(format, text, Change::Remove { words });
        assert_eq!(result.unwrap_or_else(|error| panic!("{error}\n{text}")), expect);
    };
    check(Format::Shell, "erl +P 1 +Q 2", 0..2, "erl +Q 2");
    check(Format::Shell, "erl \\\n  +P 1 \\\n  +Q 2 \\\n  -x\n", 0..2, "erl \\\n  +Q 2 \\\n  -x\n");
    check(Format::Shell, "erl \\\n  +P 1 \\\n  +Q 2\nx\n", 2..4, "erl \\\n  +P 1\nx\n");
    check(Format::Shell, "erl -x +P 1 >log +Q 2", 3..5, "erl -x +P 1 >log");
    check(Format::Dockerfile, "CMD [\"erl\", \"-x\", \"-y\"]", 0..1, "CMD [\"erl\", \"-y\"]");
    check(
        Format::Dockerfile,
        "ENTRYPOINT [\"erl\"]\nCMD [\"-x\", \"-y\"]",
        0..1,
        "ENTRYPOINT [\"erl\"]\nCMD [\"-y\"]",
    );
    check(Format::SystemdUnit, "ExecStart=erl -x \\\n  -y \\\n  -z\n", 1..2, "ExecStart=erl -x \\\n  -z\n");
    check(
        Format::Compose,
        "services: {a: {command: [erl, -x,\n  -y]}}",
        1..2,
        "services: {a: {command: [erl, -x]}}",
    );
    check(Format::Kubernetes, "args:\n  - erl\n  - -x # why\n  - -y\n", 0..1, "args:\n  - erl\n  - -y\n");
    check(Format::Kubernetes, "args:\n  - erl\n  - -x\n  - -y", 1..2, "args:\n  - erl\n  - -x\n");
}

#[test]
fn words_are_added_to_a_command_where_they_take_effect() {
    let append = |format: Format, text: &str| {
        let words = ["+sbwt", "none"].map(str::to_owned).to_vec();
        changed(format, text, Change::Append { words, comment: Vec::new() })
    };
    let check = |format: Format, text: &str, expect: &str| {
        assert_eq!(append(format, text).unwrap_or_else(|error| panic!("{error}\n{text}")), expect);
    };
    check(Format::Shell, "exec erl -x \\\n  -y > log", "exec erl -x \\\n  -y +sbwt none > log");
    check(Format::Shell, "erl -x -extra -y", "erl -x +sbwt none -extra -y");
    check(Format::Shell, "erl -x -args_file y", "erl -x +sbwt none -args_file y");
    check(Format::Shell, "erl -args_file y -x", "erl -args_file y -x +sbwt none");
    check(Format::Shell, "iex --erl '-x'", "iex --erl '-x +sbwt none'");
    check(Format::Dockerfile, "CMD [\"erl\", \"-x\"]", "CMD [\"erl\", \"-x\", \"+sbwt\", \"none\"]");
    check(
        Format::Dockerfile,
        "CMD [\"erl\", \"-x\", \"-extra\"]",
        "CMD [\"erl\", \"-x\", \"+sbwt\", \"none\", \"-extra\"]",
    );
    check(Format::SystemdUnit, "ExecStart=erl -x\n", "ExecStart=erl -x +sbwt none\n");
    check(
        Format::Compose,
        "services: {a: {command: [erl, -x]}}",
        "services: {a: {command: [erl, -x, \"+sbwt\", \"none\"]}}",
    );
    check(
        Format::Kubernetes,
        "args:\n  - erl\n  - -x # why\nb: c\n",
        "args:\n  - erl\n  - -x # why\n  - \"+sbwt\"\n  - \"none\"\nb: c\n",
    );
    check(
        Format::Kubernetes,
        "args:\n- erl\n- -x\n- -extra",
        "args:\n- erl\n- -x\n- \"+sbwt\"\n- \"none\"\n- -extra",
    );
    let refused = |format: Format, text: &str| append(format, text).expect_err(text).to_string();
    assert!(refused(Format::Shell, "iex --name a").contains("use --erl"));
}
