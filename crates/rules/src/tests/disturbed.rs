//! Tests of badly sampled nodes (missing seconds, late reads, a clock step, a restart). A healthy node stays healthy, and a sick one has no
//! finding that it does not have with good samples.

use beamtune_model::{Level, Period, units::SECOND_NS};
use proptest::prelude::*;

use super::node::{SyntheticNode, SyntheticProcess, node};
use super::{diagnose, serial};

/// Rules that may report the disturbance itself: a clock step and a restart.
const TRUE_OF_IT: [&str; 2] = ["BT021", "BT023"];

/// Disturbances of a recording.
#[derive(Debug, Clone)]
struct Disturbance {
    seconds: i64,
    /// For each second, whether it is missing, and how late its read was, in milliseconds.
    ticks: Vec<(bool, i64)>,
    /// Seconds by which the wall clock is stepped in the middle.
    clock_step: i32,
    /// Number of seconds after which the VM restarts.
    restart: Option<i64>,
}

fn any_disturbance() -> impl Strategy<Value = Disturbance> {
    (8_i64..60).prop_flat_map(|seconds| {
        let tick = (prop::bool::weighted(0.3), prop_oneof![2 => Just(0_i64), 1 => 0_i64..999]);
        let ticks = prop::collection::vec(tick, seconds as usize + 1);
        let restart = prop::option::of(1..seconds);
        (ticks, prop_oneof![Just(0), -4_000..4_000], restart)
            .prop_map(move |(ticks, clock_step, restart)| Disturbance { seconds, ticks, clock_step, restart })
    })
}

impl Disturbance {
    /// Returns the period to judge: since the last start, as for a recording.
    fn period(&self, of: &SyntheticNode) -> Period {
        let lost = self.restart.map_or(0, |at| at + 1);
        let node = of.clone().with(|n| {
            (n.seconds, n.clock_step) = (self.seconds - lost, f64::from(self.clock_step));
            n.incarnations = self.restart.map_or(Vec::new(), |at| vec![(0, at), (lost, self.seconds)]);
        });
        let (mut samples, table) = node.samples();
        // Counters restart from 0, while the recorder's clock continues.
        for sample in &mut samples {
            let (_, late_ms) = self.ticks[(sample.tick.t / SECOND_NS + lost) as usize];
            let read = sample.tick.vm.map(|span| span.begin + lost * SECOND_NS).expect("a read");
            let span = beamtune_model::Span { begin: read, end: read };
            sample.tick.late = late_ms * 1_000_000;
            sample.tick.t = read - sample.tick.late;
            (sample.tick.vm, sample.tick.host) = (Some(span), Some(span));
            sample.tick.incarnation = u32::from(self.restart.is_some());
        }
        let mut ticks = self.ticks.iter().skip(lost as usize);
        samples.retain(|_| ticks.next().is_some_and(|(is_missing, _)| !is_missing));
        node.period_of(&samples, &table)
    }
}

/// Sick nodes: one with a serial process, one with a quota, one with a growing queue.
fn sick() -> [SyntheticNode; 3] {
    let throttled = node().with(|n| {
        (n.quota, n.throttled_periods_of_10) = (Some(2_000), 9);
        (n.throttled, n.run_queue_delay) = (1.3, 0.65);
    });
    let growing = node().with(|n| {
        n.busiest =
            vec![SyntheticProcess { queue: (30, 500), reductions: 900, ..SyntheticProcess::default() }];
    });
    [serial(), throttled, growing]
}

/// Returns the findings of a period, except those that a disturbance justifies.
fn found(period: &Period, at_least: Level) -> Vec<(&'static str, String)> {
    let diagnosis = diagnose(period);
    let findings = diagnosis.findings();
    let told = findings
        .into_iter()
        .filter(|finding| finding.level >= at_least && !TRUE_OF_IT.contains(&finding.code.0))
        .map(|finding| (finding.code.0, finding.title.clone()));
    told.collect()
}

proptest! {
    #[test]
    fn a_badly_sampled_healthy_node_has_no_finding(disturbance in any_disturbance()) {
        let false_ones = found(&disturbance.period(&node()), Level::Warning);
        prop_assert!(false_ones.is_empty(), "{:#?}", false_ones);
    }

    #[test]
    fn a_badly_sampled_sick_node_has_no_further_finding(
        disturbance in any_disturbance(),
        which in 0_usize..3,
    ) {
        let node = &sick()[which];
        let well = found(&node.clone().with(|n| n.seconds = 60).period(), Level::Notice);
        prop_assert!(!well.is_empty());
        let badly = found(&disturbance.period(node), Level::Warning);
        let more: Vec<_> = badly.iter().filter(|(code, _)| well.iter().all(|(other, _)| other != code)).collect();
        prop_assert!(more.is_empty(), "{:#?}", more);
    }
}
