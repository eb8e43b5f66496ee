//! Takes a recording of a running VM: attaches, reads VM and host, and leaves the node as it was.

use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use beamtune_attach::AttachError;
use beamtune_attach::explicit::{Collect, Explicit, What, Whom};
use beamtune_attach::source::NodeSource;
use beamtune_host::remote::RemoteHost;
use beamtune_host::source::{Announce, HostSource, MemoryBudget};
use beamtune_host::tree::LocalTree;
use beamtune_model::{
    Ask, Board, Clock, Incarnation, Nanos, SampleBuilder, Source, Span, Trouble, TroubleKind, WaitRow, facts,
};
use beamtune_recording::{
    Existing, Outcome, Plan, Progress, Reader, Sources, Stop, SystemClock, Writer, record,
};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::subject::{Live, NoAccess};
use crate::terminal;

/// How long leaving a node may take; whatever happens, the agent leaves when the connection is closed.
const LEAVE_PATIENCE: Duration = Duration::from_secs(2);

/// The process's files tell of its control groups, and these of their limits.
const EXPLORING_ROUNDS: usize = 5;

/// What each of these questions may take.
const EXPLORING_PATIENCE: Duration = Duration::from_secs(2);

/// The agent leaves when it has heard nothing for so many samples.
const LEASE_SAMPLES: u32 = 3;

/// From then on somebody who waits is told why.
const SLOW: Duration = Duration::from_secs(3);

/// What the last sample of a slow node may take beyond the length of the recording, with leaving it.
const LAST_SAMPLE: Duration = Duration::from_secs(5);

/// What is to be recorded, and where.
#[derive(Clone)]
pub struct Wish<'a> {
    /// Time between two samples.
    pub every: Duration,
    /// Length; `None` until Ctrl-C.
    pub length: Option<Duration>,
    /// The file; `None` keeps the recording in memory.
    pub file: Option<&'a Path>,
    /// Do not attach, look at the process alone.
    pub host_only: bool,
    /// What looking at the memory of the process may cost.
    pub looking: MemoryBudget,
    /// What is asked of the VM once, beyond what each sample holds.
    pub once: &'a [Explicit],
    /// What is looked at meanwhile by somebody else.
    pub beside: Option<&'a dyn Beside>,
    /// What attaching and recording may take together. A node of this host that lets nobody in for half of it is recorded from
    /// outside.
    pub within: Option<Duration>,
    /// For how long it has let nobody in.
    pub unanswered: Option<Duration>,
}

impl Wish<'_> {
    /// All that is recorded by itself, kept in memory.
    pub fn of(every: Duration, length: Option<Duration>) -> Self {
        Wish {
            every,
            length,
            file: None,
            host_only: false,
            looking: MemoryBudget::default(),
            once: &[],
            beside: None,
            within: None,
            unanswered: None,
        }
    }
}

/// A look at what the threads of a VM wait for.
#[derive(Debug, Clone, Default)]
pub struct Watched {
    /// How long it was; 0 where it could not be had.
    pub length: Nanos,
    /// What they were seen waiting in; their instants are those of the sample into which they come.
    pub waits: Vec<WaitRow>,
}

/// Somebody who looks at the same VM while it is recorded, and whose rows come into the recording.
pub trait Beside {
    /// What it has seen of waits for locks, once it has; asked with each sample.
    fn watched(&self) -> Option<Watched>;
}

/// A source with what somebody else has seen.
struct With<'a> {
    source: &'a mut dyn Source,
    beside: &'a dyn Beside,
}

impl Source for With<'_> {
    fn name(&self) -> &'static str {
        self.source.name()
    }

    fn request(&mut self, ask: Ask, clock: &dyn Clock) -> Result<(), Trouble> {
        self.source.request(ask, clock)
    }

    fn collect(
        &mut self,
        deadline: Nanos,
        clock: &dyn Clock,
        out: &mut SampleBuilder<'_>,
    ) -> Result<Span, Trouble> {
        let t = out.sample.tick.t;
        if let Some(Watched { length, waits }) = self.beside.watched().filter(|watched| watched.length > 0) {
            // That nothing was seen must not read as if nobody had looked.
            out.sample.facts.push((facts::LOCKS_WATCHED.to_owned(), length.to_string()));
            out.sample.waits.extend(waits.into_iter().map(|row| WaitRow { t, ..row }));
        }
        self.source.collect(deadline, clock, out)
    }

    fn comes_with_vm(&self) -> bool {
        self.source.comes_with_vm()
    }

    fn on_new_life(&mut self, life: &Incarnation) {
        self.source.on_new_life(life);
    }
}

/// Why a node is not recorded.
pub enum Failed {
    /// It may be there later: it is not running, or does not answer.
    ForNow(anyhow::Error),
    /// Trying again is of no use, or would trouble the node.
    ForGood(anyhow::Error),
    /// It accepts connections, and let nobody in for as long as [`Wish::within`] allows.
    Unanswered(Duration, anyhow::Error),
}

impl Failed {
    /// The error, whichever it is.
    pub fn into_error(self) -> anyhow::Error {
        match self {
            Failed::ForNow(error) | Failed::ForGood(error) | Failed::Unanswered(_, error) => error,
        }
    }
}

impl From<anyhow::Error> for Failed {
    fn from(error: anyhow::Error) -> Self {
        Failed::ForGood(error)
    }
}

/// Takes it. The recording is given back for reading.
pub fn take(live: Live, wish: &Wish<'_>) -> Result<(Reader, Outcome)> {
    let begin = Instant::now();
    let attached = {
        let half = wish.within.map(|within| within / 2);
        let _telling = half.map(|half| tell_if_slow(&live, half));
        attach(&live, wish)
    };
    let (vm, unanswered) = match attached {
        Err(Failed::Unanswered(after, error)) => {
            terminal::complain(&format!("{error:#}; judged from the operating system alone\n"));
            (None, Some(after))
        }
        attached => (attached.map_err(Failed::into_error)?, None),
    };
    let mut plan = Plan::default();
    let mut wish = Wish { unanswered, ..wish.clone() };
    if let (Some(within), Some(length)) = (wish.within, wish.length) {
        let left = within.saturating_sub(begin.elapsed());
        let length = length.min(left.saturating_sub(LAST_SAMPLE).max(left / 2));
        plan.first_patience = plan.first_patience.min(nanos(length));
        wish.length = Some(length);
    }
    let wish = &wish;
    let stop = Stop::default();
    let bar = terminal::Progress::new(&format!("recording {}", live.label), wish.length);
    let first_sample = Instant::now();
    let open = |_: &str| {
        // Not before: while it attaches, Ctrl-C ends it at once.
        stop_on_signals(&stop)?;
        Ok(match wish.file {
            Some(path) => Writer::create(path, Existing::Refuse)?,
            None => Writer::in_memory()?,
        })
    };
    let mut progress = |progress: &Progress<'_>| {
        let took = first_sample.elapsed();
        if wish.within.is_some() && progress.samples == 1 && took >= SLOW {
            bar.note(&format!(
                "{} answers slowly: the first sample took {:.0} s\n",
                live.label,
                took.as_secs_f64()
            ));
        }
        bar.set(duration(progress.elapsed), progress.left.map(duration), progress.samples, progress.trouble);
    };
    let taken = take_attached(&live, vm, wish, plan, &stop, open, &mut progress);
    bar.clear();
    taken.map_err(Failed::into_error)
}

/// Tells on standard error why somebody waits, unless what is returned is dropped soon.
fn tell_if_slow(live: &Live, patience: Duration) -> Sender<()> {
    let (sender, dropped) = mpsc::channel();
    let then = match live.vm {
        Some(_) => "it is judged from the operating system alone",
        None => "beamtune gives up",
    };
    let text = format!(
        "waiting for {}, which answers slowly; after {:.0} s {then}\n",
        live.label,
        patience.as_secs_f64()
    );
    // Without a thread nothing is told, and nothing else is lost.
    let _ = std::thread::Builder::new().spawn(move || {
        if dropped.recv_timeout(SLOW) == Err(RecvTimeoutError::Timeout) {
            terminal::complain(&text);
        }
    });
    sender
}

/// Takes it into what `open` opens once the node's name is known.
pub fn take_into(
    live: &Live,
    wish: &Wish<'_>,
    plan: Plan,
    stop: &Stop,
    open: impl FnOnce(&str) -> Result<Writer>,
    progress: &mut dyn FnMut(&Progress<'_>),
) -> Result<(Reader, Outcome), Failed> {
    take_attached(live, attach(live, wish)?, wish, plan, stop, open, progress)
}

/// The same with a node that is attached to already; `None`: it is not to be.
pub fn take_attached(
    live: &Live,
    mut vm: Option<NodeSource>,
    wish: &Wish<'_>,
    plan: Plan,
    stop: &Stop,
    open: impl FnOnce(&str) -> Result<Writer>,
    progress: &mut dyn FnMut(&Progress<'_>),
) -> Result<(Reader, Outcome), Failed> {
    if let Some(vm) = &mut vm {
        ask_once(vm, wish.once)?;
    }
    let (mut here, mut there) = (None, None);
    match (&live.vm, &mut vm) {
        (Some(process), vm) => {
            let announce = if vm.is_some() { Announce::Elsewhere } else { Announce::Here };
            let source = HostSource::new(LocalTree::default(), process.identity.pid, announce);
            // The process may have ended since it was found.
            let mut source = source.map_err(|error| Failed::ForNow(error.into()))?;
            source.set_memory_budget(wish.looking);
            here = Some(source);
        }
        (None, Some(vm)) => there = Some(host_of(vm)),
        (None, None) => {}
    }
    let node = vm.as_ref().map_or(live.label.as_str(), |vm| vm.node()).to_owned();
    let (mut no_vm, mut no_host) = (Absent::vm(live, wish), Absent::host());
    let first: &mut dyn Source = match &mut vm {
        Some(source) => source,
        None => &mut no_vm,
    };
    let second: &mut dyn Source = match (&mut here, &mut there) {
        (Some(source), _) => source,
        (_, Some(source)) => source,
        _ => &mut no_host,
    };
    let mut with = None;
    let second: &mut dyn Source = match wish.beside {
        Some(beside) => with.insert(With { source: second, beside }),
        None => second,
    };
    let plan = Plan { every: nanos(wish.every), length: wish.length.map(nanos), ..plan };
    let sources = Sources { vm: Some(first), host: Some(second) };
    let recorded = open(&node).and_then(|mut writer| {
        let clock = SystemClock::from(writer.begins_at(SystemClock::wall_now()), stop.clone());
        let outcome = record(&plan, sources, &clock, stop, &mut writer, progress)?;
        Ok((writer, outcome))
    });
    if let Some(source) = vm
        && let Err(error) = source.leave(LEAVE_PATIENCE)
    {
        terminal::complain(&format!("leaving the node: {error}; its agent leaves by itself\n"));
    }
    let finished = recorded.and_then(|(writer, outcome)| Ok((writer.finish()?, outcome)));
    finished.map_err(Failed::ForGood)
}

/// Asks for what the user wants once. What that costs the node is said first.
fn ask_once(vm: &mut NodeSource, items: &[Explicit]) -> Result<()> {
    for item in items {
        let cost = match &item.what {
            What::Carriers(walk) => {
                let cost = vm.estimate_walk(walk, item.limit)?;
                format!(
                    "walking through {} carriers with {} blocks, which takes about {:.0} ms and holds a scheduler for at most {:.1} ms at a time\n",
                    cost.carriers,
                    cost.blocks,
                    cost.takes.as_secs_f64() * 1e3,
                    cost.holds.as_secs_f64() * 1e3
                )
            }
            What::Holders { top, .. } => format!(
                "asking at most {top} processes which binaries they refer to, which takes each of them up to 0.3 s for a million references\n"
            ),
            What::Collect(collect) => collecting(collect, item.limit),
            _ => continue,
        };
        terminal::complain(&cost);
    }
    vm.ask_once(items.to_vec());
    Ok(())
}

/// What collecting costs at most, as far as that is known before.
fn collecting(collect: &Collect, limit: Duration) -> String {
    match &collect.whom {
        Whom::Named(_) => {
            "collecting the garbage of one process, which does not run meanwhile: about 1 ms for each MB that is alive\n".to_owned()
        }
        Whom::Sample { most, .. } => {
            let pauses = collect.pause * most.div_ceil(collect.batch.max(1));
            format!(
                "collecting the garbage of at most {most} processes, {} at a time: none of them runs meanwhile, about 1 ms for each MB that is \
                 alive. With pauses of {} ms between that takes {:.0} s or more, and ends after {} s, or when a process has to wait for {} ms\n",
                collect.batch,
                collect.pause.as_millis(),
                pauses.as_secs_f64(),
                limit.as_secs(),
                collect.latency_limit.as_millis()
            )
        }
    }
}

/// The host of a node on another one, read through its agent. Which files there are stands in others, so a few
/// questions come before the first sample; what is not known after them is found out by the first samples.
fn host_of(vm: &mut NodeSource) -> RemoteHost {
    let board = Board::default();
    let mut host = RemoteHost::new(board.clone());
    vm.read_files(board);
    for _ in 0..EXPLORING_ROUNDS {
        // A node that does not answer now is asked again by the recorder.
        if vm.fetch_files(EXPLORING_PATIENCE).is_err() || !host.explore() {
            break;
        }
    }
    host
}

/// Attaches, if there is a way and it is wanted.
fn attach(live: &Live, wish: &Wish<'_>) -> Result<Option<NodeSource>, Failed> {
    if wish.host_only {
        if live.vm.is_none() {
            let label = &live.label;
            return Err(anyhow!(
                "{label} runs on another host: without attaching there is nothing to look at"
            )
            .into());
        }
        return Ok(None);
    }
    match &live.access {
        Ok(access) => {
            let mut access = access.clone();
            access.terms.lease = access.terms.lease.max(wish.every * LEASE_SAMPLES);
            if let Some(within) = wish.within {
                access.settings.attach_timeout = access.settings.attach_timeout.min(within / 2);
                access.settings.setup_timeout = access.settings.setup_timeout.min(within / 2);
            }
            let patience = access.settings.attach_timeout;
            let begin = Instant::now();
            let hint = match (&live.vm, wish.within) {
                (Some(_), _) => "; --host-only looks at the process without attaching",
                (None, Some(_)) => "; with a longer --for it is waited for longer",
                (None, None) => "",
            };
            NodeSource::attach(access).map(Some).map_err(|error| {
                let told = anyhow!("{error}{hint}");
                let is_local = live.vm.is_some() && wish.within.is_some();
                let is_over = begin.elapsed() + SLOW / 10 >= patience;
                match error {
                    // That it closed on us, or that others are being let in, is the last of what was met until the time was over.
                    AttachError::TimedOut { .. }
                    | AttachError::ClosedEarly { .. }
                    | AttachError::NamesTaken { .. }
                        if is_local && is_over =>
                    {
                        Failed::Unanswered(begin.elapsed(), anyhow!("{error}"))
                    }
                    // Each attempt would leave a line in the node's log.
                    AttachError::WrongCookie { .. } | AttachError::NotAllowed { .. } => Failed::ForGood(told),
                    _ => Failed::ForNow(told),
                }
            })
        }
        Err(NoAccess::NoDistribution) => {
            terminal::complain(&format!(
                "{} is no node ({}): judged from the operating system alone\n",
                live.label,
                NoAccess::NoDistribution.reason()
            ));
            Ok(None)
        }
        Err(NoAccess::Closed(error)) => Err(Failed::ForNow(anyhow!(
            "cannot attach to {}: {error:#}; --host-only looks at the process without attaching",
            live.label
        ))),
    }
}

/// A source that is not there: its reason stands in the recording as a gap, and in "not judged".
struct Absent {
    name: &'static str,
    reason: String,
    /// For how long it has let nobody in.
    unanswered: Option<Duration>,
}

impl Absent {
    fn vm(live: &Live, wish: &Wish<'_>) -> Absent {
        let reason = match &live.access {
            Err(no) => no.reason(),
            Ok(_) if wish.host_only => "it was not attached to (--host-only)".to_owned(),
            Ok(_) => wish.unanswered.map_or(String::new(), |after| {
                format!("it did not answer within {:.0} s", after.as_secs_f64())
            }),
        };
        Absent { name: "vm", reason, unanswered: wish.unanswered }
    }

    fn host() -> Absent {
        Absent { name: "host", reason: "the node does not run on this host".to_owned(), unanswered: None }
    }
}

impl Source for Absent {
    fn name(&self) -> &'static str {
        self.name
    }

    fn request(&mut self, _ask: Ask, _clock: &dyn Clock) -> Result<(), Trouble> {
        match self.unanswered {
            Some(_) => Ok(()),
            None => Err(Trouble::new(TroubleKind::Unsupported, self.reason.as_str())),
        }
    }

    fn collect(
        &mut self,
        _deadline: Nanos,
        _clock: &dyn Clock,
        out: &mut SampleBuilder<'_>,
    ) -> Result<Span, Trouble> {
        if let Some(after) = self.unanswered {
            out.sample.facts.push((facts::UNANSWERED.to_owned(), nanos(after).to_string()));
        }
        Err(Trouble::new(TroubleKind::TimedOut, self.reason.as_str()))
    }
}

/// Ctrl-C and `kill` end a recording in order; the second one ends us at once.
pub fn stop_on_signals(stop: &Stop) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot catch Ctrl-C")?;
    let request = stop.clone();
    let listen = move || {
        for signal in signals.forever() {
            if request.is_requested() {
                // The agent notices that we are gone.
                std::process::exit(128 + signal);
            }
            request.request();
        }
    };
    std::thread::Builder::new()
        .spawn(listen)
        .context("cannot catch Ctrl-C, since no thread can be started")?;
    Ok(())
}

/// Ctrl-C and `kill` end us at once, after a word: for what cannot be broken off halfway with a result, and is put right in the node when
/// the connection closes.
pub fn end_on_signals(word: String) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot catch Ctrl-C")?;
    let listen = move || {
        if let Some(signal) = signals.forever().next() {
            terminal::complain(&word);
            std::process::exit(128 + signal);
        }
    };
    std::thread::Builder::new()
        .spawn(listen)
        .context("cannot catch Ctrl-C, since no thread can be started")?;
    Ok(())
}

/// As the recorder counts.
pub fn nanos(duration: Duration) -> Nanos {
    Nanos::try_from(duration.as_nanos()).unwrap_or(Nanos::MAX)
}

/// The other way round; what is negative is nothing.
pub fn duration(nanos: Nanos) -> Duration {
    Duration::from_nanos(nanos.max(0).unsigned_abs())
}
