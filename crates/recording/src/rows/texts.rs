//! The table `text`, which stores strings that occur repeatedly, by id.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use rusqlite::{Connection, OptionalExtension};

/// Maximum number of strings in the cache of a writer or a reader; others are looked up in the file.
const CACHED_TEXTS: usize = 10_000;

/// Ids of stored strings.
#[derive(Debug, Default)]
pub(crate) struct TextIds {
    ids: HashMap<Box<str>, i64>,
    /// Number of strings added to the file.
    pub(crate) added: u64,
}

impl TextIds {
    pub(super) fn id(&mut self, connection: &Connection, text: &str) -> rusqlite::Result<i64> {
        if let Some(id) = self.ids.get(text) {
            return Ok(*id);
        }
        let known = connection
            .prepare_cached("SELECT id FROM text WHERE string = ?1")?
            .query_row([text], |row| row.get(0))
            .optional()?;
        let id = match known {
            Some(id) => id,
            None => {
                self.added += 1;
                connection.prepare_cached("INSERT INTO text(string) VALUES (?1)")?.insert([text])?
            }
        };
        if self.ids.len() >= CACHED_TEXTS {
            self.ids.clear();
        }
        self.ids.insert(text.into(), id);
        Ok(id)
    }

    /// Clears the cache. Must be called after a rollback, or after strings were deleted, because both invalidate ids.
    pub(crate) fn forget(&mut self) {
        self.ids.clear();
    }
}

/// Strings by id.
#[derive(Debug, Default)]
pub(crate) struct Texts(RefCell<HashMap<i64, Rc<str>>>);

impl Texts {
    pub(super) fn get(&self, connection: &Connection, id: i64) -> rusqlite::Result<String> {
        if let Some(text) = self.0.borrow().get(&id) {
            return Ok(text.to_string());
        }
        let text: Rc<str> = connection
            .prepare_cached("SELECT string FROM text WHERE id = ?1")?
            .query_row([id], |row| row.get(0))?;
        let mut cache = self.0.borrow_mut();
        if cache.len() >= CACHED_TEXTS {
            cache.clear();
        }
        cache.insert(id, Rc::clone(&text));
        Ok(text.to_string())
    }
}
