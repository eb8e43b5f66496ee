//! Finds the stacks of threads.
//!
//! glibc has a `struct pthread` for each thread, at the upper end of the thread's stack (nptl/descr.h). It contains a node of the list of
//! all threads, then the thread id, and after other fields the start and the size of the stack. So any of these structures leads to all
//! others. The first one is found through a sleeping thread: the kernel provides its stack pointer, and its id is above that.
//!
//! Only the offset of the id from the node is hard-coded. Memory is searched for the id, links must be consistent in both directions, and
//! the bounds must contain the node. The guard of a stack need not be a separate mapping: newer kernels mark guard pages instead.
//!
//! With other C libraries, the whole mapping is the stack, if it follows a mapping without access rights.

use std::collections::{HashMap, HashSet};

use crate::process::{SMALL_FILE_BYTES, Status};
use crate::text;
use crate::tree::FileTree;

use super::image::{Image, Range, word_at, words_of};
use super::smaps::Mapping;

/// Offset of the thread id from the node.
const TID_OFFSET: u64 = 16;
/// Size of the address space above a stack pointer that is searched for the id; only a part of a stack is resident.
const SEARCH_BYTES: u64 = 8 << 20;
/// Size of the part of the structure that is read, from its node on; the whole structure has 2,304 bytes.
const DESCRIPTOR_BYTES: usize = 2048;
/// Plausible sizes of stacks.
const STACK_BYTES: std::ops::RangeInclusive<u64> = 16 << 10..=1 << 30;
/// Maximum distance from the node to the upper end of the stack: the rest of the structure, and thread-local variables.
const MAX_ABOVE_NODE: u64 = 1 << 20;

/// A thread of the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Thread<'a> {
    /// Thread id in our namespace.
    pub tid: u32,
    /// Thread id in the process's own namespace, which differs in a container.
    pub own_tid: u32,
    /// `scheduler`, `poll` … or `other`.
    pub kind: &'a str,
}

/// Adds the thread ids of the process's own namespace.
pub(super) fn with_own_tids<'a>(
    tree: &impl FileTree,
    pid: u32,
    kinds: impl Iterator<Item = (u32, &'a str)>,
) -> Vec<Thread<'a>> {
    let mut content = Vec::new();
    let mut own = |path: &str| {
        let read = tree.read_start(path, SMALL_FILE_BYTES, &mut content);
        read.is_ok().then(|| Status::parse(&content).pids).and_then(|pids| pids.get(1..)?.last().copied())
    };
    let is_inside = own(&format!("/proc/{pid}/status")).is_some();
    let threads = kinds.map(|(tid, kind)| {
        let inside = is_inside.then(|| own(&format!("/proc/{pid}/task/{tid}/status"))).flatten();
        Thread { tid, own_tid: inside.unwrap_or(tid), kind }
    });
    threads.collect()
}

/// Parses the stack pointer in `/proc/PID/task/TID/syscall`; `None` for a thread that is on-CPU.
pub(super) fn stack_pointer(content: &[u8]) -> Option<u64> {
    let fields: Vec<&[u8]> = text::fields(content.trim_ascii()).collect();
    let [.., pointer, _program_counter] = fields.as_slice() else { return None };
    // The first field is the number of a system call, or -1.
    (fields.len() >= 3)
        .then(|| u64::from_str_radix(std::str::from_utf8(pointer).ok()?.strip_prefix("0x")?, 16).ok())
        .flatten()
}

/// Finds stacks, and returns them with the kinds of their threads.
pub(super) fn find<'a>(
    image: &Image<'_>,
    tree: &impl FileTree,
    pid: u32,
    threads: &[Thread<'a>],
    mappings: &[Mapping],
) -> Vec<(Range, &'a str)> {
    let kinds: HashMap<u32, &str> = threads.iter().map(|thread| (thread.own_tid, thread.kind)).collect();
    let mut found: Vec<(Range, &str)> = Vec::new();
    let mut known: HashSet<u32> = HashSet::new();
    let mut without_node = Vec::new();
    let mut content = Vec::new();
    for thread in threads.iter().filter(|thread| thread.tid != pid) {
        if known.contains(&thread.own_tid) {
            continue;
        }
        let path = format!("/proc/{pid}/task/{}/syscall", thread.tid);
        let read = tree.read_start(&path, SMALL_FILE_BYTES, &mut content);
        let Some(pointer) = read.ok().and_then(|()| stack_pointer(&content)) else { continue };
        let Some(node) = node_above(image, pointer, thread.own_tid) else {
            without_node.push((thread, pointer));
            continue;
        };
        for (tid, stack) in all_from(image, node) {
            if let (Some(kind), true) = (kinds.get(&tid), known.insert(tid)) {
                found.push((stack, kind));
            }
        }
    }
    for (thread, pointer) in without_node {
        // The stack may have been found through another thread.
        if known.insert(thread.own_tid) {
            found.extend(mapping_of(mappings, pointer).map(|stack| (stack, thread.kind)));
        }
    }
    found
}

/// Searches for a thread's node above its stack pointer. Pages in between may be absent.
fn node_above(image: &Image<'_>, pointer: u64, own_tid: u32) -> Option<u64> {
    let end = pointer.checked_add(SEARCH_BYTES)?;
    let mut at = image.pages.floor(pointer);
    while let Some(begin) = image.pages.next_present(at, end) {
        let until = image.pages.present_until(begin).min(end);
        let mut bytes = vec![0; usize::try_from(until - begin).ok()?];
        let read = image.read_some(begin, &mut bytes);
        let node = words_of(bytes.get(..read)?)
            .filter(|(_, word)| *word == u64::from(own_tid))
            .filter_map(|(offset, _)| begin.checked_add(offset as u64)?.checked_sub(TID_OFFSET))
            .find(|node| is_linked(image, *node));
        if node.is_some() {
            return node;
        }
        at = until;
    }
    None
}

/// Whether a neighbour links back to a node. The head of the list is not readable, because it belongs to the C library.
fn is_linked(image: &Image<'_>, node: u64) -> bool {
    let Some([next, prev]) = image.words(node) else { return false };
    let is_back =
        |at: Option<u64>| at.filter(|at| at.is_multiple_of(8)).and_then(|at| image.word(at)) == Some(node);
    is_back(next.checked_add(8)) || is_back(Some(prev))
}

/// Returns ids and stacks of all threads in a list, by following it from one node in both directions, up to its head.
fn all_from(image: &Image<'_>, first: u64) -> Vec<(u32, Range)> {
    let mut all = Vec::new();
    for is_forward in [true, false] {
        let (mut node, mut before) = (first, None);
        for _ in 0..crate::threads::MAX_THREADS {
            let Some([next, prev, number]) = image.words(node) else { break };
            let (on, back) = if is_forward { (next, prev) } else { (prev, next) };
            if before.is_some_and(|before| before != back) {
                break;
            }
            if let (Ok(tid), Some(stack)) = (u32::try_from(number & 0xffff_ffff), bounds(image, node)) {
                all.push((tid, stack));
            }
            if on == first {
                return all;
            }
            (before, node) = (Some(node), on);
        }
    }
    all
}

/// Finds the bounds of a node's stack, which are stored after the node.
fn bounds(image: &Image<'_>, node: u64) -> Option<Range> {
    let page_bytes = image.pages.page_bytes();
    let mut bytes = [0; DESCRIPTOR_BYTES];
    let read = image.read_some(node, &mut bytes);
    (0..read.saturating_sub(15)).step_by(8).find_map(|offset| {
        let (start, size) = (word_at(&bytes, offset)?, word_at(&bytes, offset + 8)?);
        let end = start.checked_add(size)?;
        let is_stack = STACK_BYTES.contains(&size)
            && start.is_multiple_of(page_bytes)
            && size.is_multiple_of(page_bytes)
            && start <= node
            && node < end
            && end - node <= MAX_ABOVE_NODE;
        is_stack.then_some(Range { start, end })
    })
}

/// Finds the mapping that contains a stack pointer, if it follows a mapping without access rights.
fn mapping_of(mappings: &[Mapping], pointer: u64) -> Option<Range> {
    let at = mappings.partition_point(|mapping| mapping.end <= pointer);
    let (guard, stack) = (mappings.get(at.checked_sub(1)?)?, mappings.get(at)?);
    let is_stack = guard.is_reserved()
        && guard.end == stack.start
        && stack.start <= pointer
        && stack.is_anonymous()
        && STACK_BYTES.contains(&stack.size());
    is_stack.then_some(Range { start: stack.start, end: stack.end })
}
