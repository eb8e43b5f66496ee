//! Triggers: symptoms in the cheap data of each second. After a trigger has fired, expensive items are read each second for a while,
//! instead of every ten seconds (dense sampling). Triggers cost nearly nothing, since they use values that are read anyway.
//!
//! A trigger fires when its symptom appears, not while it lasts, and at most once in ten minutes. Expensive items take some ten
//! milliseconds of a scheduler on a node with 200,000 processes. So dense sampling is limited to half a minute in ten minutes, a
//! twentieth of the time, even if many triggers fire.

use beamtune_model::units::SECOND_NS;
use beamtune_model::{Event, Group, Nanos, Sample, SeriesTable, metrics};

/// Length of dense sampling after a trigger.
const DENSE_NS: Nanos = 30 * SECOND_NS;
/// Minimum interval between two starts of dense sampling, and between two firings of a trigger.
const PAUSE_NS: Nanos = 600 * SECOND_NS;

/// Minimum number of consecutive samples with more runnable processes than schedulers; a single sample is an ordinary burst.
const MIN_FULL_QUEUE_SAMPLES: u32 = 3;
/// Minimum length of a message queue. The rule on growing queues (BT006) warns at this length, as operators of RabbitMQ and EMQX do.
const MIN_QUEUE_LENGTH: i64 = 5_000;
/// Minimum growth of the VM's memory within a minute, in percent and in bytes: on small nodes, memory varies by many percent.
const MIN_GROWTH_PCT: i64 = 20;
const MIN_GROWTH_BYTES: i64 = 64 << 20;
const GROWTH_SPAN_NS: Nanos = 60 * SECOND_NS;
/// Minimum use of the control group's memory limit, in percent.
const MIN_LIMIT_USE_PCT: i64 = 90;

/// Role of a series for the triggers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    None,
    RunQueue,
    VmMemory,
    GroupMemory,
    GroupLimit,
}

/// A symptom, and when its trigger last fired.
#[derive(Debug, Default)]
struct Symptom {
    is_present: bool,
    fired: Option<Nanos>,
}

/// Checks the samples of a recording for symptoms.
#[derive(Debug, Default)]
pub(super) struct Triggers {
    /// By series id.
    roles: Vec<Role>,
    run_queue: Symptom,
    memory: Symptom,
    message_queue: Symptom,
    near_limit: Symptom,
    event: Symptom,
    full_queues: u32,
    /// Memory of the VM at an instant at most a minute ago.
    memory_before: Option<(Nanos, i64)>,
    dense_since: Option<Nanos>,
}

impl Triggers {
    /// Whether expensive items are due because of a trigger.
    pub(super) fn is_dense(&self, t: Nanos) -> bool {
        self.dense_since.is_some_and(|since| t - since <= DENSE_NS)
    }

    /// Checks a sample, and adds an event to it for each trigger that fires.
    pub(super) fn check(&mut self, sample: &mut Sample, table: &SeriesTable) {
        let t = sample.tick.t;
        self.roles.extend(table.iter().skip(self.roles.len()).map(|(_, series)| {
            let is = |metric: &beamtune_model::Metric| {
                series.group == metric.group && *series.name == *metric.name
            };
            if is(&metrics::RUN_QUEUE) && series.entity.starts_with("scheduler/") {
                Role::RunQueue
            } else if series.group == Group::Memory && &*series.name == "total" {
                Role::VmMemory
            } else if is(&metrics::CGROUP_MEMORY) {
                Role::GroupMemory
            } else if is(&metrics::CGROUP_MEMORY_LIMIT) {
                Role::GroupLimit
            } else {
                Role::None
            }
        }));
        let (mut runnable, mut schedulers, mut memory, mut group, mut limit) = (0, 0, None, None, None);
        for &(id, value) in &sample.readings {
            match self.roles.get(id.index()) {
                Some(Role::RunQueue) => (runnable, schedulers) = (runnable + value, schedulers + 1),
                Some(Role::VmMemory) => memory = Some(value),
                Some(Role::GroupMemory) => group = Some(value),
                Some(Role::GroupLimit) => limit = Some(value),
                Some(Role::None) | None => {}
            }
        }
        let mut found = Vec::new();

        self.full_queues = if runnable > schedulers { self.full_queues + 1 } else { 0 };
        if self.run_queue.fires(self.full_queues >= MIN_FULL_QUEUE_SAMPLES, t) {
            found.push(("run_queue", format!("{runnable} of {schedulers}")));
        }
        let grown = memory.and_then(|now| Some((now, now - self.memory_before?.1)));
        let grows =
            grown.is_some_and(|(now, by)| by >= MIN_GROWTH_BYTES && by >= (now - by) / 100 * MIN_GROWTH_PCT);
        if self.memory.fires(grows, t)
            && let Some((now, by)) = grown
        {
            found.push(("memory", format!("{} MB of {} MB", by >> 20, now >> 20)));
        }
        if let Some(now) = memory
            && self.memory_before.is_none_or(|(at, before)| t - at >= GROWTH_SPAN_NS || now < before)
        {
            self.memory_before = Some((t, now));
        }
        let longest = sample.busiest.iter().max_by_key(|process| process.queue);
        if self.message_queue.fires(longest.is_some_and(|process| process.queue >= MIN_QUEUE_LENGTH), t)
            && let Some(longest) = longest
        {
            found.push(("message_queue", format!("{} {}", longest.queue, longest.pid)));
        }
        let near =
            group.zip(limit).filter(|(used, limit)| *limit > 0 && *used / MIN_LIMIT_USE_PCT >= *limit / 100);
        if self.near_limit.fires(near.is_some(), t)
            && let Some((used, limit)) = near
        {
            found.push(("cgroup_memory", format!("{} MB of {} MB", used >> 20, limit >> 20)));
        }
        // Events of the VM. That a node is gone or was restarted is no reason to read expensive items.
        let event = sample.events.iter().find(|event| !["gone", "restart"].contains(&event.kind.as_str()));
        if self.event.fires(event.is_some(), t)
            && let Some(event) = event
        {
            found.push(("event", event.kind.clone()));
        }

        let is_spent = self.dense_since.is_some_and(|since| t - since < PAUSE_NS);
        if !found.is_empty() && !is_spent {
            self.dense_since = Some(t);
        }
        sample.events.extend(found.into_iter().map(|(what, detail)| Event {
            t,
            kind: "trigger".to_owned(),
            subject: what.to_owned(),
            detail,
        }));
    }
}

impl Symptom {
    /// Updates the symptom; returns whether it is new and its trigger has not fired for a while.
    fn fires(&mut self, is_present: bool, t: Nanos) -> bool {
        let is_new = is_present && !std::mem::replace(&mut self.is_present, is_present);
        let fires = is_new && self.fired.is_none_or(|fired| t - fired >= PAUSE_NS);
        if fires {
            self.fired = Some(t);
        }
        self.is_present = is_present;
        fires
    }
}
