//! Which rule's findings lead to which others'.

use beamtune_model::{Finding, HostPart, Level, MemoryKind, Signal, Subject, Use};

use super::conditions::{
    always, drives, drives_most, ends_are_logged, gives_up_on, is_about_flag, is_its_own, is_its_work,
    is_no_single_process, is_of_main_runner, is_unused, may_be_the_hosts, of_loading, runs, runs_all,
    runs_part, runs_programs_all_the_time, runs_some, same_subject, stands_in_send, starts_connections,
    starts_them_anew, takes_long, takes_most_of, takes_quarter, takes_turns, waits_for, waits_there,
};
use super::{EXPLAINS, MIN_LEVEL};

/// One thing that leads to another.
pub(super) struct Relation {
    pub(super) cause: &'static str,
    pub(super) effects: &'static [&'static str],
    /// Of the two findings, where that is not always so.
    pub(super) is_meant: fn(cause: &Finding, effect: &Finding) -> bool,
    /// A sentence without a full stop.
    pub(super) why: &'static str,
}

/// Of two that may be the cause the first one that was found is told.
pub(super) const RELATIONS: &[Relation] = &[
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
        cause: "BT074",
        effects: &["BT006", "BT015", "BT053"],
        is_meant: same_subject,
        why: "while it waits outside of the node it takes no messages",
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
    Relation {
        cause: "BT008",
        effects: &["BT026", "BT027"],
        is_meant: |cause, effect| {
            let is_of_ports = matches!(effect.subject, Some(Subject::Port { .. }));
            cause.has(&Signal::Grows(MemoryKind::Binary)) && is_of_ports
        },
        why: "what waits unsent in sockets whose process has ended are these binaries",
    },
    Relation {
        cause: "BT026",
        effects: &["BT027"],
        is_meant: |cause, effect| {
            cause.level >= MIN_LEVEL
                && same_subject(cause, effect)
                && effect.has(&Signal::Grows(MemoryKind::Binary))
        },
        why: "what it keeps are the binaries that become more",
    },
    Relation {
        cause: "BT026",
        effects: &["BT032"],
        is_meant: |cause, effect| {
            matches!(cause.subject, Some(Subject::Table { .. })) && effect.has(&Signal::BinariesStay)
        },
        why: "these binaries are no garbage: however often all are collected, they stay, and whoever wants them gone goes on",
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
        why: "what a full super carrier cannot give is mapped, and unmapped again, by itself",
    },
    Relation {
        cause: "BT032",
        effects: &["BT011", "BT073"],
        is_meant: |cause, effect| effect.code.0 != "BT073" || runs_all(effect, cause),
        why: "these collections are asked for",
    },
    Relation {
        cause: "BT036",
        effects: &["BT004", "BT015"],
        is_meant: |cause, effect| {
            let is_steal = effect.is_about(&Subject::host(HostPart::Steal)) || is_unused(effect, Use::Stolen);
            cause.has(&Signal::CreditsSpent) && is_steal
        },
        why: "an instance without credits is given a part of its CPUs only",
    },
    Relation {
        cause: "BT060",
        effects: &["BT004", "BT015"],
        is_meant: |_, effect| {
            effect.is_about(&Subject::host(HostPart::Programs)) || is_unused(effect, Use::Programs)
        },
        why: "these are the programs that have the CPU",
    },
    Relation {
        cause: "BT060",
        effects: &["BT005", "BT006", "BT053"],
        is_meant: |cause, effect| runs_programs_all_the_time(cause) && same_subject(cause, effect),
        why: "it waits for its program, which is at work nearly all the time",
    },
    Relation {
        cause: "BT060",
        effects: &["BT015"],
        is_meant: |cause, effect| runs_programs_all_the_time(cause) && waits_there(cause, effect),
        why: "what work waits for waits for a program that is at work nearly all the time",
    },
    Relation {
        cause: "BT060",
        effects: &["BT002"],
        // Their share of what the quota allows.
        is_meant: |cause, _| cause.claim.and_then(|claim| claim.share).is_some_and(|share| share >= EXPLAINS),
        why: "programs that the node started use up most of the quota",
    },
    Relation {
        cause: "BT060",
        effects: &["BT016", "BT017"],
        is_meant: may_be_the_hosts,
        why: "threads that lose their CPU in the middle of a slice or of a collection seem to take long for it",
    },
    Relation {
        cause: "BT060",
        effects: &["BT054", "BT079"],
        is_meant: |_, effect| effect.has(&Signal::ShortOfCpu),
        why: "whoever accepts or reads waits with all others for a CPU that programs have",
    },
    Relation {
        cause: "BT062",
        effects: &["BT005", "BT006", "BT053"],
        is_meant: |cause, effect| cause.has(&Signal::LowPriority) && same_subject(cause, effect),
        why: "at priority low it has one turn for eight of the others",
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
        why: "what comes again takes the consumers' time from all other messages of the queue",
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
        why: "most of what the schedulers do is for these, and it is the VM's own threads that wait for each other's CPU",
    },
    Relation {
        cause: "BT083",
        effects: &["BT011", "BT039", "BT046", "BT047"],
        is_meant: |cause, effect| cause.has(&Signal::DrivesMost) && is_no_single_process(effect),
        why: "setting up connections is most of what the schedulers do",
    },
    Relation {
        cause: "BT083",
        effects: &["BT004"],
        is_meant: |cause, effect| cause.has(&Signal::DrivesMost) && is_its_own(effect),
        why: "setting up connections is most of what the schedulers do, and it is the VM's own threads that wait for each other's CPU",
    },
    Relation {
        cause: "BT083",
        effects: &["BT073"],
        is_meant: |cause, effect| cause.has(&Signal::DrivesMost) && runs_part(cause, effect),
        why: "it is work that each connection begins with",
    },
    Relation {
        cause: "BT069",
        effects: &["BT004"],
        is_meant: |cause, effect| cause.has(&Signal::DrivesMost) && is_its_own(effect),
        why: "most of what the schedulers do is for these, and it is the VM's own threads that wait for each other's CPU",
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
        why: "it is what this process does, and ever more of it",
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
        why: "it is what this supervisor does for each request",
    },
    Relation {
        cause: "BT084",
        effects: &["BT027"],
        is_meant: |cause, effect| {
            let grows = |kind| cause.has(&Signal::Grows(kind)) && effect.has(&Signal::Grows(kind));
            grows(MemoryKind::Ets) || grows(MemoryKind::Binary)
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
        why: "it is what they wait for in the end",
    },
    Relation {
        cause: "BT005",
        effects: &["BT055", "BT068"],
        is_meant: is_its_work,
        why: "it is what this process does for each of those who wait for it",
    },
    Relation {
        cause: "BT053",
        effects: &["BT055", "BT068"],
        is_meant: is_its_work,
        why: "it is what this process does for each of those who wait for it",
    },
    Relation {
        cause: "BT013",
        effects: &["BT059"],
        is_meant: always,
        why: "each wait looks through all descriptors",
    },
];
