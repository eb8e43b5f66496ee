//! Tests the readers on files in the style of real projects.

#![allow(clippy::expect_used, clippy::panic, reason = "tests")]

use beamtune_flags::source::{
    Change, Format, Fragment, MAX_BYTES, Order, Place, Role, SourceError, Template, apply, position, read,
    running_node, text,
};

/// Formats the fragments as lines `PLACE: word|word`, with `~` before dynamic and `?` before conditional words. Also checks the byte range
/// of every word.
fn shown(format: Format, text: &str) -> String {
    let fragments = read(format, text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let lines: Vec<String> = fragments.iter().map(|fragment| show(fragment, text)).collect();
    lines.join("\n")
}

fn show(fragment: &Fragment, text: &str) -> String {
    let mut end = 0;
    for word in &fragment.words {
        assert!(word.span.start >= end, "{word:?} overlaps the previous word");
        end = word.span.end;
        let bytes = text.get(word.span.clone()).expect("spans are on character boundaries");
        let plain = !word.text.contains(['"', '\'', '\\', '$', '%', '\n'])
            && !bytes.contains(['\\', '`', '\n', '%', '$']);
        let bare: String = bytes.chars().filter(|c| !matches!(c, '"' | '\'')).collect();
        assert!(!plain || bare == word.text, "{word:?} is not at {bytes:?}");
    }
    let place = match &fragment.place {
        Place::ArgsFile { name: None } => "file".to_owned(),
        Place::ArgsFile { name: Some(name) } => name.clone(),
        Place::Variable { name, .. } => name.clone(),
        Place::CommandLine { words, order: Order::CommandLine(order) } => format!("{words:?} {order}"),
        Place::CommandLine { order, .. } => panic!("{order:?}"),
        Place::FileNames => "names".to_owned(),
        Place::RunningNode => "node".to_owned(),
    };
    let words = fragment.words.iter().map(|word| {
        let dynamic = if word.dynamic { "~" } else { "" };
        let conditional = if word.conditional { "?" } else { "" };
        format!("{conditional}{dynamic}{}", word.text)
    });
    format!("{place}: {}", words.collect::<Vec<_>>().join("|"))
}

fn check(format: Format, text: &str, expect: &[&str]) {
    assert_eq!(shown(format, text), expect.join("\n"), "{text}");
}

/// Returns the error message of a file, including the position.
fn error(format: Format, text: &str) -> String {
    match read(format, text) {
        Ok(_) => panic!("no error:\n{text}"),
        Err(error) => error.to_string(),
    }
}

const EEX: Format = Format::VmArgsTemplate(Template::Eex);
const OVERLAY: Format = Format::VmArgsTemplate(Template::Overlay);

#[test]
fn args_files_are_parsed_as_in_the_launcher() {
    check(Format::VmArgs, "", &["file: "]);
    check(
        Format::VmArgs,
        "## Name of the node\n-name couchdb@127.0.0.1\n\n+P 1048576 # many\r\n+sbwt none\n-kernel inet_dist_use_interface {127,0,0,1}\n",
        &["file: -name|couchdb@127.0.0.1|+P|1048576|+sbwt|none|-kernel|inet_dist_use_interface|{127,0,0,1}"],
    );
    check(
        Format::VmArgs,
        "-couch_dist no_tls '\"clouseau@127.0.0.1\"'",
        &["file: -couch_dist|no_tls|\"clouseau@127.0.0.1\""],
    );
    check(Format::VmArgs, "-setcookie pa#ss\n+A\\ 3", &["file: -setcookie|pa|+A 3"]);
    // These are not templates for erl.
    check(Format::VmArgs, "-name <%=x%> ${y} {{z}}", &["file: -name|<%=x%>|${y}|{{z}}"]);
}

#[test]
fn templates_are_kept_and_marked() {
    check(
        EEX,
        "-name <%= @release.name %>@<%= host(\"a b\") %>\n<%= if prod? do %>\n+P 5000\n<% else %>\n+P 1000\n<% end %>\n+sbwt none\n",
        &["file: -name|~<%= @release.name %>@<%= host(\"a b\") %>|?+P|?5000|?+P|?1000|+sbwt|none"],
    );
    check(EEX, "-setcookie ${COOKIE}\n<%# +P 1 %>", &["file: -setcookie|~${COOKIE}"]);
    check(
        OVERLAY,
        "{{node_name}}\n-name app@${HOST:-local host}\n{{#dist}}-proto_dist inet6_tcp{{/dist}}\n",
        &["file: ~{{node_name}}|-name|~app@${HOST:-local host}|?-proto_dist|?inet6_tcp"],
    );
    check(
        Format::VmArgsTemplate(Template::Jinja),
        "{% if big %}\n+P {{ processes }}\n{% endif %}\n",
        &["file: ?+P|?~{{ processes }}"],
    );
}

#[test]
fn env_files_are_parsed_as_in_compose() {
    check(
        Format::EnvFile,
        "# ERL_FLAGS=no\nexport ERL_FLAGS=\"+P 5000 -x \\\"a b\\\"\"\nERL_AFLAGS='+sbwt none' # why\nERL_ZFLAGS=+A 3 -y \"c d\" # why\nPATH=/bin\nELIXIR_ERL_OPTIONS = -heart\n",
        &[
            "ERL_FLAGS: +P|5000|-x|a b",
            "ERL_AFLAGS: +sbwt|none",
            "ERL_ZFLAGS: +A|3|-y|c d",
            "ELIXIR_ERL_OPTIONS: -heart",
        ],
    );
    check(
        Format::EnvFile,
        "ERL_FLAGS=\"+P 1\n+Q 2\"\r\nERL_MAX_PORTS=4096\r\n",
        &["ERL_FLAGS: +P|1|+Q|2", "ERL_MAX_PORTS: 4096"],
    );
    check(
        Format::EnvFile,
        "ERL_FLAGS=$BASE +P ${N:-5} \\$x\nERL_ZFLAGS='$x'\n",
        &["ERL_FLAGS: ~$BASE|+P|~${N:-5}|~$x", "ERL_ZFLAGS: $x"],
    );
    check(
        Format::EnvFile,
        "ERL_FLAGS=\nERL_OTP27_FLAGS=#+P 1\nOTHER=\"unclosed\n",
        &["ERL_FLAGS: ", "ERL_OTP27_FLAGS: "],
    );
}

#[test]
fn dockerfiles_are_parsed_in_both_forms_and_with_continued_lines() {
    check(
        Format::Dockerfile,
        "FROM debian\nENV ERL_FLAGS=\"+JPperf true\" LANG=C.UTF-8\nENV ERL_AFLAGS \"-proto_dist inet6_tcp\"\nenv ELIXIR_ERL_OPTIONS=+fnu\\ +P\\ 9\n",
        &["ERL_FLAGS: +JPperf|true", "ERL_AFLAGS: -proto_dist|inet6_tcp", "ELIXIR_ERL_OPTIONS: +fnu|+P|9"],
    );
    check(
        Format::Dockerfile,
        "ENV LANG=C \\\n    # a comment\n\n    ERL_FLAGS=\"+P 5000 \\\n      +Q 65536\" \\\n    ERL_ZFLAGS='+sbwt none'\n",
        &["ERL_FLAGS: +P|5000|+Q|65536", "ERL_ZFLAGS: +sbwt|none"],
    );
    check(
        Format::Dockerfile,
        "# escape=`\nENV ERL_FLAGS=+P` 1 ERL_ZFLAGS=\"a\\b `\"c`\"\"\nRUN x `\n  y\nENV ERL_AFLAGS ${A} +P 1\n",
        &["ERL_FLAGS: +P|1", "ERL_ZFLAGS: ab|c", "ERL_AFLAGS: ~${A}|+P|1"],
    );
    check(
        Format::Dockerfile,
        "RUN <<EOF\nENV ERL_FLAGS=no\nEOF\nONBUILD ENV ERL_FLAGS=yes\nRUN echo \"<<X\"\nENV ERL_ZFLAGS=yes\n",
        &["ERL_FLAGS: yes", "ERL_ZFLAGS: yes"],
    );
    check(Format::Dockerfile, "ARG ERL_FLAGS=x\nLABEL ERL_FLAGS=y\nENV OTHER=\"unclosed\n", &[]);
}

#[test]
fn variables_in_lists_and_maps_of_compose_are_found() {
    check(
        Format::Compose,
        "services:\n  a:\n    environment:\n      - ERL_FLAGS=+P 5000 +S 4:4\n      - \"ERL_ZFLAGS=-x \\\"a b\\\" $$y ${N:-3}\"\n      - LANG=C\n  b:\n    environment:\n      ERL_AFLAGS: -proto_dist inet_tcp\n      ERL_FLAGS: '+sbwt none'\n      ERL_MAX_PORTS: 4096\n      ERL_CRASH_DUMP:\n",
        &[
            "ERL_FLAGS: +P|5000|+S|4:4",
            "ERL_ZFLAGS: -x|a b|$y|~${N:-3}",
            "ERL_AFLAGS: -proto_dist|inet_tcp",
            "ERL_FLAGS: +sbwt|none",
            "ERL_MAX_PORTS: 4096",
            "ERL_CRASH_DUMP: ",
        ],
    );
    check(
        Format::Compose,
        "x-env: &env\n  ERL_FLAGS: >-\n    +P 5000\n    +Q 65536\nservices: {a: {environment: {ERL_ZFLAGS: \"+A 3\", <<: *env}}}\n",
        &["ERL_FLAGS: +P|5000|+Q|65536", "ERL_ZFLAGS: +A|3"],
    );
    check(
        Format::Compose,
        "services:\n  mq:\n    environment:\n      RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS: -rabbit log [{console,[{level,debug}]}]\n",
        &["RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS: -rabbit|log|[{console,[{level,debug}]}]"],
    );
}

#[test]
fn variables_and_config_maps_of_kubernetes_are_found() {
    check(
        Format::Kubernetes,
        "apiVersion: apps/v1\nkind: Deployment\nspec:\n  containers:\n    - env:\n        - name: ERL_FLAGS\n          value: \"-name couchdb@$(POD_NAME).db -setcookie $(SECRET) ${x}\"\n        - value: +sbwt none\n          name: ERL_ZFLAGS\n        - name: ERL_AFLAGS\n          valueFrom: {secretKeyRef: {name: a, key: b}}\n",
        &["ERL_FLAGS: -name|~couchdb@$(POD_NAME).db|-setcookie|~$(SECRET)|~${x}", "ERL_ZFLAGS: +sbwt|none"],
    );
    check(
        Format::Kubernetes,
        "kind: ConfigMap\ndata:\n  vm.args: |\n    # processes\n    +P 5000\n\n      +Q 65536\n    -name a@${HOST}\n  rabbitmq-env.conf: |-\n    SERVER_ADDITIONAL_ERL_ARGS=\"+S 2\"\n  other: |\n    +P 1\n  ERL_FLAGS: \"+A\\\n    \\ 3\"\n",
        &[
            "vm.args: +P|5000|+Q|65536|-name|~a@${HOST}",
            "SERVER_ADDITIONAL_ERL_ARGS: +S|2",
            "ERL_FLAGS: +A|3",
        ],
    );
    check(
        Format::Kubernetes,
        "env:\n- name: EMQX_NODE__PROCESS_LIMIT\n  value: \"2097152\"\n- name: EMQX_NODE__MAX_PORTS\n  value: auto\n- name: EMQX_NODE__DIST_BUFFER_SIZE\n  value: 16MB\n",
        &["EMQX_NODE__PROCESS_LIMIT: 2097152"],
    );
}

#[test]
fn helm_charts_are_parsed_although_they_are_not_yaml() {
    check(
        Format::Kubernetes,
        "{{- if .Values.on }}\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ include \"app.name\" . }}\n  labels:\n    {{- include \"app.labels\" . | nindent 4 }}\ndata:\n  vm.args: |\n    {{- if .Values.big }}\n    +P {{ .Values.processes }}\n    {{- end }}\n    +sbwt none\n{{- end }}\n",
        &["vm.args: ?+P|?~{{ .Values.processes }}|?+sbwt|?none"],
    );
    check(
        Format::Kubernetes,
        "env:\n  - name: ERL_FLAGS\n    value: {{ .Values.flags | quote }}\n  - name: ERL_ZFLAGS\n    value: \"+P {{ .Values.p }} +sbwt none\"\n",
        &["ERL_FLAGS: ~{{ .Values.flags | quote }}", "ERL_ZFLAGS: +P|~{{ .Values.p }}|+sbwt|none"],
    );
    let chart = "{{- range .Values.x }}\n- ERL_FLAGS: {{ .b }}\n  {{ .c }}: d\n  e\n{{- end }}\n";
    let error = read(Format::Kubernetes, chart).expect_err("no YAML");
    assert!(error.is_unsupported(), "{error}");
    assert!(error.to_string().contains("helm template"), "{error}");
    assert!(error.position().is_some());
}

#[test]
fn quoted_items_of_systemd_units_are_found() {
    check(
        Format::SystemdUnit,
        "[Service]\nEnvironment=\"ERL_FLAGS=+P 5000 +Q 65536\" LANG=C 'ERL_ZFLAGS=+A 3'\nEnvironment=ERL_AFLAGS=\"-x \\\"a b\\\" %i 100%%\"\nEnvironmentFile=-/etc/default/app\nExecStartPre=/bin/erl +P 1\n",
        &[
            "ERL_FLAGS: +P|5000|+Q|65536",
            "ERL_ZFLAGS: +A|3",
            "ERL_AFLAGS: -x|a b|~%i|100%",
            "names: /etc/default/app",
        ],
    );
    check(
        Format::SystemdUnit,
        "; ERL_FLAGS\n#Environment=ERL_FLAGS=1\nEnvironment = LANG=C \\\n  # a comment\n  \"ERL_FLAGS=+P 1 \\\n  +Q\\x202 $x\"\n",
        &["ERL_FLAGS: +P|1|+Q|2|$x"],
    );
}

#[test]
fn assignments_in_shell_scripts_are_found() {
    check(
        Format::Shell,
        "#!/bin/sh\nexport ERL_FLAGS=\"$ERL_FLAGS +P 5000 -x \\\"a b\\\" '\\$y'\" # ERL_ZFLAGS=no\nERL_ZFLAGS='+A 3'\"$(cat \"a b\")\"\nERL_AFLAGS+=' '+sbwt\\ none; export ERL_AFLAGS\n",
        &[
            "ERL_FLAGS: ~$ERL_FLAGS|+P|5000|-x|a b|$y",
            "ERL_ZFLAGS: +A|~3$(cat \"a b\")",
            "ERL_AFLAGS: +sbwt|none",
        ],
    );
    check(
        Format::Shell,
        "case $RELEASE_COMMAND in\n  daemon*)\n    export ELIXIR_ERL_OPTIONS=\"-heart\"\n    ;;\nesac\nif [ -n \"$X\" ]; then ERL_FLAGS=+A; fi\n[ -z \"$Y\" ] && ERL_ZFLAGS=+B\nf() { ERL_AFLAGS=+C; }\nERL_FLAGS=+D erl\n(ERL_FLAGS=+E)\nERL_FLAGS=+F\n",
        &[
            "ELIXIR_ERL_OPTIONS: ?-heart",
            "ERL_FLAGS: ?+A",
            "ERL_ZFLAGS: ?+B",
            "ERL_AFLAGS: ?+C",
            "ERL_FLAGS: +D",
            "ERL_FLAGS: ?+E",
            "ERL_FLAGS: +F",
        ],
    );
    check(
        Format::Shell,
        "cat > x <<EOF\nERL_FLAGS=no it's\nEOF\ncat <<-'END'\n\tERL_FLAGS=no\n\tEND\necho ERL_FLAGS=no \"ERL_FLAGS=no\" # it's\nX=$(echo it\\'s ${Y:-'}'} # it's\n)\n(( a << 2 ))\nERL_FLAGS=\"+P \\\n  1\"\nA=(b 'c')\nX=$(cat <<E\nit's\nE\n)\nY=$((1<<2))\nERL_ZFLAGS=+Q\n",
        &["ERL_FLAGS: +P|1", "ERL_ZFLAGS: +Q"],
    );
    check(
        Format::Shell,
        "export ERL_FLAGS=<%= flags %>\n<%= if x do %>\nERL_ZFLAGS=\"+P <%= p(\"}\") %>\"\n<% end %>\n",
        &["ERL_FLAGS: ~<%= flags %>", "ERL_ZFLAGS: ?+P|?~<%= p(\"}\") %>"],
    );
}

#[test]
fn variables_of_products_are_interpreted() {
    check(
        Format::RabbitmqEnv,
        "NODENAME=rabbit\nSERVER_ADDITIONAL_ERL_ARGS=\"+S 2:2 -x 'a\"\nRABBITMQ_CTL_ERL_ARGS='-proto_dist inet_tls'\nMAX_NUMBER_OF_PROCESSES=65536\nSERVER_ERL_ARGS='+P 1'\n",
        &[
            "SERVER_ADDITIONAL_ERL_ARGS: +S|2:2|-x|'a",
            "RABBITMQ_CTL_ERL_ARGS: -proto_dist|inet_tls",
            "MAX_NUMBER_OF_PROCESSES: 65536",
            "SERVER_ERL_ARGS: +P|1",
        ],
    );
    check(
        Format::EjabberdCtl,
        "#POLL=true\nERL_PROCESSES=250000\nERL_MAX_PORTS=65536\nERL_OPTIONS=\"-env ERL_CRASH_DUMP_BYTES 0\"\nSMP=auto\n",
        &[
            "ERL_PROCESSES: 250000",
            "ERL_MAX_PORTS: 65536",
            "ERL_OPTIONS: -env|ERL_CRASH_DUMP_BYTES|0",
            "SMP: auto",
        ],
    );
    let effect = |format: Format, text: &str| match &read(format, text).expect(text)[0].place {
        Place::Variable { effect, .. } => *effect,
        other => panic!("{other:?}"),
    };
    assert_eq!(effect(Format::EjabberdCtl, "ERL_PROCESSES=1").role, Role::ValueOf(&["+P"]));
    assert_eq!(effect(Format::Shell, "ERL_MAX_PORTS=1").role, Role::ReadByVm);
    assert!(effect(Format::RabbitmqEnv, "CTL_ERL_ARGS=x").for_tool);
    assert!(effect(Format::RabbitmqEnv, "SERVER_ERL_ARGS=x").ignored.is_some());
    assert!(effect(Format::Shell, "RABBITMQ_SERVER_ERL_ARGS=x").ignored.is_none());
}

#[test]
fn order_of_effect_is_that_of_the_launcher() {
    let order = |format: Format, text: &str| read(format, text).expect(text)[0].place.order().expect("words");
    let rising = [
        order(Format::Shell, "ERL_MAX_PORTS=1"),
        order(Format::Shell, "ERL_OTP27_FLAGS=x"),
        order(Format::Shell, "ERL_AFLAGS=x"),
        order(Format::Shell, "ELIXIR_ERL_OPTIONS=x"),
        order(Format::VmArgs, "x"),
        order(Format::Shell, "ERL_FLAGS=x"),
        order(Format::Shell, "ERL_ZFLAGS=x"),
    ];
    assert!(rising.windows(2).all(|pair| pair[0] < pair[1]), "{rising:?}");
    assert_eq!(rising[4], Order::ARGS_FILE);
}

#[test]
fn arguments_of_a_running_node_are_words_of_one_line() {
    let args: Vec<String> = ["-sbwt", "none", "", "--"].map(str::to_owned).into();
    let fragment = running_node(&args);
    let line = args.join(" ");
    for (word, arg) in fragment.words.iter().zip(&args) {
        assert_eq!((&word.text, &line[word.span.clone()]), (arg, arg.as_str()));
    }
    assert!(fragment.change(&[Change::Replace { word: 1, text: "short".to_owned() }]).is_err());
}

#[test]
fn errors_contain_the_position_and_advice() {
    let check = |format: Format, text: &str, expect: &str| {
        let message = error(format, text);
        assert!(message.starts_with(expect), "{message:?} instead of {expect:?}");
    };
    check(
        Format::VmArgs,
        "+P 1\n-x 'é \"a\n",
        "2:4: this ' is never closed, so erl takes the rest of the file",
    );
    check(
        Format::Shell,
        "ERL_FLAGS=\"-x 'a\"",
        "1:15: this ' is never closed, so erl takes the rest of the value",
    );
    check(Format::Shell, "é=1\nERL_FLAGS=\"+P", "2:11: this \" is never closed, so a shell");
    check(Format::Shell, "X=$(a\nERL_FLAGS=1", "1:4: `(` is never closed");
    check(Format::EnvFile, "ERL_FLAGS='+P", "1:11: this ' is never closed, so the whole file");
    check(
        Format::Dockerfile,
        "FROM x\nENV A=1 \\\n  ERL_FLAGS=\"+P",
        "3:13: this \" is never closed, so docker",
    );
    check(Format::SystemdUnit, "Environment=\"ERL_FLAGS=+P", "1:13: this \" is never closed, so systemd");
    check(EEX, "+P 1\n+S <%= x", "2:4: `<%` is never closed");
    check(
        OVERLAY,
        "+S <%= x %>",
        "1:4: `<%` belongs to another kind of template than a relx overlay; give the file",
    );
    check(Format::Kubernetes, "a: [1\nERL_FLAGS: 2\n", "2:10: not checked: this is not YAML");
    check(Format::VmArgs, "+P 1\0", "1:5: a NUL byte");
    check(Format::VmArgs, &" ".repeat(MAX_BYTES + 1), "the file has 33554433 bytes");
}

#[test]
fn errors_unrelated_to_flags_are_ignored() {
    check(Format::Kubernetes, "a: [1\nb: 2\n", &[]);
    check(Format::Shell, "echo \"it's\n", &[]);
    check(Format::Dockerfile, "ENV A=\"b\nENV ERL_FLAGS=+A\n", &["ERL_FLAGS: +A"]);
    check(Format::SystemdUnit, "Environment=\"A=b\nEnvironment=ERL_FLAGS=+A\n", &["ERL_FLAGS: +A"]);
}

#[test]
fn invalid_bytes_are_reported_with_their_position() {
    let check = |bytes: &[u8], expect: &str| {
        let message = text(bytes).map_err(|error| error.to_string()).expect_err("no text");
        assert!(message.starts_with(expect), "{message}");
    };
    check(b"a\nb\xff", "2:2: invalid UTF-8");
    check(b"\x7fELF\0\xff", "1:5: a NUL byte");
    check("é\0".as_bytes(), "1:2: a NUL byte");
    assert_eq!(text("é".as_bytes()), Ok("é"));
}

#[test]
fn positions_count_lines_and_characters() {
    let check = |text: &str, offset: usize, line: usize, column: usize| {
        let position = position(text, offset);
        assert_eq!((position.line, position.column), (line, column), "{text:?} at {offset}");
    };
    check("", 0, 1, 1);
    check("ab\ncd", 1, 1, 2);
    check("ab\ncd", 3, 2, 1);
    check("éa\n", 2, 1, 2);
    check("a", 9, 1, 2);
}

/// Applies one change to the only fragment, and returns the new file.
fn changed(format: Format, text: &str, change: Change) -> String {
    let fragments = read(format, text).expect(text);
    let [fragment] = fragments.as_slice() else { panic!("{fragments:?}") };
    let edits = fragment.change(&[change]).unwrap_or_else(|error| panic!("{error}\n{text}"));
    apply(text, &edits)
}

fn replace(word: usize, text: &str) -> Change {
    Change::Replace { word, text: text.to_owned() }
}

fn append(words: &[&str], comment: &[&str]) -> Change {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    Change::Append { words: owned(words), comment: owned(comment) }
}

#[test]
fn replaced_word_is_quoted_as_the_syntax_requires() {
    let check = |format: Format, text: &str, word: usize, new: &str, expect: &str| {
        assert_eq!(changed(format, text, replace(word, new)), expect, "{text}");
    };
    check(Format::VmArgs, "+P 1 # x\n+Q 2", 1, "5000", "+P 5000 # x\n+Q 2");
    check(Format::VmArgs, "-x 1", 1, "it's \"a\"", "-x it\\'s\\ \\\"a\\\"");
    check(EEX, "+S <%= 2 %>\n+P 1", 3, "2", "+S <%= 2 %>\n+P 2");
    check(Format::EnvFile, "ERL_FLAGS=+P 1 # x\n", 1, "2", "ERL_FLAGS=+P 2 # x\n");
    check(Format::EnvFile, "ERL_FLAGS=+P 1 # x\n", 1, "a $b", "ERL_FLAGS=\"+P \\\"a \\$b\\\"\" # x\n");
    check(
        Format::Dockerfile,
        "ENV ERL_FLAGS=\"+P 1 \\\n +Q 2\"\n",
        3,
        "a \"b\"",
        "ENV ERL_FLAGS=\"+P 1 \\\n +Q 'a \\\"b\\\"'\"\n",
    );
    check(
        Format::Dockerfile,
        "ENV ERL_FLAGS=+x LANG=C\n",
        0,
        "a b",
        "ENV ERL_FLAGS=\"\\\"a b\\\"\" LANG=C\n",
    );
    check(Format::Dockerfile, "ENV ERL_FLAGS +P 1\n", 1, "2", "ENV ERL_FLAGS +P 2\n");
    check(Format::Compose, "a:\n  - ERL_FLAGS=+P 1\n", 1, "2", "a:\n  - ERL_FLAGS=+P 2\n");
    check(
        Format::Compose,
        "a:\n  - ERL_FLAGS=+P 1\n",
        1,
        "a: $b",
        "a:\n  - \"ERL_FLAGS=+P \\\"a: $$b\\\"\"\n",
    );
    check(Format::Compose, "ERL_FLAGS: '+P 1'\n", 1, "it's", "ERL_FLAGS: '+P \"it''s\"'\n");
    check(
        Format::Kubernetes,
        "name: ERL_MAX_PORTS\nvalue: x\n",
        0,
        "4096",
        "name: ERL_MAX_PORTS\nvalue: \"4096\"\n",
    );
    check(
        Format::Kubernetes,
        "data:\n  vm.args: |\n    +P 1\n    +Q 2\n",
        1,
        "a b",
        "data:\n  vm.args: |\n    +P \"a b\"\n    +Q 2\n",
    );
    check(
        Format::SystemdUnit,
        "Environment=\"ERL_FLAGS=+P 1\"\n",
        1,
        "5%",
        "Environment=\"ERL_FLAGS=+P 5%%\"\n",
    );
    check(
        Format::SystemdUnit,
        "Environment=ERL_FLAGS=+P\n",
        0,
        "a b",
        "Environment=\"ERL_FLAGS=\\\"a b\\\"\"\n",
    );
    check(Format::Shell, "ERL_FLAGS=\"$X +P 1\"\n", 2, "$5", "ERL_FLAGS=\"$X +P \\$5\"\n");
    check(Format::Shell, "ERL_FLAGS=+P'1'\n", 0, "a b", "ERL_FLAGS=\"\\\"a b\\\"\"\n");
    check(
        Format::RabbitmqEnv,
        "SERVER_ADDITIONAL_ERL_ARGS='+P 1'",
        1,
        "2",
        "SERVER_ADDITIONAL_ERL_ARGS='+P 2'",
    );
}

#[test]
fn words_are_removed_with_their_space_or_line() {
    let check = |format: Format, text: &str, words: std::ops::Range<usize>, expect: &str| {
        assert_eq!(changed(format, text, Change::Remove { words }), expect, "{text}");
    };
    check(Format::VmArgs, "# a\n+P 1\n+Q 2\n", 0..2, "# a\n+Q 2\n");
    check(Format::VmArgs, "+P 1 # why\n+Q 2", 0..2, "# why\n+Q 2");
    check(Format::VmArgs, "+P 1 +A 3\n+Q 2", 2..4, "+P 1\n+Q 2");
    check(Format::Shell, "ERL_FLAGS=\"+P 1 +Q 2\"", 0..2, "ERL_FLAGS=\"+Q 2\"");
    check(Format::Shell, "ERL_FLAGS=\"+P 1 +Q 2\"", 2..4, "ERL_FLAGS=\"+P 1\"");
    check(
        Format::Kubernetes,
        "data:\n  vm.args: |\n    +P 1\n    +Q 2\n  b: c\n",
        0..2,
        "data:\n  vm.args: |\n    +Q 2\n  b: c\n",
    );
    check(
        Format::Kubernetes,
        "data:\n  vm.args: |\n    +P 1\n    +Q 2\n  b: c\n",
        2..4,
        "data:\n  vm.args: |\n    +P 1\n  b: c\n",
    );
}

#[test]
fn words_are_added_at_the_end_but_before_extra() {
    let check = |format: Format, text: &str, expect: &str| {
        let change = append(&["+sbwt", "none"], &["saves CPU", "OTP 25 and later"]);
        assert_eq!(changed(format, text, change), expect, "{text}");
    };
    check(Format::VmArgs, "", "# saves CPU\n# OTP 25 and later\n+sbwt none\n");
    check(Format::VmArgs, "+P 1", "+P 1\n# saves CPU\n# OTP 25 and later\n+sbwt none\n");
    check(Format::VmArgs, "+P 1\r\n", "+P 1\r\n# saves CPU\r\n# OTP 25 and later\r\n+sbwt none\r\n");
    check(
        Format::VmArgs,
        "+P 1\n-extra x\n",
        "+P 1\n# saves CPU\n# OTP 25 and later\n+sbwt none\n-extra x\n",
    );
    check(Format::VmArgs, "+P 1 -extra x\n", "+P 1 +sbwt none -extra x\n");
    check(Format::Shell, "ERL_FLAGS=\"+P 1\"", "ERL_FLAGS=\"+P 1 +sbwt none\"");
    check(Format::Shell, "ERL_FLAGS=", "ERL_FLAGS=\"+sbwt none\"");
    check(Format::Shell, "ERL_FLAGS=''", "ERL_FLAGS='+sbwt none'");
    check(Format::EnvFile, "ERL_FLAGS=\nA=b\n", "ERL_FLAGS=+sbwt none\nA=b\n");
    check(Format::Compose, "ERL_FLAGS: +P 1 # x\n", "ERL_FLAGS: +P 1 +sbwt none # x\n");
    check(Format::Dockerfile, "ENV ERL_FLAGS=+Bd\n", "ENV ERL_FLAGS=\"+Bd +sbwt none\"\n");
    check(
        Format::Kubernetes,
        "data:\n  vm.args: |\n    +P 1\nb: c\n",
        "data:\n  vm.args: |\n    +P 1\n    # saves CPU\n    # OTP 25 and later\n    +sbwt none\nb: c\n",
    );
    check(
        Format::Kubernetes,
        "data:\n  vm.args: |\n    +P 1\n    -extra x\nb: c\n",
        "data:\n  vm.args: |\n    +P 1\n    # saves CPU\n    # OTP 25 and later\n    +sbwt none\n    -extra x\nb: c\n",
    );
}

#[test]
fn change_that_cannot_be_written_is_rejected() {
    let refused = |format: Format, text: &str, change: Change| {
        let fragments = read(format, text).expect(text);
        match fragments[0].change(&[change]) {
            Err(SourceError::CannotWrite { reason, .. }) => reason.to_owned(),
            other => panic!("{other:?}"),
        }
    };
    assert!(refused(Format::VmArgs, "+P 1", replace(1, "a\nb")).contains("control characters"));
    assert!(refused(Format::VmArgs, "+P 1", replace(9, "a")).contains("no such word"));
    assert!(refused(Format::RabbitmqEnv, "SERVER_START_ARGS=+P", replace(0, "a b")).contains("splits"));
    assert!(refused(Format::EjabberdCtl, "ERL_PROCESSES=5", append(&["+P"], &[])).contains("one value"));
    assert!(
        refused(Format::SystemdUnit, "EnvironmentFile=/x", replace(0, "/y")).contains("cannot be edited")
    );
}

#[test]
fn several_changes_are_made_together() {
    let text = "services:\n  a:\n    environment:\n      ERL_FLAGS: \"+P 1 +Q 2 +A 3\"\n";
    let fragments = read(Format::Compose, text).expect(text);
    let changes = [replace(1, "100"), Change::Remove { words: 2..4 }, append(&["+S", "4:4"], &[])];
    let edits = fragments[0].change(&changes).expect("room");
    assert_eq!(apply(text, &edits), text.replace("+P 1 +Q 2 +A 3", "+P 100 +A 3 +S 4:4"));
    let twice = [replace(1, "100"), replace(1, "200")];
    assert!(fragments[0].change(&twice).is_err());
}
