//! Calling a function on the node, and waiting for what it returns.
//!
//! The node is asked to spawn `erpc:execute_call/4`, which calls the function and ends with the result as its
//! exit reason; a link brings that back. So nothing depends on the node's one `rex` process, which may be
//! busy, and nothing is left there if we are gone. Source: lib/kernel/src/erpc.erl (`call/5`), the same in
//! OTP 23 to 29.

use std::time::{Duration, Instant};

use crate::connection::Connection;
use crate::error::{AttachError, printable};
use crate::etf::{Document, Reference, Term, TermError, Value};
use crate::message::{self, Message, Spawn};

/// Why nothing can be started.
pub(crate) const TABLE_FULL: &str = "system_limit";
/// Each time in vain may be a line in the log of the node.
const ASK_AGAIN: Duration = Duration::from_secs(1);

impl Connection {
    /// Calls `module:function(arguments...)` in a new process of the node. Yields what it returns.
    ///
    /// At the deadline the answer is given up; the function itself runs to its end. Where the process table is full, a place in it is waited
    /// for until then.
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
                // Nothing was started, so it can be asked for again: where clients come and go, places in the table become free.
                Message::SpawnReply { result: Err(reason), .. } if reason == TABLE_FULL => {
                    if Instant::now() + ASK_AGAIN >= deadline {
                        return Err(AttachError::ProcessTableFull { node: self.node().to_string() });
                    }
                    std::thread::sleep(ASK_AGAIN);
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

/// `{Reference, return, Value}`, `{Reference, throw | exit, Reason}`, `{Reference, error, Reason, Stack}`, or
/// the reason for which the process was ended from outside.
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
