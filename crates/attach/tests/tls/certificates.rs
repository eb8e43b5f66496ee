//! Creates certificates of all common kinds with openssl.

use std::process::{Command, Stdio};

/// A certificate and its key, in PEM form.
#[derive(Clone)]
pub struct Pair {
    pub certificate: Vec<u8>,
    pub key: Vec<u8>,
}

impl Pair {
    /// Returns the content of a file with both.
    pub fn together(&self) -> Vec<u8> {
        [&self.certificate[..], &self.key].concat()
    }
}

/// Properties of a certificate.
pub struct CertificateRequest<'a> {
    pub subject: &'a str,
    /// As in an openssl extension file; empty for a version 1 certificate.
    pub extensions: &'a str,
    pub days: u32,
    pub rsa: bool,
}

/// A certificate for the loopback interface.
pub const LOOPBACK: CertificateRequest<'_> = CertificateRequest {
    subject: "/O=Test/CN=node",
    extensions: "subjectAltName=DNS:localhost,IP:127.0.0.1,IP:::1",
    days: 2,
    rsa: false,
};

/// Creates a self-signed certificate with `openssl req -x509`.
pub fn self_signed(subject: &str) -> Pair {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    openssl(
        Command::new("openssl")
            .args(["req", "-x509", "-nodes", "-days", "2", "-subj", subject])
            .args(CURVE)
            .args([
                "-keyout".as_ref(),
                path("key").as_os_str(),
                "-out".as_ref(),
                path("certificate").as_os_str(),
            ]),
    );
    Pair {
        certificate: std::fs::read(path("certificate")).unwrap(),
        key: std::fs::read(path("key")).unwrap(),
    }
}

const CURVE: [&str; 4] = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"];

/// A certificate authority.
pub struct Issuer(pub Pair);

impl Issuer {
    pub fn new(name: &str) -> Issuer {
        Issuer(self_signed(&format!("/O=Test/CN={name}")))
    }

    pub fn issue(&self, request: &CertificateRequest<'_>) -> Pair {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("ca"), &self.0.certificate).unwrap();
        std::fs::write(path("ca.key"), &self.0.key).unwrap();
        std::fs::write(path("extensions"), request.extensions).unwrap();
        let kind: &[&str] = if request.rsa { &["-newkey", "rsa:2048"] } else { &CURVE };
        openssl(
            Command::new("openssl")
                .current_dir(folder.path())
                .args([
                    "req",
                    "-new",
                    "-nodes",
                    "-subj",
                    request.subject,
                    "-keyout",
                    "key",
                    "-out",
                    "request",
                ])
                .args(kind),
        );
        let mut command = Command::new("openssl");
        command.current_dir(folder.path()).args(["x509", "-req", "-in", "request", "-out", "certificate"]);
        command.args([
            "-CA",
            "ca",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
            "-days",
            &request.days.to_string(),
        ]);
        if !request.extensions.is_empty() {
            command.args(["-extfile", "extensions"]);
        }
        openssl(&mut command);
        Pair {
            certificate: std::fs::read(path("certificate")).unwrap(),
            key: std::fs::read(path("key")).unwrap(),
        }
    }
}

/// Encrypts the key with a password.
pub fn encrypted(key: &[u8]) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("plain"), key).unwrap();
    openssl(Command::new("openssl").current_dir(folder.path()).args([
        "pkey",
        "-in",
        "plain",
        "-out",
        "encrypted",
        "-aes256",
        "-passout",
        "pass:secret",
    ]));
    std::fs::read(folder.path().join("encrypted")).unwrap()
}

fn openssl(command: &mut Command) {
    let made = command.stdin(Stdio::null()).output().expect("openssl is installed (Debian: openssl)");
    assert!(made.status.success(), "{command:?}: {}", String::from_utf8_lossy(&made.stderr));
}
