//! Memory: the names by which it is told apart, and what a period says of it as a whole.
//!
//! The names are the entities of [`crate::Group::HostMapping`] and [`crate::Group::HostContent`]. The first come from the kernel,
//! which knows mappings but not what they are for; the second from what stands in the pages themselves.

mod allocators;
mod bridge;
mod movement;
mod returns;

pub use allocators::{Allocator, Carriers, all_together, allocators};
pub use bridge::{Bridge, Mapping, PAGE_BYTES, Part, moved_while_looking};
pub use movement::{Daily, Movement, Step};
pub use returns::{Estimate, Returns};

/// Kinds of mappings, each mapping being of one.
pub mod mapping {
    /// The emulator's own program file, with its static data.
    pub const EMULATOR: &str = "emulator";
    /// Shared libraries, with their static data: libc, and those of NIFs and drivers.
    pub const LIBRARIES: &str = "libraries";
    /// Other files.
    pub const FILES: &str = "files";
    /// Machine code that the JIT has made (a memfd named `vmem`, mapped twice, or anonymous executable memory).
    /// Where it is mapped twice the resident size counts its pages twice, the proportional one once.
    pub const JIT: &str = "jit";
    /// The main thread's stack.
    pub const STACK: &str = "stack";
    /// malloc's first arena: `[heap]`.
    pub const HEAP: &str = "heap";
    /// All other anonymous memory that can be written: carriers, stacks of threads, malloc's other arenas …
    pub const ANONYMOUS: &str = "anonymous";
    /// Address space without access: kept for later.
    pub const RESERVED: &str = "reserved";
    /// Memory shared with other processes.
    pub const SHARED: &str = "shared";
    /// The kernel's own: `[vdso]`, `[vvar]` …
    pub const KERNEL: &str = "kernel";

    /// All of them, in the order in which they are shown.
    pub const ALL: &[&str] =
        &[ANONYMOUS, HEAP, EMULATOR, LIBRARIES, JIT, STACK, SHARED, FILES, KERNEL, RESERVED];
}

/// What stands in memory.
pub mod content {
    /// Carriers: `carriers/ALLOCATOR/SET`, where the set is [`MBCS`], [`SBCS`] or [`POOL`].
    pub const CARRIERS: &str = "carriers";
    /// Multiblock carriers in use by their allocator instance.
    pub const MBCS: &str = "mbcs";
    /// Single-block carriers.
    pub const SBCS: &str = "sbcs";
    /// Multiblock carriers that are abandoned to the pool.
    pub const POOL: &str = "pool";
    /// Free segments that the VM keeps for the next carrier.
    pub const MSEG_CACHE: &str = "mseg_cache";
    /// Of the super carrier (`+MMscs`): what is in no carrier.
    pub const SUPER_CARRIER: &str = "super_carrier";
    /// Of the area that is kept for literals: what is in no carrier.
    pub const LITERAL_AREA: &str = "literal_area";
    /// Stacks of threads: `stacks/KIND`, kinds as in [`crate::Group::HostThread`].
    pub const STACKS: &str = "stacks";
    /// malloc's first arena, but for carriers in it.
    pub const MALLOC_HEAP: &str = "malloc/heap";
    /// malloc's arenas for further threads.
    pub const MALLOC_ARENAS: &str = "malloc/arenas";
    /// Large chunks of malloc, each mapped by itself.
    pub const MALLOC_MAPPED: &str = "malloc/mapped";
    /// Machine code that the JIT has made.
    pub const JIT: &str = "jit";
    /// The emulator's program file and its static data.
    pub const EMULATOR: &str = "emulator";
    /// Shared libraries and their static data.
    pub const LIBRARIES: &str = "libraries";
    /// Other files.
    pub const FILES: &str = "files";
    /// Shared memory.
    pub const SHARED: &str = "shared";
    /// The kernel's own.
    pub const KERNEL: &str = "kernel";
    /// What could not be told: the only entity that is a remainder.
    pub const UNKNOWN: &str = "unknown";

    /// The entity of an allocator's carriers.
    pub fn carriers(allocator: &str, set: &str) -> String {
        format!("{CARRIERS}/{allocator}/{set}")
    }

    /// Allocator and set of an entity of carriers.
    pub fn as_carriers(entity: &str) -> Option<(&str, &str)> {
        entity.strip_prefix(CARRIERS)?.strip_prefix('/')?.split_once('/')
    }
}

#[cfg(test)]
mod tests {
    use super::content;

    #[test]
    fn the_entity_of_carriers_reads_back() {
        let entity = content::carriers("eheap_alloc", content::POOL);
        assert_eq!(content::as_carriers(&entity), Some(("eheap_alloc", "pool")));
        assert_eq!(content::as_carriers("carriers"), None);
        assert_eq!(content::as_carriers("carriersx/a/b"), None);
        assert_eq!(content::as_carriers("malloc/heap"), None);
    }
}
