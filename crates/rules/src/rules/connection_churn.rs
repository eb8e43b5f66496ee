//! BT083: a listener accepts many connections that live for seconds only, so that setting them up is much of the work.
//!
//! By Little's law the mean life is the number of open connections divided by those accepted in a second; but where some stay and others are
//! gone before they can be seen, these are short. Who closes first is known from the kernel: only on that side does the socket stay in
//! TIME_WAIT.

use beamtune_model::{
    Account, Code, Confidence, Cost, Evidence, Group, Missing, Period, Scale, Signal, Subject, Threshold,
    Unit, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::signals::connection_setup;
use crate::signals::products;
use crate::view::{self, kind};

pub const RULE: Rule = Rule {
    code: Code("BT083"),
    name: "connection-churn",
    question: "Do connections live so short that setting them up is much of the work?",
    confirm: "ss -tan state time-wait: entries with the listener's port as local port were closed by the node; their number / 60 s is the rate",
    needs: &[&metrics::TCP_LOOKED_AT],
    account: Account::CpuUsed,
    confidence: Confidence::Inferred,
    judge,
    thresholds: &[ACCEPTED],
    ..Rule::COMMON
};

const ACCEPTED: Threshold = Threshold::new(
    "connection-churn.accepted_per_s",
    "connections accepted a second that live for seconds",
    Scale {
        notice: 20.0,
        warning: 100.0,
        critical: 1_000_000.0,
        source: "judgement: a TLS handshake or a login costs 1 ms of CPU and more, so a hundred are a tenth of a core",
    },
);

/// Samples of the connections that say something: where there are many, they are taken every few seconds only.
const MIN_SAMPLES: u32 = 3;

/// Connections that live for longer are healthy, in seconds (judgement: the usual idle time-outs and heartbeats are 30 s and more).
const MAX_LIFE_SECONDS: f64 = 30.0;
/// Shorter ones may be single requests, as HTTP has them, in seconds (judgement). They are a notice at most, from the rate of a warning on.
const REQUEST_SECONDS: f64 = 1.0;

/// So many of the accepted connections must end meanwhile: else clients come to stay (judgement).
const ENDED: f64 = 0.5;
/// From this share on the node is what closes them, and below the other one their peers are (judgement).
const BY_NODE: f64 = 0.5;
const BY_PEERS: f64 = 0.1;

/// Shares of the CPU that the node may use: of less nobody wins anything, from the other one on it is a warning (judgement).
const WORTH_CPU: f64 = 0.05;
const MUCH_CPU: f64 = 0.30;

/// Ended connections that say how long they live.
const MIN_LIVES: i64 = 20;
/// Lives are known to a second before and after. So many of all in three neighbouring seconds: nearly equal (judgement). Of lives spread
/// evenly or by chance it would be half.
const EQUAL: f64 = 0.85;
/// Below this, in seconds, three neighbouring seconds say nothing.
const MIN_EQUAL_SECONDS: i64 = 3;

/// Where fewer of the accepted connections than this share are seen in any sample, most are gone between two samples (judgement: half).
const SEEN: f64 = 0.5;

/// One listening socket.
struct Listener<'p> {
    address: &'p str,
    accepted_per_s: f64,
    closed_per_s: Option<f64>,
    open: f64,
    life_seconds: f64,
    /// That most are gone between two samples: those that are open are others.
    is_seldom_seen: bool,
}

/// Connections that the node closed first.
fn closed_per_s(period: &Period, address: &str) -> Option<f64> {
    period.stat(&metrics::TCP_CLOSED, address).ok().map(|closed| closed.mean() / CLOSED_SECONDS)
}

/// Those that were seen, and those that were closed, are some of all.
fn accepted_per_s(period: &Period, address: &str, all_per_s: Option<f64>) -> Option<f64> {
    let begun_per_s = period.rate(&metrics::TCP_BEGUN, address).ok()?;
    Some(all_per_s.unwrap_or(0.0).max(begun_per_s).max(closed_per_s(period, address).unwrap_or(0.0)))
}

/// Who closes first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Closer {
    Node,
    Peers,
    Unknown,
}

impl<'p> Listener<'p> {
    /// Of one whose connections end about as fast as they come.
    fn of(period: &'p Period, address: &'p str, all_per_s: Option<f64>) -> Option<Self> {
        let accepted_per_s = accepted_per_s(period, address, all_per_s)?;
        let open = period.stat(&metrics::TCP_CONNECTIONS, address).ok()?;
        if open.samples < MIN_SAMPLES {
            return None;
        }
        let closed_per_s = closed_per_s(period, address);
        let seen = period.rate(&metrics::TCP_BEGUN, address).ok()? / accepted_per_s;
        // One that lives for a part of the time between two samples is seen with that probability.
        let between_seconds = period.seconds() / f64::from(open.samples - 1);
        let life_seconds = match seen < SEEN {
            true => seen * between_seconds,
            false => open.mean() / accepted_per_s,
        };
        let grown_per_s = open.last.value.saturating_sub(open.first.value) as f64 / period.seconds();
        (accepted_per_s > 0.0 && accepted_per_s - grown_per_s >= ENDED * accepted_per_s).then(|| Listener {
            address,
            accepted_per_s,
            closed_per_s,
            open: open.mean(),
            life_seconds,
            is_seldom_seen: seen < SEEN,
        })
    }

    fn closer(&self) -> Closer {
        match self.closed_per_s {
            Some(closed) if closed >= BY_NODE * self.accepted_per_s => Closer::Node,
            Some(closed) if closed < BY_PEERS * self.accepted_per_s => Closer::Peers,
            _ => Closer::Unknown,
        }
    }

    fn are_requests(&self) -> bool {
        self.life_seconds < REQUEST_SECONDS
    }
}

/// The time for which [`metrics::TCP_CLOSED`] counts.
const CLOSED_SECONDS: f64 = 10.0;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let looked_at = period.stat(&metrics::TCP_LOOKED_AT, "")?;
    if looked_at.samples < MIN_SAMPLES {
        return Ok(Judgement::NotJudged {
            reason: format!("connections were sampled {} times only", looked_at.samples),
            next: "record for longer: --for 10s".to_owned(),
        });
    }
    let own: Vec<&str> = period
        .entities(Group::HostListen)
        .into_iter()
        .filter(|address| period.stat(&metrics::ACCEPT_QUEUE, address).is_ok())
        .collect();
    let is_recorded = |address: &&str| period.stat(&metrics::TCP_BEGUN, address).is_ok();
    if !own.is_empty() && !own.iter().any(is_recorded) {
        return Err(Missing {
            what: "connections that were accepted, by listening socket".to_owned(),
            why: "not recorded, or there are more than 2,048".to_owned(),
            next: "record the node with this version of beamtune: beamtune record TARGET".to_owned(),
        });
    }
    // The kernel counts all that is accepted in the network namespace: known for a socket only where it is the only one.
    let sockets = period.stat(&metrics::LISTENING_SOCKETS, "").ok().map(|sockets| sockets.max);
    let is_alone = own.len() == 1 && sockets == Some(1);
    let all_per_s = period.rate(&metrics::PASSIVE_OPENS, "").ok().filter(|_| is_alone);
    let most =
        own.iter().filter_map(|address| accepted_per_s(period, address, all_per_s)).fold(0.0, f64::max);
    let listeners: Vec<Listener<'_>> =
        own.into_iter().filter_map(|address| Listener::of(period, address, all_per_s)).collect();
    let drafts = listeners.iter().filter_map(|listener| describe(period, listener)).collect();
    let in_namespace = period.rate(&metrics::PASSIVE_OPENS, "").ok();
    let stays = if most < ACCEPTED.of(period).notice {
        ""
    } else {
        ", which stay open, are single requests, or cost little CPU"
    };
    Ok(Judgement::found_or_healthy(
        drafts,
        match in_namespace.filter(|all| *all >= most) {
            // Whoever has accepted them.
            Some(all) if all < ACCEPTED.of(period).notice => {
                format!(
                    "all listening sockets of the network namespace accepted {all:.1} connections a second"
                )
            }
            Some(all) => format!(
                "{all:.1} connections a second were accepted in the network namespace; of those at one address of the node, at most {most:.1} \
                 were seen{stays}"
            ),
            None => format!(
                "at most {most:.1} connections a second were seen to be accepted at one address{stays}; how many shorter ones there are is not known"
            ),
        },
    ))
}

fn describe(period: &Period, listener: &Listener<'_>) -> Option<Draft> {
    let severity = ACCEPTED.of(period).severity(listener.accepted_per_s)?;
    let (active, capacity) = (view::activity(period, kind::SCHEDULER).ok()?, view::capacity(period).ok()?);
    let used = active.cores() / capacity.cores;
    let has_enough = listener.accepted_per_s >= ACCEPTED.of(period).warning;
    if listener.life_seconds > MAX_LIFE_SECONDS || used < WORTH_CPU || listener.are_requests() && !has_enough
    {
        return None;
    }
    let closer = listener.closer();
    let equal = equal_life(period, listener.address);
    let setup = connection_setup::of(period, listener.accepted_per_s);
    let who = match (closer, equal) {
        (Closer::Node, Some(_)) => "; a time-out closes them",
        (Closer::Node, None) => "; the node closes them",
        (Closer::Peers, Some(_)) => "; clients give up at that age",
        (Closer::Peers, None) => "; clients close them",
        (Closer::Unknown, _) => "",
    };
    let life = match (listener.are_requests(), equal) {
        (true, _) => format!("below {REQUEST_SECONDS:.0} s"),
        (false, Some((seconds, _))) => view::duration_text(seconds as f64),
        (false, None) => view::duration_text(listener.life_seconds),
    };
    let mut draft = Draft::new(
        severity,
        format!("{}: {:.0} connections/s live {}{who}", listener.address, listener.accepted_per_s, life),
    )
    .minor_if(listener.are_requests() || closer != Closer::Node || used < MUCH_CPU)
    .about(Subject::Socket { address: listener.address.to_owned() })
    .costs(setup.as_ref().map(|setup| Cost::CpuCores(setup.share * active.cores())))
    .because(
        Evidence::number("connections accepted", listener.accepted_per_s, Unit::PerSecond)
            .against_scale(ACCEPTED.of(period))
            .with_text("at least"),
    )
    .because(Evidence::number("mean life of a connection", listener.life_seconds, Unit::Seconds).with_text(
        match listener.is_seldom_seen {
            true => "most are gone between two samples".to_owned(),
            false => format!("{:.0} open / accepted per second", listener.open),
        },
    ))
    .because_some(listener.closed_per_s.map(|closed| {
        Evidence::number("connections that the node closed first", closed, Unit::PerSecond)
            .with_text("sockets in TIME_WAIT with the listener's port as local port")
    }))
    .because_some(equal.map(|(seconds, share)| {
        Evidence::number("connections that ended at the same age", share, Unit::Ratio)
            .with_text(format!("{seconds} s, a second more or less: a time-out"))
    }))
    .because(Evidence::number(
        "schedulers active, share of the CPU that the node may use",
        used,
        Unit::Ratio,
    ));
    if let Some(setup) = setup {
        draft = draft
            .because(
                Evidence::number(
                    "samples of running processes in setting up connections",
                    setup.share,
                    Unit::Ratio,
                )
                .with_text(setup.place),
            )
            .signals((setup.share >= MOST).then_some(Signal::DrivesMost))
            .signals(setup.kinds.iter().map(|name| Signal::RunBy(Subject::kind(*name))));
    }
    draft = draft
        .but_if(
            closer == Closer::Unknown,
            "who closes them is unknown: a connection that is reset leaves no socket in TIME_WAIT",
        )
        .but_if(
            listener.are_requests(),
            "an HTTP server whose clients send one request per connection looks the same",
        )
        .but("clients that come back after an outage do this for a while");
    Some(advise(period, draft, listener, closer, equal))
}

/// From this share of the samples on, setting up connections is most of what the node does.
const MOST: f64 = 0.5;

fn advise(
    period: &Period,
    draft: Draft,
    listener: &Listener<'_>,
    closer: Closer,
    equal: Option<(i64, f64)>,
) -> Draft {
    let prove = "connections accepted a second, and CPU, under the same load";
    let is_rabbit = products::name(period) == Some("RabbitMQ");
    if is_rabbit {
        return draft.fix(remedy::of(
            period,
            "rabbitmq.long_lived",
            "one long-lived connection per client process, and a heartbeat shorter than any idle time-out between client and broker",
            "opening a connection costs more than the message",
            prove,
        ));
    }
    let timeout = match equal {
        Some((seconds, _)) => format!(
            "raise the time-out of {seconds} s in the connection's process above the clients' heartbeat, to twice that at least"
        ),
        None => {
            "raise the idle time-out in the connection's process above the clients' heartbeat, to twice that at least"
                .to_owned()
        }
    };
    draft
        .fix_if(!listener.are_requests() && closer != Closer::Peers, || {
            remedy::of(
                period,
                "code.idle_timeout",
                &timeout,
                "a client that is cut off connects anew, with handshake and login; look for what else ends the connection's process, too",
                prove,
            )
        })
        .fix_if(closer == Closer::Peers && equal.is_some(), || {
            let seconds = equal.map_or(0, |equal| equal.0);
            remedy::of(
                period,
                "code.client_retry",
                &format!(
                    "see what clients have not got after {seconds} s (login, answer), and let them try again after pauses that grow, of random length"
                ),
                "clients that give up and come back at once bring the same work again, and what was done for them is lost",
                prove,
            )
        })
        .fix_if(listener.are_requests() || closer != Closer::Node && equal.is_none(), || {
            remedy::of(
                period,
                "code.keep_connections",
                "keep connections open: one long-lived connection or a pool in each client; with HTTP keep-alive, and no Connection: close from the server",
                "each connection costs a handshake and a process",
                prove,
            )
        })
}

/// The age at which nearly all connections end, in seconds, and their share.
fn equal_life(period: &Period, address: &str) -> Option<(i64, f64)> {
    let life = |entity: &str| {
        let (of, seconds) = entity.rsplit_once(',')?;
        let count = period.stat(&metrics::TCP_LIVED, entity).ok()?.last.value;
        (of == address).then_some((seconds.parse::<i64>().ok()?, count))
    };
    let lives: Vec<(i64, i64)> = period.entities(Group::HostTcp).into_iter().filter_map(life).collect();
    let all = lives.iter().fold(0_i64, |sum, (_, count)| sum.saturating_add(*count));
    if all < MIN_LIVES {
        return None;
    }
    let near = |middle: i64| {
        let close = lives.iter().filter(|(seconds, _)| (seconds - middle).abs() <= 1);
        close.fold(0_i64, |sum, (_, count)| sum.saturating_add(*count))
    };
    let (middle, count) = lives
        .iter()
        .map(|(seconds, count)| (*seconds, near(*seconds), *count))
        .max_by_key(|one| (one.1, one.2))
        .map(|one| (one.0, one.1))?;
    let share = count as f64 / all as f64;
    (middle >= MIN_EQUAL_SECONDS && share >= EQUAL).then_some((middle, share))
}
