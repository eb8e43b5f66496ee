//! Decodes ETS tables, ports, new atoms, and distribution connections.

use std::collections::HashMap;

use beamtune_model::units::Nanos;
use beamtune_model::{PortRow, SampleBuilder, SpawnRow, TableRow, metrics};

use super::{bounded_text, function, list, number, required, rows, text};
use crate::etf::{Term, TermError};

/// Table options that are reported unless they have their default values.
const OPTIONS: &[&str] = &["read_concurrency", "write_concurrency", "decentralized_counters", "compressed"];

/// Adds the top tables, and the owners of the most tables.
pub(super) fn ets(value: Term<'_>, t: Nanos, out: &mut SampleBuilder<'_>) -> Result<(), TermError> {
    let scanned = required(value, "scanned")?;
    for row in rows(value, "rows")? {
        let table = table(row, t)?;
        // Only for a growing table: the module that created it (empty if unknown), and the module's application, if any.
        if row.get("module")?.is_some() {
            let origin = |what: &str, maker| SpawnRow {
                t,
                what: what.to_owned(),
                kind: table.id.clone(),
                creator: maker,
                count: 1,
                sample_size: 1,
                bytes: None,
            };
            out.sample.spawns.push(origin(SpawnRow::TABLE_MODULE, text(row, "module")?));
            if let Some(application) = text(row, "application")? {
                out.sample.spawns.push(origin(SpawnRow::TABLE_APPLICATION, Some(application)));
            }
        }
        out.sample.tables.push(table);
    }
    for owner in rows(value, "owners")? {
        out.sample.spawns.push(SpawnRow {
            t,
            what: "ets".to_owned(),
            kind: "table".to_owned(),
            creator: maker(owner)?,
            count: required(owner, "tables")?,
            sample_size: scanned,
            bytes: None,
        });
    }
    Ok(())
}

/// Parses a table.
fn table(row: Term<'_>, t: Nanos) -> Result<TableRow, TermError> {
    let name = text(row, "name")?.unwrap_or_default();
    let mut options = Vec::new();
    for &option in OPTIONS {
        match text(row, option)?.as_deref() {
            None | Some("false") => {}
            Some("true") => options.push(option.to_owned()),
            Some(other) => options.push(format!("{option}={other}")),
        }
    }
    Ok(TableRow {
        t,
        // A named table is identified by its name.
        id: text(row, "id")?.unwrap_or_else(|| name.clone()),
        name,
        owner: text(row, "owner")?.unwrap_or_default(),
        owner_name: text(row, "owner_name")?,
        objects: required(row, "size")?,
        memory_bytes: required(row, "memory_bytes")?,
        kind: text(row, "type")?.unwrap_or_default(),
        protection: text(row, "protection")?.unwrap_or_default(),
        options,
    })
}

/// Adds the sizes of growing tables. From samples of their objects, adds how many objects belong to exited processes, and the
/// binaries that the objects refer to.
pub(super) fn growth(value: Term<'_>, t: Nanos, out: &mut SampleBuilder<'_>) -> Result<(), TermError> {
    out.metric(&metrics::TABLES_WATCHED, "", required(value, "followed")?);
    for row in rows(value, "rows")? {
        let [id, objects, bytes] = row.tuple_of()?;
        let Some(id) = bounded_text(id)? else { continue };
        out.metric(&metrics::TABLE_ROWS, &id, objects.as_i64()?);
        out.metric(&metrics::TABLE_MEMORY, &id, bytes.as_i64()?);
    }
    for row in rows(value, "ended")? {
        let [id, sampled, place, with_pid, ended] = row.tuple_of()?;
        let Some(id) = bounded_text(id)? else { continue };
        let place = match place.as_atom()? {
            "key" => metrics::PID_IS_KEY,
            "in_key" => metrics::PID_IN_KEY,
            "element" => metrics::PID_IN_OBJECT,
            _ => metrics::NO_PID,
        };
        out.metric(&metrics::TABLE_SAMPLED, &id, sampled.as_i64()?);
        out.metric(&metrics::TABLE_PID_PLACE, &id, place);
        out.metric(&metrics::TABLE_WITH_PID, &id, with_pid.as_i64()?);
        out.metric(&metrics::TABLE_ENDED, &id, ended.as_i64()?);
    }
    // Absent if binaries take little memory, and in older agents.
    if value.get("binaries")?.is_some() {
        binaries(value, t, out)?;
    }
    Ok(())
}

/// Adds the binaries to which sampled objects of tables refer, and the tables themselves.
fn binaries(value: Term<'_>, t: Nanos, out: &mut SampleBuilder<'_>) -> Result<(), TermError> {
    for row in rows(value, "binaries")? {
        let [id, objects, sampled, hidden, count, bytes, referenced, held] = row.tuple_of()?;
        let Some(id) = bounded_text(id)? else { continue };
        out.metric(&metrics::TABLE_BINARY_OBJECTS, &id, objects.as_i64()?);
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

/// Returns an owner's name, or else its initial call, or else its pid.
fn maker(owner: Term<'_>) -> Result<Option<String>, TermError> {
    let call = owner.get("owner_call")?.map(function).transpose()?.flatten();
    Ok(text(owner, "owner_name")?.or(call).or(text(owner, "owner")?))
}

/// Adds the top ports, and the owners of the most ports.
pub(super) fn ports(value: Term<'_>, t: Nanos, out: &mut SampleBuilder<'_>) -> Result<(), TermError> {
    for row in rows(value, "rows")? {
        out.sample.ports.push(PortRow {
            t,
            id: text(row, "id")?.unwrap_or_default(),
            name: text(row, "kind")?.unwrap_or_default(),
            connected: text(row, "owner")?,
            input_bytes: required(row, "in_bytes")?,
            output_bytes: required(row, "out_bytes")?,
            queue_bytes: required(row, "queue_bytes")?,
            os_pid: number(row, "os_pid")?,
        });
    }
    let scanned = required(value, "scanned")?;
    queues(value, scanned, out)?;
    // Only meaningful if all ports were read; absent in older agents.
    let is_all = number(value, "part")? == Some(1) && value.field("last")?.as_bool()?;
    if let Some(programs) = number(value, "programs")?.filter(|_| is_all) {
        out.metric(&metrics::PROGRAM_PORTS, "", programs);
    }
    let mut origin = |kind, maker, count| {
        out.sample.spawns.push(SpawnRow {
            t,
            what: "port".to_owned(),
            kind,
            creator: maker,
            count,
            sample_size: scanned,
            bytes: None,
        });
    };
    // `kinds` counts all ports, `owners` only those of the largest owners.
    let mut owned = HashMap::<String, i64>::new();
    for owner in rows(value, "owners")? {
        // Ports whose owner has exited count as ports of unknown owners.
        if owner.get("owner_call")?.is_none() {
            continue;
        }
        let kind = text(owner, "kind")?.unwrap_or_default();
        let count = required(owner, "ports")?;
        let known = owned.entry(kind.clone()).or_default();
        *known = known.saturating_add(count);
        origin(kind, maker(owner)?, count);
    }
    for kind in rows(value, "kinds")? {
        let [kind, count] = kind.tuple_of()?;
        let kind = bounded_text(kind)?.unwrap_or_default();
        let others = count.as_i64()?.saturating_sub(owned.get(&kind).copied().unwrap_or(0));
        if others > 0 {
            origin(kind, None, others);
        }
    }
    Ok(())
}

/// Adds bytes in port queues, and the number of sampled sockets whose peer process has ended. Both are absent if nothing was
/// read.
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
            out.metric(metric, "", required(ended, key)?);
        }
    }
    if let Some(buffers) = value.get("buffers")? {
        out.metric(&metrics::SOCKETS_PASSIVE, "", required(buffers, "passive")?);
        out.metric(&metrics::SOCKET_BUFFERS, "", required(buffers, "bytes")?);
    }
    Ok(())
}

/// Adds rows `{Prefix, Count}`: common prefixes of the newest atoms.
pub(super) fn atoms(value: Term<'_>, t: Nanos, out: &mut SampleBuilder<'_>) -> Result<(), TermError> {
    let sampled = required(value, "sampled")?;
    for row in rows(value, "beginnings")? {
        let [beginning, count] = row.tuple_of()?;
        out.sample.spawns.push(SpawnRow {
            t,
            what: "atom".to_owned(),
            kind: bounded_text(beginning)?.unwrap_or_default(),
            creator: None,
            count: count.as_i64()?,
            sample_size: sampled,
            bytes: None,
        });
    }
    Ok(())
}

/// Adds distribution connections, whether connected nodes run Mnesia, and attempts to connect.
pub(super) fn dist(value: Term<'_>, t: Nanos, out: &mut SampleBuilder<'_>) -> Result<(), TermError> {
    for row in rows(value, "rows")? {
        let node = text(row, "node")?.unwrap_or_default();
        for (metric, key) in [
            (&metrics::DIST_QUEUE, "queue_bytes"),
            (&metrics::DIST_INPUT, "in_bytes"),
            (&metrics::DIST_OUTPUT, "out_bytes"),
        ] {
            // Unknown for distribution carriers other than TCP.
            if let Some(bytes) = number(row, key)? {
                out.metric(metric, &node, bytes);
            }
        }
    }
    // Absent in older agents.
    if value.get("mnesia")?.is_some() {
        for row in rows(value, "mnesia")? {
            let [node, runs] = row.tuple_of()?;
            if let Some(node) = bounded_text(node)? {
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
            if let Some(node) = bounded_text(node)? {
                out.sample.spawns.push(SpawnRow {
                    t,
                    what: SpawnRow::UNCONNECTED.to_owned(),
                    kind: node,
                    creator: None,
                    count: 1,
                    sample_size: total,
                    bytes: None,
                });
            }
        }
    }
    Ok(())
}

/// Adds attempts to connect to other nodes. For a sample of the attempts, adds the calling processes and the step that was
/// reached.
fn attempts(value: Term<'_>, t: Nanos, out: &mut SampleBuilder<'_>) -> Result<(), TermError> {
    out.metric(&metrics::CONNECT_SAMPLES, "", required(value, "samples")?);
    if let Some(samples) = number(value, "again_samples")? {
        out.metric(&metrics::CONNECT_AGAIN, "", samples);
        for again in list(value, "again")? {
            let [node, count] = again.tuple_of()?;
            if let Some(node) = bounded_text(node)? {
                out.metric(&metrics::CONNECT_AGAIN, &node, count.as_i64()?);
            }
        }
    }
    for row in rows(value, "rows")? {
        let Some(node) = text(row, "node")? else { continue };
        let attempts = required(row, "attempts")?;
        for (metric, count) in [
            (&metrics::CONNECT_ATTEMPTS, attempts),
            (&metrics::CONNECT_PENDING, required(row, "samples")?),
            (&metrics::CONNECT_OUTGOING, required(row, "out")?),
            (&metrics::CONNECT_INCOMING, required(row, "in")?),
            (&metrics::CONNECT_CALLERS, required(row, "waiting")?),
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
                    creator: bounded_text(maker)?,
                    count: count.as_i64()?,
                    sample_size: attempts,
                    bytes: None,
                });
            }
        }
    }
    Ok(())
}
