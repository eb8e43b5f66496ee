//! RabbitMQ's own counters of its queues, clients and connections.

use beamtune_model::series::PART_SEPARATOR;
use beamtune_model::{Group, Metric, Missing, Period, ProcessActivity, Signal, Subject, metrics};

use crate::view::{self, kind};

/// Maximum age of the statistics that RabbitMQ's processes publish (collect_statistics_interval).
pub(crate) const STATISTICS_SECONDS: f64 = 5.0;

/// A conspicuous queue; only these are recorded.
pub(crate) struct Queue<'p> {
    /// Label of its process.
    label: &'p str,
    /// Its name, preceded by its virtual host unless that is `/`.
    pub name: &'p str,
}

/// A client with a connection.
#[derive(Clone, Copy)]
pub(crate) struct Client<'p> {
    /// The entity of its series.
    entity: &'p str,
    /// Label of the connection's process; empty if only the kind of client is known.
    label: &'p str,
    /// Connection name that the client set, or its address.
    pub name: &'p str,
    pub user: &'p str,
}

/// Whether the node runs RabbitMQ and its counters were recorded; an error if it runs RabbitMQ without them. If the product is unknown, the
/// counters decide.
pub(crate) fn recorded(period: &Period) -> Result<bool, Missing> {
    period.stat(&metrics::PROCESS_COUNT, "")?;
    let counted = period.stat(&metrics::BROKER_CONNECTIONS_OPENED, "").map(|_| true);
    // Neither a redacted recording nor pasted text names the product.
    let is_known = period.is_imported() || super::watermark::version(period).is_some();
    if is_known { counted } else { Ok(counted.is_ok()) }
}

/// The text for a node that is not RabbitMQ.
pub(crate) const NO_BROKER: &str = "not a RabbitMQ node";

/// Returns the rate of a counter of the whole broker, per second, if known.
pub(crate) fn total(period: &Period, metric: &Metric) -> Option<f64> {
    period.rate(metric, "").ok()
}

/// Returns the conspicuous queues.
pub(crate) fn queues(period: &Period) -> Vec<Queue<'_>> {
    let entities = period.entities(Group::BrokerQueue).into_iter();
    entities.map(|label| Queue { label, name: label.strip_prefix("queue ").unwrap_or(label) }).collect()
}

impl<'p> Queue<'p> {
    pub(crate) fn subject(&self) -> Subject {
        Subject::Queue { name: self.name.to_owned() }
    }

    /// Returns the rate of a counter per second; `None` with fewer than two readings.
    pub(crate) fn rate(&self, period: &Period, metric: &Metric) -> Option<f64> {
        period.rate(metric, self.label).ok()
    }

    /// Returns the last value of a gauge.
    pub(crate) fn last(&self, period: &Period, metric: &Metric) -> Option<f64> {
        period.stat(metric, self.label).ok().map(|stat| stat.last.value as f64)
    }

    /// Returns the maximum of a gauge.
    pub(crate) fn most(&self, period: &Period, metric: &Metric) -> Option<f64> {
        period.stat(metric, self.label).ok().map(|stat| stat.max as f64)
    }

    /// Returns the growth of a gauge per second, from the first reading to the last.
    pub(crate) fn growth(&self, period: &Period, metric: &Metric) -> Option<f64> {
        let stat = period.stat(metric, self.label).ok()?;
        let seconds = beamtune_model::units::seconds(stat.last.t - stat.first.t);
        (seconds > STATISTICS_SECONDS).then(|| (stat.last.value - stat.first.value) as f64 / seconds)
    }

    /// Returns its consumers, those with the highest rate or value of `by` first.
    pub(crate) fn clients(&self, period: &'p Period, by: &Metric) -> Vec<(Client<'p>, f64)> {
        let of_queue = |entity: &&str| entity.split(PART_SEPARATOR).next() == Some(self.label);
        let value = |entity: &str| {
            let stat = period.stat(by, entity).ok()?;
            Some(stat.rate().unwrap_or(stat.last.value as f64))
        };
        let entities = period.entities(Group::BrokerClient).into_iter().filter(of_queue);
        let mut clients: Vec<(Client<'p>, f64)> =
            entities.filter_map(|entity| Some((Client::of(entity, 1)?, value(entity)?))).collect();
        clients.sort_by(|a, b| b.1.total_cmp(&a.1));
        clients
    }

    /// Whether this is the queue's own process.
    pub(crate) fn is_served_by(&self, process: &ProcessActivity) -> bool {
        process.row.as_ref().and_then(|row| row.label.as_deref()) == Some(self.label)
    }

    /// Returns the processes that serve the queue: its own, and those of these clients.
    pub(crate) fn processes(&self, period: &'p Period, clients: &[Client<'p>]) -> Vec<&'p ProcessActivity> {
        serving(period, |label| {
            label == self.label || clients.iter().any(|client| client.is_served_by(label))
        })
    }
}

impl<'p> Client<'p> {
    /// Parses an entity in which part number `from` is the connection and the next part is the user.
    fn of(entity: &'p str, from: usize) -> Option<Client<'p>> {
        let mut parts = entity.split(PART_SEPARATOR).skip(from);
        let (label, user) = (parts.next()?, parts.next().unwrap_or_default());
        let whole = label.strip_prefix("connection ").unwrap_or(label);
        let name = whole.split_once(" - ").map_or(whole, |(_, given)| given);
        Some(Client { entity, label, name, user })
    }

    pub(crate) fn subject(&self) -> Subject {
        let user = Some(self.user.to_owned()).filter(|user| !user.is_empty());
        Subject::Client { name: self.name.to_owned(), user }
    }

    pub(crate) fn title(&self) -> String {
        self.subject().to_string()
    }

    /// Returns the first and the last value of a gauge.
    pub(crate) fn gauge(&self, period: &Period, metric: &Metric) -> Option<(f64, f64)> {
        period.stat(metric, self.entity).ok().map(|stat| (stat.first.value as f64, stat.last.value as f64))
    }

    /// Whether the process with this label serves the client: its connection, one of its channels, or its writer. Labels of channels
    /// contain only the connection's address.
    fn is_served_by(&self, label: &str) -> bool {
        let whole = self.label.strip_prefix("connection ").unwrap_or(self.label);
        let address = whole.split_once(" - ").map_or(whole, |(address, _)| address);
        label == self.label || !address.is_empty() && label.contains(" of ") && label.contains(address)
    }
}

fn serving<'p>(period: &'p Period, is_one: impl Fn(&str) -> bool) -> Vec<&'p ProcessActivity> {
    let label = |process: &'p ProcessActivity| process.row.as_ref()?.label.as_deref();
    period.processes.iter().filter(|process| label(process).is_some_and(&is_one)).collect()
}

/// Returns the connections that have many channels or are blocked.
pub(crate) fn connections(period: &Period) -> Vec<Client<'_>> {
    period.entities(Group::BrokerConnection).into_iter().filter_map(|entity| Client::of(entity, 0)).collect()
}

/// Returns the client that opened most of the sampled new connections (or channels), with its number and that of all clients.
pub(crate) fn foremost_opener<'p>(period: &'p Period, metric: &Metric) -> Option<(Client<'p>, f64, f64)> {
    let openers = period.entities(Group::BrokerOpener).into_iter();
    let count = |entity: &str| Some(period.stat(metric, entity).ok()?.last.value as f64);
    let all: Vec<(Client<'p>, f64)> =
        openers.filter_map(|entity| Some((Client::of(entity, 0)?, count(entity)?))).collect();
    let sum = all.iter().map(|(_, count)| count).sum();
    all.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).map(|(client, count)| (client, count, sum))
}

/// Estimates the CPU use of processes, in cores, from their share of all reductions. `None` if unknown.
pub(crate) fn cores(period: &Period, processes: &[&ProcessActivity]) -> Option<f64> {
    let active = view::activity(period, kind::SCHEDULER).ok()?.cores();
    Some(view::reductions_share(period, processes)?.min(1.0) * active)
}

/// A larger share of all reductions is most of the work of the node.
const MOST: f64 = 0.5;

/// Returns signals that the finding explains the work of these processes, and whether that is most of the work of the node.
pub(crate) fn drives(period: &Period, processes: &[&ProcessActivity]) -> Vec<Signal> {
    let is_most = view::reductions_share(period, processes).is_some_and(|share| share > MOST);
    let each = processes.iter().map(|process| Signal::Drives(process.subject()));
    each.chain(is_most.then_some(Signal::DrivesMost)).collect()
}
