//! What the VM's open files are: sockets, pipes, files by their folder. The VM itself knows only those that are ports.
//!
//! Each is a link to be read. With many open files so many of them are looked at that the cost stays the same, evenly over all numbers: the
//! kernel hands out the lowest number that is free, so there are few gaps.

use std::collections::{BTreeMap, BTreeSet};

use beamtune_model::{SampleBuilder, metrics};

use crate::error::HostError;
use crate::tree::FileTree;

use super::{HostSource, of_another_host};

/// Links that are read in a closer look, in some 4 ms (measured: 3.6 to 3.9 µs for each).
const MOST_LINKS: u64 = 1_024;
/// Numbers beyond the count of open files that may be in use, where earlier ones were closed: a share of the count, and some.
const BEYOND_SHARE: u64 = 8;
const BEYOND: u64 = 64;
/// A kind is told of where it is this part of those looked at, and so many of a life: a program may have a folder for each file.
const LEAST_PART: i64 = 16;
const MOST_KINDS: usize = 64;
/// The longest name of a folder that is recorded, in bytes.
const LONGEST_NAME: usize = 200;

/// What is known from earlier looks: the kinds that are recorded.
#[derive(Debug, Default)]
pub(super) struct OpenFilesWatch {
    kinds: BTreeSet<String>,
}

impl<T: FileTree> HostSource<T> {
    /// Looks at what so many open files are.
    pub(super) fn read_open_files(&mut self, count: u64, out: &mut SampleBuilder<'_>) {
        if !self.is_here {
            return self.gaps.note("host.open_files", Some(of_another_host()));
        }
        let found = self.look_at_links(count);
        let read = found.map(|kinds| self.tell_kinds(kinds, out));
        self.note("host.open_files", read);
    }

    /// How many of which kind are among those looked at.
    fn look_at_links(&self, count: u64) -> Result<BTreeMap<String, i64>, HostError> {
        let numbers = count.saturating_add(count / BEYOND_SHARE).saturating_add(BEYOND);
        let looks = numbers.min(MOST_LINKS);
        let mut kinds = BTreeMap::new();
        for number in (0..looks).map(|nth| nth.saturating_mul(numbers) / looks) {
            match self.tree.read_link(&format!("/proc/{}/fd/{number}", self.pid())) {
                Ok(target) => *kinds.entry(kind(&target)).or_default() += 1,
                // Nothing is open by that number.
                Err(HostError::Missing { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(kinds)
    }

    fn tell_kinds(&mut self, kinds: BTreeMap<String, i64>, out: &mut SampleBuilder<'_>) {
        let looked_at: i64 = kinds.values().sum();
        out.metric(&metrics::OPEN_FILES_LOOKED_AT, "", looked_at);
        for (kind, count) in kinds.into_iter().filter(|(_, count)| count * LEAST_PART >= looked_at) {
            if self.open_files.kinds.len() < MOST_KINDS {
                self.open_files.kinds.insert(kind.clone());
            }
            if self.open_files.kinds.contains(&kind) {
                out.metric(&metrics::OPEN_FILES_OF_KIND, &kind, count);
            }
        }
    }
}

/// What a link of `/proc/PID/fd` points to: `socket`, `pipe`, `eventpoll` and other such, a device, or the folder of a file.
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
    let end = (0..=LONGEST_NAME.min(kind.len())).rev().find(|end| kind.is_char_boundary(*end)).unwrap_or(0);
    kind[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::kind;

    #[test]
    fn what_an_open_file_is_stands_in_its_link() {
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
