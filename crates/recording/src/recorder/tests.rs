//! Tests of the sampling loop with a virtual clock, which moves only during sleeps, and when a scripted source lets time pass.

use std::cell::Cell;

use beamtune_model::{IncarnationSpan, metrics};

use bench::{Bench, Scripted};

use super::*;
use crate::reader::{Reader, Selection};

mod bench;

const MS: Nanos = 1_000_000;

fn vm<'a>(source: &'a mut Scripted<'_>) -> Sources<'a> {
    Sources { vm: Some(source), host: None }
}

fn timed_out() -> Result<(), SourceTrouble> {
    Err(SourceTrouble::new(TroubleKind::TimedOut, "no answer within 2 s"))
}

fn gone() -> Result<(), SourceTrouble> {
    Err(SourceTrouble::new(TroubleKind::Gone, "the connection was closed"))
}

fn incarnation(os_pid: u32, boot: &str) -> Incarnation {
    Incarnation {
        id: 99,
        node: "a@b".to_owned(),
        os_pid: Some(os_pid),
        boot: boot.to_owned(),
        mono0: 0,
        wall0: 0,
    }
}

/// Returns the gaps of samples as (source, kind, begin, end), in milliseconds.
fn gaps(samples: &[Sample]) -> Vec<(&str, TroubleKind, i64, i64)> {
    let all = samples.iter().flat_map(|sample| &sample.gaps);
    all.map(|gap| (&*gap.source, gap.kind, gap.begin / MS, gap.end / MS)).collect()
}

fn times(samples: &[Sample]) -> Vec<i64> {
    samples.iter().map(|sample| sample.tick.t / MS).collect()
}

#[test]
fn ticks_follow_the_schedule_even_if_samples_are_slow() {
    let bench = Bench::new(10);
    let mut node = bench.source("vm", |ask, out| {
        bench.clock.pass(300 * MS + ask.t / 100);
        out.metric(&metrics::REDUCTIONS, "", ask.t);
        Ok(())
    });
    let (outcome, samples, reader) = bench.record(vm(&mut node));
    assert_eq!(outcome, Outcome { end: EndReason::Elapsed, samples: 11, missed: 0, last_trouble: None });
    assert_eq!(times(&samples), (0..=10).map(|k| k * 1_000).collect::<Vec<_>>());
    assert!(samples.iter().all(|sample| sample.tick.late == 0));
    assert_eq!(samples[3].tick.vm, Some(Span { begin: 3 * SECOND_NS, end: 3_330 * MS }));
    assert_eq!(reader.wall_at_zero(), Some(1_700_000_000 * SECOND_NS));
}

#[test]
fn the_vm_is_requested_before_the_host_is_read_and_collected_after_it() {
    let bench = Bench::new(0);
    let mut node = bench.source("vm", |_, _| Ok(()));
    let mut host = bench.source("host", |_, _| {
        assert_eq!(bench.requests.borrow().len(), 2, "both were requested");
        bench.clock.pass(3 * MS);
        Ok(())
    });
    let (_, samples, _) = bench.record(Sources { vm: Some(&mut node), host: Some(&mut host) });
    let tick = samples[0].tick;
    assert_eq!((tick.host.map(|span| span.begin), tick.vm.map(|span| span.begin)), (Some(0), Some(3 * MS)));
}

#[test]
fn a_host_whose_data_arrive_with_the_vm_is_collected_after_the_vm() {
    let bench = Bench::new(0);
    let has_come = Cell::new(false);
    let mut node = bench.source("vm", |_, out| {
        bench.clock.pass(2 * MS);
        out.fact(facts::OTP_RELEASE, "25");
        has_come.set(true);
        Ok(())
    });
    let mut host = Scripted {
        comes_with_vm: true,
        ..bench.source("host", |_, out| {
            assert!(has_come.get(), "the VM has answered");
            bench.clock.pass(3 * MS);
            out.fact(facts::HOST_NAME, "far");
            Ok(())
        })
    };
    let (_, samples, _) = bench.record(Sources { vm: Some(&mut node), host: Some(&mut host) });
    let tick = samples[0].tick;
    assert_eq!((tick.vm.map(|span| span.begin), tick.host.map(|span| span.begin)), (Some(0), Some(2 * MS)));
}

#[test]
fn facts_of_a_host_whose_data_arrive_with_the_vm_apply_to_the_next_incarnation() {
    let bench = Bench::new(2);
    let mut node = bench.source("vm", |ask, out| {
        if ask.seq != 1 {
            out.sample.incarnation =
                Some(incarnation(7 + ask.seq as u32, if ask.seq == 0 { "one" } else { "two" }));
            out.fact(facts::OTP_RELEASE, if ask.seq == 0 { "25" } else { "27" });
        }
        Ok(())
    });
    let mut host = Scripted {
        comes_with_vm: true,
        ..bench.source("host", |ask, out| {
            if ask.seq == 0 {
                out.fact(facts::HOST_NAME, "far");
            }
            Ok(())
        })
    };
    let (_, _, reader) = bench.record(Sources { vm: Some(&mut node), host: Some(&mut host) });
    let reported = reader.facts(1).expect("facts");
    assert_eq!((reported.get(facts::HOST_NAME), reported.get(facts::OTP_RELEASE)), (Some("far"), Some("27")));
}

#[test]
fn missed_ticks_become_a_gap_and_are_not_sampled_later() {
    let bench = Bench::new(10);
    let mut node = bench.source("vm", |ask, _| {
        bench.clock.pass(if ask.t == 3 * SECOND_NS { 3_400 * MS } else { 10 * MS });
        Ok(())
    });
    let (outcome, samples, _) = bench.record(vm(&mut node));
    assert_eq!(times(&samples), [0, 1_000, 2_000, 3_000, 6_000, 7_000, 8_000, 9_000, 10_000]);
    assert_eq!((outcome.samples, outcome.missed), (9, 2));
    assert_eq!(samples[4].tick.late, 400 * MS);
    assert_eq!(samples[5].tick.late, 0);
    assert_eq!(gaps(&samples), [("recorder", TroubleKind::Recorder, 4_000, 6_000)]);
    assert_eq!(samples[4].gaps[0].reason, "missed 2 ticks: the last sample took 3.4 s");
}

#[test]
fn expensive_items_are_read_first_last_and_every_ten_seconds() {
    let bench = Bench::new(25);
    let mut node = bench.source("vm", |_, _| Ok(()));
    bench.record(vm(&mut node));
    let details: Vec<_> =
        bench.requests.borrow().iter().filter(|(_, detail)| *detail).map(|(t, _)| *t).collect();
    assert_eq!(details, [0, 10, 20, 25]);
}

#[test]
fn expensive_items_of_a_missed_tick_are_read_at_the_next() {
    let bench = Bench::new(14);
    let mut node = bench.source("vm", |ask, _| {
        bench.clock.pass(if ask.t == 9 * SECOND_NS { 2_500 * MS } else { MS });
        Ok(())
    });
    bench.record(vm(&mut node));
    let details: Vec<_> =
        bench.requests.borrow().iter().filter(|(_, detail)| *detail).map(|(t, _)| *t).collect();
    assert_eq!(details, [0, 11, 14]);
}

#[test]
fn the_last_tick_is_at_the_planned_end_and_not_close_to_another_tick() {
    let check = |every_ms: i64, length_ms: i64, expect: &[i64]| {
        let mut bench = Bench::new(0);
        (bench.plan.every, bench.plan.length) = (every_ms * MS, Some(length_ms * MS));
        let mut node = bench.source("vm", |_, _| Ok(()));
        let (_, samples, _) = bench.record(vm(&mut node));
        assert_eq!(times(&samples), expect, "every {every_ms} ms for {length_ms} ms");
    };
    check(1_000, 2_700, &[0, 1_000, 2_000, 2_700]);
    check(1_000, 2_300, &[0, 1_000, 2_300]);
    check(1_000, 400, &[0, 400]);
    check(1_000, 0, &[0]);
    check(250, 500, &[0, 250, 500]);
}

#[test]
fn a_lasting_failure_is_one_gap_and_the_host_is_still_read() {
    let bench = Bench::new(10);
    let mut node = bench.source("vm", |ask, out| {
        bench.clock.pass(MS);
        if (4..8).contains(&(ask.t / SECOND_NS)) {
            return Err(SourceTrouble::new(TroubleKind::Garbled, format!("nonsense at {}", ask.t)));
        }
        out.metric(&metrics::PROCESS_COUNT, "", 7);
        Ok(())
    });
    let mut host = bench.source("host", |_, out| {
        out.metric(&metrics::RSS, "", 1_000);
        Ok(())
    });
    let (outcome, samples, reader) = bench.record(Sources { vm: Some(&mut node), host: Some(&mut host) });
    assert_eq!(gaps(&samples), [("vm", TroubleKind::Garbled, 4_000, 8_000)]);
    assert_eq!(samples[4].gaps[0].reason, "nonsense at 4000000000");
    assert_eq!(outcome.last_trouble.map(|trouble| trouble.reason).as_deref(), Some("nonsense at 7000000000"));
    let period = reader.period(&Selection::default()).expect("readable");
    assert_eq!((period.ticks, period.vm_ticks, period.host_ticks, period.gaps.len()), (11, 7, 11, 1));
}

#[test]
fn a_failure_of_another_kind_is_another_gap() {
    let bench = Bench::new(9);
    let mut node = bench.source("vm", |ask, _| match ask.t / SECOND_NS {
        2..=3 => Err(SourceTrouble::new(TroubleKind::Garbled, "nonsense")),
        4..=5 => gone(),
        7 => gone(),
        _ => Ok(()),
    });
    let (_, samples, _) = bench.record(vm(&mut node));
    let expect = [
        ("vm", TroubleKind::Garbled, 2_000, 3_000),
        ("vm", TroubleKind::Gone, 4_000, 6_000),
        ("vm", TroubleKind::Gone, 7_000, 8_000),
    ];
    assert_eq!(gaps(&samples), expect);
}

#[test]
fn an_item_that_fails_each_time_is_one_gap() {
    let bench = Bench::new(40);
    let mut host = bench.source("host", |ask, out| {
        let mut report = |source: &str| {
            out.sample.gaps.push(Gap {
                begin: ask.t,
                end: ask.t + MS,
                source: source.to_owned(),
                kind: TroubleKind::Denied,
                reason: "not the owner".to_owned(),
            });
        };
        if ask.detail {
            report("host.smaps_rollup");
        }
        if ask.t / SECOND_NS == 7 || ask.t / SECOND_NS == 25 {
            report("host.open_fds");
        }
        Ok(())
    });
    let (_, samples, _) = bench.record(Sources { vm: None, host: Some(&mut host) });
    let expect = [
        ("host.smaps_rollup", TroubleKind::Denied, 0, 40_001),
        ("host.open_fds", TroubleKind::Denied, 7_000, 7_001),
        ("host.open_fds", TroubleKind::Denied, 25_000, 25_001),
    ];
    assert_eq!(gaps(&samples), expect);
}

#[test]
fn the_host_is_read_while_the_vm_does_not_answer() {
    let bench = Bench::new(30);
    let mut node = bench.source("vm", |ask, _| if ask.t >= 5 * SECOND_NS { timed_out() } else { Ok(()) });
    let mut host = bench.source("host", |_, _| Ok(()));
    let (outcome, samples, _) = bench.record(Sources { vm: Some(&mut node), host: Some(&mut host) });
    // The recorder waits two seconds at first, and in the samples with expensive items at 10 and 20 s; only the ticks after these are
    // missed. The last sample may take two seconds, too.
    assert_eq!(outcome.missed, 3);
    assert!(samples.iter().all(|sample| sample.tick.host.is_some()));
    let vm_gaps: Vec<_> = gaps(&samples).into_iter().filter(|gap| gap.0 == "vm").collect();
    assert_eq!(vm_gaps, [("vm", TroubleKind::TimedOut, 5_000, 32_000)]);
    assert_eq!(node.timeouts[5..9], [2_000, 1_000, 1_000, 1_000]);
}

#[test]
fn the_first_answer_has_a_longer_timeout() {
    let bench = Bench::new(12);
    let mut node = bench.source("vm", |ask, _| if ask.t == 0 { timed_out() } else { Ok(()) });
    let mut host = bench.source("host", |_, _| Ok(()));
    let (_, samples, _) = bench.record(Sources { vm: Some(&mut node), host: Some(&mut host) });
    assert_eq!(node.timeouts[..2], [10_000, 2_000]);
    assert_eq!(times(&samples), [0, 10_000, 11_000, 12_000]);
    assert_eq!(host.timeouts[0], 2_000);
}

#[test]
fn slow_answers_are_recorded() {
    let bench = Bench::new(12);
    let mut node = bench.source("vm", |ask, out| {
        bench.clock.pass(1_200 * MS);
        out.metric(&metrics::REDUCTIONS, "", ask.t);
        Ok(())
    });
    let (outcome, samples, _) = bench.record(vm(&mut node));
    // Each sample starts a little later than the one before, until a tick is missed.
    assert_eq!(times(&samples), [0, 1_000, 2_000, 3_000, 4_000, 6_000, 7_000, 8_000, 9_000, 10_000, 12_000]);
    let late: Vec<_> = samples.iter().map(|sample| sample.tick.late / MS).collect();
    assert_eq!(late, [0, 200, 400, 600, 800, 0, 200, 400, 600, 800, 0]);
    assert_eq!(outcome.missed, 2);
    assert!(samples.iter().all(|sample| sample.readings.len() == 1));
}

#[test]
fn ctrl_c_takes_a_last_sample_with_expensive_items_at_once() {
    let bench = Bench::interrupted(3_400 * MS);
    let mut node = bench.source("vm", |_, _| Ok(()));
    let (outcome, samples, _) = bench.record(vm(&mut node));
    assert_eq!((outcome.end, outcome.missed), (EndReason::Stopped, 0));
    assert_eq!(times(&samples), [0, 1_000, 2_000, 3_000, 3_400]);
    assert_eq!(bench.requests.borrow().last(), Some(&(3, true)));
}

#[test]
fn ctrl_c_during_a_sample_lets_it_finish() {
    let bench = Bench::interrupted(3_001 * MS);
    let mut node = bench.source("vm", |_, _| {
        bench.clock.pass(5 * MS);
        Ok(())
    });
    let (_, samples, _) = bench.record(vm(&mut node));
    assert_eq!(times(&samples), [0, 1_000, 2_000, 3_000, 3_005]);
}

#[test]
fn ctrl_c_right_after_expensive_items_takes_no_other_sample() {
    let bench = Bench::interrupted(10_050 * MS);
    let mut node = bench.source("vm", |_, _| Ok(()));
    let (outcome, samples, _) = bench.record(vm(&mut node));
    assert_eq!((outcome.end, samples.len()), (EndReason::Stopped, 11));
}

#[test]
fn ctrl_c_before_the_first_tick_still_gives_a_sample() {
    let bench = Bench::interrupted(0);
    bench.stop.request();
    let mut node = bench.source("vm", |_, _| Ok(()));
    let (outcome, samples, _) = bench.record(vm(&mut node));
    assert_eq!((outcome.end, samples.len()), (EndReason::Stopped, 1));
}

#[test]
fn the_recording_ends_if_the_node_does_not_come_back() {
    let mut bench = Bench::new(1_000);
    bench.plan.wait_for_return = 20 * SECOND_NS;
    let dies_at_5 =
        |ask: SampleRequest, _: &mut SampleBuilder<'_>| if ask.t >= 5 * SECOND_NS { gone() } else { Ok(()) };
    let mut node = bench.source("vm", |ask, out| {
        if ask.seq == 0 {
            out.sample.incarnation = Some(incarnation(7, "x"));
        }
        dies_at_5(ask, out)
    });
    let mut host = bench.source("host", dies_at_5);
    let (outcome, samples, _) = bench.record(Sources { vm: Some(&mut node), host: Some(&mut host) });
    assert_eq!((outcome.end, samples.len()), (EndReason::SourcesGone, 26));
    let events: Vec<_> = samples.iter().flat_map(|sample| &sample.events).collect();
    assert_eq!(events.len(), 1);
    assert_eq!((events[0].t, &*events[0].kind, &*events[0].subject), (5 * SECOND_NS, "gone", "a@b"));
    assert_eq!(events[0].detail, "the connection was closed");
    let expect = [("host", TroubleKind::Gone, 5_000, 25_000), ("vm", TroubleKind::Gone, 5_000, 25_000)];
    assert_eq!(gaps(&samples), expect);
}

#[test]
fn the_recording_continues_without_the_node_while_its_host_answers() {
    let mut bench = Bench::new(30);
    bench.plan.wait_for_return = 5 * SECOND_NS;
    let mut node = bench.source("vm", |_, _| gone());
    let mut host = bench.source("host", |_, _| Ok(()));
    let (outcome, ..) = bench.record(Sources { vm: Some(&mut node), host: Some(&mut host) });
    assert_eq!((outcome.end, outcome.samples), (EndReason::Elapsed, 31));
}

#[test]
fn an_unsupported_source_does_not_prolong_the_recording() {
    let mut bench = Bench::new(100);
    bench.plan.wait_for_return = 5 * SECOND_NS;
    let mut node =
        bench.source("vm", |_, _| Err(SourceTrouble::new(TroubleKind::Unsupported, "no distribution")));
    let mut host = bench.source("host", |ask, _| if ask.t >= 3 * SECOND_NS { gone() } else { Ok(()) });
    let (outcome, samples, _) = bench.record(Sources { vm: Some(&mut node), host: Some(&mut host) });
    assert_eq!((outcome.end, outcome.samples), (EndReason::SourcesGone, 9));
    assert_eq!(gaps(&samples)[0], ("vm", TroubleKind::Unsupported, 0, 8_000));
}

#[test]
fn a_recording_without_sources_ends_at_once() {
    let mut bench = Bench::new(0);
    bench.plan.length = None;
    let (outcome, ..) = bench.record(Sources::default());
    assert_eq!((outcome.end, outcome.samples), (EndReason::SourcesGone, 0));
}

#[test]
fn a_restarted_node_is_a_new_incarnation_with_the_facts_of_its_host() {
    let bench = Bench::new(10);
    let mut node = bench.source("vm", |ask, out| {
        let second = ask.t / SECOND_NS;
        if second == 5 {
            return gone();
        }
        if second == 0 || second == 6 {
            out.sample.incarnation =
                Some(incarnation(if second == 0 { 70 } else { 71 }, &second.to_string()));
            out.fact("otp_release", if second == 0 { "25" } else { "27" });
        }
        out.metric(&metrics::REDUCTIONS, "", if second < 5 { 10_000 + second } else { second });
        Ok(())
    });
    let mut host = bench.source("host", |ask, out| {
        if ask.seq == 0 {
            out.fact("kernel_version", "6.1.0");
        }
        Ok(())
    });
    let (_, samples, reader) = bench.record(Sources { vm: Some(&mut node), host: Some(&mut host) });
    assert_eq!((host.announced, node.announced), (vec![0, 1], vec![]));

    let lives = reader.recorded_incarnations().expect("readable");
    assert_eq!(
        lives.iter().map(|incarnation| (incarnation.id, incarnation.ticks)).collect::<Vec<_>>(),
        [(0, 6), (1, 5)]
    );
    for (id, release) in [(0, "25"), (1, "27")] {
        let facts = reader.facts(id).expect("readable");
        assert_eq!((facts.get("otp_release"), facts.get("kernel_version")), (Some(release), Some("6.1.0")));
        assert_eq!(facts.get(facts::RECORDED_BY), Some(concat!("beamtune ", env!("CARGO_PKG_VERSION"))));
    }
    let restart = samples[6].events.first().expect("an event");
    assert_eq!((&*restart.kind, &*restart.detail), ("restart", "now process 71"));
    let period =
        reader.period(&Selection { incarnation: Some(1), ..Selection::default() }).expect("readable");
    assert_eq!(period.stat(&metrics::REDUCTIONS, "").map(|stat| (stat.delta, stat.resets)), Ok((4, 0)));
    // A period covers one incarnation, but has the spans of all; a part of the recording has the spans within this part.
    let seen = |begin: i64, end: i64| IncarnationSpan { begin: begin * SECOND_NS, end: end * SECOND_NS };
    assert_eq!(period.incarnation_spans, [seen(0, 5), seen(6, 10)]);
    let part = |from, to| {
        let (from, to) = (Some(from * SECOND_NS), Some(to * SECOND_NS));
        reader.period(&Selection { from, to, ..Selection::default() }).expect("readable").incarnation_spans
    };
    assert_eq!(part(2, 8), [seen(2, 5), seen(6, 8)]);
    assert_eq!(part(7, 9), [seen(7, 9)]);
}

#[test]
fn progress_is_reported_after_each_sample() {
    let bench = Bench::new(2);
    let mut node = bench.source("vm", |ask, _| if ask.seq == 1 { timed_out() } else { Ok(()) });
    let mut reported = Vec::new();
    let mut writer = Writer::in_memory().expect("memory");
    let sources = vm(&mut node);
    record(&bench.plan, sources, &bench.clock, &bench.stop, &mut writer, |progress| {
        let seconds = (progress.elapsed / SECOND_NS, progress.left.map(|left| left / SECOND_NS));
        reported.push((seconds, progress.samples, progress.trouble.map(str::to_owned)));
    })
    .expect("recorded");
    let expect = [
        ((0, Some(2)), 1, None),
        ((1, Some(1)), 2, Some("no answer within 2 s".to_owned())),
        ((2, Some(0)), 3, None),
    ];
    assert_eq!(reported, expect);
}

#[test]
fn a_trigger_adds_an_event_and_dense_expensive_items_for_a_while() {
    let mut bench = Bench::new(1_500);
    bench.plan.triggers = true;
    let mut node = bench.source("vm", |ask, out| {
        let second = ask.t / SECOND_NS;
        // The symptom lasts, disappears, and returns twice; the second time, its trigger may fire again.
        let full = (100..200).contains(&second) || (300..310).contains(&second) || second >= 900;
        for scheduler in 1..=2 {
            out.metric(&metrics::RUN_QUEUE, &format!("scheduler/{scheduler}"), if full { 5 } else { 1 });
        }
        out.family(&metrics::MEMORY, "", "total", (100 + if second == 400 { 90 } else { 0 }) << 20);
        Ok(())
    });
    let (_, samples, _) = bench.record(vm(&mut node));
    let events = samples.iter().flat_map(|sample| &sample.events);
    let reported: Vec<_> =
        events.map(|event| (event.t / SECOND_NS, &*event.kind, &*event.subject, &*event.detail)).collect();
    assert_eq!(
        reported,
        [
            (102, "trigger", "run_queue", "10 of 2"),
            (400, "trigger", "memory", "90 MB of 190 MB"),
            (902, "trigger", "run_queue", "10 of 2"),
        ]
    );
    let dense: Vec<i64> = bench
        .requests
        .borrow()
        .iter()
        .filter(|(second, detail)| *detail && second % 10 != 0)
        .map(|(s, _)| *s)
        .collect();
    let expect = |from: i64| (from + 1..=from + 30).filter(|second| second % 10 != 0);
    // The memory trigger fires at 400 s, but it does not start dense sampling, whose share of time is used up.
    assert_eq!(dense, expect(102).chain(expect(902)).collect::<Vec<_>>());
}

#[test]
fn each_trigger_fires_only_for_its_own_symptom() {
    let run = |value: i64, queue: i64, event: bool| {
        let bench = Bench { plan: Plan { triggers: true, ..Bench::new(30).plan }, ..Bench::new(30) };
        let mut node = bench.source("vm", |ask, out| {
            out.metric(&metrics::CGROUP_MEMORY, "", value);
            out.metric(&metrics::CGROUP_MEMORY_LIMIT, "", 1_000 << 20);
            let (pid, t) = ("<0.7.0>".into(), ask.t);
            out.sample.busiest.push(beamtune_model::ProcessTick {
                pid,
                reductions: 1,
                queue,
                runnable: None,
            });
            if event && ask.t == 5 * SECOND_NS {
                let (kind, subject, detail) = ("long_gc".to_owned(), String::new(), String::new());
                out.sample.events.push(Event { t, kind, subject, detail });
            }
            Ok(())
        });
        let (_, samples, _) = bench.record(vm(&mut node));
        let events = samples.iter().flat_map(|sample| &sample.events).filter(|event| event.kind == "trigger");
        let reported: Vec<_> = events.map(|event| format!("{} {}", event.subject, event.detail)).collect();
        let details = bench.requests.borrow().iter().filter(|(_, detail)| *detail).count();
        (reported.join(""), details > 4)
    };
    assert_eq!(run(800 << 20, 4_999, false), (String::new(), false));
    assert_eq!(run(950 << 20, 4_999, false), ("cgroup_memory 950 MB of 1000 MB".to_owned(), true));
    assert_eq!(run(800 << 20, 5_000, false), ("message_queue 5000 <0.7.0>".to_owned(), true));
    assert_eq!(run(800 << 20, 4_999, true), ("event long_gc".to_owned(), true));
}
