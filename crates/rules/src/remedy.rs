//! Remedies: changes that this node can make, described by their entries in the `flags` crate.

use beamtune_flags::{Entry, OtpVersion};
use beamtune_model::{Period, Remedy, facts};

/// Creates a remedy from the id of its entry, which supplies risk and releases. `prove` says what to run and what should change. Returns
/// `None` if the entry does not work on the node's release: an unknown flag prevents the VM from booting.
pub fn of(period: &Period, entry: &str, change: &str, why: &str, prove: &str) -> Option<Remedy> {
    by_entry(period, beamtune_flags::entry(entry)?, change, why, prove)
}

/// Creates the remedy of a given entry; see [`of`].
pub fn by_entry(period: &Period, entry: &Entry, change: &str, why: &str, prove: &str) -> Option<Remedy> {
    let release = period.facts.otp_release();
    let version =
        period.facts.get(facts::OTP_VERSION).and_then(OtpVersion::parse).or(release.map(OtpVersion::from));
    if version.is_some_and(|version| !entry.works_in(version)) {
        return None;
    }
    Some(Remedy {
        entry: entry.id.clone(),
        change: change.to_owned(),
        why: why.to_owned(),
        risk: entry.risk.clone(),
        releases: entry.releases(release),
        at_run_time: entry.at_run_time(),
        prove: prove.to_owned(),
        saves_bytes: None,
    })
}
