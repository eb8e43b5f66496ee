//! The accept queues of the VM's listening TCP sockets: connections that the kernel has taken and the VM has not.
//!
//! Cheap whatever the number of connections: only listening sockets are asked for, and which of them are the VM's is found
//! out only when one has appeared. Where the kernel does not answer, the beginning of its tables is read, where listening
//! sockets stand ([`crate::sockets`]). Where that takes long (a table of a large machine without connections is looked
//! through to its end), it is done seldom.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use beamtune_model::{Clock, Metric, Nanos, SampleBuilder, metrics};

use crate::distribution::Listener;
use crate::error::HostError;
use crate::process::SMALL_FILE_BYTES;
use crate::sockets::{self, Socket};
use crate::text::{self, Garble};
use crate::tree::FileTree;

use super::{HostSource, of_another_host, some};

/// After a look nothing is looked at for so many times as long: half a percent of a core.
pub(super) const REST: i64 = 200;
/// Descriptors that are looked at where a listening socket has appeared, some 50 ms of them: one that is opened late has a high
/// number.
pub(super) const MAX_DESCRIPTORS: usize = 20_000;
/// So many addresses are recorded of a life: a program may open and close listening sockets all the time.
pub(super) const MOST_ADDRESSES: usize = 200;

/// Counters of the network namespace: metric, file, line and name.
const COUNTERS: [(&Metric, &str, &str, &str); 3] = [
    (&metrics::LISTEN_OVERFLOWS, "netstat", "TcpExt:", "ListenOverflows"),
    (&metrics::LISTEN_DROPS, "netstat", "TcpExt:", "ListenDrops"),
    (&metrics::PASSIVE_OPENS, "snmp", "Tcp:", "PassiveOpens"),
];

/// What is known of the listening sockets from earlier looks.
#[derive(Debug, Default)]
pub(super) struct ListenWatch {
    /// Of each that has been seen, by its inode, whether it is the VM's.
    is_own: HashMap<u64, bool>,
    /// Those that are recorded.
    addresses: BTreeSet<Listener>,
    rest_until: Nanos,
}

impl<T: FileTree> HostSource<T> {
    /// Looks at the queues.
    pub(super) fn read_listeners(&mut self, detail: bool, clock: &dyn Clock, out: &mut SampleBuilder<'_>) {
        if !self.is_here {
            if detail {
                self.gaps.note("host.listen", Some(of_another_host()));
            }
            return;
        }
        if clock.now() < self.listen.rest_until {
            return;
        }
        let begin = clock.cpu();
        let read = self.read_queues(out);
        let took = clock.cpu().saturating_sub(begin);
        self.listen.rest_until = clock.now().saturating_add(took.saturating_mul(REST));
        self.note("host.listen", read);
    }

    fn read_queues(&mut self, out: &mut SampleBuilder<'_>) -> Result<(), HostError> {
        let pid = self.pid();
        let sockets = self.find_listening(pid)?;
        if sockets.iter().any(|socket| !self.listen.is_own.contains_key(&socket.inode)) {
            let held = sockets::held(&self.tree, pid, MAX_DESCRIPTORS)?;
            let is_own = |socket: &Socket| (socket.inode, held.contains(&socket.inode));
            self.listen.is_own = sockets.iter().map(is_own).collect();
        }
        let mut longest: BTreeMap<Listener, &Socket> = BTreeMap::new();
        for socket in &sockets {
            if self.listen.is_own.get(&socket.inode) == Some(&true) && self.listen.is_recorded(socket) {
                let entry = longest.entry(socket.listener).or_insert(socket);
                if socket.waiting > entry.waiting {
                    *entry = socket;
                }
            }
        }
        for (listener, socket) in longest {
            let entity = entity(listener);
            out.metric(&metrics::ACCEPT_QUEUE, &entity, socket.waiting);
            some(out, &metrics::ACCEPT_QUEUE_LIMIT, &entity, socket.limit);
        }
        some(out, &metrics::LISTENING_SOCKETS, "", i64::try_from(sockets.len()).ok());
        for (metric, file, line, name) in COUNTERS {
            let path = format!("/proc/{pid}/net/{file}");
            self.tree.read_start(&path, SMALL_FILE_BYTES, &mut self.content)?;
            let value =
                counter(&self.content, line, name).map_err(|garble| HostError::garbled(&path, garble))?;
            out.metric(metric, "", value);
        }
        Ok(())
    }

    fn find_listening(&mut self, pid: u32) -> Result<Vec<Socket>, HostError> {
        match self.tree.listening(pid) {
            Some(Ok(sockets)) => {
                self.note("host.listen_limits", Ok(()));
                return Ok(sockets);
            }
            Some(Err(error)) => self.note("host.listen_limits", Err(error)),
            None => {}
        }
        sockets::of_namespace(&self.tree, pid)
    }
}

impl ListenWatch {
    fn is_recorded(&mut self, socket: &Socket) -> bool {
        if self.addresses.len() < MOST_ADDRESSES {
            self.addresses.insert(socket.listener);
        }
        self.addresses.contains(&socket.listener)
    }
}

pub(super) fn entity(Listener { address, port }: Listener) -> String {
    match address {
        IpAddr::V4(address) => format!("{address}:{port}"),
        IpAddr::V6(address) => format!("[{address}]:{port}"),
    }
}

/// A number of `/proc/net/netstat` or `snmp`, where a line with names stands before one with values.
pub(super) fn counter(content: &[u8], line: &str, name: &str) -> Result<i64, Garble> {
    let mut lines = text::lines(content).filter_map(|found| found.strip_prefix(line.as_bytes()));
    let mut value = || {
        let place = text::fields(lines.next()?).position(|found| found == name.as_bytes())?;
        text::reading(text::fields(lines.next()?).nth(place)?)
    };
    value().ok_or_else(|| Garble::new("counters of the network, names and values on two lines", content))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_counter_stands_below_its_name() {
        let content = b"TcpExt: SyncookiesSent ListenOverflows ListenDrops\nTcpExt: 0 34 35\nIpExt: InOctets\nIpExt: 7\n";
        let read = |line, name| counter(content, line, name).ok();
        assert_eq!(read("TcpExt:", "ListenOverflows"), Some(34));
        assert_eq!(read("IpExt:", "InOctets"), Some(7));
        assert_eq!(read("TcpExt:", "InOctets"), None);
        assert_eq!(counter(b"Tcp: PassiveOpens\nTcp: -1\n", "Tcp:", "PassiveOpens").ok(), None);
        assert_eq!(counter(b"Tcp: PassiveOpens\n", "Tcp:", "PassiveOpens").ok(), None);
    }

    #[test]
    fn an_address_is_written_as_ss_does() {
        let write = |address: &str, port| entity(Listener { address: address.parse().unwrap(), port });
        assert_eq!(write("0.0.0.0", 5_672), "0.0.0.0:5672");
        assert_eq!(write("::1", 80), "[::1]:80");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(content in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = counter(&content, "Tcp:", "PassiveOpens");
        }
    }
}
