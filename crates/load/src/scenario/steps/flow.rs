//! Checks whether steps can follow each other: sending needs a connection, and no loop may run without waiting.

use super::waits;
use crate::program::MAX_NESTED_REPEATS;
use crate::scenario::Action;

/// Maximum iterations of a loop that never waits. More would only fill buffers.
const MAX_REPETITIONS_WITHOUT_WAITING: u64 = 1000;

/// The state of the connection after the steps so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConnectionState {
    /// No step has needed a connection yet. Unless the first such step is `connect`, the turn starts connected.
    Fresh,
    Connected,
    Closed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct InRepeat(bool);

/// The state after the steps so far.
#[derive(Debug)]
pub struct Flow {
    connection: ConnectionState,
    /// Set if the first step that needs a connection is `connect`: whether it is inside a loop.
    first_connect: Option<InRepeat>,
    waits: bool,
    /// Whether these are the steps of `on_connect`.
    is_setup: bool,
    /// Nesting of loops in `on_connect`.
    setup_depth: usize,
    repeats: Vec<SavedState>,
    max_depth: usize,
}

/// The state before a loop.
#[derive(Debug)]
struct SavedState {
    connection: ConnectionState,
    waits: bool,
}

impl Flow {
    /// Creates the state at the start of `on_connect`.
    pub fn of_on_connect() -> Self {
        Self { is_setup: true, connection: ConnectionState::Connected, ..Self::of_turn(0) }
    }

    /// Creates the state at the start of a turn; `setup_depth` is the nesting of loops in `on_connect`.
    pub fn of_turn(setup_depth: usize) -> Self {
        Self {
            connection: ConnectionState::Fresh,
            first_connect: None,
            waits: false,
            is_setup: false,
            setup_depth,
            repeats: Vec::new(),
            max_depth: 0,
        }
    }

    /// Returns the maximum nesting of loops.
    pub fn max_depth(&self) -> usize {
        self.max_depth
    }

    /// Adds a step. Returns why the step is not possible here, if so.
    pub fn add(&mut self, action: &Action) -> Option<String> {
        self.waits |= waits(action);
        match action {
            Action::Connect if self.is_setup => {
                Some("is not allowed in `on_connect`: the device is connected already".to_owned())
            }
            Action::Connect => {
                if self.connection == ConnectionState::Fresh {
                    self.first_connect = Some(InRepeat(!self.repeats.is_empty()));
                }
                let was_connected = self.connection == ConnectionState::Connected;
                self.waits |= self.connection == ConnectionState::Closed;
                self.connection = ConnectionState::Connected;
                if was_connected {
                    Some("is not possible here, because the device is already connected: add `close` before it".to_owned())
                } else if self.repeats.len() + self.setup_depth > MAX_NESTED_REPEATS {
                    Some(format!(
                        "runs `on_connect`, which nests repetitions deeper than {MAX_NESTED_REPEATS}"
                    ))
                } else {
                    None
                }
            }
            Action::Close if self.is_setup => Some("is not allowed in `on_connect`".to_owned()),
            Action::Close => {
                let was_closed = self.connection == ConnectionState::Closed;
                self.connection = ConnectionState::Closed;
                was_closed
                    .then(|| "is not possible here, because the connection is already closed".to_owned())
            }
            // A sleep needs no connection; the steps of a loop have been checked already.
            Action::Sleep(_) | Action::Repeat { .. } => None,
            _ if self.connection == ConnectionState::Closed => {
                Some("needs a connection: add `connect` before it".to_owned())
            }
            _ => {
                self.connection = ConnectionState::Connected;
                None
            }
        }
    }

    /// Begins a loop. Returns why it is not possible, if so.
    pub fn begin_repeat(&mut self) -> Option<String> {
        if self.repeats.len() == MAX_NESTED_REPEATS {
            return Some(format!("is nested deeper than {MAX_NESTED_REPEATS} repetitions"));
        }
        self.repeats.push(SavedState { connection: self.connection, waits: self.waits });
        self.waits = false;
        self.max_depth = self.max_depth.max(self.repeats.len());
        None
    }

    /// Ends a loop. Returns why the loop is not possible, if so.
    pub fn end_repeat(&mut self, times: u64) -> Option<String> {
        let before = self.repeats.pop()?;
        // The state in which the loop must end, so that it can run again.
        let expected = match before.connection {
            ConnectionState::Fresh if self.connection == ConnectionState::Fresh => ConnectionState::Fresh,
            ConnectionState::Fresh if self.first_connect.is_some() => ConnectionState::Closed,
            ConnectionState::Fresh => ConnectionState::Connected,
            connection => connection,
        };
        let waits = self.waits;
        self.waits |= before.waits;
        if expected != self.connection {
            return Some(match expected {
                ConnectionState::Closed => "begins with `connect`, so it must end with `close`".to_owned(),
                _ => "begins connected, so it must end connected".to_owned(),
            });
        }
        (!waits && times > MAX_REPETITIONS_WITHOUT_WAITING)
            .then(|| "never waits: add a `sleep`, or a step that waits for an answer".to_owned())
    }

    /// Returns why no other turn can follow this one, if so.
    pub fn check_next_turn(&self) -> Option<&'static str> {
        (self.first_connect == Some(InRepeat(true)) && self.connection == ConnectionState::Connected)
            .then_some("a turn begins with `connect` in a repetition, so it must end with `close`")
    }

    /// Returns why repeated turns would be a busy loop, if so.
    pub fn check_busy_loop(&self) -> Option<&'static str> {
        // A turn that closes its connection has to wait for the next connect.
        (!self.waits && self.connection != ConnectionState::Closed)
            .then_some("a turn never waits: add `{ sleep = \"1s\" }`, or a step that waits for an answer")
    }
}
