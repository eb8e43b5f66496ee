//! BT069: RabbitMQ delivers the same messages over and over, because consumers give them back, or dead-lettering brings them back.

use beamtune_model::{Account, Code, Cost, Evidence, Missing, Period, Scale, Threshold, Unit, metrics};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::signals::broker::{self, Queue};
use crate::signals::dead_letters;

pub const RULE: Rule = Rule {
    code: Code("BT069"),
    name: "redelivery-loop",
    question: "Does RabbitMQ deliver the same messages over and over?",
    confirm: "basic.get of one message of the queue, with requeue: its redelivered flag is set; without that consumer the rate of redeliveries is 0",
    needs: &[&metrics::PROCESS_COUNT],
    account: Account::CpuUsed,
    judge,
    thresholds: &[RATE, dead_letters::PER_PUBLISHED],
    ..Rule::COMMON
};

/// Redeliveries per second.
const RATE: Threshold = Threshold::new(
    "redelivery-loop.redeliveries_per_s",
    "messages delivered again, a second",
    Scale {
        notice: 10.0,
        warning: 100.0,
        critical: 1_000_000.0,
        source: "judgement: a message that cannot be handled comes once more after an outage, not a hundred times a second",
    },
);

/// Below this share of all deliveries they are a part of ordinary traffic: consumers that end leave some behind (judgement).
const SHARE: f64 = 0.2;

/// What a consumer that ends has not acknowledged is delivered again: from so many closed channels per redelivery on, it may be that, and not a
/// loop (judgement, after the usual prefetch counts). Of a queue only channels that are still open count, which leaves fewer of these.
const CLOSED_PER_REDELIVERY: f64 = 0.1;
const CLOSED_PER_REDELIVERY_OF_ALL: f64 = 0.01;

const ENDING: &str = "consumers that close their channel without acknowledging cause redeliveries, too";

fn judge(period: &Period) -> Result<Judgement, Missing> {
    if !broker::recorded(period)? {
        return Ok(Judgement::Healthy(broker::NO_BROKER.to_owned()));
    }
    let mut found: Vec<(f64, Draft)> =
        broker::queues(period).iter().filter_map(|queue| loop_of(period, queue)).collect();
    let again = broker::total(period, &metrics::BROKER_REDELIVERED);
    let all = broker::total(period, &metrics::BROKER_DELIVERED);
    if found.is_empty()
        && let (Some(again), Some(all)) = (again, all)
        && let Some(severity) = RATE.of(period).severity(again).filter(|_| again >= SHARE * all)
    {
        let title = format!("RabbitMQ redelivers {again:.0} of {all:.0} messages/s");
        let closed = broker::total(period, &metrics::BROKER_CHANNELS_CLOSED).unwrap_or(0.0);
        let may_end = closed >= CLOSED_PER_REDELIVERY_OF_ALL * again;
        let draft = Draft::new(severity, title).minor_if(may_end).because(rate(period, again, all));
        let draft = advise(period, draft.but_if(may_end, ENDING));
        let unknown = "which queue is not known: statistics are off (enable the plugin rabbitmq_management_agent), there are more than 20,000 \
                       pairs of channels and queues, or consumers end at once";
        found.push((again, draft.but(unknown)));
    }
    found.extend(dead_letters::round_trip(period, &RATE));
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    let (again, all) = (again.unwrap_or(0.0), all.unwrap_or(0.0));
    let mut healthy = format!("{again:.1} of {all:.1} deliveries/s are redeliveries");
    if let Some(dead) = broker::total(period, &metrics::BROKER_DEAD_LETTERED_REJECTED) {
        healthy.push_str(&format!("; {dead:.1} messages/s are rejected and dead-lettered"));
    }
    Ok(Judgement::found_or_healthy(found.into_iter().map(|(_, draft)| draft).collect(), healthy))
}

fn rate(period: &Period, again: f64, all: f64) -> Evidence {
    Evidence::number("redeliveries", again, Unit::PerSecond)
        .against_scale(RATE.of(period))
        .with_text(format!("of {all:.0} deliveries/s"))
}

fn loop_of(period: &Period, queue: &Queue<'_>) -> Option<(f64, Draft)> {
    let again = queue.rate(period, &metrics::QUEUE_REDELIVERED)?;
    let all = queue.rate(period, &metrics::QUEUE_DELIVERED)?;
    let acked = queue.rate(period, &metrics::QUEUE_ACKNOWLEDGED).unwrap_or(0.0);
    let severity = RATE.of(period).severity(again).filter(|_| again >= SHARE * all)?;
    let clients = queue.clients(period, &metrics::CLIENT_REDELIVERED);
    let closed = broker::total(period, &metrics::BROKER_CHANNELS_CLOSED).unwrap_or(0.0);
    let may_end = closed >= CLOSED_PER_REDELIVERY * again;
    let who = match clients.first() {
        Some((client, _)) if !may_end => format!("; {} requeues them", client.title()),
        Some((client, _)) => format!(", to {}", client.title()),
        None => String::new(),
    };
    let title = format!("queue {}: {again:.0} of {all:.0} deliveries/s are redeliveries{who}", queue.name);
    let consuming: Vec<_> = clients.iter().map(|(client, _)| *client).collect();
    let busy = queue.processes(period, &consuming);
    let ready = queue.last(period, &metrics::QUEUE_READY);
    let draft = Draft::new(severity, title)
        .about(queue.subject())
        .costs(broker::cores(period, &busy).map(Cost::CpuCores))
        .signals(broker::drives(period, &busy))
        .because(rate(period, again, all))
        .because(Evidence::number("acknowledgements", acked, Unit::PerSecond))
        .because_some(ready.map(|ready| Evidence::number("messages ready", ready, Unit::Count)))
        .because_some(clients.first().map(|(client, _)| Evidence::text("consumer with the most redeliveries", client.title())))
        .minor_if(may_end)
        .but_if(may_end, ENDING)
        .but("a consumer that requeues on purpose until something else is ready does the same; a delay would spare the broker");
    Some((again, advise(period, draft)))
}

fn advise(period: &Period, draft: Draft) -> Draft {
    draft.fix(remedy::of(
        period,
        "rabbitmq.dead_letter",
        "in the consumer, basic.reject or basic.nack with requeue=false, and a dead letter exchange for the queue: rabbitmqctl set_policy dlx \
         '^QUEUE$' '{\"dead-letter-exchange\":\"DLX\"}' --apply-to queues; a quorum queue with delivery-limit does it without the consumer; to \
         retry later, dead-letter into a queue with message-ttl",
        "a requeued message goes back to the head of its queue and is delivered again at once, before all others",
        "redeliveries per second, and CPU of the queue's process",
    ))
}
