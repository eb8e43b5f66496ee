//! A healthy node stays healthy, however badly it was looked at: seconds that are missing, late reads, a clock that is set, and a restart.

use beamtune_model::{Level, Period, units::SECOND_NS};
use proptest::prelude::*;

use super::node::{Node, node};
use crate::diagnose;

/// A clock that was set, and a restart, are true.
const TRUE_OF_IT: [&str; 2] = ["BT021", "BT023"];

/// What has happened to a recording.
#[derive(Debug, Clone)]
struct Disturbance {
    seconds: i64,
    /// For each second whether it is missing, and how late its read was, in milliseconds.
    ticks: Vec<(bool, i64)>,
    /// Seconds by which the wall clock is set in the middle.
    clock_step: i32,
    /// After so many seconds the VM is started again.
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
    /// What is left to be judged: of the last life, as of a recording.
    fn period(&self, of: &Node) -> Period {
        let lost = self.restart.map_or(0, |at| at + 1);
        let node = of.clone().with(|n| {
            (n.seconds, n.clock_step) = (self.seconds - lost, f64::from(self.clock_step));
            n.lives = self.restart.map_or(Vec::new(), |at| vec![(0, at), (lost, self.seconds)]);
        });
        let (mut samples, table) = node.samples();
        // Counters begin anew, on a clock that goes on.
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

proptest! {
    #[test]
    fn nothing_is_found_in_a_healthy_node_that_was_looked_at_badly(disturbance in any_disturbance()) {
        let diagnosis = diagnose(&disturbance.period(&node()));
        let found = diagnosis.findings();
        let false_ones: Vec<_> = found
            .iter()
            .filter(|finding| finding.level > Level::Notice && !TRUE_OF_IT.contains(&finding.code.0))
            .map(|finding| format!("{} {}", finding.code.0, finding.summary))
            .collect();
        prop_assert!(false_ones.is_empty(), "{:#?}", false_ones);
    }
}
