//! BT044: processes are blocked in a send, because the peer of a port or socket does not read.
//!
//! The VM suspends a sender to a busy port, and reports that once each time (`busy_port`). A `gen_tcp:send` may instead wait in a receive
//! until the driver has taken all data, without an event. The process is then in `prim_inet`, and a socket that it owns has queued bytes.

use beamtune_model::{
    Account, Code, Cost, Evidence, Missing, Period, PortRow, ProcessActivity, Scale, Signal, Subject,
    Threshold, Unit, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::signals::events::{Events, of_kind};
use crate::signals::kinds::Kind;
use crate::signals::unread::{self, Unread};
use crate::signals::{blocking, stack};
use crate::text;
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT044"),
    name: "port-backpressure",
    question: "Are senders blocked by peers that do not read?",
    confirm: "run ss -tn for the connection: Send-Q stays full if the peer does not read",
    needs: &[&metrics::EVENT_COUNT],
    account: Account::Delay,
    judge,
    thresholds: &[RATE, QUEUE],
    ..Rule::COMMON
};

/// How long a process is suspended is unknown. Among thousands of connections, many senders are suspended, each for a moment: that is
/// normal flow control. So this is never critical, and a notice if no port has queued bytes.
const RATE: Threshold = Threshold::new(
    "port-backpressure.suspended_per_s",
    "processes suspended by busy ports per second",
    Scale {
        notice: 0.2,
        warning: 5.0,
        critical: f64::INFINITY,
        source: "judgement: each is suspended until its peer has read",
    },
);

const QUEUE: Threshold = Threshold::new(
    "port-backpressure.queue_length",
    "queue length of a process blocked in a send",
    Scale {
        notice: 1.0,
        warning: 10.0,
        critical: 10_000.0,
        source: "judgement: all its senders wait for one of its peers",
    },
);

/// A process that is runnable in a larger share of its samples is not blocked.
const MAX_RUNNABLE_SHARE: f64 = 0.3;

/// A process with queued messages in this share of its samples cannot receive them as fast as they arrive (judgement).
const MIN_QUEUED_SHARE: f64 = 0.8;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let blocked = period
        .processes
        .iter()
        .filter_map(|process| Some((Kind::of(process), blocked_in_send(period, process)?)));
    let blocked: Vec<(Option<Kind>, (Draft, bool))> = blocked.collect();
    let kinds: Vec<Option<Kind>> = blocked.iter().map(|(kind, _)| kind.clone()).collect();
    let with_remedies = |(kind, (draft, is_socket)): (Option<Kind>, (Draft, bool))| {
        let alike = kinds.iter().filter(|other| other.is_some() && **other == kind).count();
        remedies(draft, period, is_socket, alike > 1)
    };
    let mut drafts: Vec<Draft> = blocked.into_iter().map(with_remedies).collect();
    match of_kind(period, "busy_port") {
        Ok(events) => {
            let has_queued_bytes = fullest(period, |_| true).is_some();
            let severity = RATE.of(period).severity(events.rate);
            drafts.extend(
                severity.map(|severity| suspended(period, &events, severity).minor_if(!has_queued_bytes)),
            );
        }
        // Blocked senders are found without system monitor events.
        Err(missing) if drafts.is_empty() => return Err(missing),
        Err(_) => {}
    }
    Ok(Judgement::found_or_healthy(drafts, "no sender suspended by a busy port, none blocked in a send"))
}

/// Drafts the finding about a process that is blocked in a send while it has queued messages, and returns whether it sends to a socket.
fn blocked_in_send(period: &Period, process: &ProcessActivity) -> Option<(Draft, bool)> {
    let status = process.row.as_ref()?.status.as_deref();
    let function = stack::current_function_of(process)?;
    let port = fullest(period, |port| port.connected.as_deref() == Some(process.pid.as_str()));
    // With `!`, a sender to a port and one to another node are suspended in the same function.
    let is_suspended = status == Some("suspended");
    let sends = stack::is_send(function) || (is_suspended && port.is_some());
    // A process that was just woken is blocked, too, if an earlier sample found it waiting there.
    let waited_before =
        || process.wait_stacks.iter().any(|(stack, _)| stack.first().is_some_and(|at| stack::is_send(at)));
    let is_blocked = sends
        && (is_suspended || status == Some("waiting") || waited_before())
        && stack::runnable_share(process)? <= MAX_RUNNABLE_SHARE;
    let lengths = process.queue.points();
    let min = lengths.iter().map(|point| point.1).min()?;
    let with_messages = lengths.iter().filter(|point| point.1 > 0).count();
    let last = view::queue_now(period, process)?;
    if !is_blocked || (with_messages as f64) < MIN_QUEUED_SHARE * lengths.len() as f64 {
        return None;
    }
    let severity = QUEUE.of(period).severity(last)?;
    let subject = process.subject();
    let peer = Peer::of(period, process);
    let by = match (&peer, port) {
        (Some(peer), _) => format!("blocked sending to {}", peer.address),
        (None, Some(_)) => "blocked by a slow peer".to_owned(),
        (None, None) => "likely blocked by a slow peer".to_owned(),
    };
    let queued = text::counted(last, "message", "messages");
    let draft = Draft::new(severity, format!("{} {by}: {queued} queued", text::name(&subject)))
    .detail(text::pid(&subject))
    .detail(format!("sends in {function}"))
    .detail(peer.as_ref().map_or_else(|| which_peer(port), Peer::detail))
    .detail(port.map_or(String::new(), unsent))
    .about(subject)
    .signals(peer.as_ref().map(Peer::signal))
    .inferred_if(port.is_none())
    .costs(Cost::Waiting(last))
    .evidence(
        Evidence::number("queue length", last, Unit::Count)
            .against_scale(QUEUE.of(period))
            .with_text(format!("at least {min} in all samples")),
    )
    .evidence(Evidence::text("current function", function))
    .because_some(port.map(|port| bytes("unsent bytes of its port", port)))
    .because_some(peer.as_ref().map(|peer| Evidence::text("address of the peer", peer.address)))
    .fix_if(peer.as_ref().is_some_and(|peer| peer.is_in_node()), || {
        remedy::of(
            period,
            "code.read_sockets",
            "in the process that owns the other end, call inet:setopts(Socket, [{active, once}]) after each message, or loop on gen_tcp:recv/2",
            "the peer is a process of this node that has stopped reading",
            "ss -tn: Recv-Q of this connection is 0, and the sender's queue is empty, under the same load",
        )
    })
    .but_if(port.is_none(), "no port of its own has unsent bytes: the peer may read, but slowly")
    .counter_evidence("one sample: a peer that is slow for a moment looks the same; sample again");
    Some((draft, port.is_none_or(is_socket)))
}

/// The other end of the connection to which a process sends.
struct Peer<'p> {
    address: &'p str,
    /// Its unread bytes, if it belongs to this node.
    unread: Option<Unread<'p>>,
    reader: Option<&'p ProcessActivity>,
}

impl<'p> Peer<'p> {
    /// Returns `None` if the peer is unknown, or may be one of several.
    fn of(period: &'p Period, process: &ProcessActivity) -> Option<Self> {
        if let Some(end) = unread::unread_end(period, process) {
            return Some(Peer { address: end.local(), reader: end.reader(period), unread: Some(end) });
        }
        match &blocking::peers(period, &[&process.pid])[..] {
            [address] => Some(Peer { address, unread: None, reader: None }),
            _ => None,
        }
    }

    fn is_in_node(&self) -> bool {
        self.unread.is_some()
    }

    fn detail(&self) -> String {
        let Some(end) = &self.unread else { return String::new() };
        let reader = self.reader.map_or("a process of this node".to_owned(), |reader| reader.title());
        format!(
            "the peer is {reader}: {} unread for {}",
            text::bytes(end.mean_bytes),
            view::duration_text(end.seconds)
        )
    }

    fn signal(&self) -> Signal {
        Signal::WaitsFor(Subject::Socket { address: self.address.to_owned() })
    }
}

/// Formats how to find the address of the peer.
fn which_peer(port: Option<&PortRow>) -> String {
    port.filter(|port| is_socket(port)).map_or(String::new(), |port| {
        format!("inet:peername(erlang:list_to_port(\"{}\")) shows the peer", port.id)
    })
}

/// Drafts the finding about processes that busy ports suspend again and again.
fn suspended(period: &Period, events: &Events<'_>, severity: f64) -> Draft {
    let fullest = fullest(period, |_| true);
    let by = events
        .culprit
        .as_ref()
        .filter(|culprit| 2 * culprit.count > culprit.of)
        .map_or(String::new(), |culprit| {
            format!(", mostly {}", text::name(&Subject::process(culprit.subject)))
        });
    let draft =
        Draft::new(severity, format!("Busy ports suspend senders {} times/s{by}", text::rate(events.rate)))
            .detail(fullest.map_or(String::new(), unsent))
            .evidence(
                Evidence::number("suspensions by busy ports", events.rate, Unit::PerSecond)
                    .against_scale(RATE.of(period)),
            )
            .because_some(fullest.map(|port| bytes("unsent bytes of the fullest port", port)))
            .counter_evidence(
                "short suspensions are normal flow control: they matter if others wait for the sender",
            );
    remedies(events.name_culprit(draft), period, fullest.is_none_or(is_socket), false)
}

/// Formats the unsent bytes of a port: `tcp_inet #Port<0.33> has 8.35 kB unsent`.
fn unsent(port: &PortRow) -> String {
    format!("{} {} has {} unsent", port.name, port.id, text::bytes(port.queue_bytes as f64))
}

/// Returns the port with the most bytes in its queue; `None` if no port has any.
fn fullest(period: &Period, of: impl Fn(&PortRow) -> bool) -> Option<&PortRow> {
    period.ports.iter().filter(|port| port.queue_bytes > 0 && of(port)).max_by_key(|port| port.queue_bytes)
}

fn bytes(what: &str, port: &PortRow) -> Evidence {
    let owner = port.connected.as_ref().map_or(String::new(), |owner| format!(", of {owner}"));
    Evidence::number(what, port.queue_bytes as f64, Unit::Bytes)
        .with_text(format!("{} {}{owner}", port.name, port.id))
}

/// Whether the port is a socket; otherwise it belongs to an external program or a driver.
fn is_socket(port: &PortRow) -> bool {
    matches!(port.name.as_str(), "tcp_inet" | "sctp_inet" | "local_inet")
}

/// Adds the remedies. If several processes of a kind are blocked, each of them serves its own peer already.
fn remedies(draft: Draft, period: &Period, is_socket: bool, are_several: bool) -> Draft {
    draft
        .fix_if(is_socket, || {
            remedy::of(
                period,
                "socket.send_timeout",
                "set {send_timeout, Ms} and {send_timeout_close, true}: a peer that does not read is dropped",
                "by default a send waits forever",
                "queue length of the sender, and number of dropped peers",
            )
        })
        .fix_if(are_several, || {
            remedy::of(
                period,
                "code.back_pressure",
                "bound each queue: drop or merge old messages (keep the latest value), or close the connection \
                 above a limit",
                "nothing else limits what is sent to a process that waits for its peer",
                "queue lengths and memory under the same load",
            )
        })
        .fix_if(!are_several, || {
            remedy::of(
                period,
                "code.sender_per_peer",
                "use one sending process with a bounded queue for each peer (port_command/3 with nosuspend \
                 returns at once if the port is busy)",
                "one process that sends to all is as slow as the slowest peer",
                "queue length of the process that sends now",
            )
        })
        .fix_if(is_socket, || {
            remedy::of(
                period,
                "socket.high_watermark",
                "set {high_watermark, Bytes} and {low_watermark, Bytes} above the size of a burst, if peers \
                 are slow only for a moment",
                "this much may wait in the driver (default 8 KB) before the sender is suspended",
                "busy_port events and memory under the same load",
            )
        })
}
