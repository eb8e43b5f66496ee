//! Decodes code size by application, and persistent terms.

use beamtune_model::units::Nanos;
use beamtune_model::{CodeRow, SampleBuilder, metrics};

use super::{NS_PER_US, amount, bounded_text, rows};
use crate::etf::{Term, TermError};

/// Adds code by application, totals, and how long reading stopped the schedulers.
pub(super) fn code(value: Term<'_>, t: Nanos, out: &mut SampleBuilder<'_>) -> Result<(), TermError> {
    for row in rows(value, "rows")? {
        let [application, modules, bytes, old_bytes] = row.tuple_of()?;
        out.sample.code.push(CodeRow {
            t,
            application: bounded_text(application)?,
            modules: amount(modules)?,
            bytes: amount(bytes)?,
            old_bytes: amount(old_bytes)?,
        });
    }
    for (metric, key) in [
        (&metrics::CODE_MODULES, "modules"),
        (&metrics::CODE_SIZE, "bytes"),
        (&metrics::CODE_OLD_SIZE, "old_bytes"),
        (&metrics::CODE_APPLICATIONS, "applications"),
        (&metrics::PERSISTENT_TERMS, "persistent_terms"),
        (&metrics::PERSISTENT_TERMS_SIZE, "persistent_term_bytes"),
    ] {
        out.metric(metric, "", amount(value.field(key)?)?);
    }
    let stopped = amount(value.field("stopped_us")?)?.saturating_mul(NS_PER_US);
    out.metric(&metrics::CODE_STOPPED, "", stopped);
    Ok(())
}
