//! Processes that accept connections: where they wait, how servers name their number and limits, and remedies if they are too slow.

use std::collections::BTreeSet;

use beamtune_model::{Evidence, Period, PortRow, ProcessActivity, Remedy, Unit, facts};

use crate::remedy;
use crate::rule::Draft;
use crate::signals::products::{self, Listeners};
use crate::signals::stack;

/// Function in which a Ranch acceptor waits after it has handed over a connection (ranch_conns_sup.erl). Either its listener has reached
/// `max_connections`, or the process that starts the connections is behind.
const RANCH_WAITS: &str = "ranch_conns_sup:start_protocol";
/// Prefix of the initial call of the process that starts the connections of a Ranch listener.
pub(crate) const RANCH_STARTS: &str = "ranch_conns_sup:";
/// With more owners, it is unclear which of them owns the listening socket.
const MOST_OWNERS: usize = 5;

/// Minimum backlog that is advised (judgement).
const LEAST_BACKLOG: i64 = 1_024;
/// Default of `net.core.somaxconn`, the kernel's upper limit of each accept queue, before and since Linux 5.4. The setting is not recorded.
const KERNEL_LIMITS: [i64; 2] = [128, 4_096];

/// What samples show about acceptors.
pub(crate) struct Acceptors {
    /// An acceptor that waits until the number of connections falls.
    pub at_limit: Option<Evidence>,
    /// The process that starts all connections of a Ranch listener, if it has queued messages.
    pub behind: Option<Evidence>,
    /// Owners of sockets without any traffic so far; a listening socket has none.
    pub owners: Option<Evidence>,
}

impl Acceptors {
    /// Whether acceptors wait because of the connection limit. If `behind` is set, they may only wait until their connection is started.
    pub(crate) fn are_at_limit(&self) -> bool {
        self.at_limit.is_some() && self.behind.is_none()
    }
}

pub(crate) fn seen(period: &Period) -> Acceptors {
    Acceptors { at_limit: at_limit(period), behind: behind(period), owners: owners(period) }
}

fn at_limit(period: &Period) -> Option<Evidence> {
    let waits = |process: &&ProcessActivity| {
        stack::current_function_of(process).is_some_and(|place| place.starts_with(RANCH_WAITS))
    };
    let process = period.processes.iter().find(waits)?;
    Some(Evidence::text(format!("acceptor waiting in {RANCH_WAITS}"), process.title()))
}

fn behind(period: &Period) -> Option<Evidence> {
    let starts = |process: &&ProcessActivity| {
        let call = process.row.as_ref().and_then(|row| row.initial_call.as_deref());
        call.is_some_and(|call| call.starts_with(RANCH_STARTS))
    };
    let process = period.processes.iter().filter(starts).max_by_key(|process| process.queue_max)?;
    (process.queue_max > 0).then(|| {
        let what = "queue length of the process that starts Ranch connections";
        Evidence::number(what, process.queue_max as f64, Unit::Count).with_text(process.title())
    })
}

fn owners(period: &Period) -> Option<Evidence> {
    let is_unused =
        |port: &&PortRow| port.name == "tcp_inet" && port.input_bytes == 0 && port.output_bytes == 0;
    let pids: BTreeSet<&str> =
        period.ports.iter().filter(is_unused).filter_map(|port| port.connected.as_deref()).collect();
    let place = |pid: &str| {
        let place = stack::current_function(period.process(pid)?.row.as_ref()?)?;
        Some(format!("{} in {place}", period.title_of(pid)))
    };
    let owners: Vec<String> =
        pids.iter().map(|pid| place(pid).unwrap_or_else(|| period.title_of(pid))).collect();
    let is_telling = !owners.is_empty() && owners.len() <= MOST_OWNERS;
    let what = "owners of sockets without traffic (a listening socket has none)";
    is_telling.then(|| Evidence::text(what, owners.join(", ")))
}

/// State of an accept queue, on which the advice depends.
pub(crate) struct Sight {
    /// The VM has no CPU left to accept connections.
    pub is_busy: bool,
    /// The queue was full, or nearly full.
    pub is_full: bool,
    /// The queue is full for moments, and empty otherwise.
    pub has_bursts: bool,
    /// The number of open connections is constant, while others wait in the queue.
    pub is_held: bool,
    /// Length limit of the queue.
    pub limit: Option<i64>,
    /// Ranch acceptors wait because the connection limit is reached.
    pub is_at_limit: bool,
    /// The process that starts Ranch's connections has queued messages.
    pub is_start_behind: bool,
}

const PROVE: &str = "ss -ltn: Recv-Q of this address is 0 nearly all the time under the same load";

fn more_acceptors(period: &Period) -> Option<Remedy> {
    remedy::of(
        period,
        "ranch.num_acceptors",
        "raise num_acceptors above 10",
        "while one acceptor is delayed, others accept",
        PROVE,
    )
}

/// Adds the remedies for slow accepting.
pub(crate) fn advise(draft: Draft, period: &Period, sight: &Sight) -> Draft {
    let server = products::of(period).and_then(|product| product.listeners.as_ref());
    let has_ranch = period.facts.get(facts::APPLICATIONS).is_some_and(|list| list.contains("\"ranch\""));
    let own = !sight.is_busy && !sight.has_bursts && server.is_none();
    let others = own && !has_ranch && !sight.is_held;
    let backlog = sight.limit.map_or(LEAST_BACKLOG, |limit| limit.saturating_mul(4).max(LEAST_BACKLOG));
    // The kernel may have reduced the backlog to its own limit, or would reduce the advised one.
    let is_cut =
        sight.limit.is_some_and(|limit| KERNEL_LIMITS.contains(&limit)) || backlog > KERNEL_LIMITS[1];
    let draft = match server {
        Some(Listeners { entry, change }) if !sight.is_busy => draft.remedy(remedy::of(
            period,
            entry,
            change,
            "these settings control acceptors and their limits",
            PROVE,
        )),
        _ => draft,
    };
    draft
        .fix_if(own && has_ranch && sight.is_start_behind, || {
            remedy::of(
                period,
                "code.accept_loop",
                "do nothing slow in Protocol:start_link (the handshake belongs in the connection's own process), and set num_conns_sups \
                 above 1 (Ranch 2)",
                "one process starts all connections of its acceptors, one at a time",
                PROVE,
            )
        })
        .fix_if(own && has_ranch && !sight.is_at_limit, || more_acceptors(period))
        .fix_if(own && has_ranch, || {
            remedy::of(
                period,
                "ranch.max_connections",
                "raise max_connections of the listener (default 1024; in Ranch 2 per connection supervisor); ranch:info() shows the number of connections",
                "at the limit, each acceptor waits until a connection ends",
                PROVE,
            )
        })
        .fix_if(own && !has_ranch && sight.is_held, || {
            remedy::of(
                period,
                "code.connection_limit",
                "raise the connection limit, if there is one, and set a timeout that closes idle connections; serve each connection in its own process",
                "the acceptor waits until an open connection ends: a longer backlog or more acceptors do not change that",
                PROVE,
            )
        })
        .fix_if(others, || {
            remedy::of(
                period,
                "code.accept_loop",
                "accept, hand over the socket, accept again; do handshakes, lookups and greetings in the connection's own process",
                "a slow acceptor delays all clients that connect after",
                PROVE,
            )
        })
        .fix_if(own && has_ranch && sight.is_at_limit, || more_acceptors(period))
        .fix_if(others, || {
            remedy::of(
                period,
                "code.more_in_flight",
                "accept from the same socket in ten to a hundred processes",
                "while one acceptor is delayed, others accept",
                PROVE,
            )
        })
        .fix_if(sight.is_full, || {
            let more = if is_cut { ", with net.core.somaxconn at least as large: it limits the backlog" } else { "" };
            remedy::of(
                period,
                "socket.backlog",
                &match sight.limit {
                    Some(limit) => format!("{{backlog, {backlog}}} where connections come in bursts (now {limit}){more}"),
                    None => format!("{{backlog, {backlog}}} where connections come in bursts{more}"),
                },
                "a longer queue absorbs bursts; at a constant overload it only makes clients wait",
                "TcpExtListenOverflows does not grow under the same load",
            )
        })
        .fix_if(sight.is_full && is_cut, || {
            remedy::of(
                period,
                "host.listen_backlog",
                "raise net.core.somaxconn above the backlog that the program requests",
                "it may limit this queue, whatever the program requests",
                "ss -ltn: Send-Q of this address, after the socket is reopened",
            )
        })
}
