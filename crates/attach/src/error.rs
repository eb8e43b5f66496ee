//! What can go wrong between a user's TARGET and a sample, and what the user can do about it.

use std::time::Duration;

use crate::etf::{EncodeError, TermError};

/// Every failure of attaching. The message ends with the next step where there is one.
///
/// Text that came from outside (names, reasons) holds no control characters and is cut short.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// TARGET has none of the known forms.
    #[error("\"{text}\" names no node ({reason}): give NAME@HOST, NAME or HOST:PORT")]
    BadTarget {
        /// What was given.
        text: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// `ERL_EPMD_PORT` holds no port.
    #[error("ERL_EPMD_PORT is \"{text}\", which is no port: set it to 1 to 65535, or unset it for 4369")]
    BadEpmdPort {
        /// What it holds.
        text: String,
    },
    /// No address is known for a host.
    #[error(
        "the host {host} is not known here ({reason}): give an address, as in NAME@127.0.0.1 or \
         127.0.0.1:PORT"
    )]
    UnknownHost {
        /// The host.
        host: String,
        /// The resolver's answer.
        reason: String,
    },
    /// Nothing answers at EPMD's port.
    #[error(
        "no EPMD answers at {address} ({reason}), so the node's port cannot be looked up. Is the node \
         distributed at all (started with -name or -sname)? If its port is known, give HOST:PORT; if its \
         EPMD has another port, set ERL_EPMD_PORT"
    )]
    EpmdDown {
        /// Address and port that were tried.
        address: String,
        /// The operating system's answer.
        reason: String,
    },
    /// Something answers at EPMD's port, but not as EPMD does.
    #[error(
        "what answers at {address} is no EPMD ({what}): set ERL_EPMD_PORT to EPMD's port, or give HOST:PORT"
    )]
    EpmdGarbled {
        /// Address and port.
        address: String,
        /// What was wrong with the answer.
        what: &'static str,
    },
    /// EPMD does not know the name.
    #[error("EPMD at {address} knows no node {name:?}; it knows {}", known_names(known))]
    NoSuchNode {
        /// The name before the `@`.
        name: String,
        /// Address and port of EPMD.
        address: String,
        /// The names that it knows.
        known: Vec<String>,
    },
    /// The node calls itself something else.
    #[error("the node there is called {found}, not {wanted}: use {found}")]
    NameMismatch {
        /// What the user asked for.
        wanted: String,
        /// The node's own name.
        found: String,
    },
    /// Nothing listens at the node's port.
    #[error("{peer} cannot be reached: {reason}. If the node has just stopped or restarted, try again")]
    Unreachable {
        /// The node and its address.
        peer: String,
        /// The operating system's answer.
        reason: String,
    },
    /// Something did not happen in time.
    #[error("{}", timed_out(peer, *step, *after))]
    TimedOut {
        /// What was waited for.
        step: Step,
        /// The node, or EPMD, and its address.
        peer: String,
        /// How long it was given.
        after: Duration,
    },
    /// The node rejects our cookie.
    #[error(
        "{node} rejects the cookie{}: give the node's own with --cookie-file FILE or BEAMTUNE_COOKIE, or \
         name the node by its OS process id, then its cookie is looked for where it was started",
        from(origin)
    )]
    WrongCookie {
        /// The node.
        node: String,
        /// Where the cookie was found.
        origin: String,
    },
    /// The node accepted our cookie but does not know it itself: something else listens there.
    #[error(
        "{node} could not prove that it knows the cookie; nothing was sent to it. Is something \
         else listening on its port?"
    )]
    Impostor {
        /// The name it gave.
        node: String,
    },
    /// The node only lets certain hosts or nodes in.
    #[error(
        "{peer} lets only certain nodes connect (net_kernel:allow/1): add its own host to the list, since beamtune \
         comes as beamtune_1 to beamtune_8 of that host, or ask its operator"
    )]
    NotAllowed {
        /// The node and its address.
        peer: String,
    },
    /// The node says that it has a connection with our name already.
    #[error(
        "{peer} says that a node of our name is connected already: try again in a minute, when it has \
         noticed that the old one is gone"
    )]
    NameTaken {
        /// The node and its address.
        peer: String,
    },
    /// The node is connecting to our name itself.
    #[error("{peer} is busy with another connection of the same name: try again")]
    Busy {
        /// The node and its address.
        peer: String,
    },
    /// The node speaks TLS.
    #[error(
        "{peer} speaks TLS (-proto_dist inet_tls), which beamtune does not support yet: record what the host \
         shows instead, or start the node with plain distribution on the loopback interface"
    )]
    TlsNeeded {
        /// The node and its address.
        peer: String,
    },
    /// The connection ended before the node said anything.
    #[error(
        "{peer} closed the connection without a word: is that the distribution port of an Erlang node, \
         without TLS (-proto_dist)? The node's own log may say why"
    )]
    ClosedEarly {
        /// The node and its address.
        peer: String,
    },
    /// The node lacks what attaching needs.
    #[error("{peer} is too old ({missing}): OTP 23 is the oldest release that can be attached to")]
    TooOld {
        /// The node and its address.
        peer: String,
        /// What it does not offer.
        missing: &'static str,
    },
    /// The peer broke the protocol; it is not trusted any further.
    #[error("{peer} broke the distribution protocol: {what}")]
    Protocol {
        /// The node and its address.
        peer: String,
        /// How.
        what: String,
    },
    /// The connection ended after it was established.
    #[error("the connection to {node} is lost ({reason}): the node has stopped, restarted, or dropped us")]
    Lost {
        /// The node.
        node: String,
        /// What the operating system or the node said.
        reason: String,
    },
    /// A term of ours cannot be put on the wire.
    #[error(transparent)]
    Unsendable(#[from] EncodeError),
    /// A function called on the node did not return.
    #[error("{function} on {node} ended with {reason}")]
    CallFailed {
        /// The node.
        node: String,
        /// `Module:Function/Arity`.
        function: String,
        /// Class and reason, as Erlang prints them.
        reason: String,
    },
    /// A call's answer is not of the expected form.
    #[error("the answer of {node} makes no sense: {reason}")]
    BadAnswer {
        /// The node.
        node: String,
        /// Where it differs.
        reason: TermError,
    },
    /// The agent could not be started.
    #[error("the agent could not be started on {node}: {reason}")]
    AgentRefused {
        /// The node.
        node: String,
        /// Its answer.
        reason: String,
    },
    /// The agent has ended without being asked to.
    #[error("the agent on {node} has ended ({reason}); what it had switched on is off again")]
    AgentEnded {
        /// The node.
        node: String,
        /// The last words of its session.
        reason: String,
    },
    /// The agent is still at an earlier sample.
    #[error("the agent on {node} is still busy with an earlier sample")]
    AgentBusy {
        /// The node.
        node: String,
    },
    /// No cookie was found anywhere.
    #[error(
        "no cookie was found; looked at {}. Give it with --cookie-file FILE or BEAMTUNE_COOKIE",
        looked_at.join(", ")
    )]
    NoCookie {
        /// The places, in order.
        looked_at: Vec<String>,
    },
    /// The node's cookie is in a file that we may not read.
    #[error(
        "the cookie is in {path}, which cannot be read ({reason}): run beamtune as {owner} or as root, or give \
         the cookie with --cookie-file FILE or BEAMTUNE_COOKIE"
    )]
    CookieUnreadable {
        /// The file.
        path: String,
        /// Whose it is.
        owner: String,
        /// The operating system's answer.
        reason: String,
    },
    /// A place holds no usable cookie. The text of it is not repeated.
    #[error("{origin} holds no usable cookie: {reason}")]
    BadCookie {
        /// The place.
        origin: String,
        /// What is wrong.
        reason: &'static str,
    },
}

/// What was waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The host's address.
    Resolve,
    /// EPMD's answer.
    Epmd,
    /// The TCP connection.
    Connect,
    /// The node's words in the handshake.
    Handshake,
    /// A message.
    Receive,
    /// Room in the connection's buffers.
    Send,
}

fn timed_out(peer: &str, step: Step, after: Duration) -> String {
    let seconds = after.as_secs_f64();
    match step {
        Step::Resolve => {
            format!("the address of {peer} was not found within {seconds:.1} s: give it as a number")
        }
        Step::Epmd => format!(
            "{peer} accepts connections but did not answer within {seconds:.1} s: is it stopped (state T in ps)? \
             If the node's port is known, give HOST:PORT"
        ),
        Step::Connect => {
            format!("{peer} was not reached within {seconds:.1} s: does a firewall drop the packets?")
        }
        Step::Handshake => format!(
            "{peer} accepts connections but said nothing for {seconds:.1} s: is the VM stopped (SIGSTOP, state T \
             in ps), starved of CPU, or hanging?"
        ),
        Step::Receive => format!("{peer} did not answer within {seconds:.1} s"),
        Step::Send => format!("{peer} took nothing in for {seconds:.1} s: is the VM stopped or overloaded?"),
    }
}

fn known_names(known: &[String]) -> String {
    /// More names than this only hide the message.
    const MOST_NAMES: usize = 20;
    match known {
        [] => "none: is the node distributed (started with -name or -sname)?".to_owned(),
        _ if known.len() > MOST_NAMES => {
            format!("{} and {} more", known[..MOST_NAMES].join(", "), known.len() - MOST_NAMES)
        }
        _ => known.join(", "),
    }
}

fn from(origin: &str) -> String {
    if origin.is_empty() { String::new() } else { format!(" (from {origin})") }
}

/// Text from outside, fit for a message: nothing that commands a terminal, and not long.
pub(crate) fn printable(text: &str) -> String {
    const MOST_CHARACTERS: usize = 300;
    text.chars()
        .take(MOST_CHARACTERS)
        .flat_map(|character| {
            let escaped = character.is_control().then(|| character.escape_unicode());
            let plain = escaped.is_none().then_some(character);
            escaped.into_iter().flatten().chain(plain)
        })
        .collect()
}
