//! BT077: a connected node has a copy of Mnesia's schema, and Mnesia does not run together with it.
//!
//! After a break of the connection, Mnesia on either side takes the other one for down. When the nodes are connected again, Mnesia finds that
//! both have run meanwhile (`inconsistent_database`), and leaves them apart: each side goes on with data of its own.

use beamtune_model::{Account, Code, Confidence, Evidence, Group, Missing, Period, Subject, Unit, metrics};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule, WARNING};
use crate::signals::{mnesia, products};

pub const RULE: Rule = Rule {
    code: Code("BT077"),
    name: "mnesia-partitioned",
    question: "Does Mnesia run together with all connected nodes of its schema?",
    confirm: "mnesia:system_info(running_db_nodes) on both nodes: each lacks the other one, though nodes() has it",
    needs: &[&metrics::PROCESS_COUNT],
    account: Account::Delay,
    // Mnesia that was stopped there looks the same from here.
    confidence: Confidence::Inferred,
    judge,
    ..Rule::COMMON
};

/// Mnesia needs some seconds to start and to load its tables, so what is seen in a shorter period may be a start, in seconds (judgement).
const MIN_SECONDS: f64 = 5.0;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    if !mnesia::runs(period)? {
        return Ok(Judgement::Healthy(mnesia::NOT_STARTED.to_owned()));
    }
    // Recorded since the nodes of the schema are.
    period.stat(&metrics::MNESIA_LOG_WRITES, "")?;
    let nodes: Vec<(&str, bool)> = period
        .entities(Group::Dist)
        .into_iter()
        .filter_map(|node| Some((node, period.stat(&metrics::MNESIA_RUNS, node).ok()?.max > 0)))
        .collect();
    let apart: Vec<&str> = nodes.iter().filter(|(_, runs)| !runs).map(|(node, _)| *node).collect();
    if apart.is_empty() {
        return Ok(Judgement::Healthy(match nodes.len() {
            0 => "no connected node has a copy of Mnesia's schema".to_owned(),
            count => format!("Mnesia runs together with all {count} connected nodes of its schema"),
        }));
    }
    let seconds = period.seconds();
    if seconds < MIN_SECONDS {
        return Ok(Judgement::NotJudged {
            reason: format!("it was looked at for {seconds:.0} s only, and Mnesia may be starting"),
            next: "record for longer: --for 10s".to_owned(),
        });
    }
    Ok(Judgement::found(describe(period, &apart, nodes.len())))
}

fn describe(period: &Period, apart: &[&str], connected: usize) -> Draft {
    let names = apart.join(", ");
    let is_rabbit = products::name(period) == Some("RabbitMQ");
    let draft = Draft::new(WARNING, format!("Mnesia does not run together with {names}, though connected"))
        .about(Subject::Node { name: apart.first().copied().unwrap_or_default().to_owned() })
        .because(
            Evidence::number("connected nodes of the schema without Mnesia", apart.len() as f64, Unit::Count)
                .with_text(format!("{names}; {connected} are connected")),
        )
        .because(Evidence::number("seen for", period.seconds(), Unit::Seconds))
        .but("Mnesia that was stopped on that node, or has not been started, looks the same from here");
    if is_rabbit {
        return draft.fix(remedy::of(
            period,
            "code.mnesia_heal",
            "rabbitmqctl cluster_status; on the nodes of the side to give up: rabbitmqctl stop_app, then rabbitmqctl start_app",
            "that side takes its tables from the other one again; what changed there since the break is lost",
            "rabbitmqctl cluster_status lists no partitions",
        ));
    }
    draft
        .fix(remedy::of(
            period,
            "code.mnesia_heal",
            "decide which side's data is right; on the other side: mnesia:set_master_nodes(NodesOfThatSide), then restart the node",
            "at its start it takes all tables from the master nodes; what changed on it since the break is lost",
            "mnesia:system_info(running_db_nodes) has all nodes on each of them",
        ))
        .fix(remedy::of(
            period,
            "code.mnesia_majority",
            "{majority, true} for tables that must not diverge, and a process with mnesia:subscribe(system) that handles {inconsistent_database, _, Node}",
            "after the next break a side without the majority refuses to write, and somebody is told",
            "a test that breaks the connection: erlang:disconnect_node/1, then net_adm:ping/1",
        ))
}
