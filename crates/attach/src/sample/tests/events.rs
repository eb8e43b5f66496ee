//! Tests of system monitor events.

use super::*;

fn events(
    how: &'static str,
    floods: i64,
    rows: Vec<Value<'static>>,
    counts: &[(&'static str, i64, i64)],
) -> Value<'static> {
    let counts = counts
        .iter()
        .map(|&(kind, count, sum)| Value::tuple([Value::atom(kind), Value::from(count), Value::from(sum)]));
    done(
        "events",
        &[
            ("how", Value::atom(how)),
            ("floods", Value::from(floods)),
            ("lost", Value::from(0i64)),
            ("counts", Value::List(counts.collect())),
            ("rows", Value::List(rows)),
        ],
    )
}

#[test]
fn events_have_their_time_and_process() {
    let row = |kind: &'static str, more: &[(&'static str, Value<'static>)]| {
        let mut pairs = vec![
            ("kind", Value::atom(kind)),
            ("at_ns", Value::from(-400_000i64)),
            ("subject", binary("<0.9.0>")),
        ];
        pairs.extend(more.iter().cloned());
        map(&pairs)
    };
    let rows = vec![
        row(
            "long_schedule",
            &[
                ("value", Value::from(230i64)),
                ("call", call("app", "init", 1)),
                ("in", call("app", "loop", 0)),
                ("out", Value::atom("undefined")),
            ],
        ),
        row(
            "long_gc",
            &[
                ("value", Value::from(120i64)),
                ("heap_bytes", Value::from(2_000_000i64)),
                ("name", binary("big")),
            ],
        ),
        row(
            "busy_dist_port",
            &[
                ("value", Value::from(0i64)),
                ("call", Value::tuple([Value::atom("child_of"), binary("shop_sup")])),
                ("port", binary("#Port<0.4>")),
                ("node", binary("b@host")),
            ],
        ),
        row("long_nap", &[("value", Value::from(1i64))]),
    ];
    let mut recording = Recording::default();
    let counts = [("long_schedule", 3, 400), ("long_gc", 1, 120), ("busy_dist_port", 1, 0)];
    let sample = recording.add(vec![events("monitor", 1, rows, &counts)]).unwrap();
    assert!(sample.gaps.is_empty(), "{:?}", sample.gaps);
    let found: Vec<_> = sample
        .events
        .iter()
        .map(|event| (event.t, event.kind.as_str(), event.subject.as_str(), event.detail.as_str()))
        .collect();
    assert_eq!(
        found,
        [
            (600_000, "long_schedule", "app:init/1 (<0.9.0>)", "230 ms from app:loop/0"),
            (600_000, "long_gc", "big (<0.9.0>)", "120 ms, 2 MB of heap"),
            (600_000, "busy_dist_port", "child of shop_sup (<0.9.0>)", "waited for b@host #Port<0.4>"),
            (
                1_002_000,
                "event_flood",
                "",
                "too many events; monitoring paused for a second or longer each time"
            ),
        ]
    );
    assert_eq!(
        recording.readings(&sample),
        [
            "events/long_schedule/count=3",
            "events/long_schedule/time=400000000",
            "events/long_schedule/longest=230000000",
            "events/long_gc/count=1",
            "events/long_gc/time=120000000",
            "events/long_gc/longest=120000000",
            "events/large_heap/count=0",
            "events/busy_port/count=0",
            "events/busy_dist_port/count=1",
        ]
    );
}

#[test]
fn system_monitor_of_another_tool_is_a_gap() {
    let Value::Tuple(mut item) = events("taken", 0, Vec::new(), &[]) else { panic!("no item") };
    let Some(Value::Map(pairs)) = item.last_mut() else { panic!("no map") };
    pairs.push((Value::atom("owner"), binary("<0.7.0>")));
    pairs.push((Value::atom("owner_name"), binary("sysmon")));
    let mut recording = Recording::default();
    let sample = recording.add(vec![Value::Tuple(item)]).unwrap();
    let gaps: Vec<_> =
        sample.gaps.iter().map(|gap| (gap.source.as_str(), gap.kind, gap.reason.as_str())).collect();
    let reason = "sysmon <0.7.0> already uses the VM's only system_monitor";
    assert_eq!(gaps, [("vm.events", TroubleKind::Denied, reason)]);
    assert!(recording.readings(&sample).is_empty());
}
