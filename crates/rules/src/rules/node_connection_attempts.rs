//! BT086: connection attempts to or from other nodes fail repeatedly, or connections are lost and restored.
//!
//! Each attempt has a row in net_kernel's table while it lasts, with a number that counts the attempts. Attempts to nodes that are gone
//! take milliseconds and may never be sampled. Then only the processes that set up connections show them, without the names of the nodes.

use std::collections::BTreeMap;

use beamtune_model::{
    Account, Code, Confidence, Cost, Evidence, Group, Metric, Missing, Period, Remedy, Scale, SpawnRow,
    Subject, Threshold, Unit, WaitSample, metrics, units::SECOND_NS,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::signals::blocking;
use crate::signals::counts::{largest_first, listed};
use crate::signals::limits::MIN_LEAK_SECONDS;
use crate::signals::new_processes;
use crate::signals::stack;
use crate::text;
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT086"),
    name: "node-connection-attempts",
    question: "Do connections to other nodes fail again and again?",
    confirm: "run nodes(known) -- [node() | nodes(connected)] several times: these nodes never connect; \"Invalid challenge reply\" in a log means another cookie",
    needs: &[&metrics::SCAN_SPAWNED, &metrics::SPAWNED, &metrics::PROCESS_COUNT],
    account: Account::Delay,
    confidence: Confidence::Inferred,
    explains_as_notice: true,
    judge,
    thresholds: &[ATTEMPTS, PENDING, RECONNECTIONS],
    ..Rule::COMMON
};

const ATTEMPTS: Threshold = Threshold::new(
    "node-connection-attempts.per_s",
    "connection attempts to other nodes per second",
    Scale {
        notice: 1.0,
        warning: 10.0,
        critical: 10_000.0,
        source: "judgement: nodes of a cluster connect once; after a failure net_kernel tries again at the next send",
    },
);

const PENDING: Threshold = Threshold::new(
    "node-connection-attempts.under_way_share",
    "share of samples with a pending connection attempt to the same node",
    Scale {
        notice: 0.5,
        warning: f64::INFINITY,
        critical: f64::INFINITY,
        source: "judgement: an attempt takes milliseconds if the other node answers, and net_setuptime (7 s) if not",
    },
);

const RECONNECTIONS: Threshold = Threshold::new(
    "node-connection-attempts.reconnections_per_minute",
    "reconnections per minute",
    Scale {
        notice: 2.0,
        warning: 10.0,
        critical: f64::INFINITY,
        source: "judgement: nodes of a cluster stay connected; a restart of all of three nodes within a minute is three",
    },
);

/// Fewer reconnections, or reconnections in one sample only, may come from a network that was down for a moment (judgement).
const MIN_RECONNECTIONS: f64 = 3.0;
const MIN_RECONNECTION_SAMPLES: f64 = 2.0;

/// Initial calls of processes that set up a connection (inet_tcp_dist.erl, inet_tls_dist.erl, dist_util.erl). Each attempt starts one of
/// the first three, which starts the fourth, a timer.
const SETUP_CALLS: [&str; 4] =
    ["inet_tcp_dist:do_setup", "inet6_tcp_dist:do_setup", "inet_tls_dist:do_setup", "dist_util:setup_timer/"];
const PROCESSES_PER_ATTEMPT: f64 = 2.0;

/// Fewer sampled setup processes may be one attempt.
const MIN_SETUP_PROCESSES: i64 = 2;
/// Minimum share of the sampled new processes that set up connections (judgement: more than half).
const MIN_SETUP_SHARE: f64 = 0.5;
/// Minimum share of net_kernel in all reductions (judgement): each attempt causes work in net_kernel.
const MIN_NET_KERNEL_SHARE: f64 = 0.02;

/// Minimum number of attempts to a node that is not connected, if they fail immediately (judgement).
const MIN_FAST_ATTEMPTS: f64 = 3.0;
/// The same, for attempts that wait for an answer.
const MIN_SLOW_ATTEMPTS: f64 = 2.0;
/// An attempt that takes this long is not answered (judgement: a distant node answers in a tenth of this time).
const SLOW_SECONDS: f64 = 2.0;
/// The last attempt must be within this last share of the period, or within these last seconds, which contain three readings (judgement).
const RECENT_SHARE: f64 = 0.33;
const RECENT_SECONDS: f64 = 25.0;
/// With fewer sampled steps, some attempts may have reached the handshake (judgement).
const MIN_STEPS: i64 = 10;
/// Maximum number of names in evidence.
const MAX_NAMED: usize = 5;

const SENDERS_UNKNOWN: &str = "the senders are not recorded: any send, call or monitor to a node that is not connected tries to connect";

/// All attempts in the period to connect this node with another one.
struct Attempts<'p> {
    node: &'p str,
    count: f64,
    per_s: f64,
    /// Share of the samples with a pending attempt.
    pending: f64,
    is_incoming: bool,
    callers: i64,
}

impl<'p> Attempts<'p> {
    /// Returns `None` if the other node was ever connected in the period, or if there was no recent attempt.
    fn of(period: &'p Period, node: &'p str) -> Option<Self> {
        let samples = period.stat(&metrics::CONNECT_SAMPLES, "").ok()?;
        let total = |metric: &Metric| total(period, metric, node);
        let is_up = period.stat(&metrics::CONNECT_UP, node).is_ok_and(|stat| stat.max > 0);
        let pending = period.stat(&metrics::CONNECT_PENDING, node).ok()?;
        let points = view::trend_points(&pending.trace);
        let last = points.iter().rev().find(|(_, pending)| *pending > 0.0).map_or(f64::MIN, |(at, _)| *at);
        let recent = RECENT_SECONDS.max(RECENT_SHARE * period.seconds());
        let is_recent = last >= samples.last.t as f64 / SECOND_NS as f64 - recent;
        let count = total(&metrics::CONNECT_ATTEMPTS);
        (is_recent && !is_up).then(|| Attempts {
            node,
            count,
            per_s: count / period.seconds().max(1.0),
            pending: total(&metrics::CONNECT_PENDING)
                / (samples.mean() * f64::from(samples.samples)).max(1.0),
            is_incoming: total(&metrics::CONNECT_INCOMING) > total(&metrics::CONNECT_OUTGOING),
            callers: period.stat(&metrics::CONNECT_CALLERS, node).map_or(0, |stat| stat.max),
        })
    }

    fn all(period: &'p Period) -> Vec<Self> {
        let nodes = period.entities(Group::Connect).into_iter().filter(|node| !node.is_empty());
        let mut all: Vec<Self> = nodes.filter_map(|node| Attempts::of(period, node)).collect();
        all.sort_by(|a, b| b.per_s.total_cmp(&a.per_s));
        all
    }

    /// Returns the mean duration of an attempt.
    fn seconds(&self) -> f64 {
        if self.per_s > 0.0 { self.pending / self.per_s } else { 0.0 }
    }

    fn is_slow(&self, period: &Period) -> bool {
        !self.is_incoming
            && self.count >= MIN_SLOW_ATTEMPTS
            && PENDING.of(period).severity(self.pending).is_some()
            && self.seconds() >= SLOW_SECONDS
    }
}

/// Returns the sum of all readings. Each reading counts what has happened since the one before.
fn total(period: &Period, metric: &Metric, node: &str) -> f64 {
    period.stat(metric, node).map_or(0.0, |stat| stat.mean() * f64::from(stat.samples))
}

fn judge(period: &Period) -> Result<Judgement, Missing> {
    period.stat(&metrics::SCAN_SPAWNED, "")?;
    let started = view::spawn_rate(period)?;
    let attempts = Attempts::all(period);
    let (slow, fast): (Vec<_>, Vec<_>) = attempts.iter().partition(|one| one.is_slow(period));
    let (incoming, outgoing): (Vec<_>, Vec<_>) =
        fast.into_iter().filter(|one| one.count >= MIN_FAST_ATTEMPTS).partition(|one| one.is_incoming);
    let named = [unanswered(period, &slow), failing(period, &outgoing), rejected(period, &incoming)];
    let mut drafts: Vec<Draft> = named.into_iter().chain([reconnecting(period)]).flatten().collect();
    if slow.is_empty() && outgoing.is_empty() {
        drafts.extend(estimated(period, started));
    }
    Ok(Judgement::found_or_healthy(
        drafts,
        match attempts.first() {
            Some(one) => format!(
                "{} in {} to {}, which is not connected",
                text::counted(one.count.round(), "connection attempt", "connection attempts"),
                view::duration_text(period.seconds()),
                one.node
            ),
            None => "no repeated connection attempts".to_owned(),
        },
    ))
}

/// Drafts the finding about nodes that do not answer.
fn unanswered(period: &Period, slow: &[&Attempts<'_>]) -> Option<Draft> {
    let one = slow.iter().max_by(|a, b| a.pending.total_cmp(&b.pending))?;
    let waiting = waiters(period, slow).iter().fold(0_i64, |sum, (_, count)| sum.saturating_add(*count));
    let processes = period.stat(&metrics::PROCESS_COUNT, "").map_or(0.0, |count| count.mean());
    let waiting = blocking::of_all(period, processes, waiting);
    let severity = PENDING.of(period).severity(one.pending)?;
    // Processes that call the node wait equally long.
    let severity = severity.max(blocking::WAITING.of(period).severity(waiting).unwrap_or(0.0));
    let verb = if slow.len() == 1 { "does" } else { "do" };
    let count =
        format!("{} attempts in {}", text::number(one.count.round()), view::duration_text(period.seconds()));
    let draft = Draft::new(
        severity,
        format!(
            "{} {verb} not answer: connecting takes {:.0} s",
            and_more(one.node, slow.len()),
            one.seconds()
        ),
    )
    .detail(&count)
    .confidence(Confidence::Measured)
    .about(Subject::Node { name: one.node.to_owned() })
    .costs(
        Some(waiting.max(slow.iter().map(|one| one.callers as f64).sum()))
            .filter(|all| *all >= 1.0)
            .map(Cost::Waiting),
    )
    .evidence(
        Evidence::number("share of samples with a pending attempt", one.pending, Unit::Ratio)
            .with_text(format!("at least {count}")),
    );
    let draft = with_callers(period, draft, slow)
        .counter_evidence("a node whose host was just lost does not answer until it is started again")
        .remedy(remedy::of(
            period,
            "code.around_the_server",
            "remove the node from the list of targets, or connect with growing pauses; if it should run, find what drops packets to \
             port 4369 (epmd) and the node's port",
            "each send to the node connects again, and callers wait until the attempt fails",
            "beamtune doctor TARGET --for 1m: no pending attempt",
        ))
        .remedy(remedy::of(
            period,
            "kernel.net_setuptime",
            "-kernel net_setuptime 2",
            "attempts end sooner if nothing answers",
            "latency of the slow calls",
        ));
    Some(draft)
}

/// Drafts the finding about attempts of this node that fail immediately.
fn failing(period: &Period, outgoing: &[&Attempts<'_>]) -> Option<Draft> {
    let first = outgoing.first()?;
    let per_s: f64 = outgoing.iter().map(|one| one.per_s).sum();
    let severity = ATTEMPTS.of(period).severity(per_s)?;
    let draft = Draft::new(
        severity,
        format!(
            "{} connection attempts/s to {} fail",
            text::rate(per_s),
            and_more(first.node, outgoing.len())
        ),
    )
    .detail(reason(period, outgoing))
    .confidence(Confidence::Measured)
    .about(Subject::Node { name: first.node.to_owned() })
    .evidence(
        Evidence::number("connection attempts, at least", per_s, Unit::PerSecond)
            .against_scale(ATTEMPTS.of(period))
            .with_text(rates(outgoing)),
    );
    Some(
        with_callers(period, draft, outgoing)
            .but_if(
                period.seconds() < MIN_LEAK_SECONDS,
                "a restarting node is unreachable for a while: record for a minute",
            )
            .remedy(avoid_dead_nodes(period))
            .remedy(no_auto_connect(period)),
    )
}

/// Drafts the finding about other nodes whose attempts this one rejects.
fn rejected(period: &Period, incoming: &[&Attempts<'_>]) -> Option<Draft> {
    let first = incoming.first()?;
    let per_s: f64 = incoming.iter().map(|one| one.per_s).sum();
    let severity = ATTEMPTS.of(period).severity(per_s)?;
    Some(
        Draft::new(
            severity,
            format!(
                "{} connection attempts/s from {} fail",
                text::rate(per_s),
                and_more(first.node, incoming.len())
            ),
        )
        .detail("this node rejects them")
        .confidence(Confidence::Measured)
        .about(Subject::Node { name: first.node.to_owned() })
        .evidence(
            Evidence::number("connection attempts, at least", per_s, Unit::PerSecond)
                .against_scale(ATTEMPTS.of(period))
                .with_text(rates(incoming)),
        )
        .counter_evidence("the other side claims that name before it has proved that it knows the cookie")
        .remedy(remedy::of(
            period,
            "code.around_the_server",
            "set the same cookie on both nodes if they belong together; otherwise restrict the other's discovery to its own cluster \
             (node name prefix, another epmd or network)",
            "the cookie differs or net_kernel:allow/1 excludes it; this node's log says which (\"Connection attempt from node … rejected\")",
            "beamtune doctor TARGET --for 1m: no attempts",
        )),
    )
}

/// Drafts the finding about nodes whose connections are lost and restored.
fn reconnecting(period: &Period) -> Option<Draft> {
    let sum = |node: &str| total(period, &metrics::CONNECT_AGAIN, node);
    let nodes = period.entities(Group::Connect).into_iter().filter(|node| !node.is_empty());
    let nodes =
        largest_first(nodes.map(|node| (node, sum(node).round() as i64)).filter(|(_, count)| *count > 0));
    let (first, _) = nodes.first()?;
    let count: f64 = nodes.iter().map(|(_, count)| *count as f64).sum();
    if count < MIN_RECONNECTIONS || sum("") < MIN_RECONNECTION_SAMPLES {
        return None;
    }
    let per_minute = 60.0 * count / period.seconds().max(1.0);
    let severity = RECONNECTIONS.of(period).severity(per_minute)?;
    let (who, time) = (and_more(first, nodes.len()), view::duration_text(period.seconds()));
    let each = listed(&nodes, MAX_NAMED);
    Some(
        Draft::new(
            severity,
            format!("{who} lost and reconnected {} times in {time}", text::number(count)),
        )
        .detail(&each)
        .confidence(Confidence::Measured)
        .about(Subject::Node { name: (*first).to_owned() })
        .evidence(
            Evidence::number("reconnections per minute", per_minute, Unit::Count)
                .against_scale(RECONNECTIONS.of(period))
                .with_text(each),
        )
        .evidence(Evidence::number("connected nodes", period.entities(Group::Dist).len() as f64, Unit::Count))
        .counter_evidence("the reason is not recorded: this node or the other may disconnect, or the network")
        .counter_evidence("a node in a crash loop looks the same; beamtune nodes on its host then shows a short uptime")
        .confirmed_by(
            "run net_kernel:monitor_nodes(true, [nodedown_reason]): disconnect means erlang:disconnect_node/1; net_tick_timeout or \
             connection_closed the network or the other node",
        )
        .remedy(remedy::of(
            period,
            "code.keep_connected",
            "disconnect a node only after it was missing for long: one DNS answer, or another member's list, may lack it; wait for nodedown",
            "after each reconnection global and pg synchronise again, and messages sent in between are lost",
            "beamtune doctor TARGET --for 1m: no reconnections",
        )),
    )
}

/// Drafts the finding about attempts that show only in the processes that make them.
fn estimated(period: &Period, started: f64) -> Option<Draft> {
    let sum = |is_meant: &dyn Fn(&str) -> bool| {
        let rows = new_processes::rows(period).filter(|row| is_meant(&row.kind));
        rows.fold(0_i64, |sum, row| sum.saturating_add(row.count))
    };
    let (setups, all) = (sum(&|kind| stack::begins(kind, &SETUP_CALLS)), sum(&|_| true));
    let share = setups as f64 / all.max(1) as f64;
    let attempts = started * share / PROCESSES_PER_ATTEMPT;
    let net_kernel = period
        .processes
        .iter()
        .find(|process| process.row.as_ref().is_some_and(|row| row.name.as_deref() == Some("net_kernel")));
    let work = net_kernel.and_then(|process| view::reductions_share(period, &[process]));
    let is_known = setups >= MIN_SETUP_PROCESSES
        && share >= MIN_SETUP_SHARE
        && work.is_some_and(|work| work >= MIN_NET_KERNEL_SHARE);
    let severity = ATTEMPTS.of(period).severity(attempts).filter(|_| is_known)?;
    let unconnected = rows(period, SpawnRow::UNCONNECTED).map(|row| (row.kind.as_str(), row.count));
    let unconnected: Vec<&str> =
        largest_first(unconnected).iter().take(MAX_NAMED).map(|(node, _)| *node).collect();
    let unconnected = unconnected.join(", ");
    let connected = period.entities(Group::Dist).len();
    let draft = Draft::new(
        severity,
        format!("Likely {} failing connection attempts/s to other nodes", text::rate(attempts)),
    )
    .detail("nodes that are gone, or have another cookie");
    let draft = match unconnected.is_empty() {
        true => draft,
        false => draft
            .detail(format!("known and not connected: {unconnected}"))
            .evidence(Evidence::text("known nodes that are not connected", unconnected)),
    };
    Some(
        draft
            .about(net_kernel.map(|process| process.subject()))
            .evidence(
                Evidence::number("connection attempts, estimated", attempts, Unit::PerSecond)
                    .against_scale(ATTEMPTS.of(period))
                    .with_text(format!(
                        "{setups} of {all} sampled new processes set up connections, two for each attempt; {} spawned per second",
                        text::number(started.round())
                    )),
            )
            .because_some(
                work.map(|work| Evidence::number("net_kernel's share of all reductions", work, Unit::Ratio)),
            )
            .evidence(Evidence::number("connected nodes", connected as f64, Unit::Count))
            .counter_evidence(SENDERS_UNKNOWN)
            .remedy(avoid_dead_nodes(period))
            .remedy(no_auto_connect(period)),
    )
}

fn rows<'p>(period: &'p Period, what: &str) -> impl Iterator<Item = &'p SpawnRow> {
    period.spawns.iter().filter(move |row| row.what == what)
}

/// Adds what requests the attempts, what waits for them, and the steps in which they were sampled.
fn with_callers(period: &Period, draft: Draft, nodes: &[&Attempts<'_>]) -> Draft {
    let is_meant = |row: &&SpawnRow| nodes.iter().any(|one| one.node == row.kind);
    let of = |what| {
        let rows = rows(period, what).filter(is_meant);
        largest_first(rows.filter_map(|row| Some((row.creator.clone()?, row.count))))
    };
    let requesters = of(SpawnRow::ATTEMPT);
    let steps: Vec<_> =
        of(SpawnRow::ATTEMPT_STEP).into_iter().map(|(step, count)| (step_text(&step), count)).collect();
    let callers = nodes.iter().map(|one| one.callers).sum::<i64>();
    let waiters = waiters(period, nodes);
    let requested = requesters.first().map(|(requester, _)| format!("requested by {requester}"));
    let waited = waiters.first().map(|(function, _)| format!("{function} waits for an answer"));
    draft
        .detail(requested.or(waited).unwrap_or_default())
        .because_some(
            (!requesters.is_empty())
                .then(|| Evidence::text("connection requested by", listed(&requesters, MAX_NAMED))),
        )
        .because_some(
            (!waiters.is_empty())
                .then(|| Evidence::text("functions waiting for its reply", listed(&waiters, MAX_NAMED))),
        )
        .because_some((callers > 0).then(|| {
            Evidence::number("processes waiting in net_kernel:connect_node/1", callers as f64, Unit::Count)
        }))
        .because_some(
            (!steps.is_empty())
                .then(|| Evidence::text("steps of sampled attempts", listed(&steps, MAX_NAMED))),
        )
        .but_if(requesters.is_empty() && waiters.is_empty(), SENDERS_UNKNOWN)
}

/// Returns the program's functions that were sampled while they waited for an answer of these nodes.
fn waiters(period: &Period, nodes: &[&Attempts<'_>]) -> Vec<(String, i64)> {
    let waits_for = |place: &&WaitSample| {
        place.targets.iter().any(|wanted| nodes.iter().any(|one| one.node == wanted.name))
    };
    let places = blocking::waiting(period).filter(waits_for);
    largest_first(places.filter_map(|place| {
        let function = stack::of_program(&place.stack)?;
        Some((stack::without_fun(function), place.count))
    }))
}

/// Describes a step of an attempt.
fn step_text(step: &str) -> &'static str {
    match step {
        "resolve" => "resolving the host name",
        "epmd" => "asking epmd",
        "tls" => "TLS handshake",
        "handshake" => "distribution handshake",
        _ => "connecting to its port",
    }
}

/// Returns why the attempts fail, by their steps: an attempt that reaches the handshake has found the node. Empty if unknown.
fn reason(period: &Period, nodes: &[&Attempts<'_>]) -> &'static str {
    let mut steps: BTreeMap<&str, i64> = BTreeMap::new();
    for row in rows(period, SpawnRow::ATTEMPT_STEP).filter(|row| nodes.iter().any(|one| one.node == row.kind))
    {
        let count = steps.entry(row.creator.as_deref().unwrap_or_default()).or_default();
        *count = count.saturating_add(row.count);
    }
    let all: i64 = steps.values().sum();
    let met = steps.get("handshake").copied().unwrap_or(0) + steps.get("tls").copied().unwrap_or(0);
    match (met > 0, all >= MIN_STEPS) {
        (true, _) => "refused in the handshake, possibly for another cookie",
        (false, true) => "gone, or its port is closed",
        (false, false) => "",
    }
}

/// Formats the first node and the number of the others: `shop@web2 and 2 more`.
fn and_more(first: &str, count: usize) -> String {
    match count {
        1 => first.to_owned(),
        count => format!("{first} and {} more", count - 1),
    }
}

/// Formats the attempts per second of each node.
fn rates(nodes: &[&Attempts<'_>]) -> String {
    let each: Vec<String> =
        nodes.iter().take(MAX_NAMED).map(|one| format!("{} {:.1}", one.node, one.per_s)).collect();
    format!("by the connection number: {}", each.join(", "))
}

fn avoid_dead_nodes(period: &Period) -> Option<Remedy> {
    remedy::of(
        period,
        "code.around_the_server",
        "call only members of nodes(), or send with noconnect (erlang:send/3); restrict discovery by epmd or DNS to the same cluster",
        "each send to a node that is not connected asks epmd, connects and shakes hands, and a call waits for that",
        "new processes per second, and latency of the slow calls",
    )
}

fn no_auto_connect(period: &Period) -> Option<Remedy> {
    remedy::of(
        period,
        "kernel.dist_auto_connect",
        "-kernel dist_auto_connect never, if the program connects with net_kernel:connect_node/1",
        "sends then never connect",
        "new processes per second under the same load",
    )
}
