//! TCP connections with received data that the VM does not read, and the addresses of their two ends.

use beamtune_model::units::SECOND_NS;
use beamtune_model::{Group, Period, ProcessActivity, metrics};

/// Connections with fewer samples are not judged.
pub(crate) const MIN_SAMPLES: u32 = 5;

/// Prefix of the entities of connections that the VM opened.
const TO: &str = "to ";

/// A connection with unread bytes in each sample, until the end of the period.
pub(crate) struct Unread<'p> {
    /// Address of the listening socket, or the peer.
    pub group: &'p str,
    /// Address of the peer if the VM accepted the connection; its own address if it opened the connection.
    other: &'p str,
    /// Bytes read since the connection was opened; `None` if received bytes are unknown.
    read_bytes: Option<i64>,
    pub mean_bytes: f64,
    /// Time since the first sample with unread bytes.
    pub seconds: f64,
    /// Mean time that bytes wait until they are read; `None` if nothing was read.
    pub wait_seconds: Option<f64>,
}

impl<'p> Unread<'p> {
    fn of(period: &'p Period, entity: &'p str, last_sample: i64) -> Option<Self> {
        let (group, other) = entity.split_once(',')?;
        let bytes = period.stat(&metrics::TCP_UNREAD_BYTES, entity).ok()?;
        if bytes.samples < MIN_SAMPLES || bytes.last.t < last_sample {
            return None;
        }
        let seconds = bytes.last.t.saturating_sub(bytes.first.t) as f64 / SECOND_NS as f64;
        let read_now = match period.stat(&metrics::TCP_RECEIVED, entity) {
            Ok(received) => received.delta.saturating_sub(bytes.last.value.saturating_sub(bytes.first.value)),
            // If received bytes are unknown, a queue of constant length is not read.
            Err(_) if bytes.min == bytes.max => 0,
            Err(_) => return None,
        };
        let wait_seconds = (read_now > 0).then(|| bytes.mean() * seconds / read_now as f64);
        let received = period.stat(&metrics::TCP_RECEIVED, entity).ok().map(|stat| stat.last.value);
        Some(Unread {
            group,
            other,
            mean_bytes: bytes.mean(),
            seconds,
            wait_seconds,
            read_bytes: received.map(|received| received.saturating_sub(bytes.last.value)),
        })
    }

    /// Returns a lower bound of the time that bytes wait.
    pub(crate) fn min_wait_seconds(&self) -> f64 {
        self.wait_seconds.unwrap_or(self.seconds)
    }

    /// Returns its local address.
    pub(crate) fn local(&self) -> &'p str {
        if self.is_opened() { self.other } else { self.group }
    }

    /// Returns the address of its peer.
    pub(crate) fn remote(&self) -> &'p str {
        self.group.strip_prefix(TO).unwrap_or(self.other)
    }

    /// Whether the VM opened the connection, and did not accept it.
    fn is_opened(&self) -> bool {
        self.group.starts_with(TO)
    }

    /// Whether this VM listens at the other end.
    pub(crate) fn is_within_node(&self, period: &Period) -> bool {
        self.is_opened()
            && period.entities(Group::HostListen).iter().any(|listens| is_at(listens, self.remote()))
    }

    /// Returns the process that should read: the owner of the only TCP port that has read as many bytes.
    pub(crate) fn reader<'q>(&self, period: &'q Period) -> Option<&'q ProcessActivity> {
        let read = self.read_bytes.filter(|bytes| *bytes > 0)?;
        let mut ports =
            period.ports.iter().filter(|port| port.name == "tcp_inet" && port.input_bytes == read);
        let port = ports.next().filter(|_| ports.next().is_none())?;
        period.process(port.connected.as_deref()?)
    }
}

/// Whether a socket that listens at `listens` accepts connections to this address.
fn is_at(listens: &str, address: &str) -> bool {
    let port = |address: &str| address.rsplit_once(':').map(|(_, port)| port.to_owned());
    let is_any = ["0.0.0.0:", "[::]:"].iter().any(|any| listens.starts_with(any));
    listens == address || is_any && port(listens) == port(address)
}

/// Returns all unread connections.
pub(crate) fn all(period: &Period) -> Vec<Unread<'_>> {
    let Ok(sampled) = period.stat(&metrics::TCP_SAMPLED, "") else { return Vec::new() };
    let entities = period.entities(Group::HostTcp).into_iter();
    entities.filter_map(|entity| Unread::of(period, entity, sampled.last.t)).collect()
}

/// Returns the unread end of the connection in which `sender` is blocked. The sender must own the only TCP port with unsent bytes. And
/// exactly one connection to a listening socket of this node must be unread.
pub(crate) fn unread_end<'p>(period: &'p Period, sender: &ProcessActivity) -> Option<Unread<'p>> {
    let mut blocked = period.ports.iter().filter(|port| port.name == "tcp_inet" && port.queue_bytes > 0);
    let port = blocked.next().filter(|_| blocked.next().is_none())?;
    let mut ends =
        all(period).into_iter().filter(|one| one.wait_seconds.is_none() && one.is_within_node(period));
    let end = ends.next().filter(|_| ends.next().is_none())?;
    (port.connected.as_deref() == Some(&*sender.pid)).then_some(end)
}
