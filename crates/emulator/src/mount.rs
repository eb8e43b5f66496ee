//! Puts an emulator over that of an installation, for this process and all that it starts, and for nobody else.
//!
//! A bind mount in a mount namespace of our own (mount_namespaces(7)): the file of the installation stays as it is, and whoever is outside sees
//! no other. It ends with the last process in the namespace. Nothing of a start script has to change, and nodes that are started by a node are
//! the same.

use std::fs;
use std::io;
use std::path::Path;

use rustix::mount::{MountPropagationFlags, mount_bind, mount_change};
use rustix::process::{getegid, geteuid};
use rustix::thread::UnshareFlags;

use crate::error::Error;

/// How far it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mounted {
    /// The emulator is in its place.
    InPlace,
    /// The same, in a user namespace: other users' files and a change of user are out of reach.
    InUserNamespace,
    /// The kernel does not let us do this, and all is as it was.
    NotAllowed,
}

/// Puts `emulator` in the place of `over`. This thread must be the only one, and the next thing that it does must be to become the command.
///
/// # Errors
/// If the namespace was made, but the mount was not.
pub fn put_over(emulator: &Path, over: &Path) -> Result<Mounted, Error> {
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    let failed = |why| Error::Mount { emulator: emulator.to_owned(), over: over.to_owned(), why };
    let mounted = match unshare(UnshareFlags::NEWNS) {
        Ok(()) => Mounted::InPlace,
        Err(_) => match unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNS) {
            Ok(()) => {
                map_ids(uid, gid).map_err(failed)?;
                Mounted::InUserNamespace
            }
            Err(_) => return Ok(Mounted::NotAllowed),
        },
    };
    // Where mounts are shared, as systemd makes them, ours would be seen by all. In a chroot this cannot be changed, since its root is no
    // mount; what is only ours until then has changed nothing.
    if mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).is_err() {
        return Ok(Mounted::NotAllowed);
    }
    mount_bind(emulator, over).map_err(|errno| failed(errno.into()))?;
    Ok(mounted)
}

#[allow(deprecated, reason = "it is unsafe only with the flag FILES, which is none of ours")]
fn unshare(flags: UnshareFlags) -> rustix::io::Result<()> {
    rustix::thread::unshare(flags)
}

/// In the new namespace we are who we were (user_namespaces(7)).
fn map_ids(uid: u32, gid: u32) -> io::Result<()> {
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))
}
