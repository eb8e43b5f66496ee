//! Dead-letter loops: messages that consumers reject, that are dead-lettered, and that come back, through a queue with a TTL or at once.
//!
//! RabbitMQ drops messages that loop without being rejected, but not those that a consumer rejects (rabbit_dead_letter.erl; rabbitmq.com,
//! "Dead Letter Exchanges"). So each such loop shows in the counter of rejected messages.

use beamtune_model::{Cost, Evidence, Group, Metric, Period, Scale, Threshold, Unit, metrics};

use crate::remedy;
use crate::rule::Draft;
use crate::signals::broker::{self, Queue};
use crate::view::duration_text;

/// Rejected and dead-lettered messages per message published or acknowledged.
pub(crate) const PER_PUBLISHED: Threshold = Threshold::new(
    "redelivery-loop.dead_letterings_per_message",
    "messages rejected and dead-lettered, for each one published or acknowledged",
    Scale {
        notice: 5.0,
        warning: 20.0,
        critical: 1_000_000.0,
        source: "judgement: bounded retries are three to five, and all of them are used only while no message can be handled",
    },
);

/// Minimum traffic, in messages per second, that rejections are divided by (judgement): with less, the ratio is meaningless.
const LEAST_TRAFFIC_PER_S: f64 = 1.0;

/// Minimum number of deliveries by this node per rejection in its queues (judgement). If there are fewer, consumers are connected to other
/// nodes, which count the messages that these acknowledge.
const DELIVERED_HERE: f64 = 0.8;

/// Minimum share of the rejected messages that expires if they come back through a queue with a TTL (judgement: some wait longer).
const EXPIRE: f64 = 0.5;

/// A queue with this share of the expired or rejected messages is named (judgement).
const NAMED: f64 = 0.2;

/// Used in place of a TTL of 0. TTLs are set in milliseconds.
const SHORTEST_TTL_S: f64 = 0.001;

/// Minimum mean number of rejections per message that shows that messages came back (judgement). If none expires, more are required, since
/// messages are counted only every ten seconds.
const CAME_BACK: f64 = 1.5;
const CAME_BACK_AT_ONCE: f64 = 3.0;

/// Returns the rejections per second and the finding, if there is a loop.
pub(crate) fn round_trip(period: &Period, rate: &Threshold) -> Option<(f64, Draft)> {
    let rejected = broker::total(period, &metrics::BROKER_DEAD_LETTERED_REJECTED)?;
    let expired = broker::total(period, &metrics::BROKER_DEAD_LETTERED_EXPIRED)?;
    let published = broker::total(period, &metrics::BROKER_PUBLISHED)?;
    let acked = broker::total(period, &metrics::BROKER_ACKNOWLEDGED)?;
    let delivered = broker::total(period, &metrics::BROKER_DELIVERED)?;
    if delivered < DELIVERED_HERE * rejected {
        return None;
    }
    let per_message = |dead: f64| dead / published.max(acked).max(LEAST_TRAFFIC_PER_S);
    let rounds = rounds(period);
    let waits = expired >= EXPIRE * rejected;
    // Publishers on other nodes may have sent messages that are rejected only once each.
    let is_alone = !period.entities(Group::Dist).into_iter().any(is_peer);
    let at_once = is_alone && rounds.is_some_and(|rounds| rounds.each >= CAME_BACK_AT_ONCE);
    if !(waits || at_once) {
        return None;
    }
    let severity = rate.of(period).severity(rejected)?;
    let severity = severity.min(PER_PUBLISHED.of(period).severity(per_message(rejected))?);
    let queues = broker::queues(period);
    let delay = queues.iter().filter(|_| waits).filter_map(|queue| Delay::of(period, queue));
    let delay =
        delay.max_by(|a, b| a.per_s.total_cmp(&b.per_s)).filter(|delay| delay.per_s >= NAMED * expired);
    let rejecting = queues.iter().filter_map(|queue| Some((queue, not_acked(period, queue)?)));
    let rejecting =
        rejecting.max_by(|a, b| a.1.total_cmp(&b.1)).filter(|(_, per_s)| *per_s >= NAMED * rejected);
    let rejecting = rejecting.map(|(queue, _)| queue);
    let through = delay.as_ref().map(|delay| delay.queue).or(rejecting);
    let via = through.map(|queue| format!(" via {}", queue.name)).unwrap_or_default();
    let title = format!("Dead-letter loop{via}: {rejected:.0}/s rejected, {published:.0}/s published");
    let clients =
        rejecting.map(|queue| queue.clients(period, &metrics::CLIENT_DELIVERED)).unwrap_or_default();
    let consuming: Vec<_> = clients.iter().map(|(client, _)| *client).collect();
    let mut busy = rejecting.map(|queue| queue.processes(period, &consuming)).unwrap_or_default();
    let of_delay = delay.as_ref().map(|delay| delay.queue.processes(period, &[])).unwrap_or_default();
    busy.extend(
        of_delay.into_iter().filter(|process| rejecting.is_none_or(|queue| !queue.is_served_by(process))),
    );
    let from = rejecting.map(|queue| match clients.first() {
        Some((client, _)) => format!("{}, which {} consumes", queue.name, client.title()),
        None => queue.name.to_owned(),
    });
    let came_back = rounds.filter(|rounds| rounds.each >= CAME_BACK);
    let draft = Draft::new(severity, title)
        .about(through.map(Queue::subject))
        .costs(broker::cores(period, &busy).map(Cost::CpuCores))
        .signals(broker::drives(period, &busy))
        .evidence(
            Evidence::number("rejected and dead-lettered", rejected, Unit::PerSecond)
                .against_scale(rate.of(period))
                .with_text(format!("{published:.0} published/s, {acked:.0} acknowledged/s")),
        )
        .evidence(Evidence::number("expired and dead-lettered", expired, Unit::PerSecond))
        .evidence(
            Evidence::number("rejections per message published", per_message(rejected), Unit::Count)
                .against_scale(PER_PUBLISHED.of(period)),
        )
        .because_some(came_back.map(|rounds| {
            Evidence::number("rejections per message in the period", rounds.each, Unit::Count)
                .with_text(format!("on average, of {:.0} messages", rounds.messages))
        }))
        .because_some(from.map(|from| Evidence::text("rejected from queue", from)))
        .because_some(delay.as_ref().map(|delay| {
            let text = format!("{}: {:.0} messages, TTL {}", delay.queue.name, delay.messages, ttl_text(delay.ttl_s));
            Evidence::text("delay queue", text)
        }))
        .but_if(came_back.is_none(), "a backlog that is rejected for the first time looks the same until all of it was rejected once")
        .confirmed_by("get one message with basic.get and requeue it: the count in its x-death header grows with each round");
    Some((rejected, advise(period, draft, waits)))
}

/// Whether a connected node may belong to the cluster: it is neither beamtune nor rabbitmqctl, which names its node rabbitmqcli-… .
fn is_peer(node: &str) -> bool {
    !["beamtune", "rabbitmqcli"].iter().any(|tool| node.starts_with(tool))
}

/// Mean number of rejections per message in the period, and the number of messages.
#[derive(Clone, Copy)]
struct Rounds {
    each: f64,
    messages: f64,
}

/// Divides the rejections by all messages that may have been rejected: the maximum in the queues, plus those published.
fn rounds(period: &Period) -> Option<Rounds> {
    let most = |metric: &Metric| period.stat(metric, "").ok().map(|stat| stat.max as f64);
    let grown = |metric: &Metric| period.stat(metric, "").ok().map(|stat| stat.delta as f64);
    // Without statistics queues look empty.
    most(&metrics::BROKER_STATISTICS).filter(|level| *level > 0.0)?;
    let held = most(&metrics::BROKER_READY)? + most(&metrics::BROKER_UNACKED)?;
    let messages = (held + grown(&metrics::BROKER_PUBLISHED)?).max(1.0);
    Some(Rounds { each: grown(&metrics::BROKER_DEAD_LETTERED_REJECTED)? / messages, messages })
}

/// A queue in which messages wait until their TTL expires.
struct Delay<'q, 'p> {
    queue: &'q Queue<'p>,
    messages: f64,
    ttl_s: f64,
    /// Messages that expire per second, if each waits for the whole TTL.
    per_s: f64,
}

impl<'q, 'p> Delay<'q, 'p> {
    fn of(period: &Period, queue: &'q Queue<'p>) -> Option<Self> {
        let ttl_s = (queue.last(period, &metrics::QUEUE_TTL)? / 1e9).max(SHORTEST_TTL_S);
        let messages = queue.last(period, &metrics::QUEUE_READY)?;
        let consumers = queue.last(period, &metrics::QUEUE_CONSUMERS).unwrap_or(0.0);
        let per_s = messages / ttl_s;
        (consumers == 0.0).then_some(Delay { queue, messages, ttl_s, per_s })
    }
}

/// Returns the deliveries per second that were not acknowledged.
fn not_acked(period: &Period, queue: &Queue<'_>) -> Option<f64> {
    let acked = queue.rate(period, &metrics::QUEUE_ACKNOWLEDGED).unwrap_or(0.0);
    Some(queue.rate(period, &metrics::QUEUE_DELIVERED)? - acked)
}

fn advise(period: &Period, draft: Draft, waits: bool) -> Draft {
    let prove = "rejections per message published, and the CPU of the queues' processes";
    let count = "in the consumer, read count in the message's header x-death: after some rounds publish the message to a parking queue, and \
                 acknowledge it; do not purge the queue, it holds messages that may be needed";
    let limit = "use a quorum queue with delivery-limit, whose dead letter exchange leads to the parking queue, and requeue in consumers";
    let longer = "use a longer message-ttl, or several queues with increasing TTLs";
    draft
        .remedy(remedy::of(
            period,
            "rabbitmq.retry_limit",
            count,
            "a message that can never be handled loops forever: RabbitMQ drops looping messages only if no consumer rejects them",
            prove,
        ))
        .remedy(remedy::of(
            period,
            "rabbitmq.retry_limit",
            limit,
            "the broker then counts the rounds; more consumers only speed up the loop",
            prove,
        ))
        .fix_if(waits, || {
            remedy::of(
                period,
                "rabbitmq.retry_limit",
                longer,
                "the rate of rounds is messages divided by TTL; this does not end the loop",
                prove,
            )
        })
}

/// Formats a TTL; below 10 s, with one decimal.
fn ttl_text(seconds: f64) -> String {
    if seconds < 10.0 { format!("{seconds:.1} s") } else { duration_text(seconds) }
}
