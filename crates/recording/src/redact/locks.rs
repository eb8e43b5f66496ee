//! Redaction of locks: classes and source locations of the VM are kept; names of the tables, processes and nodes that locks belong to
//! are replaced.

use beamtune_model::{LockRow, LockSession, LockWaitRow};

use super::{Replacer, is_id, known, some};

/// Categories and kinds of locks as named by lock counting, and how threads wait; further ones are in [`known::WORDS`].
const WORDS: &[&str] = &[
    "allocator",
    "debug",
    "distribution",
    "generic",
    "io",
    "mutex",
    "rw_mutex",
    "spinlock",
    "rw_spinlock",
    "proclock",
    "yield",
];

/// Words that the agent puts between names in [`LockRow::entity`].
const SEPARATORS: &[&str] = &["of", "one", "tables"];

/// Directories of the emulator's source. Their parent directories depend on where the emulator was built.
const DIRECTORIES: &[&str] = &["beam", "sys", "nifs", "drivers", "hipe", "erts"];

/// File name extensions of the emulator's source.
const EXTENSIONS: &[&str] = &[".c", ".h", ".cpp", ".hpp"];

/// Name prefixes of functions of the emulator and of libraries that it uses; other functions may be from a library outside OTP.
const FUNCTION_PREFIXES: &[&str] = &[
    "erts_",
    "ethr_",
    "erl_",
    "ets_",
    "enif_",
    "driver_",
    "beam_",
    "persistent_term_",
    "mseg_",
    "alcu_",
    "pthread_",
];

impl Replacer {
    pub(super) fn lock_session(&mut self, session: &mut LockSession) {
        session.categories.iter_mut().for_each(|category| *category = self.word_of_locks(category));
        if !session.remark.is_empty() {
            session.remark = "something is missing or inexact (redacted)".to_owned();
        }
    }

    pub(super) fn lock(&mut self, row: &mut LockRow) {
        if !is_class(&row.class) {
            row.class = self.by("lock", &row.class);
        }
        row.kind = self.word_of_locks(&row.kind);
        some(&mut row.id, |text| self.lock_name(text));
        some(&mut row.entity, |text| {
            let words = text.split(' ').map(|word| match word {
                word if SEPARATORS.contains(&word) => word.to_owned(),
                word => self.lock_name(word),
            });
            words.collect::<Vec<_>>().join(" ")
        });
        some(&mut row.file, |text| self.source(text));
    }

    pub(super) fn wait(&mut self, row: &mut LockWaitRow) {
        row.thread = self.word_of_locks(&row.thread);
        row.how = self.word_of_locks(&row.how);
        row.stack.iter_mut().for_each(|function| *function = self.native(function));
    }

    pub(super) fn word_of_locks(&mut self, text: &str) -> String {
        if WORDS.contains(&text) { text.to_owned() } else { self.word(text) }
    }

    /// Redacts the name of a lock: a table, process, port, allocator, driver, node or number.
    fn lock_name(&mut self, text: &str) -> String {
        match text {
            text if is_id(text) => text.to_owned(),
            text if text.contains('@') => self.node(text),
            text => self.name(text),
        }
    }

    /// Redacts the path of a source file: keeps only the part within the emulator's source.
    fn source(&mut self, path: &str) -> String {
        let parts: Vec<&str> = path.split('/').collect();
        let ours =
            parts.iter().position(|part| DIRECTORIES.contains(part)).and_then(|from| parts.get(from..));
        match ours {
            Some(ours) if EXTENSIONS.iter().any(|ending| path.ends_with(ending)) => ours.join("/"),
            _ => self.by("file", path),
        }
    }

    /// Redacts a function of the emulator or of a library that it has loaded.
    pub(super) fn native(&mut self, function: &str) -> String {
        let is_known = FUNCTION_PREFIXES.iter().any(|begin| function.starts_with(begin));
        match is_known || !self.what.modules {
            true => self.native_word(function),
            false => self.by("function", function),
        }
    }

    /// Redacts a text that is no name of a C function.
    pub(super) fn native_word(&mut self, function: &str) -> String {
        let is_word = function.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_:.".contains(&byte));
        if is_word { function.to_owned() } else { self.by("function", function) }
    }
}

/// Whether a class is one of the VM's lock classes, optionally with an index: `esock.r[17]`.
fn is_class(text: &str) -> bool {
    let (name, of) = text.split_once('[').unwrap_or((text, "]"));
    let of = of.strip_suffix(']');
    known::LOCKS.contains(&name) && of.is_some_and(|of| of.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::super::Redaction;
    use super::*;

    fn redacted(modules: bool, rows: Vec<LockRow>) -> Vec<LockRow> {
        let what = Redaction { modules };
        let mut replace = Replacer { what, known: HashMap::new(), counts: HashMap::new() };
        rows.into_iter()
            .map(|mut row| {
                replace.lock(&mut row);
                row
            })
            .collect()
    }

    #[test]
    fn class_of_a_lock_is_kept_and_its_owner_is_replaced() {
        let check = |row: [&str; 4], expect: [&str; 4]| {
            let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
            let [class, id, entity, file] = row;
            let row = LockRow {
                class: class.to_owned(),
                id: text(id),
                entity: text(entity),
                file: text(file),
                ..LockRow::default()
            };
            let found = redacted(false, vec![row]).remove(0);
            let shown = [Some(found.class), found.id, found.entity, found.file];
            assert_eq!(shown.map(Option::unwrap_or_default), expect);
        };
        let place = "beam/erl_db.c";
        check(
            ["db_tab", "patients", "patients of clinic:init/1", place],
            ["db_tab", "name1", "name1 of clinic:init/1", place],
        );
        check(
            ["db_hash_slot", "ac_tab", "one of 3 tables", place],
            ["db_hash_slot", "ac_tab", "one of 3 tables", place],
        );
        check(["proc_msgq", "<0.7.0>", "ward 7", ""], ["proc_msgq", "<0.7.0>", "name1 7", ""]);
        check(["dist_entry", "a@b.example", "", ""], ["dist_entry", "node1@host1", "", ""]);
        check(["alcu_allocator", "eheap_alloc", "", ""], ["alcu_allocator", "eheap_alloc", "", ""]);
        check(["run_queue", "3", "", ""], ["run_queue", "3", "", ""]);
        check(
            ["port_lock", "#Port<0.5>", "tcp_inet of clinic", ""],
            ["port_lock", "#Port<0.5>", "tcp_inet of name1", ""],
        );
        check(["esock.r[17]", "", "", ""], ["esock.r[17]", "", "", ""]);
        check(["esock.r[secret]", "", "", ""], ["lock1", "", "", ""]);
        check(
            ["clinic_nif", "", "", "/home/me/otp/erts/emulator/beam/io.c"],
            ["lock1", "", "", "erts/emulator/beam/io.c"],
        );
        check(["db_tab", "", "", "/home/me/lock.c"], ["db_tab", "", "", "file1"]);
        check(["db_tab", "", "", "beam/notes.txt"], ["db_tab", "", "", "file1"]);
    }

    #[test]
    fn functions_of_the_vm_are_kept_and_others_only_if_modules_are_kept() {
        let check = |modules, expect: [&str; 3]| {
            let what = Redaction { modules };
            let mut replace = Replacer { what, known: HashMap::new(), counts: HashMap::new() };
            let stack = ["ets_update_counter_3", "clinic_admit", "/usr/lib/clinic.so"];
            let mut row = LockWaitRow {
                thread: "dirty_io_scheduler".to_owned(),
                how: "yield".to_owned(),
                stack: stack.map(str::to_owned).to_vec(),
                ..LockWaitRow::default()
            };
            replace.wait(&mut row);
            assert_eq!((row.thread.as_str(), row.how.as_str()), ("dirty_io_scheduler", "yield"));
            assert_eq!(row.stack, expect);
        };
        check(false, ["ets_update_counter_3", "clinic_admit", "function1"]);
        check(true, ["ets_update_counter_3", "function1", "function2"]);
    }

    #[test]
    fn categories_of_a_session_are_kept() {
        let mut replace =
            Replacer { what: Redaction::default(), known: HashMap::new(), counts: HashMap::new() };
        let categories =
            ["allocator", "db", "debug", "distribution", "generic", "io", "process", "scheduler"];
        let mut session = LockSession {
            categories: categories.map(str::to_owned).to_vec(),
            remark: "by me".to_owned(),
            ..LockSession::default()
        };
        replace.lock_session(&mut session);
        assert_eq!(session.categories, categories);
        assert_eq!(session.remark, "something is missing or inexact (redacted)");
    }
}
