//! System monitor events of a period: number, duration and main process of each kind.

use std::collections::BTreeMap;

use beamtune_model::{Event, Evidence, Missing, Period, Subject, metrics};

use crate::rule::Draft;
use crate::view::{self, kind};

/// The system monitor events of one kind in a period.
pub struct Events<'p> {
    /// Number of events.
    pub count: i64,
    /// Number of events per second.
    pub rate: f64,
    /// Total duration in seconds; 0 for kinds without a duration.
    pub seconds: f64,
    /// Longest duration in seconds; 0 for kinds without a duration.
    pub longest: f64,
    /// The process with the most events, among events with a known process. If several have as many, the one whose last event is the
    /// earliest.
    pub culprit: Option<Culprit<'p>>,
}

/// The process with the most events.
pub struct Culprit<'p> {
    /// Its name, label or initial call, with its pid.
    pub subject: &'p str,
    /// Number of its events.
    pub count: usize,
    /// Number of events with a known process.
    pub of: usize,
    /// Its last event.
    pub last: &'p Event,
}

const NS_PER_S: f64 = 1e9;

impl Events<'_> {
    /// Whether the schedulers had run-queue delay, or were throttled, for at least half of the duration of these events. The VM measures
    /// wall time, so durations include time without a CPU. A delay as short as a wake-up is not counted.
    pub fn may_be_host(&self, period: &Period) -> bool {
        let waited = match view::mean_run_queue_delay_seconds(period) {
            Ok(each) if each < view::MAX_WAKE_UP_SECONDS => 0.0,
            _ => view::thread_cores(period, &metrics::THREAD_WAIT, kind::SCHEDULERS).unwrap_or(0.0),
        };
        let throttled = view::throttled_cores(period).unwrap_or(0.0);
        waited.max(throttled) * period.seconds() >= self.seconds / 2.0
    }

    /// Adds the process with the most events, if known, as evidence and as the subject.
    pub fn name_culprit(&self, draft: Draft) -> Draft {
        let Some(Culprit { subject, count, of, last }) = &self.culprit else { return draft };
        draft
            .evidence(Evidence::text("process", format!("{subject}: {count} of {of}")))
            .evidence(Evidence::text("last event", last.detail.clone()))
            .about(Subject::process(subject))
    }
}

/// Returns the events of a kind; an error if the system monitor was not set, or belonged to another process.
pub fn of_kind<'p>(period: &'p Period, kind: &str) -> Result<Events<'p>, Missing> {
    let count = period.stat(&metrics::EVENT_COUNT, kind)?;
    let time = period.stat(&metrics::EVENT_TIME, kind).ok();
    let longest = period.stat(&metrics::EVENT_LONGEST, kind).ok();
    let mut subjects: BTreeMap<&str, (usize, &Event)> = BTreeMap::new();
    let mut of = 0;
    for event in period.events.iter().filter(|event| event.kind == kind) {
        of += 1;
        subjects
            .entry(&event.subject)
            .and_modify(|(count, last)| (*count, *last) = (*count + 1, event))
            .or_insert((1, event));
    }
    let culprit = subjects.into_iter().max_by_key(|(_, (count, last))| (*count, std::cmp::Reverse(last.t)));
    Ok(Events {
        count: count.delta,
        rate: period.rate(&metrics::EVENT_COUNT, kind)?,
        seconds: time.map_or(0.0, |time| time.delta as f64 / NS_PER_S),
        longest: longest.map_or(0.0, |longest| longest.max as f64 / NS_PER_S),
        culprit: culprit.map(|(subject, (count, last))| Culprit { subject, count, of, last }),
    })
}
