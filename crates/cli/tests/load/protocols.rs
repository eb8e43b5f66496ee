//! Tests every protocol: with the examples of fixtures/load at a smaller scale, and with URLs on the command line.

use crate::common::folder;
use crate::servers::{chat, lines, mosquitto, nginx};
use crate::{arrivals, clean, example, load, step};

#[test]
fn http_examples_run() {
    let Some(nginx) = nginx(1) else { return };
    let folder = folder();
    let port = format!("127.0.0.1:{}", nginx.port);
    let devices = [
        ("127.0.0.1:8080", port.as_str()),
        ("count = 100_000", "count = 20"),
        ("ramp = \"60s\"", "ramp = \"500ms\""),
        ("repeat = 100", "repeat = 3"),
        ("900ms", "20ms"),
    ];
    let result = clean(&mut load(&[&example(folder.path(), "http-devices.toml", &devices)]));
    assert_eq!((step(&result, "GET /meter/${device}").done, step(&result, "connect").done), (60, 20));
    assert_eq!(result.unfinished, 0);

    let open = [
        ("127.0.0.1:8080", port.as_str()),
        ("rate = 2000", "rate = 300"),
        ("ramp = \"5s\"", "ramp = \"500ms\""),
        ("for = \"30s\"", "for = \"2s\""),
        ("count = 100", "count = 20"),
    ];
    let result = clean(&mut load(&[&example(folder.path(), "http-open.toml", &open)]));
    let order = step(&result, "order");
    assert_eq!((order.done, order.received_bytes), (arrivals(&result), Some(arrivals(&result) * 9)));
    // 300 per second for two seconds, and half that rate during the ramp. The interval is 5 standard deviations of a Poisson
    // distribution.
    assert!((540..810).contains(&order.done), "{}", order.done);
}

#[test]
fn websocket_example_runs() {
    let (chat, folder) = (chat(), folder());
    let changes = [
        ("127.0.0.1:4000", &*chat.address.to_string()),
        ("count = 5000", "count = 20"),
        ("ramp = \"20s\"", "ramp = \"500ms\""),
        ("for = \"2min\"", "for = \"2s\""),
        ("sleep = \"8s\"", "sleep = \"100ms\""),
    ];
    let result = clean(&mut load(&[&example(folder.path(), "websocket-chat.toml", &changes)]));
    let done = |name| step(&result, name).done;
    assert_eq!((done("connect"), done("join"), done("joined")), (20, 20, 20));
    assert!(done("said") >= 100, "{}", done("said"));
    assert_eq!(done("say"), done("said"));
    assert_eq!(done("ping"), 2 * done("said"));
}

#[test]
fn line_example_runs() {
    let (lines, folder) = (lines(), folder());
    let changes = [("127.0.0.1:7000", &*lines.address.to_string()), ("for = \"20s\"", "for = \"2s\"")];
    let result = clean(&mut load(&[&example(folder.path(), "raw-line.toml", &changes)]));
    let done = |name| step(&result, name).done;
    assert_eq!((arrivals(&result), done("command"), done("answer")), (100, 100, 100));
    // One connection per command; the first connections are opened before the start.
    assert!((100..=110).contains(&done("dial")), "{}", done("dial"));
}

#[test]
fn mqtt_example_runs_with_and_without_tls() {
    let Some(broker) = mosquitto() else { return };
    let changes = [
        ("mqtt://127.0.0.1", &*format!("mqtt://127.0.0.1:{}", broker.port)),
        ("mqtts://broker.example.org", &*format!("mqtts://127.0.0.1:{}", broker.tls_port)),
        ("server_name = \"broker\"", "server_name = \"broker\"\nca = \"cert.pem\""),
        ("count = 15_000", "count = 50"),
        ("ramp = \"30s\"", "ramp = \"500ms\""),
        ("for = \"5min\"", "for = \"3s\""),
        ("sleep = \"10s\"", "sleep = \"200ms\""),
        ("count = 20", "count = 3"),
        ("repeat = 100", "repeat = 5"),
    ];
    let result = clean(&mut load(&[&example(broker.folder.path(), "mqtt-sensors.toml", &changes)]));
    let done = |name| step(&result, name).done;
    assert_eq!((done("sensor: connect"), done("panel: connect")), (50, 3));
    assert!(done("sensor: temperature") >= 300, "{}", done("sensor: temperature"));
    assert!(done("panel: expect") >= 3 * 5, "{}", done("panel: expect"));
    assert!(done("panel: unsubscribe gone/#") >= 3);
    assert!(done("panel: ping") >= 3);
}

#[test]
fn url_is_enough_for_every_protocol() {
    let (chat, lines) = (chat(), lines());
    let mut targets =
        vec![(format!("ws://{}/", chat.address), "expect"), (format!("tcp://{}", lines.address), "expect")];
    let nginx = nginx(1);
    targets.extend(nginx.iter().map(|nginx| (format!("http://127.0.0.1:{}/a", nginx.port), "GET /a")));
    let broker = mosquitto();
    let publish = "publish beamtune/${device}";
    targets.extend(broker.iter().map(|broker| (format!("mqtt://127.0.0.1:{}", broker.port), publish)));
    for (url, name) in targets {
        let options = ["--rate", "200", "--even", "--connections", "10", "--for", "1s"];
        let result = clean(&mut load(&[&[url.as_str()][..], &options].concat()));
        assert_eq!((step(&result, name).done, arrivals(&result)), (200, 200), "{url}");
        assert_eq!(result.done(), 200, "{url}: a request without an answer must not be counted as done");
        assert_eq!((result.unfinished, result.is_interrupted), (0, false), "{url}");
        assert!(step(&result, name).response.as_ref().is_some_and(|times| times.max_ns.is_some()), "{url}");
    }
}

#[test]
fn idle_mqtt_devices_stay_connected() {
    let Some(broker) = mosquitto() else { return };
    let url = format!("mqtt://127.0.0.1:{}", broker.port);
    let result = clean(&mut load(&[&url, "--devices", "500", "--idle", "--for", "2s"]));
    assert_eq!((step(&result, "connect").done, result.done()), (500, 0));
    // They connect within 2.5 s and stay for 2 s.
    let last = result.seconds.iter().rev().find(|second| second.second < 4).expect("a second");
    assert_eq!(last.connected, Some(500), "{:?}", result.seconds);
}

#[test]
fn scenario_of_a_url_can_be_written_to_a_file() {
    let (lines, folder) = (lines(), folder());
    let url = format!("tcp://{}", lines.address);
    let mut command = crate::common::beamtune();
    let options = ["--rate", "100", "--even", "--connections", "5", "--for", "1s", "--seed", "3"];
    let output = crate::common::run(command.args(["load", &url, "--print-scenario"]).args(options));
    assert_eq!(output.status, Some(0), "{}", output.stderr);
    let file = folder.path().join("kept.toml");
    std::fs::write(&file, &output.stdout).expect("written");
    let result = clean(&mut load(&[&crate::common::text(&file)]));
    assert_eq!((step(&result, "expect").done, result.seed), (100, Some(3)));
}
