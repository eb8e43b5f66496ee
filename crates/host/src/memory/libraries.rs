//! The files that a process has mapped: how much static data belongs to each, and which of them gives memory.

use std::collections::HashMap;

use crate::tree::FileTree;

use super::elf;
use super::smaps::Mapping;

/// Files whose headers are read, at most; a VM has some 20.
const MOST_FILES: usize = 1_000;

/// What is known of files; they do not change while they are mapped.
#[derive(Debug, Default)]
pub(super) struct Libraries(HashMap<String, Option<u64>>);

impl Libraries {
    /// Where the static data of each file ends, by its path. It is read from the file, not from the process, whose
    /// first page of it need not be in memory.
    pub fn extents<'a>(
        &mut self,
        tree: &impl FileTree,
        pid: u32,
        root: &str,
        emulator: &str,
        mappings: &'a [Mapping],
    ) -> HashMap<&'a str, u64> {
        let mut extents = HashMap::new();
        // Only of those behind which there is anonymous memory.
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
            if self.0.len() >= MOST_FILES || !is_followed(path) {
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

/// The beginning of a file. Its path is as seen from here: below the root of a process that has another one, its own path is the rest.
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

/// What gives memory, by the libraries that are mapped. One that replaces malloc comes before the C library.
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

/// Whose forms are known.
pub(super) const GLIBC: &str = "glibc";
