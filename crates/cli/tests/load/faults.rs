//! What cannot be done is said before the start; what goes wrong on the way is counted and told.

use std::io::Write;

use crate::common::{beamtune, folder, run, text};
use crate::servers::{Server, free_port, http};
use crate::{load, result_of, step};

#[test]
fn a_target_that_is_not_there_is_said_before_the_start() {
    let url = format!("http://127.0.0.1:{}/", free_port());
    run(beamtune().args(["load", &url]))
        .assert_refused(&["nothing listens at 127.0.0.1:", "start the target"]);
    let name = "http://no-such-host.invalid/";
    run(beamtune().args(["load", name]))
        .assert_refused(&["the name no-such-host.invalid cannot be resolved"]);
    run(beamtune().args(["load", "gopher://h/"])).assert_refused(&["gopher"]);
    run(beamtune().args(["load", "no/such.toml"])).assert_refused(&["cannot read the scenario no/such.toml"]);
}

#[test]
fn all_that_is_wrong_with_a_scenario_is_said_with_its_places() {
    let folder = folder();
    let file = folder.path().join("wrong.toml");
    let words = "[load]\nrate = -1\nfor = \"3 parsecs\"\n\n[devices.d]\ntarget = \"http://127.0.0.1\"\nsteps = [{ reqest = \"/\" }]\n";
    std::fs::write(&file, words).expect("written");
    let said = run(beamtune().args(["load", &text(&file)]));
    said.assert_refused(&["wrong.toml:2:8", "wrong.toml:3:7", "wrong.toml:7:", "`request`"]);
}

#[test]
fn too_few_ports_are_said_before_the_start() {
    let server = http(|| {});
    // Only loopback has addresses enough by itself; a source that is named is all there is.
    let url = format!("http://{}/", server.address);
    let said = run(beamtune().args(["load", &url, "--connections", "200000", "--source", "127.0.0.1"]));
    said.assert_refused(&["local ports", "--source"]);
}

#[test]
fn errors_are_counted_by_kind_and_the_status_says_so() {
    let server = Server::start(|mut stream, _| {
        let _ = stream.write_all(b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n");
    });
    let url = format!("http://{}/", server.address);
    let said = run(&mut load(&[&url, "--rate", "50", "--connections", "2", "--for", "1s"]));
    assert_eq!(said.status, Some(1), "{}", said.stderr);
    let result = result_of(&said);
    let step = step(&result, "GET /");
    assert!(result.errors() > 0 && step.done == 0, "{step:?}");
    let said = run(beamtune().args(["load", &url, "--rate", "50", "--connections", "2", "--for", "1s"]));
    assert!(said.stdout.contains("the first one said"), "{}", said.stdout);
}
