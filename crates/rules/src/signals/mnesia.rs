//! Mnesia, where it runs.

use beamtune_model::{Missing, Period, facts, metrics};

/// Whether Mnesia runs on the node. What nothing is known of may run it.
pub(crate) fn runs(period: &Period) -> Result<bool, Missing> {
    period.stat(&metrics::PROCESS_COUNT, "")?;
    let counted = period.stat(&metrics::MNESIA_COMMITS, "").map(|_| true);
    let started =
        period.facts.object(facts::APPLICATIONS).is_some_and(|started| started.contains_key("mnesia"));
    // Pasted text says nothing of it.
    if started || period.is_imported() { counted } else { Ok(counted.is_ok()) }
}

/// The owner of all of its tables, those of its users among them (mnesia_monitor.erl).
pub(crate) const TABLES_OWNER: &str = "mnesia_monitor";

/// What is said of a node without it.
pub(crate) const NOT_STARTED: &str = "Mnesia does not run";
