//! Records a running VM: attaches to it, samples VM and host, and detaches.

use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use beamtune_attach::AttachError;
use beamtune_attach::explicit::{Collect, ExplicitItem, ExplicitKind, ProcessSelection};
use beamtune_attach::source::NodeSource;
use beamtune_host::remote::RemoteHost;
use beamtune_host::source::{AnnouncedBy, HostSource, MemoryBudget};
use beamtune_host::tree::LocalTree;
use beamtune_model::units::nanos;
use beamtune_model::{
    Clock, FileExchange, Incarnation, LockWaitRow, Nanos, Sample, SampleBuilder, SampleRequest, Source,
    SourceTrouble, Span, TroubleKind, facts,
};
use beamtune_recording::{
    Existing, Outcome, Plan, Progress, Reader, Sources, Stop, SystemClock, Writer, record,
};

use crate::Printer;
use crate::access::AccessError;
use crate::profiling::{ProfileTask, ProfileWhen};
use crate::target::LiveTarget;

/// Time limit for detaching. If it is exceeded, the agent still removes itself when the connection closes.
const DETACH_TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum rounds of file requests before the first sample. The process's files name its control groups, whose files contain the limits.
const MAX_EXPLORING_ROUNDS: usize = 5;

/// Time limit for one such round.
const EXPLORING_TIMEOUT: Duration = Duration::from_secs(2);

/// The agent removes itself after this many sampling intervals without a request.
const LEASE_SAMPLES: u32 = 3;

/// A wait longer than this is explained to the user.
pub const SLOW: Duration = Duration::from_secs(3);

/// Time reserved after the recording, for the last sample of a slow node and for detaching.
const LAST_SAMPLE: Duration = Duration::from_secs(5);

/// Options of a recording: what to record, and where to store it.
#[derive(Clone)]
pub struct RecordOptions<'a> {
    /// Time between two samples.
    pub interval: Duration,
    /// Length of the recording; `None`: until Ctrl-C.
    pub length: Option<Duration>,
    /// Path of the recording; `None`: keep it in memory.
    pub file: Option<&'a Path>,
    /// Do not attach; read only /proc.
    pub host_only: bool,
    /// Time budget for reading the memory map of the process.
    pub memory_budget: MemoryBudget,
    /// Explicit items that are requested from the VM once, in addition to the samples.
    pub once: &'a [ExplicitItem],
    /// Samples lock waits of the VM during the recording.
    pub observer: Option<&'a dyn SampleObserver>,
    /// Takes CPU profiles of a VM on this host during the recording.
    pub profile: Option<ProfileWhen>,
    /// Time limit for attaching and recording together. If attaching to a node on this host takes more than half of it, the node
    /// is recorded through /proc only.
    pub within: Option<Duration>,
    /// How long attaching was tried without success.
    pub unanswered: Option<Duration>,
}

impl RecordOptions<'_> {
    /// Options for a recording in memory, without explicit items.
    pub fn of(interval: Duration, length: Option<Duration>) -> Self {
        RecordOptions {
            interval,
            length,
            file: None,
            host_only: false,
            memory_budget: MemoryBudget::default(),
            once: &[],
            observer: None,
            profile: None,
            within: None,
            unanswered: None,
        }
    }

    /// Creates the recording: the file, or a recording in memory.
    ///
    /// # Errors
    /// If the file exists, or cannot be created.
    pub fn writer(&self) -> Result<Writer> {
        Ok(match self.file {
            Some(path) => Writer::create(path, Existing::Refuse)?,
            None => Writer::in_memory()?,
        })
    }
}

/// Lock waits that were sampled in a stock VM.
#[derive(Debug, Clone, Default)]
pub struct LockWaits {
    /// How long the VM was sampled; 0 if sampling was impossible.
    pub length: Nanos,
    /// The waits. Each gets the timestamp of the sample that it is stored in.
    pub waits: Vec<LockWaitRow>,
}

/// Observes the VM while it is recorded; what it finds becomes part of the recording.
pub trait SampleObserver {
    /// Adds to a sample what is complete; called with each sample.
    fn observe(&self, sample: &mut Sample);
}

impl LockWaits {
    /// Adds the waits to a sample.
    pub fn add_to(self, sample: &mut Sample) {
        if self.length <= 0 {
            return;
        }
        // Without this fact, "no waits" could not be distinguished from "not sampled".
        sample.facts.push((facts::LOCK_SAMPLING_LENGTH.to_owned(), self.length.to_string()));
        let t = sample.tick.t;
        sample.lock_waits.extend(self.waits.into_iter().map(|row| LockWaitRow { t, ..row }));
    }
}

/// Wraps a source, and lets observers add to its samples.
struct Observed<'a> {
    source: &'a mut dyn Source,
    observers: Vec<&'a dyn SampleObserver>,
}

impl Source for Observed<'_> {
    fn name(&self) -> &'static str {
        self.source.name()
    }

    fn request(&mut self, ask: SampleRequest, clock: &dyn Clock) -> Result<(), SourceTrouble> {
        self.source.request(ask, clock)
    }

    fn collect(
        &mut self,
        deadline: Nanos,
        clock: &dyn Clock,
        out: &mut SampleBuilder<'_>,
    ) -> Result<Span, SourceTrouble> {
        self.observers.iter().for_each(|observer| observer.observe(&mut out.sample));
        self.source.collect(deadline, clock, out)
    }

    fn comes_with_vm(&self) -> bool {
        self.source.comes_with_vm()
    }

    fn on_restart(&mut self, life: &Incarnation) {
        self.source.on_restart(life);
    }
}

/// Why a node could not be recorded.
pub enum RecordError {
    /// A later attempt may succeed: the node is down, or does not answer.
    Temporary(anyhow::Error),
    /// Another attempt would also fail, or would disturb the node.
    Permanent(anyhow::Error),
    /// The node accepts connections, but completed no handshake in this time: half of [`RecordOptions::within`].
    Unanswered(Duration, anyhow::Error),
}

impl RecordError {
    /// Returns the error of any variant.
    pub fn into_error(self) -> anyhow::Error {
        match self {
            RecordError::Temporary(error)
            | RecordError::Permanent(error)
            | RecordError::Unanswered(_, error) => error,
        }
    }
}

impl From<anyhow::Error> for RecordError {
    fn from(error: anyhow::Error) -> Self {
        RecordError::Permanent(error)
    }
}

/// A target that is ready to be recorded.
pub struct Attached<'a> {
    /// The session; `None`: record without attaching.
    pub vm: Option<NodeSource>,
    /// The options, with the length of the recording that attaching has left of the time limit.
    pub options: RecordOptions<'a>,
    /// The plan of the recording.
    pub plan: Plan,
}

/// Attaches to a node, in at most half of [`RecordOptions::within`]. A node on this host that does not answer in that time is recorded
/// through /proc only.
pub fn attach_within<'a>(
    live: &LiveTarget,
    options: &RecordOptions<'a>,
) -> Result<Attached<'a>, RecordError> {
    let begin = Instant::now();
    let attached = {
        let half = options.within.map(|within| within / 2);
        let _announcement = half.map(|half| announce_if_slow(live, half));
        attach(live, options)
    };
    let (vm, unanswered) = match attached {
        Err(RecordError::Unanswered(after, error)) => {
            (live.print)(&format!("{error:#}; recording through /proc only\n"));
            (None, Some(after))
        }
        attached => (attached?, None),
    };
    let mut plan = Plan::default();
    let mut options = RecordOptions { unanswered, ..options.clone() };
    if let (Some(within), Some(length)) = (options.within, options.length) {
        let left = within.saturating_sub(begin.elapsed());
        let length = length.min(left.saturating_sub(LAST_SAMPLE).max(left / 2));
        plan.first_patience = plan.first_patience.min(nanos(length));
        options.length = Some(length);
    }
    Ok(Attached { vm, options, plan })
}

/// Prints an explanation of the wait, unless the returned sender is dropped within [`SLOW`].
fn announce_if_slow(live: &LiveTarget, timeout: Duration) -> Sender<()> {
    let (sender, dropped) = mpsc::channel();
    let then = match live.vm {
        Some(_) => "then it is recorded through /proc only",
        None => "then beamtune gives up",
    };
    let print = live.print;
    let text = format!("waiting up to {:.0} s for {}; {then}\n", timeout.as_secs_f64(), live.label);
    // If no thread can be started, only the explanation is lost.
    let _ = std::thread::Builder::new().spawn(move || {
        if dropped.recv_timeout(SLOW) == Err(RecvTimeoutError::Timeout) {
            print(&text);
        }
    });
    sender
}

/// Records a node into the writer that `open` returns; `open` gets the node's name.
pub fn record_node_into(
    live: &LiveTarget,
    options: &RecordOptions<'_>,
    plan: Plan,
    stop: &Stop,
    open: impl FnOnce(&str) -> Result<Writer>,
    progress: &mut dyn FnMut(&Progress<'_>),
) -> Result<(Reader, Outcome), RecordError> {
    record_attached(live, attach(live, options)?, options, plan, stop, open, progress)
}

/// Like [`record_node_into`], with the session in `vm`; `None`: record without attaching.
pub fn record_attached(
    live: &LiveTarget,
    mut vm: Option<NodeSource>,
    options: &RecordOptions<'_>,
    plan: Plan,
    stop: &Stop,
    open: impl FnOnce(&str) -> Result<Writer>,
    progress: &mut dyn FnMut(&Progress<'_>),
) -> Result<(Reader, Outcome), RecordError> {
    if let Some(vm) = &mut vm {
        ask_once(vm, options.once, live.print)?;
    }
    let (mut here, mut there) = (None, None);
    match (&live.vm, &mut vm) {
        (Some(process), vm) => {
            let announce = if vm.is_some() { AnnouncedBy::OtherSource } else { AnnouncedBy::HostSource };
            let source = HostSource::new(LocalTree::default(), process.identity.pid, announce);
            // The process may have ended after discovery.
            let mut source = source.map_err(|error| RecordError::Temporary(error.into()))?;
            source.set_memory_budget(options.memory_budget);
            here = Some(source);
        }
        (None, Some(vm)) => there = Some(host_of(vm)),
        (None, None) => {}
    }
    let node = vm.as_ref().map_or(live.label.as_str(), |vm| vm.node()).to_owned();
    let (mut no_vm, mut no_host) = (AbsentSource::vm(live, options), AbsentSource::host());
    let first: &mut dyn Source = match &mut vm {
        Some(source) => source,
        None => &mut no_vm,
    };
    let second: &mut dyn Source = match (&mut here, &mut there) {
        (Some(source), _) => source,
        (_, Some(source)) => source,
        _ => &mut no_host,
    };
    let process = live.vm.as_ref().map(|process| process.identity.pid);
    let profile = process.zip(options.profile).map(|(pid, when)| ProfileTask::new(pid, when));
    let profile_observer = profile.as_ref().map(|task| task as &dyn SampleObserver);
    let observers = options.observer.into_iter().chain(profile_observer).collect();
    let mut second = Observed { source: second, observers };
    let plan = Plan { every: nanos(options.interval), length: options.length.map(nanos), ..plan };
    let sources = Sources { vm: Some(first), host: Some(&mut second) };
    let recorded = open(&node).and_then(|mut writer| {
        let clock = SystemClock::from(writer.first_instant(SystemClock::wall_now()), stop.clone());
        let outcome = record(&plan, sources, &clock, stop, &mut writer, progress)?;
        Ok((writer, outcome))
    });
    if let Some(source) = vm
        && let Err(error) = source.leave(DETACH_TIMEOUT)
    {
        (live.print)(&format!("cannot detach cleanly: {error}; the agent removes itself\n"));
    }
    let finished = recorded.and_then(|(writer, outcome)| Ok((writer.finish()?, outcome)));
    finished.map_err(RecordError::Permanent)
}

/// Prints the estimated cost of each explicit item, then requests them all.
fn ask_once(vm: &mut NodeSource, items: &[ExplicitItem], print: Printer) -> Result<()> {
    for item in items {
        let cost = match &item.kind {
            ExplicitKind::Carriers(walk) => {
                let cost = vm.estimate_walk(walk, item.limit)?;
                format!(
                    "carrier walk: {} carriers with {} blocks, about {:.0} ms; blocks a scheduler for at most {:.1} ms at a time\n",
                    cost.carriers,
                    cost.blocks,
                    cost.duration.as_secs_f64() * 1e3,
                    cost.max_hold.as_secs_f64() * 1e3
                )
            }
            ExplicitKind::Holders { top, .. } => format!(
                "listing the binaries of up to {top} processes: occupies each for up to 0.3 s per million references\n"
            ),
            ExplicitKind::Collect(collect) => collect_cost(collect, item.limit),
            _ => continue,
        };
        print(&cost);
    }
    vm.request_once(items.to_vec());
    Ok(())
}

/// Describes the estimated cost of garbage collections.
fn collect_cost(collect: &Collect, limit: Duration) -> String {
    match &collect.processes {
        ProcessSelection::Named(_) => {
            "garbage collection of one process: suspends it for about 1 ms per MB of live data\n".to_owned()
        }
        ProcessSelection::Sample { max_processes: most, .. } => {
            let pauses = collect.pause * most.div_ceil(collect.batch.max(1));
            format!(
                "garbage collection of up to {most} processes in batches of {}, each suspended for about 1 ms per MB of live data; \
                 pauses of {} ms make it {:.0} s or more; stops after {} s, or if a process waits for more than {} ms\n",
                collect.batch,
                collect.pause.as_millis(),
                pauses.as_secs_f64(),
                limit.as_secs(),
                collect.latency_limit.as_millis()
            )
        }
    }
}

/// Returns the host of a remote node, which is read through the agent. Some files name others, so a few rounds of requests precede
/// the first sample; the first samples request the rest.
fn host_of(vm: &mut NodeSource) -> RemoteHost {
    let board = FileExchange::default();
    let mut host = RemoteHost::new(board.clone());
    vm.read_files(board);
    for _ in 0..MAX_EXPLORING_ROUNDS {
        // If the node does not answer now, the recorder repeats the request.
        if vm.fetch_files(EXPLORING_TIMEOUT).is_err() || !host.explore() {
            break;
        }
    }
    host
}

/// Attaches to the node, unless the options exclude it or the target has no distribution.
fn attach(live: &LiveTarget, options: &RecordOptions<'_>) -> Result<Option<NodeSource>, RecordError> {
    if options.host_only {
        if live.vm.is_none() {
            let label = &live.label;
            return Err(anyhow!(
                "{label} runs on another host, so its process cannot be read: omit --host-only"
            )
            .into());
        }
        return Ok(None);
    }
    match &live.access {
        Ok(access) => {
            let mut access = access.clone();
            access.session_options.lease = access.session_options.lease.max(options.interval * LEASE_SAMPLES);
            if let Some(within) = options.within {
                access.settings.attach_timeout = access.settings.attach_timeout.min(within / 2);
                access.settings.setup_timeout = access.settings.setup_timeout.min(within / 2);
            }
            let timeout = access.settings.attach_timeout;
            let begin = Instant::now();
            let hint = match (&live.vm, options.within) {
                (Some(_), _) => "; --host-only records it through /proc, without attaching",
                (None, Some(_)) => "; a longer --for also allows more time for attaching",
                (None, None) => "",
            };
            NodeSource::attach(access).map(Some).map_err(|error| {
                let with_hint = anyhow!("{error}{hint}");
                let is_local = live.vm.is_some() && options.within.is_some();
                let is_over = begin.elapsed() + SLOW / 10 >= timeout;
                match error {
                    // This is the last error before the timeout. A slow node may also close the connection, or have no free name.
                    AttachError::TimedOut { .. }
                    | AttachError::ClosedDuringHandshake { .. }
                    | AttachError::NamesTaken { .. }
                        if is_local && is_over =>
                    {
                        RecordError::Unanswered(begin.elapsed(), anyhow!("{error}"))
                    }
                    // Each further attempt would write a line to the node's log.
                    AttachError::WrongCookie { .. } | AttachError::NotAllowed { .. } => {
                        RecordError::Permanent(with_hint)
                    }
                    _ => RecordError::Temporary(with_hint),
                }
            })
        }
        Err(AccessError::NoDistribution) => {
            (live.print)(&format!(
                "{} is not a node ({}); recording through /proc only\n",
                live.label,
                AccessError::NoDistribution.reason()
            ));
            Ok(None)
        }
        Err(AccessError::CannotAttach(error)) => Err(RecordError::Temporary(anyhow!(
            "cannot attach to {}: {error:#}; --host-only records it through /proc, without attaching",
            live.label
        ))),
    }
}

/// Takes the place of a source that is not available. The reason is recorded as a gap, so that rules report "not judged".
struct AbsentSource {
    name: &'static str,
    reason: String,
    /// How long attaching was tried without success.
    unanswered: Option<Duration>,
}

impl AbsentSource {
    fn vm(live: &LiveTarget, options: &RecordOptions<'_>) -> AbsentSource {
        let reason = match &live.access {
            Err(no) => no.reason(),
            Ok(_) if options.host_only => "not attached (--host-only)".to_owned(),
            Ok(_) => options.unanswered.map_or(String::new(), |after| {
                format!("it did not answer within {:.0} s", after.as_secs_f64())
            }),
        };
        AbsentSource { name: "vm", reason, unanswered: options.unanswered }
    }

    fn host() -> AbsentSource {
        AbsentSource {
            name: "host",
            reason: "the node does not run on this host".to_owned(),
            unanswered: None,
        }
    }
}

impl Source for AbsentSource {
    fn name(&self) -> &'static str {
        self.name
    }

    fn request(&mut self, _ask: SampleRequest, _clock: &dyn Clock) -> Result<(), SourceTrouble> {
        match self.unanswered {
            Some(_) => Ok(()),
            None => Err(SourceTrouble::new(TroubleKind::Unsupported, self.reason.as_str())),
        }
    }

    fn collect(
        &mut self,
        _deadline: Nanos,
        _clock: &dyn Clock,
        out: &mut SampleBuilder<'_>,
    ) -> Result<Span, SourceTrouble> {
        if let Some(after) = self.unanswered {
            out.sample.facts.push((facts::UNANSWERED_LENGTH.to_owned(), nanos(after).to_string()));
        }
        Err(SourceTrouble::new(TroubleKind::TimedOut, self.reason.as_str()))
    }
}
