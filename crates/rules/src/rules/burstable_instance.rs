//! BT036: a cloud machine that earns its CPU by credits, and spends more than it earns.

use beamtune_model::{
    Account, Code, Cost, Evidence, Group, HostPart, Missing, Period, Scale, Signal, Subject, Threshold, Unit,
    facts, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::signals::busy_wait::{FLAGS, Spinning};
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT036"),
    name: "burstable-instance",
    question: "Does a machine that earns credits for CPU spend more than it earns?",
    confirm: "the cloud's own figures: CPUCreditBalance falls while the node runs, and steal begins where it is 0",
    needs: &[&metrics::CPU_BUSY, &metrics::CPUS_ONLINE],
    account: Account::CpuUnused,
    has_the_cpu: true,
    judge,
    thresholds: &[SPENT],
    ..Rule::COMMON
};

/// CPU that the machine uses, as a share of what it earns credits for.
const SPENT: Threshold = Threshold::new(
    "burstable-instance.spent_share",
    "CPU that the machine uses, share of what it earns credits for",
    Scale {
        notice: 0.8,
        warning: 1.0,
        critical: 4.0,
        source: "Amazon EC2 User Guide, burstable performance instances: at 100 % of the baseline as much is earned as spent",
    },
);

/// Time that the hypervisor takes, as a share of all CPUs, from which on the credits seem to be spent …
const CREDITS_SPENT: f64 = 0.05;
/// … if what is used comes to the baseline, about: an instance without credits has that. What is taken from one that uses less is others'.
const AT_BASELINE: f64 = 0.95;
/// Credits are kept for a day: a short look says how they go, not how many are left.
const LONG_SECONDS: f64 = 3_600.0;

/// Of the CPU that is used, the share that is busy waiting from which on that comes first (judgement).
const MOSTLY_SPINNING: f64 = 0.25;

/// What a type may use of each CPU all the time, in per cent (Amazon EC2 User Guide, "Key concepts for burstable performance instances").
const T2: &[(&str, f64)] = &[
    ("nano", 5.0),
    ("micro", 10.0),
    ("small", 20.0),
    ("medium", 20.0),
    ("large", 30.0),
    ("xlarge", 22.5),
    ("2xlarge", 17.0),
];
const T3: &[(&str, f64)] = &[
    ("nano", 5.0),
    ("micro", 10.0),
    ("small", 20.0),
    ("medium", 20.0),
    ("large", 30.0),
    ("xlarge", 40.0),
    ("2xlarge", 40.0),
];

/// Machines of other clouds, and of Amazon's older types, earn credits too, or share their CPUs, and do not tell their type.
const UNTOLD: &[(&str, &str)] = &[
    ("Microsoft Corporation Virtual Machine", "Azure's B series earns credits for CPU"),
    (
        "Google Compute Engine",
        "Google's shared-core types (e2-micro, e2-small, e2-medium, f1, g1) have a part of their CPUs only",
    ),
    ("Xen HVM domU", "it may be Amazon's t2, which earns credits for CPU, as well as any other guest of Xen"),
];

/// A type that earns credits.
#[derive(Debug, PartialEq)]
struct Burstable<'a> {
    of_type: &'a str,
    /// What it may use of each CPU all the time, 0 to 1.
    baseline: f64,
    /// Unless it was chosen otherwise, the rest is charged, and nothing is slowed down (Amazon EC2 User Guide, "Unlimited mode").
    is_unlimited: bool,
}

impl<'a> Burstable<'a> {
    /// By a machine's model.
    fn of(machine: &'a str) -> Option<Self> {
        let of_type = machine.split_whitespace().next_back()?;
        let (family, size) = of_type.split_once('.')?;
        let (sizes, is_unlimited) = match family {
            "t2" => (T2, false),
            "t3" | "t3a" | "t4g" => (T3, true),
            _ => return None,
        };
        let (_, percent) = sizes.iter().find(|(name, _)| *name == size)?;
        Some(Burstable { of_type, baseline: percent / 100.0, is_unlimited })
    }

    /// What comes when the credits are spent.
    fn then(&self) -> &'static str {
        match self.is_unlimited {
            true => "the rest is charged, unless it was launched in standard mode, which slows it down",
            false => {
                "it is slowed down, unless it was launched in unlimited mode, in which the rest is charged"
            }
        }
    }
}

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let busy = period.cores(&metrics::CPU_BUSY, "")?;
    let cpus = period.stat(&metrics::CPUS_ONLINE, "")?.mean();
    let machine = period
        .facts
        .get(facts::MACHINE)
        .ok_or_else(|| period.missing_group(Group::HostCpu, "the machine's model"))?;
    if let Some((_, why)) = UNTOLD.iter().find(|(model, _)| machine.contains(model)) {
        return Ok(Judgement::NotJudged {
            reason: format!("{machine} does not tell its type, and {why}"),
            next: "see which type it is in the cloud's console".to_owned(),
        });
    }
    let Some(burstable) = Burstable::of(machine) else {
        return Ok(Judgement::Healthy(format!("{machine} is not known to limit CPU by credits")));
    };
    let Burstable { of_type, baseline, is_unlimited } = burstable;
    let then = burstable.then();
    let earned = baseline * cpus;
    let steal = period.cores(&metrics::CPU_STEAL, "").unwrap_or(0.0);
    let of_earned = busy / earned.max(f64::MIN_POSITIVE);
    let are_spent = steal >= CREDITS_SPENT * cpus && of_earned >= AT_BASELINE;
    let healthy = || {
        Ok(Judgement::Healthy(format!("{machine} uses {busy:.2} cores, and earns credits for {earned:.2}")))
    };
    let Some(severity) = SPENT.of(period).severity(of_earned) else { return healthy() };
    let is_short = period.seconds() < LONG_SECONDS;
    let severity = match (are_spent, is_short) {
        (true, _) => severity.max(75.0),
        (false, _) => severity,
    };
    let spun: f64 =
        FLAGS.iter().filter_map(|(flag, kind)| Some(Spinning::of(period, flag, kind).ok()?.spun)).sum();
    let mostly_spinning = spun >= MOSTLY_SPINNING * busy;
    let summary = if are_spent {
        format!(
            "the CPU credits of {of_type} seem to be spent: it earns {earned:.2} cores, {busy:.2} are used, and the hypervisor takes {steal:.2}"
        )
    } else {
        format!(
            "{of_type} earns credits for {earned:.2} cores, and {busy:.2} are used: when the credits are spent {then}"
        )
    };
    let spinning = || {
        remedy::of(
            period,
            "+sbwt",
            &view::busy_waiting_off(&period.facts).unwrap_or_default(),
            "spinning is paid in credits as work is",
            "the credit balance must fall more slowly, or rise, under the same load",
        )
    };
    Ok(Judgement::found(
        Draft::new(severity, summary)
            .about(Subject::host(HostPart::Type))
            .signals(are_spent.then_some(Signal::CreditsSpent))
            .inferred_if(if are_spent { is_unlimited } else { is_short })
            .costs(Cost::CpuCores(if are_spent { steal } else { busy - earned }))
            .because(Evidence::number("CPU used on the whole machine", busy, Unit::Cores))
            .because(
                Evidence::number("CPU that it earns credits for", earned, Unit::Cores)
                    .with_text(format!("{:.1} % of each of {cpus:.0} CPUs", baseline * 100.0)),
            )
            .because(
                Evidence::number("used, of what is earned", of_earned, Unit::Ratio)
                    .against_scale(SPENT.of(period)),
            )
            .because(Evidence::number("taken by the hypervisor", steal, Unit::Cores))
            .because(Evidence::number("busy waiting of the VM", spun, Unit::Cores))
            .but_if(
                is_short && !are_spent,
                "this is a short look, and credits are for a day: a burst is what they are for",
            )
            .but_if(
                are_spent && is_unlimited,
                "its default is the unlimited mode, in which nothing is slowed down: if it is in that, the hypervisor takes the CPU for others",
            )
            .fix_if(mostly_spinning, spinning)
            .fix(remedy::of(
                period,
                "host.instance_type",
                match is_unlimited {
                    true => "a type without credits (m, c, r) or a larger one; unlimited mode, its default, pays where bursts are rare",
                    false => "a type without credits (m, c, r), a larger one, or unlimited mode where bursts are rare",
                },
                "what is used is more than what this type may use all the time",
                "steal must be gone, and p99 be even, over a day",
            ))
            .fix_if(!mostly_spinning && spun > 0.0, spinning),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_that_earn_credits_are_known() {
        let check = |machine: &str, expect: Option<(&'static str, f64, bool)>| {
            let expect =
                expect.map(|(of_type, baseline, is_unlimited)| Burstable { of_type, baseline, is_unlimited });
            assert_eq!(Burstable::of(machine), expect, "{machine}");
        };
        check("Amazon EC2 t3.medium", Some(("t3.medium", 0.2, true)));
        check("Amazon EC2 t4g.2xlarge", Some(("t4g.2xlarge", 0.4, true)));
        check("Amazon EC2 t2.xlarge", Some(("t2.xlarge", 0.225, false)));
        check("Amazon EC2 m7i.large", None);
        check("Amazon EC2 t3.metal", None);
        check("Dell Inc. PowerEdge R740", None);
        check("", None);
    }
}
