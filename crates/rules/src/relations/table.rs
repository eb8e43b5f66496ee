//! The table of relations: which rule's findings cause which others.

mod memory_and_load;

use beamtune_model::{CpuUse, Finding, Level, MemoryKind, Signal, Subject};

use super::conditions::{
    always, drives, ends_are_logged, gives_up_on, is_no_single_process, is_of_main_runner,
    is_one_of_waited_for, is_other_end, is_single_process, is_unused, may_be_the_hosts, of_loading, runs,
    runs_all, runs_some, same_subject, stands_in_send, starts_connections, starts_them_anew, takes_long,
    takes_most_of, takes_quarter, takes_turns, waits_for, waits_there,
};

/// Findings of one rule cause findings of others.
pub(super) struct Relation {
    pub(super) cause: &'static str,
    pub(super) effects: &'static [&'static str],
    /// Condition on the two findings under which the relation applies.
    pub(super) is_meant: fn(cause: &Finding, effect: &Finding) -> bool,
    /// The reason, without a full stop.
    pub(super) why: &'static str,
}

/// All relations. If several causes are possible, the first one applies.
pub(super) fn relations() -> impl Iterator<Item = &'static Relation> {
    WAITING_AND_CPU.iter().chain(memory_and_load::MEMORY_AND_LOAD)
}

const WAITING_AND_CPU: &[Relation] = &[
    Relation {
        cause: "BT040",
        effects: &["BT006"],
        is_meant: same_subject,
        why: "the queue holds messages that nobody takes",
    },
    Relation {
        cause: "BT040",
        effects: &["BT015"],
        is_meant: waits_there,
        why: "messages that nobody takes wait indefinitely",
    },
    Relation {
        cause: "BT076",
        effects: &["BT005", "BT006", "BT011", "BT042", "BT053", "BT062", "BT073", "BT085"],
        is_meant: same_subject,
        why: "it handles the traces",
    },
    Relation {
        cause: "BT078",
        effects: &["BT011", "BT017", "BT029", "BT046"],
        is_meant: runs,
        why: "each hibernation is a fullsweep, and releases the heap",
    },
    Relation {
        cause: "BT078",
        effects: &["BT073"],
        is_meant: same_subject,
        why: "these processes mostly hibernate and wake up",
    },
    Relation {
        cause: "BT082",
        effects: &["BT005", "BT011", "BT016", "BT017", "BT029", "BT031", "BT046", "BT047", "BT080"],
        is_meant: runs,
        why: "the arguments of a new process are copied in one piece, and become garbage when it exits",
    },
    Relation {
        cause: "BT080",
        effects: &["BT017", "BT027", "BT031"],
        is_meant: same_subject,
        why: "the specifications that it keeps are its heap",
    },
    Relation {
        cause: "BT058",
        effects: &["BT005", "BT006"],
        is_meant: same_subject,
        why: "it searches whole tables all the time",
    },
    Relation {
        cause: "BT053",
        effects: &["BT007", "BT008"],
        is_meant: |cause, _| cause.has(&Signal::Backlog),
        why: "waiting processes accumulate, with their connections",
    },
    Relation {
        cause: "BT074",
        effects: &["BT007", "BT008", "BT010"],
        is_meant: |cause, _| cause.has(&Signal::Backlog),
        why: "waiting processes accumulate, with their connections and tables",
    },
    Relation {
        cause: "BT086",
        effects: &["BT053"],
        is_meant: same_subject,
        why: "a node that cannot be reached does not reply",
    },
    Relation {
        cause: "BT086",
        effects: &["BT005", "BT006", "BT074"],
        is_meant: |_, effect| matches!(&effect.subject, Some(Subject::Process { name: Some(name), .. }) if name == "net_kernel"),
        why: "it makes each connection attempt",
    },
    Relation {
        cause: "BT055",
        effects: &["BT005", "BT006", "BT053"],
        is_meant: drives,
        why: "it mostly copies its replies",
    },
    Relation {
        cause: "BT058",
        effects: &["BT073"],
        is_meant: |cause, effect| {
            same_subject(cause, effect) || takes_most_of(cause, effect) && runs_some(cause, effect)
        },
        why: "searching whole tables is most of what this code does",
    },
    Relation {
        cause: "BT041",
        effects: &["BT005", "BT006"],
        is_meant: same_subject,
        why: "it searches its queue all the time",
    },
    Relation {
        cause: "BT043",
        effects: &["BT005"],
        // Owners of very many links or monitors are not sampled.
        is_meant: |cause, effect| {
            (cause.subject.is_none() || same_subject(cause, effect)) && effect.has(&Signal::ScansOwnState)
        },
        why: "it iterates over all of its items, and has one for each link or monitor",
    },
    Relation {
        cause: "BT066",
        effects: &["BT015"],
        is_meant: |_, effect| {
            [CpuUse::WaitingForReplies, CpuUse::NoRunnable, CpuUse::TakingTurns]
                .into_iter()
                .any(|why| is_unused(effect, why))
        },
        why: "processes that wait for a lock use no CPU",
    },
    Relation {
        cause: "BT066",
        effects: &["BT053"],
        is_meant: same_subject,
        why: "it holds the lock, or waits for it itself",
    },
    Relation {
        cause: "BT053",
        effects: &["BT042"],
        is_meant: ends_are_logged,
        why: "callers that give up exit, and each exit is logged",
    },
    Relation {
        cause: "BT053",
        effects: &["BT063"],
        is_meant: gives_up_on,
        why: "a call that times out crashes its caller",
    },
    Relation {
        cause: "BT063",
        effects: &["BT042"],
        is_meant: |cause, effect| cause.level > Level::Notice && effect.has(&Signal::LogsEnds),
        why: "each crash is logged, with the state of the process",
    },
    Relation {
        cause: "BT063",
        effects: &["BT039"],
        is_meant: starts_them_anew,
        why: "each crash is followed by a new process",
    },
    Relation {
        cause: "BT042",
        effects: &["BT005", "BT006", "BT053"],
        is_meant: same_subject,
        why: "one process writes all log events",
    },
    Relation {
        cause: "BT018",
        effects: &["BT006", "BT026", "BT027", "BT053"],
        is_meant: same_subject,
        why: "a process suspended in a send handles no messages",
    },
    Relation {
        cause: "BT018",
        effects: &["BT053"],
        is_meant: |cause, effect| effect.subject.as_ref().is_some_and(|node| waits_for(cause, node)),
        why: "their calls use the same busy connection",
    },
    Relation {
        cause: "BT044",
        effects: &["BT006"],
        is_meant: |cause, effect| same_subject(cause, effect) || stands_in_send(cause, effect),
        why: "a process that waits in a send handles no messages",
    },
    Relation { cause: "BT044", effects: &["BT015"], is_meant: waits_there, why: "work waits for the peer" },
    Relation {
        cause: "BT044",
        effects: &["BT079"],
        is_meant: is_other_end,
        why: "it is the other end of the same connection",
    },
    Relation {
        cause: "BT053",
        effects: &["BT006", "BT074"],
        is_meant: is_one_of_waited_for,
        why: "they wait for it, among others",
    },
    Relation {
        cause: "BT074",
        effects: &["BT006", "BT015", "BT053"],
        // If others wait for several processes, only the findings about each single process follow from this.
        is_meant: |cause, effect| {
            (effect.code.0 != "BT053" || is_single_process(effect)) && same_subject(cause, effect)
        },
        why: "it handles no messages while it waits outside the node",
    },
    Relation {
        cause: "BT053",
        effects: &["BT006"],
        is_meant: |cause, effect| is_single_process(cause) && same_subject(cause, effect),
        why: "the queue holds the requests of the waiters",
    },
    Relation {
        cause: "BT053",
        effects: &["BT015"],
        is_meant: waits_there,
        why: "they wait for something that is not available",
    },
    Relation {
        cause: "BT053",
        effects: &["BT015"],
        is_meant: |cause, effect| takes_turns(effect, cause),
        why: "it lets one of them continue at a time",
    },
    Relation {
        cause: "BT053",
        effects: &["BT054"],
        is_meant: |cause, _| cause.subject.as_ref().is_some_and(starts_connections),
        why: "acceptors wait there until a connection is started, or one ends",
    },
    Relation {
        cause: "BT015",
        effects: &["BT053"],
        is_meant: |cause, effect| effect.level == Level::Notice && takes_turns(cause, effect),
        why: "they may wait for their turn, or it may distribute the work",
    },
    Relation {
        cause: "BT057",
        effects: &["BT005", "BT006", "BT015"],
        is_meant: of_loading,
        why: "it searches for modules, or checks all processes for old code",
    },
    Relation {
        cause: "BT057",
        effects: &["BT048", "BT032", "BT011"],
        is_meant: |cause, _| matches!(&cause.subject, Some(Subject::Process { name: Some(name), .. }) if name == "erts_code_purger"),
        why: "purging a module removes its literals, and processes that refer to them are garbage-collected",
    },
    Relation {
        cause: "BT019",
        effects: &["BT016", "BT017", "BT011"],
        is_meant: |_, effect| takes_long(effect),
        why: "a thread that needs a swapped-out page waits for the disk",
    },
    Relation {
        cause: "BT003",
        effects: &["BT002"],
        is_meant: |_, effect| effect.has(&Signal::QuotaSuffices),
        why: "the quota covers the VM's CPU use, but not all schedulers at the same time",
    },
    Relation {
        cause: "BT003",
        effects: &["BT001"],
        is_meant: always,
        why: "each of these schedulers busy-waits, also those without a CPU of their own",
    },
    Relation {
        cause: "BT003",
        effects: &["BT016", "BT017"],
        is_meant: may_be_the_hosts,
        why: "a thread that loses its CPU during a time slice or a GC seems to take long",
    },
    Relation {
        cause: "BT002",
        effects: &["BT016", "BT017"],
        is_meant: may_be_the_hosts,
        why: "a thread that is throttled during a time slice or a GC seems to take long",
    },
    Relation {
        cause: "BT002",
        effects: &["BT015"],
        is_meant: |_, effect| is_unused(effect, CpuUse::Quota),
        why: "the quota withholds the unused CPU",
    },
    Relation {
        cause: "BT002",
        effects: &["BT054", "BT079"],
        is_meant: |_, effect| effect.has(&Signal::ShortOfCpu),
        why: "processes that accept or read are throttled like all others",
    },
    Relation {
        cause: "BT049",
        effects: &["BT004"],
        is_meant: always,
        why: "a thread that is bound cannot leave a CPU that others use",
    },
    Relation {
        cause: "BT049",
        effects: &["BT016", "BT017"],
        is_meant: may_be_the_hosts,
        why: "a bound thread that loses its CPU during a time slice or a GC seems to take long",
    },
    Relation {
        cause: "BT049",
        effects: &["BT015"],
        is_meant: |_, effect| is_unused(effect, CpuUse::Neighbours),
        why: "other processes use the CPUs that the schedulers are bound to",
    },
    Relation {
        cause: "BT049",
        effects: &["BT054", "BT079"],
        is_meant: |_, effect| effect.has(&Signal::ShortOfCpu),
        why: "processes that accept or read wait, like all others, for CPUs that others use",
    },
    Relation {
        cause: "BT004",
        effects: &["BT054", "BT079"],
        is_meant: |_, effect| effect.has(&Signal::ShortOfCpu),
        why: "processes that accept or read wait for a CPU, like all others",
    },
    Relation {
        cause: "BT004",
        effects: &["BT016", "BT017"],
        is_meant: may_be_the_hosts,
        why: "a thread that loses its CPU during a time slice or a GC seems to take long",
    },
    Relation {
        cause: "BT004",
        effects: &["BT015"],
        is_meant: |_, effect| is_unused(effect, CpuUse::Neighbours) || is_unused(effect, CpuUse::Steal),
        why: "other processes use the CPU that the node does not use",
    },
    Relation {
        cause: "BT035",
        effects: &["BT054", "BT079"],
        is_meant: |_, effect| effect.has(&Signal::ShortOfCpu),
        why: "processes that accept or read wait for a scheduler, like all others",
    },
    Relation {
        cause: "BT065",
        effects: &["BT054", "BT079"],
        is_meant: |_, effect| effect.has(&Signal::ShortOfCpu),
        why: "processes that accept or read wait for a scheduler, like all others",
    },
    Relation {
        cause: "BT065",
        effects: &["BT007"],
        is_meant: |cause, _| cause.has(&Signal::Backlog),
        why: "processes start faster than they exit",
    },
    Relation {
        cause: "BT065",
        effects: &["BT027"],
        is_meant: |cause, effect| {
            cause.has(&Signal::Backlog) && effect.has(&Signal::Grows(MemoryKind::Processes))
        },
        why: "processes start faster than they exit",
    },
    Relation {
        cause: "BT033",
        effects: &["BT015"],
        is_meant: |_, effect| is_unused(effect, CpuUse::Locks),
        why: "these are the locks that schedulers wait for",
    },
    Relation {
        cause: "BT005",
        effects: &["BT006"],
        is_meant: same_subject,
        why: "one process can use one scheduler at most",
    },
    Relation {
        cause: "BT005",
        effects: &["BT015"],
        is_meant: |_, effect| is_unused(effect, CpuUse::SerialProcess),
        why: "one process uses one core at most",
    },
    Relation {
        cause: "BT048",
        effects: &["BT032"],
        is_meant: always,
        why: "processes that refer to an erased persistent term are garbage-collected",
    },
    Relation {
        cause: "BT048",
        effects: &["BT011"],
        // The processes of a kind may be those that refer to the term.
        is_meant: |_, effect| is_no_single_process(effect),
        why: "processes that refer to an erased persistent term are garbage-collected",
    },
    Relation {
        cause: "BT047",
        effects: &["BT011"],
        // New processes that were hardly ever sampled have no kind. What was sampled is then only a guess.
        is_meant: |cause, effect| {
            effect.subject.is_none()
                || same_subject(cause, effect)
                || cause.subject.is_none() && is_no_single_process(effect)
        },
        why: "these are the GCs of new processes",
    },
    Relation {
        cause: "BT046",
        effects: &["BT015"],
        is_meant: |cause, effect| cause.level > Level::Notice && is_unused(effect, CpuUse::Locks),
        why: "threads are blocked in page faults, and wait for each other to map memory",
    },
    Relation {
        cause: "BT003",
        effects: &["BT004"],
        is_meant: |_, effect| effect.has(&Signal::OwnThreads),
        why: "more schedulers than CPUs take turns on them",
    },
    Relation {
        cause: "BT011",
        effects: &["BT004"],
        is_meant: |cause, effect| takes_quarter(cause) && effect.has(&Signal::OwnThreads),
        why: "dirty schedulers run GC of large heaps while the normal ones run",
    },
    Relation {
        cause: "BT073",
        effects: &["BT004"],
        is_meant: |cause, effect| takes_quarter(cause) && effect.has(&Signal::OwnThreads),
        why: "most of these threads run it",
    },
    Relation {
        cause: "BT073",
        effects: &["BT035"],
        is_meant: |cause, _| cause.has(&Signal::NeverWaits),
        why: "a loop that never waits also uses up added schedulers; only a batch job finishes sooner",
    },
    Relation {
        cause: "BT005",
        effects: &["BT011", "BT073"],
        is_meant: |cause, effect| {
            let runs_it = match effect.has(&Signal::WhereOnly) {
                true => is_of_main_runner(effect, cause),
                false => runs_all(effect, cause),
            };
            cause.level >= effect.level && (same_subject(cause, effect) || runs_it)
        },
        why: "this process runs this code or GC",
    },
    Relation {
        cause: "BT015",
        effects: &["BT073"],
        is_meant: |cause, effect| effect.has(&Signal::WhereOnly) && is_unused(cause, CpuUse::TakingTurns),
        why: "this work is serial",
    },
    Relation {
        cause: "BT073",
        effects: &["BT011", "BT017", "BT045", "BT046", "BT029"],
        is_meant: |cause, effect| {
            let is_of_tables = effect.is_about(&Subject::allocator("ets_alloc"));
            cause.has(&Signal::Allocates) && runs(cause, effect) && !is_of_tables
        },
        why: "most of this memory is allocated there",
    },
    Relation {
        cause: "BT073",
        effects: &["BT011"],
        is_meant: is_of_main_runner,
        why: "these processes run this code most of the time",
    },
    Relation {
        cause: "BT017",
        effects: &["BT011"],
        is_meant: same_subject,
        why: "the long GCs are of this process",
    },
    Relation {
        cause: "BT011",
        effects: &["BT012"],
        is_meant: |_, effect| effect.has(&Signal::Collects),
        why: "dirty CPU schedulers run GC of large heaps most of the time",
    },
];
