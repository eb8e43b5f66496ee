//! BT044: processes stand still in a send, because nobody takes what a port or socket is to send.
//!
//! The VM suspends who sends to a busy port, and tells that once each time (`busy_port`). A `gen_tcp:send` may instead wait in
//! a receive until the driver has taken all, of which nothing is told: then the process stands in `prim_inet`, and bytes wait in the
//! queue of a socket of its own.

use beamtune_model::{
    Account, Code, Cost, Evidence, Missing, Period, PortRow, ProcessUse, Scale, Threshold, Unit, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::signals::events::{Told, told};
use crate::signals::kinds::Kind;
use crate::signals::stack;
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT044"),
    name: "port-backpressure",
    question: "Do processes stand still because nobody takes what they send?",
    confirm: "ss -tn on the connection: a Send-Q that stays full is a peer that does not read",
    needs: &[&metrics::EVENT_COUNT],
    account: Account::Delay,
    judge,
    thresholds: &[RATE, HELD_UP],
    ..Rule::COMMON
};

/// Processes that were suspended, a second. How long is not told, and of thousands of connections many are, each for a moment: that is how a
/// fast sender is slowed down. So it is never critical, and without bytes that wait in a port no more than a notice.
const RATE: Threshold = Threshold::new(
    "port-backpressure.suspended_per_s",
    "processes suspended in sends to ports, a second",
    Scale {
        notice: 0.2,
        warning: 5.0,
        critical: f64::INFINITY,
        source: "judgement: each one stands still until its peer has taken what waits",
    },
);

/// Messages that wait for a process that stands in a send.
const HELD_UP: Threshold = Threshold::new(
    "port-backpressure.queue_length",
    "messages that wait for a process in a send",
    Scale {
        notice: 1.0,
        warning: 10.0,
        critical: 10_000.0,
        source: "judgement: whoever sent them waits for one peer of that process",
    },
);

/// Share of the looks in which it may want to run.
const MOST_RUNNABLE: f64 = 0.3;

/// From this share of the looks on in which messages wait for it they are not taken as they come (judgement).
const NEARLY_ALWAYS: f64 = 0.8;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let standing =
        period.processes.iter().filter_map(|process| Some((Kind::of(process), standing(period, process)?)));
    let standing: Vec<(Option<Kind>, (Draft, bool))> = standing.collect();
    let kinds: Vec<Option<Kind>> = standing.iter().map(|(kind, _)| kind.clone()).collect();
    let with_remedies = |(kind, (draft, of_socket)): (Option<Kind>, (Draft, bool))| {
        let alike = kinds.iter().filter(|other| other.is_some() && **other == kind).count();
        remedies(draft, period, of_socket, alike > 1)
    };
    let mut drafts: Vec<Draft> = standing.into_iter().map(with_remedies).collect();
    match told(period, "busy_port") {
        Ok(told) => {
            let waits = fullest(period, |_| true).is_some();
            let severity = RATE.of(period).severity(told.rate);
            drafts.extend(severity.map(|severity| suspended(period, &told, severity).minor_if(!waits)));
        }
        // Those that stand still are seen without events.
        Err(missing) if drafts.is_empty() => return Err(missing),
        Err(_) => {}
    }
    Ok(Judgement::found_or_healthy(
        drafts,
        "no process had to wait for a port, and none with messages stood in a send".to_owned(),
    ))
}

/// A process that stands in a send while messages wait for it, and whether it sends to a socket.
fn standing(period: &Period, process: &ProcessUse) -> Option<(Draft, bool)> {
    let status = process.row.as_ref()?.status.as_deref();
    let place = stack::of(process)?;
    let port = fullest(period, |port| port.connected.as_deref() == Some(process.pid.as_str()));
    // Who sends to a port or to another node with `!` is suspended in the same function.
    let is_suspended = status == Some("suspended");
    let sends = stack::is_send(place) || (is_suspended && port.is_some());
    // One that is woken just as it is looked at stands there all the same, if it was seen waiting there before.
    let was_seen =
        || process.stood.iter().any(|(stack, _)| stack.first().is_some_and(|at| stack::is_send(at)));
    let stands = sends
        && (is_suspended || status == Some("waiting") || was_seen())
        && stack::wanted_to_run(process)? <= MOST_RUNNABLE;
    let lengths = process.queue.points();
    let least = lengths.iter().map(|point| point.1).min()?;
    let with_messages = lengths.iter().filter(|point| point.1 > 0).count();
    let last = view::queue_now(period, process)?;
    if !stands || (with_messages as f64) < NEARLY_ALWAYS * lengths.len() as f64 {
        return None;
    }
    let severity = HELD_UP.of(period).severity(last)?;
    let which = port.map_or("a port".to_owned(), |port| format!("{} {}", port.name, port.id));
    let draft = Draft::new(
        severity,
        format!(
            "{} stands in {place}, because the other side of {which} does not take what it sends; {last} messages wait for it meanwhile",
            process.title()
        ),
    )
    .about(process.subject())
    .inferred_if(port.is_none())
    .costs(Cost::Waiting(last))
    .because(
        Evidence::number("messages that wait for it", last, Unit::Count)
            .against_scale(HELD_UP.of(period))
            .with_text(format!("never fewer than {least}")),
    )
    .because(Evidence::text("where it stands", place))
    .because_some(port.map(|port| bytes("bytes in the queue of its port", port)))
    .but_if(port.is_none(), "no port of its own was seen with bytes in its queue: the other side may take them, slowly")
    .but("one look has seen where it stands: a peer that is slow for a moment looks the same; look again");
    Some((draft, port.is_none_or(is_socket)))
}

/// Processes that are suspended again and again.
fn suspended(period: &Period, told: &Told<'_>, severity: f64) -> Draft {
    let most = fullest(period, |_| true);
    let draft = Draft::new(
        severity,
        format!("{:.1} times a second a process had to wait because a port was busy", told.rate),
    )
    .because(Evidence::number("processes suspended", told.rate, Unit::PerSecond).against_scale(RATE.of(period)))
    .because_some(most.map(|port| bytes("most bytes in the queue of one port", port)))
    .but("a short wait for a peer is how a fast sender is slowed down: it hurts where others wait for that sender");
    remedies(told.blame(draft), period, most.is_none_or(is_socket), false)
}

/// The port with the most bytes in its queue, of some; `None` where none has any.
fn fullest(period: &Period, of: impl Fn(&PortRow) -> bool) -> Option<&PortRow> {
    period.ports.iter().filter(|port| port.queue_bytes > 0 && of(port)).max_by_key(|port| port.queue_bytes)
}

fn bytes(what: &str, port: &PortRow) -> Evidence {
    let owner = port.connected.as_ref().map_or(String::new(), |owner| format!(", of {owner}"));
    Evidence::number(what, port.queue_bytes as f64, Unit::Bytes)
        .with_text(format!("{} {}{owner}", port.name, port.id))
}

/// Else it is a program of the operating system, or a driver.
fn is_socket(port: &PortRow) -> bool {
    matches!(port.name.as_str(), "tcp_inet" | "sctp_inet" | "local_inet")
}

/// What to do; where several of a kind stand in sends, each has its own peer already.
fn remedies(draft: Draft, period: &Period, of_socket: bool, are_several: bool) -> Draft {
    draft
        .fix_if(of_socket, || {
            remedy::of(
                period,
                "socket.send_timeout",
                "{send_timeout, Ms} with {send_timeout_close, true}: who does not read is dropped",
                "by default a send waits for ever",
                "messages in the sender's queue, and how many peers are dropped",
            )
        })
        .fix_if(are_several, || {
            remedy::of(
                period,
                "code.back_pressure",
                "a limit of what waits for each of them: drop or merge what is old (keep the latest value only), or close the connection above it",
                "nothing else limits what is sent to a process that waits for its peer",
                "messages in their queues, and memory, under the same load",
            )
        })
        .fix_if(!are_several, || {
            remedy::of(
                period,
                "code.sender_per_peer",
                "a process for each peer that sends to it, so that one that does not read holds up nobody else; and a limit of what waits \
                 for it (port_command/3 with nosuspend says at once that a port is busy)",
                "one process that sends to all is as slow as the slowest of them",
                "messages in the queue of the process that has sent until now",
            )
        })
        .fix_if(of_socket, || {
            remedy::of(
                period,
                "socket.high_watermark",
                "{high_watermark, Bytes} with {low_watermark, Bytes} above the size of a burst, where peers are slow for a moment only",
                "so much may wait in the driver (8 KB by default) before a sender has to",
                "busy_port events and memory under the same load",
            )
        })
}
