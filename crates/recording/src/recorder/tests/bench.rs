//! A recording session with a virtual clock and scripted sources.

use std::cell::{Cell, RefCell};

use super::*;

/// A clock that moves only by [`VirtualClock::pass`], and during sleeps.
#[derive(Default)]
pub(super) struct VirtualClock {
    now: Cell<Nanos>,
    /// When a user presses Ctrl-C.
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

/// What a source does in `collect`: it may let time pass, add to the sample, or fail.
pub(super) type Script<'a> =
    Box<dyn FnMut(SampleRequest, &mut SampleBuilder<'_>) -> Result<(), SourceTrouble> + 'a>;

pub(super) struct Scripted<'a> {
    pub(super) name: &'static str,
    pub(super) clock: &'a VirtualClock,
    pub(super) script: Script<'a>,
    pub(super) ask: Option<SampleRequest>,
    /// Requests as (second, detail).
    pub(super) requests: &'a RefCell<Vec<(i64, bool)>>,
    /// Time until the deadline of each `collect`, in milliseconds.
    pub(super) timeouts: Vec<Nanos>,
    pub(super) announced: Vec<u32>,
    pub(super) comes_with_vm: bool,
}

impl Source for Scripted<'_> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn request(&mut self, ask: SampleRequest, _clock: &dyn Clock) -> Result<(), SourceTrouble> {
        self.requests.borrow_mut().push((ask.t / SECOND_NS, ask.detail));
        self.ask = Some(ask);
        Ok(())
    }

    fn collect(
        &mut self,
        deadline: Nanos,
        clock: &dyn Clock,
        out: &mut SampleBuilder<'_>,
    ) -> Result<Span, SourceTrouble> {
        let begin = clock.now();
        self.timeouts.push((deadline - begin) / MS);
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

    fn on_restart(&mut self, incarnation: &Incarnation) {
        self.announced.push(incarnation.id);
    }
}

/// A recording session with a virtual clock.
pub(super) struct Bench {
    pub(super) clock: VirtualClock,
    pub(super) plan: Plan,
    pub(super) stop: Stop,
    pub(super) requests: RefCell<Vec<(i64, bool)>>,
}

impl Bench {
    pub(super) fn new(seconds: i64) -> Self {
        let plan = Plan { length: Some(seconds * SECOND_NS), ..Plan::default() };
        Bench { clock: VirtualClock::default(), plan, stop: Stop::default(), requests: RefCell::default() }
    }

    /// Creates a session that ends by Ctrl-C at an instant, rather than as planned.
    pub(super) fn interrupted(at: Nanos) -> Self {
        let mut bench = Bench::new(0);
        bench.plan.length = None;
        bench.clock.interrupt = Some((at, bench.stop.clone()));
        bench
    }

    pub(super) fn source<'a>(
        &'a self,
        name: &'static str,
        script: impl FnMut(SampleRequest, &mut SampleBuilder<'_>) -> Result<(), SourceTrouble> + 'a,
    ) -> Scripted<'a> {
        Scripted {
            name,
            clock: &self.clock,
            script: Box::new(script),
            ask: None,
            requests: &self.requests,
            timeouts: Vec::new(),
            announced: Vec::new(),
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
