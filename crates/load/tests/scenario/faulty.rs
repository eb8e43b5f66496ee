//! Tests that all faults in scenarios are reported, with line, column and a correction.

use beamtune_load::scenario::{Fault, Faults};
use proptest::prelude::*;

use super::{examples, parse};

fn faults(text: &str) -> Faults {
    parse(text).map(|scenario| panic!("{text}\nis accepted: {scenario:?}")).unwrap_or_else(|faults| faults)
}

/// Checks that a text has exactly one fault, at this position and with this part of a message.
fn check(text: &str, line: usize, column: usize, part: &str) {
    let faults = faults(text);
    let is_expected =
        |fault: &Fault| (fault.line, fault.column) == (line, column) && fault.message.contains(part);
    assert!(
        faults.faults.len() == 1 && is_expected(&faults.faults[0]),
        "{text}\nexpected {line}:{column}: {part}\nfound {faults}"
    );
}

/// A closed load with one group of devices; `rest` is the table of the group, from line 4 on.
fn devices(rest: &str) -> String {
    format!("[load]\nfor = \"1s\"\n[devices.d]\n{rest}")
}

/// Like [`devices`], with a target and a step that begins at line 5, column 10.
fn step(target: &str, step: &str) -> String {
    devices(&format!("target = \"{target}\"\nsteps = [{step}]"))
}

#[test]
fn faults_of_the_load_are_reported() {
    let rest = "[devices.d]\ntarget = \"http://h\"\nsteps = [{ request = \"/\" }]";
    for (load, line, column, part) in [
        ("rate = 0\nfor = \"1s\"", 2, 8, "`rate = 0` is out of range: above 0, at most 10000000"),
        ("rate = -2.5\nfor = \"1s\"", 2, 8, "`rate = -2.5` is out of range"),
        ("rate = nan\nfor = \"1s\"", 2, 8, "`rate = nan` is out of range"),
        ("rate = \"fast\"\nfor = \"1s\"", 2, 8, "`rate` must be a number, not a string"),
        ("rate = 5", 1, 1, "load needs `for`: the duration after the ramp"),
        ("ramp = \"1s\"", 1, 1, "or `turns`"),
        ("rate = 5\nfor = \"1s\"\nturns = 3", 4, 1, "`turns` cannot be combined with `rate`"),
        ("for = \"1s\"\nspacing = \"fixed\"", 3, 1, "`spacing` requires `rate`"),
        ("for = \"1s\"\nconnect_within = \"1s\"", 3, 1, "`connect_within` requires `rate`"),
        ("rate = 5\nfor = \"1s\"\nspacing = \"poison\"", 4, 11, "did you mean `poisson`?"),
        ("rate = 5\nfor = \"1s\"\nspacing = \"weird\"", 4, 11, "use one of poisson, fixed"),
        ("for = 30", 2, 7, "`for = 30`: a time needs a unit: \"30s\""),
        ("for = \"5m\"", 2, 7, "\"m\" may be minutes or milliseconds"),
        ("for = \"0s\"", 2, 7, "`for` must be longer than 0"),
        ("turns = 0", 2, 9, "`turns = 0` is out of range: 1 to"),
        ("fro = \"1s\"\nturns = 1", 2, 1, "unknown key `fro` in load; did you mean `for`?"),
        ("for = \"1s\"\nseed = -1", 3, 8, "`seed = -1` is out of range"),
        ("for = \"1s\"\nseed = 1.5", 3, 8, "`seed` must be an integer, not a float"),
    ] {
        check(&format!("[load]\n{load}\n{rest}"), line, column, part);
    }
}

#[test]
fn faults_of_devices_are_reported() {
    let steps = "steps = [{ request = \"/\" }]\ntarget = \"http://h\"\n";
    for (rest, line, column, part) in [
        ("steps = [{ request = \"/\" }]".to_owned(), 3, 10, "devices.NAME needs `target`"),
        ("target = \"http://h\"".to_owned(), 3, 10, "devices.NAME needs `steps`"),
        ("target = \"http://h\"\nsteps = []".to_owned(), 5, 9, "`steps` is empty"),
        ("target = \"http://h\"\nsteps = \"connect\"".to_owned(), 5, 9, "`steps` must be a list of steps"),
        ("target = \"htp://h\"\nsteps = [\"close\"]".to_owned(), 4, 10, "did you mean `http`?"),
        ("target = \"h:80\"\nsteps = [\"close\"]".to_owned(), 4, 10, "a target is a URL"),
        (
            "target = \"http://h/a/b\"\nsteps = [{ request = \"/\" }]".to_owned(),
            4,
            19,
            "`/a/b`: a target with scheme http has no path",
        ),
        (format!("{steps}count = 0"), 6, 9, "`count = 0` is out of range: 1 to 10000000"),
        (format!("{steps}count = 20_000_000"), 6, 9, "out of range"),
        (format!("{steps}cuont = 1"), 6, 1, "did you mean `count`?"),
        (format!("{steps}timeout = \"0ms\""), 6, 11, "`timeout` must be longer than 0"),
        (format!("{steps}sources = [\"127.0.0.1\", \"lo\"]"), 6, 25, "an address of this host"),
        (format!("{steps}table = \"none.csv\""), 6, 9, "`table = \"none.csv\"`: no such file"),
        (format!("{steps}table = \"twice.csv\""), 6, 9, "two columns are named \"a\""),
        (format!("{steps}mqtt = {{}}"), 6, 1, "`mqtt` requires mqtt(s); the target is http"),
        (format!("{steps}framing = \"line\""), 6, 1, "`framing` requires tcp or tls; the target is http"),
        (format!("{steps}subprotocols = \"a\""), 6, 1, "`subprotocols` requires ws(s); the target is http"),
        (format!("{steps}tls = {{}}"), 6, 1, "`tls` requires https, wss, mqtts or tls; the target is http"),
        (
            format!("{steps}fields = {{ Content-Length = \"3\" }}"),
            6,
            12,
            "`Content-Length` is set automatically",
        ),
        (format!("{steps}fields = {{ \"a b\" = \"3\" }}"), 6, 12, "is not a valid header field name"),
        (format!("{steps}fields = {{ A = \"x\\ny\" }}"), 6, 16, "contains a line break"),
        (format!("{steps}fields = {{ A = \"id ${{devcie}}\" }}"), 6, 20, "`${devcie}` is unknown"),
        (
            format!("{steps}table = \"users.csv\"\nfields = {{ A = \"${{row:age}}\" }}"),
            7,
            17,
            "the table has the columns user, token",
        ),
        (format!("{steps}fields = {{ A = \"${{row:user}}\" }}"), 6, 17, "needs a table"),
    ] {
        check(&devices(&rest), line, column, part);
    }
    check(
        "[load]\nfor = \"1s\"\n[devices.\"a b\"]\ntarget = \"http://h\"\nsteps = [{ request = \"/\" }]",
        3,
        10,
        "a name has",
    );
    check("[load]\nfor = \"1s\"\n[devices]\n", 3, 1, "there are no devices");
    check("[load]\nfor = \"1s\"\n", 1, 1, "the file needs `devices`");
    check(
        "[load]\nrate = 1\nfor = \"1s\"\n[devices.a]\ntarget = \"http://h\"\nsteps = [{ request = \"/\" }]\n[devices.b]\ntarget = \"http://h\"\nsteps = [{ request = \"/\" }]",
        7,
        10,
        "`b` is a second kind",
    );
}

#[test]
fn faults_of_protocol_options_are_reported() {
    let mqtt = "target = \"mqtt://h\"\nsteps = [\"ping\"]\n";
    let tcp = "target = \"tcp://h:1\"\nsteps = [\"expect\"]\n";
    let https = "target = \"https://h\"\nsteps = [{ request = \"/\" }]\n";
    for (rest, line, column, part) in [
        (
            format!("{mqtt}mqtt = {{ version = \"4\" }}"),
            6,
            20,
            "`version = \"4\"` is unknown; use one of 3.1.1, 5",
        ),
        (format!("{mqtt}mqtt = {{ keep_alive = \"1.5s\" }}"), 6, 23, "whole seconds, at most 65535"),
        (format!("{mqtt}mqtt = {{ keep_alive = \"20h\" }}"), 6, 23, "whole seconds, at most 65535"),
        (format!("{mqtt}mqtt = {{ session_expiry = \"1h\" }}"), 6, 10, "requires `version = \"5\"`"),
        (format!("{mqtt}mqtt = {{ password = \"x\" }}"), 6, 10, "needs `user`"),
        (format!("{mqtt}mqtt = {{ clean = \"no\" }}"), 6, 18, "`clean` must be true or false, not a string"),
        (format!("{mqtt}mqtt = {{ will = {{ payload = \"x\" }} }}"), 6, 17, "will needs `topic`"),
        (format!("{mqtt}mqtt = {{ will = {{ topic = \"a/+\" }} }}"), 6, 30, "`+` is for subscriptions"),
        (
            format!("{mqtt}mqtt = {{ will = {{ topic = \"a\", qos = 3 }} }}"),
            6,
            38,
            "`qos = 3` is out of range: 0 to 2",
        ),
        (format!("{tcp}framing = \"lines\""), 6, 11, "did you mean `line`?"),
        (format!("{tcp}framing = {{ prefix_bytes = 3 }}"), 6, 28, "use 1, 2 or 4"),
        (format!("{tcp}framing = {{ fixed_bytes = 0 }}"), 6, 27, "out of range: 1 to 1048576"),
        (
            format!("{tcp}framing = {{ fixed_bytes = 1, byte_order = \"big\" }}"),
            6,
            30,
            "requires `prefix_bytes`",
        ),
        (format!("{tcp}framing = {{}}"), 6, 11, "`framing` must be \"none\", \"line\""),
        (format!("{https}tls = {{ ca = \"users.csv\" }}"), 6, 14, "not a PEM file"),
        (format!("{https}tls = {{ key = \"ca.pem\" }}"), 6, 9, "needs `certificate`"),
        (
            format!("{https}tls = {{ ca = \"ca.pem\", verify = false }}"),
            6,
            9,
            "has no effect with `verify = false`",
        ),
    ] {
        check(&devices(&rest), line, column, part);
    }
    check(
        &devices("target = \"ws://h\"\nsubprotocols = [\"a b\"]\nsteps = [\"ping\"]"),
        5,
        17,
        "a name of letters",
    );
    check(&devices("target = \"ws://h/${x}\"\nsteps = [\"ping\"]"), 4, 18, "`${x}` is unknown");
    let fields = |name: &str| {
        devices(&format!("target = \"ws://h\"\nsteps = [\"ping\"]\nfields = {{ {name} = \"x\" }}"))
    };
    check(&fields("Sec-WebSocket-Key"), 6, 12, "is set automatically");
    check(&fields("connection"), 6, 12, "is set automatically");
    check(&devices("target = \"tcp://h\"\nsteps = [\"expect\"]"), 4, 10, "no default port");
}

#[test]
fn faults_of_steps_are_reported() {
    for (target, text, column, part) in [
        ("http://h", "{ reqest = \"/\" }", 12, "unknown step `reqest`; did you mean `request`?"),
        ("http://h", "{ jump = 1 }", 10, "a step needs one of connect, request"),
        ("http://h", "\"conect\"", 10, "did you mean `connect`?"),
        ("http://h", "17", 10, "a step is a table"),
        (
            "http://h",
            "{ request = \"/\", sleep = \"1s\" }",
            10,
            "has one action; this one has `request` and `sleep`",
        ),
        ("http://h", "{ request = \"/\", methd = \"GET\" }", 27, "unknown key `methd` in step request"),
        ("http://h", "{ request = \"get /\" }", 22, "a method in capitals"),
        ("http://h", "{ request = \"orders\" }", 22, "a method in capitals and a path"),
        ("http://h", "{ request = \"CONNECT /\" }", 22, "a method in capitals"),
        ("http://h", "{ request = \"GET /a b\" }", 22, "%20"),
        ("http://h", "{ request = \"/${hex:0}\" }", 24, "`${hex:0}` needs a number of digits"),
        (
            "http://h",
            "{ request = \"POST /\", body = \"a\", json = 1 }",
            44,
            "cannot be combined with `body`",
        ),
        ("http://h", "{ request = \"POST /\", json = { n = inf } }", 39, "JSON has no inf"),
        ("http://h", "{ request = \"POST /\", json = { n = \"${who}\" } }", 46, "`${who}` is unknown"),
        (
            "http://h",
            "{ request = \"/\", check = { status = 99 } }",
            46,
            "`status = 99` is out of range: 100 to 599",
        ),
        ("http://h", "{ request = \"/\", check = { status = [200, \"299-200\"] } }", 52, "a range as in"),
        ("http://h", "{ request = \"/\", check = { code = 200 } }", 37, "unknown key `code` in check"),
        (
            "http://h",
            "{ request = \"/\", check = { body = 3 } }",
            44,
            "`body` must be a string, not an integer",
        ),
        ("http://h", "{ request = \"/\", name = \"\" }", 34, "a name has 1 to 80 characters"),
        ("http://h", "{ publish = \"a\" }", 12, "`publish` requires mqtt(s); the target is http"),
        ("http://h", "{ send = \"a\" }", 12, "`send` requires ws(s) or tcp or tls; the target is http"),
        (
            "http://h",
            "\"expect\"",
            10,
            "`expect` requires ws(s) or mqtt(s) or tcp or tls; the target is http",
        ),
        (
            "http://h",
            "{ expect = \"a\" }",
            12,
            "`expect` requires ws(s) or mqtt(s) or tcp or tls; the target is http",
        ),
        ("tcp://h:1", "\"ping\"", 10, "`ping` requires ws(s) or mqtt(s); the target is tcp"),
        ("ws://h", "{ request = \"/\" }", 12, "`request` requires http(s); the target is ws"),
        ("ws://h", "{ send = \"0g\", as = \"hex\" }, \"expect\"", 19, "hexadecimal"),
        ("ws://h", "{ send = \"a\", as = \"text \" }, \"expect\"", 29, "did you mean `text`?"),
        ("ws://h", "{ ping = false }", 19, "remove the step"),
        ("mqtt://h", "{ publish = \"a/#\", qos = 1 }", 25, "`#` is for subscriptions"),
        ("mqtt://h", "{ publish = \"\", qos = 1 }", 22, "1 to 65535 bytes"),
        ("mqtt://h", "{ subscribe = \"a/#/b\" }", 24, "`#` must be the last level"),
        ("mqtt://h", "{ subscribe = [\"a\", \"b+\"] }", 30, "takes a whole level"),
        ("mqtt://h", "{ subscribe = [] }", 24, "`subscribe` is empty"),
        ("http://h", "{ sleep = \"1\" }", 20, "a time needs a unit"),
        ("http://h", "{ sleep = \"1s\", give_or_take = \"120%\" }", 41, "more than 100%"),
        (
            "http://h",
            "{ sleep = \"1s\", give_or_take = \"10%\", exponential = true }",
            26,
            "has no effect with `exponential`",
        ),
        (
            "http://h",
            "{ repeat = 0, steps = [{ request = \"/\" }] }",
            21,
            "`repeat = 0` is out of range: 1 to",
        ),
        ("http://h", "{ repeat = 2 }", 10, "step repeat needs `steps`"),
        ("http://h", "{ repeat = 2, steps = [] }", 32, "`steps` is empty"),
    ] {
        check(&step(target, text), 5, column, part);
    }
    let mut deep = "{ request = \"/\" }".to_owned();
    for _ in 0..4 {
        deep = format!("{{ repeat = 2, steps = [{deep}] }}");
    }
    assert!(parse(&step("http://h", &deep)).is_ok());
    let deeper = step("http://h", &format!("{{ repeat = 2, steps = [{deep}] }}"));
    check(&deeper, 5, 10 + 4 * 23 + 2, "nested deeper than 4");
}

#[test]
fn steps_in_an_impossible_order_are_refused() {
    let request = "{ request = \"/\" }";
    for (steps, column, part) in [
        (format!("{request}, \"connect\""), 29, "the device is already connected: add `close`"),
        (format!("{request}, \"close\", {request}"), 40, "`request` needs a connection: add `connect`"),
        (
            format!("{request}, \"close\", \"close\""),
            38,
            "`close` is not possible here, because the connection is already closed",
        ),
        (
            format!("{request}, {{ repeat = 2, steps = [{request}, \"close\"] }}"),
            31,
            "begins connected, so it must end connected",
        ),
        (
            format!("{{ repeat = 2, steps = [\"connect\", {request}] }}"),
            12,
            "begins with `connect`, so it must end with `close`",
        ),
        (
            format!("{{ repeat = 2, steps = [\"connect\", {request}, \"close\"] }}, \"connect\""),
            9,
            "begins with `connect` in a repetition",
        ),
        ("\"connect\"".to_owned(), 9, "a turn never waits"),
        (
            format!("{{ repeat = 2, steps = [{request}] }}, {{ connect = true }}"),
            57,
            "the device is already connected",
        ),
    ] {
        check(&step("http://h", &steps), 5, column, part);
    }
    check(&step("tcp://h:1", "{ send = \"a\" }"), 5, 9, "a turn never waits");
    check(&step("mqtt://h", "{ publish = \"a\" }"), 5, 9, "a turn never waits");
    check(
        &step("tcp://h:1", "{ repeat = 5000, steps = [{ send = \"a\" }] }, \"expect\""),
        5,
        12,
        "never waits",
    );
    let setup = "target = \"ws://h\"\non_connect = [\"close\"]\nsteps = [\"expect\"]";
    check(&devices(setup), 5, 15, "is not allowed in `on_connect`");
    let deep = "target = \"ws://h\"\non_connect = [{ repeat = 1, steps = [{ repeat = 1, steps = [{ repeat = 1, steps = [{ repeat = 1, steps = [\"ping\"] }] }] }] }]\nsteps = [{ repeat = 2, steps = [\"connect\", \"close\"] }]";
    check(&devices(deep), 6, 33, "runs `on_connect`, which nests repetitions deeper than 4");
}

#[test]
fn single_turns_and_arrivals_need_not_wait() {
    for load in ["turns = 1", "rate = 5\nfor = \"1s\""] {
        let text =
            format!("[load]\n{load}\n[devices.d]\ntarget = \"tcp://h:1\"\nsteps = [{{ send = \"a\" }}]");
        parse(&text).unwrap_or_else(|faults| panic!("{faults}"));
    }
}

#[test]
fn all_faults_are_reported_in_file_order() {
    let text = "[laod]\n[load]\nrate = 0\n[devices.d]\ncount = -1\ntarget = \"http://h\"\nsteps = [{ request = \"x\" }, { sleep = 3 }, \"ping\"]\nspeed = 1\n";
    let found = faults(text);
    let positions: Vec<_> = found.faults.iter().map(|fault| (fault.line, fault.column)).collect();
    assert_eq!(positions, [(1, 2), (2, 1), (3, 8), (5, 9), (7, 22), (7, 39), (7, 44), (8, 1)], "{found}");
    assert!(found.to_string().starts_with("a.toml:1:2: unknown key `laod` in the file; did you mean `load`?\n    [laod]\n     ^^^^\na.toml:2:1:"), "{found}");
}

#[test]
fn syntax_errors_have_positions() {
    let found = faults("[load]\nfor = 30s\nrate = = 2\n");
    let lines: Vec<_> = found.faults.iter().map(|fault| fault.line).collect();
    assert!(lines.contains(&2) && lines.contains(&3), "{found}");
    check("[load]\nfor = \"1s\nrate = 2\n", 2, 10, "");
    check("[load]\nfor = \"1s\"\nfor = \"2s\"\n", 3, 1, "duplicate key");
}

proptest! {
    /// Parsing truncated and damaged files does not panic, and the positions of faults are within the file.
    #[test]
    fn damaged_scenarios_cause_no_panic(which in 0..5_usize, from in 0..2000_usize, length in 0..40_usize, put in "[\\[\\]{}\"'=.,#0-9a-z\n ${}ä-]{0,6}") {
        let (_, text) = examples().swap_remove(which);
        let floor = |mut at: usize| { while !text.is_char_boundary(at) { at -= 1 } at };
        let from = floor(from.min(text.len()));
        let to = floor((from + length).min(text.len()));
        let text = format!("{}{put}{}", &text[..from], &text[to..]);
        if let Err(faults) = parse(&text) {
            prop_assert!(!faults.faults.is_empty());
            for fault in faults.faults {
                let line = text.lines().nth(fault.line - 1).unwrap_or_default();
                prop_assert!(fault.line <= text.lines().count().max(1), "{fault}");
                prop_assert!(fault.column <= line.chars().count() + 1, "{fault}");
            }
        }
    }
}
