//! BT075: the kernel drops datagrams at UDP sockets of the VM, because their receive buffers are full.
//!
//! Nothing reports it: the sender assumes that they were delivered, and the program never receives them.

use beamtune_model::{
    Account, Code, Evidence, Group, Missing, Period, Scale, Subject, Threshold, Unit, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::text;
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT075"),
    name: "udp-drops",
    question: "Does the kernel drop datagrams that the VM does not read in time?",
    confirm: "run ss -ulnpm: d of skmem grows at that socket (rb is its buffer size); nstat -az UdpRcvbufErrors grows as fast",
    needs: &[&metrics::UDP_RECEIVED],
    account: Account::Delay,
    judge,
    thresholds: &[LOST],
    ..Rule::COMMON
};

const LOST: Threshold = Threshold::new(
    "udp-drops.lost_share",
    "share of datagrams that were dropped",
    Scale {
        notice: 0.001,
        warning: 0.01,
        critical: 0.3,
        source: "judgement: programs that use UDP expect some loss on the way, and none within the host",
    },
);

/// Fewer drops in the period are a single burst (judgement).
const MIN_DROPS: i64 = 10;

/// With more owners of UDP sockets, their names do not help.
const MAX_OWNERS: usize = 3;

const PROVE: &str = "the drops column of /proc/net/udp stays the same under the same load";

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let received_per_s = period.rate(&metrics::UDP_RECEIVED, "")?;
    let addresses = period.entities(Group::HostUdp).into_iter().filter(|address| !address.is_empty());
    let drafts: Vec<Draft> =
        addresses.filter_map(|address| describe(period, address, received_per_s)).collect();
    Ok(Judgement::found_or_healthy(
        drafts,
        format!("{} datagrams/s received, almost none dropped", text::rate(received_per_s)),
    ))
}

fn describe(period: &Period, address: &str, received_per_s: f64) -> Option<Draft> {
    let drops = period.stat(&metrics::UDP_DROPS, address).ok()?;
    let dropped_per_s = period.rate(&metrics::UDP_DROPS, address).ok()?;
    // Datagrams of other programs in the network namespace can only make the share smaller.
    let share = dropped_per_s / (dropped_per_s + received_per_s).max(f64::MIN_POSITIVE);
    let severity = LOST.of(period).severity(share).filter(|_| drops.delta >= MIN_DROPS)?;
    let owners = view::port_owners(period, |port| port.name == "udp_inet");
    let owner = match &owners[..] {
        [owner] => format!("a socket of {owner}"),
        _ => String::new(),
    };
    let title = format!(
        "{} datagrams/s dropped at {address}, {} %",
        text::rate(dropped_per_s),
        text::number(100.0 * share)
    );
    let draft = Draft::new(severity, title)
        .detail(owner)
        .detail("its receive buffer is full: the VM reads too slowly")
        .about(Some(Subject::Socket { address: address.to_owned() }))
        .evidence(
            Evidence::number("datagrams dropped at the socket", dropped_per_s, Unit::PerSecond)
                .with_text(format!("{} in {:.0} s", drops.delta, period.seconds())),
        )
        .evidence(
            Evidence::number("datagrams received", received_per_s, Unit::PerSecond)
                .with_text("by all sockets of the network namespace"),
        )
        .evidence(
            Evidence::number("share dropped, at least", share, Unit::Ratio).against_scale(LOST.of(period)),
        )
        .because_some(period.stat(&metrics::UDP_QUEUE, address).ok().filter(|queue| queue.max > 0).map(
            |queue| {
                Evidence::number("maximum memory in the receive buffer", queue.max as f64, Unit::Bytes)
                    .with_text("with kernel overhead; a full buffer shows about its size")
            },
        ))
        .because_some(
            (owners.len() > 1 && owners.len() <= MAX_OWNERS)
                .then(|| Evidence::text("owners of UDP sockets", owners.join(", "))),
        )
        .remedy(remedy::of(
            period,
            "socket.recbuf",
            "{recbuf, 4194304} in the options of gen_udp:open/2; for more than net.core.rmem_max, raise that first",
            "bursts wait in the buffer until the process has time for them",
            PROVE,
        ))
        .remedy(remedy::of(
            period,
            "host.socket_buffers",
            "sysctl -w net.core.rmem_max=4194304",
            "it limits {recbuf, Bytes}; 212992 by default",
            "inet:getopts(Socket, [recbuf]) returns the size that was set",
        ))
        .remedy(remedy::of(
            period,
            "code.read_datagrams",
            "use {active, N} or {active, true} instead of {active, once}, and a process that only receives and passes datagrams to workers",
            "a larger buffer helps against bursts only: at a constant overload the process must do less per datagram",
            PROVE,
        ));
    Some(draft)
}
