//! BT052: the kernel moves unbound schedulers between NUMA nodes, away from the memory that they allocated.

use std::collections::BTreeSet;

use beamtune_model::{Account, Code, Evidence, Missing, Period, Scale, Threshold, Unit, facts, metrics};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::text;
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT052"),
    name: "numa",
    question: "Does the VM spread over several NUMA nodes?",
    confirm: "run numastat -p PID: pages are on nodes whose CPUs the schedulers do not use",
    needs: &[&metrics::PROCESS_USER],
    account: Account::CpuUnused,
    judge,
    thresholds: &[USED],
    ..Rule::COMMON
};

/// A VM that uses a small part of one node loses little. The cost of remote memory cannot be measured from outside, so this is never more
/// than a notice.
const USED: Threshold = Threshold::new(
    "numa.memory_nodes",
    "CPU use in units of the largest NUMA node",
    Scale {
        notice: 0.1,
        warning: 2.0,
        critical: 100.0,
        source: "judgement: memory of another NUMA node takes 1.5 to 2 times as long (see numactl --hardware)",
    },
);
const MAX_SEVERITY: f64 = 20.0;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let used = view::process_cores(period)?;
    let list = period.fact(facts::NUMA_NODES)?;
    let allowed = period.fact(facts::CPUS_ALLOWED)?;
    let binding = period.fact(facts::SCHEDULER_BIND_TYPE)?;
    let online = view::schedulers_online(period)?;
    let nodes: Option<Vec<BTreeSet<u32>>> = period
        .facts
        .list(facts::NUMA_NODES)
        .map(|nodes| nodes.iter().filter_map(|node| view::cpu_list(node)).collect());
    let (Some(nodes), Some(allowed)) = (nodes, view::cpu_list(allowed)) else {
        return Ok(Judgement::NotJudged {
            reason: format!("cannot parse the CPU lists {list:?} and {allowed:?}"),
            next: "check /sys/devices/system/node/node*/cpulist".to_owned(),
        });
    };
    let parts: Vec<usize> =
        nodes.iter().map(|node| node.intersection(&allowed).count()).filter(|count| *count > 0).collect();
    let largest = parts.iter().copied().max().unwrap_or(0);
    if parts.len() < 2 {
        return Ok(Judgement::Healthy(format!(
            "one NUMA node for {}",
            text::counted(allowed.len() as f64, "CPU", "CPUs")
        )));
    }
    if binding != "unbound" {
        return Ok(Judgement::Healthy(format!("{} NUMA nodes, schedulers bound ({binding})", parts.len())));
    }
    let in_nodes = used / largest.max(1) as f64;
    let Some(severity) = USED.of(period).severity(in_nodes) else {
        return Ok(Judgement::Healthy(format!("{} NUMA nodes, {used:.2} cores used", parts.len())));
    };
    let fits = used < 0.7 * largest as f64;
    let prove = "throughput and CPU per request under the same load (beamtune compare); numastat -p PID";
    let schedulers = text::counted(online, "unbound scheduler", "unbound schedulers");
    let Scale { notice, source, .. } = USED.of(period);
    Ok(Judgement::found(
        Draft::new(severity.min(MAX_SEVERITY), format!("{schedulers} may run on {} NUMA nodes", parts.len()))
            .detail(format!("{} cores used", text::cores(used)))
            .detail(format!("the largest NUMA node has {}", text::counted(largest as f64, "CPU", "CPUs")))
            .evidence(Evidence::number("NUMA nodes that the VM may use", parts.len() as f64, Unit::Count))
            .evidence(Evidence::number("CPUs of the largest NUMA node", largest as f64, Unit::Count))
            .evidence(Evidence::number("CPU use", used, Unit::Cores))
            .evidence(
                Evidence::number("CPU use in NUMA nodes", in_nodes, Unit::Ratio).against(notice, source),
            )
            .evidence(Evidence::text("scheduler binding", binding))
            .counter_evidence(
                "the cost of remote memory is not measured; with good cache hit rates it is close to zero",
            )
            .fix_if(fits, || {
                remedy::of(
                    period,
                    "host.memory_node",
                    &format!("numactl --cpunodebind=N --membind=N, with +S {largest}:{largest}"),
                    "the VM fits one NUMA node, and its memory is then local",
                    prove,
                )
            })
            .fix_if(!fits, || {
                remedy::of(
                    period,
                    "host.memory_node",
                    &format!(
                        "run one VM for each NUMA node, if the program can be split: \
                     numactl --cpunodebind=N --membind=N, +S {largest}:{largest} each"
                    ),
                    "the memory of each VM is then local",
                    prove,
                )
            })
            .remedy(remedy::of(
                period,
                "+stbt",
                "+stbt tnnps, if no other VM and no quota shares these CPUs",
                "bound schedulers stay close to their memory, but cannot move away from CPUs that neighbours use (see bound-schedulers)",
                prove,
            )),
    ))
}
