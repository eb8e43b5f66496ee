//! Errors of each step, from parsing TARGET to sampling. Each message says what the user can do.

use std::time::Duration;

use beamtune_model::text::is_hidden;

use crate::etf::{EncodeError, TermError};

/// Any failure to attach to a node or to sample it. The message ends with what to do next, if anything can be done.
///
/// Text from outside (names, reasons) is truncated and contains no control characters.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// TARGET has an unknown form.
    #[error("invalid target \"{text}\" ({reason}): give NAME@HOST, NAME or HOST:PORT")]
    BadTarget {
        /// The text of TARGET.
        text: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// `ERL_EPMD_PORT` is not a port number.
    #[error("ERL_EPMD_PORT is \"{text}\", not a port: set it to 1 to 65535, or unset it to use 4369")]
    BadEpmdPort {
        /// The value of the variable.
        text: String,
    },
    /// A host name does not resolve.
    #[error("cannot resolve host {host} ({reason}): give an address, as in NAME@127.0.0.1 or 127.0.0.1:PORT")]
    UnknownHost {
        /// The host.
        host: String,
        /// The resolver's answer.
        reason: String,
    },
    /// Nothing answers at EPMD's port.
    #[error(
        "no EPMD answers at {address} ({reason}), so the node's port is unknown. Is the node \
         distributed (started with -name or -sname)? If you know its port, give HOST:PORT; if its \
         EPMD listens on another port, set ERL_EPMD_PORT"
    )]
    EpmdDown {
        /// Address and port that were tried.
        address: String,
        /// The operating system's answer.
        reason: String,
    },
    /// Something other than EPMD answers at EPMD's port.
    #[error(
        "{address} answers, but is not EPMD ({what}): set ERL_EPMD_PORT to EPMD's port, or give HOST:PORT"
    )]
    NotEpmd {
        /// Address and port.
        address: String,
        /// What is wrong with the answer.
        what: &'static str,
    },
    /// No node with this name is registered with EPMD.
    #[error("EPMD at {address} has no node {name:?}; registered: {}", known_names(known))]
    NoSuchNode {
        /// The name before the `@`.
        name: String,
        /// Address and port of EPMD.
        address: String,
        /// The registered names.
        known: Vec<String>,
    },
    /// The node has another name.
    #[error("the node at this address is {found}, not {wanted}: use {found}")]
    NameMismatch {
        /// The name that the user gave.
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
    /// The node is in a network namespace that beamtune may not enter.
    #[error(
        "process {pid} is in another network namespace, which cannot be entered ({reason}): run beamtune as root, or \
         inside that namespace: nsenter -t {pid} {nsenter} beamtune …, docker run --network container:NAME …, \
         kubectl debug --target=CONTAINER …"
    )]
    NetworkClosed {
        /// Process id of the node on this host.
        pid: u32,
        /// The operating system's answer.
        reason: String,
        /// The options with which nsenter(1) enters the namespace.
        nsenter: &'static str,
    },
    /// The process in whose network namespace the node was has exited.
    #[error(
        "process {pid}, in whose network namespace the node was, has exited: list nodes with `beamtune nodes`"
    )]
    NetworkGone {
        /// Process id on this host.
        pid: u32,
    },
    /// A step took too long.
    #[error("{}", timed_out(peer, *step, *after))]
    TimedOut {
        /// The step.
        step: Step,
        /// The node, or EPMD, and its address.
        peer: String,
        /// The time allowed.
        after: Duration,
    },
    /// The node rejects our cookie.
    #[error(
        "{node} rejects the cookie{}: give the node's cookie with --cookie-file FILE or BEAMTUNE_COOKIE, or \
         give the node's OS process id, so that its cookie is found in its arguments, environment or home directory",
        from(origin)
    )]
    WrongCookie {
        /// The node.
        node: String,
        /// Where the cookie was found.
        origin: String,
    },
    /// The peer accepted our cookie but could not prove that it knows the cookie itself, so it is not the node.
    #[error(
        "{node} does not know its own cookie, so another program may be listening on its port; beamtune \
         sent nothing to it"
    )]
    Impostor {
        /// The name that the peer gave.
        node: String,
    },
    /// The node allows only certain hosts or nodes to connect.
    #[error(
        "{peer} allows only certain nodes to connect (net_kernel:allow/1): add the node's own host to that list, since beamtune \
         connects as beamtune_1 to beamtune_8 of that host, or ask the node's operator"
    )]
    NotAllowed {
        /// The node and its address.
        peer: String,
    },
    /// The node already has a connection with our name.
    #[error(
        "{peer} already has a connection with our name: try again in a minute, when the node has noticed \
         that the old connection is gone"
    )]
    NameTaken {
        /// The node and its address.
        peer: String,
    },
    /// All of our names are in use on the node.
    #[error(
        "{peer} already has {names} connections from beamtune, the maximum: wait until one of them ends. If their \
         beamtune died, the node notices within about a minute (net_ticktime); then try again"
    )]
    NamesTaken {
        /// The node and its address.
        peer: String,
        /// The number of names.
        names: u32,
    },
    /// The node is itself connecting to a node with our name.
    #[error("{peer} is busy with another connection of the same name: try again")]
    Busy {
        /// The node and its address.
        peer: String,
    },
    /// The node requires TLS, and we connected without it.
    #[error(
        "{peer} uses TLS (-proto_dist inet_tls): give --tls-ca FILE with the certificate of the CA that issued the node's \
         (cacertfile in the node's client options), and, if the node requires one (verify_peer), --tls-cert FILE \
         and --tls-key FILE"
    )]
    TlsNeeded {
        /// The node and its address.
        peer: String,
    },
    /// We connected over TLS, and the node does not use it.
    #[error("{peer} does not use TLS: omit --tls and the other --tls options")]
    TlsUnexpected {
        /// The node and its address.
        peer: String,
    },
    /// The peer speaks neither TLS nor the distribution protocol.
    #[error("{peer} answers, but not in TLS: is it the distribution port of an Erlang node?")]
    NoTls {
        /// The node and its address.
        peer: String,
    },
    /// The node allows only TLS versions that were withdrawn as insecure.
    #[error(
        "{peer} allows neither TLS 1.2 nor 1.3, only versions withdrawn as insecure (RFC 8996): \
         add 'tlsv1.2' to the versions in its options (ssl_dist_optfile)"
    )]
    TlsTooOld {
        /// The node and its address.
        peer: String,
    },
    /// The TLS handshake failed for another reason.
    #[error("TLS handshake with {peer} failed: {what}. The node's log may say more")]
    TlsFailed {
        /// The node and its address.
        peer: String,
        /// What happened.
        what: String,
    },
    /// The node's certificate was not issued by a trusted CA.
    #[error(
        "the certificate of {peer}, {subject}, is issued by {issuer}, which is not trusted{}: give \
         the certificate of that issuer, or the node's own (certfile in its options), with --tls-ca FILE",
        parenthesized(remarks)
    )]
    CertificateUntrusted {
        /// The node and its address.
        peer: String,
        /// Subject of the certificate.
        subject: String,
        /// The last issuer in the certificate chain.
        issuer: String,
        /// Which of the node's own TLS options and files could not be used, and why.
        remarks: Vec<String>,
    },
    /// The node's certificate is for other hosts.
    #[error(
        "the certificate of {peer} is for {}, not for {wanted}: if this is the right node, give --tls-server-name \
         with a name from the certificate",
        listed(names)
    )]
    CertificateHostMismatch {
        /// The node and its address.
        peer: String,
        /// The host that we connected to.
        wanted: String,
        /// The hosts in the certificate.
        names: Vec<String>,
    },
    /// A certificate has expired, or is not valid yet.
    #[error(
        "the certificate of {peer} is not valid: {subject}: {when}, by the clock of this host. Renew the certificate \
         (other nodes that check it cannot connect either), or set the clock"
    )]
    CertificateOutdated {
        /// The node and its address.
        peer: String,
        /// Subject of the certificate: the node, or an issuer.
        subject: String,
        /// When it expired, or when it becomes valid.
        when: String,
    },
    /// The node's certificate is of a kind that cannot be verified.
    #[error(
        "the certificate of {peer}, {subject}, cannot be checked: {what}. Give the node's own certificate (certfile in its \
         options) with --tls-ca FILE: beamtune then compares the two"
    )]
    CertificateUnusable {
        /// The node and its address.
        peer: String,
        /// Subject of the certificate.
        subject: String,
        /// Why it cannot be verified.
        what: String,
    },
    /// The node requires a client certificate, and we have none.
    #[error(
        "{peer} requires a client certificate (verify_peer){}{}: give one that it trusts with --tls-cert FILE and --tls-key \
         FILE, such as that of another node of its cluster",
        issued_by(issuers),
        parenthesized(remarks)
    )]
    ClientCertificateRequired {
        /// The node and its address.
        peer: String,
        /// Issuers that the node accepts, if it names them.
        issuers: Vec<String>,
        /// Which of the node's own TLS options and files could not be used, and why.
        remarks: Vec<String>,
    },
    /// The node rejects our certificate.
    #[error(
        "{peer} refuses the certificate {subject}, issued by {issuer} ({why}): it must be in date, valid for clients \
         (extended key usage), for this host if the node allows only certain hosts (net_kernel:allow/1), and issued by \
         a CA that the node trusts (cacertfile in the node's server options){}",
        listed_issuers(issuers)
    )]
    ClientCertificateRefused {
        /// The node and its address.
        peer: String,
        /// Subject of our certificate.
        subject: String,
        /// Its issuer.
        issuer: String,
        /// Issuers that the node accepts, if it names them.
        issuers: Vec<String>,
        /// The name of the node's TLS alert.
        why: String,
    },
    /// A certificate or key file cannot be used.
    #[error("{path} cannot be used for TLS: {what}")]
    BadTlsFile {
        /// The file.
        path: String,
        /// What is wrong.
        what: String,
    },
    /// The server name is neither a host name nor an address.
    #[error("invalid server name \"{name}\": give --tls-server-name a host name or an address")]
    BadServerName {
        /// The name.
        name: String,
    },
    /// The connection ended before the first packet of the distribution handshake.
    #[error("{}", closed_early(peer, *over_tls))]
    ClosedDuringHandshake {
        /// The node and its address.
        peer: String,
        /// Whether we used TLS.
        over_tls: bool,
    },
    /// The node lacks a capability that attaching needs.
    #[error("{peer} is too old ({missing}): OTP 23 is the oldest supported release")]
    TooOld {
        /// The node and its address.
        peer: String,
        /// The capability that it lacks.
        missing: &'static str,
    },
    /// The peer violated the protocol. The connection is no longer used.
    #[error(
        "{peer} broke the distribution protocol: {what}. If this is not the port of an Erlang node, give the \
         port of a node (epmd -names lists the ports)"
    )]
    Protocol {
        /// The node and its address.
        peer: String,
        /// What is wrong with the peer's data.
        what: String,
    },
    /// The connection ended after it was established.
    #[error("the connection to {node} is lost ({reason}): the node has stopped, restarted, or closed it")]
    Lost {
        /// The node.
        node: String,
        /// The error from the operating system or the node.
        reason: String,
    },
    /// A term that we want to send cannot be encoded.
    #[error(transparent)]
    Unsendable(#[from] EncodeError),
    /// The node cannot start the process that runs our call.
    #[error(
        "{node} cannot start a process (system_limit): its process table is full; end processes there, or start it with a larger +P"
    )]
    ProcessTableFull {
        /// The node.
        node: String,
    },
    /// A function called on the node did not return.
    #[error("{function} on {node} failed: {reason}")]
    CallFailed {
        /// The node.
        node: String,
        /// `Module:Function/Arity`.
        function: String,
        /// Class and reason, as Erlang prints them.
        reason: String,
    },
    /// The node's answer has an unexpected form.
    #[error("malformed answer from {node}: {reason}")]
    BadAnswer {
        /// The node.
        node: String,
        /// What is wrong with the answer.
        reason: TermError,
    },
    /// The agent could not be started.
    #[error("cannot start the agent on {node}: {reason}")]
    AgentRefused {
        /// The node.
        node: String,
        /// The node's answer.
        reason: String,
    },
    /// The agent ended without being asked to.
    #[error("the agent on {node} has ended ({reason}); all its changes to the node are undone")]
    AgentEnded {
        /// The node.
        node: String,
        /// The exit reason of its session.
        reason: String,
    },
    /// The agent is still working on an earlier sample.
    #[error("the agent on {node} is still busy with an earlier sample")]
    AgentBusy {
        /// The node.
        node: String,
    },
    /// No cookie was found.
    #[error(
        "no cookie found (looked in {}): give it with --cookie-file FILE or BEAMTUNE_COOKIE",
        looked_at.join(", ")
    )]
    NoCookie {
        /// The places that were searched, in order.
        looked_at: Vec<String>,
    },
    /// The node's cookie is in a file that beamtune may not read.
    #[error(
        "the cookie is in {path}, which cannot be read ({reason}): run beamtune as {owner} or as root, or give \
         the cookie with --cookie-file FILE or BEAMTUNE_COOKIE"
    )]
    CookieUnreadable {
        /// The file.
        path: String,
        /// Its owner.
        owner: String,
        /// The operating system's answer.
        reason: String,
    },
    /// The cookie found is not valid. Its text is never printed.
    #[error("{origin} contains no usable cookie: {reason}")]
    BadCookie {
        /// Where it was found.
        origin: String,
        /// What is wrong.
        reason: &'static str,
    },
}

/// A step of attaching or sampling that can time out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Resolving the host's address.
    Resolve,
    /// Waiting for EPMD's answer.
    Epmd,
    /// Establishing the TCP connection.
    Connect,
    /// Completing the TLS handshake after the peer's first answer.
    Tls,
    /// Waiting for the node's packets of the distribution handshake.
    Handshake,
    /// Receiving a message.
    Receive,
    /// Sending a message: waiting for room in the socket's buffer.
    Send,
}

fn timed_out(peer: &str, step: Step, after: Duration) -> String {
    let seconds = after.as_secs_f64();
    match step {
        Step::Resolve => {
            format!("{peer} was not resolved within {seconds:.1} s: give a numeric address")
        }
        Step::Epmd => format!(
            "{peer} accepts connections but did not answer within {seconds:.1} s: is it stopped (state T in ps)? \
             If you know the node's port, give HOST:PORT"
        ),
        Step::Connect => {
            format!("no connection to {peer} within {seconds:.1} s: does a firewall drop the packets?")
        }
        Step::Handshake => format!(
            "{peer} accepts connections but sent nothing for {seconds:.1} s: is the VM stopped (SIGSTOP, state T \
             in ps), starved of CPU, or hanging?"
        ),
        Step::Tls => format!(
            "{peer} began the TLS handshake but did not complete it within {seconds:.1} s: is the VM starved of CPU, or \
             are packets delayed on the way?"
        ),
        Step::Receive => format!("{peer} did not answer within {seconds:.1} s"),
        Step::Send => format!("{peer} accepted no data for {seconds:.1} s: is the VM stopped or overloaded?"),
    }
}

fn known_names(known: &[String]) -> String {
    /// A longer list would hide the message itself.
    const MAX_NAMES: usize = 20;
    match known {
        [] => "none: is the node distributed (started with -name or -sname)?".to_owned(),
        _ if known.len() > MAX_NAMES => {
            format!("{} and {} more", known[..MAX_NAMES].join(", "), known.len() - MAX_NAMES)
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
            "{peer} closed the connection during or right after the TLS handshake, without a reason: is it the \
             distribution port of an Erlang node with TLS (-proto_dist inet_tls)? The node's log may say why"
        )
    } else {
        format!(
            "{peer} closed the connection without an answer: is it the distribution port of an Erlang node? The node's \
             log may say why"
        )
    }
}

fn listed(names: &[String]) -> String {
    /// A longer list would hide the message itself.
    const MAX_NAMES: usize = 10;
    match names {
        [] => "no host".to_owned(),
        _ if names.len() > MAX_NAMES => {
            format!("{} and {} more", names[..MAX_NAMES].join(", "), names.len() - MAX_NAMES)
        }
        _ => names.join(", "),
    }
}

fn issued_by(issuers: &[String]) -> String {
    if issuers.is_empty() { String::new() } else { format!(", issued by {}", issuers.join(" or ")) }
}

fn listed_issuers(issuers: &[String]) -> String {
    if issuers.is_empty() { String::new() } else { format!(": {}", issuers.join(" or ")) }
}

fn parenthesized(remarks: &[String]) -> String {
    if remarks.is_empty() {
        String::new()
    } else {
        format!(" (in the node's own options and files: {})", remarks.join("; "))
    }
}

/// Makes text from outside fit for a message: escapes terminal control characters and limits the length.
pub(crate) fn printable(text: &str) -> String {
    const MAX_CHARACTERS: usize = 300;
    text.chars()
        .take(MAX_CHARACTERS)
        .flat_map(|character| {
            let escaped = is_hidden(character).then(|| character.escape_unicode());
            let plain = escaped.is_none().then_some(character);
            escaped.into_iter().flatten().chain(plain)
        })
        .collect()
}
