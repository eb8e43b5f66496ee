//! Tests of the rule on active traces.

use beamtune_model::{Level, metrics};

use super::node::{SyntheticNode, SyntheticProcess, node};
use super::{Read, assert_healthy, entries, finding, outcome, row};

/// A node with this tracer, on which 5 of 25 processes are traced.
fn traced(tracer: SyntheticProcess, session: &'static str, new: i64) -> SyntheticNode {
    let entity: &'static str = match session {
        "dbg" => "<0.77.0>\u{1f}dbg",
        "my_debug" => "<0.77.0>\u{1f}my_debug",
        "tprof" => "<0.77.0>\u{1f}tprof",
        _ => "<0.77.0>\u{1f}",
    };
    node().with(|n| {
        n.busiest = vec![tracer];
        n.series = vec![
            (&metrics::TRACE_SAMPLED, "", 25, 0),
            (&metrics::TRACED, entity, 5, 0),
            (&metrics::TRACE_NEW, entity, new, 0),
        ];
        n.trace_flags = vec![(entity, "call"), (entity, "procs")];
    })
}

fn tracer(runnable_of_10: i64, queue: (i64, i64), call: &str) -> SyntheticProcess {
    let row = row(|r| r.initial_call = Some(call.to_owned()));
    SyntheticProcess { runnable_of_10, queue, reductions: 1_000, row, ..SyntheticProcess::default() }
}

#[test]
fn severity_follows_from_share_and_queue_of_the_tracer() {
    let dbg = |runs, queue| traced(tracer(runs, queue, "dbg:tracer_loop/2"), "", 1);
    for (runs, queue, level) in [
        (0, (0, 0), Level::Notice),
        (3, (0, 0), Level::Warning),
        (0, (5_000, 0), Level::Warning),
        (10, (100_000, 20_000), Level::Critical),
    ] {
        let found = finding(&dbg(runs, queue).with(|n| n.total_reductions = 1_000), "BT076");
        assert_eq!(found.level, level, "{runs} {queue:?}: {found:#?}");
        assert_eq!(found.subject_text().as_deref(), Some("dbg:tracer_loop/2 (<0.77.0>)"));
        assert_eq!(entries(&found), ["code.end_trace"]);
    }
    let behind = dbg(10, (100_000, 20_000));
    let queue = finding(&behind, "BT006");
    assert_eq!(queue.follows.map(|of| of.code.0), Some("BT076"));
    // In this order: no trace; a recording of an earlier version.
    let quiet = node().with(|n| n.series = vec![(&metrics::TRACE_SAMPLED, "", 25, 0)]);
    assert_healthy(&quiet, "BT076");
    let outcome = outcome(&node().with(|n| n.series = Vec::new()).period(), "BT076");
    assert!(matches!(outcome, beamtune_model::Outcome::NotJudged { .. }), "{outcome:?}");
}

#[test]
fn the_end_of_a_trace_depends_on_tool_and_release() {
    let change = |call: &str, session, release: &str| {
        let node = traced(tracer(0, (0, 0), call), session, 0);
        let node = node.with(|n| n.facts.push((beamtune_model::facts::OTP_RELEASE, release.to_owned())));
        finding(&node, "BT076").remedies.remove(0).change
    };
    assert_eq!(change("dbg:tracer_loop/2", "", "25"), "dbg:stop_clear()");
    assert_eq!(change("dbg:tracer_loop/2", "dbg", "27"), "dbg:stop()");
    assert_eq!(change("recon_trace:count_tracer/1", "", "25"), "recon_trace:clear()");
    assert!(change("shop:watch/0", "my_debug", "28").starts_with("[trace:session_destroy(S)"));
    assert!(change("shop:watch/0", "", "28").starts_with("erlang:trace(all, false, [all])"));
    // The name of the module only starts like that of a tool.
    assert!(change("dbgate:loop/0", "", "25").starts_with("erlang:trace("));
    let profiler = finding(&traced(tracer(10, (0, 0), "shop:watch/0"), "tprof", 0), "BT076");
    assert_eq!(profiler.level, Level::Notice);
}
