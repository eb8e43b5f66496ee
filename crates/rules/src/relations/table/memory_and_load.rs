//! Relations about memory, external programs, brokers and connections.

use beamtune_model::{CpuUse, HostPart, MemoryKind, Signal, Subject};

use super::super::EXPLAINS;
use super::super::MIN_LEVEL;
use super::super::conditions::{
    always, both_grow, drives_most, is_about_flag, is_its_own, is_its_work, is_no_single_process, is_unused,
    maps_heaps, may_be_the_hosts, runs_all, runs_part, runs_programs_all_the_time, same_subject, waits_for,
    waits_there,
};
use super::Relation;

pub(super) const MEMORY_AND_LOAD: &[Relation] = &[
    Relation {
        cause: "BT008",
        effects: &["BT026", "BT027"],
        is_meant: |cause, effect| {
            let is_of_ports = matches!(effect.subject, Some(Subject::Port { .. }));
            cause.has(&Signal::Grows(MemoryKind::Binary)) && is_of_ports
        },
        why: "these binaries wait unsent in sockets whose process has ended",
    },
    Relation {
        cause: "BT007",
        effects: &["BT027"],
        is_meant: |cause, effect| both_grow(cause, effect, MemoryKind::Processes),
        why: "new processes that stay take the memory",
    },
    Relation {
        cause: "BT010",
        effects: &["BT027"],
        is_meant: |cause, effect| both_grow(cause, effect, MemoryKind::Ets),
        why: "new tables that stay take the memory",
    },
    Relation {
        cause: "BT008",
        effects: &["BT054"],
        is_meant: |cause, _| cause.has(&Signal::Exhausted),
        why: "a connection cannot be accepted without a free descriptor and port",
    },
    Relation {
        cause: "BT026",
        effects: &["BT027"],
        is_meant: |cause, effect| {
            cause.level >= MIN_LEVEL
                && same_subject(cause, effect)
                && effect.has(&Signal::Grows(MemoryKind::Binary))
        },
        why: "it keeps the growing binaries",
    },
    Relation {
        cause: "BT067",
        effects: &["BT045"],
        is_meant: |cause, effect| {
            matches!(cause.subject, Some(Subject::ProcessKind { .. }))
                && matches!(&effect.subject, Some(Subject::Allocator { name, .. }) if name == "eheap_alloc")
        },
        why: "these first heaps are the blocks",
    },
    Relation {
        cause: "BT067",
        effects: &["BT046"],
        is_meant: |cause, _| is_about_flag(cause, "ERL_FULLSWEEP_AFTER"),
        why: "every fullsweep allocates a new heap and frees the old one",
    },
    Relation {
        cause: "BT063",
        effects: &["BT011", "BT017", "BT046"],
        is_meant: |cause, _| is_about_flag(cause, "+hmax"),
        why: "a process that grows to its heap limit is collected repeatedly until it is killed",
    },
    Relation {
        cause: "BT055",
        effects: &["BT029", "BT046"],
        is_meant: maps_heaps,
        why: "segments are mapped about as often as such messages are copied",
    },
    Relation {
        cause: "BT068",
        effects: &["BT029"],
        is_meant: maps_heaps,
        why: "segments are mapped about as often as such objects are copied",
    },
    Relation {
        cause: "BT068",
        effects: &["BT045", "BT046"],
        is_meant: |_, effect| effect.is_about(&Subject::allocator("eheap_alloc")),
        why: "each copy grows the heap until the next GC",
    },
    Relation {
        cause: "BT029",
        effects: &["BT046"],
        is_meant: same_subject,
        why: "these are the segments that the cache does not keep",
    },
    Relation {
        cause: "BT028",
        effects: &["BT045", "BT046"],
        is_meant: always,
        why: "memory that a full super carrier lacks is mapped and unmapped separately",
    },
    Relation {
        cause: "BT032",
        effects: &["BT011", "BT073"],
        is_meant: |cause, effect| effect.code.0 != "BT073" || runs_all(effect, cause),
        why: "these GCs are forced",
    },
    Relation {
        cause: "BT036",
        effects: &["BT004", "BT015"],
        is_meant: |cause, effect| {
            let is_steal =
                effect.is_about(&Subject::host(HostPart::Steal)) || is_unused(effect, CpuUse::Steal);
            cause.has(&Signal::CreditsSpent) && is_steal
        },
        why: "an instance without credits gets only a part of its CPUs",
    },
    Relation {
        cause: "BT060",
        effects: &["BT004", "BT015"],
        is_meant: |_, effect| {
            effect.is_about(&Subject::host(HostPart::Programs)) || is_unused(effect, CpuUse::ExternalPrograms)
        },
        why: "these programs use the CPU",
    },
    Relation {
        cause: "BT060",
        effects: &["BT005", "BT006", "BT053"],
        is_meant: |cause, effect| runs_programs_all_the_time(cause) && same_subject(cause, effect),
        why: "it waits for its program, which works nearly all the time",
    },
    Relation {
        cause: "BT060",
        effects: &["BT015"],
        is_meant: |cause, effect| runs_programs_all_the_time(cause) && waits_there(cause, effect),
        why: "the process that work waits for waits for a program that works nearly all the time",
    },
    Relation {
        cause: "BT060",
        effects: &["BT002"],
        // The programs' share of what the quota allows.
        is_meant: |cause, _| cause.claim.and_then(|claim| claim.share).is_some_and(|share| share >= EXPLAINS),
        why: "programs that the node started use up most of the quota",
    },
    Relation {
        cause: "BT060",
        effects: &["BT016", "BT017"],
        is_meant: may_be_the_hosts,
        why: "a thread that loses its CPU during a time slice or a GC seems to take long",
    },
    Relation {
        cause: "BT060",
        effects: &["BT054", "BT079"],
        is_meant: |_, effect| effect.has(&Signal::ShortOfCpu),
        why: "processes that accept or read wait, like all others, for a CPU that programs use",
    },
    Relation {
        cause: "BT062",
        effects: &["BT005", "BT006", "BT053"],
        is_meant: |cause, effect| cause.has(&Signal::LowPriority) && same_subject(cause, effect),
        why: "at priority low it gets one time slice for eight of other processes",
    },
    Relation {
        cause: "BT069",
        effects: &["BT005", "BT006", "BT011", "BT026", "BT046", "BT055", "BT073"],
        is_meant: drives_most,
        why: "the same messages pass through these processes again and again",
    },
    Relation {
        cause: "BT069",
        effects: &["BT071"],
        is_meant: same_subject,
        why: "redelivered messages take the consumers' time from all other messages of the queue",
    },
    Relation {
        cause: "BT070",
        effects: &["BT011", "BT032", "BT039", "BT042", "BT046", "BT047"],
        is_meant: |_, effect| is_no_single_process(effect),
        why: "each connection and channel is processes that start and end",
    },
    Relation {
        cause: "BT070",
        effects: &["BT004"],
        is_meant: |cause, effect| cause.has(&Signal::DrivesMost) && is_its_own(effect),
        why: "the schedulers work mostly for these, and the VM's own threads wait for each other's CPU",
    },
    Relation {
        cause: "BT083",
        effects: &["BT011", "BT039", "BT046", "BT047"],
        is_meant: |cause, effect| cause.has(&Signal::DrivesMost) && is_no_single_process(effect),
        why: "the schedulers mostly set up connections",
    },
    Relation {
        cause: "BT083",
        effects: &["BT004"],
        is_meant: |cause, effect| cause.has(&Signal::DrivesMost) && is_its_own(effect),
        why: "the schedulers mostly set up connections, and the VM's own threads wait for each other's CPU",
    },
    Relation {
        cause: "BT083",
        effects: &["BT073"],
        is_meant: |cause, effect| cause.has(&Signal::DrivesMost) && runs_part(cause, effect),
        why: "each connection begins with it",
    },
    Relation {
        cause: "BT069",
        effects: &["BT004"],
        is_meant: |cause, effect| cause.has(&Signal::DrivesMost) && is_its_own(effect),
        why: "the schedulers work mostly for these, and the VM's own threads wait for each other's CPU",
    },
    Relation {
        cause: "BT085",
        effects: &["BT005", "BT006"],
        is_meant: same_subject,
        why: "each message takes it longer than the one before",
    },
    Relation {
        cause: "BT085",
        effects: &["BT073"],
        is_meant: |cause, effect| runs_all(effect, cause),
        why: "this process does it, more and more",
    },
    Relation {
        cause: "BT087",
        effects: &["BT005", "BT006", "BT053"],
        is_meant: same_subject,
        why: "each caller that waits asks it for its children",
    },
    Relation {
        cause: "BT080",
        effects: &["BT087"],
        is_meant: same_subject,
        why: "each start and end goes through the specifications that it keeps",
    },
    Relation {
        cause: "BT087",
        effects: &["BT073"],
        is_meant: |cause, effect| runs_all(effect, cause),
        why: "this supervisor does it for each request",
    },
    Relation {
        cause: "BT084",
        effects: &["BT027"],
        is_meant: |cause, effect| {
            both_grow(cause, effect, MemoryKind::Ets) || both_grow(cause, effect, MemoryKind::Binary)
        },
        why: "most of what grows is this table",
    },
    Relation {
        cause: "BT084",
        effects: &["BT026"],
        is_meant: |cause, effect| cause.level >= MIN_LEVEL && same_subject(cause, effect),
        why: "its rows keep these binaries, and nobody deletes them",
    },
    Relation {
        cause: "BT071",
        effects: &["BT027"],
        is_meant: |_, effect| effect.has(&Signal::Grows(MemoryKind::Binary)),
        why: "messages that nobody takes stay in the queue",
    },
    Relation {
        cause: "BT053",
        effects: &["BT005", "BT006", "BT043"],
        is_meant: |cause, effect| effect.subject.as_ref().is_some_and(|last| waits_for(cause, last)),
        why: "they wait for it at the end of the chain",
    },
    Relation {
        cause: "BT005",
        effects: &["BT055", "BT068"],
        is_meant: is_its_work,
        why: "this process does it for each of its waiters",
    },
    Relation {
        cause: "BT053",
        effects: &["BT055", "BT068"],
        is_meant: is_its_work,
        why: "this process does it for each of its waiters",
    },
    Relation {
        cause: "BT013",
        effects: &["BT059"],
        is_meant: always,
        why: "each wait looks through all descriptors",
    },
];
