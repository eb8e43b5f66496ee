//! A recording session on a clock that only moves when somebody sleeps or a source takes its time.

use std::cell::{Cell, RefCell};

use super::*;

/// Time that passes only when told so.
#[derive(Default)]
pub(super) struct VirtualClock {
    now: Cell<Nanos>,
    /// When a person presses Ctrl-C.
    interrupt: Option<(Nanos, Stop)>,
}

impl VirtualClock {
    pub(super) fn pass(&self, length: Nanos) {
        self.set(self.now.get() + length);
    }

    fn set(&self, now: Nanos) {
        self.now.set(now);
        if let Some((at, stop)) = &self.interrupt
            && now >= *at
        {
            stop.request();
        }
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Nanos {
        self.now.get()
    }

    fn wall(&self) -> i64 {
        1_700_000_000 * SECOND_NS + self.now.get()
    }

    fn sleep_until(&self, until: Nanos) {
        let wake = match &self.interrupt {
            Some((at, _)) => until.min((*at).max(self.now.get())),
            None => until,
        };
        self.set(wake.max(self.now.get()));
    }
}

/// What a source does when it is collected: passes time, adds to the sample, fails.
pub(super) type Script<'a> = Box<dyn FnMut(Ask, &mut SampleBuilder<'_>) -> Result<(), Trouble> + 'a>;

pub(super) struct Scripted<'a> {
    pub(super) name: &'static str,
    pub(super) clock: &'a VirtualClock,
    pub(super) script: Script<'a>,
    pub(super) ask: Option<Ask>,
    /// Each request, as (second, detail).
    pub(super) asked: &'a RefCell<Vec<(i64, bool)>>,
    /// How long it was ready to wait, in milliseconds.
    pub(super) waits: Vec<Nanos>,
    pub(super) told_lives: Vec<u32>,
    pub(super) comes_with_vm: bool,
}

impl Source for Scripted<'_> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn request(&mut self, ask: Ask, _clock: &dyn Clock) -> Result<(), Trouble> {
        self.asked.borrow_mut().push((ask.t / SECOND_NS, ask.detail));
        self.ask = Some(ask);
        Ok(())
    }

    fn collect(
        &mut self,
        deadline: Nanos,
        clock: &dyn Clock,
        out: &mut SampleBuilder<'_>,
    ) -> Result<Span, Trouble> {
        let begin = clock.now();
        self.waits.push((deadline - begin) / MS);
        let ask = self.ask.take().expect("requested before it is collected");
        match (self.script)(ask, out) {
            Err(trouble) if trouble.kind == TroubleKind::TimedOut => {
                self.clock.set(deadline.max(begin));
                Err(trouble)
            }
            Err(trouble) => Err(trouble),
            Ok(()) => Ok(Span { begin, end: clock.now() }),
        }
    }

    fn comes_with_vm(&self) -> bool {
        self.comes_with_vm
    }

    fn on_new_life(&mut self, life: &Incarnation) {
        self.told_lives.push(life.id);
    }
}

/// A recording session on virtual time.
pub(super) struct Bench {
    pub(super) clock: VirtualClock,
    pub(super) plan: Plan,
    pub(super) stop: Stop,
    pub(super) asked: RefCell<Vec<(i64, bool)>>,
}

impl Bench {
    pub(super) fn new(seconds: i64) -> Self {
        let plan = Plan { length: Some(seconds * SECOND_NS), ..Plan::default() };
        Bench { clock: VirtualClock::default(), plan, stop: Stop::default(), asked: RefCell::default() }
    }

    /// Without a planned end, but one by Ctrl-C.
    pub(super) fn interrupted(at: Nanos) -> Self {
        let mut bench = Bench::new(0);
        bench.plan.length = None;
        bench.clock.interrupt = Some((at, bench.stop.clone()));
        bench
    }

    pub(super) fn source<'a>(
        &'a self,
        name: &'static str,
        script: impl FnMut(Ask, &mut SampleBuilder<'_>) -> Result<(), Trouble> + 'a,
    ) -> Scripted<'a> {
        Scripted {
            name,
            clock: &self.clock,
            script: Box::new(script),
            ask: None,
            asked: &self.asked,
            waits: Vec::new(),
            told_lives: Vec::new(),
            comes_with_vm: false,
        }
    }

    pub(super) fn record(&self, sources: Sources<'_>) -> (Outcome, Vec<Sample>, Reader) {
        let mut writer = Writer::in_memory().expect("memory");
        let outcome =
            record(&self.plan, sources, &self.clock, &self.stop, &mut writer, |_| ()).expect("recorded");
        let reader = writer.finish().expect("finished");
        let samples = reader.samples().collect::<Result<Vec<_>, _>>().expect("readable");
        (outcome, samples, reader)
    }
}
