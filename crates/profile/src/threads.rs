//! Reads the threads of a VM: their kinds, and their counters in the kernel. This costs the VM nothing.
//!
//! Three small files are read for each thread, as the recorder does every second; [`beamtune_host::threads`] explains the thread names.

use std::collections::HashMap;

use beamtune_host::HostError;
use beamtune_host::process::{self, Stat};
use beamtune_host::threads::{schedstat, vm_thread};
use beamtune_host::tree::FileTree;
use beamtune_model::window::{self, Point};
use beamtune_model::{Clock, Nanos};

/// Maximum number of threads; a VM with all limits raised has four times 1,024.
const MAX_THREADS: usize = 5_000;
/// Maximum size of a file; real ones stay below 2 kB.
const MAX_FILE_BYTES: usize = 64 * 1024;
/// The kind of threads that the VM has not named.
pub const OTHER: &str = "other";

/// A thread, with its counters since its start. A counter is `None` if the kernel does not provide it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thread {
    /// Thread id of the kernel.
    pub tid: u32,
    /// `scheduler`, `dirty_cpu_scheduler`, `dirty_io_scheduler`, `aux`, `poll`, `async`, or [`OTHER`].
    pub kind: String,
    /// CPU time.
    pub ran: Option<Nanos>,
    /// Run-queue delay: time runnable without a CPU.
    pub queued: Option<Nanos>,
    /// Voluntary context switches: the thread slept.
    pub sleeps: Option<i64>,
    /// Involuntary context switches: the thread was preempted, or yielded (`sched_yield`) to another one.
    pub preempted: Option<i64>,
}

/// All threads at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadSnapshot {
    /// Time on the given clock.
    pub t: Nanos,
    /// The threads, in the kernel's order.
    pub threads: Vec<Thread>,
}

/// Differences between two readings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Time between the readings.
    pub length: Nanos,
    /// The threads that both readings contain, with the differences of their counters.
    pub threads: Vec<Thread>,
}

/// Reads all threads of a process, with the time; threads that end in the meantime are omitted.
pub fn snapshot(tree: &impl FileTree, pid: u32, clock: &dyn Clock) -> Result<ThreadSnapshot, HostError> {
    let t = clock.now();
    Ok(ThreadSnapshot { t, threads: list(tree, pid)? })
}

/// Reads all threads of a process; threads that end in the meantime are omitted.
pub fn list(tree: &impl FileTree, pid: u32) -> Result<Vec<Thread>, HostError> {
    let folder = format!("/proc/{pid}/task");
    let names = tree.list(&folder, MAX_THREADS)?;
    let tids = names.iter().filter_map(|name| name.parse::<u32>().ok());
    let mut threads: Vec<Thread> =
        tids.filter_map(|tid| thread(tree, &format!("{folder}/{tid}"), tid)).collect();
    // A kernel without scheduler statistics writes zeros.
    if threads.iter().all(|thread| thread.ran.unwrap_or(0) == 0) {
        for thread in &mut threads {
            (thread.ran, thread.queued) = (None, None);
        }
    }
    Ok(threads)
}

fn thread(tree: &impl FileTree, folder: &str, tid: u32) -> Option<Thread> {
    let read = |name: &str| tree.read(&format!("{folder}/{name}"), MAX_FILE_BYTES);
    let content = read("stat").ok()?;
    let entity = vm_thread(Stat::parse(&content).ok()?.comm);
    let kind = entity.as_deref().and_then(|entity| entity.split('/').next()).unwrap_or(OTHER).to_owned();
    let switches = process::switches(&read("status").ok()?);
    let times = read("schedstat").ok().and_then(|content| schedstat(&content));
    Some(Thread {
        tid,
        kind,
        ran: times.map(|(ran, ..)| ran),
        queued: times.map(|(_, queued, _)| queued),
        sleeps: switches.map(|(voluntary, _)| voluntary),
        preempted: switches.map(|(_, involuntary)| involuntary),
    })
}

/// Calculates the differences between two readings.
pub fn changes(before: &ThreadSnapshot, after: &ThreadSnapshot) -> Change {
    let earlier: HashMap<(u32, &str), &Thread> =
        before.threads.iter().map(|thread| ((thread.tid, thread.kind.as_str()), thread)).collect();
    let grown = |from: Option<i64>, to: Option<i64>| {
        let point = |t, value| Point { t, incarnation: 0, value };
        window::step(point(before.t, from?), point(after.t, to?)).ok().map(|step| step.delta)
    };
    let pair = |later: &Thread| {
        let earlier = earlier.get(&(later.tid, later.kind.as_str()))?;
        Some(Thread {
            tid: later.tid,
            kind: later.kind.clone(),
            ran: grown(earlier.ran, later.ran),
            queued: grown(earlier.queued, later.queued),
            sleeps: grown(earlier.sleeps, later.sleeps),
            preempted: grown(earlier.preempted, later.preempted),
        })
    };
    Change {
        length: after.t.saturating_sub(before.t).max(0),
        threads: after.threads.iter().filter_map(pair).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use beamtune_host::LocalTree;

    use super::*;

    fn host(threads: &[(u32, &str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (tid, comm, schedstat) in threads {
            let folder = root.path().join(format!("proc/7/task/{tid}"));
            fs::create_dir_all(&folder).unwrap();
            let stat = format!("{tid} ({comm}) S 1 7 7 0 -1 64 1 0 0 0 5 6 0 0 20 0 3 0 99 100 25 0\n");
            fs::write(folder.join("stat"), stat).unwrap();
            let status = "Name:\tx\nvoluntary_ctxt_switches:\t40\nnonvoluntary_ctxt_switches:\t3\n";
            fs::write(folder.join("status"), status).unwrap();
            fs::write(folder.join("schedstat"), schedstat).unwrap();
        }
        root
    }

    fn thread(tid: u32, kind: &str, ran: Option<i64>, queued: Option<i64>) -> Thread {
        Thread { tid, kind: kind.to_owned(), ran, queued, sleeps: Some(40), preempted: Some(3) }
    }

    /// A clock that does not advance.
    struct Stopped;

    impl Clock for Stopped {
        fn now(&self) -> Nanos {
            5
        }

        fn wall(&self) -> i64 {
            0
        }

        fn sleep_until(&self, _t: Nanos) {}
    }

    #[test]
    fn threads_have_kinds_and_times() {
        let root = host(&[
            (7, "beam.smp", "10 1 2\n"),
            (8, "erts_sched_1", "1000 200 5\n"),
            (9, "1_dirty_cpu_sch", "1 2 3\n"),
        ]);
        let mut seen = snapshot(&LocalTree::at(root.path()), 7, &Stopped).unwrap();
        seen.threads.sort_by_key(|thread| thread.tid);
        let expect = vec![
            thread(7, OTHER, Some(10), Some(1)),
            thread(8, "scheduler", Some(1000), Some(200)),
            thread(9, "dirty_cpu_scheduler", Some(1), Some(2)),
        ];
        assert_eq!(seen, ThreadSnapshot { t: 5, threads: expect });
    }

    #[test]
    fn times_are_none_without_scheduler_statistics() {
        let root = host(&[(7, "beam.smp", "0 0 0\n"), (8, "erts_sched_1", "0 0 0\n")]);
        let seen = snapshot(&LocalTree::at(root.path()), 7, &Stopped).unwrap().threads;
        assert!(seen.iter().all(|thread| thread.ran.is_none() && thread.queued.is_none()), "{seen:?}");
    }

    #[test]
    fn a_change_has_the_threads_present_in_both_readings() {
        let before = vec![thread(1, "scheduler", Some(10), Some(5)), thread(2, "aux", Some(1), None)];
        let mut last = thread(1, "scheduler", Some(110), Some(6));
        last.sleeps = Some(140);
        let after = vec![last, thread(2, "aux", Some(3), Some(1)), thread(3, "poll", Some(1), Some(1))];
        let expect = vec![
            Thread { sleeps: Some(100), preempted: Some(0), ..thread(1, "scheduler", Some(100), Some(1)) },
            Thread { sleeps: Some(0), preempted: Some(0), ..thread(2, "aux", Some(2), None) },
        ];
        let change =
            changes(&ThreadSnapshot { t: 5, threads: before }, &ThreadSnapshot { t: 25, threads: after });
        assert_eq!(change, Change { length: 20, threads: expect });
    }
}
