//! Whether steps can follow each other: what is sent needs a connection, and nothing may go round without ever waiting.

use super::waits;
use crate::program::DEEPEST_REPEAT;
use crate::scenario::Action;

/// So many times may be repeated what never waits: more would only fill buffers.
const MOST_WITHOUT_WAITING: u64 = 1000;

/// What is known of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Link {
    /// Nothing was done yet: the first step says whether a turn connects by itself.
    Fresh,
    Connected,
    Closed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct InRepeat(bool);

/// What is known behind the steps that were read so far.
#[derive(Debug)]
pub struct Flow {
    link: Link,
    /// Whether the first step that needs a connection was `connect`, and then whether it stood in a repetition.
    begins_by_connect: Option<InRepeat>,
    waits: bool,
    /// Whether these are the steps of `on_connect`.
    is_setup: bool,
    /// How deep repetitions of `on_connect` are nested.
    setup_depth: usize,
    repeats: Vec<Outside>,
    deepest: usize,
}

/// What was known where a repetition begins.
#[derive(Debug)]
struct Outside {
    link: Link,
    waits: bool,
}

impl Flow {
    /// For the steps of `on_connect`.
    pub fn after_connecting() -> Self {
        Self { is_setup: true, link: Link::Connected, ..Self::of_a_turn(0) }
    }

    /// For the steps of a turn; repetitions of `on_connect` are nested so deep.
    pub fn of_a_turn(setup_depth: usize) -> Self {
        Self {
            link: Link::Fresh,
            begins_by_connect: None,
            waits: false,
            is_setup: false,
            setup_depth,
            repeats: Vec::new(),
            deepest: 0,
        }
    }

    /// How deep repetitions were nested.
    pub fn deepest(&self) -> usize {
        self.deepest
    }

    /// A step is done. Gives why that cannot be.
    pub fn pass(&mut self, action: &Action) -> Option<String> {
        self.waits |= waits(action);
        match action {
            Action::Connect if self.is_setup => Some("has been done before `on_connect`".to_owned()),
            Action::Connect => {
                if self.link == Link::Fresh {
                    self.begins_by_connect = Some(InRepeat(!self.repeats.is_empty()));
                }
                let was_connected = self.link == Link::Connected;
                self.waits |= self.link == Link::Closed;
                self.link = Link::Connected;
                if was_connected {
                    Some("comes while the device is connected: put `close` before it".to_owned())
                } else if self.repeats.len() + self.setup_depth > DEEPEST_REPEAT {
                    Some(format!("does `on_connect`, which makes repetitions deeper than {DEEPEST_REPEAT}"))
                } else {
                    None
                }
            }
            Action::Close if self.is_setup => Some("cannot stand in `on_connect`".to_owned()),
            Action::Close => {
                let was_closed = self.link == Link::Closed;
                self.link = Link::Closed;
                was_closed.then(|| "comes while the connection is closed".to_owned())
            }
            // They need no connection, or have been looked into.
            Action::Sleep(_) | Action::Repeat { .. } => None,
            _ if self.link == Link::Closed => {
                Some("comes while the connection is closed: put `connect` before it".to_owned())
            }
            _ => {
                self.link = Link::Connected;
                None
            }
        }
    }

    /// A repetition begins, unless it cannot; gives why.
    pub fn begin_repeat(&mut self) -> Option<String> {
        if self.repeats.len() == DEEPEST_REPEAT {
            return Some(format!("is nested deeper than {DEEPEST_REPEAT} repetitions"));
        }
        self.repeats.push(Outside { link: self.link, waits: self.waits });
        self.waits = false;
        self.deepest = self.deepest.max(self.repeats.len());
        None
    }

    /// A repetition ends. Gives why that cannot be.
    pub fn end_repeat(&mut self, times: u64) -> Option<String> {
        let outside = self.repeats.pop()?;
        // What it must leave, so that it can begin again.
        let begins = match outside.link {
            Link::Fresh if self.link == Link::Fresh => Link::Fresh,
            Link::Fresh if self.begins_by_connect.is_some() => Link::Closed,
            Link::Fresh => Link::Connected,
            link => link,
        };
        let waits = self.waits;
        self.waits |= outside.waits;
        if begins != self.link {
            return Some(match begins {
                Link::Closed => "begins with `connect`, and has to end with `close`".to_owned(),
                _ => "begins while the device is connected, and has to end so".to_owned(),
            });
        }
        (!waits && times > MOST_WITHOUT_WAITING)
            .then(|| "never waits: put a `sleep`, or a step that waits for an answer, into it".to_owned())
    }

    /// The turn ends. Gives why another cannot begin.
    pub fn end(&self) -> Option<&'static str> {
        (self.begins_by_connect == Some(InRepeat(true)) && self.link == Link::Connected)
            .then_some("a turn begins with `connect` in a repetition, and has to end with `close`")
    }

    /// Gives why turns cannot be done again and again.
    pub fn endless(&self) -> Option<&'static str> {
        // A turn that closes its connection waits for the next one.
        (!self.waits && self.link != Link::Closed).then_some(
            "a turn never waits: put `{ sleep = \"1s\" }`, or a step that waits for an answer, into it",
        )
    }
}
