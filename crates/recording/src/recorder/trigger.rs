//! Triggers: signs in what is read each second that something begins, upon which closer looks come each second for a
//! while, instead of every ten seconds. They cost nothing but a glance at values that are read anyhow.
//!
//! A sign counts when it appears, not while it lasts, and each at most once in ten minutes. Closer looks are dear (on a
//! node of 200,000 processes some ten milliseconds of a scheduler), so they are dense for half a minute in ten minutes at
//! most, a twentieth of the time, whatever the signs.

use beamtune_model::units::SECOND_NS;
use beamtune_model::{Event, Group, Nanos, Sample, SeriesTable, metrics};

/// For so long closer looks are dense.
const DENSE_NS: Nanos = 30 * SECOND_NS;
/// In so long, once: with the above, a twentieth of the time.
const PAUSE_NS: Nanos = 600 * SECOND_NS;

/// Samples in a row with more runnable processes than schedulers: a single one is a burst like any.
const FULL_QUEUES: u32 = 3;
/// Messages in one queue, above which a process is suspect: the rule on growing queues (BT006) warns from there on, by the
/// practice of the operators of RabbitMQ and EMQX.
const LONG_QUEUE: i64 = 5_000;
/// Growth of the VM's memory, in percent of what it was a minute before, and in bytes: small nodes breathe.
const GROWTH_PCT: i64 = 20;
const GROWTH_BYTES: i64 = 64 << 20;
const GROWTH_SPAN_NS: Nanos = 60 * SECOND_NS;
/// Percent of the control group's memory limit.
const NEAR_LIMIT_PCT: i64 = 90;

/// What a series is to a trigger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    None,
    RunQueue,
    VmMemory,
    GroupMemory,
    GroupLimit,
}

/// A sign, and when it was last seen to appear.
#[derive(Debug, Default)]
struct Sign {
    shows: bool,
    told: Option<Nanos>,
}

/// Watches the samples of a recording.
#[derive(Debug, Default)]
pub(super) struct Triggers {
    /// By series id.
    roles: Vec<Role>,
    run_queue: Sign,
    memory: Sign,
    message_queue: Sign,
    near_limit: Sign,
    event: Sign,
    full_queues: u32,
    /// The VM's memory, a minute ago or less.
    memory_before: Option<(Nanos, i64)>,
    dense_since: Option<Nanos>,
}

impl Triggers {
    /// True if a closer look is due because of a trigger.
    pub(super) fn is_dense(&self, t: Nanos) -> bool {
        self.dense_since.is_some_and(|since| t - since <= DENSE_NS)
    }

    /// Looks at a sample; adds an event to it for each sign that appears in it.
    pub(super) fn look(&mut self, sample: &mut Sample, table: &SeriesTable) {
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
        if self.run_queue.appears(self.full_queues >= FULL_QUEUES, t) {
            found.push(("run_queue", format!("{runnable} of {schedulers}")));
        }
        let grown = memory.and_then(|now| Some((now, now - self.memory_before?.1)));
        let grows = grown.is_some_and(|(now, by)| by >= GROWTH_BYTES && by >= (now - by) / 100 * GROWTH_PCT);
        if self.memory.appears(grows, t)
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
        if self.message_queue.appears(longest.is_some_and(|process| process.queue >= LONG_QUEUE), t)
            && let Some(longest) = longest
        {
            found.push(("message_queue", format!("{} {}", longest.queue, longest.pid)));
        }
        let near =
            group.zip(limit).filter(|(used, limit)| *limit > 0 && *used / NEAR_LIMIT_PCT >= *limit / 100);
        if self.near_limit.appears(near.is_some(), t)
            && let Some((used, limit)) = near
        {
            found.push(("cgroup_memory", format!("{} MB of {} MB", used >> 20, limit >> 20)));
        }
        // What the VM reports of itself; that it went or came back is no sign that a closer look could use.
        let event = sample.events.iter().find(|event| !["gone", "restart"].contains(&event.kind.as_str()));
        if self.event.appears(event.is_some(), t)
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

impl Sign {
    /// True if it shows and did not before, and has not been told for a while.
    fn appears(&mut self, shows: bool, t: Nanos) -> bool {
        let is_new = shows && !std::mem::replace(&mut self.shows, shows);
        let appears = is_new && self.told.is_none_or(|told| t - told >= PAUSE_NS);
        if appears {
            self.told = Some(t);
        }
        self.shows = shows;
        appears
    }
}
