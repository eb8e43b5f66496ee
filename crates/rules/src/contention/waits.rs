//! Lock waits that were sampled without lock counting: the operation, by the emulator's functions on the stack.

use std::collections::HashMap;

use beamtune_model::{LockWaitRow, Nanos, Period};

/// Modules whose BIFs begin with the module's name in the emulator: `ets_update_counter_3`.
const MODULES: [&str; 12] = [
    "ets",
    "persistent_term",
    "erts_internal",
    "erts_debug",
    "lists",
    "maps",
    "os",
    "re",
    "unicode",
    "binary",
    "atomics",
    "counters",
];

/// Prefixes of emulator functions, with the lock class that they mostly wait for.
const PREFIXES: [(&str, &str); 16] = [
    ("ets_", "db_tab"),
    ("erts_db_", "db_tab"),
    ("db_", "db_tab"),
    ("erts_alcu_", "alcu_allocator"),
    ("alcu_", "alcu_allocator"),
    ("erts_mseg_", "mseg"),
    ("erts_mmap", "erts_mmap"),
    ("persistent_term_", "update_persistent_term_permission"),
    ("erts_queue_", "proc_msgq"),
    ("erts_proc_sig_", "proc_msgq"),
    ("erts_send_", "proc_msgq"),
    ("send_", "proc_msgq"),
    ("erts_port_", "port_lock"),
    ("erts_atom_", "atom_tab"),
    ("erts_whereis_", "reg_tab"),
    ("erts_dsig_", "dist_entry_out_queue"),
];

/// Name of an operation without a stack.
pub const NO_NAME: &str = "functions without a name";

/// An operation in which threads waited.
#[derive(Debug, Clone, PartialEq)]
pub struct Operation {
    /// The Erlang name of a BIF (`ets:update_counter/3`), else the innermost emulator function; `None` without a stack.
    pub name: Option<String>,
    /// The stack with the longest wait, innermost first.
    pub stack: Vec<String>,
    /// The lock class that such a function mostly waits for; `None` if unknown.
    pub class: Option<&'static str>,
    /// Number of samples.
    pub samples: i64,
    /// Wait time, summed over all threads.
    pub waited: Nanos,
    /// As a share of the sampled time; `None` if its length is unknown.
    pub share: Option<f64>,
}

impl Operation {
    /// Its name, or [`NAMELESS`].
    pub fn title(&self) -> &str {
        self.name.as_deref().unwrap_or(NO_NAME)
    }
}

/// Returns the operations in which threads waited, longest wait first.
pub fn operations(period: &Period) -> Vec<Operation> {
    let length = period.lock_sampling_length();
    // One BIF may wait for several lock classes: for a table, and for memory.
    let mut rows: HashMap<_, Vec<&LockWaitRow>> = HashMap::new();
    for row in &period.lock_waits {
        rows.entry((name(&row.stack), class(&row.stack))).or_default().push(row);
    }
    let operation = |((name, class), rows): ((Option<String>, _), Vec<&LockWaitRow>)| {
        let waited = rows.iter().fold(0_i64, |sum, row| sum.saturating_add(row.waited));
        let stack = rows.iter().max_by_key(|row| row.waited).map(|row| row.stack.clone()).unwrap_or_default();
        Operation {
            name,
            class,
            stack,
            samples: rows.iter().fold(0_i64, |sum, row| sum.saturating_add(row.samples)),
            waited,
            share: length.map(|length| waited as f64 / length as f64),
        }
    };
    let mut operations: Vec<_> = rows.into_iter().map(operation).collect();
    operations.sort_by(|a, b| {
        let longest = (b.waited, b.samples).cmp(&(a.waited, a.samples));
        longest.then_with(|| (&a.name, a.class).cmp(&(&b.name, b.class)))
    });
    operations
}

/// The first BIF of a stack, else its innermost function.
fn name(stack: &[String]) -> Option<String> {
    stack.iter().find_map(|function| built_in(function)).or_else(|| stack.first().cloned())
}

/// The Erlang name of an emulator function that implements a BIF: `ets_update_counter_3` → `ets:update_counter/3`.
fn built_in(function: &str) -> Option<String> {
    let (name, arity) = function.rsplit_once('_')?;
    let is_arity = arity.len() == 1 && arity.bytes().all(|byte| byte.is_ascii_digit());
    let module = MODULES
        .iter()
        .find(|module| name.strip_prefix(**module).is_some_and(|rest| rest.starts_with('_')))?;
    is_arity.then(|| format!("{module}:{}/{arity}", &name[module.len() + 1..]))
}

/// The lock class by the innermost known function of a stack.
fn class(stack: &[String]) -> Option<&'static str> {
    let of = |function: &String| {
        PREFIXES.iter().find(|(prefix, _)| function.starts_with(prefix)).map(|(_, class)| *class)
    };
    stack.iter().find_map(of)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(stack: &[&str], waited: Nanos) -> LockWaitRow {
        LockWaitRow {
            length: 1_000,
            thread: "scheduler".to_owned(),
            how: "sleep".to_owned(),
            stack: stack.iter().map(|function| (*function).to_owned()).collect(),
            samples: 3,
            waited,
            ..LockWaitRow::default()
        }
    }

    fn period(waits: Vec<LockWaitRow>) -> Period {
        let mut period = Period::default();
        period.lock_waits = waits;
        period
    }

    #[test]
    fn operations_have_the_names_that_programs_call() {
        let check = |stack: &[&str], name: Option<&str>, class: Option<&str>| {
            let operation = operations(&period(vec![wait(stack, 5)])).remove(0);
            assert_eq!((operation.name.as_deref(), operation.class), (name, class), "{stack:?}");
        };
        check(&["ets_update_counter_3", "beam_jit_call_bif"], Some("ets:update_counter/3"), Some("db_tab"));
        check(&["db_get_table", "ets_insert_2"], Some("ets:insert/2"), Some("db_tab"));
        check(
            &["persistent_term_put_2"],
            Some("persistent_term:put/2"),
            Some("update_persistent_term_permission"),
        );
        check(
            &["erts_alcu_free_ts", "erts_garbage_collect"],
            Some("erts_alcu_free_ts"),
            Some("alcu_allocator"),
        );
        check(&["enif_send"], Some("enif_send"), None);
        check(&["ets_x"], Some("ets_x"), Some("db_tab"));
        check(&[], None, None);
    }

    #[test]
    fn waits_in_one_operation_are_added_up() {
        let rows =
            vec![wait(&["send_2"], 30), wait(&["db_x", "ets_insert_2"], 100), wait(&["ets_insert_2"], 400)];
        let operations = operations(&period(rows));
        assert_eq!(operations.len(), 2);
        assert_eq!((operations[0].waited, operations[0].samples, operations[0].share), (500, 6, Some(0.5)));
        assert_eq!(operations[0].stack, ["ets_insert_2"]);
    }

    #[test]
    fn one_function_that_waits_for_two_classes_of_locks_is_two_operations() {
        let rows = vec![wait(&["erts_alcu_alloc_ts", "ets_insert_2"], 300), wait(&["ets_insert_2"], 200)];
        let operations: Vec<_> = operations(&period(rows))
            .into_iter()
            .map(|operation| (operation.title().to_owned(), operation.class))
            .collect();
        let name = "ets:insert/2".to_owned();
        assert_eq!(operations, [(name.clone(), Some("alcu_allocator")), (name, Some("db_tab"))]);
    }
}
