//! BT071: a RabbitMQ queue grows: it has no consumer, its consumers do not acknowledge, or they are too slow.

use beamtune_model::{Account, Code, Confidence, Cost, Evidence, Missing, Period, Unit, metrics};

use crate::remedy;
use crate::rule::{Draft, Judgement, MINOR, Role, Rule, WARNING};
use crate::signals::broker::{self, Client, Queue};
use crate::text;

pub const RULE: Rule = Rule {
    code: Code("BT071"),
    name: "queue-backlog",
    question: "Do RabbitMQ queues grow, and why?",
    confirm: "run rabbitmqctl list_queues name messages_ready messages_unacknowledged consumers twice, a minute apart",
    needs: &[&metrics::PROCESS_COUNT],
    account: Account::Delay,
    role: Role::Cause,
    judge,
    ..Rule::COMMON
};

/// Slower growth, in messages per second, may be a temporary wave (judgement).
const MIN_GROWTH_PER_S: f64 = 5.0;
/// If a smaller share of the arriving messages stays, it may be a temporary wave (judgement).
const MIN_KEPT_SHARE: f64 = 0.2;
/// Fewer messages may be what the consumers fetch at once (judgement).
const MIN_READY: f64 = 1_000.0;
/// At or above this number of messages, the finding is a warning (judgement): they are minutes of work for most consumers.
const WARNING_READY: f64 = 10_000.0;
/// A queue whose messages expire sooner is meant for retries or the latest news, and its length settles (judgement).
const SHORT_TTL_SECONDS: f64 = 3_600.0;
/// Consumers without a prefetch count that hold this many messages have all messages of the queue in memory (judgement).
const MIN_UNLIMITED_UNACKED: f64 = 10_000.0;
const MAX_FINDINGS: usize = 3;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    if !broker::recorded(period)? {
        return Ok(Judgement::Healthy(broker::NO_BROKER.to_owned()));
    }
    let ready = period.stat(&metrics::BROKER_READY, "").map(|stat| stat.last.value);
    let Ok(ready) = ready else {
        return Ok(Judgement::NotJudged {
            reason: "RabbitMQ has no queue statistics, or more than 20,000 queues".to_owned(),
            next: "run rabbitmq-plugins enable rabbitmq_management_agent".to_owned(),
        });
    };
    let mut found: Vec<(f64, Draft)> =
        broker::queues(period).iter().filter_map(|queue| backlog(period, queue)).collect();
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    let unacked = period.stat(&metrics::BROKER_UNACKED, "").map_or(0, |stat| stat.last.value);
    Ok(Judgement::found_or_healthy(
        found.into_iter().take(MAX_FINDINGS).map(|(_, draft)| draft).collect(),
        format!("all queues: {ready} messages ready, {unacked} unacknowledged; none grows much"),
    ))
}

fn backlog(period: &Period, queue: &Queue<'_>) -> Option<(f64, Draft)> {
    let last = |metric| queue.last(period, metric);
    let (ready, unacked) = (last(&metrics::QUEUE_READY)?, last(&metrics::QUEUE_UNACKED)?);
    let growth = queue.growth(period, &metrics::QUEUE_READY)?;
    let acked = queue.rate(period, &metrics::QUEUE_ACKNOWLEDGED);
    let grows = growth >= MIN_GROWTH_PER_S && growth >= MIN_KEPT_SHARE * (growth + acked.unwrap_or(0.0));
    let consumers = last(&metrics::QUEUE_CONSUMERS);
    let evidence = |draft: Draft| {
        draft
            .about(queue.subject())
            .evidence(Evidence::number("messages ready", ready, Unit::Count))
            .evidence(Evidence::number("growth of messages ready", growth, Unit::PerSecond))
            .evidence(Evidence::number("unacknowledged messages", unacked, Unit::Count))
            .because_some(consumers.map(|count| Evidence::number("consumers", count, Unit::Count)))
            .because_some(acked.map(|rate| Evidence::number("acknowledgements", rate, Unit::PerSecond)))
    };
    // A consumer may exist between two readings, or a client may fetch messages.
    let never = queue.most(period, &metrics::QUEUE_CONSUMERS) == Some(0.0) && acked.unwrap_or(0.0) <= 0.0;
    let holders = queue.clients(period, &metrics::CLIENT_UNACKED);
    let holder = holders.first().filter(|(_, held)| *held > 0.0).map(|(client, _)| *client);
    let is_stuck = is_stuck(period, queue, unacked, acked);
    let draft = match consumers {
        // The length of a queue for retries, or for the latest messages, settles.
        Some(0.0) if is_bounded(period, queue) => None,
        Some(0.0) if grows && never => Some(unconsumed(period, queue, ready, growth)),
        Some(count) if count > 0.0 && is_stuck => Some(stuck(period, queue, unacked, grows, holder)),
        Some(count) if count > 0.0 && is_unlimited(period, queue, unacked) => {
            Some(unlimited(period, queue, unacked, holder))
        }
        _ if grows && ready >= MIN_READY => Some(slow(period, queue, ready, growth, acked)),
        _ => None,
    }?;
    Some((ready + unacked, evidence(draft)))
}

/// Whether consumers have used up their prefetch counts and acknowledge nothing.
fn is_stuck(period: &Period, queue: &Queue<'_>, unacked: f64, acked: Option<f64>) -> bool {
    let prefetch = queue.last(period, &metrics::QUEUE_PREFETCH).unwrap_or(0.0);
    let unlimited = queue.last(period, &metrics::QUEUE_UNLIMITED).unwrap_or(0.0);
    let stays = queue.growth(period, &metrics::QUEUE_UNACKED) == Some(0.0);
    acked == Some(0.0) && stays && prefetch > 0.0 && unlimited == 0.0 && unacked >= prefetch
}

/// Whether a queue without a consumer drops messages soon, or has a harmless maximum length.
fn is_bounded(period: &Period, queue: &Queue<'_>) -> bool {
    let ttl_s = queue.last(period, &metrics::QUEUE_TTL).map(|ttl_ns| ttl_ns / 1e9);
    ttl_s.is_some_and(|ttl_s| ttl_s <= SHORT_TTL_SECONDS)
        || queue.last(period, &metrics::QUEUE_MAX_LENGTH).is_some_and(|max| max <= WARNING_READY)
}

fn is_unlimited(period: &Period, queue: &Queue<'_>, unacked: f64) -> bool {
    queue.last(period, &metrics::QUEUE_UNLIMITED).is_some_and(|count| count > 0.0)
        && unacked >= MIN_UNLIMITED_UNACKED
}

fn unconsumed(period: &Period, queue: &Queue<'_>, ready: f64, growth: f64) -> Draft {
    let severity = if ready >= WARNING_READY { WARNING } else { MINOR };
    let (name, growth, ready_text) = (queue.name, count_text(growth), count_text(ready));
    Draft::new(severity, format!("Queue {name} grows by {growth}/s without consumer"))
        .detail(format!("{ready_text} messages ready"))
        .costs(Cost::Waiting(ready))
        .counter_evidence("its consumer may be away for a while, or fetch with basic.get")
        .remedy(remedy::of(
            period,
            "rabbitmq.queue_limits",
            "start its consumer, delete the queue or its binding, or limit it: rabbitmqctl set_policy limit \
             '^QUEUE$' '{\"max-length\":N,\"message-ttl\":MS,\"expires\":MS}' --apply-to queues",
            "messages stay until memory or disk are used up, and then all publishers are blocked",
            "rabbitmqctl list_queues name messages consumers",
        ))
}

fn count_text(count: f64) -> String {
    text::number(count.round())
}

fn stuck(period: &Period, queue: &Queue<'_>, unacked: f64, grows: bool, holder: Option<Client<'_>>) -> Draft {
    let severity = if grows { WARNING } else { MINOR };
    Draft::new(
        severity,
        format!("Queue {}: none of {} messages acknowledged", queue.name, count_text(unacked)),
    )
    .detail(held_by(holder))
    .costs(Cost::Waiting(queue.last(period, &metrics::QUEUE_READY).unwrap_or(0.0)))
    .because_some(
        queue
            .last(period, &metrics::QUEUE_PREFETCH)
            .map(|prefetch| Evidence::number("sum of prefetch counts", prefetch, Unit::Count)),
    )
    .counter_evidence("a consumer that needs longer than the period for a message looks the same")
    .remedy(remedy::of(
        period,
        "rabbitmq.prefetch",
        "inspect that consumer: it waits for something, or forgets basic.ack; rabbitmqctl close_connection gives its messages to others, \
         consumer_timeout in rabbitmq.conf does so automatically",
        "a consumer that has used up its prefetch count gets no message until it acknowledges",
        "acknowledgements per second of the queue",
    ))
}

fn held_by(holder: Option<Client<'_>>) -> String {
    holder.map_or_else(String::new, |client| format!("held mostly by {}", client.title()))
}

fn unlimited(period: &Period, queue: &Queue<'_>, unacked: f64, holder: Option<Client<'_>>) -> Draft {
    let (name, held) = (queue.name, count_text(unacked));
    Draft::new(MINOR, format!("Queue {name}: no prefetch limit, {held} messages held"))
        .detail(held_by(holder))
        .costs(Cost::Waiting(unacked))
        .remedy(remedy::of(
            period,
            "rabbitmq.prefetch",
            "set a prefetch count in the consumer: basic.qos with 20 to 300; other consumers then get messages, too",
            "without one RabbitMQ sends all messages to the first consumer, and keeps them in memory",
            "unacknowledged messages and memory",
        ))
}

fn slow(period: &Period, queue: &Queue<'_>, ready: f64, growth: f64, acked: Option<f64>) -> Draft {
    let severity = if ready >= WARNING_READY { WARNING } else { MINOR };
    let rate = acked.map_or_else(String::new, |acked| format!("{}/s acknowledged", count_text(acked)));
    let (name, growth, ready_text) = (queue.name, count_text(growth), count_text(ready));
    Draft::new(
        severity,
        format!("Queue {name} grows by {growth}/s, likely slow consumers"),
    )
    .detail(format!("{ready_text} messages ready"))
    .detail(rate)
    .confidence(Confidence::Inferred)
    .costs(Cost::Waiting(ready))
    .counter_evidence("a wave of messages looks the same while it arrives")
    .remedy(remedy::of(
        period,
        "rabbitmq.prefetch",
        "add or speed up consumers; set a prefetch count that covers the round trip (30 or more for fast consumers); set a length limit \
         with overflow reject-publish, if publishers can slow down",
        "more arrives than is acknowledged, and RabbitMQ slows publishers only when memory or disk are short",
        "messages ready, over some minutes",
    ))
}
