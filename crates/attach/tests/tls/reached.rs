//! Tests successful connections.

use std::time::{Duration, Instant};

use beamtune_attach::etf::Value;
use beamtune_attach::tls::{self, TlsSettings};

use crate::certificates::{CertificateRequest, Issuer, LOOPBACK, self_signed};
use crate::common::{evaluate, on_each_release, process, soon};
use crate::{DEMANDING, assert_says, assert_works, file, open, start, start_at};
#[test]
fn both_sides_authenticate_in_tls_1_2_and_1_3() {
    let issuer = Issuer::new("Test CA");
    let (node, client) = (
        issuer.issue(&LOOPBACK),
        issuer.issue(&CertificateRequest { subject: "/CN=client", rsa: true, ..LOOPBACK }),
    );
    let rsa = issuer.issue(&CertificateRequest { rsa: true, ..LOOPBACK });
    let own = tempfile::tempdir().unwrap();
    let certificate = file(&own, "client.pem", &client.certificate);
    let key = file(&own, "client.key", &client.key);
    on_each_release(|otp| {
        for (version, pair) in [("tlsv1.2", &node), ("tlsv1.3", &node), ("tlsv1.2", &rsa), ("tlsv1.3", &rsa)]
        {
            let server = format!("{DEMANDING}, {{versions, ['{version}']}}");
            let secure = start(otp, pair, &issuer.0, &server, "");
            let given =
                TlsSettings { certificate: certificate.clone(), key: key.clone(), ..secure.trusted() };
            assert_works(secure.connect(&given), &secure.node);
        }
    });
}

#[test]
fn long_messages_and_ticks_work() {
    let issuer = Issuer::new("Test CA");
    let pair = issuer.issue(&LOOPBACK);
    on_each_release(|otp| {
        for version in ["tlsv1.2", "tlsv1.3"] {
            let server = format!("{{versions, ['{version}']}}");
            let secure = start(otp, &pair, &issuer.0, &server, "");
            let mut connection = secure.connect(&secure.trusted()).unwrap();
            // The node sends a tick every second, and drops the connection after 4 s without an answer.
            let changed = evaluate(&mut connection, "net_kernel:set_net_ticktime(4, 0)");
            assert!(changed.root().is_atom("change_initiated"), "{}", changed.root());
            let bytes = 10 * 1024 * 1024;
            let begin = Instant::now();
            let big = evaluate(&mut connection, &format!("binary:copy(<<7>>, {bytes})"));
            println!("OTP {}, {version}: 10 MB in {:?}", otp.release, begin.elapsed());
            let content = big.root().as_bytes().unwrap();
            assert!(content.len() == bytes && content.iter().all(|&byte| byte == 7));
            // Now in the other direction, in one frame.
            let value = Value::binary(vec![7; 1 << 20]);
            let back = connection.call("erlang", "byte_size", vec![value], soon()).unwrap();
            assert_eq!(back.root().as_u64().unwrap(), 1 << 20);
            if version == "tlsv1.3" {
                connection.pump(Instant::now() + Duration::from_secs(6)).unwrap();
            }
            assert_works(Ok(connection), &secure.node);
        }
    });
}

#[test]
fn ipv6_node_is_reached() {
    let issuer = Issuer::new("Test CA");
    let pair = issuer.issue(&LOOPBACK);
    on_each_release(|otp| {
        let secure = start_at("::1", "inet6_tls", otp, &pair, &issuer.0, DEMANDING, "");
        assert_works(secure.connect_here(&TlsSettings::default()), &secure.node);
    });
}

#[test]
fn node_on_this_host_is_reached_with_its_own_files() {
    let issuer = Issuer::new("Test CA");
    // Each of these certificates would be rejected for a node on another host.
    let old = CertificateRequest { extensions: "", ..LOOPBACK };
    let pairs = [
        self_signed("/CN=nobody"),
        issuer.issue(&CertificateRequest { extensions: "subjectAltName=DNS:elsewhere", days: 0, ..LOOPBACK }),
        issuer.issue(&old),
        issuer.issue(&CertificateRequest { rsa: true, ..old }),
    ];
    on_each_release(|otp| {
        for pair in &pairs {
            for version in ["tlsv1.2", "tlsv1.3"] {
                let server = format!("{{versions, ['{version}']}}");
                let secure = start(otp, pair, &issuer.0, &server, "");
                assert_works(secure.connect_here(&TlsSettings::default()), &secure.node);
            }
        }
        // The node requires a client certificate, and has one for its own outgoing connections, which we use.
        let client = "{certfile, \"FOLDER/node.pem\"}, {keyfile, \"FOLDER/node.pem\"}";
        let secure = start(otp, &issuer.issue(&LOOPBACK), &issuer.0, DEMANDING, client);
        assert_works(secure.connect_here(&TlsSettings::default()), &secure.node);
    });
}

#[test]
fn options_on_the_command_line_are_used() {
    let pair = self_signed("/CN=node");
    on_each_release(|otp| {
        otp.with_file("node.pem", &pair.together(), |path| {
            let node = otp.start_with(&["-proto_dist", "inet_tls", "-ssl_dist_opt", "server_certfile", path]);
            let tls =
                tls::find(&TlsSettings::default(), Some(&process(&node)), None, |path| std::fs::read(path));
            assert_works(open(&node, tls.unwrap().as_ref()), &node);
        });
    });
}

#[test]
fn trusted_node_certificate_needs_no_issuer() {
    let issuer = Issuer::new("Test CA");
    let pairs = [
        self_signed("/CN=127.0.0.1"),
        issuer.issue(&CertificateRequest { subject: "/CN=127.0.0.1", extensions: "", ..LOOPBACK }),
    ];
    on_each_release(|otp| {
        for pair in &pairs {
            let secure = start(otp, pair, pair, "", "");
            assert_works(secure.connect(&secure.trusted()), &secure.node);
            // The host name is still checked.
            let given = TlsSettings { server_name: Some("localhost".to_owned()), ..secure.trusted() };
            let error = secure.connect(&given).unwrap_err();
            assert_says(&error, &["is for 127.0.0.1, not for localhost", "--tls-server-name"]);
        }
    });
}

#[test]
fn chain_is_followed_to_the_trusted_issuer() {
    let root = Issuer::new("Root CA");
    let middle = Issuer(root.issue(&CertificateRequest {
        subject: "/CN=Middle CA",
        extensions: "basicConstraints=critical,CA:TRUE",
        ..LOOPBACK
    }));
    let mut pair = middle.issue(&LOOPBACK);
    pair.certificate.extend(&middle.0.certificate);
    on_each_release(|otp| {
        let secure = start(otp, &pair, &root.0, "", "");
        assert_works(secure.connect(&secure.trusted()), &secure.node);
        let error = secure.connect(&TlsSettings { requested: true, ..TlsSettings::default() }).unwrap_err();
        assert_says(&error, &["CN=node,O=Test, is issued by CN=Root CA,O=Test, which is not trusted"]);
    });
}
