use proptest::prelude::*;

use super::*;

fn parameters(own: OwnName, expected: Expected) -> Parameters {
    Parameters {
        peer: "PEER".to_owned(),
        expected,
        own,
        host: "h".to_owned(),
        lengths: Lengths::Two,
        cookie: Cookie::new("secret", "").unwrap(),
        cookie_origin: "FILE".to_owned(),
        challenge: 7,
    }
}

fn ours() -> OwnName {
    OwnName::Ours { name: "B".to_owned(), creation: 0x0102_0304 }
}

fn packet(content: &[u8]) -> Vec<u8> {
    [&(content.len() as u16).to_be_bytes(), content].concat()
}

fn ok() -> Vec<u8> {
    packet(b"sok")
}

fn named() -> Vec<u8> {
    packet(b"snamed:\0\x03X@h\0\0\0\x05")
}

fn challenge(flags: u64, name: &[u8]) -> Vec<u8> {
    let mut content = vec![b'N'];
    content.extend(flags.to_be_bytes());
    content.extend(1_000u32.to_be_bytes());
    content.extend(9u32.to_be_bytes());
    content.extend((name.len() as u16).to_be_bytes());
    content.extend(name);
    packet(&content)
}

/// MD5 of a cookie and the decimal digits of a challenge.
fn md5(text: &str) -> [u8; 16] {
    Md5::digest(text).into()
}

fn acknowledgement(digest: [u8; 16]) -> Vec<u8> {
    packet(&[&[b'a'][..], &digest].concat())
}

/// Runs a handshake with the peer's packets; `None` closes the connection.
fn run(
    own: OwnName,
    expected: Expected,
    says: &[Option<Vec<u8>>],
) -> Result<(Established, Vec<u8>), AttachError> {
    let mut handshake = Handshake::new(parameters(own, expected));
    for bytes in says {
        match bytes {
            Some(bytes) => {
                if let Some(done) = handshake.receive(bytes)? {
                    return Ok(done);
                }
            }
            None => return Err(handshake.closed()),
        }
    }
    panic!("the handshake waits for more");
}

#[test]
fn handshake_succeeds_with_the_right_cookie() {
    let check = |own: OwnName, sent: &[u8], status: Vec<u8>, expect: (&str, u32)| {
        let mut handshake = Handshake::new(parameters(own, Expected::FullName("a@h".to_owned())));
        assert_eq!(handshake.take_output(), packet(sent));
        assert!(handshake.receive(&status).unwrap().is_none());
        assert!(handshake.take_output().is_empty());
        assert!(handshake.receive(&challenge(flag::SPAWN, b"a@h")).unwrap().is_none());
        let reply = [&[0, 21, b'r', 0, 0, 0, 7][..], &md5("secret1000")].concat();
        assert_eq!(handshake.take_output(), reply);
        let last = [acknowledgement(md5("secret7")), vec![0, 0, 0, 0]].concat();
        let (established, rest) = handshake.receive(&last).unwrap().unwrap();
        let (own_name, own_creation) = (expect.0.into(), expect.1);
        assert_eq!(established, Established { node: "a@h".into(), creation: 9, own_name, own_creation });
        // The tick that followed the handshake.
        assert_eq!(rest, [0, 0, 0, 0]);
    };
    // Flags: hidden, no fragments, mandatory flags of OTP 25 and 26; then creation, and name or host.
    let ours = b"N\0\0\0\x0D\x07\x4F\x4F\xBC\x01\x02\x03\x04\0\x03B@h";
    check(self::ours(), ours, ok(), ("B@h", 0x0102_0304));
    check(self::ours(), ours, packet(b"sok_simultaneous"), ("B@h", 0x0102_0304));
    let of_node = b"N\0\0\0\x0F\x07\x4F\x4F\xBC\0\0\0\0\0\x01h";
    check(OwnName::OfNode, of_node, named(), ("X@h", 5));
}

#[test]
fn bytes_may_arrive_one_by_one() {
    let mut handshake = Handshake::new(parameters(ours(), Expected::Any));
    let says = [ok(), challenge(flag::SPAWN, b"a@h"), acknowledgement(md5("secret7"))].concat();
    let (last, before) = says.split_last().unwrap();
    for byte in before {
        assert!(handshake.receive(&[*byte]).unwrap().is_none());
    }
    assert!(handshake.receive(&[*last]).unwrap().is_some());
}

#[test]
fn wrong_answers_are_errors_with_the_next_step() {
    fn check_as(own: OwnName, says: &[Option<Vec<u8>>], expect: &str) {
        let error = run(own, Expected::FullName("a@h".to_owned()), says).unwrap_err().to_string();
        assert!(error.contains(expect), "{error}\ninstead of {expect}");
    }
    let check = |says: &[Option<Vec<u8>>], expect: &str| check_as(ours(), says, expect);
    let status = |text: &str| [Some(packet(text.as_bytes()))];
    check(&status("snot_allowed"), "PEER allows only certain nodes to connect");
    check(&status("salive"), "try again in a minute");
    check(&status("snok"), "try again");
    check(&[Some(named())], "PEER broke the distribution protocol: the unknown status");
    check(&status("s\x1b[2J"), "PEER broke the distribution protocol: the unknown status");
    let of_node = |text: &str, expect: &str| check_as(OwnName::OfNode, &status(text), expect);
    of_node("sok", "OTP 23 is the oldest supported release");
    of_node("sok_simultaneous", "OTP 23 is the oldest supported release");
    of_node("snamed:", "the packet with our node name is truncated");
    of_node("snamed:\0\x03X@h\0\0", "the packet with our node name is truncated");
    of_node("snamed:\0\x01X\0\0\0\x01", "the invalid node name \"X\"");
    check(&status(""), "a packet that is not a status");
    check(&[None], "PEER closed the connection without an answer: is it the distribution port");
    // A TLS server's answer to data that is not TLS: alert, fatal, unexpected message.
    check(&[Some(vec![21, 3, 3, 0, 2, 2, 10]), None], "PEER uses TLS");
    check(&[Some(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()), None], "closed the connection in the middle");
    check(&[Some(ok()), None], "closed the connection in the middle of the handshake");
    check(&[Some(ok()), Some(challenge(0, b"a@h"))], "no distributed spawn requests");
    check(&[Some(ok()), Some(packet(b"n\0\x05"))], "no distribution handshake version 6");
    check(&[Some(ok()), Some(packet(b"N\0\x05"))], "a malformed challenge");
    check(
        &[Some(ok()), Some(challenge(flag::SPAWN, b"a@h.example.org"))],
        "the node at this address is a@h.example.org, not a@h: use a@h.example.org",
    );
    let known = [Some(ok()), Some(challenge(flag::SPAWN, b"a@h"))];
    let then = |last: Option<Vec<u8>>| [&known[..], &[last]].concat();
    check(&then(None), "a@h rejects the cookie (from FILE): give the node's cookie with --cookie-file");
    check(&then(Some(acknowledgement([0; 16]))), "a@h does not know its own cookie");
    check(&then(Some(packet(b"a"))), "a malformed acknowledgement");
}

#[test]
fn cookie_is_not_used_before_the_name_is_checked() {
    let mut handshake = Handshake::new(parameters(ours(), Expected::Name("b".to_owned())));
    handshake.take_output();
    handshake.receive(&ok()).unwrap();
    assert!(matches!(
        handshake.receive(&challenge(flag::SPAWN, b"a@h")),
        Err(AttachError::NameMismatch { wanted, found }) if wanted == "b" && found == "a@h"
    ));
    assert!(handshake.take_output().is_empty());
}

#[test]
fn name_without_host_matches_any_host() {
    let says = [ok(), challenge(flag::SPAWN, b"a@far.away"), acknowledgement(md5("secret7"))].map(Some);
    assert_eq!(&*run(ours(), Expected::Name("a".to_owned()), &says).unwrap().0.node, "a@far.away");
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic_and_never_connect(
        start in 0..3usize,
        bytes in proptest::collection::vec(any::<u8>(), 0..600),
    ) {
        let mut handshake = Handshake::new(parameters(ours(), Expected::Any));
        for known in [ok(), challenge(flag::SPAWN, b"a@h")].iter().take(start) {
            handshake.receive(known).unwrap();
        }
        prop_assert!(!matches!(handshake.receive(&bytes), Ok(Some(_))));
        handshake.closed();
    }
}
