//! What messages weigh that processes were seen to get.

use beamtune_model::units::Nanos;
use beamtune_model::{MessageRow, SampleBuilder};

use super::{amount, needed, rows, words};
use crate::etf::{Term, TermError};

/// `{Count, Bytes}` of each size, and `{Pid, Count, Bytes}` of the receivers that got the most.
pub(super) fn messages(value: Term<'_>, t: Nanos, out: &mut SampleBuilder<'_>) -> Result<(), TermError> {
    let look = MessageRow {
        t,
        us: needed(value, "us")?,
        active: needed(value, "active")?,
        sampled: needed(value, "sampled")?,
        ..MessageRow::default()
    };
    let sizes = rows(value, "sizes")?.map(|size| {
        let [messages, bytes] = size.tuple_of()?;
        Ok(MessageRow { messages: amount(messages)?, bytes: amount(bytes)?, ..look.clone() })
    });
    let mut all = sizes.collect::<Result<Vec<_>, TermError>>()?;
    if all.is_empty() {
        all.push(look);
    }
    all[0].off_heap = needed(value, "off_heap")?;
    for row in rows(value, "rows")? {
        let [pid, messages, bytes] = row.tuple_of()?;
        let (messages, bytes) = (amount(messages)?, amount(bytes)?);
        all.push(MessageRow { t, pid: words(pid)?, messages, bytes, ..MessageRow::default() });
    }
    out.sample.messages.extend(all);
    Ok(())
}
