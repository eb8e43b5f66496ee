//! BT086: the node tries to connect to other nodes again and again.

use beamtune_model::{
    Account, Code, Confidence, Evidence, Group, Missing, Period, Scale, Threshold, Unit, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
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
    thresholds: &[ATTEMPTS],
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

/// What a connection to another node is set up by (inet_tcp_dist.erl, inet_tls_dist.erl, dist_util.erl): each attempt starts the first, and that
/// a timer.
const SET_UP: [&str; 4] =
    ["inet_tcp_dist:do_setup", "inet6_tcp_dist:do_setup", "inet_tls_dist:do_setup", "dist_util:setup_timer/"];
const PROCESSES_PER_ATTEMPT: f64 = 2.0;

/// Fewer in the sample may be one attempt.
const MIN_SEEN: i64 = 2;
/// Of the sampled new processes so many must be of that kind (judgement: most).
const MOST: f64 = 0.5;
/// What sets them up takes time of net_kernel, too: this share of all reductions at least (judgement).
const OF_NET_KERNEL: f64 = 0.02;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    period.stat(&metrics::SCAN_SPAWNED, "")?;
    let started = view::spawn_rate(period)?;
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
    let severity = ATTEMPTS
        .of(period)
        .severity(attempts)
        .filter(|_| seen >= MIN_SEEN && share >= MOST && work.is_some_and(|work| work >= OF_NET_KERNEL));
    let Some(severity) = severity else {
        return Ok(Judgement::Healthy(format!(
            "of {all} new processes that were sampled, {seen} set up connections to other nodes"
        )));
    };
    let connected = period.entities(Group::Dist).len();
    Ok(Judgement::found(
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
        .but("who sends to these nodes is not recorded: any send, call or monitor to a node that is not connected tries to connect")
        .fix(remedy::of(
            period,
            "code.around_the_server",
            "call members of nodes() only, or send with noconnect (erlang:send/3); where nodes are found by their names at epmd or in DNS, let only those of \
             the same cluster through",
            "each send to a node that is not connected asks epmd, connects and shakes hands, and the sender waits meanwhile",
            "new processes a second, and time of the calls that were slow",
        ))
        .fix(remedy::of(
            period,
            "kernel.dist_auto_connect",
            "-kernel dist_auto_connect never, where the program connects by itself (net_kernel:connect_node/1)",
            "sends then connect to no node",
            "new processes a second under the same load",
        )),
    ))
}
