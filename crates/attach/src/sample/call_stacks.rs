//! Decodes call stacks of waiting processes, and the processes, nodes and addresses that they wait for.

use std::net::SocketAddr;

use beamtune_model::units::Nanos;
use beamtune_model::{SampleBuilder, WaitSampleRow};

use super::{amount, bounded_text, function, required, rows};
use crate::etf::{Term, TermError};

/// Maximum number of functions or awaited processes read from one list. The agent sends at most eight.
const MAX_ENTRIES: usize = 16;

/// Adds rows `{Stack, Count, Queued, [{AwaitedProcess, Count}]}` of a random sample of waiting processes, and rows `{Pid, Status,
/// QueueLength, Stack, [AwaitedProcess]}` of the blocking processes.
pub(super) fn waiting(value: Term<'_>, t: Nanos, out: &mut SampleBuilder<'_>) -> Result<(), TermError> {
    let of = required(value, "sampled")?;
    for row in rows(value, "rows")? {
        let [functions, count, queued, on] = row.tuple_of()?;
        let on = on.list()?.take(MAX_ENTRIES).map(|pair| {
            let [name, count] = pair.tuple_of()?;
            Ok((awaited(name)?, amount(count)?))
        });
        out.sample.wait_samples.push(WaitSampleRow {
            t,
            pid: None,
            status: "waiting".to_owned(),
            stack: stack(functions)?,
            count: amount(count)?,
            queued: amount(queued)?,
            sample_size: of,
            targets: on.collect::<Result<_, TermError>>()?,
            kind: None,
        });
    }
    for row in rows(value, "waited_for")? {
        let [pid, status, queue, functions, on] = row.tuple_of()?;
        let on = on.list()?.take(MAX_ENTRIES).map(|name| Ok((awaited(name)?, 1)));
        out.sample.wait_samples.push(WaitSampleRow {
            t,
            pid: bounded_text(pid)?,
            status: bounded_text(status)?.unwrap_or_default(),
            stack: stack(functions)?,
            count: 1,
            queued: amount(queue)?,
            sample_size: 0,
            targets: on.collect::<Result<_, TermError>>()?,
            kind: None,
        });
    }
    Ok(())
}

/// Adds rows `{InitialCall, Sampled, Status, Stack, Count, Queued, [{AwaitedProcess, Count}]}` of new processes that are sampled
/// again some seconds after their start.
pub(super) fn resampled(value: Term<'_>, t: Nanos, out: &mut SampleBuilder<'_>) -> Result<(), TermError> {
    for row in rows(value, "again")? {
        let [call, of, status, functions, count, queued, on] = row.tuple_of()?;
        let on = on.list()?.take(MAX_ENTRIES).map(|pair| {
            let [name, count] = pair.tuple_of()?;
            Ok((awaited(name)?, amount(count)?))
        });
        out.sample.wait_samples.push(WaitSampleRow {
            t,
            pid: None,
            status: bounded_text(status)?.unwrap_or_default(),
            stack: stack(functions)?,
            count: amount(count)?,
            queued: amount(queued)?,
            sample_size: amount(of)?,
            targets: on.collect::<Result<_, TermError>>()?,
            kind: Some(function(call)?.unwrap_or_default()),
        });
    }
    Ok(())
}

/// Returns the process, node or address that a process waits for. Addresses are normalized, because the agent does not abbreviate
/// the zeros of IPv6 addresses.
fn awaited(value: Term<'_>) -> Result<String, TermError> {
    let name = bounded_text(value)?.unwrap_or_default();
    Ok(name.parse().map_or(name, |address: SocketAddr| address.to_string()))
}

/// Returns a call stack, innermost function first.
pub(super) fn stack(value: Term<'_>) -> Result<Vec<String>, TermError> {
    let functions = value.list()?.take(MAX_ENTRIES).map(function);
    Ok(functions.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
}
