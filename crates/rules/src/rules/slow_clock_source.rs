//! BT022: reading the host's clock takes a system call, or a slow device.
//!
//! The VM reads the clock all the time: for timers, for timeouts of `receive` and for scheduler statistics.

use beamtune_model::{Account, Code, Evidence, Group, Missing, Period, Unit, facts, metrics};

use crate::remedy;
use crate::rule::{Draft, Judgement, Rule};
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT022"),
    name: "slow-clock-source",
    question: "Is reading the host's clock cheap?",
    confirm: "run perf top or strace -c: clock_gettime is a system call, thousands of times a second",
    needs: &[&metrics::PROCESS_USER, &metrics::PROCESS_SYSTEM],
    account: Account::CpuUsed,
    judge,
    ..Rule::COMMON
};

/// Clock sources that are read in user space (vDSO) in some tens of nanoseconds: vdso_clock_mode in the kernel.
const FAST: [&str; 5] = ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter", "timebase"];
/// Clock sources that are read from a device by a system call: a microsecond or more each time.
const DEVICE: [&str; 5] = ["hpet", "acpi_pm", "jiffies", "refined-jiffies", "pit"];
/// A clock source that is read in user space only if the hypervisor reports a stable clock.
const XEN: &str = "xen";

/// At or above this share of its CPU time in the kernel, the clock may be the reason (judgement).
const MIN_SYSTEM_SHARE: f64 = 0.25;
/// For a VM that uses less CPU, in cores, the share is meaningless.
const MIN_CORES: f64 = 0.1;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let system = period.cores(&metrics::PROCESS_SYSTEM, "")?;
    let used = view::process_cores(period)?;
    let source = period
        .facts
        .get(facts::CLOCKSOURCE)
        .ok_or_else(|| period.missing_group(Group::HostCpu, "the host's clock source"))?;
    if FAST.contains(&source) {
        return Ok(Judgement::Healthy(format!("clock source: {source}, no system call")));
    }
    let is_xen = source == XEN;
    if !is_xen && !DEVICE.contains(&source) {
        return Ok(Judgement::NotJudged {
            reason: format!("unknown clock source {source}"),
            next: "run strace -c -f -p PID for a second: does the VM call clock_gettime?".to_owned(),
        });
    }
    let share = if used > 0.0 { system / used } else { 0.0 };
    let severity = match (used >= MIN_CORES && share >= MIN_SYSTEM_SHARE, is_xen) {
        (false, _) => 15.0,
        (true, true) => 30.0,
        (true, false) => 50.0,
    };
    let (slow, takes) = if is_xen { ("Possibly slow", "may take") } else { ("Slow", "takes") };
    Ok(Judgement::found(
        Draft::new(
            severity,
            format!("{slow} clock source {source}: {:.0} % of CPU time in the kernel", share * 100.0),
        )
        .detail(format!("each read of the clock {takes} a system call"))
        .evidence(Evidence::text("clock source", source))
        .evidence(Evidence::number("system CPU time of the VM", system, Unit::Cores))
        .evidence(
            Evidence::number("share of its CPU time", share, Unit::Ratio)
                .against(MIN_SYSTEM_SHARE, "judgement: a VM that passes messages stays far below"),
        )
        .counter_evidence("the share includes all system calls (sockets, files, memory): perf or strace -c distinguish them")
        .but_if(is_xen, "on Linux 4.16 and later, with a hypervisor whose clock is stable, xen is as cheap as tsc")
        .remedy(remedy::of(
            period,
            "host.clock_source",
            "echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource, if available_clocksource lists it (guests: \
             kvm-clock, or tsc on newer machine types)",
            "it is read in user space, in tens of nanoseconds",
            "system CPU time, and CPU per request, under the same load",
        )),
    ))
}
