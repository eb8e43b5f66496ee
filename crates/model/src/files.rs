//! Files of a node's host that are read for us there: what is wanted, and what was told.
//!
//! A node on another host is read by its agent. The source of the host says on a [`Board`] what it wants to know of
//! files; the source of the VM takes that along with its request, and puts what came back there. So the two need not
//! know each other, and a sample costs one question.

use std::sync::{Arc, Mutex, PoisonError};

use crate::sample::Span;
use crate::source::Trouble;

/// What is asked of the node's host. Paths are those that the VM itself sees; its own process is `/proc/self`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FileAsk {
    /// The first bytes of a file.
    Read {
        /// Which.
        path: String,
        /// How many at most.
        max_bytes: usize,
    },
    /// Where a link points to.
    Link(String),
    /// How many entries a folder has.
    Count(String),
    /// Of the VM's threads: `stat`, `schedstat`, and the end of `status`.
    Threads {
        /// Of all that there is time for; else of as many as cost little, others each time.
        all: bool,
    },
}

/// What was told of one [`FileAsk`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileTold {
    /// All of a file, or as much of it as was asked for.
    Content(Vec<u8>),
    /// A file that is larger than is told.
    Cut(Vec<u8>),
    /// Where a link points to.
    Link(String),
    /// How many entries a folder has.
    Count(u64),
    /// The threads.
    Threads {
        /// All that there are.
        tids: Vec<u32>,
        /// Those that were read this time.
        read: Vec<ThreadFiles>,
    },
    /// Why it could not be read.
    Failed(FileTrouble),
}

/// Files of one thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadFiles {
    /// Its number.
    pub tid: u32,
    /// `stat`.
    pub stat: Vec<u8>,
    /// `schedstat`; empty where the kernel has none.
    pub schedstat: Vec<u8>,
    /// The last bytes of `status`.
    pub status_end: Vec<u8>,
}

/// Why a file was not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileTrouble {
    /// There is none.
    Missing,
    /// The VM's user may not read it.
    Denied,
    /// The kernel does not have what would stand in it.
    Unsupported,
    /// Reading it hangs.
    Hung,
    /// The time was over before it was its turn.
    Late,
    /// Anything else.
    Other(String),
}

/// All that was told at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilesTold {
    /// When it was read, on the recorder's clock.
    pub span: Span,
    /// In the order of the request; the error says why nothing could be told.
    pub told: Result<Vec<(FileAsk, FileTold)>, Trouble>,
}

/// Where the source of the host and that of the VM meet; clones are the same board.
#[derive(Debug, Clone, Default)]
pub struct Board(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    each_time: Vec<FileAsk>,
    in_detail: Vec<FileAsk>,
    told: Option<FilesTold>,
}

impl Board {
    /// Says what is wanted from now on: each time, and when a closer look is asked for.
    pub fn want(&self, each_time: Vec<FileAsk>, in_detail: Vec<FileAsk>) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (inner.each_time, inner.in_detail) = (each_time, in_detail);
    }

    /// What is to be asked now. What was told before is forgotten.
    pub fn ask(&self, detail: bool) -> Vec<FileAsk> {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.told = None;
        if detail { inner.in_detail.clone() } else { inner.each_time.clone() }
    }

    /// Puts what was told there.
    pub fn tell(&self, told: FilesTold) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).told = Some(told);
    }

    /// Takes what was told; `None` if nothing has come.
    pub fn take(&self) -> Option<FilesTold> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).told.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_told_before_is_not_taken_for_an_answer() {
        let board = Board::default();
        board.want(
            vec![FileAsk::Threads { all: false }],
            vec![FileAsk::Threads { all: false }, FileAsk::Link("/proc/self/ns/cgroup".to_owned())],
        );
        assert_eq!(board.ask(false), [FileAsk::Threads { all: false }]);
        let told = FilesTold { span: Span { begin: 1, end: 2 }, told: Ok(Vec::new()) };
        board.clone().tell(told.clone());
        assert_eq!(board.take(), Some(told.clone()));
        assert_eq!(board.take(), None);
        board.tell(told);
        assert_eq!(board.ask(true).len(), 2);
        assert_eq!(board.take(), None);
    }
}
