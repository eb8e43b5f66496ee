//! Where the time of the CPUs went that a node could use: what was work, and of which kind, what was spinning, and why the rest was
//! not used. The parts add up to the whole, and each is measured on its own.

mod unused;
mod used;

pub(crate) use unused::{BLOCKED, SLEEPS, Serial, Unused, YIELDS, waits_with_messages};

use beamtune_model::{CpuAccount, Missing, Period, Share, Use};

use crate::view::{self, Capacity};

/// The account of a period.
pub fn account(period: &Period) -> Result<CpuAccount, Missing> {
    let capacity = view::capacity(period)?;
    let shares_used = used::used(period)?;
    let used: f64 = shares_used.iter().map(|share| share.cores).sum();
    let limit = capacity.allowed.min(capacity.quota.unwrap_or(f64::INFINITY));
    // Clocks of threads and of the quota differ by some per mille.
    let cores = limit.max(used);
    let unused = Unused::of(period, &capacity, used)?;
    let without_scheduler = (cores - used - unused.cores).max(0.0);
    let mut shares = shares_used;
    shares.extend(unused.shares());
    shares.push(Share {
        what: Use::NoScheduler,
        cores: without_scheduler,
        how: format!("{:.0} schedulers online, {:.0} CPUs allowed", capacity.online, capacity.allowed),
    });
    shares.retain(|share| share.cores > 0.0);
    shares.sort_by_key(|share| share.what);
    Ok(CpuAccount { cores, seconds: period.seconds(), shares })
}

/// What limits the capacity, in words.
pub(crate) fn capacity_text(capacity: &Capacity) -> String {
    let quota = capacity.quota.map_or(String::new(), |quota| format!(", quota of {quota:.2} cores"));
    format!("{:.0} schedulers online, {:.0} CPUs allowed{quota}", capacity.online, capacity.allowed)
}
