//! Tests of the call stacks of waiting processes.

use beamtune_model::WaitSampleRow;

use super::*;

#[test]
fn call_stacks_become_rows() {
    let mut recording = Recording::default();
    let stack = || Value::list([call("gen", "do_call", 4), call("shop", "buy", 2)]);
    let awaited = Value::list([
        Value::tuple([binary("<0.9.0>"), Value::from(6i64)]),
        Value::tuple([binary("other@host"), Value::from(1i64)]),
    ]);
    let sample = recording
        .add(vec![done(
            "stands",
            &[
                ("total", Value::from(900i64)),
                ("sampled", Value::from(200i64)),
                ("waiting", Value::from(190i64)),
                (
                    "rows",
                    Value::list([Value::tuple([stack(), Value::from(7i64), Value::from(2i64), awaited])]),
                ),
                (
                    "waited_for",
                    Value::list([Value::tuple([
                        binary("<0.9.0>"),
                        Value::atom("running"),
                        Value::from(3i64),
                        Value::List(Vec::new()),
                        Value::list(["10.0.0.7:5432", "[0:0:0:0:0:0:0:1]:80", "<0.10.0>"].map(binary)),
                    ])]),
                ),
            ],
        )])
        .unwrap();
    assert!(sample.gaps.is_empty(), "{:?}", sample.gaps);
    let t = sample.wait_samples[0].t;
    let sampled = WaitSampleRow {
        t,
        pid: None,
        status: "waiting".to_owned(),
        stack: vec!["gen:do_call/4".to_owned(), "shop:buy/2".to_owned()],
        count: 7,
        queued: 2,
        sample_size: 200,
        targets: vec![("<0.9.0>".to_owned(), 6), ("other@host".to_owned(), 1)],
        kind: None,
    };
    let blocking = WaitSampleRow {
        pid: Some("<0.9.0>".to_owned()),
        status: "running".to_owned(),
        stack: Vec::new(),
        count: 1,
        queued: 3,
        sample_size: 0,
        targets: ["10.0.0.7:5432", "[::1]:80", "<0.10.0>"].map(|name| (name.to_owned(), 1)).to_vec(),
        ..sampled.clone()
    };
    assert_eq!(sample.wait_samples, [sampled, blocking]);
}

#[test]
fn resampled_new_processes_become_separate_rows() {
    let again = Value::list([Value::tuple([
        call("shop", "cart", 1),
        Value::from(20i64),
        Value::atom("waiting"),
        Value::list([call("gen_server", "loop", 7)]),
        Value::from(19i64),
        Value::from(0i64),
        Value::list([Value::tuple([binary("<0.9.0>"), Value::from(2i64)])]),
    ])]);
    let none = || Value::List(Vec::new());
    let pairs = [
        ("new", Value::from(400i64)),
        ("sampled", Value::from(50i64)),
        ("given", none()),
        ("calls", none()),
        ("again", again),
    ];
    let sample = Recording::default().add(vec![done("spawns", &pairs)]).unwrap();
    assert!(sample.gaps.is_empty(), "{:?}", sample.gaps);
    let [row] = &sample.wait_samples[..] else { panic!("{:?}", sample.wait_samples) };
    assert_eq!((row.kind.as_deref(), row.status.as_str()), (Some("shop:cart/1"), "waiting"));
    assert_eq!((row.count, row.queued, row.sample_size), (19, 0, 20));
    assert_eq!(
        (&row.stack[..], &row.targets[..]),
        (&["gen_server:loop/7".to_owned()][..], &[("<0.9.0>".to_owned(), 2)][..])
    );
}

#[test]
fn fixtures_of_real_agents_are_decoded() {
    for release in [23, 25, 27, 29] {
        let mut recording = Recording::default();
        recording.add_fixture(&format!("r{release}-sample-facts"));
        let sample = recording.add_fixture(&format!("r{release}-sample-slow"));
        let is_idle = |row: &WaitSampleRow| {
            row.stack.first().is_some_and(|function| function.starts_with("gen_server:loop/"))
        };
        assert!(sample.wait_samples.iter().any(is_idle), "OTP {release}: {:?}", sample.wait_samples);
        let mut sampled = sample.wait_samples.iter().filter(|row| row.pid.is_none() && row.kind.is_none());
        assert!(sampled.all(|row| row.sample_size > 20 && row.count > 0), "OTP {release}");
        let mut again = sample.wait_samples.iter().filter(|row| row.kind.is_some());
        assert!(again.all(|row| row.sample_size >= row.count && row.count > 0), "OTP {release}");
    }
}
