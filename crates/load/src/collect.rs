//! Adds up the tallies of all threads, second by second, and finds the seconds in which the generator itself was the bottleneck.
//!
//! Times from such generator-bound seconds say little about the target, so a run's times are taken from its other seconds. Counts and
//! errors are taken from all seconds.

use std::collections::BTreeMap;

use beamtune_model::load::{
    Generator, LOAD_RESULT_VERSION, Latency, LoadErrors, LoadModel, LoadResult, LoadSecond, LoadStep, Traffic,
};

use crate::clock::SECOND_NS;
use crate::engine::ThreadSecond;
use crate::program::{Model, Op, Plan};
use crate::tally::Tally;
use crate::times::Times;

/// A thread that uses a larger share of a core is saturated, and delays its devices.
const MAX_CPU_SHARE: f64 = 0.95;
/// Lag of the generator that is always accepted: somewhat more than the latency of timers on a quiet Linux host.
const ACCEPTED_LAG_NS: u64 = 1_000_000;
/// Lag up to this fraction of the target's p99 is accepted, too; the p99 is then wrong by at most a tenth.
const LAG_FRACTION: u64 = 10;
/// A thread that ran this much later than planned was stalled. The longest iteration of its loop, with 512 readable sockets, takes some
/// milliseconds (more if all of them are in a TLS handshake, which delays the other devices as well).
const STALL_NS: u64 = SECOND_NS / 20;
/// Reported percentiles, and the number of values that each needs, so that some values lie above it.
const PERCENTILES: [(&str, f64, u64); 6] = [
    ("p50", 50.0, 2),
    ("p75", 75.0, 8),
    ("p90", 90.0, 20),
    ("p99", 99.0, 200),
    ("p99.9", 99.9, 2_000),
    ("p99.99", 99.99, 20_000),
];

/// One second of all threads.
#[derive(Default)]
struct MergedSecond {
    tally: Tally,
    longest_ns: u64,
    /// The highest CPU use of a single thread, in cores.
    max_cpu_share: f64,
}

impl MergedSecond {
    /// The longest stall of a thread.
    fn stall_ns(&self) -> u64 {
        self.tally.stall_ns.max(self.longest_ns.saturating_sub(SECOND_NS))
    }
}

/// Called for each finished second, with its tally.
pub type OnSecond<'a> = dyn FnMut(&LoadSecond, &Tally) + 'a;

/// Whether a step is counted in rates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StepKind {
    /// Only connects; not counted.
    Connect,
    /// Only sends, and another step receives; not counted.
    Send,
    /// Counted.
    Counts,
}

/// Returns the kind of each step of a plan. Steps that only send are counted only if no step of the plan has an answer.
fn step_kinds(plan: &Plan) -> Vec<StepKind> {
    let sends = |op: &Op| matches!(op, Op::Send { message, .. } if !message.is_answered());
    let answers = |op: &Op| matches!(op, Op::Expect { .. } | Op::Send { .. }) && !sends(op);
    let has_answers = plan.kinds.iter().any(|kind| kind.ops.iter().skip(kind.body).any(answers));
    let mut kinds = vec![StepKind::Counts; plan.steps.len()];
    for op in plan.kinds.iter().flat_map(|kind| &kind.ops) {
        match op {
            Op::Connect { step } => kinds[*step] = StepKind::Connect,
            Op::Send { step, .. } if has_answers && sends(op) => kinds[*step] = StepKind::Send,
            _ => {}
        }
    }
    kinds
}

/// Adds up the seconds of all threads of a run.
pub struct Collector {
    kinds: Vec<StepKind>,
    /// The last second that each thread has reported.
    reported: Vec<Option<i64>>,
    open: BTreeMap<i64, MergedSecond>,
    all: Tally,
    /// All seconds that are not generator-bound.
    clean: Tally,
    /// All seconds in which no thread was stalled. Stalls distort times more than lag or saturation do.
    awake: Tally,
    seconds: Vec<LoadSecond>,
}

impl Collector {
    /// Creates a collector for this number of threads.
    pub fn new(plan: &Plan, threads: usize) -> Self {
        let tally = Tally::new(plan.steps.len());
        Self {
            kinds: step_kinds(plan),
            reported: vec![None; threads],
            open: BTreeMap::new(),
            all: tally.clone(),
            clean: tally.clone(),
            awake: tally,
            seconds: Vec::new(),
        }
    }

    /// Adds a second of a thread. Calls `on_second` for each second that all threads have now reported.
    pub fn add(&mut self, thread: usize, report: ThreadSecond, on_second: &mut OnSecond<'_>) {
        let merged = self.open.entry(report.second).or_default();
        let cpu_share = report.tally.cpu_ns as f64 / report.length_ns.max(1) as f64;
        // The last interval of a thread may be too short for a meaningful share.
        if report.length_ns > SECOND_NS / 10 {
            merged.max_cpu_share = merged.max_cpu_share.max(cpu_share);
        }
        merged.longest_ns = merged.longest_ns.max(report.length_ns);
        merged.tally.add(&report.tally);
        if let Some(reported) = self.reported.get_mut(thread) {
            *reported = Some(report.second);
        }
        self.close(on_second);
    }

    /// Marks a thread as ended.
    pub fn end(&mut self, thread: usize, on_second: &mut OnSecond<'_>) {
        if let Some(reported) = self.reported.get_mut(thread) {
            *reported = Some(i64::MAX);
        }
        self.close(on_second);
    }

    /// Evaluates the seconds that all threads have reported. A thread reports its seconds in order.
    fn close(&mut self, on_second: &mut OnSecond<'_>) {
        let Some(until) = self.reported.iter().copied().min().flatten() else { return };
        while let Some(entry) = self.open.first_entry() {
            if *entry.key() > until {
                return;
            }
            let (second, merged) = entry.remove_entry();
            self.judge(second, merged, on_second);
        }
    }

    fn judge(&mut self, second: i64, merged: MergedSecond, on_second: &mut OnSecond<'_>) {
        let (mut service, mut response) = (Times::default(), Times::default());
        let mut done = 0;
        for (index, step) in merged.tally.steps.iter().enumerate() {
            if let Some(step) = step
                && self.kinds.get(index) == Some(&StepKind::Counts)
            {
                service.add(&step.service);
                response.add(&step.response);
                done += step.done();
            }
        }
        let bound = bound(&merged, &service);
        let is_awake = merged.stall_ns() <= STALL_NS;
        let tally = merged.tally;
        self.all.add(&tally);
        if is_awake {
            self.awake.add(&tally);
        }
        if bound.is_none() {
            self.clean.add(&tally);
        }
        let percentile = |percentile| (response.count() > 0).then(|| response.percentile_ns(percentile));
        let judged = LoadSecond {
            second,
            due: Some(tally.asked),
            done,
            errors: tally.errors(),
            connected: Some(tally.connected),
            waiting: Some(tally.waiting),
            p50_ns: percentile(50.0),
            p99_ns: percentile(99.0),
            cores: Some(tally.cpu_ns as f64 / merged.longest_ns.max(1) as f64),
            bound,
        };
        on_second(&judged, &tally);
        self.seconds.push(judged);
    }

    /// Returns the number of correct answers to counted steps.
    fn answers(&self, tally: &Tally) -> u64 {
        let steps = tally.steps.iter().zip(&self.kinds).filter(|(_, kind)| **kind == StepKind::Counts);
        steps.filter_map(|(step, _)| step.as_ref()).map(|step| step.done()).sum()
    }

    /// Returns the result, after all threads have ended.
    pub fn finish(self, plan: &Plan, run: &Run) -> LoadResult {
        let bound_seconds = self.seconds.iter().filter(|second| second.bound.is_some()).count();
        let mut remarks = Vec::new();
        let mut times = &self.clean;
        if self.answers(&self.clean) == 0 && self.answers(&self.all) > 0 {
            let is_ever_awake = self.answers(&self.awake) > 0;
            times = if is_ever_awake { &self.awake } else { &self.all };
            let which =
                if is_ever_awake { "the seconds in which all its threads ran" } else { "all seconds" };
            remarks.push(format!(
                "The generator was the bottleneck in every second with an answer, so the times are from {which}."
            ));
        } else if bound_seconds > 0 {
            remarks.push(
                "Only seconds in which the generator was not the bottleneck are included in the times."
                    .to_owned(),
            );
        }
        let steps = plan.steps.iter().zip(&self.kinds).enumerate();
        let steps = steps.map(|(index, (name, kind))| step(name, *kind, index, &self.all, times));
        let steps = steps.collect();
        let devices = plan.kinds.iter().map(|kind| kind.devices).sum();
        LoadResult {
            version: LOAD_RESULT_VERSION,
            tool: run.tool.clone(),
            targets: run.targets.clone(),
            began_unix_s: run.began_unix_s,
            began_monotonic_ns: Some(plan.start_ns),
            length_s: plan.model.length_ns() as f64 / SECOND_NS as f64,
            model: match plan.model {
                Model::Open { profile, .. } => LoadModel::Open { per_second: profile.per_second, devices },
                Model::Closed { .. } => LoadModel::Closed { devices },
            },
            seed: Some(plan.seed),
            is_interrupted: run.is_interrupted,
            unfinished: self.all.unfinished,
            traffic: Some(Traffic {
                sent_bytes: self.all.written_bytes,
                received_bytes: self.all.read_bytes,
                messages: self.all.messages,
                reconnects: self.all.reconnects,
            }),
            generator: Generator {
                processes: run.processes,
                threads: run.threads,
                cpu_s: Some(self.all.cpu_ns as f64 / SECOND_NS as f64),
                own_lag: latency(&self.all.own_lag),
                bound_seconds: bound_seconds as u32,
                judged_seconds: self.seconds.len() as u32,
            },
            steps,
            seconds: self.seconds,
            remarks,
        }
    }
}

/// Facts about a run that are part of its result.
#[derive(Debug, Clone, Default)]
pub struct Run {
    /// The generator and its version.
    pub tool: String,
    /// The targets, as the user wrote them.
    pub targets: Vec<String>,
    /// Start of the schedule, in seconds since 1970.
    pub began_unix_s: Option<f64>,
    /// Whether the run was ended early.
    pub is_interrupted: bool,
    /// Number of processes of the generator.
    pub processes: u32,
    /// Number of threads in all processes.
    pub threads: u32,
}

/// Returns why the generator was the bottleneck in a second; `None` if it was not.
fn bound(merged: &MergedSecond, service: &Times) -> Option<String> {
    let milliseconds = |nanoseconds: u64| nanoseconds as f64 / 1e6;
    if merged.stall_ns() > STALL_NS {
        let stalled = milliseconds(merged.stall_ns());
        return Some(format!("a thread of the generator did not run for {stalled:.0} ms"));
    }
    let lag_ns = merged.tally.own_lag.percentile_ns(99.0);
    let limit_ns = ACCEPTED_LAG_NS.max(service.percentile_ns(99.0) / LAG_FRACTION);
    if lag_ns > limit_ns {
        let (lag, limit) = (milliseconds(lag_ns), milliseconds(limit_ns));
        return Some(format!("the generator was late by {lag:.1} ms (p99; limit {limit:.1} ms)"));
    }
    if merged.max_cpu_share > MAX_CPU_SHARE {
        return Some(format!(
            "a thread of the generator used {:.0} % of a core",
            merged.max_cpu_share * 100.0
        ));
    }
    None
}

fn step(name: &str, kind: StepKind, index: usize, all: &Tally, times: &Tally) -> LoadStep {
    let of = |tally: &Tally| tally.steps.get(index).and_then(Clone::clone).unwrap_or_default();
    let (all, times) = (of(all), of(times));
    let errors = all
        .errors
        .iter()
        .map(|(kind, count, first)| (kind.text().to_owned(), LoadErrors { count, first: first.to_owned() }));
    LoadStep {
        name: name.to_owned(),
        is_connect: kind == StepKind::Connect,
        is_send: kind == StepKind::Send,
        done: all.done(),
        errors: errors.collect(),
        received_bytes: Some(all.received_bytes),
        lag: latency(&times.lag),
        service: latency(&times.service),
        response: latency(&times.response),
        first_byte: latency(&times.first_byte),
    }
}

/// Converts a histogram to the form used in results; `None` if it has no values.
pub fn latency(times: &Times) -> Option<Latency> {
    let histogram = times.histogram();
    if histogram.is_empty() {
        return None;
    }
    let reported = PERCENTILES.iter().filter(|(_, _, min_values)| histogram.len() >= *min_values);
    Some(Latency {
        count: histogram.len(),
        min_ns: Some(histogram.min()),
        mean_ns: Some(histogram.mean()),
        percentiles_ns: reported
            .map(|(name, at, _)| ((*name).to_owned(), times.percentile_ns(*at)))
            .collect(),
        max_ns: Some(histogram.max()),
        histogram: Some(times.to_base64()),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::program::{Endpoint, Kind};
    use crate::protocol::mqtt::{MqttMessage, Qos};
    use crate::protocol::{Message, Protocol};
    use crate::template::Template;

    fn plan() -> Plan {
        let kind = Kind {
            name: "device".to_owned(),
            devices: 10,
            endpoint: Endpoint { address: ([127, 0, 0, 1], 80).into(), sources: Arc::new([]), tls: None },
            protocol: Protocol::Http,
            ops: vec![Op::Connect { step: 0 }, Op::Next],
            body: 1,
            connect_timeout_ns: SECOND_NS,
            timeout_ns: SECOND_NS,
            pause_ns: SECOND_NS,
        };
        Plan {
            kinds: vec![kind],
            steps: vec!["connect".to_owned(), "get".to_owned()],
            model: Model::Closed { ramp_ns: 0, sustain_ns: 3 * SECOND_NS, turns: None },
            seed: 1,
            start_ns: 0,
            connect_ns: 0,
            rundown_ns: 0,
        }
    }

    /// A second of a thread with 100 answers after 2 ms each, all of which were served `late_ns` too late.
    fn second(second: i64, length_ns: u64, cpu_ns: u64, late_ns: u64) -> ThreadSecond {
        let mut tally = Tally::new(2);
        for _ in 0..100 {
            tally.own_lag.record(late_ns);
            tally.step(1).service.record(2_000_000);
            tally.step(1).response.record(2_000_000 + late_ns);
        }
        tally.step(0).service.record(SECOND_NS);
        tally.cpu_ns = cpu_ns;
        ThreadSecond { second, length_ns, tally }
    }

    fn judged(seconds: Vec<ThreadSecond>) -> LoadResult {
        let mut collector = Collector::new(&plan(), 1);
        for second in seconds {
            collector.add(0, second, &mut |_, _| {});
        }
        collector.end(0, &mut |_, _| {});
        collector.finish(&plan(), &Run::default())
    }

    fn reason(second: ThreadSecond) -> Option<String> {
        judged(vec![second]).seconds[0].bound.clone()
    }

    #[test]
    fn a_second_is_generator_bound_if_a_thread_was_late_saturated_or_stalled() {
        assert_eq!(reason(second(0, SECOND_NS, SECOND_NS / 2, 100_000)), None);
        let late = reason(second(0, SECOND_NS, SECOND_NS / 2, 5_000_000));
        assert_eq!(late.as_deref(), Some("the generator was late by 5.0 ms (p99; limit 1.0 ms)"));
        let busy = reason(second(0, SECOND_NS, SECOND_NS * 97 / 100, 0));
        assert_eq!(busy.as_deref(), Some("a thread of the generator used 97 % of a core"));
        let stalled = reason(second(0, 2 * SECOND_NS, SECOND_NS / 10, 0));
        assert_eq!(stalled.as_deref(), Some("a thread of the generator did not run for 1000 ms"));
    }

    #[test]
    fn times_exclude_generator_bound_seconds_and_counts_do_not() {
        let mut slow = second(1, SECOND_NS, 0, SECOND_NS);
        slow.tally.step(1).service.record(9 * SECOND_NS);
        let result = judged(vec![second(0, SECOND_NS, 0, 0), slow, second(2, SECOND_NS, 0, 0)]);
        assert_eq!((result.generator.bound_seconds, result.generator.judged_seconds), (1, 3));
        let step = &result.steps[1];
        assert_eq!(step.done, 301);
        let service = step.service.as_ref().unwrap();
        assert_eq!(service.count, 200);
        assert!(service.max_ns.unwrap() < 3_000_000);
        // 200 values are too few for a p99.9.
        assert_eq!(service.percentile_ns("p99.9"), None);
        assert!(service.percentile_ns("p99").is_some());
        assert_eq!(
            result.remarks,
            ["Only seconds in which the generator was not the bottleneck are included in the times."]
        );
    }

    #[test]
    fn a_fully_generator_bound_run_has_times_and_a_remark() {
        let result = judged(vec![second(0, SECOND_NS, SECOND_NS, 0)]);
        assert_eq!(result.steps[1].service.as_ref().unwrap().count, 100);
        assert!(
            result.remarks[0].starts_with("The generator was the bottleneck in every second"),
            "{:?}",
            result.remarks
        );
    }

    #[test]
    fn stalled_seconds_are_excluded_first_from_a_fully_generator_bound_run() {
        let busy = || second(0, SECOND_NS, SECOND_NS, 0);
        let mut stalled = ThreadSecond { second: 1, ..busy() };
        stalled.tally.stall_ns = SECOND_NS / 2;
        stalled.tally.step(1).service.record(SECOND_NS / 2);
        let result = judged(vec![busy(), stalled.clone()]);
        assert_eq!(result.generator.bound_seconds, 2);
        assert_eq!(result.steps[1].service.as_ref().unwrap().count, 100);
        assert!(result.remarks[0].ends_with("in which all its threads ran."), "{:?}", result.remarks);
        let result = judged(vec![stalled]);
        assert_eq!(result.steps[1].service.as_ref().unwrap().count, 101);
        assert!(result.remarks[0].ends_with("so the times are from all seconds."), "{:?}", result.remarks);
    }

    /// Returns the kinds of the steps of a device that connects (step 0) and has these operations in each turn.
    fn kinds_of(turn: Vec<Op>) -> Vec<StepKind> {
        let mut plan = plan();
        plan.steps = vec![String::new(); 3];
        plan.kinds[0].ops = vec![Op::Connect { step: 0 }];
        plan.kinds[0].ops.extend(turn);
        step_kinds(&plan)
    }

    #[test]
    fn steps_that_only_send_are_counted_if_no_step_has_an_answer() {
        use StepKind::{Connect, Counts, Send};
        let op = |step, message| Op::Send { step, message, checks: Box::default() };
        let payload = || Template::literal("x");
        let say = |step| op(step, Message::WebSocket { is_text: true, payload: payload() });
        let expect = Op::Expect { step: 2, checks: Box::default() };
        assert_eq!(kinds_of(vec![say(1), expect]), [Connect, Send, Counts]);
        assert_eq!(kinds_of(vec![say(1), op(2, Message::WebSocketPing)]), [Connect, Send, Counts]);
        assert_eq!(kinds_of(vec![say(1), say(2)]), [Connect, Counts, Counts]);
        let publish = |step, qos| {
            let (topic, payload) = (payload(), payload());
            op(
                step,
                Message::Mqtt(Box::new(MqttMessage::Publish { topic, payload, qos, is_retained: false })),
            )
        };
        let turn = vec![publish(1, Qos::AtMostOnce), publish(2, Qos::AtLeastOnce)];
        assert_eq!(kinds_of(turn), [Connect, Send, Counts]);
    }

    #[test]
    fn a_second_is_finished_when_all_threads_have_reported_it() {
        let mut collector = Collector::new(&plan(), 2);
        let mut finished = Vec::new();
        let mut on_second = |second: &LoadSecond, tally: &Tally| finished.push((second.done, tally.done()));
        collector.add(0, second(0, SECOND_NS, 0, 0), &mut on_second);
        collector.add(0, second(1, SECOND_NS, 0, 0), &mut on_second);
        collector.add(1, second(0, SECOND_NS, 0, 0), &mut on_second);
        collector.end(0, &mut on_second);
        collector.end(1, &mut on_second);
        // The tally includes connects; rates do not.
        assert_eq!(finished, [(200, 202), (100, 101)]);
    }
}
