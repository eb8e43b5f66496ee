//! The threads of a VM: identifies schedulers and other threads of the VM, and reads the kernel's counters for each.
//!
//! # Names
//!
//! The VM names its threads; the kernel truncates names to 15 bytes. Sources: erts/emulator/beam/erl_process.c
//! (`erts_start_schedulers`) and erl_async.c of OTP 23, 25 and 27, and running VMs of OTP 23, 25, 27 and 29.
//!
//! | thread | OTP 23, 25 | OTP 27, 29 | entity |
//! |---|---|---|---|
//! | normal scheduler | `1_scheduler` | `erts_sched_1` | `scheduler/1` |
//! | dirty CPU scheduler | `1_dirty_cpu_sch` (truncated) | `erts_dcpus_1` | `dirty_cpu_scheduler/1` |
//! | dirty I/O scheduler | `1_dirty_io_sche` (truncated) | `erts_dios_1` | `dirty_io_scheduler/1` |
//! | auxiliary work | `aux` (23), `1_aux` | `erts_aux_1` | `aux/1` |
//! | poll thread | `0_poller` | `erts_poll_0` | `poll/0` |
//! | async thread | `async_1` | `erts_async_1` | `async/0` |
//!
//! The entities are those of `statistics(microstate_accounting)`, with the same numbers: the VM uses the number in a thread's name there,
//! too. Async threads are an exception: names count from 1, but msacc counts from 0, in the order in which the threads were started
//! (erl_async.c, `async_thread_init`). So `async/0` is nearly always `async_1`, but this is not guaranteed. There is one `aux` thread, plus
//! one for each dirty allocator instance (`+Mdai`).
//!
//! All other threads (signals, trace messages, those of NIFs and drivers) are `other/NAME/TID`.
//!
//! # Cost
//!
//! Three files per thread are opened, read and closed every second: 1.6 ms of CPU time for 144 threads, 0.16 % of a core. If the files are
//! kept open and read with pread, it is 0.75 ms. This is not worth 432 descriptors, since the usual limit is 1,024. Half of the cost is
//! `status`, the only file that distinguishes voluntary from involuntary context switches.

use std::collections::{HashMap, HashSet};

use beamtune_model::{Nanos, SampleBuilder, metrics};

use crate::error::HostError;
use crate::process::{self, SMALL_FILE_BYTES, Stat};
use crate::text;
use crate::tree::FileTree;

/// Maximum number of threads; a VM with all numbers of threads at their maximum has 4 × 1,024.
pub(crate) const MAX_THREADS: usize = 5_000;

/// Returns the entity of a thread that the VM named, given its short name; `None` for other threads.
pub fn vm_thread(comm: &[u8]) -> Option<String> {
    let comm = std::str::from_utf8(comm).ok()?;
    let (kind, number, from_one) = if let Some(rest) = comm.strip_prefix("erts_") {
        let (name, number) = rest.split_once('_')?;
        let kind = match name {
            "sched" => "scheduler",
            "dcpus" => "dirty_cpu_scheduler",
            "dios" => "dirty_io_scheduler",
            "aux" => "aux",
            "poll" => "poll",
            "async" => "async",
            _ => return None,
        };
        (kind, number, kind != "poll")
    } else if let Some(number) = comm.strip_prefix("async_") {
        ("async", number, true)
    } else if comm == "aux" {
        ("aux", "1", true)
    } else {
        let (number, name) = comm.split_once('_')?;
        // A name of 15 bytes may be truncated.
        let is = |whole: &str, min: &str| {
            name == whole || (comm.len() == 15 && name.starts_with(min) && whole.starts_with(name))
        };
        let kind = match name {
            "scheduler" => "scheduler",
            "aux" => "aux",
            "poller" => "poll",
            _ if is("dirty_cpu_scheduler", "dirty_cpu") => "dirty_cpu_scheduler",
            _ if is("dirty_io_scheduler", "dirty_io") => "dirty_io_scheduler",
            _ => return None,
        };
        (kind, number, kind != "poll")
    };
    // The VM formats numbers without leading zeros, so a name with a leading zero comes from a NIF.
    let id: u32 = number.parse().ok().filter(|id: &u32| id.to_string() == number)?;
    match (kind, from_one) {
        (_, true) if id == 0 => None,
        ("async", _) => Some(format!("async/{}", id - 1)),
        _ => Some(format!("{kind}/{id}")),
    }
}

/// Returns the entity of any other thread. Its name can contain any bytes; those with a meaning in tables or paths are replaced.
fn other_thread(comm: &[u8], tid: u32) -> String {
    let plain = |byte: &u8| {
        let c = char::from(*byte);
        if c.is_ascii_alphanumeric() || "._:+-".contains(c) { c } else { '_' }
    };
    let name: String = comm.iter().take(15).map(plain).collect();
    format!("other/{name}/{tid}")
}

/// Parses `schedstat`: on-CPU time and run-queue delay in nanoseconds, and how often the thread was scheduled.
pub fn schedstat(content: &[u8]) -> Option<(Nanos, Nanos, i64)> {
    let mut numbers = text::fields(content.trim_ascii_end()).map(text::reading);
    let (on_cpu, waiting, times) = (numbers.next()??, numbers.next()??, numbers.next()??);
    numbers.next().is_none().then_some((on_cpu, waiting, times))
}

/// Errors of one pass over all threads.
#[derive(Debug, Default)]
pub struct ThreadTrouble {
    /// The kernel has no scheduler statistics for any thread.
    pub schedstat: Option<HostError>,
    /// Another file was not readable, or there are more threads than the limit.
    pub other: Option<HostError>,
}

/// Reads all threads of a process repeatedly.
#[derive(Debug, Default)]
pub struct ThreadReader {
    known: HashMap<u32, KnownThread>,
    used_entities: HashSet<String>,
    readings: Vec<Reading>,
    content: Vec<u8>,
}

#[derive(Debug)]
struct KnownThread {
    comm: Vec<u8>,
    entity: String,
}

/// The values of one thread in one pass.
#[derive(Debug)]
struct Reading {
    tid: u32,
    user_ticks: i64,
    system_ticks: i64,
    switches: Option<(i64, i64)>,
    schedstat: Option<(Nanos, Nanos, i64)>,
}

impl ThreadReader {
    /// Adds the values of every thread to the sample; `tick_ns` is the duration of a clock tick.
    /// Threads that end during the read are left out.
    pub fn read(
        &mut self,
        tree: &impl FileTree,
        pid: u32,
        tick_ns: Nanos,
        out: &mut SampleBuilder<'_>,
    ) -> Result<ThreadTrouble, HostError> {
        let folder = format!("/proc/{pid}/task");
        let names = tree.list(&folder, MAX_THREADS + 1)?;
        let mut trouble = ThreadTrouble::default();
        self.readings.clear();
        let mut left_out = Vec::new();
        let tids = names.iter().filter_map(|name| u32::try_from(text::number(name.as_bytes())?).ok());
        for tid in tids.take(MAX_THREADS) {
            match self.thread(tree, &format!("{folder}/{tid}"), tid) {
                Ok(reading) => self.readings.push(reading),
                Err(HostError::Missing { .. }) => {}
                // The thread exists, but was not read for this sample.
                Err(HostError::Skipped { .. }) => left_out.push(tid),
                Err(error) => trouble.other = Some(error),
            }
        }
        if names.len() > MAX_THREADS {
            trouble.other = Some(HostError::TooLarge { path: folder.clone(), max: MAX_THREADS });
        }
        // A kernel without scheduler statistics writes zeros (fs/proc/base.c, proc_pid_schedstat), which do not mean that there was no
        // run-queue delay.
        let accounted =
            self.readings.iter().any(|reading| reading.schedstat.is_some_and(|(.., times)| times > 0));
        if !accounted && left_out.is_empty() {
            trouble.schedstat = Some(HostError::Unsupported { path: format!("{folder}/TID/schedstat") });
        }
        for reading in &self.readings {
            let Some(KnownThread { entity, .. }) = self.known.get(&reading.tid) else { continue };
            if let Some((on_cpu, waiting, _)) = reading.schedstat.filter(|_| accounted) {
                out.metric(&metrics::THREAD_CPU, entity, on_cpu);
                out.metric(&metrics::THREAD_WAIT, entity, waiting);
            }
            out.metric(&metrics::THREAD_USER, entity, reading.user_ticks.saturating_mul(tick_ns));
            out.metric(&metrics::THREAD_SYSTEM, entity, reading.system_ticks.saturating_mul(tick_ns));
            if let Some((voluntary, involuntary)) = reading.switches {
                out.metric(&metrics::VOLUNTARY_SWITCHES, entity, voluntary);
                out.metric(&metrics::INVOLUNTARY_SWITCHES, entity, involuntary);
            }
        }
        self.forget_ended(&left_out);
        Ok(trouble)
    }

    /// Returns the ids of the known threads with their kinds, which are the first words of their entities.
    pub fn kinds(&self) -> impl Iterator<Item = (u32, &str)> {
        let kind = |known: &KnownThread| known.entity.find('/').unwrap_or(known.entity.len());
        self.known.iter().map(move |(tid, known)| (*tid, &known.entity[..kind(known)]))
    }

    fn thread(&mut self, tree: &impl FileTree, folder: &str, tid: u32) -> Result<Reading, HostError> {
        let path = format!("{folder}/stat");
        tree.read_start(&path, SMALL_FILE_BYTES, &mut self.content)?;
        let stat = Stat::parse(&self.content).map_err(|garble| HostError::garbled(&path, garble))?;
        let mut reading = Reading {
            tid,
            user_ticks: stat.user_ticks,
            system_ticks: stat.system_ticks,
            switches: None,
            schedstat: None,
        };
        if self.known.get(&tid).is_none_or(|known| known.comm != stat.comm) {
            if let Some(renamed) = self.known.remove(&tid) {
                self.used_entities.remove(&renamed.entity);
            }
            // A second thread with a scheduler's name is not a scheduler.
            let entity = vm_thread(stat.comm)
                .filter(|entity| !self.used_entities.contains(entity))
                .unwrap_or_else(|| other_thread(stat.comm, tid));
            self.used_entities.insert(entity.clone());
            self.known.insert(tid, KnownThread { comm: stat.comm.to_vec(), entity });
        }
        tree.read_start(&format!("{folder}/status"), SMALL_FILE_BYTES, &mut self.content)?;
        reading.switches = process::switches(&self.content);
        match tree.read_start(&format!("{folder}/schedstat"), SMALL_FILE_BYTES, &mut self.content) {
            Ok(()) => reading.schedstat = schedstat(&self.content),
            // The thread has just ended, or the kernel provides this file for no thread.
            Err(HostError::Missing { .. }) => {}
            Err(error) => return Err(error),
        }
        Ok(reading)
    }

    /// Frees the entities of threads that were not found in this pass, so that new threads can use them.
    fn forget_ended(&mut self, left_out: &[u32]) {
        if self.known.len() == self.readings.len() {
            return;
        }
        let read = self.readings.iter().map(|reading| reading.tid);
        let found: HashSet<u32> = read.chain(left_out.iter().copied()).collect();
        let used_entities = &mut self.used_entities;
        self.known.retain(|tid, known| {
            let stays = found.contains(tid);
            if !stays {
                used_entities.remove(&known.entity);
            }
            stays
        });
    }
}

#[cfg(test)]
mod tests;
