//! The VM's TCP connections that nobody reads: bytes that have come stay in the kernel's receive queue.
//!
//! Each second 2,048 connections of the network namespace at most are looked at; of more the kernel tells the same ones each time. One counts
//! as unread that has a page of bytes in this look and in the one before: less may be a TLS ticket that came for an idle connection.
//! Some of these are followed, with what they receive, from which it follows how fast they are read.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;

use beamtune_model::{Clock, SampleBuilder, metrics};

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
/// Of connections that the VM may have made itself, so many are looked up among its descriptors.
const MAX_LOOKED_UP: usize = 64;
/// Connections that are followed at a time, and of a life.
const FOLLOWED: usize = 8;
const MAX_FOLLOWED: usize = 64;
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
    fn waiting<K: Ord>(
        &mut self,
        found: &[Connection],
        group: impl Fn(&Connection) -> Option<K>,
    ) -> BTreeMap<K, i64> {
        let mut waiting: BTreeMap<K, i64> = BTreeMap::new();
        for connection in found {
            let has_changed =
                self.queues.get(&connection.inode).is_none_or(|bytes| *bytes != connection.unread_bytes);
            if let Some(group) = group(connection) {
                *waiting.entry(group).or_default() += if has_changed { connection.unread_bytes } else { 0 };
            }
        }
        let filled = found.iter().filter(|connection| connection.unread_bytes > 0);
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
        self.look_at_sockets(
            "host.tcp",
            |source| &mut source.connections.sockets,
            |source, out| source.read_tcp(out),
            detail,
            clock,
            out,
        );
    }

    fn read_tcp(&mut self, out: &mut SampleBuilder<'_>) -> Result<(), HostError> {
        let pid = self.pid();
        let found = match self.tree.connections(pid, MAX_LOOKED_AT) {
            Some(Ok(found)) => found,
            // Where the kernel does not answer, the beginning of its tables is read: how fast they are read is not known then.
            Some(Err(_)) | None => sockets::connections_of_namespace(&self.tree, pid)?,
        };
        some(out, &metrics::TCP_LOOKED_AT, "", i64::try_from(found.len()).ok());
        let unread = self.connections.unread(&found);
        let accepted_at = |connection: &Connection| self.listen.listener(canonical(connection.local));
        let mut accepted: BTreeMap<Listener, i64> = BTreeMap::new();
        for listener in found.iter().filter_map(accepted_at) {
            *accepted.entry(listener).or_default() += 1;
        }
        let waiting =
            self.connections.waiting(&found, |connection| self.listen.listener(canonical(connection.local)));
        let made_by_somebody = unread.iter().filter(|connection| accepted_at(connection).is_none());
        let inodes: Vec<u64> =
            made_by_somebody.take(MAX_LOOKED_UP).map(|connection| connection.inode).collect();
        self.connections.sockets.learn(&self.tree, pid, &inodes)?;
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

/// A connection over IPv4 of a socket for both has an IPv6 address that says so.
fn canonical(Listener { address, port }: Listener) -> Listener {
    Listener { address: IpAddr::to_canonical(&address), port }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(inode: u64, unread_bytes: i64) -> Connection {
        let at = |port| Listener { address: "10.0.0.1".parse().unwrap(), port };
        Connection { local: at(80), peer: at(40_000), unread_bytes, inode, id: None }
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
        let mut wait = |found: &[Connection]| watch.waiting(found, |_| Some(())).remove(&());
        assert_eq!(wait(&[connection(1, 500), connection(2, 300)]), Some(800));
        assert_eq!(wait(&[connection(1, 500), connection(2, 200), connection(3, 40)]), Some(240));
        assert_eq!(wait(&[connection(1, 0), connection(2, 200)]), Some(0));
        assert_eq!(wait(&[]), None);
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
