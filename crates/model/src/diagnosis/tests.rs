use super::*;
use crate::finding::{Account, Cost};
#[test]
fn severity_rises_through_the_levels_up_to_100() {
    let rising = Scale { notice: 0.1, warning: 0.2, critical: 0.6, source: "test" };
    let check = |scale: &Scale, value, expect: Option<Level>| {
        let level = scale.severity(value).map(|severity| Level::of(severity, None, Confidence::Measured));
        assert_eq!(level, expect, "{value} → {:?}", scale.severity(value));
    };
    check(&rising, 0.05, None);
    check(&rising, 0.1, Some(Level::Notice));
    check(&rising, 0.1999999, Some(Level::Notice));
    check(&rising, 0.2, Some(Level::Warning));
    check(&rising, 0.5999999, Some(Level::Warning));
    check(&rising, 0.6, Some(Level::Critical));
    check(&rising, f64::NAN, None);
    assert_eq!(rising.severity(1e9), Some(100.0));

    let falling = Scale { notice: 100.0, warning: 50.0, critical: 10.0, source: "test" };
    check(&falling, 101.0, None);
    check(&falling, 60.0, Some(Level::Notice));
    check(&falling, 50.0, Some(Level::Warning));
    check(&falling, 10.0, Some(Level::Critical));
    check(&falling, 0.0, Some(Level::Critical));
}

#[test]
fn consequences_are_listed_under_their_cause() {
    let finding = |code, severity, cause: Option<&'static str>| Finding {
        follows: cause.map(|cause| Follows { code: Code(cause), rule: "cause", why: "a reason" }),
        ..Finding::bare(Code(code), severity)
    };
    let check = |findings: Vec<Finding>, expect: &[&str]| {
        let verdict = |finding: Finding| Verdict {
            code: finding.code,
            rule: "test",
            outcome: Outcome::Found(vec![finding]),
        };
        let diagnosis = Diagnosis { verdicts: findings.into_iter().map(verdict).collect(), cpu: None };
        let order: Vec<_> = diagnosis.findings().iter().map(|finding| finding.code.0).collect();
        assert_eq!(order, expect);
        let worst = diagnosis.ordered().first().map(|finding| finding.level);
        assert_eq!(diagnosis.worst(), worst);
    };
    let cause = || finding("BT002", 40.0, None);
    check(
        vec![finding("BT001", 50.0, None), cause(), finding("BT016", 90.0, Some("BT002"))],
        &["BT002", "BT016", "BT001"],
    );
    // Its cause was not found.
    check(vec![finding("BT016", 30.0, Some("BT002")), finding("BT017", 90.0, None)], &["BT017", "BT016"]);
    // A consequence of a consequence is listed under it, and raises the rank of the root cause.
    check(
        vec![
            finding("BT001", 50.0, None),
            cause(),
            finding("BT015", 90.0, Some("BT005")),
            finding("BT005", 10.0, Some("BT002")),
            finding("BT016", 20.0, Some("BT002")),
        ],
        &["BT002", "BT016", "BT005", "BT015", "BT001"],
    );
    // Findings that cause each other are not lost.
    check(
        vec![finding("BT005", 10.0, Some("BT006")), finding("BT006", 20.0, Some("BT005")), cause()],
        &["BT002", "BT006", "BT005"],
    );
    // If the cause's rule has two findings, the consequences are listed under the worse one.
    check(
        vec![cause(), finding("BT002", 60.0, None), finding("BT017", 10.0, Some("BT002"))],
        &["BT002", "BT017", "BT002"],
    );
}

#[test]
fn findings_are_ordered_worst_first() {
    let finding = |code, severity| Finding::bare(Code(code), severity);
    let diagnosis = Diagnosis {
        verdicts: vec![
            Verdict { code: Code("BT001"), rule: "a", outcome: Outcome::Found(vec![finding("BT001", 30.0)]) },
            Verdict { code: Code("BT002"), rule: "b", outcome: Outcome::Healthy(String::new()) },
            Verdict { code: Code("BT003"), rule: "c", outcome: Outcome::Found(vec![finding("BT003", 90.0)]) },
        ],
        cpu: None,
    };
    let codes: Vec<_> = diagnosis.findings().iter().map(|f| f.code.0).collect();
    assert_eq!(codes, ["BT003", "BT001"]);
    assert_eq!(diagnosis.worst(), Some(Level::Critical));
    assert_eq!(Diagnosis::default().worst(), None);
}

#[test]
fn level_follows_from_severity_time_left_and_confidence() {
    use Confidence::{Guess, Inferred, Measured};
    let check = |severity, left, confidence, expect| {
        assert_eq!(Level::of(severity, left, confidence), expect, "{severity} {left:?} {confidence:?}");
    };
    check(90.0, None, Measured, Level::Critical);
    check(90.0, None, Inferred, Level::Warning);
    check(90.0, None, Guess, Level::Notice);
    check(0.0, Some(60.0), Measured, Level::Critical);
    check(0.0, Some(7_200.0), Measured, Level::Warning);
    // A failure within the hour cannot wait for proof, but a guess is no reason to wake somebody.
    check(0.0, Some(1_800.0), Inferred, Level::Critical);
    check(0.0, Some(1_800.0), Guess, Level::Notice);
    check(0.0, Some(7_200.0), Guess, Level::Notice);
    check(0.0, Some(1e6), Measured, Level::Notice);
    check(30.0, Some(1e6), Measured, Level::Warning);
}

#[test]
fn cpu_time_is_not_critical_while_more_cpu_is_idle() {
    let check = |account, cores: f64, idle, expect| {
        let claim = Claim {
            account,
            part: None,
            cost: Cost::CpuCores(cores),
            share: Some(cores / 4.0),
            explained: None,
        };
        let severity = 90.0_f64.min(max_severity(&claim, idle));
        assert_eq!(Level::of(severity, None, Confidence::Measured), expect, "{account:?} {cores} {idle:?}");
    };
    use Account::{CpuUnused, CpuUsed};
    check(CpuUsed, 0.8, Some(3.0), Level::Warning);
    check(CpuUsed, 0.8, Some(0.7), Level::Critical);
    check(CpuUsed, 0.8, None, Level::Critical);
    check(CpuUsed, 0.3, Some(0.0), Level::Warning);
    check(CpuUsed, 0.03, Some(0.0), Level::Notice);
    // CPU that the node needed and did not get is missing, however much is idle.
    check(CpuUnused, 0.8, Some(3.0), Level::Critical);
    let memory = Claim {
        account: Account::Memory,
        part: None,
        cost: Cost::MemoryBytes(1.0),
        share: None,
        explained: None,
    };
    assert_eq!(max_severity(&memory, Some(3.0)), f64::INFINITY);
}

#[test]
fn a_chain_has_the_level_of_its_worst_finding() {
    let effect = Finding {
        follows: Some(Follows { code: Code("BT065"), rule: "cause", why: "a reason" }),
        left_seconds: Some(600.0),
        level: Level::Critical,
        ..Finding::bare(Code("BT007"), 10.0)
    };
    let found = [Finding::bare(Code("BT001"), 60.0), Finding::bare(Code("BT065"), 30.0), effect];
    let verdict = |finding: Finding| Verdict {
        code: finding.code,
        rule: "test",
        outcome: Outcome::Found(vec![finding]),
    };
    let diagnosis = Diagnosis { verdicts: found.into_iter().map(verdict).collect(), cpu: None };
    let chains: Vec<_> = diagnosis
        .chains()
        .iter()
        .map(|chain| (chain.cause.code.0, chain.effects.len(), chain.level()))
        .collect();
    assert_eq!(chains, [("BT065", 1, Level::Critical), ("BT001", 0, Level::Warning)]);
}

#[test]
fn larger_stake_comes_first_within_a_level() {
    let claims = |code, account, cost, share| Finding {
        claim: Some(Claim { account, part: None, cost, share: Some(share), explained: None }),
        ..Finding::bare(Code(code), 50.0)
    };
    let cpu = claims("BT001", Account::CpuUsed, Cost::CpuCores(0.2), 0.1);
    let memory = claims("BT002", Account::Memory, Cost::MemoryBytes(1e9), 0.6);
    let ends = Finding { left_seconds: Some(40_000.0), ..Finding::bare(Code("BT003"), 30.0) };
    let silent = Finding::bare(Code("BT004"), 70.0);
    let order = |findings: [&Finding; 2]| compare(findings[0], findings[1]);
    assert_eq!(order([&memory, &cpu]), std::cmp::Ordering::Less);
    assert_eq!(order([&memory, &ends]), std::cmp::Ordering::Less);
    assert_eq!(order([&ends, &cpu]), std::cmp::Ordering::Less);
    assert_eq!(order([&cpu, &silent]), std::cmp::Ordering::Less);
}
