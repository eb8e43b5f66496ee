//! Mounts an emulator over that of an installation. The mount is visible only to this process and its children.
//!
//! It is a bind mount in a private mount namespace (mount_namespaces(7)). The installation's file stays unchanged, and no process
//! outside of the namespace sees the mount, which ends with the last process in the namespace. Start scripts need no change.
//! Nodes that are started by a node in the namespace use the emulator, too.

use std::fs;
use std::io;
use std::path::Path;

use rustix::mount::{MountPropagationFlags, mount_bind, mount_change};
use rustix::process::{getegid, geteuid};
use rustix::thread::UnshareFlags;

use crate::error::Error;

/// Outcome of [`put_over`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MountOutcome {
    /// The emulator is mounted.
    InPlace,
    /// The emulator is mounted, but in a user namespace: other users' files are not accessible, and the user cannot be changed.
    InUserNamespace,
    /// The kernel does not allow it. Nothing was mounted.
    NotAllowed,
}

/// Mounts `emulator` over `over`. The process must have no other thread, and must exec the command next.
///
/// # Errors
/// If the namespace was created, but the mount failed.
pub fn mount_over(emulator: &Path, over: &Path) -> Result<MountOutcome, Error> {
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    let failed = |why| Error::Mount { emulator: emulator.to_owned(), over: over.to_owned(), why };
    let mounted = match unshare(UnshareFlags::NEWNS) {
        Ok(()) => MountOutcome::InPlace,
        Err(_) => match unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNS) {
            Ok(()) => {
                map_ids(uid, gid).map_err(failed)?;
                MountOutcome::InUserNamespace
            }
            Err(_) => return Ok(MountOutcome::NotAllowed),
        },
    };
    // With shared mounts, systemd's default, all processes would see our mount. In a chroot, this cannot be changed, since its
    // root is not a mount point. So far, nothing but our own namespace has changed.
    if mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).is_err() {
        return Ok(MountOutcome::NotAllowed);
    }
    mount_bind(emulator, over).map_err(|errno| failed(errno.into()))?;
    Ok(mounted)
}

#[allow(deprecated, reason = "it is unsafe only with the flag FILES, which we do not use")]
fn unshare(flags: UnshareFlags) -> rustix::io::Result<()> {
    rustix::thread::unshare(flags)
}

/// Keeps our user and group id in the new user namespace (user_namespaces(7)).
fn map_ids(uid: u32, gid: u32) -> io::Result<()> {
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))
}
