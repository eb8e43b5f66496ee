//! Tests connections to nodes with TLS distribution, and their errors, with each release.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "test code")]

mod certificates;
#[path = "../common/mod.rs"]
mod common;
mod reached;
mod refused;

use std::path::PathBuf;

use beamtune_attach::AttachError;
use beamtune_attach::connection::{Connection, Settings};
use beamtune_attach::locate::locate;
use beamtune_attach::tls::{self, Tls, TlsSettings};
use certificates::Pair;
use common::{COOKIE, Folder, Otp, PATIENCE, TestNode, found, process, soon, unique_name};

/// Server options that require a client certificate issued by the node's CA.
const DEMANDING: &str =
    "{cacertfile, \"FOLDER/ca.pem\"}, {verify, verify_peer}, {fail_if_no_peer_cert, true}";

/// A node with TLS, and its files: `node.pem` with its certificate and key, and `ca.pem` with the certificate of its CA.
struct Secure {
    node: TestNode,
    files: Folder,
}

/// Starts a node. `server` and `client` are additional TLS options of the two sides. In them, FOLDER is replaced by the folder of
/// the files.
fn start(otp: &Otp, pair: &Pair, issuer: &Pair, server: &str, client: &str) -> Secure {
    start_at("127.0.0.1", "inet_tls", otp, pair, issuer, server, client)
}

fn start_at(
    host: &str,
    protocol: &str,
    otp: &Otp,
    pair: &Pair,
    issuer: &Pair,
    server: &str,
    client: &str,
) -> Secure {
    let files = Folder::new(otp);
    files.write("node.pem", &pair.together());
    files.write("ca.pem", &issuer.certificate);
    let comma = |options: &str| if options.is_empty() { String::new() } else { format!(", {options}") };
    let options = format!(
        "[{{server, [{{certfile, \"FOLDER/node.pem\"}}{}]}}, {{client, [{{verify, verify_none}}{}]}}].\n",
        comma(server),
        comma(client)
    );
    let folder = files.node_path("");
    files.write("options", options.replace("FOLDER", folder.trim_end_matches('/')).as_bytes());
    let name = format!("{}@{host}", unique_name());
    let arguments = [
        "-name",
        &name,
        "-setcookie",
        COOKIE,
        "-proto_dist",
        protocol,
        "-ssl_dist_optfile",
        &files.node_path("options"),
    ];
    let node = TestNode::start(otp, &name, &arguments, &[]);
    Secure { node, files }
}

impl Secure {
    /// Connects as if to a node on another host.
    fn connect(&self, given: &TlsSettings) -> Result<Connection, AttachError> {
        open(&self.node, tls::find(given, None, None, |path| std::fs::read(path))?.as_ref())
    }

    /// Connects as if to a node on this host, using its process.
    fn connect_here(&self, given: &TlsSettings) -> Result<Connection, AttachError> {
        let host = self.node.name.split('@').nth(1);
        let tls = tls::find(given, Some(&process(&self.node)), host, |path| std::fs::read(path))?;
        open(&self.node, Some(&tls.expect("TLS is known from the command line")))
    }

    /// Returns the settings that a user would give.
    fn trusted(&self) -> TlsSettings {
        TlsSettings { trusted: Some(self.files.path("ca.pem")), ..TlsSettings::default() }
    }
}

fn open(node: &TestNode, tls: Option<&Tls>) -> Result<Connection, AttachError> {
    let located = locate(&node.name.parse().unwrap(), 4369, PATIENCE)?;
    Connection::open(&located, &found(COOKIE), tls, Settings::default())
}

fn assert_works(connection: Result<Connection, AttachError>, node: &TestNode) {
    let mut connection = connection.unwrap();
    let answer = connection.call("erlang", "node", vec![], soon()).unwrap();
    assert!(answer.root().is_atom(&node.name));
}

#[track_caller]
fn assert_says(error: &AttachError, parts: &[&str]) {
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "no {part:?} in: {text}");
    }
}

/// Writes a file outside of the node's folder.
fn file(folder: &tempfile::TempDir, name: &str, content: &[u8]) -> Option<PathBuf> {
    let path = folder.path().join(name);
    std::fs::write(&path, content).unwrap();
    Some(path)
}
