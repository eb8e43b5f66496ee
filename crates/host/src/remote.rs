//! The host of a remote node, whose files are read by the node's agent.
//!
//! [`RemoteHost`] passes the files to the same [`HostSource`] that reads the local host, so facts, threads, memory, pressure and control
//! groups have the same meaning. It learns the required files from the paths that the source reads. If the answer lacks one of them, the
//! sample is discarded, and the file is requested with the next sample, which is a detailed one. If successive detailed samples provide no
//! new files, because the node has no time for them, less is requested. Only the files listed here are ever requested; the agent has the
//! same list, and refuses all others.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io;
use std::rc::Rc;

use beamtune_model::{
    Clock, FileError, FileExchange, FileReply, FileRequest, Nanos, SampleBuilder, SampleRequest, SeriesTable,
    Source, SourceTrouble, Span, ThreadFiles, Tick, TroubleKind,
};

use crate::error::HostError;
use crate::machine::CPUINFO_BYTES;
use crate::process::{Identity, SMALL_FILE_BYTES};
use crate::source::{AnnouncedBy, HostSource, ROLLUP_BUDGET_NS};
use crate::text;
use crate::tree::FileTree;

/// Maximum size of a file in an answer of the agent.
const MAX_FILE_BYTES: usize = 256 * 1024;
/// Maximum number of requests that the agent accepts in one sample.
const MAX_ASKS: usize = 128;
/// Maximum number of successive detailed samples without a new file. After that, samples are detailed only on request. A detailed sample
/// can take a quarter of a second, and a node that is short of CPU time would have to answer one every second.
const MAX_FRUITLESS: u32 = 3;

/// The files that may be read, besides those of threads and control groups. `/proc/self` is the VM.
const FILES: &[&str] = &[
    "/proc/stat",
    "/proc/meminfo",
    "/proc/vmstat",
    CPUINFO,
    "/proc/pressure/cpu",
    "/proc/pressure/memory",
    "/proc/pressure/io",
    "/proc/sys/kernel/hostname",
    "/proc/sys/kernel/osrelease",
    "/proc/sys/kernel/random/boot_id",
    "/proc/self/stat",
    "/proc/self/status",
    "/proc/self/limits",
    "/proc/self/cgroup",
    "/proc/self/mountinfo",
    ROLLUP,
];
/// Only the beginning is needed, which describes the first CPU.
const CPUINFO: &str = "/proc/cpuinfo";
/// Expensive if much memory is mapped, so it is requested only if the source has just read it.
const ROLLUP: &str = "/proc/self/smaps_rollup";
const NAMESPACE: &str = "/proc/self/ns/cgroup";
const OPEN_FILES: &str = "/proc/self/fd";
const THREADS: &str = "/proc/self/task";
const GROUPS: &str = "/sys/fs/cgroup/";

/// The files of a control group that may be read.
const GROUP_FILES: &[&str] = &[
    "cpu.max",
    "cpu.stat",
    "cpu.weight",
    "cpu.pressure",
    "memory.pressure",
    "io.pressure",
    "memory.max",
    "memory.current",
    "cgroup.controllers",
    "cpu.cfs_quota_us",
    "cpu.cfs_period_us",
    "cpu.shares",
    "cpuacct.usage",
    "memory.limit_in_bytes",
    "memory.usage_in_bytes",
    "cgroup.clone_children",
];

/// Whether the agent is allowed to read this file.
fn is_readable(path: &str) -> bool {
    let of_group = |below: &str| {
        let mut parts = below.rsplit('/');
        parts.next().is_some_and(|file| GROUP_FILES.contains(&file))
            && parts.all(|part| !matches!(part, "" | "." | ".."))
            && !below.contains('\0')
            && path.len() <= 4096
    };
    FILES.contains(&path) || path.strip_prefix(GROUPS).is_some_and(of_group)
}

/// The files of one answer as a file tree. Clones share the answer.
#[derive(Debug, Clone, Default)]
struct AnswerTree(Rc<RefCell<Answers>>);

#[derive(Debug, Default)]
struct Answers {
    /// The VM's process id in its own `/proc`.
    pid: u32,
    files: Vec<(FileRequest, FileReply)>,
    /// The requests for everything that the source has read from this answer.
    asked: BTreeSet<FileRequest>,
    /// Whether any of these files was not in the answer.
    missed: bool,
}

impl AnswerTree {
    fn fill(&self, files: Vec<(FileRequest, FileReply)>) {
        *self.0.borrow_mut() = Answers { files, ..Answers::default() };
    }

    /// Returns whether `smaps_rollup` was read, and whether the sample was detailed, which means that all threads were read.
    fn has_rollup_and_detail(&self) -> (bool, bool) {
        let answers = self.0.borrow();
        let has_rollup =
            answers.files.iter().any(|(ask, file)| is_rollup(ask) && !matches!(file, FileReply::Failed(_)));
        (has_rollup, answers.files.iter().any(|(ask, _)| *ask == FileRequest::Threads { all: true }))
    }

    /// Returns the requests for everything that the source has read, and whether any of these files was not in the answer.
    fn asked(&self) -> (BTreeSet<FileRequest>, bool) {
        let answers = self.0.borrow();
        (answers.asked.clone(), answers.missed)
    }

    /// Finds the VM's process id.
    fn find_pid(&self) -> Result<u32, HostError> {
        let path = "/proc/self/stat";
        let mut content = Vec::new();
        self.read_start(path, SMALL_FILE_BYTES, &mut content)?;
        let number = text::fields(&content).next().and_then(text::number);
        let pid = number.and_then(|number| u32::try_from(number).ok()).filter(|pid| *pid > 0);
        let pid = pid.ok_or_else(|| HostError::garbled(path, text::Garble::new("a process id", &content)))?;
        self.0.borrow_mut().pid = pid;
        Ok(pid)
    }
}

impl Answers {
    /// Converts a path of the source to one of the agent, for which the VM is `/proc/self`.
    fn path(&self, path: &str) -> String {
        let below =
            |prefix: &str| path.strip_prefix(prefix).filter(|rest| rest.is_empty() || rest.starts_with('/'));
        match below(&format!("/proc/{}", self.pid)) {
            Some(rest) if self.pid > 0 => format!("/proc/self{rest}"),
            _ => path.to_owned(),
        }
    }

    /// Finds the answer to a request, and remembers the request; `path` is the source's path. A request for threads matches whether or not
    /// all threads were requested.
    fn find(&mut self, path: &str, wanted: FileRequest) -> Result<&FileReply, HostError> {
        let threads = matches!(wanted, FileRequest::Threads { .. });
        let is_it =
            |ask: &FileRequest| *ask == wanted || (threads && matches!(ask, FileRequest::Threads { .. }));
        let found = self.files.iter().find(|(ask, _)| is_it(ask));
        let is_left_out = found.is_none() && is_rollup(&wanted);
        self.missed |= found.is_none() && !is_left_out;
        if !self.asked.contains(&wanted) {
            self.asked.insert(wanted);
        }
        match found {
            Some((_, FileReply::Failed(trouble))) => Err(failed(path, trouble)),
            Some((_, file)) => Ok(file),
            // `smaps_rollup` is too expensive to be requested with each sample, so its absence does not invalidate a sample.
            None if is_left_out => Err(HostError::Skipped { path: path.to_owned() }),
            None => Err(missing(path)),
        }
    }

    fn content(&mut self, path: &str, max_bytes: usize) -> Result<Vec<u8>, HostError> {
        let mapped = self.path(path);
        if let Some(rest) = mapped.strip_prefix(THREADS) {
            return self.of_thread(path, rest).map(<[u8]>::to_vec);
        }
        if !is_readable(&mapped) {
            return Err(missing(path));
        }
        let wanted = read(&mapped);
        let FileRequest::Read { max_bytes: limit, .. } = wanted else { return Err(missing(path)) };
        match self.find(path, wanted)? {
            FileReply::Content(content) if content.len() < limit || max_bytes <= limit => {
                Ok(content.get(..max_bytes).unwrap_or(content).to_vec())
            }
            FileReply::Truncated(_) | FileReply::Content(_) => {
                Err(HostError::TooLarge { path: path.to_owned(), max: limit })
            }
            _ => Err(missing(path)),
        }
    }

    fn threads(&mut self, path: &str) -> Result<(&[u32], &[ThreadFiles]), HostError> {
        match self.find(path, FileRequest::Threads { all: true })? {
            FileReply::Threads { tids, read } => Ok((tids, read)),
            _ => Err(missing(path)),
        }
    }

    /// Returns the content of a thread's file; `rest` is `/TID/FILE`.
    fn of_thread(&mut self, path: &str, rest: &str) -> Result<&[u8], HostError> {
        let (tids, read) = self.threads(path)?;
        let (tid, file) = rest.trim_start_matches('/').split_once('/').ok_or_else(|| missing(path))?;
        let tid: u32 = tid.parse().map_err(|_| missing(path))?;
        match (read.iter().find(|thread| thread.tid == tid), file) {
            (Some(thread), "stat") => Ok(&thread.stat),
            (Some(thread), "schedstat") if !thread.schedstat.is_empty() => Ok(&thread.schedstat),
            (Some(thread), "status") => Ok(&thread.status_end),
            (None, _) if tids.contains(&tid) => Err(HostError::Skipped { path: path.to_owned() }),
            _ => Err(missing(path)),
        }
    }
}

fn missing(path: &str) -> HostError {
    HostError::Missing { path: path.to_owned() }
}

/// Creates the request for a file. Its size limit is always the same, so that each file is requested only once.
fn read(path: &str) -> FileRequest {
    FileRequest::Read {
        path: path.to_owned(),
        max_bytes: if path == CPUINFO { CPUINFO_BYTES } else { MAX_FILE_BYTES },
    }
}

fn failed(path: &str, trouble: &FileError) -> HostError {
    let path = path.to_owned();
    match trouble {
        FileError::Missing => HostError::Missing { path },
        FileError::Denied => HostError::DeniedRemotely { path },
        FileError::Unsupported => HostError::Unsupported { path },
        FileError::Hung => HostError::Hangs { path },
        FileError::Late => HostError::Late { path },
        FileError::Other(why) => HostError::Io { path, source: io::Error::other(why.clone()) },
    }
}

impl FileTree for AnswerTree {
    fn read_start(&self, path: &str, max_bytes: usize, into: &mut Vec<u8>) -> Result<(), HostError> {
        *into = self.0.borrow_mut().content(path, max_bytes)?;
        Ok(())
    }

    /// Reads only below `/`: the agent is in its VM's file system, so there is no other root.
    fn read_start_below(
        &self,
        dir: &str,
        path: &str,
        max_bytes: usize,
        into: &mut Vec<u8>,
    ) -> Result<(), HostError> {
        match dir {
            "/" => self.read_start(path, max_bytes, into),
            _ => Err(HostError::Missing { path: format!("{}{path}", dir.trim_end_matches('/')) }),
        }
    }

    fn list(&self, path: &str, max: usize) -> Result<Vec<String>, HostError> {
        let mut answers = self.0.borrow_mut();
        if answers.path(path) != THREADS {
            return Err(missing(path));
        }
        let (tids, _) = answers.threads(path)?;
        Ok(tids.iter().take(max).map(u32::to_string).collect())
    }

    fn count(&self, path: &str, _max: usize) -> Result<u64, HostError> {
        let mut answers = self.0.borrow_mut();
        let ask = FileRequest::Count(answers.path(path));
        if ask != FileRequest::Count(OPEN_FILES.to_owned()) {
            return Err(missing(path));
        }
        match answers.find(path, ask)? {
            FileReply::Count(count) => Ok(*count),
            _ => Err(missing(path)),
        }
    }

    fn read_link(&self, path: &str) -> Result<String, HostError> {
        let mut answers = self.0.borrow_mut();
        let ask = FileRequest::Link(answers.path(path));
        if ask != FileRequest::Link(NAMESPACE.to_owned()) {
            return Err(missing(path));
        }
        match answers.find(path, ask)? {
            FileReply::Link(target) => Ok(target.clone()),
            _ => Err(missing(path)),
        }
    }
}

/// Samples the host of a remote node, from the files in the node's answers.
#[derive(Debug)]
pub struct RemoteHost {
    board: FileExchange,
    tree: AnswerTree,
    source: Option<HostSource<AnswerTree>>,
    ask: Option<SampleRequest>,
    /// Requests of samples without detail; `None` until the first such sample shows which files it needs.
    each_time: Option<BTreeSet<FileRequest>>,
    /// Requests of detailed samples.
    in_detail: BTreeSet<FileRequest>,
    /// Whether a file was missing in the last sample, so that the next one is detailed.
    is_learning: bool,
    /// Number of successive detailed samples without a new file.
    fruitless: u32,
    /// Duration of a detailed sample with `smaps_rollup` that took too long, until one without that file has been measured.
    suspect_ns: Option<Nanos>,
}

impl RemoteHost {
    /// Creates a source that exchanges requests and answers with the agent through `board`.
    pub fn new(board: FileExchange) -> Self {
        let host = RemoteHost {
            board,
            tree: AnswerTree::default(),
            source: None,
            ask: None,
            each_time: None,
            in_detail: initial_asks(),
            is_learning: true,
            fruitless: 0,
            suspect_ns: None,
        };
        host.post_asks();
        host
    }

    /// Evaluates an answer before the recording starts. Returns whether more files must be requested: the content of some files shows
    /// which others exist.
    pub fn explore(&mut self) -> bool {
        let mut table = SeriesTable::default();
        let tick = Tick { t: 0, incarnation: 0, vm: None, host: None, late: 0 };
        let mut out = SampleBuilder::new(&mut table, tick);
        self.ask = Some(SampleRequest { seq: 0, t: 0, detail: true });
        // An error is ignored, because it recurs in the first sample.
        let explored = self.read(&mut out);
        // The source is discarded, so that the first sample contains the facts.
        self.source = None;
        explored.is_err() && self.is_learning
    }

    /// Posts the requests. Threads, which are most expensive, are the last in the order of the set.
    fn post_asks(&self) {
        let usual = |ask: &FileRequest| match ask {
            FileRequest::Threads { .. } => FileRequest::Threads { all: false },
            other => other.clone(),
        };
        let in_detail: Vec<FileRequest> = self.in_detail.iter().cloned().collect();
        let each_time = match &self.each_time {
            Some(asks) if !self.is_learning => asks.iter().map(usual).collect(),
            _ if self.is_learning && self.fruitless < MAX_FRUITLESS => in_detail.clone(),
            _ => in_detail.iter().filter(|ask| !is_rollup(ask)).map(usual).collect(),
        };
        self.board.set_requests(each_time, in_detail);
    }

    /// Updates the requests according to what the source has read for a sample.
    fn learn(&mut self, detail: bool, asked: BTreeSet<FileRequest>, missed: bool) {
        self.is_learning = missed;
        if missed {
            self.each_time = None;
            self.in_detail.extend(asked);
        } else if detail {
            let wants_rollup = asked.iter().any(is_rollup);
            self.in_detail.extend(asked);
            self.in_detail.retain(|ask| wants_rollup || !is_rollup(ask));
        } else {
            self.each_time.get_or_insert_default().extend(asked);
        }
        if self.in_detail.len() > MAX_ASKS {
            // The files of many former control groups have accumulated.
            (self.in_detail, self.each_time, self.is_learning) = (initial_asks(), None, true);
        }
    }

    /// Finds out whether reading `smaps_rollup` takes too long, as [`HostSource`] does if it reads the file itself. The agent reports only
    /// the time for all files together. If that is too long, the next detailed sample omits `smaps_rollup` to measure the time for the
    /// other files. Returns whether `smaps_rollup` may be requested now.
    fn allows_rollup(&mut self, source: &mut HostSource<AnswerTree>, took_ns: Nanos) -> bool {
        match (self.tree.has_rollup_and_detail(), self.suspect_ns) {
            ((true, _), _) if took_ns > ROLLUP_BUDGET_NS => {
                self.suspect_ns = Some(took_ns);
                let took_ms = took_ns / 1_000_000;
                source.refuse_rollup(Some(format!(
                    "may have taken most of the {took_ms} ms in which all files were read"
                )));
                false
            }
            ((false, true), Some(with_ns)) => {
                self.suspect_ns = None;
                let left_ns = with_ns.saturating_sub(took_ns);
                let is_slow = left_ns > ROLLUP_BUDGET_NS;
                source.refuse_rollup(is_slow.then(|| format!("took about {} ms", left_ns / 1_000_000)));
                !is_slow
            }
            _ => true,
        }
    }

    fn read(&mut self, out: &mut SampleBuilder<'_>) -> Result<Span, SourceTrouble> {
        let known = self.in_detail.len();
        let read = self.try_read(out);
        let has_learned = !self.is_learning || self.in_detail.len() > known;
        self.fruitless = if has_learned { 0 } else { self.fruitless.saturating_add(1) };
        self.post_asks();
        read
    }

    fn try_read(&mut self, out: &mut SampleBuilder<'_>) -> Result<Span, SourceTrouble> {
        let trouble = |error: HostError| SourceTrouble::new(error.kind(), error.to_string());
        let ask = self.ask.take();
        let answer = self.board.take_replies();
        // If the node has ended, its host is not readable any more, either.
        let answer = answer.ok_or_else(|| {
            SourceTrouble::new(
                TroubleKind::Gone,
                "the node's agent, which reads the host's files, did not answer",
            )
        })?;
        self.tree.fill(answer.replies?);
        let pid = self.tree.find_pid().map_err(|error| match error {
            HostError::Missing { .. } => SourceTrouble::new(
                TroubleKind::Unsupported,
                "the node cannot read /proc/self/stat: /proc is not mounted on its host",
            ),
            error => trouble(error),
        })?;
        let identity = Identity::of(&self.tree, pid).map_err(trouble)?;
        let known = self.source.take().filter(|source| *source.identity() == identity);
        let is_known = known.is_some();
        if !is_known {
            self.suspect_ns = None;
        }
        let mut source = match known {
            Some(source) => source,
            None => HostSource::new(self.tree.clone(), pid, AnnouncedBy::OtherSource)
                .map_err(trouble)?
                .for_remote_host(),
        };
        let ask = ask.unwrap_or(SampleRequest { seq: 0, t: 0, detail: false });
        let detail = ask.detail || self.is_learning || !is_known;
        let kept = (out.sample.readings.len(), out.sample.facts.len(), out.sample.gaps.len());
        let clock = FixedClock(answer.span.end);
        let read = source
            .request(SampleRequest { detail, ..ask }, &clock)
            .and_then(|()| source.collect(answer.span.end, &clock, out));
        let (mut asked, missed) = self.tree.asked();
        if !self.allows_rollup(&mut source, answer.span.end.saturating_sub(answer.span.begin)) {
            asked.retain(|ask| !is_rollup(ask));
        }
        if missed || read.is_ok() {
            self.learn(detail, asked, missed);
        }
        if missed {
            out.sample.readings.truncate(kept.0);
            out.sample.facts.truncate(kept.1);
            out.sample.gaps.truncate(kept.2);
            let why =
                "the files of the node's control groups were unknown; they are read for the next sample";
            return Err(SourceTrouble::new(TroubleKind::TimedOut, why));
        }
        self.source = Some(source);
        // The source knows only the end of the span.
        read.map(|_| answer.span)
    }
}

/// Returns the requests that are made before the control groups are known.
fn initial_asks() -> BTreeSet<FileRequest> {
    let files = FILES.iter().filter(|path| **path != ROLLUP).map(|path| read(path));
    let others = [
        FileRequest::Link(NAMESPACE.to_owned()),
        FileRequest::Count(OPEN_FILES.to_owned()),
        FileRequest::Threads { all: true },
    ];
    files.chain(others).collect()
}

fn is_rollup(ask: &FileRequest) -> bool {
    matches!(ask, FileRequest::Read { path, .. } if path == ROLLUP)
}

impl Source for RemoteHost {
    fn name(&self) -> &'static str {
        "host"
    }

    fn request(&mut self, ask: SampleRequest, _clock: &dyn Clock) -> Result<(), SourceTrouble> {
        self.ask = Some(ask);
        Ok(())
    }

    fn collect(
        &mut self,
        _deadline: Nanos,
        _clock: &dyn Clock,
        out: &mut SampleBuilder<'_>,
    ) -> Result<Span, SourceTrouble> {
        self.read(out)
    }

    fn comes_with_vm(&self) -> bool {
        true
    }
}

/// A clock for the source that stands still at the time when the files were read. It has no wall clock, which the source needs only to
/// announce an incarnation of the VM.
struct FixedClock(Nanos);

impl Clock for FixedClock {
    fn now(&self) -> Nanos {
        self.0
    }

    fn wall(&self) -> i64 {
        0
    }

    fn sleep_until(&self, _until: Nanos) {}
}

#[cfg(test)]
mod tests;
