//! Relations of findings about CPU time. Those that name what CPU time is spent on come before all other relations; those that only say
//! where work waits come after them.

use beamtune_model::{KernelWork, Level, Limit, Signal, Subject};

use super::conditions::{always, is_of_main_runner, takes_most_of, waits_there};
use super::table::Relation;

/// Applied before all other relations.
pub(super) const FIRST: &[Relation] = &[
    // A process that forces GCs allocates nothing, though most of its samples are in GC.
    Relation { cause: "BT032", effects: &["BT011"], is_meant: always, why: "these GCs are forced" },
    Relation {
        cause: "BT055",
        effects: &["BT073"],
        is_meant: |cause, effect| {
            let is_its_code = effect.has(&Signal::WhereOnly) && is_of_main_runner(effect, cause);
            cause.level > Level::Notice && is_its_code && takes_most_of(cause, effect)
        },
        why: "copying messages is most of what this code does",
    },
    Relation {
        cause: "BT068",
        effects: &["BT073"],
        is_meant: |cause, effect| {
            cause.level > Level::Notice && effect.has(&Signal::WhereOnly) && takes_most_of(cause, effect)
        },
        why: "copying objects out of tables is most of what this code does",
    },
    Relation {
        cause: "BT011",
        effects: &["BT073"],
        is_meant: |cause, effect| {
            cause.level > Level::Notice && effect.has(&Signal::WhereOnly) && takes_most_of(cause, effect)
        },
        why: "most of the time in these stacks is garbage collection",
    },
    Relation {
        cause: "BT013",
        effects: &["BT088"],
        is_meant: |_, effect| effect.has(&Signal::Kernel(KernelWork::Polling)),
        why: "each of these calls scans all descriptors",
    },
    Relation {
        cause: "BT022",
        effects: &["BT088"],
        is_meant: |_, effect| effect.has(&Signal::Kernel(KernelWork::Clock)),
        why: "each reading of the clock is a system call",
    },
    Relation {
        cause: "BT029",
        effects: &["BT088"],
        is_meant: |_, effect| effect.has(&Signal::Kernel(KernelWork::Memory)),
        why: "the kernel maps and clears these segments",
    },
    Relation {
        cause: "BT046",
        effects: &["BT088"],
        is_meant: |_, effect| effect.has(&Signal::Kernel(KernelWork::Memory)),
        why: "the kernel maps and clears this memory",
    },
    Relation {
        cause: "BT060",
        effects: &["BT088"],
        is_meant: |_, effect| effect.has(&Signal::Kernel(KernelWork::Programs)),
        why: "the kernel starts these programs",
    },
    Relation {
        cause: "BT002",
        effects: &["BT004"],
        is_meant: |_, effect| effect.is_about(&Subject::limit(Limit::CpuQuota)),
        why: "threads of a throttled VM are runnable and get no CPU",
    },
];

/// Applied after all other relations.
pub(super) const LAST: &[Relation] = &[Relation {
    cause: "BT006",
    effects: &["BT015"],
    is_meant: waits_there,
    why: "messages are queued there while the CPU is idle",
}];
