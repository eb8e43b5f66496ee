//! A session: the agent in the node, from the one message that puts it there to its farewell.
//!
//! The message carries all that the node needs: the module, and the forms that load it, watch over it and
//! undo everything. So whenever we die, there is either nothing of ours on the node yet, or something that
//! notices and cleans up. Nothing of ours stays behind in either case; `docs/agent-protocol.md` has the
//! details.

use std::sync::Arc;
use std::time::{Duration, Instant};

use beamtune_model::FileAsk;

use crate::agent::{self, Answer, Item, Joined, Terms, Word};
use crate::call::TABLE_FULL;
use crate::connection::Connection;
use crate::error::{AttachError, printable};
use crate::etf::{Document, Pid, Reference, TermError, Value};
use crate::explicit::Explicit;
use crate::message::{self, Message};

/// How long the agent has to load, the first calls included. Where some 32 processes on four schedulers fight for a table and share two CPUs,
/// connecting, this, and a recording of 2 s take 8 to 9 s together the first time (OTP 25 to 29), and 20 s on OTP 23, whose code server has
/// to find `erpc` first, behind all run queues.
const JOIN_TIMEOUT: Duration = Duration::from_secs(60);

/// How long one request may wait for room in the connection.
const SEND_TIMEOUT: Duration = Duration::from_secs(2);

/// What the agent gives each item before it gives it up.
pub(crate) const ITEM_TIMEOUT: Duration = Duration::from_secs(2);

/// The agent at work. Dropping it closes the connection, on which the agent leaves the node.
#[derive(Debug)]
pub struct Session {
    line: Line,
    joined: Joined,
    release: u32,
    clock: VmClock,
    /// After so long without a word of ours the agent leaves.
    lease: Duration,
}

/// The connection, and what on it is ours.
#[derive(Debug)]
struct Line {
    connection: Connection,
    /// The process that was spawned on the node is linked to it; its end is the session's.
    me: Pid,
    /// What it was spawned by.
    request: Reference,
}

/// At one instant, what our clock and the VM's showed.
#[derive(Debug, Clone, Copy)]
pub struct VmClock {
    /// Ours.
    pub at: Instant,
    /// The VM's monotonic time, in nanoseconds.
    pub vm_ns: i64,
}

impl Session {
    /// Puts the agent into the node, or joins the one that is there.
    pub fn start(connection: Connection, terms: Terms) -> Result<Session, AttachError> {
        Session::start_until(connection, terms, Instant::now() + JOIN_TIMEOUT)
    }

    /// The same, until a deadline if that comes sooner than the agent is usually waited for.
    pub fn start_until(
        mut connection: Connection,
        terms: Terms,
        deadline: Instant,
    ) -> Result<Session, AttachError> {
        let deadline = deadline.min(Instant::now() + JOIN_TIMEOUT);
        let release = release(&mut connection, deadline)?;
        let clock = vm_clock(&mut connection, deadline)?;
        let (me, request) = (connection.new_pid(), connection.new_reference());
        let spawn = agent::injection(release, &me, terms);
        connection.send(&message::spawn_request(&request, &me, spawn)?, deadline)?;
        let mut line = Line { connection, me, request };
        loop {
            match line.word(deadline) {
                Ok(Word::Joined(joined)) => {
                    return Ok(Session { line, joined, release, clock, lease: terms.lease });
                }
                Ok(_) => {}
                // It had a place itself, and the processes that it starts had none.
                Err(AttachError::AgentEnded { node, reason }) if reason.contains(TABLE_FULL) => {
                    return Err(AttachError::ProcessTableFull { node });
                }
                Err(AttachError::AgentEnded { node, reason }) => {
                    return Err(AttachError::AgentRefused { node, reason });
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The node's full name.
    pub fn node(&self) -> &Arc<str> {
        self.line.connection.node()
    }

    /// The node's OTP release.
    pub fn release(&self) -> u32 {
        self.release
    }

    /// What the agent said when we joined.
    pub fn joined(&self) -> &Joined {
        &self.joined
    }

    /// How the two clocks stood when the session began.
    pub fn clock(&self) -> VmClock {
        self.clock
    }

    /// The connection, for calls beside the samples.
    pub fn connection(&mut self) -> &mut Connection {
        &mut self.line.connection
    }

    /// Asks for a sample, without waiting for it. No two requests of a session may have the same `seq`, by which answers are told
    /// apart; `files` are those of the node's host. While the agent is at one request it refuses the next.
    pub fn request(&mut self, seq: u64, items: &[Item], files: &[FileAsk]) -> Result<(), AttachError> {
        self.request_with(seq, items, files, &[])
    }

    /// The same, with items that are asked for by name.
    pub fn request_with(
        &mut self,
        seq: u64,
        items: &[Item],
        files: &[FileAsk],
        explicit: &[Explicit],
    ) -> Result<(), AttachError> {
        let request = agent::sample_request(&self.line.me, seq, items, files, explicit, ITEM_TIMEOUT);
        self.send(&request)
    }

    /// Waits for the sample `seq`. Those of other requests, which came too late, are dropped.
    pub fn collect(&mut self, seq: u64, deadline: Instant) -> Result<Answer, AttachError> {
        let node = |session: &Session| session.node().to_string();
        loop {
            // An item that is asked for by name may take longer than the agent waits for a word of ours.
            let renewal = Instant::now() + self.lease / 3;
            let word = match self.line.word(deadline.min(renewal)) {
                Err(AttachError::TimedOut { .. }) if Instant::now() < deadline => {
                    self.send(&agent::renew_request(&self.line.me))?;
                    continue;
                }
                word => word?,
            };
            match word {
                Word::Sample(answer) if answer.seq == seq => return Ok(answer),
                Word::Busy { seq: refused } if refused == seq => {
                    return Err(AttachError::AgentBusy { node: node(self) });
                }
                Word::BadRequest(reason) => {
                    let what = format!("the agent does not understand us: {reason}");
                    return Err(AttachError::Protocol { peer: node(self), what: printable(&what) });
                }
                _ => {}
            }
        }
    }

    /// Leaves the node, and waits until all is undone there or others go on using the agent.
    pub fn leave(mut self, deadline: Instant) -> Result<(), AttachError> {
        let request = agent::leave_request(&self.line.me);
        self.send(&request)?;
        loop {
            match self.line.word(deadline) {
                Ok(Word::Left { remaining: 1.. }) => return Ok(()),
                Ok(_) => {}
                // The end of our last process on the node is what we wait for.
                Err(AttachError::AgentEnded { .. }) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    fn send(&mut self, request: &Value<'_>) -> Result<(), AttachError> {
        let frame = message::send(&self.line.me, &self.joined.agent, request)?;
        self.line.connection.send(&frame, Instant::now() + SEND_TIMEOUT)
    }
}

impl Line {
    /// The next word of the agent, or the news of its end.
    fn word(&mut self, deadline: Instant) -> Result<Word, AttachError> {
        let node = self.connection.node().to_string();
        loop {
            match self.connection.receive(deadline)? {
                Message::Send { to, payload } if to == self.me => {
                    return Word::parse(payload).map_err(|reason| AttachError::BadAnswer { node, reason });
                }
                Message::Exit { to, reason, .. } if to == self.me => {
                    return Err(AttachError::AgentEnded { node, reason: last_words(&reason) });
                }
                Message::SpawnReply { request, result: Err(reason) } if request == self.request => {
                    return Err(AttachError::AgentEnded { node, reason: printable(&reason) });
                }
                _ => {}
            }
        }
    }
}

/// `{beamtune, What, Text}`, or any other exit reason.
fn last_words(reason: &Document) -> String {
    let term = reason.root();
    match term.tuple_of() {
        Ok([_, what, text]) => {
            let text = text.as_str().map_or_else(|_| text.to_string(), printable);
            format!("{}: {text}", what.as_atom().map_or_else(|_| what.to_string(), printable))
        }
        Err(_) => term.to_string(),
    }
}

/// The OTP release, which says what the node can load.
fn release(connection: &mut Connection, deadline: Instant) -> Result<u32, AttachError> {
    let item = vec![Value::atom("otp_release")];
    let answer = connection.call("erlang", "system_info", item, deadline)?;
    let text = answer.root().to_text();
    text.ok().and_then(|text| text.parse().ok()).ok_or_else(|| AttachError::TooOld {
        peer: connection.node().to_string(),
        missing: "its release is no number",
    })
}

/// Reads the VM's clock a few times. The shortest call tells it best: it was read somewhere in the middle.
fn vm_clock(connection: &mut Connection, deadline: Instant) -> Result<VmClock, AttachError> {
    const CALLS: usize = 5;
    const ENOUGH: Duration = Duration::from_millis(500);
    let begin = Instant::now();
    let mut best: Option<(Duration, VmClock)> = None;
    for _ in 0..CALLS {
        let before = Instant::now();
        if best.is_some() && before - begin > ENOUGH {
            break;
        }
        let answer =
            connection.call("erlang", "monotonic_time", vec![Value::atom("nanosecond")], deadline)?;
        let taken = before.elapsed();
        let vm_ns = answer.root().as_i64();
        let vm_ns = vm_ns.map_err(|reason| bad_answer(connection, reason))?;
        if best.is_none_or(|(least, _)| taken < least) {
            best = Some((taken, VmClock { at: before + taken / 2, vm_ns }));
        }
    }
    best.map(|(_, clock)| clock)
        .ok_or_else(|| bad_answer(connection, TermError::Malformed { what: "no time", offset: 0 }))
}

fn bad_answer(connection: &Connection, reason: TermError) -> AttachError {
    AttachError::BadAnswer { node: connection.node().to_string(), reason }
}
