//! A whole run in this process: its threads, and what they tell.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

use beamtune_model::load::{LoadResult, LoadSecond};

use crate::LoadError;
use crate::collect::{Collector, Run};
use crate::engine::{self, Share, Spell};
use crate::program::Plan;

/// What a thread tells.
enum Told {
    Spell(usize, Spell),
    End(usize, Result<(), LoadError>),
}

/// Runs a plan in so many threads, until its time is over or `stop` is set. `on_second` is told of each second when all
/// threads are through with it.
///
/// # Errors
/// If a thread cannot be started or the system refuses what it must not; the other threads are stopped then.
pub fn run(
    plan: &Plan,
    threads: usize,
    stop: &AtomicBool,
    mut about: Run,
    on_second: &mut dyn FnMut(&LoadSecond),
) -> Result<LoadResult, LoadError> {
    let mut collector = Collector::new(plan, threads);
    let mut trouble = None;
    thread::scope(|scope| {
        let (tell, told) = mpsc::channel();
        for index in 0..threads {
            let tell = tell.clone();
            let started =
                thread::Builder::new().name(format!("load {index}")).spawn_scoped(scope, move || {
                    let share = Share { index: index as u64, of: threads as u64 };
                    let outcome = engine::run(plan, share, stop, &mut |spell| {
                        // The receiver lives until all senders have gone.
                        let _ = tell.send(Told::Spell(index, spell));
                    });
                    let _ = tell.send(Told::End(index, outcome));
                });
            if let Err(source) = started {
                stop.store(true, Ordering::Relaxed);
                trouble = Some(LoadError::System { what: "a thread cannot be started", source });
                break;
            }
        }
        drop(tell);
        for told in told {
            let seconds = match told {
                Told::Spell(thread, spell) => collector.add(thread, spell),
                Told::End(thread, outcome) => {
                    if let Err(error) = outcome {
                        stop.store(true, Ordering::Relaxed);
                        trouble.get_or_insert(error);
                    }
                    collector.end(thread)
                }
            };
            seconds.iter().for_each(&mut *on_second);
        }
    });
    match trouble {
        Some(error) => Err(error),
        None => {
            about.is_interrupted |= stop.load(Ordering::Relaxed);
            about.processes = 1;
            about.threads = threads as u32;
            Ok(collector.finish(plan, &about))
        }
    }
}
