//! Locks: classes, and places in the source, of the VM's own stay; the names of tables, processes and nodes that they belong to do not.

use beamtune_model::{LockRow, LockSession, WaitRow};

use super::{Replace, is_id, known, some};

/// Categories and kinds of locks as lock counting names them, and how threads wait; more of each is in [`known::WORDS`].
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

/// What the agent puts between the names within [`LockRow::entity`].
const BETWEEN: &[&str] = &["of", "one", "tables"];

/// Folders of the emulator's source; what is above them is where somebody has built it.
const FOLDERS: &[&str] = &["beam", "sys", "nifs", "drivers", "hipe", "erts"];

/// How files of the emulator's source end.
const ENDINGS: &[&str] = &[".c", ".h", ".cpp", ".hpp"];

/// How functions of the emulator and of the libraries below it begin; all others might be a library's that is not OTP's.
const FUNCTIONS: &[&str] = &[
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

impl Replace {
    pub(super) fn lock_session(&mut self, session: &mut LockSession) {
        session.categories.iter_mut().for_each(|category| *category = self.word_of_locks(category));
        if !session.remark.is_empty() {
            session.remark = "something is missing or was not exact (redacted)".to_owned();
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
                word if BETWEEN.contains(&word) => word.to_owned(),
                word => self.lock_name(word),
            });
            words.collect::<Vec<_>>().join(" ")
        });
        some(&mut row.file, |text| self.source(text));
    }

    pub(super) fn wait(&mut self, row: &mut WaitRow) {
        row.thread = self.word_of_locks(&row.thread);
        row.how = self.word_of_locks(&row.how);
        row.stack.iter_mut().for_each(|function| *function = self.native(function));
    }

    fn word_of_locks(&mut self, text: &str) -> String {
        if WORDS.contains(&text) { text.to_owned() } else { self.word(text) }
    }

    /// A table, a process, a port, an allocator, a driver, a node, a number.
    fn lock_name(&mut self, text: &str) -> String {
        match text {
            text if is_id(text) => text.to_owned(),
            text if text.contains('@') => self.node(text),
            text => self.name(text),
        }
    }

    /// A file of the emulator's source, without the folders above it.
    fn source(&mut self, path: &str) -> String {
        let parts: Vec<&str> = path.split('/').collect();
        let ours = parts.iter().position(|part| FOLDERS.contains(part)).and_then(|from| parts.get(from..));
        match ours {
            Some(ours) if ENDINGS.iter().any(|ending| path.ends_with(ending)) => ours.join("/"),
            _ => self.by("file", path),
        }
    }

    /// A function of the emulator, or of a library within it.
    fn native(&mut self, function: &str) -> String {
        let is_word = function.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_:.".contains(&byte));
        let is_known = FUNCTIONS.iter().any(|begin| function.starts_with(begin));
        let stays = is_word && (is_known || !self.what.modules);
        if stays { function.to_owned() } else { self.by("function", function) }
    }
}

/// True for a class of the VM's own, also with what it was made for behind it: `esock.r[17]`.
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
        let mut replace = Replace { what, known: HashMap::new(), counts: HashMap::new() };
        rows.into_iter()
            .map(|mut row| {
                replace.lock(&mut row);
                row
            })
            .collect()
    }

    #[test]
    fn what_a_lock_is_stays_and_whose_it_is_does_not() {
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
    fn of_stacks_functions_of_the_vm_stay_and_all_others_while_modules_do() {
        let check = |modules, expect: [&str; 3]| {
            let what = Redaction { modules };
            let mut replace = Replace { what, known: HashMap::new(), counts: HashMap::new() };
            let stack = ["ets_update_counter_3", "clinic_admit", "/usr/lib/clinic.so"];
            let mut row = WaitRow {
                thread: "dirty_io_scheduler".to_owned(),
                how: "yield".to_owned(),
                stack: stack.map(str::to_owned).to_vec(),
                ..WaitRow::default()
            };
            replace.wait(&mut row);
            assert_eq!((row.thread.as_str(), row.how.as_str()), ("dirty_io_scheduler", "yield"));
            assert_eq!(row.stack, expect);
        };
        check(false, ["ets_update_counter_3", "clinic_admit", "function1"]);
        check(true, ["ets_update_counter_3", "function1", "function2"]);
    }

    #[test]
    fn of_a_session_the_numbers_and_categories_stay() {
        let mut replace =
            Replace { what: Redaction::default(), known: HashMap::new(), counts: HashMap::new() };
        let categories =
            ["allocator", "db", "debug", "distribution", "generic", "io", "process", "scheduler"];
        let mut session = LockSession {
            categories: categories.map(str::to_owned).to_vec(),
            remark: "by me".to_owned(),
            ..LockSession::default()
        };
        replace.lock_session(&mut session);
        assert_eq!(session.categories, categories);
        assert_eq!(session.remark, "something is missing or was not exact (redacted)");
    }
}
