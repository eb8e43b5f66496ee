//! BT083: a listener accepts many connections that live for seconds only, so that setting them up is much of the work.
//!
//! By Little's law, the mean lifetime is the number of open connections divided by the accept rate. But if some connections stay and others
//! end between two samples, the latter are short-lived. The kernel shows which side closes first: only there does the socket stay in
//! TIME_WAIT.

use beamtune_model::{
    Account, Code, Confidence, Cost, Evidence, Group, Missing, Period, Scale, Signal, Subject, Threshold,
    Unit, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::signals::connection_setup;
use crate::signals::products;
use crate::text;
use crate::view::{self, kind};

pub const RULE: Rule = Rule {
    code: Code("BT083"),
    name: "connection-churn",
    question: "Are connections so short-lived that setting them up is much of the work?",
    confirm: "ss -tan state time-wait: entries with the listener's port as local port were closed by the node; their number / 60 s is the rate",
    needs: &[&metrics::TCP_SAMPLED],
    account: Account::CpuUsed,
    confidence: Confidence::Inferred,
    judge,
    thresholds: &[ACCEPTED],
    ..Rule::COMMON
};

const ACCEPTED: Threshold = Threshold::new(
    "connection-churn.accepted_per_s",
    "connections accepted per second that live only seconds",
    Scale {
        notice: 20.0,
        warning: 100.0,
        critical: 1_000_000.0,
        source: "judgement: a TLS handshake or a login costs at least 1 ms of CPU, so a hundred are a tenth of a core",
    },
);

/// Minimum number of samples of the connections. If there are many connections, a sample is taken only every few seconds.
const MIN_SAMPLES: u32 = 3;

/// Connections that live longer are healthy (judgement: the usual idle time-outs and heartbeats are 30 s and more).
const MAX_LIFE_SECONDS: f64 = 30.0;
/// Shorter connections may be single requests, as in HTTP (judgement). They are a notice at most, and only at the rate of a warning.
const REQUEST_SECONDS: f64 = 1.0;

/// At least this share of the accepted connections must end in the period. Otherwise clients connected and stayed (judgement).
const MIN_ENDED_SHARE: f64 = 0.5;
/// At the first share or above, the node closes the connections; below the second, its peers do (judgement).
const BY_NODE_SHARE: f64 = 0.5;
const BY_PEERS_SHARE: f64 = 0.1;

/// Shares of the CPU that the node may use: below the first nothing is reported, at the second or above it is a warning (judgement).
const MIN_CPU_SHARE: f64 = 0.05;
const MIN_WARNING_CPU_SHARE: f64 = 0.30;

/// Minimum number of ended connections whose lifetimes are compared.
const MIN_LIVES: i64 = 20;
/// Lifetimes are measured to within a second. They are equal if this share falls into three adjacent seconds (judgement). Of evenly or
/// randomly distributed lifetimes, half do.
const EQUAL_SHARE: f64 = 0.85;
/// Three adjacent seconds are not significant for shorter lifetimes.
const MIN_EQUAL_SECONDS: i64 = 3;

/// If less than this share of the accepted connections is ever sampled, most end between two samples (judgement: half).
const SAMPLED_SHARE: f64 = 0.5;

/// One listening socket.
struct Listener<'p> {
    address: &'p str,
    accepted_per_s: f64,
    closed_per_s: Option<f64>,
    open: f64,
    life_seconds: f64,
    /// Whether most connections end between two samples. The open connections are then others.
    is_rarely_sampled: bool,
}

/// Rate of connections that the node closed first.
fn closed_per_s(period: &Period, address: &str) -> Option<f64> {
    period.stat(&metrics::TCP_CLOSED, address).ok().map(|closed| closed.mean() / CLOSED_SECONDS)
}

/// A lower bound, unless `all_per_s` is known: sampled connections, and connections that the node closed, are only some of all.
fn accepted_per_s(period: &Period, address: &str, all_per_s: Option<f64>) -> Option<f64> {
    let begun_per_s = period.rate(&metrics::TCP_BEGUN, address).ok()?;
    Some(all_per_s.unwrap_or(0.0).max(begun_per_s).max(closed_per_s(period, address).unwrap_or(0.0)))
}

/// The side that closes first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Closer {
    Node,
    Peers,
    Unknown,
}

impl<'p> Listener<'p> {
    /// `None` unless its connections end about as fast as they are accepted.
    fn of(period: &'p Period, address: &'p str, all_per_s: Option<f64>) -> Option<Self> {
        let accepted_per_s = accepted_per_s(period, address, all_per_s)?;
        let open = period.stat(&metrics::TCP_CONNECTIONS, address).ok()?;
        if open.samples < MIN_SAMPLES {
            return None;
        }
        let closed_per_s = closed_per_s(period, address);
        let sampled = period.rate(&metrics::TCP_BEGUN, address).ok()? / accepted_per_s;
        // A connection that lives for a fraction of the time between two samples is sampled with that probability.
        let between_seconds = period.seconds() / f64::from(open.samples - 1);
        let life_seconds = match sampled < SAMPLED_SHARE {
            true => sampled * between_seconds,
            false => open.mean() / accepted_per_s,
        };
        let growth_per_s = open.last.value.saturating_sub(open.first.value) as f64 / period.seconds();
        let ended_per_s = accepted_per_s - growth_per_s;
        (accepted_per_s > 0.0 && ended_per_s >= MIN_ENDED_SHARE * accepted_per_s).then(|| Listener {
            address,
            accepted_per_s,
            closed_per_s,
            open: open.mean(),
            life_seconds,
            is_rarely_sampled: sampled < SAMPLED_SHARE,
        })
    }

    fn closer(&self) -> Closer {
        match self.closed_per_s {
            Some(closed) if closed >= BY_NODE_SHARE * self.accepted_per_s => Closer::Node,
            Some(closed) if closed < BY_PEERS_SHARE * self.accepted_per_s => Closer::Peers,
            _ => Closer::Unknown,
        }
    }

    fn are_requests(&self) -> bool {
        self.life_seconds < REQUEST_SECONDS
    }
}

/// The time that [`metrics::TCP_CLOSED`] covers.
const CLOSED_SECONDS: f64 = 10.0;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let looked_at = period.stat(&metrics::TCP_SAMPLED, "")?;
    if looked_at.samples < MIN_SAMPLES {
        return Ok(Judgement::NotJudged {
            reason: format!("only {} samples of the connections", looked_at.samples),
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
            what: "accepted connections by listening socket".to_owned(),
            why: "not recorded, or there are more than 2,048".to_owned(),
            next_step: "record the node with this version of beamtune: beamtune record TARGET".to_owned(),
        });
    }
    // The kernel counts the whole network namespace, so the number belongs to a socket only if there is no other.
    let sockets = period.stat(&metrics::LISTENING_SOCKETS, "").ok().map(|sockets| sockets.max);
    let is_alone = own.len() == 1 && sockets == Some(1);
    let all_per_s = period.rate(&metrics::PASSIVE_OPENS, "").ok().filter(|_| is_alone);
    let max = own.iter().filter_map(|address| accepted_per_s(period, address, all_per_s)).fold(0.0, f64::max);
    let listeners: Vec<Listener<'_>> =
        own.into_iter().filter_map(|address| Listener::of(period, address, all_per_s)).collect();
    let drafts = listeners.iter().filter_map(|listener| describe(period, listener)).collect();
    let in_namespace = period.rate(&metrics::PASSIVE_OPENS, "").ok();
    let reason = if max < ACCEPTED.of(period).notice {
        ""
    } else {
        ", which stay open, are single requests, or cost little CPU"
    };
    let seen = text::rate(max);
    Ok(Judgement::found_or_healthy(
        drafts,
        match in_namespace.filter(|all| *all >= max) {
            // Accepted by any program of the namespace.
            Some(all) if all < ACCEPTED.of(period).notice => {
                format!("connections accepted in the network namespace: {}/s", text::rate(all))
            }
            Some(all) => format!(
                "connections accepted in the network namespace: {}/s; sampled at one address of the node: at most {seen}/s{reason}",
                text::rate(all)
            ),
            None => format!(
                "connections sampled at one address: at most {seen}/s{reason}; number of shorter ones unknown"
            ),
        },
    ))
}

fn describe(period: &Period, listener: &Listener<'_>) -> Option<Draft> {
    let severity = ACCEPTED.of(period).severity(listener.accepted_per_s)?;
    let (active, capacity) = (view::activity(period, kind::SCHEDULER).ok()?, view::capacity(period).ok()?);
    let used = active.cores() / capacity.cores;
    let has_enough = listener.accepted_per_s >= ACCEPTED.of(period).warning;
    if listener.life_seconds > MAX_LIFE_SECONDS
        || used < MIN_CPU_SHARE
        || listener.are_requests() && !has_enough
    {
        return None;
    }
    let closer = listener.closer();
    let equal = equal_life(period, listener.address);
    let setup = connection_setup::of(period, listener.accepted_per_s);
    let closed_by = match (closer, equal) {
        (Closer::Node, Some(_)) => ", closed by a timeout",
        (Closer::Node, None) => ", closed by the node",
        (Closer::Peers, Some(_)) => ", then clients give up",
        (Closer::Peers, None) => ", closed by clients",
        (Closer::Unknown, _) => "",
    };
    let life = match (listener.are_requests(), equal) {
        (true, _) => format!("below {REQUEST_SECONDS:.0} s"),
        (false, Some((seconds, _))) => view::duration_text(seconds as f64),
        (false, None) => view::duration_text(listener.life_seconds),
    };
    let accepted = text::rate(listener.accepted_per_s);
    let mut draft = Draft::new(
        severity,
        format!("{}: {accepted} connections/s live {life}{closed_by}", listener.address),
    )
    .detail(equal.map_or_else(String::new, |(seconds, share)| {
        format!("{:.0} % ended at an age of {seconds} s", share * 100.0)
    }))
    .detail(setup.as_ref().map_or_else(String::new, |setup| {
        format!("{:.0} % of running samples set up connections ({})", setup.share * 100.0, setup.place)
    }))
    .minor_if(listener.are_requests() || closer != Closer::Node || used < MIN_WARNING_CPU_SHARE)
    .about(Subject::Socket { address: listener.address.to_owned() })
    .costs(setup.as_ref().map(|setup| Cost::CpuCores(setup.share * active.cores())))
    .evidence(
        Evidence::number("connections accepted", listener.accepted_per_s, Unit::PerSecond)
            .against_scale(ACCEPTED.of(period))
            .with_text("at least"),
    )
    .evidence(
        Evidence::number("mean lifetime of a connection", listener.life_seconds, Unit::Seconds).with_text(
            match listener.is_rarely_sampled {
                true => "most end between two samples".to_owned(),
                false => format!("{:.0} open / accepted per second", listener.open),
            },
        ),
    )
    .because_some(listener.closed_per_s.map(|closed| {
        Evidence::number("connections closed by the node", closed, Unit::PerSecond)
            .with_text("sockets in TIME_WAIT with the listener's port as local port")
    }))
    .because_some(equal.map(|(seconds, share)| {
        Evidence::number("connections that ended at the same age", share, Unit::Ratio)
            .with_text(format!("{seconds} s ± 1 s: a timeout"))
    }))
    .evidence(Evidence::number("active schedulers, share of capacity", used, Unit::Ratio));
    if let Some(setup) = setup {
        draft = draft
            .evidence(
                Evidence::number("samples in connection set-up", setup.share, Unit::Ratio)
                    .with_text(setup.place),
            )
            .signals((setup.share >= MIN_SHARE_OF_WORK).then_some(Signal::DrivesMost))
            .signals(setup.kinds.iter().map(|name| Signal::RunBy(Subject::kind(*name))));
    }
    draft = draft
        .but_if(
            closer == Closer::Unknown,
            "the closing side is unknown: a reset connection leaves no socket in TIME_WAIT",
        )
        .but_if(
            listener.are_requests(),
            "an HTTP server whose clients send one request per connection looks the same",
        )
        .counter_evidence("clients that come back after an outage do this for a while");
    Some(advise(period, draft, listener, closer, equal))
}

/// If at least this share of the samples is in connection set-up, that is most of the node's work.
const MIN_SHARE_OF_WORK: f64 = 0.5;

fn advise(
    period: &Period,
    draft: Draft,
    listener: &Listener<'_>,
    closer: Closer,
    equal: Option<(i64, f64)>,
) -> Draft {
    let prove = "connections accepted per second, and CPU, under the same load";
    let is_rabbit = products::name(period) == Some("RabbitMQ");
    if is_rabbit {
        return draft.remedy(remedy::of(
            period,
            "rabbitmq.long_lived",
            "keep one connection per client process, with a heartbeat shorter than any idle timeout between client and broker",
            "opening a connection costs more than the message",
            prove,
        ));
    }
    let timeout = match equal {
        Some((seconds, _)) => format!(
            "raise the timeout of {seconds} s in the connection's process to at least twice the clients' heartbeat"
        ),
        None => "raise the idle timeout in the connection's process to at least twice the clients' heartbeat"
            .to_owned(),
    };
    draft
        .fix_if(!listener.are_requests() && closer != Closer::Peers, || {
            remedy::of(
                period,
                "code.idle_timeout",
                &timeout,
                "a disconnected client reconnects, with handshake and login; errors may also end the connection's process",
                prove,
            )
        })
        .fix_if(closer == Closer::Peers && equal.is_some(), || {
            let seconds = equal.map_or(0, |equal| equal.0);
            remedy::of(
                period,
                "code.client_retry",
                &format!(
                    "find what clients wait for during {seconds} s (login, reply), and let them retry with exponential backoff and jitter"
                ),
                "clients that reconnect immediately repeat the same work, and the earlier work is lost",
                prove,
            )
        })
        .fix_if(listener.are_requests() || closer != Closer::Node && equal.is_none(), || {
            remedy::of(
                period,
                "code.keep_connections",
                "keep connections open: one per client, or a pool; for HTTP keep-alive, and no Connection: close from the server",
                "each connection costs a handshake and a process",
                prove,
            )
        })
}

/// The age in seconds at which nearly all connections end, and their share.
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
    (middle >= MIN_EQUAL_SECONDS && share >= EQUAL_SHARE).then_some((middle, share))
}
