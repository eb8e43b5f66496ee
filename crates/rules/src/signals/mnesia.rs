//! Mnesia, where it runs.

use beamtune_model::{Missing, Period, facts, metrics};

/// Whether Mnesia runs on the node. If unknown, it may.
pub(crate) fn runs(period: &Period) -> Result<bool, Missing> {
    period.stat(&metrics::PROCESS_COUNT, "")?;
    let counted = period.stat(&metrics::MNESIA_COMMITS, "").map(|_| true);
    let started =
        period.facts.object(facts::APPLICATIONS).is_some_and(|started| started.contains_key("mnesia"));
    // Pasted text does not show it.
    if started || period.is_imported() { counted } else { Ok(counted.is_ok()) }
}

/// The owner of all of its tables, those of its users among them (mnesia_monitor.erl).
pub(crate) const TABLES_OWNER: &str = "mnesia_monitor";

/// The text for a node without it.
pub(crate) const NOT_STARTED: &str = "Mnesia does not run";
