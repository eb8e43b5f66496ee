//! TLS with every protocol, with a self-signed certificate.

use std::path::Path;

use crate::common::{beamtune, folder, run, text};
use crate::servers::{Server, certificate, chat, expired_certificate, mosquitto, nginx, tls_lines};
use crate::{clean, load, step};

/// Writes a scenario for a TLS server to the folder of its certificate. `options` are options of the devices.
fn scenario(folder: &Path, target: &str, options: &str, steps: &str) -> String {
    let words = format!(
        "[load]\nturns = 20\n[devices.d]\ncount = 5\ntarget = \"{target}\"\n{options}\nsteps = [{steps}]\n"
    );
    let file = folder.join("scenario.toml");
    std::fs::write(&file, words).expect("written");
    text(&file)
}

/// Asserts that `steps` are done 100 times if the certificate is trusted, and that the load is refused with a reason if not. `HOST` in the
/// target is replaced by the host.
fn check(folder: &Path, target: &str, options: &str, steps: &str, counted: &str) {
    let scenario =
        |host, tls| scenario(folder, &target.replace("HOST", host), &format!("{options}\n{tls}"), steps);
    let named = "tls = { ca = \"cert.pem\" }";
    for tls in [named, "tls = { verify = false }"] {
        let result = clean(&mut load(&[&scenario("localhost", tls)]));
        assert_eq!((step(&result, counted).done, step(&result, "connect").done), (100, 5), "{target} {tls}");
    }
    let refused = |host, tls, words: &[&str]| {
        run(beamtune().args(["load", &scenario(host, tls)])).assert_refused(words);
    };
    let untrusted =
        ["TLS handshake with", "its certificate has an unknown issuer", "tls = { ca = \"FILE.pem\" }"];
    refused("localhost", "", &untrusted);
    refused("127.0.0.1", named, &["its certificate is for", "localhost", "not for 127.0.0.1", "server_name"]);
}

#[test]
fn https_is_verified() {
    let Some(nginx) = nginx(1) else { return };
    let target = format!("https://HOST:{}", nginx.tls_port);
    let steps = "{ request = \"/large\" }, { request = \"/small\" }";
    check(nginx.folder.path(), &target, "", steps, "GET /large");
}

#[test]
fn wss_is_verified() {
    let chat = chat();
    let Some(nginx) = nginx(chat.address.port()) else { return };
    let target = format!("wss://HOST:{}/socket", nginx.tls_port);
    check(nginx.folder.path(), &target, "", "{ send = \"a ${count}\" }, \"expect\", \"ping\"", "ping");
}

#[test]
fn mqtts_is_verified() {
    let Some(broker) = mosquitto() else { return };
    let target = format!("mqtts://HOST:{}", broker.tls_port);
    let steps = "{ publish = \"a/${device}\", payload = \"${count}\", qos = 2 }, \"ping\"";
    check(broker.folder.path(), &target, "", steps, "publish a/${device}");
}

#[test]
fn frames_over_tls_are_verified() {
    let folder = folder();
    certificate(folder.path());
    let lines = tls_lines(folder.path());
    let target = format!("tls://HOST:{}", lines.address.port());
    let steps = "{ send = \"GET ${count}\" }, { expect = \"OK\" }";
    check(folder.path(), &target, "framing = \"line\"", steps, "expect");
}

#[test]
fn target_without_tls_is_reported_as_such() {
    let Some(nginx) = nginx(1) else { return };
    let url = format!("https://localhost:{}/", nginx.port);
    run(beamtune().args(["load", &url, "--for", "1s"])).assert_refused(&["does not use TLS on this port"]);
}

#[test]
fn expired_certificate_is_refused() {
    let folder = folder();
    expired_certificate(folder.path());
    let lines = tls_lines(folder.path());
    let target = format!("tls://localhost:{}", lines.address.port());
    let scenario =
        scenario(folder.path(), &target, "tls = { ca = \"ca.pem\" }", "{ send = \"GET 1\" }, \"expect\"");
    run(beamtune().args(["load", &scenario]))
        .assert_refused(&["TLS handshake with", "its certificate has expired"]);
}

#[test]
fn incomplete_tls_handshake_is_reported_before_the_start() {
    let silent = Server::start(|mut stream, _| {
        let _ = std::io::Read::read_to_end(&mut stream, &mut Vec::new());
    });
    let url = format!("https://{}/", silent.address);
    run(beamtune().args(["load", &url]))
        .assert_refused(&["TLS handshake with", "no answer within the timeout"]);
}
