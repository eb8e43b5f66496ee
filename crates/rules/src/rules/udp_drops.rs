//! BT075: the kernel drops datagrams at the VM's UDP sockets, since their receive buffers are full.
//!
//! Nobody is told of it: the sender believes that they have arrived, and the program never sees them.

use beamtune_model::{
    Account, Code, Evidence, Group, Missing, Period, Scale, Subject, Threshold, Unit, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT075"),
    name: "udp-drops",
    question: "Does the kernel drop datagrams that the VM does not read in time?",
    confirm: "ss -ulnpm: the d of skmem at that socket grows, and its rb is the size of the buffer; nstat -az UdpRcvbufErrors grows as fast",
    needs: &[&metrics::UDP_RECEIVED],
    account: Account::Delay,
    judge,
    thresholds: &[LOST],
    ..Rule::COMMON
};

/// Of the datagrams that came to a socket, the share that was dropped.
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

/// Fewer than this in the time seen are a single burst (judgement).
const WORTH: i64 = 10;

/// More owners say nothing of whose socket it is.
const MOST_OWNERS: usize = 3;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let received_per_s = period.rate(&metrics::UDP_RECEIVED, "")?;
    let addresses = period.entities(Group::HostUdp).into_iter().filter(|address| !address.is_empty());
    let drafts: Vec<Draft> =
        addresses.filter_map(|address| describe(period, address, received_per_s)).collect();
    Ok(Judgement::found_or_healthy(
        drafts,
        format!(
            "{received_per_s:.0} datagrams came in a second, and next to none was dropped at a socket of the VM"
        ),
    ))
}

fn describe(period: &Period, address: &str, received_per_s: f64) -> Option<Draft> {
    let drops = period.stat(&metrics::UDP_DROPS, address).ok()?;
    let dropped_per_s = period.rate(&metrics::UDP_DROPS, address).ok()?;
    // What others in the network namespace receive makes the share smaller, never larger.
    let share = dropped_per_s / (dropped_per_s + received_per_s).max(f64::MIN_POSITIVE);
    let severity = LOST.of(period).severity(share).filter(|_| drops.delta >= WORTH)?;
    let owners = view::port_owners(period, |port| port.name == "udp_inet");
    let whose = match &owners[..] {
        [owner] => format!(", a socket of {owner}"),
        _ => String::new(),
    };
    let draft = Draft::new(
        severity,
        format!(
            "{address}{whose}: the kernel drops {dropped_per_s:.0} datagrams a second, {:.0} % of those that come, since nobody reads them in time",
            100.0 * share
        ),
    )
    .about(Some(Subject::Socket { address: address.to_owned() }))
    .because(
        Evidence::number("datagrams dropped at this socket", dropped_per_s, Unit::PerSecond)
            .with_text(format!("{} in {:.0} s", drops.delta, period.seconds())),
    )
    .because(Evidence::number("datagrams received", received_per_s, Unit::PerSecond).with_text("by all sockets of the network namespace"))
    .because(Evidence::number("share dropped, at least", share, Unit::Ratio).against_scale(LOST.of(period)))
    .because_some(period.stat(&metrics::UDP_QUEUE, address).ok().filter(|queue| queue.max > 0).map(|queue| {
        Evidence::number("most memory of waiting datagrams seen", queue.max as f64, Unit::Bytes)
            .with_text("with the kernel's overhead; about the size of the buffer when it is full")
    }))
    .because_some((owners.len() > 1 && owners.len() <= MOST_OWNERS).then(|| {
        Evidence::text("owners of UDP sockets", owners.join(", "))
    }))
    .fix(remedy::of(
        period,
        "socket.recbuf",
        "{recbuf, 4194304} in the options of gen_udp:open/2; larger than net.core.rmem_max needs that raised first",
        "bursts wait in the buffer until the process has time for them",
        "drops of the socket in /proc/net/udp must stay the same under the same load",
    ))
    .fix(remedy::of(
        period,
        "host.socket_buffers",
        "sysctl -w net.core.rmem_max=4194304",
        "it bounds what {recbuf, Bytes} can ask for; 212992 by default",
        "inet:getopts(Socket, [recbuf]) gives what was asked for",
    ))
    .fix(remedy::of(
        period,
        "code.read_datagrams",
        "{active, N} or {active, true} in place of {active, once}, and a process that only receives and hands over to workers",
        "a larger buffer helps against bursts only: where more come all the time than the process reads, it must do less for each",
        "drops of the socket in /proc/net/udp must stay the same under the same load",
    ));
    Some(draft)
}
