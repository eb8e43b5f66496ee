//! The kinds of the VM's open files: sockets, pipes, files by folder. The VM itself can list only its ports.
//!
//! The kind of an open file follows from the target of its symbolic link in `/proc/PID/fd`. If there are many open files, a fixed number of
//! links is read, spread evenly over all descriptors. The kernel assigns the lowest free number, so few descriptors are unused.

use std::collections::{BTreeMap, BTreeSet};

use beamtune_model::{SampleBuilder, metrics};

use crate::error::HostError;
use crate::tree::FileTree;

use super::{HostSource, remote_host_trouble};

/// Maximum number of links that are read in a detailed sample: about 4 ms (measured: 3.6 to 3.9 µs each).
const MAX_LINKS: u64 = 1_024;
/// Descriptors above the number of open files may be in use because lower ones were closed. So an eighth of the number plus 64 are added.
const EXTRA_DIVISOR: u64 = 8;
const MIN_EXTRA: u64 = 64;
/// A kind is recorded if at least one in this many links is of this kind.
const MAX_LINKS_PER_HIT: i64 = 16;
/// Maximum number of recorded kinds per incarnation: a program may have a separate folder for each file.
const MAX_KINDS: usize = 64;
/// Maximum length of a recorded folder name, in bytes.
const MAX_NAME_BYTES: usize = 200;

/// The recorded kinds.
#[derive(Debug, Default)]
pub(super) struct OpenFilesWatch {
    kinds: BTreeSet<String>,
}

impl<T: FileTree> HostSource<T> {
    /// Samples the kinds of open files; `count` is the number of open files.
    pub(super) fn read_open_files(&mut self, count: u64, out: &mut SampleBuilder<'_>) {
        if !self.is_here {
            return self.gaps.note("host.open_files", Some(remote_host_trouble()));
        }
        let found = self.sample_links(count);
        let read = found.map(|kinds| self.report_kinds(kinds, out));
        self.note("host.open_files", read);
    }

    /// Reads a sample of the links, and counts them by kind.
    fn sample_links(&self, count: u64) -> Result<BTreeMap<String, i64>, HostError> {
        let numbers = count.saturating_add(count / EXTRA_DIVISOR).saturating_add(MIN_EXTRA);
        let links = numbers.min(MAX_LINKS);
        let mut kinds = BTreeMap::new();
        for number in (0..links).map(|nth| nth.saturating_mul(numbers) / links) {
            match self.tree.read_link(&format!("/proc/{}/fd/{number}", self.pid())) {
                Ok(target) => *kinds.entry(kind(&target)).or_default() += 1,
                // This descriptor is not in use.
                Err(HostError::Missing { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(kinds)
    }

    fn report_kinds(&mut self, kinds: BTreeMap<String, i64>, out: &mut SampleBuilder<'_>) {
        let sampled: i64 = kinds.values().sum();
        out.metric(&metrics::OPEN_FILES_SAMPLED, "", sampled);
        for (kind, count) in kinds.into_iter().filter(|(_, count)| count * MAX_LINKS_PER_HIT >= sampled) {
            if self.open_files.kinds.len() < MAX_KINDS {
                self.open_files.kinds.insert(kind.clone());
            }
            if self.open_files.kinds.contains(&kind) {
                out.metric(&metrics::OPEN_FILES_OF_KIND, &kind, count);
            }
        }
    }
}

/// Returns the kind of a link in `/proc/PID/fd`: `socket`, `pipe`, `eventpoll` and the like, a device, or the folder of a file.
fn kind(target: &str) -> String {
    let kind = match (target.strip_prefix("anon_inode:"), target.split_once(":[")) {
        (Some(name), _) => name.trim_matches(['[', ']']),
        (None, Some((kind, _))) if !target.starts_with('/') => kind,
        _ if target.starts_with("/memfd:") => "memfd",
        _ if target.starts_with("/dev/") => target,
        _ => match target.rsplit_once('/') {
            Some(("", _)) => "/",
            Some((folder, _)) => folder,
            None => "other",
        },
    };
    let end = (0..=MAX_NAME_BYTES.min(kind.len())).rev().find(|end| kind.is_char_boundary(*end)).unwrap_or(0);
    kind[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::kind;

    #[test]
    fn the_kind_of_an_open_file_follows_from_its_link() {
        let check = |target: &str, expect: &str| assert_eq!(kind(target), expect, "{target}");
        check("socket:[68140]", "socket");
        check("pipe:[12]", "pipe");
        check("anon_inode:[eventpoll]", "eventpoll");
        check("anon_inode:inotify", "inotify");
        check("/dev/null", "/dev/null");
        check("/dev/pts/3", "/dev/pts/3");
        check("/memfd:vm (deleted)", "memfd");
        check("/var/lib/shop/uploads/17.jpg", "/var/lib/shop/uploads");
        check("/var/log/old:[1].log (deleted)", "/var/log");
        check("/core", "/");
        check("strange", "other");
        check(&format!("/{}ä/file", "a".repeat(198)), &format!("/{}", "a".repeat(198)));
    }
}
