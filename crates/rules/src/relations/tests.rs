use beamtune_model::{Account, Claim, Code, Cost, CpuUse, HostPart, MemoryKind};

use super::*;
use crate::RULES;

/// A finding about a process with this title; without a subject if the title is empty.
fn finding(code: &'static str, severity: f64, title: &str) -> Finding {
    let subject = (!title.is_empty()).then(|| Subject::process(title));
    Finding { subject, ..Finding::bare(Code(code), severity) }
}

/// Gives a finding this signal and no other.
fn with(signal: Signal, finding: Finding) -> Finding {
    Finding { signals: vec![signal], ..finding }
}

/// Returns the code of the cause of the last finding.
fn cause_of_last(findings: Vec<Finding>) -> Option<&'static str> {
    let verdict = |finding: Finding| Verdict {
        code: finding.code,
        rule: finding.rule,
        outcome: Outcome::Found(vec![finding]),
    };
    let mut verdicts: Vec<Verdict> = findings.into_iter().map(verdict).collect();
    relate(&mut verdicts);
    let Some(Outcome::Found(found)) = verdicts.last().map(|verdict| &verdict.outcome) else { panic!("none") };
    found[0].follows.as_ref().map(|follows| follows.code.0)
}

fn check(findings: Vec<Finding>, expect: Option<&str>) {
    let codes: Vec<_> = findings.iter().map(|finding| finding.code.0).collect();
    assert_eq!(cause_of_last(findings), expect, "{codes:?}");
}

#[test]
fn a_quota_explains_slices_that_may_be_the_hosts() {
    check(vec![finding("BT002", 40.0, ""), finding("BT016", 20.0, "a")], Some("BT002"));
    check(vec![finding("BT002", 40.0, ""), finding("BT016", 90.0, "a")], None);
    // A notice explains nothing.
    check(vec![finding("BT002", 10.0, ""), finding("BT016", 20.0, "a")], None);
    check(vec![finding("BT016", 90.0, "a")], None);
    let suffices = with(Signal::QuotaSuffices, finding("BT002", 90.0, ""));
    check(vec![finding("BT003", 40.0, ""), suffices], Some("BT003"));
    check(vec![finding("BT003", 40.0, ""), finding("BT002", 90.0, "")], None);
    // The size of a heap does not depend on the host.
    let heap = with(Signal::HeapSize, finding("BT017", 10.0, "a"));
    check(vec![finding("BT019", 40.0, ""), heap], None);
}

#[test]
fn code_that_may_be_the_nodes_own_work_explains_no_warning() {
    let code = |signals: &[Signal]| Finding { signals: signals.to_vec(), ..finding("BT073", 10.0, "") };
    let run_by = Signal::RunBy(Subject::kind("a"));
    let known = || code(&[Signal::Allocates, run_by.clone()]);
    let own = || code(&[Signal::Allocates, run_by.clone(), Signal::WhereOnly]);
    check(vec![own(), finding("BT011", 60.0, "a")], None);
    check(vec![own(), finding("BT011", 10.0, "a")], Some("BT073"));
    check(vec![known(), finding("BT011", 60.0, "a")], Some("BT073"));
    // It follows from what keeps its process busy, even if that is a notice.
    check(vec![finding("BT005", 10.0, "a"), own()], Some("BT005"));
    check(vec![with(Signal::Unused(CpuUse::TakingTurns), finding("BT015", 10.0, "b")), own()], Some("BT015"));
    check(vec![with(Signal::Unused(CpuUse::NoRunnable), finding("BT015", 10.0, "b")), own()], None);
}

#[test]
fn a_queue_follows_from_what_its_process_waits_for_outside() {
    for code in ["BT006", "BT053"] {
        check(vec![finding("BT074", 40.0, "a"), finding(code, 60.0, "a")], Some("BT074"));
        check(vec![finding("BT074", 40.0, "a"), finding(code, 60.0, "b")], None);
        check(vec![finding("BT074", 10.0, "a"), finding(code, 60.0, "a")], None);
    }
    let idle = with(Signal::Unused(CpuUse::WaitingForReplies), finding("BT015", 40.0, "a"));
    check(vec![finding("BT074", 40.0, "a"), idle], Some("BT074"));
}

#[test]
fn findings_about_a_kind_in_a_place_apply_to_each_of_its_processes() {
    let stands = |kind: &str, place: &str, finding: Finding| {
        with(Signal::WaitsIn { kind: kind.to_owned(), place: place.to_owned() }, finding)
    };
    let of_kind = |finding: Finding| Finding { subject: Some(Subject::kind("conn:init/1")), ..finding };
    let peer = |finding: Finding| stands("conn:init/1", "a send, called by conn:push/1", finding);
    let recv = |finding: Finding| stands("conn:init/1", "prim_inet:recv0/3", finding);
    let (one, other) = ("conn:init/1 (<0.9.0>)", "conn:init/1 (<0.8.0>)");
    check(vec![peer(finding("BT044", 40.0, one)), peer(finding("BT006", 90.0, other))], Some("BT044"));
    let all = of_kind(peer(finding("BT044", 40.0, "")));
    check(vec![all.clone(), peer(finding("BT006", 90.0, other))], Some("BT044"));
    check(vec![all.clone(), of_kind(peer(finding("BT006", 90.0, "")))], Some("BT044"));
    // The caller of the send does not matter.
    let log = stands("log:init/1", "a send, called by log:ship/1", finding("BT006", 90.0, "log (<0.7.0>)"));
    check(vec![all.clone(), log], Some("BT044"));
    // Processes that wait elsewhere, or work.
    check(vec![all.clone(), recv(finding("BT006", 90.0, other))], None);
    check(vec![all.clone(), of_kind(recv(finding("BT006", 90.0, "")))], None);
    check(vec![all, finding("BT006", 90.0, other)], None);
    check(vec![recv(finding("BT074", 40.0, one)), recv(finding("BT006", 90.0, other))], Some("BT074"));
    let mail = stands("mail:init/1", "prim_inet:recv0/3", finding("BT006", 90.0, "mail (<0.6.0>)"));
    check(vec![recv(finding("BT074", 40.0, one)), mail], None);
    // One of several processes that run most of the time.
    let member = with(Signal::Member(Subject::process(other)), of_kind(finding("BT005", 40.0, "")));
    check(vec![member.clone(), finding("BT006", 90.0, other)], Some("BT005"));
    check(vec![member, finding("BT006", 90.0, one)], None);
    let driven = with(Signal::Member(Subject::process(other)), of_kind(finding("BT006", 90.0, "")));
    let drives = |who: &str| with(Signal::Drives(Subject::process(who)), finding("BT069", 40.0, ""));
    check(vec![drives(other), driven.clone()], Some("BT069"));
    check(vec![drives(one), driven.clone()], None);
    // A finding about most of the node's work explains no single process, nor several of a kind.
    check(vec![with(Signal::DrivesMost, finding("BT069", 40.0, "")), driven], None);
}

#[test]
fn code_follows_from_the_gc_and_the_copies_in_it() {
    let of = |code: &'static str, severity: f64, cores: f64, subject: &str| {
        let claim = Claim {
            account: Account::CpuUsed,
            part: None,
            cost: Cost::CpuCores(cores),
            share: Some(0.4),
            explained: None,
        };
        Finding { claim: Some(claim), ..finding(code, severity, subject) }
    };
    let code = |cores: f64| {
        let signals = vec![Signal::WhereOnly, Signal::RunBy(Subject::kind("shop"))];
        Finding { signals, ..of("BT073", 10.0, cores, "") }
    };
    check(vec![of("BT011", 40.0, 0.6, "shop (<0.9.0>)"), code(1.0)], Some("BT011"));
    check(vec![of("BT011", 40.0, 0.4, "shop (<0.9.0>)"), code(1.0)], None);
    check(vec![of("BT011", 10.0, 0.6, ""), code(1.0)], None);
    check(vec![of("BT068", 40.0, 0.6, ""), code(1.0)], Some("BT068"));
    check(vec![of("BT055", 40.0, 0.6, "shop (<0.9.0>)"), code(1.0)], Some("BT055"));
    check(vec![of("BT055", 40.0, 0.6, "mail (<0.8.0>)"), code(1.0)], None);
    // Forced GCs do not show that the process produces garbage.
    let known = with(Signal::Allocates, finding("BT073", 10.0, ""));
    check(vec![finding("BT032", 40.0, "shop (<0.9.0>)"), known, finding("BT011", 80.0, "")], Some("BT032"));
}

#[test]
fn more_schedulers_do_not_help_against_a_loop_that_never_waits() {
    let code = || finding("BT073", 10.0, "");
    check(vec![with(Signal::NeverWaits, code()), finding("BT035", 90.0, "")], Some("BT073"));
    check(vec![code(), finding("BT035", 90.0, "")], None);
}

#[test]
fn unused_cpu_follows_from_what_prevents_its_use() {
    let idle = |why, title: &str| with(Signal::Unused(why), finding("BT015", 40.0, title));
    check(vec![finding("BT002", 40.0, ""), idle(CpuUse::Quota, "")], Some("BT002"));
    check(vec![finding("BT002", 40.0, ""), idle(CpuUse::Locks, "")], None);
    check(vec![finding("BT033", 40.0, ""), idle(CpuUse::Locks, "")], Some("BT033"));
    check(vec![finding("BT046", 40.0, ""), idle(CpuUse::Locks, "")], Some("BT046"));
    check(vec![finding("BT046", 10.0, ""), idle(CpuUse::Locks, "")], None);
    for cause in ["BT040", "BT044"] {
        check(
            vec![finding(cause, 40.0, "a (<0.9.0>)"), idle(CpuUse::WaitingForReplies, "a (<0.9.0>)")],
            Some(cause),
        );
        check(
            vec![finding(cause, 40.0, "a (<0.9.0>)"), idle(CpuUse::WaitingForReplies, "b (<0.8.0>)")],
            None,
        );
    }
}

#[test]
fn credits_explain_steal_once_they_are_spent() {
    let spent = || with(Signal::CreditsSpent, finding("BT036", 80.0, ""));
    let starved = |part| Finding { subject: Some(Subject::host(part)), ..finding("BT004", 60.0, "") };
    check(vec![spent(), starved(HostPart::Steal)], Some("BT036"));
    check(vec![spent(), starved(HostPart::Neighbours)], None);
    check(vec![finding("BT036", 80.0, ""), starved(HostPart::Steal)], None);
}

#[test]
fn connections_wait_for_a_vm_that_is_short_of_cpu() {
    let short = || with(Signal::ShortOfCpu, finding("BT054", 50.0, ""));
    check(vec![finding("BT002", 40.0, ""), short()], Some("BT002"));
    check(vec![finding("BT002", 40.0, ""), finding("BT054", 50.0, "")], None);
    check(
        vec![finding("BT053", 40.0, "ranch_conns_sup:init/7 (<0.126.0>)"), finding("BT054", 90.0, "")],
        Some("BT053"),
    );
    check(vec![finding("BT053", 40.0, "shop (<0.77.0>)"), finding("BT054", 90.0, "")], None);
    let exhausted = with(Signal::Exhausted, finding("BT008", 90.0, ""));
    check(vec![exhausted, finding("BT054", 90.0, "")], Some("BT008"));
    check(vec![finding("BT008", 90.0, ""), finding("BT054", 90.0, "")], None);
}

#[test]
fn the_work_of_a_process_explains_its_symptoms() {
    check(vec![finding("BT005", 40.0, "a"), finding("BT006", 40.0, "b")], None);
    check(vec![finding("BT005", 40.0, "a"), finding("BT006", 40.0, "a")], Some("BT005"));
    // A process is identified by its pid, whatever it is called.
    check(vec![finding("BT005", 40.0, "a (<0.9.0>)"), finding("BT006", 40.0, "<0.9.0>")], Some("BT005"));
    check(vec![finding("BT041", 60.0, "a"), finding("BT005", 80.0, "a")], Some("BT041"));
    // It follows from the original cause, not from another consequence of that cause.
    let all = vec![finding("BT005", 80.0, "a"), finding("BT042", 60.0, "a"), finding("BT006", 30.0, "a")];
    check(all, Some("BT042"));
    let scans = || with(Signal::ScansOwnState, finding("BT005", 90.0, "a"));
    check(vec![finding("BT043", 40.0, "a"), scans()], Some("BT043"));
    check(vec![finding("BT043", 40.0, "a"), finding("BT005", 90.0, "a")], None);
    check(vec![finding("BT043", 40.0, "b"), scans()], None);
    // Of two causes, the first one in the table applies.
    let both = vec![finding("BT002", 90.0, ""), finding("BT019", 30.0, ""), finding("BT017", 30.0, "a")];
    check(both, Some("BT019"));
}

#[test]
fn a_log_full_of_exits_follows_from_what_the_processes_waited_for() {
    let pool = || with(Signal::GaveUp, finding("BT053", 40.0, "shop_pool"));
    let log = || with(Signal::LogsEnds, finding("BT042", 90.0, "logger_std_h_default"));
    check(vec![pool(), log()], Some("BT053"));
    check(vec![finding("BT053", 40.0, "shop_pool"), log()], None);
    check(vec![pool(), finding("BT042", 90.0, "logger_std_h_default")], None);
    // It is the pool that waits for the log.
    let mut waits = pool();
    waits.signals.push(Signal::WaitsFor(Subject::process("logger_std_h_default")));
    check(vec![waits, log()], None);
    // What waits for the log does not cause it.
    check(vec![with(Signal::GaveUp, finding("BT053", 40.0, "logger_std_h_default")), log()], None);
}

#[test]
fn a_member_of_a_pool_follows_from_the_callers_that_wait_for_the_pool() {
    let (one, other) = ("shop:init/1 (<0.9.0>)", "shop:init/1 (<0.8.0>)");
    let waits = || {
        let kind = Finding { subject: Some(Subject::kind("shop:init/1")), ..finding("BT053", 40.0, "") };
        with(Signal::Member(Subject::process("till_2 (<0.9.0>)")), kind)
    };
    for code in ["BT006", "BT074"] {
        check(vec![waits(), finding(code, 40.0, one)], Some("BT053"));
        check(vec![waits(), finding(code, 40.0, other)], None);
    }
    check(vec![finding("BT074", 40.0, one), waits()], None);
    // For a single process, what it waits for comes first.
    check(vec![finding("BT074", 40.0, one), finding("BT053", 40.0, one)], Some("BT074"));
    check(vec![finding("BT053", 40.0, one), finding("BT006", 40.0, one)], Some("BT053"));
    // A call to a member crashes its caller.
    let crash = |name: &str| {
        with(
            Signal::WaitsFor(Subject::ProcessKind { name: name.to_owned(), starter: None }),
            finding("BT063", 40.0, ""),
        )
    };
    check(vec![waits(), crash("till_2")], Some("BT053"));
    check(vec![waits(), crash("till_3")], None);
}

#[test]
fn the_unread_end_of_a_connection_follows_from_the_blocked_end() {
    let socket = |address: &str| Subject::Socket { address: address.to_owned() };
    let blocked = || with(Signal::WaitsFor(socket("10.1.0.4:40010")), finding("BT044", 40.0, "feed"));
    let unread = |address: &str| {
        let unread = Finding { subject: Some(socket("to 10.1.0.4:9000")), ..finding("BT079", 60.0, "") };
        with(Signal::Member(socket(address)), unread)
    };
    check(vec![blocked(), unread("10.1.0.4:40010")], Some("BT044"));
    check(vec![blocked(), unread("10.1.0.4:40011")], None);
    check(vec![finding("BT044", 40.0, "feed"), unread("10.1.0.4:40010")], None);
}

#[test]
fn segments_follow_from_copies_that_are_made_as_often() {
    let segments = |code: &'static str, allocator: &str| Finding {
        subject: Some(Subject::allocator(allocator)),
        ..finding(code, 40.0, "")
    };
    for cause in ["BT055", "BT068"] {
        let copies = || with(Signal::Allocates, finding(cause, 40.0, "a"));
        check(vec![copies(), segments("BT029", "eheap_alloc")], Some(cause));
        check(vec![copies(), segments("BT046", "eheap_alloc")], Some(cause));
        check(vec![copies(), segments("BT029", "ets_alloc")], None);
        check(vec![finding(cause, 40.0, "a"), segments("BT029", "eheap_alloc")], None);
    }
}

#[test]
fn threads_without_a_cpu_follow_from_too_many_schedulers_before_what_they_run() {
    let quarter = Finding {
        claim: Some(Claim {
            account: Account::CpuUsed,
            part: None,
            cost: Cost::CpuCores(1.8),
            share: Some(0.9),
            explained: None,
        }),
        ..finding("BT011", 80.0, "")
    };
    let starved = || with(Signal::OwnThreads, finding("BT004", 80.0, ""));
    check(vec![quarter.clone(), finding("BT003", 40.0, ""), starved()], Some("BT003"));
    check(vec![quarter, starved()], Some("BT011"));
}

#[test]
fn work_in_turns_follows_from_the_blocking_process_if_that_is_certain() {
    let idle = |who: &str| with(Signal::TurnsFor(Subject::process(who)), finding("BT015", 10.0, ""));
    check(vec![finding("BT053", 40.0, "lock"), idle("lock")], Some("BT053"));
    check(vec![idle("lock"), finding("BT053", 20.0, "lock")], Some("BT015"));
    check(vec![finding("BT053", 20.0, "lock"), idle("lock")], None);
    check(vec![idle("other"), finding("BT053", 20.0, "lock")], None);
}

#[test]
fn garbage_collection_follows_from_what_causes_it() {
    // No table forces GCs, whatever it keeps.
    let table = Finding { subject: Some(Subject::table("carts")), ..finding("BT026", 40.0, "") };
    check(vec![table, finding("BT032", 40.0, "guard")], None);
    check(vec![finding("BT003", 40.0, ""), finding("BT001", 60.0, "")], Some("BT003"));
    check(vec![finding("BT047", 40.0, "a"), finding("BT011", 40.0, "a")], Some("BT047"));
    check(vec![finding("BT047", 40.0, "a"), finding("BT011", 40.0, "b")], None);
    check(vec![finding("BT047", 40.0, ""), finding("BT011", 60.0, "b (<0.7.0>)")], None);
    let kind = Finding { subject: Some(Subject::kind("b:init/1")), ..finding("BT011", 60.0, "") };
    check(vec![finding("BT047", 40.0, ""), kind], Some("BT047"));
    let saturated = with(Signal::Collects, finding("BT012", 90.0, ""));
    check(vec![finding("BT011", 40.0, "shop"), saturated], Some("BT011"));
    check(vec![finding("BT011", 40.0, "shop"), finding("BT012", 90.0, "")], None);
    let grows = |kind| with(Signal::Grows(kind), finding("BT027", 90.0, "shop (<0.77.0>)"));
    check(vec![finding("BT026", 40.0, "shop (<0.77.0>)"), grows(MemoryKind::Binary)], Some("BT026"));
    check(vec![finding("BT026", 40.0, "shop (<0.77.0>)"), grows(MemoryKind::Processes)], None);
    check(vec![finding("BT026", 40.0, "other (<0.78.0>)"), grows(MemoryKind::Binary)], None);
}

#[test]
fn a_symptom_follows_from_causes_that_claim_most_of_its_part() {
    let claims = |code, part, cores, title: &str| {
        let claim = Claim {
            account: Account::CpuUsed,
            part: Some(part),
            cost: Cost::CpuCores(cores),
            share: None,
            explained: None,
        };
        Finding { claim: Some(claim), ..finding(code, 40.0, title) }
    };
    let gc = |cores| claims("BT011", CpuUse::GarbageCollection, cores, "");
    // BT055 is not in the table for BT011.
    check(vec![claims("BT055", CpuUse::GarbageCollection, 0.6, "a"), gc(1.0)], Some("BT055"));
    check(vec![claims("BT055", CpuUse::GarbageCollection, 0.4, "a"), gc(1.0)], None);
    check(vec![claims("BT055", CpuUse::Code, 0.6, "a"), gc(1.0)], None);
    // Two causes together explain it; the larger one is named.
    let both = vec![
        claims("BT055", CpuUse::GarbageCollection, 0.3, "a"),
        claims("BT058", CpuUse::GarbageCollection, 0.4, "b"),
        gc(1.0),
    ];
    check(both, Some("BT058"));
    // The cause is about another process.
    check(
        vec![
            claims("BT055", CpuUse::GarbageCollection, 0.9, "a"),
            claims("BT011", CpuUse::GarbageCollection, 1.0, "b"),
        ],
        None,
    );
    // A cause does not follow from another cause by claims.
    check(
        vec![
            claims("BT055", CpuUse::GarbageCollection, 0.9, "a"),
            claims("BT058", CpuUse::GarbageCollection, 1.0, ""),
        ],
        None,
    );
}

#[test]
fn an_overload_follows_from_what_takes_half_of_the_cpu() {
    let cpu = |code, share: f64| Finding {
        claim: Some(Claim {
            account: Account::CpuUsed,
            part: None,
            cost: Cost::CpuCores(2.0 * share),
            share: Some(share),
            explained: None,
        }),
        ..finding(code, 40.0, "")
    };
    let overload = || finding("BT065", 80.0, "");
    check(vec![cpu("BT039", 0.6), overload()], Some("BT039"));
    check(vec![cpu("BT039", 0.3), overload()], None);
    check(vec![cpu("BT067", 0.6), overload()], Some("BT067"));
    check(vec![cpu("BT068", 0.6), overload()], Some("BT068"));
    // Busy waiting ends when there is work.
    let mut spins = cpu("BT001", 0.6);
    spins.claim = spins.claim.map(|claim| Claim { part: Some(CpuUse::BusyWaiting), ..claim });
    check(vec![spins, overload()], None);
    // What occupies the CPU explains the overload, whatever it claims. A symptom does not explain it.
    check(vec![finding("BT002", 40.0, ""), overload()], Some("BT002"));
    check(vec![finding("BT005", 40.0, ""), overload()], None);
    let rising = with(Signal::Backlog, overload());
    check(vec![rising, finding("BT007", 30.0, "")], Some("BT065"));
    check(vec![overload(), finding("BT007", 30.0, "")], None);
}

#[test]
fn a_flag_that_another_finding_covers_as_well_is_not_reported_twice() {
    let flag = |code, severity, name: &str| Finding {
        subject: Some(Subject::Flag { name: name.to_owned() }),
        ..Finding::bare(Code(code), severity)
    };
    let left = |other: Finding| {
        let verdict = |finding: Finding| Verdict {
            code: finding.code,
            rule: finding.rule,
            outcome: Outcome::Found(vec![finding]),
        };
        let mut verdicts = vec![verdict(flag("BT064", 30.0, "+A")), verdict(other)];
        drop_repeated(&mut verdicts);
        matches!(verdicts[0].outcome, Outcome::Found(_))
    };
    assert!(!left(flag("BT056", 40.0, "+A")));
    assert!(left(flag("BT056", 40.0, "+S")));
    assert!(left(flag("BT056", 10.0, "+A")), "a weaker finding does not replace it");
    assert!(left(Finding { latent: true, ..flag("BT056", 40.0, "+A") }));
}

#[test]
fn the_page_of_all_rules_lists_each_relation() {
    let page = include_str!("../../../../docs/rules/README.md");
    let rows: Vec<Vec<&str>> = page.lines().map(|line| line.split('|').map(str::trim).collect()).collect();
    let link = |code: &str| {
        let rule = RULES.iter().find(|rule| rule.code.0 == code).expect("a rule");
        format!("]({}.md)", rule.name)
    };
    for relation in relations() {
        for effect in relation.effects {
            let is_listed = |row: &&Vec<&str>| {
                matches!(row[..], ["", cause, effects, why, ""]
                    if cause.contains(&link(relation.cause)) && effects.contains(&link(effect)) && why == relation.why)
            };
            assert!(
                rows.iter().any(|row| is_listed(&row)),
                "{} → {effect}: {}",
                relation.cause,
                relation.why
            );
        }
    }
}

#[test]
fn all_codes_exist() {
    let apart = [&OVERLOAD, &BY_FLAG];
    let pairs = relations().flat_map(|relation| relation.effects.iter().chain([&relation.cause]));
    for code in pairs.chain(apart) {
        assert!(RULES.iter().any(|rule| rule.code.0 == *code), "{code}");
    }
}
