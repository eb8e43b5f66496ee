//! Tests of rules on CPU time: what uses it, what waits for it, and why it is unused.

use beamtune_model::{
    Cost, CpuUse, Evidence, Finding, Level, Outcome, ProcessRow, Signal, TableRow, WorkSample, facts, metrics,
};

use super::node::{SyntheticNode, SyntheticProcess, node};
use super::{Read, assert_healthy, diagnose, entries, finding, outcome, row, serial, value};

fn spinning() -> SyntheticNode {
    node().with(|n| {
        n.utilization = 0.02;
        n.cpu = 0.20;
        n.facts.push((facts::EMU_ARGS, r#"["-sbwt","very_long"]"#.to_owned()));
    })
}

/// Returns the reason for most of the unused CPU.
pub(super) fn unused(found: &Finding) -> Option<CpuUse> {
    found.signals.iter().find_map(|signal| match signal {
        Signal::Unused(why) => Some(*why),
        _ => None,
    })
}

#[test]
fn a_little_busy_wait_is_a_notice_unless_a_quota_counts_it() {
    // Busy wait takes 0.17 of two cores.
    let little = node().with(|n| (n.utilization, n.cpu, n.voluntary_switches) = (0.05, 0.135, 0));
    let found = finding(&little, "BT001");
    assert_eq!(found.level, Level::Notice, "{found:#?}");
    let counted = little.with(|n| n.quota = Some(1_900));
    assert_eq!(finding(&counted, "BT001").level, Level::Warning);
}

#[test]
fn the_cost_of_starvation_is_limited_to_what_busy_threads_lacked() {
    // A neighbour that uses all CPUs delays threads in busy wait.
    let idle =
        node().with(|n| (n.utilization, n.cpu, n.run_queue_delay, n.other_cpu) = (0.01, 0.1, 0.45, 1.9));
    let found = finding(&idle, "BT004");
    assert_eq!(found.level, Level::Notice, "{found:#?}");
    assert!(matches!(found.cost(), Some(Cost::CpuCores(cores)) if cores < 0.05), "{:?}", found.cost());
}

#[test]
fn cpu_time_without_utilization_is_busy_wait() {
    let finding = finding(&spinning(), "BT001");
    assert_eq!(finding.level, Level::Warning);
    // With default flags, and CPUs that no other process needs, busy wait does no harm.
    let by_itself = spinning().with(|n| n.facts.clear());
    assert_eq!(super::finding(&by_itself, "BT001").level, Level::Notice);
    assert_eq!(finding.cost(), value(&finding, "busy wait, without sleep and wake-up").map(Cost::CpuCores));
    assert_eq!(entries(&finding), ["+sbwt"]);
    // Work is not busy wait.
    assert_healthy(&node(), "BT001");
    // Busy wait is not reported if hardly any CPU is used.
    assert_healthy(&spinning().with(|n| n.cpu = 0.04), "BT001");
    // 0.3 cores are a small share of 64.
    let large = spinning().with(|n| {
        (n.schedulers, n.cpus, n.voluntary_switches) = (64, 64, 0);
        (n.utilization, n.cpu) = (0.0005, 0.005);
    });
    assert_eq!(super::finding(&large, "BT001").level, Level::Notice);
}

#[test]
fn harmless_busy_wait_is_listed_after_findings_about_the_work() {
    let mut period = node().with(|n| (n.utilization, n.cpu, n.voluntary_switches) = (0.5, 0.75, 0)).period();
    period.work_samples =
        vec![WorkSample { stack: vec!["shop:total/1".to_owned()], samples: 20, ..WorkSample::default() }];
    let diagnosis = diagnose(&period);
    let codes: Vec<&str> = diagnosis.findings().iter().map(|found| found.code.0).collect();
    assert_eq!(codes, ["BT073", "BT001"]);
}

#[test]
fn busy_wait_that_is_off_is_not_reported() {
    let off = r#"["-sbwt","none","-sbwtdcpu","none","-sbwtdio","none"]"#;
    assert_healthy(&spinning().with(|n| n.facts.push((facts::EMU_ARGS, off.to_owned()))), "BT001");
    // Busy wait is off for normal schedulers only, which are those that would do it.
    let half = r#"["-sbwt","none"]"#;
    assert_healthy(&spinning().with(|n| n.facts.push((facts::EMU_ARGS, half.to_owned()))), "BT001");
}

#[test]
fn dirty_io_that_waits_for_a_disk_does_not_hide_busy_wait() {
    assert_eq!(finding(&spinning().with(|n| n.dirty_io_active = 0.9), "BT001").level, Level::Warning);
}

#[test]
fn sleeping_and_waking_up_is_not_busy_wait() {
    assert_healthy(&spinning().with(|n| n.voluntary_switches = 7_000), "BT001");
}

#[test]
fn busy_wait_under_a_quota_is_critical() {
    let node = spinning().with(|n| {
        n.quota = Some(500);
        n.throttled_periods_of_10 = 5;
        n.throttled = 0.8;
    });
    assert_eq!(finding(&node, "BT001").level, Level::Critical);
    // If the CPUs are crowded, runnable neighbours may themselves cause the delay.
    let crowded = finding(&spinning().with(|n| n.run_queue_delay = 0.9), "BT001");
    assert_eq!(
        (crowded.level, crowded.against.iter().any(|but| but.contains("crowded"))),
        (Level::Warning, true)
    );
    // Many short waits are the cost of waking up.
    let wakes =
        finding(&spinning().with(|n| (n.run_queue_delay, n.voluntary_switches) = (0.3, 3_000)), "BT001");
    assert!(!wakes.against.iter().any(|but| but.contains("crowded")), "{wakes:#?}");
}

#[test]
fn a_used_up_quota_is_throttling() {
    let sick = node().with(|n| {
        n.quota = Some(500);
        n.throttled_periods_of_10 = 4;
        n.throttled = 0.4;
    });
    assert_eq!(finding(&sick.clone().with(|n| n.throttled = 0.005), "BT002").level, Level::Notice);
    let found = finding(&sick, "BT002");
    assert_eq!(found.level, Level::Critical);
    assert_eq!(entries(&found), ["host.cpu_quota", "+S", "+sbwt"]);
    assert_healthy(&sick.clone().with(|n| n.throttled_periods_of_10 = 0), "BT002");
    assert_healthy(&node(), "BT002");
    // The demand is CPU used plus CPU throttled.
    assert!(found.detail.starts_with("about 1.0 cores wanted: 0.6"), "{}", found.detail);
    assert!(found.remedies[0].change.starts_with("raise the quota to 1.5 cores"), "{:?}", found.remedies[0]);
    // With as many schedulers as the quota covers, no +S is recommended.
    let fits = sick.with(|n| n.quota = Some(2_000));
    assert_eq!(entries(&finding(&fits, "BT002")), ["host.cpu_quota", "+sbwt"]);
    // Nor is it recommended if one scheduler fewer could not use the CPU that the VM uses now.
    let uses = |cores: f64| fits.clone().with(|n| (n.quota, n.cpu) = (Some(1_900), cores / 2.0));
    assert_eq!(entries(&finding(&uses(1.8), "BT002")), ["host.cpu_quota", "+sbwt"]);
    assert_eq!(entries(&finding(&uses(0.8), "BT002")), ["host.cpu_quota", "+S", "+sbwt"]);
    let many = uses(1.8).with(|n| (n.schedulers, n.cpu) = (4, 0.45));
    assert!(
        finding(&many, "BT002").remedies[1].change.starts_with("+S 2:2"),
        "{:?}",
        finding(&many, "BT002")
    );
}

#[test]
fn threads_of_a_throttled_vm_wait_for_the_quota() {
    let throttled = node().with(|n| {
        (n.quota, n.throttled_periods_of_10, n.throttled, n.run_queue_delay) = (Some(500), 10, 0.9, 0.45);
    });
    let waits = finding(&throttled, "BT004");
    assert!(waits.title.ends_with(": throttled by the CPU quota"), "{}", waits.title);
    assert_eq!(waits.follows.map(|of| of.code.0), Some("BT002"));
    let seldom = finding(&throttled.with(|n| n.throttled_periods_of_10 = 2), "BT004");
    assert!(seldom.title.ends_with(", likely for the CPU quota"), "{}", seldom.title);
}

#[test]
fn fewer_dirty_schedulers_are_advised_if_they_use_up_a_quota() {
    let sick = node().with(|n| {
        n.quota = Some(1_900);
        n.cpu = 0.4;
        n.dirty_cpu_active = 0.5;
        n.throttled_periods_of_10 = 6;
        n.throttled = 0.4;
    });
    let found = finding(&sick, "BT002");
    assert_eq!(entries(&found), ["host.cpu_quota", "+SDcpu", "+sbwt"]);
    assert!(found.remedies[1].change.starts_with("+SDcpu :1;"), "{}", found.remedies[1].change);
    let dirty = found.evidence.iter().find(|evidence| evidence.what == "CPU of the dirty CPU schedulers");
    assert_eq!(dirty.and_then(|evidence| evidence.value), Some(1.0));
    let told = |change: &dyn Fn(&mut SyntheticNode)| {
        entries(&finding(&sick.clone().with(change), "BT002")).contains(&"+SDcpu")
    };
    // In this order: dirty schedulers do little; there is only one; normal schedulers alone would use up the quota; one dirty scheduler
    // alone would use it up.
    assert!(!told(&|n: &mut SyntheticNode| n.dirty_cpu_active = 0.2));
    assert!(!told(&|n: &mut SyntheticNode| n
        .facts
        .push((facts::DIRTY_CPU_SCHEDULERS_ONLINE, "1".to_owned()))));
    assert!(!told(&|n: &mut SyntheticNode| n.cpu = 0.6));
    assert!(!told(&|n: &mut SyntheticNode| n.quota = Some(900)));
    // If there are too many normal schedulers as well, one restart for both is recommended.
    let many = sick.with(|n| (n.schedulers, n.cpu, n.dirty_cpu_active) = (4, 0.2, 0.25));
    assert!(
        finding(&many, "BT002").remedies[1].change.ends_with("+SDcpu 1:1"),
        "{:?}",
        finding(&many, "BT002")
    );
}

#[test]
fn schedulers_are_compared_with_quota_and_cpus() {
    let check = |schedulers: usize, cpus: i64, quota: Option<i64>, expect: Option<Level>| {
        let node = node().with(|n| {
            n.schedulers = schedulers;
            n.cpus = cpus;
            n.quota = quota;
            n.run_queue_delay = 0.2;
        });
        match expect {
            Some(level) => {
                assert_eq!(finding(&node, "BT003").level, level, "{schedulers} on {cpus}, {quota:?}");
            }
            None => assert_healthy(&node, "BT003"),
        }
    };
    check(2, 2, None, None);
    check(4, 4, Some(1_000), Some(Level::Warning));
    check(2, 2, Some(1_500), Some(Level::Notice));
    check(2, 8, Some(2_000), None);
    check(8, 2, None, Some(Level::Warning));
    // With one scheduler fewer, half a CPU would be lost, if it is used.
    assert_healthy(&node().with(|n| (n.quota, n.cpu) = (Some(1_500), 0.7)), "BT003");
    let used = |cores: f64| {
        node().with(|n| (n.schedulers, n.cpus, n.quota, n.cpu) = (8, 8, Some(2_500), cores / 8.0))
    };
    assert_eq!(finding(&used(2.2), "BT003").remedies[0].change, "+S 3:3");
    assert_eq!(finding(&used(1.2), "BT003").remedies[0].change, "+S 2:2");
    // No number of schedulers fits a quota below one core.
    check(1, 2, Some(500), None);
    // If nothing is lost, it is only a notice. The cost of waking up is no loss.
    assert_eq!(finding(&node().with(|n| n.schedulers = 8), "BT003").level, Level::Notice);
    // With sixteen schedulers per core, the next burst would be a loss.
    assert_eq!(finding(&node().with(|n| n.schedulers = 32), "BT003").level, Level::Warning);
    let wakes = node().with(|n| (n.schedulers, n.run_queue_delay, n.voluntary_switches) = (8, 0.2, 20_000));
    let found = finding(&wakes, "BT003");
    assert_eq!((found.level, found.cost()), (Level::Notice, None));
}

#[test]
fn run_queue_delay_is_attributed_to_what_uses_the_cpu() {
    let starved = node().with(|n| {
        n.run_queue_delay = 0.5;
        n.cpu = 0.4;
        n.other_cpu = 1.3;
    });
    // If there is hardly any busy wait, it need not be switched off.
    let works = finding(&starved.clone().with(|n| n.cpu = 0.31), "BT004");
    assert_eq!(entries(&works), ["host.cpu_isolation"]);
    let found = finding(&starved, "BT004");
    assert!(found.title.contains("other OS processes"), "{}", found.title);
    assert_eq!(entries(&found), ["host.cpu_isolation", "+sbwt"]);
    // Many short waits are the cost of waking up.
    let wakes = starved.clone().with(|n| n.voluntary_switches = 20_000);
    assert_eq!(finding(&wakes, "BT004").level, Level::Notice);
    // If CPUs are idle, many short waits are nothing but that cost.
    let alone = wakes.with(|n| (n.utilization, n.cpu, n.other_cpu) = (0.3, 0.1, 0.1));
    assert_healthy(&alone, "BT004");
    // CPUs that were idle most of the time were used in a burst only.
    let burst = starved.clone().with(|n| (n.utilization, n.cpu, n.other_cpu) = (0.6, 0.1, 0.4));
    assert_eq!(finding(&burst, "BT004").level, Level::Notice);
    // If a quota throttles the VM, waiting is no sign of neighbours.
    let throttled = starved.clone().with(|n| {
        n.quota = Some(500);
        n.throttled_periods_of_10 = 8;
        n.throttled = 0.3;
    });
    let found = finding(&throttled, "BT004");
    assert_eq!((found.level, entries(&found)), (Level::Notice, vec![]));
    let alone = throttled.with(|n| (n.schedulers, n.other_cpu) = (8, 0.05));
    let found = finding(&alone, "BT004");
    assert_eq!((found.level, entries(&found)), (Level::Notice, vec![]));
    // More schedulers than CPUs displace each other.
    let itself = starved.clone().with(|n| {
        n.schedulers = 8;
        n.other_cpu = 0.05;
    });
    let found = finding(&itself, "BT004");
    assert!(found.title.ends_with("more threads than CPUs"), "{}", found.title);
    assert_eq!(entries(&found), ["+S", "+sbwt"]);
    // Many threads are in busy wait, but those with work wait for other processes.
    let spins = starved
        .clone()
        .with(|n| (n.schedulers, n.utilization, n.cpu, n.run_queue_delay) = (10, 0.05, 0.05, 0.4));
    let found = finding(&spins, "BT004");
    assert!(found.title.ends_with("for other OS processes"), "{}", found.title);
    assert!(found.detail.starts_with("these use 1.3 of"), "{}", found.detail);
    assert!(
        matches!(found.cost(), Some(Cost::CpuCores(cores)) if (cores - 0.5).abs() < 0.01),
        "limited to the delay of threads with work: {:?}",
        found.cost()
    );
    let work = value(&found, "run-queue delay of schedulers with work");
    assert!(work.is_some_and(|cores| (cores - 0.5).abs() < 0.01), "{:?}", found.evidence);
    // There are as many schedulers as CPUs, and dirty schedulers in addition.
    let found = finding(&starved.with(|n| n.other_cpu = 0.05), "BT004");
    assert_eq!(entries(&found), ["host.cpu_isolation", "+sbwt"]);
}

/// Returns the finding of BT004 if the host has this many CPUs, and the VM may use only the CPUs of the node.
fn starved_on_host_of(node: &SyntheticNode, cpus: i64) -> Finding {
    let online = metrics::CPUS_ONLINE;
    let (mut samples, table) = node.samples();
    let series = table.find(online.group, "", online.name).expect("the series");
    for (id, value) in samples.iter_mut().flat_map(|sample| &mut sample.readings) {
        if *id == series {
            *value = cpus;
        }
    }
    match outcome(&node.period_of(&samples, &table), "BT004") {
        Outcome::Found(findings) => findings.into_iter().next().expect("a finding"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn neighbours_that_may_have_run_on_other_cpus_are_not_blamed() {
    let many = node().with(|n| (n.schedulers, n.run_queue_delay, n.other_cpu, n.cpu) = (8, 0.3, 1.3, 0.4));
    let found = starved_on_host_of(&many, 8);
    assert!(found.detail.starts_with("the VM may use 2 of 8 CPUs"), "{}", found.detail);
    assert_eq!(entries(&found), ["+S", "host.cpu_isolation", "+sbwt"]);
    assert!(found.against.iter().any(|but| but.contains("is not recorded")), "{:?}", found.against);
    // The other CPUs had no room for the neighbours. And the VM has too many threads anyway.
    let full = starved_on_host_of(&many.clone().with(|n| n.other_cpu = 7.5), 8);
    assert!(full.detail.starts_with("these use 7.5 of 8 cores"), "{}", full.detail);
    assert_eq!(entries(&full), ["host.cpu_isolation", "+S", "+sbwt"]);
    // With one scheduler on one of two CPUs, the cause is unknown, and no +S is offered.
    let one = many.with(|n| (n.schedulers, n.cpus, n.run_queue_delay, n.other_cpu) = (1, 1, 0.7, 0.8));
    assert_eq!(entries(&starved_on_host_of(&one, 2)), ["host.cpu_isolation", "+sbwt"]);
}

#[test]
fn steal_is_reported() {
    let found = finding(&node().with(|n| n.steal = 0.4), "BT004");
    assert_eq!(found.subject_text().as_deref(), Some("steal"));
    // Steal from other processes is not a loss of the VM. A small loss is a notice, unless a quota makes CPU scarce.
    let part = finding(
        &node().with(|n| (n.utilization, n.cpu, n.other_cpu, n.steal) = (0.3, 0.3, 0.5, 0.4)),
        "BT004",
    );
    assert!(matches!(part.cost(), Some(Cost::CpuCores(cores)) if cores < 0.35), "{:?}", part.cost());
    let little = node().with(|n| (n.utilization, n.cpu, n.other_cpu, n.steal) = (0.2, 0.2, 0.0, 0.11));
    assert_eq!(finding(&little, "BT004").level, Level::Notice);
    // On an idle guest, the share of steal is meaningless.
    assert_healthy(&node().with(|n| (n.steal, n.other_cpu, n.cpu) = (0.04, 0.0, 0.01)), "BT004");
}

#[test]
fn dirty_schedulers_are_saturated_when_work_waits_for_them() {
    let io = node().with(|n| {
        n.dirty_io_active = 0.99;
        n.dirty_io_queue = 7;
    });
    let found = finding(&io, "BT012");
    assert_eq!((found.level, entries(&found)), (Level::Critical, vec!["+SDio"]));
    assert!(found.remedies[0].change.contains("+SDio 20"));
    // Threads that neither run nor wake up are in calls that do not return. More threads would end up in such calls, too.
    let stuck = io.clone().with(|n| n.voluntary_switches = 0);
    let found = finding(&stuck, "BT012");
    assert_eq!(entries(&found), ["code.no_blocking_files"]);
    assert!(found.title.contains("each blocked in one call"), "{}", found.title);
    // All of them are in use, but nothing waits.
    assert_eq!(finding(&io.with(|n| n.dirty_io_queue = 0), "BT012").level, Level::Notice);
    let cpu = node().with(|n| {
        n.dirty_cpu_active = 0.97;
        n.dirty_cpu_queue = 3;
    });
    assert_eq!(entries(&finding(&cpu, "BT012")), ["code.shorter_dirty_work"]);
    // There are as many as normal schedulers: no more would start, however many CPUs there are.
    assert_eq!(entries(&finding(&cpu.clone().with(|n| n.cpus = 8), "BT012")), ["code.shorter_dirty_work"]);
    // There are fewer than normal schedulers and CPUs, and some of them are not online.
    let online = |dirty: &str, started: &str, cpus: i64| {
        cpu.clone().with(|n| {
            (n.schedulers, n.cpus) = (4, cpus);
            n.facts.push((facts::DIRTY_CPU_SCHEDULERS_ONLINE, dirty.to_owned()));
            n.facts.push((facts::DIRTY_CPU_SCHEDULERS, started.to_owned()));
        })
    };
    let few = finding(&online("1", "1", 4), "BT012");
    assert_eq!(entries(&few), ["+SDcpu", "code.shorter_dirty_work"]);
    assert_eq!(few.remedies[0].change, "+SDcpu 4:4");
    let offline = finding(&online("1", "4", 3), "BT012");
    assert!(entries(&offline).contains(&"system_flag.dirty_cpu_schedulers_online"), "{offline:#?}");
    assert!(offline.remedies[1].change.ends_with("online, 3)"), "{offline:#?}");
    // There is no CPU for those that are offline.
    assert_eq!(entries(&finding(&online("2", "4", 2), "BT012")), ["code.shorter_dirty_work"]);
    // Schedulers that run GC get their own allocator, unless they have one.
    let collecting = cpu.clone().with(|n| n.dirty_gc = 0.6);
    assert_eq!(entries(&finding(&collecting, "BT012")), ["+Mdai", "code.shorter_dirty_work"]);
    let own = collecting.with(|n| n.facts.push((facts::EMU_ARGS, r#"["-Mdai","max"]"#.to_owned())));
    assert_eq!(entries(&finding(&own, "BT012")), ["code.shorter_dirty_work"]);
    assert_healthy(&node(), "BT012");
}

#[test]
fn a_process_that_repeatedly_empties_its_queue_delays_nothing() {
    let collector = |lengths: &[i64]| {
        let node = node().with(|n| {
            n.busiest = vec![SyntheticProcess {
                reductions: 1_000,
                queue: (300, 0),
                row: row(|row| {
                    row.name = Some("historian".to_owned());
                    row.stack = vec!["timer:sleep/1".to_owned(), "historian:loop/0".to_owned()];
                    row.status = Some("waiting".to_owned());
                }),
                ..SyntheticProcess::default()
            }];
        });
        let mut period = node.period();
        let mut builder = beamtune_model::PeriodBuilder::default();
        for (second, &queue) in lengths.iter().enumerate() {
            let tick = beamtune_model::rows::ProcessTick {
                pid: "<0.77.0>".into(),
                reductions: 100,
                queue,
                runnable: Some(false),
            };
            builder.busiest(second as i64 * beamtune_model::units::SECOND_NS, &[tick]);
        }
        let told = builder.finish().processes.remove(0);
        let process =
            period.processes.iter_mut().find(|process| process.pid == told.pid).expect("the process");
        (process.queue, process.queue_max, process.last_queue) =
            (told.queue, told.queue_max, told.last_queue);
        let found = |code: &str| match outcome(&period, code) {
            Outcome::Found(found) => found.into_iter().next().map(|found| found.title),
            _ => None,
        };
        (found("BT015").is_some_and(|idle| idle.contains("historian")), found("BT006").is_some())
    };
    // The queue is emptied every five seconds, from a thousand messages at the end; or every two seconds, in parts.
    assert_eq!(collector(&[312, 615, 906, 1_173, 1, 332, 648, 952, 1_254, 2, 1_266]), (false, false));
    assert_eq!(collector(&[40, 10, 44, 12, 39, 15, 41, 9, 40, 20, 40]), (false, false));
    // The process is behind: messages stay, or decrease slowly.
    assert_eq!(
        collector(&[312, 615, 906, 1_173, 1_400, 1_700, 2_000, 2_300, 2_600, 2_900, 3_200]),
        (true, true)
    );
    assert_eq!(collector(&[40, 38, 44, 31, 39, 35, 41, 29, 40, 30, 40]), (true, false));
    assert_eq!(collector(&[3, 1, 4, 0, 2, 1, 5, 2, 1, 3, 2]), (true, false));
    // Emptying the queue once may be chance.
    assert!(collector(&[312, 615, 906, 1_173, 1, 332, 648, 952, 1_254, 1_500, 1_700]).0);
}

#[test]
fn unused_cpu_is_explained_by_its_largest_cause() {
    let check = |node: &SyntheticNode, why: CpuUse, level: Level| {
        let found = finding(node, "BT015");
        assert_eq!((unused(&found), found.level), (Some(why), level), "{}", found.title);
        assert_eq!(found.remedies.is_empty(), why == CpuUse::NoRunnable);
    };
    check(&node(), CpuUse::NoRunnable, Level::Notice);
    check(&serial(), CpuUse::SerialProcess, Level::Notice);
    assert!(finding(&serial(), "BT015").title.ends_with("cores idle: only router works"));
    assert!(finding(&serial(), "BT015").detail.contains("everything else waits for one process: router"));
    // If nothing waits for the process, the detail says so. It is then not the reason while others wait for something else.
    let alone = serial().with(|n| n.busiest[0].queue = (0, 0));
    let detail = finding(&alone, "BT015").detail;
    assert!(detail.contains("nothing seems to wait for it: router"), "{detail}");
    check(
        &node().with(|n| (n.utilization, n.cpu, n.active_tasks) = (0.5, 0.5, 2)),
        CpuUse::TakingTurns,
        Level::Notice,
    );
    // There is as much work as one scheduler can do, and by chance two processes are rarely runnable at the same time.
    check(
        &node().with(|n| (n.utilization, n.cpu, n.active_tasks) = (0.5, 0.5, 1)),
        CpuUse::NoRunnable,
        Level::Notice,
    );
    check(
        &node().with(|n| {
            n.quota = Some(2_000);
            n.throttled_periods_of_10 = 9;
            n.throttled = 1.3;
            n.run_queue_delay = 0.65;
        }),
        CpuUse::Quota,
        Level::Notice,
    );
    let starved = |cpu| {
        node().with(|n| {
            n.cpu = cpu;
            n.utilization = cpu;
            n.run_queue_delay = 0.9;
            n.other_cpu = 1.9;
        })
    };
    check(&starved(0.3), CpuUse::Neighbours, Level::Notice);
    // A node with little CPU use is not idle if its threads wait for a CPU.
    check(&starved(0.02), CpuUse::Neighbours, Level::Notice);
    // The delay is too short for BT004.
    let little =
        node().with(|n| (n.utilization, n.cpu, n.run_queue_delay, n.other_cpu) = (0.9, 0.85, 0.09, 0.3));
    assert_healthy(&little, "BT004");
    check(&little, CpuUse::Neighbours, Level::Notice);
    let change = finding(&little, "BT015").remedies[0].change.clone();
    assert!(change.starts_with("move the other processes"), "{change}");
    // If no other process runs, the threads displace each other.
    let alone =
        |cpu| node().with(|n| (n.utilization, n.cpu, n.run_queue_delay, n.other_cpu) = (cpu, cpu, 0.3, 0.0));
    assert_healthy(&alone(0.9), "BT015");
    check(&alone(0.5), CpuUse::NoRunnable, Level::Notice);
    // By the VM's clock the threads are awake; by the kernel's they are neither running nor runnable.
    let locked = node().with(|n| (n.utilization, n.cpu) = (0.95, 0.4));
    check(&locked, CpuUse::Locks, Level::Warning);
    assert!(matches!(finding(&locked, "BT015").cost(), Some(Cost::CpuCores(cores)) if cores > 0.4));
    // Bursts of work ran just when microstate accounting was on.
    let bursts = node().with(|n| (n.utilization, n.cpu, n.msacc_utilization) = (0.4, 0.4, Some(0.95)));
    check(&bursts, CpuUse::NoRunnable, Level::Notice);
    // The VM is idle on a busy host, and its schedulers were sampled in busy wait.
    let spun = node().with(|n| {
        (n.utilization, n.cpu, n.run_queue_delay, n.other_cpu) = (0.002, 0.004, 0.31, 1.99);
        n.msacc_busy_wait = Some(0.49);
    });
    check(&spun, CpuUse::NoRunnable, Level::Notice);
    // The schedulers never sleep, and yet give up the CPU all the time.
    let busy = node().with(|n| (n.utilization, n.cpu) = (0.98, 0.97));
    check(&busy.clone().with(|n| n.involuntary_switches = 10_000), CpuUse::Locks, Level::Warning);
    check(&busy.clone().with(|n| n.voluntary_switches = 40_000), CpuUse::Locks, Level::Warning);
    // Processes that send messages back and forth cause many switches, too.
    assert_healthy(&busy.clone().with(|n| n.voluntary_switches = 5_600), "BT015");
    assert_healthy(&busy, "BT015");
    // Steal is not blocked time.
    assert_ne!(
        unused(&finding(&node().with(|n| (n.utilization, n.cpu, n.steal) = (0.95, 0.5, 0.8)), "BT015")),
        Some(CpuUse::Locks)
    );
    assert_healthy(&node().with(|n| (n.utilization, n.cpu) = (0.01, 0.01)), "BT015");
}

#[test]
fn without_lock_counting_the_suspected_locks_are_listed() {
    let table = |name: &str, options: &[&str]| TableRow {
        id: name.to_owned(),
        name: name.to_owned(),
        protection: "public".to_owned(),
        options: options.iter().map(|&option| option.to_owned()).collect(),
        ..TableRow::default()
    };
    let locked = node().with(|n| {
        (n.utilization, n.cpu) = (0.95, 0.4);
        n.ets = vec![table("carts", &[]), table("visits", &["write_concurrency"])];
        n.busiest =
            vec![SyntheticProcess { pid: "<0.77.0>", queue: (400, 0), ..SyntheticProcess::default() }];
    });
    let texts = |node: &SyntheticNode| {
        let of = |evidence: &Evidence| Some((evidence.what.clone(), evidence.text.clone()?));
        let all = finding(node, "BT015").evidence.iter().filter_map(of).collect::<Vec<_>>();
        let named = |what: &str| all.iter().find(|one| one.0.starts_with(what)).map(|one| one.1.clone());
        (named("largest public tables without write_concurrency"), named("process with the longest queue"))
    };
    assert_eq!(texts(&locked), (Some("carts".to_owned()), Some("<0.77.0>: up to 400 messages".to_owned())));
    let few = locked.clone().with(|n| (n.ets, n.busiest[0].queue) = (Vec::new(), (9, 0)));
    assert_eq!(texts(&few), (None, None));
    // If CPU is unused for another reason, they are not listed.
    assert_eq!(
        texts(
            &locked.with(|n| (n.utilization, n.cpu, n.run_queue_delay, n.other_cpu) = (0.3, 0.3, 0.9, 1.9))
        ),
        (None, None)
    );
}

#[test]
fn a_process_that_waits_with_messages_queued_does_not_leave_the_node_idle() {
    let worker = |queue: i64, runnable_of_10: i64, status: &str| SyntheticProcess {
        reductions: 500,
        queue: (queue, 0),
        runnable_of_10,
        row: ProcessRow {
            name: Some("shop_db".to_owned()),
            status: Some(status.to_owned()),
            current_function: Some("prim_inet:recv0/3".to_owned()),
            ..ProcessRow::default()
        },
        ..SyntheticProcess::default()
    };
    let with = |worker: SyntheticProcess| {
        node().with(|n| {
            (n.utilization, n.cpu) = (0.01, 0.01);
            n.busiest = vec![worker];
        })
    };
    let waits = with(worker(7, 1, "waiting"));
    let found = finding(&waits, "BT015");
    assert_eq!((unused(&found), found.level), (Some(CpuUse::WaitingForReplies), Level::Notice));
    assert!(found.title.ends_with("cores idle: shop_db waits with messages queued"), "{}", found.title);
    assert!(found.detail.contains("prim_inet:recv0/3"), "{}", found.detail);
    // A job that runs at the same time explains nothing.
    let job = SyntheticProcess {
        pid: "<0.99.0>",
        reductions: 800_000,
        runnable_of_10: 10,
        ..SyntheticProcess::default()
    };
    let beside = waits.clone().with(|n| {
        (n.utilization, n.cpu) = (0.5, 0.5);
        n.busiest.push(job);
    });
    assert_eq!(unused(&finding(&beside, "BT015")), Some(CpuUse::WaitingForReplies));
    // In this order: the process has no messages; is runnable; is suspended. Then nothing waits for its reply.
    assert_healthy(&with(worker(0, 1, "waiting")), "BT015");
    assert_healthy(&with(worker(7, 9, "waiting")), "BT015");
    assert_healthy(&with(worker(7, 1, "suspended")), "BT015");
}

#[test]
fn cpus_without_a_scheduler_are_found_if_processes_wait() {
    let few = node().with(|n| {
        n.cpus = 8;
        n.utilization = 0.98;
        n.cpu = 0.95;
        n.active_tasks = 30;
    });
    let found = finding(&few, "BT035");
    assert_eq!(
        (found.level, entries(&found)),
        (Level::Critical, vec!["system_flag.schedulers_online", "+S"])
    );
    assert_eq!(found.title, "Only 2 schedulers for 8 CPUs: 28 runnable processes wait");
    // Schedulers that were not started cannot be set online later.
    let started = |count: &str| few.clone().with(|n| n.facts.push((facts::SCHEDULERS, count.to_owned())));
    let flag = r#"["-S","2:2"]"#.to_owned();
    let restart = finding(&started("2").with(|n| n.facts.push((facts::EMU_ARGS, flag))), "BT035");
    assert_eq!(entries(&restart), ["+S"]);
    assert_eq!(restart.remedies[0].change, "+S 8:8 in place of +S 2:2, and restart the node");
    let offline = finding(&started("8"), "BT035");
    assert_eq!(entries(&offline), ["system_flag.schedulers_online", "+S"]);
    assert_eq!(offline.remedies[0].change, "erlang:system_flag(schedulers_online, 8)");
    let one_left = few.clone().with(|n| n.cpus = 3);
    assert_eq!(finding(&one_left, "BT035").level, Level::Warning);
    // In this order: a quota allows no more schedulers; nothing waits; the schedulers have room left.
    assert_healthy(&few.clone().with(|n| n.quota = Some(2_500)), "BT035");
    assert_healthy(&few.clone().with(|n| n.active_tasks = 2), "BT035");
    assert_healthy(&few.clone().with(|n| n.utilization = 0.5), "BT035");
    assert_healthy(&few.with(|n| n.cpus = 2), "BT035");
}

/// Two busy schedulers, with this many running or runnable processes.
fn crowded(tasks: i64) -> SyntheticNode {
    node().with(|n| (n.utilization, n.cpu, n.active_tasks) = (1.0, 0.98, tasks))
}

#[test]
fn an_overload_is_judged_by_the_waiting_time_of_processes() {
    // 2,000 processes wait, at 10,000 time slices per second.
    let found = finding(&crowded(2_002), "BT065");
    assert_eq!((found.level, found.cost()), (Level::Warning, Some(Cost::Waiting(2_000.0))));
    assert_eq!(found.title, "2,000 runnable processes wait 200 ms for 2 schedulers");
    assert_eq!(value(&found, "time from runnable to running"), Some(0.2));
    assert_eq!(entries(&found), ["code.bounded_processes"]);
    assert_eq!(
        finding(&crowded(10_002).with(|n| n.context_switches = 5_000), "BT065").level,
        Level::Critical
    );
    // A growing number of processes turns a notice into a warning.
    let rising = crowded(302).with(|n| (n.processes, n.spawned) = ((400, 50), 400));
    let found = finding(&rising, "BT065");
    assert!(found.level == Level::Warning && found.has(&Signal::Backlog), "{found:?}");
    assert!(found.title.ends_with(" for 2 schedulers, +50/s"), "{}", found.title);
    let limited = rising.with(|n| n.facts.push((facts::PROCESS_LIMIT, "262144".to_owned())));
    let limited = finding(&limited, "BT065").detail;
    assert!(
        limited.starts_with("process limit reached in 87 min at this rate (900 of 262,144 processes); "),
        "{limited}"
    );
    assert_eq!(finding(&crowded(102), "BT065").level, Level::Notice);
    // With short time slices the delay is short, but long work waits before each of many time slices.
    let short = finding(&crowded(302).with(|n| n.context_switches = 150_000), "BT065");
    assert!(
        short.level == Level::Warning && short.detail.contains("150 waiting per scheduler"),
        "{}",
        short.detail
    );
}

#[test]
fn a_node_that_uses_all_cpu_is_not_necessarily_overloaded() {
    // In this order: eight computing processes on two schedulers; the same with long time slices; a run queue while schedulers are idle.
    assert_healthy(&crowded(8), "BT065");
    assert_healthy(&crowded(8).with(|n| n.context_switches = 100), "BT065");
    assert_healthy(&crowded(2_002).with(|n| n.utilization = 0.5), "BT065");
    assert_healthy(&node(), "BT065");
}

#[test]
fn without_data_of_the_vm_only_full_use_of_the_cpu_is_reported() {
    let outside = |node: SyntheticNode| node.with(|n| n.missing_metrics = vec![&metrics::ACTIVE_TASKS]);
    let found = finding(&outside(crowded(8)), "BT065");
    assert_eq!((found.level, entries(&found).len()), (Level::Notice, 0));
    assert_healthy(&outside(node()), "BT065");
    let silent = |node: SyntheticNode| {
        outside(node).with(|n| n.facts.push((facts::UNANSWERED_LENGTH, "10000000000".to_owned())))
    };
    let found = finding(&silent(crowded(8)), "BT065");
    assert_eq!((found.level, entries(&found)), (Level::Warning, vec!["code.bounded_processes"]));
    // A stopped node does not answer, and nothing runs.
    let found = finding(&silent(node().with(|n| n.cpu = 0.0)), "BT065");
    assert!(found.level == Level::Warning && found.title.contains("stopped"), "{}", found.title);
}
