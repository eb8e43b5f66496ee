//! System monitor events, as rules use them: number, duration and process of each kind.

use std::collections::BTreeMap;

use beamtune_model::{Event, Evidence, Missing, Period, Subject, metrics};

use crate::rule::Draft;
use crate::view::{self, kind};

/// The events of a kind in a period.
pub struct Told<'p> {
    /// How many.
    pub count: i64,
    /// How many a second.
    pub rate: f64,
    /// How long they took together, in seconds; 0 for kinds that take no time.
    pub seconds: f64,
    /// How long the longest took, in seconds; 0 for kinds that take no time.
    pub longest: f64,
    /// The process that most events with a known process are about; the one that came first, if several are even.
    pub culprit: Option<Culprit<'p>>,
}

/// A process that events are about.
pub struct Culprit<'p> {
    /// Its name, label or what it runs, with its pid.
    pub subject: &'p str,
    /// The number of its events.
    pub count: usize,
    /// The number of events with a known process.
    pub of: usize,
    /// Its last event.
    pub last: &'p Event,
}

const NS_PER_S: f64 = 1e9;

impl Told<'_> {
    /// True if schedulers waited for a CPU for at least half as long as these took: the VM measures by the clock, so the durations include
    /// time that the operating system took away. Waits no longer than a wake-up take nothing away.
    pub fn may_be_the_hosts(&self, period: &Period) -> bool {
        let waited = match view::wait_per_turn_seconds(period) {
            Ok(each) if each < view::TURN_SECONDS => 0.0,
            _ => view::thread_cores(period, &metrics::THREAD_WAIT, kind::SCHEDULERS).unwrap_or(0.0),
        };
        let throttled = view::throttled_cores(period).unwrap_or(0.0);
        waited.max(throttled) * period.seconds() >= self.seconds / 2.0
    }

    /// Adds the process, if known, as evidence and as the subject.
    pub fn blame(&self, draft: Draft) -> Draft {
        let Some(Culprit { subject, count, of, last }) = &self.culprit else { return draft };
        draft
            .because(Evidence::text("process", format!("{subject}: {count} of {of}")))
            .because(Evidence::text("its last one", last.detail.clone()))
            .about(Subject::process(subject))
    }
}

/// All events of a kind; an error if the system monitor was not set, or belonged to another process.
pub fn told<'p>(period: &'p Period, kind: &str) -> Result<Told<'p>, Missing> {
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
    Ok(Told {
        count: count.delta,
        rate: period.rate(&metrics::EVENT_COUNT, kind)?,
        seconds: time.map_or(0.0, |time| time.delta as f64 / NS_PER_S),
        longest: longest.map_or(0.0, |longest| longest.max as f64 / NS_PER_S),
        culprit: culprit.map(|(subject, (count, last))| Culprit { subject, count, of, last }),
    })
}
