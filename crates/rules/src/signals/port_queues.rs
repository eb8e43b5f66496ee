//! Unsent bytes in the driver queues of ports, and orphaned sockets, whose process has ended.
//!
//! A port whose process ends stays open while its driver has something to send (`erts_deliver_port_exit` of erts/emulator/beam/io.c). So it
//! stays open as long as its peer does not read, and its unsent bytes belong to no process and no table. A port without links stays open
//! indefinitely.

use beamtune_model::{Evidence, Group, Metric, Period, Remedy, Subject, Unit, metrics};

use super::limits::frequent_kind;
use super::memory::format_bytes;
use crate::remedy;

/// Orphaned sockets that are this share of all sockets are part of the cause if sockets increase (judgement).
const MANY: f64 = 0.25;
/// Orphaned sockets that are this share of the growth of sockets are the cause, whatever their share of all sockets (judgement).
const MOST_OF_GROWTH: f64 = 0.5;
/// If a sample has fewer orphaned sockets, they may close within moments (judgement).
const LEAST: f64 = 10.0;
/// Orphaned sockets with this mean number of unsent bytes are kept open by these (judgement).
const UNSENT_BYTES: f64 = 1_024.0;
/// If binaries in driver queues are this share of all binary memory, they explain it (judgement: half).
const MOSTLY: f64 = 0.5;

/// Sockets whose connected process has ended.
pub(crate) struct OrphanedSockets {
    sampled: f64,
    ended: f64,
    /// Ratio of all sockets to the sampled ones.
    scale: f64,
    bytes: f64,
}

impl OrphanedSockets {
    /// Returns the orphaned sockets if they are most of the growth of ports, or a large share of all sockets.
    pub(crate) fn of(period: &Period, growth_per_s: Option<f64>) -> Option<Self> {
        let last = |metric: &Metric| Some(period.stat(metric, "").ok()?.last.value as f64);
        let first = |metric: &Metric| Some(period.stat(metric, "").ok()?.first.value as f64);
        let (sampled, ended) = (last(&metrics::SOCKETS_SAMPLED)?, last(&metrics::SOCKETS_ENDED)?);
        if ended < LEAST {
            return None;
        }
        let scale = last(&metrics::SOCKETS_READ)? / sampled.max(1.0) * unread(period)?;
        let before = first(&metrics::SOCKETS_ENDED)? * first(&metrics::SOCKETS_READ)?
            / first(&metrics::SOCKETS_SAMPLED)?.max(1.0);
        let grown = ended * scale - before;
        let is_growth = growth_per_s
            .is_some_and(|slope| grown >= MOST_OF_GROWTH * slope * period.seconds() && grown > 0.0);
        let found = OrphanedSockets { sampled, ended, scale, bytes: last(&metrics::SOCKETS_ENDED_QUEUES)? };
        (is_growth || ended >= MANY * sampled).then_some(found)
    }

    /// Estimates the unsent bytes in all orphaned sockets.
    pub(crate) fn bytes(&self) -> f64 {
        self.bytes * self.scale
    }

    /// Whether unsent data keep them open.
    pub(crate) fn have_unsent(&self) -> bool {
        self.bytes >= UNSENT_BYTES * self.ended
    }

    pub(crate) fn sentence(&self) -> String {
        let belong = format!(
            "{:.0} of {:.0} sampled sockets belong to processes that have ended",
            self.ended, self.sampled
        );
        match self.have_unsent() {
            true => format!("{belong}; about {} wait unsent in them", format_bytes(self.bytes())),
            false => belong,
        }
    }

    pub(crate) fn evidence(&self) -> Vec<Evidence> {
        let share =
            Evidence::number("sockets whose process has ended", self.ended / self.sampled, Unit::Ratio)
                .with_text(format!(
                    "{:.0} of {:.0} sampled; such ports have no links",
                    self.ended, self.sampled
                ));
        let bytes = Evidence::number("unsent bytes in all of them, estimated", self.bytes(), Unit::Bytes)
            .with_text("their driver queues, by the sample");
        if self.have_unsent() { vec![share, bytes] } else { vec![share] }
    }

    pub(crate) fn remedies(&self, period: &Period) -> Vec<Remedy> {
        let prove = "the number of ports with a dead connected process falls";
        let all = if self.have_unsent() {
            [
                remedy::of(
                    period,
                    "code.linger",
                    "inet:setopts(Socket, [{linger, {true, 0}}]) before ending the process of a slow connection",
                    "a TCP port with unsent data outlives its process until its peer has read all; with linger it closes at once and drops them",
                    prove,
                ),
                slow_peers(period, prove),
            ]
        } else {
            let close = remedy::of(
                period,
                "code.close_ports",
                "keep each port linked to its connected process (no unlink/1 of a port), or close it before that process ends",
                "a port without links is never closed",
                prove,
            );
            [close, None]
        };
        all.into_iter().flatten().collect()
    }
}

/// An expression with which users can check the finding.
pub(crate) const CHECK: &str = "[P || P <- erlang:ports(), {_, Pid} <- [erlang:port_info(P, connected)], not is_process_alive(Pid)], \
                                run twice: ports in both results are leaked";

/// Returns the remedy for data that wait for peers that do not read.
pub(crate) fn slow_peers(period: &Period, prove: &str) -> Option<Remedy> {
    remedy::of(
        period,
        "socket.send_timeout",
        "{send_timeout, Ms} with {send_timeout_close, true}; send large data in small pieces, or with file:sendfile/5",
        "a peer that does not read is dropped, and little waits unsent for each connection",
        prove,
    )
}

/// Returns the ratio of all ports to those that were read.
fn unread(period: &Period) -> Option<f64> {
    let last = |metric: &Metric| Some(period.stat(metric, "").ok()?.last.value as f64);
    let read = last(&metrics::PORTS_READ).filter(|read| *read > 0.0)?;
    Some((last(&metrics::PORT_COUNT)? / read).max(1.0))
}

/// Estimates the bytes in the driver queues of all ports; `None` if not recorded.
pub(crate) fn waiting_bytes(period: &Period) -> Option<f64> {
    Some(period.stat(&metrics::PORT_QUEUES, "").ok()?.last.value as f64 * unread(period)?)
}

/// Estimates the minimum of these bytes over the period: a burst is gone by the next reading.
pub(crate) fn waiting_bytes_at_least(period: &Period) -> Option<f64> {
    Some(period.stat(&metrics::PORT_QUEUES, "").ok()?.min as f64 * unread(period)?)
}

/// Estimates these bytes; `None` unless they are most of the binary memory.
pub(crate) fn most_binaries(period: &Period) -> Option<f64> {
    let all = period.find(Group::Memory, "", "binary")?.last.value as f64;
    waiting_bytes(period).filter(|bytes| *bytes > 0.0 && *bytes >= MOSTLY * all)
}

/// Receive buffers that TCP connections in passive mode may have.
pub(crate) struct ReceiveBuffers {
    /// Number of such connections, estimated from the sample.
    pub(crate) connections: f64,
    pub(crate) bytes: f64,
}

/// Estimates the receive buffers of connections in passive mode from a sample; `None` if they were not recorded. A connection has its
/// buffer from the call of `recv` until data arrive (`tcp_recv` of inet_drv.c). Whether a process is in that call now is unknown, so the
/// result is an upper bound.
pub(crate) fn receive_buffers(period: &Period) -> Option<ReceiveBuffers> {
    let last = |metric: &Metric| Some(period.stat(metric, "").ok()?.last.value as f64);
    let scale = last(&metrics::SOCKETS_READ)? / last(&metrics::SOCKETS_SAMPLED)?.max(1.0) * unread(period)?;
    Some(ReceiveBuffers {
        connections: last(&metrics::SOCKETS_PASSIVE)? * scale,
        bytes: last(&metrics::SOCKET_BUFFERS)? * scale,
    })
}

/// Drivers of ports that are sockets.
const DRIVERS: [&str; 3] = ["tcp_inet", "udp_inet", "sctp_inet"];

/// Returns the sockets as a subject, with what opens most of them, if known.
pub(crate) fn subject(period: &Period) -> Subject {
    match frequent_kind(period, "port").filter(|maker| DRIVERS.contains(&maker.kind.as_str())) {
        Some(maker) => Subject::Port { name: maker.kind, opener: maker.by },
        None => Subject::Port { name: "tcp_inet".to_owned(), opener: None },
    }
}

/// At or above this number, sockets may hold much memory that is not measured (judgement).
const MANY_SOCKETS: i64 = 20;

/// Whether the node has enough sockets for their memory to matter.
pub(crate) fn has_sockets(period: &Period) -> bool {
    let latest = |kind: &str| {
        let rows = period.spawns.iter().filter(|row| row.what == "port" && row.kind == kind);
        rows.map(|row| row.count).fold(0, i64::saturating_add)
    };
    DRIVERS.iter().any(|kind| latest(kind) >= MANY_SOCKETS)
}
