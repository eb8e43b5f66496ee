//! Whether a process that reads from a socket waits for an answer, or for the next request of a client.
//!
//! The first is delayed by its peer. The second is idle: most servers spend nearly all of their time so, and take what else has arrived
//! meanwhile with the next request.

use beamtune_model::{Period, ProcessUse, Stand, metrics};

use crate::signals::blocking::{self, FEWEST};
use crate::signals::names::NAMES;
use crate::signals::stack;

/// This many processes that read in the same place are connections of a server, one for each client (judgement: a pool that asks one peer
/// is smaller).
const MANY_READERS: f64 = 20.0;

/// What a process that reads from a socket waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reads {
    /// The answer to its request.
    Answer,
    /// The next request of its client.
    Request,
    /// One of the two.
    Unknown,
}

/// `None` for a process that does not read from a socket.
pub(crate) fn reads(period: &Period, process: &ProcessUse, stack: &[String]) -> Option<Reads> {
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

/// Whether processes with this stack certainly wait for an answer: they read within a callback, or below a known client.
pub(crate) fn asks(stack: &[String]) -> bool {
    let any = |names: &[String]| stack.iter().any(|function| stack::begins(function, names));
    any(&NAMES.clients) || any(&NAMES.reads) && !any(&NAMES.servers) && is_asking(stack)
}

/// Whether it reads inside a callback: for a message that it handles. (What a server does after its start is its own loop.)
fn is_asking(stack: &[String]) -> bool {
    let continues = stack.iter().any(|function| function.starts_with("gen_server:try_handle_continue/"));
    stack::is_in_callback(stack) && !continues
}

/// Whether other processes wait for the next connection in a function of the program that this one is in too: it accepts, and then serves.
fn accepts_too(period: &Period, stack: &[String]) -> bool {
    let accepts = |place: &&Stand| place.stack.first().is_some_and(|function| stack::is_accept(function));
    let mut acceptors = period.stands.places.iter().filter(accepts).flat_map(|place| &place.stack);
    acceptors.any(|function| stack::is_of_program(function) && stack.contains(function))
}

/// Estimated number of all processes that read in the same place.
fn readers_like(period: &Period, stack: &[String]) -> f64 {
    let place = |stack: &[String]| Some(stack::with_caller(stack.first()?, stack));
    let own = place(stack);
    let alike = period.stands.places.iter().filter(|other| other.pid.is_none() && place(&other.stack) == own);
    let seen = alike.fold(0, |sum: i64, place| sum.saturating_add(place.count));
    let total = period.stat(&metrics::PROCESS_COUNT, "").map_or(0.0, |stat| stat.mean());
    if seen < FEWEST { 0.0 } else { blocking::of_all(period, total, seen) }
}
