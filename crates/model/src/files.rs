//! Files of a remote host, which the agent reads: requests and replies.
//!
//! The agent of a node on another host reads files there. The source of the host puts its requests on a [`Board`]; the source
//! of the VM sends them with its own request and puts the replies there. Neither source needs to know the other, and a sample
//! costs only one round trip.

use std::sync::{Arc, Mutex, PoisonError};

use crate::sample::Span;
use crate::source::SourceTrouble;

/// A request to the host of the node. Paths are as seen by the VM, whose own process is `/proc/self`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FileRequest {
    /// Read the first bytes of a file.
    Read {
        /// Path of the file.
        path: String,
        /// Maximum number of bytes.
        max_bytes: usize,
    },
    /// Read the target of a link.
    Link(String),
    /// Count the entries of a directory.
    Count(String),
    /// Read `stat`, `schedstat` and the end of `status` of the VM's threads.
    Threads {
        /// If true, read as many threads as time permits; if false, read a cheap number of threads, in rotation.
        all: bool,
    },
}

/// The reply to one [`FileAsk`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileReply {
    /// The content of a file, up to the requested size.
    Content(Vec<u8>),
    /// The beginning of a file that exceeds the agent's limit.
    Truncated(Vec<u8>),
    /// Target of a link.
    Link(String),
    /// Number of entries of a directory.
    Count(u64),
    /// Files of the VM's threads.
    Threads {
        /// All thread ids.
        tids: Vec<u32>,
        /// The threads that were read this time.
        read: Vec<ThreadFiles>,
    },
    /// The request failed for this reason.
    Failed(FileError),
}

/// Files of one thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadFiles {
    /// Thread id.
    pub tid: u32,
    /// `stat`.
    pub stat: Vec<u8>,
    /// `schedstat`; empty if the kernel has none.
    pub schedstat: Vec<u8>,
    /// The last bytes of `status`.
    pub status_end: Vec<u8>,
}

/// Why a file was not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileError {
    /// The file does not exist.
    Missing,
    /// The VM's user has no permission.
    Denied,
    /// The kernel does not provide this file.
    Unsupported,
    /// A read of it blocks without end.
    Hung,
    /// Time ran out before it was read.
    Late,
    /// Any other reason.
    Other(String),
}

/// All replies to the requests of one sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileReplies {
    /// Time of the read, on the recorder's clock.
    pub span: Span,
    /// Replies in the order of the requests, or why nothing was read.
    pub replies: Result<Vec<(FileRequest, FileReply)>, SourceTrouble>,
}

/// Exchange between the sources of host and VM; clones share the same board.
#[derive(Debug, Clone, Default)]
pub struct FileExchange(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    each_time: Vec<FileRequest>,
    in_detail: Vec<FileRequest>,
    replies: Option<FileReplies>,
}

impl FileExchange {
    /// Sets the requests for ordinary samples, and those for samples with expensive items.
    pub fn set_requests(&self, each_time: Vec<FileRequest>, in_detail: Vec<FileRequest>) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (inner.each_time, inner.in_detail) = (each_time, in_detail);
    }

    /// Returns the requests for the next sample and discards replies to earlier ones.
    pub fn next_requests(&self, detail: bool) -> Vec<FileRequest> {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.replies = None;
        if detail { inner.in_detail.clone() } else { inner.each_time.clone() }
    }

    /// Stores replies.
    pub fn put_replies(&self, replies: FileReplies) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).replies = Some(replies);
    }

    /// Takes the replies; `None` before they arrive.
    pub fn take_replies(&self) -> Option<FileReplies> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).replies.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earlier_replies_are_discarded_by_a_new_request() {
        let board = FileExchange::default();
        board.set_requests(
            vec![FileRequest::Threads { all: false }],
            vec![FileRequest::Threads { all: false }, FileRequest::Link("/proc/self/ns/cgroup".to_owned())],
        );
        assert_eq!(board.next_requests(false), [FileRequest::Threads { all: false }]);
        let replies = FileReplies { span: Span { begin: 1, end: 2 }, replies: Ok(Vec::new()) };
        board.clone().put_replies(replies.clone());
        assert_eq!(board.take_replies(), Some(replies.clone()));
        assert_eq!(board.take_replies(), None);
        board.put_replies(replies);
        assert_eq!(board.next_requests(true).len(), 2);
        assert_eq!(board.take_replies(), None);
    }
}
