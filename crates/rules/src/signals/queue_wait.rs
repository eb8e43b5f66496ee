//! Where a process waits while messages stay in its queue.

use beamtune_model::{Period, ProcessActivity};

use crate::signals::chains;
use crate::signals::stack;

/// A process that ran or was runnable in this share of its samples is busy (judgement).
const BUSY_SHARE: f64 = 0.5;

/// What a process waits in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// A send: the peer or the port does not accept the data.
    Send,
    /// A call, or a wait within the handling of one message.
    Within,
    /// A receive of the program that matches none of the queued messages.
    Receive,
}

/// Where a process waits although it has messages.
#[derive(Debug)]
pub(crate) struct QueueWait {
    pub cause: Cause,
    /// The function, with the program's own function that called it.
    pub place: String,
    /// What it waits for, if known.
    pub target: Option<String>,
    /// Number of samples at this place, and of all samples; `None` if the process was sampled once.
    samples: Option<(i64, i64)>,
}

impl QueueWait {
    /// Returns where a process waits; `None` if it is busy, or about to receive the next message.
    pub fn of(period: &Period, process: &ProcessActivity) -> Option<QueueWait> {
        if stack::runnable_share(process).is_some_and(|share| share >= BUSY_SHARE) {
            return None;
        }
        let status = process.row.as_ref()?.status.as_deref();
        // The stack of a running process does not show where it waits.
        if process.wait_stacks.is_empty() && !matches!(status, Some("waiting" | "suspended")) {
            return None;
        }
        let (at, stack) = stack::waiting_function(process)?;
        let cause = if stack::is_send(at) {
            Cause::Send
        } else if stack::is_call(at) || stack::is_in_callback(stack) && stack::is_in_midst(stack) {
            Cause::Within
        } else if stack::is_loop(at) || stack.first().is_some_and(|function| stack::is_loop(function)) {
            return None;
        } else {
            Cause::Receive
        };
        let count = |stacks: &[(Vec<String>, i64)]| {
            stacks.iter().fold(0, |sum: i64, (_, looks)| sum.saturating_add(*looks))
        };
        let there = process.wait_stacks.iter().find(|(other, _)| other == stack).map(|(_, looks)| *looks);
        let all = count(&process.wait_stacks).saturating_add(count(&process.run_stacks));
        Some(QueueWait {
            cause,
            place: stack::with_next_caller(stack)
                .filter(|_| stack.len() > 1)
                .unwrap_or_else(|| at.to_owned()),
            target: chains::waits_for(period, &process.pid).map(|pid| period.title_of(pid)),
            samples: there.map(|there| (there, all)),
        })
    }

    /// Formats the wait: `waits in gen:do_call/4, called by shop:ask/1, for shop_db (<0.9.0>), in 9 of 10 samples`.
    pub fn sentence(&self) -> String {
        let waits = match self.cause {
            Cause::Send => "blocked in the send",
            Cause::Within => "waits in",
            Cause::Receive => "waits with messages queued in",
        };
        let target = self.target.as_ref().map_or(String::new(), |target| format!(", for {target}"));
        let samples =
            self.samples.map_or(String::new(), |(there, all)| format!(", in {there} of {all} samples"));
        format!("{waits} {}{target}{samples}", self.place)
    }
}
