use beamtune_model::window::Point;
use beamtune_model::{
    Account, Claim, Code, Cost, CpuAccount, CpuShare, Evidence, Facts, Finding, Follows, Gap, Period,
    PeriodBuilder, Remedy, Series, Subject, Unit, Verdict, facts, metrics,
};

use super::*;

fn queue() -> Finding {
    Finding {
        rule: "growing-message-queue",
        title: "Message queue of Elixir.Shop.Cart grows by 12 messages/s".to_owned(),
        detail: "14,302 messages now; Elixir.Shop.Cart:handle_info/2 takes 80 ms each".to_owned(),
        subject: Some(Subject::process("Elixir.Shop.Cart (<0.9.0>)")),
        evidence: vec![
            Evidence::number("queue length", 14_302.0, Unit::Count).against(5_000.0, "practice"),
            Evidence::text("current function", "Elixir.Shop.Cart:handle_info/2"),
        ],
        against: vec!["the process is 3 s old".to_owned()],
        remedies: vec![Remedy {
            entry: "code.back_pressure".to_owned(),
            change: "use calls in place of casts".to_owned(),
            why: "senders then wait, and the queue is bounded".to_owned(),
            risk: "callers are slower".to_owned(),
            releases: "all".to_owned(),
            at_run_time: false,
            prove: "queue length under the same load".to_owned(),
            saves_bytes: None,
        }],
        ..Finding::bare(Code("BT006"), 90.0)
    }
}

fn found(findings: Vec<Finding>) -> Diagnosis {
    let mut verdicts: Vec<Verdict> = findings
        .into_iter()
        .map(|finding| Verdict {
            code: finding.code,
            rule: finding.rule,
            outcome: Outcome::Found(vec![finding]),
        })
        .collect();
    verdicts.push(Verdict {
        code: Code("BT001"),
        rule: "busy-waiting",
        outcome: Outcome::Healthy("busy wait uses 0 cores".to_owned()),
    });
    verdicts.push(Verdict {
        code: Code("BT004"),
        rule: "cpu-starved",
        outcome: Outcome::NotJudged { reason: "no host".to_owned(), next: "run it there".to_owned() },
    });
    Diagnosis { verdicts, cpu: None }
}

const COMMAND: View<'_> =
    View { invocation: Some(Invocation { command: "doctor", target: "shop@web1" }), ..View::PLAIN };

#[test]
fn a_brief_page_has_title_numbers_fix_and_what_to_type_next() {
    let page = render(&Period::default(), &found(vec![queue()]), &COMMAND);
    let expect = "\
VM without a name · 0 µs

CRITICAL  Message queue of Shop.Cart grows by 12 messages/s                                    BT006
          14,302 messages now; Shop.Cart.handle_info/2 takes 80 ms each
   fix    use calls in place of casts
   risk   callers are slower
   verify queue length under the same load
   more   beamtune explain BT006 shop@web1

1 check passed, 1 not evaluated (-vv)

Next: beamtune doctor shop@web1 -v    all evidence and remedies
";
    assert_eq!(page, expect);
}

#[test]
fn a_short_time_without_findings_calls_for_a_longer_one() {
    let next = |command: &'static str, findings: Vec<Finding>| {
        let view = View { invocation: Some(Invocation { command, target: "shop@web1" }), ..View::PLAIN };
        let page = render(&Period::default(), &found(findings), &view);
        page.split("Next: ").nth(1).map(str::to_owned)
    };
    let longer = "beamtune doctor shop@web1 -v    all evidence and remedies
      beamtune doctor shop@web1 --for 5m    slow growth does not show in 0 s
";
    assert_eq!(next("doctor", vec![]).as_deref(), Some(longer));
    // Not for a recording, which cannot become longer, and not if there is a finding.
    assert_eq!(
        next("diagnose", vec![]).as_deref(),
        Some("beamtune diagnose shop@web1 -v    all evidence and remedies\n")
    );
    assert_eq!(
        next("doctor", vec![queue()]).as_deref(),
        longer.lines().next().map(|line| format!("{line}\n")).as_deref()
    );
}

#[test]
fn evidence_adds_numbers_counter_evidence_and_risks() {
    let view = View { verbosity: Verbosity::Evidence, ..View::PLAIN };
    let mut finding = queue();
    finding.follows =
        Some(Follows { code: Code("BT005"), rule: "serial-process", why: "one process serves all" });
    finding.confirm = "twice the load";
    let page = render(&Period::default(), &found(vec![finding]), &view);
    let expect = "\
VM without a name · 0 µs

CRITICAL  Message queue of Shop.Cart grows by 12 messages/s                                    BT006
          14,302 messages now; Shop.Cart.handle_info/2 takes 80 ms each
          growing-message-queue · measured
   cause  BT005 serial-process: one process serves all
            queue length      14,302  (warning from 5,000)
            current function  Shop.Cart.handle_info/2
   caveat the process is 3 s old
   check  twice the load
   fix    use calls in place of casts
   why    senders then wait, and the queue is bounded
   risk   callers are slower
   verify queue length under the same load

1 check passed, 1 not evaluated (cpu-starved: run it there)
";
    assert_eq!(page, expect);
}

#[test]
fn all_checks_are_listed_on_request() {
    let view = View { verbosity: Verbosity::Checks, ..View::PLAIN };
    let page = render(&Period::default(), &found(Vec::new()), &view);
    let expect = "\
VM without a name · 0 µs

No problem found: 1 check passed, 1 not evaluated.

Passed
  BT001 busy wait uses 0 cores
Not evaluated
  BT004 cpu-starved: no host; next: run it there
";
    assert_eq!(page, expect);
    let one = of_rule(&Period::default(), &found(vec![queue()]), "BT006", Style::PLAIN);
    assert!(one.contains("current function") && one.contains("risk"), "{one}");
    let one = of_rule(&Period::default(), &found(Vec::new()), "BT001", Style::PLAIN);
    assert!(one.ends_with("BT001 passed: busy wait uses 0 cores\n"), "{one}");
}

/// A consequence of the growing queue.
fn symptom(code: &'static str, title: &str, severity: f64) -> Finding {
    Finding {
        title: title.to_owned(),
        follows: Some(Follows {
            code: Code("BT006"),
            rule: "growing-message-queue",
            why: "long queues are scanned",
        }),
        ..Finding::bare(Code(code), severity)
    }
}

#[test]
fn consequences_are_lines_of_their_cause_which_takes_the_worst_level() {
    let gc = |severity| symptom("BT011", "GC takes 57 % of the work", severity);
    let page = render(&Period::default(), &found(vec![queue(), gc(30.0)]), &View::PLAIN);
    let line = format!("   effect GC takes 57 % of the work{:60}BT011\n", "");
    assert!(page.contains(&line), "{page}");
    assert!(!page.contains("WARNING"), "{page}");
    let cause = Finding { severity: 30.0, level: Level::Warning, ..queue() };
    let worse = found(vec![cause, gc(80.0)]);
    let page = render(&Period::default(), &worse, &View::PLAIN);
    assert!(page.contains("CRITICAL  Message queue") && page.contains(&line), "{page}");
    assert!(!page.contains("WARNING"), "{page}");
    // With all evidence, each consequence has its own entry, and one that is worse than its cause has its own remedies.
    let view = View { verbosity: Verbosity::Evidence, ..View::PLAIN };
    let page = render(&Period::default(), &worse, &view);
    assert!(page.contains("CRITICAL  Message queue") && page.contains("CRITICAL  GC takes 57 %"), "{page}");
}

#[test]
fn three_consequences_are_named_and_the_others_counted() {
    let effects = ["BT010", "BT011", "BT012", "BT013", "BT017"];
    let effects = effects.map(|code| symptom(code, &format!("{code} of it"), 30.0));
    let page = render(&Period::default(), &found([vec![queue()], effects.to_vec()].concat()), &View::PLAIN);
    let named = page.lines().filter(|line| line.contains(" of it")).count();
    assert_eq!(named, 3, "{page}");
    assert!(page.contains("BT012 of it, and 2 more (-v) "), "{page}");
}

#[test]
fn idle_cpu_is_no_effect_and_no_notice_where_the_account_shows_it() {
    let idle = |why| Finding {
        signals: vec![Signal::Unused(why)],
        title: "1.2 of 2.0 cores idle: a reason".to_owned(),
        ..Finding::bare(Code("BT015"), 10.0)
    };
    let share = |what, cores| CpuShare { what, cores, how: String::new() };
    let account = |why| CpuAccount {
        cores: 2.0,
        seconds: 10.0,
        shares: vec![share(CpuUse::Code, 0.8), share(why, 1.2)],
    };
    let page = |findings: Vec<Finding>, why| {
        let diagnosis = Diagnosis { cpu: Some(account(why)), ..found(findings) };
        render(&Period::default(), &diagnosis, &View::PLAIN)
    };
    let reason = "1.2 of 2.0 cores idle: a reason";
    assert!(!page(vec![queue(), idle(CpuUse::TakingTurns)], CpuUse::TakingTurns).contains(reason));
    let effect = Finding { follows: symptom("BT015", "", 0.0).follows, ..idle(CpuUse::TakingTurns) };
    assert!(!page(vec![queue(), effect], CpuUse::TakingTurns).contains("effect"));
    // A node that cannot use its idle CPU is not healthy; a node without work is.
    let turns = page(vec![idle(CpuUse::TakingTurns)], CpuUse::TakingTurns);
    assert!(turns.contains("No certain problem found. Worth a look:\n\nnotice    1.2 of 2.0"), "{turns}");
    let nothing = page(vec![idle(CpuUse::NoRunnable)], CpuUse::NoRunnable);
    assert!(nothing.contains("No problem found: 1 check passed, 1 not evaluated.\n\nCPU "), "{nothing}");
}

#[test]
fn a_long_block_loses_its_least_lines_and_no_text_is_cut() {
    let clause = "the numbers go on and on until the end of the line is reached and passed; ";
    let mut long = queue();
    long.detail = clause.repeat(5);
    long.remedies[0].change = clause.repeat(3);
    long.remedies[0].prove = clause.repeat(3);
    long.remedies[0].risk = clause.repeat(2);
    let effects = ["BT010", "BT011", "BT012", "BT013"].map(|code| symptom(code, "a consequence", 30.0));
    let diagnosis = found([vec![long], effects.to_vec()].concat());
    let page = render(&Period::default(), &diagnosis, &COMMAND);
    let block = page.split("\n\n").nth(1).expect("a finding");
    assert_eq!(block.lines().count(), FIRST_LINES, "{block}");
    assert!(["fix", "risk", "more", "effect"].iter().all(|part| block.contains(part)), "{block}");
    assert!(!page.contains('…'), "{page}");
}

#[test]
fn many_checks_that_lack_the_same_say_what() {
    let missing = |code: &'static str| Verdict {
        code: Code(code),
        rule: "rule",
        outcome: Outcome::NotJudged { reason: "no samples".to_owned(), next: "record for 10 s".to_owned() },
    };
    let mut diagnosis = found(vec![queue()]);
    diagnosis.verdicts.extend(["BT020", "BT021", "BT022", "BT023"].map(missing));
    let page = render(&Period::default(), &diagnosis, &View::PLAIN);
    let expect = "1 check passed, 5 not evaluated (-vv)\nTo evaluate 4 of the 5: record for 10 s\n";
    assert!(page.contains(expect), "{page}");
}

#[test]
fn the_heading_has_quota_uptime_and_the_time_of_a_recording() {
    let mut facts = Facts::default();
    for (key, value) in
        [(facts::HOST_CPUS, "8"), (facts::START_TIME, "-1000"), (facts::NATIVE_TIME_HZ, "1000")]
    {
        facts.set(key, value);
    }
    let mut builder = PeriodBuilder::new(None, facts, 1);
    for (metric, entity, value) in
        [(&metrics::CGROUP_QUOTA, "cpu", 1_500), (&metrics::CLOCK_OFFSET, "", -3_600_000_000_000)]
    {
        builder.column(&Series::of(metric, entity), [Point { t: 0, incarnation: 0, value }]);
    }
    let view = View { recorded_at: Some("2026-11-20 02:50 (+01:00)"), ..View::PLAIN };
    let page = render(&builder.finish(), &found(Vec::new()), &view);
    let expect = "VM without a name · 8 CPUs, quota 1.50 cores · up 60 min · 0 µs recorded 2026-11-20 02:50 (+01:00)\n";
    assert!(page.starts_with(expect), "{page}");
}

#[test]
fn a_page_of_many_findings_fits_on_a_screen() {
    let long = "names and numbers that go on and on, ".repeat(20);
    let many: Vec<Finding> = (0..30)
        .map(|index| Finding { title: format!("{index} {long}"), detail: long.clone(), ..queue() })
        .collect();
    let diagnosis = Diagnosis {
        verdicts: vec![Verdict {
            code: Code("BT006"),
            rule: "growing-message-queue",
            outcome: Outcome::Found(many),
        }],
        ..found(Vec::new())
    };
    for width in [60, 80, 100, 120] {
        let view = View { style: Style { width, ..Style::PLAIN }, ..COMMAND };
        let page = render(&Period::default(), &diagnosis, &view);
        assert!(page.lines().count() <= MAX_LINES, "{} lines\n{page}", page.lines().count());
        assert!(page.lines().all(|line| line.chars().count() <= width), "{page}");
        let left = page.lines().find(|line| line.ends_with(" more: -v")).expect("how many are left");
        let left: usize = left.split(' ').next().and_then(|count| count.parse().ok()).expect("a number");
        assert_eq!(page.matches("CRITICAL").count() + left, 30, "{page}");
        let first = page.split("\n\n").nth(1).expect("a finding");
        assert!(first.lines().count() <= FIRST_LINES, "{first}");
    }
}

#[test]
fn notices_take_a_line_each() {
    let notice = |code, title: &str| Finding { title: title.to_owned(), ..Finding::bare(Code(code), 10.0) };
    let diagnosis = found(vec![
        notice("BT046", "Page faults take 7 % of the VM's CPU"),
        notice("BT014", "Port table has 1 M entries"),
    ]);
    let page = render(&Period::default(), &diagnosis, &View::PLAIN);
    let notices: Vec<&str> = page.lines().filter(|line| line.starts_with("notice")).collect();
    assert_eq!(notices.len(), 2, "{page}");
    assert!(notices.iter().all(|line| line.chars().count() == 100), "{page}");
    // The first notice has several lines if it may point to a problem and has a remedy.
    let lead = Finding { level: Level::Notice, ..queue() };
    let page = render(
        &Period::default(),
        &found(vec![lead, notice("BT014", "Port table has 1 M entries")]),
        &View::PLAIN,
    );
    assert!(page.contains("   fix    use calls in place of casts\n"), "{page}");
    assert!(page.contains("\n\nnotice    Port table"), "{page}");
}

#[test]
fn a_known_defect_is_no_finding_and_takes_one_line() {
    let latent = Finding {
        latent: true,
        title: "OTP 25.2.3 has 11 known defects".to_owned(),
        evidence: vec![Evidence::text("OTP-19154", "a scheduler can be stuck for ever")],
        rule: "known-fixes",
        ..Finding::bare(Code("BT051"), 10.0)
    };
    let diagnosis = found(vec![latent]);
    let page = render(&Period::default(), &diagnosis, &View::PLAIN);
    assert!(page.contains("1 not evaluated.\n\nBT051: OTP 25.2.3 has 11 known defects\n"), "{page}");
    let view = View { verbosity: Verbosity::Evidence, ..View::PLAIN };
    let page = render(&Period::default(), &diagnosis, &view);
    assert!(page.contains("  OTP-19154: a scheduler can be stuck for ever\n"), "{page}");
}

#[test]
fn evidence_says_what_a_finding_costs() {
    let check = |cost: Cost, expect: &str| {
        let claim = Some(Claim { account: Account::Delay, part: None, cost, share: None, explained: None });
        let view = View { verbosity: Verbosity::Evidence, ..View::PLAIN };
        let page = render(&Period::default(), &found(vec![Finding { claim, ..queue() }]), &view);
        assert!(page.contains(&format!("growing-message-queue · measured · {expect}\n")), "{page}");
    };
    check(Cost::CpuCores(0.914), "costs 0.91 cores");
    check(Cost::MemoryBytes(1.23e9), "costs 1.23 GB of memory");
    check(Cost::DelaySeconds(0.128), "delays of 128 ms");
    check(Cost::Waiting(14_302.0), "14,302 waiting");
    check(Cost::EndSeconds(117.0), "117 s left");
}

#[test]
fn a_flag_is_given_with_the_variable_that_the_product_takes_it_from() {
    let fix = |entry: &str, product: &str| {
        let mut finding = queue();
        finding.remedies[0].entry = entry.to_owned();
        let mut period = Period::default();
        period.facts.set(facts::PRODUCT, product);
        let page = render(&period, &found(vec![finding]), &View::PLAIN);
        page.lines().find(|line| line.starts_with("   fix")).map(str::to_owned).expect("a fix")
    };
    let bare = "   fix    use calls in place of casts";
    let given = |place: &str| format!("{bare} ({place}, restart)");
    assert_eq!(fix("+sbwt", "RabbitMQ 3.10.8"), given("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS"));
    assert_eq!(fix("+sbwt", "ejabberd 23.01"), given("ERL_OPTIONS in ejabberdctl.cfg"));
    assert_eq!(fix("+sbwt", "Livebook 0.9"), given("vm.args"));
    assert_eq!(fix("code.back_pressure", "RabbitMQ 3.10.8"), bare);
}

#[test]
fn gaps_are_one_line_with_their_reasons() {
    let gap = |begin, end| Gap {
        begin,
        end,
        source: "host".to_owned(),
        kind: beamtune_model::TroubleKind::Denied,
        reason: "needs root".to_owned(),
    };
    let mut period = Period::default();
    period.gaps = vec![gap(0, 1_000_000_000), gap(2_000_000_000, 4_000_000_000)];
    let page = render(&period, &found(Vec::new()), &View::PLAIN);
    assert!(page.contains("\nNot measured: host (3.0 s): needs root\n"), "{page}");
}

#[test]
fn a_wrong_clock_is_reported_where_that_is_certain() {
    let check = |ahead_ms: i64, error_ms: i64, expect: Option<&str>| {
        let mut builder = PeriodBuilder::new(None, Facts::default(), 1);
        for (metric, ms) in [(&metrics::WALL_AHEAD, ahead_ms), (&metrics::WALL_AHEAD_ERROR, error_ms)] {
            let series = Series::of(metric, "");
            let value = ms.saturating_mul(1_000_000);
            builder.column(&series, [Point { t: 0, incarnation: 0, value }]);
        }
        let heading = heading(&builder.finish(), Style::PLAIN);
        assert_eq!(heading.lines().nth(1), expect);
    };
    check(3_200, 1, Some("The node's clock is 3.2 s ahead of the recorder's."));
    check(-90_000, 1, Some("The node's clock is 90 s behind the recorder's."));
    check(999, 1, None);
    check(0, 0, None);
    check(3_200, 4_000, None);
    check(i64::MIN, 0, Some("The node's clock is 106752.0 days behind the recorder's."));
}

#[test]
fn a_recording_that_was_not_measured_says_so() {
    let mut made_up = Facts::default();
    made_up.set(facts::SYNTHETIC, "two memory nodes; sick");
    let shown = |facts: Facts| heading(&PeriodBuilder::new(None, facts, 1).finish(), Style::PLAIN);
    assert!(shown(made_up).contains("\nSYNTHETIC, not measured: two memory nodes; sick\n"));
    assert!(!shown(Facts::default()).contains("SYNTHETIC"));
}
