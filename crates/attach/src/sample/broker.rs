//! Decodes RabbitMQ's own counters of its queues and clients.

use std::collections::{BTreeMap, HashSet};

use beamtune_model::series::PART_SEPARATOR;
use beamtune_model::{Metric, SampleBuilder, metrics};

use super::{amount, bounded_text, number, rows, text};
use crate::etf::{Term, TermError};

/// Maximum number of queues, clients and connections for which there are series. Without it, short-lived ones would add series
/// without limit, since each has a new name.
const MAX_NAMES: usize = 1_000;

/// Queues, clients and connections for which there are series in this incarnation.
#[derive(Debug, Default)]
pub(super) struct Names(HashSet<String>);

impl Names {
    fn has_room_for(&mut self, entity: &str) -> bool {
        self.0.contains(entity) || self.0.len() < MAX_NAMES && self.0.insert(entity.to_owned())
    }
}

type Named = (&'static Metric, &'static str);

const TOTALS: &[Named] = &[
    (&metrics::BROKER_CONNECTIONS, "connections"),
    (&metrics::BROKER_CHANNELS, "channels"),
    (&metrics::BROKER_CONSUMERS, "consumers"),
    (&metrics::BROKER_QUEUES, "queues"),
    (&metrics::BROKER_CONNECTIONS_OPENED, "connections_opened"),
    (&metrics::BROKER_CONNECTIONS_CLOSED, "connections_closed"),
    (&metrics::BROKER_CHANNELS_OPENED, "channels_opened"),
    (&metrics::BROKER_CHANNELS_CLOSED, "channels_closed"),
    (&metrics::BROKER_QUEUES_DECLARED, "queues_declared"),
    (&metrics::BROKER_QUEUES_CREATED, "queues_created"),
    (&metrics::BROKER_QUEUES_DELETED, "queues_deleted"),
    (&metrics::BROKER_LOGINS, "logins"),
    (&metrics::BROKER_LOGINS_FAILED, "logins_failed"),
];

const SUMS: &[Named] = &[
    (&metrics::BROKER_PUBLISHED, "published"),
    (&metrics::BROKER_CONFIRMED, "confirmed"),
    (&metrics::BROKER_UNROUTABLE, "unroutable"),
    (&metrics::BROKER_DELIVERED, "delivered"),
    (&metrics::BROKER_REDELIVERED, "redelivered"),
    (&metrics::BROKER_ACKNOWLEDGED, "acknowledged"),
    (&metrics::BROKER_EMPTY_GETS, "empty_gets"),
    (&metrics::BROKER_DEAD_LETTERED_REJECTED, "dead_lettered_rejected"),
    (&metrics::BROKER_DEAD_LETTERED_EXPIRED, "dead_lettered_expired"),
    (&metrics::BROKER_DEAD_LETTERED_MAXLEN, "dead_lettered_maxlen"),
    (&metrics::BROKER_DEAD_LETTERED_DELIVERY_LIMIT, "dead_lettered_delivery_limit"),
    (&metrics::BROKER_READY, "ready"),
    (&metrics::BROKER_UNACKED, "unacked"),
    (&metrics::BROKER_STATISTICS, "statistics"),
    (&metrics::BROKER_MEMORY_ALARM, "memory_alarm"),
    (&metrics::BROKER_DISK_ALARM, "disk_alarm"),
    (&metrics::BROKER_MEMORY_LIMIT, "memory_limit"),
    (&metrics::BROKER_DISK_LIMIT, "disk_limit"),
    (&metrics::BROKER_DISK_FREE, "disk_free"),
    (&metrics::BROKER_BLOCKED, "blocked"),
    (&metrics::BROKER_FLOW, "flow"),
];

const QUEUE: &[Named] = &[
    (&metrics::QUEUE_READY, "ready"),
    (&metrics::QUEUE_UNACKED, "unacked"),
    (&metrics::QUEUE_CONSUMERS, "consumers"),
    (&metrics::QUEUE_PREFETCH, "prefetch"),
    (&metrics::QUEUE_UNLIMITED, "unlimited"),
    (&metrics::QUEUE_TTL, "ttl_ns"),
    (&metrics::QUEUE_MAX_LENGTH, "max_length"),
    (&metrics::QUEUE_DELIVERED, "delivered"),
    (&metrics::QUEUE_REDELIVERED, "redelivered"),
    (&metrics::QUEUE_ACKNOWLEDGED, "acknowledged"),
];

/// Adds sizes and churn. The item is empty on a node without RabbitMQ.
pub(super) fn totals(value: Term<'_>, out: &mut SampleBuilder<'_>) -> Result<(), TermError> {
    put(value, TOTALS, "", out)
}

/// Adds messages, alarms, and the top queues and clients.
pub(super) fn clients(
    value: Term<'_>,
    names: &mut Names,
    out: &mut SampleBuilder<'_>,
) -> Result<(), TermError> {
    put(value, SUMS, "", out)?;
    if value.get("queue_rows")?.is_none() {
        return Ok(());
    }
    // A connection may consume from a queue on several channels.
    let mut consuming: BTreeMap<String, [i64; 4]> = BTreeMap::new();
    for row in rows(value, "queue_rows")? {
        let Some(name) = text(row, "name")? else { continue };
        let queue = format!("queue {name}");
        if !names.has_room_for(&queue) {
            continue;
        }
        put(row, QUEUE, &queue, out)?;
        for client in rows(row, "clients")? {
            let [name, user, delivered, redelivered, acknowledged, unacked] = client.tuple_of()?;
            let entity = format!("{queue}{PART_SEPARATOR}{}", connection(name, user)?);
            let sums = consuming.entry(entity).or_default();
            for (sum, count) in sums.iter_mut().zip([delivered, redelivered, acknowledged, unacked]) {
                *sum = sum.saturating_add(amount(count)?);
            }
        }
    }
    consuming.retain(|entity, _| names.has_room_for(entity));
    for (entity, [delivered, redelivered, acknowledged, unacked]) in consuming {
        out.metric(&metrics::CLIENT_DELIVERED, &entity, delivered);
        out.metric(&metrics::CLIENT_REDELIVERED, &entity, redelivered);
        out.metric(&metrics::CLIENT_ACKNOWLEDGED, &entity, acknowledged);
        out.metric(&metrics::CLIENT_UNACKED, &entity, unacked);
    }
    for row in rows(value, "connection_rows")? {
        let [name, user, channels, blocked] = row.tuple_of()?;
        let entity = connection(name, user)?;
        if !names.has_room_for(&entity) {
            continue;
        }
        out.metric(&metrics::CONNECTION_CHANNELS, &entity, amount(channels)?);
        out.metric(&metrics::CONNECTION_BLOCKED, &entity, i64::from(blocked.as_atom()? == "true"));
    }
    for row in rows(value, "openers")? {
        let [kind, name, user, count] = row.tuple_of()?;
        let metric = match kind.as_atom()? {
            "connections" => &metrics::OPENER_CONNECTIONS,
            _ => &metrics::OPENER_CHANNELS,
        };
        let part = |term| Ok::<_, TermError>(bounded_text(term)?.unwrap_or_default());
        let entity = format!("{}{PART_SEPARATOR}{}", part(name)?, part(user)?);
        if names.has_room_for(&entity) {
            out.metric(metric, &entity, amount(count)?);
        }
    }
    Ok(())
}

fn put(map: Term<'_>, what: &[Named], entity: &str, out: &mut SampleBuilder<'_>) -> Result<(), TermError> {
    for (metric, key) in what {
        if let Some(value) = number(map, key)? {
            out.metric(metric, entity, value);
        }
    }
    Ok(())
}

/// Formats the label of the connection's process and the user.
fn connection(name: Term<'_>, user: Term<'_>) -> Result<String, TermError> {
    let name = bounded_text(name)?.unwrap_or_default();
    Ok(format!("connection {name}{PART_SEPARATOR}{}", bounded_text(user)?.unwrap_or_default()))
}
