//! BT036: a cloud instance that earns CPU credits uses more CPU than it earns credits for.

use beamtune_model::{
    Account, Code, Cost, Evidence, Group, HostPart, Missing, Period, Scale, Signal, Subject, Threshold, Unit,
    facts, metrics,
};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::signals::busy_wait::{FLAGS, Spinning};
use crate::text;
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT036"),
    name: "burstable-instance",
    question: "Does a burstable instance use more CPU than it earns credits for?",
    confirm: "watch the cloud's CPUCreditBalance: it falls while the node runs, and steal begins when it reaches 0",
    needs: &[&metrics::CPU_BUSY, &metrics::CPUS_ONLINE],
    account: Account::CpuUnused,
    explains_run_queue: true,
    judge,
    thresholds: &[SPENT],
    ..Rule::COMMON
};

const SPENT: Threshold = Threshold::new(
    "burstable-instance.spent_share",
    "CPU used on the instance, share of the baseline that it earns credits for",
    Scale {
        notice: 0.8,
        warning: 1.0,
        critical: 4.0,
        source: "Amazon EC2 User Guide, burstable performance instances: at 100 % of the baseline as much is earned as spent",
    },
);

/// With at least this steal, as a share of all CPUs, the credits are probably spent, if the instance also uses its baseline.
const MIN_STEAL_SHARE: f64 = 0.05;
/// Minimum share of the baseline for that conclusion. The instance gets its baseline even without credits, so steal below it is for other
/// guests.
const MIN_BASELINE_SHARE: f64 = 0.95;
/// Credits are kept for a day. A shorter recording shows how fast they are spent, not how many are left.
const MIN_SECONDS: f64 = 3_600.0;

/// If busy wait has at least this share of the used CPU, it is the first thing to change (judgement).
const MIN_BUSY_WAIT_SHARE: f64 = 0.25;

/// The baseline per CPU by type, in percent (Amazon EC2 User Guide, "Key concepts for burstable performance instances").
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

/// Instances that may be burstable or share CPUs, but do not expose their type: machine model, and reason.
const UNKNOWN_TYPES: &[(&str, &str)] = &[
    ("Microsoft Corporation Virtual Machine", "Azure's B series earns CPU credits"),
    (
        "Google Compute Engine",
        "Google's shared-core types (e2-micro, e2-small, e2-medium, f1, g1) have only a part of their CPUs",
    ),
    ("Xen HVM domU", "it may be Amazon's t2, which earns CPU credits, or any other Xen guest"),
];

/// An instance type that earns CPU credits.
#[derive(Debug, PartialEq)]
struct Burstable<'a> {
    instance_type: &'a str,
    /// Share of each CPU that it may use all the time, 0–1.
    baseline: f64,
    /// Whether its default is unlimited mode: CPU above the baseline is charged, not throttled (Amazon EC2 User Guide, "Unlimited mode").
    is_unlimited: bool,
}

impl<'a> Burstable<'a> {
    /// Identifies the type by the machine model.
    fn of(machine: &'a str) -> Option<Self> {
        let instance_type = machine.split_whitespace().next_back()?;
        let (family, size) = instance_type.split_once('.')?;
        let (sizes, is_unlimited) = match family {
            "t2" => (T2, false),
            "t3" | "t3a" | "t4g" => (T3, true),
            _ => return None,
        };
        let (_, percent) = sizes.iter().find(|(name, _)| *name == size)?;
        Some(Burstable { instance_type, baseline: percent / 100.0, is_unlimited })
    }

    /// Describes what happens without credits.
    fn without_credits(&self) -> &'static str {
        match self.is_unlimited {
            true => "without credits, the excess is charged (in standard mode: throttled)",
            false => "without credits, it is throttled (in unlimited mode: the excess is charged)",
        }
    }
}

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let busy = period.cores(&metrics::CPU_BUSY, "")?;
    let cpus = period.stat(&metrics::CPUS_ONLINE, "")?.mean();
    let machine = period
        .facts
        .get(facts::MACHINE)
        .ok_or_else(|| period.missing_group(Group::HostCpu, "machine model"))?;
    if let Some((_, why)) = UNKNOWN_TYPES.iter().find(|(model, _)| machine.contains(model)) {
        return Ok(Judgement::NotJudged {
            reason: format!("instance type of {machine} unknown; {why}"),
            next: "look up the instance type in the cloud's console".to_owned(),
        });
    }
    let Some(burstable) = Burstable::of(machine) else {
        return Ok(Judgement::Healthy(format!("{machine} is not a known burstable type")));
    };
    let without_credits = burstable.without_credits();
    let Burstable { instance_type, baseline, is_unlimited } = burstable;
    let earned = baseline * cpus;
    let steal = period.cores(&metrics::CPU_STEAL, "").unwrap_or(0.0);
    let of_earned = busy / earned.max(f64::MIN_POSITIVE);
    let are_spent = steal >= MIN_STEAL_SHARE * cpus && of_earned >= MIN_BASELINE_SHARE;
    let healthy = || {
        Ok(Judgement::Healthy(format!(
            "{machine}: {busy:.2} cores used, {earned:.2} covered by earned credits"
        )))
    };
    let Some(severity) = SPENT.of(period).severity(of_earned) else { return healthy() };
    let is_short = period.seconds() < MIN_SECONDS;
    let severity = match (are_spent, is_short) {
        (true, _) => severity.max(75.0),
        (false, _) => severity,
    };
    let spun: f64 =
        FLAGS.iter().filter_map(|(flag, kind)| Some(Spinning::of(period, flag, kind).ok()?.spun)).sum();
    let is_busy_waiting = spun >= MIN_BUSY_WAIT_SHARE * busy;
    let (used, earns) = (text::cores(busy), text::cores(earned));
    let (title, detail) = match are_spent {
        true => (
            format!("{instance_type} is likely out of CPU credits: {} cores stolen", text::cores(steal)),
            format!("uses {used} cores, earns credits for {earns}"),
        ),
        false => (
            format!("{instance_type} uses {used} cores, earns credits for {earns}"),
            without_credits.to_owned(),
        ),
    };
    let busy_wait_off = || {
        remedy::of(
            period,
            "+sbwt",
            &view::busy_waiting_off(&period.facts).unwrap_or_default(),
            "busy waiting costs credits as work does",
            "the credit balance falls more slowly, or rises, under the same load",
        )
    };
    Ok(Judgement::found(
        Draft::new(severity, title)
            .detail(detail)
            .about(Subject::host(HostPart::Type))
            .signals(are_spent.then_some(Signal::CreditsSpent))
            .inferred_if(if are_spent { is_unlimited } else { is_short })
            .costs(Cost::CpuCores(if are_spent { steal } else { busy - earned }))
            .evidence(Evidence::number("CPU used on the instance", busy, Unit::Cores))
            .evidence(
                Evidence::number("CPU covered by earned credits", earned, Unit::Cores)
                    .with_text(format!("{:.1} % of each of {cpus:.0} CPUs", baseline * 100.0)),
            )
            .evidence(
                Evidence::number("used share of the earned CPU", of_earned, Unit::Ratio)
                    .against_scale(SPENT.of(period)),
            )
            .evidence(Evidence::number("steal", steal, Unit::Cores))
            .evidence(Evidence::number("busy wait of the VM", spun, Unit::Cores))
            .but_if(is_short && !are_spent, "the recording is short, and credits are meant for bursts within a day")
            .but_if(
                are_spent && is_unlimited,
                "in unlimited mode, its default, nothing is slowed down: the hypervisor then takes the CPU for other guests",
            )
            .fix_if(is_busy_waiting, busy_wait_off)
            .remedy(remedy::of(
                period,
                "host.instance_type",
                match is_unlimited {
                    true => "use a type without credits (m, c, r) or a larger one; unlimited mode, its default, pays if bursts are rare",
                    false => "use a type without credits (m, c, r), a larger one, or unlimited mode if bursts are rare",
                },
                "the load is above the baseline of this type",
                "no steal, and a steady p99, for a day",
            ))
            .fix_if(!is_busy_waiting && spun > 0.0, busy_wait_off),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn burstable_types_are_known() {
        let check = |machine: &str, expect: Option<(&'static str, f64, bool)>| {
            let expect = expect.map(|(instance_type, baseline, is_unlimited)| Burstable {
                instance_type,
                baseline,
                is_unlimited,
            });
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
