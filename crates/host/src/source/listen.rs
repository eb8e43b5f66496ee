//! The accept queues of the VM's listening TCP sockets: connections that the kernel has established and the VM has not accepted yet.
//!
//! This is cheap for any number of connections: only listening sockets are requested, and the VM's descriptors are read only when a new
//! socket appears. If netlink is not available, the beginning of the kernel's tables is read, which contains the listening sockets
//! ([`crate::sockets`]). This can take long on a large host without connections, because the kernel searches the whole table; it is then
//! done less often.

use std::collections::BTreeMap;
use std::net::IpAddr;

use beamtune_model::{Clock, Metric, SampleBuilder, metrics};

use crate::distribution::Listener;
use crate::error::HostError;
use crate::process::SMALL_FILE_BYTES;
use crate::sockets::{self, Socket};
use crate::text::{self, Garble};
use crate::tree::FileTree;

use super::{HostSource, some};

/// Counters of the network namespace: metric, file, prefix of the line, and name.
const COUNTERS: [(&Metric, &str, &str, &str); 3] = [
    (&metrics::LISTEN_OVERFLOWS, "netstat", "TcpExt:", "ListenOverflows"),
    (&metrics::LISTEN_DROPS, "netstat", "TcpExt:", "ListenDrops"),
    (&metrics::PASSIVE_OPENS, "snmp", "Tcp:", "PassiveOpens"),
];

impl<T: FileTree> HostSource<T> {
    /// Samples the accept queues.
    pub(super) fn read_listeners(&mut self, detail: bool, clock: &dyn Clock, out: &mut SampleBuilder<'_>) {
        self.sample_sockets(
            "host.listen",
            |source| &mut source.listen,
            |source, out| source.read_queues(out),
            detail,
            clock,
            out,
        );
    }

    fn read_queues(&mut self, out: &mut SampleBuilder<'_>) -> Result<(), HostError> {
        let pid = self.pid();
        let sockets = self.find_listening(pid)?;
        let inodes: Vec<u64> = sockets.iter().map(|socket| socket.inode).collect();
        self.listen.learn(&self.tree, pid, &inodes)?;
        let mut longest: BTreeMap<Listener, &Socket> = BTreeMap::new();
        for socket in &sockets {
            if self.listen.is_recorded(socket.inode, socket.listener) {
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
        let others = sockets.iter().filter(|socket| !self.listen.is_own(socket.inode));
        let others_limit = others.filter_map(|socket| socket.limit).min();
        some(out, &metrics::ACCEPT_QUEUE_OTHERS_LIMIT, "", others_limit);
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
        sockets::listening_in_namespace(&self.tree, pid)
    }
}

pub(super) fn entity(Listener { address, port }: Listener) -> String {
    match address {
        IpAddr::V4(address) => format!("{address}:{port}"),
        IpAddr::V6(address) => format!("[{address}]:{port}"),
    }
}

/// Parses a number in `/proc/net/netstat` or `snmp`, in which a line of names precedes a line of values.
pub(super) fn counter(content: &[u8], line: &str, name: &str) -> Result<i64, Garble> {
    let mut lines = text::lines(content).filter_map(|found| found.strip_prefix(line.as_bytes()));
    let mut value = || {
        let place = text::fields(lines.next()?).position(|found| found == name.as_bytes())?;
        text::reading(text::fields(lines.next()?).nth(place)?)
    };
    value().ok_or_else(|| Garble::new("network counters, names and values on two lines", content))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_counter_is_found_by_its_name() {
        let content = b"TcpExt: SyncookiesSent ListenOverflows ListenDrops\nTcpExt: 0 34 35\nIpExt: InOctets\nIpExt: 7\n";
        let read = |line, name| counter(content, line, name).ok();
        assert_eq!(read("TcpExt:", "ListenOverflows"), Some(34));
        assert_eq!(read("IpExt:", "InOctets"), Some(7));
        assert_eq!(read("TcpExt:", "InOctets"), None);
        assert_eq!(counter(b"Tcp: PassiveOpens\nTcp: -1\n", "Tcp:", "PassiveOpens").ok(), None);
        assert_eq!(counter(b"Tcp: PassiveOpens\n", "Tcp:", "PassiveOpens").ok(), None);
    }

    #[test]
    fn addresses_are_formatted_as_by_ss() {
        let write = |address: &str, port| entity(Listener { address: address.parse().unwrap(), port });
        assert_eq!(write("0.0.0.0", 5_672), "0.0.0.0:5672");
        assert_eq!(write("::1", 80), "[::1]:80");
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(content in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = counter(&content, "Tcp:", "PassiveOpens");
        }
    }
}
