use proptest::prelude::*;

use super::*;

fn decode(bytes: &[u8]) -> Result<Document, TermError> {
    Document::decode(bytes.to_vec(), 0, Limits::default())
}

/// Checks the output of `erlang:term_to_binary(Term, [{minor_version, 2}])` (OTP 25) against the text that Erlang prints for the
/// term.
#[test]
fn terms_of_erlang_are_decoded_and_displayed_as_erlang_prints_them() {
    fn check(bytes: &[u8], expect: &str) {
        match decode(bytes) {
            Ok(document) => assert_eq!(document.root().to_string(), expect, "{bytes:?}"),
            Err(error) => panic!("{bytes:?}: {error}"),
        }
    }
    check(&[131, 97, 255], "255");
    check(&[131, 98, 255, 255, 255, 255], "-1");
    check(&[131, 98, 0, 0, 1, 0], "256");
    check(&[131, 110, 4, 0, 0, 0, 0, 128], "2147483648");
    check(&[131, 110, 8, 1, 0, 0, 0, 0, 0, 0, 0, 128], "-9223372036854775808");
    check(&[131, 111, 0, 0, 0, 1, 0, 7], "7");
    check(&[131, 70, 63, 248, 0, 0, 0, 0, 0, 0], "1.5");
    check(&[131, 119, 2, b'o', b'k'], "ok");
    check(&[131, 118, 0, 2, b'o', b'k'], "ok");
    check(&[131, 100, 0, 2, b'o', b'k'], "ok");
    check(&[131, 115, 1, 0xE9], "'é'");
    check(&[131, 119, 2, 0xC3, 0xA9], "'é'");
    check(&[131, 119, 11, b'E', b'l', b'i', b'x', b'i', b'r', b'.', b'E', b'n', b'u', b'm'], "'Elixir.Enum'");
    check(&[131, 104, 0], "{}");
    check(&[131, 104, 2, 97, 1, 104, 1, 106], "{1,{[]}}");
    check(&[131, 105, 0, 0, 0, 1, 97, 1], "{1}");
    check(&[131, 106], "[]");
    check(&[131, 107, 0, 2, b'h', b'i'], "\"hi\"");
    check(&[131, 107, 0, 2, 1, 2], "[1,2]");
    check(&[131, 108, 0, 0, 0, 2, 98, 255, 255, 255, 255, 98, 255, 255, 255, 254, 106], "[-1,-2]");
    check(&[131, 108, 0, 0, 0, 1, 97, 1, 97, 2], "[1|2]");
    check(&[131, 116, 0, 0, 0, 1, 119, 1, b'a', 97, 1], "#{a => 1}");
    check(&[131, 109, 0, 0, 0, 2, b'h', b'i'], "<<\"hi\">>");
    check(&[131, 109, 0, 0, 0, 2, 27, 255], "<<2 bytes>>");
    check(&[131, 77, 0, 0, 0, 1, 3, 160], "<<bits>>");
    check(&[131, 88, 119, 3, b'n', b'@', b'h', 0, 0, 0, 90, 0, 0, 0, 1, 0, 0, 0, 3], "<n@h.90.1>");
    check(&[131, 90, 0, 1, 119, 1, b'n', 0, 0, 0, 3, 0, 0, 0, 9], "#Ref<>");
    check(&[131, 89, 119, 1, b'n', 0, 0, 0, 3, 0, 0, 0, 9], "#Port<>");
    check(&[131, 120, 119, 1, b'n', 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 9], "#Port<>");
    check(&[131, 113, 119, 1, b'm', 119, 1, b'f', 97, 2], "#Fun<>");
    check(&[131, 112, 0, 0, 0, 6, 1, 2], "#Fun<>");
}

#[test]
fn malformed_bytes_are_errors_with_the_reason() {
    fn check(bytes: &[u8], expect: &str) {
        match decode(bytes) {
            Ok(document) => panic!("{bytes:?} was read as {}", document.root()),
            Err(error) => assert_eq!(error.to_string(), expect, "{bytes:?}"),
        }
    }
    check(&[], "the term is truncated at byte 0");
    check(&[131], "the term is truncated at byte 1");
    check(&[130, 106], "malformed at byte 0: no version byte 131 before the term");
    check(&[131, 106, 0], "malformed at byte 2: bytes after the end of the term");
    // Distribution header, fragment, atom cache reference, compressed term, tags with a one-byte creation.
    for tag in [68, 69, 82, 80, 103, 102, 101, 114, 99, 0, 255] {
        check(&[131, tag, 0, 0, 0, 0], &format!("unknown tag {tag} at byte 1"));
    }
    // Counts and lengths of 4 billion.
    for tag in [105, 108, 116, 109, 111] {
        check(&[131, tag, 255, 255, 255, 255, 0, 0], "the term is truncated at byte 8");
    }
    check(&[131, 104, 3, 106, 106], "the term is truncated at byte 5");
    check(&[131, 112, 0, 0, 0, 3], "malformed at byte 2: a fun's size");
    check(&[131, 112, 255, 255, 255, 255], "the term is truncated at byte 6");
    check(&[131, 119, 1, 0xFF], "malformed at byte 3: an atom that is not UTF-8");
    let mut long = vec![131, 118, 1, 0];
    long.extend([b'a'; 256]);
    check(&long, "malformed at byte 1: an atom of more than 255 characters");
    check(&[131, 88, 106, 0, 0], "malformed at byte 2: no atom where one is required");
    check(&[131, 90, 0, 6, 119, 0], "malformed at byte 1: a reference of more than 5 words");
    check(&[131, 77, 0, 0, 0, 1, 9, 0], "malformed at byte 1: a bit string's length");
    check(&[131, 77, 0, 0, 0, 0, 1], "malformed at byte 1: a bit string's length");
    check(&[131, 70, 127, 240, 0, 0, 0, 0, 0, 0], "malformed at byte 2: a float that is not finite");
    check(&[131, 110, 1, 2, 1], "malformed at byte 3: a bignum's sign");
    check(&[131, 113, 119, 0, 119, 0, 98], "malformed at byte 6: an exported fun's arity");
}

#[test]
fn million_nested_lists_are_an_error_without_stack_overflow() {
    let mut tower = vec![131];
    for _ in 0..1_000_000 {
        tower.extend([104, 1]);
    }
    tower.push(106);
    assert_eq!(decode(&tower).unwrap_err(), TermError::TooDeep { limit: 256, offset: 513 });
}

#[test]
fn depth_up_to_the_limit_is_accepted() {
    let mut tower = vec![131];
    for _ in 0..256 {
        tower.extend([104, 1]);
    }
    tower.push(106);
    assert_eq!(decode(&tower).unwrap().nodes.len(), 257);
}

#[test]
fn number_of_terms_is_limited() {
    let mut bytes = vec![131, 108];
    bytes.extend(1_000u32.to_be_bytes());
    bytes.extend([106; 1_001]);
    let limits = Limits { terms: 500, ..Limits::default() };
    assert_eq!(
        Document::decode(bytes.clone(), 0, limits).unwrap_err(),
        TermError::TooManyTerms { limit: 500 }
    );
    let limits = Limits { bytes: 1_000, ..Limits::default() };
    assert_eq!(
        Document::decode(bytes, 0, limits).unwrap_err(),
        TermError::TooManyBytes { bytes: 1_007, limit: 1_000 }
    );
}

#[test]
fn all_encodings_of_lists_are_equivalent() {
    fn check(bytes: &[u8], expect: &[i64]) {
        let document = decode(bytes).unwrap();
        let list = document.root().list().unwrap();
        assert_eq!(list.len(), expect.len());
        assert_eq!(list.map(|element| element.as_i64().unwrap()).collect::<Vec<_>>(), expect);
    }
    check(&[131, 106], &[]);
    check(&[131, 107, 0, 0], &[]);
    check(&[131, 107, 0, 3, 1, 2, 255], &[1, 2, 255]);
    check(&[131, 108, 0, 0, 0, 2, 97, 7, 98, 255, 255, 255, 255, 106], &[7, -1]);
}

#[test]
fn integers_are_read_if_they_fit() {
    fn check(bytes: &[u8], i64_: Option<i64>, u64_: Option<u64>) {
        let document = decode(bytes).unwrap();
        assert_eq!(document.root().as_i64().ok(), i64_);
        assert_eq!(document.root().as_u64().ok(), u64_);
    }
    check(&[131, 97, 9], Some(9), Some(9));
    check(&[131, 98, 255, 255, 255, 255], Some(-1), None);
    check(&[131, 110, 8, 0, 255, 255, 255, 255, 255, 255, 255, 255], None, Some(u64::MAX));
    check(&[131, 110, 8, 1, 0, 0, 0, 0, 0, 0, 0, 128], Some(i64::MIN), None);
    check(&[131, 110, 9, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0], Some(1), Some(1));
    check(&[131, 110, 0, 0], Some(0), Some(0));
    check(&[131, 110, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], None, None);
    let mut huge = vec![131, 111, 0, 0, 1, 0, 0];
    huge.extend([1; 256]);
    check(&huge, None, None);
    assert!(decode(&huge).unwrap().root().to_string().starts_with("16#0101"));
}

#[test]
fn errors_state_expected_and_found_type_and_offset() {
    // {ok, #{a => <<"x">>}}
    let bytes =
        [131, 104, 2, 119, 2, b'o', b'k', 116, 0, 0, 0, 1, 119, 1, b'a', 109, 0, 0, 0, 1, b'x'].to_vec();
    let document = Document::decode(bytes, 0, Limits::default()).unwrap();
    let [ok, map] = document.root().tuple_of().unwrap();
    assert_eq!(map.field("a").unwrap().as_str(), Ok("x"));
    assert!(map.get("b").unwrap().is_none());
    fn check<T: fmt::Debug>(result: Result<T, TermError>, expect: &str) {
        assert_eq!(result.unwrap_err().to_string(), expect);
    }
    check(document.root().tuple_of::<3>(), "expected a tuple of 3 elements at byte 1, found one of 2");
    check(ok.as_i64(), "expected an integer at byte 5, found an atom");
    check(map.field("b"), "the map at byte 7 has no key b");
    check(map.list().map(|_| ()), "expected a list at byte 7, found a map");
    check(map.field("a").unwrap().as_pid(), "expected a pid at byte 20, found a binary");
    check(ok.as_bool(), "expected true or false at byte 5, found an atom");
}

#[test]
fn improper_list_is_an_error() {
    let document = decode(&[131, 108, 0, 0, 0, 1, 97, 1, 97, 2]).unwrap();
    assert_eq!(
        document.root().list().map(|_| ()).unwrap_err(),
        TermError::Unexpected { expected: "a proper list", found: Kind::List, offset: 1 }
    );
}

#[test]
fn display_is_short_and_without_control_characters() {
    let escape = Value::tuple([Value::atom("a\u{1b}[2J"), Value::binary(&b"\x1b[31m"[..])]);
    let document = decode(&escape.to_bytes().unwrap()).unwrap();
    assert_eq!(document.root().to_string(), "{'a\\u{1b}[2J',<<5 bytes>>}");
    let long = Value::List((0..1_000).map(|_| Value::from(70_000i64)).collect());
    let shown = decode(&long.to_bytes().unwrap()).unwrap().root().to_string();
    assert!(shown.len() < 410 && shown.ends_with("..."), "{shown}");
}

#[test]
fn negative_numbers_are_not_encoded_as_a_string() {
    let list = Value::list([Value::from(-1i64), Value::from(-2i64)]);
    assert_eq!(
        list.to_bytes().unwrap(),
        [131, 108, 0, 0, 0, 2, 98, 255, 255, 255, 255, 98, 255, 255, 255, 254, 106]
    );
}

#[test]
fn unrepresentable_value_is_an_error() {
    assert_eq!(Value::atom("a".repeat(256)).to_bytes(), Err(EncodeError::AtomTooLong(256)));
    assert_eq!(Value::Float(f64::NAN).to_bytes(), Err(EncodeError::NotFinite));
    // An atom may have 255 characters of 4 bytes each.
    let wide = "\u{10348}".repeat(255);
    let document = decode(&Value::atom(wide.as_str()).to_bytes().unwrap()).unwrap();
    assert_eq!(document.root().as_atom(), Ok(wide.as_str()));
}

fn value() -> impl Strategy<Value = Value<'static>> {
    let leaf = prop_oneof![
        any::<i128>().prop_filter("127 bits", |value| *value != i128::MIN).prop_map(Value::Integer),
        any::<i64>().prop_map(Value::from),
        (-300i64..300).prop_map(Value::from),
        any::<f64>().prop_filter("finite", |value| value.is_finite()).prop_map(Value::Float),
        "[a-zé\u{10348}]{0,60}".prop_map(Value::atom),
        proptest::collection::vec(any::<u8>(), 0..300).prop_map(Value::binary),
        ("[a-z]{1,5}@[a-z]{1,5}", any::<[u32; 3]>()).prop_map(|(node, [id, serial, creation])| Value::Pid(
            Pid { node: node.into(), id, serial, creation }
        )),
        ("[a-z]{1,5}", any::<u32>(), proptest::collection::vec(any::<u32>(), 1..6)).prop_map(
            |(node, creation, words)| Value::Reference(Reference { node: node.into(), creation, words })
        ),
    ];
    leaf.prop_recursive(6, 200, 8, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..8).prop_map(Value::Tuple),
            proptest::collection::vec(inner.clone(), 0..8).prop_map(Value::List),
            proptest::collection::vec((inner.clone(), inner), 0..4).prop_map(Value::Map),
        ]
    })
}

/// Visits all terms of a document and returns their number.
fn walk(term: Term<'_>) -> usize {
    let _ = (term.as_i128(), term.as_f64(), term.as_atom().map(str::len), term.as_bytes().map(<[u8]>::len));
    let _ = (term.as_pid(), term.as_reference(), term.to_text(), term.to_string());
    let elements = term.tuple().or_else(|_| term.list()).map(|elements| elements.map(walk).sum::<usize>());
    let pairs = term.map().map(|pairs| pairs.map(|(key, value)| walk(key) + walk(value)).sum::<usize>());
    1 + elements.unwrap_or(0) + pairs.unwrap_or(0)
}

proptest! {
    #[test]
    fn encoded_value_decodes_to_itself(value in value()) {
        let document = decode(&value.to_bytes().unwrap()).unwrap();
        prop_assert_eq!(document.root().to_value().unwrap(), value);
    }

    #[test]
    fn arbitrary_bytes_never_panic_and_memory_is_bounded_by_their_length(
        bytes in proptest::collection::vec(any::<u8>(), 0..2_000)
    ) {
        let mut bytes = bytes;
        bytes.insert(0, VERSION);
        if let Ok((document, end)) = Document::decode_prefix(bytes, 0, Limits::default()) {
            prop_assert!(document.nodes.len() <= end);
            prop_assert!(document.stored.len() <= 2 * end);
            walk(document.root());
        }
    }

    #[test]
    fn damaged_term_never_panics(
        value in value(),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = value.to_bytes().unwrap();
        for (place, byte) in damage {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        bytes.truncate(cut.index(bytes.len()) + 1);
        if let Ok(document) = decode(&bytes) {
            prop_assert!(walk(document.root()) <= document.nodes.len() + bytes.len());
        }
    }

    #[test]
    fn truncated_term_is_an_error(value in value(), cut in any::<prop::sample::Index>()) {
        let bytes = value.to_bytes().unwrap();
        let cut = cut.index(bytes.len());
        prop_assert!(decode(&bytes[..cut]).is_err());
    }
}
