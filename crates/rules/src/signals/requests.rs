//! Whether a process that reads from a socket waits for a reply, or for the next request of a client.
//!
//! A process that waits for a reply is delayed by its peer. One that waits for a request is idle. Most servers spend nearly all of their
//! time like that, and handle other messages together with the next request.

use beamtune_model::{Period, ProcessActivity, WaitSample, metrics};

use crate::signals::blocking::{self, MIN_SAMPLES};
use crate::signals::names::NAMES;
use crate::signals::stack;

/// At or above this number, processes that read at the same place are connections of a server, one for each client. (Judgement: a pool of
/// clients of one peer is smaller.)
const MANY_READERS: f64 = 20.0;

/// What a process that reads from a socket waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reads {
    /// The reply to its own request.
    Answer,
    /// The next request of its client.
    Request,
    /// Either of them.
    Unknown,
}

/// Returns what a process that reads from a socket waits for; `None` if it does not read.
pub(crate) fn reads(period: &Period, process: &ProcessActivity, stack: &[String]) -> Option<Reads> {
    let any = |names: &[String]| stack.iter().any(|function| stack::begins(function, names));
    if !any(&NAMES.reads) && !any(&NAMES.clients) {
        return None;
    }
    let row = process.row.as_ref();
    let started = row.and_then(|row| row.initial_call.as_deref());
    let parent = row.and_then(|row| row.parent.as_deref()).and_then(|parent| period.process(parent));
    let starter = parent.and_then(|parent| parent.row.as_ref()?.initial_call.as_deref());
    let is_servers = || {
        any(&NAMES.servers)
            || started.into_iter().chain(starter).any(|call| stack::begins(call, &NAMES.servers))
    };
    Some(if any(&NAMES.clients) {
        Reads::Answer
    } else if is_servers() {
        Reads::Request
    } else if is_asking(stack) {
        Reads::Answer
    } else if accepts_too(period, stack) || readers_like(period, stack) >= MANY_READERS {
        Reads::Request
    } else {
        Reads::Unknown
    })
}

/// Whether processes with this stack certainly wait for a reply: they read within a callback, or within a known client library.
pub(crate) fn asks(stack: &[String]) -> bool {
    let any = |names: &[String]| stack.iter().any(|function| stack::begins(function, names));
    any(&NAMES.clients) || any(&NAMES.reads) && !any(&NAMES.servers) && is_asking(stack)
}

/// Whether a process reads inside a callback, while it handles a message. (`handle_continue` does not count: a server may run its own loop
/// there.)
fn is_asking(stack: &[String]) -> bool {
    let continues = stack.iter().any(|function| function.starts_with("gen_server:try_handle_continue/"));
    stack::is_in_callback(stack) && !continues
}

/// Whether other processes accept connections within a function of the program that is also on this stack. Then this process accepts a
/// connection and then serves it.
fn accepts_too(period: &Period, stack: &[String]) -> bool {
    let accepts =
        |place: &&WaitSample| place.stack.first().is_some_and(|function| stack::is_accept(function));
    let mut acceptors = period.wait_samples.stacks.iter().filter(accepts).flat_map(|place| &place.stack);
    acceptors.any(|function| stack::is_of_program(function) && stack.contains(function))
}

/// Estimates how many processes read at the same place.
fn readers_like(period: &Period, stack: &[String]) -> f64 {
    let place = |stack: &[String]| Some(stack::with_caller(stack.first()?, stack));
    let own = place(stack);
    let alike =
        period.wait_samples.stacks.iter().filter(|other| other.pid.is_none() && place(&other.stack) == own);
    let seen = alike.fold(0, |sum: i64, place| sum.saturating_add(place.count));
    let total = period.stat(&metrics::PROCESS_COUNT, "").map_or(0.0, |stat| stat.mean());
    if seen < MIN_SAMPLES { 0.0 } else { blocking::of_all(period, total, seen) }
}
