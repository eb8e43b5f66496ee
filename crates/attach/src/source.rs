//! A node as a source of samples, across lost connections and restarts.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use beamtune_model::units::Nanos;
use beamtune_model::{
    Clock, FileExchange, FileReplies, FileRequest, Incarnation, SampleBuilder, SampleRequest, Source,
    SourceTrouble, Span, TroubleKind, facts, metrics,
};

use crate::agent::{Answer, Item, SessionOptions, Status};
use crate::connection::{Connection, Settings};
use crate::cookie::FoundCookie;
use crate::error::{AttachError, printable};
use crate::etf::{Term, TermError};
use crate::explicit::{
    CarrierWalk, CarrierWalkCost, Collect, ExplicitItem, ExplicitKind, LockCountingCost, Locks,
    ProcessSelection,
};
use crate::handshake::Expected;
use crate::locate::{Located, Route};
use crate::sample::{Decoder, ITEMS, Identity, Offset, When, files, identity};
use crate::session::{ITEM_TIMEOUT, Session, VmClock};
use crate::target::Target;
use crate::tls::Tls;
use crate::wall::{Trip, WallClock};

/// Pause between searches for a lost node.
const SEARCH_PAUSE: Duration = Duration::from_millis(500);

/// Maximum pause after a failed attempt that costs the node something: a line in its log, or loading and purging the agent's
/// module. The first such pause is 1 s, and each further one is twice as long.
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// First sequence number of requests that are not for samples.
const FIRST_FETCH_SEQ: u64 = 1 << 62;

/// Time allowed for an answer to arrive after the agent has given up on an item that took too long.
const TRANSIT_TIME: Duration = Duration::from_millis(500);

/// Everything needed to connect to a node, and to reconnect.
#[derive(Debug, Clone)]
pub struct Access {
    /// The target, and how to find its address.
    pub route: Route,
    /// Finds the node after a restart in a new network namespace.
    pub finder: Option<Arc<dyn Finder>>,
    /// The cookie.
    pub cookie: FoundCookie,
    /// Certificates for TLS; `None` for a node with plain distribution.
    pub tls: Option<Tls>,
    /// Size and time limits of the connection.
    pub settings: Settings,
    /// Lease and CPU budget of the agent.
    pub session_options: SessionOptions,
}

/// Finds a restarted node whose network namespace is gone: in a container, the namespace ends with the node.
pub trait Finder: fmt::Debug + Send + Sync {
    /// Returns how to find the node now, or why this is unknown. `last_heard` is when data last arrived from the node.
    fn find(&self, last_heard: Instant) -> Result<Route, String>;
}

impl Access {
    /// Connects, without injecting the agent.
    pub fn connect(&self) -> Result<Connection, AttachError> {
        self.open(&self.route.locate(self.settings.setup_timeout)?)
    }

    fn connect_to(&self, expected: Expected) -> Result<Connection, AttachError> {
        let located = self.route.locate(self.settings.setup_timeout)?;
        self.open(&Located { expected, ..located })
    }

    fn open(&self, located: &Located) -> Result<Connection, AttachError> {
        Connection::open(located, &self.cookie, self.tls.as_ref(), self.settings)
    }
}

/// A node into which the agent was injected. If the connection is lost, a thread searches for the node. Meanwhile, the recorder
/// continues and records a gap.
#[derive(Debug)]
pub struct NodeSource {
    access: Access,
    link: Link,
    node: String,
    decoder: Decoder,
    identity: Option<Identity>,
    /// Number of the current incarnation of the node.
    incarnation: u32,
    /// Offset between the recorder's clock and the VM's; `None` until the first request of a session.
    offset: Option<Offset>,
    /// Whether this session has received the facts, which show whether the node has restarted.
    has_facts: bool,
    request: Option<Request>,
    /// The files of the node's host to read. `None` if the host is not sampled, or is sampled without the agent.
    files: Option<FileExchange>,
    fetches: u64,
    /// Explicit items to request with the next detailed sample.
    explicit: Vec<ExplicitItem>,
    wall: WallClock,
    last_heard: Instant,
    /// Why the finder could not find the node in the last search.
    search_error: Option<String>,
    /// The last pause after a failure that cost the node something.
    pause: Duration,
}

#[derive(Debug)]
enum Link {
    Session(Box<Session>),
    /// A thread is searching for the node.
    Searching(Receiver<Result<Session, AttachError>>),
    /// The next search begins at this instant.
    SearchAt(Instant),
}

#[derive(Debug)]
struct Request {
    seq: u64,
    sent: Nanos,
    offset: Offset,
    files: Vec<FileRequest>,
    /// Additional time allowed for the answer because of explicit items.
    extra_time: Duration,
    /// Processes named for garbage collection.
    named: Vec<String>,
}

impl NodeSource {
    /// Connects to the node and injects the agent.
    pub fn attach(access: Access) -> Result<NodeSource, AttachError> {
        let deadline = Instant::now() + access.settings.attach_timeout;
        let session = Session::start_until(access.connect()?, access.session_options, deadline)?;
        Ok(NodeSource {
            node: session.node().to_string(),
            link: Link::Session(Box::new(session)),
            access,
            decoder: Decoder::default(),
            identity: None,
            incarnation: 0,
            offset: None,
            has_facts: false,
            request: None,
            files: None,
            fetches: 0,
            explicit: Vec::new(),
            wall: WallClock::default(),
            last_heard: Instant::now(),
            search_error: None,
            pause: Duration::ZERO,
        })
    }

    /// The node's full name.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// The session, unless the connection is lost.
    pub fn session(&mut self) -> Option<&mut Session> {
        match &mut self.link {
            Link::Session(session) => Some(session),
            _ => None,
        }
    }

    /// From now on, reads the files requested on this board with each sample.
    pub fn read_files(&mut self, board: FileExchange) {
        self.files = Some(board);
    }

    /// Reads the files that a detailed sample needs now, before the first sample. May wait longer than `patience`, since the
    /// agent would refuse the first sample while it is still reading these files.
    pub fn fetch_files(&mut self, patience: Duration) -> Result<(), AttachError> {
        let (Some(board), Link::Session(session)) = (&self.files, &mut self.link) else { return Ok(()) };
        let asks = board.next_requests(true);
        // Above the sequence numbers of samples, so that a late answer cannot be mistaken for a sample.
        self.fetches += 1;
        let seq = FIRST_FETCH_SEQ + self.fetches;
        session.request(seq, &[], &asks)?;
        let answer = session.collect(seq, Instant::now() + patience.max(ITEM_TIMEOUT + TRANSIT_TIME))?;
        if let Some(files) = files::read(&answer, asks) {
            board.put_replies(FileReplies { span: Span { begin: 0, end: 0 }, replies: files.results });
        }
        Ok(())
    }

    /// Requests these items once, with the next detailed sample. That sample takes as long as the items do, up to their time
    /// limits. Its span covers only the other items, which are read first. The results are rows of the sample, or gaps for items
    /// without a result. If the answer is lost, the items are not requested again.
    pub fn request_once(&mut self, items: Vec<ExplicitItem>) {
        self.explicit = items;
    }

    /// Estimates what a carrier walk would cost the node. To do so, walks the carriers of one cheap allocator instance, for at
    /// most `limit`.
    pub fn estimate_walk(
        &mut self,
        walk: &CarrierWalk,
        limit: Duration,
    ) -> Result<CarrierWalkCost, AttachError> {
        let estimate = ExplicitItem { kind: ExplicitKind::WalkCost(walk.clone()), limit };
        self.estimate(&estimate, "a carrier walk", |value| {
            value.field("estimate").and_then(CarrierWalkCost::read)
        })
    }

    /// Estimates what lock counting would cost the node, if its emulator supports it. It reads only how many objects have locks,
    /// and changes nothing.
    pub fn estimate_locks(
        &mut self,
        locks: &Locks,
        limit: Duration,
    ) -> Result<LockCountingCost, AttachError> {
        let estimate = ExplicitItem { kind: ExplicitKind::LocksCost(locks.clone()), limit };
        self.estimate(&estimate, "lock counting", LockCountingCost::read)
    }

    /// Requests an estimate separately from the samples.
    fn estimate<T>(
        &mut self,
        estimate: &ExplicitItem,
        of: &str,
        read: impl FnOnce(Term<'_>) -> Result<T, TermError>,
    ) -> Result<T, AttachError> {
        let node = self.node.clone();
        let Link::Session(session) = &mut self.link else { return Err(self.lost("reconnecting")) };
        self.fetches += 1;
        let seq = FIRST_FETCH_SEQ + self.fetches;
        session.request_with(seq, &[], &[], std::slice::from_ref(estimate))?;
        let answer = session.collect(seq, Instant::now() + estimate.answer_timeout())?;
        let bad = |reason| AttachError::BadAnswer { node: node.clone(), reason };
        let failed = |what: String| AttachError::Protocol { peer: node.clone(), what };
        let reading = answer.readings().map_err(bad)?.next();
        match reading.transpose().map_err(bad)?.map(|reading| reading.status) {
            Some(Status::Done(value)) => read(value).map_err(bad),
            Some(Status::Failed(why)) => Err(failed(printable(why))),
            Some(Status::TimedOut(_)) => Err(failed(format!(
                "estimating the cost of {of} took too long: a scheduler does not respond"
            ))),
            _ => Err(failed(format!("it cannot estimate the cost of {of}"))),
        }
    }

    /// Detaches from the node. Waits at most `patience` until the agent is gone and everything that it changed is restored.
    /// Dropping the source is just as safe, but does not wait.
    pub fn leave(self, patience: Duration) -> Result<(), AttachError> {
        match self.link {
            Link::Session(session) => session.leave(Instant::now() + patience),
            _ => Ok(()),
        }
    }

    /// Starts or polls the search for a lost node. Never blocks.
    fn poll_search(&mut self) -> Result<(), AttachError> {
        if let Link::SearchAt(instant) = self.link
            && Instant::now() >= instant
        {
            self.link = search(self.access.clone(), self.node.clone(), self.last_heard);
        }
        let Link::Searching(search) = &self.link else { return Ok(()) };
        match search.try_recv() {
            Ok(Ok(session)) => {
                self.link = Link::Session(Box::new(session));
                self.last_heard = Instant::now();
                self.search_error = None;
                self.offset = None;
                self.has_facts = false;
                Ok(())
            }
            Ok(Err(error)) => {
                self.search_error = match &error {
                    AttachError::Lost { reason, .. } => Some(reason.clone()),
                    _ => None,
                };
                self.search_later(&error);
                Err(error)
            }
            Err(TryRecvError::Disconnected) => {
                self.link = Link::SearchAt(Instant::now() + SEARCH_PAUSE);
                Ok(())
            }
            Err(TryRecvError::Empty) => Ok(()),
        }
    }

    fn search_later(&mut self, error: &AttachError) {
        let pause = match error {
            // Failures that cost the node nothing.
            AttachError::Lost { .. }
            | AttachError::EpmdDown { .. }
            | AttachError::NoSuchNode { .. }
            | AttachError::UnknownHost { .. }
            | AttachError::Unreachable { .. }
            | AttachError::NetworkGone { .. }
            | AttachError::TimedOut { .. } => SEARCH_PAUSE,
            _ => {
                self.pause = (2 * self.pause).clamp(Duration::from_secs(1), MAX_PAUSE);
                self.pause
            }
        };
        self.link = Link::SearchAt(Instant::now() + pause);
    }

    fn try_request(&mut self, ask: SampleRequest, clock: &dyn Clock) -> Result<(), AttachError> {
        self.poll_search()?;
        let Link::Session(session) = &mut self.link else {
            return Err(self.lost(self.search_error.as_deref().unwrap_or("reconnecting")));
        };
        let offset = *self.offset.get_or_insert_with(|| first_offset(session.clock(), clock));
        let is_due = |item: &&Item| match item.when {
            When::First => ask.detail || !self.has_facts,
            When::Always => true,
            When::Detail => ask.detail,
            When::Files | When::OnRequest => false,
        };
        let items: Vec<&Item> = ITEMS.iter().filter(is_due).collect();
        let files = self.files.as_ref().map_or_else(Vec::new, |board| board.next_requests(ask.detail));
        let sent = clock.now();
        let explicit: &[ExplicitItem] = if ask.detail { &self.explicit } else { &[] };
        session.request_with(ask.seq, &items, &files, explicit)?;
        let extra_time = explicit.iter().map(ExplicitItem::answer_timeout).sum();
        let named = |item: &ExplicitItem| match &item.kind {
            ExplicitKind::Collect(Collect { processes: ProcessSelection::Named(names), .. }) => names.clone(),
            _ => Vec::new(),
        };
        let named = explicit.iter().flat_map(named).collect();
        if ask.detail {
            self.explicit.clear();
        }
        self.request = Some(Request { seq: ask.seq, sent, offset, files, extra_time, named });
        Ok(())
    }

    fn try_collect(
        &mut self,
        deadline: Nanos,
        clock: &dyn Clock,
        out: &mut SampleBuilder<'_>,
    ) -> Result<Span, AttachError> {
        let (Some(request), Link::Session(session)) = (self.request.take(), &mut self.link) else {
            return Err(self.lost("no sample was requested"));
        };
        let left = u64::try_from(deadline.saturating_sub(clock.now())).unwrap_or(0);
        let answer =
            session.collect(request.seq, Instant::now() + Duration::from_nanos(left) + request.extra_time)?;
        let (arrived, wall, wall_read) = (clock.now(), clock.wall(), clock.now());
        self.last_heard = Instant::now();
        let offset = request.offset.corrected(request.sent, &answer, arrived);
        self.offset = Some(offset);
        if session.clock().at.elapsed() > MAX_PAUSE {
            self.pause = Duration::ZERO;
        }
        if let Some(found) = identity(&answer) {
            self.has_facts = true;
            self.identify(found, clock, out);
        }
        if !request.named.is_empty() {
            // The rows cover only processes that freed memory, so the names are recorded separately.
            let names = serde_json::Value::from(request.named.clone()).to_string();
            out.sample.facts.push((facts::COLLECTED.to_owned(), names));
        }
        out.metric(&metrics::ROUND_TRIP, "", arrived.saturating_sub(request.sent));
        out.metric(&metrics::CLOCK_OFFSET, "", offset.0);
        if let Some(theirs_us) = answer.os_system_us {
            let ahead = self.wall.add(Trip {
                sent: request.sent,
                // Our thread may have been off-CPU between reading the two clocks.
                arrived: wall_read,
                worked: answer.end_ns.saturating_sub(answer.begin_ns),
                theirs: theirs_us.saturating_mul(1_000),
                ours: wall,
            });
            out.metric(&metrics::WALL_AHEAD, "", ahead.ahead);
            out.metric(&metrics::WALL_AHEAD_ERROR, "", ahead.error);
        }
        let translation = offset.between(request.sent, arrived);
        // Explicit items come last, and have their own timestamps.
        let mut end_ns = explicit_begin_ns(&answer).unwrap_or(answer.end_ns);
        if let (Some(board), Some(files)) = (&self.files, files::read(&answer, request.files)) {
            // Files come after the other items, and belong to the samples of the host.
            end_ns = files.begin_ns;
            let (begin, end) =
                (translation.to_recorder(files.begin_ns), translation.to_recorder(files.end_ns));
            board.put_replies(FileReplies {
                span: Span { begin, end: end.max(begin) },
                replies: files.results,
            });
        }
        self.decoder
            .add(&answer, translation, out)
            .map_err(|reason| AttachError::BadAnswer { node: self.node.clone(), reason })?;
        Ok(Span {
            begin: translation.to_recorder(answer.begin_ns),
            end: translation.to_recorder(end_ns.max(answer.begin_ns)),
        })
    }

    fn lost(&self, reason: &str) -> AttachError {
        AttachError::Lost { node: self.node.clone(), reason: reason.to_owned() }
    }

    /// Begins a new incarnation if this is not the VM of the last sample.
    fn identify(&mut self, found: Identity, clock: &dyn Clock, out: &mut SampleBuilder<'_>) {
        if self.identity.as_ref() == Some(&found) {
            return;
        }
        if self.identity.is_some() {
            self.incarnation += 1;
            self.decoder = Decoder::default();
        }
        out.sample.tick.incarnation = self.incarnation;
        out.sample.incarnation = Some(Incarnation {
            id: self.incarnation,
            node: self.node.clone(),
            os_pid: found.os_pid,
            boot: found.boot.clone(),
            mono0: clock.now(),
            wall0: clock.wall(),
        });
        self.identity = Some(found);
    }

    /// Returns whether nothing, not even a tick, arrived for the length of a lease, so that the agent has ended the session.
    /// Waiting longer would not help: TCP doubles its retransmission timeout, so after a network outage it stays silent for as
    /// long again, up to two minutes.
    fn is_silent(&mut self) -> bool {
        let lease = self.access.session_options.lease;
        self.session().is_some_and(|session| session.connection().heard().elapsed() > lease)
    }

    /// Classifies a failure for the recorder, and drops a session that can no longer be used.
    fn trouble(&mut self, error: AttachError) -> SourceTrouble {
        let kind = match &error {
            AttachError::TimedOut { .. } | AttachError::AgentBusy { .. } => TroubleKind::TimedOut,
            AttachError::WrongCookie { .. }
            | AttachError::NotAllowed { .. }
            | AttachError::CertificateUntrusted { .. }
            | AttachError::CertificateHostMismatch { .. }
            | AttachError::CertificateOutdated { .. }
            | AttachError::CertificateUnusable { .. }
            | AttachError::ClientCertificateRequired { .. }
            | AttachError::ClientCertificateRefused { .. } => TroubleKind::Denied,
            AttachError::BadAnswer { .. } | AttachError::Protocol { .. } => TroubleKind::Garbled,
            _ => TroubleKind::Gone,
        };
        let over = matches!(kind, TroubleKind::Gone | TroubleKind::Garbled) || self.is_silent();
        if over && matches!(self.link, Link::Session(_)) {
            self.search_later(&error);
        }
        SourceTrouble::new(kind, error.to_string())
    }
}

impl Source for NodeSource {
    fn name(&self) -> &'static str {
        "vm"
    }

    fn request(&mut self, ask: SampleRequest, clock: &dyn Clock) -> Result<(), SourceTrouble> {
        self.request = None;
        self.try_request(ask, clock).map_err(|error| self.trouble(error))
    }

    fn collect(
        &mut self,
        deadline: Nanos,
        clock: &dyn Clock,
        out: &mut SampleBuilder<'_>,
    ) -> Result<Span, SourceTrouble> {
        self.try_collect(deadline, clock, out).map_err(|error| self.trouble(error))
    }
}

/// Returns when the agent began to read the first explicit item.
fn explicit_begin_ns(answer: &Answer) -> Option<i64> {
    let mut readings = answer.readings().ok()?;
    let is_explicit = |name| Item::named(name).is_some_and(|item| item.when == When::OnRequest);
    readings.find_map(|reading| {
        reading.ok().filter(|reading| is_explicit(reading.item)).map(|reading| reading.begin_ns)
    })
}

/// Searches for the node on a new thread: connecting to a node that is just starting can take seconds.
fn search(access: Access, node: String, last_heard: Instant) -> Link {
    let (sender, receiver) = mpsc::channel();
    let searcher = thread::Builder::new().spawn(move || {
        let session = find_again(&access, &node, last_heard)
            .and_then(|connection| Session::start(connection, access.session_options));
        // If the receiver is gone, dropping the session makes the agent leave.
        let _ = sender.send(session);
    });
    match searcher {
        Ok(_) => Link::Searching(receiver),
        Err(_) => Link::SearchAt(Instant::now() + SEARCH_PAUSE),
    }
}

/// Connects to the node with this name, not to another one that now uses its port.
fn find_again(access: &Access, node: &str, last_heard: Instant) -> Result<Connection, AttachError> {
    let expected = Expected::FullName(node.to_owned());
    match (access.connect_to(expected.clone()), &access.finder) {
        (Err(AttachError::NetworkGone { .. }), Some(finder)) => {
            let lost = |reason| AttachError::Lost { node: node.to_owned(), reason };
            let route = finder.find(last_heard).map_err(lost)?;
            Access { route, ..access.clone() }.connect_to(expected)
        }
        // After a restart, the node listens on another port, so look it up in EPMD by its name.
        (Err(AttachError::Unreachable { .. } | AttachError::NameMismatch { .. }), _)
            if matches!(access.route.target, Target::Address { .. }) =>
        {
            let route = Route { target: node.parse()?, ..access.route.clone() };
            Access { route, ..access.clone() }.connect()
        }
        (other, _) => other,
    }
}

/// Returns the recorder's clock minus the VM's, according to the clock readings at the start of the session.
fn first_offset(vm: VmClock, clock: &dyn Clock) -> Offset {
    let since = i64::try_from(vm.at.elapsed().as_nanos()).unwrap_or(i64::MAX);
    Offset(clock.now().saturating_sub(since).saturating_sub(vm.vm_ns))
}
