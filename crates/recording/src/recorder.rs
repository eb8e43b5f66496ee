//! The sampling loop: asks the sources on a fixed schedule, and stores what they answer.
//!
//! The tick k is due at t₀ + k × every, whatever happened before it, so nothing drifts. A tick that is
//! taken late says so; ticks that have passed meanwhile are not made up for but marked as a gap. In
//! each tick the VM is asked first, then the host is read while the VM answers, then the answer is
//! collected, so that both stand for nearly the same time.
//!
//! Trouble of a source is no error: it becomes a gap, one for as long as it lasts, and the source is
//! asked again at the next tick. Trouble with the disk is endured for a while, too.

mod gaps;
mod lives;
#[cfg(test)]
mod tests;
mod trigger;

use beamtune_model::units::SECOND_NS;
use beamtune_model::{
    Ask, Clock, Event, Facts, Gap, Incarnation, Nanos, Sample, SampleBuilder, SeriesTable, Source, Span,
    Tick, Trouble, TroubleKind, facts,
};

use crate::clock::Stop;
use crate::error::Error;
use crate::writer::Writer;
use gaps::Gaps;
use lives::Lives;
use trigger::Triggers;

/// `source` of the gaps that are the recorder's own fault.
const RECORDER: &str = "recorder";
/// After so long a node that is gone is looked for at longer intervals.
const LONG_GONE_NS: Nanos = 60 * SECOND_NS;
/// The interval then: what starts within it is met soon enough, and a night without the node costs next to nothing.
const CALM_NS: Nanos = 5 * SECOND_NS;
/// The wall clock was set if it differs by so much from what it should show.
const CLOCK_STEP_NS: i64 = SECOND_NS;
/// The shortest interval. What is read takes milliseconds to read.
const SHORTEST_NS: Nanos = 1_000_000;

/// When to sample, and when to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// From tick to tick.
    pub every: Nanos,
    /// From the first tick to the last one; `None`: until asked to stop.
    pub length: Option<Nanos>,
    /// How often the dearer items are read; always in the first and in the last sample.
    pub detail_every: Nanos,
    /// How long an answer is waited for. More than `every` is of use: a node that needs two seconds to
    /// answer is one that wants a diagnosis, and half of its samples are more than none.
    pub patience: Nanos,
    /// The same of the VM's first answer, if that is more: with it come the facts, without which little can be judged of the rest. One
    /// with some 32 processes on one table and four schedulers on two busy CPUs has taken 5.5 s for it.
    pub first_patience: Nanos,
    /// How long a node that is gone is waited for.
    pub wait_for_return: Nanos,
    /// How long samples are tried to be stored again after one could not be.
    pub wait_for_storage: Nanos,
    /// The same while the only trouble is that the disk is full.
    pub wait_for_room: Nanos,
    /// Read the dearer items in each sample for a while when something begins: nobody is there to do it.
    pub triggers: bool,
}

impl Default for Plan {
    fn default() -> Self {
        Plan {
            every: SECOND_NS,
            length: None,
            detail_every: 10 * SECOND_NS,
            patience: 2 * SECOND_NS,
            first_patience: 10 * SECOND_NS,
            wait_for_return: 30 * SECOND_NS,
            wait_for_storage: 10 * SECOND_NS,
            wait_for_room: 10 * SECOND_NS,
            triggers: false,
        }
    }
}

/// What to record from.
#[derive(Default)]
pub struct Sources<'a> {
    /// The VM.
    pub vm: Option<&'a mut dyn Source>,
    /// Its host.
    pub host: Option<&'a mut dyn Source>,
}

/// How a recording is going; told after each sample.
#[derive(Debug, Clone, Copy)]
pub struct Progress<'a> {
    /// Since the first tick.
    pub elapsed: Nanos,
    /// Until the last one, if that is known.
    pub left: Option<Nanos>,
    /// Samples stored.
    pub samples: u64,
    /// Ticks left out because the recorder was late.
    pub missed: u64,
    /// What is wrong at the moment.
    pub trouble: Option<&'a str>,
    /// What is new and worth a line: what a ring drops, for example.
    pub notices: &'a [String],
}

/// Why a recording ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It has the length that was planned.
    Elapsed,
    /// It was asked to stop.
    Stopped,
    /// No source could find the node any more, for as long as was planned to wait.
    SourcesGone,
}

/// What became of a recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Why it ended.
    pub end: End,
    /// Samples stored.
    pub samples: u64,
    /// Ticks left out because the recorder was late.
    pub missed: u64,
    /// The last trouble that there was, also if it has passed.
    pub last_trouble: Option<Trouble>,
}

/// Records until the plan, the user or the node puts an end to it. The writer is still to be
/// [finished](Writer::finish).
///
/// An error means that nothing could be stored for [`Plan::wait_for_storage`] or [`Plan::wait_for_room`]; what was stored before is there.
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
        // A reader can do without it, so that it cannot be stored is left to the first sample to find out.
        let _ = writer.set_wall_at_zero(clock.wall().saturating_sub(begin));
    }
    let plan = Plan {
        every: plan.every.max(SHORTEST_NS),
        detail_every: plan.detail_every.max(SHORTEST_NS),
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
        gaps: Gaps::default(),
        lives: Lives::resumed(past.life),
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
    /// The first tick.
    begin: Nanos,
    /// The last one, if that is planned.
    end: Option<Nanos>,
    /// From the last tick of an earlier recorder until the first one; told with the first sample.
    resumed: Option<Gap>,
    /// The wall clock minus the recorder's, when it was last noted.
    wall_ahead: Option<i64>,
    /// Samples taken.
    seq: u64,
    /// Of them, those with detail.
    details: u64,
    last: Option<Taken>,
    missed: u64,
    samples: u64,
    gaps: Gaps,
    lives: Lives,
    /// What the host has said so far: it is true of the VM's next life, too.
    host_facts: Facts,
    triggers: Option<Triggers>,
    /// Since when no source has found the node.
    gone_since: Option<Nanos>,
    unstored: Option<Unstored>,
    /// What was wrong with the last sample.
    trouble: Option<Trouble>,
    last_trouble: Option<Trouble>,
}

/// The sample taken last.
#[derive(Debug, Clone, Copy)]
struct Taken {
    t: Nanos,
    detail: bool,
    begin: Nanos,
    end: Nanos,
}

/// What must not get lost of samples that could not be stored.
#[derive(Debug)]
struct Unstored {
    since: Nanos,
    why: Error,
    /// Without readings and rows.
    rest: Sample,
}

/// What is due next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Due {
    t: Nanos,
    detail: bool,
    last: bool,
}

/// What came of asking a source; `None` if there is no such source.
type Answer = Option<Result<Span, Trouble>>;

impl Recorder<'_, '_> {
    fn run(mut self, progress: &mut dyn FnMut(&Progress<'_>)) -> Result<Outcome, Error> {
        if self.sources.vm.is_none() && self.sources.host.is_none() {
            return Ok(self.outcome(End::SourcesGone));
        }
        let mut next = self.begin;
        loop {
            while self.clock.now() < next && !self.stop.is_requested() {
                self.clock.sleep_until(next);
            }
            let stopping = self.stop.is_requested();
            if stopping && self.has_just_looked_closely() {
                return Ok(self.outcome(End::Stopped));
            }
            let (due, missed) = if stopping { (self.now(), None) } else { self.due(next) };
            self.sample(due, missed);
            self.tell(due.t, progress);
            let now = self.clock.now();
            if let Some(unstored) = &self.unstored
                && now - unstored.since >= self.waits_for(&unstored.why)
                && let Some(unstored) = self.unstored.take()
            {
                return Err(unstored.why);
            }
            if stopping {
                return Ok(self.outcome(End::Stopped));
            }
            if due.last {
                return Ok(self.outcome(End::Elapsed));
            }
            if self.gone_since.is_some_and(|since| now - since >= self.plan.wait_for_return) {
                return Ok(self.outcome(End::SourcesGone));
            }
            next = self.after(due.t);
            if self.gone_since.is_some_and(|since| due.t - since >= LONG_GONE_NS) {
                next = next.max(due.t + CALM_NS).min(self.end.unwrap_or(Nanos::MAX));
            }
        }
    }

    /// The tick after `t`. The last one takes the place of one that would come just before it: of two samples close to
    /// each other the rates would be noise.
    fn after(&self, t: Nanos) -> Nanos {
        let every = self.plan.every;
        let next = t + every - (t - self.begin) % every;
        self.end.filter(|end| end - next < every / 2).unwrap_or(next)
    }

    /// What to do at a tick that has come, and the gap before it, if it has come so late that others have passed.
    fn due(&mut self, next: Nanos) -> (Due, Option<Gap>) {
        let every = self.plan.every;
        let passed = (self.clock.now() - next) / every;
        let t = (next + passed * every).min(self.end.unwrap_or(Nanos::MAX)).max(next);
        let missed = (t - next + every - 1) / every;
        let gap = (missed > 0).then(|| {
            self.missed += missed as u64;
            let took = self.last.map_or(0, |last| last.end - last.begin);
            let why = if took > every {
                format!("the sample before took {:.1} s", took as f64 / SECOND_NS as f64)
            } else {
                "the recorder was not given the CPU in time".to_owned()
            };
            let reason = format!("{missed} ticks were missed: {why}");
            Gap { begin: next, end: t, source: RECORDER.to_owned(), kind: TroubleKind::Recorder, reason }
        });
        let last = self.end.is_some_and(|end| t >= end);
        let closer_looks = |t: Nanos| (t - self.begin) / self.plan.detail_every;
        let is_dense = self.triggers.as_ref().is_some_and(|triggers| triggers.is_dense(t));
        let detail = last || is_dense || self.last.is_none_or(|last| closer_looks(t) > closer_looks(last.t));
        (Due { t, detail, last }, gap)
    }

    /// The last tick, because it was asked to stop.
    fn now(&self) -> Due {
        let now = self.clock.now();
        let t = self.last.map_or(now, |last| now.max(last.t + 1));
        Due { t, detail: true, last: true }
    }

    /// How long samples that cannot be stored are endured.
    fn waits_for(&self, why: &Error) -> Nanos {
        match why {
            Error::HeldByReader { .. } => Nanos::MAX,
            Error::DiskFull { .. } => self.plan.wait_for_room,
            _ => self.plan.wait_for_storage,
        }
    }

    /// True if another sample would say nothing new.
    fn has_just_looked_closely(&self) -> bool {
        self.last.is_some_and(|last| last.detail && self.clock.now() - last.t < self.plan.every / 10)
    }

    /// Takes a sample and stores it.
    fn sample(&mut self, due: Due, missed: Option<Gap>) {
        let begin = self.clock.now();
        let ask = Ask { seq: self.seq, t: due.t, detail: due.detail };
        self.seq += 1;
        self.details += u64::from(due.detail);
        let tick =
            Tick { t: due.t, incarnation: self.lives.current(), vm: None, host: None, late: begin - due.t };
        let mut out = SampleBuilder::new(&mut self.table, tick);
        out.sample.gaps.extend(self.resumed.take());
        out.sample.gaps.extend(missed);
        let ahead = self.clock.wall().saturating_sub(begin);
        if self.wall_ahead.is_none_or(|before| ahead.abs_diff(before) >= CLOCK_STEP_NS.unsigned_abs()) {
            self.wall_ahead = Some(ahead);
            self.writer.note_wall(due.t, ahead.saturating_add(due.t));
        }

        let patience = begin.saturating_add(self.plan.patience);
        // While it does not answer, only the closer looks wait for it longer than until the next tick, so that
        // the host is still read at all others.
        let vm_patience = if ask.seq == 0 {
            patience.max(begin.saturating_add(self.plan.first_patience))
        } else if self.gaps.is_open("vm") && !due.detail {
            patience.min(due.t + self.plan.every).max(begin)
        } else {
            patience
        };
        let asked = self.sources.vm.as_mut().map(|vm| vm.request(ask, self.clock));
        // What the host says is true of the VM's next life, too, but for the process id: each life has its own.
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
        let mut host_told: Answer = host.take_if(|_| !comes_with_vm).map(|host| read_host(host, &mut out));
        let mut host_life = out.sample.incarnation.take();
        let vm: Answer = self.sources.vm.as_mut().zip(asked).map(|(vm, asked)| {
            asked?;
            vm.collect(vm_patience, self.clock, &mut out)
        });
        let vm_life = out.sample.incarnation.take();
        if let Some(host) = host {
            host_told = Some(read_host(host, &mut out));
            host_life = out.sample.incarnation.take();
        }

        let mut sample = out.sample;
        self.trouble = None;
        self.note_gone(&[&vm, &host_told], &mut sample);
        sample.tick.host = self.span("host", host_told, &mut sample);
        sample.tick.vm = self.span("vm", vm, &mut sample);
        let (vm_told, host_told) = (vm_life.is_some(), host_life.is_some());
        let life = self.begin_life(vm_life, host_life, &mut sample);
        if let Some(triggers) = &mut self.triggers {
            triggers.look(&mut sample, &self.table);
        }
        self.merge_gaps(&mut sample, due.detail);
        self.store(sample);
        if let Some(life) = life {
            for (source, told) in [(&mut self.sources.vm, vm_told), (&mut self.sources.host, host_told)] {
                if let Some(source) = source
                    && !told
                {
                    source.on_new_life(&life);
                }
            }
        }
        self.last = Some(Taken { t: due.t, detail: due.detail, begin, end: self.clock.now() });
        if self.trouble.is_some() {
            self.last_trouble.clone_from(&self.trouble);
        }
    }

    /// When a source was read; its trouble becomes a gap.
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
                // A source that was never there is no news.
                if trouble.kind != TroubleKind::Unsupported {
                    self.trouble = Some(trouble);
                }
                None
            }
        }
    }

    /// Notes since when the node is gone: when no source has read anything, and at least one could not find it.
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
            let (subject, detail) = (self.lives.node().to_owned(), trouble.reason.clone());
            sample.events.push(Event { t, kind: "gone".to_owned(), subject, detail });
        }
        self.gone_since = gone.map(|_| self.gone_since.unwrap_or(t));
    }

    /// Begins a new life of the VM, if a source says that there is one.
    fn begin_life(
        &mut self,
        vm: Option<Incarnation>,
        host: Option<Incarnation>,
        sample: &mut Sample,
    ) -> Option<Incarnation> {
        let life = self.lives.meet(vm, host);
        sample.tick.incarnation = self.lives.current();
        sample.incarnation.clone_from(&life);
        if let Some(life) = life.as_ref().filter(|life| life.id > 0) {
            for (key, value) in self.host_facts.iter() {
                if sample.facts.iter().all(|(known, _)| known != key) {
                    sample.facts.push((key.to_owned(), value.to_owned()));
                }
            }
            if sample.events.iter().all(|event| event.kind != "restart") {
                let detail = life.os_pid.map(|pid| format!("now process {pid}")).unwrap_or_default();
                let (kind, subject) = ("restart".to_owned(), life.node.clone());
                sample.events.push(Event { t: sample.tick.t, kind, subject, detail });
            }
        }
        if life.is_some() || self.last.is_none() {
            let version = concat!("beamtune ", env!("CARGO_PKG_VERSION"));
            sample.facts.push((facts::RECORDED_BY.to_owned(), version.to_owned()));
        }
        life
    }

    /// Leaves only gaps that are new; of those that go on, the end is moved.
    fn merge_gaps(&mut self, sample: &mut Sample, detail: bool) {
        let at = gaps::At { sample: self.seq, detail: detail.then_some(self.details) };
        for gap in std::mem::take(&mut sample.gaps) {
            // Between two times that the recorder was late, there was a sample.
            let goes_on = if gap.source == RECORDER { None } else { self.gaps.continued(&gap, at) };
            match goes_on {
                None => sample.gaps.push(gap),
                Some(begin) => self.writer.prolong_gap(&gap.source, begin, gap.end),
            }
        }
    }

    /// Stores a sample, and with it what matters of those before that could not be.
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
                self.trouble = Some(Trouble::new(TroubleKind::Recorder, why.to_string()));
                let since = self.unstored.as_ref().map_or(t, |unstored| unstored.since);
                self.unstored = Some(Unstored { since, why, rest });
            }
        }
    }

    fn tell(&mut self, t: Nanos, progress: &mut dyn FnMut(&Progress<'_>)) {
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

    fn outcome(self, end: End) -> Outcome {
        Outcome { end, samples: self.samples, missed: self.missed, last_trouble: self.last_trouble }
    }
}
