//! BT077: Mnesia is partitioned from a connected node that has a copy of its schema.
//!
//! When the connection breaks, Mnesia on each side assumes that the other side is down. When the nodes reconnect, Mnesia finds that both
//! have run in the meantime (`inconsistent_database`) and does not join them. Each side continues with its own data.

use beamtune_model::{Account, Code, Confidence, Evidence, Group, Missing, Period, Subject, Unit, metrics};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule, WARNING};
use crate::signals::{mnesia, products};
use crate::text;

pub const RULE: Rule = Rule {
    code: Code("BT077"),
    name: "mnesia-partitioned",
    question: "Is Mnesia partitioned from a connected node?",
    confirm: "run mnesia:system_info(running_db_nodes) on both nodes: each lacks the other, though nodes() has it",
    needs: &[&metrics::PROCESS_COUNT],
    account: Account::Delay,
    // A node on which Mnesia was stopped looks the same.
    confidence: Confidence::Inferred,
    judge,
    ..Rule::COMMON
};

/// Mnesia needs some seconds to start and load its tables: a shorter period may show a start (judgement).
const MIN_SECONDS: f64 = 5.0;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    if !mnesia::runs(period)? {
        return Ok(Judgement::Healthy(mnesia::NOT_STARTED.to_owned()));
    }
    // Older recordings lack both this metric and the nodes of the schema.
    period.stat(&metrics::MNESIA_LOG_WRITES, "")?;
    let nodes: Vec<(&str, bool)> = period
        .entities(Group::Dist)
        .into_iter()
        .filter_map(|node| Some((node, period.stat(&metrics::MNESIA_RUNS, node).ok()?.max > 0)))
        .collect();
    let apart: Vec<&str> = nodes.iter().filter(|(_, runs)| !runs).map(|(node, _)| *node).collect();
    if apart.is_empty() {
        return Ok(Judgement::Healthy(match nodes.len() {
            0 => "no connected node shares Mnesia's schema".to_owned(),
            count => format!(
                "Mnesia runs on {} of its schema",
                text::counted(count as f64, "connected node", "connected nodes")
            ),
        }));
    }
    let seconds = period.seconds();
    if seconds < MIN_SECONDS {
        return Ok(Judgement::NotJudged {
            reason: format!("only {seconds:.0} s recorded: Mnesia may be starting"),
            next: "record for longer: --for 10s".to_owned(),
        });
    }
    Ok(Judgement::found(describe(period, &apart, nodes.len())))
}

fn describe(period: &Period, apart: &[&str], connected: usize) -> Draft {
    let names = apart.join(", ");
    let first = apart.first().copied().unwrap_or_default();
    let others = if apart.len() > 1 { format!(" and {} more", apart.len() - 1) } else { String::new() };
    let is_rabbit = products::name(period) == Some("RabbitMQ");
    let draft = Draft::new(WARNING, format!("Mnesia is likely partitioned from {first}{others}"))
        .detail(format!("connected, but not a running Mnesia node: {names}"))
        .about(Subject::Node { name: first.to_owned() })
        .evidence(
            Evidence::number("nodes without common Mnesia", apart.len() as f64, Unit::Count)
                .with_text(format!("{names}; {connected} of the schema are connected")),
        )
        .evidence(Evidence::number("period", period.seconds(), Unit::Seconds))
        .counter_evidence("Mnesia that was stopped on that node, or not started yet, looks the same");
    if is_rabbit {
        return draft.remedy(remedy::of(
            period,
            "code.mnesia_heal",
            "on the side to give up: rabbitmqctl stop_app, then rabbitmqctl start_app",
            "that side loads its tables from the other one; its changes since the partition are lost",
            "rabbitmqctl cluster_status lists no partitions",
        ));
    }
    draft
        .remedy(remedy::of(
            period,
            "code.mnesia_heal",
            "decide which side has the right data; on the other: mnesia:set_master_nodes(NodesOfThatSide), then restart",
            "it then loads all tables from the master nodes; its changes since the partition are lost",
            "mnesia:system_info(running_db_nodes) lists all nodes, on each of them",
        ))
        .remedy(remedy::of(
            period,
            "code.mnesia_majority",
            "set {majority, true} on tables that must not diverge; mnesia:subscribe(system) and handle {inconsistent_database, _, Node}",
            "in the next partition the side without the majority refuses to write, and a process learns of it",
            "partition a test cluster: erlang:disconnect_node/1, then net_adm:ping/1",
        ))
}
