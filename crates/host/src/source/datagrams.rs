//! The VM's UDP sockets: what waits in their receive buffers, and what the kernel dropped since these were full.
//!
//! Each second the beginning of the kernel's tables is read: 400 sockets of the network namespace at most. Which of them are the VM's is
//! found out when one has appeared.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use beamtune_model::{Clock, Nanos, SampleBuilder, metrics};

use crate::distribution::Listener;
use crate::error::HostError;
use crate::process::SMALL_FILE_BYTES;
use crate::sockets::{self, UdpSocket};
use crate::tree::FileTree;

use super::listen::{MAX_DESCRIPTORS, MOST_ADDRESSES, REST, counter, entity};
use super::{HostSource, of_another_host};

/// What is known of the sockets from earlier looks.
#[derive(Debug, Default)]
pub(super) struct DatagramWatch {
    /// Of each that has been seen, by its inode, whether it is the VM's.
    is_own: HashMap<u64, bool>,
    /// Those that are recorded.
    addresses: BTreeSet<Listener>,
    rest_until: Nanos,
}

impl<T: FileTree> HostSource<T> {
    /// Looks at the sockets.
    pub(super) fn read_datagrams(&mut self, detail: bool, clock: &dyn Clock, out: &mut SampleBuilder<'_>) {
        if !self.is_here {
            if detail {
                self.gaps.note("host.udp", Some(of_another_host()));
            }
            return;
        }
        if clock.now() < self.datagrams.rest_until {
            return;
        }
        let begin = clock.cpu();
        let read = self.read_udp(out);
        let took = clock.cpu().saturating_sub(begin);
        self.datagrams.rest_until = clock.now().saturating_add(took.saturating_mul(REST));
        self.note("host.udp", read);
    }

    fn read_udp(&mut self, out: &mut SampleBuilder<'_>) -> Result<(), HostError> {
        let pid = self.pid();
        let found = sockets::udp_of_namespace(&self.tree, pid)?;
        let watch = &mut self.datagrams;
        if found.iter().any(|socket| !watch.is_own.contains_key(&socket.inode)) {
            let held = sockets::held(&self.tree, pid, MAX_DESCRIPTORS)?;
            watch.is_own = found.iter().map(|socket| (socket.inode, held.contains(&socket.inode))).collect();
        }
        let mut own: BTreeMap<Listener, (i64, i64)> = BTreeMap::new();
        for UdpSocket { listener, queue, drops, inode } in found {
            if watch.is_own.get(&inode) == Some(&true) && watch.is_recorded(listener) {
                let sums = own.entry(listener).or_default();
                *sums = (sums.0 + queue, sums.1 + drops);
            }
        }
        if own.is_empty() {
            return Ok(());
        }
        for (listener, (queue, drops)) in own {
            let entity = entity(listener);
            out.metric(&metrics::UDP_QUEUE, &entity, queue);
            out.metric(&metrics::UDP_DROPS, &entity, drops);
        }
        let path = format!("/proc/{pid}/net/snmp");
        self.tree.read_start(&path, SMALL_FILE_BYTES, &mut self.content)?;
        let received = counter(&self.content, "Udp:", "InDatagrams")
            .map_err(|garble| HostError::garbled(&path, garble))?;
        out.metric(&metrics::UDP_RECEIVED, "", received);
        Ok(())
    }
}

impl DatagramWatch {
    fn is_recorded(&mut self, listener: Listener) -> bool {
        if self.addresses.len() < MOST_ADDRESSES {
            self.addresses.insert(listener);
        }
        self.addresses.contains(&listener)
    }
}
