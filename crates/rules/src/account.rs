//! Accounts for the CPU time that a node could use: work by kind, busy wait, and why the rest was unused. Each part is measured separately,
//! and the parts add up to the total.

mod unused;
mod used;

pub(crate) use unused::{BLOCKED, SLEEPS, Serial, Unused, YIELDS, waits_with_messages};

use beamtune_model::{CpuAccount, CpuShare, CpuUse, Missing, Period, metrics};

use crate::view::{self, Capacity};

/// Returns the CPU account of a period.
pub fn account(period: &Period) -> Result<CpuAccount, Missing> {
    let capacity = view::capacity(period)?;
    let shares_used = used::used(period)?;
    let used: f64 = shares_used.iter().map(|share| share.cores).sum();
    let limit = capacity.allowed.min(capacity.quota.unwrap_or(f64::INFINITY));
    // The clocks of threads and of the quota differ by a few per mille.
    let cores = limit.max(used);
    let unused = Unused::of(period, &capacity, used)?;
    let without_scheduler = (cores - used - unused.cores).max(0.0);
    let mut shares = shares_used;
    shares.extend(unused.shares());
    shares.push(CpuShare {
        what: CpuUse::NoScheduler,
        cores: without_scheduler,
        how: format!("{:.0} schedulers online, {:.0} CPUs allowed", capacity.online, capacity.allowed),
    });
    // OS processes that ran while the VM had nothing to run did not delay it, but that CPU was not idle either.
    for (what, cores) in others(period, &capacity) {
        add_from_idle(&mut shares, what, cores);
    }
    shares.retain(|share| share.cores > 0.0);
    shares.sort_by_key(|share| share.what);
    Ok(CpuAccount { cores, seconds: period.seconds(), shares })
}

/// CPU used by OS processes other than the VM, in cores, within what the VM may use. External programs share its control group. Other
/// processes are counted only if the VM may use the whole host, because it is not recorded on which CPUs they ran.
fn others(period: &Period, capacity: &Capacity) -> Vec<(CpuUse, f64)> {
    let online = period.stat(&metrics::CPUS_ONLINE, "").map_or(f64::INFINITY, |stat| stat.mean());
    let is_whole_host = capacity.allowed >= online && capacity.quota.is_none();
    let programs = view::programs_cores(period).ok();
    let foreign = view::neighbour_cores(period).ok().filter(|_| is_whole_host);
    [(CpuUse::ExternalPrograms, programs), (CpuUse::Neighbours, foreign)]
        .into_iter()
        .filter_map(|(what, cores)| Some((what, cores?)))
        .collect()
}

/// Raises a share to `cores`, at the expense of idle shares and only as far as these suffice.
fn add_from_idle(shares: &mut [CpuShare], what: CpuUse, cores: f64) {
    let known = shares.iter().find(|share| share.what == what).map_or(0.0, |share| share.cores);
    let mut missing = (cores - known).max(0.0);
    let mut added = 0.0;
    for idle in shares.iter_mut().filter(|share| share.what > CpuUse::Locks) {
        let taken = missing.min(idle.cores);
        idle.cores -= taken;
        missing -= taken;
        added += taken;
    }
    if let Some(share) = shares.iter_mut().find(|share| share.what == what && added > 0.0) {
        share.how = format!("{known:.2} cores of this while threads of the VM were runnable");
        share.cores += added;
    }
}

/// Describes what limits the capacity.
pub(crate) fn capacity_text(capacity: &Capacity) -> String {
    let quota = capacity.quota.map_or(String::new(), |quota| format!(", quota of {quota:.2} cores"));
    format!("{:.0} schedulers online, {:.0} CPUs allowed{quota}", capacity.online, capacity.allowed)
}
