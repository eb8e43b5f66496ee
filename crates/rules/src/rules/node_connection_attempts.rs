//! BT086: the node, or another one, tries to connect again and again, or connections are made and lost again and again.
//!
//! Each attempt has a row in net_kernel's table while it lasts, with a number that counts them. Attempts at nodes that are gone take milliseconds and
//! may never be seen there: then only the processes that set connections up show them, without the names of the nodes.

use std::collections::BTreeMap;

use beamtune_model::{
    Account, Code, Confidence, Cost, Evidence, Group, Metric, Missing, Period, Scale, SpawnRow, Stand,
    Subject, Threshold, Unit, metrics, units::SECOND_NS,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::signals::blocking;
use crate::signals::counts::{largest_first, listed};
use crate::signals::limits::SHORT_SECONDS;
use crate::signals::new_processes;
use crate::signals::stack;
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT086"),
    name: "node-connection-attempts",
    question: "Does the node connect to other nodes again and again, in vain?",
    confirm: "nodes(known) -- [node() | nodes(connected)], some times: nodes that are tried and never connected; the log of both nodes (\"Invalid challenge reply\": another cookie)",
    needs: &[&metrics::SCAN_SPAWNED, &metrics::SPAWNED, &metrics::PROCESS_COUNT],
    account: Account::Delay,
    confidence: Confidence::Inferred,
    explains_as_notice: true,
    judge,
    thresholds: &[ATTEMPTS, UNDER_WAY, AGAIN],
    ..Rule::COMMON
};

const ATTEMPTS: Threshold = Threshold::new(
    "node-connection-attempts.per_s",
    "attempts to connect to other nodes, a second",
    Scale {
        notice: 1.0,
        warning: 10.0,
        critical: 10_000.0,
        source: "judgement: nodes of a cluster connect once; after a failure net_kernel tries again when somebody sends",
    },
);

const UNDER_WAY: Threshold = Threshold::new(
    "node-connection-attempts.under_way_share",
    "share of the samples in which an attempt to connect to the same node is under way",
    Scale {
        notice: 0.5,
        warning: f64::INFINITY,
        critical: f64::INFINITY,
        source: "judgement: an attempt takes milliseconds where the other node answers, and net_setuptime (7 s) where it does not",
    },
);

const AGAIN: Threshold = Threshold::new(
    "node-connection-attempts.reconnections_per_minute",
    "connections to nodes that had been connected before, a minute",
    Scale {
        notice: 2.0,
        warning: 10.0,
        critical: f64::INFINITY,
        source: "judgement: nodes of a cluster stay connected; a restart of all of three nodes within a minute is three",
    },
);

/// Fewer, or all in one sample, are a network that was down for a moment (judgement).
const MIN_AGAIN: f64 = 3.0;
const MIN_AGAIN_SAMPLES: f64 = 2.0;

/// What a connection to another node is set up by (inet_tcp_dist.erl, inet_tls_dist.erl, dist_util.erl): each attempt starts the first, and that
/// a timer.
const SET_UP: [&str; 4] =
    ["inet_tcp_dist:do_setup", "inet6_tcp_dist:do_setup", "inet_tls_dist:do_setup", "dist_util:setup_timer/"];
const PROCESSES_PER_ATTEMPT: f64 = 2.0;

/// Fewer in the sample may be one attempt.
const MIN_SEEN: i64 = 2;
/// Share of the sampled new processes that must be of that kind (judgement: most).
const MOST: f64 = 0.5;
/// What sets them up takes time of net_kernel, too: this share of all reductions at least (judgement).
const OF_NET_KERNEL: f64 = 0.02;

/// Fewer attempts at a node that is not connected are no "again and again" (judgement): of one that answers at once, and of one that is waited for.
const MIN_FAST: f64 = 3.0;
const MIN_SLOW: f64 = 2.0;
/// One must have been seen in this last share of the period, or these last seconds (judgement): three readings, each of which may see none.
const LAST_SHARE: f64 = 0.33;
const LAST_SECONDS: f64 = 25.0;
/// So many nodes are named in evidence.
const MAX_NAMED: usize = 5;

/// Attempts to connect this node and another one, in all of the period.
struct Attempts<'p> {
    node: &'p str,
    count: f64,
    per_s: f64,
    /// Share of the samples in which one was under way.
    under_way: f64,
    is_incoming: bool,
    callers: i64,
}

impl<'p> Attempts<'p> {
    /// `None` where the node was connected at a reading, or has not been tried of late.
    fn of(period: &'p Period, node: &'p str) -> Option<Self> {
        let looks = period.stat(&metrics::CONNECT_LOOKS, "").ok()?;
        let sum = |metric: &Metric| added_up(period, metric, node);
        let is_up = period.stat(&metrics::CONNECT_UP, node).is_ok_and(|stat| stat.max > 0);
        let pending = period.stat(&metrics::CONNECT_PENDING, node).ok()?;
        let points = view::trend_points(&pending.trace);
        let last = points.iter().rev().find(|(_, pending)| *pending > 0.0).map_or(f64::MIN, |(at, _)| *at);
        let goes_on =
            last >= looks.last.t as f64 / SECOND_NS as f64 - LAST_SECONDS.max(LAST_SHARE * period.seconds());
        let count = sum(&metrics::CONNECT_ATTEMPTS);
        (goes_on && !is_up).then(|| Attempts {
            node,
            count,
            per_s: count / period.seconds().max(1.0),
            under_way: sum(&metrics::CONNECT_PENDING) / (looks.mean() * f64::from(looks.samples)).max(1.0),
            is_incoming: sum(&metrics::CONNECT_INCOMING) > sum(&metrics::CONNECT_OUTGOING),
            callers: period.stat(&metrics::CONNECT_CALLERS, node).map_or(0, |stat| stat.max),
        })
    }

    fn all(period: &'p Period) -> Vec<Self> {
        let nodes = period.entities(Group::Connect).into_iter().filter(|node| !node.is_empty());
        let mut all: Vec<Self> = nodes.filter_map(|node| Attempts::of(period, node)).collect();
        all.sort_by(|a, b| b.per_s.total_cmp(&a.per_s));
        all
    }

    /// How long an attempt takes, in seconds.
    fn seconds(&self) -> f64 {
        if self.per_s > 0.0 { self.under_way / self.per_s } else { 0.0 }
    }

    fn is_slow(&self, period: &Period) -> bool {
        !self.is_incoming
            && self.count >= MIN_SLOW
            && UNDER_WAY.of(period).severity(self.under_way).is_some()
            && self.seconds() >= SLOW_SECONDS
    }
}

/// What all readings say together: each is of the time since the one before.
fn added_up(period: &Period, metric: &Metric, node: &str) -> f64 {
    period.stat(metric, node).map_or(0.0, |stat| stat.mean() * f64::from(stat.samples))
}

/// An attempt that takes so long is not answered (judgement: a far node answers in a tenth of that).
const SLOW_SECONDS: f64 = 2.0;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    period.stat(&metrics::SCAN_SPAWNED, "")?;
    let started = view::spawn_rate(period)?;
    let attempts = Attempts::all(period);
    let (slow, fast): (Vec<_>, Vec<_>) = attempts.iter().partition(|one| one.is_slow(period));
    let (incoming, outgoing): (Vec<_>, Vec<_>) =
        fast.into_iter().filter(|one| one.count >= MIN_FAST).partition(|one| one.is_incoming);
    let named = [unanswered(period, &slow), refused(period, &outgoing), refused_here(period, &incoming)];
    let mut drafts: Vec<Draft> = named.into_iter().chain([come_and_go(period)]).flatten().collect();
    if slow.is_empty() && outgoing.is_empty() {
        drafts.extend(unnamed(period, started));
    }
    Ok(Judgement::found_or_healthy(
        drafts,
        match attempts.first() {
            Some(one) => format!(
                "few attempts to connect to nodes that are not connected: {:.0} in {} with {}",
                one.count,
                view::duration_text(period.seconds()),
                one.node
            ),
            None => "no node was tried again and again".to_owned(),
        },
    ))
}

/// Nodes from which no answer comes.
fn unanswered(period: &Period, slow: &[&Attempts<'_>]) -> Option<Draft> {
    let one = slow.iter().max_by(|a, b| a.under_way.total_cmp(&b.under_way))?;
    let waiting = waiters(period, slow).iter().fold(0_i64, |sum, (_, count)| sum.saturating_add(*count));
    let total = period.stat(&metrics::PROCESS_COUNT, "").map_or(0.0, |count| count.mean());
    let waiting = blocking::of_all(period, total, waiting);
    let severity = UNDER_WAY.of(period).severity(one.under_way)?;
    // Who waits for the node waits for as long.
    let severity = severity.max(blocking::WAITING.of(period).severity(waiting).unwrap_or(0.0));
    let (others, verb) = match slow.len() {
        1 => (String::new(), "does"),
        more => (others(more - 1), "do"),
    };
    let draft = Draft::new(
        severity,
        format!(
            "{}{others} {verb} not answer: each attempt to connect takes {:.0} s",
            one.node,
            one.seconds()
        ),
    )
    .confidence(Confidence::Measured)
    .about(Subject::Node { name: one.node.to_owned() })
    .costs(
        Some(waiting.max(slow.iter().map(|one| one.callers as f64).sum()))
            .filter(|all| *all >= 1.0)
            .map(Cost::Waiting),
    )
    .because(
        Evidence::number("share of the samples with an attempt under way", one.under_way, Unit::Ratio)
            .with_text(format!(
                "{:.0} attempts or more in {}",
                one.count,
                view::duration_text(period.seconds())
            )),
    );
    let draft = described(period, draft, slow)
        .but("a node whose host was lost just now does not answer until it is started again, and then connects")
        .fix(remedy::of(
            period,
            "code.around_the_server",
            "take the node out of the list of those that are sent to, or let the program connect to it with a pause that grows; if it is meant to be \
             there, look for what drops packets to port 4369 (epmd) and to the port of the node: a firewall, a security group, an address of old",
            "each process that sends to the node connects again, and callers wait until the attempt is given up",
            "beamtune doctor --for 1m: no attempt is under way",
        ))
        .fix(remedy::of(
            period,
            "kernel.net_setuptime",
            "-kernel net_setuptime 2",
            "attempts end sooner where nothing answers",
            "time of the calls that were slow",
        ));
    Some(draft)
}

/// Attempts of this node that fail at once.
fn refused(period: &Period, outgoing: &[&Attempts<'_>]) -> Option<Draft> {
    let first = outgoing.first()?;
    let per_s: f64 = outgoing.iter().map(|one| one.per_s).sum();
    let severity = ATTEMPTS.of(period).severity(per_s)?;
    let more = if outgoing.len() > 1 { others(outgoing.len() - 1) } else { String::new() };
    let draft = Draft::new(
        severity,
        format!(
            "{} to connect to {}{more}{}",
            if per_s < 1.5 {
                "an attempt a second fails".to_owned()
            } else {
                format!("{per_s:.0} attempts a second fail")
            },
            first.node,
            reason(period, outgoing)
        ),
    )
    .confidence(Confidence::Measured)
    .about(Subject::Node { name: first.node.to_owned() })
    .because(
        Evidence::number("attempts a second, at least", per_s, Unit::PerSecond)
            .against_scale(ATTEMPTS.of(period))
            .with_text(counted(outgoing)),
    );
    Some(
        described(period, draft, outgoing)
            .but_if(
                period.seconds() < SHORT_SECONDS,
                "a node that is being started again is gone for a while: record for a minute",
            )
            .fix(around(period))
            .fix(no_auto_connect(period)),
    )
}

/// Another node whose attempts this one refuses.
fn refused_here(period: &Period, incoming: &[&Attempts<'_>]) -> Option<Draft> {
    let first = incoming.first()?;
    let per_s: f64 = incoming.iter().map(|one| one.per_s).sum();
    let severity = ATTEMPTS.of(period).severity(per_s)?;
    let (more, verb) = match incoming.len() {
        1 => (String::new(), "tries"),
        more => (others(more - 1), "try"),
    };
    Some(
        Draft::new(
            severity,
            format!("{}{more} {verb} to connect to this node {per_s:.0} times a second, and fail{}", first.node, if incoming.len() == 1 { "s" } else { "" }),
        )
        .confidence(Confidence::Measured)
        .about(Subject::Node { name: first.node.to_owned() })
        .because(
            Evidence::number("attempts a second, at least", per_s, Unit::PerSecond)
                .against_scale(ATTEMPTS.of(period))
                .with_text(counted(incoming)),
        )
        .but("the name is what the other side says of itself, before it has shown that it knows the cookie")
        .fix(remedy::of(
            period,
            "code.around_the_server",
            "give both nodes the same cookie if they are of one cluster; if not, let the other one find members of its own cluster only (a prefix with the \
             environment, another epmd or network)",
            "this node refuses it: another cookie, or a node that it does not allow; its log says which (\"Connection attempt from node … rejected\")",
            "beamtune doctor --for 1m: no attempts",
        )),
    )
}

/// Nodes that are connected, lost, and connected again.
fn come_and_go(period: &Period) -> Option<Draft> {
    let sum = |node: &str| added_up(period, &metrics::CONNECT_AGAIN, node);
    let nodes = period.entities(Group::Connect).into_iter().filter(|node| !node.is_empty());
    let nodes =
        largest_first(nodes.map(|node| (node, sum(node).round() as i64)).filter(|(_, count)| *count > 0));
    let (first, _) = nodes.first()?;
    let count: f64 = nodes.iter().map(|(_, count)| *count as f64).sum();
    if count < MIN_AGAIN || sum("") < MIN_AGAIN_SAMPLES {
        return None;
    }
    let per_minute = 60.0 * count / period.seconds().max(1.0);
    let severity = AGAIN.of(period).severity(per_minute)?;
    let who = match nodes.len() {
        1 => (*first).to_owned(),
        more => format!("{more} nodes ({first} and others)"),
    };
    let time = view::duration_text(period.seconds());
    Some(
        Draft::new(severity, format!("{who} {} lost and connected again {count:.0} times in {time}", if nodes.len() == 1 { "was" } else { "were" }))
            .confidence(Confidence::Measured)
            .about(Subject::Node { name: (*first).to_owned() })
            .because(
                Evidence::number("connections to nodes that had been connected before, a minute", per_minute, Unit::Count)
                    .against_scale(AGAIN.of(period))
                    .with_text(listed(&nodes, MAX_NAMED)),
            )
            .because(Evidence::number("nodes that are connected", period.entities(Group::Dist).len() as f64, Unit::Count))
            .but("why they are lost is not recorded: this node may disconnect them, the other one may, or the network")
            .but("a node that is restarted by a crash loop looks the same: then beamtune nodes on its host shows a short uptime")
            .confirmed_by("net_kernel:monitor_nodes(true, [nodedown_reason]) in a shell: disconnect is a call of erlang:disconnect_node/1, net_tick_timeout or connection_closed the network or the other node")
            .fix(remedy::of(
                period,
                "code.keep_connected",
                "let the program disconnect a node only after it has been missing for long: one answer of DNS, or another member's list, may lack it; nodedown is \
                 the sign that a node is gone",
                "each connection is set up anew, global and pg synchronise again, and what is sent meanwhile is lost",
                "beamtune doctor --for 1m: the same connections from beginning to end",
            )),
    )
}

/// Attempts that are known by the processes that make them only.
fn unnamed(period: &Period, started: f64) -> Option<Draft> {
    let sum = |is_meant: &dyn Fn(&str) -> bool| {
        let rows = new_processes::rows(period).filter(|row| is_meant(&row.kind));
        rows.fold(0_i64, |sum, row| sum.saturating_add(row.count))
    };
    let (seen, all) = (sum(&|kind| stack::begins(kind, &SET_UP)), sum(&|_| true));
    let share = seen as f64 / all.max(1) as f64;
    let attempts = started * share / PROCESSES_PER_ATTEMPT;
    let net_kernel = period
        .processes
        .iter()
        .find(|process| process.row.as_ref().is_some_and(|row| row.name.as_deref() == Some("net_kernel")));
    let work = net_kernel.and_then(|process| view::reductions_share(period, &[process]));
    let is_known = seen >= MIN_SEEN && share >= MOST && work.is_some_and(|work| work >= OF_NET_KERNEL);
    let severity = ATTEMPTS.of(period).severity(attempts).filter(|_| is_known)?;
    let unconnected = rows(period, SpawnRow::UNCONNECTED).map(|row| (row.kind.as_str(), row.count));
    let unconnected = largest_first(unconnected);
    let connected = period.entities(Group::Dist).len();
    Some(
        Draft::new(
            severity,
            format!("about {attempts:.0} attempts a second to connect to other nodes, which fail: nodes that are gone, or have another cookie"),
        )
        .about(net_kernel.map(|process| process.subject()))
        .because(
            Evidence::number("attempts a second, about", attempts, Unit::PerSecond)
                .against_scale(ATTEMPTS.of(period))
                .with_text(format!("{seen} of {all} sampled new processes set up a connection; {started:.0} start in a second, two for each attempt")),
        )
        .because_some(work.map(|work| Evidence::number("net_kernel's share of all reductions", work, Unit::Ratio)))
        .because(Evidence::number("nodes that are connected", connected as f64, Unit::Count))
        .because_some((!unconnected.is_empty()).then(|| {
            let names: Vec<&str> = unconnected.iter().take(MAX_NAMED).map(|(node, _)| *node).collect();
            Evidence::text("nodes that are known and not connected", names.join(", "))
        }))
        .but("who sends to these nodes is not recorded: any send, call or monitor to a node that is not connected tries to connect")
        .fix(around(period))
        .fix(no_auto_connect(period)),
    )
}

fn rows<'p>(period: &'p Period, what: &str) -> impl Iterator<Item = &'p SpawnRow> {
    period.spawns.iter().filter(move |row| row.what == what)
}

/// Who asked for the attempts, how many wait for them, and how far they were.
fn described(period: &Period, draft: Draft, nodes: &[&Attempts<'_>]) -> Draft {
    let is_meant = |row: &&SpawnRow| nodes.iter().any(|one| one.node == row.kind);
    let of = |what| {
        let rows = rows(period, what).filter(is_meant);
        largest_first(rows.filter_map(|row| Some((row.maker.clone()?, row.count))))
    };
    let askers = of(SpawnRow::ATTEMPT);
    let steps: Vec<_> =
        of(SpawnRow::ATTEMPT_STEP).into_iter().map(|(step, count)| (step_text(&step), count)).collect();
    let callers = nodes.iter().map(|one| one.callers).sum::<i64>();
    let waiters = waiters(period, nodes);
    draft
        .because_some((!askers.is_empty()).then(|| Evidence::text("code that asks to connect", listed(&askers, MAX_NAMED))))
        .because_some((!waiters.is_empty()).then(|| Evidence::text("who waits for an answer of it", listed(&waiters, MAX_NAMED))))
        .because_some((callers > 0).then(|| {
            Evidence::number("processes that waited for it in net_kernel:connect_node/1", callers as f64, Unit::Count)
        }))
        .because_some((!steps.is_empty()).then(|| Evidence::text("how far attempts were when seen", listed(&steps, MAX_NAMED))))
        .but_if(
            askers.is_empty() && waiters.is_empty(),
            "who sends to these nodes is not recorded: any send, call or monitor to a node that is not connected tries to connect",
        )
}

/// Who was seen waiting for an answer of these nodes, by the program's own function.
fn waiters(period: &Period, nodes: &[&Attempts<'_>]) -> Vec<(String, i64)> {
    let waits_for =
        |place: &&Stand| place.on.iter().any(|wanted| nodes.iter().any(|one| one.node == wanted.who));
    let places = blocking::waiting(period).filter(waits_for);
    largest_first(places.filter_map(|place| {
        let function = stack::of_program(&place.stack)?;
        Some((stack::without_fun(function), place.count))
    }))
}

/// What was seen to be done, in words.
fn step_text(step: &str) -> &'static str {
    match step {
        "resolve" => "resolve the host's name",
        "epmd" => "ask epmd on its host",
        "tls" => "TLS handshake",
        "handshake" => "handshake of the nodes",
        _ => "connect to its port",
    }
}

/// Why they fail, as far as their steps tell: who comes to the handshake has found the node.
fn reason(period: &Period, nodes: &[&Attempts<'_>]) -> &'static str {
    let mut steps: BTreeMap<&str, i64> = BTreeMap::new();
    for row in rows(period, SpawnRow::ATTEMPT_STEP).filter(|row| nodes.iter().any(|one| one.node == row.kind))
    {
        let count = steps.entry(row.maker.as_deref().unwrap_or_default()).or_default();
        *count = count.saturating_add(row.count);
    }
    let all: i64 = steps.values().sum();
    let met = steps.get("handshake").copied().unwrap_or(0) + steps.get("tls").copied().unwrap_or(0);
    match (met > 0, all >= MIN_STEPS) {
        (true, _) => ": refused in the handshake (another cookie?)",
        (false, true) => ": gone, or its port is closed",
        (false, false) => "",
    }
}

/// Fewer steps do not tell that no attempt comes to the handshake (judgement).
const MIN_STEPS: i64 = 10;

fn others(count: usize) -> String {
    match count {
        1 => " and another node".to_owned(),
        _ => format!(" and {count} more nodes"),
    }
}

fn counted(nodes: &[&Attempts<'_>]) -> String {
    let each: Vec<String> =
        nodes.iter().take(MAX_NAMED).map(|one| format!("{} {:.1}", one.node, one.per_s)).collect();
    format!("by the number of the connection: {}", each.join(", "))
}

fn around(period: &Period) -> Option<beamtune_model::Remedy> {
    remedy::of(
        period,
        "code.around_the_server",
        "call members of nodes() only, or send with noconnect (erlang:send/3); where nodes are found by their names at epmd or in DNS, let only those of \
         the same cluster through",
        "each send to a node that is not connected asks epmd, connects and shakes hands, and a call waits for that",
        "new processes a second, and time of the calls that were slow",
    )
}

fn no_auto_connect(period: &Period) -> Option<beamtune_model::Remedy> {
    remedy::of(
        period,
        "kernel.dist_auto_connect",
        "-kernel dist_auto_connect never, where the program connects with net_kernel:connect_node/1",
        "sends then connect to no node",
        "new processes a second under the same load",
    )
}
