//! BT088: much of the VM's CPU time is spent in the kernel, and for what.

use beamtune_model::{Account, Code, Cost, Evidence, Missing, Period, Signal, Unit, facts};

use crate::remedy;
use crate::rule::{Draft, Judgement, MINOR, Rule};
use crate::signals::kernel_time::KernelTime;

pub const RULE: Rule = Rule {
    code: Code("BT088"),
    name: "kernel-time",
    question: "How much CPU time of the VM is spent in the kernel, and for what?",
    confirm: "run strace -c -f -p PID for a second, which slows the VM down meanwhile: this system call should come first",
    account: Account::CpuUsed,
    judge,
    ..Rule::COMMON
};

/// A smaller share of the VM's CPU time in the kernel is not reported.
const MIN_SHARE: f64 = 0.5;
const MIN_SHARE_SOURCE: &str = "judgement: most of the CPU time is not the program's own work";

/// Below this CPU use, in cores, it does not matter (judgement).
const MIN_CORES: f64 = 0.2;

/// Kinds of work and callers with a smaller share are not named (judgement).
const MIN_NAMED: f64 = 0.1;

/// Maximum number of kinds of work, system calls and callers that are named.
const MAX_NAMED: usize = 3;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let Some(kernel) = KernelTime::of(period) else {
        return match &period.profile {
            Some(profile) if profile.has_kernel => {
                Ok(Judgement::Healthy("few profile samples are in the kernel".to_owned()))
            }
            Some(_) => Err(Missing {
                what: "the kernel's part of the CPU profile".to_owned(),
                why: "not permitted".to_owned(),
                next_step: "run beamtune doctor as root, or give it CAP_PERFMON".to_owned(),
            }),
            None => Err(Missing {
                what: "a CPU profile".to_owned(),
                why: period.facts.get(facts::PROFILE_MISSING).unwrap_or("not recorded").to_owned(),
                next_step: "run beamtune doctor as root on the node's host while the node is busy".to_owned(),
            }),
        };
    };
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    let is_much = kernel.share >= MIN_SHARE && kernel.cores >= MIN_CORES;
    let Some((kind, share)) = kernel.kinds.first().filter(|_| is_much) else {
        return Ok(Judgement::Healthy(format!("{} of the CPU time is in the kernel", percent(kernel.share))));
    };
    let named = |list: Vec<(&str, f64)>| {
        let named = list.into_iter().filter(|(_, share)| *share >= MIN_NAMED).take(MAX_NAMED);
        named.map(|(name, share)| format!("{name} ({})", percent(share))).collect::<Vec<_>>().join(", ")
    };
    let kinds = named(kernel.kinds.iter().map(|(kind, share)| (kind.name.as_str(), *share)).collect());
    let callers = named(kernel.callers.iter().map(|(caller, share)| (caller.as_str(), *share)).collect());
    let entries = named(kernel.entries.clone());
    let some = |what: &str, text: String| (!text.is_empty()).then(|| Evidence::text(what.to_owned(), text));
    Ok(Judgement::found(
        Draft::new(
            MINOR,
            format!("{} of CPU time is in the kernel, most of it {}", percent(kernel.share), kind.name),
        )
        .detail(if callers.is_empty() { String::new() } else { format!("for {callers}") })
        .detail(format!("{:.2} cores", kernel.cores))
        .costs(Cost::CpuCores(kernel.cores))
        .signals([Signal::WhereOnly, Signal::Kernel(kind.work)])
        .evidence(
            Evidence::number("share of CPU time in the kernel", kernel.share, Unit::Ratio)
                .against(MIN_SHARE, MIN_SHARE_SOURCE),
        )
        .evidence(Evidence::number(kind.name.clone(), *share, Unit::Ratio))
        .because_some(some("work of the kernel", kinds))
        .because_some(some("system calls and exceptions", entries))
        .because_some(some("done for", callers))
        .counter_evidence("a server that only passes data on spends most of its time there: compare the cost of one request")
        .remedy(remedy::of(
            period,
            "code.fewer_system_calls",
            &kind.instead,
            &kind.why,
            "CPU per request under the same load",
        )),
    ))
}
