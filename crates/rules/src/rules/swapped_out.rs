//! BT019: memory of the VM is on a disk, and threads wait for it.

use beamtune_model::{Account, Code, Evidence, Missing, Period, Scale, Threshold, Unit, metrics};

use crate::remedy;
use crate::rule::{BELOW_CRITICAL, Draft, Judgement, MINOR, Role, Rule, Topic};
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT019"),
    name: "swapped-out",
    question: "Does the VM wait for memory that was swapped out?",
    confirm: "vmstat 1: pages that come in (si) while the node is slow; swapoff, where memory suffices, must end it",
    needs: &[&metrics::SWAP, &metrics::RSS, &metrics::MAJOR_FAULTS],
    account: Account::Memory,
    role: Role::Symptom,
    topics: &[Topic::Memory],
    judge,
    thresholds: &[FAULTS, OUT],
    ..Rule::COMMON
};

/// Pages that were read from a disk, a second.
const FAULTS: Threshold = Threshold::new(
    "swapped-out.major_faults_per_s",
    "major page faults a second",
    Scale {
        notice: 1.0,
        warning: 20.0,
        critical: 200.0,
        source: "judgement: each stops a thread, schedulers too, for the 0.1 to 10 ms that a disk takes",
    },
);

/// Share of the VM's memory that is swapped out.
const OUT: Threshold = Threshold::new(
    "swapped-out.swapped_share",
    "share of the VM's memory that is swapped out",
    Scale {
        notice: 0.01,
        warning: 0.25,
        critical: 0.75,
        source: "judgement: a full collection touches the whole heap, so what is out has to come back",
    },
);

/// Share of time in which tasks waited for memory from which on pages of files, too, are missed for lack of it: code that is
/// read for the first time is a major fault as well.
const PRESSED: f64 = 0.01;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let out = period.stat(&metrics::SWAP, "")?.last.value as f64;
    let resident = period.stat(&metrics::RSS, "")?.last.value as f64;
    let faults = period.rate(&metrics::MAJOR_FAULTS, "")?;
    let share = if out > 0.0 { out / (out + resident) } else { 0.0 };
    let pressure = ["cgroup", "host"]
        .iter()
        .filter_map(|entity| period.cores(&metrics::PRESSURE_MEMORY_SOME, entity).ok())
        .fold(None, |most: Option<f64>, cores| Some(most.map_or(cores, |most| most.max(cores))));
    let pressed = pressure.is_some_and(|cores| cores >= PRESSED);
    // A few pages that were written out once say nothing.
    let swapped = share >= OUT.of(period).notice;
    let waits = FAULTS
        .of(period)
        .severity(faults)
        .map(|severity| if swapped || pressed { severity } else { severity.min(MINOR) });
    // What is out and is not touched costs nothing yet. A node that sleeps is no worse for it, unless somebody is short of memory, or nearly
    // all of it has to come back one day.
    let is_risk = waits.is_some() || pressed || share >= OUT.of(period).critical;
    let idle = OUT
        .of(period)
        .severity(share)
        .map(|severity| if is_risk { severity.min(BELOW_CRITICAL) } else { severity.min(MINOR) });
    let Some(severity) = waits.into_iter().chain(idle).reduce(f64::max) else {
        return Ok(Judgement::Healthy(format!(
            "{:.0} MB of the VM are swapped out, and it read {faults:.1} pages a second from a disk",
            out / (1 << 20) as f64
        )));
    };
    let group = view::group_memory_used(period);
    let short = group.is_some_and(|share| share >= view::NEARLY_FULL);
    let summary = match swapped {
        true => format!(
            "{:.0} % of the VM's memory is swapped out, and {faults:.1} times a second it waits for a page from a disk",
            share * 100.0
        ),
        false => format!(
            "{faults:.1} times a second the VM waits for a page of a file, such as its code, from a disk"
        ),
    };
    Ok(Judgement::found(
        Draft::new(severity, summary)
            .because(Evidence::number("major page faults", faults, Unit::PerSecond).against_scale(FAULTS.of(period)))
            .because(Evidence::number("swapped out", out, Unit::Bytes))
            .because(Evidence::number("share of its memory", share, Unit::Ratio).against_scale(OUT.of(period)))
            .because(Evidence::number("resident", resident, Unit::Bytes))
            .because_some(traffic(period))
            .because_some(pressure.map(|cores| {
                Evidence::number("share of time in which tasks waited for memory", cores, Unit::Ratio)
            }))
            .because_some(group.map(|share| {
                Evidence::number("the control group's memory limit in use", share, Unit::Ratio)
                    .with_text("with what the kernel caches for it")
            }))
            .but_if(
                waits.is_none(),
                "hardly anything of it is touched: it costs nothing until a full collection, or a peak, wants it back",
            )
            .but_if(
                !swapped && !pressed,
                "nobody waits for memory: it may be code that is read for the first time, after a start or an upgrade",
            )
            .fix_if(short, || {
                remedy::of(
                    period,
                    "host.memory_limit",
                    "raise the memory limit of the control group above what the VM needs at its peak",
                    "at the limit the kernel swaps, or drops pages of files, of this group only",
                    "memory of the group against its limit, major faults",
                )
            })
            .fix_if(swapped, || {
                remedy::of(
                    period,
                    "host.swap",
                    "keep the VM out of swap (systemd: MemorySwapMax=0; Docker: --memory-swap as large as --memory), and have enough memory for its peak",
                    "a VM collects garbage all over its heap, so swapped pages come back one disk access at a time",
                    "VmSwap in /proc/PID/status must fall to 0, and major faults with it",
                )
            })
            .fix_if(!short, || {
                remedy::of(
                    period,
                    "code.less_garbage",
                    "make the VM smaller, or the host larger: less state on heaps, smaller caches, fewer neighbours",
                    "what does not fit into memory is read from a disk, by whatever name",
                    "MemAvailable of the host, and major faults, at the peak",
                )
            }),
    ))
}

/// What the whole machine reads from swap and writes to it.
fn traffic(period: &Period) -> Option<Evidence> {
    let read = period.rate(&metrics::SWAP_IN, "").ok()?;
    let written = period.rate(&metrics::SWAP_OUT, "").ok()?;
    Some(
        Evidence::number("the machine reads from swap, bytes a second", read, Unit::Bytes)
            .with_text(format!("and writes {:.1} MB a second to it", written / (1 << 20) as f64)),
    )
}
