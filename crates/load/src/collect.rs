//! Adds up what threads counted, second by second, and judges in which of them the generator itself was the limit.
//!
//! What was counted in such a second says little of the target, so the times of a run are those of its other seconds. Counts
//! and errors are of all.

use std::collections::BTreeMap;

use beamtune_model::load::{
    Asked, Generator, LOAD_RESULT_VERSION, Latency, LoadErrors, LoadResult, LoadSecond, LoadStep, Traffic,
};

use crate::clock::SECOND_NS;
use crate::engine::Spell;
use crate::program::{Model, Op, Plan};
use crate::tally::Tally;
use crate::times::Times;

/// A thread that used more of its second than this is busy: what waits for it is late by its fault.
const BUSY_SHARE: f64 = 0.95;
/// The generator may always be so late: what timers of a quiet Linux are, and some more.
const LEAST_LAG_NS: u64 = 1_000_000;
/// And so much of what the target takes: its 99th percentile is then told to a tenth.
const LAG_SHARE: u64 = 10;
/// A thread that was away for so long beyond what it meant to wait did not run. The longest turn, of 512 sockets that all have
/// something to say, takes some milliseconds (and far more if all of them agree upon TLS, which holds up the others as well).
const STALL_NS: u64 = SECOND_NS / 20;
/// Percentiles that are told, and how many values each wants, so that some lie beyond it.
const PERCENTILES: [(&str, f64, u64); 6] = [
    ("p50", 50.0, 2),
    ("p75", 75.0, 8),
    ("p90", 90.0, 20),
    ("p99", 99.0, 200),
    ("p99.9", 99.9, 2_000),
    ("p99.99", 99.99, 20_000),
];

/// What all threads told of one second.
#[derive(Default)]
struct Merged {
    tally: Tally,
    longest_ns: u64,
    /// The largest share of its second that a thread used.
    busiest: f64,
}

impl Merged {
    /// For how long a thread was away.
    fn stall_ns(&self) -> u64 {
        self.tally.stall_ns.max(self.longest_ns.saturating_sub(SECOND_NS))
    }
}

/// Who is told of a second, with what was counted in it.
pub type OnSecond<'a> = dyn FnMut(&LoadSecond, &Tally) + 'a;

/// What a step is to rates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StepKind {
    /// It only connects.
    Connect,
    /// It only sends, and other steps are what comes of it.
    Send,
    /// It counts.
    Counts,
}

/// What each step of a plan is. Sending is what counts where nothing is ever answered.
fn kinds(plan: &Plan) -> Vec<StepKind> {
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

/// Adds up the spells of a run.
pub struct Collector {
    kinds: Vec<StepKind>,
    /// The last second that each thread has told of.
    told: Vec<Option<i64>>,
    open: BTreeMap<i64, Merged>,
    all: Tally,
    /// Without the seconds in which the generator was the limit.
    clean: Tally,
    /// Without those in which one of its threads did not run: what it was late or busy in says more than those.
    awake: Tally,
    seconds: Vec<LoadSecond>,
}

impl Collector {
    /// For the spells of so many threads.
    pub fn new(plan: &Plan, threads: usize) -> Self {
        let tally = Tally::new(plan.steps.len());
        let told = vec![None; threads];
        Self {
            kinds: kinds(plan),
            told,
            open: BTreeMap::new(),
            all: tally.clone(),
            clean: tally.clone(),
            awake: tally,
            seconds: Vec::new(),
        }
    }

    /// Takes what a thread tells; `on_second` is told of the seconds that all threads have told of with it.
    pub fn add(&mut self, thread: usize, spell: Spell, on_second: &mut OnSecond<'_>) {
        let merged = self.open.entry(spell.second).or_default();
        let used = spell.tally.cpu_ns as f64 / spell.length_ns.max(1) as f64;
        // A thread's last spell may be too short to say anything.
        if spell.length_ns > SECOND_NS / 10 {
            merged.busiest = merged.busiest.max(used);
        }
        merged.longest_ns = merged.longest_ns.max(spell.length_ns);
        merged.tally.add(&spell.tally);
        if let Some(told) = self.told.get_mut(thread) {
            *told = Some(spell.second);
        }
        self.close(on_second);
    }

    /// A thread tells no more.
    pub fn end(&mut self, thread: usize, on_second: &mut OnSecond<'_>) {
        if let Some(told) = self.told.get_mut(thread) {
            *told = Some(i64::MAX);
        }
        self.close(on_second);
    }

    /// Judges the seconds that all threads have told of. A thread tells of its seconds in their order.
    fn close(&mut self, on_second: &mut OnSecond<'_>) {
        let Some(until) = self.told.iter().copied().min().flatten() else { return };
        while let Some(entry) = self.open.first_entry() {
            if *entry.key() > until {
                return;
            }
            let (second, merged) = entry.remove_entry();
            self.judge(second, merged, on_second);
        }
    }

    fn judge(&mut self, second: i64, merged: Merged, on_second: &mut OnSecond<'_>) {
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
        let told = LoadSecond {
            second,
            asked: Some(tally.asked),
            done,
            errors: tally.errors(),
            connected: Some(tally.connected),
            waiting: Some(tally.waiting),
            p50_ns: percentile(50.0),
            p99_ns: percentile(99.0),
            cores: Some(tally.cpu_ns as f64 / merged.longest_ns.max(1) as f64),
            bound,
        };
        on_second(&told, &tally);
        self.seconds.push(told);
    }

    /// Right answers of the steps that count.
    fn answers(&self, tally: &Tally) -> u64 {
        let steps = tally.steps.iter().zip(&self.kinds).filter(|(_, kind)| **kind == StepKind::Counts);
        steps.filter_map(|(step, _)| step.as_ref()).map(|step| step.done()).sum()
    }

    /// The result, when all threads have ended.
    pub fn finish(self, plan: &Plan, run: &Run) -> LoadResult {
        let bound_seconds = self.seconds.iter().filter(|second| second.bound.is_some()).count();
        let mut remarks = Vec::new();
        let mut times = &self.clean;
        if self.answers(&self.clean) == 0 && self.answers(&self.all) > 0 {
            let is_ever_awake = self.answers(&self.awake) > 0;
            times = if is_ever_awake { &self.awake } else { &self.all };
            let which = if is_ever_awake { "those seconds in which it ran" } else { "those seconds" };
            remarks.push(format!(
                "The generator was the limit in every second with an answer: the times are of {which}."
            ));
        } else if bound_seconds > 0 {
            remarks.push("The times are of the seconds in which the generator was not the limit.".to_owned());
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
            asked: match plan.model {
                Model::Open { profile, .. } => Asked::Open { per_second: profile.per_second, devices },
                Model::Closed { .. } => Asked::Closed { devices },
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

/// What a result says of its run beyond what was counted.
#[derive(Debug, Clone, Default)]
pub struct Run {
    /// The generator and its version.
    pub tool: String,
    /// Where the load went, as it was given.
    pub targets: Vec<String>,
    /// When the schedule began: seconds since 1970.
    pub began_unix_s: Option<f64>,
    /// Whether it was ended before its time.
    pub is_interrupted: bool,
    /// The generator's processes.
    pub processes: u32,
    /// The generator's threads, of all processes.
    pub threads: u32,
}

/// Why the generator was the limit in a second, if it was.
fn bound(merged: &Merged, service: &Times) -> Option<String> {
    let milliseconds = |nanoseconds: u64| nanoseconds as f64 / 1e6;
    if merged.stall_ns() > STALL_NS {
        let stalled = milliseconds(merged.stall_ns());
        return Some(format!("a thread of the generator did not run for {stalled:.0} ms"));
    }
    let lag_ns = merged.tally.own_lag.percentile_ns(99.0);
    let limit_ns = LEAST_LAG_NS.max(service.percentile_ns(99.0) / LAG_SHARE);
    if lag_ns > limit_ns {
        let (lag, limit) = (milliseconds(lag_ns), milliseconds(limit_ns));
        return Some(format!("the generator was late by {lag:.1} ms (p99; limit {limit:.1} ms)"));
    }
    if merged.busiest > BUSY_SHARE {
        return Some(format!("a thread of the generator used {:.0} % of a core", merged.busiest * 100.0));
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

/// A histogram as it stands in results; `None` without values.
pub fn latency(times: &Times) -> Option<Latency> {
    let histogram = times.histogram();
    if histogram.is_empty() {
        return None;
    }
    let enough = PERCENTILES.iter().filter(|(_, _, least)| histogram.len() >= *least);
    Some(Latency {
        count: histogram.len(),
        min_ns: Some(histogram.min()),
        mean_ns: Some(histogram.mean()),
        percentiles_ns: enough.map(|(name, at, _)| ((*name).to_owned(), times.percentile_ns(*at))).collect(),
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

    /// A second of a thread: answers that took 2 ms, and how late it was with each.
    fn spell(second: i64, length_ns: u64, cpu_ns: u64, late_ns: u64) -> Spell {
        let mut tally = Tally::new(2);
        for _ in 0..100 {
            tally.own_lag.record(late_ns);
            tally.step(1).service.record(2_000_000);
            tally.step(1).response.record(2_000_000 + late_ns);
        }
        tally.step(0).service.record(SECOND_NS);
        tally.cpu_ns = cpu_ns;
        Spell { second, length_ns, tally }
    }

    fn judged(spells: Vec<Spell>) -> LoadResult {
        let mut collector = Collector::new(&plan(), 1);
        for spell in spells {
            collector.add(0, spell, &mut |_, _| {});
        }
        collector.end(0, &mut |_, _| {});
        collector.finish(&plan(), &Run::default())
    }

    fn reason(spell: Spell) -> Option<String> {
        judged(vec![spell]).seconds[0].bound.clone()
    }

    #[test]
    fn a_second_is_the_generators_fault_when_it_was_late_busy_or_away() {
        assert_eq!(reason(spell(0, SECOND_NS, SECOND_NS / 2, 100_000)), None);
        let late = reason(spell(0, SECOND_NS, SECOND_NS / 2, 5_000_000));
        assert_eq!(late.as_deref(), Some("the generator was late by 5.0 ms (p99; limit 1.0 ms)"));
        let busy = reason(spell(0, SECOND_NS, SECOND_NS * 97 / 100, 0));
        assert_eq!(busy.as_deref(), Some("a thread of the generator used 97 % of a core"));
        let away = reason(spell(0, 2 * SECOND_NS, SECOND_NS / 10, 0));
        assert_eq!(away.as_deref(), Some("a thread of the generator did not run for 1000 ms"));
    }

    #[test]
    fn times_are_those_of_the_other_seconds_and_counts_of_all() {
        let mut slow = spell(1, SECOND_NS, 0, SECOND_NS);
        slow.tally.step(1).service.record(9 * SECOND_NS);
        let result = judged(vec![spell(0, SECOND_NS, 0, 0), slow, spell(2, SECOND_NS, 0, 0)]);
        assert_eq!((result.generator.bound_seconds, result.generator.judged_seconds), (1, 3));
        let step = &result.steps[1];
        assert_eq!(step.done, 301);
        let service = step.service.as_ref().unwrap();
        assert_eq!(service.count, 200);
        assert!(service.max_ns.unwrap() < 3_000_000);
        // 200 values say nothing of a thousandth.
        assert_eq!(service.percentile_ns("p99.9"), None);
        assert!(service.percentile_ns("p99").is_some());
        assert_eq!(
            result.remarks,
            ["The times are of the seconds in which the generator was not the limit."]
        );
    }

    #[test]
    fn where_all_seconds_are_its_fault_that_is_said() {
        let result = judged(vec![spell(0, SECOND_NS, SECOND_NS, 0)]);
        assert_eq!(result.steps[1].service.as_ref().unwrap().count, 100);
        assert!(
            result.remarks[0].starts_with("The generator was the limit in every second"),
            "{:?}",
            result.remarks
        );
    }

    #[test]
    fn where_all_seconds_are_its_fault_those_in_which_it_was_away_are_left_out_first() {
        let busy = || spell(0, SECOND_NS, SECOND_NS, 0);
        let mut away = Spell { second: 1, ..busy() };
        away.tally.stall_ns = SECOND_NS / 2;
        away.tally.step(1).service.record(SECOND_NS / 2);
        let result = judged(vec![busy(), away.clone()]);
        assert_eq!(result.generator.bound_seconds, 2);
        assert_eq!(result.steps[1].service.as_ref().unwrap().count, 100);
        assert!(result.remarks[0].ends_with("those seconds in which it ran."), "{:?}", result.remarks);
        let result = judged(vec![away]);
        assert_eq!(result.steps[1].service.as_ref().unwrap().count, 101);
        assert!(result.remarks[0].ends_with("the times are of those seconds."), "{:?}", result.remarks);
    }

    /// What the steps of a device are that connects (0) and then does this in each turn.
    fn kinds_of(turn: Vec<Op>) -> Vec<StepKind> {
        let mut plan = plan();
        plan.steps = vec![String::new(); 3];
        plan.kinds[0].ops = vec![Op::Connect { step: 0 }];
        plan.kinds[0].ops.extend(turn);
        kinds(&plan)
    }

    #[test]
    fn what_is_only_sent_counts_where_nothing_is_waited_for() {
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
    fn a_second_is_told_when_all_threads_have_told_of_it() {
        let mut collector = Collector::new(&plan(), 2);
        let mut told = Vec::new();
        let mut on_second = |second: &LoadSecond, tally: &Tally| told.push((second.done, tally.done()));
        collector.add(0, spell(0, SECOND_NS, 0, 0), &mut on_second);
        collector.add(0, spell(1, SECOND_NS, 0, 0), &mut on_second);
        collector.add(1, spell(0, SECOND_NS, 0, 0), &mut on_second);
        collector.end(0, &mut on_second);
        collector.end(1, &mut on_second);
        // What connected is counted with what was done, and among no rates.
        assert_eq!(told, [(200, 202), (100, 101)]);
    }
}
