//! BT052: the VM's threads go to and fro between memory nodes (NUMA). What a thread has allocated on the one is far away on the other.

use std::collections::BTreeSet;

use beamtune_model::{Account, Code, Evidence, Missing, Period, Scale, Threshold, Unit, facts, metrics};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT052"),
    name: "numa",
    question: "Does the VM spread over several memory nodes?",
    confirm: "numastat -p PID: pages on nodes whose CPUs the schedulers do not run on",
    needs: &[&metrics::PROCESS_USER],
    account: Account::CpuUnused,
    judge,
    thresholds: &[USED],
    ..Rule::COMMON
};

/// The CPU that the VM uses, in nodes: one that uses little of one loses little. How much is lost by memory that is far away cannot be
/// told from outside, so it stays a notice.
const USED: Threshold = Threshold::new(
    "numa.memory_nodes",
    "CPU that the VM uses, in memory nodes",
    Scale {
        notice: 0.1,
        warning: 2.0,
        critical: 100.0,
        source: "judgement: memory of another node takes 1.5 to 2 times as long to reach (numactl --hardware shows it)",
    },
);
const AT_MOST: f64 = 20.0;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let used = view::process_cores(period)?;
    let text = period.fact(facts::NUMA_NODES)?;
    let allowed = period.fact(facts::CPUS_ALLOWED)?;
    let how = period.fact(facts::SCHEDULER_BIND_TYPE)?;
    let online = view::schedulers_online(period)?;
    let nodes: Option<Vec<BTreeSet<u32>>> = period
        .facts
        .list(facts::NUMA_NODES)
        .map(|nodes| nodes.iter().filter_map(|node| view::cpu_list(node)).collect());
    let (Some(nodes), Some(allowed)) = (nodes, view::cpu_list(allowed)) else {
        return Ok(Judgement::NotJudged {
            reason: format!("{text:?} or {allowed:?} is no list of CPUs"),
            next: "nothing: the kernel tells them so".to_owned(),
        });
    };
    let parts: Vec<usize> =
        nodes.iter().map(|node| node.intersection(&allowed).count()).filter(|count| *count > 0).collect();
    let largest = parts.iter().copied().max().unwrap_or(0);
    if parts.len() < 2 {
        return Ok(Judgement::Healthy(format!(
            "the {} CPUs that the VM may use are of one memory node",
            allowed.len()
        )));
    }
    if how != "unbound" {
        return Ok(Judgement::Healthy(format!(
            "the VM spreads over {} memory nodes, and its schedulers are bound ({how})",
            parts.len()
        )));
    }
    let in_nodes = used / largest.max(1) as f64;
    let Some(severity) = USED.of(period).severity(in_nodes) else {
        return Ok(Judgement::Healthy(format!(
            "the VM spreads over {} memory nodes, and uses {used:.2} CPUs",
            parts.len()
        )));
    };
    let fits = used < 0.7 * largest as f64;
    let prove = "throughput and CPU per request under the same load (beamtune compare); numastat -p PID shows whose memory it uses";
    Ok(Judgement::found(
        Draft::new(
            severity.min(AT_MOST),
            format!("the VM's {online:.0} schedulers may run on {} memory nodes and are not bound: the kernel moves them between these", parts.len()),
        )
        .because(Evidence::number("memory nodes that the VM may use", parts.len() as f64, Unit::Count))
        .because(Evidence::number("CPUs of the largest", largest as f64, Unit::Count))
        .because(Evidence::number("CPU that the VM uses", used, Unit::Cores))
        .because(Evidence::number("the same in memory nodes", in_nodes, Unit::Ratio).against(USED.of(period).notice, USED.of(period).source))
        .because(Evidence::text("schedulers", how))
        .but("how much memory that is far away costs is not measured: where the caches hold what is needed, nothing")
        .fix_if(fits, || {
            remedy::of(
                period,
                "host.memory_node",
                &format!("numactl --cpunodebind=N --membind=N, with +S {largest}:{largest}: what the VM uses fits one node"),
                "all memory is then near",
                prove,
            )
        })
        .fix_if(!fits, || {
            remedy::of(
                period,
                "host.memory_node",
                &format!("one VM for each memory node, if the program can be split: numactl --cpunodebind=N --membind=N, +S {largest}:{largest} each"),
                "each VM's memory is then near",
                prove,
            )
        })
        .fix(remedy::of(
            period,
            "+stbt",
            "+stbt tnnps, only where no other VM and no quota shares these CPUs",
            "schedulers then stay near the memory that they have allocated; bound ones cannot evade neighbours (see bound-schedulers)",
            prove,
        )),
    ))
}
