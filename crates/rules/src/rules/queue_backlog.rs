//! BT071: messages pile up in a queue of RabbitMQ: nobody consumes, or consumers hold what they have and take no more.

use beamtune_model::{Account, Code, Confidence, Cost, Evidence, Missing, Period, Unit, metrics};

use crate::remedy;
use crate::rule::{Draft, Judgement, MINOR, Role, Rule, WARNING};
use crate::signals::broker::{self, Client, Queue};

pub const RULE: Rule = Rule {
    code: Code("BT071"),
    name: "queue-backlog",
    question: "Do messages pile up in queues of RabbitMQ, and why?",
    confirm: "rabbitmqctl list_queues name messages_ready messages_unacknowledged consumers, twice, a minute apart",
    needs: &[&metrics::PROCESS_COUNT],
    account: Account::Delay,
    role: Role::Cause,
    judge,
    ..Rule::COMMON
};

/// A queue that grows more slowly, in messages per second, may as well be a wave (judgement).
const GROWS: f64 = 5.0;
/// So much of what comes stays (judgement): less may be a wave.
const STAYS: f64 = 0.2;
/// From so many messages on it is more than consumers fetch at a time (judgement).
const MANY: f64 = 1_000.0;
/// From so many on it is a warning (judgement): minutes of work for most consumers.
const VERY_MANY: f64 = 10_000.0;
/// A queue whose messages go after so many seconds is for retries or for the latest news, and settles (judgement).
const SOON_DROPPED_S: f64 = 3_600.0;
/// Consumers without a prefetch count that hold so many messages have all that there is in memory (judgement).
const UNLIMITED: f64 = 10_000.0;
/// Findings at most.
const MOST: usize = 3;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    if !broker::recorded(period)? {
        return Ok(Judgement::Healthy(broker::NO_BROKER.to_owned()));
    }
    let ready = period.stat(&metrics::BROKER_READY, "").map(|stat| stat.last.value);
    let Ok(ready) = ready else {
        return Ok(Judgement::NotJudged {
            reason: "RabbitMQ keeps no statistics of its queues, or there are more than 20,000".to_owned(),
            next: "rabbitmq-plugins enable rabbitmq_management_agent".to_owned(),
        });
    };
    let mut found: Vec<(f64, Draft)> =
        broker::queues(period).iter().filter_map(|queue| backlog(period, queue)).collect();
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    let unacked = period.stat(&metrics::BROKER_UNACKED, "").map_or(0, |stat| stat.last.value);
    Ok(Judgement::found_or_healthy(
        found.into_iter().take(MOST).map(|(_, draft)| draft).collect(),
        format!("{ready} messages ready and {unacked} unacknowledged in all queues; none grows much"),
    ))
}

fn backlog(period: &Period, queue: &Queue<'_>) -> Option<(f64, Draft)> {
    let last = |metric| queue.last(period, metric);
    let (ready, unacked) = (last(&metrics::QUEUE_READY)?, last(&metrics::QUEUE_UNACKED)?);
    let growth = queue.growth(period, &metrics::QUEUE_READY)?;
    let acked = queue.rate(period, &metrics::QUEUE_ACKNOWLEDGED);
    let grows = growth >= GROWS && growth >= STAYS * (growth + acked.unwrap_or(0.0));
    let consumers = last(&metrics::QUEUE_CONSUMERS);
    let evidence = |draft: Draft| {
        draft
            .about(queue.subject())
            .because(Evidence::number("messages ready", ready, Unit::Count))
            .because(Evidence::number("growth of messages ready", growth, Unit::PerSecond))
            .because(Evidence::number("messages unacknowledged", unacked, Unit::Count))
            .because_some(consumers.map(|count| Evidence::number("consumers", count, Unit::Count)))
            .because_some(acked.map(|rate| Evidence::number("acknowledgements", rate, Unit::PerSecond)))
    };
    // It may have one between two readings, or somebody fetches.
    let never = queue.most(period, &metrics::QUEUE_CONSUMERS) == Some(0.0) && acked.unwrap_or(0.0) <= 0.0;
    let holders = queue.clients(period, &metrics::CLIENT_UNACKED);
    let holder = holders.first().filter(|(_, held)| *held > 0.0).map(|(client, _)| *client);
    let held = held(period, queue, unacked, acked);
    let draft = match consumers {
        // A queue for retries, or for the last messages only: it settles.
        Some(0.0) if is_bounded(period, queue) => None,
        Some(0.0) if grows && never => Some(unconsumed(period, queue, ready, growth)),
        Some(count) if count > 0.0 && held => Some(stuck(period, queue, unacked, grows, holder)),
        Some(count) if count > 0.0 && is_unlimited(period, queue, unacked) => {
            Some(unlimited(period, queue, unacked, holder))
        }
        _ if grows && ready >= MANY => Some(slow(period, queue, ready, growth, acked)),
        _ => None,
    }?;
    Some((ready + unacked, evidence(draft)))
}

/// Whether consumers have all that they may have, and acknowledged nothing.
fn held(period: &Period, queue: &Queue<'_>, unacked: f64, acked: Option<f64>) -> bool {
    let prefetch = queue.last(period, &metrics::QUEUE_PREFETCH).unwrap_or(0.0);
    let unlimited = queue.last(period, &metrics::QUEUE_UNLIMITED).unwrap_or(0.0);
    let stays = queue.growth(period, &metrics::QUEUE_UNACKED) == Some(0.0);
    acked == Some(0.0) && stays && prefetch > 0.0 && unlimited == 0.0 && unacked >= prefetch
}

/// Whether messages that nobody takes leave it soon, or it holds so many only that they do no harm.
fn is_bounded(period: &Period, queue: &Queue<'_>) -> bool {
    let ttl_s = queue.last(period, &metrics::QUEUE_TTL).map(|ttl_ns| ttl_ns / 1e9);
    ttl_s.is_some_and(|ttl_s| ttl_s <= SOON_DROPPED_S)
        || queue.last(period, &metrics::QUEUE_MAX_LENGTH).is_some_and(|most| most <= VERY_MANY)
}

fn is_unlimited(period: &Period, queue: &Queue<'_>, unacked: f64) -> bool {
    queue.last(period, &metrics::QUEUE_UNLIMITED).is_some_and(|count| count > 0.0) && unacked >= UNLIMITED
}

fn unconsumed(period: &Period, queue: &Queue<'_>, ready: f64, growth: f64) -> Draft {
    let severity = if ready >= VERY_MANY { WARNING } else { MINOR };
    Draft::new(severity, format!("queue {} has no consumer and grows by {growth:.0} messages/s: {ready:.0}", queue.name))
        .costs(Cost::Waiting(ready))
        .but("its consumer may be away for a while, or fetch with basic.get now and then")
        .fix(remedy::of(
            period,
            "rabbitmq.queue_limits",
            "start its consumer; or delete the queue or its binding, if nobody needs it; or limit it: rabbitmqctl set_policy limit '^QUEUE$' \
             '{\"max-length\":N,\"message-ttl\":MS,\"expires\":MS}' --apply-to queues",
            "what nobody takes stays until memory or disk are used up, and then all publishers are blocked",
            "rabbitmqctl list_queues name messages consumers",
        ))
}

fn stuck(period: &Period, queue: &Queue<'_>, unacked: f64, grows: bool, holder: Option<Client<'_>>) -> Draft {
    let who = holder.map_or_else(String::new, |client| format!(": {}", client.title()));
    let severity = if grows { WARNING } else { MINOR };
    Draft::new(
        severity,
        format!("consumers of queue {} hold {unacked:.0} messages and acknowledge none{who}", queue.name),
    )
    .costs(Cost::Waiting(queue.last(period, &metrics::QUEUE_READY).unwrap_or(0.0)))
    .because_some(
        queue
            .last(period, &metrics::QUEUE_PREFETCH)
            .map(|prefetch| Evidence::number("their prefetch counts together", prefetch, Unit::Count)),
    )
    .but("a consumer whose messages take longer than the recording does the same")
    .fix(remedy::of(
        period,
        "rabbitmq.prefetch",
        "look into that consumer: it waits for something, or forgets basic.ack; closing its connection gives the messages to others (rabbitmqctl \
         close_connection), consumer_timeout in rabbitmq.conf does that by itself",
        "with its prefetch count used up a consumer gets no further message until it acknowledges",
        "acknowledgements per second of the queue",
    ))
}

fn unlimited(period: &Period, queue: &Queue<'_>, unacked: f64, holder: Option<Client<'_>>) -> Draft {
    let who = holder.map_or_else(String::new, |client| format!(": {}", client.title()));
    Draft::new(MINOR, format!("consumers of queue {} hold {unacked:.0} messages, without a prefetch count{who}", queue.name))
        .costs(Cost::Waiting(unacked))
        .fix(remedy::of(
            period,
            "rabbitmq.prefetch",
            "a prefetch count in the consumer: basic.qos with 20 to 300; other consumers then get their share",
            "without one RabbitMQ sends all that there is to who asks first, and keeps it in memory until it is acknowledged",
            "messages unacknowledged, and memory",
        ))
}

fn slow(period: &Period, queue: &Queue<'_>, ready: f64, growth: f64, acked: Option<f64>) -> Draft {
    let severity = if ready >= VERY_MANY { WARNING } else { MINOR };
    let rate = acked.map_or_else(String::new, |acked| format!(": {acked:.0} messages/s are acknowledged"));
    Draft::new(
        severity,
        format!("queue {} has {ready:.0} messages ready and grows by {growth:.0} per second{rate}", queue.name),
    )
    .confidence(Confidence::Inferred)
    .costs(Cost::Waiting(ready))
    .but("a wave of messages looks like this while it comes in")
    .fix(remedy::of(
        period,
        "rabbitmq.prefetch",
        "more consumers, or faster ones; a prefetch count that covers the round trip (30 and more for fast consumers); a length limit with \
         overflow reject-publish, where publishers can slow down",
        "more comes than is acknowledged; RabbitMQ itself does not slow publishers down before memory or disk are short",
        "messages ready, over some minutes",
    ))
}
