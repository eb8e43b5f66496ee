//! Decodes the sizes of messages, which are sampled as processes receive them.

use beamtune_model::units::Nanos;
use beamtune_model::{MessageRow, SampleBuilder};

use super::{amount, bounded_text, required, rows};
use crate::etf::{Term, TermError};

/// Adds rows `{Count, Bytes}` for each size class, and rows `{Pid, Count, Bytes}` of the top receivers.
pub(super) fn messages(value: Term<'_>, t: Nanos, out: &mut SampleBuilder<'_>) -> Result<(), TermError> {
    let totals = MessageRow {
        t,
        us: required(value, "us")?,
        active: required(value, "active")?,
        sampled: required(value, "sampled")?,
        ..MessageRow::default()
    };
    let sizes = rows(value, "sizes")?.map(|size| {
        let [messages, bytes] = size.tuple_of()?;
        Ok(MessageRow { messages: amount(messages)?, bytes: amount(bytes)?, ..totals.clone() })
    });
    let mut all = sizes.collect::<Result<Vec<_>, TermError>>()?;
    if all.is_empty() {
        all.push(totals);
    }
    all[0].off_heap = required(value, "off_heap")?;
    for row in rows(value, "rows")? {
        let [pid, messages, bytes] = row.tuple_of()?;
        let (messages, bytes) = (amount(messages)?, amount(bytes)?);
        all.push(MessageRow { t, pid: bounded_text(pid)?, messages, bytes, ..MessageRow::default() });
    }
    out.sample.messages.extend(all);
    Ok(())
}
