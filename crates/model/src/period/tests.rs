use super::build::PROCESS_USES;
use super::*;
use crate::metrics;
use crate::rows::{ProcessTick, RunSampleRow};
use crate::sample::Tick;
use crate::sample::{SampleBuilder, Span};
use crate::source::TroubleKind;

fn tick(second: i64, incarnation: u32) -> Tick {
    let t = second * SECOND_NS;
    let span = Span { begin: t, end: t + 2_000_000 };
    Tick { t, incarnation, vm: Some(span), host: Some(span), late: 0 }
}

/// Builds a period with one sample per second; a closure adds the readings.
fn period(seconds: i64, mut fill: impl FnMut(i64, &mut SampleBuilder<'_>)) -> Period {
    let mut table = SeriesTable::default();
    let mut builder = PeriodBuilder::default();
    for second in 0..seconds {
        let mut out = SampleBuilder::new(&mut table, tick(second, 0));
        fill(second, &mut out);
        let sample = out.sample;
        builder.sample(&sample, &table);
    }
    builder.finish()
}

#[test]
fn a_counter_becomes_a_rate_over_the_whole_period() {
    let period = period(11, |s, out| out.metric(&metrics::REDUCTIONS, "", 1_000 + s * 500));
    assert_eq!(period.rate(&metrics::REDUCTIONS, ""), Ok(500.0));
    assert_eq!(period.stat(&metrics::REDUCTIONS, "").map(|stat| stat.delta), Ok(5_000));
    assert_eq!(period.seconds(), 10.0);
}

#[test]
fn a_missing_sample_only_lengthens_the_window() {
    let period = period(11, |s, out| {
        if s != 4 && s != 5 {
            out.metric(&metrics::REDUCTIONS, "", s * 500);
        }
    });
    assert_eq!(period.rate(&metrics::REDUCTIONS, ""), Ok(500.0));
}

#[test]
fn a_counter_reset_loses_only_one_window() {
    // The counter is reset to zero before second 5; its growth from second 4 to 5 is unknown.
    let period = period(11, |s, out| {
        out.metric(&metrics::REDUCTIONS, "", if s < 5 { 10_000 + s * 500 } else { (s - 5) * 500 });
    });
    let stat = period.stat(&metrics::REDUCTIONS, "").cloned();
    let stat = stat.expect("recorded");
    assert_eq!((stat.resets, stat.delta, stat.covered), (1, 9 * 500, 9 * SECOND_NS));
    assert_eq!(stat.rate(), Some(500.0));
}

#[test]
fn a_restart_is_not_counted_as_growth() {
    let mut builder = PeriodBuilder::default();
    let series = Series {
        group: Group::Vm,
        entity: "".into(),
        name: "reductions".into(),
        unit: Unit::Reductions,
        kind: Kind::Counter,
    };
    let at = |t, incarnation, value| Point { t: t * SECOND_NS, incarnation, value };
    builder.column(&series, [at(0, 0, 100), at(1, 0, 200), at(2, 1, 5_000), at(3, 1, 5_100)]);
    let period = builder.finish();
    assert_eq!(
        period.stat(&metrics::REDUCTIONS, "").map(|stat| (stat.delta, stat.covered)),
        Ok((200, 2 * SECOND_NS))
    );
}

#[test]
fn a_run_of_equal_readings_has_the_same_result_as_single_readings() {
    // Incarnation, value and number of readings, one per second; more readings than a trace can contain.
    let runs = [(0, 7, 1), (0, 7, 400), (0, 9, 3), (0, 2, 3_000), (1, 2, 50), (1, 2, 1), (1, 11, 900)];
    for kind in [Kind::Counter, Kind::Gauge] {
        let series =
            Series { group: Group::Vm, entity: "".into(), name: "made".into(), unit: Unit::Count, kind };
        let (mut each, mut together) = (PeriodBuilder::default(), PeriodBuilder::default());
        let mut second = 0;
        for (incarnation, value, count) in runs {
            let times: Vec<Nanos> = (second..second + count).map(|second| second * SECOND_NS).collect();
            second += count;
            each.column(&series, times.iter().map(|&t| Point { t, incarnation, value }));
            let mut readings = together.take_readings(&series);
            readings.push_same(value, incarnation, &times);
            together.put_readings(readings);
        }
        assert_eq!(each.finish().stats, together.finish().stats, "{kind:?}");
    }
}

#[test]
fn each_incarnation_has_its_first_and_last_tick() {
    let incarnation =
        |id| Incarnation { id, node: String::new(), os_pid: None, boot: id.to_string(), mono0: 0, wall0: 0 };
    let period = period(9, |s, out| {
        out.sample.incarnation = match s {
            0 => Some(incarnation(0)),
            5 => Some(incarnation(1)),
            _ => None,
        }
    });
    let seen: Vec<_> =
        period.incarnation_spans.iter().map(|seen| (seen.begin / SECOND_NS, seen.end / SECOND_NS)).collect();
    assert_eq!((period.incarnation_count, seen), (2, vec![(0, 4), (5, 8)]));
}

#[test]
fn missing_data_have_a_reason() {
    let period = period(3, |s, out| {
        if s == 1 {
            out.sample.gaps.push(Gap {
                begin: 0,
                end: SECOND_NS,
                source: "vm".to_owned(),
                kind: TroubleKind::TimedOut,
                reason: "the node did not answer within 2 s".to_owned(),
            });
        }
    });
    let missing = period.rate(&metrics::REDUCTIONS, "").expect_err("nothing recorded");
    assert_eq!(missing.to_string(), "vm.reductions: the node did not answer within 2 s");
}

#[test]
fn gauges_keep_their_extremes_and_mean() {
    let period =
        period(5, |s, out| out.metric(&metrics::PROCESS_COUNT, "", [10, 30, 20, 50, 40][s as usize]));
    let stat = period.stat(&metrics::PROCESS_COUNT, "").cloned().expect("recorded");
    assert_eq!((stat.min, stat.max, stat.mean(), stat.rate()), (10, 50, 30.0, None));
}

#[test]
fn a_clock_offset_within_its_error_is_ignored() {
    let ahead = |readings: &[(&'static Metric, i64)]| {
        period(1, |_, out| readings.iter().for_each(|&(metric, value)| out.metric(metric, "", value)))
            .host_wall_ahead()
    };
    let check = |ahead_ns, error_ns, expect| {
        let readings = [(&metrics::WALL_AHEAD, ahead_ns), (&metrics::WALL_AHEAD_ERROR, error_ns)];
        assert_eq!(ahead(&readings), expect, "{ahead_ns} ± {error_ns}");
    };
    check(3_200, 1, Some(3_200));
    check(-90, 89, Some(-90));
    check(-90, 90, None);
    check(0, 0, None);
    // Values of a hostile node.
    check(i64::MIN, 0, Some(i64::MIN));
    check(i64::MAX, i64::MIN, None);
    assert_eq!(ahead(&[(&metrics::WALL_AHEAD, 3_200)]), None);
    assert_eq!(ahead(&[]), None);
}

#[test]
fn the_final_run_of_equal_readings_is_exact_in_long_periods() {
    let held = |seconds, value: fn(i64) -> i64| {
        let period = period(seconds, |s, out| out.metric(&metrics::PROCESS_COUNT, "", value(s)));
        let stat = period.stat(&metrics::PROCESS_COUNT, "").cloned().expect("recorded");
        ((stat.final_run_since - stat.first.t) / SECOND_NS, stat.final_run)
    };
    assert_eq!(held(1, |_| 7), (0, 1));
    assert_eq!(held(5, |_| 7), (0, 5));
    assert_eq!(held(5, |s| s), (4, 1));
    // The thinned trace has no point in the seconds of the final run.
    assert_eq!(held(86_400, |s| if s == 86_390 { 8 } else { 7 }), (86_391, 9));
    // A new incarnation starts a new run.
    let series = Series {
        group: Group::Vm,
        entity: "".into(),
        name: "any".into(),
        unit: Unit::Count,
        kind: Kind::Gauge,
    };
    let mut builder = PeriodBuilder::default();
    let at = |t, incarnation| Point { t, incarnation, value: 7 };
    builder.column(&series, [at(0, 0), at(1, 0), at(2, 1), at(3, 1)]);
    let stat = builder.finish().find(Group::Vm, "", "any").cloned().expect("recorded");
    assert_eq!((stat.final_run_since, stat.final_run), (2, 2));
}

#[test]
fn a_day_long_trace_stays_small_and_evenly_spread() {
    let mut trace = Trace::default();
    for second in 0..86_400 {
        trace.push(second * SECOND_NS, second);
    }
    let points = trace.points();
    assert!((TRACE_POINTS / 4..=TRACE_POINTS).contains(&points.len()), "{}", points.len());
    assert_eq!(points[0], (0, 0));
    assert!(points.last().expect("some").1 > 84_000);
    let gaps: Vec<_> = points.windows(2).map(|w| w[1].0 - w[0].0).collect();
    let (min, max) = (gaps.iter().min().expect("some"), gaps.iter().max().expect("some"));
    assert!(*max <= 3 * min, "gaps from {min} to {max} ns");
}

#[test]
fn number_of_processes_is_limited_and_the_busiest_are_kept() {
    let mut builder = PeriodBuilder::default();
    for second in 0..500_i64 {
        let mut ticks: Vec<_> = (0..20)
            .map(|i| ProcessTick {
                pid: format!("<0.{}.0>", 1_000 + second * 20 + i).into(),
                reductions: 10,
                queue: 0,
                runnable: None,
            })
            .collect();
        ticks.push(ProcessTick { pid: "<0.1.0>".into(), reductions: 1_000, queue: 0, runnable: Some(true) });
        ticks.push(ProcessTick { pid: "<0.2.0>".into(), reductions: 0, queue: 77, runnable: Some(false) });
        builder.busiest(second * SECOND_NS, &ticks);
    }
    let period = builder.finish();
    assert!(period.processes.len() <= 2 * PROCESS_USES);
    assert_eq!((&*period.processes[0].pid, period.processes[0].reductions), ("<0.1.0>", 500_000));
    let queued = period.processes.iter().find(|p| p.pid == "<0.2.0>").expect("kept for its queue");
    assert_eq!((queued.queue_max, queued.status_samples, queued.runnable), (77, 500, 0));
}

#[test]
fn the_last_recorded_name_of_an_owner_is_used() {
    let row = |id: &str, t, name: &str| TableRow {
        t,
        id: id.to_owned(),
        name: "sessions".to_owned(),
        owner: "<0.7.0>".to_owned(),
        owner_name: Some(name.to_owned()),
        objects: 1,
        memory_bytes: 1,
        kind: "set".to_owned(),
        protection: "protected".to_owned(),
        options: Vec::new(),
    };
    // The iteration order of tables differs between builders.
    for _ in 0..20 {
        let mut builder = PeriodBuilder::default();
        let busy = ProcessTick { pid: "<0.7.0>".into(), reductions: 10, queue: 0, runnable: None };
        builder.busiest(0, &[busy]);
        builder.table(row("#Ref<0.0.0.1>", SECOND_NS, "now"));
        (2..9).for_each(|id| builder.table(row(&format!("#Ref<0.0.0.{id}>"), 0, "before")));
        let period = builder.finish();
        assert_eq!(period.processes[0].owner_name.as_deref(), Some("now"));
    }
}

#[test]
fn samples_of_one_stack_are_added_up() {
    let mut builder = PeriodBuilder::default();
    let ran = |pid: &str, place: &str, looks| RunSampleRow {
        t: 0,
        pid: pid.to_owned(),
        stack: vec![place.to_owned()],
        samples: looks,
        is_waiting: false,
        ..RunSampleRow::default()
    };
    builder.run_sample(ran("<0.7.0>", "ets:select_trap/1", 2));
    builder.run_sample(ran("<0.7.0>", "gen_server:loop/7", 1));
    builder.run_sample(ran("<0.8.0>", "ets:select_trap/1", 5));
    builder.run_sample(ran("<0.7.0>", "ets:select_trap/1", 3));
    builder.run_sample(RunSampleRow { is_waiting: true, ..ran("<0.7.0>", "gen:do_call/4", 4) });
    // Rows without a pid: random samples of all processes.
    for _ in 0..2 {
        builder.run_sample(RunSampleRow { kind: Some("shop".to_owned()), ..ran("", "shop:price/1", 3) });
    }
    for place in 0..100 {
        builder.run_sample(ran("<0.9.0>", &format!("m:f/{place}"), i64::MAX));
    }
    let period = builder.finish();
    let ran_stacks = |pid| {
        let ran = &period.process(pid).expect("a process").run_stacks;
        ran.iter().map(|(stack, looks)| (&*stack[0], *looks)).collect::<Vec<_>>()
    };
    assert_eq!(ran_stacks("<0.7.0>"), [("ets:select_trap/1", 5), ("gen_server:loop/7", 1)]);
    let stood = &period.process("<0.7.0>").expect("a process").wait_stacks;
    assert_eq!(stood, &[(vec!["gen:do_call/4".to_owned()], 4)]);
    assert_eq!(ran_stacks("<0.8.0>"), [("ets:select_trap/1", 5)]);
    assert_eq!(ran_stacks("<0.9.0>").len(), 16, "limited");
    assert_eq!(period.work_samples.iter().map(|one| one.samples).collect::<Vec<_>>(), [6]);
}
