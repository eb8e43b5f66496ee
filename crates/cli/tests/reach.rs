//! Nodes with TLS distribution, over IPv6 and without EPMD.
#![allow(clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "these are tests")]

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Otp, Output, TestNode, beamtune, folder, free_port, on_all_otps, otp, run, text, unique};
use tempfile::TempDir;

/// A node with a self-signed certificate for "node".
struct TlsNode {
    node: TestNode,
    /// The certificate and its key.
    pem: PathBuf,
    _folder: TempDir,
}

fn start(otp: &Otp, protocol: &str, host: &str) -> TlsNode {
    let root = otp.root.clone().unwrap_or_else(|| PathBuf::from("/"));
    let folder = tempfile::tempdir_in(root.join("tmp")).expect("a folder");
    let pem = folder.path().join("node.pem");
    let mut command = Command::new("openssl");
    command.args(["req", "-x509", "-nodes", "-days", "2", "-newkey", "rsa:2048", "-subj", "/CN=node"]);
    let output = run(command.arg("-keyout").arg(&pem).arg("-out").arg(folder.path().join("certificate")));
    assert_eq!(output.status, Some(0), "{}", output.stderr);
    let certificate = std::fs::read(folder.path().join("certificate")).expect("a certificate");
    let key = std::fs::read(&pem).expect("a key");
    std::fs::write(&pem, [certificate, key].concat()).expect("both");
    let seen = Path::new("/").join(pem.strip_prefix(&root).expect("below the root"));
    let name = format!("{}@{host}", unique("tls"));
    let options = ["-proto_dist", protocol, "-ssl_dist_opt", "server_certfile", &text(&seen)];
    let node = TestNode::named(otp, &["-name", &name], &name, &options, "ok");
    TlsNode { node, pem, _folder: folder }
}

fn doctor(target: &str, more: &[&str]) -> Output {
    run(beamtune().args(["doctor", target, "--for", "2s", "--json"]).args(more))
}

fn assert_attached(output: &Output) {
    assert!(matches!(output.status, Some(0 | 1)), "{:?}: {}", output.status, output.stderr);
    let samples = output.json()["period"]["vm_samples"].as_i64();
    assert!(samples.is_some_and(|samples| samples > 0), "{:#}", output.json());
}

#[test]
fn node_with_tls_can_be_diagnosed_without_options() {
    on_all_otps(|otp| {
        let secure = start(otp, "inet_tls", "127.0.0.1");
        let rows = run(beamtune().args(["nodes", "--json"])).json();
        let row = rows.as_array().into_iter().flatten().find(|row| row["pid"] == secure.node.pid()).cloned();
        assert_eq!(row.expect("a row")["attachable"], true);
        assert_attached(&doctor(&secure.node.pid().to_string(), &[]));
        // Also by name.
        assert_attached(&doctor(&secure.node.name, &[]));
    });
}

#[test]
fn node_over_ipv6_can_be_diagnosed() {
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
fn node_without_epmd_can_be_diagnosed() {
    on_all_otps(|otp| {
        let port = free_port().to_string();
        let name = format!("{}@127.0.0.1", unique("alone"));
        // OTP 23.0 does not have `-erl_epmd_port`, so the kernel parameter sets the port.
        let options =
            ["-start_epmd", "false", "-erl_epmd_port", &port, "-kernel", "inet_dist_listen_min", &port];
        let node = TestNode::named(otp, &["-name", &name], &name, &options, "ok");
        assert_attached(&doctor(&node.pid().to_string(), &[]));
        assert_attached(&doctor(&format!("127.0.0.1:{port}"), &[]));
        assert_attached(&doctor(&node.name, &[]));
    });
}

#[test]
fn tls_options_take_precedence_over_those_of_the_node() {
    let Some(otp) = otp(25) else { return };
    let secure = start(&otp, "inet_tls", "127.0.0.1");
    let folder = folder();
    let other = folder.path().join("other.pem");
    std::fs::write(&other, "").expect("an empty file");
    doctor(&secure.node.name, &["--tls-ca", &text(&other)])
        .assert_refused(&["other.pem", "no certificate in PEM"]);
    // The node's own certificate is not for the name of its host.
    let own = text(&secure.pem);
    doctor(&secure.node.name, &["--tls-ca", &own]).assert_refused(&["is for node, not for 127.0.0.1"]);
    assert_attached(&doctor(&secure.node.name, &["--tls-ca", &own, "--tls-server-name", "node"]));
    doctor(&secure.node.name, &["--tls-cert", &own, "--tls-key", "/none"])
        .assert_refused(&["/none cannot be used"]);
    let output = doctor(&secure.node.name, &["--tls-no-verify"]);
    assert_attached(&output);
    assert!(
        output.stderr.contains("warning: --tls-no-verify: the node's certificate is not verified"),
        "{}",
        output.stderr
    );
}

#[test]
fn node_without_tls_is_reported_as_such() {
    let Some(otp) = otp(25) else { return };
    let node = TestNode::start(&otp, &[], "ok");
    doctor(&node.name, &["--tls"]).assert_refused(&["does not use TLS: omit --tls"]);
}
