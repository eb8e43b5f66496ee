//! Which finding follows from which other one.
//!
//! Two ways lead there. A table names pairs of rules of which one is known to lead to the other, with the condition and the reason. And
//! claims compete: where a cause claims most of the part of the CPU's account that a symptom claims, the symptom follows from it. Both go by
//! codes, subjects, claims and signals, never by text.

mod conditions;

use beamtune_model::diagnosis::compare;
use beamtune_model::{Finding, Follows, HostPart, Level, MemoryKind, Outcome, Signal, Subject, Use, Verdict};

use conditions::{
    always, drives_most, ends_are_logged, gives_up_on, has_the_cpu, is_about_flag, is_its_own,
    is_no_single_process, is_unused, may_be_the_hosts, of_loading, runs, runs_all, runs_part,
    runs_programs_all_the_time, same_subject, starts_them_anew, takes_half, takes_long, takes_quarter,
    takes_turns, waits_for, waits_there,
};

use crate::rule::Role;
use crate::signals::acceptors::RANCH_STARTS;

/// One thing that leads to another.
struct Relation {
    cause: &'static str,
    effects: &'static [&'static str],
    /// Of the two findings, where that is not always so.
    is_meant: fn(cause: &Finding, effect: &Finding) -> bool,
    /// A sentence without a full stop.
    why: &'static str,
}

/// Too many processes for the schedulers.
const OVERLOAD: &str = "BT065";

/// Of two that may be the cause the first one that was found is told.
const RELATIONS: &[Relation] = &[
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
        effects: &["BT005", "BT006", "BT011", "BT042", "BT053", "BT062", "BT073"],
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
        is_meant: same_subject,
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
            cause.level >= effect.level && (same_subject(cause, effect) || runs_all(effect, cause))
        },
        why: "it is this process that does it",
    },
    Relation {
        cause: "BT073",
        effects: &["BT011", "BT017", "BT046", "BT029"],
        is_meant: |cause, effect| cause.has(&Signal::Allocates) && runs(cause, effect),
        why: "most of this memory is allocated there",
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
        cause: "BT026",
        effects: &["BT027"],
        is_meant: |cause, effect| {
            cause.level >= LEAST
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
        effects: &["BT011"],
        is_meant: always,
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
        effects: &["BT005", "BT006", "BT011", "BT026", "BT046", "BT055"],
        is_meant: drives_most,
        why: "the same messages pass through these processes again and again",
    },
    Relation {
        cause: "BT069",
        effects: &["BT071"],
        is_meant: same_subject,
        why: "what is requeued comes before all other messages of the queue",
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
        cause: "BT071",
        effects: &["BT027"],
        is_meant: |_, effect| effect.has(&Signal::Grows(MemoryKind::Binary)),
        why: "messages that nobody takes stay in the queue",
    },
    Relation {
        cause: "BT013",
        effects: &["BT059"],
        is_meant: always,
        why: "each wait looks through all descriptors",
    },
];

/// A supervisor of Ranch that starts connections.
fn starts_connections(subject: &Subject) -> bool {
    subject.names().iter().any(|name| name.starts_with(RANCH_STARTS))
}

/// Below this a cause explains nothing, but for rules that say otherwise.
const LEAST: Level = Level::Warning;

/// Whether a finding explains others.
fn explains(cause: &Finding) -> bool {
    cause.level >= LEAST || crate::rule(cause.code.0).is_some_and(|rule| rule.explains_as_notice)
}

/// Causes that claim at least this share of what a symptom claims explain it (judgement: more than half).
const EXPLAINS: f64 = 0.5;

/// Why a symptom follows from causes that claim the same.
const CLAIMS_THE_SAME: &str = "it takes most of the CPU time that this finding counts";

/// The rule that judges flags by themselves, whatever the recording shows of them.
const BY_FLAG: &str = "BT064";

/// Takes away findings about a flag by itself where another finding says as much of that flag: what it does to this node is more than what it
/// may do.
pub fn drop_repeated(verdicts: &mut [Verdict]) {
    let says_as_much = |finding: &Finding, other: &Finding| {
        let is_same = finding.subject.as_ref().is_some_and(|subject| other.is_about(subject));
        let entry = finding.remedies.first().map(|remedy| remedy.entry.as_str());
        let mends_it = other.remedies.iter().any(|remedy| Some(remedy.entry.as_str()) == entry);
        other.code.0 != BY_FLAG && !other.latent && other.level >= finding.level && (is_same || mends_it)
    };
    let told: Vec<(usize, usize)> = findings(verdicts)
        .filter(|(_, finding)| finding.code.0 == BY_FLAG)
        .filter(|(_, finding)| findings(verdicts).any(|(_, other)| says_as_much(finding, other)))
        .map(|(place, _)| place)
        .collect();
    for (verdict, finding) in told.into_iter().rev() {
        let Some(Verdict { outcome, .. }) = verdicts.get_mut(verdict) else { continue };
        if let Outcome::Found(found) = outcome {
            found.remove(finding);
            if found.is_empty() {
                *outcome = Outcome::Healthy("what is wrong with its flags, other findings say".to_owned());
            }
        }
    }
}

/// Sets what each finding follows from, in place of what was set before.
pub fn relate(verdicts: &mut [Verdict]) {
    for verdict in verdicts.iter_mut() {
        if let Outcome::Found(found) = &mut verdict.outcome {
            found.iter_mut().for_each(|finding| finding.follows = None);
        }
    }
    let mut follows = Vec::new();
    for (place, effect) in findings(verdicts) {
        let known = by_table(verdicts, effect);
        let competed = || by_claims(verdicts, effect);
        if let Some((cause, explained)) = known.map(|cause| (cause, None)).or_else(competed) {
            follows.push((place, cause, explained));
        }
    }
    for ((verdict, finding), cause, explained) in follows {
        if let Some(Verdict { outcome: Outcome::Found(found), .. }) = verdicts.get_mut(verdict)
            && let Some(finding) = found.get_mut(finding)
        {
            finding.follows = Some(cause);
            if let Some(claim) = &mut finding.claim {
                claim.explained = explained.or(claim.explained);
            }
        }
    }
}

/// By the table of relations.
fn by_table(verdicts: &[Verdict], effect: &Finding) -> Option<Follows> {
    by_overload(verdicts, effect).or_else(|| by_pairs(verdicts, effect))
}

/// Why processes wait for schedulers: what uses the CPU, or has it in place of the node.
fn by_overload(verdicts: &[Verdict], effect: &Finding) -> Option<Follows> {
    if effect.code.0 != OVERLOAD {
        return None;
    }
    let is_cause = |cause: &&Finding| explains(cause) && (has_the_cpu(cause) || takes_half(cause));
    // What never waits comes first: fewer schedulers than CPUs follow from it, too.
    let waits = |cause: &Finding| !cause.has(&Signal::NeverWaits);
    let (_, cause) = findings(verdicts)
        .filter(|(_, cause)| is_cause(cause))
        .min_by(|a, b| waits(a.1).cmp(&waits(b.1)).then_with(|| compare(a.1, b.1)))?;
    let why = match has_the_cpu(cause) {
        true => "what waits for a scheduler waits for the CPU that these lack",
        false => "half of the CPU or more goes into it, and what is left does not suffice",
    };
    Some(Follows { code: cause.code, rule: cause.rule, why })
}

fn by_pairs(verdicts: &[Verdict], effect: &Finding) -> Option<Follows> {
    RELATIONS.iter().filter(|relation| relation.effects.contains(&effect.code.0)).find_map(|relation| {
        let is_cause = |cause: &&Finding| {
            cause.code.0 == relation.cause && explains(cause) && (relation.is_meant)(cause, effect)
        };
        let (_, cause) = findings(verdicts).find(|(_, cause)| is_cause(cause))?;
        Some(Follows { code: cause.code, rule: cause.rule, why: relation.why })
    })
}

/// By claims of causes on the same part of the CPU's account, with how much of it they explain, in cores.
fn by_claims(verdicts: &[Verdict], effect: &Finding) -> Option<(Follows, Option<f64>)> {
    let claim = effect.claim.filter(|claim| claim.part.is_some())?;
    if role(effect) != Role::Symptom {
        return None;
    }
    let competes = |cause: &&Finding| {
        let is_same_part =
            cause.claim.is_some_and(|other| (other.account, other.part) == (claim.account, claim.part));
        let pid = |finding: &Finding| finding.subject.as_ref().and_then(Subject::pid).map(str::to_owned);
        let is_elsewhere = pid(cause).zip(pid(effect)).is_some_and(|(one, other)| one != other);
        cause.code != effect.code
            && role(cause) == Role::Cause
            && cause.level >= LEAST
            && is_same_part
            && !is_elsewhere
    };
    let cores = |finding: &Finding| finding.claim.map_or(0.0, |claim| claim.cost.value());
    let causes: Vec<&Finding> = findings(verdicts).map(|(_, finding)| finding).filter(competes).collect();
    let explained = causes.iter().map(|cause| cores(cause)).sum::<f64>().min(cores(effect));
    let largest = causes.into_iter().max_by(|a, b| cores(a).total_cmp(&cores(b)))?;
    (explained >= EXPLAINS * cores(effect)).then_some((
        Follows { code: largest.code, rule: largest.rule, why: CLAIMS_THE_SAME },
        Some(explained),
    ))
}

fn role(finding: &Finding) -> Role {
    crate::rule(finding.code.0).map_or(Role::Cause, |rule| rule.role)
}

/// All findings, each with its place: of its rule, and among that rule's.
fn findings(verdicts: &[Verdict]) -> impl Iterator<Item = ((usize, usize), &Finding)> {
    verdicts.iter().enumerate().flat_map(|(verdict, judged)| {
        let found: &[Finding] = match &judged.outcome {
            Outcome::Found(found) => found,
            Outcome::Healthy(_) | Outcome::NotJudged { .. } => &[],
        };
        found.iter().enumerate().map(move |(index, finding)| ((verdict, index), finding))
    })
}

#[cfg(test)]
mod tests;
