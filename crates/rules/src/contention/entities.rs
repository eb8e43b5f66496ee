//! Owners of locks: the table, process, port, allocator, run queue or node behind a lock's name in lock counting.

use std::collections::HashMap;

use beamtune_model::{LockRow, Nanos, Period, TableRow, facts};

use super::{Counts, locks, order, place, share};

/// The kind of owner of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OwnerKind {
    /// An ETS table.
    Table,
    /// A process.
    Process,
    /// A port.
    Port,
    /// A driver, with all of its ports.
    Driver,
    /// An allocator.
    Allocator,
    /// A run queue.
    RunQueue,
    /// Another node.
    Node,
    /// One of several numbered locks that share the work.
    Numbered,
    /// Anything else that has a name.
    Other,
}

impl OwnerKind {
    /// Derives the kind from the class of a lock and its name.
    pub fn of(class: &str, id: &str) -> OwnerKind {
        let is_pid = id.starts_with('<');
        match class {
            "db_tab"
            | "db_tab_fix"
            | "db_hash_slot"
            | "erl_db_catree_base_node"
            | "erl_db_catree_route_node" => OwnerKind::Table,
            "port_lock" | "port_sched_lock" | "port_data_lock" => OwnerKind::Port,
            "driver_lock" => OwnerKind::Driver,
            "alcu_allocator" => OwnerKind::Allocator,
            "run_queue" => OwnerKind::RunQueue,
            "dist_entry" | "dist_entry_links" | "dist_entry_out_queue" => OwnerKind::Node,
            _ if class.starts_with("proc_") || is_pid => OwnerKind::Process,
            _ if !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit()) => OwnerKind::Numbered,
            _ => OwnerKind::Other,
        }
    }

    /// Whether an owner of this kind can have a remedy of its own. The others share a load.
    pub fn has_own_remedy(self) -> bool {
        !matches!(self, OwnerKind::RunQueue | OwnerKind::Numbered | OwnerKind::Other)
    }
}

/// An owner of locks of a class.
#[derive(Debug, Clone, PartialEq)]
pub struct LockOwner {
    /// Name, as in lock counting.
    pub id: String,
    /// Its kind.
    pub kind: OwnerKind,
    /// For display: `the table sessions`.
    pub title: String,
    /// Further details of a table: its options, its owner.
    pub details: Option<String>,
    /// Counts of its locks.
    pub counts: Counts,
    /// Wait time as a share of the duration; `None` if the duration is unknown.
    pub share: Option<f64>,
    /// Share of its wait time that its most contended lock has at one place, a lower bound; `None` if it has only one lock.
    pub hottest: Option<f64>,
    /// File and line in the emulator's source with the longest wait, and its share of the wait; `None` if not recorded.
    pub place: Option<(String, i64, f64)>,
    /// The recorded table of that name, if there is exactly one.
    pub table: Option<TableRow>,
}

/// Returns the owners of locks of a class, longest wait first. `rows` describe single locks.
pub fn entities(period: &Period, class: &str, rows: &[&LockRow], length: Option<Nanos>) -> Vec<LockOwner> {
    let mut by_id: HashMap<&str, Vec<&LockRow>> = HashMap::new();
    for row in rows {
        by_id.entry(row.id.as_deref().unwrap_or_default()).or_default().push(row);
    }
    let mut entities: Vec<_> =
        by_id.into_iter().map(|(id, rows)| entity(period, class, id, &rows, length)).collect();
    entities.sort_by(|a, b| order(&b.counts).cmp(&order(&a.counts)).then_with(|| a.id.cmp(&b.id)));
    entities
}

/// Describes an owner by the rows of its locks.
fn entity(period: &Period, class: &str, id: &str, rows: &[&LockRow], length: Option<Nanos>) -> LockOwner {
    let what = OwnerKind::of(class, id);
    let mut counts = Counts { locks: locks(rows), ..Counts::default() };
    rows.iter().for_each(|row| counts.add(row));
    let hottest = rows.iter().filter(|row| row.locks == 1).map(|row| row.wait_time).max().unwrap_or(0);
    let recorded = rows.iter().find_map(|row| row.entity.as_deref());
    let tables: Vec<_> = match what {
        OwnerKind::Table => period.tables.iter().filter(|table| table.name == id || table.id == id).collect(),
        _ => Vec::new(),
    };
    let table = match tables.as_slice() {
        [table] => Some((*table).clone()),
        _ => None,
    };
    LockOwner {
        id: id.to_owned(),
        kind: what,
        title: title(period, what, id, recorded),
        details: known(what, recorded, table.as_ref(), tables.len()),
        counts,
        share: share(counts.waited, length),
        place: place(rows, counts.waited),
        hottest: (counts.locks > 1 && counts.waited > 0).then(|| hottest as f64 / counts.waited as f64),
        table,
    }
}

/// `recorded` is the name of the owner in the lock's row, if any.
fn title(period: &Period, what: OwnerKind, id: &str, recorded: Option<&str>) -> String {
    match what {
        OwnerKind::Table => format!("the table {id}"),
        OwnerKind::Process => {
            let is_it = |process: &&beamtune_model::ProcessActivity| {
                process.pid == id || process.row.as_ref().is_some_and(|row| row.name.as_deref() == Some(id))
            };
            match (period.processes.iter().find(is_it), recorded) {
                (Some(process), _) => format!("the process {}", process.title()),
                (None, Some(name)) if id.starts_with('<') => format!("the process {name} ({id})"),
                (None, Some(name)) => format!("the process {id} ({name})"),
                (None, None) => format!("the process {id}"),
            }
        }
        OwnerKind::Port => {
            let known =
                period.ports.iter().find(|port| port.id == id).map(|port| port.name.as_str()).or(recorded);
            known.map_or_else(|| format!("the port {id}"), |name| format!("the port {id} ({name})"))
        }
        OwnerKind::Driver => format!("the driver {id}"),
        OwnerKind::Allocator => id.to_owned(),
        OwnerKind::RunQueue => run_queue(period, id),
        OwnerKind::Node => format!("the node {id}"),
        OwnerKind::Numbered => format!("number {id}"),
        OwnerKind::Other => recorded.unwrap_or(id).to_owned(),
    }
}

/// Run queues are numbered: first those of the schedulers, then the dirty CPU run queue, then the dirty I/O run queue.
fn run_queue(period: &Period, id: &str) -> String {
    let schedulers = period.facts.number(facts::SCHEDULERS);
    match (id.parse::<i64>(), schedulers) {
        (Ok(number), Some(schedulers)) if number == schedulers + 1 => {
            "the run queue of dirty CPU schedulers".to_owned()
        }
        (Ok(number), Some(schedulers)) if number == schedulers + 2 => {
            "the run queue of dirty I/O schedulers".to_owned()
        }
        (Ok(number), Some(schedulers)) if (1..=schedulers).contains(&number) => {
            format!("the run queue of scheduler {number}")
        }
        _ => format!("run queue {id}"),
    }
}

/// Type, protection, options and owner of a table.
fn options(table: &TableRow) -> String {
    let mut words = vec![table.kind.clone(), table.protection.clone()];
    words.extend(table.options.iter().cloned());
    words.retain(|word| !word.is_empty());
    let owner = match &table.owner_name {
        Some(name) => format!("{name} ({})", table.owner),
        None => table.owner.clone(),
    };
    words.push(format!("owner {owner}"));
    words.join(", ")
}

/// Details of a table beyond its name. The titles of other owners contain all that is known.
fn known(what: OwnerKind, recorded: Option<&str>, table: Option<&TableRow>, tables: usize) -> Option<String> {
    let several = || (tables > 1).then(|| format!("{tables} tables have this name"));
    (what == OwnerKind::Table)
        .then(|| table.map(options).or_else(|| recorded.map(str::to_owned)).or_else(several))
        .flatten()
}
