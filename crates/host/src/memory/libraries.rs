//! The files that a process has mapped: the extent of their static data, the malloc implementation, and libraries outside the system's
//! folders.

use std::collections::{BTreeSet, HashMap};

use beamtune_model::memory::mapping as kinds;

use crate::tree::FileTree;

use super::elf;
use super::smaps::Mapping;

/// Maximum number of files whose headers are read; a VM has about 20.
const MAX_FILES: usize = 1_000;

/// Known extents of mapped files, by path. A mapped file does not change.
#[derive(Debug, Default)]
pub(super) struct Libraries(HashMap<String, Option<u64>>);

impl Libraries {
    /// Returns the end address of each file's static data, by path. Headers are read from the file, since the first page of its mapping may
    /// not be resident.
    pub fn extents<'a>(
        &mut self,
        tree: &impl FileTree,
        pid: u32,
        root: &str,
        emulator: &str,
        mappings: &'a [Mapping],
    ) -> HashMap<&'a str, u64> {
        let mut extents = HashMap::new();
        // Static data outside the file can exist only if anonymous memory follows the mapping.
        let is_followed = |path: &str| {
            mappings.array_windows().any(|[file, next]| {
                file.path == path && file.end == next.start && next.path.is_empty() && next.write
            })
        };
        let first = mappings.iter().filter(|mapping| {
            mapping.offset == 0 && mapping.path.starts_with('/') && !mapping.shared && mapping.read
        });
        for mapping in first {
            let path = mapping.path.as_str();
            if self.0.len() >= MAX_FILES || !is_followed(path) {
                continue;
            }
            let extent = match self.0.get(path) {
                Some(known) => *known,
                None => {
                    let extent =
                        read(tree, pid, root, path, path == emulator).and_then(|head| elf::extent(&head));
                    self.0.insert(path.to_owned(), extent);
                    extent
                }
            };
            if let Some(end) = extent.and_then(|extent| mapping.start.checked_add(extent)) {
                extents.insert(path, end);
            }
        }
        extents
    }
}

/// Reads the beginning of a mapped file. Mapped paths are relative to our root. Below the root of the process, its prefix is removed.
fn read(tree: &impl FileTree, pid: u32, root: &str, path: &str, is_emulator: bool) -> Option<Vec<u8>> {
    let mut head = Vec::new();
    let read = if is_emulator {
        tree.read_start(&format!("/proc/{pid}/exe"), elf::HEAD_BYTES, &mut head)
    } else {
        let below = path.strip_prefix(root.trim_end_matches('/')).filter(|below| below.starts_with('/'));
        tree.read_start_below(&format!("/proc/{pid}/root"), below.unwrap_or(path), elf::HEAD_BYTES, &mut head)
    };
    read.ok().map(|()| head)
}

/// Maximum number of reported libraries.
const MAX_NATIVE: usize = 100;
/// Folders of system libraries, which may have a subfolder for the architecture.
const SYSTEM: [&str; 6] = ["/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/local/lib64"];

/// Returns the sorted paths, below `root`, of libraries with code outside the system's folders: those of NIFs and drivers, including OTP's
/// own, and preloaded libraries.
pub(super) fn native<'a>(
    mappings: impl Iterator<Item = (&'a Mapping, &'static str)>,
    root: &str,
) -> Vec<String> {
    let root = root.trim_end_matches('/');
    let paths: BTreeSet<&str> = mappings
        .filter(|(mapping, kind)| *kind == kinds::LIBRARIES && mapping.execute)
        .map(|(mapping, _)| mapping.path.strip_prefix(root).unwrap_or(&mapping.path))
        .filter(|path| !is_of_system(path))
        .collect();
    paths.into_iter().take(MAX_NATIVE).map(str::to_owned).collect()
}

fn is_of_system(path: &str) -> bool {
    let Some((folder, _)) = path.rsplit_once('/') else { return false };
    // `x86_64-linux-gnu`, `aarch64-linux-musl`
    let above = folder.rsplit_once('/').filter(|(_, last)| last.contains("-linux-")).map(|(above, _)| above);
    SYSTEM.contains(&folder) || above.is_some_and(|above| SYSTEM.contains(&above))
}

/// Identifies the malloc implementation by the mapped libraries. One that replaces malloc of the C library takes precedence.
pub(super) fn malloc(mappings: &[Mapping]) -> Option<&'static str> {
    const KNOWN: [(&str, &str); 9] = [
        ("libjemalloc", "jemalloc"),
        ("libtcmalloc", "tcmalloc"),
        ("libmimalloc", "mimalloc"),
        ("libsnmalloc", "snmalloc"),
        ("libhoard", "hoard"),
        ("ld-musl-", "musl"),
        ("libc.musl-", "musl"),
        ("libc.so.6", GLIBC),
        ("libc-2.", GLIBC),
    ];
    let names: Vec<&str> = mappings.iter().filter_map(|mapping| mapping.path.rsplit('/').next()).collect();
    let is_mapped = |start: &str| names.iter().any(|name| name.starts_with(start));
    KNOWN.into_iter().find(|(start, _)| is_mapped(start)).map(|(_, malloc)| malloc)
}

/// The malloc implementation with known structures.
pub(super) const GLIBC: &str = "glibc";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_libraries_are_not_reported() {
        let of = |path: &str, kind, execute| {
            (Mapping { path: path.to_owned(), execute, ..Mapping::default() }, kind)
        };
        let mapped = [
            of("/lib/x86_64-linux-gnu/libc.so.6", kinds::LIBRARIES, true),
            of("/usr/lib/libz.so.1", kinds::LIBRARIES, true),
            of("/usr/lib/aarch64-linux-musl/libssl.so", kinds::LIBRARIES, true),
            of("/usr/lib/erlang/lib/crypto-5.1.3/priv/lib/crypto.so", kinds::LIBRARIES, true),
            of("/app/priv/fast.so", kinds::LIBRARIES, false),
            of("/app/priv/fast.so", kinds::LIBRARIES, true),
            of("/app/priv/fast.so", kinds::LIBRARIES, true),
            of("/srv/beam.smp", kinds::EMULATOR, true),
        ];
        let native = |root: &str, put: &str| {
            let below: Vec<_> = mapped
                .iter()
                .map(|(m, kind)| (Mapping { path: format!("{put}{}", m.path), ..m.clone() }, *kind))
                .collect();
            native(below.iter().map(|(m, kind)| (m, *kind)), root)
        };
        let expected = ["/app/priv/fast.so", "/usr/lib/erlang/lib/crypto-5.1.3/priv/lib/crypto.so"];
        assert_eq!(native("/", ""), expected);
        assert_eq!(native("/var/roots/27", "/var/roots/27"), expected);
        // Paths of a container that are relative to its own root.
        assert_eq!(native("/var/roots/27", ""), expected);
    }
}
