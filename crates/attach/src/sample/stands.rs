//! Where processes stand that wait, and whom they wait for.

use std::net::SocketAddr;

use beamtune_model::units::Nanos;
use beamtune_model::{SampleBuilder, StandRow};

use super::{amount, function, needed, rows, words};
use crate::etf::{Term, TermError};

/// Functions of a stack, and others that are waited for, that are taken from one list. The agent tells eight.
const MOST_ENTRIES: usize = 16;

/// `{Stack, Count, Queued, [{Who, Count}]}` of a sample by chance, and `{Pid, Status, Queue, Stack, [Who]}` of those that are waited for.
pub(super) fn stands(value: Term<'_>, t: Nanos, out: &mut SampleBuilder<'_>) -> Result<(), TermError> {
    let of = needed(value, "sampled")?;
    for row in rows(value, "rows")? {
        let [at, count, queued, on] = row.tuple_of()?;
        let on = on.list()?.take(MOST_ENTRIES).map(|wanted| {
            let [who, count] = wanted.tuple_of()?;
            Ok((self::who(who)?, amount(count)?))
        });
        out.sample.stands.push(StandRow {
            t,
            pid: None,
            status: "waiting".to_owned(),
            stack: stack(at)?,
            count: amount(count)?,
            queued: amount(queued)?,
            of,
            on: on.collect::<Result<_, TermError>>()?,
            kind: None,
        });
    }
    for row in rows(value, "waited_for")? {
        let [pid, status, queue, at, on] = row.tuple_of()?;
        let on = on.list()?.take(MOST_ENTRIES).map(|who| Ok((self::who(who)?, 1)));
        out.sample.stands.push(StandRow {
            t,
            pid: words(pid)?,
            status: words(status)?.unwrap_or_default(),
            stack: stack(at)?,
            count: 1,
            queued: amount(queue)?,
            of: 0,
            on: on.collect::<Result<_, TermError>>()?,
            kind: None,
        });
    }
    Ok(())
}

/// `{InitialCall, LookedAt, Status, Stack, Count, Queued, [{Who, Count}]}`: what has become of new processes some seconds later.
pub(super) fn again(value: Term<'_>, t: Nanos, out: &mut SampleBuilder<'_>) -> Result<(), TermError> {
    for row in rows(value, "again")? {
        let [call, of, status, at, count, queued, on] = row.tuple_of()?;
        let on = on.list()?.take(MOST_ENTRIES).map(|wanted| {
            let [who, count] = wanted.tuple_of()?;
            Ok((self::who(who)?, amount(count)?))
        });
        out.sample.stands.push(StandRow {
            t,
            pid: None,
            status: words(status)?.unwrap_or_default(),
            stack: stack(at)?,
            count: amount(count)?,
            queued: amount(queued)?,
            of: amount(of)?,
            on: on.collect::<Result<_, TermError>>()?,
            kind: Some(function(call)?.unwrap_or_default()),
        });
    }
    Ok(())
}

/// A process, another node, or an address, which is written as usual: the agent tells all zeros of IPv6.
fn who(value: Term<'_>) -> Result<String, TermError> {
    let who = words(value)?.unwrap_or_default();
    Ok(who.parse().map_or(who, |address: SocketAddr| address.to_string()))
}

/// Functions, the innermost first.
pub(super) fn stack(value: Term<'_>) -> Result<Vec<String>, TermError> {
    let functions = value.list()?.take(MOST_ENTRIES).map(function);
    Ok(functions.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
}
