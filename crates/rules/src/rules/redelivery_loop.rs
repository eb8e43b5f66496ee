//! BT069: RabbitMQ redelivers the same messages in a loop: consumers requeue them, or dead-lettering brings them back.

use beamtune_model::{Account, Code, Cost, Evidence, Missing, Period, Scale, Threshold, Unit, metrics};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::signals::broker::{self, Queue};
use crate::signals::dead_letters;
use crate::text;

pub const RULE: Rule = Rule {
    code: Code("BT069"),
    name: "redelivery-loop",
    question: "Does RabbitMQ redeliver the same messages in a loop?",
    confirm: "get a message of the queue with basic.get and requeue it: its redelivered flag is set; stop the consumer: redeliveries end",
    needs: &[&metrics::PROCESS_COUNT],
    account: Account::CpuUsed,
    judge,
    thresholds: &[RATE, dead_letters::PER_PUBLISHED],
    ..Rule::COMMON
};

const RATE: Threshold = Threshold::new(
    "redelivery-loop.redeliveries_per_s",
    "messages redelivered a second",
    Scale {
        notice: 10.0,
        warning: 100.0,
        critical: 1_000_000.0,
        source: "judgement: after an outage a message that cannot be handled comes once more, not a hundred times a second",
    },
);

/// A smaller share of all deliveries is normal: consumers that end leave some messages to be redelivered (judgement).
const MIN_SHARE: f64 = 0.2;

/// When a channel closes, the broker redelivers the messages that its consumer has not acknowledged. At or above this number of closed
/// channels per redelivery, that may be the cause, and not a loop (judgement, from usual prefetch counts). A queue counts redeliveries of
/// open channels only, so its number is smaller.
const MIN_CLOSED_PER_REDELIVERY_OF_QUEUE: f64 = 0.1;
const MIN_CLOSED_PER_REDELIVERY_OF_NODE: f64 = 0.01;

const CLOSING: &str = "consumers that close their channel without acknowledging cause redeliveries as well";

fn judge(period: &Period) -> Result<Judgement, Missing> {
    if !broker::recorded(period)? {
        return Ok(Judgement::Healthy(broker::NO_BROKER.to_owned()));
    }
    let mut found: Vec<(f64, Draft)> =
        broker::queues(period).iter().filter_map(|queue| loop_of(period, queue)).collect();
    let redelivered = broker::total(period, &metrics::BROKER_REDELIVERED);
    let delivered = broker::total(period, &metrics::BROKER_DELIVERED);
    if found.is_empty()
        && let (Some(redelivered), Some(delivered)) = (redelivered, delivered)
        && let Some(severity) =
            RATE.of(period).severity(redelivered).filter(|_| redelivered >= MIN_SHARE * delivered)
    {
        let title = format!(
            "RabbitMQ redelivers {} of {} messages/s",
            text::number(redelivered),
            text::number(delivered)
        );
        let closed = broker::total(period, &metrics::BROKER_CHANNELS_CLOSED).unwrap_or(0.0);
        let is_closing = closed >= MIN_CLOSED_PER_REDELIVERY_OF_NODE * redelivered;
        let draft =
            Draft::new(severity, title).minor_if(is_closing).evidence(rate(period, redelivered, delivered));
        let draft = advise(period, draft.but_if(is_closing, CLOSING));
        let unknown = "queue unknown: statistics are off (enable rabbitmq_management_agent), more than 20,000 pairs of channels and queues, \
                       or consumers that end at once";
        found.push((redelivered, draft.counter_evidence(unknown)));
    }
    found.extend(dead_letters::round_trip(period, &RATE));
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    let (redelivered, delivered) = (redelivered.unwrap_or(0.0), delivered.unwrap_or(0.0));
    let mut healthy =
        format!("redelivered: {} of {} messages/s", text::number(redelivered), text::number(delivered));
    if let Some(dead) = broker::total(period, &metrics::BROKER_DEAD_LETTERED_REJECTED) {
        healthy.push_str(&format!("; rejected and dead-lettered: {}/s", text::number(dead)));
    }
    Ok(Judgement::found_or_healthy(found.into_iter().map(|(_, draft)| draft).collect(), healthy))
}

fn rate(period: &Period, redelivered: f64, delivered: f64) -> Evidence {
    Evidence::number("redeliveries", redelivered, Unit::PerSecond)
        .against_scale(RATE.of(period))
        .with_text(format!("of {delivered:.0} deliveries/s"))
}

/// Drafts the finding about a loop through one queue, and returns its redeliveries per second.
fn loop_of(period: &Period, queue: &Queue<'_>) -> Option<(f64, Draft)> {
    let redelivered = queue.rate(period, &metrics::QUEUE_REDELIVERED)?;
    let delivered = queue.rate(period, &metrics::QUEUE_DELIVERED)?;
    let acked = queue.rate(period, &metrics::QUEUE_ACKNOWLEDGED).unwrap_or(0.0);
    let severity = RATE.of(period).severity(redelivered).filter(|_| redelivered >= MIN_SHARE * delivered)?;
    let clients = queue.clients(period, &metrics::CLIENT_REDELIVERED);
    let closed = broker::total(period, &metrics::BROKER_CHANNELS_CLOSED).unwrap_or(0.0);
    let is_closing = closed >= MIN_CLOSED_PER_REDELIVERY_OF_QUEUE * redelivered;
    let consumer = match clients.first() {
        Some((client, _)) if !is_closing => format!("{} requeues them", client.title()),
        Some((client, _)) => format!("most to {}", client.title()),
        None => String::new(),
    };
    let title = format!(
        "Queue {} redelivers {} of {} messages/s",
        queue.name,
        text::number(redelivered),
        text::number(delivered)
    );
    let consuming: Vec<_> = clients.iter().map(|(client, _)| *client).collect();
    let busy = queue.processes(period, &consuming);
    let ready = queue.last(period, &metrics::QUEUE_READY);
    let draft = Draft::new(severity, title)
        .detail(consumer)
        .detail(format!("{} acknowledged/s", text::number(acked)))
        .about(queue.subject())
        .costs(broker::cores(period, &busy).map(Cost::CpuCores))
        .signals(broker::drives(period, &busy))
        .evidence(rate(period, redelivered, delivered))
        .evidence(Evidence::number("acknowledgements", acked, Unit::PerSecond))
        .because_some(ready.map(|ready| Evidence::number("messages ready", ready, Unit::Count)))
        .because_some(
            clients
                .first()
                .map(|(client, _)| Evidence::text("consumer with the most redeliveries", client.title())),
        )
        .minor_if(is_closing)
        .but_if(is_closing, CLOSING)
        .counter_evidence(
            "a consumer may requeue on purpose to wait for something else; a delay would spare the broker",
        );
    Some((redelivered, advise(period, draft)))
}

fn advise(period: &Period, draft: Draft) -> Draft {
    draft.remedy(remedy::of(
        period,
        "rabbitmq.dead_letter",
        "reject with requeue=false in the consumer, and give the queue a dead letter exchange: rabbitmqctl set_policy dlx '^QUEUE$' \
         '{\"dead-letter-exchange\":\"DLX\"}' --apply-to queues; or use a quorum queue with delivery-limit; to retry later, dead-letter \
         into a queue with message-ttl",
        "a requeued message goes back to the head of its queue and is redelivered at once, before all others",
        "redeliveries per second and CPU of the queue process under the same load",
    ))
}
