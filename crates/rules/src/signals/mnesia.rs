//! Whether Mnesia runs on a node.

use beamtune_model::{Missing, Period, facts, metrics};

/// Whether Mnesia runs on the node; an error if it was started but its counters are missing.
pub(crate) fn runs(period: &Period) -> Result<bool, Missing> {
    period.stat(&metrics::PROCESS_COUNT, "")?;
    let counted = period.stat(&metrics::MNESIA_COMMITS, "").map(|_| true);
    let started =
        period.facts.object(facts::APPLICATIONS).is_some_and(|started| started.contains_key("mnesia"));
    // Pasted text does not show whether it was started.
    if started || period.is_imported() { counted } else { Ok(counted.is_ok()) }
}

/// Owner of all Mnesia tables, those of other applications included (mnesia_monitor.erl).
pub(crate) const TABLES_OWNER: &str = "mnesia_monitor";

/// Text for a node without Mnesia.
pub(crate) const NOT_STARTED: &str = "Mnesia does not run";
