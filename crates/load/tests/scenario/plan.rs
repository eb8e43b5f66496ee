//! Tests the plans to which scenarios are compiled.

use std::net::SocketAddr;

use beamtune_load::LoadError;
use beamtune_load::clock::SECOND_NS;
use beamtune_load::program::{Delay, Model, Op, Plan};
use beamtune_load::protocol::Message;
use beamtune_load::protocol::mqtt::{MqttMessage, Qos, Version};
use beamtune_load::scenario::{Action, Framing, ProtocolOptions, Scenario};
use beamtune_load::template::Values;
use rand_core::SeedableRng;
use rand_xoshiro::Xoroshiro128PlusPlus;

use super::{examples, parse, read};

const HERE: &str = "127.0.0.1:8080";

fn compiled(text: &str) -> Plan {
    let scenario = parse(text).unwrap_or_else(|faults| panic!("{faults}"));
    let here: SocketAddr = HERE.parse().unwrap();
    scenario.compile(5 * SECOND_NS, &|_| here, &Vec::new).unwrap()
}

/// Formats the operations as text, with the index of their step.
fn operations(plan: &Plan) -> Vec<String> {
    let operation = |op: &Op| match op {
        Op::Connect { step } => format!("connect {step}"),
        Op::Send { step, .. } => format!("send {step}"),
        Op::Expect { step, .. } => format!("expect {step}"),
        Op::Sleep(_) => "sleep".to_owned(),
        Op::Begin { counter } => format!("begin {counter}"),
        Op::Repeat { counter, times, back_to } => format!("repeat {counter} {times} {back_to}"),
        Op::Close => "close".to_owned(),
        Op::Next => "next".to_owned(),
    };
    plan.kinds[0].ops.iter().map(operation).collect()
}

/// Renders the HTTP request of an operation.
fn request(plan: &Plan, op: usize, device: u64) -> String {
    let Op::Send { message: Message::Http(message), .. } = &plan.kinds[0].ops[op] else { panic!("{plan:?}") };
    let mut random = Xoroshiro128PlusPlus::seed_from_u64(1);
    let mut values = Values { device, turn: 0, count: &mut 0, random: &mut random, now_ns: 0 };
    let mut out = Vec::new();
    message.render(&mut values, &mut Vec::new(), &mut out);
    String::from_utf8(out).unwrap()
}

fn http(steps: &str) -> String {
    format!("[load]\nfor = \"1s\"\n[devices.d]\ntarget = \"http://h:81\"\nsteps = [{steps}]")
}

#[test]
fn a_hundred_thousand_devices_need_at_most_twelve_lines() {
    let text = read("fixtures/load/http-devices.toml");
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    assert!(lines.count() <= 12, "{text}");
    let plan = compiled(&text);
    let kind = &plan.kinds[0];
    assert_eq!((kind.devices, kind.endpoint.address.to_string().as_str()), (100_000, HERE));
    let Model::Closed { ramp_ns, turns: Some(1), .. } = plan.model else { panic!("{:?}", plan.model) };
    assert_eq!(ramp_ns, 60 * SECOND_NS);
    assert_eq!(operations(&plan), ["connect 0", "begin 0", "send 1", "sleep", "repeat 0 100 2", "next"]);
    assert_eq!(kind.body, 1);
    assert_eq!(plan.steps, ["connect", "GET /meter/${device}"]);
    assert!(matches!(kind.ops[3], Op::Sleep(Delay::Uniform { nanoseconds: 900_000_000, jitter: 0.1 })));
    assert_eq!(request(&plan, 2, 7), "GET /meter/7 HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n");
}

#[test]
fn an_open_load_connects_its_devices_before_the_schedule_begins() {
    let plan = compiled(&read("fixtures/load/http-open.toml"));
    let Model::Open { profile, .. } = plan.model else { panic!("{:?}", plan.model) };
    assert_eq!(
        (profile.per_second, profile.ramp_ns, profile.sustain_ns),
        (2000.0, 5 * SECOND_NS, 30 * SECOND_NS)
    );
    assert_eq!((plan.connect_ns, plan.start_ns), (SECOND_NS / 2, 5 * SECOND_NS + SECOND_NS / 2));
    assert_eq!(plan.steps, ["connect", "order"]);
    let Op::Send { checks, .. } = &plan.kinds[0].ops[1] else { panic!("{plan:?}") };
    assert_eq!(checks.statuses, [(200, 200), (201, 201)]);
    assert_eq!(checks.fields, [("Content-Type".to_owned(), "json".to_owned())]);
    assert_eq!(checks.body, ["\"id\""]);
    let text = request(&plan, 1, 2);
    let body = r#"{"user":"O'Neil, \"Tip\"","items":[1,2]}"#;
    assert!(text.starts_with("POST /orders?item="), "{text}");
    let rest = format!(
        " HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nAccept: application/json\r\nAuthorization: Bearer c04e5d\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    assert!(text.ends_with(&rest), "{text}");
}

#[test]
fn fields_of_a_request_replace_those_of_the_device() {
    let text = http("{ request = \"DELETE /x\", fields = { host = \"other\", A = \"2\" } }")
        + "\nfields = { a = \"1\", B = \"3\" }";
    assert_eq!(request(&compiled(&text), 1, 0), "DELETE /x HTTP/1.1\r\nB: 3\r\nhost: other\r\nA: 2\r\n\r\n");
}

#[test]
fn a_connection_lasts_longer_than_a_turn_unless_the_turn_closes_it() {
    let request = "{ request = \"/\" }";
    let sleep = "{ sleep = \"1s\" }";
    for (steps, expected, body) in [
        (request.to_owned(), "connect 0, send 1, next", 1),
        (format!("\"connect\", {request}"), "connect 0, send 1, next", 1),
        (format!("{sleep}, \"connect\", {request}"), "sleep, connect 0, send 1, next", 2),
        (format!("\"connect\", {request}, \"close\""), "connect 0, send 1, close, next", 0),
        (format!("{request}, \"close\", {sleep}"), "connect 0, send 1, close, sleep, next", 0),
        (
            format!(
                "{{ repeat = 3, steps = [\"connect\", {request}, \"close\"] }}, {{ repeat = 2, steps = [{sleep}] }}"
            ),
            "begin 0, connect 0, send 1, close, repeat 0 3 1, begin 0, sleep, repeat 0 2 6, next",
            0,
        ),
        (
            format!("{request}, \"close\", \"connect\", {request}"),
            "connect 0, send 1, close, connect 0, send 1, next",
            1,
        ),
        (
            format!("{{ repeat = 2, steps = [{{ repeat = 3, steps = [{request}] }}] }}"),
            "connect 0, begin 0, begin 1, send 1, repeat 1 3 3, repeat 0 2 2, next",
            1,
        ),
    ] {
        let plan = compiled(&http(&steps));
        assert_eq!(operations(&plan).join(", "), expected, "{steps}");
        assert_eq!(plan.kinds[0].body, body, "{steps}");
    }
}

#[test]
fn on_connect_runs_after_every_connect() {
    let text =
        http("{ request = \"/a\" }, \"close\", { connect = true, name = \"again\" }, { request = \"/b\" }")
            + "\non_connect = [{ request = \"/login\", name = \"login\" }]";
    let plan = compiled(&text);
    assert_eq!(
        operations(&plan),
        ["connect 0", "send 1", "send 2", "close", "connect 3", "send 1", "send 4", "next"]
    );
    assert_eq!(plan.steps, ["connect", "login", "GET /a", "again", "GET /b"]);
    assert_eq!(plan.kinds[0].body, 2);
}

#[test]
fn steps_are_counted_by_kind_and_name() {
    let kind =
        "target = \"http://h\"\nsteps = [{ request = \"/\" }, { request = \"/x\", name = \"GET /\" }]\n";
    let text = format!("[load]\nfor = \"1s\"\n[devices.b]\n{kind}[devices.a]\n{kind}");
    let plan = compiled(&text);
    assert_eq!(plan.steps, ["b: connect", "b: GET /", "a: connect", "a: GET /"]);
    assert_eq!(plan.kinds.iter().map(|kind| kind.name.as_str()).collect::<Vec<_>>(), ["b", "a"]);
}

#[test]
fn a_source_with_the_other_ip_version_is_refused() {
    let scenario = parse(&(http("{ request = \"/\" }") + "\nsources = \"127.0.0.2\"")).unwrap();
    let error = scenario.compile(0, &|_| "[::1]:81".parse().unwrap(), &Vec::new).unwrap_err();
    assert!(matches!(error, LoadError::SourceFamily { .. }), "{error}");
    assert_eq!(scenario.targets().len(), 1);
}

fn example(name: &str) -> Scenario {
    let (_, text) = examples().into_iter().find(|(known, _)| known == name).expect(name);
    parse(&text).unwrap()
}

#[test]
fn websocket_options_and_steps_are_parsed() {
    let scenario = example("websocket-chat.toml");
    let kind = &scenario.kinds[0];
    let ProtocolOptions::WebSocket { subprotocols, fields, .. } = &kind.protocol else { panic!("{kind:?}") };
    assert_eq!(subprotocols, &["chat.v2", "chat.v1"]);
    assert_eq!(fields[0].0, "Cookie");
    assert_eq!((kind.on_connect.len(), kind.steps.len(), kind.timeout_ns), (2, 4, 5 * SECOND_NS));
    assert!(matches!(
        &kind.steps[0].action,
        Action::Sleep(Delay::Exponential { nanoseconds: 8_000_000_000 })
    ));
    let Action::Repeat { times: 2, steps } = &kind.steps[3].action else { panic!("{kind:?}") };
    let Action::Send { payload, is_text: false } = &steps[1].action else { panic!("{steps:?}") };
    assert_eq!(payload.fixed(), Some(&[0, 1, 255][..]));
}

#[test]
fn mqtt_options_and_steps_are_parsed() {
    let scenario = example("mqtt-sensors.toml");
    let ProtocolOptions::Mqtt(sensor) = &scenario.kinds[0].protocol else { panic!("{scenario:?}") };
    let will = sensor.will.as_ref().unwrap();
    assert_eq!((sensor.version, sensor.keep_alive_seconds, sensor.is_clean), (Version::V311, 120, true));
    assert_eq!((will.qos, will.is_retained), (Qos::AtLeastOnce, true));
    let panel = &scenario.kinds[1];
    let ProtocolOptions::Mqtt(options) = &panel.protocol else { panic!("{scenario:?}") };
    assert_eq!(
        (options.version, options.session_expiry_seconds, options.is_clean),
        (Version::V5, 3600, false)
    );
    assert_eq!((panel.target.port, panel.tls.as_ref().unwrap().server_name.as_str()), (8883, "broker"));
    let Action::Mqtt(message) = &panel.on_connect[0].action else { panic!("{panel:?}") };
    let MqttMessage::Subscribe(filters) = &**message else { panic!("{message:?}") };
    let filters: Vec<_> = filters.iter().map(|(filter, qos)| (filter.fixed().unwrap(), *qos)).collect();
    assert_eq!(filters, [(&b"sensor/+/temperature"[..], Qos::AtLeastOnce), (b"gone/#", Qos::AtLeastOnce)]);
}

#[test]
fn framings_are_parsed() {
    for (framing, expected) in [
        ("\"none\"", Framing::None),
        ("\"line\"", Framing::Line),
        ("{ prefix_bytes = 2 }", Framing::Prefix { bytes: 2, is_little_endian: false }),
        (
            "{ prefix_bytes = 4, byte_order = \"little\" }",
            Framing::Prefix { bytes: 4, is_little_endian: true },
        ),
        ("{ fixed_bytes = 16 }", Framing::Fixed { bytes: 16 }),
    ] {
        let text = format!(
            "[load]\nfor = \"1s\"\n[devices.d]\ntarget = \"tcp://h:1\"\nframing = {framing}\nsteps = [\"expect\"]"
        );
        let scenario = parse(&text).unwrap();
        let ProtocolOptions::Raw(framing) = scenario.kinds[0].protocol else { panic!("{scenario:?}") };
        assert_eq!(framing, expected);
    }
}

#[test]
fn tls_keys_are_not_shown() {
    let text = "[load]\nfor = \"1s\"\n[devices.d]\ntarget = \"https://h\"\ntls = { certificate = \"ca.pem\", key = \"ca.pem\" }\nsteps = [{ request = \"/\" }]";
    let shown = format!("{:?}", parse(text).unwrap());
    assert!(shown.contains("Pem(\"ca.pem\", 27 bytes)"), "{shown}");
}

#[test]
fn a_step_of_another_protocol_is_refused() {
    let mut scenario = parse(&http("{ request = \"/\" }")).unwrap();
    scenario.kinds[0].steps[0].action = Action::Ping;
    let error = scenario.compile(0, &|_| HERE.parse().unwrap(), &Vec::new).unwrap_err();
    assert_eq!(error.to_string(), "devices.d: GET /: this step is not possible over http");
}
