//! BT022: reading the clock takes a call into the kernel, or a slow device.
//!
//! The VM reads it all the time: for timers, time-outs of `receive`, scheduler statistics.

use beamtune_model::{Account, Code, Evidence, Group, Missing, Period, Unit, facts, metrics};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT022"),
    name: "slow-clock-source",
    question: "Is reading the host's clock cheap?",
    confirm: "perf top, or strace -c: clock_gettime as a system call in thousands a second",
    needs: &[&metrics::PROCESS_USER, &metrics::PROCESS_SYSTEM],
    account: Account::CpuUsed,
    judge,
    ..Rule::COMMON
};

/// Clock sources that are read from user space (vDSO), in some tens of nanoseconds: the kernel's vdso_clock_mode.
const FAST: [&str; 5] = ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter", "timebase"];
/// Those that are read from a device, in a system call: each read takes a microsecond or more.
const DEVICE: [&str; 5] = ["hpet", "acpi_pm", "jiffies", "refined-jiffies", "pit"];
/// From user space only where the hypervisor says that its clock is stable.
const XEN: &str = "xen";

/// Share of the VM's CPU time in the kernel from which on the clock may be what it does there (judgement).
const MUCH_SYSTEM: f64 = 0.25;
/// Below this, in cores, a share says nothing.
const WORTH_CORES: f64 = 0.1;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let system = period.cores(&metrics::PROCESS_SYSTEM, "")?;
    let used = view::process_cores(period)?;
    let source = period
        .facts
        .get(facts::CLOCKSOURCE)
        .ok_or_else(|| period.missing_group(Group::HostCpu, "the host's clock source"))?;
    if FAST.contains(&source) {
        return Ok(Judgement::Healthy(format!("the clock source is {source}, which takes no system call")));
    }
    if source != XEN && !DEVICE.contains(&source) {
        return Ok(Judgement::NotJudged {
            reason: format!("whether the clock source {source} is slow is not known"),
            next: "measure: strace -c -f -p PID for a second shows whether clock_gettime is called"
                .to_owned(),
        });
    }
    let takes = if source == XEN { "may take" } else { "takes" };
    let share = if used > 0.0 { system / used } else { 0.0 };
    let severity = match (used >= WORTH_CORES && share >= MUCH_SYSTEM, source) {
        (false, _) => 15.0,
        (true, XEN) => 30.0,
        (true, _) => 50.0,
    };
    Ok(Judgement::found(
        Draft::new(
            severity,
            format!(
                "the host's clock source is {source}: each look at the clock {takes} a call into the kernel, and \
                 the VM spends {:.0} % of its CPU time there",
                share * 100.0
            ),
        )
        .because(Evidence::text("clock source", source))
        .because(Evidence::number("CPU of the VM in the kernel", system, Unit::Cores))
        .because(
            Evidence::number("share of its CPU time", share, Unit::Ratio)
                .against(MUCH_SYSTEM, "judgement: a VM that passes messages stays far below"),
        )
        .but("what else the VM does in the kernel (sockets, files, memory) is in this share too: perf or strace -c tells")
        .but_if(source == XEN, "with Linux 4.16 and later, and where the hypervisor says that its clock is stable, xen is as cheap as tsc")
        .fix(remedy::of(
            period,
            "host.clock_source",
            "tsc, if available_clocksource lists it (in a guest: kvm-clock, or tsc on the newer machine types)",
            "read in user space, in tens of nanoseconds",
            "CPU in the kernel and per request under the same load",
        )),
    ))
}
