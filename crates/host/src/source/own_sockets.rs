//! Finds the sockets of a network namespace that belong to the VM, and limits how often sockets are sampled.

use std::collections::{BTreeSet, HashMap};

use beamtune_model::{Clock, Nanos, SampleBuilder};

use crate::distribution::Listener;
use crate::error::HostError;
use crate::sockets;
use crate::tree::FileTree;

use super::{HostSource, remote_host_trouble};

/// Minimum pause after sampling, as a multiple of its CPU time: 0.5 % of a core.
const REST_FACTOR: i64 = 200;
/// Maximum number of descriptors that are searched for a new socket: about 50 ms. A socket that was opened late has a high number.
const MAX_DESCRIPTORS: usize = 20_000;
/// Maximum number of recorded addresses per incarnation: a program may open and close sockets all the time.
const MAX_ADDRESSES: usize = 200;

/// Sockets of one protocol that are known from earlier samples.
#[derive(Debug, Default)]
pub(super) struct OwnSockets {
    /// Whether each known socket belongs to the VM, by inode.
    is_own: HashMap<u64, bool>,
    /// The recorded addresses.
    addresses: BTreeSet<Listener>,
    rest_until: Nanos,
}

impl OwnSockets {
    /// Finds out which of these sockets belong to the VM, if at least one of them is new.
    pub(super) fn learn(&mut self, tree: &impl FileTree, pid: u32, inodes: &[u64]) -> Result<(), HostError> {
        if inodes.iter().any(|inode| !self.is_own.contains_key(inode)) {
            let open = sockets::open_sockets(tree, pid, MAX_DESCRIPTORS)?;
            self.is_own = inodes.iter().map(|inode| (*inode, open.contains(inode))).collect();
        }
        Ok(())
    }

    /// Whether a socket is known to belong to the VM.
    pub(super) fn is_own(&self, inode: u64) -> bool {
        self.is_own.get(&inode) == Some(&true)
    }

    /// Returns the address of the VM's listening socket that accepted a connection with this local address.
    pub(super) fn listener(&self, local: Listener) -> Option<Listener> {
        let of_port = || self.addresses.iter().filter(|listener| listener.port == local.port);
        let exact = of_port().find(|listener| listener.address == local.address);
        exact.or_else(|| of_port().find(|listener| listener.address.is_unspecified())).copied()
    }

    /// Returns the addresses on which the VM listens or has listened.
    pub(super) fn addresses(&self) -> impl Iterator<Item = Listener> {
        self.addresses.iter().copied()
    }

    /// Whether a socket belongs to the VM, and its address is recorded. New addresses are accepted up to the limit.
    pub(super) fn is_recorded(&mut self, inode: u64, listener: Listener) -> bool {
        if !self.is_own(inode) {
            return false;
        }
        if self.addresses.len() < MAX_ADDRESSES {
            self.addresses.insert(listener);
        }
        self.addresses.contains(&listener)
    }
}

impl<T: FileTree> HostSource<T> {
    /// Samples sockets, unless the pause after the last sample has not ended yet.
    pub(super) fn sample_sockets(
        &mut self,
        item: &'static str,
        sockets: fn(&mut Self) -> &mut OwnSockets,
        read: fn(&mut Self, &mut SampleBuilder<'_>) -> Result<(), HostError>,
        detail: bool,
        clock: &dyn Clock,
        out: &mut SampleBuilder<'_>,
    ) {
        if !self.is_here {
            if detail {
                self.gaps.note(item, Some(remote_host_trouble()));
            }
            return;
        }
        if clock.now() < sockets(self).rest_until {
            return;
        }
        let begin = clock.cpu();
        let found = read(self, out);
        let took = clock.cpu().saturating_sub(begin);
        sockets(self).rest_until = clock.now().saturating_add(took.saturating_mul(REST_FACTOR));
        self.note(item, found);
    }
}
