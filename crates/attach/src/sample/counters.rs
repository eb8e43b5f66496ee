//! Decodes counters and gauges of the whole VM, its threads and its run queues.

use beamtune_model::series::PART_SEPARATOR;
use beamtune_model::{SampleBuilder, metrics, units};

use super::{MAX_ENTITIES, VmFacts, list, number, required, rows, text};
use crate::etf::{Term, TermError};

/// Adds microstate accounting: one row of counters per thread, in the order of `states`.
pub(super) fn msacc(value: Term<'_>, vm: VmFacts, out: &mut SampleBuilder<'_>) -> Result<(), TermError> {
    let states: Vec<&str> = list(value, "states")?.map(Term::as_atom).collect::<Result<_, _>>()?;
    for thread in list(value, "threads")? {
        let [kind, id, counters] = thread.tuple_of()?;
        let entity = format!("{}/{}", kind.as_atom()?, id.as_i64()?);
        for (state, counter) in states.iter().zip(counters.list()?) {
            let time = units::round_to_microseconds(counter.as_i64()?, vm.perf_counter_hz);
            out.family(&metrics::MSACC, &entity, state, time);
        }
    }
    Ok(())
}

/// Adds rows `{Id, Active, Total}`: normal schedulers first, then dirty CPU schedulers, then dirty I/O schedulers.
pub(super) fn scheduler_wall_time(
    value: Term<'_>,
    vm: VmFacts,
    out: &mut SampleBuilder<'_>,
) -> Result<(), TermError> {
    for row in list(value, "rows")? {
        let [id, active, total] = row.tuple_of()?;
        let id = id.as_i64()?;
        let dirty = id.saturating_sub(vm.schedulers);
        let entity = if dirty <= 0 {
            format!("scheduler/{id}")
        } else if dirty <= vm.dirty_cpu_schedulers {
            format!("dirty_cpu_scheduler/{dirty}")
        } else {
            format!("dirty_io_scheduler/{}", dirty.saturating_sub(vm.dirty_cpu_schedulers))
        };
        out.metric(&metrics::SCHEDULER_ACTIVE, &entity, active.as_i64()?);
        out.metric(&metrics::SCHEDULER_TOTAL, &entity, total.as_i64()?);
    }
    Ok(())
}

/// Adds the length of each normal run queue, then those of the dirty CPU and the dirty I/O run queue.
pub(super) fn run_queues(value: Term<'_>, out: &mut SampleBuilder<'_>) -> Result<(), TermError> {
    let lengths: Vec<i64> = list(value, "lengths")?.map(Term::as_i64).collect::<Result<_, _>>()?;
    let normal = lengths.len().saturating_sub(2);
    for (index, &length) in lengths.iter().enumerate() {
        let entity = match index.checked_sub(normal) {
            None => format!("scheduler/{}", index + 1),
            Some(0) => "dirty_cpu".to_owned(),
            Some(_) => "dirty_io".to_owned(),
        };
        out.metric(&metrics::RUN_QUEUE, &entity, length);
    }
    let active: Vec<i64> = list(value, "active")?.map(Term::as_i64).collect::<Result<_, _>>()?;
    let tasks = active.iter().take(normal).fold(0i64, |sum, &tasks| sum.saturating_add(tasks));
    out.metric(&metrics::ACTIVE_TASKS, "", tasks);
    Ok(())
}

/// Adds counters of the whole VM.
pub(super) fn statistics(value: Term<'_>, out: &mut SampleBuilder<'_>) -> Result<(), TermError> {
    for (metric, key) in [
        (&metrics::REDUCTIONS, "reductions"),
        (&metrics::CONTEXT_SWITCHES, "context_switches"),
        (&metrics::GARBAGE_COLLECTIONS, "gc_count"),
        (&metrics::GC_WORDS_RECLAIMED, "gc_reclaimed_words"),
        (&metrics::IO_INPUT, "io_in_bytes"),
        (&metrics::IO_OUTPUT, "io_out_bytes"),
    ] {
        out.metric(metric, "", required(value, key)?);
    }
    Ok(())
}

/// Adds the sizes that `erlang:memory/0` returns.
pub(super) fn memory(value: Term<'_>, out: &mut SampleBuilder<'_>) -> Result<(), TermError> {
    for (kind, bytes) in value.map()?.take(MAX_ENTITIES) {
        out.family(&metrics::MEMORY, "", kind.as_atom()?, bytes.as_i64()?);
    }
    Ok(())
}

/// Adds the numbers of processes, ports, atoms and tables, and counters of Mnesia.
pub(super) fn counts(value: Term<'_>, out: &mut SampleBuilder<'_>) -> Result<(), TermError> {
    for (metric, key) in [
        (&metrics::PROCESS_COUNT, "processes"),
        (&metrics::PORT_COUNT, "ports"),
        (&metrics::ATOM_COUNT, "atoms"),
        (&metrics::ETS_COUNT, "ets"),
    ] {
        out.metric(metric, "", required(value, key)?);
    }
    // Absent if the process table is nearly full.
    if let Some(spawned) = number(value, "spawned")? {
        out.metric(&metrics::SPAWNED, "", spawned);
    }
    if let Some(mnesia) = value.get("mnesia")? {
        out.metric(&metrics::MNESIA_COMMITS, "", required(mnesia, "commits")?);
        out.metric(&metrics::MNESIA_RESTARTS, "", required(mnesia, "restarts")?);
        out.metric(&metrics::MNESIA_FAILURES, "", required(mnesia, "failures")?);
        for (metric, key) in [
            (&metrics::MNESIA_LOG_WRITES, "log_writes"),
            (&metrics::MNESIA_LOG_DUMPED, "log_dumped"),
            (&metrics::MNESIA_LOG_THRESHOLD, "log_threshold"),
        ] {
            if let Some(count) = number(mnesia, key)? {
                out.metric(metric, "", count);
            }
        }
    }
    Ok(())
}

/// Adds active traces by tracer.
pub(super) fn traces(value: Term<'_>, out: &mut SampleBuilder<'_>) -> Result<(), TermError> {
    out.metric(&metrics::TRACE_SAMPLED, "", required(value, "sampled")?);
    for row in rows(value, "rows")? {
        let tracer = text(row, "tracer")?.unwrap_or_default();
        let session = text(row, "session")?.unwrap_or_default();
        let entity = format!("{tracer}{PART_SEPARATOR}{session}");
        out.metric(&metrics::TRACED, &entity, required(row, "traced")?);
        out.metric(&metrics::TRACE_NEW, &entity, row.field("new")?.as_bool()?.into());
        for flag in rows(row, "flags")? {
            out.family(&metrics::TRACE_FLAGS, &entity, flag.as_atom()?, 1);
        }
    }
    Ok(())
}

/// Adds `{Kind, Fallback, PollThreads, SetSize, ActiveFds, PendingUpdates, Memory}` of each poll set.
pub(super) fn check_io(value: Term<'_>, out: &mut SampleBuilder<'_>) -> Result<(), TermError> {
    for (index, set) in list(value, "pollsets")?.enumerate() {
        let [kind, _, _, fds, _, _, _] = set.tuple_of()?;
        let entity = index.to_string();
        let kernel_poll = matches!(kind.as_str()?, "epoll" | "kqueue");
        out.metric(&metrics::POLLSET_KERNEL_POLL, &entity, kernel_poll.into());
        out.metric(&metrics::POLLSET_FDS, &entity, fds.as_i64()?);
    }
    Ok(())
}
