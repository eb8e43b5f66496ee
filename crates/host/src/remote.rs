//! The host of a node that runs on another one: its files are read there by the node's agent.
//!
//! [`RemoteHost`] hands the files to the same [`HostSource`] that reads this host, so facts, threads, memory, pressure and
//! control groups mean the same. It learns which files are wanted by what the source has asked for: where one was not
//! among those that were told, the sample is thrown away, and the file comes with the next one, which is a closer look. Where
//! such looks teach nothing, because the node has no time for them, it is asked for less. Only those that stand
//! here are ever asked for; the agent has the same list, and refuses all others.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io;
use std::rc::Rc;

use beamtune_model::{
    Ask, Board, Clock, FileAsk, FileTold, FileTrouble, Nanos, SampleBuilder, SeriesTable, Source, Span,
    ThreadFiles, Tick, Trouble, TroubleKind,
};

use crate::error::HostError;
use crate::machine::CPUINFO_BYTES;
use crate::process::{Identity, SMALL_FILE_BYTES};
use crate::source::{Announce, HostSource, ROLLUP_BUDGET_NS};
use crate::text;
use crate::tree::FileTree;

/// What the agent tells of one file at most.
const MOST_BYTES: usize = 256 * 1024;
/// How many files the agent takes in one request.
const MOST_ASKS: usize = 128;
/// So many closer looks in a row may teach nothing. After that there is one only when detail is asked for: they can take the node
/// a quarter of a second, and one that is short of CPU would be asked for one every second.
const MOST_IN_VAIN: u32 = 3;

/// Files that are told, beside those of threads and control groups. `/proc/self` is the VM.
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
/// The source reads the first CPU's part of it.
const CPUINFO: &str = "/proc/cpuinfo";
/// Dear where much memory is mapped: asked for only when the source has just asked for it.
const ROLLUP: &str = "/proc/self/smaps_rollup";
const NAMESPACE: &str = "/proc/self/ns/cgroup";
const OPEN_FILES: &str = "/proc/self/fd";
const THREADS: &str = "/proc/self/task";
const GROUPS: &str = "/sys/fs/cgroup/";

/// Files of a control group that are told.
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

/// True of a file that the agent reads.
fn is_told(path: &str) -> bool {
    let of_group = |below: &str| {
        let mut parts = below.rsplit('/');
        parts.next().is_some_and(|file| GROUP_FILES.contains(&file))
            && parts.all(|part| !matches!(part, "" | "." | ".."))
            && !below.contains('\0')
            && path.len() <= 4096
    };
    FILES.contains(&path) || path.strip_prefix(GROUPS).is_some_and(of_group)
}

/// What was told at once, as a tree; clones are the same one.
#[derive(Debug, Clone, Default)]
struct ToldTree(Rc<RefCell<Told>>);

#[derive(Debug, Default)]
struct Told {
    /// The VM's number in the `/proc` that it sees.
    pid: u32,
    told: Vec<(FileAsk, FileTold)>,
    /// What has been asked for since it was told.
    asked: BTreeSet<FileAsk>,
    /// Something was asked for that was not told.
    missed: bool,
}

impl ToldTree {
    fn fill(&self, told: Vec<(FileAsk, FileTold)>) {
        *self.0.borrow_mut() = Told { told, ..Told::default() };
    }

    /// Whether the rollup was read, and whether it was a closer look, with all threads.
    fn looks(&self) -> (bool, bool) {
        let told = self.0.borrow();
        let has_rollup =
            told.told.iter().any(|(ask, told)| is_rollup(ask) && !matches!(told, FileTold::Failed(_)));
        (has_rollup, told.told.iter().any(|(ask, _)| *ask == FileAsk::Threads { all: true }))
    }

    /// What has been asked for, and whether all of it was there.
    fn asked(&self) -> (BTreeSet<FileAsk>, bool) {
        let told = self.0.borrow();
        (told.asked.clone(), told.missed)
    }

    /// Whose files they are.
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

impl Told {
    /// The path as the agent knows it.
    fn path(&self, path: &str) -> String {
        let below =
            |prefix: &str| path.strip_prefix(prefix).filter(|rest| rest.is_empty() || rest.starts_with('/'));
        match below(&format!("/proc/{}", self.pid)) {
            Some(rest) if self.pid > 0 => format!("/proc/self{rest}"),
            _ => path.to_owned(),
        }
    }

    /// What was told of a wish, which is noted; `path` is as the source knows it. Threads are told whether all were asked
    /// for or not.
    fn find(&mut self, path: &str, wish: FileAsk) -> Result<&FileTold, HostError> {
        let threads = matches!(wish, FileAsk::Threads { .. });
        let is_it = |ask: &FileAsk| *ask == wish || (threads && matches!(ask, FileAsk::Threads { .. }));
        let found = self.told.iter().find(|(ask, _)| is_it(ask));
        let is_left_out = found.is_none() && is_rollup(&wish);
        self.missed |= found.is_none() && !is_left_out;
        if !self.asked.contains(&wish) {
            self.asked.insert(wish);
        }
        match found {
            Some((_, FileTold::Failed(trouble))) => Err(failed(path, trouble)),
            Some((_, told)) => Ok(told),
            // No sample is thrown away for what is too dear to be asked for each time.
            None if is_left_out => Err(HostError::LeftOut { path: path.to_owned() }),
            None => Err(missing(path)),
        }
    }

    fn content(&mut self, path: &str, max_bytes: usize) -> Result<Vec<u8>, HostError> {
        let mapped = self.path(path);
        if let Some(rest) = mapped.strip_prefix(THREADS) {
            return self.of_thread(path, rest).map(<[u8]>::to_vec);
        }
        if !is_told(&mapped) {
            return Err(missing(path));
        }
        let wish = read(&mapped);
        let FileAsk::Read { max_bytes: most, .. } = wish else { return Err(missing(path)) };
        match self.find(path, wish)? {
            FileTold::Content(content) if content.len() < most || max_bytes <= most => {
                Ok(content.get(..max_bytes).unwrap_or(content).to_vec())
            }
            FileTold::Cut(_) | FileTold::Content(_) => {
                Err(HostError::TooLarge { path: path.to_owned(), max: most })
            }
            _ => Err(missing(path)),
        }
    }

    fn threads(&mut self, path: &str) -> Result<(&[u32], &[ThreadFiles]), HostError> {
        match self.find(path, FileAsk::Threads { all: true })? {
            FileTold::Threads { tids, read } => Ok((tids, read)),
            _ => Err(missing(path)),
        }
    }

    /// `rest` is `/TID/FILE`.
    fn of_thread(&mut self, path: &str, rest: &str) -> Result<&[u8], HostError> {
        let (tids, read) = self.threads(path)?;
        let (tid, file) = rest.trim_start_matches('/').split_once('/').ok_or_else(|| missing(path))?;
        let tid: u32 = tid.parse().map_err(|_| missing(path))?;
        match (read.iter().find(|thread| thread.tid == tid), file) {
            (Some(thread), "stat") => Ok(&thread.stat),
            (Some(thread), "schedstat") if !thread.schedstat.is_empty() => Ok(&thread.schedstat),
            (Some(thread), "status") => Ok(&thread.status_end),
            (None, _) if tids.contains(&tid) => Err(HostError::LeftOut { path: path.to_owned() }),
            _ => Err(missing(path)),
        }
    }
}

fn missing(path: &str) -> HostError {
    HostError::Missing { path: path.to_owned() }
}

/// The wish to read a file: always for as much of it, so that it is asked for once.
fn read(path: &str) -> FileAsk {
    FileAsk::Read {
        path: path.to_owned(),
        max_bytes: if path == CPUINFO { CPUINFO_BYTES } else { MOST_BYTES },
    }
}

fn failed(path: &str, trouble: &FileTrouble) -> HostError {
    let path = path.to_owned();
    match trouble {
        FileTrouble::Missing => HostError::Missing { path },
        FileTrouble::Denied => HostError::DeniedThere { path },
        FileTrouble::Unsupported => HostError::Unsupported { path },
        FileTrouble::Hung => HostError::Hangs { path },
        FileTrouble::Late => HostError::Late { path },
        FileTrouble::Other(why) => HostError::Io { path, source: io::Error::other(why.clone()) },
    }
}

impl FileTree for ToldTree {
    fn read_start(&self, path: &str, max_bytes: usize, into: &mut Vec<u8>) -> Result<(), HostError> {
        *into = self.0.borrow_mut().content(path, max_bytes)?;
        Ok(())
    }

    /// The agent sees what its VM sees, so there is no other root to look below.
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
        let mut told = self.0.borrow_mut();
        if told.path(path) != THREADS {
            return Err(missing(path));
        }
        let (tids, _) = told.threads(path)?;
        Ok(tids.iter().take(max).map(u32::to_string).collect())
    }

    fn count(&self, path: &str, _max: usize) -> Result<u64, HostError> {
        let mut told = self.0.borrow_mut();
        let ask = FileAsk::Count(told.path(path));
        if ask != FileAsk::Count(OPEN_FILES.to_owned()) {
            return Err(missing(path));
        }
        match told.find(path, ask)? {
            FileTold::Count(count) => Ok(*count),
            _ => Err(missing(path)),
        }
    }

    fn read_link(&self, path: &str) -> Result<String, HostError> {
        let mut told = self.0.borrow_mut();
        let ask = FileAsk::Link(told.path(path));
        if ask != FileAsk::Link(NAMESPACE.to_owned()) {
            return Err(missing(path));
        }
        match told.find(path, ask)? {
            FileTold::Link(target) => Ok(target.clone()),
            _ => Err(missing(path)),
        }
    }
}

/// Reads the host of a node on another one, from the files that come with the node's answers.
#[derive(Debug)]
pub struct RemoteHost {
    board: Board,
    tree: ToldTree,
    source: Option<HostSource<ToldTree>>,
    ask: Option<Ask>,
    /// What samples without detail want; `None` until one has shown it.
    each_time: Option<BTreeSet<FileAsk>>,
    in_detail: BTreeSet<FileAsk>,
    /// Something was missing the last time: the next sample is a closer look.
    is_learning: bool,
    /// How many times in a row nothing has been learnt from that.
    in_vain: u32,
    /// What a closer look took that had the rollup in it, if that was too long; until one without it has been timed.
    suspect_ns: Option<Nanos>,
}

impl RemoteHost {
    /// A source that says on the board what it wants to know.
    pub fn new(board: Board) -> Self {
        let host = RemoteHost {
            board,
            tree: ToldTree::default(),
            source: None,
            ask: None,
            each_time: None,
            in_detail: at_first(),
            is_learning: true,
            in_vain: 0,
            suspect_ns: None,
        };
        host.want();
        host
    }

    /// Looks at what was told before the recording begins. True if there is more to be asked for: which files there are
    /// stands in others.
    pub fn explore(&mut self) -> bool {
        let mut table = SeriesTable::default();
        let tick = Tick { t: 0, incarnation: 0, vm: None, host: None, late: 0 };
        let mut out = SampleBuilder::new(&mut table, tick);
        self.ask = Some(Ask { seq: 0, t: 0, detail: true });
        // What is wrong will be wrong in the first sample too.
        let explored = self.read(&mut out);
        // That one begins with the facts.
        self.source = None;
        explored.is_err() && self.is_learning
    }

    /// Says what is wanted. Threads, the dearest, come last in the order of the set.
    fn want(&self) {
        let usual = |ask: &FileAsk| match ask {
            FileAsk::Threads { .. } => FileAsk::Threads { all: false },
            other => other.clone(),
        };
        let in_detail: Vec<FileAsk> = self.in_detail.iter().cloned().collect();
        let each_time = match &self.each_time {
            Some(asks) if !self.is_learning => asks.iter().map(usual).collect(),
            _ if self.is_learning && self.in_vain < MOST_IN_VAIN => in_detail.clone(),
            _ => in_detail.iter().filter(|ask| !is_rollup(ask)).map(usual).collect(),
        };
        self.board.want(each_time, in_detail);
    }

    /// Notes what a sample has asked for.
    fn learn(&mut self, detail: bool, asked: BTreeSet<FileAsk>, missed: bool) {
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
        if self.in_detail.len() > MOST_ASKS {
            // Control groups have come and gone.
            (self.in_detail, self.each_time, self.is_learning) = (at_first(), None, true);
        }
    }

    /// Finds out whether the rollup holds up the VM, as [`HostSource`] does where it reads it itself. The agent tells what all files
    /// took together, so where that was too long, one look without the rollup shows what is left. False if it is not to be
    /// asked for now.
    fn allows_rollup(&mut self, source: &mut HostSource<ToldTree>, took_ns: Nanos) -> bool {
        match (self.tree.looks(), self.suspect_ns) {
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

    fn read(&mut self, out: &mut SampleBuilder<'_>) -> Result<Span, Trouble> {
        let known = self.in_detail.len();
        let read = self.try_read(out);
        let has_taught = !self.is_learning || self.in_detail.len() > known;
        self.in_vain = if has_taught { 0 } else { self.in_vain.saturating_add(1) };
        self.want();
        read
    }

    fn try_read(&mut self, out: &mut SampleBuilder<'_>) -> Result<Span, Trouble> {
        let trouble = |error: HostError| Trouble::new(error.kind(), error.to_string());
        let ask = self.ask.take();
        let told = self.board.take();
        // Where the node is gone, so is this.
        let told = told.ok_or_else(|| {
            Trouble::new(TroubleKind::Gone, "the node's agent, which reads it, did not answer")
        })?;
        self.tree.fill(told.told?);
        let pid = self.tree.find_pid().map_err(|error| match error {
            HostError::Missing { .. } => Trouble::new(
                TroubleKind::Unsupported,
                "the node sees no /proc/self/stat: no /proc is mounted where it runs",
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
            None => {
                HostSource::new(self.tree.clone(), pid, Announce::Elsewhere).map_err(trouble)?.elsewhere()
            }
        };
        let ask = ask.unwrap_or(Ask { seq: 0, t: 0, detail: false });
        let detail = ask.detail || self.is_learning || !is_known;
        let kept = (out.sample.readings.len(), out.sample.facts.len(), out.sample.gaps.len());
        let clock = Then(told.span.end);
        let read = source
            .request(Ask { detail, ..ask }, &clock)
            .and_then(|()| source.collect(told.span.end, &clock, out));
        let (mut asked, missed) = self.tree.asked();
        if !self.allows_rollup(&mut source, told.span.end.saturating_sub(told.span.begin)) {
            asked.retain(|ask| !is_rollup(ask));
        }
        if missed || read.is_ok() {
            self.learn(detail, asked, missed);
        }
        if missed {
            out.sample.readings.truncate(kept.0);
            out.sample.facts.truncate(kept.1);
            out.sample.gaps.truncate(kept.2);
            let why = "which files tell of the node's control groups has just been found out; they come with the next sample";
            return Err(Trouble::new(TroubleKind::TimedOut, why));
        }
        self.source = Some(source);
        // The source knows no other time than that of the reading.
        read.map(|_| told.span)
    }
}

/// What is wanted before it is known which control groups there are.
fn at_first() -> BTreeSet<FileAsk> {
    let files = FILES.iter().filter(|path| **path != ROLLUP).map(|path| read(path));
    let others = [
        FileAsk::Link(NAMESPACE.to_owned()),
        FileAsk::Count(OPEN_FILES.to_owned()),
        FileAsk::Threads { all: true },
    ];
    files.chain(others).collect()
}

fn is_rollup(ask: &FileAsk) -> bool {
    matches!(ask, FileAsk::Read { path, .. } if path == ROLLUP)
}

impl Source for RemoteHost {
    fn name(&self) -> &'static str {
        "host"
    }

    fn request(&mut self, ask: Ask, _clock: &dyn Clock) -> Result<(), Trouble> {
        self.ask = Some(ask);
        Ok(())
    }

    fn collect(
        &mut self,
        _deadline: Nanos,
        _clock: &dyn Clock,
        out: &mut SampleBuilder<'_>,
    ) -> Result<Span, Trouble> {
        self.read(out)
    }

    fn comes_with_vm(&self) -> bool {
        true
    }
}

/// The instant at which the files were read, for a source that is handed them later. It announces no life of the VM,
/// and so asks for no wall clock.
struct Then(Nanos);

impl Clock for Then {
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
