//! Which of a network namespace's sockets are the VM's, and how often these are looked at.

use std::collections::{BTreeSet, HashMap};

use beamtune_model::{Clock, Nanos, SampleBuilder};

use crate::distribution::Listener;
use crate::error::HostError;
use crate::sockets;
use crate::tree::FileTree;

use super::{HostSource, of_another_host};

/// After a look nothing is looked at for this many times its duration: half a percent of a core.
const REST: i64 = 200;
/// Descriptors that are looked at where a socket has appeared, some 50 ms of them: one that is opened late has a high number.
const MAX_DESCRIPTORS: usize = 20_000;
/// Addresses that are recorded of a life: a program may open and close sockets all the time.
const MAX_ADDRESSES: usize = 200;

/// What is known of the sockets of one protocol from earlier looks.
#[derive(Debug, Default)]
pub(super) struct OwnSockets {
    /// Of each that has been seen, by its inode, whether it is the VM's.
    is_own: HashMap<u64, bool>,
    /// Those that are recorded.
    addresses: BTreeSet<Listener>,
    rest_until: Nanos,
}

impl OwnSockets {
    /// Finds out which of these are the VM's, if one of them is new.
    pub(super) fn learn(&mut self, tree: &impl FileTree, pid: u32, inodes: &[u64]) -> Result<(), HostError> {
        if inodes.iter().any(|inode| !self.is_own.contains_key(inode)) {
            let held = sockets::held(tree, pid, MAX_DESCRIPTORS)?;
            self.is_own = inodes.iter().map(|inode| (*inode, held.contains(inode))).collect();
        }
        Ok(())
    }

    /// Whether it is the VM's, as far as is known.
    pub(super) fn is_own(&self, inode: u64) -> bool {
        self.is_own.get(&inode) == Some(&true)
    }

    /// The address of the VM's own listening socket that has accepted what is connected at this address.
    pub(super) fn listener(&self, local: Listener) -> Option<Listener> {
        let of_port = || self.addresses.iter().filter(|listener| listener.port == local.port);
        let exact = of_port().find(|listener| listener.address == local.address);
        exact.or_else(|| of_port().find(|listener| listener.address.is_unspecified())).copied()
    }

    /// The addresses at which the VM listens, or has listened.
    pub(super) fn addresses(&self) -> impl Iterator<Item = Listener> {
        self.addresses.iter().copied()
    }

    /// Whether it is the VM's, and recorded.
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
    /// Reads them, unless the last look was too dear to be followed by this one.
    pub(super) fn look_at_sockets(
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
                self.gaps.note(item, Some(of_another_host()));
            }
            return;
        }
        if clock.now() < sockets(self).rest_until {
            return;
        }
        let begin = clock.cpu();
        let found = read(self, out);
        let took = clock.cpu().saturating_sub(begin);
        sockets(self).rest_until = clock.now().saturating_add(took.saturating_mul(REST));
        self.note(item, found);
    }
}
