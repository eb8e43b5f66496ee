//! The node as a source of samples: connected, sampled, lost and found again.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use beamtune_model::units::Nanos;
use beamtune_model::{
    Ask, Board, Clock, FileAsk, FilesTold, Incarnation, SampleBuilder, Source, Span, Trouble, TroubleKind,
    facts, metrics,
};

use crate::agent::{Answer, Item, Status, Terms};
use crate::connection::{Connection, Settings};
use crate::cookie::Found;
use crate::error::{AttachError, printable};
use crate::etf::{Term, TermError};
use crate::explicit::{Collect, Explicit, Locks, LocksCost, NAMES, Walk, WalkCost, What, Whom};
use crate::handshake::Expected;
use crate::locate::{Located, Route};
use crate::sample::{Identity, Life, Offset, files, identity};
use crate::session::{ITEM_TIMEOUT, Session, VmClock};
use crate::target::Target;
use crate::tls::Tls;
use crate::wall::{Trip, WallClock};

/// Read in every sample. The run queues come first, while the agent is not yet busy with the results of other items: its
/// processes stand in them too.
const EVERY_TIME: &[Item] = &[
    Item::RunQueues,
    Item::Msacc,
    Item::SchedulerWallTime,
    Item::Statistics,
    Item::Memory,
    Item::Counts,
    Item::CheckIo,
    Item::Procs(20),
    Item::Events,
    // Those that `Procs` has found to do the most.
    Item::Ran,
    // New processes that `Procs` has met.
    Item::Broker,
    Item::Crashes,
    // Tables that `Ets` has found.
    Item::TableGrowth,
    // It waits between its looks.
    Item::Weigh,
];

/// Read besides when detail is asked for.
const IN_DETAIL: &[Item] = &[
    // It finds queues whose processes `Processes` then names.
    Item::BrokerClients,
    // Before the closer looks, which those that are waited for have, too, and those that get the heaviest messages.
    Item::Stands(200),
    Item::Messages,
    Item::Traces,
    Item::Processes(20),
    Item::Ets(20),
    Item::Ports(20),
    Item::Dist,
    Item::Allocators,
    Item::Spawns,
    Item::Atoms,
];

/// Between two searches for a node that was lost.
const SEARCH_PAUSE: Duration = Duration::from_millis(500);

/// The longest pause after a failure that costs the node something: a line in its log, or the loading and
/// purging of the agent's module. The first such pause is a second, the next ones double.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Numbers of requests that are no samples.
const FETCHES_FROM: u64 = 1 << 62;

/// How long an answer may be on its way here, after the agent has given up what took it too long.
const ON_THE_WAY: Duration = Duration::from_millis(500);

/// How to get to a node, as often as it takes.
#[derive(Debug, Clone)]
pub struct Access {
    /// Which node, and where it is looked for.
    pub route: Route,
    /// Who knows where it is when it has been started again in a network that was not there before.
    pub finder: Option<Arc<dyn Finder>>,
    /// The cookie.
    pub cookie: Found,
    /// What is shown and trusted in TLS; `None` for a node with plain distribution.
    pub tls: Option<Tls>,
    /// Bounds and time limits of the connection.
    pub settings: Settings,
    /// What is asked of the agent.
    pub terms: Terms,
}

/// Finds a node again that has been started again: in a container, its network goes when it ends.
pub trait Finder: fmt::Debug + Send + Sync {
    /// Where the node is now, or why that is not known. It was last heard of at that instant.
    fn find(&self, last_heard: Instant) -> Result<Route, String>;
}

impl Access {
    /// Connects, without an agent.
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

/// A node with our agent in it. When the connection is lost, a thread looks for the node again while the
/// recorder goes on; what comes in between is a gap.
#[derive(Debug)]
pub struct NodeSource {
    access: Access,
    link: Link,
    node: String,
    life: Life,
    known: Option<Identity>,
    /// Number of the life of the VM.
    incarnation: u32,
    /// How the clocks lie to each other; `None` until the first request of a session.
    offset: Option<Offset>,
    /// Whether the facts of this session have come: they tell whether it is another life of the VM.
    facts_have_come: bool,
    request: Option<Request>,
    /// Where it is said which files of the node's host are to be read; `None` if the host is read otherwise, or not.
    files: Option<Board>,
    fetches: u64,
    /// What is asked for with the next closer look.
    once: Vec<Explicit>,
    wall: WallClock,
    last_heard: Instant,
    /// Why the last search did not know where to look.
    astray: Option<String>,
    /// The last pause after a failure that costs the node something.
    pause: Duration,
}

#[derive(Debug)]
enum Link {
    Session(Box<Session>),
    /// A thread looks for the node.
    Searching(Receiver<Result<Session, AttachError>>),
    /// Not before this instant.
    SearchAt(Instant),
}

#[derive(Debug)]
struct Request {
    seq: u64,
    sent: Nanos,
    offset: Offset,
    files: Vec<FileAsk>,
    /// How much longer its answer may take for what is asked for by name.
    longer: Duration,
    /// Processes that are to be collected, as they were named.
    named: Vec<String>,
}

impl NodeSource {
    /// Connects to the node and puts the agent there.
    pub fn attach(access: Access) -> Result<NodeSource, AttachError> {
        let deadline = Instant::now() + access.settings.attach_timeout;
        let session = Session::start_until(access.connect()?, access.terms, deadline)?;
        Ok(NodeSource {
            node: session.node().to_string(),
            link: Link::Session(Box::new(session)),
            access,
            life: Life::default(),
            known: None,
            incarnation: 0,
            offset: None,
            facts_have_come: false,
            request: None,
            files: None,
            fetches: 0,
            once: Vec::new(),
            wall: WallClock::default(),
            last_heard: Instant::now(),
            astray: None,
            pause: Duration::ZERO,
        })
    }

    /// The node's full name.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// The session, where there is one at the moment.
    pub fn session(&mut self) -> Option<&mut Session> {
        match &mut self.link {
            Link::Session(session) => Some(session),
            _ => None,
        }
    }

    /// Reads the files of the node's host that are wanted on this board with each sample from now on.
    pub fn read_files(&mut self, board: Board) {
        self.files = Some(board);
    }

    /// Reads those of a closer look at once, before the first sample. Waits longer than `patience` for an answer that is still being
    /// made, because until then the agent would refuse that sample.
    pub fn fetch_files(&mut self, patience: Duration) -> Result<(), AttachError> {
        let (Some(board), Link::Session(session)) = (&self.files, &mut self.link) else { return Ok(()) };
        let asks = board.ask(true);
        // Beyond the numbers of samples: an answer that comes late is not to be taken for one of those.
        self.fetches += 1;
        let seq = FETCHES_FROM + self.fetches;
        session.request(seq, &[], &asks)?;
        let answer = session.collect(seq, Instant::now() + patience.max(ITEM_TIMEOUT + ON_THE_WAY))?;
        if let Some(files) = files::of(&answer, asks) {
            board.tell(FilesTold { span: Span { begin: 0, end: 0 }, told: files.told });
        }
        Ok(())
    }

    /// Asks for these items with the next closer look, and not again. That sample takes as long as they do, up to their limits;
    /// its instants are those of the other items, which are read before. What they tell are rows of that sample, and gaps where they
    /// tell nothing. If its answer is lost, they are not asked for again.
    pub fn ask_once(&mut self, items: Vec<Explicit>) {
        self.once = items;
    }

    /// What a walk through carriers would cost the node. Walks those of one cheap instance, for at most `limit`.
    pub fn estimate_walk(&mut self, walk: &Walk, limit: Duration) -> Result<WalkCost, AttachError> {
        let estimate = Explicit { what: What::WalkCost(walk.clone()), limit };
        self.estimate(&estimate, "a walk through its carriers", |value| {
            value.field("estimate").and_then(WalkCost::read)
        })
    }

    /// What counting these locks would cost the node, if it can. Looks at tables from outside, and counts nothing.
    pub fn estimate_locks(&mut self, locks: &Locks, limit: Duration) -> Result<LocksCost, AttachError> {
        let estimate = Explicit { what: What::LocksCost(locks.clone()), limit };
        self.estimate(&estimate, "counting its locks", LocksCost::read)
    }

    /// Asks for one item beside the samples, of what something would cost.
    fn estimate<T>(
        &mut self,
        estimate: &Explicit,
        of: &str,
        read: impl FnOnce(Term<'_>) -> Result<T, TermError>,
    ) -> Result<T, AttachError> {
        let node = self.node.clone();
        let Link::Session(session) = &mut self.link else { return Err(self.lost("it is being looked for")) };
        self.fetches += 1;
        let seq = FETCHES_FROM + self.fetches;
        session.request_with(seq, &[], &[], std::slice::from_ref(estimate))?;
        let answer = session.collect(seq, Instant::now() + estimate.patience())?;
        let bad = |reason| AttachError::BadAnswer { node: node.clone(), reason };
        let failed = |what: String| AttachError::Protocol { peer: node.clone(), what };
        let reading = answer.readings().map_err(bad)?.next();
        match reading.transpose().map_err(bad)?.map(|reading| reading.status) {
            Some(Status::Done(value)) => read(value).map_err(bad),
            Some(Status::Failed(why)) => Err(failed(printable(why))),
            Some(Status::TimedOut(_)) => {
                Err(failed(format!("finding out what {of} costs took too long: a scheduler hangs")))
            }
            _ => Err(failed(format!("it cannot tell what {of} costs"))),
        }
    }

    /// Takes leave of the node, and waits at most `patience` until all is undone there. Dropping the source
    /// is as safe, but does not wait.
    pub fn leave(self, patience: Duration) -> Result<(), AttachError> {
        match self.link {
            Link::Session(session) => session.leave(Instant::now() + patience),
            _ => Ok(()),
        }
    }

    /// Goes on looking for a node that was lost. Never waits.
    fn look_for_node(&mut self) -> Result<(), AttachError> {
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
                self.astray = None;
                self.offset = None;
                self.facts_have_come = false;
                Ok(())
            }
            Ok(Err(error)) => {
                self.astray = match &error {
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
            // These cost the node nothing.
            AttachError::Lost { .. }
            | AttachError::EpmdDown { .. }
            | AttachError::NoSuchNode { .. }
            | AttachError::UnknownHost { .. }
            | AttachError::Unreachable { .. }
            | AttachError::NetworkGone { .. }
            | AttachError::TimedOut { .. } => SEARCH_PAUSE,
            _ => {
                self.pause = (2 * self.pause).clamp(Duration::from_secs(1), LONGEST_PAUSE);
                self.pause
            }
        };
        self.link = Link::SearchAt(Instant::now() + pause);
    }

    fn try_request(&mut self, ask: Ask, clock: &dyn Clock) -> Result<(), AttachError> {
        self.look_for_node()?;
        let Link::Session(session) = &mut self.link else {
            return Err(self.lost(self.astray.as_deref().unwrap_or("it is being looked for again")));
        };
        let offset = *self.offset.get_or_insert_with(|| first_offset(session.clock(), clock));
        // The facts say how some of the others are to be read, and some of them can change while the VM runs.
        let facts: &[Item] = if ask.detail || !self.facts_have_come { &[Item::Facts] } else { &[] };
        let items = [facts, EVERY_TIME, if ask.detail { IN_DETAIL } else { &[] }].concat();
        let files = self.files.as_ref().map_or_else(Vec::new, |board| board.ask(ask.detail));
        let sent = clock.now();
        let once: &[Explicit] = if ask.detail { &self.once } else { &[] };
        session.request_with(ask.seq, &items, &files, once)?;
        let longer = once.iter().map(Explicit::patience).sum();
        let named = |item: &Explicit| match &item.what {
            What::Collect(Collect { whom: Whom::Named(names), .. }) => names.clone(),
            _ => Vec::new(),
        };
        let named = once.iter().flat_map(named).collect();
        if ask.detail {
            self.once.clear();
        }
        self.request = Some(Request { seq: ask.seq, sent, offset, files, longer, named });
        Ok(())
    }

    fn try_collect(
        &mut self,
        deadline: Nanos,
        clock: &dyn Clock,
        out: &mut SampleBuilder<'_>,
    ) -> Result<Span, AttachError> {
        let (Some(request), Link::Session(session)) = (self.request.take(), &mut self.link) else {
            return Err(self.lost("nothing was asked of it"));
        };
        let left = u64::try_from(deadline.saturating_sub(clock.now())).unwrap_or(0);
        let answer =
            session.collect(request.seq, Instant::now() + Duration::from_nanos(left) + request.longer)?;
        let (arrived, wall, looked) = (clock.now(), clock.wall(), clock.now());
        self.last_heard = Instant::now();
        let offset = request.offset.corrected(request.sent, &answer, arrived);
        self.offset = Some(offset);
        if session.clock().at.elapsed() > LONGEST_PAUSE {
            self.pause = Duration::ZERO;
        }
        if let Some(found) = identity(&answer) {
            self.facts_have_come = true;
            self.recognise(found, clock, out);
        }
        if !request.named.is_empty() {
            // The rows of a collection name only those that gave something back.
            let names = serde_json::Value::from(request.named.clone()).to_string();
            out.sample.facts.push((facts::COLLECTED.to_owned(), names));
        }
        out.metric(&metrics::ROUND_TRIP, "", arrived.saturating_sub(request.sent));
        out.metric(&metrics::CLOCK_OFFSET, "", offset.0);
        if let Some(theirs_us) = answer.os_system_us {
            let ahead = self.wall.add(Trip {
                sent: request.sent,
                // We may have been put aside between the looks at the two clocks.
                arrived: looked,
                worked: answer.end_ns.saturating_sub(answer.begin_ns),
                theirs: theirs_us.saturating_mul(1_000),
                ours: wall,
            });
            out.metric(&metrics::WALL_AHEAD, "", ahead.ahead);
            out.metric(&metrics::WALL_AHEAD_ERROR, "", ahead.error);
        }
        let translation = offset.between(request.sent, arrived);
        // What is asked for by name comes last, and has its own instants.
        let mut end_ns = explicit_begin_ns(&answer).unwrap_or(answer.end_ns);
        if let (Some(board), Some(files)) = (&self.files, files::of(&answer, request.files)) {
            // They come behind the other items, and are another source's.
            end_ns = files.begin_ns;
            let (begin, end) =
                (translation.to_recorder(files.begin_ns), translation.to_recorder(files.end_ns));
            board.tell(FilesTold { span: Span { begin, end: end.max(begin) }, told: files.told });
        }
        self.life
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

    /// Announces a life of the VM that was not met before.
    fn recognise(&mut self, found: Identity, clock: &dyn Clock, out: &mut SampleBuilder<'_>) {
        if self.known.as_ref() == Some(&found) {
            return;
        }
        if self.known.is_some() {
            self.incarnation += 1;
            self.life = Life::default();
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
        self.known = Some(found);
    }

    /// True when not even a tick has come for so long that the agent has left. After a cut of the network TCP alone would
    /// be silent for as long again as the cut has lasted, up to two minutes, because it doubles its pauses.
    fn is_silent(&mut self) -> bool {
        let lease = self.access.terms.lease;
        self.session().is_some_and(|session| session.connection().heard().elapsed() > lease)
    }

    /// Turns a failure into what the recorder does about it, and forgets a session that is over.
    fn trouble(&mut self, error: AttachError) -> Trouble {
        let kind = match &error {
            AttachError::TimedOut { .. } | AttachError::AgentBusy { .. } => TroubleKind::TimedOut,
            AttachError::WrongCookie { .. }
            | AttachError::NotAllowed { .. }
            | AttachError::CertificateUntrusted { .. }
            | AttachError::CertificateForOthers { .. }
            | AttachError::CertificateOutdated { .. }
            | AttachError::CertificateUnusable { .. }
            | AttachError::CertificateDemanded { .. }
            | AttachError::CertificateRefused { .. } => TroubleKind::Denied,
            AttachError::BadAnswer { .. } | AttachError::Protocol { .. } => TroubleKind::Garbled,
            _ => TroubleKind::Gone,
        };
        let over = matches!(kind, TroubleKind::Gone | TroubleKind::Garbled) || self.is_silent();
        if over && matches!(self.link, Link::Session(_)) {
            self.search_later(&error);
        }
        Trouble::new(kind, error.to_string())
    }
}

impl Source for NodeSource {
    fn name(&self) -> &'static str {
        "vm"
    }

    fn request(&mut self, ask: Ask, clock: &dyn Clock) -> Result<(), Trouble> {
        self.request = None;
        self.try_request(ask, clock).map_err(|error| self.trouble(error))
    }

    fn collect(
        &mut self,
        deadline: Nanos,
        clock: &dyn Clock,
        out: &mut SampleBuilder<'_>,
    ) -> Result<Span, Trouble> {
        self.try_collect(deadline, clock, out).map_err(|error| self.trouble(error))
    }
}

/// When the first of the items that are asked for by name was begun.
fn explicit_begin_ns(answer: &Answer) -> Option<i64> {
    let mut readings = answer.readings().ok()?;
    readings.find_map(|reading| {
        reading.ok().filter(|reading| NAMES.contains(&reading.item)).map(|reading| reading.begin_ns)
    })
}

/// Looks for the node in a thread of its own: connecting to a node that is just starting can take seconds.
fn search(access: Access, node: String, last_heard: Instant) -> Link {
    let (sender, receiver) = mpsc::channel();
    let searcher = thread::Builder::new().spawn(move || {
        let session = find_again(&access, &node, last_heard)
            .and_then(|connection| Session::start(connection, access.terms));
        // If nobody waits any more, the session is dropped, and with it the agent leaves.
        let _ = sender.send(session);
    });
    match searcher {
        Ok(_) => Link::Searching(receiver),
        Err(_) => Link::SearchAt(Instant::now() + SEARCH_PAUSE),
    }
}

/// Connects to the node of that name, and to no other that now has its port.
fn find_again(access: &Access, node: &str, last_heard: Instant) -> Result<Connection, AttachError> {
    let expected = Expected::FullName(node.to_owned());
    match (access.connect_to(expected.clone()), &access.finder) {
        (Err(AttachError::NetworkGone { .. }), Some(finder)) => {
            let lost = |reason| AttachError::Lost { node: node.to_owned(), reason };
            let route = finder.find(last_heard).map_err(lost)?;
            Access { route, ..access.clone() }.connect_to(expected)
        }
        // A node that was started again listens at another port; EPMD knows which.
        (Err(AttachError::Unreachable { .. } | AttachError::NameMismatch { .. }), _)
            if matches!(access.route.target, Target::Address { .. }) =>
        {
            let route = Route { target: node.parse()?, ..access.route.clone() };
            Access { route, ..access.clone() }.connect()
        }
        (other, _) => other,
    }
}

/// The recorder's clock minus the VM's, from what both showed when the session began.
fn first_offset(vm: VmClock, clock: &dyn Clock) -> Offset {
    let since = i64::try_from(vm.at.elapsed().as_nanos()).unwrap_or(i64::MAX);
    Offset(clock.now().saturating_sub(since).saturating_sub(vm.vm_ns))
}
