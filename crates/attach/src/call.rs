//! Calls a function on the node and waits for its result.
//!
//! The node spawns `erpc:execute_call/4`, which calls the function and exits with the result as its exit reason. A link delivers
//! that reason to us. So calls do not depend on the node's single `rex` process, which may be busy. They leave nothing behind if
//! beamtune ends before the call does. Source: lib/kernel/src/erpc.erl (`call/5`), the same in OTP 23 to 29.

use std::time::{Duration, Instant};

use crate::connection::Connection;
use crate::error::{AttachError, printable};
use crate::etf::{Document, Reference, Term, TermError, Value};
use crate::message::{self, Message, Spawn};

/// Reason for which a spawn fails if the process table is full.
pub(crate) const TABLE_FULL: &str = "system_limit";
/// Pause before a failed spawn is retried. Each failure may add a line to the node's log.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

impl Connection {
    /// Calls `module:function(arguments...)` in a new process of the node, and returns its result.
    ///
    /// At the deadline, the call fails, but the function continues to run on the node. If the process table is full, the spawn is
    /// retried until the deadline.
    pub fn call(
        &mut self,
        module: &str,
        function: &str,
        arguments: Vec<Value<'_>>,
        deadline: Instant,
    ) -> Result<Document, AttachError> {
        let name = format!("{module}:{function}/{}", arguments.len());
        let (me, request, result) = (self.new_pid(), self.new_reference(), self.new_reference());
        let arguments =
            vec![Value::from(&result), Value::atom(module), Value::atom(function), Value::List(arguments)];
        let spawn = Spawn { module: "erpc", function: "execute_call", arguments };
        let spawn = message::spawn_request(&request, &me, spawn)?;
        self.send(&spawn, deadline)?;
        let failed = |node: &str, reason: String| AttachError::CallFailed {
            node: node.to_owned(),
            function: printable(&name),
            reason,
        };
        loop {
            let answer = self.receive_matching(deadline, |message| match message {
                Message::SpawnReply { request: found, .. } => *found == request,
                Message::Exit { to, .. } => *to == me,
                _ => false,
            })?;
            match answer {
                // Nothing was spawned, so it is safe to retry: slots of the table become free as processes exit.
                Message::SpawnReply { result: Err(reason), .. } if reason == TABLE_FULL => {
                    if Instant::now() + RETRY_PAUSE >= deadline {
                        return Err(AttachError::ProcessTableFull { node: self.node().to_string() });
                    }
                    std::thread::sleep(RETRY_PAUSE);
                    self.send(&spawn, deadline)?;
                }
                Message::SpawnReply { result: Err(reason), .. } => {
                    return Err(failed(self.node(), printable(&reason)));
                }
                Message::Exit { reason, .. } => {
                    let returned = outcome(reason.root(), &result);
                    return match returned {
                        Ok(Outcome::Returned) => reason.narrow(third).map_err(|reason| {
                            AttachError::BadAnswer { node: self.node().to_string(), reason }
                        }),
                        Ok(Outcome::Failed(reason)) => Err(failed(self.node(), reason)),
                        Err(reason) => Err(AttachError::BadAnswer { node: self.node().to_string(), reason }),
                    };
                }
                // The process was spawned.
                _ => {}
            }
        }
    }
}

enum Outcome {
    Returned,
    Failed(String),
}

/// Parses an exit reason: `{Reference, return, Value}`, `{Reference, throw | exit, Reason}` or `{Reference, error, Reason,
/// Stack}`. Any other reason means that the process was killed.
fn outcome(reason: Term<'_>, reference: &Reference) -> Result<Outcome, TermError> {
    let ours = reason.tuple().ok().filter(|elements| {
        elements
            .clone()
            .next()
            .is_some_and(|first| first.as_reference().is_ok_and(|found| found == *reference))
    });
    let Some(mut elements) = ours else { return Ok(Outcome::Failed(reason.to_string())) };
    let class = elements.nth(1);
    Ok(match (class.map(Term::as_atom).transpose()?, elements.next()) {
        (Some("return"), Some(_)) => Outcome::Returned,
        (Some(class), Some(reason)) => Outcome::Failed(format!("{class}: {reason}")),
        _ => return Err(TermError::Malformed { what: "a call's result", offset: reason.offset() }),
    })
}

fn third(result: Term<'_>) -> Result<Term<'_>, TermError> {
    let [_, _, value] = result.tuple_of()?;
    Ok(value)
}
