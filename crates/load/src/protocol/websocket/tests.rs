//! Tests what a client must accept and refuse, following the client cases of the Autobahn test suite. Each case is read both in one piece
//! and cut at every position.

use std::io::Cursor;

use proptest::prelude::*;
use rand_core::SeedableRng;
use rand_xoshiro::Xoroshiro128PlusPlus;
use tungstenite::protocol::{Role, WebSocketConfig};
use tungstenite::{Message as Peer, WebSocket};

use super::*;

/// What a session reported.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Event {
    Message(Vec<u8>),
    Answer { bytes: u64, keeps_alive: bool },
    Fault(WebSocketFault),
}

fn message(payload: impl Into<Vec<u8>>) -> Event {
    Event::Message(payload.into())
}

/// An open session.
fn open() -> Connection {
    Connection { state: State::Open, masks: Masks::new(1 << 40), ..Connection::default() }
}

/// A server's frame with this first byte, and with its length in the shortest form.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
    match payload.len() {
        length @ 0..126 => frame.push(length as u8),
        length @ 126..0x1_0000 => {
            frame.push(126);
            frame.extend_from_slice(&(length as u16).to_be_bytes());
        }
        length => {
            frame.push(127);
            frame.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    frame.extend_from_slice(payload);
    frame
}

const FINAL: u8 = 0x80;
const TEXT: u8 = FINAL | 1;
const BINARY: u8 = FINAL | 2;
const CLOSE: u8 = FINAL | 8;
const PING: u8 = FINAL | 9;
const PONG: u8 = FINAL | 10;
const TEXT_START: u8 = 1;
const BINARY_START: u8 = 2;
const MIDDLE: u8 = 0;
const END: u8 = FINAL;

/// Feeds `input` to a session in pieces that end at `cuts`, as the engine does. Returns events, output and unused bytes.
fn feed(connection: &mut Connection, input: &[u8], cuts: &[usize]) -> (Vec<Event>, Vec<u8>, Vec<u8>) {
    let (mut events, mut out, mut held, mut from) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for cut in cuts.iter().copied().chain([input.len()]) {
        let cut = cut.clamp(from, input.len());
        held.extend_from_slice(&input[from..cut]);
        from = cut;
        while !held.is_empty() {
            let (used, is_nothing) = match connection.read(&held, &mut out) {
                Ok((used, heard)) => {
                    let is_nothing = heard == Received::Nothing;
                    match heard {
                        Received::Message(payload) => events.push(message(payload)),
                        Received::Answer(answer) => {
                            assert_eq!(answer.wrong, None);
                            let Answer { bytes, keeps_alive, .. } = answer;
                            events.push(Event::Answer { bytes, keeps_alive });
                        }
                        Received::Ready => panic!("the session was open already"),
                        Received::Nothing => {}
                    }
                    (used, is_nothing)
                }
                Err(fault) => {
                    events.push(Event::Fault(fault));
                    return (events, out, Vec::new());
                }
            };
            connection.forget();
            held.drain(..used);
            if is_nothing {
                break;
            }
            assert!(used > 0, "endless loop");
        }
    }
    (events, out, held)
}

/// Parses a client's frames: first byte and payload.
fn client_frames(mut bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut frames = Vec::new();
    while let [first, second, rest @ ..] = bytes {
        assert_eq!(second & 0x80, 0x80, "a client's frames are masked");
        let (length, rest) = match second & 0x7F {
            126 => (u16::from_be_bytes(rest[..2].try_into().unwrap()) as usize, &rest[2..]),
            127 => (u64::from_be_bytes(rest[..8].try_into().unwrap()) as usize, &rest[8..]),
            short => (usize::from(short), rest),
        };
        let key = &rest[..4];
        let payload = rest[4..4 + length].iter().zip(key.iter().cycle()).map(|(byte, key)| byte ^ key);
        frames.push((*first, payload.collect()));
        bytes = &rest[4 + length..];
    }
    assert!(bytes.is_empty(), "half a frame");
    frames
}

/// Checks the events of `frames` and the frames sent in reply, with the input whole and cut at every position.
fn check(name: &str, frames: &[Vec<u8>], events: &[Event], sent: &[(u8, &[u8])]) {
    let input = frames.concat();
    let every: Vec<usize> = (0..input.len()).collect();
    let mut cuts: Vec<Vec<usize>> = vec![vec![], every];
    if input.len() < 400 {
        cuts.extend((0..input.len()).map(|cut| vec![cut]));
    } else {
        cuts.extend((1..4).map(|part| vec![input.len() * part / 4]));
    }
    for cuts in cuts {
        let (found, out, _) = feed(&mut open(), &input, &cuts);
        assert_eq!(found, events, "{name}, cut at {:.60}", format!("{cuts:?}"));
        let frames = client_frames(&out);
        let frames: Vec<(u8, &[u8])> = frames.iter().map(|(first, payload)| (*first, &payload[..])).collect();
        assert_eq!(frames, sent, "{name}, cut at {:.60}", format!("{cuts:?}"));
    }
}

/// Checks that `frames` are refused with `fault`, and that a Close frame with `code` is sent.
fn refuses(name: &str, frames: &[Vec<u8>], fault: WebSocketFault, code: u16) {
    check(name, frames, &[Event::Fault(fault)], &[(CLOSE, &code.to_be_bytes())]);
}

#[test]
fn messages_with_every_form_of_length_are_read() {
    for length in [0, 1, 125, 126, 127, 128, 65_535, 65_536, 70_000] {
        let payload = vec![b'*'; length];
        check("text", &[frame(TEXT, &payload)], &[message(payload.clone())], &[]);
        let payload = vec![0xFE; length];
        check("binary", &[frame(BINARY, &payload)], &[message(payload.clone())], &[]);
    }
}

#[test]
fn pings_are_answered_with_their_payload() {
    let long = [0xFE; 125];
    check("empty", &[frame(PING, b"")], &[], &[(PONG, b"")]);
    check("text", &[frame(PING, b"hello")], &[], &[(PONG, b"hello")]);
    check("bytes", &[frame(PING, &[0, 0xFF, 0xFE])], &[], &[(PONG, &[0, 0xFF, 0xFE])]);
    check("the longest", &[frame(PING, &long)], &[], &[(PONG, &long)]);
    refuses("too long", &[frame(PING, &[0xFE; 126])], WebSocketFault::LongControl, 1002);
    check(
        "several",
        &[frame(PING, b"1"), frame(PING, b"2"), frame(PING, b"3")],
        &[],
        &[(PONG, b"1"), (PONG, b"2"), (PONG, b"3")],
    );
    check("an unsolicited pong", &[frame(PONG, b"x"), frame(PING, b"1")], &[], &[(PONG, b"1")]);
}

#[test]
fn reserved_bits_and_opcodes_are_refused() {
    for bit in [0x10, 0x20, 0x40, 0x70] {
        for first in [TEXT, BINARY, PING, PONG, CLOSE] {
            refuses("bit", &[frame(first | bit, b"x")], WebSocketFault::Reserved, 1002);
        }
    }
    for opcode in [3, 4, 5, 6, 7, 11, 12, 13, 14, 15] {
        refuses("opcode", &[frame(FINAL | opcode, b"x")], WebSocketFault::Opcode(opcode), 1002);
    }
    check(
        "after a message and a ping",
        &[frame(TEXT, b"ok"), frame(PING, b"1"), frame(TEXT | 0x40, b"x"), frame(TEXT, b"ignored")],
        &[message("ok"), Event::Fault(WebSocketFault::Reserved)],
        &[(PONG, b"1"), (CLOSE, &1002_u16.to_be_bytes())],
    );
}

#[test]
fn frames_that_a_server_must_not_send_are_refused() {
    refuses("masked", &[vec![TEXT, 0x81, 1, 2, 3, 4, b'x']], WebSocketFault::Masked, 1002);
    refuses("too long a form, 2 bytes", &[vec![TEXT, 126, 0, 125]], WebSocketFault::Length, 1002);
    refuses(
        "too long a form, 8 bytes",
        &[vec![TEXT, 127, 0, 0, 0, 0, 0, 0, 255, 255]],
        WebSocketFault::Length,
        1002,
    );
    refuses("first bit", &[vec![TEXT, 127, 0x80, 0, 0, 0, 0, 1, 0, 0]], WebSocketFault::Length, 1002);
    refuses("a ping in fragments", &[frame(0x9, b"x")], WebSocketFault::FragmentedControl, 1002);
    refuses("a pong in fragments", &[frame(0xA, b"x")], WebSocketFault::FragmentedControl, 1002);
    refuses("a Close frame in fragments", &[frame(0x8, b"")], WebSocketFault::FragmentedControl, 1002);
}

#[test]
fn fragments_form_a_message_with_control_frames_between_them() {
    check("two", &[frame(TEXT_START, b"frag"), frame(END, b"ment")], &[message("fragment")], &[]);
    check(
        "a ping between",
        &[frame(TEXT_START, b"frag"), frame(PING, b"p"), frame(END, b"ment")],
        &[message("fragment")],
        &[(PONG, b"p")],
    );
    check(
        "pings and empty fragments",
        &[
            frame(BINARY_START, b""),
            frame(PING, b"1"),
            frame(MIDDLE, &[0xFF]),
            frame(MIDDLE, b""),
            frame(PING, b"2"),
            frame(END, b""),
            frame(BINARY, b"next"),
        ],
        &[message([0xFF]), message("next")],
        &[(PONG, b"1"), (PONG, b"2")],
    );
    check("all empty", &[frame(TEXT_START, b""), frame(MIDDLE, b""), frame(END, b"")], &[message("")], &[]);
    refuses("an end outside a message", &[frame(END, b"x")], WebSocketFault::Continuation, 1002);
    refuses("a middle outside a message", &[frame(MIDDLE, b"x")], WebSocketFault::Continuation, 1002);
    refuses(
        "a message within",
        &[frame(TEXT_START, b"frag"), frame(TEXT, b"ment")],
        WebSocketFault::Interleaved,
        1002,
    );
    refuses(
        "a beginning within",
        &[frame(TEXT_START, b"frag"), frame(BINARY_START, b"x")],
        WebSocketFault::Interleaved,
        1002,
    );
    check(
        "an end too many",
        &[frame(TEXT_START, b"a"), frame(END, b"b"), frame(END, b"c")],
        &[message("ab"), Event::Fault(WebSocketFault::Continuation)],
        &[(CLOSE, &1002_u16.to_be_bytes())],
    );
}

#[test]
fn text_is_valid_at_whatever_position_it_is_cut() {
    for text in [
        "κόσμε",
        "Hello-µ@ßöäüàá-UTF-8!!",
        "\u{0}\u{7f}\u{80}\u{7ff}\u{800}\u{ffff}\u{10000}\u{10ffff}",
        "\u{d7ff}\u{e000}\u{fffd}\u{fffe}\u{1fffe}",
    ] {
        let bytes = text.as_bytes();
        check("whole", &[frame(TEXT, bytes)], &[message(text)], &[]);
        for cut in 0..=bytes.len() {
            let fragments = [frame(TEXT_START, &bytes[..cut]), frame(PING, b""), frame(END, &bytes[cut..])];
            check("in two fragments", &fragments, &[message(text)], &[(PONG, b"")]);
        }
        let mut fragments: Vec<_> = bytes.iter().map(|byte| frame(MIDDLE, &[*byte])).collect();
        fragments[0][0] = TEXT_START;
        fragments.push(frame(END, b""));
        check("byte by byte", &fragments, &[message(text)], &[]);
    }
}

#[test]
fn invalid_utf_8_is_refused_in_text_and_accepted_in_binary_messages() {
    for bytes in [
        &b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80\x65\x64"[..],
        b"\xff",
        b"\x80",
        b"\xc0\xaf",
        b"\xe0\x80\xaf",
        b"\xf0\x80\x80\xaf",
        b"\xc1\xbf",
        b"\xed\xa0\x80",
        b"\xed\xbf\xbf",
        b"\xf4\x90\x80\x80",
        b"\xf8\x88\x80\x80\x80",
        b"a\xc3",
        b"a\xe2\x82",
        b"a\xf0\x9f\x98",
        b"\xe2\x82a",
    ] {
        refuses("whole", &[frame(TEXT, bytes)], WebSocketFault::Text, 1007);
        for cut in 0..=bytes.len() {
            let fragments = [frame(TEXT_START, &bytes[..cut]), frame(END, &bytes[cut..])];
            refuses("in two fragments", &fragments, WebSocketFault::Text, 1007);
        }
        check("as bytes", &[frame(BINARY, bytes)], &[message(bytes)], &[]);
    }
}

#[test]
fn invalid_text_is_refused_before_its_end() {
    let (events, _, _) = feed(&mut open(), &[TEXT, 126, 0x10, 0, b'a', 0xF4, 0x90], &[]);
    assert_eq!(events, [Event::Fault(WebSocketFault::Text)]);
}

#[test]
fn a_close_frame_is_answered_and_ends_the_session() {
    let closed = |code, reason: &str| Event::Fault(WebSocketFault::Closed { code, reason: reason.into() });
    check("without a code", &[frame(CLOSE, b"")], &[closed(None, "")], &[(CLOSE, b"")]);
    let codes =
        [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014, 3000, 3999, 4000, 4999];
    for code in codes {
        let bytes = u16::to_be_bytes(code);
        check("a code", &[frame(CLOSE, &bytes)], &[closed(Some(code), "")], &[(CLOSE, &bytes)]);
    }
    let long = "*".repeat(123);
    for reason in ["Bye, µ", &long] {
        let payload = [&[0x03, 0xE8], reason.as_bytes()].concat();
        check("words", &[frame(CLOSE, &payload)], &[closed(Some(1000), reason)], &[(CLOSE, &payload[..2])]);
    }
    check(
        "control characters",
        &[frame(CLOSE, b"\x03\xe8a\x1b[2Jb")],
        &[closed(Some(1000), "a?[2Jb")],
        &[(CLOSE, &[0x03, 0xE8])],
    );
    check(
        "frames after it are ignored",
        &[frame(CLOSE, &[0x03, 0xE8]), frame(PING, b"x"), frame(TEXT, b"x")],
        &[closed(Some(1000), "")],
        &[(CLOSE, &[0x03, 0xE8])],
    );
    check(
        "within a message",
        &[frame(TEXT_START, b"a"), frame(CLOSE, &[0x03, 0xE9])],
        &[closed(Some(1001), "")],
        &[(CLOSE, &[0x03, 0xE9])],
    );
}

#[test]
fn malformed_close_frames_are_refused() {
    for code in [0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65_535] {
        refuses("code", &[frame(CLOSE, &u16::to_be_bytes(code))], WebSocketFault::CloseCode, 1002);
    }
    refuses("half a code", &[frame(CLOSE, &[0x03])], WebSocketFault::CloseCode, 1002);
    refuses("words", &[frame(CLOSE, b"\x03\xe8\xce\xba\xed\xa0\x80")], WebSocketFault::Text, 1007);
    refuses("too long", &[frame(CLOSE, &[3; 126])], WebSocketFault::LongControl, 1002);
}

#[test]
fn a_message_above_the_maximum_size_is_refused_at_its_head() {
    let mut head = vec![BINARY, 127];
    head.extend_from_slice(&(u64::from(MAX_MESSAGE_BYTES) + 1).to_be_bytes());
    refuses("one frame", &[head], WebSocketFault::LongMessage, 1009);

    let mut connection = open();
    let mut input = frame(BINARY_START, &vec![7; MAX_MESSAGE_BYTES as usize - 1]);
    input.extend(frame(END, b"x"));
    let (events, _, _) = feed(&mut connection, &input, &[1000]);
    assert!(matches!(&events[..], [Event::Message(payload)] if payload.len() == MAX_MESSAGE_BYTES as usize));
    assert_eq!(connection.buffer.capacity(), 0, "a large buffer is released");
    let end = input.len() - 3;
    input.truncate(end);
    input.extend(frame(END, b"xy"));
    assert_eq!(feed(&mut open(), &input, &[]).0, [Event::Fault(WebSocketFault::LongMessage)]);
}

#[test]
fn a_message_in_one_piece_is_not_copied() {
    let (mut connection, input) = (open(), [frame(TEXT, b"one"), frame(TEXT, b"two")].concat());
    let (used, heard) = connection.read(&input, &mut Vec::new()).unwrap();
    assert_eq!((used, heard), (5, Received::Message(b"one")));
    assert_eq!(connection.buffer.capacity(), 0);
}

#[test]
fn only_the_matching_pong_answers_a_ping() {
    let mut connection = open();
    let mut out = Vec::new();
    connection.ping(&mut out);
    connection.ping(&mut out);
    let pings = client_frames(&out);
    let [(PING, first), (PING, second)] = &pings[..] else { panic!("{pings:?}") };
    assert_ne!(first, second);
    let input = [frame(PONG, first), frame(TEXT, b"x"), frame(PONG, second), frame(PONG, second)].concat();
    let (events, _, _) = feed(&mut connection, &input, &[]);
    assert_eq!(events, [message("x"), Event::Answer { bytes: 4, keeps_alive: true }]);
}

#[test]
fn our_close_frame_is_answered_by_the_servers_close_frame() {
    let mut connection = open();
    let mut out = Vec::new();
    connection.close_with(&CloseFrame::new(4001, "done").unwrap(), &mut out);
    assert_eq!(client_frames(&out), [(CLOSE, b"\x0f\xa1done".to_vec())]);
    let input = [frame(TEXT, b"still read"), frame(CLOSE, &[0x03, 0xE8]), frame(TEXT, b"x")].concat();
    let (events, out, _) = feed(&mut connection, &input, &[]);
    assert_eq!(events, [message("still read"), Event::Answer { bytes: 2, keeps_alive: false }]);
    assert_eq!(out, b"", "a Close frame is sent once");
    let mut out = Vec::new();
    connection.close(&mut out);
    assert_eq!(out, b"");
}

#[test]
fn invalid_close_codes_and_reasons_are_refused() {
    assert!(CloseFrame::new(1005, "").unwrap_err().contains("not a valid close code"));
    assert!(CloseFrame::new(1000, &"x".repeat(124)).unwrap_err().contains("123 bytes"));
}

#[test]
fn closing_sends_one_close_frame() {
    let mut connection = open();
    let mut out = Vec::new();
    connection.close(&mut out);
    connection.close(&mut out);
    assert_eq!(client_frames(&out), [(CLOSE, vec![0x03, 0xE8])]);
    let mut out = Vec::new();
    Connection::default().close(&mut out);
    assert_eq!(out, b"");
}

#[test]
fn the_end_of_a_connection_is_a_fault_if_something_was_pending() {
    assert_eq!(open().end(b""), Ok(()));
    assert_eq!(open().end(&[TEXT]), Err(WebSocketFault::Cut));
    for part in [&[TEXT, 5, b'x'][..], &frame(TEXT_START, b"x")] {
        let mut connection = open();
        feed(&mut connection, part, &[]);
        assert_eq!(connection.end(b""), Err(WebSocketFault::Cut));
    }
    let mut connection = open();
    connection.ping(&mut Vec::new());
    assert_eq!(connection.end(b""), Err(WebSocketFault::Unanswered));
    let mut connection = open();
    feed(&mut connection, &frame(CLOSE, b""), &[]);
    assert_eq!(connection.end(b""), Ok(()));
}

#[test]
fn a_refused_upgrade_is_counted_as_a_status_error() {
    let mut random = Xoroshiro128PlusPlus::seed_from_u64(3);
    let mut values = Values { device: 0, turn: 0, count: &mut 0, random: &mut random, now_ns: 0 };
    let upgrade = Arc::new(Upgrade::new(&Template::literal("/"), &[], Vec::new()));
    let (mut connection, mut out) = (Connection::default(), Vec::new());
    connection.open(&upgrade, &mut values, &mut out);
    out.clear();
    let fault = connection.read(b"HTTP/1.1 503 Busy\r\n\r\n", &mut out).unwrap_err();
    assert_eq!(
        (fault.kind(), fault.to_string().as_str()),
        (ErrorKind::Status, "the upgrade was answered with status 503")
    );
    assert_eq!(out, b"", "there is no session to close");
    connection.open(&upgrade, &mut values, &mut out);
    assert_eq!(connection.end(b""), Err(WebSocketFault::Unanswered));
}

#[test]
fn an_idle_connection_is_small() {
    assert!(size_of::<Connection>() <= 64, "{}", size_of::<Connection>());
}

#[test]
fn masking_by_words_equals_masking_by_bytes() {
    let key = [0x11, 0x22, 0x84, 0xF8];
    for length in 0..70 {
        let payload: Vec<u8> = (0..length).collect();
        let expected: Vec<u8> =
            payload.iter().zip(key.iter().cycle()).map(|(byte, key)| byte ^ key).collect();
        let mut masked = payload.clone();
        frame::mask(&mut masked, key);
        assert_eq!(masked, expected);
    }
}

#[test]
fn sending_does_not_allocate_after_warm_up() {
    let mut random = Xoroshiro128PlusPlus::seed_from_u64(3);
    let mut values = Values { device: 5, turn: 0, count: &mut 0, random: &mut random, now_ns: 0 };
    let (mut connection, mut scratch, mut out) = (open(), Vec::new(), Vec::new());
    let payload = Template::parse("reading ${device} ${hex:300}", None).unwrap();
    let mut keys = std::collections::HashSet::new();
    let mut capacities = None;
    for _ in 0..100 {
        out.clear();
        connection.send(true, &payload, &mut values, &mut scratch, &mut out);
        keys.insert(out[4..8].to_vec());
        let now = (scratch.capacity(), out.capacity());
        assert_eq!(*capacities.get_or_insert(now), now);
    }
    assert!(keys.len() > 95, "each frame has its own key");
}

/// Parses a client's bytes with the server of tungstenite.
fn read_by_peer(bytes: Vec<u8>) -> Vec<Peer> {
    let mut socket =
        WebSocket::from_raw_socket(Cursor::new(bytes), Role::Server, Some(WebSocketConfig::default()));
    std::iter::from_fn(|| socket.read().ok()).collect()
}

/// The frames of a server's message: fragments, with control frames between them.
fn fragments() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let control = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..20).prop_map(|payload| frame(PING, &payload)),
        Just(frame(PONG, b"alive")),
    ];
    let text = "[a-zß€😀]{0,40}".prop_map(|text| (1_u8, text.into_bytes()));
    let bytes = proptest::collection::vec(any::<u8>(), 0..200).prop_map(|bytes| (2_u8, bytes));
    let cuts = proptest::collection::vec(any::<prop::sample::Index>(), 0..4);
    (prop_oneof![text, bytes], cuts, control).prop_map(|((opcode, payload), cuts, control)| {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(payload.len() + 1)).collect();
        cuts.sort_unstable();
        let mut frames = Vec::new();
        let mut from = 0;
        for cut in cuts {
            frames.push(frame(if frames.is_empty() { opcode } else { MIDDLE }, &payload[from..cut]));
            frames.push(control.clone());
            from = cut;
        }
        frames.push(frame(FINAL | if frames.is_empty() { opcode } else { MIDDLE }, &payload[from..]));
        frames
    })
}

proptest! {
    #[test]
    fn tungstenite_reads_the_sent_messages(
        is_text in any::<bool>(),
        texts in proptest::collection::vec("[a-zß€😀]{0,200}", 0..8),
    ) {
        let mut random = Xoroshiro128PlusPlus::seed_from_u64(3);
        let mut values = Values { device: 5, turn: 0, count: &mut 0, random: &mut random, now_ns: 0 };
        let (mut connection, mut scratch, mut out) = (open(), Vec::new(), Vec::new());
        let mut expected = Vec::new();
        for text in &texts {
            let payload = Template::parse(&format!("{text}${{device}}"), None).unwrap();
            connection.send(is_text, &payload, &mut values, &mut scratch, &mut out);
            let text = format!("{text}5");
            expected.push(if is_text { Peer::text(text) } else { Peer::binary(text.into_bytes()) });
        }
        prop_assert_eq!(read_by_peer(out), expected);
    }

    #[test]
    fn the_result_does_not_depend_on_how_the_input_is_split(
        messages in proptest::collection::vec(fragments(), 0..6),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..12),
        damage in proptest::option::of((any::<prop::sample::Index>(), any::<u8>())),
    ) {
        let mut input = messages.concat().concat();
        if let Some((at, byte)) = damage && !input.is_empty() {
            let at = at.index(input.len());
            input[at] = byte;
        }
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(input.len() + 1)).collect();
        cuts.sort_unstable();
        let (events, out, _) = feed(&mut open(), &input, &[]);
        let (cut_events, cut_out, _) = feed(&mut open(), &input, &cuts);
        prop_assert_eq!(events, cut_events);
        prop_assert_eq!(out, cut_out);
    }

    #[test]
    fn arbitrary_bytes_neither_panic_nor_loop_forever(input in proptest::collection::vec(any::<u8>(), 0..400)) {
        let (_, out, _) = feed(&mut open(), &input, &[]);
        client_frames(&out);
    }
}
