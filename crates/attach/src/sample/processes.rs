//! Decodes the scan of all processes, details of the top processes, spawns and exits.

use std::collections::HashSet;

use beamtune_model::units::Nanos;
use beamtune_model::{
    ExitRow, ProcessRow, ProcessTick, Rank, RunSampleRow, SampleBuilder, SpawnRow, metrics,
};

use super::{VmFacts, amount, bounded_text, call_stacks, event, function, number, required, rows, text};
use crate::etf::{Term, TermError};

/// Maximum number of skipped processes reported per incarnation.
const MAX_SKIPPED: usize = 1_000;

/// Returns the time that `procs` spent reading between samples. It is not included in the item's own time.
pub(super) fn step_ns(value: Term<'_>) -> i64 {
    let step_us = value.get("step_us").ok().flatten().and_then(|step_us| step_us.as_i64().ok());
    step_us.unwrap_or(0).max(0).saturating_mul(1_000)
}

/// Running totals and sums over the parts of a round.
#[derive(Debug, Default)]
pub(super) struct Scans {
    reductions: i64,
    spawned: i64,
    exited: i64,
    /// Sums over the parts of the round so far.
    queued: i64,
    longest: i64,
    nonempty: i64,
    thinned: bool,
    skipped: HashSet<String>,
}

impl Scans {
    /// Adds reductions and queue lengths of the processes in this part of the scan.
    pub fn procs(&mut self, value: Term<'_>, t: Nanos, out: &mut SampleBuilder<'_>) -> Result<(), TermError> {
        let (total, scanned) = (required(value, "total")?, required(value, "scanned")?);
        out.metric(&metrics::SCAN_PROCESSES, "", scanned);
        if total > 0 {
            let coverage = (scanned.saturating_mul(1_000) / total).min(1_000);
            out.metric(&metrics::SCAN_COVERAGE, "", coverage);
        }
        // 0 while the list of processes is still being built.
        if scanned > 0 {
            self.thinning(total, scanned, t, out);
        }
        match number(value, "delta_reductions")? {
            Some(delta) => {
                self.reductions = self.reductions.saturating_add(delta.max(0));
                self.spawned = self.spawned.saturating_add(required(value, "new")?.max(0));
                self.exited = self.exited.saturating_add(required(value, "gone")?.max(0));
            }
            // A collector's first round has no earlier values to compare with. The totals are reset, so that the time before it
            // is not mistaken for a time without activity.
            None => (self.reductions, self.spawned, self.exited) = (0, 0, 0),
        }
        out.metric(&metrics::SCAN_REDUCTIONS, "", self.reductions);
        out.metric(&metrics::SCAN_SPAWNED, "", self.spawned);
        out.metric(&metrics::SCAN_EXITED, "", self.exited);
        if number(value, "part")? == Some(1) {
            (self.queued, self.longest, self.nonempty) = (0, 0, 0);
        }
        self.queued = self.queued.saturating_add(required(value, "queue_sum")?);
        self.longest = self.longest.max(required(value, "queue_max")?);
        self.nonempty = self.nonempty.saturating_add(required(value, "queue_nonempty")?);
        if value.field("last")?.as_bool()? {
            out.metric(&metrics::SCAN_QUEUED, "", self.queued);
            out.metric(&metrics::SCAN_LONGEST_QUEUE, "", self.longest);
            out.metric(&metrics::SCAN_NONEMPTY_QUEUES, "", self.nonempty);
        }
        for row in rows(value, "top_reductions")? {
            let [pid, reductions, queue, status] = row.tuple_of()?;
            out.sample.busiest.push(tick(pid, reductions.as_i64()?, queue.as_i64()?, status)?);
        }
        for row in rows(value, "top_queues")? {
            let [pid, queue, reductions, status] = row.tuple_of()?;
            // `undefined` in the first round.
            let reductions = reductions.as_i64().unwrap_or(0);
            let tick = tick(pid, reductions, queue.as_i64()?, status)?;
            if !out.sample.busiest.iter().any(|other| other.pid == tick.pid) {
                out.sample.busiest.push(tick);
            }
        }
        for row in rows(value, "skipped")? {
            let [pid, _] = row.tuple_of()?;
            let pid = bounded_text(pid)?.unwrap_or_default();
            if self.skipped.len() < MAX_SKIPPED && self.skipped.insert(pid.clone()) {
                let detail = "not read for a while, because reading it hung".to_owned();
                out.sample.events.push(event(t, "process_skipped", &pid, detail));
            }
        }
        Ok(())
    }

    /// Adds an event when scans begin to be spread over several samples, and when each sample covers all processes again.
    fn thinning(&mut self, total: i64, scanned: i64, t: Nanos, out: &mut SampleBuilder<'_>) {
        // Allows a difference of 10 %, since processes start and exit during the scan.
        let thinned = scanned < total - total / 10;
        if thinned != self.thinned {
            self.thinned = thinned;
            let detail = if thinned {
                format!("{scanned} of {total} processes are read in a sample, the others in the next ones")
            } else {
                format!("all {total} processes are read in each sample")
            };
            out.sample.events.push(event(t, "agent_thinned", "processes", detail));
        }
    }
}

fn tick(pid: Term<'_>, reductions: i64, queue: i64, status: Term<'_>) -> Result<ProcessTick, TermError> {
    Ok(ProcessTick {
        pid: bounded_text(pid)?.unwrap_or_default().into(),
        reductions,
        queue,
        runnable: match status.as_atom()? {
            "running" | "runnable" | "garbage_collecting" => Some(true),
            "waiting" | "suspended" | "exiting" => Some(false),
            _ => None,
        },
    })
}

/// Adds details of the top processes.
pub(super) fn details(
    value: Term<'_>,
    t: Nanos,
    vm: VmFacts,
    out: &mut SampleBuilder<'_>,
) -> Result<(), TermError> {
    if let Some(bytes) = number(value, "binary_vheap_bytes")? {
        out.metric(&metrics::SCAN_BINARIES, "", bytes);
    }
    for row in rows(value, "at_work")? {
        let [name, call, how, stack, looks] = row.tuple_of()?;
        let name = bounded_text(name)?.filter(|name| !name.is_empty());
        out.sample.run_samples.push(RunSampleRow {
            t,
            stack: call_stacks::stack(stack)?,
            samples: amount(looks)?,
            kind: name.map_or_else(|| function(call), |name| Ok(Some(name)))?,
            is_waiting: how.as_atom()? == "ready",
            is_collecting: how.as_atom()? == "collects",
            ..RunSampleRow::default()
        });
    }
    for row in rows(value, "rows")? {
        let ranks = rows(row, "by")?.map(|rank| Ok(Rank::from_text(rank.as_atom()?)));
        let ranks = ranks.collect::<Result<Vec<_>, TermError>>()?;
        let call = |key: &str| row.get(key)?.map(function).transpose().map(Option::flatten);
        let heap_bytes = required(row, "heap_bytes")?;
        let pid = text(row, "pid")?.unwrap_or_default();
        for (places, waits) in [("ran", false), ("stood", true)] {
            for place in rows(row, places)? {
                let [stack, looks] = place.tuple_of()?;
                let (stack, looks) = (call_stacks::stack(stack)?, amount(looks)?);
                out.sample.run_samples.push(RunSampleRow {
                    t,
                    pid: pid.clone(),
                    stack,
                    samples: looks,
                    is_waiting: waits,
                    ..RunSampleRow::default()
                });
            }
        }
        out.sample.processes.push(ProcessRow {
            t,
            pid,
            ranks: ranks.into_iter().flatten().collect(),
            name: text(row, "name")?,
            label: text(row, "label")?,
            initial_call: call("initial_call")?,
            current_function: call("current_function")?,
            application: text(row, "application")?,
            parent: text(row, "parent")?.or(text(row, "parent_name")?),
            status: text(row, "status")?,
            reductions: required(row, "reductions")?,
            queue: required(row, "message_queue_len")?,
            message_queue_data: text(row, "message_queue_data")?,
            memory_bytes: heap_bytes,
            total_heap_words: heap_bytes.checked_div(vm.word_bytes),
            binary_bytes: number(row, "binary_vheap_bytes")?,
            minor_gcs: number(row, "minor_gcs")?,
            fullsweep_after: number(row, "fullsweep_after")?,
            min_heap_words: number(row, "min_heap_size_words")?,
            total_bytes: number(row, "memory_bytes")?,
            fragment_bytes: number(row, "fragment_bytes")?,
            stack: row.get("stack")?.map(call_stacks::stack).transpose()?.unwrap_or_default(),
            priority: text(row, "priority")?,
        });
    }
    Ok(())
}

/// Adds rows `{InitialCall, ParentName, ParentCall, Count}`: the parents of new processes that the scans found.
pub(super) fn spawns(value: Term<'_>, t: Nanos, out: &mut SampleBuilder<'_>) -> Result<(), TermError> {
    let sampled = required(value, "sampled")?;
    for row in rows(value, "calls")? {
        let [call, parent_name, parent_call, count] = row.tuple_of()?;
        out.sample.spawns.push(SpawnRow {
            t,
            what: "process".to_owned(),
            kind: function(call)?.unwrap_or_default(),
            creator: bounded_text(parent_name)?.or(function(parent_call)?),
            count: count.as_i64()?,
            sample_size: sampled,
            bytes: None,
        });
    }
    // Absent in older agents.
    if value.get("again")?.is_some() {
        call_stacks::resampled(value, t, out)?;
    }
    if value.get("given")?.is_some() {
        for row in rows(value, "given")? {
            let [call, giver, count, bytes] = row.tuple_of()?;
            out.sample.spawns.push(SpawnRow {
                t,
                what: "given".to_owned(),
                kind: function(call)?.unwrap_or_default(),
                creator: bounded_text(giver)?,
                count: count.as_i64()?,
                sample_size: sampled,
                bytes: Some(amount(bytes)?),
            });
        }
    }
    Ok(())
}

/// Maximum number of stack frames read from one exit reason. The agent sends at most three.
const MAX_FRAMES: usize = 16;

/// Adds exit reasons of processes.
pub(super) fn exits(value: Term<'_>, t: Nanos, out: &mut SampleBuilder<'_>) -> Result<(), TermError> {
    out.metric(&metrics::EXIT_MONITORED, "", required(value, "monitored")?);
    out.metric(&metrics::EXIT_SUPERVISORS, "", required(value, "supervisors")?);
    for row in rows(value, "rows")? {
        let call = |key: &str| row.get(key)?.map(function).transpose().map(Option::flatten);
        let frames = row.get("stack")?.map(|stack| stack.list()).transpose()?.into_iter().flatten();
        let stack = frames.take(MAX_FRAMES).map(|frame| {
            let [at, line] = frame.tuple_of()?;
            Ok((function(at)?.unwrap_or_default(), amount(line)?))
        });
        out.sample.exits.push(ExitRow {
            t,
            parent: text(row, "parent")?,
            parent_name: text(row, "parent_name")?,
            parent_call: call("parent_call")?,
            name: text(row, "name")?,
            call: call("call")?,
            reason: text(row, "reason")?,
            stack: stack.collect::<Result<_, TermError>>()?,
            callee: text(row, "to")?,
            count: amount(row.field("count")?)?,
            heap_limit_words: amount(row.field("heap_limit_words")?)?,
        });
    }
    Ok(())
}
