//! CPU time that the VM used, by what it was used for.

use beamtune_model::{CpuShare, CpuUse, Group, Missing, Period, metrics};

use crate::signals::busy_wait::{FLAGS, Spinning};
use crate::view::{self, States, kind};

/// Microstates, with what the CPU time in each is used for. All other states are the VM's own housekeeping. `sleep` uses no CPU, and
/// `busy_wait` is derived from the threads' CPU times.
const STATES: &[(&str, CpuUse)] = &[
    ("emulator", CpuUse::Code),
    ("bif", CpuUse::Code),
    ("nif", CpuUse::Code),
    ("ets", CpuUse::Code),
    ("send", CpuUse::Code),
    ("alloc", CpuUse::Code),
    ("gc", CpuUse::GarbageCollection),
    ("gc_full", CpuUse::GarbageCollection),
    ("port", CpuUse::Ports),
    ("check_io", CpuUse::Polling),
];

/// Returns the shares, unordered; each use occurs at most once.
pub fn used(period: &Period) -> Result<Vec<CpuShare>, Missing> {
    let mut shares = Shares::default();
    let mut known = 0.0;
    for (flag, of) in FLAGS {
        let spinning = Spinning::of(period, flag, of)?;
        let threads = match of {
            kind::DIRTY_CPU => "dirty CPU schedulers",
            kind::DIRTY_IO => "dirty I/O schedulers",
            _ => "schedulers",
        };
        known += spinning.cpu;
        shares.add(CpuUse::BusyWaiting, spinning.spun, threads);
        shares.add(CpuUse::Switching, (spinning.cpu - spinning.worked - spinning.spun).max(0.0), threads);
        let work = view::work(period, of);
        // Only normal schedulers do several kinds of work, which microstate accounting can separate.
        match of {
            kind::SCHEDULER => shares.by_states(&work?, spinning.worked),
            _ => {
                let what = if of == kind::DIRTY_CPU { CpuUse::DirtyCpu } else { CpuUse::DirtyIo };
                let collected = work.map_or(0.0, |work| work.gc()).min(spinning.worked);
                shares.add(CpuUse::GarbageCollection, collected, threads);
                shares.add(what, spinning.worked - collected, "neither idle nor collecting");
            }
        }
    }
    let polling = view::thread_cores(period, &metrics::THREAD_CPU, &["poll"]).unwrap_or(0.0);
    shares.add(CpuUse::Polling, polling, "threads that do nothing else");
    // With a small budget, threads are read in turns, and the rest of the process's CPU is not known per thread.
    let others = others(period).max(view::process_cores(period)? - known - polling);
    shares.add(CpuUse::OtherThreads, others, "CPU of other threads of the VM");
    Ok(shares.into_shares())
}

/// CPU of threads that are neither schedulers nor poll threads, in cores.
fn others(period: &Period) -> f64 {
    let is_other = |entity: &&str| {
        let of = entity.split('/').next().unwrap_or(entity);
        of != "poll" && !kind::SCHEDULERS.contains(&of)
    };
    let entities = period.entities(Group::HostThread);
    entities
        .into_iter()
        .filter(is_other)
        .filter_map(|entity| period.cores(&metrics::THREAD_CPU, entity).ok())
        .sum()
}

/// Parts below this share are not reported.
const SMALL: f64 = 0.05;

/// Uses, each with its parts: microstates or kinds of threads.
#[derive(Default)]
struct Shares {
    list: Vec<(CpuUse, Vec<(String, f64)>)>,
}

impl Shares {
    fn add(&mut self, what: CpuUse, cores: f64, part: &str) {
        let cores = cores.max(0.0);
        match self.list.iter_mut().find(|(known, _)| *known == what) {
            Some((_, parts)) => parts.push((part.to_owned(), cores)),
            None => self.list.push((what, vec![(part.to_owned(), cores)])),
        }
    }

    /// Lists the parts of each use as text, largest first.
    fn into_shares(self) -> Vec<CpuShare> {
        let share = |(what, mut parts): (CpuUse, Vec<(String, f64)>)| {
            let cores: f64 = parts.iter().map(|(_, cores)| cores).sum();
            parts.retain(|(_, part)| *part > 0.0 && *part >= SMALL * cores);
            parts.sort_by(|a, b| b.1.total_cmp(&a.1));
            let names: Vec<String> = match &parts[..] {
                [(only, _)] => vec![only.clone()],
                _ => parts.iter().map(|(name, part)| format!("{name} {part:.2}")).collect(),
            };
            CpuShare { what, cores, how: names.join(", ") }
        };
        self.list.into_iter().map(share).collect()
    }

    /// Divides the work of normal schedulers by microstate.
    fn by_states(&mut self, work: &States, worked: f64) {
        if work.cores.is_empty() {
            return self.add(CpuUse::Code, worked, "schedulers");
        }
        for (name, cores) in &work.cores {
            let what = STATES
                .iter()
                .find(|(state, _)| state == name)
                .map_or(CpuUse::Housekeeping, |(_, what)| *what);
            self.add(what, *cores, name);
        }
    }
}
