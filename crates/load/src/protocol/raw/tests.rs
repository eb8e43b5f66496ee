use proptest::prelude::*;
use rand_core::SeedableRng;
use rand_xoshiro::Xoroshiro128PlusPlus;

use super::*;

/// What a reader reported.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Event {
    Message(Vec<u8>),
    Answer(Answer),
    Fault(RawFault),
}

fn messages(payloads: &[&[u8]]) -> Vec<Event> {
    payloads.iter().map(|payload| Event::Message(payload.to_vec())).collect()
}

/// Feeds `input` to a reader in pieces that end at `cuts`, as the engine does, then closes the connection.
fn feed(reader: &mut Reader, input: &[u8], cuts: &[usize], checks: &Checks) -> Vec<Event> {
    let (mut events, mut held, mut from) = (Vec::new(), Vec::new(), 0);
    for cut in cuts.iter().copied().chain([input.len()]) {
        let cut = cut.clamp(from, input.len());
        held.extend_from_slice(&input[from..cut]);
        from = cut;
        while !held.is_empty() {
            let used = match reader.read(&held, checks) {
                Ok((used, Received::Nothing)) => {
                    held.drain(..used);
                    break;
                }
                Ok((used, Received::Message(payload))) => {
                    events.push(Event::Message(payload.to_vec()));
                    used
                }
                Ok((used, Received::Answer(answer))) => {
                    events.push(Event::Answer(answer));
                    used
                }
                Ok((_, Received::Ready)) => panic!("a raw session is ready from the start"),
                Err(fault) => {
                    events.push(Event::Fault(fault));
                    return events;
                }
            };
            assert!(used > 0, "endless loop");
            reader.forget();
            held.drain(..used);
        }
    }
    events.extend(reader.end(&held).err().map(Event::Fault));
    events
}

/// Checks the events of `input`, both whole and cut at every position.
fn check(framing: &Framing, input: &[u8], events: &[Event]) {
    let framing = Arc::new(framing.clone());
    let every: Vec<usize> = (0..input.len()).collect();
    let cuts = (0..input.len()).map(|cut| vec![cut]).chain([every]);
    for cuts in cuts {
        let found = feed(&mut Reader::new(&framing), input, &cuts, &Checks::default());
        assert_eq!(found, events, "{framing:?}, cut at {cuts:?}");
    }
}

fn lines() -> Framing {
    Framing::delimiter(b"\r\n").unwrap()
}

fn prefixed(bytes: usize, is_little_endian: bool) -> Framing {
    Framing::length_prefix(bytes, is_little_endian).unwrap()
}

fn send(message: &RawMessage) -> Vec<u8> {
    let mut random = Xoroshiro128PlusPlus::seed_from_u64(3);
    let mut values = Values { device: 5, turn: 0, count: &mut 0, random: &mut random, now_ns: 0 };
    let mut out = b"before".to_vec();
    message.render(&mut values, &mut out);
    out.split_off(6)
}

#[test]
fn lines_end_with_their_delimiter() {
    check(&lines(), b"one\r\n\r\nt\rw\no\r\r\n", &messages(&[b"one", b"", b"t\rw\no\r"]));
    check(&Framing::delimiter(b"\0").unwrap(), b"a\0b\0", &messages(&[b"a", b"b"]));
    check(&Framing::delimiter(b"aab").unwrap(), b"aaab-aab", &messages(&[b"a", b"-"]));
    check(&lines(), b"one\r\ntwo\r", &[messages(&[b"one"]), vec![Event::Fault(RawFault::Cut)]].concat());
}

#[test]
fn length_prefixes_delimit_frames() {
    check(&prefixed(1, false), b"\x02ab\x00\x01c", &messages(&[b"ab", b"", b"c"]));
    check(&prefixed(2, false), b"\x00\x02ab\x00\x00", &messages(&[b"ab", b""]));
    check(&prefixed(2, true), b"\x02\x00ab\x01\x00c", &messages(&[b"ab", b"c"]));
    check(&prefixed(4, false), b"\0\0\0\x02ab\0\0\0\x01c", &messages(&[b"ab", b"c"]));
    check(&prefixed(4, true), b"\x02\0\0\0ab", &messages(&[b"ab"]));
    check(&prefixed(4, false), b"\0\0\0\x02a", &[Event::Fault(RawFault::Cut)]);
    check(&prefixed(4, false), b"\0\0", &[Event::Fault(RawFault::Cut)]);
}

#[test]
fn frames_of_fixed_size_are_delimited_by_their_size() {
    check(&Framing::fixed(3).unwrap(), b"onetwo", &messages(&[b"one", b"two"]));
    check(
        &Framing::fixed(3).unwrap(),
        b"onetw",
        &[messages(&[b"one"]), vec![Event::Fault(RawFault::Cut)]].concat(),
    );
}

#[test]
fn without_framing_each_read_is_a_message() {
    let framing = Arc::new(Framing::none());
    let events = feed(&mut Reader::new(&framing), b"onetwo", &[3], &Checks::default());
    assert_eq!(events, messages(&[b"one", b"two"]));
}

#[test]
fn a_frame_above_the_maximum_size_is_refused() {
    check(&prefixed(4, false), b"\x01\0\0\x01", &[Event::Fault(RawFault::LongFrame)]);
    check(&prefixed(4, true), b"\0\0\0\x80", &[Event::Fault(RawFault::LongFrame)]);
    // The last byte could be the first half of the delimiter.
    let long = vec![b'x'; MAX_FRAME_BYTES + 2];
    for input in [long.clone(), [&long[1..], b"\r\n"].concat()] {
        for cuts in [&[][..], &[9]] {
            let events = feed(&mut Reader::new(&Arc::new(lines())), &input, cuts, &Checks::default());
            assert_eq!(events, [Event::Fault(RawFault::LongFrame)]);
        }
    }
    let mut reader = Reader::new(&Arc::new(lines()));
    let longest = [&long[2..], b"\r\n"].concat();
    let events = feed(&mut reader, &longest, &[9, MAX_FRAME_BYTES + 1], &Checks::default());
    assert!(matches!(&events[..], [Event::Message(frame)] if frame.len() == MAX_FRAME_BYTES));
    assert_eq!(reader.assembly.buffer.capacity(), 0, "a large buffer is released");
}

#[test]
fn invalid_framings_are_refused() {
    assert!(Framing::delimiter(b"").unwrap_err().contains("at least one byte"));
    assert!(Framing::length_prefix(3, false).unwrap_err().contains("1, 2 or 4 bytes, not 3"));
    assert!(Framing::fixed(0).unwrap_err().contains("not 0"));
    assert!(Framing::fixed(u32::MAX).is_err());
}

#[test]
fn sent_payloads_are_framed() {
    for (framing, expected) in [
        (lines(), &b"n5\r\n"[..]),
        (prefixed(1, false), b"\x02n5"),
        (prefixed(2, false), b"\0\x02n5"),
        (prefixed(2, true), b"\x02\0n5"),
        (prefixed(4, false), b"\0\0\0\x02n5"),
        (prefixed(4, true), b"\x02\0\0\0n5"),
        (Framing::fixed(9).unwrap(), b"n5"),
        (Framing::none(), b"n5"),
    ] {
        let framing = Arc::new(framing);
        let rendered = RawMessage::new(Template::parse("n${device}", None).unwrap(), &framing, true).unwrap();
        assert_eq!((rendered.fixed(), &send(&rendered)[..]), (None, expected));
        let fixed = RawMessage::new(Template::literal("n5"), &framing, true).unwrap();
        assert_eq!((fixed.fixed(), &send(&fixed)[..]), (Some(expected), expected));
    }
}

#[test]
fn a_message_that_exceeds_its_length_prefix_is_refused() {
    for (bytes, text, fits) in [
        (1, "x".repeat(255), true),
        (1, "x".repeat(256), false),
        (1, "${hex:255}".to_owned(), true),
        (1, "${hex:256}".to_owned(), false),
        (2, "${hex:65535}".to_owned(), true),
        (2, "${hex:65536}".to_owned(), false),
        (4, "${hex:65536}".to_owned(), true),
    ] {
        let payload = Template::parse(&text, None).unwrap();
        let message = RawMessage::new(payload, &Arc::new(prefixed(bytes, false)), true);
        assert_eq!(message.is_ok(), fits, "{text:.20}");
        if let Err(error) = message {
            assert!(error.contains("at most"), "{error}");
        }
    }
}

#[test]
fn the_next_frame_is_the_answer_to_an_answered_message() {
    let framing = Arc::new(lines());
    let message = |is_answered| RawMessage::new(Template::literal("ask"), &framing, is_answered).unwrap();
    let checks = Checks { body: vec!["OK".to_owned()], ..Checks::default() };
    let answer = |bytes, wrong: Option<&'static str>| {
        let wrong = wrong.map(|words| (ErrorKind::Check, Cow::Borrowed(words)));
        Event::Answer(Answer { bytes, keeps_alive: true, wrong })
    };

    let mut reader = Reader::new(&framing);
    assert_eq!(reader.sent(&message(false)), SendOutcome::Done);
    assert_eq!(feed(&mut reader, b"OK\r\n", &[], &checks), messages(&[b"OK"]));

    assert_eq!(reader.sent(&message(true)), SendOutcome::Awaited);
    let mut expected = vec![answer(5, None)];
    expected.extend(messages(&[b"more"]));
    assert_eq!(feed(&mut reader, b"OK 12\r\nmore\r\n", &[2, 6], &checks), expected);

    assert_eq!(reader.sent(&message(true)), SendOutcome::Awaited);
    let expected = [answer(5, Some("the answer does not contain \"OK\""))];
    assert_eq!(feed(&mut reader, b"ERROR\r\n", &[], &checks), expected);

    assert_eq!(reader.sent(&message(true)), SendOutcome::Awaited);
    assert_eq!(feed(&mut reader, b"", &[], &checks), [Event::Fault(RawFault::Unanswered)]);
}

fn framings() -> impl Strategy<Value = Framing> {
    prop_oneof![
        proptest::collection::vec(0_u8..3, 1..4).prop_map(|bytes| Framing::delimiter(&bytes).unwrap()),
        (prop_oneof![Just(1_usize), Just(2), Just(4)], any::<bool>())
            .prop_map(|(bytes, is_little)| prefixed(bytes, is_little)),
        (1_u32..9).prop_map(|bytes| Framing::fixed(bytes).unwrap()),
    ]
}

proptest! {
    #[test]
    fn the_result_does_not_depend_on_how_the_input_is_split(
        framing in framings(),
        input in proptest::collection::vec(0_u8..3, 0..200),
        cuts in proptest::collection::vec(0_usize..200, 0..12),
    ) {
        let framing = Arc::new(framing);
        let mut cuts = cuts;
        cuts.sort_unstable();
        let whole = feed(&mut Reader::new(&framing), &input, &[], &Checks::default());
        prop_assert_eq!(feed(&mut Reader::new(&framing), &input, &cuts, &Checks::default()), whole);
    }

    #[test]
    fn sent_frames_are_read_back(
        is_little_endian in any::<bool>(),
        bytes in prop_oneof![Just(1_usize), Just(2), Just(4)],
        payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..256), 0..6),
    ) {
        let framing = Arc::new(prefixed(bytes, is_little_endian));
        let mut stream = Vec::new();
        for payload in &payloads {
            let message = RawMessage::new(Template::literal(payload.clone()), &framing, false).unwrap();
            stream.extend(send(&message));
        }
        let payloads: Vec<&[u8]> = payloads.iter().map(Vec::as_slice).collect();
        let found = feed(&mut Reader::new(&framing), &stream, &[], &Checks::default());
        prop_assert_eq!(found, messages(&payloads));
    }

    #[test]
    fn arbitrary_bytes_neither_panic_nor_loop_forever(
        framing in framings(),
        input in proptest::collection::vec(any::<u8>(), 0..400),
    ) {
        feed(&mut Reader::new(&Arc::new(framing)), &input, &[], &Checks::default());
    }
}
