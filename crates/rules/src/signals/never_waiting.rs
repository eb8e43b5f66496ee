//! Processes that run all the time, never wait and receive no messages: an endless loop, or a batch job.

use beamtune_model::{Period, ProcessActivity};

use crate::signals::stack;
use crate::view;

/// Minimum share of all reductions that they must do together (judgement: more than all others).
const MOST: f64 = 0.5;

/// Returns the processes that ran or were runnable, had no messages, and were within the given code in each sample.
pub(crate) fn never_waiting(
    period: &Period,
    is_within: impl Fn(&ProcessActivity, &[String]) -> bool,
) -> Vec<&ProcessActivity> {
    let never_waits = |process: &&ProcessActivity| {
        let is_at_it = |stack: &[String]| {
            is_within(process, stack) && !stack.first().is_some_and(|at| stack::is_wait(at))
        };
        stack::runnable_share(process).is_some_and(|share| share >= 1.0)
            && 2 * process.ticks > period.vm_ticks
            && process.queue_max == 0
            && process.wait_stacks.is_empty()
            && match process.run_stacks.is_empty() {
                // Only the busiest ones are inspected in each sample.
                true => process.row.as_ref().is_some_and(|row| is_at_it(&row.stack)),
                false => process.run_stacks.iter().all(|(stack, _)| is_at_it(stack)),
            }
    };
    let found: Vec<&ProcessActivity> = period.processes.iter().filter(never_waits).collect();
    let is_most = view::reductions_share(period, &found).is_some_and(|share| share >= MOST);
    if is_most { found } else { Vec::new() }
}
