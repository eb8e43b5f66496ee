//! The VM's TCP connections that nobody reads: bytes that have come stay in the kernel's receive queue.
//!
//! Each second 2,048 connections of the network namespace at most are looked at; of more the kernel tells the same ones each time. One counts
//! as unread that has a page of bytes in this look and in the one before: less may be a TLS ticket that came for an idle connection.
//! Some of these are followed, with what they receive, from which it follows how fast they are read.

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

/// Connections that are looked at: some 4 ms, measured beside 9,000.
const MAX_LOOKED_AT: usize = 2_048;
/// Bytes from which on a connection may count as unread (judgement): TLS tickets and the end of a connection are less.
const WORTH_BYTES: i64 = 4_096;
/// A connection that has received nothing for so long may have no peer any more (judgement: most heartbeats and time-outs are 30 s or less).
const SILENT_MS: u32 = 30_000;
/// The same of one that the VM has made, on which it may wait for an answer (judgement: most answers come within a second).
const SILENT_PEER_MS: u32 = 10_000;
/// Of connections that the VM may have made itself, so many are looked up among its descriptors.
const MAX_LOOKED_UP: usize = 64;
/// Connections that are followed at a time, and of a life.
const FOLLOWED: usize = 8;
const MAX_FOLLOWED: usize = 64;
/// Sockets in TIME_WAIT that are read of each address family: some 10 ms, and as many as 170 connections a second leave in their 60 s.
const MAX_CLOSED: usize = 10_000;
/// How often these are read: each stays for a minute.
const CLOSED_EVERY_NS: i64 = 5 * SECOND_NS;
/// Connections that were closed in this time are counted.
const CLOSED_WITHIN_MS: u32 = 10_000;
/// Lives of this many seconds are told apart, and so many pairs of listening socket and life are recorded.
const MAX_LIVED_SECONDS: i64 = 60;
const MAX_LIVES: usize = 300;
/// Listening sockets and peers that are recorded of a life.
const MAX_GROUPS: usize = 100;

/// What is known of connections from earlier looks.
#[derive(Debug, Default)]
pub(super) struct ConnectionWatch {
    pub(super) sockets: OwnSockets,
    /// Those with many unread bytes in the last look, by their inodes.
    before: HashSet<u64>,
    /// What was in the receive queues that were not empty in the last look, by inodes.
    queues: HashMap<u64, i64>,
    /// Those that are followed, and what they are recorded as.
    followed: HashMap<u64, String>,
    followed_so_far: usize,
    groups: BTreeSet<String>,
    /// When sockets in TIME_WAIT are read.
    pub(super) closed: OwnSockets,
    closed_at: Option<Nanos>,
    lives: Lives,
}

/// When accepted connections began and how long they lived, by their inodes.
#[derive(Debug, Default)]
struct Lives {
    /// The listening socket of each, and when it was first seen, unless it was there before.
    open: Option<HashMap<u64, (Listener, Option<Nanos>)>>,
    begun: BTreeMap<Listener, i64>,
    /// By whole seconds.
    lived: BTreeMap<(Listener, i64), i64>,
}

impl Lives {
    /// Compares the accepted connections of this look with those of the one before.
    fn learn(&mut self, found: &[(u64, Listener)], now: Nanos) {
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
            let key = (listener, seconds.min(MAX_LIVED_SECONDS));
            if self.lived.len() < MAX_LIVES || self.lived.contains_key(&key) {
                *self.lived.entry(key).or_default() += 1;
            }
        }
        self.open = Some(open);
    }
}

impl ConnectionWatch {
    /// Those that were unread in the last look, too, the ones with most bytes first; and keeps who is in this one.
    fn unread(&mut self, found: &[Connection]) -> Vec<Connection> {
        let now = || found.iter().filter(|connection| connection.unread_bytes >= WORTH_BYTES);
        let mut unread: Vec<Connection> =
            now().filter(|connection| self.before.contains(&connection.inode)).copied().collect();
        unread.sort_by_key(|connection| (-connection.unread_bytes, connection.inode));
        self.before = now().map(|connection| connection.inode).collect();
        unread
    }

    /// Bytes that wait, of connections whose queue has changed since the last look, by what they belong to; and keeps what there is in this one.
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

    /// Which of these are followed: those that were, and others where there is room. Each with what it is called.
    fn follow(&mut self, unread: &[(String, Connection)]) -> Vec<(String, Connection)> {
        let inodes: HashSet<u64> = unread.iter().map(|(_, connection)| connection.inode).collect();
        self.followed.retain(|inode, _| inodes.contains(inode));
        for (name, connection) in unread {
            let has_room = self.followed.len() < FOLLOWED && self.followed_so_far < MAX_FOLLOWED;
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
    /// Looks at the connections.
    pub(super) fn read_connections(&mut self, detail: bool, clock: &dyn Clock, out: &mut SampleBuilder<'_>) {
        let read: fn(&mut Self, &mut SampleBuilder<'_>) -> Result<(), HostError> = match detail {
            true => |source, out| source.read_tcp(true, out),
            false => |source, out| source.read_tcp(false, out),
        };
        self.look_at_sockets("host.tcp", |source| &mut source.connections.sockets, read, detail, clock, out);
    }

    /// Counts the connections that the VM has closed first.
    pub(super) fn read_closed(&mut self, detail: bool, clock: &dyn Clock, out: &mut SampleBuilder<'_>) {
        if self.connections.closed_at.is_some_and(|at| self.seen.saturating_sub(at) < CLOSED_EVERY_NS) {
            return;
        }
        self.look_at_sockets(
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

    fn record_lives(&mut self, out: &mut SampleBuilder<'_>) {
        let watch = &mut self.connections;
        // Those where nobody has connected, too: they are recorded.
        for listener in self.listen.addresses() {
            let count = watch.lives.begun.get(&listener).copied().unwrap_or_default();
            let group = entity(listener);
            if watch.is_recorded(&group) {
                out.metric(&metrics::TCP_BEGUN, &group, count);
            }
        }
        for ((listener, seconds), count) in &watch.lives.lived {
            out.metric(&metrics::TCP_LIVED, &format!("{},{seconds}", entity(*listener)), *count);
        }
    }

    fn read_tcp(&mut self, detail: bool, out: &mut SampleBuilder<'_>) -> Result<(), HostError> {
        let pid = self.pid();
        let found = match self.tree.connections(pid, MAX_LOOKED_AT, detail) {
            Some(Ok(found)) => found,
            // Where the kernel does not answer, the beginning of its tables is read: how fast they are read is not known then.
            Some(Err(_)) | None => sockets::connections_of_namespace(&self.tree, pid)?,
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
        // Of more, one that is not found may be there.
        if found.len() < MAX_LOOKED_AT {
            let inodes: Vec<(u64, Listener)> =
                accepted_ones.iter().map(|(connection, listener)| (connection.inode, *listener)).collect();
            self.connections.lives.learn(&inodes, self.seen);
        } else {
            self.connections.lives.open = None;
        }
        let waiting = self.connections.waiting(&accepted_ones);
        // Of those that are silent the VM's own requests may wait for an answer.
        let is_silent = |one: &&Connection| one.silent_ms.is_some_and(|ms| ms >= SILENT_PEER_MS);
        let made_by_somebody = unread
            .iter()
            .chain(found.iter().filter(is_silent))
            .filter(|connection| accepted_at(connection).is_none());
        let inodes: Vec<u64> =
            made_by_somebody.take(MAX_LOOKED_UP).map(|connection| connection.inode).collect();
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
        // What had some is told of when it has none any more.
        for group in &self.connections.groups {
            groups.entry(group.clone()).or_default();
        }
        for (listener, count) in accepted {
            let group = entity(listener);
            groups.entry(group.clone()).or_default();
            if found.len() < MAX_LOOKED_AT && self.connections.is_recorded(&group) {
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
        if found.len() < MAX_LOOKED_AT {
            self.record_lives(out);
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

/// How many connections of each listening socket, or to each peer, have received nothing for so long; none where the kernel was not asked.
fn silent(found: &[(Connection, Listener)], least_ms: u32) -> BTreeMap<Listener, i64> {
    let mut silent = BTreeMap::new();
    for (connection, address) in found {
        if let Some(ms) = connection.silent_ms {
            *silent.entry(*address).or_default() += i64::from(ms >= least_ms);
        }
    }
    silent
}

/// A connection over IPv4 of a socket for both has an IPv6 address that says so.
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
    fn connections_that_receive_nothing_for_long_are_counted_by_listening_socket() {
        let at = |port| Listener { address: "10.0.0.1".parse().unwrap(), port };
        let one = |silent_ms| Connection { silent_ms, ..connection(7, 0) };
        let found = [(one(Some(29_999)), at(80)), (one(Some(30_000)), at(80)), (one(Some(5)), at(81))];
        assert_eq!(silent(&found, SILENT_MS), BTreeMap::from([(at(80), 1), (at(81), 0)]));
        // The kernel was not asked.
        assert_eq!(silent(&[(one(None), at(80))], SILENT_MS), BTreeMap::new());
    }

    fn inodes(found: &[Connection]) -> Vec<u64> {
        found.iter().map(|connection| connection.inode).collect()
    }

    #[test]
    fn a_connection_is_unread_that_has_bytes_in_two_looks() {
        let mut watch = ConnectionWatch::default();
        let first = [connection(1, 9_000), connection(2, 9_000), connection(3, 100)];
        assert_eq!(watch.unread(&first), []);
        let second = [connection(1, 8_000), connection(2, 10), connection(3, 9_000), connection(4, 9_000)];
        assert_eq!(inodes(&watch.unread(&second)), [1]);
        assert_eq!(inodes(&watch.unread(&second)), [3, 4, 1]);
        assert_eq!(watch.unread(&[]), []);
    }

    #[test]
    fn bytes_wait_only_in_queues_that_change() {
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
    fn lives_are_counted_from_the_first_look_that_finds_a_connection() {
        let mut lives = Lives::default();
        let at = |port| Listener { address: "0.0.0.0".parse().unwrap(), port };
        let looks: [&[u64]; 6] = [&[1], &[1, 2], &[1, 2, 3], &[1, 2, 3, 4], &[3], &[]];
        for (second, look) in looks.iter().enumerate() {
            let found: Vec<(u64, Listener)> = look.iter().map(|inode| (*inode, at(80))).collect();
            lives.learn(&found, second as Nanos * SECOND_NS);
        }
        assert_eq!(lives.begun, BTreeMap::from([(at(80), 3)]), "the first one was there before");
        let lived: Vec<(i64, i64)> = lives.lived.iter().map(|((_, life), count)| (*life, *count)).collect();
        assert_eq!(lived, [(1, 1), (3, 2)]);
    }

    #[test]
    fn those_that_are_followed_stay_so_and_are_bounded() {
        let mut watch = ConnectionWatch::default();
        let named = |range: std::ops::Range<u64>| -> Vec<(String, Connection)> {
            range.map(|inode| (inode.to_string(), connection(inode, 9_000))).collect()
        };
        assert_eq!(watch.follow(&named(0..20)).len(), FOLLOWED);
        let mut next: Vec<String> = watch.follow(&named(5..30)).into_iter().map(|(name, _)| name).collect();
        next.sort();
        assert_eq!(next, ["10", "11", "12", "5", "6", "7", "8", "9"].map(str::to_owned), "three stay");
        let all: usize = (1..20).map(|round| watch.follow(&named(round * 100..round * 100 + 9)).len()).sum();
        assert_eq!(all, MAX_FOLLOWED - 13, "no more of a life");
    }
}
