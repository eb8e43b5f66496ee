//! Determines what the rows of a table count: classes, single locks, or locations in the source. The rows do not contain this. It follows
//! from the call that printed them, if the text contains the call, otherwise from the table.

use std::collections::HashSet;

use crate::call::Function;
use crate::head::Column;
use crate::lcnt::{Row, Table};
use crate::row::{Place, is_pid_or_port, names};
use crate::text::unquoted;

/// Classes of locks that every process has. With swapped keys (`lcnt:swap_pid_keys()`), they are printed instead of the lock's id.
const PROCESS_LOCKS: [&str; 5] = ["proc_main", "proc_msgq", "proc_btm", "proc_status", "proc_trace"];
/// The class of the lock that every port has.
const PORT_LOCK: &str = "port_lock";

/// A row, and what it counts.
#[derive(Debug, Clone)]
pub struct CountedRow<'t> {
    pub row: &'t Row,
    pub class: String,
    pub kind: String,
    /// `None` for a whole class.
    pub id: Option<String>,
    /// Number of locks; 0 if it was not printed.
    pub locks: i64,
    /// The location; `None` for all locations together.
    pub place: Option<Place>,
    pub tries: i64,
    pub collisions: i64,
    /// Whether the collisions were printed, or follow exactly from their percentage.
    pub is_exact: bool,
    /// Identifies the table of the row.
    pub table_number: usize,
    /// Identifies the call that printed the table; a call may print several tables.
    pub call_id: usize,
}

/// What the rows of a table count.
#[derive(Debug, PartialEq, Eq)]
enum Grain {
    /// Classes; the id is the number of locks.
    Classes,
    /// Single locks; the id identifies the lock.
    Locks,
    /// All locks of a class that have the name `id`; the id in the row is the number of these locks.
    LocksOf { id: String },
    /// Locations of all locks; the name lists all classes that were locked there.
    PlacesOfAll,
    /// Locations of one class or lock.
    PlacesOf { class: String, id: Option<String>, locks: i64, kind: String },
}

const NO_ID: &str = "the column id is missing, so this may be a class or a single lock: print it with id";
const NO_NAME: &str = "the column name is missing, so the lock is unknown";
const NO_LOCK: &str = "it is unknown which lock these locations belong to: also copy the lines lock, id and type above the table, or the call";
const CLASS_OR_LOCK: &str =
    "the number after id may be a lock or the number of locks: also copy the call (lcnt:inspect …)";
const WHICH_LOCKS: &str = "it is a sum over some locks of the class, and it is unknown over which ones: inspect one of them by name";
const NO_TRIES: &str = "the column tries is missing";
const NO_COLLISIONS: &str = "the columns colls and ratio are missing: print it with either";
const SEVERAL: &str =
    "it is a sum over several classes at this location, and lcnt does not print the share of each";
const SWAPPED: &str = "keys were swapped (lcnt:swap_pid_keys()), so this is a sum over all locks of a process or port: print it with {combine,false}, or without swapping";
const MAY_BE_SWAPPED: &str =
    "keys were swapped (lcnt:swap_pid_keys()), so this may be a process with that name instead of a class";
const NO_COUNT: &str = "the number of locks is not a number";

/// Determines what the rows of a table count, and calls `refuse` with the reason for every row that cannot be used.
pub fn counted_rows<'t>(
    table: &'t Table,
    table_number: usize,
    refuse: &mut dyn FnMut(&'t Row, &'static str),
) -> Vec<CountedRow<'t>> {
    let grain = match grain(table) {
        Ok(grain) => grain,
        Err(why) => {
            table.rows.iter().for_each(|row| refuse(row, why));
            return Vec::new();
        }
    };
    let process_counts = counts_of_processes(table);
    let mut all = Vec::new();
    for row in &table.rows {
        match count_row(row, &grain, &process_counts) {
            Ok(counted) => all.push(CountedRow { table_number, call_id: table.call_id, ..counted }),
            Err(why) => refuse(row, why),
        }
    }
    all
}

fn grain(table: &Table) -> Result<Grain, &'static str> {
    let has = |column| table.columns.contains(&column);
    let call = table.call.as_ref();
    if has(Column::Place) && has(Column::Name) {
        return Ok(Grain::PlacesOfAll);
    }
    if has(Column::Place) {
        return places(table);
    }
    if !has(Column::Name) {
        return Err(NO_NAME);
    }
    if let Some(call) = call.filter(|call| call.is_part && call.combines()) {
        return call.id.clone().map(|id| Grain::LocksOf { id }).ok_or(WHICH_LOCKS);
    }
    if !has(Column::Id) {
        return match call {
            Some(call) if call.combines() => Ok(Grain::Classes),
            _ => Err(NO_ID),
        };
    }
    let ids = || table.rows.iter().filter_map(|row| row.cells.id.as_deref());
    let are_counts = ids().all(|id| count(id).is_some_and(|count| count > 0));
    let mut seen = HashSet::new();
    let are_unique = table.rows.iter().all(|row| seen.insert(row.cells.name.as_deref()));
    let combines = match call {
        Some(call) => call.combines(),
        // Without a call, a histogram indicates inspect, which prints single locks by default.
        None => !has(Column::Histogram),
    };
    match combines {
        true if are_counts && are_unique => Ok(Grain::Classes),
        true if call.is_some() => Err(NO_COUNT),
        _ => Ok(Grain::Locks),
    }
}

/// Determines the class or lock of a table of locations, from the lines above the table.
fn places(table: &Table) -> Result<Grain, &'static str> {
    let call = table.call.as_ref().filter(|call| call.function == Function::Inspect);
    let of = |class: &str, id: Option<&str>, locks, kind: &str| {
        Ok(Grain::PlacesOf {
            class: class.to_owned(),
            id: id.map(str::to_owned),
            locks,
            kind: if kind == "undefined" { String::new() } else { kind.to_owned() },
        })
    };
    let Some(context) = &table.context else {
        let call = call.ok_or(NO_LOCK)?;
        let class = call.class.as_deref().ok_or(NO_LOCK)?;
        if call.is_part && call.id.is_none() {
            return Err(WHICH_LOCKS);
        }
        return match (call.id.as_deref(), call.combines()) {
            (Some(id), true) => of(class, Some(id), 0, ""),
            (None, true) => of(class, None, 0, ""),
            (_, false) => Err(NO_LOCK),
        };
    };
    let counted = count(&context.id);
    // The keys are swapped, as in `count_row`.
    if counted.is_none() && (PROCESS_LOCKS.contains(&context.id.as_str()) || context.id == PORT_LOCK) {
        return of(&context.id, Some(&context.class), 1, &context.kind);
    }
    if call.is_some_and(|call| call.combines() && call.is_part && call.id.is_none()) {
        return Err(WHICH_LOCKS);
    }
    match (call.map(|call| (call.combines(), call.id.as_deref())), counted) {
        (Some((true, id)), Some(locks)) => of(&context.class, id, locks, &context.kind),
        (Some((true, _)), None) => Err(NO_COUNT),
        (None, Some(_)) => Err(CLASS_OR_LOCK),
        (Some((false, _)) | None, _) => of(&context.class, Some(&context.id), 1, &context.kind),
    }
}

/// Returns the numbers of locks that processes and ports have in a table with swapped keys.
fn counts_of_processes(table: &Table) -> HashSet<&str> {
    let named = table.rows.iter().filter(|row| row.cells.name.as_deref().is_some_and(is_pid_or_port));
    named.filter_map(|row| row.cells.id.as_deref()).collect()
}

fn count_row<'t>(
    row: &'t Row,
    grain: &Grain,
    process_counts: &HashSet<&str>,
) -> Result<CountedRow<'t>, &'static str> {
    let cells = &row.cells;
    let tries = cells.tries.ok_or(NO_TRIES)?;
    let (collisions, is_exact) = match (cells.collisions, cells.collision_pct) {
        (Some(collisions), _) => (collisions, true),
        // The percentage has four decimals; the last one is rounded.
        (None, Some(share)) => ((share / 100.0 * tries as f64).round() as i64, (tries as f64) < 1e6),
        (None, None) => return Err(NO_COLLISIONS),
    };
    let name = cells.name.as_deref().unwrap_or_default();
    let kind = cells.kind.clone().filter(|kind| kind != "undefined").unwrap_or_default();
    let id = cells.id.as_deref();
    let (class, id, locks, kind) = match grain {
        Grain::PlacesOf { class, id, locks, kind } => (class.clone(), id.clone(), *locks, kind.clone()),
        Grain::PlacesOfAll => {
            let mut classes = names(name);
            let first = classes.next().unwrap_or_default();
            if classes.next().is_some() {
                return Err(SEVERAL);
            }
            if is_pid_or_port(first) {
                return Err(SWAPPED);
            }
            (unquoted(first), None, 0, kind)
        }
        Grain::Classes if is_pid_or_port(name) => return Err(SWAPPED),
        Grain::Classes if id.is_some_and(|id| process_counts.contains(id)) => return Err(MAY_BE_SWAPPED),
        Grain::Classes => (unquoted(name), None, id.map_or(Some(0), count).ok_or(NO_COUNT)?, kind),
        Grain::LocksOf { id: of } => {
            (unquoted(name), Some(of.clone()), id.map_or(Some(0), count).ok_or(NO_COUNT)?, kind)
        }
        Grain::Locks => {
            let id = id.ok_or(NO_ID)?;
            let is_swapped = PROCESS_LOCKS.contains(&id) || id == PORT_LOCK;
            let (class, id) = if is_swapped { (id, name) } else { (name, id) };
            (unquoted(class), Some(unquoted(id)), 1, kind)
        }
    };
    let place = cells.place.clone();
    Ok(CountedRow {
        row,
        class,
        kind,
        id,
        locks,
        place,
        tries,
        collisions,
        is_exact,
        table_number: 0,
        call_id: 0,
    })
}

fn count(id: &str) -> Option<i64> {
    id.bytes().all(|byte| byte.is_ascii_digit()).then(|| id.parse().ok()).flatten()
}
