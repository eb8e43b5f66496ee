//! Nodes with TLS distribution, over IPv6 and without EPMD, as a user meets them.
#![allow(clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "these are tests")]

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Otp, Said, TestNode, beamtune, folder, free_port, on_all_otps, otp, run, text, unique};
use tempfile::TempDir;

/// A node whose certificate only itself has signed, for "node".
struct Secure {
    node: TestNode,
    /// The certificate and its key.
    pem: PathBuf,
    _folder: TempDir,
}

fn start(otp: &Otp, protocol: &str, host: &str) -> Secure {
    let root = otp.root.clone().unwrap_or_else(|| PathBuf::from("/"));
    let folder = tempfile::tempdir_in(root.join("tmp")).expect("a folder");
    let pem = folder.path().join("node.pem");
    let mut command = Command::new("openssl");
    command.args(["req", "-x509", "-nodes", "-days", "2", "-newkey", "rsa:2048", "-subj", "/CN=node"]);
    let said = run(command.arg("-keyout").arg(&pem).arg("-out").arg(folder.path().join("certificate")));
    assert_eq!(said.status, Some(0), "{}", said.stderr);
    let certificate = std::fs::read(folder.path().join("certificate")).expect("a certificate");
    let key = std::fs::read(&pem).expect("a key");
    std::fs::write(&pem, [certificate, key].concat()).expect("both");
    let seen = Path::new("/").join(pem.strip_prefix(&root).expect("below the root"));
    let name = format!("{}@{host}", unique("tls"));
    let options = ["-proto_dist", protocol, "-ssl_dist_opt", "server_certfile", &text(&seen)];
    let node = TestNode::named(otp, &["-name", &name], &name, &options, "ok");
    Secure { node, pem, _folder: folder }
}

fn doctor(target: &str, more: &[&str]) -> Said {
    run(beamtune().args(["doctor", target, "--for", "2s", "--json"]).args(more))
}

fn assert_attached(said: &Said) {
    assert!(matches!(said.status, Some(0 | 1)), "{:?}: {}", said.status, said.stderr);
    let samples = said.json()["period"]["vm_samples"].as_i64();
    assert!(samples.is_some_and(|samples| samples > 0), "{:#}", said.json());
}

#[test]
fn a_node_with_tls_is_looked_into_without_any_option() {
    on_all_otps(|otp| {
        let secure = start(otp, "inet_tls", "127.0.0.1");
        let rows = run(beamtune().args(["nodes", "--json"])).json();
        let row = rows.as_array().into_iter().flatten().find(|row| row["pid"] == secure.node.pid()).cloned();
        assert_eq!(row.expect("a row")["attachable"], true);
        assert_attached(&doctor(&secure.node.pid().to_string(), &[]));
        // By its name too.
        assert_attached(&doctor(&secure.node.name, &[]));
    });
}

#[test]
fn a_node_over_ipv6_is_looked_into() {
    on_all_otps(|otp| {
        let name = format!("{}@::1", unique("v6"));
        let node = TestNode::named(otp, &["-name", &name], &name, &["-proto_dist", "inet6_tcp"], "ok");
        assert_attached(&doctor(&node.pid().to_string(), &[]));
        assert_attached(&doctor(&node.name, &[]));
    });
    let Some(otp) = otp(25) else { return };
    assert_attached(&doctor(&start(&otp, "inet6_tls", "::1").node.name, &[]));
}

#[test]
fn a_node_without_epmd_is_looked_into() {
    on_all_otps(|otp| {
        let port = free_port().to_string();
        let name = format!("{}@127.0.0.1", unique("alone"));
        // The kernel's parameter is for OTP 23.0, which has no such flag.
        let options =
            ["-start_epmd", "false", "-erl_epmd_port", &port, "-kernel", "inet_dist_listen_min", &port];
        let node = TestNode::named(otp, &["-name", &name], &name, &options, "ok");
        assert_attached(&doctor(&node.pid().to_string(), &[]));
        assert_attached(&doctor(&format!("127.0.0.1:{port}"), &[]));
        assert_attached(&doctor(&node.name, &[]));
    });
}

#[test]
fn what_the_user_says_of_tls_goes_before_what_the_node_says() {
    let Some(otp) = otp(25) else { return };
    let secure = start(&otp, "inet_tls", "127.0.0.1");
    let folder = folder();
    let other = folder.path().join("other.pem");
    std::fs::write(&other, "").expect("an empty file");
    doctor(&secure.node.name, &["--tls-ca", &text(&other)])
        .assert_refused(&["other.pem", "no certificate in PEM"]);
    // The node's own, but its name is not that of the host.
    let own = text(&secure.pem);
    doctor(&secure.node.name, &["--tls-ca", &own]).assert_refused(&["is for node, not for 127.0.0.1"]);
    assert_attached(&doctor(&secure.node.name, &["--tls-ca", &own, "--tls-server-name", "node"]));
    doctor(&secure.node.name, &["--tls-cert", &own, "--tls-key", "/none"])
        .assert_refused(&["/none cannot be used"]);
    let said = doctor(&secure.node.name, &["--tls-no-verify"]);
    assert_attached(&said);
    assert!(
        said.stderr.contains("warning: --tls-no-verify: the node's certificate is not checked"),
        "{}",
        said.stderr
    );
}

#[test]
fn a_node_without_tls_says_so() {
    let Some(otp) = otp(25) else { return };
    let node = TestNode::start(&otp, &[], "ok");
    doctor(&node.name, &["--tls"]).assert_refused(&["does not use TLS: omit --tls"]);
}
