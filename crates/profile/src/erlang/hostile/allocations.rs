//! Measures how much memory a thread allocates.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Bytes that this thread has allocated, and their maximum. The cell needs neither an allocation nor a destructor, so the allocator may
    /// use it at any time.
    static USED: Cell<(i64, i64)> = const { Cell::new((0, 0)) };
}

/// Runs a function; returns its result, and how many bytes were allocated at most.
pub(super) fn peak_of<T>(run: impl FnOnce() -> T) -> (T, i64) {
    let (before, _) = USED.get();
    USED.set((before, before));
    let result = run();
    (result, USED.get().1 - before)
}

fn add(bytes: i64) {
    let (used, peak) = USED.get();
    USED.set((used + bytes, peak.max(used + bytes)));
}

struct Counting;

/// The system allocator with a counter.
#[allow(unsafe_code, reason = "the trait is unsafe; each call is passed on unchanged")]
// SAFETY: `System` does all the work and fulfils the trait's contract; counting does not allocate and cannot panic.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size() as i64);
        // SAFETY: the caller fulfils the contract, which is the same as that of the called function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size() as i64);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        add(bytes as i64 - layout.size() as i64);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, bytes) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        add(-(layout.size() as i64));
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;
