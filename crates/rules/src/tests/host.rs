//! Tests of rules on what the operating system does to a VM: memory, clock, restarts.

use beamtune_model::units::SECOND_NS;
use beamtune_model::window::Point;
use beamtune_model::{
    Evidence, Facts, Gap, Level, Outcome, Period, PeriodBuilder, Series, TroubleKind, facts, metrics,
};

use super::node::{SyntheticNode, node};
use super::{Read, assert_healthy, entries, finding, outcome};

const MB: i64 = 1 << 20;

fn with_fact(key: &'static str, value: &str) -> SyntheticNode {
    node().with(|n| n.facts.push((key, value.to_owned())))
}

#[test]
fn severity_of_swapped_memory_follows_from_major_faults() {
    let swapped = |megabytes: i64, major_faults: i64| {
        node().with(|n| (n.swapped, n.major_faults) = (megabytes * MB, major_faults))
    };
    let found = finding(&swapped(100, 50), "BT019");
    assert_eq!((found.level, entries(&found)), (Level::Warning, vec!["host.swap", "code.less_garbage"]));
    assert_eq!(found.title, "33 % of the VM's memory swapped out, 50 major page faults/s");
    assert_eq!(finding(&swapped(100, 500), "BT019").level, Level::Critical);
    // Swapped out memory that is not needed is a notice. It is a risk if memory is short, or if nearly all of it is swapped out.
    let idle = finding(&swapped(100, 0), "BT019");
    assert_eq!((idle.level, idle.against.len()), (Level::Notice, 1));
    assert_eq!(finding(&swapped(100, 0).with(|n| n.memory_pressure = 0.2), "BT019").level, Level::Warning);
    assert_eq!(finding(&swapped(700, 0), "BT019").level, Level::Warning);
    assert_eq!(finding(&swapped(3, 0), "BT019").level, Level::Notice);
    assert_healthy(&swapped(1, 0), "BT019");
    assert_healthy(&node(), "BT019");
    // If a control group is at its limit, the group is short of memory, not the host.
    let short = swapped(100, 50).with(|n| n.group_memory = Some((95 * MB, 100 * MB)));
    assert_eq!(entries(&finding(&short, "BT019")), ["host.memory_limit", "host.swap"]);
    let roomy = swapped(100, 50).with(|n| n.group_memory = Some((50 * MB, 100 * MB)));
    assert_eq!(entries(&finding(&roomy, "BT019")), ["host.swap", "code.less_garbage"]);
}

#[test]
fn faults_of_file_pages_are_reported_only_under_memory_pressure() {
    // The faults read code for the first time.
    let start = node().with(|n| n.major_faults = 300);
    let found = finding(&start, "BT019");
    assert_eq!((found.level, entries(&found)), (Level::Notice, vec!["code.less_garbage"]));
    // A few pages that were swapped out once change nothing.
    assert_eq!(entries(&finding(&start.clone().with(|n| n.swapped = MB), "BT019")), ["code.less_garbage"]);
    let pressed = finding(&start.with(|n| n.memory_pressure = 0.2), "BT019");
    assert_eq!((pressed.level, pressed.against.len()), (Level::Critical, 0));
}

#[test]
fn huge_pages_are_reported_only_for_memory_that_they_waste() {
    let always = |resident: i64, huge: i64, used: i64| {
        with_fact(facts::HUGE_PAGES, "always")
            .with(|n| (n.resident, n.huge, n.used) = (resident * MB, huge * MB, used * MB))
    };
    let found = finding(&always(4_000, 3_000, 1_500), "BT020");
    assert_eq!((found.level, entries(&found)), (Level::Warning, vec!["host.huge_pages"]));
    assert_eq!(found.title, "Huge pages likely hold 2.62 GB that the VM does not use");
    assert_eq!(found.detail, "4.19 GB resident, 1.57 GB used; 3.15 GB in transparent huge pages");
    // Memory in huge pages stays in them until the VM restarts.
    assert!(found.confirm.ends_with("after madvise and a restart of the VM"), "{}", found.confirm);
    assert_eq!(finding(&always(4_000, 3_000, 2_600), "BT020").level, Level::Notice);
    // In this order: the memory is in small pages; it is little; it is in use.
    assert_healthy(&always(4_000, 100, 1_500), "BT020");
    assert_healthy(&always(300, 300, 100), "BT020");
    assert_healthy(&always(4_000, 3_900, 3_800), "BT020");
    // With `madvise`, huge pages do not exist without a request.
    assert_healthy(
        &always(4_000, 3_000, 1_500).with(|n| n.facts.push((facts::HUGE_PAGES, "madvise".to_owned()))),
        "BT020",
    );
    // If only root may read the file, that is the reason.
    let mut unread =
        always(4_000, 3_000, 1_500).with(|n| n.missing_metrics.push(&metrics::ANON_HUGE)).period();
    let why = "/proc/7/smaps_rollup: permission denied";
    unread.gaps.push(Gap {
        begin: 0,
        end: 1,
        source: "host.smaps_rollup".to_owned(),
        kind: TroubleKind::Denied,
        reason: why.to_owned(),
    });
    match outcome(&unread, "BT020") {
        Outcome::NotJudged { reason, .. } => assert!(reason.ends_with(why), "{reason}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_drifting_clock_is_reported_with_the_time_until_it_is_right() {
    let behind = node().with(|n| (n.clock_gain, n.clock_ahead) = (0.0098, -35.0));
    let found = finding(&behind, "BT021");
    assert_eq!((found.level, entries(&found)), (Level::Warning, vec!["+C", "host.clock"]));
    assert_eq!(found.title, "VM clock runs 0.98 % fast, 35 s behind the host");
    assert!(
        found.detail.starts_with("all timers run fast with it, until they agree in 60 min; "),
        "{}",
        found.detail
    );
    let hours = behind.clone().with(|n| n.clock_ahead = -3_600.0);
    assert_eq!(finding(&hours, "BT021").level, Level::Critical);
    // The clock is slow while it approaches the host's time.
    let ahead = behind.clone().with(|n| (n.clock_gain, n.clock_ahead) = (-0.0098, 35.0));
    assert!(finding(&ahead, "BT021").title.contains("0.98 % slow"));
    // On two hosts, the difference of the clocks is meaningless.
    let remote = behind.with(|n| n.missing_metrics.push(&metrics::WALL_CLOCK));
    let found = finding(&remote, "BT021");
    assert_eq!((found.level, found.against.len()), (Level::Warning, 1));
    // Small errors are corrected at 0.05 %; less is drift between the clocks.
    assert_eq!(finding(&node().with(|n| n.clock_gain = 0.0005), "BT021").level, Level::Notice);
    assert_healthy(&node().with(|n| (n.clock_gain, n.clock_ahead) = (0.00005, 0.02)), "BT021");
    assert_healthy(&node(), "BT021");
}

#[test]
fn a_step_of_the_hosts_time_matters_depending_on_the_vms_correction() {
    let stepped = node().with(|n| n.clock_step = 2.0);
    let found = finding(&stepped, "BT021");
    assert_eq!((found.level, entries(&found)), (Level::Warning, vec!["+C", "host.clock"]));
    assert_eq!(found.title, "Host time was stepped by 2.0 s during the recording");
    let mode = |mode: &str| stepped.clone().with(|n| n.facts.push((facts::TIME_WARP_MODE, mode.to_owned())));
    let found = finding(&mode("multi_time_warp"), "BT021");
    assert_eq!((found.level, entries(&found)), (Level::Notice, vec!["host.clock"]));
    // The VM has not read the host's time yet.
    let unseen = mode("multi_time_warp").with(|n| n.clock_ahead = -2.0);
    assert_eq!(finding(&unseen, "BT021").level, Level::Notice);
    // A small step is corrected within a minute.
    assert_eq!(finding(&node().with(|n| n.clock_step = 0.5), "BT021").level, Level::Notice);
    // A time service slews the clock like this.
    assert_healthy(&node().with(|n| n.clock_step = 0.02), "BT021");
}

const DAY: i64 = 86_400;

/// Change of a clock since the day began, in nanoseconds.
type SinceMorning = fn(i64) -> i64;

/// A recording of a day; the host was read until the second `host_until`.
fn day(
    mode: &str,
    host_until: i64,
    wall: SinceMorning,
    offset: SinceMorning,
    system: SinceMorning,
) -> Period {
    let mut facts = Facts::default();
    facts.set(facts::TIME_WARP_MODE, mode);
    let mut builder = PeriodBuilder::new(None, facts, 1);
    for (metric, value, every, until) in [
        (&metrics::WALL_CLOCK, wall, 1, host_until),
        (&metrics::CLOCK_OFFSET, offset, 1, DAY),
        (&metrics::TIME_OFFSET, system, 10, DAY),
    ] {
        let series = Series::of(metric, "");
        let point = |second| Point { t: second * SECOND_NS, incarnation: 0, value: value(second) };
        builder.column(&series, (0..=until).step_by(every).map(point));
    }
    builder.finish()
}

#[test]
fn a_step_late_in_a_long_recording_is_not_compared_with_earlier_readings() {
    /// The host's time is stepped five minutes before the end.
    fn set(second: i64) -> i64 {
        if second > DAY - 300 { 2 * SECOND_NS } else { 0 }
    }
    let ahead = |period: &Period| match outcome(period, "BT021") {
        Outcome::Found(findings) => {
            let is_it = |evidence: &&Evidence| evidence.what == "VM system time ahead of the host's";
            (findings[0].level, findings[0].evidence.iter().find(is_it).and_then(|evidence| evidence.value))
        }
        other => panic!("{other:?}"),
    };
    // A VM that has adopted the step is right.
    assert_eq!(ahead(&day("multi_time_warp", DAY, set, |_| 0, set)), (Level::Notice, Some(0.0)));
    // A VM that corrects its clock by 1 % is closer by now.
    let corrected: SinceMorning = |second| -(second - (DAY - 300)).max(0) * SECOND_NS / 100;
    let far: SinceMorning = |second| 4 * set(second);
    assert_eq!(ahead(&day("no_time_warp", DAY, far, corrected, |_| 0)), (Level::Warning, Some(-5.0)));
    // A host's clock that was not read at the end cannot be compared.
    assert_eq!(ahead(&day("no_time_warp", DAY, set, |_| 0, |_| 0)), (Level::Warning, Some(-2.0)));
    let unread = day("no_time_warp", DAY - 16, set, |_| 0, |_| 0);
    assert_eq!(ahead(&unread), (Level::Warning, None));
}

#[test]
fn disabled_time_correction_is_a_notice_before_the_step() {
    let off = with_fact(facts::TIME_CORRECTION, "false");
    let found = finding(&off, "BT021");
    assert_eq!((found.level, entries(&found)), (Level::Notice, vec!["+c", "+C", "host.clock"]));
    let stepped = off.with(|n| {
        n.clock_step = 2.0;
        n.facts.push((facts::TIME_WARP_MODE, "multi_time_warp".to_owned()));
    });
    let found = finding(&stepped, "BT021");
    assert_eq!((found.level, entries(&found)), (Level::Warning, vec!["+c", "host.clock"]));
    // Without time correction, not even a small step is corrected.
    assert_eq!(finding(&stepped.with(|n| n.clock_step = 0.5), "BT021").level, Level::Warning);
}

#[test]
fn a_clock_is_not_judged_by_a_few_readings() {
    let short = node().with(|n| n.seconds = 4).period();
    assert!(matches!(outcome(&short, "BT021"), Outcome::NotJudged { .. }));
}

#[test]
fn severity_of_a_slow_clock_source_follows_from_system_time() {
    let found = finding(&with_fact(facts::CLOCKSOURCE, "hpet"), "BT022");
    assert_eq!((found.level, entries(&found)), (Level::Notice, vec!["host.clock_source"]));
    let busy = |source| with_fact(facts::CLOCKSOURCE, source).with(|n| n.system = 0.5);
    assert_eq!(finding(&busy("acpi_pm"), "BT022").level, Level::Warning);
    assert!(finding(&busy("acpi_pm"), "BT022").detail.contains("takes a system call"));
    // The cost depends on the hypervisor, which cannot be queried.
    let xen = finding(&busy("xen"), "BT022");
    assert_eq!((xen.level, xen.against.len()), (Level::Warning, 2));
    assert!(
        xen.title.starts_with("Possibly slow") && xen.detail.contains("may take a system call"),
        "{xen:#?}"
    );
    assert_healthy(&busy("kvm-clock"), "BT022");
    assert_healthy(&node(), "BT022");
    assert!(matches!(outcome(&busy("sundial").period(), "BT022"), Outcome::NotJudged { .. }));
}

#[test]
fn a_restart_loop_is_found() {
    let lives = |lives: &[(i64, i64)]| node().with(|n| n.incarnations = lives.to_vec());
    let looping = lives(&[(0, 3), (5, 9), (10, 14), (15, 18)]);
    let found = finding(&looping, "BT023");
    assert_eq!((found.level, entries(&found)), (Level::Critical, vec!["ERL_CRASH_DUMP", "host.restart"]));
    assert_eq!(found.title, "VM restarted 3 times in 18 s");
    assert_eq!(found.detail, "median time between the last starts: 5 s");
    // A VM that the kernel kills because of its memory leaves no dump.
    let killed = looping.with(|n| n.group_memory = Some((99 * MB, 100 * MB)));
    assert_eq!(entries(&finding(&killed, "BT023"))[0], "host.memory_limit");
    // Two restarts may be a deployment and its correction.
    let twice = finding(&lives(&[(0, 3), (5, 9), (10, 14)]), "BT023");
    assert_eq!((twice.level, twice.against.len()), (Level::Warning, 1));
    // One restart is a notice, and does not show how long runs last.
    assert_eq!(finding(&lives(&[(0, 3), (5, 9)]), "BT023").level, Level::Notice);
    let day = 86_400;
    // A start that failed once, weeks ago, is no loop; nor is a loop that has ended.
    let failed = [
        (0, 9 * day),
        (9 * day, 9 * day + 20),
        (9 * day + 20, 20 * day),
        (20 * day, 31 * day),
        (31 * day, 40 * day),
    ];
    assert_healthy(&lives(&failed), "BT023");
    let mended = finding(&lives(&[(0, 3), (5, 9), (10, 14), (15, 18), (20, 80)]), "BT023");
    assert_eq!(mended.level, Level::Notice);
    assert!(mended.against.iter().any(|against| against.contains("over")), "{mended:#?}");
    assert_eq!(
        finding(&lives(&[(0, 3), (5, 9), (10, 14), (15, 18), (20, 60)]), "BT023").level,
        Level::Critical
    );
    // A rolling upgrade each day.
    assert_healthy(&lives(&[(0, day), (day + 9, 2 * day), (2 * day + 9, 3 * day)]), "BT023");
    assert_healthy(&node(), "BT023");
}

#[test]
fn heart_is_named_if_it_restarts_the_vm() {
    let lives = vec![(0, 3), (5, 9), (10, 14), (15, 18)];
    let looping =
        with_fact(facts::INIT_ARGS, r#"["-heart","-noinput"]"#).with(|n| n.incarnations = lives.clone());
    assert!(finding(&looping, "BT023").evidence.iter().any(|evidence| evidence.what == "restarted by"));
    let other = node().with(|n| n.incarnations = lives);
    assert!(finding(&other, "BT023").evidence.iter().all(|evidence| evidence.what != "restarted by"));
}

/// The data are invented, because no such host is available.
#[test]
fn an_instance_that_spends_more_credits_than_it_earns_is_reported() {
    let burstable =
        |model: &str| node().with(|n| n.facts.push((facts::MACHINE, format!("Amazon EC2 {model}"))));
    // Two CPUs: the VM uses 0.62 cores, other processes use 0.1.
    assert_healthy(&burstable("m5.large"), "BT036");
    assert_healthy(&burstable("t3.2xlarge").with(|n| n.other_cpu = 0.0), "BT036");
    let spends = finding(&burstable("t3.medium"), "BT036");
    assert_eq!((spends.level, spends.subject_text().as_deref()), (Level::Warning, Some("instance type")));
    assert_eq!(entries(&spends), ["host.instance_type", "+sbwt"]);
    // Over more than an hour, a smaller instance is critical.
    assert_eq!(finding(&burstable("t3.nano").with(|n| n.seconds = 4_000), "BT036").level, Level::Critical);
    let spinning = finding(&burstable("t3.micro").with(|n| n.utilization = 0.05), "BT036");
    assert_eq!(entries(&spinning), ["+sbwt", "host.instance_type"]);
    let spent = finding(&burstable("t3.medium").with(|n| n.steal = 0.4), "BT036");
    assert_eq!(spent.level, Level::Warning, "its default is the unlimited mode");
    assert!(spent.title.starts_with("t3.medium is likely out of CPU credits"), "{}", spent.title);
    // By default one family is charged for extra credits, and the other one is slowed down.
    assert!(spends.detail.starts_with("without credits, the excess is charged"), "{}", spends.detail);
    assert!(
        spent.against.iter().any(|against| against.contains("takes the CPU for other guests")),
        "{spent:#?}"
    );
    let older = finding(&burstable("t2.medium"), "BT036");
    assert!(older.detail.starts_with("without credits, it is throttled"), "{}", older.detail);
    let spent = finding(&burstable("t2.medium").with(|n| n.steal = 0.4), "BT036");
    assert_eq!((spent.level, spent.against.len()), (Level::Critical, 0), "{spent:#?}");
    // An instance that uses less than its baseline has credits, whatever its neighbours use.
    let below = burstable("t2.medium")
        .with(|n| (n.utilization, n.cpu, n.other_cpu, n.steal) = (0.13, 0.13, 0.08, 0.4));
    let below = finding(&below, "BT036");
    assert_eq!(below.level, Level::Notice, "{below:#?}");
    assert!(!below.title.contains("out of CPU credits"), "{}", below.title);
    // Other types are unknown.
    for model in ["Microsoft Corporation Virtual Machine", "Google Compute Engine", "Xen HVM domU"] {
        let untold = node().with(|n| n.facts.push((facts::MACHINE, model.to_owned())));
        assert!(matches!(outcome(&untold.period(), "BT036"), Outcome::NotJudged { .. }), "{model}");
    }
}
