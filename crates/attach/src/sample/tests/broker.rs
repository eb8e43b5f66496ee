//! Tests of RabbitMQ's own counters.

use super::*;

fn number(value: i64) -> Value<'static> {
    Value::from(value)
}

#[test]
fn rabbitmq_counters_become_series() {
    let name = "10.0.0.7:4 -> 10.0.0.1:5 - worker";
    let client = |again: i64| {
        let counts = [number(2 * again), number(again), number(5), number(30)];
        Value::tuple([binary(name), binary("app")].into_iter().chain(counts).collect::<Vec<_>>())
    };
    let queue = map(&[
        ("name", binary("orders")),
        ("ready", number(7)),
        ("redelivered", number(90)),
        ("clients", Value::list(vec![client(40), client(50)])),
    ]);
    let connection = Value::tuple([binary(name), binary("app"), number(2), Value::atom("true")]);
    let opener = Value::tuple([Value::atom("connections"), binary("php"), binary("web"), number(9)]);
    let items = vec![
        done("broker", &[("connections", number(3)), ("connections_opened", number(5))]),
        done(
            "broker_clients",
            &[
                ("disk_alarm", number(1)),
                ("dead_lettered_rejected", number(9)),
                ("dead_lettered_expired", number(8)),
                ("dead_lettered_maxlen", number(0)),
                ("dead_lettered_delivery_limit", number(2)),
                ("queue_rows", Value::list(vec![queue])),
                ("connection_rows", Value::list(vec![connection])),
                ("openers", Value::list(vec![opener])),
            ],
        ),
    ];
    let mut recording = Recording::default();
    let sample = recording.add(items).unwrap();
    assert!(sample.gaps.is_empty(), "{:?}", sample.gaps);
    let connection = format!("connection {name}\u{1f}app");
    assert_eq!(
        recording.readings(&sample),
        [
            "broker//connections=3".to_owned(),
            "broker//connections_opened=5".to_owned(),
            "broker//dead_lettered_rejected=9".to_owned(),
            "broker//dead_lettered_expired=8".to_owned(),
            "broker//dead_lettered_maxlen=0".to_owned(),
            "broker//dead_lettered_delivery_limit=2".to_owned(),
            "broker//disk_alarm=1".to_owned(),
            "broker_queue/queue orders/ready=7".to_owned(),
            "broker_queue/queue orders/redelivered=90".to_owned(),
            format!("broker_client/queue orders\u{1f}{connection}/delivered=180"),
            format!("broker_client/queue orders\u{1f}{connection}/redelivered=90"),
            format!("broker_client/queue orders\u{1f}{connection}/acknowledged=10"),
            format!("broker_client/queue orders\u{1f}{connection}/unacked=60"),
            format!("broker_connection/{connection}/channels=2"),
            format!("broker_connection/{connection}/blocked=1"),
            "broker_opener/php\u{1f}web/connections=9".to_owned(),
        ]
    );
    // A node without RabbitMQ.
    let sample = recording.add(vec![done("broker", &[]), done("broker_clients", &[])]).unwrap();
    assert!(sample.gaps.is_empty() && recording.readings(&sample).is_empty());
}
