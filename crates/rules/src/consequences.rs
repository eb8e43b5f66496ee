//! Which findings follow from others: a VM that a quota stops is late in everything.
//!
//! A relation is told only where the one explains the other whatever else there is; what may have several causes stands alone. Rules stay
//! without knowledge of each other, and this is done once all have judged.

use beamtune_model::{Evidence, Finding, Follows, Level, Outcome, Verdict};

use crate::acceptors::RANCH_STARTS;
use crate::rules::accept_queue::SHORT_OF_CPU;
use crate::rules::binaries_retained::TABLES;
use crate::rules::burstable_instance::ARE_SPENT;
use crate::rules::cpu_not_used::TURNS_FOR;
use crate::rules::dirty_schedulers_saturated::BY_COLLECTIONS;
use crate::rules::forced_collections::BINARIES_THAT_STAY;
use crate::rules::logger_overload::ENDING;
use crate::rules::long_gc::ON_ITS_HEAP;
use crate::rules::memory_growing::OF_BINARIES;
use crate::rules::serial_process::GOES_THROUGH_ALL;
use crate::rules::waiting_callers::GIVEN_UP;

/// One thing that leads to another.
struct Relation {
    cause: &'static str,
    effects: &'static [&'static str],
    /// Of the two findings, where that is not always so.
    is_meant: fn(cause: &Finding, effect: &Finding) -> bool,
    /// A sentence without a full stop.
    why: &'static str,
}

fn always(_: &Finding, _: &Finding) -> bool {
    true
}

fn same_subject(cause: &Finding, effect: &Finding) -> bool {
    cause.subject.is_some() && cause.subject == effect.subject
}

/// A finding that names one process names its pid, and that one makes its own garbage.
fn is_no_single_process(finding: &Finding) -> bool {
    finding.subject.as_deref().is_none_or(|subject| !subject.contains('<'))
}

/// These rules look themselves whether the time may be the host's, and make no more than a notice of it then: what is worse is the VM's.
fn may_be_the_hosts(_: &Finding, effect: &Finding) -> bool {
    effect.level == Level::Notice && takes_long(effect)
}

/// A heap that is large is so whatever the host does.
fn takes_long(effect: &Finding) -> bool {
    !effect.summary.contains(ON_ITS_HEAP)
}

/// That work waits for answers, as told of this process.
fn waits_there(cause: &Finding, effect: &Finding) -> bool {
    let subject = cause.subject.as_deref();
    effect.subject.as_deref() == Some("waiting outside")
        && subject.is_some_and(|who| effect.summary.contains(who))
}

/// The evidence of this name.
fn evidence<'a>(finding: &'a Finding, what: &str) -> Option<&'a Evidence> {
    finding.evidence.iter().find(|evidence| evidence.what == what)
}

/// That callers have given up, and that it is ends of processes which fill the log: not of those who wait for a pool that waits for the log.
fn ends_are_logged(cause: &Finding, effect: &Finding) -> bool {
    let is_log = |log: &str| cause.subject.as_deref() == Some(log) || cause.summary.contains(log);
    effect.subject.as_deref().is_some_and(|log| !is_log(log))
        && evidence(cause, GIVEN_UP).is_some()
        && evidence(effect, ENDING).is_some()
}

/// That work goes on in turns, maybe of this process.
fn takes_turns(idle: &Finding, of: &Finding) -> bool {
    let who = evidence(idle, TURNS_FOR).and_then(|evidence| evidence.text.as_deref());
    who.is_some() && who == of.subject.as_deref()
}

/// What the control group used, by a finding of its quota, was well below that.
fn quota_suffices(throttled: &Finding) -> bool {
    let number = |name| evidence(throttled, name)?.value;
    let used = number("CPU of the whole control group").or(number("CPU of the VM"));
    used.zip(number("quota")).is_some_and(|(used, quota)| used < 0.9 * quota)
}

/// That connections wait because the VM has no CPU left for accepting them.
fn is_short_of_cpu(_: &Finding, effect: &Finding) -> bool {
    effect.summary.contains(SHORT_OF_CPU)
}

/// Told of one of the processes that look for modules, load or purge them.
fn of_loading(_: &Finding, effect: &Finding) -> bool {
    let names = |text: &str| {
        ["code_server (", "erl_prim_loader (", "erts_code_purger ("].iter().any(|who| text.contains(who))
    };
    effect.subject.as_deref().is_some_and(names) || names(&effect.summary)
}

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
        is_meant: |cause, effect| same_subject(cause, effect) && evidence(effect, GOES_THROUGH_ALL).is_some(),
        why: "it goes through all that it has, and has one for each of them",
    },
    Relation {
        cause: "BT053",
        effects: &["BT042"],
        is_meant: ends_are_logged,
        why: "callers that have given up end, and that is what is logged",
    },
    Relation {
        cause: "BT042",
        effects: &["BT005", "BT006", "BT053"],
        is_meant: same_subject,
        why: "one process writes what all log",
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
        is_meant: |cause, _| cause.subject.as_deref().is_some_and(|who| who.starts_with(RANCH_STARTS)),
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
        is_meant: |cause, _| {
            cause.subject.as_deref().is_some_and(|subject| subject.starts_with("erts_code_purger"))
        },
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
        is_meant: |_, effect| quota_suffices(effect),
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
        is_meant: |_, effect| effect.subject.as_deref() == Some("quota"),
        why: "the quota takes the CPU that is not used",
    },
    Relation {
        cause: "BT002",
        effects: &["BT054"],
        is_meant: is_short_of_cpu,
        why: "whoever accepts is stopped with all others when the quota is used up",
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
        is_meant: |_, effect| effect.subject.as_deref() == Some("neighbours"),
        why: "others have the CPUs that the schedulers are bound to",
    },
    Relation {
        cause: "BT049",
        effects: &["BT054"],
        is_meant: is_short_of_cpu,
        why: "whoever accepts waits with all others for CPUs that others use",
    },
    Relation {
        cause: "BT004",
        effects: &["BT054"],
        is_meant: is_short_of_cpu,
        why: "whoever accepts waits with all others for a CPU",
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
        is_meant: |_, effect| matches!(effect.subject.as_deref(), Some("neighbours" | "steal")),
        why: "others have the CPU that is not used",
    },
    Relation {
        cause: "BT035",
        effects: &["BT054"],
        is_meant: is_short_of_cpu,
        why: "whoever accepts waits with all others for a scheduler",
    },
    Relation {
        cause: "BT033",
        effects: &["BT015"],
        is_meant: |_, effect| effect.subject.as_deref() == Some("locks"),
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
        is_meant: |_, effect| effect.subject.as_deref() == Some("one serial process"),
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
        is_meant: |cause, effect| cause.level > Level::Notice && effect.subject.as_deref() == Some("locks"),
        why: "threads stand still in page faults, and wait for each other to map memory",
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
        is_meant: |_, effect| evidence(effect, BY_COLLECTIONS).is_some(),
        why: "large heaps are collected by dirty CPU schedulers, and that is most of what these do",
    },
    Relation {
        cause: "BT026",
        effects: &["BT027"],
        is_meant: |cause, effect| {
            cause.level >= LEAST && same_subject(cause, effect) && effect.summary.contains(OF_BINARIES)
        },
        why: "what it keeps are the binaries that become more",
    },
    Relation {
        cause: "BT026",
        effects: &["BT032"],
        is_meant: |cause, effect| {
            cause.subject.as_deref() == Some(TABLES) && evidence(effect, BINARIES_THAT_STAY).is_some()
        },
        why: "these binaries are no garbage: however often all are collected, they stay, and whoever wants them gone goes on",
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
            cause.summary.contains(ARE_SPENT) && effect.subject.as_deref() == Some("steal")
        },
        why: "an instance without credits is given a part of its CPUs only",
    },
    Relation {
        cause: "BT013",
        effects: &["BT059"],
        is_meant: always,
        why: "each wait looks through all descriptors",
    },
];

/// Below this a cause explains nothing,
const LEAST: Level = Level::Warning;

/// but for what is a notice because it does nothing else, or because it is only most likely.
const EXPLANATIONS: &[&str] = &["BT015", "BT026"];

/// Notes of each finding what it follows from.
pub(crate) fn note(verdicts: &mut [Verdict]) {
    let mut follows = Vec::new();
    for (place, effect) in findings(verdicts) {
        let cause = RELATIONS.iter().filter(|relation| relation.effects.contains(&effect.code.0)).find_map(
            |relation| {
                let is_cause = |cause: &&Finding| {
                    cause.code.0 == relation.cause
                        && (cause.level >= LEAST || EXPLANATIONS.contains(&relation.cause))
                        && (relation.is_meant)(cause, effect)
                };
                let (_, cause) = findings(verdicts).find(|(_, cause)| is_cause(cause))?;
                Some(Follows { code: cause.code, rule: cause.rule, why: relation.why })
            },
        );
        follows.extend(cause.map(|cause| (place, cause)));
    }
    for ((verdict, finding), cause) in follows {
        if let Some(Verdict { outcome: Outcome::Found(found), .. }) = verdicts.get_mut(verdict)
            && let Some(finding) = found.get_mut(finding)
        {
            finding.follows = Some(cause);
        }
    }
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
mod tests {
    use beamtune_model::{Code, Unit};

    use super::*;
    use crate::RULES;

    fn finding(code: &'static str, score: f64, subject: &str) -> Finding {
        Finding {
            code: Code(code),
            rule: "rule",
            level: Level::of(score),
            score,
            summary: String::new(),
            subject: Some(subject.to_owned()),
            cost: None,
            follows: None,
            evidence: Vec::new(),
            against: Vec::new(),
            confirm: "",
            remedies: Vec::new(),
        }
    }

    /// What the last of them follows from.
    fn cause_of_last(findings: Vec<Finding>) -> Option<&'static str> {
        let verdict = |finding: Finding| Verdict {
            code: finding.code,
            rule: finding.rule,
            outcome: Outcome::Found(vec![finding]),
        };
        let mut verdicts: Vec<Verdict> = findings.into_iter().map(verdict).collect();
        note(&mut verdicts);
        let Some(Outcome::Found(found)) = verdicts.last().map(|verdict| &verdict.outcome) else {
            panic!("none")
        };
        found[0].follows.as_ref().map(|follows| follows.code.0)
    }

    #[test]
    fn what_explains_another_one_is_told() {
        let check = |findings: Vec<Finding>, expect| assert_eq!(cause_of_last(findings), expect);
        check(vec![finding("BT002", 40.0, "quota"), finding("BT016", 20.0, "a")], Some("BT002"));
        check(vec![finding("BT002", 40.0, "quota"), finding("BT016", 90.0, "a")], None);
        // Too little to explain anything.
        check(vec![finding("BT002", 10.0, "quota"), finding("BT016", 20.0, "a")], None);
        check(vec![finding("BT016", 90.0, "a")], None);
        // Connections that wait though there is CPU left wait for something else.
        let busy =
            Finding { summary: format!("the schedulers {SHORT_OF_CPU}"), ..finding("BT054", 50.0, "p") };
        check(vec![finding("BT002", 40.0, "quota"), busy], Some("BT002"));
        check(vec![finding("BT002", 40.0, "quota"), finding("BT054", 50.0, "p")], None);
        let credits =
            |said: &str| Finding { summary: said.to_owned(), ..finding("BT036", 80.0, "t3.medium") };
        let spent = credits(&format!("the CPU credits {ARE_SPENT}"));
        check(vec![spent.clone(), finding("BT004", 60.0, "steal")], Some("BT036"));
        check(vec![spent, finding("BT004", 60.0, "neighbours")], None);
        check(vec![credits("it uses more than it earns"), finding("BT004", 60.0, "steal")], None);
        // Of another process.
        check(vec![finding("BT005", 40.0, "a"), finding("BT006", 40.0, "b")], None);
        check(vec![finding("BT005", 40.0, "a"), finding("BT006", 40.0, "a")], Some("BT005"));
        // Of two causes the one that is told first.
        let both =
            vec![finding("BT002", 90.0, "q"), finding("BT019", 30.0, "s"), finding("BT017", 30.0, "a")];
        check(both, Some("BT019"));
        check(vec![finding("BT033", 40.0, "t"), finding("BT015", 40.0, "locks")], Some("BT033"));
        check(vec![finding("BT033", 40.0, "t"), finding("BT015", 40.0, "quota")], None);
        check(vec![finding("BT046", 40.0, "t"), finding("BT015", 40.0, "locks")], Some("BT046"));
        check(vec![finding("BT046", 10.0, "t"), finding("BT015", 40.0, "locks")], None);
        check(vec![finding("BT047", 40.0, "a"), finding("BT011", 40.0, "a")], Some("BT047"));
        check(vec![finding("BT047", 40.0, "a"), finding("BT011", 40.0, "b")], None);
        let of_no_kind = || Finding { subject: None, ..finding("BT047", 40.0, "") };
        check(vec![of_no_kind(), finding("BT011", 60.0, "b")], Some("BT047"));
        check(vec![of_no_kind(), finding("BT011", 60.0, "b (<0.7.0>)")], None);
    }

    #[test]
    fn a_quota_that_suffices_is_used_up_by_too_many_schedulers() {
        let throttled = |used: f64| {
            let number = |what, value| Evidence::number(what, value, Unit::Cores);
            let evidence = vec![number("quota", 1.0), number("CPU of the VM", used)];
            Finding { evidence, ..finding("BT002", 90.0, "quota") }
        };
        let check = |used, expect| {
            assert_eq!(cause_of_last(vec![finding("BT003", 40.0, "s"), throttled(used)]), expect, "{used}");
        };
        check(0.75, Some("BT003"));
        check(0.95, None);
    }

    #[test]
    fn what_a_process_does_explains_what_is_seen_of_its_queue() {
        let check = |findings: Vec<Finding>, expect| assert_eq!(cause_of_last(findings), expect);
        check(vec![finding("BT041", 60.0, "a"), finding("BT005", 80.0, "a")], Some("BT041"));
        // Not by way of another one that itself follows.
        let all = vec![finding("BT005", 80.0, "a"), finding("BT042", 60.0, "a"), finding("BT006", 30.0, "a")];
        check(all, Some("BT042"));
        let waits = |who: &str| Finding {
            summary: format!("{who} stands in x:y/1"),
            ..finding("BT015", 10.0, "waiting outside")
        };
        for cause in ["BT040", "BT044"] {
            check(vec![finding(cause, 40.0, "a (<0.9.0>)"), waits("a (<0.9.0>)")], Some(cause));
            check(vec![finding(cause, 40.0, "a (<0.9.0>)"), waits("2 processes")], None);
        }
    }

    #[test]
    fn a_log_that_is_full_of_ends_follows_from_whom_these_waited_for() {
        let with = |finding: Finding, what| Finding {
            evidence: vec![Evidence::number(what, 40.0, Unit::Count)],
            ..finding
        };
        let pool = || with(finding("BT053", 40.0, "shop_pool"), GIVEN_UP);
        let log = || with(finding("BT042", 90.0, "logger_std_h_default"), ENDING);
        let check = |pool, log, expect| assert_eq!(cause_of_last(vec![pool, log]), expect);
        check(pool(), log(), Some("BT053"));
        check(finding("BT053", 40.0, "shop_pool"), log(), None);
        check(pool(), finding("BT042", 90.0, "logger_std_h_default"), None);
        // It is the pool that waits for the log.
        let waits =
            Finding { summary: "which itself waits for logger_std_h_default in x:y/1".to_owned(), ..pool() };
        check(waits, log(), None);
        // Who waits for the log is no cause of it.
        check(with(finding("BT053", 40.0, "logger_std_h_default"), GIVEN_UP), log(), None);
    }

    #[test]
    fn work_in_turns_follows_from_who_gives_them_if_that_is_certain() {
        let idle = |who: &str| Finding {
            evidence: vec![Evidence::text(TURNS_FOR, who)],
            ..finding("BT015", 10.0, "one at a time")
        };
        assert_eq!(cause_of_last(vec![finding("BT053", 40.0, "lock"), idle("lock")]), Some("BT053"));
        assert_eq!(cause_of_last(vec![idle("lock"), finding("BT053", 20.0, "lock")]), Some("BT015"));
        assert_eq!(cause_of_last(vec![finding("BT053", 20.0, "lock"), idle("lock")]), None);
        assert_eq!(cause_of_last(vec![idle("other"), finding("BT053", 20.0, "lock")]), None);
    }

    #[test]
    fn collections_that_free_nothing_follow_from_who_keeps_the_binaries() {
        let collects = |what: &str| Finding {
            evidence: vec![Evidence::number(what, 3e8, Unit::Bytes)],
            ..finding("BT032", 40.0, "guard")
        };
        let tables = || finding("BT026", 10.0, TABLES);
        assert_eq!(cause_of_last(vec![tables(), collects(BINARIES_THAT_STAY)]), Some("BT026"));
        assert_eq!(cause_of_last(vec![finding("BT026", 40.0, "shop"), collects(BINARIES_THAT_STAY)]), None);
        // A job that comes now and then has reasons of its own.
        assert_eq!(cause_of_last(vec![tables(), collects("such moments")]), None);
    }

    #[test]
    fn what_grows_and_who_is_busy_follow_from_what_makes_them_so() {
        let with = |finding: Finding, said: &str| Finding { summary: said.to_owned(), ..finding };
        let grows = |said: &str| with(finding("BT027", 90.0, "shop (<0.77.0>)"), said);
        let check = |findings: Vec<Finding>, expect| assert_eq!(cause_of_last(findings), expect);
        let binaries = format!("{OF_BINARIES} grows");
        check(vec![finding("BT026", 40.0, "shop (<0.77.0>)"), grows(&binaries)], Some("BT026"));
        check(vec![finding("BT026", 40.0, "shop (<0.77.0>)"), grows("memory of processes grows")], None);
        check(vec![finding("BT026", 40.0, "other (<0.78.0>)"), grows(&binaries)], None);
        let busy = |evidence| Finding { evidence, ..finding("BT005", 90.0, "shop (<0.77.0>)") };
        let folds = || vec![Evidence::number(GOES_THROUGH_ALL, 0.8, Unit::Ratio)];
        check(vec![finding("BT043", 40.0, "shop (<0.77.0>)"), busy(folds())], Some("BT043"));
        check(vec![finding("BT043", 40.0, "shop (<0.77.0>)"), busy(Vec::new())], None);
        check(vec![finding("BT043", 40.0, "other (<0.78.0>)"), busy(folds())], None);
        let ranch = finding("BT053", 40.0, "ranch_conns_sup:init/7 (<0.126.0>)");
        check(vec![ranch, finding("BT054", 90.0, "0.0.0.0:8080")], Some("BT053"));
        check(vec![finding("BT053", 40.0, "shop (<0.77.0>)"), finding("BT054", 90.0, "0.0.0.0:8080")], None);
        let saturated = |evidence| Finding { evidence, ..finding("BT012", 90.0, "dirty CPU schedulers") };
        let collects = vec![Evidence::number(BY_COLLECTIONS, 1.5, Unit::Cores)];
        check(vec![finding("BT011", 40.0, "shop"), saturated(collects)], Some("BT011"));
        check(vec![finding("BT011", 40.0, "shop"), saturated(Vec::new())], None);
    }

    #[test]
    fn the_page_of_all_rules_tells_each_relation() {
        let page = include_str!("../../../docs/rules/README.md");
        let rows: Vec<Vec<&str>> =
            page.lines().map(|line| line.split('|').map(str::trim).collect()).collect();
        let link = |code: &str| {
            let rule = RULES.iter().find(|rule| rule.code.0 == code).expect("a rule");
            format!("]({}.md)", rule.name)
        };
        for relation in RELATIONS {
            for effect in relation.effects {
                let is_told = |row: &&Vec<&str>| {
                    matches!(row[..], ["", cause, effects, why, ""]
                        if cause.contains(&link(relation.cause)) && effects.contains(&link(effect)) && why == relation.why)
                };
                assert!(
                    rows.iter().any(|row| is_told(&row)),
                    "{} → {effect}: {}",
                    relation.cause,
                    relation.why
                );
            }
        }
    }

    #[test]
    fn all_codes_exist() {
        for code in RELATIONS.iter().flat_map(|relation| relation.effects.iter().chain([&relation.cause])) {
            assert!(RULES.iter().any(|rule| rule.code.0 == *code), "{code}");
        }
    }
}
