//! BT019: memory of the VM is swapped out, and threads wait for it.

use beamtune_model::{Account, Code, Evidence, Missing, Period, Scale, Threshold, Unit, metrics};

use crate::remedy;
use crate::rule::{BELOW_CRITICAL, Draft, Judgement, MINOR, Role, Rule, Topic};
use crate::text;
use crate::view;

pub const RULE: Rule = Rule {
    code: Code("BT019"),
    name: "swapped-out",
    question: "Does the VM wait for memory that was swapped out?",
    confirm: "run vmstat 1: pages are swapped in (si) while the node is slow; after swapoff, where memory suffices, it is fast",
    needs: &[&metrics::SWAP, &metrics::RSS, &metrics::MAJOR_FAULTS],
    account: Account::Memory,
    role: Role::Symptom,
    topics: &[Topic::Memory],
    judge,
    thresholds: &[FAULTS, SWAPPED],
    ..Rule::COMMON
};

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

const SWAPPED: Threshold = Threshold::new(
    "swapped-out.swapped_share",
    "share of the VM's memory that is swapped out",
    Scale {
        notice: 0.01,
        warning: 0.25,
        critical: 0.75,
        source: "judgement: a fullsweep touches the whole heap, so swapped pages have to come back",
    },
);

/// Memory pressure (share of time in which tasks waited for memory) at which missing file pages are a sign of too little memory, too.
/// Without pressure, they may be code that is read for the first time, which is also a major fault.
const MIN_PRESSURE: f64 = 0.01;

fn judge(period: &Period) -> Result<Judgement, Missing> {
    let swapped = period.stat(&metrics::SWAP, "")?.last.value as f64;
    let resident = period.stat(&metrics::RSS, "")?.last.value as f64;
    let faults = period.rate(&metrics::MAJOR_FAULTS, "")?;
    let share = if swapped > 0.0 { swapped / (swapped + resident) } else { 0.0 };
    let pressure = ["cgroup", "host"]
        .iter()
        .filter_map(|entity| period.cores(&metrics::PRESSURE_MEMORY_SOME, entity).ok())
        .fold(None, |max: Option<f64>, cores| Some(max.map_or(cores, |max| max.max(cores))));
    let is_pressed = pressure.is_some_and(|cores| cores >= MIN_PRESSURE);
    // A few pages that were swapped out once are no sign of a problem.
    let is_swapped = share >= SWAPPED.of(period).notice;
    let by_faults = FAULTS
        .of(period)
        .severity(faults)
        .map(|severity| if is_swapped || is_pressed { severity } else { severity.min(MINOR) });
    // Swapped pages that nothing touches cost nothing yet. They harm an idle node only if memory is short, or if nearly all of its memory
    // has to come back later.
    let is_risk = by_faults.is_some() || is_pressed || share >= SWAPPED.of(period).critical;
    let by_share = SWAPPED
        .of(period)
        .severity(share)
        .map(|severity| if is_risk { severity.min(BELOW_CRITICAL) } else { severity.min(MINOR) });
    let fault_rate = format!("{} major page faults/s", text::rate(faults));
    let Some(severity) = by_faults.into_iter().chain(by_share).reduce(f64::max) else {
        return Ok(Judgement::Healthy(match swapped > 0.0 {
            true => format!("{} swapped out, {fault_rate}", text::bytes(swapped)),
            false => format!("nothing swapped out, {fault_rate}"),
        }));
    };
    let group = view::group_memory_used(period);
    let is_full = group.is_some_and(|share| share >= view::NEARLY_FULL);
    let draft = match is_swapped {
        true => {
            let title = format!("{:.0} % of the VM's memory swapped out, {fault_rate}", share * 100.0);
            let sizes = format!("{} swapped out, {} resident", text::bytes(swapped), text::bytes(resident));
            Draft::new(severity, title).detail(sizes)
        }
        false => Draft::new(severity, format!("VM waits for the disk: {fault_rate}"))
            .detail("pages of files, such as code"),
    };
    Ok(Judgement::found(
        draft
            .evidence(Evidence::number("major page faults", faults, Unit::PerSecond).against_scale(FAULTS.of(period)))
            .evidence(Evidence::number("swapped out", swapped, Unit::Bytes))
            .evidence(
                Evidence::number("share of its memory", share, Unit::Ratio).against_scale(SWAPPED.of(period)),
            )
            .evidence(Evidence::number("resident memory", resident, Unit::Bytes))
            .because_some(host_swap_rate(period))
            .because_some(
                pressure.map(|cores| Evidence::number("memory pressure (some)", cores, Unit::Ratio)),
            )
            .because_some(group.map(|share| {
                Evidence::number("use of the cgroup memory limit", share, Unit::Ratio)
                    .with_text("page cache included")
            }))
            .but_if(
                by_faults.is_none(),
                "it is hardly used: no cost until a fullsweep or a peak needs it",
            )
            .but_if(
                !is_swapped && !is_pressed,
                "no memory pressure: it may be code read for the first time, after a start or an upgrade",
            )
            .fix_if(is_full, || {
                remedy::of(
                    period,
                    "host.memory_limit",
                    "raise the memory limit of the control group above the VM's peak",
                    "at the limit the kernel swaps, or drops file pages, of this group only",
                    "memory of the group against its limit, and major page faults",
                )
            })
            .fix_if(is_swapped, || {
                remedy::of(
                    period,
                    "host.swap",
                    "keep the VM out of swap (systemd: MemorySwapMax=0; Docker: --memory-swap as large as --memory), with memory for its peak",
                    "GC touches the whole heap, so swapped pages come back one disk access at a time",
                    "VmSwap in /proc/PID/status falls to 0, and major page faults with it",
                )
            })
            .fix_if(!is_full, || {
                remedy::of(
                    period,
                    "code.less_garbage",
                    "make the VM smaller or the host larger: less state on heaps, smaller caches, fewer neighbours",
                    "whatever does not fit into memory is read from disk",
                    "MemAvailable of the host and major page faults, at the peak",
                )
            }),
    ))
}

/// Returns the rates at which the whole host reads from swap and writes to it.
fn host_swap_rate(period: &Period) -> Option<Evidence> {
    let read = period.rate(&metrics::SWAP_IN, "").ok()?;
    let written = period.rate(&metrics::SWAP_OUT, "").ok()?;
    Some(
        Evidence::number("host: read from swap per second", read, Unit::Bytes)
            .with_text(format!("written to swap: {:.1} MB/s", written / (1 << 20) as f64)),
    )
}
