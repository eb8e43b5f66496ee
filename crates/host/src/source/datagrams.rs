//! The VM's UDP sockets: receive queues, and datagrams that the kernel dropped because a queue was full.
//!
//! Every second, the beginning of the kernel's tables is read: at most 400 sockets of the network namespace. The VM's descriptors are read
//! only when a new socket appears.

use std::collections::BTreeMap;

use beamtune_model::{Clock, SampleBuilder, metrics};

use crate::distribution::Listener;
use crate::error::HostError;
use crate::process::SMALL_FILE_BYTES;
use crate::sockets::{self, UdpSocket};
use crate::tree::FileTree;

use super::HostSource;
use super::listen::{counter, entity};

impl<T: FileTree> HostSource<T> {
    /// Samples the UDP sockets.
    pub(super) fn read_datagrams(&mut self, detail: bool, clock: &dyn Clock, out: &mut SampleBuilder<'_>) {
        self.sample_sockets(
            "host.udp",
            |source| &mut source.datagrams,
            |source, out| source.read_udp(out),
            detail,
            clock,
            out,
        );
    }

    fn read_udp(&mut self, out: &mut SampleBuilder<'_>) -> Result<(), HostError> {
        let pid = self.pid();
        let found = sockets::udp_in_namespace(&self.tree, pid)?;
        let inodes: Vec<u64> = found.iter().map(|socket| socket.inode).collect();
        self.datagrams.learn(&self.tree, pid, &inodes)?;
        let mut own: BTreeMap<Listener, (i64, i64)> = BTreeMap::new();
        for UdpSocket { listener, queue, drops, inode } in found {
            if self.datagrams.is_recorded(inode, listener) {
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
