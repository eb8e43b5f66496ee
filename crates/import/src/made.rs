//! What the rows of a table are of: classes, single locks, or places in the source. That does not stand in them; it follows from the call
//! that has printed them, where the text shows it, and else from the table.

use std::collections::HashSet;

use crate::call::Function;
use crate::head::Column;
use crate::row::{Place, is_pid_or_port, names};
use crate::text::unquoted;
use crate::walk::{Row, Table};

/// Locks that every process has. Once keys were swapped (`lcnt:swap_pid_keys()`), these stand in the place of the lock's number.
const OF_PROCESSES: [&str; 5] = ["proc_main", "proc_msgq", "proc_btm", "proc_status", "proc_trace"];
/// The same of ports.
const OF_PORTS: &str = "port_lock";

/// What a row counts, and of what.
#[derive(Debug, Clone)]
pub struct Made<'t> {
    pub row: &'t Row,
    pub class: String,
    pub kind: String,
    /// `None` of a whole class.
    pub id: Option<String>,
    /// 0 where nobody told.
    pub locks: i64,
    /// `None` of all places together.
    pub place: Option<Place>,
    pub tries: i64,
    pub collisions: i64,
    /// Whether the collisions were printed, or follow from their share without a doubt.
    pub is_exact: bool,
    /// Of tables of the same lock the same.
    pub block: usize,
    /// Of tables of the same call the same.
    pub print: usize,
}

/// What the rows of a table are of.
#[derive(Debug, PartialEq, Eq)]
enum Grain {
    /// The id is the number of locks.
    Classes,
    /// The id is the lock.
    Locks,
    /// The id is the number of locks of this name, of a class.
    LocksOf { id: String },
    /// Places of all locks; the name is that of all classes that were taken there.
    PlacesOfAll,
    /// Places of one class or lock.
    PlacesOf { class: String, id: Option<String>, locks: i64, kind: String },
}

const NO_ID: &str = "it was printed without the column id, so whether it is of a class or of a single lock is not known: print it with id";
const NO_NAME: &str = "it was printed without the column name, so which lock it is of is not known";
const NO_LOCK: &str = "which lock these places are of is not known: copy the lines lock, id and type above the table too, or the call";
const CLASS_OR_LOCK: &str = "whether the number beside id is that of a lock or the number of locks is not known: copy the call too (lcnt:inspect …)";
const WHICH_LOCKS: &str = "it counts some locks of the class together, and which ones does not show: inspect one of them by its name";
const NO_TRIES: &str = "it was printed without the column tries";
const NO_COLLISIONS: &str = "it was printed without collisions and their share: print it with colls or ratio";
const SEVERAL: &str =
    "it counts what several classes did at this place, and lcnt does not say how much is of which";
const SWAPPED: &str = "its keys were swapped (lcnt:swap_pid_keys()), so it counts all locks of a process or port together: print it with \
                       {combine,false}, or without swapping";
const MAY_BE_SWAPPED: &str =
    "keys were swapped (lcnt:swap_pid_keys()), so this may be a process with that name rather than a class";
const NO_COUNT: &str = "the number of locks is no number";

/// What the rows of a table count. `refuse` is told of each that cannot be used, and why. `block` is the table's number.
pub fn made<'t>(
    table: &'t Table,
    block: usize,
    refuse: &mut dyn FnMut(&'t Row, &'static str),
) -> Vec<Made<'t>> {
    let grain = match grain(table) {
        Ok(grain) => grain,
        Err(why) => {
            table.rows.iter().for_each(|row| refuse(row, why));
            return Vec::new();
        }
    };
    let of_processes = counts_of_processes(table);
    let mut all = Vec::new();
    for row in &table.rows {
        match one(row, &grain, &of_processes) {
            Ok(made) => all.push(Made { block, print: table.print, ..made }),
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
    let differ = table.rows.iter().all(|row| seen.insert(row.cells.name.as_deref()));
    let combines = match call {
        Some(call) => call.combines(),
        // Without a call, histograms tell inspect, which shows single locks unless it is told otherwise.
        None => !has(Column::Histogram),
    };
    match combines {
        true if are_counts && differ => Ok(Grain::Classes),
        true if call.is_some() => Err(NO_COUNT),
        _ => Ok(Grain::Locks),
    }
}

/// A table of places: the lines above it say of what.
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
    // With its keys swapped back, as below.
    if counted.is_none() && (OF_PROCESSES.contains(&context.id.as_str()) || context.id == OF_PORTS) {
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

/// What a table in which keys were swapped says to be the number of locks of processes and ports.
fn counts_of_processes(table: &Table) -> HashSet<&str> {
    let named = table.rows.iter().filter(|row| row.cells.name.as_deref().is_some_and(is_pid_or_port));
    named.filter_map(|row| row.cells.id.as_deref()).collect()
}

fn one<'t>(row: &'t Row, grain: &Grain, of_processes: &HashSet<&str>) -> Result<Made<'t>, &'static str> {
    let cells = &row.cells;
    let tries = cells.tries.ok_or(NO_TRIES)?;
    let (collisions, is_exact) = match (cells.collisions, cells.collision_pct) {
        (Some(collisions), _) => (collisions, true),
        // The share has four digits, of which the last one is rounded.
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
        Grain::Classes if id.is_some_and(|id| of_processes.contains(id)) => return Err(MAY_BE_SWAPPED),
        Grain::Classes => (unquoted(name), None, id.map_or(Some(0), count).ok_or(NO_COUNT)?, kind),
        Grain::LocksOf { id: of } => {
            (unquoted(name), Some(of.clone()), id.map_or(Some(0), count).ok_or(NO_COUNT)?, kind)
        }
        Grain::Locks => {
            let id = id.ok_or(NO_ID)?;
            let is_swapped = OF_PROCESSES.contains(&id) || id == OF_PORTS;
            let (class, id) = if is_swapped { (id, name) } else { (name, id) };
            (unquoted(class), Some(unquoted(id)), 1, kind)
        }
    };
    let place = cells.place.clone();
    Ok(Made { row, class, kind, id, locks, place, tries, collisions, is_exact, block: 0, print: 0 })
}

fn count(id: &str) -> Option<i64> {
    id.bytes().all(|byte| byte.is_ascii_digit()).then(|| id.parse().ok()).flatten()
}
