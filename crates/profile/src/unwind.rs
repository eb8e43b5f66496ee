//! Unwinds registers and a copied stack into frames, with the unwind tables of the program and its libraries.
//!
//! A stripped VM has no frame pointers (distributions build with -fomit-frame-pointer). But it always has `.eh_frame`, which is exact at
//! every instruction (-fasynchronous-unwind-tables is the default on x86-64 and ARM64). The crate `framehop` interprets it and caches the
//! rules for each address, so that a repeated stack costs 1 µs.
//!
//! The C code of a BIF is called from JIT code, which has no unwind tables: there the stack ends with [`StackEnd::Generated`].

use std::ops::Range;
use std::sync::Arc;

use framehop::{ExplicitModuleSectionInfo, Module, Unwinder as _};

use crate::image::Image;
use crate::memory::word_at;
use crate::stack::{Registers, Stack, StackEnd};

#[cfg(target_arch = "aarch64")]
use framehop::aarch64::{
    CacheAarch64 as Cache, UnwindRegsAarch64 as NativeRegisters, UnwinderAarch64 as Native,
};
#[cfg(target_arch = "x86_64")]
use framehop::x86_64::{CacheX86_64 as Cache, UnwindRegsX86_64 as NativeRegisters, UnwinderX86_64 as Native};

/// Maximum number of frames; the VM's own C code has about ten, but a NIF may recurse.
const MAX_FRAMES: usize = 128;

/// Unwinds stacks of one process.
pub struct Unwinder {
    native: Native<Arc<[u8]>>,
    cache: Cache,
    /// Sorted address ranges that have unwind tables.
    known: Vec<Range<u64>>,
}

impl Unwinder {
    /// Creates an unwinder with the unwind tables of a process's program and libraries.
    pub fn new(image: &Image) -> Self {
        let mut native = Native::new();
        let mut known = Vec::new();
        for module in image.modules() {
            let elf = &module.elf;
            let Some(eh_frame) = &elf.eh_frame else { continue };
            known.push(module.range.clone());
            let sections = ExplicitModuleSectionInfo {
                base_svma: 0,
                text_svma: elf.text.as_ref().map(|section| section.range.clone()),
                got_svma: elf.got.clone(),
                eh_frame_svma: Some(eh_frame.range.clone()),
                eh_frame: Some(Arc::clone(&eh_frame.data)),
                eh_frame_hdr_svma: elf.eh_frame_hdr.as_ref().map(|section| section.range.clone()),
                eh_frame_hdr: elf.eh_frame_hdr.as_ref().map(|section| Arc::clone(&section.data)),
                ..ExplicitModuleSectionInfo::default()
            };
            native.add_module(Module::new(module.path.clone(), module.range.clone(), module.bias, sections));
        }
        Unwinder { native, cache: Cache::new(), known }
    }

    /// Unwinds the stack of a thread; `memory` is a copy of the stack that starts at the stack pointer.
    pub fn unwind(&mut self, registers: &Registers, memory: &[u8]) -> Stack {
        let mut is_cut = false;
        let mut read = |address: u64| {
            let word = word_at(memory, address.wrapping_sub(registers.sp));
            is_cut |= word.is_none() && address >= registers.sp;
            word.ok_or(())
        };
        let mut frames = Vec::new();
        let mut found = self.native.iter_frames(registers.ip, native(registers), &mut self.cache, &mut read);
        let end = loop {
            match found.next() {
                Ok(Some(frame)) => {
                    let address = frame.address_for_lookup();
                    if !covers(&self.known, address) {
                        break StackEnd::Generated;
                    }
                    if frames.len() >= MAX_FRAMES {
                        break StackEnd::Cut;
                    }
                    frames.push(address);
                }
                Ok(None) => break StackEnd::Bottom,
                Err(_) => break StackEnd::Lost,
            }
        };
        let end = if end == StackEnd::Lost && is_cut { StackEnd::Cut } else { end };
        Stack { frames, end }
    }
}

impl std::fmt::Debug for Unwinder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unwinder").field("known", &self.known).finish_non_exhaustive()
    }
}

#[cfg(target_arch = "x86_64")]
fn native(registers: &Registers) -> NativeRegisters {
    NativeRegisters::new(registers.ip, registers.sp, registers.fp)
}

#[cfg(target_arch = "aarch64")]
fn native(registers: &Registers) -> NativeRegisters {
    NativeRegisters::new(registers.lr, registers.sp, registers.fp)
}

fn covers(known: &[Range<u64>], address: u64) -> bool {
    let after = known.partition_point(|range| range.start <= address);
    after.checked_sub(1).and_then(|index| known.get(index)).is_some_and(|range| range.contains(&address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_within_a_range_are_covered() {
        let known = [10..20, 30..40];
        let covered: Vec<u64> = (0..50).filter(|address| covers(&known, *address)).collect();
        assert_eq!(covered, (10..20).chain(30..40).collect::<Vec<_>>());
        assert!(!covers(&[], 1));
    }

    #[test]
    fn a_word_is_read_only_if_all_of_it_was_copied() {
        let memory: Vec<u8> = (0..16).collect();
        assert_eq!(word_at(&memory, 0), Some(u64::from_ne_bytes([0, 1, 2, 3, 4, 5, 6, 7])));
        assert!(word_at(&memory, 8).is_some());
        assert_eq!(word_at(&memory, 9), None);
        assert_eq!(word_at(&memory, u64::MAX), None);
    }

    #[test]
    fn a_stack_ends_at_unknown_code() {
        let image = Image::read(&beamtune_host::LocalTree::default(), std::process::id()).unwrap();
        let registers = Registers { ip: 0x10, sp: 0x1000, fp: 0x1000, lr: 0 };
        let stack = Unwinder::new(&image).unwind(&registers, &[0; 64]);
        assert_eq!(stack, Stack { frames: Vec::new(), end: StackEnd::Generated });
    }
}
