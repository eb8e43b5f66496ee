//! A session with the agent on a node, from its injection until it unloads.
//!
//! The agent is injected with a single message. It contains the agent's module, and the forms that load the module, monitor the
//! agent and undo its changes. So if beamtune dies, the node has either received nothing, or runs a process that notices and
//! cleans up. Details are in `docs/agent-protocol.md`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use beamtune_model::FileRequest;

use crate::agent::{self, AgentMessage, Answer, Item, Joined, SessionOptions};
use crate::call::TABLE_FULL;
use crate::connection::Connection;
use crate::error::{AttachError, printable};
use crate::etf::{Document, Pid, Reference, TermError, Value};
use crate::explicit::ExplicitItem;
use crate::message::{self, Message};

/// Time allowed for the first calls and for loading the agent. Measured on a node where some 32 processes contend for an ETS
/// table, on four schedulers and two CPUs: connecting, joining and a recording of 2 s together take 8 to 9 s the first time (OTP
/// 25 to 29). On OTP 23, they take 20 s: the code server first has to load `erpc`, and waits in long run queues for that.
const JOIN_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum time for which a request waits for room in the socket's buffer.
const SEND_TIMEOUT: Duration = Duration::from_secs(2);

/// Time after which the agent gives up on an item.
pub(crate) const ITEM_TIMEOUT: Duration = Duration::from_secs(2);

/// A running agent and the connection to it. Dropping the session closes the connection, upon which the agent unloads.
#[derive(Debug)]
pub struct Session {
    channel: Channel,
    joined: Joined,
    release: u32,
    clock: VmClock,
    /// The agent ends the session if it receives nothing from us for this long.
    lease: Duration,
}

/// The connection, and the pid under which the agent reaches us.
#[derive(Debug)]
struct Channel {
    connection: Connection,
    /// Our pid. The process spawned on the node is linked to it, and the session ends with that process.
    me: Pid,
    /// The spawn request.
    request: Reference,
}

/// Our clock and the VM's clock at the same instant.
#[derive(Debug, Clone, Copy)]
pub struct VmClock {
    /// Our clock.
    pub at: Instant,
    /// The VM's monotonic time, in nanoseconds.
    pub vm_ns: i64,
}

impl Session {
    /// Injects the agent into the node, or joins the agent that is already there.
    pub fn start(connection: Connection, terms: SessionOptions) -> Result<Session, AttachError> {
        Session::start_until(connection, terms, Instant::now() + JOIN_TIMEOUT)
    }

    /// As [`Session::start`], but gives up at `deadline` if that is earlier than the usual time limit.
    pub fn start_until(
        mut connection: Connection,
        terms: SessionOptions,
        deadline: Instant,
    ) -> Result<Session, AttachError> {
        let deadline = deadline.min(Instant::now() + JOIN_TIMEOUT);
        let release = release(&mut connection, deadline)?;
        let clock = vm_clock(&mut connection, deadline)?;
        let (me, request) = (connection.new_pid(), connection.new_reference());
        let spawn = agent::injection(release, &me, terms);
        connection.send(&message::spawn_request(&request, &me, spawn)?, deadline)?;
        let mut channel = Channel { connection, me, request };
        loop {
            match channel.receive(deadline) {
                Ok(AgentMessage::Joined(joined)) => {
                    return Ok(Session { channel, joined, release, clock, lease: terms.lease });
                }
                Ok(_) => {}
                // The session's process could be spawned, but not the agent's.
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
        self.channel.connection.node()
    }

    /// The node's OTP release.
    pub fn release(&self) -> u32 {
        self.release
    }

    /// Returns the agent's answer to joining.
    pub fn joined(&self) -> &Joined {
        &self.joined
    }

    /// Returns the clock readings from the start of the session.
    pub fn clock(&self) -> VmClock {
        self.clock
    }

    /// The connection, for calls outside of the samples.
    pub fn connection(&mut self) -> &mut Connection {
        &mut self.channel.connection
    }

    /// Requests a sample, without waiting for it. `seq` identifies the answer and must be unique in the session; `files` are
    /// files of the node's host to read. The agent refuses a request while it is working on another.
    pub fn request(&mut self, seq: u64, items: &[&Item], files: &[FileRequest]) -> Result<(), AttachError> {
        self.request_with(seq, items, files, &[])
    }

    /// As [`Session::request`], with explicit items.
    pub fn request_with(
        &mut self,
        seq: u64,
        items: &[&Item],
        files: &[FileRequest],
        explicit: &[ExplicitItem],
    ) -> Result<(), AttachError> {
        let request = agent::sample_request(&self.channel.me, seq, items, files, explicit, ITEM_TIMEOUT);
        self.send(&request)
    }

    /// Waits for the sample with sequence number `seq`. Late answers to earlier requests are dropped.
    pub fn collect(&mut self, seq: u64, deadline: Instant) -> Result<Answer, AttachError> {
        let node = |session: &Session| session.node().to_string();
        loop {
            // An explicit item may take longer than the lease, so the lease is renewed meanwhile.
            let renewal = Instant::now() + self.lease / 3;
            let message = match self.channel.receive(deadline.min(renewal)) {
                Err(AttachError::TimedOut { .. }) if Instant::now() < deadline => {
                    self.send(&agent::renew_request(&self.channel.me))?;
                    continue;
                }
                message => message?,
            };
            match message {
                AgentMessage::Sample(answer) if answer.seq == seq => return Ok(answer),
                AgentMessage::Busy { seq: refused } if refused == seq => {
                    return Err(AttachError::AgentBusy { node: node(self) });
                }
                AgentMessage::BadRequest(reason) => {
                    let what = format!("the agent rejects the request: {reason}");
                    return Err(AttachError::Protocol { peer: node(self), what: printable(&what) });
                }
                _ => {}
            }
        }
    }

    /// Ends the session, and waits until all changes to the node are undone, or until the agent answers that other clients still
    /// use it.
    pub fn leave(mut self, deadline: Instant) -> Result<(), AttachError> {
        let request = agent::leave_request(&self.channel.me);
        self.send(&request)?;
        loop {
            match self.channel.receive(deadline) {
                Ok(AgentMessage::Left { remaining: 1.. }) => return Ok(()),
                Ok(_) => {}
                // The last of our processes on the node has ended.
                Err(AttachError::AgentEnded { .. }) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    fn send(&mut self, request: &Value<'_>) -> Result<(), AttachError> {
        let frame = message::send(&self.channel.me, &self.joined.agent, request)?;
        self.channel.connection.send(&frame, Instant::now() + SEND_TIMEOUT)
    }
}

impl Channel {
    /// Returns the next message from the agent, or an error if the agent has ended.
    fn receive(&mut self, deadline: Instant) -> Result<AgentMessage, AttachError> {
        let node = self.connection.node().to_string();
        loop {
            match self.connection.receive(deadline)? {
                Message::Send { to, payload } if to == self.me => {
                    return AgentMessage::parse(payload)
                        .map_err(|reason| AttachError::BadAnswer { node, reason });
                }
                Message::Exit { to, reason, .. } if to == self.me => {
                    return Err(AttachError::AgentEnded { node, reason: exit_reason(&reason) });
                }
                Message::SpawnReply { request, result: Err(reason) } if request == self.request => {
                    return Err(AttachError::AgentEnded { node, reason: printable(&reason) });
                }
                _ => {}
            }
        }
    }
}

/// Formats `{beamtune, What, Text}`, or any other exit reason.
fn exit_reason(reason: &Document) -> String {
    let term = reason.root();
    match term.tuple_of() {
        Ok([_, what, text]) => {
            let text = text.as_str().map_or_else(|_| text.to_string(), printable);
            format!("{}: {text}", what.as_atom().map_or_else(|_| what.to_string(), printable))
        }
        Err(_) => term.to_string(),
    }
}

/// Reads the node's OTP release, which determines the beam to load.
fn release(connection: &mut Connection, deadline: Instant) -> Result<u32, AttachError> {
    let item = vec![Value::atom("otp_release")];
    let answer = connection.call("erlang", "system_info", item, deadline)?;
    let text = answer.root().to_text();
    text.ok().and_then(|text| text.parse().ok()).ok_or_else(|| AttachError::TooOld {
        peer: connection.node().to_string(),
        missing: "its OTP release is not a number",
    })
}

/// Reads the VM's clock a few times and uses the reading of the shortest call. The clock is read at some point during a call, so
/// the shortest call has the smallest error.
fn vm_clock(connection: &mut Connection, deadline: Instant) -> Result<VmClock, AttachError> {
    const CALLS: usize = 5;
    const MAX_TIME: Duration = Duration::from_millis(500);
    let begin = Instant::now();
    let mut best: Option<(Duration, VmClock)> = None;
    for _ in 0..CALLS {
        let before = Instant::now();
        if best.is_some() && before - begin > MAX_TIME {
            break;
        }
        let answer =
            connection.call("erlang", "monotonic_time", vec![Value::atom("nanosecond")], deadline)?;
        let taken = before.elapsed();
        let vm_ns = answer.root().as_i64();
        let vm_ns = vm_ns.map_err(|reason| bad_answer(connection, reason))?;
        if best.is_none_or(|(shortest, _)| taken < shortest) {
            best = Some((taken, VmClock { at: before + taken / 2, vm_ns }));
        }
    }
    best.map(|(_, clock)| clock)
        .ok_or_else(|| bad_answer(connection, TermError::Malformed { what: "no time", offset: 0 }))
}

fn bad_answer(connection: &Connection, reason: TermError) -> AttachError {
    AttachError::BadAnswer { node: connection.node().to_string(), reason }
}
