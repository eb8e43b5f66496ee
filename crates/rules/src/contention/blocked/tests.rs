use beamtune_model::sample::{SampleBuilder, Span, Tick};
use beamtune_model::{PeriodBuilder, SeriesTable};

use super::*;

/// Schedulers that were sampled for a second; times in milliseconds.
fn times(threads: usize, awake: Option<i64>, ran: i64, queued: i64, sleeps: i64) -> ThreadTimes {
    ThreadTimes {
        kind: kind::SCHEDULER.to_owned(),
        threads,
        length: SECOND_NS,
        awake: awake.map(|ms| ms * 1_000_000),
        working: awake.map(|ms| ms * 1_000_000),
        ran: Some(ran * 1_000_000),
        queued: Some(queued * 1_000_000),
        sleeps: Some(sleeps),
    }
}

#[test]
fn measured_cases_have_the_expected_verdicts() {
    let check = |times: ThreadTimes, answer, what: &str| {
        let judged = judge(times);
        assert_eq!(judged.answer, answer, "{what}: {judged:?}");
    };
    check(times(4, Some(4_000), 400, 120, 74_000), Verdict::Yes, "four schedulers on one lock: 87 %");
    check(
        times(4, Some(4_000), 2_000, 1_360, 17),
        Verdict::NotSure,
        "four that compute, or spin, on two cores: 16 %",
    );
    check(
        times(2, Some(2_000), 1_700, 200, 1_431),
        Verdict::NotSure,
        "two on one lock, which spin and yield",
    );
    check(times(2, Some(2_000), 1_900, 90, 2), Verdict::NotSure, "two that compute, or spin");
    check(times(4, Some(100), 90, 5, 9_000), Verdict::No, "nearly idle, with many short sleeps");
    check(
        times(4, Some(2_000), 1_900, 50, 20_000),
        Verdict::NotSure,
        "half idle: sleeps are for lack of work",
    );
    let spinning = ThreadTimes { working: Some(1_400_000_000), ..times(2, Some(2_000), 1_980, 10, 1_139) };
    check(spinning, Verdict::NotSure, "two that spin for work, and sleep if none comes");
    check(
        times(4, Some(4_000), 2_400, 160, 800),
        Verdict::NotSure,
        "36 % of the time, and 200 sleeps a second",
    );
    check(
        times(2, Some(2_000), 1_900, 90, 200),
        Verdict::NotSure,
        "two that run, and sleep 100 times a second",
    );
}

#[test]
fn without_the_vms_times_only_idle_threads_are_certainly_not_blocked() {
    let check =
        |times: ThreadTimes, expect| assert_eq!((judge(times.clone()).answer, judge(times).why), expect);
    check(times(2, None, 1_900, 90, 2), (Verdict::NotSure, Reason::OnCpu));
    check(times(2, None, 1_700, 200, 1_431), (Verdict::NotSure, Reason::OnCpu));
    check(times(2, None, 10, 0, 5), (Verdict::No, Reason::Idle(0.005)));
    check(times(2, None, 900, 0, 5), (Verdict::NotSure, Reason::NotAsked));
}

#[test]
fn on_a_kernel_without_schedstats_the_sleeps_decide() {
    let open = |sleeps| ThreadTimes { ran: None, queued: None, ..times(2, Some(2_000), 0, 0, sleeps) };
    assert_eq!(judge(open(10)).why, Reason::NotAccounted);
    assert_eq!(judge(open(10)).answer, Verdict::NotSure);
    assert_eq!(
        judge(open(1_431)),
        KindVerdict { times: open(1_431), answer: Verdict::NotSure, why: Reason::Sleeps(715.5) }
    );
    let unknown = ThreadTimes { awake: None, ..open(5) };
    assert_eq!(judge(unknown).why, Reason::NotAccounted);
}

#[test]
fn without_time_and_threads_there_is_no_verdict() {
    let none = judge(ThreadTimes::default());
    assert_eq!(none.answer, Verdict::NotSure);
    assert_eq!(none.times.blocked_share(), None);
}

#[test]
fn the_verdict_is_a_sentence_with_its_number() {
    let check = |times: ThreadTimes, expect: &str| assert_eq!(judge(times).sentence(), expect);
    check(
        times(4, Some(4_000), 400, 120, 74_000),
        "4 schedulers are blocked: neither on a CPU nor runnable for 87 % of their busy time",
    );
    check(
        times(2, Some(2_000), 1_700, 200, 1_431),
        "2 schedulers may be blocked: each slept 716 times per second although it had work: it waits for something, for an unknown time",
    );
    check(times(4, Some(100), 90, 5, 9_000), "4 schedulers are not blocked: busy for only 2 % of the time");
    check(
        times(2, None, 1_900, 90, 2),
        "2 schedulers may be blocked: on a CPU or runnable, but whether they worked or spun for a lock is unknown",
    );
}

/// Ten seconds of two schedulers; the closure adds the VM's own readings of each second.
fn period(mut says: impl FnMut(i64, &str, &mut SampleBuilder<'_>)) -> Period {
    let mut table = SeriesTable::default();
    let mut builder = PeriodBuilder::default();
    for second in 0..11 {
        let t = second * SECOND_NS;
        let span = Span { begin: t, end: t };
        let tick = Tick { t, incarnation: 0, vm: Some(span), host: Some(span), late: 0 };
        let mut out = SampleBuilder::new(&mut table, tick);
        for entity in ["scheduler/1", "scheduler/2"] {
            out.metric(&metrics::THREAD_CPU, entity, second * 200_000_000);
            out.metric(&metrics::THREAD_WAIT, entity, second * 100_000_000);
            out.metric(&metrics::VOLUNTARY_SWITCHES, entity, second * 5_000);
            says(second, entity, &mut out);
        }
        let sample = out.sample;
        builder.sample(&sample, &table);
    }
    builder.finish()
}

#[test]
fn the_awake_time_comes_from_microstates() {
    // Microstate accounting is on for a tenth of the time, so only its shares matter.
    let period = period(|second, entity, out| {
        out.family(&metrics::MSACC, entity, "sleep", second * 10);
        out.family(&metrics::MSACC, entity, "emulator", second * 90);
    });
    let times = of_period(&period).unwrap();
    let expect = ThreadTimes {
        kind: kind::SCHEDULER.to_owned(),
        threads: 2,
        length: 10 * SECOND_NS,
        awake: Some(18 * SECOND_NS),
        working: None,
        ran: Some(4 * SECOND_NS),
        queued: Some(2 * SECOND_NS),
        sleeps: Some(100_000),
    };
    assert_eq!(times, [expect]);
    assert_eq!(judge(times[0].clone()).answer, Verdict::Yes);
}

#[test]
fn a_scheduler_that_waits_for_a_processs_lock_is_awake_although_its_microstate_is_sleep() {
    let period = period(|second, entity, out| {
        out.family(&metrics::MSACC, entity, "sleep", second * 80);
        out.family(&metrics::MSACC, entity, "emulator", second * 20);
        out.metric(&metrics::SCHEDULER_ACTIVE, entity, second * 990);
        out.metric(&metrics::SCHEDULER_TOTAL, entity, second * 1_000);
    });
    let times = of_period(&period).unwrap().remove(0);
    assert_eq!(times.awake, Some(19_800_000_000));
    assert_eq!(judge(times).answer, Verdict::Yes);
}

#[test]
fn steal_is_not_blocked_time() {
    let period = period(|second, entity, out| {
        out.metric(&metrics::SCHEDULER_ACTIVE, entity, second * 1_000);
        out.metric(&metrics::SCHEDULER_TOTAL, entity, second * 1_000);
        if entity == "scheduler/1" {
            out.metric(&metrics::CPU_STEAL, "", second * 1_300_000_000);
        }
    });
    let times = of_period(&period).unwrap().remove(0);
    assert_eq!(times.queued, Some(15 * SECOND_NS));
    assert_eq!(times.blocked(), Some(SECOND_NS));
}

#[test]
fn without_microstates_the_awake_time_comes_from_scheduler_wall_time() {
    let period = period(|second, entity, out| {
        out.metric(&metrics::SCHEDULER_ACTIVE, entity, second * 500);
        out.metric(&metrics::SCHEDULER_TOTAL, entity, second * 1_000);
    });
    let times = &of_period(&period).unwrap()[0];
    assert_eq!((times.awake, times.working), (Some(10 * SECOND_NS), Some(10 * SECOND_NS)));
    let silent = self::period(|_, _, _| {});
    assert_eq!(of_period(&silent).unwrap()[0].awake, None);
}

#[test]
fn a_scheduler_in_busy_wait_is_not_blocked_for_longer_than_it_works() {
    let period = period(|second, entity, out| {
        out.family(&metrics::MSACC, entity, "sleep", second * 40);
        out.family(&metrics::MSACC, entity, "other", second * 60);
        out.metric(&metrics::SCHEDULER_ACTIVE, entity, second * 2);
        out.metric(&metrics::SCHEDULER_TOTAL, entity, second * 1_000);
    });
    let times = of_period(&period).unwrap().remove(0);
    assert_eq!((times.awake, times.blocked()), (Some(12 * SECOND_NS), Some(40_000_000)));
}

#[test]
fn a_recording_without_threads_says_what_is_missing() {
    let missing = of_period(&Period::default()).unwrap_err();
    assert_eq!(missing.what, "the schedulers' threads");
}
