//! Names of kernel functions, from `/proc/kallsyms`.

use beamtune_host::tree::FileTree;

use crate::memory::words_of;

/// Limit of the file: 200,000 symbols of 60 bytes are common, with many modules twice as many.
const MAX_BYTES: usize = 64 << 20;
/// Markers between parts of a call chain, such as "here begins user mode" (`PERF_CONTEXT_MAX`, perf_event.h), are above.
const FIRST_MARKER: u64 = u64::MAX - 4_095;

/// Names of kernel functions by address.
#[derive(Debug, Clone, Default)]
pub struct KernelNames {
    /// Addresses, sorted, and where their names begin in `names`.
    functions: Vec<(u64, u32)>,
    /// Names, separated by line breaks.
    names: String,
}

impl KernelNames {
    /// Reads the names; empty if the kernel hides its addresses (kptr_restrict).
    pub fn read(tree: &impl FileTree) -> KernelNames {
        let content = tree.read("/proc/kallsyms", MAX_BYTES).unwrap_or_default();
        KernelNames::parse(&String::from_utf8_lossy(&content))
    }

    /// Lines: `ffffffff81000000 T function [module]`.
    fn parse(text: &str) -> KernelNames {
        let mut out = KernelNames::default();
        for line in text.lines() {
            let mut fields = line.split_ascii_whitespace();
            let (Some(address), Some("t" | "T" | "w" | "W"), Some(name)) =
                (fields.next(), fields.next(), fields.next())
            else {
                continue;
            };
            let Ok(address) = u64::from_str_radix(address, 16) else { continue };
            let Ok(begin) = u32::try_from(out.names.len()) else { break };
            if address > 0 {
                out.functions.push((address, begin));
                out.names.push_str(name);
                out.names.push('\n');
            }
        }
        // Several names of one address: the first one is kept.
        out.functions.sort_by_key(|(address, _)| *address);
        out.functions.dedup_by_key(|(address, _)| *address);
        out
    }

    /// The name of the function at an address.
    pub fn name_at(&self, address: u64) -> Option<&str> {
        let after = self.functions.partition_point(|(start, _)| *start <= address);
        let (_, begin) = self.functions.get(after.checked_sub(1)?)?;
        self.names.get(*begin as usize..)?.lines().next()
    }
}

/// The addresses of a recorded call chain, innermost first, without markers.
pub fn addresses(recorded: &[u8]) -> impl Iterator<Item = u64> {
    words_of(recorded).into_iter().filter(|word| *word < FIRST_MARKER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_named_by_their_start() {
        let text = "ffffffff81000200 t do_epoll_wait\nffffffff81000100 T schedule\nffffffff81000100 T __schedule\n\
                    ffffffff81000300 d data\nffffffffc0000000 t kvm_run\t[kvm]\nx y\n";
        let names = KernelNames::parse(text);
        let check =
            |address: u64, expect: Option<&str>| assert_eq!(names.name_at(address), expect, "{address:x}");
        check(0xffff_ffff_8100_0000, None);
        check(0xffff_ffff_8100_0100, Some("schedule"));
        check(0xffff_ffff_8100_0250, Some("do_epoll_wait"));
        check(0xffff_ffff_c000_0010, Some("kvm_run"));
        assert!(KernelNames::parse("0000000000000000 T hidden\n").name_at(5).is_none());
    }

    #[test]
    fn markers_are_left_out() {
        let words = [u64::MAX - 127, 0xffff_ffff_8100_0100, 0xffff_ffff_8100_0200, u64::MAX - 511];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        assert_eq!(addresses(&bytes).collect::<Vec<_>>(), words[1..3]);
    }
}
