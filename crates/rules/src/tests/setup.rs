//! Tests of rules on the setup of the emulator: carriers, first heaps, persistent terms, binding, versions, NUMA nodes.

use beamtune_model::{Level, Outcome, Rank, SpawnRow, facts};

use super::node::{SyntheticAllocator, SyntheticNode, SyntheticProcess, node};
use super::{Read, assert_healthy, diagnose, entries, finding, outcome, row};

const MB: i64 = 1_000_000;

fn fact(node: SyntheticNode, key: &'static str, value: &str) -> SyntheticNode {
    node.with(|n| n.facts.push((key, value.to_owned())))
}

fn evidence<'a>(found: &'a beamtune_model::Finding, what: &str) -> Option<&'a beamtune_model::Evidence> {
    found.evidence.iter().find(|evidence| evidence.what == what)
}

/// A node with 200 binaries of 600 kB, each in its own carrier.
fn pictures() -> SyntheticNode {
    node().with(|n| {
        n.resident = 300 * MB;
        n.allocators.insert(
            1,
            SyntheticAllocator {
                name: "binary_alloc",
                mbcs: [2, 10 * MB, 100, 9 * MB],
                sbcs: [200, 123 * MB, 200, 120 * MB],
                segments_requested: 40,
                ..SyntheticAllocator::default()
            },
        );
    })
}

#[test]
fn blocks_a_little_above_the_singleblock_threshold_are_found() {
    let found = finding(&pictures(), "BT045");
    assert_eq!((found.level, found.subject_text().as_deref()), (Level::Notice, Some("binary_alloc")));
    assert_eq!(found.title, "binary_alloc: 200 blocks of 586 kB, each in its own carrier");
    assert_eq!(entries(&found), ["+M<S>sbct", "system_flag.erts_alloc_sbct"]);
    assert!(found.remedies[0].change.contains("+MBsbct 2048 +MBlmbcs 20480"), "{}", found.remedies[0].change);
    assert!(
        found.remedies[1].change.contains("{binary_alloc, sbct, 2097152}"),
        "{}",
        found.remedies[1].change
    );
    // Mapping the carriers again and again takes CPU, and the kernel limits the number of mappings.
    let churn =
        pictures().with(|n| (n.allocators[1].segments_requested, n.segments) = (2_000, (2_000, 2_000)));
    assert!(finding(&churn, "BT045").level >= Level::Warning);
    // A large share of the work of a nearly idle VM is little.
    let idle = pictures().with(|n| {
        (n.utilization, n.cpu) = (0.01, 0.02);
        (n.allocators[1].segments_requested, n.segments) = (20, (20, 20));
    });
    let found = finding(&idle, "BT045");
    let share = evidence(&found, "cost of mapping, share of CPU used").and_then(|of| of.value);
    assert!(share.is_some_and(|share| share > 0.1) && found.level == Level::Notice, "{share:?}");
    let many = pictures().with(|n| n.allocators[1].sbcs = [30_000, 18_450 * MB, 30_000, 18_000 * MB]);
    assert_eq!(finding(&many, "BT045").level, Level::Warning);
    // By default, an instance maps 256 of them itself, and the others come from malloc. There is an instance for each of two schedulers,
    // and one more.
    let many = fact(many, facts::SCHEDULERS, "2");
    let few = finding(&many, "BT045");
    assert_eq!(few.level, Level::Notice);
    assert_eq!(evidence(&few, "mappings of these carriers, maximum").and_then(|of| of.value), Some(768.0));
    let more = |most: &str| fact(many.clone(), facts::EMU_ARGS, &format!(r#"["-MBmmsbc","{most}"]"#));
    assert_eq!(finding(&more("100000"), "BT045").level, Level::Warning);
    // The number is limited by all mappings of the OS process, which the kernel counts.
    let merged = more("100000").with(|n| n.contents = vec![("unknown", 0, None)]);
    assert_eq!(finding(&merged, "BT045").level, Level::Notice);

    // In this order: huge blocks are meant to have their own carriers; few blocks do not matter; nor does a small share of memory; a
    // threshold above them is set.
    assert_healthy(&pictures().with(|n| n.allocators[1].sbcs = [20, 123 * MB, 20, 120 * MB]), "BT045");
    assert_healthy(&pictures().with(|n| n.allocators[1].sbcs = [50, 31 * MB, 50, 30 * MB]), "BT045");
    assert_healthy(&pictures().with(|n| n.resident = 9_000 * MB), "BT045");
    assert_healthy(&fact(pictures(), facts::EMU_ARGS, r#"["-MBsbct","64"]"#), "BT045");
    assert_healthy(&node(), "BT045");
}

#[test]
fn carriers_hardly_larger_than_their_blocks_are_found() {
    let small = |args: &str| {
        let node = node().with(|n| {
            n.resident = 400 * MB;
            n.allocators[0].mbcs = [400, 210 * MB, 1_200, 120 * MB];
        });
        fact(node, facts::EMU_ARGS, args)
    };
    let found = finding(&small(r#"["-MHlmbcs","512"]"#), "BT045");
    assert_eq!((found.level, found.subject_text().as_deref()), (Level::Notice, Some("eheap_alloc")));
    assert_eq!(entries(&found), ["+M<S>lmbcs", "+M<S>sbct"]);
    assert!(found.remedies[0].change.starts_with("+MHlmbcs 5120"), "{}", found.remedies[0].change);
    assert!(found.remedies[1].change.starts_with("+MHsbct 51"), "{}", found.remedies[1].change);
    assert!(matches!(outcome(&small(r#"["-Mulmbcs","512"]"#).period(), "BT045"), Outcome::Found(_)));
    assert_healthy(&small(r#"["-MHlmbcs","512","-MHsbct","32"]"#), "BT045");
    assert_healthy(&small("[]"), "BT045");
}

/// A node with 40,000 page faults per second for carriers that the segment cache does not keep.
fn churn() -> SyntheticNode {
    node().with(|n| {
        n.minor_faults = 40_000;
        n.system = 0.2;
        n.segments = (100, 20);
        n.allocators[0].segments_requested = 50;
    })
}

#[test]
fn page_faults_for_remapped_memory_are_reported() {
    let found = finding(&churn(), "BT046");
    assert_eq!((found.level, found.subject_text().as_deref()), (Level::Notice, Some("eheap_alloc")));
    assert_eq!(entries(&found), ["+MMmcs"], "the peak of the carriers is unknown");
    let more = finding(&churn().with(|n| (n.minor_faults, n.system) = (90_000, 0.6)), "BT046");
    assert_eq!(more.level, Level::Warning);

    // In this order: growth has to be mapped; the pages belong to malloc, not to carriers; the kernel does other work.
    assert_healthy(&churn().with(|n| n.resident_growth = 40_000 * 4_096), "BT046");
    assert_healthy(&churn().with(|n| n.segments = (100, 1)), "BT046");
    assert_healthy(&churn().with(|n| n.minor_faults = 2_000), "BT046");
    assert_healthy(&churn().with(|n| n.system = 0.01), "BT046");
    assert_healthy(&node(), "BT046");
}

#[test]
fn a_super_carrier_is_advised_with_a_size_above_the_peak() {
    let peak = churn().with(|n| n.carriers_peak = 400 << 20);
    let found = finding(&peak, "BT046");
    assert_eq!(entries(&found), ["+MMscs", "+MMmcs"]);
    assert_eq!(found.remedies[0].change, "+MMscs 512 +MMsco false");
    let small = fact(peak, facts::EMU_ARGS, r#"["-MMscs","64","-MMmcs","30"]"#);
    let found = finding(&small, "BT046");
    assert_eq!(entries(&found), ["+MMscs"]);
    assert!(found.remedies[0].why.contains("too small"), "{}", found.remedies[0].why);
    // With less memory of the host, the VM would not start.
    let host = |node: &SyntheticNode, megabytes: i64| {
        finding(&fact(node.clone(), facts::HOST_MEMORY, &(megabytes << 20).to_string()), "BT046")
    };
    assert_eq!(host(&small, 400).remedies[0].change, "+MMscs 360 +MMsco false");
    assert_eq!(entries(&host(&small, 70)), ["+MMsco"]);
}

fn spawn(kind: &str, count: i64) -> SpawnRow {
    SpawnRow {
        what: "process".to_owned(),
        kind: kind.to_owned(),
        count,
        sample_size: 100,
        ..SpawnRow::default()
    }
}

/// A node with 200 new processes per second, each of which is collected nine times.
fn requests() -> SyntheticNode {
    node().with(|n| {
        n.gc = 0.12;
        n.spawned = 200;
        n.gcs = (1_800, None);
        n.spawns = vec![spawn("shop:request/2", 90), spawn("shop:other/0", 10)];
    })
}

#[test]
fn small_first_heaps_are_found_with_the_heap_to_set() {
    let found = finding(&requests(), "BT047");
    assert_eq!((found.level, found.subject_text().as_deref()), (Level::Warning, Some("shop:request/2")));
    assert_eq!(entries(&found), ["process.min_heap_size", "+hms"]);
    // Six growth steps by 1.618 from 233 words on.
    assert!(found.remedies[0].change.contains("{min_heap_size, 4185}"), "{}", found.remedies[0].change);
    let seen = requests().with(|n| {
        n.busiest = vec![SyntheticProcess {
            row: row(|row| {
                row.ranks = vec![Rank::Memory];
                row.initial_call = Some("shop:request/2".to_owned());
                row.total_heap_words = Some(6_772);
            }),
            ..SyntheticProcess::default()
        }];
    });
    assert!(finding(&seen, "BT047").remedies[0].change.contains("6772"));
    // If there are many kinds, only the default can be changed.
    let mixed =
        requests().with(|n| n.spawns = vec![spawn("a:b/1", 40), spawn("c:d/0", 35), spawn("e:f/0", 25)]);
    let found = finding(&mixed, "BT047");
    assert_eq!(
        (found.subject_text().as_deref(), entries(&found)),
        (None, vec!["process.min_heap_size", "+hms"])
    );
    assert!(found.remedies[0].change.contains("short-lived"), "{}", found.remedies[0].change);
    // They are most of the processes with a more specific initial call than a fun, but few of all.
    let few = requests().with(|n| n.spawns = vec![spawn("erlang:apply/2", 900), spawn("shop:request/2", 30)]);
    assert_eq!(finding(&few, "BT047").subject, None);
    // A fun does not show what started the process.
    let funs = requests().with(|n| n.spawns = vec![spawn("erlang:apply/2", 100)]);
    assert_eq!(finding(&funs, "BT047").subject, None);
    let swept = fact(requests(), facts::FULLSWEEP_AFTER, "0");
    assert!(finding(&swept, "BT047").against.iter().any(|against| against.contains("fullsweep_after")));
    assert_eq!(finding(&requests().with(|n| n.gc = 0.04), "BT047").level, Level::Notice);

    assert_healthy(&requests().with(|n| n.gcs.0 = 300), "BT047");
    assert_healthy(&requests().with(|n| n.spawned = 2), "BT047");
    // Skipped slots of the process table are no processes: hardly 19 of these 200 are.
    assert_healthy(&requests().with(|n| (n.processes, n.gcs.0) = ((238_000, 0), 600)), "BT047");
    let half = finding(&requests().with(|n| n.processes = (131_072, 0)), "BT047");
    assert!(
        half.title.contains("need 18 GCs each") && half.detail.starts_with("100 started/s"),
        "{}: {}",
        half.title,
        half.detail
    );
    assert_healthy(&requests().with(|n| n.gcs.0 = 200_000), "BT047");
    assert_healthy(&requests().with(|n| n.gc = 0.01), "BT047");
    assert_healthy(&node(), "BT047");
}

#[test]
fn settings_of_all_heaps_are_reported_by_their_cost() {
    let swept = |after: &str| {
        fact(node(), facts::FULLSWEEP_AFTER, after).with(|n| {
            n.gc = 0.15;
            n.busiest = vec![SyntheticProcess {
                row: row(|r| {
                    r.fullsweep_after = Some(0);
                    r.total_heap_words = Some(3_000_000);
                }),
                ..SyntheticProcess::default()
            }];
        })
    };
    let found = finding(&swept("0"), "BT067");
    assert_eq!((found.level, found.subject_text().as_deref()), (Level::Warning, Some("ERL_FULLSWEEP_AFTER")));
    assert_eq!(entries(&found), ["ERL_FULLSWEEP_AFTER"]);
    let diagnosis = diagnose(&swept("0").period());
    let gc = diagnosis.findings().into_iter().find(|found| found.code.0 == "BT011").expect("gc").clone();
    assert_eq!(gc.follows.as_ref().map(|of| of.code.0), Some("BT067"));
    // In this order: the default value; small heaps; hardly any GC.
    assert_healthy(&swept("65535"), "BT067");
    assert_healthy(&swept("0").with(|n| n.busiest[0].row.total_heap_words = Some(2_000)), "BT067");
    assert_healthy(&swept("0").with(|n| n.gc = 0.005), "BT067");

    let first = |words: &str, processes: i64| {
        fact(fact(node(), facts::FULLSWEEP_AFTER, "65535"), facts::MIN_HEAP_WORDS, words).with(|n| {
            n.processes = (processes, 0);
            n.used = 1_000_000_000;
        })
    };
    let large = finding(&first("10946", 5_000), "BT067");
    assert_eq!((large.level, large.subject_text().as_deref()), (Level::Warning, Some("+hms")));
    assert_eq!(entries(&large), ["process.min_heap_size"]);
    assert_healthy(&first("10946", 500), "BT067");
    assert_healthy(&first("233", 50_000), "BT067");
}

/// A node whose literal area collector does this many reductions per second.
fn collector(reductions: i64) -> SyntheticNode {
    node().with(|n| {
        n.processes = (2_000, 0);
        n.busiest = vec![SyntheticProcess {
            pid: "<0.2.0>",
            reductions,
            row: row(|row| row.initial_call = Some("erts_literal_area_collector:start/0".to_owned())),
            ..SyntheticProcess::default()
        }];
    })
}

#[test]
fn persistent_terms_that_are_replaced_often_are_reported() {
    let found = finding(&collector(800_000), "BT048");
    assert_eq!((found.level, found.subject_text().as_deref()), (Level::Warning, Some("persistent_term")));
    assert_eq!(entries(&found), ["code.stable_persistent_terms"]);
    assert!(found.detail.contains("all 2,000 processes"), "{}", found.detail);
    // A scan takes more reductions on later releases.
    let later = fact(collector(800_000), facts::OTP_RELEASE, "27");
    assert_eq!(finding(&later, "BT048").level, Level::Warning);
    let scans =
        |node: &SyntheticNode| evidence(&finding(node, "BT048"), "scanned processes").and_then(|of| of.value);
    assert!(scans(&later) < scans(&collector(800_000)));
    assert_healthy(&collector(20_000), "BT048");
    assert_healthy(&node(), "BT048");
}

/// On OTP 25, each purge of a module takes 19 reductions per process. With 33,000 processes, beamtune caused 435,000 reductions in ten
/// seconds.
#[test]
fn purges_of_beamtunes_own_modules_are_not_blamed_on_the_node() {
    /// Number of samples of a synthetic node. Each sample has these reductions.
    const SAMPLES: i64 = 11;
    let quiet = |reductions: i64| collector(reductions / SAMPLES).with(|n| n.processes = (33_000, 0));
    assert_healthy(&quiet(435_000), "BT048");
    assert_healthy(&quiet(1_200_000), "BT048");
    assert_eq!(finding(&quiet(20_000_000), "BT048").rule, "persistent-term-churn");
}

/// A node whose schedulers are both bound, and wait for as long as they run, while a CPU is idle.
fn bound() -> SyntheticNode {
    fact(
        fact(node(), facts::SCHEDULER_BIND_TYPE, "thread_no_node_processor_spread"),
        facts::SCHEDULER_BINDINGS,
        r#"["0","1"]"#,
    )
    .with(|n| n.run_queue_delay = 0.3)
}

#[test]
fn bound_schedulers_that_wait_while_a_cpu_is_idle_are_reported() {
    let found = finding(&fact(bound(), facts::EMU_ARGS, r#"["-sbt","db"]"#), "BT049");
    assert_eq!(found.level, Level::Warning);
    assert_eq!(entries(&found), ["+sbt", "host.cpu_isolation"]);
    assert!(found.remedies[0].change.starts_with("+sbt u"), "{}", found.remedies[0].change);
    assert_eq!(entries(&finding(&fact(bound(), facts::EMU_ARGS, r#"["-stbt","db"]"#), "BT049"))[0], "+stbt");
    assert!(finding(&bound(), "BT049").remedies[0].change.contains("system_flag"));
    // In this order: no other CPU is free, so unbound schedulers would wait, too; binding does no harm.
    assert_healthy(&bound().with(|n| n.idle = 0.01), "BT049");
    assert_healthy(&bound().with(|n| n.run_queue_delay = 0.001), "BT049");
    // As on RabbitMQ, which binds schedulers by default: little is lost. And the cost of waking up is no delay.
    assert_eq!(
        finding(
            &bound().with(|n| (n.cpu, n.run_queue_delay, n.voluntary_switches) = (0.2, 0.1, 20)),
            "BT049"
        )
        .level,
        Level::Notice
    );
    assert_healthy(&bound().with(|n| n.voluntary_switches = 20_000), "BT049");
    // A short delay is reported as such.
    let little = finding(
        &bound().with(|n| (n.cpu, n.run_queue_delay, n.voluntary_switches) = (1.0, 0.07, 20)),
        "BT049",
    );
    assert!(
        little.level == Level::Notice && little.title.contains("while CPUs are idle"),
        "{}",
        little.title
    );
    // In this order: throttled threads wait, bound or not; the VM is not allowed to use the idle CPUs.
    let throttled = bound().with(|n| (n.quota, n.throttled_periods_of_10, n.throttled) = (Some(500), 5, 0.8));
    assert!(finding(&throttled, "BT049").title.contains("CPUs that others may use"));
    let set = fact(fact(bound(), facts::HOST_CPUS, "64"), facts::CPUS_ALLOWED, "0-1");
    let found = finding(&set, "BT049");
    assert!(found.level == Level::Notice && found.title.contains("while CPUs are idle"), "{found:#?}");
    // The CPUs are shared with others.
    let risk = finding(&bound().with(|n| (n.run_queue_delay, n.quota) = (0.001, Some(1_000))), "BT049");
    assert_eq!(risk.level, Level::Notice);
    assert!(risk.title.contains("CPUs that others may use"), "{}", risk.title);
    let part = fact(bound().with(|n| n.run_queue_delay = 0.001), facts::HOST_CPUS, "8");
    assert_eq!(finding(&part, "BT049").level, Level::Notice);
    assert_healthy(&node().with(|n| n.run_queue_delay = 0.3), "BT049");
    let asked = fact(node(), facts::SCHEDULER_BIND_TYPE, "spread");
    let Outcome::Healthy(text) = outcome(&asked.period(), "BT049") else { panic!("bound") };
    assert!(text.contains("no scheduler is bound"), "{text}");
}

#[test]
fn processes_waiting_for_one_scheduler_are_found() {
    let uneven = |shares: Vec<(f64, i64)>| node().with(|n| n.per_scheduler = shares);
    let found = finding(&uneven(vec![(0.1, 0), (1.0, 7)]), "BT050");
    assert_eq!((found.level, found.subject_text().as_deref()), (Level::Warning, Some("scheduler 2")));
    assert_eq!(entries(&found), ["code.unbound_processes"]);
    let fixed = fact(uneven(vec![(0.1, 0), (1.0, 7)]), facts::EMU_ARGS, r#"["-scl","false"]"#);
    assert_eq!(entries(&finding(&fixed, "BT050")), ["code.unbound_processes", "+scl"]);
    // The flag implies +scl false.
    let by_use =
        finding(&fact(uneven(vec![(0.1, 0), (1.0, 7)]), facts::EMU_ARGS, r#"["-sub","true"]"#), "BT050");
    assert_eq!(entries(&by_use), ["code.unbound_processes", "+sub"]);
    let compaction = evidence(&by_use, "compaction of load").and_then(|of| of.text.as_deref());
    assert_eq!(compaction, Some("switched off (+sub true)"));
    // The later of two flags takes effect. Which one is later is not recorded if both are given.
    let both = fact(uneven(vec![(0.1, 0), (1.0, 7)]), facts::EMU_ARGS, r#"["-sub","true","-scl","true"]"#);
    assert_eq!(entries(&finding(&both, "BT050")), ["code.unbound_processes"]);
    assert_healthy(&uneven(vec![(1.0, 5), (1.0, 7)]), "BT050");
    assert_healthy(&uneven(vec![(0.2, 0), (1.0, 1)]), "BT050");
    assert_healthy(&uneven(vec![(0.9, 2), (0.4, 2)]), "BT050");
    assert!(matches!(outcome(&node().with(|n| n.seconds = 2).period(), "BT050"), Outcome::NotJudged { .. }));
}

fn erts(version: &str) -> SyntheticNode {
    fact(node(), facts::ERTS_VERSION, version)
}

#[test]
fn defects_of_the_version_are_reported_if_they_affect_the_node() {
    let off_heap = |version| fact(erts(version), facts::MESSAGE_QUEUE_DATA, "off_heap");
    let found = finding(&off_heap("13.1.5"), "BT051");
    assert_eq!((found.level, found.subject_text().as_deref()), (Level::Notice, Some("ERTS 13.1.5")));
    // Nothing shows the effect of the defects: they are listed separately, and are not findings.
    let diagnosis = diagnose(&off_heap("13.1.5").period());
    assert!(found.latent && diagnosis.findings().iter().all(|finding| finding.code.0 != "BT051"));
    assert_eq!(diagnosis.latent().len(), 1);
    assert_eq!(entries(&found), ["build.otp_version"]);
    // Earlier versions of the branch have a worse defect.
    assert!(
        found.remedies[0]
            .change
            .starts_with("upgrade ERTS 13.1.5 → 13.2.2.13 (after OTP 25.3.2.13) or later"),
        "{}",
        found.remedies[0].change
    );
    let begins = "Known bug that may apply, fixed in ERTS 13.2.2.13 (after OTP 25.3.2.13): a process with message_queue_data";
    assert!(found.title.starts_with(begins), "{}", found.title);
    assert!(found.title.ends_with("; 1 more"), "{}", found.title);
    assert!(found.evidence.iter().any(|of| of.text.as_ref().is_some_and(|text| text.contains("OTP-19462"))));
    assert!(found.evidence.iter().any(|of| of.what.contains("erlang/otp#7801")), "{:?}", found.evidence);
    assert_healthy(&off_heap("13.2.2.16"), "BT051");
    assert_healthy(&off_heap("15.2.7"), "BT051");
    assert_healthy(&erts("13.1.5"), "BT051");
    assert!(matches!(outcome(&erts("unknown").period(), "BT051"), Outcome::NotJudged { .. }));
    // Imported text lacks most of the signs of defects.
    let imported = |version| fact(erts(version), facts::IMPORTED_FROM, "text");
    assert!(matches!(outcome(&imported("13.1.5").period(), "BT051"), Outcome::NotJudged { .. }));

    // The effect of the defect is visible: a warning. It also reports how the newer release changes flags of the node.
    let quota = erts("13.1.5").with(|n| n.quota = Some(1_000));
    let found = finding(&quota, "BT051");
    assert_eq!((found.level, found.latent), (Level::Warning, false));
    // Visible and possible defects are two findings.
    let both = diagnose(&fact(quota.clone(), facts::MESSAGE_QUEUE_DATA, "off_heap").period());
    let of_it = |found: &[&beamtune_model::Finding]| found.iter().filter(|one| one.code.0 == "BT051").count();
    assert_eq!((of_it(&both.findings()), of_it(&both.latent())), (1, 1));
    assert_healthy(&fact(quota.clone(), facts::CPU_QUOTA, "1"), "BT051");
    // No release reads the quota of an outer control group.
    let own = |own: &str| fact(fact(quota.clone(), facts::CGROUP_PATH, "/pod"), facts::CGROUP_OWN_PATH, own);
    assert_eq!(finding(&own("/pod"), "BT051").level, Level::Warning);
    assert_healthy(&own("/pod/shop"), "BT051");
    let sends = |n: &mut SyntheticNode| {
        n.busiest = vec![SyntheticProcess {
            queue: (5_000, 0),
            row: row(|row| row.current_function = Some("prim_inet:send/3".to_owned())),
            ..SyntheticProcess::default()
        }];
    };
    // The first version that fixes one defect has the other one.
    let both = finding(&quota.with(sends), "BT051");
    assert!(
        both.remedies[0].change.starts_with("upgrade ERTS 13.1.5 → 14.2.5.7 (OTP 26) or later"),
        "{}",
        both.remedies[0].change
    );
    let sender = erts("13.2.2.16").with(sends);
    let sender = fact(sender, facts::EMU_ARGS, r#"["-Mea","config"]"#);
    let found = finding(&sender, "BT051");
    let change = &found.remedies[0].change;
    assert!(change.starts_with("upgrade ERTS 13.2.2.16 → 14.2.5.7 (OTP 26) or later"), "{change}");
}

/// Tests each defect on a node that shows it.
#[test]
fn every_defect_has_a_sign_on_some_node() {
    let seen = |version: &str, change: &dyn Fn(&mut SyntheticNode)| -> Vec<String> {
        match outcome(&erts(version).with(|n| change(n)).period(), "BT051") {
            Outcome::Found(found) => {
                found.iter().flat_map(|found| &found.evidence).map(|of| of.what.clone()).collect()
            }
            other => panic!("{version}: {other:?}"),
        }
    };
    let check = |version: &str, id: &str, change: &dyn Fn(&mut SyntheticNode)| {
        let told = seen(version, change);
        assert!(told.iter().any(|what| what.starts_with(id)), "{id}: {told:?}");
    };
    let process = |n: &mut SyntheticNode, change: &dyn Fn(&mut SyntheticProcess)| {
        let mut busy = SyntheticProcess::default();
        change(&mut busy);
        n.busiest = vec![busy];
    };
    let grow = |n: &mut SyntheticNode| n.kinds.push(("binary", 50 * MB, 20 * MB));
    let dist = |n: &mut SyntheticNode| {
        n.kinds.retain(|kind| kind.0 != "binary");
        n.kinds.push(("binary", 50 * MB, 20 * MB));
        n.dist_samples = vec![super::node::DistSample { queue: 0, output: 0 }; 3];
    };
    for (version, function) in [
        ("15.2.7", "erlang:hibernate/3"),
        ("16.1", "gen_server:loop_hibernate/4"),
        ("16.1", "erlang:hibernate/0"),
    ] {
        check(version, "OTP-19983", &|n| {
            process(n, &|busy| {
                busy.row.current_function = Some(function.to_owned());
                busy.row.total_heap_words = Some(1_000_000);
            });
        });
    }
    check("15.0.1", "OTP-19154", &|n| n.allocators[0].pool = [200, 200 * MB, 500, 50 * MB]);
    check("15.0.1", "OTP-19209", &|n| n.gc = 0.2);
    check("14.2.3", "OTP-19015", &|n| {
        process(n, &|busy| {
            busy.runnable_of_10 = 10;
            busy.row.current_function = Some("re:run/3".to_owned());
        });
    });
    check("13.2.2.6", "OTP-18971", &|n| {
        n.kinds.retain(|kind| kind.0 != "binary");
        grow(n);
    });
    check("14.1", "OTP-18841", &|n| n.dirty_cpu_queue = 3);
    check("12.3.2.14", "OTP-18885", &dist);
    check("12.3.1", "OTP-18077", &dist);
    check("13.2", "OTP-18838", &|n| n.dirty_cpu_active = 0.5);
    check("13.1", "OTP-18496", &|n| {
        n.allocators.push(SyntheticAllocator {
            name: "fix_alloc",
            mbcs: [9, 90 * MB, 900, 80 * MB],
            ..SyntheticAllocator::default()
        });
    });
    check("13.1", "OTP-18463", &|n| n.facts.push((facts::EMU_ARGS, r#"["-hmax","1000000"]"#.to_owned())));
    check("13.0", "OTP-17340", &|n| process(n, &|busy| busy.queue = (200_000, 0)));
    check("12.3", "OTP-17824", &|n| {
        n.contents = vec![("unknown", 0, None)];
        (n.lazy_free, n.minor_faults) = (100 * MB, 9_000);
    });
    check("12.3", "OTP-16982", &|n| {
        n.locks =
            vec![beamtune_model::LockRow { collisions: 100_000, ..super::node::lock("proc_msgq", None) }];
    });
    check("12.3", "OTP-16982", &|n| {
        // There are few collisions, but their waits take a fiftieth of the time.
        let waits =
            beamtune_model::LockRow { tries: 100, collisions: 20, ..super::node::lock("proc_msgq", None) };
        n.lock_counting_ns = Some(10_000_000_000);
        n.locks = vec![beamtune_model::LockRow { wait_time: 200_000_000, ..waits }];
    });
    check("15.2", "erlang/otp#9594", &|n| {
        n.locks =
            vec![beamtune_model::LockRow { collisions: 100_000, ..super::node::lock("run_queue", None) }];
    });
    // Three attempts are too few.
    let by_chance = erts("12.3").with(|n| {
        let row = super::node::lock("proc_msgq", None);
        n.locks = vec![beamtune_model::LockRow { tries: 3, collisions: 1, ..row }];
    });
    assert_healthy(&by_chance, "BT051");
    check("12.3", "OTP-16852", &|n| {
        n.gc = 0.2;
        process(n, &|busy| busy.row.binary_bytes = Some(200 * MB));
    });
    check("12.1", "OTP-17796", &|n| {
        n.processes = (50_000, 0);
        process(n, &|busy| busy.row.initial_call = Some("erts_literal_area_collector:start/0".to_owned()));
    });
    check("12.1", "OTP-17363", &|n| n.dirty_gc = 0.4);
    check("13.1", "OTP-19008", &|n| {
        process(n, &|busy| busy.row.message_queue_data = Some("off_heap".to_owned()));
    });
}

#[test]
fn a_vm_on_several_numa_nodes_is_reported() {
    let two = |node: SyntheticNode| {
        let node = fact(node, facts::NUMA_NODES, r#"["0-1","2-3"]"#);
        fact(node, facts::CPUS_ALLOWED, "0-3")
    };
    let found = finding(&two(node()), "BT052");
    assert_eq!(found.level, Level::Notice);
    assert_eq!(entries(&found), ["host.memory_node", "+stbt"]);
    assert!(found.remedies[0].change.contains("+S 2:2"), "{}", found.remedies[0].change);
    let large = finding(&two(node().with(|n| n.cpu = 0.9)), "BT052");
    assert!(large.remedies[0].change.starts_with("run one VM for each"), "{}", large.remedies[0].change);
    assert_healthy(&two(node().with(|n| (n.cpu, n.utilization) = (0.01, 0.01))), "BT052");
    assert_healthy(&fact(two(node()), facts::SCHEDULER_BIND_TYPE, "no_node_thread_spread"), "BT052");
    assert_healthy(&fact(two(node()), facts::CPUS_ALLOWED, "2-3"), "BT052");
    assert_healthy(&node(), "BT052");
    let without = node().with(|n| n.facts.push((facts::NUMA_NODES, String::new())));
    assert!(matches!(outcome(&without.period(), "BT052"), Outcome::NotJudged { .. }));
}

#[test]
fn an_unused_thread_pool_is_a_notice_and_a_busy_one_a_warning() {
    let pool = |threads| node().with(|n| n.async_threads = threads);
    let found = finding(&fact(pool(128), facts::EMU_ARGS, r#"["-A","128"]"#), "BT056");
    assert_eq!((found.level, entries(&found)), (Level::Notice, vec!["+A"]));
    assert!(found.remedies[0].change.starts_with("remove +A 128"), "{}", found.remedies[0].change);
    let found = finding(&pool(64), "BT056");
    assert!(found.remedies[0].change.contains("ERL_THREAD_POOL_SIZE"), "{}", found.remedies[0].change);
    // In this order: the pool was used a little; it is small, as by default before OTP 21.
    assert_healthy(&pool(128).with(|n| n.async_cpu = 0.01), "BT056");
    assert_healthy(&pool(10), "BT056");

    // In this order: a driver computes in the pool; it waits for a disk there.
    for busy in [
        pool(1).with(|n| n.async_cpu = 0.95),
        pool(1).with(|n| n.async_awake = 0.98),
        pool(64).with(|n| n.async_awake = 0.99),
    ] {
        let found = finding(&busy, "BT056");
        assert_eq!((found.level, entries(&found)), (Level::Warning, vec!["+A"]), "{}", found.title);
    }
    // More threads than exist are advised, up to the maximum of the VM.
    let advised = |threads| {
        let found = finding(&pool(threads).with(|n| n.async_awake = 0.99), "BT056");
        found.remedies.first().map(|remedy| remedy.change.clone())
    };
    assert_eq!(advised(1).as_deref(), Some("+A 8"));
    assert_eq!(advised(200).as_deref(), Some("+A 800"));
    assert_eq!(advised(512).as_deref(), Some("+A 1024"));
    assert_eq!(advised(1_024), None);
    assert_eq!(finding(&pool(2).with(|n| n.async_cpu = 0.6), "BT056").level, Level::Notice);
    assert_healthy(&pool(2).with(|n| n.async_awake = 0.3), "BT056");
    let untold = node().with(|n| n.facts.push((facts::ASYNC_THREADS, String::new())));
    assert!(matches!(outcome(&untold.period(), "BT056"), Outcome::NotJudged { .. }));
}

/// A node with these flags, as recordings contain them.
fn flags(args: &[&str], init: &[&str]) -> SyntheticNode {
    let list = |words: &[&str]| format!("{words:?}");
    fact(fact(node(), facts::EMU_ARGS, &list(args)), facts::INIT_ARGS, &list(init))
}

#[test]
fn a_flag_in_effect_that_is_a_trap_is_reported_with_its_source() {
    let pool = flags(&["-MBas", "aobf", "-sbwt", "none"], &[]);
    let found = finding(&pool, "BT064");
    assert_eq!((found.level, found.subject_text().as_deref()), (Level::Warning, Some("+MBas")));
    assert!(found.title.starts_with("`+MBas aobf` disables the migration of carriers"), "{}", found.title);
    assert_eq!(entries(&found), ["+M<S>as"]);
    let by =
        |node: &SyntheticNode| evidence(&finding(node, "BT064"), "set in").and_then(|by| by.text.clone());
    assert!(by(&pool).is_some_and(|by| by.contains("vm.args")), "{:?}", by(&pool));
    let variable = fact(pool, facts::ENVIRONMENT, r#"{"ERL_FLAGS":"+MBas aobf +sbwt none"}"#);
    assert_eq!(by(&variable).as_deref(), Some("ERL_FLAGS"));

    // A flag without effect harms only users who rely on it.
    for args in [&["-e", "5000"][..], &["-P", "4096", "-P", "8192"], &["-A", "64"]] {
        assert_eq!(finding(&flags(args, &[]), "BT064").level, Level::Notice, "{args:?}");
    }
    let kernel = flags(&[], &["-kernel prevent_overlapping_partitions false"]);
    assert_eq!(finding(&kernel, "BT064").level, Level::Notice);
}

#[test]
fn default_flags_and_those_of_products_are_not_traps() {
    assert_healthy(&node(), "BT064");
    assert_healthy(
        &flags(&["-sbwt", "none", "-hms", "4096", "-zdbbl", "128000"], &["-kernel net_ticktime 60"]),
        "BT064",
    );
    let rabbit = [
        "-W",
        "w",
        "-MBas",
        "ageffcbf",
        "-MHas",
        "ageffcbf",
        "-MBlmbcs",
        "512",
        "-MHlmbcs",
        "512",
        "-MMmcs",
        "30",
        "-P",
        "1048576",
        "-t",
        "5000000",
        "-stbt",
        "db",
        "-zdbbl",
        "128000",
        "-sbwt",
        "none",
        "-sbwtdcpu",
        "none",
        "-sbwtdio",
        "none",
        "-P",
        "2000000",
    ];
    let kernel = ["-kernel prevent_overlapping_partitions false"];
    let rabbit = fact(flags(&rabbit, &kernel), facts::PRODUCT, "RabbitMQ 3.10.8");
    assert_healthy(&rabbit, "BT064");
    let ejabberd = fact(flags(&["-K", "true", "-P", "250000"], &[]), facts::PRODUCT, "ejabberd 23.01");
    assert_eq!(finding(&ejabberd, "BT064").level, Level::Notice);
    let emqx = flags(
        &["-spp", "true", "-A", "4", "-SDio", "8", "-e", "262144", "-zdbbl", "8192", "-Q", "1048576"],
        &[],
    );
    assert_eq!(finding(&emqx, "BT064").level, Level::Notice);
    assert!(matches!(
        outcome(&fact(node(), facts::EMU_ARGS, "").period(), "BT064"),
        Outcome::NotJudged { .. }
    ));
}

#[test]
fn a_flag_that_another_finding_covers_as_well_is_not_reported_twice() {
    let debug = fact(flags(&["-A", "64"], &[]), facts::ASYNC_THREADS, "64");
    let codes = |node: &SyntheticNode| -> Vec<&str> {
        diagnose(&node.period()).findings().iter().map(|found| found.code.0).collect()
    };
    let repeated = codes(&debug).contains(&"BT056") && codes(&debug).contains(&"BT064");
    assert!(!repeated, "{:?}", codes(&debug));
}
