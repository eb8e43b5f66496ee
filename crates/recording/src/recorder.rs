//! The sampling loop: requests samples from the sources on a fixed schedule, and stores them.
//!
//! Tick k is due at t₀ + k × every, regardless of earlier ticks, so the schedule does not drift. A late sample is marked as late.
//! Missed ticks are not sampled afterwards, but recorded as a gap. In each tick, a request is sent to the VM, and the host is read
//! while the VM prepares its reply. Then the reply is collected. So both refer to nearly the same time.
//!
//! Failures of a source are not errors. Each becomes one gap for as long as it lasts, and the source is tried again at the next
//! tick. Failures to store a sample are tolerated for a while, too.

mod gaps;
mod incarnations;
#[cfg(test)]
mod tests;
mod trigger;

use beamtune_model::units::SECOND_NS;
use beamtune_model::{
    Clock, Event, Facts, Gap, Incarnation, Nanos, Sample, SampleBuilder, SampleRequest, SeriesTable, Source,
    SourceTrouble, Span, Tick, TroubleKind, facts,
};

use crate::clock::Stop;
use crate::error::Error;
use crate::writer::Writer;
use gaps::OpenGaps;
use incarnations::Incarnations;
use trigger::Triggers;

/// `source` of gaps caused by the recorder itself.
const RECORDER: &str = "recorder";
/// Time after which the sources of a node that is gone are tried less often.
const SLOW_RETRY_AFTER_NS: Nanos = 60 * SECOND_NS;
/// Interval of tries after this time: short enough to notice a start soon, and nearly free during a night without the node.
const SLOW_RETRY_NS: Nanos = 5 * SECOND_NS;
/// Minimum change of the difference between wall clock and recorder's clock that means that the wall clock was set.
const CLOCK_STEP_NS: i64 = SECOND_NS;
/// Minimum interval between ticks. Reading a sample takes milliseconds.
const MIN_INTERVAL_NS: Nanos = 1_000_000;

/// Schedule and limits of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Interval between ticks.
    pub every: Nanos,
    /// Time from the first tick to the last; `None`: until the recorder is asked to stop.
    pub length: Option<Nanos>,
    /// Interval of the expensive items. They are also read in the first and in the last sample.
    pub detail_every: Nanos,
    /// Timeout for a reply. It may exceed `every`: a node that takes two seconds to reply needs a diagnosis, and half of its samples
    /// are better than none.
    pub timeout: Nanos,
    /// Timeout for the VM's first reply, if longer. This reply contains the facts, which most rules need. A node with about 32 processes
    /// that contend for one table, and with four schedulers on two busy CPUs, took 5.5 s for it.
    pub first_patience: Nanos,
    /// How long to wait for a node that is gone.
    pub wait_for_return: Nanos,
    /// How long to try to store samples after a failure.
    pub wait_for_storage: Nanos,
    /// How long to try to store samples while the disk is full.
    pub wait_for_room: Nanos,
    /// Whether to read the expensive items in each sample for a while after a trigger. For recordings that nobody watches.
    pub triggers: bool,
}

impl Default for Plan {
    fn default() -> Self {
        Plan {
            every: SECOND_NS,
            length: None,
            detail_every: 10 * SECOND_NS,
            timeout: 2 * SECOND_NS,
            first_patience: 10 * SECOND_NS,
            wait_for_return: 30 * SECOND_NS,
            wait_for_storage: 10 * SECOND_NS,
            wait_for_room: 10 * SECOND_NS,
            triggers: false,
        }
    }
}

/// Sources to record from.
#[derive(Default)]
pub struct Sources<'a> {
    /// The VM.
    pub vm: Option<&'a mut dyn Source>,
    /// Its host.
    pub host: Option<&'a mut dyn Source>,
}

/// Progress of a recording, reported after each sample.
#[derive(Debug, Clone, Copy)]
pub struct Progress<'a> {
    /// Time since the first tick.
    pub elapsed: Nanos,
    /// Time until the last tick, if known.
    pub left: Option<Nanos>,
    /// Number of samples stored.
    pub samples: u64,
    /// Number of ticks missed because the recorder was late.
    pub missed: u64,
    /// The failure of the last sample, if any.
    pub trouble: Option<&'a str>,
    /// New messages for the user, for example that a ring drops data.
    pub notices: &'a [String],
}

/// Why a recording ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndReason {
    /// The planned length has elapsed.
    Elapsed,
    /// The recorder was asked to stop.
    Stopped,
    /// No source could find the node for [`Plan::wait_for_return`].
    SourcesGone,
}

/// Result of a recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Why the recording ended.
    pub end: EndReason,
    /// Number of samples stored.
    pub samples: u64,
    /// Number of ticks missed because the recorder was late.
    pub missed: u64,
    /// The last failure, even if later samples succeeded.
    pub last_trouble: Option<SourceTrouble>,
}

/// Records until the end of the plan, until a stop is requested, or until the node is gone. Afterwards the caller must
/// [finish](Writer::finish) the writer.
///
/// # Errors
/// If nothing could be stored for [`Plan::wait_for_storage`] or [`Plan::wait_for_room`]; earlier samples are kept.
pub fn record(
    plan: &Plan,
    sources: Sources<'_>,
    clock: &dyn Clock,
    stop: &Stop,
    writer: &mut Writer,
    mut progress: impl FnMut(&Progress<'_>),
) -> Result<Outcome, Error> {
    let past = writer.take_past().unwrap_or_default();
    let resumed = past.resume(clock.wall()).1;
    let begin = match past.last {
        Some((last, _)) => clock.now().max(last + 1),
        None => clock.now(),
    };
    if resumed.is_none() {
        // Readers do not need this value. If it cannot be stored, storing the first sample fails, too, and is reported.
        let _ = writer.set_wall_at_zero(clock.wall().saturating_sub(begin));
    }
    let plan = Plan {
        every: plan.every.max(MIN_INTERVAL_NS),
        detail_every: plan.detail_every.max(MIN_INTERVAL_NS),
        ..*plan
    };
    let recorder = Recorder {
        end: plan.length.map(|length| begin.saturating_add(length.max(0))),
        plan,
        sources,
        clock,
        stop,
        writer,
        table: past.table,
        begin,
        resumed: resumed.map(|gap| Gap { end: begin, ..gap }),
        wall_ahead: None,
        seq: 0,
        details: 0,
        last: None,
        missed: 0,
        samples: 0,
        gaps: OpenGaps::default(),
        incarnations: Incarnations::resumed(past.incarnation),
        host_facts: Facts::default(),
        triggers: plan.triggers.then(Triggers::default),
        gone_since: None,
        unstored: None,
        trouble: None,
        last_trouble: None,
    };
    recorder.run(&mut progress)
}

struct Recorder<'a, 's> {
    plan: Plan,
    sources: Sources<'s>,
    clock: &'a dyn Clock,
    stop: &'a Stop,
    writer: &'a mut Writer,
    table: SeriesTable,
    /// Time of the first tick.
    begin: Nanos,
    /// Time of the last tick, if planned.
    end: Option<Nanos>,
    /// The gap between the last tick of an earlier recorder and the first tick of this one; stored with the first sample.
    resumed: Option<Gap>,
    /// Wall clock minus the recorder's clock, as last stored.
    wall_ahead: Option<i64>,
    /// Number of samples taken.
    seq: u64,
    /// Number of samples taken with expensive items.
    details: u64,
    last: Option<LastSample>,
    missed: u64,
    samples: u64,
    gaps: OpenGaps,
    incarnations: Incarnations,
    /// Current facts of the host; they also apply to the next incarnation.
    host_facts: Facts,
    triggers: Option<Triggers>,
    /// Since when no source has found the node.
    gone_since: Option<Nanos>,
    unstored: Option<Unstored>,
    /// Failure of the last sample.
    trouble: Option<SourceTrouble>,
    last_trouble: Option<SourceTrouble>,
}

/// Times of the last sample.
#[derive(Debug, Clone, Copy)]
struct LastSample {
    t: Nanos,
    detail: bool,
    begin: Nanos,
    end: Nanos,
}

/// Data that must not be lost, from samples that could not be stored.
#[derive(Debug)]
struct Unstored {
    since: Nanos,
    why: Error,
    /// Incarnation, facts, events and gaps; readings and other rows are lost.
    rest: Sample,
}

/// The next tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Due {
    t: Nanos,
    detail: bool,
    last: bool,
}

/// Result of reading a source; `None` if there is no such source.
type Answer = Option<Result<Span, SourceTrouble>>;

impl Recorder<'_, '_> {
    fn run(mut self, progress: &mut dyn FnMut(&Progress<'_>)) -> Result<Outcome, Error> {
        if self.sources.vm.is_none() && self.sources.host.is_none() {
            return Ok(self.outcome(EndReason::SourcesGone));
        }
        let mut next = self.begin;
        loop {
            while self.clock.now() < next && !self.stop.is_requested() {
                self.clock.sleep_until(next);
            }
            let stopping = self.stop.is_requested();
            if stopping && self.has_fresh_detail() {
                return Ok(self.outcome(EndReason::Stopped));
            }
            let (due, missed) = if stopping { (self.now(), None) } else { self.due(next) };
            self.sample(due, missed);
            self.report(due.t, progress);
            let now = self.clock.now();
            if let Some(unstored) = &self.unstored
                && now - unstored.since >= self.storage_patience(&unstored.why)
                && let Some(unstored) = self.unstored.take()
            {
                return Err(unstored.why);
            }
            if stopping {
                return Ok(self.outcome(EndReason::Stopped));
            }
            if due.last {
                return Ok(self.outcome(EndReason::Elapsed));
            }
            if self.gone_since.is_some_and(|since| now - since >= self.plan.wait_for_return) {
                return Ok(self.outcome(EndReason::SourcesGone));
            }
            next = self.after(due.t);
            if self.gone_since.is_some_and(|since| due.t - since >= SLOW_RETRY_AFTER_NS) {
                next = next.max(due.t + SLOW_RETRY_NS).min(self.end.unwrap_or(Nanos::MAX));
            }
        }
    }

    /// Returns the tick after `t`. A tick shortly before the last one is skipped: rates between two samples that are close to each other
    /// would be noise.
    fn after(&self, t: Nanos) -> Nanos {
        let every = self.plan.every;
        let next = t + every - (t - self.begin) % every;
        self.end.filter(|end| end - next < every / 2).unwrap_or(next)
    }

    /// Returns the tick that is due, and the gap before it if earlier ticks were missed.
    fn due(&mut self, next: Nanos) -> (Due, Option<Gap>) {
        let every = self.plan.every;
        let passed = (self.clock.now() - next) / every;
        let t = (next + passed * every).min(self.end.unwrap_or(Nanos::MAX)).max(next);
        let missed = (t - next + every - 1) / every;
        let gap = (missed > 0).then(|| {
            self.missed += missed as u64;
            let took = self.last.map_or(0, |last| last.end - last.begin);
            let why = if took > every {
                format!("the last sample took {:.1} s", took as f64 / SECOND_NS as f64)
            } else {
                "the recorder did not get the CPU in time".to_owned()
            };
            let reason = format!("missed {missed} ticks: {why}");
            Gap { begin: next, end: t, source: RECORDER.to_owned(), kind: TroubleKind::Recorder, reason }
        });
        let last = self.end.is_some_and(|end| t >= end);
        let details = |t: Nanos| (t - self.begin) / self.plan.detail_every;
        let is_dense = self.triggers.as_ref().is_some_and(|triggers| triggers.is_dense(t));
        let detail = last || is_dense || self.last.is_none_or(|last| details(t) > details(last.t));
        (Due { t, detail, last }, gap)
    }

    /// Returns an immediate last tick, for use after a request to stop.
    fn now(&self) -> Due {
        let now = self.clock.now();
        let t = self.last.map_or(now, |last| now.max(last.t + 1));
        Due { t, detail: true, last: true }
    }

    /// How long failures to store samples are tolerated.
    fn storage_patience(&self, why: &Error) -> Nanos {
        match why {
            Error::BlockedByReader { .. } => Nanos::MAX,
            Error::DiskFull { .. } => self.plan.wait_for_room,
            _ => self.plan.wait_for_storage,
        }
    }

    /// Whether the last sample is so recent and detailed that another one would add nothing.
    fn has_fresh_detail(&self) -> bool {
        self.last.is_some_and(|last| last.detail && self.clock.now() - last.t < self.plan.every / 10)
    }

    /// Takes a sample and stores it.
    fn sample(&mut self, due: Due, missed: Option<Gap>) {
        let begin = self.clock.now();
        let ask = SampleRequest { seq: self.seq, t: due.t, detail: due.detail };
        self.seq += 1;
        self.details += u64::from(due.detail);
        let tick = Tick {
            t: due.t,
            incarnation: self.incarnations.number(),
            vm: None,
            host: None,
            late: begin - due.t,
        };
        let mut out = SampleBuilder::new(&mut self.table, tick);
        out.sample.gaps.extend(self.resumed.take());
        out.sample.gaps.extend(missed);
        let ahead = self.clock.wall().saturating_sub(begin);
        if self.wall_ahead.is_none_or(|before| ahead.abs_diff(before) >= CLOCK_STEP_NS.unsigned_abs()) {
            self.wall_ahead = Some(ahead);
            self.writer.note_wall(due.t, ahead.saturating_add(due.t));
        }

        let patience = begin.saturating_add(self.plan.timeout);
        // While the VM does not answer, only samples with expensive items wait for it beyond the next tick. So the host is still
        // read at most ticks.
        let vm_patience = if ask.seq == 0 {
            patience.max(begin.saturating_add(self.plan.first_patience))
        } else if self.gaps.is_open("vm") && !due.detail {
            patience.min(due.t + self.plan.every).max(begin)
        } else {
            patience
        };
        let requested = self.sources.vm.as_mut().map(|vm| vm.request(ask, self.clock));
        // Facts of the host also apply to the next incarnation, except for the process id.
        let (clock, host_facts) = (self.clock, &mut self.host_facts);
        let mut read_host = |host: &mut dyn Source, out: &mut SampleBuilder<'_>| {
            let before = out.sample.facts.len();
            host.request(ask, clock)?;
            let answer = host.collect(patience, clock, out);
            for (key, value) in out.sample.facts.iter().skip(before).filter(|(key, _)| key != facts::HOST_PID)
            {
                host_facts.set(key, value.as_str());
            }
            answer
        };
        let mut host = self.sources.host.as_deref_mut();
        let comes_with_vm = host.as_ref().is_some_and(|host| host.comes_with_vm());
        let mut host_answer: Answer = host.take_if(|_| !comes_with_vm).map(|host| read_host(host, &mut out));
        let mut host_incarnation = out.sample.incarnation.take();
        let vm: Answer = self.sources.vm.as_mut().zip(requested).map(|(vm, requested)| {
            requested?;
            vm.collect(vm_patience, self.clock, &mut out)
        });
        let vm_incarnation = out.sample.incarnation.take();
        if let Some(host) = host {
            host_answer = Some(read_host(host, &mut out));
            host_incarnation = out.sample.incarnation.take();
        }

        let mut sample = out.sample;
        self.trouble = None;
        self.note_gone(&[&vm, &host_answer], &mut sample);
        sample.tick.host = self.span("host", host_answer, &mut sample);
        sample.tick.vm = self.span("vm", vm, &mut sample);
        let (vm_announced, host_announced) = (vm_incarnation.is_some(), host_incarnation.is_some());
        let incarnation = self.begin_incarnation(vm_incarnation, host_incarnation, &mut sample);
        if let Some(triggers) = &mut self.triggers {
            triggers.check(&mut sample, &self.table);
        }
        self.merge_gaps(&mut sample, due.detail);
        self.store(sample);
        if let Some(incarnation) = incarnation {
            for (source, announced) in
                [(&mut self.sources.vm, vm_announced), (&mut self.sources.host, host_announced)]
            {
                if let Some(source) = source
                    && !announced
                {
                    source.on_restart(&incarnation);
                }
            }
        }
        self.last = Some(LastSample { t: due.t, detail: due.detail, begin, end: self.clock.now() });
        if self.trouble.is_some() {
            self.last_trouble.clone_from(&self.trouble);
        }
    }

    /// Returns the span in which a source was read; a failure becomes a gap.
    fn span(&mut self, source: &str, answer: Answer, sample: &mut Sample) -> Option<Span> {
        match answer? {
            Ok(span) => {
                if let Some(begin) = self.gaps.close(source) {
                    self.writer.prolong_gap(source, begin, span.begin);
                }
                Some(span)
            }
            Err(trouble) => {
                sample.gaps.push(Gap {
                    begin: sample.tick.t,
                    end: self.clock.now().max(sample.tick.t),
                    source: source.to_owned(),
                    kind: trouble.kind,
                    reason: trouble.reason.clone(),
                });
                // A source that does not exist is not a failure to report.
                if trouble.kind != TroubleKind::Unsupported {
                    self.trouble = Some(trouble);
                }
                None
            }
        }
    }

    /// Updates since when the node is gone. It is gone if no source could read anything and at least one did not find it.
    fn note_gone(&mut self, answers: &[&Answer], sample: &mut Sample) {
        let mut gone = None;
        for answer in answers.iter().copied().flatten() {
            match answer {
                Err(trouble) if trouble.kind == TroubleKind::Gone => gone = gone.or(Some(trouble)),
                Err(trouble) if matches!(trouble.kind, TroubleKind::Denied | TroubleKind::Unsupported) => {}
                _ => {
                    gone = None;
                    break;
                }
            }
        }
        let t = sample.tick.t;
        if let (Some(trouble), None) = (gone, self.gone_since) {
            let (subject, detail) = (self.incarnations.node().to_owned(), trouble.reason.clone());
            sample.events.push(Event { t, kind: "gone".to_owned(), subject, detail });
        }
        self.gone_since = gone.map(|_| self.gone_since.unwrap_or(t));
    }

    /// Begins a new incarnation if a source has announced one.
    fn begin_incarnation(
        &mut self,
        vm: Option<Incarnation>,
        host: Option<Incarnation>,
        sample: &mut Sample,
    ) -> Option<Incarnation> {
        let incarnation = self.incarnations.announce(vm, host);
        sample.tick.incarnation = self.incarnations.number();
        sample.incarnation.clone_from(&incarnation);
        if let Some(incarnation) = incarnation.as_ref().filter(|incarnation| incarnation.id > 0) {
            for (key, value) in self.host_facts.iter() {
                if sample.facts.iter().all(|(known, _)| known != key) {
                    sample.facts.push((key.to_owned(), value.to_owned()));
                }
            }
            if sample.events.iter().all(|event| event.kind != "restart") {
                let detail = incarnation.os_pid.map(|pid| format!("now process {pid}")).unwrap_or_default();
                let (kind, subject) = ("restart".to_owned(), incarnation.node.clone());
                sample.events.push(Event { t: sample.tick.t, kind, subject, detail });
            }
        }
        if incarnation.is_some() || self.last.is_none() {
            let version = concat!("beamtune ", env!("CARGO_PKG_VERSION"));
            sample.facts.push((facts::RECORDED_BY.to_owned(), version.to_owned()));
        }
        incarnation
    }

    /// Merges gaps that continue earlier ones into these: moves the end of the earlier gap and drops the new one.
    fn merge_gaps(&mut self, sample: &mut Sample, detail: bool) {
        let at = gaps::SampleNumber { sample: self.seq, detail: detail.then_some(self.details) };
        for gap in std::mem::take(&mut sample.gaps) {
            // Delays of the recorder are never merged, since a sample was taken between them.
            let goes_on = if gap.source == RECORDER { None } else { self.gaps.continued(&gap, at) };
            match goes_on {
                None => sample.gaps.push(gap),
                Some(begin) => self.writer.prolong_gap(&gap.source, begin, gap.end),
            }
        }
    }

    /// Stores a sample, together with the data of earlier samples that could not be stored.
    fn store(&mut self, mut sample: Sample) {
        let t = sample.tick.t;
        let mut rest = Sample::new(sample.tick);
        if let Some(unstored) = &self.unstored {
            rest.clone_from(&unstored.rest);
        }
        rest.incarnation = sample.incarnation.take().or(rest.incarnation);
        rest.facts.append(&mut sample.facts);
        rest.events.append(&mut sample.events);
        rest.gaps.append(&mut sample.gaps);

        sample.incarnation.clone_from(&rest.incarnation);
        sample.facts.clone_from(&rest.facts);
        sample.events.clone_from(&rest.events);
        sample.gaps.clone_from(&rest.gaps);
        sample.gaps.extend(self.unstored.as_ref().map(|unstored| Gap {
            begin: unstored.since,
            end: t,
            source: RECORDER.to_owned(),
            kind: TroubleKind::Recorder,
            reason: unstored.why.to_string(),
        }));
        match self.writer.append(&sample, &self.table) {
            Ok(()) => {
                self.samples += 1;
                self.unstored = None;
            }
            Err(why) => {
                self.trouble = Some(SourceTrouble::new(TroubleKind::Recorder, why.to_string()));
                let since = self.unstored.as_ref().map_or(t, |unstored| unstored.since);
                self.unstored = Some(Unstored { since, why, rest });
            }
        }
    }

    fn report(&mut self, t: Nanos, progress: &mut dyn FnMut(&Progress<'_>)) {
        let notices = self.writer.take_notices();
        progress(&Progress {
            elapsed: t - self.begin,
            left: self.end.map(|end| (end - t).max(0)),
            samples: self.samples,
            missed: self.missed,
            trouble: self.trouble.as_ref().map(|trouble| trouble.reason.as_str()),
            notices: &notices,
        });
    }

    fn outcome(self, end: EndReason) -> Outcome {
        Outcome { end, samples: self.samples, missed: self.missed, last_trouble: self.last_trouble }
    }
}
