//! ETS tables, ports, new atoms, and the channels to other nodes.

use std::collections::HashMap;

use beamtune_model::units::Nanos;
use beamtune_model::{PortRow, SampleBuilder, SpawnRow, TableRow, metrics};

use super::{function, list, needed, number, rows, text, words};
use crate::etf::{Term, TermError};

/// Options of a table that are told where they are not at their default.
const SWITCHES: &[&str] = &["read_concurrency", "write_concurrency", "decentralized_counters", "compressed"];

pub(super) fn ets(value: Term<'_>, t: Nanos, out: &mut SampleBuilder<'_>) -> Result<(), TermError> {
    let scanned = needed(value, "scanned")?;
    for row in rows(value, "rows")? {
        let table = table(row, t)?;
        // Of tables that grow: the module that it is of, none where that is not known, and the application that this is of, if any.
        if row.get("module")?.is_some() {
            let of = |what: &str, maker| SpawnRow {
                t,
                what: what.to_owned(),
                kind: table.id.clone(),
                maker,
                count: 1,
                of: 1,
                bytes: None,
            };
            out.sample.spawns.push(of(SpawnRow::TABLE_MODULE, text(row, "module")?));
            if let Some(application) = text(row, "application")? {
                out.sample.spawns.push(of(SpawnRow::TABLE_APPLICATION, Some(application)));
            }
        }
        out.sample.tables.push(table);
    }
    for owner in rows(value, "owners")? {
        out.sample.spawns.push(SpawnRow {
            t,
            what: "ets".to_owned(),
            kind: "table".to_owned(),
            maker: maker(owner)?,
            count: needed(owner, "tables")?,
            of: scanned,
            bytes: None,
        });
    }
    Ok(())
}

fn table(row: Term<'_>, t: Nanos) -> Result<TableRow, TermError> {
    let name = text(row, "name")?.unwrap_or_default();
    let mut options = Vec::new();
    for &switch in SWITCHES {
        match text(row, switch)?.as_deref() {
            None | Some("false") => {}
            Some("true") => options.push(switch.to_owned()),
            Some(other) => options.push(format!("{switch}={other}")),
        }
    }
    Ok(TableRow {
        t,
        // A named table has no other identity than its name.
        id: text(row, "id")?.unwrap_or_else(|| name.clone()),
        name,
        owner: text(row, "owner")?.unwrap_or_default(),
        owner_name: text(row, "owner_name")?,
        objects: needed(row, "size")?,
        memory_bytes: needed(row, "memory_bytes")?,
        kind: text(row, "type")?.unwrap_or_default(),
        protection: text(row, "protection")?.unwrap_or_default(),
        options,
    })
}

/// Rows of single tables, of some of these rows whether they belong to processes that have ended, and what binaries they hold.
pub(super) fn growth(value: Term<'_>, t: Nanos, out: &mut SampleBuilder<'_>) -> Result<(), TermError> {
    out.metric(&metrics::TABLES_FOLLOWED, "", needed(value, "followed")?);
    for row in rows(value, "rows")? {
        let [id, objects, bytes] = row.tuple_of()?;
        let Some(id) = words(id)? else { continue };
        out.metric(&metrics::TABLE_ROWS, &id, objects.as_i64()?);
        out.metric(&metrics::TABLE_MEMORY, &id, bytes.as_i64()?);
    }
    for row in rows(value, "ended")? {
        let [id, sampled, place, with_pid, ended] = row.tuple_of()?;
        let Some(id) = words(id)? else { continue };
        let place = match place.as_atom()? {
            "key" => metrics::PID_IS_KEY,
            "in_key" => metrics::PID_IN_KEY,
            "element" => metrics::PID_IN_ROW,
            _ => metrics::NO_PID,
        };
        out.metric(&metrics::TABLE_SAMPLED, &id, sampled.as_i64()?);
        out.metric(&metrics::TABLE_PID_PLACE, &id, place);
        out.metric(&metrics::TABLE_WITH_PID, &id, with_pid.as_i64()?);
        out.metric(&metrics::TABLE_ENDED, &id, ended.as_i64()?);
    }
    // Only where there are many, and not of an older agent.
    if value.get("binaries")?.is_some() {
        binaries(value, t, out)?;
    }
    Ok(())
}

fn binaries(value: Term<'_>, t: Nanos, out: &mut SampleBuilder<'_>) -> Result<(), TermError> {
    for row in rows(value, "binaries")? {
        let [id, objects, sampled, hidden, count, bytes, referenced, held] = row.tuple_of()?;
        let Some(id) = words(id)? else { continue };
        out.metric(&metrics::TABLE_BINARY_ROWS, &id, objects.as_i64()?);
        out.metric(&metrics::TABLE_BINARY_SAMPLED, &id, sampled.as_i64()?);
        out.metric(&metrics::TABLE_BINARY_HIDDEN, &id, hidden.as_i64()?);
        out.metric(&metrics::TABLE_BINARIES, &id, count.as_i64()?);
        out.metric(&metrics::TABLE_BINARY_BYTES, &id, bytes.as_i64()?);
        out.metric(&metrics::TABLE_BINARY_REFERENCED, &id, referenced.as_i64()?);
        out.metric(&metrics::TABLE_BINARY_HELD, &id, held.as_i64()?);
    }
    for row in rows(value, "holders")? {
        out.sample.tables.push(table(row, t)?);
    }
    Ok(())
}

/// A process by its name, else by what it was started with, else by its pid.
fn maker(owner: Term<'_>) -> Result<Option<String>, TermError> {
    let call = owner.get("owner_call")?.map(function).transpose()?.flatten();
    Ok(text(owner, "owner_name")?.or(call).or(text(owner, "owner")?))
}

pub(super) fn ports(value: Term<'_>, t: Nanos, out: &mut SampleBuilder<'_>) -> Result<(), TermError> {
    for row in rows(value, "rows")? {
        out.sample.ports.push(PortRow {
            t,
            id: text(row, "id")?.unwrap_or_default(),
            name: text(row, "kind")?.unwrap_or_default(),
            connected: text(row, "owner")?,
            input_bytes: needed(row, "in_bytes")?,
            output_bytes: needed(row, "out_bytes")?,
            queue_bytes: needed(row, "queue_bytes")?,
            os_pid: number(row, "os_pid")?,
        });
    }
    let scanned = needed(value, "scanned")?;
    queues(value, scanned, out)?;
    // Of a part of the ports that says nothing; an older agent does not tell it.
    let is_all = number(value, "part")? == Some(1) && value.field("last")?.as_bool()?;
    if let Some(programs) = number(value, "programs")?.filter(|_| is_all) {
        out.metric(&metrics::PROGRAM_PORTS, "", programs);
    }
    let mut origin = |kind, maker, count| {
        out.sample.spawns.push(SpawnRow {
            t,
            what: "port".to_owned(),
            kind,
            maker,
            count,
            of: scanned,
            bytes: None,
        });
    };
    // All are counted by kind, and the largest owners are known besides.
    let mut owned = HashMap::<String, i64>::new();
    for owner in rows(value, "owners")? {
        // What has ended is among the others, of which no maker is known.
        if owner.get("owner_call")?.is_none() {
            continue;
        }
        let kind = text(owner, "kind")?.unwrap_or_default();
        let count = needed(owner, "ports")?;
        let known = owned.entry(kind.clone()).or_default();
        *known = known.saturating_add(count);
        origin(kind, maker(owner)?, count);
    }
    for kind in rows(value, "kinds")? {
        let [kind, count] = kind.tuple_of()?;
        let kind = words(kind)?.unwrap_or_default();
        let others = count.as_i64()?.saturating_sub(owned.get(&kind).copied().unwrap_or(0));
        if others > 0 {
            origin(kind, None, others);
        }
    }
    Ok(())
}

/// What waits in the queues of ports, and whose process has ended of some sockets; not where nothing was read.
fn queues(value: Term<'_>, scanned: i64, out: &mut SampleBuilder<'_>) -> Result<(), TermError> {
    if let Some(bytes) = number(value, "queue_bytes")? {
        out.metric(&metrics::PORTS_READ, "", scanned);
        out.metric(&metrics::PORT_QUEUES, "", bytes);
    }
    if let Some(ended) = value.get("ended")? {
        for (metric, key) in [
            (&metrics::SOCKETS_READ, "sockets"),
            (&metrics::SOCKETS_SAMPLED, "sampled"),
            (&metrics::SOCKETS_ENDED, "ended"),
            (&metrics::SOCKETS_ENDED_QUEUES, "queue_bytes"),
        ] {
            out.metric(metric, "", needed(ended, key)?);
        }
    }
    if let Some(buffers) = value.get("buffers")? {
        out.metric(&metrics::SOCKETS_PASSIVE, "", needed(buffers, "passive")?);
        out.metric(&metrics::SOCKET_BUFFERS, "", needed(buffers, "bytes")?);
    }
    Ok(())
}

/// `{Beginning, Count}`: of the newest atoms, what several have in common.
pub(super) fn atoms(value: Term<'_>, t: Nanos, out: &mut SampleBuilder<'_>) -> Result<(), TermError> {
    let sampled = needed(value, "sampled")?;
    for row in rows(value, "beginnings")? {
        let [beginning, count] = row.tuple_of()?;
        out.sample.spawns.push(SpawnRow {
            t,
            what: "atom".to_owned(),
            kind: words(beginning)?.unwrap_or_default(),
            maker: None,
            count: count.as_i64()?,
            of: sampled,
            bytes: None,
        });
    }
    Ok(())
}

pub(super) fn dist(value: Term<'_>, t: Nanos, out: &mut SampleBuilder<'_>) -> Result<(), TermError> {
    for row in rows(value, "rows")? {
        let node = text(row, "node")?.unwrap_or_default();
        for (metric, key) in [
            (&metrics::DIST_QUEUE, "queue_bytes"),
            (&metrics::DIST_INPUT, "in_bytes"),
            (&metrics::DIST_OUTPUT, "out_bytes"),
        ] {
            // Channels of other carriers than TCP do not tell.
            if let Some(bytes) = number(row, key)? {
                out.metric(metric, &node, bytes);
            }
        }
    }
    // An agent of an earlier version does not tell.
    if value.get("mnesia")?.is_some() {
        for row in rows(value, "mnesia")? {
            let [node, runs] = row.tuple_of()?;
            if let Some(node) = words(node)? {
                out.metric(&metrics::MNESIA_RUNS, &node, runs.as_bool()?.into());
            }
        }
    }
    if let Some(connecting) = value.get("connecting")? {
        attempts(connecting, t, out)?;
    }
    if let Some(unconnected) = value.get("unconnected")?
        && let Some(total) = number(unconnected, "total")?
    {
        for node in list(unconnected, "nodes")? {
            if let Some(node) = words(node)? {
                out.sample.spawns.push(SpawnRow {
                    t,
                    what: SpawnRow::UNCONNECTED.to_owned(),
                    kind: node,
                    maker: None,
                    count: 1,
                    of: total,
                    bytes: None,
                });
            }
        }
    }
    Ok(())
}

/// Attempts to connect to other nodes, who asked for some of them, and how far these were.
fn attempts(value: Term<'_>, t: Nanos, out: &mut SampleBuilder<'_>) -> Result<(), TermError> {
    out.metric(&metrics::CONNECT_LOOKS, "", needed(value, "samples")?);
    if let Some(samples) = number(value, "again_samples")? {
        out.metric(&metrics::CONNECT_AGAIN, "", samples);
        for again in list(value, "again")? {
            let [node, count] = again.tuple_of()?;
            if let Some(node) = words(node)? {
                out.metric(&metrics::CONNECT_AGAIN, &node, count.as_i64()?);
            }
        }
    }
    for row in rows(value, "rows")? {
        let Some(node) = text(row, "node")? else { continue };
        let attempts = needed(row, "attempts")?;
        for (metric, count) in [
            (&metrics::CONNECT_ATTEMPTS, attempts),
            (&metrics::CONNECT_PENDING, needed(row, "samples")?),
            (&metrics::CONNECT_OUTGOING, needed(row, "out")?),
            (&metrics::CONNECT_INCOMING, needed(row, "in")?),
            (&metrics::CONNECT_CALLERS, needed(row, "waiting")?),
            (&metrics::CONNECT_UP, row.field("connected")?.as_bool()?.into()),
        ] {
            out.metric(metric, &node, count);
        }
        for (what, key) in [(SpawnRow::ATTEMPT, "askers"), (SpawnRow::ATTEMPT_STEP, "steps")] {
            for pair in list(row, key)? {
                let [maker, count] = pair.tuple_of()?;
                out.sample.spawns.push(SpawnRow {
                    t,
                    what: what.to_owned(),
                    kind: node.clone(),
                    maker: words(maker)?,
                    count: count.as_i64()?,
                    of: attempts,
                    bytes: None,
                });
            }
        }
    }
    Ok(())
}
