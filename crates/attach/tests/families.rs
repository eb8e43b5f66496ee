//! Tests nodes that listen on IPv6, or on only one address family.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "test code")]

mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::thread;

use beamtune_attach::connection::{Connection, Settings};
use beamtune_attach::handshake::Expected;
use beamtune_attach::locate::{Located, locate};
use beamtune_attach::{AttachError, Network};
use common::{COOKIE, Otp, PATIENCE, TestNode, connect, found, free_port, on_each_release, unique_name};

const OVER_IPV6: [&str; 2] = ["-proto_dist", "inet6_tcp"];

/// Starts a node with an IPv6 address in its name.
fn node_over_ipv6(otp: &Otp, arguments: &[&str]) -> TestNode {
    let name = format!("{}@::1", unique_name());
    let own = ["-name", &name, "-setcookie", COOKIE];
    TestNode::start(otp, &name, &[&own[..], &OVER_IPV6, arguments].concat(), &[])
}

/// Creates one listener of each address family on the same port. A port that is free in one family may be in use in the other, by
/// another test.
fn listeners_at_one_port() -> (TcpListener, TcpListener) {
    loop {
        let v4 = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        match TcpListener::bind((Ipv6Addr::LOCALHOST, v4.local_addr().unwrap().port())) {
            Ok(v6) => return (v4, v6),
            Err(error) => assert_eq!(error.kind(), ErrorKind::AddrInUse, "{error}"),
        }
    }
}

#[test]
fn ipv6_node_is_reached_by_name_and_by_address() {
    on_each_release(|otp| {
        let node = node_over_ipv6(otp, &[]);
        let port = node.port();
        let connection = node.connect();
        assert_eq!(&**connection.node(), node.name);
        drop(connection);
        let connection = connect(&format!("[::1]:{port}"), 1, COOKIE).unwrap();
        assert_eq!(&**connection.node(), node.name);
        // The label contains the address as a user types it.
        let located = locate(&node.name.parse().unwrap(), 4369, PATIENCE).unwrap();
        assert_eq!(located.label, format!("{} (at [::1]:{port})", node.name));
    });
}

#[test]
fn node_that_listens_on_one_address_family_is_found_at_localhost() {
    on_each_release(|otp| {
        // The port must be unused at 127.0.0.1, too. A random port might belong to another test's node there.
        let port = free_port();
        let at = port.to_string();
        let only = ["-kernel", "inet_dist_use_interface", "{0,0,0,0,0,0,0,1}"];
        let node = node_over_ipv6(otp, &[&only[..], &["inet_dist_listen_min", &at]].concat());
        assert!(matches!(
            connect(&format!("127.0.0.1:{port}"), 1, COOKIE).unwrap_err(),
            AttachError::Unreachable { .. }
        ));
        assert_eq!(&**connect(&format!("localhost:{port}"), 1, COOKIE).unwrap().node(), node.name);
        // EPMD may answer at an address other than the node's.
        let alive = node.name.split('@').next().unwrap();
        assert_eq!(&**connect(alive, 4369, COOKIE).unwrap().node(), node.name);
    });
}

#[test]
fn dead_address_does_not_prevent_connecting_to_another() {
    on_each_release(|otp| {
        let node = otp.start_with(&OVER_IPV6);
        let located = locate(&node.name.parse().unwrap(), 4369, PATIENCE).unwrap();
        let dead = SocketAddr::from((Ipv6Addr::LOCALHOST, free_port()));
        let addresses = [&[dead][..], &located.addresses].concat();
        let connection =
            Connection::open(&Located { addresses, ..located }, &found(COOKIE), None, Settings::default())
                .unwrap();
        assert_eq!(&**connection.node(), node.name);
    });
}

#[test]
fn error_lists_all_addresses_tried() {
    // Nothing listens on these ports (tcpmux, compressnet). A port from `free_port` may be in use by another test in the
    // meantime.
    let (first, second) = (1, 2);
    let located = Located {
        network: Network::Own,
        addresses: vec![(Ipv6Addr::LOCALHOST, first).into(), (Ipv4Addr::LOCALHOST, second).into()],
        expected: Expected::Any,
        host: "localhost".to_owned(),
        label: "NODE".to_owned(),
    };
    let error =
        Connection::open(&located, &found(COOKIE), None, Settings::default()).unwrap_err().to_string();
    for part in [&format!("[::1]:{first}: "), &format!("127.0.0.1:{second}: "), "Connection refused"] {
        assert!(error.contains(part), "no {part} in {error}");
    }
    let error = connect("any", first, COOKIE).unwrap_err();
    assert!(matches!(error, AttachError::EpmdDown { .. }), "{error:?}");
    let both = format!("127.0.0.1:{first} or [::1]:{first}");
    assert!(error.to_string().contains(&both), "no {both} in {error}");
}

#[test]
fn silent_epmd_is_tried_at_the_next_address() {
    let (silent, talking) = listeners_at_one_port();
    let port = silent.local_addr().unwrap().port();
    let epmd = thread::spawn(move || {
        let (mut stream, _) = talking.accept().unwrap();
        let mut question = [0; 6];
        stream.read_exact(&mut question).unwrap();
        assert_eq!(&question, b"\0\x04znew");
        stream.write_all(b"\x77\0\x12\x34M\0\0\x06\0\x05\0\x03new\0\0").unwrap();
    });
    // The silent address must not use up the time for the other address.
    let located = locate(&"new".parse().unwrap(), port, PATIENCE).unwrap();
    // The address that answered comes first.
    let addresses =
        [SocketAddr::from((Ipv6Addr::LOCALHOST, 0x1234)), SocketAddr::from((Ipv4Addr::LOCALHOST, 0x1234))];
    assert_eq!(located.addresses, addresses);
    epmd.join().unwrap();
    drop(silent);
}
