//! TLS below every protocol, with a certificate that vouches for itself.

use crate::common::{beamtune, run, text};
use crate::servers::{Daemon, chat, mosquitto, nginx};
use crate::{clean, load, step};

/// A scenario of a server with TLS; `tls` is what it says of it.
fn scenario(server: &Daemon, target: &str, tls: &str, steps: &str) -> String {
    let words = format!(
        "[load]\nturns = 20\n[devices.d]\ncount = 5\ntarget = \"{target}:{}{}\"\n{tls}\nsteps = [{steps}]\n",
        server.tls_port,
        if target.starts_with("wss") { "/socket" } else { "" }
    );
    let file = server.folder.path().join("scenario.toml");
    std::fs::write(&file, words).expect("written");
    text(&file)
}

const CA: &str = "tls = { ca = \"cert.pem\" }";

/// That `steps` are done a hundred times if the certificate is named, and refused with words about it otherwise.
fn check(server: &Daemon, scheme: &str, steps: &str, counted: &str) {
    let target = format!("{scheme}://localhost");
    for tls in [CA, "tls = { verify = false }"] {
        let result = clean(&mut load(&[&scenario(server, &target, tls, steps)]));
        assert_eq!((step(&result, counted).done, step(&result, "connect").done), (100, 5), "{scheme} {tls}");
    }
    let refused = |target: &str, tls, words: &[&str]| {
        run(beamtune().args(["load", &scenario(server, target, tls, steps)])).assert_refused(words);
    };
    let untrusted = ["no TLS with", "vouches for its certificate", "tls = { ca = \"FILE.pem\" }"];
    refused(&target, "", &untrusted);
    let names = ["its certificate is for", "localhost", "not for 127.0.0.1", "server_name"];
    refused(&format!("{scheme}://127.0.0.1"), CA, &names);
}

#[test]
fn https_is_verified() {
    let Some(nginx) = nginx(1) else { return };
    check(&nginx, "https", "{ request = \"/large\" }, { request = \"/small\" }", "GET /large");
}

#[test]
fn wss_is_verified() {
    let chat = chat();
    let Some(nginx) = nginx(chat.address.port()) else { return };
    check(&nginx, "wss", "{ send = \"a ${count}\" }, \"expect\", \"ping\"", "ping");
}

#[test]
fn mqtts_is_verified() {
    let Some(broker) = mosquitto() else { return };
    let steps = "{ publish = \"a/${device}\", payload = \"${count}\", qos = 2 }, \"ping\"";
    check(&broker, "mqtts", steps, "publish a/${device}");
}

#[test]
fn a_target_without_tls_is_said_to_be_one() {
    let Some(nginx) = nginx(1) else { return };
    let url = format!("https://localhost:{}/", nginx.port);
    run(beamtune().args(["load", &url, "--for", "1s"])).assert_refused(&["does not speak TLS there"]);
}
