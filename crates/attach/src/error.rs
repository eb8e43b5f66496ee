//! What can go wrong between a user's TARGET and a sample, and what the user can do about it.

use std::time::Duration;

use beamtune_model::text::is_hidden;

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
    /// The node is in a network namespace that we may not enter.
    #[error(
        "process {pid} has a network of its own, which cannot be entered from here ({reason}): run beamtune as root, or \
         inside of that network: nsenter -t {pid} {nsenter} beamtune …, docker run --network container:NAME …, \
         kubectl debug --target=CONTAINER …"
    )]
    NetworkClosed {
        /// The node's process, by its number on this host.
        pid: u32,
        /// The operating system's answer.
        reason: String,
        /// Options of nsenter(1) that lead there.
        nsenter: &'static str,
    },
    /// The process in whose network namespace the node was is gone.
    #[error("process {pid}, in whose network the node was, has ended: beamtune nodes lists those that run")]
    NetworkGone {
        /// The process, by its number on this host.
        pid: u32,
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
    /// All of our names are in use there.
    #[error(
        "{names} beamtunes are connected to {peer} already, as many as there may be: wait until one of them has ended. If they \
         have been cut off, the node notices within a minute or so (net_ticktime): try again then"
    )]
    NamesTaken {
        /// The node and its address.
        peer: String,
        /// How many there are.
        names: u32,
    },
    /// The node is connecting to our name itself.
    #[error("{peer} is busy with another connection of the same name: try again")]
    Busy {
        /// The node and its address.
        peer: String,
    },
    /// The node speaks TLS, and we did not.
    #[error(
        "{peer} speaks TLS (-proto_dist inet_tls): give --tls-ca FILE with the certificate that has issued the node's \
         (cacertfile of the client's options there), and, if the node wants to see one (verify_peer), --tls-cert FILE \
         and --tls-key FILE"
    )]
    TlsNeeded {
        /// The node and its address.
        peer: String,
    },
    /// We speak TLS, and the node does not.
    #[error("{peer} speaks plain distribution, without TLS: leave out --tls and what belongs to it")]
    TlsUnexpected {
        /// The node and its address.
        peer: String,
    },
    /// What answers speaks neither TLS nor the distribution protocol.
    #[error("what answers at {peer} speaks no TLS: is that the distribution port of an Erlang node?")]
    NoTls {
        /// The node and its address.
        peer: String,
    },
    /// The node allows only versions of TLS that have been withdrawn.
    #[error(
        "{peer} allows no TLS 1.2 or 1.3, only versions that have been withdrawn for their weakness (RFC 8996): \
         add 'tlsv1.2' to the versions in its options (ssl_dist_optfile)"
    )]
    TlsTooOld {
        /// The node and its address.
        peer: String,
    },
    /// The handshake of TLS has failed for another reason.
    #[error("TLS with {peer} has failed: {what}. The node's own log may say more")]
    TlsFailed {
        /// The node and its address.
        peer: String,
        /// What happened.
        what: String,
    },
    /// Nobody who is trusted has issued the node's certificate.
    #[error(
        "the certificate of {peer}, {subject}, is issued by {issuer}, whom nothing that was given trusts{}: give \
         the certificate of that issuer, or the node's own (certfile in its options), with --tls-ca FILE",
        remarked(remarks)
    )]
    CertificateUntrusted {
        /// The node and its address.
        peer: String,
        /// Whose certificate it is.
        subject: String,
        /// The last issuer of the chain.
        issuer: String,
        /// What of the node's own files could not be used.
        remarks: Vec<String>,
    },
    /// The node's certificate is for other hosts.
    #[error(
        "the certificate of {peer} is for {}, not for {wanted}: if it is the node that you mean, give --tls-server-name \
         with a name that the certificate is for",
        listed(names)
    )]
    CertificateForOthers {
        /// The node and its address.
        peer: String,
        /// The host that was connected to.
        wanted: String,
        /// The hosts in the certificate.
        names: Vec<String>,
    },
    /// A certificate's time is over, or has not come.
    #[error(
        "the certificate of {peer} is no good: {subject}: {when}, says the clock of this host. Renew the certificate \
         (other nodes that check it cannot connect either), or set the clock"
    )]
    CertificateOutdated {
        /// The node and its address.
        peer: String,
        /// Whose certificate it is: the node's, or an issuer's.
        subject: String,
        /// Since or until when.
        when: String,
    },
    /// The node's certificate is of a kind that cannot be checked.
    #[error(
        "the certificate of {peer}, {subject}, cannot be checked: {what}. Give the node's own certificate (certfile in its \
         options) with --tls-ca FILE: then what it shows is compared with that"
    )]
    CertificateUnusable {
        /// The node and its address.
        peer: String,
        /// Whose certificate it is.
        subject: String,
        /// What is in the way.
        what: String,
    },
    /// The node wants to see a certificate, and we have none.
    #[error(
        "{peer} wants to see a certificate (verify_peer){}{}: give one that it trusts with --tls-cert FILE and --tls-key \
         FILE, such as that of another node of its cluster",
        issued_by(issuers),
        remarked(remarks)
    )]
    CertificateDemanded {
        /// The node and its address.
        peer: String,
        /// Issuers that it takes, as far as it says.
        issuers: Vec<String>,
        /// What of the node's own files could not be used.
        remarks: Vec<String>,
    },
    /// The node does not take our certificate.
    #[error(
        "{peer} refuses the certificate {subject}, issued by {issuer} ({why}): it must be in date, for clients too (extended \
         key usage), for this host if the node lets only certain hosts in (net_kernel:allow/1), and issued by whom the node \
         trusts (cacertfile of the server's options there){}",
        among(issuers)
    )]
    CertificateRefused {
        /// The node and its address.
        peer: String,
        /// Whose it is.
        subject: String,
        /// Who has issued it.
        issuer: String,
        /// Issuers that the node takes, as far as it says.
        issuers: Vec<String>,
        /// The name of its alert.
        why: String,
    },
    /// A file of certificates or keys cannot be used.
    #[error("{path} cannot be used for TLS: {what}")]
    BadTlsFile {
        /// The file.
        path: String,
        /// What is wrong.
        what: String,
    },
    /// No certificate can be for this name.
    #[error("no certificate can be for \"{name}\": give --tls-server-name with a host's name or an address")]
    BadServerName {
        /// The name.
        name: String,
    },
    /// The connection ended before the node said anything of the distribution's handshake.
    #[error("{}", closed_early(peer, *over_tls))]
    ClosedEarly {
        /// The node and its address.
        peer: String,
        /// Whether TLS was spoken.
        over_tls: bool,
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
    #[error(
        "{peer} broke the distribution protocol: {what}. If that is no port of an Erlang node, give the node's \
         (epmd -names lists them)"
    )]
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
    /// The node cannot start the process that asks it.
    #[error(
        "{node} can start no process (system_limit): its process table is full; end processes there, or start it with a larger +P"
    )]
    ProcessTableFull {
        /// The node.
        node: String,
    },
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
    /// The rest of the handshake of TLS.
    Tls,
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
        Step::Tls => format!(
            "{peer} has begun TLS but was not ready with it within {seconds:.1} s: is the VM starved of CPU, or does \
             something between it and here hold packets back?"
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

fn closed_early(peer: &str, over_tls: bool) -> String {
    if over_tls {
        format!(
            "{peer} closed the connection in the handshake of TLS or right behind it, without a reason: is that the \
             distribution port of an Erlang node with TLS (-proto_dist inet_tls)? The node's own log may say why"
        )
    } else {
        format!(
            "{peer} closed the connection without a word: is that the distribution port of an Erlang node? The node's \
             own log may say why"
        )
    }
}

fn listed(names: &[String]) -> String {
    /// More names than this only hide the message.
    const MOST_NAMES: usize = 10;
    match names {
        [] => "no host at all".to_owned(),
        _ if names.len() > MOST_NAMES => {
            format!("{} and {} more", names[..MOST_NAMES].join(", "), names.len() - MOST_NAMES)
        }
        _ => names.join(", "),
    }
}

fn issued_by(issuers: &[String]) -> String {
    if issuers.is_empty() { String::new() } else { format!(", issued by {}", issuers.join(" or ")) }
}

fn among(issuers: &[String]) -> String {
    if issuers.is_empty() { String::new() } else { format!(": {}", issuers.join(" or ")) }
}

fn remarked(remarks: &[String]) -> String {
    if remarks.is_empty() { String::new() } else { format!(" (of its own files: {})", remarks.join("; ")) }
}

/// Text from outside, fit for a message: nothing that commands a terminal, and not long.
pub(crate) fn printable(text: &str) -> String {
    const MOST_CHARACTERS: usize = 300;
    text.chars()
        .take(MOST_CHARACTERS)
        .flat_map(|character| {
            let escaped = is_hidden(character).then(|| character.escape_unicode());
            let plain = escaped.is_none().then_some(character);
            escaped.into_iter().flatten().chain(plain)
        })
        .collect()
}
