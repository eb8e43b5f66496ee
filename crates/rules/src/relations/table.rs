//! Which rule's findings lead to which others'.

mod memory_and_load;

use beamtune_model::{Finding, Level, MemoryKind, Signal, Subject, Use};

use super::conditions::{
    always, drives, ends_are_logged, gives_up_on, is_no_single_process, is_of_main_runner,
    is_one_of_waited_for, is_other_end, is_single_process, is_unused, may_be_the_hosts, of_loading, runs,
    runs_all, runs_some, same_subject, stands_in_send, starts_connections, starts_them_anew, takes_long,
    takes_most_of, takes_quarter, takes_turns, waits_for, waits_there,
};

/// One thing that leads to another.
pub(super) struct Relation {
    pub(super) cause: &'static str,
    pub(super) effects: &'static [&'static str],
    /// Of the two findings, where that is not always so.
    pub(super) is_meant: fn(cause: &Finding, effect: &Finding) -> bool,
    /// A sentence without a full stop.
    pub(super) why: &'static str,
}

/// All of them. Of two that may be the cause the first one that was found counts.
pub(super) fn relations() -> impl Iterator<Item = &'static Relation> {
    WAITING_AND_CPU.iter().chain(memory_and_load::MEMORY_AND_LOAD)
}

const WAITING_AND_CPU: &[Relation] = &[
    Relation {
        cause: "BT040",
        effects: &["BT006"],
        is_meant: same_subject,
        why: "messages that nobody takes are what the queue holds",
    },
    Relation {
        cause: "BT040",
        effects: &["BT015"],
        is_meant: waits_there,
        why: "messages that nobody takes wait for ever",
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
        why: "each hibernation collects the whole heap, and gives back what it took",
    },
    Relation {
        cause: "BT078",
        effects: &["BT073"],
        is_meant: same_subject,
        why: "going into hibernation and coming out of it is most of what these processes do",
    },
    Relation {
        cause: "BT082",
        effects: &["BT005", "BT011", "BT016", "BT017", "BT029", "BT031", "BT046", "BT047", "BT080"],
        is_meant: runs,
        why: "what a process is started with is copied in one piece, and becomes garbage with it",
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
        why: "searching whole tables is what it does all the time",
    },
    Relation {
        cause: "BT053",
        effects: &["BT007", "BT008"],
        is_meant: |cause, _| cause.has(&Signal::Backlog),
        why: "those who wait pile up, with their connections",
    },
    Relation {
        cause: "BT074",
        effects: &["BT007", "BT008", "BT010"],
        is_meant: |cause, _| cause.has(&Signal::Backlog),
        why: "those who wait pile up, with their connections and tables",
    },
    Relation {
        cause: "BT086",
        effects: &["BT053"],
        is_meant: same_subject,
        why: "no answer comes from a node that cannot be connected to",
    },
    Relation {
        cause: "BT086",
        effects: &["BT005", "BT006", "BT074"],
        is_meant: |_, effect| matches!(&effect.subject, Some(Subject::Process { name: Some(name), .. }) if name == "net_kernel"),
        why: "each attempt is its work",
    },
    Relation {
        cause: "BT055",
        effects: &["BT005", "BT006", "BT053"],
        is_meant: drives,
        why: "copying its answers is what it does most of the time",
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
        why: "searching its queue is what it does all the time",
    },
    Relation {
        cause: "BT043",
        effects: &["BT005"],
        // Of very many it is not asked whose they are.
        is_meant: |cause, effect| {
            (cause.subject.is_none() || same_subject(cause, effect)) && effect.has(&Signal::ScansOwnState)
        },
        why: "it goes through all that it has, and has one for each of them",
    },
    Relation {
        cause: "BT066",
        effects: &["BT015"],
        is_meant: |_, effect| {
            [Use::Outside, Use::Nothing, Use::Turns].into_iter().any(|why| is_unused(effect, why))
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
        why: "callers that have given up end, and that is what is logged",
    },
    Relation {
        cause: "BT053",
        effects: &["BT063"],
        is_meant: gives_up_on,
        why: "a call that is not answered in time ends its caller",
    },
    Relation {
        cause: "BT063",
        effects: &["BT042"],
        is_meant: |cause, effect| cause.level > Level::Notice && effect.has(&Signal::LogsEnds),
        why: "each end with an error is logged, with the state of the process",
    },
    Relation {
        cause: "BT063",
        effects: &["BT039"],
        is_meant: starts_them_anew,
        why: "each end with an error is followed by a new process",
    },
    Relation {
        cause: "BT042",
        effects: &["BT005", "BT006", "BT053"],
        is_meant: same_subject,
        why: "one process writes what all log",
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
        why: "a process that stands in a send takes no messages",
    },
    Relation {
        cause: "BT044",
        effects: &["BT015"],
        is_meant: waits_there,
        why: "it is the peer that is waited for",
    },
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
        why: "it is one of those that they wait for",
    },
    Relation {
        cause: "BT074",
        effects: &["BT006", "BT015", "BT053"],
        // Of several processes for which others wait, each one follows from that.
        is_meant: |cause, effect| {
            (effect.code.0 != "BT053" || is_single_process(effect)) && same_subject(cause, effect)
        },
        why: "while it waits outside of the node it takes no messages",
    },
    Relation {
        cause: "BT053",
        effects: &["BT006"],
        is_meant: |cause, effect| is_single_process(cause) && same_subject(cause, effect),
        why: "requests of those who wait are what the queue holds",
    },
    Relation {
        cause: "BT053",
        effects: &["BT015"],
        is_meant: waits_there,
        why: "what they wait for is not there",
    },
    Relation {
        cause: "BT053",
        effects: &["BT015"],
        is_meant: |cause, effect| takes_turns(effect, cause),
        why: "it lets one of them go on at a time",
    },
    Relation {
        cause: "BT053",
        effects: &["BT054"],
        is_meant: |cause, _| cause.subject.as_ref().is_some_and(starts_connections),
        why: "those that accept wait there until a connection is started, or one ends",
    },
    Relation {
        cause: "BT015",
        effects: &["BT053"],
        is_meant: |cause, effect| effect.level == Level::Notice && takes_turns(cause, effect),
        why: "it may be what they take turns for, or who gives out work",
    },
    Relation {
        cause: "BT057",
        effects: &["BT005", "BT006", "BT015"],
        is_meant: of_loading,
        why: "looking for modules, or asking all processes about them, is what it does",
    },
    Relation {
        cause: "BT057",
        effects: &["BT048", "BT032", "BT011"],
        is_meant: |cause, _| matches!(&cause.subject, Some(Subject::Process { name: Some(name), .. }) if name == "erts_code_purger"),
        why: "modules that go take their literals along, and whoever refers to these is collected",
    },
    Relation {
        cause: "BT019",
        effects: &["BT016", "BT017", "BT011"],
        is_meant: |_, effect| takes_long(effect),
        why: "whoever needs a page that is swapped out waits for the disk",
    },
    Relation {
        cause: "BT003",
        effects: &["BT002"],
        is_meant: |_, effect| effect.has(&Signal::QuotaSuffices),
        why: "the quota suffices for what the VM uses, but not for so many schedulers at once",
    },
    Relation {
        cause: "BT003",
        effects: &["BT016", "BT017"],
        is_meant: may_be_the_hosts,
        why: "threads that lose their CPU in the middle of a slice or of a collection seem to take long for it",
    },
    Relation {
        cause: "BT002",
        effects: &["BT016", "BT017"],
        is_meant: may_be_the_hosts,
        why: "threads that a quota stops in the middle of a slice or of a collection seem to take long for it",
    },
    Relation {
        cause: "BT002",
        effects: &["BT015"],
        is_meant: |_, effect| is_unused(effect, Use::Quota),
        why: "the quota takes the CPU that is not used",
    },
    Relation {
        cause: "BT002",
        effects: &["BT054", "BT079"],
        is_meant: |_, effect| effect.has(&Signal::ShortOfCpu),
        why: "whoever accepts or reads is stopped with all others when the quota is used up",
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
        why: "bound threads that lose their CPU in the middle of a slice or of a collection seem to take long for it",
    },
    Relation {
        cause: "BT049",
        effects: &["BT015"],
        is_meant: |_, effect| is_unused(effect, Use::Others),
        why: "others have the CPUs that the schedulers are bound to",
    },
    Relation {
        cause: "BT049",
        effects: &["BT054", "BT079"],
        is_meant: |_, effect| effect.has(&Signal::ShortOfCpu),
        why: "whoever accepts or reads waits with all others for CPUs that others use",
    },
    Relation {
        cause: "BT004",
        effects: &["BT054", "BT079"],
        is_meant: |_, effect| effect.has(&Signal::ShortOfCpu),
        why: "whoever accepts or reads waits with all others for a CPU",
    },
    Relation {
        cause: "BT004",
        effects: &["BT016", "BT017"],
        is_meant: may_be_the_hosts,
        why: "threads that lose their CPU in the middle of a slice or of a collection seem to take long for it",
    },
    Relation {
        cause: "BT004",
        effects: &["BT015"],
        is_meant: |_, effect| is_unused(effect, Use::Others) || is_unused(effect, Use::Stolen),
        why: "others have the CPU that is not used",
    },
    Relation {
        cause: "BT035",
        effects: &["BT054", "BT079"],
        is_meant: |_, effect| effect.has(&Signal::ShortOfCpu),
        why: "whoever accepts or reads waits with all others for a scheduler",
    },
    Relation {
        cause: "BT065",
        effects: &["BT054", "BT079"],
        is_meant: |_, effect| effect.has(&Signal::ShortOfCpu),
        why: "whoever accepts or reads waits with all others for a scheduler",
    },
    Relation {
        cause: "BT065",
        effects: &["BT007"],
        is_meant: |cause, _| cause.has(&Signal::Backlog),
        why: "processes come faster than they end",
    },
    Relation {
        cause: "BT065",
        effects: &["BT027"],
        is_meant: |cause, effect| {
            cause.has(&Signal::Backlog) && effect.has(&Signal::Grows(MemoryKind::Processes))
        },
        why: "processes come faster than they end",
    },
    Relation {
        cause: "BT033",
        effects: &["BT015"],
        is_meant: |_, effect| is_unused(effect, Use::Locks),
        why: "these are the locks that schedulers wait for",
    },
    Relation {
        cause: "BT005",
        effects: &["BT006"],
        is_meant: same_subject,
        why: "one process cannot take more than one scheduler gives it",
    },
    Relation {
        cause: "BT005",
        effects: &["BT015"],
        is_meant: |_, effect| is_unused(effect, Use::SerialProcess),
        why: "one process uses one core at most",
    },
    Relation {
        cause: "BT048",
        effects: &["BT032"],
        is_meant: always,
        why: "whoever refers to a persistent term that goes is collected",
    },
    Relation {
        cause: "BT048",
        effects: &["BT011"],
        // A kind may be those that refer to the term.
        is_meant: |_, effect| is_no_single_process(effect),
        why: "whoever refers to a persistent term that goes is collected",
    },
    Relation {
        cause: "BT047",
        effects: &["BT011"],
        // New processes that were hardly ever seen have no kind; what was seen is then only a guess.
        is_meant: |cause, effect| {
            effect.subject.is_none()
                || same_subject(cause, effect)
                || cause.subject.is_none() && is_no_single_process(effect)
        },
        why: "these are the collections of new processes",
    },
    Relation {
        cause: "BT046",
        effects: &["BT015"],
        is_meant: |cause, effect| cause.level > Level::Notice && is_unused(effect, Use::Locks),
        why: "threads stand still in page faults, and wait for each other to map memory",
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
        why: "dirty schedulers collect large heaps beside the normal ones",
    },
    Relation {
        cause: "BT073",
        effects: &["BT004"],
        is_meant: |cause, effect| takes_quarter(cause) && effect.has(&Signal::OwnThreads),
        why: "it is what most of these threads run",
    },
    Relation {
        cause: "BT073",
        effects: &["BT035"],
        is_meant: |cause, _| cause.has(&Signal::NeverWaits),
        why: "a loop that never waits takes each scheduler that is added; only a batch job ends sooner by it",
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
        why: "it is this process that does it",
    },
    Relation {
        cause: "BT015",
        effects: &["BT073"],
        is_meant: |cause, effect| effect.has(&Signal::WhereOnly) && is_unused(cause, Use::Turns),
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
        why: "it is what these processes do most of the time",
    },
    Relation {
        cause: "BT017",
        effects: &["BT011"],
        is_meant: same_subject,
        why: "it is this process whose collections take so long",
    },
    Relation {
        cause: "BT011",
        effects: &["BT012"],
        is_meant: |_, effect| effect.has(&Signal::Collects),
        why: "large heaps are collected by dirty CPU schedulers, and that is most of what these do",
    },
];
