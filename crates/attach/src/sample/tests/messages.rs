//! Tests of message sizes.

use beamtune_model::MessageRow;

use super::*;

fn messages(sizes: &[(i64, i64)], receivers: &[(&'static str, i64, i64)]) -> Value<'static> {
    let sizes = sizes.iter().map(|&(count, bytes)| Value::tuple([Value::from(count), Value::from(bytes)]));
    let receivers = receivers
        .iter()
        .map(|&(pid, count, bytes)| Value::tuple([binary(pid), Value::from(count), Value::from(bytes)]));
    done(
        "messages",
        &[
            ("active", Value::from(300i64)),
            ("sampled", Value::from(150i64)),
            ("us", Value::from(12_000i64)),
            ("off_heap", Value::from(2i64)),
            ("sizes", Value::list(sizes.collect::<Vec<_>>())),
            ("rows", Value::list(receivers.collect::<Vec<_>>())),
        ],
    )
}

#[test]
fn message_sizes_become_rows() {
    let mut recording = Recording::default();
    let items = vec![messages(&[(7, 700), (2, 800_000)], &[("<0.9.0>", 2, 800_000)])];
    let sample = recording.add(items).unwrap();
    assert!(sample.gaps.is_empty(), "{:?}", sample.gaps);
    let t = sample.messages[0].t;
    let totals = MessageRow { t, us: 12_000, active: 300, sampled: 150, ..MessageRow::default() };
    let small = MessageRow { messages: 7, bytes: 700, off_heap: 2, ..totals.clone() };
    let large = MessageRow { messages: 2, bytes: 800_000, ..totals.clone() };
    let to = MessageRow {
        t,
        pid: Some("<0.9.0>".to_owned()),
        messages: 2,
        bytes: 800_000,
        ..MessageRow::default()
    };
    assert_eq!(sample.messages, [small, large, to]);
    // A sample without messages is a row, too.
    let sample = recording.add(vec![messages(&[], &[])]).unwrap();
    let none = MessageRow { t: sample.messages[0].t, off_heap: 2, ..totals };
    assert_eq!(sample.messages, [none]);
    assert!(recording.add(vec![messages(&[(1, -5)], &[])]).unwrap().messages.is_empty());
}

#[test]
fn fixtures_of_real_agents_are_decoded() {
    for release in [23, 25, 27, 29] {
        let mut recording = Recording::default();
        recording.add_fixture(&format!("r{release}-sample-facts"));
        let sample = recording.add_fixture(&format!("r{release}-sample-slow"));
        assert!(!sample.messages.is_empty(), "OTP {release}");
        assert!(sample.messages.iter().all(|row| row.sampled <= row.active), "OTP {release}");
    }
}
