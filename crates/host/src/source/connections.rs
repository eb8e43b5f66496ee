//! The VM's TCP connections with unread data: received bytes stay in the kernel's receive queue.
//!
//! Every second, at most 2,048 connections of the network namespace are sampled; if there are more, the kernel returns the same ones each
//! time. A connection is recorded as unread if at least 4,096 bytes are unread in two successive samples: less may be a TLS ticket on an
//! idle connection. Some unread connections are tracked individually, with the number of bytes that they have received: this shows how fast
//! the VM reads.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;

use beamtune_model::units::SECOND_NS;
use beamtune_model::{Clock, Nanos, SampleBuilder, metrics};

use crate::distribution::Listener;
use crate::error::HostError;
use crate::sockets::{self, Connection};
use crate::tree::FileTree;

use super::listen::entity;
use super::own_sockets::OwnSockets;
use super::{HostSource, some};

/// Maximum number of sampled connections: about 4 ms, measured with 9,000 connections.
const MAX_SAMPLED: usize = 2_048;
/// Minimum number of unread bytes of an unread connection (judgement): TLS tickets and messages that end a connection are smaller.
const MIN_UNREAD_BYTES: i64 = 4_096;
/// A connection that has received nothing for this long may have lost its peer (judgement: most heartbeats and timeouts are 30 s or less).
const SILENT_MS: u32 = 30_000;
/// The same for a connection that the VM opened: it may be waiting for a response (judgement: most responses arrive within a second).
const SILENT_PEER_MS: u32 = 10_000;
/// Maximum number of connections that are looked up in the VM's descriptors, to find those that it opened itself.
const MAX_LOOKUPS: usize = 64;
/// Maximum number of connections that are tracked at the same time, and per incarnation.
const MAX_FOLLOWED_AT_ONCE: usize = 8;
const MAX_FOLLOWED: usize = 64;
/// Maximum number of sockets in TIME_WAIT that are read per address family. This takes about 10 ms, and is enough for 170 closed
/// connections per second, which remain for 60 s each.
const MAX_CLOSED: usize = 10_000;
/// Interval at which sockets in TIME_WAIT are read; each remains for a minute.
const CLOSED_INTERVAL_NS: i64 = 5 * SECOND_NS;
/// Only connections that were closed within this time are counted.
const CLOSED_WITHIN_MS: u32 = 10_000;
/// Lifetimes of this many seconds or more are counted together.
const MAX_LIFETIME_S: i64 = 60;
/// Maximum number of recorded pairs of listening socket and lifetime.
const MAX_LIFETIMES: usize = 300;
/// Maximum number of recorded listening sockets and peers per incarnation.
const MAX_GROUPS: usize = 100;

/// Connections known from earlier samples.
#[derive(Debug, Default)]
pub(super) struct ConnectionWatch {
    pub(super) sockets: OwnSockets,
    /// Inodes of connections with at least [`MIN_UNREAD_BYTES`] in the last sample.
    before: HashSet<u64>,
    /// Lengths of non-empty receive queues in the last sample, by inode.
    queues: HashMap<u64, i64>,
    /// Names of the entities of tracked connections, by inode.
    followed: HashMap<u64, String>,
    followed_so_far: usize,
    groups: BTreeSet<String>,
    /// Used only for the intervals between reads of sockets in TIME_WAIT.
    pub(super) closed: OwnSockets,
    closed_at: Option<Nanos>,
    lifetimes: Lifetimes,
}

/// Counts accepted connections at their start, and by lifetime at their end.
#[derive(Debug, Default)]
struct Lifetimes {
    /// Listening socket and time of the first sample of each open connection, by inode. The time is `None` if the connection existed before
    /// the first sample.
    open: Option<HashMap<u64, (Listener, Option<Nanos>)>>,
    begun: BTreeMap<Listener, i64>,
    /// Number of ended connections by listening socket and lifetime in whole seconds.
    lived: BTreeMap<(Listener, i64), i64>,
}

impl Lifetimes {
    /// Compares the accepted connections of this sample with those of the last one.
    fn update(&mut self, found: &[(u64, Listener)], now: Nanos) {
        let before = self.open.take();
        let is_first = before.is_none();
        let mut before = before.unwrap_or_default();
        let mut open = HashMap::with_capacity(found.len());
        for &(inode, listener) in found {
            let begun = self.begun.entry(listener).or_default();
            let known = before.remove(&inode).filter(|(of, _)| *of == listener);
            let known = known.unwrap_or_else(|| {
                *begun += i64::from(!is_first);
                (listener, (!is_first).then_some(now))
            });
            open.insert(inode, known);
        }
        for (listener, begun) in before.into_values() {
            let Some(begun) = begun else { continue };
            let seconds = (now.saturating_sub(begun) + SECOND_NS / 2) / SECOND_NS;
            let key = (listener, seconds.min(MAX_LIFETIME_S));
            if self.lived.len() < MAX_LIFETIMES || self.lived.contains_key(&key) {
                *self.lived.entry(key).or_default() += 1;
            }
        }
        self.open = Some(open);
    }
}

impl ConnectionWatch {
    /// Returns the connections that were also unread in the last sample, ordered by unread bytes, and remembers the unread ones of this
    /// sample.
    fn unread(&mut self, found: &[Connection]) -> Vec<Connection> {
        let now = || found.iter().filter(|connection| connection.unread_bytes >= MIN_UNREAD_BYTES);
        let mut unread: Vec<Connection> =
            now().filter(|connection| self.before.contains(&connection.inode)).copied().collect();
        unread.sort_by_key(|connection| (-connection.unread_bytes, connection.inode));
        self.before = now().map(|connection| connection.inode).collect();
        unread
    }

    /// Sums the unread bytes of connections whose receive queue has changed since the last sample, by group, and remembers the queues.
    fn waiting<K: Ord + Copy>(&mut self, found: &[(Connection, K)]) -> BTreeMap<K, i64> {
        let mut waiting: BTreeMap<K, i64> = BTreeMap::new();
        for (connection, group) in found {
            let has_changed =
                self.queues.get(&connection.inode).is_none_or(|bytes| *bytes != connection.unread_bytes);
            *waiting.entry(*group).or_default() += if has_changed { connection.unread_bytes } else { 0 };
        }
        let filled = found.iter().map(|(connection, _)| connection).filter(|one| one.unread_bytes > 0);
        self.queues = filled.map(|connection| (connection.inode, connection.unread_bytes)).collect();
        waiting
    }

    /// Selects the connections to be tracked: those that are tracked already, and others up to the limits. Returns them with the names of
    /// their entities.
    fn follow(&mut self, unread: &[(String, Connection)]) -> Vec<(String, Connection)> {
        let inodes: HashSet<u64> = unread.iter().map(|(_, connection)| connection.inode).collect();
        self.followed.retain(|inode, _| inodes.contains(inode));
        for (name, connection) in unread {
            let has_room = self.followed.len() < MAX_FOLLOWED_AT_ONCE && self.followed_so_far < MAX_FOLLOWED;
            if has_room && !self.followed.contains_key(&connection.inode) {
                self.followed.insert(connection.inode, name.clone());
                self.followed_so_far += 1;
            }
        }
        let followed = |(_, connection): &(_, Connection)| {
            Some((self.followed.get(&connection.inode)?.clone(), *connection))
        };
        unread.iter().filter_map(followed).collect()
    }

    fn is_recorded(&mut self, group: &str) -> bool {
        if self.groups.len() < MAX_GROUPS && !self.groups.contains(group) {
            self.groups.insert(group.to_owned());
        }
        self.groups.contains(group)
    }
}

impl<T: FileTree> HostSource<T> {
    /// Samples the connections.
    pub(super) fn read_connections(&mut self, detail: bool, clock: &dyn Clock, out: &mut SampleBuilder<'_>) {
        let read: fn(&mut Self, &mut SampleBuilder<'_>) -> Result<(), HostError> = match detail {
            true => |source, out| source.read_tcp(true, out),
            false => |source, out| source.read_tcp(false, out),
        };
        self.sample_sockets("host.tcp", |source| &mut source.connections.sockets, read, detail, clock, out);
    }

    /// Counts the connections that the VM closed before its peer.
    pub(super) fn read_closed(&mut self, detail: bool, clock: &dyn Clock, out: &mut SampleBuilder<'_>) {
        if self.connections.closed_at.is_some_and(|at| self.seen.saturating_sub(at) < CLOSED_INTERVAL_NS) {
            return;
        }
        self.sample_sockets(
            "host.tcp_closed",
            |source| &mut source.connections.closed,
            |source, out| source.read_time_wait(out),
            detail,
            clock,
            out,
        );
    }

    fn read_time_wait(&mut self, out: &mut SampleBuilder<'_>) -> Result<(), HostError> {
        self.connections.closed_at = Some(self.seen);
        let Some(found) = self.tree.closed(self.pid(), MAX_CLOSED) else { return Ok(()) };
        let mut closed: BTreeMap<Listener, i64> =
            self.listen.addresses().map(|listener| (listener, 0)).collect();
        for one in found?.iter().filter(|one| one.ago_ms <= CLOSED_WITHIN_MS) {
            if let Some(listener) = self.listen.listener(canonical(one.local)) {
                *closed.entry(listener).or_default() += 1;
            }
        }
        for (listener, count) in closed {
            let group = entity(listener);
            if self.connections.is_recorded(&group) {
                out.metric(&metrics::TCP_CLOSED, &group, count);
            }
        }
        Ok(())
    }

    fn record_lifetimes(&mut self, out: &mut SampleBuilder<'_>) {
        let watch = &mut self.connections;
        // Listening sockets without connections are recorded, too.
        for listener in self.listen.addresses() {
            let count = watch.lifetimes.begun.get(&listener).copied().unwrap_or_default();
            let group = entity(listener);
            if watch.is_recorded(&group) {
                out.metric(&metrics::TCP_BEGUN, &group, count);
            }
        }
        for ((listener, seconds), count) in &watch.lifetimes.lived {
            out.metric(&metrics::TCP_LIVED, &format!("{},{seconds}", entity(*listener)), *count);
        }
    }

    fn read_tcp(&mut self, detail: bool, out: &mut SampleBuilder<'_>) -> Result<(), HostError> {
        let pid = self.pid();
        let found = match self.tree.connections(pid, MAX_SAMPLED, detail) {
            Some(Ok(found)) => found,
            // If netlink is not available, the beginning of the kernel's tables is read, without received bytes.
            Some(Err(_)) | None => sockets::connections_in_namespace(&self.tree, pid)?,
        };
        some(out, &metrics::TCP_LOOKED_AT, "", i64::try_from(found.len()).ok());
        let unread = self.connections.unread(&found);
        let accepted_at = |connection: &Connection| self.listen.listener(canonical(connection.local));
        let accepted_ones: Vec<(Connection, Listener)> =
            found.iter().filter_map(|one| Some((*one, accepted_at(one)?))).collect();
        let mut accepted: BTreeMap<Listener, i64> = BTreeMap::new();
        for (_, listener) in &accepted_ones {
            *accepted.entry(*listener).or_default() += 1;
        }
        // If there are more connections than the limit, one that is missing in the sample may still be open.
        if found.len() < MAX_SAMPLED {
            let inodes: Vec<(u64, Listener)> =
                accepted_ones.iter().map(|(connection, listener)| (connection.inode, *listener)).collect();
            self.connections.lifetimes.update(&inodes, self.seen);
        } else {
            self.connections.lifetimes.open = None;
        }
        let waiting = self.connections.waiting(&accepted_ones);
        // On silent connections, requests of the VM may wait for a response.
        let is_silent = |one: &&Connection| one.silent_ms.is_some_and(|ms| ms >= SILENT_PEER_MS);
        let not_accepted = unread
            .iter()
            .chain(found.iter().filter(is_silent))
            .filter(|connection| accepted_at(connection).is_none());
        let inodes: Vec<u64> = not_accepted.take(MAX_LOOKUPS).map(|connection| connection.inode).collect();
        self.connections.sockets.learn(&self.tree, pid, &inodes)?;
        let made = found.iter().filter(|one| accepted_at(one).is_none());
        let made = made.filter(|one| self.connections.sockets.is_own(one.inode));
        let made: Vec<(Connection, Listener)> = made.map(|one| (*one, canonical(one.peer))).collect();
        let named = |connection: Connection| {
            let (local, peer) = (canonical(connection.local), canonical(connection.peer));
            let (group, end) = match accepted_at(&connection) {
                Some(listener) => (entity(listener), peer),
                None if self.connections.sockets.is_own(connection.inode) => {
                    (format!("to {}", entity(peer)), local)
                }
                None => return None,
            };
            Some((group, end, connection))
        };
        let mut groups: BTreeMap<String, i64> = BTreeMap::new();
        let mut own = Vec::new();
        for (group, end, connection) in unread.into_iter().filter_map(named) {
            *groups.entry(group.clone()).or_default() += 1;
            own.push((format!("{group},{}", entity(end)), connection));
        }
        // Groups that had unread connections before get a value of 0.
        for group in &self.connections.groups {
            groups.entry(group.clone()).or_default();
        }
        for (listener, count) in accepted {
            let group = entity(listener);
            groups.entry(group.clone()).or_default();
            if found.len() < MAX_SAMPLED && self.connections.is_recorded(&group) {
                out.metric(&metrics::TCP_CONNECTIONS, &group, count);
            }
        }
        for (listener, count) in silent(&accepted_ones, SILENT_MS) {
            let group = entity(listener);
            if self.connections.is_recorded(&group) {
                out.metric(&metrics::TCP_SILENT, &group, count);
            }
        }
        for (peer, count) in silent(&made, SILENT_PEER_MS) {
            let group = format!("to {}", entity(peer));
            if self.connections.is_recorded(&group) {
                out.metric(&metrics::TCP_SILENT, &group, count);
            }
        }
        for (listener, bytes) in waiting {
            let group = entity(listener);
            if self.connections.is_recorded(&group) {
                out.metric(&metrics::TCP_WAITING, &group, bytes);
            }
        }
        for (group, count) in groups {
            if self.connections.is_recorded(&group) {
                out.metric(&metrics::TCP_UNREAD, &group, count);
            }
        }
        if found.len() < MAX_SAMPLED {
            self.record_lifetimes(out);
        }
        let followed = self.connections.follow(&own);
        let ids: Vec<_> = followed.iter().filter_map(|(_, c)| Some((c.local.address, c.id?))).collect();
        let received = if ids.is_empty() { Vec::new() } else { self.tree.bytes_received(pid, &ids)? };
        for (name, connection) in &followed {
            out.metric(&metrics::TCP_UNREAD_BYTES, name, connection.unread_bytes);
        }
        for ((name, _), bytes) in followed.iter().filter(|(_, c)| c.id.is_some()).zip(received) {
            some(out, &metrics::TCP_RECEIVED, name, bytes);
        }
        Ok(())
    }
}

/// Counts the connections that have received nothing for at least `min_ms`, by listening socket or peer. Empty if this time was not
/// queried.
fn silent(found: &[(Connection, Listener)], min_ms: u32) -> BTreeMap<Listener, i64> {
    let mut silent = BTreeMap::new();
    for (connection, address) in found {
        if let Some(ms) = connection.silent_ms {
            *silent.entry(*address).or_default() += i64::from(ms >= min_ms);
        }
    }
    silent
}

/// Converts IPv4-mapped IPv6 addresses, which IPv4 connections have on a dual-stack socket, to IPv4 addresses.
fn canonical(Listener { address, port }: Listener) -> Listener {
    Listener { address: IpAddr::to_canonical(&address), port }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(inode: u64, unread_bytes: i64) -> Connection {
        let at = |port| Listener { address: "10.0.0.1".parse().unwrap(), port };
        Connection { local: at(80), peer: at(40_000), unread_bytes, inode, id: None, silent_ms: None }
    }

    #[test]
    fn silent_connections_are_counted_by_listening_socket() {
        let at = |port| Listener { address: "10.0.0.1".parse().unwrap(), port };
        let one = |silent_ms| Connection { silent_ms, ..connection(7, 0) };
        let found = [(one(Some(29_999)), at(80)), (one(Some(30_000)), at(80)), (one(Some(5)), at(81))];
        assert_eq!(silent(&found, SILENT_MS), BTreeMap::from([(at(80), 1), (at(81), 0)]));
        // The time was not queried.
        assert_eq!(silent(&[(one(None), at(80))], SILENT_MS), BTreeMap::new());
    }

    fn inodes(found: &[Connection]) -> Vec<u64> {
        found.iter().map(|connection| connection.inode).collect()
    }

    #[test]
    fn a_connection_with_unread_bytes_in_two_samples_is_unread() {
        let mut watch = ConnectionWatch::default();
        let first = [connection(1, 9_000), connection(2, 9_000), connection(3, 100)];
        assert_eq!(watch.unread(&first), []);
        let second = [connection(1, 8_000), connection(2, 10), connection(3, 9_000), connection(4, 9_000)];
        assert_eq!(inodes(&watch.unread(&second)), [1]);
        assert_eq!(inodes(&watch.unread(&second)), [3, 4, 1]);
        assert_eq!(watch.unread(&[]), []);
    }

    #[test]
    fn only_bytes_in_changing_queues_are_summed() {
        let mut watch = ConnectionWatch::default();
        let mut wait = |found: &[Connection]| {
            let found: Vec<(Connection, ())> = found.iter().map(|one| (*one, ())).collect();
            watch.waiting(&found).remove(&())
        };
        assert_eq!(wait(&[connection(1, 500), connection(2, 300)]), Some(800));
        assert_eq!(wait(&[connection(1, 500), connection(2, 200), connection(3, 40)]), Some(240));
        assert_eq!(wait(&[connection(1, 0), connection(2, 200)]), Some(0));
        assert_eq!(wait(&[]), None);
    }

    #[test]
    fn lifetimes_are_counted_from_the_first_sample_with_a_connection() {
        let mut lifetimes = Lifetimes::default();
        let at = |port| Listener { address: "0.0.0.0".parse().unwrap(), port };
        let samples: [&[u64]; 6] = [&[1], &[1, 2], &[1, 2, 3], &[1, 2, 3, 4], &[3], &[]];
        for (second, sample) in samples.iter().enumerate() {
            let found: Vec<(u64, Listener)> = sample.iter().map(|inode| (*inode, at(80))).collect();
            lifetimes.update(&found, second as Nanos * SECOND_NS);
        }
        assert_eq!(lifetimes.begun, BTreeMap::from([(at(80), 3)]), "the first one existed before");
        let lived: Vec<(i64, i64)> =
            lifetimes.lived.iter().map(|((_, seconds), count)| (*seconds, *count)).collect();
        assert_eq!(lived, [(1, 1), (3, 2)]);
    }

    #[test]
    fn tracked_connections_remain_tracked_up_to_a_limit() {
        let mut watch = ConnectionWatch::default();
        let named = |range: std::ops::Range<u64>| -> Vec<(String, Connection)> {
            range.map(|inode| (inode.to_string(), connection(inode, 9_000))).collect()
        };
        assert_eq!(watch.follow(&named(0..20)).len(), MAX_FOLLOWED_AT_ONCE);
        let mut next: Vec<String> = watch.follow(&named(5..30)).into_iter().map(|(name, _)| name).collect();
        next.sort();
        assert_eq!(
            next,
            ["10", "11", "12", "5", "6", "7", "8", "9"].map(str::to_owned),
            "5, 6 and 7 remain of the first eight"
        );
        let all: usize = (1..20).map(|round| watch.follow(&named(round * 100..round * 100 + 9)).len()).sum();
        assert_eq!(all, MAX_FOLLOWED - 13, "the limit for one incarnation");
    }
}
