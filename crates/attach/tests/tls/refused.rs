//! Tests errors for nodes to which a connection is impossible or not allowed.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use beamtune_attach::AttachError;
use beamtune_attach::connection::{Connection, Settings};
use beamtune_attach::error::Step;
use beamtune_attach::locate::locate;
use beamtune_attach::tls::{self, TlsSettings};

use crate::certificates::{CertificateRequest, Issuer, LOOPBACK, encrypted, self_signed};
use crate::common::{
    COOKIE, Folder, PATIENCE, evaluate, eventually, found, on_each_release, on_release, process, soon,
};
use crate::{DEMANDING, Secure, assert_says, assert_works, file, open, start};
#[test]
fn trusted_node_certificate_is_not_trusted_as_an_issuer() {
    let issuer = Issuer::new("Test CA");
    for extensions in [LOOPBACK.extensions, "basicConstraints=CA:FALSE"] {
        let trusted = issuer.issue(&CertificateRequest { subject: "/CN=trusted", extensions, ..LOOPBACK });
        let pair = Issuer(trusted.clone()).issue(&LOOPBACK);
        on_release(25, |otp| {
            let secure = start(otp, &pair, &trusted, "", "");
            let error = secure.connect(&secure.trusted()).unwrap_err();
            assert!(matches!(error, AttachError::CertificateUntrusted { .. }), "{error:?}");
        });
    }
}

#[test]
fn node_with_allowed_hosts_requires_a_certificate_for_one_of_them() {
    let issuer = Issuer::new("Test CA");
    let pair = issuer.issue(&LOOPBACK);
    let elsewhere =
        issuer.issue(&CertificateRequest { extensions: "subjectAltName=DNS:elsewhere", ..LOOPBACK });
    let own = tempfile::tempdir().unwrap();
    let (here, elsewhere) =
        (file(&own, "here.pem", &pair.together()), file(&own, "elsewhere.pem", &elsewhere.together()));
    on_each_release(|otp| {
        let secure = start(otp, &pair, &issuer.0, DEMANDING, "");
        let given = |certificate: &Option<PathBuf>| TlsSettings {
            certificate: certificate.clone(),
            ..secure.trusted()
        };
        let mut connection = secure.connect(&given(&elsewhere)).unwrap();
        let allowed = evaluate(&mut connection, "net_kernel:allow(['127.0.0.1'])");
        assert!(allowed.root().is_atom("ok"));
        assert_works(secure.connect(&given(&here)), &secure.node);
        let error = secure.connect(&given(&elsewhere)).unwrap_err();
        assert!(matches!(error, AttachError::ClientCertificateRefused { .. }), "{error:?}");
        assert_says(&error, &["refuses the certificate CN=node,O=Test", "net_kernel:allow/1"]);
    });
}

#[test]
fn any_certificate_is_accepted_only_on_request() {
    let stranger = self_signed("/CN=stranger");
    on_each_release(|otp| {
        let secure = start(otp, &stranger, &stranger, "", "");
        assert_works(
            secure.connect(&TlsSettings { unverified: true, ..TlsSettings::default() }),
            &secure.node,
        );
        assert!(matches!(
            secure.connect(&TlsSettings { requested: true, ..TlsSettings::default() }).unwrap_err(),
            AttachError::CertificateUntrusted { .. }
        ));
    });
}

#[test]
fn unknown_issuer_is_an_error_with_its_name() {
    let (issuer, other) = (Issuer::new("Test CA"), Issuer::new("Test CA"));
    let pair = issuer.issue(&LOOPBACK);
    let own = tempfile::tempdir().unwrap();
    on_each_release(|otp| {
        let secure = start(otp, &pair, &issuer.0, "", "");
        // An issuer with the same name but another key.
        let other = file(&own, "other.pem", &other.0.certificate);
        for (trusted, more) in [
            (None, ", which is not trusted"),
            (other, " (the given certificate of that name has another key"),
        ] {
            let error = secure
                .connect(&TlsSettings { requested: true, trusted, ..TlsSettings::default() })
                .unwrap_err();
            assert!(matches!(error, AttachError::CertificateUntrusted { .. }), "{error:?}");
            let issuer = format!("CN=node,O=Test, is issued by CN=Test CA,O=Test{more}");
            assert_says(&error, &[&secure.node.name, &issuer, "--tls-ca FILE"]);
        }
    });
}

#[test]
fn certificate_for_other_hosts_is_an_error_with_their_names() {
    let issuer = Issuer::new("Test CA");
    let pair = issuer.issue(&CertificateRequest {
        extensions: "subjectAltName=DNS:web1.example.org,DNS:*.example.com,IP:10.0.0.1",
        ..LOOPBACK
    });
    on_each_release(|otp| {
        let secure = start(otp, &pair, &issuer.0, "", "");
        let error = secure.connect(&secure.trusted()).unwrap_err();
        assert!(matches!(error, AttachError::CertificateHostMismatch { .. }), "{error:?}");
        assert_says(&error, &["is for web1.example.org, *.example.com, 10.0.0.1, not for 127.0.0.1"]);
        for name in ["web1.example.org", "a.example.com"] {
            let given = TlsSettings { server_name: Some(name.to_owned()), ..secure.trusted() };
            assert_works(secure.connect(&given), &secure.node);
        }
    });
}

#[test]
fn expired_certificate_is_an_error_with_its_date() {
    let issuer = Issuer::new("Test CA");
    let pair = issuer.issue(&CertificateRequest { days: 0, ..LOOPBACK });
    on_each_release(|otp| {
        let secure = start(otp, &pair, &issuer.0, "", "");
        // The certificate is valid for one second.
        eventually("its expiry", || secure.connect(&secure.trusted()).is_err());
        let error = secure.connect(&secure.trusted()).unwrap_err();
        assert!(matches!(error, AttachError::CertificateOutdated { .. }), "{error:?}");
        assert_says(&error, &["CN=node,O=Test: it expired at 2", "Renew the certificate", "set the clock"]);
    });
}

#[test]
fn version_1_certificate_is_an_error_with_a_remedy() {
    let issuer = Issuer::new("Test CA");
    let pair = issuer.issue(&CertificateRequest { extensions: "", ..LOOPBACK });
    on_each_release(|otp| {
        let secure = start(otp, &pair, &issuer.0, "", "");
        let error = secure.connect(&secure.trusted()).unwrap_err();
        assert!(matches!(error, AttachError::CertificateUnusable { .. }), "{error:?}");
        assert_says(
            &error,
            &[
                "CN=node,O=Test, cannot be checked: it is an X.509 version 1 certificate",
                "certfile",
                "--tls-ca",
            ],
        );
    });
}

#[test]
fn required_and_refused_client_certificates_are_distinct_errors() {
    let (issuer, other) = (Issuer::new("Test CA"), Issuer::new("Other CA"));
    let pair = issuer.issue(&LOOPBACK);
    let wrong = other.issue(&LOOPBACK);
    let own = tempfile::tempdir().unwrap();
    let certificate = file(&own, "wrong.pem", &wrong.together());
    on_each_release(|otp| {
        for version in ["tlsv1.2", "tlsv1.3"] {
            let server = format!("{DEMANDING}, {{versions, ['{version}']}}");
            let secure = start(otp, &pair, &issuer.0, &server, "");
            let error = secure.connect(&secure.trusted()).unwrap_err();
            assert!(matches!(error, AttachError::ClientCertificateRequired { .. }), "{version}: {error:?}");
            assert_says(&error, &["requires a client certificate", "--tls-cert FILE and --tls-key"]);
            let given = TlsSettings { certificate: certificate.clone(), ..secure.trusted() };
            let error = secure.connect(&given).unwrap_err();
            assert!(matches!(error, AttachError::ClientCertificateRefused { .. }), "{version}: {error:?}");
            assert_says(&error, &["refuses the certificate CN=node,O=Test, issued by CN=Other CA"]);
            println!("OTP {}, {version}: {error}", otp.release);
        }
    });
}

#[test]
fn tls_on_only_one_side_is_an_error() {
    let pair = self_signed("/CN=node");
    on_each_release(|otp| {
        let begin = Instant::now();
        let plain = otp.start();
        let tls = tls::find(&TlsSettings { requested: true, ..TlsSettings::default() }, None, None, |path| {
            std::fs::read(path)
        });
        let error = open(&plain, tls.unwrap().as_ref()).unwrap_err();
        assert!(matches!(error, AttachError::TlsUnexpected { .. }), "{error:?}");
        assert_says(&error, &["does not use TLS: omit --tls"]);
        println!("OTP {}: noticed after {:?}", otp.release, begin.elapsed());
        // Now the other way round.
        let secure = start(otp, &pair, &pair, "", "");
        let error = secure.node.try_connect(COOKIE).unwrap_err();
        assert!(matches!(error, AttachError::TlsNeeded { .. }), "{error:?}");
        assert_says(&error, &["uses TLS (-proto_dist inet_tls): give --tls-ca FILE"]);
    });
}

#[test]
fn node_with_only_old_tls_versions_is_an_error() {
    let pair = self_signed("/CN=node");
    // Later releases do not support these versions.
    for release in [23, 25, 27] {
        on_release(release, |otp| {
            let secure = start(otp, &pair, &pair, "{versions, ['tlsv1.1']}", "");
            let error = secure.connect_here(&TlsSettings::default()).unwrap_err();
            println!("OTP {release}: {error}");
            assert_says(&error, &["1.2", "1.3", "versions"]);
        });
    }
}

#[test]
fn no_common_cipher_is_an_error() {
    let pair = self_signed("/CN=node");
    on_each_release(|otp| {
        // A cipher without forward secrecy or authenticated encryption.
        let server = "{versions, ['tlsv1.2']}, {ciphers, [\"ECDHE-ECDSA-AES128-SHA256\"]}";
        let secure = start(otp, &pair, &pair, server, "");
        let error = secure.connect_here(&TlsSettings::default()).unwrap_err();
        assert!(matches!(error, AttachError::TlsFailed { .. }), "{error:?}");
        assert_says(&error, &["ciphers"]);
    });
}

#[test]
fn wrong_cookie_over_tls_is_an_error() {
    let pair = self_signed("/CN=node");
    on_each_release(|otp| {
        let secure = start(otp, &pair, &pair, "", "");
        let tls = tls::find(&TlsSettings::default(), Some(&process(&secure.node)), None, |path| {
            std::fs::read(path)
        });
        let located = locate(&secure.node.name.parse().unwrap(), 4369, PATIENCE).unwrap();
        let error = Connection::open(&located, &found("wrong"), tls.unwrap().as_ref(), Settings::default())
            .unwrap_err();
        assert!(matches!(error, AttachError::WrongCookie { .. }), "{error:?}");
    });
}

#[test]
fn unusable_files_of_the_node_are_reported() {
    let issuer = Issuer::new("Test CA");
    let pair = issuer.issue(&LOOPBACK);
    on_each_release(|otp| {
        let server = format!("{DEMANDING}, {{keyfile, \"FOLDER/locked.key\"}}, {{password, \"secret\"}}");
        let files = Folder::new(otp);
        files.write("node.pem", &pair.certificate);
        files.write("locked.key", &encrypted(&pair.key));
        files.write("ca.pem", &issuer.0.certificate);
        let folder = files.node_path("");
        let options = format!("[{{server, [{{certfile, \"FOLDER/node.pem\"}}, {server}]}}].");
        files.write("options", options.replace("FOLDER", folder.trim_end_matches('/')).as_bytes());
        let node =
            otp.start_with(&["-proto_dist", "inet_tls", "-ssl_dist_optfile", &files.node_path("options")]);
        let secure = Secure { node, files };
        let error = secure.connect_here(&TlsSettings::default()).unwrap_err();
        assert!(matches!(error, AttachError::ClientCertificateRequired { .. }), "{error:?}");
        assert_says(
            &error,
            &[
                "in the node's own options and files: ",
                "locked.key",
                "encrypted with a password",
                "openssl pkey",
            ],
        );
        // Apply the remedy that the error suggests.
        let own = tempfile::tempdir().unwrap();
        let given = TlsSettings {
            certificate: Some(secure.files.path("node.pem")),
            key: file(&own, "copy.key", &pair.key),
            ..TlsSettings::default()
        };
        assert_works(secure.connect_here(&given), &secure.node);
    });
}

#[test]
fn unusable_files_of_the_user_are_errors() {
    let (one, other) = (self_signed("/CN=one"), self_signed("/CN=other"));
    let folder = tempfile::tempdir().unwrap();
    let check = |given: TlsSettings, parts: &[&str]| {
        let error = tls::find(&given, None, None, |path| std::fs::read(path)).unwrap_err();
        assert_says(&error, parts);
    };
    let certificate = file(&folder, "one.pem", &one.certificate);
    let empty = file(&folder, "empty", b"");
    check(
        TlsSettings { trusted: empty, ..TlsSettings::default() },
        &["empty cannot be used", "no certificate in PEM"],
    );
    check(
        TlsSettings { trusted: Some(folder.path().join("none")), ..TlsSettings::default() },
        &["none cannot be used for TLS: No such file"],
    );
    check(
        TlsSettings { certificate: certificate.clone(), ..TlsSettings::default() },
        &["one.pem", "no private key"],
    );
    let key = file(&folder, "other.key", &other.key);
    check(
        TlsSettings { certificate: certificate.clone(), key, ..TlsSettings::default() },
        &["other.key", "its private key is not that of the certificate in", "one.pem"],
    );
    let key = file(&folder, "locked.key", &encrypted(&one.key));
    check(
        TlsSettings { certificate, key, ..TlsSettings::default() },
        &["locked.key", "encrypted with a password"],
    );
    let name = Some("no name".to_owned());
    check(TlsSettings { server_name: name, ..TlsSettings::default() }, &["invalid server name \"no name\""]);
}

#[test]
fn stopped_node_is_a_timeout_with_the_reason() {
    let pair = self_signed("/CN=node");
    on_each_release(|otp| {
        let secure = start(otp, &pair, &pair, "", "");
        let tls =
            tls::find(&TlsSettings { unverified: true, ..TlsSettings::default() }, None, None, |path| {
                std::fs::read(path)
            });
        let located = locate(&secure.node.name.parse().unwrap(), 4369, PATIENCE).unwrap();
        secure.node.signal("STOP");
        let settings = Settings { setup_timeout: Duration::from_millis(500), ..Settings::default() };
        let error = Connection::open(&located, &found(COOKIE), tls.unwrap().as_ref(), settings).unwrap_err();
        assert!(matches!(error, AttachError::TimedOut { step: Step::Handshake, .. }), "{error:?}");
        assert_says(&error, &["is the VM stopped (SIGSTOP"]);
    });
}

/// Starts a listener that calls `says` after the first byte of each client.
fn peer(says: impl Fn(&mut TcpStream) + Send + Copy + 'static) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    // The thread ends with the test process; each connection ends with its client.
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let mut hello = [0; 1];
                if stream.read_exact(&mut hello).is_ok() {
                    says(&mut stream);
                    let _ = stream.shutdown(std::net::Shutdown::Write);
                    let _ = std::io::copy(&mut stream, &mut std::io::sink());
                }
            });
        }
    });
    format!("127.0.0.1:{port}")
}

fn connect_to(target: &str, timeout: Duration) -> AttachError {
    let tls = tls::find(&TlsSettings { unverified: true, ..TlsSettings::default() }, None, None, |path| {
        std::fs::read(path)
    });
    let located = locate(&target.parse().unwrap(), 1, PATIENCE).unwrap();
    let settings = Settings { setup_timeout: timeout, ..Settings::default() };
    Connection::open(&located, &found(COOKIE), tls.unwrap().as_ref(), settings).unwrap_err()
}

#[test]
fn other_peers_are_distinct_errors() {
    let check = |says: &'static [u8], expect: fn(&AttachError) -> bool| {
        let target = peer(move |stream| stream.write_all(says).unwrap());
        let error = connect_to(&target, PATIENCE);
        assert!(expect(&error), "{error:?}");
    };
    check(b"", |error| matches!(error, AttachError::ClosedDuringHandshake { over_tls: true, .. }));
    check(b"HTTP/1.1 400 Bad Request\r\n\r\n", |error| matches!(error, AttachError::NoTls { .. }));
    check(&[0x16, 3, 3, 0, 9, 2], |error| {
        matches!(error, AttachError::ClosedDuringHandshake { over_tls: true, .. })
    });
    // Alerts: protocol_version, internal_error.
    check(&[0x15, 3, 3, 0, 2, 2, 70], |error| matches!(error, AttachError::TlsTooOld { .. }));
    check(&[0x15, 3, 3, 0, 2, 2, 80], |error| matches!(error, AttachError::TlsFailed { .. }));
}

#[test]
fn slowly_sending_peer_times_out() {
    let target = peer(|stream| {
        // The start of a record, and then single bytes, each before the deadline.
        let mut sent = stream.write_all(&[0x16, 3, 3, 0x40, 0]);
        let until = soon();
        while sent.is_ok() && Instant::now() < until {
            thread::sleep(Duration::from_millis(20));
            sent = stream.write_all(&[2]);
        }
    });
    let error = connect_to(&target, Duration::from_millis(300));
    assert!(matches!(error, AttachError::TimedOut { step: Step::Tls, .. }), "{error:?}");
    assert_says(&error, &["began the TLS handshake but did not complete it within 0.3 s"]);
}
